"""Checks of exercise set 14: positions on two axes."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor

from pe_course.judge.exercise import Answer, Case, Draw, Exercise, Mistake

Pair = tuple[int, int]
Two = tuple[Tensor, Tensor]


def step_of(places: Tensor) -> Tensor:
    """Return how far apart two neighbouring rows, or columns, of patches are."""
    gaps = places.sort().values.diff()
    return gaps[gaps > 1e-6].min()


def box_of(rows: Tensor, columns: Tensor, trained: Pair) -> Tensor:
    """Return top, left, bottom, right of the part, in shares of the picture."""
    return box_by(rows, columns, trained)


def box_by(
    rows: Tensor, columns: Tensor, trained: Pair, *, half: float = 0.5, outside: float = 0.5,
    less: int = 0, order: tuple[int, ...] = (0, 1, 2, 3),
) -> Tensor:  # fmt: skip
    """Return the box by a rule: where row 0 has its edge, and how far edges are from centres."""
    low, high = [], []
    for places, size in zip((rows, columns), trained, strict=True):
        step = step_of(places)
        low.append((places.min() + half - outside * step) / (size - less))
        high.append((places.max() + half + outside * step) / (size - less))
    return torch.stack(low + high)[list(order)]


def box_cases(draw: Draw) -> list[Case]:
    """Whole pictures and parts, coarser and finer grids; all patches, and some dropped."""
    h, w, more = draw.sizes(3, 3, 8)
    third = draw.integer(100, 266) / 1000
    found = []
    for part, grid, trained, box in (
        ("the whole picture", (h, w + 3), (h, w + 3), (0.0, 0.0, 1.0, 1.0)),
        ("a part of the width", (h, w + more), (h + 2, w), (0.0, third, 1.0, 0.7)),
        ("the right half", (7, 7), (14, 14), (0.0, 0.5, 1.0, 1.0)),
        ("a flat part", (2, 30), (3, 64), (0.25, third, 0.5, 0.875)),
        ("a part in a finer grid", (32, 24), (14, 16), (0.375, 0.125, 0.875 - third, 0.75)),
    ):  # fmt: skip
        patch = torch.arange(grid[0] * grid[1])
        kept = torch.rand(len(patch), generator=draw.generator) < 0.5
        kept |= (patch % grid[1] == 0) | (patch // grid[1] == 0)  # each row and column has one
        patch = patch[kept][draw.order(int(kept.sum()))]
        rows, columns = (
            (box[a] + (place + 0.5) / grid[a] * (box[a + 2] - box[a])) * trained[a] - 0.5
            for a, place in enumerate(((patch // grid[1]).double(), (patch % grid[1]).double()))
        )  # fmt: skip
        sizes = f": {len(patch)} patches, trained {trained}"
        found.append(Case(part, (rows, columns, trained), drawn=sizes))
    return found


def pairs_with(table: Tensor, often: bool = True) -> Tensor:
    """Return how many pairs of patches have each offset, or 1 for each."""
    rows, columns = ((n + 1) // 2 - (torch.arange(n) - n // 2).abs() for n in table.shape[1:])
    return (rows[:, None] * columns if often else torch.ones_like(table[0])).double()


def nearest_cross(table: Tensor) -> Two:
    """Return the nearest sum of a row part and a column part, and the share that is left."""
    return with_share(table, cross(table))


def cross(table: Tensor, often: bool = True, means: int = 1) -> Tensor:
    """Add the means of rows and columns, less so many means of all."""
    weights = pairs_with(table, often)
    f, g, mean = ((weights * table).sum(axes, keepdim=True) / weights.sum(axes, keepdim=True)
                  for axes in (-1, -2, (-2, -1)))  # fmt: skip
    return f + g - means * mean


def with_share(table: Tensor, near: Tensor, often: bool = True) -> Two:
    """Add the share of the variance that is left."""
    weights = pairs_with(table, often)
    mean = (weights * table).sum((1, 2), keepdim=True) / weights.sum()
    left, whole = ((weights * (table - each).square()).sum((1, 2)) for each in (near, mean))
    return near, left / whole


def table_cases(draw: Draw) -> list[Case]:
    """High windows and wide ones, squares; tables that are almost crosses."""
    h, rows, columns, more = draw.sizes(4, 2, 7)
    found = []
    for words, heads, high, wide, much in (
        ("a free table", h, rows, columns + 3, 1.0),
        ("a free table of one head", 1, columns + 4, rows, 1.0),
        ("a square window", h + 1, more, more, 0.5), ("almost a cross", 2, more, rows + 8, 0.01),
        ("as many heads as rows", 2 * rows - 1, rows, more, 2.0),
    ):  # fmt: skip
        f, g = draw.normal(heads, 2 * high - 1, 1), draw.normal(heads, 1, 2 * wide - 1)
        table = 3 + f + 2 * g + much * draw.normal(heads, 2 * high - 1, 2 * wide - 1)
        found.append(
            Case(words, (table.double(),), drawn=f", H = {heads}, a window of {high} × {wide}")
        )
    return found


def places_of(scores: Tensor, corner: int) -> Two:
    """Go from the corner along the first row, and down from each of its patches."""
    same = (scores - scores[corner][:, None, None]).abs() < 1e-9  # (N, N, N)
    often = same.sum((1, 2))  # how many pairs stand as the corner and k do
    often[corner] = 0
    rows, columns = torch.zeros(2, len(scores), dtype=torch.long)
    top = line(same[int(often.argmax())], corner)
    often[top] = 0
    below = same[int(often.argmax())]
    for x, head in enumerate(top):
        for y, patch in enumerate(line(below, head)):
            rows[patch], columns[patch] = y, x
    return rows, columns


def line(step: Tensor, start: int) -> list[int]:
    """Return the patches that one reaches from one by equal steps."""
    found = [start]
    while bool(step[found[-1]].any()):
        found.append(int(step[found[-1]].long().argmax()))
    return found


def score_cases(draw: Draw) -> list[Case]:
    """Wide grids, two rows and more, shuffled; axial directions and mixed ones."""
    found = []
    r, more = draw.sizes(2, 2, 4)
    for words, high, wide in (
        ("two axes", r, r + 2), ("mixed directions, two rows", 2, more + 4),
        ("two axes, a wide grid", 4, 9), ("mixed directions", more, more + 1),
        ("two axes, equal scores a little apart", 3, r + 4),
    ):  # fmt: skip
        order = draw.order(high * wide)
        corner, right = (int((order == place).nonzero()) for place in (0, 1))
        places = torch.stack([order // wide, order % wide], 1).double()
        while True:
            turn = 0.2 + 2 * torch.rand(8, 2, generator=draw.generator).double()
            turn[:4, 0] *= float("mixed" in words)
            turn[4:, 1] *= float("mixed" in words)
            query, key = draw.normal(2, 8, 2).double()
            meets = torch.view_as_complex(query).conj() * torch.view_as_complex(key)
            angles = places @ turn.T
            turned = torch.polar(torch.ones_like(angles), angles)
            scores = ((turned.conj() * meets) @ turned.mT).real / 4
            scores += 4e-10 - scores[corner, right] % 1e-6  # nine decimals round down, then up
            scores[corner, right] += 2e-10 * float("apart" in words)
            values = scores.flatten().sort().values.diff()
            if not ((values > 1e-9) & (values < 1e-6)).any():
                break
        found.append(Case(words, (scores, corner), drawn=f", {high} × {wide} patches"))
    return found


def otherwise(change: Callable[[Tensor, Tensor], Two]) -> Answer:
    """Return a wrong answer that makes something else of rows and columns."""
    return lambda s, corner: change(*places_of(s, corner))


def old_halves(rows: Tensor, columns: Tensor, trained: Pair) -> Tensor:
    """Put the edges half a trained patch outside the centres."""
    ends = [rows.min(), columns.min(), rows.max() + 1, columns.max() + 1]
    return torch.stack(ends) / torch.tensor(trained).repeat(2)


def inverse(rows: Tensor, columns: Tensor) -> Tensor:
    """Return which patch stands at each place, row by row."""
    return (rows * (columns.max() + 1) + columns).argsort()


EXERCISES = (
    Exercise(
        name="box_of",
        cases=box_cases,
        reference=box_of,
        tolerance=1e-6,
        axes=("side",),
        mistakes=(
            Mistake("these are the outermost centres; the edges of the part lie half a new patch "
                    "further out", lambda r, c, t: box_by(r, c, t, outside=0.0)),
            Mistake("position 0 is the centre of a trained patch; the picture begins half a "
                    "trained patch before it", lambda r, c, t: box_by(r, c, t, half=0.0)),
            Mistake("positions are taken as they are: neither half a patch is counted",
                    lambda r, c, t: box_by(r, c, t, half=0.0, outside=0.0)),
            Mistake("the edges lie half a new patch out from the centres, not a whole one",
                    lambda r, c, t: box_by(r, c, t, outside=1.0)),
            Mistake("the edges move inwards: they lie outside the centres",
                    lambda r, c, t: box_by(r, c, t, outside=-0.5)),
            Mistake("the patches of the part are not the trained ones: half a patch is half of "
                    "their own distance", lambda r, c, t: old_halves(r, c, t)),
            Mistake("the picture is as many patches high as were trained, not one fewer",
                    lambda r, c, t: box_by(r, c, t, less=1)),
            Mistake("the order is top, left, bottom, right; yours is left, top, right, bottom",
                    lambda r, c, t: box_by(r, c, t, order=(1, 0, 3, 2))),
            Mistake("the order is top, left, bottom, right; yours is top, bottom, left, right",
                    lambda r, c, t: box_by(r, c, t, order=(0, 2, 1, 3))),
            Mistake("the last two are the bottom and right edges, not the size",
                    lambda r, c, t: torch.cat([box_of(r, c, t)[:2],
                                               box_of(r, c, t)[2:] - box_of(r, c, t)[:2]])),
            Mistake("rows go with the first number of `trained`, columns with the second",
                    lambda r, c, t: box_by(r, c, (t[1], t[0]))),
        ),
    ),
    Exercise(
        name="nearest_cross",
        cases=table_cases,
        reference=nearest_cross,
        axes=("head", "row offset", "column offset"),
        mistakes=(
            Mistake("this is the listing, unchanged",
                    lambda t: with_share(t, cross(t, often=False, means=0), often=False)),
            Mistake("the mean of all is in the means of the rows and in those of the columns: it "
                    "counts twice", lambda t: with_share(t, cross(t, means=0))),
            Mistake("each entry counts alike; a near offset has more pairs of patches",
                    lambda t: with_share(t, cross(t, often=False), often=False)),
            Mistake("the cross is right for plain means: a near offset has more pairs of patches",
                    lambda t: with_share(t, cross(t, often=False))),
            Mistake("the cross is right; in the share each entry counts alike",
                    lambda t: with_share(t, cross(t), often=False)),
            Mistake("the mean of all is taken away twice",
                    lambda t: with_share(t, cross(t, means=2))),
            Mistake("this is the share that the cross explains; wanted is what is left",
                    lambda t: (cross(t), 1 - nearest_cross(t)[1])),
            Mistake("this is what is left; wanted is the cross",
                    lambda t: (t - cross(t), nearest_cross(t)[1])),
            Mistake("the share is one of squares; you take the root",
                    lambda t: (cross(t), nearest_cross(t)[1].sqrt())),
        ),
    ),
    Exercise(
        name="places_of",
        cases=score_cases,
        reference=places_of,
        integers=True,
        axes=("patch",),
        mistakes=(
            Mistake("rows and columns are exchanged", otherwise(lambda r, c: (c, r))),
            Mistake("the corner is row 0, column 0; yours count from 1",
                    otherwise(lambda r, c: (r + 1, c + 1))),
            Mistake("the rows are upside down: the corner is the upper left one",
                    otherwise(lambda r, c: (r.max() - r, c))),
            Mistake("left and right are exchanged: the corner is the upper left one",
                    otherwise(lambda r, c: (r, c.max() - c))),
            Mistake("this is the order in which the patches came",
                    otherwise(lambda r, c: (torch.arange(len(r)) // (c.max() + 1),
                                            torch.arange(len(r)) % (c.max() + 1)))),
            Mistake("these are the numbers of the patches that stand at each place; wanted is the "
                    "place of each patch",
                    otherwise(lambda r, c: (inverse(r, c) // (c.max() + 1),
                                            inverse(r, c) % (c.max() + 1)))),
            Mistake("the rows are right; in each row the patches stand in the order in which they "
                    "came", otherwise(lambda r, c: (r, torch.stack(
                        [(r[:i] == r[i]).sum() for i in range(len(r))])))),
        ),
    ),
)  # fmt: skip
