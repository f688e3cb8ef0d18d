"""What every test shares: the environment of the runs, and a record of a complete run."""

from __future__ import annotations

import json
import os
import time
from pathlib import Path

from tools import environment

environment.apply()

pytest_plugins = ["tools.nbval_whole"]

# What takes longest begins first, so that no processor waits for the last of it.
FIRST = ["new_chapter", "site", "grading", "guards", "exercises", "scale", "bakeoff", "style"]
RECORD = Path(__file__).parent / "_build" / "tests.json"
STARTED = time.time()


def pytest_collection_modifyitems(items):
    """Put the files of FIRST in front, then the notebooks, then the other files."""

    def place(item):
        name = item.path.stem.removeprefix("test_")
        return FIRST.index(name) if name in FIRST else len(FIRST), item.path.suffix != ".ipynb"

    items.sort(key=place)  # what is alike stays in its order


def pytest_terminal_summary(terminalreporter, exitstatus, config):
    """After `make test`, leave the outcome where the status page finds it."""
    if not os.environ.get("PE_COMPLETE"):
        return
    names = ("passed", "failed", "error", "skipped", "xfailed")
    outcomes = {name: len(terminalreporter.stats.get(name, [])) for name in names}
    RECORD.parent.mkdir(exist_ok=True)
    record = {
        "outcomes": {name: number for name, number in outcomes.items() if number},
        "seconds": round(time.time() - STARTED),
    }
    RECORD.write_text(json.dumps(record) + "\n")
