"""Values that are rotated, and rotated back at the output.

RoPE tells the scores how far a key is, and says nothing to what is carried away. Rotate the values
as well, and undo the query's own rotation at the output: then each value arrives rotated by the
distance that it came from.
"""

from __future__ import annotations

from torch import Tensor

from pe_lib.encoding import PositionEncoding
from pe_lib.positions import Positions, as_positions, as_tensor
from pe_lib.rope import RoPE


class RotaryValues(PositionEncoding):
    """Rotate queries, keys and values, and the output back by the query's position.

    The output is the sum over j of A_ij R(j - i) v_j, with the rotations R of `rope`.

    Args:
        rope: what rotates, by angles that are proportional to the position: only then is the
            rotation of -p the inverse of that of p. A gain would scale the values too.

    Raises:
        TypeError: if rope is no `RoPE`, or one whose angles are not.
        ValueError: if its gain is not 1.

    Source: DeepSeek-AI 2026 (DeepSeek-V4), whose keys are its values.
    """

    rotates_once = True

    def __init__(self, rope: RoPE) -> None:
        """Keep the rotation."""
        super().__init__()
        plain = isinstance(rope, RoPE) and type(rope).rotate is RoPE.rotate and rope.axes == 1
        if not plain:
            raise TypeError(f"rope must be a plain RoPE, got {type(rope).__name__}")
        if rope.gain != 1.0:
            raise ValueError(f"rope must have the gain 1, got {rope.gain}")
        self.rope = rope

    def rotate(
        self, q: Tensor, k: Tensor, q_pos: Positions, k_pos: Positions
    ) -> tuple[Tensor, Tensor]:
        """Rotate q (B, H, Lq, d) and k (B, H, Lk, d) as RoPE does."""
        return self.rope.rotate(q, k, q_pos, k_pos)

    def rotate_values(self, v: Tensor, k_pos: Positions) -> Tensor:
        """Rotate v (B, H, Lk, d) by the keys' positions."""
        return self.rope.rotate(v, v, k_pos, k_pos)[1]

    def rotate_back(self, output: Tensor, q_pos: Positions) -> Tensor:
        """Rotate the output (B, H, Lq, d) back by the queries' positions."""
        q_pos = as_positions("q_pos", q_pos, output.shape[2], output.shape[0], output.device)
        return self.rope.rotate(output, output, back := -as_tensor(q_pos, output.device), back)[1]
