"""What a model's configuration asks for: the base, the rule, the gain."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor

from clinic.profile import Case, Profile
from clinic.rules import Rule, series
from clinic.subjects import InputError
from pe_lib.context_extension import (
    llama3,
    longrope_gain,
    position_interpolation,
    proportional,
    yarn,
    yarn_gain,
)

NAMES = ("rope_parameters", "rope_scaling")
MINE = ("base", "layout", "gain", "rotary_dim", "head_dim")


def is_configuration(given: Mapping[str, Any]) -> bool:
    """Return whether a mapping is a model's configuration rather than values to expect."""
    return any(key in given for key in ("model_type", "rope_theta", *NAMES, "hidden_size"))


def scaling_of(config: Mapping[str, Any]) -> dict[str, Any]:
    """Return the rope parameters of a configuration, wherever they stand."""
    found: dict[str, Any] = {}
    for name in reversed(NAMES):
        found |= dict(config.get(name) or {})
    if any(isinstance(value, Mapping) for value in found.values()):
        raise InputError(
            "the configuration has rope parameters for each kind of layer; give those of one "
            f"of {', '.join(found)} as rope_parameters"
        )
    return found


def head_dim_of(config: Mapping[str, Any]) -> int:
    """Return the width of the part of a head that a configuration rotates from."""
    for key in ("qk_rope_head_dim", "head_dim"):
        if config.get(key):
            return int(config[key])
    try:
        return int(config["hidden_size"]) // int(config["num_attention_heads"])
    except KeyError as error:
        raise InputError(
            "the configuration must have head_dim, or hidden_size and num_attention_heads; "
            f"{error} is missing"
        ) from error


def base_of(config: Mapping[str, Any], case: Case) -> float:
    """Return the base, and say whether it is missing or stands there twice."""
    bases = {
        f"{place}{key}": float(value)
        for place, part in (("", config), ("rope_parameters.", scaling_of(config)))
        for key in ("rope_theta", "rotary_emb_base", "rope_base")
        if (value := part.get(key)) is not None
    }
    if not bases:
        case.unsure("base-missing", "10000 is assumed here")
        return 10000.0
    if len(set(bases.values())) > 1:
        words = ", ".join(f"{name} is {value:g}" for name, value in bases.items())
        case.fault("base-twice", words)
    return bases.get("rope_parameters.rope_theta", next(iter(bases.values())))


def examine_configuration(config: Mapping[str, Any], case: Case) -> Profile:
    """Return what a configuration asks for, and say what is odd about it."""
    scaling, dim = scaling_of(config), head_dim_of(config)
    rule = scaling.get("rope_type", scaling.get("type", "default"))
    rule = {"mrope": "default", "su": "longrope"}.get(rule, rule)
    base = base_of(config, case)
    share = scaling.get("partial_rotary_factor", config.get("partial_rotary_factor", 1.0))
    width = int(dim * share) // 2 * 2 if rule != "proportional" else dim
    plain = series(width // 2, base)
    try:
        rates, gain = rates_of(str(rule), plain, scaling | {"partial_rotary_factor": share}, config)
    except KeyError as error:
        raise InputError(f"rope_type {rule!r} needs {error} in the rope parameters") from error
    if rates is None:
        case.unsure("unknown-rule", f"rope_type {rule!r}")
        case.unexamined.append("frequencies: the rule is unknown or depends on the length")
    check_factor(scaling, config, case)
    case.facts |= {"rule": str(rule), "base": f"{base:g}", "rotates": f"{width} of {dim}"}
    case.facts["gain"] = f"{gain:.6g}"
    found = Profile("rotary", dim, gain=gain)
    if rates is not None:
        found.rates = rates[rates > 0][:, None] if rule == "proportional" else rates[:, None]
        found.rule = Rule(str(rule), base, float(scaling.get("factor") or 1.0))
    return found


def rates_of(
    rule: str, plain: Tensor, scaling: Mapping[str, Any], config: Mapping[str, Any]
) -> tuple[Tensor | None, float]:
    """Return the frequencies and the gain of a rule; None if they depend on the length."""
    length = scaling.get("original_max_position_embeddings") or config.get(
        "original_max_position_embeddings", config.get("max_position_embeddings", 0)
    )
    if rule == "default":
        return plain, 1.0
    if rule == "linear":
        return position_interpolation(plain, scaling["factor"]), 1.0
    if rule == "llama3":
        ends = scaling["low_freq_factor"], scaling["high_freq_factor"]
        return llama3(plain, scaling["factor"], int(length), *ends), 1.0
    if rule == "yarn":
        factor = scaling["factor"]
        slow, fast = scaling.get("beta_slow") or 1.0, scaling.get("beta_fast") or 32.0
        whole = scaling.get("truncate", True)
        rates = yarn(plain, factor, int(length), slow=slow, fast=fast, truncate=whole)
        return rates, yarn_attention_factor(scaling, factor)
    if rule == "proportional":
        return proportional(plain, scaling["partial_rotary_factor"]), 1.0
    if rule == "longrope":
        factor = scaling.get("factor") or config["max_position_embeddings"] / length
        gain = scaling.get("attention_factor") or longrope_gain(factor, int(length))
        short = torch.tensor(scaling["short_factor"], dtype=torch.float64)
        return plain / short, float(gain)
    return None, 1.0


def yarn_attention_factor(scaling: Mapping[str, Any], factor: float) -> float:
    """Return the gain of YaRN as configurations give it: itself, two mscales, or neither."""
    if scaling.get("attention_factor") is not None:
        return float(scaling["attention_factor"])
    mscale, whole = scaling.get("mscale"), scaling.get("mscale_all_dim")
    if mscale and whole:
        return float((0.1 * mscale * math.log(factor) + 1) / (0.1 * whole * math.log(factor) + 1))
    return yarn_gain(factor)


def check_factor(scaling: Mapping[str, Any], config: Mapping[str, Any], case: Case) -> None:
    """Compare the factor with the two lengths, where all three are given."""
    factor, old = scaling.get("factor"), scaling.get("original_max_position_embeddings")
    new = config.get("max_position_embeddings")
    if factor and old and new and abs(new / old / factor - 1) > 1e-6:
        case.note("factor-unlike-lengths", f"factor {factor:g}, lengths {new} / {old}")
