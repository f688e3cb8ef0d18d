"""The library stays small enough to be read."""

from __future__ import annotations

import ast
import io
import tokenize
from pathlib import Path

import pytest

import pe_lib

ROOM = Path(pe_lib.__file__).parent
RECENT, TESTING, APART = ROOM / "recent", ROOM / "testing.py", ROOM / "interop.py"
CORE = sorted(set(ROOM.glob("*.py")) - {TESTING, APART})

# Lines of code that a part may have: lower one with what is taken out, raise none without a reason.
BOUNDS = {"core": 1255, "recent": 395, "testing": 285}
PARTS = {"core": CORE, "recent": sorted(RECENT.glob("*.py")), "testing": [TESTING]}
NO_CODE = (
    *(tokenize.COMMENT, tokenize.NL, tokenize.NEWLINE, tokenize.INDENT, tokenize.DEDENT),
    *(tokenize.ENCODING, tokenize.ENDMARKER),
)


def lines_of_code(text: str) -> int:
    """Count lines that hold a token, docstrings, comments and blank lines left out."""
    told = {
        line
        for node in ast.walk(ast.parse(text))
        if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant)
        if isinstance(node.value.value, str)
        for line in range(node.lineno, (node.end_lineno or node.lineno) + 1)
    }
    tokens = tokenize.generate_tokens(io.StringIO(text).readline)
    held = (range(t.start[0], t.end[0] + 1) for t in tokens if t.type not in NO_CODE)
    return len({line for lines in held for line in lines} - told)


def test_docstrings_and_comments_are_no_code() -> None:
    text = (
        '"""A\nmodule."""\n\nX = """a\nb"""  # two lines\n\n\ndef f():\n    """Doc."""\n    # no\n'
    )
    assert lines_of_code(text + "    return (\n        1\n    )\n") == 6


@pytest.mark.parametrize("part", PARTS)
def test_the_library_stays_small(part: str) -> None:
    found = sum(lines_of_code(path.read_text(encoding="utf-8")) for path in PARTS[part])
    assert 0 < found <= BOUNDS[part], f"{part} has {found} lines of code"
