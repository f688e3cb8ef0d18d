"""Context extension: equal to transformers' scaling utilities, and to each paper's formula."""

from __future__ import annotations

import math
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from pe_lib.attention import MultiHeadAttention
from pe_lib.cache import KVCache
from pe_lib.rope import RoPE
from pe_lib.rope_scaling import (
    DynamicNTK,
    LongRoPE,
    by_parts,
    dynamic_ntk,
    llama3,
    longrope,
    longrope_attention_factor,
    ntk_aware,
    position_interpolation,
    proportional,
    yarn,
    yarn_attention_factor,
)
from pe_lib.sinusoidal import frequencies

HEAD_DIM, TRAINED = 24, 64
FACTORS = torch.linspace(1.0, 9.0, 12)


def llama_config(rope_type: str, **parameters: Any) -> Any:
    from transformers import LlamaConfig

    rope = {"rope_type": rope_type, "rope_theta": 10000.0, **parameters}
    return LlamaConfig(
        hidden_size=3 * HEAD_DIM,
        num_attention_heads=3,
        head_dim=HEAD_DIM,
        max_position_embeddings=TRAINED,
        rope_parameters=rope,
    )


def published(
    rope_type: str, seq_len: int | None = None, **parameters: Any
) -> tuple[Tensor, float]:
    from transformers.modeling_rope_utils import ROPE_INIT_FUNCTIONS

    config = llama_config(rope_type, **parameters)
    return ROPE_INIT_FUNCTIONS[rope_type](config, torch.device("cpu"), seq_len=seq_len)


def relative_difference(ours: Tensor, theirs: Tensor) -> float:
    """The greatest relative difference of any single entry: slow rates count as much as fast."""
    assert ours.shape == theirs.shape
    return ((ours - theirs).abs() / theirs.abs()).max().item()


# Published code -----------------------------------------------------------------------------------


@pytest.mark.parametrize("factor", [2.0, 4.0, 7.5])
@pytest.mark.parametrize("base", [100.0, 10000.0, 5e5])
def test_rates_equal_transformers(factor: float, base: float) -> None:
    inv_freq = frequencies(HEAD_DIM, base)
    cases: list[tuple[Tensor, str, dict[str, Any]]] = [
        (position_interpolation(inv_freq, factor), "linear", {}),
        (dynamic_ntk(inv_freq, factor, TRAINED, 65), "dynamic", {"seq_len": 65}),
        (dynamic_ntk(inv_freq, factor, TRAINED, 300), "dynamic", {"seq_len": 300}),
        (dynamic_ntk(inv_freq, factor, TRAINED, 10), "dynamic", {"seq_len": 10}),
    ]
    for trained in (64, 100, 4096):
        length = {"original_max_position_embeddings": trained}
        cases += [
            (yarn(inv_freq, factor, trained), "yarn", length),
            (
                yarn(inv_freq, factor, trained, slow=2.0, fast=5.0),
                "yarn",
                {**length, "beta_slow": 2.0, "beta_fast": 5.0},
            ),
            (
                llama3(inv_freq, factor, trained),
                "llama3",
                {**length, "low_freq_factor": 1.0, "high_freq_factor": 4.0},
            ),
            (
                llama3(inv_freq, factor, trained, low=1.5, high=9.0),
                "llama3",
                {**length, "low_freq_factor": 1.5, "high_freq_factor": 9.0},
            ),
        ]
    for ours, name, options in cases:
        theirs, _ = published(name, **{"rope_theta": base, "factor": factor, **options})
        assert relative_difference(ours, theirs) <= 1e-6, (name, options)


