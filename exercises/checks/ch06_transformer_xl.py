"""Checks of exercise set 6: Transformer-XL."""

from __future__ import annotations

import torch
from torch import Tensor

from exercises.checks.spec import Case, Draw, Exercise, Mistake

Pair = tuple[Tensor, Tensor]


def xl_logits(q: Tensor, k: Tensor, u: Tensor, v: Tensor, r: Tensor) -> Tensor:
    """Return ((q + u) . k + (q + v) . r) / sqrt(d)."""
    return four(q, k, u, v, r, 1, 1, 1, 1)


def four(q: Tensor, k: Tensor, u: Tensor, v: Tensor, r: Tensor, *weights: float) -> Tensor:
    """Return the four terms, each times a weight, over sqrt(d)."""
    a = q @ k.mT
    b = torch.einsum("bhid,hijd->bhij", q, r)
    c = torch.einsum("hd,bhjd->bhj", u, k)[:, :, None]
    d = torch.einsum("hd,hijd->hij", v, r)
    terms = zip(weights, (a, b, c, d), strict=True)
    result: Tensor = sum((w * term for w, term in terms), torch.zeros(())) * q.shape[-1] ** -0.5
    return result


def logits_cases(draw: Draw) -> list[Case]:
    """All sizes different, also between the cases; equal lengths; one head and one query."""
    sizes = draw.sizes(6, 3, 9)

    def case(b: int, h: int, lq: int, lk: int, d: int) -> Case:
        return Case(f"B, H, Lq, Lk, d = {(b, h, lq, lk, d)}",
                    (draw.normal(b, h, lq, d), draw.normal(b, h, lk, d), draw.normal(h, d),
                     draw.normal(h, d), draw.normal(h, lq, lk, d)))  # fmt: skip

    n = draw.integer(4, 8)
    return [case(*sizes[:5]), case(*sizes[:0:-1]), case(2, 3, n, n, n + 1), case(1, 1, 1, n, 16)]


def rel_shift(scores: Tensor) -> Tensor:
    """Return entry (i, j) from column j + Lq - 1 - i, and 0 where there is none."""
    return shifted(scores, len(scores) - 1, 1)


def shifted(scores: Tensor, start: int, step: int, beyond: str = "zero") -> Tensor:
    """Return entry (i, j) from column j + start - step * i."""
    lq, lk = scores.shape
    column = torch.arange(lk) + start - step * torch.arange(lq)[:, None]
    inside = (column >= 0) & (column < lk)
    picked = scores.gather(1, column.clamp(0, lk - 1) if beyond != "wrap" else column % lk)
    return picked if beyond != "zero" else picked * inside


def published_shift(scores: Tensor) -> Tensor:
    """The trick with one column of zeros, the next row's scores included."""
    lq, lk = scores.shape
    return torch.cat([torch.zeros(lq, 1), scores], 1).view(lk + 1, lq)[1:].view(lq, lk)


def short_by_one(scores: Tensor) -> Tensor:
    """Shift each row by one step less, and the last by none."""
    lq, lk = scores.shape
    steps = (lq - 2 - torch.arange(lq)[:, None]).clamp(min=0)
    column = torch.arange(lk) + steps
    return scores.gather(1, column.clamp(max=lk - 1)) * (column < lk)


def masked(scores: Tensor, value: float) -> Tensor:
    """Shift, with another value where there is no score."""
    lq, lk = scores.shape
    return rel_shift(scores).masked_fill(torch.ones(lq, lk).triu(lk - lq + 1) > 0, value)


def shift_cases(draw: Draw) -> list[Case]:
    """With memory, without, a single query; even and odd numbers, small and large ones."""
    lq, more = draw.sizes(2, 4, 9)
    return [
        Case(f"{lq} queries and {lq + more} keys", (draw.normal(lq, lq + more),)),
        Case(f"{more} queries and {more} keys", (draw.normal(more, more),)),
        Case(f"1 query and {lq} keys", (draw.normal(1, lq),)),
        *(Case(f"{few} queries and {many} keys", (draw.normal(few, many),))
          for few, many in ((4, 7), (5, 7), (6, 6), (7, 7), (2, 2), (1, 1), (32, 96))),
    ]  # fmt: skip


def extend_memory(memory: Tensor, x: Tensor, length: int) -> Pair:
    """Return the context, and the last `length` states of it."""
    context = torch.cat([memory, x], 1)
    return context, context[:, max(0, context.shape[1] - length) :]


