"""The students' notebooks are generated, give nothing away, and ask for what they grade."""

from __future__ import annotations

import io
import json
import re
import zipfile
from typing import Any

import pytest

from browsing import ROOT
from exercises import build, checks
from exercises.grade_course import in_pool
from exercises.grade_submission import Graded, Job
from exercises.sets import (
    load,
    nbgrader_metadata,
    release_path,
    set_names,
    source_path,
    source_text,
)
from tools.refresh import repository_url

COURSE = [
    "01_attention", "02_sinusoidal", "03_learned", "04_four_terms", "05_shaw",
    "06_transformer_xl", "07_t5", "08_deberta", "09_alibi", "10_rope", "12_axes",
    "13_context_extension",
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
def test_in_colab_the_library_comes_from_the_repository_of_the_settings(name: str) -> None:
    setup = next(c for c in cells(source_path(name)) if "google.colab" in source_text(c))
    assert f'url = "{repository_url()}"' in source_text(setup)


def test_releases_are_what_the_sources_give() -> None:
    assert build.main(["--check"]) == 0


def test_a_stale_release_is_noticed(monkeypatch: pytest.MonkeyPatch, tmp_path: Any) -> None:
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
        if nbgrader_metadata(cell).get("solution"):
            assert source_text(cell).endswith("# your code here\n    raise NotImplementedError")


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
    for index, done in in_pool(jobs, workers=min(2, len(sets))):
        assert done.graded is not None, done.problem
        found[names[index]] = done.graded
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
    wanted = build.products(set_names())
    with zipfile.ZipFile(io.BytesIO(wanted[build.ZIP])) as archive:
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


def test_the_download_page_lists_every_set_with_its_points() -> None:
    page = (build.RELEASE.parent.parent / "book/exercises.md").read_text(encoding="utf-8")
    for name in set_names():
        exercise_set = load(name)
        row = next(line for line in page.splitlines() if f"/{name}.ipynb>" in line)
        cells_of_row = [part.strip() for part in row.strip("|").split("|")]
        assert cells_of_row[1].startswith(f"{{download}}`{exercise_set.title} <")
        assert cells_of_row[2] == str(len(exercise_set.questions))
        assert f"about {cells_of_row[3]} minutes" in source_text(cells(source_path(name))[0])
        assert cells_of_row[4] == f"{exercise_set.points:g}"
