"""The benchmarks compare like with like, count memory rightly and report what they missed."""

from __future__ import annotations

import pytest
import torch

from benchmarks.cases import QUESTIONS, agree
from benchmarks.measure import memory, side_by_side
from benchmarks.report import BARS, FASTEST


@pytest.mark.parametrize("name", QUESTIONS)
def test_all_contenders_run_and_agree(name: str) -> None:
    """`works` raises where two that must agree do not; here at a length that takes no time."""
    question = QUESTIONS[name]
    with torch.set_grad_enabled(question.with_gradients):
        works = question.works(24)
        asked = {who for bar in BARS if bar.question == name for who in (bar.who, bar.against)}
        assert asked <= {*works, FASTEST}
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
