"""Exercises that open in their page, below the links to their set."""

from __future__ import annotations

import json
from pathlib import Path

from sphinx.application import Sphinx

from tools import practice


def offer_exercises(app: Sphinx, page: str, source: list[str]) -> None:
    """Put the exercises that open here where a chapter asks for them.

    The first rung stands in the place of its cells, those of the set below the cell that invites.
    """
    name = page.removeprefix("book/")
    if app.builder.name != "html" or name not in practice.SETS:
        return
    notebook = json.loads(source[0])
    cells = practice.with_rung(name, notebook["cells"])
    at = [n for n, cell in enumerate(cells) if f'graded_set("{name}")' in "".join(cell["source"])]
    if at and (words := practice.section(name)):
        shown = {"cell_type": "markdown", "id": "practice", "metadata": {}, "source": words}
        cells.insert(at[0] + 1, shown)
    source[0] = json.dumps(notebook | {"cells": cells})


def bring_python(app: Sphinx, error: Exception | None) -> None:
    """Write what those pages load, once somebody asks for it."""
    if error is None and app.builder.name == "html" and not practice.possible():
        practice.write(Path(app.outdir) / practice.FOLDER)
