"""Lesson plans made from the executed chapters: what to show, to ask, and to assign."""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import nbformat

from lab import sets
from tools import outline
from tools.refresh import BOOK

FIGURE = re.compile(r"\*\*Figure ([0-9A-Z]+\.\d+)\.\*\*")
ANSWER = re.compile(r"^`{3,}\{dropdown\} Answer.*?^`{3,}[ \t]*$\n?", re.MULTILINE | re.DOTALL)
NUMBERED = re.compile(r"^(?:\*\*)?(\d+)\.(?:\*\*)?\s+", re.MULTILINE)
MUSEUM = re.compile(r"\{exercise\} Museum of errors: (.*)")
STATE = re.compile(r"\[([^\]]+)\]\((#figure-[^)?]+\?([^)]+))\)")
APART = ("Change this cell", "Exercises", "Summary", "Questions", "References")


@dataclass
class Section:
    """A section of a chapter: its prose, and the numbers of its figures."""

    title: str
    text: str = ""
    figures: list[str] = field(default_factory=list)


def sections(notebook: Any) -> list[Section]:
    """Return the sections of a chapter; the first is its title and opening."""
    found: list[Section] = []
    for cell in notebook["cells"]:
        if cell["cell_type"] == "markdown":
            for part in re.split(r"^(?=##? )", cell["source"], flags=re.MULTILINE):
                if head := re.match(r"##? (.*)\n?", part):
                    found.append(Section(head[1].strip(), part[head.end() :]))
                elif found:
                    found[-1].text += "\n\n" + part
        elif found and cell["cell_type"] == "code":
            captions = (
                output.get("data", {}).get("text/markdown", "") for output in cell["outputs"]
            )
            found[-1].figures += [words[1] for text in captions if (words := FIGURE.match(text))]
    return found


def questions(parts: list[Section]) -> list[str]:
    """Return the questions at the end of a chapter, without their answers."""
    text = next((part.text for part in parts if part.title == "Questions"), "")
    pieces = NUMBERED.split(ANSWER.sub("", text))[2::2]
    return [" ".join(piece.replace("**", "").split()) for piece in pieces]


def listed(texts: list[str]) -> str:
    """Return titles as one list of words."""
    return "; ".join(f"*{text}*" for text in texts)


def plan(path: Path) -> str:
    """Return ninety minutes on a chapter as Markdown: what to show, to ask, and to assign."""
    name = path.stem
    parts = sections(nbformat.read(path, as_version=4))
    steps = [part for part in parts[1:] if part.title not in APART]
    half = (len(steps) + 1) // 2
    shown = [number for part in parts for number in part.figures]
    text = "\n".join(part.text for part in parts)
    read = outline.outline(path).minutes[0]
    first = "Read the opening aloud"
    if shown:
        link = f"{path.name}#figure-{shown[0].lower().replace('.', '-')}"
        first = f"Show [Figure {shown[0]}]({link}) without its caption"
    states = [
        f"[{words.strip('*.')} ({values.replace('&', ', ')})]({path.name}{target})"
        for words, target, values in STATE.findall(text)
    ]
    then = f" Then, in the whole window: {'; '.join(states)}." if states else ""
    asked = questions(parts)
    lines = [
        f"**Before.** Everybody reads the chapter, about {read} minutes.",
        f"**0 to 10.** {first}, and ask what it says. Write down two guesses.{then}",
        f"**10 to 40, at the board.** {listed([part.title for part in steps[:half]])}.",
        f"**40 to 60, in the notebook.** {listed([part.title for part in steps[half:]])}."
        if steps[half:]
        else "**40 to 60, in the notebook.** The same cells with other numbers.",
    ]
    if any(part.title == "Change this cell" for part in parts):
        lines.append("**60 to 70.** *Change this cell*: everybody predicts before it runs.")
    if asked:
        lines.append("**70 to 90, in pairs, then together.** Ask:")
    body = "\n\n".join(lines)
    if asked:
        body += "\n\n" + "\n".join(f"{place}. {text}" for place, text in enumerate(asked, 1))
    museum = [found.strip() for found in MUSEUM.findall(text)]
    work = []
    if name in sets.facts()["sets"]:
        about = sets.describe(name)
        work.append(
            f"graded set {about['number']} ({about['minutes']} minutes, {about['points']:g} points)"
        )
    work += [f"from the museum of errors: *{title}*" for title in museum]
    return body + ("\n\n**Assign** " + "; ".join(work) + "." if work else "")


def chapters() -> list[Path]:
    """Return the chapters that are taught, in the order of their names."""
    named = [path for path in outline.chapters() if not path.stem.startswith("00")]
    return [*named, BOOK / "hierarchical.ipynb"]


def plans() -> str:
    """Return the plans of all chapters as Markdown, each in a fold."""
    folds = []
    for path in chapters():
        title = sections(nbformat.read(path, as_version=4))[0].title
        folds.append(f"````{{dropdown}} {title}\n{plan(path)}\n````")
    return "\n\n".join(folds)
