"""The interface: the places where position can enter attention.

Attention by itself cannot see order (chapter 1). A position encoding repairs that by acting on
the input, on queries and keys, on the logits, or on the values; there is one hook for each. What
models of 2025 and 2026 do besides has hooks of its own, below, which do nothing by default.
"""

from __future__ import annotations

from typing import TypeAlias

from torch import Tensor, nn

from pe_lib.errors import require_bool, require_mask, require_qkv
from pe_lib.positions import Axes, Positions, order_of

Reads: TypeAlias = tuple[Tensor, Tensor]  # of the queries' and of the keys' tokens


class PositionEncoding(nn.Module):
    """Position information for attention. A method overrides only the hooks that it uses.

    In every hook B is the batch, H the number of heads, L a length, D the model width and d
    the width of a head. Positions are a `Run`, or a tensor of shape (L,), or (B, L) where they
    differ between the sequences of a batch (left padding, packed sequences).

    Attributes:
        scale: factor on the query-key product; None means 1/sqrt(d).
        rotates_once: True if a cache may keep keys as `rotate` leaves them: a key's rotation
            depends on its own position alone, and `bias` and `sink` read neither queries nor keys.
    """

    scale: float | None = None
    rotates_once: bool = False

    def embed(self, x: Tensor, positions: Positions) -> Tensor:
        """Add position to the input of the first layer: (B, L, D) -> (B, L, D)."""
        return x

    def rotate(
        self, q: Tensor, k: Tensor, q_pos: Positions, k_pos: Positions
    ) -> tuple[Tensor, Tensor]:
        """Rotate queries and keys by their positions: (B, H, L, d) each -> the same shapes."""
        return q, k

    def bias(
        self, q: Tensor, k: Tensor, q_pos: Positions, k_pos: Positions, scale: float
    ) -> Tensor | None:
        """Return what is added to the scaled logits, broadcastable to (B, H, Lq, Lk), or None.

        `q` and `k` come as projected, before `rotate`; a product with one of them must be
        multiplied by `scale`, the factor on the query-key product.
        """
        return None

    def values(self, weights: Tensor, q_pos: Positions, k_pos: Positions) -> Tensor | None:
        """Return what is added to each head's output, (B, H, Lq, Lk) -> (B, H, Lq, d), or None.

        It is added after `rotate_back`.
        """
        return None

    # --- since 2024: several numbers per token, the hidden state, the denominator, and back

    def rotate_axes(
        self, q: Tensor, k: Tensor, q_axes: Tensor, k_axes: Tensor
    ) -> tuple[Tensor, Tensor]:
        """Rotate q and k by positions of several numbers, (L, A) or (B, L, A): the same shapes.

        It takes the place of `rotate` where positions are `Axes`.
        """
        return q, k

    def read(self, x: Tensor) -> Tensor | None:
        """Read from the hidden states that attention gets, (B, L, D) -> (B, H, L, n), or None.

        What is read of a token is kept in a cache beside its key.
        """
        return None

    def read_bias(
        self, q_read: Tensor, k_read: Tensor, q_pos: Positions, k_pos: Positions
    ) -> Tensor | None:
        """Return what is added to the logits, (B, H, Lq, Lk), from what was read, or None."""
        return None

    def sink(self, q: Tensor, q_pos: Positions) -> Tensor | None:
        """Return one more logit for each query, broadcastable to (B, H, Lq, 1), or None.

        It takes its share of the softmax and has no value: weights then sum to less than one.
        """
        return None

    def rotate_values(self, v: Tensor, k_pos: Positions) -> Tensor:
        """Rotate values by their positions: (B, H, Lk, d) -> the same shape."""
        return v

    def rotate_back(self, output: Tensor, q_pos: Positions) -> Tensor:
        """Rotate each head's output by the query's position: (B, H, Lq, d) -> the same shape."""
        return output

    def uses(self, hook: str) -> bool:
        """Return whether this encoding acts through the hook of that name: it overrides it."""
        return getattr(type(self), hook) is not getattr(PositionEncoding, hook)

    def parts(self) -> list[PositionEncoding]:
        """Return the encodings that this one is made of: itself."""
        return [self]


class NoPosition(PositionEncoding):
    """No position information at all (NoPE)."""


def rotated_by(
    encoding: PositionEncoding,
    q: Tensor,
    k: Tensor,
    q_pos: Positions | Axes,
    k_pos: Positions | Axes,
) -> tuple[Tensor, Tensor]:
    """Return q and k as `rotate` leaves them, or `rotate_axes` where positions are `Axes`.

    Raises:
        ValueError: if only queries or only keys have axes, or no part of the encoding reads them.
    """
    if not isinstance(q_pos, Axes) and not isinstance(k_pos, Axes):
        return encoding.rotate(q, k, q_pos, k_pos)
    if not (isinstance(q_pos, Axes) and isinstance(k_pos, Axes)):
        raise ValueError("q_pos and k_pos must both be Axes, or neither")
    if not encoding.uses("rotate_axes"):
        raise ValueError(
            f"q_pos must be one number per token, which is all that {type(encoding).__name__} "
            f"reads, got Axes with {q_pos.count}"
        )
    for part in encoding.parts():
        if part.uses("rotate_axes"):
            q, k = part.rotate_axes(q, k, q_pos.numbers, k_pos.numbers)
        else:
            q, k = part.rotate(q, k, order_of(q_pos), order_of(k_pos))
    return q, k


def whole_bias(
    encoding: PositionEncoding,
    q: Tensor,
    k: Tensor,
    q_pos: Positions,
    k_pos: Positions,
    scale: float,
    reads: Reads | None,
) -> Tensor | None:
    """Return the sum of `bias` and `read_bias`, or None if there is neither.

    Raises:
        ValueError: if the encoding reads hidden states and `reads` is None.
    """
    bias = encoding.bias(q, k, q_pos, k_pos, scale)
    if reads is None and encoding.uses("read_bias"):
        raise ValueError(
            f"reads must be given: {type(encoding).__name__} needs what its `read` returns for the "
            "hidden states of queries and keys, as MultiHeadAttention passes it on"
        )
    if reads is not None and reads[0].shape[1] != q.shape[1]:
        raise ValueError(
            f"q must have {reads[0].shape[1]} heads, as {type(encoding).__name__} reads, "
            f"got {q.shape[1]}"
        )
    more = None if reads is None else encoding.read_bias(*reads, q_pos, k_pos)
    if more is None:
        return bias
    more = more.to(q.dtype)  # what is read may be more exact than q
    return more if bias is None else bias + more


def check_attention(
    encoding: object,
    q: Tensor,
    k: Tensor,
    v: Tensor | None = None,
    mask: object = None,
    **switches: object,
) -> None:
    """Raise unless what attention is given fits; see `require_qkv` and `require_mask`."""
    for name, value in switches.items():
        require_bool(name, value)
    if not isinstance(encoding, PositionEncoding):
        raise TypeError(f"encoding must be a PositionEncoding, got {encoding!r}")
    require_qkv(q, k, v)
    require_mask(mask, (*q.shape[:3], k.shape[2]))


def default_scale(encoding: PositionEncoding, head_dim: int) -> float:
    """Return the factor on the query-key product: the encoding's own, or 1/sqrt(head_dim)."""
    return head_dim**-0.5 if encoding.scale is None else encoding.scale
