"""A run over a course folder spreads over processes and clusters, and loses nothing it found."""

from __future__ import annotations

import csv
import os
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
import stub_workers
from nbgrader.api import Gradebook
from nbgrader.apps import NbGraderAPI
from nbgrader.auth import Authenticator
from nbgrader.coursedir import CourseDirectory
from nbgrader.exchange import default as exchange
from nbgrader.exchange.default import Exchange
from stub_workers import get_stuck, kill_for_eve
from traitlets.config import Config

from exercises import build
from exercises.grade_course import grade_course, in_pool, main
from exercises.grade_submission import Job
from exercises.records import Course, find_alembic
from exercises.sets import load, release_path, source_path
from exercises.usage import descendants

NAME = "03_learned"


def make_class(root: Path, size: int) -> Course:
    """Write a class in which every other student hands in the solution."""
    for number in range(size):
        folder = root / "submitted" / f"student{number:03d}" / NAME
        folder.mkdir(parents=True)
        path = source_path(NAME) if number % 2 == 0 else release_path(NAME)
        shutil.copy(path, folder / f"{NAME}.ipynb")
    return Course(root)


def test_a_dask_cluster_gives_the_same_grades(tmp_path: Path) -> None:
    """A local scheduler with two workers."""
    distributed = pytest.importorskip("distributed")
    course = make_class(tmp_path, 2)
    base = Job("", "", None, secret=course.secret())
    with distributed.LocalCluster(
        n_workers=2, threads_per_worker=1, processes=False, dashboard_address=None
    ) as cluster:
        records, problems = grade_course(course, [NAME], base, 1, cluster.scheduler_address)
    assert problems == []
    assert [record["points"] for record in records] == [load(NAME).points, 0.0]


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


@pytest.mark.usefixtures("no_gradebook")
def test_what_is_left_alone_is_said(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """A misspelt set, a link and a name that cannot be printed stop nothing."""
    hand_in(tmp_path, "ann", NAME)
    hand_in(tmp_path, "bob", "3_learned")
    hand_in(tmp_path, "bell\a", NAME)
    (tmp_path / "submitted/eve").symlink_to(tmp_path / "submitted/ann")
    assert main([str(tmp_path)]) == 0
    assert [row["student"] for row in rows(tmp_path)] == ["ann"]
    said = capsys.readouterr().err
    assert "'submitted/bob/3_learned': there is no set of that name" in said
    assert f"'submitted/eve/{NAME}' is no folder" in said
    assert f"'submitted/bell\\x07/{NAME}': a student's name has printable letters" in said


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
    score = f"(Score: {load(NAME).points} / {load(NAME).points})"
    assert score in page.read_text()
    assert nbgrader.generate_feedback(NAME)["success"]  # as after comments by hand
    (page,) = (tmp_path / "feedback").glob(f"*/{NAME}/{NAME}.html")
    assert score in page.read_text()
