"""Fast forms: the same numbers for less. Attention chooses them, and no method knows of them.

Nothing here is needed to understand a method. Inside `with off():` attention calls the methods' own
hooks instead, keeps keys and values as projected, and concatenates: the same, up to rounding.
What is kept, a table of cosines for an encoding and rows for a cache, no module holds.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, TypeGuard, TypeVar
from weakref import WeakKeyDictionary

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from pe_lib.axes import AxialRoPE
from pe_lib.compose import Compose, total
from pe_lib.deberta import DeBERTa
from pe_lib.definition import for_queries
from pe_lib.encoding import Places, PositionEncoding, Reads, bias_read, rotate_by
from pe_lib.errors import may_read
from pe_lib.forgetting import Forgetting
from pe_lib.positions import (
    AnyPositions,
    Axes,
    Positions,
    Run,
    allowed_pairs,
    exact,
    order_of,
    per_head,
)
from pe_lib.relative import RelativeBias
from pe_lib.rope import RoPE
from pe_lib.sinusoidal import Sinusoidal, sinusoidal
from pe_lib.transformer_xl import TransformerXL
from pe_lib.xpos import XPos, xpos_factors

Kind = TypeVar("Kind", bound=PositionEncoding)
ON = True


@contextmanager
def off() -> Iterator[None]:
    """Call the methods' own hooks and nothing else, for a while."""
    global ON
    before, ON = ON, False
    try:
        yield
    finally:
        ON = before


def writes(encoding: PositionEncoding, kind: type[Kind], hook: str) -> TypeGuard[Kind]:
    """Return whether an encoding's hook is the one that `kind` writes, and no subclass's own."""
    return isinstance(encoding, kind) and getattr(type(encoding), hook) is getattr(kind, hook)


# --- tables: what constant settings give at the positions from 0 on -------------------------------

MOST_ROWS = 2**16
TABLES: WeakKeyDictionary[PositionEncoding, tuple[Any, list[Tensor], Tensor]] = WeakKeyDictionary()


def table(
    encoding: PositionEncoding, least: int, make: Callable[[Tensor], Tensor], *state: Any
) -> Tensor:
    """Return `make` of positions 0 to `least` - 1 and more, kept as long as the state is the same.

    Nothing is kept in the module: a cast cannot round it, and no state_dict holds it.
    """
    tensors = [each for each in state if isinstance(each, Tensor)]
    settings = [each for each in state if not isinstance(each, Tensor)]
    kept = TABLES.get(encoding)
    current = kept and kept[0] == settings and all(map(torch.equal, kept[1], tensors))
    if kept is None or not current or len(kept[2]) < least:
        with torch.inference_mode(False), torch.no_grad():  # a training that follows may save it
            places = torch.arange(2 ** max(8, (least - 1).bit_length()), device="cpu")
            kept = settings, [each.clone() for each in tensors], make(places)
        TABLES[encoding] = kept
    return kept[2]


def embed(encoding: PositionEncoding, x: Tensor, positions: Places) -> Tensor:
    """Return what the hook `embed` returns; sinusoidal codes of a run come from a table."""
    if ON and writes(encoding, Compose, "embed"):
        for member in encoding.members():
            x = embed(member, x, positions)
        return x
    known = isinstance(positions, Run) and in_table(positions)
    if not ON or not known or not writes(encoding, Sinusoidal, "embed"):
        return encoding.embed(x, positions)
    encoding.admit({"x": x, "positions": positions})
    state = encoding.base, encoding.layout, x.dtype, x.device

    def codes(places: Tensor) -> Tensor:
        made = sinusoidal(places, encoding.d_model, state[0], layout=state[1], dtype=x.dtype)
        return made.to(x.device)

    rows = table(encoding, positions.stop, codes, *state)[positions.start : positions.stop]
    return x + encoding.gain * rows


def in_table(positions: Run) -> bool:
    """Return whether a table may reach so far; a graph looks nothing up."""
    inside = positions.start >= 0 and positions.stop <= MOST_ROWS
    return inside and not torch.compiler.is_compiling()


