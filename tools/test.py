"""Run every check, in one pytest whose last line says how it went.

Usage: python -m tools.test [PYTEST OPTION ...]
"""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
CELL_TIMEOUT = 120  # seconds; nbval's own default is more than half an hour
COVERAGE = 98  # percent of the lines and branches of pe_lib
WORKERS = max(2, min(4, os.cpu_count() or 2))


def main(options: list[str]) -> int:
    command = [sys.executable, "-m", "pytest", "tests", "book", *options]
    # A notebook's cells share a kernel. The order of the files is that of conftest.py.
    command += ["-n", str(WORKERS), "--dist=loadfile", "--no-loadscope-reorder"]
    command += ["--nbval", "--nbval-current-env", f"--nbval-cell-timeout={CELL_TIMEOUT}"]
    command += ["--cov=pe_lib", "--cov-report=term", f"--cov-fail-under={COVERAGE}"]
    command += ["-q", "--durations=25"]
    return subprocess.run(command, cwd=ROOT, env=os.environ | {"PE_COMPLETE": "1"}).returncode


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
