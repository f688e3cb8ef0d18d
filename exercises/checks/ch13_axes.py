"""Checks of exercise set 13: positions on several axes."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TypeAlias

import torch
from torch import Tensor

from exercises.checks.spec import Answer, Case, Draw, Exercise, Mistake
from pe_lib.axes import (
    axes_angles,
    axial_angles,
    axis_of_pair,
    section_directions,
    sinusoidal_2d,
    text_image_positions,
)
from pe_lib.rope import apply_rope, rope_angles
from pe_lib.sinusoidal import frequencies, sinusoidal

Parts: TypeAlias = Sequence[int | tuple[int, int, int]]


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


# --- text, images and video in one sequence -------------------------------------------------------


def mixed_positions(parts: Parts) -> Tensor:
    """Return three numbers for each token: frame, row and column."""
    return text_image_positions(parts).numbers


def parts_cases(draw: Draw) -> list[Case]:
    """Images between words, first and last, side by side; videos of many frames and of few."""
    a, b, c, d = draw.sizes(4, 2, 6)
    lists: tuple[Parts, ...] = (
        [a, (1, b, c), d], [1, (1, b, a), (2, c, c), 2], [2, (1, 2, 2 + d), (1, b + 2, 3), 1],
        [c, (b + d + 4, 2, 3), a], [1, (2, a, a + b), 3, (c + 9, 1, 2), 1], [2],
        [b, (2, c + 7, 3), d], [(1, a, a), (1, a, a), b],
    )  # fmt: skip
    return [
        Case(f"{'words alone' if one == [2] else 'words and images'}, "
             f"numbers from {i % 3}", (mixed_positions(one) + i % 3,))
        for i, one in enumerate(lists)
    ]  # fmt: skip


def larger(row: list[int], largest: int) -> bool:
    """Return whether a token begins a part: all of its numbers are new."""
    return min(row) > largest


def parts_of(
    numbers: Tensor, new: Callable[[list[int], int], bool] = larger, from_zero: bool = False
) -> Tensor:
    """Return frames, rows and columns of each part, (P, 3)."""
    starts, largest = [], int(numbers.min()) - 1
    for place, row in enumerate(numbers.tolist()):
        if new(row, largest):
            starts.append(place)
        largest = max(largest, *row)
    ends = [*starts[1:], len(numbers)]
    return torch.stack([
        numbers[a:b].amax(0) - (0 if from_zero else numbers[a]) + 1
        for a, b in zip(starts, ends, strict=True)
    ])  # fmt: skip


def merged_images(parts: Tensor) -> Tensor:
    """Return the parts without those images that follow an image."""
    image = parts.prod(1) > 1
    return parts[~(image & torch.cat([torch.tensor([False]), image[:-1]]))]


def merged_words(parts: Tensor) -> Tensor:
    """Return the parts without those words that follow a word."""
    word = parts.prod(1) == 1
    return parts[~(word & torch.cat([torch.tensor([False]), word[:-1]]))]


def section_angles(
    numbers: Tensor, sections: Sequence[int], base: float, interleaved: bool
) -> Tensor:
    """Return the angle of each pair, from the number on its axis."""
    name = "interleaved" if interleaved else "chunked"
    return axes_angles(numbers, section_directions(shared_list(sections, base), sections, name))


def shared_list(sections: Sequence[int], base: float) -> Tensor:
    """Return the frequencies of all pairs together."""
    return frequencies(2 * sum(sections), base)


def angles_by(numbers: Tensor, rates: Tensor, axis: Tensor) -> Tensor:
    """Return the product of each pair's rate with the number on its axis."""
    return numbers.double()[:, axis] * rates


