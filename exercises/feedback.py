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
from exercises.records import Record
from exercises.sets import load
from exercises.tables import open_points, open_word, total_of, was

SHOWN = 100_000  # characters of a student's that a page shows: making it takes seconds, not hours
CONTENTS = re.compile(r'<div id="toc">.*?</div>', re.DOTALL)  # nbgrader's: "Test cell", four times
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
.text_cell_render li { overflow-wrap: anywhere; }
@media (max-width: 40em) { div.container, div#notebook-container { padding: 0; } }
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


def overview(record: Record) -> str:
    """Return the points, and the verdicts, each with a link to its place in the notebook.

    With the points and the comments that the gradebook has from a person.
    """
    points, top = total_of(record)
    so_far = " so far" if open_points(record) == "" else ""
    lines = [f"**{points:g} of {top:g} points{so_far}**", ""]
    words = {(one["word"], one["message"]) for one in record["verdicts"]}
    unread = len(words) == 1 and min(words)[0] == "malformed"
    lines += [f"Nothing can be read: {harmless(min(words)[1])}.", ""] if unread else []
    comments = dict(record.get("comments", {}))
    for one in record["verdicts"]:
        text = f"{one['points']:g} of {one['max_points']:g}, **{one['word']}**"
        if one["message"] and not unread:
            text += f": {harmless(one['message'])}"
        if (score := record.get("by_hand", {}).get(one["test_id"])) is not None:
            text = f"**{score:g} of {one['max_points']:g}, by hand**; found: {text}"
        lines.append(f"- [{one['question']}](#{one['test_id']}): {text}")
        if said := comments.pop(one["question"], ""):
            lines.append(f"  - Comment: {harmless(said)}")
    for question in load(record["set"]).open:
        word = "**not answered**"
        if open_points(record) == "":
            word = f"**waits for a person**{was(record)}"
        given = f"of {question.points:g}, by hand"
        text = f"**{open_points(record):g} {given}**" if open_word(record) == "scored" else (
            f"{given}, {word}"
        )  # fmt: skip
        lines.append(f"- [the open exercise](#comment-{question.name}): {text}")
    lines += [f"  - Comment: {harmless(said)}" for said in comments.values()]
    return "\n".join(lines)


def harmless(message: str) -> str:
    """Return a message, which may hold a student's text, so that no sign of it is Markdown."""
    line = " ".join(message.split())
    return re.sub(r"[^A-Za-z0-9 ]", lambda sign: f"&#{ord(sign[0])};", line)


def stream(text: str) -> list[Any]:
    """Return text as the output of a cell."""
    return [nbformat.v4.new_output("stream", name="stdout", text=text)] if text else []


def autograded(graded: Graded) -> Any:
    """Return the notebook with what its cells printed and the verdicts below the answers.

    Outputs and metadata that came with the submission are left out, and a student's own text
    is shown as it was typed: none of it can act as a page's script or forge a verdict.
    """
    by_test = {verdict.test_id: verdict for verdict in graded.verdicts}
    verdicts = nbformat.v4.new_markdown_cell(overview(graded.record()), id="verdicts")
    cells, budget = [verdicts], TextBudget()
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


def feedback_page(record: Record, notebook: Any) -> str:
    """Return the page: the verdicts, and the notebook without the cell that only fetches checks."""
    points = {one["test_id"]: one["points"] for one in record["verdicts"]}
    points |= record.get("by_hand", {})
    if open_word(record) == "scored":
        points |= record["open_scores"]
    score, top = total_of(record)
    shown = nbformat.from_dict(notebook)
    shown.cells = [
        cell for cell in shown.cells if cell.metadata.get("nbgrader", {}).get("grade_id") != "setup"
    ]
    for cell in shown.cells:
        nbgrader = cell.metadata.get("nbgrader")
        if cell.cell_type == "markdown" and nbgrader and nbgrader["locked"]:  # as handed out
            cell.source = typeset(cell.source)
        if nbgrader:
            nbgrader["comment"] = None
            if nbgrader.get("grade"):  # an open exercise may have no score yet
                nbgrader["grade"] = nbgrader["grade_id"] in points
                nbgrader["score"] = points.get(nbgrader["grade_id"])
    resources = {
        "nbgrader": {
            "notebook": f"{record['set']}, {escape(record['student'])}",
            "score": score,
            "max_score": top,
            "late_penalty": 0,
        }
    }
    page, _ = exporter().from_notebook_node(shown, resources)
    return CONTENTS.sub("", str(page), count=1)
