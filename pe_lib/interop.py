"""Between this library and others: configurations, tables, masks, kernels and weights.

Names are those of the others: `rope_parameters`, `position_ids`, `attention_mask`, `cos` and `sin`,
`score_mod`.
"""

import inspect
import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypeAlias

import torch
from torch import Tensor, nn

from pe_lib import rope_scaling
from pe_lib.alibi import ALiBi
from pe_lib.encoding import NoPosition, PositionEncoding
from pe_lib.fire import FIRE
from pe_lib.kerple import KERPLE
from pe_lib.recent.window import SlidingWindow
from pe_lib.rope import RoPE, layout_permutation, rotate_pairs
from pe_lib.t5 import T5Bias, t5_bucket

# --- configurations -------------------------------------------------------------------------------


def rope_from_parameters(
    rope_parameters: Mapping[str, Any],
    head_dim: int,
    *,
    max_position_embeddings: int | None = None,
    layer_type: str | None = None,
    layout: str = "half",
) -> RoPE:
    """Build the rotation that `config.rope_parameters` of transformers 5 and vLLM describes.

    Frequencies and attention factor are those of transformers, in float64. DeepSeek's layers also
    derive a factor on the softmax scale from `mscale_all_dim`: it is not part of the rotation. In a
    nested dictionary `truncate` counts, too, which transformers 5.23 overlooks there. An odd number
    of rotating components is rounded up.

    Args:
        rope_parameters: the dictionary: `rope_type` (default, linear, dynamic, yarn, longrope,
            llama3 or proportional; "default" if absent), `rope_theta`, `partial_rotary_factor`, and
            what the type needs. It may be nested, with such a dictionary for each kind of layer.
            A value of None counts as absent, except as `truncate`: there it means False, as in
            transformers.
        head_dim: width d of a head, or of the part that is meant to rotate (`qk_rope_head_dim`).
        max_position_embeddings: the configuration's field of that name, where it does not stand in
            the dictionary. "dynamic" needs it, and so do "yarn" and "longrope" without a factor.
        layer_type: which entry of a nested dictionary, such as "full_attention".
        layout: "half", as in most models of transformers; "interleaved" for those that rotate
            neighbours, such as Cohere's.

    Returns:
        `RoPE`; `DynamicNTK` or `LongRoPE` where the length of the sequence decides.

    Raises:
        ValueError: if the type is unknown, a key is missing, or a key is given that the type does
            not read; if a nested dictionary has no entry `layer_type`.

    Source: transformers 5.23, `modeling_rope_utils`.
    """
    parameters = parameters_of_layer(rope_parameters, layer_type)
    if max_position_embeddings is not None:
        parameters["max_position_embeddings"] = max_position_embeddings
    rope_type = pop_type(parameters)
    reads = require_keys(rope_type, parameters)
    share = parameters.get("partial_rotary_factor", 1.0)
    dim = int(head_dim * share)
    most = head_dim - head_dim % 2
    if not 1 <= dim <= most or (dim % 2 and rope_type in ("dynamic", "yarn")):
        raise ValueError(
            f"partial_rotary_factor must leave 1 to {most} components, an even number for "
            f"dynamic and yarn; got {share}, which leaves {dim}"
        )
    dim = head_dim if "partial_rotary_factor" in reads else dim
    inv_freq = parameters["rope_theta"] ** -(
        torch.arange(0, dim, 2, dtype=torch.float64, device="cpu") / dim
    )
    head = {"head_dim": head_dim, "layout": layout, "rotary_dim": 2 * len(inv_freq)}
    return ROPE_TYPES[rope_type](inv_freq, head, **{key: parameters[key] for key in reads})


