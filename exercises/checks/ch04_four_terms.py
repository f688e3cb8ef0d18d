"""Checks of exercise set 4: the four terms of a logit."""

from __future__ import annotations

import torch
from torch import Tensor

from exercises.checks.spec import Case, Draw, Exercise, Mistake

Three = tuple[Tensor, ...]


def solved(scores: Tensor, powers: Tensor, columns: tuple[int, ...] = (0, 1, 2)) -> Three:
    """Solve for what each column of `powers` (n, m) multiplies in the scores (n, L, L)."""
    found = torch.linalg.pinv(powers.double()) @ scores.double().flatten(1)  # (m, L L)
    return tuple(found[i].view(scores.shape[1:]) for i in columns)


def terms_of(scores: Tensor, scales: Tensor) -> Three:
    """Return content-content, the sum of the mixed terms, and position-position."""
    a, b = scales.double().unbind(1)
    return solved(scores, torch.stack([a * a, a * b, b * b], 1))


def without_mixed(scores: Tensor, scales: Tensor) -> Three:
    """Solve for two terms, and return nothing for the mixed ones."""
    content, position = solved(scores, scales.double().square(), (0, 1))
    return content, 0 * content, position


def changed(terms: Three, factor: float) -> Three:
    """Return the terms with another size of the mixed ones."""
    return terms[0], factor * terms[1], terms[2]


def measured_cases(draw: Draw) -> list[Case]:
    """Three runs and many, switches and odd scales, runs that repeat; long texts and one token."""
    length, other, a, b = draw.sizes(4, 4, 9)
    odd = draw.normal(5, 2).double()
    scales = (
        torch.tensor([[1.0, 1.0], [1.0, 0.0], [0.0, 1.0]]),
        torch.tensor([[1.0, 1.0], [2.0, 2.0], [1.0, 1.0], [2.0, 1.0], [1.0, 3.0]]),
        torch.tensor([[1.0, 1.0], [1.0, -1.0], [3.0, 0.0], [-2.0, 0.5]]), odd,
    )  # fmt: skip

    def case(size: int, wide: int, narrow: int, given: Tensor) -> Case:
        x, p = draw.normal(2, size, wide).double()
        w_q, w_k = draw.normal(2, narrow, wide).double()
        inputs = [one * x + two * p for one, two in given.double()]
        scores = torch.stack([(each @ w_q.T) @ (each @ w_k.T).T for each in inputs])
        return Case(f"{len(given)} runs, {size} tokens", (scores, given.double()))

    sizes = ((length, a, b), (other, b, a), (1, a, b), (24, 5, 5))
    return [case(*size, given) for size, given in zip(sizes, scales, strict=True)]


def terms_cases(draw: Draw) -> list[Case]:
    """Projections to another width, smaller and larger, or to the same; one token alone."""
    length, other, a, b = draw.sizes(4, 4, 9)
    sizes = (
        (length, max(a, b), min(a, b)), (other, min(a, b), max(a, b)), (5, 8, 8), (6, 3, 16),
        (24, 5, 5), (1, a, b),
    )  # fmt: skip
    return [
        Case(f"x and p of shape {(rows, wide)}, projections to {narrow}",
             (draw.normal(rows, wide), draw.normal(rows, wide),
              *(draw.normal(narrow, wide) for _ in range(4)), 3 * draw.normal(2)))
        for rows, wide, narrow in sizes
    ]  # fmt: skip


def untied(
    x: Tensor, p: Tensor, w_q: Tensor, w_k: Tensor, u_q: Tensor, u_k: Tensor, theta: Tensor, *,
    power: float = -0.5, share: int = 2, mixed: tuple[int, int] = (0, 0), size: float = 1.0,
) -> Tensor:  # fmt: skip
    """Return content plus position, each with its own projections, over sqrt(2 d).

    `mixed` are weights of the mixed terms; `size` is what the numbers of token 0 are multiplied by.
    """
    factor = (share * len(w_q)) ** power
    first, second = (x @ w_q.T) @ (p @ u_k.T).T, (p @ u_q.T) @ (x @ w_k.T).T
    content = (x @ w_q.T) @ (x @ w_k.T).T + mixed[0] * first + mixed[1] * second
    position = replaced((p @ u_q.T) @ (p @ u_k.T).T * factor, size * theta)
    result: Tensor = content * factor + position
    return result


def replaced(position: Tensor, theta: Tensor) -> Tensor:
    """Put the numbers of token 0 in the place of what its position says."""
    found = position.clone()
    found[:, 0], found[0] = theta[1], theta[0]
    return found


def spot(x: Tensor, size: Tensor) -> Tensor:
    """Return a number at the pair (0, 0), and zeros."""
    found = torch.zeros(len(x), len(x))
    found[0, 0] = size
    return found


