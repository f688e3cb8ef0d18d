"""Set the formulas of a built site: a page then needs no script for them, and nothing jumps.

MathJax runs once, in Node, over all pages. What it writes is what it would write in a reader's
browser: letters of its own fonts, each in its own room, and MathML for those who listen. Beside it
stands the formula's TeX, which is what a reader copies (book/assets/course.js). Where Node or npm
is missing, pages load MathJax from a public address.
"""

from __future__ import annotations

import hashlib
import json
import re
import shutil
import subprocess
from functools import cache
from html import escape, unescape
from pathlib import Path
from typing import NamedTuple

from fontTools import subset
from fontTools.ttLib import TTFont

from tools import vendor

SCRIPT = Path(__file__).with_suffix(".cjs")
MATHJAX = vendor.SITE[0]
FONTS = "output/chtml/fonts/woff-v2"
STYLE = "formulas.css"
STRUT = "\ueffc"  # the one letter of the font that gives every line of a formula its height
# MathJax measures the text around a formula in the browser, and makes small letters as high as its
# own: in the course's type face, by this.
SIZE = "mjx-container { font-size: 116.7%; }\n"
INLINE = r'<span class="math notranslate nohighlight"[^>]*>\\\((?P<inline>.*?)\\\)</span>'
DISPLAY = (
    r'<div class="math notranslate nohighlight[^>]*>\s*(?:<span id="[^>]*></span>)*'
    r'(?:<span class="eqno">.*?</span>)?'
    r"\\\[(?P<display>.*?)\\\]\s*</div>"
)
ROWS = re.compile(r"^\\begin\{split\}(.*)\\end\{split\}$", re.DOTALL)  # added by Sphinx
RULE = re.compile(r"[^{}]+\{[^{}]*\}")
PLACE = re.compile(f"{INLINE}|{DISPLAY}", re.DOTALL)


class Formula(NamedTuple):
    """TeX, and whether it stands on lines of its own."""

    tex: str
    display: bool


class FormulaError(Exception):
    """A formula is no TeX, or MathJax did not run."""


def formula(place: re.Match[str]) -> Formula:
    """Return the formula of a place as Sphinx writes it."""
    kind = place.lastgroup or ""
    return Formula(unescape(place[kind]).strip(), kind == "display")


def possible() -> bool:
    """Return True if formulas can be set here."""
    node = shutil.which("node")
    return (
        node is not None
        and vendor.present(MATHJAX, vendor.SITE_ASSETS)
        and works(node, vendor.SITE_ASSETS)
    )


@cache
def works(node: str, assets: Path) -> bool:
    """Return True if this Node sets a letter with the MathJax among these assets; else say why."""
    try:
        typeset([Formula("x", False)])
    except (FormulaError, OSError, ValueError) as error:  # it may not run, or write anything
        vendor.do_without(error)
        return False
    return True


def typeset(formulas: list[Formula]) -> tuple[list[str], str]:
    """Set formulas with MathJax.

    Returns:
        the HTML of each, and one style sheet for all.

    Raises:
        FormulaError: if Node fails, or a formula is not understood.
    """
    folder = vendor.SITE_ASSETS / MATHJAX.folder / "es5"
    command = ["node", str(SCRIPT), str(folder), STYLE.removesuffix(".css")]
    wanted = json.dumps(formulas)
    done = subprocess.run(command, input=wanted, capture_output=True, encoding="utf-8")
    if done.returncode:
        raise FormulaError(f"node failed: {done.stderr.strip()[-500:]}")
    found = json.loads(done.stdout)
    for asked, html in zip(formulas, found["formulas"], strict=True):
        if "mjx-merror" in html:
            raise FormulaError(f"MathJax does not understand {asked.tex!r}")
    return found["formulas"], found["style"]


def with_tex(html: str, asked: Formula) -> str:
    """Return a set formula that carries its TeX."""
    tex = ROWS.sub(r"\1", asked.tex)
    return html.replace("<mjx-container", f'<mjx-container data-tex="{escape(tex)}"', 1)


def cut_fonts(style: str, folder: Path) -> None:
    """Write MathJax's fonts to a folder, with no more letters than a style sheet asks for."""
    asked = {
        chr(int(code, 16)) if code else letter
        for code, letter in re.findall(r'content: "(?:\\([0-9A-Fa-f]+)|\\?(.))', style)
    }
    folder.mkdir(exist_ok=True)
    options = subset.Options(flavor="woff", hinting=False)
    options.drop_tables += ["FFTM"]  # the times of their making
    for path in (vendor.SITE_ASSETS / MATHJAX.folder / "es5" / FONTS).glob("*.woff"):
        cut = subset.Subsetter(options)
        cut.populate(text="".join(asked) + STRUT)
        with TTFont(path) as font:
            cut.subset(font)
            subset.save_font(font, folder / path.name, options)


def set_site(site: Path) -> int:
    """Set all formulas of a built site.

    Returns:
        how many different ones there are.

    Raises:
        FormulaError: as `typeset`.
    """
    pages = {path: path.read_text(encoding="utf-8") for path in site.rglob("*.html")}
    places = (place for text in pages.values() for place in PLACE.finditer(text))
    asked = list(dict.fromkeys(map(formula, places)))
    if not asked:
        return 0
    html, style = typeset(asked)
    finished = {each: with_tex(done, each) for each, done in zip(asked, html, strict=True)}
    static = site / "_static"
    sheet = static / STYLE
    if sheet.exists():  # with the letters of pages that are not written again
        before = sheet.read_text(encoding="utf-8").removeprefix(SIZE)
        known = set(map(str.strip, RULE.findall(before)))
        style = before + "".join(r for r in RULE.findall(style) if r.strip() not in known)
    sheet.write_text(SIZE + style, encoding="utf-8")
    cut_fonts(style, static / STYLE.removesuffix(".css"))
    version = hashlib.sha256(style.encode()).hexdigest()[:8]

    def place_it(place: re.Match[str]) -> str:
        start, end = place.span(place.lastgroup or 0)
        before, after = place.string[place.start() : start - 2], place.string[end + 2 : place.end()]
        return f"{before}{finished[formula(place)]}{after}"

    for path, text in pages.items():
        done, count = PLACE.subn(place_it, text)
        if count:
            up = "../" * (len(path.relative_to(site).parts) - 1)
            link = f'<link rel="stylesheet" href="{up}_static/{STYLE}?v={version}">\n'
            path.write_text(done.replace("</head>", f"{link}</head>", 1), encoding="utf-8")
    return len(asked)
