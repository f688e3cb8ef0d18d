"""What every encoding of relative positions promises, as checks that a test calls with its own.

Each takes a function that makes a fresh encoding for 3 heads of width 4.
"""

from __future__ import annotations

import copy
from collections.abc import Callable

import torch
from torch import Tensor

from pe_lib.attention import KVCache, MultiHeadAttention, PositionEncoding, attend, default_scale
from pe_lib.positions import Positions, Run

BATCH, LENGTH, D_MODEL, HEADS = 2, 7, 12, 3
Make = Callable[[], PositionEncoding]


def difference(actual: Tensor, expected: Tensor) -> float:
    """Return the largest difference relative to the largest expected entry; shapes must agree."""
    assert actual.shape == expected.shape, f"{tuple(actual.shape)} != {tuple(expected.shape)}"
    actual, expected = actual.detach(), expected.detach()
    assert expected.abs().max() > 0
    return float((actual - expected).abs().max() / expected.abs().max())


def assert_equal(actual: Tensor, expected: Tensor, tolerance: float = 1e-6) -> None:
    """Assert equal shapes, and values equal to `tolerance` of the largest one."""
    assert difference(actual, expected) <= tolerance


def attention(make: Make, *, causal: bool = False) -> MultiHeadAttention:
    """Return attention in float64 with the encoding under test."""
    torch.manual_seed(3)
    return MultiHeadAttention(D_MODEL, HEADS, make(), causal=causal).double()


def forms(q_pos: Tensor, k_pos: Tensor) -> list[tuple[Positions, Positions]]:
    """Return positions (B, L) as they are, and as two runs if that is what each sequence has."""
    runs = [Run(int(p[0, 0]), p.shape[1]) for p in (q_pos, k_pos)]
    as_runs = all((run.tensor() == p).all() for run, p in zip(runs, (q_pos, k_pos), strict=True))
    return [(q_pos, k_pos), (runs[0], runs[1])] if as_runs else [(q_pos, k_pos)]


def hidden(length: int = LENGTH, seed: int = 5) -> Tensor:
    """Return random hidden states (BATCH, length, D_MODEL) in float64."""
    generator = torch.Generator().manual_seed(seed)
    return torch.randn(BATCH, length, D_MODEL, dtype=torch.float64, generator=generator)


def check_that_order_matters(make: Make) -> None:
    """Reversed positions must change the output."""
    layer, x, positions = attention(make), hidden(), torch.arange(LENGTH)
    assert difference(layer(x, q_pos=positions.flip(0)), layer(x, q_pos=positions)) > 1e-4


def check_shift(make: Make) -> None:
    """A shift of all positions leaves the output as it is."""
    layer, x = attention(make), hidden()
    expected = layer(x, q_pos=torch.arange(LENGTH))
    for shift in (1, 1000, -13):
        assert_equal(layer(x, q_pos=torch.arange(LENGTH) + shift), expected, 1e-12)


def check_gaps(make: Make) -> None:
    """Positions with gaps agree with the consecutive positions that they were taken from."""
    layer, x = attention(make), hidden()
    (q, k, _, encoding, q_pos, k_pos), _ = layer.project(x)
    scale = default_scale(encoding, q.shape[-1])
    full = encoding.bias(q, k, q_pos, k_pos, scale)
    assert full is not None
    for rows, columns in (([5, 0, 3], [6, 1, 2, 4]), ([2, 3, 4], [6, 1]), ([5, 0], [1, 2, 3])):
        some_q, some_k = q[:, :, rows], k[:, :, columns]
        some = encoding.bias(some_q, some_k, torch.tensor(rows), torch.tensor(columns), scale)
        assert some is not None
        assert_equal(some, full[..., rows, :][..., columns], 1e-12)


def check_cache(make: Make) -> None:
    """Token by token with a cache equals all at once, from position 0 and from another."""
    layer, x = attention(make, causal=True), hidden()
    for start in (0, 50):
        cache, outputs = KVCache(), []
        for i in range(LENGTH):
            place = range(start + i, start + i + 1)
            outputs.append(layer(x[:, i : i + 1], q_pos=place, cache=cache))
        positions = torch.arange(start, start + LENGTH)
        assert_equal(torch.cat(outputs, dim=1), layer(x, q_pos=positions), 1e-12)


def check_left_padding(make: Make) -> None:
    """A padded and masked sequence gives what it gives alone."""
    layer, x = attention(make, causal=True), hidden()
    pads = torch.tensor([0, 3])
    positions = torch.arange(LENGTH) - pads.unsqueeze(1)  # (B, L), negative for the padding
    mask = (positions >= 0)[:, None, None, :]
    alone = layer(x[1:, 3:], q_pos=torch.arange(LENGTH - 3))
    for places in (positions, positions.clamp(min=0)):
        padded = layer(x, q_pos=places, mask=mask)
        assert_equal(padded[1:, 3:], alone, 1e-12)
        assert_equal(padded[:1], layer(x[:1]), 1e-12)


def check_causal(make: Make) -> None:
    """A later token does not change an earlier output."""
    layer, x = attention(make, causal=True), hidden()
    changed = x.clone()
    changed[:, 4:] += 1
    assert_equal(layer(changed)[:, :4], layer(x)[:, :4], 1e-12)
    assert difference(layer(changed)[:, 4:], layer(x)[:, 4:]) > 1e-3


def check_both_forms(make: Make) -> None:
    """`forward` equals `with_weights`, with another number of keys than of queries."""
    layer, x, context = attention(make), hidden(4), hidden(9, seed=6)
    places = {"context": context, "q_pos": torch.arange(4) + 5, "k_pos": torch.arange(9)}
    output, weights = layer.with_weights(x, **places)
    assert weights.shape == (BATCH, HEADS, 4, 9)
    assert_equal(weights.sum(-1), torch.ones(BATCH, HEADS, 4, dtype=torch.float64), 1e-12)
    assert_equal(layer(x, **places), output, 1e-12)


def check_state(make: Make) -> None:
    """The state loads into a fresh layer; other dtypes give nearly the same."""
    layer, x = attention(make), hidden()
    torch.manual_seed(99)
    other = MultiHeadAttention(D_MODEL, HEADS, make()).double()
    assert difference(other(x), layer(x)) > 1e-2
    other.load_state_dict(layer.state_dict())
    assert_equal(other(x), layer(x), 1e-12)
    for dtype, tolerance in ((torch.float32, 1e-5), (torch.bfloat16, 0.1), (torch.float16, 0.02)):
        output = copy.deepcopy(layer).to(dtype)(x.to(dtype))
        assert output.dtype == dtype
        assert_equal(output.double(), layer(x), tolerance)


def check_gradients(make: Make) -> None:
    """Gradients equal numerical ones, for queries, keys, values and all that is trained."""
    torch.manual_seed(7)
    encoding = make().double()
    q, k, v = (torch.randn(1, HEADS, n, 4).double().requires_grad_() for n in (3, 4, 4))
    inputs = (q, k, v, *encoding.parameters())
    for gap in (1, 2):
        q_pos, k_pos = gap * torch.arange(3) + 1, gap * torch.arange(4)

        def output(*given: Tensor, q_pos: Tensor = q_pos, k_pos: Tensor = k_pos) -> Tensor:
            return attend(q, k, v, encoding, q_pos, k_pos)[0]  # gradcheck changes them in place

        assert torch.autograd.gradcheck(output, inputs, fast_mode=True)


CHECKS = [
    check_that_order_matters,
    check_shift,
    check_gaps,
    check_cache,
    check_left_padding,
    check_causal,
    check_both_forms,
    check_state,
    check_gradients,
]