@pytest.mark.parametrize("truncate", [True, False])
@pytest.mark.parametrize(("slow", "fast"), [(1.0, 32.0), (1.0, 1.0), (2.0, 5.0)])
@pytest.mark.parametrize(
    ("head_dim", "base", "factor", "trained"),
    [(64, 150000.0, 32.0, 4096), (64, 50000.0, 32.0, 4096), (HEAD_DIM, 10000.0, 4.0, TRAINED)],
    ids=["gpt-oss", "Kimi-K2", "small"],
)
def test_every_field_of_yarn_equals_transformers(
    head_dim: int,
    base: float,
    factor: float,
    trained: int,
    slow: float,
    fast: float,
    truncate: bool,
) -> None:
    from transformers import LlamaConfig
    from transformers.modeling_rope_utils import ROPE_INIT_FUNCTIONS

    rope = {"rope_type": "yarn", "rope_theta": base, "factor": factor, "truncate": truncate}
    rope |= {"original_max_position_embeddings": trained, "beta_slow": slow, "beta_fast": fast}
    rope |= {"mscale": 0.7, "mscale_all_dim": 1.3}
    config = LlamaConfig(
        hidden_size=3 * head_dim, num_attention_heads=3, head_dim=head_dim, rope_parameters=rope
    )
    theirs, attention_factor = ROPE_INIT_FUNCTIONS["yarn"](config, torch.device("cpu"))
    ours = yarn(
        frequencies(head_dim, base), factor, trained, slow=slow, fast=fast, truncate=truncate
    )
    # Their ramp is a float32: where a pair is all but interpolated, its error grows by the factor.
    assert relative_difference(ours, theirs) <= max(1e-6, factor * 2**-23)
    assert attention_factor == pytest.approx(
        yarn_attention_factor(factor, 0.07) / yarn_attention_factor(factor, 0.13), rel=1e-12
    )


@pytest.mark.parametrize("share", [0.25, 0.4, 0.75, 1.0])
def test_proportional_rates_equal_transformers(share: float) -> None:
    theirs, attention_factor = published("proportional", partial_rotary_factor=share)
    ours = proportional(frequencies(HEAD_DIM), share)
    assert attention_factor == 1 and torch.equal(ours == 0, theirs == 0)
    assert relative_difference(ours[ours > 0], theirs[theirs > 0]) <= 1e-6 if share else True


def test_longrope_and_gains_equal_transformers() -> None:
    inv_freq, long = frequencies(HEAD_DIM), FACTORS**1.5
    options = {
        "factor": 8.0,
        "original_max_position_embeddings": TRAINED,
        "short_factor": FACTORS.tolist(),
        "long_factor": long.tolist(),
    }
    for seq_len, factors in ((TRAINED, FACTORS), (TRAINED + 1, long)):
        theirs, attention_factor = published("longrope", seq_len, **options)
        assert relative_difference(longrope(inv_freq, factors), theirs) <= 1e-6
        assert attention_factor == pytest.approx(longrope_attention_factor(8.0, TRAINED), rel=1e-12)
    for factor in (1.0, 4.0, 32.0):
        _, attention_factor = published(
            "yarn", factor=factor, original_max_position_embeddings=TRAINED
        )
        assert attention_factor == pytest.approx(yarn_attention_factor(factor), rel=1e-12)
    assert longrope_attention_factor(0.5, TRAINED) == yarn_attention_factor(0.5) == 1.0


# The formulas, pair by pair -----------------------------------------------------------------------


@settings(max_examples=30, deadline=None)
@given(
    st.integers(2, 12),
    st.floats(10.0, 1e6),
    st.floats(1.0, 40.0),
    st.integers(8, 10_000),
    st.floats(0.1, 3.0),
    st.floats(0.5, 40.0),
)
def test_every_rate_follows_its_papers_formula(
    pairs: int, base: float, factor: float, trained: int, low: float, width: float
) -> None:
    d, inv_freq, high = 2 * pairs, frequencies(2 * pairs, base), low + width
    length = trained + 17
    stretch = factor * length / trained - (factor - 1)
    for j in range(pairs):
        theta = base ** (-2 * j / d)
        wavelength = 2 * math.pi / theta
        ratio = trained / wavelength
        gamma = 0.0 if ratio < low else 1.0 if ratio > high else (ratio - low) / (high - low)
        mixed = (1 - gamma) * theta / factor + gamma * theta
        expected = {
            "pi": theta / factor,
            "ntk": (base * factor ** (d / (d - 2))) ** (-2 * j / d),
            "dynamic": (base * stretch ** (d / (d - 2))) ** (-2 * j / d),
            "parts": mixed,
            "llama3": mixed,
        }
        ours = {
            "pi": position_interpolation(inv_freq, factor),
            "ntk": ntk_aware(inv_freq, factor),
            "dynamic": dynamic_ntk(inv_freq, factor, trained, length),
            "parts": by_parts(inv_freq, factor, trained, low, high),
            "llama3": llama3(inv_freq, factor, trained, low, high),
        }
        for name, value in expected.items():
            assert ours[name][j].item() == pytest.approx(value, rel=1e-9), (name, j)


