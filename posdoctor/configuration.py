"""What a model's configuration asks for, read as `from_config` reads it; what is odd."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from pe_lib.rope_scaling import DynamicNTK
from posdoctor.configs import Layer, from_config
from posdoctor.configs.checks import Contradiction
from posdoctor.configs.explain import doubts, rotation, runs
from posdoctor.configs.layer_kinds import unread
from posdoctor.configs.layers import TEXT_PARTS, fields_of
from posdoctor.configs.rope_types import rope_type
from posdoctor.probes import Layout
from posdoctor.profile import Case, Profile
from posdoctor.rules import Rule
from posdoctor.subjects import InputError

HARMLESS = ("factor-unlike-lengths", "factor-idle", "long-factors-unused")


def is_configuration(given: Mapping[str, Any]) -> bool:
    """Return whether a mapping is a model's configuration rather than values to expect."""
    own = ("model_type", "rope_parameters", "rope_scaling", "hidden_size", *TEXT_PARTS)
    return any(key in given for key in own) or ("rope_theta" in given and "head_dim" in given)


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
        fields, layers, profiles = read(config, case)
    except Contradiction as error:
        case.fault("contradiction", str(error))
        return {}
    context = fields.get("max_position_embeddings")
    found: dict[str, Profile] = {}
    for kind in dict.fromkeys(layer.kind for layer in layers):
        which = [i for i, layer in enumerate(layers) if layer.kind == kind and profiles[i]]
        profile = profiles[which[0]] if which else None
        if profile is None:
            continue
        label = f"layers {runs(which)} ({kind})" if len(layers) > 1 else "layers"
        layer, found[kind] = layers[which[0]], profile
        case.facts[label] = "; ".join(rotation(layer))
        for name, doubt in doubts(layer, context).items():
            (case.note if name in HARMLESS else case.unsure)(name, doubt)
        if profile.inv_freq is None:
            case.unexamined.append("frequencies past the trained length: they depend on it")
    for name in unread(fields):
        case.unsure("field-unread", f"{name}, in a model of type {fields['model_type']}")
    return found


def read(
    config: Mapping[str, Any], case: Case
) -> tuple[Mapping[str, Any], list[Layer], list[Profile | None]]:
    """Return the fields, the layers, and what is asked of each: None of one that does not rotate.

    A fragment, which names no model type, may leave out what its caller leaves open.

    Raises:
        InputError: if it cannot be read, in the words of `from_config`.
        Contradiction: if it contradicts itself.
    """
    options: dict[str, Any] = {}
    fragment = False
    while True:
        try:
            fields = dict(fields_of(config))
            fragment = fields.get("model_type") is None
            if fragment:
                fields.setdefault("num_hidden_layers", len(fields.get("layer_types") or [0]))
                if any("sliding" in str(kind) for kind in fields.get("layer_types") or ()):
                    fields.setdefault("sliding_window", 1)  # no finding reads how wide it is
            layers = from_config(fields, **options)
        except Contradiction:
            raise
        except (TypeError, ValueError) as error:
            words = str(error)
            if fragment and words.startswith("rope_theta must be") and "base" not in options:
                options["base"] = 10000.0
                case.unsure("base-missing", "10000 is assumed here")
            elif words.startswith("layout must be given") and "layout" not in options:
                options["layout"] = "half"
                case.unexamined.append("layout: the configuration does not tell it")
            else:
                raise InputError(f"the configuration cannot be read: {words}") from error
        else:
            return fields, layers, [profile_of(layer, "layout" not in options) for layer in layers]


def profile_of(layer: Layer, layout_known: bool) -> Profile | None:
    """Return what a layer asks for, in numbers; None if it does not rotate."""
    rope = layer.rope
    if rope is None or layer.parameters is None or layer.width is None:
        return None
    found = Profile("rotary", rope.head_dim, attention_factor=rope.attention_factor)
    rule = rope_type(layer.parameters)
    found.rule = Rule(rule, layer.parameters["rope_theta"], layer.parameters.get("factor") or 1.0)
    found.backwards = bool((rope.inv_freq < 0).any())
    if not isinstance(rope, DynamicNTK):
        inv_freq = rope.inv_freq.detach().double().abs()
        found.inv_freq = inv_freq[inv_freq > 0][:, None]
    if layout_known:
        rotating, found.dim = 2 * len(rope.inv_freq), layer.width
        start = layer.width - rotating if layer.last else 0
        found.layout = Layout(rope.layout, start, rotating)
    return found
