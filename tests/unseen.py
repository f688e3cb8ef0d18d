"""Bugs written before the doctor was made to look for them, and correct code that resembles them.

Those that planted.py has too are planted there. Rotary functions are (q, k, positions) ->
(q, k) with q of (B, H, L, d); biases (query positions, key positions) -> (H, Lq, Lk); codes
positions -> (L, d).
"""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import wraps
from typing import Any

import torch
from planted import Pair, rates_bug, right, rotate_pairs, table
from torch import Tensor

from pe_lib.sinusoidal import frequencies


def rows(positions: Tensor) -> Tensor:
    """Positions as (rows, L)."""
    return positions if positions.dim() == 2 else positions[None]


def rope(q: Tensor, k: Tensor, positions: Tensor, layout: str = "half") -> Pair:
    """The correct function, in the layout of halves."""
    return right(q, k, rows(positions), layout=layout)


def branch(test: Callable[[Tensor, Tensor], bool], wrong: Callable[..., Any]) -> Callable[..., Any]:
    """Correct code with one branch that is not."""
    return lambda q, k, p: wrong(q, k, p) if test(q, rows(p)) else rope(q, k, p)


def moved(change: Callable[[Tensor], Tensor]) -> Callable[..., Any]:
    return lambda q, k, p: rope(q, k, change(rows(p)))


def keys_left(q: Tensor, k: Tensor, p: Tensor) -> Pair:
    return rope(q, k, p)[0], k


def other_layout(q: Tensor, k: Tensor, p: Tensor) -> Pair:
    return rope(q, k, p, layout="interleaved")


def in_storage_order(q: Tensor, k: Tensor, p: Tensor) -> Pair:
    """A kernel that ignores strides: it reads the memory of a transposed tensor row by row."""
    a, b = (torch.as_strided(x, x.shape, torch.empty(x.shape).stride()) for x in (q, k))
    return rope(a, b, p)


class Grown:
    """A table that is made at the first call and read past its end by clamping."""

    def __init__(self) -> None:
        self.length = 0

    def __call__(self, q: Tensor, k: Tensor, p: Tensor) -> Pair:
        self.length = self.length or max(16, int(p.max()) + 1)
        return rope(q, k, p.clamp(max=self.length - 1))


class KeptType:
    """Cosines and sines are in half precision as soon as one call was."""

    dtype = torch.float32

    def __call__(self, q: Tensor, k: Tensor, p: Tensor) -> Pair:
        self.dtype = torch.float16 if q.dtype == torch.float16 else self.dtype
        cos, sin = (f(table(rows(p), 64)).to(self.dtype).float() for f in (torch.cos, torch.sin))
        a, b = (
            torch.cat((u * cos - v * sin, v * cos + u * sin), -1)
            for u, v in (x.float().chunk(2, -1) for x in (q, k))
        )
        return a.to(q.dtype), b.to(k.dtype)


class Counter:
    """Decoding counts its own calls and never looks at the positions."""

    def __init__(self) -> None:
        self.step = 0

    def __call__(self, q: Tensor, k: Tensor, p: Tensor) -> Pair:
        if q.shape[2] > 1:
            self.step = q.shape[2]
            return rope(q, k, p)
        self.step += 1
        return rope(q, k, torch.full_like(p, self.step - 1))


def length(low: int, high: int = 10**9) -> Callable[[Tensor, Tensor], bool]:
    return lambda q, p: low <= q.shape[2] <= high


def count(p: Tensor) -> Tensor:
    return torch.arange(p.shape[1]).expand(p.shape)


def bf16_angles(q: Tensor, k: Tensor, p: Tensor) -> Pair:
    inv_freq = frequencies(q.shape[-1]).bfloat16()
    angles = rows(p)[:, None, :, None].bfloat16() * inv_freq
    return rotate_pairs(q, angles), rotate_pairs(k, angles)


