"""What a configuration means for positions: what `posdoctor config.json --explain` prints.

For each kind of layer: what rotates, frequencies, wavelengths beside the context, what was
stretched and by how much, the gain, and what looks like a mistake.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import torch
from torch import Tensor

from pe_lib.recent.rotary_values import RotaryValues
from pe_lib.recent.temperature import QueryTemperature
from pe_lib.rope import RoPE
from pe_lib.rope_scaling import DynamicNTK, LongRoPE, yarn_attention_factor
from posdoctor.configs.layer_kinds import unread
from posdoctor.configs.layers import Layer, fields_of, from_config
from posdoctor.configs.rope_types import TRAINED, Head, base_inv_freq, rope_type

SHOWN = 9  # pairs, of each kind of layer
OLD_BASE, OLD_CONTEXT = 10000.0, 16384


def explain(config: object, *, layout: str | None = None, base: float | None = None) -> str:
    """Return what a configuration means, line by line; arguments as in `from_config`."""
    fields = fields_of(config)
    layers = from_config(config, layout=layout, base=base)
    context = fields.get("max_position_embeddings")
    lines = [f"{fields.get('model_type')}: {len(layers)} layers, context {context}"]
    groups: dict[tuple[object, ...], list[int]] = {}
    for index, layer in enumerate(layers):
        groups.setdefault((layer.kind, id(layer.encoding), layer.window), []).append(index)
    for indices in groups.values():
        layer = layers[indices[0]]
        lines += ["", f"layers {runs(indices)}: {layer.kind}"]
        lines += [f"  {line}" for line in words(layer, context)]
    lines += [
        f"warning: {name} is given, and classes of type {fields['model_type']} do not read it"
        for name in unread(fields)
    ]
    return "\n".join(lines)


def words(layer: Layer, context: int | None) -> list[str]:
    """Return the lines on one kind of layer."""
    if layer.encoding is None:
        return ["no attention: order comes from what this layer is"]
    lines = [] if layer.window is None else [f"sees {layer.window} distances, counting 0"]
    if layer.chunk is not None:
        lines.append(f"sees pieces of {layer.chunk} positions, none beyond its own")
    for part in layer.parts:
        if isinstance(part, QueryTemperature):
            lines.append(f"queries grow with their position, from {part.length:g} on")
        if isinstance(part, RotaryValues):
            lines.append("values are rotated too, and the output back")
    rope = layer.rope
    if rope is None:
        return [*lines, "no positions"]
    reach = min(each for each in (context, layer.window, math.inf) if each is not None)
    warned = [f"warning: {doubt}" for doubt in doubts(layer, context).values()]
    return lines + rotation(layer) + table(rope.inv_freq, reach) + warned


def rotation(layer: Layer) -> list[str]:
    """Return what rotates in a layer, by which rule, and by how much it was stretched."""
    rope, parameters = layer.rope, layer.parameters
    assert rope is not None and parameters is not None
    width = 2 * len(rope.inv_freq)
    where = f"the last {width}" if layer.last else f"{width} of {rope.head_dim}"
    lines = [f"rotates {where} components, pairs {rope.layout}, base {parameters['rope_theta']:g}"]
    if layer.sections:
        order = "taking turns" if layer.interleaved_sections else "in blocks"
        lines.append(f"pairs by axis {list(layer.sections)}, {order}; text has one number")
    name = rope_type(parameters)
    if isinstance(rope, DynamicNTK):
        lines.append(f"{name}: stretched past {rope.trained_length} positions, by their number")
    elif isinstance(rope, LongRoPE):
        before = base_inv_freq(parameters, Head(width, width, rope.layout, None))
        long = (before / rope.long_inv_freq).tolist()
        by = f"{min(long):g} to {max(long):g}"
        lines.append(f"{name}: past {rope.trained_length}, divided by {by}")
    elif name != "default":
        lines.append(f"{name}: {stretch(rope.inv_freq, parameters, rope)}")
    if rope.attention_factor != 1:
        lines.append(
            f"gain {rope.attention_factor:.4g}, scores grow by {rope.attention_factor**2:.4g}"
        )
    scale = None if layer.encoding is None else layer.encoding.scale
    if scale is not None and parameters.get("mscale_all_dim"):
        factor = (
            yarn_attention_factor(parameters["factor"], 0.1 * parameters["mscale_all_dim"]) ** 2
        )
        lines.append(f"scores are multiplied by {factor:.4g} besides, as mscale_all_dim says")
    return lines


def stretch(inv_freq: Tensor, parameters: object, rope: RoPE) -> str:
    """Return in words by how much each pair was slowed down."""
    width = 2 * len(inv_freq)
    assert isinstance(parameters, dict)
    before = base_inv_freq(parameters, Head(width, width, rope.layout, None)).tolist()
    by = [
        round(old / new, 4) if new else math.inf
        for old, new in zip(before, inv_freq.tolist(), strict=True)
    ]
    kinds = {
        "left as they were": [j for j, each in enumerate(by) if each == 1],
        "slowed between": [j for j, each in enumerate(by) if 1 < each < max_finite(by)],
        f"divided by {max_finite(by):g}": [
            j for j, each in enumerate(by) if 1 < each == max_finite(by)
        ],
        "stopped": [j for j, each in enumerate(by) if each == math.inf],
    }
    return "; ".join(f"pairs {runs(found)} {kind}" for kind, found in kinds.items() if found)


def max_finite(values: Sequence[float]) -> float:
    """Return the largest number that is not infinite."""
    return max((value for value in values if value < math.inf), default=1.0)


def table(inv_freq: Tensor, reach: float) -> list[str]:
    """Return frequencies and wavelengths of some pairs, and which never finish a turn."""
    rotating = [j for j, rate in enumerate(inv_freq.tolist()) if rate]
    shown = sorted({rotating[round(i * (len(rotating) - 1) / (SHOWN - 1))] for i in range(SHOWN)})
    lines = ["pair  frequency  wavelength"]
    lines += [
        f"{j:4d}  {abs(float(inv_freq[j])):9.3g}  {2 * math.pi / abs(float(inv_freq[j])):10.4g}"
        for j in shown
    ]
    if reach < math.inf:
        slow = [j for j in rotating if abs(float(inv_freq[j])) * reach < 2 * math.pi]
        say = f"pairs {runs(slow)}" if slow else "no pairs"
        lines.append(f"{say} never finish a turn within {reach:g} positions")
    return lines


def doubts(layer: Layer, context: int | None) -> dict[str, str]:
    """Return what looks like a mistake in a layer that rotates: names, and words with the numbers.

    The names are those of the doctor's findings.
    """
    parameters, rope, found = layer.parameters or {}, layer.rope, {}
    base, name = parameters["rope_theta"], rope_type(parameters)
    long = context is not None and layer.window is None and context > OLD_CONTEXT
    if name == "default" and long and base <= OLD_BASE:
        found["base-small"] = (
            f"base {base:g} for a context of {context}: it is what files fall back to; "
            "was the field lost?"
        )
    factor, trained = parameters.get("factor"), parameters.get(TRAINED)
    if name in ("yarn", "longrope", "llama3") and trained is None:
        found["trained-length-missing"] = f"{context} is taken, which is the whole context"
    if name in ("linear", "dynamic", "yarn") and factor == 1:
        found["factor-idle"] = f"{name} with factor 1"
    if isinstance(rope, LongRoPE):
        if context is not None and context <= rope.trained_length:
            found["long-factors-unused"] = f"context {context}, trained {rope.trained_length}"
        elif torch.equal(rope.long_inv_freq, rope.inv_freq):
            found["long-factors-unused"] = "long factors are the short ones"
    if name != "yarn" or rope is None or not factor:  # Llama 3.1's factor is no ratio of lengths
        return found
    if rope.attention_factor == 1.0 and not parameters.get("mscale_all_dim"):
        found["gain-missing"] = f"gain 1, factor {factor:g}"
    if trained and context and abs(factor * trained / context - 1) > 0.01:
        found["factor-unlike-lengths"] = (
            f"factor {factor:g} times the trained length {trained} is "
            f"{factor * trained:g}, and the context is {context}"
        )
    return found


def runs(numbers: Sequence[int]) -> str:
    """Return numbers in words, three or more in a row as "2 to 5"."""
    parts: list[list[int]] = []
    for value in numbers:
        if parts and value == parts[-1][-1] + 1:
            parts[-1].append(value)
        else:
            parts.append([value])
    return ", ".join(
        f"{part[0]} to {part[-1]}" if len(part) > 2 else ", ".join(map(str, part)) for part in parts
    )
