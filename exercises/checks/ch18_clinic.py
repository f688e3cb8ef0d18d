"""Checks of exercise set 18: what a function does with positions, from what it returns alone."""

from __future__ import annotations

from collections.abc import Callable
from itertools import combinations

import torch
from torch import Tensor

from pe_course.judge.exercise import Case, Draw, Exercise, Mistake
from pe_lib.rope import apply_rope
from pe_lib.sinusoidal import frequencies


def pairs_from(first: Tensor, second: Tensor, width: int) -> Tensor:
    """Return the partner of each of `width` components; who is in no pair is alone."""
    found = torch.arange(width)
    found[first], found[second] = second, first
    return found


def logged(draw: Draw, partner: Tensor, places: Tensor, slow: float) -> tuple[Tensor, Tensor]:
    """Return vectors (N, d) and what a rotation by these pairs makes of each, at its place."""
    first = (partner > torch.arange(len(partner))).nonzero().flatten()
    second, angles = partner[first], places[:, None] / slow * frequencies(2 * len(first))
    x = draw.normal(len(places), len(partner)).double()
    y, a, b = x.clone(), x[:, first], x[:, second]
    y[:, first] = a * angles.cos() - b * angles.sin()
    y[:, second] = a * angles.sin() + b * angles.cos()
    return x, y


def partner_cases(draw: Draw) -> list[Case]:
    """Both layouts, a part of the width at either end, blocks, and an order that nobody uses.

    Position 0 stands first, last, in between, or is missing; one function has slow pairs only.
    """
    n, more, other = draw.sizes(3, 4, 9)
    whole, some = torch.arange(2 * n), torch.arange(2 * more)
    mixed = 2 * other + torch.randperm(2 * other, generator=draw.generator)
    ways = {
        "a function A": (whole[:n], whole[n:], 2 * n),
        "a function B": (some[::2], some[1::2], 2 * more),
        "a function C": (some[:more], some[more:], 2 * more + 3),
        "a function D": (5 + whole[::2], 5 + whole[1::2], 2 * n + 5),
        "a function E": (mixed[:other], mixed[other:], 4 * other),
    }
    zero, there = torch.zeros(1, dtype=torch.long), draw.places(3)
    places = (
        torch.cat([zero, there]), torch.cat([there, zero]), torch.cat([there[:1], zero, there]),
        torch.cat([zero, -there]), there,
    )  # fmt: skip
    slow = (1.0, 1.0, 1.0, 1e5, 1.0)
    return [
        Case(
            label,
            logged(draw, pairs_from(*pairs), places[i], slow[i]),
            drawn=f", {pairs[2]} components",
        )
        for i, (label, pairs) in enumerate(ways.items())
    ]


def change(x: Tensor, y: Tensor) -> Tensor:
    """Return by how much the square of each component changes, (N, d)."""
    return y.square() - x.square()


def partners(x: Tensor, y: Tensor) -> Tensor:
    """Return the partner of each component, and itself where it has none."""
    return chosen(change(x, y))


def chosen(gain: Tensor, least: float = 0.0, sign: int = 1, alone: int | None = None) -> Tensor:
    """Return whose gain is each one's loss; alone are those that change no more than a bound."""
    apart = (gain[:, :, None] + sign * gain[:, None]).abs().amax(0)
    itself = torch.arange(gain.shape[1])
    if sign < 0:  # each has its own gain
        apart = apart + torch.diag(torch.full_like(gain[0], torch.inf))
    still = itself if alone is None else torch.full_like(itself, alone)
    return torch.where(gain.abs().amax(0) > least, apart.argmin(1), still)


def own(x: Tensor) -> Tensor:
    """Return the number of each component."""
    return torch.arange(x.shape[-1])


def half_inside(x: Tensor, y: Tensor) -> Tensor:
    """Pair the halves of the components that are in pairs, whatever the log shows."""
    inside = (partners(x, y) != own(x)).nonzero().flatten()
    first, second = inside.chunk(2)
    return pairs_from(first, second, x.shape[-1])


