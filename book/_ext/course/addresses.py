"""The course's address and title, wherever a page says them."""

from __future__ import annotations

from html import escape
from typing import Any
from urllib.parse import urlsplit

from sphinx.application import Sphinx
from sphinx.config import Config
from sphinx.util import texescape

from tools import address


def name_course(_: Sphinx, config: Config) -> None:
    """Tell all who write links where the course stands, and what it is called."""
    at = address.current()
    config.html_baseurl = config.ogp_site_url = at.site
    config.html_theme_options["repository_url"] = at.repository
    config.html_theme_options["logo"] = {"text": escape(at.title), "alt_text": ""}
    config.ogp_site_name = escape(at.title)
    # A host shows the page for errors at any depth of the site: its links begin at the root.
    config.notfound_urls_prefix = urlsplit(at.site).path
    config.notfound_context["body"] = at.filled(config.notfound_context["body"])


def write_title(app: Sphinx, _: Any) -> list[str]:
    """Write the title as words where LaTeX would read markup: it may have an ampersand."""
    app.config.latex_documents = [
        (page, file, texescape.escape(title, app.config.latex_engine), *more)
        for page, file, title, *more in app.config.latex_documents
    ]
    return []


def put_addresses(_: Sphinx, page: str, source: list[str]) -> None:
    """Put the addresses into the text of a page."""
    source[0] = address.current().filled(source[0])
