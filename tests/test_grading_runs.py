"""A run over a course folder spreads over processes, and loses nothing it found."""

from __future__ import annotations

import csv
import errno
import functools
import json
import os
import re
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from datetime import datetime
from html import unescape
from pathlib import Path
from typing import Any

import pytest
import stub_workers
from nbgrader import api
from nbgrader.api import Gradebook
from nbgrader.apps import NbGraderAPI
from nbgrader.auth import Authenticator
from nbgrader.coursedir import CourseDirectory
from nbgrader.exchange import default as exchange
from nbgrader.exchange.default import Exchange
from stub_workers import get_stuck, kill_for_eve
from traitlets.config import Config

from exercises import build
from exercises.grade_course import Outcome, grade_course, in_pool, main
from exercises.jobs import Graded, Job, Verdict
from exercises.notebook import open_answers, parse, restore
from exercises.records import Course, find_alembic
from exercises.sets import HERE, load, release_path, source_path
from exercises.summary import page
from exercises.tables import Change, cell_text, changes_between, write_tables
from exercises.usage import descendants
from tools import ROOT

pytestmark = pytest.mark.usefixtures("sandbox")
NAME = "03_learned"


@pytest.fixture(scope="module", autouse=True)
def alembic_is_asked_once() -> Iterator[None]:
    """Whenever it makes a database, nbgrader starts a program to be told the newest form of one."""
    with pytest.MonkeyPatch.context() as patch:
        ask = functools.cache(api.get_alembic_version)
        patch.setattr("nbgrader.api.get_alembic_version", ask)
        yield


def make_class(root: Path, size: int) -> Course:
    """Write a class in which every other student hands in the solution."""
    for number in range(size):
        folder = root / "submitted" / f"student{number:03d}" / NAME
        folder.mkdir(parents=True)
        path = source_path(NAME) if number % 2 == 0 else release_path(NAME)
        shutil.copy(path, folder / f"{NAME}.ipynb")
    return Course(root)


def start_and_get_stuck(root: Path, student: str) -> subprocess.Popen[str]:
    """Grade a class in another process, until a student's code has begun that never ends."""
    (root / "stuck").unlink(missing_ok=True)
    process = subprocess.Popen(
        [sys.executable, stub_workers.__file__, str(root), student],
        stderr=subprocess.PIPE, stdout=subprocess.DEVNULL, text=True, start_new_session=True,
    )  # fmt: skip
    deadline = time.monotonic() + 300
    while not (root / "stuck").exists() and process.poll() is None and time.monotonic() < deadline:
        time.sleep(0.05)
    return process


def still_there(pids: list[int]) -> bool:
    return any(Path(f"/proc/{pid}").exists() for pid in pids)


def stamps(root: Path) -> dict[str, int]:
    """Return when each record was written."""
    found = root.glob(f"records/*/{NAME}/{NAME}.json")
    return {path.parts[-3]: path.stat().st_mtime_ns for path in found}


