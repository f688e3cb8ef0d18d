"""A sliding window: what is hidden has no weight, and what is seen has the weight it had."""

from __future__ import annotations

import pytest
import torch

from pe_lib import ALiBi, Compose, NoPosition, PositionEncoding, RoPE, SlidingWindow
from pe_lib.attention import attend, attend_fused


def test_it_equals_a_mask_of_distance() -> None:
    q, k, v = torch.randn(3, 2, 3, 9, 4, dtype=torch.float64)
    places = torch.arange(9)
    near = (places[:, None] - places).abs() < 4
    for inner in (RoPE(4), ALiBi(3)):
        windowed = attend(q, k, v, Compose(inner, SlidingWindow(3, 4)), places, places, causal=True)
        masked = attend(q, k, v, inner, places, places, causal=True, mask=near[None, None])
        assert torch.allclose(windowed[0], masked[0], atol=1e-12)
        assert not windowed[1][..., ~near].any()


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float32, torch.float64])
@pytest.mark.parametrize("inner", [NoPosition(), ALiBi(2), RoPE(4)])
def test_an_empty_window_gives_zeros(dtype: torch.dtype, inner: PositionEncoding) -> None:
    """Also far beyond what a dtype can hold, and in the fused form."""
    q, k, v = torch.randn(3, 1, 2, 5, 4).to(dtype)
    encoding = Compose(inner, SlidingWindow(2, 3))
    for start in (100, 800_000):
        for causal in (False, True):
            steps, weights = attend(q, k, v, encoding, start, 0, causal=causal)
            fused = attend_fused(q, k, v, encoding, start, 0, causal=causal)
            assert not any(each.any() for each in (weights, steps, fused))
