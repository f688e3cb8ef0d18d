"""Sinusoidal position codes: one formula, no parameters (chapter 2).

Each pair of columns turns like the hand of a clock; the wavelengths form a geometric series.
"""

from __future__ import annotations

import math

import torch
from torch import Tensor

from pe_lib.attention import PositionEncoding, is_consecutive
from pe_lib.errors import (
    require_choice,
    require_floating,
    require_greater,
    require_multiple,
    require_positions,
    require_positive,
    require_real,
)

LAYOUTS = ("interleaved", "halves")


def frequencies(dim: int, base: float = 10000.0, *, dtype: torch.dtype = torch.float64) -> Tensor:
    """Return the angular frequency of each pair of columns, in radians per position.

    Args:
        dim: width of the code; even.
        base: the ratio between the first frequency and the one just past the last; above 1.
        dtype: floating-point type of the result.

    Returns:
        (dim / 2,): base ** (-2j / dim) for j = 0, 1, ..., dim / 2 - 1.

    Raises:
        TypeError: if dim is not an int or base not a number.
        ValueError: if dim is odd or not positive, or base is not above 1.

    Source: Vaswani et al. 2017, section 3.5.
    """
    require_multiple("dim", dim, 2, "a sine and a cosine for each frequency")
    require_greater("base", base, 1)
    exponents = torch.arange(0, dim, 2, dtype=torch.float64) / dim
    return (float(base) ** -exponents).to(dtype)


def wavelengths(dim: int, base: float = 10000.0) -> Tensor:
    """Return the period of each pair of columns in positions, (dim / 2,): 2 pi / frequency."""
    return 2 * torch.pi / frequencies(dim, base)


