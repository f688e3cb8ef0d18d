"""Late days and penalties, by the rules that an instructor puts into COURSE/late_days.json.

    {"free": 3, "penalty": 0.1}

Each student has `free` days in all, used up set by set in the order of their names; every further
day that has begun costs the share `penalty` of the points.
"""

from __future__ import annotations

import json
import math
from dataclasses import dataclass
from pathlib import Path
from typing import Any

FILE = "late_days.json"


@dataclass(frozen=True)
class Rules:
    """How many late days are free, and the share of the points that each further day costs."""

    free: int = 0
    penalty: float = 0.0


def read_rules(course: Path) -> Rules | None:
    """Return the rules of a course, or None if it has none.

    Raises:
        ValueError: if the file says something else.
    """
    path = course / FILE
    if not path.exists():
        return None
    form = '{"free": 3, "penalty": 0.1}: whole days, and a share from 0 to 1 for each day after'
    try:
        found = json.loads(path.read_text(encoding="utf-8"))
        rules = Rules(**found)
    except (ValueError, TypeError) as error:
        raise ValueError(f"{path} must read like {form} ({error})") from error
    fits = type(rules.free) is int and rules.free >= 0 and type(rules.penalty) in (int, float)
    if not fits or not 0 <= rules.penalty <= 1:
        raise ValueError(f"{path} must read like {form}; got {found}")
    return rules


def apply(records: list[dict[str, Any]], rules: Rules | None) -> None:
    """Write into each record its days late, how many of them were free, and the points they cost.

    Without rules, and for a submission of which no one knows when it was due, nothing is taken.
    """
    left: dict[str, int] = {}
    for record in sorted(records, key=lambda record: record["set"]):
        days = math.ceil((record.get("late") or 0) / 86400)
        budget = left.setdefault(record["student"], rules.free if rules else 0)
        free = min(days, budget)
        left[record["student"]] = budget - free
        share = min(1.0, (days - free) * rules.penalty) if rules else 0.0
        points = float(record.get("counts", record["points"]))
        record["days_late"], record["free_days"] = days, free
        record["taken_off"] = round(max(0.0, points) * share, 2)
