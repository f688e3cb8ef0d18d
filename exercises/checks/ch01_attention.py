"""Checks of exercise set 1: attention, and what it cannot see."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor

from exercises.checks.spec import Case, Draw, Exercise, Mistake
from pe_lib.attention import NoPosition, attend


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


def unscaled_gaps(x: Tensor, order: Tensor) -> tuple[Tensor, Tensor]:
    """The gaps of attention without the factor 1/sqrt(d)."""
    return gaps_with(x, x[order], order, factor=1.0)


def gaps_with(
    x: Tensor, moved: Tensor, back: Tensor, reduce: str = "max", factor: float | None = None
) -> tuple[Tensor, Tensor]:
    """The same numbers with another way to move, to move back, to sum up or to scale."""
    scale = x.shape[1] ** -0.5 if factor is None else factor
    after, out = weighted(moved, moved, moved, scale), weighted(x, x, x, scale)
    first, second = after - out[back], after - out
    if reduce == "mean":
        return first.abs().mean(), second.abs().mean()
    if reduce == "sum":
        return first.abs().sum(), second.abs().sum()
    if reduce == "signed":
        return first.max(), second.max()
    return first.abs().max(), second.abs().max()


def gap_cases(draw: Draw) -> list[Case]:
    """Tokens of several lengths in another order, each with its negative."""
    cases = []
    for length in draw.sizes(5, 5, 9):
        dim = (length - 3) % 5 + 5  # no two lengths and widths are alike
        x, order = draw.normal(length, dim), draw.order(length)
        words = f"of shape {(length, dim)}, order {order.tolist()}"
        # the largest difference of one is the smallest of the other, so a sign cannot hide
        cases += [Case(f"x {words}", (x, order)), Case(f"-x, x {words}", (-x, order))]
    return cases


def causal(q: Tensor, k: Tensor, v: Tensor, q_pos: Tensor, k_pos: Tensor) -> Tensor:
    """Attention to keys that are not later than the query."""
    return attend(q, k, v, NoPosition(), q_pos, k_pos, causal=True)[0]


def masked(
    q: Tensor, k: Tensor, v: Tensor, seen: Tensor, fill: float, scale: float | None = None,
    axis: int = -1,
) -> Tensor:  # fmt: skip
    """Attention where unseen logits are replaced by `fill`."""
    logits = q @ k.mT * (q.shape[-1] ** -0.5 if scale is None else scale)
    result: Tensor = logits.masked_fill(~seen, fill).softmax(axis) @ v
    return result


def zeroed(q: Tensor, k: Tensor, v: Tensor, seen: Tensor) -> Tensor:
    """Attention whose weights are masked after the softmax."""
    weights = (q @ k.mT * q.shape[-1] ** -0.5).softmax(-1)
    result: Tensor = weights * seen @ v
    return result


def counted(q: Tensor, k: Tensor, shift: int = 0) -> Tensor:
    """A mask that counts rows and columns."""
    return torch.ones(q.shape[2], k.shape[2]).tril(shift).bool()


def either(message: str, seen: Callable[[Tensor, Tensor], Tensor]) -> tuple[Mistake, Mistake]:
    """A wrong mask, made from q_pos[:, None] and k_pos, with both usual values for hidden logits.

    They differ where a query sees no key at all.
    """

    def mistake(fill: float) -> Mistake:
        return Mistake(
            message,
            lambda q, k, v, q_pos, k_pos: masked(q, k, v, seen(q_pos[:, None], k_pos), fill),
        )

    return mistake(-1e9), mistake(-torch.inf)


def spread_positions(draw: Draw, queries: int, keys: int) -> tuple[Tensor, Tensor]:
    """Positions of queries and keys: in no order, with holes, two below zero or more.

    The first query position sees one key alone, the last one sees all.
    """
    steps = torch.randint(30, 400, (keys,), generator=draw.generator)
    places = steps.cumsum(0) - 900
    ends = torch.tensor([0, keys // 2, keys - 1])
    rest = [i for i in torch.randperm(keys, generator=draw.generator).tolist() if i not in ends]
    picked = torch.cat([ends, torch.tensor(rest[: queries - 3], dtype=torch.long)]).sort().values
    return places[picked[draw.order(queries)]], places[draw.order(keys)]


def causal_cases(draw: Draw) -> list[Case]:
    """Positions from 0, after a cache, and out of order."""
    b, h, lq, extra, d = draw.sizes(5, 3, 8)
    lk, start = lq + extra, draw.integer(20001, 29999)  # too large for half precision

    def case(queries: Tensor, keys: Tensor) -> Case:
        n, m = len(queries), len(keys)
        tensors = draw.normal(b, h, n, d), draw.normal(b, h, m, d), draw.normal(b, h, m, d)
        label = f"q {(b, h, n, d)}, k and v {(b, h, m, d)}, {span('q_pos', queries)}, "
        return Case(label + span("k_pos", keys), (*tensors, queries, keys))

    return [
        case(torch.arange(lk), torch.arange(lk)),
        case(torch.arange(start + extra, start + lk), torch.arange(start, start + lk)),
        case(*spread_positions(draw, lq, lk)),
    ]


def span(name: str, places: Tensor) -> str:
    """Say which positions these are."""
    if bool((places.diff() == 1).all()):
        return f"{name} {int(places[0])} to {int(places[-1])}"
    return f"{name} {places.tolist()}"


EXERCISES = (
    Exercise(
        name="attention",
        cases=attention_cases,
        reference=plain,
        axes=("batch", "head", "query", "channel"),
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
                "the softmax runs over the sequences of the batch; the weights of each query must "
                "sum to one",
                lambda q, k, v: weighted(q, k, v, q.shape[-1] ** -0.5, 0),
            ),
            Mistake(
                "`reshape` cuts k anew into rows of another length; exchange its last two axes",
                lambda q, k, v: weighted(
                    q, k.reshape(*k.shape[:2], k.shape[3], k.shape[2]).mT, v, q.shape[-1] ** -0.5
                ),
            ),
            Mistake(
                "the softmax runs over the heads; the weights of each query must sum to one",
                lambda q, k, v: weighted(q, k, v, q.shape[-1] ** -0.5, 1),
            ),
        ),
    ),
    Exercise(
        name="gaps",
        cases=gap_cases,
        reference=gaps,
        mistakes=(
            Mistake(
                "the first gap compares with the output in its old order: that is invariance. "
                "Equivariance says that the outputs move as the tokens did",
                lambda x, order: (gaps(x, order)[1],) * 2,
            ),
            Mistake(
                "both numbers are zero. The second gap compares with the output in its old order: "
                "subtract entry by entry, and take the largest of the differences",
                lambda x, order: (gaps(x, order)[0],) * 2,
            ),
            Mistake(
                "the two gaps are swapped (or the queries were never moved): equivariance "
                "comes first",
                lambda x, order: gaps(x, order)[::-1],
            ),
            Mistake(
                "the outputs are moved by the inverse permutation",
                lambda x, order: gaps_with(x, x[order], order.argsort()),
            ),
            Mistake(
                "the tokens themselves are compared; their outputs are wanted",
                lambda x, order: (torch.tensor(0.0), (x[order] - x).abs().max()),
            ),
            Mistake("the factor 1/sqrt(d) is missing in the attention", unscaled_gaps),
            Mistake("wanted is the largest difference, not the sum",
                    lambda x, order: gaps_with(x, x[order], order, "sum")),
            Mistake("wanted is the largest difference, not the mean",
                    lambda x, order: gaps_with(x, x[order], order, "mean")),
            Mistake("take the absolute difference before the maximum",
                    lambda x, order: gaps_with(x, x[order], order, "signed")),
        ),
    ),
    Exercise(
        name="causal_attention",
        cases=causal_cases,
        reference=causal,
        axes=("batch", "head", "query", "channel"),
        mistakes=(
            Mistake(
                "this is the listing, unchanged",
                lambda q, k, v, q_pos, k_pos: zeroed(q, k, v, counted(q, k)),
            ),
            Mistake(
                "the mask comes after the softmax, so the weights no longer sum to one",
                lambda q, k, v, q_pos, k_pos: zeroed(q, k, v, k_pos <= q_pos[:, None]),
            ),
            Mistake(
                "the mask counts rows and columns: it must compare q_pos with k_pos",
                lambda q, k, v, q_pos, k_pos: masked(q, k, v, counted(q, k), -1e9),
            ),
            Mistake(
                "the mask counts rows and columns, from the last ones: it must compare q_pos "
                "with k_pos",
                lambda q, k, v, q_pos, k_pos: masked(
                    q, k, v, counted(q, k, k.shape[2] - q.shape[2]), -1e9
                ),
            ),
            *either(
                "the mask is the wrong way round: it hides the keys that may be seen (is a `~` "
                "missing, or one too many?)",
                lambda q_pos, k_pos: k_pos > q_pos,
            ),
            *either(
                "the mask is the wrong way round: it shows the future and hides the past",
                lambda q_pos, k_pos: k_pos >= q_pos,
            ),
            *either(
                "a query may see the key at its own position; yours may not",
                lambda q_pos, k_pos: k_pos < q_pos,
            ),
            *either(
                "the keys are taken to be in order; compare each k_pos as it is given",
                lambda q_pos, k_pos: k_pos.sort().values <= q_pos,
            ),
            *either(
                "the keys are counted from the earliest one; compare each k_pos as it is given",
                lambda q_pos, k_pos: k_pos.min() + torch.arange(len(k_pos)) <= q_pos,
            ),
            *either(
                "the queries are counted from the first one; compare each q_pos as it is given",
                lambda q_pos, k_pos: k_pos <= q_pos[0] + torch.arange(len(q_pos))[:, None],
            ),
            *either(
                "negative positions lose their sign; compare each position as it is given",
                lambda q_pos, k_pos: k_pos.abs() <= q_pos.abs(),
            ),
            *either(
                "negative positions are taken as 0; compare each position as it is given",
                lambda q_pos, k_pos: k_pos.clamp(min=0) <= q_pos.clamp(min=0),
            ),
            *either(
                "one position too many is seen: a key is hidden as soon as it is later",
                lambda q_pos, k_pos: k_pos <= q_pos + 1,
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
                "the factor 1/sqrt(d) is missing",
                lambda q, k, v, q_pos, k_pos: masked(
                    q, k, v, k_pos <= q_pos[:, None], -torch.inf, 1.0
                ),
            ),
            *(
                Mistake(
                    "the softmax runs over the queries; the weights of each query must sum to one",
                    lambda q, k, v, q_pos, k_pos, fill=fill: masked(
                        q, k, v, k_pos <= q_pos[:, None], fill, axis=-2
                    ),
                )
                for fill in (-1e9, -torch.inf)
            ),
        ),
    ),
)  # fmt: skip
