"""What need not be tested again: it passed here, and nothing that it depends on has changed.

What a notebook depends on is one digest: its stored file, every source and data file that it can
read, the checks that compare it, the versions of Python and of all that is installed, the
instruction set and the processor. The site depends on all files but the tests of other things,
and on the browser. Its record lies in the site, so that a new build has none.
"""

from __future__ import annotations

import hashlib
import json
import platform
import subprocess
import sys
import sysconfig
from collections.abc import Iterable, Iterator
from functools import cache
from importlib.metadata import distributions
from pathlib import Path

from tools import ROOT, chromium, environment
from tools.build import SITE

PASSED = ROOT / "_build" / "passed"
SITE_TESTS = "test_site.py"
OVERVIEW = "00_intro"  # the one that reads all notebooks
JUDGES = {SITE_TESTS, "browsing.py", "conftest.py"}
# Folders and files that a notebook can read, or that judge its run. Two chapters print numbers of
# the benchmarks; other pages, tests and exercises are read by no chapter.
SOURCES = (
    "pe_lib",
    "lab",
    "bakeoff",
    "clinic",
    "configs",
    "exercises/checks",
    "tools",
)
FILES = (
    "exercises/__init__.py",
    "benchmarks/results.json",
    "book/benchmarks.md",
    "conftest.py",
    "constraints.txt",
    "pyproject.toml",
)
LEFT_OUT_SUFFIXES = {".pyc", ".pyo"}  # what Python leaves beside its sources


def files(root: Path) -> Iterator[Path]:
    """Yield the files that all notebooks depend on, in a fixed order."""
    for name in SOURCES:
        for path in sorted((root / name).rglob("*")):
            if path.is_file() and path.suffix not in LEFT_OUT_SUFFIXES:
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


def digest_of(paths: Iterable[Path], root: Path, **more: object) -> str:
    """Return the digest of files, of the computer and of what else counts."""
    names = {**machine(), "settings": environment.settings(), **more}
    whole = hashlib.sha256(json.dumps(names, sort_keys=True).encode())
    for path in paths:
        inside = hashlib.sha256(path.read_bytes()).hexdigest()
        whole.update(f"{path.relative_to(root)} {inside}\n".encode())
    return whole.hexdigest()


def digest(notebook: Path, root: Path = ROOT) -> str:
    """Return the digest of a notebook and of all that it depends on."""
    read = sorted(notebook.parent.glob("*.ipynb")) if notebook.stem == OVERVIEW else [notebook]
    return digest_of((*read, *files(root)), root)


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


def checkout(root: Path = ROOT) -> list[Path]:
    """Return the files that git keeps, or would keep; raise an error where there is no git."""
    listed = ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"]
    done = subprocess.run(listed, cwd=root, capture_output=True, text=True, check=True)
    paths = (root / name for name in sorted(filter(None, done.stdout.split("\0"))))
    return [path for path in paths if path.is_file()]


def site_digest(root: Path = ROOT) -> str | None:
    """Return the digest of all that the site is made of and judged by; None without git."""
    try:
        paths = checkout(root)
    except (OSError, subprocess.CalledProcessError):
        return None
    browser = chromium.installed()
    made = None if browser is None else Path(browser).resolve().stat().st_mtime_ns
    kept = [path for path in paths if is_of_the_site(path.relative_to(root))]
    return digest_of(kept, root, browser=[browser, made])


def is_of_the_site(name: Path) -> bool:
    """Return whether the site is made of a file, or judged by it."""
    return name.parts[0] != "tests" or name.name in JUDGES


def site_record(root: Path = ROOT) -> Path:
    """Return the file that holds the digest with which the site passed."""
    return root / SITE.relative_to(ROOT) / f".passed.{environment.settings()[environment.CHOICE]}"


def remember_site(before: str | None, root: Path = ROOT) -> None:
    """Note that the site passed, unless something changed meanwhile."""
    if before is not None and site_digest(root) == before:
        site_record(root).write_text(before + "\n", encoding="utf-8")


def site_passed(root: Path = ROOT) -> bool:
    """Return whether the site passed as it is now."""
    path = site_record(root)
    return path.exists() and path.read_text(encoding="utf-8").strip() == site_digest(root)
