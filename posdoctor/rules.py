"""Which rule gave these frequencies? Fits for the rules of published configurations."""

from __future__ import annotations

import math
from dataclasses import dataclass, field

import torch
from torch import Tensor

from pe_lib.rope_scaling import llama3, yarn, yarn_attention_factor
from pe_lib.sinusoidal import frequencies
from posdoctor.tolerances import CLOSE, RECOGNISED, turning

# Bases that published models use: 1-D ones, then those of images and video.
USUAL = (1e4, 2e4, 2.5e4, 4e4, 5e4, 1e5, 1.5e5, 1.6e5, 2e5, 2.5e5, 3e5, 5e5, 6e5, 1e6, 1.5e6, 2e6,
         2.5e6, 3e6, 4e6, 5e6, 8e6, 1e7, 1e8)  # fmt: skip
IMAGE = (100.0, 256.0, 1000.0, 2000.0)
LENGTHS = tuple(2**k for k in range(5, 20))


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


def geometric(inv_freq: Tensor) -> tuple[float, float]:
    """Fit rates[r] = first * base ** (-r / n) to (n >= 2,) positive rates: (base, first)."""
    logs, r = inv_freq.log(), torch.arange(len(inv_freq), dtype=torch.float64)
    slope = float(((r - r.mean()) * logs).sum() / ((r - r.mean()) ** 2).sum())
    first = float((logs.mean() - slope * r.mean()).exp())
    return math.exp(min(-slope * len(inv_freq), 700)), first


def fit_default(inv_freq: Tensor, close: float) -> Rule | None:
    """One geometric series that starts at 1."""
    fitted, _ = geometric(inv_freq)
    # A number that is not round must fit better to be believed.
    for base, bound in ((snapped(fitted, 2 * close), close), (fitted, turning(8))):
        if base > 1 and (error := relative_error(inv_freq, series(len(inv_freq), base))) < bound:
            return Rule("default", base, 1.0, error)
    return None


def fit_linear(inv_freq: Tensor, close: float) -> Rule | None:
    """A geometric series that starts elsewhere: all frequencies over one factor."""
    base, first = geometric(inv_freq)
    base, factor = snapped(base, 2 * close), snapped(1 / first, close)
    if base <= 1:
        return None
    error = relative_error(inv_freq, series(len(inv_freq), base) / factor)
    return Rule("linear", base, factor, error) if error < close else None


def fit_proportional(inv_freq: Tensor, close: float) -> Rule | None:
    """A series over the whole head whose last pairs stand still."""
    moving = int((inv_freq > 0).sum())
    if moving in (len(inv_freq), 0) or bool((inv_freq[:moving] == 0).any()) or moving < 2:
        return None
    ratio = float((inv_freq[0] / inv_freq[moving - 1]).log()) / (moving - 1)
    base = snapped(math.exp(ratio * len(inv_freq)), 10 * close)
    exact = series(len(inv_freq), base)[:moving] if base > 1 else inv_freq[:moving] * 0 + 1
    error = relative_error(inv_freq[:moving], exact)
    share = moving / len(inv_freq)
    return Rule("proportional", base, 1.0, error, {"share": share}) if error < close else None


def fit_ramp(inv_freq: Tensor, close: float) -> Rule | None:
    """Fast pairs as in a series, slow ones over a factor, a ramp between: Llama 3.1 or YaRN."""
    n = len(inv_freq)
    if n < 8 or abs(float(inv_freq[0]) - 1) > close:
        return None
    base = snapped(float((inv_freq[0] / inv_freq[1]) ** n), 10 * close)
    if base <= 1:
        return None
    plain = series(n, base)
    factor = snapped(float(plain[-1] / inv_freq[-1]), 10 * close)
    if factor <= 1 + 10 * close:
        return None
    for length in LENGTHS:
        for name, wanted in (
            ("llama3", llama3(plain, factor, length)),
            ("yarn", yarn(plain, factor, length)),
            ("yarn", yarn(plain, factor, length, truncate=False)),
        ):
            error = relative_error(inv_freq, wanted)
            if error < close:
                return Rule(name, base, factor, error, {"trained length": length})
    return None


def identify(inv_freq: Tensor, close: float = CLOSE) -> Rule:
    """Return the rule behind frequencies (n,) that are not negative, in the pairs' order.

    NTK-aware scaling is a larger base, and position interpolation a slower series: nothing in
    the numbers tells more.
    """
    inv_freq = inv_freq.double()
    if len(inv_freq) < 2:
        return Rule("default" if abs(float(inv_freq[0]) - 1) < close else "unknown")
    found = fit_proportional(inv_freq, close)
    if found is not None:
        return found
    if bool((inv_freq <= 0).any()):
        return Rule("unknown")
    for fit in (fit_default, fit_linear, fit_ramp):
        found = fit(inv_freq, close)
        if found is not None:
            return found
    return Rule("unknown")


def usual(base: float, axes: int = 1) -> bool:
    """Return whether published models use this base."""
    known = USUAL if axes == 1 else USUAL + IMAGE
    return any(abs(base / each - 1) < RECOGNISED for each in known)


def readings_of(base: float, n: int) -> list[str]:
    """Return what else would give a series of this base over n pairs, where a number is round."""
    found = []
    for each in USUAL:
        if abs(math.sqrt(each) / base - 1) < RECOGNISED:
            found.append(f"base {each:g} with the exponent i / d instead of 2i / d")
        if n > 1 and abs(each ** (n / (n - 1)) / base - 1) < RECOGNISED:
            found.append(f"base {each:g} with exponents over d - 2 instead of d")
        for factor in (2, 4, 8, 16, 32):
            if n > 1 and abs(each * factor ** (n / (n - 1)) / base - 1) < RECOGNISED:
                found.append(f"base {each:g} with NTK-aware factor {factor}")
        for wider in (2, 4, 8):
            if abs(each ** (1 / wider) / base - 1) < RECOGNISED:
                found.append(f"base {each:g} with exponents over {wider} times the width")
    return found


def is_yarn_attention_factor(attention_factor: float, factor: float) -> bool:
    """Return whether the gain is YaRN's for this factor."""
    return abs(attention_factor / yarn_attention_factor(factor) - 1) < RECOGNISED
