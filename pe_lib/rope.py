"""Rotary position embedding: rotate each pair of a query's and a key's components (chapter 10).

Two rotations leave a product that depends on the difference of their angles, so the score
sees the relative position although each vector is rotated by its own.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn

from pe_lib.errors import (
    require_choice,
    require_floating,
    require_greater,
    require_multiple,
    require_positive,
    require_real,
)
from pe_lib.fast import CachedCodes, rotate
from pe_lib.positions import Positions, as_positions, in_float64, per_head, sent
from pe_lib.sinusoidal import LAYOUTS, arrange, broadcast_axes, frequencies


def rope_angles(positions: object, rates: Tensor) -> Tensor:
    """Return the angle of each pair at each position, in radians.

    Args:
        positions: real numbers of any shape: integers, fractions, negative ones too.
        rates: (n,) frequencies in radians per position; `frequencies(d)` gives the paper's. Their
            dtype is that of the product: published code often takes float32, which at position
            100,000 is off by 4e-3 radians.

    Returns:
        (*positions.shape, n): position times frequency.

    Raises:
        TypeError: if positions are not real numbers or rates not floating-point.
        ValueError: if rates do not have shape (n >= 1,).

    Source: Su et al. 2021, equation 15.
    """
    places = require_real("positions", positions)
    require_floating("rates", rates)
    if rates.ndim != 1 or len(rates) == 0:
        raise ValueError(f"rates must have shape (n >= 1,), got {tuple(rates.shape)}")
    return angles_at(places, rates)


def angles_at(places: Tensor, rates: Tensor) -> Tensor:
    """Return `rope_angles` of tensors that have been checked, without reading them."""
    return places.to(rates.dtype).unsqueeze(-1) * sent(rates, places.device)  # (..., n)


def axial_angles(rows: object, columns: object, rates: Tensor) -> Tensor:
    """Return angles for points on a grid: the row rotates the first pairs, the column the rest.

    Args:
        rows: real numbers, of a shape that broadcasts with `columns`.
        columns: real numbers.
        rates: (n / 2,) frequencies, the same for both axes.

    Returns:
        (*broadcast shape, n).

    Raises:
        ValueError: if the shapes do not broadcast.

    Source: Heo et al. 2024, section 3.2 (axial frequency).
    """
    row, column = broadcast_axes(rows, columns)
    return torch.cat([rope_angles(row, rates), rope_angles(column, rates)], dim=-1)


def apply_rope(x: Tensor, angles: Tensor, layout: str = "interleaved") -> Tensor:
    """Rotate the pairs of components of x by `angles`: the formula.

    Args:
        x: queries or keys, (..., L, d).
        angles: (L, n), or (B, L, n) for x of shape (B, H, L, d). With 2n < d only the first 2n
            components rotate (partial rotary).
        layout: "interleaved" pairs components (0, 1), (2, 3), ... (the paper, GPT-J, Meta's Llama);
            "half" pairs (0, n), (1, n + 1), ... (GPT-NeoX, Hugging Face's Llama, whose conversion
            permutes the projections). Each is the other after `layout_permutation`.

    Returns:
        (..., L, d), dtype of x: (a, b) becomes (a cos - b sin, a sin + b cos).

    Raises:
        TypeError: if x or angles are not floating-point tensors.
        ValueError: if the shapes do not fit or the layout is unknown.

    Source: Su et al. 2021, equation 34.
    """
    require_floating("x", x)
    require_floating("angles", angles)
    batched = angles.ndim == 3 and x.ndim == 4 and len(angles) in (1, x.shape[0])
    fits = x.ndim >= 2 and (batched or angles.ndim == 2) and angles.shape[-2] == x.shape[-2]
    if not fits or not 0 < 2 * angles.shape[-1] <= x.shape[-1]:
        raise ValueError(
            "angles must have shape (L, n), or (B, L, n) for x of shape (B, H, L, d), with "
            f"2n <= d; got {tuple(angles.shape)} for x of shape {tuple(x.shape)}"
        )
    angles = per_head(angles) if batched else angles
    dtype = torch.promote_types(x.dtype, torch.float32)
    cos, sin = angles.cos().to(dtype), angles.sin().to(dtype)
    width = 2 * angles.shape[-1]
    a, b = split_pairs(x[..., :width].to(dtype), layout)
    rotated = arrange(a * cos - b * sin, a * sin + b * cos, layout)
    return torch.cat([rotated.to(x.dtype), x[..., width:]], dim=-1)


def split_pairs(x: Tensor, layout: str) -> tuple[Tensor, Tensor]:
    """Return the first and the second components of the pairs of x (..., 2n), (..., n) each."""
    if require_choice("layout", layout, LAYOUTS) == "interleaved":
        return x[..., ::2], x[..., 1::2]
    first, second = x.chunk(2, dim=-1)
    return first, second


def layout_permutation(dim: int) -> Tensor:
    """Return the order that brings interleaved components into the "half" layout.

    Args:
        dim: number of components that rotate; even.

    Returns:
        (dim,) int64: 0, 2, 4, ..., 1, 3, 5, ... With it `x[..., order]` in "half" is what x is in
        "interleaved"; `order.argsort()` leads back. Reordering the rows of both projections
        converts a model: no score changes.
    """
    require_multiple("dim", dim, 2, "components rotate in pairs")
    return torch.arange(dim).reshape(-1, 2).T.flatten()


class RoPE(CachedCodes):
    """Rotate queries and keys by angles proportional to their positions.

    Args:
        head_dim: width d of a head.
        base: as in `frequencies`; larger rotates slower.
        layout: "interleaved" or "half", see `apply_rope`. Interleaved is the faster one on
            a processor in float32: a pair is a complex number.
        rotary_dim: how many components of a head rotate, from the first on; all if None.
        rates: (rotary_dim / 2,) frequencies in radians per position, instead of those of
            `base`; see `pe_lib.context_extension`. An `nn.Parameter` is trained.
        gain: factor on rotated queries and on rotated keys, so that scores grow by its square
            (attention factor of YaRN and LongRoPE).
        max_len: rows of the cache; other positions, fractions and negative ones too, are
            computed on demand.

    Raises:
        TypeError: if a size is not an int, or rates are no floating-point tensor.
        ValueError: if rotary_dim is odd or exceeds head_dim, or rates have another shape or are
            not finite.

    Source: Su et al. 2021, section 3.2; partial rotary: Black et al. 2022.
    """

    axes: int = 1
    rotates_once = True

    def __init__(
        self,
        head_dim: int,
        base: float = 10000.0,
        *,
        layout: str = "interleaved",
        rotary_dim: int | None = None,
        rates: Tensor | None = None,
        gain: float = 1.0,
        max_len: int = 2048,
    ) -> None:
        """Cache the codes of the first `max_len` positions."""
        super().__init__()
        self.head_dim = require_positive("head_dim", head_dim)
        width = require_positive("rotary_dim", head_dim if rotary_dim is None else rotary_dim)
        require_multiple("rotary_dim", width, 2 * self.axes, "components rotate in pairs, per axis")
        if width > head_dim:
            raise ValueError(f"rotary_dim must be at most head_dim={head_dim}, got {width}")
        rates = frequencies(width // self.axes, base) if rates is None else rates
        if require_floating("rates", rates).shape != (width // (2 * self.axes),):
            raise ValueError(
                f"rates must have shape ({width // (2 * self.axes)},), got {tuple(rates.shape)}"
            )
        if not rates.is_meta and not rates.isfinite().all():
            raise ValueError(f"rates must be finite, got {rates}")
        # Constants stay on the processor as they are, whatever becomes of the module.
        self.rates = rates if isinstance(rates, nn.Parameter) else rates.detach().cpu()
        self.layout = require_choice("layout", layout, LAYOUTS)
        self.gain = require_greater("gain", gain, 0)
        self.max_len = require_positive("max_len", max_len)
        if isinstance(rates, nn.Parameter):  # what is trained is computed anew
            self.max_len, self.cache = 0, torch.empty(0)
        else:
            self.fill_cache(torch.float32, "cpu")  # (max_len, rotary_dim)

    def angles(self, positions: Tensor, rates: Tensor) -> Tensor:
        """Return the angles of `positions`: (...) -> (..., rotary_dim / 2)."""
        return angles_at(positions, rates)

    def compute(self, positions: Tensor) -> Tensor:
        """Return the cosines and sines of any positions: (...) -> (..., rotary_dim)."""
        return self.rotation_codes(positions, self.rates)

    def rotation_codes(self, positions: Tensor, rates: Tensor) -> Tensor:
        """Return gain times cosine and sine of the angles, in float64: (...) -> (..., rotary_dim).

        Angles have the dtype of constant rates, and float64 where rates are trained. A cosine
        stands where a vector has the first component of a pair, a sine where it has the second.
        """
        places = in_float64(positions.to(rates.device) if rates.is_meta else positions)
        rates = in_float64(rates) if isinstance(rates, nn.Parameter) else rates
        angles = self.angles(places, rates).double()
        return arrange(self.gain * angles.cos(), self.gain * angles.sin(), self.layout)

    def rotate(
        self, q: Tensor, k: Tensor, q_pos: Positions, k_pos: Positions
    ) -> tuple[Tensor, Tensor]:
        """Rotate q (B, H, Lq, d) and k (B, H, Lk, d) by their positions.

        Raises:
            ValueError: if q or k do not have width head_dim, or positions another length.
        """
        q_pos, k_pos = self.check(q, k, q_pos, k_pos)
        k_codes = self.codes(k_pos, k)  # (Lk, r) or (B, Lk, r)
        q_codes = k_codes if q_pos is k_pos else self.codes(q_pos, q)
        return rotate(q, per_head(q_codes), self.layout), rotate(k, per_head(k_codes), self.layout)

    def check(
        self, q: Tensor, k: Tensor, q_pos: Positions, k_pos: Positions
    ) -> tuple[Positions, Positions]:
        """Return the positions; raise unless widths, lengths and positions fit."""
        for name, x in (("q", q), ("k", k)):
            require_floating(name, x)
            if x.ndim != 4 or x.shape[3] != self.head_dim or x.shape[2] == 0:
                raise ValueError(
                    f"{name} must have shape (B, H, L >= 1, head_dim={self.head_dim}), "
                    f"got {tuple(x.shape)}"
                )
        same = q_pos is k_pos and q.shape[2] == k.shape[2]
        q_pos = as_positions("q_pos", q_pos, q.shape[2], q.shape[0], q.device)
        if same:
            return q_pos, q_pos
        return q_pos, as_positions("k_pos", k_pos, k.shape[2], k.shape[0], k.device)


class AxialRoPE(RoPE):
    """Rotate half of the pairs by a patch's row, the others by its column.

    Args:
        head_dim: width d of a head; a multiple of 4 unless rotary_dim is given.
        columns: patches in a row of the image: position p stands in row p // columns.
        base: as in `RoPE`, for each axis; images are short, so 100 is usual.
        options: layout, rotary_dim (a multiple of 4), rates, gain and max_len as in `RoPE`.

    Source: Heo et al. 2024, section 3.2.
    """

    axes = 2

    def __init__(self, head_dim: int, columns: int, base: float = 100.0, **options: Any) -> None:
        """Cache the codes of the first `max_len` patches."""
        self.columns = require_positive("columns", columns)
        super().__init__(head_dim, base, **options)

    def angles(self, positions: Tensor, rates: Tensor) -> Tensor:
        """Return the angles of patches: (...) -> (..., rotary_dim / 2)."""
        rows = torch.div(positions, self.columns, rounding_mode="floor")
        columns = positions - rows * self.columns
        return torch.cat([angles_at(rows, rates), angles_at(columns, rates)], dim=-1)
