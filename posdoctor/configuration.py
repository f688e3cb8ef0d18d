"""What a model's configuration asks for, read as `from_config` reads it; what is odd."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import torch

from pe_lib.rope_scaling import DynamicNTK, LongRoPE
from posdoctor.configs.checks import Contradiction
from posdoctor.configs.explain import Reading, meaning, runs
from posdoctor.configs.explain import read as read_configuration
from posdoctor.configs.layer_kinds import Fields
from posdoctor.configs.layers import FOREIGN, TEXT_PARTS, Layer
from posdoctor.configs.rope_types import rope_type
from posdoctor.probes import Layout
from posdoctor.profile import Case, Profile
from posdoctor.rules import Rule
from posdoctor.subjects import InputError

ALTERNATING = "height and width, then time"


def is_configuration(given: Mapping[str, Any]) -> bool:
    """Return whether a mapping is a model's configuration rather than values to expect."""
    own = ("model_type", "rope_parameters", "rope_scaling", "hidden_size", *TEXT_PARTS)
    foreign = any(all(mark in given for mark in marks) for marks, _ in FOREIGN.values())
    return foreign or any(key in given for key in own) or {"rope_theta", "head_dim"} <= set(given)


def examine_configuration(config: Mapping[str, Any], case: Case) -> Profile:
    """Return what a configuration asks of text, and say what is odd about it.

    Where layers differ, the profile is that of the first kind with full attention; every kind is
    in `by_kind`.

    Raises:
        InputError: if it cannot be read.
    """
    profiles = by_kind(config, case)
    if not profiles:
        return Profile("none")
    chosen = next((name for name in profiles if "full" in name), next(iter(profiles)))
    others = [name for name in profiles if name != chosen]
    if others:
        case.unexamined.append(f"in a comparison, layers of other kinds: {', '.join(others)}")
    return profiles[chosen]


def by_kind(config: Mapping[str, Any], case: Case) -> dict[str, Profile]:
    """Return a profile for each kind of layer that rotates, by the kind's name.

    Of M-RoPE, the frequencies (pairs, axes) are those of every axis. A configuration that
    contradicts itself is a fault, and has none.

    Raises:
        InputError: if the configuration cannot be read.
    """
    try:
        reading = reading_of(config, case)
    except Contradiction as error:
        case.fault("contradiction", str(error))
        return {}
    found: dict[str, Profile] = {}
    for name, indices in reading.groups.items():
        layer = reading.layers[indices[0]]
        label = f"layers {runs(indices)} ({layer.kind})" if len(reading.layers) > 1 else "layers"
        case.facts[label] = "; ".join(meaning(layer, reading))
        profile = profile_of(layer, reading.layout_known)
        if profile is not None:
            found[name] = profile
            case.unexamined += unsaid(layer)
    for finding in reading.findings:
        case.find(finding.name, finding.level, finding.detail)
    return found


def unsaid(layer: Layer) -> list[str]:
    """Return what a layer's profile does not hold."""
    found = []
    if isinstance(layer.rope, DynamicNTK):
        found.append("frequencies past the trained length: they depend on the length")
    if layer.sections and pair_axes(layer) is None:
        found.append("axes of the pairs: the sections do not give each pair one axis")
    return found


def reading_of(config: Mapping[str, Any], case: Case) -> Reading:
    """Return a configuration as it is read, and say what had to be assumed.

    Raises:
        InputError: if it cannot be read, in the words of `from_config`.
        Contradiction: if it contradicts itself.
    """
    try:
        reading = read_configuration(config, lenient=True)
    except Contradiction:
        raise
    except (TypeError, ValueError) as error:
        raise InputError(f"the configuration cannot be read: {error}") from error
    named = reading.fields.get("model_type")
    if not reading.base_known:
        case.unsure("base-missing", "10000 is assumed here")
    if not reading.layout_known:
        case.unexamined.append("layout: the configuration does not tell it")
    if named is not None and not reading.counted:
        case.unexamined.append("the number of layers: it is missing, and the fewest are assumed")
    if named is not None and not reading.known:
        case.unexamined.append(
            f"whether models of type {named!r} read these fields so: their class is not known here"
        )
    return reading


def read(config: Mapping[str, Any], case: Case) -> tuple[Fields, list[Layer], list[Profile | None]]:
    """Return the fields, the layers, and what is asked of each for text: None without rotation.

    Raises:
        InputError: if it cannot be read, in the words of `from_config`.
        Contradiction: if it contradicts itself.
    """
    reading = reading_of(config, case)
    profiles = [profile_of(layer, reading.layout_known) for layer in reading.layers]
    return reading.fields, reading.layers, [each and for_text(each) for each in profiles]


def profile_of(layer: Layer, layout_known: bool) -> Profile | None:
    """Return what a layer asks for, in numbers; None if it does not rotate."""
    rope = layer.rope
    if rope is None or layer.parameters is None or layer.width is None:
        return None
    found = Profile("rotary", rope.head_dim, attention_factor=rope.attention_factor)
    rule = rope_type(layer.parameters)
    found.rule = Rule(rule, layer.parameters["rope_theta"], layer.parameters.get("factor") or 1.0)
    found.backwards = bool((rope.inv_freq < 0).any())
    axes = pair_axes(layer) or [0] * len(rope.inv_freq)
    acts = torch.nn.functional.one_hot(torch.tensor(axes, device="cpu")).double()
    moving = rope.inv_freq != 0
    found.inv_freq = (rope.inv_freq.detach().double().abs()[:, None] * acts)[moving]
    if isinstance(rope, LongRoPE):
        found.inv_freq_long = (rope.long_inv_freq.double()[:, None] * acts)[moving]
    if isinstance(rope, DynamicNTK | LongRoPE):
        found.long_from = rope.trained_length
    if layout_known:
        rotating, found.dim = 2 * len(rope.inv_freq), layer.width
        start = layer.width - rotating if layer.last else 0
        found.layout = Layout(rope.layout, start, rotating)
    return found


def pair_axes(layer: Layer) -> list[int] | None:
    """Return the axis of each pair, in M-RoPE; None of one axis, or where sections do not tell.

    Source: the classes of transformers. Ernie's sections are of height, width and time.
    """
    sections: Sequence[int] = layer.sections
    pairs = 0 if layer.rope is None else len(layer.rope.inv_freq)
    if not sections or layer.section_order == "components":
        return None
    if layer.section_order == "turns":  # what the two others do not take is the first axis's
        axes = torch.zeros(pairs, dtype=torch.long, device="cpu")
        for axis in (1, 2):
            axes[axis : 3 * sections[axis] : 3] = axis
        return axes.tolist()
    if sum(sections) != pairs:
        return None
    if layer.section_order == ALTERNATING:
        return [1 + pair % 2 for pair in range(sections[0] + sections[1])] + [0] * sections[2]
    return [index % 3 for index, count in enumerate(sections) for _ in range(count)]


def for_text(profile: Profile) -> Profile:
    """Return a profile for text, where all axes of a position have the same number."""
    tables = {name: getattr(profile, name) for name in ("inv_freq", "inv_freq_long")}
    summed = {name: each.sum(1, keepdim=True) for name, each in tables.items() if each is not None}
    return replace(profile, **summed)
