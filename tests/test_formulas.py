"""What a page gets before it is published: its formulas, set, and figures without widgets."""

from __future__ import annotations

import os
import re

import ipywidgets as widgets
import pytest
from fontTools.ttLib import TTFont
from ipywidgets.embed import dependency_state

from browsing import left_out
from pe_course.page import explore
from pe_course.page.figures import Drawing, Picture
from tools import formulas, moving, vendor

PAGE = r"""<html><head><title>x</title></head><body>
<p>If <span class="math notranslate nohighlight">\(a &lt; b\)</span>, then
<code>\(c\)</code> <span class="math notranslate nohighlight">\(a &lt; b\)</span>.</p>
<div class="math notranslate nohighlight" id="equation-1-1">
<span id="e"></span><span class="eqno">(1.1)<a href="#equation-1-1">#</a></span>\[
\begin{split}x &amp;= \frac{1}{2}\\ y &amp;= 3\end{split}
\]</div></body></html>"""


@pytest.fixture
def mathjax():
    try:
        vendor.vendor()
    except vendor.VendorError as error:
        left_out(f"MathJax could not be had: {error}")


def test_formulas_of_a_page_are_set_with_their_tex_and_their_numbers(mathjax, tmp_path):
    page, plain = tmp_path / "book" / "page.html", tmp_path / "plain.html"
    (tmp_path / "_static").mkdir()
    page.parent.mkdir()
    page.write_text(PAGE)
    plain.write_text("<p>words</p>")
    assert formulas.set_site(tmp_path) == 2
    text = page.read_text()
    assert text.count('data-tex="a &lt; b"') == 2 and r"<code>\(c\)</code>" in text
    assert text.count("<mjx-container") == 3 and r"\[" not in text and r"\frac{1}{2}" in text
    assert r'data-tex="x &amp;= \frac{1}{2}\\ y' in text  # as it was written
    assert '<span class="eqno">(1.1)' in text and text.count("<math ") == 3
    assert 'href="../_static/formulas.css?v=' in text
    style = (tmp_path / "_static" / "formulas.css").read_text()
    assert 'url("formulas/MathJax_Main-Regular.woff")' in style
    with TTFont(tmp_path / "_static" / "formulas" / "MathJax_Main-Regular.woff") as font:
        letters = set(map(chr, font.getBestCmap()))
    assert set("<=123") <= letters and not set("4Z") & letters
    with TTFont(tmp_path / "_static" / "formulas" / "MathJax_Zero.woff") as font:
        assert font.getBestCmap()  # browsers refuse a font without letters
    assert plain.read_text() == "<p>words</p>"


@pytest.mark.parametrize("tex", [r"\frac{1", r"\nocommand x"])
def test_a_formula_that_is_no_tex_is_named(tex, mathjax):
    with pytest.raises(formulas.FormulaError, match=f"does not understand {re.escape(repr(tex))}"):
        formulas.typeset([formulas.Formula("x", False), formulas.Formula(tex, False)])


@pytest.mark.parametrize("node", ["exit 1", "echo no JSON", ""])
def test_a_node_that_does_not_work_is_as_none_and_said_once(node, tmp_path, monkeypatch, capsys):
    (tmp_path / "mathjax").mkdir()
    (tmp_path / "mathjax" / "VERSION").write_text(vendor.stamp(vendor.SITE[0]))
    broken = tmp_path / "node"
    broken.write_text(f"#!/bin/sh\n{node}\n" if node else "")
    broken.chmod(0o755)
    monkeypatch.setattr(vendor, "SITE_ASSETS", tmp_path)
    monkeypatch.setenv("PATH", str(tmp_path), prepend=os.pathsep)
    assert not formulas.possible() and not formulas.possible()
    assert capsys.readouterr().out.count("Pages will load MathJax from cdn.jsdelivr.net") == 1


def test_a_folder_that_has_other_files_is_not_what_is_needed(tmp_path):
    package = vendor.SITE[0]
    (tmp_path / package.folder).mkdir()
    version = tmp_path / package.folder / "VERSION"
    version.write_text(vendor.stamp(package))
    assert vendor.present(package, tmp_path)
    version.write_text(vendor.stamp(package).replace("es5/output/chtml.js\n", ""))
    assert not vendor.present(package, tmp_path)


def shown(widget):
    """Return what a notebook stores of a widget, and its key."""
    return {"widgets": {moving.STATE: {"state": dependency_state([widget])}}}, widget.model_id


def test_the_pictures_of_two_sliders_are_read_in_their_order():
    first, second = explore.named_slider("a", "xy", 1), explore.named_slider("b", "pqr", 2)
    phone = Drawing("abc", 15, 40)
    rows = [
        explore.linked_stack(
            [explore.frame(Picture(f"{a}{b}", f"<{a}{b}>", 30, 20, phone)) for b in "pqr"], second
        )
        for a in "xy"
    ]
    notebook, key = shown(widgets.VBox([first, second, explore.linked_stack(rows, first)]))
    found = moving.moving(key, notebook)
    assert found.sliders == [("a", ["x", "y"], 1), ("b", ["p", "q", "r"], 2)]
    assert [each.data for each in found.pictures] == ["xp", "xq", "xr", "yp", "yq", "yr"]
    assert found.pictures[found.start] == Picture("yr", "<yr>", 30, 20, phone)


@pytest.mark.parametrize("strange", [widgets.Text, lambda: widgets.VBox([widgets.Text()])])
def test_a_widget_that_a_page_cannot_show_stops_the_build(strange):
    notebook, key = shown(strange())
    with pytest.raises(ValueError, match="a page shows pictures with sliders, not"):
        moving.moving(key, notebook)
