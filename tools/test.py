"""Run every check, in one pytest whose last line says how it went.

Usage: python -m tools.test [--isa ISA] [PYTEST OPTION ...]
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys

from tools import ROOT, environment

# Seconds by the clock, which other programs stretch: they end what hangs. What a notebook may cost
# is held by its budget of processor seconds.
CELL_TIMEOUT = 900
KERNEL_TIMEOUT = 300
COVERAGE = 98  # percent of the lines and branches of pe_lib and posdoctor.configs
# One more than there are cores: a third of the time a test waits for a browser or a sandbox.
WORKERS = min(4, (os.cpu_count() or 1) + 1)


def command(options: list[str]) -> list[str]:
    """Return the command that runs the tests."""
    line = [sys.executable, "-m", "pytest", "tests", "book", *options]
    # A notebook's cells share a kernel. The order of the files is that of conftest.py.
    line += ["-n", str(WORKERS), "--dist=loadfile", "--no-loadscope-reorder"]
    line += ["--nbval", "--nbval-current-env", f"--nbval-cell-timeout={CELL_TIMEOUT}"]
    line += [f"--nbval-kernel-startup-timeout={KERNEL_TIMEOUT}"]
    if os.environ.get("CI") == "true":  # the tracer makes what it watches a third slower
        line += [
            "--cov=pe_lib",
            "--cov=posdoctor/configs",
            "--cov-report=term",
            f"--cov-fail-under={COVERAGE}",
        ]
    return [*line, "-q", "--durations=25"]


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--isa", help=f"{', '.join(environment.INSTRUCTION_SETS)}")
    chosen, options = parser.parse_known_args(arguments)
    environment.apply(chosen.isa)
    return subprocess.run(command(options), cwd=ROOT).returncode


if __name__ == "__main__":
    sys.exit(main())
