"""CoPE: a position that counts what the query chooses to count.

score_ij = q_i . (k_j + table[p_ij]) / sqrt(d),     p_ij = sum over l = j, ..., i of s_il

A trained vector for each distance counts tokens. Here a query opens a gate at each earlier key,
s_il = sigmoid(q_i . k_l / sqrt(d)), and the position of a key is the sum of the gates from there to
the query: sentences, if only full stops open theirs. In general it lies between two whole numbers,
and so does its vector.
"""

import torch
from torch import Tensor, nn

from pe_lib.encoding import PositionEncoding, per_head, relative_position
from pe_lib.initial import normal


def gated_counts(logits: Tensor, past: Tensor) -> Tensor:
    """Return how many gates are open from each key to the query: the formula.

    Args:
        logits: scaled query-key products, (..., Lq, Lk), with the keys in their order.
        past: bool, broadcastable to them: False for a key that comes after the query, whose gate
            is shut.

    Returns:
        (..., Lq, Lk), at least 0.

    Source: Golovneva et al. 2024, equations 3 and 4: the sum over l = j, ..., i of
        sigmoid(q_i . k_l).
    """
    gates = logits.sigmoid() * past  # (..., Lq, Lk)
    return gates.flip(-1).cumsum(dim=-1).flip(-1)


def between_rows(by_row: Tensor, positions: Tensor) -> Tensor:
    """Return the products with vectors between two rows of a table, by linear interpolation.

    Args:
        by_row: products of the queries with all rows of the table, (..., Lq, n).
        positions: real numbers from 0 to n - 1, (..., Lq, Lk).

    Returns:
        (..., Lq, Lk).

    Source: Golovneva et al. 2024, equation 5.
    """
    floor = positions.floor()
    lower = floor.nan_to_num().long()  # a product that is not a number has no row; the sum is NaN
    low = by_row.gather(-1, lower)
    high = by_row.gather(-1, positions.ceil().nan_to_num().long())
    return low + (positions - floor) * (high - low)


class CoPE(PositionEncoding):
    """Add to each score the query's product with the trained vector of the counted position.

    The vectors are shared by the heads. A count beyond the last row has the last row's vector.
    For decoders: a key after the query has a shut gate and a count of zero. Keys that a mask hides
    count like the others, and both products are scaled: the paper's listing hides their gates, and
    does not scale the product with the vectors, so that a table from there is divided by the scale.

    Args:
        head_dim: width d of a head.
        longest: the largest count with a vector of its own.
        std: standard deviation of the initial vectors; the authors start from zero.

    Source: Golovneva et al. 2024, section 4.
    """

    causal_only = True

    def __init__(self, head_dim: int, longest: int, *, std: float = 0.0) -> None:
        """Create the vectors of the counts 0 to `longest`."""
        super().__init__()
        self.head_dim, self.longest = head_dim, longest
        self.table = nn.Parameter(normal(longest + 1, head_dim, std=std))

    def counts(self, q: Tensor, k: Tensor, q_pos: Tensor, k_pos: Tensor, scale: float) -> Tensor:
        """Return the position of each key as each query counts it, (B, H, Lq, Lk)."""
        past = per_head(relative_position(q_pos, k_pos) <= 0)  # (..., 1, Lq, Lk)
        precise = torch.promote_types(q.dtype, torch.float32)  # a sum over many keys
        logits = (q @ k.mT * scale).to(precise)
        return gated_counts(logits, past).clamp(max=self.longest)

    def bias(self, q: Tensor, k: Tensor, q_pos: Tensor, k_pos: Tensor, scale: float) -> Tensor:
        """Return the product of each query with the vector of its count, (B, H, Lq, Lk)."""
        if not torch.compiler.is_compiling() and (k_pos.diff() < 0).any():
            raise ValueError(
                f"CoPE: k_pos must ascend, since gates are counted from key to key, got {k_pos}"
            )
        counted = self.counts(q, k, q_pos, k_pos, scale)
        by_row = q @ self.table.to(q.dtype).mT * scale  # (B, H, Lq, longest + 1)
        return between_rows(by_row.to(counted.dtype), counted).to(q.dtype)
