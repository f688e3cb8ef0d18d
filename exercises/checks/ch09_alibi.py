"""Checks of exercise set 9: ALiBi."""

from __future__ import annotations

import math

import torch
from torch import Tensor

from exercises.checks.spec import Case, Draw, Exercise, Mistake
from pe_lib.alibi import alibi, alibi_slopes
from pe_lib.attention import relative_position


def slope_cases(draw: Draw) -> list[Case]:
    """Small counts, powers of two, and other counts above each of several powers."""
    drawn = [draw.integer(power + 1, 2 * power - 1) for power in (32, 64, 128, 256, 512)]
    counts = (
        8, 16, 12, 1, 6, 2, 3, 4, 5, 7, 24, 20, 40, 48, 96, 112, 32, 64, 128, 256, 512, 1024, *drawn
    )  # fmt: skip
    kinds = ("a count that is no power of two", "a power of two")
    return [Case(f"{kinds[n == floor_power(n)]}, {n} head{'s' if n > 1 else ''}", (n,))
            for n in counts]  # fmt: skip


def powers(n: int, steps: list[float]) -> Tensor:
    """Return 2 ** (-8 s / n) for each step s."""
    return torch.tensor([2 ** (-8 * s / n) for s in steps])


def floor_power(n: int) -> int:
    """Return the largest power of two that is at most n."""
    return int(2 ** (n.bit_length() - 1))


def with_extra(n: int, extra: list[float]) -> Tensor:
    """Return the slopes of the lower power of two, and some more."""
    low = floor_power(n)
    return powers(low, [*range(1, low + 1), *extra[: n - low]])


def bias(q_pos: Tensor, k_pos: Tensor, slopes: Tensor) -> Tensor:
    """Return the symmetric penalty, (H, Lq, Lk)."""
    return alibi(relative_position(q_pos, k_pos), slopes, symmetric=True)


def bias_cases(draw: Draw) -> list[Case]:
    """A step of decoding, keys on both sides, gaps, below 0, far apart; slopes of no formula."""
    heads, lk, lq = draw.sizes(3, 4, 9)
    start = draw.integer(11, 40)
    k_pos = torch.arange(start, start + lk)
    near = torch.cat([k_pos[1:2], draw.places(lq - 1, high=start + 9)])
    wide, far = -draw.places(lq) * 7, 100 - draw.places(lk) * 9
    farther = torch.cat([torch.arange(4), torch.arange(4) + 70_001, draw.places(5) * 1300])
    keys = f"keys at {start} to {start + lk - 1}"
    return [
        Case(f"a query at {start + lk}, {keys}",
             (k_pos[-1:] + 1, k_pos, drawn_slopes(draw, heads))),
        Case(f"queries at {near.tolist()}, {keys}", (near, k_pos, drawn_slopes(draw, heads))),
        Case(f"queries at {wide.tolist()}, keys at {far.tolist()}",
             (wide, far, drawn_slopes(draw, heads))),
        Case(f"queries and keys at {farther.tolist()}",
             (farther, farther, drawn_slopes(draw, 1))),
        Case(f"a query at 3, {keys}, and 32 heads",
             (torch.tensor([3]), k_pos, drawn_slopes(draw, 32))),
    ]  # fmt: skip


def drawn_slopes(draw: Draw, heads: int) -> Tensor:
    """Return slopes that no formula gives."""
    return 0.05 + torch.rand(heads, generator=draw.generator)


def counted_on(positions: Tensor) -> Tensor:
    """Return the first position, and each next one by one more."""
    return positions[:1] + torch.arange(len(positions))


def listing(q_pos: Tensor, k_pos: Tensor, slopes: Tensor) -> Tensor:
    """Return what the listing of the exercise returns."""
    return alibi(relative_position(torch.arange(len(q_pos)), torch.arange(len(k_pos))), slopes)


def reach(slopes: Tensor, share: float) -> Tensor:
    """Return how many of the nearest keys hold the share of the weight."""
    distances = torch.arange(8000, dtype=torch.float64)
    found = []
    for slope in slopes.double():
        held = (-slope * distances).exp().cumsum(0) * (1 - (-slope).exp())
        found.append(int((held < share).sum()) + 1)
    return torch.tensor(found)


