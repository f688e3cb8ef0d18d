"""Notebooks that need not run again: they passed here, and nothing they depend on has changed.

What a notebook depends on is one digest: its stored file, every source and data file that it can
read, the checks that compare it, the versions of Python and of all that is installed, the
instruction set and the processor.
"""

from __future__ import annotations

import hashlib
import json
import platform
import sys
import sysconfig
from collections.abc import Iterator
from functools import cache
from importlib.metadata import distributions
from pathlib import Path

from tools import environment

ROOT = Path(__file__).resolve().parent.parent
PASSED = ROOT / "_build" / "passed"
# Folders and files that a notebook can read, or that judge its run. Pages, tests and exercises are
# read by no notebook.
SOURCES = (
    "pe_lib",
    "lab",
    "bakeoff",
    "clinic",
    "configs",
    "exercises/checks",
    "book/data",
    "tools",
)
FILES = ("exercises/__init__.py", "conftest.py", "constraints.txt", "pyproject.toml")
# Written by a refresh, read by the status page alone; and what Python leaves beside its sources.
LEFT_OUT = {"runtimes.json"}
LEFT_OUT_SUFFIXES = {".pyc", ".pyo"}


def files(root: Path) -> Iterator[Path]:
    """Yield the files that all notebooks depend on, in a fixed order."""
    for name in SOURCES:
        for path in sorted((root / name).rglob("*")):
            kept = path.name not in LEFT_OUT and path.suffix not in LEFT_OUT_SUFFIXES
            if path.is_file() and kept:
                yield path
    yield from (root / name for name in FILES if (root / name).exists())


@cache
def machine() -> dict[str, object]:
    """Return what the computer brings: versions and the processor.

    What is installed is read in the environment's own folders: some packages, once imported, add
    folders to sys.path with copies of others.
    """
    places = {sysconfig.get_path(kind) for kind in ("purelib", "platlib")}
    return {
        "python": sys.version,
        "packages": sorted(
            {f"{each.name}=={each.version}" for each in distributions(path=[*places])}
        ),
        "machine": platform.machine(),
        "processor": environment.processor(),
    }


def digest(notebook: Path, root: Path = ROOT) -> str:
    """Return the digest of a notebook and of all that it depends on."""
    names = {**machine(), "settings": environment.settings()}
    whole = hashlib.sha256(json.dumps(names, sort_keys=True).encode())
    for path in (notebook, *files(root)):
        inside = hashlib.sha256(path.read_bytes()).hexdigest()
        whole.update(f"{path.relative_to(root)} {inside}\n".encode())
    return whole.hexdigest()


def record(notebook: Path, root: Path = ROOT) -> Path:
    """Return the file that holds the digest with which a notebook passed last."""
    isa = environment.settings()[environment.CHOICE]
    return root / PASSED.relative_to(ROOT) / f"{notebook.stem}.{isa}"


def remember(notebook: Path, before: str, root: Path = ROOT) -> None:
    """Note that a notebook passed, unless something changed while it ran."""
    if digest(notebook, root) == before:
        path = record(notebook, root)
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(before + "\n", encoding="utf-8")


def passed(notebooks: list[Path], root: Path = ROOT) -> list[str]:
    """Return the names of those notebooks that passed as they are now."""
    known = {each: record(each, root) for each in notebooks}
    return [
        each.stem
        for each, path in known.items()
        if path.exists() and path.read_text(encoding="utf-8").strip() == digest(each, root)
    ]
