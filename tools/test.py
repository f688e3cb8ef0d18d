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


def main(options: list[str]) -> int:
    command = [sys.executable, "-m", "pytest", "tests", "book", *options]
    command += ["--nbval", "--nbval-current-env", f"--nbval-cell-timeout={CELL_TIMEOUT}"]
    command += ["-q", "--durations=15", "--cov=pe_lib", "--cov-report=term:skip-covered"]
    return subprocess.run(command, cwd=ROOT, env=os.environ | {"PE_COMPLETE": "1"}).returncode


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
