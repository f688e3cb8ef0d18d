"""Rotations by positions of several numbers: rows, columns, frames, text beside them (chapter 13).

Each pair of components has a direction among the axes, and rotates by the product of its direction
with the token's numbers. Axial and mixed rotations, M-RoPE and the axes of diffusion models differ
in their directions only.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from numbers import Integral
from typing import Any

import torch
from torch import Tensor, nn

from pe_lib.encoding import PositionEncoding
from pe_lib.errors import (
    require_choice,
    require_finite,
    require_floating,
    require_greater,
    require_multiple,
    require_positive,
    require_real,
    require_several,
)
from pe_lib.fast import rotate
from pe_lib.positions import (
    Axes,
    Positions,
    Run,
    as_positions,
    as_tensor,
    in_float64,
    per_head,
    sent,
)
from pe_lib.sinusoidal import LAYOUTS, arrange, frequencies

ARRANGEMENTS = ("chunked", "interleaved")

# --- positions ------------------------------------------------------------------------------------


def grid_positions(*sizes: int) -> Tensor:
    """Return the numbers of all points of a grid in reading order, the last axis fastest.

    Args:
        sizes: points along each axis: (rows, columns), or (frames, rows, columns).

    Returns:
        (product of sizes, A) int64.

    Raises:
        TypeError: if a size is not an int.
        ValueError: if there is none, or one is not positive.
    """
    if not sizes:
        raise ValueError("sizes must hold at least one axis, got none")
    along = [torch.arange(require_positive("sizes", n), device="cpu") for n in sizes]
    return torch.stack(torch.meshgrid(*along, indexing="ij"), dim=-1).flatten(0, -2)


def text_image_positions(parts: Sequence[int | tuple[int, int, int]]) -> Axes:
    """Number text, images and videos as Qwen2-VL does: three numbers per token.

    A token of text has the same number three times: it is a point of the diagonal. The patches of
    an image or a video count frames, rows and columns from the number at which they begin. What
    follows begins after the largest number of what came before.

    Args:
        parts: in order: how many tokens of text, or (frames, rows, columns) of an image or a video.

    Returns:
        `Axes` with the order 0, 1, ... and the numbers (L, 3) int64.

    Raises:
        TypeError: if a part is neither an int nor three of them.
        ValueError: if there is no part, or a size is not positive.

    Source: Wang et al. 2024 (Qwen2-VL), section 2.1. Transformers 5.23 goes on after the larger of
        rows and columns, which differs where a video has more frames than both.
    """
    numbers, start = [], 0
    for part in require_several("parts", parts):
        if isinstance(part, Integral) and not isinstance(part, bool):
            steps = torch.arange(require_positive("parts", part), device="cpu")
            local = steps.unsqueeze(-1).expand(-1, 3)  # (n, 3)
        elif isinstance(part, tuple | list) and len(part) == 3:
            local = grid_positions(*part)  # (frames * rows * columns, 3)
        else:
            raise TypeError(
                f"parts must be numbers of tokens, or (frames, rows, columns), got {part!r}"
            )
        numbers.append(start + local)
        start += 1 + int(local.max())
    return Axes(Run(0, sum(map(len, numbers))), torch.cat(numbers))


# --- directions -----------------------------------------------------------------------------------


def axis_of_pair(sections: Sequence[int], arrangement: str = "chunked") -> Tensor:
    """Return the axis that each pair belongs to.

    Args:
        sections: how many pairs each axis has, in the order of the axes.
        arrangement: "chunked": all pairs of the first axis, then those of the next (Qwen2-VL);
            "interleaved": the axes take turns, and whose pairs are used up drops out (Qwen3-VL).

    Returns:
        (sum of sections,) int64.

    Raises:
        TypeError: if a section is not an int.
        ValueError: if there is none, one is not positive, or the arrangement is unknown.

    Source: Wang et al. 2024 (Qwen2-VL); Huang et al. 2025 (interleaved), and transformers' code.
    """
    counts = [
        require_positive("sections", section) for section in require_several("sections", sections)
    ]
    pairs = [(turn, axis) for axis, count in enumerate(counts) for turn in range(count)]
    if require_choice("arrangement", arrangement, ARRANGEMENTS) == "interleaved":
        pairs.sort()
    return torch.tensor([axis for _, axis in pairs], device="cpu")


def section_directions(
    rates: Tensor, sections: Sequence[int], arrangement: str = "chunked"
) -> Tensor:
    """Return the directions of M-RoPE: the axes share one list of frequencies.

    Args:
        rates: (n,) frequencies in radians per position, as in `RoPE`.
        sections: how many of them each axis has; together n.
        arrangement: which ones, see `axis_of_pair`.

    Returns:
        (n, A): row r holds rates[r] in the column of its axis, and zeros.

    Raises:
        TypeError: if rates are not floating-point.
        ValueError: if the sections do not add up to n.

    Source: Wang et al. 2024 (Qwen2-VL), section 2.1.
    """
    require_floating("rates", rates)
    axis = axis_of_pair(sections, arrangement)
    if rates.shape != axis.shape:
        raise ValueError(
            f"sections must add up to the number of rates, {tuple(rates.shape)}, got "
            f"{list(sections)}, together {len(axis)}"
        )
    return rates.unsqueeze(-1) * (axis.unsqueeze(-1) == torch.arange(len(sections), device="cpu"))


def width_directions(widths: Sequence[int], base: float = 10000.0) -> Tensor:
    """Return the directions of diffusion models: each axis has frequencies of its own.

    Args:
        widths: how many components each axis has, even numbers: (16, 56, 56) for FLUX.
        base: as in `frequencies`, for each axis.

    Returns:
        (sum of widths / 2, A).

    Raises:
        TypeError: if a width is not an int.
        ValueError: if there is none, or one is not even and positive.
    """
    why = "components rotate in pairs"
    halves = [require_multiple("widths", w, 2, why) // 2 for w in require_several("widths", widths)]
    rates = torch.cat([frequencies(width, base) for width in widths])
    return section_directions(rates, halves)


def golden_directions(rates: Tensor) -> Tensor:
    """Return directions in the plane that differ from pair to pair, well spread.

    Args:
        rates: (n,) frequencies; row r of the result has the length rates[r].

    Returns:
        (n, 2), for positions (row, column). The direction of pair r has the angle r * pi * 0.618…
        with the axis of columns: the golden section never repeats nearly.

    Raises:
        TypeError: if rates are not floating-point.
        ValueError: if rates have more axes, or one is not finite.

    Source: mixed directions: Heo et al. 2024, section 3.2, who train them from a turned cross;
        spread by the golden section: Xiong 2025.
    """
    if require_floating("rates", rates).ndim != 1:
        raise ValueError(f"rates must have shape (n,), got {tuple(rates.shape)}")
    require_finite("rates", rates)
    steps = torch.arange(len(rates), dtype=torch.float64, device="cpu")
    angles = steps * (math.pi * (math.sqrt(5) - 1) / 2)
    return rates.unsqueeze(-1) * torch.stack([angles.sin(), angles.cos()], dim=-1).to(rates.dtype)


# --- the rotation ---------------------------------------------------------------------------------


def axes_angles(numbers: object, directions: Tensor) -> Tensor:
    """Return the angle of each pair at each position, in radians.

    Args:
        numbers: (L, A) or (B, L, A), any real numbers.
        directions: (n, A), or (H, n, A) if heads differ: radians per unit of each axis. Their dtype
            is that of the product.

    Returns:
        (..., L, n), or (..., H, L, n): the product of the token's numbers with the direction.

    Raises:
        TypeError: if numbers are not real or directions not floating-point.
        ValueError: if the shapes do not fit.
    """
    places = require_real("numbers", numbers)
    require_directions(directions)
    if places.ndim not in (2, 3) or places.shape[-1] != directions.shape[-1]:
        raise ValueError(
            f"numbers must have shape (L, A) or (B, L, A) with A = {directions.shape[-1]}, the "
            f"axes of the directions, got {tuple(places.shape)}"
        )
    return angles_along(places, directions)


def angles_along(places: Tensor, directions: Tensor) -> Tensor:
    """Return `axes_angles` of tensors that have been checked, without reading them."""
    directions = sent(directions, places.device)
    if directions.ndim == 3:
        places, directions = per_head(places), directions.unsqueeze(-3)  # (..., 1, L, A)
    # No matrix product: some devices would round it to ten bits, and far positions would collide.
    return (places.to(directions.dtype).unsqueeze(-2) * directions).sum(dim=-1)


def require_directions(directions: object) -> Tensor:
    """Return `directions` if they are a floating-point tensor (n, A) or (H, n, A) of numbers."""
    tensor = require_floating("directions", directions)
    if tensor.ndim not in (2, 3) or tensor.numel() == 0:
        raise ValueError(
            f"directions must have shape (n, A) or (H, n, A), none empty, got {tuple(tensor.shape)}"
        )
    return tensor


class AxesRoPE(PositionEncoding):
    """Rotate queries and keys by positions of several numbers.

    Positions of one number are taken for text: the same number on every axis. With the directions
    of `section_directions` that is `RoPE` with the same rates.

    Args:
        head_dim: width d of a head.
        directions: (n, A) with 2n <= d, see `section_directions`, `width_directions` and
            `golden_directions`; (H, n, A) if heads differ. An `nn.Parameter` is trained.
        layout: which components form a pair, "interleaved" or "half", see `apply_rope`. It has
            nothing to do with the arrangement of sections.
        gain: factor on rotated queries and on rotated keys, as in `RoPE`.

    Raises:
        TypeError: if head_dim is not an int, or directions are no floating-point tensor.
        ValueError: if directions have another shape or are not finite, or the layout is unknown.

    Source: Wang et al. 2024 (Qwen2-VL), section 2.1; Heo et al. 2024, section 3.2.
    """

    rotates_once = True

    def __init__(
        self,
        head_dim: int,
        directions: Tensor,
        *,
        layout: str = "interleaved",
        gain: float = 1.0,
    ) -> None:
        """Keep the directions."""
        super().__init__()
        self.head_dim = require_positive("head_dim", head_dim)
        n_pairs = require_directions(directions).shape[-2]
        if 2 * n_pairs > head_dim:
            raise ValueError(
                f"directions must be at most head_dim / 2 = {head_dim // 2} pairs, got {n_pairs}"
            )
        if not directions.is_meta and not directions.isfinite().all():
            raise ValueError(f"directions must be finite, got {directions}")
        # Constants stay on the processor as they are, whatever becomes of the module.
        kept = directions if isinstance(directions, nn.Parameter) else directions.detach().cpu()
        self.directions = kept
        self.layout = require_choice("layout", layout, LAYOUTS)
        self.gain = require_greater("gain", gain, 0)

    @property
    def axes(self) -> int:
        """The number of axes A."""
        return self.directions.shape[-1]

    def rotate(
        self, q: Tensor, k: Tensor, q_pos: Positions, k_pos: Positions
    ) -> tuple[Tensor, Tensor]:
        """Rotate q (B, H, Lq, d) and k (B, H, Lk, d) as text: one number on every axis."""
        q_axes = self.on_every_axis("q_pos", q_pos, q)
        same = q_pos is k_pos and q.shape[2] == k.shape[2]
        return self.rotate_axes(
            q, k, q_axes, q_axes if same else self.on_every_axis("k_pos", k_pos, k)
        )

    def on_every_axis(self, name: str, positions: Any, x: Tensor) -> Tensor:
        """Return one number per token as several: (L,) or (B, L) -> (..., L, A)."""
        checked = as_positions(name, positions, x.shape[-2], x.shape[0], x.device)
        numbers = as_tensor(checked, x.device).unsqueeze(-1)
        return numbers.expand(*numbers.shape[:-1], self.axes)

    def rotate_axes(
        self, q: Tensor, k: Tensor, q_axes: Tensor, k_axes: Tensor
    ) -> tuple[Tensor, Tensor]:
        """Rotate q (B, H, Lq, d) and k (B, H, Lk, d) by rows of numbers, (L, A) or (B, L, A).

        Raises:
            ValueError: if a width, a length, the heads or the number of axes does not fit.
        """
        for name, x, axes in (("q", q, q_axes), ("k", k, k_axes)):
            self.check(name, x, axes)
        k_codes = self.codes(k_axes, k)  # (..., 1 or H, Lk, 2n)
        q_codes = k_codes if q_axes is k_axes else self.codes(q_axes, q)
        return rotate(q, q_codes, self.layout), rotate(k, k_codes, self.layout)

    def check(self, name: str, x: Tensor, axes: Tensor) -> None:
        """Raise unless x (B, H, L, d) and its numbers fit the directions and each other."""
        heads = self.directions.shape[0] if self.directions.ndim == 3 else None
        if require_floating(name, x).ndim != 4 or x.shape[3] != self.head_dim or x.shape[2] == 0:
            raise ValueError(
                f"{name} must have shape (B, H, L >= 1, head_dim={self.head_dim}), "
                f"got {tuple(x.shape)}"
            )
        if heads not in (None, x.shape[1]):
            raise ValueError(f"{name} must have {heads} heads, as directions, got {x.shape[1]}")
        wanted = (x.shape[2], self.axes)
        batched = axes.ndim == 3 and axes.shape[0] in (1, x.shape[0])
        if not (axes.ndim == 2 or batched) or axes.shape[-2:] != wanted:
            raise ValueError(
                f"{name}_axes must have shape {wanted} or (B, {wanted[0]}, {wanted[1]}), "
                f"got {tuple(axes.shape)}"
            )

    def codes(self, numbers: Tensor, like: Tensor) -> Tensor:
        """Return gain times cosines and sines: (..., L, A) -> (..., 1 or H, L, 2n).

        They have the device of `like` and its dtype, or float32 if that is coarser; angles have the
        dtype of constant directions, and float64 where directions are trained.
        """
        directions = self.directions
        places = in_float64(numbers.to(directions.device) if directions.is_meta else numbers)
        if isinstance(directions, nn.Parameter):
            directions = in_float64(directions)
        angles = angles_along(places, directions).double()
        angles = per_head(angles) if directions.ndim == 2 else angles
        codes = arrange(self.gain * angles.cos(), self.gain * angles.sin(), self.layout)
        return codes.to(like.device, torch.promote_types(like.dtype, torch.float32))
