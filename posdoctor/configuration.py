"""What a model's configuration asks for, read as `from_config` reads it; what is odd."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch

from pe_lib.context_extension import DynamicNTK, LongRoPE
from pe_lib.rope import RoPE
from pe_lib.trailing import Trailing
from posdoctor.configs import Layer, from_config
from posdoctor.configs.checks import Contradiction
from posdoctor.configs.explain import doubts, inside, rotation, runs
from posdoctor.configs.layer_kinds import unread
from posdoctor.configs.layers import TEXT_PARTS, fields_of
from posdoctor.configs.rope_types import ALPHA_UNREAD, COMMON, FIELDS, OLD_NAMES, TRAINED, rope_type
from posdoctor.probes import Layout
from posdoctor.profile import Case, Profile
from posdoctor.rules import Rule
from posdoctor.subjects import InputError

NAMES = ("rope_parameters", "rope_scaling")


def is_configuration(given: Mapping[str, Any]) -> bool:
    """Return whether a mapping is a model's configuration rather than values to expect."""
    return any(key in given for key in ("model_type", *NAMES, *TEXT_PARTS, "hidden_size")) or (
        "rope_theta" in given and "head_dim" in given
    )


def examine_configuration(config: Mapping[str, Any], case: Case) -> Profile:
    """Return what a configuration asks of text, and say what is odd about it.

    Where layers differ, the profile is that of the first kind with full attention; every kind is
    in `by_kind`.

    Raises:
        InputError: if it cannot be read.
    """
    profiles = by_kind(config, case)
    if not profiles:
        if case.has("contradiction"):
            return Profile("none")
        case.facts["kind"] = "no layer that is known to rotate"
        return Profile("none")
    chosen = next((name for name in profiles if "full" in name), next(iter(profiles)))
    if len(profiles) > 1:
        case.unexamined.append(
            f"in a comparison, layers of other kinds than {chosen}: {', '.join(profiles)}"
        )
    return profiles[chosen]


def by_kind(config: Mapping[str, Any], case: Case) -> dict[str, Profile]:
    """Return a profile for each kind of layer that rotates, by the kind's name.

    A configuration that contradicts itself is a fault, and has none.

    Raises:
        InputError: if the configuration cannot be read.
    """
    try:
        fields = legible(config, case)
        layers, known = layers_of(fields, case)
    except Contradiction as error:
        case.fault("contradiction", str(error))
        return {}
    context = fields.get("max_position_embeddings")
    found: dict[str, Profile] = {}
    for kind in dict.fromkeys(layer.kind for layer in layers):
        which = [i for i, layer in enumerate(layers) if layer.kind == kind]
        rotating = [i for i in which if rope_of(layers[i]) is not None]
        if rotating:
            layer = layers[rotating[0]]
            label = f"layers {runs(rotating)} ({kind})" if len(layers) > 1 else "layers"
            found[kind] = profile_of(layer, context, label, case)
            if known:
                found[kind].dim = width_of(layer)
                found[kind].layout = where(layer, width_of(layer))
    for name in unread(fields):
        case.unsure("field-unread", f"{name}, in a model of type {fields['model_type']}")
    return found


def by_layer(config: Mapping[str, Any]) -> list[Profile | None]:
    """Return what is asked of each layer: a profile, or None of one that does not rotate.

    Raises:
        InputError: if the configuration cannot be read.
    """
    layers, known = layers_of(legible(config, Case()), Case())
    found: list[Profile | None] = []
    for layer in layers:
        profile = None if rope_of(layer) is None else profile_of(layer, None, "", Case())
        if profile is not None and known:
            profile.dim, profile.layout = width_of(layer), where(layer, width_of(layer))
        found.append(profile)
    return found


def legible(config: Mapping[str, Any], case: Case) -> dict[str, Any]:
    """Return the fields with what a fragment may leave out, less what no rule reads.

    Raises:
        InputError: if it is no configuration.
        Contradiction: if it contradicts itself.
    """
    try:
        fields = dict(fields_of(config))
    except Contradiction:
        raise
    except (TypeError, ValueError) as error:
        raise InputError(f"the configuration cannot be read: {error}") from error
    if fields.get("model_type") is None:
        fields.setdefault("num_hidden_layers", len(fields.get("layer_types") or [0]))
        if any("sliding" in str(kind) for kind in fields.get("layer_types") or ()):
            fields.setdefault("sliding_window", 1)  # no finding reads how wide it is
    for name in NAMES:
        given = fields.get(name)
        if not isinstance(given, Mapping):
            continue
        if any(isinstance(value, Mapping) for value in given.values()):
            fields[name] = {key: readable(part, case) for key, part in given.items()}
        else:
            fields[name] = readable(given, case)
    return fields


