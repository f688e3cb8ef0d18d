"""Checks of exercise set 14: text, image and video in one sequence."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TypeAlias

import torch
from torch import Tensor

from exercises.checks.spec import Answer, Case, Draw, Exercise, Mistake
from pe_lib.axes import (
    axes_angles,
    axis_of_pair,
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


def section_angles(
    numbers: Tensor, sections: Sequence[int], base: float, interleaved: bool
) -> Tensor:
    """Return the angle of each pair, from the number on its axis."""
    name = "interleaved" if interleaved else "chunked"
    return axes_angles(numbers, section_directions(shared_list(sections, base), sections, name))


def shared_list(sections: Sequence[int], base: float) -> Tensor:
    """Return the frequencies of all pairs together."""
    return frequencies(2 * sum(sections), base)


def angles_by(numbers: Tensor, rates: Tensor, axis: Tensor) -> Tensor:
    """Return the product of each pair's rate with the number on its axis."""
    return numbers.double()[:, axis] * rates


def angle_cases(draw: Draw) -> list[Case]:
    """Sections of published models, equal ones, and others; one axis, and four; fractions."""
    a, b, c, n = draw.sizes(4, 2, 7)
    patches = mixed_positions([a, (2, b, c), n])
    points = torch.stack([draw.places(n), draw.places(n) + 60, 3 * draw.places(n)], 1)
    calls = (
        (patches, [16, 24, 24], 1e6), (points, [24, 20, 20], 5e6), (points, [a, b + 3, c], 10000.0),
        (points[:, :2] / 4, [c, a + 4], 500.0), (-points, [a, a, a], 10000.0),
        (patches[:, 1:], [b, b], 1000.0), (patches[:, [0, 2, 1, 1]], [1, c, 2, b], 10000.0),
        (points[:, 2:], [n], 10000.0),
    )  # fmt: skip
    return [
        Case(f"numbers of shape {tuple(x.shape)}, sections {s}, base {base:g}, "
             f"{'interleaved' if each else 'chunked'}", (x, s, base, each))
        for x, s, base in calls for each in (False, True)
    ]  # fmt: skip


def own_series(numbers: Tensor, sections: Sequence[int], base: float, interleaved: bool) -> Tensor:
    """Give each axis frequencies of its own, from 1 down."""
    axis = axis_of_pair(sections, "interleaved" if interleaved else "chunked")
    ranks = torch.stack([(axis[:r] == axis[r]).sum() for r in range(len(axis))])
    rates = torch.stack([
        frequencies(2 * sections[int(a)], base)[int(rank)]
        for a, rank in zip(axis, ranks, strict=True)
    ])  # fmt: skip
    return angles_by(numbers, rates, axis)


def taken_along(numbers: Tensor, sections: Sequence[int], base: float, interleaved: bool) -> Tensor:
    """Deal out the pairs of the chunks, with the rates that they had there."""
    axis = axis_of_pair(sections, "interleaved" if interleaved else "chunked")
    order = axis.argsort(stable=True).argsort()
    return section_angles(numbers, sections, base, False)[:, order]


def never_used_up(
    numbers: Tensor, sections: Sequence[int], base: float, interleaved: bool
) -> Tensor:
    """Let the axes take turns to the end."""
    if not interleaved:
        return section_angles(numbers, sections, base, interleaved)
    axis = torch.arange(sum(sections)) % len(sections)
    return angles_by(numbers, shared_list(sections, base), axis)


def equal_parts(numbers: Tensor, sections: Sequence[int], base: float, interleaved: bool) -> Tensor:
    """Give each axis as many pairs as the others, as far as that is possible."""
    count = len(sections)
    equal = [(sum(sections) + i) // count for i in range(count)]
    return section_angles(numbers, equal, base, interleaved)


def with_rates(rule: Callable[[Tensor], Tensor]) -> Answer:
    """Return a wrong answer whose rates another rule makes of the right ones."""

    def answer(x: Tensor, s: Sequence[int], base: float, interleaved: bool) -> Tensor:
        axis = axis_of_pair(s, "interleaved" if interleaved else "chunked")
        return angles_by(x, rule(shared_list(s, base)), axis)

    return answer


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
        name="section_angles",
        parts=("chunked", "interleaved"),
        cases=angle_cases,
        reference=section_angles,
        axes=("token", "pair"),
        tolerance=1e-5,
        mistakes=(
            Mistake("the sections are chunked always; look at `interleaved`",
                    lambda x, s, b, i: section_angles(x, s, b, False)),
            Mistake("the sections are interleaved always; look at `interleaved`",
                    lambda x, s, b, i: section_angles(x, s, b, True)),
            Mistake("the two arrangements are exchanged",
                    lambda x, s, b, i: section_angles(x, s, b, not i)),
            Mistake("each axis has frequencies of its own, from 1 down; here they share one list",
                    own_series),
            Mistake("interleaved, the axes take turns, but each pair has brought the rate of its "
                    "chunk along; the rates stay where they are", taken_along),
            Mistake("interleaved, an axis whose pairs are used up drops out; yours takes turns to "
                    "the end", never_used_up),
            Mistake("sections that are equal can be interleaved, too; yours are chunked",
                    lambda x, s, b, i: section_angles(x, s, b, i and len(set(s)) > 1)),
            Mistake("negative numbers are taken as 0",
                    lambda x, s, b, i: section_angles(x.clamp(min=0), s, b, i)),
            Mistake("every axis has as many pairs as the others; look at `sections`",
                    equal_parts),
            Mistake("the axes stand in the wrong order: the last has the first pairs",
                    lambda x, s, b, i: section_angles(x.flip(-1), s, b, i)),
            Mistake("the sections stand in the wrong order: the first axis has the last section",
                    lambda x, s, b, i: section_angles(x, s[::-1], b, i)),
            Mistake("all pairs rotate by the first number of a token",
                    lambda x, s, b, i: section_angles(x[:, :1].expand_as(x), s, b, i)),
            Mistake("all pairs rotate by the last number of a token",
                    lambda x, s, b, i: section_angles(x[:, -1:].expand_as(x), s, b, i)),
            Mistake("all pairs rotate by the sum of a token's numbers; each has one axis",
                    lambda x, s, b, i: angles_by(x.sum(1, keepdim=True), shared_list(s, b),
                                                 torch.zeros(sum(s), dtype=torch.int64))),
            Mistake("you count the tokens yourself; use their numbers",
                    lambda x, s, b, i: section_angles(
                        torch.arange(len(x))[:, None].expand_as(x), s, b, i)),
            Mistake("your numbers are one too high",
                    lambda x, s, b, i: section_angles(x + 1, s, b, i)),
            Mistake("the exponent is 2r/n for pair r of n; it must be r/n",
                    with_rates(lambda w: w**2)),
            Mistake("the exponent is r/(2n) for pair r of n; it must be r/n",
                    with_rates(lambda w: w**0.5)),
            Mistake("the frequencies grow with r: the sign of the exponent is missing",
                    with_rates(lambda w: 1 / w)),
            Mistake("the base is an argument; you use 10000 always",
                    lambda x, s, b, i: section_angles(x, s, 10000.0, i)),
            Mistake("these are whole turns, not radians", with_rates(lambda w: w * 2 * torch.pi)),
            Mistake("the angles rotate the other way", with_rates(lambda w: -w)),
            Mistake("there is an angle for each component; wanted is one for each pair",
                    lambda x, s, b, i: section_angles(x, s, b, i).repeat(1, 2)),
        ),
    ),
)  # fmt: skip
