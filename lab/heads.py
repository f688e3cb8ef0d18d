"""What a trained head does with positions: its scores by word and place, and by frequency.

A head's score is <q, R(D) k> and a bias, with D the position of the key minus that of the query.
The mean of its queries over many texts, place by place, is what the average word asks there; the
mean of its keys is what the average word answers. Their score needs no word.
"""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor

from lab.model import Transformer
from lab.training import IGNORE, Batch, accuracy
from pe_lib.attention import MultiHeadAttention, PositionEncoding
from pe_lib.errors import require_shapes
from pe_lib.rope import RoPE, apply_rope, rope_angles

DATA = Path(__file__).resolve().parent / "data"
TOKENS, HALF = 24, 12  # of repeated text


def repeated(count: int, generator: torch.Generator) -> Batch:
    """Draw HALF different tokens at random, then the same ones again, from another place on.

    In the second half the next token is the one that came after the same token in the first half.
    Where the first half ends that is not so, and the target is IGNORE, as in the first half.

    Returns:
        tokens (count, 2 HALF), and of the same shape the token that comes next.
    """
    first = torch.rand(count, TOKENS, generator=generator).argsort(1)[:, :HALF]
    start = torch.randint(HALF, (count, 1), generator=generator)
    tokens = torch.cat([first, first.gather(1, (start + torch.arange(HALF)) % HALF)], dim=1)
    targets = torch.full_like(tokens, IGNORE)
    targets[:, HALF:-1] = tokens[:, HALF + 1 :]
    return tokens, targets.scatter_(1, 2 * HALF - 1 - start, IGNORE)


def by_elimination() -> float:
    """Return how often a guess is right that knows which tokens have come twice, and no order."""
    left = torch.arange(HALF - 1, 0, -1).double()  # tokens that have come once
    return float((1 / left).mean())


class Seen(NamedTuple):
    """What a layer's heads hold for some texts, before anything is rotated.

    Attributes:
        q: queries (B, H, L, d).
        k: keys (B, H, L, d).
        weights: (B, H, L, L).
    """

    q: Tensor
    k: Tensor
    weights: Tensor


@torch.no_grad()
def look(model: Transformer, tokens: Tensor) -> list[Seen]:
    """Return what each layer of a model holds for tokens (B, L)."""
    found, places = [], torch.arange(tokens.shape[1])
    x = model.encoding.embed(model.inputs(tokens), places)  # (B, L, D)
    for n, block in enumerate(model.blocks):
        layer = attention_of(model, n)
        z = block.norm_1(x)  # type: ignore[operator]
        q, k = (layer.split_heads(projection(z)) for projection in (layer.q_proj, layer.k_proj))
        found.append(Seen(q, k, layer.with_weights(z)[1]))
        x = block(x, places, None, None)
    return found


def by_frequency(q: Tensor, k: Tensor, rates: Tensor, relative: Tensor) -> Tensor:
    """Return what each pair of neighbours adds to the score of a query and a key at a distance.

    Args:
        q: (..., d), not rotated.
        k: (..., d), not rotated.
        rates: (d / 2,), radians per position.
        relative: (n,), positions of the key minus the query's.

    Returns:
        (..., d / 2, n); summed over the pairs they are <q, R(D) k> / sqrt(d).

    Source: Su et al. 2021, equation 16.
    """
    require_shapes({"q": q, "k": k, "rates": rates}, {"q": "... d", "k": "... d", "rates": "n"})
    a, b = (torch.view_as_complex(x.unflatten(-1, (-1, 2)).contiguous()) for x in (q, k))
    turned = torch.exp(1j * rates[:, None] * relative)  # (d / 2, n)
    return ((a.conj() * b)[..., None] * turned).real / math.sqrt(q.shape[-1])


