"""Checks of exercise set 7: T5's bias."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor

from exercises.checks.spec import Case, Draw, Exercise, Mistake
from pe_lib.attention import relative_position
from pe_lib.t5 import t5_bucket


def bucket(relative: Tensor, n: int, far: int, both: bool) -> Tensor:
    """Return T5's buckets."""
    return t5_bucket(relative, n, far, bidirectional=both)


def by_edges(relative: Tensor, edges: Tensor, both: bool) -> Tensor:
    """Return the last bucket whose edge a distance has reached, on its side."""
    distance = relative.abs() if both else (-relative).clamp(min=0)
    found = torch.searchsorted(edges, distance.contiguous(), right=True) - 1
    return found + len(edges) * (relative > 0) if both else found


def edged_cases(draw: Draw) -> list[Case]:
    """Narrow buckets and wide ones, T5's own, one alone; any shape, and far positions."""
    m, more, rows = draw.sizes(3, 3, 8)
    zero = torch.zeros(1, dtype=torch.long)
    steps = torch.randint(1, 9, (more,), generator=draw.generator)
    drawn = torch.cat([zero, steps.cumsum(0)])
    wide = torch.cat([zero, torch.tensor([3, 700, 701, 9000, 70_001])])
    own = first_distances(16, 128)

    def near(edges: Tensor, *, far: int = 80_000) -> Tensor:
        found = (edges[:, None] + torch.arange(-1, 2)).flatten().unique()
        found = torch.cat([found, -found, torch.tensor([far, -far])])
        return found[draw.order(len(found))]

    calls = (
        ("drawn edges", near(drawn), drawn), ("wide buckets", near(wide), wide),
        ("T5's own", near(own), own), ("one bucket", torch.arange(-4, 4), zero),
        (f"one bucket for each distance, relative positions of shape {(rows, 2 * m)}",
         draw.places(rows, 2 * m) - 30, torch.arange(m + 20)),
        ("no axes", torch.tensor(-m), drawn),
    )  # fmt: skip
    return [
        Case(f"{'bidirectional' if both else 'causal'}, {words}", (relative, edges, both))
        for words, relative, edges in calls for both in (True, False)
    ]  # fmt: skip


def logits(q: Tensor, k: Tensor, table: Tensor, q_pos: Tensor, k_pos: Tensor) -> Tensor:
    """Return q . k plus the bias of each head, nothing scaled."""
    return q @ k.mT + bias(table, relative_position(q_pos, k_pos), True)


def bias(table: Tensor, relative: Tensor, both: bool) -> Tensor:
    """Return the bias of each head, (H, Lq, Lk)."""
    return table[bucket(relative, len(table), 128, both)].permute(2, 0, 1)


def logits_cases(draw: Draw) -> list[Case]:
    """Near, far, and with another number of buckets far on both sides."""
    b, h, lq, d, other_d = draw.sizes(5, 2, 6)
    lk, start = lq + draw.integer(5, 7), draw.integer(11, 40)
    below = draw.places(4) - 60
    run, spread = torch.arange(start, start + lk), 40 * torch.arange(lk)
    far = draw.places(lq, high=300)
    middle = torch.cat([torch.tensor([150]), far[1:]])  # keys on both sides of it, far enough

    def case(
        label: str, n: int, d: int, q_pos: Tensor, k_pos: Tensor, b: int = b, h: int = h
    ) -> Case:
        q, k = draw.normal(b, h, len(q_pos), d), draw.normal(b, h, len(k_pos), d)
        return Case(f"{n} buckets, d {d}, {label}", (q, k, draw.normal(n, h), q_pos, k_pos))

    return [
        case(f"{lk} positions from {start}", 32, d, run, run),
        case(f"q_pos {far.tolist()}, {lk} keys from {start}", 32, other_d, far, run),
        case(f"q_pos {middle.tolist()}, k_pos 0, 40, ... {40 * lk - 40}", 20, d, middle, spread),
        case("one head, 1 query and 20 keys", 32, 64, run[-1:], torch.arange(20), 1, 1),
        case(
            "16 heads, 4 queries and 6 keys, negative positions",
            32,
            8,
            below,
            -1 - torch.arange(6),
            1,
            16,
        ),
        case("far apart", 32, d, 70_001 + spread, spread + 31_000),
    ]


