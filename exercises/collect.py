"""Take the notebooks of a set out of a learning platform's download of all submissions.

    python -m exercises.collect COURSE 10_rope download.zip
    python -m exercises.collect COURSE 10_rope download.zip worksheet.csv

The download is the archive, or the folder that it was unpacked into, of Moodle, Canvas, Blackboard
or Gradescope. Notebooks go to COURSE/submitted/STUDENT/SET/SET.ipynb. The student is what the
platform's part of a file's name says or, with the grading worksheet of Moodle, the address that
belongs to it. What is no notebook of the set stays in the download and is named; no archive of a
student's is opened. COURSE/collected.json keeps where each notebook came from, so that feedback can
go back by the same way.
"""

from __future__ import annotations

import argparse
import contextlib
import csv
import functools
import io
import json
import os
import re
import sys
import zipfile
import zlib
from collections import defaultdict
from collections.abc import Callable, Collection, Iterator, Mapping
from itertools import zip_longest
from pathlib import Path
from typing import IO, NamedTuple

from exercises.platforms import PLATFORMS, Owner, Told, platform_of
from exercises.records import EXCHANGED, LARGEST_FILE, Course, fits_as_name, write
from exercises.sets import load, set_names

COUNTED = r"(?:-[0-9]+| ?\([0-9]+\))?\.ipynb"  # by the platform or a browser
BROKEN = (OSError, EOFError, RuntimeError, zipfile.BadZipFile, zlib.error)
METADATA = re.compile(r"(?:assignment_[0-9]+_export/)?submission_metadata\.yml")
NUMBERED = re.compile(r"\D*([0-9]+)")  # 'Participant 34567' in any language
ADDRESS = re.compile(r"[^@\s]+@[^@\s]+")
KEPT = "collected.json"


class File(NamedTuple):
    """A file of a download."""

    name: str
    open: Callable[[], IO[bytes]]


class Origin(NamedTuple):
    """Where a notebook came from: the platform, what it calls the student, the file's name."""

    platform: str
    number: str
    file: str


class Sent(NamedTuple):
    """A notebook that was handed in, and what the platform calls the student in two places."""

    file: File
    owner: Owner
    number: str
    mark: str


class Collected(NamedTuple):
    """What was collected, what is worth saying, and what is not in order."""

    students: list[str]
    said: list[str]
    problems: list[str]


@contextlib.contextmanager
def opened(download: Path) -> Iterator[list[File]]:
    """Yield the files of an archive or a folder, but those that a Mac adds to either."""
    with contextlib.ExitStack() as stack:
        if download.is_dir():
            paths = [Path(folder, name) for folder, _, names in os.walk(download) for name in names]
            found = [
                File(path.relative_to(download).as_posix(), functools.partial(path.open, "rb"))
                for path in sorted(paths)
                if not path.is_symlink()
            ]
        elif zipfile.is_zipfile(download):
            archive = stack.enter_context(zipfile.ZipFile(download))
            members = [member for member in archive.infolist() if not member.is_dir()]
            found = [
                File(member.filename, functools.partial(archive.open, member)) for member in members
            ]
        else:
            raise ValueError(f"{download} is neither a zip archive nor a folder")
        yield [
            file for file in found
            if not file.name.startswith("__MACOSX/") and not file.name.endswith(".DS_Store")
        ]  # fmt: skip


def told_by_blackboard(files: list[File]) -> Told:
    """Return the user name of each ASSIGNMENT_USER, which ends the text file's first line."""
    told = {}
    for file in files:
        mark = PLATFORMS["blackboard"].mark.fullmatch(file.name)
        if mark is not None:  # nothing of the student's in the name: it is the text file
            with file.open() as text:
                first = text.readline(1000).decode(errors="replace")
            user = re.search(r"\(([^()]+)\)\s*$", first)
            if user and mark[1].endswith(f"_{user[1]}"):
                told[mark[1]] = user[1]
    return told


