"""The course's address and title stand in one file: a fork has its own by one command."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import zipfile
from pathlib import Path
from types import SimpleNamespace

import pytest
import yaml
from bs4 import BeautifulSoup

from copies import checkout, copy_with_environment
from tools import ROOT, address, fork, refresh

OWN = address.stored()
REPOSITORY, TITLE = "Ada-L/notes.on_order", r'Wörter & "Orte": a \1 course'
SITE = "https://ada-l.github.io/notes.on_order/"
# Pages of every kind: with an invitation to a set, with downloads, with the address as text.
CONTENTS = {
    "format": "jb-book",
    "root": "book/00_intro",
    "chapters": [{"file": f"book/{name}"} for name in ("05_shaw", "exercises", "run")],
}
BUILD = """from tools import build, publish
build.forget()
build.sphinx('html')
publish.publish(build.SITE)
"""


def naming(at: address.Address, folder: Path, paths: list[Path]) -> set[str]:
    """Return which files name an address, or its title if that is no common phrase."""
    names = [at.repository, at.site.rstrip("/"), f"/{at.name}/blob/", f"gh/{at.name}/"]
    title = f"|{re.escape(at.title)}" * (len(at.title) > 30)
    form = re.compile(f"(?i:{'|'.join(map(re.escape, names))}){title}".encode())
    return {str(path.relative_to(folder)) for path in paths if form.search(path.read_bytes())}


def run(command: list[str], folder: Path, **actions: str) -> subprocess.CompletedProcess[str]:
    """Run a command in a copy of the project, in GitHub Actions only if that is said."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith("GITHUB_")}
    given = kept | {"PYTHONPATH": str(folder)} | actions
    return subprocess.run(command, cwd=folder, capture_output=True, text=True, env=given)


