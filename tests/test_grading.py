"""Grading is fair: answers get what they deserve, whatever else a submission does."""

from __future__ import annotations

import base64
import csv
import importlib.metadata
import io
import json
import re
import subprocess
import time
from collections.abc import Iterator
from dataclasses import replace
from html import unescape
from html.parser import HTMLParser
from pathlib import Path
from typing import Any
from urllib.parse import unquote

import pytest
import torch
from nbgrader.api import Gradebook
from submission_files import SET, Submission, all_submissions, notebook, write_submission

from exercises import build, checks
from exercises.bubblewrap import require_bubblewrap
from exercises.feedback import autograded, coloured, feedback_page
from exercises.grade_course import Outcome, grade_course, in_pool, main
from exercises.grade_submission import (
    TOOK_TOO_LONG,
    error_in_call,
    error_in_cell,
    farthest,
    grade,
    seed_for,
)
from exercises.jobs import CellRun, Graded, Job, Limits
from exercises.notebook import Cell
from exercises.records import Course, Record, grader_version
from exercises.sets import load, source_path
from exercises.syscalls import SandboxMissing
from pe_course.judge.exercise import Draw

SUBMISSIONS = all_submissions()
LIMITS = Limits(memory=1536 << 20)
# Of the submissions that are there to run into the limit, each waits for it to pass.
ENDLESS = {each.student for each in SUBMISSIONS if "time-out" in each.expected}
SOON = replace(LIMITS, cell=0.5)


@pytest.fixture(scope="module")
def graded(
    tmp_path_factory: pytest.TempPathFactory, sandbox: None
) -> tuple[Path, dict[str, Record]]:
    """All submissions of tests/submissions, graded once."""
    root = tmp_path_factory.mktemp("course")
    for submission in SUBMISSIONS:
        write_submission(root, submission)
    course = Course(root)
    base = Job("", "", None, secret=course.secret(), limits=LIMITS)

    def in_time(jobs: list[Job], workers: int) -> Iterator[tuple[int, Outcome]]:
        return in_pool(
            [replace(job, limits=SOON) if job.student in ENDLESS else job for job in jobs], workers
        )

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("exercises.grade_course.in_pool", in_time)
        records, problems = grade_course(course, [SET], base, workers=2)
    assert problems == []
    return root, {record["student"]: record for record in records}


@pytest.mark.parametrize("submission", SUBMISSIONS, ids=lambda submission: submission.student)
def test_each_submission_gets_what_its_answers_deserve(submission, graded) -> None:
    """The verdict of every question, the points, and the words to the student."""
    record = graded[1][submission.student]
    got = [verdict["word"] for verdict in record["verdicts"]]
    messages = {verdict["question"]: verdict["message"] for verdict in record["verdicts"]}
    assert got == submission.expected, messages
    assert record["points"] == submission.points
    for question, text in submission.says.items():
        assert text in messages[question]


def test_nothing_that_a_submission_started_lives_on(graded) -> None:
    """The daemon of `leaves_a_daemon` and every sandbox are gone."""
    deadline = time.monotonic() + 10
    while time.monotonic() < deadline:
        processes = subprocess.run(["ps", "-eo", "args"], capture_output=True, text=True).stdout
        left = [line for line in processes.splitlines()
                if line.startswith("sleep 98765") or "--hostname sandbox" in line]  # fmt: skip
        if not left:
            return
        time.sleep(0.2)
    assert left == []


