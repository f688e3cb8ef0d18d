"""The census of published models: it says what models read by hand do, and its page shows it."""

from __future__ import annotations

import csv
import random
import re
from pathlib import Path

import pytest

from pe_course import census
from tools import ROOT, census_page

SEEDS = {"second": 2026, "third": 54}
ROWS = {(row["library"], row["model"]): row for row in census.read()}
COLUMNS = set(next(iter(ROWS.values()))) - {"library", "model", "year", "method", "evidence"}

# Models drawn at random, each checked by hand in its own files: everything that stands there about
# positions, and nothing else. The first draw is from before timm was read.
with Path(__file__).with_name("census_by_hand.csv").open(encoding="utf-8", newline="") as _file:
    BY_HAND = list(csv.DictReader(_file))


@pytest.mark.parametrize("draw", SEEDS)
def test_the_forty_were_drawn_and_not_chosen(draw: str) -> None:
    read = {(row["library"], row["model"]) for row in BY_HAND if row["draw"] == draw}
    assert read == set(random.Random(SEEDS[draw]).sample(sorted(ROWS), 40))


def test_chapter_16_says_how_many_were_read() -> None:
    read = {(row["library"], row["model"]) for row in BY_HAND}
    told = (ROOT / "book" / "16_today.ipynb").read_text(encoding="utf-8")
    assert f"We checked {len(read)} entries by hand" in told


def test_a_method_left_off_is_not_counted_as_one_that_is_made() -> None:
    for row in ROWS.values():
        if "rotary" in census.values(row, "optional"):
            assert "rotary" not in row["method"] and not row["layout"], row["model"]
        if "ALiBi" in census.values(row, "optional"):
            assert "ALiBi" not in row["method"] and not row["alibi"], row["model"]
    assert {"granitemoehybrid", "zamba2"} <= set(census.having("optional"))


@pytest.mark.parametrize("by_hand", BY_HAND, ids=lambda row: f"{row['library']} {row['model']}")
def test_the_census_agrees_with_the_models_read_by_hand(by_hand: dict[str, str]) -> None:
    row = ROWS[by_hand["library"], by_hand["model"]]
    names = {"method", *COLUMNS} - {"context"}
    assert {name: row[name] for name in names} == {name: by_hand[name] for name in names}


def test_every_finding_names_its_file_and_line() -> None:
    for row in ROWS.values():
        named = {part.split(" ")[0] for part in row["evidence"].split("; ")}
        found = {name for name in COLUMNS if row[name]}
        assert named - {"year", ""} == found, row["model"]
        places = [part.split(" ")[1] for part in row["evidence"].split("; ") if part]
        assert all(re.fullmatch(r"\w+\.py:[1-9]\d*", place) for place in places)


def test_a_cell_is_read_as_values_numbers_and_places() -> None:
    row = {
        "base": "full=1000000 local=10000 | 500",
        "evidence": "year a.py:1; base b.py:2; base c.py:3",
    }
    assert census.values(row, "base") == ["full=1000000 local=10000", "500"]
    assert census.numbers(row, "base") == [1e6, 1e4, 500]
    assert census.evidence(row, "base") == ["b.py:2", "c.py:3"]
    assert census.values({"base": ""}, "base") == census.numbers({"base": ""}, "base") == []
    assert set(census.having("alibi")) == {"bloom", "mpt"}


def test_a_reader_sorts_sifts_and_searches_the_census(browser):
    tab = browser.new_page()
    html = census_page.page().partition("{raw} html")[2].rpartition("```")[0]
    tab.set_content(html)
    shown = (
        "[...document.querySelectorAll('tbody tr:not([hidden])')].map(r => r.cells[0].innerText)"
    )
    models = sorted(row["model"] for row in census.read())
    assert sorted(tab.evaluate(shown)) == models
    tab.fill("input", "rotary deepseek")
    assert {name[:8] for name in tab.evaluate(shown)} == {"deepseek"}
    tab.fill("input", "")
    tab.select_option("select", "sink")
    assert sorted(tab.evaluate(shown)) == sorted(census.having("sink", None))
    tab.select_option("select", "")
    for order in ("ascending", "descending"):
        tab.click("th:nth-child(5) button")  # the base
        bases = tab.evaluate(
            "[...document.querySelectorAll('tbody tr')].map(r => r.cells[4].innerText)"
        )
        plain = [float(base) for base in bases if re.fullmatch(r"[\d.]+", base)]
        assert plain and plain == sorted(plain, reverse=order == "descending")
        assert tab.locator("th:nth-child(5)").get_attribute("aria-sort") == order
        assert not bases[-1]  # a model without one comes last
    tab.close()
