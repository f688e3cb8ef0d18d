"""From a published configuration to the position encoding of every layer.

    from posdoctor.configs import from_config
    layers = from_config(json.load(open("config.json")))

A configuration object of transformers will do as well; neither needs transformers.
`posdoctor config.json --explain` prints what a configuration means.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from pe_lib.compose import Compose
from pe_lib.encoding import NoPosition, PositionEncoding
from pe_lib.recent.mla import DecoupledRotation
from pe_lib.recent.rotary_values import RotaryValues
from pe_lib.recent.temperature import QueryTemperature
from pe_lib.rope import RoPE
from pe_lib.rope_scaling import yarn_attention_factor
from pe_lib.sinusoidal import LAYOUTS
from posdoctor.configs import checks, model_types
from posdoctor.configs.checks import (
    FIELDS,
    Contradiction,
    check_beside,
    check_count,
    check_fields,
    check_heads,
    check_indices,
    check_parameters_by_kind,
    check_sections,
    mapping,
)
from posdoctor.configs.layer_kinds import (
    RECURRENT,
    Fields,
    by_place,
    first,
    head_width,
    is_by_kind,
    kinds_of,
    reads_share,
    rotates,
    row_of,
    unread,
    unstretched,
    window_of,
)
from posdoctor.configs.rope_types import TRAINED, Head, rope_from, rope_type

OR_DEFAULT = ("rope_parameters", "rope_scaling", "layer_types")  # null says nothing, as in classes
BESIDE = ("rope_theta", "rope_scaling", "partial_rotary_factor")  # of old files
TEXT_PARTS = ("text_config", "thinker_config", "llm_config", "language_config")


@dataclass(frozen=True)
class Layer:
    """What a configuration says about the positions of one layer.

    Attributes:
        kind: in the configuration's own word, as "sliding_attention".
        encoding: for queries and keys of the layer's full head; layers that mean the same share
            one. `NoPosition` where attention goes without, None where there is no attention.
        window: distances seen, counting 0, as `SlidingWindow` takes it; None for all.
        chunk: length of the pieces that attention does not leave (Llama 4), or None.
        sections: pairs that rotate by time, by height and by width (M-RoPE); none for one axis. For
            text, whose three numbers are equal, `encoding` is all of it.
        section_order: how the axes follow one another over the pairs: "blocks", "turns", "height
            and width, then time", or "components" where a pair may have two axes.
        parameters: the rope parameters that `encoding` is made of, or None.
        width: of a head's queries and keys, or None where there is no attention.
    """

    kind: str
    encoding: PositionEncoding | None
    window: int | None = None
    chunk: int | None = None
    sections: tuple[int, ...] = ()
    section_order: str = "blocks"
    parameters: Fields | None = None
    width: int | None = None

    @property
    def parts(self) -> list[PositionEncoding]:
        """The parts of the encoding, and what they hold."""
        return [] if self.encoding is None else list(inside(self.encoding))

    @property
    def rope(self) -> RoPE | None:
        """The rotation, if there is one."""
        if self.parameters is None:
            return None
        return next((part for part in self.parts if isinstance(part, RoPE)), None)

    @property
    def last(self) -> bool:
        """Whether the last components of a head rotate."""
        return any(isinstance(part, DecoupledRotation) for part in self.parts)


def inside(encoding: PositionEncoding) -> Iterator[PositionEncoding]:
    """Yield an encoding's parts, and what they hold."""
    for part in encoding.parts():
        yield part
        if isinstance(part, DecoupledRotation):
            yield from inside(part.encoding)
        if isinstance(part, RotaryValues):
            yield part.rope


