"""What a configuration means for positions: what `posdoctor config.json --explain` prints.

For each kind of layer: what rotates, frequencies, wavelengths beside the context, what was
stretched and by how much, the attention factor, and what looks like a mistake. The doctor says the
same of a configuration, as facts and findings.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

import torch
from torch import Tensor

from pe_lib.recent.rotary_values import RotaryValues
from pe_lib.recent.temperature import QueryTemperature
from pe_lib.rope import RoPE
from pe_lib.rope_scaling import (
    DynamicNTK,
    LongRoPE,
    longrope_attention_factor,
    yarn_attention_factor,
)
from posdoctor.configs import model_types
from posdoctor.configs.layer_kinds import Fields, own_bases, period_of, row_of, unread
from posdoctor.configs.layers import Layer, fields_of, from_config, ignores_flat_parameters, text_of
from posdoctor.configs.rope_types import TRAINED, Head, base_inv_freq, rope_type
from posdoctor.findings import FAULT, NOTE, UNSURE, Finding
from posdoctor.rules import usual

SHOWN = 9  # pairs, of each kind of layer
OLD_BASE, OLD_CONTEXT = 10000.0, 16384
ROUNDED = 0.01  # to which lengths and factors are written in files
ORDERS = {"blocks": "in blocks", "turns": "taking turns"}


@dataclass(frozen=True)
class Reading:
    """A configuration as it is read.

    Attributes:
        fields: by today's names, with what the class takes for granted.
        layers: first to last.
        known: whether the class of its type is known; else nothing says how it reads the fields.
        layout_known: whether a field, the class or the caller says which components pair.
        base_known: the same of the base.
        counted: whether a field or the class says how many layers there are.
        said: fields that the file itself has.
    """

    fields: Fields
    layers: list[Layer]
    known: bool
    layout_known: bool = True
    base_known: bool = True
    counted: bool = True
    said: Fields = field(default_factory=dict)

    @property
    def groups(self) -> dict[str, list[int]]:
        """The layers that mean the same, by kind; where a kind rotates in two ways, by number."""
        found: dict[tuple[object, ...], list[int]] = {}
        for index, layer in enumerate(self.layers):
            same = layer.kind, id(layer.encoding), layer.window, layer.chunk
            found.setdefault(same, []).append(index)
        turning = [self.layers[index].rope is not None for index, *_ in found.values()]
        kinds = [kind for (kind, *_), turns in zip(found, turning, strict=True) if turns]
        return {
            str(kind)
            if turns and kinds.count(kind) == 1
            else f"{kind}, layers {runs(indices)}": indices
            for ((kind, *_), indices), turns in zip(found.items(), turning, strict=True)
        }

    @property
    def findings(self) -> Iterator[Finding]:
        """What looks like a mistake, in the file and in each kind of layer."""
        for indices in self.groups.values():
            yield from doubts(self.layers[indices[0]], self.fields)
        yield from self.of_file

    @property
    def of_file(self) -> Iterator[Finding]:
        """What looks like a mistake in the file as a whole."""
        named = self.fields.get("model_type")
        for name in unread(self.fields):
            detail = f"{name} is given, and classes of type {named} do not read it"
            yield Finding("field-unread", UNSURE, detail)
        yield from self.idle_window()
        if ignores_flat_parameters(self.fields):
            given = f"rope_parameters are for all layers, and classes of type {named}"
            yield Finding("not-by-kind", FAULT, f"{given} read them by kind of layer only")

    def idle_window(self) -> Iterator[Finding]:
        """Yield that a window is named and no layer has one, unless the file switches it off."""
        window, switch = self.said.get("sliding_window"), "use_sliding_window"
        off = self.said.get(switch) is False or self.said.get("layer_types")
        if not window or off or switch not in row_of(self.fields).get("fields", {}):
            return
        if all(layer.window is None for layer in self.layers):
            names = (name for name in (switch, "max_window_layers") if name in self.fields)
            told = ", ".join(f"{name} is {self.fields[name]}" for name in names)
            detail = f"sliding_window {window} in {len(self.layers)} layers; {told}"
            yield Finding("window-idle", UNSURE, detail)


def read(
    config: object, *, layout: str | None = None, base: float | None = None, lenient: bool = False
) -> Reading:
    """Read a configuration whose class need not be known.

    Args:
        config: as in `from_config`.
        layout: as in `from_config`.
        base: as in `from_config`.
        lenient: the number of layers may be missing: there are then as few as show every kind.
            A fragment, which names no model type, may leave out its base and its window, too.

    Raises:
        TypeError, ValueError: as in `from_config`.
    """
    given = text_of(config)
    known = given.get("model_type") in model_types.ROTATING
    fragment = given.get("model_type") is None
    if lenient and fragment:
        named = fields_of(given)
        if any("sliding" in str(kind) for kind in named.get("layer_types") or ()):
            given = {"sliding_window": 1, **given}  # no finding reads how wide it is
    pairs, rate, counted = layout, base, True
    while True:
        try:
            layers = from_config(given, layout=pairs, base=rate)
        except (TypeError, ValueError) as error:
            if lenient and str(error) == "num_hidden_layers must be an int, got None":
                given["num_hidden_layers"], counted = period_of(fields_of(given)), False
            elif str(error).startswith("layout must be given"):
                pairs = "half"  # nothing is said of it
            elif lenient and fragment and str(error).startswith("rope_theta must be given"):
                rate = OLD_BASE
            else:
                raise
        else:
            found = pairs == layout, rate == base, counted
            return Reading(fields_of(given), layers, known, *found, given)


def explain(config: object, *, layout: str | None = None, base: float | None = None) -> str:
    """Return what a configuration means, line by line; arguments as in `from_config`."""
    reading = read(config, layout=layout, base=base)
    fields, layers = reading.fields, reading.layers
    context = fields.get("max_position_embeddings")
    lines = [f"{fields.get('model_type')}: {len(layers)} layers, context {context}"]
    if not reading.known:
        lines.append("The class of this type is not known here: this is what the fields ask for.")
    for indices in reading.groups.values():
        layer = layers[indices[0]]
        lines += ["", f"layers {runs(indices)}: {layer.kind}"]
        shown = [*meaning(layer, reading), *table(layer, context)]
        lines += [f"  {line}" for line in shown]
        lines += [f"  warning: {doubt.detail}" for doubt in doubts(layer, fields)]
    return "\n".join(lines + [f"warning: {each.detail}" for each in reading.of_file])


def meaning(layer: Layer, reading: Reading) -> list[str]:
    """Return in words what a layer sees, what its positions do, and by which rule."""
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
    if layer.rope is None:
        return [*lines, "no positions"]
    return lines + rotation(layer, reading)


def rotation(layer: Layer, reading: Reading) -> list[str]:
    """Return what rotates in a layer, by which rule, and by how much it was stretched."""
    rope, parameters = layer.rope, layer.parameters
    assert rope is not None and parameters is not None
    width = 2 * len(rope.inv_freq)
    where = f"the last {width}" if layer.last else f"{width} of {rope.head_dim}"
    asks = "rotates" if reading.known else "the fields ask for the rotation of"
    pairs = f"pairs {rope.layout}" if reading.layout_known else "pairs not known"
    lines = [f"{asks} {where} components, {pairs}, base {parameters['rope_theta']:g}"]
    if layer.sections:
        order = ORDERS.get(layer.section_order, layer.section_order)
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
        squared = f"scores are multiplied by {rope.attention_factor**2:.4g}"
        lines.append(f"attention factor {rope.attention_factor:.4g}: {squared}")
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


def table(layer: Layer, context: int | None) -> list[str]:
    """Return frequencies and wavelengths of some pairs, and which never finish a turn."""
    if layer.rope is None:
        return []
    rates = layer.rope.inv_freq.abs().tolist()
    reach = min(each for each in (context, layer.window, math.inf) if each is not None)
    rotating = [j for j, rate in enumerate(rates) if rate]
    shown = sorted({rotating[round(i * (len(rotating) - 1) / (SHOWN - 1))] for i in range(SHOWN)})
    lines = ["pair  frequency  wavelength"]
    lines += [f"{j:4d}  {rates[j]:9.3g}  {2 * math.pi / rates[j]:10.4g}" for j in shown]
    if reach < math.inf:
        slow = [j for j in rotating if rates[j] * reach < 2 * math.pi]
        say = f"pairs {runs(slow)}" if slow else "no pairs"
        lines.append(f"{say} never finish a turn within {reach:g} positions")
    return lines


def doubts(layer: Layer, fields: Fields) -> Iterator[Finding]:
    """Yield what looks like a mistake in a layer that rotates, with the numbers."""
    parameters, rope, context = layer.parameters, layer.rope, fields.get("max_position_embeddings")
    if parameters is None or rope is None:
        return
    base, name = parameters["rope_theta"], rope_type(parameters)
    long = context is not None and layer.window is None and context > OLD_CONTEXT
    if name == "default" and long and base <= OLD_BASE:
        fallback = "it is what files fall back to; was the field lost?"
        told = f"base {base:g} for a context of {context}: {fallback}"
        yield Finding("base-small", UNSURE, told)
    if base not in own_bases(fields) and not usual(base, len(layer.sections) or 1):
        yield Finding("unusual-base", UNSURE, f"base {base:g}")
    factor, trained = parameters.get("factor"), parameters.get(TRAINED)
    if name in ("yarn", "longrope", "llama3") and trained is None:
        taken = f"{context} is taken, which is the whole context"
        yield Finding("trained-length-missing", UNSURE, taken)
    if name in ("linear", "dynamic", "yarn") and factor == 1:
        yield Finding("factor-idle", NOTE, f"{name} with factor 1")
    if isinstance(rope, LongRoPE):
        if context is not None and context <= rope.trained_length:
            told = f"context {context}, trained {rope.trained_length}"
            yield Finding("long-factors-unused", NOTE, told)
        elif torch.equal(rope.long_inv_freq, rope.inv_freq):
            yield Finding("long-factors-unused", NOTE, "long factors are the short ones")
    if factor and factor > 1 and name in ("yarn", "longrope"):
        yield from doubts_of_attention_factor(layer, rope, factor, fields)
    reach = factor * trained if factor and trained and name == "yarn" else context
    if reach and context and abs(reach / context - 1) > ROUNDED:  # Llama 3.1's is no such ratio
        lengths = f"factor {factor:g} times the trained length {trained} is {reach:g}"
        told = f"{lengths}, and the context is {context}"
        yield Finding("factor-unlike-lengths", NOTE, told)


def doubts_of_attention_factor(
    layer: Layer, rope: RoPE, factor: float, fields: Fields
) -> Iterator[Finding]:
    """Yield what is odd about the factor on queries and keys of a layer that is stretched."""
    parameters = layer.parameters or {}
    given, name = rope.attention_factor, rope_type(parameters)
    row = row_of(fields)
    own = [part.get("scaled", {}) for part in row.get("rope", {}).values() if part]
    own.append(row.get("fields", {}).get("rope_scaling") or {})
    forced = any(part.get("attention_factor") == given for part in own)
    moved = bool(parameters.get("mscale_all_dim"))  # into the scale of the softmax
    length = parameters.get(TRAINED) or fields.get("max_position_embeddings")
    rule = yarn_attention_factor(factor)
    if isinstance(rope, LongRoPE):
        rule = longrope_attention_factor(factor, rope.trained_length)
    if name == "yarn" and given == 1.0 and not moved and not forced:
        told = f"the attention factor is 1, and YaRN's for factor {factor:g} is {rule:.4g}"
        yield Finding("gain-missing", UNSURE, told)
    if given < 1 and length and not moved and not forced:
        level = UNSURE if abs(given * rule - 1) < ROUNDED else FAULT  # some undo it elsewhere
        told = f"attention_factor {given:.4g}, and {name}'s for factor {factor:g} is {rule:.4g}"
        yield Finding("attention-factor-small", level, told)


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
