"""What a host and a search engine want of the site: its first page and a map of all pages.

Jupyter Book writes the pages; these files stand beside them. Beside the site lie the notebooks that
are opened alone, in which the addresses are put (tools/address.py).
"""

from __future__ import annotations

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
    "pe_lib/recent/*.py",
    "pe_course/bakeoff/*.py",
    "pe_course/bakeoff/data/small.csv",  # what open exercises read
    "pe_course/bakeoff/*.json",
    "pe_course/*.py",
    "pe_course/page/*.py",
    "pe_course/data/*.json",
    "pe_course/data/*.txt",
    "pe_course/data/glass/*",  # the model that the open exercise of chapter 12 examines
)
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
    folder.mkdir(parents=True)
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
        "index.html": first_page(at.title, landing),
    }
    for name, text in files.items():
        (site / name).write_text(text, encoding="utf-8")
    (site / "checks.zip").write_bytes(checks())
    put_addresses(site)
    write_notebooks(NOTEBOOKS)
