"""Moving a chapter: its line in _toc.yml is moved in a copy, and everything follows."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from nbgrader.api import Gradebook

from exercises import checks
from exercises.grade_course import grade_course
from exercises.jobs import Job
from exercises.records import Course
from exercises.sets import load, release_path, set_names, source_path
from tools import ROOT, order, outline, publish

LINK = re.compile(
    r"\]\((\d\d_\w+|hierarchical)\.ipynb(?:#(figure-[\w-]+))?|\{doc\}`(?:[^`<]*<)?(\w+)"
)
SAID = re.compile(r"\[[Cc]hapter\s+(\d+)\]\((\d\d)_")  # both must say the same


def copy_of_the_checkout(folder: Path) -> Path:
    """Copy what git keeps, or would keep."""
    for path in order.checkout():
        copy = folder / path.relative_to(ROOT)
        copy.parent.mkdir(parents=True, exist_ok=True)
        shutil.copy2(path, copy)
    return folder


def copy_with_environment(folder: Path) -> Path:
    """Copy the checkout; the environment is this one, and new enough for make."""
    copy_of_the_checkout(folder)
    (folder / ".venv").mkdir()
    for entry in Path(sys.prefix).iterdir():
        if not entry.name.endswith("-ready"):
            (folder / ".venv" / entry.name).symlink_to(entry)
    for stamp in (".book-ready", ".test-ready"):
        (folder / ".venv" / stamp).touch()
    return folder


def move(folder: Path, name: str, place: int) -> None:
    """Put a chapter's line in _toc.yml where the chapter of a number stands, or after the last."""
    toc = folder / order.TOC
    lines = toc.read_text(encoding="utf-8").splitlines(keepends=True)
    listed = order.chapters(folder)
    own = next(each for each in listed if each[3:] == name)
    line = lines.pop(next(i for i, each in enumerate(lines) if each.endswith(f"/{own}\n")))
    rest = [each for each in listed if each != own]
    after = next(i for i, each in enumerate(lines) if each.endswith(f"/{rest[place - 2]}\n"))
    lines.insert(after + 1, line)
    toc.write_text("".join(lines), encoding="utf-8")


def contents(folder: Path) -> dict[str, bytes]:
    return {
        str(path.relative_to(folder)): path.read_bytes()
        for path in order.checkout(folder)
        if path.name != Path(order.FORMER).name  # it remembers both ways
    }


