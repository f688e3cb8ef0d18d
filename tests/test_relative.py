"""Every bias of the distance alone: the short vector, its views, and the loop that it equals."""

from __future__ import annotations

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from test_promises import HEADS as H
from test_promises import METHODS
from torch import Tensor

from pe_lib.positions import Run
from pe_lib.relative import RelativeBias

B = 2


MAKERS = {name: make for name, make in METHODS.items() if isinstance(make(), RelativeBias)}
every_method = pytest.mark.parametrize("name", MAKERS)


def made(name: str, seed: int = 0) -> RelativeBias:
    """Return a bias for H heads; trained numbers that start at zero are drawn."""
    torch.manual_seed(seed)
    encoding = MAKERS[name]()
    for parameter in encoding.parameters():
        if not parameter.any():
            torch.nn.init.normal_(parameter)
    assert isinstance(encoding, RelativeBias)
    return encoding


def loop_bias(encoding: RelativeBias, q_pos: Tensor, k_pos: Tensor) -> Tensor:
    """One call of `of_distance` for each pair: no vector, no view."""
    rows = [
        [encoding.of_distance((k - q).reshape(1))[:, 0] for k in k_pos.unbind()]
        for q in q_pos.unbind()
    ]
    return torch.stack([torch.stack(row) for row in rows]).permute(2, 0, 1)  # (H, Lq, Lk)


# --- values --------------------------------------------------------------------------------------


@every_method
@settings(max_examples=15, deadline=None)
@given(
    sizes=st.tuples(st.integers(1, 5), st.integers(1, 6), st.integers(-9, 9)),
    seed=st.integers(0, 9),
)
def test_the_bias_equals_a_loop_over_pairs(
    name: str, sizes: tuple[int, int, int], seed: int
) -> None:
    n_queries, n_keys, offset = sizes
    encoding = made(name, seed)
    q, k = torch.randn(B, H, n_queries, 2), torch.randn(B, H, n_keys, 2)
    runs = offset + torch.arange(n_queries), torch.arange(n_keys)
    as_runs = encoding.bias(q, k, Run(offset, n_queries), Run(0, n_keys), 1.0)
    # Not to the last bit: a power is rounded otherwise in the last lanes of a vector.
    torch.testing.assert_close(as_runs, encoding.bias(q, k, *runs, 1.0), rtol=2e-6, atol=2e-6)
    scattered = torch.randint(0, 30, (n_queries,)), torch.randint(0, 30, (n_keys,))
    for q_pos, k_pos in (runs, scattered):
        bias, expected = encoding.bias(q, k, q_pos, k_pos, 1.0), loop_bias(encoding, q_pos, k_pos)
        torch.testing.assert_close(bias, expected, rtol=2e-6, atol=2e-6)  # may be 0 everywhere


@every_method
@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float64])
def test_the_bias_has_the_dtype_of_the_queries_and_its_precision(
    name: str, dtype: torch.dtype
) -> None:
    encoding = made(name)
    q, k = torch.randn(B, H, 200, 4), torch.randn(B, H, 200, 4)
    positions = torch.arange(200)
    exact = encoding.bias(q, k, positions, positions, 1.0)
    got = encoding.to(dtype).bias(q.to(dtype), k.to(dtype), positions, positions, 1.0)
    assert got.dtype == dtype
    # 8 roundings at most: parameters, products and the result.
    tolerance = 8 * max(torch.finfo(dtype).eps, torch.finfo(torch.float32).eps)
    torch.testing.assert_close(got.float(), exact, rtol=tolerance, atol=tolerance)
