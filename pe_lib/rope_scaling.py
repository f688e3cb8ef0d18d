"""RoPE beyond the length it was trained on: change the frequencies (chapter 13).

Every method is a function from frequencies to frequencies, (n,) -> (n,), for
`RoPE(..., inv_freq=...)`; two of them look at the length of the sequence and are modules.
"""

import math
from typing import Any

import torch
from torch import Tensor

from pe_lib.encoding import to_float64
from pe_lib.rope import RoPE, rope_angles


def position_interpolation(inv_freq: Tensor, factor: float) -> Tensor:
    """Slow every pair down: position p then gets the angles that p / factor had.

    Args:
        inv_freq: (n,) frequencies in radians per position.
        factor: new length over trained length.

    Returns:
        (n,): inv_freq / factor.

    Source: Chen et al. 2023, equation 4.
    """
    return inv_freq / factor


def ntk_aware(inv_freq: Tensor, factor: float | Tensor) -> Tensor:
    """Slow the last pair down by `factor`, the first not at all, those between geometrically.

    The same as a larger base: base * factor ** (d / (d - 2)).

    Args:
        inv_freq: (n >= 2,) frequencies, in descending order.
        factor: new length over trained length, a number or a tensor ().

    Returns:
        (n,): inv_freq[j] * factor ** (-j / (n - 1)).

    Source: bloc97 2023; Peng et al. 2024, definition 1.
    """
    if len(inv_freq) < 2:
        raise ValueError(f"inv_freq must be at least two frequencies, got {inv_freq}")
    share = torch.arange(len(inv_freq), dtype=inv_freq.dtype, device=inv_freq.device) / (
        len(inv_freq) - 1
    )
    return inv_freq * factor**-share


def dynamic_ntk(
    inv_freq: Tensor, factor: float, trained_length: int, length: int | Tensor
) -> Tensor:
    """Return `ntk_aware` for the length at hand; the trained frequencies up to the trained length.

    Args:
        inv_freq: (n >= 2,) frequencies.
        factor: how fast the stretch grows past the trained length, at least 1; at 1 the stretch is
            length / trained_length.
        trained_length: positions seen in training.
        length: positions in this sequence, a number or a tensor ().

    Returns:
        (n,): `inv_freq` stretched by factor * length / trained_length - (factor - 1). Up to
        the trained length it is `inv_freq` itself.

    Source: emozilla 2023; Peng et al. 2024, section 3.3, whose factor is 1.
    """
    if factor < 1:
        raise ValueError(f"factor must be at least 1, new length over trained length, got {factor}")
    # Up to the trained length the stretch is 1, and the frequencies are what they were.
    share = to_float64(torch.as_tensor(length)) / trained_length
    stretch = (factor * share - (factor - 1)).clamp(min=1)
    return ntk_aware(inv_freq.to(stretch.device), stretch.to(inv_freq.dtype))


def by_parts(
    inv_freq: Tensor, factor: float, trained_length: int, low: float, high: float
) -> Tensor:
    """Slow down only the pairs that made too few full turns in training.

    Args:
        inv_freq: (n,) frequencies.
        factor: new length over trained length.
        trained_length: positions seen in training.
        low: pairs with at most this many full turns over the trained length are interpolated.
        high: pairs with at least this many stay; between the two, a linear mixture.

    Returns:
        (n,): between inv_freq / factor and inv_freq.

    Source: Peng et al. 2024, definition 2; Llama 3.1 uses the same with (low, high) = (1, 4).
    """
    if high <= low:
        raise ValueError(f"high must be greater than low={low}, got {high}")
    slow = position_interpolation(inv_freq, factor)
    rotations = inv_freq * trained_length / (2 * math.pi)
    kept = ((rotations - low) / (high - low)).clamp(0, 1)
    return slow + kept * (inv_freq - slow)


