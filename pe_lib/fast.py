"""Fast forms. Each says which plain formula it computes, and a test holds it against that one.

Nothing here is needed to understand a method: the formulas stand in the methods' own files.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.autograd import forward_ad

from pe_lib.compose import Compose
from pe_lib.encoding import (
    PositionEncoding,
    Reads,
    check_attention,
    default_scale,
    rotated_by,
    whole_bias,
)
from pe_lib.positions import (
    Axes,
    Positions,
    Run,
    allowed_pairs,
    as_places,
    order_of,
    per_head,
    relative_position,
    sent,
)
from pe_lib.relative import RelativeBias, distances, windows

# --- attention -----------------------------------------------------------------------------------


def may_look() -> bool:
    """Return whether numbers on the processor may be read: not in a graph, nor in `torch.func`."""
    return not (torch.compiler.is_compiling() or torch._C._functorch.peek_interpreter_stack())


def attend_fused(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    encoding: PositionEncoding,
    q_pos: Positions | Axes,
    k_pos: Positions | Axes,
    *,
    causal: bool = False,
    mask: Tensor | None = None,
    rotated: bool = False,
    reads: Reads | None = None,
) -> Tensor:
    """Return the output of `attend` through PyTorch's fused kernel, without the weights.

    Arguments as in `attend`. Not for an encoding that uses `values`: it raises a ValueError.
    """
    check_attention(encoding, q, k, v, mask, causal=causal, rotated=rotated)
    if encoding.uses("values"):
        raise ValueError(
            f"encoding must not act on the values, for which {type(encoding).__name__} needs the "
            "weights: use `attend`"
        )
    q_pos = as_places("q_pos", q_pos, q.shape[-2], q.shape[0], q.device)
    k_pos = as_places("k_pos", k_pos, k.shape[-2], q.shape[0], q.device)
    order = order_of(q_pos), order_of(k_pos)
    plain = q, k
    if not rotated:
        q, k = rotated_by(encoding, q, k, q_pos, k_pos)
    v = encoding.rotate_values(v, order[1])
    output = fused_output(q, k, v, encoding, plain, order, causal, mask, reads)
    return encoding.rotate_back(output, order[0])


def fused_output(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    encoding: PositionEncoding,
    plain: tuple[Tensor, Tensor],
    order: tuple[Positions, Positions],
    causal: bool,
    mask: Tensor | None,
    reads: Reads | None,
) -> Tensor:
    """Return the output for rotated q, k and v; `plain` are queries and keys before that."""
    q_pos, k_pos = order
    scale = default_scale(encoding, plain[0].shape[-1])
    sink = encoding.sink(plain[0], q_pos)
    only_bias = not encoding.uses("read_bias") and sink is None
    if only_bias and mask is None and isinstance(q_pos, Run) and isinstance(k_pos, Run):
        if not encoding.uses("bias") and causal and q_pos == k_pos:
            return F.scaled_dot_product_attention(q, k, v, is_causal=True, scale=scale)
        relative = only_relative_bias(encoding)
        if relative is not None and (not causal or k_pos.start <= q_pos.start):
            view = reversed_bias(relative, plain[0], q_pos, k_pos, causal)
            return fused(q.flip(2), k, v, view, scale).flip(2)  # (B, H, Lq, d)
    q, bias = query_and_bias(encoding, q, plain, order, scale, reads)
    allowed = allowed_pairs(q_pos, k_pos, causal, mask, q.device)
    if sink is not None:
        return fused_with_sink(q, k, v, bias, allowed, sink, scale)
    if allowed is None:
        return fused(q, k, v, bias, scale)
    # A query without any key sees all in the kernel, since a softmax of nothing is not a number;
    # its output is the mean of the values, as in `attend`.
    lost = ~allowed.any(dim=-1, keepdim=True)
    bias = q.new_zeros(()) if bias is None else bias
    bias = bias.masked_fill(~(allowed | lost), float("-inf"))
    output = fused(q, k, v, bias, scale)
    return torch.where(lost[(None,) * (4 - lost.ndim)], v.mean(dim=-2, keepdim=True), output)


def query_and_bias(
    encoding: PositionEncoding,
    q: Tensor,
    plain: tuple[Tensor, Tensor],
    order: tuple[Positions, Positions],
    scale: float,
    reads: Reads | None,
) -> tuple[Tensor, Tensor | None]:
    """Return the rotated queries and the whole bias, or what gives the same for less.

    For a step of decoding a method may have `join_query`, with the arguments of `bias`: a term
    that is one vector times every key joins the query, so that the keys are read once. It returns
    the query, (B, H, 1, d), and the rest of the bias, (B, H, 1, Lk). It stands beside the `bias`
    that it stands for: a subclass with another `bias` does not inherit it.
    """
    q_pos, k_pos = order
    owner = next(each for each in type(encoding).__mro__ if "bias" in vars(each))
    join = getattr(encoding, "join_query", None) if "join_query" in vars(owner) else None
    runs = isinstance(q_pos, Run) and isinstance(k_pos, Run)
    if join is None or not runs or plain[0].shape[2] != 1 or not may_look():
        return q, whole_bias(encoding, *plain, q_pos, k_pos, scale, reads)
    joined: tuple[Tensor, Tensor] = join(*plain, q_pos, k_pos, scale)
    return joined


def fused_with_sink(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    bias: Tensor | None,
    allowed: Tensor | None,
    sink: Tensor,
    scale: float,
) -> Tensor:
    """Return what `fused` does with one more key: its logit is the sink, its value zero."""
    shape = (*q.shape[:3], k.shape[2])  # (B, H, Lq, Lk)
    bias = q.new_zeros(()) if bias is None else bias
    if allowed is not None:
        bias = bias.masked_fill(~allowed, float("-inf"))
    bias = torch.cat([bias.expand(shape), sink.to(bias.dtype).expand(*shape[:3], 1)], dim=-1)
    k, v = (torch.cat([x, torch.zeros_like(x[:, :, :1])], dim=2) for x in (k, v))
    return fused(q, k, v, bias.to(q.dtype), scale)


def fused(q: Tensor, k: Tensor, v: Tensor, bias: Tensor | None, scale: float) -> Tensor:
    """Call PyTorch's kernel; `bias` is broadcastable to (B, H, Lq, Lk)."""
    if bias is not None:
        # Four axes: given three, PyTorch gets the same result without its fused kernel.
        bias = bias[(None,) * (4 - bias.ndim)]
    if q.shape[-1] != v.shape[-1]:  # no kernel is for these: PyTorch would also copy all the keys
        logits = (q * scale) @ k.mT  # (B, H, Lq, Lk)
        return (logits if bias is None else logits + bias).softmax(dim=-1) @ v
    return F.scaled_dot_product_attention(q, k, v, attn_mask=bias, scale=scale)


