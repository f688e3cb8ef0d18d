"""What this book adds to Sphinx: assets of its own, alt text on figures, links to the glossary."""

from __future__ import annotations

import functools
import hashlib
import json
import math
import os
import re
from base64 import b64decode, b64encode
from collections import Counter
from collections.abc import Callable
from html import escape
from pathlib import Path
from typing import Any

import nbformat
import pybtex.plugin
import yaml
from docutils import nodes
from docutils.statemachine import StringList
from myst_nb.sphinx_ import HideCodeCellNode
from sphinx.addnodes import desc_signature, download_reference, pending_xref, toctree
from sphinx.application import Sphinx
from sphinx.config import Config
from sphinx.environment.collectors.toctree import TocTreeCollector
from sphinx.util import texescape
from sphinx.util.docutils import SphinxDirective
from sphinx.util.nodes import make_refnode

from clinic import proofs as doctor_proofs
from exercises import proofs, warm_up
from lab import live, sets
from tools import address, equality, fonts, formulas, moving, plans, status, vendor

MATHJAX = f"https://cdn.jsdelivr.net/npm/mathjax@{vendor.SITE[0].version}/es5/tex-chtml.js"
ROOT = Path(__file__).resolve().parents[2]
MODULES = re.compile(r"<!-- modules: ([\w., ]+) -->")
LEFT_OUT = re.compile(r"<!-- left out: ([\w., ]+) -->")  # modules that no page lists
HANDED_OUT = re.compile(r"exercises/(?:release/\w+|projects)/\w+")
CAPTION = re.compile(r"Figure ([0-9A-Z]+\.\d+)\.")
VERDICT = re.compile(r"Claim, ([a-z ]+):")
CHAPTER = re.compile(r"/(\d\d)_\w+$")
LETTERED = {"book/hierarchical": "H"}  # pages beside the chapters
WIDGET = "application/vnd.jupyter.widget-view+json"
GLOSSED = re.compile(r"/(\d\d_\w+|hierarchical|interview|exercises|notation)$")  # with prose


def choose_assets(_: Sphinx, config: Config) -> None:
    """Bring the figures' script; where formulas cannot be set here, pages load what sets them."""
    config.html_static_path += [str(live.SCRIPT), str(live.STYLE)]
    config.mathjax_path = MATHJAX
    config.nb_ipywidgets_js = {}  # a moving figure is the browser's own sliders and pictures


def name_course(_: Sphinx, config: Config) -> None:
    """Tell all who write links where the course stands, and what it is called."""
    at = address.current()
    config.html_baseurl = config.ogp_site_url = at.site
    config.html_theme_options["repository_url"] = at.repository
    config.html_theme_options["logo"] = {"text": escape(at.title), "alt_text": ""}
    config.ogp_site_name = escape(at.title)


def write_title(app: Sphinx, _: Any) -> list[str]:
    """Write the title as words where LaTeX would read markup: it may have an ampersand."""
    app.config.latex_documents = [
        (page, file, texescape.escape(title, app.config.latex_engine), *more)
        for page, file, title, *more in app.config.latex_documents
    ]
    return []


def put_addresses(_: Sphinx, page: str, source: list[str]) -> None:
    """Put the addresses into the text of a page."""
    source[0] = address.current().filled(source[0])


def write_page(_: Sphinx, page: str, source: list[str]) -> None:
    """Give the pages of which the book has only the title their text."""
    pages = {
        "book/check_proofs": proofs.page,
        "book/configs": equality.page,
        "book/doctor_proofs": doctor_proofs.page,
    }
    if page in pages:
        source[0] = pages[page]()


def said_of_pictures(notebook: Path) -> dict[str, dict[str, Any]]:
    """Return what a notebook says of each of its pictures, by the digest that names its file."""
    found = {}
    for cell in nbformat.read(notebook, as_version=4).cells:
        for output in cell.get("outputs", []):
            said = output.get("metadata", {}).get("image/png")
            if said:
                data = b64decode(output["data"]["image/png"])
                found[hashlib.sha256(data).hexdigest()] = said
    return found


