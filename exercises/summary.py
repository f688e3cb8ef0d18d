"""The instructor's page: how a class did, and why answers failed."""

from __future__ import annotations

from collections import Counter
from html import escape
from urllib.parse import quote

from exercises.jobs import WORDS
from exercises.records import Record
from exercises.sets import load
from exercises.tables import (
    by_student,
    counted,
    hours_late,
    open_points,
    open_top,
    open_word,
    total,
    was,
)

STYLE = """:root{color-scheme:light dark}
body{font:16px/1.5 system-ui,sans-serif;max-width:60rem;margin:2rem auto;padding:0 1rem}
table{border-collapse:collapse;margin:1rem 0;display:block;overflow-x:auto}
td,th{border:1px solid #888;padding:.2rem .6rem;text-align:left;vertical-align:top}
td.n{text-align:right}.bar{background:#4477aa;height:1em;display:inline-block}"""


def page(records: list[Record]) -> str:
    """Return the summary of all sets as HTML."""
    names = sorted({record["set"] for record in records})
    body = "".join(section(name, [r for r in records if r["set"] == name]) for name in names)
    return (
        '<!DOCTYPE html><html lang="en"><head><meta charset="utf-8">'
        '<meta name="viewport" content="width=device-width"><title>Grades</title>'
        f"<style>{STYLE}</style></head><body><h1>Grades</h1>{body}{totals(records)}</body></html>"
    )


def totals(records: list[Record]) -> str:
    """Return each student's points in all sets, if there is more than one set."""
    names, students = by_student(records)
    if len(names) < 2:
        return ""
    heads = "".join(f"<th>{escape(name)}</th>" for name in names)
    rows = ""
    for student, points in students.items():
        scores = "".join(f"<td class=n>{number(points.get(name))}</td>" for name in names)
        whole = number(total(points))
        rows += f"<tr><td>{escape(student)}</td>{scores}<td class=n>{whole}</td></tr>"
    return f"<h2>All sets</h2><table><tr><th>student</th>{heads}<th>total</th></tr>{rows}</table>"


def number(points: float | str | None) -> str:
    """Return points as text: nothing for what was not handed in, a word for what waits."""
    if points is None:
        return ""
    return "waiting" if isinstance(points, str) else f"{points:g}"


def section(name: str, records: list[Record]) -> str:
    """Return the part of one set."""
    scores = [counted(record) for record in records]
    top = load(name).points
    mean = sum(scores) / len(scores)
    return (
        f"<h2>{escape(name)}</h2><p>{len(records)} submissions, mean {mean:.1f} of {top:g} points, "
        f"{sum(float(r['seconds']) for r in records) / len(records):.1f} s each.</p>"
        f"<h3>Distribution</h3>{distribution(scores, top)}"
        f"<h3>Verdicts</h3>{verdict_table(name, records)}"
        f"<h3>Why answers failed</h3>{reasons(name, records)}"
        f"<h3>Students</h3>{student_table(records)}"
    )


def distribution(scores: list[float], top: float) -> str:
    """Return bars: how many submissions in each tenth of the points."""
    tenths = Counter(max(0, min(9, int(10 * score / top))) for score in scores)
    most = max(tenths.values())
    rows = "".join(
        f"<tr><th>{top * step / 10:g} to {top * (step + 1) / 10:g}</th><td class=n>{tenths[step]}"
        f'</td><td><span class="bar" style="width:{20 * tenths[step] / most:.1f}em"></span></td>'
        "</tr>"
        for step in range(10)
    )
    return f"<table><tr><th>points</th><th>students</th><th></th></tr>{rows}</table>"


def verdict_table(name: str, records: list[Record]) -> str:
    """Return how often each question got each verdict."""
    heads = "".join(f"<th>{word}</th>" for word in WORDS)
    rows = ""
    for question in load(name).questions:
        counts = Counter(
            v["word"] for r in records for v in r["verdicts"] if v["question"] == question.name
        )
        cells = "".join(f"<td class=n>{counts[word]}</td>" for word in WORDS)
        rows += f"<tr><th>{escape(question.name)}</th>{cells}</tr>"
    return f"<table><tr><th>exercise</th>{heads}</tr>{rows}</table>"


def reasons(name: str, records: list[Record]) -> str:
    """Return the commonest messages of each question."""
    rows = ""
    for question in load(name).questions:
        messages = Counter(
            f"{v['word']}: {v['message']}"
            for r in records
            for v in r["verdicts"]
            if v["question"] == question.name and v["word"] not in ("ok", "not answered")
        )
        for text, count in messages.most_common(8):
            rows += f"<tr><th>{escape(question.name)}</th><td class=n>{count}</td>"
            rows += f"<td>{escape(text)}</td></tr>"
    return f"<table><tr><th>exercise</th><th>times</th><th>message</th></tr>{rows}</table>"


def student_table(records: list[Record]) -> str:
    """Return a line for each submission, with a link to its feedback."""
    rows = ""
    for record in records:
        student, name = escape(record["student"]), record["set"]
        words = ", ".join(escape(v["word"]) for v in record["verdicts"])
        rows += (
            f'<tr><td><a href="feedback/{quote(record["student"])}/{name}/{name}.html">'
            f"{student}</a></td>"
            f"<td class=n>{counted(record):g} / {record['max_points']:g}{by_hand(record)}</td>"
            f"<td>{words}</td><td class=n>{opened(record)}</td>"
            f"<td class=n>{hours_late(record) or ''}</td></tr>"
        )
    heads = "<th>student</th><th>points</th><th>verdicts</th><th>open exercise</th>"
    heads += "<th>hours late</th>"
    return f"<table><tr>{heads}</tr>{rows}</table>"


def opened(record: Record) -> str:
    """Say what a person has given for the open exercise of a submission, or that it waits."""
    if open_word(record) == "not answered":
        return ""
    return f"{number(open_points(record))} / {open_top(record['set']):g}{was(record)}"


def by_hand(record: Record) -> str:
    """Say what the grader has found where other points count."""
    found = float(record["points"])
    return f" (by hand; {found:g} found)" if counted(record) != found else ""
