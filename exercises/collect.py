"""Take the notebooks of a set out of Canvas's or Moodle's download of all submissions.

    python -m exercises.collect COURSE 10_rope download.zip
    python -m exercises.collect COURSE 10_rope download.zip worksheet.csv

They go to COURSE/submitted/STUDENT/SET/SET.ipynb. The student is the number in the platform's part
of a file's name or, with the grading worksheet of Moodle, the address that belongs to it. What is
no notebook of the set stays in the download and is named; no archive of a student's is opened.
"""

from __future__ import annotations

import csv
import re
import sys
import zipfile
import zlib
from collections import defaultdict
from collections.abc import Mapping
from pathlib import Path

from exercises.records import LARGEST_FILE, fits_as_name
from exercises.sets import load

# Canvas: NAME_(LATE_)STUDENT_FILE_ and the student's own name of the file; Moodle:
# NAME_STUDENT_assignsubmission_file_ and the same, as a folder or not.
MARK = re.compile(r"_([0-9]+)_(?:[0-9]+_|assignsubmission_file_/?)")
COUNTED = r"(?:-[0-9]+| ?\([0-9]+\))?\.ipynb"  # by the platform or a browser
BROKEN = (OSError, EOFError, RuntimeError, zipfile.BadZipFile, zlib.error)


def student_of(member: str, name: str) -> str:
    """Return whose notebook of a set a file of a download is; nothing if it is none.

    The first mark is the platform's: what stands behind it, the student has chosen, and it must be
    the set's name and no more.
    """
    mark = MARK.search(member)
    if mark is None or "/" in member[: mark.start()]:
        return ""
    return mark[1] if re.fullmatch(re.escape(name) + COUNTED, member[mark.end() :]) else ""


def read_worksheet(path: Path) -> dict[str, str]:
    """Return the address of each participant in Moodle's grading worksheet."""
    with path.open(encoding="utf-8-sig", newline="") as file:
        lines = list(csv.DictReader(file))
    for column in ("Identifier", "Email address"):
        if any(column not in line for line in lines):
            raise ValueError(f"{path} has no column {column!r}; it has {list(lines[0])}")
    told = ((line["Identifier"], line["Email address"] or "") for line in lines)
    return {participant.split()[-1]: address for participant, address in told}


def collect(
    root: Path, name: str, download: Path, names: Mapping[str, str]
) -> tuple[list[str], list[str]]:
    """Write the notebooks of a set into a course folder.

    Args:
        root: the course folder.
        name: of the set.
        download: the archive, as the platform gives it.
        names: what students are called instead of their numbers, where that is known.

    Returns:
        The students, and what was left out and why.
    """
    students, left_out = [], []
    with zipfile.ZipFile(download) as archive:
        found = defaultdict(list)
        for member in archive.infolist():
            if student := student_of(member.filename, name):
                found[names.get(student, student)].append(member)
            elif not member.is_dir():
                left_out.append(f"{member.filename!a} is no notebook of {name} by its name")
        for student, members in found.items():
            if len(members) > 1 or not fits_as_name(student):
                why = "is one of several" if len(members) > 1 else f"would belong to {student!a}"
                left_out += [f"{member.filename!a} {why}" for member in members]
                continue
            try:
                with archive.open(members[0]) as file:  # which may hold more than it says
                    data = file.read(LARGEST_FILE + 1)
            except BROKEN as error:
                left_out.append(f"{members[0].filename!a} cannot be read ({error})")
                continue
            # One that is too large is graded as such, with what could be read of it.
            place = root / "submitted" / student / name / f"{name}.ipynb"
            place.parent.mkdir(parents=True, exist_ok=True)
            place.write_bytes(data)
            students.append(student)
    return students, left_out


def main(arguments: list[str] | None = None) -> int:
    """Collect the notebooks of one set."""
    given = sys.argv[1:] if arguments is None else arguments
    if len(given) not in (3, 4):
        print(__doc__, file=sys.stderr)
        return 2
    root, (name, *files) = Path(given[0]).expanduser(), given[1:]
    try:
        names = read_worksheet(Path(files[1])) if files[1:] else {}
        load(name)
        students, left_out = collect(root, name, Path(files[0]), names)
    except (ValueError, csv.Error, *BROKEN) as error:
        print(f"Not collected: {error}", file=sys.stderr)
        return 2
    print(f"{len(students)} notebooks in {root / 'submitted'}")
    for line in left_out:
        print(f"Left out: {line}", file=sys.stderr)
    return 1 if left_out else 0


if __name__ == "__main__":
    sys.exit(main())