def cut_width(q: Tensor, k: Tensor, p: Tensor) -> Pair:
    """Blocks of 32 components: what is left of the width is not rotated."""
    angles = table(rows(p), q.shape[-1])
    angles[..., max(q.shape[-1] // 32 * 16, 16) :] = 0
    return rotate_pairs(q, angles), rotate_pairs(k, angles)


def rolled_heads(q: Tensor, k: Tensor, p: Tensor) -> Pair:
    a, b = rope(q, k, p)
    return a, b.roll(1, dims=1)


def grouped_by_head(q: Tensor, k: Tensor, p: Tensor) -> Pair:
    a, b = rope(q, k, p)
    return a, (k if k.shape[1] != q.shape[1] else b)


def when(low: int, high: int, change: Callable[[Tensor], Tensor]) -> Callable[..., Any]:
    """Other positions in calls of these lengths."""
    return branch(lambda q, p: low <= q.shape[2] <= high, moved(change))


def last_twice(p: Tensor) -> Tensor:
    return torch.cat((p[:, :-1], p[:, -2:-1]), 1)


LONG = frequencies(64) / (1 + 0.8 * torch.arange(32))


def by_length(long: Callable[[Tensor, Tensor], Tensor]) -> Callable[..., Any]:
    """LongRoPE: other frequencies where `long` says so of q and positions."""

    def rotate(q: Tensor, k: Tensor, p: Tensor) -> Pair:
        inv_freq = torch.where(long(q, rows(p)), LONG, frequencies(64))
        angles = rows(p)[:, None, :, None].double() * inv_freq
        return rotate_pairs(q, angles), rotate_pairs(k, angles)

    return rotate


def longest(q: Tensor, p: Tensor) -> Tensor:
    return p.max() >= 4096


MANY = 1 << 30
# name: (what must be found, function, what the doctor is told or None)
ROTARY: dict[str, tuple[str, Any, Any]] = {
    # Paths by length: mlx-vlm#1983, fla#766, moeut#6, tiny-llm#46, onnxruntime-genai#2354.
    "one token at zero": ("one-token", when(1, 1, lambda p: 0 * p), None),
    "one token one late": ("one-token", when(1, 1, lambda p: p + 1), None),
    "one token, keys left": (
        "one-token", branch(lambda q, p: q.shape[2] == 1, keys_left), None),
    "one token, layout": (
        "one-token", branch(lambda q, p: q.shape[2] == 1, other_layout), None),
    "decoding counts calls": ("one-token", Counter, None),
    "window from zero": ("few-tokens", when(2, 10, count), None),
    "blocks of 16 from zero": ("few-tokens", when(16, 16, count), None),
    "window at its first": ("few-tokens", when(2, 8, lambda p: p[:, :1].expand(p.shape)), None),
    "odd length, last token": (
        "odd-length",
        branch(lambda q, p: q.shape[2] % 2 == 1 and q.shape[2] > 1, moved(last_twice)), None),
    "blocks of 512": ("long-input", when(513, MANY, lambda p: count(p) % 512), None),
    "prompt from 2048 on": ("long-input", when(2048, MANY, count), None),
    # Tables whose gather clamps or wraps.
    "table of 8192 clamps": ("clamped", moved(lambda p: p.clamp(max=8191)), None),
    "table of 8192 wraps": ("wraps", moved(lambda p: p % 8192), None),
    "table of 32768 clamps": ("clamped", moved(lambda p: p.clamp(max=32767)), None),
    "second table from zero": (
        "two-countings", moved(lambda p: torch.where(p >= 4096, p - 4096, p)), None),
    "sixteen bits": ("wraps", moved(lambda p: p.to(torch.int16)), None),
    "table of the first call": ("state", Grown, None),
    "the short type is kept": ("state", KeptType, None),
    # Batch, width, types, memory, heads.
    "row 0 for eight": (
        "batch",
        branch(lambda q, p: len(q) >= 8, moved(lambda p: p[:1].expand(p.shape))), None),
    "row 0 for two": (
        "rows-share-positions",
        branch(lambda q, p: len(q) == 2, moved(lambda p: p[:1].expand(p.shape))), None),
    "one row counts": ("batch", branch(lambda q, p: len(q) == 1, moved(count)), None),
    "width 128, layout": ("width", branch(lambda q, p: q.shape[-1] == 128, other_layout), None),
    "width by 32": ("width", cut_width, None),
    "frequencies of 64 twice": (
        "width", rates_bug(lambda d: frequencies(64).repeat(2)[: d // 2]), None),
    "int32 counts": (
        "int32-positions", branch(lambda q, p: p.dtype == torch.int32, moved(count)), None),
    "half, keys left": (
        "short-floats", branch(lambda q, p: q.dtype == torch.bfloat16, keys_left), None),
    "float16, layout": (
        "short-floats", branch(lambda q, p: q.dtype == torch.float16, other_layout), None),
    "bfloat16 angles": (
        "angles-rounded", branch(lambda q, p: q.dtype == torch.bfloat16, bf16_angles), None),
    "strides ignored": (
        "strides", branch(lambda q, p: not q.is_contiguous(), in_storage_order), None),
    "fewer key heads left": ("grouped-heads", grouped_by_head, None),
    "key heads exchanged": ("heads-mixed", rolled_heads, None),
    # Positions as serving gives them.
    "restarts undone": ("jumps", moved(lambda p: p.cummax(1).values), None),
    # Frequencies that follow the length of the text, and are chosen wrongly.
    "long factors by the first position": (
        "length-misread", by_length(lambda q, p: p[0, 0] >= 4096), None),
    "long factors by the number of tokens": (
        "length-misread", by_length(lambda q, p: torch.tensor(q.shape[2] > 4096)), None),
    "long factors token by token": (
        "frequencies-change", by_length(lambda q, p: (p >= 4096)[:, None, :, None]), None),
    "long factors always": (
        "frequencies", by_length(lambda q, p: torch.tensor(True)), by_length(longest)),
    "long factors never": ("frequencies", rope, by_length(longest)),
    "long factors too late": (
        "frequencies", by_length(lambda q, p: p.max() >= 8192), by_length(longest)),
    # CS336 assignment1#4.
    "pairs from one": (
        "factor", rates_bug(lambda d: frequencies(d) * 1e4 ** (-2 / d)), {"base": 1e4}),
}  # fmt: skip


def sines(positions: Tensor, width: int = 64, last: int = 0, joined: bool = True) -> Tensor:
    """sin, then cos; rates from 1 to 10000^-1 at pair width/2 - last."""
    n = width // 2
    angles = positions[:, None].float() * 1e4 ** (-torch.arange(n) / (n - last))
    parts = (angles.sin(), angles.cos())
    return torch.cat(parts, -1) if joined else torch.stack(parts, -1).flatten(-2)


def learned(seed: int, count: int = 514) -> Tensor:
    return torch.randn(count, 64, generator=torch.Generator().manual_seed(seed))


def resized(table: Tensor, count: int, corners: bool = False) -> Tensor:
    return torch.nn.functional.interpolate(
        table.T[None], size=count, mode="linear", align_corners=corners
    )[0].T


GRID = learned(3, 513)[1:129]
SMALL = torch.cat((learned(3)[:1], resized(GRID, 64)))
EXCHANGED = learned(1)[:512].clone()
EXCHANGED[[300, 301]] = EXCHANGED[[301, 300]]

# name: (what must be found, wrong, right): the right one is what the port is compared with
CODES: dict[str, tuple[str, Any, Any]] = {
    "offset of two lost": ("code-shifted", lambda p: learned(1)[p], lambda p: learned(1)[p + 2]),
    "cosines first": ("code-order", lambda p: sines(p).roll(32, -1), sines),
    "neighbours, not halves": ("code-order", lambda p: sines(p, joined=False), sines),
    "another table": ("code-values", lambda p: learned(2)[p], lambda p: learned(1)[p]),
    "two rows exchanged": ("code-values", lambda p: EXCHANGED[p], lambda p: learned(1)[p]),
    "scale": ("code-scale", lambda p: 8 * sines(p), sines),
    "last rate": ("base", lambda p: sines(p, last=1), sines),
    "class row interpolated": (
        "code-values", lambda p: resized(learned(3)[:129], 65)[p], lambda p: SMALL[p]),
    "corners aligned": (
        "code-values",
        lambda p: resized(GRID, 64, corners=True)[p], lambda p: resized(GRID, 64)[p]),
}  # fmt: skip

SLOPES = 2.0 ** -torch.arange(1, 9)[:, None, None].float()


def apart(i: Tensor, j: Tensor) -> Tensor:
    return j[None, :] - i[:, None]


def alibi(i: Tensor, j: Tensor) -> Tensor:
    return -SLOPES * apart(i, j).abs()


def clipped(last: int, seed: int = 5) -> Callable[[Tensor, Tensor], Tensor]:
    table = torch.randn(8, 600, generator=torch.Generator().manual_seed(seed))
    return lambda i, j: table[:, apart(i, j).clamp(-last, last) + 256]


def window(size: int) -> Callable[[Tensor, Tensor], Tensor]:
    return lambda i, j: torch.where(
        (apart(i, j) <= 0) & (apart(i, j) > -size), 0.0, -math.inf
    ).expand(8, -1, -1)


def buckets(
    farthest: float, dtype: torch.dtype = torch.float32
) -> Callable[[Tensor, Tensor], Tensor]:
    """T5's buckets of a decoder: 16 exact ones, then by the logarithm of the distance."""
    table = torch.randn(8, 32, generator=torch.Generator().manual_seed(6))

    def bias(i: Tensor, j: Tensor) -> Tensor:
        n = (-apart(i, j)).clamp(min=0)
        far = 16 + (n.clamp(min=1).to(dtype) / 16).log() / math.log(farthest / 16) * 16
        return table[:, torch.where(n < 16, n, far.long().clamp(max=31))]

    return bias


BIASES: dict[str, tuple[str, Any, Any]] = {
    "far slopes in bfloat16": ("bias-values", lambda i, j: alibi(i, j).bfloat16().float(), alibi),
    "clip at 127": ("bias-values", clipped(127), clipped(128)),
    "window of 129": ("bias-values", window(129), window(128)),
    "window of 4097": ("bias-values", window(4097), window(4096)),
    "buckets to 127": ("bias-values", buckets(127), buckets(128)),
    "buckets in half precision": (
        "bias-values", buckets(2048, torch.half), buckets(2048)),
    "buckets in bfloat16": ("bias-values", buckets(2048, torch.bfloat16), buckets(2048)),
    "a single query without its bias": (
        "one-token",
        lambda i, j: buckets(128)(i, j) if len(i) > 1 else torch.zeros(8, 1, len(j)),
        buckets(128)),
    "heads reversed": ("bias-values", lambda i, j: alibi(i, j).flip(0), alibi),
    "decoding at row 0": (
        "bias-offset-ignored", lambda i, j: alibi(i if len(i) > 1 else 0 * i, j), alibi),
    "decoding without window": (
        "one-token",
        lambda i, j: window(128)(i, j) if len(i) > 1 else torch.zeros(8, 1, len(j)), window(128)),
    "few queries from zero": (
        "few-tokens", lambda i, j: alibi(i - i[0] if 1 < len(i) < 9 else i, j), alibi),
}  # fmt: skip


def patched(model: Any, layer: int, tables: Callable[[Tensor, Tensor], Pair]) -> Any:
    """A model of transformers of which one layer rotates by changed cosines and sines."""
    attention = model.model.layers[layer].self_attn
    original = attention.forward

    def forward(*args: Any, **words: Any) -> Any:
        words["position_embeddings"] = tables(*words["position_embeddings"])
        return original(*args, **words)

    attention.forward = forward
    return model


def renamed(model: Any) -> Any:
    """The rotary module under another class name, with the base of another model."""
    module = model.model.rotary_emb
    module.__class__ = type("Whirl", (type(module),), {})
    d = 2 * len(module.inv_freq)
    module.inv_freq = 1e4 ** (-torch.arange(0, d, 2) / d)
    return model


def restarted(model: Any, single: bool) -> Any:
    """Positions of a continued cache count from zero: in one-token steps, or in longer pieces."""
    original = model.model.forward

    def forward(*args: Any, **words: Any) -> Any:
        ids, past = words.get("input_ids"), words.get("past_key_values")
        seen = past.get_seq_length() if past is not None else 0
        if seen and ids is not None and (ids.shape[1] == 1) == single:
            words["position_ids"] = torch.arange(ids.shape[1])[None].expand(ids.shape)
        return original(*args, **words)

    model.model.forward = forward
    return model


def counts_padding(model: Any) -> Any:
    """unsloth#3699: decoding counts the padding, the prompt did not."""
    original = model.forward

    @wraps(original)
    def forward(*args: Any, **words: Any) -> Any:
        ids = words.get("input_ids")
        mask = words.get("attention_mask")
        if mask is not None and ids is not None and ids.shape[1] == 1:
            words["position_ids"] = mask.shape[1] - 1 + 0 * ids
        return original(*args, **words)

    model.forward = forward
    return model


def first_row(model: Any) -> Any:
    """The angles of the first row for the whole batch."""
    original = model.model.rotary_emb.forward
    model.model.rotary_emb.forward = lambda x, position_ids: original(x, position_ids[:1])
    return model


# name: (what must be found, where, patch of a three-layer Llama with rope_theta 500000)
MODELS: dict[str, tuple[str, str, Callable[[Any], Any]]] = {
    "layer 2 turns backwards": (
        "direction", "layer 2", lambda m: patched(m, 2, lambda cos, sin: (cos, -sin))),
    "layer 2 has no positions": (
        "layer-unrotated", "layer 2",
        lambda m: patched(m, 2, lambda cos, sin: (torch.ones_like(cos), 0 * sin))),
    "rotary part renamed": ("base", "layers 0 to 2", renamed),
    "decoding restarts": ("cache", "", lambda m: restarted(m, single=True)),
    "chunks restart": ("continued", "", lambda m: restarted(m, single=False)),
    "one row's padding for all": ("left-padding", "", first_row),
    "padding is counted": ("generate", "", counts_padding),
}  # fmt: skip


def bf16_tables(q: Tensor, k: Tensor, p: Tensor) -> Pair:
    """nanochat and flash-attention keep cosines and sines in bfloat16."""
    angles = table(rows(p), q.shape[-1])
    cos, sin = (torch.cat((t, t), -1).bfloat16() for t in (angles.cos(), angles.sin()))
    half = (torch.cat((-x.chunk(2, -1)[1], x.chunk(2, -1)[0]), -1) for x in (q, k))
    first, second = (x * cos + y * sin for x, y in zip((q, k), half, strict=True))
    return first, second


def flat_grid(q: Tensor, k: Tensor, p: Tensor) -> Pair:
    """Rows and columns of a grid 64 wide, called by the flat index."""
    both = [table(n, q.shape[-1] // 2) for n in (rows(p) // 64, rows(p) % 64)]
    angles = torch.cat(both, -1)
    return rotate_pairs(q, angles), rotate_pairs(k, angles)


# correct: name: (kind, thing, what it is compared with or None)
CORRECT: dict[str, tuple[str, Any, Any]] = {
    "halves": ("rotary", rope, None),
    "neighbours": ("rotary", other_layout, None),
    "long factors past 4096 positions": ("rotary", by_length(longest), by_length(longest)),
    "long factors by the row's longest position": (
        "rotary",
        by_length(lambda q, p: (p.max(1).values >= 4096)[:, None, None, None]),
        by_length(longest)),
    "halves exchanged at the end": (
        "rotary", lambda q, k, p: tuple(x.roll(32, -1) for x in rope(q, k, p)), None),
    "tables in bfloat16": ("rotary", bf16_tables, {"base": 10000}),
    "flat index of a grid": ("rotary", flat_grid, None),
    "flat index, columns first": (
        "rotary", lambda q, k, p: flat_grid(q, k, p % 64 * 64 + p // 64), None),
    "offset of two": ("absolute", lambda p: sines(p + 2, last=1), None),
    "descending": ("absolute", lambda p: sines(1000 - p), None),
    "back from the last key": ("absolute", lambda p: sines(p.max() - p), None),
    "slopes to 4": ("bias", lambda i, j: alibi(i, j) * 16, None),
    "learned slopes": (
        "bias",
        lambda i, j: -torch.tensor([0.3, 0.11, 0.7, 0.05])[:, None, None] * apart(i, j).abs(),
        None),
    "mask of -1e9": (
        "bias", lambda i, j: alibi(i, j) + torch.where(apart(i, j) > 0, -1e9, 0.0), None),
    "window of 256": ("bias", window(256), None),
    "BLOOM's shape": ("bias", lambda i, j: SLOPES * j[None, None, :].float(), None),
    "a constant for each query": (
        "bias", lambda i, j: alibi(i, j) + i[None, :, None].float(), alibi),
    "a constant for each head": (
        "bias", lambda i, j: buckets(128)(i, j) + torch.arange(8.0)[:, None, None], buckets(128)),
    "only the future differs": (
        "bias", lambda i, j: alibi(i, j) + (apart(i, j) > 0) * 3.0, alibi),
}  # fmt: skip
