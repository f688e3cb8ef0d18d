"""The classes of chapter 16 and of the further designs are those of published code and pe_lib."""

from __future__ import annotations

import json
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from recorded_models import in_float64

from pe_lib.attention import MultiHeadAttention, attend
from pe_lib.encoding import NoPosition
from pe_lib.recent.forgetting import Forgetting
from pe_lib.recent.rotary_values import RotaryValues
from pe_lib.recent.sinks import Sink
from pe_lib.rope import RoPE
from tools import ROOT

SHOWN = {
    "16_today": (
        "imports", "hybrid", "prope-code", "latent-class", "sink-class", "temperature-class",
    ),
    "designs": (
        "designs-imports", "values-class", "forgetting-class", "inkling-class", "rates-right",
    ),
}  # fmt: skip


@pytest.fixture(scope="module")
def page() -> dict[str, Any]:
    """Run the cells of the two pages that define their classes."""
    names: dict[str, Any] = {"__name__": "page"}
    for page, shown in SHOWN.items():
        stored = json.loads((ROOT / f"book/{page}.ipynb").read_text("utf-8"))["cells"]
        cells = {c["id"]: "".join(c["source"]) for c in stored}
        for name in shown:
            exec(compile(cells[name], f"{page}.ipynb {name}", "exec"), names)
    return names


@pytest.fixture
def heads() -> list[torch.Tensor]:
    """Return queries, keys and values."""
    random = torch.Generator().manual_seed(0)
    return [torch.randn(2, 3, 20, 16, generator=random) for _ in range(3)]


def published(model: str, module: str = "modeling") -> Any:
    """Import a file of transformers, or skip where it is not installed."""
    return pytest.importorskip(f"transformers.models.{model}.{module}_{model}")


POSITIONS = torch.arange(20)


def test_a_layer_of_smollm3_with_and_without_rotation_is_a_line_of_the_list(page):
    code, names = published("smollm3"), published("smollm3", "configuration")
    config = names.SmolLM3Config(
        vocab_size=8, hidden_size=48, num_attention_heads=3, num_key_value_heads=3,
        num_hidden_layers=2, no_rope_layers=[1, 0], pad_token_id=0,
    )  # fmt: skip
    config._attn_implementation = "eager"
    x = torch.randn(2, 20, 48, generator=torch.Generator().manual_seed(1))
    angles = code.SmolLM3RotaryEmbedding(config)(x, POSITIONS[None])
    mask = torch.full((20, 20), -torch.inf).triu(1)[None, None]
    base = config.rope_parameters["rope_theta"]
    for place, encoding in enumerate([RoPE(16, base, layout="half"), NoPosition()]):
        theirs = code.SmolLM3Attention(config, place)
        ours = MultiHeadAttention(48, 3, encoding, causal=True)
        for name in ("q_proj", "k_proj", "v_proj"):
            getattr(ours, name).weight.data = getattr(theirs, name).weight.data
        ours.out_proj.weight.data = theirs.o_proj.weight.data
        torch.testing.assert_close(ours(x), theirs(x, angles, mask)[0], atol=1e-6, rtol=0)


def test_proportional_rates_are_those_of_the_published_table(page):
    rope_utils = pytest.importorskip("transformers.modeling_rope_utils")
    given = {"rope_type": "proportional", "rope_theta": 1e6, "partial_rotary_factor": 0.25}
    config = SimpleNamespace(
        rope_parameters=given, head_dim=256, standardize_rope_params=lambda: None
    )
    theirs, _ = rope_utils.ROPE_INIT_FUNCTIONS["proportional"](config, device=torch.device("cpu"))
    ours = page["proportional"](256, 1e6, 0.25)
    torch.testing.assert_close(ours.float(), theirs, atol=1e-6, rtol=1e-5)
    assert (ours == 0).sum() == 96


def test_latent_attention_is_that_of_deepseek_v3(page):
    code, names = published("deepseek_v3"), published("deepseek_v3", "configuration")
    config = names.DeepseekV3Config(
        vocab_size=8, hidden_size=64, num_attention_heads=4, num_key_value_heads=4,
        q_lora_rank=None,
        kv_lora_rank=24, qk_nope_head_dim=16, qk_rope_head_dim=8, v_head_dim=16, n_routed_experts=2,
        num_experts_per_tok=1, n_group=1, topk_group=1, num_hidden_layers=1, rope_interleave=False,
    )  # fmt: skip
    config._attn_implementation = "eager"
    theirs = code.DeepseekV3Attention(config, 0)
    theirs.kv_a_layernorm = torch.nn.Identity()  # the page's class has no norm
    ours = page["LatentAttention"](64, 4, 16, 8, 24)
    ours.query.weight.data = theirs.q_proj.weight.data
    ours.down.weight.data = theirs.kv_a_proj_with_mqa.weight.data[:24]
    ours.shared.weight.data = theirs.kv_a_proj_with_mqa.weight.data[24:]
    ours.up.weight.data = theirs.kv_b_proj.weight.data
    x = torch.randn(2, 20, 64, generator=torch.Generator().manual_seed(2))
    angles = code.DeepseekV3RotaryEmbedding(config)(x, POSITIONS[None])
    mask = torch.full((20, 20), -torch.inf).triu(1)[None, None]
    out = theirs(x, angles, mask)[0]
    torch.testing.assert_close(theirs.o_proj(ours(x)), out, atol=1e-6, rtol=0)


