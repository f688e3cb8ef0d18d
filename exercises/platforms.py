"""How learning platforms name the files of a class, on the way out and on the way back.

A name begins with the platform's own part, which says whose the file is; what stands behind it, the
student has chosen. No student can hand in for somebody else as long as only that first part is
believed, and all files of a download are read as those of one platform.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from datetime import UTC, datetime
from typing import Any, NamedTuple

Told = Mapping[str, Any]  # what a download says itself of whose its files are


class Owner(NamedTuple):
    """Whose a file is, by what the platform calls them; a group has several."""

    numbers: list[str]
    attempt: str = ""  # the later, the greater
    handed_in: datetime | None = None  # UTC, where that is known


class Platform(NamedTuple):
    """A platform: its name, its part of a file's name, and whose a file with that part is."""

    title: str
    mark: re.Pattern[str]
    owner: Callable[[re.Match[str], Told], Owner]
    # The name that the platform gives to the same student again, from a file's name and the set's.
    returned: Callable[[str, str], str] | None = None
    upload: str = ""  # where the archive goes


def of_blackboard(mark: re.Match[str], told: Told) -> Owner:
    """Return who made an attempt: by its text file or, without one, what follows the last `_`."""
    return Owner([told.get(mark[1]) or mark[1].rpartition("_")[2]], attempt=mark[2])


def of_gradescope(mark: re.Match[str], told: Told) -> Owner:
    """Return the submitters of a submission by their addresses or, without one, their numbers."""
    entry = told.get(mark[1], {})
    people = [str(one.get(":email") or one.get(":sid") or "")
              for one in entry.get(":submitters", [{}])]  # fmt: skip
    at = entry.get(":created_at")
    known = isinstance(at, datetime) and at.tzinfo is not None
    return Owner(people, handed_in=at.astimezone(UTC).replace(tzinfo=None) if known else None)


def to_moodle(file: str, name: str) -> str:
    """Return the name of a page of feedback, in the form that old and new Moodles read."""
    return f"{file.partition('_assignsubmission_')[0]}_assignfeedback_file_/{name}.html"


def to_gradescope(file: str, name: str) -> str:
    """Return the name of a result, which has the submission's number."""
    del name
    return f"results/{PLATFORMS['gradescope'].mark.match(file)[1].partition('_')[2]}.json"


PLATFORMS = {
    # NAME_NUMBER_assignsubmission_file, as a folder (with `_` at its end until Moodle 4.0) or not.
    "moodle": Platform(
        "Moodle", re.compile(r"[^/_]*_([0-9]+)_assignsubmission_file(?:_/?|/)"),
        lambda mark, _: Owner([mark[1]]), to_moodle,
        "in the assignment, Upload multiple feedback files in a zip",
    ),
    # NAME_(LATE_)STUDENT_FILE_ or, where names are hidden, (LATE_)anon_STUDENT_FILE_.
    "canvas": Platform(
        "Canvas", re.compile(r"(?:LATE_)?anon_([0-9A-Za-z]{5})_[0-9]+_|[^/]*?_([0-9]+)_[0-9]+_"),
        lambda mark, _: Owner([mark[1] or mark[2]]), lambda file, _: file,
        "in the assignment, Re-upload submissions",
    ),
    # ASSIGNMENT_STUDENT_attempt_TIME_ and, beside it, a file ASSIGNMENT_STUDENT_attempt_TIME.txt;
    # the word is in the language of the platform.
    "blackboard": Platform(
        "Blackboard",
        re.compile(r"([^/]+?)_[^\W\d_]+_([0-9]{4}(?:-[0-9]{2}){5})(?:_|\.txt$)"),
        of_blackboard,
    ),
    "gradescope": Platform(
        "Gradescope", re.compile(r"(?:assignment_[0-9]+_export/)?(submission_[0-9]+)/"),
        of_gradescope, to_gradescope,
        "in Configure Autograder, then Regrade all submissions",
    ),
}  # fmt: skip


def platform_of(names: list[str]) -> str:
    """Return the platform that has named files.

    Every file of a platform has its mark. A student can give a file another's besides, so the names
    of a download that somebody has forged fit two at most equally well.

    Raises:
        ValueError: if that is none or could be several.
    """
    fits = {one: sum(bool(PLATFORMS[one].mark.match(name)) for name in names) for one in PLATFORMS}
    best = [one for one, count in fits.items() if count == max(fits.values()) > 0]
    if len(best) == 1:
        return best[0]
    titles = " and ".join(PLATFORMS[one].title for one in best)
    why = f"the names could be those of {titles}" if best else (
        f"no file is named as {', '.join(one.title for one in PLATFORMS.values())} name them"
    )  # fmt: skip
    raise ValueError(f"{why}; say what it is: --platform {' or '.join(best or PLATFORMS)}")