def describe_images(app: Sphinx, doctree: nodes.document) -> None:
    """Put the alt text that an output carries on its image; load all but the first lazily.

    A figure that computes gets its name and its state around its picture.
    """
    source = Path(app.env.doc2path(app.env.docname))
    known = said_of_pictures(source) if source.suffix == ".ipynb" else {}
    for number, image in enumerate(list(doctree.findall(nodes.image))):
        said = known.get(Path(image["uri"]).stem, {})
        if "alt" in said:
            image["alt"] = said["alt"]
        if "figure" in said:
            place = live_figure("", name=said["figure"], state=said["state"])
            place["reads"] = said.get("data")
            image.replace_self(place)
            place += image
        elif number:
            image["loading"] = "lazy"


def offer_downloads(app: Sphinx, doctree: nodes.document) -> None:
    """Let a link to a notebook that is handed out, which is no page of the book, download it."""
    for link in list(doctree.findall(pending_xref)):
        if found := HANDED_OUT.search(link["reftarget"]):
            target = f"../{found[0]}.ipynb"
            offered = download_reference("", "", reftarget=target, classes=["download"])
            offered += nodes.inline("", link.astext())
            link.replace_self(offered)


def link_anchors(app: Sphinx, doctree: nodes.document) -> None:
    """Let a link lead to an exercise of another page, or set the state of a figure.

    Sphinx knows only titles. A figure's state stands behind its anchor: `#figure-2-1?p=628`.
    """
    for link in list(doctree.findall(pending_xref)):
        page, anchor = link["reftarget"].rpartition("/")[2], link.get("reftargetid") or ""
        if page.startswith("figure-"):
            page, anchor = "", page
        if anchor.startswith(("ex-", "figure-")):
            at = f"{page}.html" if page else ""
            found = nodes.reference("", "", refuri=f"{at}#{anchor}", internal=True)
            found += nodes.inline("", link.astext())
            link.replace_self(found)


class live_figure(nodes.General, nodes.Element):
    """The first picture of a figure that computes, in the place where its script draws it."""


def open_live(writer: Any, node: live_figure) -> None:
    """Write the place of a figure that computes, as high as the figure will be."""
    known = live.starts()[node["name"]]
    attributes = {
        "data-figure": node["name"],
        "data-state": json.dumps(node["state"]),
        "style": f"--wide:{known['wide']}px;--narrow:{known['narrow']}px",
    }
    if node["reads"]:
        attributes["data-data"] = json.dumps(node["reads"])
    writer.body.append('<div class="live-place">')
    writer.body.append(writer.starttag(node, "div", CLASS="live", **attributes))


def close_live(writer: Any, node: live_figure) -> None:
    writer.body.append("</div></div>")


def bring_live(
    app: Sphinx, page: str, template: str, context: dict[str, Any], doctree: Any
) -> None:
    """Load the script of the figures that compute on the pages that have one."""
    if doctree is not None and doctree.next_node(live_figure) is not None:
        app.add_js_file(live.SCRIPT.name, loading_method="defer")
        app.add_css_file(live.STYLE.name)


class figure_with_caption(nodes.General, nodes.Element):
    """A figure that a cell shows, still or moving, with the caption that the cell wrote."""


class caption_below(nodes.General, nodes.TextElement):
    """The caption; its first words are the figure's number."""


def figure_anchor(number: str) -> str:
    """Return the id of the figure of a number: "10.3" gives figure-10-3."""
    return f"figure-{number.lower().replace('.', '-')}"


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


NUMBER = re.compile(r"[-−+<>≤≥~≈]?\s?\d[\d,. ]*(?:\s?(?:%|s|ms|MB|kB|±\s?[\d.]+))?|[–—]?")


def align_numbers(app: Sphinx, doctree: nodes.document) -> None:
    """Set the columns of tables that hold nothing but numbers to the right."""
    for table in doctree.findall(nodes.table):
        body = table.next_node(nodes.tbody)
        columns = list(zip(*(row.children for row in body or []), strict=False))
        heads = [row.children for row in table.next_node(nodes.thead) or []]
        for place, column in enumerate(columns):
            words = [entry.astext().strip() for entry in column]
            if not any(words) or not all(map(NUMBER.fullmatch, words)):
                continue
            for entry in [*column, *(head[place] for head in heads)]:
                entry["classes"] = [*entry["classes"], "text-right"]


