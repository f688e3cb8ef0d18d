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


def causal_by_place(q: Tensor, k: Tensor, v: Tensor, shift: int = 0) -> Tensor:
    """Attention to keys that stand no later than the query."""
    return masked(q, k, v, counted(q, k, shift), -torch.inf)


def attention_cases(draw: Draw) -> list[Case]:
    """Lengths that differ and that are equal, narrow and wide values, one head and many."""
    b, h, lq, lk, d, wide, narrow = draw.sizes(7)
    n, more = draw.integer(5, 8), draw.integer(2, 6)
    sizes = [
        (b, h, lq, lk, d, d + 1),
        (1, 1, 2, 11, 12, 13),
        (h, h, n, n, d, n - 1),  # self-attention, and as many heads as sequences
        (b, 1, n + more, n, wide + 1, 2),
        (2, 1, 1, n + more, narrow + 1, n + more),  # one query: a step of decoding
        (1, 12, 5, 5, 64, 64),
        (1, 2, 3, 300, d, d),
        (2, 3, lq, lk, 1, narrow),
    ]
    return [
        Case(
            f"q {(b, h, lq, d)}, k {(b, h, lk, d)}, v {(b, h, lk, dv)}",
            (2 * draw.normal(b, h, lq, d), 2 * draw.normal(b, h, lk, d), draw.normal(b, h, lk, dv)),
        )
        for b, h, lq, lk, d, dv in sizes
    ]


def self_attention(x: Tensor, scale: float | None = None) -> Tensor:
    """Self-attention of (L, d) without projections."""
    return weighted(x, x, x, x.shape[1] ** -0.5 if scale is None else scale)


def gaps(x: Tensor, order: Tensor, table: Tensor) -> tuple[Tensor, Tensor]:
    """How far attention with a table of positions is from equivariant, and from invariant."""
    return gaps_with(x, order, table)


def gaps_with(
    x: Tensor, order: Tensor, table: Tensor, *, back: Tensor | None = None, reduce: str = "max",
    factor: float | None = None, moved: Tensor | None = None,
) -> tuple[Tensor, Tensor]:  # fmt: skip
    """The same numbers with another way to move, to move back, to sum up or to scale.

    Args:
        x: the tokens.
        order: in which they are moved.
        table: a vector for each place.
        back: what moves the output in its old order.
        reduce: how the differences are summed up.
        factor: of the logits.
        moved: the tokens that are compared with x + table, places included.
    """
    out = self_attention(x + table, factor)
    after = self_attention(x[order] + table if moved is None else moved, factor)
    first, second = after - out[order if back is None else back], after - out
    if reduce == "mean":
        return first.abs().mean(), second.abs().mean()
    if reduce == "sum":
        return first.abs().sum(), second.abs().sum()
    if reduce == "signed":
        return first.max(), second.max()
    return first.abs().max(), second.abs().max()


def queries_moved(x: Tensor, order: Tensor, table: Tensor) -> tuple[Tensor, Tensor]:
    """The gaps where keys and values stay where they are."""
    old, new = x + table, x[order] + table
    after, out = weighted(new, old, old, x.shape[1] ** -0.5), self_attention(old)
    return (after - out[order]).abs().max(), (after - out).abs().max()


def gap_cases(draw: Draw) -> list[Case]:
    """Tokens of several lengths in another order, each with its negative; without a table first.

    A table keeps the first gap from being zero whatever is computed.
    """
    cases = []
    for length in draw.sizes(5, 5, 9):
        dim = (length - 3) % 5 + 5  # no two lengths and widths are alike
        x, order = draw.normal(length, dim), draw.order(length)
        words = f"of shape {(length, dim)}, order {order.tolist()}"
        table = draw.normal(length, dim)
        # the largest difference of one is the smallest of the other, so a sign cannot hide
        cases += [
            Case(f"x {words}, a table of zeros", (x, order, 0 * table)),
            Case(f"-x, x {words}, a table of zeros", (-x, order, 0 * table)),
            Case(f"x {words}, a table of random numbers", (x, order, table)),
            Case(f"-x, x {words}, the negative of that table", (-x, order, -table)),
        ]
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
    """Positions from 0, after a cache, out of order, and far apart; logits far below zero."""
    b, h, lq, extra, d = draw.sizes(5, 3, 8)
    lk, start = lq + extra, draw.integer(20001, 29999)  # too large for half precision

    def case(queries: Tensor, keys: Tensor, b: int = b, h: int = h, d: int = d) -> Case:
        n, m = len(queries), len(keys)
        tensors = draw.normal(b, h, n, d), draw.normal(b, h, m, d), draw.normal(b, h, m, d)
        label = f"q {(b, h, n, d)}, k and v {(b, h, m, d)}, {span('q_pos', queries)}, "
        return Case(label + span("k_pos", keys), (*tensors, queries, keys))

    return [
        case(torch.arange(lk), torch.arange(lk)),
        case(torch.arange(start + extra, start + lk), torch.arange(start, start + lk)),
        case(*spread_positions(draw, lq, lk)),
        # past any window, the numbers of 16 bits, and those that half precision tells apart
        case(*spread_positions(draw, lq, lk, 19_000, 38_000)),
        case(*spread_positions(draw, lk, lk)),  # who counts where there are as many is off
        low_logits(draw, b, h, lq, lk),
        case(torch.tensor([start]), torch.arange(start - 300, start + 1), 1, 1, 16),
        case(*spread_positions(draw, 16, 16), 1, 12, 64),
    ]


