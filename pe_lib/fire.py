"""FIRE: a small network reads the distance as a share of the query's position (chapter 9)."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from pe_lib.encoding import PositionEncoding
from pe_lib.errors import require_floating, require_greater, require_heads, require_positive
from pe_lib.initial import linear
from pe_lib.positions import Positions, as_positions, as_tensor, relative_position


def fire_ratio(q_pos: Tensor, k_pos: Tensor, c: Tensor, threshold: Tensor) -> Tensor:
    """Return log(|c| distance + 1) / log(|c| max(query position, threshold) + 1).

    Args:
        q_pos: (Lq,) or (B, Lq), counted from 0 at the start of the sequence.
        k_pos: (Lk,) or (B, Lk).
        c: (), how fast the logarithm bends.
        threshold: (), L of the paper: queries nearer to the start are measured as if there.

    Returns:
        (Lq, Lk) or (B, Lq, Lk): from 0 to 1 for keys in the past.

    Source: Li et al. 2024; the distance |key - query| as in the listing of their appendix.
    """
    require_floating("c", c)
    require_floating("threshold", threshold)
    distance = relative_position(q_pos, k_pos).abs()
    reach = torch.maximum(q_pos.to(threshold.dtype), threshold).unsqueeze(-1)  # (..., Lq, 1)
    return torch.log1p(c.abs() * distance) / (torch.log1p(c.abs() * reach) + 1e-6)


class Fire(PositionEncoding):
    """Add a learned function of the distance relative to the query's position.

    It is no `RelativeBias`: past the threshold a shift of all positions changes the scores.

    Args:
        n_heads: number of heads H.
        width: hidden units of the network.
        c: initial value of c.
        threshold: initial value of L, in positions; a factor on it is trained.

    Raises:
        TypeError: if a number has the wrong type.
        ValueError: if a number is not positive.

    Source: Li et al. 2024; constants as in the listing of their appendix.
    """

    rotates_once = True

    def __init__(
        self, n_heads: int, *, width: int = 32, c: float = 0.1, threshold: float = 512.0
    ) -> None:
        """Create the network and the two trained numbers."""
        super().__init__()
        self.n_heads = require_positive("n_heads", n_heads)
        require_positive("width", width)
        self.threshold = require_greater("threshold", threshold, 0)
        self.c = nn.Parameter(torch.tensor(float(require_greater("c", c, 0))))
        self.factor = nn.Parameter(torch.tensor(1.0))
        self.network = nn.Sequential(linear(1, width), nn.ReLU(), linear(width, n_heads))

    def bias(
        self, q: Tensor, k: Tensor, q_pos: Positions, k_pos: Positions, scale: float
    ) -> Tensor:
        """Return (H, Lq, Lk), or (B, H, Lq, Lk) for positions with a batch axis."""
        require_heads(q, self.n_heads)
        q_pos = as_positions("q_pos", q_pos, q.shape[-2], q.shape[0], q.device)
        k_pos = as_positions("k_pos", k_pos, k.shape[-2], q.shape[0], q.device)
        precise = torch.promote_types(self.c.dtype, torch.float32)
        c, threshold = self.c.to(precise), (self.factor.to(precise) * self.threshold).abs()
        ratio = fire_ratio(as_tensor(q_pos, q.device), as_tensor(k_pos, q.device), c, threshold)
        ratio = ratio.to(self.c.dtype)  # (Lq, Lk) or (B, Lq, Lk)
        output: Tensor = self.network(ratio.unsqueeze(-1))  # (..., Lq, Lk, H)
        return output.movedim(-1, -3).to(q.dtype)
