"""Whether the fields of a configuration can mean anything: each error names field, given, allowed.

Checked is what `from_config` reads, before it reads it, in layers that have no attention too.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Mapping, Sequence
from functools import partial
from numbers import Integral, Real
from typing import Any, TypeAlias

Check: TypeAlias = Callable[[str, Any], object]


class Contradiction(ValueError):
    """Two fields of a configuration cannot both be meant."""


def integer(name: str, value: object, least: int = 1) -> int:
    """Return `value` as an int if it is an integer of at least `least`."""
    if not isinstance(value, Integral) or isinstance(value, bool):
        raise TypeError(f"{name} must be an int, got {value!r}")
    if value < least:
        raise ValueError(f"{name} must be at least {least}, got {value}")
    return int(value)


def even(name: str, value: object, why: str) -> int:
    """Return `value` as an int if it is a positive even number."""
    given = integer(name, value)
    if given % 2:
        raise ValueError(f"{name} must be a multiple of 2 ({why}), got {given}")
    return given


def number(name: str, value: object) -> float:
    """Return `value` as a float if it is a finite number."""
    if not isinstance(value, Real) or isinstance(value, bool):
        raise TypeError(f"{name} must be a number, got {value!r}")
    if not math.isfinite(value):
        raise ValueError(f"{name} must be a finite number, got {value!r}")
    return float(value)


def positive(name: str, value: object) -> float:
    """Return `value` as a float if it is a finite number greater than 0."""
    given = number(name, value)
    if given <= 0:
        raise ValueError(f"{name} must be a finite number greater than 0, got {value!r}")
    return given


def at_least(name: str, value: object, least: float) -> None:
    """Raise unless `value` is a finite number of at least `least`."""
    if number(name, value) < least:
        raise ValueError(f"{name} must be a finite number of at least {least:g}, got {value!r}")


def boolean(name: str, value: object) -> None:
    """Raise unless `value` is True or False."""
    if not isinstance(value, bool):
        raise TypeError(f"{name} must be True or False, got {value!r}")


def one_of(name: str, value: object, allowed: Collection[str]) -> str:
    """Return `value` if it is one of the allowed words."""
    if not isinstance(value, str) or value not in allowed:
        raise ValueError(f"{name} must be one of {', '.join(allowed)}; got {value!r}")
    return value


from_zero = partial(integer, least=0)
not_negative = partial(at_least, least=0)
at_least_one = partial(at_least, least=1)  # a stretch never shortens


def share(name: str, value: object) -> None:
    """Raise unless `value` is a part of a whole: above 0, and 1 at most."""
    if positive(name, value) > 1:
        raise ValueError(f"{name} must be greater than 0 and at most 1, got {value!r}")


def sequence(name: str, value: object) -> Sequence[Any]:
    """Return `value` if it is a list or a tuple."""
    if isinstance(value, list | tuple):
        return value
    raise TypeError(f"{name} must be a list, got {value!r}")


def listed(check: Check) -> Check:
    """Return a check of a list, each of whose entries must pass `check`."""

    def check_all(name: str, value: object) -> None:
        for index, entry in enumerate(sequence(name, value)):
            check(f"{name}[{index}]", entry)

    return check_all


def one_or_listed(check: Check) -> Check:
    """Return a check of a value, or of a list with one for each layer."""
    return lambda name, value: (listed(check) if isinstance(value, list | tuple) else check)(
        name, value
    )


def flag(name: str, value: object) -> None:
    """Raise unless `value` is 0 or 1, or False or True."""
    if value not in (0, 1):
        raise ValueError(f"{name} must be 0 or 1, got {value!r}")


def mapping(name: str, value: object) -> Mapping[str, Any]:
    """Return `value` if it is a dictionary."""
    if isinstance(value, Mapping):
        return value
    raise TypeError(f"{name} must be a dictionary, got {value!r}")


def local_or_global(name: str, value: object) -> None:
    """Raise unless `value` is a period, or letters as in "LLLG"."""
    if not isinstance(value, str):
        integer(name, value)
    elif not value or set(value) - set("LG"):
        raise ValueError(f"{name} must be a number or of the letters L and G, got {value!r}")


FIELDS: dict[str, Check] = {
    **dict.fromkeys(
        (
            "attention_chunk_size", "attention_window_size", "attn_layer_period",
            "full_attention_interval", "global_attn_every_n_layers", "local_attention",
            "max_position_embeddings", "nope_layer_interval", "no_rope_layer_interval",
            "rotary_dim", "hidden_size", "num_attention_heads", "num_key_value_heads",
        ),
        integer,
    ),
    **dict.fromkeys(
        ("attn_layer_offset", "max_window_layers", "qk_nope_head_dim", "qk_rope_head_dim",
         "sliding_window", "sliding_window_size"),  # 0 where windows are switched off
        from_zero,
    ),
    **dict.fromkeys(
        ("rope_local_base_freq", "compress_rope_theta", "swa_rope_theta"), positive
    ),
    "rope_theta": one_or_listed(positive),
    "partial_rotary_factor": share,
    "partial_rotary_factors": listed(share),
    **dict.fromkeys(
        ("rope_interleave", "rope_interleaved", "use_sliding_window", "use_mem_rope"), boolean
    ),
    **dict.fromkeys(
        ("attn_layer_indices", "full_attn_idxs", "cross_attention_layers", "rope_scaling_layers"),
        listed(from_zero),
    ),
    **dict.fromkeys(("sliding_window_pattern", "_sliding_window_pattern"), local_or_global),
    "layer_rope_theta": listed(not_negative),
    "no_rope_layers": listed(flag),
    **dict.fromkeys(("rope_parameters", "rope_scaling", "per_layer_config"), mapping),
}  # fmt: skip

PARAMETERS: dict[str, Check] = {
    "factor": at_least_one,
    **dict.fromkeys(
        ("attention_factor", "rope_theta", "alpha", "beta_fast", "beta_slow",
         "low_freq_factor", "high_freq_factor", "short_mscale", "long_mscale"),
        positive,
    ),
    **dict.fromkeys(("mscale", "mscale_all_dim", "llama_4_scaling_beta"), not_negative),
    **dict.fromkeys(("original_max_position_embeddings", "max_position_embeddings"), integer),
    **dict.fromkeys(("truncate", "mrope_interleaved"), boolean),
    **dict.fromkeys(("short_factor", "long_factor"), listed(positive)),
    "partial_rotary_factor": share,
    "mrope_section": listed(from_zero),
}  # fmt: skip


def check_fields(fields: Mapping[str, Any], checks: Mapping[str, Check] = FIELDS) -> None:
    """Raise if a field that is given has a value that means nothing.

    Raises:
        TypeError: if a value has the wrong type.
        ValueError: if it is out of range.
    """
    for name, check in checks.items():
        if fields.get(name) is not None:
            check(name, fields[name])


def check_beside(fields: Mapping[str, Any]) -> None:
    """Raise if rope parameters for all layers cannot be meant with what stands beside them."""
    given = fields.get("rope_parameters") or fields.get("rope_scaling")
    inside = given if isinstance(given, Mapping) else {}
    base, beside = inside.get("rope_theta"), fields.get("rope_theta")
    if base is not None and beside is not None and base != beside:
        raise Contradiction(
            f"rope_theta must be that of the rope parameters, which is {base!r}; got {beside!r}"
        )
    share, other = (each.get("partial_rotary_factor") for each in (inside, fields))
    if share is not None and other is not None and share != other:
        raise Contradiction(
            f"partial_rotary_factor must be that of the rope parameters, which is {share!r}; got "
            f"{other!r}"
        )
    name, context = "original_max_position_embeddings", fields.get("max_position_embeddings")
    trained = inside.get(name)
    if isinstance(trained, int) and isinstance(context, int) and trained > context:
        raise Contradiction(
            f"{name} must be at most max_position_embeddings, which is {context}; got {trained}"
        )


def check_heads(fields: Mapping[str, Any]) -> None:
    """Raise unless heads divide the width that they share, and share keys and values evenly."""
    width, heads, shared = (
        fields.get(name) for name in ("hidden_size", "num_attention_heads", "num_key_value_heads")
    )
    wide = (fields.get(name) for name in ("head_dim", "attention_head_dim", "kv_channels",
                                          "qk_nope_head_dim"))  # fmt: skip
    if heads and width and width % heads and all(each is None for each in wide):
        raise Contradiction(f"hidden_size must be a multiple of {heads}, the heads; got {width}")
    if heads and shared and heads % shared:
        raise Contradiction(
            f"num_attention_heads must be a multiple of num_key_value_heads, which is {shared}; "
            f"got {heads}"
        )


def check_kinds(name: str, kinds: object, allowed: Sequence[str]) -> list[str]:
    """Return a list of kinds of layers if each is an allowed word."""
    words = list(sequence(name, kinds))
    for index, word in enumerate(words):
        one_of(f"{name}[{index}]", word, allowed)
    return words


def check_count(name: str, value: Sequence[Any], count: int, of: str = "num_hidden_layers") -> None:
    """Raise unless a list has one entry for every layer."""
    if len(value) != count:
        raise ValueError(f"{name} must have {count} entries, as {of} says; got {len(value)}")


def check_indices(fields: Mapping[str, Any], count: int) -> None:
    """Raise if a field that lists layers by their numbers names one that there is not."""
    for name in ("attn_layer_indices", "full_attn_idxs", "rope_scaling_layers"):
        beyond = [index for index in fields.get(name) or () if index >= count]
        if beyond:
            raise ValueError(f"{name} must be of layers 0 to {count - 1}, got {beyond}")


def check_order(parameters: Mapping[str, Any], lower: str, upper: str) -> None:
    """Raise if one field of the rope parameters is less than another, and both are given."""
    low, high = parameters.get(lower), parameters.get(upper)
    if low is not None and high is not None and high < low:
        raise ValueError(f"{upper} must be at least {lower}, which is {low}; got {high}")


def check_sections(parameters: Mapping[str, Any], part: int) -> None:
    """Raise unless the sections of M-RoPE name every pair that rotates once.

    Args:
        parameters: rope parameters.
        part: components of a head that rotate.
    """
    sections = parameters.get("mrope_section")
    if sections is not None and sum(sections) != part // 2:
        raise Contradiction(
            f"mrope_section must add up to {part // 2}, the pairs of the {part} components that "
            f"rotate; got {list(sections)}, which is {sum(sections)}"
        )


def check_parameters_by_kind(
    given: Mapping[str, Any], kinds: Sequence[str], allowed: Sequence[str]
) -> None:
    """Raise unless rope parameters by the kind of layer are for kinds that there are.

    Args:
        given: the dictionary of dictionaries.
        kinds: of the layers.
        allowed: further names.
    """
    known = list(dict.fromkeys([*kinds, *allowed]))
    unused = [name for name in given if name not in known]
    if unused:
        raise ValueError(
            f"rope_parameters by kind must be for kinds of layers that there are, "
            f"{', '.join(known)}; got {', '.join(map(repr, unused))}"
        )
    for name, parameters in given.items():
        if parameters is not None:
            mapping(f"rope_parameters[{name!r}]", parameters)
