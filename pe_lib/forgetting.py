"""Forgetting attention: a penalty on distance that each token sets by what it says.

ALiBi takes the same number off for every step back. Here each token has a gate between 0 and 1,
read from its hidden state, and a key is worth as much as the gates between it and the query leave.
"""

from __future__ import annotations

import math
from numbers import Integral

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from pe_lib.encoding import PositionEncoding
from pe_lib.errors import (
    may_read,
    require_floating,
    require_greater,
    require_hidden,
    require_positive,
)
from pe_lib.positions import Positions, Run, as_tensor


def forgetting_bias(log_gates: Tensor, n_queries: int) -> Tensor:
    """Return the sum of the logarithms of all gates after the key, up to the query: the formula.

    Args:
        log_gates: (B, H, Lk), logarithms of gates, at most 0.
        n_queries: Lq; the queries are the last Lq of the keys' tokens.

    Returns:
        (B, H, Lq, Lk), at most 0, and 0 where the key is the query's own token. A key that comes
        later is as far away as the query is from it; the authors use it under a causal mask only.

    Raises:
        TypeError: if log_gates is no floating-point tensor.
        ValueError: if there are more queries than keys.

    Source: Lin et al. 2025, equation 4: the sum over l = j + 1, ..., i of log f_l.
    """
    if require_floating("log_gates", log_gates).ndim == 0:
        raise ValueError("log_gates must have shape (..., Lk), got ()")
    if not isinstance(n_queries, Integral | torch.SymInt):
        raise TypeError(f"n_queries must be an int, got {type(n_queries).__name__}")
    if not 1 <= n_queries <= log_gates.shape[-1]:
        raise ValueError(
            "n_queries must be at least 1 and at most the number of keys, "
            f"{log_gates.shape[-1]}, got {n_queries}"
        )
    sums = log_gates.cumsum(dim=-1)  # (B, H, Lk)
    first = log_gates.shape[-1] - n_queries
    return -(sums[..., first:, None] - sums[..., None, :]).abs()  # (B, H, Lq, Lk)


class Forgetting(PositionEncoding):
    """Let every token say how much of what came before it is still worth.

    Args:
        d_model: width D of the hidden states.
        n_heads: number of heads H.
        bias: initial bias of the gates; at 0 they start near one half, at 5 near one.

    Raises:
        TypeError: if a size is not an int.
        ValueError: if a size is not positive.

    Source: Lin et al. 2025, section 3.1. The authors use it without any other position encoding.
    """

    def __init__(self, d_model: int, n_heads: int, bias: float = 5.0) -> None:
        """Create the gates; with weights of zero they are the same for all tokens."""
        super().__init__()
        require_positive("d_model", d_model)
        require_greater("bias", bias, -math.inf)
        self.n_heads = require_positive("n_heads", n_heads)
        self.gate = nn.Linear(d_model, n_heads)
        nn.init.zeros_(self.gate.weight)
        nn.init.constant_(self.gate.bias, bias)

    def read(self, x: Tensor) -> Tensor:
        """Return the logarithms of the gates, (B, L, D) -> (B, H, L, 1), at least in float32.

        Raises:
            TypeError: if x has another dtype than the gates.
            ValueError: if x has another width.
        """
        require_hidden("x", x, self.gate.weight)
        gates: Tensor = self.gate(x)
        gates = gates.to(torch.promote_types(gates.dtype, torch.float32))
        return F.logsigmoid(gates).mT[..., None]  # (B, H, L, 1)

    def read_bias(
        self, q_read: Tensor, k_read: Tensor, q_pos: Positions, k_pos: Positions
    ) -> Tensor:
        """Return the bias, (B, H, Lq, Lk).

        Raises:
            ValueError: if the queries are not the last of the keys' tokens.
        """
        require_last(q_pos, k_pos)
        return forgetting_bias(k_read[..., 0], q_read.shape[2])


def require_last(q_pos: Positions, k_pos: Positions) -> None:
    """Raise a ValueError unless the queries' positions are those of the last keys."""
    if isinstance(q_pos, Run) and isinstance(k_pos, Run):
        fits = q_pos.stop == k_pos.stop and q_pos.length <= k_pos.length
    else:
        queries, keys = as_tensor(q_pos), as_tensor(k_pos)
        last = keys[..., keys.shape[-1] - queries.shape[-1] :]
        readable = may_read(queries) and queries.is_cpu and keys.is_cpu
        fits = queries.shape[-1] <= keys.shape[-1] and not (readable and (last != queries).any())
    if not fits:
        raise ValueError(
            "q_pos must be the last positions of the keys: forgetting adds up over every token "
            f"from the key to the query, got {q_pos} for {k_pos}"
        )
