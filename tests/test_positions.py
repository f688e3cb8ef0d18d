"""Positions of several numbers: what has axes is read by what wants axes, and by nothing else."""

from __future__ import annotations

import pytest
import torch
from closeness import assert_close
from torch import Tensor

from pe_lib import ALiBi, Axes, Compose, KVCache, MultiHeadAttention, NoPosition, RoPE, Run
from pe_lib.encoding import PositionEncoding
from pe_lib.positions import joined
from pe_lib.rope import apply_rope, rope_angles


class TwoAxes(PositionEncoding):
    """Half of the pairs rotate by the first number, the others by the second."""

    def rotate_axes(
        self, q: Tensor, k: Tensor, q_axes: Tensor, k_axes: Tensor
    ) -> tuple[Tensor, Tensor]:
        rates = torch.tensor([1.0, 0.1], dtype=torch.float64)
        return tuple(
            apply_rope(x, torch.cat([rope_angles(axes[..., i], rates) for i in (0, 1)], dim=-1))
            for x, axes in ((q, q_axes), (k, k_axes))
        )


def layer(encoding: PositionEncoding) -> MultiHeadAttention:
    torch.manual_seed(0)
    return MultiHeadAttention(16, 2, encoding, causal=True).double()


def grid(rows: int, columns: int) -> Tensor:
    return torch.cartesian_prod(torch.arange(rows), torch.arange(columns))


def test_order_decides_the_mask_and_numbers_the_rotation():
    x = torch.randn(1, 6, 16, dtype=torch.float64)
    attention = layer(TwoAxes())
    weights = attention.with_weights(x, q_pos=Axes(Run(0, 6), grid(2, 3)))[1]
    assert (weights.triu(1) == 0).all()
    moved = Axes(Run(0, 6), grid(2, 3) + torch.tensor([5, -3]))
    assert_close(attention.with_weights(x, q_pos=moved)[1], weights, 1e-12)
    swapped = Axes(Run(0, 6), grid(2, 3).flip(-1))
    assert (attention.with_weights(x, q_pos=swapped)[1] - weights).abs().max() > 1e-3


def test_methods_of_one_number_beside_one_of_axes_read_the_order():
    x, places = torch.randn(1, 6, 16, dtype=torch.float64), Axes(Run(3, 6), grid(2, 3))
    both = layer(Compose(TwoAxes(), ALiBi(2)))
    plain = layer(TwoAxes()).with_weights(x, q_pos=places)[1].log()
    q = torch.zeros(1, 2, 6, 8, dtype=torch.float64)
    penalty = ALiBi(2).bias(q, q, Run(3, 6), Run(3, 6), 1)
    expected = (plain + penalty).softmax(dim=-1)
    assert_close(both.with_weights(x, q_pos=places)[1], expected, 1e-12)


@pytest.mark.parametrize("encoding", [RoPE(8), NoPosition(), ALiBi(2)])
def test_axes_are_refused_where_nothing_reads_them(encoding: PositionEncoding):
    with pytest.raises(ValueError, match="k_pos must both be Axes, where a part reads them"):
        layer(encoding)(torch.zeros(1, 6, 16).double(), q_pos=Axes(Run(0, 6), grid(2, 3)))


def test_a_cache_goes_on_with_text_after_the_largest_number():
    """Equal to one call over the image and the text that follows it."""
    x, image = torch.randn(2, 9, 16, dtype=torch.float64), Axes(Run(0, 6), grid(2, 3))
    attention, cache = layer(TwoAxes()), KVCache()
    parts = [attention(x[:, :6], q_pos=image, cache=cache)]
    parts += [attention(x[:, i : i + 1], cache=cache) for i in (6, 7, 8)]
    text = torch.tensor([[3, 3], [4, 4], [5, 5]])
    whole = Axes(Run(0, 9), torch.cat([grid(2, 3), text]))
    assert_close(torch.cat(parts, dim=1), attention(x, q_pos=whole), 1e-12)


def test_axes_differ_between_the_sequences_of_a_batch():
    x = torch.randn(2, 6, 16, dtype=torch.float64)
    numbers = torch.stack([grid(2, 3), grid(3, 2)])
    attention = layer(TwoAxes())
    output = attention(x, q_pos=Axes(Run(0, 6), numbers))
    for i in range(2):
        alone = attention(x[i : i + 1], q_pos=Axes(Run(0, 6), numbers[i]))
        assert_close(output[i : i + 1], alone, 1e-12)


def test_axes_that_do_not_fit_are_refused_by_name():
    x = torch.zeros(2, 6, 16).double()
    with pytest.raises(ValueError, match=r"numbers must have shape \(L, A\) or \(B, L, A\)"):
        Axes(Run(0, 3), torch.arange(3))
    with pytest.raises(ValueError, match=r"order must have shape \(L=6,\).*, got \(5,\)"):
        Axes(Run(0, 5), grid(2, 3))
    with pytest.raises(ValueError, match=r"q_pos must have shape .* \(B=2, Lq=6\), got \(3, 6\)"):
        layer(TwoAxes())(x, q_pos=Axes(Run(0, 6), grid(2, 3).expand(3, -1, -1)))
    with pytest.raises(ValueError, match="positions must go on with the axes of the cached ones"):
        joined(Axes(Run(0, 6), grid(2, 3)), Run(6, 1), torch.device("cpu"))
    with pytest.raises(ValueError, match="q_pos and k_pos must both be Axes"):
        layer(TwoAxes())(
            torch.zeros(1, 6, 16).double(),
            context=torch.zeros(1, 6, 16).double(),
            q_pos=Axes(Run(0, 6), grid(2, 3)),
            k_pos=Run(0, 6),
        )
