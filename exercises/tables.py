"""The results as CSV files: for the instructor, and for learning platforms to import."""

from __future__ import annotations

import csv
from collections.abc import Collection, Iterable
from pathlib import Path
from typing import Any, NamedTuple

from exercises.collect import anonymous, read_kept
from exercises.records import Course, Record, write_new
from exercises.sets import load

# What spreadsheets take for the beginning of a formula, in East Asian full width too.
FORMULA = ("=", "+", "-", "@", "＝", "＋", "－", "＠")
OPEN = "by hand"  # after the name of a set: the column of its open exercise
CANVAS = ("Student", "ID", "SIS User ID", "SIS Login ID", "Section")  # which must all be there


class Change(NamedTuple):
    """An answer that gets other points than before: a mended check, or another answer."""

    student: str
    set: str
    exercise: str
    points_before: float
    points_now: float
    verdict_before: str
    verdict_now: str
    message_now: str


def cell_text(text: object) -> str:
    """Return text that a spreadsheet does not take for a formula, another for another text."""
    line = " ".join(str(text).split())
    return f"'{line}" if line.lstrip("'").startswith(FORMULA) else line


def write_table(path: Path, rows: Iterable[Iterable[Any]]) -> None:
    """Write a CSV file that is either whole or not there.

    All text is in quotes: where a spreadsheet separates by semicolons, `ann;=1+1` would be two
    cells, one of them a formula.
    """
    with write_new(path) as file:
        table = csv.writer(file, quoting=csv.QUOTE_NONNUMERIC)
        for row in rows:
            table.writerow([cell if isinstance(cell, int | float) else cell_text(cell)
                            for cell in row])  # fmt: skip


def counted(record: Record) -> float:
    """Return the points that count: the grader's or those by hand."""
    return float(record.get("counts", record["points"]))


def open_points(record: Record) -> float | str:
    """Return the points given by hand to open exercises; nothing while one of them waits."""
    scores = record.get("open_scores", {})
    answered = {name for name, answer in record.get("open", {}).items() if answer}
    waiting = answered | record.get("was", {}).keys()
    return "" if waiting - scores.keys() else float(sum(scores.values()))


def was(record: Record) -> str:
    """Say which points were given for the open exercises before they were rewritten."""
    return f" (was {sum(record['was'].values()):g})" if record.get("was") else ""


def open_word(record: Record) -> str:
    """Say what has become of the open exercises of a submission."""
    if open_points(record) == "":
        return f"waiting{was(record)}"
    scored = any(record.get("open", {}).values()) or open_points(record)
    return "scored" if scored else "not answered"


def open_top(name: str) -> float:
    """Return the largest number of points that can be given by hand."""
    return sum(question.points for question in load(name).open)


def total_of(record: Record) -> tuple[float, float]:
    """Return the points so far, and the largest number, each with those of the open exercise."""
    top = sum(verdict["max_points"] for verdict in record["verdicts"])
    return counted(record) + float(open_points(record) or 0), top + open_top(record["set"])


def hours_late(record: Record) -> float | str:
    """Return how late a submission is, or nothing where no one knows."""
    late = record.get("late")
    return "" if late is None else round(late / 3600, 2)


def submissions_table(records: list[Record]) -> list[list[Any]]:
    """Return a line for each submission."""
    head = ["student", "set", "points", "max_points", "seconds", "handed_in", "hours_late",
            "found_by_grader", "open_points", "open_max", "open"]  # fmt: skip
    return [
        head,
        *([r["student"], r["set"], counted(r), r["max_points"], r["seconds"],
           r.get("handed_in") or "", hours_late(r), r["points"],
           open_points(r), open_top(r["set"]), open_word(r)] for r in records),
    ]  # fmt: skip


