"""One trained model, measured in several ways past its training length.

A variant changes the encoding and no weight: RoPE's frequencies, or what a learned table does
beyond its last row. Two more are meant for some further training and measured after it: RoPE with
a larger base, and RoPE taken away.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from torch import Tensor

from pe_course.bakeoff.grid import Cell
from pe_course.bakeoff.recipes import AtCoupledPositions, AtRandomPositions
from pe_course.hierarchical import Beyond
from pe_course.model import Transformer
from pe_course.pretrained import GlassLM
from pe_lib import rope_scaling
from pe_lib.encoding import NoPosition, PositionEncoding
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


# What needs training to be of use. Taking RoPE away is DroPE (Gelberg et al. 2025).
TUNED: dict[str, Make] = {"rope+base": larger_base, "rope+drop": lambda *_: NoPosition()}
BEYOND = ("clamp", "wrap", "interpolate")


def variants(cell: Cell) -> list[str]:
    """Return the ways in which a cell's model is measured; the first is the method as it is."""
    if len(cell.multiples) == 1:
        return [cell.method]
    more = {"rope": list(EXTENSIONS), "learned": [f"learned+{way}" for way in BEYOND]}
    return [cell.method, *more.get(cell.method, [])]


Model = Transformer | AtRandomPositions | AtCoupledPositions | GlassLM


def dress(model: Model, cell: Cell, variant: str, length: int) -> None:
    """Give a trained model the encoding of a variant, for sequences of `length`.

    Random positions are drawn from the length, so that no measurement depends on another.
    """
    if isinstance(model, Transformer) and cell.method == "learned":
        way, table = variant.partition("+")[2], model.encoding
        trained: Any = table.trained if isinstance(table, Beyond) else table
        model.use_encoding(Beyond(trained, way) if way else trained)
    if isinstance(model, AtRandomPositions):
        model.restart(length)
    elif cell.method == "rope" and not isinstance(model, AtCoupledPositions):
        make = (EXTENSIONS | TUNED).get(variant)
        plain = RoPE(cell.d_model // cell.n_heads)
        model.use_encoding(make(cell, length) if make else plain)
