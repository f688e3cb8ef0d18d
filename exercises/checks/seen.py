"""Draw what an answer gives, below its check. Nothing here is judged."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from exercises.checks.ch07_t5 import first_distances, squared_error
from exercises.checks.spec import Answer, Draw
from pe_lib.rope import apply_rope, rope_angles
from pe_lib.sinusoidal import frequencies

if TYPE_CHECKING:
    from matplotlib.axes import Axes

PALE = "0.75"  # what should come out, behind what does


def continued(answer: Answer, axes: Axes) -> None:
    """Draw a column of a table without a formula, and a hundred rows past its end."""
    angles = torch.arange(140)[:, None] * torch.tensor([1.3, 0.31, 0.07]).double()  # (140, 3)
    mixture = Draw(0).normal(6, 6).double()
    whole = torch.cat([angles.sin(), angles.cos()], dim=1) @ mixture
    later = torch.stack([torch.as_tensor(answer(whole[:40], n + 1)) for n in range(100)])
    axes.plot(whole[:, 0], color=PALE, linewidth=5, label="as it was made")
    axes.plot(whole[:40, 0], label="the table")
    axes.plot(range(40, 140), later[:, 0], label="your rows")
    axes.set(xlabel="position", ylabel="column 0")


def best_edges(answer: Answer, axes: Axes) -> None:
    """Draw a curve over distances, and the steps that T5's buckets and the best ones make of it."""
    n = torch.arange(128).double()
    curve = -(1 + n).log() + 3 * (-((n - 24) ** 2) / 20).exp()  # it looks for something at 24
    axes.plot(curve, color=PALE, linewidth=5, label="wanted")
    for name, edges in (("T5", first_distances(8, 128)), ("yours", answer(curve, 8))):
        starts = [int(edge) for edge in edges]
        ends = [*starts[1:], len(n)]
        steps = torch.cat([curve[a:b].mean().expand(b - a)
                           for a, b in zip(starts, ends, strict=True)])  # fmt: skip
        error = squared_error(curve, torch.tensor(starts))
        axes.plot(steps, label=f"{name}: squared error {error:.1f}")
    axes.set(xlabel="distance", ylabel="number of the bucket")


def converted(answer: Answer, axes: Axes) -> None:
    """Draw by how much scores change, by distance, with the listing's weights and mended."""
    draw, d, places = Draw(0), 16, torch.arange(64)
    weights = draw.normal(2, d, d)
    x = draw.normal(64, d)
    angles = rope_angles(places, frequencies(d // 2).float())  # half of the width rotates
    listed = tuple(w.unflatten(0, (-1, 2)).transpose(0, 1).flatten(0, 1) for w in weights)

    def scores(w: tuple[Tensor, ...], layout: str) -> Tensor:
        q, k = (apply_rope(x @ each.T, angles, layout=layout) for each in w)
        return q @ k.T

    before = scores(tuple(weights), "interleaved")
    for name, w in (("of the listing", listed), ("mended", answer(*listed, d, d // 2))):
        change = (scores(tuple(w), "half") - before).abs()
        axes.plot([change.diagonal(-n).mean() for n in places], label=f"weights {name}")
    axes.set(xlabel="distance", ylabel="mean change of a score")


def positions_used(answer: Answer, axes: Axes) -> None:
    """Draw where tokens were put by a cache that forgets its offset."""
    given = torch.cat([torch.arange(12), torch.zeros(8).long()])  # twelve at once, then one by one
    x = 1 + Draw(0).normal(1, 20, 16).abs()
    y = apply_rope(x, rope_angles(given, frequencies(16).float()))
    axes.plot(range(20), color=PALE, linewidth=5, label="its own position")
    axes.plot(torch.as_tensor(answer(x, y))[0], "o", label="as you read it")
    axes.set(xlabel="token", ylabel="position")


PICTURES = {each.__name__: each for each in (continued, best_edges, converted, positions_used)}


def see(name: str) -> None:
    """Draw what the answer of that name gives, which the notebook that calls this has defined."""
    from matplotlib import pyplot as plt

    answer = sys._getframe(1).f_globals.get(name)
    figure, axes = plt.subplots(figsize=(7, 3), layout="constrained")
    try:
        if answer is None:
            raise NotImplementedError
        PICTURES[name](answer, axes)
    except NotImplementedError:
        print(f"{name} is not answered yet; then there is something to see here.")
        plt.close(figure)
        return
    axes.legend()
    plt.show()
