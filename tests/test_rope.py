"""RoPE: equal to the published code and to its formula, relative, exact between layouts."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch
from closeness import difference
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from pe_lib.recent.axes import AxesRoPE, AxialRoPE, axial_angles, section_directions
from pe_lib.recent.xpos import XPos
from pe_lib.rope import RoPE, apply_rope, layout_permutation, rope_angles
from pe_lib.rope_scaling import DynamicNTK
from pe_lib.sinusoidal import frequencies

OFFSETS = (0, 3, 5000, 100_000)
LAYOUTS = ("interleaved", "half")


def random_qk(seed: int, d: int = 12, lq: int = 5, lk: int = 7) -> tuple[Tensor, Tensor]:
    generator = torch.Generator().manual_seed(seed)
    q = torch.randn(2, 3, lq, d, generator=generator)
    k = torch.randn(2, 3, lk, d, generator=generator)
    return q, k


def batched_positions(seed: int, length: int, offset: int) -> Tensor:
    """Positions of two sequences, shuffled and different: nothing may rely on their order."""
    generator = torch.Generator().manual_seed(seed)
    return (
        torch.stack([torch.randperm(50, generator=generator)[:length] for _ in range(2)]) + offset
    )


# Published code -----------------------------------------------------------------------------------


@pytest.mark.parametrize("offset", OFFSETS)
@pytest.mark.parametrize("layout", LAYOUTS)
def test_float64_angles_equal_diffusers(offset: int, layout: str) -> None:
    """diffusers can compute angles in float64, as Flux does: nothing is left to differ."""
    from diffusers.models import embeddings

    interleaved = layout == "interleaved"
    q, k = random_qk(0)
    positions = torch.arange(7) + offset
    table = embeddings.get_1d_rotary_pos_embed(
        12,
        positions,
        theta=500.0,
        use_real=True,
        repeat_interleave_real=interleaved,
        freqs_dtype=torch.float64,
    )
    theirs = embeddings.apply_rotary_emb(k, table, use_real_unbind_dim=-1 if interleaved else -2)
    rope = RoPE(12, 500.0, layout=layout)
    ours = rope.rotate(q, k, positions[:5], positions)[1]
    assert difference(ours, theirs) <= 1e-6


@pytest.mark.parametrize("offset", OFFSETS)
def test_interleaved_layout_equals_x_transformers(offset: int) -> None:
    from x_transformers import x_transformers

    peer = x_transformers.RotaryEmbedding(dim=8, base=777)
    _, k = random_qk(2)
    positions = batched_positions(2, 7, offset)
    angles, scale = peer(positions)
    ours = apply_rope(k, rope_angles(positions, peer.inv_freq))
    theirs = x_transformers.apply_rotary_pos_emb(k, angles, scale)
    assert difference(ours, theirs) <= 1e-6


def test_axial_angles_equal_rotary_embedding_torch() -> None:
    """Its axial frequencies: the first half of the components for the row, the rest the column."""
    from rotary_embedding_torch import RotaryEmbedding, apply_rotary_emb

    peer = RotaryEmbedding(dim=6, freqs_for="lang", theta=100)
    image = torch.randn(2, 3, 4, 5, 12)  # (B, H, rows, columns, d)
    theirs = apply_rotary_emb(peer.get_axial_freqs(4, 5), image).flatten(2, 3)
    rope = AxialRoPE(12, columns=5)
    x, patches = image.flatten(2, 3), torch.arange(20)
    ours, _ = rope.rotate(x, x, patches, patches)
    assert difference(ours, theirs) <= 1e-6
    assert difference(frequencies(6, 100.0).float(), peer.freqs.detach()) <= 1e-6


# The formula, element by element ------------------------------------------------------------------


def slow_rope(x: Tensor, positions: list[float], base: float, layout: str, r: int) -> Tensor:
    """Su et al. 2021, equation 15: pair by pair, the 2 x 2 matrix times the two components."""
    source, out = x.numpy(), x.clone().numpy()
    for b, h, t, j in np.ndindex(*x.shape[:3], r // 2):
        first, second = (2 * j, 2 * j + 1) if layout == "interleaved" else (j, j + r // 2)
        angle = positions[t] * base ** (-2 * j / r)
        one, two = source[b, h, t, first], source[b, h, t, second]
        out[b, h, t, first] = math.cos(angle) * one - math.sin(angle) * two
        out[b, h, t, second] = math.sin(angle) * one + math.cos(angle) * two
    return torch.from_numpy(out)


@settings(max_examples=25, deadline=None)
@given(
    st.integers(1, 2),
    st.integers(1, 3),
    st.integers(1, 4),
    st.integers(1, 4),
    st.integers(0, 3),
    st.sampled_from(LAYOUTS),
    st.sampled_from([1.5, 100.0, 1e4, 5e5]),
    st.sampled_from([-7, 0, 12, 3000, 0.25]),
)
def test_equals_the_rotation_matrix(
    b: int, h: int, length: int, pairs: int, rest: int, layout: str, base: float, start: float
) -> None:
    torch.manual_seed(length)
    x = torch.randn(b, h, length, 2 * pairs + rest, dtype=torch.float64)
    positions = start + 3 * torch.arange(length)
    expected = slow_rope(x, positions.tolist(), base, layout, 2 * pairs)
    angles = rope_angles(positions, frequencies(2 * pairs, base))
    torch.testing.assert_close(apply_rope(x, angles, layout), expected)
    rope = RoPE(x.shape[-1], base, layout=layout, rotary_dim=2 * pairs).double()
    rotated = rope.rotate(x, x[:, :, :1], positions, positions[:1])
    torch.testing.assert_close(rotated[0], expected)
    torch.testing.assert_close(rotated[1], expected[:, :, :1])


def test_axial_positions_are_rows_and_columns() -> None:
    """Patch 13 of rows of 5 stands in row 2, column 3."""
    angles = axial_angles(torch.tensor(2), torch.tensor(3), frequencies(4, 100.0))
    torch.testing.assert_close(angles, torch.tensor([2.0, 0.2, 3.0, 0.3], dtype=torch.float64))
    x = torch.randn(1, 1, 1, 8, dtype=torch.float64)
    patch = torch.tensor([13])
    rotated, _ = AxialRoPE(8, columns=5).rotate(x, x, patch, patch)
    assert torch.equal(rotated, apply_rope(x, angles[None]))


# Layouts ------------------------------------------------------------------------------------------


@pytest.mark.parametrize("dim", [2, 8, 14])
def test_the_permutation_changes_the_layout_exactly(dim: int) -> None:
    order = layout_permutation(dim)
    x = torch.randn(2, 3, 5, dim, dtype=torch.float64)
    angles = rope_angles(torch.arange(5) + 9, frequencies(dim))
    interleaved = apply_rope(x, angles, "interleaved")
    half = apply_rope(x[..., order], angles, "half")
    torch.testing.assert_close(interleaved[..., order], half, rtol=0, atol=1e-15)
    assert torch.equal(x[..., order][..., order.argsort()], x)
    assert order.tolist() == [*range(0, dim, 2), *range(1, dim, 2)]


# Properties ---------------------------------------------------------------------------------------


def test_the_sign_is_key_minus_query() -> None:
    """<R_m q, R_n k> = <q, R_(n-m) k>; with m - n it would be another number."""
    q, k = (x.double() for x in random_qk(4, lq=1, lk=1))

    def angles(position: int) -> Tensor:
        return rope_angles(torch.tensor([position]), frequencies(12))

    rotated = [apply_rope(x, angles(p)) for x, p in ((q, 11), (k, 4))]
    score = (rotated[0] * rotated[1]).sum(-1)
    torch.testing.assert_close(score, (q * apply_rope(k, angles(4 - 11))).sum(-1))
    other = (q * apply_rope(k, angles(11 - 4))).sum(-1)
    assert not torch.allclose(score, other)


def test_the_gain_multiplies_what_rotates() -> None:
    q, k = random_qk(6)
    plain, gained = (RoPE(12, rotary_dim=8, attention_factor=g) for g in (1.0, 1.5))
    positions = torch.arange(7)
    one, two = (rope.rotate(q, k, positions[:5], positions)[1] for rope in (plain, gained))
    torch.testing.assert_close(two[..., :8], 1.5 * one[..., :8])
    assert torch.equal(two[..., 8:], one[..., 8:])


def test_heads_of_another_width_are_refused() -> None:
    """They would rotate in part, without a word."""
    x, places = torch.randn(1, 1, 3, 12), torch.arange(3)
    wide = section_directions(frequencies(8), [2, 2])
    for rope in (RoPE(8), XPos(8), DynamicNTK(8, 2.0, 16), AxesRoPE(8, wide), AxialRoPE(8, 2)):
        with pytest.raises(ValueError, match="heads must have width 8, got 12"):
            rope.rotate(x, x, places, places)


def test_each_token_needs_its_angle() -> None:
    with pytest.raises(ValueError, match="angles must be of 3 tokens, got 1"):
        apply_rope(torch.randn(3, 8), torch.ones(1, 4))
    with pytest.raises(ValueError, match="angles must be of 1 to 4 pairs, got 5"):
        apply_rope(torch.randn(3, 8), torch.ones(3, 5))


# Precision ----------------------------------------------------------------------------------------


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
@pytest.mark.parametrize("cast", ["half", "bfloat16", "to"])
def test_half_precision_rotates_by_float32_angles(dtype: torch.dtype, cast: str) -> None:
    """Far out, the only error is the rounding of input and output: angles are never rounded."""
    rope = RoPE(12)
    rope = rope.to(dtype) if cast == "to" else getattr(rope, cast)()
    q, k = random_qk(9)
    q, k = q.to(dtype), k.to(dtype)
    for start in (9_000, 60_000):
        q_pos, k_pos = start + torch.arange(5), start + torch.arange(7)
        rotated, _ = rope.rotate(q, k, q_pos, k_pos)
        exact = apply_rope(q.double(), rope_angles(q_pos, frequencies(12)))
        assert rotated.dtype == dtype
        assert (rotated - exact).abs().max() <= torch.finfo(dtype).eps * exact.abs().max()


def test_far_positions_keep_float32_accuracy() -> None:
    positions = torch.tensor([100_003])
    exact = rope_angles(positions, frequencies(64)).cos()
    ones = torch.eye(64)[::2].sum(0).expand(1, 1, 1, 64)  # pairs of 1 and 0
    ours = RoPE(64).rotate(ones, ones, positions, positions)[0][0, 0, :, ::2]
    rounded = rope_angles(positions, frequencies(64).float()).cos()
    assert (ours - exact).abs().max() < 1e-7
    assert (rounded - exact).abs().max() > 1e-4
