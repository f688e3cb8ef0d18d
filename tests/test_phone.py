"""What a phone shows of a figure: its panels below each other, or a drawing made for it."""

from __future__ import annotations

import ast
import io
import re
from base64 import b64decode
from itertools import pairwise
from typing import Any

import matplotlib.pyplot as plt
import nbformat
import numpy as np
import pytest
from PIL import Image

from pe_course.page import explore, figures, phone, schematics
from tools.refresh import notebooks

ALT = "A line that rises from the lower left to the upper right."
COLUMN = 348  # pixels of the page


@pytest.fixture(autouse=True)
def closed():
    yield
    plt.close("all")


def panels(rows: int = 1, columns: int = 2, width: float = 7.2, **options):
    """Return a figure with a line in each of its panels, and these."""
    figure, axes = figures.new(width, 3.0, rows=rows, columns=columns, **options)
    every = np.ravel(axes)
    for n, axis in enumerate(every):
        axis.plot([0, 1], [0, n + 1], label=f"line {n}")
        axis.set(title=f"panel {n}", xlabel="distance")
    every[0].set_ylabel("weight")
    return figure, every


def laid_out(figure):
    """Return a figure as a phone has it, and where its panels are: left, bottom, right, top."""
    figure.set_dpi(figures.DPI)
    narrow = phone.narrow(figure)
    narrow.draw_without_rendering()
    return narrow, [axes.get_window_extent().extents for axes in narrow.axes]


def size_of(drawing) -> tuple[int, int]:
    return Image.open(io.BytesIO(b64decode(drawing.data))).size


@pytest.mark.parametrize("width", [6.4, 7.2, 8.0])
def test_a_broad_figure_gets_a_second_drawing_as_wide_as_a_phones_column(width):
    figure, _ = panels(width=width)
    picture = figures.picture(figure, ALT)
    assert picture.width == 699 and picture.narrow.width == COLUMN
    assert size_of(picture.narrow) == pytest.approx(
        (COLUMN * 1.5, picture.narrow.height * 1.5), abs=1
    )
    assert picture.size["image/png"]["narrow"] == picture.narrow._asdict()


def test_a_narrow_figure_has_no_second_drawing():
    figure, _ = panels(width=phone.WIDTH)
    picture = figures.picture(figure, ALT)
    assert picture.narrow is None and "narrow" not in picture.size["image/png"]


@pytest.mark.parametrize("count", [2, 3, 4])
def test_up_to_four_panels_stand_below_each_other_in_their_order(count):
    figure, _ = panels(columns=count)
    narrow, places = laid_out(figure)
    assert [axes.get_title(loc="left") for axes in narrow.axes] == [
        f"panel {n}" for n in range(count)
    ]
    for above, below in pairwise(places):
        assert above[1] > below[3] and above[0] == pytest.approx(below[0], abs=1)


def test_more_than_four_panels_stand_two_by_two():
    figure, _ = panels(rows=2, columns=3)
    _, places = laid_out(figure)
    for left, right in (places[:2], places[2:4], places[4:]):
        assert left[2] < right[0] and left[1] == pytest.approx(right[1], abs=1)
    assert places[0][1] > places[2][3] and places[2][1] > places[4][3]


def test_letters_keep_their_size():
    figure, every = panels()
    every[0].legend()
    figure.draw_without_rendering()
    before = {text.get_text(): text.get_fontsize() for text in figure.findobj(plt.Text)}
    narrow, _ = laid_out(figure)
    after = {text.get_text(): text.get_fontsize() for text in narrow.findobj(plt.Text)}
    named = {"panel 0", "panel 1", "distance", "weight", "line 0", "0.0", "1.0"}
    assert named <= before.keys() & after.keys()
    assert all(after[words] == before[words] for words in before.keys() & after.keys())


def test_each_panel_names_the_axis_that_it_shared():
    figure, every = panels(columns=3, sharey=True)
    assert not every[1].get_ylabel()
    laid_out(figure)
    for axes in every:
        assert axes.get_ylabel() == "weight"
        assert any(label.get_visible() and label.get_text() for label in axes.get_yticklabels())


def test_a_legend_of_the_figure_stands_below_the_panels():
    figure, every = panels()
    figure.legend(*every[0].get_legend_handles_labels(), loc="outside right upper")
    narrow, places = laid_out(figure)
    (legend,) = narrow.legends
    assert [text.get_text() for text in legend.get_texts()] == ["line 0"]
    assert legend.get_window_extent().y1 <= min(bottom for _, bottom, *_ in places)


def test_colour_bars_stay_beside_their_maps():
    figure, (left, right) = figures.new(7.2, 3.0, columns=2)
    figures.heatmap(left, np.eye(4), bar="share")
    place = figure.add_axes((0.95, 0.2, 0.01, 0.6))  # where numbers say, not the layout
    image = figures.heatmap(right, np.eye(4))
    figure.colorbar(image, cax=place, label="weight")
    narrow, _ = laid_out(figure)
    bars = [axes for axes in narrow.axes if phone.is_colour_bar(axes)]
    assert {axes.get_ylabel() for axes in bars} == {"share", "weight"}
    for bar, own in zip(
        sorted(bars, key=lambda each: each.get_ylabel()), (left, right), strict=True
    ):
        inner, outer = own.get_window_extent(), bar.get_window_extent()
        assert outer.x0 > inner.x1 and inner.y0 <= (outer.y0 + outer.y1) / 2 <= inner.y1