def test_the_gradebook_and_the_csv_agree_with_the_verdicts(graded) -> None:
    """nbgrader's own interface reads the same scores."""
    root, records = graded
    with Gradebook(f"sqlite:///{root}/gradebook.db") as book:
        scores = {s.student.id: (s.score, s.max_score) for s in book.assignment_submissions(SET)}
    top = load(SET).points + sum(question.points for question in load(SET).open)
    assert scores == {s.student: (s.points, top) for s in SUBMISSIONS}
    with (root / "submissions.csv").open() as file:
        rows = {row["student"]: float(row["points"]) for row in csv.DictReader(file)}
    assert rows == {student: record["points"] for student, record in records.items()}
    with (root / "answers.csv").open() as file:
        answers = list(csv.DictReader(file))
    asked = len(load(SET).questions) + len(load(SET).open)
    assert len(answers) == asked * len(SUBMISSIONS)
    assert not any(
        cell.startswith(("=", "+", "-", "@")) for row in answers for cell in row.values()
    )


class Elements(HTMLParser):
    """Collects what would load, send, frame or run: elements, addresses, handlers, styles."""

    GIVEN = re.compile(
        r"html|head|meta|title|style|body|main|div|span|a|p|pre|code|em|strong|[ou]l|li|table|thead"
        r"|tbody|t[rhd]|h[1-4]|details|summary|blockquote|hr|br|math|semantics|annotation|m[a-z]+"
    )

    def __init__(self) -> None:
        super().__init__()
        self.found: set[str] = set()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        if not self.GIVEN.fullmatch(tag):
            self.found.add(tag)
        for name, value in attrs:
            here = name == "href" and (value or "").startswith("#")
            loads = name in ("href", "src", "action", "style", "srcdoc", "http-equiv", "data")
            if (loads and not here) or name.startswith("on"):
                self.found.add(f"{tag} {name}={value}")


def live_elements(page: str) -> set[str]:
    """Return what a page holds that would load, send, frame or run."""
    elements = Elements()
    elements.feed(page)
    return elements.found


def test_what_a_student_wrote_is_shown_as_text_and_a_forged_verdict_is_not(graded) -> None:
    """Scripts in a text cell and in what was printed."""
    root, _ = graded
    page = (root / "feedback/forged_outputs" / SET / f"{SET}.html").read_text()
    assert "alert('text cell')" in unescape(page)  # shown as text, so that one can see it
    assert "alert('printed')" in unescape(page)
    assert "13 of 13 points" not in page
    assert "(Score: 0.0 / 19.0)" in page


def test_a_name_is_text_wherever_it_is_shown(graded) -> None:
    """In the title of the feedback, and in the summary, whose links lead to every page."""
    root, records = graded
    name = next(student for student in records if "<img" in student)
    page = (root / "feedback" / name / SET / f"{SET}.html").read_text()
    summary = (root / "summary.html").read_text()
    assert name in unescape(page) and name in unescape(summary)
    own = ("a href=feedback/", "span style=width:")  # links, and bars of the distribution
    assert [found for found in live_elements(summary) if not found.startswith(own)] == []
    links = re.findall(r'href="(feedback/[^"]*)"', summary)
    assert len(links) == len(SUBMISSIONS)
    assert all((root / unquote(link)).is_file() for link in links)


def test_no_page_loads_sends_frames_or_runs_what_a_student_wrote(graded) -> None:
    """In no submission's feedback, of whatever kind it is."""
    root, records = graded
    for student in records:
        page = (root / "feedback" / student / SET / f"{SET}.html").read_text()
        assert live_elements(page) == set(), student
    for text in (
        "<iframe>", "<script>", "<a href='https://a.example'>", "<p style='color: red'>",
        "<p onclick=1>",
    ):  # fmt: skip
        assert live_elements(text) != set()


def test_a_page_needs_no_other_host_and_no_script(graded) -> None:
    """Formulas are MathML; what is loaded is in the page."""
    root, _ = graded
    page = (root / f"feedback/right/{SET}/{SET}.html").read_text()
    assert "<script" not in page and "$$" not in page
    assert page.count("<math") > 10 and "<msup><mi>e</mi>" in page
    assert re.findall(r'(?:src|href)="(?!#)[^"]*"', page) == []


