"""Rotations by several numbers per token: equal to RoPE for text, and to published models."""

from __future__ import annotations

import math
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from alone import timm_positions
from closeness import assert_close
from torch import Tensor

from pe_lib import AxesRoPE, Learned, RoPE, Sinusoidal
from pe_lib.attention import attention_logits
from pe_lib.encoding import axes_of, order_of
from pe_lib.recent.axes import (
    golden_directions,
    grid_positions,
    section_directions,
    text_image_positions,
    width_directions,
    with_order,
)
from pe_lib.sinusoidal import frequencies

BASE = 100.0


def heads(*shape: int, dtype: torch.dtype = torch.float64) -> Tensor:
    random = torch.Generator().manual_seed(0)
    return torch.randn(*shape, dtype=dtype, generator=random)


# --- positions and directions ---------------------------------------------------------------------


def test_text_is_numbered_after_the_largest():
    places = text_image_positions([2, (1, 2, 3), 1, (4, 1, 2), 2])
    image = [[2, 2 + y, 2 + x] for y in range(2) for x in range(3)]
    video = [[6 + t, 6, 6 + x] for t in range(4) for x in range(2)]
    text = [[[n] * 3 for n in numbers] for numbers in ([0, 1], [5], [10, 11])]
    assert axes_of(places)[0].tolist() == text[0] + image + text[1] + video + text[2]
    assert order_of(places).tolist() == [list(range(places.shape[-1]))]


def test_golden_directions_never_line_up():
    inv_freq = frequencies(64, BASE)
    directions = golden_directions(inv_freq)
    assert_close(directions.norm(dim=-1), inv_freq, 1e-12)
    unit = directions / inv_freq[:, None]
    aligned = (unit @ unit.T).fill_diagonal_(0).abs().max()
    assert 0.99 < aligned < math.cos(0.5 * math.pi / 32)  # no two nearer than half an even spread


# --- equalities -----------------------------------------------------------------------------------


@pytest.mark.parametrize("arrangement", ["chunked", "interleaved"])
@pytest.mark.parametrize("layout", ["interleaved", "half"])
def test_text_rotates_as_in_rope(arrangement: str, layout: str):
    """As positions of one number, and as the same number three times."""
    q, k, inv_freq = heads(2, 3, 5, 16), heads(2, 3, 5, 16).flip(0), frequencies(16, BASE)
    several = AxesRoPE(16, section_directions(inv_freq, [2, 3, 3], arrangement), layout=layout)
    one = RoPE(16, BASE, layout=layout)
    places = torch.arange(5) + 7
    three = with_order(places[:, None].expand(-1, 3), places)
    expected = attention_logits(q, k, one, places, places)
    assert_close(attention_logits(q, k, several, places, places), expected, 1e-14)
    assert_close(attention_logits(q, k, several, three, three), expected, 1e-14)
    batched = torch.stack([torch.arange(5), torch.arange(5) * 2 + 0.5])
    expected = attention_logits(q, k, one, batched, batched)
    assert_close(attention_logits(q, k, several, batched, batched), expected, 1e-14)


def rotated(encoding: AxesRoPE, x: Tensor, numbers: Tensor) -> Tensor:
    return encoding.rotate_axes(x, x, numbers, numbers)[0]


@pytest.mark.parametrize(
    ("family", "sections", "arrangement"),
    [("qwen2_vl", [2, 3, 3], "chunked"), ("qwen3_vl", [4, 2, 2], "interleaved")],
)
def test_sections_equal_transformers(family: str, sections: list[int], arrangement: str):
    """Qwen2-VL and Qwen3-VL: text, an image, and text again, in one sequence."""
    from transformers.models.qwen2_vl import modeling_qwen2_vl as qwen2
    from transformers.models.qwen3_vl import modeling_qwen3_vl as qwen3

    rope: dict[str, Any] = {"rope_type": "default", "rope_theta": 1e4, "mrope_section": sections}
    config: Any = SimpleNamespace(
        rope_parameters=rope,
        max_position_embeddings=64,
        head_dim=16,
        hidden_size=32,
        num_attention_heads=2,
    )
    theirs: Any = {
        "qwen2_vl": qwen2.Qwen2VLRotaryEmbedding,
        "qwen3_vl": qwen3.Qwen3VLTextRotaryEmbedding,
    }[family](config)
    numbers = axes_of(text_image_positions([3, (1, 3, 4), 2, (2, 2, 2), 1]))[0]  # (26, 3)
    q = heads(2, 2, len(numbers), 16, dtype=torch.float32)
    cos, sin = theirs(q, numbers.T[:, None])  # (1, L, d) each
    expected = qwen3.apply_rotary_pos_emb(q, q, cos, sin)[0]
    directions = section_directions(frequencies(16, 1e4), sections, arrangement)
    ours = AxesRoPE(16, directions, layout="half")
    assert_close(rotated(ours, q, numbers), expected, 1e-6)
    other = {"chunked": "interleaved", "interleaved": "chunked"}[arrangement]
    wrong = AxesRoPE(16, section_directions(frequencies(16, 1e4), sections, other), layout="half")
    assert (rotated(wrong, q, numbers) - expected).abs().max() > 0.1