def from_config(
    config: object, *, layout: str | None = None, base: float | None = None
) -> list[Layer]:
    """Return what each layer of a published model does with positions, first to last.

    Args:
        config: the dictionary of a config.json, or an object of transformers (with `to_dict`). Of
            a model for text and images, the text's.
        layout: "interleaved" or "half", which components are paired: needed where neither a field
            nor a known `model_type` tells.
        base: for configurations that have none (some of 2023 rely on 10000).

    Raises:
        TypeError: if config is neither, or a field has the wrong type.
        ValueError: if a field is missing or wrong, or one on rotation, in rope parameters or beside
            them, is not known.
    """
    fields = fields_of(config)
    require_rotary(fields)
    require_known(fields)
    check_fields(fields)
    check_heads(fields)
    if layout is not None:
        checks.one_of("layout", layout, LAYOUTS)
    kinds, made = kinds_of(fields), {}
    require_fitting(fields, kinds)
    changes = by_layer(fields, kinds)
    layers = []
    for index, kind in enumerate(kinds):
        own = {**fields, **changes.get(index, {})}
        parameters = None if kind in RECURRENT else rope_parameters(own, kind, index, base)
        key = json.dumps([kind, parameters, own.get("head_dim"), own.get("qk_nope_head_dim")])
        if key not in made:
            made[key] = encoding_of(own, kind, parameters, layout)
        layers.append(layer_of(own, kind, made[key], parameters))
    return layers


def require_rotary(fields: Fields) -> None:
    """Raise if the model type or a field says that nothing rotates, and what is used instead.

    Raises:
        Contradiction: if a field says so, and classes of this type rotate without reading it.
    """
    model_type = fields.get("model_type")
    if model_type in model_types.REFUSED:
        reason = f"a model of type {model_type!r} {model_types.REFUSED[model_type]}"
        raise ValueError(f"config must be of attention that rotates; {reason}")
    read = model_types.defaults_of(model_type).get("fields", {})
    for name, words in denials(fields, read):
        if model_type in model_types.ROTATING and name not in read:
            raise Contradiction(
                f"config must rotate, as all models of type {model_type!r} do; {words}"
            )
        raise ValueError(f"config must be of attention that rotates; {words}")


def denials(fields: Fields, read: Fields) -> Iterator[tuple[str, str]]:
    """Yield the fields that say that nothing rotates, and what they say."""
    if fields.get("alibi"):
        yield "alibi", f"one with alibi=true {model_types.ALIBI}"
    if fields.get("position_encoding_2d"):
        yield "position_encoding_2d", f"one with position_encoding_2d {model_types.TWO_NUMBERS}"
    name = "position_embedding_type"
    said, written = fields.get(name), fields.get("model_type") in model_types.ABSOLUTE_UNREAD
    if (
        (name not in read or read[name])
        and not written
        and not re.search("rope|rotary", said or "rope")
    ):
        yield name, f"{name} is {said!r}"
    for name in sorted(model_types.SWITCHES):
        if fields.get(name) is False:
            yield name, f"{name} is False"


def require_known(fields: Fields) -> None:
    """Raise if a field that is given speaks of rotation, and nothing here reads it."""
    unknown = [
        name
        for name, value in fields.items()
        if value not in (None, False)
        and re.search("rope|rotary", name)
        and name not in model_types.ROTARY_FIELDS | model_types.SWITCHES
    ]
    if unknown:
        raise ValueError(
            f"config must not have fields on rotation that nothing here reads, got "
            f"{', '.join(sorted(unknown))}"
        )


def require_fitting(fields: Fields, kinds: list[str]) -> None:
    """Raise if a list by layer has not one entry for each, or rope parameters fit no layer."""
    check_indices(fields, len(kinds))
    for name in ("layer_rope_theta", "no_rope_layers", "rope_theta", "partial_rotary_factors"):
        if isinstance(fields.get(name), list | tuple) and fields[name]:
            check_count(name, by_place(fields, name), len(kinds))
    given = fields.get("rope_parameters") or {}
    if is_by_kind(given):
        check_parameters_by_kind(given, kinds, list(rope_by_kind(fields)))


def by_layer(fields: Fields, kinds: list[str]) -> dict[int, Fields]:
    """Return the fields that single layers have for themselves, by the layer's number."""
    count, wide = len(kinds), fields.get("global_head_dim")  # Gemma 4: of layers that see all
    found: dict[int, Fields] = {
        index: {"head_dim": wide}
        for index, kind in enumerate(kinds)
        if wide is not None and kind == "full_attention"
    }
    for key, own in (fields.get("per_layer_config") or {}).items():
        if not str(key).isdecimal() or int(key) >= count:  # "05" where there are ten and more
            raise ValueError(f"per_layer_config must be for layers 0 to {count - 1}, got {key!r}")
        found[int(key)] = mapping(f"per_layer_config[{key!r}]", own)
        require_known(own)
        check_fields(own)
    return found


