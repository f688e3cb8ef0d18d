"""Values that are rotated, and rotated back at the output.

output_i = sum over j of A_ij R(j - i) v_j,     with the rotations R of `pe_lib.rope`

RoPE tells the scores how far a key is, and says nothing to what is carried away. Rotate the values
as well, and undo the query's own rotation at the output: then each value arrives rotated by the
distance that it came from.
"""

from torch import Tensor

from pe_lib.encoding import PositionEncoding
from pe_lib.rope import RoPE


class RotaryValues(PositionEncoding):
    """Rotate queries, keys and values, and the output back by the query's position.

    Args:
        rope: a `RoPE` itself, whose angles are proportional to the position: only then is the
            rotation of -p the inverse of that of p. An attention factor would scale the values too.

    Source: DeepSeek-AI 2026 (DeepSeek-V4), whose keys are its values.
    """

    cacheable_rotation = True

    def __init__(self, rope: RoPE) -> None:
        """Keep the rotation."""
        super().__init__()
        if type(rope) is not RoPE:
            raise TypeError(f"rope must be a plain RoPE, got {type(rope).__name__}")
        if rope.attention_factor != 1.0:
            raise ValueError(f"rope must have the attention factor 1, got {rope.attention_factor}")
        self.rope = rope

    def rotate(self, q: Tensor, k: Tensor, q_pos: Tensor, k_pos: Tensor) -> tuple[Tensor, Tensor]:
        """Rotate q (B, H, Lq, d) and k (B, H, Lk, d) as RoPE does."""
        return self.rope.rotate(q, k, q_pos, k_pos)

    def rotate_values(self, v: Tensor, k_pos: Tensor) -> Tensor:
        """Rotate v (B, H, Lk, d) by the keys' positions."""
        return self.rope.rotated(v, k_pos)

    def rotate_back(self, output: Tensor, q_pos: Tensor) -> Tensor:
        """Rotate the output (B, H, Lq, d) back by the queries' positions."""
        return self.rope.rotated(output, -q_pos)
