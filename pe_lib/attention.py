"""Multi-head attention, and the four places where position can enter it.

Attention by itself cannot see order (chapter 1). A position encoding repairs that by acting
on the input, on queries and keys, on the logits, or on the values; `PositionEncoding` has one
hook for each, and `attend` calls them.
"""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from pe_lib.errors import require_floating, require_multiple, require_positions, require_positive


class PositionEncoding(nn.Module):
    """Position information for attention. A method overrides only the hooks that it uses.

    In every hook B is the batch, H the number of heads, L a length, D the model width and d
    the width of a head. Positions are tensors of shape (L,), or (B, L) where they differ
    between the sequences of a batch (left padding, packed sequences).

    Attributes:
        scale: factor on the query-key product; None means 1/sqrt(d).
        uses_values: True if `values` returns something, so that weights must be computed.
    """

    scale: float | None = None
    uses_values: bool = False

    def embed(self, x: Tensor, positions: Tensor) -> Tensor:
        """Add position to the input: (B, L, D) -> (B, L, D)."""
        return x

    def rotate(self, q: Tensor, k: Tensor, q_pos: Tensor, k_pos: Tensor) -> tuple[Tensor, Tensor]:
        """Turn queries and keys by their positions: (B, H, L, d) each -> the same shapes."""
        return q, k

    def bias(self, q: Tensor, k: Tensor, q_pos: Tensor, k_pos: Tensor) -> Tensor | None:
        """Return what is added to the scaled logits, broadcastable to (B, H, Lq, Lk), or None.

        `q` and `k` come as projected, before `rotate`.
        """
        return None

    def flipped_bias(
        self, q: Tensor, k: Tensor, q_pos: Tensor, k_pos: Tensor, causal: bool
    ) -> Tensor | None:
        """Return `bias` with the queries in reverse order and the causal mask inside, or None.

        Optional: a shortcut for a bias that takes less memory this way round. (H, Lq, Lk);
        row i belongs to query Lq - 1 - i. With None, `bias` is asked.
        """
        return None

    def values(self, weights: Tensor, q_pos: Tensor, k_pos: Tensor) -> Tensor | None:
        """Return what is added to each head's output, (B, H, Lq, Lk) -> (B, H, Lq, d), or None."""
        return None


class NoPosition(PositionEncoding):
    """No position information at all (NoPE)."""


def relative_position(q_pos: Tensor, k_pos: Tensor) -> Tensor:
    """Return key position minus query position for every pair.

    Args:
        q_pos: positions of the queries, (Lq,) or (B, Lq).
        k_pos: positions of the keys, (Lk,) or (B, Lk).

    Returns:
        (Lq, Lk), or (B, Lq, Lk) if either has a batch axis; negative where the key is left.
    """
    return k_pos.unsqueeze(-2) - q_pos.unsqueeze(-1)


def per_head(pairwise: Tensor) -> Tensor:
    """Give a (Lq, Lk) or (B, Lq, Lk) tensor an axis for the heads: (..., 1, Lq, Lk)."""
    return pairwise.unsqueeze(-3)


def is_consecutive(positions: Tensor) -> bool:
    """Return whether positions have no batch axis and each is one more than the one before."""
    return positions.ndim == 1 and torch.equal(positions[1:], positions[:-1] + 1)


def default_scale(encoding: PositionEncoding, head_dim: int) -> float:
    """Return the factor on the query-key product: the encoding's own, or 1/sqrt(head_dim)."""
    return head_dim**-0.5 if encoding.scale is None else encoding.scale


