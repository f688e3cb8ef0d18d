"""Multi-head attention with a place for position: the definition, a module, a cache.

    output_i = sum over j of softmax_j(scale <rotated q_i, rotated k_j> + bias_ij) v_j

`pe_lib.fast` has the same for less, and is used unless it is switched off.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor, nn

from pe_lib import fast
from pe_lib.encoding import NoPosition, PositionEncoding, Reads, default_scale
from pe_lib.errors import (
    require_bool,
    require_booleans,
    require_floating,
    require_multiple,
    require_positive,
    require_shapes,
)
from pe_lib.fast import Room, append_rows
from pe_lib.positions import (
    Axes,
    Positions,
    Run,
    all_past,
    allowed_pairs,
    as_places,
    following,
    joined,
    order_of,
    relative_position,
)

__all__ = [
    "Axes",
    "KVCache",
    "MultiHeadAttention",
    "NoPosition",
    "PositionEncoding",
    "Run",
    "allowed_pairs",
    "attend",
    "attend_fused",
    "attention_logits",
    "default_scale",
    "relative_position",
]


def attention_logits(
    q: Tensor,
    k: Tensor,
    encoding: PositionEncoding,
    q_pos: Positions | Axes,
    k_pos: Positions | Axes,
    *,
    rotated: bool = False,
    reads: Reads | None = None,
) -> Tensor:
    """Return the scores before the mask and the softmax.

    Args:
        q: queries, (B, H, Lq, d).
        k: keys, (B, H, Lk, d), or with fewer heads, each for several neighbours of q.
        encoding: supplies `rotate`, `bias` and the scale.
        q_pos: positions of the queries: a `Run`, a `range`, (Lq,) or (B, Lq), or `Axes`.
        k_pos: positions of the keys, likewise.
        rotated: q and k have been rotated before.
        reads: what `encoding.read` returned for the hidden states of queries and of keys.

    Returns:
        (B, H, Lq, Lk): scale * <rotated q, rotated k> + bias.

    Source: Vaswani et al. 2017, equation 1, with a place for position.
    """
    q_pos, k_pos = check_attention(encoding, q, k, q_pos, k_pos, rotated=rotated)
    k = fast.for_queries(k, q)
    scale = default_scale(encoding, q.shape[-1])
    # Both are the encoding's own hooks, or the same numbers for less.
    bias = fast.bias_of(encoding, q, k, order_of(q_pos), order_of(k_pos), scale, reads)
    if not rotated:
        q, k = fast.rotate(encoding, q, k, q_pos, k_pos)
    logits = q @ k.mT * scale
    return logits if bias is None else logits + bias  # (B, H, Lq, Lk)


def attend(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    encoding: PositionEncoding,
    q_pos: Positions | Axes,
    k_pos: Positions | Axes,
    *,
    causal: bool = False,
    mask: Tensor | None = None,
    rotated: bool = False,
    reads: Reads | None = None,
) -> tuple[Tensor, Tensor]:
    """Attend, and return the weights too: the definition, step by step.

    Args:
        q: queries, (B, H, Lq, d).
        k: keys, (B, H, Lk, d), or with fewer heads, each for several neighbours of q.
        v: values, likewise.
        encoding: the position encoding whose hooks are called.
        q_pos: positions of the queries: a `Run`, a `range`, (Lq,) or (B, Lq), or `Axes`.
        k_pos: positions of the keys, likewise.
        causal: hide keys whose position is greater than the query's.
        mask: bool, broadcastable to (B, H, Lq, Lk); False hides a key. A query with no key
            left gets uniform weights, or none at all where the encoding has a sink.
        rotated: q, k and v have been rotated before, see `PositionEncoding.rotates_once`.
        reads: as in `attention_logits`.

    Returns:
        output (B, H, Lq, d) and weights (B, H, Lq, Lk), whose rows sum to one (to less where the
        encoding has a sink).
    """
    q_pos, k_pos = check_attention(encoding, q, k, q_pos, k_pos, v, mask, causal=causal)
    logits = attention_logits(q, k, encoding, q_pos, k_pos, rotated=rotated, reads=reads)
    q_pos, k_pos = order_of(q_pos), order_of(k_pos)
    allowed = allowed_pairs(q_pos, k_pos, causal, mask, q.device)
    if allowed is not None:
        logits = logits.masked_fill(~allowed, -math.inf)
    logits = logits.clamp(min=torch.finfo(logits.dtype).min)  # all the same where all are hidden
    weights = softmax(logits, encoding.sink(q, q_pos))
    if not rotated:
        v = encoding.rotate_values(v, k_pos)
    output = weights @ fast.for_queries(v, q)  # (B, H, Lq, d)
    extra = encoding.values(weights, q_pos, k_pos)
    output = encoding.rotate_back(output, q_pos)
    return output if extra is None else output + extra, weights


def softmax(logits: Tensor, sink: Tensor | None) -> Tensor:
    """Return the weights of the keys, (..., Lk); one more logit may take a share of them."""
    if sink is None:
        return logits.softmax(dim=-1)
    sink = sink.to(logits.dtype).expand(*logits.shape[:-1], 1)
    return torch.cat([logits, sink], dim=-1).softmax(dim=-1)[..., :-1]


def attend_fused(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    encoding: PositionEncoding,
    q_pos: Positions | Axes,
    k_pos: Positions | Axes,
    *,
    mask: Tensor | None = None,
    memory: fast.Memory | None = None,
    **settings: Any,
) -> Tensor:
    """Return the output of `attend` by the fast forms, without the weights; arguments as there."""
    if encoding.uses("values"):
        raise ValueError(
            f"encoding must not act on the values, for which {type(encoding).__name__} needs the "
            "weights: use `attend`"
        )
    if not fast.ON:
        return attend(q, k, v, encoding, q_pos, k_pos, mask=mask, **settings)[0]
    switches = {name: settings[name] for name in ("causal", "rotated") if name in settings}
    q_pos, k_pos = check_attention(encoding, q, k, q_pos, k_pos, v, mask, **switches)
    return fast.attend(q, k, v, encoding, q_pos, k_pos, mask=mask, memory=memory, **settings)


class KVCache:
    """The keys, values and positions that earlier calls of one layer have produced.

    Keys are kept as projected, or rotated if the encoding `rotates_once`. Where no gradients are
    recorded the cache grows in place: a new token costs no copy of the old ones.
    """

    def __init__(self) -> None:
        """Start empty."""
        self.keys: Tensor | None = None  # (B, H, L, d)
        self.values: Tensor | None = None  # (B, H, L, d)
        self.read: Tensor | None = None  # (B, H, L, n), of an encoding that reads hidden states
        self.positions: Positions | Axes = Run(0, 0)  # or (L,), or (B, L)
        self.rooms: tuple[Room | None, ...] = (None, None, None)  # behind keys, values and read
        self.rotated = False  # keys and values are kept so
        self.memory: fast.Memory = {}  # rows that fast forms have projected for this generation

    def __len__(self) -> int:
        """Return how many keys are held."""
        return 0 if self.keys is None else self.keys.shape[2]

    def next_positions(self, length: int) -> Positions | Axes:
        """Return the `length` positions that follow those in the cache."""
        if isinstance(self.positions, Axes):
            return self.positions.after(length)
        return following(self.positions, length)

    def with_more(
        self, k: Tensor, v: Tensor, positions: Positions | Axes, read: Tensor | None = None
    ) -> KVCache:
        """Return a cache that holds these keys and values too; this one stays as it is."""
        given = {"k": require_floating("k", k), "v": require_floating("v", v)}
        require_shapes(given, {"k": "B H L d", "v": "B H L dv"}, {})
        new = as_places("positions", positions, k.shape[2], k.shape[0], k.device)
        grown = KVCache()
        grown.memory = self.memory
        if self.keys is None or self.values is None:
            grown.keys, grown.values, grown.read, grown.positions = k, v, read, own(new)
            return grown
        require_following("keys", k, self.keys)
        require_following("values", v, self.values)
        require_later(order_of(self.positions), order_of(new))
        grown.positions = joined(self.positions, new, k.device)
        grown.keys, keys = append_rows(self.keys, k, self.rooms[0])
        grown.values, values = append_rows(self.values, v, self.rooms[1])
        others = None
        if self.read is not None and read is not None:
            grown.read, others = append_rows(self.read, read, self.rooms[2])
        grown.rooms = keys, values, others
        return grown

    def held(self) -> tuple[Tensor, Tensor, Positions | Axes, Tensor | None]:
        """Return keys, values, their positions and what was read of their tokens."""
        assert self.keys is not None and self.values is not None
        return self.keys, self.values, self.positions, self.read

    def become(self, other: KVCache) -> None:
        """Hold what another cache holds."""
        vars(self).update(vars(other))


def own(positions: Positions | Axes) -> Positions | Axes:
    """Return positions that change with no one else's."""
    if isinstance(positions, Axes):
        return Axes(order_of(own(positions.order)), positions.numbers.clone())
    return positions.clone() if isinstance(positions, Tensor) else positions


