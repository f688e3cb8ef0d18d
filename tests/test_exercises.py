"""The students' notebooks are generated, give nothing away, and ask for what they grade."""

from __future__ import annotations

import functools
import io
import itertools
import json
import math
import re
import zipfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import nbformat
import pytest
import torch
from bs4 import BeautifulSoup
from nbclient import NotebookClient

from browsing import toc_pages
from exercises import build, checks, practice, solutions, warm_up
from exercises.checks import kept
from exercises.feedback import autograded, feedback_page
from exercises.grade_course import work
from exercises.jobs import Graded, Job
from exercises.notebook import parse, restore
from exercises.proofs import solution_cells
from exercises.sets import (
    load,
    nbgrader_metadata,
    projects,
    release_path,
    set_names,
    source_path,
    source_text,
)
from pe_course import sets
from pe_lib import Forgetting, PositionEncoding, RoPE, Sink
from tools import ROOT

CHAPTERS = set_names()


def cells(path: Any) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = json.loads(path.read_text(encoding="utf-8"))["cells"]
    return found


def test_every_chapter_has_a_set_of_three_to_five_exercises() -> None:
    pages = [page.removeprefix("book/") for page in toc_pages()]
    chapters = [name for name in pages if name[0].isdigit() and name != "00_intro"]
    assert [name for name in CHAPTERS if name[0].isdigit()] == chapters
    for name in CHAPTERS:
        assert (ROOT / f"book/{name}.ipynb").exists()
        assert 3 <= len(load(name).questions) <= 5


def test_checks_and_exercises_match_one_to_one() -> None:
    asked = [question.name for name in set_names() for question in load(name).questions]
    assert sorted(asked) == sorted(checks.EXERCISES)
    for name in set_names():
        assert [q.name for q in load(name).questions] == [e.name for e in checks.SETS[name]]


@pytest.mark.parametrize("name", CHAPTERS)
def test_each_exercise_states_difficulty_minutes_points_and_hints(name: str) -> None:
    text = "\n".join(source_text(cell) for cell in cells(source_path(name)))
    stated = re.findall(
        r"\*\*Difficulty\*\* \S+ (\w+) · \*\*(\d+) minutes\*\* · \*\*(\d+) points?\b", text
    )
    assert [float(points) for _, _, points in stated] == [q.points for q in load(name).questions]
    for part in text.split("**Difficulty**")[1:]:
        assert part.count("<summary>Hint ") >= 2
    intro = source_text(cells(source_path(name))[0])
    (more,) = map(int, re.findall(r"\*\*Open\*\* · \*\*(\d+) minutes", text))
    minutes = sum(int(minutes) for _, minutes, _ in stated) + more
    said = f"about {minutes} minutes, {load(name).points:g} points and 6 for the open exercise, "
    assert f"{said}which takes {more} of the minutes." in intro


@pytest.mark.parametrize("name", CHAPTERS)
def test_a_harder_exercise_is_worth_more_points(name: str) -> None:
    text = "\n".join(source_text(cell) for cell in cells(source_path(name)))
    points: dict[str, list[int]] = {"●○○ easy": [], "●●○ medium": [], "●●● hard": []}
    for level, each in re.findall(r"\*\*Difficulty\*\* (\S+ \w+) · .* · \*\*(\d+) point", text):
        points[level].append(int(each))
    levels = [each for each in points.values() if each]
    assert all(max(easier) < min(harder) for easier, harder in itertools.pairwise(levels))
    assert all(max(each) - min(each) <= 1 for each in levels)


@pytest.mark.parametrize("name", CHAPTERS)
def test_every_cell_that_is_handed_out_has_a_name(name: str) -> None:
    """So that feedback shows it as it was handed out."""
    ids = [nbgrader_metadata(cell).get("grade_id") for cell in cells(source_path(name))]
    assert None not in ids and len(set(ids)) == len(ids)