def only_relative_bias(encoding: PositionEncoding) -> RelativeBias | None:
    """Return the encoding's only bias if it is a `RelativeBias`; it may stand in a `Compose`."""
    if isinstance(encoding, RelativeBias):
        return encoding if type(encoding).bias is RelativeBias.bias else None
    if not isinstance(encoding, Compose) or type(encoding).bias is not Compose.bias:
        return None
    biased = [member for member in encoding.members() if member.uses("bias")]
    return only_relative_bias(biased[0]) if len(biased) == 1 else None


def reversed_bias(
    encoding: RelativeBias, q: Tensor, q_pos: Run, k_pos: Run, causal: bool
) -> Tensor:
    """Return `bias` with the queries in reverse order, from one number per distance.

    With the queries reversed a Toeplitz matrix is a Hankel matrix: entry (i, j) depends on
    i + j, so that it is a strided view of Lq + Lk - 1 numbers per head. A causal mask is a
    question of the distance too, and is in it.

    Returns:
        (H, Lq, Lk); row i belongs to query Lq - 1 - i. Memory O(Lq + Lk) per head.
    """
    relative = distances(q_pos, k_pos, q.device)
    vector = encoding.for_heads(q, relative)  # (H, Lq + Lk - 1)
    if causal:
        vector = vector.masked_fill(relative > 0, float("-inf"))
    return windows(vector, k_pos.length)