@pytest.fixture(scope="module")
def forked(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A copy of the checkout after the one command."""
    copy = copy_with_environment(tmp_path_factory.mktemp("fork"))
    done = run(["make", "fork", f"REPO={REPOSITORY}", f"TITLE={TITLE}"], copy)
    assert done.returncode == 0, done.stderr
    return copy


def build(folder: Path, **actions: str) -> list[Path]:
    """Build some pages in a copy of the project; all files that were made."""
    (folder / "_toc.yml").write_text(yaml.safe_dump(CONTENTS), encoding="utf-8")
    done = run([sys.executable, "-c", BUILD], folder, **actions)
    assert done.returncode == 0, (done.stdout + done.stderr)[-3000:]
    return [path for path in (folder / "_build").rglob("*") if path.is_file()]


def read(page: Path) -> BeautifulSoup:
    return BeautifulSoup(page.read_text(encoding="utf-8"), "html.parser")


def require_links(folder: Path, repository: str, site: str) -> None:
    """Assert that links of every kind lead to a repository and to its site."""
    html, notebooks = folder / "_build/html", folder / "_build/notebooks"
    page, run_page = (read(html / f"book/{name}.html") for name in ("05_shaw", "run"))
    links = {link["href"] for link in page.select("a[href]")}
    for path in ("book/05_shaw.ipynb", "exercises/release/05_shaw/05_shaw.ipynb"):
        colab = "https://colab.research.google.com/github"
        assert f"{colab}/{repository}/blob/notebooks/{path}" in links
        assert f"https://mybinder.org/v2/gh/{repository}/main?urlpath=lab/tree/{path}" in links
        assert (notebooks / path).exists()
    home = f"https://github.com/{repository}"
    assert {home, f"{home}/issues/new"} <= {link.partition("?")[0] for link in links}
    assert page.select_one('[rel="canonical"]')["href"] == f"{site}book/05_shaw.html"
    assert page.select_one('[property="og:url"]')["content"] == f"{site}book/05_shaw.html"
    assert run_page.select_one(f'[href="{home}/edit/main/book/run.md"]')
    assert f"git clone {home} course" in run_page.get_text()
    for name in ("sitemap.xml", "robots.txt", "404.html"):
        assert site in (html / name).read_text(encoding="utf-8")
    clone, checks = f'repository = \\"{home}\\"', f'\\"{site}checks.zip\\"'
    for downloads in (html / "_sources", notebooks):
        assert clone in (downloads / "book/05_shaw.ipynb").read_text(encoding="utf-8")
    (release,) = html.glob("_downloads/*/05_shaw.ipynb")
    (every,) = html.glob("_downloads/*/exercises.zip")
    inside = zipfile.ZipFile(every).read("exercises/05_shaw.ipynb").decode()
    kept = (notebooks / "exercises/release/05_shaw/05_shaw.ipynb").read_text(encoding="utf-8")
    assert checks in release.read_text(encoding="utf-8") == inside == kept
    assert checks in (notebooks / "exercises/projects/relative.ipynb").read_text(encoding="utf-8")


def test_only_the_copies_name_the_address_and_they_name_what_the_source_says() -> None:
    found = naming(OWN, ROOT, checkout())
    assert {"_config.yml", "README.md", "CITATION.cff"} <= found <= set(fork.COPIES)
    for name in fork.COPIES:
        text = (ROOT / name).read_text(encoding="utf-8")
        assert fork.rewritten(name, text, OWN, OWN) == text, name


def test_one_command_gives_a_fork_its_own_address_and_title(forked: Path) -> None:
    """No file and no page has the old one; the title may hold what files give a meaning."""
    paths = [forked / path.relative_to(ROOT) for path in checkout()]
    assert naming(OWN, forked, paths) == set()
    at = address.stored(forked / "_config.yml")
    assert (at.name, at.site, at.title) == (REPOSITORY, SITE, TITLE)
    cited = yaml.safe_load((forked / "CITATION.cff").read_text(encoding="utf-8"))
    assert (cited["title"], cited["repository-code"]) == (TITLE, at.repository)
    readme = (forked / "README.md").read_text(encoding="utf-8")
    assert readme.startswith(f"# {TITLE}\n") and f"<{SITE}>" in readme
    first = json.loads((forked / "book/00_intro.ipynb").read_text(encoding="utf-8"))["cells"][0]
    assert first["source"][0] == f"# {TITLE}\n"

    made = build(forked)
    assert naming(OWN, forked, made) == set()
    require_links(forked, REPOSITORY, SITE)
    for name in ("index.html", "book/run.html"):
        page = read(forked / "_build/html" / name)
        assert TITLE in page.title.text
    assert page.select_one(".logo__title").text == TITLE
    assert page.select_one('[property="og:site_name"]')["content"] == TITLE
    assert TITLE in page.get_text().split("@software")[1]


def test_in_github_actions_a_fork_of_a_fork_publishes_itself(forked: Path) -> None:
    """With nothing changed in it, and as the site of its owner."""
    name = "Some-Group/some-group.github.io"
    made = build(forked, GITHUB_ACTIONS="true", GITHUB_REPOSITORY=name)
    assert naming(address.stored(forked / "_config.yml"), forked, made) == set()
    require_links(forked, name, "https://some-group.github.io/")


def test_on_paper_a_title_is_words_and_no_markup(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(str(ROOT / "book/_ext"))
    from course import addresses

    addresses.texescape.init()  # as Sphinx does
    documents = [("book/00_intro", "course.tex", "A & B_1", "an author", "manual")]
    config = SimpleNamespace(latex_documents=documents, latex_engine="xelatex")
    addresses.write_title(SimpleNamespace(config=config), None)
    assert config.latex_documents == [(*documents[0][:2], r"A \& B\_1", *documents[0][3:])]


@pytest.mark.parametrize(
    ("environment", "site"),
    [
        ({}, OWN.site),
        ({"GITHUB_REPOSITORY": "bo/notes"}, OWN.site),  # not in Actions
        ({"GITHUB_ACTIONS": "true", "GITHUB_REPOSITORY": OWN.name.upper()}, OWN.site),
        (
            {"GITHUB_ACTIONS": "true", "GITHUB_REPOSITORY": "Bo/No.tes"},
            "https://bo.github.io/No.tes/",
        ),
    ],
)
def test_only_in_the_actions_of_a_fork_the_address_is_not_the_stored_one(
    environment: dict[str, str], site: str
) -> None:
    assert address.current(environment=environment).site == site


@pytest.mark.parametrize(
    ("repository", "title", "site", "said"),
    [
        ("", "", "", "REPO must be owner/name as on GitHub, such as ada/notes; got ''"),
        ("notes", "", "", "REPO must be .*; got 'notes'"),
        ("https://github.com/ada/notes", "", "", "REPO must be .*; got 'https"),
        ("ada/notes.git", "", "", "REPO must be"),
        ("ada/..", "", "", "REPO must be"),
        ("-a/b", "", "", "REPO must be"),
        ("ada/my notes", "", "", "REPO must be"),
        ("ada/notes\n", "", "", "REPO must be"),
        ("ada/notes", "two\nlines", "", "TITLE must be one line without an @; got 'two"),
        ("ada/notes", "", "notes.example", "SITE must be an address with https://.*; got 'notes"),
    ],
)
def test_what_cannot_be_an_address_is_refused(
    repository: str, title: str, site: str, said: str
) -> None:
    with pytest.raises(fork.ForkError, match=said):
        fork.moved(OWN, repository, title, site)


def test_a_fork_may_have_a_domain_of_its_own() -> None:
    assert (
        fork.moved(OWN, "ada/notes", "", "https://notes.example").site == "https://notes.example/"
    )
    assert fork.moved(OWN, "Ada/ada.github.io", "", "").site == "https://ada.github.io/"


def test_in_colab_a_copy_without_the_address_says_where_to_open_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setitem(sys.modules, "google.colab", sys)
    first = re.split(r"\n    !", refresh.COLAB)[0]
    with pytest.raises(RuntimeError, match="Open this notebook from the course's site"):
        exec(first)
    exec(OWN.filled(first))
