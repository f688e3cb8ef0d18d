"""Multi-head attention with a place for position: the definition, a module, a cache.

    output_i = sum over j of softmax_j(scale <rotated q_i, rotated k_j> + bias_ij) v_j

`pe_lib.fast` has the same for less, and is used unless it is switched off.
"""

import math
from typing import Any, Self

import torch
from torch import Tensor, nn

from pe_lib import fast
from pe_lib.arguments import Booleans, Count, checked, lengths_of
from pe_lib.encoding import NoPosition as NoPosition
from pe_lib.encoding import PositionEncoding as PositionEncoding
from pe_lib.encoding import Reads, default_scale
from pe_lib.errors import may_read, require_multiple, require_shapes
from pe_lib.fast import append_rows, for_queries
from pe_lib.positions import (
    AnyPositions,
    all_past,
    allowed_pairs,
    as_positions,
    following,
    joined,
    order_of,
    own,
    per_head,
)
from pe_lib.positions import Run as Run
from pe_lib.positions import relative_position as relative_position

QUERIES, KEYS, VALUES = "B H Lq d", "B Hk Lk d", "B Hk Lk dv"
OF_QUERIES, OF_KEYS = "Lq | B Lq | 1 Lq", "Lk | B Lk | 1 Lk"


@checked(q=QUERIES, k=KEYS, q_pos=OF_QUERIES, k_pos=OF_KEYS)
def attention_logits(
    q: Tensor,
    k: Tensor,
    encoding: PositionEncoding,
    q_pos: AnyPositions,
    k_pos: AnyPositions,
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
    require_heads(q, k)
    k, scale = for_queries(k, q), default_scale(encoding, q.shape[-1])
    # Both are the encoding's own hooks, or the same numbers for less.
    bias = fast.bias_of(encoding, q, k, order_of(q_pos), order_of(k_pos), scale, reads)
    if not rotated:
        q, k = fast.rotate(encoding, q, k, q_pos, k_pos)
    logits = q @ k.mT * scale
    return logits if bias is None else logits + bias  # (B, H, Lq, Lk)


@checked(k=KEYS, v=VALUES)
def attend(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    encoding: PositionEncoding,
    q_pos: AnyPositions,
    k_pos: AnyPositions,
    *,
    causal: bool = False,
    mask: Booleans | None = None,
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
    logits = attention_logits(q, k, encoding, q_pos, k_pos, rotated=rotated, reads=reads)
    require_mask(mask, tuple(logits.shape))
    q_pos, k_pos = order_of(q_pos), order_of(k_pos)
    allowed = allowed_pairs(q_pos, k_pos, causal, mask, q.device)
    if allowed is not None:
        logits = logits.masked_fill(~allowed, -math.inf)
    logits = logits.clamp(min=torch.finfo(logits.dtype).min)  # all the same where all are hidden
    weights = softmax(logits, encoding.sink(q, q_pos))
    if not rotated:
        v = encoding.rotate_values(v, k_pos)
    output = weights @ for_queries(v, q)  # (B, H, Lq, d)
    extra = encoding.values(weights, q_pos, k_pos)
    output = encoding.rotate_back(output, q_pos)
    return output if extra is None else output + extra, weights


def softmax(logits: Tensor, sink: Tensor | None) -> Tensor:
    """Return the weights of the keys, (..., Lk); one more logit may take a share of them."""
    if sink is None:
        return logits.softmax(dim=-1)
    sink = sink.to(logits.dtype).expand(*logits.shape[:-1], 1)
    return torch.cat([logits, sink], dim=-1).softmax(dim=-1)[..., :-1]


@checked(q=QUERIES, k=KEYS, v=VALUES, q_pos=OF_QUERIES, k_pos=OF_KEYS)
def attend_fused(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    encoding: PositionEncoding,
    q_pos: AnyPositions,
    k_pos: AnyPositions,
    *,
    causal: bool = False,
    mask: Booleans | None = None,
    rotated: bool = False,
    reads: Reads | None = None,
    memory: fast.Memory | None = None,
) -> Tensor:
    """Return the output of `attend` by the fast forms, without the weights; arguments as there."""
    settings: dict[str, Any] = {"causal": causal, "rotated": rotated, "reads": reads}
    if not fast.ON or encoding.uses("values"):  # which needs the weights
        return attend(q, k, v, encoding, q_pos, k_pos, mask=mask, **settings)[0]
    require_heads(q, k)
    require_mask(mask, (*q.shape[:3], k.shape[2]))
    settings |= {"mask": mask, "memory": memory}
    return fast.attend(q, k, v, encoding, q_pos, k_pos, **settings)


def require_heads(q: Tensor, k: Tensor) -> None:
    """Raise unless there is a key, and each of its heads serves as many of the queries'."""
    if k.shape[2] == 0 or k.shape[1] == 0 or q.shape[1] % k.shape[1]:
        raise ValueError(
            "k must have one key at least, and heads that divide those of q, "
            f"got {tuple(k.shape)} for q of shape {tuple(q.shape)}"
        )


def require_mask(mask: Tensor | None, wanted: tuple[int, ...]) -> None:
    """Raise unless a mask broadcasts to (B, H, Lq, Lk), its first axis not of two meanings."""
    if mask is not None:
        axes = zip(reversed(mask.shape), reversed(wanted), strict=False)
        fits = mask.ndim <= 4 and all(given in (1, full) for given, full in axes)
        # Of two axes the first may be queries or the batch, of three it may be heads or the batch.
        double = mask.ndim in (2, 3) and len(mask) == wanted[0] == wanted[4 - mask.ndim] > 1
        ways = {
            2: "mask[None, None] if its axes are (Lq, Lk), mask[:, None, None] if (B, Lk)",
            3: "mask[None] if its axes are (H, Lq, Lk), mask[:, None] if (B, Lq, Lk)",
        }
        if not fits or double:
            say = f", which fits in two ways: give {ways[mask.ndim]}" if double else ""
            raise ValueError(
                f"mask must broadcast to (B, H, Lq, Lk) = {wanted}, got {tuple(mask.shape)}{say}"
            )


def shows_later(q_pos: AnyPositions, k_pos: AnyPositions, mask: Tensor | None) -> bool:
    """Return whether a key that comes after its query is seen, as far as a mask may be read."""
    if mask is None or not may_read(mask):
        return mask is None
    later = per_head(relative_position(order_of(q_pos), order_of(k_pos), mask.device) > 0)
    return bool((later & mask).any())


class KVCache:
    """The keys, values and positions that earlier calls of one layer have produced.

    Keys are kept as projected, or rotated if the encoding `rotates_once`. Where no gradients are
    recorded the cache grows in place: a new token costs no copy of the old ones.
    """

    def __init__(self) -> None:
        """Start empty."""
        self.keys: Any = None  # or (B, H, L, d)
        self.values: Any = None  # or (B, H, L, d)
        self.read: Any = None  # or (B, H, L, n), of an encoding that reads hidden states
        self.positions: AnyPositions = Run(0, 0)
        self.rotated = False  # keys and values are kept so
        self.rooms: tuple[fast.Room | None, ...] = (None, None, None)  # behind keys, values, read
        self.memory: fast.Memory = {}  # rows that fast forms have projected for this generation

    def __len__(self) -> int:
        """Return how many keys are held."""
        return 0 if self.keys is None else self.keys.shape[2]

    def next_positions(self, length: int) -> AnyPositions:
        """Return the `length` positions that follow those in the cache."""
        return following(self.positions, length)

    def with_more(
        self, k: Tensor, v: Tensor, k_pos: AnyPositions, read: Tensor | None = None
    ) -> Self:
        """Return a cache that holds these keys and values too; this one stays as it is."""
        k_pos = as_positions("k_pos", k_pos)
        given = {"held": self.keys, "keys": k, "values": v, "k_pos": k_pos}
        shapes = {"held": "B H L d", "keys": "B H Lk d", "values": "B H Lk dv", "k_pos": OF_KEYS}
        require_shapes(given, shapes, who="" if self.keys is None else "behind a cache ")
        grown = type(self)()
        grown.rotated, grown.memory = self.rotated, self.memory
        before = self.positions
        grown.positions = joined(before, k_pos, k.device) if len(self) else own(k_pos)
        grown.keys, keys = append_rows(self.keys, k, self.rooms[0])
        grown.values, values = append_rows(self.values, v, self.rooms[1])
        grown.read, reads = append_rows(self.read, read, self.rooms[2])
        grown.rooms = keys, values, reads
        return grown

    def become(self, other: Self) -> None:
        """Hold what another cache holds."""
        vars(self).update(vars(other))


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

    @checked()
    def __init__(
        self,
        d_model: int,
        n_heads: Count,
        encoding: PositionEncoding | None = None,
        *,
        causal: bool = False,
        embedded: bool = False,
        n_kv_heads: Count | None = None,
    ) -> None:
        """Create the four projections, without biases."""
        super().__init__()
        n_kv_heads = n_heads if n_kv_heads is None else n_kv_heads
        require_multiple("n_heads", n_heads, n_kv_heads, "n_kv_heads must divide it")
        self.d_model = require_multiple("d_model", d_model, n_heads, "n_heads must divide it")
        self.n_heads, self.n_kv_heads, self.head_dim = n_heads, n_kv_heads, d_model // n_heads
        self.causal, self.embedded = causal, embedded
        self.encoding = NoPosition() if encoding is None else encoding
        for part in self.encoding.parts():
            for name, length in lengths_of(part).items():
                if length != getattr(self, name):
                    raise ValueError(
                        f"encoding must have {name}={getattr(self, name)}, as the layer has, "
                        f"got {type(part).__name__} with {name}={length}"
                    )
        self.q_proj = nn.Linear(d_model, d_model, bias=False)
        self.k_proj = nn.Linear(d_model, n_kv_heads * self.head_dim, bias=False)
        self.v_proj = nn.Linear(d_model, n_kv_heads * self.head_dim, bias=False)
        self.out_proj = nn.Linear(d_model, d_model, bias=False)

    @checked(x="B Lq d_model", context="B Lk d_model", q_pos=OF_QUERIES)
    def forward(
        self,
        x: Tensor,
        *,
        context: Tensor | None = None,
        q_pos: AnyPositions | None = None,
        k_pos: AnyPositions | None = None,
        mask: Booleans | None = None,
        cache: KVCache | None = None,
        weights: bool = False,
    ) -> Any:
        """Attend from `x` (B, Lq, D) to `context`, to itself if None: (B, Lq, D).

        Args:
            x: (B, Lq, D).
            context: (B, Lk, D), with its k_pos: a longer past, or another sequence.
            q_pos: positions of x: a `Run`, a `range`, (Lq,) or (B, Lq), or `Axes`. If None they go
                on after those in the cache, or start at 0.
            k_pos: positions of the keys, likewise; those of x if None.
            mask: bool, broadcastable to (B, H, Lq, Lk); False hides a key.
            cache: earlier keys and values; this call's are added to it.
            weights: return the weights (B, H, Lq, Lk) too, as `with_weights` does.
        """
        if context is not None and (q_pos is None or k_pos is None):
            raise ValueError("q_pos and k_pos must be given when context is given")
        encoding, source = self.encoding, x if context is None else context
        cache = KVCache() if cache is None else cache
        q_pos = cache.next_positions(x.shape[1]) if q_pos is None else q_pos
        k_pos = q_pos if k_pos is None else k_pos
        q = self.split_heads(self.q_proj(x))  # (B, H, Lq, d)
        k = self.split_heads(self.k_proj(source))  # (B, n_kv_heads, Lk, d)
        v = self.split_heads(self.v_proj(source))  # (B, n_kv_heads, Lk, d)
        q_read = encoding.read(x)  # (B, H, Lq, n)
        k_read = q_read if source is x else encoding.read(source)  # (B, H, Lk, n)
        if len(cache) == 0:
            cache.rotated = fast.keeps_rotated(encoding, self.n_heads, self.n_kv_heads)
        if cache.rotated:
            q, k = fast.rotate(encoding, q, k, q_pos, k_pos)
            v = encoding.rotate_values(v, order_of(k_pos))
        seen = cache.with_more(k, v, k_pos, k_read)  # this call's keys behind the earlier ones
        settings: dict[str, Any] = {"causal": self.causal, "mask": mask, "rotated": cache.rotated}
        settings["reads"] = None if q_read is None else (q_read, seen.read)
        given = (q, seen.keys, seen.values, encoding, q_pos, seen.positions)
        if weights:
            output, shares = attend(*given, **settings)
        else:
            output = attend_fused(*given, **settings, memory=seen.memory)
        self.require_sense(q_pos, seen.positions, mask)
        output = self.out_proj(output.transpose(1, 2).flatten(2))  # (B, H, Lq, d) -> (B, Lq, D)
        cache.become(seen)  # a call that fails has added nothing
        return (output, shares) if weights else output

    def with_weights(self, x: Tensor, **inputs: Any) -> tuple[Tensor, Tensor]:
        """Do what `forward` does, arguments as there; return the weights (B, H, Lq, Lk) too."""
        output, weights = self(x, **inputs, weights=True)
        return output, weights

    def split_heads(self, x: Tensor) -> Tensor:
        """(B, L, heads * d) -> (B, heads, L, d)."""
        heads: Tensor = x.unflatten(-1, (-1, self.head_dim))
        return heads.transpose(1, 2)

    def require_sense(self, q_pos: AnyPositions, k_pos: AnyPositions, mask: Any) -> None:
        """Raise if a code would be left out, or the future shown to what is for the past only."""
        who = type(self.encoding).__name__
        past = self.causal or all_past(order_of(q_pos), order_of(k_pos))
        if self.encoding.uses("embed") and not self.embedded:
            raise ValueError(
                f"{who} adds to the input of a model: call encoding.embed(x, positions) once, "
                "before the first layer, and make the layers with embedded=True"
            )
        if self.encoding.past_only and not past and shows_later(q_pos, k_pos, mask):
            raise ValueError(
                f"{who} is for keys of the past: make the layer with causal=True, give it a mask "
                "that hides what comes later, or use a method for both sides"
            )
