"""A fork gets its own address by the lines in CONTRIBUTING.md; the workflow runs the same lines."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import zipfile
from collections.abc import Iterator
from pathlib import Path

import pytest
import yaml
from bs4 import BeautifulSoup

from copies import checkout, copy_with_environment
from exercises.sets import RELEASE, source_text
from tools import ROOT

OWN = yaml.safe_load((ROOT / "_config.yml").read_text(encoding="utf-8"))
HOME, BASE = OWN["repository"]["url"], OWN["html"]["baseurl"]
NAME, PLACE = HOME.removeprefix("https://github.com/"), BASE.removeprefix("https://").rstrip("/")
REPOSITORY, SITE = "Ada-L/notes.on_order", "ada-l.github.io/notes.on_order"
SHOWN = (ROOT / "CONTRIBUTING.md").read_text(encoding="utf-8").split("## Fork the course\n")[1]
FIRST, *LINES = SHOWN.split("```")[1].strip().splitlines()
JOBS = yaml.safe_load((ROOT / ".github/workflows/pages.yml").read_text(encoding="utf-8"))["jobs"]
# Pages of every kind: with an invitation to a set, with downloads, with the address as text.
CONTENTS = {
    "format": "jb-book",
    "root": "book/00_intro",
    "chapters": [{"file": f"book/{name}"} for name in ("05_shaw", "exercises", "run")],
}
BUILD = """from tools import build, publish
assert build.sphinx('html') == 0
publish.publish(build.SITE)
"""


def run(command: list[str], folder: Path, **given: str) -> str:
    """Run a command in a copy of the project; return what it printed."""
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True,
                          env=os.environ | {"PYTHONPATH": str(folder)} | given)  # fmt: skip
    assert done.returncode == 0, (done.stdout + done.stderr)[-3000:]
    return done.stdout


@pytest.fixture(scope="module")
def forked(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A clone after the lines, with some pages built."""
    clone = copy_with_environment(tmp_path_factory.mktemp("fork"))
    assert FIRST == "repository=ada/notes site=ada.github.io/notes"
    for stamp in (clone / ".venv").glob(".*-ready"):
        os.utime(stamp, (2**32, 2**32))  # newer than what the lines write: nothing is installed
    own = "\n".join([f"repository={REPOSITORY} site={SITE}", *LINES])
    run(["sh", "-ec", f"git init -q && git add .\n{own}"], clone)
    (clone / "_toc.yml").write_text(yaml.safe_dump(CONTENTS), encoding="utf-8")
    run([sys.executable, "-c", BUILD], clone)
    return clone


def contents(path: Path) -> Iterator[bytes]:
    """Yield what a file holds; of an archive, what is packed in it."""
    if zipfile.is_zipfile(path):
        with zipfile.ZipFile(path) as archive:
            yield from map(archive.read, archive.namelist())
    else:
        yield path.read_bytes()


def test_no_file_and_nothing_built_names_the_old_address(forked: Path) -> None:
    old = re.compile(f"{re.escape(NAME)}|{re.escape(PLACE)}".encode(), re.IGNORECASE)
    assert sum(bool(old.search(path.read_bytes())) for path in checkout()) > 50
    kept = [forked / path.relative_to(ROOT) for path in checkout()]
    built = [path for path in (forked / "_build").rglob("*") if path.is_file()]
    named = [path for path in [*kept, *built] if any(map(old.search, contents(path)))]
    assert named == []
    assert run(["git", "ls-files", "--others", "--exclude-standard"], forked) == ""


def test_links_of_every_kind_lead_to_the_fork(forked: Path) -> None:
    html = forked / "_build/html"
    home, site = f"https://github.com/{REPOSITORY}", f"https://{SITE}/"
    page, run_page = (
        BeautifulSoup((html / f"book/{name}.html").read_text(encoding="utf-8"), "html.parser")
        for name in ("05_shaw", "run")
    )
    links = {link["href"] for link in page.select("a[href]")}
    for path in ("book/05_shaw.ipynb", "exercises/release/05_shaw/05_shaw.ipynb"):
        colab = f"https://colab.research.google.com/github/{REPOSITORY}/blob/main/{path}"
        binder = f"https://mybinder.org/v2/gh/{REPOSITORY}/main?urlpath=lab/tree/{path}"
        assert {colab, binder} <= links
    assert {home, f"{home}/issues/new"} <= {link.partition("?")[0] for link in links}
    assert page.select_one('[rel="canonical"]')["href"] == f"{site}book/05_shaw.html"
    assert page.select_one('[property="og:url"]')["content"] == f"{site}book/05_shaw.html"
    assert run_page.select_one(f'[href="{home}/edit/main/book/run.md"]')
    assert f"git clone {home} course" in run_page.get_text()
    for name in ("sitemap.xml", "robots.txt", "404.html"):
        assert site in (html / name).read_text(encoding="utf-8")
    assert 'href="/notes.on_order/_static/' in (html / "404.html").read_text(encoding="utf-8")
    archive, checks = f'"{home}/archive/refs/heads/main.zip"', f'"{site}checks.zip"'
    for path, named in [
        (html / "_sources/book/05_shaw.ipynb", archive),
        (forked / "exercises/release/05_shaw/05_shaw.ipynb", checks),
        (forked / "exercises/release/exercises.zip", checks),
        (next(html.glob("_downloads/*/05_shaw.ipynb")), checks),
        (next(html.glob("_downloads/*/exercises.zip")), checks),
        (forked / "exercises/projects/relative.ipynb", checks),
    ]:
        assert json.dumps(named)[1:-1].encode() in b"".join(contents(path)), path


@pytest.mark.parametrize(
    ("repository", "site"),
    [
        ("Ada-L/notes.On", "ada-l.github.io/notes.On"),
        ("Some-Group/Some-Group.github.io", "some-group.github.io"),
    ],
)
def test_the_workflow_runs_the_same_lines_in_a_fork(repository: str, site: str) -> None:
    steps = JOBS["test"]["steps"]
    (place,) = (i for i, step in enumerate(steps) if "sed" in step.get("run", ""))
    assert steps[place]["if"] == f"github.repository != '{NAME}'"
    assert "make book" in [step.get("run") for step in steps[place:]]
    *before, _, _, _, _ = lines = steps[place]["run"].splitlines()
    assert lines[len(before) :] == LINES
    said = run(
        ["bash", "-ec", "\n".join([*before, 'echo "$repository $site"'])],
        ROOT, GITHUB_REPOSITORY=repository,
    )  # fmt: skip
    assert said == f"{repository} {site}\n"


def test_what_is_handed_out_as_it_stands_names_the_site() -> None:
    for path in RELEASE.glob("*/*.ipynb"):
        cells = json.loads(path.read_text(encoding="utf-8"))["cells"]
        first = next(source_text(cell) for cell in cells if cell["cell_type"] == "code")
        assert f'"{BASE}checks.zip"' in first, path
        assert BASE.startswith("https://")


def test_no_file_has_a_place_for_an_address() -> None:
    search = ["git", "grep", "-IhoE", "@[A-Z]+@"]
    assert {*run(search, ROOT).split()} == {"@COURSE@"}  # of submissions, where the test puts them
