"""A page as it is written: its scripts, contents and formulas; its type faces and icons."""

from __future__ import annotations

import functools
import re
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from docutils import nodes
from sphinx.addnodes import toctree
from sphinx.application import Sphinx
from sphinx.config import Config

from pe_course.page import live
from tools import bench, formulas, light, moving, vendor

MATHJAX = f"https://cdn.jsdelivr.net/npm/mathjax@{vendor.SITE[0].version}/es5/tex-chtml.js"


def choose_assets(_: Sphinx, config: Config) -> None:
    """Bring the figures' scripts; where formulas cannot be set here, pages load what sets them."""
    config.html_static_path += map(str, (*live.SCRIPTS, live.STYLE, bench.SCRIPT, bench.STYLE))
    config.mathjax_path = MATHJAX
    # A host shows the page for errors at any depth of the site: its links begin at the root.
    config.notfound_urls_prefix = urlsplit(config.html_baseurl).path
    config.nb_ipywidgets_js = {}  # a moving figure is the browser's own sliders and pictures


@functools.cache
def titles(env: Any) -> dict[str, nodes.Element]:
    """Return of each page's contents its title and the pages below it."""
    found = {}
    for page, contents in env.tocs.items():
        found[page] = contents.deepcopy()
        for entry in found[page].children:
            if len(entry) > 1:
                entry[1][:] = list(entry.findall(toctree))
                if not entry[1].children:
                    entry.pop(1)
    return found


def list_titles(
    app: Sphinx, page: str, template: str, context: dict[str, Any], doctree: Any
) -> None:
    """Make the list of all pages of their titles, where it shows no more.

    Sphinx would copy every heading and every documented name, for every page, and drop them.
    """
    whole = context["toctree"]

    def short(**options: Any) -> Any:
        kept = app.env.tocs
        if options.get("titles_only"):
            app.env.tocs = titles(app.env)
        try:
            return whole(**options)
        finally:
            app.env.tocs = kept

    context["toctree"] = short


MENDED = {  # in what Sphinx writes
    # As attributes, both numbers keep the place of a picture on its way, and its shape on a phone.
    r'style="width: (\d+)px; height: (\d+)px;"': r'width="\1" height="\2"',
    r' role="doc-biblioentry"|(?<=<div) role="list"(?= class="citation)': "",  # out of use
    r'<th class="[^"]*"><p></p></th>': "<td></td>",  # what heads nothing is no head
    r"</li>(?=\s*<ul>)": "",  # the list of a module's modules stands in its entry
    r'(?s)<script type="text/x-thebe-config">.*?</script>\s*<script>kernelName[^<]*</script>': "",
}


def finish_page(
    app: Sphinx, page: str, template: str, context: dict[str, Any], doctree: Any
) -> None:
    """Follow the reader's light or dark; let pictures keep their shape; leave out idle scripts."""
    context["default_mode"] = "light"  # without scripts; with them, the reader's (layout.html)
    context["metatags"] = re.sub('<meta name="viewport"[^>]*>', "", context.get("metatags", ""))
    idle = ["sphinx-thebe", "THEBE_JS_URL", moving.STATE, "toggle", "design-tabs"]
    if formulas.possible() or 'class="math notranslate' not in context.get("body", ""):
        idle += ["mathjax", "window.MathJax"]
    if page == app.config.root_doc:
        first = '<img fetchpriority="high" '  # it stands on the first screen
        context["body"] = context["body"].replace("<img ", first, 1)
    for found, instead in MENDED.items():
        context["body"] = re.sub(found, instead, context.get("body", ""))
    for group in context.get("header_buttons", []):
        buttons = group.get("buttons", [])
        if str(context.get("page_source_suffix")) == ".ipynb":  # to edit it there is to edit JSON
            buttons = [each for each in buttons if each.get("label") != "source-edit-button"]
            group["buttons"] = buttons
        for button in buttons:
            if button.get("text") == ".pdf":
                button["text"] = "Print"  # which is what it does
    context["script_files"] = [
        script
        for script in context.get("script_files", [])
        if not any(
            name in f"{script} {attributes.get('type')} {attributes.get('body')}"
            for attributes in [getattr(script, "attributes", {})]
            for name in idle
        )
    ]


def set_formulas(app: Sphinx, error: Exception | None) -> None:
    """Set the formulas of all pages, where it is possible."""
    if error is None and app.builder.name == "html" and formulas.possible():
        formulas.set_site(Path(app.outdir))


def lighten(app: Sphinx, error: Exception | None) -> None:
    """Merge the styles and the scripts of all pages, when these are finished."""
    if error is None and app.builder.name == "html":
        light.lighten(Path(app.outdir))
