"""A new chapter, and a method without one: the guide in CONTRIBUTING.md is followed in a copy."""

from __future__ import annotations

import os
import re
import shlex
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from test_order import copy_of_the_checkout
from test_promises import PROMISES

from tools import ROOT, new_chapter

GUIDE = (ROOT / "CONTRIBUTING.md").read_text(encoding="utf-8")
SECTION = GUIDE.split("## A chapter with its method and its exercises")[1].split("\n## ")[0]
BLOCK = re.search(r"```\n(.*?)```", SECTION, flags=re.DOTALL).group(1)
COMMANDS = BLOCK.replace("\\\n", "").splitlines()
# The whole site and the whole test suite: they would take the time of all other tests.
LEFT_OUT = ["make book", "make test"]
# What `make test` would say of the new chapter beyond that; types are left to it.
ALSO = "tests/test_tools.py"
ASKED = "match_one_to_one or releases_are or zip_holds or page_of_the_contents"
MORE = [".venv/bin/ruff check .", ".venv/bin/ruff format --check ."]


def copy_with_environment(folder: Path) -> Path:
    """Copy the checkout; the environment is this one, and new enough for make."""
    copy_of_the_checkout(folder)
    (folder / ".venv").mkdir()
    for entry in Path(sys.prefix).iterdir():
        if not entry.name.endswith("-ready"):
            (folder / ".venv" / entry.name).symlink_to(entry)
    for stamp in (".book-ready", ".test-ready"):
        (folder / ".venv" / stamp).touch()
    return folder


def run(command: str, folder: Path) -> subprocess.CompletedProcess[str]:
    """Run a line of the guide in the copy, whose own library comes first."""
    environment = {key: value for key, value in os.environ.items() if key != "PE_COMPLETE"}
    environment |= {"PYTHONPATH": str(folder), "OMP_NUM_THREADS": "1"}
    words = shlex.split(command)
    return subprocess.run(words, cwd=folder, capture_output=True, text=True, env=environment)


def test_the_guide_makes_a_chapter_that_passes_every_check(tmp_path: Path) -> None:
    assert [line for line in COMMANDS if line in LEFT_OUT] == LEFT_OUT
    copy = copy_with_environment(tmp_path)
    for command in [*(line for line in COMMANDS if line not in LEFT_OUT), *MORE]:
        done = run(command.replace(' -k "', f' {ALSO} -k "{ASKED} or '), copy)
        said = done.stdout + done.stderr
        assert done.returncode == 0, f"{command}\n{said[-6000:]}"
        if "pytest" in command:
            assert re.search(r"[1-9]\d* passed", said) and "skipped" not in said, said[-2000:]


# --- a method without a chapter ----------------------------------------------------------------

ALONE = GUIDE.split("## A method without a chapter")[1].split("\n## ")[0]
FILES = re.findall(r"^\d\. `(\S+)`", ALONE, flags=re.MULTILINE)
ARGUMENTS = re.search(r'`make bakeoff ARGS="(.*?)"`', ALONE)[1]
COMPARED = """
import sys
from dataclasses import replace
from pathlib import Path

from bakeoff.__main__ import parser
from bakeoff.grid import grid
from bakeoff.run import run
from benchmarks.report import BARS

chosen = parser().parse_args(sys.argv[1:])
cells = grid(chosen.scale, chosen.tasks, chosen.methods, chosen.seeds)
first = next(cell for cell in cells if cell.method == "spiral")
rows = run([replace(first, steps=2)], Path("rows.csv"), workers=1)
assert {row["method"] for row in rows} == {"spiral"}
assert any(bar.text == "Decoding with Spiral" for bar in BARS)
"""


def test_three_files_make_a_method_without_a_chapter(tmp_path: Path) -> None:
    """It keeps every promise, and the comparison and the benchmarks know it."""
    assert FILES == ["pe_lib/spiral.py", "tests/test_spiral.py", "lab/registry.py"]
    copy = copy_with_environment(tmp_path)
    name = new_chapter.numbered("spiral")
    made = new_chapter.new_files(name) | new_chapter.changed_files(name)
    for file in FILES:
        (copy / file).write_text(made[ROOT / file], encoding="utf-8")
    asked = f".venv/bin/python -m pytest -q {FILES[1]} tests/test_promises.py -k spiral"
    trained = f".venv/bin/python -c {shlex.quote(COMPARED)} {ARGUMENTS}"
    for command in (asked, trained):
        done = run(command, copy)
        assert done.returncode == 0, (done.stdout + done.stderr)[-6000:]
        if command == asked:
            kept = int(re.search(r"(\d+) passed", done.stdout)[1])
            assert kept > len(PROMISES)


# --- names, and failures ---------------------------------------------------------------------


@pytest.fixture
def small_copy(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Copy what the generator reads and writes."""
    for name in ("tools/template", "pe_lib", "exercises/checks"):
        shutil.copytree(ROOT / name, tmp_path / name)
    files = {file for file, _, _ in new_chapter.LINES} | {"pyproject.toml"}
    files |= {str(path.relative_to(ROOT)) for path in (ROOT / "book").glob("*.ipynb")}
    for name in files:
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy2(ROOT / name, tmp_path / name)
    monkeypatch.setattr(new_chapter, "ROOT", tmp_path)
    return tmp_path


def contents(folder: Path) -> dict[Path, bytes | None]:
    return {path: path.read_bytes() if path.is_file() else None for path in folder.rglob("*")}


@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("", "NAME must be a name for Python in lower case, .* such as spiral; got ''"),
        ("18_spiral", "got '18_spiral'"),
        ("log-spiral", "got 'log-spiral'"),
        ("Spiral", "got 'Spiral'"),
        ("spiral wave", "got 'spiral wave'"),
        ("../x", "got '../x'"),
        ("class", "got 'class'"),
        ("x" * 25, "at most 24 characters"),
        ("shaw", r"NAME 'shaw' is taken: \d\d_shaw is a chapter"),
        ("kerple", r"NAME 'kerple' is taken: pe_lib/kerple\.py is there"),
        ("exercise", "NAME 'exercise' is taken: Exercise means something else already"),
    ],
)
def test_a_name_that_cannot_be_is_refused_and_nothing_is_written(
    name: str, said: str, small_copy: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    before = contents(small_copy)
    assert new_chapter.main(name.split()) == 1
    assert re.search(said, capsys.readouterr().err)
    assert contents(small_copy) == before


def test_a_failure_half_way_leaves_everything_as_it_was(
    small_copy: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def stop(paths: list[Path]) -> None:
        assert all(path.exists() for path in paths)
        raise KeyboardInterrupt

    before = contents(small_copy)
    monkeypatch.setattr(new_chapter, "tidy", stop)
    with pytest.raises(KeyboardInterrupt):
        new_chapter.create("spiral")
    assert contents(small_copy) == before
