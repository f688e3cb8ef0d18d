"""The commands: refreshing, vendoring, building, describing."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace

import nbformat
import pytest
from nbformat.v4 import new_code_cell, new_notebook, new_output

from browsing import serve, toc_pages
from tools import ROOT, build, refresh, vendor

CELLS = (
    "import random, ipywidgets as widgets",
    "print('same', 'again', 0.5)",
    "widgets.VBox([widgets.IntSlider(description='x'), widgets.HTML('<b>y</b>')])",
)


@pytest.fixture(scope="module")
def refreshed(tmp_path_factory):
    """A book whose notebook was refreshed twice: its folder, and its files after each time."""
    folder = tmp_path_factory.mktemp("book")
    cells = [new_code_cell(source, id=f"cell-{i}") for i, source in enumerate(CELLS)]
    nbformat.write(new_notebook(cells=cells), folder / "a.ipynb")
    files = [folder / "a.ipynb", folder / "data" / "runtimes.json"]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(refresh, "BOOK", folder)
        patch.setattr(refresh, "RUNTIMES", files[1])
        after = []
        for _ in range(2):
            assert refresh.main(["a"]) == 0
            after.append([path.read_bytes() for path in files])
    return folder, after


@pytest.fixture
def book(tmp_path, monkeypatch, refreshed):
    """A copy of that book, to be changed."""
    folder = tmp_path / "book"
    shutil.copytree(refreshed[0], folder)
    monkeypatch.setattr(refresh, "BOOK", folder)
    monkeypatch.setattr(refresh, "RUNTIMES", folder / "data" / "runtimes.json")
    return folder


def test_a_second_refresh_changes_no_byte(refreshed):
    _, (first, second) = refreshed
    assert first == second


def test_a_path_of_this_computer_is_found_whatever_its_letters(monkeypatch):
    monkeypatch.setattr(refresh, "ROOT", Path("/home/jörg"))
    said = new_output("stream", name="stdout", text="/home/jörg/course")
    stored = new_notebook(cells=[new_code_cell("print()", id="x", outputs=[said])])
    assert list(refresh.complaints(stored)) == ["cell 0 (x) prints a path of this computer"]


def write_book_notebook(book, name, source):
    path = book / f"{name}.ipynb"
    nbformat.write(new_notebook(cells=[new_code_cell(source, id="x")]), path)
    return path


def test_a_cell_that_stops_is_reported(book):
    write_book_notebook(book, "b", "1 / 0")
    assert refresh.main(["b"]) == 1


def test_a_kernel_that_dies_or_hangs_costs_no_other_notebook(book, capsys, monkeypatch):
    monkeypatch.setattr(refresh, "CELL_TIMEOUT", 5)
    write_book_notebook(book, "b", "import os; os.kill(os.getpid(), 9)")
    write_book_notebook(book, "c", "import time; time.sleep(600)")
    assert refresh.main(["b", "c", "a"]) == 1
    said = capsys.readouterr().out
    assert "stopped: DeadKernelError" in said and "stopped: CellTimeoutError" in said
    assert "a: ok\n" in said and said.endswith("not stored: b, c\n")


def test_an_edit_that_is_saved_while_the_notebook_runs_is_kept(book, capsys, monkeypatch):
    path = write_book_notebook(book, "b", "print(1)")
    edited = path.read_text().replace("print(1)", "print(2)")
    execute = refresh.execute
    monkeypatch.setattr(
        refresh, "execute", lambda path: (execute(path), path.write_text(edited))[0]
    )
    assert refresh.main(["b"]) == 1
    assert path.read_text() == edited
    assert "changed while it ran" in capsys.readouterr().out
    assert "b" not in json.loads(refresh.RUNTIMES.read_text())


@pytest.mark.parametrize(
    ("source", "words"),
    [
        ("import warnings; warnings.warn('beware')", "warns: "),
        (f"print({str(ROOT)!r})", "prints a path of this computer"),
    ],
)
def test_what_must_not_be_stored_is_not_stored(book, source, words, capsys):
    path = write_book_notebook(book, "b", source)
    before = path.read_bytes()
    assert refresh.main(["b"]) == 1
    assert path.read_bytes() == before
    said = capsys.readouterr().out
    assert words in said and said.endswith("not stored: b\n")


def test_a_package_that_is_not_the_pinned_one_is_refused(tmp_path, monkeypatch):
    def pack(command, cwd, **options):
        (cwd / "x-1.tgz").write_bytes(b"something else")
        return SimpleNamespace(returncode=0, stderr="")

    monkeypatch.setattr(shutil, "which", lambda name: f"/bin/{name}")
    monkeypatch.setattr(vendor.subprocess, "run", pack)
    with pytest.raises(vendor.VendorError, match="not the file that was pinned"):
        vendor.vendor(vendor.SITE, tmp_path)
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize(
    ("folder", "why"), [("", "npm is not installed"), ("file/inside", "Not a directory")]
)
def test_without_npm_or_room_the_build_goes_on_and_says_so(
    monkeypatch, tmp_path, capsys, folder, why
):
    (tmp_path / "file").touch()
    monkeypatch.setattr(shutil, "which", lambda name: None)
    monkeypatch.setattr(build.vendor.vendor, "__defaults__", (vendor.SITE, tmp_path / folder))
    build.bring_assets()
    said = capsys.readouterr().out
    assert why in said and "cdn.jsdelivr.net" in said


MATHJAX = """exports.init = async () => ({
  startup: { adaptor: { outerHTML: String, textContent: String } },
  tex2chtml: String, chtmlStylesheet: String,
});
"""  # what of it is called, for an environment that has Node and no npm


def test_pages_load_mathjax_only_where_formulas_cannot_be_set(monkeypatch, tmp_path):
    sys.path.insert(0, str(ROOT / "book" / "_ext"))
    from course import pages

    def scripts(body):
        context = {"body": body, "script_files": [config.mathjax_path, "_static/course.js"]}
        pages.finish_page(app, "book/page", "page.html", context, None)
        return context["script_files"]

    config = SimpleNamespace(html_baseurl="", html_static_path=[], root_doc="")
    app = SimpleNamespace(config=config)
    pages.choose_assets(None, config)
    assert config.nb_ipywidgets_js == {}
    formula = '<span class="math notranslate nohighlight">\\(x\\)</span>'
    monkeypatch.setattr(vendor, "SITE_ASSETS", tmp_path)
    assert re.match(r"https://.*@\d+\.\d+\.\d+/", scripts(formula)[0])
    assert scripts("<p>words</p>") == ["_static/course.js"]
    if shutil.which("node"):
        (tmp_path / "mathjax" / "es5").mkdir(parents=True)
        (tmp_path / "mathjax" / "VERSION").write_text(vendor.stamp(vendor.SITE[0]))
        (tmp_path / "mathjax" / "es5" / "node-main.js").write_text(MATHJAX)
        assert scripts(formula) == ["_static/course.js"]
        monkeypatch.setattr(shutil, "which", lambda name: None)
        assert len(scripts(formula)) == 2


def test_a_comma_stays_behind_the_formula_that_it_follows(monkeypatch):
    """However many there are in a sentence."""
    monkeypatch.syspath_prepend(str(ROOT / "book" / "_ext"))
    from course import typography
    from docutils.core import publish_doctree

    words = publish_doctree("``q``, :math:`(L)`, ``k``, :math:`(M)`, and :math:`(N)`, :math:`d`.")
    typography.keep_together(None, words)
    assert words.astext() == "q, (L), k, (M), and (N), d."


def test_on_paper_a_title_is_words_and_no_markup(monkeypatch):
    monkeypatch.syspath_prepend(str(ROOT / "book/_ext"))
    from course import typography

    typography.texescape.init()  # as Sphinx does
    documents = [("book/00_intro", "course.tex", "A & B_1", "an author", "manual")]
    config = SimpleNamespace(latex_documents=documents, latex_engine="xelatex")
    typography.write_title(SimpleNamespace(config=config), None)
    assert config.latex_documents == [(*documents[0][:2], r"A \& B\_1", *documents[0][3:])]


def test_the_link_report_names_what_does_not_answer(tmp_path, monkeypatch, capfd):
    site = tmp_path / "site"
    site.mkdir()
    (site / "here.html").write_text("a page")
    server, home = serve(site)
    links = f"[one]({home}here.html) and [two]({home}gone.html)"
    (tmp_path / "index.md").write_text(f"# Links\n\n{links}\n")
    (tmp_path / "_toc.yml").write_text("format: jb-book\nroot: index\n")
    (tmp_path / "_config.yml").write_text("title: Links\nexclude_patterns: [site]\n")
    monkeypatch.setattr(build, "ROOT", tmp_path)
    monkeypatch.setattr(build, "SITE", tmp_path / "_build" / "html")
    monkeypatch.setattr(build, "DOCTREES", tmp_path / "_build" / ".doctrees")
    monkeypatch.setattr(build, "LINKS", tmp_path / "_build" / "linkcheck" / "output.txt")
    assert build.check_links() == 1
    server.shutdown()
    said = capfd.readouterr().out
    assert "1 links do not answer" in said
    named = said.split("\n\n")[-2]
    assert "gone.html" in named and "here.html" not in named
    assert not (tmp_path / "_build" / "html").exists()


def test_a_link_to_the_site_shows_what_its_first_page_says_and_every_page_is_on_the_map(
    tmp_path,
):
    (tmp_path / "book").mkdir()
    described = '<meta name="description" content="In order">'
    (tmp_path / "book/00_intro.html").write_text(f"<head>{described}</head>")
    (tmp_path / "book/10_rope.html").write_text("")
    build.publish.publish(tmp_path)
    base = "https://positional-encodings.github.io/course/"
    assert described in (tmp_path / "index.html").read_text()
    site_map = (tmp_path / "sitemap.xml").read_text()
    assert f"<loc>{base}book/10_rope.html</loc>" in site_map
    assert f"Sitemap: {base}sitemap.xml" in (tmp_path / "robots.txt").read_text()


def test_the_map_dates_a_page_by_its_last_commit_and_only_where_history_is_whole(tmp_path):
    def git(*words, day=1):
        when = f"2024-01-0{day}T12:00:00+00:00"
        own = {
            "GIT_AUTHOR_DATE": when,
            "GIT_COMMITTER_DATE": when,
            "GIT_CONFIG_GLOBAL": "/dev/null",
        }
        options = ["-c", "user.name=Ada", "-c", "user.email=ada@example.org"]
        subprocess.run(["git", *options, *words], cwd=book.parent, check=True, env=os.environ | own)

    book = tmp_path / "first" / "book"
    book.mkdir(parents=True)
    git("init", "-q")
    for day, name, text in [
        (1, "one.md", "old"), (2, "one.md", "new"), (3, "two.ipynb", "{}"), (4, "data.json", "{}"),
        (5, "written.md", "The build of the site writes this page."),
        (6, "api.md", "<!-- modules: pe_lib -->"),
    ]:  # fmt: skip
        (book / name).write_text(text)
        git("add", ".")
        git("commit", "-qm", name, day=day)
    (book / "new.md").write_text("not yet committed")
    dates = {name: date[:10] for name, date in build.publish.changed(book.parent).items()}
    assert dates == {"one": "2024-01-02", "two": "2024-01-03"}
    rows = build.publish.site_map(["book/one.html", "book/new.html"], "https://a/", dates)
    assert "one.html</loc><lastmod>2024-01-02</lastmod></url>" in rows
    assert "new.html</loc></url>" in rows
    git("clone", "-q", "--depth", "1", book.parent.as_uri(), str(tmp_path / "shallow"))
    assert (tmp_path / "shallow/book/one.md").exists()
    assert build.publish.changed(tmp_path / "shallow") == {}


def test_an_archive_or_a_computer_without_git_has_no_dates(tmp_path, monkeypatch, capfd):
    (tmp_path / "book").mkdir()
    (tmp_path / "book/one.md").write_text("one")
    assert build.publish.changed(tmp_path) == {}
    monkeypatch.setenv("PATH", "")
    assert build.publish.changed(ROOT) == {}
    assert capfd.readouterr() == ("", "")


@pytest.fixture
def clone(tmp_path):
    """A folder with all that `make` needs for an environment, into which nothing is installed."""
    folder = tmp_path / "mein Kurs, über 'Köpfe'"
    folder.mkdir()
    needed = [ROOT / name for name in ("Makefile", "constraints.txt", "pyproject.toml")]
    for path in [*needed, *ROOT.glob("requirements*.txt")]:
        shutil.copy(path, folder)
    return folder


@pytest.mark.parametrize(
    ("command", "files"),
    [
        ("book", [""]),
        ("refresh", [""]),
        ("exercises", ["", "-grade"]),
        ("grade", ["", "-grade"]),
        ("test", ["", "-grade", "-test", "-bakeoff", "-alone"]),
    ],
)
def test_make_installs_what_the_command_needs(clone, command, files):
    dry = subprocess.run(["make", "-n", command], cwd=clone, capture_output=True, text=True)
    installed = re.findall(r"-r (\S+)", dry.stdout)
    assert installed == [f"requirements{name}.txt" for name in files], dry.stderr


def make_environment(folder, install="true", after=""):
    """Make an environment without pip, which takes long, and do then what stands in `after`."""
    python = folder / "python3"
    python.write_text(f"""#!/bin/sh
