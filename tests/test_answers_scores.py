"""Answers on biases and images: the page's functions equal published code."""

from __future__ import annotations

import math
import re
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from alone import timm_positions
from answers import answer_cells, answer_names, answer_output
from torch import Tensor
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.nn.attention.flex_attention import create_block_mask, flex_attention
from torch.testing import assert_close
from transformers import DebertaConfig, T5Config, XLNetConfig, XLNetModel
from transformers.models.bloom.modeling_bloom import build_alibi_tensor
from transformers.models.deberta.modeling_deberta import DisentangledSelfAttention
from transformers.models.mpt.modeling_mpt import build_mpt_alibi_tensor
from transformers.models.t5.modeling_t5 import T5Attention, T5Stack

from pe_lib import ALiBi, T5Bias
from pe_lib.interop import score_mod
from tools import refresh

ALIBI = "How do I use ALiBi"
T5 = "How does T5's"
ROPE_2D = "2D RoPE in a ViT"
THREE = "Shaw vs. Transformer-XL vs. DeBERTa"
MROPE = "Qwen2-VL M-RoPE"


def position_code(heading: str, number: int = 0) -> SimpleNamespace:
    """Return what one cell of code below a heading defines, run in an empty namespace."""
    names = answer_names(heading, number)
    return SimpleNamespace(**{name: each for name, each in names.items() if name[0] != "_"})


# --- ALiBi ----------------------------------------------------------------------------------------


@pytest.mark.parametrize("n_heads", [1, 6, 8, 12, 20])
@pytest.mark.parametrize(("n_queries", "n_keys"), [(7, 7), (3, 10), (1, 10)])
def test_the_alibi_mask_attends_as_bloom_and_mpt_do(n_heads: int, n_queries: int, n_keys: int):
    """Both add slope * key position up to a number per query, which the softmax ignores."""
    page = position_code(ALIBI)
    ours = page.alibi_mask(n_heads, n_queries, n_keys)  # (H, Lq, Lk)
    seen = torch.ones(n_queries, n_keys).tril(n_keys - n_queries).bool()
    assert torch.equal(ours > -torch.inf, seen.expand_as(ours))
    scores = torch.randn(n_heads, n_queries, n_keys)
    bloom = build_alibi_tensor(torch.ones(1, n_keys), n_heads, torch.float32)  # (H, 1, Lk)
    for theirs in (bloom, build_mpt_alibi_tensor(n_heads, n_keys)):
        weights = (scores + theirs).masked_fill(~seen, -torch.inf).softmax(-1)
        assert_close((scores + ours).softmax(-1), weights, rtol=1e-5, atol=1e-6)


def test_the_alibi_mask_is_what_flash_attention_documents():
    """Its docstring: -alibi_slope * |i + seqlen_k - seqlen_q - j| is added to the score."""
    page = position_code(ALIBI)
    i, j = torch.arange(4)[:, None], torch.arange(9)
    slopes = position_code(ALIBI, 1).alibi_slopes(12)
    documented = -slopes[:, None, None] * (i + 9 - 4 - j).abs()
    ours = page.alibi_mask(12, 4, 9)
    visible = ours > -torch.inf
    assert torch.equal(ours[visible], documented[visible])
    assert (slopes > 0).all() and slopes.dtype == torch.float32


