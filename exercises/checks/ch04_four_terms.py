"""Checks of exercise set 4: the four terms of a logit."""

from __future__ import annotations

import torch
from torch import Tensor

from exercises.checks.spec import Case, Draw, Exercise, Mistake

Four = tuple[Tensor, Tensor, Tensor, Tensor]


def four_terms(x: Tensor, p: Tensor, w_q: Tensor, w_k: Tensor) -> Four:
    """Return content-content, content-position, position-content, position-position."""
    xq, pq, xk, pk = x @ w_q.T, p @ w_q.T, x @ w_k.T, p @ w_k.T
    return xq @ xk.T, xq @ pk.T, pq @ xk.T, pq @ pk.T


def terms_cases(draw: Draw, projections: int = 2) -> list[Case]:
    """Content, positions, and projections to another width, smaller and larger, or to the same."""
    length, other, a, b = draw.sizes(4, 4, 9)
    sizes = (
        (length, max(a, b), min(a, b)), (other, min(a, b), max(a, b)), (5, 8, 8), (6, 3, 16),
        (24, 5, 5), (1, a, b),
    )  # fmt: skip
    return [
        Case(
            f"x and p of shape {(rows, wide)}, projections to {narrow}",
            (
                *(draw.normal(rows, wide) for _ in range(2)),
                *(draw.normal(narrow, wide) for _ in range(projections)),
            ),
        )
        for rows, wide, narrow in sizes
    ]


def order_of(terms: Four, *order: int) -> Four:
    """Return the four terms in another order."""
    a, b, c, d = (terms[i] for i in order)
    return a, b, c, d


def scaled(terms: Four, factor: float) -> Four:
    """Return all terms times a factor."""
    a, b, c, d = (term * factor for term in terms)
    return a, b, c, d


def transposed(terms: Four) -> Four:
    """Return all terms with queries and keys exchanged."""
    a, b, c, d = (term.T for term in terms)
    return a, b, c, d


def transposed_third(terms: Four) -> Four:
    """Return the transpose of the second term in the place of the third."""
    return terms[0], terms[1], terms[1].T, terms[3]


def sums(x: Tensor, p: Tensor, w_q: Tensor, w_k: Tensor) -> Four:
    """Put the sum x + p where content belongs."""
    return four_terms(x + p, p, w_q, w_k)


def untied(
    x: Tensor, p: Tensor, w_q: Tensor, w_k: Tensor, u_q: Tensor, u_k: Tensor, *,
    power: float = -0.5,    share: int = 2,
) -> Tensor:  # fmt: skip
    """Return content plus position, each with its own projections, over sqrt(2 d)."""
    factor = (share * len(w_q)) ** power
    result: Tensor = ((x @ w_q.T) @ (x @ w_k.T).T + (p @ u_q.T) @ (p @ u_k.T).T) * factor
    return result


def mixed(
    x: Tensor, p: Tensor, w_q: Tensor, w_k: Tensor, u_q: Tensor, u_k: Tensor
) -> tuple[Tensor, Tensor]:
    """Return the mixed terms, content first and position first, over sqrt(2 d)."""
    factor = (2 * len(w_q)) ** -0.5
    first, second = (x @ w_q.T) @ (p @ u_k.T).T, (p @ u_q.T) @ (x @ w_k.T).T
    return first * factor, second * factor


def relative_gap(scores: Tensor) -> Tensor:
    """Return the largest difference between two entries at the same distance."""
    length = len(scores)
    lines = [scores.diagonal(n) for n in range(1 - length, length)]
    return torch.stack([line.max() - line.min() for line in lines]).max()