def angle_cases(draw: Draw) -> list[Case]:
    """Sections of published models, equal ones, and others; one axis, and four; fractions."""
    a, b, c, n = draw.sizes(4, 2, 7)
    patches = mixed_positions([a, (2, b, c), n])
    points = torch.stack([draw.places(n), draw.places(n) + 60, 3 * draw.places(n)], 1)
    calls = (
        (patches, [16, 24, 24], 1e6), (points, [24, 20, 20], 5e6), (points, [a, b + 3, c], 10000.0),
        (points[:, :2] / 4, [c, a + 4], 500.0), (-points, [a, a, a], 10000.0),
        (patches[:, 1:], [b, b], 1000.0), (patches[:, [0, 2, 1, 1]], [1, c, 2, b], 10000.0),
        (points[:, 2:], [n], 10000.0),
    )  # fmt: skip
    return [
        Case(f"numbers of shape {tuple(x.shape)}, sections {s}, base {base:g}, "
             f"{'interleaved' if each else 'chunked'}", (x, s, base, each))
        for x, s, base in calls for each in (False, True)
    ]  # fmt: skip


def own_series(numbers: Tensor, sections: Sequence[int], base: float, interleaved: bool) -> Tensor:
    """Give each axis frequencies of its own, from 1 down."""
    axis = axis_of_pair(sections, "interleaved" if interleaved else "chunked")
    ranks = torch.stack([(axis[:r] == axis[r]).sum() for r in range(len(axis))])
    rates = torch.stack([
        frequencies(2 * sections[int(a)], base)[int(rank)]
        for a, rank in zip(axis, ranks, strict=True)
    ])  # fmt: skip
    return angles_by(numbers, rates, axis)


def taken_along(numbers: Tensor, sections: Sequence[int], base: float, interleaved: bool) -> Tensor:
    """Deal out the pairs of the chunks, with the rates that they had there."""
    axis = axis_of_pair(sections, "interleaved" if interleaved else "chunked")
    order = axis.argsort(stable=True).argsort()
    return section_angles(numbers, sections, base, False)[:, order]


def never_used_up(
    numbers: Tensor, sections: Sequence[int], base: float, interleaved: bool
) -> Tensor:
    """Let the axes take turns to the end."""
    if not interleaved:
        return section_angles(numbers, sections, base, interleaved)
    axis = torch.arange(sum(sections)) % len(sections)
    return angles_by(numbers, shared_list(sections, base), axis)


