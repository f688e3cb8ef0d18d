"""Multi-head attention with a place for position: the definition, a module, a cache."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

from pe_lib.encoding import (
    NoPosition,
    PositionEncoding,
    Reads,
    check_attention,
    default_scale,
    rotated_by,
    whole_bias,
)
from pe_lib.errors import (
    require_bool,
    require_floating,
    require_hidden,
    require_multiple,
    require_positive,
    require_qkv,
)
from pe_lib.fast import Room, append_rows, attend_fused
from pe_lib.positions import (
    Axes,
    Positions,
    Run,
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
        k: keys, (B, H, Lk, d).
        encoding: supplies `rotate`, `bias` and the scale.
        q_pos: positions of the queries: a `Run`, a `range`, (Lq,) or (B, Lq), or `Axes`.
        k_pos: positions of the keys, likewise.
        rotated: q and k have been rotated before.
        reads: what `encoding.read` gave for the queries' and the keys' tokens, if it reads.

    Returns:
        (B, H, Lq, Lk): scale * <rotated q, rotated k> + bias.

    Source: Vaswani et al. 2017, equation 1, with a place for position.
    """
    check_attention(encoding, q, k)
    q_pos = as_places("q_pos", q_pos, q.shape[-2], q.shape[0], q.device)
    k_pos = as_places("k_pos", k_pos, k.shape[-2], q.shape[0], q.device)
    scale = default_scale(encoding, q.shape[-1])
    bias = whole_bias(encoding, q, k, order_of(q_pos), order_of(k_pos), scale, reads)
    if not rotated:
        q, k = rotated_by(encoding, q, k, q_pos, k_pos)
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
        k: keys, (B, H, Lk, d).
        v: values, (B, H, Lk, d).
        encoding: the position encoding whose hooks are called.
        q_pos: positions of the queries: a `Run`, a `range`, (Lq,) or (B, Lq), or `Axes`.
        k_pos: positions of the keys, likewise.
        causal: hide keys whose position is greater than the query's.
        mask: bool, broadcastable to (B, H, Lq, Lk); False hides a key. A query with no key
            left gets uniform weights.
        rotated: q and k have been rotated before, see `PositionEncoding.rotates_once`.
        reads: as in `attention_logits`.

    Returns:
        output (B, H, Lq, d) and weights (B, H, Lq, Lk), whose rows sum to one (to less where the
        encoding has a sink).

    Raises:
        TypeError: if a tensor has the wrong dtype, or encoding is no `PositionEncoding`.
        ValueError: if a shape does not fit.
    """
    check_attention(encoding, q, k, v, mask, causal=causal, rotated=rotated)
    q_pos = as_places("q_pos", q_pos, q.shape[-2], q.shape[0], q.device)
    k_pos = as_places("k_pos", k_pos, k.shape[-2], q.shape[0], q.device)
    logits = attention_logits(q, k, encoding, q_pos, k_pos, rotated=rotated, reads=reads)
    q_pos, k_pos = order_of(q_pos), order_of(k_pos)
    allowed = allowed_pairs(q_pos, k_pos, causal, mask, q.device)
    if allowed is not None:
        logits = logits.masked_fill(~allowed, torch.finfo(logits.dtype).min)
    weights = softmax(logits, encoding.sink(q, q_pos))
    output = weights @ encoding.rotate_values(v, k_pos)  # (B, H, Lq, d)
    extra = encoding.values(weights, q_pos, k_pos)
    output = encoding.rotate_back(output, q_pos)
    return output if extra is None else output + extra, weights


def softmax(logits: Tensor, sink: Tensor | None) -> Tensor:
    """Return the weights of the keys, (..., Lk); one more logit may take a share of them."""
    if sink is None:
        return logits.softmax(dim=-1)
    sink = sink.to(logits.dtype).expand(*logits.shape[:-1], 1)
    return torch.cat([logits, sink], dim=-1).softmax(dim=-1)[..., :-1]


def require_continuation(name: str, new: Tensor, held: Tensor, number: int) -> None:
    """Raise unless `number` new rows (B, H, n, d) can follow those that a cache holds."""
    wanted = (*held.shape[:2], number, held.shape[3])
    if new.shape != wanted:
        raise ValueError(
            f"{name} must have shape {wanted} to follow the cached ones, got {tuple(new.shape)}"
        )
    if new.dtype != held.dtype:
        raise TypeError(
            f"{name} must have the dtype of the cached ones, {held.dtype}, got {new.dtype}"
        )


class KVCache:
    """The keys, values and positions that earlier calls of one layer have produced.

    Keys are kept as projected, unless the encoding `rotates_once`: then they are kept rotated.
    Where no gradients are recorded it grows in place: a new token costs no copy of the old ones.
    What depends on weights alone is kept from token to token in `eval()` mode.
    """

    def __init__(self) -> None:
        """Start empty."""
        self.keys: Tensor | None = None  # (B, H, L, d)
        self.values: Tensor | None = None  # (B, H, L, d)
        self.read: Tensor | None = None  # (B, H, L, n), of an encoding that reads hidden states
        self.positions: Positions | Axes = Run(0, 0)  # or (L,), or (B, L)
        self.rooms: tuple[Room | None, ...] = (None, None, None)  # behind keys, values and read

    def __len__(self) -> int:
        """Return how many keys are held."""
        return 0 if self.keys is None else self.keys.shape[2]

    def next_positions(self, length: int) -> Positions | Axes:
        """Return the `length` positions that follow those in the cache."""
        if isinstance(self.positions, Axes):
            return self.positions.after(length)
        return following(self.positions, length)

    def append(
        self, k: Tensor, v: Tensor, positions: Positions | Axes, read: Tensor | None = None
    ) -> tuple[Tensor, Tensor, Positions | Axes, Tensor | None]:
        """Add new keys and values, and return all of them with their positions and what was read.

        Raises:
            TypeError: if new keys or values have another dtype than the cached ones.
            ValueError: if they have another batch, number of heads or width, or differ in number.
        """
        if self.keys is None or self.values is None:
            require_floating("k", k)
            require_qkv(k, k, v)
            held = as_places("positions", positions, k.shape[2], k.shape[0], k.device)
            self.keys, self.values, self.positions, self.read = k, v, own(held), read
            return k, v, self.positions, read
        require_continuation("keys", k, self.keys, k.shape[2])
        require_continuation("values", v, self.values, k.shape[2])
        new = as_places("positions", positions, k.shape[2], k.shape[0], k.device)
        self.positions = joined(self.positions, new, k.device)
        keys, values, others = self.rooms
        self.keys, keys = append_rows(self.keys, k, keys)
        self.values, values = append_rows(self.values, v, values)
        if self.read is not None and read is not None:
            self.read, others = append_rows(self.read, read, others)
        self.rooms = keys, values, others
        return self.keys, self.values, self.positions, self.read


def own(positions: Positions | Axes) -> Positions | Axes:
    """Return positions that change with no one else's."""
    if isinstance(positions, Axes):
        return Axes(order_of(own(positions.order)), positions.numbers.clone())
    return positions.clone() if isinstance(positions, Tensor) else positions