def layer_of(
    fields: Fields,
    kind: str,
    encoding: PositionEncoding | None,
    parameters: Fields | None,
) -> Layer:
    """Return a layer with its encoding, its window and its axes."""
    sections, order = sections_of(fields, parameters or {})
    return Layer(
        kind,
        encoding,
        window_of(fields, kind),
        chunk_of(fields, kind),
        tuple(sections),
        order,
        parameters,
        None if encoding is None else head_width(fields),
    )


def sections_of(fields: Fields, parameters: Fields) -> tuple[Sequence[int], str]:
    """Return the sections of M-RoPE and their order, as the class reads them; none of one axis."""
    row = row_of(fields)
    given = parameters.get("mrope_section")
    if not row:
        return given or (), "turns" if parameters.get("mrope_interleaved") else "blocks"
    own = row.get("sections")
    if own is None or not parameters:
        return (), "blocks"
    return given or own["default"], own["order"]


def chunk_of(fields: Fields, kind: str) -> int | None:
    """Return the length of the pieces that a layer of this kind keeps to, or None."""
    if kind != "chunked_attention":
        return None
    return checks.integer("attention_chunk_size", fields.get("attention_chunk_size"))


def fields_of(config: object) -> Fields:
    """Return a configuration with the names of today and what its class takes for granted.

    Of several models in one, it is the text's.
    """
    given = text_of(config)
    require_config_json(given)
    row = row_of(given).get("fields", {})
    fields = renamed(given)
    said_by_class = row.get("rope_scaling") is not None and "rope_parameters" not in fields
    if not said_by_class or fields.get("rope_scaling") != row["rope_scaling"]:
        check_beside(fields)
    absent = [name for name in OR_DEFAULT if not fields.get(name)]
    said = {name: value for name, value in fields.items() if name not in absent}
    hidden = [*BESIDE] if "rope_parameters" in said else []
    if first(said, "layer_types", "layers_block_type", "hybrid_override_pattern") is not None:
        hidden.append("num_hidden_layers")  # the list tells it
    return {**{name: value for name, value in row.items() if name not in hidden}, **said}


def text_of(config: object, whole: object = None) -> dict[str, Any]:
    """Return the fields of the text in a configuration, with the type that its class has.

    Args:
        config: as in `from_config`.
        whole: model type of what the text is a part of.
    """
    fields = config.to_dict() if hasattr(config, "to_dict") else config
    if not isinstance(fields, Mapping):
        raise TypeError(f"config must be a dictionary or a configuration, got {type(config)}")
    name = fields.get("model_type")
    for part in TEXT_PARTS:
        if isinstance(fields.get(part), Mapping):
            return text_of(fields[part], name or whole)
    return {**fields, "model_type": model_types.text_type(name, whole)}


# Files in other formats: what tells them, and which of their fields stand for which.
FOREIGN = {
    "params.json of Mistral's own code": (
        ("dim", "n_heads"),
        {"dim": "hidden_size", "n_heads": "num_attention_heads", "n_layers": "num_hidden_layers",
         "head_dim": "head_dim", "rope_theta": "rope_theta", "yarn": "rope_scaling",
         "sliding_window": "sliding_window", "max_position_embeddings": "max_position_embeddings",
         "qk_rope_head_dim": "qk_rope_head_dim", "qk_nope_head_dim": "qk_nope_head_dim",
         "llama_4_scaling": "llama_4_scaling_beta"},
    ),
    "metadata of a GGUF file": (
        ("general.architecture",),
        {"rope.freq_base": "rope_theta", "rope.dimension_count": "partial_rotary_factor",
         "rope.dimension_sections": "mrope_section", "rope.scaling.type": "rope_type",
         "rope.scaling.factor": "factor", "attention.key_length": "head_dim",
         "rope.scaling.original_context_length": TRAINED, "rope.scaling.attn_factor":
         "attention_factor", "embedding_length": "hidden_size", "block_count": "num_hidden_layers",
         "attention.head_count": "num_attention_heads", "context_length":
         "max_position_embeddings", "attention.sliding_window": "sliding_window"},
    ),
}  # fmt: skip


