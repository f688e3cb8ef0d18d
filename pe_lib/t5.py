"""T5's relative position bias: distances share buckets, each with a trained number (chapter 7).

score_ij = q_i . k_j + table[bucket(j - i)],     without 1 / sqrt(d)
"""

import math

import torch
from torch import Tensor, nn

from pe_lib.initial import normal
from pe_lib.relative import RelativeBias


def t5_bucket(
    relative: Tensor,
    n_buckets: int = 32,
    max_distance: int = 128,
    *,
    bidirectional: bool = True,
) -> Tensor:
    """Return the bucket of each relative position.

    Of the buckets on one side, the first half hold one distance each; the others grow
    logarithmically up to `max_distance`, and the last takes every distance from there on (it
    starts earlier: at 91 of 128 with the bidirectional default, at 113 with the causal one).
    The logarithm is taken in float32, as in the authors' code: trained tables rely on it where
    a distance falls on an edge.

    Args:
        relative: integers of any shape, key position minus query position.
        n_buckets: rows of the table; even if bidirectional.
        max_distance: where the logarithm reaches the end of the last bucket.
        bidirectional: True: keys to the right have the upper half of the buckets (encoder).
            False: all buckets are for the past, and a key to the right counts as distance 0;
            the causal mask hides it (decoder).

    Returns:
        int64, the shape of `relative`, from 0 to n_buckets - 1.

    Source: Raffel et al. 2020, section 2.1, and the authors' code.
    """
    relative = torch.as_tensor(relative)
    if relative.is_floating_point():
        raise TypeError(f"relative must be integers, got {relative.dtype}")
    per_side = n_buckets // (1 + bidirectional)
    exact = per_side // 2
    if n_buckets % (1 + bidirectional) or not 1 <= exact < max_distance:
        raise ValueError(
            "n_buckets must be even if bidirectional, leave at least 2 for each side, and keep "
            f"fewer distances apart ({exact}) than max_distance={max_distance}, got {n_buckets}"
        )
    offsets = relative.clamp(-max_distance, max_distance)
    distance = offsets.abs() if bidirectional else (-offsets).clamp(min=0)
    log_share = (distance.clamp(min=exact).float() / exact).log() / math.log(max_distance / exact)
    far = exact + (log_share * (per_side - exact)).long()
    bucket = torch.where(distance < exact, distance, far.clamp(max=per_side - 1))
    return bucket + per_side * (offsets > 0) if bidirectional else bucket


class T5Bias(RelativeBias):
    """Add a trained number per head and bucket; scores are not divided by sqrt(d).

    T5 has one such table per stack: give the same instance to every layer. Without 1/sqrt(d),
    T5 starts from query weights that are smaller by that factor; so should a model trained
    from scratch.

    Args:
        n_heads: number of heads H.
        n_buckets: as in `t5_bucket`.
        max_distance: as in `t5_bucket`.
        bidirectional: as in `t5_bucket`; False for a decoder.
        std: standard deviation of the initial table, (n_buckets, H) as in published weights.

    Source: Raffel et al. 2020, section 2.1.
    """

    scale = 1.0

    def __init__(
        self,
        n_heads: int,
        n_buckets: int = 32,
        max_distance: int = 128,
        *,
        bidirectional: bool = True,
        std: float = 0.02,
    ) -> None:
        """Draw the table from a normal distribution."""
        super().__init__()
        self.n_heads, self.n_buckets, self.max_distance = n_heads, n_buckets, max_distance
        self.bidirectional, self.causal_only = bidirectional, not bidirectional
        self.table = nn.Parameter(normal(n_buckets, n_heads, std=std))
        self.of_distance(torch.zeros(1).long())  # raises if the buckets cannot be laid out

    def of_distance(self, relative: Tensor) -> Tensor:
        """Look up the bias of integer relative positions: (...) -> (H, ...)."""
        buckets = t5_bucket(
            relative, self.n_buckets, self.max_distance, bidirectional=self.bidirectional
        )
        return self.table.T[:, buckets]
