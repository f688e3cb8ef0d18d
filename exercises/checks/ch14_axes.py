"""Checks of exercise set 14: positions on two axes."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor

from exercises.checks.spec import Answer, Case, Draw, Exercise, Mistake
from pe_lib.axes import axial_angles, sinusoidal_2d
from pe_lib.rope import apply_rope, rope_angles
from pe_lib.sinusoidal import frequencies


def raster(n_rows: int, n_columns: int) -> tuple[Tensor, Tensor]:
    """Return the row and the column of each patch, row by row."""
    index = torch.arange(n_rows * n_columns)
    return index // n_columns, index % n_columns


Grid = tuple[Tensor, Tensor, Tensor]


def grid_of(codes: Tensor) -> Grid:
    """Return how many rows and columns a grid of codes has, and 1 if its columns come first."""
    rows, columns = read_places(codes, -1)
    return rows.max() + 1, columns.max() + 1, (columns[1] == 0).long()


def read_places(codes: Tensor, pair: int, whole: bool = False) -> tuple[Tensor, ...]:
    """Read the row and the column of each code from one pair of its half."""
    width = codes.shape[1] if whole else codes.shape[1] // 2
    rate = frequencies(width)[: codes.shape[1] // 4][pair]
    hands = codes.double().unflatten(1, (2, -1, 2))[:, :, pair]  # (N, 2, 2)
    places = (torch.atan2(hands[..., 0], hands[..., 1]) / rate).round().long()
    return places[:, 0], places[:, 1]


def read_otherwise(codes: Tensor, pair: int, whole: bool) -> Grid:
    """Read a grid from another pair, or with the rates of the whole width."""
    rows, columns = read_places(codes, pair, whole)
    return rows.max() + 1, columns.max() + 1, grid_of(codes)[2]


def grid_cases(draw: Draw) -> list[Case]:
    """High grids and wide ones, squares, long ones; the least width and wide ones; both orders."""
    a, b, c = draw.sizes(3, 3, 9)
    calls = (
        (a, b + 8, 0, 16), (a + 8, b, 1, 16), (c, c, 1, 4 * (2 * a + 1)), (b, b, 0, 24),
        (2, 190, 0, 8), (190 - c, 2, 0, 12), (b, 60 + a, 1, 128), (60 + c, 2, 1, 8),
    )  # fmt: skip
    found = []
    for n_rows, n_columns, by_column, dim in calls:
        places = raster(n_columns, n_rows)[::-1] if by_column else raster(n_rows, n_columns)
        words = "column by column" if by_column else "row by row"
        codes = sinusoidal_2d(*places, dim)
        found.append(Case(f"{words}, codes of shape {tuple(codes.shape)}", (codes,)))
    return found


Pair = tuple[int, int]
Box = tuple[float, float, float, float]


def in_blocks(grid: Pair, block: Pair, places: tuple[Tensor, Tensor]) -> tuple[Tensor, Tensor]:
    """Put what belongs to the patches of a grid, row by row, into the order of blocks."""
    shape = grid[0] // block[0], block[0], grid[1] // block[1], block[1]
    rows, columns = (each.reshape(shape).transpose(1, 2).flatten() for each in places)
    return rows, columns


def axial_rope(x: Tensor, grid: Pair, block: Pair, base: float = 10000.0) -> Tensor:
    """Rotate the first half of each vector by the row, the second by the column."""
    return by_places(x, *in_blocks(grid, block, raster(*grid)), base=base)


def by_places(x: Tensor, rows: Tensor, columns: Tensor, *, base: float = 10000.0) -> Tensor:
    """Rotate by rows and columns that are given."""
    return apply_rope(x, axial_angles(rows, columns, frequencies(x.shape[-1] // 2, base)))


def with_places(change: Callable[[Tensor, Tensor], tuple[Tensor, Tensor]]) -> Answer:
    """Return a wrong answer that changes the places of the patches."""
    return lambda x, g, b: by_places(x, *change(*in_blocks(g, b, raster(*g))))


def rope_cases(draw: Draw) -> list[Case]:
    """Wide grids and high ones, squares; blocks of one patch, of whole rows, and others."""
    b, h, rows, columns, quarter = draw.sizes(5, 2, 7)
    calls = (
        (b, h, (2 * rows, 3 * columns), (2, 3), quarter), (h, b, (rows, columns), (1, 1), quarter),
        (b, h, (2 * columns, 2 * rows), (2, 2), 1), (1, h, (2 * rows, 2 * rows), (2, 2), quarter),
        (1, 16, (4, 6), (2, 2), 1), (1, 1, (2, 70), (1, 2), 1), (1, 2, (70, 2), (7, 1), 2),
        (b, 1, (2 * rows, columns), (2, columns), 32), (h, 1, (6, 12), (3, 2), quarter),
    )  # fmt: skip
    return [
        Case(f"{'no blocks' if block == (1, 1) else 'blocks'}: "
             f"a grid of {grid} in blocks of {block}, {h} heads of width {4 * n}",
             (draw.normal(b, h, grid[0] * grid[1], 4 * n), grid, block))
        for b, h, grid, block, n in calls
    ]  # fmt: skip


def other_blocks(x: Tensor, grid: Pair, block: Pair, turned: str) -> Tensor:
    """Let the blocks, or the patches of each block, come column by column."""
    shape = grid[0] // block[0], block[0], grid[1] // block[1], block[1]
    axes = (2, 0, 1, 3) if turned == "blocks" else (0, 2, 3, 1)
    places = (each.reshape(shape).permute(axes).flatten() for each in raster(*grid))
    return by_places(x, *places)


def other_angles(x: Tensor, grid: Pair, block: Pair, rule: str) -> Tensor:
    """Rotate alternating pairs by row and column, or share the rates out between the axes."""
    rows, columns = in_blocks(grid, block, raster(*grid))
    if rule == "alternating":
        angles = axial_angles(rows, columns, frequencies(x.shape[-1] // 2))
        return apply_rope(x, angles.unflatten(-1, (2, -1)).mT.flatten(-2))
    fast, slow = frequencies(x.shape[-1]).chunk(2)
    return apply_rope(x, torch.cat([rope_angles(rows, fast), rope_angles(columns, slow)], -1))


def scaled_positions(grid: Pair, trained: Pair, box: Box) -> tuple[Tensor, Tensor]:
    """Return rows and columns of a part's patches in units of the trained grid."""
    return scaled_by(grid, trained, box, "right")