def require_config_json(fields: Fields) -> None:
    """Raise if these are the fields of another format, with what they would be called here."""
    for what, (marks, names) in FOREIGN.items():
        if not all(mark in fields for mark in marks):
            continue
        prefix = f"{fields.get('general.architecture', '')}."
        said = {old: names.get(old.removeprefix(prefix)) for old in fields}
        told = ", ".join(f"{old} for {new}" for old, new in said.items() if new)
        raise ValueError(f"config must be a config.json, and this is {what}, where {told} stands")


def renamed(fields: Fields) -> dict[str, Any]:
    """Return the fields by one name each.

    Raises:
        Contradiction: if two names have two values.
    """
    found = {name: value for name, value in fields.items() if name not in model_types.SAME}
    for old, name in model_types.SAME.items():
        value, other = fields.get(old), found.get(name)
        if value is None:
            continue
        if name in FIELDS:
            FIELDS[name](old, value)
        if other is not None and other != value and name != "num_hidden_layers":
            raise Contradiction(f"{old} must be {name}, which is {other!r}; got {value!r}")
        found[name] = value if other is None else other
    return found


# --- rope parameters ------------------------------------------------------------------------------


def rope_parameters(
    fields: Fields, kind: str, index: int, base: float | None
) -> dict[str, Any] | None:
    """Return the rope parameters of a layer in today's spelling, or None if it has no positions."""
    model_type = fields.get("model_type")
    without = model_type in model_types.WITHOUT or kind == "cross_attention"
    windows_only = model_type in model_types.WINDOWS_ONLY and "sliding" not in kind
    if windows_only and model_type in ("exaone4", "exaone_moe"):
        windows_only = bool(fields.get("sliding_window"))
    if without or windows_only or not rotates(fields, index) or switched_off(fields):
        return None
    given = fields.get("rope_parameters")
    old = fields.get("rope_scaling")
    if given is not None and old is not None and given != old:
        raise Contradiction("rope_parameters and rope_scaling must not both be given, unless equal")
    if given is None:
        given = old_spelling(fields, kind, index)
    elif not is_by_kind(given):
        given = not_by_kind(fields, given, kind, index)
    else:
        label = label_of(kind, given)
        if label not in given:
            raise ValueError(f"rope_parameters must have {label!r}, got {', '.join(given)}")
        added = rope_by_kind(fields).get(label, {}).get("added", {})
        given = {**added, **given[label]} if given[label] else given[label]
    if given is None:
        return None
    found = completed(fields, dict(given), index, base)
    rope_type(found)  # checks them all
    return found


def not_by_kind(fields: Fields, given: Fields, kind: str, index: int) -> Fields | None:
    """Return the rope parameters of a layer whose file has one dictionary for all.

    Raises:
        Contradiction: if the class has some by kind, and cannot be made of one dictionary.
    """
    row = row_of(fields)
    if not rope_by_kind(fields) or row["flat"] == "all":
        return given
    if row["flat"] == "refused":
        raise Contradiction(
            f"rope_parameters must be by kind of layer, {', '.join(rope_by_kind(fields))}: no "
            f"model of type {fields['model_type']!r} can be made of one dictionary for all"
        )
    reaches = {} if row["flat"] == "ignored" else given
    scaling = {key: value for key, value in reaches.items() if key != "rope_theta"}
    return old_spelling({**fields, "rope_scaling": scaling}, kind, index)


def ignores_flat_parameters(fields: Fields) -> bool:
    """Return whether the class reads rope parameters by kind only, and the file has one for all."""
    given = fields.get("rope_parameters") or {}
    return bool(given) and not is_by_kind(given) and row_of(fields).get("flat") == "ignored"


def label_of(kind: str, names: Iterable[str]) -> str:
    """Return the name that rope parameters for a kind of layer have."""
    return ("main" if "sliding" in kind else "compress") if "compress" in names else kind


def rope_by_kind(fields: Fields) -> Mapping[str, dict[str, Any]]:
    """Return the rope parameters that the class has for each kind of layer, if it has such."""
    found: dict[str, dict[str, Any]] = row_of(fields).get("rope", {})
    return found


def switched_off(fields: Fields) -> bool:
    """Return whether a field says that no layer rotates."""
    if fields.get("model_type") == "granitemoehybrid":
        return fields.get("position_embedding_type") != "rope"
    return fields.get("use_mem_rope") is False  # Zamba 2


