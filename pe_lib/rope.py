"""Rotary position embedding: rotate each pair of a query's and a key's components (chapter 10).

    (a, b) at position p becomes (a cos(p w) - b sin(p w), a sin(p w) + b cos(p w)),
    with w = base ** (-2j / d) for pair j

Two rotations leave a product that depends on the difference of their angles, so the score
sees the relative position although each vector is rotated by its own.
"""

from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor, nn

from pe_lib.encoding import PositionEncoding, per_head, to_float64
from pe_lib.sinusoidal import arrange, frequencies


def rope_angles(positions: Tensor, inv_freq: Tensor) -> Tensor:
    """Return the angle of each pair at each position, in radians.

    Args:
        positions: real numbers of any shape: integers, fractions, negative ones too.
        inv_freq: (n,) frequencies in radians per position; `frequencies(d)` gives the paper's.
            Their dtype is that of the product: published code often takes float32, which at
            position 100,000 is off by 4e-3 radians.

    Returns:
        (*positions.shape, n): position times frequency.

    Source: Su et al. 2021, equation 15.
    """
    positions = torch.as_tensor(positions)
    return positions.to(inv_freq.dtype).unsqueeze(-1) * inv_freq.to(positions.device)


def apply_rope(
    x: Tensor,
    angles: Tensor,
    layout: str = "interleaved",
    *,
    attention_factor: float | Tensor = 1.0,
) -> Tensor:
    """Rotate the pairs of components of x by `angles`: the formula.

    Args:
        x: queries or keys, (..., L, d).
        angles: (L, n), or (B, L, n) for x of shape (B, H, L, d). With 2n < d only the first 2n
            components rotate (partial rotary).
        layout: "interleaved" pairs components (0, 1), (2, 3), ... (the paper, GPT-J, Meta's Llama);
            "half" pairs (0, n), (1, n + 1), ... (GPT-NeoX, Hugging Face's Llama, whose conversion
            permutes the projections). Each is the other after `layout_permutation`.
        attention_factor: factor on what rotates.

    Returns:
        (..., L, d), dtype of x: (a, b) becomes (a cos - b sin, a sin + b cos).

    Source: Su et al. 2021, equation 34.
    """
    if angles.ndim == 3 and x.ndim == 4:
        if angles.shape[0] not in (1, x.shape[0]):  # angles of heads would widen the batch
            raise ValueError(
                f"angles must have the batch {x.shape[0]}, got {tuple(angles.shape)}; those of "
                "heads have four axes, (1, H, L, n)"
            )
        angles = per_head(angles)
    width, dtype = 2 * angles.shape[-1], torch.promote_types(x.dtype, torch.float32)
    if not 0 < width <= x.shape[-1]:
        raise ValueError(f"angles must be of 1 to {x.shape[-1] // 2} pairs, got {width // 2}")
    if angles.shape[-2] != x.shape[-2]:  # those of one token would turn all
        raise ValueError(f"angles must be of {x.shape[-2]} tokens, got {angles.shape[-2]}")
    if not x.is_floating_point():
        raise TypeError(f"x must be of real numbers, or what rotates is rounded, got {x.dtype}")
    tables = (attention_factor * part for part in (angles.cos(), angles.sin()))
    cos, sin = (table.to(x.device, dtype) for table in tables)
    return rotate_pairs(x, cos, sin, layout)


def rotate_pairs(x: Tensor, cos: Tensor, sin: Tensor, layout: str) -> Tensor:
    """Rotate the first 2n components of x (..., L, d) by tables (..., L, n), in their dtype."""
    width = 2 * cos.shape[-1]
    a, b = split_pairs(x[..., :width].to(cos.dtype), layout)
    rotated = arrange(a * cos - b * sin, a * sin + b * cos, layout).to(x.dtype)
    return torch.cat([rotated, x[..., width:]], dim=-1) if width < x.shape[-1] else rotated


def split_pairs(x: Tensor, layout: str) -> tuple[Tensor, ...]:
    """Return the first and the second components of the pairs of x (..., 2n), (..., n) each."""
    return (x[..., ::2], x[..., 1::2]) if layout == "interleaved" else x.tensor_split(2, dim=-1)


