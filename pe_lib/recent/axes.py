"""Rotations by positions of several numbers: rows, columns, frames, text beside them (chapter 14).

pair r of a token with the numbers x rotates by the angle u_r . x, u_r its direction

Each pair of components has a direction among the axes, and rotates by the product of its direction
with the token's numbers. Axial and mixed rotations, M-RoPE and the axes of diffusion models differ
in their directions only.
"""

import math
from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor, nn

from pe_lib.encoding import PositionEncoding, per_head, to_float64
from pe_lib.rope import apply_rope, rope_angles
from pe_lib.sinusoidal import frequencies, sinusoidal

# --- positions ------------------------------------------------------------------------------------


def grid_positions(*sizes: int) -> Tensor:
    """Return the numbers of all points of a grid in reading order, the last axis fastest.

    Args:
        sizes: points along each axis: (rows, columns), or (frames, rows, columns).

    Returns:
        (product of sizes, A) int64.
    """
    along = [torch.arange(n, device="cpu") for n in sizes]
    return torch.stack(torch.meshgrid(*along, indexing="ij"), dim=-1).flatten(0, -2)


def with_order(numbers: Tensor, order: Tensor | None = None) -> Tensor:
    """Return positions of several numbers in the shape that attention takes.

    Args:
        numbers: (L, A) or (B, L, A).
        order: (L,) or (B, L), what comes before what, for a causal mask and for biases; 0, 1, ...
            if None.

    Returns:
        (1 + A, B, L): the order, then a row for each axis.
    """
    rows = numbers.reshape(-1, *numbers.shape[-2:]).movedim(-1, 0)  # (A, B, L)
    order = torch.arange(numbers.shape[-2]) if order is None else order
    if rows.is_floating_point() != order.is_floating_point():  # float32 would round large integers
        rows, order = to_float64(rows), to_float64(order)
    return torch.cat([order.to(rows.device).expand(1, *rows.shape[1:]), rows])


def text_image_positions(parts: Sequence[int | tuple[int, int, int]]) -> Tensor:
    """Number text, images and videos as Qwen2-VL does: three numbers per token.

    A token of text has the same number three times: it is a point of the diagonal. The patches of
    an image or a video count frames, rows and columns from the number at which they begin. What
    follows begins after the largest number of what came before.

    Args:
        parts: in order: how many tokens of text, or (frames, rows, columns) of an image or a video.

    Returns:
        (4, 1, L) int64: the order 0, 1, ..., then the three numbers.

    Source: Wang et al. 2024 (Qwen2-VL), section 2.1. Transformers 5.23 goes on after the larger of
        rows and columns, which differs where a video has more frames than both.
    """
    numbers, start = [], 0
    for part in parts:
        if isinstance(part, tuple | list):
            local = grid_positions(*part)  # (frames * rows * columns, 3)
        else:
            local = grid_positions(part).expand(-1, 3)  # (n, 3)
        numbers.append(start + local)
        start += 1 + int(local.max())
    return with_order(torch.cat(numbers))


# --- directions -----------------------------------------------------------------------------------


def axis_of_pair(sections: Sequence[int], arrangement: str = "chunked") -> Tensor:
    """Return the axis that each pair belongs to.

    Args:
        sections: how many pairs each axis has, in the order of the axes.
        arrangement: "chunked": all pairs of the first axis, then those of the next (Qwen2-VL);
            "interleaved": the axes take turns, and whose pairs are used up drops out (Qwen3-VL).

    Returns:
        (sum of sections,) int64.

    Source: Wang et al. 2024 (Qwen2-VL); Huang et al. 2025 (interleaved). Transformers' code gives
        every third pair to the second and the third axis: the same where no axis has more pairs
        than the first, as in published models; elsewhere its axes get other numbers of pairs.
    """
    if arrangement not in ("chunked", "interleaved"):
        raise ValueError(f"arrangement must be chunked or interleaved, got {arrangement!r}")
    pairs = [(turn, axis) for axis, section in enumerate(sections) for turn in range(section)]
    if arrangement == "interleaved":
        pairs.sort()
    return torch.tensor([axis for _, axis in pairs], device="cpu")


