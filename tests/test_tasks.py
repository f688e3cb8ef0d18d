"""The tasks: each label is right, each test set is closed, each wrong size is refused."""

from __future__ import annotations

from collections.abc import Callable

import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from pe_course import tasks
from pe_course.training import IGNORE, Batch, generator

counts, seeds = st.integers(1, 9), st.integers(0, 10_000)
quick = settings(max_examples=25, deadline=None)


@quick
@given(counts, st.integers(2, 12), st.integers(3, 9), seeds)
def test_which_came_first_names_the_first_of_two(
    count: int, length: int, vocab: int, seed: int
) -> None:
    tokens, labels = tasks.which_came_first(count, length, generator(seed), vocab=vocab)
    assert tokens.shape == (count, length) and labels.shape == (count,)
    assert int(tokens.max()) < vocab
    for row, label in zip(tokens.tolist(), labels.tolist(), strict=True):
        assert row.count(tasks.A) == row.count(tasks.B) == 1
        assert label == (row.index(tasks.A) < row.index(tasks.B))


def as_set(batch: Batch) -> set[tuple[int, ...]]:
    return {(*row, label) for row, label in zip(batch[0].tolist(), batch[1].tolist(), strict=True)}


@quick
@given(counts, st.integers(2, 8), seeds)
def test_closed_sets_hold_each_twin_with_the_other_label(
    count: int, length: int, seed: int
) -> None:
    batch = tasks.which_came_first(count, length, generator(seed))
    swap = {tasks.A: tasks.B, tasks.B: tasks.A}
    swapped, mirrored = tasks.swap_closed(*batch), tasks.mirror_closed(*batch)
    assert as_set(swapped) == as_set(batch) | {
        (*(swap.get(token, token) for token in row), 1 - label) for *row, label in as_set(batch)
    }
    assert as_set(mirrored) == as_set(batch) | {
        (*row[::-1], 1 - label) for *row, label in as_set(batch)
    }
    for closed in (swapped, mirrored):
        assert len(closed[0]) == 2 * count
        assert float(closed[1].double().mean()) == 0.5


@quick
@given(counts, st.integers(1, 12), seeds)
def test_orders_hold_each_token_once(count: int, length: int, seed: int) -> None:
    tokens = tasks.permutations(count, length, generator(seed))
    assert torch.equal(tokens.sort(dim=1).values, torch.arange(length).expand(count, length))


@quick
@given(counts, st.integers(1, 12), seeds)
def test_shift_and_reverse_equal_their_loops(count: int, length: int, seed: int) -> None:
    for make, place in (
        (tasks.shift, lambda i: (i - 1) % length),
        (tasks.reverse, lambda i: length - 1 - i),
    ):
        tokens, targets = make(count, length, generator(seed))
        for row, wanted in zip(tokens.tolist(), targets.tolist(), strict=True):
            assert wanted == [row[place(i)] for i in range(length)]


@quick
@given(counts, st.integers(2, 12), st.integers(1, 11), seeds)
def test_n_back_equals_its_loop(count: int, length: int, n: int, seed: int) -> None:
    if n >= length:
        n = length - 1
    tokens, targets = tasks.n_back(count, length, generator(seed), n=n)
    for row, wanted in zip(tokens.tolist(), targets.tolist(), strict=True):
        assert wanted == [row[i - n] if i >= n else IGNORE for i in range(length)]


@quick
@given(counts, st.integers(3, 14), st.integers(1, 9), seeds)
def test_marker_recall_equals_its_loop(count: int, length: int, vocab: int, seed: int) -> None:
    tokens, targets = tasks.marker_recall(count, length, generator(seed), vocab=vocab)
    for row, wanted in zip(tokens.tolist(), targets.tolist(), strict=True):
        assert row.count(vocab) == 1
        place = row.index(vocab)
        assert wanted == [row[place + 1] if i > place + 1 else IGNORE for i in range(length)]
        assert wanted[-1] != IGNORE  # each sequence asks something


def test_a_seed_gives_the_same_batch_again_and_another_gives_another() -> None:
    makers: list[Callable[[torch.Generator], Batch]] = [
        lambda g: tasks.which_came_first(8, 16, g),
        lambda g: tasks.shift(8, 16, g),
        lambda g: tasks.reverse(8, 16, g),
        lambda g: tasks.n_back(8, 16, g),
        lambda g: tasks.marker_recall(8, 16, g),
        lambda g: tasks.text_windows(torch.arange(999), 8, 16, g),
    ]
    for make in makers:
        first, again, other = make(generator(1)), make(generator(1)), make(generator(2))
        assert torch.equal(first[0], again[0]) and torch.equal(first[1], again[1])
        assert not torch.equal(first[0], other[0])


