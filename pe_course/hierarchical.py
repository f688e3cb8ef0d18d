"""Positions in levels, paragraph and place or two digits of a number; and tables past their end."""

from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from pe_course import checks
from pe_lib.compose import Compose
from pe_lib.encoding import PositionEncoding
from pe_lib.learned import Learned
from pe_lib.recent.resizing import sample_table
from pe_lib.relative import RelativeBias
from pe_lib.sinusoidal import Sinusoidal


def readable(tensor: Tensor) -> bool:
    """Return whether values may be looked at: a graph has none, and a GPU would be waited for."""
    return tensor.is_cpu and not torch.compiler.is_compiling()


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

    Source: Su 2020, "Hierarchical decomposition of position encoding".
    """
    if checks.above("alpha", alpha, 0) >= 1 or alpha == 0.5:
        raise ValueError(f"alpha must lie in (0, 1) and not be 0.5, got {alpha!r}")
    n = len(table)
    outside = (positions < 0) | (positions >= n**2)
    if readable(positions) and outside.any():
        raise ValueError(
            f"positions must lie in [0, {n**2}) for a table of {n} rows split in two digits, "
            f"got {positions[outside][0]}"
        )
    base = (table - alpha * table[0]) / (1 - alpha)  # (n, D)
    high, low = positions // n, positions % n
    return alpha * base[high] + (1 - alpha) * base[low]


def paragraph_of(positions: Tensor, starts: Tensor) -> Tensor:
    """Return which paragraph each position is in.

    Args:
        positions: (L,) or (B, L).
        starts: first position of every paragraph, ascending, from 0 on: (P,), or (B, P) where the
            sequences of a batch differ. Fill short rows with a number past the last position.

    Returns:
        int64, (L,) or (B, L): how many paragraphs have started before this one.
    """
    if readable(starts) and not (starts.diff() >= 0).all():
        raise ValueError(f"starts must ascend, got {starts.tolist()}")
    places = positions.to(starts.device)
    batch = torch.broadcast_shapes(places.shape[:-1], starts.shape[:-1])
    places, starts = (each.expand(*batch, -1).contiguous() for each in (places, starts))
    paragraph = torch.searchsorted(starts, places, right=True) - 1
    if readable(paragraph) and (paragraph < 0).any():
        early = float(places[paragraph < 0].min())
        raise ValueError(f"positions must be at or after the first start, got {early:g}")
    return paragraph


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
        split_rows(torch.zeros(1, 1), torch.zeros(1).long(), alpha)  # raises if alpha is no share
        self.alpha = alpha

    def rows(self, positions: Tensor) -> Tensor:
        """Return the codes of positions: (...) -> (..., D)."""
        return split_rows(self.table, positions, self.alpha)


class Beyond(PositionEncoding):
    """A trained table with an answer past its last row.

    Args:
        trained: the table.
        way: "clamp" uses the last row, "wrap" starts again at row 0, "interpolate" squeezes the
            positions of each sequence so that its last meets the last row.
    """

    integers = True

    def __init__(self, trained: Learned, way: str) -> None:
        """Keep the table, which is no copy."""
        super().__init__()
        checks.one_of("way", way, ("clamp", "wrap", "interpolate"))
        self.trained, self.way, self.d_model = trained, way, trained.d_model

    @property
    def table(self) -> nn.Parameter:
        """The trained rows, (N, D)."""
        return self.trained.table

    def embed(self, x: Tensor, positions: Tensor) -> Tensor:
        """Add the rows of `positions` to x (B, L, D)."""
        last, table = self.trained.max_len - 1, self.trained.table
        if self.way == "interpolate":
            longest = positions.amax(-1, keepdim=True).clamp(min=max(last, 1)).double()
            return x + sample_table(table, positions * (last / longest)).to(x.dtype)
        clamped = positions.clamp(max=last)
        return self.trained.embed(x, clamped if self.way == "clamp" else positions % (last + 1))


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
        self, max_paragraphs: int, d_model: int, starts: Any, *, std: float = 0.02
    ) -> None:
        """Draw the vectors from a normal distribution."""
        super().__init__()
        self.vectors = Learned(max_paragraphs, d_model, std=std)
        self.starts = starts  # no buffer: `to_empty` would lose it

    def embed(self, x: Tensor, positions: Tensor) -> Tensor:
        """Add the vectors of the positions' paragraphs to x (B, L, D)."""
        return self.vectors.embed(x, paragraph_of(positions, self.starts.to(x.device)))


class WindowBias(RelativeBias):
    """Add a trained bias per head and relative position, inside a window only.

    Args:
        n_heads: number of heads H.
        window: largest distance w that is told apart; farther keys get 0.
    """

    integers = True

    def __init__(self, n_heads: int, window: int) -> None:
        """Start at 0: no preference."""
        super().__init__()
        self.n_heads, self.window = n_heads, window
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
        options: base, layout and gain of `Sinusoidal`.
    """

    def __init__(
        self,
        d_model: int,
        n_heads: int,
        starts: Any,
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
        return self.encodings[1]  # type: ignore[return-value]