def told_by_gradescope(files: list[File]) -> Told:
    """Return what submission_metadata.yml says of each submission."""
    import yaml

    found = [file for file in files if METADATA.fullmatch(file.name)]
    if len(found) != 1:
        raise ValueError(
            "Gradescope's export says in submission_metadata.yml whose each submission is; "
            f"here are {len(found)} such files. Export the submissions again, and leave it as it is"
        )
    with found[0].open() as text:
        try:
            told = yaml.load(text, getattr(yaml, "CSafeLoader", yaml.SafeLoader))
            for entry in told.values():
                [one.get(":email") for one in entry[":submitters"]]
        except (yaml.YAMLError, AttributeError, KeyError, TypeError) as error:
            raise ValueError(f"{found[0].name} is not as Gradescope writes it ({error})") from None
    return dict(told)


TOLD = {"blackboard": told_by_blackboard, "gradescope": told_by_gradescope}


def owner_of(file: str, name: str, platform: str, told: Told) -> Owner | None:
    """Return whose notebook of a set a file of a download is; nothing if it is none.

    What stands behind the platform's part, the student has chosen, and it must be the set's name
    and no more.
    """
    mark = PLATFORMS[platform].mark.match(file)
    if mark is None or not re.fullmatch(re.escape(name) + COUNTED, file[mark.end() :]):
        return None
    return PLATFORMS[platform].owner(mark, told)


def anonymous(file: str) -> bool:
    """Return whether Canvas has hidden whose a file is."""
    mark = PLATFORMS["canvas"].mark.match(file)
    return mark is not None and mark[1] is not None


def worksheet_rows(data: bytes) -> list[list[str]]:
    """Return the lines of a table in whatever form a spreadsheet may have written it."""
    if data[:2] in (b"\xff\xfe", b"\xfe\xff"):
        text = data.decode("utf-16")
    else:
        try:
            text = data.decode("utf-8-sig")
        except UnicodeDecodeError:
            text = data.decode("cp1252", errors="replace")
    text = re.sub(r"\Asep=.\r?\n", "", text)  # a line for Excel alone
    tables = [list(csv.reader(io.StringIO(text, newline=""), delimiter=one)) for one in ",;\t"]
    rows = max(tables, key=lambda rows: max(map(len, rows), default=0))
    return [row for row in rows if any(row)]


def read_worksheet(path: Path, numbers: Collection[str]) -> tuple[dict[str, str], str]:
    """Return the address of each participant in Moodle's grading worksheet.

    Its columns are found by what they hold, as their headings are in the instructor's language.

    Args:
        path: of the file.
        numbers: of the participants in the download.

    Returns:
        The addresses, and which columns were taken.

    Raises:
        ValueError: if a column is missing, or none of the participants is there.
    """
    data = path.read_bytes()
    if data.startswith(b"PK"):  # a spreadsheet's own file, or the download itself
        raise ValueError(f"{path} is an archive and no worksheet; save the worksheet as CSV")
    head, *lines = worksheet_rows(data) or [[]]
    if not lines:
        raise ValueError(f"{path} has no line of a participant; download the worksheet again")
    columns = [[cell.strip() for cell in column] for column in zip_longest(*lines, fillvalue="")]
    titles = head + ["without a heading"] * (len(columns) - len(head))

    def holding(form: re.Pattern[str], what: str) -> list[int]:
        found = [
            index for index, column in enumerate(columns)
            if any(column) and all(form.fullmatch(cell) for cell in column if cell)
        ]  # fmt: skip
        if not found:
            hint = "; if Moodle hides the names, reveal them first, or leave the worksheet out"
            hint *= form is ADDRESS
            raise ValueError(f"{path} has no column of {what}; it has {head}{hint}")
        return found

    def named(index: int) -> list[str]:
        return ["".join(NUMBERED.findall(cell)) for cell in columns[index]]

    address, *_ = holding(ADDRESS, "e-mail addresses")
    who = max(
        holding(NUMBERED, "participants with their numbers"),
        key=lambda index: len({*named(index)} & {*numbers}),
    )
    names = dict(zip(named(who), columns[address], strict=True))
    if not names.keys() & {*numbers}:
        raise ValueError(
            f"{path} names none of the submissions; each assignment of Moodle has its own numbers "
            "and a worksheet of its own"
        )
    return names, f"{path.name}: who is who, by its columns {titles[who]!r} and {titles[address]!r}"


