"""Shaw's relative positions: a trained vector per clipped distance (chapter 5).

score_ij = q_i . (k_j + a_clip(j - i)) / sqrt(d)
output_i = sum over j of A_ij (v_j + b_clip(j - i))
"""

import torch
from torch import Tensor, nn

from pe_lib.encoding import PositionEncoding, relative_position
from pe_lib.initial import normal
from pe_lib.relative import dots, sums


def clipped_row(relative: Tensor, clip: int) -> Tensor:
    """Return the table row of each distance (key minus query): clip(j - i, -clip, clip) + clip.

    Source: Shaw et al. 2018, equation 5; 0 is the row of the farthest key to the left.
    """
    return torch.as_tensor(relative).clamp(-clip, clip) + clip


def shaw_logits(q: Tensor, table: Tensor, q_pos: Tensor, k_pos: Tensor) -> Tensor:
    """Return q_i . a_clip(j - i) for every pair, not yet scaled: the formula.

    Args:
        q: queries, (B, H, Lq, d).
        table: (2 * clip + 1, d), the vectors of the distances -clip, ..., clip.
        q_pos: integers, (Lq,) or (B, Lq).
        k_pos: integers, (Lk,) or (B, Lk).

    Returns:
        (B, H, Lq, Lk).

    Source: Shaw et al. 2018, equation 4, the second term in the numerator. Implementations
    that index by query minus key have the same table upside down.
    """
    return dots(q, table, table_row(table, q_pos, k_pos))


def shaw_values(weights: Tensor, table: Tensor, q_pos: Tensor, k_pos: Tensor) -> Tensor:
    """Return the sum over j of weights_ij * table[clip(j - i)], (B, H, Lq, d): the formula.

    Arguments as in `shaw_logits`, with attention weights, (B, H, Lq, Lk).

    Source: Shaw et al. 2018, equation 3, the second summand.
    """
    return sums(weights, table, table_row(table, q_pos, k_pos))


def table_row(table: Tensor, q_pos: Tensor, k_pos: Tensor) -> Tensor:
    """Return the row of a table (2 * clip + 1, d) for each pair, (Lq, Lk) or (B, Lq, Lk)."""
    if len(table) % 2 == 0:
        raise ValueError(f"table must have shape (2 * clip + 1, d), got {tuple(table.shape)}")
    return clipped_row(relative_position(q_pos, k_pos), len(table) // 2)


class Shaw(PositionEncoding):
    """Add a trained vector per clipped distance to the keys, and one to the values.

    Both tables are shared by the heads, as the paper recommends. Distances beyond `clip` use
    its vector, so that there is no longest sequence.

    Args:
        head_dim: width d of a head.
        clip: distance from which on all share a vector.
        with_values: also add to the values; the paper found the keys to matter most.
        std: standard deviation of the initial vectors; 1 / sqrt(head_dim) if None, at which
            the term is as large as the queries. A far smaller one is learned late.

    Source: Shaw et al. 2018, section 3.
    """

    def __init__(
        self,
        head_dim: int,
        clip: int,
        *,
        with_values: bool = True,
        std: float | None = None,
    ) -> None:
        """Draw the vectors from a normal distribution."""
        super().__init__()
        self.head_dim = head_dim
        shape, std = (2 * clip + 1, head_dim), head_dim**-0.5 if std is None else std
        self.key_table = nn.Parameter(normal(*shape, std=std))  # (2 clip + 1, d)
        self.value_table = nn.Parameter(normal(*shape, std=std)) if with_values else None

    def uses(self, hook: str) -> bool:
        """Return whether this encoding acts through a hook: `values` needs a table."""
        return super().uses(hook) and (hook != "values" or self.value_table is not None)

    def bias(self, q: Tensor, k: Tensor, q_pos: Tensor, k_pos: Tensor, scale: float) -> Tensor:
        """Return scale * `shaw_logits`, (B, H, Lq, Lk)."""
        return shaw_logits(q * scale, self.key_table, q_pos, k_pos)

    def values(self, weights: Tensor, q_pos: Tensor, k_pos: Tensor) -> Tensor | None:
        """Return `shaw_values`, (B, H, Lq, d), or None without a table for them."""
        if self.value_table is None:
            return None
        return shaw_values(weights, self.value_table, q_pos, k_pos)
