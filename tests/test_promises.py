"""What every method keeps: methods x promises, with a table of honest exceptions.

The promises are those of `pe_lib.testing`. A method that stands in `lab.registry.METHODS` is asked
all of them. What it cannot keep stands in `EXCEPTIONS` with the reason, and is asserted to fail: an
exception that no longer holds is a failure too.
"""

from __future__ import annotations

import itertools
import subprocess
import sys
from collections.abc import Callable

import pytest
import torch
from torch import Tensor, nn

from lab.hierarchical import Hierarchical, HierarchicalLearned, WindowBias
from lab.registry import METHODS as REGISTRY
from lab.registry import Sizes
from pe_lib import (
    ALiBi,
    AxesRoPE,
    AxialRoPE,
    Compose,
    DeBERTa,
    DynamicNTK,
    Forgetting,
    Kerple,
    LongRoPE,
    PositionEncoding,
    RoPE,
    RotaryValues,
    Shaw,
    Sink,
    Sinusoidal,
    SlidingWindow,
    T5Bias,
    TransformerXL,
    XPos,
)
from pe_lib.axes import section_directions
from pe_lib.sinusoidal import frequencies
from pe_lib.testing import PROMISES, check_encoding

HEADS, WIDTH = 3, 8
D_MODEL = HEADS * WIDTH
SIZES = Sizes(D_MODEL, HEADS, length=32)

Make = Callable[[], PositionEncoding]

# --- methods: all of the registry, and variants that differ in kind -------------------------------

METHODS: dict[str, Make] = {
    **{key: lambda method=method: method.make(SIZES) for key, method in REGISTRY.items()},
    "transformer_xl clamped": lambda: TransformerXL(D_MODEL, HEADS, clamp=3),
    "t5 both sides": lambda: T5Bias(HEADS, 8, 9, std=1.0),
    "alibi symmetric": lambda: ALiBi(HEADS, symmetric=True),
    "kerple power": lambda: Kerple(HEADS, variant="power"),
    "window": lambda: WindowBias(HEADS, 3),
    "rope in a sliding window": lambda: Compose(RoPE(WIDTH), SlidingWindow(HEADS, 3)),
    "shaw keys": lambda: Shaw(WIDTH, 3, with_values=False),
    "deberta buckets": lambda: DeBERTa(D_MODEL, HEADS, 16, n_buckets=8),
    "rope half": lambda: RoPE(WIDTH, layout="half"),
    "rope partial": lambda: RoPE(WIDTH, rotary_dim=4),
    "rope trained": lambda: RoPE(WIDTH, rates=nn.Parameter(torch.tensor([1.0, 0.3, 0.1, 0.03]))),
    "axes of sections": lambda: AxesRoPE(
        WIDTH, section_directions(frequencies(WIDTH), [2, 1, 1], "interleaved"), layout="half"
    ),
    "axes trained": lambda: AxesRoPE(
        WIDTH, nn.Parameter(torch.tensor([[1.0, 0.0], [0.2, 0.3], [-0.1, 0.2], [0.0, 0.1]]))
    ),
    "rope axial": lambda: AxialRoPE(WIDTH, 4),
    "xpos half": lambda: XPos(WIDTH, layout="half", scale_base=8),
    "dynamic ntk": lambda: DynamicNTK(WIDTH, 2.0, 6),
    "longrope": lambda: LongRoPE(
        WIDTH, torch.ones(4, device="cpu"), torch.full((4,), 4.0, device="cpu"), 6, 4.0
    ),
    "hierarchical": lambda: Hierarchical(
        D_MODEL, HEADS, torch.tensor([0, 3, 10], device="cpu"), window=2
    ),
    "hierarchical table": lambda: HierarchicalLearned(6, D_MODEL, std=0.3),
    "rotary values": lambda: RotaryValues(RoPE(WIDTH, rotary_dim=4)),
    "rope and sink": lambda: Compose(RoPE(WIDTH), Sink(HEADS, std=1.0)),
    "forgetting, sink, rotary values": lambda: Compose(
        Forgetting(D_MODEL, HEADS, 0.0), Sink(HEADS), RotaryValues(RoPE(WIDTH))
    ),
    "rope and alibi": lambda: Compose(RoPE(WIDTH), ALiBi(HEADS)),
    "sinusoidal and t5": lambda: Compose(Sinusoidal(D_MODEL), T5Bias(HEADS, 8, 9, std=1.0)),
    "four together": lambda: Compose(RoPE(WIDTH), Shaw(WIDTH, 4), ALiBi(HEADS), T5Bias(HEADS)),
    "nested": lambda: Compose(Compose(Shaw(WIDTH, 3), ALiBi(HEADS)), T5Bias(HEADS, 8, 9, std=1.0)),
}


# --- exceptions -----------------------------------------------------------------------------------

START = "positions count from the start of the sequence"
LONGEST = "the longest sequence of the batch decides the frequencies of all, as in published code"
GROWING = "earlier tokens were rotated for a shorter sequence, as in published code"
EVERY_TOKEN = "the gates of all tokens from the key to the query count, hidden or not"