def read_kept(root: Path) -> dict[str, dict[str, Origin]]:
    """Return where the notebooks of a course folder came from, by set and student."""
    path = root / KEPT
    if not path.exists():
        return {}
    try:
        kept = json.loads(path.read_text(encoding="utf-8"))
        return {
            name: {student: Origin(*origin) for student, origin in students.items()}
            for name, students in kept.items()
        }
    except (ValueError, TypeError, AttributeError) as error:
        raise ValueError(
            f"{path} cannot be read ({error}); remove it, and collect the downloads again"
        ) from None


def refuse_twice(
    root: Path, name: str, before: Mapping[str, Origin], found: Mapping[str, Origin]
) -> None:
    """Raise ValueError if somebody is here already by another name."""
    lines = []
    for student, origin in found.items():
        others = {one for one, old in before.items() if old[:2] == origin[:2]} | {origin.number}
        lines += [
            f"  {root}/submitted/{other}/{name}  to  {root}/submitted/{student}/{name}"
            for other in sorted(others - {student})
            if (root / "submitted" / other / name).is_dir()
        ]
    if lines:
        raise ValueError(
            f"would be graded twice, being here already by another name: {len(lines)}. Collect as "
            "before, with the worksheet or without it, or move these folders first (points by hand "
            "stay in the gradebook under the old name):\n" + "\n".join(lines)
        )


def one_each(
    found: Mapping[str, list[Sent]], said: list[str], problems: list[str]
) -> Iterator[tuple[str, Sent]]:
    """Yield students and what counts of each; say which attempt it is, or why nothing counts."""
    for student, theirs in found.items():
        last = max(one.owner.attempt for one in theirs)
        latest = [one for one in theirs if one.owner.attempt == last]
        if len(latest) > 1 or len({one.mark for one in theirs}) > 1:
            problems += [f"Left out: {one.file.name!r} is one of several" for one in theirs]
        elif not fits_as_name(student):
            problems.append(f"Left out: {latest[0].file.name!r} would belong to {student!r}")
        else:
            if len(theirs) > 1:
                said.append(f"{student}: of {len(theirs)} attempts the latest counts, {last}")
            yield student, latest[0]


def put(place: Path, sent: Sent) -> None:
    """Write a notebook in the place of an earlier one, which stays until the new one is whole."""
    with sent.file.open() as stream:  # which may hold more than it says
        data = stream.read(LARGEST_FILE + 1)
    # One that is too large is graded as such, with what could be read of it.
    place.parent.mkdir(parents=True, exist_ok=True)
    fresh = place.with_suffix(".new")
    fresh.write_bytes(data)
    fresh.replace(place)
    if sent.owner.handed_in:
        place.with_name(EXCHANGED[0]).write_text(f"{sent.owner.handed_in:%Y-%m-%d %H:%M:%S} UTC")


