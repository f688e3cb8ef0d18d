"""PoPE: the angle of a pair is position alone, and what it says is its length (chapter 17).

score_ij = sum over c of softplus(q_ic) softplus(k_jc) cos((j - i) w_c + b_c) / sqrt(d)

In RoPE the angle between a query's pair and a key's is made of two things, where the tokens stand
and which angle their contents had before. Here contents have no angle.
"""

import torch
from torch import Tensor, nn

from pe_lib.encoding import PositionEncoding, per_head, to_float64
from pe_lib.rope import rope_angles
from pe_lib.sinusoidal import frequencies


def apply_pope(x: Tensor, angles: Tensor) -> Tensor:
    """Give each component of x a length, softplus of itself, and an angle: the formula.

    Args:
        x: queries or keys, (..., L, d).
        angles: broadcastable to x, in radians; one for each component, not for each pair.

    Returns:
        (..., L, 2d), dtype of x: softplus(x) cos(angle), then softplus(x) sin(angle).

    Source: Gopalakrishnan et al. 2025.
    """
    length = torch.logaddexp(x, x.new_zeros(()))  # softplus(x)
    precise = torch.promote_types(x.dtype, torch.float32)
    cos, sin = (part.to(x.device, precise) for part in (angles.cos(), angles.sin()))
    return torch.cat([length * cos, length * sin], dim=-1).to(x.dtype)


class PoPE(PositionEncoding):
    """Polar coordinates: contents give lengths, positions give angles.

    Args:
        n_heads: number of heads H.
        head_dim: width d of a head; rotated queries and keys are twice as wide.
        base: of the d frequencies base ** (-c / d).

    Attributes:
        phase: (H, d), the trained angles b that are added to a key's; they start at 0, as the
            paper advises where longer texts are to follow. The authors keep them in [-2 pi, 0];
            an angle has no ends, so they are free here.

    Source: Gopalakrishnan et al. 2025.
    """

    cacheable_rotation = True
    is_linear = False

    def __init__(self, n_heads: int, head_dim: int, base: float = 10000.0) -> None:
        """Start with phases of zero."""
        super().__init__()
        self.n_heads, self.head_dim = n_heads, head_dim
        self.scale = head_dim**-0.5  # of the width before rotation
        self.inv_freq = frequencies(2 * head_dim, base)  # (d,)
        self.phase = nn.Parameter(torch.zeros(n_heads, head_dim))

    def rotate(self, q: Tensor, k: Tensor, q_pos: Tensor, k_pos: Tensor) -> tuple[Tensor, Tensor]:
        """Place q and k in polar coordinates: (B, H, L, d) each -> (B, H, L, 2d)."""
        q_angles, k_angles = (
            per_head(rope_angles(to_float64(p), self.inv_freq)) for p in (q_pos, k_pos)
        )
        ahead = k_angles + to_float64(self.phase).unsqueeze(1)  # (..., H, Lk, d)
        return apply_pope(q, q_angles), apply_pope(k, ahead)
