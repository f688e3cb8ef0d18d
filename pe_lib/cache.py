"""The keys and values of earlier tokens: what a decoder keeps from step to step."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from pe_lib.encoding import as_positions, order_of, to_float64


class KVCache:
    """The keys, values and positions that earlier calls of one layer have produced.

    Keys are kept as projected, or rotated if the encoding has a `cacheable_rotation`. Where no
    gradients are recorded the cache grows in place: a new token costs no copy of the old ones. What
    it holds may be cut or reordered: set `keys`, `values` and `positions`, and `hidden` where there
    is one.
    """

    def __init__(self) -> None:
        """Start empty."""
        self.keys: Any = None  # (B, heads, L, d)
        self.values: Any = None  # (B, heads, L, d)
        self.hidden: Any = None  # (B, H, L, n), of an encoding with `project_hidden`
        self.at: Tensor | int = 0  # the positions, or the int where consecutive ones begin
        self.end = 0  # the int after the last of these
        self.layer: int | None = None  # the id of the one that it belongs to
        self.buffers: tuple[Buffer | None, ...] = (None, None, None)  # of keys, values, hidden

    def __len__(self) -> int:
        """Return how many keys are held."""
        return 0 if self.keys is None else self.keys.shape[2]

    def __bool__(self) -> bool:
        """Return True: an empty cache is one, for whoever asks `if cache`."""
        return True

    def __getstate__(self) -> dict[str, Any]:
        """Return what a copy gets: it may go on in a copy of the layer."""
        return vars(self) | {"layer": None}

    @property
    def positions(self) -> Tensor:
        """Return the positions of the keys, (L,), (B, L) or (1 + A, B, L)."""
        at = self.at
        if isinstance(at, Tensor):
            return at
        device = None if self.keys is None else self.keys.device
        return torch.arange(at, self.end, device=device)

    @positions.setter
    def positions(self, positions: Tensor) -> None:
        self.at = positions

    def next_positions(self, length: int) -> Tensor | int:
        """Return the `length` positions after those held; an int where these are consecutive.

        After tokens with several numbers the next ones are text: all axes have the same number, one
        more than the largest so far.

        Source: Wang et al. 2024 (Qwen2-VL), section 2.1, for several numbers.
        """
        if not isinstance(self.at, Tensor):
            return self.end
        last = self.at[..., -1:]  # (1,), (B, 1) or (1 + A, B, 1)
        largest = order_of(self.at).amax(-1, keepdim=True)
        if not torch.compiler.is_compiling() and (order_of(last) != largest).any():
            raise ValueError("q_pos must be given: the last cached position is not the largest")
        if last.ndim == 3:
            largest = self.at[1:].amax(dim=(0, -1))[None, :, None]  # (1, B, 1)
            last = torch.cat([last[:1], largest.expand_as(last[1:])])
        return last + torch.arange(1, length + 1, device=last.device)

    def append(
        self, k: Tensor, v: Tensor, k_pos: Tensor | int, hidden: Tensor | None = None
    ) -> KVCache:
        """Return a cache that holds these keys and values too; this one stays as it is.

        Args:
            k: (B, heads, n, d).
            v: (B, heads, n, d).
            k_pos: their positions, (n,), (B, n) or (1 + A, B, n), or the first of consecutive ones.
            hidden: what the encoding projects of their hidden states, (B, H, n, ...).
        """
        grown = KVCache()
        grown.layer, grown.at = self.layer, self.positions_with(k_pos, k)
        grown.keys, keys = extended(self.keys, k, self.buffers[0])
        grown.values, values = extended(self.values, v, self.buffers[1])
        grown.hidden, projected = extended(self.hidden, hidden, self.buffers[2])
        grown.end = 0 if isinstance(grown.at, Tensor) else grown.at + grown.keys.shape[2]
        grown.buffers = keys, values, projected
        return grown

    def replace_with(self, other: KVCache, layer: int) -> None:
        """Hold what another cache holds, for the layer of that id."""
        self.keys, self.values, self.hidden = other.keys, other.values, other.hidden
        self.at, self.end, self.buffers, self.layer = other.at, other.end, other.buffers, layer

    def positions_with(self, k_pos: Tensor | int, k: Tensor) -> Tensor | int:
        """Return the positions held and those of k (B, heads, n, d): an int if all follow."""
        if self.keys is None:  # a tensor of the caller may change
            start = isinstance(k_pos, (int, torch.SymInt))
            return k_pos if start else as_positions(k_pos, k).clone()
        if not isinstance(self.at, Tensor) and self.end != self.at + self.keys.shape[2]:
            raise ValueError("cache.positions must be set, too, where keys are cut")
        if not isinstance(k_pos, Tensor) and not isinstance(self.at, Tensor):
            if k_pos < self.end:
                raise ValueError(
                    f"q_pos must come after the cached positions, which end at {self.end - 1}, got "
                    f"{k_pos}: each token is given once, and each layer has a cache of its own"
                )
            if k_pos == self.end:
                return self.at
        return joined(self.positions, as_positions(k_pos, k))


def joined(first: Tensor, second: Tensor) -> Tensor:
    """Concatenate positions, (L,), (B, L) or (1 + A, B, L), along the last axis."""
    if max(first.ndim, second.ndim) == 3 and first.shape[:-2] != second.shape[:-2]:
        raise ValueError(
            f"positions must go on with the axes of the cached ones, {tuple(first.shape)}, got "
            f"{tuple(second.shape)}"
        )
    if first.dtype != second.dtype:  # PyTorch would round large integers to float32
        first, second = to_float64(first), to_float64(second)
    batch = torch.broadcast_shapes(first.shape[:-1], second.shape[:-1])
    return torch.cat([part.expand(*batch, -1) for part in (first, second)], dim=-1)


SPARE = 256  # rows for which a buffer has room beyond those that it is made for


@dataclass(eq=False)
class Buffer:
    """Memory that is larger than what it holds."""

    memory: Tensor  # (B, heads, more than L, d)
    rows: Tensor  # (B, heads, L, d), its beginning: the tensor that was handed out last


def extended(
    rows: Tensor | None, more: Tensor | None, buffer: Buffer | None
) -> tuple[Tensor | None, Buffer | None]:
    """Return torch.cat([rows, more], dim=2), without copying the rows if a buffer has room.

    A buffer is used only if `rows` is the tensor that it returned last. Rows that were cut or
    reordered since, or that a second cache has extended, are copied to a new buffer.
    """
    if rows is None or more is None:
        return more, None
    length = rows.shape[2] + more.shape[2]
    if more.shape[:2] != rows.shape[:2]:  # a smaller batch would be written to all
        raise ValueError(f"keys must have the batch of the cached ones, {rows.shape[0]}")
    recorded = torch.is_grad_enabled() or torch.compiler.is_compiling()
    if recorded or more.dtype != rows.dtype:
        return torch.cat([rows, more], dim=2), None
    if buffer is None or buffer.rows is not rows or not writable(buffer, length):
        buffer = Buffer(rows.new_empty(*rows.shape[:2], length + SPARE, rows.shape[3]), rows)
        buffer.memory[:, :, : rows.shape[2]] = rows
    buffer.memory[:, :, rows.shape[2] : length] = more
    buffer.rows = buffer.memory[:, :, :length]
    return buffer.rows, buffer


def writable(buffer: Buffer, length: int) -> bool:
    """Return whether `length` rows have room, and may be written in this mode of autograd."""
    inference = torch.is_inference_mode_enabled() or not buffer.memory.is_inference()
    return length <= buffer.memory.shape[2] and inference
