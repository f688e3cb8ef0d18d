"""How a page draws the curves of `pe_course.bakeoff.rows`."""

from __future__ import annotations

from collections.abc import Sequence

from matplotlib.axes import Axes

from pe_course.bakeoff.recipes import TRAINABLE
from pe_course.bakeoff.rows import FINISHED, Curve, median
from pe_course.page import figures

COLOURS = {key: method.colour for key, method in TRAINABLE.items()}
COLOURS |= {key: colour for key, (_, colour) in FINISHED.items()}
# RoPE's extensions have shades between violet and blue, near RoPE's own.
EXTENSION_COLOURS = {
    "rope": figures.METHOD_COLOURS["rope"],
    "rope+pi": "#8a7be8",
    "rope+ntk": "#6a3fc8",
    "rope+dynamic-ntk": "#b04fd6",
    "rope+yarn": "#0e0a3c",
    "rope+llama3": "#4f7fe0",
}
TUNED_COLOURS = {"rope+base": "#7fb3d5", "rope+drop": "#00695c"}


def colour(variant: str) -> str:
    """Return the colour of a variant: its method's, or its own if it is an extension of RoPE."""
    own = EXTENSION_COLOURS | TUNED_COLOURS
    return own.get(variant) or COLOURS[variant.partition("+")[0]]


def draw_one(axes: Axes, curve: Curve, variant: str, *, label: str = "", dash: str = "-") -> None:
    """Draw one variant: a line through the medians, a dot for every seed, a band from end to end.

    Args:
        axes: where to draw.
        curve: of this variant, as in `curves`.
        variant: gives the colour.
        label: in a legend; none if empty.
        dash: style of the line.
    """
    shade, lengths = colour(variant), list(curve)
    least, most = ([end(values) for values in curve.values()] for end in (min, max))
    axes.fill_between(lengths, least, most, color=shade, alpha=0.18, lw=0)
    axes.plot(lengths, [median(v) for v in curve.values()], dash, color=shade, label=label or None)
    dots = [(length, value) for length, values in curve.items() for value in values]
    axes.plot(*zip(*dots, strict=True), "o", ms=2.8, color=shade)


def draw_ghosts(axes: Axes, found: dict[str, Curve], variants: Sequence[str]) -> None:
    """Draw the medians of other variants as thin grey lines, for comparison."""
    for variant in variants:
        curve = found[variant]
        axes.plot(list(curve), [median(v) for v in curve.values()], color="#c3c9d1", lw=0.9)


def times_trained(axes: Axes, trained: int, multiples: Sequence[int] = (1, 2, 4, 8, 16)) -> None:
    """Mark a logarithmic axis of lengths in multiples of the trained length."""
    axes.set_xscale("log", base=2)
    axes.set_xticks([trained * multiple for multiple in multiples], [f"{m}" for m in multiples])
    axes.minorticks_off()
