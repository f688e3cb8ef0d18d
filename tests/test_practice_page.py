"""Exercises that open in their page: the small tensor says what torch says, and a browser runs it."""

from __future__ import annotations

import contextlib
import functools
import io
import json
import subprocess
import sys
from pathlib import Path

import pytest
import torch

from exercises import proofs
from exercises.checks import EXERCISES, CheckFailed
from tools import practice

# What a program says of answers, given as sources, and of the mistakes that a check knows.
ASK = """
import contextlib, io, json, sys
sys.path.insert(0, sys.argv[1])
import runner
def known(name, number):
    exercise, _ = runner.find(name)
    with contextlib.redirect_stdout(said := io.StringIO()):
        try:
            exercise(exercise.mistakes[number].function)
        except Exception as error:
            show = getattr(error, "_render_traceback_", None)
            return show()[0] if show else f"{type(error).__name__}: {error}"
    return said.getvalue().strip()
for line in sys.stdin:
    name, answer = json.loads(line)
    said = known(name, answer) if isinstance(answer, int) else runner.check(name, answer)["said"]
    print(json.dumps(said), flush=True)
"""


@pytest.fixture(scope="module")
def page_python(tmp_path_factory) -> Path:
    """Return a folder with what Python in the page imports."""
    folder = tmp_path_factory.mktemp("page")
    files = practice.files() | {
        f"{name}.json": json.dumps(practice.exercise(name)).encode() for name in practice.OPEN
    }
    for name, data in files.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_bytes(data)
    return folder


def said_in_the_page(folder: Path, asked: list[tuple[str, str | int]]) -> list[str]:
    lines = "\n".join(map(json.dumps, asked))
    done = subprocess.run([sys.executable, "-I", "-c", ASK, folder], input=lines, text=True,
                          capture_output=True, check=False)  # fmt: skip
    assert done.returncode == 0, done.stderr[-3000:]
    return list(map(json.loads, done.stdout.splitlines()))


def said_in_a_notebook(name: str, answer: str | int) -> str:
    exercise = EXERCISES[name]
    said = io.StringIO()
    with contextlib.redirect_stdout(said):
        try:
            if isinstance(answer, int):
                exercise(exercise.mistakes[answer].function)
            else:
                space: dict[str, object] = {"torch": torch, "math": __import__("math")}
                exec(practice.asked(name)["given"] + "\n" + answer, space)
                exercise(space[name])  # type: ignore[arg-type]
        except CheckFailed as failed:
            return failed._render_traceback_()[0]
        except Exception as error:
            return f"{type(error).__name__}: {error}"
    return said.getvalue().strip()


@functools.cache
def answers(name: str) -> tuple[tuple[str, str | int], ...]:
    """Return the right answer, the changes to it, other right answers, and the known mistakes."""
    one = practice.set_of(name)
    mutants, others = proofs.read(one)
    found: list[tuple[str, str | int]] = [("solution", proofs.solution_cells(one)[name])]
    found += [(f"~ {each.says}", proofs.mutated(one, each)) for each in mutants
              if each.exercise == name]  # fmt: skip
    found += [(f"right ~ {each.title}", each.source) for each in others if each.exercise == name]
    found += [(each.message, number) for number, each in enumerate(EXERCISES[name].mistakes)]
    return tuple(found)


@pytest.mark.parametrize("name", practice.OPEN)
def test_the_page_says_what_the_notebook_says(name, page_python):
    asked = [(name, answer) for _, answer in answers(name)]
    differ = []
    for (what, answer), in_page in zip(
        answers(name), said_in_the_page(page_python, asked), strict=True
    ):
        if what.startswith("right ~ ") and "is not here; in the notebook it is" in in_page:
            continue
        in_notebook = said_in_a_notebook(name, answer)
        if what == "~ crash":  # torch's own words for it are not repeated, but for the kind
            in_notebook, in_page = (said.partition(":")[0] for said in (in_notebook, in_page))
        if in_page != in_notebook:
            differ.append(f"{what}: {in_page!r} for {in_notebook!r}")
    assert not differ
