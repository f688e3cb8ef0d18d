"""Self-checks for the exercises: `from exercises import checks; checks.key_for(my_key)`.

Each name is a `Check`, one for each exercise of the sets; `SETS` has them by set. A check
calls the function, and prints that it is right or says what is wrong. What students fetch has the
checks as values alone, in `recorded`; in the repository they are functions.
`progress("10_rope")` lists which exercises of a set pass; `see("converted")` draws what that
answer gives.
"""

from __future__ import annotations

import difflib
import importlib
import json
import pkgutil
from pathlib import Path

from exercises import name_today
from exercises.checks import kept
from exercises.checks.seen import see
from pe_course.judge import exercise as judged
from pe_course.judge.exercise import Check, CheckFailed
from pe_course.judge.recorded import Recorded

RECORDED = sorted(Path(__file__).parent.glob("recorded/*.json"))
SETS: dict[str, tuple[Check, ...]] = {
    path.stem: tuple(map(Recorded, json.loads(path.read_text(encoding="utf-8"))))
    for path in RECORDED
} or {
    module.name.removeprefix("ch"): importlib.import_module(f"{__name__}.{module.name}").EXERCISES
    for module in pkgutil.iter_modules(__path__)
    if module.name.startswith("ch")
}
EXERCISES = {exercise.name: exercise for group in SETS.values() for exercise in group}

__all__ = ["EXERCISES", "SETS", "Check", "CheckFailed", "progress", "see"]


def progress(name: str) -> None:
    """Say which exercises of a set pass, and how far all sets are.

    What the checks have found is added to `progress.json`, beside the notebook or beside the
    folders of all sets; there is no account, and nothing leaves the machine.

    Raises:
        ValueError: if there is no set of that name.
    """
    name = name_today(name, SETS)
    if name not in SETS:
        raise ValueError(f"name must be one of {', '.join(SETS)}; got {name!r}")
    known = kept.update(kept.file_for(Path.cwd(), SETS), judged.FOUND)
    names = {one: [exercise.name for exercise in group] for one, group in SETS.items()}
    print(kept.report(name, names, known))


def __getattr__(name: str) -> Check:
    """Return the check of that name."""
    if name in EXERCISES:
        return EXERCISES[name]
    near = difflib.get_close_matches(name, EXERCISES, 1)
    raise AttributeError(f"no check {name!r}" + (f"; did you mean {near[0]!r}?" if near else ""))


def __dir__() -> list[str]:
    """List the checks."""
    return [*__all__, *EXERCISES]
