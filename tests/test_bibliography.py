"""The bibliography has every paper that a page links, named rightly there, and no other."""

from __future__ import annotations

import json
import re
from pathlib import Path
from urllib.parse import unquote

import pytest
from pybtex.database import parse_file
from pybtex.richtext import Text

from tools import ROOT

ENTRIES = parse_file(str(ROOT / "book/references.bib")).entries
ARXIV = re.compile(r"arxiv\.org/(?:abs|pdf|html)/([\w.-]+/\d+|\d+\.\d+)")
PAPER = re.compile(  # where papers that are not on arXiv stand
    r"https?://(?:doi\.org|openreview\.net|aclanthology\.org|proceedings\.[\w.]+|papers\.n[\w.]+)"
    r"/[^\s)\"'>\]]+"
)
CITED = re.compile(r"\{cite[:\w]*\}`([^`]+)`")


def written(path: Path) -> str:
    """Return the text of a page: its Markdown, its code and what its cells have put out."""
    if path.suffix != ".ipynb":
        return path.read_text(encoding="utf-8")
    parts = []
    for cell in json.loads(path.read_text(encoding="utf-8"))["cells"]:
        outputs = (output.get("data", {}) for output in cell.get("outputs", []))
        parts += [cell["source"], *(data.get("text/markdown", "") for data in outputs)]
    return "\n".join("".join(part) for part in parts)


PAGES = [path for path in (ROOT / "book").glob("*.*") if path.suffix in (".ipynb", ".md")]
TEXT = "\n".join(map(written, [*PAGES, *(ROOT / "exercises/release").glob("*/*.ipynb")]))
CITATIONS = {key.strip() for keys in CITED.findall(TEXT) for key in keys.split(",")}


def addresses(key: str) -> set[str]:
    """Return where a paper stands: its number on arXiv, its DOI, or an address."""
    fields = ENTRIES[key].fields
    return {fields[name] for name in ("eprint", "doi", "url") if name in fields}


KNOWN = {each for key in ENTRIES for each in addresses(key)}


def test_every_linked_paper_is_listed() -> None:
    numbers = set(ARXIV.findall(TEXT))
    elsewhere = {unquote(link).removeprefix("https://doi.org/") for link in PAPER.findall(TEXT)}
    assert len(numbers) > 10
    assert sorted((numbers | elsewhere) - KNOWN) == []


@pytest.mark.parametrize("key", ENTRIES)
def test_every_listed_paper_has_an_address_and_a_page(key: str) -> None:
    assert addresses(key)
    assert key in CITATIONS or any(each in TEXT for each in addresses(key))


LINK = re.compile(r"\[([^\[\]]+?)(?: \(|, )(\d{4}[a-z]?)\)?\]\((https?://[^\s)]+)\)")


def named(key: str) -> tuple[str, str]:
    """Return the authors of a paper as prose names them, and its year."""
    people = ENTRIES[key].persons["author"]
    names = [str(Text.from_latex(" ".join(p.prelast_names + p.last_names))) for p in people]
    first, *others = names
    who = f"{first} et al." if len(others) > 1 or others == ["others"] else " and ".join(names)
    return who, ENTRIES[key].fields["year"]


def misnamed(text: str) -> list[str]:
    """Return the links of the form "Su et al. (2024)" that lead to a paper of other people."""
    return [
        link[0]
        for link in LINK.finditer(text)
        for address in [unquote(link[3])]
        if (link[1], link[2])
        not in [named(key) for key in ENTRIES if any(address.endswith(a) for a in addresses(key))]
    ]


def test_a_linked_paper_is_named_by_its_authors_and_year() -> None:
    assert len(LINK.findall(TEXT)) > 200
    assert misnamed(TEXT) == []


@pytest.mark.parametrize(
    "link",
    [
        "[Sun et al. (2024)](https://arxiv.org/abs/2104.09864)",
        "[Su et al., 2023](https://arxiv.org/abs/2104.09864)",
        "[Nobody (1999)](https://example.org/paper)",
    ],
)
def test_a_paper_of_other_people_is_seen(link: str) -> None:
    assert misnamed(f"By {link}.") == [link]
    assert misnamed("[Su et al. (2024)](https://arxiv.org/abs/2104.09864)") == []
