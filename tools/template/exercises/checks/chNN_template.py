"""Checks of exercise set NN: TITLE."""

from __future__ import annotations

import torch
from torch import Tensor

from exercises.checks.spec import Case, Draw, Exercise, Mistake
from pe_lib.attention import relative_position
from pe_lib.template import template_bias


def bias(q_pos: Tensor, k_pos: Tensor, rates: Tensor) -> Tensor:
    """Return the penalty, (H, Lq, Lk)."""
    return template_bias(relative_position(q_pos, k_pos), rates)


def bias_cases(draw: Draw) -> list[Case]:
    """A step of decoding, keys on both sides, queries below 0 and far away."""
    heads, lk, lq = draw.sizes(3, 4, 9)
    start = draw.integer(11, 40)
    run, rates = torch.arange(start, start + lk), 0.2 + draw.normal(heads).abs()
    return [
        Case("a query that comes after a cache of keys", (run[-1:] + 1, run, rates)),
        Case("keys on both sides", (draw.places(lq, high=start + 9), run, rates)),
        Case("far queries below 0", (-40_000 - 7 * draw.places(lk), run, rates)),
    ]


def weights(logits: Tensor, q_pos: Tensor, k_pos: Tensor, rate: float) -> Tensor:
    """Return the attention weights of one head, (Lq, Lk)."""
    return (logits + bias(q_pos, k_pos, torch.tensor([rate]))[0]).softmax(-1)


def weights_cases(draw: Draw) -> list[Case]:
    """Two rates, with queries that come after the keys, or far below 0."""
    lq, lk = draw.sizes(2, 4, 9)
    k_pos = torch.arange(lk) + draw.integer(11, 40)
    far = -40_000 - 7 * draw.places(lk)
    return [
        *(Case(f"rate {rate}", (draw.normal(lq, lk), draw.places(lq), k_pos, rate))
          for rate in (0.5, 2.0)),
        Case("far queries below 0", (draw.normal(lk, lk), far, k_pos, 0.5)),
    ]  # fmt: skip


def reach(rates: Tensor, length: int, share: float) -> Tensor:
    """Return how many of the nearest keys hold the share of the weight, (H,)."""
    return count((1 + torch.arange(length).double()) ** -rates.double()[:, None], share)


def count(weights: Tensor, share: float) -> Tensor:
    """Return how many of the first weights of each row hold the share of the row's sum."""
    held = weights.cumsum(1) / weights.sum(1, keepdim=True)
    return (held < share).sum(1) + 1


def reach_cases(draw: Draw) -> list[Case]:
    """Several rates, two lengths and shares."""
    rates = 0.3 + torch.rand(5, generator=draw.generator)
    return [
        Case("200 keys and a share of 0.8", (rates, 200, 0.8)),
        Case("other rates, 90 keys and a share of 0.6", (rates.flip(0) + 0.1, 90, 0.6)),
    ]


EXERCISES = (
    Exercise(
        name="template_bias",
        cases=bias_cases,
        reference=bias,
        mistakes=(
            Mistake("the penalty grows linearly; the logarithm is missing",
                    lambda q, k, r: -r[:, None, None] * relative_position(q, k).abs()),
            Mistake("you count positions yourself: with a cache, the query is not at position 0",
                    lambda q, k, r: bias(torch.arange(len(q)), torch.arange(len(k)), r)),
            Mistake("keys to the right have no penalty; take the absolute distance",
                    lambda q, k, r: template_bias(relative_position(q, k).clamp(max=0), r)),
            Mistake("the rate stands before the logarithm, not inside it",
                    lambda q, k, r: -(1 + r[:, None, None] * relative_position(q, k).abs()).log()),
            Mistake("all heads have the rate of the first",
                    lambda q, k, r: bias(q, k, r[:1].expand_as(r))),
        ),
    ),
    Exercise(
        name="template_weights",
        cases=weights_cases,
        reference=weights,
        mistakes=(
            Mistake("the penalty acts after the softmax, so the weights of a query do not sum to 1",
                    lambda s, q, k, r: s.softmax(-1) * (1 + relative_position(q, k).abs()) ** -r),
            Mistake("far keys are preferred: the sign is flipped",
                    lambda s, q, k, r: weights(s, q, k, -r)),
            Mistake("the softmax runs over the keys, not over the queries",
                    lambda s, q, k, r: weights(s.T, k, q, r).T),
            Mistake("the penalty is missing", lambda s, q, k, r: s.softmax(-1)),
            Mistake("the rate is 1 always; it is an argument",
                    lambda s, q, k, r: weights(s, q, k, 1.0)),
            Mistake("these are logits; the softmax is missing",
                    lambda s, q, k, r: s + bias(q, k, torch.tensor([r]))[0]),
            Mistake("you count positions yourself; they are given",
                    lambda s, q, k, r: weights(s, torch.arange(len(q)), torch.arange(len(k)), r)),
        ),
    ),
    Exercise(
        name="template_reach",
        cases=reach_cases,
        reference=reach,
        mistakes=(
            Mistake("one key too few: with that many, the share is not reached yet",
                    lambda r, n, x: reach(r, n, x) - 1),
            Mistake("one key too many: one fewer is enough", lambda r, n, x: reach(r, n, x) + 1),
            Mistake("the weights fall as a power of the distance, not exponentially",
                    lambda r, n, x: count((-r[:, None] * torch.arange(n)).exp(), x)),
            Mistake("the weights must sum to 1 before shares are taken",
                    lambda r, n, x: (((1 + torch.arange(n).double()) ** -r.double()[:, None])
                                     .cumsum(1) < x).sum(1) + 1),
            Mistake("this is the reach of the other share, 1 - share",
                    lambda r, n, x: reach(r, n, 1 - x)),
            Mistake("far keys have the larger weights: the sign is flipped",
                    lambda r, n, x: reach(-r, n, x)),
            Mistake("the heads are in reverse order", lambda r, n, x: reach(r.flip(0), n, x)),
            Mistake("all heads have the reach of the first",
                    lambda r, n, x: reach(r[:1].expand_as(r), n, x)),
            Mistake("the share is 0.8 always; it is an argument",
                    lambda r, n, x: reach(r, n, 0.8)),
            Mistake("there are 200 keys always; the length is an argument",
                    lambda r, n, x: reach(r, 200, x)),
        ),
    ),
)  # fmt: skip
