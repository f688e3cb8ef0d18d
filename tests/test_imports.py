"""Who imports whom: rows are read without PyTorch, and imports run one way."""

from __future__ import annotations

import ast
import re
import subprocess
import sys
from graphlib import TopologicalSorter
from itertools import pairwise
from pathlib import Path

import nbformat
import pytest

from tools import ROOT

OF_ROWS = ("rows", "grid", "protocol", "rules", "gates")
READERS = (*(f"bakeoff.{name}" for name in OF_ROWS), "page.sentences")
# Each may import those before it.
FLOORS = ("pe_course", "pe_course.bakeoff", "pe_course.page")


@pytest.mark.parametrize("reader", READERS)
def test_what_reads_rows_loads_neither_pytorch_nor_matplotlib(reader: str) -> None:
    heavy = "{'matplotlib', 'torch'} & {*sys.modules}"
    code = f"import sys, pe_course.{reader}; print({heavy} or 'light')"
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


def test_imports_run_one_way() -> None:
    paths = {
        ".".join(path.relative_to(ROOT).with_suffix("").parts).removesuffix(".__init__"): path
        for path in (ROOT / "pe_course").rglob("*.py")
    }
    arrows = {name: imported(path, {*paths}) for name, path in paths.items()}
    assert "pe_course.page.sentences" in arrows["pe_course.page.claims"]
    TopologicalSorter(arrows).prepare()  # raises a CycleError that names the circle
    for name, targets in arrows.items():
        floor = max(i for i, package in enumerate(FLOORS) if f"{name}.".startswith(f"{package}."))
        above = tuple(f"{package}." for package in FLOORS[floor + 1 :])
        assert not [target for target in targets if f"{target}.".startswith(above)], name


IN_THE_LIBRARY = re.compile(r"^In the library: `(from [\w.]+ import [\w, ]+)`(?: \(.*\))?\.$", re.M)


def test_what_a_chapter_says_to_import_is_public_and_stands_below_code() -> None:
    found = []
    for path in (ROOT / "book").glob("*.ipynb"):
        cells = nbformat.read(path, as_version=4).cells
        for above, cell in pairwise(cells):
            said = IN_THE_LIBRARY.findall(cell.source)
            assert len(said) == cell.source.count("In the library: "), cell.source
            if said:
                assert above.cell_type == "code" and cell.source.startswith("In the library: ")
                found += said
    assert len(found) >= 12
    for statement in found:
        brought: dict[str, object] = {}
        exec(statement, brought)
        names = statement.partition(" import ")[2].split(", ")
        assert all(callable(brought[name]) and brought[name].__doc__ for name in names), statement
        assert not [name for name in names if name.startswith("_")]
