"""What every test shares: the environment, the order of the files, a record of a complete run."""

from __future__ import annotations

import gc
import json
import os
import time
from pathlib import Path

import pytest

from tools import environment

environment.apply()  # before torch and numpy are imported

from tools import refresh  # noqa: E402

pytest_plugins = ["tools.red", "tools.nbval_whole"]

# What takes longest begins first, so that no processor waits for the last of it: these files, then
# the notebooks by their recorded seconds, then the others.
FIRST = ["site", "promises", "grading_runs", "grading", "exercises", "live", "style", "guards"]
FIRST += ["new_chapter", "bakeoff", "doctor", "published", "sandbox", "places", "order"]
RECORD = Path(__file__).parent / "_build" / "tests.json"
STARTED = time.time()

# What is imported and collected stays to the end: to look there again and again for what could be
# freed takes long, in vain.
gc.disable()


@pytest.hookimpl(tryfirst=True)
def pytest_runtestloop():
    """From here on look for what can be freed, among what the tests make."""
    gc.freeze()
    gc.enable()


def pytest_collection_modifyitems(items):
    """Put the files in their order; what is alike stays as it was."""
    seconds = json.loads(refresh.RUNTIMES.read_text(encoding="utf-8"))

    def place(item):
        name = item.path.stem.removeprefix("test_")
        if name in FIRST:
            return 0, FIRST.index(name)
        return (1, -seconds.get(name, 60)) if item.path.suffix == ".ipynb" else (2, 0)

    items.sort(key=place)


def pytest_terminal_summary(terminalreporter, exitstatus, config):
    """After `make test`, leave the outcome for the status page."""
    if not os.environ.get("PE_COMPLETE"):
        return
    names = ("passed", "failed", "error", "skipped", "xfailed")
    outcomes = {name: len(terminalreporter.stats.get(name, [])) for name in names}
    RECORD.parent.mkdir(exist_ok=True)
    record = {
        "outcomes": {name: number for name, number in outcomes.items() if number},
        "isa": environment.settings()[environment.CHOICE],
        "seconds": round(time.time() - STARTED),
    }
    RECORD.write_text(json.dumps(record) + "\n")
