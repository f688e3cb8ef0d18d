"""Checks of exercise set 7: T5's bias."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from pe_course.judge.compare import ANY
from pe_course.judge.exercise import Answer, Case, Draw, Exercise, Mistake
from pe_lib.encoding import relative_position
from pe_lib.t5 import t5_bucket

Fit = tuple[Tensor, Tensor]
APART = 1e-6  # what differs by more is no rounding


def edges_of(weights: Tensor, positions: Tensor) -> Fit:
    """Return the shortest distance of each bucket, to the left and to the right."""
    return edges_by((weights / weights.diagonal()[:, None]).log(), relative_position(
        positions, positions))  # fmt: skip


def edges_by(number: Tensor, relative: Tensor, **how: Any) -> Fit:
    """Return where the numbers of the pairs change, on either side."""
    causal = number.min() == -torch.inf
    right = firsts(number, relative, 1, **how)
    return firsts(number, -relative, 0, **how), right[:0] if causal else right


def firsts(
    number: Tensor, distance: Tensor, nearest: int, *, once: bool = False, apart: float = 1e-9,
    pick: Callable[[Tensor], Tensor] = lambda pairs: pairs[0],
) -> Tensor:  # fmt: skip
    """Return where the numbers change, from the nearest distance on; or to one never met."""
    each = torch.arange(nearest, int(distance.max()) + 1)
    numbers = torch.stack([pick(number[distance == n]) for n in each.tolist()])
    changes = numbers.diff().abs() > apart
    if once:
        changes = ~((numbers[:, None] - numbers).abs() < 1e-9).tril(-1).any(1)[1:]
    return torch.cat([each[:1], each[1:][changes]])


def edged_cases(draw: Draw) -> list[Case]:
    """Narrow buckets and wide ones, T5's own, one alone; numbers that come again; far places."""
    m, more = draw.sizes(2, 3, 6)
    zero, one = torch.zeros(1, dtype=torch.long), torch.ones(1, dtype=torch.long)

    def drawn(first: Tensor, count: int) -> Tensor:
        steps = torch.randint(1, 4, (count,), generator=draw.generator)
        return torch.cat([first, first + steps.cumsum(0)])

    def weights(edges: Tensor, right: Tensor, places: Tensor) -> Tensor:
        relative = relative_position(places, places)
        steps = 0.1 + torch.rand(len(edges) + len(right), generator=draw.generator).double()
        steps = steps[0].expand(len(steps)) if len(edges) == 12 else steps  # numbers come again
        signs = 1.0 - 2 * (torch.arange(len(steps)) % 3 == 1)
        left = reached(edges, (-relative).clamp(min=0))
        row = torch.where(relative > 0, len(edges) + reached(right, relative), left)
        logits = (steps * signs).cumsum(0)[row] if len(right) else (steps * signs).cumsum(0)[left]
        return logits.masked_fill((relative > 0) & (len(right) == 0), -torch.inf).softmax(-1)

    own = first_distances(8, 20)
    calls = (
        ("drawn edges", drawn(zero, more), drawn(one, m), draw.integer(11, 40)),
        ("positions below 0", drawn(zero, m), drawn(one, more), -700),
        ("T5's own edges", own, own[1:], 70_001),
        ("one bucket", zero, one, 0), ("wide buckets", 7 * torch.arange(3), one + 9 * zero, 5),
        ("numbers that come again", torch.arange(12), torch.arange(1, 9), -4),
    )  # fmt: skip
    found = []
    for words, edges, right, start in calls:
        for both in (True, False):
            places = torch.cat([torch.arange(9), torch.arange(11, 22)]) + start
            places = places[draw.order(len(places))]
            far = right if both else right[:0]
            found.append(
                Case(
                    f"{'bidirectional' if both else 'causal'}, {words}",
                    (weights(edges, far, places), places),
                    drawn=f", from {start}",
                )
            )
    return found


def reached(edges: Tensor, distance: Tensor) -> Tensor:
    """Return the last edge that a distance has reached, counted from 0."""
    return torch.searchsorted(edges, distance.contiguous(), right=True) - 1


def first_distances(n: int, far: int) -> Tensor:
    """Return the shortest distance of each of T5's causal buckets."""
    found = t5_bucket(-torch.arange(8 * far), n, far, bidirectional=False)
    return torch.stack([(found == b).nonzero()[0, 0] for b in range(n)])


