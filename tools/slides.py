"""Slides and lesson plans made from the executed chapters: figures, captions, formulas, notes.

Usage: python -m tools.slides NAME [...] > deck.html

A deck is one page of HTML that needs no script, no font and no other host. The build writes one
for each chapter beside the site's pages; printed, each slide is a page with its notes.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Iterator
from dataclasses import dataclass, field
from html import escape
from pathlib import Path
from typing import Any

import nbformat
from latex2mathml.converter import convert
from markdown_it import MarkdownIt

from lab import sets
from tools import outline
from tools.refresh import BOOK

FIGURE = re.compile(r"\*\*Figure ([0-9A-Z]+\.\d+)\.\*\*\s*(.*)", re.DOTALL)
DISPLAY = re.compile(r"\$\$(.+?)\$\$(?:\s*\([\w-]+\))?", re.DOTALL)
INLINE = re.compile(r"(?<![\\$])\$([^$\n]+(?:\n[^$\n]+)?)\$")
CITED = re.compile(r"\{cite:\w+\}`([^`]*)`")
KEY = re.compile(r"([a-z]+)(\d{4})\w*")  # of a paper: vaswani2017attention
ROLE = re.compile(r"\{[\w:]+\}`([^`]*)`")
LINK = re.compile(r"\[([^\]]*)\]\([^)]*\)")
FENCE = re.compile(r"^(`{3,}|:{3,})[^\n]*\n.*?^\1[ \t]*$\n?", re.MULTILINE | re.DOTALL)
ANSWER = re.compile(r"^`{3,}\{dropdown\} Answer.*?^`{3,}[ \t]*$\n?", re.MULTILINE | re.DOTALL)
NUMBERED = re.compile(r"^(?:\*\*)?(\d+)\.(?:\*\*)?\s+", re.MULTILINE)
MUSEUM = re.compile(r"\{exercise\} Museum of errors: (.*)")
FOLDER = "slides"  # beside the pages of the site
APART = ("Change this cell", "Exercises", "Summary", "Questions", "References")
STYLE = """
:root { color-scheme: light; }
body { margin: 0; font: 20px/1.45 system-ui, sans-serif; color: #1d2733; background: #fff; }
section { min-height: 92vh; padding: 4vh 7vw; box-sizing: border-box; border-bottom: 1px solid #ccd;
  scroll-snap-align: start; }
html { scroll-snap-type: y proximity; }
h1 { font-size: 2.1em; margin: 18vh 0 .5em; } h2 { font-size: 1.5em; margin: 0 0 .6em; }
img { max-width: 100%; max-height: 56vh; display: block; margin: 0 auto; }
figcaption, .caption { font-size: .8em; margin: .6em auto 0; max-width: 50em; }
math[display="block"] { font-size: 1.15em; margin: .8em 0; overflow-x: auto; }
details { font-size: .75em; margin-top: 1.2em; color: #3b4756; } summary { cursor: pointer; }
.number { float: right; font-size: .7em; color: #55606e; }
@page { size: A4; margin: 14mm; }
@media print {
  body { font-size: 13px; } section { min-height: 0; padding: 0; border: 0; break-after: page; }
  h1 { margin-top: 4em; } img { max-height: 110mm; } summary { display: none; }
  details::details-content { content-visibility: visible; height: auto; }
}
"""


@dataclass
class Section:
    """A section of a chapter: its prose, and its figures as (number, caption, picture, alt)."""

    title: str
    text: str = ""
    figures: list[tuple[str, str, str, str]] = field(default_factory=list)


def sections(notebook: Any) -> list[Section]:
    """Return the sections of a chapter; the first is its title and opening."""
    found: list[Section] = []
    for cell in notebook["cells"]:
        if cell["cell_type"] == "markdown":
            for part in re.split(r"^(?=##? )", cell["source"], flags=re.MULTILINE):
                if head := re.match(r"##? (.*)\n?", part):
                    found.append(Section(head[1].strip(), part[head.end() :]))
                elif found:
                    found[-1].text += "\n\n" + part
        elif found:
            found[-1].figures += figures(cell)
    return found


def figures(cell: Any) -> Iterator[tuple[str, str, str, str]]:
    """Yield the numbered figures that a cell shows, a moving one by its first picture."""
    picture = alt = ""
    for output in cell.get("outputs", []):
        data = output.get("data", {})
        if "image/png" in data:
            picture = "".join(data["image/png"].split())
            alt = output.get("metadata", {}).get("image/png", {}).get("alt", "")
        elif picture and (words := FIGURE.match(data.get("text/markdown", ""))):
            yield words[1], words[2], picture, alt
            picture = ""


def mathml(formula: str, display: str) -> str:
    """Return a formula as MathML; as it is typed where it cannot be read."""
    try:
        made: str = convert(formula.strip(), display=display)
    except Exception:  # the converter raises what comes
        return f"<code>{escape(formula)}</code>"
    return made


def cited(match: re.Match[str]) -> str:
    """Return the name and the year of papers, from their keys."""
    return KEY.sub(lambda key: f"{key[1].capitalize()} {key[2]}", match[1])


def html(text: str, inline: bool = False) -> str:
    """Return a chapter's Markdown as HTML without links, roles and folds; `inline` is one line."""
    text = re.sub(r"^\([\w-]+\)=$", "", FENCE.sub("", text), flags=re.MULTILINE)
    kept: list[str] = []

    def keep(display: str, match: re.Match[str]) -> str:
        kept.append(mathml(match[1], display))
        return f"\x02{len(kept) - 1}\x03"

    text = DISPLAY.sub(lambda match: keep("block", match), text)
    text = INLINE.sub(lambda match: keep("inline", match), text)
    text = LINK.sub(r"\1", ROLE.sub(r"\1", CITED.sub(cited, text)))
    reader = MarkdownIt("commonmark", {"html": False}).enable("table")
    made = str(reader.renderInline(text) if inline else reader.render(text))
    return re.sub("\x02(\\d+)\x03", lambda match: kept[int(match[1])], made)


def formulas(text: str) -> str:
    """Return the formulas of a section that stand on lines of their own."""
    return "".join(mathml(found, "block") for found in DISPLAY.findall(FENCE.sub("", text)))


def opening_of(text: str) -> str:
    """Return the first paragraph of a section."""
    whole = re.sub(r"^\([\w-]+\)=$", "", FENCE.sub("", text), flags=re.MULTILINE).strip()
    return html(DISPLAY.sub("", whole.split("\n\n")[0]))


def notes(text: str) -> str:
    """Return a section's prose, folded on the screen and open in print."""
    inside = html(DISPLAY.sub("", text)).strip()
    return f"<details><summary>Notes</summary>{inside}</details>" if inside else ""


def questions(parts: list[Section]) -> list[str]:
    """Return the questions at the end of a chapter, without their answers."""
    text = next((part.text for part in parts if part.title == "Questions"), "")
    pieces = NUMBERED.split(ANSWER.sub("", text))[2::2]
    return [" ".join(piece.replace("**", "").split()) for piece in pieces]


def deck(path: Path) -> str:
    """Return the slides of a chapter as one page of HTML."""
    parts = sections(nbformat.read(path, as_version=4))
    first, slides = parts[0], []
    opening = outline.ADMONITION.sub("", first.text)
    slides.append(f"<h1>{html(first.title, inline=True)}</h1>{html(opening)}")
    shown = [(first.title, figure) for figure in first.figures]
    for title, (number, caption, picture, alt) in shown:
        slides.append(picture_slide(title, number, caption, picture, alt))
    for part in parts[1:]:
        if part.title in APART:
            continue
        title = html(part.title, inline=True)
        body = formulas(part.text)
        if body or not part.figures:
            words = opening_of(part.text)
            slides.append(f"<h2>{title}</h2>{words}{body}{notes(part.text)}")
        for place, (number, caption, picture, alt) in enumerate(part.figures):
            extra = "" if body or place else notes(part.text)
            slides.append(picture_slide(part.title, number, caption, picture, alt, extra))
    summary = next((part.text for part in parts if part.title == "Summary"), "")
    if summary.strip():
        slides.append(f"<h2>Summary</h2>{html(summary)}")
    if asked := questions(parts):
        listed = "\n".join(f"{place}. {text}" for place, text in enumerate(asked, 1))
        slides.append(f"<h2>Questions</h2>{html(listed)}")
    body = "".join(
        f'<section><span class="number">{place} / {len(slides)}</span>{slide}</section>\n'
        for place, slide in enumerate(slides, 1)
    )
    return (
        '<!DOCTYPE html>\n<html lang="en"><head><meta charset="utf-8">'
        '<meta name="viewport" content="width=device-width, initial-scale=1">'
        f"<title>{escape(first.title)}: slides</title><style>{STYLE}</style></head>\n"
        f"<body><main>\n{body}</main></body></html>\n"
    )


def picture_slide(
    title: str, number: str, caption: str, picture: str, alt: str, extra: str = ""
) -> str:
    """Return a slide with one figure."""
    return (
        f'<h2>{html(title, inline=True)}</h2><figure><img src="data:image/png;base64,{picture}" '
        f'alt="{escape(alt, quote=True)}"><figcaption><strong>Figure {number}.</strong> '
        f"{html(caption, inline=True)}</figcaption></figure>{extra}"
    )


def listed(texts: list[str]) -> str:
    """Return titles as one list of words."""
    return "; ".join(f"*{text}*" for text in texts)


def plan(path: Path) -> str:
    """Return ninety minutes on a chapter as Markdown: what to show, to ask, and to assign."""
    name = path.stem
    parts = sections(nbformat.read(path, as_version=4))
    steps = [part for part in parts[1:] if part.title not in APART]
    half = (len(steps) + 1) // 2
    shown = [number for part in parts for number, *_ in part.figures]
    text = "\n".join(part.text for part in parts)
    read = outline.outline(path).minutes[0]
    first = f"Show Figure {shown[0]} without its caption" if shown else "Read the opening aloud"
    asked = questions(parts)
    lines = [
        f"**Before.** Everybody reads the chapter, about {read} minutes.",
        f"**0 to 10.** {first}, and ask what it says. Write down two guesses.",
        f"**10 to 40, at the board.** {listed([part.title for part in steps[:half]])}.",
        f"**40 to 60, in the notebook.** {listed([part.title for part in steps[half:]])}."
        if steps[half:]
        else "**40 to 60, in the notebook.** The same cells with other numbers.",
    ]
    if any(part.title == "Change this cell" for part in parts):
        lines.append("**60 to 70.** *Change this cell*: everybody predicts before it runs.")
    if asked:
        lines.append("**70 to 90, in pairs, then together.** Ask:")
    body = "\n\n".join(lines)
    if asked:
        body += "\n\n" + "\n".join(f"{place}. {text}" for place, text in enumerate(asked, 1))
    museum = [found.strip() for found in MUSEUM.findall(text)]
    work = []
    if name in sets.facts()["sets"]:
        about = sets.describe(name)
        work.append(
            f"graded set {about['number']} ({about['minutes']} minutes, {about['points']:g} points)"
        )
    work += [f"from the museum of errors: *{title}*" for title in museum]
    return body + ("\n\n**Assign** " + "; ".join(work) + "." if work else "")


def chapters() -> list[Path]:
    """Return the chapters that are taught, in the order of their names."""
    named = [path for path in outline.chapters() if not path.stem.startswith("00")]
    return [*named, BOOK / "hierarchical.ipynb"]


def plans() -> str:
    """Return the plans of all chapters as Markdown, each in a fold with a link to its slides."""
    folds = []
    for path in chapters():
        title = sections(nbformat.read(path, as_version=4))[0].title
        link = f'<a href="../{FOLDER}/{path.stem}.html">Slides</a>'
        folds.append(f"````{{dropdown}} {title}\n{link}\n\n{plan(path)}\n````")
    return "\n\n".join(folds)


def write_decks(site: Path) -> None:
    """Write the slides of all chapters beside the pages of a site."""
    folder = site / FOLDER
    folder.mkdir(exist_ok=True)
    for path in chapters():
        (folder / f"{path.stem}.html").write_text(deck(path), encoding="utf-8")


def main() -> None:
    for name in sys.argv[1:]:
        print(deck(outline.notebooks([name])[0]))


if __name__ == "__main__":
    main()
