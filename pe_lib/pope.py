"""PoPE: the angle of a pair is position alone, and what it says is its length (chapter 15).

In RoPE the angle between a query's pair and a key's is made of two things, where the tokens stand
and which angle their contents had before. Here contents have no angle.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn

from pe_lib.errors import broadcasts, require_floating, require_positive
from pe_lib.fast import CachedCodes
from pe_lib.positions import Positions, as_positions, in_float64, per_head, sent
from pe_lib.sinusoidal import frequencies


def apply_pope(x: Tensor, angles: Tensor) -> Tensor:
    """Give each component of x a length, softplus of itself, and an angle: the formula.

    Args:
        x: queries or keys, (..., L, d).
        angles: broadcastable to x, in radians; one for each component, not for each pair.

    Returns:
        (..., L, 2d), dtype of x: softplus(x) cos(angle), then softplus(x) sin(angle).

    Raises:
        TypeError: if x or angles are not floating-point tensors.
        ValueError: if angles do not have x's last two axes, or do not broadcast to x.

    Source: Gopalakrishnan et al. 2025.
    """
    require_floating("x", x)
    wanted, given = x.shape, require_floating("angles", angles).shape
    if len(given) < 2 or given[-2:] != wanted[-2:] or not broadcasts(given, wanted):
        raise ValueError(
            "angles must have the last two axes of x and broadcast to it, "
            f"got {tuple(given)} for x of shape {tuple(wanted)}"
        )
    return polar(x, angles.cos(), angles.sin())


def polar(x: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
    """Return the points with the lengths softplus(x) at angles with these cosines and sines."""
    length = torch.logaddexp(x, x.new_zeros(()))  # softplus(x)
    return torch.cat([length * cos, length * sin], dim=-1).to(x.dtype)  # (..., L, 2d)


class PoPE(CachedCodes):
    """Polar coordinates: contents give lengths, positions give angles.

    The score is the sum over components c of softplus(q_c) softplus(k_c) cos((n - m) w_c + b_c).

    Args:
        n_heads: number of heads H.
        head_dim: width d of a head; rotated queries and keys are twice as wide.
        base: of the d frequencies base ** (-c / d).
        max_len: rows of the cache; other positions are computed on demand.

    Attributes:
        phase: (H, d), the trained angles b that are added to a key's; they start at 0, as the
            paper advises where longer texts are to follow. The authors keep them in [-2 pi, 0];
            an angle has no ends, so they are free here.

    Source: Gopalakrishnan et al. 2025.
    """

    rotates_once = True

    def __init__(
        self, n_heads: int, head_dim: int, base: float = 10000.0, *, max_len: int = 2048
    ) -> None:
        """Cache cosines and sines of the first `max_len` positions."""
        super().__init__()
        require_positive("n_heads", n_heads)
        self.head_dim = require_positive("head_dim", head_dim)
        self.scale = head_dim**-0.5  # of the width before rotation
        self.rates = frequencies(2 * head_dim, base)  # (d,)
        self.phase = nn.Parameter(torch.zeros(n_heads, head_dim))
        self.max_len = require_positive("max_len", max_len)
        self.fill_cache(torch.float32, "cpu")  # (max_len, 2d)

    def compute(self, positions: Tensor) -> Tensor:
        """Return cosines, then sines, of any positions in float64: (...) -> (..., 2d)."""
        places = in_float64(positions)
        angles = places.unsqueeze(-1) * sent(self.rates, places.device)  # (..., d)
        return torch.cat([angles.cos(), angles.sin()], dim=-1)

    def rotate(
        self, q: Tensor, k: Tensor, q_pos: Positions, k_pos: Positions
    ) -> tuple[Tensor, Tensor]:
        """Place q and k in polar coordinates: (B, H, L, d) each -> (B, H, L, 2d).

        Raises:
            ValueError: if q or k have other heads or another width, or positions another length.
        """
        heads = len(self.phase)
        for name, x in (("q", q), ("k", k)):
            require_floating(name, x)
            if x.ndim != 4 or x.shape[1] != heads or x.shape[3] != self.head_dim:
                raise ValueError(
                    f"{name} must have shape (B, n_heads={heads}, L, head_dim={self.head_dim}), "
                    f"got {tuple(x.shape)}"
                )
        q_pos = as_positions("q_pos", q_pos, q.shape[2], q.shape[0], q.device)
        k_pos = as_positions("k_pos", k_pos, k.shape[2], k.shape[0], k.device)
        q_cos, q_sin = per_head(self.codes(q_pos, q)).chunk(2, dim=-1)  # (..., 1, L, d)
        k_cos, k_sin = per_head(self.codes(k_pos, k)).chunk(2, dim=-1)
        phase = self.phase.to(k_cos.dtype).unsqueeze(1)  # (H, 1, d)
        cos, sin = phase.cos(), phase.sin()
        ahead = k_cos * cos - k_sin * sin, k_sin * cos + k_cos * sin  # of angle plus phase
        return polar(q, q_cos, q_sin), polar(k, *ahead)
