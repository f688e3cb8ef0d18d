"""Checks of exercise set 12: what an unknown head reads, from its queries, keys and scores."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from pe_course.judge.exercise import Answer, Case, Draw, Exercise, Mistake
from pe_lib.rope import apply_rope, rope_angles
from pe_lib.sinusoidal import frequencies

Map = Callable[[Tensor], Tensor]


def complex_pairs(x: Tensor, half: bool = False) -> Tensor:
    """Read pairs of components as complex numbers, (..., d / 2)."""
    x = x.double()
    return torch.complex(*(x.chunk(2, -1) if half else (x[..., ::2], x[..., 1::2])))


def distances_read(scores: Tensor, window: int, of: Map = lambda b: b) -> Tensor:
    """Return where each head's part for the distance is highest, as key minus query, (H,)."""
    mean = scores.double().mean(1)
    rows = [mean[:, i, i - window : i + 1] for i in range(window, mean.shape[-1])]
    return of(torch.stack(rows).mean(0)).argmax(1) - window


def along_diagonals(x: Tensor, window: int) -> Tensor:
    """Take the mean along each diagonal, over all queries that see the distance."""
    there = [x.diagonal(n, 1, 2).mean(1) for n in range(-window, 1)]
    return torch.stack(there, 1).argmax(1) - window


def looking_heads(draw: Draw, heads: int, texts: int, window: int, words: float) -> tuple[Any, ...]:
    """Return scores (H, N, L, L) of heads that look somewhere, and the window."""
    length = window + 9
    wanted = torch.randint(window + 1, (heads,), generator=draw.generator)
    wanted[0], wanted[-1] = window - draw.integer(1, 3), draw.integer(0, 2)
    b = torch.rand(heads, window + 1, generator=draw.generator)
    b[torch.arange(heads), wanted] = 1.8
    b[0, 0] = 1.4  # nearly as high, and far away
    b = torch.cat([torch.full((heads, length - window - 1), -10.0), b], 1)  # from 1 - L to 0
    places = torch.arange(length)
    scores = b[:, (places - places[:, None]).clamp(max=0) + length - 1][:, None]
    slope = torch.linspace(0.6, -0.6, heads).view(-1, 1, 1, 1)  # the first head looks near
    own = slope * places[:, None] + 3 * draw.normal(heads, texts, length, 1)
    scores = scores + own + words * draw.normal(heads, texts, length, length)
    return scores.masked_fill(torch.ones(length, length).triu(1).bool(), 7.0), window


def looking_cases(draw: Draw) -> list[Case]:
    """Few heads and many, short windows and long, words that speak louder than places."""
    heads, more = draw.sizes(2, 5, 9)
    return [
        Case("some heads", looking_heads(draw, heads, 12, 12, 0.5), drawn=f", H = {heads}"),
        Case("loud words", looking_heads(draw, more, 60, 20, 2.0), drawn=f", H = {more}"),
        Case("a short window", looking_heads(draw, heads, 40, 7, 1.0), drawn=f", H = {heads}"),
    ]


LAYOUTS = ("neighbours", "halves", "halves of the first half")


def scores_of(
    q: Tensor, k: Tensor, layout: int, base: float, *, sign: float = 1.0, power: float = 1.0,
    still: bool = True,
) -> Tensor:  # fmt: skip
    """Return the scores (L, L) of a layout and a base; the last layout leaves half the width."""
    width = q.shape[-1] if layout < 2 else q.shape[-1] // 2
    inv_freq = frequencies(width, base) ** power
    angles = rope_angles(sign * torch.arange(len(q)), inv_freq)
    style = "interleaved" if layout == 0 else "half"
    used = slice(None if still else width)  # or with the half left out that does not rotate
    rotated = [apply_rope(x.double(), angles, style)[:, used] for x in (q, k)]
    return rotated[0] @ rotated[1].mT / math.sqrt(q.shape[-1])


def layout_and_base(
    q: Tensor, k: Tensor, scores: Tensor, bases: Tensor, *, layouts: tuple[int, ...] = (0, 1, 2),
    **how: Any,
) -> Tensor:  # fmt: skip
    """Return the number of the layout and that of the base whose scores are nearest, (2,)."""
    tried = [(n, i) for n in layouts for i in range(len(bases))]
    far = [(scores_of(q, k, n, float(bases[i]), **how) - scores).square().sum() for n, i in tried]
    return torch.tensor(tried[int(torch.stack(far).argmin())])


