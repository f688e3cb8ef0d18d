"""Learned tables: against loops and published models, and stretched."""

from __future__ import annotations

import math

import pytest
import torch
from closeness import assert_close, difference
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor, nn

from pe_lib.learned import Learned
from pe_lib.recent.resizing import interpolate_grid, interpolate_table, sample_table

sizes = st.integers(1, 6)


def generator(seed: int) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


def draw_table(rows: int, columns: int, seed: int = 0) -> Tensor:
    return torch.randn(rows, columns, dtype=torch.float64, generator=generator(seed))


def learned(max_len: int, d_model: int) -> Learned:
    torch.manual_seed(1)
    return Learned(max_len, d_model, std=1.0)


# Loops from the definitions -----------------------------------------------------------------------


def twin_embed(x: Tensor, table: Tensor, positions: Tensor) -> Tensor:
    """Add one number at a time: x[b, i, c] + row(positions[b, i])[c]."""
    batch, length, width = x.shape
    places, out = positions.expand(batch, length), x.clone()
    for b in range(batch):
        for i in range(length):
            for c in range(width):
                out[b, i, c] += table[int(places[b, i]), c]
    return out


@settings(max_examples=30, deadline=None)
@given(sizes, sizes, sizes, st.integers(0, 9), st.booleans())
def test_embed_equals_the_loop(
    batch: int, length: int, width: int, start: int, batched: bool
) -> None:
    encoding = learned(start + length, width).double()
    x = torch.randn(batch, length, width, dtype=torch.float64, generator=generator(2))
    positions = start + torch.arange(length)
    if batched:
        positions = torch.stack([positions.roll(b) for b in range(batch)])
    expected = twin_embed(x, encoding.table.detach(), positions)
    assert_close(encoding.embed(x, positions), expected, 1e-12)


@settings(max_examples=30, deadline=None)
@given(sizes, sizes, st.integers(1, 15))
def test_interpolated_rows_equal_the_loop(rows: int, width: int, length: int) -> None:
    table = draw_table(rows, width)
    expected = torch.zeros(length, width, dtype=torch.float64)
    for i in range(length):
        place = i * (rows - 1) / (length - 1) if length > 1 else 0.0
        low = min(math.floor(place + 1e-12), rows - 1)
        high = min(low + 1, rows - 1)
        for c in range(width):
            expected[i, c] = (1 - (place - low)) * table[low, c] + (place - low) * table[high, c]
    assert_close(interpolate_table(table, length), expected, 1e-9)


def kernel(distance: float, mode: str) -> float:
    """The weight of a neighbour: a tent, or Keys' cubic with a = -0.75."""
    t = abs(distance)
    if mode == "bilinear":
        return max(0.0, 1 - t)
    if t <= 1:
        return 1.25 * t**3 - 2.25 * t**2 + 1
    return -0.75 * (t**3 - 5 * t**2 + 8 * t - 4) if t < 2 else 0.0


def twin_grid(table: Tensor, grid: tuple[int, int], new: tuple[int, int], mode: str) -> Tensor:
    """Centres of patches are at half numbers; outside the grid its border goes on."""
    out = torch.zeros(new[0] * new[1], table.shape[1], dtype=table.dtype)
    for r in range(new[0]):
        for c in range(new[1]):
            y = (r + 0.5) * grid[0] / new[0] - 0.5
            x = (c + 0.5) * grid[1] / new[1] - 0.5
            for i in range(math.floor(y) - 1, math.floor(y) + 3):
                for j in range(math.floor(x) - 1, math.floor(x) + 3):
                    weight = kernel(y - i, mode) * kernel(x - j, mode)
                    row, column = min(max(i, 0), grid[0] - 1), min(max(j, 0), grid[1] - 1)
                    out[r * new[1] + c] += weight * table[row * grid[1] + column]
    return out


