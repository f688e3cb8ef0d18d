"""Multi-head attention with a place for position.

    output_i = sum over j of softmax_j(scale <rotated q_i, rotated k_j> + bias_ij) v_j

`attend` is the definition, step by step. `attend_fused` has the same output from PyTorch's own
kernel, which never makes the matrix of weights; `MultiHeadAttention` calls it where it can.
"""

from __future__ import annotations

import math
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from pe_lib.cache import KVCache
from pe_lib.compose import Compose, total
from pe_lib.encoding import (
    HOOKS,
    NoPosition,
    PositionEncoding,
    as_positions,
    order_of,
    per_head,
    relative_position,
    rotate,
)
from pe_lib.relative import RelativeBias, distances

Hidden = tuple[Tensor, Tensor]  # what `project_hidden` returned for queries and for keys

# --- the definition -------------------------------------------------------------------------------


def default_scale(encoding: PositionEncoding, head_dim: int) -> float:
    """Return the factor on the query-key product: the encoding's own, or 1/sqrt(head_dim)."""
    return head_dim**-0.5 if encoding.scale is None else encoding.scale


def attention_logits(
    q: Tensor,
    k: Tensor,
    encoding: PositionEncoding,
    q_pos: Tensor | int,
    k_pos: Tensor | int,
    *,
    rotated: bool = False,
    hidden: Hidden | None = None,
) -> Tensor:
    """Return the scores before the mask and the softmax.

    Args:
        q: queries, (B, H, Lq, d).
        k: keys, (B, H, Lk, d), or with fewer heads, each for several neighbours of q.
        encoding: supplies `rotate`, `bias` and the scale.
        q_pos: positions of the queries, (Lq,), (B, Lq) or (1 + A, B, Lq), or the first one.
        k_pos: positions of the keys, likewise.
        rotated: q and k have been rotated before.
        hidden: what `encoding.project_hidden` returned for queries and for keys.

    Returns:
        (B, H, Lq, Lk): scale * <rotated q, rotated k> + bias.

    Source: Vaswani et al. 2017, equation 1, with a place for position.
    """
    q_pos, k_pos = as_positions(q_pos, q), as_positions(k_pos, k)
    order = order_of(q_pos), order_of(k_pos)
    k, scale = repeat_heads(k, q), default_scale(encoding, q.shape[-1])
    bias = checked_bias(encoding.bias(q, k, *order, scale), *order)
    if encoding.uses("hidden_bias"):
        if hidden is None:
            raise ValueError(
                f"hidden must be given: {type(encoding).__name__} needs what its `project_hidden` "
                "returns, as MultiHeadAttention passes it on"
            )
        bias = total([bias, encoding.hidden_bias(*hidden, *order)])
    if not rotated:
        q, k = rotate(encoding, q, k, q_pos, k_pos)
    logits = q @ k.mT * scale  # (B, H, Lq, Lk)
    return logits if bias is None else logits + bias.to(logits.dtype)


def attend(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    encoding: PositionEncoding,
    q_pos: Tensor | int,
    k_pos: Tensor | int,
    *,
    causal: bool = False,
    mask: Tensor | None = None,
    rotated: bool = False,
    hidden: Hidden | None = None,
) -> tuple[Tensor, Tensor]:
    """Attend, and return the weights too: the definition, step by step.

    Args:
        q: queries, (B, H, Lq, d).
        k: keys, (B, H, Lk, d), or with fewer heads, each for several neighbours of q.
        v: values, likewise.
        encoding: the position encoding whose hooks are called.
        q_pos: positions of the queries, (Lq,), (B, Lq) or (1 + A, B, Lq), or the first one.
        k_pos: positions of the keys, likewise.
        causal: hide keys whose position is greater than the query's.
        mask: bool, (B, H, Lq, Lk) where an axis may be 1; False hides a key. Padding, (B, Lk), is
            mask[:, None, None]. A query with no key left gets zeros.
        rotated: q, k and v have been rotated before, see `PositionEncoding.cacheable_rotation`.
        hidden: as in `attention_logits`.

    Returns:
        output (B, H, Lq, d) and weights (B, H, Lq, Lk), whose rows sum to one: to less where the
        encoding has a sink, to zero where no key is seen.
    """
    q_pos, k_pos = as_positions(q_pos, q), as_positions(k_pos, k)
    logits = attention_logits(q, k, encoding, q_pos, k_pos, rotated=rotated, hidden=hidden)
    q_pos, k_pos = order_of(q_pos), order_of(k_pos)
    allowed = allowed_pairs(q_pos, k_pos, causal, checked_mask(mask, q, k))
    if allowed is not None:
        logits = logits.masked_fill(~allowed, -math.inf)
    weights = softmax(logits, encoding.sink(q, q_pos))
    v = repeat_heads(v, q)
    if not rotated:
        v = encoding.rotate_values(v, k_pos)
    output = encoding.rotate_back(weights @ v, q_pos)  # (B, H, Lq, d)
    extra = encoding.values(weights, q_pos, k_pos)
    return output if extra is None else output + extra, weights


