"""Figures that compute, figures that move, and what is said of every picture."""

from __future__ import annotations

import hashlib
import json
import os
import re
from base64 import b64decode
from html import escape
from pathlib import Path
from typing import Any

import nbformat
from docutils import nodes
from sphinx.application import Sphinx

from pe_course.page import live
from tools import bench, moving

from .typography import HYPHEN

WIDGET = "application/vnd.jupyter.widget-view+json"


def said_of_pictures(notebook: Path) -> dict[str, dict[str, Any]]:
    """Return what a notebook says of each of its pictures, by the digest that names its file."""
    found = {}
    for cell in nbformat.read(notebook, as_version=4).cells:
        for output in cell.get("outputs", []):
            said = output.get("metadata", {}).get("image/png")
            if said:
                data = b64decode(output["data"]["image/png"])
                found[hashlib.sha256(data).hexdigest()] = said
    return found


def describe_images(app: Sphinx, doctree: nodes.document) -> None:
    """Put the alt text that an output carries on its image; load all but the first lazily.

    A figure that computes gets its name and its state around its picture.
    """
    source = Path(app.env.doc2path(app.env.docname))
    known = said_of_pictures(source) if source.suffix == ".ipynb" else {}
    for number, image in enumerate(list(doctree.findall(nodes.image))):
        said = known.get(Path(image["uri"]).stem, {})
        if "alt" in said:
            image["alt"] = said["alt"]
        if "figure" in said:
            place = live_figure("", name=said["figure"], state=said["state"])
            place["reads"] = said.get("data")
            image.replace_self(place)
            place += image
        elif number:
            image["loading"] = "lazy"


class live_figure(nodes.General, nodes.Element):
    """The first picture of a figure that computes, in the place where its script draws it."""


def open_live(writer: Any, node: live_figure) -> None:
    """Write the place of a figure that computes, as high as the figure will be."""
    known = live.starts()[node["name"]]
    attributes = {
        "data-figure": node["name"],
        "data-state": json.dumps(node["state"]),
        "style": f"--wide:{known['wide']}px;--narrow:{known['narrow']}px",
    }
    if node["reads"]:
        attributes["data-data"] = json.dumps(node["reads"])
    writer.body.append('<div class="live-place">')
    writer.body.append(writer.starttag(node, "div", CLASS="live", **attributes))


def close_live(writer: Any, node: live_figure) -> None:
    writer.body.append("</div></div>")


def bring_live(
    app: Sphinx, page: str, template: str, context: dict[str, Any], doctree: Any
) -> None:
    """Load the script of the figures that compute on the pages that have one, and the bench's."""
    trains = page == bench.PAGE
    figure = None if doctree is None else doctree.next_node(live_figure)
    if trains or figure is not None:
        script = bench.SCRIPT if trains else live.script_of(figure["name"])
        app.add_js_file(script.name, loading_method="defer")
        app.add_css_file(live.STYLE.name)
    if trains:
        app.add_css_file(bench.STYLE.name)


class moving_figure(nodes.General, nodes.Element):
    """Pictures, of which sliders choose the one that is seen."""


def move_without_widgets(app: Sphinx, doctree: nodes.document) -> None:
    """Put a moving figure's sliders and pictures, as files, in the place of its widget."""
    source = Path(app.env.doc2path(app.env.docname))
    bundles = [
        (bundle, form)
        for bundle in doctree.findall(nodes.container)
        if bundle.get("nb_element") == "mime_bundle"
        for form in bundle.findall(nodes.container)
        if form.get("mime_type") == WIDGET
    ]
    if not bundles:
        return
    metadata = nbformat.read(source, as_version=4).metadata
    folder = Path(app.doctreedir) / "frames"
    folder.mkdir(exist_ok=True)
    for bundle, form in bundles:
        view = re.search(r'"model_id": *"(\w+)"', form.next_node(nodes.raw).astext())
        figure = moving.moving(view[1] if view else "", metadata)
        sliders = [
            each._replace(labels=[HYPHEN.sub("−", label) for label in each.labels])
            for each in figure.sliders
        ]
        place = moving_figure("", sliders=sliders, start=figure.start)
        for drawn in figure.pictures:
            data = b64decode(drawn.data)
            path = folder / f"{hashlib.sha256(data).hexdigest()}.png"
            path.write_bytes(data)
            size = {"width": str(drawn.width), "height": str(drawn.height)}
            uri = os.path.relpath(path, source.parent)
            place += nodes.image("", uri=Path(uri).as_posix(), alt=drawn.alt, **size)
        bundle.replace_self(place)


def write_moving(writer: Any, node: moving_figure) -> None:
    """Write the sliders and the first picture of a moving figure; the others come when asked."""
    folder = writer.builder.imgpath
    shown = []
    for each in node.findall(nodes.image):
        source = f"{folder}/{writer.builder.images[each['uri']]}"
        shown.append([source, each["alt"], int(each["width"]), int(each["height"])])
    parts = []
    for slider in node["sliders"]:
        name = f"slider-{writer.builder.env.new_serialno('slider')}"
        at = {
            "id": name,
            "max": len(slider.labels) - 1,
            "value": slider.start,
            "aria-valuetext": slider.labels[slider.start],
            "data-labels": json.dumps(slider.labels, ensure_ascii=False),
        }
        held = " ".join(f'{key}="{escape(str(value))}"' for key, value in at.items())
        parts.append(
            f'<div><label for="{name}">{escape(slider.name)}</label>'
            f'<input type="range" min="0" autocomplete="off" {held}>'
            f'<output for="{name}">{escape(slider.labels[slider.start])}</output></div>'
        )
    source, alt, width, height = shown[node["start"]]
    held = escape(json.dumps(shown, ensure_ascii=False, separators=(",", ":")))
    writer.body.append(
        f'<div class="moving" data-frames="{held}"><div class="moving-controls">{"".join(parts)}'
        f'</div><div class="panned"><img src="{source}" alt="{escape(alt)}" width="{width}"'
        f' height="{height}" loading="lazy"></div>'
        "<noscript>This figure moves where JavaScript runs.</noscript></div>"
    )
    raise nodes.SkipNode


def stop_on_paper(app: Sphinx, doctree: nodes.document, page: str) -> None:
    """Leave of a moving figure the first picture, where nothing moves."""
    if app.builder.format != "html":
        for each in list(doctree.findall(moving_figure)):
            each.replace_self(each[each["start"]])