def unknown_cases(draw: Draw) -> list[Case]:
    """Each layout, with bases in any order; short texts, where fast pairs tell, and long ones."""
    bases = torch.tensor([100.0, 10000.0, 500000.0, 1e6], dtype=torch.float64)
    found = []
    # Each base once: a wrong exponent spares the smallest or the largest, a wrong order none.
    wanted = torch.randperm(len(bases), generator=draw.generator)
    for n, base in zip((0, 1, 2, 1), bases[wanted].tolist(), strict=True):
        length, width = draw.integer(6, 20), 4 * draw.integer(2, 5)
        order = (torch.arange(len(bases)) + draw.integer(1, 3)) % len(bases)  # none in its place
        q, k = draw.normal(2, length, width).double()
        scores = scores_of(q, k, n, base)
        found.append(
            Case("an unknown head", (q, k, scores, bases[order]), drawn=f" of width {width}")
        )
    return found


def exchanged(*given: Tensor) -> Tensor:
    """Return the number of the base first."""
    return layout_and_base(*given).flip(0)


def without_rest(*given: Tensor) -> Tensor:
    """Leave the half that does not rotate out of the scores of layout 2."""
    return layout_and_base(*given, still=False)


def turned(
    q: Tensor, k: Tensor, scores: Tensor, positions: Tensor, apart: int, half: bool = True
) -> Tensor:
    """Return by how much each pair turns from tokens to those so far apart, as complex numbers."""
    a, b = (complex_pairs(x, half) for x in (q, k))
    i, j = (positions - positions[:, None] == apart).nonzero(as_tuple=True)
    product = a[i].conj() * b[j] * q.shape[-1] ** -0.5  # (pairs of tokens, d / 2)
    rows = torch.cat([product.real, -product.imag], dim=1)
    found = torch.linalg.lstsq(rows, scores.double()[i, j][:, None]).solution[:, 0]
    return torch.complex(*found.chunk(2))


def rates_read(
    q: Tensor, k: Tensor, scores: Tensor, positions: Tensor, *, half: bool = True,
    of: Callable[[Tensor, Tensor], Tensor] = lambda two, three: (three * two.conj()).angle(),
) -> Tensor:  # fmt: skip
    """Return the rate of each pair, from tokens that are two and three apart, (d / 2,)."""
    return of(*(turned(q, k, scores, positions, apart, half) for apart in (2, 3)))


def rate_cases(draw: Draw) -> list[Case]:
    """A base, rates of no base at all, rates above a quarter turn, and pairs that stand still."""
    n, more = draw.sizes(2, 3, 6)
    free = 0.02 + 0.9 * torch.rand(more, generator=draw.generator).double()
    fast = 1.7 + 1.2 * torch.rand(n, generator=draw.generator).double()
    fast[1] = 1.3  # three times that, and not twice, is more than half a turn
    still = torch.cat([frequencies(2 * n), torch.zeros(2, dtype=torch.float64)])
    ways = {"rates of a base": frequencies(2 * more, 300.0), "rates of no base": free,
            "fast pairs": fast, "pairs that stand still": still}  # fmt: skip
    found = []
    for label, inv_freq in ways.items():
        width = 2 * len(inv_freq)
        count = width + draw.integer(4, 8)
        steps = 2 + torch.randperm(2 * count, generator=draw.generator) % 2
        places = torch.cat([steps, steps[:1]]).cumsum(0)[draw.order(2 * count + 1)]
        q, k = draw.normal(2, len(places), width).double()
        angles = rope_angles(places, inv_freq)
        scores = apply_rope(q, angles, "half") @ apply_rope(k, angles, "half").mT / width**0.5
        found.append(Case(label, (q, k, scores, places), drawn=f", width {width}"))
    return found