def softmax(logits: Tensor, sink: Tensor | None = None) -> Tensor:
    """Return the weights of the keys, (..., Lk); one more logit may take a share of them.

    A query that sees no key gives none of its weight away, as in PyTorch's own attention.
    """
    if sink is not None:
        sink = sink.to(logits.dtype).expand(*logits.shape[:-1], 1)
        return torch.cat([logits, sink], dim=-1).softmax(dim=-1)[..., :-1]
    blind = (logits == -math.inf).all(dim=-1, keepdim=True)
    return logits.masked_fill(blind, 0.0).softmax(dim=-1).masked_fill(blind, 0.0)


def allowed_pairs(q_pos: Tensor, k_pos: Tensor, causal: bool, mask: Tensor | None) -> Tensor | None:
    """Return which query may look at which key, broadcastable to (B, H, Lq, Lk); None: all."""
    if not causal:
        return mask
    past = per_head(relative_position(q_pos, k_pos) <= 0)
    return past if mask is None else past & mask


def checked_mask(mask: Tensor | None, q: Tensor, k: Tensor) -> Tensor | None:
    """Return a mask if it has four axes: two could mean padding (B, Lk), or pairs (Lq, Lk)."""
    if mask is None:
        return None
    pairs = (*q.shape[:3], k.shape[2])
    fits = mask.ndim == 4 and all(n in (1, full) for n, full in zip(mask.shape, pairs, strict=True))
    one_key = mask.shape[-2:] == (1, 1) and pairs[3] != 1  # would be all keys' mask
    if mask.dtype != torch.bool or not fits or one_key:
        raise ValueError(
            f"mask must be bool, (B, H, Lq, Lk) = {pairs} where B, H and one "
            "of the others may be 1: padding as mask[:, None, None], with all keys of a cache, "
            f"pairs as mask[None, None]; got {mask.dtype} {tuple(mask.shape)}"
        )
    return mask


def checked_bias(bias: Tensor | None, q_pos: Tensor, k_pos: Tensor) -> Tensor | None:
    """Return a bias if its axes are clear: of three, the first is that of the heads."""
    if bias is None or bias.ndim != 3:
        return bias
    if any(positions.shape[:-1] > (1,) for positions in (q_pos, k_pos)):
        raise ValueError(
            "bias must have four axes, (B, H, Lq, Lk), where positions have a batch, got "
            f"{tuple(bias.shape)}"
        )
    return bias


