"""What relative methods share: biases of distance alone, and products with a table of distances."""

from __future__ import annotations

import torch
from torch import Tensor

from pe_lib.encoding import PositionEncoding, per_head, relative_position


class RelativeBias(PositionEncoding):
    """A bias per head that depends on the relative position alone.

    A subclass writes `of_distance`; this class brings the values into the matrix. Between
    consecutive positions it is asked once for each distance.
    """

    cacheable_rotation = True

    def of_distance(self, relative: Tensor) -> Tensor:
        """Return the bias for relative positions (key - query): (...) -> (H, ...)."""
        raise NotImplementedError

    def bias(self, q: Tensor, k: Tensor, q_pos: Tensor, k_pos: Tensor, scale: float) -> Tensor:
        """Return (H, Lq, Lk), or (B, H, Lq, Lk) for positions with a batch axis."""
        return self.for_heads(q, relative_position(q_pos, k_pos)).movedim(0, -3)

    def consecutive_bias(
        self, q: Tensor, k: Tensor, q_start: int, k_start: int, scale: float
    ) -> Tensor:
        """Return (H, Lq, Lk), from one number per distance."""
        vector = self.for_heads(q, distances(q, k, q_start, k_start))
        return vector[:, number_of_distance(q, k)]

    def for_heads(self, q: Tensor, relative: Tensor) -> Tensor:
        """Return `of_distance` in the dtype of q (B, H, Lq, d), which must have a row per head."""
        values = self.of_distance(relative)
        if values.shape != (q.shape[1], *relative.shape):
            raise ValueError(
                f"{type(self).__name__}: of_distance must return (n_heads, ...) = "
                f"{(q.shape[1], *relative.shape)}, got {tuple(values.shape)}"
            )
        return values.to(q.dtype)


def distances(q: Tensor, k: Tensor, q_start: int, k_start: int) -> Tensor:
    """Return every relative position between consecutive positions, rising: (Lq + Lk - 1,).

    Args:
        q: (..., Lq, d), at q_start, q_start + 1, ...
        k: (..., Lk, d), at k_start, k_start + 1, ...
        q_start: position of the first query.
        k_start: position of the first key.
    """
    first, n_queries, n_keys = k_start - q_start, q.shape[-2], k.shape[-2]
    return torch.arange(first - n_queries + 1, first + n_keys, device=q.device)


def number_of_distance(q: Tensor, k: Tensor) -> Tensor:
    """Return where in `distances` each pair finds its own, (Lq, Lk): at Lq - 1 - i + j."""
    last_query, n_keys = q.shape[-2] - 1, k.shape[-2]
    queries = torch.arange(last_query, -1, -1, device=q.device)
    return queries.unsqueeze(-1) + torch.arange(n_keys, device=q.device)


def for_each_head(values: Tensor, relative: Tensor) -> Tensor:
    """Give values (H,) an axis for each axis of `relative`, in float32 or better: (H, 1, ...)."""
    precise = torch.promote_types(values.dtype, torch.float32)
    return values.to(precise).view(-1, *[1] * relative.ndim)


def dots(queries: Tensor, table: Tensor, row: Tensor) -> Tensor:
    """Return q_i . table[row_ij]: every query meets every row once, and each pair picks its own.

    Args:
        queries: (B, H, Lq, d).
        table: (N, d), or (H, N, d).
        row: row numbers, (Lq, Lk) or (B, Lq, Lk).

    Returns:
        (B, H, Lq, Lk), gathered from (B, H, Lq, N).
    """
    scores = queries @ table.to(queries.dtype).mT  # (B, H, Lq, N)
    return scores.gather(-1, per_head(row).expand(*scores.shape[:-1], row.shape[-1]))


def sums(weights: Tensor, table: Tensor, row: Tensor) -> Tensor:
    """Return the sum over j of weights_ij * table[row_ij]: the weights of each row, then the rows.

    Args:
        weights: (B, H, Lq, Lk).
        table: (N, d).
        row: row numbers, (Lq, Lk) or (B, Lq, Lk).

    Returns:
        (B, H, Lq, d).
    """
    by_row = weights.new_zeros(*weights.shape[:-1], len(table))  # (B, H, Lq, N)
    by_row = by_row.scatter_add(-1, per_head(row).expand_as(weights), weights)
    return by_row @ table.to(weights.dtype)
