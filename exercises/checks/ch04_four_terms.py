"""Checks of exercise set 4: the four terms of a logit."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor

from pe_course.judge.exercise import Case, Draw, Exercise, Mistake

Three = tuple[Tensor, ...]
Pair = tuple[Tensor, Tensor]


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

    def case(words: str, size: int, wide: int, narrow: int, given: Tensor) -> Case:
        x, p = draw.normal(2, size, wide).double()
        w_q, w_k = draw.normal(2, narrow, wide).double()
        inputs = [one * x + two * p for one, two in given.double()]
        scores = torch.stack([(each @ w_q.T) @ (each @ w_k.T).T for each in inputs])
        return Case(words, (scores, given.double()), drawn=f": {len(given)} runs, L = {size}")

    sizes = ((length, a, b), (other, b, a), (1, a, b), (24, 5, 5))
    kinds = ("switches", "runs that repeat", "negative scales, one token", "odd scales")
    return [
        case(words, *size, given) for words, size, given in zip(kinds, sizes, scales, strict=True)
    ]


def terms_cases(draw: Draw) -> list[Case]:
    """Projections to another width, smaller and larger, or to the same; one token alone."""
    length, other, a, b = draw.sizes(4, 4, 9)
    sizes = (
        ("narrow projections", length, max(a, b), min(a, b)),
        ("wide projections", other, min(a, b), max(a, b)),
        ("projections to the same width", 5, 8, 8), ("very wide projections", 6, 3, 16),
        ("many tokens", 24, 5, 5), ("one token", 1, a, b),
    )  # fmt: skip
    return [
        Case(words,
             (draw.normal(rows, wide), draw.normal(rows, wide),
              *(draw.normal(narrow, wide) for _ in range(4)), 3 * draw.normal(2)),
             drawn=f": x and p of shape {(rows, wide)}, projections to {narrow}")
        for words, rows, wide, narrow in sizes
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


def bias_of(weights: Tensor) -> Pair:
    """Return the number that a head adds for each distance, (2L - 1,), and what it leaves."""
    return fitted(weights.log())


def by_distance(length: int) -> Tensor:
    """Return which distance each pair has, as ones and zeros: (L, L, 2L - 1)."""
    place = torch.arange(length)
    return torch.eye(2 * length - 1).double()[place - place[:, None] + length - 1]


def fitted(logits: Tensor, axis: int = -1, zero: bool = True) -> Pair:
    """Fit a number for each distance, and one for each row (of `axis`) of each text."""
    length = logits.shape[-1]
    ones = by_distance(length)
    ones = ones - ones.mean(axis - 1, keepdim=True)
    logits = logits - logits.mean(axis, keepdim=True)
    found = torch.linalg.pinv(ones.flatten(0, 1)) @ logits.mean(0).flatten()
    left = (logits - ones @ found).abs().max()
    return (found - found[length - 1] if zero else found), left


def diagonal_means(logits: Tensor) -> Tensor:
    """Return the mean of each distance, less that of distance 0."""
    length = logits.shape[-1]
    ones = by_distance(length)
    found = (logits.mean(0)[..., None] * ones).sum((0, 1)) / ones.sum((0, 1))
    return found - found[length - 1]


def bias_cases(draw: Draw) -> list[Case]:
    """The distance alone, words besides; one text, many, three tokens; a steep slope."""
    length, other, texts = draw.sizes(3, 4, 8)

    def case(words: str, n: int, size: int, mixed: float, slope: float = 0.0) -> Case:
        bias = draw.normal(2 * size - 1).double() + slope * torch.arange(2 * size - 1)
        place = torch.arange(size)
        logits = bias[place - place[:, None] + size - 1]
        logits = logits + mixed * draw.normal(n, size, size).double()
        return Case(words, (logits.softmax(-1),), drawn=f": N, L = {(n, size)}")

    return [
        case("the distance alone", texts, length, 0.0),
        case("the distance and words, several texts", texts, other, 0.5),
        case("the distance and words, one text", 1, length, 1.0),
        case("a steep slope", 2, 14, 0.2, 1.5),
        case("three tokens", 2, 3, 0.7),
    ]


def with_left(change: Callable[[Tensor, Tensor], Tensor]) -> Callable[[Tensor], Pair]:
    """Return an answer with the right numbers, and another size of what they leave.

    `change` takes what is left of the logits, each row less its mean, and the logits.
    """

    def answer(weights: Tensor) -> Pair:
        logits = weights.log()
        bias, _ = fitted(logits)
        left = logits - by_distance(logits.shape[-1]) @ bias
        return bias, change(left - left.mean(-1, keepdim=True), logits)

    return answer


def with_bias(change: Callable[[Tensor], Tensor]) -> Callable[[Tensor], Pair]:
    """Return an answer with other numbers for the distances: of the weights."""
    return lambda weights: (change(weights), bias_of(weights)[1])


def with_sign(left: Tensor, _: Tensor) -> Tensor:
    """Return the error that is largest in size, with its sign."""
    return left.flatten()[left.abs().argmax()]


SIGNED = with_left(with_sign)
POSITIVE = with_left(lambda left, _: left.max())
NEGATIVE = with_left(lambda left, _: -left.min())


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
        name="bias_of",
        parts=(0, 1),
        cases=lambda draw: draw.telling(bias_cases, bias_of, SIGNED, POSITIVE, NEGATIVE),
        reference=bias_of,
        tolerance=1e-6,
        axes=("distance",),
        mistakes=(
            Mistake("the softmax has taken another number from each row, and the rows do not see "
                    "the same distances: a mean over a diagonal mixes them",
                    with_bias(lambda w: diagonal_means(w.log()))),
            Mistake("a row less its mean is not free of what the softmax took: the mean has the "
                    "distances of this row in it. Fit both at once",
                    with_bias(lambda w: diagonal_means(w.log() - w.log().mean(-1, keepdim=True)))),
            Mistake("weights are averaged before the logarithm",
                    with_bias(lambda w: bias_of(w.mean(0, keepdim=True))[0])),
            Mistake("the number of distance 0 must be 0: subtract it from all",
                    with_bias(lambda w: fitted(w.log(), zero=False)[0])),
            Mistake("the distance is j - i, key less query; yours is i - j",
                    with_bias(lambda w: bias_of(w)[0].flip(0))),
            Mistake("the free number belongs to each query, a row; you give one to each key",
                    lambda w: fitted(w.log(), -2)),
            Mistake("the logarithm is to base 2; the softmax takes powers of e",
                    lambda w: fitted(w.log2())),
            Mistake("these are the weights themselves; the head adds its numbers before the "
                    "softmax", lambda w: fitted(w)),
            Mistake("only the first text is used", lambda w: bias_of(w[:1])),
            Mistake("the largest error is that of all texts, not of their mean",
                    with_left(lambda left, _: left.mean(0).abs().max())),
            Mistake("wanted is the largest error, not the root of the mean square",
                    with_left(lambda left, _: left.square().mean().sqrt())),
            Mistake("errors below 0 count by their size", POSITIVE),
            Mistake("errors above 0 count, too", NEGATIVE),
            Mistake("the largest error is wanted in size; yours has its sign", SIGNED),
            Mistake("this is the error of the logits with a free number for each row, and none for "
                    "the distances",
                    with_left(lambda _, logits: (logits - logits.mean(-1, keepdim=True)).abs()
                              .max())),
        ),
    ),
)  # fmt: skip
