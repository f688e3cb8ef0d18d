"""What notebooks show: sentences, tables, figures, and figures that move."""

from __future__ import annotations

import io
import itertools
import re
from base64 import b64decode

import numpy as np
import pytest
import torch
from ipywidgets.embed import dependency_state
from PIL import Image

from pe_course import page
from pe_course.page import explore, figures

ALT = "A line that rises from the lower left to the upper right."


@pytest.fixture
def shown(monkeypatch):
    """Collect what is displayed instead of displaying it."""
    seen: list[tuple[object, dict]] = []
    for module in (page, explore):
        monkeypatch.setattr(module, "display", lambda item, **more: seen.append((item, more)))
    monkeypatch.setattr("IPython.display.display", lambda item, **more: seen.append((item, more)))
    return seen


def line(slope: float = 1):
    figure, axes = figures.new(4, 2)
    axes.plot([0, 1], [0, slope])
    return figure


def test_a_figure_carries_its_alt_text_and_its_size(shown):
    figures.show(line(), alt=ALT)
    bundle, more = shown[0]
    assert bundle["text/plain"] == ALT
    size = more["metadata"]["image/png"]
    assert size["alt"] == ALT and (size["width"], size["height"]) == (384, 192)


@pytest.mark.parametrize("alt", ["", "a plot", "   short     one    "])
def test_a_figure_without_words_is_refused(alt):
    with pytest.raises(ValueError, match="alt must say what the figure shows"):
        figures.show(line(), alt=alt)


@pytest.mark.parametrize(("drawn", "shown"), [(6.4, 699), (8.2, 699), (4.1, 393)])
def test_broad_pictures_are_as_wide_as_the_text_and_keep_their_shape(drawn, shown):
    figure, _ = figures.new(drawn, 3)
    _, _, width, height, _ = figures.picture(figure, ALT)
    assert width == shown
    assert height == pytest.approx(shown * 3 / drawn, abs=1)


def test_a_picture_has_few_colours_and_areas_keep_theirs():
    figure, axes = figures.new(4, 2)
    for place, colour in enumerate(figures.METHOD_COLOURS.values()):
        axes.axvspan(place, place + 1, color=colour, alpha=0.2, linewidth=0)
    noise = torch.randn(30, 30).numpy()
    axes.imshow(noise, extent=(0, 12, 1, 2), aspect="auto", interpolation="bilinear")
    raw = io.BytesIO()
    figure.savefig(raw, dpi=figures.DPI)
    drawn = np.asarray(Image.open(raw).convert("RGB")).astype(int)
    small = Image.open(io.BytesIO(b64decode(figures.png(figures.draw(figure)).data)))
    assert small.mode == "P" and len(small.getcolors()) <= 24 + 128
    error = np.abs(np.asarray(small.convert("RGB")) - drawn).max(-1)
    assert error.max() <= 24
    lower = drawn.shape[0] * 3 // 4  # below the picture: bands of pale colour
    bands = [tuple(pixel) for pixel in drawn[lower]]
    assert len(set(bands)) >= 12 and error[lower][[bands.count(b) > 20 for b in bands]].max() == 0


def luminance(colour: str) -> float:
    channels = [int(colour[i : i + 2], 16) / 255 for i in (1, 3, 5)]
    linear = [c / 12.92 if c <= 0.04045 else ((c + 0.055) / 1.055) ** 2.4 for c in channels]
    return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]


@pytest.mark.parametrize("name", figures.METHOD_COLOURS)
def test_a_methods_colour_stands_out_from_the_paper(name):
    contrast = 1.05 / (luminance(figures.METHOD_COLOURS[name]) + 0.05)
    assert contrast >= 3


def test_one_slider_has_a_frame_for_each_value(monkeypatch):
    boxes = []
    monkeypatch.setattr(explore, "show", lambda box, words, *_: boxes.append((box, words)))
    explore.slider("slope", [1, 2, 3], line, lambda v: f"A line that rises with slope {v}, drawn.")
    ((box, words),) = boxes
    control, stack = box.children
    assert words == "A figure with a slider: slope"
    assert [label for label, _ in control.options] == ["1", "2", "3"]
    assert len(stack.children) == 3 and stack.selected_index == control.index == 0
    assert len({child.value for child in stack.children}) == 3
    assert all('alt="A line that rises' in child.value for child in stack.children)