def arrange(sines: Tensor, cosines: Tensor, layout: str) -> Tensor:
    """Join sines and cosines, (..., n) each, to (..., 2n) in one of the two layouts.

    "interleaved": sin, cos, sin, cos, ... (the paper). "halves": all sines, then all cosines
    (diffusion models). The same numbers in another order.
    """
    require_choice("layout", layout, LAYOUTS)
    if layout == "halves":
        return torch.cat([sines, cosines], dim=-1)
    return torch.stack([sines, cosines], dim=-1).flatten(-2)  # (..., n, 2) -> (..., 2n)


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
        positions: real numbers of any shape: integers, fractions, negative ones too.
        dim: width of the code; even.
        base: sets the longest wavelength, 2 pi base ** (1 - 2 / dim) positions.
        layout: "interleaved" or "halves", see `arrange`.
        dtype: type of the result. Angles are always computed in float64, since in float32
            position 5000 is already off in the fourth decimal.

    Returns:
        (*positions.shape, dim): sin(p w_j) and cos(p w_j) with w_j = base ** (-2j / dim).

    Raises:
        TypeError: if positions are not real numbers or dim is not an int.
        ValueError: if dim is odd, base not above 1, or the layout unknown.

    Source: Vaswani et al. 2017, section 3.5.
    """
    places = require_real("positions", positions, torch.float64)
    rates = frequencies(dim, base).to(places.device)
    if dtype == torch.float32 and is_consecutive(places):
        codes = consecutive_codes(places, rates)  # (L, dim / 2, 2)
        if layout == "interleaved":
            return codes.flatten(-2)  # no copy
        return arrange(codes[..., 0], codes[..., 1], layout)
    angles = places.unsqueeze(-1) * rates  # (..., dim / 2)
    return arrange(angles.sin(), angles.cos(), layout).to(dtype)


def consecutive_codes(positions: Tensor, rates: Tensor) -> Tensor:
    """Return sine and cosine for positions that rise by one, in float32, from few angles.

    A position is the first of a block plus a rest. The angles of the firsts and the rests are
    enough: one complex product per pair adds them up, several times as fast as sines.

    Args:
        positions: (L,) in float64, each one more than the one before.
        rates: (n,) frequencies in float64.

    Returns:
        (L, n, 2): sine and cosine, rounded from float64.
    """
    block = math.isqrt(len(positions)) + 1
    firsts = positions[::block].unsqueeze(-1) * rates  # (blocks, n)
    rests = torch.arange(block, device=rates.device).unsqueeze(-1) * rates  # (block, n)
    # (sin a + i cos a) (cos b - i sin b) = sin(a + b) + i cos(a + b)
    turned = torch.complex(firsts.sin(), firsts.cos())
    rested = torch.complex(rests.cos(), -rests.sin())
    shape = (len(positions), len(rates), 2)
    codes = torch.empty(shape, dtype=torch.float32, device=rates.device)
    few = 256 // block + 1  # blocks at a time: their float64 products stay in the cache
    for some, part in zip(turned.split(few), codes.split(few * block), strict=True):
        products = (some.unsqueeze(1) * rested).flatten(0, 1)  # (few * block, n)
        part.copy_(torch.view_as_real(products[: len(part)]))
    return codes


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

    Source: the 1-D code for each axis, as in Dosovitskiy et al. 2021, appendix D.4.
    """
    require_multiple("dim", dim, 4, "a sine and a cosine for each of two axes")
    row, column = (
        require_real(name, values, torch.float64)
        for name, values in (("rows", rows), ("columns", columns))
    )
    try:
        row, column = torch.broadcast_tensors(row, column)
    except RuntimeError as error:
        raise ValueError(
            "rows and columns must have shapes that broadcast, "
            f"got {tuple(row.shape)} and {tuple(column.shape)}"
        ) from error
    halves = [
        sinusoidal(axis, dim // 2, base, layout=layout, dtype=dtype) for axis in (row, column)
    ]
    return torch.cat(halves, dim=-1)  # (..., dim)


def timestep_embedding(
    timesteps: object, dim: int, base: float = 10000.0, *, dtype: torch.dtype = torch.float32
) -> Tensor:
    """Return the code of diffusion timesteps: `sinusoidal` in the "halves" layout.

    Args:
        timesteps: real numbers of any shape; fractions are fine.
        dim: width of the code; even.
        base: as in `sinusoidal`; called max_period in diffusion code.
        dtype: type of the result.

    Returns:
        (*timesteps.shape, dim): all sines, then all cosines. Some code bases put the cosines
        first (Nichol & Dhariwal 2021). Others (Ho et al. 2020) divide the exponent by
        dim / 2 - 1, which is this code with base ** (dim / (dim - 2)).

    Raises:
        TypeError: if timesteps are not real numbers or dim is not an int.
        ValueError: if dim is odd or base not above 1.

    Source: Ho et al. 2020, appendix B.
    """
    return sinusoidal(timesteps, dim, base, layout="halves", dtype=dtype)


class Sinusoidal(PositionEncoding):
    """Add the sinusoidal code to the input.

    Args:
        d_model: width D; even.
        base: as in `sinusoidal`.
        layout: as in `sinusoidal`.
        max_len: rows of the cached table; positions outside it are computed on demand.
        gain: factor on the code. Token embeddings of a small model are often much smaller
            than the code, whose entries have a root mean square of 0.71.

    Raises:
        TypeError: if d_model or max_len is not an int, or base or gain not a number.
        ValueError: if d_model is odd, max_len not positive, base not above 1, gain not above
            0, or the layout unknown.

    Source: Vaswani et al. 2017, section 3.5.
    """

    table: Tensor

    def __init__(
        self,
        d_model: int,
        base: float = 10000.0,
        *,
        layout: str = "interleaved",
        max_len: int = 2048,
        gain: float = 1.0,
    ) -> None:
        """Cache the first `max_len` codes; the cache is no part of the state_dict."""
        super().__init__()
        require_positive("max_len", max_len)
        require_greater("gain", gain, 0)
        self.base, self.layout, self.gain = base, layout, gain
        table = sinusoidal(torch.arange(max_len), d_model, base, layout=layout)
        self.register_buffer("table", table, persistent=False)  # (max_len, D)

    def embed(self, x: Tensor, positions: Tensor) -> Tensor:
        """Add the codes of `positions`, which may be any real numbers, to x (B, L, D).

        Raises:
            TypeError: if x is not floating-point or positions are not real numbers.
            ValueError: if a shape does not fit.
        """
        require_floating("x", x)
        if x.ndim != 3 or x.shape[2] != self.table.shape[1]:
            raise ValueError(
                f"x must have shape (batch, length, {self.table.shape[1]}), got {tuple(x.shape)}"
            )
        positions = require_positions("positions", positions, x.shape[1], x.shape[0])
        codes = self.codes(positions).to(x)
        return x + (codes if self.gain == 1 else self.gain * codes)

    def codes(self, positions: Tensor) -> Tensor:
        """Return the codes of `positions` of any shape: from the table where it has them all."""
        if positions.numel() > 0 and not positions.is_floating_point():
            run = is_consecutive(positions)
            first = int(positions[0] if run else positions.min())
            last = first + len(positions) - 1 if run else int(positions.max())
            if first >= 0 and last < len(self.table):  # a run is a view of the table, no copy
                return self.table[first : last + 1] if run else self.table[positions]
        return sinusoidal(positions, self.table.shape[1], self.base, layout=self.layout)