@pytest.fixture(scope="module")
def copy(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = copy_of_the_checkout(tmp_path_factory.mktemp("course"))
    subprocess.run(["git", "init", "--quiet"], cwd=folder, check=True)
    return folder


@pytest.fixture(scope="module")
def inserted(copy: Path) -> Path:
    """Put the last chapter in the middle, after the one on one table."""
    listed = order.chapters(copy)
    middle = next(int(name[:2]) for name in listed if name[3:] == "one_table")
    last = listed[-1][3:]
    move(copy, last, middle + 1)
    done = subprocess.run(
        [sys.executable, "-m", "tools.order"],
        cwd=copy,
        env=os.environ | {"PYTHONPATH": str(copy)},
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stderr[-3000:]
    assert f"is now {middle + 1:02d}_{last}" in done.stdout
    return copy


def test_a_chapter_moved_there_and_back_leaves_every_byte_as_it_was(copy: Path) -> None:
    before = contents(copy)
    listed = order.chapters(copy)
    name, home = listed[-2][3:], len(listed) - 1
    move(copy, name, 3)
    changed, _ = order.renumber(copy)
    assert changed[listed[-2]] == f"03_{name}"
    assert len(contents(copy)) == len(before)
    move(copy, name, home)
    order.renumber(copy)
    after = contents(copy)
    assert [path for path in before if before[path] != after.get(path)] == []
    assert after.keys() == before.keys()
    assert order.renumber(copy) == ({}, [])


def test_a_chapter_put_in_the_middle_gets_its_number_everywhere(inserted: Path) -> None:
    names = order.chapters(inserted)
    assert [int(name[:2]) for name in names] == list(range(1, len(names) + 1))
    for name in names:
        for file in (
            f"book/{name}.ipynb",
            f"exercises/source/{name}/{name}.ipynb",
            f"exercises/release/{name}/{name}.ipynb",
            f"exercises/checks/ch{name}.py",
            f"tests/mutants/{name}.txt",
        ):
            assert (inserted / file).exists(), file
        number = int(name[:2])
        page = inserted / f"book/{name}.ipynb"
        assert json.loads(page.read_text(encoding="utf-8"))["cells"][0]["source"][0].startswith(
            f"# {number}. "
        )
        figures = outline.outline(page).numbers
        assert list(figures) == [f"{number}.{place}" for place in range(1, len(figures) + 1)]
        checked = (inserted / f"exercises/checks/ch{name}.py").read_text(encoding="utf-8")
        assert f"set {number}:" in checked.splitlines()[0]
        handed_out = (inserted / f"exercises/release/{name}/{name}.ipynb").read_text("utf-8")
        assert f"Exercise set {number} of" in handed_out and f"with chapter {number}." in handed_out
    facts = json.loads((inserted / "lab/data/sets.json").read_text(encoding="utf-8"))["sets"]
    assert [facts[name]["number"] for name in names] == list(range(1, len(names) + 1))


def test_after_a_move_no_old_name_is_left_and_every_link_leads_to_a_page(inserted: Path) -> None:
    now = set(order.chapters(inserted))
    old = {name for name in order.chapters() if name not in now}
    pages = {path.stem for path in (inserted / "book").iterdir()}
    assert old
    for file, data in contents(inserted).items():
        text = data.decode(errors="ignore")
        assert [name for name in old if name in f"{file} {text}"] == []
        if file.startswith("book/") and file.endswith((".md", ".ipynb")):
            for page, figure, document in LINK.findall(text):
                assert (page or document) in pages, file
                assert not figure or figure.split("-")[1] in (str(int(page[:2])), "h"), file
            assert [said for said in SAID.findall(text) if int(said[0]) != int(said[1])] == [], file


def test_lists_of_chapters_stand_in_the_new_order(inserted: Path) -> None:
    names = order.chapters(inserted)
    claims = json.loads((inserted / "book/claims.ipynb").read_text(encoding="utf-8"))["cells"]
    titles = [order.HEADING.match("".join(cell["source"])) for cell in claims]
    without = {"today"}  # whose claims stand with the further designs
    told = [place for place, name in enumerate(names, 1) if name[3:] not in without]
    assert [int(found[2]) for found in titles if found] == told
    counts = [cell["execution_count"] for cell in claims if cell.get("execution_count")]
    assert counts == sorted(counts)
    intro = (inserted / "book/00_intro.ipynb").read_text(encoding="utf-8")
    assert re.findall(r'^    "    \\"(\d\d_\w+)\\": ', intro, re.M) == names
    runtimes = json.loads((inserted / "book/data/runtimes.json").read_text(encoding="utf-8"))
    assert list(runtimes) == sorted(runtimes)


def test_old_addresses_lead_to_the_same_place_on_the_new_page(
    inserted: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(publish, "FORMER", inserted / order.FORMER)
    old, new = (
        next(name for name in order.chapters(folder) if name[3:] == "axes")
        for folder in (ROOT, inserted)
    )
    names = order.chapters(inserted)
    found = publish.moved_pages([f"book/{name}.html" for name in names], "https://x/")
    assert not any(f"book/{name}.html" in found for name in names)
    page = found[f"book/{old}.html"]
    assert f'<a href="{new}.html">' in page
    assert f'"#figure-{int(old[:2])}-", "#figure-{int(new[:2])}-"' in page
    assert f'<link rel="canonical" href="https://x/book/{new}.html">' in page


# --- texts -------------------------------------------------------------------------------------

# Above the course's own numbers: this file is renumbered with all others.
NAMES = {"31_one": "31_one", "32_two": "33_two", "33_three": "34_three", "34_four": "32_four"}


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("chapter 32, set 33 and Chapter\n34.", "chapter 33, set 34 and Chapter\n32."),
        ("[chapter 32](32_two.ipynb)", "[chapter 33](33_two.ipynb)"),
        ("[34. Four](34_four.ipynb)", "[32. Four](32_four.ipynb)"),
        ("{doc}`32 <32_two>`, ch34_four", "{doc}`33 <33_two>`, ch32_four"),
        ("chapters 31 and 34", "chapters 31 and 32"),
        ("chapters 32, 33 and 34", "chapters 32, 33 and 34"),
        ("chapters 32 and 33", "chapters 33 and 34"),
        ("chapters 32 to 34", "chapters 32 to 34"),
        ("chapters 32–33", "chapters 33–34"),
        ("chapters 31 to 32", "chapters 31 to 32"),  # one and three of four: only a person can say
        ("Figure 32.1, Figures 33.2 and 34.1", "Figure 33.1, Figures 34.2 and 32.1"),
        ('number="34.3" #figure-34-3', 'number="32.3" #figure-32-3'),
        ("# as in chapter\n# 34", "# as in chapter\n# 32"),
        ('"33_three": 31,\n"34_four": 32,\n', '"32_four": 32,\n"34_three": 31,\n'),
        (
            "| 33 | [A](33_three.ipynb) |\n| 34 | [B](34_four.ipynb) |",
            "| 32 | [B](32_four.ipynb) |\n| 34 | [A](34_three.ipynb) |",
        ),
        # Not a chapter's number.
        ("32 chapters, a set of 32, chapter 32.5, set 32 % aside, exercise 32, 34_fourth", None),
        ("| 32 | [32](32_two.ipynb): two |", "| 32 | [33](33_two.ipynb): two |"),  # a plan's week
        ("[32](34_four.ipynb)", "[32](32_four.ipynb)"),
    ],
)  # fmt: skip
def test_numbers_of_chapters_follow_and_other_numbers_stay(old: str, new: str | None) -> None:
    assert order.Renumbering(NAMES).text(old) == (old if new is None else new)


@pytest.mark.parametrize(
    ("text", "own", "said"),
    [
        ("Read chapters 31 to 32.", "", ["Read chapters 31 to 32."]),  # no longer together
        ("Read chapters 32 to 33.", "", []),
        ("as chapter 34 will show", "32_two", ["as chapter 34 will show"]),  # it stands before now
        ("as chapter 31 has shown", "32_two", []),
        ("see [there](32_two.ipynb)", "34_four", ["see [there](32_two.ipynb)"]),
        ("in the next chapter", "31_one", ["in the next chapter"]),
        ("[33](33_three.md), [34](34_four.md)", "", ["[33](33_three.md), [34](34_four.md)"]),
    ],
)  # fmt: skip
def test_what_hangs_on_the_order_is_named_for_a_person_to_read(
    text: str, own: str, said: list[str]
) -> None:
    assert list(order.Renumbering(NAMES).doubts(text, own)) == said


@pytest.fixture
def small(tmp_path: Path) -> Path:
    (tmp_path / "book").mkdir()
    for name in ("00_intro", "01_one", "02_two"):
        (tmp_path / f"book/{name}.ipynb").write_text('{"cells": []}')
    return tmp_path


@pytest.mark.parametrize(
    ("lines", "said"),
    [
        (["01_one", "02_two", "03_three"], r"lists book/03_three, but there is no .*\.ipynb"),
        (["01_one"], "has no line for book/02_two"),
        (["01_one", "02_two", "01_one"], "lists 'one' more than once"),
    ],
)
def test_lines_that_give_no_order_are_refused_and_nothing_is_written(
    lines: list[str], said: str, small: Path
) -> None:
    (small / order.TOC).write_text("".join(f"  - file: book/{name}\n" for name in lines))
    before = {path: path.read_bytes() for path in small.rglob("*") if path.is_file()}
    with pytest.raises(order.OrderError, match=said):
        order.renumber(small)
    assert before == {path: path.read_bytes() for path in small.rglob("*") if path.is_file()}


def test_a_name_that_something_holds_is_not_written_over(small: Path) -> None:
    subprocess.run(["git", "init", "--quiet"], cwd=small, check=True)
    (small / order.TOC).write_text("  - file: book/02_two\n  - file: book/01_one\n")
    kept = small / "exercises/source/02_one/notes.txt"
    kept.parent.mkdir(parents=True)
    kept.write_text("mine")
    with pytest.raises(order.OrderError, match="exercises/source/02_one is in the way of 01_one"):
        order.renumber(small)
    assert kept.read_text() == "mine" and (small / "book/01_one.ipynb").exists()


# --- a class that has begun --------------------------------------------------------------------


SET = next(name for name in set_names() if name[3:] == "learned")
KNOWN = f"77{SET[2:]}"  # as a class knows it


@pytest.mark.usefixtures("sandbox")
def test_a_set_with_an_earlier_number_is_graded_under_the_name_that_the_class_knows(
    tmp_path: Path,
) -> None:
    for student, path in (("ann", source_path(SET)), ("bob", release_path(SET))):
        folder = tmp_path / "submitted" / student / KNOWN
        folder.mkdir(parents=True)
        shutil.copy(path, folder / f"{KNOWN}.ipynb")
    shutil.copytree(tmp_path / "submitted/ann" / KNOWN, tmp_path / "submitted/ann" / SET)
    course = Course(tmp_path)
    found, left_alone = course.submissions()
    assert found == [("ann", SET), ("bob", KNOWN)]
    assert left_alone == [
        f"'submitted/ann/{KNOWN}': it is the same set as {SET}, with another number"
    ]
    shutil.rmtree(tmp_path / "submitted/ann" / SET)
    records, problems = grade_course(course, [SET], Job("", "", None, secret=course.secret()), 1)
    assert problems == []
    assert [(each["student"], each["set"]) for each in records] == [("ann", KNOWN), ("bob", KNOWN)]
    assert [each["points"] for each in records] == [load(SET).points, 0.0]
    with Gradebook(f"sqlite:///{tmp_path}/gradebook.db") as book:
        assert [assignment.name for assignment in book.assignments] == [KNOWN]


def test_a_notebook_handed_out_under_an_earlier_number_still_finds_its_checks(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = tmp_path / KNOWN
    folder.mkdir()
    monkeypatch.chdir(folder)
    checks.progress(KNOWN)
    assert f"{SET}: 0 of {len(load(SET).questions)}" in capsys.readouterr().out
    assert (tmp_path / checks.kept.NAME).exists()  # beside the folders of all sets


@pytest.mark.parametrize("name", ["77_nothing", "77_", "learned", "hierarchical_"])
def test_no_other_name_is_taken_for_a_set(name: str) -> None:
    with pytest.raises(ValueError, match="no exercise set"):
        load(name)
