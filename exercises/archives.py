"""Feedback as the archives that learning platforms take: one for each set and platform."""

from __future__ import annotations

import json
import zipfile
from collections import defaultdict
from collections.abc import Callable
from typing import Any

from exercises.collect import read_kept
from exercises.platforms import PLATFORMS
from exercises.records import Course, Record
from exercises.tables import counted, open_points, open_top, open_word, total_of

# Gradescope takes results only from an autograder. This one runs no student's code: it hands out
# what was found here, by the submission's number.
AUTOGRADER = {
    "setup.sh": "#!/bin/bash\napt-get update\napt-get install -y python3\n",
    "run_autograder": """#!/usr/bin/env python3
import json
import shutil

with open("/autograder/submission_metadata.json") as file:
    number = json.load(file)["id"]
shutil.copy(f"/autograder/source/results/{number}.json", "/autograder/results/results.json")
""",
}


def results(record: Record) -> dict[str, Any]:
    """Return a submission's points as Gradescope reads them.

    Source: gradescope-autograders.readthedocs.io/en/latest/specs, Output format.
    """
    by_hand = record.get("by_hand", {})
    tests: list[dict[str, Any]] = [
        {"name": one["question"], "score": by_hand.get(one["test_id"], one["points"]),
         "max_score": one["max_points"], "output": f"{one['word']}: {one['message']}".rstrip(": ")}
        for one in record["verdicts"]
    ]  # fmt: skip
    points = open_points(record)
    if open_word(record) != "not answered":
        score = {} if points == "" else {"score": points, "max_score": open_top(record["set"])}
        tests.append({"name": "open exercise", **score, "output": open_word(record)})
    return {
        "score": total_of(record)[0],
        "stdout_visibility": "hidden",
        "tests": [{**test, "visibility": "visible"} for test in tests],
    }


def page(course: Course, record: Record) -> bytes:
    """Return the page of feedback."""
    return course.place("feedback", record["student"], record["set"], "html").read_bytes()


def notebook(course: Course, record: Record) -> bytes:
    """Return the notebook with its verdicts."""
    return course.place("autograded", record["student"], record["set"], "ipynb").read_bytes()


def result(course: Course, record: Record) -> bytes:
    """Return the points for Gradescope."""
    del course
    return json.dumps(results(record), indent=1).encode()


# Canvas shows what comes back under the name of what was handed in: it has to be a notebook.
MADE: dict[str, Callable[[Course, Record], bytes]] = {
    "moodle": page, "canvas": notebook, "gradescope": result,
}  # fmt: skip


def write_archives(course: Course, records: list[Record], sets: list[str]) -> list[str]:
    """Write an archive for each platform that a set was collected from.

    Args:
        course: the folder.
        records: of all submissions.
        sets: what this run is about.

    Returns:
        What to upload, and where, or what is missing before that; each archive is either whole or
        not there.
    """
    made = []
    for name, origins in read_kept(course.root).items():
        graded = [one for one in records if one["set"] == name in sets]
        # Of a group, which has one file, the last counts: one whose answers are all scored.
        here = [one for one in graded if one["student"] in origins]
        here.sort(key=lambda one: open_points(one) != "")
        others = ", ".join(one["student"] for one in graded if one["student"] not in origins)
        for platform in MADE:
            groups: dict[str, list[Record]] = defaultdict(list)
            for one in here:
                origin = origins[one["student"]]
                if origin.platform == platform:
                    groups[PLATFORMS[platform].returned(origin.file, name)].append(one)
            if not groups:
                continue
            files = {file: group[-1] for file, group in groups.items()}
            path = course.root / f"{platform}_{name}.zip"
            fresh = path.with_suffix(".new")
            with zipfile.ZipFile(fresh, "w", zipfile.ZIP_DEFLATED, compresslevel=1) as archive:
                for file, text in AUTOGRADER.items() if platform == "gradescope" else ():
                    archive.writestr(file, text)
                for file, record in files.items():
                    archive.writestr(file, MADE[platform](course, record))
            fresh.replace(path)
            for group in groups.values():
                if len({(counted(one), open_points(one)) for one in group}) > 1:
                    names = ", ".join(one["student"] for one in group)
                    made.append(f"{path.name}: of the group {names}, the points of "
                                f"{group[-1]['student']} count; they differ")  # fmt: skip
            if others:
                made.append(f"Graded, but not in {path.name}: {others} (not collected from "
                            f"{PLATFORMS[platform].title})")  # fmt: skip
            waiting = sum(open_points(one) == "" for one in files.values())
            upload = f"For {PLATFORMS[platform].title}, {PLATFORMS[platform].upload}: {path}"
            wait = f"{path}: {waiting} wait{'s' * (waiting == 1)} for a person; the archive says so"
            made.append(wait if waiting else upload)
    return made
