"""Between this library and others: configurations, tables, masks, kernels and weights.

Names are those of the others: `rope_parameters`, `position_ids`, `attention_mask`, `cos` and `sin`,
`score_mod`.
"""

import math
from collections.abc import Callable, Mapping
from typing import Annotated, Any, TypeAlias

import torch
from torch import Tensor, nn

from pe_lib.alibi import ALiBi, alibi_slopes
from pe_lib.arguments import (
    RULES,
    Count,
    Even,
    Integers,
    Layout,
    checked,
    may_read,
    numbers,
    require_greater,
    require_kind,
    require_multiple,
    require_shapes,
)
from pe_lib.context_extension import (
    DynamicNTK,
    LongRoPE,
    llama3,
    position_interpolation,
    proportional,
    yarn,
    yarn_gain,
)
from pe_lib.encoding import NoPosition, PositionEncoding
from pe_lib.fire import Fire
from pe_lib.kerple import Kerple
from pe_lib.rope import RoPE, layout_permutation, split_pairs
from pe_lib.sinusoidal import arrange
from pe_lib.t5 import T5Bias, t5_bucket
from pe_lib.window import SlidingWindow

# --- configurations -------------------------------------------------------------------------------

Parameters: TypeAlias = Mapping[str, Any]

ORIGINAL, LONGEST = "original_max_position_embeddings", "max_position_embeddings"
COMMON = ("rope_type", "type", "rope_theta", "partial_rotary_factor", LONGEST)
# What each type must be given, and what it may be given besides.
REQUIRED: dict[str, tuple[str, ...]] = {
    "default": (),
    "linear": ("factor",),
    "dynamic": ("factor", LONGEST),
    "yarn": (ORIGINAL,),
    "longrope": (ORIGINAL, "short_factor", "long_factor"),
    "llama3": (ORIGINAL, "factor", "low_freq_factor", "high_freq_factor"),
    "proportional": (),
}
OPTIONAL: dict[str, tuple[str, ...]] = {
    "yarn": (
        *("factor", "attention_factor", "beta_fast", "beta_slow"),
        *("mscale", "mscale_all_dim", "truncate"),
    ),
    "longrope": ("factor", "attention_factor"),
    "proportional": ("factor",),
}
# What each value must be: a word of `pe_lib.arguments`.
WORDS: dict[str, Any] = {
    "rope_theta": "above 1",
    **dict.fromkeys((ORIGINAL, LONGEST), "at least 1"),
    **dict.fromkeys(("factor", "attention_factor", "partial_rotary_factor"), "above 0"),
    **dict.fromkeys(("beta_fast", "beta_slow", "low_freq_factor", "high_freq_factor"), "above 0"),
    **dict.fromkeys(("mscale", "mscale_all_dim"), "at least 0"),
    "truncate": bool,
}
# Keys that change more than frequencies, and what stands for them.
ELSEWHERE = {
    "mrope_section": "AxesRoPE with section_directions rotates by several axes",
    "llama_4_scaling_beta": "QueryTemperature scales queries",
}


