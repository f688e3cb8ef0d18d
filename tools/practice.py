"""Bring the exercises that open in their page: a Python for the browser, the judge, the checks.

A check is the recorded one of the notebooks. Pyodide and the editor come from npm, as the lock file
of exercises/in_page pins them.
"""

from __future__ import annotations

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
from pe_course import practice as rungs
from pe_course.judge.recorded import record
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
RUNGS = {check.name: page for page, check in rungs.RUNGS.items()}  # each opens in its cell
# Parts of Python's own library, a third of it, that nobody asks for in an exercise.
UNUSED = re.compile(
    r"(_pyrepl|curses|dbm|ensurepip|idlelib|multiprocessing|pydoc_data|sqlite3|tkinter|unittest"
    r"|venv|wsgiref|xml|xmlrpc|zoneinfo)/|(doctest|ftplib|imaplib|mailbox|optparse|pdb|pickletools"
    r"|pydoc|smtplib|tarfile|turtle|webbrowser|_pydatetime|_pydecimal|_pyio|_strptime)\.py$"
    r"|encodings/(?!__init__|aliases|ascii|cp437|idna|latin_1|utf_8)"
)


def set_of(name: str) -> str:
    return next(one for one, group in SETS.items() if any(each.name == name for each in group))


@functools.cache
def asked(name: str) -> dict[str, str]:
    """Return an exercise's title, its text, the code that is given, and the cell of the answer.

    With a forecast, also what turned out to be so.
    """
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
    missing = r"\n\n(Below the check, a cell draws|\*Double-click here,) .*"  # in a page
    text = re.sub(missing, "", "\n\n".join(parts))
    after = f"forecast_answer_{name}"
    return {
        "title": title.removeprefix("## "), "text": text,
        "given": "\n\n".join(given), "start": sets.source_text(cells[end]),
        "after": sets.source_text(cells[ids.index(after)]) if after in ids else "",
    }  # fmt: skip


def exercise(name: str) -> dict[str, Any]:
    """Return what the page needs to check an exercise."""
    if name in RUNGS:
        return {**record(rungs.RUNGS[RUNGS[name]]), "given": ""}
    return {**record(EXERCISES[name]), "given": asked(name)["given"]}


def files() -> dict[str, bytes]:
    """Return what Python in the page imports."""
    known = {
        "torch": [name for name in dir(torch) if not name.startswith("_")],
        "Tensor": [name for name in dir(torch.Tensor) if not name.startswith("_")],
    }
    found = {path.name: path.read_bytes() for path in SOURCE.glob("*.py")}
    judge = [ROOT / "pe_course/__init__.py", *(ROOT / "pe_course/judge").glob("*.py")]
    found |= {path.relative_to(ROOT).as_posix(): path.read_bytes() for path in judge}
    return dict(sorted(found.items())) | {"known.json": json.dumps(known).encode()}


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
    for name in (*OPEN, *RUNGS):
        (folder / f"{name}.json").write_text(json.dumps(exercise(name)))


def size() -> int:
    """Return how many bytes come, unpacked, before Python starts: the length of the bar."""
    rest = ("pyodide.asm.wasm", "pyodide-lock.json")
    return len(library()) + sum((PACKAGES / "pyodide" / name).stat().st_size for name in rest)


def button(name: str, start: str) -> str:
    """Return what opens an exercise here, with the text that its editor begins with."""
    held = {"data-exercise": name, "data-start": start, "data-size": size()}
    attributes = " ".join(f'{key}="{escape(str(value))}"' for key, value in held.items())
    attributes = attributes.replace("\n", "&#10;")
    late = "It did not load. Is the network there? A page opened as a file cannot run Python."
    return (
        f'<div class="practice" {attributes}>'
        '<button type="button" class="sd-btn sd-btn-primary" onclick="'
        f"import('../{FOLDER}/page.js').then(page =&gt; page.open(this))"
        f".catch(() =&gt; this.after(' {late}'))\">Write it here</button></div>"
    )


def place(name: str) -> str:
    """Return Markdown that shows an exercise, folded, with what opens it here."""
    found = asked(name)
    number = describe(set_of(name))["number"]
    title = f"Set {number}, {found['title'][0].lower()}{found['title'][1:]}"
    opened = button(name, found["start"])
    return folded(title, f"{found['text'].strip()}\n\n{opened}\n\n{found['after']}")


def with_rung(page: str, cells: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Return a chapter's cells with what opens its first rung, in the place of stub and check."""
    ids = [cell["id"] for cell in cells]
    if page not in rungs.RUNGS or possible():
        return cells
    at = ids.index("write-it-yourself")
    words = button(rungs.RUNGS[page].name, sets.source_text(cells[at]))
    shown = {"cell_type": "markdown", "id": "rung", "metadata": {}, "source": f"{HERE}\n\n{words}"}
    return [*cells[:at], shown, *cells[at + 2 :]]


HERE = (
    "A click loads Python from this site (6 MB, once); your code stays in this browser. The "
    "chapter's notebook has a cell for it and a check, too."
)
ABOUT = (
    "**Or write here, without an account.** {count} of these exercises {opens} in this page: a "
    "click loads Python from this site (6 MB, once). The check gives the same answers as in the "
    "notebook, and your code stays in this browser. It runs on a small replacement for PyTorch, "
    "without numpy. Above the editor stands what the replacement lacks; if your code uses some of "
    "it, the page says so, and the notebook has it."
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