@pytest.mark.filterwarnings("ignore:flex_attention called without torch.compile")
@pytest.mark.parametrize(("n_queries", "n_keys"), [(5, 5), (33, 33), (1, 9), (3, 140)])
def test_flex_attention_attends_as_the_alibi_mask_does_behind_a_cache_too(
    n_queries: int, n_keys: int
):
    mask, flex = position_code(ALIBI), position_code(ALIBI, 1)
    q, k, v = torch.randn(3, 2, 12, n_keys, 16)
    q, slopes = q[:, :, -n_queries:], flex.alibi_slopes(12)
    bias = mask.alibi_mask(12, n_queries, n_keys)
    expected = mask.scaled_dot_product_attention(q, k, v, attn_mask=bias)
    assert_close(flex.attend(q, k, v, slopes), expected, rtol=1e-5, atol=2e-6)
    if n_queries < n_keys:  # without the offset
        alibi, causal = flex.alibi_mods(slopes)
        seen = create_block_mask(causal, None, None, n_queries, n_keys, device="cpu")
        found = flex_attention(q, k, v, score_mod=alibi, block_mask=seen)
        assert_close(found[:, :, 0], v[:, :, 0])  # "it sees only the first key"
    library = score_mod(ALiBi(12), q_offset=5)
    numbers = torch.zeros(6), 0, *torch.tensor([0, 0]), torch.arange(6)  # head 0, query 0
    assert answer_output(ALIBI, 1) == f"{library(*numbers)}\n"


def test_pytorch_forbids_is_causal_beside_an_attn_mask():
    page = position_code(ALIBI)
    assert "An error is thrown if both attn_mask and is_causal are set" in re.sub(
        r"\s+", " ", str(page.scaled_dot_product_attention.__doc__)
    )
    q = torch.randn(1, 2, 4, 8)
    with sdpa_kernel(SDPBackend.MATH), pytest.raises(RuntimeError, match="attn_mask"):
        page.scaled_dot_product_attention(q, q, q, attn_mask=torch.zeros(4, 4), is_causal=True)


def test_a_mask_has_a_number_for_each_pair_and_head_and_the_flash_kernel_takes_none():
    assert position_code(ALIBI).alibi_mask(12, 4, 9).shape == (12, 4, 9)
    chosen = "include/ATen/native/transformers/sdp_utils_cpp.h"  # what CUDA's choice reads
    source = (Path(torch.__file__).parent / chosen).read_text(encoding="utf-8")
    assert "Flash Attention does not support non-null attn_mask" in source


# --- T5 -------------------------------------------------------------------------------------------


def t5_published(bidirectional: bool, n_buckets: int = 32, max_distance: int = 128) -> T5Attention:
    """Return T5's own attention with a table of random numbers, three heads of width 8."""
    sizes = {"d_model": 24, "d_kv": 8, "num_heads": 3, "dropout_rate": 0.0}
    config = T5Config(
        **sizes,
        relative_attention_num_buckets=n_buckets,
        relative_attention_max_distance=max_distance,
        is_decoder=not bidirectional,
    )
    config._attn_implementation = "eager"
    peer = T5Attention(config, has_relative_attention_bias=True, layer_idx=0)
    torch.nn.init.normal_(peer.relative_attention_bias.weight)
    return peer.eval()


@pytest.mark.parametrize("bidirectional", [True, False])
@pytest.mark.parametrize(("n_buckets", "max_distance"), [(32, 128), (8, 20)])
@pytest.mark.parametrize(("n_queries", "n_keys"), [(300, 300), (3, 150), (1, 9)])
def test_the_bias_of_t5_equals_transformers(
    bidirectional: bool, n_buckets: int, max_distance: int, n_queries: int, n_keys: int
):
    peer = t5_published(bidirectional, n_buckets, max_distance)
    table = peer.relative_attention_bias.weight.detach()
    past = n_keys - n_queries
    expected = peer.compute_bias(n_queries, n_keys, past_seen_tokens=past)[0].detach()
    t5_bias = position_code(T5).t5_bias
    assert torch.equal(t5_bias(table, n_queries, n_keys, bidirectional, max_distance), expected)
    other = t5_bias(table, n_queries, n_keys, not bidirectional, max_distance)
    exact = n_buckets // 4  # up to here the past has the same rows both ways
    assert torch.equal(other, expected) is (n_queries == 1 and n_keys <= exact + 1)