def answers_table(records: list[Record]) -> list[list[Any]]:
    """Return a line for each answer."""
    head = ["student", "set", "exercise", "points", "max_points", "verdict", "message", "by_hand"]
    return [
        head,
        *([r["student"], r["set"], v["question"], v["points"], v["max_points"], v["word"],
           v["message"], r.get("by_hand", {}).get(v["test_id"], "")]
          for r in records for v in r["verdicts"]),
        *([r["student"], r["set"], name, r.get("open_scores", {}).get(name, ""),
           open_top(r["set"]), "by hand" if answer else "not answered", was(r).strip(" ()"), ""]
          for r in records for name, answer in r.get("open", {}).items()),
    ]  # fmt: skip


def by_student(records: list[Record]) -> tuple[list[str], dict[str, dict[str, float | str]]]:
    """Return columns, and for each student the points in those that the student has.

    A column is a set, or the open exercise of one if anybody has answered it. Points that wait for
    a person are an empty text.
    """
    points: dict[str, dict[str, float | str]] = {}
    answered = {r["set"] for r in records if open_word(r) != "not answered"}
    for record in records:
        row = points.setdefault(record["student"], {})
        row[record["set"]] = counted(record)
        if record["set"] in answered:
            row[f"{record['set']} {OPEN}"] = open_points(record)
    names = {record["set"] for record in records}
    names |= {f"{name} {OPEN}" for name in answered}
    return sorted(names), dict(sorted(points.items()))


def total(points: dict[str, float | str]) -> float | str:
    """Return the sum of a student's points; nothing while some of them wait for a person."""
    known = [number for number in points.values() if not isinstance(number, str)]
    return sum(known) if len(known) == len(points) else ""


def top_of(column: str) -> float:
    """Return the largest number of points in a column."""
    name = column.removesuffix(f" {OPEN}")
    return load(name).points if name == column else open_top(name)


def moodle_table(records: list[Record]) -> list[list[Any]]:
    """Return a line for each student, with a total; what was not handed in is left empty."""
    names, students = by_student(records)
    return [
        ["username", *names, "total"],
        *([student, *(points.get(name, "") for name in names), total(points)]
          for student, points in students.items()),
    ]  # fmt: skip


def canvas_table(records: list[Record], codes: Collection[str] = ()) -> list[list[Any]]:
    """Return the same as Canvas reads it, which counts totals itself.

    Args:
        records: of all submissions.
        codes: students whose names Canvas has hidden, which may be digits and are no ID.
    """
    names, students = by_student(records)
    rows: list[list[Any]] = [
        [*CANVAS, *names],
        ["Points Possible", "", "", "", "", *(top_of(name) for name in names)],
    ]
    for student, points in students.items():
        known = student.isdecimal() and student not in codes
        number = student if known else ""  # as in the names of Canvas's downloads
        login = "" if number else student
        scores = [points.get(name, "") for name in names]
        rows.append([student, number, "", login, "", *scores])
    return rows


def changes_table(changes: list[Change]) -> list[list[Any]]:
    """Return a line for each answer whose points are others than before."""
    head = ["student", "set", "exercise", "points_before", "points_now", "verdict_before",
            "verdict_now", "message_now"]  # fmt: skip
    return [head, *map(list, changes)]


def changes_between(before: Record, now: Record) -> list[Change]:
    """Return the answers of a submission that get other points than they got before."""
    old = {verdict["question"]: verdict for verdict in before["verdicts"]}
    found = []
    for verdict in now["verdicts"]:
        was = old.get(verdict["question"], {"points": 0.0, "word": "not asked"})
        if was["points"] != verdict["points"]:
            found.append(
                Change(now["student"], now["set"], verdict["question"], was["points"],
                       verdict["points"], was["word"], verdict["word"], verdict["message"])
            )  # fmt: skip
    return found


def write_tables(course: Course, records: list[Record]) -> None:
    """Write all tables into the course folder."""
    codes = {
        student for origins in read_kept(course.root).values()
        for student, origin in origins.items()
        if origin.platform == "canvas" and anonymous(origin.file)
    }  # fmt: skip
    for name, rows in (
        ("submissions", submissions_table(records)),
        ("answers", answers_table(records)),
        ("moodle", moodle_table(records)),
        ("canvas", canvas_table(records, codes)),
    ):
        write_table(course.root / f"{name}.csv", rows)