def gap_cases(draw: Draw) -> list[Case]:
    """A matrix that depends on the distance alone, nearly so, and not at all."""
    n = draw.integer(12, 16)
    index = torch.arange(n)[None] - torch.arange(n)[:, None] + n - 1
    toeplitz = draw.normal(2 * n - 1)[index]
    words = f"a matrix {(n, n)} that depends on j - i alone"
    # on the shortest diagonals, on the main one, and never at an end of a longer one
    spikes = ((1, 3, -5), (0, n - 2, 5), (n - 1, 1, 5), (n // 2, n // 2, 5), (n - 2, 1, 5))
    return [
        Case(words, (toeplitz,)),
        Case(f"{words} but for random numbers at j > i",
             (toeplitz + draw.normal(n, n).triu(1),)),
        Case(f"{words} but for random numbers at j < i",
             (toeplitz + draw.normal(n, n).tril(-1),)),
        *(Case(f"{words} but for {size:+} at ({i}, {j})", (spiked(toeplitz, i, j, size),))
          for i, j, size in spikes),
        Case(f"{words} but for -3 at (1, 1) and +3 at (3, 3)",
             (spiked(spiked(toeplitz, 1, 1, -3), 3, 3, 3),)),
        *(Case(f"random numbers {(size, size)}", (draw.normal(size, size),))
          for size in draw.sizes(6, 3, 9)),
    ]  # fmt: skip


def spiked(scores: Tensor, i: int, j: int, size: float) -> Tensor:
    """Return a matrix with one entry that is out of line."""
    changed = scores.clone()
    changed[i, j] += size
    return changed


def gap_of(scores: Tensor, lines: list[Tensor], how: str = "range") -> Tensor:
    """Sum up other lines of a matrix, or in another way."""
    if how == "std":
        return torch.stack([line.std(correction=0) for line in lines]).max()
    if how == "mean":
        return torch.stack([line.max() - line.min() for line in lines]).mean()
    if how == "total":
        return torch.stack([line.max() - line.min() for line in lines]).sum()
    if how == "centre":
        return torch.stack([(line - line.mean()).abs().max() for line in lines]).max()
    if how == "ends":
        return torch.stack([(line[0] - line[-1]).abs() for line in lines]).max()
    if how == "first":
        return torch.stack([(line - line[0]).abs().max() for line in lines]).max()
    if how == "neighbours":
        return torch.stack([line.diff().abs().max() for line in lines if len(line) > 1]).max()
    return torch.stack([line.max() - line.min() for line in lines]).max()


def diagonals(scores: Tensor, first: int, last: int) -> list[Tensor]:
    """Return the diagonals first, ..., last."""
    return [scores.diagonal(n) for n in range(first, last + 1)]


EXERCISES = (
    Exercise(
        name="four_terms",
        cases=terms_cases,
        reference=four_terms,
        axes=("query", "key"),
        mistakes=(
            Mistake("the second and the third term are exchanged: the query comes first in the "
                    "name", lambda *a: order_of(four_terms(*a), 0, 2, 1, 3)),
            Mistake("the terms are right and their order is not: position-position is last",
                    lambda *a: order_of(four_terms(*a), 3, 1, 2, 0)),
            Mistake("queries and keys are exchanged: rows belong to queries",
                    lambda *a: transposed(four_terms(*a))),
            Mistake("w_q and w_k are exchanged",
                    lambda x, p, q, k: four_terms(x, p, k, q)),
            Mistake("w_q is used for queries and for keys",
                    lambda x, p, q, k: four_terms(x, p, q, q)),
            Mistake("w_k is used for queries and for keys",
                    lambda x, p, q, k: four_terms(x, p, k, k)),
            Mistake("content is x alone; you use x + p", sums),
            Mistake("the terms are divided by sqrt(d); this exercise leaves them unscaled",
                    lambda x, p, q, k: scaled(four_terms(x, p, q, k), len(q) ** -0.5)),
            Mistake("x and p are exchanged, or the order of the terms is reversed",
                    lambda x, p, q, k: four_terms(p, x, q, k)),
            Mistake("the third term is the transpose of the second, but w_q and w_k differ: "
                    "positions go through w_q there, contents through w_k",
                    lambda *a: transposed_third(four_terms(*a))),
            Mistake("the terms are divided by sqrt(D); this exercise leaves them unscaled",
                    lambda x, p, q, k: scaled(four_terms(x, p, q, k), x.shape[1] ** -0.5)),
            Mistake("the projections are missing",
                    lambda x, p, q, k: four_terms(x, p, torch.eye(x.shape[1]),
                                                  torch.eye(x.shape[1]))),
            Mistake("each term holds a fourth of the sum; they must differ",
                    lambda x, p, q, k: (sum(four_terms(x, p, q, k)) / 4,) * 4),
            Mistake("the mixed terms are transposed: rows belong to queries",
                    lambda *a: (four_terms(*a)[0], four_terms(*a)[1].T, four_terms(*a)[2].T,
                                four_terms(*a)[3])),
        ),
    ),
    Exercise(
        name="untied",
        cases=lambda draw: terms_cases(draw, 4),
        reference=untied,
        axes=("query", "key"),
        mistakes=(
            Mistake("this is the listing, unchanged",
                    lambda *a: 2**0.5 * (untied(*a) + sum(mixed(*a)))),
            Mistake("two terms are added, so the factor is 1/sqrt(2 d)",
                    lambda *a: untied(*a, share=1)),
            Mistake("the factor is missing", lambda *a: untied(*a, power=0.0)),
            Mistake("the factor is 1/sqrt(2 d), not 1/(2 d)", lambda *a: untied(*a, power=-1.0)),
            Mistake("d is the width after the projection",
                    lambda x, p, *w: untied(x, p, *w) * (len(w[0]) / x.shape[1]) ** 0.5),
            Mistake("the factor is 1/sqrt(2 d), not 1/(2 sqrt(d))",
                    lambda *a: untied(*a) / 2**0.5),
            Mistake("the mixed terms are in it: that is what untying takes out",
                    lambda *a: untied(*a) + sum(mixed(*a))),
            Mistake("one mixed term is left: content of the query with positions of the keys",
                    lambda *a: untied(*a) + mixed(*a)[0]),
            Mistake("one mixed term is left: positions of the query with content of the keys",
                    lambda *a: untied(*a) + mixed(*a)[1]),
            Mistake("the second term is subtracted; both are added",
                    lambda x, p, *w: 2 * untied(x, 0 * p, *w) - untied(x, p, *w)),
            Mistake("positions go through the projections of the content (w_q, w_k)",
                    lambda x, p, q, k, uq, uk: untied(x, p, q, k, q, k)),
            Mistake("content goes through the projections of the positions (u_q, u_k)",
                    lambda x, p, q, k, uq, uk: untied(x, p, uq, uk, uq, uk)),
            Mistake("the projections of content and of positions are exchanged",
                    lambda x, p, q, k, uq, uk: untied(x, p, uq, uk, q, k)),
            Mistake("queries and keys are exchanged: rows belong to queries",
                    lambda x, p, q, k, uq, uk: untied(x, p, k, q, uk, uq)),
            Mistake("the position term is missing",
                    lambda x, p, *w: untied(x, 0 * p, *w)),
            Mistake("the content term is missing",
                    lambda x, p, *w: untied(0 * x, p, *w)),
            Mistake("position-position is transposed",
                    lambda x, p, q, k, uq, uk: untied(x, p, q, k, uk, uq)),
            Mistake("content-content is transposed",
                    lambda x, p, q, k, uq, uk: untied(x, p, k, q, uq, uk)),
            Mistake("x + p goes through all projections; content is x and positions are p",
                    lambda x, p, *w: untied(x + p, x + p, *w)),
            Mistake("x + p goes through the projections; content must be x alone",
                    lambda x, p, *w: untied(x + p, p, *w)),
        ),
    ),
    Exercise(
        name="relative_gap",
        cases=gap_cases,
        reference=relative_gap,
        mistakes=(
            Mistake("only the diagonals from the main one to the right are looked at",
                    lambda s: gap_of(s, diagonals(s, 0, len(s) - 1))),
            Mistake("only the diagonals from the main one to the left are looked at",
                    lambda s: gap_of(s, diagonals(s, 1 - len(s), 0))),
            Mistake("the main diagonal is left out; its entries must be equal, too",
                    lambda s: gap_of(s, [*diagonals(s, 1 - len(s), -1),
                                         *diagonals(s, 1, len(s) - 1)])),
            Mistake("you compare the two ends of a diagonal only, not all of its entries",
                    lambda s: gap_of(s, diagonals(s, 1 - len(s), len(s) - 1), "ends")),
            Mistake("all entries are compared; only those of one diagonal must be equal",
                    lambda s: s.max() - s.min()),
            Mistake("only the main diagonal is looked at", lambda s: gap_of(s, diagonals(s, 0, 0))),
            Mistake("entries at the same distance stand on a diagonal; you compare along rows",
                    lambda s: gap_of(s, list(s))),
            Mistake("entries at the same distance stand on a diagonal; you compare along columns",
                    lambda s: gap_of(s, list(s.T))),
            Mistake("these are the anti-diagonals: i + j is constant there, not j - i",
                    lambda s: gap_of(s, diagonals(s.flip(0), 1 - len(s), len(s) - 1))),
            Mistake("wanted is the largest difference of all, not the mean over distances",
                    lambda s: gap_of(s, diagonals(s, 1 - len(s), len(s) - 1), "mean")),
            Mistake("wanted is the largest difference of all, not the sum over distances",
                    lambda s: gap_of(s, diagonals(s, 1 - len(s), len(s) - 1), "total")),
            Mistake("compare the largest with the smallest, not each with the mean",
                    lambda s: gap_of(s, diagonals(s, 1 - len(s), len(s) - 1), "centre")),
            Mistake("compare the largest with the smallest, not each with the first",
                    lambda s: gap_of(s, diagonals(s, 1 - len(s), len(s) - 1), "first")),
            Mistake("you compare with the next entry of a diagonal only, not with all of them",
                    lambda s: gap_of(s, diagonals(s, 1 - len(s), len(s) - 1), "neighbours")),
            Mistake("this is a standard deviation; wanted is largest minus smallest",
                    lambda s: gap_of(s, diagonals(s, 1 - len(s), len(s) - 1), "std")),
            Mistake("the matrix is compared with its transpose: that is symmetry",
                    lambda s: (s - s.T).abs().max()),
        ),
    ),
)  # fmt: skip
