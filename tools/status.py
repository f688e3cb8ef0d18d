"""What the build knows about itself, as Markdown for the status page."""

from __future__ import annotations

import json
import platform
import shutil
import subprocess
from collections import Counter
from importlib.metadata import PackageNotFoundError, version

import yaml

from tools import ROOT, outline

RUNTIMES = ROOT / "book" / "data" / "runtimes.json"
TESTS = ROOT / "_build" / "tests.json"  # written by the last `make test`
CLAIMS = ROOT / "pages" / "claims.yml"
PACKAGES = ("torch", "numpy", "matplotlib", "ipywidgets", "jupyter-book", "sphinx", "myst-nb")


def table(header: tuple[str, ...], rows: list[tuple[str, ...]]) -> str:
    lines = [header, tuple("---" for _ in header), *rows]
    return "\n".join("| " + " | ".join(line) + " |" for line in lines)


def commit_date() -> str:
    """Return the date of the commit that is built, or say that it is not known."""
    if shutil.which("git"):
        command = ["git", "log", "-1", "--format=%cs (%h)"]
        done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True)
        if done.returncode == 0 and done.stdout.strip():
            return done.stdout.strip()
    return "not known (no git history)"


def installed(name: str) -> str:
    try:
        return version(name)
    except PackageNotFoundError:
        return "not installed"


def runtimes() -> str:
    """Return a table of the notebooks and the processor seconds behind their outputs."""
    seconds = json.loads(RUNTIMES.read_text()) if RUNTIMES.exists() else {}
    rows = [
        (path.stem, f"{seconds[path.stem]:.1f}" if path.stem in seconds else "not recorded")
        for path in sorted((ROOT / "book").glob("*.ipynb"))
    ]
    known = [seconds[name] for name, _ in rows if name in seconds]
    return table(("notebook", "seconds"), [*rows, ("**all**", f"**{sum(known):.1f}**")])


def tests() -> str:
    """Return one sentence on the last complete run of the tests on this computer."""
    if not TESTS.exists():
        return "`make test` has not run to its end on the computer that built this page."
    last = json.loads(TESTS.read_text())
    counts = ", ".join(f"{number} {outcome}" for outcome, number in last["outcomes"].items())
    return (
        f"Last complete run on the computer that built this page, instructions {last['isa']}: "
        f"{counts}; {last['seconds']} s."
    )


def claims() -> str:
    """Return a table of verdicts and how many claims have each."""
    entries = yaml.safe_load(CLAIMS.read_text(encoding="utf-8")) if CLAIMS.exists() else []
    verdicts = Counter(entry["verdict"] for entry in entries or [])
    rows = [(verdict, str(number)) for verdict, number in sorted(verdicts.items())]
    return table(("verdict", "claims"), [*rows, ("**all**", f"**{verdicts.total()}**")])


def markdown() -> str:
    """Return the whole report."""
    header, *rows = outline.rows()
    versions = [("Python", platform.python_version()), *((n, installed(n)) for n in PACKAGES)]
    return "\n\n".join(
        [
            f"Commit of {commit_date()}.",
            "## Versions",
            table(("package", "version"), versions),
            "## Chapters",
            table(header, rows),
            "## Seconds per notebook",
            "Processor seconds of the run whose outputs are stored, one thread; each may take 60.",
            runtimes(),
            "## Tests",
            tests(),
            "## Claims",
            claims(),
        ]
    )
