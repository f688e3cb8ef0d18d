"""A small exercise of no set, on which the page of exercises shows how an answer becomes right."""

from __future__ import annotations

import contextlib
import io
from collections.abc import Iterator

import torch

from pe_course.judge.exercise import Case, Draw, Exercise, Mistake
from pe_lib.encoding import relative_position


def cases(draw: Draw) -> Iterator[Case]:
    """Yield positions that count from 0, those of a query behind a cache, and any."""
    size, other = draw.sizes(2)
    yield Case("positions that count from 0", (torch.arange(size), torch.arange(size)))
    yield Case("one query behind a cache", (torch.tensor([other]), torch.arange(other + 1)))
    yield Case("positions with gaps", (draw.places(size), draw.places(other)))


RELATIVE = Exercise(
    name="relative",
    cases=cases,
    reference=lambda q_pos, k_pos: relative_position(q_pos, k_pos),
    mistakes=(
        Mistake(
            "this is query − key; everywhere in this course it is key − query",
            lambda q_pos, k_pos: q_pos[:, None] - k_pos,
        ),
    ),
    integers=True,
    axes=("query", "key"),
)


def feedback(code: str) -> str:
    """Return what the check says below an answer.

    Args:
        code: that defines `relative`; it is the book's own, and runs here.
    """
    answer: dict[str, object] = {"torch": torch}
    exec(code, answer)
    with contextlib.redirect_stdout(io.StringIO()) as said:
        RELATIVE(answer["relative"])  # type: ignore[arg-type]
    return said.getvalue().strip()