def test_an_interrupted_and_a_killed_run_are_taken_up_where_they_stopped(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The next run keeps what was found. Ctrl-C says so; of a killed run nothing lives on."""
    course = make_class(tmp_path, 3)
    interrupted = start_and_get_stuck(tmp_path, "student001")
    os.killpg(interrupted.pid, signal.SIGINT)
    _, said = interrupted.communicate(timeout=60)
    assert interrupted.returncode == 130, said
    assert "Traceback" not in said
    assert "Interrupted. The same command goes on where it stopped." in said
    first = stamps(tmp_path)
    assert list(first) == ["student000"]
    killed = start_and_get_stuck(tmp_path, "student002")
    started = descendants(killed.pid)
    killed.kill()
    killed.wait()
    deadline = time.monotonic() + 20
    while still_there(started) and time.monotonic() < deadline:
        time.sleep(0.1)
    # A worker, what multiprocessing adds, the zygote, three processes of the sandbox, a student's.
    assert len(started) >= 6 and not still_there(started)
    kept = stamps(tmp_path)
    assert sorted(kept) == ["student000", "student001"]
    assert kept["student000"] == first["student000"]
    monkeypatch.setattr("exercises.grade_course.fill_gradebook", lambda *_: None)
    monkeypatch.setattr(
        "exercises.grade_course.in_pool", lambda jobs, _: enumerate(map(get_stuck, jobs))
    )
    base = Job("", "", None, secret=course.secret())
    records, problems = grade_course(course, [NAME], base, workers=1)
    assert kept.items() < stamps(tmp_path).items()
    assert problems == [] and len(records) == 3


def hand_in(root: Path, student: str, name: str, text: str = "") -> Path:
    """Hand in a file, by default one that is no notebook and quickly graded."""
    path = root / "submitted" / student / name / f"{name}.ipynb"
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)
    return path.parent


@pytest.fixture
def no_gradebook(one_process: None, monkeypatch: pytest.MonkeyPatch) -> None:
    """And do not open nbgrader's database, which takes seconds."""
    monkeypatch.setattr("exercises.grade_course.fill_gradebook", lambda *_: None)


def rows(root: Path) -> list[dict[str, str]]:
    """Return the lines of submissions.csv."""
    with (root / "submissions.csv").open(encoding="utf-8") as file:
        return list(csv.DictReader(file))


@pytest.mark.usefixtures("no_gradebook")
def test_grading_one_set_keeps_the_results_of_the_others(tmp_path: Path) -> None:
    """Week by week, the CSV and the summary grow."""
    for name in ("02_sinusoidal", NAME):
        hand_in(tmp_path, "ann", name)
        assert main([str(tmp_path), "--set", name]) == 0
    assert [row["set"] for row in rows(tmp_path)] == ["02_sinusoidal", NAME]
    summary = (tmp_path / "summary.html").read_text(encoding="utf-8")
    assert "<h2>02_sinusoidal</h2>" in summary and f"<h2>{NAME}</h2>" in summary


def graded_record(
    student: str, seconds: float, **answers: tuple[float, str, str]
) -> dict[str, Any]:
    """Return a record as it is kept, with the points, the word and the message of each question."""
    verdicts = [
        {"question": name, "points": points, "word": word, "message": message}
        for name, (points, word, message) in answers.items()
    ]
    points = sum(points for points, _, _ in answers.values())
    return {"student": student, "set": NAME, "points": points, "max_points": 10.0,
            "seconds": seconds, "verdicts": verdicts}  # fmt: skip


def test_the_summary_counts_right() -> None:
    """Means, bars, verdicts and reasons of three records; points by hand count."""
    flipped = (0.0, "wrong answer", "the rows are flipped")
    crash = (0.0, "crash", "KeyError")
    right = {"rows_used": 2.0, "resize_grid": 3.0, "unstretched": 5.0}
    ann = graded_record("ann", 1.0, **{name: (top, "ok", "") for name, top in right.items()})
    bob = graded_record("bob", 2.0, rows_used=flipped, resize_grid=(3.0, "ok", ""),
                        unstretched=flipped) | {"counts": 4.5}  # fmt: skip
    eve = graded_record("eve", 6.0, rows_used=flipped, resize_grid=crash, unstretched=crash)
    summary = page([ann, bob, {**eve, "late": 5400.0}])
    assert "<p>3 submissions, mean 4.8 of 10 points, 3.0 s each.</p>" in summary
    cells = [re.findall(r"<t[hd][^>]*>(.*?)</t[hd]>", row) for row in summary.split("<tr>")]
    lines = [" | ".join(re.sub("<[^>]*>", "", cell) for cell in row).strip() for row in cells]
    bars = [line for line in lines if " to " in line]
    assert bars == [f"{i} to {i + 1} | {int(i in (0, 4, 9))} |" for i in range(10)]
    for line in (
        "exercise | ok | wrong answer | not answered | crash | time-out | malformed",
        "rows_used | 1 | 2 | 0 | 0 | 0 | 0",
        "resize_grid | 2 | 0 | 0 | 1 | 0 | 0",
        "unstretched | 1 | 1 | 0 | 1 | 0 | 0",
        "rows_used | 2 | wrong answer: the rows are flipped",
        "unstretched | 1 | crash: KeyError",
        "ann | 10 / 10 | ok, ok, ok |  |",
        "bob | 4.5 / 10 (by hand; 3 found) | wrong answer, ok, wrong answer |  |",
        "eve | 0 / 10 | wrong answer, crash, crash |  | 1.5",
    ):
        assert lines.count(line) == 1, line


@pytest.mark.usefixtures("no_gradebook")
def test_a_part_that_is_right_keeps_its_points(tmp_path: Path) -> None:
    """Where the text gives points for parts."""
    text = source_path("07_t5").read_text(encoding="utf-8")
    past = "torch.tensor(firsts(-relative, 0))"
    assert text.count(past) == 1
    hand_in(tmp_path, "ann", "07_t5", text.replace(past, "torch.tensor([0])"))
    assert main([str(tmp_path)]) == 0
    with (tmp_path / "answers.csv").open(encoding="utf-8") as file:
        rows = {row["exercise"]: row for row in csv.DictReader(file)}
    assert rows["edges_of"]["verdict"] == "wrong answer"
    assert float(rows["edges_of"]["points"]) == 2.0


@pytest.mark.usefixtures("no_gradebook")
def test_a_student_can_be_graded_again(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Though nothing has changed; the others are not, and an unknown one is named."""
    for student in ("ann", "bob"):
        hand_in(tmp_path, student, NAME)
    assert main([str(tmp_path)]) == 0
    records = {name: tmp_path / f"records/{name}/{NAME}/{NAME}.json" for name in ("ann", "bob")}
    before = {name: path.stat().st_mtime_ns for name, path in records.items()}
    assert main([str(tmp_path), "--again", "ann"]) == 0
    changed = [name for name, path in records.items() if path.stat().st_mtime_ns != before[name]]
    assert changed == ["ann"]
    assert main([str(tmp_path), "--again", "eve"]) == 2
    assert "again: 'eve' has handed in nothing" in capsys.readouterr().err


@pytest.mark.usefixtures("one_process")
def test_the_time_of_handing_in_reaches_the_gradebook(tmp_path: Path) -> None:
    """nbgrader's timestamp.txt; one that cannot be read counts as none."""
    for student, text in (("ann", "2026-10-05 14:30:00 Europe/Paris"), ("bob", "noon " * 30)):
        (hand_in(tmp_path, student, NAME) / "timestamp.txt").write_text(text)
    os.mkfifo(hand_in(tmp_path, "eve", NAME) / "timestamp.txt")
    assert main([str(tmp_path)]) == 0
    assert [row["handed_in"] for row in rows(tmp_path)] == ["2026-10-05 12:30:00", "", ""]
    with Gradebook(f"sqlite:///{tmp_path}/gradebook.db") as book:
        assert str(book.find_submission(NAME, "ann").timestamp) == "2026-10-05 12:30:00"
        assert book.find_submission(NAME, "bob").timestamp is None


# A filler that is a letter, a mark that changes no letter, spaces that a table does not keep.
LOOK_LIKE_ANN = ("ann\u3164", "ann\ufe0f", "ann ", " ann", "a\u2800nn")


@pytest.mark.usefixtures("no_gradebook")
def test_what_is_left_alone_is_said(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """A misspelt set, a link, a name with invisible letters, a file at another level.

    They stop nothing; the exit status says that not all was graded.
    """
    hand_in(tmp_path, "ann", NAME)
    assert main([str(tmp_path)]) == 0
    hand_in(tmp_path, "bob", "3_learned")
    hand_in(tmp_path, "bell\a", NAME)
    hand_in(tmp_path, "an\u200dn", NAME)
    hand_in(tmp_path, "b\udcffb", NAME)
    for name in LOOK_LIKE_ANN:
        hand_in(tmp_path, name, NAME)
    (tmp_path / "submitted/eve").symlink_to("/etc")
    (tmp_path / "submitted/nora.ipynb").write_text("{}")
    (tmp_path / "submitted/ann" / f"{NAME}.ipynb").write_text("{}")
    (tmp_path / "submitted/.DS_Store").touch()
    assert main([str(tmp_path)]) == 1
    assert [row["student"] for row in rows(tmp_path)] == ["ann"]
    said = capsys.readouterr().err
    assert "'submitted/bob/3_learned': there is no set of that name" in said
    assert said.count("submitted/eve") == 2  # in one line, whatever lies behind the link
    assert "'submitted/eve' is no folder; a submission is 'submitted/eve/SET/SET.ipynb'" in said
    unseen = [ascii(name)[1:-1] for name in LOOK_LIKE_ANN]
    for name in ("bell\\x07", "an\\u200dn", "b\\udcffb", *unseen):
        assert f"'submitted/{name}/{NAME}': a student's name has visible letters only" in said
    assert "'submitted/nora.ipynb' is no folder; a submission is 'submitted/nora/SET" in said
    assert f"'submitted/ann/{NAME}.ipynb' is no folder; a submission is a file in one" in said
    assert ".DS_Store" not in said


@pytest.fixture
def bob_is_hidden(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[[], None]]:
    """A function that takes all rights to bob's folder, which root needs telling of."""
    folder, scandir = tmp_path / "submitted/bob", os.scandir

    def refuse(path: Any) -> Any:
        if Path(path) == folder:
            raise PermissionError(errno.EACCES, "Permission denied", str(path))
        return scandir(path)

    def hide() -> None:
        folder.chmod(0)
        monkeypatch.setattr("exercises.records.os.scandir", refuse)

    yield hide
    folder.chmod(0o755)


@pytest.mark.usefixtures("one_process")
def test_a_folder_that_cannot_be_read_is_no_withdrawal(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], bob_is_hidden: Callable[[], None]
) -> None:
    """It is named, and the grade that was found earlier stays everywhere, lateness included."""
    for student in ("ann", "bob"):
        folder = hand_in(tmp_path, student, NAME)
    (folder / "timestamp.txt").write_text("2026-10-05 12:30:00 UTC")
    assert main([str(tmp_path)]) == 0
    before = rows(tmp_path)
    bob_is_hidden()
    capsys.readouterr()
    assert main([str(tmp_path)]) == 1
    assert rows(tmp_path) == before and len(before) == 2
    assert capsys.readouterr().err == (
        "Left alone: 'submitted/bob' cannot be read (Permission denied)\n"
    )
    with Gradebook(f"sqlite:///{tmp_path}/gradebook.db") as book:
        assert len(book.assignment_submissions(NAME)) == 2


@pytest.mark.usefixtures("no_gradebook")
def test_two_runs_in_one_folder_do_not_meet(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """The second is told to wait before it draws a secret of its own."""
    hand_in(tmp_path, "ann", NAME)
    with Course(tmp_path).alone():
        assert main([str(tmp_path)]) == 2
    assert "is being graded by another run; wait until it has ended" in capsys.readouterr().err
    assert not (tmp_path / ".grader_secret").exists()
    assert main([str(tmp_path)]) == 0


@pytest.mark.parametrize("given", ["seconds 0", "seconds -1", "seconds nan", "seconds inf",
                                   "workers 0", "workers -1"])  # fmt: skip
def test_numbers_that_bound_nothing_are_refused(
    tmp_path: Path, given: str, capsys: pytest.CaptureFixture[str]
) -> None:
    name, number = given.split()
    assert main([str(tmp_path), f"--{name}={number}"]) == 2
    assert f"--{name} must be a number above 0; got {number}" in capsys.readouterr().err


@pytest.mark.usefixtures("no_gradebook")
def test_what_was_deleted_is_made_again(tmp_path: Path) -> None:
    """Pages, notebooks and records, also where nbgrader's timestamp goes beside them."""
    (hand_in(tmp_path, "ann", NAME) / "timestamp.txt").write_text("2026-10-05 12:30:00 UTC")
    assert main([str(tmp_path)]) == 0
    for folder in ("feedback", "autograded", "records"):
        before = sorted(tmp_path.glob(f"{folder}/ann/*/*"))
        shutil.rmtree(tmp_path / folder)
        assert main([str(tmp_path)]) == 0
        assert sorted(tmp_path.glob(f"{folder}/ann/*/*")) == before != []


@pytest.mark.usefixtures("no_gradebook")
@pytest.mark.parametrize("text", ["[]", "null", '{"key": 1}', '{"points": {}}', "\0"])
def test_a_broken_record_is_found_anew(tmp_path: Path, text: str) -> None:
    """Whatever stands in its file, and for whatever set it is asked."""
    hand_in(tmp_path, "ann", NAME)
    assert main([str(tmp_path)]) == 0
    record = tmp_path / f"records/ann/{NAME}/{NAME}.json"
    good = json.loads(record.read_text())
    record.write_text(text)
    assert main([str(tmp_path)]) == 0
    assert json.loads(record.read_text())["verdicts"] == good["verdicts"]


@pytest.mark.usefixtures("no_gradebook")
def test_one_submission_that_cannot_be_saved_costs_no_one_else_a_grade(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """A file stands where its folder should be. It is named though the gradebook fails, too."""

    def fail(*_: object) -> None:
        raise FileNotFoundError("alembic")

    for student in ("ann", "bob"):
        hand_in(tmp_path, student, NAME)
    (tmp_path / "feedback").mkdir()
    (tmp_path / "feedback/ann").write_text("")
    assert main([str(tmp_path)]) == 1
    assert [row["student"] for row in rows(tmp_path)] == ["bob"]
    assert f"ann, {NAME}: not graded: " in capsys.readouterr().err
    monkeypatch.setattr("exercises.grade_course.fill_gradebook", fail)
    assert main([str(tmp_path)]) == 1
    out, said = capsys.readouterr()
    assert f"ann, {NAME}: not graded: " in said and "Results" not in out
    assert "tables are not all written (FileNotFoundError: alembic); the grades are kept" in said


def test_an_empty_secret_is_refused(tmp_path: Path) -> None:
    """Hidden inputs drawn from nothing are known to all."""
    course = make_class(tmp_path, 1)
    (tmp_path / ".grader_secret").write_text("\n")
    with pytest.raises(ValueError, match="anyone could draw the hidden inputs"):
        course.secret()


@pytest.mark.usefixtures("no_gradebook")
def test_the_outputs_of_a_large_notebook_do_not_count(tmp_path: Path) -> None:
    """Only its outputs: 24 MiB of JSON are the most that is read."""
    path = hand_in(tmp_path, "ann", NAME) / f"{NAME}.ipynb"
    course = Course(tmp_path)
    cell = {"cell_type": "code", "source": "x", "metadata": {}, "outputs": ["A" * (6 << 20)]}
    path.write_text(json.dumps({"cells": [cell]}))
    data, problem = course.read_submission("ann", NAME)
    assert problem == "" and [cell.source for cell in parse(data or b"")] == ["x"]
    path.write_text(json.dumps({"cells": [{**cell, "source": "x" * (6 << 20)}]}))
    assert course.read_submission("ann", NAME)[1].endswith("larger than 5 MiB without outputs")
    path.write_text("[" * (6 << 20))
    assert "is not JSON" in course.read_submission("ann", NAME)[1]
    with path.open("wb") as file:
        file.truncate(25 << 20)
    assert course.read_submission("ann", NAME)[1].endswith("is larger than 24 MiB")


@pytest.mark.usefixtures("one_process")
def test_what_an_instructor_adds_reaches_the_tables(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Scores by hand, hours late, totals; a better answer behind an old score is pointed out."""
    other = "02_sinusoidal"
    (hand_in(tmp_path, "ann", NAME) / "timestamp.txt").write_text("2026-10-05 14:30:00 UTC")
    for student in ("ann", "12345"):
        hand_in(tmp_path, student, other, release_path(other).read_text(encoding="utf-8"))
    assert main([str(tmp_path)]) == 0
    question = load(NAME).questions[0]
    with Gradebook(f"sqlite:///{tmp_path}/gradebook.db") as book:
        book.update_or_create_assignment(NAME, duedate=datetime(2026, 10, 5, 12, 0))
        book.find_grade(question.test_id, NAME, NAME, "ann").manual_score = 1.5
        # A cell of the instructor's own, which the set does not have.
        book.add_grade_cell("essay", NAME, NAME, max_score=2, cell_type="markdown")
        book.db.commit()
    shutil.copy(source_path(NAME), tmp_path / f"submitted/ann/{NAME}/{NAME}.ipynb")
    capsys.readouterr()
    assert main([str(tmp_path)]) == 0
    note = f"ann, {NAME}: {question.test_id} keeps the 1.5 points given by hand"
    assert f"{note}; now {question.points:g} are found" in capsys.readouterr().err
    top = load(NAME).points
    counts = top - question.points + 1.5
    (row,) = (row for row in rows(tmp_path) if row["set"] == NAME)
    assert (float(row["points"]), float(row["found_by_grader"])) == (counts, top)
    assert float(row["hours_late"]) == 2.5
    with (tmp_path / "answers.csv").open(encoding="utf-8") as file:
        assert [line["by_hand"] for line in csv.DictReader(file) if line["by_hand"]] == ["1.5"]
    summary = (tmp_path / "summary.html").read_text(encoding="utf-8")
    assert f"{counts:g} / {top:g} (by hand; {top:g} found)" in summary
    waits = "<td class=n>waiting</td>"
    assert f"<td>ann</td><td class=n>0</td><td class=n>{counts:g}</td>{waits}{waits}" in summary
    assert table(tmp_path / "moodle.csv") == [
        ["username", other, NAME, f"{NAME} by hand", "total"],
        ["12345", "0.0", "", "", "0.0"], ["ann", "0.0", str(counts), "", ""],  # waiting
    ]  # fmt: skip
    assert table(tmp_path / "canvas.csv") == [
        ["Student", "ID", "SIS User ID", "SIS Login ID", "Section", other, NAME,
         f"{NAME} by hand"],
        ["Points Possible", "", "", "", "", str(load(other).points), str(top), "6.0"],
        ["12345", "12345", "", "", "", "0.0", "", ""],
        ["ann", "", "", "ann", "", "0.0", str(counts), ""],
    ]  # fmt: skip
    assert main([str(tmp_path)]) == 0
    assert note not in capsys.readouterr().err  # said once


@pytest.mark.usefixtures("no_gradebook")
def test_a_mended_check_lists_whose_points_change(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """First only compared, with nothing kept; then for good."""

    def graded(job: Job, points: float) -> Outcome:
        more = points if job.student == "ann" else 0.0
        verdict = Verdict("lookup", "test_lookup", 3.0, more, "ok" if more else "wrong answer")
        return Outcome(Graded(job.student, job.set_name, [verdict], [], {}, 1.0), "", "")

    def with_checks(version: str, points: float) -> None:
        monkeypatch.setattr("exercises.grade_course.grader_version", lambda: version)
        monkeypatch.setattr(
            "exercises.grade_course.in_pool",
            lambda jobs, _: enumerate(graded(job, points) for job in jobs),
        )

    for student in ("ann", "bob"):
        hand_in(tmp_path, student, NAME)
    with_checks("old", 0.0)
    assert main([str(tmp_path)]) == 0
    assert not (tmp_path / "changes.csv").exists()
    with_checks("mended", 3.0)
    kept = stamps(tmp_path)
    capsys.readouterr()
    assert main([str(tmp_path), "--compare"]) == 0
    said = capsys.readouterr().out
    assert "Graded again: 1 answers of 1 students get other points.\n" in said
    assert f"  ann, {NAME}: lookup 0 -> 3\n" in said and "Nothing was kept" in said
    assert "mean" not in said  # it would lack scores by hand
    listed = table(tmp_path / "changes.csv")
    assert listed[1:] == [["ann", NAME, "lookup", "0.0", "3.0", "wrong answer", "ok", ""]]
    assert stamps(tmp_path) == kept and rows(tmp_path)[0]["points"] == "0.0"
    assert main([str(tmp_path)]) == 0
    assert f"{NAME}: 2 submissions, mean 1.5 of 10\n" in capsys.readouterr().out
    assert [row["points"] for row in rows(tmp_path)] == ["3.0", "0.0"]
    assert table(tmp_path / "changes.csv") == listed


def test_points_lost_are_listed_too() -> None:
    """Whoever gains, loses, or is asked for the first time; not who keeps the same points."""

    def record(**points: float) -> dict[str, Any]:
        verdicts = [
            {"question": name, "points": number, "word": f"word of {number}", "message": "why"}
            for name, number in points.items()
        ]
        return {"student": "ann", "set": NAME, "verdicts": verdicts}

    before = record(same=1.0, gains=0.0, loses=3.0, loses_half=2.0)
    now = record(same=1.0, gains=2.0, loses=0.0, loses_half=1.0, new=1.0, new_and_wrong=0.0)
    assert changes_between(before, now) == [
        Change("ann", NAME, "gains", 0.0, 2.0, "word of 0.0", "word of 2.0", "why"),
        Change("ann", NAME, "loses", 3.0, 0.0, "word of 3.0", "word of 0.0", "why"),
        Change("ann", NAME, "loses_half", 2.0, 1.0, "word of 2.0", "word of 1.0", "why"),
        Change("ann", NAME, "new", 0.0, 1.0, "not asked", "word of 1.0", "why"),
    ]


def open_row(root: Path) -> tuple[str, str, str]:
    """Return what submissions.csv says of ann's open exercise."""
    (row,) = (row for row in rows(root) if row["student"] == "ann")
    assert (row["points"], row["found_by_grader"], row["open_max"]) == ("0.0", "0.0", "6.0")
    return row["open"], row["open_points"], table(root / "moodle.csv")[1][-1]


@pytest.mark.usefixtures("one_process")
def test_an_open_answer_waits_for_a_person_and_is_no_zero(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Until it is scored; if it is rewritten after that, a line says so."""
    release = json.loads(release_path(NAME).read_text(encoding="utf-8"))
    answer = next(c for c in release["cells"] if c["id"] == "open-answer")
    for text, found in (
        ("Your answer here.", ("not answered", "0.0", "0.0")),
        ("I measured $<script>$.", ("waiting", "", "")),
    ):
        answer["source"] = text
        hand_in(tmp_path, "ann", NAME, json.dumps(release))
        assert main([str(tmp_path)]) == 0
        assert open_row(tmp_path) == found
    summary = (tmp_path / "summary.html").read_text(encoding="utf-8")
    assert "<td class=n>waiting / 6</td>" in summary
    feedback = (tmp_path / f"feedback/ann/{NAME}/{NAME}.html").read_text(encoding="utf-8")
    assert "waits for a person" in feedback and "I measured $&lt;script&gt;$." in feedback
    with Gradebook(f"sqlite:///{tmp_path}/gradebook.db") as book:
        grade = book.find_grade("open_answer", NAME, NAME, "ann")
        assert grade.needs_manual_grade and grade.max_score == 6
        grade.manual_score, grade.needs_manual_grade = 4.5, False  # as formgrader does
        book.db.commit()
    capsys.readouterr()
    assert main([str(tmp_path)]) == 0
    assert open_row(tmp_path) == ("scored", "4.5", "4.5")
    assert capsys.readouterr().err == ""
    page_of_ann = tmp_path / f"feedback/ann/{NAME}/{NAME}.html"
    assert "4.5 of 6" in page_of_ann.read_text(encoding="utf-8")
    answer["source"] = "I measured again."
    hand_in(tmp_path, "ann", NAME, json.dumps(release))
    with pytest.MonkeyPatch.context() as patch:  # it is not forgotten if the gradebook fails
        patch.setattr("exercises.grade_course.fill_gradebook", lambda *_: 1 / 0)
        assert main([str(tmp_path)]) == 1
    capsys.readouterr()
    assert main([str(tmp_path)]) == 0
    assert f"ann, {NAME}: open_answer was rewritten after it got 4.5" in capsys.readouterr().err
    for _ in range(2):  # said once, and true until it is scored again
        assert open_row(tmp_path) == ("waiting (was 4.5)", "", "")
        assert main([str(tmp_path)]) == 0
        assert capsys.readouterr().err == ""
    (line,) = (row for row in table(tmp_path / "answers.csv") if row[2] == "open_answer")
    assert line[3:] == ["", "6.0", "by hand", "was 4.5", ""]
    assert "waiting / 6 (was 4.5)" in (tmp_path / "summary.html").read_text(encoding="utf-8")
    found = page_of_ann.read_text(encoding="utf-8")
    assert "waits for a person</strong> (was 4.5)" in found and "Score: 4.5" not in found
    with Gradebook(f"sqlite:///{tmp_path}/gradebook.db") as book:
        grade = book.find_grade("open_answer", NAME, NAME, "ann")
        assert grade.needs_manual_grade
        grade.needs_manual_grade = False  # the same points, saved again
        book.find_comment("open_answer", NAME, NAME, "ann").manual_comment = "Much *better*."
        book.find_grade("test_rows_used", NAME, NAME, "ann").manual_score = 1.0
        book.db.commit()
    assert main([str(tmp_path)]) == 0
    assert [row["open"] for row in rows(tmp_path)] == ["scored"]
    found = page_of_ann.read_text(encoding="utf-8")
    assert "5.5 of 16 points" in found and "(Score: 5.5 / 16.0)" in found
    assert "4.5 of 6" in found and "Score: 4.5 / 6.0" in found and "Score: 1.0 / 2.0" in found
    notebook = json.loads((tmp_path / f"autograded/ann/{NAME}/{NAME}.ipynb").read_text())
    for text in (unescape(found), unescape("".join(notebook["cells"][0]["source"]))):
        assert "Much *better*." in text and "waits" not in text
    stamp = page_of_ann.stat().st_mtime_ns
    assert main([str(tmp_path)]) == 0
    assert page_of_ann.stat().st_mtime_ns == stamp


def open_answer_of(cells: list[dict[str, Any]]) -> str:
    """Return what waits for a person of a notebook."""
    exercise_set = load(NAME)
    restored = restore(parse(json.dumps({"cells": cells}).encode()), exercise_set)
    assert sum(cell.is_open for cell in restored) == 1  # formgrader has a place for the points
    return open_answers(restored, exercise_set)["open_answer"]


def test_an_open_answer_waits_wherever_it_stands() -> None:
    """Cells may be deleted or have lost their metadata; who has written nothing has no answer."""
    release = json.loads(release_path(NAME).read_text(encoding="utf-8"))["cells"]
    own = {"cell_type": "markdown", "metadata": {}, "source": "I measured."}
    answered = [{**c, "source": "I measured."} if c["id"] == "open-answer" else c for c in release]
    scratch = {"cell_type": "code", "metadata": {}, "source": "1 + 1"}

    def without(cells: list[dict[str, Any]], *ids: str) -> list[dict[str, Any]]:
        return [cell for cell in cells if cell.get("id") not in ids]

    def bare(cells: list[dict[str, Any]]) -> list[dict[str, Any]]:
        return [{**cell, "metadata": {}} for cell in cells]

    for cells in (
        answered, without(answered, "test-unstretched"), without(answered, "unstretched"),
        without(answered, "test-unstretched", "ask-open", "progress"), bare(answered),
        [*without(release, "open-answer"), own], [own, *without(release, "open-answer")],
        [*release[:3], own, *release[3:]], [*release, own],
    ):  # fmt: skip
        assert open_answer_of(cells) == "I measured."
    assert open_answer_of([scratch, *without(release, "open-answer", "open-work")]) == "1 + 1"
    at = [cell["id"] for cell in release].index("unstretched")
    solved = [*release[:at], {**release[at], "source": "x = 1"}, scratch, *release[at + 1 :]]
    for cells in (release, bare(release), solved, without(solved, "test-unstretched"), []):
        assert open_answer_of(cells) == ""


@pytest.mark.usefixtures("one_process")
def test_a_file_that_cannot_be_read_is_no_zero_for_the_open_exercise(tmp_path: Path) -> None:
    """It may hold an answer: that waits; the page says once what is wrong and what to do."""
    hand_in(tmp_path, "ann", NAME, "<!DOCTYPE html>")
    assert main([str(tmp_path)]) == 0
    assert open_row(tmp_path) == ("waiting", "", "")
    found = unescape((tmp_path / f"feedback/ann/{NAME}/{NAME}.html").read_text(encoding="utf-8"))
    top = found[: found.index("Exercise set 3") if "Exercise set 3" in found else len(found)]
    why = "the file is not JSON (JSONDecodeError). Hand in the file 03_learned.ipynb that Jupyter"
    assert f"Nothing can be read: {why}" in top and "waits for a person" in top
    assert top.count("<strong>malformed</strong>:") == 0


def table(path: Path) -> list[list[str]]:
    """Return the cells of a CSV file."""
    with path.open(encoding="utf-8", newline="") as file:
        return list(csv.reader(file))


SIGNS = "=+-@＝＋－＠"  # a spreadsheet takes what begins with one of them for a formula


@pytest.mark.parametrize("name", [*(f"{sign}1" for sign in SIGNS), "\t=1", " ＝1"])
def test_no_name_is_a_formula(tmp_path: Path, name: str) -> None:
    """In no table, in no spreadsheet of any language."""
    verdict = {"question": "q", "test_id": "t", "points": 1.0, "max_points": 1.0, "word": "ok",
               "message": name}  # fmt: skip
    record = {"student": name, "set": NAME, "points": 1.0, "max_points": 1.0, "seconds": 1.0,
              "verdicts": [verdict]}  # fmt: skip
    (tmp_path / "submitted").mkdir()
    write_tables(Course(tmp_path), [record, {**record, "student": "ann;=1+1"}])
    for kind in ("submissions", "answers", "moodle", "canvas"):
        path = tmp_path / f"{kind}.csv"
        for cell in (cell for row in table(path) for cell in row):
            assert cell[:1] not in [*SIGNS]
        assert '"ann;=1+1"' in path.read_text(encoding="utf-8")  # one cell, whatever separates


def test_no_two_names_are_one_in_a_table() -> None:
    """Else one student's line could be imported over another's."""
    names = ["=ann", "'=ann", "''=ann", "'ann", "ann"]
    assert len({cell_text(name) for name in names}) == len(names)


@pytest.mark.usefixtures("one_process")
def test_a_withdrawn_submission_leaves_the_gradebook_and_nbgraders_folders(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Unless somebody has worked on it; of a set that is not graded now, nothing is touched."""
    for student in ("ann", "bob", "eve"):
        hand_in(tmp_path, student, NAME)
    assert main([str(tmp_path)]) == 0
    with Gradebook(f"sqlite:///{tmp_path}/gradebook.db") as book:
        book.find_grade(load(NAME).questions[0].test_id, NAME, NAME, "bob").manual_score = 1.0
        book.add_student("zoe")  # whom this grader never saw
        book.add_submission(NAME, "zoe")
        book.db.commit()
    for student in ("ann", "bob"):
        shutil.rmtree(tmp_path / "submitted" / student)

    def there() -> set[str]:
        with Gradebook(f"sqlite:///{tmp_path}/gradebook.db") as book:
            return {submission.student.id for submission in book.assignment_submissions(NAME)}

    assert main([str(tmp_path), "--set", "02_sinusoidal"]) == 0
    assert there() == {"ann", "bob", "eve", "zoe"}
    assert main([str(tmp_path)]) == 0
    assert there() == {"bob", "eve", "zoe"}
    config = Config({"CourseDirectory": {"root": str(tmp_path)}})
    assert NbGraderAPI(config=config).generate_feedback(NAME)["success"]
    assert len(list((tmp_path / "withdrawn").glob(f"*/ann/{NAME}/{NAME}.*"))) == 2
    said = capsys.readouterr().err
    assert f"ann, {NAME}: withdrawn, and taken out of the gradebook" in said
    assert f"bob, {NAME}: withdrawn; its scores by hand stay in the gradebook" in said
    hand_in(tmp_path, "ann", NAME)
    assert main([str(tmp_path)]) == 0
    assert there() == {"ann", "bob", "eve", "zoe"}


def nbgrader(folder: Path, *words: str) -> subprocess.CompletedProcess[str]:
    """Run nbgrader as an instructor does."""
    return subprocess.run(
        [sys.executable, "-m", "nbgrader", *words], cwd=folder, capture_output=True, text=True,
        timeout=300, check=False,
    )  # fmt: skip


@pytest.mark.usefixtures("one_process")
def test_nbgraders_own_commands_do_what_the_guide_says(tmp_path: Path) -> None:
    """Generate_assignment works after grading, and gives our release; autograde refuses."""
    shutil.copy(HERE / "nbgrader_config.py", tmp_path)
    shutil.copytree(source_path(NAME).parent, tmp_path / "source" / NAME)
    find_alembic()
    hand_in(tmp_path, "ann", NAME)
    assert main([str(tmp_path)]) == 0
    refused = nbgrader(tmp_path, "autograde", NAME)
    assert refused.returncode != 0
    assert "it runs submissions without a sandbox; use `make grade`" in refused.stderr
    made = nbgrader(tmp_path, "generate_assignment", NAME)
    assert made.returncode == 0, made.stderr
    released = [tmp_path / "release" / NAME / f"{NAME}.ipynb", release_path(NAME)]
    mine, ours = ([cell.source for cell in parse(path.read_bytes())] for path in released)
    assert mine == ours


@pytest.mark.parametrize("course", ["my course", "it's", 'a "b"', "", "~/c"])
def test_make_grade_takes_any_name_of_a_folder(course: str, tmp_path: Path) -> None:
    """With a space or a quote in it, too."""
    python = tmp_path / "bin" / "python"  # of an environment that only says what it is given
    python.parent.mkdir()
    python.write_text("#!/bin/sh\nprintf '<%s>' \"$@\"\n")
    python.chmod(0o755)
    for stamp in (".book-ready", ".grade-ready"):  # newer than all that they depend on
        (tmp_path / stamp).touch()
    words = ["make", "-s", "grade", f"VENV={tmp_path}", "SET=10_rope"]
    words += [f"COURSE={course}"] if course else []
    done = subprocess.run(words, cwd=ROOT, capture_output=True, text=True, check=True)
    assert done.stdout.startswith("<-m>")
    assert done.stdout == f"<-m><exercises.grade_course><{course or 'course'}><--set><10_rope>"


def test_who_only_hands_out_work_does_not_load_pytorch() -> None:
    """The command, and a worker until it grades: it takes seconds each time."""
    code = "import sys, exercises.grade_course; print('torch' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True)
    assert done.stdout == "False\n", done.stderr


def test_a_worker_that_is_killed_costs_no_one_else_a_grade() -> None:
    """What was under way beside it runs again."""
    jobs = [Job(student, NAME, None) for student in ("ann", "eve", "bob")]
    found = {jobs[index].student: done.problem for index, done in in_pool(jobs, 2, kill_for_eve)}
    assert found == {
        "ann": "graded ann", "bob": "graded bob",
        "eve": "the process that graded it was killed",
    }  # fmt: skip


@pytest.mark.usefixtures("one_process")
def test_feedback_returns_through_nbgraders_exchange(tmp_path: Path) -> None:
    """Released, fetched, submitted, collected, graded and returned by nbgrader's own commands."""
    student, inbox = tmp_path / "student", tmp_path / "exchange"
    shutil.copytree(source_path(NAME).parent, tmp_path / "source" / NAME)
    student.mkdir()
    inbox.mkdir()
    inbox.chmod(0o777)
    config = Config(build.settings())
    config.CourseDirectory.root = str(tmp_path)
    config.Exchange.root, config.Exchange.assignment_dir = str(inbox), str(student)
    config.Exchange.path_includes_course, config.Exchange.cache = False, str(tmp_path / "cache")
    config.CourseDirectory.assignment_id = NAME
    find_alembic()

    def do(step: type[Exchange]) -> None:
        coursedir = CourseDirectory(config=config)
        step(coursedir=coursedir, authenticator=Authenticator(config=config), config=config).start()

    nbgrader = NbGraderAPI(config=config)
    assert nbgrader.generate_assignment(NAME)["success"]
    do(exchange.ExchangeReleaseAssignment)
    do(exchange.ExchangeFetchAssignment)
    shutil.copy(source_path(NAME), student / NAME / f"{NAME}.ipynb")
    do(exchange.ExchangeSubmit)
    do(exchange.ExchangeCollect)
    assert main([str(tmp_path)]) == 0
    assert [float(row["points"]) for row in rows(tmp_path)] == [load(NAME).points]
    do(exchange.ExchangeReleaseFeedback)
    do(exchange.ExchangeFetchFeedback)
    (page,) = (student / NAME).glob(f"feedback/*/{NAME}.html")
    points = load(NAME).points
    waiting = sum(question.points for question in load(NAME).open)
    assert f"(Score: {points} / {points + waiting})" in page.read_text()
    assert nbgrader.generate_feedback(NAME)["success"]  # as after comments by hand
    (page,) = (tmp_path / "feedback").glob(f"*/{NAME}/{NAME}.html")
    assert f"(Score: {points} / {points + waiting})" in page.read_text()