HYPHEN = re.compile(r"(?<![\w)\]−–/.-])-(?=\.?\d)")
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


def colour_claims(app: Sphinx, doctree: nodes.document) -> None:
    """Give each box of a claim the class of its verdict."""
    for quotation in doctree.findall(nodes.block_quote):
        words = [strong.astext() for strong in quotation.findall(nodes.strong)]
        for found in filter(None, map(VERDICT.fullmatch, words)):
            quotation["classes"] += ["claim", f"claim-{found[1].split()[0]}"]


def number_once(app: Sphinx, env: Any) -> list[str]:
    """Keep Sphinx from reading all pages again for numbers that `number_by_chapter` makes anew."""
    env.config.numfig = False
    return []


def number_by_chapter(app: Sphinx, env: Any) -> list[str]:
    """Number formulas and exercises by the chapter that the file's name begins with: 10.3.

    Sphinx would count sections of the table of contents, of which parts and pages in between are
    some too, and would number every heading.
    """
    pages = {page: found for page in env.found_docs if (found := CHAPTER.search(page))}
    numbers: dict[str, Any] = {page: int(found[1]) for page, found in pages.items()}
    numbers |= LETTERED
    env.config.numfig = True
    env.toc_secnumbers = {page: {"": (number,)} for page, number in numbers.items()}
    changed = TocTreeCollector().assign_figure_numbers(env)
    env.toc_secnumbers = {}
    return list(changed)


@functools.cache
def titles(env: Any) -> dict[str, nodes.Element]:
    """Return of each page's contents its title and the pages below it."""
    found = {}
    for page, contents in env.tocs.items():
        found[page] = contents.deepcopy()
        for entry in found[page].children:
            if len(entry) > 1:
                entry[1][:] = list(entry.findall(toctree))
                if not entry[1].children:
                    entry.pop(1)
    return found


def list_titles(
    app: Sphinx, page: str, template: str, context: dict[str, Any], doctree: Any
) -> None:
    """Make the list of all pages of their titles, where it shows no more.

    Sphinx would copy every heading and every documented name, for every page, and drop them.
    """
    whole = context["toctree"]

    def short(**options: Any) -> Any:
        kept = app.env.tocs
        if options.get("titles_only"):
            app.env.tocs = titles(app.env)
        try:
            return whole(**options)
        finally:
            app.env.tocs = kept

    context["toctree"] = short


class moving_figure(nodes.General, nodes.Element):
    """Pictures, of which sliders choose the one that is seen."""


def move_without_widgets(app: Sphinx, doctree: nodes.document) -> None:
    """Put a moving figure's sliders and pictures, as files, in the place of its widget."""
    source = Path(app.env.doc2path(app.env.docname))
    bundles = [
        (bundle, form)
        for bundle in doctree.findall(nodes.container)
        if bundle.get("nb_element") == "mime_bundle"
        for form in bundle.findall(nodes.container)
        if form.get("mime_type") == WIDGET
    ]
    if not bundles:
        return
    metadata = nbformat.read(source, as_version=4).metadata
    folder = Path(app.doctreedir) / "frames"
    folder.mkdir(exist_ok=True)
    for bundle, form in bundles:
        view = re.search(r'"model_id": *"(\w+)"', form.next_node(nodes.raw).astext())
        figure = moving.moving(view[1] if view else "", metadata)
        sliders = [
            each._replace(labels=[HYPHEN.sub("−", label) for label in each.labels])
            for each in figure.sliders
        ]
        place = moving_figure("", sliders=sliders, start=figure.start)
        for drawn in figure.pictures:
            data = b64decode(drawn.data)
            path = folder / f"{hashlib.sha256(data).hexdigest()}.png"
            path.write_bytes(data)
            size = {"width": str(drawn.width), "height": str(drawn.height)}
            uri = os.path.relpath(path, source.parent)
            place += nodes.image("", uri=Path(uri).as_posix(), alt=drawn.alt, **size)
        bundle.replace_self(place)


