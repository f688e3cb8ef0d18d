"""The notebook that goes back to a student, and nbgrader's feedback page made from it."""

from __future__ import annotations

import functools
import keyword
import re
from html import escape
from pathlib import Path
from typing import Any

import nbformat
from jinja2 import DictLoader
from latex2mathml.converter import convert

from exercises.jobs import Graded, Verdict
from exercises.sets import load, scored_by_hand

SHOWN = 100_000  # characters of a student's that a page shows: making it takes seconds, not hours
FORMULA = re.compile(
    r"(?P<code>`+).*?(?P=code)|\$\$(?P<display>.+?)\$\$|\$(?P<inline>.+?)\$", re.DOTALL
)
# What a listing colours, by the names of nbconvert's style sheet. Each piece is found where it
# begins and never looked for again: the time grows with the text, whatever was typed.
PIECE = re.compile(
    r"(?P<c1>#[^\n]*)"
    r"|(?P<s>\"{3}(?:[^\"\\]|\\.|\"(?!\"\"))*(?:\"{3}|\Z)|'{3}(?:[^'\\]|\\.|'(?!''))*(?:'{3}|\Z)"
    r"|\"(?:[^\"\\\n]|\\.)*\"?|'(?:[^'\\\n]|\\.)*'?)"
    r"|(?P<word>[^\W\d]\w*)|(?P<m>\d[\w.]*)",
    re.DOTALL,
)
# In place of nbconvert's MathJax, which comes from another host; formulas are MathML here.
HEAD = """{% macro mathjax(url="") %}<style>
.anchor-link { display: none; }
.rendered_html th, .rendered_html td { padding: 0.2em 1.5em 0.2em 0; }
.text_cell_render { font-size: 16px; line-height: 1.5; }
.text_cell_render pre { white-space: pre-wrap; }
.text_cell_render math { max-width: 100%; overflow-x: auto; }
</style>{% endmacro %}"""


class TextBudget:
    """Cuts what a student wrote and printed to what a page has room for."""

    def __init__(self) -> None:
        """Begin with all of it."""
        self.left = SHOWN

    def take(self, text: str) -> str:
        """Return the beginning of a text that there is room for, and say what is left out."""
        shown = text[: self.left]
        self.left -= len(shown)
        left_out = len(text) - len(shown)
        return f"{shown}\n[{left_out} more characters are not shown here]" if left_out else shown


def as_typed(text: str) -> str:
    """Return a text cell that shows `text` letter by letter, and is fast to turn into HTML."""
    # nbconvert searches HTML for links in Markdown, which takes hours for a million brackets.
    return f"<pre>\n{escape(text).replace('[', '&#91;')}\n</pre>"


def coloured(source: str, **_: object) -> str:
    """Return Python as HTML, in place of nbconvert's listings.

    Those take time with the square of the length: minutes for a cell of blanks.
    """

    def one(match: re.Match[str]) -> str:
        name, text = str(match.lastgroup), escape(match[0])
        if name == "word":
            name = "k" if keyword.iskeyword(match[0]) else ""
        return f'<span class="{name}">{text}</span>' if name else text

    made, end = [], 0
    for match in PIECE.finditer(source):
        made += [escape(source[end : match.start()]), one(match)]
        end = match.end()
    made.append(escape(source[end:]))
    return f'<div class="highlight"><pre><span></span>{"".join(made)}</pre></div>'


def typeset(text: str) -> str:
    """Return Markdown with its formulas as MathML, which a page shows without a script."""

    def one(match: re.Match[str]) -> str:
        formula = match["display"] or match["inline"]
        if formula is None:  # code
            return match[0]
        display = "block" if match["display"] else "inline"
        made = convert(formula.replace(r"\_", "_"), display=display)
        return re.sub(r"[*_\[\\`]", lambda letter: f"&#{ord(letter[0])};", made)

    return FORMULA.sub(one, text)


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
    for question in load(graded.set_name).open:
        word = "waits for a person" if graded.open.get(question.name) else "not answered"
        rows.append(f"| {question.name} | {word} | by hand, of {question.points:g} |")
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
    cells, budget = [nbformat.v4.new_markdown_cell(overview(graded), id="verdicts")], TextBudget()
    for index, cell in enumerate(graded.cells):
        mark = f"cell-{index}"
        source = cell.source if cell.as_handed_out else budget.take(cell.source)
        if cell.kind != "code":
            shown = source if cell.as_handed_out else as_typed(source)
            made = nbformat.v4.new_markdown_cell(shown, id=mark)
        else:
            made = nbformat.v4.new_code_cell(source, id=mark)
            ran = graded.ran.get(index)
            if cell.is_test:
                made.outputs = stream(verdict_text(by_test[cell.grade_id]))
            elif ran is not None:
                said = ran.printed + (f"{ran.message}\n" if ran.message else "")
                made.outputs = stream(budget.take(said))
        if cell.grade_id:
            made.metadata["nbgrader"] = dict(cell.metadata)
        cells.append(made)
    return nbformat.v4.new_notebook(cells=cells)


@functools.cache
def exporter() -> Any:
    """Return nbgrader's exporter for feedback."""
    import nbgrader
    from nbconvert.exporters import HTMLExporter, TemplateExporter
    from traitlets.config import Config

    class Page(HTMLExporter):  # type: ignore[misc]
        """Leaves out that nbconvert reads each finished page and writes it anew.

        It does so for pictures without words and for the cells of another template, which these
        pages do not have; it takes half of the time.
        """

        def from_notebook_node(self, nb: Any, resources: Any = None, **more: Any) -> Any:
            """Return the page, and the resources."""
            return TemplateExporter.from_notebook_node(
                self, nb, self._init_resources(resources), **more
            )

    base = Path(nbgrader.__file__).parent / "server_extensions/formgrader"
    config = Config()
    config.HTMLExporter.template_name = "feedback"
    config.HTMLExporter.extra_template_basedirs = [str(base / "templates")]
    css = base / "static/node_modules/bootstrap/dist/css"
    config.HTMLExporter.extra_template_paths = [str(css)]
    config.HTMLExporter.filters = {"highlight_code": coloured}
    config.HTMLExporter.preprocessors = ["nbconvert.preprocessors.CSSHTMLHeaderPreprocessor"]
    return Page(config=config, extra_loaders=[DictLoader({"mathjax.html.j2": HEAD})])


def feedback_page(graded: Graded, notebook: Any) -> str:
    """Return the page."""
    points = {verdict.test_id: verdict.points for verdict in graded.verdicts}
    shown = nbformat.from_dict(notebook)
    for cell in shown.cells:
        nbgrader = cell.metadata.get("nbgrader")
        by_hand = bool(nbgrader) and scored_by_hand(nbgrader)
        if cell.cell_type == "markdown" and nbgrader and nbgrader["locked"]:  # as handed out
            cell.source = typeset(cell.source)
        if nbgrader:
            nbgrader["comment"] = None
            if by_hand:  # which has no score yet
                nbgrader["grade"] = False
            elif nbgrader.get("grade"):
                nbgrader["score"] = points[nbgrader["grade_id"]]
    resources = {
        "nbgrader": {
            "notebook": f"{graded.set_name}, {escape(graded.student)}",
            "score": graded.points,
            "max_score": sum(verdict.max_points for verdict in graded.verdicts),
            "late_penalty": 0,
        }
    }
    page, _ = exporter().from_notebook_node(shown, resources)
    return str(page)
