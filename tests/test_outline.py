"""A chapter is what a chapter should be: counted from the page, not promised."""

from __future__ import annotations

import re

import nbformat
import pytest

from pe_course.page import claims
from tools import ROOT, outline

PATHS = {path.stem: path for path in outline.chapters()}
TITLE = re.compile(r"# (\d+)\. ")
BOXES = 3
BOOK = ROOT / "book"
LINK = re.compile(r"\[[Cc]hapter\s+(\d+)\]\((\d\d)_")


def source(name: str) -> str:
    """Return a chapter's Markdown, cell after cell."""
    cells = nbformat.read(PATHS[name], as_version=4).cells
    return "\n\n".join(cell.source for cell in cells if cell.cell_type == "markdown")


every_chapter = pytest.mark.parametrize("name", [name for name in PATHS if name != "00_intro"])


@every_chapter
def test_the_title_has_the_number_of_the_file(name):
    assert int(TITLE.match(source(name))[1]) == int(name[:2])


def test_chapters_are_numbered_in_order():
    numbers = [int(name[:2]) for name in PATHS if name != "00_intro"]
    assert numbers == list(range(1, len(numbers) + 1))


def test_links_say_the_chapter_they_lead_to():
    pages = [path for path in BOOK.glob("*.*") if path.suffix in (".md", ".ipynb")]
    links = [link for path in pages for link in LINK.findall(path.read_text(encoding="utf-8"))]
    assert len(links) > 100
    assert [link for link in links if int(link[0]) != int(link[1])] == []


@every_chapter
def test_minutes_are_those_of_the_page(name):
    counted = outline.outline(PATHS[name])
    assert counted.stated == counted.minutes


@every_chapter
def test_boxes_are_few_and_each_asks_or_links(name):
    shown = [claims.find(box) for box in outline.outline(PATHS[name]).boxes]
    assert len(shown) <= BOXES
    assert [claim.id for claim in shown if not (claim.question or claim.url)] == []


@every_chapter
def test_figures_are_numbered_in_order_and_named_rightly(name):
    numbers = outline.outline(PATHS[name]).numbers
    chapter = int(name[:2])
    assert list(numbers) == [f"{chapter}.{place}" for place in range(1, len(numbers) + 1)]
    named = re.findall(r"Figures? (\d+\.\d+)", source(name))
    assert {each for each in named if each.startswith(f"{chapter}.")} <= set(numbers)


@every_chapter
def test_every_question_at_the_end_has_its_answer(name):
    section = re.search(r"^## Questions$(.*?)(?=^## |\Z)", source(name), re.M | re.S)
    assert section, "a chapter ends with questions"
    parts = re.split(r"^<details>\n<summary>Answer.*?^</details>$", section[1], flags=re.M | re.S)
    assert len(parts) > 3  # three questions or more
    assert all(part.strip() for part in parts[:-1]) and not parts[-1].strip()
