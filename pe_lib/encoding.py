"""Where position can enter attention: the hooks of a position encoding, and relative positions.

Attention by itself cannot see order (chapter 1). A position encoding repairs that by acting on
the input, on queries and keys, on the logits, or on the values; there is one hook for each. What
models of 2025 and 2026 do besides has hooks of its own, which do nothing by default.

B is the batch, H the number of heads, L a length, D the model width and d the width of a head.

Positions are tensors of integers (int64) or of real numbers (float32 or float64): (L,), or (B, L)
where the sequences of a batch differ (left padding, packed sequences). A token with several
numbers, such as a row and a column, has them in the rows of a tensor (1 + A, B, L), whose first row
is the order of the tokens: what comes before what. Transformers' Qwen2.5-VL has the same shape.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn


class PositionEncoding(nn.Module):
    """Position information for attention. A method overrides only the hooks that it uses.

    A method that sets `n_heads`, `head_dim` or `d_model` can be used in layers of that size only.

    Attributes:
        scale: factor on the query-key product; None means 1/sqrt(d). A class whose `rotate` changes
            the width states it.
        causal_only: it says nothing sensible about keys that come after the query; a layer that
            shows it such keys raises, except in a graph (`torch.compile`), which is not checked.
        cacheable_rotation: True if a cache may keep keys as `rotate` leaves them: a key's rotation
            depends on its own position alone, and `bias` and `sink` read neither queries nor keys.
        is_linear: False if `rotate` is no linear map; in a `Compose` it must then come first.
        scales_pairs: True if `rotate` also scales pairs by their position; in a `Compose` it must
            then come last, where no other rotation mixes pairs of different sizes.
    """

    scale: float | None = None
    causal_only: bool = False
    cacheable_rotation: bool = False
    is_linear: bool = True
    scales_pairs: bool = False

    def embed(self, x: Tensor, positions: Tensor) -> Tensor:
        """Add position to the input of the first layer: (B, L, D) -> (B, L, D)."""
        return x

    def rotate(self, q: Tensor, k: Tensor, q_pos: Tensor, k_pos: Tensor) -> tuple[Tensor, Tensor]:
        """Rotate q (B, H, Lq, d) and k (B, H, Lk, d) by their positions; the width may change.

        Keys may have fewer heads than queries, unless the class has `n_heads`.
        """
        return q, k

    def bias(
        self, q: Tensor, k: Tensor, q_pos: Tensor, k_pos: Tensor, scale: float
    ) -> Tensor | None:
        """Return what is added to the scaled logits, broadcastable to (B, H, Lq, Lk), or None.

        q (B, H, Lq, d) and k (B, H, Lk, d) come as projected, before `rotate`; a product with one
        of them must be multiplied by `scale`, the factor on the query-key product.
        """
        return None

    def consecutive_bias(
        self, q: Tensor, k: Tensor, q_start: int, k_start: int, scale: float
    ) -> Tensor | None:
        """Return `bias` between consecutive positions, which begin at two ints.

        Lq + Lk - 1 distances occur between them: a method may have less to compute.
        """
        return self.bias(q, k, consecutive(q_start, q), consecutive(k_start, k), scale)

    def values(self, weights: Tensor, q_pos: Tensor, k_pos: Tensor) -> Tensor | None:
        """Return what is added to each head's output, (B, H, Lq, Lk) -> (B, H, Lq, d), or None.

        It is added after `rotate_back`.
        """
        return None

    # --- since 2024: several numbers per token, the hidden state, the denominator, and back

    def rotate_axes(
        self, q: Tensor, k: Tensor, q_axes: Tensor, k_axes: Tensor
    ) -> tuple[Tensor, Tensor]:
        """Rotate q and k by positions of several numbers, (L, A) or (B, L, A): the same shapes.

        Attention calls it instead of `rotate` where tokens have several numbers. All other hooks
        then get the first row of the positions, the order.
        """
        return q, k

    def project_hidden(self, x: Tensor) -> Tensor | None:
        """Project the hidden states that attention gets, (B, L, D) -> (B, H, L, n), or None.

        What it returns for a token is kept in a cache beside its key.
        """
        return None

    def hidden_bias(
        self, q_hidden: Tensor, k_hidden: Tensor, q_pos: Tensor, k_pos: Tensor
    ) -> Tensor | None:
        """Return what is added to the logits, (B, H, Lq, Lk), from these projections, or None."""
        return None

    def sink(self, q: Tensor, q_pos: Tensor) -> Tensor | None:
        """Return one more logit for each query, broadcastable to (B, H, Lq, 1), or None.

        It takes its share of the softmax and has no value: weights then sum to less than one.
        """
        return None

    def rotate_values(self, v: Tensor, k_pos: Tensor) -> Tensor:
        """Rotate values by their positions: (B, H, Lk, d) -> the same shape."""
        return v

    def rotate_back(self, output: Tensor, q_pos: Tensor) -> Tensor:
        """Rotate each head's output by the query's position: (B, H, Lq, d) -> the same shape."""
        return output

    # --- what attention asks

    def uses(self, hook: str) -> bool:
        """Return whether this encoding acts through the hook of that name: it overrides it."""
        return getattr(type(self), hook) is not getattr(PositionEncoding, hook)

    def parts(self) -> list[PositionEncoding]:
        """Return the encodings that this one is made of: itself."""
        return [self]

    def __init_subclass__(cls, **options: Any) -> None:
        """Reset what a parent says of a hook that this class overrides."""
        super().__init_subclass__(**options)
        parents = [parent for parent in cls.__bases__ if issubclass(parent, PositionEncoding)]

        def writes(*names: str) -> bool:
            return any(
                getattr(cls, name, None) is not getattr(parent, name, None)
                for name in names
                for parent in parents
            )

        if writes("bias") and "consecutive_bias" not in vars(cls):
            setattr(cls, "consecutive_bias", PositionEncoding.consecutive_bias)  # noqa: B010
        if writes(*ROTATE_OR_SCORE) and "cacheable_rotation" not in vars(cls):
            cls.cacheable_rotation = False


HOOKS = (
    *("embed", "rotate", "bias", "values"),
    *("rotate_axes", "project_hidden", "hidden_bias", "sink", "rotate_values", "rotate_back"),
)
ROTATE_OR_SCORE = ("rotate", "rotate_axes", "rotate_values", "bias", "sink", "angles", "rotated")


class NoPosition(PositionEncoding):
    """No position information at all (NoPE)."""

    cacheable_rotation = True


# --- positions ------------------------------------------------------------------------------------


def as_positions(positions: Tensor | int, x: Tensor) -> Tensor:
    """Return the positions of the tokens of x (..., L, d) as a tensor on its device.

    Args:
        positions: (L,), (B, L) or (1 + A, B, L); or an int, the first of consecutive ones.
        x: what has these positions.

    Returns:
        int64, or float32 or float64 as given.

    Raises:
        ValueError: if positions do not have the length or the batch of x: a single one would be
            broadcast to all.
        TypeError: for half precision, which has the same number for neighbours from 256 or 2048 on.
    """
    if isinstance(positions, (int, torch.SymInt)):
        return consecutive(positions, x)
    positions = torch.as_tensor(positions, device=x.device)
    fits = positions.ndim in (1, 2, 3) and positions.shape[-1] == x.shape[-2]
    if not fits or (positions.ndim > 1 and positions.shape[-2] not in (1, x.shape[0])):
        raise ValueError(
            f"positions must be one for each of {x.shape[-2]} tokens, (L,) or (B, L), for x of "
            f"shape {tuple(x.shape)}, got {tuple(positions.shape)}"
        )
    if positions.dtype in (torch.bool, torch.float16, torch.bfloat16):
        raise TypeError(f"positions must be integers, float32 or float64, got {positions.dtype}")
    return positions if positions.is_floating_point() else positions.long()


def consecutive(start: int, x: Tensor) -> Tensor:
    """Return the positions start, start + 1, ... of the tokens of x (..., L, d): (L,)."""
    return torch.arange(start, start + x.shape[-2], device=x.device)


def order_of(positions: Tensor) -> Tensor:
    """Return one number per token, (L,) or (B, L): of several, the first row."""
    return positions[0] if positions.ndim == 3 else positions


def axes_of(positions: Tensor) -> Tensor:
    """Return the numbers of each token, (1 + A, B, L) -> (B, L, A)."""
    return positions[1:].movedim(0, -1)


def rotate(
    encoding: PositionEncoding, q: Tensor, k: Tensor, q_pos: Tensor, k_pos: Tensor
) -> tuple[Tensor, Tensor]:
    """Return q and k as `rotate` leaves them, or `rotate_axes` where tokens have several numbers.

    Parts that read one number then read the order.
    """
    if q_pos.ndim < 3 and k_pos.ndim < 3:
        return encoding.rotate(q, k, q_pos, k_pos)
    if q_pos.ndim != k_pos.ndim or not encoding.uses("rotate_axes"):
        raise ValueError(
            f"{type(encoding).__name__}: q_pos and k_pos must both have several numbers per token, "
            "where a part reads them, or both one"
        )
    for part in encoding.parts():
        if part.uses("rotate_axes"):
            q, k = part.rotate_axes(q, k, axes_of(q_pos), axes_of(k_pos))
        else:
            q, k = part.rotate(q, k, order_of(q_pos), order_of(k_pos))
    return q, k


def relative_position(q_pos: Tensor, k_pos: Tensor) -> Tensor:
    """Return key position minus query position for every pair.

    Args:
        q_pos: positions of the queries, (Lq,) or (B, Lq).
        k_pos: positions of the keys, (Lk,) or (B, Lk).

    Returns:
        (Lq, Lk), or (B, Lq, Lk) if either has a batch axis; negative where the key is left.
    """
    return torch.as_tensor(k_pos).unsqueeze(-2) - torch.as_tensor(q_pos).unsqueeze(-1)


def per_head(pairwise: Tensor) -> Tensor:
    """Give a (Lq, Lk) or (B, Lq, Lk) tensor an axis for the heads: (..., 1, Lq, Lk)."""
    return pairwise.unsqueeze(-3)


def to_float64(x: Tensor) -> Tensor:
    """Return x in float64, on the processor where its device has none (Apple's GPUs)."""
    return (x.cpu() if x.device.type == "mps" else x).double()