@pytest.mark.parametrize("frames", [1, 3])
def test_numbers_of_text_and_images_equal_transformers(frames: int):
    """Qwen2-VL's own numbering, for a video that has no more frames than rows or columns."""
    from transformers.models.qwen2_vl.modeling_qwen2_vl import Qwen2VLModel

    stub: Any = SimpleNamespace(
        config=SimpleNamespace(vision_config=SimpleNamespace(spatial_merge_size=2))
    )
    stub.get_vision_position_ids = lambda *args, **kwargs: Qwen2VLModel.get_vision_position_ids(
        stub, *args, **kwargs
    )
    kinds = torch.tensor([0] * 4 + [2] * (frames * 2 * 3) + [0] * 3)[None]
    theirs, _ = Qwen2VLModel.get_rope_index(
        stub,
        torch.zeros_like(kinds),  # type: ignore[arg-type]
        kinds,  # type: ignore[arg-type]
        video_grid_thw=torch.tensor([[frames, 4, 6]]),  # type: ignore[arg-type]
    )
    assert text_image_positions([4, (frames, 2, 3), 3])[1:].tolist() == theirs.tolist()


def test_flux_equals_diffusers():
    from diffusers.models.embeddings import apply_rotary_emb
    from diffusers.models.transformers.transformer_flux import FluxPosEmbed

    ids = torch.cat([torch.zeros(4, 3), grid_positions(1, 3, 5)])  # text at the origin, an image
    q = heads(2, 2, 19, 128, dtype=torch.float32)
    expected = apply_rotary_emb(q, FluxPosEmbed(10000, [16, 56, 56])(ids))
    assert_close(rotated(AxesRoPE(128, width_directions([16, 56, 56])), q, ids), expected, 1e-6)