def attention_logits(
    q: Tensor, k: Tensor, encoding: PositionEncoding, q_pos: Tensor, k_pos: Tensor
) -> Tensor:
    """Return the scores before the mask and the softmax.

    Args:
        q: queries, (B, H, Lq, d).
        k: keys, (B, H, Lk, d).
        encoding: supplies `rotate`, `bias` and the scale.
        q_pos: (Lq,) or (B, Lq).
        k_pos: (Lk,) or (B, Lk).

    Returns:
        (B, H, Lq, Lk): scale * <rotated q, rotated k> + bias.

    Source: Vaswani et al. 2017, equation 1, with a place for position.
    """
    bias = encoding.bias(q, k, q_pos, k_pos)
    turned_q, turned_k = encoding.rotate(q, k, q_pos, k_pos)
    logits = turned_q @ turned_k.transpose(-2, -1) * default_scale(encoding, q.shape[-1])
    return logits if bias is None else logits + bias  # (B, H, Lq, Lk)


def allowed_pairs(
    q_pos: Tensor, k_pos: Tensor, causal: bool, mask: Tensor | None = None
) -> Tensor | None:
    """Return which query may look at which key, or None if every one may.

    Args:
        q_pos: (Lq,) or (B, Lq).
        k_pos: (Lk,) or (B, Lk).
        causal: hide keys whose position is greater than the query's.
        mask: bool, broadcastable to (B, H, Lq, Lk); False hides a key.

    Returns:
        bool, broadcastable to (B, H, Lq, Lk).

    Raises:
        TypeError: if mask is not a bool tensor.
    """
    if mask is not None and mask.dtype != torch.bool:
        raise TypeError(f"mask must have dtype torch.bool (True: may look), got {mask.dtype}")
    if not causal:
        return mask
    past = per_head(relative_position(q_pos, k_pos) <= 0)
    return past if mask is None else past & mask


def attend(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    encoding: PositionEncoding,
    q_pos: Tensor,
    k_pos: Tensor,
    *,
    causal: bool = False,
    mask: Tensor | None = None,
) -> tuple[Tensor, Tensor]:
    """Attend, and return the weights too: the definition, step by step.

    Args:
        q: queries, (B, H, Lq, d).
        k: keys, (B, H, Lk, d).
        v: values, (B, H, Lk, d).
        encoding: the position encoding whose hooks are called.
        q_pos: positions of the queries, (Lq,) or (B, Lq).
        k_pos: positions of the keys, (Lk,) or (B, Lk).
        causal: hide keys whose position is greater than the query's.
        mask: bool, broadcastable to (B, H, Lq, Lk); False hides a key. A query with no key
            left gets uniform weights.

    Returns:
        output (B, H, Lq, d) and weights (B, H, Lq, Lk), whose rows sum to one.
    """
    logits = attention_logits(q, k, encoding, q_pos, k_pos)
    allowed = allowed_pairs(q_pos, k_pos, causal, mask)
    if allowed is not None:
        logits = logits.masked_fill(~allowed, torch.finfo(logits.dtype).min)
    weights = logits.softmax(dim=-1)
    output = weights @ v  # (B, H, Lq, d)
    extra = encoding.values(weights, q_pos, k_pos) if encoding.uses_values else None
    return (output if extra is None else output + extra), weights


def attend_fused(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    encoding: PositionEncoding,
    q_pos: Tensor,
    k_pos: Tensor,
    *,
    causal: bool = False,
    mask: Tensor | None = None,
) -> Tensor:
    """Return the output of `attend` through PyTorch's fused kernel, without the weights.

    Arguments as in `attend`. Not for an encoding with `uses_values`.
    """
    turned_q, turned_k = encoding.rotate(q, k, q_pos, k_pos)
    scale = default_scale(encoding, q.shape[-1])
    view = encoding.flipped_bias(q, k, q_pos, k_pos, causal) if mask is None else None
    if view is not None:
        flipped = fused(turned_q.flip(2), turned_k, v, view, scale)
        return flipped.flip(2)  # (B, H, Lq, d)
    bias = encoding.bias(q, k, q_pos, k_pos)
    if bias is None and mask is None and causal and is_own_past(q_pos, k_pos):
        return F.scaled_dot_product_attention(turned_q, turned_k, v, is_causal=True, scale=scale)
    allowed = allowed_pairs(q_pos, k_pos, causal, mask)
    if allowed is not None:
        # A finite number, not -inf: a row with no key left must not become NaN.
        bias = q.new_zeros(()) if bias is None else bias
        bias = bias.masked_fill(~allowed, torch.finfo(bias.dtype).min)
    return fused(turned_q, turned_k, v, bias, scale)


