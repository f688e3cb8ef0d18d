"""No exercise is answered by what its chapter prints.

Each function and each class that a chapter's cells define is handed in for each exercise of its
set, under the exercise's name and with its arguments in every order, and must earn nothing; nor
must one more line that transposes, picks, rounds or adds what it gives. What a folded solution
writes counts as printed.
"""

from __future__ import annotations

import ast
import contextlib
import functools
import inspect
import itertools
import json
import re
from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any

import pytest
import torch

from exercises import checks
from exercises.sets import load, set_names, source_text
from pe_course import practice
from pe_course.judge.compare import clone, close, shape_problem
from pe_course.judge.exercise import Case, Draw, Exercise
from pe_lib.sinusoidal import frequencies, sinusoidal
from tools import ROOT

# What is pasted is called with whatever an exercise has, and torch warns of much of it.
pytestmark = pytest.mark.filterwarnings("ignore")

Call = Callable[..., Any]
EVERY = [(name, question.name) for name in set_names() for question in load(name).questions]
# One line more: what it makes of a result, and of the arguments.
LINES: dict[str, Call] = {
    "": lambda got, args: got,
    "transposed": lambda got, args: got.mT,
    "the first": lambda got, args: got[0],
    "the last": lambda got, args: got[-1],
    "one axis more": lambda got, args: got[None],
    "rounded": lambda got, args: got.round().long(),
    "the other sign": lambda got, args: -got,
    "added to the first argument": lambda got, args: args[0] + got,
}
# Assignments that make constants; others train models or draw figures.
CHEAP = {"torch.tensor", "torch.arange", "range", "math.sqrt", "math.log", "len"}


def printed(name: str) -> dict[str, Call]:
    """Return what the cells of a page define, folded ones included; nothing is trained."""
    space: dict[str, Any] = {"__name__": "page"}
    found: dict[str, Call] = {}
    for source in sources(name):
        with contextlib.suppress(SyntaxError):  # a line of IPython's own
            for node in ast.parse(source).body:
                if not is_definition(node):
                    continue
                with contextlib.suppress(Exception):  # a constant that only a run would give
                    exec(compile(ast.Module([node], []), name, "exec"), space)
                if isinstance(node, ast.FunctionDef | ast.ClassDef) and node.name in space:
                    found[node.name] = space[node.name]
    return found


def sources(name: str) -> Iterator[str]:
    """Yield the code of a page: its cells, and what stands in its text as Python."""
    for cell in json.loads((ROOT / f"book/{name}.ipynb").read_text(encoding="utf-8"))["cells"]:
        if cell["cell_type"] == "markdown":
            yield from re.findall(r"^```python\n(.*?)^```$", source_text(cell), re.M | re.S)
        elif cell["cell_type"] == "code" and "remove-cell" not in cell["metadata"].get("tags", []):
            yield source_text(cell)


def is_definition(node: ast.stmt) -> bool:
    """Return whether a statement defines a name without a long computation."""
    if isinstance(node, ast.Assign):
        calls = (one for one in ast.walk(node) if isinstance(one, ast.Call))
        return {ast.unparse(one.func) for one in calls} <= CHEAP
    return isinstance(node, ast.Import | ast.ImportFrom | ast.FunctionDef | ast.ClassDef)


def counts(function: Call, bound: int = 0) -> range:
    """Return how many arguments may be given by place, `bound` of them apart."""
    places = [
        one for one in inspect.signature(function).parameters.values()
        if one.kind in (one.POSITIONAL_ONLY, one.POSITIONAL_OR_KEYWORD)
    ][bound:]  # fmt: skip
    return range(sum(one.default is one.empty for one in places), len(places) + 1)


@functools.cache
def ways(name: str) -> list[tuple[str, Call, int]]:
    """Return what a page defines as functions of so many arguments; of a class, each method."""
    found = []
    for title, thing in printed(name).items():
        if not inspect.isclass(thing):
            found += [(title, thing, count) for count in counts(thing)]
            continue
        for method, function in inspect.getmembers(thing, inspect.isfunction):
            if not (method in vars(thing) and method[0] != "_"):
                continue
            for made, given in itertools.product(counts(thing), counts(function, 1)):
                found.append((f"{title}.{method}", called(thing, method, made), made + given))
    return found


