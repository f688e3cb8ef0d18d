"""Run the cells that read the course's data, as in a folder with one downloaded chapter.

Usage: python chapters_alone.py NOTEBOOK ...; prints how many ran of each. A cell is left out if it
trains, or needs a cell that does: the tests of the notebooks run it.
"""

from __future__ import annotations

import ast
import contextlib
import io
import json
import re
import sys
from pathlib import Path

READS = re.compile(
    r"\b(DATA|read_rows|shipped|found|load_\w+|quote|read|runs|trained|minilm|facts|show|table"
    r"|graded_set|find|invitation)\b(?=\(| /)"
)
TRAINS = re.compile(r"\b(train|trained_model|run_cell|accuracy|loss_of|diagnose|FlopCounterMode)\(")


def names(source: str) -> tuple[set[str], set[str]]:
    """Return the names that a cell uses, and those that it sets."""
    used, made = set[str](), set[str]()
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Name):
            (used if isinstance(node.ctx, ast.Load) else made).add(node.id)
        elif isinstance(node, ast.FunctionDef | ast.ClassDef):
            made.add(node.name)
        elif isinstance(node, ast.Import | ast.ImportFrom):
            made |= {(each.asname or each.name).split(".")[0] for each in node.names}
    return used, made


def cells_that_read(path: Path) -> list[str]:
    """Return the cells that read data and train nothing, each after those that it needs."""
    code = [c for c in json.loads(path.read_text("utf-8"))["cells"] if c["cell_type"] == "code"]
    right = [c for c in code[1:] if "raises-exception" not in c["metadata"].get("tags", [])]
    cells = ["".join(cell["source"]) for cell in right]  # without the one that installs the course
    parsed, kept = [names(cell) for cell in cells], set[int]()
    for i, cell in enumerate(cells):
        needed, waiting = {i}, [i]
        while READS.search(cell) and waiting:
            used = parsed[waiting.pop()][0]
            more = {j for j in range(i) if used & parsed[j][1]} - needed
            needed, waiting = needed | more, [*waiting, *more]
        if READS.search(cell) and not any(TRAINS.search(cells[j]) for j in needed):
            kept |= needed
    return [cells[i] for i in sorted(kept)]


def run(path: Path) -> int:
    """Run these cells, and return their number."""
    cells, book = cells_that_read(path), {"__name__": "__main__"}
    for cell in cells:
        with contextlib.redirect_stdout(io.StringIO()):
            exec(compile(cell, path.name, "exec"), book)
    return len(cells)


if __name__ == "__main__":
    print(json.dumps({path: run(Path(path)) for path in sys.argv[1:]}))
