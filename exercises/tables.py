"""The results as CSV files: for the instructor, and for learning platforms to import."""

from __future__ import annotations

import csv
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from exercises.records import Course, Record, write_new
from exercises.sets import load

# What spreadsheets take for the beginning of a formula, in East Asian full width too.
FORMULA = ("=", "+", "-", "@", "＝", "＋", "－", "＠")
CANVAS = ("Student", "ID", "SIS User ID", "SIS Login ID", "Section")  # which must all be there


def cell_text(text: object) -> str:
    """Return text that a spreadsheet does not take for a formula."""
    line = " ".join(str(text).split())
    return f"'{line}" if line.startswith(FORMULA) else line


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
    """Return the points that count: the grader's, or those given by hand."""
    return float(record.get("counts", record["points"]))


def hours_late(record: Record) -> float | str:
    """Return how late a submission is, or nothing where no one knows."""
    late = record.get("late")
    return "" if late is None else round(late / 3600, 2)


def submissions_table(records: list[Record]) -> list[list[Any]]:
    """Return a line for each submission."""
    head = ["student", "set", "points", "max_points", "seconds", "handed_in", "hours_late",
            "found_by_grader"]  # fmt: skip
    return [
        head,
        *([r["student"], r["set"], counted(r), r["max_points"], r["seconds"],
           r.get("handed_in") or "", hours_late(r), r["points"]] for r in records),
    ]  # fmt: skip


def answers_table(records: list[Record]) -> list[list[Any]]:
    """Return a line for each answer."""
    head = ["student", "set", "exercise", "points", "max_points", "verdict", "message", "by_hand"]
    return [
        head,
        *([r["student"], r["set"], v["question"], v["points"], v["max_points"], v["word"],
           v["message"], r.get("by_hand", {}).get(v["test_id"], "")]
          for r in records for v in r["verdicts"]),
    ]  # fmt: skip


def by_student(records: list[Record]) -> tuple[list[str], dict[str, dict[str, float]]]:
    """Return the sets that were handed in, and for each student the points of each set."""
    points: dict[str, dict[str, float]] = {}
    for record in records:
        points.setdefault(record["student"], {})[record["set"]] = counted(record)
    return sorted({record["set"] for record in records}), dict(sorted(points.items()))


def moodle_table(records: list[Record]) -> list[list[Any]]:
    """Return a line for each student, with a total; what was not handed in is left empty."""
    names, students = by_student(records)
    return [
        ["username", *names, "total"],
        *([student, *(points.get(name, "") for name in names), sum(points.values())]
          for student, points in students.items()),
    ]  # fmt: skip


def canvas_table(records: list[Record]) -> list[list[Any]]:
    """Return the same as Canvas reads it, which counts totals itself."""
    names, students = by_student(records)
    rows: list[list[Any]] = [
        [*CANVAS, *names],
        ["Points Possible", "", "", "", "", *(load(name).points for name in names)],
    ]
    for student, points in students.items():
        number = student if student.isdecimal() else ""  # as in the names of Canvas's downloads
        login = "" if number else student
        scores = [points.get(name, "") for name in names]
        rows.append([student, number, "", login, "", *scores])
    return rows


def write_tables(course: Course, records: list[Record]) -> None:
    """Write all tables into the course folder."""
    for name, rows in (
        ("submissions", submissions_table(records)),
        ("answers", answers_table(records)),
        ("moodle", moodle_table(records)),
        ("canvas", canvas_table(records)),
    ):
        write_table(course.root / f"{name}.csv", rows)
