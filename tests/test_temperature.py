"""Temperatures: against formulas and Ministral 3, and what they do for a long text."""

from __future__ import annotations

import math

import pytest
import torch

from pe_lib.attention import attend, attention_logits
from pe_lib.encoding import NoPosition
from pe_lib.recent.temperature import (
    QueryTemperature,
    ScalableSoftmax,
    log_count,
    query_factor,
    starting_strength,
)


def test_scores_are_multiplied_by_s_log_n() -> None:
    encoding = ScalableSoftmax(3, 16).double()
    torch.nn.init.uniform_(encoding.strength)
    q, k = torch.randn(2, 2, 3, 5, 4, dtype=torch.float64)
    positions = torch.arange(7, 12)
    scores = attention_logits(q, k, encoding, positions, positions)
    plain = attention_logits(q, k, NoPosition(), positions, positions)
    for i, position in enumerate(positions.tolist()):
        factor = encoding.strength * math.log(position + 1)  # n counts the query itself
        assert torch.allclose(scores[:, :, i], plain[:, :, i] * factor.view(3, 1), atol=1e-12)


def test_scores_start_as_large_as_ever() -> None:
    assert starting_strength(1024) == pytest.approx(0.168, abs=5e-4)
    factors = starting_strength(64) * log_count(torch.arange(64))
    assert float(factors.mean()) == pytest.approx(1)


def test_the_largest_weight_does_not_fade() -> None:
    """One key scores 5 more than all others: with s at least 0.2 it keeps most of the weight."""

    def weight(encoding: torch.nn.Module, length: int) -> float:
        q = torch.ones(1, 1, 1, 1, dtype=torch.float64)
        k = torch.zeros(1, 1, length, 1, dtype=torch.float64)
        k[..., length // 2, :] = 5
        at = torch.tensor([length - 1])
        return float(attend(q, k, k, encoding, at, torch.arange(length))[1].detach().max())

    scaled = ScalableSoftmax(1, 16).double()
    torch.nn.init.constant_(scaled.strength, 0.43)
    assert weight(NoPosition(), 16) > 0.9 and weight(NoPosition(), 4096) < 0.05
    assert weight(scaled, 16) > 0.9 and weight(scaled, 4096) > 0.99


def test_steps_equal_ministral3() -> None:
    from transformers.models.ministral3.modeling_ministral3 import get_llama_4_attn_scale

    places, q = torch.tensor([0, 5, 8191, 8192, 50_000]), torch.randn(2, 3, 5, 4)
    theirs = q * get_llama_4_attn_scale(places[None].float(), 0.1, 8192)
    ours, k = QueryTemperature(0.1, 8192).rotate(q, q, places, places)
    torch.testing.assert_close(ours, theirs, atol=1e-6, rtol=1e-6)
    assert k is q


def test_powers_grow_smoothly() -> None:
    found = query_factor(torch.tensor([-9, 0, 3]), 0.5, 4, offset=1, growth="power")
    torch.testing.assert_close(found, torch.tensor([1, 1.25, 2.0]).double().sqrt())
    with pytest.raises(ValueError, match="growth must be steps or power, got 'linear'"):
        query_factor(torch.zeros(1), 0.5, 4, growth="linear")


def test_one_key_has_no_strength() -> None:
    with pytest.raises(ValueError, match="length must be at least 2, got 1"):
        starting_strength(1)