def llama3(
    inv_freq: Tensor, factor: float = 8, trained_length: int = 8192, low: float = 1, high: float = 4
) -> Tensor:
    """Return the frequencies of Llama 3.1: `by_parts` with its configuration.

    Arguments as in `by_parts`.

    Source: the code released with Llama 3.1; the report (Llama Team 2024) does not print it.
    """
    return by_parts(inv_freq, factor, trained_length, low, high)


def yarn(
    inv_freq: Tensor,
    factor: float,
    trained_length: int,
    *,
    slow: float = 1.0,
    fast: float = 32.0,
    truncate: bool = True,
) -> Tensor:
    """Return YaRN's frequencies; combine with `yarn_attention_factor`.

    Between pairs that stay and pairs that are interpolated it mixes linearly in the number of the
    pair, as the authors' code does; the paper's mixture, in the number of turns, is `by_parts`.

    Args:
        inv_freq: (n >= 2,) frequencies, a geometric series.
        factor: new length over trained length.
        trained_length: positions seen in training.
        slow: turns over the trained length below which a pair is interpolated (alpha, beta_slow).
        fast: turns above which it stays (beta, beta_fast).
        truncate: round the ends of the ramp outwards to whole pairs, as the authors' code does;
            some configurations (gpt-oss) switch that off.

    Returns:
        (n,): between inv_freq / factor and inv_freq.

    Source: Peng et al. 2024, section 3.2.
    """
    if fast < slow or len(inv_freq) < 2 or not (inv_freq[0] > inv_freq[1] and inv_freq[-1] > 0):
        raise ValueError(
            f"yarn needs fast >= slow, got {fast} and {slow}, and frequencies that descend, "
            f"got {inv_freq}"
        )
    reach = float(inv_freq[0]) * trained_length / (2 * math.pi)
    step = math.log(float(inv_freq[0]) / float(inv_freq[1]))
    first, last = (math.log(reach / turns) / step for turns in (fast, slow))
    if truncate:
        first, last = math.floor(first), math.ceil(last)
    first, last = max(first, 0), min(last, 2 * len(inv_freq) - 1)
    index = torch.arange(len(inv_freq), dtype=inv_freq.dtype, device=inv_freq.device)
    interpolated = ((index - first) / max(last - first, 0.001)).clamp(0, 1)
    return inv_freq + interpolated * (inv_freq / factor - inv_freq)


def yarn_attention_factor(factor: float, weight: float = 0.1) -> float:
    """Return YaRN's factor on queries and keys: 1 + weight * ln(factor), at least 1.

    Scores grow by its square: the softmax temperature is one over that.

    Source: Peng et al. 2024, equation 22.
    """
    return 1 + weight * math.log(max(factor, 1))


def proportional(inv_freq: Tensor, share: float) -> Tensor:
    """Keep the fastest pairs and stop the others: p-RoPE.

    Stopped pairs compare contents alone, at any distance. Unlike RoPE on part of a head, the
    pairs that rotate keep the frequencies that the whole head would give them.

    Args:
        inv_freq: (n,) frequencies, in descending order.
        share: of the pairs that rotate, at most 1; the number of pairs is rounded down, and at
            least 1.

    Returns:
        (n,): inv_freq, with zeros after the first int(share * n).

    Source: Barbero et al. 2025, section 6; Gemma 4 and LFM3 configure it as "proportional".
    """
    kept = int(share * len(inv_freq))
    if not 1 <= kept <= len(inv_freq):
        raise ValueError(f"share must leave 1 to {len(inv_freq)} pairs, got {share!r}")
    return inv_freq * (torch.arange(len(inv_freq), device=inv_freq.device) < kept)


def longrope(inv_freq: Tensor, factors: Tensor) -> Tensor:
    """Slow each pair down by a factor of its own, found by search.

    Args:
        inv_freq: (n,) frequencies.
        factors: (n,) positive.

    Returns:
        (n,): inv_freq / factors.

    Source: Ding et al. 2024, equation 3.
    """
    if factors.shape != inv_freq.shape:
        raise ValueError(f"factors must be {len(inv_freq)}, one for each pair, got {factors.shape}")
    return inv_freq / factors.to(inv_freq)


