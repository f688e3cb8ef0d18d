"""Pieces of schematic diagrams, in the style of all figures: boxes, arrows, words, small tables.

Coordinates are inches from the lower left corner of the figure; colours are those of `figures`.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.colors import to_rgb
from matplotlib.figure import Figure
from matplotlib.patches import FancyArrowPatch, FancyBboxPatch, Rectangle

from pe_course.page.figures import GRID, INK, PAPER, new

PALE = "#eef1f5"  # the ground of what a diagram says nothing about


def canvas(width: float = 7.2, height: float = 3.0) -> tuple[Figure, Axes]:
    """Return a figure and axes that fill it, without frame or ticks, one unit to the inch."""
    figure, axes = new(width, height, layout="none")
    axes.set(position=(0, 0, 1, 1), xlim=(0, width), ylim=(0, height))
    axes.axis("off")
    return figure, axes


def tint(colour: str, share: float = 0.18) -> tuple[float, ...]:
    """Return a colour mixed with white: `share` of it, from 0 to 1."""
    return tuple(1 - share * (1 - np.array(to_rgb(colour))))


def ink_on(colour: Any) -> str:
    """Return the colour in which letters can be read on a ground: dark or white."""
    red, green, blue = to_rgb(colour)
    return INK if 0.299 * red + 0.587 * green + 0.114 * blue > 0.55 else PAPER


def box(
    axes: Axes,
    x: float,
    y: float,
    width: float,
    height: float,
    text: str = "",
    *,
    colour: str | None = None,
    size: float = 10,
    bold: bool = False,
) -> None:
    """Draw a box with rounded corners and words in its middle.

    Args:
        axes: of a canvas.
        x: left edge.
        y: lower edge.
        width: of the box.
        height: of the box.
        text: the words; mathematics between dollar signs.
        colour: of the edge, and pale of the ground; grey where there is none.
        size: of the letters, in points.
        bold: whether the words are.
    """
    ground = tint(colour) if colour else PALE
    edge = colour or "#8b949e"
    round_corners = "round,pad=0,rounding_size=0.07"
    patch = FancyBboxPatch((x, y), width, height, round_corners, fc=ground, ec=edge, lw=1.3)
    axes.add_patch(patch)
    weight = "bold" if bold else "normal"
    middle = x + width / 2, y + height / 2
    axes.text(*middle, text, ha="center", va="center", size=size, color=INK, weight=weight)


def arrow(
    axes: Axes,
    start: tuple[float, float],
    end: tuple[float, float],
    text: str = "",
    *,
    colour: str = "#57606a",
    bend: float = 0.0,
    width: float = 1.4,
    size: float = 9,
) -> None:
    """Draw an arrow, with words above its middle.

    Args:
        axes: of a canvas.
        start: its tail.
        end: its tip.
        text: words above the middle.
        colour: of arrow and words.
        bend: how far it curves, as a share of its length; 0 is straight.
        width: of its line, in points.
        size: of the letters, in points.
    """
    line = FancyArrowPatch(
        start,
        end,
        arrowstyle="-|>",
        mutation_scale=11,
        shrinkA=0,
        shrinkB=0,
        lw=width,
        color=colour,
        connectionstyle=f"arc3,rad={bend}",
    )
    axes.add_patch(line)
    middle = (start[0] + end[0]) / 2, (start[1] + end[1]) / 2 + 0.05
    axes.text(*middle, text, ha="center", va="bottom", size=size, color=colour)


def label(
    axes: Axes,
    x: float,
    y: float,
    text: str,
    *,
    colour: str = INK,
    size: float = 9.5,
    align: str = "center",
    bold: bool = False,
) -> None:
    """Write words; `align` says which end of them stands at x: "left", "center" or "right"."""
    weight = "bold" if bold else "normal"
    axes.text(x, y, text, ha=align, va="center", size=size, color=colour, weight=weight)


def grid(
    axes: Axes,
    x: float,
    y: float,
    texts: Sequence[Sequence[object]],
    *,
    cell: tuple[float, float] = (0.42, 0.34),
    colours: Sequence[Sequence[Any]] | None = None,
    size: float = 9,
) -> None:
    """Draw a small table of cells: a matrix with its entries written in it.

    Args:
        axes: of a canvas.
        x: left edge.
        y: upper edge; rows go downwards.
        texts: (rows, columns), what stands in the cells.
        cell: width and height of one.
        colours: (rows, columns), the grounds; None, also of one cell, leaves it white.
        size: of the letters, in points.

    Raises:
        ValueError: if rows differ in length, or the colours have another shape than the texts.
    """
    shape = [len(row) for row in texts]
    if len(set(shape)) != 1:
        raise ValueError(f"all rows must have the same number of cells, got {shape}")
    if colours is not None and [len(row) for row in colours] != shape:
        raise ValueError(f"colours must have the shape of texts, got {colours!r}")
    wide, high = cell
    for i, row in enumerate(texts):
        for j, text in enumerate(row):
            ground = (colours[i][j] if colours is not None else None) or PAPER
            corner = x + j * wide, y - (i + 1) * high
            axes.add_patch(Rectangle(corner, wide, high, fc=ground, ec=GRID, lw=1))
            middle = corner[0] + wide / 2, corner[1] + high / 2
            ink = ink_on(ground)
            axes.text(*middle, str(text), ha="center", va="center", size=size, color=ink)