# --- rotations: a pair is a complex number, and its rotation is kept in a table -------------------


def rotate(
    encoding: PositionEncoding, q: Tensor, k: Tensor, q_pos: AnyPositions, k_pos: AnyPositions
) -> tuple[Tensor, Tensor]:
    """Return q and k as `rotate` leaves them, or `rotate_axes` where positions are `Axes`."""
    if isinstance(q_pos, Axes) or isinstance(k_pos, Axes):
        return rotate_by(encoding, q, k, q_pos, k_pos)
    if ON and writes(encoding, Compose, "rotate"):
        for member in encoding.members():
            q, k = rotate(member, q, k, q_pos, k_pos)
        return q, k
    found = codes_of(encoding, q, k, q_pos, k_pos)
    if found is None:
        return encoding.rotate(q, k, q_pos, k_pos)
    layout = str(encoding.layout)
    return rotated(q, found[0], layout), rotated(k, found[1], layout)


def codes_of(
    encoding: PositionEncoding, q: Tensor, k: Tensor, q_pos: Positions, k_pos: Positions
) -> tuple[Tensor, Tensor] | None:
    """Return complex factors of queries and keys, or None: a graph has no complex numbers."""
    if not ON or torch.compiler.is_compiling() or q.device.type == "mps":
        return None
    if type(encoding) is XPos and isinstance(q_pos, Run) and isinstance(k_pos, Run):
        return fading(encoding, q, k, q_pos, k_pos) if q_pos.length == 1 else None
    if not isinstance(encoding, RoPE) or type(encoding) not in (RoPE, AxialRoPE):
        return None
    encoding.admit({"q": q, "k": k})
    k_codes = rotations(encoding, k_pos, k)
    return (k_codes if q_pos is k_pos else rotations(encoding, q_pos, q)), k_codes


def rotations(rope: RoPE, positions: Positions, x: Tensor) -> Tensor:
    """Return gain * exp(i angle) for x (B, H, L, d), complex, (L, n) or (B, 1, L, n)."""
    dtype = torch.promote_types(x.dtype, torch.float32).to_complex()

    def codes(places: Tensor) -> Tensor:
        angles = exact(rope.angles(exact(places)))
        return torch.polar(torch.full_like(angles, rope.gain), angles).to(x.device, dtype)

    if isinstance(positions, Run):
        if in_table(positions) and not rope.rates.requires_grad:
            state = rope.gain, rope.rates, getattr(rope, "columns", None), dtype, x.device
            rows = table(rope, positions.stop, codes, *state)
            return rows[positions.start : positions.stop]
        positions = positions.tensor(x.device)
    found = codes(positions)
    return found if found.ndim == 2 else per_head(found)


