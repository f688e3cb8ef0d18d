"""A chapter is what a chapter should be: counted from the page, not promised."""

from __future__ import annotations

import re
import symtable

import nbformat
import pytest

from pe_course.page import claims
from tools import ROOT, outline

PATHS = {path.stem: path for path in outline.chapters()}
TITLE = re.compile(r"# (\d+)\. ")
BOXES = 3
BOOK = ROOT / "book"
MAGIC = re.compile(r"^(\s*)[%!].*$", re.MULTILINE)
LINK = re.compile(r"\[[Cc]hapter\s+(\d+)\]\((\d\d)_")


def source(name: str) -> str:
    """Return a chapter's Markdown, cell after cell."""
    cells = nbformat.read(PATHS[name], as_version=4).cells
    return "\n\n".join(cell.source for cell in cells if cell.cell_type == "markdown")


every_chapter = pytest.mark.parametrize("name", [name for name in PATHS if name != "00_intro"])


@every_chapter
def test_the_title_has_the_number_of_the_file(name):
    assert int(TITLE.match(source(name))[1]) == int(name[:2])


def test_chapters_are_numbered_in_order():
    numbers = [int(name[:2]) for name in PATHS if name != "00_intro"]
    assert numbers == list(range(1, len(numbers) + 1))


def test_links_say_the_chapter_they_lead_to():
    pages = [path for path in BOOK.glob("*.*") if path.suffix in (".md", ".ipynb")]
    links = [link for path in pages for link in LINK.findall(path.read_text(encoding="utf-8"))]
    assert len(links) > 100
    assert [link for link in links if int(link[0]) != int(link[1])] == []


@every_chapter
def test_minutes_are_those_of_the_page(name):
    counted = outline.outline(PATHS[name])
    assert counted.stated == counted.minutes


@every_chapter
def test_boxes_are_few_and_each_asks_or_links(name):
    shown = [claims.find(box) for box in outline.outline(PATHS[name]).boxes]
    assert len(shown) <= BOXES
    assert [claim.id for claim in shown if not (claim.question or claim.url)] == []


@every_chapter
def test_figures_are_numbered_in_order_and_named_rightly(name):
    numbers = outline.outline(PATHS[name]).numbers
    chapter = int(name[:2])
    assert list(numbers) == [f"{chapter}.{place}" for place in range(1, len(numbers) + 1)]
    named = re.findall(r"Figures? (\d+\.\d+)", source(name))
    assert {each for each in named if each.startswith(f"{chapter}.")} <= set(numbers)


@every_chapter
def test_every_question_at_the_end_has_its_answer(name):
    section = re.search(r"^## Questions$(.*?)(?=^## |\Z)", source(name), re.M | re.S)
    assert section, "a chapter ends with questions"
    parts = re.split(r"^<details>\n<summary>Answer.*?^</details>$", section[1], flags=re.M | re.S)
    assert len(parts) > 3  # three questions or more
    assert all(part.strip() for part in parts[:-1]) and not parts[-1].strip()


def read_inside(table: symtable.SymbolTable) -> set[str]:
    """Return the names of the notebook that a function, or a function in it, reads."""
    own = set(table.get_globals()) if isinstance(table, symtable.Function) else set()
    return own.union(*map(read_inside, table.get_children()))


def test_what_a_slider_is_drawn_from_is_not_made_anew_further_down():
    """A kernel draws it again whenever it is moved, also after the last cell."""
    changed, sliders = [], 0
    for path in outline.notebooks():
        cells = nbformat.read(path, as_version=4).cells
        code = [MAGIC.sub(r"\1pass", each.source) for each in cells if each.cell_type == "code"]
        tables = [symtable.symtable(source, path.name, "exec") for source in code]
        functions = {}
        for place, table in enumerate(tables):
            made = {each.get_name(): each for each in table.get_children()}
            functions |= made
            if "explore.slider" not in code[place]:
                continue
            sliders += 1
            named = [each for name, each in made.items() if not name.endswith(("comp", "expr"))]
            found, ask = set(), set().union(*map(read_inside, named))
            while ask:
                found |= ask
                ask = set().union(*(read_inside(functions[n]) for n in ask & functions.keys()))
                ask -= found
            later = {
                s.get_name() for t in tables[place + 1 :] for s in t.get_symbols() if is_made(s)
            }
            changed += [f"{path.stem}: {name}" for name in found & later]
    assert sliders > 15 and changed == []


def is_made(symbol: symtable.Symbol) -> bool:
    return symbol.is_assigned() or symbol.is_imported()
