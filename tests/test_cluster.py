"""On a cluster nobody's grade is lost or counted twice, whatever is killed."""

from __future__ import annotations

import csv
import json
import os
import signal
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from exercises.grade_course import main
from tools import ROOT

pytest.importorskip("distributed")

NAME, SIZE = "03_learned", 60
STUB = [sys.executable, str(ROOT / "tests/stub_workers.py")]
COMMAND = [sys.executable, "-c", "from distributed.cli import dask_{0}; dask_{0}.main()"]


class Cluster:
    """A scheduler and workers, each a process of its own, that can be killed one by one."""

    def __init__(self, folder: Path) -> None:
        """Start the scheduler."""
        self.folder, self.running = folder, []
        (folder / "notes").mkdir(exist_ok=True)
        self.file = folder / "scheduler.json"
        self.scheduler = self.start("scheduler", "--port", "0", "--no-dashboard", "--no-show")

    def wait(self) -> None:
        """Wait until the scheduler can be reached."""
        wait_for(lambda: self.file.exists() and self.file.read_text().endswith("}"))
        self.address = json.loads(self.file.read_text())["address"]

    def start(self, part: str, *options: str) -> subprocess.Popen[bytes]:
        """Start a part of the cluster."""
        command = [sys.executable, "-c", COMMAND[2].format(part), *options]
        place = {"PYTHONPATH": f"{ROOT}:{ROOT / 'tests'}", "NOTES": str(self.folder / "notes")}
        process = subprocess.Popen(
            [*command, "--scheduler-file", str(self.file)], cwd=self.folder,
            env=os.environ | place, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
        )  # fmt: skip
        self.running.append(process)
        return process

    def worker(self) -> subprocess.Popen[bytes]:
        """Start a worker."""
        return self.start("worker", "--no-nanny", "--nthreads", "1", "--no-dashboard")

    def stop(self) -> None:
        """End everything."""
        for process in self.running:
            process.kill()
            process.wait()


def wait_for(ready: Callable[[], object], seconds: float = 300) -> None:
    """Wait until something is so."""
    end = time.monotonic() + seconds
    while not ready():
        assert time.monotonic() < end, "it took too long"
        time.sleep(0.02)


@pytest.fixture
def start(tmp_path: Path) -> Iterator[Callable[[], Cluster]]:
    """Return what starts a cluster; end all at the end."""
    started: list[Cluster] = []

    def begin() -> Cluster:
        folder = tmp_path / f"cluster{len(started)}"
        folder.mkdir()
        started.append(Cluster(folder))
        started[-1].wait()
        return started[-1]

    yield begin
    for cluster in started:
        cluster.stop()


@pytest.fixture
def course(tmp_path: Path) -> Path:
    """Return a class; what they hand in is never looked at."""
    root = tmp_path / "course"
    for number in range(SIZE):
        folder = root / f"submitted/student{number:03d}" / NAME
        folder.mkdir(parents=True)
        (folder / f"{NAME}.ipynb").write_text("")
    return root


def grading(course: Path, cluster: Cluster) -> subprocess.Popen[str]:
    """Start to grade on a cluster."""
    return subprocess.Popen(
        [*STUB, str(course), "--scheduler", cluster.address], text=True,
        env=os.environ | {"PYTHONPATH": str(ROOT)},
        stdout=subprocess.PIPE, stderr=subprocess.PIPE,
    )  # fmt: skip


def records(course: Path) -> dict[str, int]:
    """Return the students whose grade is kept, with the time at which it was written."""
    paths = course.glob(f"records/*/{NAME}/{NAME}.json")
    return {path.parts[-3]: path.stat().st_mtime_ns for path in paths}


def students(course: Path) -> list[str]:
    """Return the students of submissions.csv, line by line."""
    with (course / "submissions.csv").open(encoding="utf-8") as file:
        return [row["student"] for row in csv.DictReader(file)]


def test_a_killed_worker_scheduler_or_command_costs_no_grade(
    course: Path, start: Callable[[], Cluster]
) -> None:
    everybody = [f"student{number:03d}" for number in range(SIZE)]
    cluster = start()
    victim = cluster.worker()
    # The command is killed: what was found stays.
    run = grading(course, cluster)
    wait_for(lambda: len(records(course)) >= SIZE // 6)
    run.kill()
    run.communicate()
    kept = records(course)
    assert len(kept) < SIZE
    # Then the scheduler: the command ends by itself and names what is left.
    run = grading(course, cluster)
    wait_for(lambda: len(records(course)) >= SIZE // 3)
    cluster.scheduler.kill()
    _, said = run.communicate(timeout=300)
    assert run.returncode == 1
    later = records(course)
    assert SIZE // 3 <= len(later) < SIZE
    left = [name for name in everybody if name not in later]
    for name in left:
        assert f"{name}, {NAME}: not graded: the cluster gave no result" in said
    assert students(course) == sorted(later)
    # Then a worker of two; the rest is graded, and nobody twice.
    victim.kill()
    cluster = start()
    victim, _ = cluster.worker(), cluster.worker()
    run = grading(course, cluster)
    notes = cluster.folder / "notes"
    wait_for(lambda: any(f".{victim.pid}." in path.name for path in notes.iterdir()))
    os.kill(victim.pid, signal.SIGKILL)
    _, said = run.communicate(timeout=300)
    assert run.returncode == 0, said
    assert students(course) == everybody == sorted(records(course))
    assert kept.items() <= later.items() <= records(course).items()  # written once
    worked = Counter(path.name.split(".")[0] for path in notes.iterdir())
    assert worked.keys() == set(left)
    assert sum(worked.values()) <= len(left) + 4  # what the killed worker had finished


def test_a_scheduler_that_is_not_there_is_named(
    course: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("exercises.grade_course.PATIENCE", 1)
    assert main([str(course), "--trusted", "--scheduler", "127.0.0.1:9"]) == 2
    assert "Not graded: no Dask scheduler answers at 127.0.0.1:9" in capsys.readouterr().err
