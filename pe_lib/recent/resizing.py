"""A learned table at another length, or on another grid of patches (chapters 3 and 13)."""

import torch
import torch.nn.functional as F
from torch import Tensor


def interpolate_table(table: Tensor, length: int) -> Tensor:
    """Stretch or shrink a table of positions to another length.

    Args:
        table: (max_len, D); row i stands for position i.
        length: number of rows wanted, at least 1.

    Returns:
        (length, D). First and last row stay what they were; rows between are linear mixtures
        of their two neighbours.
    """
    return sample_table(table, torch.linspace(0, len(table) - 1, length, dtype=torch.float64))


def sample_table(table: Tensor, places: Tensor) -> Tensor:
    """Read a table (max_len, D) at real row numbers from 0 on: (...) -> (..., D).

    Past the last row it is the last row.
    """
    if not table.is_floating_point():  # mixtures of two rows would be rounded
        raise TypeError(f"table must be of real numbers, got {table.dtype}")
    if (places < 0).any():
        raise ValueError(f"places must be at least 0, got {places.min().item():g}")
    lower = places.floor().long().clamp(0, len(table) - 1)
    share = (places - lower).clamp(max=1).unsqueeze(-1).to(table.device, table.dtype)
    lower = lower.to(table.device)
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

    Source: Dosovitskiy et al. 2021, section 3.2.
    """
    rows, columns = grid
    if len(table) != rows * columns:
        raise ValueError(
            f"table must have shape ({rows} * {columns}, D) for grid {grid}, "
            f"got {tuple(table.shape)}"
        )
    # Not every mode has a form for half precision.
    precise = torch.promote_types(table.dtype, torch.float32)
    image = table.T.reshape(1, -1, rows, columns).to(precise)  # (1, D, rows, columns)
    resized = F.interpolate(image, new_grid, mode=mode, align_corners=False, antialias=antialias)
    return resized.flatten(2)[0].T.to(table.dtype)  # (new_rows * new_columns, D)
