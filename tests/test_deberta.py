"""DeBERTa: against both published versions and a loop twin."""

from __future__ import annotations

import math

import pytest
import torch
from closeness import assert_close, default_dtype, drawn_places
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor, nn
from transformers import DebertaConfig, DebertaV2Config
from transformers.models.deberta import modeling_deberta as version_1
from transformers.models.deberta_v2 import modeling_deberta_v2 as version_2

from pe_lib.attention import MultiHeadAttention
from pe_lib.deberta import DeBERTa, log_bucket
from pe_lib.encoding import NoPosition, relative_position


@pytest.mark.parametrize("default", [torch.float16, torch.bfloat16, torch.float64])
def test_buckets_ignore_the_default_dtype(default: torch.dtype) -> None:
    distance = torch.arange(-2000, 2001)
    expected = log_bucket(distance, 256, 512)
    with default_dtype(default):
        assert torch.equal(log_bucket(distance, 256, 512), expected)


TERMS = [["c2p", "p2c"], ["c2p"], ["p2c"]]
SMALL = {"hidden_size": 15, "num_attention_heads": 3, "relative_attention": True}


def twin_bucket(back: int, n_buckets: int, max_distance: int) -> int:
    """The logarithmic buckets of version 2 for one distance, query minus key."""
    middle, size = n_buckets // 2, abs(back)
    if size <= middle:
        return back
    share = math.log(size / middle) / math.log((max_distance - 1) / middle)
    return (1 if back > 0 else -1) * (middle + math.ceil(share * (middle - 1) - 1e-6))


def twin_bias(encoding: DeBERTa, q: Tensor, k: Tensor, q_pos: Tensor, k_pos: Tensor) -> Tensor:
    """Equations 3 and 4 one number at a time, with delta(i, j) in both terms."""
    span, heads = encoding.span, q.shape[1]
    out = torch.zeros(*q.shape[:3], k.shape[2], dtype=q.dtype)
    n_terms = 1
    for projection in (encoding.key_proj, encoding.query_proj):
        if projection is None:
            continue
        n_terms += 1
        rows = projection(encoding.table).view(2 * span, heads, -1)
        for b, h, i, j in torch.cartesian_prod(*(torch.arange(n) for n in out.shape)).tolist():
            back = int(q_pos[b, i]) - int(k_pos[b, j])
            if encoding.n_buckets is not None:
                back = twin_bucket(back, encoding.n_buckets, encoding.max_distance)
            delta = 0 if back <= -span else 2 * span - 1 if back >= span else back + span
            content = q[b, h, i] if projection is encoding.key_proj else k[b, h, j]
            out[b, h, i, j] += sum(content[m] * rows[delta, h, m] for m in range(q.shape[3]))
    return out / (q.shape[3] * n_terms) ** 0.5


@st.composite
def cases(draw: st.DrawFn) -> tuple[DeBERTa, Tensor, Tensor, Tensor, Tensor]:
    """An encoding, queries, keys, and positions of every kind that the hooks allow."""
    size = st.integers(1, 3)
    batch, heads, dim = draw(size), draw(size), draw(size)
    n_queries, n_keys = draw(st.integers(1, 5)), draw(st.integers(1, 5))
    torch.manual_seed(draw(st.integers(0, 9999)))
    buckets = draw(st.sampled_from([None, 2, 4]))
    reach = draw(size) if buckets is None else buckets // 2 + 1 + draw(size)
    terms = draw(st.sampled_from(TERMS))
    chosen = {"c2p": "c2p" in terms, "p2c": "p2c" in terms}
    encoding = DeBERTa(dim * heads, heads, reach, n_buckets=buckets, **chosen).double()
    q_pos, k_pos = drawn_places(draw, batch, n_queries, n_keys)
    q = torch.randn(batch, heads, n_queries, dim).double()
    k = torch.randn(batch, heads, n_keys, dim).double()
    return encoding, q, k, q_pos, k_pos


@settings(max_examples=25, deadline=None)
@given(cases())
def test_library_equals_the_loops(case: tuple[DeBERTa, Tensor, Tensor, Tensor, Tensor]) -> None:
    encoding, *inputs = case
    with torch.no_grad():
        bias = encoding.bias(*inputs, encoding.scale)
        assert_close(bias, twin_bias(encoding, *inputs), 1e-12)