def write_moving(writer: Any, node: moving_figure) -> None:
    """Write the sliders and the first picture of a moving figure; the others come when asked."""
    folder = writer.builder.imgpath
    shown = []
    for each in node.findall(nodes.image):
        source = f"{folder}/{writer.builder.images[each['uri']]}"
        shown.append([source, each["alt"], int(each["width"]), int(each["height"])])
    parts = []
    for slider in node["sliders"]:
        name = f"slider-{writer.builder.env.new_serialno('slider')}"
        at = {
            "id": name,
            "max": len(slider.labels) - 1,
            "value": slider.start,
            "aria-valuetext": slider.labels[slider.start],
            "data-labels": json.dumps(slider.labels, ensure_ascii=False),
        }
        held = " ".join(f'{key}="{escape(str(value))}"' for key, value in at.items())
        parts.append(
            f'<div><label for="{name}">{escape(slider.name)}</label>'
            f'<input type="range" min="0" autocomplete="off" {held}>'
            f'<output for="{name}">{escape(slider.labels[slider.start])}</output></div>'
        )
    source, alt, width, height = shown[node["start"]]
    held = escape(json.dumps(shown, ensure_ascii=False, separators=(",", ":")))
    writer.body.append(
        f'<div class="moving" data-frames="{held}"><div class="moving-controls">{"".join(parts)}'
        f'</div><img src="{source}" alt="{escape(alt)}" width="{width}" height="{height}"'
        ' loading="lazy"></div>'
    )
    raise nodes.SkipNode


def stop_on_paper(app: Sphinx, doctree: nodes.document, page: str) -> None:
    """Leave of a moving figure the first picture, where nothing moves."""
    if app.builder.format != "html":
        for each in list(doctree.findall(moving_figure)):
            each.replace_self(each[each["start"]])


def section(module: str) -> str:
    """Return the Markdown that documents a module: what it defines, not what it passes on."""
    options = "   :members:\n   :ignore-module-all:\n"
    return f"## {module}\n\n```{{eval-rst}}\n.. automodule:: {module}\n{options}```\n"


def list_modules(app: Sphinx, page: str, source: list[str]) -> None:
    """Put a section for each module where a page says so: `<!-- modules: lab, bakeoff.run -->`.

    A room's name stands for all its modules that no other line of the API pages names.
    """
    if not MODULES.search(source[0]):
        return
    named = {
        name
        for path in sorted((ROOT / "book").glob("api*.md"))
        for pattern in (MODULES, LEFT_OUT)
        for line in pattern.findall(path.read_text(encoding="utf-8"))
        for name in line.replace(" ", "").split(",")
    }

    def sections(match: re.Match[str]) -> str:
        found: list[str] = []
        for name in match[1].replace(" ", "").split(","):
            files = sorted(ROOT.joinpath(name).glob("*.py")) if "." not in name else []
            modules = [f"{name}.{file.stem}" for file in files if not file.stem.startswith("__")]
            found += [module for module in modules if module not in named] or [name]
        return "\n".join(section(module) for module in found)

    source[0] = MODULES.sub(sections, source[0])


def plain_docstring(
    app: Sphinx, what: str, name: str, obj: Any, options: Any, lines: list[str]
) -> None:
    """Read docstrings as plain text: |x| and a*b are maths, not markup, and `x` is code."""
    for number, line in enumerate(lines):
        words = re.split(r"(`+[^`]+`+)", line)
        words[::2] = [re.sub(r"([|*])", r"\\\1", word) for word in words[::2]]
        words[1::2] = [f"``{word.strip('`')}``" for word in words[1::2]]
        lines[number] = "".join(words)


def skip_fields(app: Sphinx, what: str, name: str, obj: Any, skip: bool, options: Any) -> bool:
    """Leave out the fields of a named tuple, of which Python only knows their number."""
    return skip or type(obj).__name__ == "_tuplegetter"


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
            after.parent.replace(after, nodes.Text(after[mark.end() :]))


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


