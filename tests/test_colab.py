"""Chapters where nothing of the course is installed, as in Colab, whose packages are older too."""

from __future__ import annotations

import hashlib
import importlib.util
import json
import math
import shutil
import subprocess
import sys
import sysconfig
import venv

import nbformat
import pytest
from IPython.core.interactiveshell import InteractiveShell
from nbclient import NotebookClient

from browsing import left_out
from tools import ROOT, environment, refresh

LIST = ROOT / "tests" / "colab.txt"
HOME = ROOT / "_build" / "colab"
ASK = "import IPython, ipywidgets, numpy; print(IPython.__version__, ipywidgets.__version__)"


def install() -> None:
    """Make an environment of what Colab's list names; what it leaves out comes from this one."""
    stamp, digest = HOME / "list", hashlib.sha256(LIST.read_bytes()).hexdigest()
    if stamp.exists() and stamp.read_text() == digest:
        return
    shutil.rmtree(HOME, ignore_errors=True)
    venv.create(HOME)
    python = HOME / "bin" / "python"
    pip = [sys.executable, "-m", "pip", "--python", python, "install", "--quiet", "--no-deps"]
    done = subprocess.run([*pip, "-r", LIST], capture_output=True, text=True)
    if done.returncode:
        left_out(f"Colab's packages could not be had: {done.stderr[-300:]}")
    own = next(HOME.glob("lib/python*/site-packages"))
    (own / "course.pth").write_text(sysconfig.get_paths()["purelib"] + "\n")
    spec = HOME / "share" / "jupyter" / "kernels" / "colab"
    spec.mkdir(parents=True)
    argv = [str(python), "-m", "ipykernel_launcher", "-f", "{connection_file}"]
    (spec / "kernel.json").write_text(
        json.dumps({"argv": argv, "language": "python", "display_name": "Colab"})
    )
    stamp.write_text(digest)


@pytest.fixture
def colab(monkeypatch, tmp_path) -> str:
    """Return the name of the kernel that has Colab's versions."""
    install()
    for name, value in environment.child("native").items():
        monkeypatch.setenv(name, value)
    monkeypatch.setenv("JUPYTER_PATH", str(HOME / "share" / "jupyter"))
    monkeypatch.setenv("IPYTHONDIR", str(tmp_path))
    monkeypatch.setenv("PYTHONPATH", str(ROOT))
    return "colab"


def first_with(mark: str) -> str:
    """Return the chapter with a mark that runs the fewest cells up to it."""
    found = {}
    for path in sorted((ROOT / "book").glob("[0-9][0-9]_*.ipynb")):
        sources = [cell.source for cell in nbformat.read(path, as_version=4).cells]
        found[path.stem] = next((i for i, each in enumerate(sources) if mark in each), math.inf)
    return min(found, key=found.get)


def run_until(name: str, mark: str, kernel: str) -> nbformat.NotebookNode:
    """Run a notebook's cells up to the first that has a mark; return that cell."""
    notebook = nbformat.read(ROOT / "book" / f"{name}.ipynb", as_version=4)
    last = next(i for i, cell in enumerate(notebook.cells) if mark in cell.source)
    notebook.cells = [nbformat.v4.new_code_cell(ASK), *notebook.cells[: last + 1]]
    where = {"metadata": {"path": str(ROOT / "book")}}
    NotebookClient(notebook, kernel_name=kernel, timeout=600, resources=where).execute()
    assert notebook.cells[0].outputs[0].text == "7.34.0 7.7.1\n"
    return notebook.cells[-1]


@pytest.fixture
def pip(monkeypatch) -> list[str]:
    """What is asked of pip where the course is missing."""
    asked: list[str] = []
    monkeypatch.setattr(importlib.util, "find_spec", lambda _: "installed" if asked[1:] else None)
    shell = InteractiveShell.instance()
    monkeypatch.setitem(shell.magics_manager.magics["line"], "pip", asked.append)
    return asked


def test_the_first_cell_does_nothing_where_the_course_is_installed(pip):
    pip += ["", ""]
    assert InteractiveShell.instance().run_cell(refresh.INSTALL).success and pip == ["", ""]


@pytest.mark.parametrize(("modules", "options"), [({}, ""), ({"google.colab": sys}, "--no-deps")])
def test_the_first_cell_installs_the_course_where_it_is_missing(modules, options, pip, monkeypatch):
    """Colab keeps its own torch, NumPy and Matplotlib."""
    pip.append("")
    monkeypatch.setattr(sys, "modules", sys.modules | modules)
    assert InteractiveShell.instance().run_cell(refresh.INSTALL).success
    course = "https://github.com/positional-encodings/course/archive/refs/heads/main.zip"
    assert pip[1].split() == [
        "install",
        "--quiet",
        *options.split(),
        '"pe-lib[course]',
        "@",
        f'{course}"',
    ]


@pytest.mark.filterwarnings("ignore:To exit")  # IPython's words after a cell that stops
def test_without_a_network_the_first_cell_says_so_in_words(pip, capsys):
    done = InteractiveShell.instance().run_cell(refresh.INSTALL)
    assert isinstance(done.error_in_exec, SystemExit) and len(pip) == 1
    shown = capsys.readouterr().out
    assert "Go online, then run this cell again." in shown and "Traceback" not in shown


def test_chapters_read_their_data_in_colab(colab, tmp_path):
    chapters = sorted((ROOT / "book").glob("[0-9]*.ipynb"))
    copies = [shutil.copy(path, tmp_path) for path in chapters]
    program = [HOME / "bin" / "python", ROOT / "tests/chapters_alone.py", *copies]
    done = subprocess.run(program, cwd=tmp_path, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr[-3000:]
    assert min(json.loads(done.stdout).values()) > 0


def test_a_slider_moves_in_colab(colab):
    cell = run_until(first_with("explore.slider("), "explore.slider(", colab)
    page = next(each.data["text/html"] for each in cell.outputs if "text/html" in each.data)
    assert 'type="range"' in page and page.count("<img") > 2  # where no kernel runs
    assert [each for each in cell.outputs if each.output_type in {"error", "stream"}] == []


def test_a_figure_computes_in_colab(colab):
    cell = run_until("00_intro", "live.show(", colab)
    forms = next(each.data for each in cell.outputs if "image/png" in each.data)
    assert "application/vnd.jupyter.widget-view+json" in forms
    assert [each for each in cell.outputs if each.output_type in {"error", "stream"}] == []
