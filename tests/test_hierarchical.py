"""Positions in levels: two digits of a table, and place, paragraph and neighbourhood."""

from __future__ import annotations

import math

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from pe_course.hierarchical import Beyond, Hierarchical, WindowBias, paragraph_of, split_rows
from pe_lib.learned import Learned
from pe_lib.sinusoidal import sinusoidal

STARTS = torch.tensor([0, 4, 9])


# Two digits ---------------------------------------------------------------------------------------


@settings(max_examples=25, deadline=None)
@given(st.integers(1, 6), st.integers(1, 5), st.floats(0.05, 0.45), st.booleans())
def test_every_row_follows_the_formula(n: int, dim: int, alpha: float, mirrored: bool) -> None:
    """Su 2020, with positions from 0: alpha u_i + (1 - alpha) u_j for position i n + j."""
    alpha = 1 - alpha if mirrored else alpha
    table = torch.randn(n, dim, dtype=torch.float64)
    rows = split_rows(table, torch.arange(n * n), alpha)
    assert rows.shape == (n * n, dim)
    for i in range(n):
        for j in range(n):
            for c in range(dim):
                first, high, low = (float(table[row, c]) for row in (0, i, j))
                u_i = (high - alpha * first) / (1 - alpha)
                u_j = (low - alpha * first) / (1 - alpha)
                expected = alpha * u_i + (1 - alpha) * u_j
                assert float(rows[i * n + j, c]) == pytest.approx(expected, rel=1e-9, abs=1e-9)


def test_a_512_row_table_reaches_512_squared_positions_all_different() -> None:
    table = torch.randn(512, 1, dtype=torch.float64)
    rows = split_rows(table, torch.arange(512**2))
    assert len(rows.unique()) == 512**2
    # With equal shares a digit could change places with the other.
    swapped = split_rows(table, torch.tensor([3 * 512 + 5, 5 * 512 + 3]), 0.5001)
    assert (swapped[0] - swapped[1]).abs().max() < 0.01


# Three levels -------------------------------------------------------------------------------------


def test_paragraphs_are_counted_from_their_starts() -> None:
    positions = torch.arange(12)
    assert paragraph_of(positions, STARTS).tolist() == [0] * 4 + [1] * 5 + [2] * 3
    both = torch.tensor([[0, 4, 9], [0, 11, 99]])
    expected = [[0] * 4 + [1] * 5 + [2] * 3, [0] * 11 + [1]]
    assert paragraph_of(positions, both).tolist() == expected
    batched = torch.stack([positions, positions + 4])
    assert paragraph_of(batched, STARTS).tolist()[1] == [1] * 5 + [2] * 7


def slow_hierarchical(encoding: Hierarchical, x: Tensor, starts: list[int], first: int) -> Tensor:
    """Add the place's code and the paragraph's vector, token by token."""
    out = x.clone()
    for b in range(x.shape[0]):
        for t in range(x.shape[1]):
            place = first + t
            paragraph = sum(start <= place for start in starts) - 1
            out[b, t] += sinusoidal(place, x.shape[2])
            out[b, t] += encoding.paragraphs.vectors.table[paragraph]
    return out


@pytest.mark.parametrize("first", [0, 3])
def test_inputs_get_the_code_of_the_place_and_the_vector_of_the_paragraph(first: int) -> None:
    encoding = Hierarchical(6, 2, STARTS, max_paragraphs=3)
    x = torch.randn(2, 8, 6)
    ours = encoding.embed(x, torch.arange(8) + first)
    torch.testing.assert_close(ours, slow_hierarchical(encoding, x, STARTS.tolist(), first))


@settings(max_examples=20, deadline=None)
@given(
    st.integers(1, 3), st.integers(1, 4), st.integers(1, 6), st.integers(1, 6), st.integers(-5, 5)
)
def test_the_window_bias_is_local(heads: int, window: int, lq: int, lk: int, offset: int) -> None:
    encoding = WindowBias(heads, window)
    torch.nn.init.normal_(encoding.weight)
    q, k = torch.randn(2, heads, lq, 4), torch.randn(2, heads, lk, 4)
    q_pos, k_pos = torch.arange(lq) + offset, torch.arange(lk)
    bias = encoding.bias(q, k, q_pos, k_pos, 1.0)
    batched = encoding.bias(q, k, q_pos.expand(2, lq), k_pos, 1.0)
    assert bias.shape == (heads, lq, lk)
    assert batched.shape == (2, heads, lq, lk)
    for h in range(heads):
        for i in range(lq):
            for j in range(lk):
                relative = j - (i + offset)
                inside = abs(relative) <= window
                expected = encoding.weight[h, relative + window] if inside else torch.tensor(0.0)
                assert torch.equal(bias[h, i, j], expected)
                assert torch.equal(batched[1, h, i, j], expected)


def test_starts_follow_the_text_and_are_not_saved() -> None:
    encoding = Hierarchical(6, 2, STARTS)
    assert set(encoding.state_dict()) == {"encodings.1.vectors.table", "encodings.2.weight"}
    x, positions = torch.zeros(1, 6, 6), torch.arange(6)
    before = encoding.embed(x, positions)
    encoding.paragraphs.starts = torch.tensor([0, 2])
    after = encoding.embed(x, positions)
    changed = (before != after).any(-1)[0]
    assert changed.tolist() == [False, False, True, True, False, False]


# A table past its end ----------------------------------------------------------------------------


def row_beyond(place: int, longest: int, last: int, way: str) -> float:
    """Where a table of last + 1 rows is read for a place, in a sequence up to `longest`."""
    if way == "wrap":
        return place % (last + 1)
    if way == "clamp":
        return min(place, last)
    return place * last / longest if longest > last else place


@settings(max_examples=30, deadline=None)
@given(
    st.integers(1, 6),
    st.integers(1, 6),
    st.sampled_from(("clamp", "wrap", "interpolate")),
    st.booleans(),
)
def test_a_table_is_read_past_its_end(length: int, rows: int, way: str, batched: bool) -> None:
    torch.manual_seed(0)
    learned = Learned(rows, 3, std=1.0).double()
    table, x = learned.table.detach(), torch.randn(2, length, 3, dtype=torch.float64)
    places = torch.arange(length)
    if batched:
        places = torch.stack([places, places.roll(1)])
    expected = x.clone()
    for b, sequence in enumerate(places.expand(2, length).tolist()):
        for i, place in enumerate(sequence):
            real = row_beyond(place, max(sequence), rows - 1, way)
            low = math.floor(real)
            high = min(low + 1, rows - 1)
            expected[b, i] += table[low] + (real - low) * (table[high] - table[low])
    assert torch.allclose(Beyond(learned, way).embed(x, places), expected, atol=1e-12)


def test_each_sequence_is_squeezed_by_itself() -> None:
    """A longer text in the batch does not squeeze a shorter one."""
    table, x = Beyond(Learned(8, 16), "interpolate"), torch.zeros(2, 16, 16)
    places = torch.stack([torch.arange(16).clamp(max=7), torch.arange(16)])
    together = table.embed(x, places)
    for row in (0, 1):
        alone = table.embed(x[row : row + 1], places[row : row + 1])
        assert torch.equal(together[row : row + 1], alone)
