"""A report as a figure."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from matplotlib.axes import Axes
from matplotlib.figure import Figure

from lab import figures

LEAST = 1e-9  # below this an error is drawn as this


def draw(curves: dict[str, Any]) -> Figure:
    """Return a figure of what was measured: one panel for each curve there is."""
    known: dict[str, Callable[[Axes, Any], None]] = {
        "mixing": mixing,
        "rates": rates,
        "precision": precision,
        "relativity": relativity,
        "bias": bias,
    }
    panels = [name for name in known if name in curves]
    figure, axes = figures.new(3.6 * max(len(panels), 1), 3, columns=max(len(panels), 1),
                               squeeze=False)  # fmt: skip
    for name, one in zip(panels, axes[0], strict=False):
        known[name](one, curves[name])
    if not panels:
        axes[0, 0].text(0.5, 0.5, "nothing could be measured", ha="center")
    return figure


def mixing(axes: Axes, matrix: object) -> None:
    """Draw how much each component of the input reaches each of the output."""
    figures.heatmap(axes, matrix, title="which components mix", x="input", y="output", bar=False)


def rates(axes: Axes, values: object) -> None:
    """Draw the frequency of each pair, a line for each axis."""
    table = values.clamp(min=LEAST).numpy()  # type: ignore[attr-defined]
    axes.semilogy(table, ".-")
    axes.set(title="frequencies", xlabel="pair", ylabel="radians per position")


def precision(axes: Axes, curves: dict[str, tuple[object, object]]) -> None:
    """Draw the worst angle's error against the position."""
    for name, (places, error) in curves.items():
        axes.loglog(places, error.clamp(LEAST, 4), label=name)  # type: ignore[attr-defined]
    axes.set(title="error of the angle", xlabel="position", ylabel="radians")
    axes.legend()


def relativity(axes: Axes, curve: tuple[object, object, dict[str, object]]) -> None:
    """Draw how much scores at fixed distances move with the position."""
    starts, _, found = curve
    for name, error in found.items():
        worst = error.amax(1).clamp(min=LEAST)  # type: ignore[attr-defined]
        axes.loglog(starts[1:], worst[1:], ".-", label=name)  # type: ignore[index]
    axes.set(title="change of a score", xlabel="position of the key", ylabel="share of |q||k|")
    axes.legend()


def bias(axes: Axes, table: object) -> None:
    """Draw the bias of each head against the relative position."""
    span = table.shape[1] // 2  # type: ignore[attr-defined]
    axes.plot(range(-span, span + 1), table.T.numpy())  # type: ignore[attr-defined]
    axes.set(title="bias", xlabel="key - query", ylabel="added to the logit")
