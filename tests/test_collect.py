"""Work comes in from a learning platform, and feedback finds its way back to the same student."""

from __future__ import annotations

import io
import json
import re
import shutil
import subprocess
import sys
import zipfile
from collections.abc import Callable
from pathlib import Path

import pytest

from exercises import collect
from exercises.archives import results, write_archives
from exercises.collect import owner_of
from exercises.grade_course import main
from exercises.platforms import PLATFORMS
from exercises.records import LARGEST_FILE, Course
from exercises.sets import load, release_path, set_names, source_path
from exercises.tables import write_tables

NAME = "03_learned"
AT = "attempt_2026-11-20-10-11-12"
EXPORT = "assignment_77_export/"
METADATA = """\
submission_101:
  :submitters:
  - :name: Ann Lee
    :sid: '0012'
    :email: ann@u.example
  :created_at: 2026-11-20 10:11:12.644186000 Z
  :score: 0.0
submission_102:
  :submitters:
  - :name: Bob Roy
    :sid: '0013'
    :email: bob@u.example
  - :name: Eve Moe
    :sid: '0014'
    :email:
  :created_at: 2026-11-20 02:11:12.5 -08:00
"""
# Whose each file is, or what it is besides.
HONEST: dict[str, dict[str, str]] = {
    "moodle": {
        f"Ann Lee_34567_assignsubmission_file/{NAME}.ipynb": "34567",
        f"Eve Ö. M_34568_assignsubmission_file_/{NAME}.ipynb": "34568",
        f"Zoe_45678_assignsubmission_file_{NAME} (1).ipynb": "45678",
        f"Jo 7 Ray_56789_assignsubmission_file/{NAME}(2).ipynb": "56789",
        f"Participant_67890_assignsubmission_file/{NAME}.ipynb": "67890",
    },
    "canvas": {
        f"leeann_12345_67890_{NAME}.ipynb": "12345",
        f"roybob_LATE_23456_67891_{NAME}-2.ipynb": "23456",
        f"anon_LATE_23457_67892_{NAME}.ipynb": "23457",
        f"anon_AbC12_67893_{NAME}.ipynb": "AbC12",
        f"LATE_anon_9xYz1_67894_{NAME}-1.ipynb": "9xYz1",
    },
    "blackboard": {
        f"{NAME}_asmith_{AT}_{NAME}.ipynb": "asmith",
        f"{NAME}_b.roy@u.example_poging_2026-11-20-10-11-13_{NAME} (1).ipynb": "b.roy@u.example",
    },
    "gradescope": {
        f"{EXPORT}submission_101/{NAME}.ipynb": "ann@u.example",
        f"{EXPORT}submission_102/{NAME}.ipynb": "bob@u.example 0014",
    },
}
BESIDE = {
    "blackboard": {f"{NAME}_asmith_{AT}.txt": b"Name: Ann (eve) Smith (asmith)\nComments: (eve)\n"},
    "gradescope": {f"{EXPORT}submission_metadata.yml": METADATA.encode()},
}
TOLD = {"gradescope": {
    "submission_101": {":submitters": [{":email": "ann@u.example"}]},
    "submission_102": {":submitters": [{":email": "bob@u.example"}, {":sid": "0014"}]},
}}  # fmt: skip
# The student has chosen all that stands behind the platform's part.
FORGED = {
    "moodle": (
        f"Carl_33333_assignsubmission_file_/a_44444_1_{NAME}.ipynb",
        f"Carl_33333_assignsubmission_file_/b_44444_assignsubmission_file_/{NAME}.ipynb",
        f"Carl_33333_assignsubmission_file/b_44444_assignsubmission_file/{NAME}.ipynb",
        f"Carl_33333_assignsubmission_file_a_44444_1_{NAME}.ipynb",
        f"Carl_33333_assignsubmission_file_x_44444_assignsubmission_file_{NAME}.ipynb",
        f"Carl_33333_assignsubmission_file_/extracted/b_44444_1_{NAME}.ipynb",
        f"Carl_33333_assignsubmission_file/submission_44444/{NAME}.ipynb",
        f"Carl_33333_assignsubmission_file_x_eve_{AT}_{NAME}.ipynb",
        f"Carl_33333_assignsubmission_filex/{NAME}.ipynb",
    ),
    "canvas": (
        f"carl_33333_67892_x_44444_1_{NAME}.ipynb", f"carl_33333_67892_44444_1_{NAME}.ipynb",
        f"carl_LATE_33333_67892_x_LATE_44444_1_{NAME}.ipynb",
        f"carl_33333_67892_x_44444_assignsubmission_file_{NAME}.ipynb",
        f"carl_33333_67892_x_44444_assignsubmission_file_/{NAME}.ipynb",
        f"carl_33333_67892_x_eve_{AT}_{NAME}.ipynb",
        f"anon_AbC12_67892_44444_{NAME}.ipynb", f"anon_AbC12_67892_x_44444_1_{NAME}.ipynb",
        f"folder/carl_44444_1_{NAME}.ipynb", f"../carl_44444_1_{NAME}.ipynb",
        f"carl_33333_{NAME}.ipynb", f"carl_٣٣٣٣٣_١_{NAME}.ipynb",
        f"carl_33333_67892_{NAME}.ipynb\n", f"carl_33333_67892_{NAME}.zip",
        f"carl_33333_67892_{NAME}s.ipynb",
    ),
    "blackboard": (
        f"{NAME}_carl_{AT}_x_eve_{AT}_{NAME}.ipynb", f"{NAME}_carl_{AT}_44444_1_{NAME}.ipynb",
        f"{NAME}_carl_{AT}_x_44444_assignsubmission_file_{NAME}.ipynb",
        f"folder/{NAME}_carl_{AT}_{NAME}.ipynb",
    ),
    "gradescope": (
        f"{EXPORT}submission_101/submission_102/{NAME}.ipynb",
        f"{EXPORT}submission_101/x_44444_1_{NAME}.ipynb",
        f"{EXPORT}submission_101/assignment_77_export/submission_102/{NAME}.ipynb",
        f"{EXPORT}x/submission_102/{NAME}.ipynb",
    ),
}  # fmt: skip


