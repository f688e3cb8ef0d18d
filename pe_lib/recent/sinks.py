"""Attention sinks: one more logit in the denominator, so that a head may look at nothing.

A_ij = exp(score_ij) / (exp(s) + sum over l of exp(score_il)),     s trained for each head

A softmax must spend all of its weight. A head with nothing to find spends it on some token, often
the first. A logit of its own takes that weight instead, and has no value.
"""

from torch import Tensor, nn

from pe_lib.encoding import PositionEncoding
from pe_lib.initial import normal


class Sink(PositionEncoding):
    """Give each head a trained logit that stands in the softmax beside those of the keys.

    It tells nothing about order; with `Compose` it joins an encoding that does.

    Args:
        n_heads: number of heads H.
        std: standard deviation of the initial logits.

    Source: OpenAI 2025 (gpt-oss model card, section 2.2); Miller 2023 has the constant 0.
    """

    cacheable_rotation = True

    def __init__(self, n_heads: int, std: float = 0.02) -> None:
        """Draw the logits."""
        super().__init__()
        self.n_heads = n_heads
        self.logits = nn.Parameter(normal(n_heads, std=std))

    def sink(self, q: Tensor, q_pos: Tensor) -> Tensor:
        """Return the logits, (H, 1, 1)."""
        return self.logits[:, None, None]
