"""Positions: a run of consecutive ones, any numbers in a tensor, or several numbers a token."""

import math
from dataclasses import dataclass
from typing import Annotated, Any, TypeAlias

import torch
from torch import Tensor, nn

from pe_lib.arguments import RULES, may_read, numbers, require_positive, require_shapes


@dataclass(frozen=True)
class Run:
    """The positions start, start + 1, ..., start + length - 1.

    Its ends are plain numbers, so that what is fast for consecutive positions can be chosen
    without looking at any: no device has to be waited for, and no graph breaks.
    """

    start: int
    length: int

    def __post_init__(self) -> None:
        """Raise unless both are ints, and the length at least 0."""
        for name, value, least in (("start", self.start, -math.inf), ("length", self.length, 0)):
            if not isinstance(value, torch.SymInt):  # a graph's own; NumPy's ints wrap around
                object.__setattr__(self, name, require_positive(name, value, least=least))

    @property
    def stop(self) -> int:
        """The position after the last."""
        return self.start + self.length

    @property
    def shape(self) -> tuple[int, ...]:
        """(length,)."""
        return (self.length,)

    def tensor(self, device: torch.device | str | None = None) -> Tensor:
        """Return the positions one by one, (length,)."""
        return torch.arange(self.start, self.stop, device=device)


Positions: TypeAlias = Run | Tensor


@dataclass(frozen=True, eq=False)
class Axes:
    """Positions of several numbers per token, such as a frame, a row and a column.

    Attributes:
        order: one number per token, a `Run`, (L,) or (B, L): what comes before what. Read by a
            causal mask, by biases, and by a rotation that is composed with one of the axes.
        numbers: (L, A) or (B, L, A), a row per token: what `PositionEncoding.rotate_axes` reads.
    """

    order: Positions
    numbers: Tensor

    def __post_init__(self) -> None:
        """Raise unless there is a row of finite numbers for each position."""
        object.__setattr__(self, "numbers", numbers("numbers", self.numbers))
        object.__setattr__(self, "order", order_of(as_positions("order", self.order)))
        shapes = {"numbers": "L A | B L A | 1 L A", "order": "L | B L | 1 L"}
        require_shapes({"numbers": self.numbers, "order": self.order}, shapes)

    @property
    def shape(self) -> tuple[int, ...]:
        """(L,) or (B, L)."""
        return tuple(torch.broadcast_shapes(self.numbers.shape[:-1], self.order.shape))


# As an argument they may be a `range` or a list too.
AnyPositions: TypeAlias = Annotated[Run | Tensor | Axes, "positions"]


def as_positions(name: str, positions: Any) -> Run | Tensor | Axes:
    """Return positions in one of their forms: a range with step 1 is a `Run`, a list a tensor.

    A tensor stays one, whatever it holds; one of integers is int64.
    """
    if isinstance(positions, range) and positions.step == 1:
        return Run(positions.start, len(positions))
    return positions if isinstance(positions, Run | Axes) else numbers(name, positions)


RULES["positions"] = as_positions


def order_of(positions: AnyPositions) -> Positions:
    """Return one number per token: what comes before what."""
    return positions.order if isinstance(positions, Axes) else positions


def as_tensor(positions: Any, device: torch.device | None = None) -> Any:
    """Return a run or a range as a tensor, (L,), and anything else as it is."""
    run = isinstance(positions, Run | range)
    return numbers("positions", positions, device) if run else positions


def following(positions: AnyPositions, length: int) -> AnyPositions:
    """Return the `length` positions that come after; behind axes, text: one more on every axis.

    Source: Wang et al. 2024 (Qwen2-VL), section 2.1: text goes on after the largest number.
    """
    if isinstance(positions, Run):
        return Run(positions.stop, length)
    if isinstance(positions, Axes):
        largest = positions.numbers.amax(dim=(-2, -1))[..., None]  # (1,) or (B, 1)
        next_ones: Any = following(largest, length)  # (..., length)
        rows = torch.stack([next_ones] * positions.numbers.shape[-1], dim=-1)
        return Axes(order_of(following(positions.order, length)), rows)
    steps = torch.arange(1, length + 1, device=positions.device)
    return positions[..., -1:] + steps  # (length,) or (B, length)


def own(positions: AnyPositions) -> AnyPositions:
    """Return positions that change with no one else's."""
    if isinstance(positions, Axes):
        return Axes(order_of(own(positions.order)), positions.numbers.clone())
    return positions.clone() if isinstance(positions, Tensor) else positions


