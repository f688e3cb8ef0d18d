"""A small published language model with RoPE, in this library's parts.

Weights and vocabulary are those of the PyPI package `glassllm` 0.1.0 (MIT licence; 128 tokens in
training), kept in `pe_course/data/glass`; the model is built from `MultiHeadAttention` and `RoPE`.
"""

from __future__ import annotations

import json
import re
import unicodedata
from functools import cache
from importlib.resources import files
from itertools import pairwise

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from pe_course.model import fitted
from pe_lib.attention import MultiHeadAttention
from pe_lib.encoding import PositionEncoding
from pe_lib.rope import RoPE

DATA = files(__package__) / "data" / "glass"
HEADS, KEY_HEADS, HEAD_DIM, EPS = 4, 2, 32, 1e-6

SPACE = "▁"  # stands for a space inside a token
CHUNK = re.compile(r"\n|▁*[^▁\n]+|▁+")  # a line break, a word with the spaces before it, or spaces
SPECIAL_TOKENS = ["<pad>", "<unk>", "<bos>", "<eos>"]


class GatedBlock(nn.Module):
    """A decoder layer as in Llama: RMSNorm, causal attention, gated feed-forward network."""

    def __init__(self, d_model: int, hidden: int, encoding: PositionEncoding) -> None:
        """Create the layers."""
        super().__init__()
        self.norm_1, self.norm_2 = nn.RMSNorm(d_model, EPS), nn.RMSNorm(d_model, EPS)
        self.attention = MultiHeadAttention(
            d_model, HEADS, encoding, causal=True, n_kv_heads=KEY_HEADS
        )
        self.gate = nn.Linear(d_model, hidden, bias=False)
        self.up = nn.Linear(d_model, hidden, bias=False)
        self.down = nn.Linear(hidden, d_model, bias=False)

    def forward(self, x: Tensor) -> Tensor:
        """(B, L, D) -> (B, L, D)."""
        x = x + self.attention(self.norm_1(x))
        h = self.norm_2(x)
        out: Tensor = x + self.down(F.silu(self.gate(h)) * self.up(h))
        return out


class GlassLM(nn.Module):
    """The published decoder: 4 layers, width 128, 4 heads that share 2 heads of keys.

    Args:
        weights: the arrays of the published file, by name.
    """

    def __init__(self, weights: dict[str, np.ndarray]) -> None:
        """Copy the weights."""
        super().__init__()
        table = as_tensor(weights["E"])  # (vocabulary, D), at the input and at the output
        hidden = weights["blocks.0.ffn.W1"].shape[1]
        n_layers = 1 + max(int(name.split(".")[1]) for name in weights if "blocks" in name)
        self.embedding = nn.Embedding.from_pretrained(table)
        self.blocks = nn.ModuleList(
            GatedBlock(table.shape[1], hidden, RoPE(HEAD_DIM)) for _ in range(n_layers)
        )
        self.norm = nn.RMSNorm(table.shape[1], EPS)
        self.double().load_state_dict(
            {"embedding.weight": table} | renamed(weights, n_layers), strict=True
        )

    def use_encoding(self, encoding: PositionEncoding) -> None:
        """Use another encoding in all layers from now on, as `Transformer.use_encoding` does."""
        encoding = fitted(encoding, self)
        for block in self.blocks:
            block.attention.encoding = encoding  # type: ignore[union-attr]

    def forward(self, ids: Tensor) -> Tensor:
        """Return the logits of the next token: (B, L) -> (B, L, vocabulary)."""
        x = self.embedding(ids)  # (B, L, D)
        for block in self.blocks:
            x = block(x)
        logits: Tensor = self.norm(x) @ self.embedding.weight.T
        return logits


def as_tensor(array: np.ndarray) -> Tensor:
    """Return a float64 tensor of a float16 array."""
    return torch.from_numpy(array.astype(np.float64))


def renamed(weights: dict[str, np.ndarray], n_layers: int) -> dict[str, Tensor]:
    """Return the published weights under this module's names."""
    state = {"norm.weight": as_tensor(weights["norm_f.gamma"])}
    for i in range(n_layers):
        source = {
            name.removeprefix(f"blocks.{i}."): as_tensor(array)
            for name, array in weights.items()
            if name.startswith(f"blocks.{i}.")
        }
        layer = {
            "norm_1.weight": source["norm1.gamma"],
            "norm_2.weight": source["norm2.gamma"],
            "attention.q_proj.weight": source["attn.W_Q"].T,
            "attention.k_proj.weight": source["attn.W_K"].T,
            "attention.v_proj.weight": source["attn.W_V"].T,
            "attention.out_proj.weight": source["attn.W_O"].T,
            "gate.weight": source["ffn.W1"].T,
            "up.weight": source["ffn.W3"].T,
            "down.weight": source["ffn.W2"].T,
        }
        state |= {f"blocks.{i}.{name}": tensor for name, tensor in layer.items()}
    return state


def load_glass() -> GlassLM:
    """Return the published English model."""
    with (DATA / "en.npz").open("rb") as file, np.load(file) as data:
        return GlassLM({name: data[name] for name in data if not name.startswith("__")}).eval()


@cache
def load_vocabulary() -> tuple[dict[str, int], dict[tuple[str, str], int]]:
    """Return the id of each token, and the rank of each pair of tokens that may be merged."""
    data = json.loads((DATA / "en.tokenizer.json").read_text(encoding="utf-8"))
    tokens = SPECIAL_TOKENS + data["alphabet"] + ["".join(pair) for pair in data["merges"]]
    ranks = {(left, right): rank for rank, (left, right) in enumerate(data["merges"])}
    return {token: token_id for token_id, token in enumerate(tokens)}, ranks


@cache
def merge_chunk(chunk: str) -> list[int]:
    """Return the token ids of a chunk by byte-pair encoding: merge the pair of lowest rank, repeat.

    A character that is not in the vocabulary becomes `<unk>`.
    """
    token_ids, ranks = load_vocabulary()
    tokens = list(chunk)
    while pairs := [pair for pair in pairwise(tokens) if pair in ranks]:
        left, right = min(pairs, key=ranks.__getitem__)
        merged: list[str] = []
        for token in tokens:
            if token == right and merged and merged[-1] == left:
                merged[-1] += right
            else:
                merged.append(token)
        tokens = merged
    return [token_ids.get(token, token_ids["<unk>"]) for token in tokens]


def encode(text: str) -> Tensor:
    """Return the token ids of a text, (L,)."""
    marked = unicodedata.normalize("NFC", text).replace(" ", SPACE)
    ids = [token_id for chunk in CHUNK.findall(marked) for token_id in merge_chunk(chunk)]
    return torch.tensor(ids, dtype=torch.long)
