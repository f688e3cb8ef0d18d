"""Bring the exercises that open in their page: a Python for the browser, the checks, their draws.

The checks are those of the notebooks, as they are; what they take from pe_lib is its formulas,
without the questions at the door. Pyodide and the editor come from npm, as the lock file of
exercises/in_page pins them. Only the draws of the self-check go along: the grader has others.
"""

from __future__ import annotations

import ast
import base64
import functools
import json
import re
import shutil
import subprocess
import zipfile
from html import escape
from pathlib import Path
from typing import Any

import torch

from exercises import build, sets
from exercises.checks import EXERCISES, SETS
from pe_course.judge.exercise import Draw
from pe_course.sets import describe
from tools import ROOT, folded
from tools.vendor import VendorError

SOURCE = ROOT / "exercises" / "in_page"
WORKSHOP = ROOT / "_build" / "practice"  # where npm puts what it brings
PACKAGES = WORKSHOP / "node_modules"
FOLDER = "_static/practice"  # of the site
PYODIDE = ("pyodide.mjs", "pyodide.asm.mjs", "pyodide.asm.wasm", "python_stdlib.zip",
           "pyodide-lock.json")  # fmt: skip
OPEN = (
    "scale_of", "causal_output", "positions_of", "rows_used", "untied", "clip_of", "least_memory",
    "extend_memory", "edges_of", "distances_behind", "slopes_of", "converted",
    "trained_for", "what_it_reads", "place_share", "schedule_of", "recached", "layer_kinds",
    "box_of", "nearest_cross", "images_of", "sinks_of", "gates_of", "cache_bytes",
    "base_for", "first_stale", "window_starts", "telling_calls", "choose",
)  # fmt: skip
# Parts of Python's own library, a third of it, that nobody asks for in an exercise.
UNUSED = re.compile(
    r"(_pyrepl|curses|dbm|ensurepip|idlelib|multiprocessing|pydoc_data|sqlite3|tkinter|unittest"
    r"|venv|wsgiref|xml|xmlrpc|zoneinfo)/|(doctest|ftplib|imaplib|mailbox|optparse|pdb|pickletools"
    r"|pydoc|smtplib|tarfile|turtle|webbrowser|_pydatetime|_pydecimal|_pyio|_strptime)\.py$"
    r"|encodings/(?!__init__|aliases|ascii|cp437|idna|latin_1|utf_8)"
)
# The modules of the checks' own surroundings, and the functions taken from each.
TAKEN = json.loads(Path(__file__).with_name("taken.json").read_text(encoding="utf-8"))
HEAD = """from __future__ import annotations
import array
import math
from collections.abc import Sequence
import numpy as np
import torch
from torch import Tensor
"""


def taken(path: str, names: tuple[str, ...]) -> str:
    """Return the source of a module's functions, without their decorators, and its constants."""
    text = (ROOT / path).read_text(encoding="utf-8")
    parts = [HEAD]
    for node in ast.parse(text).body:
        if isinstance(node, ast.FunctionDef) and node.name in names:
            node.decorator_list = []
            parts.append(ast.unparse(node))
        elif isinstance(node, ast.ImportFrom) and (node.module or "").startswith("pe_lib."):
            known = [each.name for each in node.names if each.name in names_of(node.module)]
            if known:
                parts.insert(1, f"from {node.module} import {', '.join(known)}")
        elif isinstance(node, ast.Assign) and ast.unparse(node.targets[0]) == "UNCONVERTED":
            parts.append(ast.unparse(node))
    return "\n".join(parts) + "\n"


def names_of(module: str | None) -> tuple[str, ...]:
    return TAKEN.get(f"{(module or '').replace('.', '/')}.py", ())


def stored(value: Any) -> Any:
    """Return an argument of a check as JSON has it."""
    if isinstance(value, tuple):
        return {"tuple": list(map(stored, value))}
    if not isinstance(value, torch.Tensor):
        return value
    flat = value.contiguous().flatten()
    data = flat.numpy().tobytes()
    kind = str(value.dtype).removeprefix("torch.")
    return {"dtype": kind, "shape": list(value.shape), "data": base64.b64encode(data).decode()}


def set_of(name: str) -> str:
    return next(one for one, group in SETS.items() if any(each.name == name for each in group))


@functools.cache
def asked(name: str) -> dict[str, str]:
    """Return an exercise's title, its text, the code that is given, and the cell of the answer."""
    cells = json.loads(sets.release_path(set_of(name)).read_text(encoding="utf-8"))["cells"]
    ids = [sets.nbgrader_metadata(cell).get("grade_id") for cell in cells]
    end = ids.index(name)
    start = ids.index(f"ask_{name}")
    title, _, first = sets.source_text(cells[start]).partition("\n")
    parts, given = [first], []
    for cell in cells[start + 1 : end]:
        source = sets.source_text(cell)
        is_code = cell["cell_type"] == "code"
        given += [source] * is_code
        parts.append(f"```python\n{source}\n```" if is_code else source)
    text = re.sub(r"\n\nBelow the check, a cell draws .*", "", "\n\n".join(parts))  # it is not here
    return {
        "title": title.removeprefix("## "), "text": text,
        "given": "\n\n".join(given), "start": sets.source_text(cells[end]),
    }  # fmt: skip


def exercise(name: str) -> dict[str, Any]:
    """Return what the page needs to check an exercise."""
    cases = EXERCISES[name].cases(Draw(0))
    return {
        "module": f"ch{set_of(name)}",
        "given": asked(name)["given"],
        "cases": [[case.in_full().label, [stored(each) for each in case.args], case.tolerance]
                  for case in cases],
    }  # fmt: skip