def test_a_page_stays_short_whatever_was_typed(graded) -> None:
    """Two million brackets are cut; what is left out is counted."""
    root, _ = graded
    page = (root / f"feedback/brackets/{SET}/{SET}.html").read_text()
    assert len(page) < 2_000_000
    assert "more characters are not shown here" in page


@pytest.mark.parametrize("typed", ["\n " * 40_000, "a." * 40_000, "\"'" * 40_000])
def test_a_page_is_made_in_seconds_whatever_was_typed(typed: str) -> None:
    """Colouring takes time in proportion to the length, in nbgrader's own pages too."""
    graded = Graded("ann", SET, [], [Cell("code", typed)], {}, 0.0)
    begin = time.process_time()
    page = feedback_page(graded.record(), autograded(graded))
    listing = build.settings().HTMLExporter.filters["highlight_code"](typed)
    assert time.process_time() - begin < 10
    assert unescape(listing).count(typed) == 1 and "highlight" in page


@pytest.mark.parametrize("text", ["\x1b[1m" * 20_000, "\n " * 40_000, "<" * 80_000, "$`*" * 25_000])
def test_printed_text_and_text_cells_take_seconds_too(text: str) -> None:
    """Colours of a terminal, formulas and markup that never end."""
    cells, ran = [Cell("code", "1"), Cell("markdown", text)], {0: CellRun(text)}
    begin = time.process_time()
    graded = Graded("ann", SET, [], cells, ran, 0.0)
    feedback_page(graded.record(), autograded(graded))
    assert time.process_time() - begin < 20


def test_listings_are_coloured_and_hold_no_markup_of_a_student() -> None:
    """Keywords, numbers, comments and strings, unfinished ones too; the text stays the same."""
    source = 'def f(x):  # <b>\n    """doc "x" """\n    return x1 + 0x1F + \'it\\\'s\' + """open'
    made = coloured(source)
    found = re.findall(r'<span class="(\w+)">(.*?)</span>', made, re.DOTALL)
    assert [(name, unescape(text)) for name, text in found] == [
        ("k", "def"), ("c1", "# <b>"), ("s", '"""doc "x" """'), ("k", "return"), ("m", "0x1F"),
        ("s", "'it\\'s'"), ("s", '"""open'),
    ]  # fmt: skip
    assert unescape(re.sub(r"<[^>]*>", "", made)) == source and "<b>" not in made


def test_feedback_tells_the_verdict_and_not_the_hidden_inputs(graded) -> None:
    """A page has the words of each verdict; the secret of the course is in no page."""
    root, records = graded
    secret = (root / ".grader_secret").read_text()
    for student, record in records.items():
        page = (root / "feedback" / student / SET / f"{SET}.html").read_text()
        assert secret not in page
        for verdict in record["verdicts"]:
            assert f"{verdict['word']}: {verdict['points']:g} of" in page


def test_words_that_hold_hidden_inputs_come_back_nowhere(graded) -> None:
    """Neither texts nor names of a student's own, nor what a judged call has printed."""
    root, _ = graded
    hiding = [submission for submission in SUBMISSIONS if "hides" in submission.head]
    assert hiding
    for submission in hiding:
        found = [*root.glob(f"*/{submission.student}/{SET}/*"), *root.glob("*.*")]
        files = [file for file in found if file.is_file()]
        assert len(files) > 6
        for file in files:
            assert submission.head["hides"].encode() not in file.read_bytes(), file


STORED = """
import base64, io, itertools, torch
stored = itertools.cycle(torch.load(io.BytesIO(base64.b64decode({data!r}))))
def {name}(*_, stored=stored):
    return next(stored)
"""


def stored_answers(exercise: checks.Exercise) -> str:
    """Return an answer that gives, one after the other, what the self-check wants."""
    file = io.BytesIO()
    torch.save([exercise.reference(*case.args) for case in exercise.cases(Draw(0))], file)
    return STORED.format(name=exercise.name, data=base64.b64encode(file.getvalue()).decode())


