"""The benchmarks compare like with like, count memory rightly and report what they missed."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch

from benchmarks import report
from benchmarks.cases import QUESTIONS, agree
from benchmarks.measure import memory, side_by_side


@pytest.mark.parametrize("name", QUESTIONS)
def test_all_contenders_run_and_agree(name: str) -> None:
    """`works` raises where two that must agree do not; here at a length that takes no time."""
    question = QUESTIONS[name]
    with torch.set_grad_enabled(question.with_gradients):
        works = question.works(24)
        assert any(who.startswith("pe_lib") for who in works)
        for work in works.values():
            assert work() is not None


def test_disagreement_raises() -> None:
    with pytest.raises(AssertionError, match="do not agree"):
        agree(torch.ones(3), torch.full((3,), 1.01))
    with pytest.raises(AssertionError, match="do not agree"):
        agree(torch.ones(3), torch.ones(1, 3))


def test_memory_is_the_peak_and_what_stays() -> None:
    x = torch.ones(10_000)
    assert memory(lambda: (x + 1) * 2) == pytest.approx((80_000, 40_000), abs=64)
    assert memory(lambda: x.add_(1)) == pytest.approx((0, 0), abs=64)


def test_ratios_are_taken_within_a_round() -> None:
    x = torch.ones(2000)
    measured = side_by_side(
        {"once": lambda: x.exp(), "ten times": lambda: [x.exp() for _ in range(10)]},
        "once",
        budget=0.05,
    )
    assert measured["once"].ratio == 1
    assert 4 < measured["ten times"].ratio < 25
    assert measured["once"].rounds >= 5


def results(slow: float) -> dict[str, Any]:
    """Return made-up results in which everything of pe_lib takes `slow` and all else 1."""
    rows = []
    for name, question in QUESTIONS.items():
        for length in question.lengths:
            asked = [bar for bar in report.BARS if bar.question == name]
            names = dict.fromkeys(who for bar in asked for who in (bar.who, bar.against))
            for who in ["limit", *names, "a library"]:
                ratio = slow if who.startswith("pe_lib") else 1.0
                rows.append(
                    {"question": name, "title": question.title, "length": length, "who": who}
                    | {"seconds": ratio, "ratio": ratio, "low": ratio, "high": ratio}
                    | {"peak_bytes": 2**20, "kept_bytes": 2**10, "rounds": 5}
                )
    machine = {"cpu": "a CPU", "cores": 2, "threads": 1, "load before": 0.1, "python": "3"}
    return {"machine": {**machine, "versions": {"torch": "2"}}, "rows": rows}


@pytest.mark.parametrize("slow", [0.001, 2.0])
def test_the_page_says_what_was_missed(
    slow: float, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(report, "PAGE", tmp_path / "page.md")
    report.write_page(results(slow))
    page = report.PAGE.read_text()
    asked = sum(len(bar.lengths) for bar in report.BARS)
    assert page.count("| yes |") == (asked if slow < 1 else 0)
    assert page.count("**no**") == len(report.failed(results(slow))) == (0 if slow < 1 else asked)
    for question in QUESTIONS.values():
        assert f"## {question.title}" in page
