"""Checks of the exercise set on positions in levels."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor

from exercises.checks.spec import Case, Draw, Exercise, Mistake

Pair = tuple[Tensor, Tensor]


def levels(ends: Tensor) -> Pair:
    """Return the paragraph of each token and its place in it."""
    return ended_before(ends), places(ends)


def ended_before(ends: Tensor) -> Tensor:
    """Return how many paragraphs have ended before each token."""
    return ends.cumsum(1) - ends.long()


def places(ends: Tensor, late: int = 1) -> Tensor:
    """Count from the token that comes `late` after the end of a paragraph."""
    begins = torch.zeros_like(ends)
    begins[:, late:] = ends[:, : ends.shape[1] - late]
    position = torch.arange(ends.shape[1])
    return position - torch.where(begins, position, 0).cummax(1).values


def to_the_end(ends: Tensor) -> Tensor:
    """Count backwards: how many tokens of the paragraph are still to come."""
    length = ends.shape[1]
    position = torch.arange(length)
    last = torch.where(ends, position, length - 1).flip(1).cummin(1).values.flip(1)
    return last - position


def merged(ends: Tensor) -> Tensor:
    """Take ends that follow one another for one."""
    once = ends.clone()
    once[:, :-1] &= ~ends[:, 1:]
    return once


def level_cases(draw: Draw) -> list[Case]:
    """Ends at either edge, ends in a row, none at all, one token, and a very long paragraph."""
    texts, length, other = draw.sizes(3, 3, 9)
    mixed = draw.normal(texts, 4 * length) > 0.9
    mixed[0, [length, length + 1, -1]] = True
    mixed[1, 0] = True
    mixed[2] = False
    long = torch.zeros(1, 34_000, dtype=torch.bool)
    long[0, other] = True
    return [
        Case(f"{texts} texts of {4 * length} tokens", (mixed,)),
        Case(f"{other} texts of {length} tokens", (draw.normal(other, length) > 0,)),
        Case("texts of a single token", (torch.tensor([[True], [False]]),)),
        Case(f"a text of 34000 tokens with an end at {other}", (long,)),
    ]


def two_digits(table: Tensor, positions: Tensor, alpha: float) -> Tensor:
    """Return codes of positions with two digits, in double precision."""
    u = (table.double() - alpha * table[0]) / (1 - alpha)
    n = len(table)
    return alpha * u[positions // n] + (1 - alpha) * u[positions % n]


def digit_cases(draw: Draw) -> list[Case]:
    """More rows than width, as many, fewer; one position that tells; all positions in order."""
    narrow, more = draw.sizes(2, 2, 7)
    rows = narrow + more
    below, some = torch.arange(rows), rows + torch.arange(3) * (rows - 1)
    calls = (
        ("all positions", rows, narrow, torch.arange(rows**2), 0.4),
        ("one position that tells, behind others", rows, rows, torch.cat([below, some[2:]]), None),
        ("three positions", rows, rows + 9, some, None), ("width 1", rows, 1, some, None),
        ("a first digit worth little", rows, narrow + 4, torch.arange(rows**2).flip(0), 0.03),
        ("a first digit worth much", 40, 8, 40 * draw.places(6, high=39) + draw.places(6), 0.93),
    )  # fmt: skip

    def case(words: str, n: int, width: int, positions: Tensor, alpha: float | None) -> Case:
        table = draw.normal(n, width)
        share = alpha or 0.15 + 0.7 * float(torch.rand((), generator=draw.generator))
        codes = two_digits(table, positions % n**2, share)
        given = (table.double(), positions % n**2, codes)
        return Case(f"{words}: a table of {n} rows and width {width}", given)

    return [case(*call) for call in calls]


def solved(table: Tensor, first: Tensor, second: Tensor, codes: Tensor) -> Tensor:
    """Solve for alpha by least squares."""
    left = codes - table[second]
    right = codes + table[first] - table[second] - table[0]
    return (left * right).sum() / (right * right).sum()


def alpha_of(table: Tensor, positions: Tensor, codes: Tensor) -> Tensor:
    """Return the share of the first digit."""
    return solved(table, positions // len(table), positions % len(table), codes)


def as_it_stands(table: Tensor, positions: Tensor, codes: Tensor) -> Tensor:
    """Solve for alpha as though the rows of the table itself were mixed."""
    first, second = table[positions // len(table)], table[positions % len(table)]
    return ((codes - second) * (first - second)).sum() / (first - second).square().sum()


def contextual_bias(q: Tensor, k: Tensor, table: Tensor) -> Tensor:
    """Return CoPE's bias."""
    return read(q, table, count(gates(q, k))) * seen(q, k)


def seen(q: Tensor, k: Tensor) -> Tensor:
    """Return which keys come no later than the query: (Lq, Lk), the queries are the last."""
    return torch.ones(q.shape[2], k.shape[2]).tril(k.shape[2] - q.shape[2])


