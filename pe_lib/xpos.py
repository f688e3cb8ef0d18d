"""xPos: RoPE whose scores also fade with distance (causal attention only)."""

from __future__ import annotations

import math
from typing import Any

import torch
from torch import Tensor

from pe_lib.errors import may_read, require_greater
from pe_lib.fast import few_angles, rotate, run_codes
from pe_lib.positions import Positions, Run, as_tensor, in_float64, per_head, sent
from pe_lib.rope import RoPE
from pe_lib.sinusoidal import arrange


def xpos_factors(positions: Tensor, zeta: Tensor, scale_base: float) -> Tensor:
    """Return what the pairs of a query are multiplied by; those of a key, by the inverse.

    Args:
        positions: real numbers of any shape.
        zeta: (n,), from 0 to 1: how much of pair j is left after `scale_base` positions.
        scale_base: in positions.

    Returns:
        (*positions.shape, n): zeta_j ** (position / scale_base).

    Source: Sun et al. 2022, algorithm 1.
    """
    power = (1 / scale_base * positions).unsqueeze(-1)  # (..., 1)
    return (power * sent(zeta.log(), positions.device)).exp()


class XPos(RoPE):
    """Rotate as `RoPE` does, and let pair j of a score shrink by zeta_j per `scale_base` steps.

    A query at m is multiplied by zeta_j ** (m / scale_base), a key at n by the inverse, so that
    only m - n counts; for keys to the right (m < n) scores would grow without bound. Positions
    are counted from the keys' middle, which no score sees. The factors still grow with the
    length, and are refused before a dtype runs out, but in a compiled graph, which is for every
    length: with scale_base 512, half of all positions may lie some 3,400 to one side in
    float16, and 17,000 in float32.

    Args:
        head_dim: width d of a head.
        scale_base: distance in positions over which pair j fades to zeta_j.
        gamma: zeta_j = (2j / r + gamma) / (1 + gamma): larger fades less.
        options: base, layout, rotary_dim, rates, gain and max_len as in `RoPE`.

    Source: Sun et al. 2022, algorithm 1.
    """

    rotates_once = False  # the middle moves

    def __init__(
        self, head_dim: int, *, scale_base: float = 512.0, gamma: float = 0.4, **options: Any
    ) -> None:
        """Compute zeta."""
        super().__init__(head_dim, **options)
        self.scale_base = require_greater("scale_base", scale_base, 0)
        gamma = require_greater("gamma", gamma, 0)
        share = torch.arange(len(self.rates), dtype=torch.float64, device="cpu") / len(self.rates)
        self.zeta = (share + gamma) / (1 + gamma)  # (r / 2,)
        self.steepest = -math.log(gamma / (1 + gamma)) / self.scale_base  # of all pairs

    def rotate(
        self, q: Tensor, k: Tensor, q_pos: Positions, k_pos: Positions
    ) -> tuple[Tensor, Tensor]:
        """Rotate and scale q (B, H, Lq, d) and k (B, H, Lk, d) by their positions.

        Raises:
            ValueError: as `RoPE`, or if a factor would be too large for the dtype of q.
        """
        q_pos, k_pos = self.check(q, k, q_pos, k_pos)
        middle = middle_of(k_pos)
        self.check_range(q_pos, k_pos, middle, q.dtype)
        q_codes = self.faded_codes(q_pos, middle, 1, q)
        k_codes = self.faded_codes(k_pos, middle, -1, k)
        return rotate(q, per_head(q_codes), self.layout), rotate(k, per_head(k_codes), self.layout)

    def faded_codes(
        self, positions: Positions, middle: float | Tensor, sign: int, x: Tensor
    ) -> Tensor:
        """Return the rotation codes times `fade`, (L, r) or (B, L, r)."""
        if isinstance(positions, Run) and isinstance(middle, float) and few_angles(self.rates):
            growth = sign / self.scale_base * self.zeta.log()
            dtype = torch.promote_types(x.dtype, torch.float32)
            settings: dict[str, Any] = {"gain": self.gain, "growth": growth, "middle": middle}
            codes = run_codes(positions, self.rates, dtype, self.layout, **settings)
            return sent(codes, x.device)
        return self.codes(positions, x) * self.fade(positions, middle, sign, x)

    def fade(self, positions: Positions, middle: float | Tensor, sign: int, x: Tensor) -> Tensor:
        """Return `xpos_factors`, or with the sign -1 their inverse, (..., L, r), like the codes."""
        places = in_float64(as_tensor(positions, x.device)) - middle
        factors = xpos_factors(sign * places, self.zeta, self.scale_base)  # (..., L, r / 2)
        dtype = torch.promote_types(x.dtype, torch.float32)
        return arrange(factors, factors, self.layout).to(x.device, dtype)

    def check_range(
        self, q_pos: Positions, k_pos: Positions, middle: float | Tensor, dtype: torch.dtype
    ) -> None:
        """Raise a ValueError if a factor, or a pair's two, could leave the dtype's range."""
        if torch.compiler.is_compiling():  # a graph is for every length
            return
        if not (readable(q_pos) and readable(k_pos)):
            return
        first, last = ends(q_pos)[0], ends(k_pos)[1]  # numbers, or (1,) or (B, 1)
        reach = middle - first, last - middle, last - first
        on_q, on_k, on_both = (largest(self.steepest * each) for each in reach)
        accumulated = torch.promote_types(dtype, torch.float32)
        # What is left over is for the entries of q and k themselves.
        single = math.log(torch.finfo(dtype).max / 2**4)
        pair = math.log(torch.finfo(accumulated).max / 2**8)
        if max(on_q, on_k) > single or on_both > pair:
            lowest = min(-largest(-ends(positions)[0]) for positions in (q_pos, k_pos))
            raise ValueError(
                f"positions from {lowest:g} to {largest(last):g} are too far apart for "
                f"scale_base={self.scale_base:g} in {dtype}: a factor on q or k would be "
                f"e ** {max(on_q, on_k, on_both / 2):.0f}; use a larger scale_base"
            )


def middle_of(positions: Positions) -> float | Tensor:
    """Return what lies half way between the first and the last: a number, or (1,) or (B, 1)."""
    first, last = ends(positions)
    return (first + last) / 2


def ends(positions: Positions) -> tuple[float, float] | tuple[Tensor, Tensor]:
    """Return the smallest and the largest position: numbers for a run, else (1,) or (B, 1)."""
    if isinstance(positions, Run):
        return positions.start, positions.stop - 1
    places = in_float64(positions)
    return places.amin(-1, keepdim=True), places.amax(-1, keepdim=True)


def readable(positions: Positions) -> bool:
    """Return whether there are numbers, and they may be read."""
    return isinstance(positions, Run) or (positions.numel() > 0 and may_read(positions))


def largest(value: float | Tensor) -> float:
    """Return the largest of numbers."""
    return float(value.max()) if isinstance(value, Tensor) else value
