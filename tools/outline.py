"""Count what a chapter is made of: minutes, lines of code, figures, boxes.

Usage: python -m tools.outline [NAME ...]

Minutes are those of a first reader: 150 words of prose, ten lines of code in sight, a minute and a
half for a figure and half a minute more for one that moves; exercises state their own. Both are
rounded up to five minutes, and tests/test_outline.py holds every chapter to what it says.
"""

from __future__ import annotations

import argparse
import ast
import functools
import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import nbformat

from tools.refresh import FOLDED, WIDGET_VIEW, is_live, notebooks

CHAPTER = re.compile(r"\d\d_\w+")
WORDS_A_MINUTE = 150
CODE_LINE = 6  # seconds
FIGURE, MOVES = 90, 30  # seconds, and as many more where it moves
FOLD = re.compile(r"^<details>$.*?^</details>$", re.MULTILINE | re.DOTALL)
BOX_TITLE = re.compile(r"^> \*\*[^*]+\*\*$", re.MULTILINE)
CODE = re.compile(r"^```.*?^```$", re.MULTILINE | re.DOTALL)
MINUTES = re.compile(r"\*(?:Easy|Medium|Hard|Open), (\d+) minutes\.\*")
TIME = re.compile(r"\*\*Time:\*\* (?:about )?(\d+) minutes to read(?:, (\d+) with the exercises)?")
SHOWS = ("figures.show", "explore.slider", "explore.sliders", "live.show")
LEFT_OUT = ("## Exercises", "## References", "## Solutions")  # their own minutes; looked up


@dataclass(frozen=True)
class Outline:
    """What a notebook holds, as its reader meets it."""

    name: str
    words: int
    code_lines: int  # in sight
    figures: int
    moving: int
    numbers: tuple[str, ...]  # of the figures, in order; empty where one has none
    boxes: tuple[str, ...]
    exercise_minutes: int
    stated: tuple[int, int] | None

    @property
    def minutes(self) -> tuple[int, int]:
        """Minutes to read, and to read and do the exercises, rounded up to five."""
        seconds = CODE_LINE * self.code_lines + FIGURE * self.figures + MOVES * self.moving
        reading = self.words / WORDS_A_MINUTE + seconds / 60
        return up_to_five(reading), up_to_five(reading + self.exercise_minutes)


def up_to_five(minutes: float) -> int:
    return 5 * max(1, -int(-minutes // 5))


@functools.cache
def parsed(source: str) -> ast.Module:
    """Return the statements of a cell; a line of IPython's own counts as `pass`."""
    return ast.parse(re.sub(r"^(\s*)[%!].*$", r"\1pass", source, flags=re.MULTILINE))


def prose(source: str) -> str:
    """Return what of a Markdown cell is read at a stretch: no folds, exercises, formulas, marks."""
    text = BOX_TITLE.sub("", CODE.sub("", FOLD.sub("", source)))
    text = re.sub(r"\$\$.*?\$\$", "", text, flags=re.DOTALL)
    return re.sub(r"\]\([^)]*\)|<[^>]*>|[`*#|>\[\]]", " ", text)


def written(cell: Any) -> Iterator[str]:
    """Yield the Markdown that a cell's run wrote into the page, but for tables."""
    for output in cell.get("outputs", []):
        text = output.get("data", {}).get("text/markdown", "")
        if text and not text.startswith("| "):
            yield text


def figures_in(cell: Any) -> tuple[int, int]:
    """Return how many figures a cell shows, and how many of them move."""
    outputs = cell.get("outputs", [])
    data = [output.get("data", {}) for output in outputs]
    moving = sum(WIDGET_VIEW in each for each in data) + sum(map(is_live, outputs))
    still = sum("image/png" in each for each in data)  # a moving one stores its first picture too
    return still, moving


@functools.cache
def called(source: str) -> list[tuple[str, ast.Call]]:
    """Return each call of a cell with the name of what it calls."""
    found = [node for node in ast.walk(parsed(source)) if isinstance(node, ast.Call)]
    return [(ast.unparse(node.func), node) for node in found]


def calls(source: str, *names: str, keyword: str | None = None) -> list[str]:
    """Return the first argument, or the one of a keyword, of each call to `names` in a cell."""
    found = []
    for name, node in called(source):
        if name in names:
            named = [word.value for word in node.keywords if word.arg == keyword]
            chosen = named[:1] if keyword else node.args[:1]
            found.append((node.lineno, ast.literal_eval(chosen[0]) if chosen else ""))
    return [str(value) for _, value in sorted(found)]


def outline(path: Path) -> Outline:
    """Count what a notebook holds.

    Raises:
        SyntaxError: if a cell of code cannot be read.
    """
    notebook = nbformat.read(path, as_version=4)
    words = code = still = moving = minutes = 0
    numbers: list[str] = []
    boxes: list[str] = []
    stated = None
    reads = True
    for cell in notebook.cells:
        if cell.cell_type == "markdown":
            minutes += sum(map(int, MINUTES.findall(cell.source)))
            if found := TIME.search(cell.source):
                stated = int(found[1]), int(found[2] or found[1])
            for part in re.split(r"^(?=## )", cell.source, flags=re.MULTILINE):
                if part.startswith("## "):
                    reads = not part.startswith(LEFT_OUT)
                words += len(prose(part).split()) if reads else 0
            continue
        numbers += calls(cell.source, *SHOWS, keyword="number")
        boxes += calls(cell.source, "claims.show")
        if not reads or {"hide-cell", "remove-cell"} & set(cell.metadata.get("tags", [])):
            continue
        shown, moves = figures_in(cell)
        still, moving = still + shown, moving + moves
        words += sum(len(prose(text).split()) for text in written(cell))
        if not FOLDED & set(cell.metadata.get("tags", [])):
            code += len(list(filter(str.strip, cell.source.splitlines())))
    return Outline(
        path.stem,
        words,
        code,
        still,
        moving,
        tuple(numbers),
        tuple(boxes),
        minutes,
        stated,
    )


def chapters() -> list[Path]:
    """Return the notebooks that are chapters, in order."""
    return [path for path in notebooks() if CHAPTER.fullmatch(path.stem)]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument(
        "names", nargs="*", metavar="NAME", help="chapters; all where none is named"
    )
    names = parser.parse_args().names
    for each in map(outline, notebooks(names) if names else chapters()):
        read, with_exercises = each.minutes
        print(
            f"{each.name}: {each.words} words, {each.code_lines} lines of code, {each.figures} "
            f"figures ({each.moving} move), {len(each.boxes)} boxes; {read} minutes to read, "
            f"{with_exercises} with the exercises"
        )


if __name__ == "__main__":
    main()
