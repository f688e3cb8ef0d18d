"""Checks of exercise set 7: T5's bias."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor

from exercises.checks.spec import Case, Draw, Exercise, Mistake
from pe_lib.t5 import t5_bucket

Fit = tuple[Tensor, Tensor]


def by_edges(relative: Tensor, edges: Tensor, right: Tensor) -> Tensor:
    """Return the last bucket whose edge a distance has reached, on its side."""
    past = reached(edges, (-relative).clamp(min=0))
    if not len(right):
        return past
    return torch.where(relative > 0, len(edges) + reached(right, relative), past)


def reached(edges: Tensor, distance: Tensor) -> Tensor:
    """Return the last edge that a distance has reached, counted from 0."""
    return torch.searchsorted(edges, distance.contiguous(), right=True) - 1


def right_first(relative: Tensor, edges: Tensor, right: Tensor) -> Tensor:
    """Number the buckets of the right before those of the left."""
    past = len(right) + reached(edges, (-relative).clamp(min=0))
    return torch.where(relative > 0, reached(right, relative), past) if len(right) else past


def edged_cases(draw: Draw) -> list[Case]:
    """Narrow buckets and wide ones, T5's own, one alone; any shape, and far positions."""
    m, more, rows = draw.sizes(3, 3, 8)
    zero, one = torch.zeros(1, dtype=torch.long), torch.ones(1, dtype=torch.long)

    def drawn(first: Tensor, count: int) -> Tensor:
        steps = torch.randint(1, 9, (count,), generator=draw.generator)
        return torch.cat([first, first + steps.cumsum(0)])

    left, other = drawn(zero, more), drawn(one, m)
    wide = torch.cat([zero, torch.tensor([3, 700, 701, 9000, 70_001])])
    own = first_distances(16, 128)

    def near(*edges: Tensor, far: int = 80_000) -> Tensor:
        found = (torch.cat(edges)[:, None] + torch.arange(-1, 2)).flatten().unique()
        found = torch.cat([found, -found, torch.tensor([far, -far])])
        return found[draw.order(len(found))]

    calls = (
        ("drawn edges", near(left, other), left, other),
        ("wide buckets", near(wide), wide, torch.tensor([1, 2, 600, 20_000])),
        ("T5's own", near(own), own, own[1:]),
        ("one bucket", torch.arange(-4, 4), zero, one),
        (f"one bucket for each distance, relative positions of shape {(rows, 2 * m)}",
         draw.places(rows, 2 * m) - 30, torch.arange(m + 20), torch.arange(1, more + 9)),
        ("no axes", torch.tensor(-m), left, other),
    )  # fmt: skip
    return [
        Case(f"{'bidirectional' if both else 'causal'}, {words}",
             (relative, edges, right if both else right[:0]))
        for words, relative, edges, right in calls for both in (True, False)
    ]  # fmt: skip


def first_distances(n: int, far: int) -> Tensor:
    """Return the shortest distance of each of T5's causal buckets."""
    found = t5_bucket(-torch.arange(8 * far), n, far, bidirectional=False)
    return torch.stack([(found == b).nonzero()[0, 0] for b in range(n)])


def pairs_per_bucket(edges: Tensor, length: int) -> Tensor:
    """Return how many pairs of a causal text each bucket holds."""
    return counted(edges, length, length - torch.arange(length))


def counted(edges: Tensor, length: int, often: Tensor, shift: int = 0) -> Tensor:
    """Add up how often each distance occurs, by bucket."""
    found = by_edges(-torch.arange(length) - shift, edges, edges[:0])
    return torch.zeros(len(edges), dtype=torch.long).index_add(0, found, often)


def pair_cases(draw: Draw) -> list[Case]:
    """T5's buckets, drawn ones, one alone, and texts that do not reach the last."""
    steps = torch.randint(1, 9, (draw.integer(4, 8),), generator=draw.generator)
    drawn = torch.cat([torch.zeros(1, dtype=torch.long), steps.cumsum(0)])
    calls = (
        ("T5's own", first_distances(32, 128), 512), ("drawn edges", drawn, draw.integer(60, 90)),
        ("one bucket", drawn[:1], 20), ("a short text", first_distances(16, 128), 21),
        ("a single token", drawn, 1), ("a long text", torch.tensor([0, 700, 9000]), 20_000),
    )  # fmt: skip
    return [Case(f"{words}, {n} tokens", (edges, n)) for words, edges, n in calls]