def first_distances(n: int, far: int) -> Tensor:
    """Return the shortest distance of each causal bucket."""
    found = bucket(-torch.arange(8 * far), n, far, False)
    return torch.stack([(found == b).nonzero()[0, 0] for b in range(n)])


def last_distances(n: int, far: int, end: int = 0) -> Tensor:
    """Return the longest distance of each causal bucket, looking up to `end`."""
    return torch.cat([first_distances(n, far)[1:] - 1, torch.tensor([end or far - 1])])


def widths(n: int, far: int, end: int = 0) -> Tensor:
    """Return how many distances each causal bucket holds, looking up to `end`."""
    return last_distances(n, far, end) - first_distances(n, far) + 1


# Where a search over all distances ends, as people write it.
ENDS: tuple[Callable[[int], int], ...] = (
    lambda far: far - 1,
    lambda far: far,
    lambda far: 2 * far - 1,
    lambda far: 2 * far,
    lambda far: 4 * far - 1,
    lambda far: 10 * far - 1,
    lambda far: 999,
)


def by_formula(n: int, far: int, rounding: str) -> Tensor:
    """Return the edges of the logarithm, rounded in some way."""
    exact = n // 2
    steps = torch.arange(n - exact).double() / (n - exact)
    edges = exact * (far / exact) ** steps
    whole = {"down": edges.floor(), "near": edges.round(), "up": edges.ceil() + 1}[rounding]
    return torch.cat([torch.arange(exact), whole.long()])


def edge_cases(draw: Draw) -> list[Case]:
    """Sizes without an empty bucket, or a bucket that begins exactly at a distance."""
    n = 22 + 4 * draw.integer(0, 2)
    sizes = ((32, 128), (n, 8 * n), (33, 1009))
    return [Case(f"{count} buckets up to {far}", (count, far)) for count, far in sizes]


