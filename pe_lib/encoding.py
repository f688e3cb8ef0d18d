"""The interface: the places where position can enter attention.

Attention by itself cannot see order (chapter 1). A position encoding repairs that by acting on
the input, on queries and keys, on the logits, or on the values; there is one hook for each.
"""

from __future__ import annotations

from torch import Tensor, nn

from pe_lib.errors import require_mask, require_qkv
from pe_lib.positions import Positions


class PositionEncoding(nn.Module):
    """Position information for attention. A method overrides only the hooks that it uses.

    In every hook B is the batch, H the number of heads, L a length, D the model width and d
    the width of a head. Positions are a `Run`, or a tensor of shape (L,), or (B, L) where they
    differ between the sequences of a batch (left padding, packed sequences).

    Attributes:
        scale: factor on the query-key product; None means 1/sqrt(d).
        rotates_once: True if a cache may keep keys as `rotate` leaves them: a key's rotation
            depends on its own position alone, and `bias` reads neither queries nor keys.
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
        """Return what is added to each head's output, (B, H, Lq, Lk) -> (B, H, Lq, d), or None."""
        return None

    def uses(self, hook: str) -> bool:
        """Return whether this encoding acts through the hook of that name: it overrides it."""
        return getattr(type(self), hook) is not getattr(PositionEncoding, hook)

    def parts(self) -> list[PositionEncoding]:
        """Return the encodings that this one is made of: itself."""
        return [self]


class NoPosition(PositionEncoding):
    """No position information at all (NoPE)."""


def check_attention(
    encoding: object, q: Tensor, k: Tensor, v: Tensor | None = None, mask: object = None
) -> None:
    """Raise unless what attention is given fits; see `require_qkv` and `require_mask`."""
    if not isinstance(encoding, PositionEncoding):
        raise TypeError(f"encoding must be a PositionEncoding, got {encoding!r}")
    require_qkv(q, k, v)
    require_mask(mask, (*q.shape[:3], k.shape[2]))


def default_scale(encoding: PositionEncoding, head_dim: int) -> float:
    """Return the factor on the query-key product: the encoding's own, or 1/sqrt(head_dim)."""
    return head_dim**-0.5 if encoding.scale is None else encoding.scale