def collect(
    root: Path, name: str, download: Path, worksheet: Path | None = None, platform: str = ""
) -> Collected:
    """Write the notebooks of a set into a course folder.

    Args:
        root: the course folder.
        name: of the set.
        download: the archive, as the platform gives it, or a folder with what was in it.
        worksheet: Moodle's, which says what students are called instead of their numbers.
        platform: whose download it is, where its names do not say so.

    Returns:
        The students, what to say, and what was left out and why.

    Raises:
        ValueError: if nothing is collected, and why.
    """
    load(name)
    kept = read_kept(root)
    before = kept.get(name, {})
    with opened(download) as files:
        platform = platform or platform_of([file.name for file in files])
        mark, title = PLATFORMS[platform].mark, PLATFORMS[platform].title
        told = TOLD.get(platform, lambda _: {})(files)
        said, problems, names = [f"The download is {title}'s."], [], {}
        if worksheet is not None:
            if platform != "moodle":
                raise ValueError(f"the download is {title}'s, and a worksheet goes with Moodle's")
            numbers = {match[1] for file in files if (match := mark.match(file.name))}
            names, taken = read_worksheet(worksheet, numbers)
            said.append(taken)
            problems += [f"{worksheet.name} has no participant {one}, whose folder is {one}"
                         for one in sorted(numbers - names.keys())]  # fmt: skip
        elif platform == "moodle":
            said.append("Students are numbers of this assignment alone; its grading worksheet "
                        "would say their addresses.")  # fmt: skip
        found: dict[str, list[Sent]] = defaultdict(list)
        for file in files:
            owner = owner_of(file.name, name, platform, told)
            for number in owner.numbers if owner else ():
                sender = mark.match(file.name)[1]
                found[names.get(number, number)].append(Sent(file, owner, number, sender))
            if not owner and not mark.fullmatch(file.name) and not METADATA.fullmatch(file.name):
                problems.append(f"Left out: {file.name!r} is no notebook of {name} by its name")
        if not found:
            for other in set_names():
                if any(owner_of(file.name, other, platform, told) for file in files):
                    raise ValueError(f"no file is a notebook of {name}; this looks like {other}")
        if platform == "canvas" and any(map(anonymous, (file.name for file in files))):
            said.append("Canvas has hidden the names: the letters and digits are of this "
                        "assignment alone, and no import of points accepts them.")  # fmt: skip
        chosen = dict(one_each(found, said, problems))
        origins = {student: Origin(platform, one.number, one.file.name)
                   for student, one in chosen.items()}  # fmt: skip
        refuse_twice(root, name, before, origins)
        for student, one in chosen.items():
            known = one.owner.handed_in and (root / "submitted" / student / name).is_dir()
            here = Course(root).handed_in(student, name) if known else None
            if here and one.owner.handed_in < here:
                problems.append(f"Left out: {one.file.name!r} is older than the one of {here}")
                del origins[student]
                continue
            try:
                put(root / "submitted" / student / name / f"{name}.ipynb", one)
            except BROKEN as error:
                problems.append(f"Left out: {one.file.name!r} cannot be read or kept ({error})")
                del origins[student]
    there = {student for student in before if (root / "submitted" / student / name).is_dir()}
    kept[name] = {student: before[student] for student in there} | origins
    if origins:
        write(root / KEPT, json.dumps(kept, indent=1, sort_keys=True))
    return Collected([*origins], said, problems)


def main(arguments: list[str] | None = None) -> int:
    """Collect the notebooks of one set."""
    parser = argparse.ArgumentParser(
        prog="python -m exercises.collect", description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )  # fmt: skip
    parser.add_argument("course", type=Path)
    parser.add_argument("set")
    parser.add_argument("download", type=Path, help="the archive, or a folder with its files")
    parser.add_argument("worksheet", type=Path, nargs="?", help="Moodle's grading worksheet")
    parser.add_argument("--platform", choices=PLATFORMS, default="", help="if names do not tell it")
    options = parser.parse_args(arguments)
    root = options.course.expanduser()
    try:
        done = collect(root, options.set, options.download, options.worksheet, options.platform)
    except (ValueError, csv.Error, *BROKEN) as error:
        print(f"Not collected: {error}", file=sys.stderr)
        return 2
    left = f"; {len(done.problems)} lines below say what was not taken" if done.problems else ""
    for line in (*done.said, f"{len(done.students)} notebooks in {root / 'submitted'}{left}"):
        print(line)
    for line in done.problems:
        print(line, file=sys.stderr)
    return 1 if done.problems or not done.students else 0


if __name__ == "__main__":
    sys.exit(main())