def readable(given: Any, case: Case) -> Any:
    """Return rope parameters less what their rule does not read; say what was left out."""
    if not isinstance(given, Mapping):
        return given
    named = given.get("rope_type") or given.get("type") or "default"
    rule = OLD_NAMES.get(str(named), named)
    if not isinstance(named, str) or rule not in FIELDS:
        return given
    allowed = COMMON | FIELDS[rule] | (ALPHA_UNREAD if given.get("alpha") else set())
    unread = sorted(set(given) - allowed)
    if unread:
        case.unsure("field-unread", f"{', '.join(unread)}, in rope parameters of type {rule!r}")
    return {key: value for key, value in given.items() if key in allowed}


def layers_of(fields: dict[str, Any], case: Case) -> tuple[list[Layer], bool]:
    """Return the layers, and whether the configuration tells the layout.

    Raises:
        InputError: if it cannot be read, in the words of `posdoctor.configs.from_config`.
    """
    options: dict[str, Any] = {}
    for _ in range(3):
        try:
            return from_config(fields, **options), "layout" not in options
        except Contradiction:
            raise
        except (TypeError, ValueError) as error:
            words = str(error)
            fragment = fields.get("model_type") is None
            if fragment and words.startswith("rope_theta must be") and "base" not in options:
                options["base"] = 10000.0
                case.unsure("base-missing", "10000 is assumed here")
            elif words.startswith("layout must be given") and "layout" not in options:
                options["layout"] = "half"
                case.unexamined.append("layout: the configuration does not tell it")
            elif words.startswith("rope_type must be one of"):
                case.unsure("unknown-rule", words.split("; ")[-1])
                case.unexamined.append("frequencies: the rule is unknown")
                return [], False
            else:
                raise InputError(f"the configuration cannot be read: {words}") from error
    raise AssertionError("each option is added once")


def rope_of(layer: Layer) -> RoPE | None:
    """Return the rotation of a layer, if it has one."""
    if layer.encoding is None or layer.parameters is None:
        return None
    return next((part for part in inside(layer.encoding) if isinstance(part, RoPE)), None)


def width_of(layer: Layer) -> int:
    """Return the width of the heads of a layer that rotates."""
    assert layer.width is not None
    return layer.width


def at_the_end(layer: Layer) -> bool:
    """Return whether the last components of a head rotate."""
    assert layer.encoding is not None
    return any(isinstance(part, Trailing) for part in layer.encoding.parts())


def where(layer: Layer, width: int) -> Layout:
    """Return the pairs of a layer that rotates, in a head of this width."""
    rope = rope_of(layer)
    assert rope is not None
    rotating = 2 * len(rope.rates)
    return Layout(rope.layout, width - rotating if at_the_end(layer) else 0, rotating)


def profile_of(layer: Layer, context: int | None, label: str, case: Case) -> Profile:
    """Return what one kind of layer asks for, in numbers, in words, and what is odd about it."""
    rope = rope_of(layer)
    assert rope is not None and layer.parameters is not None
    case.facts[label] = "; ".join(rotation(rope, layer, at_the_end(layer)))
    for name, doubt in doubts(layer, context).items():
        (case.note if name == "factor-unlike-lengths" else case.unsure)(name, doubt)
    rule = rope_type(layer.parameters)
    check_rule(rule, rope, layer.parameters, context, case)
    found = Profile("rotary", rope.head_dim, gain=rope.gain)
    found.rule = Rule(rule, layer.parameters["rope_theta"], layer.parameters.get("factor") or 1.0)
    found.backwards = bool((rope.rates < 0).any())
    if isinstance(rope, DynamicNTK):
        case.unexamined.append("frequencies past the trained length: they depend on it")
    else:
        rates = rope.rates.detach().double().abs()
        found.rates = rates[rates > 0][:, None]
    return found


def check_rule(
    rule: str, rope: RoPE, parameters: Mapping[str, Any], context: int | None, case: Case
) -> None:
    """Say what is odd about a rule's numbers."""
    factor = parameters.get("factor")
    if rule in ("yarn", "longrope", "llama3") and parameters.get(TRAINED) is None:
        case.unsure("trained-length-missing", f"{context} is taken, which is the whole context")
    if rule == "yarn" and rope.gain == 1.0 and factor and not parameters.get("mscale_all_dim"):
        case.unsure("gain-missing", f"gain 1, factor {factor:g}")
    if rule in ("linear", "dynamic", "yarn") and factor == 1:
        case.note("factor-idle", f"{rule} with factor 1")
    if isinstance(rope, LongRoPE):
        if context is not None and context <= rope.trained_length:
            case.note("long-factors-unused", f"context {context}, trained {rope.trained_length}")
        elif torch.equal(rope.long_rates, rope.rates):
            case.note("long-factors-unused", "they are the short ones")
