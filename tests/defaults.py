"""Write posdoctor/configs/defaults.json: what configuration classes take where a file says nothing.

`python tests/defaults.py` asks every class of the installed transformers that
`posdoctor.configs.model_types` names; test_published.py asks anew, and says when the table is
another version's. What a class computes is found by asking it with marked values and looking where
they went; what its model reads, by making its frequencies.
"""

from __future__ import annotations

import copy
import dataclasses
import importlib
import inspect
import itertools
import json
import logging
import re
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
WRITTEN_LATER = ("cross_attention_layers", "partial_rotary_factor")  # by the class itself
MARK = 123.0
SCALING = {"rope_type": "yarn", "factor": 7.0, "original_max_position_embeddings": 64}
FLAT = {"rope_type": "linear", "factor": 7.0, "rope_theta": MARK}
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
        if name in WRITTEN_LATER:
            value = getattr(asked(configuration), name)
        given = value is not None and value is not dataclasses.MISSING
        if name in READ and (given or name in SEEN):
            found[name] = value if given else None
    single = getattr(asked(configuration), "to_dict", dict)().get("per_layer_config") or {}
    widths = {each.get("head_dim") for each in single.values()} - {None}
    if widths:
        found["global_head_dim"] = widths.pop()
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
    one = {"rope_type": "linear", "factor": 2.0, "rope_theta": MARK}
    given = asked(configuration, **mixed, rope_parameters={kind: dict(one) for kind in found})
    for kind, each in parts(getattr(given, "rope_parameters", None)).items():
        if kind and kind in found and "partial_rotary_factor" in each:
            found[kind]["added"] = {"partial_rotary_factor": each["partial_rotary_factor"]}
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


def flat(configuration: Any) -> str:
    """Return what a class with rope parameters by kind does with one dictionary for all.

    It is "ignored", taken by "all" kinds, reaches one without its base ("scaling"), or "refused".
    """
    plain, given = (asked(configuration, **rope) for rope in ({}, {"rope_parameters": {**FLAT}}))
    theirs = parts(getattr(given, "rope_parameters", None))
    kinds = {kind: theirs.get(kind) for kind in parts(plain.rope_parameters)}
    if any(each is None for each in kinds.values()):
        return "refused"
    if all(each["rope_theta"] == MARK for each in kinds.values()):
        return "all"
    return "scaling" if any("factor" in each for each in kinds.values()) else "ignored"


def table_class(configuration: Any) -> Any:
    """Return the class of the model's rotary tables that takes this configuration, or None.

    Where none names it, the class whose name begins most like the configuration's is taken.
    """
    module = importlib.import_module(configuration.__module__.replace("configuration", "modeling"))
    found = []
    for name, each in vars(module).items():
        if re.search("(?<!Vision)RotaryEmbedding$", name) and each.__module__ == module.__name__:
            first = list(inspect.signature(each.__init__).parameters.values())[1]
            named = bool(re.search(rf"\b{configuration.__name__}\b", str(first.annotation)))
            alike = [a == b for a, b in zip(name, configuration.__name__, strict=False)]
            found.append((named, [*alike, False].index(False), each))
    return max(found, key=lambda each: each[:2], default=(None,))[-1]


def inv_freq(configuration: Any, **given: Any) -> dict[str, tuple[Any, float]] | None:
    """Return the frequencies that a class's model makes, by kind, with the gain; or None."""
    table, made_of = table_class(configuration), asked(configuration, **copy.deepcopy(given))
    try:
        built = table(made_of)
    except Exception:  # whatever a class raises, it does not take this
        return None
    found, ending = {}, "inv_freq"
    for name, numbers in built.named_buffers():
        kind = name.removesuffix(ending).rstrip("_")
        if name.endswith(ending) and "original" not in name:
            gain = f"{kind}_attention_scaling" if kind else "attention_scaling"
            found[kind] = numbers, getattr(built, gain, 1.0)
    return found


def reads(configuration: Any, kinds: Mapping[str, Any]) -> dict[str, Any]:
    """Return which rope parameters the model reads besides its rule's, and their sections.

    Sections are of M-RoPE: the numbers that it takes where a file has none, and their order.
    """
    module, table = importlib.import_module(configuration.__module__), table_class(configuration)
    if table is None:
        return {}
    found, widths = [], []
    for share in (0.25, 0.5):
        one = {"rope_type": "default", "rope_theta": 1e4, "partial_rotary_factor": share}
        numbers = inv_freq(configuration, rope_parameters=dict.fromkeys(kinds, one) or one) or {}
        widths.append([len(each) for each, _ in numbers.values()])
    if widths[0] != widths[1]:
        found.append("partial_rotary_factor")
    if "llama_4_scaling_beta" in inspect.getsource(module):
        found.append("llama_4_scaling_beta")
    own = [each for each in table.__mro__ if each.__module__ == table.__module__]
    text = "".join(map(inspect.getsource, own))
    sections = re.search(r'get\("mrope_section"(?:, \[(.*?)\])?\)', text)
    if sections is None:
        return {"reads": found}
    order = "components" if "section * 2" in text else "blocks"
    order = "turns" if re.search(r"length = \w+.*\[dim\] \* 3", text) else order
    order = "height and width, then time" if "freq_hwt" in text else order
    numbers = [int(each) for each in (sections[1] or "").split(",") if each]
    return {"reads": [*found, "mrope_section"], "sections": {"default": numbers, "order": order}}


def texts() -> dict[str, str]:
    """Return the model type of the text in each model of several parts, if not of its name."""
    from transformers.models.auto.configuration_auto import CONFIG_MAPPING, CONFIG_MAPPING_NAMES

    known, found = model_types.ROTATING | set(model_types.REFUSED), {}
    for name in sorted(CONFIG_MAPPING_NAMES):
        parts = getattr(CONFIG_MAPPING[name], "sub_configs_defaults", None) or {}
        inside = getattr(parts.get("text_config"), "model_type", None)
        if inside in known and inside not in (name, f"{name}_text"):
            found[name] = inside
    return found


def row(name: str) -> dict[str, Any]:
    """Return what is known of a model type."""
    from transformers.models.auto.configuration_auto import CONFIG_MAPPING

    if name not in CONFIG_MAPPING:  # its code is with its files
        return model_types.defaults_of(name)
    configuration = CONFIG_MAPPING[name]
    by_kind = dict(sorted(rope(configuration).items()))  # some classes make it of a set
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
    known |= reads(configuration, by_kind) | ({"flat": flat(configuration)} if by_kind else {})
    return {key: value for key, value in known.items() if value}


def table() -> dict[str, Any]:
    """Return the table: of which version, the texts in other models, what is known of each type."""
    import transformers

    logging.disable(logging.ERROR)  # classes speak of what they do not know
    try:
        types = {name: row(name) for name in sorted(model_types.ROTATING)}
        found = {"transformers": transformers.__version__, "texts": texts(), "types": types}
    finally:
        logging.disable(logging.NOTSET)
    return json.loads(json.dumps(found))


if __name__ == "__main__":
    whole = table()
    rows = whole.pop("types")
    lines = ",\n".join(f"{json.dumps(name)}: {json.dumps(found)}" for name, found in rows.items())
    start = json.dumps(whole)[:-1]
    TABLE.write_text(f'{start}, "types": {{\n{lines}\n}}}}\n', encoding="utf-8")
