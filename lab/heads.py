"""What a trained head does with positions: its scores by word and place, and by frequency.

A head's score is <q, R(D) k> and a bias, with D the position of the key minus that of the query.
The mean of its queries over many texts, place by place, is what the average word asks there; the
mean of its keys is what the average word answers. Their score needs no word.
"""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor

from lab.model import Transformer
from lab.registry import METHODS, Sizes, encodings
from lab.training import IGNORE, Batch, accuracy, generator, train
from pe_lib.attention import MultiHeadAttention, attention_logits
from pe_lib.errors import require_choice, require_shapes
from pe_lib.rope import RoPE, apply_rope, rope_angles
from pe_lib.sinusoidal import frequencies

DATA = Path(__file__).resolve().parent / "data"
TOKENS, HALF, WIDTH, HEADS, LAYERS = 24, 12, 32, 2, 2  # of the models on repeated text
BATCH, STEPS, RATE, SEEDS = 32, 500, 1e-2, range(5)
COMPARED = ("rope", "learned", "t5", "alibi", "none")


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


def train_on_repeated(
    method: str, seed: int, steps: int = STEPS, checks: int = 100
) -> tuple[Transformer, list[float]]:
    """Train two layers on repeated text, all methods by the same rule.

    Returns:
        the model, and its accuracy after each `checks` steps.
    """
    sizes = Sizes(WIDTH, HEADS, 2 * HALF)
    known = METHODS[require_choice("method", method, tuple(METHODS))]
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        encoding = encodings(known, sizes, LAYERS)
        model = Transformer(
            TOKENS, d_model=WIDTH, n_heads=HEADS, n_layers=LAYERS, encoding=encoding, causal=True
        )
    test, right = repeated(300, generator(99)), []

    def after(step: int) -> None:
        if step % checks == 0:
            right.append(accuracy(model, *test))

    train(
        model, lambda random: repeated(BATCH, random), steps=steps, lr=RATE, seed=seed,
        after=after, label=known.name,
    )  # fmt: skip
    return model, right


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
    for block in model.blocks:
        layer: MultiHeadAttention = block.attention  # type: ignore[assignment]
        z = block.norm_1(x)  # type: ignore[operator]
        heads = (layer.split_heads(projection(z)) for projection in (layer.q_proj, layer.k_proj))
        found.append(Seen(*heads, layer.with_weights(z)[1]))
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


def of_average(layer: MultiHeadAttention, seen: Seen) -> Tensor:
    """Return the scores that the average word gives the average word, place by place: (H, L, L)."""
    q, k = (x.mean(0, keepdim=True) for x in (seen.q, seen.k))  # (1, H, L, d)
    places = torch.arange(q.shape[2])
    return attention_logits(q, k, layer.encoding, places, places)[0]


def sizes(seen: Seen) -> Tensor:
    """Return the size of each pair's cosine in the average word's curve, (H, d / 2)."""
    q, k = (x.mean((0, 2)).unflatten(-1, (-1, 2)).norm(dim=-1) for x in (seen.q, seen.k))
    return q * k / math.sqrt(seen.q.shape[-1])


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


def with_rates(model: Transformer, layer: int, rates: Tensor) -> RoPE:
    """Give one layer other rates; return the encoding that it had."""
    attention = model.blocks[layer].attention
    before: RoPE = attention.encoding  # type: ignore[assignment, union-attr]
    attention.encoding = RoPE(WIDTH // HEADS, rates=rates).double()  # type: ignore[union-attr]
    return before


def answered_with(model: Transformer, layer: int, rates: Tensor, batch: Batch) -> float:
    """Return a model's accuracy while one of its layers has other rates."""
    before = with_rates(model, layer, rates)
    right = accuracy(model, *batch)
    model.blocks[layer].attention.encoding = before  # type: ignore[union-attr]
    return right


def changes() -> dict[str, Tensor]:
    """Return other rates for a layer: each pair stopped, two exchanged, all slowed by four."""
    rates = frequencies(WIDTH // HEADS)
    stopped = {f"stop {r}": rates.clone() for r in range(len(rates))}
    for r, each in enumerate(stopped.values()):
        each[r] = 0
    exchanged = rates.clone()
    exchanged[:2] = rates[:2].flip(0)
    return {"as trained": rates} | stopped | {"exchange 0, 1": exchanged, "slow": rates / 4}


@torch.no_grad()
def place_readable(model: Transformer, tokens: Tensor) -> float:
    """Return how well a line reads the place from what enters layer 2: R squared, other texts."""
    x = model.encoding.embed(model.inputs(tokens), torch.arange(tokens.shape[1]))
    h = model.blocks[0](x, torch.arange(tokens.shape[1]), None, None)  # (B, L, D)
    half = len(h) // 2
    rows = torch.cat([h, torch.ones_like(h[..., :1])], dim=-1)
    wanted = torch.arange(h.shape[1]).double().expand(len(h), -1)
    line = torch.linalg.lstsq(rows[:half].flatten(0, 1), wanted[:half].flatten(), driver="gelsd")
    left = wanted[half:] - rows[half:] @ line.solution
    return float(1 - left.square().mean() / wanted[half:].var(correction=0))


def report(model: Transformer) -> dict[str, object]:
    """Return what is recorded of a trained model."""
    batch = repeated(300, generator(98))
    seen = look(model, batch[0])
    encodings = [block.attention.encoding for block in model.blocks]  # type: ignore[union-attr]
    found: dict[str, object] = {
        "previous": [along(each.weights, 1).mean(0).tolist() for each in seen],
        "answer": [answers(batch[0], each.weights).tolist() for each in seen],
        "curve": [
            torch.stack(
                [along(of_average(block.attention, each), b) for b in range(2 * HALF)]  # type: ignore[arg-type, union-attr]
            ).T.tolist()
            for block, each in zip(model.blocks, seen, strict=True)
        ],
        "place": place_readable(model, batch[0]),
    }
    if isinstance(encodings[0], RoPE):
        rates = encodings[0].rates.double()
        found["size"] = [sizes(each).tolist() for each in seen]
        found["changed"] = {
            name: [answered_with(model, layer, other, batch) for layer in range(LAYERS)]
            for name, other in changes().items()
        }
        before = with_rates(model, 0, rates / 4)
        slowed = look(model, batch[0])[0].weights
        found["slowed"] = [[float(along(w, b)) for b in range(9)] for w in slowed.mean(0)]
        model.blocks[0].attention.encoding = before  # type: ignore[union-attr]
    return found


def runs() -> list[dict[str, Any]]:
    """Return what tools/heads.py recorded of trainings: a row for each method and seed."""
    found: list[dict[str, Any]] = json.loads((DATA / "heads.json").read_text(encoding="utf-8"))
    return found


def minilm() -> dict[str, Any]:
    """Return the queries and keys of the first layer of all-MiniLM-L6-v2, 12 heads of width 32.

    Returns:
        q, k: (H, L, d), of the text `pieces`; q_mean, k_mean: (H, L, d), over many texts.
    """
    with np.load(DATA / "minilm_heads.npz") as held:
        tensors = {n: torch.from_numpy(held[n]).double() for n in held if n != "pieces"}
        return tensors | {"pieces": held["pieces"].tolist()}
