"""Shaw's method: against published code and a loop twin."""

from __future__ import annotations

import pytest
import torch
from closeness import assert_close, drawn_places
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor
from transformers import VitsConfig, Wav2Vec2BertConfig
from transformers.models.vits.modeling_vits import VitsAttention
from transformers.models.wav2vec2_bert import modeling_wav2vec2_bert

from pe_lib.attention import MultiHeadAttention
from pe_lib.shaw import Shaw, shaw_logits, shaw_values


def twin_logits(q: Tensor, table: Tensor, q_pos: Tensor, k_pos: Tensor) -> Tensor:
    """Equations 4 and 5, one number at a time: sum over m of q_im a_m, a = w[clip(j - i)]."""
    batch, heads, n_queries, dim = q.shape
    clip, n_keys = len(table) // 2, k_pos.shape[-1]
    out = torch.zeros(batch, heads, n_queries, n_keys, dtype=q.dtype)
    for b in range(batch):
        for h in range(heads):
            for i in range(n_queries):
                for j in range(n_keys):
                    distance = int(k_pos[b, j]) - int(q_pos[b, i])
                    row = max(-clip, min(clip, distance)) + clip
                    out[b, h, i, j] = sum(q[b, h, i, m] * table[row, m] for m in range(dim))
    return out


def twin_values(weights: Tensor, table: Tensor, q_pos: Tensor, k_pos: Tensor) -> Tensor:
    """Equation 3, the second summand, one number at a time."""
    batch, heads, n_queries, n_keys = weights.shape
    clip, dim = len(table) // 2, table.shape[1]
    out = torch.zeros(batch, heads, n_queries, dim, dtype=weights.dtype)
    for b in range(batch):
        for h in range(heads):
            for i in range(n_queries):
                for j in range(n_keys):
                    distance = int(k_pos[b, j]) - int(q_pos[b, i])
                    row = max(-clip, min(clip, distance)) + clip
                    for m in range(dim):
                        out[b, h, i, m] += weights[b, h, i, j] * table[row, m]
    return out


@st.composite
def cases(draw: st.DrawFn) -> tuple[Tensor, Tensor, Tensor, Tensor, Tensor]:
    """Queries, weights, a table, and positions of every kind that the hooks allow."""
    size = st.integers(1, 3)
    batch, heads, dim, clip = draw(size), draw(size), draw(size), draw(size)
    n_queries, n_keys = draw(st.integers(1, 6)), draw(st.integers(1, 6))
    torch.manual_seed(draw(st.integers(0, 9999)))
    q_pos, k_pos = drawn_places(draw, batch, n_queries, n_keys)
    q = torch.randn(batch, heads, n_queries, dim).double()
    weights = torch.rand(batch, heads, n_queries, n_keys).double()
    return q, weights, torch.randn(2 * clip + 1, dim).double(), q_pos, k_pos


@settings(max_examples=30, deadline=None)
@given(cases())
def test_library_equals_the_loops(case: tuple[Tensor, Tensor, Tensor, Tensor, Tensor]) -> None:
    q, weights, table, q_pos, k_pos = case
    layer = Shaw(table.shape[1], len(table) // 2).double()
    layer.key_table.data = layer.value_table.data = table
    k = q.new_zeros(*q.shape[:2], k_pos.shape[1], q.shape[3])
    for logits, values in (
        (shaw_logits(q, table, q_pos, k_pos), shaw_values(weights, table, q_pos, k_pos)),
        (layer.bias(q, k, q_pos, k_pos, 1.0), layer.values(weights, q_pos, k_pos)),
    ):
        assert_close(logits, twin_logits(q, table, q_pos, k_pos), 1e-12)
        assert_close(values, twin_values(weights, table, q_pos, k_pos), 1e-12)


@pytest.mark.parametrize("seed", [0, 1])
@pytest.mark.parametrize(
    ("clip", "n_queries", "n_keys"), [((3, 3), 7, 11), ((20, 20), 11, 9), ((6, 2), 12, 12)]
)
@pytest.mark.parametrize("offset", [0, 37])
def test_keys_equal_transformers_wav2vec2_bert(
    seed: int, clip: tuple[int, int], n_queries: int, n_keys: int, offset: int
) -> None:
    # Same sign (key minus query) and row order as here. An end that is clipped earlier is a table
    # that repeats the last row there.
    torch.manual_seed(seed)
    config = Wav2Vec2BertConfig(
        hidden_size=15,
        num_attention_heads=3,
        position_embeddings_type="relative_key",
        left_max_position_embeddings=clip[0],
        right_max_position_embeddings=clip[1],
    )
    peer = modeling_wav2vec2_bert.Wav2Vec2BertSelfAttention(config)
    q, k = torch.randn(2, 3, n_queries, 5), torch.randn(2, 3, n_keys, 5)
    apply = modeling_wav2vec2_bert._apply_relative_key_position_encoding
    expected = apply(peer, q, k)[1]
    encoding, table = Shaw(5, clip[0]), peer.distance_embedding.weight.data
    encoding.key_table.data = torch.cat([table, table[-1:].expand(clip[0] - clip[1], -1)])
    q_pos, k_pos = torch.arange(n_queries) + offset, torch.arange(n_keys) + offset
    assert_close(encoding.bias(q, k, q_pos, k_pos, q.shape[-1] ** -0.5), expected)


@pytest.mark.parametrize("length", [5, 6, 17])
def test_keys_and_values_equal_transformers_vits(length: int) -> None:
    # Beyond its window VITS adds nothing, where the paper clips: a row of zeros at either end
    # of our table says the same.
    torch.manual_seed(length)
    config = VitsConfig(
        hidden_size=21, num_attention_heads=3, window_size=5, attention_dropout=0.0, use_bias=True
    )
    peer = VitsAttention(config)
    layer = MultiHeadAttention(21, 3, Shaw(7, 6))
    pad = (0, 0, 1, 1)
    layer.encoding.key_table.data = torch.nn.functional.pad(peer.emb_rel_k.data[0], pad)
    layer.encoding.value_table.data = torch.nn.functional.pad(peer.emb_rel_v.data[0], pad)
    layer.q_proj, layer.k_proj = peer.q_proj, peer.k_proj
    layer.v_proj, layer.out_proj = peer.v_proj, peer.out_proj
    x = torch.randn(4, length, 21)
    expected, weights = peer(x, output_attentions=True)
    output, own = layer.with_weights(x, q_pos=torch.arange(length) - 3)
    assert_close(output, expected)
    assert_close(own, weights)
    if length == 6:  # inside the window the rows of zeros are never read
        layer.encoding.key_table.data[[0, -1]] = 9.0
        layer.encoding.value_table.data[[0, -1]] = 9.0
        assert_close(layer(x), expected)


def test_initial_rows_are_as_wide_as_a_query() -> None:
    torch.manual_seed(0)
    wide = Shaw(64, 200)
    assert wide.key_table.std().item() == pytest.approx(1 / 8, rel=0.05)
    assert wide.value_table.std().item() == pytest.approx(1 / 8, rel=0.05)
    assert Shaw(64, 200, std=0.02).key_table.std().item() == pytest.approx(0.02, rel=0.05)
    assert not Shaw(64, 2, std=0.0).key_table.any()
    assert list(Shaw(64, 2, with_values=False).state_dict()) == ["key_table"]
    zero = torch.zeros(1, dtype=torch.long)
    assert Shaw(64, 2, with_values=False).values(torch.ones(1, 1, 1, 1), zero, zero) is None
