"""What a host and a search engine want of the site: its first page and a map of all pages.

Jupyter Book writes the pages; these files stand beside them.
"""

from __future__ import annotations

import re
import subprocess
from html import escape
from pathlib import Path

import yaml

from exercises import build
from tools import ROOT

FIRST = "book/00_intro.html"
LISTED = "book/*.html"
WRITTEN = re.compile("The build of the site writes this page|<!-- modules:")
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


def changed(root: Path) -> dict[str, str]:
    """Return when each page of the book last changed, by the stem of its file, as git knows it.

    Empty where there is no history, or only a part of it: there each file looks new. A page that
    the build writes is left out, since its file is not what changes.
    """
    log = ["git", "log", "--format=%x00%cI", "--name-only", "--relative", "--", "book"]
    try:
        if ask(["git", "rev-parse", "--is-shallow-repository"], root) != "false\n":
            return {}
        commits = ask(log, root).split("\0")[1:]
    except (OSError, subprocess.CalledProcessError):
        return {}
    dates: dict[str, str] = {}
    for date, *names in map(str.split, commits):  # the newest first
        for name in names:
            dates.setdefault(name, date)
    return {
        path.stem: dates[name]
        for path in (root / "book").glob("*.*")
        if (name := f"book/{path.name}") in dates and path.suffix in (".ipynb", ".md")
        if path.suffix == ".ipynb" or not WRITTEN.search(path.read_text(encoding="utf-8"))
    }


def ask(command: list[str], folder: Path) -> str:
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=True)
    return done.stdout


def site_map(pages: list[str], base: str, dates: dict[str, str]) -> str:
    """Return the list of pages that search engines read.

    sphinx-sitemap would list only the pages that the last build wrote.

    Args:
        pages: their addresses in the site.
        base: the address of the site.
        dates: when a page last changed, by the stem of its file, where that is known.
    """
    rows = "\n".join(
        f"<url><loc>{escape(base + page)}</loc>"
        + (f"<lastmod>{dates[stem]}</lastmod>" if (stem := Path(page).stem) in dates else "")
        + "</url>"
        for page in pages
    )
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
        "sitemap.xml": site_map(pages, base, changed(ROOT)),
        "robots.txt": f"User-agent: *\nAllow: /\nSitemap: {base}sitemap.xml\n",
        "index.html": first_page(said["title"], landing),
    }
    for name, text in files.items():
        (site / name).write_text(text, encoding="utf-8")
    (site / "checks.zip").write_bytes(build.checks())
