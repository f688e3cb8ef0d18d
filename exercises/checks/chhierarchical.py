"""Checks of the exercise set on positions in levels."""

from __future__ import annotations

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
        codes = two_digits(table, positions % n**2, share) * (draw.integer(2, 9) / 4.5)
        given = (table.double(), positions % n**2, codes)
        return Case(f"{words}: a table of {n} rows and width {width}", given)

    return [case(*call) for call in calls]


def factors(first: Tensor, second: Tensor, codes: Tensor) -> Tensor:
    """Return how often two things are in the codes, (2,), by least squares."""
    known = torch.stack([first.flatten(), second.flatten()], dim=1)
    return torch.linalg.lstsq(known, codes.reshape(-1, 1), driver="gelsd").solution.flatten()


def solved(table: Tensor, first: Tensor, second: Tensor, codes: Tensor) -> Tensor:
    """Return alpha from the two digits' rows and the codes, whose scale is unknown."""
    high, low = factors(table[first] - table[0], table[second], codes)
    return high / (high + low)


def alpha_of(table: Tensor, positions: Tensor, codes: Tensor) -> Tensor:
    """Return the share of the first digit."""
    return solved(table, positions // len(table), positions % len(table), codes)


def unscaled(table: Tensor, positions: Tensor, codes: Tensor) -> Tensor:
    """Return alpha as though nobody had multiplied the codes."""
    second = table[positions % len(table)]
    left, right = codes - second, codes + table[positions // len(table)] - second - table[0]
    return (left * right).sum() / (right * right).sum()


def as_it_stands(table: Tensor, positions: Tensor, codes: Tensor) -> Tensor:
    """Solve for alpha as though the rows of the table itself were mixed."""
    high, low = factors(table[positions // len(table)], table[positions % len(table)], codes)
    return high / (high + low)


def gate_openers(positions: Tensor, longest: float) -> Tensor:
    """Return for each key the mean of its gate, where any query tells it."""
    return averaged(steps(positions), seen(positions) & (positions < longest))


def averaged(gates: Tensor, known: Tensor) -> Tensor:
    """Return the mean over the queries that tell a gate; NaN where none does."""
    return (gates * known).sum(-2) / known.sum(-2)


def steps(positions: Tensor) -> Tensor:
    """Return by how much each key's position exceeds that of the next key."""
    return -positions.diff(dim=-1, append=torch.zeros_like(positions[..., :1]))


def seen(positions: Tensor) -> Tensor:
    """Return which keys come no later than the query: (Lq, Lk), the queries are the last."""
    n_queries, n_keys = positions.shape[-2:]
    return torch.ones(n_queries, n_keys).tril(n_keys - n_queries) > 0


def gate_cases(draw: Draw) -> list[Case]:
    """A whole text, the last queries of one, a single query; limits that clip much and nothing."""
    b, h, length, few, more = draw.sizes(5, 3, 7)
    sizes = (
        (b, h, length, length, 50.0), (h, b, few, few + length, 2.0), (1, 1, 1, 40, 7.0),
        (1, h, 6, 20, 3.0), (b, 1, length, length + more, 1.0), (1, 2, 1, 1, 5.0),
    )  # fmt: skip
    found = []
    for x, y, queries, keys, longest in sizes:
        gates = (2 * draw.normal(x, y, queries, keys).double()).sigmoid()
        gates[..., 0] = 0.9
        gates = gates * (gates > 0.3) * seen(gates)  # some are closed
        positions = gates.flip(-1).cumsum(-1).flip(-1).clamp(max=longest)
        words = f"{queries} queries, {keys} keys, longest {longest:g}"
        found.append(Case(words, (positions, longest)))
    return found


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
        tolerance=1e-7,
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
            Mistake("all codes were multiplied by a number, too: solve for both",
                    lambda t, p, c: unscaled(t, p, c)),
            Mistake("the row of position 0 is left out of the equation",
                    lambda t, p, c: solved(torch.cat([0 * t[:1], t[1:]]), p // len(t),
                                           p % len(t), c)),
        ),
    ),
    Exercise(
        name="gate_openers",
        cases=gate_cases,
        reference=gate_openers,
        tolerance=1e-6,
        axes=("batch", "head", "key"),
        mistakes=(
            Mistake("where a sum was clipped, the difference of two neighbours is not the gate",
                    lambda p, n: averaged(steps(p), seen(p))),
            Mistake("queries that come before a key do not see it: they count for nothing in the "
                    "mean", lambda p, n: averaged(steps(p), p < n)),
            Mistake("all queries are counted in the mean; leave out those that do not tell",
                    lambda p, n: steps(p).mean(-2)),
            Mistake("this is the sum over the queries, not the mean",
                    lambda p, n: averaged(steps(p), seen(p) & (p < n))
                    * (seen(p) & (p < n)).sum(-2)),
            Mistake("position 0 is taken for a key after the query; a key whose gate is 0 may have "
                    "it, too, and counts", lambda p, n: averaged(steps(p), (p > 0) & (p < n))),
            Mistake("where no query tells a gate, the answer is NaN, not 0",
                    lambda p, n: gate_openers(p, n).nan_to_num(0.0)),
            Mistake("the difference of keys j and j + 1 is the gate of j; you give it to j + 1",
                    lambda p, n: averaged(steps(p), seen(p) & (p < n)).roll(1, -1)),
            Mistake("the last query alone is read; others may tell more",
                    lambda p, n: averaged(steps(p)[..., -1:, :],
                                          (seen(p) & (p < n))[..., -1:, :])),
            Mistake("these are the means of the positions; a gate is a difference of two",
                    lambda p, n: averaged(p, seen(p) & (p < n))),
            Mistake("the sign is flipped: positions fall towards the query",
                    lambda p, n: -gate_openers(p, n)),
            Mistake("the queries are the last tokens of the text, not the first: query i sees the "
                    "keys up to Lk − Lq + i",
                    lambda p, n: averaged(steps(p), (
                        torch.ones(p.shape[-2:]).tril() > 0) & (p < n))),
        ),
    ),
)  # fmt: skip