EXCEPTIONS: dict[tuple[str, str], str] = {
    ("position_has_an_effect", "none"): "no positions: attention is blind to order",
    ("a_shift_changes_nothing", "sinusoidal"): START,
    ("a_shift_changes_nothing", "learned"): START,
    ("a_shift_changes_nothing", "hierarchical"): START,
    ("a_shift_changes_nothing", "hierarchical table"): START,
    ("a_shift_changes_nothing", "sinusoidal and t5"): START,
    ("a_shift_changes_nothing", "temperature"): START,
    ("a_shift_changes_nothing", "fire"): "past the threshold a distance is measured as a share of "
    "the query's position",
    ("a_shift_changes_nothing", "rope axial"): "a shift within the rows of an image moves patches "
    "to other rows",
    ("a_shift_changes_nothing", "dynamic ntk"): LONGEST,
    ("a_shift_changes_nothing", "longrope"): LONGEST,
    ("gaps_are_positions", "forgetting"): EVERY_TOKEN,
    ("gaps_are_positions", "forgetting, sink, rotary values"): EVERY_TOKEN,
    ("gaps_are_positions", "cope"): EVERY_TOKEN,
    ("sequences_have_their_own_positions", "dynamic ntk"): LONGEST,
    ("padding_changes_nothing", "dynamic ntk"): LONGEST,
    ("padding_changes_nothing", "longrope"): LONGEST,
    ("packed_texts_stay_apart", "cope"): EVERY_TOKEN,
    ("packed_texts_stay_apart", "dynamic ntk"): LONGEST,
    ("packed_texts_stay_apart", "longrope"): LONGEST,
    ("a_cache_gives_the_whole", "dynamic ntk"): GROWING,
    ("a_cache_gives_the_whole", "longrope"): GROWING,
}

KEPT = [pair for pair in itertools.product(PROMISES, METHODS) if pair not in EXCEPTIONS]


@pytest.mark.parametrize(("promise", "method"), KEPT)
def test_every_method_keeps_it(promise: str, method: str) -> None:
    PROMISES[promise](METHODS[method]())


@pytest.mark.parametrize(("promise", "method"), EXCEPTIONS)
def test_an_exception_is_one(promise: str, method: str) -> None:
    """A difference, or positions that are refused; any other failure is none of these."""
    words = r"differs by|moves nothing|positions|k_pos|q_pos"
    with pytest.raises((AssertionError, ValueError, RuntimeError), match=words):
        PROMISES[promise](METHODS[method]())


# --- what a method that is wrong is told ----------------------------------------------------------


SLOW = "it_compiles_into_one_graph", "it_exports_for_any_length"


class Blind(PositionEncoding):
    """Overrides nothing."""


class ByShape(T5Bias):
    """Counts from the shapes: wrong behind a cache."""

    def bias(self, q: Tensor, k: Tensor, q_pos: Tensor, k_pos: Tensor, scale: float) -> Tensor:
        here = torch.arange(q.shape[2]), torch.arange(k.shape[2])
        return super().bias(q, k, *here, scale)


class Frozen(ALiBi):
    """Reads a number where the gradient should pass."""

    def __init__(self, n_heads: int) -> None:
        super().__init__(n_heads)
        self.factor = nn.Parameter(torch.tensor(1.0))

    def bias(self, q: Tensor, k: Tensor, q_pos: Tensor, k_pos: Tensor, scale: float) -> Tensor:
        return self.factor.item() * super().bias(q, k, q_pos, k_pos, scale)


class Rounded(RoPE):
    """Keeps its angles in a buffer, which a cast rounds."""

    def __init__(self, head_dim: int) -> None:
        super().__init__(head_dim)
        del self.rates
        self.register_buffer("rates", frequencies(head_dim).float() * 1.1)


@pytest.mark.parametrize(
    ("wrong", "promises"),
    [
        (Blind(), ["position_has_an_effect"]),
        (ByShape(HEADS, 8, 9, std=1.0), ["gaps_are_positions", "a_cache_gives_the_whole"]),
        (Frozen(HEADS), ["gradients_equal_numerical_ones"]),
        (Rounded(WIDTH), ["other_dtypes_are_near"]),
    ],
    ids=lambda value: type(value).__name__,
)
def test_a_broken_promise_is_named_with_what_was_seen_and_its_mend(
    wrong: PositionEncoding, promises: list[str]
) -> None:
    with pytest.raises(AssertionError) as error:
        check_encoding(wrong, besides=SLOW)
    for promise in promises:
        assert f"- {promise}: " in str(error.value)
    words = str(error.value)
    assert words.count("\n  mend: ") == words.count("\n  seen: ") >= len(promises)


def test_a_broken_promise_is_seen_where_python_leaves_asserts_out() -> None:
    code = "from pe_lib import NoPosition, testing; testing.position_has_an_effect(NoPosition())"
    done = subprocess.run([sys.executable, "-O", "-c", code], capture_output=True, text=True)
    assert "AssertionError: order moves nothing" in done.stderr


def test_a_sound_method_is_told_which_promises_it_keeps() -> None:
    kept = check_encoding(ALiBi(HEADS), besides=SLOW)
    assert kept == [name for name in PROMISES if name not in SLOW]
