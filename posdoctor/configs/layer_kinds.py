"""Which kind each layer of a configuration is: its window, and whether it has positions at all.

Today's files list the kinds (`layer_types`); older ones have a rule of their model's own.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any, TypeAlias

from posdoctor.configs import checks, model_types
from posdoctor.configs.checks import check_count, check_kinds

Fields: TypeAlias = Mapping[str, Any]

RECURRENT = {"linear_attention", "conv", "mamba", "mamba2", "recurrent", "moe", "mlp"}

# The words of published files, today's and those of files before 2026.
KINDS = (
    "full_attention",
    "sliding_attention",
    "chunked_attention",
    "indexed_attention",
    "compressed_sparse_attention",
    "heavily_compressed_attention",
    "minimax_m3_sparse",
    "hybrid",
    "hybrid_sliding",
    "reference_sliding_attention",
    "attention",
    "deepseek_sparse_attention",
    "qwen_sparse_attention",
    *sorted(RECURRENT),
)

LETTERS = {"M": "linear_attention", "E": "moe", "*": "full_attention", "-": "mlp"}  # Nemotron-H

# Lists with a number for each layer.
BY_NUMBER = {
    "hybrid_layer_pattern": {"0": "full_attention", "1": "sliding_attention"},
    "compress_ratios": {
        "0": "sliding_attention",
        "4": "compressed_sparse_attention",
        "128": "heavily_compressed_attention",
    },
}

# Fields with a rule for the kinds.
RULES = (
    "sliding_window_pattern",
    "_sliding_window_pattern",
    "global_attn_every_n_layers",
    "attn_layer_indices",
    "full_attn_idxs",
    "attn_layer_period",
)


# What repeats after so many layers, or has an entry for each.
PERIODS = (
    "sliding_window_pattern", "_sliding_window_pattern", "global_attn_every_n_layers",
    "full_attention_interval", "attn_layer_period", "no_rope_layer_interval",
    "nope_layer_interval", "block_types", "no_rope_layers", "layer_rope_theta", *BY_NUMBER,
)  # fmt: skip


def first(fields: Fields, *names: str) -> Any:
    """Return the first of these fields that is given and not None, or None."""
    return next((fields[name] for name in names if fields.get(name) is not None), None)


def kinds_of(fields: Fields) -> list[str]:
    """Return the kind of each layer, from a list, a rule of older files, or the type's own rule.

    Raises:
        ValueError: if a word is unknown, or a list has another length than the layers.
    """
    count = layer_count(fields)
    for name in ("layer_types", "layers_block_type"):
        if fields.get(name) is not None:
            kinds = check_kinds(name, by_place(fields, name), KINDS)
            if count is not None:
                check_count(name, kinds, checks.integer("num_hidden_layers", count))
            return kinds
    letters = fields.get("hybrid_override_pattern")
    if letters is not None:
        words = [checks.one_of("hybrid_override_pattern", x, LETTERS) for x in letters]
        check_count("hybrid_override_pattern", words, len(words) if count is None else count)
        return [LETTERS[word] for word in words]
    count = checks.integer("num_hidden_layers", count)
    for name, meanings in BY_NUMBER.items():
        if fields.get(name) is not None:
            numbers = by_place(fields, name)
            check_count(name, numbers, count)
            return [meanings[checks.one_of(name, str(x), meanings)] for x in numbers]
    listed = fields.get("linear_attn_config") or {}
    if "full_attn_layers" in listed and "kda_layers" in listed:
        return counted_from_one(listed, count)
    given = fields.get("block_types")  # a pattern that repeats
    if given:
        return made({"cycle": check_kinds("block_types", given, KINDS)}, count)
    own = row_of(fields).get("kinds", {})
    every = fields.get("full_attention_interval")
    if every is not None:
        others, *_, full = own.get("cycle") or ["linear_attention", "full_attention"]
        return made({"cycle": [others] * (every - 1) + [full]}, count)
    if own and first(fields, *RULES) is None:
        return made(own, count)
    if fields.get("model_type") in model_types.LISTED:
        raise ValueError("layers_block_type must be given: no field says which layers attend")
    attends = attending(fields, count)
    return [
        kind_by_rule(fields, index, count) if index in attends else "recurrent"
        for index in range(count)
    ]


def counted_from_one(listed: Fields, count: int) -> list[str]:
    """Return kinds from two lists of layers, of which the first is 1 (Kimi)."""
    full, others = (
        checks.sequence(f"linear_attn_config.{name}", listed[name])
        for name in ("full_attn_layers", "kda_layers")
    )
    if sorted([*full, *others]) != list(range(1, count + 1)):
        raise ValueError(
            f"linear_attn_config must list each of the layers 1 to {count} once, got "
            f"full_attn_layers {list(full)} and kda_layers {list(others)}"
        )
    return [
        "full_attention" if layer in full else "linear_attention" for layer in range(1, count + 1)
    ]


def by_place(fields: Fields, name: str) -> Any:
    """Return a field; of a list, only what is for the model's own layers.

    Some lists go on with the layers that predict further tokens.
    """
    given, count = fields.get(name), layer_count(fields)
    further = fields.get("num_nextn_predict_layers")
    if isinstance(given, list | tuple) and count and further and len(given) == count + further:
        return given[:count]
    return given


def made(rule: Mapping[str, Any], count: int) -> list[str]:
    """Return kinds by a rule: a head, a cycle that repeats after it, and perhaps another last."""
    head, cycle = list(rule.get("head", ())), rule["cycle"]
    kinds = [*head, *(cycle[i % len(cycle)] for i in range(count - len(head)))][:count]
    if rule.get("last"):
        kinds[-1] = rule["last"]
    return kinds[::-1] if rule.get("backwards") else kinds


def layer_count(fields: Fields) -> Any:
    """Return the number of attention layers."""
    count = fields.get("num_hidden_layers")
    if count is None or fields.get("model_type") not in model_types.TWICE:
        return count
    return 2 * count


def period_of(fields: Fields) -> int:
    """Return how few layers show each kind that the fields name, where none counts them."""
    given = (fields.get(name) or 1 for name in PERIODS)
    return max(each if isinstance(each, int) else len(each) for each in given)


def attending(fields: Fields, count: int) -> set[int]:
    """Return which layers have attention, in models of mixed kinds."""
    given = first(fields, "attn_layer_indices", "full_attn_idxs")
    if given is not None:
        return set(given)
    period = fields.get("attn_layer_period")
    if period:
        offset = fields.get("attn_layer_offset") or 0
        if offset >= period:
            raise ValueError(
                f"attn_layer_offset must be less than attn_layer_period, which is {period}; got "
                f"{offset}"
            )
        return set(range(offset, count, period))
    return set(range(count))


def kind_by_rule(fields: Fields, index: int, count: int) -> str:
    """Return the kind of a layer by the rules of files without a list of kinds."""
    if index in (fields.get("cross_attention_layers") or ()):
        return "cross_attention"
    if fields.get("model_type") == "llama4_text":
        return "chunked_attention" if rotates(fields, index) else "full_attention"
    pattern = first(fields, "sliding_window_pattern", "_sliding_window_pattern")
    window = None if "sliding_window" in unread(fields) else fields.get("sliding_window")
    every = fields.get("global_attn_every_n_layers")
    if isinstance(pattern, str):  # "LLLG": local, local, local, global
        sliding = bool(window) and pattern[index % len(pattern)] == "L" and index < count - 1
    elif pattern:
        sliding = bool(window) and bool((index + 1) % pattern)
    elif every:
        after = 0 if fields.get("model_type", "").startswith("modernbert") else 1
        sliding = bool((index + after) % every)
    else:
        sliding = bool(window) and slides_from(fields) <= index
    return "sliding_attention" if sliding else "full_attention"


def head_width(fields: Fields) -> int:
    """Return the width of a head's queries and keys."""
    nope, rope = fields.get("qk_nope_head_dim"), fields.get("qk_rope_head_dim")
    if nope is not None and rope is not None:
        return int(nope) + int(rope)
    width = first(fields, "attention_head_dim", "head_dim", "kv_channels")
    if width is None:
        model, heads = fields.get("hidden_size"), fields.get("num_attention_heads")
        if model is None or heads is None:
            raise ValueError("head_dim must be given, or hidden_size and num_attention_heads")
        width = model // heads
    return checks.integer("head_dim", width)


