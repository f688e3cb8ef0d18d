"""Each option of the questions of belief is right, or a mistake or a claim that was refuted."""

from __future__ import annotations

import re

import pytest
import yaml

from exercises import checks
from tools import ROOT

PAGE = (ROOT / "book/beliefs.md").read_text(encoding="utf-8")
QUESTIONS = re.split(r"^\*\*\d+\.\*\* ", PAGE, flags=re.MULTILINE)[1:]
CLAIMS = yaml.safe_load((ROOT / "pe_course/page/claims.yml").read_text(encoding="utf-8"))
REFUTED = {claim["id"] for claim in CLAIMS if claim["verdict"] in ("false", "imprecise")}


def test_the_page_sends_and_stores_nothing() -> None:
    assert not re.search(r"<(script|form|input|iframe)|https?:", PAGE)


@pytest.mark.parametrize("question", QUESTIONS, ids=lambda text: text.split("?")[0][:40])
def test_each_wrong_option_is_traced_and_the_answer_is_the_other(question: str) -> None:
    traces = dict(re.findall(r"^([A-D]): (.+)$", question, flags=re.MULTILINE))
    options = re.findall(r"^- \*\*([A-D])\.\*\* \S", question, flags=re.MULTILINE)
    assert list(traces) == options and len(options) >= 3
    (right,) = (letter for letter, trace in traces.items() if trace == "right")
    (answer,) = re.findall(r"<summary>Answer to \d+</summary>\n\n\*\*([A-D])\.\*\* ", question)
    assert answer == right
    for trace in traces.values():
        kind, _, what = trace.partition(" ")
        if kind == "claim":
            assert what in REFUTED
        elif kind == "mistake":
            exercise, words = what.split(" ", 1)
            known = checks.EXERCISES[exercise].mistakes
            assert any(mistake.message.startswith(words) for mistake in known), trace
        else:
            assert trace == "right"
    reason = question.split("<details>")[1]
    wrong = set(options) - {right}
    assert wrong <= set(re.findall(r"\b[A-D]\b", " ".join(re.findall(r"\([^)]*\)", reason))))
    assert len(re.findall(r"More: \[chapter \d+\]\(\w+\.ipynb\)", reason)) == 1


def test_no_letter_is_right_much_more_often_than_another() -> None:
    """Or guessing would pay."""
    answers = re.findall(r"Answer to \d+</summary>\n\n\*\*([A-D])", PAGE)
    assert max(map(answers.count, "ABC")) <= 10
