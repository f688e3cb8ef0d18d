"""A broad figure laid out anew for a phone: panels below each other, letters as large as before."""

from __future__ import annotations

import textwrap
from itertools import pairwise
from typing import Any

from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.gridspec import GridSpec
from matplotlib.text import Text

WIDTH = 3.625  # inches: a column of 358 pixels without the picture's frame
MANY = 5  # from here on two panels stand beside each other
ASIDE, BELOW = 0.65, 0.75  # inches that a panel needs for its two axes, their names and its title
LEAST = 1.6  # inches of a panel's height
SMALLEST = 9  # points of a letter: twelve pixels of the page
ROW = 0.2  # inches of a row in a legend


def narrow(figure: Figure) -> Figure:
    """Lay a figure out anew as broad as a phone's column.

    Its panels stand below each other, two by two if there are many, and its legend below them. What
    is broader than its place now is broken into lines, turned or thinned out.
    """
    figure.draw_without_rendering()
    panels = panels_of(figure)
    columns = 1 if len(panels) < MANY else 2
    heights = heights_of([group[0] for group in panels.values()], columns, figure.dpi)
    for axes in [each for each in figure.axes if not each.axison]:
        axes.remove()  # an empty place of the grid
    figure.set_layout_engine("constrained")
    place_colour_bars(figure)
    below = sum(legend_below(figure, legend) for legend in list(figure.legends))
    figure.set_size_inches(WIDTH, sum(heights) + BELOW * len(heights) + below)
    grid = GridSpec(len(heights), columns, figure=figure, height_ratios=heights)
    for place, group in enumerate(panels.values()):
        for axes in group:
            axes.set_subplotspec(grid[divmod(place, columns)])
    if columns == 1:
        label_each(panels)
    for text in figure.findobj(Text):
        text.set_fontsize(max(text.get_fontsize(), SMALLEST))
    figure.draw_without_rendering()
    for axes in figure.axes:
        wrap(axes.yaxis.label, axes.get_window_extent().height)
    figure.draw_without_rendering()  # a name of more lines moves its panel
    for axes in figure.axes:
        fit_texts(axes, figure.dpi * WIDTH / columns)
    return figure


def is_colour_bar(axes: Axes) -> bool:
    """Return whether axes hold a colour bar."""
    return hasattr(axes, "_colorbar")


def panels_of(figure: Figure) -> dict[tuple[int, int], list[Axes]]:
    """Return the axes in each cell of a figure's grid in reading order, without colour bars."""
    found: dict[tuple[int, int], list[Axes]] = {}
    for axes in figure.axes:
        spec = axes.get_subplotspec()
        if axes.axison and spec is not None and not is_colour_bar(axes):
            found.setdefault((spec.rowspan.start, spec.colspan.start), []).append(axes)
    return dict(sorted(found.items()))


def heights_of(panels: list[Axes], columns: int, dpi: float) -> list[float]:
    """Return the inches of each row: as high as its panels were, and not much higher than broad."""
    most = 1.15 * (WIDTH / columns - ASIDE)
    heights = [min(max(axes.get_window_extent().height / dpi, LEAST), most) for axes in panels]
    return [max(heights[at : at + columns]) for at in range(0, len(heights), columns)]


def place_colour_bars(figure: Figure) -> None:
    """Hand the colour bars whose place was given in numbers over to the layout."""
    for axes in [each for each in figure.axes if is_colour_bar(each)]:
        if not hasattr(axes, "_colorbar_info"):
            bar: Any = axes._colorbar  # type: ignore[attr-defined]
            label = axes.get_ylabel()
            bar.remove()
            figure.colorbar(bar.mappable, ax=bar.mappable.axes, label=label)


def legend_below(figure: Figure, legend: Any) -> float:
    """Put a figure's legend below its panels; return the inches that it needs."""
    texts = [each.get_text() for each in legend.get_texts()]
    title = legend.get_title().get_text() or None
    columns = 2 if max(map(len, texts)) < 22 else 1
    legend.remove()
    figure.legend(
        legend.legend_handles, texts, loc="outside lower left", ncols=columns, title=title
    )
    return ROW * (-(-len(texts) // columns) + 1)


def label_each(panels: dict[tuple[int, int], list[Axes]]) -> None:
    """Give each panel the axis that it shared with the first of its row."""
    leads: dict[int, Axes] = {}
    for (row, _), (axes, *_) in panels.items():
        lead = leads.setdefault(row, axes)
        if axes is not lead and axes.get_shared_y_axes().joined(axes, lead):
            axes.tick_params(labelleft=True)
            axes.set_ylabel(axes.get_ylabel() or lead.get_ylabel())


def fit_texts(axes: Any, room: float) -> None:
    """Make the texts of a panel fit: `room` is the pixels of its column in the figure."""
    own = axes.get_window_extent()
    if is_colour_bar(axes):
        return
    for title in (axes.title, axes._left_title, axes._right_title):
        wrap(title, room - own.x0 % room - 4)
    wrap(axes.xaxis.label, own.width)
    thin_ticks(axes)
    if legend := axes.get_legend():  # lines may run below it now
        legend.set_frame_on(True)
        legend.get_frame().set(alpha=0.8, linewidth=0)
    cells = [own.width / image.get_array().shape[1] for image in axes.images]
    for text in axes.texts:
        wrap(text, min(cells, default=own.width))
        if text.get_window_extent().x1 > axes.figure.bbox.width:
            text.set(ha="right", va="bottom")


def wrap(text: Text, room: float) -> None:
    """Break a text into lines of at most `room` pixels."""
    words, extent = text.get_text(), extent_of(text)
    if words and extent > room and "\n" not in words:
        signs = max(8, int(len(words) * room / extent))
        text.set_text(textwrap.fill(words, signs))
        while signs > 8 and extent_of(text) > room:
            signs -= 1
            text.set_text(textwrap.fill(words, signs))


def extent_of(text: Text) -> float:
    """Return the pixels of a text along its lines."""
    box = text.get_window_extent()
    return float(box.height if text.get_rotation() == 90 else box.width)


def meet(axes: Axes) -> bool:
    """Return whether texts below an axis touch each other."""
    boxes = [each.get_window_extent() for each in axes.get_xticklabels() if each.get_text()]
    return any(
        left.x1 + 2 > right.x0 for left, right in pairwise(sorted(boxes, key=lambda box: box.x0))
    )


def thin_ticks(axes: Axes) -> None:
    """Where the texts below an axis meet, turn words and leave out every second number."""
    labels = axes.get_xticklabels()
    if not meet(axes):
        return
    texts = [each.get_text() for each in labels]
    if all(any(sign.isdigit() for sign in text) for text in texts if text):
        axes.set_xticks(axes.get_xticks()[::2], texts[::2])
    else:
        above = axes.xaxis.get_ticks_position() == "top"
        for each in labels:
            each.set(rotation=55, ha="left" if above else "right", rotation_mode="anchor")
