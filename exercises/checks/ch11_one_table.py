"""Checks of exercise set 11: the terms of a method, found from outside."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor

from pe_course.judge.exercise import Case, Draw, Exercise, Mistake

ZERO, NO_POSITION, QUERIES, KEYS, DISTANCE, BOTH = range(6)
Columns = Callable[[Tensor, Tensor], list[Tensor]]


def system(a: Tensor, b: Tensor) -> list[Tensor]:
    """Return what multiplies each of the four terms."""
    return [a * b, a, b, torch.ones_like(a)]


def solved(strengths: Tensor, scores: Tensor, columns: Columns = system) -> Tensor:
    """Return the terms that fit all runs best, in double precision."""
    matrix = torch.stack(columns(*strengths.double().T), dim=1)
    found: Tensor = torch.linalg.pinv(matrix) @ scores.double().flatten(1)
    terms: Tensor = found.unflatten(1, scores.shape[1:])
    return terms


def terms_by_strength(strengths: Tensor, scores: Tensor) -> Tensor:
    """Return the four terms."""
    return solved(strengths, scores)


def without(strengths: Tensor, scores: Tensor, place: int) -> Tensor:
    """Return zeros in the place of one term, and fit the others without it."""

    def columns(a: Tensor, b: Tensor) -> list[Tensor]:
        found = system(a, b)
        found[place] = torch.zeros_like(a)
        return found

    return solved(strengths, scores, columns)


def strength_cases(draw: Draw) -> list[Case]:
    """The four runs of the switches, doubled words, negative ones, runs that repeat others.

    In two tables of eight runs, the first six or the last six have one strength in common: no
    fewer runs from that end are enough.
    """
    rows, columns, other = draw.sizes(3, 2, 7)
    lines = [(1.5, b) for b in (1.0, 2.0, -1.0, 2.0, 3.0, 0.5)]
    eight = [*lines, (0.5, 1.0), (-1.0, 2.0)]
    grids = (
        [(1.0, 1.0), (2.0, 1.0), (1.0, 2.0), (2.0, 2.0)],
        [(-1.0, 0.5), (2.0, 3.0), (-1.0, 3.0), (2.0, 0.5)],
        eight,
        [(b, a) for a, b in reversed(eight)],
        [(a, b) for a in (0.5, 1.0, 2.0) for b in (-1.0, 1.0, 3.0)],
        [(0.0, 0.0), (1.0, 0.0), (0.0, 1.0), (1.0, 1.0)],
    )
    shapes = (
        (rows, columns), (columns, other), (other, rows), (columns, rows), (1, rows), (rows, rows)
    )  # fmt: skip
    kinds = (
        "four runs", "four runs, some strengths below 0", "eight runs, words often alike",
        "eight runs, positions often alike", "nine runs", "four runs that switch terms off",
    )  # fmt: skip
    cases = []
    for words, grid, shape in zip(kinds, grids, shapes, strict=True):
        strengths = torch.tensor(grid)
        if len(grid) != 8:
            strengths = strengths[draw.order(len(grid))]
        terms = draw.normal(4, *shape)
        scores = torch.einsum("rn,rij->nij", torch.stack(system(*strengths.T)), terms)
        sizes = f": strengths {strengths.tolist()}, scores of {shape}"
        cases.append(Case(words, (strengths, scores), drawn=sizes))
    return cases


def by_switches(strengths: Tensor, scores: Tensor) -> Tensor:
    """Take the first four runs for neither, queries, keys, both."""
    none, query, key, both = scores[:4]
    return torch.stack([both - query - key + none, query - none, key - none, none])


def what_it_reads(pieces: Tensor, room: float = 1e-4, zero: float = 1e-6) -> Tensor:
    """Return what each of N terms reads."""
    return sized(pieces, largest, room, zero)


def sized(
    pieces: Tensor, size: Callable[[Tensor], Tensor], room: float = 1e-4, zero: float = 1e-6
) -> Tensor:
    """Return the same with a tolerance that is a part of another size, (N, 4, L, L) to (N,)."""
    query, key, both = changes(pieces, room * size(pieces))
    return told(query, key, both, largest(pieces) <= zero)


def largest(pieces: Tensor) -> Tensor:
    """Return the largest entry of each term's first matrix, in size."""
    return pieces[:, 0].abs().amax((1, 2))


