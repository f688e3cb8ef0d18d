"""Several position encodings as one."""

from __future__ import annotations

from torch import Tensor, nn

from pe_lib.attention import PositionEncoding


class Compose(PositionEncoding):
    """Use several encodings together.

    What they add to the input, to the logits and to the values adds up; rotations follow one
    another, the first given first. A scale of None agrees with every scale. The common scale is
    set on every member, because a bias that contains q or k multiplies by it.

    Args:
        encodings: at least one `PositionEncoding`.

    Raises:
        TypeError: if one is not a `PositionEncoding`.
        ValueError: if there is none, one is given twice, or two have different scales.
    """

    def __init__(self, *encodings: PositionEncoding) -> None:
        """Check that the scales agree."""
        super().__init__()
        for encoding in encodings:
            if not isinstance(encoding, PositionEncoding):
                raise TypeError(
                    f"encodings must be PositionEncoding, got {type(encoding).__name__}"
                )
        if not encodings or len(set(encodings)) < len(encodings):
            raise ValueError(f"encodings must be at least one, each once; got {len(encodings)}")
        scales = {encoding.scale for encoding in encodings if encoding.scale is not None}
        if len(scales) > 1:
            raise ValueError(f"encodings must agree on the scale, got {sorted(scales)}")
        self.scale = scales.pop() if scales else None
        for encoding in encodings:
            encoding.scale = self.scale
        self.uses_values = any(encoding.uses_values for encoding in encodings)
        self.encodings = nn.ModuleList(encodings)

    def members(self) -> list[PositionEncoding]:
        """Return the encodings in order."""
        return [member for member in self.encodings if isinstance(member, PositionEncoding)]

    def embed(self, x: Tensor, positions: Tensor) -> Tensor:
        """Add what every encoding adds to x (B, L, D)."""
        for encoding in self.members():
            x = encoding.embed(x, positions)
        return x

    def rotate(self, q: Tensor, k: Tensor, q_pos: Tensor, k_pos: Tensor) -> tuple[Tensor, Tensor]:
        """Turn q and k by every encoding in order."""
        for encoding in self.members():
            q, k = encoding.rotate(q, k, q_pos, k_pos)
        return q, k

    def bias(self, q: Tensor, k: Tensor, q_pos: Tensor, k_pos: Tensor) -> Tensor | None:
        """Return the sum of the biases, or None if no encoding has one."""
        total: Tensor | None = None
        for encoding in self.members():
            bias = encoding.bias(q, k, q_pos, k_pos)
            if bias is not None:
                total = bias if total is None else total + bias
        return total

    def flipped_bias(
        self, q: Tensor, k: Tensor, q_pos: Tensor, k_pos: Tensor, causal: bool
    ) -> Tensor | None:
        """Return the shortcut of the only encoding that has a bias; None if there are more."""
        biased = [
            encoding
            for encoding in self.members()
            if type(encoding).bias is not PositionEncoding.bias
        ]
        return biased[0].flipped_bias(q, k, q_pos, k_pos, causal) if len(biased) == 1 else None

    def values(self, weights: Tensor, q_pos: Tensor, k_pos: Tensor) -> Tensor | None:
        """Return the sum of what is added to the outputs, or None."""
        total: Tensor | None = None
        for encoding in self.members():
            extra = encoding.values(weights, q_pos, k_pos) if encoding.uses_values else None
            if extra is not None:
                total = extra if total is None else total + extra
        return total