def gates(q: Tensor, k: Tensor) -> Tensor:
    """Return the gates of the keys that a query may see, 0 for others, in double precision."""
    logits: Tensor = q.double() @ k.double().mT / q.shape[-1] ** 0.5
    return logits.sigmoid() * seen(q, k)


def count(opened: Tensor) -> Tensor:
    """Add the gates from each key on to the last."""
    return opened.flip(-1).cumsum(-1).flip(-1)


def read(
    q: Tensor, table: Tensor, counts: Tensor, weight: Callable[[Tensor], Tensor] = torch.frac,
    scale: float | None = None,
) -> Tensor:  # fmt: skip
    """Return the product of the queries with the vectors of positions between two rows.

    `weight` is the share of the upper of the two.
    """
    counts = counts.clamp(0, len(table) - 1)
    products = q.double() @ table.double().T * (q.shape[-1] ** -0.5 if scale is None else scale)
    low = products.gather(-1, counts.floor().long())
    high = products.gather(-1, counts.ceil().long())
    return low + weight(counts) * (high - low)


def other_count(opened: Callable[[Tensor, Tensor], Tensor]) -> Callable[..., Tensor]:
    """Return an answer that counts other gates, and reads them as it should."""
    return lambda q, k, t: read(q, t, opened(q, k)) * seen(q, k)


def first_queries(q: Tensor, k: Tensor) -> Tensor:
    """Return which keys come no later if the queries are the first tokens of the text."""
    return torch.ones(q.shape[2], k.shape[2]).tril()


def uncached(q: Tensor, k: Tensor, table: Tensor) -> Tensor:
    """Take the queries for the first tokens of the text."""
    near = first_queries(q, k)
    opened = (q.double() @ k.double().mT / q.shape[-1] ** 0.5).sigmoid() * near
    return read(q, table, count(opened)) * near


def with_gates(gate: Callable[[Tensor], Tensor]) -> Callable[..., Tensor]:
    """Return an answer with another function of the products in the place of the gate."""
    return other_count(lambda q, k: count(gate(q.double() @ k.double().mT) * seen(q, k)))


def contextual_cases(draw: Draw) -> list[Case]:
    """A whole text, the last queries of one, a single query; counts with a limit and without."""
    b, h, length, width, few = draw.sizes(5, 2, 7)
    sizes = (
        (b, h, length, length, width, length + 2, 1.0), (h, b, few, few + length, width, 3, 1.0),
        (1, 1, 1, 90, 16, 70, 1.0), (1, h, 6, 20, 8, 12, 3.0), (1, 2, 3, 9, 3, 1, 1.0),
        (b, 1, length, length + 1, 2, 2, 1.0), (1, 1, 1, 1, width, 5, 1.0),
    )  # fmt: skip
    return [
        Case(f"{q} queries, {k} keys of width {d}, {n} vectors",
             (size * draw.normal(x, y, q, d), draw.normal(x, y, k, d), draw.normal(n, d)))
        for x, y, q, k, d, n, size in sizes
    ]  # fmt: skip


