"""Checks of exercise set 2: sinusoidal codes."""

from __future__ import annotations

import math

import torch
from torch import Tensor

from exercises.checks.spec import Case, Draw, Exercise, Mistake
from pe_lib.sinusoidal import arrange, frequencies, sinusoidal

BASE = 10000.0
# Single precision rounds the angles of far positions: at 999, and at 70,000 with width 2, where
# the only frequency is 1 (whoever writes a cosine as a shifted sine rounds there).
ROUNDED, FAR = 3e-4, 1e-2


def code_of(angles: Tensor, layout: str = "interleaved") -> Tensor:
    """Return the code for angles (..., dim / 2)."""
    return arrange(angles.sin(), angles.cos(), layout).float()


def angles(positions: Tensor, dim: int, base: float) -> Tensor:
    """Return position times frequency, (..., dim / 2)."""
    return positions.double().unsqueeze(-1) * frequencies(dim, base)


def other_exponent(positions: Tensor, exponents: Tensor, base: float) -> Tensor:
    """Return the code with frequencies base ** -exponents."""
    return code_of(positions.double().unsqueeze(-1) * float(base) ** -exponents)


def rough_code(positions: Tensor, rates: Tensor) -> Tensor:
    """Return the code in single precision, which differs at angles of a million radians."""
    return code_of(positions.unsqueeze(-1) * rates)


