"""Check style, spelling and types; each check is also a test."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

from tools import ROOT

CHECKS = {
    "style": ["ruff", "check", "."],
    "format": ["ruff", "format", "--check", "."],
    "spelling": ["codespell", "."],
    "types": ["mypy"],
}


def run(name: str) -> subprocess.CompletedProcess[str]:
    module, *arguments = CHECKS[name]
    command = [sys.executable, "-m", module, *arguments]
    if module == "codespell":
        command = [str(Path(sys.executable).with_name("codespell")), *arguments]
    return subprocess.run(command, cwd=ROOT, capture_output=True, text=True)


def main() -> int:
    failed = 0
    for name in CHECKS:
        done = run(name)
        print(f"{name}: {'ok' if done.returncode == 0 else 'FAILED'}")
        if done.returncode:
            print(done.stdout + done.stderr)
        failed += done.returncode != 0
    return int(failed > 0)


if __name__ == "__main__":
    sys.exit(main())