@pytest.mark.parametrize("bidirectional", [True, False])
@pytest.mark.parametrize("length", [4, 40])
def test_attention_with_the_bias_of_t5_equals_transformers(bidirectional: bool, length: int):
    peer = t5_published(bidirectional)
    t5 = T5Bias(3, bidirectional=bidirectional)
    t5.table.data = peer.relative_attention_bias.weight.data
    hidden = torch.randn(2, length, 24)
    hide = torch.ones(length, length).triu(1).bool() & torch.tensor(not bidirectional)
    mask = torch.zeros(length, length).masked_fill(hide, -torch.inf)[None, None]
    q, k, v = (
        linear(hidden).unflatten(-1, (3, 8)).transpose(1, 2) for linear in (peer.q, peer.k, peer.v)
    )
    found = position_code(T5, 1).t5_attention(q, k, v, t5)  # (B, H, L, d)
    found = peer.o(found.transpose(1, 2).flatten(2))
    assert_close(found, peer(hidden, mask=mask)[0], rtol=1e-5, atol=1e-6)


def test_t5_keeps_its_table_in_block_0_and_every_layer_adds_it():
    sizes = {"d_model": 24, "d_kv": 8, "d_ff": 8, "num_heads": 3, "num_layers": 3}
    stack = T5Stack(T5Config(**sizes, vocab_size=9, is_decoder=False, use_cache=False)).eval()
    tables = [name for name in stack.state_dict() if "relative_attention_bias" in name]
    assert tables == ["block.0.layer.0.SelfAttention.relative_attention_bias.weight"]
    received = []
    for block in stack.block[1:]:
        attention = block.layer[0].SelfAttention
        attention.register_forward_pre_hook(
            lambda module, args, kwargs: received.append(kwargs["position_bias"]),
            with_kwargs=True,
        )
    torch.nn.init.normal_(stack.state_dict()[tables[0]])
    stack(input_ids=torch.arange(9)[None])
    first = stack.block[0].layer[0].SelfAttention.compute_bias(9, 9)
    assert len(received) == 2
    assert all(torch.equal(each, first) for each in received)


def test_the_default_scale_makes_the_products_of_t5_eight_times_too_small():
    assert T5Attention(T5Config(), layer_idx=0).scaling == 1.0 == T5Bias(2).scale
    assert T5Config().d_kv ** -0.5 == 1 / 8
    assert (T5Config().relative_attention_num_buckets, 128) == (
        32,
        T5Config().relative_attention_max_distance,
    )


# --- two axes -------------------------------------------------------------------------------------


def rope_2d_config(**settings: Any) -> Any:
    """Return what the rotary classes of image encoders read: heads of width 32."""
    rope = {"rope_type": "axial", "rope_theta": 100.0}
    return SimpleNamespace(
        rope_parameters=rope, head_dim=32, hidden_size=64, embed_dim=64, num_attention_heads=2,
        rope_theta=100.0, **settings,
    )  # fmt: skip


@pytest.mark.parametrize("size", [(3, 5), (8, 2)])
def test_counted_rows_and_columns_rotate_as_in_pixtral_and_qwen2_vl(size: tuple[int, int]):
    from transformers.models.pixtral import modeling_pixtral as pixtral
    from transformers.models.qwen2_vl import modeling_qwen2_vl as qwen2
    from transformers.vision_utils import get_vision_position_ids

    positions = position_code(ROPE_2D).patch_positions(*size, "counted")
    axial_rope = position_code(ROPE_2D, 1).axial_rope
    q = torch.randn(1, 2, len(positions), 32)
    assert torch.equal(positions, get_vision_position_ids(torch.tensor([[1, *size]]), 1))
    cos, sin = pixtral.PixtralVisionRotaryEmbedding(rope_2d_config())(q, positions)
    expected = pixtral.apply_rotary_pos_emb(q, q, cos[None], sin[None])[0]
    assert_close(axial_rope(q, positions, 100.0, take_turns=True), expected, rtol=1e-5, atol=1e-5)
    assert (axial_rope(q, positions, 100.0) - expected).abs().max() > 0.1
    cos, sin = qwen2.Qwen2VLVisionRotaryEmbedding(rope_2d_config())(q, positions)
    expected = qwen2.apply_rotary_pos_emb_vision(*[q[0].transpose(0, 1)] * 2, cos, sin)[0]
    found = axial_rope(q, positions, 100.0)[0].transpose(0, 1)
    assert_close(found, expected, rtol=1e-5, atol=1e-5)


