"""Which kind each layer of a configuration is: its window, and whether it has positions at all.

Today's files list the kinds (`layer_types`); older ones have a rule of their model's own.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any, TypeAlias

from configs import model_types
from pe_lib.errors import require_positive

Fields: TypeAlias = Mapping[str, Any]

RECURRENT = {"linear_attention", "conv", "mamba", "mamba2", "recurrent", "moe", "mlp"}


def first(fields: Fields, *names: str) -> Any:
    """Return the first of these fields that is given and not None, or None."""
    return next((fields[name] for name in names if fields.get(name) is not None), None)


def kinds_of(fields: Fields) -> list[str]:
    """Return the kind of each layer, from a list or from the rules that older files have."""
    listed = first(fields, "layer_types", "layers_block_type")
    if listed is not None:
        return list(listed)
    count = require_positive("num_hidden_layers", layer_count(fields))
    cycle = fields.get("block_types")
    if cycle:  # a pattern that repeats
        return [cycle[index % len(cycle)] for index in range(count)]
    attends = attending(fields, count)
    return [
        kind_by_rule(fields, index, count) if index in attends else "recurrent"
        for index in range(count)
    ]


def layer_count(fields: Fields) -> Any:
    """Return the number of attention layers."""
    count = first(fields, "num_hidden_layers", "n_layer", "num_layers", "n_layers")
    twice = fields.get("model_type") in model_types.TWICE and count is not None
    return 2 * count if twice else count


def attending(fields: Fields, count: int) -> set[int]:
    """Return which layers have attention, in models of mixed kinds."""
    given = first(fields, "attn_layer_indices", "full_attn_idxs")
    if given is not None:
        return set(given)
    period = fields.get("attn_layer_period")
    if period:
        return set(range(fields.get("attn_layer_offset") or 0, count, period))
    return set(range(count))


def kind_by_rule(fields: Fields, index: int, count: int) -> str:
    """Return the kind of a layer by the rules of files without a list of kinds."""
    if index in (fields.get("cross_attention_layers") or ()):
        return "cross_attention"
    if fields.get("model_type") == "llama4_text":
        return "chunked_attention" if rotates(fields, index) else "full_attention"
    pattern = first(fields, "sliding_window_pattern", "_sliding_window_pattern")
    every = fields.get("global_attn_every_n_layers")
    if isinstance(pattern, str):  # "LLLG": local, local, local, global
        sliding = pattern[index % len(pattern)] == "L" and index < count - 1
    elif pattern:
        sliding = bool((index + 1) % pattern)
    elif every:
        after = 0 if fields.get("model_type", "").startswith("modernbert") else 1
        sliding = bool((index + after) % every)
    else:
        sliding = bool(fields.get("sliding_window")) and slides_from(fields) <= index
    return "sliding_attention" if sliding else "full_attention"


def slides_from(fields: Fields) -> float:
    """Return the first layer with a window, where a file gives a window and no pattern."""
    if fields.get("use_sliding_window") is None:
        return 0
    return fields.get("max_window_layers") or 0 if fields["use_sliding_window"] else math.inf


def rotates(fields: Fields, index: int) -> bool:
    """Return whether a layer has positions, by the fields that list those without."""
    bases = fields.get("layer_rope_theta")
    if bases:
        return bool(bases[index])
    listed = fields.get("no_rope_layers")
    if listed:  # 1 means that the layer rotates
        return bool(listed[index])
    every = first(fields, "no_rope_layer_interval", "nope_layer_interval")
    return not every or (index + 1) % every != 0


def window_of(fields: Fields, kind: str) -> int | None:
    """Return how many distances a layer sees, counting 0, or None for all."""
    model_type = fields.get("model_type")
    if model_type == "recurrent_gemma" and kind == "attention":
        return require_positive("attention_window_size", fields.get("attention_window_size"))
    compressed = model_type == "deepseek_v4"
    windowed = "sliding" in kind or compressed or model_type == "openai_privacy_filter"
    if not windowed or kind in RECURRENT:
        return None
    window = first(fields, "sliding_window", "sliding_window_size")
    if window is None and fields.get("local_attention"):
        window = fields["local_attention"] // 2
    if not window:
        return None
    return int(window) + (model_type in model_types.SYMMETRIC)