def test_no_text_runs_beyond_the_edge():
    figure, (first, second) = panels()
    first.set_title("a title of many words, which was made for a panel twice as broad as this")
    first.set_xticks(range(2), ["a long word", "another long word"])
    second.set_xlabel(
        "the position of the key less the position of the query, in tokens of the text"
    )
    second.set_ylabel("the share of the attention that all keys of this distance get together")
    second.set_yticks([0, 1, 2])
    second.text(0.9, 1.9, "words at the right edge")
    narrow, _ = laid_out(figure)
    drawn = narrow.get_tightbbox()  # in inches, of all that is seen
    assert drawn.x0 >= -0.01 and drawn.x1 <= phone.WIDTH + 0.01


def squares(places, width: float = 7.2):
    """Return a diagram with a square of each colour at its place."""
    figure, axes = schematics.canvas(width, 1.0)
    for x, colour in places.items():
        axes.add_patch(plt.Rectangle((x, 0.25), 0.5, 0.5, fc=colour, lw=0))
    return figure


def test_a_cut_diagram_is_stacked_in_order():
    figure = squares({0.5: "#ff0000", 3.0: "#00ff00", 6.5: "#0000ff"})
    drawn = figures.stacked(figures.draw(figure), (0.3, 0.7))
    part = drawn.height // 3
    for n, colour in enumerate(((255, 0, 0), (0, 255, 0), (0, 0, 255))):
        inside = drawn.crop((0, n * part, drawn.width, (n + 1) * part))
        found = {each for _, each in inside.getcolors(1 << 16)}
        assert colour in found and not found & {(255, 0, 0), (0, 255, 0), (0, 0, 255)} - {colour}


def test_a_part_has_no_empty_sides_and_must_fit():
    figure = squares({0.5: "#ff0000", 5.0: "#0000ff"})
    assert figures.picture(figure, ALT, (0.5,)).narrow.width < 80
    with pytest.raises(ValueError, match=r"a part may be 3\.625 inches wide"):
        figures.picture(squares({0.5: "#ff0000", 4.4: "#00ff00", 6.0: "#0000ff"}), ALT, (0.75,))


def test_a_phones_letters_have_nine_points_or_more():
    small, large = (schematics.canvas(phone.WIDTH, 1.0) for _ in range(2))
    schematics.label(small[1], 1, 0.5, "small", size=8.5)
    schematics.label(large[1], 1, 0.5, "large", size=9)
    assert figures.picture(squares({0.5: "#ff0000"}), ALT, large[0]).narrow
    for broad, way in ((squares({0.5: "#ff0000"}), small[0]), (small[0], (0.5,))):
        with pytest.raises(ValueError, match=r"9 points or more, not \['small'\]"):
            figures.picture(broad, ALT, way)


def test_a_drawing_for_the_phone_is_taken_as_it_is():
    broad, slim = squares({0.5: "#ff0000"}), squares({0.5: "#0000ff"}, phone.WIDTH)
    assert figures.picture(broad, ALT, slim).narrow.width == COLUMN


def test_a_slider_has_both_drawings_in_each_frame():
    picture = figures.picture(panels()[0], ALT)
    html = explore.as_html(picture)
    assert html.count("<img") == 1 and f'<source media="{figures.PHONE}"' in html
    assert picture.data in html and picture.narrow.data in html


def calls(tree: ast.AST, name: str) -> list[ast.Call]:
    found = [each for each in ast.walk(tree) if isinstance(each, ast.Call)]
    return [each for each in found if ast.unparse(each.func) == name]


def is_broad(canvas: ast.Call) -> bool:
    """Return whether a canvas is broader than a phone, as far as it says how broad it is."""
    width = canvas.args[0] if canvas.args else None
    return not isinstance(width, ast.Constant) or width.value > figures.BROAD


def diagrams() -> list[Any]:
    """Return the cells that draw a broad diagram, with the name of their notebook."""
    found = []
    for path in notebooks():
        for cell in nbformat.read(path, as_version=4).cells:
            if cell.cell_type == "code" and re.search(
                r"schematics\.canvas|doors\.draw", cell.source
            ):
                tree = ast.parse(cell.source)
                drawn = calls(tree, "schematics.canvas")
                if calls(tree, "doors.draw") or any(map(is_broad, drawn)):
                    found.append(pytest.param(tree, id=f"{path.stem}-{cell.id}"))
    return found


def test_the_diagrams_are_found():
    assert len(diagrams()) == 18


@pytest.mark.parametrize("cell", diagrams())
def test_a_phone_has_its_own_drawing_of_every_diagram(cell):
    shown = calls(cell, "figures.show")
    assert shown and all("phone" in {each.arg for each in call.keywords} for call in shown)
