"""What this book adds to Sphinx: each module holds what one kind of hook needs."""

from __future__ import annotations

import functools
from typing import Any

import pybtex.plugin
from sphinx.application import Sphinx

from . import captions, described, figures, links, pages, practice, search, typography, written

# What is called at each event, in this order; the smaller number first, and 500 where none is said.
HOOKS: dict[str, list[Any]] = {
    "config-inited": [(pages.choose_assets, 100)],
    "source-read": [
        written.list_modules,
        written.write_page,
        written.quote_sentences,
        practice.offer_exercises,
    ],
    "autodoc-process-docstring": [(written.plain_docstring, 100)],  # before napoleon
    "autodoc-skip-member": [written.skip_fields],
    "doctree-read": [
        (figures.describe_images, 200),
        (figures.move_without_widgets, 300),  # before images and files are collected
        (links.offer_downloads, 300),
        links.link_states,
        links.read_anchors,
        captions.number_formulas,
        (links.keep_former, 600),
        typography.name_boxes,
        typography.colour_claims,
        typography.set_cells,
        typography.write_minus,
        typography.keep_together,
    ],
    "env-updated": [typography.write_title],
    "env-before-read-docs": [search.remember_words],
    "env-get-updated": [(links.rewrite_all, 950)],
    "doctree-resolved": [
        (figures.stop_on_paper, 200),
        (captions.caption_figures, 300),  # an output's form is chosen
        (captions.fold_below_pictures, 350),
        (captions.join_folds, 360),
        (captions.link_numbers, 400),
        (captions.fold_solutions, 600),
        captions.open_on_paper,
        links.link_terms,
    ],
    "html-page-context": [
        (described.describe, 400),  # before opengraph, which keeps what a page has
        pages.list_titles,
        search.count_words,
        typography.label_cells,
        (figures.bring_live, 800),
        (pages.finish_page, 900),
    ],
    "build-finished": [
        search.write_words,
        practice.bring_python,
        (pages.set_formulas, 900),  # when all pages are written
        (pages.lighten, 910),
        (search.store_environment, 950),
    ],
}
DIRECTIVES = {
    "graded-sets": written.GradedSets,
    "checked-answer": written.CheckedAnswer,
}
AS_GIVEN = (lambda self, node: None, lambda self, node: None)  # what is inside, and no more


def html_element(tag: str) -> tuple[Any, Any]:
    """Return what opens and what closes a node that HTML has an element for."""
    return (
        lambda self, node: self.body.append(self.starttag(node, tag)),
        lambda self, node: self.body.append(f"</{tag}>"),
    )


NODES = {
    figures.live_figure: (figures.open_live, figures.close_live),
    figures.moving_figure: (figures.write_moving, None),
    figures.still_figure: (figures.write_still, None),
    captions.figure_with_caption: html_element("figure"),
    captions.caption_below: html_element("figcaption"),
}


def setup(app: Sphinx) -> dict[str, Any]:
    # For each citation pybtex would read anew what is installed here.
    pybtex.plugin.entry_points = functools.cache(pybtex.plugin.entry_points)
    for event, hooks in HOOKS.items():
        for hook in hooks:
            function, priority = hook if isinstance(hook, tuple) else (hook, 500)
            app.connect(event, function, priority=priority)
    for name, directive in DIRECTIVES.items():
        app.add_directive(name, directive)
    for node, html in NODES.items():
        app.add_node(node, html=html, latex=AS_GIVEN, text=AS_GIVEN)
    return {"version": "1", "parallel_read_safe": True, "parallel_write_safe": True}
