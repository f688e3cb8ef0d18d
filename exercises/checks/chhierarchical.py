"""Checks of the exercise set on positions in levels."""

from __future__ import annotations

import torch
from torch import Tensor

from pe_course.judge.exercise import Case, Draw, Exercise, Mistake

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
        Case("few ends", (mixed,), drawn=f", N, L = {(texts, 4 * length)}"),
        Case("many ends", (draw.normal(other, length) > 0,), drawn=f", N, L = {(other, length)}"),
        Case("texts of a single token", (torch.tensor([[True], [False]]),)),
        Case("a text of 34,000 tokens with one end", (long,), drawn=f" at {other}"),
    ]


def three_digits(table: Tensor, positions: Tensor, shares: Tensor) -> Tensor:
    """Return codes of positions with three digits, in double precision."""
    u = (table - (1 - shares[2]) * table[0]) / shares[2]
    return (shares[:, None, None] * u[torch.stack(digits(len(table), positions))]).sum(0)


def digits(n: int, positions: Tensor) -> list[Tensor]:
    """Return the three digits in base n, the first one first."""
    return [positions // n**2, positions // n % n, positions % n]


def digit_cases(draw: Draw) -> list[Case]:
    """More rows than width, as many, fewer; one position that tells; all positions in order."""
    narrow, more = draw.sizes(2, 2, 5)
    n = narrow + more
    below, one, some = torch.arange(n), n**3 - n - 1, torch.arange(9) * (n**2 // 2 + 3) % n**3
    calls = (
        ("all positions", n, narrow, torch.arange(n**3), (0.3, 0.3, 0.4)),
        ("one position that tells, behind others", n, n, torch.cat([below, below[:1] + one]), None),
        ("nine positions", n, n + 9, some, None), ("width 1", n, 1, torch.arange(n**3), None),
        ("a first digit worth little", n, 8, torch.arange(n**3).flip(0), (0.02, 0.5, 0.48)),
        ("a last digit worth little", 20, 8, draw.places(12, high=20**3 - 1), (0.6, 0.33, 0.07)),
    )  # fmt: skip

    def case(words: str, n: int, width: int, p: Tensor, given: tuple[float, ...] | None) -> Case:
        table, drawn = draw.normal(n, width).double(), torch.rand(3, generator=draw.generator)
        shares = whole((torch.tensor(given) if given else 0.2 + drawn).double())
        codes = three_digits(table, p, shares) * (draw.integer(2, 9) / 4.5)
        return Case(words, (table, p, codes), drawn=f": a table of shape {(n, width)}")

    return [case(*call) for call in calls]


def solved(table: Tensor, which: list[Tensor], codes: Tensor, start: Tensor) -> Tensor:
    """Return the factors of the three digits, `start` taken from the rows of the first two."""
    a, b, c = (table[each] for each in which)
    known = torch.stack([(a - start).flatten(), (b - start).flatten(), c.flatten()], dim=1)
    found: Tensor = torch.linalg.lstsq(known, codes.reshape(-1, 1), driver="gelsd").solution
    return found.flatten()


def shares_of(table: Tensor, positions: Tensor, codes: Tensor) -> Tensor:
    """Return the shares of the three digits."""
    return whole(solved(table, digits(len(table), positions), codes, table[0]))


def whole(parts: Tensor) -> Tensor:
    """Return parts that sum to one."""
    return parts / parts.sum()


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
        ("a whole text, nothing clipped", b, h, length, length, 50.0),
        ("the last queries of a text", h, b, few, few + length, 2.0),
        ("a single query", 1, 1, 1, 40, 7.0), ("six queries, 20 keys", 1, h, 6, 20, 3.0),
        ("positions clipped at 1", b, 1, length, length + more, 1.0),
        ("one query, one key", 1, 2, 1, 1, 5.0),
    )  # fmt: skip
    found = []
    for words, x, y, queries, keys, longest in sizes:
        gates = (2 * draw.normal(x, y, queries, keys).double()).sigmoid()
        gates[..., 0] = 0.9
        gates = gates * (gates > 0.3) * seen(gates)  # some are closed
        positions = gates.flip(-1).cumsum(-1).flip(-1).clamp(max=longest)
        given = f": Lq, Lk = {(queries, keys)}, longest {longest:g}"
        found.append(Case(words, (positions, longest), drawn=given))
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
        ),
    ),
    Exercise(
        name="shares_of",
        cases=digit_cases,
        reference=shares_of,
        tolerance=1e-7,
        axes=("digit",),
        mistakes=(
            Mistake("the shares are wanted in the order of the digits, the first one first",
                    lambda t, p, c: shares_of(t, p, c).flip(0)),
            Mistake("the first digit is p // n², the last p % n; you exchange them",
                    lambda t, p, c: whole(solved(t, digits(len(t), p)[::-1], c, t[0]))),
            Mistake("the table is mixed as it stands; its rows must be made into u first",
                    lambda t, p, c: whole(solved(t, digits(len(t), p), c, 0 * t[0]))),
            Mistake("these are the factors as they come out; the shares sum to 1",
                    lambda t, p, c: solved(t, digits(len(t), p), c, t[0])),
            Mistake("one position is read, and it need not have all three digits",
                    lambda t, p, c: torch.nan_to_num(shares_of(t, p[:1], c[:1]))),
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
