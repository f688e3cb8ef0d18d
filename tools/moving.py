"""Read a moving figure from a notebook: its sliders and their pictures, without the widgets.

In a notebook `pe_course.page.explore` shows sliders over a stack of drawn pictures. A page needs
for them no more than the browser's own sliders: the pictures become files, and one comes when it is
asked for.
"""

from __future__ import annotations

import re
from html import unescape
from typing import Any, NamedTuple

from pe_course.page.figures import Drawing, Picture

STATE = "application/vnd.jupyter.widget-state+json"
FRAME = re.compile(
    r'<picture>(?:<source media="[^"]*" srcset="data:image/png;base64,([^"]+)"'
    r' width="(\d+)" height="(\d+)">)?'
    r'<img class="frame" src="data:image/png;base64,([^"]+)" alt="([^"]*)"'
    r' width="(\d+)" height="(\d+)"'
)


class Slider(NamedTuple):
    """A slider: its name, the words of its positions, and the position that it begins at."""

    name: str
    labels: list[str]
    start: int


class Moving(NamedTuple):
    """A moving figure; the sliders' positions, read as digits, are a picture's number."""

    sliders: list[Slider]
    pictures: list[Picture]

    @property
    def start(self) -> int:
        """Return the number of the picture shown first."""
        number = 0
        for slider in self.sliders:
            number = number * len(slider.labels) + slider.start
        return number


def pictures(model: str, models: dict[str, Any]) -> list[Picture]:
    """Return the pictures of a stack, or of a stack of stacks, in their order.

    Raises:
        ValueError: if there is anything else in it.
    """
    state = models[model]["state"]
    if models[model]["model_name"] == "StackModel":
        return [each for child in state["children"] for each in pictures(key(child), models)]
    found = FRAME.match(state.get("value", ""))
    if found is None:
        raise ValueError(f"a page shows pictures with sliders, not {models[model]['model_name']}")
    narrow = Drawing(found[1], int(found[2]), int(found[3])) if found[1] else None
    return [Picture(found[4], unescape(found[5]), int(found[6]), int(found[7]), narrow)]


def key(reference: str) -> str:
    """Return the key of the model that a state refers to."""
    return reference.removeprefix("IPY_MODEL_")


def moving(model: str, notebook: dict[str, Any]) -> Moving:
    """Return the moving figure that an output shows.

    Args:
        model: its key, as the output has it.
        notebook: the notebook's metadata, in which the widgets' state is stored.

    Raises:
        ValueError: if the widget is not what `pe_course.page.explore` makes.
    """
    models = notebook["widgets"][STATE]["state"]
    *controls, stack = map(key, models[model]["state"].get("children", [model]))
    if not controls or {models[each]["model_name"] for each in controls} != {
        "SelectionSliderModel"
    }:
        raise ValueError(f"a page shows pictures with sliders, not {models[model]['model_name']}")
    states = [models[each]["state"] for each in controls]
    sliders = [Slider(s["description"], list(s["_options_labels"]), s["index"]) for s in states]
    return Moving(sliders, pictures(stack, models))
