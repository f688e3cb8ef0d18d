"""Sinusoidal position codes: one formula, no parameters (chapter 2).

Each pair of columns rotates like the hand of a clock; the wavelengths form a geometric series.
"""

from __future__ import annotations

import math

import torch
from torch import Tensor

from pe_lib.errors import (
    require_bool,
    require_choice,
    require_floating,
    require_greater,
    require_multiple,
    require_positive,
    require_real,
)
from pe_lib.fast import CachedCodes, run_codes
from pe_lib.positions import Positions, Run, as_positions, in_float64, placed, sent

LAYOUTS = ("interleaved", "half")


def frequencies(dim: int, base: float = 10000.0, *, dtype: torch.dtype = torch.float64) -> Tensor:
    """Return the angular frequency of each pair of columns, in radians per position.

    Args:
        dim: width of the code; even.
        base: the ratio between the first frequency and the one just past the last; above 1.
        dtype: floating-point type of the result.

    Returns:
        (dim / 2,): base ** (-2j / dim) for j = 0, 1, ..., dim / 2 - 1. It is on the processor,
        since not every device has float64.

    Raises:
        TypeError: if dim is not an int, base not a number or dtype not floating-point.
        ValueError: if dim is odd or not positive, or base is not above 1.

    Source: Vaswani et al. 2017, section 3.5.
    """
    require_multiple("dim", dim, 2, "a sine and a cosine for each frequency")
    require_floating_dtype(dtype)
    exponents = torch.arange(0, dim, 2, dtype=torch.float64, device="cpu") / dim
    return (require_greater("base", base, 1) ** -exponents).to(dtype)


def require_floating_dtype(dtype: torch.dtype) -> None:
    """Raise a TypeError unless numbers of this type have fractions."""
    if not isinstance(dtype, torch.dtype) or not dtype.is_floating_point:
        raise TypeError(f"dtype must be a floating-point type, got {dtype!r}")


def wavelengths(dim: int, base: float = 10000.0) -> Tensor:
    """Return the period of each pair of columns in positions, (dim / 2,): 2 pi / frequency."""
    return 2 * torch.pi / frequencies(dim, base)


def arrange(first: Tensor, second: Tensor, layout: str) -> Tensor:
    """Join the first and the second components of pairs, (..., n) each, to (..., 2n).

    "interleaved": first, second, first, second, ... (the paper). "half": all first ones, then
    all second ones (diffusion models). The same numbers in another order.
    """
    require_choice("layout", layout, LAYOUTS)
    if layout == "half":
        return torch.cat([first, second], dim=-1)
    return torch.stack([first, second], dim=-1).flatten(-2)  # (..., n, 2) -> (..., 2n)


def sinusoidal(
    positions: object,
    dim: int,
    base: float = 10000.0,
    *,
    layout: str = "interleaved",
    dtype: torch.dtype = torch.float32,
) -> Tensor:
    """Return the sinusoidal code of each position.

    Args:
        positions: real numbers of any shape: integers, fractions, negative ones too. A `Run` is
            several times as fast, and rounded twice.
        dim: width of the code; even.
        base: sets the longest wavelength, 2 pi base ** (1 - 2 / dim) positions.
        layout: "interleaved" or "half", see `arrange`.
        dtype: type of the result. Angles are always computed in float64, since in float32
            position 5000 is already off in the fourth decimal.

    Returns:
        (*positions.shape, dim): sin(p w_j) and cos(p w_j) with w_j = base ** (-2j / dim).

    Raises:
        TypeError: if positions are not real numbers, dim is not an int or dtype is not
            floating-point.
        ValueError: if dim is odd, base not above 1, or the layout unknown.

    Source: Vaswani et al. 2017, section 3.5.
    """
    require_floating_dtype(dtype)
    require_choice("layout", layout, LAYOUTS)
    if isinstance(positions, Run):
        if not torch.compiler.is_compiling():
            # A sine and a cosine are the cosine and the sine of a quarter turn less the angle.
            rates, finer = -frequencies(dim, base), torch.promote_types(dtype, torch.float32)
            codes = run_codes(positions, rates, finer, layout, phase=math.pi / 2)
            return codes.to(torch.get_default_device(), dtype)  # (L, dim)
        positions = positions.tensor()
    places = require_real("positions", positions)
    exact = in_float64(places)
    angles = exact.unsqueeze(-1) * sent(frequencies(dim, base), exact.device)  # (..., dim / 2)
    return placed(arrange(angles.sin(), angles.cos(), layout), places.device, dtype)


