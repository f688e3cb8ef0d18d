"""Checks of exercise set 6: Transformer-XL."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor

from exercises.checks.spec import Case, Draw, Exercise, Mistake

Pair = tuple[Tensor, Tensor]
Four = tuple[Tensor, Tensor, Tensor, Tensor]


def least_memory(layers: int, segment: int, wanted: int) -> Tensor:
    """Return the smallest memory with which each token is reached from `wanted` tokens away."""
    return least_by(lambda memory: reach(layers, segment, memory) >= wanted)


def least_by(enough: Callable[[int], bool]) -> Tensor:
    """Return the smallest memory that is enough."""
    memory = 0
    while not enough(memory):
        memory += 1
    return torch.tensor(memory)


def reach(layers: int, segment: int, memory: int, token: int = 0) -> int:
    """Return how far back a token sees; token 0 is the first of its segment."""
    oldest = token
    for _ in range(layers):
        oldest = oldest // segment * segment - memory
    return token - oldest


def memory_cases(draw: Draw) -> list[Case]:
    """One layer and many, segments of one token, far shorter than the memory, and far longer."""
    n, s, more = draw.sizes(3, 3, 9)
    calls = (
        ("a whole reach", 2, 4, 16), ("one layer", 1, s, 31), ("segments of one token", n, 1, 40),
        ("nothing wanted", n, s, 0), ("short segments", n, 4, draw.integer(90, 120)),
        ("long segments", n, 128, draw.integer(300, 900)), ("one token wanted", 3, 8, 1),
        ("a published size", 16, 128, 2300), ("drawn numbers", more, s, draw.integer(50, 200)),
        ("drawn numbers", 2, 16, draw.integer(3, 15)), ("two layers", 2, 10, 3 * more),
        ("a long text", 12, 64, draw.integer(5000, 6000)),
    )  # fmt: skip
    return [Case(f"{words}: {a} layers, segments of {b}, {c} wanted", (a, b, c))
            for words, a, b, c in calls]  # fmt: skip


def extend_memory(memory: Tensor, valid: Tensor, x: Tensor, fresh: Tensor, length: int) -> Four:
    """Return context, what of it counts, the newest states of it, and what of them counts."""
    context = torch.cat([memory, x], dim=1)
    seen = torch.cat([valid & ~fresh[:, None], x[..., 0] == x[..., 0]], dim=1)
    return context, seen, newest(context, length), newest(seen, length)


def newest(context: Tensor, length: int) -> Tensor:
    """Return the last states of a context."""
    return context[:, max(0, context.shape[1] - length) :]


def memory_streams(draw: Draw) -> list[Case]:
    """Memories shorter and longer than the segment, none yet, none kept; some rows fresh."""
    b, m, length, dim, more = draw.sizes(5, 3, 8)
    short, long = min(m, length), max(m, length)
    calls = (
        ("memory and a longer segment", b, short, long, short + 1, 0.5),
        ("a long memory", b, 3 * long, short, 2 * long, 0.5),
        ("no memory yet", b, 0, length, m, 0.5), ("nothing to keep", b, m, length, 0, 0.5),
        ("room for more than there is", b, m, length, 9 * long, 0.5),
        ("no fresh row", b, m, length, m + more, 0.0), ("all rows fresh", m, b, b, b + 1, 1.0),
        ("one row", 1, m, 1, m, 0.0),
    )  # fmt: skip

    def flags(*shape: int, share: float) -> Tensor:
        found = torch.rand(shape, generator=draw.generator) < share
        if found.numel() > 1 and 0 < share < 1:
            found.view(-1)[:2] = torch.tensor([True, False])
        return found

    return [
        Case(f"{words}: B, M, L, length = {(rows, kept, new, keep)}", (
            draw.normal(rows, kept, dim), flags(rows, kept, share=0.7), draw.normal(rows, new, dim),
            flags(rows, share=share), keep))
        for words, rows, kept, new, keep, share in calls
    ]  # fmt: skip


def u_and_v(q: Tensor, k: Tensor, r: Tensor, weights: Tensor) -> Pair:
    """Return the two vectors of each head."""
    return solved(k, r, left_of(q, k, r, weights))


def solved(k: Tensor, r: Tensor, left: Tensor, columns: bool = True, rows: bool = True) -> Pair:
    """Fit what is left by k . u + r . v and, where the means are taken out, a constant a row."""
    d = k.shape[-1]
    system = torch.cat([k[:, :, None].expand(*left.shape, d), r.expand(*left.shape, d)], dim=-1)
    system = system - system.mean(-2, keepdim=True) * columns
    left = left - left.mean(-1, keepdim=True) * rows
    system, goal = (each.transpose(0, 1).flatten(1, 3) for each in (system, left[..., None]))
    found = torch.linalg.solve(system.mT @ system, system.mT @ goal)[..., 0]
    return found[:, :d], found[:, d:]


def weight_cases(draw: Draw) -> list[Case]:
    """More keys than queries, as many, one head, one text; vectors of any size."""
    b, h, lq, more, d = draw.sizes(5, 3, 7)

    def case(
        words: str, batch: int, heads: int, queries: int, keys: int, width: int, size: float
    ) -> Case:
        q, k = (draw.normal(batch, heads, n, width).double() for n in (queries, keys))
        r = 0.4 + draw.normal(heads, queries, keys, width).double()
        u, v = (size * draw.normal(heads, width).double() for _ in range(2))
        logits = (q + u[:, None]) @ (k + 0.5).mT
        logits = logits + torch.einsum("bhid,hijd->bhij", q + v[:, None], r)
        weights = (logits * width**-0.5).softmax(-1)
        label = f"{words}, B, H, Lq, Lk, d = {(batch, heads, queries, keys, width)}"
        return Case(label, (q, k + 0.5, r, weights))

    return [
        case("more keys than queries", b, h, lq, lq + more, d, 1.0),
        case("as many keys as queries", h, b, more + 4, more + 4, lq, 0.3),
        case("one text", 1, 2, 9, 12, 4, 2.0),
        case("one head", 3, 1, 5, 20, 16, 1.0),
    ]  # fmt: skip


def forgets(memory: Tensor, valid: Tensor, x: Tensor, fresh: Tensor, length: int) -> Four:
    """Keep no account of what counts."""
    context, seen, kept, counts = extend_memory(memory, valid, x, fresh, length)
    return context, seen, kept, torch.ones_like(counts)


def exchanged(memory: Tensor, valid: Tensor, x: Tensor, fresh: Tensor, length: int) -> Four:
    """Put the segment before the memory."""
    context, seen = (each.roll(x.shape[1], 1)
                     for each in extend_memory(memory, valid, x, fresh, 0)[:2])  # fmt: skip
    return context, seen, newest(context, length), newest(seen, length)


def left_of(q: Tensor, k: Tensor, r: Tensor, weights: Tensor, power: float = 0.5) -> Tensor:
    """Return the logarithms of the weights, less what is known."""
    known = q @ k.mT + torch.einsum("bhid,hijd->bhij", q, r)
    result: Tensor = weights.log() * q.shape[-1] ** power - known
    return result


def apart(k: Tensor, r: Tensor, left: Tensor) -> Pair:
    """Fit each vector as though the other were zero."""
    d = k.shape[-1]
    found = []
    for system in (k[:, :, None].expand(*left.shape, d), r.expand(*left.shape, d)):
        system = (system - system.mean(-2, keepdim=True)).transpose(0, 1).flatten(1, 3)
        goal = (left - left.mean(-1, keepdim=True)).transpose(0, 1).flatten(1)[..., None]
        found.append(torch.linalg.solve(system.mT @ system, system.mT @ goal)[..., 0])
    return found[0], found[1]


EXERCISES = (
    Exercise(
        name="least_memory",
        cases=memory_cases,
        reference=least_memory,
        integers=True,
        mistakes=(
            Mistake("a memory of M reaches n M only if every segment is one token; a state sees "
                    "back from the *beginning* of its segment",
                    lambda n, s, w: torch.tensor(-(-w // n))),
            Mistake("the first token of a segment is worst off; you look at the last one",
                    lambda n, s, w: least_by(lambda m: reach(n, s, m, s - 1) >= w)),
            Mistake("one layer is counted; each layer below reaches farther back",
                    lambda n, s, w: torch.tensor(w)),
            Mistake("a layer is counted twice",
                    lambda n, s, w: least_memory(n + 1, s, w)),
            Mistake("the lowest layer is not counted; it has a memory, too",
                    lambda n, s, w: least_by(
                        lambda m: (n > 1 and reach(n - 1, s, m) >= w) or m > w)),
            Mistake("that is one token too far: `wanted` positions before is enough",
                    lambda n, s, w: least_memory(n, s, w + 1)),
            Mistake("that is one token too short",
                    lambda n, s, w: least_memory(n, s, max(0, w - 1))),
            Mistake("a memory need not be a multiple of the segment",
                    lambda n, s, w: -(-least_memory(n, s, w) // s) * s),
            Mistake("this is how far it reaches; the memory is asked for",
                    lambda n, s, w: reach(n, s, int(least_memory(n, s, w)))),
        ),
    ),
    Exercise(
        name="extend_memory",
        cases=memory_streams,
        reference=extend_memory,
        axes=("batch", "position", "channel"),
        mistakes=(
            Mistake("a fresh row may not look at what it remembers",
                    lambda m, o, x, f, n: extend_memory(m, o, x, f & False, n)),
            Mistake("what was invalid before stays invalid",
                    lambda m, o, x, f, n: extend_memory(m, o | True, x, f, n)),
            Mistake("all of the memory counts for you: what was invalid stays so, and a fresh row "
                    "may not look at what it remembers",
                    lambda m, o, x, f, n: extend_memory(m, o | True, x, f & False, n)),
            Mistake("`fresh` is the wrong way round: its rows begin another document",
                    lambda m, o, x, f, n: extend_memory(m, o, x, ~f, n)),
            Mistake("the new memory is kept as though all of it counted", forgets),
            Mistake("the oldest states are kept; the newest must be",
                    lambda m, o, x, f, n: (*extend_memory(m, o, x, f, n)[:2], *(
                        each[:, :n] for each in extend_memory(m, o, x, f, n)[:2]))),
            Mistake("the new memory is cut from the segment alone; what is older may still be kept",
                    lambda m, o, x, f, n: (*extend_memory(m, o, x, f, n)[:2], *(
                        newest(each, min(n, x.shape[1]))
                        for each in extend_memory(m, o, x, f, n)[:2]))),
            Mistake("the new memory is as long as the old one, whatever `length` says",
                    lambda m, o, x, f, n: extend_memory(m, o, x, f, m.shape[1])),
            Mistake("with a length of 0 nothing is kept; x[:, -0:] is all of x",
                    lambda m, o, x, f, n: extend_memory(m, o, x, f, n or 10**6)),
            Mistake("memory and segment are exchanged: what is older comes first",
                    lambda m, o, x, f, n: exchanged(m, o, x, f, n)),
            Mistake("one state too many is kept",
                    lambda m, o, x, f, n: extend_memory(m, o, x, f, n + 1)),
        ),
    ),
    Exercise(
        name="u_and_v",
        parts=(0, 1),
        cases=weight_cases,
        reference=u_and_v,
        tolerance=1e-6,
        axes=("head", "component"),
        mistakes=(
            Mistake("u and v are exchanged: u meets the keys, v the relative positions",
                    lambda *a: u_and_v(*a)[::-1]),
            Mistake("the softmax takes a number of its own from each row; it is still in what you "
                    "solve for", lambda q, k, r, w: solved(
                        k, r, left_of(q, k, r, w), columns=False, rows=False)),
            Mistake("the means of the rows are taken out of the logarithms, and not out of the "
                    "system", lambda q, k, r, w: solved(
                        k, r, left_of(q, k, r, w), columns=False)),
            Mistake("the logits were divided by sqrt(d); undo it first",
                    lambda q, k, r, w: solved(k, r, left_of(q, k, r, w, power=0.0))),
            Mistake("the query's product with r is known, too: subtract it",
                    lambda q, k, r, w: solved(k, r, left_of(q, k, 0 * r, w))),
            Mistake("the query's product with the key is known: subtract it",
                    lambda q, k, r, w: solved(k, r, left_of(q, 0 * k, r, w))),
            Mistake("the two known products are added; they must be subtracted",
                    lambda q, k, r, w: solved(k, r, left_of(-q, k, r, w))),
            Mistake("u is fitted as though v were zero, and v as though u were",
                    lambda q, k, r, w: apart(k, r, left_of(q, k, r, w))),
            Mistake("all heads get the mean of their vectors; each has its own", lambda *a: tuple(
                each.mean(0).expand_as(each) for each in u_and_v(*a))),
            Mistake("the signs are flipped: both vectors are added to the query",
                    lambda *a: tuple(-each for each in u_and_v(*a))),
            Mistake("the weights are used as they are; it is their logarithms that are sums",
                    lambda q, k, r, w: solved(k, r, left_of(q, k, r, w.exp()))),
        ),
    ),
)  # fmt: skip
