"""The instructor sources: which exercises a set has, and what each is worth."""

from __future__ import annotations

import functools
import json
import re
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from exercises import name_today

HERE = Path(__file__).parent
SOURCE, RELEASE = HERE / "source", HERE / "release"
CALL = re.compile(r"^checks\.(\w+)\((\w+)\)$", re.MULTILINE)


@dataclass(frozen=True)
class Question:
    """One exercise of a set: its check, its two cells, its points."""

    name: str
    solution_id: str
    test_id: str
    points: float


@dataclass(frozen=True)
class OpenQuestion:
    """An exercise whose answer a person reads: the cell of the answer, and its points."""

    name: str
    points: float


@dataclass(frozen=True)
class ExerciseSet:
    """One set, its questions in order, and those that are scored by hand."""

    name: str
    title: str
    questions: tuple[Question, ...]
    open: tuple[OpenQuestion, ...] = ()

    @property
    def points(self) -> float:
        """Return the points of all questions that the grader judges."""
        return sum(question.points for question in self.questions)


def source_path(name: str) -> Path:
    """Return the path of the instructor's notebook; `name` may have an earlier number."""
    today = name_today(name, set_names())
    return SOURCE / today / f"{today}.ipynb"


def release_path(name: str) -> Path:
    """Return the path of the students' notebook; `name` may have an earlier number."""
    today = name_today(name, set_names())
    return RELEASE / today / f"{today}.ipynb"


def set_names() -> list[str]:
    """Return the names of all sets, in order."""
    return sorted(path.parent.name for path in SOURCE.glob("*/*.ipynb"))


def projects() -> list[Path]:
    """Return the notebooks of the projects, in the order of the book's parts."""
    return [HERE / "projects" / f"{name}.ipynb" for name in ("foundations", "relative", "further")]


def source_text(cell: dict[str, Any]) -> str:
    """Return a cell's source as one string."""
    source = cell.get("source", "")
    return "".join(source) if isinstance(source, list) else str(source)


def nbgrader_metadata(cell: dict[str, Any]) -> dict[str, Any]:
    """Return nbgrader's metadata of a cell, or an empty dict."""
    found: dict[str, Any] = cell.get("metadata", {}).get("nbgrader", {})
    return found


def scored_by_hand(metadata: dict[str, Any]) -> bool:
    """Return whether nbgrader's metadata are those of an answer that a person scores."""
    return bool(metadata.get("grade") and metadata.get("solution"))


@functools.cache
def load(name: str) -> ExerciseSet:
    """Read a set from its source, which may have another number by now; it keeps the name asked.

    Raises:
        ValueError: if the set does not exist, or a test cell does not call a check.
    """
    path = source_path(name)
    if not path.exists():
        raise ValueError(f"no exercise set {name!r}; there are {', '.join(set_names())}")
    notebook = json.loads(path.read_text(encoding="utf-8"))
    questions, by_hand, solution_id = [], [], ""
    for cell in notebook["cells"]:
        metadata = nbgrader_metadata(cell)
        if metadata.get("solution"):
            solution_id = metadata["grade_id"]
        if scored_by_hand(metadata):
            by_hand.append(OpenQuestion(metadata["grade_id"], float(metadata["points"])))
        elif metadata.get("grade"):
            call = CALL.search(source_text(cell))
            if call is None or call[1] != call[2]:
                raise ValueError(f"{path}: a test cell must be a line checks.name(name)")
            questions.append(
                Question(call[1], solution_id, metadata["grade_id"], float(metadata["points"]))
            )
    title = source_text(notebook["cells"][0]).splitlines()[0].removeprefix("# ")
    return ExerciseSet(name, title, tuple(questions), tuple(by_hand))
