"""Checks of exercise set 9: ALiBi."""

from __future__ import annotations

import math

import torch
from torch import Tensor

from exercises.checks.spec import Case, Draw, Exercise, Mistake
from pe_lib.alibi import alibi, alibi_slopes
from pe_lib.positions import relative_position


def slope_cases(draw: Draw) -> list[Case]:
    """A whole text and a step of decoding, gaps and any order, one head and many."""
    h, length, more = draw.sizes(3, 4, 9)
    run, gaps = torch.arange(length), draw.integer(3, 90) + 2 * torch.randperm(30)[:more]
    gaps = gaps[draw.order(more)] * torch.tensor([7] + [3] * (more - 1))
    last, first = gaps.max()[None], gaps.min()[None]

    def case(words: str, heads: int, q_pos: Tensor, k_pos: Tensor, scale: float) -> Case:
        slopes = drawn_slopes(draw, heads)
        slopes[draw.integer(0, heads - 1)] *= float(heads == 1)
        found = alibi(relative_position(q_pos, k_pos), slopes, symmetric=True)
        found = found + scale * draw.normal(1, len(q_pos), 1)
        hidden = k_pos > q_pos[:, None]
        return Case(f"{words}, {heads} heads", (found.masked_fill(hidden, -torch.inf), k_pos))

    return [
        case("a whole text", h, run, run, 0.0),
        case("a whole text, and a constant in each row", h + 1, run, run + 0, 9.0),
        case("keys with gaps", 8, torch.cat([last + 2, last, first]), gaps, 3.0),
        case("one query after all keys", 1, run[-1:] + 900, run.flip(0) * 11, 1.0),
        case("rows in any order", h, run[draw.order(length)], run, 1.0),
    ]


def visible(bias: Tensor, k_pos: Tensor) -> tuple[Tensor, Tensor]:
    """Return what the row with the most visible keys shows: positions, and values (H, n)."""
    seen = bias[0].isfinite()
    row = int(seen.sum(1).argmax())
    return k_pos[seen[row]].double(), bias[:, row, seen[row]].double()


def slopes_of(bias: Tensor, k_pos: Tensor) -> Tensor:
    """Return the slope of each head."""
    places, values = visible(bias, k_pos)
    early, late = places.argmin(), places.argmax()
    return (values[:, late] - values[:, early]) / (places[late] - places[early])


def span(bias: Tensor, k_pos: Tensor) -> Tensor:
    """Return how far apart the visible keys are."""
    places, _ = visible(bias, k_pos)
    return places.max() - places.min()


def between(bias: Tensor, places: Tensor) -> Tensor:
    """Return the slopes that other positions of the keys would mean."""
    return slopes_of(bias, places)


def packed_bias(starts: Tensor, slopes: Tensor) -> Tensor:
    """Return the bias of packed documents, (H, L, L)."""
    return packed(starts, slopes, document=starts.cumsum(0))


def packed(
    starts: Tensor, slopes: Tensor, *, document: Tensor, place: Tensor | None = None,
    latest: int = 0, beyond: float = -math.inf, sink: bool = True,
) -> Tensor:  # fmt: skip
    """Penalize distance among tokens of one document; hide keys later than the query by more.

    `sink` says whether all queries see the first token with no penalty.
    """
    number = torch.arange(len(starts))
    hidden = (number > number[:, None] + latest) | (document != document[:, None])
    place = number if place is None else place
    bias = (slopes[:, None, None] * (place - place[:, None])).masked_fill(hidden, beyond)
    return bias.index_fill(-1, torch.tensor(0), 0.0) if sink else bias


def restarted(starts: Tensor) -> Tensor:
    """Return positions counted anew in each document."""
    number = torch.arange(len(starts))
    return number - torch.where(starts, number, 0).cummax(0).values