def scaled_by(grid: Pair, trained: Pair, box: Box, rule: str) -> tuple[Tensor, Tensor]:
    """Scale both axes by a rule."""
    sides = (box[0], box[2]), (box[1], box[3])
    parts = []
    for index, size, old, (low, high) in zip(raster(*grid), grid, trained, sides, strict=True):
        share = low + (index + 0.5) / size * (high - low)
        right = share * old - 0.5
        parts.append({
            "right": right, "corner": (low + index / size * (high - low)) * old,
            "unshifted": right + 0.5, "raw": index.float(), "share": share,
            "ends": (low + index / (size - 1) * (high - low)) * (old - 1),
            "whole": (index + 0.5) / size * old - 0.5, "moved": (index + 0.5) / size * old - 0.5
            + low * old, "at the corner": right - low * old, "rounded": right.round(),
            "inside": right.clamp(0, old - 1), "not below": right.clamp(min=0),
        }[rule])  # fmt: skip
    return parts[0], parts[1]


def by_columns(grid: Pair, trained: Pair, box: Box) -> tuple[Tensor, Tensor]:
    """Number the patches column by column."""
    rows, columns = scaled_positions(grid, trained, box)
    return rows.view(grid).T.flatten(), columns.view(grid).T.flatten()


def scale_cases(draw: Draw) -> list[Case]:
    """Whole pictures and parts, larger and smaller grids, squares, and the trained one."""
    h, w, more = draw.sizes(3, 3, 8)
    tenth = more / 40
    calls = (
        ((h + more, w + h + more), (h, w), (0.0, 0.0, 1.0, 1.0)),
        ((h, w), (h, w), (0.0, 0.0, 1.0, 1.0)),
        ((h, w + h + more), (h + 2, w), (tenth, 0.0, 1.0, 0.75)),
        ((7, 7), (14, 14), (0.0, 0.5, 1.0, 1.0)),
        ((32, 32), (14, 14), (0.375, 0.125, 0.875 - tenth, 0.75)),
        ((2, 90), (3, 64), (0.0, tenth, 0.5, 0.875)),
    )
    return [
        Case(
            f"{'the whole picture' if box == (0.0, 0.0, 1.0, 1.0) else 'a part'}: "
            f"a grid of {grid}, trained {old}, a box of {box}",
            (grid, old, box),
        )
        for grid, old, box in calls
    ]


