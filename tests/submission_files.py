"""Reads tests/submissions/*.txt and writes the course folder that they describe.

A file says what a submission is about, what each answer should get, and how it differs from
the instructor's solution (or from the notebook as handed out): `--- first`, `--- last` and
`--- text` add cells, `--- NAME` replaces the answer NAME, `--- copy NAME` adds a second one,
`--- test ID points=N` replaces a test cell. `hides` is a word that may come back nowhere.
"""

from __future__ import annotations

import json
import os
import re
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from exercises.sets import Question, load, release_path, source_path

FOLDER = Path(__file__).parent / "submissions"
SET = "02_sinusoidal"


@dataclass(frozen=True)
class Submission:
    """One file of the folder."""

    student: str
    head: dict[str, str]
    parts: tuple[tuple[str, str], ...]

    @property
    def expected(self) -> list[str]:
        """Return the verdict that each question should get."""
        return [word.strip() for word in self.head["expect"].split(",")]

    @property
    def says(self) -> dict[str, str]:
        """Return what the message of some questions must contain."""
        pairs = (part.split(":", 1) for part in self.head.get("says", "").split(";") if part)
        return {name.strip(): text.strip() for name, text in pairs}

    @property
    def points(self) -> float:
        """Return the points expected."""
        questions: tuple[Question, ...] = load(SET).questions
        right = zip(questions, self.expected, strict=True)
        return sum(question.points for question, word in right if word == "ok")


def read(path: Path) -> Submission:
    """Read one file."""
    head, *parts = re.split(r"^--- (.*)\n", path.read_text(encoding="utf-8"), flags=re.MULTILINE)
    pairs = (line.split(":", 1) for line in head.splitlines() if ":" in line)
    fields = {name.strip(): text.strip() for name, text in pairs}
    return Submission(
        fields.get("student", path.stem), fields, tuple(zip(parts[0::2], parts[1::2], strict=True))
    )


def all_submissions() -> list[Submission]:
    """Return all files of the folder."""
    return [read(path) for path in sorted(FOLDER.glob("*.txt"))]


def code(source: str, metadata: dict[str, Any] | None = None) -> dict[str, Any]:
    """Return a code cell."""
    return {"cell_type": "code", "id": "added", "metadata": metadata or {}, "source": source,
            "outputs": [], "execution_count": None}  # fmt: skip


def notebook(submission: Submission) -> dict[str, Any]:
    """Return the notebook that a file describes."""
    base = release_path if submission.head.get("base") == "release" else source_path
    made: dict[str, Any] = json.loads(base(SET).read_text(encoding="utf-8"))
    cells = made["cells"]
    place = {cell["metadata"].get("nbgrader", {}).get("grade_id"): cell for cell in cells}
    for name, source in submission.parts:
        words = name.split()
        if name == "first":
            cells.insert(0, code(source))
        elif name == "last":
            cells.append(code(source))
        elif name == "text":
            cells.append({"cell_type": "markdown", "id": "t", "metadata": {}, "source": source})
        elif words[0] == "copy":
            original = place[words[1]]
            cells.insert(cells.index(original) + 1, code(source, original["metadata"]))
        elif words[0] == "test":
            place[words[1]]["source"] = source
            place[words[1]]["metadata"]["nbgrader"]["points"] = int(words[2].split("=")[1])
        else:
            place[name]["source"] = source
    for name in submission.head.get("delete", "").split():
        if name == "metadata":
            for cell in cells:
                cell["metadata"] = {}
        else:
            cells.remove(place[name])
    if "outputs" in submission.head:
        for cell in cells:
            if cell["cell_type"] == "code":
                html = {"text/html": submission.head["outputs"]}
                cell["outputs"] = [{"output_type": "display_data", "data": html, "metadata": {}}]
    return made


def add_cell(text: str, source: str, *outputs: dict[str, Any]) -> str:
    """Return a notebook with one more cell."""
    made = json.loads(text)
    made["cells"].append({**code(source), "outputs": list(outputs)})
    return json.dumps(made)


def write_submission(course: Path, submission: Submission) -> None:
    """Write one submission into a course folder."""
    folder = course / "submitted" / submission.student / SET
    folder.mkdir(parents=True)
    path = folder / f"{SET}.ipynb"
    make = submission.head.get("make")
    text = json.dumps(notebook(submission)).replace("@COURSE@", str(course))
    if "raw" in submission.head:
        path.write_text(submission.head["raw"])
    elif make == "half":
        path.write_text(text[: len(text) // 2])
    elif make == "binary":
        path.write_bytes(b"\x89PNG\r\n\x1a\n" + bytes(range(256)) * 20)
    elif make == "deep":
        path.write_text("[" * 1_000_000)
    elif make == "large":
        path.write_text(add_cell(text, "#" * (6 << 20)))
    elif make == "plots":
        picture = {"image/png": "A" * (6 << 20)}
        plot = {"output_type": "display_data", "metadata": {}, "data": picture}
        path.write_text(add_cell(text, "1", plot))
    elif make == "broken":
        made = json.loads(text)
        odd = "# \ud800 \x00 \u202e \udfff\x1b[2J \ufeff"
        made["cells"] += [{**code(odd), "cell_type": kind} for kind in ("code", "markdown", "raw")]
        path.write_text(json.dumps(made))
    elif make == "windows":
        made = json.loads(text)
        for cell in made["cells"]:
            cell["source"] = "".join(cell["source"]).replace("\n", "\r\n")
        path.write_bytes(
            b"\xef\xbb\xbf" + json.dumps(made, indent=1).replace("\n", "\r\n").encode()
        )
    elif make == "utf16":
        path.write_text(text, encoding="utf-16")
    elif make == "blanks":
        path.write_text(add_cell(text, "\n " * 40_000))
    elif make == "nothing":
        (folder / "notes.txt").write_text("see my mail")
    elif make == "link":
        path.symlink_to(course / "submitted/right" / SET / f"{SET}.ipynb")
    elif make == "pipe":
        os.mkfifo(path)
    elif make == "renamed":
        (folder / f"{SET} (1).ipynb").write_text(text)
    elif make == "another":
        path.write_bytes(source_path("03_learned").read_bytes())
    elif make == "brackets":
        made = json.loads(text)
        many = "[" * 2_000_000
        added = {"cell_type": "markdown", "id": "many", "metadata": {}, "source": many}
        made["cells"] += [added, code("#" + many)]
        path.write_text(json.dumps(made))
    else:
        path.write_text(text)
