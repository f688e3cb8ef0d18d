"""Biases of distance alone, and products with a table of distances."""

from __future__ import annotations

import pytest
import torch
from closeness import assert_close
from torch import Tensor

from pe_course.hierarchical import WindowBias
from pe_lib import (
    ALiBi,
    Compose,
    DeBERTa,
    PositionEncoding,
    RelativeBias,
    RoPE,
    SlidingWindow,
    T5Bias,
    TransformerXL,
)
from pe_lib.attention import attend, attend_fused, distance_biases
from pe_lib.relative import distances, dots, number_of_distance, sums


def draw(*shape: int) -> Tensor:
    return torch.randn(*shape, dtype=torch.float64)


@pytest.mark.parametrize(("q_start", "k_start"), [(0, 0), (4, 0), (100, 98), (0, 20), (-9, 3)])
def test_every_pair_finds_its_distance(q_start: int, k_start: int) -> None:
    q, k = torch.zeros(5, 1), torch.zeros(7, 1)
    every = distances(q, k, q_start, k_start)
    expected = torch.arange(7) + k_start - (torch.arange(5) + q_start)[:, None]
    assert torch.equal(every[number_of_distance(q, k)], expected)


@pytest.mark.parametrize("heads", [False, True])
@pytest.mark.parametrize("batch", [False, True])
def test_products_with_rows_equal_loops(heads: bool, batch: bool) -> None:
    q, weights = draw(2, 3, 4, 6), draw(2, 3, 4, 5)
    table = draw(3, 9, 6) if heads else draw(9, 6)
    row = torch.randint(0, 9, (2, 4, 5) if batch else (4, 5))
    rows = row.expand(2, 4, 5)
    found = dots(q, table, row)
    for b in range(2):
        for h in range(3):
            vectors = (table[h] if heads else table)[rows[b]]  # (4, 5, 6)
            assert_close(found[b, h], (q[b, h, :, None] * vectors).sum(-1), 1e-12)
            if not heads:
                expected = (weights[b, h, :, :, None] * vectors).sum(1)
                assert_close(sums(weights, table, row)[b, h], expected, 1e-12)


def halved(base: type[PositionEncoding]) -> type[PositionEncoding]:
    """Return a class that halves a bias."""

    def bias(
        self: PositionEncoding, q: Tensor, k: Tensor, q_pos: Tensor, k_pos: Tensor, scale: float
    ) -> Tensor | None:
        whole = base.bias(self, q, k, q_pos, k_pos, scale)
        return None if whole is None else whole / 2

    return type(f"Halved{base.__name__}", (base,), {"bias": bias})


class Reversed(ALiBi):
    """Another bias of distance on top of a parent's."""

    def of_distance(self, relative: Tensor) -> Tensor:
        return super().of_distance(-relative)


class RowsDoubled(TransformerXL):
    """Projects the codes otherwise."""

    def rows(self, relative: Tensor) -> Tensor:
        return 2 * super().rows(relative)


OWN: dict[str, PositionEncoding] = {
    "deberta": halved(DeBERTa)(16, 2, 8),
    "transformer-xl": halved(TransformerXL)(16, 2, std=1.0),
    "rows": RowsDoubled(16, 2, std=1.0),
    "alibi": halved(ALiBi)(2),
    "reversed": Reversed(2),
    "compose": halved(Compose)(ALiBi(2)),
    "nested": Compose(RoPE(8), halved(Compose)(ALiBi(2)), T5Bias(2, std=1.0)),
    "subclass of a subclass": type("Mine", (halved(ALiBi),), {})(2),
}


@pytest.mark.parametrize("name", OWN)
def test_an_own_bias_is_not_passed_over(name: str) -> None:
    """A subclass may change `bias`; what needs less for its base stands for another one."""
    q, k, v = torch.randn(3, 1, 2, 7, 8)
    for length in (1, 7):
        last, where = q[:, :, -length:], (7 - length, 0)
        fused = attend_fused(last, k, v, OWN[name], *where, causal=True)
        assert_close(fused, attend(last, k, v, OWN[name], *where, causal=True)[0], 1e-5)


def test_sums_of_distance_keep_their_shortcut() -> None:
    alibi, t5, window = ALiBi(2), T5Bias(2), WindowBias(2, 3)
    assert distance_biases(alibi) == [alibi]
    assert distance_biases(Compose(RoPE(8), Compose(alibi))) == [alibi]
    assert distance_biases(Compose(Compose(alibi, t5), RoPE(8), window)) == [alibi, t5, window]
    for other in (RoPE(8), Compose(RoPE(8)), DeBERTa(16, 2, 8), halved(ALiBi)(2)):
        assert distance_biases(other) == []
    assert distance_biases(Compose(alibi, halved(ALiBi)(2))) == []
    assert distance_biases(OWN["nested"]) == []


@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize(("q_start", "k_start"), [(0, 0), (2, 0), (0, 3), (-5, -7)])
def test_a_sum_of_distances_equals_the_definition(causal: bool, q_start: int, k_start: int) -> None:
    """Outputs and gradients, where some queries see no key, too."""
    parts = ALiBi(2, symmetric=True), T5Bias(2, 8, 9, std=1.0), SlidingWindow(2, 4)
    encoding = Compose(RoPE(8), *parts).double()
    q, k, v = (draw(2, 2, n, 8).requires_grad_() for n in (5, 7, 7))
    where = q_start, k_start
    outputs = [
        attend_fused(q, k, v, encoding, *where, causal=causal),
        attend(q, k, v, encoding, *where, causal=causal)[0],
    ]
    assert_close(outputs[0], outputs[1], 1e-12)
    leaves = q, k, v, parts[1].table
    found = [torch.autograd.grad(each.square().sum(), leaves) for each in outputs]
    for one, other in zip(*found, strict=True):
        assert_close(one, other, 1e-11)


class OneHead(RelativeBias):
    """A bias of one head."""

    def of_distance(self, relative: Tensor) -> Tensor:
        return relative[None]


def test_one_heads_bias_serves_not_all() -> None:
    q = torch.randn(1, 2, 3, 8)
    for form in (attend, attend_fused):
        for where in ((0, 0), (torch.arange(3), torch.arange(3))):
            with pytest.raises(ValueError, match="OneHead: of_distance must return"):
                form(q, q, q, OneHead(), *where)
