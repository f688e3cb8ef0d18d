"""Checks of exercise set 12: what an unknown head reads, from its queries, keys and scores."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from exercises.checks.spec import Case, Draw, Exercise, Mistake
from pe_lib.rope import apply_rope, rope_angles
from pe_lib.sinusoidal import frequencies

Map = Callable[[Tensor], Tensor]


def complex_pairs(x: Tensor, half: bool = False) -> Tensor:
    """Read pairs of components as complex numbers, (..., d / 2)."""
    x = x.double()
    return torch.complex(*(x.chunk(2, -1) if half else (x[..., ::2], x[..., 1::2])))


def unrotated(x: Tensor, positions: Tensor, rates: Tensor, half: bool = False) -> Tensor:
    """Undo a rotation; complex pairs (..., L, d / 2)."""
    return complex_pairs(x, half) * torch.exp(-1j * positions[:, None] * rates)


def distances_read(
    q: Tensor, k: Tensor, positions: Tensor, rates: Tensor, window: int, *,
    back: float = 1.0, turn: float = 1.0, half: bool = False, of: Map = lambda s: s,
    mean: Map = lambda z: z.mean(1),
) -> Tensor:  # fmt: skip
    """Return where each head's mean score is highest, as key minus query, (H,) int64."""
    a, b = (mean(unrotated(x, back * positions, rates, half)) for x in (q, k))  # (H, d / 2)
    relative = torch.arange(-window, 1)
    scores = (a.conj() * b) @ torch.exp(turn * 1j * rates[:, None] * relative)  # (H, window + 1)
    return of(scores.real).argmax(1) - window


def by_pairs_there(q: Tensor, k: Tensor, positions: Tensor, rates: Tensor, window: int) -> Tensor:
    """Average only the pairs of a query and a key that stand at a distance."""
    scores = q.double() @ k.double().mT
    relative = positions[None] - positions[:, None]
    there = [scores[:, relative == n].mean(1) for n in range(-window, 1)]
    return torch.stack(there, 1).nan_to_num(-torch.inf).argmax(1) - window


