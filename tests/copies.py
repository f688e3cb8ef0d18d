"""Copies of the checkout in which a test may change everything."""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path

from tools import ROOT


def checkout() -> list[Path]:
    """Return the files that git keeps, or would keep."""
    command = ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True)
    paths = (ROOT / name for name in sorted(filter(None, done.stdout.split("\0"))))
    return [path for path in paths if path.is_file()]


def copy_with_environment(folder: Path) -> Path:
    """Copy the checkout; the environment is this one, and new enough for make."""
    for path in checkout():
        copy = folder / path.relative_to(ROOT)
        copy.parent.mkdir(parents=True, exist_ok=True)
        shutil.copy2(path, copy)
    (folder / ".venv").mkdir()
    for entry in Path(sys.prefix).iterdir():
        if not entry.name.endswith("-ready"):
            (folder / ".venv" / entry.name).symlink_to(entry)
    for stamp in (".book-ready", ".grade-ready", ".test-ready"):
        (folder / ".venv" / stamp).touch()
    return folder