# --- a cache that grows --------------------------------------------------------------------------

# Rows for which a cache makes room beyond those it is given.
SPARE = 256


@dataclass
class Room:
    """Memory for rows to come, behind those of a cache."""

    memory: Tensor  # (B, H, more than L, d)
    rows: Tensor  # (B, H, L, d): its beginning, as it was returned last


def append_rows(rows: Tensor, new: Tensor, room: Room | None) -> tuple[Tensor, Room | None]:
    """Return torch.cat([rows, new], dim=2), without copying the rows if there is room behind.

    Args:
        rows: (B, H, L, d).
        new: (B, H, n, d), of the same dtype.
        room: what the last call returned. It serves only who brings the rows of that call: those
            of a copy that went another way, or cut or reordered since, get a room of their own.

    Returns:
        (B, H, L + n, d), and the room, None where gradients or a graph are recorded: autograd
        would take what is written behind rows for a change of the rows.
    """
    length, total = rows.shape[2], rows.shape[2] + new.shape[2]
    if torch.is_grad_enabled() or torch.compiler.is_compiling():
        return torch.cat([rows, new], dim=2), None
    if room is None or room.rows is not rows or not has_room(room.memory, total):
        memory = rows.new_empty(*rows.shape[:2], total + SPARE, rows.shape[3])
        memory[:, :, :length] = rows
        room = Room(memory, rows)
    room.memory[:, :, length:total] = new
    room.rows = room.memory[:, :, :total]
    return room.rows, room


def has_room(memory: Tensor, total: int) -> bool:
    """Return whether `total` rows fit, and may be written here and now."""
    writable = torch.is_inference_mode_enabled() or not memory.is_inference()
    return writable and total <= memory.shape[2]


# --- scores against a table of distances: q_i . rows[of the distance of i and j] -----------------

# Queries handled at a time: a block of b queries computes up to b - 1 scores too many per row.
BLOCK = 64


def skew(scores: Tensor, n_keys: int) -> Tensor:
    """Move columns that stand for distances to columns that stand for keys, without a copy.

    Args:
        scores: (..., b, n_keys + b - 1), contiguous; column n stands for the distance of key 0
            from the last of the b queries, plus n.
        n_keys: number of keys.

    Returns:
        (..., b, n_keys): entry (i, j) is scores[..., i, b - 1 - i + j]. A view: writing to it
        writes to `scores`.
    """
    b, width = scores.shape[-2:]
    if b == 1:
        return scores
    # One query further the wanted columns start one column earlier: in rows that are one shorter
    # they stand below each other.
    shorter = scores.flatten(-2)[..., b - 1 : b - 1 + b * (width - 1)]
    rows = shorter.view(*shorter.shape[:-1], b, width - 1)
    return rows[..., :n_keys]


def query_blocks(n_queries: int, n_keys: int) -> Iterator[tuple[slice, slice]]:
    """Yield slices of queries, each with the slice of distances that its queries need."""
    if torch.compiler.is_compiling():  # a loop would fix the length
        yield slice(0, n_queries), slice(0, n_queries + n_keys - 1)
        return
    for start in range(0, n_queries, BLOCK):
        stop = min(start + BLOCK, n_queries)
        yield slice(start, stop), slice(n_queries - stop, n_queries - start + n_keys - 1)


def skewed_scores(queries: Tensor, rows: Tensor, n_keys: int) -> Tensor:
    """Return q_i . rows[Lq - 1 - i + j] for every query i and key j.

    Args:
        queries: (B, H, Lq, d).
        rows: (Lq + Lk - 1, d), or (H, Lq + Lk - 1, d): a vector per distance, in rising order.
        n_keys: Lk.

    Returns:
        (B, H, Lq, Lk). Beyond the result this takes memory for one block of queries only; when
        gradients are recorded, for one more tensor of the result's size.
    """
    blocks = (
        (part, skew(queries[..., part, :] @ rows[..., near, :].mT, n_keys))
        for part, near in query_blocks(queries.shape[-2], n_keys)
    )
    recorded = torch.is_grad_enabled() and (queries.requires_grad or rows.requires_grad)
    if recorded or not may_look():
        return torch.cat([block for _, block in blocks], dim=-2)
    scores = queries.new_empty(*queries.shape[:-1], n_keys)
    for part, block in blocks:
        scores[..., part, :] = block
    return scores  # (B, H, Lq, Lk)