EXERCISES = (
    Exercise(
        name="levels",
        cases=level_cases,
        reference=levels,
        integers=True,
        axes=("text", "token"),
        mistakes=(
            Mistake("the marked token belongs to the paragraph that it ends; you give it to the "
                    "next", lambda e: (e.cumsum(1), places(e, 0))),
            Mistake("the number of the paragraph is one too large at its last token: count the "
                    "ends *before* a token", lambda e: (e.cumsum(1), places(e))),
            Mistake("the place begins again at the last token of a paragraph; it begins again "
                    "after it", lambda e: (ended_before(e), places(e, 0))),
            Mistake("paragraphs are counted from 0", lambda e: (ended_before(e) + 1, places(e))),
            Mistake("places are counted from 0", lambda e: (ended_before(e), places(e) + 1)),
            Mistake("paragraphs and places are counted from 0; you count both from 1",
                    lambda e: (ended_before(e) + 1, places(e) + 1)),
            Mistake("the place begins again with each paragraph; yours runs through the text",
                    lambda e: (ended_before(e), torch.arange(e.shape[1]).expand(e.shape))),
            Mistake("the two are returned in the wrong order",
                    lambda e: (places(e), ended_before(e))),
            Mistake("the place is counted from the paragraph's first token, not back from its last",
                    lambda e: (ended_before(e), to_the_end(e))),
            Mistake("you count along the texts of the batch; count along the tokens",
                    lambda e: (e.cumsum(0) - e.long(), places(e))),
            Mistake("the number of the paragraph begins again with each text",
                    lambda e: ((e.flatten().cumsum(0) - e.flatten().long()).view(e.shape),
                               places(e))),
            Mistake("the boundaries of the first text are used for all",
                    lambda e: levels(e[:1].expand(e.shape))),
            Mistake("ends that follow one another end a paragraph each, of one token",
                    lambda e: levels(merged(e))),
            Mistake("you count the paragraphs from the end of the text",
                    lambda e: (e.flip(1).cumsum(1).flip(1), places(e))),
            Mistake("these are the marks themselves, not how many came before",
                    lambda e: (e.long(), places(e))),
        ),
    ),
    Exercise(
        name="alpha_of",
        cases=digit_cases,
        reference=alpha_of,
        mistakes=(
            Mistake("this is the share of the second digit; alpha is that of the first",
                    lambda t, p, c: 1 - alpha_of(t, p, c)),
            Mistake("the two digits are exchanged: the first is p // n",
                    lambda t, p, c: solved(t, p % len(t), p // len(t), c)),
            Mistake("the table is mixed as it stands; its rows must be made into u first",
                    lambda t, p, c: as_it_stands(t, p, c)),
            Mistake("one position is read, and it may be below n, where nothing tells alpha",
                    lambda t, p, c: torch.nan_to_num(alpha_of(t, p[:1], c[:1]))),
            Mistake("alpha is rounded to one place",
                    lambda t, p, c: (10 * alpha_of(t, p, c)).round() / 10),
            Mistake("0.4 is what the chapter uses; read it from the codes",
                    lambda t, p, c: torch.tensor(0.4)),
            Mistake("this is alpha over 1 - alpha",
                    lambda t, p, c: alpha_of(t, p, c) / (1 - alpha_of(t, p, c))),
            Mistake("this is 1 / alpha", lambda t, p, c: 1 / alpha_of(t, p, c)),
            Mistake("the row of position 0 is left out of the equation",
                    lambda t, p, c: solved(torch.cat([0 * t[:1], t[1:]]), p // len(t),
                                           p % len(t), c)),
        ),
    ),
    Exercise(
        name="contextual_bias",
        cases=contextual_cases,
        reference=contextual_bias,
        axes=("batch", "head", "query", "key"),
        mistakes=(
            Mistake("you count from the first key up to key j; count from key j up to the query",
                    other_count(lambda q, k: gates(q, k).cumsum(-1))),
            Mistake("key j's own gate is missing from its count",
                    other_count(lambda q, k: count(gates(q, k)) - gates(q, k))),
            Mistake("keys that come after the query are counted, too",
                    lambda q, k, t: read(q, t, count(
                        (q.double() @ k.double().mT / q.shape[-1] ** 0.5).sigmoid())) * seen(q, k)),
            Mistake("the queries are the last tokens of the text, not the first: query i may see "
                    "the keys up to Lk − Lq + i", uncached),
            Mistake("the bias of later keys must be 0; yours is that of position 0",
                    lambda q, k, t: read(q, t, count(gates(q, k)))),
            Mistake("positions are rounded down; interpolate",
                    lambda q, k, t: read(q, t, count(gates(q, k)), torch.zeros_like) * seen(q, k)),
            Mistake("positions are rounded up; interpolate",
                    lambda q, k, t: read(q, t, count(gates(q, k)), torch.ones_like) * seen(q, k)),
            Mistake("positions are rounded; interpolate",
                    lambda q, k, t: read(q, t, count(gates(q, k)),
                                         lambda c: (c.frac() > 0.5).double()) * seen(q, k)),
            Mistake("the two vectors are mixed with each other's share: 2.4 is nearer to 2",
                    lambda q, k, t: read(q, t, count(gates(q, k)), lambda c: c.ceil() - c)
                    * seen(q, k)),
            Mistake("the products in the gates are not divided by √d",
                    with_gates(torch.sigmoid)),
            Mistake("the products in the gates are divided by d, not by √d",
                    other_count(lambda q, k: count(
                        (q.double() @ k.double().mT / q.shape[-1]).sigmoid() * seen(q, k)))),
            Mistake("the bias itself is not divided by √d",
                    lambda q, k, t: read(q, t, count(gates(q, k)), scale=1.0) * seen(q, k)),
            Mistake("every gate counts as open: this is the distance in tokens plus one",
                    with_gates(torch.ones_like)),
            Mistake("your gates are open or shut; a gate is as wide as its sigmoid",
                    with_gates(lambda x: (x > 0).double())),
            Mistake("the gates of a query add up to 1: a softmax is no gate",
                    other_count(lambda q, k: count(
                        (q.double() @ k.double().mT / q.shape[-1] ** 0.5)
                        .masked_fill(seen(q, k) == 0, -torch.inf).softmax(-1)))),
            Mistake("this is the count itself; its vector must still meet the query",
                    lambda q, k, t: count(gates(q, k)).clamp(max=len(t) - 1)),
        ),
    ),
)  # fmt: skip
