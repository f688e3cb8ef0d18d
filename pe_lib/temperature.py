"""Temperature by position: sharper scores where there are more keys to tell apart (chapter 14).

A softmax over n keys divides its weight among n. With scores that stay as large as they were, the
largest weight falls as n grows; scores that grow with log(n) keep it.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn

from pe_lib.encoding import PositionEncoding
from pe_lib.errors import require_heads, require_positive, require_real
from pe_lib.positions import Positions, as_positions, as_tensor, per_head


def log_count(positions: object) -> Tensor:
    """Return log(n) for a query that sees itself and all before it, n = position + 1.

    Args:
        positions: real numbers of any shape. Below 0 they count as 0.

    Returns:
        float64 of the same shape, at least 0.
    """
    return torch.log1p(require_real("positions", positions).double().clamp(min=0))


def starting_strength(length: int) -> float:
    """Return one over the mean of log(n) for n from 1 to `length`: scores start as large as ever.

    For 1024 that is 0.168.
    """
    counts = torch.arange(require_positive("length", length, least=2), device="cpu")
    return float(1 / log_count(counts).mean())


class ScalableSoftmax(PositionEncoding):
    """Multiply the scores of a query that sees n keys by s log(n), with s trained for each head.

    It tells a query how far from the start it is, and nothing about the keys: in a decoder it
    goes with layers without positions.

    Args:
        n_heads: number of heads H.
        length: of the sequences in training; see `starting_strength`.

    Source: Nakanishi 2025. Llama 4 multiplies by a fixed step function of log(n).
    """

    rotates_once = True

    def __init__(self, n_heads: int, length: int) -> None:
        """Start all heads with the same strength."""
        super().__init__()
        require_positive("n_heads", n_heads)
        self.strength = nn.Parameter(torch.full((n_heads,), starting_strength(length)))

    def rotate(
        self, q: Tensor, k: Tensor, q_pos: Positions, k_pos: Positions
    ) -> tuple[Tensor, Tensor]:
        """Scale q (B, H, Lq, d); k stays as it is."""
        require_heads(q, len(self.strength))
        places = as_tensor(as_positions("q_pos", q_pos, q.shape[2], len(q), q.device), q.device)
        logs = per_head(log_count(places).unsqueeze(-1))  # (1, Lq, 1) or (B, 1, Lq, 1)
        precise = torch.promote_types(q.dtype, torch.float32)
        factor = self.strength.to(precise).view(-1, 1, 1) * logs.to(precise)  # (..., H, Lq, 1)
        return (q * factor).to(q.dtype), k
