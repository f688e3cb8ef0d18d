"""Cut the letters that a page may need out of the site's type faces.

And of the theme's icons those that pages show: it brings two thousand, and pages show twenty.

Usage: python -m tools.fonts

Needs npm, for the faces at pinned digests, and `pip install brotli`, for the format. What it writes
is committed (book/assets/fonts), so nobody else needs either. The faces are IBM's Plex under the
Open Font License, which reserves that name for the whole fonts: the parts here are called Course.
fonts.css beside them names them, and what stands in until they come.
"""

from __future__ import annotations

import io
import re
import sys
import tarfile
import tempfile
from pathlib import Path
from typing import Any

import pydata_sphinx_theme
from fontTools import subset
from fontTools.ttLib import TTFont

from tools import ROOT
from tools.vendor import Package, fetch

FONTS = ROOT / "book" / "assets" / "fonts"
PICTURES, DRAWN = (
    ROOT / "pages" / "fonts",
    ("sans", "sans-bold"),
)  # what pages/figures.py draws with
THEME = Path(pydata_sphinx_theme.__file__).parent / "theme" / "pydata_sphinx_theme" / "static"
WEBFONTS = Path("vendor") / "fontawesome" / "webfonts"
SANS = Package(
    "@ibm/plex-sans",
    "1.1.0",
    "WPgvO6Yfj2w5YbhyAr1tv95RUz4LRJlqN+CmYvBglabXteufP1D1E9BABMde+ZIKdRbFJDoKF5eQzfhpnbgZcQ==",
    (),
    "plex-sans",
)
MONO = Package(
    "@ibm/plex-mono",
    "2.5.0",
    "STBJIPxPomOYPmBMO7z5TKPJUotAF9u3gAUumTqVgwgrAO+K4FRNh0MlhsoJjKhJKsMbBJR10/bk4inkj/wc1w==",
    (),
    "plex-mono",
)
# Latin with the letters of names, Greek, punctuation, what the prose has of arrows and signs.
LETTERS = [
    *range(0x20, 0x7F),
    *range(0xA0, 0x180),
    *range(0x391, 0x3CA),
    *range(0x2010, 0x2027),
    *(0x2032, 0x2033, 0x2190, 0x2191, 0x2192, 0x2193, 0x2194, 0x21B5, 0x2202, 0x2206, 0x220F),
    *(0x2211, 0x2212, 0x221A, 0x221E, 0x222B, 0x2248, 0x2260, 0x2264, 0x2265, 0x25CA, 0x2713),
]
# Name of the file, family, package, file in it.
FACES = (
    ("sans", "Course Sans", SANS, "IBMPlexSans-Regular"),
    ("sans-italic", "Course Sans", SANS, "IBMPlexSans-Italic"),
    ("sans-bold", "Course Sans", SANS, "IBMPlexSans-SemiBold"),
    ("mono", "Course Mono", MONO, "IBMPlexMono-Regular"),
    ("mono-bold", "Course Mono", MONO, "IBMPlexMono-SemiBold"),
)
# The icons that pages and the theme's styles name, by the font that has them.
SOLID = """
angle-down angle-left angle-right arrow-up bars bell chevron-down chevron-right chevron-up
circle-half-stroke download exclamation-circle exclamation-triangle expand external-link-alt file
file-pdf info-circle lightbulb list magnifying-glass moon pencil pencil-alt rocket share sun
times-circle xmark
"""
ICONS = {"fa-solid-900": SOLID.split(), "fa-brands-400": ["github"]}


def archive(package: Package) -> dict[str, bytes]:
    """Return the files of a package by their paths in it."""
    with tempfile.TemporaryDirectory() as folder:
        data = fetch(package, Path(folder))
    with tarfile.open(fileobj=io.BytesIO(data)) as packed:
        files = [member for member in packed if member.isfile()]
        return {
            member.name.removeprefix("package/"): packed.extractfile(member).read()
            for member in files
        }


def part(font: TTFont, characters: list[int], **settings: Any) -> TTFont:
    """Return a font with some of its characters alone."""
    options = subset.Options()
    options.hinting = False
    options.set(**settings)
    subsetter = subset.Subsetter(options)
    subsetter.populate(unicodes=characters)
    subsetter.subset(font)
    font.flavor = "woff2"
    return font


def face(data: bytes, family: str, style: str) -> TTFont:
    """Return the letters of a face that the site serves, under the family's name."""
    font = part(
        TTFont(io.BytesIO(data), recalcTimestamp=False),
        LETTERS,
        layout_features=["kern", "mark", "mkmk", "locl", "ccmp", "tnum", "zero"],
        name_IDs=[0, 1, 2, 3, 4, 6, 13, 14],
        notdef_outline=True,
    )
    whole = f"{family} {style}"
    for number, text in {1: family, 3: whole, 4: whole, 6: whole.replace(" ", "-")}.items():
        for record in font["name"].names:
            if record.nameID == number:
                record.string = text
    return font


def icons(name: str) -> TTFont:
    """Return the icons of one of the theme's fonts that pages show."""
    style = (THEME / "styles" / "pydata-sphinx-theme.css").read_text(encoding="utf-8")
    codes = []
    for icon in ICONS[name]:  # .fa-pencil-alt:before,.fa-pencil:before{content:"\f303"}
        rule = rf"\.fa-{icon}:before(?:,[^{{}}]*)?" + r'\{content:"\\?([^"]+)"'
        code = re.search(rule, style)[1]
        codes.append(int(code, 16) if len(code) > 1 else ord(code))
    return part(TTFont(THEME / WEBFONTS / f"{name}.woff2", recalcTimestamp=False), codes)


def main() -> int:
    held = {package.name: archive(package) for package in (SANS, MONO)}
    for file, family, package, name in FACES:
        data = held[package.name][f"fonts/complete/woff2/{name}.woff2"]
        font = face(data, family, name.partition("-")[2])
        font.save(FONTS / f"{file}.woff2")
        if file in DRAWN:
            font.flavor = None  # packed in no way
            if font["OS/2"].usWeightClass > 400:
                font["OS/2"].usWeightClass = 700  # the bold one, for Matplotlib
            font.save(PICTURES / f"{file}.ttf")
    for name in ICONS:
        icons(name).save(FONTS.parent / WEBFONTS / f"{name}.woff2")
    for folder in (FONTS, PICTURES):
        (folder / "LICENSE.txt").write_bytes(held[SANS.name]["LICENSE.txt"])
    for path in sorted(FONTS.parent.rglob("*.woff2")):
        print(f"{path.relative_to(FONTS.parent)}: {path.stat().st_size} bytes")
    return 0


if __name__ == "__main__":
    sys.exit(main())