def place_share(
    scores: Tensor, lengths: Tensor, *, centre: bool = True, over: str = "others",
    past: bool = True, padded: bool = False, alone: bool = False,
) -> Tensor:  # fmt: skip
    """Return what products of different texts have of the squares, (H,)."""
    places = torch.arange(scores.shape[-1])
    ends = lengths[:, None, None] + len(places) * padded
    seen = (places[:, None] < ends) & (places < ends)
    if past:
        seen = seen & (places[:, None] >= places)
    mask = seen.double()  # (N, L, L)
    x = scores.double() * mask
    if centre:
        x = (x - x.sum(-1, keepdim=True) / mask.sum(-1, keepdim=True).clamp(min=1)) * mask
    squares, count = x.square().sum(1), mask.sum(0)
    products = x.sum(1).square() - squares * (over != "all")
    by = count - 1 if over == "others" else count
    several = count > (0 if alone else 1)
    return (products / by.clamp(min=1) * several).sum((1, 2)) / (squares * several).sum((1, 2))


def share_cases(draw: Draw) -> list[Case]:
    """Heads that read the place, the word or both; rows that differ by a number of their own."""
    heads, texts, length = draw.sizes(3, 3, 9)

    def case(label: str, heads: int, texts: int, length: int) -> Case:
        loud = torch.linspace(0.2, 2, heads).view(-1, 1, 1, 1)
        place = loud * draw.normal(heads, 1, length, length)
        word = draw.normal(heads, texts, length, length)
        own = 3 * draw.normal(heads, texts, length, 1) + 5  # a softmax does not see it
        lengths = torch.randint(2, length, (texts,), generator=draw.generator)
        lengths[draw.integer(0, texts - 1)] = length  # the longest is alone at its end
        hidden = torch.ones(length, length).triu(1).bool()
        later = torch.arange(length)[:, None] >= lengths[:, None, None]
        scores = (place + word + own).double().masked_fill(hidden, 7.0)
        return Case(label, (scores.masked_fill(later, -4.0), lengths))

    return [
        case("some heads and texts", heads, texts, length),
        case("many texts", 2, 40, length),
        case("one head, a long text", 1, texts, 16),
    ]


def off_means(scores: Tensor) -> Tensor:
    """Take from each row the mean of what its query sees; the mean over texts."""
    seen = torch.ones(scores.shape[-2:], dtype=torch.float64).tril()
    mean = scores.double().mean(1) * seen
    return mean - mean.sum(-1, keepdim=True) / seen.sum(-1, keepdim=True)


def by_turns(of: Callable[[Tensor, Tensor], Tensor]) -> Answer:
    """Return a wrong answer that makes something else of the two turns."""
    return lambda *args: rates_read(*args, of=of)