def parameters_of_layer(rope_parameters: Any, layer_type: str | None) -> dict[str, Any]:
    """Return what a dictionary, or its entry for a kind of layer, gives besides None."""
    kinds = [key for key, value in rope_parameters.items() if isinstance(value, Mapping)]
    if layer_type not in (kinds or [None]):
        allowed = f"one of {', '.join(kinds)}" if kinds else "None: rope_parameters is not nested"
        raise ValueError(f"layer_type must be {allowed}; got {layer_type!r}")
    given = rope_parameters[layer_type] if kinds else rope_parameters
    return {key: value for key, value in given.items() if value is not None or key == "truncate"}


def pop_type(parameters: dict[str, Any]) -> str:
    """Take the type out of the parameters; old files call it "type"."""
    names = [parameters.pop(key) for key in ("rope_type", "type") if key in parameters]
    names = names or ["default"]
    if names[0] not in list(ROPE_TYPES) or names[0] != names[-1]:
        got = " and ".join(map(repr, names))
        raise ValueError(f"rope_type must be one of {', '.join(ROPE_TYPES)}; got {got}")
    return str(names[0])


def require_keys(rope_type: str, parameters: dict[str, Any]) -> list[str]:
    """Return the given keys that a type's function reads; raise if one is missing or unread."""
    keys = {
        key: each.default is each.empty
        for key, each in inspect.signature(ROPE_TYPES[rope_type]).parameters.items()
        if each.kind is each.KEYWORD_ONLY
    }
    who = f"rope_parameters of type {rope_type!r} must have"
    required = ["rope_theta", *(key for key, needed in keys.items() if needed)]
    if missing := [key for key in required if key not in parameters]:
        raise ValueError(f"{who} {', '.join(missing)}")
    known = {*keys, "rope_theta", "partial_rotary_factor", "max_position_embeddings"}
    if unread := [str(key) for key in parameters if key not in known]:
        hints = [INSTEAD[key] for key in unread if key in INSTEAD]
        raise ValueError(f"{who} only keys that it reads, got {', '.join([*unread, *hints])}")
    return [key for key in keys if key in parameters]


INSTEAD = {
    "mrope_section": "for which there is AxesRoPE with section_directions",
    "llama_4_scaling_beta": "for which there is QueryTemperature",
}

# One function for each type; its keyword arguments are the keys that it reads.
Head: TypeAlias = Any  # what `RoPE` gets besides: head_dim, layout and rotary_dim


def default_rope(inv_freq: Tensor, head: Head) -> RoPE:
    """Return RoPE as the paper has it."""
    return RoPE(**head, inv_freq=inv_freq)


def linear_rope(inv_freq: Tensor, head: Head, *, factor: float) -> RoPE:
    """Return position interpolation."""
    return RoPE(**head, inv_freq=rope_scaling.position_interpolation(inv_freq, factor))


def dynamic_rope(
    inv_freq: Tensor, head: Head, *, factor: float, max_position_embeddings: int
) -> RoPE:
    """Return dynamic NTK."""
    length = max_position_embeddings
    return rope_scaling.DynamicNTK(**head, factor=factor, trained_length=length, inv_freq=inv_freq)


def yarn_rope(
    inv_freq: Tensor,
    head: Head,
    *,
    original_max_position_embeddings: int,
    max_position_embeddings: int | None = None,
    factor: float | None = None,
    attention_factor: float | None = None,
    beta_fast: float = 32.0,
    beta_slow: float = 1.0,
    mscale: float = 0.0,
    mscale_all_dim: float = 0.0,
    truncate: bool = True,
) -> RoPE:
    """Return YaRN; `mscale` counts only together with `mscale_all_dim`."""
    trained = original_max_position_embeddings
    factor = factor or stretch(trained, max_position_embeddings)
    bounds: Any = {"slow": beta_slow, "fast": beta_fast, "truncate": truncate}
    weights = (mscale, mscale_all_dim) if mscale and mscale_all_dim else (1.0, 0.0)
    above, below = (rope_scaling.yarn_attention_factor(factor, 0.1 * weight) for weight in weights)
    scaled = rope_scaling.yarn(inv_freq, factor, trained, **bounds)
    return RoPE(**head, inv_freq=scaled, attention_factor=attention_factor or above / below)


