"""Figures with their captions and code, the numbers of formulas, and solutions that fold."""

from __future__ import annotations

import re
from html import unescape

from docutils import nodes
from myst_nb.sphinx_ import HideCodeCellNode
from sphinx.application import Sphinx

from pe_course.page.figures import figure_anchor

from . import links
from .figures import live_figure

CAPTION = re.compile(r"Figure ([0-9A-Z]+\.\d+)\.")
# What a caption says of panels that a phone shows below each other.
SIDES = re.compile(
    r"(left|right) (panel|map|matrix|picture)|[Oo]n the (left|right)\b"
    r"|(Left|Right):|\((left|right)\)"
)
TAG = re.compile(r"\s*\\tag\{([\w.]+)\}\s*")


class figure_with_caption(nodes.General, nodes.Element):
    """A figure that a cell shows, still or moving, with the caption that the cell wrote."""


class caption_below(nodes.General, nodes.TextElement):
    """The caption; its first words are the figure's number."""


def caption_figures(app: Sphinx, doctree: nodes.document, page: str) -> None:
    """Join each figure to the caption that its cell wrote below it: `**Figure 10.3.** ...`."""
    for paragraph in list(doctree.findall(nodes.paragraph)):
        first = paragraph.next_node(nodes.strong)
        found = CAPTION.fullmatch(first.astext()) if first else None
        holder = paragraph.parent
        place = holder.index(paragraph)
        if not found or not place or "cell_output" not in holder.get("classes", []):
            continue
        shown = holder[place - 1]
        words = caption_below("", "", *paragraph.children)
        if SIDES.search(words.astext()):
            words["classes"].append("sides")
        name = figure_anchor(found[1])
        holder.children[place - 1 : place + 1] = []
        holder.insert(place - 1, figure_with_caption("", shown, words, ids=[name]))


def fold_below_pictures(app: Sphinx, doctree: nodes.document, page: str) -> None:
    """Put the folded code of a cell that shows a figure below it: the figure is what is read."""
    for fold in list(doctree.findall(HideCodeCellNode)):
        cell = fold.parent
        if cell is None:  # a fold of a whole cell, figure and all
            continue
        after = cell.children[cell.index(fold) + 1 :]
        if any(each.next_node(nodes.image) or each.next_node(live_figure) for each in after):
            cell.remove(fold)
            cell.append(fold)


def join_folds(app: Sphinx, doctree: nodes.document, page: str) -> None:
    """Put the folds of cells that follow each other into one row, which the last of them has."""
    for fold in reversed(list(doctree.findall(HideCodeCellNode))):
        cell = fold.parent
        if cell is None or cell[-1] is not fold:
            continue
        after = cell.next_node(descend=False, siblings=True)
        if isinstance(after, nodes.container) and isinstance(after[0], HideCodeCellNode):
            cell.remove(fold)
            after.insert(0, fold)
            if not len(cell):
                cell.parent.remove(cell)


def number_formulas(app: Sphinx, doctree: nodes.document) -> None:
    """Let Sphinx set the number that a formula states, `\\tag{10.1}`, and make it a place.

    Sphinx wraps formulas of several rows, and there MathJax refuses a tag.
    """
    for formula in doctree.findall(nodes.math_block):
        words = formula.astext()
        if found := TAG.search(words):
            anchor = formula_anchor(found[1])
            formula.clear()
            formula += nodes.Text(TAG.sub("", words))
            formula["number"] = formula["label"] = found[1]
            formula["docname"] = app.env.docname
            formula["ids"] = [anchor]
            links.add_place(app, anchor)


def formula_anchor(number: str) -> str:
    """Return the anchor of a numbered formula: equation-10-1."""
    return f"equation-{number.replace('.', '-').lower()}"


def link_numbers(app: Sphinx, doctree: nodes.document, page: str) -> None:
    """Link "Figure 10.3" and "(10.1)" in the prose of a page to what the page has there."""
    if app.builder.format != "html":
        return
    have = {name for each in doctree.findall(figure_with_caption) for name in each["ids"]}
    have |= {name for each in doctree.findall(nodes.math_block) for name in each["ids"]}
    for text in list(doctree.findall(nodes.Text)):
        if not isinstance(text.parent, nodes.paragraph):
            continue
        words = re.split(r"(Figure [0-9A-Z]+\.\d+|\([0-9A-Z]+\.\d+\))", text)
        parts: list[nodes.Node] = [nodes.Text(part) for part in words]
        for number in range(1, len(parts), 2):  # between them stands what names neither
            kind, _, named = words[number].rpartition(" ")
            name = figure_anchor(named) if kind else formula_anchor(named.strip("()"))
            if name in have:
                parts[number] = nodes.reference("", "", parts[number], refid=name, internal=True)
        if len(parts) > 1:
            text.parent.replace(text, parts)


def fold_solutions(app: Sphinx, doctree: nodes.document, page: str) -> None:
    """Fold each part of the section *Solutions*, words and code, under its heading."""
    if app.builder.format != "html":
        return
    opened = '<details class="solution"><summary>'
    for section in doctree.findall(nodes.section):
        if section[0].astext() == "Solutions":
            for solution in filter(lambda node: isinstance(node, nodes.section), section):
                solution.insert(0, nodes.raw("", opened, format="html"))
                solution.insert(2, nodes.raw("", "</summary>", format="html"))
                solution += nodes.raw("", "</details>", format="html")


SUMMARY = re.compile(r"<summary>(.*)</summary>")


def open_on_paper(app: Sphinx, doctree: nodes.document, page: str) -> None:
    """Print the title above what a fold holds, and formulas with the numbers that they state."""
    if app.builder.format != "latex":
        return
    for raw in list(doctree.findall(nodes.raw)):
        if found := SUMMARY.search(raw.astext()):
            title = unescape(re.sub(r"<[^>]*>", "", found[1]))
            raw.replace_self(nodes.paragraph("", "", nodes.strong("", title)))
    for formula in doctree.findall(nodes.math_block):
        if number := formula["number"]:
            rows = rf"\begin{{split}}{formula.astext()}\end{{split}}"
            formula["nowrap"] = True
            formula.clear()
            formula += nodes.Text(rf"\begin{{equation*}}{rows}\tag{{{number}}}\end{{equation*}}")
