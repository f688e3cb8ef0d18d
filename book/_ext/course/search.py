"""What the search weighs: how often each page says each word."""

from __future__ import annotations

import functools
import json
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

from docutils import nodes
from sphinx.application import Sphinx

from .links import GLOSSED

USES: dict[str, Counter[str]] = {}  # how often each page says each word, by the word's stem
MOST = 4  # pages that are remembered for a word


@functools.cache
def stemmer(language: Any) -> Callable[[str], str]:
    """Return what finds a word's stem, from now on once for each word, whoever asks."""
    language.stem = functools.cache(language.stem)
    return language.stem  # type: ignore[no-any-return]


def count_words(
    app: Sphinx, page: str, template: str, context: dict[str, Any], doctree: Any
) -> None:
    """Count the words of a page with prose: search knows only whether a page has a word."""
    if doctree is not None and GLOSSED.search(page) and app.builder.name == "html":
        language = app.builder.indexer.lang  # type: ignore[attr-defined]
        words: Counter[str] = Counter()
        for block in doctree.findall(nodes.TextElement):
            # Code and tables name much that a page is not about.
            if not isinstance(block, nodes.FixedTextElement | nodes.Inline) and not isinstance(
                block.parent, nodes.entry
            ):
                words.update(language.split(block.astext().lower()))
        stem, stems = stemmer(language), Counter[str]()
        for word, uses in words.items():
            stems[stem(word)] += uses
        USES[page] = stems


def weigh_words(uses: dict[str, Counter[str]]) -> dict[str, dict[str, int]]:
    """Return, for each word, the pages that say it most, and how often in percent of the most."""
    found: dict[str, dict[str, int]] = {}
    for word in sorted(set().union(*uses.values())):
        said = sorted(((uses[page][word], page) for page in uses), reverse=True)
        first = said[0][0]
        if first > 2 and len(word) > 1:
            found[word] = {page: 100 * n // first for n, page in said[:MOST] if n > 1}
    return found


def write_weights(app: Sphinx, error: Exception | None) -> None:
    """Write for the search where the course speaks most of each word."""
    if error is None and app.builder.name == "html" and USES:
        pages = sorted(USES)
        table = {
            word: [number for page, share in said.items() for number in (pages.index(page), share)]
            for word, said in weigh_words(USES).items()
        }
        text = json.dumps({"pages": pages, "words": table}, separators=(",", ":"))
        script = Path(app.outdir) / "_static" / "uses.js"
        script.write_text(f"var USES = {text};\n", encoding="utf-8")