def table_and_scale(q: Tensor, k: Tensor, logits: Tensor, buckets: Tensor) -> Fit:
    """Return the factor on q . k, and the number of each bucket."""
    return fitted(q @ k.mT, logits, buckets)


def fitted(products: Tensor, logits: Tensor, buckets: Tensor) -> Fit:
    """Fit logits by a factor on products and a number for each bucket."""
    x, y = (each - by_bucket(each, buckets)[buckets] for each in (products, logits))
    scale = (x * y).sum() / x.square().sum()
    return scale, by_bucket(logits - scale * products, buckets)


def without_table(q: Tensor, k: Tensor, logits: Tensor, buckets: Tensor) -> Fit:
    """Fit the factor alone first, and then the table to what is left."""
    products = q @ k.mT
    scale = (products * logits).sum() / products.square().sum()
    return scale, by_bucket(logits - scale * products, buckets)


def by_bucket(values: Tensor, buckets: Tensor) -> Tensor:
    """Return the mean of (B, Lq, Lk) in each bucket, (m,)."""
    return torch.stack([values[:, buckets == b].mean() for b in range(int(buckets.max()) + 1)])


def fit_cases(draw: Draw) -> list[Case]:
    """T5's factor, others; T5's buckets and drawn ones; products with a mean of their own."""
    b, lq, d, m, more = draw.sizes(5, 3, 8)

    def case(words: str, batch: int, queries: int, keys: int, width: int, scale: float,
             buckets: Tensor) -> Case:  # fmt: skip
        q, k = (0.5 + draw.normal(batch, each, width).double() for each in (queries, keys))
        table = 3 * draw.normal(int(buckets.max()) + 1).double() - 1
        shapes = f"B, Lq, Lk, d = {(batch, queries, keys, width)}"
        return Case(f"{words}, {shapes}", (q, k, scale * q @ k.mT + table[buckets], buckets))

    def drawn(queries: int, keys: int, count: int) -> Tensor:
        order = torch.randperm(queries * keys, generator=draw.generator) % count
        return order.view(queries, keys)

    places = torch.arange(12)
    own = t5_bucket(places - places[:, None], 8, 20)
    own = own.unique(return_inverse=True)[1]
    factor = 0.3 + torch.rand((), generator=draw.generator).item()
    return [
        case("T5's factor", b, lq, lq + more, d, 1.0, drawn(lq, lq + more, m)),
        case("divided by the root", b, 12, 12, 16, 0.25, own),
        case("another factor", 1, lq + 4, lq + 9, 64, factor, drawn(lq + 4, lq + 9, m)),
        case("a single query", b, 1, 4 * m, d, factor / 2, drawn(1, 4 * m, m)),
    ]


def squared_error(curve: Tensor, edges: Tensor) -> float:
    """Return the sum of squared errors of buckets whose numbers are their means."""
    runs = torch.tensor_split(curve.double(), edges[1:])
    return float(sum((run - run.mean()).square().sum() for run in runs))


def best_edges(curve: Tensor, m: int) -> Tensor:
    """Return the edges of m buckets whose means come nearest to the curve."""
    return best_by(curve, m, lambda run: (run - run.mean(-1, keepdim=True)).square().sum(-1))


def best_by(curve: Tensor, m: int, cost: Callable[[Tensor], Tensor], *, worst: bool = False
            ) -> Tensor:  # fmt: skip
    """Return the edges with the least cost: a sum over buckets, or the largest of them."""
    n = len(curve)
    costs = torch.full((n, n + 1), torch.inf, dtype=torch.float64)  # of distances a to b - 1
    for length in range(1, n + 1):
        runs = curve.double().unfold(0, length, 1)  # (n - length + 1, length)
        costs.diagonal(length)[:] = cost(runs)
    best, chosen = torch.full((n,), torch.inf, dtype=torch.float64), list[Tensor]()
    best[0] = 0.0
    for _ in range(m):
        total = torch.maximum(best[:, None], costs) if worst else best[:, None] + costs
        least = total.min(0)
        chosen.append(least.indices)
        best = least.values[:n]
    edges, end = list[int](), n
    for starts in reversed(chosen):
        end = int(starts[end])
        edges.append(end)
    return torch.tensor(edges[::-1])


