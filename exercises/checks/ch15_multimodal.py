"""Checks of exercise set 15: text, image and video in one sequence."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TypeAlias

import torch
from torch import Tensor

from exercises.checks.spec import Answer, Case, Draw, Exercise, Mistake
from pe_lib.axes import (
    axes_angles,
    grid_positions,
    section_directions,
    text_image_positions,
)
from pe_lib.sinusoidal import frequencies

Parts: TypeAlias = Sequence[int | tuple[int, int, int]]


def mixed_positions(parts: Parts) -> Tensor:
    """Return three numbers for each token: frame, row and column."""
    return text_image_positions(parts).numbers


def parts_cases(draw: Draw) -> list[Case]:
    """Images between words, first and last, side by side; videos of many frames and of few."""
    a, b, c, d = draw.sizes(4, 2, 6)
    lists: tuple[Parts, ...] = (
        [a, (1, b, c), d], [1, (1, b, a), (2, c, c), 2], [2, (1, 2, 2 + d), (1, b + 2, 3), 1],
        [c, (b + d + 4, 2, 3), a], [1, (2, a, a + b), 3, (c + 9, 1, 2), 1], [2],
        [b, (2, c + 7, 3), d], [(1, a, a), (1, a, a), b],
    )  # fmt: skip
    return [
        Case(f"{'words alone' if one == [2] else 'words and images'}, "
             f"numbers from {i % 3}", (mixed_positions(one) + i % 3,))
        for i, one in enumerate(lists)
    ]  # fmt: skip


def larger(row: list[int], largest: int) -> bool:
    """Return whether a token begins a part: all of its numbers are new."""
    return min(row) > largest


def parts_of(
    numbers: Tensor, new: Callable[[list[int], int], bool] = larger, from_zero: bool = False
) -> Tensor:
    """Return frames, rows and columns of each part, (P, 3)."""
    starts, largest = [], int(numbers.min()) - 1
    for place, row in enumerate(numbers.tolist()):
        if new(row, largest):
            starts.append(place)
        largest = max(largest, *row)
    ends = [*starts[1:], len(numbers)]
    return torch.stack([
        numbers[a:b].amax(0) - (0 if from_zero else numbers[a]) + 1
        for a, b in zip(starts, ends, strict=True)
    ])  # fmt: skip


def merged_images(parts: Tensor) -> Tensor:
    """Return the parts without those images that follow an image."""
    image = parts.prod(1) > 1
    return parts[~(image & torch.cat([torch.tensor([False]), image[:-1]]))]


def merged_words(parts: Tensor) -> Tensor:
    """Return the parts without those words that follow a word."""
    word = parts.prod(1) == 1
    return parts[~(word & torch.cat([torch.tensor([False]), word[:-1]]))]


Sections = tuple[Tensor, Tensor, Tensor]


def sections_of(numbers: Tensor, angles: Tensor) -> Sections:
    """Return the pairs of each axis, 1 if they are interleaved, and the base."""
    axis = by_direction(numbers, angles)
    rate = angles.norm(dim=0) / numbers.double().norm(dim=0)[axis]  # (n,)
    n = len(axis)
    interleaved = (axis.diff() < 0).any().long()
    return axis.bincount(minlength=numbers.shape[1]), interleaved, rate[-1] ** (-n / (n - 1))


def by_direction(numbers: Tensor, angles: Tensor) -> Tensor:
    """Return the axis whose numbers have the direction of each pair's angles, (n,)."""
    x, y = (each.double() / each.double().norm(dim=0) for each in (numbers, angles))
    found: Tensor = (x.T @ y).argmax(0)
    return found


def section_cases(draw: Draw) -> list[Case]:
    """Sections of published models, equal ones, and others; two axes to four; fractions."""
    a, b, c, n = draw.sizes(4, 2, 7)
    patches = mixed_positions([a, (2, b, c), n])
    points = torch.stack([draw.places(n), draw.places(n) + 60, 3 * draw.places(n)], 1)
    four = torch.cat([points - 40.5, draw.places(n)[:, None] ** 2], 1)
    calls = (
        (patches, [16, 24, 24], 1e6), (points, [24, 20, 20], 5e6), (points, [a, b + 3, c], 10000.0),
        (points[:, :2] / 4, [c, a + 4], 500.0), (-points, [a, a, a], 10000.0),
        (patches[:, 1:], [b, b], 1000.0), (four, [1, c, 2, b], 10000.0),
        (patches, [1, b + 2, 1], 300.0),
    )  # fmt: skip
    found = []
    for x, sections, base in calls:
        for name in ("chunked", "interleaved"):
            rates = frequencies(2 * sum(sections), base)
            angles = axes_angles(x, section_directions(rates, sections, name)).double()
            words = f"numbers of shape {tuple(x.shape)}, {len(rates)} pairs, {name}"
            found.append(Case(words, (x, angles)))
    return found


