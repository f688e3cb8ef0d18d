"""Grade what a class has handed in.

    python -m exercises.grade_course COURSE                  everything in COURSE/submitted
    python -m exercises.grade_course COURSE --set 10_rope    one set
    python -m exercises.grade_course COURSE --again ann      all of ann's, though unchanged
    python -m exercises.grade_course COURSE --compare        keep nothing; whose points would change
    python -m exercises.grade_course COURSE --show ann looks    one answer: the case that failed,
                                                             what it returned, what was expected

COURSE is a folder in nbgrader's layout. Results: COURSE/gradebook.db, submissions.csv,
answers.csv, moodle.csv, canvas.csv, summary.html, autograded/ and feedback/; an archive of feedback
for each platform that submissions were collected from; changes.csv if submissions were graded
again. A submission that has not changed is not run again.
"""

from __future__ import annotations

import argparse
import concurrent.futures
import difflib
import functools
import hashlib
import json
import math
import multiprocessing
import os
import signal
import sys
import threading
import time
from collections.abc import Callable, Collection, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from dataclasses import replace
from pathlib import Path
from typing import NamedTuple

from exercises import name_today
from exercises.archives import write_archives
from exercises.bubblewrap import require_bubblewrap, require_hidden
from exercises.jobs import Graded, Job, Limits, NotStarted
from exercises.records import Course, Record, fill_gradebook, grader_version, write
from exercises.sets import HERE, load, set_names, source_text
from exercises.summary import page
from exercises.syscalls import SandboxMissing
from exercises.tables import (
    Change,
    changes_between,
    changes_table,
    counted,
    write_table,
    write_tables,
)
from pe_course.processes import loaded_once

CHANGES = "changes.csv"
LOADED = ("nbformat", "exercises.feedback", "exercises.grade_submission")  # what `work` needs


class Outcome(NamedTuple):
    """A graded submission with its two files, or the reason why it is not graded."""

    graded: Graded | None
    notebook: str
    feedback: str
    problem: str = ""


def work(job: Job) -> Outcome:
    """Grade one submission and write its feedback. Runs in a worker."""
    # To import these takes seconds, which only workers need to spend.
    import nbformat

    from exercises.feedback import autograded, feedback_page
    from exercises.grade_submission import grade

    try:
        graded = grade(job)
        notebook = autograded(graded)
        return Outcome(graded, nbformat.writes(notebook), feedback_page(graded.record(), notebook))
    except (NotStarted, SandboxMissing) as error:
        return Outcome(None, "", "", str(error))
    except Exception as error:  # a fault of the grader's must not cost the others their grades
        return Outcome(None, "", "", f"{type(error).__name__}: {error}")


def problem_of_sandboxes() -> str:
    """Start one before the first submission; say why if it does not start. Runs in a worker."""
    from exercises.sandbox import require_sandbox

    try:
        require_sandbox()
    except SandboxMissing as error:
        return str(error)
    return ""


@functools.cache
def require_here() -> None:
    """Raise SandboxMissing if a worker of this machine cannot start a sandbox."""
    with ProcessPoolExecutor(1, loaded_once(LOADED), prepare_worker) as pool:
        if problem := pool.submit(problem_of_sandboxes).result():
            raise SandboxMissing(problem)


def prepare_worker() -> None:
    """Let a worker compute on one processor, as there is one for each, and end with its parent."""
    for name in ("OMP_NUM_THREADS", "MKL_NUM_THREADS"):  # PyTorch reads them when it is loaded
        os.environ[name] = "1"
    if "torch" in sys.modules:
        sys.modules["torch"].set_num_threads(1)
    signal.signal(signal.SIGINT, signal.SIG_DFL)  # quietly on Ctrl-C
    threading.Thread(target=end_with_parent, daemon=True).start()


def end_with_parent() -> None:
    """Wait until the process that started this one is gone, and end this one."""
    parent = multiprocessing.parent_process()
    assert parent is not None
    parent.join()
    os._exit(1)


def in_pool(
    jobs: list[Job], workers: int, work: Callable[[Job], Outcome] = work,
    modules: Sequence[str] = LOADED,
) -> Iterator[tuple[int, Outcome]]:  # fmt: skip
    """Grade in processes on this machine; yield (index, result) as they finish.

    If a worker is killed, what is left runs one at a time: the job that kills its worker again
    is given up, and the others get their grades.
    """
    context, waiting = loaded_once(modules), list(range(len(jobs)))
    alone = False
    while waiting:
        with ProcessPoolExecutor(1 if alone else workers, context, prepare_worker) as pool:
            try:
                futures = {pool.submit(work, jobs[index]): index for index in waiting}
                for future in concurrent.futures.as_completed(futures):
                    if not isinstance(future.exception(), BrokenProcessPool):
                        waiting.remove(futures[future])
                        yield futures[future], future.result()
            except BrokenProcessPool:
                pass  # a worker was killed while jobs were still handed over
            finally:
                pool.shutdown(cancel_futures=True)
        if waiting and alone:
            yield waiting.pop(0), Outcome(None, "", "", "the process that graded it was killed")
        alone = True


