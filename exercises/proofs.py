"""The proofs of the checks: wrong answers that they reject, right ones that they accept.

Most wrong answers are the mistakes that an exercise knows by name; they stand in exercises/checks.
tests/mutants/NAME.txt adds, for each set, those that get words in general, those that crash, and
the right answers. tests/test_checks.py runs them all. The build of the site writes them into a page
of the instructor's guide.
"""

from __future__ import annotations

import json
import re
from collections import Counter
from dataclasses import dataclass

from exercises.checks import EXERCISES
from exercises.sets import HERE, load, nbgrader_metadata, set_names, source_path, source_text
from tools import folded

FOLDER = HERE.parent / "tests/mutants"


@dataclass(frozen=True)
class Mutant:
    """A change to the instructor's answer, and what the check must say to it."""

    exercise: str
    says: str
    changes: tuple[tuple[str, str], ...]


@dataclass(frozen=True)
class Alternative:
    """A right answer, written differently."""

    exercise: str
    title: str
    source: str


def read(name: str) -> tuple[list[Mutant], list[Alternative]]:
    """Read tests/mutants/NAME.txt: `~ what the check says`, then lines `- old` and `+ new`."""
    mutants, alternatives = [], []
    text = (FOLDER / f"{name}.txt").read_text(encoding="utf-8")
    for block in re.split(r"^=== ", text, flags=re.MULTILINE)[1:]:
        exercise, rest = block.split("\n", 1)
        for part in re.split(r"^(?=~ |right ~ )", rest, flags=re.MULTILINE):
            head, _, body = part.partition("\n")
            if head.startswith("right ~ "):
                alternatives.append(Alternative(exercise, head.removeprefix("right ~ "), body))
            elif head.startswith("~ "):
                lines = body.rstrip("\n").split("\n")
                pairs = zip(lines[0::2], lines[1::2], strict=True)
                changes = tuple((old[2:], new[2:]) for old, new in pairs)
                mutants.append(Mutant(exercise, head[2:], changes))
    return mutants, alternatives


def solution_cells(name: str) -> dict[str, str]:
    """Return the instructor's answers of a set by name."""
    cells = json.loads(source_path(name).read_text(encoding="utf-8"))["cells"]
    return {nbgrader_metadata(cell)["grade_id"]: source_text(cell)
            for cell in cells if nbgrader_metadata(cell).get("solution")}  # fmt: skip


def mutated(name: str, mutant: Mutant) -> str:
    """Return the source of a mutant."""
    source = solution_cells(name)[mutant.exercise]
    for old, new in mutant.changes:
        assert old in source, f"{mutant.exercise}: nothing to change: {old!r}"
        source = source.replace(old, new)
    return source


def cell(message: str) -> str:
    """Return a message for a cell of a table, where | and * mean themselves but in code."""
    return re.sub(r"(`[^`]*`)|([*|])", lambda found: found[1] or f"\\{found[2]}", message)


def told(mutant: Mutant) -> str:
    """Return what the student is told; the words of a known mistake are no mutant's."""
    if mutant.says == "crash":
        return "*the error that the answer itself raises, and for which inputs*"
    return "*in general words: its kind, its shape, or which of the numbers are wrong*"


def proof(exercise: str, mutants: list[Mutant], alternatives: list[Alternative]) -> list[str]:
    """Return the lines on an exercise."""
    words = Counter(cell(mistake.message) for mistake in EXERCISES[exercise].mistakes)
    words.update(told(mutant) for mutant in mutants)
    known = sorted(words.items(), key=lambda item: (item[0].startswith("*"), -item[1]))
    counts = f"{words.total()} wrong answers, {len(alternatives)} right ones"
    lines = [
        "| what the student is told | wrong answers |",
        "|---|---|",
        *(f"| {text} | {count} |" for text, count in known),
        "",
        f"Right answers: {', '.join(other.title for other in alternatives)}.",
    ]
    return [folded(f"<code>{exercise}</code>: {counts}", "\n".join(lines)), ""]


def page() -> str:
    """Return the page of the book. It holds no piece of an answer."""
    rows, parts, total = [], [], [0, 0, 0]
    for name in set_names():
        mutants, alternatives = read(name)
        questions = load(name).questions
        known = sum(len(EXERCISES[question.name].mistakes) for question in questions)
        counts = [len(questions), known + len(mutants), len(alternatives)]
        total = [have + more for have, more in zip(total, counts, strict=True)]
        rows.append(f"| {load(name).title} | {' | '.join(map(str, counts))} |")
        parts += [f"## {load(name).title}", ""]
        for question in questions:
            parts += proof(
                question.name,
                [mutant for mutant in mutants if mutant.exercise == question.name],
                [other for other in alternatives if other.exercise == question.name],
            )
    return "\n".join(
        [
            "# What the checks reject, and what they accept",
            "",
            "Each check is tried, in the tests, on wrong answers that people really write and on "
            "right answers written in another way than the instructor's. For a wrong answer the "
            "words must be the right ones, too, with three different draws of the inputs. "
            "Every one is rejected, or accepted, as it should be.",
            "",
            "| set | exercises | rejected | accepted |",
            "|---|---|---|---|",
            *rows,
            f"| **all** | {' | '.join(f'**{count}**' for count in total)} |",
            "",
            "Below is what students are told, with the number of wrong answers that were tried "
            "for each.",
            "",
            *parts,
        ]
    )
