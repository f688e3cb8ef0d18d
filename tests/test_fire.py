"""FIRE: against the paper's formula, and what it promises."""

from __future__ import annotations

import math

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from pe_lib.attention import MultiHeadAttention
from pe_lib.fire import FIRE

B, H, D, LENGTH = 2, 3, 12, 11


def make(threshold: float = 4.0, n_heads: int = H, seed: int = 0) -> FIRE:
    torch.manual_seed(seed)
    return FIRE(n_heads, width=5, threshold=threshold)


def make_attention(*, causal: bool = True, threshold: float = 4.0) -> MultiHeadAttention:
    return MultiHeadAttention(D, H, make(threshold), causal=causal)


def formula(encoding: FIRE, i: float, j: float) -> list[float]:
    """Li et al. 2024: f(psi(i - j) / psi(max(L, i))), psi(x) = log(c x + 1), in Python numbers.

    The listing in their appendix adds 1e-6 below the fraction and takes |c|, |L| and |i - j|.
    """
    c, reach = abs(encoding.c.item()), abs(encoding.factor.item() * encoding.threshold)
    share = math.log(c * abs(i - j) + 1) / (math.log(c * max(reach, i) + 1) + 1e-6)
    first, _, second = encoding.network
    weights = zip(first.weight[:, 0].tolist(), first.bias.tolist(), strict=True)
    hidden = [max(0.0, w * share + b) for w, b in weights]
    return [
        sum(w * h for w, h in zip(row, hidden, strict=True)) + b
        for row, b in zip(second.weight.tolist(), second.bias.tolist(), strict=True)
    ]


@settings(max_examples=25, deadline=None)
@given(st.integers(1, 4), st.integers(1, 6), st.integers(0, 30), st.integers(0, 9), st.booleans())
def test_the_bias_follows_the_formula(
    n_queries: int, n_keys: int, offset: int, seed: int, negative: bool
) -> None:
    encoding = make(n_heads=4, seed=seed)
    if negative:  # only the absolute values count
        with torch.no_grad():
            encoding.c.neg_(), encoding.factor.mul_(-1.5)
    q, k = torch.randn(B, 4, n_queries, 3), torch.randn(B, 4, n_keys, 3)
    bias = encoding.bias(q, k, offset + torch.arange(n_queries), torch.arange(n_keys), 1.0)
    assert bias.shape == (4, n_queries, n_keys)
    for i in range(n_queries):
        for j in range(n_keys):
            expected = formula(encoding, offset + i, j)
            assert bias[:, i, j].tolist() == pytest.approx(expected, rel=1e-5, abs=1e-6)


def test_a_shift_matters_above_the_threshold() -> None:
    x, positions = torch.randn(B, LENGTH, D), torch.arange(LENGTH)
    below, above = make_attention(threshold=100.0), make_attention(threshold=4.0)
    torch.testing.assert_close(below(x, q_pos=positions + 50), below(x), rtol=1e-5, atol=1e-6)
    assert (above(x, q_pos=positions + 50) - above(x)).abs().max() > 1e-5


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float64])
def test_the_share_has_float32_or_better(dtype: torch.dtype) -> None:
    encoding, positions = make(threshold=512.0), torch.arange(3000)
    q, k = torch.randn(1, H, 2, 4), torch.randn(1, H, 3000, 4)
    exact = encoding.bias(q, k, positions[-2:], positions, 1.0)
    got = encoding.to(dtype).bias(q.to(dtype), k.to(dtype), positions[-2:], positions, 1.0)
    assert got.dtype == dtype
    tolerance = 4 * max(torch.finfo(dtype).eps, 1e-6)
    torch.testing.assert_close(got.float(), exact, rtol=tolerance, atol=tolerance)
