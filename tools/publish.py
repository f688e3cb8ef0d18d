"""What a host and a search engine want of the site: its first page, a map, and a page for errors.

Jupyter Book writes the pages; these files stand beside them. Beside the site lie the notebooks that
are opened alone, in which the addresses are put (tools/address.py).
"""

from __future__ import annotations

import json
import re
import shutil
import zipfile
from html import escape
from pathlib import Path

from exercises import build
from tools import ROOT, address

NOTEBOOKS = ROOT / "_build" / "notebooks"
HANDED_OUT = ("book/*.ipynb", "exercises/release/*/*.ipynb", "exercises/projects/*.ipynb")
# What an exercise notebook may use: the checks, and the library, models and results for its own
# experiments. No solution is in it but those by which the checks judge.
SHARED = (
    "LICENSE",
    "exercises/__init__.py",
    "exercises/checks/*.py",
    "exercises/practice.py",
    "exercises/wire.py",
    "pe_lib/*.py",
    "bakeoff/*.py",
    "bakeoff/data/small.csv",  # what open exercises read
    "bakeoff/*.json",
    "lab/*.py",
    "pages/*.py",
    "lab/data/*.json",
    "lab/data/*.txt",
    "lab/data/glass/*",  # the model that the open exercise of chapter 12 examines
)
FIRST = "book/00_intro.html"
LISTED = "book/*.html"
FORMER = ROOT / "book/data/former.json"  # names of pages before; tools/order.py adds to it
META = re.compile(r'<meta (?:name="description"|property="og:|name="twitter:)[^>]*>')

PAGE = """<!DOCTYPE html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<title>{title}</title>
{head}
<style>
:root {{ color-scheme: light dark; }}
body {{ font: 1.05rem/1.6 ui-sans-serif, system-ui, sans-serif; max-width: 34rem;
  margin: 18vh auto 0; padding: 0 1.25rem; }}
</style>
</head>
<body>
<main>
{body}
</main>
</body>
</html>
"""


def site_map(pages: list[str], base: str) -> str:
    """Return the list of pages that search engines read."""
    rows = "\n".join(f"<url><loc>{escape(base + page)}</loc></url>" for page in pages)
    return (
        '<?xml version="1.0" encoding="UTF-8"?>\n'
        f'<urlset xmlns="http://www.sitemaps.org/schemas/sitemap/0.9">\n{rows}\n</urlset>\n'
    )


def not_found(base: str) -> str:
    """Return the page for an address that leads nowhere.

    A host shows it at any depth of the site, so its links are whole addresses.
    """
    body = (
        "<h1>This page is not here</h1>\n"
        "<p>It may have been renamed when the chapters were numbered anew.</p>\n"
        f'<p><a href="{base}{FIRST}">Start of the course</a> · '
        f'<a href="{base}search.html">Search</a> · '
        f'<a href="{base}genindex.html">Index</a></p>'
    )
    return PAGE.format(title="This page is not here", head="", body=body)


def first_page(title: str, landing: str) -> str:
    """Return the root page: it leads on, and a link to it shows what the landing page would.

    Args:
        title: of the course.
        landing: the landing page's HTML.
    """
    head = "\n".join(
        [f'<meta http-equiv="refresh" content="0; url={FIRST}">', *META.findall(landing)]
    )
    body = f'<p><a href="{FIRST}">{escape(title)}</a></p>'
    return PAGE.format(title=escape(title), head=head, body=body)


def moved_page(old: str, new: str, base: str) -> str:
    """Return the page at a chapter's former address: it leads on, to the same place there.

    Args:
        old, new: the page's name then and now.
        base: the site's address.
    """
    numbers = [int(name[:2]) for name in (old, new)]
    head = (
        f'<link rel="canonical" href="{base}book/{new}.html">\n'
        f'<script>location.replace("{new}.html" + location.search + location.hash'
        f'.replace("#figure-{numbers[0]}-", "#figure-{numbers[1]}-"))</script>\n'
        f'<meta http-equiv="refresh" content="0; url={new}.html">'
    )
    body = f'<p>This chapter has another number now: <a href="{new}.html">go there</a></p>'
    return PAGE.format(title="This chapter has moved", head=head, body=body)


def moved_pages(pages: list[str], base: str) -> dict[str, str]:
    """Return a page for each address that a chapter had and no page has now."""
    now = {Path(page).stem[2:]: Path(page).stem for page in pages}
    former = json.loads(FORMER.read_text(encoding="utf-8"))
    return {
        f"book/{old}.html": moved_page(old, now[old[2:]], base)
        for old in former
        if old[2:] in now and old not in now.values()
    }


def checks() -> bytes:
    """Return the archive that the first cell of an exercise notebook fetches."""
    paths = sorted(path for pattern in SHARED for path in ROOT.glob(pattern))
    files = {path.relative_to(ROOT).as_posix(): path.read_bytes() for path in paths}
    files["bring.py"] = (ROOT / "exercises/bring.py").read_bytes()
    return build.packed(files, zipfile.ZIP_DEFLATED)


def put_addresses(site: Path) -> None:
    """Put the addresses into what the site offers for download as it stands in the repository."""
    filled = address.current().filled
    for path in [*site.glob("_sources/book/*"), *site.glob("_downloads/*/*.ipynb")]:
        path.write_text(filled(path.read_text(encoding="utf-8")), encoding="utf-8")
    for path in site.glob("_downloads/*/*.zip"):
        with zipfile.ZipFile(path) as archive:
            texts = {name: filled(archive.read(name).decode()) for name in archive.namelist()}
        path.write_bytes(build.packed({name: text.encode() for name, text in texts.items()}))


def write_notebooks(folder: Path) -> None:
    """Write what Colab opens: the notebooks at their places, with the addresses put in."""
    shutil.rmtree(folder, ignore_errors=True)
    at = address.current()
    for path in sorted(path for pattern in HANDED_OUT for path in ROOT.glob(pattern)):
        copy = folder / path.relative_to(ROOT)
        copy.parent.mkdir(parents=True, exist_ok=True)
        copy.write_text(at.filled(path.read_text(encoding="utf-8")), encoding="utf-8")
    said = f"The notebooks of {at.site}, as they open alone. Edit those of branch `{at.branch}`.\n"
    (folder / "README.md").write_text(said, encoding="utf-8")


def publish(site: Path) -> None:
    """Write the files beside the pages of a built site."""
    at = address.current()
    base = at.site
    written = {path.stem for path in (ROOT / "book").glob("*.*")}  # without former addresses
    found = sorted(path for path in site.glob(LISTED) if path.stem in written)
    pages = [path.relative_to(site).as_posix() for path in found]
    landing = (site / FIRST).read_text(encoding="utf-8")
    files = {
        "sitemap.xml": site_map(pages, base),
        "robots.txt": f"User-agent: *\nAllow: /\nSitemap: {base}sitemap.xml\n",
        "404.html": not_found(base),
        "index.html": first_page(at.title, landing),
        **moved_pages(pages, base),
    }
    for name, text in files.items():
        (site / name).write_text(text, encoding="utf-8")
    (site / "checks.zip").write_bytes(checks())
    put_addresses(site)
    write_notebooks(NOTEBOOKS)