EXERCISES = (
    Exercise(
        name="bucket_by_edges",
        parts=("bidirectional", "causal"),
        cases=edged_cases,
        reference=by_edges,
        integers=True,
        mistakes=(
            Mistake("left and right are exchanged: keys to the right come after the others",
                    lambda r, e, b: by_edges(-r, e, b)),
            Mistake("keys to the left come after the others; those on the right must",
                    lambda r, e, b: by_edges(-r if b else r, e, b)),
            Mistake("the sides are not told apart",
                    lambda r, e, b: by_edges(-r.abs() if b else r, e, b)),
            Mistake("distance 0 belongs to the first side; only keys to the right have the second",
                    lambda r, e, b: by_edges(r, e, b) + len(e) * (b & (r == 0))),
            Mistake("an edge is the shortest distance of its bucket; with you it is the longest of "
                    "the one before", lambda r, e, b: by_edges(r, e + 1, b).clamp(min=0)),
            Mistake("buckets are counted from 0: distance 0 has number 0",
                    lambda r, e, b: by_edges(r, e, b) + 1),
            Mistake("the second side begins one bucket too early: each has as many as there are "
                    "edges", lambda r, e, b: by_edges(r, e, b) - 1 * (b & (r > 0))),
            Mistake("`bidirectional` is ignored: you always split the buckets",
                    lambda r, e, b: by_edges(r, e, True)),
            Mistake("`bidirectional` is ignored: you never split the buckets",
                    lambda r, e, b: by_edges(r, e, False)),
            Mistake("without `bidirectional` a key to the right counts as distance 0; you use its "
                    "distance", lambda r, e, b: by_edges(r if b else -r.abs(), e, b)),
            Mistake("without `bidirectional` the past is to the left: you take keys to the right",
                    lambda r, e, b: by_edges(r if b else -r, e, b)),
            Mistake("this is the edge of the bucket; its number is asked for",
                    lambda r, e, b: e[by_edges(r, e, b) % len(e)]),
        ),
    ),
    Exercise(
        name="t5_logits",
        cases=logits_cases,
        reference=logits,
        axes=("batch", "head", "query", "key"),
        mistakes=(
            Mistake("this is what the listing returns: neither of its two places has changed",
                    lambda q, k, t, qp, kp: q @ k.mT * q.shape[-1] ** -0.5 + bias(
                        t, relative_position(-qp, -kp), True)),
            Mistake("q . k is divided by d; T5 does not even divide by its square root",
                    lambda q, k, t, qp, kp: q @ k.mT / q.shape[-1] + bias(
                        t, relative_position(qp, kp), True)),
            Mistake("T5 does not divide by sqrt(d): its initial weights make up for it",
                    lambda q, k, t, qp, kp: q @ k.mT * q.shape[-1] ** -0.5 + bias(
                        t, relative_position(qp, kp), True)),
            Mistake("T5 does not divide by sqrt(d), and certainly not the bias",
                    lambda *a: logits(*a) * a[0].shape[-1] ** -0.5),
            Mistake("the sign of the relative position is flipped: it is key minus query",
                    lambda q, k, t, qp, kp: logits(q, k, t, -qp, -kp)),
            Mistake("the buckets are the causal ones; the encoder's are bidirectional",
                    lambda q, k, t, qp, kp: q @ k.mT + bias(t, relative_position(qp, kp), False)),
            Mistake("you count positions yourself; use q_pos and k_pos",
                    lambda q, k, t, qp, kp: logits(q, k, t, torch.arange(len(qp)),
                                                   torch.arange(len(kp)))),
            Mistake("negative positions are taken as 0", lambda q, k, t, qp, kp: logits(
                q, k, t, qp.clamp(min=0), kp.clamp(min=0))),
            Mistake("the bias is missing", lambda q, k, t, qp, kp: q @ k.mT),
            Mistake("q . k is missing", lambda q, k, t, qp, kp: logits(0 * q, k, t, qp, kp)),
            Mistake("all heads have the bias of the first; each has a column of the table",
                    lambda q, k, t, qp, kp: logits(q, k, t[:, :1].expand_as(t), qp, kp)),
            Mistake("the heads share the mean of the table; each has a column of its own",
                    lambda q, k, t, qp, kp: logits(q, k, t.mean(1, True).expand_as(t), qp, kp)),
            Mistake("the bias is multiplied with q . k; it must be added",
                    lambda q, k, t, qp, kp: q @ k.mT * bias(t, relative_position(qp, kp), True)),
            Mistake("the bias is subtracted", lambda q, k, t, qp, kp: logits(q, k, -t, qp, kp)),
            Mistake("left and right share their buckets",
                    lambda q, k, t, qp, kp: q @ k.mT + bias(
                        t, -relative_position(qp, kp).abs(), True)),
        ),
    ),
    Exercise(
        name="first_distances",
        cases=edge_cases,
        reference=first_distances,
        integers=True,
        mistakes=(
            *(Mistake("these are the longest distances of the buckets, not the shortest",
                      lambda n, f, end=end: last_distances(n, f, end(f))) for end in ENDS),
            Mistake("a bucket begins at the first whole distance past its edge: round up",
                    lambda n, f: by_formula(n, f, "down")),
            Mistake("a bucket begins at the first whole distance past its edge: do not round to "
                    "the nearest", lambda n, f: by_formula(n, f, "near")),
            Mistake("the buckets beyond the exact ones begin one too late",
                    lambda n, f: by_formula(n, f, "up")),
            Mistake("you count distances from 1; the first bucket is that of distance 0",
                    lambda n, f: first_distances(n, f) + 1),
            Mistake("these are the numbers of the buckets, not distances",
                    lambda n, f: torch.arange(n)),
            Mistake("these are the distances of evenly spaced buckets",
                    lambda n, f: torch.arange(n) * f // n),
            Mistake("the last bucket does not begin at max_distance",
                    lambda n, f: torch.cat([first_distances(n, f)[:-1], torch.tensor([f])])),
            Mistake("max_distance is ignored (it is 128 always)",
                    lambda n, f: first_distances(n, 128)),
            Mistake("these are negative: wanted are distances",
                    lambda n, f: -first_distances(n, f)),
            *(Mistake("these are the widths of the buckets, not where they begin",
                      lambda n, f, end=end: widths(n, f, end(f))) for end in ENDS),
        ),
    ),
)  # fmt: skip
