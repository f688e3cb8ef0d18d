"""A sliding window: no key farther away than its width is seen (chapter 15)."""

from __future__ import annotations

import torch
from torch import Tensor

from pe_lib.errors import require_positive, require_real
from pe_lib.relative import RelativeBias

HIDDEN = -30000.0  # its exponential is 0 in every dtype, and it is a number in every dtype


class SlidingWindow(RelativeBias):
    """Hide keys that are `window` or more positions away, on both sides.

    Together with another encoding, `Compose(RoPE(d), SlidingWindow(h, w))`, it keeps the distances
    that this one meets below w, however long the text is. A query with no key inside its window
    sees all keys, as if it had none.

    Args:
        n_heads: number of heads H.
        window: distances seen, counting 0; a query sees itself and window - 1 keys on each side.

    Source: Beltagy et al. 2020, section 3.1; Yang et al. 2025 for RoPE inside windows beside
        layers without positions.
    """

    def __init__(self, n_heads: int, window: int) -> None:
        """Keep the width; nothing is trained."""
        super().__init__()
        self.n_heads = require_positive("n_heads", n_heads)
        self.window = require_positive("window", window)

    def of_distance(self, relative: Tensor) -> Tensor:
        """Return 0 inside the window and `HIDDEN` outside: (...) -> (H, ...)."""
        outside = require_real("relative", relative).abs() >= self.window
        bias = torch.zeros((), device=outside.device).masked_fill(outside, HIDDEN)
        return bias.expand(self.n_heads, *outside.shape)
