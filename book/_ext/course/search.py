"""What the search weighs: what each page and each of its sections is worth for each word."""

from __future__ import annotations

import functools
import json
import pickle
import re
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import yaml
from docutils import nodes
from sphinx.application import ENV_PICKLE_FILENAME, Sphinx
from sphinx.search import js_index
from sphinx.util import logging

Words = tuple[Counter[str], set[str]]  # of a place: stems of its text, and those that name it
WHOLE = re.compile(r"/(api_\w+|\w+_proofs)$")
SUMMARY = re.compile(r"<summary>(.*)</summary>")
LOGGER = logging.getLogger(__name__)
CALLED = Path(__file__).parents[1] / "also_called.yml"
JOINED = re.compile(r"\w*[a-z]{2}[A-Z]\w*")  # FlashAttention is looked for as two words, too
PARTS = re.compile(r"(?<=[a-z]{2})(?=[A-Z])")
SILENT = re.compile(r"(?<=\d)(,(?=\d{3})|-(?=[A-Za-z]\b))")  # 10,000 is 10000, and 2-D is 2D
NAME = re.compile(r"[A-Za-z]\w*_\w+")  # in code
IMPORT = re.compile(r"^(from|import) .*$", re.MULTILINE)
ENTRY = re.compile(
    r"^(\w.*)\n(?:\w.*\n)*  \(([\u3400-\u9fff]+)\)", re.MULTILINE
)  # with its Chinese name


@functools.cache
def stemmer(language: Any) -> Callable[[str], str]:
    """Return what finds a word's stem, from now on once for each word, whoever asks."""
    language.stem = functools.cache(language.stem)
    return language.stem  # type: ignore[no-any-return]


@functools.cache
def called() -> dict[str, dict[str, str]]:
    """Return what readers call pages and sections, and English for what they say in Chinese."""
    names: dict[str, dict[str, str]] = yaml.safe_load(CALLED.read_text(encoding="utf-8"))
    return names


def split(text: str) -> Iterator[str]:
    """Yield the words of a text, and those that a name is made of: what is looked for is split so.

    The search does the same with what a reader types (assets/scorer.js).
    """
    text = JOINED.sub(lambda name: f"{name[0]} {PARTS.sub(' ', name[0])}", text)
    for word in re.findall(r"\w+", SILENT.sub("", text).lower()):
        yield word
        if "_" in word:
            yield from re.findall(r"[^\W_]+", word)


def remember_words(app: Sphinx, env: Any, pages: list[str]) -> None:
    """Make room for the words of pages; those that are not written again keep theirs."""
    if not hasattr(env, "search_words"):
        env.search_words = {}


def place_of(node: Any, page: str) -> str:
    """Return the id of the section that a node stands in, or of the entry of the glossary.

    The top of a page has none, nor has a page that is looked up by its names; solutions share one.
    """
    ids = []
    while node.parent is not None:
        if isinstance(node, nodes.definition_list_item) and node[0]["ids"]:
            ids.append(node[0]["ids"][0])
        if isinstance(node, nodes.section) and isinstance(node.parent, nodes.section):
            ids.append(node["ids"][0])
        node = node.parent
    if not ids or WHOLE.search(page):
        return ""
    return str(ids[-1] if ids[-1] == "solutions" else ids[0])


def leads_on(block: nodes.Element) -> bool:
    """Return whether a block is no more than a link to a place of its own page."""
    link = block[0] if isinstance(block, nodes.paragraph) and len(block) == 1 else None
    return isinstance(link, nodes.reference) and "refid" in link


def text_of(block: nodes.Element, tables: bool) -> str:
    """Return what a block says: of code, and of a table if tables do not count, only its names."""
    if isinstance(block, nodes.raw):
        return " ".join(SUMMARY.findall(block.astext()))
    if isinstance(block, nodes.math_block) or leads_on(block):
        return ""
    if isinstance(block, nodes.FixedTextElement):
        return " ".join(sorted(set(NAME.findall(IMPORT.sub("", block.astext())))))
    parts = [part for part in block.findall(nodes.Text) if not isinstance(part.parent, nodes.math)]
    if isinstance(block.parent, nodes.entry) and not tables:
        return " ".join(NAME.findall(" ".join(parts)))
    return "".join(parts)


