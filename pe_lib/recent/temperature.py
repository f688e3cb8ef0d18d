"""Temperature by position: sharper scores where there are more keys to tell apart (chapter 17).

score_ij = s log(i + 1) q_i . k_j / sqrt(d),     s trained for each head, or by a fixed rule
score_ij = (1 + s log(1 + floor(i / length))) q_i . k_j / sqrt(d)

A softmax over n keys divides its weight among n. With scores that stay as large as they were, the
largest weight falls as n grows; scores that grow with log(n) keep it. How fast they grow may be
trained, or fixed by a rule that begins at some length, as in models of 2025.
"""

import torch
from torch import Tensor, nn

from pe_lib.encoding import PositionEncoding, per_head, to_float64


def scaled(q: Tensor, factor: Tensor) -> Tensor:
    """Return q (B, H, Lq, d) times a factor that broadcasts to it, taken in float32 or more."""
    precise = torch.promote_types(q.dtype, torch.float32)
    return (q.to(precise) * factor.to(q.device, precise)).to(q.dtype)


def log_count(positions: Tensor) -> Tensor:
    """Return log(n) for a query that sees itself and all before it, n = position + 1.

    Args:
        positions: real numbers of any shape. Below 0 they count as 0.

    Returns:
        float64 of the same shape, at least 0.
    """
    return torch.log1p(to_float64(positions).clamp(min=0))


def starting_strength(length: int) -> float:
    """Return one over the mean of log(n) for n from 1 to `length`: scores start as large as ever.

    For 1024 that is 0.168.
    """
    if length < 2:  # the mean is 0
        raise ValueError(f"length must be at least 2, got {length}")
    return float(1 / log_count(torch.arange(length, device="cpu")).mean())


class ScalableSoftmax(PositionEncoding):
    """Multiply the scores of a query that sees n keys by s log(n), with s trained for each head.

    It tells a query how far from the start it is, and nothing about the keys: in a decoder it
    goes with layers without positions.

    Args:
        n_heads: number of heads H.
        length: of the sequences in training; see `starting_strength`.

    Source: Nakanishi 2025. Llama 4 multiplies by a fixed step function of log(n).
    """

    cacheable_rotation = True
    causal_only = True  # the keys that it counts are those before the query

    def __init__(self, n_heads: int, length: int) -> None:
        """Start all heads with the same strength."""
        super().__init__()
        self.n_heads = n_heads
        self.strength = nn.Parameter(torch.full((n_heads,), starting_strength(length)))

    def rotate(self, q: Tensor, k: Tensor, q_pos: Tensor, k_pos: Tensor) -> tuple[Tensor, Tensor]:
        """Scale q (B, H, Lq, d); k stays as it is."""
        logs = per_head(log_count(q_pos).unsqueeze(-1))  # (..., 1, Lq, 1)
        precise = torch.promote_types(q.dtype, torch.float32)
        strength = self.strength.to(precise).view(-1, 1, 1)  # (H, 1, 1)
        return scaled(q, strength * logs.to(q.device, precise)), k  # by (..., H, Lq, 1)


def query_factor(
    positions: Tensor,
    strength: float,
    length: float,
    offset: float = 0.0,
    growth: str = "steps",
) -> Tensor:
    """Return what a query is multiplied by, for its position p.

    Args:
        positions: real numbers of any shape.
        strength: s, how fast the factor grows.
        length: from which it does, in positions.
        offset: added to every position; 1 counts from 1.
        growth: "steps", 1 + s log(1 + floor((p + offset) / length)); or "power",
            (1 + (p + offset) / length) ** s.

    Returns:
        float64 of the same shape.

    Source: Llama 4 and Ministral 3 (steps), Beam (power): their released code.
    """
    if growth not in ("steps", "power"):
        raise ValueError(f"growth must be steps or power, got {growth!r}")
    share = (to_float64(positions) + offset).clamp(min=0) / length
    if growth == "power":
        return torch.exp(strength * torch.log1p(share))
    return 1 + strength * torch.log1p(share.floor())


class QueryTemperature(PositionEncoding):
    """Multiply each query by `query_factor` of its position; keys stay as they are.

    Args:
        strength: as in `query_factor`.
        length: as in `query_factor`.
        offset: as in `query_factor`.
        growth: as in `query_factor`.
    """

    cacheable_rotation = True

    def __init__(
        self, strength: float, length: float, *, offset: float = 0.0, growth: str = "steps"
    ) -> None:
        """Keep the numbers; nothing is trained."""
        super().__init__()
        self.strength, self.length, self.offset, self.growth = strength, length, offset, growth

    def rotate(self, q: Tensor, k: Tensor, q_pos: Tensor, k_pos: Tensor) -> tuple[Tensor, Tensor]:
        """Scale q (B, H, Lq, d)."""
        factor = query_factor(q_pos, self.strength, self.length, self.offset, self.growth)
        return scaled(q, per_head(factor.unsqueeze(-1))), k  # by (..., 1, Lq, 1)
