"""Checks of exercise set 2: sinusoidal codes."""

from __future__ import annotations

import math

import torch
from torch import Tensor

from pe_lib.checks.spec import Case, Draw, Exercise, Mistake
from pe_lib.sinusoidal import arrange, frequencies, sinusoidal


def code_of(angles: Tensor, layout: str = "interleaved") -> Tensor:
    """Return the code for angles (..., dim / 2)."""
    return arrange(angles.sin(), angles.cos(), layout).float()


def angles(positions: Tensor, dim: int, base: float) -> Tensor:
    """Return position times frequency, (..., dim / 2)."""
    return positions.double().unsqueeze(-1) * frequencies(dim, base)


def other_exponent(positions: Tensor, exponents: Tensor, base: float) -> Tensor:
    """Return the code with frequencies base ** -exponents."""
    return code_of(positions.double().unsqueeze(-1) * float(base) ** -exponents)


def sinusoidal_cases(draw: Draw) -> list[Case]:
    """Positions in a row, in a batch, and fractions."""
    batch, length, half = draw.sizes(3, 4, 9)
    return [
        Case(f"{length} positions, dim {2 * half}, base 100",
             (draw.places(length), 2 * half, 100.0)),
        Case(f"positions of shape {(batch, length)}, dim {2 * half}, base 10000",
             (draw.places(batch, length), 2 * half, 10000.0)),
        Case("positions that are fractions", (draw.places(7) / 4, 12, 10000.0)),
    ]  # fmt: skip


def counted(positions: Tensor, start: int = 0) -> Tensor:
    """Return start, start + 1, ... in place of the positions given."""
    return torch.arange(start, start + positions.shape[-1]).expand(positions.shape)


def batch_counted(positions: Tensor) -> Tensor:
    """Return the index on the first axis in place of the positions given."""
    first = torch.arange(len(positions))
    return first.view(-1, *[1] * (positions.ndim - 1)).expand(positions.shape)


def add_positions(x: Tensor, start: int, base: float = 10000.0) -> Tensor:
    """Add the codes of start, start + 1, ... to x (B, L, D)."""
    return x + sinusoidal(torch.arange(start, start + x.shape[1]), x.shape[2], base)


def add_cases(draw: Draw) -> list[Case]:
    """Sequences that start at 0, and later."""
    batch, length, half = draw.sizes(3, 3, 8)
    start = draw.integer(11, 40)
    return [
        Case("a sequence that starts at position 0", (draw.normal(batch, length, 2 * half), 0)),
        Case(f"a sequence that starts at position {start}",
             (draw.normal(length, batch, 2 * half), start)),
    ]  # fmt: skip


def by_batch(x: Tensor, start: int) -> Tensor:
    """Add a code for each sequence, where one for each position is wanted."""
    return x + sinusoidal(torch.arange(start, start + x.shape[0]), x.shape[2])[:, None]


def shift_matrix(offset: float, dim: int, base: float) -> Tensor:
    """Return the matrix that turns the code of p into the code of p + offset."""
    turn = torch.zeros(dim, dim)
    step = offset * frequencies(dim, base)
    even = torch.arange(0, dim, 2)
    turn[even, even] = turn[even + 1, even + 1] = step.cos().float()
    turn[even, even + 1], turn[even + 1, even] = step.sin().float(), -step.sin().float()
    return turn


def shift_in_halves(offset: float, dim: int, base: float) -> Tensor:
    """The same for codes with all sines first."""
    order = torch.cat([torch.arange(0, dim, 2), torch.arange(1, dim, 2)])
    return shift_matrix(offset, dim, base)[order][:, order]


def shift_cases(draw: Draw) -> list[Case]:
    """Offsets forward and back."""
    dim, other = (2 * half for half in draw.sizes(2, 3, 8))
    ahead, back = draw.integer(2, 9), -draw.integer(2, 9)
    return [
        Case("an offset forward", (ahead, dim, 100.0)),
        Case("an offset back", (back, other, 10000.0)),
    ]


def similarity(dim: int, base: float, distances: Tensor) -> Tensor:
    """Return the mean over pairs of columns of cos(w d)."""
    return angles(distances, dim, base).cos().mean(-1).float()


def similarity_cases(draw: Draw) -> list[Case]:
    """Some distances, zero and negative ones among them."""
    half, count = draw.sizes(2, 4, 9)
    distances = torch.cat([torch.zeros(1), draw.places(count), -draw.places(2)]).long()
    return [
        Case(f"{count + 3} distances, dim {2 * half}, base {base:g}", (2 * half, base, distances))
        for base in (100.0, 10000.0)
    ]


