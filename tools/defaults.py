"""What configuration classes take where a file says nothing, for `posdoctor.configs.from_config`.

`python -m tools.defaults` asks every class of the installed transformers that
`posdoctor.configs.model_types` names, and writes its table beside it; tests/test_published.py
asks anew. What a class computes is found by asking it with marked values and looking where they
went.
"""

from __future__ import annotations

import dataclasses
import itertools
import json
import logging
import warnings
from collections.abc import Mapping
from typing import Any

from posdoctor.configs import model_types
from posdoctor.configs.checks import FIELDS
from posdoctor.configs.layer_kinds import made
from posdoctor.configs.model_types import SAME
from tools import ROOT

TABLE = ROOT / "posdoctor/configs/defaults.json"
SIZES = {"hidden_size", "num_attention_heads", "num_hidden_layers"}
SIZES |= {"head_dim", "attention_head_dim", "kv_channels", "original_max_position_embeddings"}
OTHERS = {"alibi", "position_embedding_type", "attn_temperature_tuning", "attn_scale"}
OTHERS |= {"floor_scale", "block_types", "layers_block_type", "hybrid_override_pattern"}
READ = SIZES | OTHERS | set(FIELDS)
READ -= {"rope_parameters", "rope_scaling", "per_layer_config", "num_key_value_heads"}
SEEN = ("sliding_window", "position_embedding_type")  # that a class has them at all says something
MARK = 123.0
SCALING = {"rope_type": "yarn", "factor": 7.0, "original_max_position_embeddings": 64}
BASES = ("rope_theta", "rotary_emb_base", "global_rope_theta", "rope_local_base_freq",
         "local_rope_theta", "compress_rope_theta")  # fmt: skip
MIXED = {"layer_types": ["sliding_attention", "full_attention"] * 2, "num_hidden_layers": 4}
WINDOWS: list[dict[str, Any]] = [
    {},
    {"sliding_window": None},
    {"sliding_window": 64},
    {"use_sliding_window": True, "sliding_window": 64, "max_window_layers": 1},
    {"no_rope_layer_interval": 2},
]
COUNTS = (24, 37)


def asked(configuration: Any, **given: Any) -> Any:
    """Return an object of a class, or None if it refuses these values."""
    with warnings.catch_warnings(action="ignore", category=FutureWarning):  # the old spelling
        try:
            return configuration(**given)
        except Exception:
            return None


def fields(configuration: Any) -> dict[str, Any]:
    """Return the defaults of the fields that are read, by their first names."""
    found: dict[str, Any] = {}
    for each in dataclasses.fields(configuration):
        name, made_anew = SAME.get(each.name, each.name), each.default_factory
        value = each.default if made_anew is dataclasses.MISSING else made_anew()
        if name == "cross_attention_layers":  # a list that the class writes down later
            value = getattr(asked(configuration), name)
        given = value is not None and value is not dataclasses.MISSING
        if name in READ and (given or name in SEEN):
            found[name] = value if given else None
    return dict(sorted(found.items()))


def kinds(configuration: Any) -> dict[str, Any]:
    """Return how a class makes the kinds of layers where none are listed.

    That is a `cycle`, which may come after a `head`, have another `last` layer, or be counted
    from the end; nothing if fields decide, which `posdoctor.configs.layer_kinds` reads.
    """
    plain, windowed = (
        [getattr(asked(configuration, num_hidden_layers=count, **windows), "layer_types", None)
         for count in COUNTS for windows in tried]
        for tried in ([{}], WINDOWS)
    )  # fmt: skip
    if not any(plain):
        return {}
    found = pattern([each for each in plain if each])
    steady = pattern([each for each in windowed if each]) == found
    if found is None:
        raise ValueError(f"kinds of layers must follow a rule, got {configuration.__name__}")
    return found if steady else {}


def pattern(lists: list[list[str]]) -> dict[str, Any] | None:
    """Return the shortest head, cycle and last kind that make all lists, or None."""
    for step, last in ((1, None), (1, "full_attention"), (-1, None)):
        first = lists[0][::step]
        for length, start in itertools.product(range(1, 13), range(4)):
            head, repeated = first[:start], first[start : start + length]
            found = {"head": head, "cycle": repeated, "last": last, "backwards": step < 0}
            if all(each == made(found, len(each)) for each in lists):
                return {key: value for key, value in found.items() if value}
    return None


def parts(parameters: Any) -> dict[str, Any]:
    """Return rope parameters by the kind of layer; of all kinds, by an empty name."""
    given = parameters or {}
    if not any(isinstance(value, Mapping) for value in given.values()):
        return {"": given}
    return {kind: each or {} for kind, each in given.items() if isinstance(each, Mapping | None)}


def rope(configuration: Any) -> dict[str, Any]:
    """Return the rope parameters of each kind, and which fields of old files reach them."""
    mixed = MIXED if asked(configuration, **MIXED) else {}
    plain = getattr(asked(configuration, **mixed), "rope_parameters", None)
    found = {
        kind: {key: value for key, value in given.items() if value != "default"}
        for kind, given in parts(plain).items()
    }
    for field in BASES:
        marked = asked(configuration, **mixed, **{field: MARK})
        for kind, given in parts(getattr(marked, "rope_parameters", None)).items():
            if kind in found and given.get("rope_theta") == MARK:
                found[kind]["base"] = SAME.get(field, field)
    scaled = asked(configuration, **mixed, rope_scaling=dict(SCALING))
    for kind, given in parts(getattr(scaled, "rope_parameters", None)).items():
        if kind in found and given.get("factor") == SCALING["factor"]:
            added = set(given) - set(SCALING) - {"rope_theta", "partial_rotary_factor"}
            found[kind]["scaled"] = {key: given[key] for key in sorted(added)}
    return found


def row(name: str) -> dict[str, Any]:
    """Return what is known of a model type."""
    from transformers.models.auto.configuration_auto import CONFIG_MAPPING

    configuration = CONFIG_MAPPING[name]
    by_kind = rope(configuration)
    found = fields(configuration)
    if set(by_kind) == {""}:  # as an old file would have it
        only = by_kind[""]
        plain = {key: only[key] for key in ("rope_theta", "partial_rotary_factor") if key in only}
        rest = {k: v for k, v in only.items() if k not in (*plain, "base", "scaled", "type")}
        if "rope_theta" in only and "base" not in only:  # one in a file counts beside its own rule
            rest["rope_theta"] = only["rope_theta"]
        if name in model_types.FIXED_BASE:
            found["rope_theta"] = model_types.FIXED_BASE[name]
        found |= plain | ({"rope_scaling": rest} if rest else {})
        by_kind = {}
    known = {"fields": found, "rope": by_kind, "kinds": kinds(configuration)}
    return {key: value for key, value in known.items() if value}


def table() -> dict[str, dict[str, Any]]:
    """Return what is known of each model type."""
    logging.disable(logging.ERROR)  # classes speak of what they do not know
    try:
        return {name: row(name) for name in sorted(model_types.ROTATING)}
    finally:
        logging.disable(logging.NOTSET)


if __name__ == "__main__":
    lines = (f"{json.dumps(name)}: {json.dumps(found)}" for name, found in table().items())
    TABLE.write_text("{\n" + ",\n".join(lines) + "\n}\n", encoding="utf-8")