def layout_permutation(dim: int) -> Tensor:
    """Return the order that brings interleaved components into the "half" layout.

    Args:
        dim: number of components that rotate; even.

    Returns:
        (dim,) int64: 0, 2, 4, ..., 1, 3, 5, ... With it `x[..., order]` in "half" is what x is in
        "interleaved"; `order.argsort()` leads back. Reordering the rows of both projections
        converts a model: no score changes.
    """
    return torch.arange(dim).reshape(-1, 2).T.flatten()


class RoPE(PositionEncoding):
    """Rotate queries and keys by angles proportional to their positions.

    Args:
        head_dim: width d of a head.
        base: as in `frequencies`; larger rotates slower.
        layout: "interleaved" or "half", see `apply_rope`.
        rotary_dim: how many components of a head rotate, from the first on; all if None.
        inv_freq: (rotary_dim / 2,) frequencies in radians per position, instead of those of
            `base`; see `pe_lib.rope_scaling`. An `nn.Parameter` is trained.
        attention_factor: factor on rotated queries and on rotated keys, so that scores grow by
            its square (YaRN, LongRoPE).

    A subclass with other frequencies at other positions overrides `angles`.

    Source: Su et al. 2021, section 3.2; partial rotary: Black et al. 2022.
    """

    cacheable_rotation = True

    def __init__(
        self,
        head_dim: int,
        base: float = 10000.0,
        *,
        layout: str = "interleaved",
        rotary_dim: int | None = None,
        inv_freq: Tensor | None = None,
        attention_factor: float = 1.0,
    ) -> None:
        """Keep the frequencies."""
        super().__init__()
        width = head_dim if rotary_dim is None else rotary_dim
        self.inv_freq = frequencies(width, base) if inv_freq is None else inv_freq
        if width != 2 * len(self.inv_freq) or width > head_dim:  # some would not rotate
            raise ValueError(
                f"inv_freq must have {width / 2:g} pairs and fit into head_dim={head_dim}, got "
                f"{len(self.inv_freq)} (rotary_dim={rotary_dim})"
            )
        self.head_dim, self.layout, self.attention_factor = head_dim, layout, attention_factor

    @staticmethod
    def from_parameters(
        rope_parameters: Mapping[str, Any], head_dim: int, **options: Any
    ) -> "RoPE":
        """Build what `config.rope_parameters` of transformers and vLLM describes: no subclass's.

        Arguments and errors as in `pe_lib.interop.rope_from_parameters`; the layout is "half".
        """
        from pe_lib.interop import rope_from_parameters

        return rope_from_parameters(rope_parameters, head_dim, **options)

    def angles(self, positions: Tensor) -> Tensor:
        """Return the angles of positions: (...) -> (..., n), in float64 where they are trained."""
        trained = isinstance(self.inv_freq, nn.Parameter)
        return rope_angles(positions, to_float64(self.inv_freq) if trained else self.inv_freq)

    def rotate(self, q: Tensor, k: Tensor, q_pos: Tensor, k_pos: Tensor) -> tuple[Tensor, Tensor]:
        """Rotate q (B, H, Lq, d) and k (B, H, Lk, d) by their positions."""
        return self.rotated(q, q_pos), self.rotated(k, k_pos)

    def rotated(self, x: Tensor, positions: Tensor) -> Tensor:
        """Rotate x (B, H, L, d) by positions (L,) or (B, L)."""
        return self.rotated_by(x, self.angles(to_float64(positions)))

    def rotated_by(
        self, x: Tensor, angles: Tensor, attention_factor: float | Tensor = 1.0
    ) -> Tensor:
        """Rotate x (B, H, L, d) by angles (L, n) or (B, L, n), with one more factor."""
        if x.shape[-1] != self.head_dim:  # the others would not rotate
            raise ValueError(f"heads must have width {self.head_dim}, got {x.shape[-1]}")
        return apply_rope(
            x,
            to_float64(angles),
            self.layout,
            attention_factor=self.attention_factor * attention_factor,
        )
