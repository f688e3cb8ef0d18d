"""What grading leaves behind: a record for each submission, and nbgrader's gradebook."""

from __future__ import annotations

import contextlib
import fcntl
import hashlib
import importlib.metadata
import json
import os
import re
import secrets
import shutil
import stat
import sys
import warnings
from collections.abc import Collection, Iterator
from datetime import datetime
from pathlib import Path
from typing import Any, TextIO

from exercises import name_today
from exercises.bubblewrap import LENT, LENT_IF_HERE, required
from exercises.jobs import Graded
from exercises.notebook import handed_out, without_outputs
from exercises.sets import HERE, load, release_path, set_names, source_path

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


def fits_as_name(name: str) -> bool:
    """Return whether a student's name is one folder's, and a table or a page would show it all."""
    plain = name.isprintable() and not UNSEEN.search(name) and "/" not in name
    return plain and name == " ".join(name.split()) and name[:1] not in ("", ".")


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


def entries(folder: str | Path) -> list[os.DirEntry[str]]:
    """Return what a folder holds, in order; raise OSError if it cannot be read."""
    with os.scandir(folder) as found:
        shown = [entry for entry in found if not entry.name.startswith(".")]
    return sorted(shown, key=lambda entry: entry.name)


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
        for student in entries(self.root / "submitted"):
            place = f"submitted/{student.name}"
            if not student.is_dir(follow_symlinks=False):
                form = f"submitted/{Path(student.name).stem}/SET/SET.ipynb"
                left_alone.append(f"{place!r} is no folder; a submission is {form!r}")
                continue
            try:
                sets = entries(student.path)
            except OSError as error:
                left_alone.append(f"{place!r} cannot be read ({error.strerror})")
                continue
            taken: dict[str, str] = {}  # each set of this student's, and its name here
            for folder in sets:
                inside, today = f"{place}/{folder.name}", name_today(folder.name, names)
                if not folder.is_dir(follow_symlinks=False):
                    left_alone.append(f"{inside!r} is no folder; a submission is a file in one")
                elif today not in names:
                    left_alone.append(f"{inside!r}: there is no set of that name")
                elif not fits_as_name(student.name):
                    left_alone.append(
                        f"{inside!a}: a student's name has visible letters only, and single spaces "
                        "between them"
                    )
                elif (other := taken.setdefault(today, folder.name)) != folder.name:
                    left_alone.append(
                        f"{inside!r}: it is the same set as {other}, with another number"
                    )
                else:
                    found.append((student.name, folder.name))
        return found, left_alone

    @contextlib.contextmanager
    def alone(self) -> Iterator[None]:
        """Let no other run grade this folder meanwhile; the system ends that with the process.

        Raises:
            ValueError: if another run has begun and not ended.
        """
        with (self.root / ".grader_lock").open("w") as file:
            try:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                reason = f"{self.root} is being graded by another run; wait until it has ended"
                raise ValueError(reason) from None
            except OSError:
                pass  # there are no locks on this file system
            yield

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

    def graded(self) -> list[tuple[str, str]]:
        """Return (student, set) of all that has a record."""
        names = set_names()
        pairs = {path.parts[-3:-1] for path in self.root.glob("records/*/*/*.json")}
        return sorted(
            (student, name) for student, name in pairs if name_today(name, names) in names
        )

    def withdrawn(self, student: str, name: str) -> bool:
        """Return whether a submission is no longer there; one that cannot be seen may be."""
        try:
            (self.root / "submitted" / student / name).lstat()
        except FileNotFoundError:
            return True
        except OSError:
            return False
        return False

    def set_aside(self, student: str, name: str) -> None:
        """Move the pages of a withdrawn submission to where nbgrader does not look for them."""
        for kind in ("autograded", "feedback"):
            pages = self.root / kind / student / name
            aside = self.root / "withdrawn" / kind / student / name
            if pages.is_dir():
                aside.parent.mkdir(parents=True, exist_ok=True)
                shutil.rmtree(aside, ignore_errors=True)  # of an earlier withdrawal
                pages.rename(aside)

    def save(self, graded: Graded, key: str, autograded: str, feedback: str) -> Record:
        """Write the files of a graded submission; the record comes last."""
        student, name = graded.student, graded.set_name
        before = self.record(student, name) or {}
        write(self.place("autograded", student, name, "ipynb"), autograded)
        write(self.place("feedback", student, name, "html"), feedback)
        record = {**graded.record(), "key": key}
        record["rewritten"] = [
            one for one, text in record["open"].items()
            if one in before.get("rewritten", ()) or before.get("open", {}).get(one, text) != text
        ]  # fmt: skip
        write(self.place("records", student, name, "json"), json.dumps(record, indent=1))
        return record

    def forget_rewritten(self, student: str, name: str) -> None:
        """Write into a record that the gradebook knows of all answers that were rewritten."""
        if kept := self.record(student, name):
            text = json.dumps({**kept, "rewritten": []}, indent=1)
            write(self.place("records", student, name, "json"), text)


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


