"""Sentences and tables that a notebook's run writes into the page."""

from __future__ import annotations

from collections.abc import Sequence

from IPython.display import Markdown, display

from pe_course import sets

SHORT = 16  # letters of a table's cell that stay on one line


def say(text: str) -> None:
    """Show a sentence (Markdown) whose numbers come from the run."""
    display(Markdown(" ".join(text.split())))  # type: ignore[no-untyped-call]


def below(value: float, bound: float) -> str:
    """Return "below <bound>" once `value` is: for differences that are rounding.

    Raises:
        AssertionError: if the value is not below the bound.
    """
    if not value < bound:
        raise AssertionError(f"{value} is not below {bound}")
    return f"below {bound:.0e}"


def unbroken(text: str) -> str:
    """Return a text of at most SHORT letters with spaces at which no line ends."""
    return text.replace(" ", "\u00a0") if len(text) <= SHORT else text


def table(header: Sequence[str], rows: Sequence[Sequence[object]]) -> None:
    """Show a table (Markdown).

    Args:
        header: the names of the columns.
        rows: as many cells as the header has names; a bar in a cell stays a bar, and the words
            of a short cell stay on one line.

    Raises:
        ValueError: if a row has another number of cells.
    """
    for row in rows:
        if len(row) != len(header):
            raise ValueError(f"each row must have {len(header)} cells, got {len(row)}: {row!r}")
    whole = ([unbroken(str(cell)) for cell in row] for row in rows)
    lines = [header, ["---"] * len(header), *whole]
    cells = ([str(cell).replace("|", r"\|") for cell in line] for line in lines)
    text = "\n".join("| " + " | ".join(line) + " |" for line in cells)
    display(Markdown(text))  # type: ignore[no-untyped-call]


def graded_set(name: str) -> None:
    """Show what a graded set asks for, its minutes, and links that open it.

    Args:
        name: of the set, which is its chapter's: "10_rope".

    Raises:
        ValueError: if there is no set of that name.
    """
    display(Markdown(sets.invitation(name)))  # type: ignore[no-untyped-call]
