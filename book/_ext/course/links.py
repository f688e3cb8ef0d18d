"""Links to downloads, places, states of figures and the glossary."""

from __future__ import annotations

import functools
import json
import re
from pathlib import Path
from typing import Any

from docutils import nodes
from sphinx.addnodes import download_reference, pending_xref
from sphinx.application import Sphinx
from sphinx.util.nodes import make_refnode

HANDED_OUT = re.compile(r"exercises/(?:release/\w+|projects)/\w+")
GLOSSED = re.compile(
    r"/(\d\d_\w+|hierarchical|designs|interview|exercises|notation)$"
)  # with prose


def offer_downloads(app: Sphinx, doctree: nodes.document) -> None:
    """Let a link to a notebook that is handed out, which is no page of the book, download it."""
    for link in list(doctree.findall(pending_xref)):
        if found := HANDED_OUT.search(link["reftarget"]):
            target = f"../{found[0]}.ipynb"
            offered = download_reference("", "", reftarget=target, classes=["download"])
            offered += nodes.inline("", link.astext())
            link.replace_self(offered)


ANCHOR = re.compile(r'<a id="([\w-]+)">')
FORMER = Path(__file__).parents[1] / "former_anchors.json"


def add_place(app: Sphinx, name: str) -> None:
    """Let links of all pages lead to an anchor of the page that is read, as to its headings."""
    app.env.metadata[app.env.docname].setdefault("myst_slugs", {})[name] = (0, name, name)


def read_anchors(app: Sphinx, doctree: nodes.document) -> None:
    """Make a place of each `<a id="..."></a>` that stands on a line of its own."""
    for raw in list(doctree.findall(nodes.raw)):
        if (found := ANCHOR.match(raw.astext())) and isinstance(raw.parent, nodes.paragraph):
            raw.parent.replace_self(nodes.target("", "", ids=[found[1]]))
            add_place(app, found[1])


@functools.cache
def former_anchors() -> dict[str, dict[str, str]]:
    """Return, for each page, the anchors that it once had and where each leads now."""
    return json.loads(FORMER.read_text(encoding="utf-8"))  # type: ignore[no-any-return]


def keep_former(app: Sphinx, doctree: nodes.document) -> None:
    """Let the anchors that a page once had lead to where the same stands now."""
    old = former_anchors().get(app.env.docname.removeprefix("book/"), {})
    for node in doctree.findall(nodes.Element) if old else ():
        node["ids"] += [
            name + place.removeprefix(now)
            for place in node["ids"]
            for name, now in old.items()
            if place == now or (now.endswith(".") and place.startswith(now))  # of a whole module
        ]


def link_states(app: Sphinx, doctree: nodes.document) -> None:
    """Let a link set the state of a figure, which stands behind its anchor: `#figure-2-1?p=628`."""
    for link in list(doctree.findall(pending_xref)):
        page, anchor = link["reftarget"].rpartition("/")[2], link.get("reftargetid") or ""
        if page.startswith("figure-"):
            page, anchor = "", page
        if anchor.startswith("figure-"):
            at = f"{page}.html" if page else ""
            found = nodes.reference("", "", refuri=f"{at}#{anchor}", internal=True)
            found += nodes.inline("", link.astext())
            link.replace_self(found)


def rewrite_all(app: Sphinx, env: Any) -> list[str]:
    """Write all pages again if a page changed something that others show of it.

    That is titles, places that links lead to, and the entries of the glossary.
    """
    shown = {page: [env.titles[page].astext(), env.tocs[page].astext()] for page in env.titles}
    places = {page: sorted(env.metadata[page].get("myst_slugs", {})) for page in env.titles}
    entries = [entry for _, entry in sorted(glossary(app).items())]
    before = getattr(env, "shown_elsewhere", None)
    env.shown_elsewhere = shown, places, entries
    return [] if env.shown_elsewhere == before else sorted(env.found_docs)


@functools.cache
def glossary(app: Sphinx) -> dict[str, tuple[str, str, str]]:
    """Return the page, the anchor and the entry of each term of the glossary, in small letters."""
    pages = {
        page for (kind, _), (page, _) in app.env.domains["std"].objects.items() if kind == "term"
    }
    found = {}
    for page in sorted(pages):
        for item in app.env.get_doctree(page).findall(nodes.definition_list_item):
            entry = re.sub(r"\s*See [^.]*\.$", "", " ".join(item.children[-1].astext().split()))
            for term in item.findall(nodes.term):
                found[term.astext().lower()] = (page, term["ids"][0], entry)
    return found


def link_terms(app: Sphinx, doctree: nodes.document, page: str) -> None:
    """Link the first use of each term in a page's prose to the glossary, with its entry."""
    if app.builder.format != "html" or not GLOSSED.search(page):
        return
    left = dict(glossary(app))
    words = "|".join(map(re.escape, sorted(left, key=len, reverse=True)))
    term = re.compile(rf"(?<![\w-])({words})(?=s?(?![\w-]))", re.IGNORECASE)
    for text in list(doctree.findall(nodes.Text)):
        holder = text.parent
        if not isinstance(holder, nodes.paragraph) or isinstance(holder.parent, nodes.entry):
            continue
        parts: list[nodes.Node] = [nodes.Text(part) for part in term.split(text)]
        for number in range(1, len(parts), 2):  # between them stands what is no term
            target = left.pop(parts[number].lower(), None)
            if target is not None:
                home, anchor, entry = target
                link = make_refnode(app.builder, page, home, anchor, parts[number], entry)
                link["classes"].append("term")
                parts[number] = link
        holder.replace(text, parts)