def joined(first: AnyPositions, second: AnyPositions, device: torch.device) -> AnyPositions:
    """Return one after the other: a run if they are two that meet, else tensors."""
    if first.shape[-1] == 0:
        return own(second)
    axes = [each.numbers.shape[-1] if isinstance(each, Axes) else 0 for each in (first, second)]
    if axes[0] != axes[1]:
        raise ValueError(f"positions must go on with the axes of the cached ones, got {axes}")
    if isinstance(first, Axes) and isinstance(second, Axes):
        order = order_of(joined(first.order, second.order, device))
        return Axes(order, end_to_end(first.numbers, second.numbers, dim=-2))
    if isinstance(first, Run) and isinstance(second, Run):
        if second.start < first.stop:  # a cache in two layers, or a token twice
            raise ValueError(
                f"q_pos must come after the cached positions, which end at {first.stop - 1}, got "
                f"{second}; each layer has a cache of its own, and each token is given once"
            )
        if second.start == first.stop:
            return Run(first.start, first.length + second.length)
    one, other = (numbers("positions", each, device) for each in (first, second))
    return end_to_end(one, other, dim=-1)


def end_to_end(first: Tensor, second: Tensor, dim: int) -> Tensor:
    """Concatenate along `dim`, counted from the end, after expanding what stands before it."""
    batch = torch.broadcast_shapes(first.shape[:dim], second.shape[:dim])
    if first.dtype != second.dtype:  # integers and float32: that would round large integers
        first, second = exact(first), exact(second)
    return torch.cat([part.expand(*batch, *part.shape[dim:]) for part in (first, second)], dim=dim)


def relative_position(
    q_pos: Positions | range, k_pos: Positions | range, device: torch.device | None = None
) -> Tensor:
    """Return key position minus query position for every pair.

    Args:
        q_pos: positions of the queries, (Lq,) or (B, Lq).
        k_pos: positions of the keys, (Lk,) or (B, Lk).
        device: where the result of two runs is wanted.

    Returns:
        (Lq, Lk), or (B, Lq, Lk) if either has a batch axis; negative where the key is left.
    """
    queries, keys = (numbers("positions", each, device) for each in (q_pos, k_pos))
    return keys.unsqueeze(-2) - queries.unsqueeze(-1)


def per_head(pairwise: Tensor) -> Tensor:
    """Give a (Lq, Lk) or (B, Lq, Lk) tensor an axis for the heads: (..., 1, Lq, Lk)."""
    return pairwise.unsqueeze(-3)


def all_past(q_pos: Positions, k_pos: Positions) -> bool:
    """Return whether two runs tell that no key comes later than any query."""
    return isinstance(q_pos, Run) and isinstance(k_pos, Run) and k_pos.stop <= q_pos.start + 1


def allowed_pairs(
    q_pos: Positions, k_pos: Positions, causal: bool, mask: Tensor | None, device: torch.device
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
    """
    if not causal or all_past(q_pos, k_pos):
        return mask
    past = per_head(relative_position(q_pos, k_pos, device) <= 0)
    return past if mask is None else past & mask


def shows_later(q_pos: Positions, k_pos: Positions, mask: Tensor | None) -> bool:
    """Return whether a key that comes after its query is seen, as far as a mask may be read."""
    if all_past(q_pos, k_pos):
        return False
    if mask is None or not may_read(mask):
        return mask is None
    later = per_head(relative_position(q_pos, k_pos, mask.device) > 0)
    return bool((later & mask).any())


def exact(values: Tensor) -> Tensor:
    """Return `values` in float64, on the processor where their device has none (Apple's GPUs)."""
    return (values.cpu() if values.device.type == "mps" else values).double()


def sent(constant: Tensor, device: torch.device) -> Tensor:
    """Return a constant of the processor on `device`, without waiting for what runs there.

    Memory that is not pinned is copied before the call returns. Apple's GPUs do not promise so.
    """
    return constant.to(device, non_blocking=device.type != "mps")


def kept_or_trained(
    name: str, values: Tensor, n_pairs: int, head_dim: int, rotary_dim: int | None
) -> Tensor:
    """Return a parameter, or a copy of constants on the processor; or raise if they do not fit."""
    width = head_dim if rotary_dim is None else rotary_dim
    if width > head_dim or width != 2 * n_pairs:
        raise ValueError(
            f"{name} must have {width / 2:g} pairs and fit into head_dim={head_dim}, got {n_pairs} "
            f"(rotary_dim={rotary_dim})"
        )
    if values.requires_grad and not isinstance(values, nn.Parameter):
        raise ValueError(f"{name} must be an nn.Parameter if trained, got what was made of one")
    return values if isinstance(values, nn.Parameter) else values.detach().cpu().clone()
