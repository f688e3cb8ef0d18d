"""Every scalar relative bias: the short vector, its views, and what all of them promise."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from pe_lib.alibi import ALiBi
from pe_lib.attention import (
    KVCache,
    MultiHeadAttention,
    attend,
    attend_fused,
    relative_position,
)
from pe_lib.fast import reversed_bias
from pe_lib.kerple import Kerple
from pe_lib.positions import Positions, Run
from pe_lib.relative import RelativeBias, WindowBias, distances, for_each_head, toeplitz
from pe_lib.t5 import T5Bias

B, H, D, LENGTH = 2, 3, 12, 11


def drawn(encoding: WindowBias) -> WindowBias:
    """Return the encoding with weights that are not 0."""
    torch.nn.init.normal_(encoding.weight)
    return encoding


MAKERS: dict[str, Callable[[int], RelativeBias]] = {
    "t5": lambda heads: T5Bias(heads, 8, 9, std=1.0),
    "t5 causal": lambda heads: T5Bias(heads, 7, 9, bidirectional=False, std=1.0),
    "alibi": ALiBi,
    "alibi symmetric": lambda heads: ALiBi(heads, symmetric=True),
    "kerple log": Kerple,
    "window": lambda heads: drawn(WindowBias(heads, 4)),
    "kerple power": lambda heads: Kerple(heads, variant="power"),
}
every_method = pytest.mark.parametrize("name", MAKERS)


def make(name: str, heads: int = H, seed: int = 0) -> RelativeBias:
    torch.manual_seed(seed)
    return MAKERS[name](heads)


def make_attention(name: str, *, causal: bool = False, seed: int = 0) -> MultiHeadAttention:
    return MultiHeadAttention(D, H, make(name, seed=seed), causal=causal)


def loop_bias(encoding: RelativeBias, q_pos: Tensor, k_pos: Tensor) -> Tensor:
    """One call of `of_distance` for each pair: no vector, no view."""
    rows = [
        [encoding.of_distance((k - q).reshape(1))[:, 0] for k in k_pos.unbind()]
        for q in q_pos.unbind()
    ]
    return torch.stack([torch.stack(row) for row in rows]).permute(2, 0, 1)  # (H, Lq, Lk)


def assert_close(a: Tensor, b: Tensor, tolerance: float = 2e-6) -> None:
    assert a.shape == b.shape, (a.shape, b.shape)
    torch.testing.assert_close(a, b, rtol=tolerance, atol=tolerance)


# --- the vector and its views ------------------------------------------------------------------


@settings(max_examples=25, deadline=None)
@given(st.integers(1, 7), st.integers(1, 7), st.integers(-9, 9), st.integers(-9, 9))
def test_distances_are_the_relative_positions_of_all_pairs(
    n_queries: int, n_keys: int, q_start: int, k_start: int
) -> None:
    q_pos, k_pos = Run(q_start, n_queries), Run(k_start, n_keys)
    expected = sorted({k - q for q in q_pos.tensor().tolist() for k in k_pos.tensor().tolist()})
    assert distances(q_pos, k_pos).tolist() == expected


@settings(max_examples=25, deadline=None)
@given(st.integers(1, 6), st.integers(1, 7))
def test_the_matrix_has_each_value_at_its_pairs(n_queries: int, n_keys: int) -> None:
    vector = torch.randn(2, n_queries + n_keys - 1)
    matrix = toeplitz(vector, n_keys)
    assert matrix.shape == (2, n_queries, n_keys)
    for i in range(n_queries):
        for j in range(n_keys):
            assert torch.equal(matrix[:, i, j], vector[:, j - i + n_queries - 1])


@every_method
@pytest.mark.parametrize("causal", [False, True])
def test_the_flipped_bias_is_a_view_of_one_value_per_distance(name: str, causal: bool) -> None:
    n_queries, n_keys = 50, 70
    q = torch.randn(B, H, n_queries, 4)
    view = reversed_bias(make(name), q, Run(20, 50), Run(0, 70), causal)
    assert view.shape == (H, n_queries, n_keys)
    assert view.untyped_storage().nbytes() == 4 * H * (n_queries + n_keys - 1)


@every_method
@pytest.mark.parametrize("causal", [False, True])
def test_the_flipped_bias_is_the_bias_with_the_queries_reversed(name: str, causal: bool) -> None:
    encoding = make(name)
    q, k = torch.randn(B, H, 5, 4), torch.randn(B, H, 7, 4)
    q_pos, k_pos = Run(3, 5), Run(1, 7)
    view = reversed_bias(encoding, q, q_pos, k_pos, causal)
    expected = encoding.bias(q, k, q_pos, k_pos, 1.0)
    if causal:
        hidden = relative_position(q_pos, k_pos) > 0
        expected = expected.masked_fill(hidden, float("-inf"))
    assert torch.equal(view.flip(-2), expected)


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
    encoding = make(name, heads=4, seed=seed)
    q, k = torch.randn(B, 4, n_queries, 2), torch.randn(B, 4, n_keys, 2)
    runs = offset + torch.arange(n_queries), torch.arange(n_keys)
    as_runs = encoding.bias(q, k, Run(offset, n_queries), Run(0, n_keys), 1.0)
    assert torch.equal(as_runs, encoding.bias(q, k, *runs, 1.0))
    scattered = torch.randint(0, 30, (n_queries,)), torch.randint(0, 30, (n_keys,))
    for q_pos, k_pos in (runs, scattered):
        assert_close(encoding.bias(q, k, q_pos, k_pos, 1.0), loop_bias(encoding, q_pos, k_pos))


@every_method
def test_positions_with_a_batch_axis_give_each_sequence_its_own_bias(name: str) -> None:
    encoding = make(name)
    q, k = torch.randn(B, H, 5, 4), torch.randn(B, H, 7, 4)
    q_pos, k_pos = torch.randint(0, 20, (B, 5)), torch.randint(0, 20, (B, 7))
    both = encoding.bias(q, k, q_pos, k_pos, 1.0)
    assert both.shape == (B, H, 5, 7)
    for b in range(B):
        assert_close(both[b], loop_bias(encoding, q_pos[b], k_pos[b]))
    shared_keys = encoding.bias(q, k, q_pos, k_pos[0], 1.0)
    assert shared_keys.shape == (B, H, 5, 7)
    assert_close(shared_keys[1], loop_bias(encoding, q_pos[1], k_pos[0]))


@every_method
def test_heads_differ(name: str) -> None:
    values = make(name).of_distance(torch.tensor([-3]))
    assert len({round(value, 5) for value in values[:, 0].tolist()}) == H


@every_method
@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float64])
def test_the_bias_has_the_dtype_of_the_queries_and_its_precision(
    name: str, dtype: torch.dtype
) -> None:
    encoding = make(name)
    q, k = torch.randn(B, H, 200, 4), torch.randn(B, H, 200, 4)
    positions = torch.arange(200)
    exact = encoding.bias(q, k, positions, positions, 1.0)
    got = encoding.to(dtype).bias(q.to(dtype), k.to(dtype), positions, positions, 1.0)
    assert got.dtype == dtype
    # 8 roundings at most: parameters, products and the result.
    tolerance = 8 * max(torch.finfo(dtype).eps, torch.finfo(torch.float32).eps)
    torch.testing.assert_close(got.float(), exact, rtol=tolerance, atol=tolerance)


# --- through attention ---------------------------------------------------------------------------


@every_method
@pytest.mark.parametrize("causal", [False, True])
def test_a_shift_of_all_positions_leaves_the_output_unchanged(name: str, causal: bool) -> None:
    attention = make_attention(name, causal=causal)
    x, positions = torch.randn(B, LENGTH, D), torch.arange(LENGTH)
    batched = positions.expand(B, -1)
    for shift in (1, 37, -5):
        assert_close(attention(x, q_pos=positions + shift), attention(x))
        assert_close(attention(x, q_pos=batched + shift), attention(x))


@every_method
def test_order_matters(name: str) -> None:
    attention = make_attention(name)
    x, swap = torch.randn(B, LENGTH, D), torch.arange(LENGTH).flip(0).roll(3)
    assert (attention(x[:, swap]) - attention(x)[:, swap]).abs().max() > 1e-3


@every_method
@pytest.mark.parametrize("steps", [[1] * LENGTH, [4, 1, 6], [10, 1]])
def test_a_cache_gives_what_the_whole_sequence_gives(name: str, steps: list[int]) -> None:
    attention = make_attention(name, causal=True)
    x, cache = torch.randn(B, LENGTH, D), KVCache()
    parts = [attention(part, cache=cache) for part in x.split(steps, dim=1)]
    assert_close(torch.cat(parts, dim=1), attention(x))


@every_method
@pytest.mark.parametrize("causal", [False, True])
def test_left_padding_changes_nothing(name: str, causal: bool) -> None:
    attention = make_attention(name, causal=causal)
    short, long = torch.randn(1, 6, D), torch.randn(1, LENGTH, D)
    padding = LENGTH - 6
    batch = torch.cat([torch.cat([torch.randn(1, padding, D), short], dim=1), long])
    positions = torch.stack([torch.arange(LENGTH) - padding, torch.arange(LENGTH)])
    mask = torch.ones(2, 1, 1, LENGTH, dtype=torch.bool)
    mask[0, ..., :padding] = False
    output = attention(batch, q_pos=positions.clamp(min=0), mask=mask)
    assert_close(output[:1, padding:], attention(short))
    assert_close(output[1:], attention(long))


@every_method
def test_packed_sequences_give_what_each_gives_alone(name: str) -> None:
    attention = make_attention(name, causal=True)
    first, second = torch.randn(B, 4, D), torch.randn(B, 7, D)
    positions = torch.cat([torch.arange(4), torch.arange(7)])
    document = torch.tensor([0] * 4 + [1] * 7)
    mask = document[:, None] == document[None, :]
    output = attention(torch.cat([first, second], dim=1), q_pos=positions, mask=mask)
    assert_close(output, torch.cat([attention(first), attention(second)], dim=1))


@every_method
def test_the_future_does_not_reach_the_past(name: str) -> None:
    attention = make_attention(name, causal=True)
    x = torch.randn(B, LENGTH, D)
    changed = torch.cat([x[:, :6], torch.randn(B, LENGTH - 6, D)], dim=1)
    difference = (attention(x) - attention(changed)).abs().amax(dim=(0, 2))
    assert difference[:6].max() == 0
    assert difference[6:].min() > 0


@every_method
@pytest.mark.parametrize("causal", [False, True])
def test_another_sequence_can_be_attended_to(name: str, causal: bool) -> None:
    attention = make_attention(name, causal=causal)
    x, memory = torch.randn(B, 4, D), torch.randn(B, 9, D)
    q_pos, k_pos = torch.arange(5, 9), torch.arange(9)
    output = attention(x, context=memory, q_pos=q_pos, k_pos=k_pos)
    stepwise, weights = attention.with_weights(x, context=memory, q_pos=q_pos, k_pos=k_pos)
    assert weights.shape == (B, H, 4, 9)
    assert_close(output, stepwise)


@every_method
@pytest.mark.parametrize("causal", [False, True])
def test_gradients_of_the_fused_form_equal_those_of_the_stepwise_form(
    name: str, causal: bool
) -> None:
    encoding = make(name)
    positions = torch.arange(6)
    inputs = [torch.randn(B, H, 6, 4, requires_grad=True) for _ in range(3)]
    leaves = inputs + list(encoding.parameters())
    target = torch.randn(B, H, 6, 4)
    fused = attend_fused(*inputs, encoding, positions, positions, causal=causal)
    steps, _ = attend(*inputs, encoding, positions, positions, causal=causal)
    got = torch.autograd.grad((fused * target).sum(), leaves)
    expected = torch.autograd.grad((steps * target).sum(), leaves)
    for one, other in zip(got, expected, strict=True):
        assert_close(one, other, 1e-5)


@every_method
def test_a_saved_encoding_loads(name: str) -> None:
    saved, fresh = make(name, seed=1), make(name, seed=2)
    fresh.load_state_dict(saved.state_dict())
    relative = torch.arange(-9, 10)
    assert torch.equal(saved.of_distance(relative), fresh.of_distance(relative))


# --- errors --------------------------------------------------------------------------------------


def test_the_base_class_has_no_values_of_its_own() -> None:
    with pytest.raises(NotImplementedError):
        RelativeBias().of_distance(torch.arange(3))


@every_method
@pytest.mark.parametrize("positions", [Run(0, 5), torch.tensor([0, 2, 4, 6, 8])])
def test_another_number_of_heads_is_refused(name: str, positions: Positions) -> None:
    q = torch.randn(B, H + 1, 5, 4)
    with pytest.raises(ValueError, match="q must have 3 heads for this encoding, got 4"):
        make(name).bias(q, q, positions, positions, 1.0)
    with pytest.raises(ValueError, match="q must have 3 heads"):
        attend_fused(q, q, q, make(name), positions, positions)


def test_values_per_head_are_at_least_float32() -> None:
    relative = torch.zeros(4, 5)
    for dtype, expected in ((torch.float16, torch.float32), (torch.float64, torch.float64)):
        spread = for_each_head(torch.ones(3, dtype=dtype), relative)
        assert spread.shape == (3, 1, 1)
        assert spread.dtype == expected
