"""When two numbers count as equal: from the type that they were computed in, and how often."""

from __future__ import annotations

import torch

ROTATION = 8  # rounded operations of a rotation: frequency, angle, cosine, sine, products, a sum


def rounding(dtype: torch.dtype, operations: int = ROTATION) -> float:
    """Return by how much a result may be off, as a share of the largest number in it.

    Args:
        dtype: in which it is computed.
        operations: how many roundings follow one another; each adds half a unit in the last place,
            and twice that is allowed, since code may order its operations otherwise.
    """
    return operations * torch.finfo(dtype).eps
