"""ALiBi: a penalty that grows linearly with distance, nothing to train (chapter 9).

score_ij = q_i . k_j / sqrt(d) + slope (j - i)
"""

import torch
from torch import Tensor

from pe_lib.relative import RelativeBias, for_each_head


def alibi_slopes(n_heads: int) -> Tensor:
    """Return the slope of each head, per position of distance.

    For a power of two the slopes are 2 ** (-8 h / n), h = 1, ..., n. Any other count takes
    those of the next lower power of two n, followed by those half a step before each of them, the
    steepest first: 2 ** (-8 (h - 1/2) / n).

    Args:
        n_heads: number of heads, at least 1.

    Returns:
        (n_heads,), float32.

    Source: Press et al. 2022, section 3; other counts as in the authors' code.
    """
    n = 2 ** (n_heads.bit_length() - 1)
    steps = [*range(1, n + 1), *(h - 0.5 for h in range(1, n_heads - n + 1))]
    slopes = [2 ** (-8 * step / n) for step in steps]
    return torch.tensor(slopes, dtype=torch.float32, device="cpu")


def alibi(relative: Tensor, slopes: Tensor, *, symmetric: bool = False) -> Tensor:
    """Return slope * relative position, or -slope * |relative position|.

    Args:
        relative: real numbers of any shape, key position minus query position: 0 or less for
            the keys that a causal mask leaves, so that slope * relative is a penalty there.
        slopes: (H,).
        symmetric: penalise the distance on both sides. Without it a key to the right is
            rewarded: sensible only under a causal mask.

    Returns:
        (H, *relative.shape), float32 or better.

    Source: Press et al. 2022, section 3 (written there with distance = query - key).
    """
    slope = for_each_head(slopes, relative)
    return -slope * relative.abs() if symmetric else slope * relative


class ALiBi(RelativeBias):
    """Subtract slope times distance from the scaled logits; each head has its own slope.

    Some published code adds slope * key position instead: the same up to a number per query,
    which the softmax ignores.

    Args:
        n_heads: number of heads H, any.
        symmetric: as in `alibi`; for attention without a causal mask.

    Source: Press et al. 2022, section 3.
    """

    def __init__(self, n_heads: int, *, symmetric: bool = False) -> None:
        """Keep the two settings; there is nothing to train or to store."""
        super().__init__()
        self.n_heads, self.symmetric, self.causal_only = n_heads, symmetric, not symmetric

    def of_distance(self, relative: Tensor) -> Tensor:
        """Return the bias of relative positions: (...) -> (H, ...)."""
        # No buffer: .half() would round the slopes of head counts that are no power of two.
        slopes = alibi_slopes(self.n_heads).to(relative.device)
        return alibi(relative, slopes, symmetric=self.symmetric)
