"""Checks of exercise set 13: positions on two axes."""

from __future__ import annotations

import torch
from torch import Tensor

from exercises.checks.spec import Case, Draw, Exercise, Mistake
from pe_lib.axes import axial_angles, sinusoidal_2d
from pe_lib.rope import apply_rope, rope_angles
from pe_lib.sinusoidal import frequencies, sinusoidal


def raster(n_rows: int, n_columns: int) -> tuple[Tensor, Tensor]:
    """Return the row and the column of each patch, row by row."""
    index = torch.arange(n_rows * n_columns)
    return index // n_columns, index % n_columns


def sincos_cases(draw: Draw) -> list[Case]:
    """Points that are no whole grid: whole places, fractions, below 0, and far; the least width."""
    n, quarter, other = draw.sizes(3, 3, 8)
    width = 4 * (2 * (quarter // 2) + 1)  # its half is no multiple of 4
    zero = torch.zeros(1)
    rows = torch.cat([zero, draw.places(other) / 4])
    columns = torch.cat([draw.places(other) * 3 + 100.5, zero])
    return [
        Case(f"{n} points, dim {width}", (draw.places(n), draw.places(n), width)),
        Case(f"rows {rows.tolist()}, columns {columns.tolist()}, dim {8 * other}",
             (rows, columns, 8 * other)),
        Case(f"{n} points, the least width, dim 4",
             (draw.places(n) - 30.5, 30.5 - draw.places(n), 4)),
    ]  # fmt: skip


def own_base(rows: Tensor, columns: Tensor, dim: int) -> Tensor:
    """Give each axis the first half of the frequencies of the whole width."""
    rates = frequencies(dim)[: dim // 4]
    parts = [places.double()[:, None] * rates for places in (rows, columns)]
    return torch.cat([torch.stack([p.sin(), p.cos()], -1).flatten(1) for p in parts], 1)


def shared_rates(rows: Tensor, columns: Tensor, dim: int) -> Tensor:
    """Give rows the fast half of the frequencies and columns the slow half."""
    rates = frequencies(dim)
    angles = torch.cat([rows.double()[:, None] * rates[: dim // 4],
                        columns.double()[:, None] * rates[dim // 4 :]], 1)  # fmt: skip
    return torch.stack([angles.sin(), angles.cos()], -1).flatten(1)


def axial_rope(x: Tensor, grid: tuple[int, int], base: float = 10000.0) -> Tensor:
    """Rotate the first half of each vector by the row, the second by the column."""
    rows, columns = raster(*grid)
    return by_places(x, rows, columns, base=base)


def by_places(x: Tensor, rows: Tensor, columns: Tensor, *, base: float = 10000.0) -> Tensor:
    """Rotate by rows and columns that are given."""
    return apply_rope(x, axial_angles(rows, columns, frequencies(x.shape[-1] // 2, base)))


def rope_cases(draw: Draw) -> list[Case]:
    """Wide grids and high ones, one row, one column, a square; many heads, a wide one."""
    b, h, rows, columns, quarter = draw.sizes(5, 2, 7)
    shapes = (
        (b, h, rows, columns, quarter), (b, h, columns, rows, quarter + 1),
        (h, b, columns + rows, rows, 1), (b, h, rows, rows, quarter), (1, 16, 2, 5, 1),
        (1, 1, 2, 70, 1), (1, 2, 70, 1, 2), (b, 1, 1, rows, 64),
    )  # fmt: skip
    return [
        Case(f"a grid of {(high, wide)}, {h} heads of width {4 * n}",
             (draw.normal(b, h, high * wide, 4 * n), (high, wide)))
        for b, h, high, wide, n in shapes
    ]  # fmt: skip


def alternating(x: Tensor, grid: tuple[int, int]) -> Tensor:
    """Rotate even pairs by the row, odd pairs by the column."""
    rows, columns = raster(*grid)
    angles = axial_angles(rows, columns, frequencies(x.shape[-1] // 2))
    return apply_rope(x, angles.unflatten(-1, (2, -1)).mT.flatten(-2))


def split_rates(x: Tensor, grid: tuple[int, int]) -> Tensor:
    """Give rows the fast half of the frequencies and columns the slow half."""
    rows, columns = raster(*grid)
    fast, slow = frequencies(x.shape[-1]).chunk(2)
    return apply_rope(x, torch.cat([rope_angles(rows, fast), rope_angles(columns, slow)], -1))


def scaled_positions(grid: tuple[int, int], trained: tuple[int, int]) -> tuple[Tensor, Tensor]:
    """Return rows and columns of a grid's patches in units of the trained grid."""
    rows, columns = raster(*grid)
    return centred(rows, grid[0], trained[0]), centred(columns, grid[1], trained[1])


def centred(index: Tensor, size: int, trained: int) -> Tensor:
    """Scale so that the edges of both grids meet."""
    return (index + 0.5) * trained / size - 0.5


def scaled_by(grid: tuple[int, int], trained: tuple[int, int], rule: str) -> tuple[Tensor, Tensor]:
    """Scale both axes by another rule."""
    parts = []
    for index, size, old in zip(raster(*grid), grid, trained, strict=True):
        place = {
            "corner": index * old / size, "ends": index * (old - 1) / (size - 1),
            "raw": index.float(), "unshifted": (index + 0.5) * old / size,
            "inverse": (index + 0.5) * size / old - 0.5, "share": (index + 0.5) / size,
            "clamped": index.clamp(max=old - 1).float(), "modulo": (index % old).float(),
            "rounded": centred(index, size, old).round(),
            "inside": centred(index, size, old).clamp(0, old - 1),
            "not below": centred(index, size, old).clamp(min=0),
            "by rows": centred(index, grid[0], trained[0]),
            "by columns": centred(index, grid[1], trained[1]),
        }[rule]  # fmt: skip
        parts.append(place)
    return parts[0], parts[1]


def by_columns(grid: tuple[int, int], trained: tuple[int, int]) -> tuple[Tensor, Tensor]:
    """Number the patches column by column."""
    columns, rows = raster(grid[1], grid[0])
    return centred(rows, grid[0], trained[0]), centred(columns, grid[1], trained[1])


def scale_cases(draw: Draw) -> list[Case]:
    """Larger and smaller grids, squares, fewer rows and more columns, and the trained one."""
    h, w, more = draw.sizes(3, 3, 8)
    pairs = (
        ((h + more, w + h + more), (h, w)), ((h, w + h + more), (h + 2, w)), ((h, w), (h, w)),
        ((32, 32), (14, 14)), ((7, 7), (14, 14)), ((2, 90), (3, 64)),
    )  # fmt: skip
    return [Case(f"a grid of {grid}, trained {old}", (grid, old)) for grid, old in pairs]


EXERCISES = (
    Exercise(
        name="sincos_2d",
        cases=sincos_cases,
        reference=sinusoidal_2d,
        axes=("point", "component"),
        mistakes=(
            Mistake("the column comes first; the row's code is the first half",
                    lambda r, c, d: sinusoidal_2d(c, r, d)),
            Mistake("each axis has its own frequencies, from 1 down to almost 1/base; you give "
                    "both the fast half of the whole width's", own_base),
            Mistake("each axis has its own frequencies; yours share one series: rows the fast "
                    "half, columns the slow half", shared_rates),
            Mistake("the codes are added; they must stand side by side",
                    lambda r, c, d: sinusoidal(r, d) + sinusoidal(c, d)),
            Mistake("the code is that of row + column: many points share it",
                    lambda r, c, d: sinusoidal(r + c, d)),
            Mistake("these are all sines, then all cosines, within each half: legal, but this "
                    "exercise asks for interleaved components",
                    lambda r, c, d: sinusoidal_2d(r, c, d, layout="half")),
            Mistake("the row is used twice; the column is missing",
                    lambda r, c, d: sinusoidal_2d(r, r, d)),
            Mistake("the column is used twice; the row is missing",
                    lambda r, c, d: sinusoidal_2d(c, c, d)),
            Mistake("your positions start at 1: you add one to each",
                    lambda r, c, d: sinusoidal_2d(r + 1, c + 1, d)),
            Mistake("you number the points yourself; use rows and columns",
                    lambda r, c, d: sinusoidal_2d(torch.arange(len(r)), torch.arange(len(r)), d)),
            Mistake("rows and columns alternate; the first half belongs to the row",
                    lambda r, c, d: torch.stack([sinusoidal(r, d // 2), sinusoidal(c, d // 2)], -1)
                    .flatten(-2)),
            Mistake("sine and cosine are swapped: the even components are sines",
                    lambda r, c, d: sinusoidal_2d(r, c, d).unflatten(-1, (-1, 2)).flip(-1)
                    .flatten(-2)),
        ),
    ),
    Exercise(
        name="axial_rope",
        cases=rope_cases,
        reference=axial_rope,
        axes=("batch", "head", "patch", "component"),
        mistakes=(
            Mistake("rows and columns are exchanged: the first half belongs to the row",
                    lambda x, g: by_places(x, *raster(*g)[::-1])),
            Mistake("the patches are numbered row by row; you number them column by column (or: "
                    "you divide by the number of rows, and exchange row and column)",
                    lambda x, g: by_places(x, *raster(g[1], g[0])[::-1])),
            Mistake("you divide by the number of rows; a row has as many patches as there are "
                    "columns", lambda x, g: by_places(x, torch.arange(g[0] * g[1]) // g[0],
                                                      torch.arange(g[0] * g[1]) % g[0])),
            Mistake("this is RoPE in one dimension: the patches stand in a line",
                    lambda x, g: apply_rope(x, rope_angles(torch.arange(g[0] * g[1]),
                                                           frequencies(x.shape[-1])))),
            Mistake("it rotates the other way",
                    lambda x, g: by_places(x, *(-p for p in raster(*g)))),
            Mistake("even pairs rotate by the row, odd ones by the column; here the first half "
                    "belongs to the row: legal, but not what is asked", alternating),
            Mistake("rows have the fast frequencies and columns the slow ones; both axes need the "
                    "whole range", split_rates),
            Mistake("your rows and columns start at 1",
                    lambda x, g: by_places(x, *(p + 1 for p in raster(*g)))),
            Mistake("the columns are not used", lambda x, g: by_places(x, raster(*g)[0],
                                                                       0 * raster(*g)[1])),
            Mistake("the rows are not used", lambda x, g: by_places(x, 0 * raster(*g)[0],
                                                                    raster(*g)[1])),
            Mistake("the second half is rotated by the row too",
                    lambda x, g: by_places(x, raster(*g)[0], raster(*g)[0])),
            Mistake("the base is 10000; this is another", lambda x, g: axial_rope(x, g, 100.0)),
        ),
    ),
    Exercise(
        name="scaled_positions",
        cases=scale_cases,
        reference=scaled_positions,
        axes=("patch",),
        mistakes=(
            Mistake("rows and columns are returned in the wrong order",
                    lambda g, t: scaled_positions(g, t)[::-1]),
            Mistake("the patches are numbered row by row; you number them column by column",
                    by_columns),
            Mistake("these are the places of the patches' upper left corners; wanted are those of "
                    "their centres: the half patch is missing",
                    lambda g, t: scaled_by(g, t, "corner")),
            Mistake("the half patch is added and not taken away again",
                    lambda g, t: scaled_by(g, t, "unshifted")),
            Mistake("the first and last centres meet; here the edges of the grids must meet",
                    lambda g, t: scaled_by(g, t, "ends")),
            Mistake("the positions are not scaled", lambda g, t: scaled_by(g, t, "raw")),
            Mistake("the factor is upside down: the trained size over the new one",
                    lambda g, t: scaled_by(g, t, "inverse")),
            Mistake("these are shares between 0 and 1; the unit is a trained patch",
                    lambda g, t: scaled_by(g, t, "share")),
            Mistake("positions past the trained grid are cut off; scale them",
                    lambda g, t: scaled_by(g, t, "clamped")),
            Mistake("positions past the trained grid begin again at 0; scale them",
                    lambda g, t: scaled_by(g, t, "modulo")),
            Mistake("the positions are rounded; fractions are fine",
                    lambda g, t: scaled_by(g, t, "rounded")),
            Mistake("the positions are clamped to the trained range; the first may lie a little "
                    "below 0, the last a little past the end",
                    lambda g, t: scaled_by(g, t, "inside")),
            Mistake("the positions are clamped at 0; the first may lie a little below",
                    lambda g, t: scaled_by(g, t, "not below")),
            Mistake("both axes are scaled by the sizes of the rows",
                    lambda g, t: scaled_by(g, t, "by rows")),
            Mistake("both axes are scaled by the sizes of the columns",
                    lambda g, t: scaled_by(g, t, "by columns")),
            Mistake("rows are scaled with the columns' sizes and columns with the rows'",
                    lambda g, t: (centred(raster(*g)[0], g[1], t[1]),
                                  centred(raster(*g)[1], g[0], t[0]))),
        ),
    ),
)  # fmt: skip
