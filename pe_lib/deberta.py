"""DeBERTa: disentangled attention between contents and relative positions (chapter 8).

Absolute positions come in only at the very end: for masked-token prediction the published
models add an absolute code (`pe_lib.learned.Learned`) to the hidden states that ask the last
layers (the enhanced mask decoder). The attention itself knows distances alone.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn

from pe_lib.encoding import PositionEncoding
from pe_lib.errors import (
    require_bool,
    require_greater,
    require_heads,
    require_integers,
    require_multiple,
    require_positive,
)
from pe_lib.fast import Memo, added, one_query_joined, one_query_scores, table_scores
from pe_lib.initial import linear, normal
from pe_lib.positions import Positions, Run, as_positions
from pe_lib.relative import distances


def log_bucket(distance: Tensor, n_buckets: int, max_distance: int) -> Tensor:
    """Return distances with those beyond n_buckets / 2 squeezed logarithmically.

    Args:
        distance: integers of any shape and either sign; the function is odd.
        n_buckets: even; the distances up to n_buckets / 2 keep their value.
        max_distance: greater than n_buckets / 2 + 1; max_distance - 1 gets n_buckets - 1.

    Returns:
        int64 of the same shape. A distance past max_distance may exceed n_buckets - 1.

    Raises:
        TypeError: if n_buckets or max_distance is not an int.
        ValueError: if n_buckets is odd or max_distance too small.

    Source: He et al. 2021 (version 2 of the code, `make_log_bucket_position`).
    """
    middle = require_multiple("n_buckets", n_buckets, 2, "half of them are exact") // 2
    if require_positive("max_distance", max_distance) <= middle + 1:
        raise ValueError(
            f"max_distance must be greater than n_buckets / 2 + 1 = {middle + 1}, "
            f"got {max_distance}"
        )
    distance = require_integers("distance", distance)
    size = distance.abs()
    # float32, as published: an exact logarithm would round some bucket borders the other way.
    growth = torch.log(size.clamp(min=middle).float() / middle)
    most = torch.tensor((max_distance - 1) / middle, dtype=torch.float32, device="cpu")
    growth = growth / most.log() * (middle - 1)
    far = growth.ceil().long() + middle
    return torch.where(size <= middle, distance, distance.sign() * far).long()


def disentangled_row(relative: Tensor, span: int) -> Tensor:
    """Return delta, the table row of each distance (key minus query), in [0, 2 span).

    Source: He et al. 2021, equation 3, where the argument is query minus key: row 0 belongs to
    keys at least `span` to the right, row 2 span - 1 to the far left.
    """
    require_positive("span", span)
    return (span - require_integers("relative", relative)).clamp(0, 2 * span - 1)


def disentangled_logits(
    q: Tensor, k: Tensor, queries: Tensor | None, keys: Tensor | None, row: Tensor
) -> Tensor:
    """Return the terms of position, not yet scaled: the formula, by way of a vector per pair.

    Args:
        q: queries, (B, H, Lq, d).
        k: keys, (B, H, Lk, d).
        queries: (H, N, d), the table as the query projection maps it; None leaves its term out.
        keys: (H, N, d), the table as the key projection maps it; None leaves its term out.
        row: delta(i, j), the table row of each pair, (Lq, Lk) or (B, Lq, Lk).

    Returns:
        (B, H, Lq, Lk): q_i . keys[delta(i, j)] + queries[delta(i, j)] . k_j. `DeBERTa` gets it
        without the vectors.

    Source: He et al. 2021, equations 2 to 4.
    """
    logits = q.new_zeros(*q.shape[:3], k.shape[2])
    for table, content in ((keys, q.unsqueeze(-2)), (queries, k.unsqueeze(-3))):
        if table is not None:
            vectors = table[:, row].movedim(0, -4)  # (H, Lq, Lk, d) or (B, H, Lq, Lk, d)
            logits = logits + (content * vectors).sum(-1)
    return logits  # (B, H, Lq, Lk)


def require_projections(projections: object, used: tuple[bool, bool], d_model: int) -> None:
    """Raise unless `projections` is a pair with modules, from D to D, where they are used."""
    pair = projections if isinstance(projections, tuple | list) else ()
    needed = [each for each, use in zip(pair, used, strict=False) if use]
    if len(pair) != 2 or not all(isinstance(each, nn.Module) for each in needed):
        raise TypeError(f"projections must be two modules (query, key), got {projections!r}")
    for each in needed:
        if isinstance(each, nn.Linear) and (each.in_features, each.out_features) != (d_model,) * 2:
            raise ValueError(f"projections must map {d_model} to {d_model} features, got {each}")


class DeBERTa(PositionEncoding):
    """Content-to-position and position-to-content scores, scaled with all the terms.

    Both terms read the same row delta(i, j) of the table. The paper writes delta(j, i) in the
    third term; its code gathers by key and transposes, which comes to delta(i, j).

    Args:
        d_model: width D of the table.
        n_heads: number of heads H; must divide d_model.
        max_distance: distances from here on look the same (k in the paper).
        n_buckets: None gives every distance a row (version 1); a number gives logarithmic
            buckets (version 2), and the table 2 * n_buckets rows.
        c2p: let a query's content ask for the key's distance.
        p2c: let a query's distance ask for the key's content.
        projections: the query and the key projection of the attention, to be shared with the
            table (version 2); the table gets its own if None (version 1). Shared ones keep
            their biases: a shared query bias also meets the positions.
        std: standard deviation of the initial table. Match it to the token embeddings.

    Raises:
        TypeError: if an integer argument is not an int.
        ValueError: if n_heads does not divide d_model, c2p and p2c are both off, or the
            buckets do not fit (see `log_bucket`).

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
        n_heads = require_positive("n_heads", n_heads)
        d_model = require_multiple("d_model", d_model, n_heads, "n_heads must divide it")
        max_distance = require_positive("max_distance", max_distance)
        if n_buckets is not None:
            n_buckets = require_multiple("n_buckets", n_buckets, 2, "half of them are exact")
        if not (require_bool("c2p", c2p) | require_bool("p2c", p2c)):
            raise ValueError("c2p or p2c must be True, got False for both")
        self.n_heads, self.max_distance, self.n_buckets = n_heads, max_distance, n_buckets
        self.span = max_distance if n_buckets is None else n_buckets
        self.row_of(torch.zeros(1, dtype=torch.long))  # raises if the buckets do not fit
        require_greater("std", std, 0)
        self.table = nn.Parameter(normal(2 * self.span, d_model, std=std))  # (2 span, D)
        if projections is None:
            projections = linear(d_model, d_model), linear(d_model, d_model, bias=False)
        require_projections(projections, (p2c, c2p), d_model)
        self.query_proj = projections[0] if p2c else None
        self.key_proj = projections[1] if c2p else None
        self.scale = (d_model // n_heads * (1 + c2p + p2c)) ** -0.5
        self.key_memo, self.query_memo = Memo(), Memo()

    def row_of(self, relative: Tensor) -> Tensor:
        """Return the table row of each distance (key minus query), of any shape."""
        if self.n_buckets is not None:
            relative = log_bucket(relative, self.n_buckets, self.max_distance)
        return disentangled_row(relative, self.span)

    def mirrored_row_of(self, relative: Tensor) -> Tensor:
        """Return `row_of` where keys take the role of queries, in the table from end to start.

        Distances change their sign, so that in a table upside down the rows rise again.
        """
        return 2 * self.span - 1 - self.row_of(-relative)

    def project(self, projection: nn.Module) -> Tensor:
        """Return the projected table per head, (H, 2 span, d)."""
        rows: Tensor = projection(self.table)  # (2 span, D)
        return rows.view(len(rows), self.n_heads, -1).transpose(0, 1).contiguous()

    def rows_through(self, projection: nn.Module, memo: Memo, n_queries: int) -> Tensor:
        """Return `project`, for one query kept in `memo`."""
        memo.forget_in_training()
        if n_queries != 1:
            return self.project(projection)
        parameters = [self.table, *projection.parameters()]
        rows: Tensor = memo(parameters, "all", lambda: self.project(projection))
        return rows

    def rising_rows(self, projection: nn.Module, memo: Memo, *, differences: bool) -> Tensor:
        """Return `project` from the table's end, so that they rise with keys; kept in `memo`.

        If `differences`, all rows but the first, that of the farthest past, are given less it.
        """

        def compute() -> Tensor:
            rows = self.project(projection).flip(-2)  # (H, 2 span, d)
            first = rows[:, :1]
            return torch.cat([first, rows[:, 1:] - first], dim=1) if differences else rows

        rows: Tensor = memo([self.table, *projection.parameters()], "rising", compute)
        return rows

    def bias(
        self, q: Tensor, k: Tensor, q_pos: Positions, k_pos: Positions, scale: float
    ) -> Tensor:
        """Return scale * `disentangled_logits`, (B, H, Lq, Lk)."""
        require_heads(q, self.n_heads, self.table.shape[1] // self.n_heads)
        q_pos = as_positions("q_pos", q_pos, q.shape[-2], q.shape[0], q.device, integers=True)
        k_pos = as_positions("k_pos", k_pos, k.shape[-2], q.shape[0], q.device, integers=True)
        terms = []
        if self.key_proj is not None:
            keys = self.rows_through(self.key_proj, self.key_memo, q.shape[2]).to(q.dtype)
            terms.append(table_scores(q * scale, keys, self.row_of, q_pos, k_pos))
        if self.query_proj is not None:
            queries = self.rows_through(self.query_proj, self.query_memo, q.shape[2])
            queries = queries.to(q.dtype).flip(-2) * scale
            by_key = table_scores(k, queries, self.mirrored_row_of, k_pos, q_pos)
            terms.append(by_key.mT)  # (B, H, Lk, Lq) -> (B, H, Lq, Lk)
        return terms[0] if len(terms) == 1 else added(*terms)

    def join_query(
        self, q: Tensor, k: Tensor, q_pos: Run, k_pos: Run, scale: float
    ) -> tuple[Tensor, Tensor]:
        """Return one query that has taken up the row of the far keys, and the rest of `bias`."""
        require_heads(q, self.n_heads, self.table.shape[1] // self.n_heads)
        row = 2 * self.span - 1 - self.row_of(distances(q_pos, k_pos, torch.device("cpu")))  # (Lk,)
        rest = q.new_zeros(()).expand(*q.shape[:3], k_pos.length)  # (B, H, 1, Lk)
        if self.key_proj is not None:
            keys = self.rising_rows(self.key_proj, self.key_memo, differences=False)
            rest = one_query_scores(q * scale, keys.to(q.dtype), row)
        if self.query_proj is not None:
            rows = self.rising_rows(self.query_proj, self.query_memo, differences=True)
            q, near = one_query_joined(q, k, rows.to(q.dtype), row, scale)
            far = rest.shape[-1] - near.shape[-1]
            rest = torch.cat([rest[..., :far], rest[..., far:] + near], dim=-1)
        return q, rest
