"""Transformer-XL: sinusoidal distances, two global biases, and a memory (chapter 6).

XLNet uses the same scores, and adds a fourth term that tells whether two tokens belong to the
same segment; that term holds no position and is not here.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor, nn

from pe_lib.encoding import PositionEncoding
from pe_lib.errors import (
    may_read,
    require_at_least,
    require_floating,
    require_greater,
    require_heads,
    require_multiple,
    require_positive,
    require_real,
)
from pe_lib.fast import Memo, added, picked_scores, skewed_scores
from pe_lib.initial import linear, normal
from pe_lib.positions import Positions, Run, as_positions, placed, relative_position
from pe_lib.relative import distances
from pe_lib.sinusoidal import sinusoidal


def distance_codes(
    relative: Tensor, dim: int, base: float = 10000.0, clamp: int | None = None
) -> Tensor:
    """Return R for each distance (key minus query).

    Args:
        relative: integers, (N,).
        dim: width; even.
        base: as in `sinusoidal`.
        clamp: distances beyond it get its code; None for no limit.

    Returns:
        (N, dim): all sines, then all cosines, of query MINUS key. The papers count a key to
        the left as positive, and a sine remembers the sign.

    Source: Dai et al. 2019, section 3.3; the order of the columns is their code's.
    """
    relative = require_real("relative", relative)
    if clamp is not None:
        require_positive("clamp", clamp)
        relative = relative.clamp(-clamp, clamp)
    return sinusoidal(-relative, dim, base, layout="half", dtype=torch.float64)


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
        (B, H, Lq, Lk): u . k_j + (q_i + v) . rows[index_ij], by way of a vector per pair;
        `TransformerXL` gets it without. With <q, k> these are the terms (a) to (d).

    Raises:
        ValueError: if a shape does not fit.

    Source: Dai et al. 2019, section 3.3.
    """
    for name, vectors in (("u", u), ("v", v)):
        if vectors.shape != (q.shape[1], q.shape[3]):
            raise ValueError(
                f"{name} must have shape (H, d) = {(q.shape[1], q.shape[3])}, "
                f"got {tuple(vectors.shape)}"
            )
    if rows.ndim != 3 or rows.shape[::2] != u.shape:
        raise ValueError(
            f"rows must have shape ({u.shape[0]}, N, {u.shape[1]}), got {tuple(rows.shape)}"
        )
    vectors = rows[:, index].movedim(0, -4)  # (H, Lq, Lk, d) or (B, H, Lq, Lk, d)
    queries = (q + v.unsqueeze(-2)).unsqueeze(-2)  # (B, H, Lq, 1, d)
    content = (k @ u.unsqueeze(-1)).mT  # (B, H, 1, Lk)
    return content + (queries * vectors).sum(-1)  # (B, H, Lq, Lk)


def distinct(relative: Tensor) -> tuple[Tensor, Tensor]:
    """Return the distances that there are, (N,), and which of them each pair has.

    Where no number may be looked at, N counts all pairs.
    """
    if torch.compiler.is_compiling() or may_read(relative):
        values, index = torch.unique(relative, return_inverse=True)
        return values, index
    index = torch.arange(relative.numel(), device=relative.device)
    return relative.flatten(), index.view(relative.shape)


