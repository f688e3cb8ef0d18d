"""Learned absolute positions: a table with one trained row per position (chapter 3).

x_i + table[i]
"""

import torch
from torch import Tensor, nn

from pe_lib.encoding import PositionEncoding, as_positions, order_of
from pe_lib.initial import normal


class Learned(PositionEncoding):
    """Add a trained row per position to the input.

    Args:
        max_len: number of rows N.
        d_model: width D.
        std: standard deviation of the initial rows. Match it to the token embeddings: a
            table of much smaller numbers has little effect at first and is learned late.

    A position without a row is an error, as in GPT-2 and BERT; but in a graph a negative one
    is counted from the end without an error. `pe_lib.recent.resizing` stretches a
    table.

    Source: Gehring et al. 2017; Devlin et al. 2019; Radford et al. 2019.
    """

    def __init__(self, max_len: int, d_model: int, *, std: float = 0.02) -> None:
        """Draw the rows from a normal distribution."""
        super().__init__()
        self.max_len, self.d_model = max_len, d_model
        self.table = nn.Parameter(normal(max_len, d_model, std=std))  # (N, D)

    def embed(self, x: Tensor, positions: Tensor) -> Tensor:
        """Add the rows of `positions` to x (B, L, D)."""
        return x + self.rows(order_of(as_positions(positions, x))).to(x.dtype)

    def rows(self, positions: Tensor) -> Tensor:
        """Return the rows of positions: (...) -> (..., D)."""
        outside = (positions < 0) | (positions >= self.max_len)
        if not torch.compiler.is_compiling() and outside.any():
            raise ValueError(
                f"positions must be at least 0 and below max_len={self.max_len}, got "
                f"{positions[outside][0]}; a table has no row for it"
            )
        return self.table[positions]
