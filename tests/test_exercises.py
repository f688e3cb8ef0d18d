"""The students' notebooks are generated, give nothing away, and ask for what they grade."""

from __future__ import annotations

import functools
import json
import math
import os
import re
import subprocess
import sys
import zipfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
import yaml

from exercises import build, checks, practice, warm_up
from exercises.checks import kept
from exercises.grade_course import work
from exercises.jobs import Graded, Job
from exercises.sets import (
    load,
    nbgrader_metadata,
    projects,
    release_path,
    set_names,
    source_path,
    source_text,
)
from lab import sets
from pe_lib import Forgetting, PositionEncoding, RoPE, RotaryValues
from tools import ROOT
from tools.refresh import repository_url

COURSE = [
    "01_attention", "02_sinusoidal", "03_learned", "04_four_terms", "05_shaw",
    "06_transformer_xl", "07_t5", "08_deberta", "09_alibi", "10_rope", "11_one_table",
    "12_axes", "13_context_extension", "14_bakeoff", "15_today", "16_clinic", "17_choosing",
]  # fmt: skip
CHAPTERS = set_names()  # those of the course, and those of chapters that came later


def cells(path: Any) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = json.loads(path.read_text(encoding="utf-8"))["cells"]
    return found


def test_every_chapter_has_a_set_of_three_to_five_exercises() -> None:
    assert CHAPTERS[: len(COURSE)] == COURSE
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
        r"\*\*Difficulty\*\* \S+ (\w+) · \*\*(\d+) minutes\*\* · \*\*(\d+) points", text
    )
    assert [float(points) for _, _, points in stated] == [q.points for q in load(name).questions]
    for part in text.split("**Difficulty**")[1:]:
        assert part.count("<details>") >= 2
    minutes = sum(int(minutes) for _, minutes, _ in stated)
    intro = source_text(cells(source_path(name))[0])
    assert f"about {minutes} minutes, {load(name).points:g} points" in intro


@pytest.mark.parametrize("name", CHAPTERS)
def test_every_cell_that_is_handed_out_has_a_name(name: str) -> None:
    """So that feedback shows it as it was handed out."""
    ids = [nbgrader_metadata(cell).get("grade_id") for cell in cells(source_path(name))]
    assert None not in ids and len(set(ids)) == len(ids)


@pytest.mark.parametrize("name", CHAPTERS)
def test_alone_the_checks_come_from_the_repository_of_the_settings(name: str) -> None:
    setup = next(c for c in cells(source_path(name)) if 'git"' in source_text(c))
    assert f'url = "{repository_url()}"' in source_text(setup)


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
    assert given["open_work"] == "# your code here\nraise NotImplementedError"
    assert given["open_answer"] == "Your answer here."
    assert "full answer" not in release_path(name).read_text(encoding="utf-8")


@pytest.mark.parametrize("name", CHAPTERS)
def test_the_instructors_experiment_runs(name: str, capsys: Any) -> None:
    work = cells(source_path(name))[-3]
    exec(source_text(work), {"torch": torch, "math": math})
    assert len(capsys.readouterr().out.splitlines()) >= 1


@pytest.mark.parametrize("name", CHAPTERS)
def test_a_leak_would_be_noticed(name: str) -> None:
    """The line test above is not blind: the source itself fails it."""
    text = " ".join("\n".join(source_text(cell) for cell in cells(source_path(name))).split())
    assert all(line in text for line in solution_lines(name))


@pytest.fixture(scope="module")
def graded(request: pytest.FixtureRequest) -> dict[tuple[str, str], Graded]:
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


