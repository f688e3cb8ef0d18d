"""Initial weights that are the same numbers on every processor.

PyTorch draws float32 numbers by other formulas on processors with AVX2 than on older ones; the last
digit differs, and two trainings that start so drift apart. Here they are drawn in float64, where
the formulas agree, and rounded.
"""

import torch
from torch import Tensor, nn


def rounded(drawn: Tensor) -> Tensor:
    """Return numbers that were drawn in float64, in the default dtype and on the default device."""
    return drawn.to(torch.get_default_device(), torch.get_default_dtype())


def normal(*shape: int, std: float) -> Tensor:
    """Return normal numbers of the given shape, with mean 0 and standard deviation `std`."""
    return rounded(torch.randn(shape, dtype=torch.float64, device="cpu") * std)


def uniform(*shape: int, low: float, high: float) -> Tensor:
    """Return uniform numbers of the given shape, from `low` to `high`."""
    drawn = torch.rand(shape, dtype=torch.float64, device="cpu")
    return rounded(low + (high - low) * drawn)


def linear(n_in: int, n_out: int, *, bias: bool = True) -> nn.Linear:
    """Return a linear layer with PyTorch's usual range of weights: within 1 / sqrt(n_in) of 0."""
    layer = nn.Linear(n_in, n_out, bias=bias)
    bound = n_in**-0.5
    layer.weight.data = uniform(n_out, n_in, low=-bound, high=bound)
    if bias:
        layer.bias.data = uniform(n_out, low=-bound, high=bound)
    return layer