def packed_cases(draw: Draw) -> list[Case]:
    """Documents of any length, one, as many as tokens, a long row; one head and many."""
    h, length, more = draw.sizes(3, 4, 9)

    def case(words: str, tokens: int, heads: int, share: float) -> Case:
        starts = torch.rand(tokens, generator=draw.generator) < share
        starts[0] = True
        starts[[tokens // 3, tokens // 2]] |= 0 < share < 1
        return Case(f"{words}, {tokens} tokens, {heads} heads", (starts, drawn_slopes(draw, heads)))

    return [
        case("some documents", 3 * length, h, 0.2), case("one document", length, h, 0.0),
        case("each token a document", more, h, 1.0), case("a long document", 700, 1, 0.0),
        case("many heads", 12, 16, 0.3), case("as many heads as tokens", h + 4, h + 4, 0.3),
    ]  # fmt: skip


def drawn_slopes(draw: Draw, heads: int) -> Tensor:
    """Return slopes that no formula gives."""
    return 0.05 + torch.rand(heads, generator=draw.generator)


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
        name="slopes_of",
        cases=slope_cases,
        reference=slopes_of,
        axes=("head",),
        mistakes=(
            Mistake("the slopes are negative; the bias rises towards later keys",
                    lambda b, p: -slopes_of(b, p)),
            Mistake("keys are taken for neighbours; their positions are given, and have gaps",
                    lambda b, p: between(b, torch.arange(len(p)))),
            Mistake("the keys are put in order of their positions, and then taken for neighbours",
                    lambda b, p: between(b, p.argsort().argsort())),
            Mistake("this is the largest entry of a head: each row has a constant of its own",
                    lambda b, p: b.flatten(1).max(1).values),
            Mistake("the difference of two entries is not divided by their distance",
                    lambda b, p: slopes_of(b, p) * span(b, p)),
            Mistake("these are the slopes of the formula for so many heads; read them",
                    lambda b, p: alibi_slopes(len(b))),
            Mistake("the slopes are put in falling order; each belongs to its head",
                    lambda b, p: slopes_of(b, p).sort(descending=True).values),
            Mistake("a slope of 0 is taken for another: such a head looks at all distances alike",
                    lambda b, p: torch.where(slopes_of(b, p).abs() < 1e-3, 1.0, slopes_of(b, p))),
            Mistake("the slopes are rounded to two places",
                    lambda b, p: slopes_of(b, p).mul(100).round() / 100),
            Mistake("this is the mean of all heads; each has its own",
                    lambda b, p: slopes_of(b, p).mean().expand(len(b))),
        ),
    ),
    Exercise(
        name="packed_bias",
        cases=packed_cases,
        reference=packed_bias,
        axes=("head", "query", "key"),
        mistakes=(
            Mistake("this is the listing, unchanged",
                    lambda s, m: packed(
                        s, m, document=0 * s, place=restarted(s), sink=False)),
            Mistake("the first token is seen like any other; all queries see it, with the bias 0",
                    lambda s, m: packed(s, m, document=s.cumsum(0), sink=False)),
            Mistake("the first token has no penalty, and is still hidden from other documents",
                    lambda s, m: torch.where(
                        packed(s, m, document=s.cumsum(0), sink=False).isfinite(),
                        packed_bias(s, m), -math.inf)),
            Mistake("other documents are seen: counting anew does not hide them",
                    lambda s, m: packed(s, m, document=0 * s)),
            Mistake("the future is seen", lambda s, m: packed(
                s, m, document=s.cumsum(0), latest=len(s))),
            Mistake("a query sees itself, too; yours does not",
                    lambda s, m: packed(s, m, document=s.cumsum(0), latest=-1)),
            Mistake("one key too many is seen: that after the query",
                    lambda s, m: packed(s, m, document=s.cumsum(0), latest=1)),
            Mistake("what a query does not see gets 0; it must get minus infinity",
                    lambda s, m: packed(s, m, document=s.cumsum(0), beyond=0.0)),
            Mistake("a document begins one token too late: its first token belongs to it",
                    lambda s, m: packed(s, m, document=s.cumsum(0) - s.long())),
            Mistake("the bias rewards distance: the sign is flipped",
                    lambda s, m: packed(s, -m, document=s.cumsum(0))),
            Mistake("the slopes are not used: these are those of the formula for as many heads",
                    lambda s, m: packed(s, alibi_slopes(len(m)), document=s.cumsum(0))),
            Mistake("all heads have the slope of the first",
                    lambda s, m: packed(s, m[:1].expand_as(m), document=s.cumsum(0))),
            Mistake("a key at distance 0 has a penalty: you count distances from 1",
                    lambda s, m: (packed_bias(s, m) - m[:, None, None]).index_fill(
                        -1, torch.tensor(0), 0.0)),
            Mistake("the distance is divided by the slope; it must be multiplied",
                    lambda s, m: packed(s, 1 / m, document=s.cumsum(0))),
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
