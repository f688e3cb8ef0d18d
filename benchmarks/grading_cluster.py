"""Time the grading of a made-up class on a Dask cluster, and check that every grade arrives once.

    python -m benchmarks.grading_cluster --students 1000 --set 10_rope --workers 1 2 4

The class hands in the instructor's answers, right answers written otherwise, wrong answers of all
kinds, and a few notebooks that end their process, never end or take too much. Each kind is graded
alone first; on the cluster everybody must get what the kind got. With --kill one of the workers is
killed on the way (where there are two or more), and another takes its place.
"""

from __future__ import annotations

import argparse
import csv
import importlib
import json
import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from exercises.grade_submission import grade
from exercises.jobs import Job, Limits
from exercises.proofs import mutated, read
from exercises.records import Course
from exercises.sets import nbgrader_metadata, set_names, source_path
from tools import ROOT

DASK = "from distributed.cli import dask_{0}; dask_{0}.main()"
READY = 300.0  # seconds in which a part of the cluster must be there
SECONDS = 2.0  # for a call: what never ends costs no more
HOSTILE = {
    "ends its process": "import os\nos._exit(0)",
    "never ends": "while True:\n    pass",
    "takes memory": "held = [bytes(1 << 28) for _ in range(64)]",
    "starts processes": "import os\nwhile True:\n    os.fork()",
    "prints for long": "print('x' * 10**8)",
}
WRONG, HOSTILE_SHARE = 12, 3  # percent


def with_cell(name: str, index: int, source: str, replace: bool) -> str:
    """Return the instructor's notebook with one cell replaced, or one more."""
    notebook = json.loads(source_path(name).read_text(encoding="utf-8"))
    if replace:
        notebook["cells"][index]["source"] = source
    else:
        cell: dict[str, Any] = {"cell_type": "code", "id": "added", "metadata": {},
                                "outputs": [], "execution_count": None}  # fmt: skip
        notebook["cells"].insert(index, {**cell, "source": source})
    return json.dumps(notebook)


def place_of(name: str, exercise: str) -> int:
    """Return which cell of a set has the answer to an exercise."""
    cells = json.loads(source_path(name).read_text(encoding="utf-8"))["cells"]
    ids = [nbgrader_metadata(cell).get("grade_id") for cell in cells]
    return ids.index(exercise)


def kinds_of(name: str) -> dict[str, list[str]]:
    """Return notebooks: `right`, `wrong` and `hostile`."""
    mutants, others = read(name)
    right = [source_path(name).read_text(encoding="utf-8")]
    right += [with_cell(name, place_of(name, o.exercise), o.source, True) for o in others]
    wrong = [with_cell(name, place_of(name, m.exercise), mutated(name, m), True) for m in mutants]
    hostile = [with_cell(name, 0, source, False) for source in HOSTILE.values()]
    return {"right": right, "wrong": wrong, "hostile": hostile}


def class_of(name: str, students: int) -> dict[str, str]:
    """Return what each student hands in: mostly right, some wrong, some hostile."""
    kinds, count = kinds_of(name), {"right": 0, "wrong": 0, "hostile": 0}
    handed_in = {}
    for number in range(students):
        share = 37 * number % 100  # the kinds stand mixed, the same in every run
        kind = "hostile" if share < HOSTILE_SHARE else "right"
        kind = "wrong" if HOSTILE_SHARE <= share < HOSTILE_SHARE + WRONG else kind
        handed_in[f"student{number:04d}"] = kinds[kind][count[kind] % len(kinds[kind])]
        count[kind] += 1
    return handed_in


def write_class(root: Path, name: str, handed_in: dict[str, str]) -> None:
    """Write a course folder."""
    for student, text in handed_in.items():
        folder = root / "submitted" / student / name
        folder.mkdir(parents=True)
        (folder / f"{name}.ipynb").write_text(text, encoding="utf-8")


def deserved(name: str, handed_in: dict[str, str]) -> dict[str, float]:
    """Return the points of each student, every notebook being graded once, here."""
    limits = Limits(call=SECONDS)
    points = {
        text: grade(Job("one", name, text.encode(), secret="alone", limits=limits)).points
        for text in dict.fromkeys(handed_in.values())
    }
    return {student: points[text] for student, text in handed_in.items()}


