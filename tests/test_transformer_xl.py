"""Transformer-XL: against XLNet and a loop twin; its memory: test_segments.py."""

from __future__ import annotations

import math

import pytest
import torch
from closeness import assert_close, drawn_places, forms
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor, nn
from transformers import XLNetConfig, XLNetModel

from pe_lib.attention import MultiHeadAttention
from pe_lib.transformer_xl import TransformerXL

Projections = tuple[Tensor, Tensor, Tensor]  # u (H, d), v (H, d), W_KR (H d, D)


def twin_bias(
    q: Tensor, k: Tensor, weights: Projections, q_pos: Tensor, k_pos: Tensor, clamp: int | None
) -> Tensor:
    """Terms (b), (c) and (d) of section 3.3, one number at a time, over sqrt(d)."""
    u, v, projection = weights
    batch, heads, n_queries, dim = q.shape
    n_keys, width = k.shape[2], projection.shape[1]
    out = torch.zeros(batch, heads, n_queries, n_keys, dtype=q.dtype)
    for b in range(batch):
        for i in range(n_queries):
            for j in range(n_keys):
                back = int(q_pos[b, i]) - int(k_pos[b, j])  # the paper's i - j
                if clamp is not None:
                    back = max(-clamp, min(clamp, back))
                code = torch.zeros(width, dtype=q.dtype)
                for m in range(width // 2):
                    angle = back / 10000 ** (2 * m / width)
                    code[m], code[width // 2 + m] = math.sin(angle), math.cos(angle)
                for h in range(heads):
                    for m in range(dim):
                        key = sum(projection[h * dim + m, n] * code[n] for n in range(width))
                        content = u[h, m] * k[b, h, j, m]
                        out[b, h, i, j] += content + (q[b, h, i, m] + v[h, m]) * key
    return out / dim**0.5


@st.composite
def cases(draw: st.DrawFn) -> tuple[TransformerXL, Tensor, Tensor, Tensor, Tensor]:
    """An encoding, queries, keys, and positions of every kind that the hooks allow."""
    size = st.integers(1, 3)
    batch, heads, half = draw(size), draw(size), draw(size)
    n_queries, n_keys = draw(st.integers(1, 5)), draw(st.integers(1, 5))
    clamp = draw(st.sampled_from([None, 2]))
    torch.manual_seed(draw(st.integers(0, 9999)))
    encoding = TransformerXL(2 * heads * half, heads, clamp=clamp, std=1.0).double()
    q_pos, k_pos = drawn_places(draw, batch, n_queries, n_keys)
    q = torch.randn(batch, heads, n_queries, 2 * half).double()
    k = torch.randn(batch, heads, n_keys, 2 * half).double()
    return encoding, q, k, q_pos, k_pos


@settings(max_examples=25, deadline=None)
@given(cases())
def test_library_equals_the_loops(case: tuple[TransformerXL, Tensor, Tensor, Tensor, Tensor]):
    encoding, q, k, q_pos, k_pos = case
    weights = (encoding.u.detach(), encoding.v.detach(), encoding.r_proj.weight.detach())
    scale, places = q.shape[-1] ** -0.5, forms(q_pos, k_pos)
    for each in places:  # tensors, and where consecutive positions begin
        bias_of = encoding.bias if isinstance(each[0], Tensor) else encoding.consecutive_bias
        bias = bias_of(q, k, *each, scale)
        assert_close(
            bias.expand(len(q), -1, -1, -1),
            twin_bias(q, k, weights, q_pos, k_pos, encoding.clamp),
            1e-12,
        )


def xlnet(n_layer: int = 1, **settings: object) -> XLNetModel:
    """Return a small XLNet with weights large enough for every term to count."""
    sizes = {"vocab_size": 11, "d_model": 20, "n_head": 5, "d_inner": 6, "dropout": 0.0}
    model = XLNetModel(XLNetConfig(n_layer=n_layer, **sizes, **settings)).eval()
    for name, parameter in model.named_parameters():
        if "norm" not in name:
            nn.init.normal_(parameter, std=0.5)
    return model


def copy_xlnet(peer: nn.Module, clamp: int | None = None, causal: bool = False):
    """Return `MultiHeadAttention` with the weights of an XLNetRelativeAttention.

    XLNet keeps (D, H, d) where a linear layer keeps (H d, D); r_w_bias is u, r_r_bias is v.
    """
    encoding = TransformerXL(20, 5, clamp=clamp)
    layer = MultiHeadAttention(20, 5, encoding, causal=causal)
    encoding.u, encoding.v = peer.r_w_bias, peer.r_r_bias
    for linear, weight in (
        (layer.q_proj, peer.q),
        (layer.k_proj, peer.k),
        (layer.v_proj, peer.v),
        (encoding.r_proj, peer.r),
    ):
        linear.weight.data = weight.data.flatten(1).T
    layer.out_proj.weight.data = peer.o.data.flatten(1)
    return layer


@pytest.mark.parametrize("seed", [0, 1])
@pytest.mark.parametrize(("n_queries", "n_memory"), [(7, 0), (3, 8), (1, 12)])
@pytest.mark.parametrize("clamp", [-1, 4])
@pytest.mark.parametrize("offset", [0, 29])
def test_scores_equal_xlnet(
    seed: int, n_queries: int, n_memory: int, clamp: int, offset: int
) -> None:
    # XLNet writes (L, B, ...), and R from the farthest left (i - j = Lk) to the right: the
    # papers' sign, query minus key. Its segment term is off (seg_mat None).
    torch.manual_seed(seed)
    model = xlnet(attn_type="bi", clamp_len=clamp)
    peer, n_keys = model.layer[0].rel_attn, n_queries + n_memory
    layer = copy_xlnet(peer, None if clamp < 0 else clamp)
    x, memory = torch.randn(3, n_queries, 20), torch.randn(3, n_memory, 20)
    codes = model.relative_positional_encoding(n_queries, n_keys, bsz=3)
    heads = {"h": x.transpose(0, 1), "g": None, "mems": memory.transpose(0, 1)}
    masks = {"attn_mask_h": None, "attn_mask_g": None, "seg_mat": None}
    output, _, weights = peer(r=codes, **heads, **masks, output_attentions=True)
    k_pos = torch.arange(n_keys) + offset
    context = torch.cat([memory, x], dim=1)
    own, own_weights = layer.with_weights(x, context=context, q_pos=k_pos[n_memory:], k_pos=k_pos)
    assert_close(own_weights, weights.permute(2, 3, 0, 1))
    assert_close(peer.layer_norm(own + x), output.transpose(0, 1))