def fading(
    xpos: XPos, q: Tensor, k: Tensor, q_pos: Run, k_pos: Run
) -> tuple[Tensor, Tensor] | None:
    """Return the factors of `XPos` for a query, (1, n), and its keys, (Lk, n), complex.

    They are counted from the keys' middle. A table has those of keys at half steps from there; the
    query's is the conjugate of a key's on the other side.
    """
    xpos.admit({"q": q, "k": k})
    twice = k_pos.start + k_pos.stop - 1  # the middle of the keys
    reach = max(abs(2 * end - twice) for end in (q_pos.start, k_pos.start, k_pos.stop))
    if 2 * reach > MOST_ROWS or xpos.rates.requires_grad:
        return None
    dtype = torch.promote_types(q.dtype, torch.float32).to_complex()

    def codes(places: Tensor) -> Tensor:
        steps = exact(places - len(places) // 2) / 2
        size = xpos.gain * xpos_factors(-steps, xpos.zeta, xpos.scale_base)
        return torch.polar(size, exact(xpos.angles(steps))).to(q.device, dtype)

    state = xpos.gain, xpos.rates, xpos.zeta, xpos.scale_base, dtype, q.device
    rows = table(xpos, 2 * reach + 1, codes, *state)
    zero = len(rows) // 2 - twice
    return rows[2 * twice + zero - 2 * q_pos.tensor()].conj(), rows[zero + 2 * k_pos.tensor()]


def rotated(x: Tensor, codes: Tensor, layout: str) -> Tensor:
    """Rotate the first 2n components of x (..., L, d) by complex codes (..., L, n)."""
    width = 2 * codes.shape[-1]
    if width < x.shape[-1]:
        return torch.cat([rotated(x[..., :width], codes, layout), x[..., width:]], dim=-1)
    work = x.to(codes.real.dtype)
    if layout == "interleaved":
        return torch.view_as_real(as_complex(work) * codes).flatten(-2).to(x.dtype)
    first, second = work.chunk(2, dim=-1)
    result = work * torch.cat([codes.real, codes.real], dim=-1)  # in one new tensor
    result[..., : width // 2].addcmul_(second, codes.imag, value=-1)
    result[..., width // 2 :].addcmul_(first, codes.imag)
    return result.to(x.dtype)


def as_complex(x: Tensor) -> Tensor:
    """See the pairs of x (..., 2n) as complex numbers (..., n)."""
    pairs = x.unflatten(-1, (-1, 2))
    steps = (pairs.storage_offset(), *pairs.stride()[:-1])
    if pairs.stride(-1) != 1 or any(step % 2 for step in steps):
        pairs = pairs.clone(memory_format=torch.contiguous_format)
    return torch.view_as_complex(pairs)


# --- biases: one number per distance, one row of scores per distance ------------------------------

Runs = tuple[Run, Run]  # of queries and of keys
# What a cache keeps of projected rows, for each module that projects: other settings, and the rows.
Memory = dict[nn.Module, tuple[Any, Tensor]]


def bias_of(
    encoding: PositionEncoding,
    q: Tensor,
    k: Tensor,
    q_pos: Positions,
    k_pos: Positions,
    scale: float,
    reads: Reads | None,
    memory: Memory | None = None,
) -> Tensor | None:
    """Return the sum of `bias` and `read_bias`, or None if there is neither."""
    found = bias(encoding, q, k, q_pos, k_pos, scale, memory)
    return total([found, bias_read(encoding, q, reads, q_pos, k_pos)])


def bias(
    encoding: PositionEncoding,
    q: Tensor,
    k: Tensor,
    q_pos: Positions,
    k_pos: Positions,
    scale: float,
    memory: Memory | None = None,
) -> Tensor | None:
    """Return what the hook `bias` returns; between two runs from fewer numbers."""
    if ON and isinstance(q_pos, Run) and isinstance(k_pos, Run):
        if writes(encoding, Compose, "bias"):
            members = encoding.members()
            return total(bias(each, q, k, q_pos, k_pos, scale, memory) for each in members)
        if writes(encoding, RelativeBias, "bias"):
            vector = bias_vector([encoding], q, q_pos, k_pos)
            return windows(vector, k_pos.length).flip(-2)  # window i belongs to query Lq - 1 - i
        if writes(encoding, TransformerXL, "bias"):
            return transformer_xl(encoding, q, k, (q_pos, k_pos), scale, memory)
        if writes(encoding, DeBERTa, "bias"):
            return deberta(encoding, q, k, (q_pos, k_pos), scale, memory)
    return encoding.bias(q, k, q_pos, k_pos, scale)


def ends(q_pos: Run, k_pos: Run) -> tuple[int, int]:
    """Return the least and the greatest relative position between two runs."""
    return k_pos.start - q_pos.stop + 1, k_pos.stop - 1 - q_pos.start


def distances(q_pos: Run, k_pos: Run, device: torch.device | None = None) -> Tensor:
    """Return every relative position between two runs, rising.

    Returns:
        (Lq + Lk - 1,): the pair (i, j) finds its own at Lq - 1 - i + j.
    """
    first, last = ends(q_pos, k_pos)
    return torch.arange(first, last + 1, device=device)


def relative_biases(encoding: PositionEncoding) -> list[RelativeBias] | None:
    """Return an encoding's biases if it has some and all are of distance alone, else None."""
    if encoding.uses("read_bias"):
        return None
    if writes(encoding, RelativeBias, "bias"):
        return [encoding]
    if not writes(encoding, Compose, "bias"):
        return None
    found = [relative_biases(member) for member in encoding.members() if member.uses("bias")]
    known = [each for biases in found for each in biases or []]
    return known if known and None not in found else None


def bias_vector(biases: list[RelativeBias], q: Tensor, q_pos: Run, k_pos: Run) -> Tensor:
    """Return the sum of biases of the distances between two runs, (H, Lq + Lk - 1)."""
    relative = distances(q_pos, k_pos, q.device)
    for each in biases:
        each.admit({"q": q})
    return torch.stack([each.for_heads(q, relative) for each in biases]).sum(dim=0)


def reversed_bias(vector: Tensor, q_pos: Run, k_pos: Run, causal: bool) -> Tensor:
    """Return a bias with the queries in reverse order, from one number per distance.

    With the queries reversed a Toeplitz matrix is a Hankel matrix: entry (i, j) depends on
    i + j, so that it is a strided view of Lq + Lk - 1 numbers per head. A causal mask is a
    question of the distance too, and is in it.

    Returns:
        (H, Lq, Lk); row i belongs to query Lq - 1 - i. Memory O(Lq + Lk) per head.
    """
    if causal:
        later = distances(q_pos, k_pos, vector.device) > 0
        vector = vector.masked_fill(later, -math.inf)
    return windows(vector, k_pos.length)


def windows(vector: Tensor, length: int) -> Tensor:
    """Return all runs of `length` values: (..., N) -> (..., N - length + 1, length), a view."""
    if torch.compiler.is_compiling():  # which would fix the length of a view
        starts = torch.arange(vector.shape[-1] - length + 1, device=vector.device)
        return vector[..., starts.unsqueeze(-1) + torch.arange(length, device=vector.device)]
    return vector.unfold(-1, length, 1)


def rows_behind(
    memory: Memory | None,
    module: nn.Module,
    settings: Any,
    make: Callable[[Tensor], Tensor],
    q: Tensor,
    between: tuple[int, int],
) -> Tensor:
    """Return `make` of the distances from one end to the other, (H, n, d), of the dtype of q.

    If none is above 0, a cache may keep those from 0 back, with the module that projects them: one
    that is copied starts again. Gradients and graphs want all made anew.
    """
    first, last = between
    if memory is None or torch.is_grad_enabled() or torch.compiler.is_compiling():
        return make(torch.arange(first, last + 1, device=q.device)).to(q.dtype)
    kept, settings = memory.get(module), (settings, q.dtype, q.device)
    rows = kept[1] if kept is not None and kept[0] == settings else None
    known = 0 if rows is None else rows.shape[1]
    if known < 1 - first:
        more = make(torch.arange(first - SPARE, 1 - known, device=q.device)).to(q.dtype)
        rows = torch.cat([more] if rows is None else [more, rows], dim=1)
        memory[module] = settings, rows
    assert rows is not None
    return rows[:, rows.shape[1] - 1 + first : rows.shape[1] + last]


def transformer_xl(
    encoding: TransformerXL, q: Tensor, k: Tensor, places: Runs, scale: float, memory: Memory | None
) -> Tensor:
    """Return `TransformerXL.bias`, (B, H, Lq, Lk), from one row per distance."""
    encoding.admit({"q": q, "k": k, "scale": scale})
    u, v = (each.to(q.dtype)[:, None] * scale for each in (encoding.u, encoding.v))  # (H, 1, d)
    between, state = ends(*places), (encoding.base, encoding.clamp)
    one = q.shape[2] == 1 and between[1] <= 0
    rows = rows_behind(memory if one else None, encoding.r_proj, state, encoding.rows, q, between)
    content = u @ k.mT if one else (k @ u.mT).mT  # (B, H, 1, Lk), the first faster for one query
    return skewed_scores(q * scale + v, rows, k.shape[2]) + content


def deberta(
    encoding: DeBERTa, q: Tensor, k: Tensor, places: Runs, scale: float, memory: Memory | None
) -> Tensor | None:
    """Return `DeBERTa.bias`, (B, H, Lq, Lk), from one row per distance."""
    encoding.admit({"q": q, "k": k, "scale": scale})
    between = ends(*places)
    one = q.shape[2] == 1 and between[1] <= 0

    def rows(projection: nn.Module) -> Tensor:
        """Return the projected row of each distance, (H, n, d)."""

        def make(relative: Tensor) -> Tensor:
            projected: Any = encoding.project(projection)
            return projected[:, encoding.row_of(relative)]  # type: ignore[no-any-return]

        kept = memory if one else None
        return rows_behind(kept, projection, id(encoding.table), make, q, between)

    terms: list[Tensor | None] = []
    if encoding.key_proj is not None:
        terms.append(skewed_scores(q * scale, rows(encoding.key_proj), k.shape[2]))
    if encoding.query_proj is not None:
        queries = rows(encoding.query_proj)
        if one:
            terms.append(scale * (k * queries).sum(dim=-1).unsqueeze(-2))  # (B, H, 1, Lk)
        else:  # seen from the keys, distances rise in the other direction
            terms.append(skewed_scores(k, (queries * scale).flip(1), q.shape[2]).mT)
    return total(terms)


BLOCK = 64  # queries handled at a time: a block of b computes up to b - 1 scores too many per row


def skewed_scores(queries: Tensor, rows: Tensor, n_keys: int) -> Tensor:
    """Return q_i . rows[Lq - 1 - i + j] for every query i and key j.

    Args:
        queries: (B, H, Lq, d).
        rows: (Lq + Lk - 1, d), or (H, Lq + Lk - 1, d): a vector per distance, in rising order.
        n_keys: Lk.

    Returns:
        (B, H, Lq, Lk).
    """
    n_queries = queries.shape[-2]
    if torch.compiler.is_compiling() or n_queries == 1:  # in a graph a loop would fix the length
        return skew(queries @ rows.mT, n_keys)
    blocks = []
    for start in range(0, n_queries, BLOCK):
        stop = min(start + BLOCK, n_queries)
        near = rows[..., n_queries - stop : n_queries - start + n_keys - 1, :]
        blocks.append(skew(queries[..., start:stop, :] @ near.mT, n_keys))
    return torch.cat(blocks, dim=-2)


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


# --- attention: one kernel -----------------------------------------------------------------------


def attend(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    encoding: PositionEncoding,
    q_pos: Positions | Axes,
    k_pos: Positions | Axes,
    *,
    scale: float,
    causal: bool = False,
    mask: Tensor | None = None,
    rotated: bool = False,
    reads: Reads | None = None,
    memory: Memory | None = None,
) -> Tensor:
    """Return the output of `attend` through PyTorch's fused kernel, without the weights.

    Arguments as in `attend`, checked there; `memory` is a cache's. Not for one that uses `values`.
    """
    order = order_of(q_pos), order_of(k_pos)
    if not rotated and not rotates_any_head(encoding):
        k, v = for_queries(k, q), for_queries(v, q)
    plain = q, k
    if not rotated:
        q, k = rotate(encoding, q, k, q_pos, k_pos)
        v = encoding.rotate_values(v, order[1])
    output = fused_output(q, k, v, encoding, plain, order, scale, causal, mask, reads, memory)
    return encoding.rotate_back(output, order[0])


def fused_output(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    encoding: PositionEncoding,
    plain: tuple[Tensor, Tensor],
    order: tuple[Positions, Positions],
    scale: float,
    causal: bool,
    mask: Tensor | None,
    reads: Reads | None,
    memory: Memory | None,
) -> Tensor:
    """Return the output for rotated q, k and v; `plain` are queries and keys before that."""
    q_pos, k_pos = order
    sink = encoding.sink(plain[0], q_pos)
    if mask is None and isinstance(q_pos, Run) and isinstance(k_pos, Run):
        itself = causal and q_pos == k_pos
        forgets = encoding.uses("read_bias")  # without its gates `bias_of` raises, below
        if (
            itself
            and not encoding.uses("bias")
            and only_forgets(encoding)
            and not (forgets and reads is None)
        ):
            gates = reads[1][..., 0] if reads and forgets else None
            if gates is None and sink is None:
                return kernel(q, k, v, None, scale, is_causal=True)
            if q_pos.length > 1 and q.dtype in (torch.float32, torch.float64):
                return widened(q, k, v, gates, sink, scale)
        inside = k_pos.start <= q_pos.start and q_pos.stop <= k_pos.stop
        biases = relative_biases(encoding) if inside and sink is None else None
        if biases is not None:
            vector = bias_vector(biases, q, q_pos, k_pos)
            if sees_itself(vector, q_pos, k_pos):
                view = reversed_bias(vector, q_pos, k_pos, causal)
                return kernel(q.flip(2), k, v, view, scale).flip(2)
    repeated = plain[0], for_queries(plain[1], plain[0])
    found = bias_of(encoding, *repeated, q_pos, k_pos, scale, reads, memory)
    allowed = allowed_pairs(q_pos, k_pos, causal, mask, q.device)
    return masked(q, k, v, found, allowed, sink, scale)


def masked(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    bias: Tensor | None,
    allowed: Tensor | None,
    sink: Tensor | None,
    scale: float,
) -> Tensor:
    """Return the output with any bias and mask; a query without a key gets the mean of values."""
    if bias is None and allowed is None and sink is None:
        return kernel(q, k, v, None, scale)
    bias = q.new_zeros(()) if bias is None else bias
    if allowed is not None:
        bias = bias.masked_fill(~allowed, -math.inf)
    if sink is not None:  # one more key in the softmax: no kernel has one
        logits = (q * scale) @ for_queries(k, q).mT + bias
        share = sink.to(logits.dtype).expand(*logits.shape[:-1], 1)
        weights = torch.cat([logits, share], dim=-1).softmax(dim=-1)[..., :-1]
        return weights @ for_queries(v, q)
    if bias.ndim == 0:
        return kernel(q, k, v, bias, scale)
    # A softmax of nothing is not a number: the kernel lets such a query see all.
    lost = bias.detach().amax(dim=-1, keepdim=True) == -math.inf
    if may_read(lost) and not lost.any():
        return kernel(q, k, v, bias, scale)
    output = kernel(q, k, v, bias.masked_fill(lost, 0.0), scale)
    mean = for_queries(v, q).mean(dim=-2, keepdim=True)
    return torch.where(lost[(None,) * (4 - lost.ndim)], mean, output)


def kernel(
    q: Tensor, k: Tensor, v: Tensor, bias: Tensor | None, scale: float, is_causal: bool = False
) -> Tensor:
    """Call PyTorch's kernel; `bias` is broadcastable to (B, H, Lq, Lk)."""
    if bias is not None:
        # Four axes: given three, PyTorch gets the same result without its fused kernel.
        bias = bias[(None,) * (4 - bias.ndim)]
    width = v.shape[-1]
    if width != q.shape[-1]:
        if q.shape[2] == 1 and not is_causal:  # to widen what a cache holds would copy all of it
            logits = (q * scale) @ for_queries(k, q).mT
            weights = (logits if bias is None else logits + bias).softmax(dim=-1)
            return weights @ for_queries(v, q)
        q, k, v = (F.pad(x, (0, max(q.shape[-1], width) - x.shape[-1])) for x in (q, k, v))
    grouped = q.shape[1] != k.shape[1]
    mask: dict[str, Any] = {"is_causal": True} if is_causal else {"attn_mask": bias}
    output = F.scaled_dot_product_attention(q, k, v, scale=scale, enable_gqa=grouped, **mask)
    return output[..., :width]


def sees_itself(vector: Tensor, q_pos: Run, k_pos: Run) -> bool:
    """Return whether no bias hides the distance 0 from any head, as far as it may be read."""
    here = q_pos.stop - 1 - k_pos.start  # indexed only where it may be read: a graph would fix it
    return not may_read(vector) or not bool((vector[:, here] == -math.inf).any())


def only_forgets(encoding: PositionEncoding) -> bool:
    """Return whether what an encoding reads is used by `Forgetting` alone, or it reads nothing."""
    return all(type(part) is Forgetting for part in encoding.parts() if part.uses("read_bias"))


def widened(
    q: Tensor, k: Tensor, v: Tensor, gates: Tensor | None, sink: Tensor | None, scale: float
) -> Tensor:
    """Return causal attention to itself with forgetting, a sink, or both, through the kernel.

    The sum of the gates up to a key is one more component of the key; a sink is one more key, which
    every query sees, with one more component that no other key has.

    Args:
        q: queries, (B, H, L, d).
        k: keys, (B, H, L, d).
        v: values, (B, H, L, d').
        gates: logarithms, (B, H, L).
        sink: broadcastable to (B, H, L, 1).
        scale: factor on the query-key product.
    """
    one, length = (*q.shape[:3], 1), q.shape[2]
    q, k, v = q * scale, for_queries(k, q), for_queries(v, q)
    sums = None if gates is None else gates.cumsum(dim=-1)[..., None].to(q.dtype)  # (B, H, L, 1)
    if sums is not None:  # what a query's own sum would add is the same for all its keys
        q, k = torch.cat([q, q.new_ones(one)], dim=-1), torch.cat([k, -sums], dim=-1)
    if sink is not None:  # which does not fade: it is less by what the keys do not gain
        sink = sink.to(q.dtype).expand(one) - (0 if sums is None else sums)
        q, k = torch.cat([q, sink], dim=-1), F.pad(k, (0, 1, 1, 0))
        k[:, :, 0, -1] = 1
        q, v = F.pad(q, (0, 0, 1, 0)), F.pad(v, (0, 0, 1, 0))  # its value is zero, its query unread
    return kernel(q, k, v, None, 1.0, is_causal=True)[:, :, -length:]


# --- a cache: keys kept rotated, in memory that grows ---------------------------------------------


def keeps_rotated(encoding: PositionEncoding, n_heads: int, n_kv_heads: int) -> bool:
    """Return whether a cache keeps keys and values rotated, each in its own head."""
    return ON and encoding.rotates_once and (n_heads == n_kv_heads or rotates_any_head(encoding))


def rotates_any_head(encoding: PositionEncoding) -> bool:
    """Return whether keys may be rotated before each head of queries has its own."""
    acts = [part for part in encoding.parts() if part.uses("rotate") or part.uses("rotate_axes")]
    return not any(hasattr(part, "n_heads") for part in acts)


SPARE = 256  # rows for which a cache makes room beyond those it is given


@dataclass
class Room:
    """Memory for rows to come, behind those of a cache."""

    memory: Tensor  # (B, H, more than L, d)
    rows: Tensor  # (B, H, L, d): its beginning, as it was returned last


def append_rows(rows: Tensor | None, new: Any, room: Room | None) -> tuple[Any, Room | None]:
    """Return torch.cat([rows, new], dim=2), without copying the rows if there is room behind.

    Args:
        rows: (B, H, L, d), or None before the first ones.
        new: (B, H, n, d), or None if there never are any.
        room: what the last call returned. It serves only who brings the rows of that call: those
            of a copy that went another way, or cut or reordered since, get a room of their own.

    Returns:
        (B, H, L + n, d), and the room, None where gradients or a graph are recorded: autograd
        would take what is written behind rows for a change of the rows.
    """
    if rows is None:
        return new, None
    length, more = rows.shape[2], rows.shape[2] + new.shape[2]
    plain = not ON or torch.is_grad_enabled() or torch.compiler.is_compiling()
    if plain or new.dtype != rows.dtype:
        return torch.cat([rows, new], dim=2), None
    writable = room and (torch.is_inference_mode_enabled() or not room.memory.is_inference())
    if room is None or not writable or room.rows is not rows or more > room.memory.shape[2]:
        memory = rows.new_empty(*rows.shape[:2], more + SPARE, rows.shape[3])
        memory[:, :, :length] = rows
        room = Room(memory, rows)
    room.memory[:, :, length:more] = new
    room.rows = room.memory[:, :, :more]
    return room.rows, room
