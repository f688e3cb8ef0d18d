"""What a learner has got right: counted where the notebook runs, and kept in a file beside it."""

from __future__ import annotations

import contextlib
import json
import os
import time
from collections.abc import Collection, Mapping
from pathlib import Path

from exercises import name_today

NAME = "progress.json"
Found = tuple[bool, float]  # whether an exercise passed, and when that was found


def file_for(folder: Path, sets: Collection[str]) -> Path:
    """Return where progress is kept: beside the notebook, or beside the folders of all sets.

    Args:
        folder: of the notebook.
        sets: names of all sets; a folder of such a name holds one set, and others lie beside it.
    """
    return (folder.parent if name_today(folder.name, sets) in sets else folder) / NAME


def read(path: Path) -> dict[str, Found]:
    """Return what a file tells; nothing if it is not there, or was written by something else."""
    try:
        entries = json.loads(path.read_text(encoding="utf-8")).items()
    except (OSError, ValueError, AttributeError):
        return {}
    found = {}
    for name, entry in entries:
        passed, when = entry if isinstance(entry, list) and len(entry) == 2 else (entry, 0)
        if isinstance(passed, bool) and isinstance(when, int | float):
            # What a clock that is ahead has written must not outlive all that is found now.
            found[name] = (passed, when if when <= time.time() else 0.0)
    return found


def update(path: Path, news: Mapping[str, Found]) -> dict[str, bool]:
    """Add what is newer than a file to it; return of each exercise whether it passed.

    Another notebook may have written meanwhile. A folder that cannot be written is no error.
    """
    known = read(path)
    known.update((name, new) for name, new in news.items() if new[1] >= known.get(name, new)[1])
    fresh = path.with_name(f".{path.name}.{os.getpid()}")
    with contextlib.suppress(OSError):
        fresh.write_text(json.dumps(known, indent=1) + "\n", encoding="utf-8")
        fresh.replace(path)
    return {name: passed for name, (passed, _) in known.items()}


def report(name: str, sets: Mapping[str, Collection[str]], known: Mapping[str, bool]) -> str:
    """Return lines on one set, exercise by exercise, and a line on those of all sets.

    Args:
        name: of the set.
        sets: the exercises of all sets.
        known: exercise -> whether it passed when it was last checked.
    """
    words = {True: "right", False: "not yet right", None: "not checked"}
    width = max(map(len, sets[name]))
    lines = [f"{one:{width}}  {words[known.get(one)]}" for one in sets[name]]
    passed = sum(known.get(one, False) for one in sets[name])
    lines.append(f"{name}: {passed} of {len(sets[name])} exercises are right.")
    begun = {other: ones for other, ones in sets.items() if any(one in known for one in ones)}
    if begun.keys() - {name}:
        total = sum(known.get(one, False) for ones in sets.values() for one in ones)
        count = sum(map(len, sets.values()))
        done = sum(all(known.get(one, False) for one in ones) for ones in sets.values())
        lines.append(
            f"All sets: {total} of {count} exercises, {done} of {len(sets)} sets complete."
        )
    return "\n".join(lines)
