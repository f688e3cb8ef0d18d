"""The diagram of the doors shows what the code has."""

from __future__ import annotations

from lab import doors, schematics
from pe_lib.encoding import PositionEncoding


def test_each_door_is_a_hook_of_the_interface():
    assert all(callable(getattr(PositionEncoding, name)) for name in doors.DOORS)


def test_each_door_is_drawn_with_its_name_in_a_colour_of_its_own():
    _, axes = schematics.canvas(6.4, 6.7)
    doors.draw(axes)
    words = [text.get_text() for text in axes.texts]
    assert [words.count(name) for name in doors.DOORS] == [1] * len(doors.DOORS)
    assert len(set(doors.COLOURS.values())) == len(doors.COLOURS)


def test_what_lies_outside_is_drawn_and_is_no_hook():
    _, axes = schematics.canvas(7.6, 6.7)
    doors.draw_outside(axes)
    words = [text.get_text() for text in axes.texts]
    assert list(doors.OUTSIDE) == ["mask", "recurrence"]
    assert all(name in words and not hasattr(PositionEncoding, name) for name in doors.OUTSIDE)
