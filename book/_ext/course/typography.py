"""How words and numbers are set, and the boxes of claims coloured."""

from __future__ import annotations

import re
from itertools import cycle
from typing import Any

from docutils import nodes
from sphinx.addnodes import desc_signature
from sphinx.application import Sphinx
from sphinx.util import texescape

UNIT = r"%|s|ms|MB|kB|×|°|nats|degrees|[mb]illion|±\s?[\d.]+"
ONE = rf"(?:below\s)?[-−+<>≤≥~≈]?\s?\d[\d,. ]*(?:e[-−]?\d+)?(?:\s?(?:{UNIT}))?"
NUMBER = re.compile(rf"{ONE}(?:\s(?:to|of)\s{ONE})?(?:\s\({ONE}\sto\s{ONE}\))?|[–—]")
NO_NUMBER = re.compile(r"(?:none.*|not\s\w+|refused)?")  # in the place of one


NAME, SENTENCE = 16, 60  # letters of a cell that is not broken, and of one that needs room
PROSE = 40  # letters that the cells of a column have on average where they are read, not compared


def set_cells(app: Sphinx, doctree: nodes.document) -> None:
    """Set columns of nothing but numbers to the right, keep names whole, give sentences room.

    A table of three columns or more moves "sideways" on a phone; where one of them is prose, it is
    "stacked": each row is a card.
    """
    for entry in doctree.findall(nodes.entry):
        words = entry.astext()
        entry["classes"] += ["together"] * (len(words) <= NAME and not re.search(r"\s", words))
        entry["classes"] += ["long"] * (len(words) > SENTENCE)
    for table in doctree.findall(nodes.table):
        body = table.next_node(nodes.tbody)
        columns = list(zip(*(row.children for row in body or []), strict=False))
        heads = [row.children for row in table.next_node(nodes.thead) or []]
        letters = [sum(len(entry.astext()) for entry in column) / len(column) for column in columns]
        if len(columns) > 2:
            table["classes"].append("stacked" if heads and max(letters) >= PROSE else "sideways")
        for place, column in enumerate(columns):
            words = [entry.astext().strip() for entry in column]
            numbers = [word for word in words if not NO_NUMBER.fullmatch(word)]
            if not numbers or not all(map(NUMBER.fullmatch, numbers)):
                continue
            for entry in [*column, *(head[place] for head in heads)]:
                entry["classes"] = [*entry["classes"], "text-right"]


STACKED = re.compile(r'(<table class="[^"]*\bstacked\b.*?</thead>)(.*?</table>)', re.DOTALL)


def label_cells(
    app: Sphinx, page: str, template: str, context: dict[str, Any], doctree: Any
) -> None:
    """Give each cell of a stacked table the words of its column's head, which a card shows."""

    def label(table: re.Match[str]) -> str:
        heads = re.findall(r"<th\b[^>]*>(.*?)</th>", table[1], re.DOTALL)
        words = [re.sub("<[^>]*>", "", head) for head in heads]
        labels = cycle(re.sub(r"(?<=\w)$", ":", each) for each in words)
        return table[1] + re.sub("<td", lambda _: f'<td data-label="{next(labels)}"', table[2])

    context["body"] = STACKED.sub(label, context.get("body", ""))


HYPHEN = re.compile(r"(?<![\w)\]−–/.-])-(?=\.?\d)|(?<=\de)-(?=\d)")
VERBATIM = (nodes.literal, nodes.FixedTextElement, nodes.math, nodes.raw, desc_signature)


def write_minus(app: Sphinx, doctree: nodes.document) -> None:
    """Give negative numbers a true minus, in what is read and in what is read aloud."""
    for text in list(doctree.findall(nodes.Text)):
        if HYPHEN.search(text):
            around: nodes.Node | None = text
            while around is not None and not isinstance(around, VERBATIM):
                around = around.parent
            if around is None:
                text.parent.replace(text, nodes.Text(HYPHEN.sub("−", text)))
    for image in doctree.findall(nodes.image):
        image["alt"] = HYPHEN.sub("−", image.get("alt", ""))


SHORT = 12  # letters of code that fit a line of a phone with room to spare


def keep_together(app: Sphinx, doctree: nodes.document) -> None:
    """Let no line begin with the full stop or comma of the formula, or short code, before it."""
    short = [each for each in doctree.findall(nodes.literal) if len(each.astext()) <= SHORT]
    for formula in [*doctree.findall(nodes.math), *short]:
        after = formula.next_node(descend=False, siblings=True)
        mark = re.match(r"[^\s\w(\[]+", after) if isinstance(after, nodes.Text) else None
        if mark:
            whole = nodes.inline(classes=["together"])
            formula.replace_self(whole)
            whole += [formula, nodes.Text(mark.group())]
            place = whole.parent.index(whole) + 1  # `after` equals every other ", "
            whole.parent[place] = nodes.Text(after[mark.end() :])


BOXES = {"In this chapter": "plan", "On this page": "plan", "What this does not show": "limits"}


def name_boxes(app: Sphinx, doctree: nodes.document) -> None:
    """Give a quotation with a title, bold words on a line of their own, the look of a box."""
    for quotation in doctree.findall(nodes.block_quote):
        title, bold = quotation[0], quotation.next_node(nodes.strong)
        if bold and title.astext() == bold.astext():
            quotation["classes"] += ["box", *filter(None, [BOXES.get(title.astext())])]
            title["classes"].append("box-title")


VERDICT = re.compile(r"Claim, ([a-z ]+):")


def colour_claims(app: Sphinx, doctree: nodes.document) -> None:
    """Give each box of a claim the class of its verdict."""
    for quotation in doctree.findall(nodes.block_quote):
        words = [strong.astext() for strong in quotation.findall(nodes.strong)]
        for found in filter(None, map(VERDICT.fullmatch, words)):
            quotation["classes"] += ["claim", f"claim-{found[1].split()[0]}"]


def write_title(app: Sphinx, _: Any) -> list[str]:
    """Write the title as words where LaTeX would read markup: it may have an ampersand."""
    app.config.latex_documents = [
        (page, file, texescape.escape(title, app.config.latex_engine), *more)
        for page, file, title, *more in app.config.latex_documents
    ]
    return []