def require_following(name: str, new: Tensor, held: Tensor) -> None:
    """Raise unless new rows (B, H, n, d) can follow those that a cache holds."""
    shapes = {"held": "B H L d", name: "B H n d"}
    require_shapes({"held": held, name: new}, shapes, {}, "behind a cache ")
    if new.dtype != held.dtype:
        raise TypeError(
            f"{name} must have the dtype of the cached ones, {held.dtype}, got {new.dtype}"
        )


def require_later(held: Positions, new: Positions) -> None:
    """Raise if a run begins before the cached one ends: a cache in two layers, or a token twice."""
    if isinstance(held, Run) and isinstance(new, Run) and new.start < held.stop:
        raise ValueError(
            f"q_pos must come after the cached positions, which end at {held.stop - 1}, got {new}; "
            "each layer has a cache of its own, and each token is given once"
        )


class MultiHeadAttention(nn.Module):
    """Multi-head attention with one position encoding.

    Args:
        d_model: width D of input and output.
        n_heads: number of heads H; must divide d_model.
        encoding: the position encoding; `NoPosition()` if None.
        causal: hide keys whose position is greater than the query's.
        embedded: what the encoding adds to the input is in it already. A layer does not add
            it, since a model does so once, before its first layer.
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
        self.n_heads = require_positive("n_heads", n_heads)
        self.n_kv_heads = require_positive(
            "n_kv_heads", n_heads if n_kv_heads is None else n_kv_heads
        )
        require_multiple("n_heads", n_heads, self.n_kv_heads, "n_kv_heads must divide it")
        self.d_model = require_multiple("d_model", d_model, n_heads, "n_heads must divide it")
        self.head_dim = d_model // n_heads
        self.causal = require_bool("causal", causal)
        self.embedded = require_bool("embedded", embedded)
        self.encoding = NoPosition() if encoding is None else encoding
        require_encoding(self.encoding)
        self.q_proj = nn.Linear(d_model, d_model, bias=False)
        self.k_proj = nn.Linear(d_model, self.n_kv_heads * self.head_dim, bias=False)
        self.v_proj = nn.Linear(d_model, self.n_kv_heads * self.head_dim, bias=False)
        self.out_proj = nn.Linear(d_model, d_model, bias=False)

    def forward(
        self,
        x: Tensor,
        *,
        context: Tensor | None = None,
        q_pos: Positions | Axes | None = None,
        k_pos: Positions | Axes | None = None,
        mask: Tensor | None = None,
        cache: KVCache | None = None,
    ) -> Tensor:
        """Attend from `x` (B, Lq, D) to `context`, to itself if None: (B, Lq, D).

        Args:
            x: (B, Lq, D).
            context: (B, Lk, D), with its k_pos: a longer past, or another sequence.
            q_pos: positions of x: a `Run`, a `range`, (Lq,) or (B, Lq), or `Axes`. If None they go
                on after those in the cache, or start at 0.
            k_pos: positions of the keys, likewise; those of x if None.
            mask: bool, broadcastable to (B, H, Lq, Lk); False hides a key.
            cache: earlier keys and values; this call's are added to it.
        """
        fused = fast.ON and not self.encoding.uses("values")
        places = {"q_pos": q_pos, "k_pos": k_pos}
        return self.attended(x, fused=fused, context=context, mask=mask, cache=cache, **places)[0]

    def with_weights(self, x: Tensor, **inputs: Any) -> tuple[Tensor, Tensor]:
        """Do what `forward` does, arguments as there; return the weights (B, H, Lq, Lk) too."""
        output, weights = self.attended(x, fused=False, **inputs)
        assert weights is not None
        return output, weights

    def attended(
        self,
        x: Tensor,
        *,
        fused: bool,
        context: Tensor | None = None,
        q_pos: Positions | Axes | None = None,
        k_pos: Positions | Axes | None = None,
        mask: Tensor | None = None,
        cache: KVCache | None = None,
    ) -> tuple[Tensor, Tensor | None]:
        """Return the output, (B, Lq, D), and the weights unless a fused kernel hides them."""
        self.check(x, context, cache)
        q_pos, k_pos = places(x, context, q_pos, k_pos, cache)
        encoding, source = self.encoding, x if context is None else context
        q = self.split_heads(self.q_proj(x))  # (B, H, Lq, d)
        k = self.split_heads(self.k_proj(source))  # (B, n_kv_heads, Lk, d)
        v = self.split_heads(self.v_proj(source))  # (B, n_kv_heads, Lk, d)
        q_read = encoding.read(x)  # (B, H, Lq, n)
        k_read = q_read if source is x else encoding.read(source)  # (B, H, Lk, n)
        rotated, grown = False, None
        if cache is not None:
            rotated = cache.rotated
            if len(cache) == 0:
                rotated = fast.keeps_rotated(encoding, self.n_heads, self.n_kv_heads)
            if rotated:
                q, k = fast.rotate(encoding, q, k, q_pos, k_pos)
                v = encoding.rotate_values(v, order_of(k_pos))
            grown = cache.with_more(k, v, k_pos, k_read)
            grown.rotated = rotated
            k, v, k_pos, k_read = grown.held()
        self.require_past(order_of(q_pos), order_of(k_pos), mask)
        reads = None if q_read is None or k_read is None else (q_read, k_read)
        settings: dict[str, Any] = {"causal": self.causal, "mask": mask}
        settings |= {"rotated": rotated, "reads": reads}
        if fused:
            settings["memory"] = None if grown is None else grown.memory
            output, weights = attend_fused(q, k, v, encoding, q_pos, k_pos, **settings), None
        else:
            output, weights = attend(q, k, v, encoding, q_pos, k_pos, **settings)
        output = self.out_proj(output.transpose(1, 2).flatten(2))  # (B, H, Lq, d) -> (B, Lq, D)
        if cache is not None and grown is not None:  # a call that fails has added nothing
            cache.become(grown)
        return output, weights

    def split_heads(self, x: Tensor) -> Tensor:
        """(B, L, heads * d) -> (B, heads, L, d)."""
        heads: Tensor = x.unflatten(-1, (-1, self.head_dim))
        return heads.transpose(1, 2)

    def check(self, x: Tensor, context: Tensor | None, cache: object) -> None:
        """Raise unless what attention is given fits this layer."""
        require_hidden("x", x, self.q_proj.weight)
        if context is not None:
            require_hidden("context", context, self.q_proj.weight)
            if len(context) != len(x):
                raise ValueError(f"context must have the batch of x, {len(x)}, got {len(context)}")
        if not isinstance(cache, KVCache | None):
            raise TypeError(f"cache must be a KVCache, got {type(cache).__name__}")
        if self.encoding.uses("embed") and not self.embedded:
            raise ValueError(
                f"{type(self.encoding).__name__} adds to the input of a model, which attention "
                "would leave out: call encoding.embed(x, positions) once, before the first layer, "
                "and make the layers with embedded=True"
            )

    def require_past(self, q_pos: Positions, k_pos: Positions, mask: Tensor | None) -> None:
        """Raise if keys of the future are shown to an encoding that is for the past only."""
        shown = not self.causal and mask is None and not all_past(q_pos, k_pos)
        if self.encoding.past_only and shown:
            raise ValueError(
                f"{type(self.encoding).__name__} is for keys of the past: make the layer with "
                "causal=True, give it a mask, or use a method for both sides"
            )


def places(
    x: Tensor,
    context: Tensor | None,
    q_pos: Positions | Axes | None,
    k_pos: Positions | Axes | None,
    cache: KVCache | None,
) -> tuple[Positions | Axes, Positions | Axes]:
    """Return the positions of queries and keys; see `MultiHeadAttention` for what is None."""
    if context is None:
        if q_pos is None:
            q_pos = Run(0, x.shape[1]) if cache is None else cache.next_positions(x.shape[1])
        context, k_pos = x, q_pos if k_pos is None else k_pos
    elif q_pos is None or k_pos is None:
        raise ValueError("q_pos and k_pos must be given when context is given")
    found = as_places("q_pos", q_pos, x.shape[1], x.shape[0], x.device)
    if k_pos is q_pos:
        return found, found
    return found, as_places("k_pos", k_pos, context.shape[1], x.shape[0], x.device)


def require_encoding(encoding: object) -> None:
    """Raise unless `encoding` is a position encoding."""
    if not isinstance(encoding, PositionEncoding):
        raise TypeError(f"encoding must be a PositionEncoding, got {encoding!r}")


def require_hidden(name: str, x: Tensor, weight: Tensor) -> None:
    """Raise unless x is hidden states (B, L >= 1, D) for a layer with this weight (D, D)."""
    require_floating(name, x)
    if x.ndim != 3 or x.shape[1] == 0 or x.shape[2] != weight.shape[1]:
        raise ValueError(
            f"{name} must have shape (batch, length >= 1, {weight.shape[1]}), got {tuple(x.shape)}"
        )
    if x.dtype != weight.dtype and not torch.is_autocast_enabled(x.device.type):
        raise TypeError(f"{name} must have the dtype of the weights, {weight.dtype}, got {x.dtype}")
    if x.device != weight.device:
        raise ValueError(
            f"{name} must be on the device of the weights, {weight.device}, got {x.device}"
        )


def check_attention(
    encoding: object,
    q: Tensor,
    k: Tensor,
    q_pos: object,
    k_pos: object,
    v: Tensor | None = None,
    mask: object = None,
    **switches: object,
) -> tuple[Positions | Axes, Positions | Axes]:
    """Return both positions if q (B, H, Lq, d), k, v (B, H, Lk >= 1, d) and a mask fit them."""
    for name, value in switches.items():
        require_bool(name, value)
    require_encoding(encoding)
    given = {"q": q, "k": k} | ({} if v is None else {"v": v})
    for name, x in given.items():
        require_floating(name, x)
        if x.dtype != q.dtype:
            raise TypeError(f"{name} must have the dtype of q, {q.dtype}, got {x.dtype}")
        if x.device != q.device:
            raise ValueError(f"{name} must be on the device of q, {q.device}, got {x.device}")
    require_shapes(given, {"q": "B H Lq d", "k": "B Hk Lk d", "v": "B Hk Lk dv"}, {})
    if k.shape[2] == 0 or k.shape[1] == 0 or q.shape[1] % k.shape[1]:
        raise ValueError(
            "k must have one key at least, and heads that divide those of q, "
            f"got {tuple(k.shape)} for q of shape {tuple(q.shape)}"
        )
    if mask is not None:
        require_mask(mask, (*q.shape[:3], k.shape[2]))
    given_pos = ("q_pos", q_pos, q.shape[2]), ("k_pos", k_pos, k.shape[2])
    found = [as_places(*each, q.shape[0], q.device) for each in given_pos]
    return found[0], found[1]


def require_mask(mask: object, wanted: Sequence[int]) -> None:
    """Raise unless a mask is a bool tensor that broadcasts to (B, H, Lq, Lk) in one way only."""
    mask = require_booleans("mask", mask)  # True: may look
    axes = zip(reversed(mask.shape), reversed(wanted), strict=False)
    fits = mask.ndim <= 4 and all(given in (1, full) for given, full in axes)
    either = mask.ndim == 2 and wanted[0] == wanted[2] == wanted[3] > 1
    if not fits or either:
        words = " (write mask[None, None] or mask[:, None, None])" if either else ""
        raise ValueError(
            f"mask must broadcast to (B, H, Lq, Lk) = {tuple(wanted)} in one way{words}, "
            f"got {tuple(mask.shape)}"
        )
