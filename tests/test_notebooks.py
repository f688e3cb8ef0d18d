"""The stored notebooks: complete and quiet; nbval and its plugin compare what a run gives."""

from __future__ import annotations

import json
import re

import nbformat
import pytest
from mdit_py_plugins.anchors.index import slugify

from pe_course import practice
from tools import refresh

NOTEBOOKS = [path.stem for path in refresh.notebooks()]
EXERCISE = re.compile(r"^### Exercise (\S+): (.*)$", re.MULTILINE)
every_notebook = pytest.mark.parametrize("name", NOTEBOOKS)


def read(name: str):
    return nbformat.read(refresh.BOOK / f"{name}.ipynb", as_version=4)


def code_cells(name: str):
    return [cell for cell in read(name).cells if cell.cell_type == "code" and cell.source.strip()]


@every_notebook
def test_every_cell_was_run_in_order(name):
    counts = [cell.execution_count for cell in code_cells(name)]
    assert counts == list(range(1, len(counts) + 1))


@every_notebook
def test_no_output_warns_or_names_a_path_of_a_computer(name):
    assert list(refresh.complaints(read(name))) == []


@every_notebook
def test_no_output_shows_a_name_that_was_to_be_filled_in(name):
    for cell in code_cells(name):
        for output in cell.outputs:
            text = re.sub(r"\$[^$]*\$|`[^`]*`", "", output.get("data", {}).get("text/markdown", ""))
            assert not re.search(r"\{[a-z_]\w*\}", text), cell.id


@every_notebook
def test_every_stored_figure_says_what_it_shows(name):
    for cell in code_cells(name):
        for output in cell.outputs:
            if "image/png" in output.get("data", {}):
                assert len(output.metadata["image/png"]["alt"]) >= 30, cell.id


@every_notebook
def test_a_refresh_would_change_no_setting_of_the_notebook(name):
    path = refresh.BOOK / f"{name}.ipynb"
    stored = path.read_text(encoding="utf-8")
    notebook = refresh.with_install_cell(refresh.normalise(read(name)))
    before = nbformat.read(path, as_version=4)
    assert [cell.source for cell in before.cells] == [cell["source"] for cell in notebook["cells"]]
    assert nbformat.writes(refresh.normalise(before)) + "\n" == stored


@every_notebook
def test_exercises_are_numbered_and_solutions_stand_at_the_end_in_their_order(name):
    cells = read(name).cells
    whole = "\n\n".join(cell.source for cell in cells if cell.cell_type == "markdown")
    asked = EXERCISE.findall(whole)
    if not asked:
        assert "## Solutions" not in whole
        return
    page = "H" if name == "hierarchical" else str(int(name[:2]))
    first = 0 if name in practice.RUNGS else 1
    assert [each for each, _ in asked] == [f"{page}.{first + n}" for n in range(len(asked))]
    parts = re.split(r"^### Exercise .*$", whole.partition("\n## Exercises\n")[2], flags=re.M)
    for (number, title), part in zip(asked, parts[1:], strict=True):
        link = f"[Solution {number}](#{slugify(f'Solution {number}: {title}'.replace('`', ''))})"
        assert part.count("[Solution ") == part.count(link) == 1, number
    heading = next(cell for cell in cells if cell.source.startswith("## Solutions"))
    assert heading.source == "## Solutions"  # alone, so that JupyterLab folds all that follows
    assert heading.metadata == {"jp-MarkdownHeadingCollapsed": True}
    below = cells[cells.index(heading) + 1 :]
    texts = [cell.source for cell in below if cell.cell_type == "markdown"]
    answers = [text.split("\n")[0] for text in texts if text.startswith("#")]
    assert answers == [f"### Solution {number}: {title}" for number, title in asked]
    assert below[0].source.startswith("### ")


@every_notebook
def test_no_cell_hides_from_validation(name):
    for cell in code_cells(name):
        assert "NBVAL_" not in cell.source
        assert not {"nbval-ignore-output", "nbval-skip"} & set(cell.metadata.get("tags", []))


def test_each_notebook_runs_in_a_minute():
    seconds = json.loads(refresh.RUNTIMES.read_text(encoding="utf-8"))
    assert set(seconds) == set(NOTEBOOKS)
    assert max(seconds.values()) <= 60