def changes(pieces: Tensor, room: Tensor) -> list[Tensor]:
    """Return whether each term changes when queries, keys and both are moved, (N,) each."""
    return [(pieces[:, n] - pieces[:, 0]).abs().amax((1, 2)) > room for n in (1, 2, 3)]


def told(query: Tensor, key: Tensor, both: Tensor, zero: Tensor) -> Tensor:
    """Return the number for what changes."""
    found = torch.full(query.shape, NO_POSITION)
    found[query] = QUERIES
    found[key] = KEYS
    found[query & key] = DISTANCE
    found[query & key & both] = BOTH
    found[zero] = ZERO
    return found


def instead(old: int, new: int) -> Callable[[Tensor], Tensor]:
    """Return the right answer with one number in the place of another."""
    return lambda pieces: torch.where(what_it_reads(pieces) == old, new, what_it_reads(pieces))


def compared(pieces: Tensor, reduce: Callable[[Tensor], Tensor]) -> Tensor:
    """Compare one number of each matrix; `reduce` takes (N, 4, L, L) to (N, 4)."""
    short, size = reduce(pieces), largest(pieces)
    query, key, both = ((short[:, n] - short[:, 0]).abs() > 1e-4 * size for n in (1, 2, 3))
    return told(query, key, both, size <= 1e-6)


def absolute(pieces: Tensor, room: float) -> Tensor:
    """Compare with a difference that is the same for terms of any size."""
    return sized(pieces, lambda p: torch.full((len(p),), room), 1.0)


def published(pieces: Tensor) -> Tensor:
    """Say that whatever a common move leaves alone reads the distance, to the last digit."""
    query, key, both = changes(pieces, torch.zeros(len(pieces)))
    found = torch.where(key, torch.where(query, BOTH, KEYS), QUERIES)
    return torch.where(both, found, DISTANCE)


def piece(
    draw: Draw, reads: int, length: int, size: float, step: float = 1.0, noise: float = 1e-6
) -> Tensor:
    """Return the four matrices of a term that reads something, (4, L, L).

    Args:
        draw: of the numbers.
        reads: what the term reads.
        length: number of tokens.
        size: largest entry of the first matrix.
        step: by how much the matrices change at least, in units of that.
        noise: largest error by rounding, in the same unit.
    """
    if reads == ZERO:
        return 8e-7 * draw.normal(4, length, length).sign() * (size < 1)
    base, query, key, both = draw.normal(4, length, length)
    if noise > 5e-5:  # the largest is so in size alone
        base = -base.abs()
    if length > 2:  # these two change in two entries, and keep every sum
        query, key = traded(base, -1, step), traded(base, 0, 20.0)
    else:  # and these move one way only
        query, key = base - base.abs().max() - query.abs(), base + base.abs().max() + key.abs()
    matrices = {
        NO_POSITION: (base, base, base), QUERIES: (query, base, query), KEYS: (base, key, key),
        DISTANCE: (query, key, base), BOTH: (query, key, both),
    }[reads]  # fmt: skip
    rounding = noise * draw.normal(4, length, length).sign()
    rounding[0] = 0
    largest = base.abs().max()
    found: Tensor = size * (torch.stack([base, *matrices]) / largest + rounding)
    return found


def traded(base: Tensor, row: int, step: float) -> Tensor:
    """Return a matrix in which two entries of a row have changed by opposite amounts."""
    moved = base.clone()
    moved[row, row] += step * base.abs().max()
    moved[row, 1] -= step * base.abs().max()
    return moved