def files() -> dict[str, bytes]:
    """Return what Python in the page imports."""
    known = {
        "torch": [name for name in dir(torch) if not name.startswith("_")],
        "Tensor": [name for name in dir(torch.Tensor) if not name.startswith("_")],
    }
    modules = [f"exercises/checks/ch{one}.py" for one in sorted(map(set_of, OPEN))]
    modules += ["pe_course/judge/exercise.py", "pe_course/judge/compare.py"]
    texts = {name: (ROOT / name).read_text() for name in modules}
    texts |= {path: taken(path, names) for path, names in TAKEN.items()}
    texts |= {f"{name}.py": (SOURCE / f"{name}.py").read_text()
              for name in ("torch", "numpy", "runner")}  # fmt: skip
    packages = ("exercises", "exercises/checks", "pe_course", "pe_course/judge", "pe_lib")
    texts |= {f"{name}/__init__.py": "" for name in (*packages, "pe_lib/recent")}
    texts["known.json"] = json.dumps(known)
    return {name: text.encode() for name, text in texts.items()}


def run(*command: str | Path) -> None:
    try:
        done = subprocess.run([str(part) for part in command], cwd=WORKSHOP, capture_output=True,
                              text=True, timeout=300)  # fmt: skip
    except subprocess.TimeoutExpired:
        raise VendorError(f"{Path(command[0]).name} did not answer in time") from None
    if done.returncode:
        raise VendorError(f"{Path(command[0]).name} failed: {done.stderr.strip()[-300:]}")


def bring() -> None:
    """Have npm bring Pyodide and the editor, and bundle what the page loads.

    Raises:
        VendorError: if npm is missing, or does not bring them.
    """
    npm = shutil.which("npm")
    if npm is None:
        raise VendorError("npm is not installed")
    WORKSHOP.mkdir(parents=True, exist_ok=True)
    lock, stamp = SOURCE / "package-lock.json", PACKAGES / "lock"
    if not stamp.exists() or stamp.read_bytes() != lock.read_bytes():
        for name in ("package.json", lock.name):
            shutil.copy(SOURCE / name, WORKSHOP)
        run(npm, "ci", "--silent", "--no-audit", "--no-fund", f"--cache={WORKSHOP / 'cache'}")
        shutil.copy(lock, stamp)
    shutil.copy(SOURCE / "page.js", WORKSHOP)
    options = ["--bundle", "--minify", "--format=esm", "--target=es2022", "--charset=utf8"]
    run(PACKAGES / ".bin" / "esbuild", "page.js", *options, "--outdir=made", "--legal-comments=eof")


@functools.cache
def possible() -> str:
    """Return nothing if exercises can open in their page, else why not."""
    try:
        bring()
    except (VendorError, OSError) as error:
        return str(error)
    return ""


@functools.cache
def library() -> bytes:
    """Return Python's own library, without what nobody asks for."""
    with zipfile.ZipFile(PACKAGES / "pyodide" / "python_stdlib.zip") as whole:
        kept = {name: whole.read(name) for name in whole.namelist() if not UNUSED.match(name)}
    return build.packed(kept, zipfile.ZIP_DEFLATED)


def write(folder: Path) -> None:
    """Write what the page loads when an exercise is opened."""
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    for name in PYODIDE:
        shutil.copy(PACKAGES / "pyodide" / name, folder)
    (folder / "python_stdlib.zip").write_bytes(library())
    shutil.copy(WORKSHOP / "made" / "page.js", folder)
    for name in ("worker.js", "page.css"):
        shutil.copy(SOURCE / name, folder)
    (folder / "checks.zip").write_bytes(build.packed(files(), zipfile.ZIP_DEFLATED))
    for name in OPEN:
        (folder / f"{name}.json").write_text(json.dumps(exercise(name)))


def size() -> int:
    """Return how many bytes come, unpacked, before Python starts: the length of the bar."""
    rest = ("pyodide.asm.wasm", "pyodide-lock.json")
    return len(library()) + sum((PACKAGES / "pyodide" / name).stat().st_size for name in rest)


def place(name: str) -> str:
    """Return Markdown that shows an exercise, folded, with what opens it here."""
    found = asked(name)
    held = {"data-exercise": name, "data-start": found["start"], "data-size": size()}
    attributes = " ".join(f'{key}="{escape(str(value))}"' for key, value in held.items())
    attributes = attributes.replace("\n", "&#10;")
    late = "It did not load. Is the network there? A page opened as a file cannot run Python."
    button = (
        f'<div class="practice" {attributes}>'
        '<button type="button" class="sd-btn sd-btn-primary" onclick="'
        f"import('../{FOLDER}/page.js').then(page =&gt; page.open(this))"
        f".catch(() =&gt; this.after(' {late}'))\">Write it here</button></div>"
    )
    number = describe(set_of(name))["number"]
    title = f"Set {number}, {found['title'][0].lower()}{found['title'][1:]}"
    return folded(title, f"{found['text'].strip()}\n\n{button}")


ABOUT = (
    "**Or write here, without an account.** {count} of these exercises {opens} in this page: a "
    "click loads Python from this site (6 MB, once). The check gives the same answers as in the "
    "notebook, and your code stays in this browser. It runs on a small replacement for PyTorch. "
    "If your code uses a function that the replacement lacks, it says so."
)
WITHOUT = (
    "This copy of the site was built without npm, so these exercises do not open in the page; the "
    "links above lead to them."
)


def section(one: str) -> str:
    """Return what a chapter says below the links to its set; nothing if none of it opens here."""
    names = [name for name in OPEN if set_of(name) == one]
    if not names:
        return ""
    if possible():
        return WITHOUT
    count = {1: "One", 2: "Two", 3: "Three", 4: "Four"}[len(names)]
    opens = "opens" if len(names) == 1 else "open"
    return "\n\n".join([ABOUT.format(count=count, opens=opens), *map(place, names)])
