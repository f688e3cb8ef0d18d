"""Positions, one number or several per token, and what a class says of its own hooks."""

from __future__ import annotations

import pytest
import torch
from closeness import assert_close
from torch import Tensor

from pe_lib import (
    ALiBi,
    Compose,
    DecoupledRotation,
    KVCache,
    MultiHeadAttention,
    NoPosition,
    RoPE,
    ScalableSoftmax,
    XPos,
)
from pe_lib.encoding import PositionEncoding, as_positions
from pe_lib.recent.axes import with_order
from pe_lib.rope import apply_rope, rope_angles

X = torch.zeros(2, 4, 8)


@pytest.mark.parametrize("dtype", [torch.uint8, torch.int8, torch.int16, torch.int32, torch.int64])
def test_integers_become_int64(dtype: torch.dtype) -> None:
    found = as_positions(torch.arange(4).to(dtype), X)
    assert found.dtype == torch.int64 and found.tolist() == [0, 1, 2, 3]


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_real_numbers_keep_their_dtype(dtype: torch.dtype) -> None:
    assert as_positions(torch.arange(4).to(dtype), X).dtype == dtype


def test_an_int_is_the_first_position() -> None:
    assert as_positions(-3, X).tolist() == [-3, -2, -1, 0]


# --- several numbers per token -------------------------------------------------------------------


class TwoAxes(PositionEncoding):
    """Half of the pairs rotate by the first number, the others by the second."""

    def rotate_axes(
        self, q: Tensor, k: Tensor, q_axes: Tensor, k_axes: Tensor
    ) -> tuple[Tensor, Tensor]:
        inv_freq = torch.tensor([1.0, 0.1], dtype=torch.float64)
        return tuple(
            apply_rope(x, torch.cat([rope_angles(axes[..., i], inv_freq) for i in (0, 1)], dim=-1))
            for x, axes in ((q, q_axes), (k, k_axes))
        )


def layer(encoding: PositionEncoding) -> MultiHeadAttention:
    torch.manual_seed(0)
    return MultiHeadAttention(16, 2, encoding, causal=True).double()


def grid(rows: int, columns: int) -> Tensor:
    return torch.cartesian_prod(torch.arange(rows), torch.arange(columns))


def test_order_masks_and_numbers_rotate() -> None:
    x = torch.randn(1, 6, 16, dtype=torch.float64)
    attention = layer(TwoAxes())
    weights = attention.with_weights(x, q_pos=with_order(grid(2, 3)))[1]
    assert (weights.triu(1) == 0).all()
    moved = with_order(grid(2, 3) + torch.tensor([5, -3]))
    assert_close(attention.with_weights(x, q_pos=moved)[1], weights, 1e-12)
    swapped = with_order(grid(2, 3).flip(-1))
    assert (attention.with_weights(x, q_pos=swapped)[1] - weights).abs().max() > 1e-3


def test_methods_of_one_number_read_order() -> None:
    """Beside one that reads them all: a rotation and a bias."""
    order = torch.arange(3, 9)
    x, places = torch.randn(1, 6, 16, dtype=torch.float64), with_order(grid(2, 3), order)
    plain = layer(TwoAxes()).with_weights(x, q_pos=places)[1].log()
    both = layer(Compose(TwoAxes(), ALiBi(2))).with_weights(x, q_pos=places)[1]
    q = torch.zeros(1, 2, 6, 8, dtype=torch.float64)
    assert_close(both, (plain + ALiBi(2).bias(q, q, order, order, 1)).softmax(dim=-1), 1e-12)
    flat = with_order(torch.zeros(6, 2).long(), order)
    turned = layer(Compose(TwoAxes(), RoPE(8)))(x, q_pos=flat)
    assert_close(turned, layer(RoPE(8))(x, q_pos=order), 1e-12)


@pytest.mark.parametrize("encoding", [RoPE(8), NoPosition(), ALiBi(2)])
def test_numbers_that_nobody_reads_are_refused(encoding: PositionEncoding) -> None:
    with pytest.raises(ValueError, match="where a part reads them, or both one"):
        layer(encoding)(torch.zeros(1, 6, 16).double(), q_pos=with_order(grid(2, 3)))


def test_numbers_for_queries_alone_are_refused() -> None:
    x = torch.zeros(1, 6, 16).double()
    with pytest.raises(ValueError, match="q_pos and k_pos must both have several numbers"):
        layer(TwoAxes())(x, context=x, q_pos=with_order(grid(2, 3)), k_pos=0)


