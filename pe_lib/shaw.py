"""Shaw's relative positions: a trained vector per clipped distance (chapter 5).

The score of a pair needs q_i . a_(j - i). Written out, that is a tensor of L x L x d; here the
queries meet each distance once, and the rows of the result are pushed into place.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

import torch
from torch import Tensor, nn

from pe_lib.attention import PositionEncoding, default_scale, per_head, relative_position
from pe_lib.errors import require_floating, require_positions, require_positive
from pe_lib.relative import distances

# Queries handled at a time. As wide as a head: larger blocks compute more that nobody reads.
BLOCK = 64


def integer_positions(name: str, positions: object, length: int, batch: int) -> Tensor:
    """Return `positions` as int64 if they are integers of shape (length,) or (batch, length)."""
    tensor = require_positions(name, positions, length, batch)
    if tensor.is_floating_point():
        raise TypeError(f"{name} must be integers, got {tensor.dtype}")
    if length == 0:
        raise ValueError(f"{name} must not be empty, got shape {tuple(tensor.shape)}")
    return tensor.long()


def consecutive_distances(q_pos: Tensor, k_pos: Tensor) -> Tensor | None:
    """Return the distances that occur between two runs of consecutive positions.

    Args:
        q_pos: integers, (Lq,) or (B, Lq).
        k_pos: integers, (Lk,) or (B, Lk).

    Returns:
        (Lq + Lk - 1,): key minus query, rising by one; the pair (i, j) finds its own at
        Lq - 1 - i + j. None if the positions have gaps, or if the sequences of a batch differ
        in where the keys start relative to the queries.
    """
    queries, keys = q_pos.view(-1, q_pos.shape[-1]), k_pos.view(-1, k_pos.shape[-1])
    lead = keys[:, 0] - queries[:, 0]  # (B,), or (1,)
    if (queries.diff() != 1).any() or (keys.diff() != 1).any() or (lead != lead[0]).any():
        return None
    return distances(queries[0], keys[0])


def skew(scores: Tensor, n_keys: int) -> Tensor:
    """Turn columns that stand for distances into columns that stand for keys, without a copy.

    Args:
        scores: (..., b, n_keys + b - 1); column n stands for the distance of key 0 from the
            last of the b queries, plus n.
        n_keys: number of keys.

    Returns:
        (..., b, n_keys): entry (i, j) is scores[..., i, b - 1 - i + j]. A view: writing to it
        writes to `scores`.
    """
    *outer, row, column = scores.stride()
    last_query = scores.storage_offset() + (scores.shape[-2] - 1) * column
    # One step down is one row on and one distance back.
    return scores.as_strided(
        (*scores.shape[:-1], n_keys), (*outer, row - column, column), last_query
    )


def query_blocks(n_queries: int, n_keys: int) -> Iterator[tuple[slice, slice]]:
    """Yield slices of queries, each with the slice of distances that its queries need."""
    for start in range(0, n_queries, BLOCK):
        stop = min(start + BLOCK, n_queries)
        yield slice(start, stop), slice(n_queries - stop, n_queries - start + n_keys - 1)


def skewed_scores(queries: Tensor, rows: Tensor, n_keys: int) -> Tensor:
    """Return q_i . rows[Lq - 1 - i + j] for every query i and key j.

    Args:
        queries: (B, H, Lq, d).
        rows: (Lq + Lk - 1, d), or (H, Lq + Lk - 1, d): a vector per distance, in rising order.
        n_keys: Lk.

    Returns:
        (B, H, Lq, Lk). Beyond the result this takes memory for one block of queries only; when
        gradients are recorded, for one more tensor of the result's size.
    """
    blocks = (
        (part, skew(queries[..., part, :] @ rows[..., near, :].mT, n_keys))
        for part, near in query_blocks(queries.shape[-2], n_keys)
    )
    if torch.is_grad_enabled() and (queries.requires_grad or rows.requires_grad):
        return torch.cat([block for _, block in blocks], dim=-2)
    scores = queries.new_empty(*queries.shape[:-1], n_keys)
    for part, block in blocks:
        scores[..., part, :] = block
    return scores  # (B, H, Lq, Lk)


def skewed_sums(weights: Tensor, rows: Tensor) -> Tensor:
    """Return the sum over j of weights[i, j] * rows[Lq - 1 - i + j]: `skewed_scores` in reverse.

    Args:
        weights: (B, H, Lq, Lk).
        rows: (Lq + Lk - 1, d), a vector per distance, in rising order.

    Returns:
        (B, H, Lq, d).
    """
    sums = []
    for part, near in query_blocks(*weights.shape[-2:]):
        n_rows = (part.stop - part.start, near.stop - near.start)
        by_distance = weights.new_zeros(*weights.shape[:-2], *n_rows)
        skew(by_distance, weights.shape[-1]).copy_(weights[..., part, :])
        sums.append(by_distance @ rows[near])
    return torch.cat(sums, dim=-2)  # (B, H, Lq, d)


def picked_scores(queries: Tensor, table: Tensor, row: Tensor) -> Tensor:
    """Return q_i . table[row_ij] for any rows: every query meets every row once.

    Args:
        queries: (B, H, Lq, d).
        table: (N, d), or (H, N, d).
        row: row numbers, (Lq, Lk) or (B, Lq, Lk).

    Returns:
        (B, H, Lq, Lk), gathered from (B, H, Lq, N).
    """
    scores = queries @ table.mT  # (B, H, Lq, N)
    return scores.gather(-1, per_head(row).expand(*scores.shape[:-1], row.shape[-1]))


def table_scores(
    queries: Tensor, table: Tensor, row_of: Callable[[Tensor], Tensor], q_pos: Tensor, k_pos: Tensor
) -> Tensor:
    """Return q_i . table[row_of(k_pos_j - q_pos_i)], the fast way if positions are consecutive.

    Args:
        queries: (B, H, Lq, d).
        table: (N, d), or (H, N, d).
        row_of: maps distances (key minus query) of any shape to row numbers.
        q_pos: integers, (Lq,) or (B, Lq).
        k_pos: integers, (Lk,) or (B, Lk).

    Returns:
        (B, H, Lq, Lk).
    """
    run = consecutive_distances(q_pos, k_pos)
    if run is None:
        return picked_scores(queries, table, row_of(relative_position(q_pos, k_pos)))
    return skewed_scores(queries, table[..., row_of(run), :], k_pos.shape[-1])


def clipped_row(relative: Tensor, clip: int) -> Tensor:
    """Return the table row of each distance (key minus query): clip(j - i, -clip, clip) + clip.

    Source: Shaw et al. 2018, equation 5; 0 is the row of the farthest key to the left.
    """
    return relative.clamp(-clip, clip) + clip


def table_clip(table: Tensor, width: int) -> int:
    """Return the clipping distance of a table of shape (2 * clip + 1, width)."""
    require_floating("table", table)
    if table.ndim != 2 or len(table) % 2 == 0 or table.shape[1] != width:
        raise ValueError(
            f"table must have shape (2 * clip + 1, {width}), an odd number of rows, "
            f"got {tuple(table.shape)}"
        )
    return len(table) // 2


def shaw_logits(q: Tensor, table: Tensor, q_pos: Tensor, k_pos: Tensor) -> Tensor:
    """Return q_i . a_clip(j - i) for every pair, not yet scaled.

    Args:
        q: queries, (B, H, Lq, d).
        table: (2 * clip + 1, d), the vectors of the distances -clip, ..., clip.
        q_pos: integers, (Lq,) or (B, Lq).
        k_pos: integers, (Lk,) or (B, Lk).

    Returns:
        (B, H, Lq, Lk).

    Raises:
        TypeError: if positions are not integers or table is not a floating-point tensor.
        ValueError: if a shape does not fit.

    Source: Shaw et al. 2018, equation 4, the second term in the numerator. Implementations
    that index by query minus key have the same table upside down.
    """
    clip = table_clip(table, q.shape[-1])
    q_pos = integer_positions("q_pos", q_pos, q.shape[-2], len(q))
    n_keys = torch.as_tensor(k_pos).shape[-1:].numel()
    k_pos = integer_positions("k_pos", k_pos, n_keys, len(q))
    return table_scores(q, table, lambda relative: clipped_row(relative, clip), q_pos, k_pos)


def shaw_values(weights: Tensor, table: Tensor, q_pos: Tensor, k_pos: Tensor) -> Tensor:
    """Return the weighted sum of the distances' value vectors.

    Args:
        weights: attention weights, (B, H, Lq, Lk).
        table: (2 * clip + 1, d).
        q_pos: integers, (Lq,) or (B, Lq).
        k_pos: integers, (Lk,) or (B, Lk).

    Returns:
        (B, H, Lq, d): the sum over j of weights[i, j] * table[clip(j - i)].

    Raises:
        ValueError: as `shaw_logits`.

    Source: Shaw et al. 2018, equation 3, the second summand.
    """
    clip = table_clip(table, table.shape[-1])
    q_pos = integer_positions("q_pos", q_pos, weights.shape[-2], len(weights))
    k_pos = integer_positions("k_pos", k_pos, weights.shape[-1], len(weights))
    run = consecutive_distances(q_pos, k_pos)
    if run is not None:
        return skewed_sums(weights, table[clipped_row(run, clip)])
    row = per_head(clipped_row(relative_position(q_pos, k_pos), clip)).expand_as(weights)
    by_row = weights.new_zeros(*weights.shape[:-1], len(table)).scatter_add(-1, row, weights)
    return by_row @ table  # (B, H, Lq, d)


class Shaw(PositionEncoding):
    """Add a trained vector per clipped distance to the keys, and one to the values.

    Both tables are shared by the heads, as the paper recommends. Distances beyond `clip` use
    its vector, so that there is no longest sequence.

    Args:
        head_dim: width d of a head.
        clip: greatest distance with a vector of its own.
        with_values: also add to the values; the paper found the keys to matter most.
        std: standard deviation of the initial vectors; 1 / sqrt(head_dim) if None, at which
            the term is as large as the queries. A far smaller one is learned late.

    Raises:
        TypeError: if head_dim or clip is not an int.
        ValueError: if head_dim or clip is below 1.

    Source: Shaw et al. 2018, section 3.
    """

    def __init__(
        self, head_dim: int, clip: int, *, with_values: bool = True, std: float | None = None
    ) -> None:
        """Draw the vectors from a normal distribution."""
        super().__init__()
        require_positive("head_dim", head_dim)
        shape = (2 * require_positive("clip", clip) + 1, head_dim)
        std = head_dim**-0.5 if std is None else std
        self.uses_values = with_values
        self.key_table = nn.Parameter(torch.randn(shape) * std)  # (2 clip + 1, d)
        self.value_table = nn.Parameter(torch.randn(shape) * std) if with_values else None

    def bias(self, q: Tensor, k: Tensor, q_pos: Tensor, k_pos: Tensor) -> Tensor:
        """Return q_i . a_clip(j - i) / sqrt(d), (B, H, Lq, Lk)."""
        scaled = q * default_scale(self, q.shape[-1])
        return shaw_logits(scaled, self.key_table.to(q.dtype), q_pos, k_pos)

    def values(self, weights: Tensor, q_pos: Tensor, k_pos: Tensor) -> Tensor | None:
        """Return the weighted sum of the value vectors, (B, H, Lq, d)."""
        if self.value_table is None:
            return None
        return shaw_values(weights, self.value_table.to(weights.dtype), q_pos, k_pos)
