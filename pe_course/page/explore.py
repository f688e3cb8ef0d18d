"""Figures that move: at once from stored pictures, and computed where a kernel answers.

Every position of a slider has its picture, drawn beforehand. Slider and pictures are linked in the
browser, so the same cell works in JupyterLab, on the static page, and under a test. A kernel that
hears the slider move draws the picture anew, with the cell's own function, and lets the slider go
beyond what is stored; until it has drawn, the stored picture is seen. Nothing of this is stored: it
is made when the first news of a slider comes.

Colab has an ipywidgets without the widget that holds a stack of pictures: there the kernel puts
each picture into the one place, and where no kernel runs a few lines of HTML move the stored ones.
"""

from __future__ import annotations

import json
import traceback
from collections.abc import Callable, Sequence
from html import escape
from itertools import product
from math import prod
from typing import Any, NamedTuple

import ipywidgets as widgets
import matplotlib.pyplot as plt
from IPython.display import display
from matplotlib.figure import Figure

from pe_course.page.figures import Picture, caption_of, for_a_phone, picture, show_caption

MAX_FRAMES = 80  # more would make the page heavy
VIEW = "application/vnd.jupyter.widget-view+json"
COMPUTED = "Computed here, now, by this notebook’s code."


class Scale(NamedTuple):
    """What a slider sets: its name, its stored values, those beyond, and the index it starts at."""

    name: str
    values: Sequence[Any]
    beyond: Sequence[Any]
    start: int


def as_html(picture: Picture) -> str:
    """Return a picture as HTML that carries its alt text and keeps its place on the page."""
    source = ""
    if narrow := picture.narrow:
        data = f"data:image/png;base64,{narrow.data}"
        source = for_a_phone(data, narrow.width, narrow.height)
    return (
        f"<picture>{source}"
        f'<img class="frame" src="data:image/png;base64,{picture.data}" alt="{escape(picture.alt)}"'
        f' width="{picture.width}" height="{picture.height}" style="max-width:100%;height:auto">'
        "</picture>"
    )


def frame(picture: Picture) -> widgets.HTML:
    """Return a picture as a widget."""
    return widgets.HTML(as_html(picture))


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
    beyond: Sequence[Any] = (),
    label: Callable[[Any], str] = str,
    start: int = 0,
    number: str | None = None,
    caption: str | None = None,
) -> None:
    """Show a figure with one slider.

    Args:
        name: what the slider sets; stands beside it.
        values: its positions, at least two; each one's picture is stored.
        draw: makes the figure for a value; where a kernel answers, each time that it is chosen.
        alt: the words for a value's figure, for those who do not see it.
        beyond: further positions, which come when a kernel answers.
        label: how a value is written beside the slider.
        start: index of the value shown first.
        number: the figure's number, as `pe_course.page.figures.show` takes it.
        caption: what stands below the figure.

    Raises:
        ValueError: if there are fewer than two values, or more frames than a page should carry.
    """
    scale = Scale(name, values, beyond, start)
    show_moving([scale], draw, alt, label, f"A figure with a slider: {name}", number, caption)


