"""Pieces of diagrams: they stand where they are told, and refuse what they cannot draw."""

from __future__ import annotations

import pytest
from matplotlib.colors import to_rgb

from lab import figures, schematics


def test_a_canvas_counts_in_inches():
    figure, axes = schematics.canvas(4, 2)
    assert axes.get_xlim() == (0, 4) and axes.get_ylim() == (0, 2)
    assert figure.get_size_inches().tolist() == [4, 2] and axes.get_position().bounds == (
        0,
        0,
        1,
        1,
    )


def test_a_box_has_its_words_in_its_middle():
    _, axes = schematics.canvas()
    schematics.box(axes, 1, 1, 2, 0.5, "attend", colour="#0072b2")
    assert axes.texts[0].get_position() == (2, 1.25) and axes.texts[0].get_text() == "attend"


def test_a_grid_runs_downwards_and_letters_can_be_read_on_their_ground():
    _, axes = schematics.canvas()
    schematics.grid(axes, 1, 2, [["a", "b"], ["c", "d"]], colours=[["#000000", None], [None, None]])
    places = {text.get_text(): text.get_position() for text in axes.texts}
    assert places["a"][1] > places["c"][1] and places["a"][0] < places["b"][0]
    assert [text.get_color() for text in axes.texts[:2]] == [figures.PAPER, figures.INK]


def test_a_tint_lies_between_white_and_the_colour():
    assert schematics.tint("#0072b2", 0) == (1, 1, 1)
    assert schematics.tint("#0072b2", 1) == pytest.approx(to_rgb("#0072b2"))


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda axes: schematics.grid(axes, 0, 0, [["a"], ["b", "c"]]), "same number of cells"),
        (
            lambda axes: schematics.grid(axes, 0, 0, [["a"]], colours=[[None, None]]),
            "shape of texts",
        ),
        (lambda axes: schematics.arrow(axes, (0, 0), (1, 1), side="over"), "side must be one of"),
    ],
)
def test_what_cannot_be_drawn_is_refused(call, message):
    with pytest.raises(ValueError, match=message):
        call(schematics.canvas()[1])