def longrope_rope(
    inv_freq: Tensor,
    head: Head,
    *,
    short_factor: Sequence[float],
    long_factor: Sequence[float],
    original_max_position_embeddings: int,
    max_position_embeddings: int | None = None,
    factor: float | None = None,
    attention_factor: float | None = None,
) -> RoPE:
    """Return LongRoPE, with its attention factor or that of its factor."""
    trained = original_max_position_embeddings
    if attention_factor is None:
        factor = factor or stretch(trained, max_position_embeddings)
        attention_factor = rope_scaling.longrope_attention_factor(factor, trained)
    return rope_scaling.LongRoPE(
        **head,
        short_factors=torch.tensor(short_factor, dtype=torch.float64),
        long_factors=torch.tensor(long_factor, dtype=torch.float64),
        trained_length=trained,
        factor=1.0,  # which is for the attention factor alone
        inv_freq=inv_freq,
        attention_factor=attention_factor,
    )


def llama3_rope(
    inv_freq: Tensor,
    head: Head,
    *,
    factor: float,
    original_max_position_embeddings: int,
    low_freq_factor: float,
    high_freq_factor: float,
) -> RoPE:
    """Return the rule of Llama 3.1; in Llama 4 both bounds are equal."""
    low, high = low_freq_factor, high_freq_factor
    high = math.nextafter(low, math.inf) if high == low else high
    trained = original_max_position_embeddings
    return RoPE(**head, inv_freq=rope_scaling.llama3(inv_freq, factor, trained, low, high))


def proportional_rope(
    inv_freq: Tensor,
    head: Head,
    *,
    partial_rotary_factor: float = 1.0,
    factor: float = 1.0,
) -> RoPE:
    """Return p-RoPE: the frequencies of a whole head, of which only the fastest rotate."""
    kept = rope_scaling.proportional(inv_freq, partial_rotary_factor)
    return RoPE(**head, inv_freq=kept / factor)


def stretch(original_max_position_embeddings: int, max_position_embeddings: int | None) -> float:
    """Return the factor where none is given."""
    if max_position_embeddings is None:
        raise ValueError("rope_parameters must have factor, or else give max_position_embeddings")
    return max_position_embeddings / original_max_position_embeddings


ROPE_TYPES: dict[str, Callable[..., RoPE]] = {
    "default": default_rope,
    "linear": linear_rope,
    "dynamic": dynamic_rope,
    "yarn": yarn_rope,
    "longrope": longrope_rope,
    "llama3": llama3_rope,
    "proportional": proportional_rope,
}

# --- tables of cosines and sines ------------------------------------------------------------------


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
    dtype = torch.promote_types(x.dtype, torch.float32)
    cos, sin = (for_heads(table, x).to(x.device, dtype) for table in (cos, sin))
    return rotate_pairs(x, cos, sin, "interleaved" if interleaved else "half")


def for_heads(table: Tensor, x: Tensor) -> Tensor:
    """Give a table (B, L, n) an axis for each axis of x (B, ..., L, d) between the two."""
    batched = table.ndim == 3
    return table.reshape(len(table), *[1] * (x.ndim - 3), *table.shape[1:]) if batched else table


