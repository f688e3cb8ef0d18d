"""Which rule gave these frequencies? Fits for the rules of published configurations."""

from __future__ import annotations

import math
from dataclasses import dataclass, field

import torch
from torch import Tensor

from pe_lib.context_extension import llama3, yarn, yarn_gain
from pe_lib.sinusoidal import frequencies

# Bases that published models use: 1-D ones, then those of images and video.
USUAL = (1e4, 2e4, 2.5e4, 4e4, 5e4, 1e5, 1.5e5, 1.6e5, 2e5, 2.5e5, 3e5, 5e5, 6e5, 1e6, 1.5e6, 2e6,
         2.5e6, 3e6, 4e6, 5e6, 8e6, 1e7, 1e8)  # fmt: skip
IMAGE = (100.0, 256.0, 1000.0, 2000.0)
LENGTHS = tuple(2**k for k in range(5, 20))
CLOSE = 2e-4  # relative error of frequencies that count as equal


@dataclass(frozen=True)
class Rule:
    """A rule that gives the frequencies, as far as these can tell it.

    Attributes:
        name: "default", "linear", "llama3", "yarn", "proportional" or "unknown".
        base: of the geometric series behind it; 0 if unknown.
        factor: by which the slowest pairs are slowed down.
        error: largest relative error of its frequencies.
        details: what else was fitted, or what else would give the same.
    """

    name: str
    base: float = 0.0
    factor: float = 1.0
    error: float = 0.0
    details: dict[str, float] = field(default_factory=dict)

    def __str__(self) -> str:
        """Return the rule in words."""
        if self.name == "unknown":
            return "no known rule"
        parts = [f"base {self.base:g}"] if self.base else []
        parts += [f"factor {self.factor:g}"] if self.factor != 1 else []
        parts += [f"{key} {value:g}" for key, value in self.details.items()]
        return f"{self.name} ({', '.join(parts)})"


def series(n: int, base: float) -> Tensor:
    """Return the n frequencies of a head of width 2n, float64."""
    return frequencies(2 * n, base)


def snapped(value: float, tolerance: float = CLOSE) -> float:
    """Return the round number next to a fitted one, if it is close; else the number."""
    for digits in (1, 2, 3, 4):
        size = 10 ** (math.floor(math.log10(abs(value))) + 1 - digits)
        rounded = round(value / size) * size
        if abs(rounded / value - 1) < tolerance:
            return float(f"{rounded:.10g}")
    return value


def relative_error(measured: Tensor, exact: Tensor) -> float:
    """Return the largest error of measured frequencies, relative to the exact ones."""
    return float(((measured - exact).abs() / exact.abs().clamp(min=1e-12)).max())


def geometric(rates: Tensor) -> tuple[float, float]:
    """Fit rates[r] = first * base ** (-r / n) to (n >= 2,) positive rates: (base, first)."""
    logs, r = rates.log(), torch.arange(len(rates), dtype=torch.float64)
    slope = float(((r - r.mean()) * logs).sum() / ((r - r.mean()) ** 2).sum())
    first = float((logs.mean() - slope * r.mean()).exp())
    return math.exp(min(-slope * len(rates), 700)), first


def fit_default(rates: Tensor, close: float) -> Rule | None:
    """One geometric series that starts at 1."""
    base, _ = geometric(rates)
    base = snapped(base, 2 * close)
    exact = series(len(rates), base) if base > 1 else torch.ones_like(rates)
    error = relative_error(rates, exact)
    return Rule("default", base, 1.0, error) if error < close and base > 1 else None


def fit_linear(rates: Tensor, close: float) -> Rule | None:
    """A geometric series that starts elsewhere: all frequencies over one factor."""
    base, first = geometric(rates)
    base, factor = snapped(base, 2 * close), snapped(1 / first, close)
    if base <= 1:
        return None
    error = relative_error(rates, series(len(rates), base) / factor)
    return Rule("linear", base, factor, error) if error < close else None


def fit_proportional(rates: Tensor, close: float) -> Rule | None:
    """A series over the whole head whose last pairs stand still."""
    moving = int((rates > 0).sum())
    if moving in (len(rates), 0) or bool((rates[:moving] == 0).any()) or moving < 2:
        return None
    ratio = float((rates[0] / rates[moving - 1]).log()) / (moving - 1)
    base = snapped(math.exp(ratio * len(rates)), 10 * close)
    exact = series(len(rates), base)[:moving] if base > 1 else rates[:moving] * 0 + 1
    error = relative_error(rates[:moving], exact)
    share = moving / len(rates)
    return Rule("proportional", base, 1.0, error, {"share": share}) if error < close else None


def fit_ramp(rates: Tensor, close: float) -> Rule | None:
    """Fast pairs as in a series, slow ones over a factor, a ramp between: Llama 3.1 or YaRN."""
    n = len(rates)
    if n < 8 or abs(float(rates[0]) - 1) > close:
        return None
    base = snapped(float((rates[0] / rates[1]) ** n), 10 * close)
    if base <= 1:
        return None
    plain = series(n, base)
    factor = snapped(float(plain[-1] / rates[-1]), 10 * close)
    if factor <= 1 + 10 * close:
        return None
    for length in LENGTHS:
        for name, wanted in (
            ("llama3", llama3(plain, factor, length)),
            ("yarn", yarn(plain, factor, length)),
            ("yarn", yarn(plain, factor, length, truncate=False)),
        ):
            error = relative_error(rates, wanted)
            if error < close:
                return Rule(name, base, factor, error, {"trained length": length})
    return None


def identify(rates: Tensor, close: float = CLOSE) -> Rule:
    """Return the rule behind frequencies (n,) that are not negative, in the pairs' order.

    NTK-aware scaling is a larger base, and position interpolation a slower series: nothing in
    the numbers tells more.
    """
    rates = rates.double()
    if len(rates) < 2:
        return Rule("default" if abs(float(rates[0]) - 1) < close else "unknown")
    found = fit_proportional(rates, close)
    if found is not None:
        return found
    if bool((rates <= 0).any()):
        return Rule("unknown")
    for fit in (fit_default, fit_linear, fit_ramp):
        found = fit(rates, close)
        if found is not None:
            return found
    return Rule("unknown")


def usual(base: float, axes: int = 1) -> bool:
    """Return whether published models use this base."""
    known = USUAL if axes == 1 else USUAL + IMAGE
    return any(abs(base / each - 1) < 1e-3 for each in known)


def readings_of(base: float, n: int) -> list[str]:
    """Return what else would give a series of this base over n pairs, where a number is round."""
    found = []
    for each in USUAL:
        if abs(math.sqrt(each) / base - 1) < 1e-3:
            found.append(f"base {each:g} with the exponent i / d instead of 2i / d")
        if n > 1 and abs(each ** (n / (n - 1)) / base - 1) < 1e-3:
            found.append(f"base {each:g} with exponents over d - 2 instead of d")
        for factor in (2, 4, 8, 16, 32):
            if n > 1 and abs(each * factor ** (n / (n - 1)) / base - 1) < 1e-3:
                found.append(f"base {each:g} with NTK-aware factor {factor}")
        for wider in (2, 4, 8):
            if abs(each ** (1 / wider) / base - 1) < 1e-3:
                found.append(f"base {each:g} with exponents over {wider} times the width")
    return found


def is_yarn_gain(gain: float, factor: float) -> bool:
    """Return whether the gain is YaRN's for this factor."""
    return abs(gain / yarn_gain(factor) - 1) < 1e-3
