"""Checks of exercise set 1: attention and what it cannot see."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor

from pe_course.judge.exercise import Case, Draw, Exercise, Mistake


def centred(rows: Tensor, axis: int | tuple[int, int] = -1) -> Tensor:
    """Subtract the mean along an axis."""
    return rows - rows.mean(axis, keepdim=True)


def slope(x: Tensor, y: Tensor) -> Tensor:
    """Return the factor of each head that takes x nearest to y, (H,)."""
    return (x * y).sum((-2, -1)) / x.square().sum((-2, -1))


def scale_of(q: Tensor, k: Tensor, weights: Tensor) -> Tensor:
    """Return by what the products of each head were multiplied."""
    return slope(centred(q @ k.mT), centred(weights.log()))


def scale_cases(draw: Draw) -> list[Case]:
    """More keys than queries, as many, one query, two keys; scales from far below 1 to above."""
    h, lq, lk, d = draw.sizes(4, 3, 9)
    sizes = {
        "some heads": (h, lq, lk, d), "as many queries as keys": (lq, h, h, 16),
        "one head": (1, lq, 12, 64), "one query": (h, 1, lk, d), "two keys": (2, lq, 2, 3),
    }  # fmt: skip

    def case(words: str, n: int, queries: int, keys: int, width: int) -> Case:
        q, k = draw.normal(n, queries, width).double(), 1 + draw.normal(n, keys, width).double()
        drawn = torch.rand(n, 1, 1, generator=draw.generator, dtype=torch.float64)
        scale = (0.2 + 2 * drawn) / width**0.5
        weights = (scale * q @ k.mT).softmax(-1)
        return Case(words, (q, k, weights), drawn=f": H, Lq, Lk, d = {(n, queries, keys, width)}")

    return [case(words, *each) for words, each in sizes.items()]


def times_of(v: Tensor, out: Tensor, share: float | None = None) -> Tensor:
    """Find one token after the other: its output is between what was read and its value."""
    times = torch.full((len(v),), -1)
    miss = (out - v).norm(dim=1)
    for time in range(len(v)):
        found = miss.masked_fill(times >= 0, torch.inf).argmin()
        times[found] = time
        moved, way = out - out[found], v - out[found]  # (L, e)
        fitted = (moved * way).sum(1, keepdim=True) / way.square().sum(1, keepdim=True)
        part = fitted if share is None else share / (time + 2)
        miss = (moved - part * way).norm(dim=1)
    return times


def causal_mean(v: Tensor, weights: Tensor) -> Tensor:
    """Return what each token reads if each word has one weight, (L, e)."""
    logits = weights.log().expand(len(v), -1)
    result: Tensor = logits.masked_fill(triangle(logits), -torch.inf).softmax(1) @ v
    return result


def time_cases(draw: Draw) -> list[Case]:
    """A few tokens and many, values in a plane, weights far apart, one token alone."""
    n, m, e, wide = draw.sizes(4, 5, 12)

    def case(words: str, length: int, width: int, spread: float = 1.0) -> Case:
        weights = (spread * draw.normal(length).double()).clamp(-3.4, 3.4).exp()
        v = 0.5 + draw.normal(length, width).double()
        order = draw.order(length) if length > 2 else torch.arange(length)
        given = v[order], causal_mean(v, weights)[order]
        return Case(words, given, drawn=f", L, e = {(length, width)}")

    return [
        case("some tokens", n, e),
        case("many tokens", 24, 3),
        case("a plane", wide, 2),
        case("weights far apart", 2 * m, e, 3.0),
        case("one token", 1, 3),
    ]


def causal_output(
    output: Tensor, weights: Tensor, v: Tensor, q_pos: Tensor, k_pos: Tensor
) -> Tensor:
    """Return what each query reads of the keys that are not later."""
    return without(output, weights, v, k_pos > q_pos[:, None])


def without(output: Tensor, weights: Tensor, v: Tensor, later: Tensor, power: int = -1) -> Tensor:
    """Take out what is read of later keys; what is left is divided by its weight."""
    hidden = weights * later
    result: Tensor = (output - hidden @ v) * (1 - hidden.sum(-1, keepdim=True)) ** power
    return result


def triangle(weights: Tensor, shift: int = 0) -> Tensor:
    """A mask that counts rows and columns."""
    return torch.ones(weights.shape[-2:]).triu(shift + 1) > 0


def spread_positions(
    draw: Draw, queries: int, keys: int, low: int = 30, high: int = 400
) -> tuple[Tensor, Tensor]:
    """Positions of queries and keys: in no order, with holes.

    The first query position sees one key alone, the last one sees all. `low` and `high` bound the
    steps between the keys; if they are short, two keys or more are below zero.
    """
    steps = torch.randint(low, high, (keys,), generator=draw.generator)
    places = steps.cumsum(0) - 900
    ends = torch.tensor([0, keys // 2, keys - 1])
    rest = [i for i in torch.randperm(keys, generator=draw.generator).tolist() if i not in ends]
    picked = torch.cat([ends, torch.tensor(rest[: queries - 3], dtype=torch.long)]).sort().values
    return places[picked[draw.order(queries)]], places[draw.order(keys)]


def causal_cases(draw: Draw) -> list[Case]:
    """Positions from 0, after a cache, out of order, and far apart; with keys lost, and without."""
    b, h, lq, extra, d = draw.sizes(5, 3, 8)
    lk, start = lq + extra, draw.integer(20001, 29999)  # too large for half precision

    def case(
        words: str, queries: Tensor, keys: Tensor, b: int = b, h: int = h, lost: int = 3
    ) -> Case:
        n, m = len(queries), len(keys)
        seen = torch.cat([keys <= queries[:, None], torch.ones(n, lost) > 0], 1)
        weights = 0.9 * draw.normal(b, h, n, m + lost).softmax(-1) + 0.1 * seen / seen.sum(
            1, keepdim=True)  # fmt: skip
        sizes = f": weights {(b, h, n, m)}, {span('q_pos', queries)}, {span('k_pos', keys)}"
        v = draw.normal(b, h, m + lost, d)
        given = weights @ v, weights[..., :m].clone(), v[:, :, :m].clone(), queries, keys
        return Case(words, given, drawn=sizes)

    return [
        case("a text from 0, no key lost", torch.arange(lk), torch.arange(lk), lost=0),
        case("a text far out", torch.arange(start, start + lq), torch.arange(start, start + lk)),
        case("positions in no order", *spread_positions(draw, lq, lk)),
        # past any window, the numbers of 16 bits, and those that half precision tells apart
        case("positions far apart", *spread_positions(draw, lq, lk, 19_000, 38_000)),
        # who counts where there are as many is off
        case("as many queries as keys, in no order", *spread_positions(draw, lk, lk)),
        case("one query", torch.tensor([start]), torch.arange(start - 100, start + 200), 1, 1),
        case("many heads, no key lost", *spread_positions(draw, 16, 16), 1, 12, lost=0),
    ]


def span(name: str, places: Tensor) -> str:
    """Say which positions these are."""
    if bool((places.diff() == 1).all()):
        return f"{name} {int(places[0])} to {int(places[-1])}"
    return f"{name} {places.tolist()}"


def hidden_by(message: str, later: Callable[[Tensor, Tensor], Tensor]) -> Mistake:
    """A wrong mask, made from q_pos[:, None] and k_pos."""
    return Mistake(message, lambda o, w, v, q, k: without(o, w, v, later(q[:, None], k)))


def of_the_kept(weights: Tensor, v: Tensor) -> Tensor:
    """Mix the values of the keys that were kept."""
    result: Tensor = weights.nan_to_num(0.0) @ v
    return result


EXERCISES = (
    Exercise(
        name="scale_of",
        cases=scale_cases,
        reference=scale_of,
        tolerance=1e-6,
        axes=("head",),
        mistakes=(
            Mistake("the softmax takes a term of its own from each row; it is still there",
                    lambda q, k, w: slope(q @ k.mT, w.log())),
            Mistake("the term that the softmax takes belongs to a query's row; you subtract the "
                    "mean of each key's column",
                    lambda q, k, w: slope(centred(q @ k.mT, -2), centred(w.log(), -2))),
            Mistake("each row has a term of its own; you subtract one mean from the whole head",
                    lambda q, k, w: slope(
                        centred(q @ k.mT, (-2, -1)), centred(w.log(), (-2, -1)))),
            Mistake("the logarithms have lost the term of their row, and the products still have "
                    "their mean", lambda q, k, w: slope(q @ k.mT, centred(w.log()))),
            Mistake("this is what the products were divided by; return what they were multiplied "
                    "by", lambda q, k, w: 1 / scale_of(q, k, w)),
            Mistake("this is the width whose root would divide; return the factor itself",
                    lambda q, k, w: scale_of(q, k, w) ** -2),
            Mistake("the weights themselves do not grow with the products by one factor; their "
                    "logarithms do", lambda q, k, w: slope(centred(q @ k.mT), centred(w))),
            Mistake("this is 1/sqrt(d), as in the chapter; these heads have other factors",
                    lambda q, k, w: torch.full((len(q),), q.shape[-1] ** -0.5)),
            Mistake("all heads get one number; each has its own",
                    lambda q, k, w: scale_of(q, k, w).mean().expand(len(q))),
            Mistake("the logarithm is to base 2; the softmax takes powers of e",
                    lambda q, k, w: slope(centred(q @ k.mT), centred(w.log2()))),
        ),
    ),
    Exercise(
        name="causal_output",
        cases=causal_cases,
        reference=causal_output,
        axes=("batch", "head", "query", "channel"),
        mistakes=(
            Mistake("the weights that are left no longer sum to one",
                    lambda o, w, v, q, k: without(o, w, v, k > q[:, None], 0)),
            Mistake("the mask counts rows and columns: it must compare q_pos with k_pos",
                    lambda o, w, v, q, k: without(o, w, v, triangle(w))),
            Mistake("the mask counts rows and columns, from the last ones: it must compare q_pos "
                    "with k_pos",
                    lambda o, w, v, q, k: without(o, w, v, triangle(w, len(k) - len(q)))),
            hidden_by("the mask is the wrong way round: it takes out the keys that may be seen",
                      lambda q, k: k <= q),
            hidden_by("the mask is the wrong way round: it shows the future and hides the past",
                      lambda q, k: k < q),
            hidden_by("a query may see the key at its own position; yours may not",
                      lambda q, k: k >= q),
            hidden_by("the keys are taken to be in order; compare each k_pos as it is given",
                      lambda q, k: k.sort().values > q),
            hidden_by("the keys are counted from the earliest one; compare each k_pos as it is "
                      "given", lambda q, k: k.min() + torch.arange(len(k)) > q),
            hidden_by("the queries are counted from the first one; compare each q_pos as it is "
                      "given", lambda q, k: k > q[0] + torch.arange(len(q))[:, None]),
            hidden_by("negative positions lose their sign; compare each position as it is given",
                      lambda q, k: k.abs() > q.abs()),
            hidden_by("negative positions are taken as 0; compare each position as it is given",
                      lambda q, k: k.clamp(min=0) > q.clamp(min=0)),
            hidden_by("one position too many is seen: a key is hidden as soon as it is later",
                      lambda q, k: k > q + 1),
            Mistake("the future is still seen: nothing is taken out",
                    lambda o, w, v, q, k: 1.0 * o),
            Mistake("what is left is multiplied by its weight; divide by it",
                    lambda o, w, v, q, k: without(o, w, v, k > q[:, None], 1)),
            Mistake("divide what is left, and not what is taken out", lambda o, w, v, q, k:
                    o - (o - without(o, w, v, k > q[:, None], 0))
                    / (1 - (w * (k > q[:, None])).sum(-1, keepdim=True))),
            Mistake("the keys that are gone were read, too: what they gave is in `output` alone",
                    lambda o, w, v, q, k: of_the_kept(
                        w * (k <= q[:, None])
                        / (w * (k <= q[:, None])).sum(-1, keepdim=True), v)),
            Mistake("the softmax is taken a second time; the weights that are left keep their "
                    "ratios", lambda o, w, v, q, k: of_the_kept(
                        w.masked_fill(k > q[:, None], -torch.inf).softmax(-1), v)),
        ),
    ),
    Exercise(
        name="times_of",
        cases=time_cases,
        reference=times_of,
        integers=True,
        axes=("token",),
        mistakes=(
            Mistake("this is the list of tokens in the order of the text; for each token its place "
                    "is asked", lambda *a: times_of(*a).argsort()),
            Mistake("the order is reversed: the first token of the text, which read itself alone, "
                    "is number 0", lambda *a: len(a[0]) - 1 - times_of(*a)),
            Mistake("the places are counted from 1; the first token is number 0",
                    lambda *a: times_of(*a) + 1),
            Mistake("the tokens are taken to stand in the order of the text",
                    lambda v, out: torch.arange(len(v))),
            Mistake("all words are given the same weight; each has one of its own",
                    lambda v, out: times_of(v, out, 1.0)),
            Mistake("the next output is not the nearest one: a heavy word moves it far",
                    lambda v, out: times_of(v, out, 0.0)),
            Mistake("tokens near their own value are taken for early ones; that is a tendency, and "
                    "no proof", lambda v, out: (out - v).norm(dim=1).argsort().argsort()),
        ),
    ),
)  # fmt: skip
