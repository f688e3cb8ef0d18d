"""Read a submission, which anyone may have written, and put the handed-out cells back."""

from __future__ import annotations

import functools
import json
from dataclasses import dataclass, field
from typing import Any

from exercises.sets import (
    ExerciseSet,
    load,
    nbgrader_metadata,
    release_path,
    scored_by_hand,
    set_names,
    source_text,
)

MAX_CELLS = 1000


class Unreadable(ValueError):
    """A submission is no notebook; the message says what it is instead."""


@dataclass
class Cell:
    """A cell of a restored notebook. `grade_id` is set where the cell was handed out."""

    kind: str
    source: str
    grade_id: str = ""
    metadata: dict[str, Any] = field(default_factory=dict)

    @property
    def is_test(self) -> bool:
        """Return whether this is the cell of a test."""
        return bool(self.metadata.get("grade")) and not self.is_open

    @property
    def is_open(self) -> bool:
        """Return whether this is an answer that a person scores."""
        return scored_by_hand(self.metadata)

    @property
    def as_handed_out(self) -> bool:
        """Return whether its text is the instructor's."""
        return bool(self.grade_id and self.metadata.get("locked"))


@functools.cache
def handed_out(name: str) -> tuple[Cell, ...]:
    """Return the cells of the students' notebook as it was handed out."""
    notebook = json.loads(release_path(name).read_text(encoding="utf-8"))
    cells = []
    for cell in notebook["cells"]:
        metadata = nbgrader_metadata(cell)
        cells.append(
            Cell(cell["cell_type"], source_text(cell), metadata.get("grade_id", ""), metadata)
        )
    return tuple(cells)


def parse(data: bytes) -> list[Cell]:
    """Return the cells of a notebook, with the grade ids that they claim.

    Raises:
        Unreadable: if it is no notebook of format 4.
    """
    try:
        notebook = json.loads(data)  # UTF-8, with or without a mark, or an editor's UTF-16
    except (ValueError, RecursionError) as error:
        raise Unreadable(f"the file is not JSON ({type(error).__name__})") from error
    if not isinstance(notebook, dict) or not isinstance(notebook.get("cells"), list):
        raise Unreadable("the file is not a notebook: it has no list of cells")
    if len(notebook["cells"]) > MAX_CELLS:
        raise Unreadable(f"the notebook has more than {MAX_CELLS} cells")
    cells = []
    for number, cell in enumerate(notebook["cells"], 1):
        if not isinstance(cell, dict) or cell.get("cell_type") not in ("code", "markdown", "raw"):
            raise Unreadable(f"cell {number} is not a cell")
        source = cell.get("source")
        if isinstance(source, list) and all(isinstance(line, str) for line in source):
            source = "".join(source)
        if not isinstance(source, str):
            raise Unreadable(f"cell {number} has no source")
        # Text that cannot be encoded (a lone surrogate) would break every later step.
        source = source.encode(errors="replace").decode()
        cells.append(Cell(cell["cell_type"], source, claimed_id(cell)))
    return cells


def without_outputs(data: bytes) -> bytes:
    """Return a notebook with nothing but what is graded: kept pictures can be very large.

    Raises:
        Unreadable: if it is no notebook of format 4.
    """
    cells = [
        {"cell_type": cell.kind, "source": cell.source,
         "metadata": {"nbgrader": {"grade_id": cell.grade_id}}}
        for cell in parse(data)
    ]  # fmt: skip
    return json.dumps({"cells": cells}).encode()


def claimed_id(cell: dict[str, Any]) -> str:
    """Return the grade id in a submitted cell's metadata, or nothing."""
    metadata = cell.get("metadata")
    found = metadata.get("nbgrader") if isinstance(metadata, dict) else None
    claim = found.get("grade_id") if isinstance(found, dict) else None
    return claim if isinstance(claim, str) else ""


def refuse_another_set(cells: list[Cell], exercise_set: ExerciseSet) -> None:
    """Raise Unreadable for the notebook of another set, handed in by mistake."""
    claims = {cell.grade_id for cell in cells}
    if claims & {question.test_id for question in exercise_set.questions}:
        return
    for name in set_names():
        if claims & {question.test_id for question in load(name).questions}:
            raise Unreadable(f"this is the notebook of {name}, not of {exercise_set.name}")


def restore(cells: list[Cell], exercise_set: ExerciseSet) -> list[Cell]:
    """Put the handed-out cells back: their text, their metadata, and those that are gone.

    Of a submission only the sources of the answers, of the forecasts and of the student's own cells
    are kept, in the order in which they stand.

    Raises:
        Unreadable: if it is the notebook of another set.
    """
    refuse_another_set(cells, exercise_set)
    known = {cell.grade_id: cell for cell in handed_out(exercise_set.name) if cell.grade_id}
    restored, used = [], set()
    for cell in cells:
        original = known.get(cell.grade_id)
        if original is None or original.kind != cell.kind or cell.grade_id in used:
            restored.append(Cell(cell.kind, cell.source))
            continue
        used.add(cell.grade_id)
        source = original.source if original.as_handed_out else cell.source
        restored.append(Cell(cell.kind, source, cell.grade_id, original.metadata))
    # With the cell of an open answer, formgrader has a place for its points.
    gone = (cell for cell in known.values() if cell.grade_id not in used)
    restored += [cell for cell in gone if cell.is_test or cell.is_open]
    return restored


def checkpoints(cells: list[Cell], exercise_set: ExerciseSet) -> dict[str, int]:
    """Return, for each question, the index of the cell after which its answer is taken.

    That is its test cell, as in nbgrader, or the cell of the answer if that stands later.
    """
    place = {cell.grade_id: index for index, cell in enumerate(cells) if cell.grade_id}
    return {
        question.name: max(place[question.test_id], place.get(question.solution_id, 0))
        for question in exercise_set.questions
    }


def open_answers(cells: list[Cell], exercise_set: ExerciseSet) -> dict[str, str]:
    """Return what was written for each exercise that is scored by hand; nothing if untouched.

    That is its text and the experiment: what the student wrote in the cells that were given for
    them, or in cells of their own below the other exercises. Where neither is found, any text of
    the student's could be the answer, and so could code where a given cell is gone.
    """
    given = handed_out(exercise_set.name)
    locked = [index for index, cell in enumerate(given) if cell.as_handed_out]
    first = next((index for index, cell in enumerate(given) if cell.is_open), len(given))
    begin = 1 + max(index for index in locked if index < first)
    part = {cell.grade_id for cell in given[begin:] if cell.metadata.get("solution")}
    # Tests that were deleted have been put back at the end, and mark no place.
    before = {cell.grade_id for cell in given[:begin] if cell.grade_id and not cell.is_test}
    start = max((index for index, cell in enumerate(cells) if cell.grade_id in before), default=-1)
    as_given = {"", *(" ".join(cell.source.split()) for cell in given)}
    own = [
        (index, cell) for index, cell in enumerate(cells)
        if (not cell.grade_id or cell.grade_id in part)
        and " ".join(cell.source.split()) not in as_given
    ]  # fmt: skip
    code_too = not part <= {cell.grade_id for cell in cells}
    found = [cell for index, cell in own if index > start or cell.grade_id]
    found = found or [cell for _, cell in own if code_too or cell.kind != "code"]
    text = "\n\n".join(cell.source for cell in found)
    return {question.name: text for question in exercise_set.open}
