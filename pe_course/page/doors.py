"""The course's first diagram: a transformer layer, four doors for position, two places outside."""

from __future__ import annotations

from matplotlib.axes import Axes

from pe_course.page import schematics
from pe_course.registry import METHODS

# Door: a method that uses it, whose colour it has; how far up it stands; where its arrows end.
DOORS = {
    "embed": ("sinusoidal", 0.35, (2.75,), "$x_i + p_i$"),
    "rotate": ("rope", 2.3, (3.2, 4.05), r"$R_i\,q_i$  and  $R_j\,k_j$"),
    "bias": ("alibi", 3.37, (3.72,), r"$+ \; b_{ij}$"),
    "values": ("shaw", 5.6, (3.72,), r"$+ \; \Sigma_j\, A_{ij}\,r_{ij}$"),
}
# What tells order too and is no door: what it is, and how far up it stands.
OUTSIDE = {
    "mask": ("which keys\nare seen", 3.8),
    "recurrence": ("a layer that carries\na state along", 6.22),
}
COLOURS = {name: METHODS[method].colour for name, (method, *_) in DOORS.items()}
MIDDLE, WIDE, HIGH = 3.75, 2.0, 0.4  # of the path that a token takes upwards, and of its boxes
STEPS = {
    0.15: r"token vectors $x_1, \dots, x_L$",
    2.75: r"scores $q_i \cdot k_j\,/\sqrt{d}$",
    3.60: "mask",
    4.20: "softmax over the keys",
    4.80: r"sum over $j$ of $A_{ij}\,v_j$",
    6.10: "MLP, then the next layer",
}


def draw(axes: Axes) -> None:
    """Draw one head of a layer, read upwards, and the doors at its left.

    Args:
        axes: of a canvas of 6.4 by 6.7 inches.
    """
    for y, words in STEPS.items():
        schematics.box(axes, MIDDLE - WIDE / 2, y, WIDE, HIGH, words)
    for low, high in [(3.15, 3.6), (4.0, 4.2), (4.6, 4.8), (5.2, 6.1)]:
        schematics.arrow(axes, (MIDDLE, low), (MIDDLE, high))
    for across, words in ((3.0, "queries $q$"), (4.1, "keys $k$"), (5.3, "values $v$")):
        schematics.box(axes, across - 0.48, 1.45, 0.96, HIGH, words)
        schematics.arrow(axes, (MIDDLE + 0.5 * (across - MIDDLE), 0.55), (across, 1.45))
    schematics.arrow(axes, (3.0, 1.85), (3.4, 2.75))
    schematics.arrow(axes, (4.1, 1.85), (4.0, 2.75))
    schematics.arrow(axes, (5.3, 1.85), (4.75, 5.0), bend=0.25)
    for name, (_, y, tips, formula) in DOORS.items():
        schematics.box(axes, 0.1, y - 0.3, 1.7, 0.6, colour=COLOURS[name])
        schematics.label(axes, 0.95, y + 0.13, name, bold=True, size=10)
        schematics.label(axes, 0.95, y - 0.12, formula, size=10)
        for tip in tips:
            schematics.arrow(axes, (1.8, y), (tip, y), colour=COLOURS[name], width=2.4)


def draw_outside(axes: Axes) -> None:
    """Draw, at the right of the layer, what tells order too and is no door.

    Args:
        axes: of a canvas of 7.6 by 6.7 inches, with the layer on it.
    """
    for name, (words, y) in OUTSIDE.items():
        schematics.box(axes, 6.0, y - 0.42, 1.5, 0.84)
        schematics.label(axes, 6.75, y + 0.22, name, bold=True, size=10)
        schematics.label(axes, 6.75, y - 0.13, words, size=8.5)
        schematics.arrow(axes, (6.0, y), (MIDDLE + WIDE / 2, y), width=2.4)
