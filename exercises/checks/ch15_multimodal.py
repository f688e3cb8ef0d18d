"""Checks of exercise set 15: text, image and video in one sequence."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

import torch
from torch import Tensor

from pe_course.judge.exercise import Answer, Case, Draw, Exercise, Mistake
from pe_lib.encoding import axes_of
from pe_lib.recent.axes import grid_positions, text_image_positions
from pe_lib.sinusoidal import frequencies

Images = tuple[Tensor, Tensor]
Part = int | tuple[int, int, int]


def larger(row: list[int], largest: int) -> bool:
    """Return whether a token begins a part: all of its numbers are new."""
    return min(row) > largest


def images_of(
    numbers: Tensor, new: Callable[[list[int], int], bool] = larger, from_zero: bool = False,
    longest: Callable[[Tensor], Tensor] = lambda parts: parts.amax(1),
) -> Images:  # fmt: skip
    """Return the sizes of images and clips, (P, 3), and how many words are missing."""
    starts, largest = [], -1
    for place, row in enumerate(numbers.tolist()):
        if new(row, largest):
            starts.append(place)
        largest = max(largest, *row)
    ends = [*starts[1:], len(numbers)]
    pieces = [numbers[a:b] for a, b in zip(starts, ends, strict=True)]
    parts = torch.stack([each.amax(0) - (0 if from_zero else each[0]) + 1 for each in pieces])
    return parts[parts.prod(1) > 1], largest + 1 - longest(parts).sum()


def evicted_cases(draw: Draw) -> list[Case]:
    """Images between words and side by side, clips long and short; much is gone, or nothing."""
    a, b, c, d = draw.sizes(4, 3, 7)
    lists: tuple[tuple[str, Sequence[Part], float], ...] = (
        ("one image between words", [a, (1, b, c), d], 0.5),
        ("three images", [3, (1, b, a), (1, c, c), 4, (1, a, a), 2], 0.8),
        ("one clip", [c, (b + d, 2, 3), a], 0.5),
        ("three clips, the first at the start", [(2, a, b), 5, (c, 4, 4), (4, c, d), d], 0.9),
        ("images and clips of few patches", [b, (1, 1, c), d, (a, 1, 1), (b, b, b), 9], 0.7),
        ("a clip of which nothing is gone", [2, (2, b, d), a], 0.0),
    )  # fmt: skip
    return [Case(words, (left_over(draw, parts, gone),)) for words, parts, gone in lists]


def left_over(draw: Draw, parts: Sequence[Part], gone: float) -> Tensor:
    """Return the numbers of what is left: the corners of each frame, the last word, and chance."""
    kept = torch.rand(999, generator=draw.generator) >= gone
    place = 0
    for part in parts:
        if isinstance(part, int):
            place += part
            continue
        frames, rows, columns = part
        for _ in range(frames):
            kept[place] = kept[place + rows * columns - 1] = True
            place += rows * columns
    kept[place - 1] = True
    return axes_of(text_image_positions(parts))[0, kept[:place]]


def instead(rule: Callable[[Tensor, Tensor, Tensor], tuple[Tensor, Tensor]]) -> Answer:
    """Return a wrong answer that makes something else of images, lost words and the numbers."""
    return lambda numbers: rule(*images_of(numbers), numbers)


Pairs = tuple[Tensor, Tensor]


def axis_and_rate(numbers: Tensor, cos: Tensor, sin: Tensor) -> Pairs:
    """Return the axis of each pair, -1 where it stands still, and its rate, (n,) each."""
    z = torch.complex(cos, sin)  # (L, n)
    rate = (turned(numbers, z, 3) * turned(numbers, z, 2).conj()).angle()
    angles = numbers[:, :, None] * rate  # (L, 3, n)
    missed = (torch.complex(angles.cos(), angles.sin()) - z[:, None]).abs().amax(0)
    return missed.argmin(0).where(rate.abs() > 1e-12, -1), rate


def turned(numbers: Tensor, z: Tensor, apart: int) -> Tensor:
    """Return by how much each pair turns between words so far apart, as complex numbers, (n,)."""
    i, j = (numbers - numbers[:, None] == apart).all(-1).nonzero()[0]
    return z[j] * z[i].conj()


def thinned(draw: Draw, parts: Sequence[Part]) -> Tensor:
    """Return numbers of words 2 and 3 apart, and of patches whose numbers go in twos, (L, 3)."""
    rows, start = [], draw.integer(0, 9)
    for part in parts:
        if isinstance(part, int):
            steps = 2 + torch.arange(part) % 2  # 2, 3, 2, 3, ...
            local = torch.cat([torch.zeros(1).long(), steps[:-1].cumsum(0)])[:, None].expand(-1, 3)
        else:
            local = 2 * grid_positions(*part)
        rows.append(start + local)
        start = int(rows[-1].max()) + draw.integer(4, 9)
    return torch.cat(rows)


def turning_cases(draw: Draw) -> list[Case]:
    """Turns and chunks, rates in any order, fast and slow; pairs that stand still."""
    a, b, c, d = draw.sizes(4, 3, 6)
    found = []
    # parts, pairs, those that stand still, base
    calls: tuple[tuple[Sequence[Part], int, int, float], ...] = (
        ([a, (1, b, c), d], 6, 0, 5e5), ([4, (3, b, 2), (1, d, 2), 3], 12, 2, 1e4),
        ([5, (2, d, a), 4], 9, 1, 50.0), ([3, (1, 2, b + 5), 3, (4, 2, 3), 3], 24, 5, 5e5),
    )  # fmt: skip
    for parts, n, still, base in calls:
        numbers = thinned(draw, parts)
        inv_freq = 2.9 * frequencies(2 * n, base)[draw.order(n)]
        inv_freq[draw.order(n)[:still]] = 0
        angles = numbers[:, (torch.arange(n) % 3)[draw.order(n)]] * inv_freq
        words = f"{n} pairs, {'some of which stand still' if still else 'all of which move'}"
        args = (numbers, angles.cos(), angles.sin())
        found.append(Case(words, args, drawn=f", {len(numbers)} tokens"))
    return found


def by_length(numbers: Tensor, cos: Tensor, sin: Tensor) -> Pairs:
    """Take the axis whose numbers best fit the angles as the table has them, up to whole turns."""
    angles, x = torch.atan2(sin, cos), numbers.double()
    fit = x.T @ angles / x.square().sum(0)[:, None]  # (A, n)
    axis = (angles - x.T[:, :, None] * fit[:, None]).square().sum(1).argmin(0)
    return axis, fit[axis, torch.arange(len(axis))]


def otherwise(rule: Callable[[Tensor, Tensor], Pairs]) -> Answer:
    """Return a wrong answer that makes something else of the two values."""
    return lambda *given: rule(*axis_and_rate(*given))


Times = Sequence[int]
Bounds = Callable[[Times], tuple[float, float]]


def by_pairs(
    times: Times, near: int = 1, far: int = 999, first: int = 999,
    room: tuple[float, float] = (1, 1), least: float = 0.0,
) -> tuple[float, float]:  # fmt: skip
    """Return between which steps a frame the times allow: any two frames say something."""
    steps = [(times[j] - times[i], j - i) for j in range(len(times))
             for i in range(min(j, first)) if near <= j - i <= far]  # fmt: skip
    low, high = ([(k + more) / n for k, n in steps] for more in (-room[0], room[1]))
    return max([least, *low]), min(high, default=math.inf)


def frame_times(numbers: Tensor) -> list[int]:
    """Return the first number of each frame, from that of its first patch."""
    times: list[int] = numbers[(numbers[:, 1:] == numbers[0, 1:]).all(1), 0].tolist()
    return times


def seconds_between(
    numbers: Tensor, rate: int, bounds: Bounds = by_pairs,
    times: Callable[[Tensor], list[int]] = frame_times,
) -> Pairs:  # fmt: skip
    """Return between which seconds the time from a frame to the next lies."""
    low, high = (torch.tensor(each / rate, dtype=torch.float64) for each in bounds(times(numbers)))
    return low, high


def stream_cases(draw: Draw) -> list[Case]:
    """Frames that share numbers and frames far apart, few and many; one patch and wide images."""
    r, c, few = draw.sizes(3, 2, 6)
    found = []
    # frames, rows, columns, steps a frame, steps a second
    for words, frames, rows, columns, step, rate in (
        ("frames that share numbers", 30, r, c, 0.37, 2), ("few frames", few, c, r, 1.71, 2),
        ("frames of one patch", 60, 1, 1, 2.618, 25), ("frames very near", 19, r, 1, 0.083, 3),
        ("frames at the same time, almost", 3, r, c, 0.0, 4),
        ("frames far apart", 50, 2, 2, 4.99, 10), ("frames of one row", 4, 1, 9, 0.9, 1),
    ):  # fmt: skip
        step += 0.02 * float(torch.rand((), generator=draw.generator))
        first = draw.integer(9, 99) + 0.9 * float(torch.rand((), generator=draw.generator))
        numbers = grid_positions(frames, rows, columns)
        times = (first + numbers[:, 0].double() * step).floor().long()
        numbers = torch.stack([times, numbers[:, 1] + 7, numbers[:, 2] + 7], 1)
        sizes = f": {frames} of {rows} x {columns} patches, {rate} steps a second"
        found.append(Case(words, (numbers, rate), drawn=sizes))
    return found


def bounded(bounds: Bounds) -> Answer:
    """Return a wrong answer that takes other bounds of the times."""
    return lambda numbers, rate: seconds_between(numbers, rate, bounds)


def on_average(times: Times) -> tuple[float, float]:
    """Return the mean step twice."""
    return (mean := (times[-1] - times[0]) / (len(times) - 1)), mean


EXERCISES = (
    Exercise(
        name="images_of",
        cases=evicted_cases,
        reference=images_of,
        integers=True,
        axes=("image", "axis"),
        mistakes=(
            Mistake("the sizes are one too small: numbers from 0 to 2 are three rows",
                    instead(lambda parts, lost, _: (parts - 1, lost))),
            Mistake("the order is frames, rows, columns; yours is columns, rows, frames",
                    instead(lambda parts, lost, _: (parts.flip(-1), lost))),
            Mistake("the largest number is taken for a size; count from the image's own beginning",
                    instead(lambda parts, lost, x: (images_of(x, from_zero=True)[0], lost))),
            Mistake("an image does not begin wherever three numbers are equal: a patch on the "
                    "diagonal of a clip has such numbers, too",
                    lambda x: images_of(x, new=lambda row, largest: min(row) == max(row))),
            Mistake("an image takes as many numbers as its largest axis is long; you take all of "
                    "its patches", lambda x: images_of(x, longest=lambda parts: parts.prod(1))),
            Mistake("an image takes as many numbers as its largest axis is long, and in a long "
                    "clip that is the frames; you take rows and columns",
                    lambda x: images_of(x, longest=lambda parts: parts[:, 1:].amax(1))),
            Mistake("these are the words that are left; the evicted ones are asked for",
                    instead(lambda parts, lost, x: (
                        parts, x.max() + 1 - lost - parts.amax(1).sum()))),
            Mistake("these are all words, evicted or not; take off those that are left",
                    instead(lambda parts, lost, x: (parts, x.max() + 1 - parts.amax(1).sum()))),
            Mistake("one word too few: numbers from 0 to 9 are ten",
                    instead(lambda parts, lost, _: (parts, lost - 1))),
        ),
    ),
    Exercise(
        name="axis_and_rate",
        cases=turning_cases,
        reference=axis_and_rate,
        tolerance=1e-6,
        axes=("pair",),
        mistakes=(
            Mistake("fast pairs have gone round: the angles that a table tells are up to whole "
                    "turns, and no straight line runs through them", by_length),
            Mistake("axes are counted from 0, and a pair that stands still has -1",
                    otherwise(lambda axis, rate: (axis + 1, rate))),
            Mistake("a pair that stands still has no axis; it gets -1",
                    otherwise(lambda axis, rate: (axis.clamp(min=0), rate))),
            Mistake("the order of the axes is turned round: frame, row, column are 0, 1, 2",
                    otherwise(lambda axis, rate: (torch.where(axis < 0, axis, 2 - axis), rate))),
            Mistake("slow pairs are taken for standing ones; those have angle 0 exactly",
                    otherwise(lambda axis, rate: (torch.where(rate < 1e-3, -1, axis), rate))),
            Mistake("all rates are negative: the later word has the larger angle",
                    otherwise(lambda axis, rate: (axis, -rate))),
            Mistake("this is the angle from a word to another that is 2 further on, or 3, divided "
                    "by 2 or 3; a fast pair has gone more than half round by then",
                    lambda x, cos, sin: (axis_and_rate(x, cos, sin)[0], turned(
                        x, torch.complex(cos, sin), 2).angle() / 2)),
            Mistake("this is the angle from a word to another that is 2 further on, or 3, divided "
                    "by 2 or 3; a fast pair has gone more than half round by then",
                    lambda x, cos, sin: (axis_and_rate(x, cos, sin)[0], turned(
                        x, torch.complex(cos, sin), 3).angle() / 3)),
            Mistake("these are wavelengths; return radians for each step", otherwise(
                lambda axis, rate: (axis, (2 * math.pi / rate).where(axis >= 0, 0.0)))),
            Mistake("you sort the pairs; return them as they come",
                    otherwise(lambda axis, rate: (axis.sort().values, rate))),
        ),
    ),
    Exercise(
        name="seconds_between",
        cases=stream_cases,
        reference=seconds_between,
        tolerance=1e-6,
        mistakes=(
            Mistake("you compare the first frame and the last; two others may tell more",
                    bounded(lambda t: by_pairs(t, near=len(t) - 1))),
            Mistake("you compare each frame with the next one; those further apart tell more",
                    bounded(lambda t: by_pairs(t, far=1))),
            Mistake("you compare each frame with the first one; any two tell something",
                    bounded(lambda t: by_pairs(t, first=1))),
            Mistake("the first frame need not come at a whole step: its own time was cut, too",
                    bounded(lambda t: by_pairs(t, first=1, room=(0, 1)))),
            Mistake("this is the mean; which times are possible?", bounded(on_average)),
            Mistake("these are steps; the rate says how many there are in a second",
                    lambda x, rate: seconds_between(x, 1)),
            Mistake("divide by the steps in a second; you multiply",
                    lambda x, rate: tuple(each * rate**2 for each in seconds_between(x, rate))),
            Mistake("the larger one is returned first", lambda *a: seconds_between(*a)[::-1]),
            Mistake("frames that share a number are taken for one; count them by their patches",
                    lambda x, rate: seconds_between(
                        x, rate, times=lambda x: x[:, 0].unique().tolist())),
            Mistake("each patch is taken for a frame", lambda x, rate: seconds_between(
                x, rate, times=lambda x: x[:, 0].tolist())),
            Mistake("time does not run backwards: the smaller number is 0 at least",
                    bounded(lambda t: by_pairs(t, least=-9))),
            Mistake("cutting hides up to a whole step between two frames, to either side; you "
                    "allow half a step", bounded(lambda t: by_pairs(t, room=(0.5, 0.5)))),
        ),
    ),
)  # fmt: skip
