"""Checks of exercise set 7: T5's bias."""

from __future__ import annotations

import math
from collections.abc import Callable

import torch
from torch import Tensor

from exercises.checks.spec import Case, Draw, Exercise, Mistake
from pe_lib.attention import relative_position
from pe_lib.t5 import t5_bucket


def bucket(relative: Tensor, n: int, far: int, both: bool) -> Tensor:
    """Return T5's buckets."""
    return t5_bucket(relative, n, far, bidirectional=both)


def bucket_cases(draw: Draw) -> list[Case]:
    """All near distances and many far ones; odd numbers of buckets; any shape."""
    near, middle, far = torch.arange(-40, 41), torch.arange(50, 125, 5), draw.places(30, high=1000)
    some = torch.cat([near, middle, -middle, far, -far])
    shapes = "relative positions of shape"
    return [
        Case("32 buckets up to 128, bidirectional", (some, 32, 128, True)),
        Case("32 buckets up to 128, causal", (some, 32, 128, False)),
        Case(f"20 buckets up to 60, bidirectional, {shapes} (9, 9)",
             (near.view(9, 9), 20, 60, True)),
        Case(f"22 buckets up to 60, bidirectional, {shapes} (3, {len(some) // 3}, 1)",
             (some.view(3, -1, 1), 22, 60, True)),
        Case("21 buckets up to 200, causal", (some, 21, 200, False)),
        *(Case(f"{n} buckets up to {most}, {'bidirectional' if both else 'causal'}, distances "
               "where the buckets change", (near_edges(n, most, both), n, most, both))
          for n, most, both in ((32, 5003, True), (32, 811, False), (44, 20011, True))),
        Case("32 buckets up to 128, causal, a tensor of one number, -35, without axes",
             (near[5], 32, 128, False)),
    ]  # fmt: skip


def near_edges(n: int, far: int, both: bool) -> Tensor:
    """Return relative positions on both sides of the logarithm's edges, and far ones.

    Half precision, or a table of so many distances, is wrong there. Those so near to an edge that
    float32 could err are left out.
    """
    side = n // 2 if both else n
    first = side // 2
    edges = first * (far / first) ** (torch.arange(side - first + 1).double() / (side - first))
    found = (edges[:, None] + torch.arange(-2, 3)).floor().flatten()
    found = torch.cat([found, torch.tensor([1001, 8193, 33_001, 65_600])]).clamp(min=first)
    place = (found / first).log() / math.log(far / first) * (side - first)
    found = found[(place - place.round()).abs() > 1e-4].long().unique()
    return torch.cat([-found, found])


def other(
    relative: Tensor, n: int, far: int, both: bool, *,
    upper: Callable[[Tensor], Tensor] = lambda relative: relative > 0,
    exact: Callable[[int], int] = lambda side: side // 2,
    rounded: Callable[[Tensor], Tensor] = torch.floor,
    distance: Callable[[Tensor], Tensor] = lambda relative: (-relative).clamp(min=0),
    halve: bool = True, last: Callable[[int, int], int] = lambda side, n: side - 1,
) -> Tensor:  # fmt: skip
    """Buckets with one thing done in another way; `distance` is the causal one."""
    side = n // 2 if both and halve else n
    first, steps = exact(side), relative.abs() if both else distance(relative)
    place = (steps.clamp(min=first).float() / first).log() / math.log(far / first)
    grown = (first + rounded(place * (side - first)).long()).clamp(max=last(side, n))
    found = torch.where(steps < first, steps, grown)
    return found + (n // 2) * upper(relative) if both else found


def linear(relative: Tensor, n: int, far: int, both: bool) -> Tensor:
    """One bucket for each distance, and one for the rest."""
    side = n // 2 if both else n
    distance = relative.abs() if both else (-relative).clamp(min=0)
    return distance.clamp(max=side - 1) + (side * (relative > 0) if both else 0)


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
        name="t5_bucket",
        parts=("bidirectional", "causal"),
        cases=bucket_cases,
        reference=bucket,
        integers=True,
        mistakes=(
            Mistake("left and right are exchanged: keys to the right have the upper half",
                    lambda r, n, f, b: bucket(-r, n, f, b)),
            Mistake("keys to the left have the upper half of the buckets; it belongs to those on "
                    "the right", lambda r, n, f, b: other(r, n, f, b, upper=lambda r: r < 0)),
            Mistake("the buckets are not halved between the two sides",
                    lambda r, n, f, b: other(r, n, f, b, halve=False)),
            Mistake("all buckets are linear: half of each side must grow logarithmically", linear),
            Mistake("a quarter of the buckets of a side is exact; it must be half",
                    lambda r, n, f, b: other(r, n, f, b, exact=lambda side: side // 4)),
            Mistake("half of an odd number of buckets is rounded down; yours is rounded up",
                    lambda r, n, f, b: other(r, n, f, b, exact=lambda side: (side + 1) // 2)),
            Mistake("distance 0 belongs to the first half; only keys to the right have the second",
                    lambda r, n, f, b: other(r, n, f, b, upper=lambda r: r >= 0)),
            Mistake("max_distance is ignored (it is 128 always)",
                    lambda r, n, f, b: bucket(r, n, 128, b)),
            Mistake("the last bucket is one too high: clamp to the buckets of a side minus one",
                    lambda r, n, f, b: other(r, n, f, b, last=lambda side, n: side)),
            Mistake("it is not clamped: far distances run past the last bucket",
                    lambda r, n, f, b: other(r, n, f, b, last=lambda side, n: 10**6)),
            Mistake("with `bidirectional`, far distances run past the last bucket of their side",
                    lambda r, n, f, b: other(r, n, f, b, last=lambda side, n: n - 1)),
            Mistake("the logarithm is rounded to the nearest bucket; it must be rounded down",
                    lambda r, n, f, b: other(r, n, f, b, rounded=torch.round)),
            Mistake("the logarithm is rounded up; it must be rounded down",
                    lambda r, n, f, b: other(r, n, f, b, rounded=torch.ceil)),
            Mistake("without `bidirectional` the past is to the left: you take keys to the right",
                    lambda r, n, f, b: other(r, n, f, b, distance=lambda r: r.clamp(min=0))),
            Mistake("max_distance is ignored without `bidirectional` (it is 128 always)",
                    lambda r, n, f, b: bucket(r, n, f if b else 128, b)),
            Mistake("`bidirectional` is ignored: you always split the buckets",
                    lambda r, n, f, b: other(r, n, f, True)),
            Mistake("`bidirectional` is ignored: you never split the buckets",
                    lambda r, n, f, b: bucket(r, n, f, False)),
            Mistake("without `bidirectional` a key to the right counts as distance 0; you use its "
                    "distance", lambda r, n, f, b: bucket(r if b else -r.abs(), n, f, b)),
            Mistake("without `bidirectional` a key to the right counts as distance 0; yours is "
                    "negative", lambda r, n, f, b: other(r, n, f, b, distance=lambda r: -r)),
            Mistake("the sides are not told apart",
                    lambda r, n, f, b: bucket(-r.abs() if b else r, n, f, b)),
        ),
    ),
    Exercise(
        name="t5_logits",
        rests_on=("t5_bucket",),
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
        rests_on=("t5_bucket",),
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