def sizes(seen: Seen) -> Tensor:
    """Return the size of each pair's cosine in the average word's curve, (H, d / 2)."""
    q, k = (x.mean((0, 2)).unflatten(-1, (-1, 2)).norm(dim=-1) for x in (seen.q, seen.k))
    found: Tensor = q * k / math.sqrt(seen.q.shape[-1])
    return found


@torch.no_grad()
def share_of_places(q: Tensor, k: Tensor, rates: Tensor) -> float:
    """Return how much of the differences within rows the average word alone accounts for.

    Args:
        q: queries of one rotary head, not rotated, (B, L, d).
        k: keys, (B, L, d).
        rates: (d / 2,).

    Returns:
        1 minus the share of squares that is left: 1 if the words change nothing. Attention is
        causal, and each row's mean over the keys that it sees is taken off first.
    """
    angles = rope_angles(torch.arange(q.shape[1]), rates.to(q.dtype))
    seen = torch.ones(q.shape[1], q.shape[1], dtype=q.dtype).tril()

    def differences(q: Tensor, k: Tensor) -> Tensor:
        scores = apply_rope(q, angles) @ apply_rope(k, angles).mT * seen
        return (scores - scores.sum(-1, keepdim=True) / seen.sum(-1, keepdim=True)) * seen

    whole = differences(q, k)
    place = differences(*(x.mean((0, 1)).expand_as(x[0]) for x in (q, k)))
    return float(1 - (whole - place).square().sum() / whole.square().sum())


def along(matrix: Tensor, back: int) -> Tensor:
    """Return the mean over the queries of what stands `back` places before each: (...)."""
    return matrix.diagonal(-back, dim1=-2, dim2=-1).mean(-1)


def answers(tokens: Tensor, weights: Tensor) -> Tensor:
    """Return the mean weight on the token after the current one's first copy, (H,)."""
    same = tokens[:, HALF:-1, None] == tokens[:, None, :HALF]  # (B, queries, keys)
    after = same[..., :-1].double()  # the last of the first half has no follower there
    on = weights[:, :, HALF:-1, 1:HALF] * after[:, None]  # (B, H, queries, keys)
    return on.sum((0, 2, 3)) / after.sum()


def attention_of(model: Transformer, layer: int) -> MultiHeadAttention:
    """Return the attention of a layer, counted from 0."""
    found: MultiHeadAttention = model.blocks[layer].attention  # type: ignore[assignment]
    return found


def with_rates(model: Transformer, layer: int, rates: Tensor) -> PositionEncoding:
    """Give one layer of a rotary model other rates; return the encoding that it had."""
    attention = attention_of(model, layer)
    before = attention.encoding
    attention.encoding = RoPE(attention.head_dim, rates=rates).double()
    return before


def answered_with(model: Transformer, layer: int, rates: Tensor, batch: Batch) -> float:
    """Return a model's accuracy while one of its layers has other rates."""
    before = with_rates(model, layer, rates)
    right = accuracy(model, *batch)
    attention_of(model, layer).encoding = before
    return right


def changes(rates: Tensor) -> dict[str, Tensor]:
    """Return other rates for a layer: each pair stopped, two exchanged, all slowed by four."""
    stopped = {f"stop {r}": rates.clone() for r in range(len(rates))}
    for r, each in enumerate(stopped.values()):
        each[r] = 0
    exchanged = rates.clone()
    exchanged[:2] = rates[:2].flip(0)
    return {"as trained": rates} | stopped | {"exchange 0, 1": exchanged, "slow": rates / 4}


def minilm() -> dict[str, Any]:
    """Return the queries and keys of the first layer of all-MiniLM-L6-v2, 12 heads of width 32.

    Returns:
        q, k: (H, L, d), of the text `pieces`; q_mean, k_mean: (H, L, d), over many texts.
    """
    with np.load(DATA / "minilm_heads.npz") as held:
        tensors = {n: torch.from_numpy(held[n]).double() for n in held if n != "pieces"}
        return tensors | {"pieces": held["pieces"].tolist()}