def parameters_in(fields: Fields) -> list[Fields]:
    """Return the rope parameters of a file, each dictionary once, whether by kind or not."""
    given = fields.get("rope_parameters") or fields.get("rope_scaling") or {}
    if not is_by_kind(given):
        return [given]
    return [each for each in given.values() if isinstance(each, Mapping)]


def is_by_kind(parameters: Fields) -> bool:
    """Return whether rope parameters are those of each kind of layer."""
    return any(isinstance(each, Mapping) for each in parameters.values())


def row_of(fields: Fields) -> dict[str, Any]:
    """Return what is recorded of a file's class; empty if it is not known."""
    return model_types.defaults_of(fields.get("model_type"))


def unread(fields: Fields) -> list[str]:
    """Return fields that are given and would change something, and no class of this type reads.

    Windows and second bases, fields of rope parameters, and bases that stand in the code. A rule
    other than "default" reads the share that rotates in every class.
    """
    row, name = row_of(fields), fields.get("model_type")
    if not row:
        return []
    own, fixed = row["fields"], model_types.FIXED_BASE.get(f"{name}")
    read = {*own, *(part.get("base") for part in row.get("rope", {}).values())}
    names = ("sliding_window", "rope_local_base_freq", "compress_rope_theta")
    found = [each for each in names if fields.get(each) is not None and each not in read]
    if fields.get("local_attention") == 2 * (fields.get("sliding_window") or 0):
        found = [each for each in found if each != "sliding_window"]  # the same, written twice
    reads, inside = row.get("reads", ()), parameters_in(fields)
    for each, idle in (("mrope_section", ()), ("llama_4_scaling_beta", (0,))):
        if each not in reads and any(part.get(each) not in (None, *idle) for part in inside):
            found.append(each)
    shares = {part.get("partial_rotary_factor") for part in inside if unstretched(part)}
    shares |= {fields.get("partial_rotary_factor")} if all(map(unstretched, inside)) else set()
    shares -= {part.get("partial_rotary_factor") for part in (own, *row.get("rope", {}).values())}
    if not reads_share(fields) and shares - {None, 1}:
        found.append("partial_rotary_factor")
    if name not in model_types.READS_ROTARY_DIM and shares <= {None, 1}:
        part = fields.get("rotary_dim")
        without = part in (None, own.get("rotary_dim")) or part == head_width(fields)
        found += [] if without else ["rotary_dim"]
    if fixed is not None and fields.get("rope_theta", fixed) not in (None, fixed):
        found.append("rope_theta")
    return found