def added(scores: Tensor, more: Tensor) -> Tensor:
    """Return the sum in the memory of `scores`: a second tensor of its size costs more than it."""
    return scores.add_(more) if may_look() else scores + more


def picked_scores(queries: Tensor, table: Tensor, row: Tensor) -> Tensor:
    """Return q_i . table[row_ij] for any rows: every query meets every row once.

    Args:
        queries: (B, H, Lq, d).
        table: (N, d), or (H, N, d).
        row: row numbers, (Lq, Lk) or (B, Lq, Lk).

    Returns:
        (B, H, Lq, Lk), gathered from (B, H, Lq, N).
    """
    scores = queries @ table.mT  # (B, H, Lq, N)
    return scores.gather(-1, per_head(row).expand(*scores.shape[:-1], row.shape[-1]))


def rises_by_one(row: Tensor) -> bool:
    """Return whether each row number, (Lk,) on the processor, is the one before and one."""
    numbers = row.numpy()  # no operation of PyTorch, which would count as reading a device
    return bool((numbers[1:] - numbers[:-1] == 1).all())


def one_query_scores(queries: Tensor, table: Tensor, row: Tensor) -> Tensor:
    """Return q . table[row_j] for one query: it meets the rows between the lowest and the highest.

    Args:
        queries: (B, H, 1, d).
        table: (N, d), or (H, N, d).
        row: row numbers of the keys, (Lk,), on the processor.

    Returns:
        (B, H, 1, Lk).
    """
    numbers = row.numpy()
    lowest, highest = int(numbers.min()), int(numbers.max())
    scores = queries @ table[..., lowest : highest + 1, :].mT  # (B, H, 1, rows)
    far = int((numbers == numbers[0]).sum())
    if not rises_by_one(row[far - 1 :]):
        return scores.index_select(-1, sent(row - lowest, scores.device))
    return torch.cat([scores[..., :1].expand(*scores.shape[:-1], far - 1), scores], dim=-1)


def one_query_joined(
    q: Tensor, k: Tensor, table: Tensor, row: Tensor, scale: float
) -> tuple[Tensor, Tensor]:
    """Return what gives one query scale * (q + p_j) . k_j without reading the far keys twice.

    p_j is the first row of the table for far keys. It joins the query; near keys add to it.

    Args:
        q: the query, (B, H, 1, d).
        k: keys, (B, H, Lk, d).
        table: (H, N, d); all rows but the first are differences from the first.
        row: rising row numbers of the keys, (Lk,), on the processor.
        scale: the factor on the query-key product.

    Returns:
        The query that all keys meet, (B, H, 1, d), and what is added to the scaled scores of the
        near keys, which are the last, (B, H, 1, near).
    """
    far = int((row.numpy() == 0).sum())
    near = row[far:]
    if len(near) and rises_by_one(near):
        start = int(near.numpy()[0])
        rows = table[..., start : start + len(near), :]  # without a copy
    else:
        rows = table.index_select(-2, sent(near, table.device))
    more = (k[..., far:, :] * rows).sum(-1).mul_(scale)  # (B, H, near)
    return q + table[..., :1, :], more.unsqueeze(-2)


