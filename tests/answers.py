"""The cells of the page of answers, by question, for its tests."""

from __future__ import annotations

from functools import cache
from typing import Any

import nbformat

from tools.refresh import BOOK, INSTALL_ID

CELLS = nbformat.read(BOOK / "answers.ipynb", as_version=4).cells


def questions() -> list[str]:
    """Return the page's questions, in their order."""
    return [cell.source.partition("\n")[0][3:] for cell in CELLS if cell.source.startswith("## ")]


@cache
def answer_cells(question: str) -> tuple[Any, ...]:
    """Return the cell whose heading begins with these words, and those below it."""
    heads = [i for i, cell in enumerate(CELLS) if cell.source.startswith("## ")]
    (start,) = (i for i in heads if CELLS[i].source.startswith(f"## {question}"))
    end = min((i for i in heads if i > start), default=len(CELLS))
    return tuple(cell for cell in CELLS[start:end] if cell.id != INSTALL_ID)


def answer_text(question: str) -> str:
    """Return what a section says."""
    cells = answer_cells(question)
    return "\n".join(cell.source for cell in cells if cell.cell_type == "markdown")


def answer_code(question: str) -> list[Any]:
    """Return a section's cells of code."""
    return [cell for cell in answer_cells(question) if cell.cell_type == "code"]


def answer_names(question: str, number: int = 0) -> dict[str, Any]:
    """Run one cell as pasted into an empty session, and return what it defines."""
    names: dict[str, Any] = {}
    exec(compile(answer_code(question)[number].source, question, "exec"), names)
    return names


def answer_output(question: str, number: int = 0) -> str:
    """Return what the page shows below one cell."""
    return "".join(output.text for output in answer_code(question)[number].outputs)
