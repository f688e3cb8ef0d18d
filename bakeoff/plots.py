"""Curves read from the CSV, and how a page draws them."""

from __future__ import annotations

import math
import statistics
from collections import defaultdict
from collections.abc import Sequence

from matplotlib.axes import Axes

from bakeoff.cells import Row
from bakeoff.recipes import COLOURS, NAMES
from pages import figures

PRINTED = ("length", "trained", "perplexity")
Curve = dict[int, list[float]]  # length -> one value per seed


def curves(rows: Sequence[Row], task: str, metric: str, scale: str = "small") -> dict[str, Curve]:
    """Return the values of every seed, by variant and length; refused lengths are left out."""
    found: dict[str, Curve] = defaultdict(lambda: defaultdict(list))
    for line in rows:
        kind = (line["scale"], line["task"], line["metric"])
        if kind == (scale, task, metric) and line["value"] != "":
            found[str(line["variant"])][int(str(line["length"]))].append(float(str(line["value"])))
    return {variant: dict(sorted(curve.items())) for variant, curve in found.items()}


def printed_rises(rows: Sequence[Row], source: str) -> dict[str, dict[float, float]]:
    """Return by method how a paper's loss rises, in nats, over multiples of the trained length."""
    nats: dict[str, dict[float, float]] = defaultdict(dict)
    for line in rows:
        if line["source"] == source:
            length, trained, perplexity = (float(str(line[k])) for k in PRINTED)
            nats[str(line["method"])][length / trained] = math.log(perplexity)
    return {v: {x: y - curve[1] for x, y in curve.items()} for v, curve in nats.items()}


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


def name(variant: str) -> str:
    """Return how a variant is written in a legend."""
    method, _, extension = variant.partition("+")
    written = {"pi": "PI", "ntk": "NTK", "dynamic-ntk": "dynamic NTK", "yarn": "YaRN"}
    written |= {"yarn-no-factor": "YaRN without its factor", "factor": "YaRN's factor alone"}
    written |= {"llama3-factor": "Llama 3.1 and YaRN's factor", "cache": "rolling cache"}
    written |= {"llama3": "Llama 3.1", "base": "larger base", "drop": "dropped (DroPE)"}
    if not extension:
        return NAMES[method]
    if extension.startswith("cache-"):
        return f"{NAMES[method]} + rolling cache ({extension.removeprefix('cache-')} ×)"
    return f"{NAMES[method]} + {written.get(extension, extension)}"


def median(values: Sequence[float]) -> float:
    """Return the middle value, which one seed that went another way does not move."""
    return statistics.median(values)


def robust(
    found: dict[str, Curve], better: str, worse: str, length: int, lower_is_better: bool
) -> bool:
    """Return whether the worst seed of one variant is better than the best of another."""
    ours, theirs = found[better][length], found[worse][length]
    return max(ours) < min(theirs) if lower_is_better else min(ours) > max(theirs)


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
