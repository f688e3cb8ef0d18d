"""Exercises that open in their page: a small tensor says what torch says, and a browser runs it."""

from __future__ import annotations

import contextlib
import functools
import io
import json
import linecache
import math
import operator
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import torch

from browsing import Visit, left_out, serve, watched
from exercises import proofs
from exercises.checks import EXERCISES
from exercises.sets import source_text
from pe_course import practice as rungs
from pe_course.judge.recorded import stored
from tools import ROOT, practice

# What a program says of answers, given as sources, and of what a mistake returns.
ASK = """
import contextlib, io, json, sys
sys.path.insert(0, sys.argv[1])
import runner
def known(name, results):
    results = map(runner.recorded.value, results)
    def answer(*given):
        result = next(results)
        if result is None:
            raise ValueError
        return result
    with contextlib.redirect_stdout(io.StringIO()) as said:
        runner.find(name)(answer)
    return said.getvalue().strip()
for line in sys.stdin:
    name, answer = json.loads(line)
    said = known(name, answer) if isinstance(answer, list) else runner.check(name, answer)["said"]
    print(json.dumps(said), flush=True)
"""


CHECKS = {name: EXERCISES[name] for name in practice.OPEN}
CHECKS |= {check.name: check for check in rungs.RUNGS.values()}


@pytest.fixture(scope="module")
def page_python(tmp_path_factory) -> Path:
    """Return a folder with what Python in the page imports."""
    folder = tmp_path_factory.mktemp("page")
    files = practice.files() | {
        f"{name}.json": json.dumps(practice.exercise(name)).encode() for name in CHECKS
    }
    for name, data in files.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_bytes(data)
    return folder


def said_in_the_page(folder: Path, asked: list[tuple[str, Any]]) -> list[str]:
    lines = "\n".join(map(json.dumps, asked))
    done = subprocess.run([sys.executable, "-I", "-c", ASK, folder], input=lines, text=True,
                          capture_output=True, check=False)  # fmt: skip
    assert done.returncode == 0, done.stderr[-3000:]
    return list(map(json.loads, done.stdout.splitlines()))


def said_in_a_notebook(name: str, source: str) -> str:
    space: dict[str, Any] = {"__name__": "__main__", "torch": torch, "math": math}
    exec(practice.exercise(name)["given"], space)
    linecache.cache["<answer>"] = (len(source), None, source.splitlines(keepends=True), "<answer>")
    with contextlib.redirect_stdout(io.StringIO()) as said:
        exec(compile(source, "<answer>", "exec"), space)
        CHECKS[name](space[name])
    return said.getvalue().strip()


@functools.cache
def answers(name: str) -> tuple[tuple[str, str], ...]:
    """Return the right answer, the changes to it, and other right answers."""
    if name in practice.RUNGS:
        stub, solution = first_rung(practice.RUNGS[name])
        return ("stub", stub), ("solution", solution)
    one = practice.set_of(name)
    mutants, others = proofs.read(one)
    found = [("solution", proofs.solution_cells(one)[name])]
    found += [(f"~ {each.says}", proofs.mutated(one, each)) for each in mutants
              if each.exercise == name]  # fmt: skip
    found += [(f"right ~ {each.title}", each.source) for each in others if each.exercise == name]
    return tuple(found)


def first_rung(page: str) -> tuple[str, str]:
    """Return the cell in which a chapter asks for its own formula, and the folded answer."""
    notebook = json.loads((ROOT / f"book/{page}.ipynb").read_text(encoding="utf-8"))
    texts = {cell["id"]: source_text(cell) for cell in notebook["cells"]}
    answer = re.search(r"```python\n(.*?)```", texts["solution-write-it-yourself"], re.DOTALL)
    return texts["write-it-yourself"], answer[1]


def plain(said: str) -> str:
    """Return what is said without what torch itself words, or rounding decides."""
    said = re.sub(r"^(\w+Error): .*", r"\1", said, flags=re.MULTILINE | re.DOTALL)
    return re.sub(r" \(\d+ % of them\)", "", said) if "nearly right" in said else said


@pytest.mark.parametrize("name", CHECKS)
def test_the_page_says_what_the_notebook_says(name, page_python):
    asked = [(name, answer) for _, answer in answers(name)]
    differ, lacking = [], []
    for (what, answer), in_page in zip(
        answers(name), said_in_the_page(page_python, asked), strict=True
    ):
        elsewhere = re.search(r"NotHere: `(numpy\.|Tensor\.numpy`)", in_page)
        if what.startswith("right ~ ") and elsewhere:
            lacking.append(what)
        elif plain(in_page) != plain(said_in_a_notebook(name, answer)):
            differ.append(f"{what}: {in_page}")
    assert not differ
    assert len(lacking) <= 2


