"""Lesson plans say what the chapters say."""

from __future__ import annotations

import re
from pathlib import Path

import nbformat
import pytest

from exercises.sets import set_names
from lab import sets
from tools import plans


@pytest.mark.parametrize("path", plans.chapters(), ids=lambda path: path.stem)
def test_a_plan_asks_the_chapters_own_questions_and_gives_no_answer(path: Path) -> None:
    plan = plans.plan(path)
    source = "\n\n".join(c.source for c in nbformat.read(path, as_version=4).cells)
    section = source.partition("## Questions")[2]  # nothing where a chapter has none
    asked = plans.questions(plans.sections(nbformat.read(path, as_version=4)))
    assert len(asked) == len(re.findall(r"\{dropdown\} Answer", section))
    assert all(question in plan for question in asked)
    assert "dropdown" not in plan
    assert plan.count(f"{path.name}#figure-") == 1 + len(re.findall(r"\(#figure-\S+\?", source))
    if path.stem in set_names():
        about = sets.describe(path.stem)
        assert f"graded set {about['number']} ({about['minutes']} minutes" in plan