def reach_cases(draw: Draw) -> list[Case]:
    """The slopes of eight heads, drawn ones, and some that need float64."""
    share = draw.integer(71, 88) / 100  # float32 hits the logarithm of 1 - 0.89 by chance
    few, most = draw.integer(3, 45) / 100, 0.993
    drawn = [(10 * draw.integer(2, 98) + 3) / 1000 for _ in range(5)] + [2.5]
    counts = [draw.integer(2000, 3000) + side for _ in range(4) for side in (1e-6, -1e-6)]
    fine = [-math.log1p(-share) / count for count in counts]
    return [
        Case("the slopes of 8 heads and a share of 0.9", (alibi_slopes(8), 0.9)),
        *(Case(f"slopes {drawn} and a share of {part}", (torch.tensor(drawn), part))
          for part in (few, most)),
        Case(f"slopes {drawn} and a share of {share}", (torch.tensor(drawn), share)),
        Case(f"slopes of less than a thousandth and a share of {share}",
             (torch.tensor(fine, dtype=torch.float64), share)),
    ]  # fmt: skip


def closed(slopes: Tensor, share: float, how: str) -> Tensor:
    """Return the count by a formula, rounded in some way."""
    wide = slopes.double()
    exact = -math.log(1 - share) / wide
    choices = {"floor": exact.floor(), "round": exact.round(), "plus": exact.ceil() + 1,
               "minus": exact.ceil() - 1, "exact": exact, "inverse": (1 / wide).ceil(),
               "share": (-math.log(share) / wide).ceil(), "linear": (share / wide).ceil(),
               "two": (exact / math.log(2)).ceil(), "ten": (exact / math.log(10)).ceil(),
               }  # fmt: skip
    return choices[how]


def narrow(slopes: Tensor, share: float, how: str) -> Tensor:
    """Return the count with the logarithm, the division or both in float32."""
    power = -torch.tensor(1 - share, dtype=torch.float64).log()
    if how in ("log", "both"):
        power = -torch.tensor(1 - share, dtype=torch.float32).log()
    if how == "log":
        return (power / slopes.double()).ceil()
    if how == "scalar":  # how torch divides a number by a tensor
        return (slopes.float().reciprocal() * float(power)).ceil()
    return (power.float() / slopes.float()).ceil()


NARROW = ("one key too many or too few where the exact result is close to a whole number: float32 "
          "is too coarse for that")  # fmt: skip