@pytest.mark.parametrize("name", CHECKS)
def test_the_page_knows_each_mistake_by_what_it_gives(name, page_python):
    exercise = CHECKS[name]
    _, _, known = exercise.drawn(0)
    asked = [(name, [stored(result) for result in results]) for _, results in known]
    words = [f"Not yet: {mistake.message}" for mistake in exercise.mistakes]
    assert said_in_the_page(page_python, asked) == words


@pytest.mark.parametrize(
    ("body", "says"),
    [
        (
            "torch.fft",
            "`torch.fft` is not here. This is a limit of the page, not a mistake of "
            "yours: in the notebook it works.",
        ),
        (
            "torch.linalg.qr(1)",
            "`torch.linalg.qr` is not here. If PyTorch has it, this is a limit "
            "of the page, not a mistake of yours: in the notebook it works. Near to it, and here: "
            "`torch.linalg.svd`.",
        ),
        ("torch.ones(2).mode()", "`Tensor.mode` is not here. This is a limit of the page"),
        ("torch.ones(2).sum(out=1)", "`Tensor.sum(out=...)` is not here. If PyTorch takes it"),
        ("torch.sum(torch.ones(2), out=1)", "`torch.sum(out=...)` is not here. If PyTorch takes"),
        ("torch.tril(torch.ones(2, 2), 1, 2)", "`torch.tril with these arguments` is not here."),
        (
            "__import__('numpy').linspace(0, 1)",
            "`numpy.linspace` is not here. If numpy has it, this is a limit of "
            "the page, not a mistake of yours: in the notebook it works. Near to it, and here: "
            "`torch.linspace`.",
        ),
        ("__import__('torch.fft')", "`torch.fft` is not here."),
        ("torch.sofmax(1)", "module 'torch' has no attribute 'sofmax'"),
        ("torch.ones(2) + torch.ones(3)", "must match the size of tensor b (3)"),
        ("torch.ones(2, 3) @ torch.ones(2, 3)", "shapes cannot be multiplied (2x3 and 2x3)"),
        ("torch.ones(2, 3) @ torch.ones(3, 2).double()", "to have the same dtype, but got: float"),
        ("torch.ones(2, 3).T.view(6)", "view size is not compatible"),
        ("1 / 0", "line 2, in base_for, raises an error\n    return 1 / 0\nZeroDivisionError: div"),
        ("__import__('sys').exit('left')", "\nSystemExit: left"),
        ("))", '<your answer>", line 2\n    return ))\n'),
    ],
)
def test_an_error_names_what_is_missing_and_the_line(body, says, page_python):
    answer = f"def base_for(*given):\n    return {body}"
    assert says in said_in_the_page(page_python, [("base_for", answer)])[0]


def alike(a, b) -> bool:
    """Return whether two values of JSON are the same but for rounding."""
    if isinstance(a, list) and isinstance(b, list):
        return len(a) == len(b) and all(map(alike, a, b))
    if isinstance(a, int | float) and isinstance(b, int | float):
        return a == pytest.approx(b, rel=1e-6, abs=1e-6, nan_ok=True)
    return a == b


def test_a_line_gives_in_the_page_what_it_gives_in_torch(page_python):
    lines = Path(__file__).with_name("page_torch.txt")
    command = [sys.executable, "-I", lines.with_suffix(".py"), lines]
    asked = ([], [page_python])
    torchs, pages = (
        subprocess.run(command + more, capture_output=True, text=True, check=True).stdout
        for more in asked
    )
    rows = zip(lines.read_text().splitlines(), torchs.splitlines(), pages.splitlines(), strict=True)
    assert [row for row in rows if not alike(*map(json.loads, row[1:]))] == []


def test_what_the_page_lacks_is_in_torch_and_what_it_names_instead_is_here(page_python):
    script = """if True:
        import json, sys
        sys.path.insert(0, sys.argv[1])
        import runner, torch
        near = {name.partition("(")[0].removeprefix("torch.") for name in torch.NEAR.values()}
        print(json.dumps([torch.lacking(), [name for name in near if not torch.is_here(name)]]))
    """
    command = [sys.executable, "-I", "-c", script, page_python]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    groups, absent = json.loads(done.stdout)
    assert absent == []
    for _, names in groups:
        for name in names:
            assert operator.attrgetter(name)(torch) is not None, name