@pytest.mark.parametrize("name", CHAPTERS)
def test_every_forecast_has_a_cell_before_the_answer_and_is_answered_after_the_check(
    name: str,
) -> None:
    by_id = {nbgrader_metadata(c)["grade_id"]: c for c in cells(release_path(name))}
    ids = list(by_id)
    for question in load(name).questions:
        asked, answered = f"forecast_{question.name}", f"forecast_answer_{question.name}"
        assert (asked in ids) == (answered in ids)
        if asked not in ids:
            continue
        assert ids.index(asked) == ids.index(question.solution_id) - 1
        assert ids.index(answered) > ids.index(question.test_id)
        assert source_text(by_id[asked]).startswith("**Your forecast** (before you run anything): ")
        held = nbgrader_metadata(by_id[asked])
        assert not held["grade"] and not held["solution"] and not held["locked"]
        assert by_id[asked]["metadata"].get("editable", True)
        assert "<summary>The forecast: click after your own</summary>" in (
            source_text(by_id[answered])
        )
    text = "".join(source_text(cell) for cell in by_id.values())
    assert not re.search(r"Before you (write it|run it|begin):", text)


def test_feedback_shows_a_forecast_as_the_student_wrote_it() -> None:
    """Other cells that are no answer are put back to what was handed out."""
    name = "01_attention"
    notebook = json.loads(release_path(name).read_text(encoding="utf-8"))
    for cell in notebook["cells"]:
        if nbgrader_metadata(cell)["grade_id"] in ("forecast_times_of", "ask_times_of"):
            cell["source"] = "No: all lies on $one$ line."
    made = restore(parse(json.dumps(notebook).encode()), load(name))
    assert [cell.grade_id for cell in made if "one$ line" in cell.source] == ["forecast_times_of"]
    graded = Graded("ann", name, [], [c for c in made if not c.is_test], {}, 0.0)
    assert "No: all lies on $one$ line." in feedback_page(graded.record(), autograded(graded))