def table_scores(
    queries: Tensor,
    table: Tensor,
    row_of: Callable[[Tensor], Tensor],
    q_pos: Positions,
    k_pos: Positions,
) -> Tensor:
    """Return q_i . table[row_of(k_pos_j - q_pos_i)].

    Args:
        queries: (B, H, Lq, d).
        table: (N, d), or (H, N, d).
        row_of: maps distances (key minus query) of any shape to row numbers.
        q_pos: Lq positions, integers.
        k_pos: Lk positions, integers.

    Returns:
        (B, H, Lq, Lk).
    """
    if isinstance(q_pos, Run) and isinstance(k_pos, Run):
        # A step of decoding; rows are looked at where that waits for no device.
        if q_pos.length == 1 and may_look():
            row = row_of(distances(q_pos, k_pos, torch.device("cpu")))
            return one_query_scores(queries, table, row)
        if q_pos.length > 1:
            row = row_of(distances(q_pos, k_pos, queries.device))
            return skewed_scores(queries, table.index_select(-2, row), k_pos.length)
    return picked_scores(queries, table, row_of(relative_position(q_pos, k_pos, queries.device)))


def table_sums(
    weights: Tensor,
    table: Tensor,
    row_of: Callable[[Tensor], Tensor],
    q_pos: Positions,
    k_pos: Positions,
) -> Tensor:
    """Return the sum over j of weights_ij * table[row_of(k_pos_j - q_pos_i)].

    Arguments as in `table_scores`, with weights (B, H, Lq, Lk) and a table (N, d).

    Returns:
        (B, H, Lq, d).
    """
    if isinstance(q_pos, Run) and isinstance(k_pos, Run):
        rows = table[row_of(distances(q_pos, k_pos, weights.device))]  # (Lq + Lk - 1, d)
        if q_pos.length == k_pos.length == 1:
            return weights * rows
        sums = []
        for part, near in query_blocks(q_pos.length, k_pos.length):
            n_rows = (part.stop - part.start, near.stop - near.start)
            by_distance = weights.new_zeros(*weights.shape[:-2], *n_rows)
            skew(by_distance, k_pos.length).copy_(weights[..., part, :])
            sums.append(by_distance @ rows[near])
        return torch.cat(sums, dim=-2)
    row = per_head(row_of(relative_position(q_pos, k_pos, weights.device))).expand_as(weights)
    by_row = weights.new_zeros(*weights.shape[:-1], len(table)).scatter_add(-1, row, weights)
    return by_row @ table


# --- rotations: (a, b) -> (a cos - b sin, a sin + b cos) -----------------------------------------


def rotate(x: Tensor, codes: Tensor, layout: str = "interleaved") -> Tensor:
    """Rotate the first r components of x; leave the others as they are. See `rope.apply_rope`.

    Args:
        x: (..., L, d).
        codes: cosines and sines of the angles in the same layout, broadcastable to (..., L, r),
            with r even and at most d. A cosine stands where a pair has its first component.
        layout: which components form a pair: "interleaved" or "half".

    Returns:
        (..., L, d) in the dtype of x; the arithmetic is in float32 at least.
    """
    width = codes.shape[-1]
    if width < x.shape[-1]:
        rest = x[..., width:]
        return torch.cat([rotate(x[..., :width], codes, layout), rest], dim=-1)
    dtype = torch.promote_types(x.dtype, torch.float32)
    work, codes = x.to(dtype), codes.to(dtype)
    if layout == "interleaved":
        rotated = rotate_interleaved(work, codes)
    elif may_look() and work.requires_grad and is_constant(codes):
        rotated = RotateHalfSplit.apply(work, codes)  # type: ignore[no-untyped-call]
    else:
        rotated = rotate_half_split(work, codes)
    return rotated.to(x.dtype)


def is_constant(codes: Tensor) -> bool:
    """Return whether no derivative by the codes is asked for, backward or forward."""
    return not codes.requires_grad and forward_ad.unpack_dual(codes).tangent is None


def rotate_interleaved(x: Tensor, codes: Tensor) -> Tensor:
    """Rotate neighbours: each pair is a complex number, multiplied by cos + i sin."""
    if torch.compiler.is_compiling():  # it has no complex numbers, and makes the formula fast
        (a, b), (cos, sin) = ((y[..., ::2], y[..., 1::2]) for y in (x, codes))
        return torch.stack([a * cos - b * sin, a * sin + b * cos], dim=-1).flatten(-2)
    return torch.view_as_real(as_complex(x) * as_complex(codes)).flatten(-2)  # (..., d)