def show_two_sliders(**more):
    explore.sliders(
        ("a", [1, 2]),
        ("b", [3, 4, 5]),
        lambda a, b: line(a * b),
        lambda a, b: f"A line that rises with slope {a} times {b}.",
        start=(1, 2),
        **more,
    )


def test_two_sliders_have_a_frame_for_each_pair(monkeypatch):
    boxes = []
    monkeypatch.setattr(explore, "show", lambda box, *_: boxes.append(box))
    show_two_sliders()
    control_a, control_b, outer = boxes[0].children
    assert (len(control_a.options), len(control_b.options)) == (2, 3)
    assert outer.selected_index == 1
    assert [inner.selected_index for inner in outer.children] == [2, 2]
    assert len({frame.value for inner in outer.children for frame in inner.children}) == 6


def moving(monkeypatch, draw=line, **more):
    """Return a slider over slopes, what shows its pictures, and the box that holds both."""
    boxes = []
    monkeypatch.setattr(explore, "show", lambda box, *_: boxes.append(box))
    explore.slider("slope", [1, 2, 3], draw, "A line that rises with slope {}.".format, **more)
    return *boxes[0].children, boxes[0]


def test_until_a_slider_moves_nothing_more_is_stored_than_its_pictures(monkeypatch):
    plain, more = (
        [
            (each["model_name"], each["state"].get("value"), each["state"].get("_options_labels"))
            for each in dependency_state([moving(monkeypatch, **more)[-1]]).values()
        ]
        for more in ({}, {"beyond": (4, 5)})
    )
    assert plain == more
    assert [name for name, *_ in plain].count("HTMLModel") == 3


def test_a_kernel_draws_what_is_stored_and_the_slider_goes_beyond(monkeypatch):
    drawn = []
    control, stack, box = moving(monkeypatch, lambda v: drawn.append(v) or line(v), beyond=(4, 5))
    stored = [each.value for each in stack.children]
    assert drawn == [1, 2, 3] and box.children == (control, stack)
    control.set_state({"index": 1})  # as a browser tells it
    assert drawn == [1, 2, 3, 2] and [each.value for each in stack.children][:3] == stored
    assert [label for label, _ in control.options] == ["1", "2", "3", "4", "5"]
    assert control.index == 1 and box.children[2].value == explore.COMPUTED
    assert len(stack.children) == 5 and "<img" not in stack.children[4].value
    control.set_state({"index": 4})
    beyond = figures.picture(line(5), "A line that rises with slope 5.")
    assert stack.children[4].value == explore.as_html(beyond)
    assert len(box.children) == 3  # which says it once


def test_two_sliders_go_beyond_together(monkeypatch):
    boxes = []
    monkeypatch.setattr(explore, "show", lambda box, *_: boxes.append(box))
    show_two_sliders(beyond=([6], [7, 8]))
    first, second, stack = boxes[0].children
    stored = [frame.value for row in stack.children for frame in row.children]
    first.set_state({"index": 0})
    assert [len(row.children) for row in stack.children] == [5, 5, 5]
    assert [frame.value for row in stack.children[:2] for frame in row.children[:3]] == stored
    second.set_state({"index": 4})
    first.set_state({"index": 2})
    assert 'alt="A line that rises with slope 6 times 8."' in stack.children[2].children[4].value


def test_the_stored_picture_is_seen_until_the_new_one_is_drawn(monkeypatch):
    steep, seen, frames = 1, [], []

    def draw(slope):
        seen.append([each.value for each in frames])
        return line(steep * slope)

    control, stack, _ = moving(monkeypatch, draw)
    frames += stack.children
    stored = [each.value for each in frames]
    steep = 2  # as a learner changes it in another cell
    control.set_state({"index": 1})
    assert seen[-1] == stored != [each.value for each in frames]


def test_what_goes_wrong_while_drawing_is_said_in_the_place_of_the_picture(monkeypatch):
    slopes = {1: 1, 2: 2, 3: 3}
    control, stack, _ = moving(monkeypatch, lambda v: line(slopes[v]))
    stored = stack.children[1].value
    del slopes[2]
    control.set_state({"index": 1})
    said = stack.children[1].value
    assert "could not be drawn" in said and "KeyError: 2" in said and "slopes[v]" in said
    slopes[2] = 2
    control.set_state({"index": 0})
    control.set_state({"index": 1})
    assert stack.children[1].value == stored


