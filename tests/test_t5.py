"""T5's relative position bias: against the published code and the formula."""

from __future__ import annotations

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from transformers import T5Config
from transformers.models.t5.modeling_t5 import T5Attention
from x_transformers.x_transformers import RelativePositionBias

from pe_lib.attention import MultiHeadAttention
from pe_lib.t5 import T5Bias, t5_bucket

both_directions = pytest.mark.parametrize("bidirectional", [True, False])


def published_attention(bidirectional: bool, seed: int = 0) -> T5Attention:
    torch.manual_seed(seed)
    config = T5Config(
        d_model=20,
        d_kv=5,
        num_heads=4,
        relative_attention_num_buckets=12,
        relative_attention_max_distance=30,
        is_decoder=not bidirectional,
        attn_implementation="eager",
    )
    return T5Attention(config, has_relative_attention_bias=True, layer_idx=0).eval()


def our_attention(theirs: T5Attention, bidirectional: bool) -> MultiHeadAttention:
    encoding = T5Bias(4, 12, 30, bidirectional=bidirectional)
    ours = MultiHeadAttention(20, 4, encoding, causal=not bidirectional)
    pairs = ((ours.q_proj, theirs.q), (ours.k_proj, theirs.k), (ours.v_proj, theirs.v))
    for mine, other in (*pairs, (ours.out_proj, theirs.o)):
        mine.load_state_dict(other.state_dict())
    # The same layout, (n_buckets, H): a published table loads as it is.
    encoding.load_state_dict({"table": theirs.relative_attention_bias.weight})
    return ours


def exact_bucket(relative: int, n_buckets: int, max_distance: int, bidirectional: bool) -> set[int]:
    """Count the bucket edges at or below a distance, in integers; at an edge, both neighbours.

    Edge j is at exact * (max_distance / exact) ** (j / m), so distance n has passed it if
    n ** m * exact ** j >= max_distance ** j * exact ** m. No logarithm, no rounding; float32
    may fall on either side where the two are equal.
    """
    first = 0
    if bidirectional:
        n_buckets //= 2
        first = n_buckets if relative > 0 else 0
        distance = abs(relative)
    else:
        distance = max(0, -relative)
    exact = n_buckets // 2
    if distance < exact:
        return {first + distance}
    m = n_buckets - exact
    edges = range(1, m)
    left = [distance**m * exact**j for j in edges]
    right = [max_distance**j * exact**m for j in edges]
    passed = sum(a >= b for a, b in zip(left, right, strict=True))
    on_edge = any(a == b for a, b in zip(left, right, strict=True))
    return {first + exact + passed} | ({first + exact + passed - 1} if on_edge else set())


# --- buckets -------------------------------------------------------------------------------------


@both_directions
@pytest.mark.parametrize(("n_buckets", "max_distance"), [(32, 128), (64, 256), (12, 30), (8, 5)])
def test_buckets_equal_the_published_ones(
    bidirectional: bool, n_buckets: int, max_distance: int
) -> None:
    relative = torch.arange(-1200, 1201)
    ours = t5_bucket(relative, n_buckets, max_distance, bidirectional=bidirectional)
    # Both have our sign, key - query.
    theirs = T5Attention._relative_position_bucket(
        relative, bidirectional=bidirectional, num_buckets=n_buckets, max_distance=max_distance
    )
    second = RelativePositionBias._relative_position_bucket(
        relative, causal=not bidirectional, num_buckets=n_buckets, max_distance=max_distance
    )
    assert ours.dtype == torch.int64
    assert torch.equal(ours, theirs)
    assert torch.equal(ours, second)


@settings(max_examples=30, deadline=None)
@given(st.integers(2, 20), st.integers(1, 150), st.booleans(), st.integers(-200, 200))
def test_buckets_follow_the_formula(
    per_side: int, further: int, bidirectional: bool, relative: int
) -> None:
    n_buckets = 2 * per_side if bidirectional else per_side
    max_distance = per_side // 2 + further
    ours = t5_bucket(
        torch.tensor([[relative]]), n_buckets, max_distance, bidirectional=bidirectional
    )
    assert ours.shape == (1, 1)
    assert ours.item() in exact_bucket(relative, n_buckets, max_distance, bidirectional)


# --- bias and attention --------------------------------------------------------------------------


@both_directions
@pytest.mark.parametrize(("n_queries", "n_keys", "offset"), [(5, 5, 0), (3, 40, 37), (1, 9, 8)])
@pytest.mark.parametrize("seed", [0, 1])
def test_the_bias_equals_the_published_one(
    bidirectional: bool, n_queries: int, n_keys: int, offset: int, seed: int
) -> None:
    theirs = published_attention(bidirectional, seed)
    encoding = our_attention(theirs, bidirectional).encoding
    q, k = torch.randn(2, 4, n_queries, 5), torch.randn(2, 4, n_keys, 5)
    ours = encoding.bias(q, k, offset + torch.arange(n_queries), torch.arange(n_keys), 1.0)
    expected = theirs.compute_bias(n_queries, n_keys, past_seen_tokens=offset)[0]
    assert ours is not None
    assert torch.equal(ours, expected)


@both_directions
@pytest.mark.parametrize("seed", [0, 1, 2])
def test_the_whole_attention_equals_the_published_one(bidirectional: bool, seed: int) -> None:
    theirs = published_attention(bidirectional, seed)
    ours = our_attention(theirs, bidirectional)
    x = torch.randn(3, 47, 20)
    mask = torch.zeros(1, 1, 47, 47)
    if not bidirectional:
        mask = mask.masked_fill(torch.ones(47, 47).triu(1).bool(), torch.finfo(x.dtype).min)
    expected = theirs(x, mask=mask)[0]
    output = ours(x)
    assert output.shape == expected.shape == (3, 47, 20)
    assert (output - expected).abs().max() <= 1e-6 * expected.abs().max()
