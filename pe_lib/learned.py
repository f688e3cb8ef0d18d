"""Learned absolute positions: a table with one trained row per position (chapter 3).

x_i + table[i]
"""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from pe_lib.encoding import Integers, PositionEncoding, Reals, checked
from pe_lib.errors import may_read, require_bool, require_choice, require_greater, require_positive
from pe_lib.initial import normal
from pe_lib.positions import exact

BEYOND = ("error", "clamp", "wrap", "interpolate")


class Learned(PositionEncoding):
    """Add a trained row per position to the input.

    Args:
        max_len: number of rows N.
        d_model: width D.
        std: standard deviation of the initial rows. Match it to the token embeddings: a
            table far smaller than they are is hardly seen, and learns late.
        beyond: what a position past the table does: "error" raises (as GPT-2 and BERT do),
            "clamp" uses the last row, "wrap" starts again at row 0, "interpolate" squeezes
            the positions of each sequence so that its last meets the last row. A squeeze depends
            on the whole sequence, so that one that comes piece by piece (KV cache) is refused.

    Source: Gehring et al. 2017; Devlin et al. 2019; Radford et al. 2019.
    """

    integers = True

    def __init__(
        self, max_len: int, d_model: int, *, std: float = 0.02, beyond: str = "error"
    ) -> None:
        """Draw the rows from a normal distribution."""
        super().__init__()
        self.max_len, self.d_model = require_positive("max_len", max_len), d_model
        self.beyond = require_choice("beyond", beyond, BEYOND)
        shape = max_len, require_positive("d_model", d_model)
        self.table = nn.Parameter(normal(*shape, std=require_greater("std", std, 0)))  # (N, D)

    def embed(self, x: Tensor, positions: Tensor) -> Tensor:
        """Add the rows of `positions` to x (B, L, D)."""
        return x + self.rows(positions).to(x.dtype)

    @checked()
    def rows(self, positions: Integers) -> Tensor:
        """Return the rows of positions: (...) -> (..., D)."""
        require_rows(positions, self.max_len, self.beyond)
        last = self.max_len - 1
        if self.beyond == "clamp":
            positions = positions.clamp(max=last)
        if self.beyond == "wrap":
            positions = positions % self.max_len
        if self.beyond == "interpolate" and positions.numel() > 0:
            longest = exact(positions.amax(-1, keepdim=True).clamp(min=last))
            return sample_table(self.table, exact(positions) * (last / longest))
        return self.table[positions]


def require_rows(positions: Tensor, max_len: int, beyond: str) -> None:
    """Raise unless a table has an answer for positions, as far as they may be read."""
    if not may_read(positions) or positions.numel() == 0:
        return
    first, last = int(positions.min()), int(positions.max())
    if first < 0:
        raise ValueError(f"positions must be at least 0 for a table, got {first}")
    if last >= max_len and beyond == "error":
        raise ValueError(
            f"positions must be below max_len={max_len}, got {last}; a table has no row for it "
            "(see `beyond`)"
        )
    past = positions[positions.amax(-1) >= max_len]  # the sequences that are squeezed
    if beyond == "interpolate" and past.numel() > 0 and past.amin(-1).any():
        raise ValueError(
            "positions must start at 0 for beyond='interpolate', which has to see the whole "
            f"sequence to squeeze it, got {int(past.amin(-1).max())} to {last}"
        )


@checked(table="N D")
def interpolate_table(table: Tensor, length: int) -> Tensor:
    """Stretch or shrink a table of positions to another length.

    Args:
        table: (max_len, D); row i stands for position i.
        length: number of rows wanted, at least 1.

    Returns:
        (length, D). First and last row stay what they were; rows between are linear mixtures
        of their two neighbours.
    """
    require_positive("rows of the table", len(table))
    steps = require_positive("length", length)
    return sample_table(table, torch.linspace(0, len(table) - 1, steps, dtype=torch.float64))


@checked(table="N D")
def sample_table(table: Tensor, places: Reals) -> Tensor:
    """Read a table (max_len, D) at real row numbers in [0, max_len - 1]: (...) -> (..., D)."""
    lower = places.floor().long().clamp(0, len(table) - 1)
    share = (places - lower).unsqueeze(-1).to(table.device, table.dtype)
    lower = lower.to(table.device)
    upper = (lower + 1).clamp(max=len(table) - 1)
    return (1 - share) * table[lower] + share * table[upper]  # (..., D)


@checked(table="N D")
def interpolate_grid(
    table: Tensor,
    grid: tuple[int, int],
    new_grid: tuple[int, int],
    mode: str = "bicubic",
    *,
    antialias: bool = False,
) -> Tensor:
    """Resize a table learned on a grid of patches to another grid.

    Args:
        table: (rows * columns, D), row by row.
        grid: (rows, columns) it was learned on.
        new_grid: (rows, columns) wanted.
        mode: "bicubic" or "bilinear".
        antialias: to a smaller grid, mix all rows that fall into a new one instead of the nearest
            few (timm, DINOv2 with registers); to a larger one it changes nothing much.

    Returns:
        (new rows * new columns, D).

    Source: Dosovitskiy et al. 2021, section 3.2.
    """
    (rows, columns), wanted = require_grid("grid", grid), require_grid("new_grid", new_grid)
    require_choice("mode", mode, ("bicubic", "bilinear"))
    if len(table) != rows * columns:
        raise ValueError(
            f"table must have shape ({rows} * {columns}, D) for grid {grid}, "
            f"got {tuple(table.shape)}"
        )
    # Not every mode has a form for half precision.
    precise = torch.promote_types(table.dtype, torch.float32)
    image = table.T.reshape(1, -1, rows, columns).to(precise)  # (1, D, rows, columns)
    mixing = {"mode": mode, "antialias": require_bool("antialias", antialias)}
    resized = F.interpolate(image, wanted, align_corners=False, **mixing)
    return resized.flatten(2)[0].T.to(table.dtype)  # (new_rows * new_columns, D)


def require_grid(name: str, grid: object) -> tuple[int, int]:
    """Return (rows, columns) if `grid` is two positive ints."""
    if not isinstance(grid, tuple | list) or len(grid) != 2:
        raise TypeError(f"{name} must be two ints, (rows, columns), got {grid!r}")
    return require_positive(name, grid[0]), require_positive(name, grid[1])
