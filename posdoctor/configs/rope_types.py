"""The rope types of configuration files: from named numbers to the frequencies that they mean.

A configuration names its rule (`rope_type`) and gives the rule's numbers. Field names are those of
the files; each rule is a function or class of `pe_lib.rope_scaling`.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from pe_lib.rope import RoPE
from pe_lib.rope_scaling import (
    DynamicNTK,
    LongRoPE,
    llama3,
    position_interpolation,
    proportional,
    yarn,
    yarn_attention_factor,
)
from posdoctor.configs.checks import (
    PARAMETERS,
    Contradiction,
    check_count,
    check_fields,
    check_order,
    positive,
)

Parameters = Mapping[str, Any]

# What each rule may be given; whatever else stands there is refused, since it would change it.
COMMON = {"rope_type", "type", "rope_theta", "partial_rotary_factor"}
COMMON |= {"mrope_section", "mrope_interleaved", "llama_4_scaling_beta"}
TRAINED = "original_max_position_embeddings"
FIELDS = {
    "default": set(),
    "linear": {"factor"},
    "dynamic": {"factor", "alpha", TRAINED},
    "yarn": {"factor", TRAINED, "attention_factor", "beta_fast", "beta_slow", "mscale"}
    | {"mscale_all_dim", "truncate", "max_position_embeddings", "finetuned"},
    "longrope": {"factor", TRAINED, "attention_factor", "short_factor", "long_factor"}
    | {"short_mscale", "long_mscale"},
    "llama3": {"factor", TRAINED, "low_freq_factor", "high_freq_factor"},
    "proportional": {"factor"},
}
OLD_NAMES = {"su": "longrope", "mrope": "default"}

# Tencent's files call a larger base "dynamic" and bring along numbers that its code does not read.
ALPHA_UNREAD = {"factor", "beta_fast", "beta_slow", "mscale", "mscale_all_dim"}


@dataclass(frozen=True)
class Head:
    """Where rotation acts in a head, and how long the model's context is."""

    width: int  # of a head
    part: int  # components that the frequencies are made for
    layout: str
    context: int | None  # max_position_embeddings

    @property
    def rotating(self) -> int:
        """Return how many components rotate; an odd part is rounded up."""
        return self.part + self.part % 2


def rope_type(parameters: Parameters) -> str:
    """Return the name of the rule, after checking every field.

    Raises:
        ValueError: if the rule is unknown, or a field is.
    """
    words = {
        field: parameters[field]
        for field in ("rope_type", "type")
        if parameters.get(field) is not None
    }
    for given in words.values():
        if not isinstance(given, str) or OLD_NAMES.get(given, given) not in FIELDS:
            raise ValueError(f"rope_type must be one of {', '.join(FIELDS)}; got {given!r}")
    named = {OLD_NAMES.get(given, given) for given in words.values()}
    if len(named) > 1:
        raise Contradiction(f"rope_type and type must name the same rule, got {words}")
    name = next(iter(named), "default")
    allowed = COMMON | FIELDS[name] | (ALPHA_UNREAD if parameters.get("alpha") else set())
    unknown = sorted(set(parameters) - allowed)
    if unknown:
        raise ValueError(
            f"rope parameters of type {name!r} must not have fields that no rule here reads, got "
            f"{', '.join(unknown)}"
        )
    check_fields(parameters, PARAMETERS)
    return name


def base_inv_freq(parameters: Parameters, head: Head, part: int | None = None) -> Tensor:
    """Return base ** (-2j / part) for each pair, before any rule: float64."""
    base = positive("rope_theta", parameters.get("rope_theta"))
    part = head.part if part is None else part
    return base ** -(torch.arange(0, part, 2, dtype=torch.float64, device="cpu") / part)


def number(parameters: Parameters, name: str, default: float | None = None) -> float:
    """Return a number above 0 of the parameters."""
    value = parameters.get(name)
    return positive(name, default if value is None else value)


def trained_length(parameters: Parameters, head: Head) -> int:
    """Return the length before the extension: the field, or the whole context."""
    return int(number(parameters, TRAINED, head.context))


def factor_of(parameters: Parameters, head: Head) -> float:
    """Return the factor, or else the context over the trained length."""
    if parameters.get("factor") is not None or head.context is None:
        return number(parameters, "factor")
    return head.context / trained_length(parameters, head)


def attention_factor_of(parameters: Parameters, factor: float) -> float:
    """Return YaRN's attention factor: as given, of the factor, or a ratio of two weights.

    Source: DeepSeek-AI 2024, whose code divides the factor of `mscale` by that of `mscale_all_dim`
        and multiplies all scores by the square of the latter instead.
    """
    if parameters.get("attention_factor") is not None:
        return number(parameters, "attention_factor")
    first, second = parameters.get("mscale"), parameters.get("mscale_all_dim")
    if first and second:
        return yarn_attention_factor(factor, 0.1 * first) / yarn_attention_factor(
            factor, 0.1 * second
        )
    return yarn_attention_factor(factor)


