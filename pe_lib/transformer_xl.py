"""Transformer-XL: sinusoidal distances, two global biases, and a memory (chapter 6).

    score_ij = (q_i . k_j + u . k_j + (q_i + v) . W_KR R_(i - j)) / sqrt(d)

XLNet uses the same scores, and adds a fourth term that tells whether two tokens belong to the
same segment; that term holds no position and is not here.
"""

import torch
from torch import Tensor, nn

from pe_lib.encoding import PositionEncoding, relative_position
from pe_lib.initial import linear, normal
from pe_lib.relative import distances, dots, number_of_distance
from pe_lib.sinusoidal import sinusoidal


def distance_codes(relative: Tensor, dim: int, clamp: int | None = None) -> Tensor:
    """Return R for each distance (key minus query).

    Args:
        relative: integers, (N,).
        dim: width; even.
        clamp: distances beyond it get its code; None for no limit.

    Returns:
        (N, dim): all sines, then all cosines, of query MINUS key. The papers count a key to
        the left as positive, and a sine remembers the sign.

    Source: Dai et al. 2019, section 3.3; the order of the columns is their code's.
    """
    relative = relative if clamp is None else relative.clamp(-clamp, clamp)
    return sinusoidal(-relative, dim, layout="half", dtype=torch.float64)


def transformer_xl_bias(
    q: Tensor, k: Tensor, u: Tensor, v: Tensor, rows: Tensor, index: Tensor
) -> Tensor:
    """Return the three terms that position adds to <q, k>, not yet scaled: the formula.

    Args:
        q: queries, (B, H, Lq, d).
        k: keys, (B, H, Lk, d).
        u: (H, d), the query of the content bias.
        v: (H, d), the query of the position bias.
        rows: (H, N, d), the projected codes W_KR R of N distances.
        index: which of them each pair has, (Lq, Lk) or (B, Lq, Lk).

    Returns:
        (B, H, Lq, Lk): u . k_j + (q_i + v) . rows[index_ij]. With <q, k> these are the terms (a)
        to (d).

    Source: Dai et al. 2019, section 3.3.
    """
    content = (k @ u.unsqueeze(-1)).mT  # (B, H, 1, Lk): the same for every query
    return dots(q + v.unsqueeze(-2), rows, index) + content


class TransformerXL(PositionEncoding):
    """The position terms of Transformer-XL and XLNet.

    Args:
        d_model: width D of the codes R; even.
        n_heads: number of heads H; must divide d_model.
        clamp: distances beyond it look the same; None for no limit.
        std: standard deviation of the initial u and v; 0 starts without a preference.

    Source: Dai et al. 2019, section 3.3; Yang et al. 2019, appendix A.2.
    """

    def __init__(
        self,
        d_model: int,
        n_heads: int,
        *,
        clamp: int | None = None,
        std: float = 0.02,
    ) -> None:
        """Create u, v and the projection of the codes."""
        super().__init__()
        if d_model % n_heads:
            raise ValueError(f"n_heads={n_heads} must divide d_model={d_model}")
        self.n_heads, self.head_dim, self.clamp = n_heads, d_model // n_heads, clamp
        self.u = nn.Parameter(normal(n_heads, self.head_dim, std=std))  # (H, d)
        self.v = nn.Parameter(normal(n_heads, self.head_dim, std=std))  # (H, d)
        self.r_proj = linear(d_model, d_model, bias=False)  # W_KR

    def rows(self, relative: Tensor) -> Tensor:
        """Return the projected codes W_KR R of distances: (N,) -> (H, N, d)."""
        weight = self.r_proj.weight
        codes = distance_codes(relative, weight.shape[1], self.clamp).to(weight)
        rows: Tensor = self.r_proj(codes).unflatten(-1, self.u.shape)  # (N, H, d)
        return rows.transpose(0, 1)

    def bias(self, q: Tensor, k: Tensor, q_pos: Tensor, k_pos: Tensor, scale: float) -> Tensor:
        """Return scale * `transformer_xl_bias`, (B, H, Lq, Lk)."""
        found, index = torch.unique(relative_position(q_pos, k_pos), return_inverse=True)
        return self.scores(q, k, found, index, scale)

    def consecutive_bias(
        self, q: Tensor, k: Tensor, q_start: int, k_start: int, scale: float
    ) -> Tensor:
        """Return the same from Lq + Lk - 1 distances."""
        every = distances(q, k, q_start, k_start)
        return self.scores(q, k, every, number_of_distance(q, k), scale)

    def scores(self, q: Tensor, k: Tensor, relative: Tensor, index: Tensor, scale: float) -> Tensor:
        """Return scale * `transformer_xl_bias` from the rows of some distances, (N,)."""
        u, v = self.u.to(q.dtype) * scale, self.v.to(q.dtype) * scale
        return transformer_xl_bias(q * scale, k, u, v, self.rows(relative), index)
