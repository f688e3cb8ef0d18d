"""ALiBi: against the published code and the paper's formula."""

from __future__ import annotations

import math

import pytest
import torch
from closeness import difference
from hypothesis import given, settings
from hypothesis import strategies as st
from transformers.models.bloom.modeling_bloom import build_alibi_tensor
from transformers.models.mpt.modeling_mpt import build_mpt_alibi_tensor
from x_transformers.x_transformers import AlibiPositionalBias

from pe_lib.alibi import ALiBi, alibi, alibi_slopes

HEADS = [1, 2, 3, 4, 5, 6, 7, 8, 12, 16, 20, 25, 40, 64, 112]


def slopes_of_the_paper(n_heads: int) -> list[float]:
    """A geometric series that starts at its own ratio, 2 ** (-8 / n).

    For another count: the series of the next lower power of two, then every second number of
    the series of twice that power.
    """

    def series(n: int) -> list[float]:
        ratio = 2 ** (-8 / n)
        slopes = [ratio]
        while len(slopes) < n:
            slopes.append(slopes[-1] * ratio)
        return slopes

    lower = 1
    while lower * 2 <= n_heads:
        lower *= 2
    return series(lower) + series(2 * lower)[::2][: n_heads - lower]


def bias_of(encoding: ALiBi, n_queries: int, n_keys: int, offset: int = 0) -> torch.Tensor:
    q = torch.randn(2, encoding.n_heads, n_queries, 4)
    k = torch.randn(2, encoding.n_heads, n_keys, 4)
    return encoding.bias(q, k, offset + torch.arange(n_queries), torch.arange(n_keys), 1.0)


# --- slopes --------------------------------------------------------------------------------------


@pytest.mark.parametrize("n_heads", HEADS)
def test_slopes_follow_the_paper(n_heads: int) -> None:
    slopes = alibi_slopes(n_heads)
    assert slopes.shape == (n_heads,)
    assert slopes.dtype == torch.float32
    expected = torch.tensor(slopes_of_the_paper(n_heads))
    torch.testing.assert_close(slopes, expected, rtol=1e-6, atol=0)


@pytest.mark.parametrize("n_heads", HEADS)
def test_slopes_equal_three_libraries(n_heads: int) -> None:
    # In BLOOM key 1 of a sequence gets one slope; in MPT the last key but one gets minus one.
    bloom = build_alibi_tensor(torch.ones(1, 2), n_heads, torch.float32)[:, 0, 1]
    mpt = -build_mpt_alibi_tensor(n_heads, 2)[:, 0, 0]
    second = torch.tensor(AlibiPositionalBias._get_slopes(n_heads))
    for theirs in (bloom, mpt, second):
        torch.testing.assert_close(alibi_slopes(n_heads), theirs, rtol=1e-6, atol=0)


# --- bias ----------------------------------------------------------------------------------------


@settings(max_examples=25, deadline=None)
@given(st.integers(1, 13), st.integers(1, 5), st.integers(1, 6), st.integers(-9, 9), st.booleans())
def test_the_bias_follows_the_formula(
    n_heads: int, n_queries: int, n_keys: int, offset: int, symmetric: bool
) -> None:
    bias = bias_of(ALiBi(n_heads, symmetric=symmetric), n_queries, n_keys, offset)
    slopes = slopes_of_the_paper(n_heads)
    assert bias.shape == (n_heads, n_queries, n_keys)
    for h in range(n_heads):
        for i in range(n_queries):
            for j in range(n_keys):
                distance = (offset + i) - j  # the paper's sign: query - key
                expected = -slopes[h] * (abs(distance) if symmetric else distance)
                assert bias[h, i, j].item() == pytest.approx(expected, rel=1e-6)


@pytest.mark.parametrize("n_heads", [3, 8, 12])
@pytest.mark.parametrize("padding", [0, 4])
def test_the_bias_equals_bloom_behind_softmax(n_heads: int, padding: int) -> None:
    # BLOOM adds slope * key position; ours is slope * (key - query). Keys are counted from the
    # first token that is no padding, and padding counts as position 0.
    length = 19
    seen = torch.ones(2, length, dtype=torch.long)
    seen[0, :padding] = 0
    theirs = build_alibi_tensor(seen, n_heads, torch.float32).view(2, n_heads, 1, length)
    positions = (seen.cumsum(-1) - 1).clamp(min=0)
    q = torch.randn(2, n_heads, length, 4)
    ours = ALiBi(n_heads).bias(q, q, positions, positions, 1.0)
    per_query = alibi_slopes(n_heads)[:, None, None] * positions[:, None, :, None]
    assert difference(ours, theirs - per_query) <= 1e-6
    logits = torch.randn(2, n_heads, length, length)
    same = (logits + ours).softmax(-1), (logits + theirs).softmax(-1)
    torch.testing.assert_close(*same, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("n_heads", [3, 8, 12])
@pytest.mark.parametrize(("n_queries", "n_keys"), [(5, 5), (4, 11), (1, 9)])
def test_the_symmetric_bias_equals_x_transformers(
    n_heads: int, n_queries: int, n_keys: int
) -> None:
    theirs = AlibiPositionalBias(n_heads)(n_queries, n_keys)  # the queries are the last ones
    ours = bias_of(ALiBi(n_heads, symmetric=True), n_queries, n_keys, offset=n_keys - n_queries)
    assert difference(ours, theirs) <= 1e-6


def test_positions_may_be_real_numbers() -> None:
    relative = torch.tensor([-0.5, -math.pi], dtype=torch.float64)
    bias = alibi(relative, torch.tensor([0.25, 2.0]))
    torch.testing.assert_close(
        bias, torch.tensor([[-0.125, -math.pi / 4], [-1, -2 * math.pi]]).double()
    )