def low_logits(draw: Draw, b: int, h: int, lq: int, lk: int) -> Case:
    """Return a call where a hidden logit of -100 is not low enough.

    All logits are near -80, which the exponential of float32 still holds; the values of keys that
    no query may see are so large that a weight of exp(-20) shows.
    """
    d = 16
    q, k = draw.normal(b, h, lq, d) / 4, draw.normal(b, h, lk, d) / 4
    q[..., 0], k[..., 0] = 16.0, -20.0
    v = draw.normal(b, h, lk, d)
    v[:, :, lq:] += 1e7
    shapes = f"q {(b, h, lq, d)}, k and v {(b, h, lk, d)}"
    words = "logits near -80, large values at hidden keys, positions from 0"
    return Case(f"{shapes}, {words}", (q, k, v, torch.arange(lq), torch.arange(lk)))


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
                "there is a causal mask; here every query sees every key",
                causal_by_place,
            ),
            Mistake(
                "there is a causal mask where there are as many queries as keys; here every query "
                "sees every key",
                lambda q, k, v: (causal_by_place if q.shape[2] == k.shape[2] else plain)(q, k, v),
            ),
            Mistake(
                "the softmax runs over the heads; the weights of each query must sum to one",
                lambda q, k, v: weighted(q, k, v, q.shape[-1] ** -0.5, 1),
            ),
        ),
    ),
    Exercise(
        name="gaps",
        parts=(0, 1),
        rests_on=("attention",),
        cases=gap_cases,
        reference=gaps,
        mistakes=(
            Mistake(
                "the first gap compares with the output in its old order: that is invariance. "
                "Equivariance says that the outputs move as the tokens did",
                lambda x, order, table: (gaps(x, order, table)[1],) * 2,
            ),
            Mistake(
                "both numbers are the first one. The second gap compares with the output in its "
                "old order: subtract entry by entry, and take the largest of the differences",
                lambda x, order, table: (gaps(x, order, table)[0],) * 2,
            ),
            Mistake(
                "the tokens are never moved, so the second number is zero",
                lambda x, order, table: gaps_with(x, order, table, moved=x + table),
            ),
            Mistake(
                "the two gaps are swapped: equivariance comes first",
                lambda x, order, table: gaps(x, order, table)[::-1],
            ),
            Mistake(
                "the first gap is zero whatever the table is; with a table it is not: measure it",
                lambda x, order, table: (torch.tensor(0.0), gaps(x, order, table)[1]),
            ),
            Mistake(
                "the table is not used: each token gets the vector of the place where it stands",
                lambda x, order, table: gaps(x, order, 0 * table),
            ),
            Mistake(
                "the table moves with the tokens; it belongs to the places, and they stay",
                lambda x, order, table: gaps(x + table, order, 0 * table),
            ),
            Mistake(
                "the table is added to the moved tokens alone; it belongs to both inputs",
                lambda x, order, table: gaps_with(x, order, 0 * table, moved=x[order] + table),
            ),
            Mistake(
                "only the queries are moved; keys and values are the moved tokens, too",
                queries_moved,
            ),
            Mistake(
                "the outputs are moved by the inverse permutation",
                lambda x, order, table: gaps_with(x, order, table, back=order.argsort()),
            ),
            Mistake(
                "the tokens themselves are compared; their outputs are wanted",
                lambda x, order, table: (
                    (x[order] + table - (x + table)[order]).abs().max(), (x[order] - x).abs().max()
                ),
            ),
            Mistake("the factor 1/sqrt(d) is missing in the attention",
                    lambda x, order, table: gaps_with(x, order, table, factor=1.0)),
            Mistake("wanted is the largest difference, not the sum",
                    lambda x, order, table: gaps_with(x, order, table, reduce="sum")),
            Mistake("wanted is the largest difference, not the mean",
                    lambda x, order, table: gaps_with(x, order, table, reduce="mean")),
            Mistake("take the absolute difference before the maximum",
                    lambda x, order, table: gaps_with(x, order, table, reduce="signed")),
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
            *(
                Mistake(
                    "a hidden logit is not low enough: those of the keys that may be seen can be "
                    "as low. Use minus infinity, or -1e9",
                    lambda q, k, v, q_pos, k_pos, fill=fill: masked(
                        q, k, v, k_pos <= q_pos[:, None], fill
                    ),
                )
                for fill in (-1.0, -5.0, -10.0, -15.0, -20.0, -50.0, -99.0, -100.0)
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
