"""Figures that compute in the reader's browser: own input, any value, a state that a link holds.

Their scripts are in pe_course/page/web/src, one small module for each figure beside one for all the
arithmetic, which the tests hold against pe_lib. `python -m tools.live` bundles them into one file,
that of ALONE into files of their own, and takes the picture that each figure shows before its
script runs.

One cell serves every place. In JupyterLab, Binder and Colab the figure is a widget. What the
notebook stores is the picture and, beside it, its words and the figure's state (`tools.refresh`
drops the widget, which holds nothing else but the script). The site's own script reads that state.
"""

from __future__ import annotations

import base64
import json
from functools import cache
from importlib.resources import files
from importlib.resources.abc import Traversable
from importlib.util import find_spec
from typing import Any

import traitlets
from IPython.display import display

from pe_course.page.figures import Picture, caption_of, figure_anchor, require_alt, show_caption

# Without it, as in an old image of Colab, the figure is its picture and its words.
HAS_WIDGETS = find_spec("anywidget") is not None
WEB = files(__package__) / "web"
SCRIPT, STYLE, STARTS, STILLS = (
    WEB / name for name in ("live.js", "live.css", "starts.json", "stills")
)
ALONE = ("heads",)  # figures whose page loads their script in the place of the one of all others
SCRIPTS = (SCRIPT, *(WEB / f"{name}.js" for name in ALONE))
STILL = "A still picture. It moves on the site, and in a notebook whose cell is run."  # said in it


@cache
def starts() -> dict[str, Any]:
    """Return, for each figure, its first state, the words for it, and the heights it needs."""
    found: dict[str, Any] = json.loads(STARTS.read_text(encoding="utf-8"))
    return found


def script_of(name: str) -> Traversable:
    """Return the script that draws a figure."""
    return WEB / f"{name}.js" if name in ALONE else SCRIPT


def data(name: str) -> dict[str, Any]:
    """Return what a figure reads beside its state; most read nothing."""
    path = WEB / f"{name}.json"
    found: dict[str, Any] = json.loads(path.read_text(encoding="utf-8")) if path.is_file() else {}
    return found


def still(name: str) -> Picture:
    """Return a figure's picture in its first state.

    Raises:
        KeyError: if there is no figure of that name.
    """
    known = starts()[name]
    data = base64.b64encode((STILLS / f"{name}.png").read_bytes()).decode()
    return Picture(data, f"{require_alt(known['alt'])} {STILL}", known["width"], known["still"])


AS_WIDGET = "\nexport default { render: Live.render };\n"

if HAS_WIDGETS:
    import anywidget

    class Live(anywidget.AnyWidget):
        """A figure in a notebook.

        Attributes:
            figure: its name, one of `starts`.
            state: the value of each of its controls; it follows them, and they follow it.
            data: what it reads beside them.
            anchor: that of the links in the text that show a state of it.
        """

        _esm = SCRIPT.read_text(encoding="utf-8") + AS_WIDGET
        _css = STYLE.read_text(encoding="utf-8")
        figure = traitlets.Unicode().tag(sync=True)
        state = traitlets.Dict().tag(sync=True)
        data = traitlets.Dict().tag(sync=True)
        anchor = traitlets.Unicode().tag(sync=True)

    class Alone(Live):
        """A figure whose script is its own."""

        _esm = script_of(*ALONE).read_text(encoding="utf-8") + AS_WIDGET


def bundle(name: str, anchor: str) -> dict[str, Any]:
    """Return the forms of a figure: a widget, its picture, and words.

    Raises:
        KeyError: if there is no figure of that name.
    """
    picture = still(name)
    forms: dict[str, Any] = {}
    if HAS_WIDGETS:
        widget = Alone if name in ALONE else Live
        shown = widget(
            figure=name, state=starts()[name]["state"], data=data(name), anchor=anchor
        )._repr_mimebundle_()
        forms |= shown[0] if shown else {}
    return forms | {"image/png": picture.data, "text/plain": picture.alt}


def show(name: str, *, number: str | None = None, caption: str | None = None) -> None:
    """Show a figure that computes.

    Args:
        name: one of `starts`, such as "rope_score".
        number: the figure's number, as `pe_course.page.figures.show` takes it.
        caption: what stands below the figure.

    Raises:
        KeyError: if there is no figure of that name.
        ValueError: as `pe_course.page.figures.show`.
    """
    below = caption_of(number, caption)
    if below and not HAS_WIDGETS:
        below += (
            " (A picture: the figure computes on the site, and here once anywidget is installed.)"
        )
    forms, metadata = bundle(name, figure_anchor(number or "")), still(name).size
    metadata["image/png"] |= {"figure": name, "state": starts()[name]["state"]}
    if found := data(name):
        metadata["image/png"]["data"] = found
    display(forms, metadata=metadata, raw=True)  # type: ignore[no-untyped-call]
    show_caption(below)
