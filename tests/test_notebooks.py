"""The stored notebooks: complete and quiet; nbval and its plugin compare what a run gives."""

from __future__ import annotations

import json
import re

import nbformat
import pytest

from tools import refresh

NOTEBOOKS = [path.stem for path in refresh.notebooks()]
STARTS_ANEW = re.compile(r"^#+ |\{exercise", re.MULTILINE)  # a heading, or the next exercise
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
def test_every_stored_figure_says_what_it_shows(name):
    for cell in code_cells(name):
        for output in cell.outputs:
            if "image/png" in output.get("data", {}):
                assert len(output.metadata["image/png"]["alt"]) >= 30, cell.id


@every_notebook
def test_a_refresh_would_change_no_setting_of_the_notebook(name):
    path = refresh.BOOK / f"{name}.ipynb"
    stored = path.read_text(encoding="utf-8")
    notebook = refresh.with_colab_cell(refresh.normalise(read(name)))
    before = nbformat.read(path, as_version=4)
    assert [cell.source for cell in before.cells] == [cell["source"] for cell in notebook["cells"]]
    assert nbformat.writes(refresh.normalise(before)) + "\n" == stored


@every_notebook
def test_what_a_folded_solution_runs_is_folded_with_it(name):
    opened = follows = False  # between the gates of a solution; below one without gates
    for cell in read(name).cells:
        if "graded_set(" in cell.source:  # the invitation below the exercises
            follows = False
        if cell.cell_type == "code":
            assert opened or not follows or "hide-cell" in cell.metadata.get("tags", []), cell.id
            continue
        for gate in re.findall(r"\{solution-(start|end)\}", cell.source):
            assert opened == (gate == "end"), cell.id
            opened = gate == "start"
        _, below, rest = cell.source.rpartition("{solution} ")
        follows = (follows or bool(below)) and not STARTS_ANEW.search(rest)
    assert not opened


@every_notebook
def test_no_cell_hides_from_validation(name):
    for cell in code_cells(name):
        assert "NBVAL_" not in cell.source
        assert not {"nbval-ignore-output", "nbval-skip"} & set(cell.metadata.get("tags", []))


def test_each_notebook_runs_in_a_minute():
    seconds = json.loads(refresh.RUNTIMES.read_text(encoding="utf-8"))
    assert set(seconds) == set(NOTEBOOKS)
    assert max(seconds.values()) <= 60