def sliders(
    first: tuple[str, Sequence[Any]],
    second: tuple[str, Sequence[Any]],
    draw: Callable[[Any, Any], Figure],
    alt: Callable[[Any, Any], str],
    *,
    beyond: tuple[Sequence[Any], Sequence[Any]] = ((), ()),
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
        beyond: further values of each slider, as in `slider`.
        label: how a value is written beside its slider.
        start: indices of the values shown first.
        number: the figure's number, as `pe_course.page.figures.show` takes it.
        caption: what stands below the figure.

    Raises:
        ValueError: as `slider`.
    """
    scales = [
        Scale(*each, more, at)
        for each, more, at in zip((first, second), beyond, start, strict=True)
    ]
    words = f"A figure with two sliders: {first[0]} and {second[0]}"
    show_moving(scales, draw, alt, label, words, number, caption)


def show_moving(
    scales: Sequence[Scale],
    draw: Callable[..., Figure],
    alt: Callable[..., str],
    label: Callable[[Any], str],
    words: str,
    number: str | None,
    caption: str | None,
) -> None:
    """Show a figure with a slider for each scale; the arguments are those of `slider`."""
    sizes = [len(each.values) for each in scales]
    require_frames(min(sizes), prod(sizes))
    below = caption_of(number, caption)

    def drawn(*values: Any) -> Picture:
        return picture(draw(*values), alt(*values))

    labels = [[label(value) for value in each.values] for each in scales]
    pictures = [drawn(*values) for values in product(*(each.values for each in scales))]
    first = 0
    for each in scales:
        first = first * len(each.values) + each.start
    settings = [(each.name, texts, each.start) for each, texts in zip(scales, labels, strict=True)]
    controls = [named_slider(*each) for each in settings]
    can_stack = hasattr(widgets, "Stack")
    place = stacked(pictures, controls) if can_stack else frame(pictures[first])
    box = widgets.VBox([*controls, place])
    compute_in(box, scales, drawn, label, pictures)
    show(box, words, pictures[first], None if can_stack else in_plain_html(settings, pictures))
    show_caption(below)


def stacked(pictures: Sequence[Picture], controls: Sequence[Any]) -> widgets.Stack:
    """Return a stack of pictures, or of stacks of them; the last control moves fastest."""
    control, *others = controls
    if not others:
        return linked_stack([frame(each) for each in pictures], control)
    size = len(pictures) // len(control.options)
    rows = [pictures[at : at + size] for at in range(0, len(pictures), size)]
    return linked_stack([stacked(row, others) for row in rows], control)


def compute_in(
    box: widgets.VBox,
    scales: Sequence[Scale],
    drawn: Callable[..., Picture],
    label: Callable[[Any], str],
    pictures: Sequence[Picture],
) -> None:
    """Draw what a slider chooses whenever the kernel hears of it, and let the sliders go further.

    Args:
        box: the sliders and, last, what shows the pictures: a stack, or one frame.
        scales: what the sliders set.
        drawn: makes the picture for a value of each slider.
        label: how a value is written beside its slider.
        pictures: the stored ones; the last slider moves fastest.
    """
    *controls, place = box.children
    values = [[*each.values, *each.beyond] for each in scales]
    stored = dict(
        zip(product(*(range(len(each.values)) for each in scales)), pictures, strict=True)
    )
    waiting = f'<div style="min-height:{pictures[0].height}px">Computing …</div>'

    def begin(_: Any) -> None:
        for control, each in zip(controls, values, strict=True):
            control.unobserve(begin, "index")
            go_further(control, [label(value) for value in each])
        if not isinstance(place, widgets.HTML):
            fill(place, controls, waiting)
        box.children = (*box.children, widgets.HTML(COMPUTED))
        for control in controls:
            control.observe(compute, "index")
        compute(None)

    def compute(_: Any) -> None:
        at, shown = tuple(control.index for control in controls), place
        if isinstance(place, widgets.HTML):
            place.value = as_html(stored[at]) if at in stored else waiting
        else:
            for index in at:
                shown = shown.children[index]
        try:
            shown.value = as_html(drawn(*(each[i] for each, i in zip(values, at, strict=True))))
        except Exception as error:
            plt.close("all")  # or the next cell would show what is half drawn
            shown.value = in_words(error)

    for control in controls:
        control.observe(begin, "index")


def go_further(control: widgets.SelectionSlider, labels: Sequence[str]) -> None:
    """Give a slider more positions and leave it where it is; ipywidgets would begin anew."""
    at = control.index
    with control.hold_sync():
        control.options = [(text, i) for i, text in enumerate(labels)]
        control.index = at


def fill(stack: widgets.Stack, controls: Sequence[Any], text: str) -> None:
    """Add a frame with a text for each position that has none, to a stack and to those in it."""
    control, *others = controls
    for row in stack.children if others else ():
        fill(row, others, text)
    missing = len(control.options) - len(stack.children)
    stack.children += tuple(blank(others, text) for _ in range(missing))


def blank(controls: Sequence[Any], text: str) -> widgets.Widget:
    """Return a frame with a text, in a stack for each control."""
    if not controls:
        return widgets.HTML(text)
    control, *others = controls
    return linked_stack([blank(others, text) for _ in control.options], control)


def in_words(error: Exception) -> str:
    """Return HTML that says what went wrong while a figure was drawn, and where."""
    what, where = (
        traceback.format_exception_only(error)[-1],
        "".join(traceback.format_exception(error)),
    )
    return (
        f'<div role="alert"><b>The picture could not be drawn.</b> {escape(what)}'
        f"<details><summary>Where</summary><pre>{escape(where)}</pre></details></div>"
    )


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


def require_frames(positions: int, frames: int) -> None:
    """Raise a ValueError if a slider could not move, or the page would be too heavy."""
    if positions < 2:
        raise ValueError(f"a slider needs at least 2 values, got {positions}")
    if frames > MAX_FRAMES:
        raise ValueError(f"at most {MAX_FRAMES} frames fit a page, got {frames}")


def show(widget: widgets.Widget, words: str, still: Picture, html: str | None = None) -> None:
    """Display a widget; where none can be shown, one line of words, and one picture or HTML."""
    view = {"version_major": 2, "version_minor": 0, "model_id": widget.model_id}
    other = {"image/png": still.data} if html is None else {"text/html": html}
    forms = {VIEW: view, "text/plain": words, **other}
    display(forms, metadata=still.size, raw=True)  # type: ignore[no-untyped-call]