def test_without_npm_the_page_says_why_nothing_opens(monkeypatch):
    practice.possible.cache_clear()
    monkeypatch.setattr(practice.shutil, "which", lambda name: None)
    words = practice.section("10_rope")
    practice.possible.cache_clear()
    assert "built without npm" in words
    assert "button" not in words


def test_each_exercise_stands_in_the_chapter_of_its_set():
    if practice.possible():
        left_out(practice.possible())
    for one in practice.SETS:
        names = re.findall(r'data-exercise="(\w+)"', practice.section(one))
        assert names == [name for name in practice.OPEN if practice.set_of(name) == one]


def test_the_first_rung_stands_in_the_place_of_its_cells_in_the_chapter():
    if practice.possible():
        left_out(practice.possible())
    for page, check in rungs.RUNGS.items():
        cells = json.loads((ROOT / f"book/{page}.ipynb").read_text(encoding="utf-8"))["cells"]
        shown = practice.with_rung(page, cells)
        at = next(n for n, cell in enumerate(shown) if cell["id"] == "rung")
        assert f'data-exercise="{check.name}" data-start="def {check.name}(' in shown[at]["source"]
        assert [cell["id"] for cell in cells[at : at + 2]] == [
            "write-it-yourself", "write-it-yourself-check"
        ]  # fmt: skip
        assert shown[:at] + shown[at + 1 :] == cells[:at] + cells[at + 2 :]


@pytest.mark.parametrize("name", practice.OPEN)
def test_a_page_asks_for_a_forecast_and_answers_it_and_has_no_cell_to_double_click(name):
    found = practice.asked(name)
    assert ("**Your forecast**" in found["text"]) == ("The forecast:" in found["after"])
    assert "Double-click" not in found["text"] and "Below the check" not in found["text"]


RIGHT = """def trained_for(dim, base, count):
    return math.ceil(2 * math.pi * base ** (2 * (dim // 2 - count) / dim)) - 1
"""
ANSWERED = """() => document.querySelector('.practice-verdict')?.textContent &&
  !document.querySelector('.practice-run').disabled"""


@pytest.fixture
def home(tmp_path):
    """Serve a page with an exercise; its address."""
    if why := practice.possible():
        left_out(why)
    practice.write(tmp_path / practice.FOLDER)
    button = re.search(r'<div class="practice".*</div>', practice.place("trained_for"), re.DOTALL)
    page = f'<!DOCTYPE html><title>x</title><link rel="icon" href="data:,">{button[0]}'
    (tmp_path / "book").mkdir()
    (tmp_path / "book" / "page.html").write_text(page, encoding="utf-8")
    server, url = serve(tmp_path)
    yield url
    server.shutdown()


def test_an_exercise_is_answered_in_the_page(browser, home):
    page, visit, asked = browser.new_page(), Visit(), []
    page.on("request", lambda request: asked.append(request.url))
    page.on("dialog", lambda dialog: dialog.accept())

    def said(answer: str) -> str:
        page.locator(".cm-content").press("Control+a")
        page.keyboard.insert_text(answer)
        page.keyboard.press("Control+Enter")
        page.wait_for_function(ANSWERED)
        return page.locator(".practice-verdict").inner_text()

    with watched(page, home, visit):
        page.goto(f"{home}book/page.html")
        assert [url for url in asked if "practice" in url] == []  # nothing before the click
        page.get_by_role("button", name="Write it here").click()
        page.get_by_role("textbox", name="Your answer: trained_for").wait_for()
        page.get_by_text("What of PyTorch is not here").click()
        page.get_by_text("nn.Linear").wait_for()
        assert said(RIGHT) == "trained_for: right."
        assert said(RIGHT.replace(" - 1", "")).startswith("Not yet: this is the shortest text")
        page.evaluate("window.later = setTimeout; setTimeout = (call, ms) => later(call, ms / 10)")
        assert said("def trained_for(*given):\n    while True: pass").startswith("Stopped: ")
        page.evaluate("setTimeout = later")  # that loop had one second instead of ten
        assert said(f"print('seen')\n{RIGHT}") == "trained_for: right."
        assert page.locator(".practice-printed").inner_text() == "seen\n"
        page.reload()
        page.get_by_role("button", name="Write it here").click()
        assert "seen" in page.locator(".cm-content").inner_text()
        page.get_by_role("button", name="Forget my answer, begin again").click()
        assert "raise NotImplementedError" in page.locator(".cm-content").inner_text()
        page.locator(".cm-content").press("Escape")
        page.keyboard.press("Tab")
        assert page.evaluate("document.activeElement.textContent") == "Check"
    page.close()
    assert visit.console == [] and visit.foreign == [] and visit.failed == []
