"""Rotation of the last components: as in DeepSeek-V3, and the others as they were."""

from __future__ import annotations

from types import SimpleNamespace

import pytest
import torch
from closeness import assert_close
from torch import Tensor

from pe_lib import MultiHeadAttention, PoPE, RoPE, RotaryValues, T5Bias
from pe_lib.attention import attention_logits
from pe_lib.recent.mla import DecoupledRotation

PLACES = torch.arange(7) + 30


def drawn(*shape: int) -> Tensor:
    return torch.randn(*shape, dtype=torch.float64)


def test_scores_equal_deepseek_v3() -> None:
    from transformers.models.deepseek_v3 import modeling_deepseek_v3 as code

    config = SimpleNamespace(
        rope_parameters={"rope_type": "default", "rope_theta": 1e4},
        max_position_embeddings=64,
        head_dim=8,
    )
    q, k = torch.randn(2, 2, 3, 7, 24)
    cos, sin = code.DeepseekV3RotaryEmbedding(config)(q, PLACES[None])  # type: ignore[arg-type]
    last = code.apply_rotary_pos_emb_interleave(q[..., 16:], k[..., 16:], cos, sin)
    theirs = [torch.cat([x[..., :16], y], -1) for x, y in zip((q, k), last, strict=True)]
    ours = attention_logits(q, k, DecoupledRotation(RoPE(8), 8), PLACES, PLACES)
    assert_close(ours, theirs[0] @ theirs[1].mT * 24**-0.5)


def test_only_the_last_components_rotate() -> None:
    values, x = RotaryValues(RoPE(4)), drawn(2, 3, 7, 10)
    trailing, last = DecoupledRotation(values, 4), x[..., 6:]
    for ours, theirs in (
        (trailing.rotate(x, x, PLACES, PLACES)[1], values.rotate(last, last, PLACES, PLACES)[1]),
        (trailing.rotate_values(x, PLACES), values.rotate_values(last, PLACES)),
        (trailing.rotate_back(x, PLACES), values.rotate_back(last, PLACES)),
    ):
        assert torch.equal(ours, torch.cat([x[..., :6], theirs], dim=-1))


def test_it_uses_what_the_inner_one_uses() -> None:
    rope, values = DecoupledRotation(RoPE(4), 4), DecoupledRotation(RotaryValues(RoPE(4)), 4)
    assert rope.cacheable_rotation and not rope.uses("rotate_values")
    assert values.uses("rotate_values") and not values.uses("bias")


def test_what_does_not_fit_is_refused() -> None:
    with pytest.raises(ValueError, match="encoding must only rotate, got one that uses bias"):
        DecoupledRotation(T5Bias(2), 4)
    with pytest.raises(ValueError, match=r"no scale of its own, got 0\.5"):
        DecoupledRotation(PoPE(2, 4), 4)
    with pytest.raises(ValueError, match="encoding must have head_dim=8, got 4"):
        DecoupledRotation(RoPE(4), 8)
    with pytest.raises(ValueError, match="q must have heads of width >= 12, got 8"):
        MultiHeadAttention(24, 3, DecoupledRotation(RoPE(12), 12))(torch.zeros(1, 5, 24))