def test_nbgraders_own_command_makes_the_same_release(tmp_path: Any) -> None:
    """The sources are nbgrader's: its generate_assignment reads them and gives these cells."""
    from nbgrader.apps import NbGraderAPI
    from traitlets.config import Config

    name = "02_sinusoidal"
    config = Config(build.settings())
    config.CourseDirectory.root = str(tmp_path)
    (tmp_path / "source" / name).mkdir(parents=True)
    (tmp_path / "source" / name / f"{name}.ipynb").write_bytes(source_path(name).read_bytes())
    from exercises.records import find_alembic

    find_alembic()
    done = NbGraderAPI(config=config).generate_assignment(name, create=True)
    assert done["success"], done
    made = cells(tmp_path / "release" / name / f"{name}.ipynb")
    assert [source_text(c) for c in made] == [source_text(c) for c in cells(release_path(name))]


def test_the_page_of_exercises_offers_every_set_by_three_ways() -> None:
    parts = sets.overview().split("\n\n")
    assert len(parts) == len(set_names())
    for name, part in zip(set_names(), parts, strict=True):
        intro = source_text(cells(source_path(name))[0])
        found = re.fullmatch(
            r"\*\*(?:\d+|H)\. \[(.+)\]\((\w+)\.ipynb\)\.\*\* You (.+)\. (\d+) minutes, "
            r"(\d+) points\. Open in (.*)", part,
        )  # fmt: skip
        assert found
        title, chapter, asks, minutes, points, opens = found.groups()
        assert (title, chapter) == (load(name).title, name)
        assert f"**You will** {asks}." in intro
        assert f"about {minutes} minutes, {points} points" in intro
        assert opens == where_it_opens(name).replace("[download it]", "[download]")


@pytest.mark.parametrize("name", CHAPTERS)
def test_a_platforms_download_of_any_set_is_recognised(name: str) -> None:
    pattern = build.settings().FileNameCollectorPlugin.named_regexp
    for path, student in (
        (f"/d/bobross_LATE_12345_67890_{name}-1.ipynb", "12345"),
        (f"/d/Ann Lee_34567_assignsubmission_file_/{name}.ipynb", "34567"),
    ):
        found = re.match(pattern, path)
        assert found and (found["student_id"], found["file_id"]) == (student, name)


def where_it_opens(name: str) -> str:
    """Return the three links of a set, as the book's own buttons make them from the settings."""
    config = yaml.safe_load((ROOT / "_config.yml").read_text(encoding="utf-8"))
    at, buttons = config["repository"], config["launch_buttons"]
    owner = at["url"].removeprefix("https://github.com/")
    path = f"exercises/release/{name}/{name}.ipynb"
    assert release_path(name) == ROOT / path
    colab = f"{buttons['colab_url']}/github/{owner}/blob/{at['branch']}/{path}"
    binder = f"{buttons['binderhub_url']}/v2/gh/{owner}/{at['branch']}?urlpath=lab/tree/{path}"
    return f"[Colab]({colab}) · [Binder]({binder}) · [download it](../{path})"


@pytest.mark.parametrize("name", CHAPTERS)
def test_a_chapter_ends_with_its_set_one_click_away(name: str) -> None:
    chapter = cells(ROOT / f"book/{name}.ipynb")
    (place,) = (i for i, c in enumerate(chapter) if f'graded_set("{name}")' in source_text(c))
    (output,) = chapter[place]["outputs"]
    text = "".join(output["data"]["text/markdown"])
    assert text == sets.invitation(name)
    assert where_it_opens(name) in text
    after = [c for c in chapter[place:] if c["cell_type"] == "markdown"]
    assert source_text(after[0]).startswith("## Summary")


def test_no_set_of_a_name_is_an_error_that_says_which_there_are() -> None:
    with pytest.raises(ValueError, match=r"name must be one of 01_attention, .*; got '11_none'"):
        sets.invitation("11_none")


def test_the_page_of_exercises_shows_a_wrong_answer_becoming_right() -> None:
    page = (ROOT / "book/exercises.md").read_text(encoding="utf-8")
    answers = re.findall(r"```\{checked-answer\}\n(.*?)```", page, flags=re.DOTALL)
    first, second, third = map(warm_up.feedback, answers)
    assert first.startswith("Not yet: with one query behind a cache")
    assert second == "Not yet: this is query − key; everywhere in this course it is key − query"
    assert third == "relative: right."