def sinusoidal_2d(
    rows: object,
    columns: object,
    dim: int,
    base: float = 10000.0,
    *,
    layout: str = "interleaved",
    dtype: torch.dtype = torch.float32,
) -> Tensor:
    """Return the code of points on a grid: half the width for the row, half for the column.

    Args:
        rows: real numbers, of a shape that broadcasts with `columns`.
        columns: real numbers.
        dim: width of the code; a multiple of 4, since each half needs sines and cosines.
        base: as in `sinusoidal`.
        layout: as in `sinusoidal`, within each half.
        dtype: type of the result.

    Returns:
        (*broadcast shape, dim): the row's code, then the column's.

    Raises:
        TypeError: if rows or columns are not real numbers.
        ValueError: if dim is no multiple of 4 or the shapes do not broadcast.

    Source: the 1-D code for each axis, as He et al. 2022 add it to patches (theirs has the
        column's half first).
    """
    require_multiple("dim", dim, 4, "a sine and a cosine for each of two axes")
    axes = broadcast_axes(rows, columns)
    halves = [sinusoidal(axis, dim // 2, base, layout=layout, dtype=dtype) for axis in axes]
    return torch.cat(halves, dim=-1)  # (..., dim)


def broadcast_axes(rows: object, columns: object) -> tuple[Tensor, Tensor]:
    """Return the rows and columns of points on a grid as tensors of one shape."""
    row, column = require_real("rows", rows), require_real("columns", columns)
    try:
        shape = torch.broadcast_shapes(row.shape, column.shape)
    except RuntimeError as error:
        raise ValueError(
            "rows and columns must have shapes that broadcast, "
            f"got {tuple(row.shape)} and {tuple(column.shape)}"
        ) from error
    return row.expand(shape), column.expand(shape)


def timestep_embedding(
    timesteps: object,
    dim: int,
    base: float = 10000.0,
    *,
    cosines_first: bool = False,
    dtype: torch.dtype = torch.float32,
) -> Tensor:
    """Return the code of diffusion timesteps: `sinusoidal` in the "half" layout.

    Args:
        timesteps: real numbers of any shape; fractions are fine.
        dim: width of the code. An odd one is the code of the width below, and a zero.
        base: as in `sinusoidal`; called max_period in diffusion code.
        cosines_first: all cosines, then all sines (Nichol & Dhariwal 2021).
        dtype: type of the result.

    Returns:
        (*timesteps.shape, dim): all sines, then all cosines. Some code (Ho et al. 2020) divides
        the exponent by dim / 2 - 1, which is this code with base ** (dim / (dim - 2)).

    Raises:
        TypeError: if timesteps are not real numbers, dim is not an int or cosines_first no bool.
        ValueError: if dim is below 2 or base not above 1.

    Source: Ho et al. 2020, appendix B.
    """
    odd = require_positive("dim", dim, least=2) % 2
    code = sinusoidal(timesteps, dim - odd, base, layout="half", dtype=dtype)
    if require_bool("cosines_first", cosines_first):
        code = code.roll(dim // 2, dims=-1)
    return torch.cat([code, code.new_zeros(*code.shape[:-1], 1)], dim=-1) if odd else code


class Sinusoidal(CachedCodes):
    """Add the sinusoidal code to the input.

    Args:
        d_model: width D; even.
        base: as in `sinusoidal`.
        layout: as in `sinusoidal`.
        max_len: rows of the cache; positions outside it are computed on demand.
        gain: factor on the code. Token embeddings of a small model are often much smaller
            than the code, whose entries have a root mean square of 0.71.

    Raises:
        TypeError: if d_model or max_len is not an int, or base or gain not a number.
        ValueError: if d_model is odd, max_len not positive, base not above 1, gain not above
            0, or the layout unknown.

    Source: Vaswani et al. 2017, section 3.5.
    """

    def __init__(
        self,
        d_model: int,
        base: float = 10000.0,
        *,
        layout: str = "interleaved",
        max_len: int = 2048,
        gain: float = 1.0,
    ) -> None:
        """Cache the first `max_len` codes."""
        super().__init__()
        self.d_model = require_multiple("d_model", d_model, 2, "a sine and a cosine per frequency")
        self.base, self.layout = base, layout
        self.max_len = require_positive("max_len", max_len)
        self.gain = require_greater("gain", gain, 0)
        self.fill_cache(torch.float32, "cpu")  # (max_len, D)

    def compute(self, positions: Tensor) -> Tensor:
        """Return the codes of any positions in float64: (...) -> (..., D)."""
        return sinusoidal(
            positions, self.d_model, self.base, layout=self.layout, dtype=torch.float64
        )

    def embed(self, x: Tensor, positions: Positions) -> Tensor:
        """Add the codes of `positions`, which may be any real numbers, to x (B, L, D).

        Raises:
            TypeError: if x is not floating-point or positions are not real numbers.
            ValueError: if a shape does not fit.
        """
        require_floating("x", x)
        if x.ndim != 3 or x.shape[2] != self.d_model:
            raise ValueError(
                f"x must have shape (batch, length, {self.d_model}), got {tuple(x.shape)}"
            )
        positions = as_positions("positions", positions, x.shape[1], x.shape[0], x.device)
        codes = self.codes(positions, x).to(x.dtype)  # (L, D) or (B, L, D)
        return x + (codes if self.gain == 1 else self.gain * codes)
