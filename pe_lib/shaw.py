"""Shaw's relative positions: a trained vector per clipped distance (chapter 5).

score_ij = q_i . (k_j + a_clip(j - i)) / sqrt(d)
output_i = sum over j of A_ij (v_j + b_clip(j - i))
"""

from collections.abc import Sequence

from torch import Tensor, nn

from pe_lib.arguments import Count, Integers, Positive, checked, require_positive
from pe_lib.encoding import PositionEncoding
from pe_lib.initial import normal
from pe_lib.positions import relative_position
from pe_lib.relative import dots, sums


@checked()
def clipped_row(relative: Integers, clip: Count, after: Count | None = None) -> Tensor:
    """Return the table row of each distance (key minus query): clip(j - i, -clip, clip) + clip.

    With `after`, keys to the right have as many rows as that says.

    Source: Shaw et al. 2018, equation 5; 0 is the row of the farthest key to the left.
    """
    return relative.clamp(-clip, clip if after is None else after) + clip


@checked(q="B H Lq d", table="N d", q_pos="Lq | B Lq | 1 Lq", k_pos="Lk | B Lk | 1 Lk")
def shaw_logits(
    q: Tensor, table: Tensor, q_pos: Integers, k_pos: Integers, clip: int | None = None
) -> Tensor:
    """Return q_i . a_clip(j - i) for every pair, not yet scaled: the formula.

    Args:
        q: queries, (B, H, Lq, d).
        table: (2 * clip + 1, d), the vectors of the distances -clip, ..., clip.
        q_pos: integers, (Lq,) or (B, Lq).
        k_pos: integers, (Lk,) or (B, Lk).
        clip: rows of the table for keys to the left, if they are not half of all.

    Returns:
        (B, H, Lq, Lk).

    Source: Shaw et al. 2018, equation 4, the second term in the numerator. Implementations
    that index by query minus key have the same table upside down.
    """
    return dots(q, table, table_row(table, q_pos, k_pos, clip))


@checked(weights="B H Lq Lk", table="N d", q_pos="Lq | B Lq | 1 Lq", k_pos="Lk | B Lk | 1 Lk")
def shaw_values(
    weights: Tensor, table: Tensor, q_pos: Integers, k_pos: Integers, clip: int | None = None
) -> Tensor:
    """Return the sum over j of weights_ij * table[clip(j - i)], (B, H, Lq, d): the formula.

    Arguments as in `shaw_logits`, with attention weights, (B, H, Lq, Lk).

    Source: Shaw et al. 2018, equation 3, the second summand.
    """
    return sums(weights, table, table_row(table, q_pos, k_pos, clip))


def table_row(table: Tensor, q_pos: Tensor, k_pos: Tensor, clip: int | None) -> Tensor:
    """Return the row of a table (N, d) for each pair, (Lq, Lk) or (B, Lq, Lk)."""
    if clip is None and len(table) % 2 == 0:
        raise ValueError(f"table must have shape (2 * clip + 1, d), got {tuple(table.shape)}")
    clip = len(table) // 2 if clip is None else clip
    if not 0 < clip < len(table) - 1:
        raise ValueError(
            f"clip must be from 1 to {len(table) - 2} for a table of {len(table)} rows, got {clip}"
        )
    return clipped_row(relative_position(q_pos, k_pos), clip, len(table) - 1 - clip)


class Shaw(PositionEncoding):
    """Add a trained vector per clipped distance to the keys, and one to the values.

    Both tables are shared by the heads, as the paper recommends. Distances beyond `clip` use
    its vector, so that there is no longest sequence.

    Args:
        head_dim: width d of a head.
        clip: distance from which on all share a vector; two numbers for keys before and after.
        with_values: also add to the values; the paper found the keys to matter most.
        std: standard deviation of the initial vectors; 1 / sqrt(head_dim) if None, at which
            the term is as large as the queries. A far smaller one is learned late.

    Source: Shaw et al. 2018, section 3.
    """

    integers = True

    def __init__(
        self,
        head_dim: Count,
        clip: int | Sequence[int],
        *,
        with_values: bool = True,
        std: Positive | None = None,
    ) -> None:
        """Draw the vectors from a normal distribution."""
        super().__init__()
        self.head_dim = head_dim
        ends = clip if isinstance(clip, tuple | list) else (clip, clip)
        if len(ends) != 2:
            raise ValueError(f"clip must be one number, or two of them, got {clip}")
        self.before, self.after = (require_positive("clip", end) for end in ends)
        shape, std = (self.before + 1 + self.after, head_dim), std or head_dim**-0.5
        self.key_table = nn.Parameter(normal(*shape, std=std))  # (2 clip + 1, d)
        self.value_table = nn.Parameter(normal(*shape, std=std)) if with_values else None

    def uses(self, hook: str) -> bool:
        """Return whether this encoding acts through a hook: `values` needs a table."""
        return super().uses(hook) and (hook != "values" or self.value_table is not None)

    def bias(self, q: Tensor, k: Tensor, q_pos: Tensor, k_pos: Tensor, scale: float) -> Tensor:
        """Return scale * `shaw_logits`, (B, H, Lq, Lk)."""
        return shaw_logits(q * scale, self.key_table, q_pos, k_pos, self.before)

    def values(self, weights: Tensor, q_pos: Tensor, k_pos: Tensor) -> Tensor | None:
        """Return `shaw_values`, (B, H, Lq, d), or None without a table for them."""
        if self.value_table is None:
            return None
        return shaw_values(weights, self.value_table, q_pos, k_pos, self.before)
