"""What grading leaves behind: a record for each submission, and nbgrader's gradebook."""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import re
import secrets
import stat
import sys
import warnings
from collections.abc import Collection, Iterator
from datetime import datetime
from pathlib import Path
from typing import Any, TextIO

from exercises import name_today
from exercises.jobs import Graded
from exercises.notebook import handed_out, without_outputs
from exercises.sets import HERE, load, set_names, source_path

LARGEST = 5 << 20  # bytes of a notebook
LARGEST_FILE = 24 << 20  # the same with its outputs, which are left out
# What nbgrader's exchange puts beside a notebook, and looks for beside its feedback.
EXCHANGED = ("timestamp.txt", "submission_secret.txt")
KEPT = {"student", "set", "points", "max_points", "seconds", "verdicts"}  # of a record
Record = dict[str, Any]
# Letters and marks that are printable for Python and show nothing: fillers, a blank of Braille,
# marks that choose a form of the letter before.
UNSEEN = re.compile(
    r"[\u034f\u115f\u1160\u17b4\u17b5\u180b-\u180f\u2800\u3164\ufe00-\ufe0f\uffa0]"
    r"|[\U000e0100-\U000e01ef]"
)


def seen_in_full(name: str) -> bool:
    """Return whether a student's name has no part that a table or a page would not show."""
    plain = name.isprintable() and not UNSEEN.search(name)
    return plain and name == " ".join(name.split())


def read_plain(path: Path, largest: int) -> bytes:
    """Return the bytes of a file that someone else has put there.

    Raises:
        OSError: if it is not there, or cannot be read.
        ValueError: if it is no plain file, or larger than `largest` bytes.
    """
    # Neither links (to other people's files) nor pipes (that never end) are followed.
    number = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK)
    with os.fdopen(number, "rb") as file:
        status = os.fstat(number)
        if not stat.S_ISREG(status.st_mode):
            raise ValueError(f"{path.name} is not a plain file")
        if status.st_size > largest:
            raise ValueError(f"{path.name} is larger than {largest / 2**20:g} MiB")
        return file.read(largest)


