"""Checks of exercise set 12: sequences longer than those of training."""

from __future__ import annotations

import math

import torch
from torch import Tensor

from exercises.checks.spec import Case, Draw, Exercise, Mistake
from pe_lib.context_extension import by_parts, ntk_aware, position_interpolation
from pe_lib.rope import rope_angles
from pe_lib.sinusoidal import frequencies

# How near to a full turn rounding could decide, on whichever way it is computed.
ROUNDED = 1e-5


def interpolated_angles(positions: Tensor, dim: int, base: float, factor: float) -> Tensor:
    """Return the angles of position interpolation."""
    return rope_angles(positions, position_interpolation(frequencies(dim, base), factor))


def angle_cases(draw: Draw) -> list[Case]:
    """Positions near the start, past the trained ones, and far past them."""
    n, half, factor = draw.sizes(3, 3, 8)
    near = torch.cat([torch.arange(3), draw.places(n, high=90)])
    calls = ((near, 2 * half, 10000.0, factor), (draw.places(n + 1), 2 * half + 2, 500.0, 2.5),
             (draw.places(n) * 1000 + 70_007, 2 * half + 4, 20000.0, 16),
             (draw.places(n), 256, 10000.0, 1), (-draw.places(n) / 4, 4, 500.0, 1.5))  # fmt: skip
    words = ("near", "other", "far", "untouched", "negative")
    return [
        Case(f"{word} positions {p.tolist()}, dim {d}, base {b:g}, factor {f}", (p, d, b, f))
        for word, (p, d, b, f) in zip(words, calls, strict=True)
    ]


def ntk_rates(dim: int, base: float, factor: float) -> Tensor:
    """Return the frequencies of NTK-aware scaling."""
    return ntk_aware(frequencies(dim, base), factor)


def with_base(dim: int, base: float) -> Tensor:
    """Return the frequencies of another base."""
    return frequencies(dim, base)


def rate_cases(draw: Draw) -> list[Case]:
    """Widths from the least to that of wide heads, small bases and large ones, and factors."""
    half, factor, other = draw.sizes(3, 4, 9)
    calls = (
        ("a narrow head", 2 * half, 100.0, factor), ("another", 2 * other, 10.0, 2.5),
        ("the least width", 4, 50.0, 3), ("a wide head", 256, 500000.0, 32.0 + factor),
    )  # fmt: skip
    return [Case(f"{words}, dim {d}, base {b:g}, factor {f}", (d, b, f))
            for words, d, b, f in calls]  # fmt: skip


def mixed_rates(rates: Tensor, factor: float, length: int, low: float, high: float) -> Tensor:
    """Return the frequencies by parts."""
    return by_parts(rates, factor, length, low, high)


def parts_cases(draw: Draw) -> list[Case]:
    """Rates of which some make many turns, some few, some a number in between; in two orders.

    The bounds are whole numbers, or not; the lower one may be less than a turn.
    """
    half, low = draw.integer(20, 30), draw.integer(4, 9) / 10
    factor, length = draw.integer(2, 9) + 0.5, draw.integer(200, 400)
    high = draw.integer(5, 20) + 0.6
    rising = frequencies(2 * half, 300.0).flip(0)
    words = f"length {length}, factor {factor}, low {low:g} and high {high:g}"
    return [
        Case("the rates of dim 64 and base 100, whole bounds, length 512, factor 8, low 1, high 4",
             (frequencies(64, 100.0), 8.0, 512, 1.0, 4.0)),
        Case(f"the rates of dim {2 * half} and base 300, slowest first, bounds that are no whole "
             f"numbers, {words}",
             (rising, factor, length, low, high)),
    ]  # fmt: skip


def shares(turns: Tensor, low: float, high: float, rule: str) -> Tensor:
    """Return the share of the old frequency, not clamped, by a right or a wrong rule."""
    if rule == "step":
        return (turns > low).double()
    if rule == "log":
        return (turns / low).log() / math.log(high / low)
    if rule == "period":
        return (1 / low - 1 / turns) / (1 / low - 1 / high)
    return (turns - low) / (high if rule == "high" else high - low)


def ramp(
    rates: Tensor, factor: float, length: float, low: float, high: float, *,
    circle: float = 2 * math.pi, clamp: tuple[float, float] = (0, 1), inverse: bool = False,
    share: str = "linear",
) -> Tensor:  # fmt: skip
    """Mix with one thing done in another way."""
    rotations = rates * length / circle
    kept = shares(rotations, low, high, share).clamp(*clamp)
    if inverse:
        kept = 1 - kept
    return rates / factor * (1 - kept) + rates * kept


