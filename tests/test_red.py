"""A red run can be read: each cause once, what failed and what to do at the end."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import nbformat
import pytest
from nbformat.v4 import new_code_cell, new_notebook

from tools import ROOT

# The course's own fixtures, with a build that fails and kernels that do not start.
CONFTEST = f"""
import importlib.util, sys
from pathlib import Path
from tools import forked_kernel

sys.path.append("{ROOT / "tests"}")
spec = importlib.util.spec_from_file_location("shared", "{ROOT / "tests/conftest.py"}")
shared = importlib.util.module_from_spec(spec)
spec.loader.exec_module(shared)
shared.ROOT = Path(__file__).parent / "broken"
sandbox, browser, site = shared.sandbox, shared.browser, shared.site

def broken():
    raise OSError("no more processes")

forked_kernel.forked = broken
"""
NEEDS = """
import pytest
several = pytest.mark.parametrize("number", range(40))

@several
def test_sandbox(sandbox, number): pass

@several
def test_browser(browser, number): pass

@several
def test_site(site, number): pass
"""
FLOOD = """
import pytest
several = pytest.mark.parametrize("number", range(150))

@several
def test_flood(number):
    print("flooded\\n" * 1000)
    raise ValueError(f"the number {number} is wrong")

@several
def test_compared(number):
    assert number == -1

def test_well(): pass
"""


def run(folder: Path, *options: str) -> list[str]:
    """Run pytest in a folder as `make test` does; the lines it prints."""
    for name in ("bwrap", "chromium-headless-shell"):
        fake = folder / "bin" / name
        fake.parent.mkdir(exist_ok=True)
        fake.write_text(f"#!/bin/sh\necho {name} is broken >&2\nexit 1\n")
        fake.chmod(0o755)
    command = [sys.executable, "-m", "pytest", "-q", "-ra", "-p", "no:cacheprovider"]
    command += ["-p", "tools.red", *options, f"--rootdir={folder}", "."]
    outside = {name: os.environ[name] for name in os.environ if name != "CI"}
    path = {"PATH": f"{folder / 'bin'}:{os.environ['PATH']}", "PYTHONPATH": str(ROOT)}
    done = subprocess.run(
        command, cwd=folder, env=outside | path, capture_output=True, text=True, check=False
    )
    assert done.returncode == 1, done.stdout + done.stderr
    assert done.stderr == ""
    return done.stdout.splitlines()


def summary(lines: list[str]) -> str:
    """Return the last part of what was printed."""
    return "\n".join(lines).rpartition("what failed, and what to do ==")[2]


@pytest.fixture(scope="module")
def lacking(tmp_path_factory) -> list[str]:
    """What is printed where nothing works that many tests need."""
    folder = tmp_path_factory.mktemp("lacking")
    (folder / "conftest.py").write_text(CONFTEST)
    (folder / "test_needs.py").write_text(NEEDS)
    for name in ("one", "two"):
        cells = [new_code_cell(f"{name} = {i}", execution_count=i + 1) for i in range(20)]
        nbformat.write(new_notebook(cells=cells), folder / f"{name}.ipynb")
    (folder / "broken/tools").mkdir(parents=True)
    words = "for i in range(3000): print('a warning')\nraise SystemExit('a label is missing')"
    (folder / "broken/tools/build.py").write_text(words)
    (folder / "broken/tools/__init__.py").touch()
    nbval = ["-p", "tools.nbval_whole", "--nbval", "--nbval-current-env"]
    return run(folder, *nbval, "-n", "2", "--dist=loadfile")


def test_what_many_tests_need_is_one_failure_each(lacking):
    assert re.match(r"4 failed, 160 skipped in ", lacking[-1])
    assert sum("as one failure says" in line for line in lacking) == 4
    assert len(lacking) < 300


@pytest.mark.parametrize(
    ("headline", "why"),
    [
        ("the sandbox does not work", "bwrap is broken"),
        ("the browser does not start: ", "chromium-headless-shell is broken"),
        ("the book does not build: `make book`", "a label is missing"),
        ("no notebook can run: no kernel starts", "OSError: no more processes"),
    ],
)
def test_each_says_why_and_is_named_at_the_end(lacking, headline, why):
    assert sum(why in line for line in lacking) >= 1
    assert summary(lacking).count(headline) == 1
    assert "-m pytest -v" in summary(lacking)


def test_one_cause_is_printed_once_and_short(tmp_path):
    (tmp_path / "test_flood.py").write_text(FLOOD)
    lines = run(tmp_path)
    assert len(lines) < 300
    assert re.match(r"300 failed, 1 passed in ", lines[-1])
    assert "test_flood.py::test_flood[0], and 149 more:" in summary(lines)
    assert "test_flood.py::test_compared[0], and 149 more:" in summary(lines)
    full = (tmp_path / "_build/failures.txt").read_text()
    assert full.count("flooded\n") == 150_000
    assert str(tmp_path / "_build/failures.txt") in summary(lines)
