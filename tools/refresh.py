"""Execute the book's notebooks so that a second run changes no byte.

Usage: python -m tools.refresh [--check] [--isa ISA] [NAME ...]

A plain run executes each notebook in place, without timings, with its cell ids kept and the ids of
widget models renamed in a fixed order. `--check` executes in memory and compares everything that
is stored, pictures included, with what the run gave. NAME is a notebook of book/ (attention or
01_attention), ISA an instruction set of tools/environment.py.
"""

from __future__ import annotations

import argparse
import base64
import io
import json
import os
import re
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import nbformat
import numpy as np
from nbclient import NotebookClient
from nbclient.exceptions import CellControlSignal
from PIL import Image

from tools import ROOT, environment

BOOK = ROOT / "book"
RUNTIMES = BOOK / "data" / "runtimes.json"
CELL_TIMEOUT = 600
KERNELSPEC = {"display_name": "Python 3 (ipykernel)", "language": "python", "name": "python3"}
WIDGETS = "application/vnd.jupyter.widget-state+json"
WIDGET_VIEW = "application/vnd.jupyter.widget-view+json"
FRAME = re.compile(r"data:image/png;base64,([A-Za-z0-9+/=]+)")  # a frame inside an HTML widget
FOLDED = {"hide-input", "remove-input", "hide-cell", "remove-cell"}  # tags of such cells
# A pixel differs when a channel is off by more than LEVELS; a picture when SHARE of them are.
LEVELS = 32
SHARE = 0.002

# Colab opens a notebook alone; this cell, hidden on the page, brings the library and the data. The
# build puts the address in (tools/address.py).
COLAB_ID = "colab"
COLAB = """import sys

if "google.colab" in sys.modules:
    repository = "@REPOSITORY@"
    if not repository.startswith("http"):
        raise RuntimeError("Open this notebook from the course's site: this copy has no library.")
    !git clone --quiet --depth 1 {repository} /content/course
    sys.path.insert(0, "/content/course")
    %cd -q /content/course/book"""

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


def with_colab_cell(notebook: Notebook) -> Notebook:
    """Put the cell for Colab before the first cell of code, once and up to date."""
    cells = [cell for cell in notebook["cells"] if cell.get("id") != COLAB_ID]
    setup = nbformat.v4.new_code_cell(COLAB, id=COLAB_ID, metadata={"tags": ["remove-cell"]})
    first = next((i for i, cell in enumerate(cells) if cell["cell_type"] == "code"), None)
    if first is not None:
        cells.insert(first, setup)
    notebook["cells"] = cells
    return notebook


def execute(path: Path) -> Notebook:
    """Run a notebook in a fresh kernel and return it normalised."""
    notebook = with_colab_cell(nbformat.read(path, as_version=4))
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
    """Return whether an output is a figure of pages/live.py."""
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


def same_picture(stored: str, fresh: str) -> str | None:
    """Compare two base64 pictures; return None when they agree, else how far they are apart."""
    if stored.strip() == fresh.strip():
        return None
    left, right = (
        np.asarray(Image.open(io.BytesIO(base64.b64decode(data))).convert("RGBA"), dtype=np.int16)
        for data in (stored, fresh)
    )
    if left.shape != right.shape:
        return f"size {left.shape[1]}x{left.shape[0]} became {right.shape[1]}x{right.shape[0]}"
    share = float((np.abs(left - right).max(axis=-1) > LEVELS).mean())
    return f"{share:.2%} of the pixels differ" if share > SHARE else None


def _text(value: Any) -> str:
    return "".join(value) if isinstance(value, list) else str(value)


def output_differences(stored: list[Any], fresh: list[Any]) -> Iterator[str]:
    """Yield the differences between the outputs of one cell."""
    if len(stored) != len(fresh):
        yield f"{len(stored)} outputs became {len(fresh)}"
        return
    for old, new in zip(stored, fresh, strict=True):
        if old["output_type"] != new["output_type"]:
            yield f"{old['output_type']} became {new['output_type']}"
        elif old["output_type"] == "stream":
            if old["text"] != new["text"]:
                yield f"{old['text'].strip()[:200]!r} became {new['text'].strip()[:200]!r}"
        elif old["output_type"] == "error":
            if (old["ename"], old["evalue"]) != (new["ename"], new["evalue"]):
                yield f"{old['ename']}: {old['evalue']} became {new['ename']}: {new['evalue']}"
        else:
            yield from data_differences(old, new)


def data_differences(old: Any, new: Any) -> Iterator[str]:
    """Yield the differences between two display outputs, pictures by their pixels."""
    if old.get("metadata", {}) != new.get("metadata", {}):
        yield f"metadata {old['metadata']} became {new['metadata']}"
    if set(old["data"]) != set(new["data"]):
        yield f"types {sorted(old['data'])} became {sorted(new['data'])}"
        return
    for mime, value in old["data"].items():
        if mime == "image/png":
            if difference := same_picture(_text(value), _text(new["data"][mime])):
                yield f"picture: {difference}"
        elif _text(value) != _text(new["data"][mime]):
            yield f"{mime}: {_text(value)[:200]!r} became {_text(new['data'][mime])[:200]!r}"


