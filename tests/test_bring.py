"""An exercise notebook that stands alone brings its checks, and says so where it cannot."""

from __future__ import annotations

import ast
import io
import json
import os
import re
import subprocess
import sys
import tempfile
import zipfile
import zlib
from pathlib import Path

import pytest

from browsing import serve
from exercises import bring
from exercises.build import checks, packed
from exercises.sets import (
    load,
    nbgrader_metadata,
    projects,
    release_path,
    set_names,
    source_path,
    source_text,
)
from tools import ROOT

NAME = "05_shaw"
NOWHERE = "http://127.0.0.1:9/"
SITE = "https://positional-encodings.github.io/course/"


def code(path: Path) -> list[str]:
    """Return the sources of a notebook's cells of code, of which the first brings the checks."""
    found = json.loads(path.read_text(encoding="utf-8"))["cells"]
    return [source_text(cell) for cell in found if cell["cell_type"] == "code"]


FIRST = code(release_path(NAME))[0]
ANSWERS = [path.relative_to(ROOT).as_posix() for path in (ROOT / "exercises/checks").glob("ch*.py")]


def test_every_exercise_notebook_begins_alike() -> None:
    every = [*map(source_path, set_names()), *map(release_path, set_names())]
    first = {code(path)[0].replace("import math\n", "") for path in every}
    assert first == {FIRST}
    assert {code(path)[0] for path in projects()} == {
        re.sub(r"checks(?= =|\.__|\"\)|\n)", "practice", FIRST)
    }


@pytest.fixture(scope="module")
def archive() -> bytes:
    return checks()


def test_the_archive_is_small_and_has_what_a_notebook_may_use_and_no_solution(
    archive: bytes,
) -> None:
    assert len(archive) < 6_200_000
    files, again = (zipfile.ZipFile(io.BytesIO(data)) for data in (archive, checks()))
    names = files.namelist()
    assert names == again.namelist()
    for name in names:  # what is recorded is computed anew, and rounded by where memory lies
        assert "/recorded/" in name or files.read(name) == again.read(name)
    rooms = ("pe_lib", "pe_lib/recent", "pe_course", "pe_course/judge", "pe_course/page",
             "pe_course/bakeoff", "exercises/checks")  # fmt: skip
    for room in rooms:
        modules = {path.relative_to(ROOT).as_posix() for path in (ROOT / room).glob("*.py")}
        assert modules <= {*names} | {*ANSWERS}
    beside = {name for name in names if not re.match(r"(pe_lib|pe_course|exercises/checks)/", name)}
    assert beside == {"LICENSE", "bring.py", "exercises/__init__.py", "exercises/practice.py"}
    assert not any(name.endswith(".ipynb") for name in names)


def bodies(path: str) -> set[str]:
    """Return what the functions of a file do, without their names; nothing of a line or less."""
    every = (node for node in ast.walk(ast.parse((ROOT / path).read_text(encoding="utf-8")))
             if isinstance(node, ast.FunctionDef | ast.Lambda))  # fmt: skip
    lines = (node.body if isinstance(node.body, list) else [node.body] for node in every)
    found = {"\n".join(ast.unparse(each) for each in body
                       if not isinstance(getattr(each, "value", None), ast.Constant))
             for body in lines}  # fmt: skip
    return {body for body in found if len(body) > 40}


def test_no_answer_and_no_mistake_is_in_the_archive(archive: bytes) -> None:
    """As a function; what they return for the self-check's inputs is."""
    assert len(ANSWERS) == len(set_names())
    files = zipfile.ZipFile(io.BytesIO(archive))
    given = [name for name in files.namelist() if name.endswith(".py")]
    assert not {*ANSWERS} & {*given}
    shown = "\n".join(ast.unparse(ast.parse(files.read(name))) for name in given)
    shown = "\n".join(line.strip() for line in shown.splitlines())
    for path in ANSWERS:
        for body in bodies(path):
            assert "\n".join(line.strip() for line in body.splitlines()) not in shown
    recorded = [name for name in files.namelist() if "/recorded/" in name]
    assert len(recorded) == len(set_names())