def curve_cases(draw: Draw) -> list[Case]:
    """Smooth curves, drawn numbers, steps that fit exactly; one bucket, and one for each."""
    n = draw.integer(30, 45)
    smooth = -torch.arange(1, n + 1).double().log() + 0.05 * draw.normal(n).double()
    bump = 3 * (-((torch.arange(50) - draw.integer(15, 30)) ** 2) / 9).exp()
    levels = (5 * draw.normal(5)).repeat_interleave(torch.tensor([3, 9, 1, 7, 12]))
    drawn = 100 + 5 * draw.normal(40).exp()  # most are small, a few are large
    return [
        Case(f"{words}, {len(curve)} distances, {m} buckets", (curve, m))
        for words, curve, m in (
            ("a falling curve", smooth, 6), ("a bump", bump + 0.1 * draw.normal(50), 7),
            ("drawn numbers", drawn, 7), ("drawn numbers", drawn.flip(0)[:11].double(), 10),
            ("five levels", levels, 5), ("one bucket", drawn, 1), ("one for each", drawn[:9], 9),
        )
    ]  # fmt: skip


def split_again(curve: Tensor, m: int) -> Tensor:
    """Split the bucket that gains most, again and again."""
    edges = torch.zeros(1, dtype=torch.long)
    while len(edges) < m:
        free = [e for e in range(len(curve)) if e not in edges]
        tried = [torch.cat([edges, torch.tensor([e])]).sort().values for e in free]
        edges = min(tried, key=lambda each: squared_error(curve, each))
    return edges


def at_jumps(curve: Tensor, m: int) -> Tensor:
    """Begin a bucket after each of the largest jumps."""
    jumps = curve.diff().abs().topk(m - 1).indices + 1
    return torch.cat([torch.zeros(1, dtype=torch.long), jumps.sort().values])


def even(curve: Tensor, m: int) -> Tensor:
    """Share the distances out evenly."""
    return torch.arange(m) * len(curve) // m


