"""What came out of the trial on sixty faults of public threads stays so."""

from __future__ import annotations

import csv

import pytest
from thread_faults import CASES
from thread_trial import TABLE, row

with TABLE.open(encoding="utf-8", newline="") as file:
    RECORDED = {line["id"]: line for line in csv.DictReader(file)}


@pytest.mark.parametrize("case", CASES, ids=lambda case: case["id"])
def test_a_fault_is_named_as_the_record_says(case):
    assert row(case) == RECORDED[case["id"]]


def test_no_corrected_twin_is_accused_but_two_that_are_held_to_something_else():
    twins = [line[f"twin {how}"] for line in RECORDED.values() for how in ("alone", "held")]
    accused = [words for words in twins if words and not words.startswith("refused")]
    # f08 is an indexer, held to its file's main attention: no option names the indexer. i01 gives
    # numbers of texts, and no position ids.
    assert accused == ["layout", "ids-not-counted"]
