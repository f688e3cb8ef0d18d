"""Pages in Colab, whose image has an older IPython, ipywidgets, matplotlib and NumPy than ours."""

from __future__ import annotations

import hashlib
import json
import math
import shutil
import subprocess
import sys
import sysconfig
import venv

import nbformat
import pytest
from nbclient import NotebookClient

from browsing import left_out
from tools import ROOT, environment

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
