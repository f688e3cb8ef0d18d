"""The census of published models, as the pages read it."""

from __future__ import annotations

import csv
from importlib.resources import files

TABLE = files(__package__) / "data" / "census.csv"


def read(library: str | None = None) -> list[dict[str, str]]:
    """Return the census: one row a model, in the order of the file.

    Every column holds text; several values are separated by " | ", and what was not found is "".
    They are what a default configuration makes; `optional` names what the code has besides and
    the defaults leave off.
    `evidence` names file and line of every value, in the versions of the libraries that
    `pe_course/data/README.md` names.

    Args:
        library: keep the models of one library, "transformers", "diffusers" or "timm".

    Raises:
        ValueError: if the census has no such library.
    """
    rows = list(csv.DictReader(TABLE.read_text(encoding="utf-8").splitlines()))
    known = sorted({row["library"] for row in rows})
    if library is not None and library not in known:
        raise ValueError(f"library must be one of {', '.join(known)}, got {library!r}")
    return [row for row in rows if library in (None, row["library"])]


def values(row: dict[str, str], column: str) -> list[str]:
    """Return the values of a cell: [] where nothing was found."""
    return row[column].split(" | ") if row[column] else []


def numbers(row: dict[str, str], column: str) -> list[float]:
    """Return the numbers of a cell, those given by the kind of layer too: global=1e6 local=1e4."""
    words = row[column].replace("|", " ").split()
    return [float(word.split("=")[-1]) for word in words]


def evidence(row: dict[str, str], column: str) -> list[str]:
    """Return the places, `file.py:line`, where a column's values were found."""
    parts = (part.split(" ") for part in row["evidence"].split("; "))
    return [part[1] for part in parts if part[0] == column]


def having(column: str, library: str | None = "transformers") -> list[str]:
    """Return the names of the models for which a column holds something."""
    return [row["model"] for row in read(library) if row[column]]