def pairs_per_bucket(edges: Tensor, lengths: Tensor) -> Tensor:
    """Return how many pairs of causal documents each bucket holds."""
    return counted(edges, lengths, lengths[:, None] - torch.arange(int(lengths.max())))


def counted(edges: Tensor, lengths: Tensor, often: Tensor, shift: int = 0) -> Tensor:
    """Add up how often each distance (column) occurs in each document (row), by bucket."""
    bucket = reached(edges, torch.arange(often.shape[1]) + shift)
    return torch.zeros_like(edges).index_add(0, bucket, often.clamp(min=0).sum(0))


def pair_cases(draw: Draw) -> list[Case]:
    """T5's buckets, drawn ones, one alone; one document and several, long and short."""
    steps = torch.randint(1, 9, (draw.integer(4, 8),), generator=draw.generator)
    drawn = torch.cat([torch.zeros(1, dtype=torch.long), steps.cumsum(0)])
    some = draw.sizes(3, 10, 90)
    calls = (
        ("T5's own edges", first_distances(32, 128), [512]), ("drawn edges", drawn, some),
        ("one bucket", drawn[:1], [20, 3]), ("a single token", drawn, [1]),
        ("short documents", first_distances(16, 128), [21, 1, 9]),
        ("long documents", torch.tensor([0, 700, 9000]), [20_000, 400, 12_000]),
    )  # fmt: skip
    return [Case(words, (edges, torch.tensor(n)), drawn=f", documents of {n} tokens")
            for words, edges, n in calls]  # fmt: skip


def table_and_scale(q: Tensor, k: Tensor, logits: Tensor) -> Fit:
    """Return the factor on q . k, and the numbers that are added, rising."""
    x, y = (q @ k.mT).flatten(), logits.flatten()
    slopes = (y[1:] - y[0]) / (x[1:] - x[0])
    left = (y - slopes[:, None] * x).sort(1).values
    scale = slopes[(left.diff(dim=1) > APART).sum(1).argmin()]
    return scale, without(q @ k.mT, logits, scale)


def without(
    products: Tensor, logits: Tensor, scale: Tensor | float, apart: float = APART
) -> Tensor:
    """Return the different numbers of the logits less a factor times the products."""
    left = (logits - scale * products).flatten().sort().values
    return torch.cat([left[:1], left[1:][left.diff() > apart]])


def supposed(factor: Callable[[int], float]) -> Answer:
    """Return a wrong answer that supposes a factor by the width, whatever the table then is."""
    return lambda q, k, logits: (torch.tensor(factor(q.shape[-1])), ANY)


def sloped(q: Tensor, k: Tensor, logits: Tensor, *, level: bool) -> Fit:
    """Fit the factor as though there were no table, or one number for all pairs."""
    x, y = (each - level * each.mean() for each in (q @ k.mT, logits))
    return (x * y).sum() / x.square().sum(), table_and_scale(q, k, logits)[1]


def fit_cases(draw: Draw) -> list[Case]:
    """T5's factor, others; T5's buckets and drawn ones; products with a mean of their own."""
    lq, d, m, more = draw.sizes(4, 4, 9)

    def case(
        words: str, queries: int, keys: int, width: int, scale: float, buckets: Tensor
    ) -> Case:
        q, k = (0.5 + draw.normal(each, width).double() for each in (queries, keys))
        steps = 0.1 + torch.rand(int(buckets.max()) + 1, generator=draw.generator).double()
        table = (steps.cumsum(0) - 2)[torch.randperm(len(steps), generator=draw.generator)]
        sizes = f", Lq, Lk, d = {(queries, keys, width)}"
        return Case(words, (q, k, scale * q @ k.mT + table[buckets]), drawn=sizes)

    def drawn(queries: int, keys: int, count: int) -> Tensor:
        order = torch.randperm(queries * keys, generator=draw.generator) % count
        return order.view(queries, keys)

    places = torch.arange(12)
    own = t5_bucket((places - places[:, None]).clamp(-9, 9), 8, 20).unique(return_inverse=True)[1]
    factor = 0.3 + torch.rand((), generator=draw.generator).item()
    return [
        case("T5's factor", lq, lq + more, d, 1.0, drawn(lq, lq + more, min(m, lq))),
        case("divided by the root", 12, 12, 16, 0.25, own),
        case("another factor", lq + 4, lq + 9, 64, factor, drawn(lq + 4, lq + 9, m)),
        case("a single query", 1, 6 * m, d, factor / 2, drawn(1, 6 * m, m)),
    ]