@checked()
def rope_from_parameters(
    rope_parameters: Mapping[str, Any],
    head_dim: Count,
    *,
    max_position_embeddings: Count | None = None,
    layer_type: str | None = None,
    layout: Layout = "half",
) -> RoPE:
    """Build the rotation that `config.rope_parameters` of transformers 5 and vLLM describes.

    Frequencies and attention factor are those of transformers, in float64. Not in them, and not
    read here: the factor on the softmax scale that DeepSeek's layers derive from `mscale_all_dim`.

    Args:
        rope_parameters: the dictionary: `rope_type` (default, linear, dynamic, yarn, longrope,
            llama3 or proportional; "default" if absent), `rope_theta`, `partial_rotary_factor`, and
            what the type needs. A value of None counts as absent, except that of `truncate`, which
            transformers takes for False: it is refused. It may be nested, with such a dictionary
            for each kind of layer.
        head_dim: width d of a head, or of the part that is meant to rotate (`qk_rope_head_dim`).
        max_position_embeddings: the configuration's field of that name, where it does not stand in
            the dictionary. "dynamic" needs it, and so do "yarn" and "longrope" without a factor.
        layer_type: which entry of a nested dictionary, such as "full_attention".
        layout: "half", as in most models of transformers; "interleaved" for those that rotate
            neighbours (GLM, Cohere, Llama 4).

    Returns:
        `RoPE`; `DynamicNTK` or `LongRoPE` where the length of the sequence decides.

    Raises:
        ValueError: if the type is unknown, a key is missing, or a key is given that the type does
            not read; if a nested dictionary has no entry `layer_type`.

    Source: transformers 5.23, `modeling_rope_utils`. It overlooks `truncate` in a nested
        dictionary, which is read here. Odd numbers of rotating components are rounded up.
    """
    parameters = parameters_of_layer(rope_parameters, layer_type)
    if max_position_embeddings is not None:
        parameters = {**parameters, LONGEST: max_position_embeddings}
    rope_type, parameters = checked_parameters(parameters)
    share = parameters.get("partial_rotary_factor", 1.0)
    if share > 1 or int(head_dim * share) < 1:
        raise ValueError(
            f"partial_rotary_factor must be at most 1 and leave a component of {head_dim}, "
            f"got {share}"
        )
    dim = head_dim if rope_type == "proportional" else int(head_dim * share)
    if dim % 2 and rope_type in ("dynamic", "yarn"):
        raise ValueError(
            f"head_dim * partial_rotary_factor must be even for rope_type {rope_type!r}, got {dim}"
        )
    exponents = torch.arange(0, dim, 2, dtype=torch.float64, device="cpu") / dim
    inv_freq = parameters["rope_theta"] ** -exponents
    options: dict[str, Any] = {"layout": layout, "rotary_dim": 2 * len(inv_freq)}
    if rope_type == "dynamic":
        lengths = parameters["factor"], parameters[LONGEST]
        return DynamicNTK(head_dim, *lengths, rates=inv_freq, **options)
    if rope_type == "longrope":
        attention_factor = parameters.get("attention_factor")
        return LongRoPE(
            head_dim,
            pair_factors(parameters, "short_factor", len(inv_freq)),
            pair_factors(parameters, "long_factor", len(inv_freq)),
            parameters[ORIGINAL],
            stretch(parameters) if attention_factor is None else 1.0,
            gain=attention_factor,
            rates=inv_freq,
            **options,
        )
    inv_freq, attention_factor = SCALINGS[rope_type](inv_freq, parameters)
    return RoPE(head_dim, rates=inv_freq, gain=attention_factor, **options)


def parameters_of_layer(rope_parameters: Parameters, layer_type: str | None) -> Parameters:
    """Return the entry of a kind of layer, or all of a dictionary that is not nested."""
    kinds = [key for key, value in rope_parameters.items() if isinstance(value, Mapping)]
    if not kinds and layer_type is None:
        return rope_parameters
    if not kinds:
        raise ValueError(
            f"layer_type must be None: rope_parameters is not nested; got {layer_type!r}"
        )
    if rope_parameters.get(str(layer_type), layer_type) is None and layer_type is not None:
        raise ValueError(
            f"layer_type {layer_type!r} has no rotation in rope_parameters: NoPosition()"
        )
    if layer_type not in kinds:
        raise ValueError(
            f"layer_type must be one of {', '.join(kinds)}, which rope_parameters is nested by; "
            f"got {layer_type!r}"
        )
    entry: Parameters = rope_parameters[layer_type]
    return entry


def checked_parameters(parameters: Parameters) -> tuple[str, dict[str, Any]]:
    """Return the type and the values that are given; raise unless the type reads just these."""
    given = {key: value for key, value in parameters.items() if value is not None}
    given |= {"truncate": None} if parameters.get("truncate", True) is None else {}
    names = [given[key] for key in ("rope_type", "type") if key in given] or ["default"]
    if names[0] not in list(REQUIRED) or names[0] != names[-1]:
        raise ValueError(
            f"rope_type must be one of {', '.join(REQUIRED)}; got {' and '.join(map(repr, names))}"
        )
    rope_type = str(names[0])
    required = ("rope_theta", *REQUIRED[rope_type])
    if missing := [key for key in required if key not in given]:
        raise ValueError(f"rope_parameters of type {rope_type!r} must have {', '.join(missing)}")
    known = {*COMMON, *required, *OPTIONAL.get(rope_type, ())}
    if unread := [str(key) for key in given if key not in known]:
        instead = "; ".join(ELSEWHERE[key] for key in unread if key in ELSEWHERE)
        raise ValueError(
            f"rope_parameters of type {rope_type!r} must have only keys that it reads, "
            f"got {', '.join(unread)}" + (f" ({instead})" if instead else "")
        )
    return rope_type, {
        key: RULES[WORDS[key]](key, value) if key in WORDS else value
        for key, value in given.items()
    }