def widget_differences(stored: Notebook, fresh: Notebook) -> Iterator[str]:
    """Yield the differences between stored widgets, frames compared by their pixels."""
    old, new = (
        notebook["metadata"].get("widgets", {}).get(WIDGETS, {}).get("state", {})
        for notebook in (stored, fresh)
    )
    if set(old) != set(new):
        yield f"{len(old)} widget models became {len(new)}"
        return
    for name, model in old.items():
        other = new[name]
        states = [json.dumps(each["state"], sort_keys=True) for each in (model, other)]
        if FRAME.sub("", states[0]) != FRAME.sub("", states[1]):
            yield f"{model['model_name']} {name[-4:]}: its state differs"
        for left, right in zip(*(FRAME.findall(state) for state in states), strict=False):
            if difference := same_picture(left, right):
                yield f"{model['model_name']} {name[-4:]}: {difference}"
        if model.get("buffers", []) != other.get("buffers", []):
            yield f"{model['model_name']} {name[-4:]}: its binary data differ"


def differences(stored: Notebook, fresh: Notebook) -> Iterator[str]:
    """Yield, cell by cell, what a run gave that is not what is stored."""
    if [cell["id"] for cell in stored["cells"]] != [cell["id"] for cell in fresh["cells"]]:
        yield "its cells are not those that a refresh stores; run make refresh"
        return
    for index, (old, new) in enumerate(zip(stored["cells"], fresh["cells"], strict=True)):
        for difference in output_differences(old.get("outputs", []), new.get("outputs", [])):
            yield f"cell {index} ({old['id']}): {difference}"
    yield from widget_differences(stored, fresh)


def record_seconds(name: str, seconds: float) -> None:
    """Store the seconds of a notebook; called only when its content changed.

    What is known of a notebook that was renamed or removed is forgotten.
    """
    known = json.loads(RUNTIMES.read_text()) if RUNTIMES.exists() else {}
    here = {path.stem for path in notebooks()}
    runtimes = {stem: value for stem, value in known.items() if stem in here}
    runtimes[name] = round(seconds, 1)
    RUNTIMES.parent.mkdir(exist_ok=True)
    RUNTIMES.write_text(json.dumps(dict(sorted(runtimes.items())), indent=1) + "\n")


def busy() -> float:
    """Return the processor seconds of the kernels that have ended.

    Unlike seconds by the clock they do not grow when the machine has other work.
    """
    times = os.times()
    return times.children_user + times.children_system


def refresh(path: Path) -> tuple[list[str], float]:
    """Execute a notebook in place; return why it was not stored, and its processor seconds."""
    before = path.read_text(encoding="utf-8")
    start = busy()
    fresh = execute(path)
    seconds = busy() - start
    after = nbformat.writes(fresh) + "\n"
    found = list(complaints(fresh))
    if not path.exists() or path.read_text(encoding="utf-8") != before:
        found.append("it was changed while it ran, and stays as it is now: refresh it again")
    if found:
        return found, seconds
    known = json.loads(RUNTIMES.read_text()) if RUNTIMES.exists() else {}
    if after != before:
        path.write_text(after, encoding="utf-8")
    if after != before or path.stem not in known:
        record_seconds(path.stem, seconds)
    return [], seconds


def check(path: Path) -> tuple[list[str], float]:
    """Execute a notebook in memory; return what differs from the file, and processor seconds."""
    stored = nbformat.read(path, as_version=4)
    start = busy()
    fresh = execute(path)
    seconds = busy() - start
    return [*complaints(fresh), *differences(stored, fresh)], seconds


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("names", nargs="*", metavar="NAME", help="notebooks, e.g. attention")
    parser.add_argument("--check", action="store_true", help="compare, change nothing")
    parser.add_argument("--isa", help=f"{', '.join(environment.INSTRUCTION_SETS)}")
    options = parser.parse_args(arguments)
    environment.apply(options.isa)  # for the kernels
    failed = []
    for path in notebooks(options.names):
        try:
            found, seconds = (check if options.check else refresh)(path)
        except (CellControlSignal, RuntimeError) as error:  # of a cell, or of its kernel
            found, seconds = [f"stopped: {type(error).__name__}: {error}"], 0.0
        if found:
            failed.append(path.stem)
        print(f"{path.stem:24s} {seconds:6.1f} s  {'FAILED' if found else 'ok'}", flush=True)
        for line in found:
            print(f"    {line}", flush=True)
    if failed:
        state = "not as stored" if options.check else "not stored"
        print(f"{state}: {', '.join(failed)}", flush=True)
    return int(bool(failed))


if __name__ == "__main__":
    sys.exit(main())