@pytest.fixture(scope="module")
def made_once() -> Iterator[None]:
    """Make each release once for several tests."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(build, "release_text", functools.cache(build.release_text))
        yield


def test_releases_are_what_the_sources_give(made_once: None) -> None:
    assert build.main(["--check"]) == 0


def test_a_stale_release_is_noticed(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Any, made_once: None
) -> None:
    edited = tmp_path / "02_sinusoidal.ipynb"
    edited.write_text(release_path("02_sinusoidal").read_text().replace("Sinusoidal", "Edited"))
    real = build.release_path
    monkeypatch.setattr(
        build, "release_path", lambda n: edited if n == "02_sinusoidal" else real(n)
    )
    monkeypatch.setattr(build, "RELEASE", tmp_path)
    assert build.main(["--check"]) == 1


def solution_lines(name: str) -> set[str]:
    """Return the lines between BEGIN and END SOLUTION that stand nowhere else in the source."""
    inside, outside = set(), set()
    for cell in cells(source_path(name)):
        hidden = False
        for line in source_text(cell).splitlines():
            text = " ".join(line.split("#")[0].split())
            if "BEGIN SOLUTION" in line or "END SOLUTION" in line:
                hidden = "BEGIN" in line
            elif hidden:
                inside.add(text)
            else:
                outside.add(text)
    return {line for line in inside - outside if len(line) > 8}


@pytest.mark.parametrize("name", CHAPTERS)
def test_nothing_of_a_solution_is_in_a_release(name: str) -> None:
    secret = solution_lines(name)
    assert len(secret) >= len(load(name).questions)
    release = release_path(name).read_text(encoding="utf-8")
    text = " ".join("\n".join(source_text(cell) for cell in cells(release_path(name))).split())
    for line in secret:
        assert line not in text
    assert "SOLUTION" not in release and "HIDDEN TESTS" not in release
    for cell in cells(release_path(name)):
        assert not cell.get("outputs") and not cell.get("attachments")
        metadata = nbgrader_metadata(cell)
        if metadata.get("solution") and not metadata["grade_id"].startswith("open_"):
            assert source_text(cell).endswith("# your code here\n    raise NotImplementedError")


def test_every_model_answer_has_a_why_of_two_to_five_sentences() -> None:
    assert list(solutions.whys()) == [each.name for one in checks.SETS.values() for each in one]
    for name, why in solutions.whys().items():
        words = re.sub(r"\$[^$]*\$", "x", why)  # without formulas
        assert 2 <= len(re.findall(r"[.?]\)?(?: |$)", words)) <= 5, name
        assert len(solutions.commonest_mistakes(name)) == 2


@pytest.mark.parametrize("name", CHAPTERS)
def test_a_page_of_model_solutions_is_whole_and_needs_no_network(name: str) -> None:
    page = solutions.page(name)
    article = BeautifulSoup(page, "html.parser").body
    assert article is not None
    text = " ".join(article.get_text().split())
    for line in (line for line in solution_lines(name) if not line.startswith(("-", "*"))):
        assert line in text
    assert (
        text.count("Why.") == text.count("The two commonest mistakes") == len(load(name).questions)
    )
    assert "What a full answer has" in text and "$" not in text and "SOLUTION" not in text
    assert "<script" not in page and not article.select("[src], link")


def test_no_release_and_no_zip_says_why_an_answer_is_right() -> None:
    """Nor does the archive of the checks have the file in which it stands."""
    texts = [path.read_text(encoding="utf-8") for path in build.RELEASE.rglob("*.ipynb")]
    for packed in (build.ZIP.read_bytes(), build.checks()):
        with zipfile.ZipFile(io.BytesIO(packed)) as archive:
            texts += [archive.read(each).decode(errors="ignore") for each in archive.namelist()]
    every = "\n".join(texts)
    for why in solutions.whys().values():
        assert max(re.findall(r"[\w ,]+", why), key=len) not in every


@pytest.mark.parametrize("name", CHAPTERS)
def test_a_set_ends_with_an_open_exercise_whose_rubric_is_the_instructors(name: str) -> None:
    ask, _, answer, last = cells(source_path(name))[-4:]
    assert source_text(last).splitlines()[-1] == f'checks.progress("{name}")'
    assert f"## Exercise {len(load(name).questions) + 1}, open: " in source_text(ask)
    (question,) = load(name).open
    assert f"**{question.points:g} points, given by a person** (2 for the design, 2" in (
        source_text(ask)
    )
    rubric = re.findall(r"^- \*(\w+)\*: ", source_text(answer), flags=re.MULTILINE)
    assert rubric == ["Design", "Measurement", "Defence"]
    given = {nbgrader_metadata(c)["grade_id"]: source_text(c) for c in cells(release_path(name))}
    assert given["open_work"] == "# your code here"
    assert given["open_answer"] == "Your answer here."
    assert "full answer" not in release_path(name).read_text(encoding="utf-8")


@pytest.mark.parametrize("name", CHAPTERS)
def test_the_instructors_experiment_runs(name: str, capsys: Any) -> None:
    work = cells(source_path(name))[-3]
    exec(source_text(work), {"torch": torch, "math": math})
    assert len(capsys.readouterr().out.splitlines()) >= 1


@pytest.fixture(scope="module")
def graded(request: pytest.FixtureRequest, sandbox: None) -> dict[tuple[str, str], Graded]:
    """Solution and release of every set that this run asks about, graded in the sandbox."""
    asked = {item.callspec.params.get("name") for item in request.session.items
             if hasattr(item, "callspec")}  # fmt: skip
    sets = [name for name in CHAPTERS if name in asked]
    names = [(kind, name) for name in sets for kind in ("solution", "release")]
    path = {"solution": source_path, "release": release_path}
    jobs = [Job(kind, name, path[kind](name).read_bytes(), secret="a") for kind, name in names]
    found = {}
    for each, job in zip(names, jobs, strict=True):
        done = work(job)
        assert done.graded is not None, done.problem
        found[each] = done.graded
    return found


@pytest.mark.parametrize("name", CHAPTERS)
def test_the_solution_scores_full_marks_in_the_sandbox(name: str, graded: Any) -> None:
    result = graded["solution", name]
    assert {verdict.word for verdict in result.verdicts} == {"ok"}
    assert result.points == load(name).points


@pytest.mark.parametrize("name", CHAPTERS)
def test_the_release_scores_zero_without_crashing(name: str, graded: Any) -> None:
    result = graded["release", name]
    assert {verdict.word for verdict in result.verdicts} == {"not answered"}
    assert result.points == 0
    assert not any(ran.word for ran in result.ran.values())


def test_the_zip_holds_every_release_and_no_source() -> None:
    """The one that is there, which is what the sources give."""
    with zipfile.ZipFile(build.ZIP) as archive:
        names = archive.namelist()
        for name in set_names():
            data = archive.read(f"exercises/{name}.ipynb")
            assert data == release_path(name).read_bytes()
    assert len(names) == len(set_names()) + 1


def where_it_opens(path: Path) -> str:
    """Return the three links of a notebook."""
    place = path.relative_to(ROOT).as_posix()
    return (
        "[Colab](https://colab.research.google.com/github/positional-encodings/course/blob/main/"
        f"{place}) · [Binder](https://mybinder.org/v2/gh/positional-encodings/course/main"
        f"?urlpath=lab/tree/{place}) · [download it](../{place})"
    )


@pytest.mark.parametrize("name", CHAPTERS)
def test_a_chapter_ends_with_its_set_one_click_away(name: str) -> None:
    chapter = cells(ROOT / f"book/{name}.ipynb")
    (place,) = (i for i, c in enumerate(chapter) if f'graded_set("{name}")' in source_text(c))
    (output,) = chapter[place]["outputs"]
    text = "".join(output["data"]["text/markdown"])
    assert text == sets.invitation(name)
    assert where_it_opens(release_path(name)) in text
    after = [c for c in chapter[place:] if c["cell_type"] == "markdown"]
    assert source_text(after[0]).startswith(("## The dog and the man", "## References"))


def test_the_page_of_exercises_shows_a_wrong_answer_becoming_right() -> None:
    page = (ROOT / "book/exercises.md").read_text(encoding="utf-8")
    answers = re.findall(r"```\{checked-answer\}\n(.*?)```", page, flags=re.DOTALL)
    first, second, third = map(warm_up.feedback, answers)
    assert first.startswith("Not yet: with one query behind a cache")
    assert second == "Not yet: this is query − key; everywhere in this course it is key − query"
    assert third == "relative: right."


# --- progress -------------------------------------------------------------------------------


@pytest.fixture
def alone(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    monkeypatch.setattr("pe_course.judge.exercise.FOUND", {})
    monkeypatch.chdir(tmp_path)
    return tmp_path


def passing(name: str) -> None:
    """Let the reference of each exercise of a set be checked."""
    for exercise in checks.SETS[name]:
        exercise(exercise.reference)


def test_progress_names_each_exercise_and_what_became_of_it(alone: Path, capsys: Any) -> None:
    first, second, third = checks.SETS["10_rope"]
    first(first.reference)
    second(lambda *args: None)
    capsys.readouterr()
    checks.progress("10_rope")
    lines = capsys.readouterr().out.splitlines()
    assert [line.split(maxsplit=1) for line in lines[:3]] == [
        [first.name, "right"], [second.name, "not yet right"], [third.name, "not checked"]
    ]  # fmt: skip
    assert lines[3:] == ["10_rope: 1 of 3 exercises are right."]


def test_progress_adds_up_across_sets_and_sessions(
    alone: Path, capsys: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each set in a folder of its own, as in the repository and in nbgrader's layout."""
    for name in ("05_shaw", "10_rope"):
        (alone / name).mkdir()
        monkeypatch.chdir(alone / name)
        monkeypatch.setattr("pe_course.judge.exercise.FOUND", {})
        passing(name)
        checks.progress(name)
    total = len(checks.EXERCISES)
    done = len(checks.SETS["05_shaw"]) + len(checks.SETS["10_rope"])
    assert capsys.readouterr().out.splitlines()[-1] == (
        f"All sets: {done} of {total} exercises, 2 of {len(checks.SETS)} sets complete."
    )
    assert [path.name for path in alone.rglob("*.json")] == ["progress.json"]


