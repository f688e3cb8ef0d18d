"""Rotary position embedding: turn each pair of a query's and a key's components (chapter 10).

Two rotations leave a product that depends on the difference of their angles, so the score
sees the relative position although each vector is turned by its own.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from pe_lib.attention import PositionEncoding, is_consecutive, per_head
from pe_lib.errors import (
    require_choice,
    require_floating,
    require_greater,
    require_multiple,
    require_positions,
    require_positive,
    require_real,
)
from pe_lib.sinusoidal import frequencies

LAYOUTS = ("interleaved", "half")


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
        ValueError: if rates do not have shape (n >= 1,) or positions are empty.

    Source: Su et al. 2021, equation 15.
    """
    places = require_real("positions", positions)
    require_floating("rates", rates)
    if rates.ndim != 1 or len(rates) == 0:
        raise ValueError(f"rates must have shape (n >= 1,), got {tuple(rates.shape)}")
    if places.numel() == 0:
        raise ValueError(f"positions must not be empty, got shape {tuple(places.shape)}")
    return places.to(rates.dtype).unsqueeze(-1) * rates.to(places.device)  # (..., n)


def axial_angles(rows: object, columns: object, rates: Tensor) -> Tensor:
    """Return angles for points on a grid: the row turns the first pairs, the column the rest.

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
    row, column = require_real("rows", rows), require_real("columns", columns)
    try:
        row, column = torch.broadcast_tensors(row, column)
    except RuntimeError as error:
        raise ValueError(
            "rows and columns must have shapes that broadcast, "
            f"got {tuple(row.shape)} and {tuple(column.shape)}"
        ) from error
    return torch.cat([rope_angles(row, rates), rope_angles(column, rates)], dim=-1)


def rope_table(angles: Tensor, layout: str = "interleaved", gain: float | Tensor = 1.0) -> Tensor:
    """Return gain * cos and gain * sin of `angles` (..., n), as (..., 2n) in one of the layouts.

    A cosine stands where a vector has the first component of a pair, a sine where it has the
    second. The dtype is that of the angles. `gain` broadcasts with the angles.
    """
    require_choice("layout", layout, LAYOUTS)
    parts = (gain * angles.cos(), gain * angles.sin())
    if layout == "half":
        return torch.cat(parts, dim=-1)
    return torch.stack(parts, dim=-1).flatten(-2)  # (..., n, 2) -> (..., 2n)


def turn(x: Tensor, table: Tensor, layout: str = "interleaved") -> Tensor:
    """Turn the first r components of x by a `rope_table`; leave the others as they are.

    Args:
        x: (..., L, d).
        table: broadcastable to (..., L, r), with r even and at most d.
        layout: which components form a pair: (0, 1), (2, 3), ... or (0, r/2), (1, r/2 + 1), ...

    Returns:
        (..., L, d) in the dtype of x; the arithmetic is in float32 at least.
    """
    width = table.shape[-1]
    if width < x.shape[-1]:
        rest = x[..., width:]
        return torch.cat([turn(x[..., :width], table, layout), rest], dim=-1)
    dtype = torch.promote_types(x.dtype, torch.float32)
    work, table = x.to(dtype), table.to(dtype)
    if layout == "interleaved":
        turned = turn_pairs(work, table)
    elif work.requires_grad and not table.requires_grad:
        turned = TurnHalves.apply(work, table)  # type: ignore[no-untyped-call]
    else:
        turned = turn_halves(work, table)
    return turned.to(x.dtype)


def turn_pairs(x: Tensor, table: Tensor) -> Tensor:
    """Turn neighbours: each pair is a complex number, multiplied by cos + i sin."""
    return torch.view_as_real(as_complex(x) * as_complex(table)).flatten(-2)  # (..., d)


def as_complex(x: Tensor) -> Tensor:
    """See the pairs of x (..., 2n) as complex numbers (..., n)."""
    pairs = x.view(*x.shape[:-1], -1, 2)
    try:
        return torch.view_as_complex(pairs)
    except RuntimeError:  # memory with odd strides or an odd start
        return torch.view_as_complex(pairs.clone(memory_format=torch.contiguous_format))


def turn_halves(x: Tensor, table: Tensor) -> Tensor:
    """Turn component j with component j + d/2, in one new tensor."""
    half = x.shape[-1] // 2
    cos, sin = table[..., :half], table[..., half:]
    first, second = x[..., :half], x[..., half:]
    turned = x * torch.cat([cos, cos], dim=-1)  # (..., d)
    turned[..., :half].addcmul_(second, sin, value=-1)
    turned[..., half:].addcmul_(first, sin)
    return turned


class TurnHalves(torch.autograd.Function):
    """`turn_halves` with its backward pass: turning back, twice as fast as the recorded one."""

    generate_vmap_rule = True

    @staticmethod
    def forward(x: Tensor, table: Tensor) -> Tensor:
        """Turn."""
        return turn_halves(x, table)

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Tensor, Tensor], output: Tensor) -> None:
        """Keep the table; x is not needed."""
        ctx.save_for_backward(inputs[1])

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor, None]:
        """Turn the gradient by the negative angles."""
        cos, sin = ctx.saved_tensors[0].chunk(2, dim=-1)
        back: Tensor = TurnHalves.apply(grads[0], torch.cat([cos, -sin], dim=-1))  # type: ignore[no-untyped-call]
        return back, None


def apply_rope(x: Tensor, angles: Tensor, layout: str = "interleaved") -> Tensor:
    """Turn the pairs of components of x by `angles`.

    Args:
        x: queries or keys, (..., L, d).
        angles: (L, n), or (B, L, n) for x of shape (B, H, L, d). With 2n < d only the first 2n
            components turn (partial rotary).
        layout: "interleaved" pairs components (0, 1), (2, 3), ... (the paper, GPT-J); "half"
            pairs (0, n), (1, n + 1), ... (Llama, GPT-NeoX). Each is the other after
            `layout_permutation`. Interleaved is the faster one: a pair is a complex number.

    Returns:
        (..., L, d), dtype of x: (a, b) becomes (a cos - b sin, a sin + b cos).

    Raises:
        TypeError: if x or angles are not floating-point tensors.
        ValueError: if the shapes do not fit or the layout is unknown.

    Source: Su et al. 2021, equation 34.
    """
    require_floating("x", x)
    require_floating("angles", angles)
    batched = angles.ndim == 3 and x.ndim == 4 and len(angles) in (1, len(x))
    fits = x.ndim >= 2 and (batched or angles.ndim == 2) and angles.shape[-2] == x.shape[-2]
    if not fits or not 0 < 2 * angles.shape[-1] <= x.shape[-1]:
        raise ValueError(
            "angles must have shape (L, n), or (B, L, n) for x of shape (B, H, L, d), with "
            f"2n <= d; got {tuple(angles.shape)} for x of shape {tuple(x.shape)}"
        )
    return turn(x, rope_table(per_head(angles) if batched else angles, layout), layout)


def layout_permutation(dim: int) -> Tensor:
    """Return the order that brings interleaved components into the "half" layout.

    Args:
        dim: number of components that turn; even.

    Returns:
        (dim,) int64: 0, 2, 4, ..., 1, 3, 5, ... With it `x[..., order]` in "half" is what x is in
        "interleaved"; `order.argsort()` leads back. Reordering the rows of both projections
        converts a model: no score changes.
    """
    require_multiple("dim", dim, 2, "components turn in pairs")
    return torch.arange(dim).reshape(-1, 2).T.flatten()


class RoPE(PositionEncoding):
    """Turn queries and keys by angles proportional to their positions.

    Args:
        head_dim: width d of a head.
        base: as in `frequencies`; larger turns slower.
        layout: "interleaved" or "half", see `apply_rope`.
        rotary_dim: how many components of a head turn, from the first on; all if None.
        rates: (rotary_dim / 2,) frequencies in radians per position, instead of those of
            `base`; see `pe_lib.context_extension`.
        gain: factor on turned queries and on turned keys, so that scores grow by its square
            (attention factor of YaRN and LongRoPE).
        max_len: rows of the cached table; other positions, fractions and negative ones too,
            are computed on demand. The cache is no part of the state_dict, and is at least
            float32 whatever the model's dtype.

    Raises:
        TypeError: if a size is not an int.
        ValueError: if rotary_dim is odd or exceeds head_dim, or rates have another shape.

    Source: Su et al. 2021, section 3.2; partial rotary: Black et al. 2022.
    """

    table: Tensor
    axes: int = 1

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
        """Cache the turns of the first `max_len` positions."""
        super().__init__()
        self.head_dim = require_positive("head_dim", head_dim)
        width = require_positive("rotary_dim", head_dim if rotary_dim is None else rotary_dim)
        require_multiple("rotary_dim", width, 2 * self.axes, "components turn in pairs, per axis")
        if width > head_dim:
            raise ValueError(f"rotary_dim must be at most head_dim={head_dim}, got {width}")
        self.rates = frequencies(width // self.axes, base) if rates is None else rates
        if self.rates.shape != (width // (2 * self.axes),):
            raise ValueError(
                f"rates must have shape ({width // (2 * self.axes)},), "
                f"got {tuple(self.rates.shape)}"
            )
        self.layout = require_choice("layout", layout, LAYOUTS)
        self.gain = require_greater("gain", gain, 0)
        self.max_len = require_positive("max_len", max_len)
        self.register_buffer("table", torch.empty(0), persistent=False)
        self.fill_table()  # (max_len, rotary_dim)

    def fill_table(self) -> None:
        """Compute the cache, in the dtype it has or float32 if that is coarser."""
        dtype = torch.promote_types(self.table.dtype, torch.float32)
        positions = torch.arange(self.max_len, device=self.table.device)
        self.table = self.compute(positions, self.rates).to(dtype)

    def _apply(self, fn: Callable[[Tensor], Tensor], recurse: bool = True) -> Any:
        """Move or cast the module; the table is computed anew, never rounded to half."""
        super()._apply(fn, recurse)  # type: ignore[no-untyped-call]
        self.fill_table()
        return self

    def angles(self, positions: Tensor, rates: Tensor) -> Tensor:
        """Return the angles of `positions`: (...) -> (..., rotary_dim / 2)."""
        return rope_angles(positions, rates)

    def rates_at(self, length: int) -> Tensor:
        """Return the frequencies for a sequence of `length`; here always the same."""
        return self.rates

    def compute(self, positions: Tensor, rates: Tensor) -> Tensor:
        """Return the `rope_table` of any positions: (...) -> (..., rotary_dim)."""
        return rope_table(self.angles(positions, rates), self.layout, self.gain)

    def turns(self, positions: Tensor, length: int) -> Tensor:
        """Return the `rope_table` of positions, from the cache where it has them all."""
        rates = self.rates_at(length)
        if positions.is_floating_point() or rates is not self.rates or length > self.max_len:
            return self.compute(positions, rates)
        first = int(positions.min())
        if first < 0:
            return self.compute(positions, rates)
        if is_consecutive(positions):
            return self.table[first : first + len(positions)]  # a view, no copy
        return self.table[positions]

    def check(self, q: Tensor, k: Tensor, q_pos: Tensor, k_pos: Tensor) -> None:
        """Raise ValueError unless widths, lengths and positions fit."""
        for name, x, positions in (("q", q, q_pos), ("k", k, k_pos)):
            if x.ndim != 4 or x.shape[3] != self.head_dim or x.shape[2] == 0:
                raise ValueError(
                    f"{name} must have shape (B, H, L >= 1, head_dim={self.head_dim}), "
                    f"got {tuple(x.shape)}"
                )
            require_positions(f"{name}_pos", positions, x.shape[2], x.shape[0])

    def rotate(self, q: Tensor, k: Tensor, q_pos: Tensor, k_pos: Tensor) -> tuple[Tensor, Tensor]:
        """Turn q (B, H, Lq, d) and k (B, H, Lk, d) by their positions.

        Raises:
            ValueError: if q or k do not have width head_dim, or positions another length.
        """
        self.check(q, k, q_pos, k_pos)
        length = 1 + int(max(q_pos.max(), k_pos.max()))
        k_turns = per_head(self.turns(k_pos, length))  # (1, Lk, r) or (B, 1, Lk, r)
        q_turns = k_turns if q_pos is k_pos else per_head(self.turns(q_pos, length))
        return turn(q, q_turns, self.layout), turn(k, k_turns, self.layout)


class AxialRoPE(RoPE):
    """Turn half of the pairs by a patch's row, the others by its column.

    Args:
        head_dim: width d of a head; a multiple of 4 unless rotary_dim is given.
        columns: patches in a row of the image: position p stands in row p // columns.
        base: as in `RoPE`, for each axis; images are short, so 100 is usual.
        options: layout, rotary_dim (a multiple of 4), rates, gain and max_len as in `RoPE`.

    Source: Heo et al. 2024, section 3.2.
    """

    axes = 2

    def __init__(self, head_dim: int, columns: int, base: float = 100.0, **options: Any) -> None:
        """Cache the turns of the first `max_len` patches."""
        self.columns = require_positive("columns", columns)
        super().__init__(head_dim, base, **options)

    def angles(self, positions: Tensor, rates: Tensor) -> Tensor:
        """Return the angles of patches: (...) -> (..., rotary_dim / 2)."""
        rows = torch.div(positions, self.columns, rounding_mode="floor")
        return axial_angles(rows, positions - rows * self.columns, rates)