class Course:
    """A course folder in nbgrader's layout: submitted/STUDENT/SET/SET.ipynb and the rest."""

    def __init__(self, root: Path) -> None:
        """Take a folder that has a folder `submitted`."""
        self.root = root
        if not (root / "submitted").is_dir():
            raise ValueError(
                f"{root} has no folder submitted; submissions belong in "
                f"{root}/submitted/STUDENT/SET/SET.ipynb"
            )

    def submissions(self) -> tuple[list[tuple[str, str]], list[str]]:
        """Return (student, set) of all that was handed in, in order, and what is left alone."""
        names, found, left_alone = set_names(), [], []
        taken: dict[tuple[str, str], str] = {}
        for path in sorted((self.root / "submitted").glob("[!.]*")):
            if not path.is_dir():
                place = f"submitted/{path.stem}/SET/SET.ipynb"
                left_alone.append(f"{f'submitted/{path.name}'!r}: a submission is {place!r}")
        for folder in sorted((self.root / "submitted").glob("*/[!.]*")):
            student, name = folder.parent.name, folder.name
            place, today = f"submitted/{student}/{name}", name_today(name, names)
            if not folder.is_dir() or folder.is_symlink() or folder.parent.is_symlink():
                left_alone.append(f"{place!r} is no folder; a submission is a file in one")
            elif today not in names:
                left_alone.append(f"{place!r}: there is no set of that name")
            elif student.startswith(".") or not seen_in_full(student):
                left_alone.append(
                    f"{place!a}: a student's name has visible letters only, and single spaces "
                    "between them"
                )
            elif (other := taken.setdefault((student, today), name)) != name:
                left_alone.append(f"{place!r}: it is the same set as {other}, with another number")
            else:
                found.append((student, name))
        return found, left_alone

    def names(self, sets: Collection[str]) -> list[str]:
        """Return sets with the names that they have here: a class keeps those it began with."""
        here = {path.name for path in self.root.glob("submitted/*/*")}
        here |= {path.name for path in self.root.glob("records/*/*")}
        return sorted({*sets, *(name for name in here if name_today(name, sets) in sets)})

    def secret(self) -> str:
        """Return what the hidden inputs are drawn from; made once, so that grades repeat."""
        path = self.root / ".grader_secret"
        if not path.exists():
            with os.fdopen(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "w") as file:
                file.write(secrets.token_hex(16))
        found = path.read_text().strip()
        if not found:
            raise ValueError(f"{path} is empty: anyone could draw the hidden inputs; remove it")
        return found

    def read_submission(self, student: str, name: str) -> tuple[bytes | None, str]:
        """Return the bytes of a submission, or None and the reason."""
        folder = self.root / "submitted" / student / name
        try:
            data = read_plain(folder / f"{name}.ipynb", LARGEST_FILE)
            if len(data) > LARGEST:
                data = without_outputs(data)
            if len(data) > LARGEST:
                raise ValueError(f"{name}.ipynb is larger than {LARGEST >> 20} MiB without outputs")
            return data, ""
        except ValueError as error:
            return None, str(error)
        except OSError as error:
            others = sorted(path.name for path in folder.glob("*.ipynb"))
            there = f"; the folder holds {others[0]!r}" if others else ""
            return None, f"there is no file {name}.ipynb that can be read ({error.strerror}){there}"

    def handed_in(self, student: str, name: str) -> datetime | None:
        """Return when a submission was handed in (UTC), if nbgrader's timestamp.txt says so."""
        from nbgrader.utils import parse_utc

        try:
            text = read_plain(self.root / "submitted" / student / name / EXCHANGED[0], 200)
            found: datetime | None = parse_utc(text.decode().strip())
        except (OSError, ValueError, ArithmeticError, TypeError, AttributeError):
            return None
        return found

    def copy_exchange_files(self, student: str, name: str) -> None:
        """Copy what nbgrader's exchange needs to return the feedback of a submission."""
        for file in EXCHANGED:
            try:
                data = read_plain(self.root / "submitted" / student / name / file, 1000)
            except (OSError, ValueError):
                continue  # handed in by another way
            for kind in ("autograded", "feedback"):
                self.place(kind, student, name, "html").with_name(file).write_bytes(data)

    def place(self, kind: str, student: str, name: str, ending: str) -> Path:
        """Return a path in nbgrader's layout, its folder made."""
        path = self.root / kind / student / name / f"{name}.{ending}"
        path.parent.mkdir(parents=True, exist_ok=True)
        return path

    def record(self, student: str, name: str) -> Record | None:
        """Return the record that an earlier run has left, if there is one and it is whole."""
        path = self.root / "records" / student / name / f"{name}.json"
        try:
            found: Record = json.loads(path.read_text(encoding="utf-8"))
        except (OSError, ValueError):
            return None
        whole = isinstance(found, dict) and found.keys() >= KEPT
        return found if whole and (found["student"], found["set"]) == (student, name) else None

    def complete(self, student: str, name: str) -> bool:
        """Return whether what a run writes for a submission is still there."""
        ends = (("autograded", "ipynb"), ("feedback", "html"))
        return all((self.root / kind / student / name / f"{name}.{end}").is_file()
                   for kind, end in ends)  # fmt: skip

    def withdrawn(self, name: str) -> list[str]:
        """Return the students whose submission of a set was graded and is no longer there."""
        graded = {path.parts[-3] for path in self.root.glob(f"records/*/{name}/{name}.json")}
        there = {student for student, other in self.submissions()[0] if other == name}
        return sorted(graded - there)

    def save(self, graded: Graded, key: str, autograded: str, feedback: str) -> Record:
        """Write the files of a graded submission; the record comes last."""
        student, name = graded.student, graded.set_name
        before = (self.record(student, name) or {}).get("open", {})
        write(self.place("autograded", student, name, "ipynb"), autograded)
        write(self.place("feedback", student, name, "html"), feedback)
        record = {**graded.record(), "key": key}
        rewritten = [one for one, text in record["open"].items() if before.get(one, text) != text]
        write(self.place("records", student, name, "json"), json.dumps(record, indent=1))
        return {**record, "rewritten": rewritten}


@contextlib.contextmanager
def write_new(path: Path) -> Iterator[TextIO]:
    """Open a file that takes the place of `path` when it is whole."""
    fresh = path.with_name(path.name + ".new")
    with fresh.open("w", encoding="utf-8", newline="") as file:
        yield file
    fresh.replace(path)


def write(path: Path, text: str) -> None:
    """Write a file so that it is either whole or not there."""
    with write_new(path) as file:
        file.write(text)


def used_by_checks() -> list[Path]:
    """Return the files of the checks, and those that they import, directly or not."""
    waiting = sorted((HERE / "checks").glob("*.py"))
    found: list[Path] = []
    while waiting:
        path = waiting.pop()
        if path in found or not path.exists():
            continue
        found.append(path)
        names = re.findall(r"^from pe_lib\.(\w+) import", path.read_text(), flags=re.MULTILINE)
        waiting += [HERE.parent / "pe_lib" / f"{name}.py" for name in names]
    return sorted(found)


def grader_version() -> str:
    """Return a digest of all that a grade depends on, besides the submission."""
    own = [*HERE.glob("*.py"), *HERE.glob("inside/*.py"), *map(source_path, set_names())]
    digest = hashlib.sha256()
    for path in [*sorted(own), *used_by_checks()]:
        digest.update(path.read_bytes())
    return digest.hexdigest()


def find_alembic() -> None:
    """Put this environment's programs on the path: nbgrader starts `alembic` by name."""
    os.environ["PATH"] = f"{Path(sys.executable).parent}{os.pathsep}{os.environ.get('PATH', '')}"


