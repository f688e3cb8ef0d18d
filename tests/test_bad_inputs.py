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
from lab import hierarchical, segments
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
    names |= vars(hierarchical) | vars(segments)
    names |= {name: each for name, each in vars(pe_lib).items() if isinstance(each, type)}
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
    "a table of one row has nothing to squeeze": lambda: hierarchical.Beyond(
        Learned(1, 16), "interpolate"
    ).embed(x(1, 1, 16), P(1)),
    "a second text may start at 0": lambda: follow(x(), q_pos=P(4)),
}


@pytest.mark.parametrize("reason", ACCEPTED)
def test_what_only_looks_bad_is_accepted(reason: str) -> None:
    assert ACCEPTED[reason]() is not None


OWN = """
from torch import Tensor
from pe_lib.arguments import Booleans, Integers, Reals, checked

@checked(scores="L")
def formula(scores: Tensor, places: Reals, row: Integers, seen: Booleans, more: object = None):
    return scores, places, row, seen
"""


@pytest.mark.parametrize("first_line", ["", "from __future__ import annotations"])
def test_a_formula_of_ones_own_is_checked_with_annotations_of_any_kind(first_line: str) -> None:
    own: dict[str, Callable[..., tuple[Tensor, ...]]] = {}
    exec(first_line + OWN, own)  # type: ignore[arg-type]
    good = torch.ones(3), [1.5], range(2), torch.ones(1, dtype=torch.bool)
    assert [each.dtype for each in own["formula"](*good)] == [
        *(torch.float32, torch.float64, torch.int64, torch.bool)
    ]
    for i, wrong in enumerate(([1.0], torch.ones(1).bool(), [1.5], torch.ones(1))):
        with pytest.raises(TypeError, match=("scores", "places", "row", "seen")[i]):
            own["formula"](*good[:i], wrong, *good[i + 1 :])