def stretch(parameters: Parameters) -> float:
    """Return the factor, or else the longest context over the original one."""
    if "factor" in parameters:
        return float(parameters["factor"])
    if LONGEST not in parameters:
        raise ValueError(f"rope_parameters must have factor, or else give {LONGEST}")
    return float(parameters[LONGEST] / parameters[ORIGINAL])


def pair_factors(parameters: Parameters, name: str, n_pairs: int) -> Tensor:
    """Return a list of factors, one for each pair, (n_pairs,) float64."""
    factors = numbers(name, parameters[name]).double()
    require_shapes({name: factors}, {name: str(n_pairs)})
    return factors


def yarn_scaling(inv_freq: Tensor, parameters: Parameters) -> tuple[Tensor, float]:
    """Return YaRN's frequencies and attention factor."""
    factor, slow = stretch(parameters), parameters.get("beta_slow", 1.0)
    fast = require_greater("beta_fast", parameters.get("beta_fast", 32.0), slow, equal=True)
    truncate = parameters.get("truncate", True)
    weights = [parameters.get(name, 0.0) for name in ("mscale", "mscale_all_dim")]
    attention_factor = yarn_gain(factor)
    if all(weights):  # one alone is not read
        attention_factor = yarn_gain(factor, 0.1 * weights[0]) / yarn_gain(factor, 0.1 * weights[1])
    scaled = yarn(inv_freq, factor, parameters[ORIGINAL], slow=slow, fast=fast, truncate=truncate)
    return scaled, parameters.get("attention_factor", attention_factor)


def llama3_scaling(inv_freq: Tensor, parameters: Parameters) -> tuple[Tensor, float]:
    """Return the frequencies of Llama 3.1 and 1; Llama 4 has both bounds equal."""
    low, high = parameters["low_freq_factor"], parameters["high_freq_factor"]
    high = max(
        require_greater("high_freq_factor", high, low, equal=True), math.nextafter(low, math.inf)
    )
    return llama3(inv_freq, parameters["factor"], parameters[ORIGINAL], low, high), 1.0


def proportional_scaling(inv_freq: Tensor, parameters: Parameters) -> tuple[Tensor, float]:
    """Return the frequencies of a whole head, of which only the fastest rotate, and 1."""
    kept = proportional(inv_freq, parameters.get("partial_rotary_factor", 1.0))
    return kept / parameters.get("factor", 1.0), 1.0


SCALINGS: dict[str, Callable[[Tensor, Parameters], tuple[Tensor, float]]] = {
    "default": lambda inv_freq, parameters: (inv_freq, 1.0),
    "linear": lambda inv_freq, parameters: (
        position_interpolation(inv_freq, parameters["factor"]),
        1.0,
    ),
    "yarn": yarn_scaling,
    "llama3": llama3_scaling,
    "proportional": proportional_scaling,
}

# --- tables of cosines and sines ------------------------------------------------------------------

TABLE = "L n | 1 L n | B L n"


