"""Chapters and sets that had another number: old addresses lead on, a class keeps its names."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest
import yaml
from nbgrader.api import Gradebook

from browsing import Visit, open_page
from exercises import checks
from exercises.grade_course import grade_course
from exercises.jobs import Job
from exercises.records import Course
from exercises.sets import load, release_path, set_names, source_path
from tools import ROOT

SET = next(name for name in set_names() if name[3:] == "learned")
KNOWN = f"77{SET[2:]}"  # as a class knows it
CONFIG = yaml.safe_load((ROOT / "_config.yml").read_text(encoding="utf-8"))["sphinx"]["config"]
# Addresses that were published once. A line may be added and none may go.
PUBLISHED = {
    "12_axes", "12_context_extension", "13_axes", "13_choosing", "14_bakeoff", "14_multimodal",
    "14_today", "15_bakeoff", "15_today", "16_bakeoff", "16_clinic", "17_choosing", "17_clinic",
    "18_choosing", "18_multimodal",
}  # fmt: skip


@pytest.mark.usefixtures("sandbox")
def test_a_class_keeps_its_set(tmp_path: Path) -> None:
    for student, path in (("ann", source_path(SET)), ("bob", release_path(SET))):
        folder = tmp_path / "submitted" / student / KNOWN
        folder.mkdir(parents=True)
        shutil.copy(path, folder / f"{KNOWN}.ipynb")
    shutil.copytree(tmp_path / "submitted/ann" / KNOWN, tmp_path / "submitted/ann" / SET)
    course = Course(tmp_path)
    submissions, left_alone = course.submissions()
    assert submissions == [("ann", SET), ("bob", KNOWN)]
    assert left_alone == [
        f"'submitted/ann/{KNOWN}': it is the same set as {SET}, with another number"
    ]
    shutil.rmtree(tmp_path / "submitted/ann" / SET)
    records, problems = grade_course(course, [SET], Job("", "", None, secret=course.secret()), 1)
    assert problems == []
    graded = [(record["student"], record["set"], record["points"]) for record in records]
    assert graded == [("ann", KNOWN, load(SET).points), ("bob", KNOWN, 0.0)]
    with Gradebook(f"sqlite:///{tmp_path}/gradebook.db") as book:
        assert [assignment.name for assignment in book.assignments] == [KNOWN]


def test_an_old_notebook_finds_its_checks(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = tmp_path / KNOWN
    folder.mkdir()
    monkeypatch.chdir(folder)
    monkeypatch.setattr("pe_course.judge.exercise.FOUND", {})
    checks.progress(KNOWN)
    assert f"{SET}: 0 of {len(load(SET).questions)}" in capsys.readouterr().out
    assert (tmp_path / checks.kept.NAME).exists()  # beside the folders of all sets


@pytest.mark.parametrize("name", ["77_nothing", "77_", "learned", "hierarchical_"])
def test_no_other_name_is_a_set(name: str) -> None:
    with pytest.raises(ValueError, match="no exercise set"):
        load(name)


def test_old_addresses_lead_to_their_chapter() -> None:
    moved = CONFIG["redirects"]
    assert {f"book/{name}" for name in PUBLISHED} <= set(moved)
    for old, new in moved.items():
        page = f"book/{Path(new).stem}"
        assert old.partition("_")[2] == page.partition("_")[2]
        assert (ROOT / f"{page}.ipynb").exists() and not (ROOT / f"{old}.ipynb").exists()


def test_an_old_address_keeps_its_place(browser, address) -> None:
    """What a reader chose, and the figure, whose name begins with the chapter's number."""
    for place, expected in [
        ("?a=1#figure-12-1?m=4", "?a=1#figure-13-1?m=4"),
        ("#questions", "#questions"),
        ("", ""),
    ]:
        visit = Visit()
        old = f"{address}book/12_context_extension.html{place}"
        with open_page(browser, old, address, visit) as page:
            page.wait_for_url("**/13_context_extension.html*")
            assert page.url == f"{address}book/13_context_extension.html{expected}"


def test_old_anchors_lead_to_where_the_same_stands_now(site) -> None:
    former = json.loads((ROOT / "book/_ext/former_anchors.json").read_text(encoding="utf-8"))
    assert len(former["10_rope"]) > 8
    for page, anchors in former.items():
        html = (site / f"book/{page}.html").read_text(encoding="utf-8")
        for old, now in anchors.items():
            end = "" if now.endswith(".") else '"'  # or a module, with all that is in it
            assert f'id="{old}{end}' in html and f'id="{now}{end}' in html, (page, old)