def called(thing: Call, method: str, made: int) -> Call:
    """Return a function of the arguments of a class and of its method."""
    return lambda *args: getattr(thing(*args[:made]), method)(*args[made:])


def earned(exercise: Exercise, answer: Call, cases: list[Case], wanted: list[Any]) -> float:
    """Return the share of the points that an answer gets, with a line more if that helps."""
    fits: dict[str, list[Any]] = {words: [] for words in LINES}
    for case, want in zip(cases, wanted, strict=True):
        try:
            got = clone(answer(*clone(case.args)))
        except Exception:
            return 0.0
        fits = {
            words: [*values, value] for words, values in fits.items()
            if (value := one_more(words, got, case, want, exercise)) is not None
        }  # fmt: skip
        if not fits:
            return 0.0
    shares = [exercise.share(cases, values, wanted) for values in fits.values()]
    return max(shares) if exercise.parts else 1.0


def one_more(words: str, got: Any, case: Case, want: Any, exercise: Exercise) -> Any:
    """Return what a line more makes of a result, if that can still earn points."""
    try:
        value = LINES[words](got, case.args)
    except Exception:
        return None
    if shape_problem(value, want, exercise.integers):
        return None
    return value if exercise.parts or close(value, want, exercise.room(case)) else None


def reordered(function: Call, order: tuple[int, ...]) -> Call:
    """Return a function that takes its arguments in another order, as many as there are."""
    return lambda *args: function(*[args[place] for place in order if place < len(args)])


def pastes(name: str, exercise: Exercise) -> list[tuple[str, tuple[int, ...]]]:
    """Return what of a page earns points for an exercise, and the order of the arguments."""
    cases = list(exercise.cases(Draw(0)))
    wanted = [exercise.reference(*clone(case.args)) for case in cases]
    places = range(max(len(case.args) for case in cases))
    known = ways(name)
    with pytest.MonkeyPatch.context() as patch:
        for owner, costly in ((torch.Tensor, "backward"), (torch, "randn")):
            patch.setattr(owner, costly, None)  # no answer trains, or has random numbers
        return [
            (words, order)
            for words, function, count in known
            for order in itertools.permutations(places, count)
            if earned(exercise, reordered(function, order), cases, wanted)
        ]


@pytest.mark.parametrize(("name", "title"), EVERY)
def test_pasting_from_the_page_earns_no_point(name: str, title: str) -> None:
    assert pastes(name, checks.EXERCISES[title]) == []


@pytest.mark.parametrize(("name", "rung"), practice.RUNGS.items())
def test_what_the_first_rung_asks_for_is_among_what_is_pasted(name: str, rung: Exercise) -> None:
    assert rung.name in {words for words, _ in pastes(name, rung)}


def test_a_function_and_a_class_of_the_page_would_be_noticed() -> None:
    """With their arguments in another order; the test above is not blind."""
    n = torch.tensor([0, 3, -40])

    def turned(dim: int, base: float, distances: torch.Tensor) -> torch.Tensor:
        return -asked.reference(dim, base, distances)

    asked = Exercise(
        "similarity",
        lambda draw: [Case("a case", (8, 50.0, n))],
        lambda dim, base, distances: (distances[:, None] * frequencies(dim, base)).cos().mean(1),
    )
    assert pastes("02_sinusoidal", asked) == [("kernel", (2, 0, 1))]
    added = Exercise(
        "add", lambda draw: [Case("a case", (torch.zeros(1, 3, 8), n.abs(), 8))],
        lambda x, positions, dim: x + sinusoidal(positions, dim),
    )  # fmt: skip
    assert ("Sinusoidal.embed", (2, 0, 1)) in pastes("02_sinusoidal", added)
    assert pastes("02_sinusoidal", replace(asked, reference=turned)) == [("kernel", (2, 0, 1))]