class Heads(NamedTuple):
    """What attention works on: projected heads, where their tokens are, what was done before."""

    q: Tensor  # (B, H, Lq, d)
    k: Tensor  # (B, H, Lk, d)
    v: Tensor  # (B, H, Lk, d)
    q_pos: Positions | Axes
    k_pos: Positions | Axes
    rotated: bool = False  # q and k are, see `PositionEncoding.rotates_once`
    reads: Reads | None = None  # of the queries' and of the keys' tokens


def places(
    x: Tensor,
    context: Tensor | None,
    q_pos: Positions | Axes | None,
    k_pos: Positions | Axes | None,
    cache: KVCache | None,
) -> tuple[Positions | Axes, Positions | Axes]:
    """Return the positions of queries and keys; see `MultiHeadAttention.project` for what is None.

    Raises:
        ValueError: if they do not fit, or are missing beside a context.
    """
    if context is None:
        if q_pos is None:
            q_pos = Run(0, x.shape[1]) if cache is None else cache.next_positions(x.shape[1])
        context, k_pos = x, q_pos if k_pos is None else k_pos
    elif q_pos is None or k_pos is None:
        raise ValueError("q_pos and k_pos must be given when context is given")
    q_pos = as_places("q_pos", q_pos, x.shape[1], x.shape[0], x.device)
    return q_pos, as_places("k_pos", k_pos, context.shape[1], x.shape[0], x.device)