def old_spelling(fields: Fields, kind: str, index: int) -> dict[str, Any] | None:
    """Return rope parameters from `rope_theta`, `rope_scaling` and the names of a second base.

    Where a class has rope parameters by kind, it decides which of these fields reach which kind.
    """
    own, scaling = rope_by_kind(fields), fields.get("rope_scaling") or {}
    if not own:
        local = "rope_local_base_freq"
        if "sliding" in kind and fields.get(local) is not None and local not in unread(fields):
            return {"rope_theta": fields[local]}  # the local layers are not stretched
        return {"rope_theta": base_at(fields, "rope_theta", index), **scaling}
    require_read(fields, own)
    part = own[label_of(kind, own)]
    if not part:
        return None
    found = {k: value for k, value in part.items() if k not in ("base", "scaled", "added")}
    given = base_at(fields, part.get("base", ""), index)
    found |= {} if given is None else {"rope_theta": given}
    if "base" in part and fields.get("partial_rotary_factor") is not None:
        found["partial_rotary_factor"] = fields["partial_rotary_factor"]
    if not scaling or "scaled" not in part:
        return found
    added = part["scaled"] if rope_type(scaling) == "yarn" else {}
    return {**found, **added, **scaling}


def base_at(fields: Fields, name: str, index: int) -> Any:
    """Return a base; of a list by layer, that of one layer."""
    given = by_place(fields, name)
    return given[index] if isinstance(given, list | tuple) else given


def require_read(fields: Fields, own: Mapping[str, dict[str, Any]]) -> None:
    """Raise if a class with rope parameters by kind does not read a field that is given."""
    read = {part.get("base") for part in own.values()}
    taken = [part["rope_theta"] for part in own.values() if part]
    for name in ("rope_theta", "rope_local_base_freq", "swa_rope_theta"):
        value = fields.get(name)
        if value is not None and name not in read and value not in taken:
            raise Contradiction(
                f"{name} must be one of {taken}, the bases that a model of type "
                f"{fields.get('model_type')!r} has unless rope_parameters says others by kind of "
                f"layer; got {value}"
            )
    if fields.get("rope_scaling") and not any("scaled" in part for part in own.values()):
        raise Contradiction(
            f"rope_scaling must not be given: a model of type {fields.get('model_type')!r} reads "
            "rope_parameters by kind of layer"
        )


def completed(
    fields: Fields, parameters: dict[str, Any], index: int, base: float | None
) -> dict[str, Any]:
    """Return rope parameters with what stands beside them in the file."""
    row = row_of(fields).get("fields", {})
    bases, shares = fields.get("layer_rope_theta"), by_place(fields, "partial_rotary_factors")
    fixed = model_types.FIXED_BASE.get(f"{fields.get('model_type')}")
    own = fixed or (bases[index] if bases else None)
    if own is not None:
        parameters["rope_theta"] = own
    if parameters.get("rope_theta") is None:
        own = base_at({**row, **fields}, "rope_theta", index)
        parameters["rope_theta"] = own if base is None else base
    if parameters["rope_theta"] is None:
        raise ValueError("rope_theta must be given, in the configuration or as base")
    share = shares[index] if shares else {**row, **fields}.get("partial_rotary_factor")
    part = fields.get("qk_rope_head_dim")
    if share is None and part is not None and fields.get("qk_nope_head_dim") is None:
        share = part / head_width(fields)
    if parameters.get("partial_rotary_factor") is None and share is not None:
        parameters["partial_rotary_factor"] = share
    if fields.get(TRAINED) is not None and rope_type(parameters) in ("yarn", "longrope", "llama3"):
        parameters[TRAINED] = fields[TRAINED]  # Phi-3 has it outside, and means it
    stretched = fields.get("rope_scaling_layers")
    if stretched is not None and index not in stretched:
        return {"rope_theta": parameters["rope_theta"]}
    return parameters


# --- encodings ------------------------------------------------------------------------------------


