"""Grading spreads over processes, and over a Dask cluster."""

from __future__ import annotations

import shutil
import subprocess
import sys
import time
from pathlib import Path

import pytest

from exercises.grade import grade_course, main
from exercises.grading import Job
from exercises.records import Course
from exercises.sets import load, release_path, source_path

NAME = "03_learned"


def make_class(root: Path, size: int) -> Course:
    """Write a class in which every other student hands in the solution."""
    for number in range(size):
        folder = root / "submitted" / f"student{number:03d}" / NAME
        folder.mkdir(parents=True)
        path = source_path(NAME) if number % 2 == 0 else release_path(NAME)
        shutil.copy(path, folder / f"{NAME}.ipynb")
    return Course(root)


def expected(size: int) -> list[float]:
    return [load(NAME).points if number % 2 == 0 else 0.0 for number in range(size)]


def test_a_dask_cluster_gives_the_same_grades(tmp_path: Path) -> None:
    """A local scheduler with two workers on loopback."""
    distributed = pytest.importorskip("distributed")
    course = make_class(tmp_path, 4)
    base = Job("", "", None, secret=course.secret())
    with distributed.LocalCluster(
        n_workers=2, threads_per_worker=1, host="127.0.0.1", dashboard_address=None
    ) as cluster:
        records, problems = grade_course(course, [NAME], base, 1, cluster.scheduler_address)
    assert problems == []
    assert [record["points"] for record in records] == expected(4)


def test_a_killed_run_is_taken_up_again(tmp_path: Path) -> None:
    """Killed after the first record; the second run does the rest and keeps the first."""
    course = make_class(tmp_path, 6)
    command = [sys.executable, "-m", "exercises.grade", str(tmp_path), "--workers", "1"]
    process = subprocess.Popen(command, stderr=subprocess.DEVNULL, stdout=subprocess.DEVNULL)
    records = tmp_path / "records"
    deadline = time.monotonic() + 300
    while not list(records.glob("*/*/*.json")) and time.monotonic() < deadline:
        time.sleep(0.05)
    process.kill()
    process.wait()
    kept = {path: path.stat().st_mtime_ns for path in records.glob("*/*/*.json")}
    assert 0 < len(kept) < 6
    assert main([str(tmp_path), "--workers", "2"]) == 0
    assert {path: path.stat().st_mtime_ns for path in kept} == kept
    base = Job("", "", None, secret=course.secret())
    again, problems = grade_course(course, [NAME], base, workers=1)
    assert problems == [] and [record["points"] for record in again] == expected(6)