def neighbours_inside(x: Tensor, y: Tensor) -> Tensor:
    """Pair neighbours among the components that are in pairs, whatever the log shows."""
    inside = (partners(x, y) != own(x)).nonzero().flatten()
    return pairs_from(inside[::2], inside[1::2], x.shape[-1])


def tables(base: float, factor: float, n: int, start: int, length: int) -> tuple[Tensor, Tensor]:
    """Return cosines and sines of consecutive positions, (L, n) each, float64."""
    places = torch.arange(start, start + length)[:, None].double()
    angles = places * frequencies(2 * n, base) / factor
    return angles.cos(), angles.sin()


def table_cases(draw: Draw) -> list[Case]:
    """Usual bases and others, stretched or not; tables that start at 0, at 3, and far out.

    No rounding gives the last base and factor; one table has two rows, one has wide heads.
    """
    n, more, last = draw.sizes(3, 4, 12)
    start, far = draw.integer(20, 90), draw.integer(500, 900)
    some = draw.integer(200, 900) + 0.375
    ways = {
        "a usual table": (10000.0, 1.0, n, 0, 9 + n),
        "two rows": (500000.0, 1.0, more, 3, 2),
        "a stretched table": (10000.0, 4.0, 64, start, 10),
        "a strange table": (some, 2.374, last, far, 8 + n),
    }
    return [
        Case(label, tables(*way), drawn=f": {way[2]} pairs, from position {way[3]}")
        for label, way in ways.items()
    ]


def rates_of(cos: Tensor, sin: Tensor) -> Tensor:
    """Return the angle from one row to the next, (n,)."""
    z = torch.complex(cos.double(), sin.double())
    return (z[1] * z[0].conj()).angle()


Pair = tuple[Tensor, Tensor]


def base_and_factor(cos: Tensor, sin: Tensor) -> Pair:
    """Return the base and the factor by which all frequencies are divided."""
    return read(rates_of(cos, sin))


def read(inv_freq: Tensor) -> Pair:
    """Return base and factor of frequencies base ** (-j / n) / factor."""
    return (inv_freq[0] / inv_freq[1]) ** len(inv_freq), 1 / inv_freq[0]


def by_rates(change: Callable[[Tensor, Tensor, Tensor], Pair]) -> Callable[[Tensor, Tensor], Pair]:
    """Return an answer that makes something else of the rates, the right base and factor."""
    return lambda cos, sin: change(rates_of(cos, sin), *base_and_factor(cos, sin))


def angles_of(cos: Tensor, sin: Tensor) -> Tensor:
    """Return angles between -pi and pi, (L, n)."""
    return torch.atan2(sin.double(), cos.double())


ONE = torch.ones((), dtype=torch.float64)
WIDE = 3000  # positions to be read back are smaller: the slowest pair makes less than half a turn


def reading_cases(draw: Draw) -> list[Case]:
    """Calls whose positions are as they should be, or are not: all numbers below 3,000."""
    rows, (length, n) = 3, draw.sizes(2, 4, 9)
    primes = torch.tensor([41, 43, 47, 53])[draw.order(4)[:rows, None]]
    first = primes.prod() // primes  # two rows have a divisor in common, all three have none
    given = torch.sort(draw.places(rows, length, high=WIDE - 1)).values
    given[-1, -1] = WIDE - 1
    run = torch.arange(length)
    ways = {
        "a first function": given,
        "a second function": given[:1].expand(rows, -1),
        "a third function": first + 1 + run,
        "a fourth function": torch.cat([run.expand(rows, -1), given], 1),
        "a fifth function": given.clamp(max=700),
    }
    return [
        Case(label, (*read_off(draw, torch.cat([first, places], 1), pairs), first[:, 0]),
             drawn=f", width {2 * pairs}")
        for (label, places), pairs in zip(ways.items(), (4, 64, 5, 6, n), strict=True)
    ]  # fmt: skip


