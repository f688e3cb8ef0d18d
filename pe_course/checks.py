"""What an argument may be: an error names it, what was given and what is allowed.

Asked only where a wrong argument would otherwise give a wrong number without a word.
"""

from __future__ import annotations

import math
from collections.abc import Collection
from numbers import Integral, Real


def integer(name: str, value: object, *, least: int = 1) -> int:
    """Return `value` if it is an int of at least `least`."""
    if not isinstance(value, Integral) or isinstance(value, bool):
        raise TypeError(f"{name} must be an int, got {value!r}")
    if value < least:
        raise ValueError(f"{name} must be at least {least}, got {value}")
    return int(value)


def above(name: str, value: object, bound: float) -> float:
    """Return `value` as a float if it is a finite number greater than `bound`."""
    number = finite(name, value)
    if number <= bound:
        raise ValueError(f"{name} must be a finite number greater than {bound:g}, got {value!r}")
    return number


def at_least(name: str, value: object, bound: float) -> float:
    """Return `value` as a float if it is a finite number of at least `bound`."""
    number = finite(name, value)
    if number < bound:
        raise ValueError(f"{name} must be a finite number of at least {bound:g}, got {value!r}")
    return number


def finite(name: str, value: object) -> float:
    """Return `value` as a float if it is a finite number."""
    if not isinstance(value, Real) or isinstance(value, bool):
        raise TypeError(f"{name} must be a number, got {value!r}")
    if not math.isfinite(value):
        raise ValueError(f"{name} must be a finite number, got {value!r}")
    return float(value)


def one_of(name: str, value: str, allowed: Collection[str]) -> str:
    """Return `value` if it is one of `allowed`."""
    if not isinstance(value, str) or value not in allowed:
        raise ValueError(f"{name} must be one of {', '.join(allowed)}; got {value!r}")
    return value
