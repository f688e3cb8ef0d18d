"""Generate the students' notebooks from the instructor's, a zip of all, and what pages say of them.

    python -m exercises.build            write exercises/release/ and pe_course/data/sets.json
    python -m exercises.build --check    say what is not up to date, and exit with 1

nbgrader's own preprocessors do the work; nothing is written into a gradebook.
"""

from __future__ import annotations

import argparse
import io
import json
import logging
import os
import re
import sys
import zipfile
from pathlib import Path
from typing import Any

import nbformat
from traitlets.config import Config

from exercises.sets import HERE, RELEASE, load, projects, release_path, set_names, source_path
from pe_course.sets import FACTS

ZIP = RELEASE / "exercises.zip"
# What an exercise notebook may use: the checks' values, and the library, models and results for its
# own experiments. No solution is in it.
SHARED = (
    "LICENSE",
    "exercises/__init__.py",
    "exercises/checks/__init__.py",
    "exercises/checks/kept.py",
    "exercises/checks/seen.py",
    "exercises/practice.py",
    "pe_course/judge/*.py",
    "pe_lib/*.py",
    "pe_lib/recent/*.py",
    "pe_course/bakeoff/*.py",
    "pe_course/bakeoff/data/small.csv",  # what open exercises read
    "pe_course/page/*.json",
    "pe_course/*.py",
    "pe_course/page/*.py",
    "pe_course/data/*.json",
    "pe_course/data/*.txt",
    "pe_course/data/glass/*",  # the model that the open exercise of chapter 12 examines
)
# What the first cell of a set says of it.
ABOUT = re.compile(
    r"\*Exercise set (\w+) of .*about (\d+) minutes.*\*\*You will\*\* (.+?)\.\n", re.S
)
READ_ME = """Exercises of a course on positional encodings.

Open a notebook in JupyterLab, or upload it to Colab. Its first cell brings what it needs. Each
answer is checked by the cell below it.
"""
PROJECT = re.compile(  # and that of a project
    r"# (.+?)\n.*\*Project on (.+?): about (\d+) minutes"
    r".*\*\*You will\*\* (.+?)\.\n",
    re.S,
)


def settings() -> Config:
    """Return nbgrader's settings of this folder."""
    from traitlets.config.loader import PyFileConfigLoader

    return PyFileConfigLoader("nbgrader_config.py", path=str(Path(__file__).parent)).load_config()


def release_text(name: str) -> str:
    """Return the students' notebook of a set."""
    from nbgrader.preprocessors import SaveCells

    notebook = nbformat.read(source_path(name), as_version=4)
    resources = {"nbgrader": {"notebook": name, "assignment": name, "student": "."}}
    config = settings()
    for step in config.GenerateAssignment.preprocessors:
        if step is not SaveCells:  # into the gradebook
            preprocessor = step(config=config)
            preprocessor.log.setLevel(logging.WARNING)
            notebook, resources = preprocessor.preprocess(notebook, resources)
    nbformat.validate(notebook)
    return str(nbformat.writes(notebook)) + "\n"


def packed(files: dict[str, bytes], compression: int = zipfile.ZIP_STORED) -> bytes:
    """Return a zip of the files, the same bytes for the same files."""
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w") as archive:
        for name, data in files.items():
            archive.writestr(zipfile.ZipInfo(name), data, compression)
    return buffer.getvalue()


def checks() -> bytes:
    """Return the archive that the first cell of an exercise notebook fetches."""
    from exercises.checks import SETS  # loads torch, which a build of the notebooks does without
    from pe_course.judge.recorded import record

    paths = sorted(path for pattern in SHARED for path in HERE.parent.glob(pattern))
    files = {path.relative_to(HERE.parent).as_posix(): path.read_bytes() for path in paths}
    for name, exercises in SETS.items():
        found = json.dumps([record(exercise) for exercise in exercises])
        files[f"exercises/checks/recorded/{name}.json"] = found.encode()
    files["bring.py"] = (HERE / "bring.py").read_bytes()
    return packed(files, zipfile.ZIP_DEFLATED)


def zip_bytes(notebooks: dict[str, str]) -> bytes:
    """Return a zip of the students' notebooks."""
    files = {"README.txt": READ_ME, **{f"{name}.ipynb": text for name, text in notebooks.items()}}
    return packed({f"exercises/{name}": text.encode() for name, text in files.items()})


def about(name: str) -> dict[str, Any]:
    """Return what pages say of a set.

    Raises:
        ValueError: if its first cell does not say what the learner will do.
    """
    text = nbformat.read(source_path(name), as_version=4).cells[0].source
    found = ABOUT.search(text)
    if found is None:
        raise ValueError(f"{name}: its first cell lacks minutes, or `**You will** ... .`")
    exercise_set = load(name)
    return {
        "number": int(found[1]) if found[1].isdigit() else found[1],  # or a page's letter
        "title": exercise_set.title,
        "asks": found[3],
        "minutes": int(found[2]),
        "points": exercise_set.points,
        "exercises": len(exercise_set.questions),
    }


def about_project(path: Path) -> dict[str, Any]:
    """Return what pages say of a project.

    Raises:
        ValueError: if its first cell does not say what the learner will do.
    """
    found = PROJECT.match(nbformat.read(path, as_version=4).cells[0].source)
    if found is None:
        raise ValueError(f"{path}: its first cell lacks subject, minutes, or `**You will** ... .`")
    title, subject, minutes, asks = found.groups()
    return {"title": title, "subject": subject, "asks": asks, "minutes": int(minutes)}


def facts_text(names: list[str]) -> str:
    """Return the facts that pages show."""
    facts = {
        "sets": {name: about(name) for name in names},
        "projects": {path.stem: about_project(path) for path in projects()},
    }
    return json.dumps(facts, indent=1, ensure_ascii=False) + "\n"


def products(names: list[str]) -> dict[Path, bytes]:
    """Return what the release folder must hold, and what pages say of the sets."""
    notebooks = {name: release_text(name) for name in names}
    files = {release_path(name): text.encode() for name, text in notebooks.items()}
    return {**files, ZIP: zip_bytes(notebooks), FACTS: facts_text(names).encode()}


def main(arguments: list[str] | None = None) -> int:
    """Write the release folder, or check it."""
    from exercises.checks.kept import NAME as PROGRESS  # loads torch, which a build can do without

    parser = argparse.ArgumentParser(prog="python -m exercises.build", description=__doc__)
    parser.add_argument("--check", action="store_true", help="write nothing; exit with 1 if stale")
    options = parser.parse_args(arguments)
    wanted = products(set_names())
    stale = [
        path for path, data in wanted.items() if not path.exists() or path.read_bytes() != data
    ]
    unknown = [
        path for path in RELEASE.rglob("*")
        if path.is_file() and path not in wanted and path.name != PROGRESS
    ]  # fmt: skip
    for path in stale + unknown:
        word = "stale" if path in wanted else "not generated"
        print(f"{word}: {os.path.relpath(path, RELEASE)}")
    if options.check:
        return 1 if stale or unknown else 0
    for path in stale:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(wanted[path])
    print(f"{len(wanted) - 2} student notebooks and {ZIP.name} are up to date in {RELEASE}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