def test_where_there_is_no_stack_the_kernel_puts_each_picture_into_one_place(monkeypatch):
    """As in Colab."""
    monkeypatch.delattr(explore.widgets, "Stack")
    control, place, box = moving(monkeypatch, beyond=(4,))
    first = place.value
    control.set_state({"index": 2})
    assert place.value != first and 'alt="A line that rises with slope 3."' in place.value
    control.set_state({"index": 3})
    assert 'slope 4."' in place.value and box.children[2].value == explore.COMPUTED


def test_alt_text_is_escaped():
    assert 'alt="less &lt; more, &quot;quoted&quot;' in (
        explore.frame(figures.picture(line(), 'less < more, "quoted" and long enough')).value
    )


def test_plain_sliders_show_their_own_picture(browser, shown, monkeypatch):
    """As in Colab, whose ipywidgets have no stack."""
    monkeypatch.delattr(explore.widgets, "Stack")
    show_two_sliders()
    tab = browser.new_page()
    tab.set_content(shown[0][0]["text/html"])
    pictures, (first, second) = tab.locator("img:visible"), tab.locator("input").all()
    found = [pictures.get_attribute("alt")]  # which wants exactly one
    for i, j in itertools.product(range(2), range(3)):
        first.fill(str(i))
        second.fill(str(j))
        found.append(pictures.get_attribute("alt"))
    tab.close()
    settings = [("2", "5"), *itertools.product("12", "345")]
    assert [tuple(re.findall(r"\d", alt)) for alt in found] == settings


@pytest.mark.parametrize(("values", "message"), [([1], "at least 2"), (range(81), "at most 80")])
def test_a_slider_that_cannot_move_or_weighs_too_much_is_refused(values, message):
    with pytest.raises(ValueError, match=message):
        explore.slider("x", list(values), line, lambda v: ALT)


def test_a_bar_stays_in_its_cell_and_a_short_cell_on_its_line(shown):
    page.table(["a", "b"], [["|i - j|", "more words than a line of a table holds"]])
    row = shown[0][0].data.splitlines()[-1]
    assert row == "| \\|i\u00a0-\u00a0j\\| | more words than a line of a table holds |"


def test_below_refuses_a_difference_that_is_not_rounding():
    assert page.below(1e-16, 1e-14) == "below 1e-14"
    with pytest.raises(AssertionError, match="not below"):
        page.below(2e-14, 1e-14)


def test_a_heat_map_has_its_white_at_zero():
    figure, axes = figures.new(4, 2)
    values = torch.tensor([[-3.0, 1.0], [0.0, 2.0]])
    image = figures.heatmap(axes, values, diverging=True, bar="score")
    assert image.get_clim() == (-3, 3)
    assert figure.axes[1].get_ylabel() == "score"
    assert figures.heatmap(axes, torch.tensor([[1.0, 2.0]])).get_clim() == (0, 2)
    wide = figures.heatmap(axes, torch.ones(1, 1), diverging=True, limit=5)
    assert wide.get_clim() == (-5, 5)


def test_a_heat_map_without_its_scale_is_refused():
    figure, (left, right) = figures.new(4, 2, columns=2)
    figures.heatmap(left, torch.eye(2), bar="share")
    other = figures.heatmap(right, 5 * torch.eye(2))
    with pytest.raises(ValueError, match="needs a colour bar"):
        figures.picture(figure, ALT)
    other.set_clim(0, 1)
    figures.picture(figure, ALT)


def test_where_no_widget_can_be_shown_a_slider_is_its_first_picture(shown):
    explore.slider("slope", [1, 2], line, lambda slope: f"A line of slope {slope}.".ljust(30, "!"))
    forms, more = shown[-1]
    assert forms["text/plain"] == "A figure with a slider: slope"
    assert forms["image/png"] == figures.picture(line(1), ALT).data
    assert more["metadata"]["image/png"]["alt"].startswith("A line of slope 1.")