@checked(x="L d | B L d | B H L d | B H G L d", cos=TABLE, sin=TABLE)
def apply_rotary(x: Tensor, cos: Tensor, sin: Tensor, *, interleaved: bool) -> Tensor:
    """Rotate x by a table of cosines and sines with one column for each pair of components.

    Args:
        x: queries or keys, (L, d), (B, L, d), (B, H, L, d) or (B, H, G, L, d). Flash-attention and
            vLLM have the heads behind the length: `x.transpose(1, 2)`.
        cos: (L, n), or (B, L, n) for every head alike. With 2n < d only the first 2n components
            rotate. An attention factor is in both tables.
        sin: likewise.
        interleaved: True pairs components (0, 1), (2, 3), ... (GPT-J; vLLM's
            `is_neox_style=False`); False pairs (0, n), (1, n + 1), ... (Llama, GPT-NeoX). There is
            no default: published functions have different ones.

    Returns:
        The shape and dtype of x: (a, b) becomes (a cos - b sin, a sin + b cos), computed in float32
        or better.

    Raises:
        ValueError: if a table has more columns than there are pairs, or repeats itself: the tables
            of transformers have each column twice. Whether the halves of a table are equal is
            looked at on the processor alone.

    Source: `apply_rotary_emb` of flash-attention; Su et al. 2021, equation 34.
    """
    require_a_column_per_pair(x, cos, sin)
    width, dtype = 2 * cos.shape[-1], torch.promote_types(x.dtype, torch.float32)
    cos, sin = (for_heads(table, x).to(x.device, dtype) for table in (cos, sin))
    layout = "interleaved" if interleaved else "half"
    a, b = split_pairs(x[..., :width].to(dtype), layout)
    rotated = arrange(a * cos - b * sin, a * sin + b * cos, layout).to(x.dtype)
    return torch.cat([rotated, x[..., width:]], dim=-1)


def for_heads(table: Tensor, x: Tensor) -> Tensor:
    """Give a table (B, L, n) an axis for each axis of x (B, ..., L, d) between the two."""
    batched = table.ndim == 3
    return table.reshape(len(table), *[1] * (x.ndim - 3), *table.shape[1:]) if batched else table


def require_a_column_per_pair(x: Tensor, cos: Tensor, sin: Tensor) -> None:
    """Raise unless tables fit x and have each column once."""
    if max(cos.ndim, sin.ndim) > x.ndim:
        raise ValueError(
            f"cos and sin must have shape (L, n), as x has no batch, got {tuple(cos.shape)}"
        )
    columns, pairs = cos.shape[-1], x.shape[-1] // 2
    half, tables = columns // 2, (cos, sin)
    readable = columns > 0 and columns % 2 == 0 and all(map(may_read, tables))
    # At position 0 alone all columns are equal, and no sine says which they are.
    if not 0 < columns <= pairs or (
        readable and sin.any() and all(torch.equal(t[..., :half], t[..., half:]) for t in tables)
    ):
        raise ValueError(
            f"cos and sin must have one column for each of at most {pairs} pairs, got {columns}: "
            f"where the second half repeats the first, as in transformers, pass the first half, "
            f"cos[..., :{half}] and sin[..., :{half}]"
        )


# --- positions of tokens --------------------------------------------------------------------------


def position_ids_from_mask(attention_mask: Tensor) -> Tensor:
    """Count the tokens of each sequence, whichever side is padded.

    Args:
        attention_mask: (B, L), bool or integers 0 and 1: 1 for a token, 0 for padding.

    Returns:
        (B, L) int64: 0, 1, ... for the tokens of a sequence, and 0 for padding, which a mask must
        hide: (B, L) is `mask[:, None, None]` in attention.

    Source: transformers 5.23, `generate`. Its version 4 gave padding the position 1.
    """
    require_kind("attention_mask", attention_mask, Tensor, "a torch.Tensor")
    boolean = attention_mask.dtype == torch.bool
    mask = (
        attention_mask.long()
        if boolean
        else numbers("attention_mask", attention_mask, integers=True)
    )
    require_shapes({"attention_mask": mask}, {"attention_mask": "B L"})
    if may_read(mask) and ((mask < 0) | (mask > 1)).any():
        raise ValueError(
            "attention_mask must be 0 or 1; of texts that are packed and numbered, take "
            f"position_ids_from_segments; got {mask.unique().tolist()}"
        )
    return (mask.cumsum(dim=-1) - 1) * mask


@checked(segment_ids="L | B L")
def position_ids_from_segments(segment_ids: Integers) -> Tensor:
    """Count the tokens of each of several texts that are packed into one row.

    Args:
        segment_ids: (L,) or (B, L) integers: the number of each token's text. Any numbers will do
            that differ between neighbouring texts. Of `cu_seqlens`, as flash-attention has the
            boundaries: `torch.arange(n).repeat_interleave(cu_seqlens.diff())`.

    Returns:
        int64, the same shape: 0, 1, ... from each place on where the number changes. The mask that
        keeps the texts apart is `segment_ids[:, None, :, None] == segment_ids[:, None, None, :]`.

    Source: packing without padding, as in transformers' `DataCollatorWithFlattening`.
    """
    places = torch.arange(segment_ids.shape[-1], device=segment_ids.device)
    begins = segment_ids.diff(dim=-1, prepend=segment_ids[..., :1]) != 0
    return places - torch.where(begins, places, 0).cummax(dim=-1).values