def pack(path: Path, files: dict[str, bytes] | dict[str, str]) -> Path:
    """Write an archive."""
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, data in files.items():
            archive.writestr(name, data)
    return path


def download(folder: Path, platform: str, data: bytes = b"{}") -> Path:
    """Write what a platform would give for a class that is honest."""
    files = {**dict.fromkeys(HONEST[platform], data), **BESIDE.get(platform, {})}
    return pack(folder / f"{platform}.zip", files)


def students(root: Path) -> set[str]:
    """Return who has handed in."""
    return {student for student, _ in Course(root).submissions()[0]}


@pytest.mark.parametrize("platform", PLATFORMS)
@pytest.mark.parametrize("form", ["archive", "folder"])
def test_a_download_is_collected_without_saying_whose_it_is(
    platform: str, form: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Names are those that the platforms' public code writes.

    Moodle: moodle/moodle, mod/assign/classes/downloader.php, get_student_prefix and
    load_submissionplugin_filelist. Canvas: instructure/canvas-lms, lib/content_zipper.rb,
    get_filename and add_upload_submission. Blackboard and Gradescope are not public. Their forms
    rest on public programs that read them: kwurst/bb-file-cleanup (README.md) and nbgrader
    (plugins/zipcollect.py, named_regexp); ucbds-infra/otter-grader (otter/metadata.py,
    GradescopeParser). That Blackboard's word for an attempt is translated, and that the first line
    of its text file ends with the user name, has been seen in such programs only.
    """
    given = download(tmp_path, platform)
    if form == "folder":
        shutil.unpack_archive(given, given := tmp_path / "unpacked")
        (given / ".DS_Store").touch()
    assert collect.main([str(tmp_path / "c"), NAME, str(given)]) == 0
    said = capsys.readouterr()
    assert f"The download is {PLATFORMS[platform].title}'s." in said.out and said.err == ""
    assert students(tmp_path / "c") == {*" ".join(HONEST[platform].values()).split()}


@pytest.mark.parametrize("platform", PLATFORMS)
def test_nobody_chooses_whose_submission_a_file_is(platform: str, tmp_path: Path) -> None:
    """In no set: what fits is the platform's own, what a student adds makes it nobody's.

    Even if every file of a download is forged, it is not taken for another platform's.
    """
    told = TOLD.get(platform, {})
    for name in set_names():
        for file, whose in HONEST[platform].items():
            owner = owner_of(file.replace(NAME, name), name, platform, told)
            assert owner is not None and owner.numbers == whose.split()
        for file in FORGED[platform]:
            assert owner_of(file.replace(NAME, name), name, platform, told) is None
    for index, file in enumerate(FORGED[platform]):
        forged = pack(tmp_path / f"{index}.zip", {file: "{}"} | BESIDE.get(platform, {}))
        assert collect.main([str(tmp_path / "c"), NAME, str(forged)]) in (1, 2)
        both = {**dict.fromkeys(HONEST[platform], "{}"), **BESIDE.get(platform, {}), file: "{}"}
        pack(forged, both)
        assert collect.main([str(tmp_path / "honest"), NAME, str(forged)]) == 1
    assert not (tmp_path / "c").exists()
    assert students(tmp_path / "honest") == {*" ".join(HONEST[platform].values()).split()}


def test_a_download_that_could_be_of_two_platforms_is_asked_about(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Or of none; and what is no download at all is named."""
    given = pack(tmp_path / "a.zip", {f"carl_33333_67892_x_eve_{AT}_{NAME}.ipynb": "{}"})
    course = str(tmp_path / "c")
    assert collect.main([course, NAME, str(given)]) == 2
    said = capsys.readouterr().err
    assert "could be those of Canvas and Blackboard; say what it is: --platform canvas or" in said
    assert collect.main([course, NAME, str(given), "--platform", "canvas"]) == 1
    assert f"{NAME}.ipynb' is no notebook of {NAME} by its name" in capsys.readouterr().err
    for files in ({"notes.txt": "x"}, {}):
        assert collect.main([course, NAME, str(pack(given, files))]) == 2
        assert "no file is named as Moodle, Canvas, Blackboard" in capsys.readouterr().err
    for place in (tmp_path / "missing.zip", Path(__file__)):
        assert collect.main([course, NAME, str(place)]) == 2
        assert f"{place} is neither a zip archive nor a folder" in capsys.readouterr().err
    assert collect.main([course, "3_learned", str(given)]) == 2
    assert "no exercise set '3_learned'" in capsys.readouterr().err
    assert not (tmp_path / "c").exists()


def test_what_is_no_notebook_of_the_set_is_named_and_stays_in_the_download(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """None of it stops the others, is unpacked, or is read to its end."""
    given, nested = tmp_path / "download.zip", io.BytesIO()
    with zipfile.ZipFile(nested, "w") as archive:
        archive.writestr(f"x_44444_1_{NAME}.ipynb", "stolen")
        archive.writestr("../../evil.txt", "evil")
    with zipfile.ZipFile(given, "w", zipfile.ZIP_DEFLATED) as archive:
        for member in HONEST["canvas"]:
            archive.writestr(member, member)
        archive.writestr(f"mia_60001_1_{NAME}.ipynb", b" " * (LARGEST_FILE + 10))
        archive.writestr(f"max_60002_1_{NAME}.ipynb", "broken here", zipfile.ZIP_STORED)
        archive.writestr(f"two_60003_1_{NAME}.ipynb", "first")
        archive.writestr(f"two_60003_2_{NAME}-1.ipynb", "second")
        archive.writestr("zip_60004_1_work.zip", nested.getvalue())
    given.write_bytes(given.read_bytes().replace(b"broken here", b"broken herE"))
    assert collect.main([str(tmp_path / "c"), NAME, str(given)]) == 1
    said = capsys.readouterr().err.splitlines()
    named = {line.split("_")[1]: line.partition("ipynb' ")[2] for line in said}
    assert named.keys() == {"60002", "60003", "60004"} and len(said) == 4
    assert "Bad CRC-32" in named["60002"] and named["60003"] == "is one of several"
    assert f"'zip_60004_1_work.zip' is no notebook of {NAME} by its name" in said[0]
    files = {p.relative_to(tmp_path / "c"): p for p in (tmp_path / "c").rglob("*") if p.is_file()}
    whose = {**HONEST["canvas"], "mia": "60001"}
    places = {Path(f"submitted/{one}/{NAME}/{NAME}.ipynb"): one for one in whose.values()}
    assert files.keys() == {*places, Path("collected.json")}
    for member, student in HONEST["canvas"].items():
        assert files[Path(f"submitted/{student}/{NAME}/{NAME}.ipynb")].read_text() == member
    assert "larger than 24 MiB" in Course(tmp_path / "c").read_submission("60001", NAME)[1]


def test_of_several_attempts_the_latest_counts(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Of one student: where `x_ann` could be taken for `ann`, neither is."""
    early, late = "attempt_2026-11-19-23-59-59", AT
    files = {
        f"Set 3_a_lee_{late}_{NAME}.ipynb": "late", f"Set 3_a_lee_{early}_{NAME}.ipynb": "early",
        f"Set 3_a_lee_{late}.txt": "Name: Ann Lee (a_lee)\r\nAssignment: Set 3\r\n",
        f"Set 3_a_lee_{early}.txt": "Name: Ann Lee (a_lee)\r\nAssignment: Set 3\r\n",
        f"Set 3_bob_{late}_{NAME}.ipynb": "bob's", f"Set 3_x_bob_{early}_{NAME}.ipynb": "x_bob's",
        f"Set 3_bob_{late}.txt": "Name: Bob (x) (eve)\n",  # not whose file it is
    }  # fmt: skip
    given = str(pack(tmp_path / "d.zip", files))
    assert collect.main([str(tmp_path / "c"), NAME, given]) == 1
    said = capsys.readouterr()
    assert "a_lee: of 2 attempts the latest counts, 2026-11-20-10-11-12" in said.out
    assert said.err.count("is one of several") == 2
    assert students(tmp_path / "c") == {"a_lee"}
    place = tmp_path / "c/submitted/a_lee" / NAME
    assert [path.read_text() for path in place.iterdir()] == ["late"]


def test_a_group_of_gradescope_is_graded_one_by_one(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Each with the time of handing in; a submission without a person is nobody's."""
    files = {**BESIDE["gradescope"], f"{EXPORT}submission_103/{NAME}.ipynb": b"{}"}
    files |= dict.fromkeys(HONEST["gradescope"], b"{}")
    given = pack(tmp_path / "d.zip", files)
    assert collect.main([str(tmp_path / "c"), NAME, str(given)]) == 1
    assert "submission_103/03_learned.ipynb' would belong to ''" in capsys.readouterr().err
    times = {one: Course(tmp_path / "c").handed_in(one, NAME) for one in students(tmp_path / "c")}
    assert {one: str(at) for one, at in times.items()} == dict.fromkeys(
        ["ann@u.example", "bob@u.example", "0014"], "2026-11-20 10:11:12"
    )
    for text in ("", "- a", "submission_101: {:score: 1}", "a: b: c", "!!python/object:x.y {}"):
        files[f"{EXPORT}submission_metadata.yml"] = text.encode()
        assert collect.main([str(tmp_path / "n"), NAME, str(pack(given, files))]) == 2
        assert "submission_metadata.yml is not as Gradescope writes" in capsys.readouterr().err
    del files[f"{EXPORT}submission_metadata.yml"]
    assert collect.main([str(tmp_path / "n"), NAME, str(pack(given, files))]) == 2
    assert "says in submission_metadata.yml whose each" in capsys.readouterr().err
    assert not (tmp_path / "n").exists()


def test_an_older_hand_in_does_not_replace_a_later_one(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Its time is known, and so is that of the one that is here."""
    files = {**BESIDE["gradescope"], **dict.fromkeys(HONEST["gradescope"], b"{}")}
    given = pack(tmp_path / "d.zip", files)
    assert collect.main([str(tmp_path / "c"), NAME, str(given)]) == 0
    folder = tmp_path / "c/submitted/ann@u.example" / NAME
    for at, kept in (("2026-11-21 00:00:00 UTC", True), ("2026-11-19 00:00:00 UTC", False)):
        (folder / "timestamp.txt").write_text(at)
        (folder / f"{NAME}.ipynb").write_text("here")
        assert collect.main([str(tmp_path / "c"), NAME, str(given)]) == int(kept)
        assert ((folder / f"{NAME}.ipynb").read_text() == "here") == kept
        assert ("is older than the one of 2026-11-21" in capsys.readouterr().err) == kept


def test_an_archive_in_the_place_of_the_worksheet_is_named(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Nothing of what is in it comes on the screen."""
    given = pack(tmp_path / "d.zip", dict.fromkeys(HONEST["moodle"], b"{}"))
    assert collect.main([str(tmp_path / "c"), NAME, str(given), str(given)]) == 2
    assert capsys.readouterr().err.endswith(
        "is an archive and no worksheet; save the worksheet as CSV\n"
    )


ENGLISH = [["Identifier", "Full name", "Email address", "Status", "Grade"],
           ["Participant 34567", "Ann 45678", "a@b.example", "Submitted", ""],
           ["Participant 34568", "Eve", "e@b.example", "Submitted", "3"],
           ["Participant 45678", "Zoe", "z@b.example", "Submitted", "7"]]  # fmt: skip
GERMAN = [["ID", "Vollständiger Name", "Matrikelnummer", "E-Mail-Adresse", "Bewertung"],
          ["Teilnehmer/in34567", "Ann", "45678", "a@b.example", "3"],
          ["Teilnehmer/in34568", "Eve", "10", "e@b.example", ""],
          ["Teilnehmer/in45678", "Zoë", "11", "z@b.example", "7"]]  # fmt: skip


@pytest.mark.parametrize("lines", [ENGLISH, GERMAN], ids=["English", "German"])
@pytest.mark.parametrize("between", [",", ";", "\t"], ids=["comma", "semicolon", "tab"])
@pytest.mark.parametrize("encoding", ["utf-8", "utf-8-sig", "utf-16", "cp1252"])
def test_moodles_worksheet_tells_who_is_who_in_any_language(
    lines: list[list[str]], between: str, encoding: str, tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:  # fmt: skip
    """However a spreadsheet has saved it; the columns that were taken are said.

    Moodle finds its own identifier as the number behind a translated word (moodle/moodle,
    mod/assign/gradingtable.php, col_recordid, and
    mod/assign/feedback/offline/importgradeslib.php, next).
    """
    sheet = tmp_path / "worksheet.csv"
    text = "\n".join(between.join(f'"{cell}"' for cell in line) for line in lines)
    sheet.write_bytes(text.encode(encoding))
    files = [file for file, number in HONEST["moodle"].items() if number < "5"]
    given = pack(tmp_path / "d.zip", dict.fromkeys(files, "{}"))
    assert collect.main([str(tmp_path / "c"), NAME, str(given), str(sheet)]) == 0
    head = {*lines[0]} & {"Identifier", "ID", "Email address", "E-Mail-Adresse"}
    said = capsys.readouterr().out
    assert all(f"{title!r}" in said for title in head)
    assert students(tmp_path / "c") == {"a@b.example", "e@b.example", "z@b.example"}


def test_who_has_no_line_in_the_worksheet_or_an_impossible_one_is_named(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    files = [f"A B_{number}_assignsubmission_file/{NAME}.ipynb" for number in range(5, 9)]
    given = pack(tmp_path / "d.zip", dict.fromkeys(files, "{}"))
    sheet = tmp_path / "worksheet.csv"
    sheet.write_text("Identifier,Email\nP 5,a@b.example\nP 6,../../c@d.example\nP 7\n")
    assert collect.main([str(tmp_path / "c"), NAME, str(given), str(sheet)]) == 1
    said = capsys.readouterr().err
    assert "would belong to '../../c@d.example'" in said and "would belong to ''" in said
    assert "worksheet.csv has no participant 8, whose folder is 8" in said
    assert Course(tmp_path / "c").submissions() == ([("8", NAME), ("a@b.example", NAME)], [])


@pytest.mark.parametrize(("text", "why"), [
    ("", "has no line of a participant"),
    ("sep=;\nIdentifier;Email address\n", "has no line of a participant"),
    ("Name,Email\nAnn,a@b.example\n", "no column of participants with their numbers; it has ['N"),
    ("ID,Name\nParticipant 34567,Ann\n", "has no column of e-mail addresses; it has ['ID', 'Name"),
    ("ID\nParticipant 34567\n", "; if Moodle hides the names, reveal them first, or leave the wor"),
    ("ID,Email\nParticipant 1,a@b.example\n", "names none of the submissions; each assignment"),
])  # fmt: skip
def test_a_worksheet_that_tells_nothing_is_refused_and_nothing_is_lost(
    text: str, why: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    given, sheet = download(tmp_path, "moodle"), tmp_path / "worksheet.csv"
    assert collect.main([str(tmp_path / "c"), NAME, str(given)]) == 0
    before = {path: path.stat().st_mtime_ns for path in (tmp_path / "c").rglob("*")}
    sheet.write_text(text)
    assert collect.main([str(tmp_path / "c"), NAME, str(given), str(sheet)]) == 2
    assert why in capsys.readouterr().err
    assert {path: path.stat().st_mtime_ns for path in (tmp_path / "c").rglob("*")} == before
    canvas = download(tmp_path, "canvas")
    assert collect.main([str(tmp_path / "n"), NAME, str(canvas), str(sheet)]) == 2
    assert "the download is Canvas's, and a worksheet goes with Moodle's" in capsys.readouterr().err


@pytest.mark.parametrize("kept", [True, False], ids=["known", "from before origins were kept"])
def test_nobody_comes_twice_by_two_names(
    kept: bool, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Collected first without the worksheet, then with it, or the other way: it is said what to do.

    Then nobody is there twice, and other sets keep what was known of them.
    """
    course, sheet = tmp_path / "c", tmp_path / "worksheet.csv"
    given = pack(tmp_path / "d.zip", {f"A B_34567_assignsubmission_file/{NAME}.ipynb": "{}"})
    sheet.write_text("ID,Email\nParticipant 34567,a@b.example\n")
    plain = [str(course), NAME, str(given)]
    assert collect.main(plain) == 0
    if not kept:
        (course / "collected.json").unlink()
    capsys.readouterr()
    assert collect.main([*plain, str(sheet)]) == 2
    said = capsys.readouterr().err
    assert "would be graded twice, being here already by another name: 1. Collect as before" in said
    old, new = re.findall(r"^  (\S+)  to  (\S+)$", said, re.MULTILINE)[0]
    assert students(course) == {"34567"}
    Path(new).parent.mkdir(parents=True)
    Path(old).rename(new)
    assert collect.main([*plain, str(sheet)]) == 0
    assert students(course) == {"a@b.example"}
    assert collect.main(plain) == 2
    assert f"{NAME}  to  {course}/submitted/34567/{NAME}" in capsys.readouterr().err
    assert students(course) == {"a@b.example"}
    assert list(json.loads((course / "collected.json").read_text())[NAME]) == ["a@b.example"]


def test_what_is_kept_of_a_class_is_not_overwritten_where_it_cannot_be_read(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "collected.json").write_text("{")
    assert collect.main([str(tmp_path), NAME, str(download(tmp_path, "canvas"))]) == 2
    assert "remove it, and collect the downloads again" in capsys.readouterr().err
    assert not (tmp_path / "submitted").exists()


# --- the way back -----------------------------------------------------------------------------


def by_moodle(file: str) -> str:
    """Return whom Moodle gives a file of feedback, and as what.

    After moodle/moodle, mod/assign/feedback/file/importziplib.php, is_valid_filename_for_import.
    """
    parts = file.split("/")
    while parts:
        first, *parts = parts
        info = first.split("_", 4)
        if len(info) >= 4 and info[1].isdecimal() and info[2:4] == ["assignfeedback", "file"]:
            rest = "/".join([*info[4:], *parts]).lstrip("/")
            return f"{info[1]} {rest}"
    return ""


def by_canvas(file: str) -> str:
    """Return whom Canvas gives a file, and for which of the student's.

    After instructure/canvas-lms, app/models/abstract_assignment.rb,
    infer_comment_context_from_filename.
    """
    parts = [part for part in file.rpartition("/")[2].split("_") if part != "LATE"]
    if parts[0] == "anon":
        return " ".join(parts[1:3])
    return " ".join([part for part in parts if part.isdecimal()][:2])


def handed_in_by(who: str) -> str:
    """Return a notebook without answers in which a student tells a name."""
    release = json.loads(release_path(NAME).read_text(encoding="utf-8"))
    cell = {"cell_type": "code", "id": "who", "metadata": {}, "source": f"# I am {who}."}
    return json.dumps({**release, "cells": [cell, *release["cells"]]})


@pytest.mark.parametrize(("platform", "reader", "expected"), [
    ("moodle", by_moodle, {one: f"{one} {NAME}.html" for one in HONEST["moodle"].values()}),
    ("canvas", by_canvas, {"12345": "12345 67890", "23456": "23456 67891", "23457": "23457 67892",
                           "AbC12": "AbC12 67893", "9xYz1": "9xYz1 67894"}),
])  # fmt: skip
@pytest.mark.usefixtures("sandbox", "one_process")
def test_feedback_goes_back_to_whom_the_platform_had_named(
    platform: str, reader: Callable[[str], str], expected: dict[str, str], tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str],
) -> None:  # fmt: skip
    """Each student's own; who was not collected from there is not in the archive."""
    monkeypatch.setattr("exercises.grade_course.fill_gradebook", lambda *_: None)
    files = {file: handed_in_by(who) for file, who in HONEST[platform].items()}
    assert collect.main([str(tmp_path), NAME, str(pack(tmp_path / "d.zip", files))]) == 0
    (tmp_path / "submitted/zoe" / NAME).mkdir(parents=True)
    (tmp_path / "submitted/zoe" / NAME / f"{NAME}.ipynb").write_text("{}")
    assert main([str(tmp_path)]) == 0
    path = tmp_path / f"{platform}_{NAME}.zip"
    said, title = capsys.readouterr().out, PLATFORMS[platform].title
    assert f"For {title}, in the assignment, " in said
    assert f"Graded, but not in {path.name}: zoe (not collected from {title})" in said
    with zipfile.ZipFile(path) as archive:
        found = {reader(name): archive.read(name).decode() for name in archive.namelist()}
    assert found.keys() == {*expected.values()}
    for who, name in expected.items():
        assert re.findall(r"I am (\w+)\.", found[name]) == [who]
    if platform == "canvas":  # which shows a file by the name that it came with
        assert all(json.loads(text)["nbformat"] == 4 for text in found.values())
    assert len([*tmp_path.glob("*_*.zip")]) == 1


@pytest.mark.usefixtures("sandbox", "one_process")
def test_gradescope_is_told_the_points_of_each_submission(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """By an autograder that runs nothing of a student's.

    Its files lie where gradescope-autograders.readthedocs.io says (specs, submission_metadata).
    """
    monkeypatch.setattr("exercises.grade_course.fill_gradebook", lambda *_: None)
    solved, empty = source_path(NAME), release_path(NAME)
    files = dict(zip(HONEST["gradescope"], (solved.read_text(), empty.read_text()), strict=True))
    given = pack(tmp_path / "d.zip", files | BESIDE["gradescope"])
    assert collect.main([str(tmp_path / "c"), NAME, str(given)]) == 0
    assert main([str(tmp_path / "c")]) == 0
    there = tmp_path / "autograder"
    (there / "results").mkdir(parents=True)
    shutil.unpack_archive(tmp_path / "c" / f"gradescope_{NAME}.zip", there / "source")
    program = (there / "source/run_autograder").read_text().replace("/autograder", str(there))
    told = {}
    for number in (101, 102):
        (there / "submission_metadata.json").write_text(json.dumps({"id": number}))
        subprocess.run([sys.executable, "-c", program], check=True)
        told[number] = json.loads((there / "results/results.json").read_text())
    top = load(NAME).points
    assert [told[number]["score"] for number in (101, 102)] == [top, 0]
    for found in told.values():
        assert found["stdout_visibility"] == "hidden"
        assert sum(test["max_score"] for test in found["tests"] if "max_score" in test) == top
        assert {test["visibility"] for test in found["tests"]} == {"visible"}
    assert {test["output"].partition(":")[0] for test in told[102]["tests"]} == {"not answered"}
    (there / "submission_metadata.json").write_text('{"id": 103}')  # handed in since then
    assert subprocess.run([sys.executable, "-c", program], stderr=subprocess.PIPE).returncode == 1


def test_an_archive_is_for_upload_when_nobody_waits(tmp_path: Path) -> None:
    """Of a group, an answer that is scored for one counts; where members differ, it is said."""
    (tmp_path / "submitted").mkdir()
    origin = ["gradescope", "102", f"{EXPORT}submission_102/{NAME}.ipynb"]
    kept = {NAME: dict.fromkeys(("ann", "bob"), origin)}
    (tmp_path / "collected.json").write_text(json.dumps(kept))
    records = [{"set": NAME, "student": one, "points": 1.0, "verdicts": [],
                "open": {"open_answer": "digest"}} for one in ("ann", "bob")]  # fmt: skip
    path = tmp_path / f"gradescope_{NAME}.zip"
    waits = f"{path}: 1 waits for a person; the archive says so"
    assert write_archives(Course(tmp_path), records, [NAME]) == [waits]
    records[0]["open_scores"] = {"open_answer": 4.0}
    differ, upload = write_archives(Course(tmp_path), records, [NAME])
    assert differ == f"{path.name}: of the group bob, ann, the points of ann count; they differ"
    assert upload.startswith("For Gradescope, in Configure Autograder")
    with zipfile.ZipFile(path) as archive:
        assert json.loads(archive.read("results/102.json"))["score"] == 5.0


def test_hidden_names_of_canvas_are_said_and_are_no_ids(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """A code of five digits looks like one."""
    names = [f"anon_12345_1_{NAME}.ipynb", f"lee_23456_2_{NAME}.ipynb"]
    given = pack(tmp_path / "d.zip", dict.fromkeys(names, "{}"))
    assert collect.main([str(tmp_path), NAME, str(given)]) == 0
    assert "Canvas has hidden the names" in capsys.readouterr().out
    records = [{"set": NAME, "student": one, "points": 1.0, "max_points": 1.0, "seconds": 1.0,
                "verdicts": []} for one in ("12345", "23456")]  # fmt: skip
    write_tables(Course(tmp_path), records)
    lines = (tmp_path / "canvas.csv").read_text().splitlines()[2:]
    assert [line[:24] for line in lines] == ['"12345","","","12345",""', '"23456","23456","","",""']


def test_a_download_of_another_set_and_foreign_letters_are_named(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Letters as they are; what a terminal would obey is escaped."""
    given = pack(tmp_path / "d.zip", dict.fromkeys(HONEST["canvas"], "{}"))
    assert collect.main([str(tmp_path / "c"), "02_sinusoidal", str(given)]) == 2
    said = capsys.readouterr().err
    assert f"no file is a notebook of 02_sinusoidal; this looks like {NAME}" in said
    names = [*HONEST["canvas"], "müller_60004_1_Lösung\x1b.ipynb"]
    assert collect.main([str(tmp_path / "c"), NAME, str(pack(given, dict.fromkeys(names, "")))])
    assert "Left out: 'müller_60004_1_Lösung\\x1b.ipynb' is no" in capsys.readouterr().err


def test_points_by_hand_count_for_gradescope() -> None:
    """An open exercise that waits has no points yet."""
    verdict = {"question": "q", "test_id": "t", "points": 1.0, "max_points": 3.0, "word": "ok",
               "message": ""}  # fmt: skip
    record = {"set": NAME, "points": 1.0, "counts": 2.5, "by_hand": {"t": 2.5},
              "verdicts": [verdict], "open": {"open_answer": "digest"}}  # fmt: skip
    waits = results({**record, "open_scores": {}})
    assert waits["score"] == waits["tests"][0]["score"] == 2.5
    assert waits["tests"][1] == {
        "name": "open exercise",
        "output": "waiting",
        "visibility": "visible",
    }
    scored = results({**record, "open_scores": {"open_answer": 4.0}})
    assert scored["score"] == 6.5
    assert (scored["tests"][1]["score"], scored["tests"][1]["max_score"]) == (4.0, 6.0)
