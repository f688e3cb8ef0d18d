"""Learned absolute positions: a table with one trained row per position (chapter 3).

x_i + table[i]
"""

from typing import Annotated, TypeAlias

from torch import Tensor, nn

from pe_lib.arguments import Count, Integers, Positive, checked
from pe_lib.encoding import PositionEncoding
from pe_lib.errors import may_read
from pe_lib.initial import normal
from pe_lib.positions import exact
from pe_lib.resizing import sample_table

Beyond: TypeAlias = Annotated[str, "error/clamp/wrap/interpolate"]


class Learned(PositionEncoding):
    """Add a trained row per position to the input.

    Args:
        max_len: number of rows N.
        d_model: width D.
        std: standard deviation of the initial rows. Match it to the token embeddings: a
            table far smaller than they are is hardly seen, and learns late.
        beyond: what a position past the table does: "error" raises (as GPT-2 and BERT do; on a GPU
            and in a graph PyTorch raises, in its own words), "clamp" uses the last row, "wrap"
            starts again at row 0, "interpolate" squeezes the positions of each sequence so that its
            last meets the last row. A squeeze depends on the whole sequence, so that one that comes
            piece by piece (KV cache) is refused.

    Source: Gehring et al. 2017; Devlin et al. 2019; Radford et al. 2019.
    """

    integers = True

    @checked()
    def __init__(
        self, max_len: Count, d_model: Count, *, std: Positive = 0.02, beyond: Beyond = "error"
    ) -> None:
        """Draw the rows from a normal distribution."""
        super().__init__()
        self.max_len, self.d_model, self.beyond = max_len, d_model, beyond
        self.table = nn.Parameter(normal(max_len, d_model, std=std))  # (N, D)

    def embed(self, x: Tensor, positions: Tensor) -> Tensor:
        """Add the rows of `positions` to x (B, L, D)."""
        return x + self.rows(positions).to(x.dtype)

    @checked()
    def rows(self, positions: Integers) -> Tensor:
        """Return the rows of positions: (...) -> (..., D)."""
        require_rows(positions, self.max_len, self.beyond)
        last = self.max_len - 1
        if self.beyond == "clamp":
            positions = positions.clamp(max=last)
        if self.beyond == "wrap":
            positions = positions % self.max_len
        if self.beyond == "interpolate" and positions.numel() > 0:
            longest = exact(positions.amax(-1, keepdim=True).clamp(min=max(last, 1)))
            return sample_table(self.table, exact(positions) * (last / longest))
        return self.table[positions]


def require_rows(positions: Tensor, max_len: int, beyond: str) -> None:
    """Raise unless a table has an answer for positions, as far as they may be read."""
    if not may_read(positions) or positions.numel() == 0:
        return
    first, last = int(positions.min()), int(positions.max())
    if first < 0:
        raise ValueError(f"positions must be at least 0 for a table, got {first}")
    if last >= max_len and beyond == "error":
        raise ValueError(
            f"positions must be below max_len={max_len}, got {last}; a table has no row for it "
            "(see `beyond`)"
        )
    past = positions[positions.amax(-1) >= max_len]  # the sequences that are squeezed
    if beyond == "interpolate" and past.numel() > 0 and past.amin(-1).any():
        raise ValueError(
            "positions must start at 0 for beyond='interpolate', which has to see the whole "
            f"sequence to squeeze it, got {int(past.amin(-1).max())} to {last}"
        )
