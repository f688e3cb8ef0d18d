"""A tolerance for numbers: no more than the cell says, for numbers alone."""

from __future__ import annotations

import pytest
from nbformat.v4 import new_code_cell, new_notebook, new_output

from tools import refresh, tolerance

SAME = [
    ("loss 0.69315", "loss 0.69316"),
    ("<td>\u22121.2345</td>", "<td>\u22121.2346</td>"),
    ("[1.0000e-07, 2.5]", "[1.0001e-07, 2.5]"),
    ("a 9.9999 b", "a 10.0000 b"),
]
OTHER = [
    ("loss 0.69315", "loss 0.69415"),  # a number too far off
    ("loss 0.0000", "loss 0.0001"),  # relative: nothing is near zero but zero
    ("loss 0.5", "loss -0.5"),
    ("loss 0.50", "loss 0.500"),  # other decimals
    ("after 1000 steps", "after 1001 steps"),  # whole numbers are counts
    ("57 %", "58 %"),
    ("0.69315 nats", "0.69315 bits"),  # words
    ("0.69315 0.1", "0.69315"),  # a number less
    ("0.69315", "nan"),
    ("torch 2.1001.0", "torch 2.1002.0"),  # a version
    ("x1.00001", "x1.00002"),  # part of a word
]


@pytest.mark.parametrize(("stored", "fresh"), SAME)
def test_numbers_within_the_tolerance_agree_and_without_one_they_do_not(stored, fresh):
    assert tolerance.agree(stored, fresh, 1e-3)
    assert not tolerance.agree(stored, fresh, 0.0)


@pytest.mark.parametrize(("stored", "fresh"), OTHER)
def test_a_wrong_number_and_other_words_never_agree(stored, fresh):
    assert not tolerance.agree(stored, fresh, 1e-3)


def notebook(text: str, allowed: float | None):
    metadata = {} if allowed is None else {"pe": {"tolerance": allowed}}
    cell = new_code_cell("run()", id="a", metadata=metadata)
    cell.outputs = [
        new_output("stream", name="stdout", text=text),
        new_output("display_data", {"text/html": f"<b>{text}</b>"}),
    ]
    return new_notebook(cells=[cell])


@pytest.mark.parametrize(
    ("text", "allowed", "found"),
    [("0.5001", 1e-3, 0), ("0.5101", 1e-3, 2), ("0.5001", None, 2)],
)
def test_a_check_of_the_stored_notebooks_allows_what_the_cell_says(text, allowed, found):
    stored, fresh = notebook("0.5000", allowed), notebook(text, allowed)
    assert len(list(refresh.differences(stored, fresh))) == found


@pytest.mark.parametrize("given", [0, -1e-3, 0.5, "1e-3", True, float("nan"), None])
def test_a_tolerance_that_is_none_or_allows_everything_is_refused(given):
    cell = new_code_cell("", id="a", metadata={"pe": {"tolerance": given}})
    with pytest.raises(ValueError, match=r"cell a: tolerance must be .* at most 0.01, got"):
        tolerance.of_cell(cell)