def reading_cases(draw: Draw) -> list[Case]:
    """All six kinds in any order; small terms and large ones; one term; many.

    Some change little, some are rounded much, some are hardly more than zero: on either side of
    the numbers that the text gives.
    """
    length, other, more = draw.sizes(3, 3, 7)
    cases = []
    for n, size, words, step, noise in (
        (length, 1.0, "of ordinary size", 1.0, 2e-5), (other, 1e-3, "that are small", 1.0, 1e-6),
        (more, 1e3, "that are large", 1.0, 1e-6), (more, 1.0, "that change little", 3e-4, 1e-6),
        (length, 1.0, "rounded much, all below zero", 1.0, 8e-5),
        (other, 3e-6, "that are almost zero", 1.0, 1e-6),
    ):  # fmt: skip
        kinds = draw.order(6).tolist()
        pieces = torch.stack([piece(draw, kind, n, size, step, noise) for kind in kinds])
        cases.append(Case(f"6 terms {words}", (pieces,), drawn=f", L = {n}, entries up to {size}"))
    for kind in range(6):
        pieces = piece(draw, kind, 2, 1.0)[None]
        cases.append(Case("a single term of 2 tokens", (pieces,)))
    return cases


Tables = tuple[Tensor, Tensor, Tensor]


def tables_of(q: Tensor, k: Tensor, scores: Tensor) -> Tables:
    """Return what words of the query, words of the key and none of both meet at each distance."""
    return fitted(q, k, scores - q @ k.mT)


def fitted(
    q: Tensor, k: Tensor, left: Tensor, use: tuple[bool, bool, bool] = (True, True, True)
) -> Tables:
    """Fit (2L - 1, d), (2L - 1, d) and (2L - 1,) to scores, with some of the three or all."""
    length, d = q.shape[1:]
    found = []
    for n in range(1 - length, length):
        i = torch.arange(max(0, -n), length - max(0, n))
        parts = (q[:, i], k[:, i + n], torch.ones_like(q[:, i, :1]))
        rows = torch.cat([part * on for part, on in zip(parts, use, strict=True)], -1)
        found.append(torch.linalg.pinv(rows.flatten(0, 1)) @ left[:, i, i + n].flatten())
    a, c, b = torch.stack(found).split([d, d, 1], 1)
    return a, c, b[:, 0]


def table_cases(draw: Draw) -> list[Case]:
    """Words of any mean, many texts and just enough; single terms that are not there."""
    length, d, other, wide = draw.sizes(4, 2, 7)

    def case(words: str, n: int, size: int, width: int, on: tuple[float, ...], mean: float) -> Case:
        q, k = (draw.normal(n, size, width).double() + mean * draw.normal(width) for _ in range(2))
        line = torch.arange(size) - torch.arange(size)[:, None] + size - 1
        a, c = (each * draw.normal(2 * size - 1, width).double() for each in on[:2])
        b = on[2] * draw.normal(2 * size - 1).double()
        scores = q @ k.mT + (q[:, :, None] * a[line]).sum(-1) + (k[:, None] * c[line]).sum(-1)
        return Case(words, (q, k, scores + b[line]), drawn=f": N, L, d = {(n, size, width)}")

    return [
        case("all terms", 6 * d, length, d, (1, 1, 1), 0.0),
        case("all terms, words with a mean", 3 * wide, other, wide, (1, 1, 1), 2.0),
        case("just enough texts", 2 * d + 1, 3, d, (1, 1, 1), 1.0),
        case("no number per distance", 30, length, 3, (1, 1, 0), 1.0),
        case("no words of the key", 24, 4, 4, (1, 0, 2), 0.5),
    ]


