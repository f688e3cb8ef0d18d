"""Several position encodings as one."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from torch import Tensor, nn

from pe_lib.encoding import PositionEncoding


def total(terms: Iterable[Tensor | None]) -> Tensor | None:
    """Return the sum of the terms that there are, or None."""
    given = [term for term in terms if term is not None]
    return sum(given[1:], given[0]) if given else None


class Compose(PositionEncoding):
    """Use several encodings together.

    What they add to the input, to the logits and to the values adds up; rotations follow one
    another, the first given first, and are undone in reverse. A scale of None agrees with every
    scale. One of them at most may read hidden states, and one have a sink; one whose rotation is
    not linear must come before others that rotate, and one that fades with distance after them.

    Args:
        encodings: at least one `PositionEncoding`.
    """

    cacheable_rotation = True  # False in a subclass that overrides a hook; else up to the parts

    def __init__(self, *encodings: PositionEncoding) -> None:
        """Raise if together they would not be what each is."""
        super().__init__()
        self.encodings = nn.ModuleList(encodings)
        parts = self.parts()
        if not parts or len(set(parts)) < len(parts):
            raise ValueError(f"encodings must be at least one, each once; got {len(encodings)}")
        scales = {part.scale for part in parts if part.scale is not None}
        if len(scales) > 1:
            raise ValueError(f"encodings must agree on the scale, got {sorted(scales)}")
        for hook in ("project_hidden", "sink"):
            users = [type(part).__name__ for part in parts if part.uses(hook)]
            if len(users) > 1:
                raise ValueError(f"encodings must have one at most with `{hook}`, got {users}")
        rotating = [part for part in parts if part.uses("rotate")]
        if wrong := [type(part).__name__ for part in rotating[1:] if not part.is_linear]:
            raise ValueError(f"encodings must have {wrong[0]} before all that rotate")
        if wrong := [type(part).__name__ for part in rotating[:-1] if part.scales_pairs]:
            raise ValueError(f"encodings must have {wrong[0]} after all that rotate")
        self.scale = scales.pop() if scales else None
        self.causal_only = any(part.causal_only for part in parts)
        self.cacheable_rotation = self.cacheable_rotation and all(
            part.cacheable_rotation for part in parts
        )

    def members(self) -> list[PositionEncoding]:
        """Return the encodings in order."""
        return [member for member in self.encodings if isinstance(member, PositionEncoding)]

    def parts(self) -> list[PositionEncoding]:
        """Return all encodings in order, those of members that are composed one by one."""
        return [part for member in self.members() for part in member.parts()]

    def uses(self, hook: str) -> bool:
        """Return whether a member uses the hook of that name, or a subclass overrides it."""
        written = getattr(type(self), hook) is not getattr(Compose, hook)
        return written or any(member.uses(hook) for member in self.members())

    def added(self, hook: str, *inputs: Any) -> Tensor | None:
        """Return the sum of what the members return that use a hook, or None."""
        return total(getattr(each, hook)(*inputs) for each in self.members() if each.uses(hook))

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
        """Rotate q and k by every encoding that reads several numbers per token."""
        for encoding in self.members():
            q, k = encoding.rotate_axes(q, k, q_axes, k_axes)
        return q, k

    def bias(
        self, q: Tensor, k: Tensor, q_pos: Tensor, k_pos: Tensor, scale: float
    ) -> Tensor | None:
        """Return the sum of the biases."""
        return self.added("bias", q, k, q_pos, k_pos, scale)

    def consecutive_bias(
        self, q: Tensor, k: Tensor, q_start: int, k_start: int, scale: float
    ) -> Tensor | None:
        """Return the sum of the biases between consecutive positions."""
        inputs = q, k, q_start, k_start, scale
        return total(each.consecutive_bias(*inputs) for each in self.members() if each.uses("bias"))

    def values(self, weights: Tensor, q_pos: Tensor, k_pos: Tensor) -> Tensor | None:
        """Return the sum of what is added to the outputs."""
        return self.added("values", weights, q_pos, k_pos)

    def project_hidden(self, x: Tensor) -> Tensor | None:
        """Return what the one projects that does so."""
        return self.added("project_hidden", x)

    def hidden_bias(
        self, q_hidden: Tensor, k_hidden: Tensor, q_pos: Tensor, k_pos: Tensor
    ) -> Tensor | None:
        """Return what it makes of that."""
        return self.added("hidden_bias", q_hidden, k_hidden, q_pos, k_pos)

    def sink(self, q: Tensor, q_pos: Tensor) -> Tensor | None:
        """Return the logit of the one that has a sink."""
        return self.added("sink", q, q_pos)

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