def test_a_cache_goes_on_with_text() -> None:
    """After the largest number: equal to one call over the image and the text that follows it."""
    x, image = torch.randn(2, 9, 16, dtype=torch.float64), with_order(grid(2, 3))
    attention, cache = layer(TwoAxes()), KVCache()
    parts = [attention(x[:, :6], q_pos=image, cache=cache)]
    parts += [attention(x[:, i : i + 1], cache=cache) for i in (6, 7, 8)]
    text = torch.tensor([[3, 3], [4, 4], [5, 5]])
    whole = with_order(torch.cat([grid(2, 3), text]))
    assert_close(torch.cat(parts, dim=1), attention(x, q_pos=whole), 1e-12)
    with pytest.raises(ValueError, match="positions must go on with the axes of the cached ones"):
        attention(x[:, :1], q_pos=9, cache=cache)


def test_numbers_differ_between_sequences() -> None:
    x = torch.randn(2, 6, 16, dtype=torch.float64)
    numbers = torch.stack([grid(2, 3), grid(3, 2)])
    attention, whole = layer(TwoAxes()), with_order(numbers)
    output, cache = attention(x, q_pos=whole), KVCache()
    for i in range(2):
        alone = attention(x[i : i + 1], q_pos=with_order(numbers[i]))
        assert_close(output[i : i + 1], alone, 1e-12)
    parts = [attention(x[:, i : i + 1], q_pos=whole[..., i : i + 1], cache=cache) for i in range(6)]
    assert_close(torch.cat(parts, dim=1), output, 1e-12)
    for each in (*cache.next_positions(2)[:, 0], *cache.next_positions(2)[1:, 1]):
        assert each.tolist() in ([6, 7], [3, 4])  # the order, and behind the largest number


# --- classes of classes --------------------------------------------------------------------------


class Turning(ALiBi):
    """A bias of distance that also rotates, by the number of keys."""

    def rotate(self, q: Tensor, k: Tensor, q_pos: Tensor, k_pos: Tensor) -> tuple[Tensor, Tensor]:
        return q, k * k_pos.shape[-1]


class Stretched(RoPE):
    """Rotates by angles that depend on the length."""

    def angles(self, positions: Tensor) -> Tensor:
        return super().angles(positions) / positions.shape[-1]


class Distant:
    """A bias that is mixed in, and angles: it is no encoding itself."""

    def bias(self, q: Tensor, k: Tensor, q_pos: Tensor, k_pos: Tensor, scale: float) -> Tensor:
        return -(k_pos[..., None, :] - q_pos[..., :, None]).abs().unsqueeze(-3)

    def angles(self, positions: Tensor) -> Tensor:
        return super().angles(positions - positions.double().mean())  # type: ignore[misc]


class MixedIn(Distant, RoPE):
    """Rotates by angles, and has a bias, that are mixed in."""


class OfContent(Compose):
    """A composition with one more bias, which reads queries and keys."""

    def bias(
        self, q: Tensor, k: Tensor, q_pos: Tensor, k_pos: Tensor, scale: float
    ) -> Tensor | None:
        return q @ k.flip(-1).mT


def test_a_composition_with_a_new_hook_uses_it() -> None:
    """Also where none of its members has that hook, with weights and without."""
    torch.manual_seed(0)
    layer = MultiHeadAttention(16, 2, OfContent(RoPE(8)), causal=True).double()
    x = torch.randn(1, 5, 16).double()
    assert layer.encoding.uses("bias") and not Compose(RoPE(8)).uses("bias")
    assert_close(layer(x), layer.with_weights(x)[0], 1e-12)


def test_a_new_hook_rotates_not_once() -> None:
    """What a parent says of its hooks does not hold for those that a class writes anew."""
    assert ALiBi(2).cacheable_rotation and RoPE(8).cacheable_rotation
    assert (
        Compose(RoPE(8), ALiBi(2)).cacheable_rotation
        and type("Sub", (RoPE,), {})(8).cacheable_rotation
    )
    assert not Stretched(8).cacheable_rotation and not MixedIn(8).cacheable_rotation
    for encoding in (Turning(2), OfContent(RoPE(8), ALiBi(2))):
        assert not encoding.cacheable_rotation
        attention, x, cache = layer(encoding), torch.randn(2, 6, 16).double(), KVCache()
        attention(x[:, :-1], cache=cache)
        assert_close(attention(x[:, -1:], cache=cache), attention(x)[:, -1:], 1e-12)
    mixed, x = layer(MixedIn(8)), torch.randn(1, 5, 16).double()
    assert_close(mixed(x), mixed(x, q_pos=torch.arange(5)), 1e-12)


def test_a_wrapper_says_what_it_needs() -> None:
    assert (
        DecoupledRotation(XPos(4), 4).causal_only
        and not DecoupledRotation(XPos(4), 4).cacheable_rotation
    )
    assert DecoupledRotation(ScalableSoftmax(4, 16), 4).n_heads == 4
    with pytest.raises(ValueError, match="DecoupledRotation is for keys of the past"):
        MultiHeadAttention(16, 2, DecoupledRotation(XPos(4), 4))(torch.randn(1, 5, 16))
