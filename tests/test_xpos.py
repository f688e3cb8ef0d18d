"""xPos: equal to published code and to its formula; fades with distance, whatever the shift."""

from __future__ import annotations

import math

import pytest
import torch
from closeness import default_dtype, difference
from hypothesis import given, settings
from hypothesis import strategies as st

from pe_lib.attention import attend, attend_fused, attention_logits
from pe_lib.recent.xpos import XPos


@pytest.mark.parametrize("offset", [0, 3, 5000])
@pytest.mark.parametrize("scale_base", [8, 512])
def test_scores_equal_x_transformers(offset: int, scale_base: int) -> None:
    """It counts the scale from another middle, which no score sees: scores are compared."""
    from x_transformers import x_transformers

    torch.manual_seed(offset)
    q, k = torch.randn(2, 3, 7, 10), torch.randn(2, 3, 7, 10)
    positions = torch.arange(7) + offset
    peer = x_transformers.RotaryEmbedding(8, use_xpos=True, scale_base=scale_base)
    # Their scale counts from the middle of 0 ... max, so that far out it nearly overflows.
    angles, _ = peer(positions)
    _, scale = peer(positions - offset)
    rotated_q = x_transformers.apply_rotary_pos_emb(q, angles, scale)
    rotated_k = x_transformers.apply_rotary_pos_emb(k, angles, scale**-1)
    xpos = XPos(10, scale_base=scale_base, rotary_dim=8, inv_freq=peer.inv_freq.double())
    # Positions from the middle are halves here: their float32 angles are exact enough up close.
    ours = attention_logits(q, k, xpos, positions - offset, positions - offset)
    theirs = rotated_q @ rotated_k.mT * 10**-0.5
    assert difference(ours, theirs) <= (1e-6 if offset < 10 else 5e-5)  # theirs: float32 angles
    shifted = attention_logits(q, k, xpos, positions, positions)
    assert difference(shifted, ours) <= 1e-6


@settings(max_examples=20, deadline=None)
@given(
    st.integers(1, 3),
    st.integers(0, 2),
    st.integers(1, 4),
    st.integers(1, 5),
    st.integers(-30, 3000),
    st.sampled_from(["interleaved", "half"]),
    st.floats(4.0, 600.0),
    st.floats(0.1, 2.0),
)
def test_scores_equal_the_formula(
    pairs: int,
    rest: int,
    lq: int,
    lk: int,
    offset: int,
    layout: str,
    scale_base: float,
    gamma: float,
) -> None:
    """Sun et al. 2022: pair j of the score, times zeta_j ** ((m - n) / scale_base)."""
    torch.manual_seed(lq)
    width = 2 * pairs
    q = torch.randn(1, 1, lq, width + rest, dtype=torch.float64)
    k = torch.randn(1, 1, lk, width + rest, dtype=torch.float64)
    options = {"layout": layout, "rotary_dim": width}
    xpos = XPos(width + rest, scale_base=scale_base, gamma=gamma, **options).double()
    q_pos, k_pos = torch.arange(lq) + offset + 2, torch.arange(lk) + offset
    ours = attention_logits(q, k, xpos, q_pos, k_pos) * (width + rest) ** 0.5
    for m in range(lq):
        for n in range(lk):
            score = sum((q[0, 0, m, c] * k[0, 0, n, c]).item() for c in range(width, width + rest))
            distance = m + 2 - n
            for j in range(pairs):
                a, b = (2 * j, 2 * j + 1) if layout == "interleaved" else (j, j + pairs)
                angle = distance * 10000 ** (-2 * j / width)
                zeta = (2 * j / width + gamma) / (1 + gamma)
                qa, qb, ka, kb = (x.item() for x in (*q[0, 0, m, [a, b]], *k[0, 0, n, [a, b]]))
                rotated = math.cos(angle) * (qa * ka + qb * kb)
                rotated += math.sin(angle) * (qa * kb - qb * ka)
                score += zeta ** (distance / scale_base) * rotated
            assert ours[0, 0, m, n].item() == pytest.approx(score, rel=1e-9, abs=1e-9)


@pytest.mark.parametrize(("far", "dtype"), [(12_000, torch.float16), (200_000, torch.float32)])
def test_factors_that_overflow_give_nan(far: int, dtype: torch.dtype) -> None:
    q, positions = torch.ones(1, 1, 4, 8, dtype=dtype), torch.tensor([0, 1, 2, far])
    for call in (attend_fused, lambda *given, **more: attend(*given, **more)[0]):
        output = call(q, q, q, XPos(8), positions, positions, causal=True)
        assert output.isnan().any()


@pytest.mark.parametrize(
    ("length", "dtype"), [(6144, torch.float16), (20_000, torch.bfloat16), (20_000, torch.float32)]
)
def test_scores_of_the_past_are_finite(length: int, dtype: torch.dtype) -> None:
    """Of the first and the last query, whose factors are the largest and the smallest."""
    xpos, positions = XPos(8), torch.arange(length)
    x = torch.ones(1, 1, length, 8, dtype=dtype)
    q, k = xpos.rotate(x, x, positions, positions)
    assert q.isfinite().all()
    assert k.isfinite().all()
    scores = q[0, 0, [0, -1]] @ k[0, 0].mT
    assert scores[0, 0].item() == pytest.approx(8, rel=0.02)
    assert scores[1, -1].item() == pytest.approx(8, rel=0.02)
    assert scores[1].isfinite().all()


@pytest.mark.parametrize(
    ("far", "dtype"), [(6_000, torch.float16), (60_000, torch.bfloat16), (60_000, torch.float32)]
)
def test_one_far_key_has_finite_scores(far: int, dtype: torch.dtype) -> None:
    """Positions are counted from half way between the ends, not from where most keys are."""
    k_pos = torch.tensor([*range(99), far])
    q, k = torch.ones(1, 1, 1, 8, dtype=dtype), torch.ones(1, 1, 100, 8, dtype=dtype)
    rotated_q, rotated_k = XPos(8).rotate(q, k, torch.tensor([far]), k_pos)
    assert (rotated_q @ rotated_k.mT).isfinite().all()


@pytest.mark.parametrize("default", [torch.float32, torch.bfloat16])
def test_far_positions_score_as_near_ones(default: torch.dtype) -> None:
    """The factors are taken in float64 there too, whatever the default dtype is."""
    xpos, q = XPos(8, scale_base=8), torch.randn(1, 1, 40, 8, dtype=torch.float64)
    places = torch.arange(40)
    here = xpos.rotate(q, q, places, places)
    with default_dtype(default):
        far = xpos.rotate(q, q, places + 2**28, places + 2**28)
    torch.testing.assert_close(far[0] @ far[1].mT, here[0] @ here[1].mT, rtol=1e-6, atol=1e-6)


def test_no_far_future_leaks_in_half() -> None:
    """A hidden score that overflows would outweigh its mask in the fused kernel."""
    length, positions = 6144, torch.arange(6144)
    q, k, v = (torch.randn(1, 1, length, 8).half() for _ in range(3))
    changed = torch.cat([v[:, :, :100], v[:, :, 100:] + 1000], dim=2)
    outputs = [
        attend_fused(q[:, :, :50], k, y, XPos(8), positions[:50], positions, causal=True)
        for y in (v, changed)
    ]
    assert outputs[0].isfinite().all()
    assert torch.equal(outputs[0], outputs[1])
