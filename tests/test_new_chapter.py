"""A new chapter: the guide in CONTRIBUTING.md is followed, command by command, in a copy."""

from __future__ import annotations

import os
import re
import shlex
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from browsing import ROOT
from tools import new_chapter

NAME = "14_spiral"
GUIDE = (ROOT / "CONTRIBUTING.md").read_text(encoding="utf-8")
SECTION = GUIDE.split("## Add a method in one sitting")[1].split("\n## ")[0]
BLOCK = re.search(r"```\n(.*?)```", SECTION, flags=re.DOTALL).group(1)
COMMANDS = BLOCK.replace("\\\n", "").splitlines()
# The whole site and the whole test suite: they would take the time of all other tests.
LEFT_OUT = ["make book", "make test"]
# What `make test` would say of the new chapter beyond that.
ALSO = (
    "match_one_to_one or releases_are or zip_holds or download_page or table_of_the_guide"
    " or api_page or page_of_the_contents or own_colour"
)
FILES = "tests/test_checks.py tests/test_exercises.py tests/test_pages.py tests/test_tools.py"
MORE = [
    f'.venv/bin/pytest {FILES} -k "{ALSO}"',
    ".venv/bin/ruff check .",
    ".venv/bin/ruff format --check .",
    ".venv/bin/mypy pe_lib/spiral.py pe_lib/checks/ch14_spiral.py",
]


def copy_of_the_checkout(folder: Path) -> Path:
    """Copy what git would keep; the environment is this one, and new enough for make."""
    listed = ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"]
    done = subprocess.run(listed, cwd=ROOT, capture_output=True, text=True, check=True)
    for name in filter(None, done.stdout.split("\0")):
        if (ROOT / name).exists():
            (folder / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(ROOT / name, folder / name)
    (folder / ".venv").mkdir()
    for entry in Path(sys.prefix).iterdir():
        if not entry.name.endswith("-ready"):
            (folder / ".venv" / entry.name).symlink_to(entry)
    for stamp in (".book-ready", ".test-ready"):
        (folder / ".venv" / stamp).touch()
    if (ROOT / ".mypy_cache").exists():  # without it the types of torch take half a minute
        shutil.copytree(ROOT / ".mypy_cache", folder / ".mypy_cache")
    return folder


def run(command: str, folder: Path) -> subprocess.CompletedProcess[str]:
    """Run a line of the guide in the copy, whose own library comes first."""
    environment = {key: value for key, value in os.environ.items() if key != "PE_COMPLETE"}
    environment |= {"PYTHONPATH": str(folder), "OMP_NUM_THREADS": "1"}
    words = shlex.split(command)
    return subprocess.run(words, cwd=folder, capture_output=True, text=True, env=environment)


def test_the_guide_makes_a_chapter_that_passes_every_check(tmp_path: Path) -> None:
    assert [line for line in COMMANDS if line in LEFT_OUT] == LEFT_OUT
    copy = copy_of_the_checkout(tmp_path)
    for command in [*(line for line in COMMANDS if line not in LEFT_OUT), *MORE]:
        done = run(command, copy)
        said = done.stdout + done.stderr
        assert done.returncode == 0, f"{command}\n{said[-6000:]}"
        if "pytest" in command:
            assert re.search(r"[1-9]\d* passed", said) and "skipped" not in said, said[-2000:]


# --- names, and failures ---------------------------------------------------------------------


@pytest.fixture
def small_copy(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Copy what the generator reads and writes."""
    for name in ("tools/template", "pe_lib"):
        shutil.copytree(ROOT / name, tmp_path / name)
    files = {file for file, _, _ in new_chapter.LINES} | {"pyproject.toml"}
    files |= {str(path.relative_to(ROOT)) for path in (ROOT / "book").glob("*.ipynb")}
    for name in files:
        (tmp_path / name).parent.mkdir(exist_ok=True)
        shutil.copy2(ROOT / name, tmp_path / name)
    monkeypatch.setattr(new_chapter, "ROOT", tmp_path)
    return tmp_path


def contents(folder: Path) -> dict[Path, bytes | None]:
    return {path: path.read_bytes() if path.is_file() else None for path in folder.rglob("*")}


@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("", "NAME must be two digits, an underscore, .* such as 14_spiral; got ''"),
        ("spiral", "got 'spiral'"),
        ("14-spiral", "got '14-spiral'"),
        ("14_Spiral", "got '14_Spiral'"),
        ("14_spiral wave", "got '14_spiral wave'"),
        ("14_../x", "got '14_"),
        ("14_class", "got '14_class'"),
        ("14_" + "x" * 25, "at most 24 characters"),
        ("05_spiral", "NAME must have a number above 13, .* such as 14_spiral; got '05_spiral'"),
        ("14_shaw", r"NAME '14_shaw' is taken: pe_lib/shaw\.py is there"),
        ("14_checks", "NAME '14_checks' is taken: pe_lib/checks is there"),
        ("14_exercise", "NAME '14_exercise' is taken: Exercise means something else already"),
    ],
)
def test_a_name_that_cannot_be_is_refused_and_nothing_is_written(
    name: str, said: str, small_copy: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    before = contents(small_copy)
    assert new_chapter.main(name.split()) == 1
    assert re.search(said, capsys.readouterr().err)
    assert contents(small_copy) == before


def test_a_second_chapter_of_the_same_name_is_refused(small_copy: Path) -> None:
    new_chapter.create(NAME)
    with pytest.raises(new_chapter.ChapterError, match=r"number above 14.*such as 15_spiral"):
        new_chapter.create(NAME)
    with pytest.raises(new_chapter.ChapterError, match=r"pe_lib/spiral\.py is there"):
        new_chapter.create("15_spiral")


@pytest.mark.parametrize("name", ["14_spiral", "14_log_of_the_distance_ab"])
def test_nothing_of_the_template_is_left_in_what_is_made(name: str, small_copy: Path) -> None:
    before = contents(small_copy)
    for path in new_chapter.create(name):
        text = path.read_text(encoding="utf-8")
        known = set(before[path].decode().splitlines()) if path in before else set()
        added = [line for line in text.splitlines() if line not in known]
        assert added
        assert not re.search(r"NN|[Tt]emplate|TITLE|#colour", "\n".join(added)), path


def test_a_file_without_a_place_for_the_chapter_is_named(small_copy: Path) -> None:
    (small_copy / "_toc.yml").write_text("parts: []\n", encoding="utf-8")
    before = contents(small_copy)
    with pytest.raises(new_chapter.ChapterError, match=r"_toc\.yml has no place"):
        new_chapter.create(NAME)
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
        new_chapter.create(NAME)
    assert contents(small_copy) == before
