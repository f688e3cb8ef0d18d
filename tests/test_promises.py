"""What every method keeps: methods x promises, with a table of honest exceptions.

The promises are those of `pe_lib.testing`. A method that stands in `pe_course.registry.METHODS` is
asked all of them. What it cannot keep stands in `EXCEPTIONS` with the reason, and is asserted to
fail: an exception that no longer holds is a failure too.
"""

from __future__ import annotations

import itertools
import re
import subprocess
import sys
from collections.abc import Callable

import pytest
import torch
from torch import nn

from pe_course.hierarchical import Hierarchical, HierarchicalLearned, WindowBias
from pe_course.registry import METHODS as REGISTRY
from pe_course.registry import Sizes
from pe_lib import (
    FIRE,
    KERPLE,
    ALiBi,
    AxesRoPE,
    AxialRoPE,
    Compose,
    DeBERTa,
    DynamicNTK,
    Forgetting,
    Learned,
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
from pe_lib.recent.axes import section_directions
from pe_lib.sinusoidal import frequencies
from pe_lib.testing import PROMISES, broken_promises, check_encoding

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
    "kerple power": lambda: KERPLE(HEADS, variant="power"),
    "fire from four": lambda: FIRE(HEADS, threshold=4.0),
    "window": lambda: WindowBias(HEADS, 3),
    "rope in a sliding window": lambda: Compose(RoPE(WIDTH), SlidingWindow(HEADS, 3)),
    "shaw keys": lambda: Shaw(WIDTH, 3, with_values=False),
    "deberta buckets": lambda: DeBERTa(D_MODEL, HEADS, 16, n_buckets=8),
    "rope half": lambda: RoPE(WIDTH, layout="half"),
    "rope partial": lambda: RoPE(WIDTH, rotary_dim=4),
    "rope trained": lambda: RoPE(WIDTH, inv_freq=nn.Parameter(torch.tensor([1.0, 0.3, 0.1, 0.03]))),
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
SHARE = "past the threshold a distance is measured as a share of the query's position"
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
    ("a_shift_changes_nothing", "fire"): SHARE,
    ("a_shift_changes_nothing", "fire from four"): SHARE,
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
    """Uses a hook, and adds nothing."""

    def embed(self, x, positions):
        return x


class Squared(RoPE):
    """Turns by the square of a position."""

    def rotate(self, q, k, q_pos, k_pos):
        return super().rotate(q, k, q_pos**2, k_pos**2)


class ByShape(T5Bias):
    """Counts from the shapes: wrong behind a cache."""

    def bias(self, q, k, q_pos, k_pos, scale):
        return super().bias(q, k, torch.arange(q.shape[2]), torch.arange(k.shape[2]), scale)


class Unbatched(ALiBi):
    """Knows positions of one axis only."""

    def bias(self, q, k, q_pos, k_pos, scale):
        return -0.3 * (q_pos[:, None] - k_pos[None]).abs()


class FirstSequence(ALiBi):
    """Takes the positions of the first sequence for those of all."""

    def bias(self, q, k, q_pos, k_pos, scale):
        first = (positions.view(-1, positions.shape[-1])[:1] for positions in (q_pos, k_pos))
        return super().bias(q, k, *first, scale)


class ByIndex(Learned):
    """Looks a token's place in the row up, whatever its position."""

    def embed(self, x, positions):
        return super().embed(x, torch.arange(x.shape[1]))


class FromLastQuery(RoPE):
    """Counts back from the last query, and says that a key keeps its angle."""

    cacheable_rotation = True

    def rotate(self, q, k, q_pos, k_pos):
        last = q_pos[..., -1:]
        return super().rotate(q, k, q_pos - last, k_pos - last)


class KeepsRows(T5Bias):
    """Keeps the biases of a decoding step for later ones of the same length."""

    def bias(self, q, k, q_pos, k_pos, scale):
        bias = super().bias(q, k, q_pos, k_pos, scale)
        kept = vars(self).setdefault("kept", {})
        return kept.setdefault(k.shape[2], bias.detach()) if q.shape[2] == 1 else bias


class MeanOfKeys(ALiBi):
    """Has slopes that grow with the mean of all keys, hidden ones too."""

    def bias(self, q, k, q_pos, k_pos, scale):
        return super().bias(q, k, q_pos, k_pos, scale) * k.mean(dim=(2, 3), keepdim=True)


class ByMeanDistance(ALiBi):
    """Divides by the mean of the distances asked for, which is another if each is asked once."""

    def of_distance(self, relative):
        return super().of_distance(relative / relative.double().abs().mean())


class ByKeyHead(RoPE):
    """Scales keys by the number of their head, and does not say for how many heads it is."""

    def rotate(self, q, k, q_pos, k_pos):
        q, k = super().rotate(q, k, q_pos, k_pos)
        return q, k * torch.arange(1, k.shape[1] + 1).view(-1, 1, 1)


class AddsAlways(RoPE):
    """Adds to the output of a query that sees no key."""

    def values(self, weights, q_pos, k_pos):
        return weights.new_ones(*weights.shape[:3], self.head_dim)


class Frozen(ALiBi):
    """Reads a number where the gradient should pass."""

    def __init__(self, n_heads):
        super().__init__(n_heads)
        self.factor = nn.Parameter(torch.tensor(1.0))

    def bias(self, q, k, q_pos, k_pos, scale):
        return self.factor.item() * super().bias(q, k, q_pos, k_pos, scale)


class ReadsLargest(ALiBi):
    """Asks for the largest position: of none there is no largest, in a graph it is not known."""

    def bias(self, q, k, q_pos, k_pos, scale):
        bias = super().bias(q, k, q_pos, k_pos, scale)
        return bias if q_pos.max() < 10**6 else 2 * bias


class OtherIfLong(ALiBi):
    """Makes a choice by the length, which a graph for any length cannot."""

    def bias(self, q, k, q_pos, k_pos, scale):
        bias = super().bias(q, k, q_pos, k_pos, scale)
        return bias if len(q_pos) < 10 else 2 * bias


class DrawsLate(ALiBi):
    """Draws its slopes when it is first called, and keeps them in no parameter."""

    def __init__(self, n_heads):
        super().__init__(n_heads)
        self.factor, self.slopes = nn.Parameter(torch.ones(n_heads, 1, 1)), None

    def bias(self, q, k, q_pos, k_pos, scale):
        if self.slopes is None:
            self.slopes = torch.rand_like(self.factor)
        return self.factor * self.slopes * super().bias(q, k, q_pos, k_pos, scale)


class Rounded(RoPE):
    """Keeps its angles in a buffer, which a cast rounds."""

    def __init__(self, head_dim):
        super().__init__(head_dim)
        del self.inv_freq
        self.register_buffer("inv_freq", frequencies(head_dim).float() * 1.1)


DIFFERS = "AssertionError: differs by"
# For each promise a class that breaks it, and what is seen then.
WRONG: dict[str, tuple[Make, str]] = {
    "position_has_an_effect": (Blind, "AssertionError: order moves nothing"),
    "a_shift_changes_nothing": (lambda: Squared(WIDTH), DIFFERS),
    "gaps_are_positions": (lambda: ByShape(HEADS, 8, 9, std=1.0), DIFFERS),
    "positions_come_in_any_form": (lambda: Unbatched(HEADS), DIFFERS),
    "sequences_have_their_own_positions": (lambda: FirstSequence(HEADS), DIFFERS),
    "padding_changes_nothing": (lambda: ByIndex(32, D_MODEL, std=1.0), DIFFERS),
    "packed_texts_stay_apart": (lambda: ByIndex(32, D_MODEL, std=1.0), DIFFERS),
    "a_cache_gives_the_whole": (lambda: FromLastQuery(WIDTH), DIFFERS),
    "changed_weights_are_seen": (lambda: KeepsRows(HEADS, 8, 9, std=1.0), DIFFERS),
    "the_future_is_unseen": (lambda: MeanOfKeys(HEADS), DIFFERS),
    "fused_attention_equals_the_definition": (lambda: ByMeanDistance(HEADS), DIFFERS),
    "grouped_heads_equal_repeated_ones": (lambda: ByKeyHead(WIDTH), DIFFERS),
    "a_query_without_a_key_is_no_error": (
        lambda: AddsAlways(WIDTH), "AssertionError: the output is not zero",
    ),
    "gradients_equal_numerical_ones": (lambda: Frozen(HEADS), "GradcheckError: Jacobian mismatch"),
    "it_compiles_into_one_graph": (lambda: ReadsLargest(HEADS), "[Dd]ata-dependent"),
    "it_exports_for_any_length": (lambda: OtherIfLong(HEADS), r"Constraints violated \(length\)"),
    "an_evaluation_stops_no_training": (
        lambda: DrawsLate(HEADS), "RuntimeError: Inference tensors cannot be saved for backward",
    ),
    "other_dtypes_are_near": (lambda: Rounded(WIDTH), DIFFERS),
    "it_is_saved_and_copied": (lambda: DrawsLate(HEADS), DIFFERS),
    "an_empty_batch_is_legal": (lambda: ReadsLargest(HEADS), r"max\(\)"),
}  # fmt: skip


def test_every_promise_has_a_wrong_class() -> None:
    assert list(WRONG) == list(PROMISES)


@pytest.mark.parametrize("promise", WRONG)
def test_every_promise_refuses_a_wrong_class(promise: str) -> None:
    """For the reason that is its own."""
    make, seen = WRONG[promise]
    told = broken_promises(make(), [promise])
    assert list(told) == [promise]
    assert re.search(f"\n  seen: .*{seen}", told[promise])


def test_what_is_broken_names_its_mend() -> None:
    """Each promise that is not kept is named, with what was seen and the usual mend."""
    with pytest.raises(AssertionError, match="ByShape does not keep") as error:
        check_encoding(ByShape(HEADS, 8, 9, std=1.0), except_for=SLOW)
    message = str(error.value)
    for promise in ("gaps_are_positions", "a_cache_gives_the_whole"):
        assert f"- {promise}: " in message
    assert message.count("\n- ") == message.count("\n  mend: ") == message.count("\n  seen: ") >= 2


def test_python_without_asserts_sees_it_too() -> None:
    code = "from pe_lib import NoPosition, testing; testing.position_has_an_effect(NoPosition())"
    done = subprocess.run([sys.executable, "-O", "-c", code], capture_output=True, text=True)
    assert "AssertionError: order moves nothing" in done.stderr


def test_a_sound_method_hears_its_promises() -> None:
    kept = check_encoding(ALiBi(HEADS), except_for=SLOW)
    assert kept == [name for name in PROMISES if name not in SLOW]
