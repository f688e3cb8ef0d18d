"""Record what chapter 12 reads of heads: small trainings, and what its figure shows.

Usage: python -m tools.heads          train what is missing in lab/data/heads.json, and keep one
                                      model of it as lab/data/heads_rope.npz
       python -m tools.heads figure   write pages/web/heads.json, what the chapter's figure reads

The first takes each method's rate from a grid on a seed of its own, then trains all seeds, each
for the same number of steps.
"""

from __future__ import annotations

import argparse
import json
from base64 import b64encode
from itertools import product
from typing import Any

import numpy as np
import torch
from glassllm import load_pretrained
from torch import Tensor

from lab import heads, pretrained, tasks
from lab.training import generator
from pages.live import WEB
from pe_lib.relative import RelativeBias

RUNS, MODEL = heads.DATA / "heads.json", heads.DATA / "heads_rope.npz"


def train_missing() -> None:
    """Train what stands in no row yet, rates before seeds; write each row when it is known."""
    rows = heads.runs() if RUNS.exists() else []

    def train(method: str, seed: int, rate: float) -> None:
        if any((row["method"], row["seed"], row["rate"]) == (method, seed, rate) for row in rows):
            return
        model, found = heads.train_on_repeated(method, seed, rate)
        found |= heads.report(model) if seed in heads.SEEDS else {}
        rows.append({"method": method, "seed": seed, "rate": rate} | rounded(found))
        lines = ",\n".join(json.dumps(row) for row in rows)
        RUNS.write_text(f"[\n{lines}\n]\n", encoding="utf-8")

    for method, rate in product(heads.COMPARED, heads.RATES):
        train(method, heads.RATE_SEED, rate)
    for seed, method in product(heads.SEEDS, heads.COMPARED):
        train(method, seed, heads.chosen_rate(rows, method))


def keep_model() -> None:
    """Write the weights, in float32, of the rotary model that chapter 12 looks into."""
    model, _ = heads.train_on_repeated("rope", 0, 1e-2)
    weights = {name: tensor.float().numpy() for name, tensor in model.state_dict().items()}
    np.savez_compressed(MODEL, **weights)  # type: ignore[arg-type]


def rounded(found: Any) -> Any:
    """Return nested numbers with four decimals."""
    if isinstance(found, dict):
        return {key: rounded(value) for key, value in found.items()}
    return [rounded(each) for each in found] if isinstance(found, list) else round(found, 4)


# What the figure reads ----------------------------------------------------------------------------


def read_by_figure(
    q: Tensor, k: Tensor, means: list[Tensor], tokens: list[str], **more: Any
) -> dict[str, Any]:
    """Return a head as the figure reads it: whole numbers of one byte, and a size for each.

    Args:
        q: queries of one text, not rotated, (L, d).
        k: keys, (L, d).
        means: those of the average word, (L, d) each, or (1, d) if all places have the same.
        tokens: the L words.
        more: base of the rotation or None, bias by distance or None, whether the mask is causal.
    """
    held = {"q": q, "k": k, "q_mean": means[0], "k_mean": means[1]}
    sizes = [
        max(float(x.abs().max()) for x in pair) / 127 for pair in ((q, means[0]), (k, means[1]))
    ]
    found = {
        name: b64encode((x / sizes[n % 2]).round().to(torch.int8).numpy().tobytes()).decode()
        for n, (name, x) in enumerate(held.items())
    }
    return {"d": q.shape[1], "tokens": tokens, "sizes": sizes, **more, **found}


def of_trained(method: str, layer: int) -> dict[str, Any]:
    """Return the head of a trained model's layer that does most of what such a layer is for."""
    if method == "rope":
        model = heads.trained()
    else:
        rate = heads.chosen_rate(heads.runs(), method)
        model, _ = heads.train_on_repeated(method, heads.SEEDS[0], rate)
    batch = heads.repeated(300, generator(98))[0]
    seen = heads.look(model, batch)[layer]
    does = heads.answers(batch, seen.weights) if layer else heads.along(seen.weights, 1).mean(0)
    h = int(does.argmax())
    q, k = seen.q[:, h], seen.k[:, h]  # (B, L, d)
    means = [x.mean(0) if method == "learned" else x.mean((0, 1))[None] for x in (q, k)]
    encoding, bias = heads.attention_of(model, layer).encoding, None
    if isinstance(encoding, RelativeBias):
        values = encoding.of_distance(-torch.arange(q.shape[1]))[h]
        bias = [round(value, 3) for value in values.tolist()]
    letters = [chr(ord("a") + int(token)) for token in batch[0]]
    base = 10000 if method == "rope" else None
    return read_by_figure(q[0], k[0], means, letters, base=base, bias=bias, causal=True)


def of_minilm(head: int) -> dict[str, Any]:
    """Return a head of MiniLM's first layer, counted from 1, for the text's first 20 pieces."""
    known, some = heads.minilm(), slice(1, 21)  # the mark at the text's beginning is left out
    q, k, *means = (known[name][head - 1, some] for name in ("q", "k", "q_mean", "k_mean"))
    return read_by_figure(q, k, means, known["pieces"][some], base=None, bias=None, causal=False)


@torch.no_grad()
def of_glass(layer: int, head: int) -> dict[str, Any]:
    """Return a head of the published decoder, both counted from 1, as chapter 12 reads it."""
    glass = pretrained.load_glass()
    ids = pretrained.encode(tasks.load_text()[:40_000])
    starts = torch.linspace(0, len(ids) - 129, 12).long()[:, None]
    ids = ids[starts + torch.arange(128)]
    x = glass.embedding(ids)
    for block in glass.blocks[: layer - 1]:
        x = block(x)
    block = glass.blocks[layer - 1]
    attention, z = block.attention, block.norm_1(x)  # type: ignore[operator]
    q = attention.split_heads(attention.q_proj(z))[:, head - 1]  # type: ignore[operator, union-attr]
    k = attention.split_heads(attention.k_proj(z))[:, (head - 1) // 2]  # type: ignore[operator, union-attr]
    means = [part[:, 8:].mean((0, 1))[None].double() for part in (q, k)]
    _, tokenizer = load_pretrained("en")
    words = [tokenizer.decode([int(each)]).strip() or "␣" for each in ids[0, :20]]
    return read_by_figure(q[0, :20], k[0, :20], means, words, base=10000, bias=None, causal=True)


def record_figure() -> None:
    """Write the heads that the chapter's figure shows."""
    found = {"rope_1": of_trained("rope", 0), "rope_2": of_trained("rope", 1)}
    found |= {"table": of_trained("learned", 0)}
    found |= {method: of_trained(method, 0) for method in ("t5", "alibi", "none")}
    found |= {f"minilm_{head}": of_minilm(head) for head in (3, 6, 10)}
    found |= {"glass_3": of_glass(3, 1), "glass_1": of_glass(1, 2)}
    text = json.dumps(found, ensure_ascii=False, separators=(",", ":"))
    (WEB / "heads.json").write_text(text + "\n", encoding="utf-8")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("what", nargs="?", choices=["figure"], help="what the figure shows")
    what = parser.parse_args().what
    if what == "figure":
        record_figure()
    else:
        train_missing()
        if not MODEL.exists():
            keep_model()


if __name__ == "__main__":
    main()