# --- a set opened alone ---------------------------------------------------------------------

CLEAN = """
import os, sys
root = sys.argv[1]
sys.path[:] = [p for p in sys.path if p and not os.path.exists(os.path.join(p, "exercises"))]
sys.meta_path[:] = [f for f in sys.meta_path if "editable" not in repr(f)]
for cell in open("cells.txt", encoding="utf-8").read().split("\\0"):
    try:
        exec(cell, globals())
    except Exception as error:
        print(type(error).__name__ + ":", error)
    print("--")
print(sys.modules["exercises"].__file__)
"""


def test_a_set_opened_alone_brings_what_it_needs_and_checks(tmp_path: Path) -> None:
    """In Colab's way: one notebook in an empty folder, no project on the path, `git` at hand."""
    name = "05_shaw"
    solved = {nbgrader_metadata(c)["grade_id"]: c for c in cells(source_path(name))}
    handed_out = [c for c in cells(release_path(name)) if c["cell_type"] == "code"]
    work = [source_text(c) for c in handed_out]
    answer = next(i for i, c in enumerate(handed_out) if nbgrader_metadata(c).get("solution"))
    work[answer] = source_text(solved[nbgrader_metadata(handed_out[answer])["grade_id"]])
    folder, bin_ = tmp_path / "content", tmp_path / "bin"
    folder.mkdir()
    bin_.mkdir()
    (folder / "cells.txt").write_text("\0".join([*work, work[0]]), encoding="utf-8")
    git = bin_ / "git"  # what fetches the project: from here
    git.write_text(f'#!/bin/sh\necho "$@" >> git.txt\nln -s "{ROOT}" "$6"\n')
    git.chmod(0o755)
    done = subprocess.run(
        [sys.executable, "-c", CLEAN, str(ROOT)], cwd=folder, capture_output=True, text=True,
        env={"PATH": f"{bin_}:{os.environ['PATH']}", "OMP_NUM_THREADS": "1"},
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    said = done.stdout.split("--\n")
    asked = (folder / "git.txt").read_text().split("\n")
    assert asked == [f"clone --quiet --depth 1 {repository_url()} course", ""]  # once only
    first = load(name).questions[0].name
    assert f"{first}: right.\n" in said
    assert f"{name}: 1 of {len(load(name).questions)} exercises are right." in done.stdout
    assert json.loads((folder / "progress.json").read_text())[first] is True
    assert said[-1].strip() == str(folder / "course/exercises/__init__.py") or said[-1].startswith(
        str(ROOT)
    )


@pytest.mark.parametrize("name", [*COURSE, "hierarchical"])
def test_torch_without_numpy_is_noticed(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """PyTorch installs without it; the checks, and lab for the open exercise, need more."""
    asked: list[str] = []

    def install(command: list[str], **_: Any) -> None:
        asked.extend(command)
        monkeypatch.undo()

    monkeypatch.setitem(sys.modules, "numpy", None)
    monkeypatch.setattr(subprocess, "run", install)
    (setup,) = (source_text(c) for c in cells(release_path(name)) if c["id"] == "setup")
    exec(setup, found := {})
    assert asked[1:4] == ["-m", "pip", "install"]
    assert {"matplotlib", "numpy", "torch", "tqdm"} <= set(asked)
    assert found["checks"] is checks


# --- progress -------------------------------------------------------------------------------


@pytest.fixture
def alone(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    monkeypatch.setattr(kept, "HERE", {})
    monkeypatch.chdir(tmp_path)
    return tmp_path


def passing(name: str) -> None:
    """Let the reference of each exercise of a set be checked."""
    for exercise in checks.SETS[name]:
        exercise(exercise.reference)


def test_progress_names_each_exercise_and_what_became_of_it(alone: Path, capsys: Any) -> None:
    first, second, third = checks.SETS["10_rope"]
    first(first.reference)
    with pytest.raises(checks.CheckFailed):
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
        monkeypatch.setattr(kept, "HERE", {})
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
    with pytest.raises(checks.CheckFailed):
        checks.SETS["05_shaw"][0](lambda *args: None)
    checks.progress("05_shaw")
    assert "05_shaw: 2 of 3 exercises are right." in capsys.readouterr().out


@pytest.mark.parametrize("text", ["", "[1]", '{"apply_rope": "yes"}', "\x00"])
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


def test_progress_of_no_set_is_an_error() -> None:
    with pytest.raises(ValueError, match=r"name must be one of .*; got 'rope'"):
        checks.progress("rope")


# --- projects -------------------------------------------------------------------------------


@pytest.mark.parametrize("path", projects(), ids=lambda path: path.stem)
def test_a_project_runs_as_it_stands(path: Path, capsys: Any) -> None:
    """With two steps of training in place of hundreds."""
    book: dict[str, Any] = {}
    for cell in cells(path):
        if cell["cell_type"] == "code":
            text = source_text(cell)
            text = text.replace("STEPS, SEEDS = 32, 300,", "STEPS, SEEDS = 8, 2,")
            exec(text, book)
    assert book.get("STEPS") == 2
    said = capsys.readouterr().out
    assert said.startswith("Mine: right. It acts through ")
    assert re.search(r"^mine( +\d\.\d\d){2,3}$", said, flags=re.MULTILINE)


@pytest.mark.parametrize("path", projects(), ids=lambda path: path.stem)
def test_a_project_brings_what_it_needs_as_a_set_does(path: Path) -> None:
    (setup,) = (source_text(c) for c in cells(path) if c["id"] == "setup")
    other = next(c for c in cells(source_path("05_shaw")) if c["id"] == "setup")
    assert setup == source_text(other).replace("import checks", "import practice")
    assert not any(cell.get("outputs") for cell in cells(path))


def test_the_page_of_exercises_offers_every_project() -> None:
    found = sets.projects().split("\n\n")
    assert len(found) == len(projects())
    for text, path in zip(found, projects(), strict=True):
        assert text.endswith(f"[download](../exercises/projects/{path.name})")
        assert f"/blob/main/exercises/projects/{path.name})" in text


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


@pytest.mark.parametrize(
    ("made", "message"),
    [
        (dict, "it must be a PositionEncoding, got {}"),
        (PositionEncoding, "it overrides none of embed, rotate, bias, values, rotate_axes, read"),
        (Raises, "with 256 tokens it raises"),
        (Overflows, "with 1 tokens the model's outputs are NaN or infinite"),
        (Nothing, "position has no effect"),
        (Everywhere, "position has no effect .a LayerNorm takes away"),
        (Forgotten, r"no gradient reaches its parameters \(weight\)"),
    ],
)
def test_a_method_that_cannot_take_part_is_told_why(made: Any, message: str) -> None:
    with pytest.raises(checks.CheckFailed, match=message):
        practice.check(made)


def test_a_method_that_reads_the_length_is_told_so(capsys: Any) -> None:
    """And which promises it therefore does not keep."""
    practice.check(ByLength)
    said = capsys.readouterr().out
    assert "It reads the length of the text" in said
    assert "It does not promise `a_cache_gives_the_whole`: Token by token as all at once." in said


@pytest.mark.parametrize(
    "make",
    [lambda: Forgetting(practice.D_MODEL, practice.N_HEADS, 0.5), lambda: RotaryValues(RoPE(8))],
)
def test_a_method_may_act_through_any_hook(make: Any, capsys: Any) -> None:
    practice.check(make)
    assert "right. It acts through" in capsys.readouterr().out
