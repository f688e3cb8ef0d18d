"""Methods of the comparison that are more than one encoding: layers that differ, drawn positions.

The others are those of `pe_course.registry`.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from math import pi
from typing import NamedTuple

import torch
from torch import Tensor, nn

from pe_course import registry
from pe_course.model import Transformer
from pe_course.registry import METHODS, Method, Sizes
from pe_course.tasks import coupled_positions
from pe_course.training import generator
from pe_lib.compose import Compose
from pe_lib.encoding import NoPosition, PositionEncoding
from pe_lib.recent.window import SlidingWindow
from pe_lib.rope import RoPE
from pe_lib.rope_scaling import proportional
from pe_lib.sinusoidal import frequencies

REACH = 16  # random positions come from a range this many times as long as the training length
WINDOW = 4  # a window sees one part in so many of the training length
Layers = Callable[[Sizes, int], list[PositionEncoding]]


class Recipe(NamedTuple):
    """How the layers of a model get their encodings.

    Attributes:
        name: as it stands in figures and tables.
        colour: as in `pe_course.registry.Method`.
        layers: returns an encoding for each of so many layers.
        drawn: whether the model sees random positions.
    """

    name: str
    colour: str
    layers: Layers
    drawn: bool = False


def in_windows(sizes: Sizes, rotates: bool = True) -> PositionEncoding:
    """Return a sliding window, with RoPE or without."""
    window = SlidingWindow(sizes.n_heads, sizes.length // WINDOW)
    return Compose(RoPE(sizes.head_dim), window) if rotates else window


def hybrid(sizes: Sizes, n_layers: int) -> list[PositionEncoding]:
    """Return RoPE in windows for all layers but the last, which sees everything unnumbered."""
    return [*[in_windows(sizes)] * (n_layers - 1), NoPosition()]


def all_windows(sizes: Sizes, n_layers: int) -> list[PositionEncoding]:
    """Return RoPE in windows for all layers."""
    return [in_windows(sizes)] * n_layers


def windows_then_rope(sizes: Sizes, n_layers: int) -> list[PositionEncoding]:
    """Return RoPE in windows for all layers but the last, which has RoPE and sees everything."""
    return [*[in_windows(sizes)] * (n_layers - 1), RoPE(sizes.head_dim)]


def rope_below(below: Layers, sizes: Sizes, n_layers: int) -> list[PositionEncoding]:
    """Return what `below` has for all layers but the last, which has no positions."""
    return [*below(sizes, n_layers - 1), NoPosition()]


def windows_alone(sizes: Sizes, n_layers: int) -> list[PositionEncoding]:
    """Return windows for all layers but the last, which sees everything; none has positions."""
    return [*[in_windows(sizes, rotates=False)] * (n_layers - 1), NoPosition()]


def rope_everywhere(sizes: Sizes, n_layers: int) -> list[PositionEncoding]:
    """Return RoPE for all layers, ready for the longest positions that are drawn."""
    return [RoPE(sizes.head_dim)] * n_layers


def rope_that_turns(sizes: Sizes, n_layers: int) -> list[PositionEncoding]:
    """Return RoPE for all layers whose slowest pair turns once within the training length."""
    base = (sizes.length / (2 * pi)) ** (sizes.head_dim / (sizes.head_dim - 2))
    return [RoPE(sizes.head_dim, base)] * n_layers


def most_pairs(sizes: Sizes, n_layers: int) -> list[PositionEncoding]:
    """Return p-RoPE with the paper's share of pairs for all layers."""
    inv_freq = proportional(frequencies(sizes.head_dim), 0.75)
    return [RoPE(sizes.head_dim, inv_freq=inv_freq)] * n_layers


RECIPES = {
    "p_rope_75": Recipe("p-RoPE (0.75)", "#4db6ac", most_pairs),
    "hybrid": Recipe("window hybrid", "#2e7d32", hybrid),
    # What the hybrid is, with one of its parts taken away.
    "all_windows": Recipe("RoPE in windows", "#8bc34a", all_windows),
    "windows_rope": Recipe("RoPE with some windows", "#00838f", windows_then_rope),
    "rope_none": Recipe("RoPE in some layers", "#5d4037", partial(rope_below, rope_everywhere)),
    "windows_none": Recipe("windows without RoPE", "#795548", windows_alone),
    "rope_turns": Recipe("RoPE (all pairs turn)", "#1565c0", rope_that_turns),
    "turns_none": Recipe(
        "RoPE (all pairs turn) in some layers", "#0d47a1", partial(rope_below, rope_that_turns)
    ),
    "randomised": Recipe("RoPE at random positions", "#9e9d24", rope_everywhere, drawn=True),
}
TRAINABLE: dict[str, Method | Recipe] = {**METHODS, **RECIPES}


def encodings(name: str, sizes: Sizes, n_layers: int) -> list[PositionEncoding]:
    """Return the encodings of a method of the registry or of a recipe, one for each layer."""
    if name in RECIPES:
        return RECIPES[name].layers(sizes, n_layers)
    return registry.encodings(METHODS[name], sizes, n_layers)


class AtRandomPositions(nn.Module):
    """A model that gets increasing random positions in place of 0, 1, 2, ...

    They are drawn anew for each batch from a range that is longer than the sequence, in training
    and in measuring alike, so that large positions are nothing new. What is left of a distance is
    its order of magnitude.

    Args:
        model: called with the positions.
        reach: length of the range.
        seed: of the draws.

    Source: Ruoss et al. 2023, section 3.
    """

    def __init__(self, model: Transformer, reach: int, seed: int) -> None:
        """Start the draws."""
        super().__init__()
        self.model, self.reach = model, reach
        self.restart(seed)

    def restart(self, seed: int) -> None:
        """Draw from now on what a fresh model with this seed would."""
        self.random = generator(seed)

    def positions(self, length: int) -> Tensor:
        """Return `length` different positions below `reach`, in order: (length,)."""
        drawn = torch.randperm(self.reach, generator=self.random)[:length]
        if len(drawn) < length:
            raise ValueError(f"length must be at most the reach, {self.reach}, got {length}")
        return drawn.sort().values

    def forward(self, inputs: Tensor) -> Tensor:
        """Return the model's outputs for inputs (B, L) at drawn positions."""
        outputs: Tensor = self.model(inputs, positions=self.positions(inputs.shape[1]))
        return outputs


class AtCoupledPositions(nn.Module):
    """A model that adds numbers and gets one position for all digits that belong together.

    Args:
        model: called with the positions.

    Source: Cho et al. 2024, section 3.
    """

    def __init__(self, model: Transformer) -> None:
        """Keep the model."""
        super().__init__()
        self.model = model

    def forward(self, inputs: Tensor) -> Tensor:
        """Return the model's outputs for sums (B, 3n + 2), see `tasks.addition`."""
        positions = coupled_positions((inputs.shape[1] - 2) // 3)
        outputs: Tensor = self.model(inputs, positions=positions)
        return outputs
