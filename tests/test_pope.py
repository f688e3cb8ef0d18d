"""PoPE: against the formula and x-transformers, and what it promises about angles."""

from __future__ import annotations

import pytest
import torch

from pe_lib.attention import attention_logits
from pe_lib.recent.pope import PoPE
from pe_lib.sinusoidal import frequencies


def heads(n_heads: int = 3, length: int = 5, width: int = 4) -> tuple[torch.Tensor, torch.Tensor]:
    """Return queries and keys (2, n_heads, length, width) in float64."""
    q, k = torch.randn(2, 2, n_heads, length, width, dtype=torch.float64)
    return q, k


def encoding_with_phases(n_heads: int = 3, width: int = 4) -> PoPE:
    """Return PoPE in float64 whose phases are not zero."""
    encoding = PoPE(n_heads, width, base=100.0).double()
    torch.nn.init.uniform_(encoding.phase, -6, 0)
    return encoding


def test_the_score_is_the_sum_of_the_paper() -> None:
    encoding, (q, k) = encoding_with_phases(), heads()
    q_pos, k_pos = torch.arange(7, 12), torch.tensor([0, 3, 4, 9, 30])
    scores = attention_logits(q, k, encoding, q_pos, k_pos)
    lengths = torch.nn.functional.softplus(q), torch.nn.functional.softplus(k)
    inv_freq = frequencies(8, 100.0)  # four of them
    for i, m in enumerate(q_pos.tolist()):
        for j, n in enumerate(k_pos.tolist()):
            cosines = ((n - m) * inv_freq + encoding.phase).cos()  # (H, d)
            expected = (lengths[0][:, :, i] * lengths[1][:, :, j] * cosines).sum(-1) / 2
            assert torch.allclose(scores[:, :, i, j], expected, atol=1e-12)


def test_equal_to_x_transformers() -> None:
    theirs = pytest.importorskip("x_transformers.x_transformers")
    ours, (q, k) = PoPE(3, 4), heads()
    published = theirs.PolarEmbedding(4, 3)
    with torch.no_grad():
        published.learned_bias.uniform_(-6, 0)
        ours.phase.copy_(published.learned_bias[:, 0])
    angles, phases = published(torch.arange(20, 25))
    expected = (
        theirs.apply_polar_pos_emb(q, angles),
        theirs.apply_polar_pos_emb(k, angles + phases),
    )
    found = ours.rotate(q, k, torch.arange(20, 25), torch.arange(20, 25))
    for one, other in zip(found, expected, strict=True):
        assert (one - other).abs().max() < 1e-5  # theirs are float32


def test_contents_have_no_angle() -> None:
    """Without phases, a key at the query's own position scores above 0 whatever both say."""
    encoding, (q, k) = PoPE(3, 4).double(), heads()
    positions = torch.full((5,), 17)
    assert (attention_logits(10 * q, 10 * k, encoding, positions, positions) > 0).all()
