"""DeBERTa: disentangled attention between contents and relative positions (chapter 8).

    score_ij = (q_i . k_j + q_i . W_k P[delta(i, j)] + W_q P[delta(i, j)] . k_j) / sqrt(3 d)

Absolute positions come in only at the very end: for masked-token prediction the published
models add an absolute code (`pe_lib.learned.Learned`) to the hidden states that ask the last
layers (the enhanced mask decoder). The attention itself knows distances alone.
"""

import torch
from torch import Tensor, nn

from pe_lib.encoding import PositionEncoding, relative_position
from pe_lib.initial import linear, normal
from pe_lib.relative import dots


def disentangled_row(relative: Tensor, span: int) -> Tensor:
    """Return delta, the table row of each distance (key minus query), in [0, 2 span).

    Source: He et al. 2021, equation 3, where the argument is query minus key: row 0 belongs to
    keys at least `span` to the right, row 2 span - 1 to the far left.
    """
    return (span - relative).clamp(0, 2 * span - 1)


def log_bucket(distance: Tensor, n_buckets: int, max_distance: int) -> Tensor:
    """Return distances with those beyond n_buckets / 2 squeezed logarithmically.

    Args:
        distance: integers of any shape and either sign; the function is odd.
        n_buckets: even; the distances up to n_buckets / 2 keep their value.
        max_distance: greater than n_buckets / 2 + 1; max_distance - 1 gets n_buckets - 1.

    Returns:
        int64 of the same shape. From max_distance on it exceeds n_buckets - 1.

    Source: He et al. 2021 (version 2 of the code, `make_log_bucket_position`).
    """
    middle = n_buckets // 2
    if n_buckets % 2 or max_distance < middle + 2:
        raise ValueError(
            f"n_buckets must be even and max_distance at least {middle + 2}, got {n_buckets} and "
            f"{max_distance}"
        )
    size = distance.abs()
    # float32, as published: an exact logarithm would round some bucket borders the other way.
    growth = torch.log(size.clamp(min=middle).float() / middle)
    most = torch.tensor((max_distance - 1) / middle, dtype=torch.float32, device="cpu")
    far = (growth / most.log() * (middle - 1)).ceil().long() + middle
    return torch.where(size <= middle, distance, distance.sign() * far)


class DeBERTa(PositionEncoding):
    """Content-to-position and position-to-content scores, scaled with all the terms.

    Both terms read the same row delta(i, j) of the table. The paper writes delta(j, i) in the
    third term; its code gathers by key and transposes, which comes to delta(i, j).

    Args:
        d_model: width D of the table.
        n_heads: number of heads H; must divide d_model.
        max_distance: distances from here on look the same (k in the paper); to the left, where
            the last row is one short, from one before.
        n_buckets: None gives every distance a row (version 1); a number gives logarithmic
            buckets (version 2), and the table 2 * n_buckets rows.
        c2p: let a query's content ask for the key's distance.
        p2c: let a query's distance ask for the key's content.
        projections: the query and the key projection of the attention, to be shared with the
            table (version 2); the table gets its own if None (version 1). Shared ones keep
            their biases: a shared query bias also meets the positions.
        std: standard deviation of the initial table. Match it to the token embeddings.

    Source: He et al. 2021, equations 2 to 4; 1 / sqrt(3 d) with both terms, 1 / sqrt(2 d) with
    one.
    """

    def __init__(
        self,
        d_model: int,
        n_heads: int,
        max_distance: int,
        *,
        n_buckets: int | None = None,
        c2p: bool = True,
        p2c: bool = True,
        projections: tuple[nn.Module, nn.Module] | None = None,
        std: float = 0.3,
    ) -> None:
        """Draw the table from a normal distribution."""
        super().__init__()
        if d_model % n_heads:
            raise ValueError(f"n_heads={n_heads} must divide d_model={d_model}")
        self.n_heads, self.head_dim = n_heads, d_model // n_heads
        self.n_buckets, self.max_distance = n_buckets, max_distance
        self.span = max_distance if n_buckets is None else n_buckets
        self.row_of(torch.zeros(1).long())  # raises if the buckets do not fit
        self.table = nn.Parameter(normal(2 * self.span, d_model, std=std))  # (2 span, D)
        if projections is None:
            projections = linear(d_model, d_model), linear(d_model, d_model, bias=False)
        query_proj, key_proj = projections
        self.query_proj, self.key_proj = query_proj if p2c else None, key_proj if c2p else None
        self.scale = (self.head_dim * (1 + c2p + p2c)) ** -0.5

    def row_of(self, relative: Tensor) -> Tensor:
        """Return the table row of each distance (key minus query), of any shape."""
        if self.n_buckets is not None:
            relative = log_bucket(relative, self.n_buckets, self.max_distance)
        return disentangled_row(relative, self.span)

    def project(self, projection: nn.Module) -> Tensor:
        """Return the table as a projection maps it, (H, 2 span, d)."""
        rows: Tensor = projection(self.table).unflatten(-1, (self.n_heads, -1))  # (2 span, H, d)
        return rows.transpose(0, 1)

    def bias(self, q: Tensor, k: Tensor, q_pos: Tensor, k_pos: Tensor, scale: float) -> Tensor:
        """Return the terms of position, (B, H, Lq, Lk): He et al. 2021, equations 2 to 4."""
        row = self.row_of(relative_position(q_pos, k_pos))
        bias = q.new_zeros(())
        if self.key_proj is not None:  # the query's content asks for the distance
            bias = bias + dots(q, self.project(self.key_proj), row)
        if self.query_proj is not None:  # the distance asks for the key's content
            bias = bias + dots(k, self.project(self.query_proj), row.mT).mT
        return scale * bias