def test_qwen2_vl_lists_the_same_patches_in_blocks_of_2_x_2():
    from transformers.vision_utils import get_vision_position_ids

    ours = position_code(ROPE_2D).patch_positions(4, 6, "counted").tolist()
    theirs = get_vision_position_ids(torch.tensor([[1, 4, 6]]), 2).tolist()
    assert theirs != ours and sorted(theirs) == ours
    assert theirs[:4] == [[0, 0], [0, 1], [1, 0], [1, 1]]


@pytest.mark.parametrize("size", [(4, 4), (3, 6)])
def test_normalised_rows_and_columns_rotate_as_in_dinov3(size: tuple[int, int]):
    from transformers.models.dinov3_vit import modeling_dinov3_vit as dino

    positions = position_code(ROPE_2D).patch_positions(*size, "normalised")
    q = torch.randn(1, 2, len(positions), 32)
    config = rope_2d_config(image_size=8, patch_size=2)
    picture = torch.zeros(1, 3, 2 * size[0], 2 * size[1])
    cos, sin = dino.DINOv3ViTRopePositionEmbedding(config).eval()(picture)
    expected = dino.apply_rotary_pos_emb(q, q, cos, sin)[0]
    found = position_code(ROPE_2D, 1).axial_rope(q, 2 * math.pi * positions, 100.0)
    assert_close(found, expected, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("size", [(4, 4), (3, 6)])
def test_rows_and_columns_on_the_trained_grid_rotate_as_in_eva(size: tuple[int, int]):
    timm = timm_positions()
    positions = position_code(ROPE_2D).patch_positions(*size, "trained grid", trained=(4, 10))
    settings = {"temperature": 100.0, "in_pixels": False, "rotate_half": True}
    theirs = timm.RotaryEmbeddingCat(32, ref_feat_shape=(4, 10), **settings)
    q = torch.randn(1, 2, len(positions), 32)
    expected = timm.apply_rot_embed_cat(q, theirs.get_embed(list(size)), half=True)
    found = position_code(ROPE_2D, 1).axial_rope(q, positions, 100.0)
    assert_close(found, expected, rtol=1e-5, atol=1e-5)


def test_what_small_models_kept_at_another_size_is_what_chapter_14_measured():
    (wrong,) = [cell.source for cell in answer_cells(ROPE_2D) if "when it is wrong" in cell.source]
    chapter = (refresh.BOOK / "14_axes.ipynb").read_text(encoding="utf-8")
    (measured,) = re.findall(
        r"laid over the old grid, each model keeps (\d+%) or more of its accuracy. In all other "
        r"cases each model keeps (\d+%) or less of its accuracy.",
        chapter,
    )
    assert tuple(re.findall(r"\d+%", wrong)) == measured


# --- Shaw, Transformer-XL, DeBERTa ----------------------------------------------------------------


def three_relative_scores(**given: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Return the page's three scores; what is not given is zero."""
    zero = {"u": torch.zeros(5), "v": torch.zeros(5), "R_query": torch.zeros(len(given["R"]), 5)}
    found: tuple[Tensor, Tensor, Tensor] = position_code(THREE).relative_scores(**zero | given)
    return found


@pytest.mark.parametrize(("n_queries", "n_keys"), [(9, 9), (4, 7)])
@pytest.mark.parametrize("clip", [2, 12])
def test_the_score_of_shaw_equals_wav2vec2_bert(n_queries: int, n_keys: int, clip: int):
    from transformers import Wav2Vec2BertConfig
    from transformers.models.wav2vec2_bert import modeling_wav2vec2_bert as published

    config = Wav2Vec2BertConfig(
        hidden_size=5, num_attention_heads=1, position_embeddings_type="relative_key",
        left_max_position_embeddings=clip, right_max_position_embeddings=clip,
    )  # fmt: skip
    peer = published.Wav2Vec2BertSelfAttention(config)
    q, k = torch.randn(n_queries, 5), torch.randn(n_keys, 5)
    bias = published._apply_relative_key_position_encoding(peer, q[None, None], k[None, None])[1]
    expected = (q @ k.T / 5**0.5 + bias[0, 0]).detach()
    table = peer.distance_embedding.weight.detach()
    assert_close(three_relative_scores(q=q, k=k, R=table)[0], expected, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("length", [3, 8])
def test_the_score_of_transformer_xl_equals_xlnet(length: int):
    """One layer for both sides, of one head: R by key minus query is theirs upside down."""
    sizes = {"vocab_size": 9, "d_model": 6, "n_head": 1, "n_layer": 1, "d_inner": 4}
    model = XLNetModel(XLNetConfig(**sizes, attn_type="bi", dropout=0.0)).eval()
    peer = model.layer[0].rel_attn  # q (D, 1, d) and so on; r_w_bias is u, r_r_bias is v
    for parameter in peer.parameters():
        torch.nn.init.normal_(parameter)
    codes = model.relative_positional_encoding(length, length, bsz=1)[:, 0]  # i - j from L down
    hidden = torch.randn(length, 1, 6)
    masks = {"attn_mask_h": None, "attn_mask_g": None, "seg_mat": None, "mems": None}
    states = {"h": hidden, "g": None, "r": codes[:, None]}
    with torch.no_grad():
        weights = peer(**states, **masks, output_attentions=True)[-1][..., 0, 0]  # (Lq, Lk)
        q, k = hidden[:, 0] @ peer.q[:, 0], hidden[:, 0] @ peer.k[:, 0]
        rows = codes @ peer.r[:, 0]  # i - j = L, ..., 1 - L: key minus query from -L on
    given = {"q": q, "k": k, "u": peer.r_w_bias[0].detach(), "v": peer.r_r_bias[0].detach()}
    rows = torch.cat([rows, rows[-1:]])  # to +L, which no pair has
    zero = {"R_query": torch.zeros_like(rows)}
    found = position_code(THREE).relative_scores(**given, **zero, R=rows)[1]
    assert_close(found.softmax(-1), weights, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("length", [3, 11])
def test_the_score_of_deberta_equals_transformers(length: int):
    """Their 2S rows are for query minus key from -S to S - 1: the last stands for S, too."""
    span = 4
    config = DebertaConfig(
        hidden_size=5, num_attention_heads=1, relative_attention=True, hidden_dropout_prob=0.0,
        attention_probs_dropout_prob=0.0, max_relative_positions=span, pos_att_type="c2p|p2c",
        max_position_embeddings=span,
    )  # fmt: skip
    peer = DisentangledSelfAttention(config)
    table, q, k = torch.randn(2 * span, 5), torch.randn(length, 5), torch.randn(length, 5)
    back = torch.arange(length)[:, None] - torch.arange(length)
    row = (span - torch.arange(-span, span + 1)).clamp(max=2 * span - 1)
    with torch.no_grad():
        keys, queries = peer.pos_proj(table)[row], peer.pos_q_proj(table)[row]
        scaled = q[None, None] / (3 * 5) ** 0.5
        bias = peer.disentangled_att_bias(scaled, k[None, None], back, table, 3)[0, 0]
    expected = q @ k.T / (3 * 5) ** 0.5 + bias
    found = three_relative_scores(q=q, k=k, R=keys, R_query=queries)[2]
    assert_close(found, expected, rtol=1e-5, atol=1e-6)


def test_the_table_of_the_three_names_what_published_classes_have():
    from transformers.models.vits.modeling_vits import VitsAttention

    assert hasattr(XLNetConfig(), "clamp_len")
    assert "emb_rel_v" in VitsAttention.__init__.__code__.co_names  # Shaw's values
    text = answer_cells(THREE)[0].source
    assert text.count("key − query") == 1
    assert text.count("query − key") == 2


# --- M-RoPE ---------------------------------------------------------------------------------------


def mrope_by_transformers(parts: list[Any]) -> tuple[Tensor, int]:
    """Return Qwen2-VL's ids (3, L) and delta; patches are merged two by two."""
    from transformers.models.qwen2_vl.modeling_qwen2_vl import Qwen2VLModel

    peer: Any = SimpleNamespace(
        config=SimpleNamespace(vision_config=SimpleNamespace(spatial_merge_size=2))
    )
    peer.get_vision_position_ids = lambda *args, **kwargs: Qwen2VLModel.get_vision_position_ids(
        peer, *args, **kwargs
    )
    kinds, grids = [], {1: [], 2: []}
    for part in parts:
        kind = 0 if isinstance(part, int) else 1 + (part[0] > 1)
        kinds += [kind] * (math.prod(part) if kind else part)
        if kind:
            grids[kind].append([part[0], 2 * part[1], 2 * part[2]])
    types = torch.tensor(kinds)[None]
    images, videos = (torch.tensor(each) if each else None for each in grids.values())
    ids, delta = Qwen2VLModel.get_rope_index(
        peer, torch.zeros_like(types), types, image_grid_thw=images, video_grid_thw=videos
    )
    return ids[:, 0], int(delta)


@pytest.mark.parametrize(
    "parts",
    [
        [5],
        [2, (1, 2, 3), 2, (2, 1, 2), 1],
        [1, (1, 5, 2), 1, (1, 3, 3), 4],
        [1, (1, 2, 3), 1, (5, 2, 2), 1],
        [3, (7, 2, 3), 2, (1, 4, 4), 1],
    ],
)
def test_the_ids_of_text_images_and_videos_equal_qwen2_vl(parts: list[Any]):
    """Of a video with more frames than rows and columns, too, which the paper numbers otherwise."""
    mrope_position_ids = position_code(MROPE).mrope_position_ids
    theirs, delta = mrope_by_transformers(parts)
    assert torch.equal(mrope_position_ids(parts), theirs)
    assert delta == int(theirs.max()) + 1 - theirs.shape[1]
    paper = mrope_position_ids(parts, by_paper=True)
    grids = [part for part in parts if isinstance(part, tuple)]
    long_video = any(frames > max(sides) for frames, *sides in grids)
    assert torch.equal(paper, theirs) is not long_video
    text = paper.shape[1] - parts[-1]  # where the last text begins
    assert not grids or int(paper[0, text]) == int(paper[:, :text].max()) + 1


@pytest.mark.parametrize("parts", [[3, (1, 32, 32), 2], [1, (1, 2, 5), 4]])
def test_generated_tokens_go_on_by_the_delta_as_in_qwen2_vl(parts: list[Any]):
    from transformers.models.qwen2_vl.modeling_qwen2_vl import Qwen2VLModel

    page = position_code(MROPE, 1)
    ids, delta = mrope_by_transformers(parts)
    length = ids.shape[1]
    model: Any = SimpleNamespace(rope_deltas=torch.tensor([[delta]]))
    cache: Any = SimpleNamespace(get_seq_length=lambda: length)
    expected = Qwen2VLModel.compute_3d_position_ids(
        model, None, torch.zeros(1, 4, 8), past_key_values=cache
    )
    assert torch.equal(page.next_position_ids(4, length, delta), expected)
    assert int(expected[0, 0, 0]) == int(ids.max()) + 1
    if length == 3 + 32 * 32 + 2:
        assert delta == page.rope_delta == -992  # "992 positions too far"
        assert "992 positions" in answer_cells(MROPE)[-1].source