def in_turn(q: Tensor, k: Tensor, scores: Tensor) -> Tables:
    """Fit the number per distance first, then the query's words, then the key's."""
    left = scores - q @ k.mT
    line = torch.arange(q.shape[1]) - torch.arange(q.shape[1])[:, None] + q.shape[1] - 1
    b = fitted(q, k, left, (False, False, True))[2]
    left = left - b[line]
    a = fitted(q, k, left, (True, False, False))[0]
    left = left - (q[:, :, None] * a[line]).sum(-1)
    return a, fitted(q, k, left, (False, True, False))[1], b


def then(change: Callable[[Tensor, Tensor, Tensor], Tables]) -> Callable[..., Tables]:
    """Return an answer that makes something else of the right one."""
    return lambda q, k, scores: change(*tables_of(q, k, scores))


EXERCISES = (
    Exercise(
        name="terms_by_strength",
        cases=strength_cases,
        reference=terms_by_strength,
        tolerance=1e-3,
        axes=("term", "query", "key"),
        mistakes=(
            Mistake("content–position and position–content are exchanged: the query's part is "
                    "named first, and the first column of `strengths` belongs to the queries",
                    lambda s, f: solved(s, f)[[0, 2, 1, 3]]),
            Mistake("the four terms are in the opposite order",
                    lambda s, f: solved(s, f).flip(0)),
            Mistake("you take the first four runs for the four settings of the switches; use the "
                    "strengths", by_switches),
            *(Mistake("some of the runs may not be enough; use all",
                      lambda s, f, part=part: solved(s[part], f[part]))
              for part in (slice(4), slice(-4, None), slice(6), slice(-6, None))),
            Mistake("words meet words with the product of both strengths, and your system has "
                    "their sum", lambda s, f: solved(s, f, lambda a, b: [a + b, a, b, a**0])),
            Mistake("content–content is missing from your system", lambda s, f: without(s, f, 0)),
            Mistake("position–position is missing from your system: it does not grow, but it is "
                    "there", lambda s, f: without(s, f, 3)),
            Mistake("a term with one word grows with the strength, not with its square",
                    lambda s, f: solved(s, f, lambda a, b: [a * b, a * a, b * b, a**0])),
            Mistake("position–position is what is left at strength 0, not the mean of all runs",
                    lambda s, f: torch.cat([solved(s, f)[:3], f.double().mean(0)[None]])),
            Mistake("each term is multiplied by its strengths in the last run; return the terms "
                    "themselves",
                    lambda s, f: solved(s, f) * torch.stack(system(*s.double().T))[:, -1, None,
                                                                                  None]),
            Mistake("the sign of the terms with one word is flipped",
                    lambda s, f: solved(-s, f)),
            Mistake("these are the scores themselves", lambda s, f: f[:4]),
        ),
    ),
    Exercise(
        name="what_it_reads",
        cases=reading_cases,
        reference=what_it_reads,
        integers=True,
        axes=("term",),
        mistakes=(
            Mistake("this is the listing's answer: a term that a common move leaves alone need "
                    "not read anything, and numbers are rounded", published),
            Mistake("rounding: your matrices must agree to the last digit",
                    lambda p: what_it_reads(p, room=0.0)),
            Mistake("what differs by 1e-4 of the largest entry differs; your tolerance is larger",
                    lambda p: what_it_reads(p, room=1e-3)),
            Mistake("what differs by less than 1e-4 of the largest entry is the same; your "
                    "tolerance is smaller", lambda p: what_it_reads(p, room=1e-5)),
            Mistake("the tolerance is a part of the entry that is largest in size; it is not the "
                    "mean, and may be below zero",
                    lambda p: sized(p, lambda p: p[:, 0].abs().mean((1, 2)))),
            Mistake("the tolerance is a part of the largest entry of the first matrix; you take "
                    "that of all four", lambda p: sized(p, lambda p: p.abs().amax((1, 2, 3)))),
            *(Mistake("a term is zero if no entry is larger than 1e-6; your bound is higher",
                      lambda p, zero=zero: what_it_reads(p, zero=zero)) for zero in (1e-5, 1e-4)),
            Mistake("a term is zero if no entry is larger than 1e-6; yours must be exactly zero",
                    lambda p: what_it_reads(p, zero=0.0)),
            Mistake("a term that reads no position is called one of the distance",
                    instead(NO_POSITION, DISTANCE)),
            Mistake("a term that is zero is called one of the distance", instead(ZERO, DISTANCE)),
            Mistake("a term that is zero is called one without positions",
                    instead(ZERO, NO_POSITION)),
            Mistake("a term without positions is called zero", instead(NO_POSITION, ZERO)),
            Mistake("query and key are exchanged: a term that changes when queries move reads the "
                    "query's position",
                    lambda p: what_it_reads(p[:, [0, 2, 1, 3]])),
            Mistake("the distance and both positions are exchanged: what changes when both move "
                    "together is more than a distance",
                    lambda p: what_it_reads(p) + (what_it_reads(p) == 4).long()
                    - (what_it_reads(p) == 5).long()),
            Mistake("both positions, each for itself, are taken for the distance: look at the "
                    "fourth matrix", instead(BOTH, DISTANCE)),
            Mistake("the distance is taken for both positions: look at the fourth matrix",
                    instead(DISTANCE, BOTH)),
            Mistake("what differs is measured against a fixed number; terms are of any size",
                    lambda p: absolute(p, 1e-4)),
            Mistake("what differs is measured against a fixed number, a small one; terms are of "
                    "any size", lambda p: absolute(p, 1e-6)),
            Mistake("you compare the means of matrices; look at every entry",
                    lambda p: compared(p, lambda x: x.mean((2, 3)))),
            Mistake("you compare one entry of each matrix; look at all of them",
                    lambda p: compared(p, lambda x: x[..., 0, 0])),
            Mistake("your numbers begin at 1", lambda p: what_it_reads(p) + 1),
        ),
    ),
    Exercise(
        name="tables_of",
        cases=table_cases,
        reference=tables_of,
        tolerance=1e-6,
        mistakes=(
            Mistake("the first two are exchanged: the first table meets the query's words",
                    then(lambda a, c, b: (c, a, b))),
            Mistake("the distance is j - i, key less query, and the first row is that of -(L - 1); "
                    "yours runs the other way",
                    then(lambda a, c, b: (a.flip(0), c.flip(0), b.flip(0)))),
            Mistake("the product of the two words is still in the scores: subtract it first",
                    lambda q, k, s: fitted(q, k, s)),
            Mistake("these scores are not divided by the root of d; you divide the product of the "
                    "words", lambda q, k, s: fitted(q, k, s - q @ k.mT / q.shape[-1] ** 0.5)),
            Mistake("you fit the three one after the other: where words have a mean, what belongs "
                    "to one goes to another. Fit them at once", in_turn),
            Mistake("the number per distance is forgotten: the words cannot stand in for it",
                    lambda q, k, s: fitted(q, k, s - q @ k.mT, (True, True, False))),
            Mistake("the term of the key's words is forgotten",
                    lambda q, k, s: fitted(q, k, s - q @ k.mT, (True, False, True))),
            Mistake("the term of the query's words is forgotten",
                    lambda q, k, s: fitted(q, k, s - q @ k.mT, (False, True, True))),
            Mistake("the number per distance is the mean of what is left only if the words have "
                    "the mean 0", lambda q, k, s: (*tables_of(q, k, s)[:2], fitted(
                        q, k, s - q @ k.mT, (False, False, True))[2])),
            Mistake("the number per distance has the mean of the query's term in it",
                    lambda q, k, s: (*tables_of(q, k, s)[:2], tables_of(q, k, s)[2]
                                     + tables_of(q, k, s)[0] @ q.mean((0, 1)))),
        ),
    ),
)  # fmt: skip
