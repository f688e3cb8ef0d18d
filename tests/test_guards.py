"""The guards guard: each is shown something wrong, and must say so."""

from __future__ import annotations

import base64
import copy
import io
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import nbformat
import pytest
import yaml
from nbformat.v4 import new_code_cell, new_markdown_cell, new_notebook
from PIL import Image, ImageDraw

from browsing import ROOT, Visit, dead_sliders, open_page, serve, visit_page
from tools import refresh

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


def run_nbval(path: Path, *options: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "--nbval"]
    command += ["--nbval-current-env", "-p", "tools.nbval_pictures", *options]
    command += [f"--rootdir={path.parent}", str(path)]
    environment = os.environ | {"PYTHONPATH": str(ROOT)}
    return subprocess.run(command, cwd=path.parent, capture_output=True, text=True, env=environment)


def stored(folder: Path, *sources: str) -> Path:
    """Write a notebook as a refresh would store it."""
    path = folder / "stored.ipynb"
    nbformat.write(notebook_of(*sources), path)
    nbformat.write(refresh.execute(path), path)
    return path


def test_nbval_compares_the_stored_output_with_the_run(tmp_path):
    path = stored(tmp_path, "print(1 + 1)")
    assert run_nbval(path).returncode == 0
    path.write_text(path.read_text().replace('"2\\n"', '"3\\n"'))
    done = run_nbval(path)
    assert done.returncode != 0 and "Cell 1" in done.stdout


DRAW = """
from IPython.display import Image, display
from PIL import ImageDraw, Image as Picture
import io
picture, data = Picture.new("RGB", (200, 100), "white"), io.BytesIO()
ImageDraw.Draw(picture).line((0, 0, 200, 100), fill="black", width=3)
picture.save(data, "PNG")
display(Image(data.getvalue()))
"""


@pytest.mark.parametrize(
    ("source", "old", "new", "words"),
    [
        (DRAW, "200, 100), fill", "200, 50), fill", "pixels differ"),
        (SLIDER.format(link=LINK), "frame(140)", "frame(30)", "its binary data differ"),
    ],
    ids=["picture", "slider"],
)
def test_a_run_that_draws_something_else_fails_where_nbval_sees_nothing(
    tmp_path, source, old, new, words
):
    path = stored(tmp_path, source)
    assert run_nbval(path).returncode == 0
    path.write_text(path.read_text().replace(old, new))
    done = run_nbval(path)
    assert words in done.stdout
    assert re.search(r"1 failed, 3 passed", done.stdout)


def test_a_notebook_over_its_budget_fails(tmp_path):
    path = stored(tmp_path, "sum(range(100))")
    done = run_nbval(path, "--override-ini=notebook_seconds=0.01")
    assert "processor seconds, 0.01 are allowed" in done.stdout
    assert re.search(r"1 failed, 3 passed", done.stdout)


def picture(draw_line: bool = False, shade: int = 0) -> str:
    image = Image.new("RGB", (200, 100), (255 - shade,) * 3)
    if draw_line:
        ImageDraw.Draw(image).line((0, 0, 200, 100), fill="black", width=3)
    data = io.BytesIO()
    image.save(data, "PNG")
    return base64.b64encode(data.getvalue()).decode()


def with_picture(data: str):
    notebook = notebook_of("show()")
    output = nbformat.v4.new_output("display_data", {"image/png": data, "text/plain": "a line"})
    notebook.cells[0].outputs = [output]
    return notebook


def test_the_picture_check_sees_a_line_that_was_not_there():
    found = list(refresh.differences(with_picture(picture()), with_picture(picture(True))))
    assert len(found) == 1 and "cell 0 (cell-0)" in found[0] and "pixels differ" in found[0]


def test_the_picture_check_allows_what_no_eye_sees():
    assert not list(refresh.differences(with_picture(picture()), with_picture(picture(shade=2))))


def test_the_picture_check_sees_another_size_of_text():
    other = with_picture(picture())
    other.cells[0].outputs[0].data["text/plain"] = "a curve"
    assert list(refresh.differences(with_picture(picture()), other))


def test_the_check_looks_into_the_frames_of_widgets():
    def widgets(data: str):
        notebook = notebook_of("slider")
        state = {"value": f'<img src="data:image/png;base64,{data}">'}
        models = {"1": {"model_name": "HTMLModel", "state": state}}
        notebook.metadata["widgets"] = {refresh.WIDGETS: {"state": models}}
        return notebook

    assert not list(refresh.differences(widgets(picture()), widgets(picture())))
    assert list(refresh.differences(widgets(picture()), widgets(picture(True))))


@pytest.mark.parametrize(
    ("source", "complaint"),
    [
        ("import warnings; warnings.warn('old')", "warns"),
        (f"print({str(ROOT)!r})", "path of this computer"),
        ("1 / 0", "raises ZeroDivisionError"),
    ],
)
def test_what_must_not_be_stored_is_named(source, complaint):
    notebook = notebook_of(source)
    client = refresh.NotebookClient(notebook, kernel_name="python3", allow_errors=True)
    client.execute()
    found = list(refresh.complaints(notebook))
    assert found and complaint in found[0]