[ "$1" = -c ] && exec "{sys.executable}" "$@"
"{sys.executable}" "$@" --without-pip
{after}
""")
    python.chmod(0o755)
    command = ["make", ".venv/.book-ready", f"PIP={install}", "PYTHON=./python3"]
    place = os.environ | {"LC_ALL": "C"}
    return subprocess.run(command, cwd=folder, env=place, capture_output=True, text=True)


def test_an_environment_that_is_half_made_is_completed(clone):
    """As Debian leaves it without python3-venv: with a Python, without pip."""
    first = make_environment(clone, after="exit 1")
    assert first.returncode != 0 and "sudo apt install python3-venv" in first.stdout
    assert (clone / ".venv/bin/python").exists()
    second = make_environment(clone, install="false", after=".venv/bin/python -m ensurepip")
    assert second.returncode != 0 and "Successfully installed pip" in second.stdout
    third = make_environment(clone)  # what could not be installed is installed now
    assert third.returncode == 0 and "true  -r requirements.txt" in third.stdout


def test_an_environment_that_was_moved_or_lost_its_python_is_made_anew(clone):
    assert make_environment(clone).returncode == 0
    assert "up to date" in make_environment(clone).stdout
    moved = clone.rename(clone.with_name("another place"))
    assert "true  -r requirements.txt" in make_environment(moved).stdout
    assert str(moved) in (moved / ".venv/bin/activate").read_text()
    assert "up to date" in make_environment(moved).stdout
    for python in moved.glob(".venv/bin/python*"):
        python.unlink()
        python.symlink_to("/no/python")
    assert "true  -r requirements.txt" in make_environment(moved).stdout
    assert (moved / ".venv/bin/python").exists()


def test_python_finds_the_course_whatever_letters_its_folder_and_the_locale_have():
    """An absolute path beyond ASCII would stop each Python of the environment where LC_ALL=C."""
    (found,) = (ROOT / ".venv").glob("[Ll]ib/**/site-packages/__editable__*.pth")
    assert not Path(found.read_text().strip()).is_absolute()
    assert (found.parent / found.read_text().strip()).resolve() == ROOT


def test_every_page_of_the_contents_exists():
    files = toc_pages()
    for name in files:
        assert any((ROOT / f"{name}{suffix}").exists() for suffix in (".ipynb", ".md")), name
    written = {f"book/{p.stem}" for s in ("ipynb", "md") for p in (ROOT / "book").glob(f"*.{s}")}
    assert written == set(files)


def test_every_requirement_is_pinned():
    """And says what needs it."""
    for path in ROOT.glob("requirements*.txt"):
        for line in path.read_text().splitlines():
            if not line.startswith("#"):
                assert re.fullmatch(r"[\w.-]+==[\w.]+  # .+", line), line


def test_the_environment_of_binder_is_one_that_repo2docker_reads(tmp_path):
    command = [sys.executable, "-m", "repo2docker", "--no-build", "--debug", str(ROOT)]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr[-2000:]
