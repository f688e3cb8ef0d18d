"""Attention with a place for position: the definition.

    output_i = sum over j of softmax_j(scale <rotated q_i, rotated k_j> + bias_ij) v_j

The encoding's hooks supply the rotation, the bias and what is added to the values. The module and
its cache are in `pe_lib.attention`; `pe_lib.fast`, which this file does without, has the same
numbers for less.
"""

import math

import torch
from torch import Tensor

from pe_lib.arguments import Booleans, broadcasts, checked
from pe_lib.encoding import PositionEncoding, Reads, bias_read, default_scale, rotate_by
from pe_lib.positions import AnyPositions, allowed_pairs, order_of

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
    k, order = for_queries(k, q), (order_of(q_pos), order_of(k_pos))
    scale = default_scale(encoding, q.shape[-1])
    biases = encoding.bias(q, k, *order, scale), bias_read(encoding, q, reads, *order)
    if not rotated:
        q, k = rotate_by(encoding, q, k, q_pos, k_pos)
    logits = q @ k.mT * scale  # (B, H, Lq, Lk)
    for bias in biases:
        logits = logits if bias is None else logits + bias
    return logits


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
        mask: bool, (Lq, Lk), or (B, H, Lq, Lk) where an axis may be 1; False hides a key.
            Padding, (B, Lk), is mask[:, None, None]. A query with no key left gets zeros.
        rotated: q, k and v have been rotated before, see `PositionEncoding.rotates_once`.
        reads: as in `attention_logits`.

    Returns:
        output (B, H, Lq, d) and weights (B, H, Lq, Lk), whose rows sum to one: to less where the
        encoding has a sink, to zero where no key is seen.
    """
    logits = attention_logits(q, k, encoding, q_pos, k_pos, rotated=rotated, reads=reads)
    require_mask(mask, tuple(logits.shape))
    q_pos, k_pos = order_of(q_pos), order_of(k_pos)
    allowed = allowed_pairs(q_pos, k_pos, causal, mask, q.device)
    if allowed is not None:
        logits = logits.masked_fill(~allowed, -math.inf)
    weights = softmax(logits, encoding.sink(q, q_pos))
    if not rotated:
        v = encoding.rotate_values(v, k_pos)
    output = weights @ for_queries(v, q)  # (B, H, Lq, d)
    extra = encoding.values(weights, q_pos, k_pos)
    output = encoding.rotate_back(output, q_pos)
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


def for_queries(x: Tensor, q: Tensor) -> Tensor:
    """Repeat the heads of keys or values until every head of queries has its own."""
    return x.repeat_interleave(q.shape[1] // x.shape[1], dim=1) if x.shape[1] != q.shape[1] else x


def require_heads(q: Tensor, k: Tensor) -> None:
    """Raise unless there is a key, and each of its heads serves as many of the queries'."""
    if k.shape[2] == 0 or k.shape[1] == 0 or q.shape[1] % k.shape[1]:
        raise ValueError(
            "k must have one key at least, and heads that divide those of q, "
            f"got {tuple(k.shape)} for q of shape {tuple(q.shape)}"
        )


def require_mask(mask: Tensor | None, wanted: tuple[int, ...]) -> None:
    """Raise unless a mask of two or four axes broadcasts to (B, H, Lq, Lk)."""
    if mask is not None and not (mask.ndim in (2, 4) and broadcasts(mask, wanted)):
        raise ValueError(
            f"mask must have shape (Lq, Lk) or (B, H, Lq, Lk) = {wanted}, where an axis may be 1, "
            f"got {tuple(mask.shape)}"
        )
