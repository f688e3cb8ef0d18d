"""Mistakes that would give a wrong number without a word get an error.

`bad_inputs.txt` has a call in each line, and behind it some words of the error where it is ours.
"""

from __future__ import annotations

import importlib
import pkgutil
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

import pe_lib
from pe_lib import KVCache, MultiHeadAttention, PositionEncoding

TABLE = Path(__file__).with_name("bad_inputs.txt").read_text(encoding="utf-8").splitlines()
CASES = [tuple(part.strip() for part in line.split(" ;")) for line in TABLE]


def layer(encoding: PositionEncoding | None = None, **settings: bool) -> MultiHeadAttention:
    """Return attention of width 16 with 2 heads."""
    return MultiHeadAttention(16, 2, encoding, **settings)


def later(layer: MultiHeadAttention, encoding: PositionEncoding) -> MultiHeadAttention:
    """Return a layer that was made with another encoding."""
    layer.encoding = encoding
    return layer


def own(base: type[PositionEncoding] = PositionEncoding, **members: Any) -> PositionEncoding:
    """Return an encoding of one's own."""
    return type("Own", (base,), members)()


def x(*shape: int) -> Tensor:
    """Return hidden states."""
    return torch.randn(*(shape or (1, 4, 16)))


def q(length: int = 4, h: int = 2) -> Tensor:
    """Return queries, keys or values."""
    return torch.randn(1, h, length, 8)


@torch.no_grad()
def follow(given: Tensor, batch: int = 1, **others: Any) -> Tensor:
    """Go on after four tokens."""
    cache, attention = KVCache(), layer(causal=True)
    attention(x(batch, 4, 16), cache=cache)
    output: Tensor = attention(given, cache=cache, **others)
    return output


def scope() -> dict[str, Any]:
    """Return the names that a call may use: those of this file and of the whole library."""
    names: dict[str, Any] = {}
    for module in pkgutil.walk_packages(pe_lib.__path__, "pe_lib."):
        names |= vars(importlib.import_module(module.name))
    names |= {name: each for name, each in vars(pe_lib).items() if callable(each)}
    names |= {"torch": torch, "P": torch.arange, "layer": layer, "later": later, "own": own}
    return names | {"x": x, "q": q, "follow": follow}


SCOPE = scope()


@pytest.mark.parametrize(("call", "words"), CASES)
def test_a_mistake_is_an_error(call: str, words: str) -> None:
    with pytest.raises((TypeError, ValueError, RuntimeError, IndexError)) as error:
        eval(call, dict(SCOPE))
    assert words in str(error.value)


@pytest.mark.parametrize(
    "call",
    [
        "layer(RoPE(8))(x(), q_pos=[0, 1, 2, 3])",
        "layer(RoPE(8))(x(), q_pos=P(4) / 2)",
        "layer()(x(1, 0, 16))",
        "follow(x(), q_pos=P(4))",  # a second text may start at 0
        "follow(x(1, 2, 16), mask=torch.ones(1, 1, 1, 6).bool())",
        "layer(RoPE(8))(x(2, 4, 16), mask=torch.ones(2, 1, 4, 1).bool())",
        "layer()(x(), context=x(1, 1, 16), q_pos=0, k_pos=0, mask=torch.ones(1, 1, 1, 1).bool())",
        "attend(q(), q(0), q(0), NoPosition(), 0, 0)",
    ],
)
def test_what_only_looks_wrong_works(call: str) -> None:
    assert eval(call, dict(SCOPE)) is not None


def test_bytes_do_not_wrap_around() -> None:
    attention, given, places = layer(pe_lib.T5Bias(2, std=1.0)), x(), torch.arange(4)
    expected = attention(given, q_pos=places)
    for dtype in (torch.uint8, torch.int8, torch.int32):
        assert torch.equal(attention(given, q_pos=places.to(dtype)), expected)
