"""The spine: the chapters that one story needs, from the problem to the choice."""

from __future__ import annotations

from itertools import pairwise

CHAPTERS = (
    "01_attention",
    "02_sinusoidal",
    "04_four_terms",
    "09_alibi",
    "10_rope",
    "13_context_extension",
    "18_clinic",
    "19_choosing",
)


def following(name: str) -> str | None:
    """Return the chapter after `name` on the spine; None after the last and off the spine."""
    return dict(pairwise(CHAPTERS)).get(name)
