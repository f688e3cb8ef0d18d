"""The course works wherever it is put: below blanks, letters of any script, and a link."""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path

import pytest

from copies import copy_with_environment
from exercises.sets import source_path


@pytest.mark.usefixtures("sandbox")
def test_it_builds_and_grades_anywhere(tmp_path: Path) -> None:
    place = tmp_path / "Kurse für Anna & Zoë" / "数学 2026"
    place.mkdir(parents=True)
    copy_with_environment(place)
    (tmp_path / "linked").symlink_to(place)
    answers = tmp_path / "linked/class/submitted/ann/03_learned/03_learned.ipynb"
    answers.parent.mkdir(parents=True)
    shutil.copy(source_path("03_learned"), answers)
    outside = os.environ | {"PYTHONPATH": str(tmp_path / "linked")}
    for command, said in [
        ("-m tools.build", "index.html"),
        ("-m exercises.grade_course class --set 03_learned", ""),
    ]:
        done = subprocess.run(
            [tmp_path / "linked/.venv/bin/python", *command.split()],
            cwd=tmp_path / "linked", capture_output=True, text=True, env=outside,
        )  # fmt: skip
        assert done.returncode == 0, (done.stdout + done.stderr)[-3000:]
        assert said in done.stdout
    assert (place / "_build/html/book/10_rope.html").exists()