def looking_heads(
    draw: Draw, heads: int, width: int, base: float, window: int, words: float
) -> tuple[Any, ...]:
    """Return rotated queries and keys (H, L, d) of heads that look somewhere, and the rest."""
    rates = frequencies(width, base)
    length = window + 14
    first = draw.integer(3, 30)
    positions = first + torch.randperm(length, generator=draw.generator)
    wanted = -torch.randperm(window + 1, generator=draw.generator)[:heads]
    wanted[0] = -draw.integer(1, 3)
    size = 0.6 + torch.rand(heads, width // 2, generator=draw.generator).double()
    angle = 6.3 * torch.rand(heads, width // 2, generator=draw.generator).double()
    q = torch.view_as_real(torch.polar(size, angle)).flatten(1)
    k = torch.view_as_real(torch.polar(size, angle - wanted[:, None] * rates)).flatten(1)
    found = []
    for common in (q, k):
        word = words * draw.normal(heads, length, width).double()
        word = word - word.mean(1, keepdim=True)  # what the words differ by
        found.append(apply_rope(common[:, None] + word, rope_angles(positions, rates)))
    return (*found, positions, rates, window)


def looking_cases(draw: Draw) -> list[Case]:
    """Heads of two widths and bases, with words that speak louder than places, and softer."""
    heads, more = draw.sizes(2, 5, 9)
    return [
        Case(f"{heads} heads of width 16", looking_heads(draw, heads, 16, 100.0, 12, 0.5)),
        Case(f"{more} heads, loud words", looking_heads(draw, more, 24, 1000.0, 20, 2.5)),
        Case(f"{heads} heads, base 10000", looking_heads(draw, heads, 32, 10000.0, 20, 1.5)),
    ]


LAYOUTS = ("neighbours", "halves", "halves of the first half")


def scores_of(
    q: Tensor, k: Tensor, layout: int, base: float, *, sign: float = 1.0, power: float = 1.0
) -> Tensor:
    """Return the scores (L, L) of a layout and a base; the last layout leaves half the width."""
    width = q.shape[-1] if layout < 2 else q.shape[-1] // 2
    rates = frequencies(width, base) ** power
    angles = rope_angles(sign * torch.arange(len(q)), rates)
    style = "interleaved" if layout == 0 else "half"
    rotated = [apply_rope(x.double(), angles, style) for x in (q, k)]
    return rotated[0] @ rotated[1].mT / math.sqrt(q.shape[-1])


def layout_and_base(
    q: Tensor, k: Tensor, scores: Tensor, bases: Tensor, *, layouts: tuple[int, ...] = (0, 1, 2),
    **how: float,
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
        label = f"an unknown head of width {width}"
        found.append(Case(label, (q, k, scores, bases[order])))
    return found


def rates_read(
    q: Tensor, k: Tensor, scores: Tensor, *, ahead: int = 1, half: bool = False,
    of: Callable[[Tensor, Tensor], Tensor] = lambda c, s: torch.atan2(s, c),
) -> Tensor:  # fmt: skip
    """Return the rate of each pair, from the pairs of tokens that are neighbours, (d / 2,)."""
    a, b = (complex_pairs(x, half) for x in (q, k))
    product = a[:-ahead].conj() * b[ahead:] * q.shape[-1] ** -0.5  # (L - 1, d / 2)
    rows = torch.cat([product.real, -product.imag], dim=1)
    found = torch.linalg.lstsq(rows, scores.double().diagonal(ahead)[:, None]).solution[:, 0]
    return of(*found.chunk(2))


def rate_cases(draw: Draw) -> list[Case]:
    """A base, rates of no base at all, rates above a quarter turn, and pairs that stand still."""
    n, more = draw.sizes(2, 3, 6)
    free = 0.02 + 0.9 * torch.rand(more, generator=draw.generator).double()
    fast = 1.7 + 1.2 * torch.rand(n, generator=draw.generator).double()
    still = torch.cat([frequencies(2 * n), torch.zeros(2, dtype=torch.float64)])
    ways = {"rates of a base": frequencies(2 * more, 300.0), "rates of no base": free,
            "fast pairs": fast, "pairs that stand still": still}  # fmt: skip
    found = []
    for label, rates in ways.items():
        width = 2 * len(rates)
        length = width + draw.integer(8, 14)
        q, k = draw.normal(2, length, width).double()
        angles = rope_angles(torch.arange(length), rates)
        scores = apply_rope(q, angles) @ apply_rope(k, angles).mT / math.sqrt(width)
        found.append(Case(f"{label}, width {width}", (q, k, scores)))
    return found


def place_share(
    scores: Tensor, *, centre: bool = True, power: int = 2, first: int = 1, rest: bool = False,
    over: int = 1, seen: Map = torch.tril,
) -> Tensor:  # fmt: skip
    """Return the share of the differences within rows that the mean over texts has, (H,)."""
    length = scores.shape[-1]
    mask = seen(torch.ones(length, length, dtype=torch.float64))
    x = scores.double() * mask
    if centre:
        x = (x - x.sum(-1, keepdim=True) / mask.sum(-1, keepdim=True)) * mask  # (H, N, L, L)
    place = x.mean(over, keepdim=True).expand_as(x)
    size = [
        part[..., first:, :].abs().pow(power).flatten(1).sum(1) for part in (place, x, x - place)
    ]
    return (size[2] if rest else size[0]) / size[1]


def share_cases(draw: Draw) -> list[Case]:
    """Heads that read the place, the word or both; rows that differ by a number of their own."""
    heads, texts, length = draw.sizes(3, 3, 9)

    def case(label: str, heads: int, texts: int, length: int) -> Case:
        loud = torch.linspace(0.2, 2, heads).view(-1, 1, 1, 1)
        place = loud * draw.normal(heads, 1, length, length)
        word = draw.normal(heads, texts, length, length)
        own = 3 * draw.normal(heads, texts, length, 1) + 5  # a softmax does not see it
        scores = (place + word + own).double()
        future = torch.ones(length, length).triu(1).bool()
        return Case(label, (scores.masked_fill(future, 7.0),))

    return [
        case("some heads and texts", heads, texts, length),
        case("many texts", 2, 40, length),
        case("one head, a long text", 1, texts, 16),
    ]


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
            Mistake("queries and keys have been rotated already: undo that before you average",
                    lambda *a: distances_read(*a, back=0.0)),
            Mistake("you rotate once more where the rotation is to be undone",
                    lambda *a: distances_read(*a, back=-1.0)),
            Mistake("the distance has the wrong sign: at key - query = D the key is rotated by "
                    "D times the rate, against the query",
                    lambda *a: distances_read(*a, turn=-1.0)),
            Mistake("neighbours are pairs here; you pair component i with i + d / 2",
                    lambda *a: distances_read(*a, half=True)),
            Mistake("row i belongs to positions[i], not to position i",
                    lambda q, k, p, r, w: distances_read(q, k, torch.arange(len(p)), r, w)),
            Mistake("this is where the score is lowest",
                    lambda *a: distances_read(*a, of=lambda s: -s)),
            Mistake("this averages the tokens that happen to stand at a distance, with their "
                    "words; let every query meet every key: the mean query and the mean key",
                    by_pairs_there),
            Mistake("this is one query and one key; their words are in the score",
                    lambda *a: distances_read(*a, mean=lambda z: z[:, 0])),
            Mistake("the heads are averaged too: each has a distance of its own",
                    lambda *a: distances_read(*a, mean=lambda z: z.mean((0, 1))
                                              .expand(z.shape[0], -1))),
            Mistake("this is the place in the list of distances; wanted is key minus query",
                    lambda q, k, p, r, w: distances_read(q, k, p, r, w) + w),
        ),
    ),
    Exercise(
        name="layout_and_base",
        cases=unknown_cases,
        reference=layout_and_base,
        integers=True,
        axes=("answer",),
        mistakes=(
            Mistake("the two are exchanged: the layout comes first",
                    lambda *a: layout_and_base(*a).flip(0)),
            Mistake("layout 2 is never tried: halves within the first half of the width",
                    lambda *a: layout_and_base(*a, layouts=(0, 1))),
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
            Mistake("these are the rates with their sign flipped: the key is one ahead, or the "
                    "product is the wrong way round", lambda *a: -rates_read(*a)),
            Mistake("this is the sine of the rate", lambda *a: rates_read(*a).sin()),
            Mistake("this is the cosine of the rate", lambda *a: rates_read(*a).cos()),
            Mistake("from the sine alone one cannot tell more than a quarter turn from less; take "
                    "the cosine too", lambda *a: rates_read(*a, of=lambda c, s: s.asin())),
            Mistake("from the tangent alone one cannot tell more than a quarter turn from less; "
                    "take sine and cosine",
                    lambda *a: rates_read(*a, of=lambda c, s: (s / c).atan())),
            Mistake("these are tokens two apart: their angle is twice the rate",
                    lambda *a: rates_read(*a, ahead=2)),
            Mistake("neighbours are pairs here; you pair component i with i + d / 2",
                    lambda *a: rates_read(*a, half=True)),
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
                    "mean off first", lambda s: place_share(s, centre=False)),
            Mistake("this is the share of the words: what is left without the mean over texts",
                    lambda s: place_share(s, rest=True)),
            Mistake("keys after the query are never seen: leave them out",
                    lambda s: place_share(s, seen=lambda m: m)),
            Mistake("shares are of squares, which add up; this is of absolute values",
                    lambda s: place_share(s, power=1)),
            Mistake("this is the root of the share", lambda s: place_share(s).sqrt()),
            Mistake("this averages over the heads; the mean is over the texts",
                    lambda s: place_share(s, over=0)),
            Mistake("this averages over the queries; the mean is over the texts",
                    lambda s: place_share(s, over=2)),
            Mistake("the share is upside down", lambda s: 1 / place_share(s)),
            Mistake("all heads have the share of the first",
                    lambda s: place_share(s)[:1].expand(len(s))),
            Mistake("one number for all heads together; each has a share of its own",
                    lambda s: place_share(s).mean().expand(len(s))),
        ),
    ),
)  # fmt: skip
