"""Compose: inputs, rotations, biases and values of several encodings in one."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor, nn

from pe_lib.alibi import ALiBi
from pe_lib.attention import MultiHeadAttention, attend, attention_logits
from pe_lib.cache import KVCache
from pe_lib.compose import Compose
from pe_lib.encoding import NoPosition, PositionEncoding, per_head, relative_position
from pe_lib.learned import Learned
from pe_lib.recent.mla import DecoupledRotation
from pe_lib.recent.rotary_values import RotaryValues
from pe_lib.recent.xpos import XPos
from pe_lib.rope import RoPE
from pe_lib.shaw import Shaw
from pe_lib.sinusoidal import Sinusoidal, sinusoidal
from pe_lib.t5 import T5Bias


class Slope(PositionEncoding):
    """A bias without content, and a scale of its own."""

    def __init__(self, slope: float, scale: float | None = None) -> None:
        super().__init__()
        self.slope, self.scale = nn.Parameter(torch.tensor(slope)), scale

    def bias(self, q: Tensor, k: Tensor, q_pos: Tensor, k_pos: Tensor, scale: float) -> Tensor:
        return self.slope * per_head(relative_position(q_pos, k_pos))


class Extra(PositionEncoding):
    """Adds a constant to every output."""

    def __init__(self, constant: float) -> None:
        super().__init__()
        self.constant = constant

    def values(self, weights: Tensor, q_pos: Tensor, k_pos: Tensor) -> Tensor:
        return torch.full((*weights.shape[:-1], 8), self.constant)


def qk() -> tuple[Tensor, Tensor, Tensor, Tensor]:
    torch.manual_seed(0)
    return torch.randn(2, 3, 5, 8), torch.randn(2, 3, 7, 8), torch.arange(5) + 2, torch.arange(7)


class SinkOfQuery(PositionEncoding):
    """A sink that reads the query."""

    def sink(self, q: Tensor, q_pos: Tensor) -> Tensor:
        return q[..., :1]


def test_a_sink_may_read_queries() -> None:
    """It is given queries as projected, in decoding too."""
    layer = MultiHeadAttention(16, 2, Compose(RoPE(8), SinkOfQuery()), causal=True).double()
    x, cache = torch.randn(1, 5, 16).double(), KVCache()
    steps = [layer(step, cache=cache) for step in x.split(1, dim=1)]
    torch.testing.assert_close(torch.cat(steps, dim=1), layer(x))


def test_inputs_add_up() -> None:
    sines, table = Sinusoidal(6), Learned(9, 6)
    x, positions = torch.randn(2, 4, 6), torch.arange(4) + 3
    ours = Compose(sines, table).embed(x, positions)
    torch.testing.assert_close(ours, x + sinusoidal(positions, 6) + table.rows(positions))


def test_what_fades_rotates_last() -> None:
    """Before a rotation of other pairs, the middle from which it counts would be seen."""
    xpos, half = XPos(8, scale_base=16.0), RoPE(8, layout="half")
    for both in ((xpos, half), (DecoupledRotation(xpos, 8), half)):
        with pytest.raises(ValueError, match=r"must have \w+ after all that rotate"):
            Compose(*both)
    layer = MultiHeadAttention(16, 2, Compose(half, xpos), causal=True).double()
    x, cache = torch.randn(1, 40, 16).double(), KVCache()
    steps = [layer(part, cache=cache) for part in x.split(1, dim=1)]
    torch.testing.assert_close(torch.cat(steps, dim=1), layer(x))
    torch.testing.assert_close(layer(x[:, :10]), layer(x)[:, :10])


def test_rotations_keep_the_order_given() -> None:
    interleaved, half = RoPE(8), RoPE(8, layout="half")
    q, k, q_pos, k_pos = qk()
    ours = Compose(interleaved, half).rotate(q, k, q_pos, k_pos)[0]
    first = interleaved.rotate(q, k, q_pos, k_pos)
    assert torch.equal(ours, half.rotate(*first, q_pos, k_pos)[0])
    assert not torch.allclose(ours, Compose(half, interleaved).rotate(q, k, q_pos, k_pos)[0])


def test_value_rotations_are_undone_in_reverse() -> None:
    """Rotations of different pairs do not commute."""
    both = Compose(RotaryValues(RoPE(8)), RotaryValues(RoPE(8, layout="half")))
    v, positions = torch.randn(2, 3, 5, 8).double(), torch.arange(5) + 2
    rotated = both.rotate_values(v, positions)
    assert not torch.allclose(rotated, v)
    torch.testing.assert_close(both.rotate_back(rotated, positions), v)


def test_biases_see_queries_before_rotation() -> None:
    class Content(PositionEncoding):
        def bias(self, q: Tensor, k: Tensor, q_pos: Tensor, k_pos: Tensor, scale: float) -> Tensor:
            return q[..., :1]

    q, k, q_pos, k_pos = qk()
    slope = Slope(0.5)
    ours = Compose(RoPE(8), slope, Content()).bias(q, k, q_pos, k_pos, 1.0)
    assert ours is not None
    torch.testing.assert_close(ours, slope.bias(q, k, q_pos, k_pos, 1.0) + q[..., :1])
    assert Compose(RoPE(8), NoPosition()).bias(q, k, q_pos, k_pos, 1.0) is None


def test_values_add_up() -> None:
    q, k, q_pos, k_pos = qk()
    both = Compose(Extra(1.0), Slope(0.5), Extra(2.0))
    plain = Compose(Slope(0.5))
    assert both.uses("values")
    assert not plain.uses("values")
    ours, _ = attend(q, k, k, both, q_pos, k_pos)
    torch.testing.assert_close(ours, attend(q, k, k, plain, q_pos, k_pos)[0] + 3)
    assert plain.values(q @ k.mT, q_pos, k_pos) is None


def test_one_scale_counts_for_all() -> None:
    q, k, q_pos, k_pos = qk()
    rope, slope = RoPE(8), Slope(0.5, scale=1.0)
    both = Compose(rope, slope)
    assert both.scale == 1.0
    assert rope.scale is None  # nobody writes into a member
    rotated_q, rotated_k = rope.rotate(q, k, q_pos, k_pos)
    expected = rotated_q @ rotated_k.mT + slope.bias(q, k, q_pos, k_pos, 1.0)
    torch.testing.assert_close(attention_logits(q, k, both, q_pos, k_pos), expected)
    assert Compose(Slope(1.0, 0.5), Slope(2.0, 0.5)).scale == 0.5
    assert Compose(NoPosition()).scale is None


def test_a_nested_composition_equals_the_flat_one() -> None:
    """The scale of an outer member reaches the products of queries and keys in an inner one."""
    q, k, *_ = qk()
    shaw, alibi, t5 = Shaw(8, 2), ALiBi(3), T5Bias(3)
    for q_pos, k_pos in ((2, 0), (torch.arange(5) + 2, torch.arange(7))):
        nested = attention_logits(q, k, Compose(Compose(shaw, alibi), t5), q_pos, k_pos)
        flat = attention_logits(q, k, Compose(shaw, alibi, t5), q_pos, k_pos)
        torch.testing.assert_close(nested, flat, rtol=0, atol=1e-5)
        places = torch.arange(5) + 2, torch.arange(7)
        by_hand = q @ k.mT + sum(each.bias(q, k, *places, 1.0) for each in (t5, alibi, shaw))
        torch.testing.assert_close(flat, by_hand, rtol=0, atol=1e-5)
