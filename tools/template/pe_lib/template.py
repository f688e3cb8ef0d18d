"""TITLE: a penalty that grows with the logarithm of the distance (chapter NN)."""

import torch
from torch import Tensor, nn

from pe_lib.arguments import Count, Reals, checked
from pe_lib.relative import RelativeBias, for_each_head


@checked(rates="H")
def template_bias(relative: Reals, rates: Tensor) -> Tensor:
    """Return -rate * log(1 + |relative position|).

    Args:
        relative: real numbers of any shape, key position minus query position.
        rates: (H,), above 0.

    Returns:
        (H, *relative.shape).

    Source: Chi et al. 2022, the logarithmic variant, with their second number fixed at 1.
    """
    distance = relative.abs()
    rates = for_each_head(rates, distance)  # (H, 1, ...), in float32 or better
    return -rates * torch.log1p(distance.to(rates.dtype))


class Template(RelativeBias):
    """Add a bias that falls with the logarithm of the distance; each head trains its own rate.

    A bias of the distance alone writes `of_distance`. A method of another kind derives from
    `pe_lib.encoding.PositionEncoding` and overrides the hooks that it needs.

    Args:
        n_heads: number of heads H.

    Source: as `template_bias`.
    """

    def __init__(self, n_heads: Count) -> None:
        """Spread the rates of the heads over a factor of twenty."""
        super().__init__()
        self.n_heads = n_heads
        self.log_rates = nn.Parameter(torch.linspace(-1.5, 1.5, n_heads))

    @property
    def rates(self) -> Tensor:
        """The rate of each head, (H,), above 0 wherever training takes it."""
        return self.log_rates.exp()

    def of_distance(self, relative: Tensor) -> Tensor:
        """Return the bias of relative positions: (...) -> (H, ...)."""
        return template_bias(relative, self.rates)
