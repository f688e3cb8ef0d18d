"""Shaw's relative positions: a trained vector per clipped distance (chapter 5)."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from pe_lib.encoding import PositionEncoding
from pe_lib.errors import (
    require_bool,
    require_floating,
    require_greater,
    require_integers,
    require_positive,
)
from pe_lib.fast import table_scores, table_sums
from pe_lib.initial import normal
from pe_lib.positions import Positions, as_positions, count, relative_position


def clipped_row(relative: Tensor, clip: int) -> Tensor:
    """Return the table row of each distance (key minus query): clip(j - i, -clip, clip) + clip.

    Source: Shaw et al. 2018, equation 5; 0 is the row of the farthest key to the left.
    """
    require_positive("clip", clip)
    return require_integers("relative", relative).clamp(-clip, clip) + clip


def table_clip(table: Tensor, width: int) -> int:
    """Return the clipping distance of a table of shape (2 * clip + 1, width)."""
    require_floating("table", table)
    if table.ndim != 2 or len(table) % 2 == 0 or table.shape[1] != width:
        raise ValueError(
            f"table must have shape (2 * clip + 1, {width}), an odd number of rows as wide as a "
            f"head, got {tuple(table.shape)}"
        )
    return len(table) // 2


def shaw_logits(q: Tensor, table: Tensor, q_pos: Positions, k_pos: Positions) -> Tensor:
    """Return q_i . a_clip(j - i) for every pair, not yet scaled: the formula, a vector per pair.

    Args:
        q: queries, (B, H, Lq, d).
        table: (2 * clip + 1, d), the vectors of the distances -clip, ..., clip.
        q_pos: integers, (Lq,) or (B, Lq), or a run.
        k_pos: integers, (Lk,) or (B, Lk), or a run.

    Returns:
        (B, H, Lq, Lk), by way of (Lq, Lk, d) numbers; `Shaw` gets it without them.

    Raises:
        TypeError: if positions are not integers or table is not a floating-point tensor.
        ValueError: if a shape does not fit.

    Source: Shaw et al. 2018, equation 4, the second term in the numerator. Implementations
    that index by query minus key have the same table upside down.
    """
    if require_floating("q", q).ndim != 4:
        raise ValueError(f"q must have shape (B, H, Lq, d), got {tuple(q.shape)}")
    clip = table_clip(table, q.shape[-1])
    q_pos = as_positions("q_pos", q_pos, q.shape[-2], q.shape[0], q.device, integers=True)
    k_pos = as_positions("k_pos", k_pos, count(k_pos), q.shape[0], q.device, integers=True)
    rows = clipped_row(relative_position(q_pos, k_pos, q.device), clip)  # (Lq, Lk) or (B, Lq, Lk)
    vectors = table[rows[(None,) * (3 - rows.ndim)]]  # (B or 1, Lq, Lk, d)
    return torch.einsum("bhid,bijd->bhij", q, vectors)


def shaw_values(weights: Tensor, table: Tensor, q_pos: Positions, k_pos: Positions) -> Tensor:
    """Return the weighted sum of the distances' value vectors: the formula, a vector per pair.

    Args:
        weights: attention weights, (B, H, Lq, Lk).
        table: (2 * clip + 1, d).
        q_pos: integers, (Lq,) or (B, Lq), or a run.
        k_pos: integers, (Lk,) or (B, Lk), or a run.

    Returns:
        (B, H, Lq, d): the sum over j of weights[i, j] * table[clip(j - i)].

    Raises:
        ValueError: as `shaw_logits`.

    Source: Shaw et al. 2018, equation 3, the second summand.
    """
    if require_floating("weights", weights).ndim != 4:
        raise ValueError(f"weights must have shape (B, H, Lq, Lk), got {tuple(weights.shape)}")
    clip = table_clip(table, table.shape[-1])
    batch, _, n_queries, n_keys = weights.shape
    q_pos = as_positions("q_pos", q_pos, n_queries, batch, weights.device, integers=True)
    k_pos = as_positions("k_pos", k_pos, n_keys, batch, weights.device, integers=True)
    rows = clipped_row(relative_position(q_pos, k_pos, weights.device), clip)
    vectors = table[rows[(None,) * (3 - rows.ndim)]]  # (B or 1, Lq, Lk, d)
    return torch.einsum("bhij,bijd->bhid", weights, vectors)


class Shaw(PositionEncoding):
    """Add a trained vector per clipped distance to the keys, and one to the values.

    Both tables are shared by the heads, as the paper recommends. Distances beyond `clip` use
    its vector, so that there is no longest sequence.

    Args:
        head_dim: width d of a head.
        clip: greatest distance with a vector of its own; two numbers for keys before and after.
        with_values: also add to the values; the paper found the keys to matter most.
        with_keys: also compare keys with the vectors, which adds k_j . a_(j - i) to the logits
            (`relative_key_query` of BERT, Huang et al. 2020, method 4).
        std: standard deviation of the initial vectors; 1 / sqrt(head_dim) if None, at which
            the term is as large as the queries. A far smaller one is learned late.

    Raises:
        TypeError: if head_dim or clip is not an int.
        ValueError: if head_dim or clip is below 1.

    Source: Shaw et al. 2018, section 3.
    """

    def __init__(
        self,
        head_dim: int,
        clip: int | tuple[int, int],
        *,
        with_values: bool = True,
        with_keys: bool = False,
        std: float | None = None,
    ) -> None:
        """Draw the vectors from a normal distribution."""
        super().__init__()
        require_positive("head_dim", head_dim)
        ends = clip if isinstance(clip, tuple) and len(clip) == 2 else (clip, clip)
        self.before, self.after = (require_positive("clip", end) for end in ends)
        shape = (self.before + 1 + self.after, head_dim)
        std = head_dim**-0.5 if std is None else require_greater("std", std, 0)
        self.with_keys = require_bool("with_keys", with_keys)
        self.key_table = nn.Parameter(normal(*shape, std=std))  # (2 clip + 1, d)
        require_bool("with_values", with_values)
        self.value_table = nn.Parameter(normal(*shape, std=std)) if with_values else None

    def uses(self, hook: str) -> bool:
        """Return whether this encoding acts through a hook: `values` needs a table."""
        return super().uses(hook) and (hook != "values" or self.value_table is not None)

    def row_of(self, relative: Tensor) -> Tensor:
        """Return the table row of each distance (key minus query), of any shape."""
        return relative.clamp(-self.before, self.after) + self.before

    def bias(
        self, q: Tensor, k: Tensor, q_pos: Positions, k_pos: Positions, scale: float
    ) -> Tensor:
        """Return scale * `shaw_logits`, (B, H, Lq, Lk)."""
        if q.shape[-1] != self.key_table.shape[1]:
            table_clip(self.key_table, q.shape[-1])  # says what was wanted
        q_pos = as_positions("q_pos", q_pos, q.shape[-2], q.shape[0], q.device, integers=True)
        k_pos = as_positions("k_pos", k_pos, k.shape[-2], q.shape[0], q.device, integers=True)
        table = self.key_table.to(q.dtype)
        scores = table_scores(q * scale, table, self.row_of, q_pos, k_pos)
        if not self.with_keys:
            return scores
        keys_ask = table_scores(k * scale, table, lambda away: self.row_of(-away), k_pos, q_pos)
        return scores + keys_ask.mT  # (B, H, Lk, Lq) -> (B, H, Lq, Lk)

    def values(self, weights: Tensor, q_pos: Positions, k_pos: Positions) -> Tensor | None:
        """Return `shaw_values`, (B, H, Lq, d), or None without a table for them."""
        if self.value_table is None:
            return None
        batch, _, n_queries, n_keys = weights.shape
        q_pos = as_positions("q_pos", q_pos, n_queries, batch, weights.device, integers=True)
        k_pos = as_positions("k_pos", k_pos, n_keys, batch, weights.device, integers=True)
        table = self.value_table.to(weights.dtype)
        return table_sums(weights, table, self.row_of, q_pos, k_pos)
