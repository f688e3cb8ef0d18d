"""Numbers of a cell's output that may differ a little, where the cell's metadata say how much.

    {"pe": {"tolerance": 1e-3}}

A number with a decimal point or an exponent may then be off by that share of itself. Whole numbers,
the count of decimals and all text stay as they are stored. A cell without it gets no tolerance:
what is trained in double precision needs none.
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from typing import Any

import nbformat

LARGEST = 0.01
PICTURES = {"image/png", "image/jpeg"}  # base64, compared by their pixels
# A number that stands for itself: no part of a word, of a version or of a colour.
NUMBER = re.compile(
    r"(?<![\w.#])([-+\u2212]?(?:\d+\.\d+(?:[eE][-+]?\d+)?|\d+[eE][-+]?\d+))(?!\w|\.\d)"
)


def of_cell(cell: Mapping[str, Any]) -> float:
    """Return the relative tolerance that stands in a cell's metadata, else 0.

    Raises:
        ValueError: if it is not a number above 0 and at most LARGEST.
    """
    settings = cell.get("metadata", {}).get("pe", {})
    if "tolerance" not in settings:
        return 0.0
    given = settings["tolerance"]
    number = isinstance(given, int | float) and not isinstance(given, bool)
    if not number or not 0 < given <= LARGEST:
        raise ValueError(
            f"cell {cell.get('id')}: tolerance must be a number above 0 and at most {LARGEST}, "
            f"got {given!r}"
        )
    return float(given)


def _value(text: str) -> float:
    return float(text.replace("\u2212", "-"))


def _decimals(text: str) -> int:
    return len(re.split("[eE]", text)[0].partition(".")[2])


def agree(stored: str, fresh: str, tolerance: float) -> bool:
    """Tell whether two texts are the same but for numbers that lie within a tolerance."""
    if stored == fresh or not tolerance:
        return stored == fresh
    left, right = NUMBER.split(stored), NUMBER.split(fresh)
    return (
        left[::2] == right[::2]  # the text between the numbers
        and all(
            _decimals(a) == _decimals(b)
            and math.isclose(_value(a), _value(b), rel_tol=tolerance, abs_tol=0.0)
            for a, b in zip(left[1::2], right[1::2], strict=True)
        )
    )


def as_stored(stored: Any, fresh: Any, tolerance: float) -> Any:
    """Return outputs with each text that agrees with its stored one replaced by that.

    What is left to differ is what a strict comparison shall report.
    """
    if not tolerance:
        return fresh
    if isinstance(stored, str) and isinstance(fresh, str):
        return stored if agree(stored, fresh, tolerance) else fresh
    if isinstance(stored, Mapping) and isinstance(fresh, Mapping):
        texts = {key for key in fresh if key in stored and key not in PICTURES}
        new = {key: as_stored(stored[key], fresh[key], tolerance) for key in texts}
        return nbformat.from_dict({**fresh, **new})
    if isinstance(stored, list) and isinstance(fresh, list) and len(stored) == len(fresh):
        return [as_stored(a, b, tolerance) for a, b in zip(stored, fresh, strict=True)]
    return fresh
