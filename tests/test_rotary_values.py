"""Values rotated and rotated back arrive rotated by their distance; DeepSeek-V4: test_today.py."""

from __future__ import annotations

import pytest
import torch
from closeness import assert_close

from pe_lib import Compose, DynamicNTK, MultiHeadAttention, RoPE, RotaryValues, Shaw
from pe_lib.attention import attend
from pe_lib.rope import apply_rope, rope_angles


def drawn(*shape: int) -> torch.Tensor:
    return torch.randn(*shape, dtype=torch.float64)


def test_values_arrive_rotated_by_distance():
    torch.manual_seed(0)
    rope = RoPE(8, base=100)
    q, k, v = drawn(2, 3, 4, 8), drawn(2, 3, 6, 8), drawn(2, 3, 6, 8)
    output, weights = attend(q, k, v, RotaryValues(rope), 2, 0)
    for i in range(4):
        angles = rope_angles(torch.arange(6) - (i + 2), rope.inv_freq)
        expected = weights[:, :, i : i + 1] @ apply_rope(v, angles)  # (B, H, 1, d)
        assert_close(output[:, :, i : i + 1], expected, 1e-12)


def test_added_values_are_not_rotated_back():
    """Shaw's vectors are for distances: a shift of all positions changes nothing."""
    both = Compose(Shaw(8, 3), RotaryValues(RoPE(8)))
    layer, x = MultiHeadAttention(16, 2, both, causal=True).double(), torch.randn(1, 6, 16).double()
    assert_close(layer(x, q_pos=torch.arange(6) + 5), layer(x), 1e-12)


def test_what_cannot_rotate_values_is_refused():
    with pytest.raises(TypeError, match="rope must be a plain RoPE, got DynamicNTK"):
        RotaryValues(DynamicNTK(8, 2.0, 16))
    with pytest.raises(ValueError, match=r"rope must have the attention factor 1, got 1\.2"):
        RotaryValues(RoPE(8, attention_factor=1.2))
    with pytest.raises(ValueError, match="heads must have width 4, got 8"):
        MultiHeadAttention(16, 2, RotaryValues(RoPE(4)))(torch.zeros(1, 3, 16))
