"""One trained model, measured in several ways past its training length.

A variant changes the encoding and no weight: RoPE's frequencies, or what a learned table does
beyond its last row. Two more are meant for some further training and measured after it: RoPE with
a larger base, and RoPE taken away.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from torch import Tensor

from bakeoff.grid import GATED, PRETRAINED, Cell
from bakeoff.recipes import AtCoupledPositions, AtRandomPositions
from lab.hierarchical import Beyond
from lab.model import Transformer
from lab.pretrained import GlassLM
from pe_lib import rope_scaling
from pe_lib.compose import Compose
from pe_lib.encoding import NoPosition, PositionEncoding
from pe_lib.recent.window import SlidingWindow
from pe_lib.rope import RoPE
from pe_lib.sinusoidal import frequencies

Make = Callable[[Cell, int], PositionEncoding]


def rescaled(new_inv_freq: Callable[[Tensor, float, int], Tensor], *, yarn: bool = False) -> Make:
    """Return a maker of RoPE with changed frequencies, for `length` over the trained length."""

    def make(cell: Cell, length: int) -> PositionEncoding:
        head_dim = cell.d_model // cell.n_heads
        factor = max(1.0, length / cell.train_length)
        inv_freq = new_inv_freq(frequencies(head_dim), factor, cell.train_length)
        attention_factor = rope_scaling.yarn_attention_factor(factor) if yarn else 1.0
        return RoPE(head_dim, inv_freq=inv_freq, attention_factor=attention_factor)

    return make


def dynamic(cell: Cell, length: int) -> PositionEncoding:
    """Return dynamic NTK with the factor that published configurations use, 2."""
    return rope_scaling.DynamicNTK(cell.d_model // cell.n_heads, 2.0, cell.train_length)


def larger_base(cell: Cell, length: int) -> PositionEncoding:
    """Return RoPE with base 500,000, which Xiong et al. 2024 chose for training on, whatever L."""
    return RoPE(cell.d_model // cell.n_heads, 500_000.0)


# Each rule is the library's, as chapter 13 teaches it.
EXTENSIONS: dict[str, Make] = {
    "rope+pi": rescaled(
        lambda inv_freq, factor, _: rope_scaling.position_interpolation(inv_freq, factor)
    ),
    "rope+ntk": rescaled(lambda inv_freq, factor, _: rope_scaling.ntk_aware(inv_freq, factor)),
    "rope+dynamic-ntk": dynamic,
    "rope+yarn": rescaled(rope_scaling.yarn, yarn=True),
    "rope+llama3": rescaled(rope_scaling.llama3),
}


class RollingCache(Compose):
    """An encoding as it is, over a cache that holds the last keys alone.

    Args:
        encoding: of the layer.
        cell: whose model it is.
        window: keys that the cache holds, as a multiple of the training length.
    """

    def __init__(self, encoding: PositionEncoding, cell: Cell, window: float = 1) -> None:
        """Add a window to the encoding."""
        super().__init__(encoding, SlidingWindow(cell.n_heads, round(window * cell.train_length)))


def rolling_cache(window: float) -> Make:
    """Return a maker of RoPE as trained over a rolling cache, see `RollingCache`."""
    return lambda cell, _: RollingCache(RoPE(cell.d_model // cell.n_heads), cell, window)


# For the scale "rules", see `bakeoff.rules`. The attention factor is YaRN's; with it and without it
# both rules that count turns are measured.
RULES: dict[str, Make] = EXTENSIONS | {
    "rope+yarn-no-factor": rescaled(rope_scaling.yarn),
    "rope+llama3-factor": rescaled(rope_scaling.llama3, yarn=True),
    "rope+factor": rescaled(lambda inv_freq, *_: inv_freq, yarn=True),
    "rope+cache": rolling_cache(1),
}
WINDOWS = {f"rope+cache-{window:g}": rolling_cache(window) for window in (0.25, 0.5, 0.75, 1.5, 2)}
# What needs training to be of use. Taking RoPE away is DroPE (Gelberg et al. 2025).
TUNED: dict[str, Make] = {"rope+base": larger_base, "rope+drop": lambda *_: NoPosition()}
BEYOND = ("clamp", "wrap", "interpolate")


def variants(cell: Cell) -> list[str]:
    """Return the ways in which a cell's model is measured; the first is the method as it is."""
    if len(cell.multiples) == 1:
        return [cell.method]
    rules = list(EXTENSIONS)
    if cell.scale == "rules" and cell.method == "rope":
        rules = [*RULES, *(WINDOWS if cell.task in ("marker", PRETRAINED) else ())]
    elif cell.scale in ("rules", GATED):
        return [cell.method, f"{cell.method}+cache"]
    more = {"rope": rules, "learned": [f"learned+{way}" for way in BEYOND]}
    return [cell.method, *more.get(cell.method, [])]


Model = Transformer | AtRandomPositions | AtCoupledPositions | GlassLM


def cached_keys(cell: Cell, variant: str) -> int:
    """Return how many keys a variant's rolling cache holds, or 0 if it has none."""
    _, cache, window = variant.partition("+cache")
    return round(float(window.removeprefix("-") or 1) * cell.train_length) if cache else 0


def put_over_cache(model: Any, cell: Cell, variant: str) -> None:
    """Give each layer a rolling cache of the training length, or take it away again."""
    for block in getattr(model, "model", model).blocks:
        layer = block.attention
        if isinstance(layer.encoding, RollingCache):
            layer.encoding = layer.encoding.members()[0]
        if cached_keys(cell, variant):
            layer.encoding = RollingCache(layer.encoding, cell)


def dress(model: Model, cell: Cell, variant: str, length: int) -> None:
    """Give a trained model the encoding of a variant, for sequences of `length`.

    Random positions are drawn from the length, so that no measurement depends on another.
    """
    if isinstance(model, Transformer) and cell.method == "learned":
        way, table = variant.partition("+")[2], model.encoding
        trained: Any = table.trained if isinstance(table, Beyond) else table
        model.use_encoding(Beyond(trained, way) if way else trained)
    if cell.scale in ("rules", GATED) and cell.method != "rope":
        put_over_cache(model, cell, variant)
    if isinstance(model, AtRandomPositions):
        model.restart(length)
    elif cell.method == "rope" and not isinstance(model, AtCoupledPositions):
        make = (RULES | WINDOWS | TUNED).get(variant)
        plain = RoPE(cell.d_model // cell.n_heads)
        model.use_encoding(make(cell, length) if make else plain)
