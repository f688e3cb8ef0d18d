"""Positions: a run of consecutive ones, or any numbers in a tensor."""

from __future__ import annotations

from dataclasses import dataclass
from numbers import Integral
from typing import TypeAlias

import torch
from torch import Tensor

from pe_lib.errors import require_integers, require_real


@dataclass(frozen=True)
class Run:
    """The positions start, start + 1, ..., start + length - 1.

    Its ends are plain numbers. What is fast for consecutive positions can therefore be chosen
    without looking at any: no device has to be waited for, and no graph breaks.
    """

    start: int
    length: int

    def __post_init__(self) -> None:
        """Raise unless both are ints, and the length at least 0."""
        for name, value in (("start", self.start), ("length", self.length)):
            if isinstance(value, bool) or not isinstance(value, Integral | torch.SymInt):
                raise TypeError(f"{name} must be an int, got {type(value).__name__}")
        if self.length < 0:
            raise ValueError(f"length must be at least 0, got {self.length}")

    @property
    def stop(self) -> int:
        """The position after the last."""
        return self.start + self.length

    def tensor(self, device: torch.device | str | None = None) -> Tensor:
        """Return the positions one by one, (length,)."""
        return torch.arange(self.start, self.stop, device=device)


Positions: TypeAlias = Run | Tensor


def as_positions(
    name: str,
    positions: object,
    length: int,
    batch: int | None = None,
    device: torch.device | None = None,
    *,
    integers: bool = False,
) -> Positions:
    """Return positions in one of their two forms: a `Run`, or a tensor (L,) or (B, L).

    Args:
        name: the argument, for messages.
        positions: a `Run`, a `range`, or real numbers. A tensor stays one, whatever it holds.
        length: how many there must be.
        batch: how many sequences there are; None allows any number.
        device: where a tensor is wanted; where it is if None.
        integers: refuse fractions.

    Returns:
        `Run` for a range with step 1. A tensor of integers is int64, whatever it was.

    Raises:
        TypeError: if positions are not real numbers, or fractions where integers are wanted.
        ValueError: if there are more or fewer, or one is not finite.
    """
    if isinstance(positions, range):
        if positions.step == 1:
            positions = Run(positions.start, len(positions))
        else:
            positions = torch.tensor(list(positions), device="cpu")
    if isinstance(positions, Run):
        if positions.length != length:
            raise ValueError(f"{name} must be {length} positions, got {positions}")
        return positions
    tensor = (require_integers if integers else require_real)(name, positions)
    wrong_batch = tensor.ndim == 2 and batch is not None and len(tensor) not in (1, batch)
    if tensor.ndim not in (1, 2) or tensor.shape[-1] != length or wrong_batch:
        raise ValueError(
            f"{name} must have shape ({length},) or ({'batch' if batch is None else batch}, "
            f"{length}), got {tuple(tensor.shape)}"
        )
    return tensor if device is None else tensor.to(device)


def count(positions: object) -> int:
    """Return how many positions there are, in any form that `as_positions` takes."""
    if isinstance(positions, Run):
        return positions.length
    if isinstance(positions, range):
        return len(positions)
    shape = require_real("positions", positions).shape
    return shape[-1] if shape else 1


def as_tensor(positions: Positions, device: torch.device | None = None) -> Tensor:
    """Return positions as a tensor, (L,) or (B, L)."""
    return positions.tensor(device) if isinstance(positions, Run) else positions


def in_float64(values: Tensor) -> Tensor:
    """Return `values` in float64, on the processor where their device has none (Apple's GPUs)."""
    return (values.cpu() if values.device.type == "mps" else values).double()


def sent(constant: Tensor, device: torch.device) -> Tensor:
    """Return a constant of the processor on `device`, without waiting for what runs there.

    Memory that is not pinned is copied before the call returns. Apple's GPUs do not promise so.
    """
    return constant.to(device, non_blocking=device.type != "mps")


def relative_position(
    q_pos: Positions, k_pos: Positions, device: torch.device | None = None
) -> Tensor:
    """Return key position minus query position for every pair.

    Args:
        q_pos: positions of the queries, (Lq,) or (B, Lq).
        k_pos: positions of the keys, (Lk,) or (B, Lk).
        device: where the result of two runs is wanted.

    Returns:
        (Lq, Lk), or (B, Lq, Lk) if either has a batch axis; negative where the key is left.
    """
    queries, keys = (require_real("positions", as_tensor(p, device)) for p in (q_pos, k_pos))
    return keys.unsqueeze(-2) - queries.unsqueeze(-1)


def per_head(pairwise: Tensor) -> Tensor:
    """Give a (Lq, Lk) or (B, Lq, Lk) tensor an axis for the heads: (..., 1, Lq, Lk)."""
    return pairwise.unsqueeze(-3)


def all_past(q_pos: Positions, k_pos: Positions) -> bool:
    """Return whether two runs tell that no key comes later than any query."""
    return isinstance(q_pos, Run) and isinstance(k_pos, Run) and k_pos.stop <= q_pos.start + 1


def allowed_pairs(
    q_pos: Positions,
    k_pos: Positions,
    causal: bool,
    mask: Tensor | None = None,
    device: torch.device | None = None,
) -> Tensor | None:
    """Return which query may look at which key, or None if every one may.

    Args:
        q_pos: Lq positions.
        k_pos: Lk positions.
        causal: hide keys whose position is greater than the query's.
        mask: bool, broadcastable to (B, H, Lq, Lk); False hides a key.
        device: where the result is wanted.

    Returns:
        bool, broadcastable to (B, H, Lq, Lk).

    Raises:
        TypeError: if mask is not a bool tensor.
    """
    if not isinstance(mask, Tensor | None) or (mask is not None and mask.dtype != torch.bool):
        got = mask.dtype if isinstance(mask, Tensor) else type(mask).__name__
        raise TypeError(f"mask must have dtype torch.bool (True: may look), got {got}")
    if not causal or all_past(q_pos, k_pos):
        return mask
    past = per_head(relative_position(q_pos, k_pos, device) <= 0)
    return past if mask is None else past & mask