EXERCISES = (
    Exercise(
        name="distances_read",
        cases=looking_cases,
        reference=distances_read,
        integers=True,
        axes=("head",),
        mistakes=(
            Mistake("these are query minus key; wanted is key minus query, which is not positive",
                    lambda *a: -distances_read(*a)),
            Mistake("each distance is averaged over other queries, whose own numbers come along; "
                    "compare distances by the same rows",
                    lambda s, w: along_diagonals(s.double().mean(1), w)),
            Mistake("a row's own number is still there for some distances: with the mean of what a "
                    "query sees you take off another part of b in each row",
                    lambda s, w: along_diagonals(off_means(s), w)),
            Mistake("queries stand in rows; you take columns for them",
                    lambda s, w: distances_read(s.mT, w)),
            Mistake("this is where the score is lowest",
                    lambda s, w: distances_read(s, w, lambda b: -b)),
            Mistake("this is one text; its words are in the scores",
                    lambda s, w: distances_read(s[:, :1], w)),
            Mistake("the heads are averaged too: each has a distance of its own",
                    lambda s, w: distances_read(s, w, lambda b: b.mean(0).expand_as(b))),
            Mistake("this is the place in the list of distances; wanted is key minus query",
                    lambda s, w: distances_read(s, w) + w),
            Mistake("at distance 0 a query meets its own key; you begin one back",
                    lambda s, w: distances_read(s, w) - 1),
        ),
    ),
    Exercise(
        name="layout_and_base",
        cases=lambda draw: draw.telling(
            unknown_cases, layout_and_base, without_rest, exchanged),
        reference=layout_and_base,
        integers=True,
        axes=("answer",),
        mistakes=(
            Mistake("the two are exchanged: the layout comes first",
                    exchanged),
            *(Mistake("layout 2 is never found: in it halves of the first half of the width "
                      "rotate, and the other half counts in the score as it is", answer)
              for answer in (lambda *a: layout_and_base(*a, layouts=(0, 1)), without_rest)),
            Mistake("layout 0 is never tried: neighbours",
                    lambda *a: layout_and_base(*a, layouts=(1, 2))),
            Mistake("layout 1 is never tried: halves of the whole width",
                    lambda *a: layout_and_base(*a, layouts=(0, 2))),
            Mistake("the sign is flipped: the score rotates by key minus query",
                    lambda *a: layout_and_base(*a, sign=-1.0)),
            Mistake("the exponent is r / n for n pairs; yours is half of it, or twice",
                    lambda *a: layout_and_base(*a, power=2.0)),
            Mistake("the exponent is r / n for n pairs; yours is half of it, or twice",
                    lambda *a: layout_and_base(*a, power=0.5)),
            Mistake("this is the place of the base in a sorted list; `bases` has an order of its "
                    "own", lambda q, k, s, b: torch.stack(
                        [layout_and_base(q, k, s, b)[0],
                         b.argsort().argsort()[layout_and_base(q, k, s, b)[1]]])),
            Mistake("wanted is the number of the base, which counts from 0; yours counts from 1",
                    lambda *a: layout_and_base(*a) + torch.tensor([0, 1])),
            Mistake("the layouts are counted from 0; yours from 1",
                    lambda *a: layout_and_base(*a) + torch.tensor([1, 0])),
        ),
    ),
    Exercise(
        name="rates_read",
        cases=rate_cases,
        reference=rates_read,
        tolerance=1e-5,
        axes=("pair",),
        mistakes=(
            Mistake("these are the rates with their sign flipped: the key is ahead, or the "
                    "product is the wrong way round", lambda *a: -rates_read(*a)),
            Mistake("this is the sine of the rate", lambda *a: rates_read(*a).sin()),
            Mistake("this is the cosine of the rate", lambda *a: rates_read(*a).cos()),
            Mistake("half the angle of tokens two apart: it may have gone past half a turn",
                    by_turns(lambda two, three: two.angle() / 2)),
            Mistake("a third of the angle of tokens three apart: it may have lost a whole turn",
                    by_turns(lambda two, three: three.angle() / 3)),
            Mistake("the difference of two angles may have lost a whole turn; divide the complex "
                    "numbers", by_turns(lambda two, three: three.angle() - two.angle())),
            Mistake("two and three make five; divide the one by the other",
                    by_turns(lambda two, three: (three * two).angle())),
            Mistake("row i is at positions[i], not at i",
                    lambda q, k, s, p: rates_read(q, k, s, torch.arange(len(p)))),
            Mistake("component r is paired with r + d / 2 here; you take neighbours",
                    lambda *a: rates_read(*a, half=False)),
            Mistake("the rates stand in the order of the pairs; yours are sorted",
                    lambda *a: rates_read(*a).sort(descending=True).values),
        ),
    ),
    Exercise(
        name="place_share",
        cases=share_cases,
        reference=place_share,
        axes=("head",),
        mistakes=(
            Mistake("a number that a whole row has in common changes no weight: take each row's "
                    "mean off first", lambda *a: place_share(*a, centre=False)),
            Mistake("a text times itself is in this, and with it the words",
                    lambda *a: place_share(*a, over="all")),
            Mistake("each text meets all others, one fewer than there are: divide by that",
                    lambda *a: place_share(*a, over="texts")),
            Mistake("keys after the query are never seen: leave them out",
                    lambda *a: place_share(*a, past=False)),
            Mistake("a text has ended where its length says; what stands after that means nothing",
                    lambda *a: place_share(*a, padded=True)),
            Mistake("where only one text is left there is no product; leave its squares out, too",
                    lambda *a: place_share(*a, alone=True)),
            Mistake("this is the share of the words", lambda *a: 1 - place_share(*a)),
            Mistake("all heads have the share of the first",
                    lambda s, n: place_share(s, n)[:1].expand(len(s))),
            Mistake("one number for all heads together; each has a share of its own",
                    lambda s, n: place_share(s, n).mean().expand(len(s))),
        ),
    ),
)  # fmt: skip