def require_a_column_per_pair(x: Tensor, cos: Tensor, sin: Tensor) -> None:
    """Raise unless tables fit x and have each column once."""
    rows = cos.shape == sin.shape and cos.ndim <= x.ndim and cos.shape[-2] == x.shape[-2]
    if not rows:  # one row would turn all tokens, and a batch of tables would widen x
        raise ValueError(
            f"cos and sin must have a row for each of {x.shape[-2]} tokens, got "
            f"{tuple(cos.shape)} and {tuple(sin.shape)}"
        )
    if not x.is_floating_point():
        raise TypeError(f"x must be of real numbers, or what rotates is rounded, got {x.dtype}")
    columns, pairs = cos.shape[-1], x.shape[-1] // 2
    half, tables = columns // 2, (cos, sin)
    readable = (
        not torch.compiler.is_compiling()
        and columns > 0
        and columns % 2 == 0
        and all(t.is_cpu for t in tables)
    )
    # At position 0 alone all columns are equal, and no sine says which they are.
    twice = columns % 2 == 0 and readable and bool(sin.any())
    if not 0 < columns <= pairs or (
        twice and all(torch.equal(t[..., :half], t[..., half:]) for t in tables)
    ):
        raise ValueError(
            f"cos and sin must have one column for each of at most {pairs} pairs, got {columns}: "
            "where the second half repeats the first, as in transformers, pass the first half, "
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
    mask = attention_mask.long()
    if not torch.compiler.is_compiling() and ((mask < 0) | (mask > 1)).any():
        raise ValueError(
            "attention_mask must be 0 or 1; of texts that are packed and numbered, take "
            f"position_ids_from_segments; got {mask.unique().tolist()}"
        )
    return (mask.cumsum(dim=-1) - 1) * mask


def position_ids_from_segments(segment_ids: Tensor) -> Tensor:
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


def score_mod(encoding: PositionEncoding, *, q_offset: int | Tensor = 0) -> ScoreMod:
    """Return a bias as FlexAttention takes it: `flex_attention(q, k, v, score_mod=..., scale=...)`.

    Pass `scale=encoding.scale` too: it is 1 for T5, and None for the others, which FlexAttention
    takes for 1/sqrt(d) as well. A causal mask is FlexAttention's own, a `block_mask`; ALiBi and a
    T5 decoder need one, and with a window it saves time to leave out the blocks outside.

    Args:
        encoding: `ALiBi`, `T5Bias`, `KERPLE`, `FIRE`, `SlidingWindow`, `NoPosition`, or a `Compose`
            of these.
        q_offset: position of the first query: the number of keys that a cache holds before it.

    Returns:
        The function (score, batch, head, query index, key index) -> score, each a tensor (). It
        holds the trained numbers, with their gradients: in training make it anew in each step.

    Raises:
        ValueError: if the encoding does more than add a number to each score. It says what.
    """
    biases = [bias_of_score(part) for part in encoding.parts()]

    def modify(score: Tensor, batch: Tensor, head: Tensor, query: Tensor, key: Tensor) -> Tensor:
        for bias in biases:
            score = score + bias(head, query + q_offset, key).to(score.dtype)
        return score

    return modify


def bias_of_score(encoding: PositionEncoding) -> Bias:
    """Return the bias of one score, or raise and say why there is none."""
    if type(encoding) not in BIASES:  # a subclass may have a formula of its own
        why = next(why for hook, why in WHY_NOT.items() if hook == "bias" or encoding.uses(hook))
        names = ", ".join(kind.__name__ for kind in BIASES)
        raise ValueError(
            f"encoding must be one of {names}; got {type(encoding).__name__}, which {why}"
        )
    return BIASES[type(encoding)](encoding)


# Gradients reach a trained tensor where FlexAttention sees it indexed. Compiled kernels take
# numbers, not vectors.


def alibi_of_score(alibi: ALiBi) -> Bias:
    """Return ALiBi's bias, with the slopes of `alibi_slopes`, which are on no device."""
    n = 2 ** (alibi.n_heads.bit_length() - 1)

    def bias(head: Tensor, query: Tensor, key: Tensor) -> Tensor:
        slope = torch.exp2(-8 / n * torch.where(head < n, head + 1.0, head - n + 0.5))
        return -slope * (key - query).abs() if alibi.symmetric else slope * (key - query)

    return bias


def t5_of_score(t5: T5Bias) -> Bias:
    """Return T5's bias."""
    sizes: Any = {"n_buckets": t5.n_buckets, "max_distance": t5.max_distance}
    sizes["bidirectional"] = t5.bidirectional
    return lambda head, query, key: t5.table[t5_bucket(key - query, **sizes), head]


def kerple_of_score(kerple: KERPLE) -> Bias:
    """Return KERPLE's bias, of either variant."""
    r1, r2 = kerple.r1, kerple.r2

    def log(head: Tensor, query: Tensor, key: Tensor) -> Tensor:
        return -r1[head] * torch.log1p(r2[head] * (key - query).abs())

    def power(head: Tensor, query: Tensor, key: Tensor) -> Tensor:
        distance = (key - query).abs()
        raised = torch.where(distance == 0, 1, distance) ** r2[head]
        return -r1[head] * torch.where(distance == 0, 0, raised)

    return log if kerple.variant == "log" else power


def fire_of_score(fire: FIRE) -> Bias:
    """Return FIRE's bias: a network from one number to a number for each head."""
    precise = torch.promote_types(fire.c.dtype, torch.float32)
    c, factor = fire.c.to(precise), fire.factor.to(precise)
    trained = torch.stack([c, factor * fire.threshold]).abs()
    layers = [each for each in fire.network if isinstance(each, nn.Linear)]
    (w1, b1), (w2, b2) = ((layer.weight, layer.bias) for layer in layers)

    def bias(head: Tensor, query: Tensor, key: Tensor) -> Tensor:
        c, threshold = trained[0], trained[1]
        reach = torch.maximum(query.to(precise), threshold)
        ratio = torch.log1p(c * (key - query).abs()) / (torch.log1p(c * reach) + 1e-6)
        output = b2[head]
        for i in range(len(b1)):
            output = output + w2[head, i] * (w1[i, 0] * ratio.to(w1.dtype) + b1[i]).relu()
        return output

    return bias


def window_of_score(window: SlidingWindow) -> Bias:
    """Return 0 inside the window and minus infinity outside."""
    return lambda head, query, key: torch.where((key - query).abs() < window.window, 0.0, -math.inf)


BIASES: dict[type[PositionEncoding], Callable[[Any], Bias]] = {
    ALiBi: alibi_of_score,
    T5Bias: t5_of_score,
    KERPLE: kerple_of_score,
    FIRE: fire_of_score,
    SlidingWindow: window_of_score,
    NoPosition: lambda encoding: lambda head, query, key: 0 * query,
}
WHY_NOT = {  # by the hook that an encoding uses
    "embed": "adds to the input of a model: call its embed once, before the first layer",
    "rotate": "rotates queries and keys before there is a score: call its rotate, and give "
    "FlexAttention what that returns; in a Compose, make the score_mod of the other parts",
    "rotate_values": "rotates values: call its rotate_values before and its rotate_back after",
    "values": "adds to the output what needs all weights of a query",
    "sink": "adds a logit to each query: FlexAttention has none",
    "project_hidden": "reads the hidden states of the layer",
    "bias": "may read vectors of queries and keys, of which a score_mod has only the product",
}

# --- weights --------------------------------------------------------------------------------------


def half_to_interleaved(weight: Tensor, n_heads: int, *, rotary_dim: int | None = None) -> Tensor:
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


def interleaved_to_half(weight: Tensor, n_heads: int, *, rotary_dim: int | None = None) -> Tensor:
    """Reorder the rows of a projection the other way round, as transformers does for Llama.

    Arguments and result as in `half_to_interleaved`.
    """
    return reordered(weight, n_heads, rotary_dim, back=False)


def reordered(weight: Tensor, n_heads: int, rotary_dim: int | None, *, back: bool) -> Tensor:
    """Reorder the first `rotary_dim` of the d rows of each head by `layout_permutation`."""
    head_dim = len(weight) // n_heads
    width = head_dim if rotary_dim is None else rotary_dim
    if len(weight) % n_heads or width > head_dim:  # some rows would be left out
        raise ValueError(
            f"weight must have {n_heads} heads of at least {width} rows, got {len(weight)} rows"
        )
    order = layout_permutation(width)
    order = torch.cat([order.argsort() if back else order, torch.arange(width, head_dim)])
    rows = (torch.arange(n_heads)[:, None] * head_dim + order).flatten()
    return weight[rows.to(weight.device)]
