"""The first rung of a chapter: it asks for what the chapter derives, and knows usual mistakes."""

from __future__ import annotations

import json
import re
from typing import Any

import pytest
import torch

from exercises.checks import EXERCISES
from exercises.sets import source_text
from pe_course import practice
from pe_course.judge.exercise import CheckFailed
from tools import ROOT

EVERY = list(practice.RUNGS.items())
NAMES = [exercise.name for exercise in practice.RUNGS.values()]
MISTAKES = [(one, known) for one in practice.RUNGS.values() for known in one.mistakes]
each_rung = pytest.mark.parametrize(("page", "exercise"), EVERY, ids=NAMES)


def cells(page: str) -> dict[str, dict[str, Any]]:
    found = json.loads((ROOT / f"book/{page}.ipynb").read_text(encoding="utf-8"))["cells"]
    return {cell["id"]: cell for cell in found}


def solution(page: str) -> str:
    """Return the code of the folded solution."""
    text = source_text(cells(page)["solution-write-it-yourself"])
    return re.search(r"^```python\n(.*?)^```$", text, re.M | re.S)[1]


def defined(source: str, name: str) -> Any:
    space: dict[str, Any] = {"torch": torch, "math": __import__("math")}
    exec(source, space)
    return space[name]


@each_rung
def test_the_stored_page_says_that_the_function_is_not_answered_yet(page, exercise):
    found = cells(page)
    stub = found["write-it-yourself"]
    (output,) = found["write-it-yourself-check"]["outputs"]
    assert f"def {exercise.name}(" in source_text(stub) and stub["outputs"] == []
    assert "".join(output["text"]) == f"Not yet: {exercise.name} is not answered yet\n"
    assert list(found).index("write-it-yourself-check") == list(found).index(stub["id"]) + 1


@each_rung
def test_the_folded_solution_is_right(page, exercise, capsys):
    getattr(practice, exercise.name)(defined(solution(page), exercise.name))
    assert capsys.readouterr().out == f"{exercise.name}: right.\n"


@each_rung
def test_no_axis_of_a_result_can_pass_for_another(page, exercise):
    for shape in (result.shape for result in exercise.drawn(0).wanted):
        assert len(set(shape)) == len(shape)


@pytest.mark.parametrize(("exercise", "known"), MISTAKES)
def test_a_known_mistake_is_told_what_it_is(exercise, known):
    with pytest.raises(CheckFailed) as failed:
        exercise.judge(known.function, seed=0)
    assert str(failed.value) == known.message


def test_a_name_belongs_to_one_exercise_of_the_course():
    assert set(NAMES) & set(EXERCISES) == set()
    assert [getattr(practice, name) for name in NAMES] == list(practice.RUNGS.values())