def joined(memory: Tensor, x: Tensor) -> Tensor:
    """Return the context."""
    return torch.cat([memory, x], 1)


def kept_from(memory: Tensor, x: Tensor, start: int) -> Pair:
    """Return the context and what stands in it from `start` on, which may be negative."""
    return joined(memory, x), joined(memory, x)[:, start:]


def cut_before(memory: Tensor, x: Tensor, length: int) -> Pair:
    """Shorten the old memory first, and build the context from that."""
    return extend_memory(memory[:, max(0, memory.shape[1] - length) :], x, length)


def memory_cases(draw: Draw) -> list[Case]:
    """Lengths below, at and above what there is; an empty memory; a length of 0."""
    b, kept, segment, d = draw.sizes(4, 3, 8)

    def case(size: int, length: int) -> Case:
        kind = "no memory yet" if size == 0 else "a memory"
        keep = ("nothing to keep" if length == 0 else "all to keep" if length >= size + segment
                else "a part to keep")  # fmt: skip
        return Case(f"{kind} and {keep}: {size} states, a segment of {segment}, length {length}",
                    (draw.normal(b, size, d), draw.normal(b, segment, d), length))  # fmt: skip

    return [
        case(kept + 6, 2),  # a length below B: who cuts the batch gets another shape
        case(kept, kept),
        case(segment + 6, segment + 6),
        case(0, segment + 2),
        case(2, segment + 9),
        case(300, 257),
        case(kept, 0),
        case(0, 0),
    ]


