"""The course works wherever it is put: its sandbox holds there, and grades."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from tools import ROOT

pytestmark = pytest.mark.usefixtures("sandbox")
PARTS = ("conftest.py", "pyproject.toml", "book/data/runtimes.json", "exercises", "lab", "pages",
         "pe_lib",
         "tools", "tests/conftest.py", "tests/browsing.py", "tests/test_sandbox.py")  # fmt: skip
# The scratch folder of the sandbox; what a home may look like; a link to what shells stumble over.
PLACES = {"below /tmp": "/tmp", "a home": "home/ann", "a link": "Kurse für Anna & Zoë/数学"}


@pytest.fixture(params=PLACES)
def place(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Path]:
    """A copy of what grades, with a link to this environment."""
    above = ROOT / "_build"
    above.mkdir(exist_ok=True)
    with tempfile.TemporaryDirectory(dir="/tmp" if request.param == "below /tmp" else above) as top:
        folder = Path(top, PLACES[request.param].removeprefix("/tmp"), "course")
        for part in PARTS:
            (folder / part).parent.mkdir(parents=True, exist_ok=True)
            copy = shutil.copytree if (ROOT / part).is_dir() else shutil.copy
            copy(ROOT / part, folder / part)
        (folder / ".venv").symlink_to(sys.prefix)
        if request.param == "a link":
            (tmp_path / "linked").symlink_to(folder)
            folder = tmp_path / "linked"
        yield folder


def test_what_grades_may_stand_anywhere(place: Path) -> None:
    """The walls stand, and right answers get their points."""
    chosen = "test_every_wall_stands or test_starting_a_sandbox_is_not_charged"
    done = subprocess.run(
        [place / ".venv/bin" / Path(sys.executable).name, "-m", "pytest", "tests/test_sandbox.py",
         "-k", chosen, "-q", "-p", "no:cacheprovider"],
        cwd=place, env=os.environ | {"PYTHONDONTWRITEBYTECODE": "1"}, capture_output=True,
        text=True,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout + done.stderr
    assert " passed" in done.stdout