EXERCISES = (
    Exercise(
        name="grid_of",
        cases=grid_cases,
        reference=grid_of,
        integers=True,
        mistakes=(
            Mistake("rows and columns are exchanged: the row's code is the first half",
                    lambda c: (grid_of(c)[1], grid_of(c)[0], grid_of(c)[2])),
            Mistake("the two orders are exchanged: 0 is for row by row",
                    lambda c: (*grid_of(c)[:2], 1 - grid_of(c)[2])),
            Mistake("rows and columns are exchanged, in their numbers and in the order",
                    lambda c: (grid_of(c)[1], grid_of(c)[0], 1 - grid_of(c)[2])),
            Mistake("these are the largest numbers; patches are numbered from 0",
                    lambda c: (grid_of(c)[0] - 1, grid_of(c)[1] - 1, grid_of(c)[2])),
            Mistake("you answer row by row always", lambda c: (*grid_of(c)[:2], 0)),
            Mistake("you answer column by column always", lambda c: (*grid_of(c)[:2], 1)),
            Mistake("the fastest pair has been around after six patches: read the slowest",
                    lambda c: read_otherwise(c, 0, False)),
            Mistake("each half has frequencies of its own, as of a code of half the width",
                    lambda c: read_otherwise(c, -1, True)),
            Mistake("the grid is taken for a square",
                    lambda c: (round(len(c) ** 0.5), round(len(c) ** 0.5), grid_of(c)[2])),
        ),
    ),
    Exercise(
        name="axial_rope",
        cases=rope_cases,
        reference=axial_rope,
        axes=("batch", "head", "patch", "component"),
        mistakes=(
            Mistake("rows and columns are exchanged: the first half belongs to the row",
                    with_places(lambda r, c: (c, r))),
            Mistake("the patches are taken to come row by row; they come block by block",
                    lambda x, g, b: by_places(x, *raster(*g))),
            Mistake("the blocks come row by row; yours come column by column",
                    lambda x, g, b: other_blocks(x, g, b, "blocks")),
            Mistake("within a block the patches come row by row; yours come column by column",
                    lambda x, g, b: other_blocks(x, g, b, "patches")),
            Mistake("this is RoPE in one dimension: the patches stand in a line",
                    lambda x, g, b: apply_rope(x, rope_angles(torch.arange(g[0] * g[1]),
                                                              frequencies(x.shape[-1])))),
            Mistake("it rotates the other way", with_places(lambda r, c: (-r, -c))),
            Mistake("even pairs rotate by the row, odd ones by the column; here the first half "
                    "belongs to the row: legal, but not what is asked",
                    lambda x, g, b: other_angles(x, g, b, "alternating")),
            Mistake("rows have the fast frequencies and columns the slow ones; both axes need the "
                    "whole range", lambda x, g, b: other_angles(x, g, b, "shared")),
            Mistake("your rows and columns start at 1", with_places(lambda r, c: (r + 1, c + 1))),
            Mistake("the columns are not used", with_places(lambda r, c: (r, 0 * c))),
            Mistake("the rows are not used", with_places(lambda r, c: (0 * r, c))),
            Mistake("the second half is rotated by the row too", with_places(lambda r, c: (r, r))),
            Mistake("the base is 10000; this is another",
                    lambda x, g, b: axial_rope(x, g, b, 100.0)),
        ),
    ),
    Exercise(
        name="scaled_positions",
        cases=scale_cases,
        reference=scaled_positions,
        axes=("patch",),
        mistakes=(
            Mistake("rows and columns are returned in the wrong order",
                    lambda g, t, b: scaled_positions(g, t, b)[::-1]),
            Mistake("the patches are numbered row by row; you number them column by column",
                    by_columns),
            *(Mistake(words, lambda g, t, b, rule=rule: scaled_by(g, t, b, rule))
              for rule, words in {
                "corner": "these are the places of the patches' upper left corners, from the "
                    "picture's own; wanted are those of their centres",
                "unshifted": "trained patch 0 has its centre half a patch from the edge: the half "
                    "patch has to be taken away again",
                "ends": "the first and last centres meet; here the edges must meet",
                "raw": "the positions are not scaled",
                "share": "these are shares between 0 and 1; the unit is a trained patch",
                "whole": "the box is not used",
                "moved": "the part is moved to its place, but as large as the whole picture",
                "at the corner": "the part is scaled and stands at the picture's corner, not in "
                    "its place",
                "rounded": "the positions are rounded; fractions are fine",
                "inside": "the positions are clamped to the trained range; the first may lie a "
                    "little below 0, the last a little past the end",
                "not below": "the positions are clamped at 0; the first may lie a little below",
              }.items()),
            Mistake("the box is top, left, bottom, right; you read left, top, right, bottom",
                    lambda g, t, b: scaled_positions(g, t, (b[1], b[0], b[3], b[2]))),
            Mistake("the box is top, left, bottom, right; you read top, bottom, left, right",
                    lambda g, t, b: scaled_positions(g, t, (b[0], b[2], b[1], b[3]))),
            Mistake("the last two of the box are its bottom and its right edge, not its size",
                    lambda g, t, b: scaled_positions(g, t, (b[0], b[1], b[0] + b[2], b[1] + b[3]))),
            Mistake("rows are scaled with the columns' trained size and columns with the rows'",
                    lambda g, t, b: scaled_positions(g, (t[1], t[0]), b)),
        ),
    ),
)  # fmt: skip
