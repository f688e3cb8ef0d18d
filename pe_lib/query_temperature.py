"""Query temperature: scores that sharpen with the place of the query, by a fixed rule.

A softmax over many keys is flatter than one over few. Models of 2025 let queries grow with their
position, from a length on; `pe_lib.temperature` has the trained form of it.
"""

from __future__ import annotations

import torch
from torch import Tensor

from pe_lib.encoding import PositionEncoding
from pe_lib.errors import require_at_least, require_choice, require_greater, require_real
from pe_lib.positions import Positions, as_positions, as_tensor, per_head

GROWTHS = ("steps", "power")


def query_factor(
    positions: object, strength: float, length: float, ahead: float = 0.0, growth: str = "steps"
) -> Tensor:
    """Return what a query is multiplied by, for its position p.

    Args:
        positions: real numbers of any shape.
        strength: s, how fast the factor grows.
        length: from which it does, in positions.
        ahead: added to every position; 1 counts from 1.
        growth: "steps", 1 + s log(1 + floor((p + ahead) / length)); or "power",
            (1 + (p + ahead) / length) ** s.

    Returns:
        float64 of the same shape.

    Source: Llama 4 and Ministral 3 (steps), Beam (power): their released code.
    """
    require_choice("growth", growth, GROWTHS)
    require_greater("length", length, 0)
    share = (require_real("positions", positions).double() + ahead).clamp(min=0) / length
    if growth == "power":
        return torch.exp(strength * torch.log1p(share))
    return 1 + strength * torch.log1p(share.floor())


class QueryTemperature(PositionEncoding):
    """Multiply each query by `query_factor` of its position; keys stay as they are.

    Args:
        strength: as in `query_factor`.
        length: as in `query_factor`.
        ahead: as in `query_factor`.
        growth: as in `query_factor`.
    """

    rotates_once = True

    def __init__(
        self, strength: float, length: float, *, ahead: float = 0.0, growth: str = "steps"
    ) -> None:
        """Keep the numbers; nothing is trained."""
        super().__init__()
        self.strength = require_at_least("strength", strength, 0)
        self.length = require_greater("length", length, 0)
        self.ahead = require_at_least("ahead", ahead, 0)
        self.growth = require_choice("growth", growth, GROWTHS)

    def rotate(
        self, q: Tensor, k: Tensor, q_pos: Positions, k_pos: Positions
    ) -> tuple[Tensor, Tensor]:
        """Scale q (B, H, Lq, d)."""
        places = as_tensor(as_positions("q_pos", q_pos, q.shape[2], len(q), q.device), q.device)
        factor = query_factor(places, self.strength, self.length, self.ahead, self.growth)
        precise = torch.promote_types(q.dtype, torch.float32)
        scaled = q.to(precise) * per_head(factor.unsqueeze(-1)).to(precise)  # (..., Lq, 1)
        return scaled.to(q.dtype), k