SEARCH = """
import inspect, json, pkgutil, sys, warnings
sys.path.insert(0, sys.argv[1])
warnings.simplefilter("ignore")
import exercises.checks as checks
from pe_course.judge import compare, exercise, recorded
from exercises import practice
from exercises.checks import kept, seen
assert checks.__file__.startswith(sys.argv[1])
found = []
for module in (checks, kept, seen, practice, compare, exercise, recorded):
    for name, tried in inspect.getmembers(module, callable):
        if name in ("record", "see", "told", "print"):
            continue
        for check in checks.EXERCISES.values():
            try:
                check.judge(tried, 0)
            except BaseException:
                continue
            found.append(f"{module.__name__}.{name} answers {check.name}")
print(json.dumps([len(checks.EXERCISES), found]))
"""


def test_no_function_that_is_brought_for_the_checks_passes_one(
    archive: bytes, tmp_path: Path
) -> None:
    folder = bring.unpacked(archive, tmp_path / "cache")
    done = subprocess.run([sys.executable, "-I", "-c", SEARCH, str(folder)], cwd=tmp_path,
                          capture_output=True, text=True, check=False)  # fmt: skip
    assert done.returncode == 0, done.stderr
    count, found = json.loads(done.stdout.splitlines()[-1])
    assert count == sum(len(load(name).questions) for name in set_names())
    assert found == []


# --- in a process that has never seen the project ---------------------------------------------

CLEAN = """
import json, os, sys
import torch
sys.path[:] = [p for p in sys.path if p and not os.path.exists(os.path.join(p, "exercises"))]
sys.meta_path[:] = [f for f in sys.meta_path if "editable" not in repr(f)]
path, modules = [*sys.path], {*sys.modules}
for folder, home, cells in json.load(open("stages.json", encoding="utf-8")):
    sys.path[:], book = [folder, *path], {}
    for name in {*sys.modules} - modules:
        if name.split(".")[0] in ("exercises", "pe_course", "pe_lib"):
            del sys.modules[name]
    os.chdir(folder)
    os.environ["HOME"] = home
    for cell in cells:
        try:
            exec(cell, book)
        except Exception as error:
            print(type(error).__name__ + ":", error)
    print("====")
"""


@pytest.fixture(scope="module")
def alone(archive: bytes, tmp_path_factory: pytest.TempPathFactory) -> dict[str, object]:
    """What is said by a solved notebook: online, then offline, then without a home folder."""
    site, root = tmp_path_factory.mktemp("site"), tmp_path_factory.mktemp("ü x")
    (site / "checks.zip").write_bytes(archive)
    server, url = serve(site)
    cells = json.loads(source_path(NAME).read_text(encoding="utf-8"))["cells"]
    question = load(NAME).questions[0]
    answer = next(
        source_text(cell)
        for cell in cells
        if nbgrader_metadata(cell).get("grade_id") == question.solution_id
    )
    test, last = f"checks.{question.name}({question.name})", code(release_path(NAME))[-1]
    use = "from pe_course.bakeoff.rows import SHIPPED, read_rows\nfrom pe_course import tasks\n"
    use += "assert read_rows(SHIPPED / 'small.csv') and tasks.load_text()\n"
    use += "from pe_course import pretrained\n"
    use += "pretrained.load_glass()(pretrained.encode('a published model')[None])"
    home, file = root / "home", root / "file"
    home.mkdir()
    file.touch()
    folders = {name: root / name for name in ("online", "offline", "homeless")}
    stages = []
    for name, at, place in (
        ("online", home, url), ("offline", home, NOWHERE), ("homeless", file, url)
    ):  # fmt: skip
        for beside in ("course", "exercises"):  # which the notebook leaves as they are
            (folders[name] / beside).mkdir(parents=True)
        first = FIRST.replace(SITE, place)
        stages.append((str(folders[name]), str(at), [first, answer, test, last, use, first]))
    (root / "stages.json").write_text(json.dumps(stages), encoding="utf-8")
    kept = {name: value for name, value in os.environ.items() if "proxy" not in name.lower()}
    done = subprocess.run(
        [sys.executable, "-c", CLEAN], cwd=root, capture_output=True, text=True,
        env=kept | {"OMP_NUM_THREADS": "1", "TMPDIR": str(site), "PYTHONPATH": ""},
    )  # fmt: skip
    server.shutdown()
    assert done.returncode == 0, done.stderr
    said = dict(zip(folders, done.stdout.split("====\n"), strict=False))
    return {"said": said, "folders": folders, "home": home}


