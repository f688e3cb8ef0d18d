"""The page of answers: every block of code runs alone, and prints what the page shows."""

from __future__ import annotations

import re
from typing import Any

import pytest
from answers import CELLS, answer_cells, answer_code, questions

QUESTIONS = questions()
CODE = [cell for question in QUESTIONS for cell in answer_code(question)]


def test_twenty_questions_are_answered_and_listed():
    listed = re.findall(r"^- \[(.*)\]\(#", CELLS[0].source, re.MULTILINE)
    assert len(QUESTIONS) == 20 and listed == QUESTIONS


@pytest.mark.parametrize("question", QUESTIONS)
def test_an_answer_has_code_its_failure_and_its_reason(question: str):
    _, *code, last = answer_cells(question)
    assert {cell.cell_type for cell in code} == {"code"}
    assert "**What one sees when it is wrong.**" in last.source and "Why: [" in last.source


@pytest.mark.parametrize("cell", CODE, ids=lambda cell: cell.id)
def test_a_block_runs_alone_and_prints_what_the_page_shows(cell: Any, capsys: Any):
    exec(compile(cell.source, cell.id, "exec"), {"__name__": "__main__"})
    assert capsys.readouterr().out == "".join(output.text for output in cell.outputs) != ""


@pytest.mark.parametrize("cell", CODE, ids=lambda cell: cell.id)
def test_a_block_is_short_and_imports_only_what_the_page_says(cell: Any):
    lines = [line for line in cell.source.splitlines() if line.strip()]
    assert len(lines) <= 15 and max(map(len, lines)) <= 88
    imported = set(re.findall(r"^(?:from|import) (\w+)", cell.source, re.MULTILINE))
    assert imported <= {"math", "torch", "pe_lib", "posdoctor"}