@pytest.mark.parametrize("new", [(3, 5), (6, 6), (9, 4)])
def test_antialiased_resizing_equals_siglip2(new: tuple[int, int]) -> None:
    from transformers.models.siglip2.modeling_siglip2 import Siglip2VisionEmbeddings

    table = draw_table(36, 4).float()
    theirs = Siglip2VisionEmbeddings.resize_positional_embeddings(
        table.reshape(6, 6, 4), torch.tensor([new]), max_length=new[0] * new[1]
    )
    ours = interpolate_grid(table, (6, 6), new, "bilinear", antialias=True)
    assert_close(ours, theirs[0])
    if new == (3, 5):  # it matters where a grid shrinks
        assert difference(interpolate_grid(table, (6, 6), new, "bilinear"), theirs[0]) > 0.05


@settings(max_examples=20, deadline=None)
@given(
    sizes,
    sizes,
    st.integers(1, 9),
    st.integers(1, 9),
    st.integers(1, 3),
    st.sampled_from(("bicubic", "bilinear")),
)
def test_grid_interpolation_equals_the_loop(
    rows: int, columns: int, new_rows: int, new_columns: int, width: int, mode: str
) -> None:
    grid, new = (rows, columns), (new_rows, new_columns)
    table = draw_table(rows * columns, width)
    assert_close(interpolate_grid(table, grid, new, mode), twin_grid(table, grid, new, mode), 1e-9)


# Published models ---------------------------------------------------------------------------------


@pytest.mark.parametrize("offset", [0, 5])
def test_equal_to_the_embeddings_of_gpt2(offset: int) -> None:
    """A GPT-2 of zero layers is its two tables and a LayerNorm."""
    from transformers import GPT2Config, GPT2Model

    torch.manual_seed(offset)
    config = GPT2Config(
        vocab_size=13, n_positions=20, n_embd=8, n_head=2, n_layer=0, embd_pdrop=0.0
    )
    theirs = GPT2Model(config).eval()
    ours = Learned(20, 8)
    ours.load_state_dict({"table": theirs.wpe.weight.detach()})
    tokens = torch.randint(13, (3, 7), generator=generator(offset))
    positions = torch.arange(offset, offset + 7)
    with torch.no_grad():
        expected = theirs(input_ids=tokens, position_ids=positions[None]).last_hidden_state
        assert_close(theirs.ln_f(ours.embed(theirs.wte(tokens), positions)), expected)


@pytest.mark.parametrize("size", [(16, 12), (8, 20), (4, 4)])
def test_equal_to_the_interpolation_of_vit(size: tuple[int, int]) -> None:
    """ViT keeps the row of its class token and resizes the rest, bicubic without antialiasing."""
    from transformers import ViTConfig
    from transformers.models.vit.modeling_vit import ViTEmbeddings

    config = ViTConfig(
        hidden_size=8,
        num_attention_heads=2,
        image_size=12,
        patch_size=2,
        num_channels=1,
        hidden_dropout_prob=0.0,
    )
    torch.manual_seed(2)
    theirs = ViTEmbeddings(config).eval()
    nn.init.normal_(theirs.position_embeddings)
    images = torch.randn(2, 1, *size, generator=generator(3))
    new_grid = (size[0] // 2, size[1] // 2)
    with torch.no_grad():
        tokens = theirs.patch_embeddings(images)
        expected = theirs(images, interpolate_pos_encoding=True)[:, 1:]
        table = interpolate_grid(theirs.position_embeddings[0, 1:], (6, 6), new_grid)
        assert_close(tokens + table, expected)


# Stretching ---------------------------------------------------------------------------------------


def test_places_between_rows_have_any_shape() -> None:
    table = draw_table(4, 3)
    places = torch.tensor([[0.0, 0.5], [2.75, 3.0]], dtype=torch.float64)
    rows = sample_table(table, places)
    assert rows.shape == (2, 2, 3)
    assert_close(rows[1, 0], 0.25 * table[2] + 0.75 * table[3], 1e-12)
    coarse = (1.3 * torch.ones(4, 3)).bfloat16()
    assert torch.equal(sample_table(coarse, places + 200), coarse[:1].expand(2, 2, 3))
    with pytest.raises(ValueError, match="places must be at least 0, got -3"):
        sample_table(table, -places)