def mixed_otherwise(
    rates: Tensor, factor: float, length: int, low: float, high: float, *, geometric: bool
) -> Tensor:
    """Mix the logarithms of the frequencies, or their wavelengths."""
    kept = ((rates * length / (2 * math.pi) - low) / (high - low)).clamp(0, 1)
    return rates * factor ** (kept - 1) if geometric else rates / (kept + (1 - kept) * factor)


def incomplete_pairs(dim: int, base: float, length: int) -> Tensor:
    """Return how many pairs make less than one full turn."""
    return (frequencies(dim, base) * length < 2 * math.pi).sum()


def incomplete_pairs_cases(draw: Draw) -> list[Case]:
    """Sizes of published models, drawn ones, and some where one pair makes just a turn, or almost.

    With a length of 7 the fastest pair has made its turn, with one of 6 it has not; over 6282 a
    pair of frequency 1/1000 falls short of 2 pi, and reaches 6.28. A pair of frequency 1/10000
    falls short over 62831, and reaches 6.283; over 62850 it has passed 2 pi, and not 44/7. One of
    frequency 1/3 has made its turn over 19, and not over half a token less.
    """
    drawn: list[tuple[int, float, int]] = []
    while len(drawn) < 8:
        sizes = 2 * draw.integer(20, 90), float(10 ** draw.integer(3, 6)), draw.integer(99, 9999)
        turns = frequencies(*sizes[:2]) * sizes[2] / (2 * math.pi)
        if bool(((turns - 1).abs() > ROUNDED).all()):
            drawn.append(sizes)
    return [
        *(Case(f"{words}: dim {d}, base {b:g}, length {n}", (d, b, n)) for words, d, b, n in (
            ("a published model", 128, 1e4, 4096), ("a published model", 128, 5e5, 8192),
            ("a wide head", 256, 1e6, 8192), ("all pairs making a turn", 64, 100.0, 4096),
            *(("a very short text", 32, 1e4, n) for n in (5, 6, 7)),
            ("one pair making almost a turn", 4, 1e6, 6282),
            ("one pair making almost a turn", 4, 1e8, 62831),
            ("one pair making just a turn", 4, 1e8, 62850),
            ("one pair making just a turn", 4, 9.0, 19), ("a single pair", 2, 1e4, 2048),
            *(("drawn numbers", *sizes) for sizes in drawn),
        )),
    ]  # fmt: skip


def count(dim: int, base: float, threshold: float) -> Tensor:
    """Return how many frequencies are below a threshold."""
    return (frequencies(dim, base) < threshold).sum()


