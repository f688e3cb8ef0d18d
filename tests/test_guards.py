"""The guards guard: each is shown something wrong, and must say so."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from xml.etree import ElementTree

import nbformat
import pytest
import yaml
from nbformat.v4 import new_code_cell, new_markdown_cell, new_notebook

import browsing
from browsing import Seen, Visit, serve, visit_page
from tools import ROOT, refresh

SLIDER = """
import io
import ipywidgets as widgets
from PIL import Image
def frame(grey):
    data = io.BytesIO()
    Image.new("L", (40, 30), grey).save(data, "PNG")
    return widgets.Image(value=data.getvalue())
slider = widgets.IntSlider(min=0, max=2, description="step")
stack = widgets.Stack([frame(60), frame(140), frame(220)], selected_index=0)
{link}
widgets.VBox([slider, stack])
"""
LINK = 'widgets.jslink((slider, "value"), (stack, "selected_index"))'


def notebook_of(*sources: str):
    return new_notebook(
        cells=[new_code_cell(source, id=f"cell-{i}") for i, source in enumerate(sources)],
        metadata={"kernelspec": dict(refresh.KERNELSPEC), "language_info": {"name": "python"}},
    )


# One notebook as a refresh stores it, a copy in which every kind of output is wrong, and one run
# of both -----------------------------------------------------------------------------------------

DRAW = """
from IPython.display import Image, display
from PIL import ImageDraw, Image as Picture
import io
picture, data = Picture.new("RGB", (200, 100), "white"), io.BytesIO()
ImageDraw.Draw(picture).line((0, 0, 200, 100), fill="black", width=3)
picture.save(data, "PNG")
display(Image(data.getvalue()))
"""
NEAR = "print('loss', 0.69315, 'after 40 steps')"
# What a cell computes, and what the spoilt copy computes instead.
CELLS = {
    "text": ("print(1 + 1)", "print(1 + 2)"),
    "picture": (DRAW, DRAW.replace("200, 100), fill", "200, 50), fill")),
    "slider": (SLIDER.format(link=LINK), SLIDER.format(link=LINK).replace("(140)", "(30)")),
    "digit": (NEAR, NEAR.replace("0.69315", "0.69316")),
}
Outcomes = dict[tuple[str, str], tuple[str, str]]


@pytest.fixture(scope="module")
def outcomes(tmp_path_factory) -> Outcomes:
    """Run both notebooks once; outcome and words of each test."""
    folder = tmp_path_factory.mktemp("nbval")
    notebook = notebook_of(*(right for right, _ in CELLS.values()))
    nbformat.write(notebook, folder / "sound.ipynb")
    notebook = refresh.execute(folder / "sound.ipynb")
    nbformat.write(notebook, folder / "sound.ipynb")
    for cell, (_, wrong) in zip(notebook.cells[1:], CELLS.values(), strict=True):
        cell.source = wrong
    nbformat.write(notebook, folder / "spoilt.ipynb")
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "--nbval"]
    command += ["--nbval-current-env", "-p", "tools.nbval_pictures", "--junit-xml=report.xml"]
    command += [f"--rootdir={folder}", "."]
    environment = os.environ | {"PYTHONPATH": str(ROOT)}
    subprocess.run(command, cwd=folder, capture_output=True, env=environment)
    found = {}
    for case in ElementTree.parse(folder / "report.xml").iter("testcase"):
        failure = case.find("failure")
        words = "" if failure is None else str(failure.text)
        outcome = "passed" if failure is None else "failed"
        found[case.get("classname").split(".")[0], case.get("name")] = (outcome, words)
    return found


def test_the_whole_run_sees_pictures_and_sliders_too(outcomes):
    assert outcomes["sound", "pictures and widgets"][0] == "passed"
    outcome, words = outcomes["spoilt", "pictures and widgets"]
    assert outcome == "failed"
    assert re.search(r"cell-1 .*pixels differ", words)
    assert re.search(r"metadata .* buffers .*pixels differ", words)  # a frame of the slider
    blamed = set(re.findall(r"cell cell-(\d) ", words))
    assert blamed == {str(list(CELLS).index(name)) for name in ("text", "picture", "digit")}


# A small book of its own, with the settings of the real one -------------------------------------


def make_book(folder: Path, pages: dict[str, object]) -> None:
    """Write a book with our configuration and other pages."""
    for name in ("_config.yml", "book/_ext", "book/_templates", "book/assets", "tools", "pe_lib"):
        source, target = ROOT / name, folder / name
        target.parent.mkdir(parents=True, exist_ok=True)
        shutil.copytree(source, target) if source.is_dir() else shutil.copy(source, target)
    if (ROOT / "book/_vendor").exists():
        (folder / "book/_vendor").symlink_to(ROOT / "book/_vendor")
    (folder / "book/references.bib").write_text("")
    for name, content in pages.items():
        path = folder / "book" / name
        if isinstance(content, str):
            path.write_text(content, encoding="utf-8")
        else:
            nbformat.write(content, path)
    first, *others = [f"book/{Path(name).stem}" for name in pages]
    toc = {"format": "jb-book", "root": first, "chapters": [{"file": name} for name in others]}
    (folder / "_toc.yml").write_text(yaml.safe_dump(toc))


# As chapters have them.
MOVING = """
import base64, io
import ipywidgets as widgets
from PIL import Image
from pe_course.page import explore
from pe_course.page.figures import Picture
def drawn(grey):
    data = io.BytesIO()
    Image.new("L", (40, 30), grey).save(data, "PNG")
    words = f"a square of grey {{grey}}, and nothing else"
    return Picture(base64.b64encode(data.getvalue()).decode(), words, 40, 30)
