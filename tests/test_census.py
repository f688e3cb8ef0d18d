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


SHOWN = "[...document.querySelectorAll('tbody tr:not([hidden])')].map(r => r.cells[{}].innerText)"


def test_a_reader_sorts_sifts_and_searches_the_census(browser):
    tab = browser.new_page()
    html = census_page.page().partition("{raw} html")[2].rpartition("```")[0]
    tab.set_content(html)
    models = sorted(row["model"] for row in census.read())
    assert sorted(tab.evaluate(SHOWN.format(0))) == models
    tab.fill("input", "rotary deepseek")
    assert {name[:8] for name in tab.evaluate(SHOWN.format(0))} == {"deepseek"}
    for said in ("12000000", "12,000,000"):
        tab.fill("input", said)
        assert "apertus" in tab.evaluate(SHOWN.format(0))
    tab.fill("input", "")
    tab.select_option("[name=designs]", "sink")
    assert sorted(tab.evaluate(SHOWN.format(0))) == sorted(census.having("sink", None))
    tab.select_option("[name=designs]", "")
    for key, order in (("Enter", "ascending"), ("Space", "descending")):
        tab.press("th:has-text('Base') button", key)
        bases = [base.replace(",", "") for base in tab.evaluate(SHOWN.format(3))]
        plain = [float(base) for base in bases if re.fullmatch(r"[\d.]+", base)]
        assert plain and plain == sorted(plain, reverse=order == "descending")
        assert tab.locator("th:has-text('Base')").get_attribute("aria-sort") == order
        assert tab.locator("th[aria-sort=none]").count() == len(census_page.HEAD) - 1
        assert not bases[-1]  # a model without one comes last
    tab.close()


@pytest.mark.parametrize("name", ["positions", "library"])
def test_a_choice_keeps_the_models_that_have_it_by_default(name, browser):
    tab = browser.new_page()
    tab.set_content(census_page.page().partition("{raw} html")[2].rpartition("```")[0])
    column = {"positions": "method"}.get(name, name)
    for value in {value for row in census.read() for value in census.values(row, column)}:
        tab.select_option(f"[name={name}]", value)
        having = [row["model"] for row in census.read() if value in census.values(row, column)]
        assert sorted(tab.evaluate(SHOWN.format(0))) == sorted(having), value
    tab.close()


@pytest.mark.parametrize("where", ["served", "file"])
def test_the_address_of_a_view_leads_back_to_it(where, site, address, browser):
    file = site / "book" / "census.html"
    tab, again = browser.new_page(), browser.new_page()
    tab.goto(f"{address}book/census.html" if where == "served" else file.as_uri())
    plain = tab.url
    tab.fill("#census input", "qwen & moe")
    tab.fill("#census input", "qwen")
    tab.select_option("[name=positions]", "rotary")
    tab.select_option("[name=library]", "transformers")
    tab.click("th:has-text('Context') button")
    tab.click("th:has-text('Context') button")
    shown = tab.evaluate(SHOWN.format(0))
    again.goto(tab.url)
    assert again.evaluate(SHOWN.format(0)) == shown and 5 < len(shown) < 100
    assert again.locator("th:has-text('Context')").get_attribute("aria-sort") == "descending"
    assert again.input_value("#census input") == "qwen"
    assert again.input_value("[name=library]") == "transformers"
    again.evaluate("location.hash = ''")
    again.wait_for_function("document.querySelector('#census output').value === '674 models'")
    for name in ("positions", "library"):
        tab.select_option(f"[name={name}]", "")
    tab.fill("#census input", "")
    assert tab.url == f"{plain}#census?sort=-context"
    tab.close()
    again.close()


def edges(tab) -> list[list[float]]:
    """Return where the box of the census and its heads begin and end."""
    return tab.evaluate(
        "[...document.querySelectorAll('#census > div, #census th')]"
        ".map(e => e.getBoundingClientRect()).map(e => [e.left, e.right])"
    )


@pytest.mark.parametrize("width", [320, 390])
def test_positions_stand_beside_the_name_on_a_phone(width, address, browser):
    tab = browser.new_page()
    tab.set_viewport_size({"width": width, "height": 844})
    tab.goto(f"{address}book/census.html")
    box, model, positions, *_ = edges(tab)
    assert positions[0] == pytest.approx(model[1]) and positions[1] <= box[1]
    assert model[1] - model[0] <= 0.41 * (box[1] - box[0])
    tab.close()


def test_all_columns_are_in_sight_at_a_desk(address, browser):
    tab = browser.new_page()
    tab.set_viewport_size({"width": 1440, "height": 900})
    tab.goto(f"{address}book/census.html")
    box, *heads = edges(tab)
    assert len(heads) == len(census_page.HEAD) and heads[-1][1] <= box[1] <= 1440
    tab.close()


def test_the_whole_census_is_there_without_scripts(address, browser):
    context = browser.browser.new_context(java_script_enabled=False)
    tab = context.new_page()
    tab.goto(f"{address}book/census.html")
    assert tab.locator("#census tbody tr:visible").count() == len(census.read())
    assert tab.locator("#census :is(input, select):visible").count() == 0
    context.close()


def test_numbers_are_written_in_full_and_can_be_read():
    said = {census_page.in_words(row[c]) for row in census.read() for c in ("base", "context")}
    assert {"12,000,000", "11,158,840", "1,000,000 (full) 10,000 (sliding)"} <= said
    assert not any(re.search(r"\d{4}|[=|_]", each) for each in said)
