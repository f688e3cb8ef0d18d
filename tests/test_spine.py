"""A reader of the spine alone meets nothing that the spine has not introduced or does not link."""

from __future__ import annotations

import re
from urllib.parse import parse_qsl

import nbformat
import pytest

from pe_course.page import chapters, live
from pe_course.registry import METHODS
from tools import ROOT
from tools.refresh import FOLDED

BOOK = ROOT / "book"
ROOMS = ("pe_course", "pe_course/page")
MODULES = {path.stem for room in ROOMS for path in (ROOT / room).glob("*.py")}
MODULES |= {"library", "extend"}
# What writes into a page, and what reads the comparison.
LEFT_OUT = {"below", "graded_set", "say", "table", "choosing", "plots", "sentences"}
IMPORT = re.compile(
    r"^from (?:pe_lib|pe_course(?!\.(?:bakeoff|page\.)))[\w.]* import (\([^)]*\)|.*)$", re.M
)
STATE = re.compile(r"\((\d\d_\w+)\.ipynb#figure-(\w+)-(\d+)\?([^)\s]+)\)")


def read(name: str) -> tuple[str, str, str]:
    """Return the prose of a chapter up to its exercises, all its code, and the code in sight."""
    prose, code, sight = [], [], []
    for cell in nbformat.read(BOOK / f"{name}.ipynb", as_version=4).cells:
        if cell.source.startswith("## Exercises"):
            break
        if cell.cell_type == "markdown":
            prose.append(cell.source)
            continue
        code.append(cell.source)
        if not FOLDED & set(cell.metadata.get("tags", [])):
            sight.append(cell.source)
    return "\n".join(prose), "\n".join(code), "\n".join(sight)


PAGES = {name: read(name) for name in chapters.SPINE}


def used(name: str) -> set[str]:
    """Return what the code in sight uses of the library and of the laboratory."""
    _, code, sight = PAGES[name]
    lists = (found.strip("()").split(",") for found in IMPORT.findall(code))
    names = {part.split()[-1] for each in lists for part in each if part.strip()} - LEFT_OUT
    modules = "|".join(names & MODULES)
    found = {each for each in names - MODULES if re.search(rf"\b{each}\b", sight)}
    return found | set(re.findall(rf"\b(?:{modules})\.(\w+)", sight))


@pytest.mark.parametrize("name", chapters.SPINE)
def test_the_spine_introduces_the_functions_that_it_uses(name):
    before = [PAGES[each] for each in chapters.SPINE[: chapters.SPINE.index(name) + 1]]
    said = re.findall(r"(?<!`)`([^`\n]+)`(?!`)", "\n".join(prose for prose, _, _ in before))
    made = re.findall(r"(?:def|class) (\w+)", "\n".join(code for _, code, _ in before))
    assert used(name) - set(re.findall(r"\w+", " ".join([*said, *made]))) == set()


def test_methods_that_the_spine_names_have_a_sentence_in_the_glossary():
    """The site links the first use of each word of the glossary on each page to its entry."""
    entries = set((BOOK / "glossary.md").read_text(encoding="utf-8").splitlines())
    entries |= {"sinusoidal", "learned table", "no positions"}  # which say what they are
    words = "\n".join(prose for prose, _, _ in PAGES.values())
    named = {each.name for each in METHODS.values() if re.search(rf"\b{each.name}\b", words)}
    assert named - entries == set()


@pytest.mark.parametrize("name", chapters.CHAPTERS)
def test_the_list_of_chapters_says_what_the_chapter_says(name):
    cells = nbformat.read(BOOK / f"{name}.ipynb", as_version=4).cells
    text = "\n".join(cell.source for cell in cells if cell.cell_type == "markdown")
    chapter = chapters.CHAPTERS[name]
    assert text.startswith((f"# {chapter.title}\n", f"# {chapter.title}:"))
    time = (
        f"**Time:** {chapter.to_read} minutes to read, {chapter.with_exercises} with the exercises"
    )
    assert time in text


def test_the_list_has_every_chapter():
    written = {path.stem for path in BOOK.glob("[0-9][0-9]_*.ipynb")}
    assert written == {"00_intro", *chapters.CHAPTERS}


def test_links_to_a_state_name_a_figure_and_what_it_knows():
    text = "\n".join(page.read_text(encoding="utf-8") for page in BOOK.glob("*.ipynb"))
    assert STATE.search(text)
    for name, chapter, number, state in STATE.findall(text):
        shown = re.findall(rf'"(\w+)\\",\\n",\s+"    number=\\"{chapter}\.{number}\\"', text)
        known = live.starts()[shown[0]]["state"]
        assert {key for key, _ in parse_qsl(state)} <= set(known), (name, state)
