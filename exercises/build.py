"""Generate the students' notebooks from the instructor's, and a zip of all of them.

    python -m exercises.build            write exercises/release/
    python -m exercises.build --check    say what is not up to date, and exit with 1

nbgrader's own preprocessors do the work; nothing is written into a gradebook.
"""

from __future__ import annotations

import argparse
import io
import logging
import sys
import zipfile
from pathlib import Path

import nbformat
from traitlets.config import Config

from exercises.sets import RELEASE, release_path, set_names, source_path

ZIP = RELEASE / "exercises.zip"
READ_ME = """Exercises of "Positional Encodings, from first principles".

Open a notebook in JupyterLab. It needs torch and the course's library pe_lib; the course's
README says how to install both. Each answer is checked by the cell below it.
"""


def settings() -> Config:
    """Return nbgrader's settings of this folder."""
    from traitlets.config.loader import PyFileConfigLoader

    return PyFileConfigLoader("nbgrader_config.py", path=str(Path(__file__).parent)).load_config()


def release_text(name: str) -> str:
    """Return the students' notebook of a set."""
    from nbgrader import preprocessors as steps

    notebook = nbformat.read(source_path(name), as_version=4)
    resources = {"nbgrader": {"notebook": name, "assignment": name, "student": "."}}
    config = settings()
    for step in (
        steps.LockCells,
        steps.ClearSolutions,
        steps.ClearOutput,
        steps.CheckCellMetadata,
        steps.ClearHiddenTests,
        steps.ClearMarkScheme,
        steps.ComputeChecksums,
        steps.CheckCellMetadata,
    ):
        preprocessor = step(config=config)
        preprocessor.log.setLevel(logging.WARNING)
        notebook, resources = preprocessor.preprocess(notebook, resources)
    nbformat.validate(notebook)
    return str(nbformat.writes(notebook)) + "\n"


def zip_bytes(notebooks: dict[str, str]) -> bytes:
    """Return a zip of the notebooks, the same bytes for the same notebooks."""
    files = {"README.txt": READ_ME, **{f"{name}.ipynb": text for name, text in notebooks.items()}}
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w") as archive:
        for name, text in files.items():
            archive.writestr(zipfile.ZipInfo(f"exercises/{name}"), text)
    return buffer.getvalue()


def products(names: list[str]) -> dict[Path, bytes]:
    """Return what the release folder must hold."""
    notebooks = {name: release_text(name) for name in names}
    files = {release_path(name): text.encode() for name, text in notebooks.items()}
    return {**files, ZIP: zip_bytes(notebooks)}


def main(arguments: list[str] | None = None) -> int:
    """Write the release folder, or check it."""
    parser = argparse.ArgumentParser(prog="python -m exercises.build", description=__doc__)
    parser.add_argument("--check", action="store_true", help="write nothing; exit with 1 if stale")
    options = parser.parse_args(arguments)
    wanted = products(set_names())
    stale = [
        path for path, data in wanted.items() if not path.exists() or path.read_bytes() != data
    ]
    unknown = [path for path in RELEASE.rglob("*") if path.is_file() and path not in wanted]
    for path in stale + unknown:
        print(f"{'stale' if path in wanted else 'not generated'}: {path.relative_to(RELEASE)}")
    if options.check:
        return 1 if stale or unknown else 0
    for path in stale:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(wanted[path])
    print(f"{len(wanted) - 1} student notebooks and {ZIP.name} are up to date in {RELEASE}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
