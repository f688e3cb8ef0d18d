"""Claims: a verdict is enforced, and ledger and notebooks match one to one."""

from __future__ import annotations

import functools
import json
import re
from dataclasses import replace
from pathlib import Path

import pytest
import yaml

from pe_course.page import claims
from tools import ROOT

BOOK = ROOT / "book"
SHOWN = re.compile(r"claims\.show\(\s*\"([^\"]+)\"")
TARGET = re.compile(r'^<a id="claim-([\w-]+)"></a>$', re.MULTILINE)
SECTION = re.compile(r"^## (\d+)\. ", re.MULTILINE)  # of a chapter, on a page of claims


@functools.cache
def ids_in_notebooks(pattern: re.Pattern[str], cell_type: str) -> list[tuple[str, str]]:
    """Return (chapter, id) for each match in cells of one type."""
    found = []
    for path in sorted(BOOK.glob("*.ipynb")):
        for cell in json.loads(path.read_text(encoding="utf-8"))["cells"]:
            if cell["cell_type"] == cell_type:
                found += [(path.stem, match) for match in pattern.findall("".join(cell["source"]))]
    return found


def place_of(claim: claims.Claim) -> set[str]:
    """Return where a claim may be tested: in its chapter, or on a page with a section for it."""
    sections = ids_in_notebooks(SECTION, "markdown")
    pages = {page for page, number in sections if f"{number:0>2}_" == claim.chapter[:3]}
    return {claim.chapter} | pages - {"claims"}


def write_ledger(folder: Path, **changes: object) -> Path:
    entry = {"id": "x", "chapter": "01_attention", "claim": "c"}
    entry |= {"verdict": "false", "correct": "d", "source": ["S-1"]}
    path = folder / "claims.yml"
    path.write_text(yaml.safe_dump([{**entry, **changes}]), encoding="utf-8")
    return path


@pytest.mark.parametrize(("pattern", "kind"), [(SHOWN, "code"), (TARGET, "markdown")])
def test_every_claim_has_one_cell_and_one_link_target_on_one_page(pattern, kind):
    found = sorted((claim_id, page) for page, claim_id in ids_in_notebooks(pattern, kind))
    assert [claim_id for claim_id, _ in found] == sorted(claims.load())
    assert [(i, page) for i, page in found if page not in place_of(claims.find(i))] == []
    assert [f"{page}.ipynb#claim-{i}" for i, page in found] == [
        claims.link(claims.find(i)) for i, _ in found
    ]


def test_a_claims_cell_and_its_target_stand_on_the_same_page():
    cells = {(claim_id, page) for page, claim_id in ids_in_notebooks(SHOWN, "code")}
    targets = {(claim_id, page) for page, claim_id in ids_in_notebooks(TARGET, "markdown")}
    assert cells == targets


def test_every_claim_names_its_source():
    assert all(claim.source for claim in claims.load().values())


def test_a_finding_that_contradicts_the_verdict_is_refused(tmp_path, monkeypatch):
    monkeypatch.setattr(claims, "LEDGER", write_ledger(tmp_path))
    monkeypatch.setattr(claims, "load", lambda: claims.read(claims.LEDGER))
    claims.show("x", holds=False, measured="m")
    with pytest.raises(AssertionError, match="verdict 'false'"):
        claims.show("x", holds=True, measured="m")
    with pytest.raises(AssertionError, match="holds=None"):
        claims.show("x", holds=None, measured="m")


def test_an_opinion_is_neither_true_nor_false(tmp_path, monkeypatch):
    path = write_ledger(tmp_path, verdict="opinion")
    monkeypatch.setattr(claims, "load", lambda: claims.read(path))
    claims.show("x", holds=None, measured="m")
    with pytest.raises(AssertionError):
        claims.show("x", holds=True, measured="m")


def test_a_box_asks_its_question_and_links_to_who_says_it():
    plain = claims.Claim("x", "01_attention", "c", "false", "d", ("S-1",))
    asked = replace(plain, question="Is it so?", after="Ada", url="https://a.org/said")
    assert claims.heading(plain) == "**Claim, false:** c"
    assert claims.heading(asked).endswith("false:** c (After [Ada](https://a.org/said).)")


def test_an_id_that_stands_twice_is_refused(tmp_path):
    path = write_ledger(tmp_path)
    path.write_text(path.read_text(encoding="utf-8") * 2, encoding="utf-8")
    with pytest.raises(ValueError, match="stands twice"):
        claims.read(path)


def test_the_list_of_a_chapter_links_to_every_cell(monkeypatch):
    seen = []
    monkeypatch.setattr("pe_course.page.display", lambda item: seen.append(item.data))
    claims.table("01_attention")
    for claim in claims.load().values():
        assert (f"({claims.link(claim)})" in seen[0]) == (claim.chapter == "01_attention")
