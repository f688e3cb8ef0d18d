"""TITLE: a penalty that grows with the logarithm of the distance (chapter NN)."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from pe_lib.errors import require_positive, require_real
from pe_lib.relative import RelativeBias, for_each_head


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
    distance = require_real("relative", relative).abs()
    rates = for_each_head(rates, distance)  # (H, 1, ...), in float32 or better
    return -rates * torch.log1p(distance.to(rates.dtype))


class Template(RelativeBias):
    """Add a bias that falls with the logarithm of the distance; each head trains its own rate.

    A bias of the distance alone writes `of_distance`. A method of another kind derives from
    `pe_lib.encoding.PositionEncoding` and overrides the hooks that it needs.

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

    def of_distance(self, relative: Tensor) -> Tensor:
        """Return the bias of relative positions: (...) -> (H, ...)."""
        return template_bias(relative, self.rates)