class Cluster:
    """A scheduler and workers, each a process of its own."""

    def __init__(self, folder: Path, workers: int) -> None:
        """Start them, and wait until the scheduler knows all workers."""
        self.running: list[subprocess.Popen[bytes]] = []
        self.file = folder / "scheduler.json"
        self.start("scheduler", "--port", "0", "--no-dashboard", "--no-show")
        self.workers = [self.worker() for _ in range(workers)]
        end = time.monotonic() + READY
        while not (self.file.exists() and self.file.read_text().endswith("}")):
            if time.monotonic() > end:
                raise TimeoutError("the scheduler has not started")
            time.sleep(0.1)
        self.address: str = json.loads(self.file.read_text())["address"]
        from distributed import Client

        with Client(self.address) as client:  # type: ignore[no-untyped-call]
            client.wait_for_workers(workers, timeout=READY)
            client.run(warm)

    def start(self, part: str, *options: str) -> subprocess.Popen[bytes]:
        """Start a part of the cluster."""
        command = [sys.executable, "-c", DASK.format(part), *options]
        process = subprocess.Popen(
            [*command, "--scheduler-file", str(self.file)], cwd=ROOT,
            env=os.environ | {"PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1"},
            stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
        )  # fmt: skip
        self.running.append(process)
        return process

    def worker(self) -> subprocess.Popen[bytes]:
        """Start a worker that grades one submission at a time."""
        return self.start("worker", "--no-nanny", "--nthreads", "1", "--no-dashboard")

    def replace_one(self) -> None:
        """Kill a worker, and start another."""
        self.workers.pop().kill()
        self.workers.append(self.worker())

    def stop(self) -> None:
        """End everything."""
        for process in self.running:
            process.kill()
            process.wait()


def warm() -> None:
    """Load what grading needs; runs in a worker."""
    for name in ("exercises.feedback", "exercises.grade_course"):
        importlib.import_module(name)


def records(root: Path, name: str) -> dict[str, int]:
    """Return the students whose grade is kept, with the time at which it was written."""
    paths = root.glob(f"records/*/{name}/{name}.json")
    return {path.parts[-3]: path.stat().st_mtime_ns for path in paths}


def timed(root: Path, name: str, cluster: Cluster, kill: bool) -> float:
    """Grade a course folder by the command that the guide names; return its seconds."""
    command = [sys.executable, "-m", "exercises.grade_course", str(root), "--set", name]
    command += ["--scheduler", cluster.address, "--seconds", str(SECONDS)]
    students = sum(1 for _ in (root / "submitted").iterdir())
    begin = time.monotonic()
    run = subprocess.Popen(command, cwd=ROOT, stderr=subprocess.PIPE, text=True,
                           stdout=subprocess.DEVNULL)  # fmt: skip
    if kill and len(cluster.workers) > 1:
        while run.poll() is None and len(records(root, name)) < students // 3:
            time.sleep(0.1)
        cluster.replace_one()
    _, said = run.communicate()
    if run.returncode:
        raise RuntimeError(f"grading ended with status {run.returncode}: {said[-2000:]}")
    return time.monotonic() - begin


def faults(root: Path, name: str, wanted: dict[str, float]) -> Iterator[str]:
    """Yield what is wrong: a grade that is lost, counted twice, or not the one deserved."""
    from nbgrader.api import Gradebook

    with (root / "submissions.csv").open(encoding="utf-8") as file:
        rows = [(row["student"], float(row["points"])) for row in csv.DictReader(file)]
    with Gradebook(f"sqlite:///{root / 'gradebook.db'}") as book:
        kept = [(s.student.id, float(s.score)) for s in book.assignment_submissions(name)]
    for where, found in (("submissions.csv", rows), ("the gradebook", kept)):
        names = [student for student, _ in found]
        if sorted(names) != sorted(wanted):
            yield f"{where} has {len(names)} lines for {len(wanted)} students"
        yield from (f"{where}: {student} has {points}, not {wanted.get(student)}"
                    for student, points in found if points != wanted.get(student))  # fmt: skip
    if records(root, name).keys() != wanted.keys():
        yield "a record is missing, or there is one too many"


def main(arguments: list[str] | None = None) -> int:
    """Grade the class with each number of workers, and print a table."""
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.grading_cluster", description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )  # fmt: skip
    parser.add_argument("--students", type=int, default=1000)
    parser.add_argument("--set", dest="name", default="10_rope", choices=set_names())
    parser.add_argument("--workers", type=int, nargs="+", default=[1, 2, 4])
    parser.add_argument("--kill", action="store_true", help="kill a worker on the way")
    options = parser.parse_args(arguments)
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))  # so that the cluster ends, too
    handed_in = class_of(options.name, options.students)
    wanted = deserved(options.name, handed_in)
    full = max(wanted.values())
    print(f"{options.students} submissions of {options.name}, {len(set(handed_in.values()))} "
          f"different; {sum(p == full for p in wanted.values())} deserve full marks; "
          f"{os.cpu_count()} processors, load {os.getloadavg()[0]:.1f}", flush=True)  # fmt: skip
    print("workers  seconds  per submission  faults", flush=True)
    bad = 0
    for workers in options.workers:
        with tempfile.TemporaryDirectory() as place:
            root = Path(place, "course")
            write_class(root, options.name, handed_in)
            Course(root).secret()
            cluster = Cluster(Path(place), workers)
            try:
                seconds = timed(root, options.name, cluster, options.kill)
            finally:
                cluster.stop()
            found = list(faults(root, options.name, wanted))
        bad += len(found)
        each = seconds / options.students
        print(f"{workers:7d}  {seconds:7.1f}  {each:14.2f}  {len(found)}", flush=True)
        for line in found[:10]:
            print(f"  {line}")
    return 1 if bad else 0


if __name__ == "__main__":
    sys.exit(main())
