"""What scalar biases share: one number per head for each relative position.

A bias that depends on key minus query alone has only Lq + Lk - 1 different values per head
when positions are consecutive. The (Lq, Lk) matrix is then a Toeplitz matrix; with the queries
in reverse order it is a Hankel matrix, and that one is a strided view of the vector.
"""

from __future__ import annotations

import torch
from torch import Tensor

from pe_lib.attention import PositionEncoding, is_consecutive, relative_position


def distances(q_pos: Tensor, k_pos: Tensor) -> Tensor:
    """Return every relative position between two runs of consecutive positions, rising.

    Args:
        q_pos: (Lq,), each one more than the one before.
        k_pos: (Lk,), likewise.

    Returns:
        (Lq + Lk - 1,): from first key minus last query up to last key minus first query.
    """
    steps = torch.arange(len(q_pos) + len(k_pos) - 1, device=k_pos.device)
    return k_pos[0] - q_pos[-1] + steps


def hankel(vector: Tensor, n_keys: int) -> Tensor:
    """See one value per distance as a matrix whose first row is the last query: no copy.

    Args:
        vector: (..., Lq + Lk - 1), in the order of `distances`.
        n_keys: Lk.

    Returns:
        (..., Lq, Lk): entry (i, j) is vector[i + j] and belongs to query Lq - 1 - i, key j.
    """
    return vector.unfold(-1, n_keys, 1)


def toeplitz(vector: Tensor, n_keys: int) -> Tensor:
    """Return `hankel` with the queries in their own order, (..., Lq, Lk): this is a copy."""
    return hankel(vector, n_keys).flip(-2)


def for_each_head(values: Tensor, relative: Tensor) -> Tensor:
    """Give values (H,) an axis for each axis of `relative`, in float32 or better: (H, 1, ...)."""
    precise = torch.promote_types(values.dtype, torch.float32)
    return values.to(precise).view(-1, *[1] * relative.ndim)


class RelativeBias(PositionEncoding):
    """A bias per head that depends on the relative position alone.

    A subclass writes `of_distance`; this class brings the values into the matrix.
    """

    def of_distance(self, relative: Tensor) -> Tensor:
        """Return the bias for relative positions (key - query): (...) -> (H, ...)."""
        raise NotImplementedError

    def check_heads(self, values: Tensor, q: Tensor) -> Tensor:
        """Return `values` (H, ...) in the dtype of q if q (B, H, Lq, d) has as many heads."""
        if len(values) != q.shape[1]:
            raise ValueError(f"q must have {len(values)} heads for this bias, got {q.shape[1]}")
        return values.to(q.dtype)

    def bias(self, q: Tensor, k: Tensor, q_pos: Tensor, k_pos: Tensor) -> Tensor:
        """Return (H, Lq, Lk), or (B, H, Lq, Lk) for positions with a batch axis."""
        if is_consecutive(q_pos) and is_consecutive(k_pos):
            vector = self.of_distance(distances(q_pos, k_pos))  # (H, Lq + Lk - 1)
            return toeplitz(self.check_heads(vector, q), len(k_pos))
        dense = self.of_distance(relative_position(q_pos, k_pos))  # (H, Lq, Lk) or (H, B, Lq, Lk)
        return self.check_heads(dense, q).movedim(0, -3)

    def flipped_bias(
        self, q: Tensor, k: Tensor, q_pos: Tensor, k_pos: Tensor, causal: bool
    ) -> Tensor | None:
        """Return the Hankel view (H, Lq, Lk) of Lq + Lk - 1 values per head, mask included."""
        if not (is_consecutive(q_pos) and is_consecutive(k_pos)):
            return None
        relative = distances(q_pos, k_pos)
        vector = self.check_heads(self.of_distance(relative), q)  # (H, Lq + Lk - 1)
        if causal:
            vector = vector.masked_fill(relative > 0, torch.finfo(q.dtype).min)
        return hankel(vector, len(k_pos))
