"""The notebook that goes back to a student, and nbgrader's feedback page made from it."""

from __future__ import annotations

import functools
import textwrap
from pathlib import Path
from typing import Any

import nbformat

from exercises.grading import Graded, Verdict


def verdict_text(verdict: Verdict) -> str:
    """Return one line for a question."""
    text = f"{verdict.word}: {verdict.points:g} of {verdict.max_points:g} points"
    return f"{text}\n{verdict.message}\n" if verdict.message else f"{text}\n"


def overview(graded: Graded) -> str:
    """Return a table of the verdicts; it holds no text of the student's."""
    rows = [
        f"| {verdict.question} | {verdict.word} | {verdict.points:g} / {verdict.max_points:g} |"
        for verdict in graded.verdicts
    ]
    return "\n".join(["| exercise | verdict | points |", "|---|---|---|", *rows])


def stream(text: str) -> list[Any]:
    """Return text as the output of a cell."""
    return [nbformat.v4.new_output("stream", name="stdout", text=text)] if text else []


def autograded(graded: Graded) -> Any:
    """Return the notebook with what its cells printed and the verdicts below the answers.

    Outputs and metadata that came with the submission are left out, and a student's own text
    is shown as it was typed: none of it can act as a page's script or forge a verdict.
    """
    by_test = {verdict.test_id: verdict for verdict in graded.verdicts}
    cells = [nbformat.v4.new_markdown_cell(overview(graded), id="verdicts")]
    for index, cell in enumerate(graded.cells):
        mark = f"cell-{index}"
        if cell.kind != "code":
            source = cell.source if cell.grade_id else textwrap.indent(cell.source, "    ")
            made = nbformat.v4.new_markdown_cell(source, id=mark)
        else:
            made = nbformat.v4.new_code_cell(cell.source, id=mark)
            ran = graded.ran.get(index)
            if cell.is_test:
                made.outputs = stream(verdict_text(by_test[cell.grade_id]))
            elif ran is not None:
                made.outputs = stream(ran.printed + (f"{ran.message}\n" if ran.message else ""))
        if cell.grade_id:
            made.metadata["nbgrader"] = dict(cell.metadata)
        cells.append(made)
    return nbformat.v4.new_notebook(cells=cells)


@functools.cache
def exporter() -> Any:
    """Return nbgrader's exporter for feedback."""
    import nbgrader
    from nbconvert.exporters import HTMLExporter
    from traitlets.config import Config

    base = Path(nbgrader.__file__).parent / "server_extensions/formgrader"
    config = Config()
    config.HTMLExporter.template_name = "feedback"
    config.HTMLExporter.extra_template_basedirs = [str(base / "templates")]
    css = base / "static/node_modules/bootstrap/dist/css"
    config.HTMLExporter.extra_template_paths = [str(css)]
    config.HTMLExporter.preprocessors = ["nbconvert.preprocessors.CSSHTMLHeaderPreprocessor"]
    return HTMLExporter(config=config)


def feedback_page(graded: Graded, notebook: Any) -> str:
    """Return the page."""
    points = {verdict.test_id: verdict.points for verdict in graded.verdicts}
    shown = nbformat.from_dict(notebook)
    for cell in shown.cells:
        nbgrader = cell.metadata.get("nbgrader")
        if nbgrader:
            nbgrader["comment"] = None
            if nbgrader.get("grade"):
                nbgrader["score"] = points[nbgrader["grade_id"]]
    resources = {
        "nbgrader": {
            "notebook": f"{graded.set_name}, {graded.student}",
            "score": graded.points,
            "max_score": sum(verdict.max_points for verdict in graded.verdicts),
            "late_penalty": 0,
        }
    }
    page, _ = exporter().from_notebook_node(shown, resources)
    return str(page)
