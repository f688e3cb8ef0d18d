"""Tables at another length: against loops, ViT and SigLIP 2."""

from __future__ import annotations

import math

import pytest
import torch
from closeness import assert_close, difference
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor, nn

from pe_lib.recent.resizing import interpolate_grid, interpolate_table, sample_table

sizes = st.integers(1, 6)


def draw_table(rows: int, columns: int) -> Tensor:
    random = torch.Generator().manual_seed(0)
    return torch.randn(rows, columns, dtype=torch.float64, generator=random)


# Loops from the definitions -----------------------------------------------------------------------


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


def test_a_table_of_another_grid_is_refused() -> None:
    with pytest.raises(ValueError, match=r"table must have shape \(2 \* 3, D\) for grid"):
        interpolate_grid(draw_table(12, 4), (2, 3), (3, 3))  # 4 * 12 numbers are 8 of 2 * 3


# Published models ---------------------------------------------------------------------------------


@pytest.mark.parametrize("size", [(16, 12), (8, 20), (4, 4)])
def test_a_grid_is_resized_as_in_vit(size: tuple[int, int]) -> None:
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
    images = torch.randn(2, 1, *size, generator=torch.Generator().manual_seed(3))
    new_grid = (size[0] // 2, size[1] // 2)
    with torch.no_grad():
        tokens = theirs.patch_embeddings(images)
        expected = theirs(images, interpolate_pos_encoding=True)[:, 1:]
        table = interpolate_grid(theirs.position_embeddings[0, 1:], (6, 6), new_grid)
        assert_close(tokens + table, expected)


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
