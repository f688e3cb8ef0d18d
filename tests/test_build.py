"""What has changed is built again, and gives the site that a build from nothing gives."""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from test_guards import make_book

from tools import ROOT, build

FIRST = """# The first page

With a word, ipsum, a formula, $x^2$, and a link: [](second.md).
"""
SECOND = """# The second page

With a word, dolor, a formula, $\\sum_i y_i$, and a link: [](00_intro.md).
"""
VERSION = re.compile(r"\?v=\w+")  # of a style sheet


@pytest.fixture
def book(tmp_path: Path) -> Path:
    make_book(tmp_path, {"00_intro.md": FIRST, "second.md": SECOND})
    (tmp_path / "exercises").mkdir()
    shutil.copy(ROOT / "exercises/bring.py", tmp_path / "exercises")
    return tmp_path


def run(book: Path) -> dict[str, str]:
    """Build the book; return the text of each page and script."""
    command = [sys.executable, "-m", "tools.build"]
    done = subprocess.run(command, cwd=book, capture_output=True, text=True)
    site = book / "_build/html"
    assert "Traceback" not in done.stdout + done.stderr, done.stdout + done.stderr
    names = [*site.glob("book/*.html"), site / "genindex.html", site / "_static/uses.js"]
    return {path.name: VERSION.sub("", path.read_text(encoding="utf-8")) for path in names}


def test_a_changed_page_is_written_alone(book: Path) -> None:
    run(book)
    other = book / "_build/html/book/second.html"
    before = other.stat().st_mtime_ns
    (book / "book/00_intro.md").write_text(FIRST.replace("ipsum", "lorem"))
    pages = run(book)
    assert "lorem" in pages["00_intro.html"] and other.stat().st_mtime_ns == before
    assert '"lorem"' in pages["uses.js"] and '"dolor"' in pages["uses.js"]  # the search knows both
    (book / "book/00_intro.md").write_text(FIRST.replace("The first", "A new first"))
    pages = run(book)
    assert "A new first page" in pages["second.html"]  # what others show of a page follows
    build_anew(book)
    assert run(book) == pages


def build_anew(book: Path) -> None:
    """Let the next build begin from nothing."""
    (book / "_build/html/.sources.json").unlink()


@pytest.fixture
def builds(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> list[bool]:
    """Stand-ins for Sphinx and what follows; for each build, whether it began from nothing."""
    began: list[bool] = []

    def sphinx(*_: str) -> int:
        began.append(not build.SITE.exists())
        build.SITE.mkdir(parents=True, exist_ok=True)
        return int("broken" in (tmp_path / "book/page.md").read_text())

    (tmp_path / "book").mkdir()
    (tmp_path / "book/page.md").write_text("one")
    (tmp_path / "library.py").write_text("one")
    for name, value in {
        "ROOT": tmp_path, "SITE": tmp_path / "_build/html", "DOCTREES": tmp_path / "_build/trees",
        "bring_assets": lambda: None, "sphinx": sphinx,
    }.items():  # fmt: skip
        monkeypatch.setattr(build, name, value)
    monkeypatch.setattr(build.publish, "publish", lambda _: None)
    return began


def test_only_a_page_is_built_alone(builds: list[bool]) -> None:
    for name, words, began in [
        ("book/page.md", "one", [True]),
        ("book/page.md", "three", [False]),  # a page alone
        ("library.py", "three", [True]),  # all else may change any page
        ("book/page.md", "broken", [False, True]),  # a failed build counts as none
        ("book/page.md", "one", [True]),
    ]:
        (build.ROOT / name).write_text(words)
        builds.clear()
        assert build.build_site() == build.build_site() == int(words == "broken")
        assert builds == began, (name, words)


FOLDED = """# A page

<details>
<summary>Hint, the <i>first</i></summary>

With words.

</details>

$$
x &= y \\\\\\\\
  &= z
\\tag{1.1}
$$
"""


def test_paper_has_the_titles_of_folds_and_the_numbers_of_formulas(book: Path) -> None:
    (book / "book/00_intro.md").write_text(FOLDED)
    command = [sys.executable, "-c", "from tools.build import sphinx; sphinx('latex')"]
    done = subprocess.run(command, cwd=book, capture_output=True, text=True)
    (written,) = (book / "_build/latex").glob("*.tex")
    text = written.read_text(encoding="utf-8")
    assert "Hint, the first" in text, done.stdout + done.stderr
    assert r"\end{split}\tag{1.1}\end{equation*}" in text
