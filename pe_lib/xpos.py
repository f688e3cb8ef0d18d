"""xPos: RoPE whose scores also fade with distance (causal attention only)."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from pe_lib.attention import per_head
from pe_lib.errors import require_greater
from pe_lib.rope import RoPE, rope_table, turn


class XPos(RoPE):
    """Turn as `RoPE` does, and let pair j of a score shrink by zeta_j per `scale_base` steps.

    A query at m is multiplied by zeta_j ** (m / scale_base), a key at n by the inverse, so that
    only m - n counts; for keys to the right (m < n) scores would grow without bound. Positions
    are first counted from the keys' middle, which no score sees but keeps numbers finite.

    Args:
        head_dim: width d of a head.
        scale_base: distance in positions over which pair j fades to zeta_j.
        gamma: zeta_j = (2j / r + gamma) / (1 + gamma): larger fades less.
        options: base, layout, rotary_dim, rates, gain and max_len as in `RoPE`.

    Source: Sun et al. 2022, algorithm 1.
    """

    def __init__(
        self, head_dim: int, *, scale_base: float = 512.0, gamma: float = 0.4, **options: Any
    ) -> None:
        """Compute zeta."""
        super().__init__(head_dim, **options)
        self.scale_base = require_greater("scale_base", scale_base, 0)
        require_greater("gamma", gamma, 0)
        share = torch.arange(len(self.rates), dtype=torch.float64) / len(self.rates)
        self.zeta = (share + gamma) / (1 + gamma)  # (r / 2,)

    def rotate(self, q: Tensor, k: Tensor, q_pos: Tensor, k_pos: Tensor) -> tuple[Tensor, Tensor]:
        """Turn and scale q (B, H, Lq, d) and k (B, H, Lk, d) by their positions."""
        self.check(q, k, q_pos, k_pos)
        middle = k_pos.double().mean(-1, keepdim=True)
        q_table, k_table = self.faded(q_pos - middle, 1), self.faded(k_pos - middle, -1)
        return turn(q, q_table, self.layout), turn(k, k_table, self.layout)

    def faded(self, places: Tensor, sign: int) -> Tensor:
        """Return the table of turns times zeta ** (sign * place / scale_base), for each head."""
        power = (sign * places / self.scale_base).unsqueeze(-1)
        gain = self.gain * self.zeta.to(places.device) ** power  # (..., L, r / 2)
        return per_head(rope_table(self.angles(places, self.rates), self.layout, gain))
