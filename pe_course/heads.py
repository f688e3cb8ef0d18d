"""What a trained head does with positions: its scores by content and position, by frequency.

A head's score is <q, R(D) k> and a bias, with D the position of the key minus that of the query.
The mean of its queries over many texts, position by position, is what the average word asks there;
the mean of its keys is what the average word answers. Their score needs no content.
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterator
from contextlib import contextmanager
from importlib.resources import files
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor

from pe_course.model import Transformer
from pe_course.registry import METHODS, Sizes, encodings
from pe_course.training import IGNORE, Batch, accuracy, generator, train
from pe_lib.attention import MultiHeadAttention, attention_logits
from pe_lib.encoding import PositionEncoding
from pe_lib.learned import Learned
from pe_lib.relative import RelativeBias
from pe_lib.rope import RoPE, apply_rope, rope_angles
from pe_lib.t5 import T5Bias

DATA = files(__package__) / "data"
TOKENS, HALF = 24, 12  # of repeated text
WIDTH, HEADS, LAYERS, BATCH = 32, 2, 2, 32  # of the models that are trained on it
COMPARED = ("rope", "learned", "t5", "alibi", "none")
STEPS, RATES, RATE_SEED, SEEDS = 500, (1e-3, 3e-3, 1e-2, 3e-2), 11, range(5)


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


def by_frequency(q: Tensor, k: Tensor, inv_freq: Tensor, relative: Tensor) -> Tensor:
    """Return what each pair of neighbours adds to the score of a query and a key at a distance.

    Args:
        q: (..., d), not rotated.
        k: (..., d), not rotated.
        inv_freq: (d / 2,), radians per position.
        relative: (n,), positions of the key minus the query's.

    Returns:
        (..., d / 2, n); summed over the pairs they are <q, R(D) k> / sqrt(d).

    Source: Su et al. 2021, equation 16.
    """
    a, b = (torch.view_as_complex(x.unflatten(-1, (-1, 2)).contiguous()) for x in (q, k))
    turned = torch.exp(1j * inv_freq[:, None] * relative)  # (d / 2, n)
    return ((a.conj() * b)[..., None] * turned).real / math.sqrt(q.shape[-1])


def sizes(seen: Seen) -> Tensor:
    """Return the size of each pair's cosine in the average word's curve, (H, d / 2)."""
    q, k = (x.mean((0, 2)).unflatten(-1, (-1, 2)).norm(dim=-1) for x in (seen.q, seen.k))
    found: Tensor = q * k / math.sqrt(seen.q.shape[-1])
    return found


@torch.no_grad()
def position_share(q: Tensor, k: Tensor, inv_freq: Tensor) -> float:
    """Return how much of the differences within rows the average word alone accounts for.

    Args:
        q: queries of one rotary head, not rotated, (B, L, d).
        k: keys, (B, L, d).
        inv_freq: (d / 2,).

    Returns:
        1 minus the share of squares that is left: 1 if the words change nothing. Attention is
        causal, and each row's mean over the keys that it sees is taken off first.
    """
    angles = rope_angles(torch.arange(q.shape[1]), inv_freq.to(q.dtype))
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


def with_inv_freq(model: Transformer, layer: int, inv_freq: Tensor) -> PositionEncoding:
    """Give one layer of a rotary model other rates; return the encoding that it had."""
    attention = attention_of(model, layer)
    before = attention.encoding
    attention.encoding = RoPE(attention.head_dim, inv_freq=inv_freq).double()
    return before


def answered_with(model: Transformer, layer: int, inv_freq: Tensor, batch: Batch) -> float:
    """Return a model's accuracy while one of its layers has other rates."""
    before = with_inv_freq(model, layer, inv_freq)
    right = accuracy(model, *batch)
    attention_of(model, layer).encoding = before
    return right


# Other methods ------------------------------------------------------------------------------------


