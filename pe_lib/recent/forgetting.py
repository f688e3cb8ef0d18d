"""Forgetting attention: a penalty on distance that each token sets by what it says.

score_ij = q_i . k_j / sqrt(d) + log f_(j + 1) + ... + log f_i,     f_l = sigmoid(w . x_l + b)

ALiBi takes the same number off for every step back. Here each token has a gate between 0 and 1,
read from its hidden state, and a key is worth as much as the gates between it and the query leave.
"""

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from pe_lib.encoding import PositionEncoding


def forgetting_bias(log_gates: Tensor, n_queries: int) -> Tensor:
    """Return the sum of the logarithms of all gates after the key, up to the query: the formula.

    Args:
        log_gates: (B, H, Lk), logarithms of gates, at most 0.
        n_queries: Lq; the queries are the last Lq of the keys' tokens.

    Returns:
        (B, H, Lq, Lk), at most 0, and 0 where the key is the query's own token. A key that comes
        later is as far away as the query is from it; the authors use it under a causal mask only.

    Source: Lin et al. 2025, equation 4: the sum over l = j + 1, ..., i of log f_l.
    """
    first = log_gates.shape[-1] - n_queries
    if first < 0 or n_queries < 1:
        raise ValueError(f"n_queries must be from 1 to Lk={log_gates.shape[-1]}, got {n_queries}")
    sums = log_gates.cumsum(dim=-1)  # (B, H, Lk)
    return -(sums[..., first:, None] - sums[..., None, :]).abs()  # (B, H, Lq, Lk)


class Forgetting(PositionEncoding):
    """Let every token say how much of what came before it is still worth.

    Args:
        d_model: width D of the hidden states.
        n_heads: number of heads H.
        bias: initial bias of the gates; at 0 they start near one half, at 5 near one.

    Source: Lin et al. 2025, section 3.1. The authors use it without any other position encoding.
    """

    causal_only = True

    def __init__(self, d_model: int, n_heads: int, bias: float = 5.0) -> None:
        """Create the gates; with weights of zero they are the same for all tokens."""
        super().__init__()
        self.d_model, self.n_heads = d_model, n_heads
        self.gate = nn.Linear(d_model, n_heads)
        nn.init.zeros_(self.gate.weight)
        nn.init.constant_(self.gate.bias, bias)

    def project_hidden(self, x: Tensor) -> Tensor:
        """Return the logarithms of the gates, (B, L, D) -> (B, H, L, 1), at least in float32."""
        gates: Tensor = self.gate(x)
        gates = gates.to(torch.promote_types(gates.dtype, torch.float32))
        return F.logsigmoid(gates).mT[..., None]  # (B, H, L, 1)

    def hidden_bias(
        self, q_hidden: Tensor, k_hidden: Tensor, q_pos: Tensor, k_pos: Tensor
    ) -> Tensor:
        """Return the bias, (B, H, Lq, Lk); the queries must be the last of the keys' tokens."""
        n_queries = q_pos.shape[-1]
        require_last(q_pos, k_pos)
        return forgetting_bias(k_hidden[..., 0], n_queries)


def require_last(q_pos: Tensor, k_pos: Tensor) -> None:
    """Raise unless queries are the last keys, and keys stand in order; a graph does not look."""
    if torch.compiler.is_compiling():
        return
    last, falls = k_pos[..., -q_pos.shape[-1] :], k_pos.diff() < 0
    begins = k_pos[..., 1:] == k_pos.amin(-1, keepdim=True)  # the next text
    if last.shape[-1] != q_pos.shape[-1] or (last != q_pos).any() or (falls & ~begins).any():
        raise ValueError(
            "Forgetting: k_pos must ascend, or begin again with the next text, and end with q_pos: "
            f"every token from key to query counts, got {q_pos} for {k_pos}"
        )
