"""xPos: RoPE whose scores also fade with distance (causal attention only; chapter 10).

a query at m is multiplied by zeta_j ** (m / scale_base), a key at n by zeta_j ** (-n / scale_base)
"""

from typing import Any

import torch
from torch import Tensor

from pe_lib.encoding import per_head, to_float64
from pe_lib.rope import RoPE


def xpos_factors(positions: Tensor, zeta: Tensor, scale_base: float) -> Tensor:
    """Return what the pairs of a query are multiplied by; those of a key, by the inverse.

    Args:
        positions: real numbers of any shape.
        zeta: (n,), from 0 to 1: how much of pair j is left after `scale_base` positions.
        scale_base: in positions.

    Returns:
        (*positions.shape, n): zeta_j ** (position / scale_base).

    Source: Sun et al. 2022, algorithm 1.
    """
    power = (1 / scale_base * positions).unsqueeze(-1)  # (..., 1)
    return (power * zeta.log().to(positions.device)).exp()


class XPos(RoPE):
    """Rotate as `RoPE` does, and let pair j of a score shrink by zeta_j per `scale_base` steps.

    Only m - n counts; for keys to the right (m < n) scores would grow without bound. Positions
    are counted from the keys' middle, which no score sees. The factors still grow with the
    length: with scale_base 512, half of all positions may lie some 3,400 to one side in float16,
    and 17,000 in float32, before they overflow and outputs are no numbers.

    Args:
        head_dim: width d of a head.
        scale_base: positions over which pair j shrinks by zeta_j.
        gamma: zeta_j = (j / n + gamma) / (1 + gamma), for n pairs.
        options: base, layout, rotary_dim, inv_freq and attention_factor as in `RoPE`.

    Source: Sun et al. 2022, algorithm 1.
    """

    causal_only = True
    scales_pairs = True

    def __init__(
        self, head_dim: int, *, scale_base: float = 512.0, gamma: float = 0.4, **options: Any
    ) -> None:
        """Compute zeta."""
        super().__init__(head_dim, **options)
        self.scale_base = scale_base
        share = torch.arange(len(self.inv_freq), dtype=torch.float64, device="cpu") / len(
            self.inv_freq
        )
        self.zeta = (share + gamma) / (1 + gamma)  # (n,)

    def rotate(self, q: Tensor, k: Tensor, q_pos: Tensor, k_pos: Tensor) -> tuple[Tensor, Tensor]:
        """Rotate and scale q (B, H, Lq, d) and k (B, H, Lk, d) by their positions."""
        q_pos, k_pos = to_float64(q_pos), to_float64(k_pos)
        middle = (k_pos.amin(-1, keepdim=True) + k_pos.amax(-1, keepdim=True)) / 2  # (1,) or (B, 1)
        return self.apply_xpos_scale(q, q_pos, middle, 1), self.apply_xpos_scale(
            k, k_pos, middle, -1
        )

    def apply_xpos_scale(self, x: Tensor, positions: Tensor, middle: Tensor, sign: int) -> Tensor:
        """Rotate x and multiply it by `xpos_factors`, or with the sign -1 by their inverse."""
        factors = per_head(xpos_factors(sign * (positions - middle), self.zeta, self.scale_base))
        return self.rotated_by(x, self.angles(positions), factors)
