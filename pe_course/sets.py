"""The graded sets as pages announce them: what a set asks, its minutes, and where it opens.

`pe_course/data/sets.json` has the facts; `python -m exercises.build` writes it from the sets.
"""

from __future__ import annotations

import functools
import json
from importlib.resources import files
from typing import Any

COLAB = "https://colab.research.google.com/github/positional-encodings/course/blob/main"
BINDER = "https://mybinder.org/v2/gh/positional-encodings/course/main?urlpath=lab/tree"
FACTS = files(__package__) / "data" / "sets.json"


@functools.cache
def facts() -> dict[str, Any]:
    """Return what each set and project is."""
    found: dict[str, Any] = json.loads(FACTS.read_text(encoding="utf-8"))
    return found


def describe(name: str) -> dict[str, Any]:
    """Return what is known of a set: number, title, asks, minutes, points, exercises.

    Raises:
        ValueError: if there is no set of that name.
    """
    sets: dict[str, dict[str, Any]] = facts()["sets"]
    if name not in sets:
        raise ValueError(f"name must be one of {', '.join(sets)}; got {name!r}")
    return sets[name]


def links(path: str) -> str:
    """Return Markdown that opens a notebook of the repository in Colab and in Binder.

    Args:
        path: of the notebook, from the root of the repository.
    """
    return f"[Colab]({COLAB}/{path}) · [Binder]({BINDER}/{path})"


def release(name: str) -> str:
    """Return the path of a set's notebook, from the root of the repository."""
    return f"exercises/release/{name}/{name}.ipynb"


def invitation(name: str) -> str:
    """Return the lines of Markdown with which a chapter sends its reader to its graded set."""
    found = describe(name)
    text = (
        f"**Practise by writing code.** In graded set {found['number']}, *{found['title']}*, you "
        f"{found['asks']}. {found['exercises']} exercises and an open one, about "
        f"{found['minutes']} minutes together; the cell below each answer says in words what is "
        "not right yet. Open it in "
    )
    notebook = release(name)
    return (
        f"{text}{links(notebook)} · [download it](../{notebook}), or see [all sets](exercises.md)."
    )


def overview() -> str:
    """Return all sets as Markdown paragraphs for a page of the book."""
    parts = []
    for name, found in facts()["sets"].items():
        notebook = release(name)
        parts.append(
            f"**{found['number']}. [{found['title']}]({name}.ipynb).** You {found['asks']}. "
            f"{found['minutes']} minutes, {found['points']:g} points. Open in "
            f"{links(notebook)} · [download](../{notebook})"
        )
    return "\n\n".join(parts)


def projects() -> str:
    """Return the projects as Markdown paragraphs."""
    parts = []
    for name, found in facts()["projects"].items():
        notebook = f"exercises/projects/{name}.ipynb"
        parts.append(
            f"**{found['title']}**, on {found['subject']}. You {found['asks']}. About "
            f"{found['minutes']} minutes. Open in {links(notebook)} · [download](../{notebook})"
        )
    return "\n\n".join(parts)
