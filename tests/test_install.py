"""What others install is `pe_lib` and `posdoctor`, and needs what it says."""

from __future__ import annotations

import email
import json
import os
import re
import shutil
import subprocess
import sys
import sysconfig
import zipfile
from pathlib import Path

import nbformat
import pytest

from tools import ROOT

SHIPPED = ("pe_lib", "pe_course", "posdoctor")
USE = """
import importlib, pkgutil, sys

import pe_lib, posdoctor

names = [module.name for room in (pe_lib, posdoctor)
         for module in pkgutil.walk_packages(room.__path__, room.__name__ + ".")]
for name in names:
    importlib.import_module(name)
loaded = {name.partition(".")[0] for name in sys.modules}
foreign = {"IPython", "ipywidgets", "matplotlib", "pe_course", "sklearn", "tools", "yaml"}
print(pe_lib.__file__, len(names), *foreign & loaded)
"""
ASK = """
from pe_lib.rope import RoPE
from posdoctor import assert_sound

half = RoPE(64, layout="half")
assert_sound(lambda q, k, p: half.rotate(q, k, p, p), expect="config.json")
"""
CONFIG = {"model_type": "llama", "num_hidden_layers": 2, "head_dim": 64, "rope_theta": 1e4}


@pytest.fixture(scope="module")
def wheel(tmp_path_factory) -> Path:
    """Build the wheel, without a network."""
    copy = tmp_path_factory.mktemp("copy")  # setuptools writes beside what it builds
    for name in ("pyproject.toml", "README.md", "LICENSE"):
        shutil.copy(ROOT / name, copy)
    for room in (*SHIPPED, "exercises"):
        shutil.copytree(ROOT / room, copy / room, ignore=shutil.ignore_patterns("__pycache__"))
    pip = [sys.executable, "-m", "pip", "wheel", "--quiet", "--disable-pip-version-check"]
    options = ["--no-deps", "--no-build-isolation", "--no-index", f"--wheel-dir={copy / 'made'}"]
    done = subprocess.run([*pip, *options, str(copy)], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return next((copy / "made").glob("*.whl"))


@pytest.fixture(scope="module")
def metadata(wheel):
    """What the wheel says of itself."""
    with zipfile.ZipFile(wheel) as files:
        name = next(name for name in files.namelist() if name.endswith("/METADATA"))
        return email.message_from_bytes(files.read(name))


def sources() -> set[str]:
    """Return the files of what is shipped, as they are named in the wheel."""
    return {
        str(path.relative_to(ROOT))
        for room in SHIPPED
        for path in (ROOT / room).rglob("*")
        if path.is_file() and not {"__pycache__", "src", "bench"} & {*path.parts}
        if not re.match(r"bench\.|package", path.name)  # of the site alone
    }


def test_the_wheel_holds_what_readers_import_and_nothing_else(wheel):
    with zipfile.ZipFile(wheel) as files:
        names = {name for name in files.namelist() if ".dist-info/" not in name}
    assert names == sources()
    assert {f"{room}/py.typed" for room in SHIPPED} <= names


@pytest.fixture(scope="module")
def alone(wheel, tmp_path_factory):
    """Return how to run Python where nothing of the course is on the path, and the place."""
    target = tmp_path_factory.mktemp("alone") / "site"
    with zipfile.ZipFile(wheel) as files:
        files.extractall(target)
    (target.parent / "config.json").write_text(json.dumps(CONFIG))
    places = [target, sysconfig.get_path("purelib"), sysconfig.get_path("platlib")]
    path = os.pathsep.join(map(str, dict.fromkeys(places)))

    def run(*arguments: str) -> subprocess.CompletedProcess[str]:
        line = [sys.executable, "-S", *arguments]
        environment = os.environ | {"PYTHONPATH": path}
        return subprocess.run(
            line, cwd=target.parent, env=environment, capture_output=True, text=True
        )

    return run, target


def test_every_module_works_with_nothing_of_the_course_on_the_path(alone):
    run, target = alone
    done = run("-c", USE)
    assert done.returncode == 0, done.stderr
    modules = [name for name in sources() if re.fullmatch(r"(pe_lib|posdoctor)/.*\.py", name)]
    assert done.stdout.split() == [str(target / "pe_lib/__init__.py"), str(len(modules) - 2)]


def test_chapters_read_their_data_with_nothing_but_the_wheel(alone, tmp_path):
    run, _ = alone
    chapters = [*(ROOT / "book").glob("[0-9]*.ipynb"), ROOT / "book/lab_book.ipynb"]
    copies = [shutil.copy(path, tmp_path) for path in chapters]
    done = run(str(ROOT / "tests/chapters_alone.py"), *map(str, copies))
    assert done.returncode == 0, done.stderr[-3000:]
    assert len(ran := json.loads(done.stdout)) == len(chapters) and min(ran.values()) > 0, ran


PASTE = """
import json, sys

for cell in json.loads(open(sys.argv[1], encoding="utf-8").read())["cells"]:
    if cell["cell_type"] == "code" and cell["id"] != "install":
        exec("".join(cell["source"]), {"__name__": "__main__"})
print(*{name.partition(".")[0] for name in sys.modules} & {"IPython", "pe_course", "transformers"})
"""


@pytest.mark.parametrize("page", ["answers", "own_code"])
def test_blocks_run_when_pasted_with_nothing_but_the_wheel(alone, page):
    run, _ = alone
    done = run("-c", PASTE, str(ROOT / f"book/{page}.ipynb"))
    assert done.returncode == 0 and done.stdout.splitlines()[-1] == "", done.stdout + done.stderr


def test_what_the_page_says_of_tests_and_of_ci_runs_in_a_folder_with_nothing_but_the_wheel(alone):
    run, target = alone
    cells = {cell.id: cell.source for cell in nbformat.read(ROOT / "book/own_code.ipynb", 4).cells}
    blocks = (cells[name] for name in ("own-rotary-code", "own-factory-code"))
    mine = "\n\n".join(block.rpartition("\n\n\n")[0] for block in blocks)
    folder = target.parent
    (folder / "my_rope.py").write_text(mine)
    (folder / "configs").mkdir()
    shutil.copy(folder / "config.json", folder / "configs/llama.json")
    test = re.search(r"```python\n(.*?)```", cells["own-shell"], re.DOTALL)[1]
    (folder / "test_mine.py").write_text(test)
    lines = re.findall(r"run: (posdoctor .*)", cells["own-shell"])
    done = [run("-m", *line.split()) for line in lines]
    assert [one.returncode for one in done] == [0, 0], [one.stdout + one.stderr for one in done]
    assert run("-m", "pytest", "-q", "-p", "no:cacheprovider", "test_mine.py").returncode == 0
    (folder / "config.json").write_text(json.dumps(CONFIG | {"rope_theta": 5e5}))
    try:
        assert run("-m", *lines[0].split()).returncode == 1
        failed = run("-m", "pytest", "-q", "-p", "no:cacheprovider", "test_mine.py")
        assert "rotary function rotate: base" in failed.stdout
    finally:
        (folder / "config.json").write_text(json.dumps(CONFIG))


def test_the_doctor_examines_with_nothing_of_the_course_on_the_path(alone):
    run, target = alone
    done = run("-c", ASK + "print('sound')" + ASK.replace('"half"', '"interleaved"'))
    assert done.stdout == "sound\n", done.stderr
    assert "AssertionError: rotary function <lambda>: layout\n" in done.stderr
    told = run("-m", "posdoctor", "config.json", "--explain")
    assert "pairs half, base 10000" in told.stdout, told.stderr
    shutil.copy(ROOT / "tests/planted.py", target.parent / "mine.py")
    named = run("-m", "posdoctor", "mine:mixed_layouts", "--expect", "config.json")
    assert named.returncode == 1 and "FAULT: mixed-layouts" in named.stdout, named.stderr


def test_the_wheel_asks_for_the_versions_that_are_tested(metadata):
    names = ("requirements.txt", "tests/colab.txt", "tests/oldest.txt")
    pins = "\n".join((ROOT / name).read_text(encoding="utf-8") for name in names).lower()
    for bound in metadata.get_all("Requires-Dist"):
        name, version = bound.partition(";")[0].strip().split(">=")
        tested = re.findall(rf"^{name}==(\d+\.\d+)", pins, re.MULTILINE)
        assert version == min(tested, key=lambda text: [*map(int, text.split("."))]), bound
    flows = "".join(path.read_text() for path in (ROOT / ".github/workflows").glob("*.yml"))
    tested = sorted(set(re.findall(r'python-version: "(3\.\d+)"', flows)))
    assert metadata["Requires-Python"] == f">={tested[0]}"
    named = re.findall(r"Python :: (3\.\d+)", "\n".join(metadata.get_all("Classifier")))
    assert sorted(named) == tested


def test_the_changelog_says_what_this_version_brought(metadata):
    changes = (ROOT / "CHANGELOG.md").read_text(encoding="utf-8")
    assert re.search(rf"^## {re.escape(metadata['Version'])}\b", changes, re.MULTILINE)


def test_an_environment_of_the_course_has_the_rest_too(tmp_path):
    """As `make` installs it: notebooks import it wherever they lie."""
    rest = "import exercises, pe_course, posdoctor; print(pe_course.__path__[0])"
    done = subprocess.run(
        [sys.executable, "-c", rest], cwd=tmp_path, env=os.environ | {"PYTHONPATH": ""},
        capture_output=True, text=True,
    )  # fmt: skip
    assert done.stdout.strip() == str(ROOT / "pe_course"), done.stderr