def count_words(
    app: Sphinx, page: str, template: str, context: dict[str, Any], doctree: Any
) -> None:
    """Count the words of each section of a page."""
    if doctree is None or not page.startswith("book/") or app.builder.name != "html":
        return
    language = app.builder.indexer.lang  # type: ignore[attr-defined]
    stem = stemmer(language)
    unsaid = language.stopwords - {"no", "not"}  # NoPE is looked for with them

    def stems(text: str) -> list[str]:
        return [stem(word) for word in split(text) if word not in unsaid and word.isascii()]

    tables = page in ("book/notation", "book/glossary")
    places: dict[str, Words] = {"": (Counter(), set())}
    for block in doctree.findall(nodes.TextElement):
        if not isinstance(block, nodes.Inline) or isinstance(block, nodes.raw):
            prose, names = places.setdefault(place_of(block, page), (Counter(), set()))
            if isinstance(block, nodes.title | nodes.term):
                names.update(stems(block.astext()))
            else:
                prose.update(stems(text_of(block, tables)))
    for name, words in called()["pages"].items():
        named, _, section = name.partition("#")
        if page == f"book/{named}":
            if section not in places:
                LOGGER.warning("%s: no such section as %s", CALLED.name, name)
            places.setdefault(section, (Counter(), set()))[1].update(stems(words))
    app.env.search_words[page] = places


def uses(words: dict[str, dict[str, Words]]) -> dict[str, Any]:
    """Return what the search reads: sections with their lengths, and where each word stands.

    A word has, for each section that says it, how many sections on that is from the last, and a
    letter: b for once to e for four times or more; in capitals where the heading has the word, too.
    """
    found: dict[str, str] = {}
    last: dict[str, int] = {}
    places = [place for page in sorted(words) for place in words[page].values()]
    for here, (prose, names) in enumerate(places):
        for word in sorted({*prose, *names}):
            letter = "abcde"[min(prose[word], 4)]
            step = here - last.get(word, 0) or ""
            found[word] = (
                f"{found.get(word, '')}{step}{letter.upper() if word in names else letter}"
            )
            last[word] = here
    pages = {
        page: [[section, prose.total()] for section, (prose, _) in places.items()]
        for page, places in sorted(words.items())
    }
    return {"pages": pages, "words": dict(sorted(found.items()))}


def english(glossary: Path) -> dict[str, str]:
    """Return English for Chinese terms, the longest first: those of the glossary, and others."""
    entries = ENTRY.findall(glossary.read_text(encoding="utf-8")) if glossary.exists() else []
    terms = {chinese: term for term, chinese in entries} | called()["english"]
    return dict(sorted(terms.items(), key=lambda each: -len(each[0])))


def write_words(app: Sphinx, error: Exception | None) -> None:
    """Write for the search how often each section says each word."""
    if error is None and app.builder.name == "html" and (known := app.env.search_words):
        read = uses(known) | {"english": english(Path(app.srcdir, "book/glossary.md"))}
        text = json.dumps(read, separators=(",", ":"), ensure_ascii=False)
        script = Path(app.outdir) / "_static" / "uses.js"
        script.write_text(f"var USES = {text};\n", encoding="utf-8")
        index = Path(app.outdir, "searchindex.js")  # its own list of words is read no more
        kept = js_index.loads(index.read_text(encoding="utf-8")) | {"terms": {}, "titleterms": {}}
        index.write_text(js_index.dumps(kept), encoding="utf-8")


def store_environment(app: Sphinx, error: Exception | None) -> None:
    """Store what was noted of pages when they were written; Sphinx stores before it writes."""
    if error is None:
        path = Path(app.doctreedir) / ENV_PICKLE_FILENAME
        path.write_bytes(pickle.dumps(app.env, pickle.HIGHEST_PROTOCOL))