def few_angles(rates: Tensor) -> bool:
    """Return whether `run_codes` may stand for the formula: not for angles of published float32."""
    return rates.dtype == torch.float64 and not torch.compiler.is_compiling()


def run_codes(
    positions: Run,
    rates: Tensor,
    dtype: torch.dtype,
    layout: str,
    *,
    gain: float = 1.0,
    phase: float = 0.0,
    growth: Tensor | None = None,
    middle: float = 0.0,
) -> Tensor:
    """Return gain * cos and gain * sin of position times rate plus phase, from few angles.

    A position is the first of a block plus a rest: two rotations one after the other, which are
    a product of complex numbers.

    Args:
        positions: L consecutive positions.
        rates: (n,) in float64.
        dtype: of the result, float32 or float64. Angles are in float64 in any case.
        layout: as in `rotate`.
        gain: factor on all codes.
        phase: added to all angles, in radians.
        growth: (n,); codes are multiplied by exp(growth * (position - middle)).
        middle: the position at which that is 1.

    Returns:
        (L, 2n), as `rotate` wants it.
    """
    block = math.isqrt(positions.length) + 1
    firsts = torch.arange(positions.start, positions.stop, block, device=rates.device)
    rests = torch.arange(block, device=rates.device)

    def rotations(places: Tensor, size: float, first: float, origin: float) -> Tensor:
        angles = places.double().unsqueeze(-1) * rates + first  # (..., n)
        sizes = torch.full_like(angles, size)
        if growth is not None:
            sizes *= ((places.double() - origin).unsqueeze(-1) * growth).exp()
        return torch.polar(sizes, angles).to(dtype.to_complex())

    outer, inner = rotations(firsts, gain, phase, middle), rotations(rests, 1.0, 0.0, 0.0)
    codes = (outer.unsqueeze(1) * inner).flatten(0, 1)[: positions.length]  # (L, n)
    if layout == "interleaved":
        return torch.view_as_real(codes).flatten(-2)
    return torch.cat([codes.real, codes.imag], dim=-1)


def as_complex(x: Tensor) -> Tensor:
    """See the pairs of x (..., 2n) as complex numbers (..., n)."""
    pairs = x.unflatten(-1, (-1, 2))
    steps = (pairs.storage_offset(), *pairs.stride()[:-1])
    if pairs.stride(-1) != 1 or any(step % 2 for step in steps):
        pairs = pairs.clone(memory_format=torch.contiguous_format)
    return torch.view_as_complex(pairs)


def rotate_half_split(x: Tensor, codes: Tensor) -> Tensor:
    """Rotate component j with component j + d/2, in one new tensor."""
    half = x.shape[-1] // 2
    cos, sin = codes[..., :half], codes[..., half:]
    first, second = x[..., :half], x[..., half:]
    rotated = x * torch.cat([cos, cos], dim=-1)  # (..., d)
    rotated[..., :half].addcmul_(second, sin, value=-1)
    rotated[..., half:].addcmul_(first, sin)
    return rotated


class RotateHalfSplit(torch.autograd.Function):
    """`rotate_half_split` with its backward pass: rotating back, twice as fast as recorded."""

    generate_vmap_rule = True

    @staticmethod
    def forward(x: Tensor, codes: Tensor) -> Tensor:
        """Rotate x; the codes are constants."""
        return rotate_half_split(x, codes)

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Tensor, Tensor], output: Tensor) -> None:
        """Keep the codes; x is not needed."""
        ctx.save_for_backward(inputs[1])
        ctx.save_for_forward(inputs[1])

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor, None]:
        """Rotate the gradient by the negative angles."""
        cos, sin = ctx.saved_tensors[0].chunk(2, dim=-1)
        codes = torch.cat([cos, -sin], dim=-1)
        back: Tensor = RotateHalfSplit.apply(grads[0], codes)  # type: ignore[no-untyped-call]
        return back, None

    @staticmethod
    def jvp(ctx: Any, *tangents: Tensor) -> Tensor:
        """Rotate the tangent: the map is linear."""
        return rotate_half_split(tangents[0], ctx.saved_tensors[0])


