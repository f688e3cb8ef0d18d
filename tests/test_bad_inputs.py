"""Bad input gets an error that names the argument, what was given and what is allowed.

`bad_inputs.txt` has a call and some words of its error in each line.
"""

from __future__ import annotations

import importlib
import pkgutil
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import torch
from torch import Tensor, nn

import pe_lib
from lab.model import Transformer
from pe_lib import KVCache, Learned, MultiHeadAttention, PositionEncoding, RoPE
from pe_lib.deberta import log_bucket
from pe_lib.t5 import t5_bucket

P = torch.arange
TABLE = Path(__file__).with_name("bad_inputs.txt").read_text().splitlines()
CASES = dict(line.split(" ; ", 1) for line in TABLE)


def layer(encoding: PositionEncoding | None = None, **settings: bool) -> MultiHeadAttention:
    """Return attention of width 16 with 2 heads."""
    return MultiHeadAttention(16, 2, encoding, **settings)


def x(*shape: int) -> Tensor:
    """Return hidden states."""
    return torch.randn(*(shape or (1, 4, 16)))


def q(h: int = 2, length: int = 4, d: int = 8, b: int = 1) -> Tensor:
    """Return queries, keys or values."""
    return torch.randn(b, h, length, d)


def follow(given: Tensor, **others: object) -> Tensor:
    """Go on after four tokens, in the dtype of `given`."""
    cache, attention = KVCache(), layer(causal=True)
    attention(x(), cache=cache)
    output: Tensor = attention.to(given.dtype)(given, cache=cache, **others)
    return output


def scope() -> dict[str, object]:
    """Return the names that a call may use: those of this file and of the whole library."""
    names: dict[str, object] = {}
    for module in pkgutil.iter_modules(pe_lib.__path__):
        if module.name not in ("fast", "testing"):
            names |= vars(importlib.import_module(f"pe_lib.{module.name}"))
    names |= {name: getattr(pe_lib, name) for name in pe_lib.__all__}
    names |= {"torch": torch, "np": np, "nn": nn, "P": P, "Transformer": Transformer}
    names |= {"NAN": float("nan"), "INF": float("inf")}
    return names | {"layer": layer, "x": x, "q": q, "follow": follow}


SCOPE = scope()


@pytest.mark.parametrize("call", CASES)
def test_bad_input_is_refused_by_name(call: str) -> None:
    with pytest.raises((TypeError, ValueError)) as error:
        eval(call, dict(SCOPE))
    assert CASES[call] in str(error.value)


ACCEPTED: dict[str, Callable[[], object]] = {
    "small integers are integers": lambda: Learned(8, 16).embed(x(), P(4).to(torch.uint8)),
    "farther than every bucket": lambda: t5_bucket(torch.tensor([-(2**63)])),
    "an integer of numpy is one": lambda: t5_bucket(P(3), np.int64(32)),
    "positions may be a list": lambda: RoPE(8).rotate(q(), q(), [0, 1, 2, 3], [0, 1, 2, 3]),
    "distances may be a list": lambda: log_bucket([1, 2], 4, 8),
    "bytes do not wrap around": lambda: layer()(x(), q_pos=P(4).to(torch.uint8)[None]),
    "a second text may start at 0": lambda: follow(x(), q_pos=P(4)),
}


@pytest.mark.parametrize("reason", ACCEPTED)
def test_what_only_looks_bad_is_accepted(reason: str) -> None:
    assert ACCEPTED[reason]() is not None