def section_directions(
    inv_freq: Tensor, sections: Sequence[int], arrangement: str = "chunked"
) -> Tensor:
    """Return the directions of M-RoPE: the axes share one list of frequencies.

    Args:
        inv_freq: (n,) frequencies in radians per position, as in `RoPE`.
        sections: how many of them each axis has; together n.
        arrangement: which ones, see `axis_of_pair`.

    Returns:
        (n, A): row r holds inv_freq[r] in the column of its axis, and zeros.

    Source: Wang et al. 2024 (Qwen2-VL), section 2.1.
    """
    axis = axis_of_pair(sections, arrangement)
    if len(inv_freq) != len(axis):
        raise ValueError(
            f"sections must add up to {len(inv_freq)}, as many as inv_freq, got {sections}"
        )
    return inv_freq.unsqueeze(-1) * (
        axis.unsqueeze(-1) == torch.arange(len(sections), device="cpu")
    )


def width_directions(widths: Sequence[int], base: float = 10000.0) -> Tensor:
    """Return the directions of diffusion models: each axis has frequencies of its own.

    Args:
        widths: how many components each axis has, even numbers: (16, 56, 56) for FLUX.
        base: as in `frequencies`, for each axis.

    Returns:
        (sum of widths / 2, A).
    """
    inv_freq = [frequencies(width, base) for width in widths]
    return section_directions(torch.cat(inv_freq), [len(each) for each in inv_freq])


def golden_directions(inv_freq: Tensor) -> Tensor:
    """Return directions in the plane that differ from pair to pair, well spread.

    Args:
        inv_freq: (n,) frequencies; row r of the result has the length inv_freq[r].

    Returns:
        (n, 2), for positions (row, column). The direction of pair r has the angle r * pi * 0.618…
        with the axis of columns: the golden section never repeats nearly.

    Source: mixed directions: Heo et al. 2024, section 3.2, who train them from a turned cross;
        spread by the golden section: Xiong 2025.
    """
    steps = torch.arange(len(inv_freq), dtype=torch.float64, device="cpu")
    angles = steps * (math.pi * (math.sqrt(5) - 1) / 2)
    return inv_freq.unsqueeze(-1) * torch.stack([angles.sin(), angles.cos()], dim=-1).to(
        inv_freq.dtype
    )


# --- the rotation ---------------------------------------------------------------------------------


def axes_angles(numbers: Tensor, directions: Tensor) -> Tensor:
    """Return the angle of each pair at each position, in radians.

    Args:
        numbers: (L, A) or (B, L, A), any real numbers.
        directions: (n, A), or (H, n, A) if heads differ: radians per unit of each axis. Their dtype
            is that of the product.

    Returns:
        (..., L, n), or (..., H, L, n): the product of the token's numbers with the direction.
    """
    directions = directions.to(numbers.device)
    if numbers.shape[-1] != directions.shape[-1]:  # one number would stand for all axes
        raise ValueError(f"numbers must be {directions.shape[-1]}, got {numbers.shape[-1]}")
    if directions.ndim == 3:
        numbers, directions = per_head(numbers), directions.unsqueeze(-3)  # (..., 1, L, A)
    # No matrix product: some devices would round it to ten bits, and far positions would collide.
    return (numbers.to(directions.dtype).unsqueeze(-2) * directions).sum(dim=-1)


