"""TITLE: a penalty that grows with the logarithm of the distance (chapter NN)."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from pe_lib.attention import PositionEncoding, relative_position
from pe_lib.errors import require_positive, require_real


def template_bias(relative: object, rates: Tensor) -> Tensor:
    """Return -rate * log(1 + |relative position|).

    Args:
        relative: real numbers of any shape, key position minus query position.
        rates: (H,), above 0.

    Returns:
        (H, *relative.shape).

    Raises:
        TypeError: if relative is not real numbers.

    Source: Chi et al. 2022, the logarithmic variant, with their second number fixed at 1.
    """
    distance = require_real("relative", relative).abs().to(rates.dtype)
    return -rates.view(-1, *[1] * distance.ndim) * torch.log1p(distance)


class Template(PositionEncoding):
    """Add a bias that falls with the logarithm of the distance; each head trains its own rate.

    A bias of the distance alone may derive from `pe_lib.relative.RelativeBias` instead, and
    then writes `of_distance` only: less memory for long sequences.

    Args:
        n_heads: number of heads H.

    Raises:
        TypeError: if n_heads is not an int.
        ValueError: if n_heads is below 1.

    Source: as `template_bias`.
    """

    def __init__(self, n_heads: int) -> None:
        """Spread the rates of the heads over a factor of twenty."""
        super().__init__()
        require_positive("n_heads", n_heads)
        self.log_rates = nn.Parameter(torch.linspace(-1.5, 1.5, n_heads))

    @property
    def rates(self) -> Tensor:
        """The rate of each head, (H,), above 0 wherever training takes it."""
        return self.log_rates.exp()

    def bias(self, q: Tensor, k: Tensor, q_pos: Tensor, k_pos: Tensor) -> Tensor:
        """Return (H, Lq, Lk), or (B, H, Lq, Lk) for positions with a batch axis."""
        if len(self.rates) != q.shape[1]:
            raise ValueError(f"q must have {len(self.rates)} heads, got {q.shape[1]}")
        pairs = relative_position(q_pos, k_pos)  # (Lq, Lk) or (B, Lq, Lk)
        return template_bias(pairs, self.rates).movedim(0, -3)