def train_on_repeated(method: str, seed: int, rate: float) -> tuple[Transformer, dict[str, Any]]:
    """Train two layers on repeated text for STEPS steps, and stop at no other.

    Returns:
        the model; its accuracy on 300 other texts after each fifth of the steps ("right"), and the
        mean loss of the last fifth, in nats ("loss").
    """
    known = METHODS[method]
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        model = Transformer(
            TOKENS, d_model=WIDTH, n_heads=HEADS, n_layers=LAYERS, causal=True,
            encoding=encodings(known, Sizes(WIDTH, HEADS, 2 * HALF), LAYERS),
        )  # fmt: skip
    test, right = repeated(300, generator(98)), []

    def after(step: int) -> None:
        if step % (STEPS // 5) == 0:
            right.append(accuracy(model, *test))

    losses = train(
        model, lambda random: repeated(BATCH, random), steps=STEPS, lr=rate, seed=seed,
        after=after, label=known.name,
    )  # fmt: skip
    return model, {"right": right, "loss": float(np.mean(losses[-STEPS // 5 :]))}


class Changed(RelativeBias):
    """A bias that takes each distance for a fraction of it, or for 0."""

    def __init__(self, bias: RelativeBias, share: float) -> None:
        """Keep the bias and the share; a bias of whole distances gets them rounded towards 0."""
        super().__init__()
        self.whole, self.share, self.scale = bias, share, bias.scale
        self.causal_only = bias.causal_only

    def of_distance(self, relative: Tensor) -> Tensor:
        """Return the bias of relative positions: (...) -> (H, ...)."""
        less = relative * self.share
        return self.whole.of_distance(
            less.trunc().long() if isinstance(self.whole, T5Bias) else less
        )


@contextmanager
def slowed(model: Transformer, layer: int, share: float) -> Iterator[None]:
    """Let a layer take each distance for a share of it: 1 / 4 is slowed by four, 0 is stopped.

    A table that is added is read between its rows, at place times share (all places get its mean
    row if it is stopped); that is done before the first layer, whichever is named.
    """
    attention = attention_of(model, layer)
    before = attention.encoding
    if isinstance(before, Learned):
        rows = before.table.data
        at = share * torch.arange(len(rows)).double()[:, None]
        low = at.long()[:, 0]
        between = torch.lerp(rows[low], rows[(low + 1).clamp(max=len(rows) - 1)], at - low[:, None])
        before.table.data = between if share else rows.mean(0).expand_as(rows)
    elif isinstance(before, RoPE):
        with_inv_freq(model, layer, before.inv_freq.double() * share)
    elif isinstance(before, RelativeBias):
        attention.encoding = Changed(before, share)
    try:
        yield
    finally:
        attention.encoding = before
        if isinstance(before, Learned):
            before.table.data = rows


@torch.no_grad()
def position_shares(layer: MultiHeadAttention, seen: Seen) -> Tensor:
    """Return how much of each head's differences position-position accounts for, (H,).

    For any method: the scores of the mean query and key at each position, and the bias.
    """
    places = torch.arange(seen.q.shape[2])
    mask = torch.ones(len(places), len(places), dtype=seen.q.dtype).tril()

    def differences(q: Tensor, k: Tensor) -> Tensor:
        x = attention_logits(q, k, layer.encoding, places, places) * mask
        return (x - x.sum(-1, keepdim=True) / mask.sum(-1, keepdim=True)) * mask

    whole = differences(seen.q, seen.k)  # (B, H, L, L)
    place = differences(*(x.mean(0, keepdim=True) for x in (seen.q, seen.k)))
    return 1 - (whole - place).square().sum((0, 2, 3)) / whole.square().sum((0, 2, 3))


@torch.no_grad()
def place_readable(model: Transformer, tokens: Tensor) -> tuple[float, list[float]]:
    """Return how well the place can be read behind layer 1, and how long its attention's output is.

    A line is fitted from what enters layer 2 to the place, on half of the texts. Only places of
    the first half of a text count: whoever sees that a token has come before knows its half.

    Returns:
        R squared on the other texts; the mean norm at each of the HALF places.
    """
    places = torch.arange(HALF)
    x = model.encoding.embed(model.inputs(tokens[:, :HALF]), places)  # (B, HALF, D)
    norms = attention_of(model, 0)(model.blocks[0].norm_1(x)).norm(dim=-1).mean(0)  # type: ignore[operator]
    h = model.blocks[0](x, places, None, None)
    rows, half = torch.cat([h, torch.ones_like(h[..., :1])], dim=-1), len(h) // 2
    wanted = places.double().expand(len(h), -1)
    fit = torch.linalg.lstsq(
        rows[:half].flatten(0, 1), wanted[:half].flatten()[:, None], driver="gelsd"
    )
    left = wanted[half:] - (rows[half:] @ fit.solution)[..., 0]
    return float(1 - left.square().mean() / wanted.var(correction=0)), norms.tolist()


def report(model: Transformer) -> dict[str, Any]:
    """Return what is recorded of a trained model: its heads, and what changes of positions do."""
    batch = repeated(300, generator(98))
    seen = look(model, batch[0])
    readable, norms = place_readable(model, batch[0])
    found: dict[str, Any] = {
        "previous": [along(each.weights, 1).mean(0).tolist() for each in seen],
        "answer": [answers(batch[0], each.weights).tolist() for each in seen],
        "share": [position_shares(attention_of(model, n), s).tolist() for n, s in enumerate(seen)],
        "readable": readable,
        "norms": norms,
    }
    for name, share in (("stopped", 0.0), ("slowed", 0.25)):
        found[name] = []
        for layer in range(LAYERS):
            with slowed(model, layer, share):
                found[name].append(accuracy(model, *batch))
    with slowed(model, 0, 0.25):
        weights = look(model, batch[0])[0].weights.mean(0)  # (H, L, L)
    found["looks"] = [along(weights, n).tolist() for n in range(9)]
    return found


def runs() -> list[dict[str, Any]]:
    """Return what was recorded of trainings: a row for each method, rate and seed."""
    found: list[dict[str, Any]] = json.loads((DATA / "heads.json").read_text(encoding="utf-8"))
    return found


def trained() -> Transformer:
    """Return the rotary model of chapter 12, as it was trained once and kept.

    Kept, since 500 steps make another model of what processors round differently.
    """
    model = Transformer(
        TOKENS, d_model=WIDTH, n_heads=HEADS, n_layers=LAYERS, encoding=RoPE(WIDTH // HEADS),
        causal=True,
    ).double()  # fmt: skip
    with (DATA / "heads_rope.npz").open("rb") as file, np.load(file) as held:
        model.load_state_dict({name: torch.from_numpy(held[name]) for name in held})
    return model


def chosen_rate(rows: list[dict[str, Any]], method: str) -> float:
    """Return the rate that is best on RATE_SEED: most right, then least loss, then lowest."""
    tried = [row for row in rows if row["method"] == method and row["seed"] == RATE_SEED]
    best = min(tried, key=lambda row: (-row["right"][-1], row["loss"], row["rate"]))
    return float(best["rate"])


def minilm() -> dict[str, Any]:
    """Return the queries and keys of the first layer of all-MiniLM-L6-v2, 12 heads of width 32.

    Returns:
        q, k: (H, L, d), of the text `pieces`; q_mean, k_mean: (H, L, d), over many texts; shares:
        (texts, H, 4), what each term accounts for in each of these, the first being that text.
    """
    with (DATA / "minilm_heads.npz").open("rb") as file, np.load(file) as held:
        tensors = {n: torch.from_numpy(held[n]).double() for n in held if n != "pieces"}
        return tensors | {"pieces": held["pieces"].tolist()}
