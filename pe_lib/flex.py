"""Relative biases on a GPU: as a score modification inside PyTorch's flex_attention."""

from __future__ import annotations

from collections.abc import Callable

from torch import Tensor
from torch.nn.attention.flex_attention import create_block_mask, flex_attention

from pe_lib.attention import default_scale, is_consecutive
from pe_lib.relative import RelativeBias, distances

ScoreMod = Callable[[Tensor, Tensor, Tensor, Tensor, Tensor], Tensor]


def distance_score_mod(vector: Tensor, n_queries: int) -> ScoreMod:
    """Return a score modification that adds one value per head and distance.

    Args:
        vector: (H, Lq + Lk - 1), in the order of `distances`.
        n_queries: Lq.
    """

    def score_mod(score: Tensor, batch: Tensor, head: Tensor, i: Tensor, j: Tensor) -> Tensor:
        return score + vector[head, j - i + n_queries - 1]

    return score_mod


def attend_flex(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    encoding: RelativeBias,
    q_pos: Tensor,
    k_pos: Tensor,
    *,
    causal: bool = False,
    kernel: Callable[..., Tensor] = flex_attention,
) -> Tensor:
    """Return the output of `attend` for a `RelativeBias`, with memory O(Lq + Lk) per head.

    Args:
        q: queries, (B, H, Lq, d).
        k: keys, (B, H, Lk, d).
        v: values, (B, H, Lk, d).
        encoding: the bias.
        q_pos: consecutive positions of the queries, (Lq,).
        k_pos: consecutive positions of the keys, (Lk,).
        causal: hide keys whose position is greater than the query's. Blocks that are hidden
            as a whole are skipped. A query with no key left gets zeros, not the mean of v.
        kernel: `torch.compile(flex_attention)` on a GPU; uncompiled, it is a slow reference.

    Raises:
        ValueError: if positions are not consecutive or have a batch axis.
    """
    for name, positions in (("q_pos", q_pos), ("k_pos", k_pos)):
        if not is_consecutive(positions):
            raise ValueError(
                f"{name} must be consecutive positions of shape (length,), "
                f"got shape {tuple(positions.shape)}; `attend` takes any"
            )
    vector = encoding.of_distance(distances(q_pos, k_pos)).to(q.dtype)
    blocks = None
    if causal:
        blocks = create_block_mask(
            lambda batch, head, i, j: k_pos[j] <= q_pos[i],
            None,
            None,
            len(q_pos),
            len(k_pos),
            device=q.device,
        )
    scale = default_scale(encoding, q.shape[-1])
    score_mod = distance_score_mod(vector, len(q_pos))
    return kernel(q, k, v, score_mod=score_mod, block_mask=blocks, scale=scale)