# --- computed once -------------------------------------------------------------------------------


class CachedCodes(PositionEncoding):
    """An encoding that keeps its codes for the positions 0, ..., max_len - 1.

    A subclass writes `compute`. The cache is neither parameter nor buffer: it is no part of the
    state_dict, and a cast of the module cannot round it. Where it has another dtype or device
    than is wanted, it is computed anew.
    """

    cache: Tensor
    max_len: int

    def compute(self, positions: Tensor) -> Tensor:
        """Return the codes of any positions in float64: (...) -> (..., width)."""
        raise NotImplementedError

    def fill_cache(self, dtype: torch.dtype, device: torch.device | str) -> None:
        """Compute the cache, (max_len, width), with the accuracy of float64."""
        with torch.inference_mode(False):  # a training that follows may save it
            try:
                positions = torch.arange(self.max_len, device="cpu")
            except RuntimeError as error:
                raise ValueError(f"max_len must fit into memory, got {self.max_len}") from error
            self.cache = self.compute(positions).detach().to(device, dtype)

    def codes(self, positions: Positions, like: Tensor) -> Tensor:
        """Return the codes of positions, (L,) or (B, L) -> (..., width), from the cache for a run.

        They have the device of `like` and its dtype, or float32 if that is coarser.
        """
        dtype = torch.promote_types(like.dtype, torch.float32)
        if isinstance(positions, Run):
            fits = self.cache.dtype == dtype and self.cache.device == like.device
            held = positions.start >= 0 and positions.stop <= self.max_len
            # What is made while a program is exported is no tensor for later.
            if held and (fits or not torch.compiler.is_exporting()):
                if not fits:
                    self.fill_cache(dtype, like.device)
                return self.cache[positions.start : positions.stop]  # a view, no copy
            positions = positions.tensor(like.device)
        return self.compute(positions).to(like.device, dtype)


class Memo(nn.Module):
    """What was computed from parameters, kept while they are used and not trained.

    It is kept in `eval()` mode where no gradients are recorded. A change of the mode, a call with
    gradients, or new versions of the parameters forget it; versions alone would not do, since
    optimizers that update all parameters at once (`fused=True`) do not count them. In `eval()`
    mode a change through `.data`, or a fused step after a call without gradients, is not seen.
    """

    def __init__(self) -> None:
        """Start empty."""
        super().__init__()
        self.forget()

    def forget(self) -> None:
        """Keep nothing."""
        # Key, value, and the parameters with their memory, so that no other gets its address. In
        # one tuple, which another thread sees whole.
        self.kept: tuple[object, Tensor, object] | None = None

    def forget_in_training(self) -> None:
        """Keep nothing where gradients are recorded: what follows may change the parameters."""
        if torch.is_grad_enabled() and not torch.compiler.is_compiling():
            self.forget()

    def train(self, mode: bool = True) -> Memo:
        """Forget, and set the mode."""
        self.forget()
        return super().train(mode)

    def forward(
        self, parameters: Sequence[Tensor], settings: object, compute: Callable[[], Tensor]
    ) -> Tensor:
        """Return compute(), or what it returned before for these parameters and settings."""
        if not may_look():
            return compute()
        recorded = torch.is_grad_enabled() and any(p.requires_grad for p in parameters)
        if self.training or recorded or any(p.is_inference() or p.is_meta for p in parameters):
            self.forget()
            return compute()
        devices = {p.device.type for p in parameters}
        cast = [torch.is_autocast_enabled(d) and torch.get_autocast_dtype(d) for d in devices]
        key = (settings, cast, [(id(p), p.data_ptr(), p._version, p.dtype) for p in parameters])
        kept = self.kept
        if kept is None or kept[0] != key:
            with torch.inference_mode(False), torch.no_grad():  # a training may use it, too
                kept = key, compute(), [(p, p.detach()) for p in parameters]
            self.kept = kept
        return kept[1]

    def __reduce__(self) -> tuple[type[Memo], tuple[()], dict[str, bool]]:
        """Copy and pickle as an empty one, in the same mode."""
        return Memo, (), {"training": self.training}
