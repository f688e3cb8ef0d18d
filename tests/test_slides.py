"""Slides and lesson plans say what the chapters say, and need nothing else."""

from __future__ import annotations

import re
from html.parser import HTMLParser
from pathlib import Path

import nbformat
import pytest

from exercises.sets import set_names
from lab import sets
from tools import slides

CHAPTERS = slides.chapters()
by_chapter = pytest.mark.parametrize("path", CHAPTERS, ids=lambda path: path.stem)


class Deck(HTMLParser):
    """What a deck asks for, and what stands in it."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.asked: list[str] = []
        self.tags: list[str] = []
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append(tag)
        self.asked += [value or "" for name, value in attrs if name in ("src", "href", "srcset")]
        if tag == "img":
            assert dict(attrs)["alt"]


@by_chapter
def test_a_deck_has_every_figure_of_its_chapter_and_needs_no_other_file(path: Path) -> None:
    text = slides.deck(path)
    deck = Deck(text)
    assert all(one.startswith("data:image/png;base64,") for one in deck.asked)
    assert not {"script", "link", "iframe"} & set(deck.tags)
    shown = re.findall(r"<strong>Figure ([0-9A-Z]+\.\d+)\.</strong>", text)
    source = "\n".join(cell.source for cell in nbformat.read(path, as_version=4).cells)
    before = source.split("\n## Change this cell")[0]  # what follows shows answers
    numbers = re.findall(r"number=\"([0-9A-Z]+\.\d+)\"", before)
    assert shown == numbers and deck.tags.count("img") == len(shown)
    assert len(text) < 2_000_000 and deck.tags.count("section") >= 5
    assert "\x02" not in text and not re.search(r"\{(cite|eq|doc|numref)", text)


@by_chapter
def test_a_plan_asks_the_chapters_own_questions_and_gives_no_answer(path: Path) -> None:
    plan = slides.plan(path)
    source = "\n\n".join(c.source for c in nbformat.read(path, as_version=4).cells)
    section = source.partition("## Questions")[2]  # nothing where a chapter has none
    asked = slides.questions(slides.sections(nbformat.read(path, as_version=4)))
    assert len(asked) == len(re.findall(r"\{dropdown\} Answer", section))
    assert all(question in plan for question in asked)
    assert "dropdown" not in plan
    if path.stem in set_names():
        about = sets.describe(path.stem)
        assert f"graded set {about['number']} ({about['minutes']} minutes" in plan


def test_what_a_chapter_types_acts_as_no_markup() -> None:
    made = slides.html("a <script>x</script> & $a<b$ [link](javascript:1)")
    assert "<script>" not in made and "javascript" not in made and "<mo>&#x0003C;</mo>" in made


def test_a_formula_that_cannot_be_read_stays_as_it_is_typed() -> None:
    assert slides.mathml(r"\begin{", "block") == r"<code>\begin{</code>"