def repeat_heads(x: Tensor, q: Tensor) -> Tensor:
    """Repeat the heads of keys or values until every head of queries has its own."""
    if q.shape[1] % x.shape[1]:  # fewer queries than keys would leave no head at all
        raise ValueError(f"k and v must have heads that divide {q.shape[1]}, got {x.shape[1]}")
    return x.repeat_interleave(q.shape[1] // x.shape[1], dim=1) if x.shape[1] != q.shape[1] else x


# --- the same by PyTorch's kernel -----------------------------------------------------------------


def attend_fused(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    encoding: PositionEncoding,
    q_pos: Tensor | int,
    k_pos: Tensor | int,
    *,
    causal: bool = False,
    mask: Tensor | None = None,
    rotated: bool = False,
    hidden: Hidden | None = None,
) -> Tensor:
    """Return the output of `attend` without the weights; arguments as there.

    Where both positions are ints, methods may need less, and a causal mask none. What acts on the
    weights (`values`, `sink`, `hidden_bias`) has no fused form: then this is `attend`.
    """
    if any(map(encoding.uses, ("values", "sink", "hidden_bias"))):
        settings: dict[str, Any] = {"causal": causal, "mask": mask, "rotated": rotated}
        return attend(q, k, v, encoding, q_pos, k_pos, hidden=hidden, **settings)[0]
    starts = starts_of(q_pos, k_pos)
    scale, mask = default_scale(encoding, q.shape[-1]), checked_mask(mask, q, k)
    q_pos, k_pos = as_positions(q_pos, q), as_positions(k_pos, k)
    biases, is_causal = [], causal and mask is None and not encoding.uses("bias")
    if starts and mask is None and not torch.compiler.is_compiling():
        # (In a graph a strided view would fix the length.)
        biases = distance_biases(encoding)
    if starts and biases:
        bias: Tensor | None = reversed_bias(biases, q, k, *starts, causal)
    elif starts and is_causal and starts[0] == starts[1] and q.shape[2] == k.shape[2]:
        bias = None
    else:
        is_causal, order = False, (order_of(q_pos), order_of(k_pos))
        bias = masked_bias(encoding, q, k, *order, starts, causal, mask)
    if not rotated:
        if not rotates_heads_alike(encoding):
            k, v = repeat_heads(k, q), repeat_heads(v, q)
        q, k = rotate(encoding, q, k, q_pos, k_pos)
        v = encoding.rotate_values(v, order_of(k_pos))
    output = kernel(q.flip(2) if biases else q, k, v, bias, scale, is_causal)
    return encoding.rotate_back(output.flip(2) if biases else output, order_of(q_pos))


def starts_of(q_pos: Tensor | int, k_pos: Tensor | int) -> tuple[int, int] | None:
    """Return where the positions of queries and keys begin, if they are given so."""
    given = isinstance(q_pos, (int, torch.SymInt)), isinstance(k_pos, (int, torch.SymInt))
    return (q_pos, k_pos) if all(given) else None  # type: ignore[return-value]


def kernel(
    q: Tensor, k: Tensor, v: Tensor, bias: Tensor | None, scale: float, is_causal: bool = False
) -> Tensor:
    """Call PyTorch's kernel; `bias` is broadcastable to (B, H, Lq, Lk)."""
    if k.shape[2] != v.shape[2]:  # the kernel would leave values out
        raise ValueError(f"k and v must have as many keys, got {k.shape[2]} and {v.shape[2]}")
    if bias is not None:
        # Four axes: given three, PyTorch gets the same result without its fused kernel.
        bias = bias[(None,) * (4 - bias.ndim)]
    width, grouped = v.shape[-1], q.shape[1] != k.shape[1]
    if width < q.shape[-1]:  # or PyTorch would make the matrix of weights
        v = F.pad(v, (0, q.shape[-1] - width))
    output = F.scaled_dot_product_attention(
        q, k, v, attn_mask=bias, is_causal=is_causal, scale=scale, enable_gqa=grouped
    )
    return output[..., :width]


def masked_bias(
    encoding: PositionEncoding,
    q: Tensor,
    k: Tensor,
    q_pos: Tensor,
    k_pos: Tensor,
    starts: tuple[int, int] | None,
    causal: bool,
    mask: Tensor | None,
) -> Tensor | None:
    """Return the bias of every pair, with minus infinity where a key is hidden, or None."""
    scale, keys, bias = default_scale(encoding, q.shape[-1]), repeat_heads(k, q), None
    if encoding.uses("bias"):
        if starts:
            bias = encoding.consecutive_bias(q, keys, *starts, scale)
        else:
            bias = checked_bias(encoding.bias(q, keys, q_pos, k_pos, scale), q_pos, k_pos)
    if starts and starts[1] + k.shape[2] <= starts[0] + 1:  # no key comes after a query
        causal = False
    allowed = allowed_pairs(q_pos, k_pos, causal, mask)
    bias = None if bias is None else bias.to(q.dtype)
    if allowed is None:
        return bias
    return (q.new_zeros(()) if bias is None else bias).masked_fill(~allowed, -math.inf)


def distance_biases(encoding: PositionEncoding) -> list[RelativeBias]:
    """Return what acts on the logits if all of it depends on the distance alone, else nothing."""
    hook = type(encoding).consecutive_bias
    if isinstance(encoding, RelativeBias) and hook is RelativeBias.consecutive_bias:
        return [encoding]
    if not isinstance(encoding, Compose) or hook is not Compose.consecutive_bias:
        return []
    found = [distance_biases(each) for each in encoding.members() if each.uses("bias")]
    return [bias for biases in found for bias in biases] if all(found) else []


def reversed_bias(
    biases: list[RelativeBias], q: Tensor, k: Tensor, q_start: int, k_start: int, causal: bool
) -> Tensor:
    """Return the sum of biases of distance with the queries in reverse order, (H, Lq, Lk).

    With the queries reversed a Toeplitz matrix is a Hankel matrix: entry (i, j) depends on i + j,
    so that it is a strided view of one number per distance and head, Lq + Lk - 1 of them. A causal
    mask is a question of the distance too, and is in it.
    """
    relative = distances(q, k, q_start, k_start)
    vector = torch.stack([each.for_heads(q, relative) for each in biases]).sum(dim=0)
    if causal:
        vector = vector.masked_fill(relative > 0, -math.inf)
    return vector.unfold(-1, k.shape[2], 1)  # row i belongs to query Lq - 1 - i


def rotates_heads_alike(encoding: PositionEncoding) -> bool:
    """Return whether keys may be rotated before each head of queries has its own."""
    parts = [part for part in encoding.parts() if hasattr(part, "n_heads")]
    hooks = ("rotate", "rotate_axes", "rotate_values")
    return not any(part.uses(hook) for part in parts for hook in hooks)


# --- the module -----------------------------------------------------------------------------------


class MultiHeadAttention(nn.Module):
    """Multi-head attention with one position encoding.

        output = concat_h(attend(x Wq_h, x Wk_h, x Wv_h)) Wo

    Args:
        d_model: width D of input and output.
        n_heads: number of heads H; must divide d_model.
        encoding: the position encoding; `NoPosition()` if None.
        causal: hide keys whose position is greater than the query's.
        embedded: True if the input already contains what `encoding.embed` adds. A layer never adds
            it: a model does so once, before its first layer.
        n_kv_heads: number of heads of keys and values, each for several neighbouring heads of
            queries (grouped-query attention); must divide n_heads, which it is if None.

    Source: Vaswani et al. 2017, section 3.2.2; Ainslie et al. 2023 for groups.
    """

    def __init__(
        self,
        d_model: int,
        n_heads: int,
        encoding: PositionEncoding | None = None,
        *,
        causal: bool = False,
        embedded: bool = False,
        n_kv_heads: int | None = None,
    ) -> None:
        """Create the four projections, without biases."""
        super().__init__()
        n_kv_heads = n_heads if n_kv_heads is None else n_kv_heads
        if d_model % n_heads or n_heads % n_kv_heads:
            raise ValueError(
                f"n_heads={n_heads} must divide d_model={d_model}, "
                f"and n_kv_heads={n_kv_heads} must divide n_heads"
            )
        self.d_model, self.n_heads, self.head_dim = d_model, n_heads, d_model // n_heads
        self.n_kv_heads, self.causal, self.embedded = n_kv_heads, causal, embedded
        self.encoding = NoPosition() if encoding is None else encoding
        self.check_sizes()
        self.q_proj = nn.Linear(d_model, d_model, bias=False)
        self.k_proj = nn.Linear(d_model, n_kv_heads * self.head_dim, bias=False)
        self.v_proj = nn.Linear(d_model, n_kv_heads * self.head_dim, bias=False)
        self.out_proj = nn.Linear(d_model, d_model, bias=False)

    def forward(
        self,
        x: Tensor,
        *,
        context: Tensor | None = None,
        q_pos: Tensor | int | None = None,
        k_pos: Tensor | int | None = None,
        mask: Tensor | None = None,
        cache: KVCache | None = None,
        weights: bool = False,
    ) -> Any:
        """Attend from `x` (B, Lq, D) to `context`, to itself if None: (B, Lq, D).

        Args:
            x: (B, Lq, D).
            context: (B, Lk, D), with its k_pos: a longer past, or another sequence. Not with
                a cache.
            q_pos: positions of x, (Lq,), (B, Lq) or (1 + A, B, Lq), or the int where consecutive
                ones begin. If None they go on after those in the cache, or start at 0.
            k_pos: positions of the context, likewise.
            mask: bool, (B, H, Lq, Lk) where an axis may be 1; False hides a key. Padding, (B, Lk),
                is mask[:, None, None], with the keys of a cache in each call.
            cache: earlier keys and values of this layer; this call's are added to it.
            weights: return the weights (B, H, Lq, Lk) too, as `with_weights` does.
        """
        if context is not None and (q_pos is None or k_pos is None or cache is not None):
            raise ValueError("context needs q_pos and k_pos, and no cache: it would be added again")
        if context is None and k_pos is not None:
            raise ValueError("k_pos goes with a context: the keys of x have the positions of x")
        encoding, source = self.encoding, x if context is None else context
        _, length, _ = x.shape
        self.check_sizes()
        cache = KVCache() if cache is None else cache
        if cache.layer not in (None, id(self)):
            raise ValueError("cache must be one that no other layer uses: each has its own")
        q_pos = cache.next_positions(length) if q_pos is None else q_pos
        k_pos = q_pos if k_pos is None else k_pos
        q = self.split_heads(self.q_proj(x))  # (B, H, Lq, d)
        k = self.split_heads(self.k_proj(source))  # (B, n_kv_heads, Lk, d)
        v = self.split_heads(self.v_proj(source))  # (B, n_kv_heads, Lk, d)
        q_hidden = encoding.project_hidden(x)  # (B, H, Lq, n), or None
        k_hidden = q_hidden if source is x else encoding.project_hidden(source)
        rotated = encoding.cacheable_rotation and (
            self.n_heads == self.n_kv_heads or rotates_heads_alike(encoding)
        )
        if rotated:
            at = as_positions(q_pos, q), as_positions(k_pos, k)
            q, k = rotate(encoding, q, k, *at)
            v = encoding.rotate_values(v, order_of(at[1]))
            if q.shape[-1] != self.head_dim and encoding.scale is None:
                raise ValueError("encoding must state its scale: `rotate` changes the width")
        seen = cache.append(k, v, k_pos, k_hidden)  # this call's keys behind the earlier ones
        self.check_use(q_pos, seen.at, q, seen.keys, mask)
        settings: dict[str, Any] = {"causal": self.causal, "mask": mask, "rotated": rotated}
        settings["hidden"] = None if q_hidden is None else (q_hidden, seen.hidden)
        inputs = q, seen.keys, seen.values, encoding, q_pos, seen.at
        if weights:
            output, shares = attend(*inputs, **settings)
        else:
            output = attend_fused(*inputs, **settings)
        output = self.out_proj(output.transpose(1, 2).flatten(2))  # (B, H, Lq, d) -> (B, Lq, D)
        cache.replace_with(seen, layer=id(self))  # last: a call that fails has added nothing
        return (output, shares) if weights else output

    def with_weights(self, x: Tensor, **inputs: Any) -> tuple[Tensor, Tensor]:
        """Do what `forward` does, arguments as there; return the weights (B, H, Lq, Lk) too."""
        output, weights = self(x, **inputs, weights=True)
        return output, weights

    def split_heads(self, x: Tensor) -> Tensor:
        """(B, L, heads * d) -> (B, heads, L, d)."""
        heads: Tensor = x.unflatten(-1, (-1, self.head_dim))
        return heads.transpose(1, 2)

    def check_sizes(self) -> None:
        """Raise if the encoding is made for another size, or does nothing."""
        for part in self.encoding.parts():
            who = type(part).__name__
            for name in ("d_model", "n_heads", "head_dim"):  # a bias of one head would broadcast
                if getattr(part, name, getattr(self, name)) != getattr(self, name):
                    raise ValueError(
                        f"encoding must have {name}={getattr(self, name)}, as the layer has, "
                        f"got {who} with {name}={getattr(part, name)}"
                    )
            acts = part.scale is not None or any(map(part.uses, HOOKS))
            if not acts and not isinstance(part, NoPosition):
                raise ValueError(f"encoding must define a hook, one of {', '.join(HOOKS)}: {who}")

    def check_use(
        self,
        q_pos: Tensor | int,
        k_pos: Tensor | int,
        q: Tensor,
        k: Tensor,
        mask: Tensor | None,
    ) -> None:
        """Raise if `embed` would be left out, or a causal-only encoding is shown later keys.

        In a graph the second is not checked.
        """
        if self.encoding.uses("embed") and not self.embedded:
            raise ValueError(
                f"{type(self.encoding).__name__} adds to the input of a model: call "
                "encoding.embed(x, positions) once, before the first layer, and make the layers "
                "with embedded=True"
            )
        if self.causal or not self.encoding.causal_only or torch.compiler.is_compiling():
            return
        order = order_of(as_positions(q_pos, q)), order_of(as_positions(k_pos, k))
        later = per_head(relative_position(*order) > 0)
        if bool((later if mask is None else later & mask).any()):
            raise ValueError(
                f"{type(self.encoding).__name__} is for keys of the past: make the layer with "
                "causal=True, give it a mask that hides what comes later, or use a method for both "
                "sides"
            )
