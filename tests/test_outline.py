"""A chapter is what a chapter should be: counted from the page, not promised."""

from __future__ import annotations

import re

import nbformat
import pytest

from pages import claims
from tools import outline

PATHS = {path.stem: path for path in outline.chapters()}
TITLE = re.compile(r"# (\d+)\. ")
BOXES = 3


def source(name: str) -> str:
    """Return a chapter's Markdown, cell after cell."""
    cells = nbformat.read(PATHS[name], as_version=4).cells
    return "\n\n".join(cell.source for cell in cells if cell.cell_type == "markdown")


every_chapter = pytest.mark.parametrize("name", [name for name in PATHS if name != "00_intro"])


@every_chapter
def test_the_title_has_the_number_of_the_file(name):
    assert int(TITLE.match(source(name))[1]) == int(name[:2])


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
    parts = re.split(r"^`{3,}\{dropdown\} Answer.*?^`{3,}$", section[1], flags=re.M | re.S)
    assert len(parts) > 3  # three questions or more
    assert all(part.strip() for part in parts[:-1]) and not parts[-1].strip()


def cells(*sources: str, tags: tuple[str, ...] = ()) -> list[object]:
    made = [nbformat.v4.new_code_cell(text) for text in sources]
    for cell in made:
        cell.metadata["tags"] = list(tags)
    return made


def counted(tmp_path, made) -> outline.Outline:
    path = tmp_path / "18_spiral.ipynb"
    nbformat.write(nbformat.v4.new_notebook(cells=made), path)
    return outline.outline(path)


def test_folded_code_is_not_in_sight(tmp_path):
    found = counted(tmp_path, cells("a = 1", tags=("hide-input",)))
    assert found.code_lines == 0


def test_what_is_folded_or_an_exercise_costs_no_reading(tmp_path):
    markdown = nbformat.v4.new_markdown_cell
    text = "one two\n\n```{dropdown} Answer\nthree\n```\n\n$$four$$\n\n"
    exercises = "## Exercises\n\n*Easy, 5 minutes.* five"
    found = counted(tmp_path, [markdown(text + exercises)])
    assert (found.words, found.exercise_minutes, found.minutes) == (2, 5, (5, 10))


def test_the_words_that_a_run_writes_are_read(tmp_path):
    (cell,) = cells("say('x')")
    data = {"text/markdown": "five words of a sentence"}
    cell.outputs = [nbformat.v4.new_output("display_data", data=data)]
    assert counted(tmp_path, [cell]).words == 5


def test_boxes_and_figures_are_found_by_their_calls(tmp_path):
    text = (
        "figures.show(figure, number='18.1', alt='a')\n"
        "claims.show('x', holds=True, measured='m')\nexplore.slider('k', [1], f, alt=g)"
    )
    found = counted(tmp_path, cells(text))
    assert (found.numbers, found.boxes) == (("18.1", ""), ("x",))


def test_the_table_of_counts_has_a_row_for_each_chapter_and_one_for_all():
    lines = outline.text().splitlines()
    assert [line.split()[0] for line in lines] == ["chapter", *PATHS, "all"]