def encoding_of(
    fields: Fields, kind: str, parameters: Fields | None, layout: str | None
) -> PositionEncoding | None:
    """Return the encoding of one layer, or None if it has no attention."""
    if kind in RECURRENT:
        return None
    if parameters is None:
        return temperature_without_rotation(fields) or NoPosition()
    rotary = rotary_of(fields, parameters, layout)
    strength = parameters.get("llama_4_scaling_beta")
    if not strength or "llama_4_scaling_beta" in unread(fields):
        return rotary
    if parameters.get(TRAINED) is None:
        raise ValueError(f"{TRAINED} must be given beside llama_4_scaling_beta")
    return Compose(rotary, QueryTemperature(strength, parameters[TRAINED]))


def temperature_without_rotation(fields: Fields) -> PositionEncoding | None:
    """Return how queries grow in layers that do not rotate, or None where they do not."""
    if fields.get("model_type") == "llama4_text" and fields.get("attn_temperature_tuning"):
        return QueryTemperature(fields["attn_scale"], fields["floor_scale"], offset=1)
    if fields.get("model_type") == "beam":
        return QueryTemperature(0.1, 2048, offset=1, growth="power")
    return None


def rotary_of(fields: Fields, parameters: Fields, layout: str | None) -> PositionEncoding:
    """Return RoPE on the components of a head that rotate: all, the first, or the last."""
    latent = first(fields, "qk_nope_head_dim") is not None
    width = head_width(fields)
    part = rotary_width(fields, parameters, width)
    if "mrope_section" not in unread(fields):
        check_sections(parameters, part)
    layout = layout or layout_in(fields)
    context = fields.get("max_position_embeddings")
    last = latent or fields.get("model_type") == "deepseek_v4"
    rope = rope_from(parameters, Head(part if last else width, part, layout, context))
    if fields.get("model_type") in model_types.BACKWARDS:
        rope = backwards(rope)
    if not last:
        return rope
    if not latent:  # DeepSeek-V4: keys are values, and the output is rotated back
        return DecoupledRotation(RotaryValues(rope), part)
    trailing = DecoupledRotation(rope, part)
    if parameters.get("mscale_all_dim") and rope_type(parameters) != "default":
        attention_factor = yarn_attention_factor(
            parameters["factor"], 0.1 * parameters["mscale_all_dim"]
        )
        trailing.scale = width**-0.5 * attention_factor**2
    return trailing


def rotary_width(fields: Fields, parameters: Fields, width: int) -> int:
    """Return how many components of a head of this width the frequencies are made for.

    Raises:
        Contradiction: if two fields say different numbers.
    """
    if fields.get("qk_nope_head_dim") is not None:
        return checks.even("qk_rope_head_dim", fields.get("qk_rope_head_dim"), "pairs rotate")
    share, given = parameters.get("partial_rotary_factor"), fields.get("rotary_dim")
    if share is None and fields.get("model_type") in model_types.READS_ROTARY_DIM and given:
        return checks.even("rotary_dim", given, "pairs rotate")
    own = row_of(fields).get("fields", {}).get("rotary_dim")
    if share is not None and given not in (None, own, int(width * share)):
        raise Contradiction(
            f"rotary_dim must be {int(width * share)}, the part {share:g} of {width} components "
            f"that partial_rotary_factor says; got {given}"
        )
    if share in (None, 1) or (unstretched(parameters) and not reads_share(fields)):
        return checks.even("head_dim", width, "pairs rotate, and all of it does")
    return checks.integer("partial_rotary_factor * head_dim", int(width * share))


def layout_in(fields: Fields) -> str:
    """Return which components are paired: by a field, or by the model type."""
    for name in ("rope_interleave", "rope_interleaved"):
        if fields.get(name) is not None:
            return "interleaved" if fields[name] else "half"
    known = model_types.layout_of(fields.get("model_type"))
    if known is None:
        raise ValueError(
            "layout must be given, 'interleaved' or 'half': the configuration does not tell which "
            f"components are paired, and its model_type is not known: {fields.get('model_type')!r}"
        )
    return known


def backwards(rope: RoPE) -> RoPE:
    """Return RoPE that rotates the other way: the same scores."""
    return RoPE(
        rope.head_dim,
        layout=rope.layout,
        rotary_dim=2 * len(rope.inv_freq),
        inv_freq=-rope.inv_freq,
        attention_factor=rope.attention_factor,
    )