@pytest.mark.usefixtures("sandbox")
def test_stored_answers_pass_the_self_check_alone() -> None:
    """The grader draws other inputs: from them the same submission gets nothing."""
    sources = {q.name: stored_answers(checks.EXERCISES[q.name]) for q in load(SET).questions}
    for name, source in sources.items():
        functions: dict[str, Any] = {}
        exec(source, functions)
        checks.EXERCISES[name](functions[name])  # the self-check accepts it
    made = notebook(Submission("stored", {}, tuple(sources.items())))
    job = Job("ann", SET, json.dumps(made).encode(), secret="of a course", limits=LIMITS)
    assert [(v.word, v.points) for v in grade(job).verdicts] == [("wrong answer", 0.0)] * 4


def test_each_course_draws_inputs_of_its_own() -> None:
    """For each exercise; never those of the self-check, which everybody can draw."""
    pairs = [(secret, name) for secret in ("", "one", "two") for name in checks.EXERCISES]
    seeds = [seed_for(*pair) for pair in pairs]
    assert seeds == [seed_for(*pair) for pair in pairs]
    assert len({0, *seeds}) == 1 + len(pairs)


def test_lines_tell_no_hidden_input() -> None:
    """Whoever raises in one of many lines chooses what is told by its number."""
    error = {"type": "KeyError", "text": "", "function": "frequencies_of"}
    told = {error_in_call({**error, "line": line}, ["frequencies_of"]) for line in (10, 39)}
    assert len(told) == 1
    assert error_in_cell({**error, "line": 39})[0].endswith("(line 39 of the cell)")


@pytest.mark.usefixtures("sandbox")
def test_an_error_of_syntax_says_its_line_once() -> None:
    """And no name of a file that the student never saw."""
    data = changed("03_learned", {"unstretched": "def unstretched(table):\n    return = 1"})
    last = grade(Job("ann", "03_learned", data, limits=LIMITS)).verdicts[-1]
    assert last.message == "its cell stopped: SyntaxError: invalid syntax (line 2 of the cell)"


def test_a_flood_of_output_is_kept_short(graded) -> None:
    """200 MB printed leave less than a page."""
    root, _ = graded
    path = root / "autograded/prints_200_megabytes" / SET / f"{SET}.ipynb"
    assert path.stat().st_size < 200_000
    assert "more bytes were printed" in path.read_text()


def test_grading_again_runs_nothing_and_changes_nothing(graded) -> None:
    """A second run takes the kept records; a manual score stays, and counts in the tables."""
    root, _ = graded
    before = {
        path: path.read_bytes() for path in root.rglob("*") if path.suffix in (".csv", ".html")
    }
    course = Course(root)
    base = Job("", "", None, secret=course.secret(), limits=LIMITS)
    stamps = {path: path.stat().st_mtime_ns for path in root.glob("records/*/*/*.json")}
    grade_course(course, [SET], base, workers=2)
    assert {path: path.stat().st_mtime_ns for path in stamps} == stamps
    assert len(stamps) == len(SUBMISSIONS)
    assert {path: path.read_bytes() for path in before} == before
    with Gradebook(f"sqlite:///{root}/gradebook.db") as book:
        grade = book.find_grade("test_positions_of", SET, SET, "wrong_base")
        grade.manual_score = 1.5
        book.db.commit()
    records, _ = grade_course(course, [SET], base, workers=2)
    assert {path: path.stat().st_mtime_ns for path in stamps} == stamps
    (record,) = (record for record in records if record["student"] == "wrong_base")
    with (root / "submissions.csv").open() as file:
        (row,) = (row for row in csv.DictReader(file) if row["student"] == "wrong_base")
    assert float(row["points"]) == record["points"] + 1.5
    assert float(row["found_by_grader"]) == record["points"]
    assert f"(by hand; {record['points']:g} found)" in (root / "summary.html").read_text()
    with Gradebook(f"sqlite:///{root}/gradebook.db") as book:
        grade = book.find_grade("test_positions_of", SET, SET, "wrong_base")
        assert (grade.manual_score, grade.auto_score, grade.score) == (1.5, 0.0, 1.5)
        grade.manual_score = None
        book.db.commit()


