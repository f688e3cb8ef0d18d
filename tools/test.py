"""Run every check, in one pytest whose last line says how it went.

Usage: python -m tools.test [--isa ISA] [--all] [PYTEST OPTION ...]

What passed on this computer with the same source, library, versions and instructions is not
tested again (tools/unchanged.py: notebooks, and the site), except with --all and where CI=true.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys

from tools import ROOT, environment, refresh, unchanged

# Seconds by the clock, which other programs stretch: they end what hangs. What a notebook may cost
# is held by its budget of processor seconds.
CELL_TIMEOUT = 900
KERNEL_TIMEOUT = 300
COVERAGE = 98  # percent of the lines and branches of pe_lib and configs
# One more than there are cores: a third of the time a test waits for a browser or a sandbox.
WORKERS = min(4, (os.cpu_count() or 1) + 1)


def in_ci() -> bool:
    return os.environ.get("CI") == "true"


def command(options: list[str], skipped: list[str], site: bool) -> list[str]:
    """Return the command that runs the tests, but for what is skipped: notebooks, the site."""
    line = [sys.executable, "-m", "pytest", "tests", "book", *options]
    # A notebook's cells share a kernel. The order of the files is that of conftest.py.
    line += ["-n", str(WORKERS), "--dist=loadfile", "--no-loadscope-reorder"]
    line += ["--nbval", "--nbval-current-env", f"--nbval-cell-timeout={CELL_TIMEOUT}"]
    line += [f"--nbval-kernel-startup-timeout={KERNEL_TIMEOUT}"]
    line += [f"--unchanged={name}" for name in skipped]
    line += ["--unchanged-site"] * site
    if in_ci():  # the tracer makes what it watches a third slower
        line += [
            "--cov=pe_lib",
            "--cov=configs",
            "--cov-report=term",
            f"--cov-fail-under={COVERAGE}",
        ]
    return [*line, "-q", "--durations=25"]


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--isa", help=f"{', '.join(environment.INSTRUCTION_SETS)}")
    parser.add_argument("--all", action="store_true", help="test what is unchanged too")
    chosen, options = parser.parse_known_args(arguments)
    environment.apply(chosen.isa)
    everything = chosen.all or in_ci()
    skipped = [] if everything else unchanged.passed(refresh.notebooks())
    site = not everything and unchanged.site_passed()
    complete = os.environ | {"PE_COMPLETE": "1"}
    return subprocess.run(command(options, skipped, site), cwd=ROOT, env=complete).returncode


if __name__ == "__main__":
    sys.exit(main())
