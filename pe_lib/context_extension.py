"""RoPE beyond the length it was trained on: change the frequencies (chapter 13).

Every method is a function from frequencies to frequencies, (n,) -> (n,), for
`RoPE(..., rates=...)`; two of them look at the length of the sequence and are modules.
"""

import math
from typing import Any

import torch
from torch import Tensor

from pe_lib.encoding import to_float64
from pe_lib.rope import RoPE, rope_angles


def position_interpolation(rates: Tensor, factor: float) -> Tensor:
    """Slow every pair down: position p then gets the angles that p / factor had.

    Args:
        rates: (n,) frequencies in radians per position.
        factor: new length over trained length.

    Returns:
        (n,): rates / factor.

    Source: Chen et al. 2023, equation 4.
    """
    return rates / factor


def ntk_aware(rates: Tensor, factor: float | Tensor) -> Tensor:
    """Slow the last pair down by `factor`, the first not at all, those between geometrically.

    The same as a larger base: base * factor ** (d / (d - 2)).

    Args:
        rates: (n >= 2,) frequencies, in descending order.
        factor: new length over trained length, a number or a tensor ().

    Returns:
        (n,): rates[j] * factor ** (-j / (n - 1)).

    Source: bloc97 2023; Peng et al. 2024, definition 1.
    """
    if len(rates) < 2:
        raise ValueError(f"rates must be at least two frequencies, got {rates}")
    share = torch.arange(len(rates), dtype=rates.dtype, device=rates.device) / (len(rates) - 1)
    return rates * factor**-share


def dynamic_ntk(rates: Tensor, factor: float, trained_length: int, length: int | Tensor) -> Tensor:
    """Return `ntk_aware` for the length at hand; the trained rates up to the trained length.

    Args:
        rates: (n >= 2,) frequencies.
        factor: how fast the stretch grows past the trained length, at least 1, which stretches by
            length / trained_length exactly.
        trained_length: positions seen in training.
        length: positions in this sequence, a number or a tensor ().

    Returns:
        (n,): rates stretched by factor * length / trained_length - (factor - 1). Up to the
        trained length it is `rates` itself.

    Source: emozilla 2023; Peng et al. 2024, section 3.3, whose factor is 1.
    """
    if factor < 1:
        raise ValueError(f"factor must be at least 1, new length over trained length, got {factor}")
    # Up to the trained length the stretch is 1, and the rates are what they were.
    share = to_float64(torch.as_tensor(length)) / trained_length
    stretch = (factor * share - (factor - 1)).clamp(min=1)
    return ntk_aware(rates.to(stretch.device), stretch.to(rates.dtype))


def by_parts(rates: Tensor, factor: float, trained_length: int, low: float, high: float) -> Tensor:
    """Slow down only the pairs that made too few full turns in training.

    Args:
        rates: (n,) frequencies.
        factor: new length over trained length.
        trained_length: positions seen in training.
        low: pairs with at most this many full turns over the trained length are interpolated.
        high: pairs with at least this many stay; between the two, a linear mixture.

    Returns:
        (n,): between rates / factor and rates.

    Source: Peng et al. 2024, definition 2; Llama 3.1 uses the same with (low, high) = (1, 4).
    """
    if high <= low:
        raise ValueError(f"high must be greater than low={low}, got {high}")
    slow = position_interpolation(rates, factor)
    rotations = rates * trained_length / (2 * math.pi)
    kept = ((rotations - low) / (high - low)).clamp(0, 1)
    return slow + kept * (rates - slow)


def llama3(
    rates: Tensor, factor: float = 8, trained_length: int = 8192, low: float = 1, high: float = 4
) -> Tensor:
    """Return the frequencies of Llama 3.1: `by_parts` with its configuration.

    Arguments as in `by_parts`.

    Source: the code released with Llama 3.1; the report (Llama Team 2024) does not print it.
    """
    return by_parts(rates, factor, trained_length, low, high)


def yarn(
    rates: Tensor,
    factor: float,
    trained_length: int,
    *,
    slow: float = 1.0,
    fast: float = 32.0,
    truncate: bool = True,
) -> Tensor:
    """Return YaRN's frequencies; combine with `yarn_gain`.

    Between pairs that stay and pairs that are interpolated it mixes linearly in the number of the
    pair, as the authors' code does; the paper's mixture, in the number of turns, is `by_parts`.

    Args:
        rates: (n >= 2,) frequencies, a geometric series.
        factor: new length over trained length.
        trained_length: positions seen in training.
        slow: turns over the trained length below which a pair is interpolated (alpha, beta_slow).
        fast: turns above which it stays (beta, beta_fast).
        truncate: round the ends of the ramp outwards to whole pairs, as the authors' code does;
            some configurations (gpt-oss) switch that off.

    Returns:
        (n,): between rates / factor and rates.

    Source: Peng et al. 2024, section 3.2.
    """
    if fast < slow or len(rates) < 2 or not (rates[0] > rates[1] and rates[-1] > 0):
        raise ValueError(
            f"yarn needs fast >= slow, got {fast} and {slow}, and descending rates, got {rates}"
        )
    reach = float(rates[0]) * trained_length / (2 * math.pi)
    step = math.log(float(rates[0]) / float(rates[1]))
    first, last = (math.log(reach / turns) / step for turns in (fast, slow))
    if truncate:
        first, last = math.floor(first), math.ceil(last)
    first, last = max(first, 0), min(last, 2 * len(rates) - 1)
    index = torch.arange(len(rates), dtype=rates.dtype, device=rates.device)
    interpolated = ((index - first) / max(last - first, 0.001)).clamp(0, 1)
    return rates + interpolated * (rates / factor - rates)


