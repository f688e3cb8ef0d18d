"""Write what students wrote into files of code, one for each, for a tool that compares them.

    python -m exercises.own_code COURSE 10_rope      into COURSE/code/10_rope/STUDENT.py

Only answers and cells of the student's own: what was handed out is in all of them.
"""

from __future__ import annotations

import sys
from pathlib import Path

from exercises.notebook import Unreadable, handed_out, parse, restore
from exercises.records import Course, write
from exercises.sets import load


def own_code(data: bytes, name: str) -> str:
    """Return the code of a submission that its student wrote; nothing if it cannot be read."""
    try:
        cells = restore(parse(data), load(name))
    except Unreadable:
        return ""
    given = {cell.source for cell in handed_out(name)}
    own = (cell.source for cell in cells if cell.kind == "code" and cell.source not in given)
    return "\n\n".join(own) + "\n"


def main(arguments: list[str] | None = None) -> int:
    """Write the files."""
    given = sys.argv[1:] if arguments is None else arguments
    if len(given) != 2:
        print(__doc__, file=sys.stderr)
        return 2
    course, name = Course(Path(given[0]).expanduser()), given[1]
    load(name)
    folder = course.root / "code" / name
    folder.mkdir(parents=True, exist_ok=True)
    count = 0
    for student, other in course.submissions()[0]:
        data = course.read_submission(student, name)[0] if other == name else None
        if data is not None:
            write(folder / f"{student}.py", own_code(data, name))
            count += 1
    print(f"{count} files in {folder}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
