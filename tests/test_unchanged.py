"""What passed is not tested again only if nothing changed that it depends on."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys

import pytest

from tools import ROOT, environment, unchanged
from tools import test as suite

STORED = [
    "book/a.ipynb",
    "pe_lib/rope.py",
    "lab/deep/inside/model.py",
    "lab/data/text.txt",
    "tools/refresh.py",
    "benchmarks/results.json",
    "book/benchmarks.md",
    "conftest.py",
    "constraints.txt",
]
UNREAD = ["book/b.ipynb", "book/glossary.md", "book/data/runtimes.json", "tests/test_x.py"]


@pytest.fixture
def root(tmp_path):
    """A small repository whose only notebook passed as it stands."""
    for name in STORED + UNREAD:
        path = tmp_path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text("1\n")
    unchanged.remember(notebook(tmp_path), unchanged.digest(notebook(tmp_path), tmp_path), tmp_path)
    return tmp_path


def notebook(root):
    return root / "book" / "a.ipynb"


def is_skipped(root) -> bool:
    return unchanged.passed([notebook(root)], root) == ["a"]


def test_a_notebook_that_passed_is_not_executed_again(root):
    assert is_skipped(root)
    assert unchanged.passed([root / "book" / "b.ipynb"], root) == []


@pytest.mark.parametrize("name", STORED)
def test_a_changed_byte_in_what_it_reads_runs_it_again(root, name):
    (root / name).write_text("2\n")
    assert not is_skipped(root)
    (root / name).write_text("1\n")
    assert is_skipped(root)


def test_any_changed_notebook_runs_the_overview_again(root):
    overview = root / f"book/{unchanged.OVERVIEW}.ipynb"
    overview.write_text("1\n")
    unchanged.remember(overview, unchanged.digest(overview, root), root)
    assert unchanged.passed([overview], root) == [unchanged.OVERVIEW]
    (root / "book/b.ipynb").write_text("2\n")
    assert unchanged.passed([overview], root) == []


@pytest.mark.parametrize("name", ["lab/new.py", "exercises/checks/ch05.py", "bakeoff/run.py"])
def test_a_new_file_and_a_file_that_is_gone_run_it_again(root, name):
    path = root / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("1\n")
    assert not is_skipped(root)
    path.unlink()
    assert is_skipped(root)
    (root / "lab/deep/inside/model.py").unlink()
    assert not is_skipped(root)


@pytest.mark.parametrize("name", UNREAD)
def test_what_no_notebook_reads_changes_nothing(root, name):
    (root / name).write_text("2\n")
    assert is_skipped(root)


@pytest.mark.parametrize("part", ["python", "packages", "machine", "processor"])
def test_another_version_or_processor_runs_it_again(root, part, monkeypatch):
    changed = unchanged.machine() | {part: "another"}
    monkeypatch.setattr(unchanged, "machine", lambda: changed)
    assert not is_skipped(root)


def test_each_instruction_set_has_its_own_record(root, monkeypatch):
    other = "native" if environment.settings()[environment.CHOICE] != "native" else "oldest"
    monkeypatch.setenv(environment.CHOICE, other)
    if other == "oldest":
        monkeypatch.setattr("platform.machine", lambda: "x86_64")
    assert not is_skipped(root)


def test_a_source_that_changed_during_the_run_is_not_remembered(root):
    before = unchanged.digest(notebook(root), root)
    (root / "pe_lib/rope.py").write_text("2\n")
    unchanged.remember(notebook(root), before, root)
    assert not is_skipped(root)


# --- the site -------------------------------------------------------------------------------------


@pytest.fixture
def built(root):
    """The same small repository with a site that passed as it stands."""
    subprocess.run(["git", "init", "-q"], cwd=root, check=True)
    (root / ".gitignore").write_text("_build/\n")
    for name in ("_build/html/index.html", "tests/test_site.py", "tests/test_rope.py"):
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_text("1\n")
    unchanged.remember_site(unchanged.site_digest(root), root)
    assert unchanged.site_passed(root)
    return root


@pytest.mark.parametrize("name", [*STORED, "book/glossary.md", "tests/test_site.py", "new.md"])
def test_a_changed_or_new_file_has_the_site_visited_again(built, name):
    (built / name).write_text("2\n")
    assert not unchanged.site_passed(built)


def test_a_test_of_something_else_leaves_the_site_alone(built):
    (built / "tests/test_rope.py").write_text("2\n")
    assert unchanged.site_passed(built)


def test_a_site_that_is_built_anew_has_not_passed(built):
    shutil.rmtree(built / "_build/html")
    assert not unchanged.site_passed(built)


def test_another_browser_visits_the_site_again(built, monkeypatch):
    monkeypatch.setattr(unchanged.chromium, "installed", lambda: sys.executable)
    assert not unchanged.site_passed(built)


def test_without_git_no_site_is_remembered(root):
    (root / "_build/html").mkdir(parents=True)
    unchanged.remember_site(unchanged.site_digest(root), root)
    assert not unchanged.site_passed(root)


RUN = """
import pytest
from tools import unchanged
unchanged.site_digest = lambda: "digest"
for name in {names}:
    unchanged.remember_site = lambda digest: print("\\nremembered", name, digest)
    options = ["-q", "-s", "-p", "no:cacheprovider", "--import-mode=importlib", name]
    options += ["-k", "test_a"] * (name == "a part")
    print("\\nended", name, int(pytest.main(options)))