MENDED = {  # in what Sphinx writes
    # As attributes, both numbers keep the place of a picture on its way, and its shape on a phone.
    r'style="width: (\d+)px; height: (\d+)px;"': r'width="\1" height="\2"',
    r' role="doc-biblioentry"|(?<=<div) role="list"(?= class="citation)': "",  # out of use
    r'<th class="[^"]*"><p></p></th>': "<td></td>",  # what heads nothing is no head
}


def finish_page(
    app: Sphinx, page: str, template: str, context: dict[str, Any], doctree: Any
) -> None:
    """Follow the reader's light or dark; let pictures keep their shape; leave out idle scripts."""
    context["default_mode"] = "light"  # without scripts; with them, the reader's (layout.html)
    context["metatags"] = re.sub('<meta name="viewport"[^>]*>', "", context.get("metatags", ""))
    idle = ["sphinx-thebe", "THEBE_JS_URL", moving.STATE]
    if formulas.possible() or 'class="math notranslate' not in context.get("body", ""):
        idle += ["mathjax", "window.MathJax"]
    if page == app.config.root_doc:
        context["docstitle"] = ""  # the page's own title says the same
        first = '<img fetchpriority="high" '  # it stands on the first screen
        context["body"] = context["body"].replace("<img ", first, 1)
    if "<table" in context.get("body", ""):  # half a table has other columns than the whole
        context["metatags"] += '<link rel="expect" href="#read-in" blocking="render">'
        context["body"] += '<div id="read-in"></div>'
    for found, instead in MENDED.items():
        context["body"] = re.sub(found, instead, context.get("body", ""))
    for group in context.get("header_buttons", []):
        buttons = group.get("buttons", [])
        if str(context.get("page_source_suffix")) == ".ipynb":  # to edit it there is to edit JSON
            buttons = [each for each in buttons if each.get("label") != "source-edit-button"]
            group["buttons"] = buttons
        for button in buttons:
            if button.get("text") == "Colab":  # from the branch with the addresses put in
                button["url"] = address.current().opens("Colab", f"{page}.ipynb")
            if button.get("text") == ".pdf":
                button["text"] = "Print"  # which is what it does
    context["script_files"] = [
        script
        for script in context.get("script_files", [])
        if not any(
            name in f"{script} {attributes.get('type')} {attributes.get('body')}"
            for attributes in [getattr(script, "attributes", {})]
            for name in idle
        )
    ]


ICON = re.compile(r'(?:\.fa-[\w-]+:before,?)+\{content:"[^"]*"\}')


def drop_icons(app: Sphinx, error: Exception | None) -> None:
    """Take the icons that no page shows out of the theme's style, which waits before each page."""
    style = Path(app.outdir) / "_static" / "styles" / "pydata-sphinx-theme.css"
    if error is None and app.builder.name == "html":
        served = {f".fa-{icon}:before" for icons in fonts.ICONS.values() for icon in icons}
        text = style.read_text(encoding="utf-8")
        kept = ICON.sub(
            lambda rule: rule[0] if served & set(re.split("[,{]", rule[0])) else "", text
        )
        style.write_text(kept, encoding="utf-8")


FIRST_FACES = ("sans", "sans-bold")


def bring_first_faces(app: Sphinx, error: Exception | None) -> None:
    """Put the type faces of every first screen into their style sheet: words then never move."""
    folder = Path(app.outdir) / "_static" / "fonts"
    if error is None and app.builder.name == "html":
        style = (folder / "fonts.css").read_text(encoding="utf-8")
        for face in FIRST_FACES:
            data = b64encode((folder / f"{face}.woff2").read_bytes()).decode()
            here = f'"data:font/woff2;base64,{data}"'
            # What has come already need not be stood in for, not even for a moment.
            shown = rf"{here}\1font-display: block"
            style = re.sub(rf'(?s)"{face}\.woff2"(.*?)font-display: swap', shown, style, count=1)
        (folder / "fonts.css").write_text(style, encoding="utf-8")


def set_formulas(app: Sphinx, error: Exception | None) -> None:
    """Set the formulas of all pages, where it is possible."""
    if error is None and app.builder.name == "html" and formulas.possible():
        formulas.set_site(Path(app.outdir))


