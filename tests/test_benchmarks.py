"""The benchmarks compare like with like, and take ratios within a round."""

from __future__ import annotations

import pytest
import torch

from benchmarks.__main__ import QUESTIONS, agree, page_of, peak_memory, side_by_side


@pytest.mark.parametrize("name", QUESTIONS)
def test_all_contenders_run_and_agree(name: str) -> None:
    """`works` raises where two that must agree do not; here at a length that takes no time."""
    question = QUESTIONS[name]
    with torch.set_grad_enabled(question.with_gradients):
        for work in question.works(24).values():
            assert work() is not None


def test_disagreement_raises() -> None:
    with pytest.raises(AssertionError, match="do not agree"):
        agree(torch.ones(3), torch.full((3,), 1.01))
    with pytest.raises(AssertionError, match="do not agree"):
        agree(torch.ones(3), torch.ones(1, 3))


def test_memory_is_the_peak() -> None:
    x = torch.ones(10_000)
    assert peak_memory(lambda: (x + 1) * 2) == pytest.approx(80_000, abs=64)
    assert peak_memory(lambda: x.add_(1)) == pytest.approx(0, abs=64)


def test_ratios_are_taken_within_a_round() -> None:
    x = torch.ones(2000)
    once, often = side_by_side(
        {"once": lambda: x.exp(), "ten times": lambda: [x.exp() for _ in range(10)]}, budget=0.05
    )
    assert once["ratio"] == 1
    assert 4 < often["ratio"] < 25
    assert once["rounds"] >= 5


def test_the_page_has_a_row_for_each_contender() -> None:
    row = {"who": "pe_lib, RoPE", "question": "decode", "length": 9, "seconds": 0.5, "rounds": 5}
    row |= {"ratio": 2.0, "low": 1.0, "high": 3.0, "peak_bytes": 2**21}
    where = {"cpu": "", "cores": 2, "threads": 1, "load before": 0, "python": "", "versions": {}}
    page = page_of({"machine": where, "rows": [row]})
    assert "| pe_lib, RoPE | 9 | 500 | 2 | 1\u00a0to\u00a03 | 2 |" in page
