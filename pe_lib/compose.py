"""Several position encodings as one."""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterable
from typing import Any

from torch import Tensor, nn

from pe_lib.arguments import require_kind
from pe_lib.encoding import PositionEncoding


def total(terms: Iterable[Tensor | None]) -> Tensor | None:
    """Return the sum of the terms that there are, or None."""
    given = [term for term in terms if term is not None]
    return sum(given[1:], given[0]) if given else None


def added(hook: str) -> Callable[..., Any]:
    """Return a hook that sums up what the members return that use it."""

    @functools.wraps(getattr(PositionEncoding, hook))
    def call(self: Compose, **given: Any) -> Tensor | None:
        return total(getattr(each, hook)(**given) for each in self.members() if each.uses(hook))

    return call


class Compose(PositionEncoding):
    """Use several encodings together.

    What they add to the input, to the logits and to the values adds up; rotations follow one
    another, the first given first, and are undone in reverse. A scale of None agrees with every
    scale. One of them at most may read hidden states, and one have a sink; one whose rotation is
    not linear must come before others that rotate, and one that fades with distance after them.

    Args:
        encodings: at least one `PositionEncoding`.
    """

    def __init__(self, *encodings: PositionEncoding) -> None:
        """Check that the scales agree."""
        super().__init__()
        for encoding in encodings:
            require_kind("encodings", encoding, PositionEncoding, "a PositionEncoding")
        parts = [part for encoding in encodings for part in encoding.parts()]
        if not encodings or len(set(parts)) < len(parts):
            raise ValueError(f"encodings must be at least one, each once; got {len(encodings)}")
        scales = {encoding.scale for encoding in encodings if encoding.scale is not None}
        if len(scales) > 1:
            raise ValueError(f"encodings must agree on the scale, got {sorted(scales)}")
        for hook in ("read", "sink"):
            users = [type(each).__name__ for each in encodings if each.uses(hook)]
            if len(users) > 1:
                raise ValueError(f"encodings must have one at most with `{hook}`, got {users}")
        rotating = [part for part in parts if part.uses("rotate")]
        if wrong := [type(part).__name__ for part in rotating[1:] if not part.linear]:
            raise ValueError(f"encodings must have {wrong[0]} before all that rotate")
        if wrong := [type(part).__name__ for part in rotating[:-1] if part.fades]:
            raise ValueError(f"encodings must have {wrong[0]} after all that rotate")
        self.scale = scales.pop() if scales else None
        self.past_only = any(part.past_only for part in parts)
        self.encodings = nn.ModuleList(encodings)
        self.rotates_once = all(part.rotates_once for part in parts)

    def members(self) -> list[PositionEncoding]:
        """Return the encodings in order."""
        return [member for member in self.encodings if isinstance(member, PositionEncoding)]

    def parts(self) -> list[PositionEncoding]:
        """Return all encodings in order, those of members that are composed one by one."""
        return [part for member in self.members() for part in member.parts()]

    def uses(self, hook: str) -> bool:
        """Return whether a member uses the hook of that name."""
        return any(member.uses(hook) for member in self.members())

    bias, values, sink = added("bias"), added("values"), added("sink")
    read, read_bias = added("read"), added("read_bias")

    def embed(self, x: Tensor, positions: Tensor) -> Tensor:
        """Add what every encoding adds to x (B, L, D)."""
        for encoding in self.members():
            x = encoding.embed(x, positions)
        return x

    def rotate(self, q: Tensor, k: Tensor, q_pos: Tensor, k_pos: Tensor) -> tuple[Tensor, Tensor]:
        """Rotate q and k by every encoding in order."""
        for encoding in self.members():
            q, k = encoding.rotate(q, k, q_pos, k_pos)
        return q, k

    def rotate_axes(
        self, q: Tensor, k: Tensor, q_axes: Tensor, k_axes: Tensor
    ) -> tuple[Tensor, Tensor]:
        """Rotate q and k by every encoding that reads the axes; attention calls all in turn."""
        for encoding in self.members():
            q, k = encoding.rotate_axes(q, k, q_axes, k_axes)
        return q, k

    def rotate_values(self, v: Tensor, k_pos: Tensor) -> Tensor:
        """Rotate v by every encoding in order."""
        for encoding in self.members():
            v = encoding.rotate_values(v, k_pos)
        return v

    def rotate_back(self, output: Tensor, q_pos: Tensor) -> Tensor:
        """Rotate the output by every encoding, the last given first."""
        for encoding in reversed(self.members()):
            output = encoding.rotate_back(output, q_pos)
        return output
