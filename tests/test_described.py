"""What search engines and shared links show of a page: written for it, and read by programs."""

from __future__ import annotations

import json
import re
from functools import cache
from pathlib import Path

import pytest
import yaml
from bs4 import BeautifulSoup

from browsing import toc_pages
from pe_course.page.chapters import CHAPTERS
from pe_course.registry import METHODS
from tools import ROOT

PAGES = [name.removeprefix("book/") for name in toc_pages()]
SAID = yaml.safe_load((ROOT / "book/_ext/descriptions.yml").read_text(encoding="utf-8"))
FIRST = "00_intro"
# What people call the method of a chapter when they look for it.
CALLED = {
    "02_sinusoidal": "sinusoidal positional encoding",
    "03_learned": "learned position embeddings",
    "05_shaw": "relative position representations",
    "06_transformer_xl": "relative positions and segment memory",
    "07_t5": "relative position bias",
    "08_deberta": "disentangled attention",
    "09_alibi": "attention with linear biases",
    "10_rope": "rotary position embedding",
    "13_context_extension": "context extension",
    "15_multimodal": "M-RoPE",
}
ELSEWHERE = {"none", "learned", "xpos"}  # no title of a chapter names them


@cache
def head(path: Path) -> BeautifulSoup:
    return BeautifulSoup(path.read_text(encoding="utf-8").partition("<body")[0], "html.parser")


def facts(site: Path, name: str) -> dict:
    """Return what a page tells programs."""
    (script,) = head(site / f"book/{name}.html").select('script[type="application/ld+json"]')
    return json.loads(script.string)


def test_each_page_has_a_description_of_its_own_and_no_other_has_one():
    assert sorted(SAID) == sorted(PAGES)
    for key in ("title", "description"):
        said = [page[key] for page in SAID.values() if key in page]
        assert len(said) == len(set(said)) >= len(PAGES) - 1
    assert "title" not in SAID[FIRST]  # its heading is the course's name


@pytest.mark.parametrize("name", PAGES)
def test_titles_and_descriptions_are_shown_whole(name):
    assert 15 <= len(SAID[name].get("title", "the heading of the page")) <= 60
    assert 110 <= len(SAID[name]["description"]) <= 160
    assert SAID[name]["description"].endswith(".")


def test_the_title_of_a_chapter_has_the_words_of_its_method():
    said = {name: page.get("title", "").lower() for name, page in SAID.items()}
    assert [words for name, words in CALLED.items() if words.lower() not in said[name]] == []
    named = [each for key, each in METHODS.items() if each.chapter and key not in ELSEWHERE]
    words = [each.name.removesuffix(" bias").lower() for each in named]
    missing = [w for w, each in zip(words, named, strict=True) if w not in said[each.chapter]]
    assert len(named) >= 9 and missing == []


@pytest.mark.parametrize("name", PAGES)
def test_a_page_shows_its_title_and_its_description_once(name, site):
    page = head(site / f"book/{name}.html")
    shown = SAID[name].get("title") or "Positional Encodings, from first principles"
    assert [page.title.string] == [shown]
    assert [tag["content"] for tag in page.select('[property="og:title"]')] == [shown]
    for kind in ('[name="description"]', '[property="og:description"]'):
        assert [tag["content"] for tag in page.select(kind)] == [SAID[name]["description"]]


def test_the_landing_page_is_a_course_as_google_asks_for_one(site):
    course = facts(site, FIRST)
    assert (course["@context"], course["@type"]) == ("https://schema.org", "Course")
    assert course["name"] and course["description"] == SAID[FIRST]["description"]
    assert course["provider"]["@type"] == "Organization" and course["provider"]["name"]
    assert [offer["category"] for offer in course["offers"]] == ["Free"]
    (run,) = course["hasCourseInstance"]
    hours = int(re.fullmatch(r"PT(\d+)H", run["courseWorkload"])[1])
    assert run["courseMode"] == "Online"
    assert abs(60 * hours - sum(each.with_exercises for each in CHAPTERS.values())) <= 30
    assert course["inLanguage"] == "en" and course["isAccessibleForFree"] is True
    assert [part["name"] for part in course["syllabusSections"]] == [
        SAID[name]["title"] for name in CHAPTERS
    ]
    assert course["url"] == head(site / "book/00_intro.html").select_one("[rel=canonical]")["href"]
    image = course["image"].removeprefix(course["@id"])
    assert (site / image).exists()


def test_each_chapter_is_a_part_of_the_course_and_no_other_page_is(site):
    course = facts(site, FIRST)
    for name, part in zip(CHAPTERS, course["syllabusSections"], strict=True):
        chapter = facts(site, name)
        assert chapter["@type"] == "LearningResource" and part["@type"] == "Syllabus"
        assert chapter["isPartOf"]["@id"] == course["@id"]
        assert chapter["license"] == course["license"]
        assert chapter["timeRequired"] == f"PT{CHAPTERS[name].with_exercises}M"
        canonical = head(site / f"book/{name}.html").select_one("[rel=canonical]")["href"]
        assert chapter["url"] == part["url"] == canonical
    others = set(PAGES) - set(CHAPTERS) - {FIRST}
    for name in others:
        assert not head(site / f"book/{name}.html").select('script[type="application/ld+json"]')
