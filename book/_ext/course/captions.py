"""Figures with their captions and code, and the numbers of figures, formulas, exercises."""

from __future__ import annotations

import re
from typing import Any

from docutils import nodes
from myst_nb.sphinx_ import HideCodeCellNode
from sphinx.application import Sphinx
from sphinx.environment.collectors.toctree import TocTreeCollector

from pages.figures import figure_anchor

from .figures import live_figure

CAPTION = re.compile(r"Figure ([0-9A-Z]+\.\d+)\.")
CHAPTER = re.compile(r"/(\d\d)_\w+$")
LETTERED = {"book/hierarchical": "H"}  # pages beside the chapters


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


def link_figures(app: Sphinx, doctree: nodes.document, page: str) -> None:
    """Link "Figure 10.3" in the prose of a page to that figure, where the page has it."""
    have = {name for each in doctree.findall(figure_with_caption) for name in each["ids"]}
    for text in list(doctree.findall(nodes.Text)):
        if not isinstance(text.parent, nodes.paragraph):
            continue
        words = re.split(r"(Figure [0-9A-Z]+\.\d+)", text)
        parts: list[nodes.Node] = [nodes.Text(part) for part in words]
        for number in range(1, len(parts), 2):  # between them stands what names no figure
            name = figure_anchor(words[number].removeprefix("Figure "))
            if name in have:
                parts[number] = nodes.reference("", "", parts[number], refid=name, internal=True)
        if len(parts) > 1:
            text.parent.replace(text, parts)


def keep_numbers(app: Sphinx, env: Any, reread: list[str]) -> None:
    """Keep the numbers of pages that are not read again; Sphinx would number the whole book."""
    env.kept_numbers = env.toc_fignumbers | dict.fromkeys(reread)
    env.config.numfig = False


def number_by_chapter(app: Sphinx, env: Any) -> list[str]:
    """Number formulas and exercises by the chapter that the file's name begins with: 10.3.

    Sphinx would count sections of the table of contents, of which parts and pages in between are
    some too, and would number every heading.
    """
    numbers, kept = {}, env.kept_numbers
    env.config.numfig, root = True, env.config.root_doc
    for page in (page for page in env.found_docs if not kept.get(page)):
        found = CHAPTER.search(page)
        chapter = int(found[1]) if found else LETTERED.get(page)
        if chapter:
            env.config.root_doc, env.toc_secnumbers = page, {page: {"": (chapter,)}}
            TocTreeCollector().assign_figure_numbers(env)
            numbers |= env.toc_fignumbers
    env.config.root_doc, env.toc_secnumbers = root, {}
    env.toc_fignumbers = {page: each for page, each in (kept | numbers).items() if each}
    return []
