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
from pe_course.page.figures import for_a_phone
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

    A figure that computes gets its name and its state around its picture, and a broad one the
    picture that a phone shows in its place.
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
        if "narrow" in said:
            place = still_figure()
            image.replace_self(place)
            place += [image, stored(app, source, **said["narrow"])]


class still_figure(nodes.General, nodes.Element):
    """A picture, and after it the one that a phone shows in its place."""


def stored(app: Sphinx, source: Path, data: str, width: int, height: int) -> nodes.image:
    """Write a picture that a notebook holds beside its outputs to a file; return its image."""
    drawn = b64decode(data)
    path = Path(app.doctreedir) / "frames" / f"{hashlib.sha256(drawn).hexdigest()}.png"
    path.parent.mkdir(exist_ok=True)
    path.write_bytes(drawn)
    uri = Path(os.path.relpath(path, source.parent)).as_posix()
    return nodes.image("", uri=uri, width=str(width), height=str(height))


def files_of(writer: Any, node: still_figure) -> list[tuple[str, int, int]]:
    """Return address, width and height of a picture's files: the broad one and a phone's."""
    folder, names = writer.builder.imgpath, writer.builder.images
    return [
        (f"{folder}/{names[each['uri']]}", int(each["width"]), int(each["height"]))
        for each in node.findall(nodes.image)
    ]


def as_picture(files: list[tuple[str, int, int]], alt: str, loading: str) -> str:
    """Return the element that shows the first file, and on a phone the second."""
    (source, width, height), *narrow = files
    phone = "".join(for_a_phone(*each) for each in narrow)
    return (
        f'<picture>{phone}<img src="{source}" alt="{escape(alt)}" width="{width}"'
        f' height="{height}" loading="{loading}"></picture>'
    )


def write_still(writer: Any, node: still_figure) -> None:
    """Write a picture, which opens when it is pressed."""
    files, image = files_of(writer, node), node.next_node(nodes.image)
    picture = as_picture(files, image["alt"], image.get("loading", "eager"))
    writer.body.append(f'<a class="image-reference" href="{files[0][0]}">{picture}</a>')
    raise nodes.SkipNode


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
    for bundle, form in bundles:
        view = re.search(r'"model_id": *"(\w+)"', form.next_node(nodes.raw).astext())
        figure = moving.moving(view[1] if view else "", metadata)
        sliders = [
            each._replace(labels=[HYPHEN.sub("−", label) for label in each.labels])
            for each in figure.sliders
        ]
        place = moving_figure("", sliders=sliders, start=figure.start)
        for drawn in figure.pictures:
            image = stored(app, source, drawn.data, drawn.width, drawn.height)
            image["alt"] = drawn.alt
            narrow = [stored(app, source, *drawn.narrow)] if drawn.narrow else []
            place += still_figure("", image, *narrow)
        bundle.replace_self(place)


def write_moving(writer: Any, node: moving_figure) -> None:
    """Write the sliders and the first picture of a moving figure; the others come when asked."""
    shown = [[each.next_node(nodes.image)["alt"], *files_of(writer, each)] for each in node]
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
    alt, *files = shown[node["start"]]
    held = escape(json.dumps(shown, ensure_ascii=False, separators=(",", ":")))
    writer.body.append(
        f'<div class="moving" data-frames="{held}"><div class="moving-controls">{"".join(parts)}'
        f'</div><div class="panned">{as_picture(files, alt, "lazy")}</div>'
        "<noscript>This figure moves where JavaScript runs.</noscript></div>"
    )
    raise nodes.SkipNode


def stop_on_paper(app: Sphinx, doctree: nodes.document, page: str) -> None:
    """Leave of a moving figure the first picture, where nothing moves, and none for a phone."""
    if app.builder.format != "html":
        for each in list(doctree.findall(moving_figure)):
            each.replace_self(each[each["start"]])
        for each in list(doctree.findall(still_figure)):
            each.replace_self(each[0])
