"""Fast forms: the same numbers for less. Attention chooses them, and no method knows of them.

Nothing here is needed to understand a method. Inside `with off():` attention calls the methods' own
hooks instead, keeps keys and values as projected, and concatenates: the same, up to rounding.
What is kept, a table for an encoding, no module holds.
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

from pe_lib.arguments import Booleans, checked, may_read
from pe_lib.compose import Compose, total
from pe_lib.deberta import DeBERTa
from pe_lib.definition import (
    KEYS,
    OF_KEYS,
    OF_QUERIES,
    QUERIES,
    VALUES,
    attend,
    for_queries,
    require_heads,
    require_mask,
    softmax,
)
from pe_lib.encoding import PositionEncoding, Reads, bias_read, default_scale, rotate_by
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
from pe_lib.transformer_xl import TransformerXL

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
    if kept is None or not current or kept[2].shape[-2] < least:
        with torch.inference_mode(False), torch.no_grad():  # a training that follows may save it
            places = torch.arange(2 ** max(8, (least - 1).bit_length()), device="cpu")
            kept = settings, [each.clone() for each in tensors], make(places)
        TABLES[encoding] = kept
    return kept[2]


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
    # A graph and Apple's GPUs know no complex numbers.
    plain = not ON or torch.compiler.is_compiling() or q.device.type == "mps"
    if plain or type(encoding) is not RoPE:
        return encoding.rotate(q, k, q_pos, k_pos)
    encoding.admit({"q": q, "k": k})
    k_codes = rotations(encoding, k_pos, k)
    q_codes = k_codes if q_pos is k_pos else rotations(encoding, q_pos, q)
    layout = str(encoding.layout)
    return rotated(q, q_codes, layout), rotated(k, k_codes, layout)


def rotations(rope: RoPE, positions: Positions, x: Tensor) -> Tensor:
    """Return gain * exp(i angle) for x (B, H, L, d), complex, (L, n) or (B, 1, L, n)."""
    dtype = torch.promote_types(x.dtype, torch.float32).to_complex()

    def codes(places: Tensor) -> Tensor:
        angles = exact(rope.angles(exact(places)))
        return torch.polar(torch.full_like(angles, rope.gain), angles).to(x.device, dtype)

    if isinstance(positions, Run):
        if in_table(positions) and not rope.rates.requires_grad:
            state = rope.gain, rope.rates, dtype, x.device
            rows = table(rope, positions.stop, codes, *state)
            return rows[positions.start : positions.stop]
        positions = positions.tensor(x.device)
    found = codes(positions)
    return found if found.ndim == 2 else per_head(found)


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


def bias(
    encoding: PositionEncoding,
    q: Tensor,
    k: Tensor,
    q_pos: Positions,
    k_pos: Positions,
    scale: float,
) -> Tensor | None:
    """Return what the hook `bias` returns; between two runs from fewer numbers."""
    if ON and isinstance(q_pos, Run) and isinstance(k_pos, Run):
        if writes(encoding, Compose, "bias"):
            return total(bias(each, q, k, q_pos, k_pos, scale) for each in encoding.members())
        if writes(encoding, RelativeBias, "bias"):
            vector = bias_vector([encoding], q, q_pos, k_pos)
            return windows(vector, k_pos.length).flip(-2)  # window i belongs to query Lq - 1 - i
        if writes(encoding, TransformerXL, "bias"):
            return transformer_xl(encoding, q, k, q_pos, k_pos, scale)
        if writes(encoding, DeBERTa, "bias"):
            return deberta(encoding, q, k, q_pos, k_pos, scale)
    return encoding.bias(q, k, q_pos, k_pos, scale)


def distances(q_pos: Run, k_pos: Run, device: torch.device | None = None) -> Tensor:
    """Return every relative position between two runs, rising.

    Returns:
        (Lq + Lk - 1,): the pair (i, j) finds its own at Lq - 1 - i + j.
    """
    return torch.arange(k_pos.start - q_pos.stop + 1, k_pos.stop - q_pos.start, device=device)


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


def transformer_xl(
    encoding: TransformerXL, q: Tensor, k: Tensor, q_pos: Run, k_pos: Run, scale: float
) -> Tensor:
    """Return `TransformerXL.bias`, (B, H, Lq, Lk), from one row per distance."""
    encoding.admit({"q": q, "k": k, "scale": scale})
    u, v = (each.to(q.dtype)[:, None] * scale for each in (encoding.u, encoding.v))  # (H, 1, d)
    content = u @ k.mT if q.shape[2] == 1 else (k @ u.mT).mT  # (B, H, 1, Lk), the same, as fast
    if (past := past_rows(encoding, q_pos, k_pos)) is not None:
        return ((q * scale + v) @ past.to(q.dtype).mT).flip(-1) + content
    rows = encoding.rows(distances(q_pos, k_pos, q.device)).to(q.dtype)
    return skewed_scores(q * scale + v, rows, k.shape[2]) + content


def past_rows(encoding: TransformerXL, q_pos: Run, k_pos: Run) -> Tensor | None:
    """Return `TransformerXL.rows` of one query's distances to keys behind it, the nearest first.

    They come from a table; None where gradients, a graph, another projection or one that is not on
    the processor want all made anew.
    """
    plain = type(encoding.r_proj) is nn.Linear and writes(encoding, TransformerXL, "rows")
    weight, near, far = encoding.r_proj.weight, q_pos.stop - k_pos.stop, q_pos.stop - k_pos.start
    wanted = plain and not encoding.r_proj._forward_hooks and q_pos.length == 1 and near >= 0
    if not wanted or torch.is_grad_enabled() or not may_read(weight):
        return None
    rows = table(encoding, far, lambda places: encoding.rows(-places), encoding.clamp, weight)
    return rows[:, near:far]


def deberta(
    encoding: DeBERTa, q: Tensor, k: Tensor, q_pos: Run, k_pos: Run, scale: float
) -> Tensor | None:
    """Return `DeBERTa.bias`, (B, H, Lq, Lk), from one row per distance."""
    encoding.admit({"q": q, "k": k, "scale": scale})
    row = encoding.row_of(distances(q_pos, k_pos, q.device))
    terms: list[Tensor] = []
    if encoding.key_proj is not None:
        keys = encoding.project(encoding.key_proj)[:, row].to(q.dtype)
        terms.append(skewed_scores(q * scale, keys, k.shape[2]))
    if encoding.query_proj is not None:  # seen from the keys, distances rise the other way
        queries = encoding.project(encoding.query_proj)[:, row].to(q.dtype)
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


@checked(q=QUERIES, k=KEYS, v=VALUES, q_pos=OF_QUERIES, k_pos=OF_KEYS)
def attend_fused(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    encoding: PositionEncoding,
    q_pos: AnyPositions,
    k_pos: AnyPositions,
    *,
    causal: bool = False,
    mask: Booleans | None = None,
    rotated: bool = False,
    reads: Reads | None = None,
) -> Tensor:
    """Return the output of `attend` by the fast forms, without the weights; arguments as there."""
    if not ON or encoding.uses("values"):  # which needs the weights
        settings: dict[str, Any] = {"causal": causal, "mask": mask, "reads": reads}
        return attend(q, k, v, encoding, q_pos, k_pos, rotated=rotated, **settings)[0]
    scale = default_scale(encoding, q.shape[-1])
    require_heads(q, k)
    require_mask(mask, (*q.shape[:3], k.shape[2]))
    order = order_of(q_pos), order_of(k_pos)
    if not rotated and not rotates_any_head(encoding):
        k, v = for_queries(k, q), for_queries(v, q)
    plain = q, k
    if not rotated:
        q, k = rotate(encoding, q, k, q_pos, k_pos)
        v = encoding.rotate_values(v, order[1])
    output = fused_output(q, k, v, encoding, plain, order, scale, causal, mask, reads)
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
) -> Tensor:
    """Return the output for rotated q, k and v; `plain` are queries and keys before that."""
    q_pos, k_pos = order
    sink = encoding.sink(plain[0], q_pos)
    if mask is None and isinstance(q_pos, Run) and isinstance(k_pos, Run):
        forgets = encoding.uses("read_bias")  # without its gates `bias_read` raises, below
        itself = causal and q_pos == k_pos and not encoding.uses("bias")
        if itself and only_forgets(encoding) and not (forgets and reads is None):
            gates = reads[1][..., 0] if reads and forgets else None
            if gates is None and sink is None:
                return kernel(q, k, v, None, scale, is_causal=True)
            if q_pos.length > 1 and q.dtype in (torch.float32, torch.float64):
                return widened(q, k, v, gates, sink, scale)
        biases = relative_biases(encoding) if sink is None else None
        if biases is not None:
            vector = bias_vector(biases, q, q_pos, k_pos)
            view = reversed_bias(vector, q_pos, k_pos, causal)
            return kernel(q.flip(2), k, v, view, scale).flip(2)
    keys = for_queries(plain[1], plain[0])
    found = bias(encoding, plain[0], keys, q_pos, k_pos, scale)
    found = total([found, bias_read(encoding, q, reads, q_pos, k_pos)])
    allowed = allowed_pairs(q_pos, k_pos, causal, mask, q.device)
    if allowed is not None:
        found = q.new_zeros(()) if found is None else found
        found = found.masked_fill(~allowed, -math.inf)
    if sink is None:
        return kernel(q, k, v, found, scale)
    logits = (q * scale) @ for_queries(k, q).mT  # one more key in the softmax: no kernel has one
    return softmax(logits if found is None else logits + found, sink) @ for_queries(v, q)


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
            return softmax(logits if bias is None else logits + bias) @ for_queries(v, q)
        q, k, v = (F.pad(x, (0, max(q.shape[-1], width) - x.shape[-1])) for x in (q, k, v))
    grouped = q.shape[1] != k.shape[1]
    mask: dict[str, Any] = {"is_causal": True} if is_causal else {"attn_mask": bias}
    output = F.scaled_dot_product_attention(q, k, v, scale=scale, enable_gqa=grouped, **mask)
    return output[..., :width]


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