def fill_gradebook(course: Course, records: list[Record], sets: list[str]) -> list[str]:
    """Write all scores into nbgrader's gradebook; manual scores and comments stay.

    What the gradebook knows, scores by hand and how late a submission is, goes into the records.

    Args:
        course: the folder.
        records: what was found, in this run or earlier.
        sets: what this run is about; their withdrawn submissions are taken out.

    Returns:
        What an instructor should look at.
    """
    import sqlalchemy.exc
    from nbgrader.api import Gradebook

    find_alembic()
    # nbgrader warns about the order in which it links its own rows.
    warnings.filterwarnings("ignore", message="Object of type", category=sqlalchemy.exc.SAWarning)
    notes: list[str] = []
    with Gradebook(f"sqlite:///{course.root / 'gradebook.db'}") as book:
        for name in sorted({record["set"] for record in records}):
            describe_assignment(book, name)
        known = {student.id for student in book.students}
        for record in records:
            if record["student"] not in known:
                book.add_student(record["student"])
                known.add(record["student"])
            notes += fill_submission(book, record)
        for name in sets:
            for student in course.withdrawn(name):
                notes += take_out(book, name, student)
        book.db.commit()
    return notes


def describe_assignment(book: Any, name: str) -> None:
    """Tell the gradebook which cells a set has, and what they are worth."""
    book.update_or_create_assignment(name)
    notebook = book.update_or_create_notebook(name, name)
    for question in load(name).questions:
        book.update_or_create_grade_cell(
            question.test_id, name, name, max_score=question.points, cell_type="code"
        )
    for question in load(name).open:
        book.update_or_create_grade_cell(
            question.name, name, name, max_score=question.points, cell_type="markdown"
        )
    # With all of its cells known, `nbgrader generate_assignment` still works after submissions.
    known = {cell.name for cell in notebook.source_cells}
    for cell in handed_out(name):
        if cell.metadata.get("solution"):  # also the work of an open question, which has no points
            book.update_or_create_solution_cell(cell.grade_id, name, name)
        if cell.grade_id not in known | {""}:
            book.add_source_cell(
                cell.grade_id, name, name, cell_type=cell.kind, source=cell.source,
                locked=cell.as_handed_out, checksum=cell.metadata.get("checksum"),
            )  # fmt: skip


def fill_submission(book: Any, record: Record) -> list[str]:
    """Write the scores of one submission, and read what an instructor has added.

    Returns:
        The answers whose score by hand is older than what this run has found.
    """
    known = {"timestamp": record["handed_in"]} if record["handed_in"] else {}
    submission = book.update_or_create_submission(record["set"], record["student"], **known)
    points = {verdict["test_id"]: verdict["points"] for verdict in record["verdicts"]}
    record["late"] = float(submission.total_seconds_late) if record["handed_in"] else None
    record["by_hand"], record["open_scores"], notes, extra = {}, {}, [], 0.0
    for notebook in submission.notebooks:
        for grade in notebook.grades:
            found, name = points.get(grade.cell.name), grade.cell.name
            extra += grade.extra_credit or 0.0
            if name in record.get("open", {}):
                notes += fill_open(grade, record)
                continue
            if grade.manual_score is not None:
                record["by_hand"][name] = grade.manual_score
                if grade.auto_score not in (None, found):
                    notes.append(
                        f"{record['student']}, {record['set']}: {name} keeps the "
                        f"{grade.manual_score:g} points given by hand; now {found or 0:g} are found"
                    )
            if found is not None:  # else a cell of the instructor's own, graded by hand
                grade.auto_score = found
                grade.needs_manual_grade = grade.manual_score is not None
    record["counts"] = sum({**points, **record["by_hand"]}.values()) + extra
    return notes


def fill_open(grade: Any, record: Record) -> list[str]:
    """Let an open answer wait for a person, or have no points if there is none.

    Returns:
        What to look at: an answer that is not the one that was scored.
    """
    name, notes = grade.cell.name, []
    answered, scored = bool(record["open"][name]), grade.manual_score is not None
    grade.auto_score = None if answered or scored else 0.0
    if answered and scored and name in record.get("rewritten", ()):
        grade.needs_manual_grade = True
        notes.append(
            f"{record['student']}, {record['set']}: {name} was rewritten after it got "
            f"{grade.manual_score:g} points by hand"
        )
    elif not scored:
        grade.needs_manual_grade = answered
    if scored or not answered:
        record["open_scores"][name] = grade.manual_score if scored else 0.0
    return notes


def take_out(book: Any, name: str, student: str) -> list[str]:
    """Remove a withdrawn submission from the gradebook, unless somebody has worked on it."""
    from nbgrader.api import MissingEntry

    try:
        submission = book.find_submission(name, student)
    except MissingEntry:
        return []
    parts = [part for notebook in submission.notebooks for part in notebook.grades]
    comments = [part for notebook in submission.notebooks for part in notebook.comments]
    by_hand = any(part.manual_score is not None or part.extra_credit for part in parts)
    if by_hand or any(comment.manual_comment for comment in comments):
        return [f"{student}, {name}: withdrawn; its scores by hand stay in the gradebook"]
    book.remove_submission(name, student)
    return [f"{student}, {name}: withdrawn, and taken out of the gradebook"]