def changed(
    sections: Callable[[Tensor], Tensor] = lambda s: s,
    order: Callable[[Tensor], Tensor] = lambda i: i,
    base: Callable[[Tensor, int], Tensor] = lambda base, n: base,
) -> Answer:
    """Return a wrong answer that changes one of the three."""

    def answer(numbers: Tensor, angles: Tensor) -> Sections:
        found = sections_of(numbers, angles)
        return sections(found[0]), order(found[1]), base(found[2], angles.shape[1])

    return answer


def by_size(numbers: Tensor, angles: Tensor) -> Sections:
    """Take the axis with the largest number of a pair's largest angle."""
    token = angles.abs().argmax(0)  # (n,)
    axis = numbers[token].abs().argmax(1)
    found = axis.bincount(minlength=numbers.shape[1])
    return found, (axis.diff() < 0).any().long(), sections_of(numbers, angles)[2]


def clip_cases(draw: Draw) -> list[Case]:
    """Steps of less than one, of one and a half, and whole ones; clips long, wide and high."""
    start, f, r, c = draw.sizes(4, 3, 9)
    calls = (
        (start, (f, r, c), 0.25, 2),
        (start + 20, (f + 9, r, c), 0.75, 2),
        (0, (f, c, r), 1.5, 3),
        (start, (2, r + 12, c), 0.5, 2),
        (start, (3, r, c + 12), 1.25, 5),
        (start, (1, r, c), 2.0, 4),
    )
    return [
        Case(f"a clip of (frames, rows, columns) {grid} from {first}, a frame every {seconds} "
             f"seconds, {rate} steps a second", (first, grid, seconds, rate))
        for first, grid, seconds, rate in calls
    ]  # fmt: skip


def clip_numbers(
    start: int,
    grid: tuple[int, int, int],
    seconds: float,
    rate: int,
    *,
    times: Callable[[Tensor, float, int], Tensor] = lambda frame, s, r: (frame * s * r).floor(),
    after: Callable[[Tensor, int], int] = lambda numbers, start: int(numbers.max()) + 1,
) -> Tensor:
    """Return the numbers of a clip's patches, frames by the clock, and of the word after it."""
    frame, row, column = grid_positions(*grid).T
    numbers = start + torch.stack([times(frame, seconds, rate).long(), row, column], dim=1)
    return torch.cat([numbers, torch.full((1, 3), after(numbers, start))])


def with_times(times: Callable[[Tensor, float, int], Tensor]) -> Answer:
    """Return a wrong answer that times the frames in another way."""
    return lambda start, grid, s, r: clip_numbers(start, grid, s, r, times=times)


def going_on(after: Callable[[tuple[int, int, int]], int]) -> Answer:
    """Return a wrong answer whose word comes so many after the clip's beginning."""
    return lambda start, grid, s, r: clip_numbers(
        start, grid, s, r, after=lambda numbers, first: first + after(grid)
    )