class TransformerXL(PositionEncoding):
    """The position terms of Transformer-XL and XLNet.

    Args:
        d_model: width D of the codes R; even.
        n_heads: number of heads H; must divide d_model.
        base: as in `sinusoidal`.
        clamp: distances beyond it look the same; None for no limit.
        std: standard deviation of the initial u and v; 0 starts without a preference.

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
        self.base = require_greater("base", base, 1)
        require_at_least("std", std, 0)
        self.clamp = None if clamp is None else require_positive("clamp", clamp)
        self.u = nn.Parameter(normal(n_heads, d_model // n_heads, std=std))  # (H, d)
        self.v = nn.Parameter(normal(n_heads, d_model // n_heads, std=std))  # (H, d)
        self.r_proj = linear(d_model, d_model, bias=False)  # W_KR
        self.memo = Memo()

    def rows(self, relative: Tensor) -> Tensor:
        """Return the projected codes W_KR R of distances: (N,) -> (H, N, d)."""
        weight = self.r_proj.weight
        codes = distance_codes(relative, weight.shape[1], self.base, self.clamp)
        projected: Tensor = self.r_proj(placed(codes, weight.device, weight.dtype))  # (N, D)
        return projected.view(-1, *self.u.shape).transpose(0, 1)

    def past_rows(self, n_keys: int, device: torch.device) -> Tensor:
        """Return `rows` of the distances 1 - n_keys to 0, (H, n_keys, d), once per weights."""
        held = 2 ** max(10, (n_keys - 1).bit_length())  # more than asked for: the past grows

        def compute() -> Tensor:
            return self.rows(torch.arange(1 - held, 1, device=device)).contiguous()

        rows: Tensor = self.memo([self.r_proj.weight], held, compute)
        return rows[:, held - n_keys :]

    def run_rows(self, q_pos: Run, k_pos: Run, device: torch.device) -> Tensor:
        """Return `rows` of the distances between two runs, (H, Lq + Lk - 1, d)."""
        if q_pos.length == 1 and k_pos.stop == q_pos.stop:  # the newest token asks
            return self.past_rows(k_pos.length, device)
        return self.rows(distances(q_pos, k_pos, device))

    def bias(
        self, q: Tensor, k: Tensor, q_pos: Positions, k_pos: Positions, scale: float
    ) -> Tensor:
        """Return scale * `transformer_xl_bias`, (B, H, Lq, Lk)."""
        require_heads(q, *self.u.shape)
        self.memo.forget_in_training()
        q_pos = as_positions("q_pos", q_pos, q.shape[-2], q.shape[0], q.device, integers=True)
        k_pos = as_positions("k_pos", k_pos, k.shape[-2], q.shape[0], q.device, integers=True)
        index = None
        if not (isinstance(q_pos, Run) and isinstance(k_pos, Run)):
            relative = relative_position(q_pos, k_pos, q.device)
            relative, index = distinct(relative)
            rows = self.rows(relative)
        else:
            rows = self.run_rows(q_pos, k_pos, q.device)
        u, v = self.u.to(q.dtype) * scale, self.v.to(q.dtype) * scale
        queries, rows = q * scale + v.unsqueeze(-2), rows.to(q.dtype)  # (B, H, Lq, d)
        if index is None:
            position = skewed_scores(queries, rows, k.shape[-2])
        else:
            position = picked_scores(queries, rows, index)
        return added(position, (k @ u.unsqueeze(-1)).mT)  # plus (B, H, 1, Lk)

    def join_query(
        self, q: Tensor, k: Tensor, q_pos: Run, k_pos: Run, scale: float
    ) -> tuple[Tensor, Tensor]:
        """Return one query with u, and the term of (q + v), the rest of `bias`."""
        require_heads(q, *self.u.shape)
        rows = self.run_rows(q_pos, k_pos, q.device)
        u, v = (each.to(q.dtype).unsqueeze(-2) for each in (self.u, self.v))  # (H, 1, d)
        return q + u, skewed_scores((q + v) * scale, rows.to(q.dtype), k_pos.length)


class SegmentMemory:
    """The last hidden states that entered a layer, kept for the next segment.

    Args:
        length: how many states to keep, M; 0 keeps none.
    """

    def __init__(self, length: int) -> None:
        """Start empty, at position 0."""
        self.length, self.position = require_positive("memory_length", length, least=0), 0
        self.states: Tensor | None = None  # (B, up to M, D)

    def extend(self, x: Tensor) -> tuple[Tensor, Run, Run]:
        """Put the memory before a segment, and keep the end of both, cut from the gradient.

        Args:
            x: hidden states of the segment, (B, L, D).

        Returns:
            context (B, up to M + L, D), the positions of x and those of the context.
        """
        held = self.states
        shape = None if held is None else (held.shape[0], held.shape[2])
        if require_floating("x", x).ndim != 3 or shape not in (None, (x.shape[0], x.shape[2])):
            raise ValueError(
                "x must have shape (B, L, D), with the B and D of the memory, "
                f"{'any' if shape is None else shape}; got {tuple(x.shape)}"
            )
        context = x if self.states is None else torch.cat([self.states, x], dim=1)
        self.position += x.shape[1]
        self.states = context[:, max(0, context.shape[1] - self.length) :].detach()
        q_pos, k_pos = (Run(self.position - each.shape[1], each.shape[1]) for each in (x, context))
        return context, q_pos, k_pos


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
    if not isinstance(layers, Sequence | nn.ModuleList | nn.Sequential):
        raise TypeError(f"layers must be a sequence of layers, got {type(layers).__name__}")
    if require_floating("x", x).ndim != 3:
        raise ValueError(f"x must have shape (B, L, D), got {tuple(x.shape)}")
    memories = [SegmentMemory(memory_length) for _ in layers]
    outputs = []
    for segment in torch.split(x, segment_length, dim=1):
        for layer, memory in zip(layers, memories, strict=True):
            context, q_pos, k_pos = memory.extend(segment)
            segment = layer(segment, context=context, q_pos=q_pos, k_pos=k_pos)
        outputs.append(segment)
    return torch.cat(outputs, dim=1)  # (B, L, D)
