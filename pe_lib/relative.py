"""What relative methods share: products with a table of distances, and biases of distance alone."""

import torch
from torch import Tensor

from pe_lib.encoding import PositionEncoding
from pe_lib.positions import per_head, relative_position


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


def for_each_head(values: Tensor, relative: Tensor) -> Tensor:
    """Give values (H,) an axis for each axis of `relative`, in float32 or better: (H, 1, ...)."""
    precise = torch.promote_types(values.dtype, torch.float32)
    return values.to(precise).view(-1, *[1] * relative.ndim)


class RelativeBias(PositionEncoding):
    """A bias per head that depends on the relative position alone.

    A subclass writes `of_distance`; this class brings the values into the matrix. Between
    consecutive positions `pe_lib.fast.bias_vector` asks it once for each distance by default.
    """

    rotates_once = True
    hooks = (*PositionEncoding.hooks, "of_distance")

    def of_distance(self, relative: Tensor) -> Tensor:
        """Return the bias for relative positions (key - query): (...) -> (H, ...)."""
        raise NotImplementedError

    def bias(self, q: Tensor, k: Tensor, q_pos: Tensor, k_pos: Tensor, scale: float) -> Tensor:
        """Return (H, Lq, Lk), or (B, H, Lq, Lk) for positions with a batch axis."""
        return self.for_heads(q, relative_position(q_pos, k_pos)).movedim(0, -3)

    def for_heads(self, q: Tensor, relative: Tensor) -> Tensor:
        """Return `of_distance` in the dtype of q (B, H, Lq, d), which must have as many heads."""
        values = self.of_distance(relative)
        wanted = (q.shape[1], *relative.shape)
        if values.shape != wanted:
            who = f"{type(self).__name__}: of_distance"
            raise ValueError(
                f"{who} must return (n_heads, ...) = {wanted}, got {tuple(values.shape)}"
            )
        return values.to(q.dtype)