def is_own_past(q_pos: Tensor, k_pos: Tensor) -> bool:
    """Return whether query i may see keys 0 to i under a causal mask: the same positions."""
    return is_consecutive(q_pos) and torch.equal(q_pos, k_pos)


def fused(q: Tensor, k: Tensor, v: Tensor, bias: Tensor | None, scale: float) -> Tensor:
    """Call PyTorch's kernel; `bias` is broadcastable to (B, H, Lq, Lk)."""
    if bias is not None:
        # Four axes: given three, PyTorch gets the same result without its fused kernel.
        bias = bias[(None,) * (4 - bias.ndim)]
    return F.scaled_dot_product_attention(q, k, v, attn_mask=bias, scale=scale)


class KVCache:
    """The keys, values and positions that earlier calls have produced.

    Keys are kept as projected, before `rotate`: a bias needs them so, and an encoding whose
    angles depend on the length (dynamic NTK) must turn all of them anew.
    """

    def __init__(self) -> None:
        """Start empty."""
        self.keys: Tensor | None = None  # (B, H, L, d)
        self.values: Tensor | None = None  # (B, H, L, d)
        self.positions: Tensor | None = None  # (L,) or (B, L)

    def __len__(self) -> int:
        """Return how many keys are held."""
        return 0 if self.keys is None else self.keys.shape[2]

    def append(self, k: Tensor, v: Tensor, positions: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Add new keys and values, and return all of them with their positions.

        Raises:
            ValueError: if only one of earlier and new positions has a batch axis.
        """
        if self.keys is None or self.values is None or self.positions is None:
            self.keys, self.values, self.positions = k, v, positions
        else:
            if positions.ndim != self.positions.ndim:
                raise ValueError(
                    "positions must keep the form of the cached ones, "
                    f"{tuple(self.positions.shape)}, got {tuple(positions.shape)}"
                )
            self.keys = torch.cat([self.keys, k], dim=2)
            self.values = torch.cat([self.values, v], dim=2)
            self.positions = torch.cat([self.positions, positions], dim=-1)
        return self.keys, self.values, self.positions


class MultiHeadAttention(nn.Module):
    """Multi-head attention with one position encoding.

    Args:
        d_model: width D of input and output.
        n_heads: number of heads H; must divide d_model.
        encoding: the position encoding; `NoPosition()` if None.
        causal: hide keys whose position is greater than the query's.

    Raises:
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
    ) -> None:
        """Create the four projections, without biases."""
        super().__init__()
        require_positive("n_heads", n_heads)
        require_multiple("d_model", d_model, n_heads, "n_heads must divide it")
        self.d_model, self.n_heads, self.causal = d_model, n_heads, causal
        self.encoding = NoPosition() if encoding is None else encoding
        self.q_proj = nn.Linear(d_model, d_model, bias=False)
        self.k_proj = nn.Linear(d_model, d_model, bias=False)
        self.v_proj = nn.Linear(d_model, d_model, bias=False)
        self.out_proj = nn.Linear(d_model, d_model, bias=False)

    def split_heads(self, x: Tensor) -> Tensor:
        """(B, L, D) -> (B, H, L, d)."""
        return x.reshape(*x.shape[:2], self.n_heads, -1).transpose(1, 2)

    def check_input(self, name: str, x: Tensor) -> None:
        """Raise unless x is a floating-point tensor (B, L >= 1, D)."""
        require_floating(name, x)
        if x.ndim != 3 or x.shape[1] == 0 or x.shape[2] != self.d_model:
            raise ValueError(
                f"{name} must have shape (batch, length >= 1, {self.d_model}), got {tuple(x.shape)}"
            )

    def project(
        self,
        x: Tensor,
        context: Tensor | None,
        q_pos: Tensor | None,
        k_pos: Tensor | None,
        cache: KVCache | None,
    ) -> tuple[Tensor, Tensor, Tensor, Tensor, Tensor]:
        """Return queries, keys, values, query positions and key positions, all checked."""
        self.check_input("x", x)
        length = x.shape[1]
        if context is None:
            start = 0 if cache is None else len(cache)
            q_pos = torch.arange(start, start + length, device=x.device) if q_pos is None else q_pos
            k_pos = q_pos if k_pos is None else k_pos
            context = x
        elif q_pos is None or k_pos is None:
            raise ValueError("q_pos and k_pos must be given when context is given")
        self.check_input("context", context)
        if len(context) != len(x):
            raise ValueError(f"context must have the batch of x, {len(x)}, got {len(context)}")
        q_pos = require_positions("q_pos", q_pos, length, len(x))
        k_pos = require_positions("k_pos", k_pos, context.shape[1], len(x))
        q = self.split_heads(self.q_proj(x))  # (B, H, Lq, d)
        k = self.split_heads(self.k_proj(context))  # (B, H, Lk, d)
        v = self.split_heads(self.v_proj(context))  # (B, H, Lk, d)
        if cache is not None:
            k, v, k_pos = cache.append(k, v, k_pos)
        return q, k, v, q_pos, k_pos

    def merge_heads(self, heads: Tensor) -> Tensor:
        """(B, H, L, d) -> (B, L, D), through the output projection."""
        merged: Tensor = self.out_proj(heads.transpose(1, 2).flatten(2))
        return merged

    def forward(
        self,
        x: Tensor,
        *,
        context: Tensor | None = None,
        q_pos: Tensor | None = None,
        k_pos: Tensor | None = None,
        mask: Tensor | None = None,
        cache: KVCache | None = None,
    ) -> Tensor:
        """Attend from `x` to `context` (to itself if None).

        Args:
            x: (B, Lq, D).
            context: (B, Lk, D), with its `k_pos`: a longer past (a memory), or another sequence.
            q_pos: positions of x, (Lq,) or (B, Lq); 0, 1, ... after the cache if None.
            k_pos: positions of the keys, (Lk,) or (B, Lk); those of x if None.
            mask: bool, broadcastable to (B, H, Lq, Lk); False hides a key.
            cache: earlier keys and values; this call's are added to it.

        Returns:
            (B, Lq, D).

        Raises:
            TypeError: if x is not a floating-point tensor.
            ValueError: if a shape does not fit.
        """
        q, k, v, q_pos, k_pos = self.project(x, context, q_pos, k_pos, cache)
        if self.encoding.uses_values:
            heads, _ = attend(q, k, v, self.encoding, q_pos, k_pos, causal=self.causal, mask=mask)
        else:
            heads = attend_fused(
                q, k, v, self.encoding, q_pos, k_pos, causal=self.causal, mask=mask
            )
        return self.merge_heads(heads)

    def with_weights(
        self,
        x: Tensor,
        *,
        context: Tensor | None = None,
        q_pos: Tensor | None = None,
        k_pos: Tensor | None = None,
        mask: Tensor | None = None,
        cache: KVCache | None = None,
    ) -> tuple[Tensor, Tensor]:
        """Do what `forward` does, and return the weights (B, H, Lq, Lk) too."""
        q, k, v, q_pos, k_pos = self.project(x, context, q_pos, k_pos, cache)
        heads, weights = attend(q, k, v, self.encoding, q_pos, k_pos, causal=self.causal, mask=mask)
        return self.merge_heads(heads), weights