WORDS: dict[str, tuple[Counter[str], set[str], set[str]]] = {}  # prose, headings, names: stems
TELLING = {"named": 2.5, "heading": 0.8}  # what a name or a heading is worth, in uses without end
APART = re.compile(r"/(api\w*|status|\w+_proofs|bibliography)$")
BELOW = re.compile(r"/(glossary|claims_\w+)$")  # after the page that they belong to
CALLED = Path(__file__).with_name("also_called.yml")


@functools.cache
def stemmer(language: Any) -> Callable[[str], str]:
    """Return what finds a word's stem, from now on once for each word, whoever asks."""
    language.stem = functools.cache(language.stem)
    return language.stem  # type: ignore[no-any-return]


def count_words(
    app: Sphinx, page: str, template: str, context: dict[str, Any], doctree: Any
) -> None:
    """Count the words of a page: search knows only whether a page has a word."""
    if doctree is None or not page.startswith("book/") or app.builder.name != "html":
        return
    language = app.builder.indexer.lang  # type: ignore[attr-defined]
    stem = stemmer(language)

    def stems(*texts: str) -> Counter[str]:
        return Counter(stem(word) for text in texts for word in language.split(text.lower()))

    # Code and tables name much that a page is not about.
    table_counts = page in ("book/notation", "book/glossary")
    prose = [
        block.astext()
        for block in doctree.findall(nodes.TextElement)
        if not isinstance(block, nodes.FixedTextElement | nodes.Inline | nodes.title)
        and (table_counts or not isinstance(block.parent, nodes.entry))
    ]
    own, *headings = [each.astext() for each in doctree.findall(nodes.title)] or [""]
    called = yaml.safe_load(CALLED.read_text(encoding="utf-8")).get(page.partition("/")[2], "")
    WORDS[page] = stems(*prose), set(stems(*headings)), {*stems(own)} | {*stems(called)}


def weigh_words(
    words: dict[str, tuple[Counter[str], set[str], set[str]]],
) -> dict[str, dict[str, float]]:
    """Return, for each word, what a page is worth to who looks for it (BM25, and its names)."""
    pages = {word: [] for each in words.values() for part in each for word in part}  # type: dict[str, list[str]]
    for page, each in words.items():
        for word in set().union(*each):
            pages[word].append(page)
    lengths = {page: prose.total() for page, (prose, *_) in words.items()}
    mean = sum(lengths.values()) / len(words)
    found: dict[str, dict[str, float]] = {}
    for word, said in sorted(pages.items()):
        rare = math.log(1 + (len(words) - len(said) + 0.5) / (len(said) + 0.5))
        found[word] = {}
        for page in said:
            prose, headings, names = words[page]
            uses = 2.2 * prose[word] / (prose[word] + 0.48 + 0.72 * lengths[page] / mean)
            uses += TELLING["heading"] * (word in headings) + TELLING["named"] * (word in names)
            shares = {CHAPTER: 1.25, BELOW: 0.6, APART: 0.5}
            kind = next((share for kind, share in shares.items() if kind.search(page)), 1)
            found[word][page] = rare * uses * kind
    return found


def write_weights(app: Sphinx, error: Exception | None) -> None:
    """Write for the search what each page is worth for each word."""
    if error is None and app.builder.name == "html" and WORDS:
        pages = sorted(WORDS)
        table = {
            word: [
                part
                for page, share in said.items()
                for part in (pages.index(page), round(share, 1))
            ]
            for word, said in weigh_words(WORDS).items()
        }
        text = json.dumps(
            {"pages": pages, "words": table}, separators=(",", ":"), ensure_ascii=False
        )
        script = Path(app.outdir) / "_static" / "uses.js"
        script.write_text(f"var USES = {text};\n", encoding="utf-8")


def written(directive: SphinxDirective, text: str, source: str) -> list[nodes.Node]:
    """Return what Markdown, written by a program when the page is built, stands for."""
    holder = nodes.container()
    directive.state.nested_parse(
        StringList(text.splitlines(), source=source), directive.content_offset, holder
    )
    directive.env.note_reread()
    return list(holder.children)


class BuildStatus(SphinxDirective):
    """Write versions, seconds, tests and claims into the page, as they are when it is built."""

    def run(self) -> list[nodes.Node]:
        return written(self, status.markdown(), "tools/status.py")


