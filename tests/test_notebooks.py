"""The stored notebooks: complete and quiet; nbval and its plugin compare what a run gives."""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import nbformat
import nbval.kernel
import pytest

from tools import nbval_whole, refresh

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


def test_each_notebook_runs_in_a_minute_and_all_in_eight_on_two_processors():
    seconds = json.loads(refresh.RUNTIMES.read_text(encoding="utf-8"))
    assert set(seconds) == set(NOTEBOOKS)
    assert max(seconds.values()) <= 60
    assert sum(seconds.values()) <= 2 * 8 * 60


SEEN = """
import json, os, sys, matplotlib, torch
kept = {key: value for key, value in os.environ.items() if not key.startswith("JPY_")}
kept.pop("LINES", None), kept.pop("COLUMNS", None)
print(json.dumps([sys.path, os.getcwd(), kept, sys.argv[1:2], matplotlib.get_backend(),
    torch.get_num_threads(), sorted(n for n in globals() if n[0] != "_"), torch.initial_seed()]))
"""


def seen_by(start: Callable[..., tuple[Any, Any]], folder: Path) -> list[Any]:
    """Return what a kernel sees of the world when it starts."""
    manager, client = start(startup_timeout=300, cwd=str(folder))
    try:
        told: list[str] = []
        client.execute_interactive(
            SEEN, output_hook=lambda m: told.append(m["content"].get("text", "")), timeout=300
        )
    finally:
        client.stop_channels()
        manager.shutdown_kernel(now=True)
    seen: list[Any] = json.loads("".join(told))
    return seen


@pytest.mark.skipif(sys.platform != "linux", reason="kernels are forked on Linux alone")
def test_a_forked_kernel_sees_what_any_kernel_sees(tmp_path: Path) -> None:
    import setuptools  # noqa: F401, it adds a folder to sys.path

    forked, plain = nbval.kernel.start_new_kernel, nbval_whole.start_new_kernel
    assert forked is not plain
    *seen, seed = seen_by(forked, tmp_path)
    *expected, other_seed = seen_by(plain, tmp_path)
    assert seen == expected
    assert len({seed, other_seed, seen_by(forked, tmp_path)[-1]}) == 3  # nobody has set it
