"""What scalar biases share: one number per head for each relative position.

A bias that depends on key minus query alone has only Lq + Lk - 1 different values per head
between two runs of positions. The (Lq, Lk) matrix is then a Toeplitz matrix.
"""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from pe_lib.encoding import PositionEncoding
from pe_lib.errors import require_heads, require_integers, require_positive
from pe_lib.positions import Positions, Run, as_positions, relative_position


def distances(q_pos: Run, k_pos: Run, device: torch.device | None = None) -> Tensor:
    """Return every relative position between two runs, rising.

    Returns:
        (Lq + Lk - 1,): from first key minus last query up to last key minus first query. The
        pair (i, j) finds its own at Lq - 1 - i + j.
    """
    return torch.arange(k_pos.start - q_pos.stop + 1, k_pos.stop - q_pos.start, device=device)


def toeplitz(vector: Tensor, n_keys: int) -> Tensor:
    """Return the matrix that has one value per distance.

    Args:
        vector: (..., Lq + Lk - 1), in the order of `distances`.
        n_keys: Lk.

    Returns:
        (..., Lq, Lk): entry (i, j) is vector[Lq - 1 - i + j].
    """
    return windows(vector, n_keys).flip(-2)  # window i belongs to query Lq - 1 - i


def windows(vector: Tensor, length: int) -> Tensor:
    """Return all runs of `length` values: (..., N) -> (..., N - length + 1, length), a view."""
    if torch.compiler.is_compiling():  # which would fix the length of a view
        starts = torch.arange(vector.shape[-1] - length + 1, device=vector.device)
        return vector[..., starts.unsqueeze(-1) + torch.arange(length, device=vector.device)]
    return vector.unfold(-1, length, 1)


def for_each_head(values: Tensor, relative: Tensor) -> Tensor:
    """Give values (H,) an axis for each axis of `relative`, in float32 or better: (H, 1, ...)."""
    precise = torch.promote_types(values.dtype, torch.float32)
    return values.to(precise).view(-1, *[1] * relative.ndim)


class RelativeBias(PositionEncoding):
    """A bias per head that depends on the relative position alone.

    A subclass writes `of_distance`; this class brings the values into the matrix.
    """

    rotates_once = True

    def of_distance(self, relative: Tensor) -> Tensor:
        """Return the bias for relative positions (key - query): (...) -> (H, ...)."""
        raise NotImplementedError

    def bias(
        self, q: Tensor, k: Tensor, q_pos: Positions, k_pos: Positions, scale: float
    ) -> Tensor:
        """Return (H, Lq, Lk), or (B, H, Lq, Lk) for positions with a batch axis."""
        q_pos = as_positions("q_pos", q_pos, q.shape[-2], q.shape[0], q.device)
        k_pos = as_positions("k_pos", k_pos, k.shape[-2], q.shape[0], q.device)
        if isinstance(q_pos, Run) and isinstance(k_pos, Run):
            vector = self.for_heads(q, distances(q_pos, k_pos, q.device))  # (H, Lq + Lk - 1)
            return toeplitz(vector, k_pos.length)
        return self.for_heads(q, relative_position(q_pos, k_pos, q.device)).movedim(0, -3)

    def for_heads(self, q: Tensor, relative: Tensor) -> Tensor:
        """Return `of_distance` in the dtype of q (B, H, Lq, d), which must have as many heads."""
        values = self.of_distance(relative)
        require_heads(q, len(values))
        return values.to(q.dtype)


class WindowBias(RelativeBias):
    """Add a trained bias per head and relative position, inside a window only.

    Args:
        n_heads: number of heads H.
        window: largest distance w that is told apart; farther keys get 0.

    Raises:
        TypeError: if an argument is not an int, or positions are not integers.
        ValueError: if an argument is below 1.
    """

    def __init__(self, n_heads: int, window: int) -> None:
        """Start at 0: no preference."""
        super().__init__()
        require_positive("n_heads", n_heads)
        self.window = require_positive("window", window)
        self.weight = nn.Parameter(torch.zeros(n_heads, 2 * self.window + 1))  # (H, 2w + 1)

    def of_distance(self, relative: Tensor) -> Tensor:
        """Return the biases of relative positions: (...) -> (H, ...)."""
        relative = require_integers("relative", relative)
        padded = F.pad(self.weight, (1, 1))  # 0 at both ends: outside the window
        return padded[:, relative.clamp(-self.window - 1, self.window + 1) + self.window + 1]