def squared_error(curve: Tensor, edges: Tensor) -> float:
    """Return the sum of squared errors of buckets whose numbers are their means."""
    runs = torch.tensor_split(curve.double(), edges[1:])
    return float(sum((run - run.mean()).square().sum() for run in runs))


def best_edges(curve: Tensor, m: int) -> Tensor:
    """Return the edges of m buckets whose means come nearest to the curve."""
    return best_by(curve, m, lambda run: (run - run.mean(-1, keepdim=True)).square().sum(-1))


def by_sizes(curve: Tensor, m: int) -> Tensor:
    """Add up the errors by their sizes."""
    return best_by(curve, m, lambda run: (run - run.mean(-1, keepdim=True)).abs().sum(-1))


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
    # The second level is nearest to the mean of the first, and to the middle of the third.
    times = torch.tensor([draw.integer(50, 60), 3, 2])
    rare = torch.tensor([0.0, 1.0, 3.5]).repeat_interleave(times)
    rare += 0.01 * draw.normal(len(rare))
    return [
        Case(words, (curve, m), drawn=f", {len(curve)} distances, m = {m}")
        for words, curve, m in (
            ("a falling curve", smooth, 6), ("a bump", bump + 0.1 * draw.normal(50), 7),
            ("drawn numbers", drawn, 7),
            ("almost a bucket for each", drawn.flip(0)[:11].double(), 10),
            ("five levels", levels, 5), ("one bucket", drawn, 1),
            ("a bucket for each", drawn[:9], 9),
            ("rare levels", rare, 2),
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
        name="edges_of",
        parts=(0, 1),
        cases=edged_cases,
        reference=edges_of,
        axes=("bucket",),
        mistakes=(
            Mistake("left and right are exchanged: keys to the left are those before the query",
                    lambda w, p: edges_of(w, -p)),
            Mistake("the sides are not told apart", lambda w, p: edges_by(
                (w / w.diagonal()[:, None]).log(), relative_position(p, p).abs())),
            Mistake("these are the longest distances of the buckets; return the shortest ones",
                    lambda w, p: tuple(each[1:] - 1 for each in edges_of(w, p))),
            Mistake("these are the widths of the buckets; return where they begin",
                    lambda w, p: tuple(each.diff() for each in edges_of(w, p))),
            *(Mistake("weights of different queries are compared as they are; each query divides "
                      "by a sum of its own", lambda w, p, pick=pick: edges_by(
                          w.log(), relative_position(p, p), pick=pick))
              for pick in (lambda pairs: pairs[0], lambda pairs: pairs[-1], torch.Tensor.mean)),
            *(Mistake("numbers that differ by rounding alone are the same; a new bucket begins "
                      "where they differ by more", lambda w, p, number=number: edges_by(
                          number(w), relative_position(p, p), apart=0.0))
              for number in (lambda w: (w / w.diagonal()[:, None]).log(),
                             lambda w: w.log() - w.diagonal().log()[:, None])),
            Mistake("the two are in the wrong order: the edges to the left come first, then those "
                    "to the right", lambda w, p: edges_of(w, p)[::-1]),
            *(Mistake("one side has no edge; only a causal model has none, and to the right alone",
                      function) for function in (
                          lambda w, p: (edges_of(w, p)[0], p[:0]),
                          lambda w, p: (p[:0], edges_of(w, p)[1]))),
            Mistake("the nearest key to the right is at distance 1; you count from 0",
                    lambda w, p: (edges_of(w, p)[0], edges_of(w, p)[1] - 1)),
            Mistake("keys with weight 0 are hidden; they have no bucket",
                    lambda w, p: (edges_of(w, p)[0], edges_of(w, p)[1]
                                  if (w > 0).all() else torch.ones(1).long())),
            Mistake("return distances, which are not negative; to the left you return relative "
                    "positions", lambda w, p: (-edges_of(w, p)[0], edges_of(w, p)[1])),
            Mistake("the last bucket has no end; you add one", lambda w, p: tuple(
                torch.cat([each, 0 * each[:1] + 1 + p.max() - p.min()])
                for each in edges_of(w, p))),
            Mistake("the first bucket of a side has an edge, too",
                    lambda w, p: tuple(each[1:] for each in edges_of(w, p))),
            *(Mistake("rows and columns are counted; use the positions",
                      lambda w, p, pick=pick: edges_by(
                          (w / w.diagonal()[:, None]).log(),
                          relative_position(*2 * (torch.arange(len(p)),)), pick=pick))
              for pick in (lambda pairs: pairs[0], torch.Tensor.mean)),
            Mistake("a bucket may have the number of an earlier one, if they are not neighbours; "
                    "look for changes from distance to distance", lambda w, p: edges_by(
                        (w / w.diagonal()[:, None]).log(), relative_position(p, p), once=True)),
        ),
    ),
    Exercise(
        name="pairs_per_bucket",
        cases=pair_cases,
        reference=pairs_per_bucket,
        tolerance=1e-9,
        integers=True,
        axes=("bucket",),
        mistakes=(
            Mistake("this counts distances; each occurs in many pairs", lambda e, n: counted(
                e, n, (n[:, None] > torch.arange(int(n.max()))).long())),
            Mistake("a query sees itself, too: distance 0 occurs in every row",
                    lambda e, n: counted(e, n, n[:, None] - 1 - torch.arange(int(n.max())), 1)),
            Mistake("distance n occurs n times less often than distance 0, not n times",
                    lambda e, n: counted(e, n, torch.arange(int(n.max())).expand(len(n), -1)
                                         * (n[:, None] > torch.arange(int(n.max()))))),
            Mistake("distance 0 occurs once in each row, so as often as there are tokens",
                    lambda e, n: counted(e, n, n[:, None] - 1 - torch.arange(int(n.max())))),
            Mistake("these are pairs in both directions; a causal query sees no later key",
                    lambda e, n: 2 * pairs_per_bucket(e, n) - n.sum() * (e == 0)),
            Mistake("this is the number of pairs from each bucket on; those of the bucket alone "
                    "are wanted", lambda e, n: pairs_per_bucket(e, n).flip(0).cumsum(0).flip(0)),
            Mistake("this is the number of pairs up to each bucket; those of the bucket alone are "
                    "wanted", lambda e, n: pairs_per_bucket(e, n).cumsum(0)),
            Mistake("an edge is the shortest distance of its bucket; with you it is the longest of "
                    "the one before", lambda e, n: pairs_per_bucket((e + 1) * (e > 0), n)),
            Mistake("the documents are taken for one text; a token sees its own alone",
                    lambda e, n: pairs_per_bucket(e, n.sum(0, keepdim=True))),
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
            Mistake("the factor is taken for T5's, which is 1; find it", supposed(lambda d: 1.0)),
            Mistake("the factor is taken for 1/sqrt(d); find it", supposed(lambda d: d**-0.5)),
            Mistake("the factor is fitted as though there were no table",
                    lambda *a: sloped(*a, level=False)),
            Mistake("the factor is fitted as though all pairs had one bucket",
                    lambda *a: sloped(*a, level=True)),
            Mistake("this is what the product is divided by; return what it is multiplied by",
                    lambda *a: (1 / table_and_scale(*a)[0], table_and_scale(*a)[1])),
            Mistake("the sign of the table is flipped: its numbers are added to the product",
                    lambda *a: (table_and_scale(*a)[0], -table_and_scale(*a)[1].flip(0))),
            Mistake("the numbers fall; return them rising",
                    lambda *a: (table_and_scale(*a)[0], table_and_scale(*a)[1].flip(0))),
            Mistake("each number is wanted once; you return one for each pair",
                    lambda q, k, y: (table_and_scale(q, k, y)[0], (
                        y - table_and_scale(q, k, y)[0] * q @ k.mT).flatten().sort().values)),
            Mistake("the numbers themselves are asked, not how far they are above the smallest",
                    lambda *a: (table_and_scale(*a)[0],
                                table_and_scale(*a)[1] - table_and_scale(*a)[1][0])),
        ),
    ),
    Exercise(
        name="best_edges",
        cases=lambda draw: draw.telling(curve_cases, best_edges, by_sizes),
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
                    by_sizes),
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