EXERCISES = (
    Exercise(
        name="bucket_by_edges",
        parts=("bidirectional", "causal"),
        cases=edged_cases,
        reference=by_edges,
        integers=True,
        mistakes=(
            Mistake("left and right are exchanged: keys to the right come after the others",
                    lambda r, e, t: by_edges(-r, e, t)),
            Mistake("keys to the left come after the others; those on the right must", right_first),
            Mistake("the right has edges of its own, and they begin at distance 1; you use those "
                    "of the left", lambda r, e, t: by_edges(r, e, e if len(t) else t)),
            Mistake("the sides are not told apart",
                    lambda r, e, t: by_edges(-r.abs() if len(t) else r, e, t)),
            Mistake("an edge is the shortest distance of its bucket; with you it is the longest of "
                    "the one before", lambda r, e, t: by_edges(r, e + 1, t + 1).clamp(min=0)),
            Mistake("buckets are counted from 0: distance 0 has number 0",
                    lambda r, e, t: by_edges(r, e, t) + 1),
            Mistake("the second side begins one bucket too early: the first has as many as there "
                    "are edges", lambda r, e, t: by_edges(r, e, t) - (r > 0).long() * bool(len(t))),
            Mistake("`right` is ignored: you never split the buckets",
                    lambda r, e, t: by_edges(r, e, t[:0])),
            Mistake("where `right` is empty a key to the right counts as distance 0; you use its "
                    "distance", lambda r, e, t: by_edges(r if len(t) else -r.abs(), e, t)),
            Mistake("where `right` is empty the past is to the left: you take keys to the right",
                    lambda r, e, t: by_edges(r if len(t) else -r, e, t)),
            Mistake("this is the edge of the bucket; its number is asked for",
                    lambda r, e, t: torch.cat([e, t])[by_edges(r, e, t)]),
        ),
    ),
    Exercise(
        name="pairs_per_bucket",
        rests_on=("bucket_by_edges",),
        cases=pair_cases,
        reference=pairs_per_bucket,
        tolerance=1e-9,
        integers=True,
        axes=("bucket",),
        mistakes=(
            Mistake("this counts distances; each occurs in many pairs",
                    lambda e, n: counted(e, n, torch.ones(n, dtype=torch.long))),
            Mistake("a query sees itself, too: distance 0 occurs in every row",
                    lambda e, n: counted(e, n - 1, n - 1 - torch.arange(n - 1), 1)),
            Mistake("distance n occurs n times less often than distance 0, not n times",
                    lambda e, n: counted(e, n, torch.arange(n))),
            Mistake("distance 0 occurs once in each row, so as often as there are tokens",
                    lambda e, n: counted(e, n, n - 1 - torch.arange(n))),
            Mistake("these are pairs in both directions; a causal query sees no later key",
                    lambda e, n: 2 * pairs_per_bucket(e, n) - n * (e == 0)),
            Mistake("this is the number of pairs from each bucket on; those of the bucket alone "
                    "are wanted", lambda e, n: pairs_per_bucket(e, n).flip(0).cumsum(0).flip(0)),
            Mistake("this is the number of pairs up to each bucket; those of the bucket alone are "
                    "wanted", lambda e, n: pairs_per_bucket(e, n).cumsum(0)),
            Mistake("an edge is the shortest distance of its bucket; with you it is the longest of "
                    "the one before",
                    lambda e, n: counted((e + 1) * (e > 0), n, n - torch.arange(n))),
        ),
    ),
    Exercise(
        name="table_and_scale",
        parts=(0, 1),
        cases=fit_cases,
        reference=table_and_scale,
        tolerance=1e-6,
        axes=("bucket",),
        mistakes=(
            Mistake("the factor is taken for T5's, which is 1; find it",
                    lambda q, k, y, b: (torch.tensor(1.0), by_bucket(y - q @ k.mT, b))),
            Mistake("the factor is taken for 1/sqrt(d); find it",
                    lambda q, k, y, b: (torch.tensor(q.shape[-1] ** -0.5), by_bucket(
                        y - q @ k.mT * q.shape[-1] ** -0.5, b))),
            Mistake("the means of the buckets are those of the logits: q . k is still in them",
                    lambda q, k, y, b: (table_and_scale(q, k, y, b)[0], by_bucket(y, b))),
            Mistake("the factor is fitted as though there were no table",
                    lambda q, k, y, b: ((q @ k.mT * y).sum() / (q @ k.mT).square().sum(),
                                        table_and_scale(q, k, y, b)[1])),
            Mistake("the factor is fitted as though there were no table, and the table from what "
                    "it leaves", without_table),
            Mistake("the factor is fitted as though all pairs had one bucket",
                    lambda q, k, y, b: (fitted(q @ k.mT, y, 0 * b)[0],
                                        table_and_scale(q, k, y, b)[1])),
            Mistake("this is what the product is divided by; return what it is multiplied by",
                    lambda q, k, y, b: (1 / table_and_scale(q, k, y, b)[0],
                                        table_and_scale(q, k, y, b)[1])),
            Mistake("the sign of the table is flipped: its numbers are added to the product",
                    lambda q, k, y, b: (table_and_scale(q, k, y, b)[0],
                                        -table_and_scale(q, k, y, b)[1])),
            Mistake("this is the sum of each bucket, not its number",
                    lambda q, k, y, b: (table_and_scale(q, k, y, b)[0],
                                        table_and_scale(q, k, y, b)[1] * len(q)
                                        * torch.bincount(b.flatten()))),
        ),
    ),
    Exercise(
        name="best_edges",
        cases=curve_cases,
        reference=best_edges,
        integers=True,
        axes=("bucket",),
        mistakes=(
            Mistake("a bucket is split where it gains most, again and again; an early split may be "
                    "in the way of a later one", split_again),
            Mistake("a bucket begins after each of the largest jumps; one distance that sticks out "
                    "takes two of them", at_jumps),
            Mistake("the buckets hold equally many distances, whatever the curve is", even),
            Mistake("the largest error of a bucket is made small; wanted is the sum of all",
                    lambda c, m: best_by(c, m, lambda run: (
                        run - run.mean(-1, keepdim=True)).square().sum(-1), worst=True)),
            Mistake("the errors are added up as they are, not their squares",
                    lambda c, m: best_by(c, m, lambda run: (
                        run - run.mean(-1, keepdim=True)).abs().sum(-1))),
            Mistake("these are the variances of the buckets: a long bucket counts more than a "
                    "short one", lambda c, m: best_by(c, m, lambda run: run.var(
                        -1, correction=0))),
            Mistake("each bucket has the number of its first distance; its mean comes nearer",
                    lambda c, m: best_by(c, m, lambda run: (
                        run - run[..., :1]).square().sum(-1))),
            Mistake("each bucket has the middle of its largest and smallest number; the mean comes "
                    "nearer", lambda c, m: best_by(c, m, lambda run: (
                        run - (run.amax(-1, True) + run.amin(-1, True)) / 2).square().sum(-1))),
            Mistake("these are the last distances of the buckets; return the first ones",
                    lambda c, m: torch.cat([best_edges(c, m)[1:], torch.tensor([len(c)])]) - 1),
            Mistake("distances are counted from 0: the first edge is 0",
                    lambda c, m: best_edges(c, m) + 1),
        ),
    ),
)  # fmt: skip
