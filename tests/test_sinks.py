"""A sink takes its share of the softmax, as in the published code of gpt-oss."""

from __future__ import annotations

from types import SimpleNamespace

import pytest
import torch
from closeness import assert_close
from torch import nn

from pe_lib import ALiBi, Compose, NoPosition, Sink
from pe_lib.attention import attend


def drawn(*shape: int) -> torch.Tensor:
    return torch.randn(*shape, dtype=torch.float64)


def test_attention_with_a_sink_equals_gpt_oss():
    from transformers.models.gpt_oss.modeling_gpt_oss import eager_attention_forward

    torch.manual_seed(0)
    q, k, v = drawn(2, 3, 5, 4), drawn(2, 3, 7, 4), drawn(2, 3, 7, 4)
    sink = Sink(3, std=1.0).double()
    module = SimpleNamespace(sinks=sink.logits, num_key_value_groups=1, training=False)
    future = torch.triu(torch.full((5, 7), float("-inf"), dtype=torch.float64), 3)
    expected, weights = eager_attention_forward(
        module, q, k, v, future[None, None], scaling=0.5, dropout=0.0
    )
    output, found = attend(q, k, v, sink, range(2, 7), range(7), causal=True)
    assert_close(found, weights, 1e-12)
    assert_close(output, expected.transpose(1, 2), 1e-12)
    assert (found.sum(dim=-1) < 1).all()


def test_a_sink_far_below_all_logits_changes_nothing():
    torch.manual_seed(0)
    q, k, v = (drawn(1, 2, 4, 4) for _ in range(3))
    sink = Sink(2).double()
    nn.init.constant_(sink.logits, -1e4)
    assert_close(
        attend(q, k, v, sink, range(4), range(4))[0],
        attend(q, k, v, NoPosition(), range(4), range(4))[0],
        1e-14,
    )


def test_two_sinks_do_not_fit_one_softmax():
    with pytest.raises(ValueError, match=r"one at most with `sink`, got \['Sink', 'Sink'\]"):
        Compose(Sink(2), ALiBi(2), Sink(2))
