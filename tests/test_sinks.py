"""A sink takes its share of the softmax; test_today.py holds it against gpt-oss."""

from __future__ import annotations

import pytest
import torch
from closeness import assert_close
from torch import nn

from pe_lib import ALiBi, Compose, NoPosition, Sink
from pe_lib.attention import attend


def drawn(*shape: int) -> torch.Tensor:
    return torch.randn(*shape, dtype=torch.float64)


def test_a_low_sink_changes_nothing():
    torch.manual_seed(0)
    q, k, v = (drawn(1, 2, 4, 4) for _ in range(3))
    sink = Sink(2).double()
    nn.init.constant_(sink.logits, -1e4)
    assert_close(
        attend(q, k, v, sink, 0, 0)[0],
        attend(q, k, v, NoPosition(), 0, 0)[0],
        1e-14,
    )


def test_two_sinks_do_not_fit_one_softmax():
    with pytest.raises(ValueError, match=r"one at most with `sink`, got \['Sink', 'Sink'\]"):
        Compose(Sink(2), ALiBi(2), Sink(2))
