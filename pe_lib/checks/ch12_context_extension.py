"""Checks of exercise set 12: sequences longer than those of training."""

from __future__ import annotations

import math

import torch
from torch import Tensor

from pe_lib.checks.spec import Case, Draw, Exercise, Mistake
from pe_lib.context_extension import by_parts, ntk_aware, position_interpolation
from pe_lib.rope import rope_angles
from pe_lib.sinusoidal import frequencies


def interpolated_angles(positions: Tensor, dim: int, base: float, factor: float) -> Tensor:
    """Return the angles of position interpolation."""
    return rope_angles(positions, position_interpolation(frequencies(dim, base), factor))


def angle_cases(draw: Draw) -> list[Case]:
    """Positions past the trained ones."""
    n, half, factor = draw.sizes(3, 3, 8)
    return [
        Case(
            f"{n} positions, factor {factor}", (draw.places(n, high=90), 2 * half, 10000.0, factor)
        ),
        Case("a factor that is no integer", (draw.places(n + 1), 2 * half + 2, 500.0, 2.5)),
    ]


def ntk_rates(dim: int, base: float, factor: float) -> Tensor:
    """Return the frequencies of NTK-aware scaling."""
    return ntk_aware(frequencies(dim, base), factor)


def with_base(dim: int, base: float) -> Tensor:
    """Return the frequencies of another base."""
    return frequencies(dim, base)


def rate_cases(draw: Draw) -> list[Case]:
    """Widths, bases and factors."""
    half, factor, other = draw.sizes(3, 4, 9)
    return [
        Case(f"dim {2 * half}, factor {factor}", (2 * half, 100.0, factor)),
        Case(f"dim {2 * other}, factor 2.5", (2 * other, 10.0, 2.5)),
    ]


def mixed_rates(rates: Tensor, factor: float, length: int, low: float, high: float) -> Tensor:
    """Return the frequencies by parts."""
    return by_parts(rates, factor, length, low, high)


def parts_cases(draw: Draw) -> list[Case]:
    """Rates of which some turn often, some seldom, and some in between."""
    half = draw.integer(20, 30)
    return [
        Case("dim 64, base 100, length 512", (frequencies(64, 100.0), 8.0, 512, 1.0, 4.0)),
        Case(f"dim {2 * half}, base 200, length 900",
             (frequencies(2 * half, 200.0), 3.0, 900, 2.0, 40.0)),
    ]  # fmt: skip


def ramp(
    rates: Tensor, factor: float, length: int, low: float, high: float, *,
    turns: float = 2 * math.pi, clamp: bool = True, inverse: bool = False, hard: bool = False,
    log: bool = False,
) -> Tensor:  # fmt: skip
    """Mix with one thing done in another way."""
    rotations = rates * length / turns
    kept = (rotations - low) / (high - low)
    if log:
        kept = (rotations / low).log() / math.log(high / low)
    if clamp:
        kept = kept.clamp(0, 1)
    if hard:
        kept = (kept > 0).double()
    if inverse:
        kept = 1 - kept
    return rates / factor * (1 - kept) + rates * kept


def unturned(dim: int, base: float, length: int) -> Tensor:
    """Return how many pairs make less than one full turn."""
    return (frequencies(dim, base) * length < 2 * math.pi).sum()


def unturned_cases(draw: Draw) -> list[Case]:
    """Sizes of published models, and drawn ones."""
    drawn = [(2 * draw.integer(20, 90), float(10 ** draw.integer(3, 6)), draw.integer(99, 9999))
             for _ in range(8)]  # fmt: skip
    return [
        Case("dim 128, base 10000, length 4096", (128, 10000.0, 4096)),
        Case("dim 128, base 500000, length 8192", (128, 500000.0, 8192)),
        *(Case(f"dim {d}, base {b:g}, length {n}", (d, b, n)) for d, b, n in drawn),
    ]


