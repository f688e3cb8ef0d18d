"""The checks of the laboratory accept what is allowed, and name what is not."""

from __future__ import annotations

import math

import pytest

from pe_course import checks


def test_what_is_allowed_is_returned() -> None:
    assert checks.integer("n", 1) == 1
    assert checks.integer("n", 0, least=0) == 0
    assert checks.above("rate", 0.1, 0) == 0.1
    assert checks.at_least("length", 2, 2) == 2.0
    assert checks.one_of("way", "wrap", ("clamp", "wrap")) == "wrap"


@pytest.mark.parametrize("value", [True, 2.0, "2", None])
def test_an_integer_is_an_int(value: object) -> None:
    with pytest.raises(TypeError, match=r"n must be an int, got"):
        checks.integer("n", value)


@pytest.mark.parametrize("check", [checks.above, checks.at_least])
def test_a_number_is_finite(check: object) -> None:
    for value in (True, "1", None):
        with pytest.raises(TypeError, match="rate must be a number, got"):
            check("rate", value, 0)  # type: ignore[operator]
    for value in (math.nan, math.inf, -math.inf):
        with pytest.raises(ValueError, match="rate must be a finite number, got"):
            check("rate", value, 0)  # type: ignore[operator]


def test_bounds_are_named() -> None:
    with pytest.raises(ValueError, match="n must be at least 3, got 2"):
        checks.integer("n", 2, least=3)
    with pytest.raises(ValueError, match="rate must be a finite number greater than 0, got 0"):
        checks.above("rate", 0, 0)
    with pytest.raises(ValueError, match=r"length must be a finite number of at least 1, got 0\.5"):
        checks.at_least("length", 0.5, 1)


def test_choices_are_listed() -> None:
    for value in ("turn", None, ["wrap"]):
        with pytest.raises(ValueError, match="way must be one of clamp, wrap; got"):
            checks.one_of("way", value, ("clamp", "wrap"))  # type: ignore[arg-type]
