"""Who imports whom: rows are read without PyTorch, and no import goes round in a circle."""

from __future__ import annotations

import ast
import subprocess
import sys
from graphlib import TopologicalSorter
from pathlib import Path

import pytest

from tools import ROOT

PACKAGES = ("bakeoff", "lab", "pages")
READERS = ("rows", "grid", "protocol", "rules", "gates", "sentences")


@pytest.mark.parametrize("reader", READERS)
def test_what_reads_rows_loads_neither_pytorch_nor_matplotlib(reader: str) -> None:
    heavy = "{'matplotlib', 'torch'} & {*sys.modules}"
    code = f"import sys, bakeoff.{reader}; print({heavy} or 'light')"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, cwd=ROOT)
    assert done.stdout == "light\n", done.stdout + done.stderr


def imported(path: Path, modules: set[str]) -> set[str]:
    """Return which of some modules a file imports, at its head or inside a function."""
    found: set[str] = set()
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{path} imports relatively"
            found |= {f"{node.module}.{alias.name}" for alias in node.names} | {str(node.module)}
    return found & modules


def test_no_import_goes_round_in_a_circle() -> None:
    paths = {
        f"{package}.{path.stem}": path
        for package in PACKAGES
        for path in (ROOT / package).glob("*.py")
        if path.stem != "__init__"
    }
    arrows = {name: imported(path, {*paths}) for name, path in paths.items()}
    assert arrows["bakeoff.rows"] and arrows["pages.claims"] >= {"bakeoff.sentences"}
    TopologicalSorter(arrows).prepare()  # raises a CycleError that names the circle
