"""What a host and a search engine want of the site: its first page and a map of all pages.

Jupyter Book writes the pages; these files stand beside them.
"""

from __future__ import annotations

import re
from html import escape
from pathlib import Path

import yaml

from exercises import build
from tools import ROOT

FIRST = "book/00_intro.html"
LISTED = "book/*.html"
META = re.compile(r'<meta (?:name="description"|property="og:|name="twitter:)[^>]*>')

FIRST_PAGE = """<!DOCTYPE html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<meta name="color-scheme" content="light dark">
<link rel="icon" href="_static/favicon.svg">
<meta http-equiv="refresh" content="0; url={url}">
<title>{title}</title>
{meta}
</head>
<body><p><a href="{url}">{title}</a></p></body>
</html>
"""


def site_map(pages: list[str], base: str) -> str:
    """Return the list of pages that search engines read.

    sphinx-sitemap would list only the pages that the last build wrote.
    """
    rows = "\n".join(f"<url><loc>{escape(base + page)}</loc></url>" for page in pages)
    return (
        '<?xml version="1.0" encoding="UTF-8"?>\n'
        f'<urlset xmlns="http://www.sitemaps.org/schemas/sitemap/0.9">\n{rows}\n</urlset>\n'
    )


def first_page(title: str, landing: str) -> str:
    """Return the root page: it leads on, and a link to it shows what the landing page would.

    Args:
        title: of the course.
        landing: the landing page's HTML.
    """
    meta = "\n".join(META.findall(landing))
    return FIRST_PAGE.format(url=FIRST, title=escape(title), meta=meta)


def publish(site: Path) -> None:
    """Write the files beside the pages of a built site."""
    said = yaml.safe_load((ROOT / "_config.yml").read_text(encoding="utf-8"))
    base = said["html"]["baseurl"]
    written = {path.stem for path in (ROOT / "book").glob("*.*")}  # without former addresses
    found = sorted(path for path in site.glob(LISTED) if path.stem in written)
    pages = [path.relative_to(site).as_posix() for path in found]
    landing = (site / FIRST).read_text(encoding="utf-8")
    files = {
        "sitemap.xml": site_map(pages, base),
        "robots.txt": f"User-agent: *\nAllow: /\nSitemap: {base}sitemap.xml\n",
        "index.html": first_page(said["title"], landing),
    }
    for name, text in files.items():
        (site / name).write_text(text, encoding="utf-8")
    (site / "checks.zip").write_bytes(build.checks())