frames = [drawn(grey) for grey in {greys}]
control = explore.named_slider("{name}", "abc", 0)
stack = explore.linked_stack([explore.frame(each) for each in frames], control)
explore.show(widgets.VBox([control, stack]), "A figure with a slider", frames[0])
"""
BROKEN = {
    "[here](#nowhere)": "'myst' cross-reference target not found: 'nowhere'",
    "[a page](no_such_page.ipynb)": "'myst' cross-reference target not found: 'no_such_page.ipynb'",
    "[a place](sliders.ipynb#nowhere)": "local id not found in doc 'book/sliders': 'nowhere'",
    "{cite:t}`nobody2020nothing`": 'could not find bibtex key "nobody2020nothing"',
    "{py:func}`pe_lib.sinusoidal.no_such_function`": "py:func reference target not found",
}
FAULTS = """
<script src="https://example.invalid/x.js"></script>
<script>throw new Error("broken on purpose")</script>
<article class="bd-main"><img src="missing.png"><p style="width:900px">wide</p>
<div class="cell_output"><img width="200" height="100" style="height: 300px !important"
 alt="stretched out" src="data:image/svg+xml,%3Csvg xmlns='http://www.w3.org/2000/svg'/%3E"></div>
<button></button><p>first</p><p class="pale" style="color: #ddd; background: #fff">hard to read</p>
</article>
"""


@dataclass
class SmallBook:
    """A site with every fault that a page can have, and how its build went."""

    site: Path
    code: int
    said: str


@pytest.fixture(scope="module")
def small_book(tmp_path_factory) -> SmallBook:
    """Build a book with broken references, a slider that moves its picture, and a dead one."""
    folder = tmp_path_factory.mktemp("small")
    notebook = notebook_of(
        MOVING.format(name="step", greys=(60, 140, 220)),
        MOVING.format(name="forgotten", greys=(60, 60, 60)),
    )
    notebook.cells.insert(0, new_markdown_cell("# Sliders\n\nWith a formula, $x^2$.", id="title"))
    nbformat.write(notebook, folder / "raw.ipynb")
    words = "\n\n".join(BROKEN)
    sliders = refresh.execute(folder / "raw.ipynb")
    make_book(folder, {"00_intro.md": f"# A page\n\n{words}\n", "sliders.ipynb": sliders})
    command = [sys.executable, "-m", "tools.build"]
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True)
    return SmallBook(folder / "_build" / "html", done.returncode, done.stdout + done.stderr)


def test_a_broken_reference_of_any_kind_stops_the_build(small_book):
    assert small_book.code != 0
    for warning in BROKEN.values():
        assert warning in small_book.said
    assert small_book.said.count("WARNING: ") == len(BROKEN)  # and nothing else is wrong with it


@pytest.fixture(scope="module")
def faulty(browser, small_book, axe) -> Visit:
    """Visit the page with the two sliders, after other faults were planted in it."""
    page = small_book.site / "book/sliders.html"
    page.write_text(page.read_text().replace("</article>", FAULTS + "</article>"))
    server, home = serve(small_book.site)
    tab = browser.new_page()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(browsing, "PATIENCE", 5)  # the dead slider is waited for in vain
        visit = visit_page(tab, f"{home}book/sliders.html", home, axe, Seen())
    tab.close()
    server.shutdown()
    return visit


def test_a_dead_slider_is_found(faulty):
    assert (faulty.sliders, faulty.dead) == (2, ["forgotten"])


def test_a_visit_notices_every_kind_of_fault(faulty):
    assert any("broken on purpose" in line for line in faulty.console)
    assert faulty.foreign == ["https://example.invalid/x.js"]
    assert [line for line in faulty.no_alt if line.endswith("missing.png")]
    assert faulty.too_wide and faulty.distorted == ["stretched out"]
    assert any(line.startswith("button-name") for line in faulty.violations["structure"])
    for look in ("light", "dark"):  # after hundreds of elements of other kinds were taken away
        assert any("pale" in line for line in faulty.violations[look]), look


def test_a_link_that_leads_nowhere_is_found(small_book):
    from test_site import broken_links

    before = set(broken_links(small_book.site))
    page = small_book.site / "book/lost.html"
    page.write_text('<p id="here"></p><a href="#here"></a><a href="#lost"></a><a href="gone.html">')
    assert set(broken_links(small_book.site)) - before == {
        "book/lost.html -> #lost",
        "book/lost.html -> gone.html",
    }
    page.unlink()