class GradedSets(SphinxDirective):
    """Write the list of all graded sets, or of all projects, with what opens each."""

    required_arguments = 1

    def run(self) -> list[nodes.Node]:
        text = {"sets": sets.overview, "projects": sets.projects}[self.arguments[0]]()
        return written(self, address.current().filled(text), "lab/sets.py")


class LessonPlans(SphinxDirective):
    """Write ninety minutes for each chapter, as the chapters are when the page is built."""

    def run(self) -> list[nodes.Node]:
        return written(self, plans.plans(), "tools/plans.py")


class CheckedAnswer(SphinxDirective):
    """Show an answer to the warm-up exercise, and below it what the check says when it runs."""

    has_content = True

    def run(self) -> list[nodes.Node]:
        code = "\n".join(self.content)
        said = warm_up.feedback(code)
        return [
            nodes.literal_block(code, code, language="python"),
            nodes.literal_block(said, said, language="text", classes=["said"]),
        ]


AS_GIVEN = (lambda self, node: None, lambda self, node: None)  # what is inside, and no more


def html_element(tag: str) -> tuple[Any, Any]:
    """Return what opens and what closes a node that HTML has an element for."""
    return (
        lambda self, node: self.body.append(self.starttag(node, tag)),
        lambda self, node: self.body.append(f"</{tag}>"),
    )


def setup(app: Sphinx) -> dict[str, Any]:
    # For each citation pybtex would read anew what is installed here.
    pybtex.plugin.entry_points = functools.cache(pybtex.plugin.entry_points)
    app.connect("source-read", list_modules)
    app.connect("config-inited", choose_assets, priority=100)
    app.connect("config-inited", name_course, priority=100)
    app.connect("source-read", write_page)
    app.connect("source-read", put_addresses)
    app.connect("env-updated", write_title)
    app.connect("autodoc-process-docstring", plain_docstring, priority=100)  # before napoleon
    app.connect("autodoc-skip-member", skip_fields)
    app.connect("doctree-read", move_without_widgets, priority=300)  # before images are collected
    app.connect("doctree-resolved", stop_on_paper, priority=200)
    app.add_node(moving_figure, html=(write_moving, None), latex=AS_GIVEN, text=AS_GIVEN)
    app.connect("doctree-read", offer_downloads, priority=300)  # before files are collected
    app.connect("doctree-read", link_anchors)
    app.connect("doctree-read", describe_images)
    app.connect("doctree-resolved", caption_figures, priority=300)  # an output's form is chosen
    app.connect("doctree-resolved", fold_below_pictures, priority=350)
    app.connect("doctree-resolved", link_figures, priority=400)
    app.connect("doctree-read", colour_claims)
    app.connect("env-get-updated", number_once, priority=100)
    app.connect("env-get-updated", number_by_chapter, priority=900)
    for node, tag in ((figure_with_caption, "figure"), (caption_below, "figcaption")):
        app.add_node(node, html=html_element(tag), latex=AS_GIVEN, text=AS_GIVEN)
    app.add_node(live_figure, html=(open_live, close_live), latex=AS_GIVEN, text=AS_GIVEN)
    app.connect("html-page-context", list_titles)
    app.connect("html-page-context", bring_live, priority=800)  # before finish_page
    app.connect("doctree-read", align_numbers)
    app.connect("doctree-read", write_minus)
    app.connect("doctree-read", keep_together)
    app.connect("doctree-resolved", link_terms)
    app.connect("html-page-context", finish_page, priority=900)
    app.add_directive("build-status", BuildStatus)
    app.add_directive("graded-sets", GradedSets)
    app.add_directive("checked-answer", CheckedAnswer)
    app.add_directive("lesson-plans", LessonPlans)
    app.connect("html-page-context", count_words)
    app.connect("build-finished", write_weights)
    app.connect("build-finished", drop_icons)
    app.connect("build-finished", bring_first_faces)
    app.connect("build-finished", set_formulas, priority=900)  # when all pages are written
    return {"version": "1", "parallel_read_safe": True, "parallel_write_safe": True}