EXERCISES = (
    Exercise(
        name="sinusoidal",
        asks="the sinusoidal code of positions of any shape",
        cases=sinusoidal_cases,
        reference=sinusoidal,
        mistakes=(
            Mistake("the base is an argument; you use 10000 always",
                    lambda p, d, b: sinusoidal(p, d)),
            Mistake("the exponent is j/d; it must be 2j/d for pair j",
                    lambda p, d, b: other_exponent(p, torch.arange(d // 2) / d, b)),
            Mistake("the exponent is 4j/d: 2j is already the index of the column",
                    lambda p, d, b: other_exponent(p, 4 * torch.arange(d // 2) / d, b)),
            Mistake("the exponents run to 1; they stop at (d - 2)/d",
                    lambda p, d, b: other_exponent(p, torch.linspace(0, 1, d // 2), b)),
            Mistake("the pairs are counted from 1; the first frequency is 1 (j = 0)",
                    lambda p, d, b: other_exponent(p, 2 * torch.arange(1, d // 2 + 1) / d, b)),
            Mistake("sine and cosine are swapped: the even columns are sines",
                    lambda p, d, b: code_of(angles(p, d, b)).unflatten(-1, (-1, 2)).flip(-1)
                    .flatten(-2)),
            Mistake("these are all sines, then all cosines: legal, but this exercise asks for "
                    "interleaved columns",
                    lambda p, d, b: sinusoidal(p, d, b, layout="halves")),
            Mistake("your positions start at 1: you add one to each",
                    lambda p, d, b: sinusoidal(p + 1, d, b)),
            Mistake("you count 0, 1, 2, ... yourself; use the positions that are given",
                    lambda p, d, b: sinusoidal(counted(p), d, b)),
            Mistake("your positions start at 1, and you count them yourself; use those given",
                    lambda p, d, b: sinusoidal(counted(p, 1), d, b)),
            Mistake("your positions come from the batch axis: each sequence has one code",
                    lambda p, d, b: sinusoidal(batch_counted(p), d, b)),
            Mistake("the frequencies grow: the exponent needs a minus sign (or divide)",
                    lambda p, d, b: other_exponent(p, -2 * torch.arange(d // 2) / d, b)),
            Mistake("every column has its own frequency; a sine and its cosine share one",
                    lambda p, d, b: own_frequencies(p, d, b)),
            Mistake("the sign of the angles is flipped: the sines are negative",
                    lambda p, d, b: code_of(-angles(p, d, b))),
            Mistake("the angles are in radians; do not convert them from degrees",
                    lambda p, d, b: code_of(angles(p, d, b) * math.pi / 180)),
        ),
    ),
    Exercise(
        name="add_positions",
        asks="x plus the codes of the positions start, start + 1, ...",
        cases=add_cases,
        reference=add_positions,
        mistakes=(
            Mistake("your positions come from the batch axis: x.shape[0] counts sequences, and "
                    "each token of a sequence gets the same vector", by_batch),
            Mistake("your positions come from the batch axis, and `start` is ignored",
                    lambda x, start: by_batch(x, 0)),
            Mistake("`start` is ignored: the offset of a sequence that goes on is lost",
                    lambda x, start: add_positions(x, 0)),
            Mistake("your positions start at 1: they must begin at `start` itself",
                    lambda x, start: add_positions(x, start + 1)),
            Mistake("x is multiplied by sqrt(D); this exercise leaves it as it is",
                    lambda x, start: add_positions(x * x.shape[2] ** 0.5, start)),
            Mistake("the code is multiplied with x; it must be added",
                    lambda x, start: x * add_positions(x * 0, start)),
            Mistake("the code is returned without x",
                    lambda x, start: add_positions(x * 0, start)),
            Mistake("the code is subtracted; it must be added",
                    lambda x, start: 2 * x - add_positions(x, start)),
            Mistake("the offset counts backwards: start - 1, start - 2, ...",
                    lambda x, start: x + sinusoidal(start - torch.arange(x.shape[1]), x.shape[2])),
            Mistake("`start` stretches the positions; it must be added to them",
                    lambda x, start: x + sinusoidal(start * torch.arange(x.shape[1]), x.shape[2])),
            Mistake("every position has the code of `start`",
                    lambda x, start: x + sinusoidal(start, x.shape[2])),
        ),
    ),
    Exercise(
        name="shift_matrix",
        asks="the matrix M with code(p + offset) = M code(p)",
        cases=shift_cases,
        reference=shift_matrix,
        mistakes=(
            Mistake("it turns the other way: it gives the code of p - offset (or it multiplies "
                    "from the right)", lambda o, d, b: shift_matrix(-o, d, b)),
            Mistake("these are the blocks for all sines, then all cosines; this exercise uses "
                    "interleaved columns", shift_in_halves),
            Mistake("these are the blocks for all sines, then all cosines, and it turns the other "
                    "way", lambda o, d, b: shift_in_halves(-o, d, b)),
            Mistake("the base is an argument; you use 10000 always",
                    lambda o, d, b: shift_matrix(o, d, 10000.0)),
            Mistake("all pairs turn by the same angle; each has its own frequency",
                    lambda o, d, b: shift_matrix(o, d, 1 + 1e-12)),
            Mistake("the exponent is j/d; it must be 2j/d for pair j",
                    lambda o, d, b: shift_matrix(o, d, b**0.5)),
            Mistake("the offset is ignored: this is the matrix for one step",
                    lambda o, d, b: shift_matrix(1, d, b)),
            Mistake("the offset is taken without its sign",
                    lambda o, d, b: shift_matrix(abs(o), d, b)),
            Mistake("both sines have the same sign, so this is no rotation",
                    lambda o, d, b: unsigned(shift_matrix(o, d, b))),
            Mistake("sine and cosine are exchanged",
                    lambda o, d, b: exchanged(o, d, b)),
            Mistake("this is the identity: the position is not shifted",
                    lambda o, d, b: torch.eye(d)),
        ),
    ),
    Exercise(
        name="similarity",
        asks="the dot product of two codes by their distance, 1 at distance 0",
        cases=similarity_cases,
        reference=similarity,
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
    turns = positions.double().unsqueeze(-1) * base ** -(torch.arange(dim).double() / dim)
    return torch.where(torch.arange(dim) % 2 == 0, turns.sin(), turns.cos())


def unsigned(turn: Tensor) -> Tensor:
    """Give both sines of each block the sign of the upper one."""
    return turn.triu() + turn.triu(1).mT


def exchanged(offset: float, dim: int, base: float) -> Tensor:
    """The shift with sine in the place of cosine."""
    step = offset * frequencies(dim, base)
    turn = torch.zeros(dim, dim)
    even = torch.arange(0, dim, 2)
    turn[even, even] = turn[even + 1, even + 1] = step.sin().float()
    turn[even, even + 1], turn[even + 1, even] = step.cos().float(), -step.cos().float()
    return turn
