"""KERPLE: biases from kernels, with a trained shape per head (chapter 9).

score_ij = q_i . k_j / sqrt(d) - r1 log(1 + r2 |j - i|),     or - r1 |j - i| ** r2
"""

import torch
from torch import Tensor, nn

from pe_lib.initial import rounded, uniform
from pe_lib.relative import RelativeBias, for_each_head


def kerple_log(relative: Tensor, r1: Tensor, r2: Tensor) -> Tensor:
    """Return -r1 log(1 + r2 |relative|): (...) -> (H, ...), with r1, r2 > 0 of shape (H,).

    Source: Chi et al. 2022, the logarithmic variant.
    """
    r1, r2 = for_each_head(r1, relative), for_each_head(r2, relative)  # (H, 1, ...)
    return -r1 * torch.log1p(r2 * relative.abs())


def kerple_power(relative: Tensor, r1: Tensor, r2: Tensor) -> Tensor:
    """Return -r1 |relative| ** r2: (...) -> (H, ...), with r1 > 0, 0 < r2 <= 2, each (H,).

    Source: Chi et al. 2022, the power variant. With r2 = 1 it is ALiBi with trained slopes.
    """
    r1, r2 = for_each_head(r1, relative), for_each_head(r2, relative)  # (H, 1, ...)
    distance = relative.abs()
    # 0 ** r2 is 0 for every r2, but its second derivative would come out as 0 * log(0).
    power = torch.where(distance == 0, 1, distance) ** r2
    return -r1 * torch.where(distance == 0, 0, power)


class KERPLE(RelativeBias):
    """Subtract a trained kernel of the distance from the scaled logits, on both sides alike.

    Args:
        n_heads: number of heads H.
        variant: "log" or "power".

    The authors' code clamps r1 and r2 at each call; here they are functions of free parameters
    and never leave their range. They start from uniform draws, as there, but never below 0.01: for
    "log" r1 (bias_p there) up to 2 and r2 (bias_a) up to 1; for "power" r1 (bias_a) up to 1 and r2
    (bias_p) up to 1.99.

    Source: Chi et al. 2022.
    """

    def __init__(self, n_heads: int, *, variant: str = "log") -> None:
        """Draw r1 and r2."""
        super().__init__()
        if variant not in ("log", "power"):
            raise ValueError(f"variant must be log or power, got {variant!r}")
        self.n_heads, self.variant = n_heads, variant
        log = variant == "log"
        r1 = uniform(n_heads, low=0.01, high=2 if log else 1).double()
        r2 = uniform(n_heads, low=0.01, high=1 if log else 1.99).double()
        self.free_r1 = nn.Parameter(rounded(r1.log()))
        self.free_r2 = nn.Parameter(rounded(r2.log() if log else (r2 / 2).logit()))

    @property
    def r1(self) -> Tensor:
        """The strength of each head, (H,), above 0."""
        return self.free_r1.exp()

    @property
    def r2(self) -> Tensor:
        """The shape of each head, (H,), above 0, and below 2 for "power"."""
        return self.free_r2.exp() if self.variant == "log" else 2 * self.free_r2.sigmoid()

    def of_distance(self, relative: Tensor) -> Tensor:
        """Return the bias of relative positions: (...) -> (H, ...)."""
        kernel = kerple_log if self.variant == "log" else kerple_power
        return kernel(relative, self.r1, self.r2)