def test_wan_equals_diffusers():
    from diffusers.models.embeddings import apply_rotary_emb
    from diffusers.models.transformers.transformer_wan import WanRotaryPosEmbed

    q = heads(2, 2, 2 * 3 * 4, 128, dtype=torch.float32)
    theirs = WanRotaryPosEmbed(128, (1, 2, 2), 32)
    cos, sin = theirs(torch.zeros(1, 4, 2, 6, 8))  # patches of 1 x 2 x 2
    expected = apply_rotary_emb(q, (cos[0, :, 0], sin[0, :, 0]))
    side = 2 * (128 // 6)
    ours = AxesRoPE(128, width_directions([128 - 2 * side, side, side]))
    assert_close(rotated(ours, q, grid_positions(2, 3, 4)), expected, 1e-6)


def test_cogvideox_equals_diffusers():
    from diffusers.models.embeddings import apply_rotary_emb, get_3d_rotary_pos_embed

    codes = get_3d_rotary_pos_embed(64, ((0, 0), (3, 5)), (3, 5), 2)
    q = heads(2, 2, 30, 64, dtype=torch.float32)
    expected = apply_rotary_emb(q, codes)
    ours = AxesRoPE(64, width_directions([16, 24, 24]))
    assert_close(rotated(ours, q, grid_positions(2, 3, 5)), expected, 1e-6)


def by_timm(q: Tensor, embed: Tensor, half: bool = False) -> Tensor:
    rotated_q: Tensor = timm_positions().apply_rot_embed_cat(q, embed, half=half)
    return rotated_q


def square_rates(width: int, base: float) -> Tensor:
    """Return directions of half the width for the rows and half for the columns."""
    return width_directions([width // 2, width // 2], base)


@pytest.mark.parametrize("trained", [None, (4, 10)])
def test_axial_rotations_equal_timm(trained: tuple[int, int] | None):
    """On a grid that is not square; and laid over another grid, as in EVA."""
    theirs = timm_positions().RotaryEmbeddingCat(
        64, temperature=100.0, in_pixels=False, ref_feat_shape=trained
    )
    q, numbers = heads(2, 2, 15, 64, dtype=torch.float32), grid_positions(3, 5).double()
    if trained is not None:
        numbers = numbers * torch.tensor(trained) / torch.tensor([3, 5])
    expected = by_timm(q, theirs.get_embed((3, 5)))
    assert_close(rotated(AxesRoPE(64, square_rates(64, 100.0)), q, numbers), expected, 1e-6)


def test_mixed_rotations_equal_timm():
    """Drawn directions for each head and block; its first number is the column."""
    torch.manual_seed(0)
    theirs = timm_positions().RotaryEmbeddingMixed(64, depth=2, num_heads=2)
    q = heads(2, 2, 15, 32, dtype=torch.float32)
    for block in range(2):
        expected = by_timm(q, theirs.get_embed([3, 5])[block]).detach()
        directions = theirs.freqs[:, block].detach().permute(1, 2, 0).flip(-1)  # (H, n, 2)
        ours = AxesRoPE(32, directions.double())
        assert_close(rotated(ours, q, grid_positions(3, 5)), expected, 1e-6)


def test_the_rotations_of_dinov3_equal_timm():
    """Centres of patches between -1 and 1, periods instead of frequencies, the half layout."""
    theirs = timm_positions().RotaryEmbeddingDinoV3(64)
    q, size = heads(2, 2, 15, 64, dtype=torch.float32), torch.tensor([3, 5])
    expected = by_timm(q, theirs.get_embed([3, 5]), half=True)
    centres = 2 * (grid_positions(3, 5).double() + 0.5) / size - 1
    ours = AxesRoPE(64, 2 * math.pi * square_rates(64, 100.0), layout="half")
    assert_close(rotated(ours, q, centres), expected, 1e-6)


def test_interleaved_sections_of_an_image_equal_timm():
    """An image without text: all its patches have the frame 0."""
    theirs = timm_positions().RotaryEmbeddingMRope(72, (12, 12, 12))
    q = heads(2, 2, 15, 72, dtype=torch.float32)
    expected = by_timm(q, theirs.get_embed((3, 5)), half=True)
    directions = section_directions(frequencies(72), [12, 12, 12], "interleaved")
    ours = AxesRoPE(72, directions, layout="half")
    assert_close(rotated(ours, q, grid_positions(1, 3, 5)), expected, 1e-6)


def test_what_is_added_reads_the_order():
    places, x = text_image_positions([2, (1, 2, 2), 1]), heads(2, 7, 8)
    for encoding in (Sinusoidal(8), Learned(7, 8).double()):
        found = encoding.embed(x, places)
        assert_close(found, encoding.embed(x, torch.arange(7)), 1e-14)


# --- what rotates, and what is trained ------------------------------------------------------------


@pytest.mark.parametrize(
    "directions",
    [
        section_directions(frequencies(12, BASE), [2, 2, 2], "interleaved"),
        heads(6, 3),
        heads(2, 6, 3),
    ],
)
def test_scores_know_differences_alone(directions: Tensor):
    """Also where some components do not rotate; batches have numbers of their own."""
    q, k, numbers = heads(2, 2, 6, 16), heads(2, 2, 6, 16).flip(1), heads(2, 6, 3)
    encoding = AxesRoPE(16, directions, attention_factor=1.5, rotary_dim=12)
    places = with_order(numbers)
    moved = with_order(numbers + torch.tensor([3.0, -20.0, 0.5]))
    scores = attention_logits(q, k, encoding, places, places)
    assert_close(attention_logits(q, k, encoding, moved, moved), scores, 1e-12)
    other = with_order(numbers.flip(-1))
    assert (attention_logits(q, k, encoding, other, other) - scores).abs().max() > 1e-2


def test_directions_of_unknown_axes_are_refused() -> None:
    with pytest.raises(ValueError, match="arrangement must be chunked or interleaved, got 'mixed'"):
        section_directions(frequencies(8), [2, 2], "mixed")
    with pytest.raises(ValueError, match="sections must add up to 1, as many as inv_freq"):
        section_directions(frequencies(2), [2, 2])