# A small book of its own, with the settings of the real one -------------------------------------


def make_book(folder: Path, pages: dict[str, object]) -> None:
    """Write a book with our configuration and other pages."""
    for name in ("_config.yml", "book/_ext", "book/assets", "tools", "pe_lib"):
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


def build(folder: Path) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "tools.build"]
    return subprocess.run(command, cwd=folder, capture_output=True, text=True)


BROKEN = {
    "{ref}`nowhere`": "undefined label: 'nowhere'",
    "{doc}`no_such_page`": "unknown document: 'no_such_page'",
    "{cite:t}`nobody2020nothing`": 'could not find bibtex key "nobody2020nothing"',
    "{py:func}`pe_lib.sinusoidal.no_such_function`": "py:func reference target not found",
}


def test_a_broken_reference_of_any_kind_stops_the_build(tmp_path):
    words = "\n\n".join(BROKEN)
    make_book(tmp_path, {"00_intro.md": f"# A page\n\n{words}\n", "other.md": "# Other\n"})
    done = build(tmp_path)
    assert done.returncode != 0
    for warning in BROKEN.values():
        assert warning in done.stdout + done.stderr


@pytest.fixture(scope="module")
def small_site(tmp_path_factory) -> Path:
    """Build a book with a slider that moves its picture, and one whose link was forgotten."""
    folder = tmp_path_factory.mktemp("small")
    pages: dict[str, object] = {"00_intro.md": "# A page\n\nWith a formula, $x^2$.\n"}
    for name, link in {"live": LINK, "dead": ""}.items():
        notebook = notebook_of(SLIDER.format(link=link))
        notebook.cells.insert(0, new_markdown_cell(f"# {name}", id="title"))
        path = folder / "raw.ipynb"
        nbformat.write(notebook, path)
        pages[f"{name}.ipynb"] = refresh.execute(path)
    make_book(folder, pages)
    done = build(folder)
    assert done.returncode == 0, done.stdout + done.stderr
    return folder / "_build" / "html"


@pytest.mark.parametrize(("name", "found"), [("live", 0), ("dead", 1)])
def test_a_dead_slider_is_found(browser, small_site, name, found):
    server, home = serve(small_site)
    page = open_page(browser, f"{home}book/{name}.html", home, Visit())
    sliders, dead = dead_sliders(page)
    assert (sliders, len(dead)) == (1, found)
    page.close()
    server.shutdown()


FAULTS = """
<script src="https://example.invalid/x.js"></script>
<script>throw new Error("broken on purpose")</script>
<article class="bd-main"><img src="missing.png"><p style="width:900px">wide</p>
<div class="cell_output"><img width="200" height="100" style="height: 300px !important"
 alt="stretched out" src="data:image/svg+xml,%3Csvg xmlns='http://www.w3.org/2000/svg'/%3E"></div>
<button></button></article>
"""


def test_a_visit_notices_every_kind_of_fault(browser, small_site, axe):
    good = (small_site / "book/00_intro.html").read_text()
    (small_site / "book/faulty.html").write_text(good.replace("</article>", FAULTS + "</article>"))
    server, home = serve(small_site)
    visit = visit_page(browser, f"{home}book/faulty.html", home, axe)
    server.shutdown()
    assert any("broken on purpose" in line for line in visit.console)
    assert visit.foreign == ["https://example.invalid/x.js"]
    assert len(visit.no_alt) == 1
    assert visit.too_wide and visit.distorted == ["stretched out"]
    assert any(line.startswith("button-name") for line in visit.violations["light"])


def test_a_link_that_leads_nowhere_is_found(small_site):
    from test_site import broken_links

    before = set(broken_links(small_site))
    page = small_site / "book/lost.html"
    page.write_text('<p id="here"></p><a href="#here"></a><a href="#lost"></a><a href="gone.html">')
    assert set(broken_links(small_site)) - before == {
        "book/lost.html -> #lost",
        "book/lost.html -> gone.html",
    }
    page.unlink()


def test_a_claim_without_a_cell_is_found(tmp_path, monkeypatch):
    import test_claims

    from lab import claims

    extra = copy.deepcopy(next(iter(claims.load().values())))
    ledger = [{**vars(claim), "source": list(claim.source)} for claim in claims.load().values()] + [
        {**vars(extra), "id": "no-cell-shows-this", "source": list(extra.source)}
    ]
    path = tmp_path / "claims.yml"
    path.write_text(yaml.safe_dump(ledger), encoding="utf-8")
    monkeypatch.setattr(claims, "load", lambda: claims.read(path))
    with pytest.raises(AssertionError):
        test_claims.test_every_claim_has_exactly_one_cell_in_its_chapter()
    with pytest.raises(AssertionError):
        test_claims.test_every_claim_has_exactly_one_link_target_in_its_chapter()
