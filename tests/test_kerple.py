"""KERPLE: against the paper's formulas, and its limits."""

from __future__ import annotations

import math

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from pe_lib.kerple import KERPLE

both_variants = pytest.mark.parametrize("variant", ["log", "power"])


def formula(variant: str, r1: float, r2: float, distance: float) -> float:
    """Chi et al. 2022: -r1 log(1 + r2 |m - n|), or -r1 |m - n| ** r2, for query m and key n."""
    if variant == "log":
        return -r1 * math.log(1 + r2 * abs(distance))
    return -r1 * abs(distance) ** r2


@both_variants
@settings(max_examples=25, deadline=None)
@given(
    sizes=st.tuples(st.integers(1, 5), st.integers(1, 4), st.integers(1, 6), st.integers(-9, 9)),
    seed=st.integers(0, 99),
)
def test_the_bias_follows_the_formula(
    variant: str, sizes: tuple[int, int, int, int], seed: int
) -> None:
    n_heads, n_queries, n_keys, offset = sizes
    torch.manual_seed(seed)
    encoding = KERPLE(n_heads, variant=variant)
    q, k = torch.randn(2, n_heads, n_queries, 3), torch.randn(2, n_heads, n_keys, 3)
    bias = encoding.bias(q, k, offset + torch.arange(n_queries), torch.arange(n_keys), 1.0)
    assert bias.shape == (n_heads, n_queries, n_keys)
    r1, r2 = encoding.r1.tolist(), encoding.r2.tolist()
    for h in range(n_heads):
        for i in range(n_queries):
            for j in range(n_keys):
                expected = formula(variant, r1[h], r2[h], offset + i - j)
                assert bias[h, i, j].item() == pytest.approx(expected, rel=2e-6, abs=1e-7)


@both_variants
def test_trained_parameters_stay_in_range(variant: str) -> None:
    encoding = KERPLE(3, variant=variant)
    with torch.no_grad():
        for free in encoding.parameters():
            free.copy_(torch.tensor([-12.0, 0.0, 12.0]))
    assert (encoding.r1 > 0).all()
    assert (encoding.r2 > 0).all()
    if variant == "power":
        assert (encoding.r2 <= 2).all()
        assert encoding.r2[2] > 1.99


@both_variants
def test_draws_start_in_the_published_range(variant: str) -> None:
    # Published: bias_p in (0, 2), the r1 of the log form and the r2 of the power form; bias_a
    # in (0, 1), the other one.
    torch.manual_seed(0)
    encoding = KERPLE(4000, variant=variant)
    tops = (2, 1) if variant == "log" else (1, 2)
    for values, top in zip((encoding.r1, encoding.r2), tops, strict=True):
        assert values.min() > 0.009
        assert values.max() < top * 1.0001
        assert abs(values.mean().item() - top / 2) < 0.03 * top
