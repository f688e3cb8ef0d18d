"""Positions in levels: paragraph and place, or two digits of one number (chapter 13)."""

from __future__ import annotations

from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from pe_lib.attention import PositionEncoding
from pe_lib.compose import Compose
from pe_lib.errors import require_floating, require_greater, require_positive, require_real
from pe_lib.learned import Learned
from pe_lib.relative import RelativeBias
from pe_lib.sinusoidal import Sinusoidal


def split_rows(table: Tensor, positions: Tensor, alpha: float = 0.4) -> Tensor:
    """Read a table of n rows at positions up to n ** 2 - 1, written with two digits in base n.

    Args:
        table: (n, D); row j stands for position j.
        positions: integers of any shape, in [0, n ** 2).
        alpha: share of the first digit, in (0, 1); not 0.5, where position i n + j would equal
            position j n + i.

    Returns:
        (..., D): alpha * u[i] + (1 - alpha) * u[j] for position i n + j, with
        u[i] = (table[i] - alpha * table[0]) / (1 - alpha), so that the first n positions keep
        their rows.

    Raises:
        TypeError: if table is not floating-point or positions not integers.
        ValueError: if a position or alpha is out of range.

    Source: Su 2020, "Hierarchical decomposition of position encoding".
    """
    require_floating("table", table)
    require_share(alpha)
    positions = require_real("positions", positions)
    if positions.is_floating_point():
        raise TypeError(f"positions must be integers for a table, got {positions.dtype}")
    n = len(table)
    outside = (positions < 0) | (positions >= n**2)
    if outside.any():
        raise ValueError(
            f"positions must lie in [0, {n**2}) for a table of {n} rows split in two digits, "
            f"got {int(positions[outside][0])}"
        )
    base = (table - alpha * table[0]) / (1 - alpha)  # (n, D)
    high, low = positions // n, positions % n
    return alpha * base[high] + (1 - alpha) * base[low]


def require_share(alpha: float) -> float:
    """Return alpha if it lies in (0, 1) and is not 0.5."""
    require_greater("alpha", alpha, 0)
    if alpha >= 1 or alpha == 0.5:
        raise ValueError(f"alpha must lie in (0, 1) and not be 0.5, got {alpha!r}")
    return alpha


def paragraph_of(positions: Tensor, starts: Tensor) -> Tensor:
    """Return which paragraph each position is in.

    Args:
        positions: (L,) or (B, L).
        starts: first position of every paragraph, ascending, from 0 on: (P,), or (B, P) where the
            sequences of a batch differ. Fill short rows with a number past the last position.

    Returns:
        int64, (L,) or (B, L): how many paragraphs have started before this one.
    """
    batch = torch.broadcast_shapes(positions.shape[:-1], starts.shape[:-1])
    places = positions.expand(*batch, -1).contiguous()
    return torch.searchsorted(starts.expand(*batch, -1).contiguous(), places, right=True) - 1


class HierarchicalLearned(Learned):
    """A learned table of n rows that reaches n ** 2 positions.

    Args:
        max_len: number of rows n; copy a trained table into `table` to carry it further.
        d_model: width D.
        alpha: as in `split_rows`.
        std: standard deviation of the initial rows.

    Source: Su 2020.
    """

    def __init__(
        self, max_len: int, d_model: int, *, alpha: float = 0.4, std: float = 0.02
    ) -> None:
        """Draw the rows from a normal distribution."""
        super().__init__(max_len, d_model, std=std)
        self.alpha = require_share(alpha)

    def rows(self, positions: Tensor) -> Tensor:
        """Return the codes of integer `positions`: (...) -> (..., D)."""
        return split_rows(self.table, positions, self.alpha)


class ParagraphVectors(PositionEncoding):
    """Add a trained vector per paragraph to the input.

    Args:
        max_paragraphs: number of vectors.
        d_model: width D.
        starts: first position of every paragraph, see `paragraph_of`. Assign `starts` anew when
            the texts change; it is no part of the state_dict.
        std: standard deviation of the initial vectors.
    """

    starts: Tensor

    def __init__(
        self, max_paragraphs: int, d_model: int, starts: Tensor, *, std: float = 0.02
    ) -> None:
        """Draw the vectors from a normal distribution."""
        super().__init__()
        self.vectors = Learned(max_paragraphs, d_model, std=std)
        self.register_buffer("starts", require_real("starts", starts), persistent=False)

    def embed(self, x: Tensor, positions: Tensor) -> Tensor:
        """Add the vectors of the positions' paragraphs to x (B, L, D).

        Raises:
            ValueError: if a position lies before the first paragraph or there are too many.
        """
        return self.vectors.embed(x, paragraph_of(positions, self.starts))


class WindowBias(RelativeBias):
    """Add a trained bias per head and relative position, inside a window only.

    Args:
        n_heads: number of heads H.
        window: largest distance w that is told apart; further keys get 0.
    """

    def __init__(self, n_heads: int, window: int) -> None:
        """Start at 0: no preference."""
        super().__init__()
        require_positive("n_heads", n_heads)
        self.window = require_positive("window", window)
        self.weight = nn.Parameter(torch.zeros(n_heads, 2 * window + 1))  # (H, 2w + 1)

    def of_distance(self, relative: Tensor) -> Tensor:
        """Return the biases of relative positions: (...) -> (H, ...)."""
        padded = F.pad(self.weight, (1, 1))  # 0 at both ends: outside the window
        return padded[:, relative.clamp(-self.window - 1, self.window + 1) + self.window + 1]


class Hierarchical(Compose):
    """Sinusoids for the place, a vector for the paragraph, a bias for close neighbours.

    Three levels: where in the text, in which paragraph, and which word next to which.

    Args:
        d_model: width D; even.
        n_heads: number of heads H.
        starts: first position of every paragraph, see `paragraph_of`.
        max_paragraphs: number of paragraph vectors.
        window: as in `WindowBias`.
        options: base, layout, max_len and gain of `Sinusoidal`.
    """

    def __init__(
        self,
        d_model: int,
        n_heads: int,
        starts: Tensor,
        *,
        max_paragraphs: int = 64,
        window: int = 8,
        **options: Any,
    ) -> None:
        """Compose the three levels."""
        paragraphs = ParagraphVectors(max_paragraphs, d_model, starts)
        super().__init__(Sinusoidal(d_model, **options), paragraphs, WindowBias(n_heads, window))

    @property
    def paragraphs(self) -> ParagraphVectors:
        """The middle level, whose `starts` follow the text."""
        level = self.encodings[1]
        assert isinstance(level, ParagraphVectors)
        return level