def test_places_are_uniform() -> None:
    """Each place must be asked about as often: 20 standard errors would be 0.09."""
    tokens, labels = tasks.which_came_first(4000, 8, generator(0))
    places = (tokens == tasks.A).double().mean(0)
    assert float((places - 1 / 8).abs().max()) < 0.03
    assert abs(float(labels.double().mean()) - 0.5) < 0.04


# Text ---------------------------------------------------------------------------------------------


@quick
@given(st.text(min_size=1, max_size=40))
def test_characters_go_there_and_back(text: str) -> None:
    ids, alphabet = tasks.encode_characters(text)
    assert "".join(alphabet[i] for i in ids.tolist()) == text


@quick
@given(counts, st.integers(1, 19), seeds)
def test_windows_are_pieces_with_the_next_character(count: int, length: int, seed: int) -> None:
    ids = torch.arange(20)
    inputs, targets = tasks.text_windows(ids, count, length, generator(seed))
    assert inputs.shape == targets.shape == (count, length)
    assert torch.equal(targets, inputs + 1)
    assert torch.equal(inputs - inputs[:, :1], torch.arange(length).expand(count, length))


def test_windows_reach_both_ends_of_the_text() -> None:
    inputs, targets = tasks.text_windows(torch.arange(20), 500, 15, generator(0))
    assert int(inputs.min()) == 0 and int(targets.max()) == 19


# Images -------------------------------------------------------------------------------------------


def test_digits_are_split_without_overlap_and_with_equal_shares() -> None:
    train_x, train_y, test_x, test_y = tasks.load_digits()
    assert train_x.shape == (1257, 8, 8) and test_x.shape == (540, 8, 8)
    assert float(train_x.min()) == 0 and float(train_x.max()) == 1
    shares = [y.bincount() / len(y) for y in (train_y, test_y)]
    assert float((shares[0] - shares[1]).abs().max()) < 0.005
    again = tasks.load_digits()
    assert torch.equal(again[0], train_x) and torch.equal(again[3], test_y)


@quick
@given(counts, st.integers(1, 4), st.integers(1, 4), st.integers(1, 3))
def test_patches_equal_their_loop(count: int, rows: int, columns: int, size: int) -> None:
    images = torch.randn(count, rows * size, columns * size)
    cut = tasks.patches(images, size)
    assert cut.shape == (count, rows * columns, size * size)
    for r in range(rows):
        for c in range(columns):
            piece = images[:, r * size : (r + 1) * size, c * size : (c + 1) * size]
            assert torch.equal(cut[:, r * columns + c], piece.flatten(1))


@quick
@given(counts, st.integers(1, 4), st.integers(1, 4), seeds)
def test_a_canvas_holds_the_image_at_its_offset_and_nothing_else(
    count: int, height: int, width: int, seed: int
) -> None:
    random = generator(seed)
    images = 1 + torch.rand(count, height, width, generator=random)
    offsets = torch.stack(
        [torch.randint(7 - side, (count,), generator=random) for side in (height, width)], dim=1
    )
    canvas = tasks.on_canvas(images, offsets, 6)
    assert canvas.shape == (count, 6, 6)
    for image, (row, column), whole in zip(images, offsets.tolist(), canvas, strict=True):
        assert torch.equal(whole[row : row + height, column : column + width], image)
        assert int((whole > 0).sum()) == height * width


def test_addition_adds() -> None:
    for digits in (1, 2, 7):
        inputs, targets = tasks.addition(20, digits, generator(3))
        assert inputs.shape == targets.shape == (20, 3 * digits + 2)
        for line, wanted in zip(inputs.tolist(), targets.tolist(), strict=True):
            text = "".join("0123456789+="[token] for token in line)
            first, second = text.split("=")[0].split("+")
            total = "".join(map(str, wanted[2 * digits + 1 :]))
            assert int(first[::-1]) + int(second[::-1]) == int(total[::-1])
            assert text.split("=")[1] == total[:-1]
            assert set(wanted[: 2 * digits + 1]) == {IGNORE}


def test_digits_that_belong_together_share_a_position() -> None:
    positions = tasks.coupled_positions(3)
    assert positions.tolist() == [0, 1, 2, 0, 0, 1, 2, 0, 1, 2, 3]
    inputs, targets = tasks.addition(1, 3, generator(0))
    assert len(positions) == inputs.shape[1] == targets.shape[1]