def equal_parts(numbers: Tensor, sections: Sequence[int], base: float, interleaved: bool) -> Tensor:
    """Give each axis as many pairs as the others, as far as that is possible."""
    count = len(sections)
    equal = [(sum(sections) + i) // count for i in range(count)]
    return section_angles(numbers, equal, base, interleaved)


def with_rates(rule: Callable[[Tensor], Tensor]) -> Answer:
    """Return a wrong answer whose rates another rule makes of the right ones."""

    def answer(x: Tensor, s: Sequence[int], base: float, interleaved: bool) -> Tensor:
        axis = axis_of_pair(s, "interleaved" if interleaved else "chunked")
        return angles_by(x, rule(shared_list(s, base)), axis)

    return answer


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
    Exercise(
        name="parts_of",
        cases=parts_cases,
        reference=parts_of,
        integers=True,
        axes=("part", "axis"),
        mistakes=(
            Mistake("the sizes are one too small: numbers from 0 to 2 are three rows",
                    lambda x: parts_of(x) - 1),
            Mistake("the order is frames, rows, columns; yours is columns, rows, frames",
                    lambda x: parts_of(x).flip(-1)),
            Mistake("rows and columns are exchanged", lambda x: parts_of(x)[:, [0, 2, 1]]),
            Mistake("the largest number is taken for a size; count from the part's own beginning",
                    lambda x: parts_of(x, from_zero=True)),
            Mistake("a part does not begin wherever three numbers are equal: a patch on the "
                    "diagonal of an image has such numbers, too",
                    lambda x: parts_of(x, new=lambda row, largest: min(row) == max(row))),
            Mistake("images that follow one another are taken for one",
                    lambda x: merged_images(parts_of(x))),
            Mistake("words are left out; each counts as (1, 1, 1)",
                    lambda x: parts_of(x)[parts_of(x).prod(1) > 1]),
            Mistake("words that follow one another are taken for one",
                    lambda x: merged_words(parts_of(x))),
            Mistake("each token is taken for a part", lambda x: torch.ones_like(x)),
            Mistake("frames are left out: return three sizes for each part",
                    lambda x: parts_of(x)[:, 1:]),
        ),
    ),
    Exercise(
        name="section_angles",
        parts=("chunked", "interleaved"),
        cases=angle_cases,
        reference=section_angles,
        axes=("token", "pair"),
        tolerance=1e-5,
        mistakes=(
            Mistake("the sections are chunked always; look at `interleaved`",
                    lambda x, s, b, i: section_angles(x, s, b, False)),
            Mistake("the sections are interleaved always; look at `interleaved`",
                    lambda x, s, b, i: section_angles(x, s, b, True)),
            Mistake("the two arrangements are exchanged",
                    lambda x, s, b, i: section_angles(x, s, b, not i)),
            Mistake("each axis has frequencies of its own, from 1 down; here they share one list",
                    own_series),
            Mistake("interleaved, the axes take turns, but each pair has brought the rate of its "
                    "chunk along; the rates stay where they are", taken_along),
            Mistake("interleaved, an axis whose pairs are used up drops out; yours takes turns to "
                    "the end", never_used_up),
            Mistake("sections that are equal can be interleaved, too; yours are chunked",
                    lambda x, s, b, i: section_angles(x, s, b, i and len(set(s)) > 1)),
            Mistake("negative numbers are taken as 0",
                    lambda x, s, b, i: section_angles(x.clamp(min=0), s, b, i)),
            Mistake("every axis has as many pairs as the others; look at `sections`",
                    equal_parts),
            Mistake("the axes stand in the wrong order: the last has the first pairs",
                    lambda x, s, b, i: section_angles(x.flip(-1), s, b, i)),
            Mistake("the sections stand in the wrong order: the first axis has the last section",
                    lambda x, s, b, i: section_angles(x, s[::-1], b, i)),
            Mistake("all pairs rotate by the first number of a token",
                    lambda x, s, b, i: section_angles(x[:, :1].expand_as(x), s, b, i)),
            Mistake("all pairs rotate by the last number of a token",
                    lambda x, s, b, i: section_angles(x[:, -1:].expand_as(x), s, b, i)),
            Mistake("all pairs rotate by the sum of a token's numbers; each has one axis",
                    lambda x, s, b, i: angles_by(x.sum(1, keepdim=True), shared_list(s, b),
                                                 torch.zeros(sum(s), dtype=torch.int64))),
            Mistake("you count the tokens yourself; use their numbers",
                    lambda x, s, b, i: section_angles(
                        torch.arange(len(x))[:, None].expand_as(x), s, b, i)),
            Mistake("your numbers are one too high",
                    lambda x, s, b, i: section_angles(x + 1, s, b, i)),
            Mistake("the exponent is 2r/n for pair r of n; it must be r/n",
                    with_rates(lambda w: w**2)),
            Mistake("the exponent is r/(2n) for pair r of n; it must be r/n",
                    with_rates(lambda w: w**0.5)),
            Mistake("the frequencies grow with r: the sign of the exponent is missing",
                    with_rates(lambda w: 1 / w)),
            Mistake("the base is an argument; you use 10000 always",
                    lambda x, s, b, i: section_angles(x, s, 10000.0, i)),
            Mistake("these are whole turns, not radians", with_rates(lambda w: w * 2 * torch.pi)),
            Mistake("the angles rotate the other way", with_rates(lambda w: -w)),
            Mistake("there is an angle for each component; wanted is one for each pair",
                    lambda x, s, b, i: section_angles(x, s, b, i).repeat(1, 2)),
        ),
    ),
)  # fmt: skip