@pytest.mark.parametrize("seed", [0, 1])
@pytest.mark.parametrize("terms", TERMS)
@pytest.mark.parametrize("span", [4, 40])
@pytest.mark.parametrize(("n_queries", "n_keys", "lag"), [(11, 11, 0), (6, 9, 3), (1, 7, 6)])
def test_scores_equal_version_1(
    seed: int, terms: list[str], span: int, n_queries: int, n_keys: int, lag: int
) -> None:
    # relative_pos there is query minus key. Their table projection has a bias for p2c only.
    # With fewer queries than keys their p2c reads other rows than with as many, so theirs is
    # always asked for the square, and cut.
    torch.manual_seed(seed)
    config = DebertaConfig(
        **SMALL, max_relative_positions=span, pos_att_type=terms, hidden_dropout_prob=0.0
    )  # fmt: skip
    peer = version_1.DisentangledSelfAttention(config)
    encoding = DeBERTa(15, 3, span, c2p="c2p" in terms, p2c="p2c" in terms)
    if "c2p" in terms:
        encoding.key_proj = peer.pos_proj
    if "p2c" in terms:
        encoding.query_proj = peer.pos_q_proj
    q, k = torch.randn(2, 3, n_keys, 5), torch.randn(2, 3, n_keys, 5)
    q_pos, k_pos = torch.arange(n_queries) + lag, torch.arange(n_keys)
    back = -relative_position(k_pos, k_pos)[None, None]
    n_terms = 1 + len(terms)
    scaled = q / (5 * n_terms) ** 0.5  # their queries come scaled
    with torch.no_grad():
        table = encoding.table
        expected = peer.disentangled_att_bias(scaled, k, back, table, n_terms)[:, :, q_pos]
    assert encoding.scale == pytest.approx((5 * n_terms) ** -0.5)
    for offset in (0, 31):
        bias = encoding.bias(q[:, :, q_pos], k, q_pos + offset, k_pos + offset, encoding.scale)
        assert_close(bias, expected)


@pytest.mark.parametrize("seed", [0, 1])
@pytest.mark.parametrize("terms", TERMS)
@pytest.mark.parametrize("shared", [True, False])
@pytest.mark.parametrize(("buckets", "reach", "length"), [(8, 20, 31), (-1, 6, 13), (8, 20, 3)])
def test_attention_equals_version_2(
    seed: int, terms: list[str], shared: bool, buckets: int, reach: int, length: int
) -> None:
    # All projections have biases there, the table's own ones too.
    torch.manual_seed(seed)
    config = DebertaV2Config(
        **SMALL, max_relative_positions=reach, position_buckets=buckets, share_att_key=shared,
        pos_att_type=terms, hidden_dropout_prob=0.0, attention_probs_dropout_prob=0.0,
    )  # fmt: skip
    peer = version_2.DisentangledSelfAttention(config)
    query_proj, key_proj = peer.query_proj, peer.key_proj
    if not shared:
        query_proj = getattr(peer, "pos_query_proj", None)
        key_proj = getattr(peer, "pos_key_proj", None)
    encoding = DeBERTa(
        15, 3, reach, n_buckets=buckets if buckets > 0 else None, c2p="c2p" in terms,
        p2c="p2c" in terms, projections=(query_proj, key_proj),
    )  # fmt: skip
    layer = MultiHeadAttention(15, 3, encoding)
    layer.q_proj, layer.k_proj, layer.v_proj = peer.query_proj, peer.key_proj, peer.value_proj
    layer.out_proj = nn.Identity()
    x = torch.randn(4, length, 15)
    mask = torch.ones(4, 1, length, length)
    with torch.no_grad():
        expected, weights = peer(x, mask, True, rel_embeddings=encoding.table)
        for offset in (0, 17):
            output, own = layer.with_weights(x, q_pos=torch.arange(length) + offset)
            assert_close(own, weights)
            assert_close(output, expected)


@pytest.mark.parametrize(
    ("buckets", "reach"), [(256, 512), (256, 1024), (32, 128), (6, 11), (2, 3)]
)
def test_buckets_equal_version_2(buckets: int, reach: int) -> None:
    distances = torch.arange(-3 * reach, 3 * reach + 1)
    expected = version_2.make_log_bucket_position(distances, buckets, reach).long()
    assert torch.equal(log_bucket(distances, buckets, reach), expected)


def test_shared_projections_stay_those_of_the_attention() -> None:
    torch.manual_seed(0)
    layer = MultiHeadAttention(12, 3, NoPosition()).double()
    shared = (layer.q_proj, layer.k_proj)
    layer.encoding = DeBERTa(12, 3, 4, projections=shared).double()
    assert len(list(layer.parameters())) == 5  # four projections and the table
    assert layer.encoding.query_proj is layer.q_proj
    state = {name: value.clone() for name, value in layer.state_dict().items()}
    x = torch.randn(2, 5, 12).double()
    expected = layer(x)
    for parameter in layer.parameters():
        nn.init.normal_(parameter)
    layer.load_state_dict(state)
    assert_close(layer(x), expected, 1e-12)
