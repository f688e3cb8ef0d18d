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
# The statements that the course was asked to test; `source` in the ledger says which entry does.
NAMES = """
GEN-01 GEN-03 GEN-04 GEN-05 GEN-06 GEN-09 GEN-12 SIN-01 SIN-02 SIN-03 SIN-12 SIN-13 SIN-14
SIN-20 SIN-21 SIN-27 SIN-31 SIN-33 SIN-37 SIN-38 SIN-39 SIN-40 SIN-41 SIN-42 SIN-48 SIN-50
SIN-52 SIN-56 SIN-57 SIN-58 SIN-60 SIN-62 SIN-63 SIN2D-01 SIN2D-04 Q-01 Q-02 Q-03 LRN-01 LRN-04
LRN-06 LRN-03 LRN-10 LRN-15 LRN-16 RPE-03 RPE-05 RPE-06 RPE-07 SHAW-02 SHAW-06 SHAW-09 SHAW-13
SHAW-18 SHAW-25 XLN-01 XLN-02 T5-01 T5-07 T5-12 T5-15 T5-16 T5-20 T5-21 T5-23 T5-24 T5-27 T5-42
T5-40 DEB-01 DEB-04 DEB-06 ALB-01 ALB-02 ALB-04 ROPE-01 ROPE-04 ROPE-07 ROPE-10 ROPE-11 ROPE-19
ROPE-20 ROPE-15 ROPE-16 ROPE-17 ROPE-18 ROPE-27 ROPE-28 ROPE-33 ROPE-35 ROPE-36 SYS-01 SYS-04
SYS-05
"""
ASKED = set(NAMES.split())


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


def test_every_statement_asked_has_an_entry_with_a_cell():
    shown = {claim_id for _, claim_id in ids_in_notebooks(SHOWN, "code")}
    sources = [claim.source for claim in claims.load().values() if claim.id in shown]
    assert len(ASKED) == 94
    assert sorted(ASKED - {name for source in sources for name in source}) == []


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
