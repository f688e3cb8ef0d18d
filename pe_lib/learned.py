"""Learned absolute positions: a table with one trained row per position (chapter 3)."""

from __future__ import annotations

from collections.abc import Sequence

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from pe_lib.encoding import PositionEncoding
from pe_lib.errors import (
    may_read,
    require_bool,
    require_choice,
    require_floating,
    require_greater,
    require_integers,
    require_positive,
)
from pe_lib.initial import normal
from pe_lib.positions import Positions, Run, as_positions, in_float64, placed, sent

BEYOND = ("error", "clamp", "wrap", "interpolate")


def interpolate_table(table: Tensor, length: int) -> Tensor:
    """Stretch or shrink a table of positions to another length.

    Args:
        table: (max_len, D); row i stands for position i.
        length: number of rows wanted, at least 1.

    Returns:
        (length, D). First and last row stay what they were; rows between are linear mixtures
        of their two neighbours.

    Raises:
        TypeError: if table is not a floating-point tensor or length not an int.
        ValueError: if table is not 2-D or length is below 1.
    """
    require_floating("table", table)
    require_positive("length", length)
    if table.ndim != 2 or len(table) == 0:
        raise ValueError(f"table must have shape (max_len >= 1, D), got {tuple(table.shape)}")
    places = torch.linspace(0, len(table) - 1, length, dtype=torch.float64, device="cpu")
    return sample_table(table, places)


def sample_table(table: Tensor, places: Tensor) -> Tensor:
    """Read a table (max_len, D) at real row numbers in [0, max_len - 1]: (...) -> (..., D)."""
    lower = places.floor().long().clamp(0, len(table) - 1)
    share = placed((places - lower).unsqueeze(-1), table.device, table.dtype)
    lower = sent(lower, table.device)
    upper = (lower + 1).clamp(max=len(table) - 1)
    return (1 - share) * table[lower] + share * table[upper]  # (..., D)


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

    Raises:
        TypeError: if table is not a floating-point tensor.
        ValueError: if the table does not have rows * columns rows or the mode is unknown.

    Source: Dosovitskiy et al. 2021, section 3.2.
    """
    require_floating("table", table)
    require_choice("mode", mode, ("bicubic", "bilinear"))
    rows, columns = require_grid("grid", grid)
    new_rows, new_columns = require_grid("new_grid", new_grid)
    if table.ndim != 2 or len(table) != rows * columns:
        raise ValueError(
            f"table must have shape ({rows} * {columns}, D) for grid {grid}, "
            f"got {tuple(table.shape)}"
        )
    # Not every mode has a form for half precision.
    precise = torch.promote_types(table.dtype, torch.float32)
    image = table.T.reshape(1, -1, rows, columns).to(precise)  # (1, D, rows, columns)
    resized = F.interpolate(
        image,
        (new_rows, new_columns),
        mode=mode,
        align_corners=False,
        antialias=require_bool("antialias", antialias),
    )
    return resized.flatten(2)[0].T.to(table.dtype)  # (new_rows * new_columns, D)


def latest_begin(places: Tensor, max_len: int) -> int:
    """Return the first position of that sequence, of those past the table, that begins last."""
    past = places[places.amax(-1) >= max_len]  # (number of such sequences, L)
    return int(past.amin(-1).max())


def require_grid(name: str, grid: object) -> tuple[int, int]:
    """Return (rows, columns) if `grid` is two positive ints."""
    if not isinstance(grid, Sequence) or isinstance(grid, str) or len(grid) != 2:
        raise TypeError(f"{name} must be two ints, (rows, columns), got {grid!r}")
    return require_positive(name, grid[0]), require_positive(name, grid[1])


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

    def __init__(
        self, max_len: int, d_model: int, *, std: float = 0.02, beyond: str = "error"
    ) -> None:
        """Draw the rows from a normal distribution."""
        super().__init__()
        require_positive("max_len", max_len)
        require_positive("d_model", d_model)
        self.beyond = require_choice("beyond", beyond, BEYOND)
        require_greater("std", std, 0)
        self.table = nn.Parameter(normal(max_len, d_model, std=std))  # (N, D)

    def embed(self, x: Tensor, positions: Positions) -> Tensor:
        """Add the rows of `positions` to x (B, L, D).

        Raises:
            TypeError: if x is not floating-point or positions are not integers.
            ValueError: if a shape does not fit, or a position is negative, or past the table
                with beyond="error".
        """
        require_floating("x", x)
        if x.ndim != 3 or x.shape[2] != self.table.shape[1]:
            raise ValueError(
                f"x must have shape (batch, length, {self.table.shape[1]}), got {tuple(x.shape)}"
            )
        positions = as_positions("positions", positions, x.shape[1], x.shape[0], x.device)
        return x + self.rows(positions).to(x.dtype)

    def rows(self, positions: Positions) -> Tensor:
        """Return the rows for a run, or for integers of any shape: (...) -> (..., D)."""
        max_len, first, last, begin = len(self.table), None, None, 0
        if isinstance(positions, Run):
            first, last, begin = positions.start, positions.stop - 1, positions.start
            places = positions.tensor(self.table.device)
        else:
            places = require_integers("positions", positions)
            if places.numel() == 0:
                return self.table.new_zeros(*places.shape, self.table.shape[1])
            if may_read(places):
                first, last = int(places.min()), int(places.max())
                if self.beyond == "interpolate" and last >= max_len:
                    begin = latest_begin(places, max_len)
        if first is not None and last is not None:
            self.check_range(first, last, begin)
            if last < max_len:
                return self.table[places]
        if self.beyond == "clamp":
            return self.table[places.clamp(max=max_len - 1)]
        if self.beyond == "wrap":
            return self.table[places % max_len]
        if self.beyond == "interpolate":
            longest = in_float64(places.amax(-1, keepdim=True).clamp(min=max_len - 1))
            return sample_table(self.table, in_float64(places) * ((max_len - 1) / longest))
        return self.table[places]

    def check_range(self, first: int, last: int, begin: int) -> None:
        """Raise a ValueError unless the table has an answer for positions first to last.

        `begin` is where the sequence that goes past the table begins, the latest if there are more.
        """
        max_len = len(self.table)
        if first < 0:
            raise ValueError(f"positions must be at least 0 for a table, got {first}")
        if last >= max_len and self.beyond == "error":
            raise ValueError(
                f"positions must be below max_len={max_len}, got {last}; "
                "a table has no row for it (see `beyond`)"
            )
        if last >= max_len and self.beyond == "interpolate" and begin > 0:
            raise ValueError(
                "positions must start at 0 for beyond='interpolate', which has to see the whole "
                f"sequence to squeeze it, got {begin} to {last}"
            )
