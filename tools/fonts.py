"""Make the site's type faces: the letters that a page may need, and what stands in until they come.

The theme's icons too: it brings two thousand, and pages show twenty.

Usage: python -m tools.fonts

Needs npm, for the faces at pinned digests, and `pip install brotli`, for the format. What it writes
is committed (book/assets/fonts), so nobody else needs either. The faces are IBM's Plex under the
Open Font License, which reserves that name for the whole fonts: the parts here are called Course.

A stand-in is a face of the reader's computer, scaled so that the course's own prose takes as much
room in it as in the face that is on its way: when that comes, lines stay where they are.
"""

from __future__ import annotations

import hashlib
import io
import json
import re
import sys
import tarfile
import tempfile
from collections import Counter
from pathlib import Path

import matplotlib
import pydata_sphinx_theme
from fontTools import subset
from fontTools.ttLib import TTFont

from tools import ROOT
from tools.vendor import Package, fetch

FONTS = ROOT / "book" / "assets" / "fonts"
STYLE = FONTS / "fonts.css"
PICTURES, DRAWN = ROOT / "lab" / "fonts", ("sans", "sans-bold")  # what lab/figures.py draws with
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
ARIMO = Package(  # as wide as Arial, Helvetica and Liberation Sans
    "@fontsource/arimo",
    "5.3.0",
    "nhxZ2sTVZYX8DJBgLuyX360B5vE4mxqpmjlKTRfucIqfcWRVx9vOYzWBc1IgEX0ist48VMC10PRKbFyH+4QFvQ==",
    (),
    "arimo",
)
ROBOTO = Package(
    "@fontsource/roboto",
    "5.3.0",
    "BapRJOWYP+LZ21zp+wBQjfpPYKRoxc4LspJ/RLuI+HSMBD5u/X4O+ESDrSvEqDSy0rAl7GwBJ+09mdc16cVQ1Q==",
    (),
    "roboto",
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
# name of the file, family, weight, style, package, file in it
FACES = (
    ("sans", "Course Sans", 400, "normal", SANS, "IBMPlexSans-Regular"),
    ("sans-italic", "Course Sans", 400, "italic", SANS, "IBMPlexSans-Italic"),
    ("sans-bold", "Course Sans", 600, "normal", SANS, "IBMPlexSans-SemiBold"),
    ("mono", "Course Mono", 400, "normal", MONO, "IBMPlexMono-Regular"),
    ("mono-bold", "Course Mono", 600, "normal", MONO, "IBMPlexMono-SemiBold"),
)
# The icons that pages and the theme's styles name, by the font that has them.
SOLID = """
angle-down angle-left angle-right arrow-up bars bell chevron-down chevron-right chevron-up
circle-half-stroke download exclamation-circle exclamation-triangle expand external-link-alt file
file-pdf info-circle lightbulb list magnifying-glass moon pencil pencil-alt rocket share sun
times-circle xmark
"""
ICONS = {"fa-solid-900": SOLID.split(), "fa-brands-400": ["github"]}
# What stands in, in the order in which it is looked for: names by style, and where its widths are.
STAND_INS = {
    "Arial": ("Arial", "Helvetica", "Liberation Sans"),
    "Roboto": ("Roboto",),
    "DejaVu": ("DejaVu Sans",),
}
STYLES = {("normal", 400): "", ("italic", 400): " Italic", ("normal", 600): " Bold"}
DEJAVU = {"": "DejaVuSans.ttf", " Italic": "DejaVuSans-Oblique.ttf", " Bold": "DejaVuSans-Bold.ttf"}


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


def prose() -> Counter[str]:
    """Return how often the course's own text has each letter."""
    text: Counter[str] = Counter()
    for path in sorted((ROOT / "book").glob("[01]*.ipynb")):
        for cell in json.loads(path.read_text(encoding="utf-8"))["cells"]:
            if cell["cell_type"] == "markdown":
                text.update("".join(cell["source"]))
    return Counter({letter: n for letter, n in text.items() if " " <= letter <= "~"})


def width(font: TTFont, text: Counter[str]) -> float:
    """Return the mean width of a letter of the text, in ems."""
    names, widths = font.getBestCmap(), font["hmtx"]
    em = font["head"].unitsPerEm
    whole = sum(n * widths[names[ord(letter)]][0] for letter, n in text.items())
    return whole / em / text.total()


def part(data: bytes, family: str, style: str, flavor: str | None = "woff2") -> TTFont:
    """Return the letters of a face that the site serves, under the family's name.

    Pictures are drawn with the same letters, packed in no way.
    """
    font = TTFont(io.BytesIO(data), recalcTimestamp=False)
    options = subset.Options()
    options.layout_features = ["kern", "mark", "mkmk", "locl", "ccmp", "tnum", "zero"]
    options.name_IDs = [0, 1, 2, 3, 4, 6, 13, 14]
    options.hinting = False
    options.notdef_outline = True
    subsetter = subset.Subsetter(options)
    subsetter.populate(unicodes=LETTERS)
    subsetter.subset(font)
    whole = f"{family} {style}"
    for number, text in {1: family, 3: whole, 4: whole, 6: whole.replace(" ", "-")}.items():
        for record in font["name"].names:
            if record.nameID == number:
                record.string = text
    font.flavor = flavor
    if flavor is None and font["OS/2"].usWeightClass > 400:
        font["OS/2"].usWeightClass = 700  # the bold one, for Matplotlib
    return font


def icons(name: str) -> TTFont:
    """Return the icons of one of the theme's fonts that pages show."""
    style = (THEME / "styles" / "pydata-sphinx-theme.css").read_text(encoding="utf-8")
    codes = []
    for icon in ICONS[name]:  # .fa-pencil-alt:before,.fa-pencil:before{content:"\f303"}
        rule = rf"\.fa-{icon}:before(?:,[^{{}}]*)?" + r'\{content:"\\?([^"]+)"'
        code = re.search(rule, style)[1]
        codes.append(int(code, 16) if len(code) > 1 else ord(code))
    font = TTFont(THEME / WEBFONTS / f"{name}.woff2", recalcTimestamp=False)
    options = subset.Options()
    options.hinting = False
    subsetter = subset.Subsetter(options)
    subsetter.populate(unicodes=codes)
    subsetter.subset(font)
    font.flavor = "woff2"
    return font


def face(family: str, weight: int, style: str, source: str, more: str = "") -> str:
    """Return the rule that names a face."""
    return (
        f'@font-face {{\n  font-family: "{family}";\n  font-weight: {weight};\n'
        f"  font-style: {style};\n  src: {source};\n{more}}}\n"
    )


def stand_in(font: TTFont, other: TTFont, text: Counter[str]) -> str:
    """Return what scales another face to a font's width and gives it the font's line."""
    scale = width(font, text) / width(other, text)
    em, line = font["head"].unitsPerEm, font["hhea"]
    return "".join(
        f"  {name}: {100 * value:.2f}%;\n"
        for name, value in {
            "size-adjust": scale,
            "ascent-override": line.ascent / em / scale,
            "descent-override": -line.descent / em / scale,
            "line-gap-override": line.lineGap / em / scale,
        }.items()
    )


def digests() -> dict[str, str]:
    """Return the digests of the fonts that are committed, by their paths."""
    assets = FONTS.parent
    return {
        str(path.relative_to(assets)): hashlib.sha256(path.read_bytes()).hexdigest()
        for path in sorted(assets.rglob("*.woff2"))
    }


def main() -> int:
    FONTS.mkdir(exist_ok=True)
    text, rules, whole = prose(), [], 0
    held = {package.name: archive(package) for package in (SANS, MONO, ARIMO, ROBOTO)}
    ttf = Path(matplotlib.get_data_path()) / "fonts" / "ttf"
    for file, family, weight, style, package, name in FACES:
        data = held[package.name][f"fonts/complete/woff2/{name}.woff2"]
        part(data, family, name.partition("-")[2]).save(FONTS / f"{file}.woff2")
        if file in DRAWN:
            part(data, family, name.partition("-")[2], None).save(PICTURES / f"{file}.ttf")
        whole += (FONTS / f"{file}.woff2").stat().st_size
        source, swap = f'url("{file}.woff2") format("woff2")', "  font-display: swap;\n"
        rules.append(face(family, weight, style, source, swap))
        if package is not SANS:
            continue
        spelt = STYLES[style, weight]
        inside = f"latin-{700 if weight == 600 else weight}-{style}.woff2"
        others = {
            "Arial": held[ARIMO.name][f"files/arimo-{inside}"],
            "Roboto": held[ROBOTO.name][f"files/roboto-{inside}"],
            "DejaVu": (ttf / DEJAVU[spelt]).read_bytes(),
        }
        for key, names in STAND_INS.items():
            oblique = spelt.replace("Italic", "Oblique") if key == "DejaVu" else spelt
            local = ", ".join(f'local("{each}{oblique}")' for each in names)
            scaled = stand_in(TTFont(io.BytesIO(data)), TTFont(io.BytesIO(others[key])), text)
            rules.append(face(f"Course {key}", weight, style, local, scaled))
    (FONTS.parent / WEBFONTS).mkdir(parents=True, exist_ok=True)
    for name in ICONS:
        icons(name).save(FONTS.parent / WEBFONTS / f"{name}.woff2")
    made = "\n".join(f"   {digest}  {path}" for path, digest in digests().items())
    head = f"/* Made by tools/fonts.py, with these files:\n{made} */\n\n"
    STYLE.write_text(head + "\n".join(rules), encoding="utf-8")
    licence = held[SANS.name]["LICENSE.txt"]
    for folder in (FONTS, PICTURES):
        (folder / "LICENSE.txt").write_bytes(licence)
    print(f"{whole} bytes in {len(FACES)} faces")
    return 0


if __name__ == "__main__":
    sys.exit(main())
