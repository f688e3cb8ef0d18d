"""Sinusoidal position codes: one formula, no parameters (chapter 2).

    code(p)[2j] = sin(p w_j),  code(p)[2j + 1] = cos(p w_j),  w_j = base ** (-2j / dim)

Each pair of columns rotates like the hand of a clock; the wavelengths form a geometric series.
"""

import torch
from torch import Tensor

from pe_lib.encoding import PositionEncoding, as_positions, order_of, to_float64

LAYOUTS = ("interleaved", "half")


def frequencies(dim: int, base: float = 10000.0) -> Tensor:
    """Return the angular frequency of each pair of columns, in radians per position.

    Args:
        dim: width of the code; even.
        base: frequencies fall from 1 towards 1 / base; above 1.

    Returns:
        (dim / 2,), float64: base ** (-2j / dim) for j = 0, 1, ..., dim / 2 - 1. On the processor,
        since not every device has float64.

    Source: Vaswani et al. 2017, section 3.5.
    """
    if dim % 2:
        raise ValueError(f"dim must be even, a sine and a cosine for each frequency, got {dim}")
    exponents = torch.arange(0, dim, 2, dtype=torch.float64, device="cpu") / dim
    return base**-exponents


def wavelengths(dim: int, base: float = 10000.0) -> Tensor:
    """Return the period of each pair of columns in positions, (dim / 2,): 2 pi / frequency."""
    return 2 * torch.pi / frequencies(dim, base)


def sinusoidal(
    positions: Tensor,
    dim: int,
    base: float = 10000.0,
    *,
    layout: str = "interleaved",
    dtype: torch.dtype = torch.float32,
) -> Tensor:
    """Return the sinusoidal code of each position.

    Args:
        positions: real numbers of any shape: integers, fractions, negative ones too.
        dim: width of the code; even.
        base: sets the longest wavelength, 2 pi base ** (1 - 2 / dim) positions.
        layout: "interleaved" or "half", see `arrange`.
        dtype: type of the result. Angles are always computed in float64, since in float32
            position 5000 is already off in the fourth decimal.

    Returns:
        (*positions.shape, dim): sin(p w_j) and cos(p w_j) with w_j = base ** (-2j / dim).

    Source: Vaswani et al. 2017, section 3.5.
    """
    positions = torch.as_tensor(positions)
    exact = to_float64(positions).unsqueeze(-1)  # (..., 1)
    angles = exact * frequencies(dim, base).to(exact.device)  # (..., dim / 2)
    sine, cosine = (x.to(positions.device, dtype) for x in (angles.sin(), angles.cos()))
    return arrange(sine, cosine, layout)


def arrange(first: Tensor, second: Tensor, layout: str) -> Tensor:
    """Join the first and the second components of pairs, (..., n) each, to (..., 2n).

    "interleaved": first, second, first, second, ... (the paper). "half": all first ones, then
    all second ones, as diffusion models have them for their timesteps (Ho et al. 2020, appendix B;
    Nichol & Dhariwal 2021 have all cosines first). The same numbers in another order.
    """
    if layout not in LAYOUTS:
        raise ValueError(f"layout must be one of {', '.join(LAYOUTS)}, got {layout!r}")
    if layout == "half":
        return torch.cat([first, second], dim=-1)
    return torch.stack([first, second], dim=-1).flatten(-2)  # (..., n, 2) -> (..., 2n)


class Sinusoidal(PositionEncoding):
    """Add the sinusoidal code to the input.

    Args:
        d_model: width D; even.
        base: as in `sinusoidal`.
        gain: factor on the code. Token embeddings of a small model are often much smaller
            than the code, whose entries have a root mean square of 0.71.

    Source: Vaswani et al. 2017, section 3.5.
    """

    def __init__(self, d_model: int, base: float = 1e4, *, gain: float = 1.0) -> None:
        """Keep the settings; nothing is trained."""
        super().__init__()
        self.d_model, self.base, self.gain = d_model, base, gain

    def embed(self, x: Tensor, positions: Tensor) -> Tensor:
        """Add the codes of `positions`, which may be any real numbers, to x (B, L, D)."""
        positions = order_of(as_positions(positions, x))
        codes = sinusoidal(positions, self.d_model, self.base, dtype=x.dtype)
        return x + self.gain * codes  # codes are (L, D) or (B, L, D)