def longrope_attention_factor(factor: float, trained_length: int) -> float:
    """Return LongRoPE's factor on queries and keys: sqrt(1 + ln(factor) / ln(trained_length)).

    Source: Ding et al. 2024; Abdin et al. 2024 (Phi-3), whose released code applies it.
    """
    return math.sqrt(1 + math.log(max(factor, 1)) / math.log(trained_length))


class LengthRoPE(RoPE):
    """RoPE whose frequencies depend on the longest position in the batch.

    A cache must keep its keys as projected: a longer sequence rotates all of them anew. The
    longest sequence of a batch decides for all, as in published code.
    """

    cacheable_rotation = False

    def inv_freq_at(self, length: Tensor) -> Tensor:
        """Return the frequencies for a sequence of `length`, a tensor ()."""
        raise NotImplementedError

    def rotate(self, q: Tensor, k: Tensor, q_pos: Tensor, k_pos: Tensor) -> tuple[Tensor, Tensor]:
        """Rotate q (B, H, Lq, d) and k (B, H, Lk, d) for the longest position of both."""
        start = q_pos.new_zeros(1)  # a batch may be empty
        length = 1 + torch.cat([p.flatten() for p in (start, q_pos, k_pos)]).max()
        inv_freq = self.inv_freq_at(length)
        q_angles, k_angles = (rope_angles(to_float64(p), inv_freq) for p in (q_pos, k_pos))
        return self.rotated_by(q, q_angles), self.rotated_by(k, k_angles)


class DynamicNTK(LengthRoPE):
    """RoPE whose frequencies stretch with the length, see `dynamic_ntk`.

    Args:
        head_dim: width d of a head.
        factor: as in `dynamic_ntk`.
        trained_length: as in `dynamic_ntk`.
        options: base, layout, rotary_dim and attention_factor as in `RoPE`.

    Source: emozilla 2023; Peng et al. 2024, section 3.3.
    """

    def __init__(self, head_dim: int, factor: float, trained_length: int, **options: Any) -> None:
        """Keep the two numbers."""
        super().__init__(head_dim, **options)
        self.factor, self.trained_length = factor, trained_length

    def inv_freq_at(self, length: Tensor) -> Tensor:
        """Return the frequencies for a sequence of `length`."""
        return dynamic_ntk(self.inv_freq, self.factor, self.trained_length, length)


class LongRoPE(LengthRoPE):
    """RoPE with one set of factors up to the trained length and another past it.

    Args:
        head_dim: width d of a head.
        short_factors: (rotary_dim / 2,), for sequences of at most `trained_length`.
        long_factors: (rotary_dim / 2,), for longer ones.
        trained_length: positions seen before the extension.
        factor: new length over trained length, for the attention factor.
        attention_factor: factor on queries and keys; None computes `longrope_attention_factor`.
        options: base, layout, rotary_dim and inv_freq as in `RoPE`.

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
        attention_factor: float | None = None,
        **options: Any,
    ) -> None:
        """Keep both sets of frequencies."""
        attention_factor = (
            longrope_attention_factor(factor, trained_length)
            if attention_factor is None
            else attention_factor
        )
        super().__init__(head_dim, attention_factor=attention_factor, **options)
        self.trained_length = trained_length
        self.long_inv_freq = longrope(self.inv_freq, long_factors)
        self.inv_freq = longrope(self.inv_freq, short_factors)

    def inv_freq_at(self, length: Tensor) -> Tensor:
        """Return the frequencies for a sequence of `length`."""
        short, long = (
            inv_freq.to(length.device) for inv_freq in (self.inv_freq, self.long_inv_freq)
        )
        return torch.where(length <= self.trained_length, short, long)
