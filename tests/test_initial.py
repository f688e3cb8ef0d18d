"""Initial weights: drawn in float64, rounded once."""

from __future__ import annotations

import pytest
import torch
from closeness import default_dtype

from pe_lib.initial import linear, normal, uniform


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float32, torch.float64])
def test_every_dtype_rounds_the_same_draws(dtype: torch.dtype) -> None:
    found = []
    for default in (torch.float64, dtype):
        torch.manual_seed(0)
        with default_dtype(default):
            found.append([normal(4, 3, std=0.5), uniform(7, low=-2, high=3)])
    for exact, rounded in zip(*found, strict=True):
        assert torch.equal(exact.to(dtype), rounded)


def test_draws_have_the_stated_range() -> None:
    assert normal(100, 100, std=0.3).std().item() == pytest.approx(0.3, rel=0.03)
    drawn = uniform(10_000, low=-2, high=3)
    assert -2 <= drawn.min() < -1.99 and 2.99 < drawn.max() <= 3
    layer = linear(16, 500)
    assert 0.24 < layer.weight.abs().max() <= 0.25 and 0.24 < layer.bias.abs().max() <= 0.25
    assert linear(2, 3, bias=False).bias is None
