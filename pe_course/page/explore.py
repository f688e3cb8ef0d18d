"""Figures that move without a kernel.

Every position of a slider has its picture, drawn beforehand. Slider and pictures are linked in
the browser, so the same cell works in JupyterLab, on the static page, and under a test. Colab has
an ipywidgets without the widget that holds a stack of pictures: there a few lines of HTML do.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from html import escape
from typing import Any

import ipywidgets as widgets
from IPython.display import display
from matplotlib.figure import Figure

from pe_course.page.figures import Picture, caption_of, picture, show_caption

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
        number: the figure's number, as `pe_course.page.figures.show` takes it.
        caption: what stands below the figure.

    Raises:
        ValueError: if there are fewer than two values, or more frames than a page should carry.
    """
    require_frames(len(values), len(values))
    below, labels = caption_of(number, caption), [label(value) for value in values]
    pictures = [picture(draw(value), alt(value)) for value in values]
    if not hasattr(widgets, "Stack"):
        show_html(in_plain_html([(name, labels, start)], pictures))
        show_caption(below)
        return
    control = named_slider(name, labels, start)
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
        number: the figure's number, as `pe_course.page.figures.show` takes it.
        caption: what stands below the figure.

    Raises:
        ValueError: as `slider`.
    """
    (name_a, values_a), (name_b, values_b) = first, second
    require_frames(min(len(values_a), len(values_b)), len(values_a) * len(values_b))
    below = caption_of(number, caption)
    labels_a, labels_b = ([label(value) for value in values] for values in (values_a, values_b))
    pictures = [[picture(draw(a, b), alt(a, b)) for b in values_b] for a in values_a]
    if not hasattr(widgets, "Stack"):
        controls = [(name_a, labels_a, start[0]), (name_b, labels_b, start[1])]
        show_html(in_plain_html(controls, [each for row in pictures for each in row]))
        show_caption(below)
        return
    control_a = named_slider(name_a, labels_a, start[0])
    control_b = named_slider(name_b, labels_b, start[1])
    rows = [linked_stack([frame(each) for each in row], control_b) for row in pictures]
    stack = linked_stack(rows, control_a)
    show(
        widgets.VBox([control_a, control_b, stack]),
        f"A figure with two sliders: {name_a} and {name_b}",
        pictures[start[0]][start[1]],
    )
    show_caption(below)


# The numbers of the sliders, read from left to right, are the digits of the picture's number.
MOVE = (
    "let i=0;const box=this.closest('.moving');"
    "box.querySelectorAll('input').forEach(e=>{i=i*(+e.max+1)+(+e.value);"
    "const words=JSON.parse(e.dataset.labels)[e.value];"
    "e.nextElementSibling.textContent=words;e.setAttribute('aria-valuetext',words)});"
    "box.querySelectorAll('img').forEach((e,k)=>{e.hidden=k!==i})"
)


def in_plain_html(
    controls: Sequence[tuple[str, Sequence[str], int]], pictures: Sequence[Picture]
) -> str:
    """Return sliders over pictures that need nothing but a browser.

    Args:
        controls: name, labels and starting index of each slider.
        pictures: one for each setting; the last slider moves fastest.
    """
    shown, parts = 0, []
    for name, labels, start in controls:
        shown = shown * len(labels) + start
        parts.append(
            f'<label>{escape(name)} <input type="range" min="0" max="{len(labels) - 1}"'
            f' value="{start}" data-labels="{escape(json.dumps(list(labels)))}"'
            f' aria-valuetext="{escape(labels[start])}" oninput="{escape(MOVE)}">'
            f" <output>{escape(labels[start])}</output></label><br>"
        )
    for i, each in enumerate(pictures):
        hidden = "" if i == shown else " hidden"
        parts.append(
            f'<img src="data:image/png;base64,{each.data}" alt="{escape(each.alt)}"'
            f' width="{each.width}"{hidden}>'
        )
    return f'<div class="moving">{"".join(parts)}</div>'


def show_html(text: str) -> None:
    """Display HTML, with words where none can be shown."""
    forms = {"text/html": text, "text/plain": "A figure with sliders"}
    display(forms, raw=True)  # type: ignore[no-untyped-call]


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
