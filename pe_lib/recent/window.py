"""A sliding window: no key farther away than its width is seen.

score_ij = q_i . k_j / sqrt(d) where |j - i| < window, and minus infinity elsewhere
"""

import math

import torch
from torch import Tensor

from pe_lib.relative import RelativeBias


class SlidingWindow(RelativeBias):
    """Hide keys that are `window` or more positions away, on both sides.

    Together with another encoding, `Compose(RoPE(d), SlidingWindow(h, w))`, it keeps the distances
    that this one meets below w, however long the text is. A query with no key inside its window
    gets zeros, as where a mask hides every key.

    Args:
        n_heads: number of heads H.
        window: distances seen, counting 0; a query sees itself and window - 1 keys on each side.

    Source: Beltagy et al. 2020, section 3.1; Yang et al. 2025 for RoPE inside windows beside
        layers without positions.
    """

    def __init__(self, n_heads: int, window: int) -> None:
        """Keep the width; nothing is trained."""
        super().__init__()
        self.n_heads, self.window = n_heads, window

    def of_distance(self, relative: Tensor) -> Tensor:
        """Return 0 inside the window and minus infinity outside: (...) -> (H, ...)."""
        outside = relative.abs() >= self.window
        bias = torch.zeros((), device=relative.device).masked_fill(outside, -math.inf)
        return bias.expand(self.n_heads, *relative.shape)
