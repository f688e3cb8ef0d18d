"""Forgetting attention: the bias is the sum over the gates between, in a layer and in a cache."""

from __future__ import annotations

import pytest
import torch
from closeness import assert_close

from pe_lib import ALiBi, Forgetting, MultiHeadAttention
from pe_lib.recent.forgetting import forgetting_bias


def test_the_bias_is_the_papers_sum():
    torch.manual_seed(0)
    gates = torch.rand(2, 3, 6, dtype=torch.float64)
    bias = forgetting_bias(gates.log(), 4)
    assert bias.shape == (2, 3, 4, 6)
    for i in range(4):
        assert (bias[..., i, i + 2] == 0).all()
        for j in range(i + 2):
            between = gates[..., j + 1 : i + 3]  # query i is token i + 2
            assert_close(bias[..., i, j], between.log().sum(dim=-1), 1e-12)


def test_equal_gates_make_it_alibi():
    """With the logarithm of every gate at minus a slope, the penalty is ALiBi's."""
    alibi, q = ALiBi(2), torch.zeros(1, 2, 5, 4, dtype=torch.float64)
    penalty = alibi.bias(q, q, torch.arange(5), torch.arange(5), 1.0)
    slopes = torch.tensor([2.0**-4, 2.0**-8], dtype=torch.float64)
    log_gates = -slopes[None, :, None].expand(1, 2, 5)
    past = torch.ones(5, 5, dtype=torch.bool).tril()
    assert_close(forgetting_bias(log_gates, 5)[0][:, past], penalty.expand(2, 5, 5)[:, past], 1e-12)


def test_a_closed_gate_hides_the_past():
    torch.manual_seed(0)
    layer = MultiHeadAttention(8, 2, Forgetting(8, 2), causal=True).double()
    x = torch.randn(1, 6, 8, dtype=torch.float64)
    with torch.no_grad():
        layer.encoding.gate.weight[:, 0] = 200.0
        x[..., 0], x[:, 3, 0] = 1.0, -1.0
    weights = layer.with_weights(x)[1]
    assert weights[..., 3:, :3].max() < 1e-20
    assert weights[..., 2, :3].min() > 1e-3


def test_queries_must_be_the_last_keys():
    layer = MultiHeadAttention(8, 2, Forgetting(8, 2), causal=True)
    x = torch.randn(1, 3, 8)
    for q_pos, k_pos in ((0, 0), (torch.arange(3), torch.arange(5))):
        with pytest.raises(ValueError, match=r"k_pos must ascend, .* and end with q_pos"):
            layer(x, context=torch.randn(1, 5, 8), q_pos=q_pos, k_pos=k_pos)


def test_more_queries_than_keys_are_refused():
    with pytest.raises(ValueError, match="n_queries must be from 1 to Lk=3, got 4"):
        forgetting_bias(torch.zeros(1, 1, 3), 4)
