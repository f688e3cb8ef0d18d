"""FIRE: a small network reads the distance as a share of the query's position (chapter 9).

score_ij = q_i . k_j / sqrt(d) + f(log(c |j - i| + 1) / log(c max(i, L) + 1))
"""

import torch
from torch import Tensor, nn

from pe_lib.encoding import PositionEncoding, relative_position
from pe_lib.initial import linear


def fire_ratio(q_pos: Tensor, k_pos: Tensor, c: Tensor, threshold: Tensor) -> Tensor:
    """Return log(|c| distance + 1) / log(|c| max(query position, threshold) + 1).

    Args:
        q_pos: (Lq,) or (B, Lq), counted from 0 at the start of the sequence. Positions below 0 give
            ratios that do not occur in training.
        k_pos: (Lk,) or (B, Lk).
        c: (), how fast the logarithm bends.
        threshold: (), L of the paper: queries nearer to the start are measured as if there.

    Returns:
        (Lq, Lk) or (B, Lq, Lk): from 0 to 1 for keys in the past.

    Source: Li et al. 2024; the distance |key - query| as in the listing of their appendix.
    """
    distance = relative_position(q_pos, k_pos).abs()
    reach = torch.maximum(q_pos.to(threshold.dtype), threshold).unsqueeze(-1)  # (..., Lq, 1)
    return torch.log1p(c.abs() * distance) / (torch.log1p(c.abs() * reach) + 1e-6)


class FIRE(PositionEncoding):
    """Add a learned function of the distance relative to the query's position.

    It is no `RelativeBias`: past the threshold a shift of all positions changes the scores.

    Args:
        n_heads: number of heads H.
        width: hidden units of the network.
        threshold: initial value of L, in positions; a factor on it is trained.

    Source: Li et al. 2024; constants as in the listing of their appendix.
    """

    cacheable_rotation = True

    def __init__(self, n_heads: int, *, width: int = 32, threshold: float = 512.0) -> None:
        """Create the network and the two trained numbers."""
        super().__init__()
        self.n_heads, self.threshold = n_heads, threshold
        self.c = nn.Parameter(torch.tensor(0.1))
        self.factor = nn.Parameter(torch.tensor(1.0))
        self.network = nn.Sequential(linear(1, width), nn.ReLU(), linear(width, n_heads))

    def bias(self, q: Tensor, k: Tensor, q_pos: Tensor, k_pos: Tensor, scale: float) -> Tensor:
        """Return (H, Lq, Lk), or (B, H, Lq, Lk) for positions with a batch axis."""
        precise = torch.promote_types(self.c.dtype, torch.float32)
        c, threshold = self.c.to(precise), (self.factor.to(precise) * self.threshold).abs()
        ratio = fire_ratio(q_pos, k_pos, c, threshold).to(self.c.dtype)  # (..., Lq, Lk)
        output: Tensor = self.network(ratio.unsqueeze(-1))  # (..., Lq, Lk, H)
        return output.movedim(-1, -3).to(q.dtype)