# --- FlexAttention --------------------------------------------------------------------------------

ScoreMod: TypeAlias = Callable[[Tensor, Tensor, Tensor, Tensor, Tensor], Tensor]
# The bias of one score, from its head and the positions of query and key, each a tensor ().
Bias: TypeAlias = Callable[[Tensor, Tensor, Tensor], Tensor]


@checked()
def score_mod(
    encoding: PositionEncoding, *, q_offset: int | Tensor = 0, device: torch.device | str = "cpu"
) -> ScoreMod:
    """Return a bias as FlexAttention takes it: `flex_attention(q, k, v, score_mod=..., scale=...)`.

    Pass `scale=encoding.scale` too: it is 1 for T5, and None for the others, which FlexAttention
    takes for 1/sqrt(d) as well. A causal mask is FlexAttention's own, a `block_mask`; ALiBi and a
    T5 decoder need one, and with a window it saves time to leave out the blocks outside.

    Args:
        encoding: `ALiBi`, `T5Bias`, `Kerple`, `Fire`, `SlidingWindow`, `NoPosition`, or a `Compose`
            of these.
        q_offset: position of the first query, the number of keys that a cache holds before it.
        device: where the queries are; trained numbers are where the encoding is.

    Returns:
        The function (score, batch, head, query index, key index) -> score, each a tensor (). It
        holds the trained numbers as they are now, with their gradients: in training make it anew
        in each step.

    Raises:
        ValueError: if the encoding does more than add a number to each score. It says what.
    """
    biases = [bias_of_score(part, device) for part in encoding.parts()]

    def modify(score: Tensor, batch: Tensor, head: Tensor, query: Tensor, key: Tensor) -> Tensor:
        for bias in biases:
            score = score + bias(head, query + q_offset, key).to(score.dtype)
        return score

    return modify


def bias_of_score(encoding: PositionEncoding, device: torch.device | str) -> Bias:
    """Return the bias of one score, or raise and say why there is none."""
    if type(encoding) is ALiBi:  # a subclass may have formulas of its own
        return alibi_of_score(alibi_slopes(encoding.n_heads).to(device), encoding.symmetric)
    for kind, bias in BIASES.items():
        if type(encoding) is kind:
            return bias(encoding)
    why = next((WHY_NOT[hook] for hook in WHY_NOT if encoding.uses(hook)), WHY_NOT["bias"])
    raise ValueError(
        f"encoding must be one of ALiBi, {', '.join(each.__name__ for each in BIASES)}, "
        f"got {type(encoding).__name__}, which {why}"
    )


WHY_NOT = {
    "embed": "adds to the input of a model: call its embed once, before the first layer",
    "rotate": "rotates queries and keys before there is a score: call its rotate, and give "
    "FlexAttention what that returns; in a Compose, make the score_mod of the other parts",
    "rotate_values": "rotates values: call its rotate_values before and its rotate_back after",
    "values": "adds to the output what needs all weights of a query",
    "sink": "adds a logit to each query: FlexAttention has none",
    "read": "reads the hidden states of the layer",
    "bias": "may read vectors of queries and keys, of which a score_mod has only the product",
}


def alibi_of_score(slopes: Tensor, symmetric: bool) -> Bias:
    """Return ALiBi's bias of one score."""

    def bias(head: Tensor, query: Tensor, key: Tensor) -> Tensor:
        relative = key - query
        return slopes[head] * (-relative.abs() if symmetric else relative)

    return bias


def t5_of_score(t5: T5Bias) -> Bias:
    """Return T5's bias of one score."""
    table, sizes = t5.table, (t5.n_buckets, t5.max_distance)

    def bias(head: Tensor, query: Tensor, key: Tensor) -> Tensor:
        bucket = t5_bucket(key - query, *sizes, bidirectional=t5.bidirectional)
        return table[bucket, head]

    return bias