def yarn_gain(factor: float, weight: float = 0.1) -> float:
    """Return YaRN's factor on queries and keys: 1 + weight * ln(factor), at least 1.

    Scores grow by its square: the softmax temperature is 1 / gain ** 2.

    Source: Peng et al. 2024, equation 22.
    """
    return 1 + weight * math.log(max(factor, 1))


def proportional(rates: Tensor, share: float) -> Tensor:
    """Keep the fastest pairs and stop the others: p-RoPE.

    Stopped pairs compare contents alone, at any distance. Unlike RoPE on part of a head, the
    pairs that rotate keep the frequencies that the whole head would give them.

    Args:
        rates: (n,) frequencies, in descending order.
        share: of the pairs that rotate, at most 1; the number of pairs is rounded down, and at
            least 1.

    Returns:
        (n,): rates, with zeros after the first int(share * n).

    Source: Barbero et al. 2025, section 6; Gemma 4 and LFM3 configure it as "proportional".
    """
    kept = int(share * len(rates))
    if not 1 <= kept <= len(rates):
        raise ValueError(
            f"share must be at most 1, and leave one of {len(rates)} pairs at least, got {share!r}"
        )
    return rates * (torch.arange(len(rates), device=rates.device) < kept)


def longrope(rates: Tensor, factors: Tensor) -> Tensor:
    """Slow each pair down by a factor of its own, found by search.

    Args:
        rates: (n,) frequencies.
        factors: (n,) positive.

    Returns:
        (n,): rates / factors.

    Source: Ding et al. 2024, equation 3.
    """
    if factors.shape != rates.shape:
        raise ValueError(f"factors must be {len(rates)}, one for each pair, got {factors.shape}")
    return rates / factors.to(rates)


def longrope_gain(factor: float, trained_length: int) -> float:
    """Return LongRoPE's factor on queries and keys: sqrt(1 + ln(factor) / ln(trained_length)).

    Source: Ding et al. 2024; Abdin et al. 2024 (Phi-3), whose released code applies it.
    """
    return math.sqrt(1 + math.log(max(factor, 1)) / math.log(trained_length))


class LengthRoPE(RoPE):
    """RoPE whose frequencies depend on the longest position in the batch.

    A cache must keep its keys as projected: a longer sequence rotates all of them anew. The
    longest sequence of a batch decides for all, as in published code.
    """

    def rates_at(self, length: Tensor) -> Tensor:
        """Return the frequencies for a sequence of `length`, a tensor ()."""
        raise NotImplementedError

    def rotate(self, q: Tensor, k: Tensor, q_pos: Tensor, k_pos: Tensor) -> tuple[Tensor, Tensor]:
        """Rotate q (B, H, Lq, d) and k (B, H, Lk, d) for the longest position of both."""
        start = q_pos.new_zeros(1)  # a batch may be empty
        length = 1 + torch.cat([p.flatten() for p in (start, q_pos, k_pos)]).max()
        rates = self.rates_at(length)
        q_angles, k_angles = (rope_angles(to_float64(p), rates) for p in (q_pos, k_pos))
        return self.turned(q, q_angles), self.turned(k, k_angles)


class DynamicNTK(LengthRoPE):
    """RoPE whose frequencies stretch with the length, see `dynamic_ntk`.

    Args:
        head_dim: width d of a head.
        factor: as in `dynamic_ntk`.
        trained_length: as in `dynamic_ntk`.
        options: base, layout, rotary_dim and gain as in `RoPE`.

    Source: emozilla 2023; Peng et al. 2024, section 3.3.
    """

    def __init__(self, head_dim: int, factor: float, trained_length: int, **options: Any) -> None:
        """Keep the two numbers."""
        super().__init__(head_dim, **options)
        self.factor, self.trained_length = factor, trained_length

    def rates_at(self, length: Tensor) -> Tensor:
        """Return the frequencies for a sequence of `length`."""
        return dynamic_ntk(self.rates, self.factor, self.trained_length, length)


class LongRoPE(LengthRoPE):
    """RoPE with one set of factors up to the trained length and another past it.

    Args:
        head_dim: width d of a head.
        short_factors: (rotary_dim / 2,), for sequences of at most `trained_length`.
        long_factors: (rotary_dim / 2,), for longer ones.
        trained_length: positions seen before the extension.
        factor: new length over trained length, for the gain.
        gain: factor on queries and keys; None computes `longrope_gain`.
        options: base, layout, rotary_dim and rates as in `RoPE`.

    Source: Ding et al. 2024; Abdin et al. 2024.
    """

    def __init__(
        self,
        head_dim: int,
        short_factors: Tensor,
        long_factors: Tensor,
        trained_length: int,
        factor: float,
        *,
        gain: float | None = None,
        **options: Any,
    ) -> None:
        """Keep both sets of frequencies."""
        gain = longrope_gain(factor, trained_length) if gain is None else gain
        super().__init__(head_dim, gain=gain, **options)
        self.trained_length = trained_length
        self.long_rates = longrope(self.rates, long_factors)
        self.rates = longrope(self.rates, short_factors)

    def rates_at(self, length: Tensor) -> Tensor:
        """Return the frequencies for a sequence of `length`."""
        short, long = (rates.to(length.device) for rates in (self.rates, self.long_rates))
        return torch.where(length <= self.trained_length, short, long)
