"""Execute notebooks of the book in place, so that a second run changes no byte.

Usage: python -m tools.refresh [NAME ...]

NAME is a notebook of book/: attention, or 01_attention; without one, all are executed. Cell ids
stay, timings go, and the ids of widget models are renamed in a fixed order. What warns, fails or
prints a path of this computer is not stored.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import nbformat
from nbclient import NotebookClient
from nbclient.exceptions import CellControlSignal

from tools import ROOT, environment

BOOK = ROOT / "book"
RUNTIMES = BOOK / "data" / "runtimes.json"
CELL_TIMEOUT = 600
KERNELSPEC = {"display_name": "Python 3 (ipykernel)", "language": "python", "name": "python3"}
WIDGETS = "application/vnd.jupyter.widget-state+json"
WIDGET_VIEW = "application/vnd.jupyter.widget-view+json"
FOLDED = {"hide-input", "remove-input", "hide-cell", "remove-cell"}  # tags of such cells
# The first cell of a notebook, hidden on the page: it installs the course where that is missing.
INSTALL_ID = "install"
INSTALL = """# Does nothing where the course is installed. Elsewhere, as in Colab, pip brings it.
import importlib.util
import sys

if importlib.util.find_spec("pe_course") is None:
    archive = "https://github.com/positional-encodings/course/archive/refs/heads/main.zip"
    options = "--no-deps" if "google.colab" in sys.modules else ""  # Colab has the rest
    %pip install --quiet {options} "pe-lib[course] @ {archive}"
    importlib.invalidate_caches()
    if importlib.util.find_spec("pe_course") is None:
        raise SystemExit("The course was not installed. Go online, then run this cell again.")"""

Notebook = dict[str, Any]


def notebooks(names: list[str] | None = None) -> list[Path]:
    """Return the book's notebooks, all of them or those named; a chapter's number is not needed."""
    here = {path.stem: path for path in sorted(BOOK.glob("*.ipynb"))}
    if not names:
        return list(here.values())
    known = {re.sub(r"^\d\d_", "", name): path for name, path in here.items()} | here
    missing = [f"{Path(name).stem}.ipynb" for name in names if Path(name).stem not in known]
    if missing:
        raise SystemExit(
            f"no such notebook in book/: {', '.join(missing)}. There are: {', '.join(here)}"
        )
    return [known[Path(name).stem] for name in names]


def with_install_cell(notebook: Notebook) -> Notebook:
    """Put the cell that installs the course before the first cell of code, once and up to date."""
    cells = [cell for cell in notebook["cells"] if cell.get("id") != INSTALL_ID]
    setup = nbformat.v4.new_code_cell(INSTALL, id=INSTALL_ID, metadata={"tags": ["remove-cell"]})
    first = next((i for i, cell in enumerate(cells) if cell["cell_type"] == "code"), None)
    if first is not None:
        cells.insert(first, setup)
    notebook["cells"] = cells
    return notebook


def execute(path: Path) -> Notebook:
    """Run a notebook in a fresh kernel and return it normalised."""
    notebook = with_install_cell(nbformat.read(path, as_version=4))
    for cell in notebook.cells:
        if cell.cell_type == "code":
            cell.outputs, cell.execution_count = [], None
    client = NotebookClient(
        notebook,
        kernel_name="python3",
        timeout=CELL_TIMEOUT,
        record_timing=False,
        coalesce_streams=True,
        store_widget_state=True,
        extra_arguments=["--log-level=ERROR"],
        resources={"metadata": {"path": str(path.parent)}},
    )
    notebook.metadata.pop("widgets", None)
    client.execute()
    return normalise(notebook)


def is_live(output: Any) -> bool:
    """Return whether an output is a figure of pe_course/page/live.py."""
    return "figure" in output.get("metadata", {}).get("image/png", {})


def drop_live_widgets(notebook: Notebook) -> None:
    """Leave of a figure that computes its picture and its state, and no copy of its script."""
    for cell in notebook["cells"]:
        for output in filter(is_live, cell.get("outputs", [])):
            output["data"].pop(WIDGET_VIEW, None)
    kept = notebook["metadata"].get("widgets", {}).get(WIDGETS, {})
    models = kept.get("state", {})
    live = [name for name, each in models.items() if each["model_module"] == "anywidget"]
    for name in live:
        layout = models.pop(name)["state"].get("layout", "").removeprefix("IPY_MODEL_")
        models.pop(layout, None)
    if kept and not models:
        del notebook["metadata"]["widgets"]


def normalise(notebook: Notebook) -> Notebook:
    """Drop what differs from run to run; fold in JupyterLab what the site folds.

    Timings, versions and the ids of widget models differ.
    """
    kept = notebook["metadata"]
    kept["kernelspec"] = dict(KERNELSPEC)
    kept["language_info"] = {"name": "python"}
    drop_live_widgets(notebook)
    for cell in notebook["cells"]:
        cell["metadata"].pop("execution", None)
        if FOLDED & set(cell["metadata"].get("tags", [])):
            cell["metadata"]["jupyter"] = {"source_hidden": True}
        else:
            cell["metadata"].pop("jupyter", None)
    models = kept.get("widgets", {}).get(WIDGETS, {}).get("state", {})
    text = nbformat.writes(notebook)
    if models:
        new = {old: f"{number:032x}" for number, old in enumerate(models, start=1)}
        pattern = re.compile("|".join(map(re.escape, new)))
        text = pattern.sub(lambda match: new[match.group()], text)
    return nbformat.reads(text, as_version=4)


def complaints(notebook: Notebook) -> Iterator[str]:
    """Yield what must not be stored: warnings, errors, and paths of this computer."""
    for index, cell in enumerate(notebook["cells"]):
        tags = cell["metadata"].get("tags", [])
        for output in cell.get("outputs", []):
            if output["output_type"] == "stream" and output["name"] == "stderr":
                yield f"cell {index} ({cell['id']}) warns: {output['text'].strip()[:200]}"
            if output["output_type"] == "error" and "raises-exception" not in tags:
                yield f"cell {index} ({cell['id']}) raises {output['ename']}: {output['evalue']}"
            if str(ROOT) in json.dumps(output, ensure_ascii=False):
                yield f"cell {index} ({cell['id']}) prints a path of this computer"


def refresh(path: Path) -> list[str]:
    """Execute a notebook in place, and record its processor seconds if it changed.

    Returns:
        Why it was not stored, if it was not.
    """
    before, busy = path.read_text(encoding="utf-8"), os.times()
    fresh = execute(path)
    now = os.times()  # processor seconds do not grow when the machine has other work
    seconds = sum(now[2:4]) - sum(busy[2:4])  # of the kernel, which has ended
    found = list(complaints(fresh))
    if not path.exists() or path.read_text(encoding="utf-8") != before:
        found.append("it was changed while it ran, and stays as it is now: refresh it again")
    after = nbformat.writes(fresh) + "\n"
    known = json.loads(RUNTIMES.read_text()) if RUNTIMES.exists() else {}
    if not found and (after != before or path.stem not in known):
        path.write_text(after, encoding="utf-8")
        RUNTIMES.parent.mkdir(exist_ok=True)
        known[path.stem] = round(seconds, 1)
        here = sorted(known.keys() & {each.stem for each in notebooks()})
        RUNTIMES.write_text(json.dumps({name: known[name] for name in here}, indent=1) + "\n")
    return found


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("names", nargs="*", metavar="NAME", help="notebooks, e.g. attention")
    options = parser.parse_args(arguments)
    environment.apply()  # for the kernels
    failed = []
    for path in notebooks(options.names):
        try:
            found = refresh(path)
        except (CellControlSignal, RuntimeError) as error:  # of a cell, or of its kernel
            found = [f"stopped: {type(error).__name__}: {error}"]
        failed += [path.stem] * bool(found)
        print(f"{path.stem}: {'FAILED' if found else 'ok'}", *found, sep="\n    ", flush=True)
    if failed:
        print(f"not stored: {', '.join(failed)}")
    return int(bool(failed))


if __name__ == "__main__":
    sys.exit(main())
