"""Checks of exercise set 7: T5's bias."""

from __future__ import annotations

import math

import torch
from torch import Tensor

from pe_lib.attention import relative_position
from pe_lib.checks.spec import Case, Draw, Exercise, Mistake
from pe_lib.t5 import t5_bucket


def bucket(relative: Tensor, n: int, far: int, both: bool) -> Tensor:
    """Return T5's buckets."""
    return t5_bucket(relative, n, far, bidirectional=both)


def bucket_cases(draw: Draw) -> list[Case]:
    """Both directions, all near distances and many far ones."""
    near, far = torch.arange(-40, 41), draw.places(30, high=1000)
    some = torch.cat([near, far, -far])
    return [
        Case("32 buckets up to 128, bidirectional", (some, 32, 128, True)),
        Case("32 buckets up to 128, causal", (some, 32, 128, False)),
        Case(f"20 buckets up to 60 and a table of shape {(9, 9)}",
             (some[: 81].view(9, 9), 20, 60, True)),
    ]  # fmt: skip


def other(
    relative: Tensor, n: int, far: int, both: bool, *,
    right_low: bool = False, exact_share: float = 0.5, halve: bool = True, log_base: int = 0,
    cap: int = 0, nearest: bool = False,
) -> Tensor:  # fmt: skip
    """Buckets with one thing done in another way."""
    side = n // 2 if both and halve else n
    exact = int(side * exact_share)
    distance = relative.abs() if both else (-relative).clamp(min=0)
    top = (log_base or far) / exact
    place = (distance.clamp(min=exact).float() / exact).log() / math.log(top) * (side - exact)
    grown = exact + (place.round() if nearest else place).long()
    found = torch.where(distance < exact, distance, grown.clamp(max=side - 1 + cap))
    if not both:
        return found
    return found + (n // 2) * ((relative < 0) if right_low else (relative > 0))


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
    """Queries after a cache, far from some keys."""
    b, h, lq, more, d = draw.sizes(5, 2, 8)
    lk, start = lq + more, draw.integer(11, 40)
    k_pos = torch.arange(start, start + lk)
    return [
        Case("positions in a row", (draw.normal(b, h, lk, d), draw.normal(b, h, lk, d),
                                    draw.normal(32, h), k_pos, k_pos)),
        Case("queries far from the keys", (draw.normal(b, h, lq, d), draw.normal(b, h, lk, d),
                                           draw.normal(32, h), draw.places(lq, high=300), k_pos)),
    ]  # fmt: skip


def first_distances(n: int, far: int) -> Tensor:
    """Return the shortest distance of each causal bucket."""
    found = bucket(-torch.arange(8 * far), n, far, False)
    return torch.stack([(found == b).nonzero()[0, 0] for b in range(n)])


def last_distances(n: int, far: int) -> Tensor:
    """Return the longest distance of each causal bucket, as far as was looked."""
    return torch.cat([first_distances(n, far)[1:] - 1, torch.tensor([far - 1])])


def by_formula(n: int, far: int, rounding: str) -> Tensor:
    """Return the edges of the logarithm, rounded in some way."""
    exact = n // 2
    steps = torch.arange(n - exact).double() / (n - exact)
    edges = exact * (far / exact) ** steps
    whole = {"down": edges.floor(), "near": edges.round(), "up": edges.ceil() + 1}[rounding]
    return torch.cat([torch.arange(exact), whole.long()])


def edge_cases(draw: Draw) -> list[Case]:
    """Sizes without an empty bucket."""
    n = 2 * draw.integer(9, 14)
    return [Case("32 buckets up to 128", (32, 128)), Case(f"{n} buckets up to {8 * n}", (n, 8 * n))]


EXERCISES = (
    Exercise(
        name="t5_bucket",
        asks="the bucket of each relative position",
        cases=bucket_cases,
        reference=bucket,
        mistakes=(
            Mistake("left and right are exchanged: keys to the right have the upper half",
                    lambda r, n, f, b: bucket(-r, n, f, b)),
            Mistake("keys to the left have the upper half of the buckets; it belongs to those on "
                    "the right", lambda r, n, f, b: other(r, n, f, b, right_low=True)),
            Mistake("the buckets are not halved between the two sides",
                    lambda r, n, f, b: other(r, n, f, b, halve=False)),
            Mistake("all buckets are linear: half of each side must grow logarithmically", linear),
            Mistake("a quarter of the buckets of a side is exact; it must be half",
                    lambda r, n, f, b: other(r, n, f, b, exact_share=0.25)),
            Mistake("max_distance is ignored (it is 128 always)",
                    lambda r, n, f, b: bucket(r, n, 128, b)),
            Mistake("the last bucket is one too high: clamp to the buckets of a side minus one",
                    lambda r, n, f, b: other(r, n, f, b, cap=1)),
            Mistake("it is not clamped: far distances run past the last bucket",
                    lambda r, n, f, b: other(r, n, f, b, cap=10**6)),
            Mistake("the logarithm is rounded to the nearest bucket; it must be rounded down",
                    lambda r, n, f, b: other(r, n, f, b, nearest=True)),
            Mistake("`bidirectional` is ignored: you always split the buckets",
                    lambda r, n, f, b: bucket(r, n, f, True)),
            Mistake("`bidirectional` is ignored: you never split the buckets",
                    lambda r, n, f, b: bucket(r, n, f, False)),
            Mistake("without `bidirectional` a key to the right counts as distance 0; you use its "
                    "distance", lambda r, n, f, b: bucket(r if b else -r.abs(), n, f, b)),
            Mistake("the sides are not told apart",
                    lambda r, n, f, b: bucket(-r.abs() if b else r, n, f, b)),
        ),
    ),
    Exercise(
        name="t5_logits",
        asks="T5's logits: q . k plus a trained number for each bucket and head",
        cases=logits_cases,
        reference=logits,
        mistakes=(
            Mistake("T5 does not divide by sqrt(d): its initial weights make up for it",
                    lambda q, k, t, qp, kp: q @ k.mT * q.shape[-1] ** -0.5 + bias(
                        t, relative_position(qp, kp), True)),
            Mistake("T5 does not divide by sqrt(d), and certainly not the bias",
                    lambda *a: logits(*a) * a[0].shape[-1] ** -0.5),
            Mistake("the sign of the distance is flipped: it is key minus query",
                    lambda q, k, t, qp, kp: logits(q, k, t, -qp, -kp)),
            Mistake("the buckets are the causal ones; the encoder's are bidirectional",
                    lambda q, k, t, qp, kp: q @ k.mT + bias(t, relative_position(qp, kp), False)),
            Mistake("you count positions yourself; use q_pos and k_pos",
                    lambda q, k, t, qp, kp: logits(q, k, t, torch.arange(len(qp)),
                                                   torch.arange(len(kp)))),
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
        asks="the shortest distance that falls into each causal bucket",
        cases=edge_cases,
        reference=first_distances,
        mistakes=(
            Mistake("these are the longest distances of the buckets, not the shortest",
                    last_distances),
            Mistake("a bucket begins at the first whole distance past its edge: round up",
                    lambda n, f: by_formula(n, f, "down")),
            Mistake("a bucket begins at the first whole distance past its edge: do not round to "
                    "the nearest", lambda n, f: by_formula(n, f, "near")),
            Mistake("the buckets beyond the exact ones begin one too late",
                    lambda n, f: by_formula(n, f, "up")),
            Mistake("you count distances from 1; the first bucket is that of distance 0",
                    lambda n, f: first_distances(n, f) + 1),
            Mistake("all buckets are linear here; half of them must grow",
                    lambda n, f: torch.arange(n)),
            Mistake("these are the distances of evenly spaced buckets",
                    lambda n, f: torch.arange(n) * f // n),
            Mistake("max_distance is ignored (it is 128 always)",
                    lambda n, f: first_distances(n, 128)),
            Mistake("these are negative: wanted are distances",
                    lambda n, f: -first_distances(n, f)),
            Mistake("these are the widths of the buckets, not where they begin",
                    lambda n, f: last_distances(n, f) - first_distances(n, f) + 1),
        ),
    ),
)  # fmt: skip