class AxesRoPE(PositionEncoding):
    """Rotate queries and keys by positions of several numbers.

    Positions of one number are taken for text: the same number on every axis. With the directions
    of `section_directions` that is `RoPE` with the same frequencies.

    Args:
        head_dim: width d of a head.
        directions: (n, A), see `section_directions`, `width_directions` and
            `golden_directions`; (H, n, A) if heads differ. An `nn.Parameter` is trained.
        layout: which components form a pair, "interleaved" or "half", see `apply_rope`. It has
            nothing to do with the arrangement of sections.
        attention_factor: factor on rotated queries and on rotated keys, as in `RoPE`.
        rotary_dim: how many components of a head rotate, 2n, from the first on; all if None.

    Source: Wang et al. 2024 (Qwen2-VL), section 2.1; Heo et al. 2024, section 3.2.
    """

    cacheable_rotation = True

    def __init__(
        self,
        head_dim: int,
        directions: Tensor,
        *,
        layout: str = "interleaved",
        attention_factor: float = 1.0,
        rotary_dim: int | None = None,
    ) -> None:
        """Keep the directions."""
        super().__init__()
        width, n_pairs = head_dim if rotary_dim is None else rotary_dim, directions.shape[-2]
        if width != 2 * n_pairs or width > head_dim:  # some would not rotate
            raise ValueError(
                f"directions must have {width / 2:g} pairs and fit into head_dim={head_dim}, got "
                f"{n_pairs} (rotary_dim={rotary_dim})"
            )
        self.directions = directions
        if directions.ndim == 3:
            self.n_heads = len(directions)
        self.head_dim, self.layout, self.attention_factor = head_dim, layout, attention_factor

    def rotate(self, q: Tensor, k: Tensor, q_pos: Tensor, k_pos: Tensor) -> tuple[Tensor, Tensor]:
        """Rotate q (B, H, Lq, d) and k (B, H, Lk, d) as text: one number on every axis."""
        axes = self.directions.shape[-1]
        on_axes = [p.unsqueeze(-1).expand(*p.shape, axes) for p in (q_pos, k_pos)]
        return self.rotate_axes(q, k, *on_axes)

    def rotate_axes(
        self, q: Tensor, k: Tensor, q_axes: Tensor, k_axes: Tensor
    ) -> tuple[Tensor, Tensor]:
        """Rotate q (B, H, Lq, d) and k (B, H, Lk, d) by rows of numbers, (L, A) or (B, L, A)."""
        return self.rotated(q, q_axes), self.rotated(k, k_axes)

    def rotated(self, x: Tensor, numbers: Tensor) -> Tensor:
        """Rotate x (B, H, L, d) by rows of numbers, (L, A) or (B, L, A)."""
        trained = isinstance(self.directions, nn.Parameter)
        directions = to_float64(self.directions) if trained else self.directions
        if x.shape[-1] != self.head_dim:  # the others would not rotate
            raise ValueError(f"heads must have width {self.head_dim}, got {x.shape[-1]}")
        # (..., L, n) or (..., H, L, n)
        angles = to_float64(axes_angles(to_float64(numbers), directions))
        angles = angles[(None,) * (4 - angles.ndim)] if directions.ndim == 3 else per_head(angles)
        return apply_rope(x, angles, self.layout, attention_factor=self.attention_factor)


# --- one number for a point of a grid, as older methods have it ----------------------------------


def sinusoidal_2d(
    rows: Tensor, columns: Tensor, dim: int, base: float = 1e4, **options: Any
) -> Tensor:
    """Return the code of points on a grid: half the width for the row, half for the column.

    Args:
        rows: real numbers, of a shape that broadcasts with `columns`.
        columns: real numbers.
        dim: width of the code; a multiple of 4, since each half needs sines and cosines.
        base: as in `sinusoidal`.
        options: layout and dtype as in `sinusoidal`, for each half.

    Returns:
        (*broadcast shape, dim): the row's code, then the column's.

    Source: the 1-D code for each axis, as He et al. 2022 add it to patches (theirs has the
        column's half first).
    """
    if dim % 4:
        raise ValueError(f"dim must be a multiple of 4, two pairs for two axes, got {dim}")
    axes = torch.broadcast_tensors(rows, columns)
    return torch.cat([sinusoidal(axis, dim // 2, base, **options) for axis in axes], dim=-1)


def axial_angles(rows: Tensor, columns: Tensor, inv_freq: Tensor) -> Tensor:
    """Return angles for points on a grid: the row rotates the first pairs, the column the rest.

    Args:
        rows: real numbers, of a shape that broadcasts with `columns`.
        columns: real numbers.
        inv_freq: (n,) frequencies, the same for both axes.

    Returns:
        (*broadcast shape, 2n).

    Source: Heo et al. 2024, section 3.2 (axial frequency).
    """
    axes = torch.broadcast_tensors(rows, columns)
    return torch.cat([rope_angles(axis, inv_freq) for axis in axes], dim=-1)


class AxialRoPE(AxesRoPE):
    """Rotate half of the pairs by a patch's row, the others by its column.

    Args:
        head_dim: width d of a head; a multiple of 4.
        columns: patches in a row of the image: position p stands in row p // columns.
        base: as in `RoPE`, for each axis; images are short, so 100 is usual.
        options: layout and attention_factor as in `AxesRoPE`.

    Source: Heo et al. 2024, section 3.2.
    """

    cacheable_rotation = True

    def __init__(self, head_dim: int, columns: int, base: float = 100.0, **options: Any) -> None:
        """Give each axis half of the head."""
        super().__init__(head_dim, width_directions([head_dim // 2] * 2, base), **options)
        self.columns = columns

    def rotate(self, q: Tensor, k: Tensor, q_pos: Tensor, k_pos: Tensor) -> tuple[Tensor, Tensor]:
        """Rotate q (B, H, Lq, d) and k (B, H, Lk, d) by the rows and columns of their patches."""
        on_axes = [torch.stack([p // self.columns, p % self.columns], -1) for p in (q_pos, k_pos)]
        return self.rotate_axes(q, k, *on_axes)
