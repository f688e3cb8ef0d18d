"""Checks of exercise set 6: Transformer-XL."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor

from exercises.checks.spec import Case, Draw, Exercise, Mistake

Pair = tuple[Tensor, Tensor]


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


def extend_memory(valid: Tensor, begins: Tensor, keep: Tensor) -> Pair:
    """Return what each token of a segment may look at, and what counts in the next memory."""
    return by(valid, begins.long().cumsum(1), keep)


def together(valid: Tensor, number: Tensor) -> Tensor:
    """Return which tokens have the same document, numbered in each segment, (B, L, M + L)."""
    old = valid[:, None] & (number == 0)[:, :, None]
    return torch.cat([old, number[:, :, None] == number[:, None]], dim=2)


def ages(seen: Tensor) -> Tensor:
    """Return how many states of a context are newer than each."""
    return torch.arange(seen.shape[2] - 1, -1, -1)


def by(valid: Tensor, number: Tensor, keep: Tensor) -> Pair:
    """Answer with documents that are numbered in some way."""
    seen = together(valid, number)
    return seen, seen[:, -1] & (ages(seen) < keep[:, None])


def with_memory(old: Tensor, valid: Tensor, begins: Tensor, keep: Tensor) -> Pair:
    """Answer with what the segment may see of the memory; the rest is right."""
    seen, counts = extend_memory(valid, begins, keep)
    return torch.cat([old, seen[:, :, old.shape[2] :]], dim=2), counts


def causal(seen: Tensor) -> Tensor:
    """Hide what is later than each token."""
    return seen & (ages(seen) >= torch.arange(seen.shape[1] - 1, -1, -1)[:, None])


def memory_streams(draw: Draw) -> list[Case]:
    """Memories shorter and longer than the segment, none yet, none kept; no, one, many ends."""
    b, m, length, more = draw.sizes(4, 3, 8)
    short, long = min(m, length), max(m, length)
    calls = (
        ("memory and a longer segment", b, short, long, 0.3, long),
        ("a long memory", b, 3 * long, short, 0.3, 2 * long),
        ("no memory yet", b, 0, length, 0.3, m),
        ("nothing to keep", b, m, length, 0.3, 0), ("short documents", b, m, length + more, 0.7, m),
        ("no document ends", b, m, length, 0.0, m + more), ("one token", b, m, 1, 0.5, m),
        ("one row", 1, m, length, 0.5, 9 * m),
    )  # fmt: skip

    def flags(*shape: int, share: float) -> Tensor:
        found = torch.rand(shape, generator=draw.generator) < share
        if found.numel() > 1 and 0 < share < 1:
            found.view(-1)[:2] = torch.tensor([True, False])
        return found

    return [
        Case(f"{words}: B, M, L = {(rows, kept, new)}", (
            flags(rows, kept, share=0.7), flags(rows, new, share=share),
            torch.randint(most // 2, most + 1, (rows,), generator=draw.generator)))
        for words, rows, kept, new, share, most in calls
    ]  # fmt: skip


def u_and_v(q: Tensor, k: Tensor, codes: Tensor, weights: Tensor) -> Pair:
    """Return the two vectors of each head."""
    return solved(q, k, codes, left_of(q, k, weights))


def solved(
    q: Tensor, k: Tensor, codes: Tensor, left: Tensor, columns: bool = True, rows: bool = True,
    undone: bool = True,
) -> Pair:  # fmt: skip
    """Fit what is left by k . u + c . w + q . W c, less a constant of each row; v from w = W' v."""
    d, width = q.shape[-1], codes.shape[-1]
    pairs = torch.einsum("bhid,ijw->bhijdw", q, codes).flatten(-2)
    keys = k[:, :, None].expand(*left.shape, d)
    system = torch.cat([keys, codes.expand(*left.shape, width), pairs], dim=-1)
    u, w, matrix = fitted(system, left, columns, rows).split([d, width, d * width], dim=1)
    matrix = matrix.unflatten(1, (d, width))
    product = (matrix @ w[..., None])[..., 0]
    return u, torch.linalg.solve(matrix @ matrix.mT, product) if undone else product


def fitted(system: Tensor, left: Tensor, columns: bool = True, rows: bool = True) -> Tensor:
    """Solve for what each head multiplies the columns with, (H, columns)."""
    system = system - system.mean(-2, keepdim=True) * columns
    left = left - left.mean(-1, keepdim=True) * rows
    system, goal = (each.transpose(0, 1).flatten(1, 3) for each in (system, left[..., None]))
    found: Tensor = torch.linalg.lstsq(system, goal).solution[..., 0]
    return found