def test_a_submission_that_runs_again_gets_the_same_grade(graded, one_process) -> None:
    """With some records gone, only those submissions run again."""
    root, records = graded
    course = Course(root)
    base = Job("", "", None, secret=course.secret(), limits=LIMITS)
    untouched = root / "records/right" / SET / f"{SET}.json"
    stamp = untouched.stat().st_mtime_ns
    for student in ("right_with_loops", "wrong_axis"):
        (root / "records" / student / SET / f"{SET}.json").unlink()
    fresh, problems = grade_course(course, [SET], base, workers=2)
    assert problems == [] and untouched.stat().st_mtime_ns == stamp
    for record in fresh:
        assert record["verdicts"] == records[record["student"]]["verdicts"]


def test_other_texts_and_other_tools_make_other_grades(monkeypatch) -> None:
    """What is put back into submissions and what runs them: old grades are not kept for it."""
    before = grader_version()
    assert grader_version() == before
    with monkeypatch.context() as patch:
        patch.setattr("exercises.records.release_path", source_path)
        assert grader_version() != before
    version = importlib.metadata.version
    newer = {"torch": "99"}
    monkeypatch.setattr("importlib.metadata.version", lambda name: newer.get(name) or version(name))
    assert grader_version() != before


@pytest.mark.usefixtures("sandbox")
def test_a_submission_ends_by_the_clock_too(monkeypatch) -> None:
    """Even if its processes were always waiting, as they seem to when they wait for each other."""
    monkeypatch.setattr("exercises.sandbox.own_wait", time.monotonic)
    slow = {"cell_type": "code", "metadata": {}, "source": "import time; time.sleep(0.5)"}
    data = json.dumps({"cells": [slow] * 100}).encode()
    limits = Limits(cell=1.0, cells=1.0, patience=2.0)
    begin = time.monotonic()
    graded = grade(Job("ann", SET, data, limits=limits))
    assert {verdict.word for verdict in graded.verdicts} == {"time-out"}
    assert time.monotonic() - begin < 25


@pytest.mark.usefixtures("sandbox")
def test_a_new_process_has_no_new_minute() -> None:
    """The clock goes on through all processes that a notebook ends."""
    source = "import os, time; time.sleep(0.6); os._exit(0)"
    data = json.dumps({"cells": [{"cell_type": "code", "metadata": {}, "source": source}] * 20})
    limits = Limits(cell=1.0, cells=1.0, patience=1.0)
    graded = grade(Job("ann", SET, data.encode(), limits=limits))
    assert {verdict.message for verdict in graded.verdicts} == {TOOK_TOO_LONG}


def changed(name: str, answers: dict[str, str]) -> bytes:
    """Return the instructor's notebook of a set with other answers."""
    made = json.loads(source_path(name).read_text(encoding="utf-8"))
    for cell in made["cells"]:
        grade_id = cell["metadata"].get("nbgrader", {}).get("grade_id")
        cell["source"] = answers.get(grade_id, cell["source"])
    return json.dumps(made).encode()


SLOW = """
import math, time
def trained_for(dim, base, count):
    time.sleep(0.6)
    return math.ceil(2 * math.pi * base ** (1 - 2 * count / dim)) - 1
"""


@pytest.mark.usefixtures("sandbox")
def test_a_slow_answer_costs_its_own_points_alone() -> None:
    """All its calls have one budget, and the message says so; the others have their own."""
    data = changed("13_context_extension", {"trained_for": SLOW})
    limits = Limits(cell=3.0)
    slow, *others = grade(Job("ann", "13_context_extension", data, limits=limits)).verdicts
    assert (slow.question, slow.word, slow.points) == ("trained_for", "time-out", 0)
    assert slow.message == "its calls took more than 3 s together; that is its budget"
    assert [(one.word, one.points) for one in others] == [("ok", 3.0), ("ok", 3.0), ("ok", 5.0)]