def rough_sinusoidal(positions: Tensor, dim: int) -> Tensor:
    """Return the code as it comes out in single precision."""
    return rough_code(positions, BASE ** (-2 * torch.arange(dim // 2) / dim))


def growing(positions: Tensor, dim: int, base: float, how: str) -> Tensor:
    """Return the code with frequencies that grow, computed in one of three ways."""
    exponents = 2 * torch.arange(dim // 2) / dim
    if how == "exact":
        return other_exponent(positions, -exponents, base)
    if how == "divided":
        return code_of(positions.unsqueeze(-1) / base**-exponents)
    return rough_code(positions, base**exponents)


def sinusoidal_cases(draw: Draw) -> list[Case]:
    """Positions on one, two and three axes, far ones, fractions; no base, and several."""
    batch, heads, length, some = draw.sizes(4, 3, 7)
    dims = [2 * half for half in draw.sizes(3, 5, 9)]
    far = 4 * draw.integer(200, 249) + 1  # odd: no number in bfloat16
    mixed = torch.cat([draw.places(some), torch.tensor([-7, 2 - far, 0, far])])
    mixed = mixed[draw.order(len(mixed))]
    shape = (batch, heads, length)
    quarters = (2 * draw.places(7) + 1) / 4  # never whole
    wide = 2 * draw.integer(65, 70)
    distant = far_numbers(draw)
    return [
        Case(f"positions {mixed.tolist()}, dim {dims[0]}, base 100", (mixed, dims[0], 100.0),
             ROUNDED),
        Case(f"positions of shape {shape[1:]}, dim {dims[1]}, base 700",
             (draw.places(*shape[1:]), dims[1], 700.0)),
        Case(f"positions of shape {shape}, dim {dims[2]}, no base given",
             (draw.places(*shape), dims[2])),
        Case(f"positions {quarters.tolist()}, dim {wide}, base 10000", (quarters, wide, 10000.0)),
        Case(f"positions {distant.tolist()}, dim 2, no base given", (distant, 2), FAR),
    ]  # fmt: skip


def far_numbers(draw: Draw) -> Tensor:
    """Return odd numbers past usual lengths, those of 16 bits included, in no order."""
    lowest = torch.tensor([500, 1000, 2500, 4096, 8192, 16384, 35000])
    return 2 * (lowest + draw.places(7, high=400))[draw.order(7)] + 1


def counted(positions: Tensor, start: int = 0) -> Tensor:
    """Return start, start + 1, ... in place of the positions given."""
    return torch.arange(start, start + positions.shape[-1]).expand(positions.shape)


def batch_counted(positions: Tensor) -> Tensor:
    """Return the index on the first axis in place of the positions given."""
    first = torch.arange(len(positions))
    return first.view(-1, *[1] * (positions.ndim - 1)).expand(positions.shape)


def add_positions(x: Tensor, start: int, base: float = BASE) -> Tensor:
    """Add the codes of start, start + 1, ... to x (B, L, D)."""
    return x + sinusoidal(torch.arange(start, start + x.shape[1]), x.shape[2], base)


def add_cases(draw: Draw) -> list[Case]:
    """Sequences that start at 0, a little later, and far on."""
    batch, length = draw.sizes(2, 3, 8)
    dim, other, third = (2 * half for half in draw.sizes(3, 5, 9))
    calls = (
        ("a start at zero", (batch, length, dim), 0, None),
        ("a later start", (length, batch, other), draw.integer(600, 900), ROUNDED),
        ("an early start", (batch, length, third), draw.integer(2, 40), None),
        ("a far start", (length, batch, 2), int(far_numbers(draw).max()), FAR),
        ("as many sequences as tokens", (batch, batch, 2 * third), draw.integer(41, 90), None),
    )
    return [
        Case(f"{words}: x {shape}, start {start}", (draw.normal(*shape), start), tolerance)
        for words, shape, start, tolerance in calls
    ]


def by_batch(x: Tensor, start: int) -> Tensor:
    """Add a code for each sequence, where one for each position is wanted."""
    return x + sinusoidal(torch.arange(start, start + x.shape[0]), x.shape[2])[:, None]


def shift_matrix(offset: float, dim: int, base: float = BASE) -> Tensor:
    """Return the matrix that turns the code of p into the code of p + offset."""
    rotation = torch.zeros(dim, dim)
    step = offset * frequencies(dim, base)
    even = torch.arange(0, dim, 2)
    rotation[even, even] = rotation[even + 1, even + 1] = step.cos().float()
    rotation[even, even + 1], rotation[even + 1, even] = step.sin().float(), -step.sin().float()
    return rotation


def shift_in_halves(offset: float, dim: int, base: float = BASE) -> Tensor:
    """The same for codes with all sines first."""
    order = torch.cat([torch.arange(0, dim, 2), torch.arange(1, dim, 2)])
    return shift_matrix(offset, dim, base)[order][:, order]


def shift_cases(draw: Draw) -> list[Case]:
    """Offsets forward, back and far, none at all, and no base given; a wide code."""
    dims = [2 * half for half in draw.sizes(2, 3, 8)]
    wide = 2 * draw.integer(60, 70)
    distant = int(far_numbers(draw).max())
    ahead, back, far = draw.integer(2, 9), -draw.integer(2, 5), draw.integer(290, 310)
    return [
        Case(f"forward, offset {ahead}, dim {dims[0]}, base 100", (ahead, dims[0], 100.0)),
        Case(f"back in a wide code, offset {back}, dim {wide}, base 10000", (back, wide, 10000.0)),
        Case(f"offset {far}, dim {dims[1]}, no base given", (far, dims[1])),
        Case("no offset at all, 0, dim 4, base 50", (0, 4, 50.0)),
        *(Case(f"far away, offset {sign * distant}, dim 2, base 50", (sign * distant, 2, 50.0), FAR)
          for sign in (1, -1)),
    ]  # fmt: skip


def similarity(dim: int, base: float, distances: Tensor) -> Tensor:
    """Return the mean over pairs of columns of cos(w d)."""
    return angles(distances, dim, base).cos().mean(-1).float()


def similarity_cases(draw: Draw) -> list[Case]:
    """Distances of both signs: with a zero that is not the first, far ones without, and farther.

    With base 4, the distance -4 gives a negative number at any width.
    """
    count, *halves = draw.sizes(3, 4, 9)
    halves.append(draw.integer(60, 70))
    zero = torch.zeros(1, dtype=torch.long)
    near = torch.cat([draw.places(count), zero, -draw.places(2), zero - 4])
    far = torch.cat([draw.places(count) + 600, -draw.places(2) - 600])
    farther = far_numbers(draw)
    calls = (
        ("a small base", halves[0], 4.0, near, None),
        ("near distances", halves[1], 10000.0, near.flip(0), None),
        ("a wide code and no distance 0", halves[2], 10000.0, far, None),
        ("far distances", 1, 10000.0, torch.cat([farther, -farther]), FAR),
    )
    return [
        Case(f"{words}: dim {2 * half}, base {base:g}, distances {distances.tolist()}",
             (2 * half, base, distances), tolerance)
        for words, half, base, distances, tolerance in calls
    ]  # fmt: skip


EXERCISES = (
    Exercise(
        name="sinusoidal",
        cases=sinusoidal_cases,
        reference=sinusoidal,
        axes=("position", "column"),
        mistakes=(
            Mistake("the base is an argument; you use 10000 always",
                    lambda p, d, b=BASE: sinusoidal(p, d)),
            Mistake("it is right where a base is given; without one it must be 10000, yours is "
                    "1000", lambda p, d, b=1000.0: sinusoidal(p, d, b)),
            Mistake("the exponent is j/d; it must be 2j/d for pair j",
                    lambda p, d, b=BASE: other_exponent(p, torch.arange(d // 2) / d, b)),
            Mistake("the exponent is 4j/d: 2j is already the index of the column",
                    lambda p, d, b=BASE: other_exponent(p, 4 * torch.arange(d // 2) / d, b)),
            Mistake("the exponents run to 1; they stop at (d - 2)/d",
                    lambda p, d, b=BASE: other_exponent(p, torch.linspace(0, 1, d // 2), b)),
            Mistake("the pairs are counted from 1; the first frequency is 1 (j = 0)",
                    lambda p, d, b=BASE: other_exponent(p, 2 * torch.arange(1, d // 2 + 1) / d, b)),
            Mistake("sine and cosine are swapped: the even columns are sines",
                    lambda p, d, b=BASE: code_of(angles(p, d, b)).unflatten(-1, (-1, 2)).flip(-1)
                    .flatten(-2)),
            Mistake("these are all sines, then all cosines: legal, but this exercise asks for "
                    "interleaved columns",
                    lambda p, d, b=BASE: sinusoidal(p, d, b, layout="half")),
            Mistake("your positions start at 1: you add one to each",
                    lambda p, d, b=BASE: sinusoidal(p + 1, d, b)),
            Mistake("you count 0, 1, 2, ... yourself; use the positions that are given",
                    lambda p, d, b=BASE: sinusoidal(counted(p), d, b)),
            Mistake("you count 0, 1, 2, ... along the last axis, and the other axes are lost; use "
                    "the positions that are given",
                    lambda p, d, b=BASE: sinusoidal(torch.arange(p.shape[-1]), d, b)),
            Mistake("you count on from the first position; use each as it is given",
                    lambda p, d, b=BASE: sinusoidal(counted(p) + p.reshape(-1)[0], d, b)),
            Mistake("negative positions lose their sign",
                    lambda p, d, b=BASE: sinusoidal(p.abs(), d, b)),
            Mistake("negative positions are taken as 0",
                    lambda p, d, b=BASE: sinusoidal(p.clamp(min=0), d, b)),
            Mistake("positions are cut to whole numbers; they may be fractions",
                    lambda p, d, b=BASE: sinusoidal(p.long(), d, b)),
            Mistake("your positions start at 1, and you count them yourself; use those given",
                    lambda p, d, b=BASE: sinusoidal(counted(p, 1), d, b)),
            Mistake("your positions come from the batch axis: each sequence has one code",
                    lambda p, d, b=BASE: sinusoidal(batch_counted(p), d, b)),
            *(Mistake("the frequencies grow; they must fall from 1, by a power below zero or a "
                      "division", lambda p, d, b=BASE, how=how: growing(p, d, b, how))
              for how in ("exact", "rough", "divided")),
            Mistake("every column has its own frequency; a sine and its cosine share one",
                    lambda p, d, b=BASE: own_frequencies(p, d, b)),
            Mistake("the sign of the angles is flipped: the sines are negative",
                    lambda p, d, b=BASE: code_of(-angles(p, d, b))),
            Mistake("the angles are in radians; do not convert them from degrees",
                    lambda p, d, b=BASE: code_of(angles(p, d, b) * math.pi / 180)),
        ),
    ),
    Exercise(
        name="add_positions",
        rests_on=("sinusoidal",),
        cases=add_cases,
        reference=add_positions,
        axes=("batch", "token", "channel"),
        mistakes=(
            Mistake("your positions come from the batch axis: x.shape[0] counts sequences, and "
                    "each token of a sequence gets the same vector", by_batch),
            Mistake("your positions come from the batch axis, and `start` is ignored",
                    lambda x, start: by_batch(x, 0)),
            Mistake("`start` is ignored: the offset of a sequence that goes on is lost",
                    lambda x, start: add_positions(x, 0)),
            Mistake("your positions are one too high: they must begin at `start` itself",
                    lambda x, start: add_positions(x, start + 1)),
            Mistake("x is multiplied by sqrt(D); this exercise leaves it as it is",
                    lambda x, start: add_positions(x * x.shape[2] ** 0.5, start)),
            Mistake("the code is multiplied with x; it must be added",
                    lambda x, start: x * add_positions(x * 0, start)),
            Mistake("the code is returned without x",
                    lambda x, start: add_positions(x * 0, start)),
            Mistake("the code is subtracted; it must be added",
                    lambda x, start: 2 * x - add_positions(x, start)),
            Mistake("the positions count down from `start`; they must count up",
                    lambda x, start: x + sinusoidal(start - torch.arange(x.shape[1]), x.shape[2])),
            *(Mistake("`start` stretches the positions; it must be added to them",
                      lambda x, start, code=code: x + code(
                          start * torch.arange(x.shape[1]), x.shape[2]))
              for code in (sinusoidal, rough_sinusoidal)),
            Mistake("the sequences follow each other; each must begin at `start`",
                    lambda x, start: x + sinusoidal(
                        start + torch.arange(x[..., 0].numel()).view(x.shape[:2]), x.shape[2])),
            Mistake("these are all sines, then all cosines; this exercise uses interleaved "
                    "columns", lambda x, start: x + sinusoidal(
                        torch.arange(start, start + x.shape[1]), x.shape[2], layout="half")),
            Mistake("every position has the code of `start`",
                    lambda x, start: x + sinusoidal(start, x.shape[2])),
        ),
    ),
    Exercise(
        name="shift_matrix",
        cases=shift_cases,
        reference=shift_matrix,
        axes=("row", "column"),
        mistakes=(
            Mistake("it rotates the other way: it gives the code of p - offset (or it multiplies "
                    "from the right)", lambda o, d, b=BASE: shift_matrix(-o, d, b)),
            Mistake("these are the blocks for all sines, then all cosines; this exercise uses "
                    "interleaved columns", shift_in_halves),
            Mistake("these are the blocks for all sines, then all cosines, and it rotates the "
                    "other way", lambda o, d, b=BASE: shift_in_halves(-o, d, b)),
            Mistake("the base is an argument; you use 10000 always",
                    lambda o, d, b=BASE: shift_matrix(o, d, 10000.0)),
            Mistake("all pairs rotate by the same angle; each has its own frequency",
                    lambda o, d, b=BASE: shift_matrix(o, d, 1 + 1e-12)),
            Mistake("the exponent is j/d; it must be 2j/d for pair j",
                    lambda o, d, b=BASE: shift_matrix(o, d, b**0.5)),
            Mistake("the offset is ignored: this is the matrix for one step",
                    lambda o, d, b=BASE: shift_matrix(1, d, b)),
            Mistake("the offset is taken without its sign",
                    lambda o, d, b=BASE: shift_matrix(abs(o), d, b)),
            Mistake("both sines have the same sign, so this is no rotation",
                    lambda o, d, b=BASE: unsigned(shift_matrix(o, d, b))),
            Mistake("sine and cosine are exchanged",
                    lambda o, d, b=BASE: exchanged(o, d, b)),
            Mistake("slow pairs do not rotate; their angles are small, and not zero",
                    lambda o, d, b=BASE: without_small_angles(o, d, b)),
            Mistake("this is the identity: the position is not shifted",
                    lambda o, d, b=BASE: torch.eye(d)),
        ),
    ),
    Exercise(
        name="similarity",
        rests_on=("sinusoidal",),
        cases=similarity_cases,
        reference=similarity,
        axes=("distance",),
        mistakes=(
            Mistake("it is not divided: a code has the squared length dim / 2",
                    lambda d, b, n: similarity(d, b, n) * (d / 2)),
            Mistake("it is divided by dim; a code has the squared length dim / 2",
                    lambda d, b, n: similarity(d, b, n) / 2),
            Mistake("the base is an argument; you use 10000 always",
                    lambda d, b, n: similarity(d, 10000.0, n)),
            Mistake("these are sines of the angles; sin a sin b + cos a cos b is a cosine",
                    lambda d, b, n: angles(n, d, b).sin().mean(-1)),
            Mistake("this is the distance between the codes, not their product",
                    lambda d, b, n: (2 - 2 * similarity(d, b, n)).clamp(min=0).sqrt()),
            Mistake("this is 1/distance: a common belief, and not what the codes do",
                    lambda d, b, n: 1 / (1 + n.abs())),
            Mistake("this is 1/distance: a common belief, and not what the codes do",
                    lambda d, b, n: 1 / n.abs().clamp(min=1)),
            Mistake("it is divided by the first of the values; distance 0 need not be the first, "
                    "nor be there", lambda d, b, n: scaled_by(similarity(d, b, n), "first")),
            Mistake("it is divided by the largest of the values; distance 0 need not be there",
                    lambda d, b, n: scaled_by(similarity(d, b, n), "largest")),
            Mistake("the distances are taken from the first one; use each as it is given",
                    lambda d, b, n: similarity(d, b, n - n[0])),
            Mistake("negative distances are taken as 0",
                    lambda d, b, n: similarity(d, b, n.clamp(min=0))),
            Mistake("every column has its own frequency; a sine and its cosine share one",
                    lambda d, b, n: similarity(2 * d, b, n)),
            Mistake("take the product as it is: it may be negative",
                    lambda d, b, n: similarity(d, b, n).abs()),
            Mistake("the exponent is j/d; it must be 2j/d for pair j",
                    lambda d, b, n: similarity(d, b**0.5, n)),
            Mistake("only the first pair of columns is used",
                    lambda d, b, n: n.double().cos()),
            Mistake("the distances count from 1; distance 0 must give 1",
                    lambda d, b, n: similarity(d, b, n + 1)),
            Mistake("it falls along a straight line: use the codes",
                    lambda d, b, n: 1 - n.abs() / n.abs().max()),
        ),
    ),
)  # fmt: skip


def own_frequencies(positions: Tensor, dim: int, base: float) -> Tensor:
    """The code with a frequency for each column, where each pair should share one."""
    angles = positions.double().unsqueeze(-1) * base ** -(torch.arange(dim).double() / dim)
    return torch.where(torch.arange(dim) % 2 == 0, angles.sin(), angles.cos())


def scaled_by(values: Tensor, which: str) -> Tensor:
    """Divide by the first value or by the largest."""
    return values / (values[0] if which == "first" else values.max())


def unsigned(rotation: Tensor) -> Tensor:
    """Give both sines of each block the sign of the upper one."""
    return rotation.triu() + rotation.triu(1).mT


def without_small_angles(offset: float, dim: int, base: float) -> Tensor:
    """The shift with angles below a thousandth taken for 0."""
    rotation = shift_matrix(offset, dim, base)
    rotation[rotation.abs() < 1e-3] = 0
    return rotation


def exchanged(offset: float, dim: int, base: float) -> Tensor:
    """The shift with sine in the place of cosine."""
    step = offset * frequencies(dim, base)
    rotation = torch.zeros(dim, dim)
    even = torch.arange(0, dim, 2)
    rotation[even, even] = rotation[even + 1, even + 1] = step.sin().float()
    rotation[even, even + 1], rotation[even + 1, even] = step.cos().float(), -step.cos().float()
    return rotation
