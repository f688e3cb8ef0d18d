"""TITLE: against the formula, and the error table; tests/test_promises.py has the rest."""

from __future__ import annotations

import math

import pytest
import torch

from pe_lib.attention import MultiHeadAttention
from pe_lib.template import Template, template_bias


@pytest.mark.parametrize(("n_heads", "offset"), [(1, 0), (3, 0), (4, 17), (2, -5)])
def test_the_bias_follows_the_formula(n_heads: int, offset: int) -> None:
    encoding = Template(n_heads).double()
    q, k = torch.randn(2, n_heads, 5, 4).double(), torch.randn(2, n_heads, 7, 4).double()
    bias = encoding.bias(q, k, offset + torch.arange(5), torch.arange(7), scale=0.5)
    assert bias.shape == (n_heads, 5, 7)
    for h, rate in enumerate(encoding.rates.tolist()):
        for i in range(5):
            for j in range(7):
                expected = -rate * math.log(1 + abs(offset + i - j))
                assert bias[h, i, j].item() == pytest.approx(expected, rel=1e-12)


def test_reversed_positions_change_nothing() -> None:
    layer, x = MultiHeadAttention(12, 3, Template(3)).double(), torch.randn(2, 7, 12).double()
    places = torch.arange(7)
    torch.testing.assert_close(layer(x, q_pos=places.flip(0)), layer(x, q_pos=places))


def test_each_doubling_costs_the_same() -> None:
    bias = template_bias([0, 1, 3, 7, 15], torch.tensor([0.5, 2.0]))  # 1 + distance: 1, 2, 4, ...
    expected = torch.tensor([[0.5], [2.0]]) * -math.log(2)
    torch.testing.assert_close(bias.diff(), expected.expand(2, 4))


ERRORS = [
    (lambda: Template(0), ValueError, "n_heads must be at least 1, got 0"),
    (lambda: Template(2.0), TypeError, "n_heads must be an int, got 2.0"),
    (lambda: template_bias("far", torch.ones(2)), TypeError, "relative must be numbers"),
    (lambda: template_bias([True], torch.ones(2)), TypeError, "relative must be real numbers"),
    (lambda: MultiHeadAttention(8, 4, Template(2))(torch.randn(1, 3, 8)), ValueError, "n_heads=2"),
]


@pytest.mark.parametrize(("call", "error", "message"), ERRORS)
def test_a_wrong_argument_is_named(call: object, error: type[Exception], message: str) -> None:
    assert callable(call)
    with pytest.raises(error, match=message):
        call()