def plain(inv_freq: Tensor, head: Head, attention_factor: float = 1.0) -> RoPE:
    """Return RoPE with these frequencies."""
    return RoPE(
        head.width,
        layout=head.layout,
        rotary_dim=2 * len(inv_freq),
        inv_freq=inv_freq,
        attention_factor=attention_factor,
    )


def default_rope(parameters: Parameters, head: Head) -> RoPE:
    """Return RoPE as the paper has it."""
    return plain(base_inv_freq(parameters, head), head)


def linear_rope(parameters: Parameters, head: Head) -> RoPE:
    """Return position interpolation."""
    inv_freq = base_inv_freq(parameters, head)
    return plain(position_interpolation(inv_freq, number(parameters, "factor")), head)


def dynamic_rope(parameters: Parameters, head: Head) -> RoPE:
    """Return dynamic NTK; with `alpha`, NTK's larger base at every length (Hunyuan)."""
    if parameters.get("alpha"):
        part = head.part
        base = parameters["rope_theta"] * number(parameters, "alpha") ** (part / (part - 2))
        return default_rope({**parameters, "rope_theta": base}, head)
    return DynamicNTK(
        head.width,
        number(parameters, "factor"),
        int(positive("max_position_embeddings", head.context)),
        layout=head.layout,
        rotary_dim=head.rotating,
        inv_freq=base_inv_freq(parameters, head),
    )


def yarn_rope(parameters: Parameters, head: Head) -> RoPE:
    """Return YaRN with its attention factor."""
    bounds = {"beta_slow": 1.0, "beta_fast": 32.0}
    bounds |= {name: parameters[name] for name in bounds if parameters.get(name) is not None}
    check_order(bounds, "beta_slow", "beta_fast")
    factor = factor_of(parameters, head)
    truncate = parameters.get("truncate")
    inv_freq = yarn(
        base_inv_freq(parameters, head),
        factor,
        trained_length(parameters, head),
        slow=bounds["beta_slow"],
        fast=bounds["beta_fast"],
        truncate=True if truncate is None else truncate,
    )
    return plain(inv_freq, head, attention_factor_of(parameters, factor))


def longrope_rope(parameters: Parameters, head: Head) -> RoPE:
    """Return LongRoPE; the attention factor may be given, once or twice the same (PhiMoE)."""
    for name in ("short_factor", "long_factor"):
        check_count(name, parameters[name], head.rotating // 2, "the number of pairs that rotate")
    pair = [parameters.get(name) for name in ("short_mscale", "long_mscale")]
    attention_factor: float | None = parameters.get("attention_factor")
    if pair[0] is not None and pair[1] is not None:
        if pair[0] != pair[1]:
            raise ValueError(f"short_mscale and long_mscale must be equal, got {pair}")
        attention_factor = pair[0]
    short, long = (
        torch.tensor(parameters[name], dtype=torch.float64, device="cpu")
        for name in ("short_factor", "long_factor")
    )
    return LongRoPE(
        head.width,
        short,
        long,
        trained_length(parameters, head),
        factor_of(parameters, head),
        attention_factor=attention_factor,
        layout=head.layout,
        rotary_dim=head.rotating,
        inv_freq=base_inv_freq(parameters, head),
    )


def llama3_rope(parameters: Parameters, head: Head) -> RoPE:
    """Return the rule of Llama 3.1."""
    check_order(parameters, "low_freq_factor", "high_freq_factor")
    low, high = (number(parameters, name) for name in ("low_freq_factor", "high_freq_factor"))
    high = max(high, math.nextafter(low, math.inf))  # equal in Llama 4 Scout: nothing in between
    trained = trained_length(parameters, head)
    inv_freq = base_inv_freq(parameters, head)
    return plain(llama3(inv_freq, number(parameters, "factor"), trained, low, high), head)


def proportional_rope(parameters: Parameters, head: Head) -> RoPE:
    """Return p-RoPE: frequencies of the whole head, of which only the fastest rotate."""
    inv_freq = base_inv_freq(parameters, head, head.width)
    share = parameters.get("partial_rotary_factor")
    kept = proportional(inv_freq, 1.0 if share is None else share)
    return plain(kept / number(parameters, "factor", 1.0), head)


RULES: dict[str, Callable[[Parameters, Head], RoPE]] = {
    "default": default_rope,
    "linear": linear_rope,
    "dynamic": dynamic_rope,
    "yarn": yarn_rope,
    "longrope": longrope_rope,
    "llama3": llama3_rope,
    "proportional": proportional_rope,
}


def rope_from(parameters: Parameters, head: Head) -> RoPE:
    """Return the rotation that a configuration's rope parameters mean.

    Args:
        parameters: fields as in `rope_parameters` of a configuration.
        head: where in a head it acts.

    Raises:
        ValueError: if the rule or a field is unknown, or one that it needs is missing or wrong.
    """
    name = rope_type(parameters)
    missing = [key for key in ("short_factor", "long_factor") if key not in parameters]
    if name == "longrope" and missing:
        raise ValueError(f"rope parameters of type 'longrope' must have {', '.join(missing)}")
    return RULES[name](parameters, head)