def weight_cases(draw: Draw) -> list[Case]:
    """More keys than queries, as many, one head, one text; codes as wide as a head, and wider."""
    b, h, lq, more, d = draw.sizes(5, 3, 7)

    def case(
        words: str, batch: int, heads: int, queries: int, keys: int, d: int, width: int, size: float
    ) -> Case:
        q, k = (draw.normal(batch, heads, n, d).double() for n in (queries, keys))
        codes = 0.4 + draw.normal(queries, keys, width).double()
        matrix = draw.normal(heads, d, width).double() / width**0.5
        u, v = (size * draw.normal(heads, d).double() for _ in range(2))
        r = torch.einsum("hdw,ijw->hijd", matrix, codes)
        logits = (q + u[:, None]) @ (k + 0.5).mT
        logits = logits + torch.einsum("bhid,hijd->bhij", q + v[:, None], r)
        weights = (logits * d**-0.5).softmax(-1)
        label = f"{words}, B, H, Lq, Lk, d, D = {(batch, heads, queries, keys, d, width)}"
        return Case(label, (q, k + 0.5, codes, weights))

    return [
        case("more keys than queries", b + 4, h, lq, lq + more, d, d + 1, 1.0),
        case("as many keys as queries", h, b, more + 5, more + 5, 4, 4, 0.3),
        case("one text", 1, 2, 11, 12, 3, 5, 2.0),
        case("one head", 4, 1, 7, 20, 8, 12, 1.0),
    ]  # fmt: skip


def left_of(q: Tensor, k: Tensor, weights: Tensor, power: float = 0.5) -> Tensor:
    """Return the logarithms of the weights, less what is known."""
    result: Tensor = weights.log() * q.shape[-1] ** power - q @ k.mT
    return result


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
        axes=("batch", "token", "state"),
        mistakes=(
            Mistake("a token of another document may not look at the memory",
                    lambda o, g, n: with_memory(o[:, None].expand(*g.shape, -1), o, g, n)),
            Mistake("tokens before the first beginning still belong to the document of the memory",
                    lambda o, g, n: with_memory(
                        (o & ~g.any(1, keepdim=True))[:, None].expand(*g.shape, -1), o, g, n)),
            Mistake("a token that begins a document belongs to the new one", lambda o, g, n: by(
                o, g.long().cumsum(1) - g.long(), n)),
            Mistake("what was invalid before stays invalid",
                    lambda o, g, n: extend_memory(o | True, g, n)),
            Mistake("documents within the segment are not told apart",
                    lambda o, g, n: by(o, g.long().cummax(1).values, n)),
            Mistake("a causal mask is not asked for: a token may look at later ones of its "
                    "document", lambda o, g, n: (
                        causal(extend_memory(o, g, n)[0]), extend_memory(o, g, n)[1])),
            Mistake("the limit of each row is ignored", lambda o, g, n: extend_memory(
                o, g, n * 0 + 10**6)),
            Mistake("the oldest states are kept; the newest must be", lambda o, g, n: (
                extend_memory(o, g, n)[0], extend_memory(o, g, n + 10**6)[1] & (
                    ages(extend_memory(o, g, n)[0]).flip(0) < n[:, None]))),
            Mistake("what counts in the next memory belongs to the document of the last token",
                    lambda o, g, n: (extend_memory(o, g, n)[0], ages(
                        extend_memory(o, g, n)[0]) < n[:, None])),
            Mistake("the next memory is the document of the segment's first token; that of its "
                    "last one goes on", lambda o, g, n: (
                        extend_memory(o, g, n)[0], extend_memory(o, g, n)[0][:, 0] & (
                            ages(extend_memory(o, g, n)[0]) < n[:, None]))),
            Mistake("one state too many is kept", lambda o, g, n: extend_memory(o, g, n + 1)),
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
            Mistake("u and v are exchanged: u meets the keys, v the codes",
                    lambda *a: u_and_v(*a)[::-1]),
            Mistake("the softmax takes a number of its own from each row; it is still in what you "
                    "solve for", lambda q, k, c, w: solved(
                        q, k, c, left_of(q, k, w), columns=False, rows=False)),
            Mistake("the means of the rows are taken out of the logarithms, and not out of the "
                    "system", lambda q, k, c, w: solved(
                        q, k, c, left_of(q, k, w), columns=False)),
            Mistake("the logits were divided by sqrt(d); undo it first",
                    lambda q, k, c, w: solved(q, k, c, left_of(q, k, w, power=0.0))),
            Mistake("the query's product with the key is known: subtract it",
                    lambda q, k, c, w: solved(q, k, c, left_of(q, 0 * k, w))),
            Mistake("the product of query and key is added; it must be subtracted",
                    lambda q, k, c, w: solved(q, k, c, left_of(-q, k, w))),
            Mistake("a product with W is no solution: which v does the transposed W turn into w?",
                    lambda q, k, c, w: solved(q, k, c, left_of(q, k, w), undone=False)),
            Mistake("all heads get the mean of their vectors; each has its own", lambda *a: tuple(
                each.mean(0).expand_as(each) for each in u_and_v(*a))),
            Mistake("the signs are flipped: both vectors are added to the query",
                    lambda *a: tuple(-each for each in u_and_v(*a))),
            Mistake("the weights are used as they are; it is their logarithms that are sums",
                    lambda q, k, c, w: solved(q, k, c, left_of(q, k, w.exp()))),
        ),
    ),
)  # fmt: skip