def read_off(draw: Draw, places: Tensor, n: int) -> tuple[Tensor, Tensor]:
    """Return vectors (B, L, 2 n), and the same rotated by places; one pair is slow."""
    x = draw.normal(*places.shape, 2 * n).double()
    x = x + x.sign() / 4  # no component is so small that its angle is lost
    inv_freq = 0.02 * 100 ** torch.rand(n, generator=draw.generator).double()
    inv_freq[: n // 3], inv_freq[n // 3] = 0.0, 9e-4 + 1e-4 * draw.integer(0, 9) / 9
    if n < 64:  # a fast pair seems slower still, the same in two of the rows
        share = torch.gcd(places[n % 3, 0], places[n % 3 - 1, 0])
        inv_freq[-1] = 2 * torch.pi * draw.integer(1, 9) / share + 7e-4
    inv_freq = inv_freq[draw.order(n)]
    return x, apply_rope(x[:, None], places[..., None] * inv_freq)[:, 0]


def phases(x: Tensor, y: Tensor, *, half: bool = False) -> Tensor:
    """Return the angle by which each pair was rotated, (B, L, d / 2), between -pi and pi."""

    def pairs(v: Tensor) -> Tensor:
        return torch.complex(*(v.chunk(2, -1) if half else (v[..., ::2], v[..., 1::2])))

    return (pairs(y) * pairs(x).conj()).angle()


def positions_used(x: Tensor, y: Tensor, first: Tensor, *, half: bool = False) -> Tensor:
    """Return the position by which each token was rotated, (B, L) int64."""
    angles = phases(x, y, half=half)
    inv_freq = angles[:, 0] / first[:, None]
    spread = (inv_freq.amax(0) - inv_freq.amin(0)) / inv_freq.abs().amax(0)
    return by_pair(angles, first, int(spread.nan_to_num(torch.inf).argmin()))


def by_pair(angles: Tensor, first: Tensor, pair: int) -> Tensor:
    """Read positions from one pair, whose rate is that of the first row's first token."""
    found = angles[..., pair] / (angles[0, 0, pair] / first[0])
    return found.nan_to_num(0.0, 0.0, 0.0).round().long()


def smallest(x: Tensor, y: Tensor, first: Tensor, least: float) -> Tensor:
    """Read positions from the pair that seems slowest in the first row, above a bound."""
    angles = phases(x, y)
    size = angles[0, 0].abs()
    return by_pair(angles, first, int(size.masked_fill(size < least, torch.inf).argmin()))


def seeming(x: Tensor, y: Tensor, first: Tensor, rows: int = 3, apart: float = torch.inf) -> Tensor:
    """Read positions from the pair that seems slowest in some rows, if they agree enough."""
    angles = phases(x, y)
    inv_freq = angles[:rows, 0] / first[:rows, None]
    size, spread = inv_freq.abs().amax(0), inv_freq.amax(0) - inv_freq.amin(0)
    other = (size < 1e-9) | (spread > apart)
    return by_pair(angles, first, int(size.masked_fill(other, torch.inf).argmin()))


def stories(call: Tensor) -> list[Tensor]:
    """Return the positions (B, L) that each of the four functions uses in a call."""
    return [call, call.argsort(1).argsort(1), call - call[:, :1], call.roll(1, 0)]


def telling_calls(calls: Tensor) -> Tensor:
    """Return which calls (C, B, L) tell all four stories apart, (C,)."""
    return told(calls)


def somewhere(a: Tensor, b: Tensor) -> bool:
    """Return whether two stories differ for some token."""
    return bool((a != b).any())


def told(
    calls: Tensor,
    differ: Callable[[Tensor, Tensor], bool] = somewhere,
    among: tuple[tuple[int, int], ...] = tuple(combinations(range(4), 2)),
    read: Callable[[Tensor], list[Tensor]] = stories,
    every: Callable[[list[bool]], bool] = all,
) -> Tensor:
    """Return for each call whether pairs of stories differ."""
    found = []
    for call in calls:
        each = read(call)
        found.append(every([differ(each[i], each[j]) for i, j in among]))
    return torch.tensor(found)


def without(story: int) -> tuple[tuple[int, int], ...]:
    """Return the pairs of stories but for those of one."""
    return tuple(pair for pair in combinations(range(4), 2) if story not in pair)


def changed(story: int, make: Callable[[Tensor], Tensor]) -> Callable[[Tensor], list[Tensor]]:
    """Return stories of which one is told otherwise."""

    def read(call: Tensor) -> list[Tensor]:
        found = stories(call)
        found[story] = make(call).expand_as(call)
        return found

    return read


def call_cases(draw: Draw) -> list[Case]:
    """Calls of every kind: some tell all four apart, some mix up two stories, some all."""
    rows, length, more, longer = draw.sizes(4, 4, 9)
    ways = (("several rows", rows, length), ("more rows", more, longer), ("two rows", 2, longer))
    found = [Case(label, (some_calls(draw, *size),)) for label, *size in ways]
    return [*found, Case("one row", (some_calls(draw, 1, length),)),
            Case("one token in each row", (draw.places(4, rows, 1),))]  # fmt: skip


def some_calls(draw: Draw, rows: int, length: int) -> Tensor:
    """Return calls (C, rows, length): free ones, and those in which stories agree.

    In some a single row, or the tokens before the last, tell two stories apart.
    """
    run = torch.arange(length)
    free, other = (rising(draw, rows, length) for _ in range(2))
    starts = draw.order(rows)[:, None] * 3 + 4 if rows > 2 else 4 + 3 * torch.arange(rows)[:, None]
    lone, begun, ended = free[:1].repeat(rows, 1), starts + run, starts + run
    lone[-1] = other[-1]
    begun[0, -1] += 2
    ended[-1, -1] += 2
    zero, bent = free.clone(), starts + run
    zero[:, 0] = 0
    bent[:, 1] = bent[:, 0] - 1  # the last token does not tell
    around = torch.cat([run[:1], run[2:], run[1:2]])
    calls = [
        free, run.expand(rows, -1), free[:1].expand(rows, -1), starts + run, bent, zero, begun,
        ended, lone, other.flip(1), run.flip(0) + starts, around + starts,
        torch.stack([around.roll(n) for n in range(rows)]),
        torch.stack([free[0].roll(n) for n in range(rows)]), torch.cat([run[None], other[1:]]),
    ]  # fmt: skip
    return torch.stack(calls)[torch.randperm(len(calls), generator=draw.generator)]


def rising(draw: Draw, rows: int, length: int) -> Tensor:
    """Return positions (rows, length) that grow with gaps, other ones in each row."""
    steps = torch.randint(2, 9, (rows, length), generator=draw.generator)
    return steps.cumsum(1) + 10 * torch.arange(rows)[:, None]


EXERCISES = (
    Exercise(
        name="partners",
        cases=partner_cases,
        reference=partners,
        integers=True,
        axes=("component",),
        mistakes=(
            Mistake("you look at the first vector alone: it may be at 0, where nothing rotates",
                    lambda x, y: partners(x[:1], y[:1])),
            Mistake("you look at the last vector alone: it may be at 0, where nothing rotates",
                    lambda x, y: partners(x[-1:], y[-1:])),
            *(Mistake("slow pairs mix too: their squares change little, and not by zero; your "
                      "bound is too high", lambda x, y, least=least: chosen(change(x, y), least))
              for least in (0.1, 1e-2, 1e-3, 1e-4, 1e-5)),
            Mistake("what one of a pair gains, the other loses; you look for the same gain",
                    lambda x, y: chosen(change(x, y), sign=-1)),
            Mistake("a rotation keeps the sum of the squares, not that of the components",
                    lambda x, y: chosen(y - x)),
            Mistake("a rotation keeps the sum of the squares, not that of the absolute values",
                    lambda x, y: chosen(y.abs() - x.abs())),
            Mistake("this is the input that goes best with each output; with few vectors, at "
                    "positions of their own, that is chance",
                    lambda x, y: (x.mT @ y - torch.diag((x * y).sum(0))).abs().argmax(1)),
            Mistake("you take neighbours whatever the log shows",
                    lambda x, y: own(x) ^ 1 if x.shape[-1] % 2 == 0 else (own(x) ^ 1)
                    .clamp(max=x.shape[-1] - 1)),
            Mistake("you take component i and i + d / 2 whatever the log shows",
                    lambda x, y: (own(x) + x.shape[-1] // 2) % x.shape[-1]),
            Mistake("these are halves of what rotates, whatever the log shows", half_inside),
            Mistake("these are neighbours within what rotates, whatever the log shows",
                    neighbours_inside),
            *(Mistake(f"a component that is left alone is its own partner; yours has {alone}",
                      lambda x, y, alone=alone: chosen(change(x, y), alone=alone))
              for alone in (-1, 0)),
            Mistake("this is the smaller number of each pair, for both of its components",
                    lambda x, y: torch.minimum(partners(x, y), own(x))),
            Mistake("this is how far away the partner is, not which it is",
                    lambda x, y: partners(x, y) - own(x)),
            Mistake("components are counted from 0; yours from 1",
                    lambda x, y: partners(x, y) + 1),
        ),
    ),
    Exercise(
        name="base_and_factor",
        cases=table_cases,
        reference=base_and_factor,
        mistakes=(
            Mistake("the two values are exchanged: the base comes first",
                    lambda c, s: base_and_factor(c, s)[::-1]),
            Mistake("the factor is upside down: frequencies are divided by it",
                    by_rates(lambda w, b, f: (b, 1 / f))),
            Mistake("this is the base upside down", by_rates(lambda w, b, f: (1 / b, f))),
            Mistake("this is the ratio of the first frequency and the last; the last is not quite "
                    "1/base of the first", by_rates(lambda w, b, f: (w[0] / w[-1], f))),
            Mistake("the base is squared: the exponent is j / n for n pairs, and n is the number "
                    "of columns", by_rates(lambda w, b, f: (b**2, f))),
            Mistake("this is the root of the base: the exponent is j / n, not j / (2n)",
                    by_rates(lambda w, b, f: (b**0.5, f))),
            Mistake("this is the logarithm of the base", by_rates(lambda w, b, f: (b.log(), f))),
            Mistake("this is the ratio of two neighbouring frequencies; over all n pairs it "
                    "multiplies n times", by_rates(lambda w, b, f: (w[0] / w[1], f))),
            Mistake("the first frequency need not be 1: you take the factor into the base",
                    by_rates(lambda w, b, f: (w[-1] ** (-len(w) / (len(w) - 1)), ONE))),
            Mistake("the first frequency need not be 1: you take the factor into the base",
                    by_rates(lambda w, b, f: ((1 / w[1]) ** len(w), ONE))),
            Mistake("the factor is missing: it is 1 over the first frequency",
                    by_rates(lambda w, b, f: (b, ONE))),
            Mistake("the factor stands for the last pair; it divides all of them alike",
                    by_rates(lambda w, b, f: (b, 1 / w[-1]))),
            Mistake("the first row need not be position 0: take the angle between two rows",
                    lambda c, s: read(angles_of(c, s)[1])),
            Mistake("the angle of a row lies between -pi and pi: the difference of two may have "
                    "lost a full turn", lambda c, s: read(angles_of(c, s).diff(dim=0)[0])),
            Mistake("from the first row to the last, fast pairs make more than one turn: take rows "
                    "that are neighbours",
                    lambda c, s: read((angles_of(c, s)[-1] - angles_of(c, s)[0]) / (len(c) - 1))),
        ),
    ),
    Exercise(
        name="positions_used",
        cases=reading_cases,
        reference=positions_used,
        integers=True,
        axes=("row", "token"),
        mistakes=(
            Mistake("the rates stand in no order; you read the last pair, whichever it is",
                    lambda x, y, f: by_pair(phases(x, y), f, -1)),
            Mistake("the rates stand in no order; you read the first pair, whichever it is",
                    lambda x, y, f: by_pair(phases(x, y), f, 0)),
            Mistake("a pair that stands still tells no position",
                    lambda x, y, f: smallest(x, y, f, 0.0)),
            Mistake("one row cannot show which pairs have lost a turn: any may seem slow there",
                    lambda x, y, f: smallest(x, y, f, 1e-9)),
            Mistake("a pair that seems slow in every row may have lost turns in each: do the rows "
                    "agree on its rate?", seeming),
            Mistake("the first two rows agree on a pair that has lost turns in both: ask all rows",
                    lambda x, y, f: seeming(x, y, f, 2, 1e-9)),
            Mistake("no base is given; you take 10000, and the last pair for the slowest",
                    lambda x, y, f: (phases(x, y)[..., -1] / frequencies(x.shape[-1])[-1])
                    .round().long()),
            Mistake("neighbours are pairs here; you pair component i with i + d / 2",
                    lambda x, y, f: positions_used(x, y, f, half=True)),
            Mistake("these are the places in the row, which is what was wanted, perhaps; read what "
                    "was used", lambda x, y, f: torch.arange(x.shape[1]).expand(x.shape[:2])),
            Mistake("every row has positions of its own; you repeat those of the first",
                    lambda x, y, f: positions_used(x, y, f)[:1].expand(x.shape[:2])),
            Mistake("these count from the first token of each row; wanted is what was used",
                    lambda x, y, f: positions_used(x, y, f) - f[:, None]),
            Mistake("the first token's position is known, and the rest counted from there; read "
                    "each token's", lambda x, y, f: f[:, None] + torch.arange(x.shape[1])),
            Mistake("positions start at 0; yours are one more",
                    lambda x, y, f: positions_used(x, y, f) + 1),
        ),
    ),
    Exercise(
        name="telling_calls",
        cases=call_cases,
        reference=telling_calls,
        axes=("call",),
        mistakes=(
            Mistake("the answer is the wrong way round: True where the call tells them apart",
                    lambda c: ~telling_calls(c)),
            Mistake("each story is compared with the right one only; two wrong ones may agree, "
                    "and you could not say which bug it is",
                    lambda c: told(c, among=((0, 1), (0, 2), (0, 3)))),
            Mistake("it is not enough that two of the stories differ: all pairs must",
                    lambda c: told(c, every=any)),
            Mistake("by this no call tells; one token of any row is enough to tell two functions "
                    "apart", lambda c: torch.zeros(len(c), dtype=torch.bool)),
            Mistake("you look at the last row alone; each may tell",
                    lambda c: told(c, lambda a, b: somewhere(a[-1], b[-1]))),
            Mistake("you look at the first two rows alone; each may tell",
                    lambda c: told(c, lambda a, b: somewhere(a[:2], b[:2]))),
            Mistake("you look at the last token of each row alone; each may tell",
                    lambda c: told(c, lambda a, b: somewhere(a[:, -1], b[:, -1]))),
            Mistake("the order of positions matters: you compare them sorted",
                    lambda c: told(c, lambda a, b: somewhere(a.sort(1).values, b.sort(1).values))),
            Mistake("you leave out the function that numbers tokens by their order",
                    lambda c: told(c, among=without(1))),
            Mistake("you leave out the function that moves each row to 0",
                    lambda c: told(c, among=without(2))),
            Mistake("you leave out the function that gives a row the positions of another",
                    lambda c: told(c, among=without(3))),
            Mistake("`argsort` alone says which token comes first; its number is the `argsort` of "
                    "that", lambda c: told(c, read=changed(1, lambda p: p.argsort(1)))),
            Mistake("a row is moved by its first position; you take its smallest",
                    lambda c: told(c, read=changed(2, lambda p: p - p.amin(1, keepdim=True)))),
            Mistake("rows that differ are not enough",
                    lambda c: (c != c[:, :1]).flatten(1).any(1)),
        ),
    ),
)  # fmt: skip
