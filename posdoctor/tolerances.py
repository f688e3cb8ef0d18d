"""When two numbers count as equal: from the type that they were computed in, and how often."""

from __future__ import annotations

import torch

ROTATION = 8  # rounded operations of a rotation: frequency, angle, cosine, sine, products, a sum
LOST = 0.1  # radians: an angle is wrong, since cosines in bfloat16 leave less (rounding says 0.06)
RECOGNISED = 1e-3  # a fitted number this near to a published one is taken for it


def rounding(dtype: torch.dtype, operations: int = ROTATION) -> float:
    """Return by how much a result may be off, as a share of the largest number in it.

    Args:
        dtype: in which it is computed.
        operations: how many roundings follow one another; each adds half a unit in the last place,
            and twice that is allowed, since code may order its operations otherwise.
    """
    return operations * torch.finfo(dtype).eps


def turning(position: float, dtype: torch.dtype = torch.float32) -> float:
    """Return by how many radians an angle at a position may be off, at one radian a position.

    The frequency, the position, their product and the sum of a chunk are each rounded.
    """
    return rounding(dtype, 4) * (1 + position)


EXACT = rounding(torch.float32)  # the same operations on the same numbers
CLOSE = turning(512)  # frequencies that a rule gives: powers and logarithms add their roundings
