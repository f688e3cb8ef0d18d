"""Answers on rotations: the page's functions equal published classes, and its numbers stand."""

from __future__ import annotations

import math
from importlib import import_module
from typing import Any

import pytest
import torch
from answers import answer_names, answer_output, answer_text
from closeness import difference
from torch import Tensor

from pe_lib import DynamicNTK
from pe_lib.interop import half_to_interleaved, interleaved_to_half
from posdoctor.factory import published_files


def rotary_config(head_dim: int, heads: int = 4, **others: Any) -> Any:
    from transformers import LlamaConfig

    sizes = {"hidden_size": heads * head_dim, "num_attention_heads": heads, "head_dim": head_dim}
    small = {"vocab_size": 50, "intermediate_size": 16, "max_position_embeddings": 8192}
    return LlamaConfig(**{**sizes, **small, "attn_implementation": "eager", **others})


YARN_PARAMETERS: dict[str, Any] = {
    "rope_type": "yarn",
    "rope_theta": 1e4,
    "factor": 40.0,
    "original_max_position_embeddings": 4096,
}

# Layouts ------------------------------------------------------------------------------------------

LAYOUTS = "Llama weights converted"


def metas_rotation(q: Tensor, k: Tensor, cos: Tensor, sin: Tensor) -> tuple[Tensor, Tensor]:
    """Rotate (B, H, L, d) by complex numbers, as Meta's code does, which Llama 4 kept."""
    from transformers.models.llama4.modeling_llama4 import apply_rotary_emb

    turns = torch.complex(cos, sin)[..., : q.shape[-1] // 2]  # (B, L, d / 2)
    q, k = apply_rotary_emb(q.transpose(1, 2), k.transpose(1, 2), turns)
    return q.transpose(1, 2), k.transpose(1, 2)


@pytest.mark.parametrize(("n_heads", "n_kv_heads", "head_dim"), [(4, 4, 8), (4, 2, 16), (6, 1, 12)])
def test_reordered_weights_do_in_llama_what_they_did_in_metas_code(
    monkeypatch: pytest.MonkeyPatch, n_heads: int, n_kv_heads: int, head_dim: int
) -> None:
    from transformers.models.llama import modeling_llama as llama

    reorder = answer_names(LAYOUTS)["reorder_qk"]
    sizes = {"num_key_value_heads": n_kv_heads, "num_hidden_layers": 2, "attention_bias": True}
    model = llama.LlamaForCausalLM(rotary_config(head_dim, n_heads, **sizes)).eval()
    for name, weight in model.named_parameters():
        if "_proj" in name:  # scores that tell tokens apart; biases are zero at first
            torch.nn.init.normal_(weight, std=0.5)
    ids = torch.randint(50, (2, 9))
    meta = {name: weight.clone() for name, weight in model.state_dict().items()}

    @torch.no_grad()
    def logits(weights: dict[str, Tensor]) -> Tensor:
        model.load_state_dict(weights)
        return model(ids).logits

    with monkeypatch.context() as other:
        other.setattr(llama, "apply_rotary_pos_emb", metas_rotation)
        expected = logits(meta)
    converted = reorder(meta, n_heads, n_kv_heads, interleaved_to_half)
    back = reorder(converted, n_heads, n_kv_heads, half_to_interleaved)
    assert difference(logits(converted), expected) <= 1e-5
    assert all(torch.equal(back[name], weight) for name, weight in meta.items())
    wrong = [meta]
    if n_kv_heads < n_heads:  # the keys cut into as many heads as the queries have
        wrong += [reorder(meta, n_heads, n_heads, interleaved_to_half)]
    for weights in wrong:
        assert difference(logits(weights)[:, 0], expected[:, 0]) <= 1e-5
        assert difference(logits(weights)[:, 1:], expected[:, 1:]) > 0.05


def test_names_of_meta_are_reordered_as_those_of_transformers_and_others_refused() -> None:
    reorder = answer_names(LAYOUTS)["reorder_qk"]
    q, k, v = torch.randn(32, 6), torch.randn(16, 6), torch.randn(16, 6)
    names = [f"model.layers.0.self_attn.{part}_proj.weight" for part in "qkv"]
    metas = [f"layers.0.attention.w{part}.weight" for part in "qkv"]
    ours, theirs = (
        reorder(dict(zip(each, (q, k, v), strict=True)), 4, 2, interleaved_to_half)
        for each in (names, metas)
    )
    for name, meta, before in zip(names, metas, (q, k, v), strict=True):
        assert torch.equal(ours[name], theirs[meta])
        assert torch.equal(ours[name], before) == (before is v)
        assert f"`{meta}`" in answer_text(LAYOUTS) or "wq" not in meta
    with pytest.raises(AssertionError, match="q_proj, k_proj, wq or wk"):
        reorder({"transformer.h.0.attn.c_attn.weight": q}, 4, 2, interleaved_to_half)


def test_a_gguf_file_is_interleaved_for_llama_and_half_for_qwen2() -> None:
    from transformers import modeling_gguf_pytorch_utils as gguf

    assert "qwen2" not in gguf.TENSOR_PROCESSORS  # queries and keys are loaded as they are
    read = gguf.TENSOR_PROCESSORS["llama"](
        config={"num_attention_heads": 4, "num_key_value_heads": 2}
    )
    for name, n_heads in (("q", 4), ("k", 2)):
        weight = torch.randn(n_heads * 8, 6)
        loaded = read.process(weight.numpy(), f"blk.0.attn_{name}.weight").weights
        assert torch.equal(torch.tensor(loaded), interleaved_to_half(weight, n_heads))


# Partial rotation ---------------------------------------------------------------------------------

PARTIAL = "partial_rotary_factor"


def published(module: str) -> Any:
    return import_module(f"transformers.models.{module}.modeling_{module}")


@pytest.mark.parametrize(("head_dim", "factor"), [(80, 0.4), (64, 0.25), (24, 0.5), (128, 1.0)])
@pytest.mark.parametrize(
    ("module", "table", "rotates"),
    [
        ("phi", "PhiRotaryEmbedding", "gpt_neox"),  # Phi itself cuts the head in its layer
        ("gpt_neox", "GPTNeoXRotaryEmbedding", "gpt_neox"),
        ("qwen3_next", "Qwen3NextRotaryEmbedding", "qwen3_next"),
        ("glm", "GlmRotaryEmbedding", "glm"),
    ],
)
def test_a_part_of_the_head_rotates_as_in_published_models(
    module: str, table: str, rotates: str, head_dim: int, factor: float
) -> None:
    parameters = {"rope_type": "default", "rope_theta": 5e5, "partial_rotary_factor": factor}
    tables = getattr(published(module), table)(rotary_config(head_dim, rope_parameters=parameters))
    x, positions = torch.randn(2, 3, 7, head_dim), torch.arange(7) + 900
    expected, _ = published(rotates).apply_rotary_pos_emb(x, x, *tables(x, positions[None]))
    ours = answer_names(PARTIAL)["partial_rotary"]
    assert difference(ours(x, positions, factor, 5e5, rotates == "glm"), expected) <= 1e-6


def test_phi_2_and_the_proportional_type_rotate_what_the_page_prints() -> None:
    from transformers import PhiConfig
    from transformers.modeling_rope_utils import ROPE_INIT_FUNCTIONS
    from transformers.models.phi.modeling_phi import PhiRotaryEmbedding

    files = published_files()
    phi = next(each["config"] for each in files if each["name"] == "Phi-2")
    rates = PhiRotaryEmbedding(PhiConfig(**phi)).inv_freq
    assert len(rates) == 16 and round(float(rates[1]), 3) == 0.562
    assert int(answer_names(PARTIAL)["turned"].nonzero().max()) == 31
    assert f"{10000 ** (-2 / 80):.3f}" == "0.794"

    rotating = answer_names(PARTIAL, 1)
    parameters = {"rope_type": "proportional", **rotating["half"]}
    config = rotary_config(16, rope_parameters=parameters)
    rates, _ = ROPE_INIT_FUNCTIONS["proportional"](config, torch.device("cpu"))
    assert torch.allclose(rates.double(), rotating["rope"].inv_freq)  # the loop ends with it
    assert round(float(rates[1]), 3) == 0.316
    pairs = rates.nonzero().flatten()
    expected = [*pairs.tolist(), *(pairs + 8).tolist()]
    assert rotating["rotating"](rotating["rope"]) == expected == [0, 1, 2, 3, 8, 9, 10, 11]


def test_cosines_of_the_full_width_stop_phi_and_turn_the_whole_head_of_gpt_neox() -> None:
    from transformers import PhiConfig
    from transformers.models.phi.modeling_phi import PhiAttention

    x, angles = torch.randn(1, 3, 7, 16), torch.rand(1, 7, 16)
    tables = angles.cos(), angles.sin()
    turned, _ = published("gpt_neox").apply_rotary_pos_emb(x, x, *tables)
    assert (turned != x).flatten(0, -2).any(0).all()
    config = PhiConfig(hidden_size=48, num_attention_heads=3)  # half of a head rotates
    layer = PhiAttention(config, layer_idx=0)
    with pytest.raises(RuntimeError, match="must match the size of tensor"):
        layer(torch.randn(1, 7, 48), position_embeddings=tables, attention_mask=None)


# Half precision -----------------------------------------------------------------------------------

SHORT = "RoPE in bfloat16"


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16, torch.float32])
@pytest.mark.parametrize(("dim", "base"), [(64, 1e4), (128, 5e5)])
def test_tables_are_those_of_llama_in_every_type(dtype: torch.dtype, dim: int, base: float) -> None:
    from transformers.models.llama.modeling_llama import LlamaRotaryEmbedding

    parameters = {"rope_type": "default", "rope_theta": base}
    module = LlamaRotaryEmbedding(rotary_config(dim, rope_parameters=parameters))
    positions = torch.randint(100_000, (2, 50))
    theirs = module(torch.zeros(1, dtype=dtype), positions)
    ours = answer_names(SHORT)["rotary_tables"](positions, dim, base, dtype)
    for one, other in zip(ours, theirs, strict=True):
        assert one.dtype == dtype and torch.equal(one, other[..., : dim // 2])


def test_bfloat16_loses_the_positions_that_the_page_names() -> None:
    at = torch.arange(8192)
    held = torch.tensor([float(p) == float(torch.tensor(float(p)).bfloat16()) for p in at])
    assert held[:257].all() and not held[257]
    assert len({float(p) for p in at[4096:].bfloat16()}) == 129
    space = answer_names(SHORT)
    exact = at.double().cos()
    late = (space["rotary_tables"](at, 64)[0][:, 0] - exact).abs().max()
    early = (at.bfloat16().double().cos() - exact).abs().max()
    assert f"{late:.3f} {early:.3f}" == "0.002 1.995"


@pytest.mark.parametrize(
    ("dtype", "off"),
    [(torch.bfloat16, "3.495"), (torch.float16, "1.269"), (torch.float32, "0.000")],
)
def test_a_model_that_is_cast_rounds_its_frequencies(dtype: torch.dtype, off: str) -> None:
    from transformers import LlamaModel

    parameters = {"rope_type": "default", "rope_theta": 1e4}
    model = LlamaModel(rotary_config(64, num_hidden_layers=1, rope_parameters=parameters))
    model = model.to(dtype).float()
    exact = 1e4 ** (-torch.arange(0, 64, 2, dtype=torch.float64) / 64)
    theirs = 8000 * (model.rotary_emb.inv_freq - exact).abs().max().item()
    assert f"{theirs:.3f}" == f"{answer_names(SHORT, 1)['angle_error'](dtype):.3f}" == off


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_frequencies_in_a_plain_attribute_outlive_the_cast(dtype: torch.dtype) -> None:
    off = answer_names(SHORT, 1)["angle_error"]
    assert off(dtype, plain=True) == off(torch.float32) < 5e-4
    assert "plain attribute: off by 0.000 radians" in answer_output(SHORT, 1)


# DeepSeek -----------------------------------------------------------------------------------------

SPLIT = "DeepSeek MLA"


def latent_attention(parameters: dict[str, Any], interleave: bool, nope: int, rope: int) -> Any:
    from transformers import DeepseekV3Config
    from transformers.models.deepseek_v3 import modeling_deepseek_v3 as code

    config = DeepseekV3Config(
        hidden_size=32, num_attention_heads=4, num_key_value_heads=4, q_lora_rank=None,
        kv_lora_rank=12, qk_nope_head_dim=nope, qk_rope_head_dim=rope, v_head_dim=6,
        rope_interleave=interleave, rope_parameters=dict(parameters),
        max_position_embeddings=163840, attn_implementation="eager",
    )  # fmt: skip
    module = code.DeepseekV3Attention(config, 0)
    for weight in module.parameters():
        if weight.ndim == 2:
            torch.nn.init.normal_(weight, std=0.5)
    return module, code.DeepseekV3RotaryEmbedding(config)


def latent_weights(module: Any, table: Any, x: Tensor) -> tuple[Tensor, Tensor]:
    """Return output and weights of DeepSeek's layer under a causal mask."""
    length = x.shape[1]
    mask = torch.full((length, length), -math.inf).triu(1)[None, None]
    return module(x, table(x, torch.arange(length)[None]), mask)


@pytest.mark.parametrize("interleave", [True, False])
@pytest.mark.parametrize(("nope", "rope"), [(16, 8), (8, 16)])
@pytest.mark.parametrize("mscales", [(), (1.0, 1.0), (0.707, 0.707), (0.5, 1.2)])
def test_scores_of_a_split_head_are_those_of_deepseek(
    interleave: bool, nope: int, rope: int, mscales: tuple[float, ...]
) -> None:
    from pe_lib import RoPE

    parameters: dict[str, Any] = {"rope_type": "default", "rope_theta": 1e4}
    if mscales:
        parameters = {**YARN_PARAMETERS, "mscale": mscales[0], "mscale_all_dim": mscales[1]}
    module, table = latent_attention(parameters, interleave, nope, rope)
    x = torch.randn(2, 7, 32)
    with torch.no_grad():
        _, expected = latent_weights(module, table, x)
        q = module.q_proj(x).unflatten(-1, (4, -1)).transpose(1, 2)
        latent, shared = module.kv_a_proj_with_mqa(x).split([12, rope], dim=-1)
        expanded = module.kv_b_proj(module.kv_a_layernorm(latent)).unflatten(-1, (4, -1))
        k_nope = expanded.transpose(1, 2)[..., :nope]
        layout = "interleaved" if interleave else "half"
        turning = RoPE.from_parameters(parameters, rope, layout=layout)
        scale = answer_names(SPLIT, 1)["mla_softmax_scale"](nope, rope, parameters)
        scores = answer_names(SPLIT)["mla_scores"](q, k_nope, shared[:, None], turning, scale)
        hidden = torch.ones(7, 7).triu(1).bool()
        assert difference(scores.masked_fill(hidden, -math.inf).softmax(-1), expected) <= 1e-5
    assert math.isclose(scale, module.scaling)


def test_deepseek_v3_has_the_scale_that_the_page_prints() -> None:
    from transformers import DeepseekV3Config
    from transformers.models.deepseek_v3 import modeling_deepseek_v3 as code

    files = published_files()
    given = next(each["config"] for each in files if each["name"] == "DeepSeek-V3")
    v3 = answer_names(SPLIT, 1)["v3"]
    written = given["rope_scaling"]
    assert all(v3[key] == written[key] for key in written if key in v3)
    assert v3["rope_theta"] == given["rope_theta"]
    width = given["qk_nope_head_dim"] + given["qk_rope_head_dim"]
    scale = code.yarn_apply_mscale(v3, width**-0.5)
    ratio = scale * width**0.5
    assert f"{scale:.4f} {scale / ratio:.4f} {ratio:.2f}" == "0.1352 0.0722 1.87"
    config = DeepseekV3Config(rope_parameters=v3, max_position_embeddings=163840)
    assert code.DeepseekV3RotaryEmbedding(config).attention_scaling == 1.0


def test_without_mscale_only_the_first_token_is_right() -> None:
    parameters = {**YARN_PARAMETERS, "mscale": 1.0, "mscale_all_dim": 1.0}
    module, table = latent_attention(parameters, True, 16, 8)
    x = torch.randn(2, 7, 32)
    with torch.no_grad():
        right, _ = latent_weights(module, table, x)
        module.scaling = 24**-0.5
        wrong, _ = latent_weights(module, table, x)
    assert torch.equal(wrong[:, 0], right[:, 0])
    assert ((wrong - right).abs().amax(-1)[:, 1:] > 1e-3).all()


# A cache that moves -------------------------------------------------------------------------------

SHIFT = "Can I shift"
RULES: dict[str, dict[str, Any]] = {
    "default": {"rope_type": "default"},
    "linear": {"rope_type": "linear", "factor": 4.0},
    "llama3": {
        "rope_type": "llama3",
        "factor": 8.0,
        "low_freq_factor": 1.0,
        "high_freq_factor": 4.0,
        "original_max_position_embeddings": 512,
    },
    "yarn": {"rope_type": "yarn", "factor": 8.0, "original_max_position_embeddings": 1024},
}


@pytest.mark.parametrize("rule", RULES)
@pytest.mark.parametrize("batch", [False, True])
def test_moved_keys_are_those_that_llama_rotates_at_the_new_positions(
    rule: str, batch: bool
) -> None:
    from transformers.models.llama import modeling_llama as llama

    parameters = {"rope_theta": 1e4, **RULES[rule]}
    table = llama.LlamaRotaryEmbedding(rotary_config(32, rope_parameters=parameters))
    k, (old, new) = torch.randn(2, 3, 9, 32), torch.randint(4000, (2, 2, 9))
    if not batch:
        old, new = old[0], new[0]

    def rotated(positions: Tensor) -> Tensor:
        cos, sin = table(k, positions.expand(2, 9))
        return llama.apply_rotary_pos_emb(k, k, cos, sin)[1]

    moved = answer_names(SHIFT)["move_keys"](rotated(old), old, new, table.inv_freq.double())
    assert difference(moved, rotated(new)) <= 2e-3  # Llama's angles are float32, up to 4000
    near, far = (positions % 64 for positions in (old, new))
    moved = answer_names(SHIFT)["move_keys"](rotated(near), near, far, table.inv_freq.double())
    assert difference(moved, rotated(far)) <= 2e-5


@torch.no_grad()
def llama_after(cached: Tensor, start: int, n_layers: int) -> tuple[Any, Any]:
    """Return a small Llama of fixed weights and its cache of tokens from `start` on."""
    from transformers import DynamicCache, LlamaForCausalLM

    parameters = {"rope_theta": 1e4, **RULES["yarn"]}
    torch.manual_seed(1)
    model = LlamaForCausalLM(
        rotary_config(16, num_hidden_layers=n_layers, rope_parameters=parameters)
    ).double().eval()  # fmt: skip
    for name, weight in model.named_parameters():
        if "_proj" in name:
            torch.nn.init.normal_(weight, std=0.3)
    past = DynamicCache(config=model.config)
    at = torch.arange(cached.shape[1])[None] + start
    model(cached, position_ids=at, past_key_values=past)
    return model, past


@torch.no_grad()
def test_llama_goes_on_from_a_moved_cache_as_from_one_made_there() -> None:
    move = answer_names(SHIFT)["move_keys"]
    ids, following = torch.randint(50, (2, 12)), torch.randint(50, (2, 1))
    there = torch.tensor([[30]])
    model, far = llama_after(ids, 200, n_layers=3)
    _, near = llama_after(ids, 7, n_layers=3)
    expected = model(following, position_ids=there, past_key_values=near).logits
    at, rates = torch.arange(12), model.model.rotary_emb.inv_freq.double()
    for layer in far.layers:
        layer.keys = move(layer.keys, at + 200, at + 7, rates)
    found = model(following, position_ids=there, past_key_values=far).logits
    assert difference(found, expected) <= 1e-4  # the table's angles are float32


@torch.no_grad()
def test_after_dropped_tokens_only_the_first_layer_is_as_recomputed() -> None:
    move = answer_names(SHIFT)["move_keys"]
    ids, kept = torch.randint(50, (2, 12)), torch.tensor([0, 1, 7, 8, 9, 10, 11])
    model, whole = llama_after(ids, 0, n_layers=3)
    _, short = llama_after(ids[:, kept], 0, n_layers=3)
    rates = model.model.rotary_emb.inv_freq.double()
    apart = [
        difference(move(one.keys[:, :, kept], kept, torch.arange(7), rates), two.keys)
        for one, two in zip(whole.layers, short.layers, strict=True)
    ]
    assert apart[0] <= 1e-5 and min(apart[1:]) > 0.05


def test_keys_of_dynamic_ntk_are_not_moved_by_its_first_frequencies() -> None:
    move, k = answer_names(SHIFT)["move_keys"], torch.randn(1, 2, 9, 16)
    rope, old, new = DynamicNTK(16, 2.0, 12, layout="half"), torch.arange(9) + 40, torch.arange(9)
    before, after = (rope.rotate(k, k, at, at)[1] for at in (old, new))
    assert difference(move(before, old, new, rope.inv_freq), after) > 0.05


def test_the_attention_factor_of_yarn_is_applied_once() -> None:
    space = answer_names(SHIFT)
    assert math.isclose(space["rope"].attention_factor, 1 + 0.1 * math.log(8))
    assert f"{float(space['longer']):.3f}" == f"{1 + 0.1 * math.log(8):.3f}" == "1.208"
