"""Rotation of the last components of a head, as latent attention has it.

score_ij = scale (<q_i, k_j> of the first components + <R_i q_i, R_j k_j> of the last)

Latent attention (DeepSeek-V2) caches one short vector for all heads, from which keys without
positions are computed; a few more components, shared by the heads, are rotated and stand last.
"""

from torch import Tensor, cat

from pe_lib.encoding import HOOKS, PositionEncoding


class DecoupledRotation(PositionEncoding):
    """Let an encoding see only the last components of queries, keys and values.

    Args:
        encoding: acts through `rotate`, and maybe `rotate_values` and `rotate_back`. It has no
            scale of its own: that of the whole head counts.
        width: how many components it sees.

    Source: DeepSeek-AI 2024 (DeepSeek-V2), section 2.1.3.
    """

    def __init__(self, encoding: PositionEncoding, width: int) -> None:
        """Keep the encoding."""
        super().__init__()
        ours = ("rotate", "rotate_values", "rotate_back")
        wrong = [hook for hook in HOOKS if encoding.uses(hook) and hook not in ours]
        if wrong:
            raise ValueError(f"encoding must only rotate, got one that uses {', '.join(wrong)}")
        self.encoding, self.width = encoding, width
        if getattr(encoding, "head_dim", width) != width:  # it would see some of them only
            raise ValueError(f"encoding must have head_dim={width}, got {encoding.head_dim}")
        if encoding.scale is not None:
            raise ValueError(f"encoding must have no scale of its own, got {encoding.scale:g}")
        for name in ("cacheable_rotation", "causal_only", "is_linear", "scales_pairs", "n_heads"):
            if hasattr(encoding, name):
                setattr(self, name, getattr(encoding, name))

    def uses(self, hook: str) -> bool:
        """Return whether the encoding inside acts through the hook of that name."""
        return self.encoding.uses(hook)

    def rotate(self, q: Tensor, k: Tensor, q_pos: Tensor, k_pos: Tensor) -> tuple[Tensor, Tensor]:
        """Rotate the last components of q (B, H, Lq, d) and k (B, H, Lk, d)."""
        if self.width > q.shape[-1]:
            raise ValueError(f"q must have heads of width >= {self.width}, got {q.shape[-1]}")
        last = self.encoding.rotate(q[..., -self.width :], k[..., -self.width :], q_pos, k_pos)
        return self.replace_last(q, last[0]), self.replace_last(k, last[1])

    def rotate_values(self, v: Tensor, k_pos: Tensor) -> Tensor:
        """Rotate the last components of v (B, H, Lk, d)."""
        return self.replace_last(v, self.encoding.rotate_values(v[..., -self.width :], k_pos))

    def rotate_back(self, output: Tensor, q_pos: Tensor) -> Tensor:
        """Rotate the last components of the output (B, H, Lq, d) back."""
        return self.replace_last(
            output, self.encoding.rotate_back(output[..., -self.width :], q_pos)
        )

    def replace_last(self, x: Tensor, last: Tensor) -> Tensor:
        """Return x with other last components."""
        return cat([x[..., : -self.width], last], dim=-1)
