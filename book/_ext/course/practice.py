"""Exercises that open in their page, below the links to their set."""

from __future__ import annotations

import json
import re
from pathlib import Path

from sphinx.application import Sphinx

from tools import practice

INVITED = re.compile(r"exercises/release/(\w+)/")


def offer_exercises(app: Sphinx, page: str, source: list[str]) -> None:
    """Put the exercises that open here below the cell with which a chapter invites to its set."""
    name = page.removeprefix("book/")
    if app.builder.name != "html" or name not in practice.SETS:
        return
    notebook = json.loads(source[0])
    for at, cell in enumerate(notebook["cells"]):
        text = "".join(cell["source"])
        found = INVITED.search(text)
        if cell["cell_type"] == "markdown" and found and found[1] == name:
            if words := practice.section(name):
                cell["source"] = f"{text}\n\n{words}"
            notebook["cells"][at] = cell
    source[0] = json.dumps(notebook)


def bring_python(app: Sphinx, error: Exception | None) -> None:
    """Write what those pages load, once somebody asks for it."""
    if error is None and app.builder.name == "html" and not practice.possible():
        practice.write(Path(app.outdir) / practice.FOLDER)