EXERCISES = (
    Exercise(
        name="interpolated_angles",
        cases=angle_cases,
        reference=interpolated_angles,
        axes=("position", "pair"),
        tolerance=1e-6,
        mistakes=(
            Mistake("the positions are multiplied by the factor; they must be squeezed",
                    lambda p, d, b, f: interpolated_angles(p, d, b, 1 / f)),
            Mistake("nothing is interpolated", lambda p, d, b, f: interpolated_angles(p, d, b, 1)),
            Mistake("the positions are rounded down by //; fractions are what is wanted",
                    lambda p, d, b, f: interpolated_angles(p // f, d, b, 1)),
            Mistake("the squeezed positions are rounded; fractions are what is wanted",
                    lambda p, d, b, f: interpolated_angles((p / f).round(), d, b, 1)),
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
            Mistake("only positions past the trained length are squeezed; all of them must be, or "
                    "neighbours come to lie on top of each other",
                    lambda p, d, b, f: torch.where(
                        (p > p.max() / f)[:, None], interpolated_angles(p, d, b, f),
                        interpolated_angles(p, d, b, 1))),
            Mistake("the positions are divided twice",
                    lambda p, d, b, f: interpolated_angles(p, d, b, f * f)),
            Mistake("the positions are moved back; they must be divided",
                    lambda p, d, b, f: interpolated_angles(p - f, d, b, 1)),
        ),
    ),
    Exercise(
        name="ntk_rates",
        cases=rate_cases,
        reference=ntk_rates,
        tolerance=1e-6,
        axes=("pair",),
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
            Mistake("only the factor is raised to the power d/(d - 2), not the product of base and "
                    "factor",
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
        cases=parts_cases,
        reference=mixed_rates,
        tolerance=1e-6,
        axes=("pair",),
        mistakes=(
            Mistake("this is what the listing returns: nothing is mended yet",
                    lambda *a: ramp(*a, circle=1.0, inverse=True)),
            Mistake("2 pi is missing: `low` and `high` count full turns, not radians",
                    lambda *a: ramp(*a, circle=1.0)),
            Mistake("the fast pairs are interpolated and the slow ones stay: it must be the other "
                    "way round", lambda *a: ramp(*a, inverse=True)),
            Mistake("the mixture is not clamped to the range from 0 to 1",
                    lambda *a: ramp(*a, clamp=(-math.inf, math.inf))),
            Mistake("the mixture is not clamped at 0: pairs with fewer turns than `low` become "
                    "slower than the factor makes them", lambda *a: ramp(*a, clamp=(-math.inf, 1))),
            Mistake("the mixture is not clamped at 1: pairs with more turns than `high` become "
                    "faster than they were", lambda *a: ramp(*a, clamp=(0, math.inf))),
            Mistake("there is no mixture between `low` and `high`: pairs jump",
                    lambda *a: ramp(*a, share="step")),
            Mistake("everything is interpolated", lambda r, f, n, lo, hi: r / f),
            Mistake("nothing is interpolated", lambda r, f, n, lo, hi: r),
            Mistake("the slow pairs are multiplied by the factor",
                    lambda r, f, n, lo, hi: ramp(r, 1 / f, n, lo, hi)),
            Mistake("the ramp runs along the logarithm; it must run along the number of turns",
                    lambda *a: ramp(*a, share="log")),
            Mistake("the ramp runs along the wavelength; it must run along the number of turns",
                    lambda *a: ramp(*a, share="period")),
            Mistake("the share of the old frequency does not reach 1 at `high`",
                    lambda *a: ramp(*a, share="high")),
            Mistake("`low` is taken for 0", lambda r, f, n, lo, hi: ramp(r, f, n, 0.0, hi)),
            Mistake("the number of turns is counted over the new length, not the trained one",
                    lambda r, f, n, lo, hi: ramp(r, f, n * f, lo, hi)),
            Mistake("pi in place of 2 pi: a full turn is 2 pi",
                    lambda *a: ramp(*a, circle=math.pi)),
            Mistake("the wavelengths are mixed; mix the frequencies",
                    lambda *a: mixed_otherwise(*a, geometric=False)),
            Mistake("the mixture is geometric; mix the frequencies themselves, linearly",
                    lambda *a: mixed_otherwise(*a, geometric=True)),
        ),
    ),
    Exercise(
        name="incomplete_pairs",
        cases=incomplete_pairs_cases,
        reference=incomplete_pairs,
        mistakes=(
            Mistake("2 pi is missing: a full turn is 2 pi radians",
                    lambda d, b, n: count(d, b, 1 / n)),
            Mistake("these are the pairs that do make a full turn",
                    lambda d, b, n: d // 2 - incomplete_pairs(d, b, n)),
            Mistake("you count components; each pair has two",
                    lambda d, b, n: 2 * incomplete_pairs(d, b, n)),
            Mistake("a full turn is 2 pi, not pi", lambda d, b, n: count(d, b, math.pi / n)),
            Mistake("the exponent is j/d; it must be 2j/d for pair j",
                    lambda d, b, n: incomplete_pairs(d, b**0.5, n)),
            Mistake("the base is an argument; you use 10000 always",
                    lambda d, b, n: incomplete_pairs(d, 10000.0, n)),
            Mistake("this is a share; wanted is a number of pairs",
                    lambda d, b, n: incomplete_pairs(d, b, n) / (d // 2)),
            Mistake("one pair too many", lambda d, b, n: incomplete_pairs(d, b, n) + 1),
            Mistake("one pair too few", lambda d, b, n: incomplete_pairs(d, b, n) - 1),
            Mistake("you count to the last position, length - 1; the exercise counts the whole "
                    "length", lambda d, b, n: count(d, b, 2 * math.pi / (n - 1))),
            Mistake("2 pi is on the wrong side",
                    lambda d, b, n: count(d, b, 1 / (2 * math.pi * n))),
        ),
    ),
)  # fmt: skip