def count(dim: int, base: float, threshold: float) -> Tensor:
    """Return how many frequencies are below a threshold."""
    return (frequencies(dim, base) < threshold).sum()


EXERCISES = (
    Exercise(
        name="interpolated_angles",
        asks="the angles of RoPE with position interpolation",
        cases=angle_cases,
        reference=interpolated_angles,
        tolerance=1e-6,
        mistakes=(
            Mistake("the positions are multiplied by the factor; they must be squeezed",
                    lambda p, d, b, f: interpolated_angles(p, d, b, 1 / f)),
            Mistake("nothing is interpolated", lambda p, d, b, f: interpolated_angles(p, d, b, 1)),
            Mistake("the positions are divided without a rest; fractions are what is wanted",
                    lambda p, d, b, f: interpolated_angles(p // f, d, b, 1)),
            Mistake("the base is divided; position interpolation leaves it and divides the "
                    "positions", lambda p, d, b, f: interpolated_angles(p, d, b / f, 1)),
            Mistake("the base is multiplied: that is (nearly) NTK-aware scaling",
                    lambda p, d, b, f: interpolated_angles(p, d, b * f, 1)),
            Mistake("this is NTK-aware scaling; the exercise asks for position interpolation",
                    lambda p, d, b, f: rope_angles(p, ntk_rates(d, b, f))),
            Mistake("the exponent is j/d; it must be 2j/d for pair j",
                    lambda p, d, b, f: interpolated_angles(p, d, b**0.5, f)),
            Mistake("you count positions yourself; use those given",
                    lambda p, d, b, f: interpolated_angles(torch.arange(len(p)), d, b, f)),
            Mistake("the positions wrap around; they must be squeezed",
                    lambda p, d, b, f: interpolated_angles(p % f, d, b, 1)),
            Mistake("the base is an argument; you use 10000 always",
                    lambda p, d, b, f: interpolated_angles(p, d, 10000.0, f)),
            Mistake("the positions are divided twice",
                    lambda p, d, b, f: interpolated_angles(p, d, b, f * f)),
            Mistake("the positions are moved back; they must be divided",
                    lambda p, d, b, f: interpolated_angles(p - f, d, b, 1)),
        ),
    ),
    Exercise(
        name="ntk_rates",
        asks="the frequencies of NTK-aware scaling",
        cases=rate_cases,
        reference=ntk_rates,
        mistakes=(
            Mistake("the exponent of the factor is d/(d - 2); yours is 1, so the last pair is not "
                    "slowed down by the whole factor", lambda d, b, f: with_base(d, b * f)),
            Mistake("this is position interpolation: every pair is slowed down alike",
                    lambda d, b, f: with_base(d, b) / f),
            Mistake("nothing is scaled", lambda d, b, f: with_base(d, b)),
            Mistake("the base is divided; it must grow",
                    lambda d, b, f: with_base(d, b) * f ** (
                        torch.arange(d // 2) / (d // 2 - 1))),
            Mistake("the exponent of the factor is d/(d - 2), not (d - 2)/d",
                    lambda d, b, f: with_base(d, b * f ** ((d - 2) / d))),
            Mistake("the exponent of the factor is d/(d - 2), not d/(d - 1)",
                    lambda d, b, f: with_base(d, b * f ** (d / (d - 1)))),
            Mistake("the exponent of the factor is d/(d - 2), not d/2",
                    lambda d, b, f: with_base(d, b * f ** (d / 2))),
            Mistake("the factor is the exponent's business: base * factor ** (d/(d - 2)), not "
                    "(base * factor) ** ...",
                    lambda d, b, f: with_base(d, (b * f) ** (d / (d - 2)))),
            Mistake("the exponent of the frequencies is j/d; it must be 2j/d for pair j",
                    lambda d, b, f: ntk_rates(d, b, f) ** 0.5),
            Mistake("these are wavelengths; wanted are frequencies",
                    lambda d, b, f: 2 * math.pi / ntk_rates(d, b, f)),
            Mistake("these are periods; wanted are frequencies",
                    lambda d, b, f: 1 / ntk_rates(d, b, f)),
            Mistake("the pairs are scaled along a line; it must be geometric",
                    lambda d, b, f: with_base(d, b) / torch.linspace(1, f, d // 2)),
            Mistake("the base is an argument; you use 10000 always",
                    lambda d, b, f: ntk_rates(d, 10000.0, f)),
        ),
    ),
    Exercise(
        name="mixed_rates",
        asks="frequencies of which only the slow ones are interpolated",
        cases=parts_cases,
        reference=mixed_rates,
        mistakes=(
            Mistake("2 pi is missing: `low` and `high` count full turns, not radians",
                    lambda *a: ramp(*a, turns=1.0)),
            Mistake("the fast pairs are interpolated and the slow ones stay: it must be the other "
                    "way round", lambda *a: ramp(*a, inverse=True)),
            Mistake("the mixture is not clamped to the range from 0 to 1",
                    lambda *a: ramp(*a, clamp=False)),
            Mistake("there is no mixture between `low` and `high`: pairs jump",
                    lambda *a: ramp(*a, hard=True)),
            Mistake("everything is interpolated", lambda r, f, n, lo, hi: r / f),
            Mistake("nothing is interpolated", lambda r, f, n, lo, hi: r),
            Mistake("the slow pairs are multiplied by the factor",
                    lambda r, f, n, lo, hi: ramp(r, 1 / f, n, lo, hi)),
            Mistake("the ramp runs along the logarithm; it must run along the number of turns",
                    lambda *a: ramp(*a, log=True)),
            Mistake("`low` is taken for 0", lambda r, f, n, lo, hi: ramp(r, f, n, 0.0, hi)),
            Mistake("the number of turns is counted over the new length, not the trained one",
                    lambda r, f, n, lo, hi: ramp(r, f, int(n * f), lo, hi)),
            Mistake("pi in place of 2 pi: a full turn is 2 pi",
                    lambda *a: ramp(*a, turns=math.pi)),
            Mistake("the wavelengths are mixed; mix the frequencies",
                    lambda r, f, n, lo, hi: 1 / (
                        ramp(1 / r, 1 / f, n, 0, 1) * 0 + f / r * (1 - (k := (
                            (r * n / (2 * math.pi) - lo) / (hi - lo)).clamp(0, 1))) + k / r)),
        ),
    ),
    Exercise(
        name="unturned",
        asks="how many pairs make less than one full turn over the trained length",
        cases=unturned_cases,
        reference=unturned,
        mistakes=(
            Mistake("2 pi is missing: a full turn is 2 pi radians",
                    lambda d, b, n: count(d, b, 1 / n)),
            Mistake("these are the pairs that do make a full turn",
                    lambda d, b, n: d // 2 - unturned(d, b, n)),
            Mistake("you count columns; each pair has two", lambda d, b, n: 2 * unturned(d, b, n)),
            Mistake("a full turn is 2 pi, not pi", lambda d, b, n: count(d, b, math.pi / n)),
            Mistake("the exponent is j/d; it must be 2j/d for pair j",
                    lambda d, b, n: unturned(d, b**0.5, n)),
            Mistake("the base is an argument; you use 10000 always",
                    lambda d, b, n: unturned(d, 10000.0, n)),
            Mistake("this is a share; wanted is a number of pairs",
                    lambda d, b, n: unturned(d, b, n) / (d // 2)),
            Mistake("one pair too many", lambda d, b, n: unturned(d, b, n) + 1),
            Mistake("one pair too few", lambda d, b, n: unturned(d, b, n) - 1),
            Mistake("2 pi is on the wrong side",
                    lambda d, b, n: count(d, b, 1 / (2 * math.pi * n))),
        ),
    ),
)  # fmt: skip