def test_an_answer_that_is_broken_later_counts_no_more(alone: Path, capsys: Any) -> None:
    passing("05_shaw")
    checks.SETS["05_shaw"][0](lambda *args: None)
    checks.progress("05_shaw")
    assert "05_shaw: 2 of 3 exercises are right." in capsys.readouterr().out


def test_of_two_notebooks_what_was_found_last_counts(
    alone: Path, capsys: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whichever of them tells its progress last; a clock that was ahead has no say."""
    first, *_ = checks.SETS["10_rope"]
    first_notebook: dict[str, kept.Found] = {}
    monkeypatch.setattr("pe_course.judge.exercise.FOUND", first_notebook)
    first(lambda *args: None)
    monkeypatch.setattr("pe_course.judge.exercise.FOUND", {})
    first(first.reference)
    checks.progress("10_rope")
    monkeypatch.setattr("pe_course.judge.exercise.FOUND", first_notebook)
    checks.progress("10_rope")
    assert capsys.readouterr().out.count("10_rope: 1 of 3 exercises are right.") == 2
    for text in ("false", "[false, 1e12]"):
        (alone / "progress.json").write_text(f'{{"{first.name}": {text}}}')
        first(first.reference)
        checks.progress("10_rope")
        assert "10_rope: 1 of 3 exercises are right." in capsys.readouterr().out


@pytest.mark.parametrize("text", ["", "[1]", '{"converted": "yes"}', "\x00"])
def test_a_spoiled_file_of_progress_is_begun_anew(alone: Path, capsys: Any, text: str) -> None:
    (alone / "progress.json").write_text(text)
    passing("10_rope")
    checks.progress("10_rope")
    assert capsys.readouterr().out.splitlines()[-1] == "10_rope: 3 of 3 exercises are right."


def test_a_folder_that_cannot_be_written_costs_no_progress(
    alone: Path, capsys: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(kept, "file_for", lambda *_: alone / "none/progress.json")
    passing("10_rope")
    checks.progress("10_rope")
    assert "10_rope: 3 of 3 exercises are right." in capsys.readouterr().out


# --- all cells at once ------------------------------------------------------------------------


@pytest.mark.parametrize("name", CHAPTERS)
def test_an_untouched_notebook_runs_to_its_end(name: str, alone: Path, capsys: Any) -> None:
    book: dict[str, Any] = {"__name__": "__main__"}
    for cell in cells(release_path(name)):
        if cell["cell_type"] == "code":
            exec(source_text(cell), book)
    said = capsys.readouterr().out
    for question in load(name).questions:
        assert f"Not yet: {question.name} is not answered yet\n" in said
    assert said.endswith(f"{name}: 0 of {len(load(name).questions)} exercises are right.\n")


# Two answers raise, and one returns nothing, which its picture cannot show.
HALF = {
    "add_positions": "def add_positions(x, start):\n    # (B, L, d)\n    return x @ x\n",
    "positions_of": "%%time\ndef positions_of(*given):\n    return 1 / 0",
    "continued": "def continued(*given):\n    pass",
}


def test_a_half_answered_notebook_runs_to_its_end_and_says_what_is_wrong(tmp_path: Path) -> None:
    """As Run All does it, in a kernel that stops at the first exception."""
    notebook = nbformat.read(release_path("02_sinusoidal"), as_version=4)
    answers = HALF | {"frequencies_of": solution_cells("02_sinusoidal")["frequencies_of"]}
    for cell in notebook.cells:
        cell.source = answers.get(cell.metadata.nbgrader.grade_id, cell.source)
    NotebookClient(notebook, resources={"metadata": {"path": str(tmp_path)}}).execute()
    said = {
        cell.metadata.nbgrader.grade_id: "".join(out.get("text", "") for out in cell.outputs)
        for cell in notebook.cells if cell.cell_type == "code"
    }  # fmt: skip
    where, line, error, case = said["test_add_positions"].splitlines()
    assert where == "Not yet: line 3, in add_positions, raises an error"
    assert line == "    return x @ x"
    assert error.startswith("RuntimeError: ") and case.startswith("with ")
    where, error, _ = said["test_positions_of"].splitlines()  # %%time keeps no lines
    assert where == "Not yet: line 2, in positions_of, raises an error"
    assert error == "ZeroDivisionError: division by zero"
    assert "it returns None; is a `return` missing?" in said["test_continued"]
    assert said["see_continued"].startswith("Nothing to see yet: ")
    assert said["test_frequencies_of"] == "frequencies_of: right.\n"
    assert said["progress"].endswith("02_sinusoidal: 1 of 4 exercises are right.\n")


# --- projects -------------------------------------------------------------------------------


@pytest.mark.parametrize("path", projects(), ids=lambda path: path.stem)
def test_a_project_runs_as_it_stands(path: Path, capsys: Any) -> None:
    """With two steps of training instead of hundreds."""
    book: dict[str, Any] = {}
    for cell in cells(path):
        if cell["cell_type"] == "code":
            text = source_text(cell)
            text = text.replace("STEPS, SEEDS = 32, 300,", "STEPS, SEEDS = 8, 2,")
            exec(text, book)
    assert book.get("STEPS") == 2
    assert not any(cell.get("outputs") for cell in cells(path))
    said = capsys.readouterr().out
    assert said.startswith("Mine: right. It acts through ")
    assert re.search(r"^mine( +\d\.\d\d){2,3}$", said, flags=re.MULTILINE)


class Raises(PositionEncoding):
    def embed(self, x: Any, positions: Any) -> Any:
        return x if x.shape[1] < 100 else x.fail()


class Overflows(PositionEncoding):
    def embed(self, x: Any, positions: Any) -> Any:
        return x + torch.inf


class Nothing(PositionEncoding):
    def embed(self, x: Any, positions: Any) -> Any:
        return x


class Everywhere(PositionEncoding):
    def embed(self, x: Any, positions: Any) -> Any:
        return x + 0.01 * torch.arange(x.shape[1])[:, None]


class Forgotten(PositionEncoding):
    def __init__(self) -> None:
        super().__init__()
        self.weight = torch.nn.Parameter(torch.ones(()))

    def embed(self, x: Any, positions: Any) -> Any:
        return x + torch.randn(x.shape[1:], generator=torch.Generator().manual_seed(0))


class ByLength(PositionEncoding):
    def embed(self, x: Any, positions: Any) -> Any:
        steps = torch.linspace(0, 3, x.shape[1])[:, None]
        return x + steps * torch.linspace(-1, 1, x.shape[2])


class OnlyAxes(PositionEncoding):
    def rotate_axes(self, q: Any, k: Any, q_axes: Any, k_axes: Any) -> Any:
        return -q, k


class OnlyValues(PositionEncoding):
    def rotate_values(self, v: Any, k_pos: Any) -> Any:
        return RoPE(practice.HEAD_DIM).rotate(v, v, k_pos, k_pos)[0]

    def rotate_back(self, output: Any, q_pos: Any) -> Any:
        back = RoPE(practice.HEAD_DIM, inv_freq=-RoPE(practice.HEAD_DIM).inv_freq)
        return back.rotate(output, output, q_pos, q_pos)[0]


@pytest.mark.parametrize(
    ("made", "message"),
    [
        (dict, "it must be a PositionEncoding, got {}"),
        (PositionEncoding, "it overrides none of embed, rotate, .*, rotate_back: nothing happens"),
        (Raises, "with 256 tokens it raises"),
        (Overflows, "with 1 tokens the model's outputs are NaN or infinite"),
        (Nothing, "position has no effect"),
        (OnlyAxes, "position has no effect .here a token has one number"),
        (Everywhere, "position has no effect .a LayerNorm takes away"),
        (Forgotten, r"no gradient reaches its parameters \(weight\)"),
    ],
)
def test_a_method_that_cannot_take_part_is_told_why(made: Any, message: str, capsys: Any) -> None:
    with pytest.raises(checks.CheckFailed, match=message):
        practice.judge(made)
    practice.check(made)
    assert re.match(f"Not yet: .*{message}", capsys.readouterr().out)


@pytest.mark.parametrize(
    ("make", "hooks"),
    [
        (lambda: Forgetting(practice.D_MODEL, practice.N_HEADS), "project_hidden and hidden_bias"),
        (lambda: Sink(practice.N_HEADS), "sink"),
        (OnlyValues, "rotate_values and rotate_back"),
    ],
)
def test_a_method_may_act_through_any_hook(make: Any, hooks: str, capsys: Any) -> None:
    practice.check(make)
    assert f"It acts through {hooks}." in capsys.readouterr().out


def test_a_method_that_reads_the_length_is_told_so(capsys: Any) -> None:
    """And which promises it therefore does not keep."""
    practice.check(ByLength)
    said = capsys.readouterr().out
    assert "It reads the length of the text" in said
    assert "It does not promise `a_cache_gives_the_whole`: Token by token as all at once." in said
