"""The project's own rules: style, spelling, types, names."""

from __future__ import annotations

import ast
import json
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from tools import ROOT, lint, outline, unchanged

VERB = re.compile(r"(?<![a-z])(un)?turn(s|ed|ing)?(?![a-z])")
# Full turns, which are counted; turns that are taken; a term that is turned off.
INNOCENT = {
    ("book/04_four_terms.ipynb", "turned_off"),
    ("book/12_axes.ipynb", "take_turns"),
    ("book/12_axes.ipynb", "turn"),  # whose turn it is
    ("book/13_context_extension.ipynb", "by_turns"),
    ("book/13_context_extension.ipynb", "turns"),
    ("book/14_bakeoff.ipynb", "turns"),
    ("book/claims_foundations.ipynb", "turns"),
    ("clinic/probes.py", "turns"),
    ("exercises/checks/ch13_context_extension.py", "turns"),
    ("exercises/checks/ch17_choosing.py", "turns"),
    ("exercises/source/12_axes/12_axes.ipynb", "turn"),  # whose turn it is
    ("exercises/source/13_context_extension/13_context_extension.ipynb", "turns"),
    ("exercises/source/17_choosing/17_choosing.ipynb", "turns"),
    ("pe_lib/axes.py", "turn"),  # whose turn it is
    ("pe_lib/context_extension.py", "turns"),
    ("tests/test_axes.py", "test_interleaved_axes_take_turns"),
    (
        "tests/test_configs.py",
        "test_the_command_warns_of_a_small_base_and_names_pairs_that_never_finish_a_turn",
    ),
}


@pytest.mark.parametrize("name", lint.CHECKS)
def test_the_sources_keep_the_rules_of(name):
    done = lint.run(name)
    assert done.returncode == 0, done.stdout[-6000:] + done.stderr[-2000:]


def trees_of(path: Path) -> Iterator[ast.AST]:
    """Yield the statements of a module, or of each cell of a notebook."""
    text = path.read_text(encoding="utf-8")
    if path.suffix == ".py":
        yield ast.parse(text)
        return
    for cell in json.loads(text)["cells"]:
        if cell["cell_type"] == "code":
            yield outline.parsed("".join(cell["source"]))


def names_in(tree: ast.AST) -> Iterator[str]:
    """Yield the names that code gives: to functions, classes, arguments, variables, attributes."""
    for node in ast.walk(tree):
        match node:
            case ast.FunctionDef(name=name) | ast.AsyncFunctionDef(name=name):
                yield name
            case ast.ClassDef(name=name) | ast.alias(asname=str(name)):
                yield name
            case ast.arg(arg=name) | ast.Name(id=name, ctx=ast.Store()):
                yield name
            case ast.Attribute(attr=name, ctx=ast.Store()):
                yield name


def has_the_verb(name: str) -> bool:
    """Return whether one of a name's words is `turn`: turn_back, x_turned, TurnPairs, unturned."""
    return VERB.search(re.sub(r"(?<=[a-z0-9])(?=[A-Z])", "_", name).lower()) is not None


def test_names_are_read_by_their_words():
    words = ("turn", "turned_q", "KeyTurning", "wan_turn", "unturned", "turn2")
    assert all(map(has_the_verb, words))
    assert not any(map(has_the_verb, ("returned", "overturn", "saturn", "no_returns")))
    tree = ast.parse("def f(x): self.a = b = 0\nclass C: ...\nimport d as e\nfor g in h: i(j)")
    assert {*names_in(tree)} == {*"fxabCeg"}


def test_vectors_are_rotated():
    """The field has one verb for what RoPE does, and so have names. Full turns may be counted."""
    found = set()
    for path in unchanged.checkout():
        place = path.relative_to(ROOT)
        if path.suffix in (".py", ".ipynb") and "release" not in place.parts:
            for tree in trees_of(path):
                names = filter(has_the_verb, names_in(tree))
                found |= {(place.as_posix(), name) for name in names}
    assert found == INNOCENT
