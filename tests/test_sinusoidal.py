"""Sinusoidal codes: against loops and published code, exact between layouts, any real position."""

from __future__ import annotations

import math

import pytest
import torch
from closeness import assert_close, difference
from hypothesis import given, settings
from hypothesis import strategies as st

from pe_lib.recent.axes import sinusoidal_2d
from pe_lib.sinusoidal import (
    Sinusoidal,
    frequencies,
    sinusoidal,
    wavelengths,
)

quick = settings(max_examples=30, deadline=None)
pairs = st.integers(1, 7)
bases = st.floats(1.5, 1e6)
places = st.floats(-3e4, 3e4)
layouts = st.sampled_from(("interleaved", "half"))
OFFSETS = (0, 3, 5000, 100_000)


# Loops from the definition ------------------------------------------------------------------------


def twin(position: float, dim: int, base: float, layout: str) -> list[float]:
    """One number at a time, as the paper writes it."""
    row = [0.0] * dim
    for j in range(dim // 2):
        angle = position / base ** (2 * j / dim)
        sine, cosine = (2 * j, 2 * j + 1) if layout == "interleaved" else (j, dim // 2 + j)
        row[sine], row[cosine] = math.sin(angle), math.cos(angle)
    return row


@quick
@given(st.lists(places, min_size=1, max_size=5), pairs, bases, layouts)
def test_each_number_equals_the_formula(
    positions: list[float], n: int, base: float, layout: str
) -> None:
    exact = torch.tensor(positions, dtype=torch.float64)
    codes = sinusoidal(exact, 2 * n, base, layout=layout, dtype=torch.float64)
    expected = torch.tensor([twin(p, 2 * n, base, layout) for p in positions], dtype=torch.float64)
    assert codes.shape == (len(positions), 2 * n)
    assert torch.allclose(codes, expected, rtol=0, atol=1e-10)


@quick
@given(st.integers(1, 4), st.integers(1, 5), pairs, bases, layouts, st.integers(0, 999))
def test_each_number_of_a_grid_equals_the_formula(
    rows: int, columns: int, n: int, base: float, layout: str, offset: int
) -> None:
    ys, xs = torch.arange(rows)[:, None] + offset, torch.arange(columns) - 2
    codes = sinusoidal_2d(ys, xs, 4 * n, base, layout=layout, dtype=torch.float64)
    assert codes.shape == (rows, columns, 4 * n)
    for i in range(rows):
        for j in range(columns):
            row, column = int(ys[i, 0]), int(xs[j])
            both = [*twin(row, 2 * n, base, layout), *twin(column, 2 * n, base, layout)]
            expected = torch.tensor(both, dtype=torch.float64)
            assert torch.allclose(codes[i, j], expected, rtol=0, atol=1e-11)


@quick
@given(pairs, bases)
def test_frequencies_are_a_geometric_series(n: int, base: float) -> None:
    inv_freq = frequencies(2 * n, base)
    assert inv_freq.shape == (n,)
    assert inv_freq[0] == 1
    for j in range(n):
        assert float(inv_freq[j]) == pytest.approx(math.exp(-2 * j / (2 * n) * math.log(base)))
    assert float(wavelengths(2 * n, base)[-1]) == pytest.approx(
        2 * math.pi * base ** (1 - 1 / n), rel=1e-9
    )


# Published code -----------------------------------------------------------------------------------


@pytest.mark.parametrize(("length", "dim"), [(7, 6), (61, 30), (300, 128)])
def test_equal_to_the_table_of_ctrl(length: int, dim: int) -> None:
    """CTRL: halves, computed in the type given."""
    from transformers.models.ctrl.modeling_ctrl import positional_encoding

    theirs = positional_encoding(length, dim, torch.float64)
    ours = sinusoidal(torch.arange(length), dim, layout="half", dtype=torch.float64)
    assert_close(ours, theirs, 1e-12)


@pytest.mark.parametrize(("length", "dim"), [(7, 6), (61, 30), (300, 128)])
def test_equal_to_whisper_with_another_base(length: int, dim: int) -> None:
    """Whisper: halves, exponents divided by dim / 2 - 1; float32 angles, hence the tolerance."""
    from transformers.models.whisper.modeling_whisper import sinusoids

    ours = sinusoidal(torch.arange(length), dim, 10000 ** (dim / (dim - 2)), layout="half")
    assert_close(ours, sinusoids(length, dim), 2e-7 * max(length, 5))
    plain = sinusoidal(torch.arange(length), dim, layout="half")
    assert difference(plain, sinusoids(length, dim)) > 1e-3  # the divisors do differ


@pytest.mark.parametrize(("batch", "length", "dim"), [(2, 7, 6), (3, 61, 30), (1, 300, 128)])
def test_equal_to_positional_encodings_1d(batch: int, length: int, dim: int) -> None:
    """Interleaved, as here; float32 angles, hence the tolerance."""
    from positional_encodings.torch_encodings import PositionalEncoding1D

    theirs = PositionalEncoding1D(dim)(torch.zeros(batch, length, dim))
    ours = sinusoidal(torch.arange(length), dim).expand(batch, -1, -1)
    assert_close(ours, theirs, 2e-7 * max(length, 5))


@pytest.mark.parametrize(("size", "dim"), [(5, 12), (14, 40)])
def test_equal_to_the_2d_code_of_diffusers(size: int, dim: int) -> None:
    """Halves within each axis, and the column before the row; square, positions unscaled."""
    from diffusers.models.embeddings import get_2d_sincos_pos_embed

    theirs = get_2d_sincos_pos_embed(dim, size, base_size=size)
    rows, columns = torch.arange(size)[:, None], torch.arange(size)
    ours = sinusoidal_2d(columns, rows, dim, layout="half", dtype=torch.float64)
    assert_close(ours.flatten(0, 1), theirs.double())


@pytest.mark.parametrize("dim", [8, 34, 320])
@pytest.mark.parametrize("cosines_first", [False, True])
@pytest.mark.parametrize("shift", [0, 1])
def test_equal_to_the_timesteps_of_diffusers(dim: int, cosines_first: bool, shift: int) -> None:
    """Their shift of 1 divides exponents by dim / 2 - 1: a base a little larger.

    float32 angles there: 999.75 has a spacing of 6e-5.
    """
    from diffusers.models.embeddings import get_timestep_embedding

    timesteps = torch.tensor([0.0, 1.0, 17.25, 500.5, 999.75])
    theirs = get_timestep_embedding(
        timesteps, dim, flip_sin_to_cos=cosines_first, downscale_freq_shift=shift
    )
    base = 10000 ** (dim / (dim - 2 * shift))
    ours = sinusoidal(timesteps, dim, base, layout="half")
    ours = ours.roll(dim // 2, dims=-1) if cosines_first else ours
    assert_close(ours, theirs, 2e-4)
    assert_close(ours[:2], theirs[:2], 1e-6)  # where float32 angles are exact enough


# Layouts and shapes -------------------------------------------------------------------------------


@pytest.mark.parametrize("shape", [(), (5,), (2, 3), (2, 1, 4)])
def test_positions_of_any_shape_keep_it(shape: tuple[int, ...]) -> None:
    positions = torch.rand(shape) * 100
    codes = sinusoidal(positions, 6)
    assert codes.shape == (*shape, 6)
    assert torch.equal(codes.reshape(-1, 6), sinusoidal(positions.flatten(), 6))


@pytest.mark.parametrize("places", [[3.0, 4.0, 5.0], [7.0], [1.0, 4.5, -2.0]])
def test_a_code_has_its_gradient_by_position(places: list[float]) -> None:
    positions = torch.tensor(places, dtype=torch.float64, requires_grad=True)
    weights, inv_freq = torch.randn(len(places), 6), frequencies(6)
    (found,) = torch.autograd.grad((sinusoidal(positions, 6) * weights).sum(), positions)
    angles = positions.detach()[:, None] * inv_freq
    slopes = torch.stack([inv_freq * angles.cos(), -inv_freq * angles.sin()], dim=-1).flatten(-2)
    torch.testing.assert_close(found, (slopes * weights).sum(-1))


def test_integers_and_floats_have_one_code() -> None:
    whole = torch.tensor([-7, 0, 3, 5000])
    for dtype in (torch.int16, torch.int32, torch.float32, torch.float64):
        assert torch.equal(sinusoidal(whole.to(dtype), 8), sinusoidal(whole, 8))


def test_embed_adds_the_code_once() -> None:
    x, places = torch.randn(2, 5, 8, dtype=torch.float64), torch.randn(2, 5) * 100
    codes = sinusoidal(places, 8, 50.0, dtype=torch.float64)
    torch.testing.assert_close(Sinusoidal(8, 50.0, gain=0.3).embed(x, places), x + 0.3 * codes)


# Precision ----------------------------------------------------------------------------------------


@pytest.mark.parametrize("offset", OFFSETS)
def test_far_float32_codes_are_exact(offset: int) -> None:
    positions = torch.arange(offset, offset + 9)
    codes = sinusoidal(positions, 64)
    assert codes.dtype == torch.float32
    for i, position in enumerate(positions.tolist()):
        expected = torch.tensor(twin(position, 64, 10000.0, "interleaved"), dtype=torch.float64)
        assert (codes[i].double() - expected).abs().max() < 6e-8


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float64])
def test_other_types_are_rounded_once(dtype: torch.dtype) -> None:
    exact = sinusoidal(torch.arange(4000, 4010), 32, dtype=torch.float64)
    assert torch.equal(sinusoidal(torch.arange(4000, 4010), 32, dtype=dtype), exact.to(dtype))
    grid = sinusoidal_2d(torch.tensor(3), torch.arange(4000, 4010), 32, dtype=dtype)
    assert grid.dtype == dtype
