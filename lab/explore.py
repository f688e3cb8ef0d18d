"""Figures that move without a kernel.

Every position of a slider has its picture, drawn beforehand. Slider and pictures are linked in
the browser, so the same cell works in JupyterLab, on the static page, and under a test.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from html import escape
from typing import Any

import ipywidgets as widgets
from IPython.display import display
from matplotlib.figure import Figure

from lab.figures import Picture, caption_of, picture, show_caption

MAX_FRAMES = 80  # more would make the page heavy


def frame(picture: Picture) -> widgets.HTML:
    """Return a picture as a widget that carries its alt text and keeps its place on the page."""
    return widgets.HTML(
        f'<img class="frame" src="data:image/png;base64,{picture.data}" alt="{escape(picture.alt)}"'
        f' width="{picture.width}" height="{picture.height}" style="max-width:100%;height:auto">'
    )


def named_slider(name: str, labels: Sequence[str], start: int) -> widgets.SelectionSlider:
    """Return a slider over labels, with its name beside it."""
    return widgets.SelectionSlider(
        options=[(label, i) for i, label in enumerate(labels)],
        value=start,
        description=name,
        continuous_update=True,
        style={"description_width": "initial"},
        layout=widgets.Layout(width="min(440px, 96%)"),
    )


def linked_stack(children: Sequence[widgets.Widget], slider: Any) -> widgets.Stack:
    """Return a stack that shows the child whose number the slider has."""
    stack = widgets.Stack(children, selected_index=slider.index)
    widgets.jslink((slider, "index"), (stack, "selected_index"))
    return stack


def slider(
    name: str,
    values: Sequence[Any],
    draw: Callable[[Any], Figure],
    alt: Callable[[Any], str],
    *,
    label: Callable[[Any], str] = str,
    start: int = 0,
    number: str | None = None,
    caption: str | None = None,
) -> None:
    """Show a figure with one slider.

    Args:
        name: what the slider sets; stands beside it.
        values: its positions, at least two.
        draw: makes the figure for a value.
        alt: the words for a value's figure, for those who do not see it.
        label: how a value is written beside the slider.
        start: index of the value shown first.
        number: the figure's number, as `lab.figures.show` takes it.
        caption: what stands below the figure.

    Raises:
        ValueError: if there are fewer than two values, or more frames than a page should carry.
    """
    require_frames(len(values), len(values))
    below = caption_of(number, caption)
    control = named_slider(name, [label(value) for value in values], start)
    pictures = [picture(draw(value), alt(value)) for value in values]
    stack = linked_stack([frame(each) for each in pictures], control)
    show(widgets.VBox([control, stack]), f"A figure with a slider: {name}", pictures[start])
    show_caption(below)


def sliders(
    first: tuple[str, Sequence[Any]],
    second: tuple[str, Sequence[Any]],
    draw: Callable[[Any, Any], Figure],
    alt: Callable[[Any, Any], str],
    *,
    label: Callable[[Any], str] = str,
    start: tuple[int, int] = (0, 0),
    number: str | None = None,
    caption: str | None = None,
) -> None:
    """Show a figure with two sliders: a stack of stacks.

    Args:
        first: name and values of the first slider.
        second: name and values of the second slider.
        draw: makes the figure for a pair of values.
        alt: the words for that figure.
        label: how a value is written beside its slider.
        start: indices of the values shown first.
        number: the figure's number, as `lab.figures.show` takes it.
        caption: what stands below the figure.

    Raises:
        ValueError: as `slider`.
    """
    (name_a, values_a), (name_b, values_b) = first, second
    require_frames(min(len(values_a), len(values_b)), len(values_a) * len(values_b))
    below = caption_of(number, caption)
    control_a = named_slider(name_a, [label(value) for value in values_a], start[0])
    control_b = named_slider(name_b, [label(value) for value in values_b], start[1])
    pictures = [[picture(draw(a, b), alt(a, b)) for b in values_b] for a in values_a]
    rows = [linked_stack([frame(each) for each in row], control_b) for row in pictures]
    stack = linked_stack(rows, control_a)
    show(
        widgets.VBox([control_a, control_b, stack]),
        f"A figure with two sliders: {name_a} and {name_b}",
        pictures[start[0]][start[1]],
    )
    show_caption(below)


def require_frames(positions: int, frames: int) -> None:
    """Raise a ValueError if a slider could not move, or the page would be too heavy."""
    if positions < 2:
        raise ValueError(f"a slider needs at least 2 values, got {positions}")
    if frames > MAX_FRAMES:
        raise ValueError(f"at most {MAX_FRAMES} frames fit a page, got {frames}")


def show(widget: widgets.Widget, words: str, still: Picture) -> None:
    """Display a widget, with one line of words and one picture where no widget can be shown."""
    forms = {**widget._repr_mimebundle_(), "text/plain": words, "image/png": still.data}
    display(forms, metadata=still.size, raw=True)  # type: ignore[no-untyped-call]
