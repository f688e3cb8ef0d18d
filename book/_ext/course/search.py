"""What the search weighs: what each page is worth for each word."""

from __future__ import annotations

import functools
import json
import math
import pickle
import re
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import yaml
from docutils import nodes
from sphinx.application import ENV_PICKLE_FILENAME, Sphinx

Words = tuple[Counter[str], set[str], set[str]]  # of a page: stems in prose, headings and names
CHAPTER = re.compile(r"/(\d\d)_\w+$")
TELLING = {"named": 2.5, "heading": 0.8}  # what a name or a heading is worth, in uses without end
BELOW = re.compile(r"/(glossary|claims_\w+)$")  # after the page that they belong to
APART = re.compile(r"/(api\w*|\w+_proofs|bibliography)$")
CALLED = Path(__file__).parents[1] / "also_called.yml"
JOINED = re.compile(r"\b([A-Z][a-z]+)([A-Z][a-z]+)\b")  # FlashAttention is looked for as two words


@functools.cache
def stemmer(language: Any) -> Callable[[str], str]:
    """Return what finds a word's stem, from now on once for each word, whoever asks."""
    language.stem = functools.cache(language.stem)
    return language.stem  # type: ignore[no-any-return]


@functools.cache
def called() -> dict[str, str]:
    """Return what readers call each page."""
    names: dict[str, str] = yaml.safe_load(CALLED.read_text(encoding="utf-8"))
    return names


def remember_words(app: Sphinx, env: Any, pages: list[str]) -> None:
    """Make room for the words of pages; those that are not written again keep theirs."""
    if not hasattr(env, "search_words"):
        env.search_words = {}


def count_words(
    app: Sphinx, page: str, template: str, context: dict[str, Any], doctree: Any
) -> None:
    """Count the words of a page: search knows only whether a page has a word."""
    if doctree is None or not page.startswith("book/") or app.builder.name != "html":
        return
    language = app.builder.indexer.lang  # type: ignore[attr-defined]
    stem = stemmer(language)

    def stems(*texts: str) -> Counter[str]:
        said = (JOINED.sub(r"\g<0> \1 \2", text).lower() for text in texts)
        return Counter(stem(word) for text in said for word in language.split(text))

    # Code and tables name much that a page is not about.
    table_counts = page in ("book/notation", "book/glossary")
    prose = [
        block.astext()
        for block in doctree.findall(nodes.TextElement)
        if not isinstance(block, nodes.FixedTextElement | nodes.Inline | nodes.title)
        and (table_counts or not isinstance(block.parent, nodes.entry))
    ]
    own, *headings = [each.astext() for each in doctree.findall(nodes.title)] or [""]
    names = stems(own, called().get(page.partition("/")[2], ""))
    app.env.search_words[page] = stems(*prose), set(stems(*headings)), set(names)


def weigh_words(words: dict[str, Words]) -> dict[str, dict[str, float]]:
    """Return, for each word, what a page is worth to who looks for it (BM25, and its names)."""
    pages: dict[str, list[str]] = {}
    for page, each in words.items():
        for word in set().union(*each):
            pages.setdefault(word, []).append(page)
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
    if error is None and app.builder.name == "html" and (known := app.env.search_words):
        pages = sorted(known)
        table = {
            word: [
                part
                for page, share in said.items()
                for part in (pages.index(page), round(share, 1))
            ]
            for word, said in weigh_words(known).items()
        }
        text = json.dumps(
            {"pages": pages, "words": table}, separators=(",", ":"), ensure_ascii=False
        )
        script = Path(app.outdir) / "_static" / "uses.js"
        script.write_text(f"var USES = {text};\n", encoding="utf-8")


def store_environment(app: Sphinx, error: Exception | None) -> None:
    """Store what was noted of pages when they were written; Sphinx stores before it writes."""
    if error is None:
        path = Path(app.doctreedir) / ENV_PICKLE_FILENAME
        path.write_bytes(pickle.dumps(app.env, pickle.HIGHEST_PROTOCOL))