# Properties ---------------------------------------------------------------------------------------


@pytest.mark.parametrize(("width", "trained"), [(32, 128), (8, 16), (16, 8)])
def test_only_yarn_keeps_a_slow_first_pair(width: int, trained: int) -> None:
    inv_freq = frequencies(width)
    turns = float(inv_freq[0]) * trained / (2 * math.pi)
    assert turns < 32 and yarn(inv_freq, 4.0, trained)[0] == inv_freq[0]
    assert (by_parts(inv_freq, 4.0, trained, 1.0, 32.0) < inv_freq).all()
    assert bool((llama3(inv_freq, 4.0, trained) < inv_freq).all()) == (turns < 4)


def test_dynamic_ntk_begins_as_plain_rope() -> None:
    q = torch.randn(1, 2, TRAINED, HEAD_DIM)
    positions = torch.arange(TRAINED)
    dynamic, plain = DynamicNTK(HEAD_DIM, 2.0, TRAINED), RoPE(HEAD_DIM)
    mine, other = (rope.rotate(q, q, positions, positions)[0] for rope in (dynamic, plain))
    assert torch.equal(mine, other)
    # One position more, and every earlier query is rotated differently.
    longer, _ = dynamic.rotate(q, q, positions + 1, positions)
    other, _ = plain.rotate(q, q, positions + 1, positions)
    assert not torch.allclose(longer, other)


def test_longrope_is_short_at_trained_length() -> None:
    """That length included, and long from one position more on."""
    inv_freq, long = frequencies(HEAD_DIM), FACTORS**1.5
    ours = LongRoPE(HEAD_DIM, FACTORS, long, TRAINED, 8.0, attention_factor=1.0)
    q = torch.randn(1, 2, TRAINED, HEAD_DIM)
    for first, factors in ((0, FACTORS), (1, long)):
        positions = torch.arange(TRAINED) + first
        plain = RoPE(HEAD_DIM, inv_freq=longrope(inv_freq, factors))
        found, expected = (each.rotate(q, q, positions, positions) for each in (ours, plain))
        torch.testing.assert_close(found, expected)


@pytest.mark.parametrize(
    "encoding",
    [
        DynamicNTK(8, 2.0, 4),
        LongRoPE(8, torch.ones(4), torch.tensor([1.0, 2.0, 3.0, 4.0]), 4, 2.0),
    ],
)
def test_the_last_cached_step_equals_the_whole(encoding: RoPE) -> None:
    """Only the last: earlier queries were rotated for the length they had seen."""
    torch.manual_seed(0)
    attention = MultiHeadAttention(24, 3, encoding, causal=True)
    x = torch.randn(2, 9, 24)
    cache = KVCache()
    steps = [attention(part, cache=cache) for part in x.split([3, 4, 2], dim=1)]
    torch.testing.assert_close(steps[-1], attention(x)[:, 7:])
    assert not torch.allclose(steps[0], attention(x)[:, :3])


def test_frequencies_must_be_a_series() -> None:
    with pytest.raises(ValueError, match="inv_freq must be at least two frequencies"):
        ntk_aware(torch.ones(1), 2.0)
    with pytest.raises(ValueError, match="frequencies that descend"):
        yarn(torch.ones(4), 2.0, 64)
