"""What every test shares: the environment of the runs, and a record of a complete run."""

from __future__ import annotations

import json
import os
import time
from pathlib import Path

from tools import environment

environment.apply()

pytest_plugins = ["tools.nbval_pictures"]

RECORD = Path(__file__).parent / "_build" / "tests.json"
STARTED = time.time()


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