def added(*args: Tensor, everything: bool = False) -> Tensor:
    """Add the numbers of token 0 to what its position says; or do all that the listing does."""
    *rest, theta = args
    x, p, w_q, w_k, u_q, u_k = rest
    found: Tensor = (x @ w_q.T) @ (x @ w_k.T).T + (p @ u_q.T) @ (p @ u_k.T).T
    found = found * (2 * len(w_q)) ** -0.5
    if everything:
        found = (x @ w_q.T + p @ u_q.T) @ (x @ w_k.T + p @ u_k.T).T * len(w_q) ** -0.5
    found[0, 1:] += theta[0]
    found[:, 0] += theta[1]
    return found


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
        name="terms_of",
        cases=measured_cases,
        reference=terms_of,
        tolerance=1e-6,
        axes=("query", "key"),
        mistakes=(
            Mistake("content and position are exchanged: the first scale is that of content",
                    lambda s, c: terms_of(s, c.flip(1))),
            Mistake("this is half of the mixed terms, as though they were equal; return their sum",
                    lambda s, c: changed(terms_of(s, c), 0.5)),
            Mistake("this is twice the mixed terms; their sum has the factor alpha beta once",
                    lambda s, c: changed(terms_of(s, c), 2.0)),
            Mistake("the terms grow with the products of two scales, not with the scales",
                    lambda s, c: solved(s, torch.cat([c, c[:, :1] + c[:, 1:]], 1).pow(1.0),
                                        columns=(0, 2, 1))),
            Mistake("the mixed terms are left out of the equations, and spoil the others",
                    lambda s, c: without_mixed(s, c)),
            Mistake("rows belong to queries: the terms are transposed",
                    lambda s, c: tuple(term.mT for term in terms_of(s, c))),
            Mistake("only the first three runs are read; they need not be enough",
                    lambda s, c: terms_of(s[:3], c[:3])),
            Mistake("the order is content, mixed, position",
                    lambda s, c: tuple(terms_of(s, c)[i] for i in (0, 2, 1))),
            Mistake("the sum of all three is returned for each", lambda s, c: (
                sum(terms_of(s, c)),) * 3),
        ),
    ),
    Exercise(
        name="untied",
        cases=terms_cases,
        reference=untied,
        axes=("query", "key"),
        mistakes=(
            Mistake("this is the listing, unchanged", lambda *a: added(*a, everything=True)),
            Mistake("the position term of token 0 is still there: its numbers stand in its place",
                    added),
            Mistake("two terms are added, so the factor is 1/sqrt(2 d)",
                    lambda *a: untied(*a, share=1)),
            Mistake("the factor is missing", lambda *a: untied(*a, power=0.0)),
            Mistake("the factor is 1/sqrt(2 d), not 1/(2 d)", lambda *a: untied(*a, power=-1.0)),
            Mistake("the numbers of token 0 are added as they are, not divided by sqrt(2 d)",
                    lambda *a: untied(*a, size=(2 * len(a[2])) ** -0.5)),
            Mistake("the two numbers of token 0 are exchanged: the first is for token 0 as the "
                    "query", lambda x, p, q, k, uq, uk, t: untied(
                        x, p, q, k, uq, uk, t.flip(0))),
            Mistake("where token 0 is query and key, it is the query: the first number",
                    lambda *a: untied(*a) + spot(a[0], a[-1][1] - a[-1][0])),
            Mistake("the numbers of token 0 are missing: it has no position term, and they stand "
                    "in its place", lambda *a: untied(*a, size=0.0)),
            Mistake("the mixed terms are in it: that is what untying takes out",
                    lambda *a: untied(*a, mixed=(1, 1))),
            Mistake("one mixed term is left: content of the query with positions of the keys",
                    lambda *a: untied(*a, mixed=(1, 0))),
            Mistake("one mixed term is left: positions of the query with content of the keys",
                    lambda *a: untied(*a, mixed=(0, 1))),
            Mistake("positions go through the projections of the content (w_q, w_k)",
                    lambda x, p, q, k, uq, uk, t: untied(x, p, q, k, q, k, t)),
            Mistake("content goes through the projections of the positions (u_q, u_k)",
                    lambda x, p, q, k, uq, uk, t: untied(x, p, uq, uk, uq, uk, t)),
            Mistake("the projections of content and of positions are exchanged",
                    lambda x, p, q, k, uq, uk, t: untied(x, p, uq, uk, q, k, t)),
            Mistake("queries and keys are exchanged: rows belong to queries",
                    lambda x, p, q, k, uq, uk, t: untied(x, p, k, q, uk, uq, t)),
            Mistake("the position term is missing",
                    lambda x, p, *w: untied(x, 0 * p, *w)),
            Mistake("the content term is missing",
                    lambda x, p, *w: untied(0 * x, p, *w)),
            Mistake("position-position is transposed",
                    lambda x, p, q, k, uq, uk, t: untied(x, p, q, k, uk, uq, t)),
            Mistake("content-content is transposed",
                    lambda x, p, q, k, uq, uk, t: untied(x, p, k, q, uq, uk, t)),
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