EXERCISES = (
    Exercise(
        name="parts_of",
        cases=parts_cases,
        reference=parts_of,
        integers=True,
        axes=("part", "axis"),
        mistakes=(
            Mistake("the sizes are one too small: numbers from 0 to 2 are three rows",
                    lambda x: parts_of(x) - 1),
            Mistake("the order is frames, rows, columns; yours is columns, rows, frames",
                    lambda x: parts_of(x).flip(-1)),
            Mistake("rows and columns are exchanged", lambda x: parts_of(x)[:, [0, 2, 1]]),
            Mistake("the largest number is taken for a size; count from the part's own beginning",
                    lambda x: parts_of(x, from_zero=True)),
            Mistake("a part does not begin wherever three numbers are equal: a patch on the "
                    "diagonal of an image has such numbers, too",
                    lambda x: parts_of(x, new=lambda row, largest: min(row) == max(row))),
            Mistake("images that follow one another are taken for one",
                    lambda x: merged_images(parts_of(x))),
            Mistake("words are left out; each counts as (1, 1, 1)",
                    lambda x: parts_of(x)[parts_of(x).prod(1) > 1]),
            Mistake("words that follow one another are taken for one",
                    lambda x: merged_words(parts_of(x))),
            Mistake("each token is taken for a part", lambda x: torch.ones_like(x)),
            Mistake("frames are left out: return three sizes for each part",
                    lambda x: parts_of(x)[:, 1:]),
        ),
    ),
    Exercise(
        name="clip_numbers",
        cases=clip_cases,
        reference=clip_numbers,
        integers=True,
        axes=("token", "axis"),
        mistakes=(
            Mistake("the seconds are cut to whole ones before they are multiplied: frames half a "
                    "second apart get one number", with_times(lambda f, s, r: f * int(s) * r)),
            Mistake("the step is cut to a whole one before it is multiplied by the frame; cut "
                    "once, at the end", with_times(lambda f, s, r: f * int(s * r))),
            Mistake("the number at which the clip begins is multiplied, too; time counts from the "
                    "clip's beginning",
                    lambda start, g, s, r: torch.cat([
                        clip_numbers(start, g, s, r)[:-1] + torch.tensor(
                            [int(start * s * r) - start, 0, 0]),
                        clip_numbers(start, g, s, r)[-1:]])),
            Mistake("the word after the clip goes on after the larger of rows and columns; a long "
                    "clip has larger numbers than these", going_on(lambda g: max(g[1:]))),
            Mistake("the word after the clip goes on after as many tokens as the clip has",
                    going_on(lambda g: g[0] * g[1] * g[2])),
            Mistake("the word after the clip goes on after the number of frames",
                    going_on(lambda g: g[0])),
            Mistake("the word after the clip has the clip's largest number; it needs the next",
                    lambda start, g, s, r: clip_numbers(
                        start, g, s, r, after=lambda numbers, first: int(numbers.max()))),
            Mistake("the frames are counted; wanted is their time", with_times(lambda f, s, r: f)),
            Mistake("times are rounded to the nearest step; they are cut",
                    with_times(lambda f, s, r: (f * s * r + 0.5).floor())),
            Mistake("seconds are divided by the rate of steps; multiply",
                    with_times(lambda f, s, r: (f * s / r).floor())),
            Mistake("rows and columns are exchanged",
                    lambda *args: clip_numbers(*args)[:, [0, 2, 1]]),
            Mistake("the clip begins at 0; it begins at `start`",
                    lambda start, g, s, r: clip_numbers(0, g, s, r)),
            Mistake("the word after the clip is missing",
                    lambda *args: clip_numbers(*args)[:-1]),
        ),
    ),
    Exercise(
        name="sections_of",
        cases=section_cases,
        reference=sections_of,
        tolerance=1e-6,
        mistakes=(
            Mistake("the sections stand in the wrong order: the first belongs to the first axis",
                    changed(sections=lambda s: s.flip(0))),
            Mistake("the two arrangements are exchanged: 0 is chunked",
                    changed(order=lambda i: 1 - i)),
            Mistake("you answer chunked always", changed(order=torch.zeros_like)),
            Mistake("you answer interleaved always", changed(order=torch.ones_like)),
            Mistake("the frequency of the last pair is not quite 1 / base: its exponent is "
                    "-(n - 1)/n", changed(base=lambda b, n: b ** ((n - 1) / n))),
            Mistake("this is by how much a pair is slower than the one before it; the base is the "
                    "n-th power", changed(base=lambda b, n: b ** (1 / n))),
            Mistake("pair r has the exponent -r/n; you take -2r/n",
                    changed(base=lambda b, n: b**0.5)),
            Mistake("the base is the other way up: frequencies fall from pair to pair",
                    changed(base=lambda b, n: 1 / b)),
            Mistake("the base is taken to be 10000",
                    changed(base=lambda b, n: torch.full_like(b, 10000.0))),
            Mistake("the sections are taken to be equal",
                    changed(sections=lambda s: torch.full_like(s, int(s.sum()) // len(s)))),
            Mistake("the largest number of a token need not be the one that a pair rotates by",
                    by_size),
        ),
    ),
)  # fmt: skip