def grader_version() -> str:
    """Return a digest of all that a grade depends on, besides the submission."""
    notebooks = [path(name) for name in set_names() for path in (source_path, release_path)]
    code = [
        path
        for folder in (HERE, HERE.parent / "pe_lib", HERE.parent / "pe_course/judge")
        for path in folder.rglob("*.py")
    ]
    digest = hashlib.sha256(sys.version.encode())
    for path in [*sorted(code), *notebooks]:
        digest.update(path.read_bytes())
    for name in sorted(required((*LENT, *LENT_IF_HERE))):
        digest.update(f"{name} {importlib.metadata.version(name)}\n".encode())
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
        for student, name in course.graded():
            if name in sets and course.withdrawn(student, name):
                notes += take_out(course, book, student, name)
        book.db.commit()
    for record in records:
        if record.pop("rewritten", ()):
            course.forget_rewritten(record["student"], record["set"])
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
        # nbgrader keeps no source of what a student edits and nobody scores, such as a forecast.
        kept = cell.as_handed_out or cell.metadata.get("solution")
        if kept and cell.grade_id not in known:
            book.add_source_cell(
                cell.grade_id, name, name, cell_type=cell.kind, source=cell.source,
                locked=cell.as_handed_out, checksum=cell.metadata.get("checksum"),
            )  # fmt: skip


def fill_submission(book: Any, record: Record) -> list[str]:
    """Write the scores of one submission, and read what an instructor has added.

    Returns:
        The answers whose score by hand is older than what this run has found.
    """
    known = {"timestamp": record["handed_in"]} if record.get("handed_in") else {}
    submission = book.update_or_create_submission(record["set"], record["student"], **known)
    record.setdefault("handed_in", submission.timestamp)  # where nobody could look
    points = {verdict["test_id"]: verdict["points"] for verdict in record["verdicts"]}
    record["late"] = float(submission.total_seconds_late) if record["handed_in"] else None
    record["by_hand"], record["open_scores"], record["was"], notes, extra = {}, {}, {}, [], 0.0
    record["comments"] = {
        comment.name: comment.manual_comment
        for notebook in submission.notebooks for comment in notebook.comments
        if comment.manual_comment
    }  # fmt: skip
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

    What was scored waits again once it is rewritten, until formgrader says that it is scored.

    Returns:
        What to look at: an answer that is not the one that was scored.
    """
    name, notes = grade.cell.name, []
    answered, scored = bool(record["open"][name]), grade.manual_score is not None
    grade.auto_score = None if answered or scored else 0.0
    if scored and name in record.get("rewritten", ()):
        grade.needs_manual_grade = True
        notes.append(
            f"{record['student']}, {record['set']}: {name} was rewritten after it got "
            f"{grade.manual_score:g} points by hand, and waits to be scored again"
        )
    elif not scored:
        grade.needs_manual_grade = answered
    if not grade.needs_manual_grade:
        record["open_scores"][name] = grade.manual_score if scored else 0.0
    elif scored:
        record["was"][name] = grade.manual_score
    return notes


def take_out(course: Course, book: Any, student: str, name: str) -> list[str]:
    """Remove a withdrawn submission from the gradebook, unless somebody has worked on it."""
    from nbgrader.api import MissingEntry

    notes = []
    with contextlib.suppress(MissingEntry):  # taken out earlier
        submission = book.find_submission(name, student)
        parts = [part for notebook in submission.notebooks for part in notebook.grades]
        comments = [part for notebook in submission.notebooks for part in notebook.comments]
        by_hand = any(part.manual_score is not None or part.extra_credit for part in parts)
        if by_hand or any(comment.manual_comment for comment in comments):
            return [f"{student}, {name}: withdrawn; its scores by hand stay in the gradebook"]
        book.remove_submission(name, student)
        notes = [f"{student}, {name}: withdrawn, and taken out of the gradebook"]
    course.set_aside(student, name)
    return notes