@pytest.mark.usefixtures("sandbox")
def test_a_slow_cell_is_reported_as_that_cells() -> None:
    """What does not need it is judged; after too much of that, cells are not run."""
    name, wait = "03_learned", "import time; time.sleep({})"
    limits = Limits(cell=1.0, cells=1.0)
    data = changed(name, {"unstretched": wait.format(30)})
    verdicts = {one.question: one for one in grade(Job("ann", name, data, limits=limits)).verdicts}
    assert verdicts["unstretched"].message == "its cell stopped: it took more than 1 s"
    assert [verdicts[one].word for one in ("rows_used", "resize_grid")] == ["ok", "ok"]
    made = json.loads(source_path(name).read_text(encoding="utf-8"))
    for number in range(2):
        own = {"cell_type": "code", "metadata": {}, "source": f"{wait.format(0.6)} # {number}"}
        made["cells"].insert(0, own)
    graded = grade(Job("ann", name, json.dumps(made).encode(), limits=limits))
    assert {(verdict.word, verdict.message) for verdict in graded.verdicts} == {
        ("time-out", "its cell stopped: the cells before it took more than 1 s together")
    }


@pytest.mark.usefixtures("sandbox")
@pytest.mark.parametrize(
    "body",
    [
        "time.sleep(99)",
        "while True: pass",
        "[threading.Thread(target=spin, daemon=True).start() for _ in range(20)]; spin()",
    ],
)
def test_hostile_answers_end_in_time(body: str) -> None:
    """In every exercise; the whole has no more time than the sum of what its parts have."""
    spin = "import threading, time\ndef spin():\n    while True: pass\n"
    names = [question.name for question in load(SET).questions]
    answers = {name: f"{spin}def {name}(*_):\n    {body}\n" for name in names}
    limits, begin = Limits(cell=0.5, cells=2.0, patience=3.0), time.monotonic()
    graded = grade(Job("ann", SET, changed(SET, answers), limits=limits))
    took = time.monotonic() - begin
    assert {verdict.word for verdict in graded.verdicts} == {"time-out"}
    starts = 2.0 * (1 + len(names))
    assert took < limits.patience * (limits.cells + len(names) * limits.cell) + starts


