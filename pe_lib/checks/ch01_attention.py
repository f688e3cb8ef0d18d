"""Checks of exercise set 1: attention, and what it cannot see."""

from __future__ import annotations

import torch
from torch import Tensor

from pe_lib.attention import NoPosition, attend
from pe_lib.checks.spec import Case, Draw, Exercise, Mistake


def plain(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    """Attention without positions."""
    return attend(q, k, v, NoPosition(), torch.arange(q.shape[2]), torch.arange(k.shape[2]))[0]


def weighted(q: Tensor, k: Tensor, v: Tensor, factor: float, axis: int = -1) -> Tensor:
    """Attention with another factor, or with the softmax over another axis."""
    return (q @ k.mT * factor).softmax(axis) @ v


def attention_cases(draw: Draw) -> list[Case]:
    """Queries and keys of different lengths, values of another width."""
    b, h, lq, lk, d = draw.sizes(5)
    sizes = [(b, h, lq, lk, d), (1, 1, 2, 11, 12)]
    return [
        Case(
            f"q {(b, h, lq, d)}, k {(b, h, lk, d)}, v {(b, h, lk, d + 1)}",
            (
                2 * draw.normal(b, h, lq, d),
                2 * draw.normal(b, h, lk, d),
                draw.normal(b, h, lk, d + 1),
            ),
        )
        for b, h, lq, lk, d in sizes
    ]


def self_attention(x: Tensor) -> Tensor:
    """Self-attention of (L, d) without projections."""
    return plain(*(x[None, None],) * 3)[0, 0]


def gaps(x: Tensor, order: Tensor) -> tuple[Tensor, Tensor]:
    """How far attention is from equivariant, and from invariant."""
    moved, out = self_attention(x[order]), self_attention(x)
    return (moved - out[order]).abs().max(), (moved - out).abs().max()


def gaps_with(x: Tensor, moved: Tensor, back: Tensor, reduce: str = "max") -> tuple[Tensor, Tensor]:
    """The same numbers with another way to move, to move back, or to sum up."""
    after, out = self_attention(moved), self_attention(x)
    first, second = after - out[back], after - out
    if reduce == "mean":
        return first.abs().mean(), second.abs().mean()
    if reduce == "signed":
        return first.max(), second.max()
    return first.abs().max(), second.abs().max()


def gap_cases(draw: Draw) -> list[Case]:
    """Tokens and a permutation of them."""
    length, dim = draw.sizes(2, 5, 9)
    return [
        Case(f"x {(length, dim)} and a permutation of {length}",
             (draw.normal(length, dim), draw.order(length)))
        for _ in range(6)
    ]  # fmt: skip


def causal(q: Tensor, k: Tensor, v: Tensor, q_pos: Tensor, k_pos: Tensor) -> Tensor:
    """Attention to keys that are not later than the query."""
    return attend(q, k, v, NoPosition(), q_pos, k_pos, causal=True)[0]


def masked(q: Tensor, k: Tensor, v: Tensor, seen: Tensor, fill: float) -> Tensor:
    """Attention where unseen logits are replaced by `fill`."""
    logits = q @ k.mT * q.shape[-1] ** -0.5
    result: Tensor = logits.masked_fill(~seen, fill).softmax(-1) @ v
    return result


def zeroed(q: Tensor, k: Tensor, v: Tensor, q_pos: Tensor, k_pos: Tensor) -> Tensor:
    """Attention whose weights are masked after the softmax."""
    weights = (q @ k.mT * q.shape[-1] ** -0.5).softmax(-1)
    result: Tensor = weights * (k_pos <= q_pos[:, None]) @ v
    return result


def causal_cases(draw: Draw) -> list[Case]:
    """Positions in order, after a cache, and out of order."""
    b, h, lq, extra, d = draw.sizes(5, 2, 8)
    lk, start = lq + extra, draw.integer(11, 40)
    q_pos, k_pos = torch.arange(start + extra, start + lk), torch.arange(start, start + lk)
    shuffled = draw.order(lk)

    def case(label: str, queries: Tensor, keys: Tensor) -> Case:
        n, m = len(queries), len(keys)
        tensors = draw.normal(b, h, n, d), draw.normal(b, h, m, d), draw.normal(b, h, m, d)
        return Case(label, (*tensors, queries, keys))

    return [
        case("as many queries as keys, positions from 0", torch.arange(lk), torch.arange(lk)),
        case("queries that come after a cache of keys", q_pos, k_pos),
        case("keys out of order", q_pos + extra, k_pos[shuffled]),
    ]


EXERCISES = (
    Exercise(
        name="attention",
        asks="scaled dot-product attention of q, k and v",
        cases=attention_cases,
        reference=plain,
        mistakes=(
            Mistake("the factor 1/sqrt(d) is missing", lambda q, k, v: weighted(q, k, v, 1.0)),
            Mistake(
                "the softmax runs over the queries; the weights of each query must sum to one",
                lambda q, k, v: weighted(q, k, v, q.shape[-1] ** -0.5, -2),
            ),
            Mistake(
                "the logits are divided by d, not by its square root",
                lambda q, k, v: weighted(q, k, v, 1 / q.shape[-1]),
            ),
            Mistake(
                "the logits are multiplied by sqrt(d), not divided",
                lambda q, k, v: weighted(q, k, v, q.shape[-1] ** 0.5),
            ),
            Mistake(
                "d is the width of a head, the last axis of q; you use a length",
                lambda q, k, v: weighted(q, k, v, q.shape[-2] ** -0.5),
            ),
            Mistake(
                "d is the width of a head, the last axis of q; you use a length",
                lambda q, k, v: weighted(q, k, v, k.shape[-2] ** -0.5),
            ),
            Mistake(
                "d is the width of a head, the last axis of q; you use the width of v",
                lambda q, k, v: weighted(q, k, v, v.shape[-1] ** -0.5),
            ),
            Mistake(
                "d is the width of one head; you use the width of all heads together",
                lambda q, k, v: weighted(q, k, v, (q.shape[1] * q.shape[-1]) ** -0.5),
            ),
            Mistake(
                "there is no softmax",
                lambda q, k, v: q @ k.mT * q.shape[-1] ** -0.5 @ v,
            ),
            Mistake(
                "the factor 1/sqrt(d) comes after the softmax; it belongs inside",
                lambda q, k, v: weighted(q, k, v, 1.0) * q.shape[-1] ** -0.5,
            ),
            Mistake(
                "the softmax runs over the heads; the weights of each query must sum to one",
                lambda q, k, v: weighted(q, k, v, q.shape[-1] ** -0.5, 1),
            ),
        ),
    ),
    Exercise(
        name="gaps",
        asks="how far self-attention is from equivariant, and from invariant",
        cases=gap_cases,
        reference=gaps,
        mistakes=(
            Mistake(
                "the first gap compares with the output in its old order: that is invariance. "
                "Equivariance says that the outputs move as the tokens did",
                lambda x, order: (gaps(x, order)[1],) * 2,
            ),
            Mistake(
                "the second gap must compare with the output in its old order",
                lambda x, order: (gaps(x, order)[0],) * 2,
            ),
            Mistake(
                "the two gaps are swapped (or the tokens were never moved): equivariance "
                "comes first",
                lambda x, order: gaps(x, order)[::-1],
            ),
            Mistake(
                "the outputs are moved by the inverse permutation",
                lambda x, order: gaps_with(x, x[order], order.argsort()),
            ),
            Mistake("wanted is the largest difference, not the mean",
                    lambda x, order: gaps_with(x, x[order], order, "mean")),
            Mistake("take the absolute difference before the maximum",
                    lambda x, order: gaps_with(x, x[order], order, "signed")),
        ),
    ),
    Exercise(
        name="causal_attention",
        asks="attention in which no query sees a later key",
        cases=causal_cases,
        reference=causal,
        mistakes=(
            Mistake(
                "the mask comes after the softmax, so the weights no longer sum to one",
                zeroed,
            ),
            Mistake(
                "the mask counts rows and columns: it must compare q_pos with k_pos",
                lambda q, k, v, q_pos, k_pos: masked(
                    q, k, v, torch.ones(q.shape[2], k.shape[2]).tril().bool(), -1e9
                ),
            ),
            Mistake(
                "the mask counts rows and columns, from the last ones: it must compare q_pos "
                "with k_pos",
                lambda q, k, v, q_pos, k_pos: masked(
                    q, k, v,
                    torch.ones(q.shape[2], k.shape[2]).tril(k.shape[2] - q.shape[2]).bool(),
                    -1e9,
                ),
            ),
            Mistake(
                "the mask is the wrong way round: it shows the future and hides the past",
                lambda q, k, v, q_pos, k_pos: masked(q, k, v, k_pos >= q_pos[:, None], -1e9),
            ),
            Mistake(
                "a query may see the key at its own position; yours may not",
                lambda q, k, v, q_pos, k_pos: masked(q, k, v, k_pos < q_pos[:, None], -1e9),
            ),
            Mistake(
                "a query may see the key at its own position; yours may not",
                lambda q, k, v, q_pos, k_pos: masked(
                    q, k, v, k_pos < q_pos[:, None], -torch.inf
                ),
            ),
            Mistake(
                "a hidden logit is set to 0, but exp(0) is 1: the future still has weight",
                lambda q, k, v, q_pos, k_pos: masked(q, k, v, k_pos <= q_pos[:, None], 0.0),
            ),
            Mistake(
                "there is no mask: the future is seen",
                lambda q, k, v, q_pos, k_pos: plain(q, k, v),
            ),
            Mistake(
                "one position too many is seen: a key is hidden as soon as it is later",
                lambda q, k, v, q_pos, k_pos: masked(q, k, v, k_pos <= q_pos[:, None] + 1, -1e9),
            ),
        ),
    ),
)  # fmt: skip