EXERCISES = (
    Exercise(
        name="alibi_slopes",
        cases=slope_cases,
        reference=alibi_slopes,
        axes=("head",),
        tolerance=1e-6,
        mistakes=(
            Mistake("a count that is no power of two takes the slopes of the next lower power "
                    "first; you use its own formula", lambda n: powers(n, [*range(1, n + 1)])),
            Mistake("the slopes are negative; the sign belongs in the bias",
                    lambda n: -alibi_slopes(n)),
            Mistake("the first slope is 2 ** (-8 / n), not 1: heads are counted from 1",
                    lambda n: with_extra(n, [h - 0.5 for h in range(1, n + 1)]) * 2 ** (
                        8 / floor_power(n))),
            Mistake("the first slope is 2 ** (-8 / n), not 1: heads are counted from 1 (the extra "
                    "ones are right)",
                    lambda n: torch.cat([powers(low := floor_power(n), [*range(low)]),
                                         alibi_slopes(n)[low:]])),
            Mistake("the exponent is -8 h / n; the 8 is missing",
                    lambda n: alibi_slopes(n) ** (1 / 8)),
            Mistake("the exponent is -8 h / n; n is missing",
                    lambda n: alibi_slopes(n) ** floor_power(n)),
            Mistake("the order is reversed: the first head has the largest slope",
                    lambda n: alibi_slopes(n).flip(0)),
            Mistake("all slopes are sorted; the extra ones stand at the end",
                    lambda n: alibi_slopes(n).sort(descending=True).values),
            Mistake("the extra heads begin half a step too late",
                    lambda n: with_extra(n, [h + 0.5 for h in range(1, n + 1)])),
            Mistake("the extra heads begin a step too early: they, too, are counted from 1",
                    lambda n: with_extra(n, [h - 0.5 for h in range(n)])),
            Mistake("the extra heads repeat the slopes that are there; they lie half way between",
                    lambda n: with_extra(n, [*range(1, n + 1)])),
            Mistake("the extra heads go on where the slopes stop; they lie half way between",
                    lambda n: with_extra(n, [floor_power(n) + h for h in range(1, n + 1)])),
            Mistake("the extra heads are counted on; for them, h begins again at 1",
                    lambda n: with_extra(n, [floor_power(n) + h - 0.5 for h in range(1, n + 1)])),
            Mistake("the extra heads take all slopes of twice as many heads, from the first; "
                    "every other one is there already",
                    lambda n: with_extra(n, [h / 2 for h in range(1, n + 1)])),
            Mistake("the slopes are those of the next higher power of two, cut off",
                    lambda n: powers(m := n if n == floor_power(n) else 2 * floor_power(n),
                                     [*range(1, m + 1)])[:n]),
            Mistake("the slopes fall along a line; they must fall by a constant factor",
                    lambda n: torch.linspace(1, 1 / n, n)),
            Mistake("these are natural powers (e); the base is 2",
                    lambda n: torch.exp(torch.log2(alibi_slopes(n)))),
        ),
    ),
    Exercise(
        name="alibi_bias",
        cases=bias_cases,
        reference=bias,
        axes=("head", "query", "key"),
        mistakes=(
            Mistake("the bias rewards distance: the sign is flipped", lambda *a: -bias(*a)),
            Mistake("keys to the right are rewarded: take the absolute distance",
                    lambda q, k, s: alibi(relative_position(q, k), s)),
            Mistake("keys to the left are rewarded: take the absolute distance",
                    lambda q, k, s: alibi(-relative_position(q, k), s)),
            Mistake("this is what the listing returns: nothing is mended yet", listing),
            Mistake("you count positions yourself: with a cache, the query is not at position 0",
                    lambda q, k, s: bias(torch.arange(len(q)), torch.arange(len(k)), s)),
            Mistake("you count queries from 0: with a cache, the query is not there",
                    lambda q, k, s: bias(torch.arange(len(q)), k, s)),
            Mistake("you count keys from 0; use k_pos",
                    lambda q, k, s: bias(q, torch.arange(len(k)), s)),
            Mistake("you take the first key's position and count on by one; there may be gaps",
                    lambda q, k, s: bias(q, counted_on(k), s)),
            Mistake("you take the first query's position and count on by one; there may be gaps",
                    lambda q, k, s: bias(counted_on(q), k, s)),
            Mistake("you take the first positions and count on by one; there may be gaps",
                    lambda q, k, s: bias(counted_on(q), counted_on(k), s)),
            Mistake("the slopes are not used: these are those of the formula for as many heads",
                    lambda q, k, s: bias(q, k, alibi_slopes(len(s)))),
            Mistake("the bias depends on the key alone: a shortcut that only holds for keys "
                    "to the left, up to a number for each query",
                    lambda q, k, s: s[:, None, None] * k.expand(len(q), -1)),
            Mistake("negative positions are taken as 0",
                    lambda q, k, s: bias(q.clamp(min=0), k.clamp(min=0), s)),
            Mistake("keys to the right have no penalty; take the absolute distance",
                    lambda q, k, s: alibi(relative_position(q, k).clamp(max=0), s)),
            Mistake("keys to the right are hidden; this exercise has no mask",
                    lambda q, k, s: bias(q, k, s).masked_fill(
                        relative_position(q, k) > 0, -torch.inf)),
            Mistake("the distance is squared", lambda q, k, s: -s[:, None, None]
                    * relative_position(q, k) ** 2),
            Mistake("a key at distance 0 has a penalty: you count distances from 1",
                    lambda q, k, s: bias(q, k, s) - s[:, None, None]),
            Mistake("the distance is divided by the slope; it must be multiplied",
                    lambda q, k, s: bias(q, k, 1 / s)),
            Mistake("all heads have the slope of the first",
                    lambda q, k, s: bias(q, k, s[:1].expand_as(s))),
        ),
    ),
    Exercise(
        name="reach",
        cases=reach_cases,
        reference=reach,
        tolerance=1e-6,
        axes=("head",),
        mistakes=(
            Mistake("one key too few: with that many, the share is not reached yet",
                    lambda s, x: closed(s, x, "floor")),
            Mistake("one key too few: with that many, the share is not reached yet",
                    lambda s, x: closed(s, x, "minus")),
            Mistake("you round to the nearest whole number: often one key too few",
                    lambda s, x: closed(s, x, "round")),
            Mistake("one key too many: one fewer is enough", lambda s, x: closed(s, x, "plus")),
            Mistake("1 - exp(-m N) is the share of N keys: you solve for 1 - share",
                    lambda s, x: closed(s, x, "share")),
            Mistake("this is 1/slope; the share is missing", lambda s, x: closed(s, x, "inverse")),
            Mistake("the softmax has powers of e, not of 2", lambda s, x: closed(s, x, "two")),
            Mistake("the softmax has powers of e, not of 10", lambda s, x: closed(s, x, "ten")),
            *(Mistake(NARROW, lambda s, x, how=how: narrow(s, x, how))
              for how in ("log", "division", "scalar", "both")),
            Mistake("the weights fall exponentially, not along a line",
                    lambda s, x: closed(s, x, "linear")),
            Mistake("wanted is a whole number of keys", lambda s, x: closed(s, x, "exact")),
            Mistake("the slopes are in reverse order", lambda s, x: reach(s.flip(0), x)),
            Mistake("the share is 0.9 always; it is an argument", lambda s, x: reach(s, 0.9)),
            Mistake("all slopes have the reach of the first",
                    lambda s, x: reach(s[:1].expand_as(s), x)),
        ),
    ),
)  # fmt: skip