def processors() -> int:
    """Return how many processors this process may use; a container may have but some of them."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def show_progress(done: int, total: int, begin: float) -> None:
    """Draw a bar on the terminal, or a line now and then elsewhere."""
    filled = round(30 * done / max(1, total))
    line = f"[{'#' * filled}{'.' * (30 - filled)}] {done}/{total}  {time.monotonic() - begin:.0f} s"
    if sys.stderr.isatty():
        print(f"\r{line}", end="\n" if done == total else "", file=sys.stderr, flush=True)
    elif done == total or done % max(1, total // 10) == 0:
        print(line, file=sys.stderr, flush=True)


def key_of(job: Job, version: str) -> str:
    """Return a digest of all that the grade of a submission depends on."""
    parts = (version, job.secret, job.set_name, job.unreadable, str(job.limits))
    return hashlib.sha256(json.dumps(parts).encode() + (job.data or b"")).hexdigest()


def grade_course(
    course: Course, sets: list[str], base: Job, workers: int,
    again: Collection[str] = (), compare: bool = False,
) -> tuple[list[Record], list[str]]:  # fmt: skip
    """Grade a course folder and write all results.

    Args:
        course: the folder.
        sets: what to grade; what was found earlier on other sets stays in the results.
        base: what all jobs have in common.
        workers: processes on this machine.
        again: students whose submissions run again even if nothing has changed.
        compare: write nothing but changes.csv: whose points would change.

    Returns:
        The records of all submissions, and the problems of those that were not graded.

    Raises:
        ValueError: if a student in `again` has handed in nothing.
        SandboxMissing: if no sandbox starts here.
    """
    version, records, problems = grader_version(), [], []
    sets = course.names(sets)
    jobs, keys, before = [], [], []
    changes: list[Change] = []
    submissions, _ = course.submissions()
    hidden = sorted(set(course.graded()) - set(submissions))
    unseen = [pair for pair in hidden if not course.withdrawn(*pair)]
    if strangers := set(again) - {student for student, _ in submissions}:
        raise ValueError(f"again: {sorted(strangers)[0]!r} has handed in nothing")
    for student, name in submissions:
        kept = course.record(student, name)
        if name in sets:
            data, unreadable = course.read_submission(student, name)
            job = replace(base, student=student, set_name=name, data=data, unreadable=unreadable)
            key = key_of(job, version)
            same = kept is not None and kept.get("key") == key and course.complete(student, name)
            if not same or student in again:
                jobs.append(job)
                keys.append(key)
                before.append(kept)
                continue
        if kept is not None:
            records.append(kept)
    if jobs:
        require_here()
    records += filter(None, (course.record(*pair) for pair in unseen))
    begin = time.monotonic()
    for count, (index, done) in enumerate(in_pool(jobs, workers), 1):
        job = jobs[index]
        problem = done.problem
        if done.graded is not None:
            old, now = before[index], done.graded.record()
            changes += changes_between(old, now) if old is not None else []
            try:
                files = (done.notebook, done.feedback)
                records.append(now if compare else course.save(done.graded, keys[index], *files))
            except (OSError, ValueError) as error:  # one submission's files are in the way
                problem = str(error)
        if problem:
            problems.append(f"{job.student}, {job.set_name}: not graded: {problem}")
        show_progress(count, len(jobs), begin)
    if any(before):
        changes.sort()
        write_table(course.root / CHANGES, changes_table(changes))
        print(describe_changes(changes))
    if compare:
        return records, problems
    try:
        write_results(course, records, sets, unseen)
    except Exception as error:  # nbgrader's, its database's or the disk's
        problems.append(
            f"The gradebook and the tables are not all written ({type(error).__name__}: {error}); "
            "the grades are kept, and the same command goes on"
        )
    return records, problems


def write_results(
    course: Course, records: list[Record], sets: list[str], unseen: list[tuple[str, str]]
) -> None:
    """Write the gradebook, the tables and the summary; say how each set went."""
    for record in records:
        student, name = record["student"], record["set"]
        if (student, name) not in unseen:
            course.copy_exchange_files(student, name)
            record["handed_in"] = course.handed_in(student, name)
    records.sort(key=lambda record: (record["set"], record["student"]))
    for note in fill_gradebook(course, records, sets) or ():
        print(note, file=sys.stderr)
    write_tables(course, records)
    write(course.root / "summary.html", page(records))
    update_pages(course, records)
    to_upload = write_archives(course, records, sets)
    for name in sorted({record["set"] for record in records}):
        scores = [counted(record) for record in records if record["set"] == name]
        mean = sum(scores) / len(scores)
        print(f"{name}: {len(scores)} submissions, mean {mean:.1f} of {load(name).points:g}")
    print(f"Results: {course.root / 'summary.html'}, submissions.csv, answers.csv, gradebook.db")
    for line in to_upload:
        print(line)


def update_pages(course: Course, records: list[Record]) -> None:
    """Write the points and the comments of a person into pages and notebooks that lack them."""
    import nbformat

    from exercises.feedback import feedback_page, overview

    for record in records:
        student, name = record["student"], record["set"]
        if not course.complete(student, name):
            continue
        path, text = course.place("autograded", student, name, "ipynb"), overview(record)
        try:
            kept = path.read_text(encoding="utf-8")
            if source_text(json.loads(kept)["cells"][0]) != text:
                notebook = nbformat.reads(kept, 4)
                notebook.cells[0].source = text
                made = feedback_page(record, notebook)
                write(course.place("feedback", student, name, "html"), made)
                write(path, nbformat.writes(notebook))
        except (OSError, ValueError, LookupError) as error:  # somebody has changed it
            print(f"{student}, {name}: the page stays as it was ({path}: {error})", file=sys.stderr)


def describe_changes(changes: list[Change]) -> str:
    """Say how many answers get other points than before, and name them."""
    students = {change.student for change in changes}
    lines = [f"Graded again: {len(changes)} answers of {len(students)} students get other points."]
    for one in changes:
        lines.append(
            f"  {one.student}, {one.set}: {one.exercise} {one.points_before:g} -> "
            f"{one.points_now:g}"
        )
    return "\n".join(lines)


def show(course: Course, student: str, exercise: str, base: Job) -> str:
    """Return what an answer was tried on, what it returned and what was expected, run once more.

    Raises:
        ValueError: if there is no such answer.
        NotStarted: if the sandbox does not start.
    """
    from exercises.grade_submission import shown  # and PyTorch with it

    submissions = course.submissions()[0]
    theirs = [name for one, name in submissions if one == student]
    asked = [question.name for name in theirs for question in load(name).questions]
    for name in theirs:
        if exercise in {question.name for question in load(name).questions}:
            data, unreadable = course.read_submission(student, name)
            job = replace(base, student=student, set_name=name, data=data, unreadable=unreadable)
            return f"{student}, {name}, {exercise}\n{shown(job, exercise)}"
    if not theirs:
        near = difflib.get_close_matches(student, {one for one, _ in submissions}, 3, 0.5)
        hint = f"; here are {', '.join(near)}" if near else ""
        raise ValueError(f"show: nobody by the name of {student!r} has handed in anything{hint}")
    if exercise in {*theirs, *set_names()}:
        names = ", ".join(question.name for question in load(exercise).questions)
        raise ValueError(f"show: {exercise!r} is a set; its exercises are {names}")
    if exercise in {question.name for name in theirs for question in load(name).open}:
        raise ValueError(f"show: {exercise!r} is scored by hand, and nothing of it was run")
    raise ValueError(
        f"show: {student!r} has handed in no {exercise!r}; there are {', '.join(asked)}"
    )


def main(arguments: list[str] | None = None) -> int:
    """Grade a course from the command line."""
    parser = argparse.ArgumentParser(
        prog="python -m exercises.grade_course", description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )  # fmt: skip
    parser.add_argument("course", type=Path)
    parser.add_argument(
        "--set", action="append", dest="sets", choices=set_names(), metavar="SET",
        type=lambda name: name_today(name, set_names()),
    )  # fmt: skip
    parser.add_argument("--again", action="append", default=[], metavar="STUDENT")
    parser.add_argument("--compare", action="store_true", help="keep nothing; write changes.csv")
    parser.add_argument("--show", nargs=2, metavar=("STUDENT", "EXERCISE"))
    parser.add_argument("--workers", type=int, default=processors())
    parser.add_argument(
        "--seconds",
        type=float,
        default=Limits.cell,
        help="for a cell, and for all calls of an exercise",
    )
    options = parser.parse_args(arguments)
    try:
        for name, number in (("seconds", options.seconds), ("workers", options.workers)):
            if not 0 < number < math.inf:
                raise ValueError(f"--{name} must be a number above 0; got {number}")
        course = Course(options.course.expanduser())
        require_bubblewrap()
        require_hidden(course.root, course.root / "submitted", HERE.parent)
        with course.alone():
            limits = Limits(cell=options.seconds, cells=6 * options.seconds)
            base = Job("", "", None, secret=course.secret(), limits=limits)
            if options.show:
                print(show(course, *options.show, base))
                return 0
            _, problems = grade_course(
                course, options.sets or set_names(), base, options.workers,
                options.again, options.compare,
            )  # fmt: skip
            left_alone = course.submissions()[1]
    except (OSError, ValueError, SandboxMissing, NotStarted) as error:
        print(f"Not graded: {error}", file=sys.stderr)
        return 2
    except KeyboardInterrupt:
        print("\nInterrupted. The same command goes on where it stopped.", file=sys.stderr)
        return 130
    if options.compare:
        print("Nothing was kept: run the same without --compare.")
    for place in left_alone:
        print(f"Left alone: {place}", file=sys.stderr)
    for problem in problems:
        print(problem, file=sys.stderr)
    return 1 if problems or left_alone else 0


if __name__ == "__main__":
    sys.exit(main())