@pytest.mark.usefixtures("one_process", "sandbox")
def test_the_case_that_failed_is_found_in_a_dispute(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """In the record and by a command, with what was drawn; in nothing that goes to a student."""
    name = "03_learned"
    wrong = "def unstretched(table):\n    return table[:, :1]\n"
    folder = tmp_path / "submitted/ann" / name
    folder.mkdir(parents=True)
    (folder / f"{name}.ipynb").write_bytes(changed(name, {"unstretched": wrong}))
    assert main([str(tmp_path)]) == 0
    record = json.loads((tmp_path / f"records/ann/{name}/{name}.json").read_text())
    failed = {one["question"]: one for one in record["verdicts"]}["unstretched"]
    secret = (tmp_path / ".grader_secret").read_text()
    assert failed["seed"] == seed_for(secret, "unstretched")
    cases = list(checks.EXERCISES["unstretched"].cases(Draw(failed["seed"])))
    assert failed["case"] == f"1 of {len(cases)}, {cases[0].in_full().label}"
    drawn = failed["case"].partition(": ")[2]
    assert drawn
    for file in tmp_path.glob(f"*/ann/{name}/{name}.*"):
        if file.parts[-4] in ("feedback", "autograded"):
            text = file.read_text(encoding="utf-8")
            assert drawn not in text and str(failed["seed"]) not in text
    capsys.readouterr()
    assert main([str(tmp_path), "--show", "ann", "unstretched"]) == 0
    said = capsys.readouterr().out
    for words in (f"ann, {name}, unstretched", failed["message"], failed["case"],
                  "returned: tensor(", "expected: tensor(", f"seed {failed['seed']}"):  # fmt: skip
        assert words in said
    assert "given: tensor(shape (" in said
    assert farthest(torch.ones(2, 2), torch.tensor([[1, 1], [5, 1]])) == (
        "largest difference at [1, 0]: 1, expected 5"
    )
    assert len(said.splitlines()) < 12 and max(map(len, said.splitlines())) < 500
    for student, exercise, why in (
        ("ann", "looks", "'ann' has handed in no 'looks'; there are rows_used, resize_grid, "),
        (
            "anna",
            "unstretched",
            "nobody by the name of 'anna' has handed in anything; here are ann",
        ),
        ("ann", name, "'03_learned' is a set; its exercises are rows_used, resize_grid, unstretch"),
        ("ann", "open_answer", "'open_answer' is scored by hand, and nothing of it was run"),
    ):
        assert main([str(tmp_path), "--show", student, exercise]) == 2
        assert why in capsys.readouterr().err
    crash = "def unstretched(table):\n    table += 0\n    return table.colour('\\x1b[2J')\n"
    (folder / f"{name}.ipynb").write_bytes(changed(name, {"unstretched": crash}))
    assert main([str(tmp_path), "--show", "ann", "unstretched"]) == 0
    said = capsys.readouterr().out
    assert "raised: AttributeError: 'Tensor' object has no attribute 'colour' (line 3 of" in said
    assert "\n    return table.colour('\\x1b[2J')\n" in said and "\x1b" not in said
    assert "given: tensor(shape (" in said and "expected: tensor(shape (" in said


def test_a_page_begins_with_its_verdicts(graded) -> None:
    """Each by the name of its exercise, with its points and its message, and a link to it."""
    root, records = graded
    page = (root / f"feedback/wrong_base/{SET}/{SET}.html").read_text()
    top = page[: page.index("Exercise 1")]
    for verdict in records["wrong_base"]["verdicts"]:
        link = f'<a href="#{verdict["test_id"]}">{verdict["question"]}</a>'
        points = f"{verdict['points']:g} of {verdict['max_points']:g}"
        assert f"{link}: {points}, <strong>{verdict['word']}</strong>" in top
        assert verdict["message"] in unescape(top)
        assert f'name="{verdict["test_id"]}"' in page
    assert "Test cell" not in page and "checks.zip" not in page


def test_without_bubblewrap_nothing_is_run(monkeypatch, tmp_path, capsys) -> None:
    """A clear refusal that says what to do, and no gradebook."""
    (tmp_path / "submitted" / "ann" / SET).mkdir(parents=True)
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(SandboxMissing, match="apt-get install bubblewrap"):
        require_bubblewrap()
    assert main([str(tmp_path)]) == 2
    assert "not installed" in capsys.readouterr().err
    assert not (tmp_path / "gradebook.db").exists()


def test_without_the_filter_of_system_calls_nothing_is_run(monkeypatch) -> None:
    """libseccomp is named, with the command that brings it."""

    def missing() -> bytes:
        raise SandboxMissing("the library libseccomp is not installed.")

    monkeypatch.setattr("exercises.bubblewrap.program", missing)
    with pytest.raises(SandboxMissing, match=r"libseccomp is not .* apt-get install .*libseccomp2"):
        require_bubblewrap()


def test_a_bubblewrap_that_may_not_work_is_refused_too(monkeypatch, tmp_path) -> None:
    """As in a container that forbids namespaces."""
    broken = tmp_path / "bwrap"
    broken.write_text("#!/bin/sh\necho 'No permissions to create a new namespace' >&2\nexit 1\n")
    broken.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:/usr/bin:/bin")
    with pytest.raises(SandboxMissing, match="No permissions to create a new namespace"):
        require_bubblewrap()