class MultiHeadAttention(nn.Module):
    """Multi-head attention with one position encoding.

    Args:
        d_model: width D of input and output.
        n_heads: number of heads H; must divide d_model.
        encoding: the position encoding; `NoPosition()` if None.
        causal: hide keys whose position is greater than the query's.
        embedded: what the encoding adds to the input is in it already. A layer does not add
            it, since a model does so once, before its first layer.

    Raises:
        TypeError: if encoding is no `PositionEncoding`.
        ValueError: if n_heads does not divide d_model.

    Source: Vaswani et al. 2017, section 3.2.2.
    """

    def __init__(
        self,
        d_model: int,
        n_heads: int,
        encoding: PositionEncoding | None = None,
        *,
        causal: bool = False,
        embedded: bool = False,
    ) -> None:
        """Create the four projections, without biases."""
        super().__init__()
        require_positive("n_heads", n_heads)
        require_multiple("d_model", d_model, n_heads, "n_heads must divide it")
        if not isinstance(encoding, PositionEncoding | None):
            raise TypeError(f"encoding must be a PositionEncoding, got {encoding!r}")
        self.d_model, self.n_heads = d_model, n_heads
        self.causal = require_bool("causal", causal)
        self.embedded = require_bool("embedded", embedded)
        self.encoding = NoPosition() if encoding is None else encoding
        self.q_proj = nn.Linear(d_model, d_model, bias=False)
        self.k_proj = nn.Linear(d_model, d_model, bias=False)
        self.v_proj = nn.Linear(d_model, d_model, bias=False)
        self.out_proj = nn.Linear(d_model, d_model, bias=False)

    def forward(self, x: Tensor, *, mask: Tensor | None = None, **inputs: Any) -> Tensor:
        """Attend from `x` to `context` (to itself if None).

        Args:
            x: (B, Lq, D).
            mask: bool, broadcastable to (B, H, Lq, Lk); False hides a key.
            inputs: context, q_pos, k_pos and cache, see `project`.

        Returns:
            (B, Lq, D).

        Raises:
            TypeError: if x is not a floating-point tensor.
            ValueError: if a shape does not fit, or the encoding acts on the input and nobody
                has said that it did (`embedded`).
        """
        if self.encoding.uses("values"):  # they need the weights
            return self.with_weights(x, mask=mask, **inputs)[0]
        output: Tensor = self.attended(attend_fused, x, mask, inputs)[0]
        return output

    def with_weights(
        self, x: Tensor, *, mask: Tensor | None = None, **inputs: Any
    ) -> tuple[Tensor, Tensor]:
        """Do what `forward` does, and return the weights (B, H, Lq, Lk) too."""
        output, weights = self.attended(attend, x, mask, inputs)
        return output, weights

    def attended(
        self, form: Callable[..., Any], x: Tensor, mask: Tensor | None, inputs: dict[str, Any]
    ) -> tuple[Any, Any]:
        """Return the output (B, Lq, D) by `attend` or `attend_fused`, and the weights or None."""
        cache = inputs.get("cache")
        before = dict(vars(cache)) if isinstance(cache, KVCache) else {}
        try:
            heads = self.project(x, **inputs)
            found = form(
                *heads[:3],
                self.encoding,
                heads.q_pos,
                heads.k_pos,
                causal=self.causal,
                mask=mask,
                rotated=heads.rotated,
                reads=heads.reads,
            )
            output, weights = found if isinstance(found, tuple) else (found, None)
            return self.merge_heads(output), weights
        except BaseException:  # a call that is refused, or ended, has added nothing
            for name, value in before.items():
                setattr(cache, name, value)
            raise

    def project(
        self,
        x: Tensor,
        *,
        context: Tensor | None = None,
        q_pos: Positions | Axes | None = None,
        k_pos: Positions | Axes | None = None,
        cache: KVCache | None = None,
    ) -> Heads:
        """Return queries, keys and values with their positions.

        Args:
            x: (B, Lq, D).
            context: (B, Lk, D), with its `k_pos`: a longer past (a memory), or another sequence.
            q_pos: positions of x: a `Run`, a `range`, (Lq,) or (B, Lq), or `Axes`. If None they
                go on after those in the cache, or start at 0.
            k_pos: positions of the keys, likewise; those of x if None.
            cache: earlier keys and values; this call's are added to it.
        """
        batch, _ = require_hidden("x", x, self.q_proj.weight)
        self.require_embedded()
        if not isinstance(cache, KVCache | None):
            raise TypeError(f"cache must be a KVCache, got {type(cache).__name__}")
        if context is not None:
            k_batch, _ = require_hidden("context", context, self.q_proj.weight)
            if k_batch != batch:
                raise ValueError(f"context must have the batch of x, {batch}, got {k_batch}")
        q_pos, k_pos = places(x, context, q_pos, k_pos, cache)
        encoding, source = self.encoding, x if context is None else context
        q = self.split_heads(self.q_proj(x))  # (B, H, Lq, d)
        k = self.split_heads(self.k_proj(source))  # (B, H, Lk, d)
        v = self.split_heads(self.v_proj(source))  # (B, H, Lk, d)
        q_read = encoding.read(x)  # (B, H, Lq, n)
        k_read = q_read if source is x else encoding.read(source)  # (B, H, Lk, n)
        rotated = cache is not None and encoding.rotates_once
        if cache is not None:
            if rotated:
                q, k = rotated_by(encoding, q, k, q_pos, k_pos)
            k, v, k_pos, k_read = cache.append(k, v, k_pos, k_read)
        reads = None if q_read is None or k_read is None else (q_read, k_read)
        return Heads(q, k, v, q_pos, k_pos, rotated, reads)

    def require_embedded(self) -> None:
        """Raise a ValueError if what the encoding adds to the input would be left out."""
        if self.encoding.uses("embed") and not self.embedded:
            raise ValueError(
                f"{type(self.encoding).__name__} adds to the input of a model, which attention "
                "would leave out: call encoding.embed(x, positions) once, before the first layer, "
                "and make the layers with embedded=True"
            )

    def split_heads(self, x: Tensor) -> Tensor:
        """(B, L, D) -> (B, H, L, d)."""
        return x.reshape(*x.shape[:2], self.n_heads, self.d_model // self.n_heads).transpose(1, 2)

    def merge_heads(self, heads: Tensor) -> Tensor:
        """(B, H, L, d) -> (B, L, D), through the output projection."""
        merged: Tensor = self.out_proj(heads.transpose(1, 2).flatten(2))
        return merged