def test_values_are_rotated_and_rotated_back_as_in_deepseek_v4(page, heads):
    """Both in double precision: the published code rounds its products to single."""
    code = published("deepseek_v4")
    q, k, _ = (each.double() for each in heads)
    angles = (POSITIONS[:, None] * RoPE(16).inv_freq)[None]  # (1, L, d / 2)
    cos, sin = angles.cos(), angles.sin()
    with in_float64():
        rotated = [code.apply_rotary_pos_emb(each, cos, sin) for each in (q, k)]
        logits = (rotated[0] @ rotated[1].mT / 4).masked_fill(
            ~torch.ones(20, 20).tril().bool(), -1e9
        )
        theirs = code.apply_rotary_pos_emb(logits.softmax(-1) @ rotated[1], cos, -sin)
    for encoding in (page["RotatedValues"](RoPE(16)), RotaryValues(RoPE(16))):
        ours, _ = attend(q, k, k, encoding, POSITIONS, POSITIONS, causal=True)
        torch.testing.assert_close(ours, theirs, atol=1e-6, rtol=0)


def test_a_sink_is_that_of_gpt_oss(page, heads):
    code = published("gpt_oss")
    q, k, v = heads
    module = SimpleNamespace(
        num_key_value_groups=1, sinks=torch.tensor([-1.0, 0.5, 3.0]), training=False
    )
    theirs, weights = code.eager_attention_forward(module, q, k, v, None, 0.25)
    for encoding in (page["Sink"](3), Sink(3)):
        encoding.logits.data = module.sinks
        ours, shares = attend(q, k, v, encoding, POSITIONS, POSITIONS)
        torch.testing.assert_close(ours.transpose(1, 2), theirs, atol=1e-6, rtol=0)
        torch.testing.assert_close(shares, weights, atol=1e-6, rtol=0)


def test_temperature_is_that_of_ministral3_where_positions_are_counted_alike(page, heads):
    code = published("ministral3")
    places = torch.tensor([0, 5, 8191, 8192, 50_000])
    theirs = code.get_llama_4_attn_scale(places[None].float() + 1, 0.1, 8192)[0, 0]  # (L, 1)
    q = heads[0][:, :, :5]
    ours, _ = page["Temperature"]().rotate(q, q, places, places)
    torch.testing.assert_close(ours, q * theirs, atol=1e-6, rtol=1e-6)


def test_the_gates_of_the_page_are_those_of_the_library(page):
    ours, library = page["Forgetting"](32, 4), Forgetting(32, 4)
    library.load_state_dict(ours.state_dict())
    read = ours.project_hidden(torch.randn(2, 20, 32, generator=torch.Generator().manual_seed(3)))
    seen = torch.ones(20, 20).tril().bool()
    bias, expected = (e.hidden_bias(read, read, POSITIONS, POSITIONS) for e in (ours, library))
    torch.testing.assert_close(bias[..., seen], expected[..., seen], atol=1e-6, rtol=0)


def test_distances_are_read_as_in_inkling(page):
    code = published("inkling")
    ours, theirs = page["ReadDistances"](32, 2, 4, 6), code.InklingRelativeLogits(4, 6)
    theirs.proj.data = ours.profiles.data
    read = ours.project_hidden(torch.randn(2, 20, 32, generator=torch.Generator().manual_seed(4)))
    bias = ours.hidden_bias(read, read, POSITIONS, POSITIONS)
    expected = theirs(read.transpose(1, 2), POSITIONS, POSITIONS)
    torch.testing.assert_close(bias, expected, atol=1e-6, rtol=0)


def test_learned_rates_are_those_of_mistral_large_4(page):
    """Both in double precision: in single, twenty positions cost the published angles 1e-6."""
    code = published("mistral_large4")
    names = published("mistral_large4", "configuration")
    fields = {"rope_type": "default", "rope_theta": 10000.0}
    config = names.MistralLarge4TextConfig(rope_parameters=fields)
    random = torch.Generator().manual_seed(5)
    with in_float64():
        theirs = code.MistralLarge4TextRotaryEmbedding(config)
        width = 2 * len(theirs.inv_freq)
        alpha = 0.3 * torch.randn(width // 2, generator=random, dtype=torch.float64)
        theirs.alpha.data = alpha
        q = torch.randn(2, 3, 20, width, generator=random, dtype=torch.float64)
        cos, sin = (each.unsqueeze(1) for each in theirs(q, POSITIONS[None]))
    ours = page["LearnedRates"](width)
    ours.alpha.data = alpha
    a, b = q.chunk(2, dim=-1)
    rotated, _ = ours.rotate(q, q, POSITIONS, POSITIONS)
    torch.testing.assert_close(rotated, q * cos + torch.cat([-b, a], -1) * sin, atol=1e-6, rtol=0)
