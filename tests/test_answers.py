"""The page of answers: every block of code runs alone, and prints what the page shows."""

from __future__ import annotations

import re
from typing import Any

import nbformat
import pytest

from tools.refresh import BOOK, INSTALL_ID

CELLS = nbformat.read(BOOK / "answers.ipynb", as_version=4).cells
QUESTIONS = [
    line[3:] for cell in CELLS for line in cell.source.split("\n")[:1] if line[:3] == "## "
]
CODE = [cell for cell in CELLS if cell.cell_type == "code" and cell.id != INSTALL_ID]


def test_twenty_questions_are_answered_and_listed():
    listed = re.findall(r"^- \[(.*)\]\(#", CELLS[0].source, re.MULTILINE)
    assert len(QUESTIONS) == 20 and listed == QUESTIONS


@pytest.mark.parametrize("question", QUESTIONS)
def test_an_answer_has_code_its_failure_and_its_reason(question: str):
    start = next(i for i, cell in enumerate(CELLS) if cell.source.startswith(f"## {question}"))
    last = next(i for i in range(start, len(CELLS)) if "Why: [" in CELLS[i].source)
    assert {cell.cell_type for cell in CELLS[start + 1 : last]} == {"code"}
    assert "**What one sees when it is wrong.**" in CELLS[last].source


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