EXERCISES = (
    Exercise(
        name="xl_logits",
        cases=logits_cases,
        reference=xl_logits,
        axes=("batch", "head", "query", "key"),
        mistakes=(
            Mistake("you divide by d, not by its square root",
                    lambda *a: xl_logits(*a) * a[0].shape[-1] ** -0.5),
            Mistake("u and v are exchanged: u must meet the keys, v the positions",
                    lambda q, k, u, v, r: xl_logits(q, k, v, u, r)),
            Mistake("u is used for the positions too; they have v",
                    lambda q, k, u, v, r: xl_logits(q, k, u, u, r)),
            Mistake("v is used for the keys too; they have u",
                    lambda q, k, u, v, r: xl_logits(q, k, v, v, r)),
            Mistake("the factor 1/sqrt(d) is missing",
                    lambda *a: xl_logits(*a) * a[0].shape[-1] ** 0.5),
            Mistake("only the content is scaled: 1/sqrt(d) is on the sum of all four terms",
                    lambda q, k, u, v, r: four(q, k, u, v, r, 1, s := q.shape[-1] ** 0.5, 1, s)),
            Mistake("only the position terms are scaled: 1/sqrt(d) is on the sum of all four terms",
                    lambda q, k, u, v, r: four(q, k, u, v, r, s := q.shape[-1] ** 0.5, 1, s, 1)),
            Mistake("the position terms, those with r, are missing",
                    lambda *a: four(*a, 1, 0, 1, 0)),
            Mistake("the content terms, those with k, are missing",
                    lambda *a: four(*a, 0, 1, 0, 1)),
            Mistake("term (b) is missing: the query's content asks for the distance",
                    lambda *a: four(*a, 1, 0, 1, 1)),
            Mistake("term (c) is missing: u asks for the key's content",
                    lambda *a: four(*a, 1, 1, 0, 1)),
            Mistake("term (d) is missing: v asks for the distance",
                    lambda *a: four(*a, 1, 1, 1, 0)),
            Mistake("u and v are missing", lambda *a: four(*a, 1, 1, 0, 0)),
            Mistake("q . k is counted twice", lambda *a: four(*a, 2, 1, 1, 1)),
            Mistake("the position terms are subtracted", lambda *a: four(*a, 1, -1, 1, -1)),
            Mistake("u and v are scaled once more", lambda q, k, u, v, r: xl_logits(
                q, k, u * q.shape[-1] ** -0.5, v * q.shape[-1] ** -0.5, r)),
            Mistake("the factor is 1/sqrt(4 d); Transformer-XL's is 1/sqrt(d)",
                    lambda *a: xl_logits(*a) / 2),
        ),
    ),
    Exercise(
        name="rel_shift",
        cases=shift_cases,
        reference=rel_shift,
        axes=("query", "key"),
        mistakes=(
            Mistake("the triangle at the upper right holds numbers of the next row; there is no "
                    "score there", published_shift),
            Mistake("the triangle at the upper right holds the last score of the row; it must be "
                    "zero", lambda s: shifted(s, len(s) - 1, 1, "last")),
            Mistake("the rows wrap around: the triangle at the upper right must be zero",
                    lambda s: shifted(s, len(s) - 1, 1, "wrap")),
            Mistake("it shifts the other way: the last row must stay where it is",
                    lambda s: shifted(s, 0, -1)),
            Mistake("it shifts the other way: the last row must stay where it is",
                    lambda s: shifted(s, 0, 1)),
            Mistake("it shifts the other way: rows must move to the left",
                    lambda s: shifted(s, 1 - len(s), -1)),
            Mistake("it is one step too far to the left", lambda s: shifted(s, len(s), 1)),
            Mistake("it is one step too short", lambda s: shifted(s, len(s) - 2, 1)),
            Mistake("it is one step too short", short_by_one),
            Mistake("where there is no score you return minus infinity; here it must be zero, a "
                    "mask comes later", lambda s: masked(s, -torch.inf)),
            Mistake("where there is no score you return NaN; it must be zero",
                    lambda s: masked(s, torch.nan)),
            Mistake("nothing is shifted", lambda s: s),
            Mistake("the shift counts from the number of keys; it must count from that of the "
                    "queries", lambda s: shifted(s, s.shape[1] - 1, 1)),
            Mistake("the future is cut off at the main diagonal: the memory's columns are lost",
                    lambda s: rel_shift(s).tril()),
            Mistake("it is cut off one column too early",
                    lambda s: rel_shift(s).tril(s.shape[1] - len(s) - 1)),
            Mistake("the scores are cut off before they are shifted",
                    lambda s: rel_shift(s.tril(s.shape[1] - len(s)))),
        ),
    ),
    Exercise(
        name="extend_memory",
        cases=memory_cases,
        reference=extend_memory,
        mistakes=(
            Mistake("you cut the batch: states stand along the second axis",
                    lambda m, x, n: (joined(m, x), joined(m, x)[-n:])),
            Mistake("you cut the batch: states stand along the second axis", lambda m, x, n: (
                joined(m, x), joined(m, x)[max(0, m.shape[1] + x.shape[1] - n) :])),
            Mistake("with length 0 everything is kept: a slice from -0 is one from 0",
                    lambda m, x, n: kept_from(m, x, -n)),
            Mistake("when there are fewer states than `length`, all must stay; your start is "
                    "negative then, and counts from the end",
                    lambda m, x, n: kept_from(m, x, m.shape[1] + x.shape[1] - n)),
            Mistake("with length 0 the memory is missing in the context; only the new memory is "
                    "empty", lambda m, x, n: extend_memory(m if n else m[:, :0], x, n)),
            Mistake("the old memory is cut before the context is built: this segment still sees "
                    "all of it", cut_before),
            Mistake("the memory keeps as many states as it had; it must keep `length`",
                    lambda m, x, n: extend_memory(m, x, m.shape[1])),
            Mistake("the memory keeps states of the segment alone: when it is longer than the "
                    "segment, older ones must stay",
                    lambda m, x, n: (joined(m, x), x[:, max(0, x.shape[1] - n) :])),
            Mistake("the memory keeps the oldest states; it must keep the newest",
                    lambda m, x, n: (joined(m, x), joined(m, x)[:, :n])),
            Mistake("the segment stands before the memory; the memory is older",
                    lambda m, x, n: extend_memory(x, m, n)),
            Mistake("the memory is one state too long",
                    lambda m, x, n: extend_memory(m, x, n + 1)),
            Mistake("the memory is one state too short",
                    lambda m, x, n: extend_memory(m, x, max(0, n - 1))),
            Mistake("the memory is never cut", lambda m, x, n: (joined(m, x),) * 2),
            Mistake("the memory is not renewed", lambda m, x, n: (joined(m, x), m)),
            Mistake("the context is the segment alone: the memory belongs before it",
                    lambda m, x, n: (x, extend_memory(m, x, n)[1])),
            Mistake("the context and the memory are exchanged",
                    lambda m, x, n: extend_memory(m, x, n)[::-1]),
        ),
    ),
)  # fmt: skip
