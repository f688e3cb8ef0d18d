"""Checks of exercise set 6: Transformer-XL."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable

import torch
from torch import Tensor

from pe_course.judge.exercise import Case, Draw, Exercise, Mistake

Pair = tuple[Tensor, Tensor]


def least_memory(layers: int, segment: int, wanted: int) -> Tensor:
    """Return the smallest memory with which each token is reached from `wanted` tokens away."""
    return least_by(lambda memory: reach(layers, segment, memory) >= wanted)


def least_by(enough: Callable[[int], bool]) -> Tensor:
    """Return the smallest memory that is enough; a larger one is, too."""
    return torch.tensor(bisect_left(range(10**7), True, key=enough))


def reach(layers: int, segment: int, memory: int, token: int = 0) -> int:
    """Return how far back a token sees; token 0 is the first of its segment."""
    oldest = token
    for _ in range(layers):
        oldest = oldest // segment * segment - memory
    return token - oldest


def memory_cases(draw: Draw) -> list[Case]:
    """One layer and many, segments of one token, longer than what is wanted; no mask fits."""
    n, more = draw.sizes(2, 3, 9)

    def far(low: int = 600_000) -> int:
        return draw.integer(low, low + 200_000)

    whole = draw.integer(2_001, 2_999)
    calls = (
        ("a `wanted` that layers times segment divides", n, whole,
         n * whole * (700_000 // (n * whole))),
        ("one layer", 1, 128 * more, far()), ("segments of one token", 4 * n, 1, far()),
        ("short segments", 12, 61 + n, far()), ("long segments", 3, far(150_000), far()),
        ("segments longer than what is wanted", n, far(900_000), far()),
        ("a published size", 16, 512, far()), ("two layers", 2, 997 * more, far()),
        ("a deep model", 90 + n, 1_000 + more, far()),
    )  # fmt: skip
    return [Case(words, (a, b, c), drawn=f": layers {a}, segments of {b}, {c} wanted")
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
        Case(words, (
            flags(rows, kept, share=0.7), flags(rows, new, share=share),
            torch.randint(most // 2, most + 1, (rows,), generator=draw.generator)),
            drawn=f": B, M, L = {(rows, kept, new)}")
        for words, rows, kept, new, share, most in calls
    ]  # fmt: skip


def memory_places(weights: Tensor) -> Tensor:
    """Return how far before the segment each state of the memory stands, (M,)."""
    return chained(weights.log().diff(dim=1))


def chained(steps: Tensor, ahead: bool = False, pairs: bool = True, follow: bool = True) -> Tensor:
    """Go back from the first token, from each state to the one whose numbers are moved by one.

    Args:
        steps: (H, rows, M + L), what is compared.
        ahead: whether to move the wrong way.
        pairs: whether differences of two neighbours are compared.
        follow: whether each state is compared with the one found before.
    """
    memory = steps.shape[2] - steps.shape[1] - 1
    newer, known = steps[..., memory], steps[..., memory] - steps[..., memory + 1] * pairs
    place = torch.zeros(memory, dtype=torch.long)
    for back in range(1, memory + 1):
        found = steps[..., :memory] - newer[..., None] * pairs
        one, other = (known[..., None], found) if ahead else (found, known[..., None])
        far = (one[:, :-1] - other[:, 1:]).square().sum((0, 1))
        best = int(far.argmin())
        place[best] = back
        if follow:
            newer, known = steps[..., best], found[..., best]
    return place


def shuffled_cases(draw: Draw) -> list[Case]:
    """Long memories, in which no search finds an order; heads one and many, sharp and flat."""
    m, length, h = draw.sizes(3, 4, 9)

    def case(words: str, heads: int, memory: int, length: int, size: float) -> Case:
        by_distance = draw.normal(heads, memory + 2 * length - 1).double()
        content = 6 * draw.normal(heads, 1, memory + length).double()
        place = torch.cat([draw.order(memory) - memory, torch.arange(length)])
        distance = torch.arange(length)[:, None] - place  # query minus key, as in the chapter
        logits = size * (by_distance[:, distance + length - 1] + content)
        sizes = f", H, L, M = {(heads, length, memory)}"
        return Case(words, (logits.softmax(-1),), drawn=sizes)

    return [
        case("many heads", h, 40 + m, length + 1, 1.0),
        case("a short segment", 2, 70, 5, 1.0),
        case("sharp heads", 3, 50 + m, 12, 3.0),
        case("one head", 1, 60, length + 4, 1.0),
        case("heads that look at all alike, almost", h, 60 + m, 5, 0.01),
    ]


EXERCISES = (
    Exercise(
        name="least_memory",
        cases=memory_cases,
        reference=least_memory,
        tolerance=0.0,
        integers=True,
        mistakes=(
            Mistake("n layers with a memory of M reach n M only where the segment length divides "
                    "M, and farther elsewhere: a token sees back from the *beginning* of its "
                    "segment",
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
        name="memory_places",
        cases=shuffled_cases,
        reference=memory_places,
        integers=True,
        axes=("state",),
        mistakes=(
            Mistake("the states are left in the order in which they came",
                    lambda w: torch.arange(w.shape[2] - w.shape[1], 0, -1)),
            Mistake("counted from the wrong end: the state just before the segment has 1",
                    lambda w: w.shape[2] - w.shape[1] + 1 - memory_places(w)),
            Mistake("the state just before the segment has 1, and not 0",
                    lambda w: memory_places(w) - 1),
            Mistake("this is which state comes first, second, ...; the place of each state is "
                    "asked for", lambda w: memory_places(w).argsort() + 1),
            Mistake("these are positions, which are negative before the segment; return how far "
                    "before it", lambda w: -memory_places(w)),
            Mistake("you move the wrong way: a query one later sees at an older state's newer "
                    "neighbour what this query sees at the older one",
                    lambda w: chained(w.log().diff(dim=1), ahead=True)),
            Mistake("the softmax takes a number of its own from each row; compare differences of "
                    "two keys, from which it is gone",
                    lambda w: chained(w.log().diff(dim=1), pairs=False)),
            Mistake("what a key's content adds is still in what you compare; it is the same for "
                    "all queries", lambda w: chained(w.log()[:, 1:])),
            Mistake("the weights are used as they are; it is their logarithms that are sums",
                    lambda w: chained(w.diff(dim=1))),
            Mistake("all states are compared with the first token of the segment; compare each "
                    "with the one found before", lambda w: chained(
                        w.log().diff(dim=1), follow=False)),
        ),
    ),
)  # fmt: skip
