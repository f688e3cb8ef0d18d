"""Marks the spine: a star in the list of pages, and at the end of its pages what comes next."""

from __future__ import annotations

import re
from typing import Any

from sphinx.application import Sphinx

from pe_course.page.chapters import SPINE, following

STAR = '<span class="on-spine" title="on the spine"> ★</span>'


def starred(listed: str, page: str) -> str:
    """Put a star behind each link of a list of pages that leads to the spine."""
    targets = [rf"[^\"]*{name}\.html" for name in SPINE] + ["#"] * (page in SPINE)
    link = rf'(<a [^>]*href="(?:{"|".join(targets)})"[^>]*>.*?)(?=</a>)'
    return re.sub(link, rf"\1{STAR}", listed)


def mark(app: Sphinx, page: str, template: str, context: dict[str, Any], doctree: Any) -> None:
    """Star the list of pages, and lead from each page of the spine to the next one."""
    name, whole = page.removeprefix("book/"), context["toctree"]
    context["toctree"] = lambda **options: starred(whole(**options), name)
    if after := following(name):
        title = app.env.titles[f"book/{after}"].astext()
        link = f'<a href="{after}.html">{title}</a>'
        context["body"] += f'<p class="spine-next">★ Next on the spine: {link}</p>'


def setup(app: Sphinx) -> dict[str, Any]:
    app.connect("html-page-context", mark, priority=400)  # before the theme asks for the list
    return {"version": "1", "parallel_read_safe": True, "parallel_write_safe": True}