def own_bases(fields: Fields) -> set[Any]:
    """Return the bases that the class of a file has of its own."""
    row = row_of(fields)
    return {
        part.get("rope_theta")
        for part in (row.get("fields"), *row.get("rope", {}).values())
        if part
    }


def unstretched(parameters: Fields) -> bool:
    """Return whether rope parameters name no rule that stretches."""
    names = (parameters.get("rope_type"), parameters.get("type"))
    return all(name in (None, "default", "mrope") for name in names)


def reads_share(fields: Fields) -> bool:
    """Return whether the class reads how large a part of a head rotates, under the default rule."""
    row = row_of(fields)
    return not row or "partial_rotary_factor" in row.get("reads", ())


def slides_from(fields: Fields) -> float:
    """Return the first layer with a window, where a file gives a window and no pattern."""
    if fields.get("use_sliding_window") is False:
        return math.inf
    return fields.get("max_window_layers") or 0


def rotates(fields: Fields, index: int) -> bool:
    """Return whether a layer has positions, by the fields that list those without."""
    bases = fields.get("layer_rope_theta")
    if bases:
        return bool(bases[index])
    listed = fields.get("no_rope_layers")
    if listed:  # 1 means that the layer rotates
        return bool(listed[index])
    if fields.get("model_type") in model_types.NONE_BEFORE_THE_END:
        return bool((layer_count(fields) - 1 - index) % 4)
    every = first(fields, "no_rope_layer_interval", "nope_layer_interval")
    if every is None:
        every = model_types.NO_ROPE_EVERY.get(fields.get("model_type", ""))
    return not every or (index + 1) % every != 0


def window_of(fields: Fields, kind: str) -> int | None:
    """Return how many distances a layer sees, counting 0, or None for all."""
    model_type = fields.get("model_type")
    if model_type == "recurrent_gemma" and kind == "attention":
        return checks.integer("attention_window_size", fields.get("attention_window_size"))
    windowed = "sliding" in kind or model_type in ("deepseek_v4", "openai_privacy_filter")
    if not windowed or kind in RECURRENT:
        return None
    window = first(fields, "sliding_window", "sliding_window_size")
    if model_type == "mimo_v2_flash" and fields.get("sliding_window_size") is not None:
        window = fields["sliding_window_size"] + 1  # as its class counts it
    if window is None and fields.get("local_attention"):
        window = fields["local_attention"] // 2
    if not window:
        raise ValueError(
            f"sliding_window must be given: layers of the kind {kind!r} have a window, and the "
            "configuration does not say how wide it is"
        )
    return int(window) + (model_type in model_types.SYMMETRIC)
