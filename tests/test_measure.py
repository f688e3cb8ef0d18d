"""The measures: each against a loop or a case whose answer is known."""

from __future__ import annotations

import math
from itertools import combinations

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor, nn

from pe_course import measure
from pe_course.training import generator
from pe_lib.encoding import PositionEncoding

seeds = st.integers(0, 10_000)
quick = settings(max_examples=25, deadline=None)


def draw(*shape: int, seed: int = 0) -> Tensor:
    return torch.randn(*shape, dtype=torch.float64, generator=generator(seed))


# Equivariance and relativity ----------------------------------------------------------------------


class AddPlace(nn.Module):
    """Adds its place, times a factor, to each token: the error is known by hand."""

    def __init__(self, factor: float) -> None:
        super().__init__()
        self.factor = factor

    def forward(self, x: Tensor) -> Tensor:
        return x + self.factor * torch.arange(x.shape[1])[:, None]


def test_equivariance_error_is_the_largest_difference() -> None:
    x, order = draw(2, 4, 3), torch.tensor([1, 0, 2, 3])
    assert measure.equivariance_error(nn.Identity(), x, order) == 0
    assert measure.equivariance_error(AddPlace(0.25), x, order) == pytest.approx(0.25)
    assert measure.equivariance_error(AddPlace(0.25), x, torch.tensor([3, 1, 2, 0])) == (
        pytest.approx(0.75)
    )


class PlaceBias(PositionEncoding):
    """Logits that depend on the key's place: moving by s adds exactly s."""

    def bias(self, q: Tensor, k: Tensor, q_pos: Tensor, k_pos: Tensor, scale: float) -> Tensor:
        return k_pos.to(q.dtype).expand(len(q_pos), len(k_pos))


def test_translation_error_is_relative_to_the_largest_logit() -> None:
    q, k = torch.zeros(1, 1, 3, 4), torch.zeros(1, 1, 5, 4)
    assert measure.translation_error(PlaceBias(), q, k, 6) == pytest.approx(6 / 4)
    assert measure.translation_error(PlaceBias(), q, k, 0) == 0


# Codes --------------------------------------------------------------------------------------------


@quick
@given(st.integers(1, 8), st.integers(1, 4), seeds)
def test_similarity_by_distance_equals_the_loop(length: int, width: int, seed: int) -> None:
    codes = draw(length, width, seed=seed)
    result = measure.similarity_by_distance(codes)
    for distance in range(length):
        products = [float(codes[i] @ codes[i + distance]) for i in range(length - distance)]
        assert float(result[distance]) == pytest.approx(sum(products) / len(products), abs=1e-12)


@quick
@given(st.lists(st.integers(-4, 4), min_size=2, max_size=12), seeds)
def test_rank_correlation_equals_that_of_scipy(values: list[int], seed: int) -> None:
    from scipy.stats import spearmanr

    others = torch.randint(-3, 4, (len(values),), generator=generator(seed)).tolist()
    if len(set(values)) == 1 or len(set(others)) == 1:
        return
    ours = measure.rank_correlation(torch.tensor(values), torch.tensor(others))
    assert ours == pytest.approx(spearmanr(values, others).statistic, abs=1e-9)


@quick
@given(st.integers(1, 4), st.integers(1, 4), seeds)
def test_a_linear_map_is_recovered_and_noise_is_not(rows: int, columns: int, seed: int) -> None:
    source, noise = draw(30, rows, seed=seed), draw(30, columns, seed=seed + 1)
    assert measure.linear_map_error(source, source @ draw(rows, columns, seed=seed + 2)) < 1e-10
    assert 0.5 < measure.linear_map_error(source, noise) <= 1


def test_the_linear_map_error_is_what_is_left_over() -> None:
    """Orthogonal parts: 3 of 5 units of the target's length cannot be reached."""
    source = torch.tensor([[1.0], [0.0]])
    target = torch.tensor([[4.0], [3.0]])
    assert measure.linear_map_error(source, target) == pytest.approx(3 / 5)


def test_the_share_of_still_columns() -> None:
    codes = torch.tensor([[0.0, 0.0, 5.0, 1.0], [0.0, 0.4, 9.0, 2.0]])
    assert measure.share_moving_less(codes, 0.5) == 0.5
    assert measure.share_moving_less(codes, 1e9) == 1


@quick
@given(st.integers(2, 9), st.integers(2, 5), seeds)
def test_unit_rows_are_centred_and_of_length_one(length: int, width: int, seed: int) -> None:
    codes = draw(length, width, seed=seed)
    units = measure.unit_rows(codes)
    mean = codes.mean(0)
    for row, unit in zip(codes, units, strict=True):
        assert torch.allclose(unit, (row - mean) / (row - mean).norm())
    moved = measure.unit_rows(3 * codes + 7)  # neither scale nor origin matters
    assert torch.allclose(moved, units, atol=1e-9)


@quick
@given(st.integers(3, 9), st.integers(1, 4), seeds)
def test_explained_by_distance_equals_the_loop(length: int, width: int, seed: int) -> None:
    codes = draw(length, width, seed=seed)
    products: dict[int, list[float]] = {d: [] for d in range(1, length)}
    for i, j in combinations(range(length), 2):
        products[j - i].append(float(codes[i] @ codes[j]))
    everything = [value for values in products.values() for value in values]
    mean = sum(everything) / len(everything)
    total = sum((value - mean) ** 2 for value in everything)
    left = sum(
        (value - sum(values) / len(values)) ** 2 for values in products.values() for value in values
    )
    assert measure.explained_by_distance(codes) == pytest.approx(1 - left / total, abs=1e-9)


@quick
@given(st.integers(3, 5), st.integers(3, 5), seeds)
def test_grid_similarity_equals_the_loop(rows: int, columns: int, seed: int) -> None:
    codes = draw(rows * columns, 3, seed=seed)
    groups: list[list[float]] = [[], [], [], []]
    for i, j in combinations(range(rows * columns), 2):
        down, across = abs(i // columns - j // columns), abs(i % columns - j % columns)
        product = float(codes[i] @ codes[j])
        if down + across == 1:
            groups[0].append(product)
        elif down == 0:
            groups[1].append(product)
        elif across == 0:
            groups[2].append(product)
        elif down > 1 and across > 1:
            groups[3].append(product)
    for value, group in zip(measure.grid_similarity(codes, (rows, columns)), groups, strict=True):
        expected = sum(group) / len(group) if group else math.nan
        assert value == pytest.approx(expected, abs=1e-9, nan_ok=True)


def test_the_largest_tensor_is_found_though_it_is_not_the_result() -> None:
    a, b = torch.zeros(7, 1), torch.zeros(1, 11)
    assert measure.largest_tensor(lambda: (a * b).sum()) == 7 * 11 * 4


def test_a_view_takes_no_memory_of_its_own() -> None:
    a = torch.zeros(5, 1, dtype=torch.float64)
    assert measure.largest_tensor(lambda: a.expand(5, 1000)) == 5 * 8
