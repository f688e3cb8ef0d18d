"""Transformer-XL: sinusoidal distances, two global biases, and a memory (chapter 6).

XLNet uses the same scores, and adds a fourth term that tells whether two tokens belong to the
same segment; that term holds no position and is not here.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor, nn

from pe_lib.attention import PositionEncoding, default_scale, relative_position
from pe_lib.errors import require_floating, require_multiple, require_positive
from pe_lib.shaw import consecutive_distances, integer_positions, picked_scores, skewed_scores
from pe_lib.sinusoidal import sinusoidal


def distance_codes(
    distances: Tensor, dim: int, base: float = 10000.0, clamp: int | None = None
) -> Tensor:
    """Return R for each distance (key minus query).

    Args:
        distances: integers, (N,).
        dim: width; even.
        base: as in `sinusoidal`.
        clamp: distances beyond it get its code; None for no limit.

    Returns:
        (N, dim): all sines, then all cosines, of query MINUS key. The papers count a key to
        the left as positive, and a sine remembers the sign.

    Source: Dai et al. 2019, section 3.3; the order of the columns is their code's.
    """
    if clamp is not None:
        distances = distances.clamp(-clamp, clamp)
    return sinusoidal(-distances, dim, base, layout="halves", dtype=torch.float64)


def transformer_xl_bias(
    q: Tensor, k: Tensor, u: Tensor, v: Tensor, rows: Tensor, index: Tensor | None = None
) -> Tensor:
    """Return the three terms that position adds to <q, k>, not yet scaled.

    Args:
        q: queries, (B, H, Lq, d).
        k: keys, (B, H, Lk, d).
        u: (H, d), the query of the content bias.
        v: (H, d), the query of the position bias.
        rows: (H, N, d), the projected codes W_KR R. N = Lq + Lk - 1 distances in rising order
            if index is None.
        index: the row of each pair, (Lq, Lk) or (B, Lq, Lk).

    Returns:
        (B, H, Lq, Lk): u . k_j + (q_i + v) . rows. With <q, k> these are the terms (a) to (d).

    Source: Dai et al. 2019, section 3.3.
    """
    queries = q + v.unsqueeze(-2)  # (B, H, Lq, d)
    if index is None:
        position = skewed_scores(queries, rows, k.shape[-2])
    else:
        position = picked_scores(queries, rows, index)
    content = (k @ u.unsqueeze(-1)).mT  # (B, H, 1, Lk)
    # In place: a second tensor of this size would cost more than the sum.
    return position.add_(content)


class TransformerXL(PositionEncoding):
    """The position terms of Transformer-XL and XLNet.

    Args:
        d_model: width D of the codes R; even.
        n_heads: number of heads H; must divide d_model.
        base: as in `sinusoidal`.
        clamp: distances beyond it look the same; None for no limit.
        std: standard deviation of the initial u and v.

    Raises:
        TypeError: if an integer argument is not an int.
        ValueError: if n_heads does not divide d_model, d_model is odd, or clamp is below 1.

    Source: Dai et al. 2019, section 3.3; Yang et al. 2019, appendix A.2.
    """

    def __init__(
        self,
        d_model: int,
        n_heads: int,
        *,
        base: float = 10000.0,
        clamp: int | None = None,
        std: float = 0.02,
    ) -> None:
        """Create u, v and the projection of the codes."""
        super().__init__()
        require_positive("n_heads", n_heads)
        require_multiple("d_model", d_model, 2, "a sine and a cosine for each frequency")
        require_multiple("d_model", d_model, n_heads, "n_heads must divide it")
        self.base = base
        self.clamp = None if clamp is None else require_positive("clamp", clamp)
        self.u = nn.Parameter(torch.randn(n_heads, d_model // n_heads) * std)  # (H, d)
        self.v = nn.Parameter(torch.randn(n_heads, d_model // n_heads) * std)  # (H, d)
        self.r_proj = nn.Linear(d_model, d_model, bias=False)  # W_KR

    def bias(self, q: Tensor, k: Tensor, q_pos: Tensor, k_pos: Tensor) -> Tensor:
        """Return the position terms over sqrt(d), (B, H, Lq, Lk)."""
        q_pos = integer_positions("q_pos", q_pos, q.shape[-2], len(q))
        k_pos = integer_positions("k_pos", k_pos, k.shape[-2], len(q))
        distances, index = consecutive_distances(q_pos, k_pos), None
        if distances is None:
            relative = relative_position(q_pos, k_pos)
            distances, index = torch.unique(relative, return_inverse=True)
        weight = self.r_proj.weight
        codes = distance_codes(distances, weight.shape[1], self.base, self.clamp)
        rows = self.r_proj(codes.to(weight.dtype)).view(-1, *self.u.shape)  # (N, H, d)
        rows = rows.transpose(0, 1).to(q.dtype)  # (H, N, d)
        scale = default_scale(self, q.shape[-1])
        u, v = self.u.to(q.dtype) * scale, self.v.to(q.dtype) * scale
        return transformer_xl_bias(q * scale, k, u, v, rows, index)


class SegmentMemory:
    """The last hidden states that entered a layer, kept for the next segment.

    Args:
        length: how many states to keep, M; 0 keeps none.
    """

    def __init__(self, length: int) -> None:
        """Start empty, at position 0."""
        if isinstance(length, bool) or not isinstance(length, int):
            raise TypeError(f"memory length must be an int, got {type(length).__name__}")
        if length < 0:
            raise ValueError(f"memory length must be at least 0, got {length}")
        self.length, self.position = length, 0
        self.states: Tensor | None = None  # (B, up to M, D)

    def extend(self, x: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Put the memory before a segment, and keep the end of both, cut from the gradient.

        Args:
            x: hidden states of the segment, (B, L, D).

        Returns:
            context (B, up to M + L, D), the positions of x (L,) and those of the context.
        """
        require_floating("x", x)
        context = x if self.states is None else torch.cat([self.states, x], dim=1)
        self.position += x.shape[1]
        self.states = context[:, max(0, context.shape[1] - self.length) :].detach()
        first = self.position - context.shape[1]
        k_pos = torch.arange(first, self.position, device=x.device)
        return context, k_pos[-x.shape[1] :], k_pos


def run_segments(
    layers: Sequence[nn.Module], x: Tensor, segment_length: int, memory_length: int
) -> Tensor:
    """Run a stack of layers over a long sequence, segment by segment.

    Each layer sees its segment and the last `memory_length` states that entered it before;
    a stack of N layers so reaches N * memory_length positions back.

    Args:
        layers: modules called as `layer(x, context=..., q_pos=..., k_pos=...)`, like
            `MultiHeadAttention`.
        x: (B, L, D).
        segment_length: positions per segment.
        memory_length: states kept by each layer.

    Returns:
        (B, L, D). No gradient passes from one segment to an earlier one.

    Raises:
        TypeError: if a length is not an int.
        ValueError: if segment_length is below 1 or memory_length below 0.

    Source: Dai et al. 2019, section 3.2.
    """
    require_positive("segment_length", segment_length)
    memories = [SegmentMemory(memory_length) for _ in layers]
    outputs = []
    for segment in torch.split(x, segment_length, dim=1):
        for layer, memory in zip(layers, memories, strict=True):
            context, q_pos, k_pos = memory.extend(segment)
            segment = layer(segment, context=context, q_pos=q_pos, k_pos=k_pos)
        outputs.append(segment)
    return torch.cat(outputs, dim=1)  # (B, L, D)