def kerple_of_score(kerple: Kerple) -> Bias:
    """Return KERPLE's bias of one score."""
    r1, r2, log = kerple.r1, kerple.r2, kerple.variant == "log"

    def bias(head: Tensor, query: Tensor, key: Tensor) -> Tensor:
        distance = (key - query).abs()
        if log:
            return -r1[head] * torch.log1p(r2[head] * distance)
        power = torch.where(distance == 0, 1, distance) ** r2[head]
        return -r1[head] * torch.where(distance == 0, 0, power)

    return bias


def fire_of_score(fire: Fire) -> Bias:
    """Return FIRE's bias of one score; its network has one number in and a number per head out."""
    precise = torch.promote_types(fire.c.dtype, torch.float32)
    trained = torch.stack([fire.c, fire.factor * fire.threshold]).to(precise).abs()
    (w1, b1), (w2, b2) = (
        (each.weight, each.bias) for each in fire.network if isinstance(each, nn.Linear)
    )

    def bias(head: Tensor, query: Tensor, key: Tensor) -> Tensor:
        # Indexed, since FlexAttention gives gradients to what is indexed alone.
        c, threshold = trained[0], trained[1]
        reach = torch.maximum(query.to(precise), threshold)
        ratio = torch.log1p(c * (key - query).abs()) / (torch.log1p(c * reach) + 1e-6)
        output = b2[head]
        for i in range(len(b1)):  # compiled kernels take numbers, not vectors
            output = output + w2[head, i] * (w1[i, 0] * ratio.to(w1.dtype) + b1[i]).relu()
        return output

    return bias


def window_of_score(window: SlidingWindow) -> Bias:
    """Return 0 inside the window and minus infinity outside."""
    return lambda head, query, key: torch.where((key - query).abs() < window.window, 0.0, -math.inf)


BIASES: dict[type[PositionEncoding], Callable[[Any], Bias]] = {
    T5Bias: t5_of_score,
    Kerple: kerple_of_score,
    Fire: fire_of_score,
    SlidingWindow: window_of_score,
    NoPosition: lambda encoding: lambda head, query, key: 0.0 * query,
}

# --- weights --------------------------------------------------------------------------------------

Weight: TypeAlias = Annotated[Tensor, "finite"]


@checked()
def half_to_interleaved(
    weight: Tensor, n_heads: Count, *, rotary_dim: Even | None = None
) -> Tensor:
    """Reorder the rows of a projection of queries or keys for the other layout of pairs.

    Reorder both projections: then no score changes. Values and the output stay as they are.

    Args:
        weight: (n_heads * d, D), or a bias (n_heads * d,). The weight of a norm over each head,
            (d,), has n_heads = 1.
        n_heads: heads of this projection: for grouped keys, their own number.
        rotary_dim: how many components of a head rotate, from the first on; all if None.

    Returns:
        The same shape: `RoPE(layout="interleaved")` does with it what `RoPE(layout="half")` did.
    """
    return reordered(weight, n_heads, rotary_dim, back=True)


@checked()
def interleaved_to_half(
    weight: Tensor, n_heads: Count, *, rotary_dim: Even | None = None
) -> Tensor:
    """Reorder the rows of a projection the other way round, as transformers does for Llama.

    Arguments and result as in `half_to_interleaved`.
    """
    return reordered(weight, n_heads, rotary_dim, back=False)


def reordered(weight: Tensor, n_heads: int, rotary_dim: int | None, *, back: bool) -> Tensor:
    """Reorder the first `rotary_dim` of the d rows of each head by `layout_permutation`."""
    head_dim = (
        require_multiple("len(weight)", len(weight), n_heads, "n_heads must divide it") // n_heads
    )
    width = head_dim if rotary_dim is None else rotary_dim
    if width > head_dim:
        raise ValueError(f"rotary_dim must be at most {head_dim}, the width of a head, got {width}")
    order = layout_permutation(width)
    order = torch.cat([order.argsort() if back else order, torch.arange(width, head_dim)])
    rows = (torch.arange(n_heads)[:, None] * head_dim + order).flatten()
    return weight[rows.to(weight.device)]
