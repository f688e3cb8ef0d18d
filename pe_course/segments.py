"""A long text in segments, each with a memory of the last (Transformer-XL, chapter 6)."""

from collections.abc import Sequence

import torch
from torch import Tensor, nn

from pe_course import checks


class SegmentMemory:
    """The last hidden states that entered a layer, kept for the next segment.

    Args:
        length: how many states to keep, M; 0 keeps none.
    """

    def __init__(self, length: int) -> None:
        """Start empty, at position 0."""
        self.length, self.position = checks.integer("memory_length", length, least=0), 0
        self.states: Tensor | None = None  # (B, up to M, D)

    def extend(self, x: Tensor) -> tuple[Tensor, int, int]:
        """Put the memory before a segment, and keep the end of both, cut from the gradient.

        Args:
            x: hidden states of the segment, (B, L, D).

        Returns:
            context (B, up to M + L, D), the first position of x, and that of the context.
        """
        context = x
        if self.states is not None:
            context = torch.cat([self.states, x], dim=1)
        self.position += x.shape[1]
        self.states = context[:, max(0, context.shape[1] - self.length) :].detach()
        return context, self.position - x.shape[1], self.position - context.shape[1]


def run_segments(
    layers: Sequence[nn.Module], x: Tensor, segment_length: int, memory_length: int
) -> Tensor:
    """Run a stack of layers over a long sequence, segment by segment.

    Each layer sees its segment and the last `memory_length` states that entered it before;
    a stack of N layers so reaches N * memory_length positions back.

    Args:
        layers: modules called as `layer(x, context=..., q_pos=..., k_pos=...)`, like
            `MultiHeadAttention`.
        x: (B, L, D).
        segment_length: positions per segment.
        memory_length: states kept by each layer.

    Returns:
        (B, L, D). No gradient passes from one segment to an earlier one.

    Source: Dai et al. 2019, section 3.2.
    """
    memories = [SegmentMemory(memory_length) for _ in layers]
    outputs = []
    for segment in torch.split(x, segment_length, dim=1):
        for layer, memory in zip(layers, memories, strict=True):
            context, q_pos, k_pos = memory.extend(segment)
            segment = layer(segment, context=context, q_pos=q_pos, k_pos=k_pos)
        outputs.append(segment)
    return torch.cat(outputs, dim=1)  # (B, L, D)
