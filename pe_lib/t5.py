"""T5's relative position bias: distances share buckets, each with a trained number (chapter 7)."""

from __future__ import annotations

import math

import torch
from torch import Tensor, nn

from pe_lib.errors import (
    require_bool,
    require_greater,
    require_integers,
    require_multiple,
    require_positive,
)
from pe_lib.initial import normal
from pe_lib.relative import RelativeBias


def check_buckets(n_buckets: int, max_distance: int, bidirectional: bool) -> tuple[int, int]:
    """Return both numbers as ints; raise if the buckets cannot be laid out: see `t5_bucket`."""
    if require_bool("bidirectional", bidirectional):
        require_multiple("n_buckets", n_buckets, 2, "half of them for keys on each side")
    n_buckets = require_positive("n_buckets", n_buckets)
    per_side = n_buckets // 2 if bidirectional else n_buckets
    if per_side < 2:
        raise ValueError(f"n_buckets must leave at least 2 for each side, got {n_buckets}")
    max_distance = require_positive("max_distance", max_distance)
    if max_distance <= per_side // 2:
        raise ValueError(
            f"max_distance must be above {per_side // 2}, the number of distances that "
            f"n_buckets={n_buckets} keep apart, got {max_distance}"
        )
    return n_buckets, max_distance


def t5_bucket(
    relative: object,
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

    Raises:
        TypeError: if relative is not integers, or a number is not an int.
        ValueError: if n_buckets is odd (bidirectional) or leaves fewer than two for a side, or
            max_distance is not above half the buckets of a side.

    Source: Raffel et al. 2020, section 2.1, and the authors' code.
    """
    n_buckets, max_distance = check_buckets(n_buckets, max_distance, bidirectional)
    offsets = require_integers("relative", relative).clamp(-max_distance, max_distance)
    per_side = n_buckets // 2 if bidirectional else n_buckets
    exact = per_side // 2
    distance = offsets.abs() if bidirectional else (-offsets).clamp(min=0)
    log_share = (distance.clamp(min=exact).float() / exact).log() / math.log(max_distance / exact)
    far = exact + (log_share * (per_side - exact)).long()
    bucket = torch.where(distance < exact, distance.long(), far.clamp(max=per_side - 1))
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

    Raises:
        TypeError: if a number is not an int, or positions are not integers.
        ValueError: if n_heads or std is not positive, or the buckets cannot be laid out.

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
        require_positive("n_heads", n_heads)
        self.n_buckets, self.max_distance = check_buckets(n_buckets, max_distance, bidirectional)
        require_greater("std", std, 0)
        self.bidirectional = bidirectional
        self.table = nn.Parameter(normal(n_buckets, n_heads, std=std))

    def of_distance(self, relative: Tensor) -> Tensor:
        """Look up the bias of integer relative positions: (...) -> (H, ...)."""
        buckets = t5_bucket(
            relative, self.n_buckets, self.max_distance, bidirectional=self.bidirectional
        )
        return self.table.T[:, buckets]