"""


def test_the_site_is_remembered_only_if_all_of_its_tests_passed(tmp_path):
    shutil.copy(ROOT / "tests/conftest.py", tmp_path)
    bodies = {
        "well": "pass",
        "fails": "assert False",
        "skips": "pytest.skip('')",
        "a part": "pass",
    }
    for name, body in bodies.items():
        (tmp_path / name).mkdir()
        text = f"import pytest\ndef test_a(): pass\ndef test_b():\n    {body}\n"
        (tmp_path / name / "test_site.py").write_text(text)
    path = os.pathsep.join([str(ROOT), str(ROOT / "tests")])
    env = os.environ | {"PE_COMPLETE": "1", "CI": "", "PYTHONPATH": path}
    command = [sys.executable, "-c", RUN.format(names=list(bodies))]
    done = subprocess.run(command, cwd=tmp_path, env=env, capture_output=True, text=True)
    said = done.stdout + done.stderr
    assert re.findall(r"ended (.*)", said) == ["well 0", "fails 1", "skips 0", "a part 0"], said
    assert re.findall(r"remembered (.*)", said) == ["well digest"], said


# --- the command ----------------------------------------------------------------------------------


def commanded(monkeypatch, *arguments: str, ci: str = "") -> list[str]:
    """Return the command of `make test` where a notebook and the site are unchanged."""
    lines: list[list[str]] = []

    def run(line, **_):
        lines.append(line)
        return type("Done", (), {"returncode": 0})

    monkeypatch.setenv("CI", ci)
    monkeypatch.setattr(unchanged, "passed", lambda notebooks: ["01_attention"])
    monkeypatch.setattr(unchanged, "site_passed", lambda: True)
    monkeypatch.setattr(suite.subprocess, "run", run)
    monkeypatch.setattr(environment, "apply", lambda name: None)
    assert suite.main(list(arguments)) == 0
    return lines[0]


@pytest.mark.parametrize("left_out", ["--unchanged=01_attention", "--unchanged-site"])
def test_what_is_unchanged_is_left_out_but_in_ci_and_where_all_is_wanted(monkeypatch, left_out):
    assert left_out in commanded(monkeypatch)
    assert left_out in commanded(monkeypatch, "--isa", "native", "-x")
    assert left_out not in commanded(monkeypatch, "--all")
    assert left_out not in commanded(monkeypatch, ci="true")


def test_the_library_is_traced_for_coverage_in_ci_alone(monkeypatch):
    assert not any("--cov" in part for part in commanded(monkeypatch))
    assert any("--cov-fail-under" in part for part in commanded(monkeypatch, ci="true"))


def test_a_folder_that_an_import_adds_to_the_path_is_no_other_machine(tmp_path, monkeypatch):
    (tmp_path / "other-1.0.dist-info").mkdir()
    (tmp_path / "other-1.0.dist-info" / "METADATA").write_text("Name: other\nVersion: 1.0\n")
    before = unchanged.machine.__wrapped__()
    assert any(each.startswith("numpy==") for each in before["packages"])
    monkeypatch.syspath_prepend(str(tmp_path))
    assert unchanged.machine.__wrapped__() == before
