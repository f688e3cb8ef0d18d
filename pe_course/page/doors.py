"""The course's first diagram: a transformer layer, four doors for position, two places outside."""

from __future__ import annotations

from matplotlib.axes import Axes
from matplotlib.figure import Figure

from pe_course.page import phone, schematics
from pe_course.registry import METHODS

# Door: a method that uses it, whose colour it has; how far up it stands; where its arrows end. All
# that is across is counted from the middle of the layer, in halves of its breadth.
DOORS = {
    "embed": ("sinusoidal", 0.35, (-1.0,), "$x_i + p_i$"),
    "rotate": ("rope", 2.3, (-0.55, 0.3), r"$R_i\,q_i$, $\;R_j\,k_j$"),
    "bias": ("alibi", 3.37, (-0.03,), r"$+ \; b_{ij}$"),
    "values": ("shaw", 5.6, (-0.03,), r"$+ \; \Sigma_j\, A_{ij}\,r_{ij}$"),
}
# What tells order too and is no door: what it is; how far up its box and its arrow stand on a desk,
# and on a phone, where it is between the doors.
OUTSIDE = {
    "mask": ("which keys\nare seen", (3.8, 3.8), (4.17, 3.88)),
    "recurrence": ("carries a\nstate along", (6.22, 6.22), (6.37, 6.3)),
}
COLOURS = {name: METHODS[method].colour for name, (method, *_) in DOORS.items()}
HIGH = 0.4  # of a step
STEPS = {
    0.15: r"token vectors $x_1, \dots, x_L$",
    2.75: r"scores $q_i \cdot k_j\,/\sqrt{d}$",
    3.60: "mask",
    4.20: "softmax over the keys",
    4.80: r"sum over $j$ of $A_{ij}\,v_j$",
    6.10: "MLP, then the next layer",
}
# What a token becomes: where it stands, and where its arrow ends.
PARTS = {
    "queries $q$": (-0.75, (-0.35, 2.75)),
    "keys $k$": (0.3, (0.25, 2.75)),
    "values $v$": (1.35, (1.0, 5.0)),
}


def draw(*, narrow: bool = False) -> Figure:
    """Draw one head of a layer, read upwards, with its doors at the left and the others opposite.

    Args:
        narrow: whether for a phone, where all stand at the left.
    """
    desk, slim = (7.6, 3.75, 1.0, 0.96, 0.1, 1.7, 10), (phone.WIDTH, 2.18, 0.8, 0.68, 0.02, 1.12, 9)
    width, middle, half, part, left, wide, size = slim if narrow else desk
    figure, axes = schematics.canvas(width, 6.8)
    for y, words in STEPS.items():
        schematics.box(axes, middle - half, y, 2 * half, HIGH, words, size=size)
    for low, high in [(3.15, 3.6), (4.0, 4.2), (4.6, 4.8), (5.2, 6.1)]:
        schematics.arrow(axes, (middle, low), (middle, high))
    for words, (across, (to, up)) in PARTS.items():
        x, end = middle + half * across, (middle + half * to, up)
        schematics.box(axes, x - part / 2, 1.45, part, HIGH, words, size=size)
        schematics.arrow(axes, (middle + half * across / 2, 0.55), (x, 1.45))
        schematics.arrow(axes, (x, 1.85), end, bend=0.25 if up > 3 else 0)
    for name, (_, y, tips, formula) in DOORS.items():
        sign(axes, left, y, wide, name, formula, COLOURS[name])
        for tip in tips:
            end = middle + half * tip, y
            schematics.arrow(axes, (left + wide, y), end, colour=COLOURS[name], width=2.4)
    for name, (words, *places) in OUTSIDE.items():
        y, level = places[narrow]
        sign(axes, left if narrow else 7.5 - wide, y, wide, name, words)
        ends = (left + wide, middle - half) if narrow else (7.5 - wide, middle + half)
        schematics.arrow(axes, (ends[0], level), (ends[1], level), width=2.4)
    return figure


def sign(
    axes: Axes, x: float, y: float, wide: float, name: str, words: str, colour: str | None = None
) -> None:
    """Draw a box with a name and, below it, what it does."""
    lines = words.count("\n")
    schematics.box(axes, x, y - 0.3 - 0.08 * lines, wide, 0.6 + 0.16 * lines, colour=colour)
    schematics.label(axes, x + wide / 2, y + 0.13 + 0.08 * lines, name, bold=True, size=10)
    schematics.label(axes, x + wide / 2, y - 0.12, words, size=9 if lines else 10)