@pytest.mark.parametrize("where", ["online", "offline", "homeless"])
def test_alone_a_notebook_brings_its_checks_and_leaves_its_folder_as_it_is(
    where: str, alone: dict
) -> None:
    """Offline by what was brought before, and without a home folder by what is brought anew."""
    first = load(NAME).questions[0].name
    said = alone["said"][where]
    assert f"{first}: right.\n" in said
    assert f"{NAME}: 1 of {len(load(NAME).questions)} exercises are right." in said
    assert "Error" not in said and "did not come" not in said
    assert (NOWHERE in said) == (where == "offline")
    folder = alone["folders"][where]
    assert {path.name for path in folder.rglob("*")} == {"course", "exercises", "progress.json"}


def test_what_was_brought_is_kept_once(alone: dict) -> None:
    (cache,) = (alone["home"] / ".cache").iterdir()
    kept, folder = sorted(cache.iterdir(), key=Path.is_dir)
    assert kept.name == "checks.zip" and (folder / "exercises/checks/__init__.py").exists()


# --- what does not come ------------------------------------------------------------------------


@pytest.fixture
def without_project(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    """Hide the checks from a first cell; an empty home folder."""
    monkeypatch.setitem(sys.modules, "exercises.checks", None)
    monkeypatch.delattr("exercises.checks", raising=False)  # loaded only if a test needed it
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    monkeypatch.setenv("no_proxy", "*")
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    monkeypatch.setattr(sys, "path", [*sys.path])
    return tmp_path


@pytest.mark.parametrize("place", ["truncated", "no zip", "empty", "another zip", "none", NOWHERE])
def test_words_stand_for_checks_that_do_not_come(
    place: str, archive: bytes, without_project: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Also below each answer, instead of an error; and nothing half unpacked is left."""
    server, url = serve(without_project)
    served = {"truncated": archive[:9000], "no zip": b"<html>Log in</html>", "empty": b"",
              "another zip": packed({})}  # fmt: skip
    if place in served:
        (without_project / "checks.zip").write_bytes(served[place])
    url = place if place == NOWHERE else url
    exec(FIRST.replace(SITE, url), book := {})
    server.shutdown()
    said = capsys.readouterr().out
    assert said.startswith(f"{url}checks.zip: ")
    words = said.splitlines()[-1]
    assert words.startswith("The checks did not come, so nothing is checked. Go online")
    for line in ("checks.looks(print)", f'checks.progress("{NAME}")'):
        exec(line, book)
        assert capsys.readouterr().out.strip() == words
    assert not (without_project / "home").exists()


def test_an_archive_that_is_spoiled_inside_leaves_no_folder(archive: bytes, tmp_path: Path) -> None:
    place = archive.index(b"pe_lib/rope.py") + 200
    spoiled = archive[:place] + b"\0" * 20 + archive[place + 20 :]
    with pytest.raises((zipfile.BadZipFile, zlib.error)):
        bring.unpacked(spoiled, tmp_path / "cache")
    assert list((tmp_path / "cache").iterdir()) == []


def test_nothing_is_unpacked_outside_of_its_folder(tmp_path: Path) -> None:
    escaping = packed({"../../outside.py": b"", "/absolute.py": b""})
    folder = bring.unpacked(escaping, tmp_path / "a" / "cache")
    files = {path for path in tmp_path.rglob("*") if path.is_file()}
    assert files == {folder / "outside.py", folder / "absolute.py"}


def test_an_update_is_unpacked_beside_what_a_running_notebook_reads(tmp_path: Path) -> None:
    kept = tmp_path / "checks.zip"
    old, new = packed({"said.txt": b"old"}), packed({"said.txt": b"new"})
    folders = [bring.keep(archive, kept) for archive in (old, new, new)]
    assert [(folder / "said.txt").read_text() for folder in folders] == ["old", "new", "new"]
    assert kept.read_bytes() == new
    assert {*tmp_path.iterdir()} == {kept, *folders}


def test_what_is_missing_is_installed(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """PyTorch installs without NumPy, which the checks need."""
    asked: list[list[str]] = []
    monkeypatch.setitem(sys.modules, "numpy", None)
    monkeypatch.setattr(subprocess, "run", lambda command, **_: asked.append(command))
    monkeypatch.setattr(sys, "path", [*sys.path])
    monkeypatch.setattr(sys, "modules", dict(sys.modules))
    bring.bring(packed({}), tmp_path / "checks.zip")
    assert asked == [[sys.executable, "-m", "pip", "install", "--quiet", "numpy"]]
