"""Answers on context length: what the page's cells define is what published code computes."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from copy import deepcopy
from typing import Any

import nbformat
import pytest
import torch
import transformers
from answers import answer_names, answer_output, answer_text
from closeness import assert_close
from transformers import (
    DynamicCache,
    Gemma3TextConfig,
    LlamaConfig,
    Phi3Config,
    Phi3ForCausalLM,
    Qwen2Config,
    Qwen3Config,
)
from transformers.models.gemma3.modeling_gemma3 import Gemma3RotaryEmbedding
from transformers.models.llama.modeling_llama import (
    LlamaAttention,
    LlamaRotaryEmbedding,
    apply_rotary_pos_emb,
)
from transformers.models.qwen2.modeling_qwen2 import Qwen2RotaryEmbedding
from transformers.models.qwen3.modeling_qwen3 import Qwen3RotaryEmbedding

from pe_course.bakeoff.rows import curves
from pe_course.page import sentences
from pe_lib import DynamicNTK, KVCache, MultiHeadAttention, RoPE
from pe_lib.interop import rope_from_parameters
from posdoctor import from_config
from posdoctor.configs.explain import explain
from posdoctor.factory import published_files
from tools.refresh import BOOK

TRAINED = "original_max_position_embeddings"


@pytest.fixture
def warned(caplog: pytest.LogCaptureFixture) -> Iterator[pytest.LogCaptureFixture]:
    """Return what transformers has logged, which by default no root logger sees."""
    transformers.logging.enable_propagation()
    transformers.utils.logging.warning_once.cache_clear()  # else it is once in all tests
    yield caplog
    transformers.logging.disable_propagation()


# --- YaRN for Qwen --------------------------------------------------------------------------------


def yarn_blocks() -> list[dict[str, Any]]:
    found = re.findall(r"```json\n(.*?)```", answer_text("How do I set YaRN"), re.DOTALL)
    return [json.loads(f"{{{block}}}") for block in found]


@pytest.mark.parametrize(
    ("config_class", "tables_class", "written"),
    [(Qwen2Config, Qwen2RotaryEmbedding, 32768), (Qwen3Config, Qwen3RotaryEmbedding, 40960)],
)
def test_both_yarn_blocks_and_the_function_say_what_qwens_class_computes(
    config_class: Any, tables_class: Any, written: int
) -> None:
    old, new = yarn_blocks()
    sizes = {"hidden_size": 3584, "num_attention_heads": 28, "head_dim": 128, "rope_theta": 1e6}
    config = config_class(**sizes, **old)
    assert config.rope_parameters == new["rope_parameters"]
    assert answer_names("How do I set YaRN")["yarn_parameters"](131072) == new["rope_parameters"]
    tables = tables_class(config)
    plain = tables_class(config_class(**sizes, max_position_embeddings=written)).inv_freq
    slowed = plain / tables.inv_freq
    kept, most = int((slowed < 1.0001).sum()), int((slowed > 3.999).sum())
    gain = tables.attention_scaling
    assert answer_output("How do I set YaRN") == (
        f"pairs: {kept} kept, {64 - kept - most} between, {most} slowed by 4\n"
        f"attention factor {gain:.3f}, so scores are multiplied by {gain**2:.2f}\n"
    )


@pytest.mark.parametrize(
    ("model_type", "config_class", "tables_class", "written"),
    [
        ("qwen2", Qwen2Config, Qwen2RotaryEmbedding, 32768),
        ("qwen3", Qwen3Config, Qwen3RotaryEmbedding, 40960),
    ],
)
def test_nothing_warns_of_the_yarn_block_and_its_length_turns_nothing(
    warned: pytest.LogCaptureFixture,
    model_type: str,
    config_class: Any,
    tables_class: Any,
    written: int,
) -> None:
    sizes = {"hidden_size": 3584, "num_attention_heads": 28, "head_dim": 128, "rope_theta": 1e6}
    named = {"model_type": model_type, "num_hidden_layers": 28}
    old, new = yarn_blocks()
    for block in (old, new):
        tables = tables_class(config_class(**sizes, **deepcopy(block)))
        assert not warned.records and "warning:" not in explain(named | sizes | block)
    short = old | {"max_position_embeddings": written}
    left = tables_class(config_class(**sizes, **deepcopy(short)))
    assert torch.equal(tables.inv_freq, left.inv_freq)
    assert tables.attention_scaling == left.attention_scaling
    assert bool(warned.records) == (model_type == "qwen3")
    expected = (
        f"warning: factor 4 times the trained length 32768 is 131072, and the context is {written}"
    )
    assert expected in explain(named | sizes | short)


def test_vllm_is_given_the_block_of_the_file() -> None:
    text = answer_text("How do I set YaRN")
    (given,) = re.findall(r"--hf-overrides '(.*?)'", text, re.DOTALL)
    (length,) = re.findall(r"--max-model-len (\d+)", text)
    _, new = yarn_blocks()
    assert json.loads(given)["rope_parameters"] == new["rope_parameters"]
    assert int(length) == new["max_position_embeddings"]


@pytest.mark.parametrize("length", [65536, 100_000, 131072])
@pytest.mark.parametrize(("head_dim", "theta", "trained"), [(64, 1e4, 4096), (128, 1e6, 32768)])
def test_yarn_parameters_turn_queries_as_the_class_turns_them(
    length: int, head_dim: int, theta: float, trained: int
) -> None:
    block = answer_names("How do I set YaRN")["yarn_parameters"](length, trained, theta)
    assert block["factor"] * block[TRAINED] == length
    config = LlamaConfig(head_dim=head_dim, rope_parameters=dict(block))
    tables = LlamaRotaryEmbedding(config)
    q, k = torch.randn(2, 2, 3, 9, head_dim)
    places = torch.randint(0, trained, (9,))  # a short text as well
    theirs = apply_rotary_pos_emb(q, k, *tables(q, places[None]))
    ours = rope_from_parameters(block, head_dim).rotate(q, k, places, places)
    for mine, published in zip(ours, theirs, strict=True):
        assert_close(mine, published, 5e-3)  # the class has angles in float32
    assert_close(rope_from_parameters(block, head_dim).inv_freq.float(), tables.inv_freq, 1e-6)


def test_without_the_trained_length_transformers_takes_what_qwen3s_file_has(
    warned: pytest.LogCaptureFixture,
) -> None:
    config = Qwen3Config(
        max_position_embeddings=40960, rope_scaling={"rope_type": "yarn", "factor": 4.0}
    )
    assert config.rope_parameters[TRAINED] == 40960 and not warned.records
    assert "which is 40960 in Qwen3's file" in answer_text("How do I set YaRN")
    other = Qwen3RotaryEmbedding(config).inv_freq
    config.rope_parameters[TRAINED] = 32768
    assert not torch.equal(other, Qwen3RotaryEmbedding(config).inv_freq)


def test_the_price_of_yarn_on_short_texts_is_the_one_that_chapter_13_measured() -> None:
    cells = nbformat.read(BOOK / "13_context_extension.ipynb", as_version=4).cells
    (table,) = [each for each in cells if each.id == "compared-table"]
    rows = {
        row.split("|")[1].strip(): row.split("|")[4].strip()  # the loss at the training length
        for row in table.outputs[0].data["text/markdown"].replace("\xa0", " ").splitlines()
    }
    words = f"from {rows['as trained']} to {rows['YaRN']} nats"
    assert rows["rule"] == "loss at 128" and words in answer_text("How do I set YaRN")


# --- the base -------------------------------------------------------------------------------------


def least_of_sums(base: float, length: int, head_dim: int) -> float:
    """Return the smallest sum of cosines, of the class's table at positions below `length`."""
    tables = LlamaRotaryEmbedding(LlamaConfig(head_dim=head_dim, rope_theta=base))
    cos, _ = tables(torch.zeros(1), torch.arange(length)[None])
    return float(cos[0, :, : head_dim // 2].double().sum(-1).min())


@pytest.mark.parametrize("head_dim", [64, 128])
@pytest.mark.parametrize("length", [257, 1024, 3000])
def test_the_base_for_a_length_is_the_first_whose_cosines_never_sum_below_zero(
    length: int, head_dim: int
) -> None:
    base_for, close = answer_names("Which rope_theta")["base_for"], 2e-3  # float32 of the class
    base = base_for(length, head_dim)
    assert least_of_sums(base, length, head_dim) > -close
    smaller = [base / 1.005**n for n in range(1, 6)]
    assert all(least_of_sums(each, length, head_dim) < close for each in smaller)
    assert least_of_sums(base, 2 * length, head_dim) < 0  # it is of this length


def test_published_bases_keep_the_guide_or_not_as_the_page_says() -> None:
    models = ((1e4, 4096), (5e5, 8192), (1e6, 32768))
    kept = [least_of_sums(base, length, 128) >= 0 for base, length in models]
    tried = {base: least_of_sums(base, 32768, 128) > -2e-3 for base in (1.8e5, 6.3e5, 1e6, 2e6)}
    assert kept == [False, True, False]
    assert answer_output("Which rope_theta").splitlines() == [
        "{8192: '8.4e+04', 32768: '6.3e+05'}",
        f"Llama 2: {kept[0]}  Llama 3: {kept[1]}",
        str({f"{base:,.0f}": fits for base, fits in tried.items()}),
    ]
    assert "1.8e+05" in answer_output("Which rope_theta", 1).splitlines()[0]
    words = answer_text("Which rope_theta")
    assert "about 84,000 for 8,192 tokens and about 630,000 for 32,768 tokens" in words
    assert "1,000,000 does not and 2,000,000 does" in words and tried[2e6] and not tried[1e6]
    assert "Llama 3's 500,000 for 8,192 tokens fits; Llama 2's 10,000 for 4,096" in words
    assert "second cell gives 180,000, which does not fit" in words and not tried[1.8e5]
    configs = {each["name"]: each["config"] for each in published_files()}
    llama_2, llama, qwen = (configs[n] for n in ("Llama 2 7B", "Llama 3.1 8B", "Qwen2.5 7B"))
    assert (LlamaConfig(**llama_2).rope_parameters["rope_theta"], 4096) == models[0]
    assert (llama["rope_theta"], llama["rope_scaling"][TRAINED]) == models[1]
    assert (qwen["rope_theta"], qwen["max_position_embeddings"]) == models[2]
    assert llama_2["max_position_embeddings"] == 4096


@pytest.mark.parametrize(
    ("base", "trained", "length", "head_dim"),
    [(1e4, 4096, 32768, 128), (1e6, 32768, 131072, 128), (1e4, 128, 512, 32), (5e5, 500, 900, 64)],
)
def test_the_larger_base_is_the_smallest_with_no_new_angle(
    base: float, trained: int, length: int, head_dim: int
) -> None:
    def angles(base: float, length: int) -> torch.Tensor:
        config = LlamaConfig(head_dim=head_dim, rope_theta=base)
        return LlamaRotaryEmbedding(config).inv_freq.double() * length

    larger = answer_names("Which rope_theta", 1)["larger_base"](base, trained, length, head_dim)
    before = angles(base, trained)
    slow = before < 2 * torch.pi
    assert slow.any() and (angles(larger, length)[slow] <= 1.0001 * before[slow]).all()
    assert (angles(0.99 * larger, length)[slow] > 1.0001 * before[slow]).any()


# --- Gemma 3 --------------------------------------------------------------------------------------


@pytest.mark.parametrize("head_dim", [128, 256])
def test_gemmas_two_rotations_are_those_of_its_class(head_dim: int) -> None:
    page = answer_names("Gemma 3")
    config = Gemma3TextConfig(
        head_dim=head_dim,
        rope_theta=1e6,
        rope_local_base_freq=1e4,
        rope_scaling={"rope_type": "linear", "factor": 8.0},
    )
    assert config.rope_parameters == page["GEMMA_3"]
    assert answer_output("Gemma 3") == "True\nTrue\n"
    tables = Gemma3RotaryEmbedding(config)
    ropes = page["ropes_of"](config.layer_types, page["GEMMA_3"], head_dim)
    assert len({id(rope) for rope in ropes}) == 2
    q, k = torch.randn(2, 2, 3, 7, head_dim)
    places = torch.randint(0, 1024, (7,))
    for rope, kind in zip(ropes, config.layer_types, strict=True):
        theirs = apply_rotary_pos_emb(q, k, *tables(q, places[None], layer_type=kind))
        for mine, published in zip(rope.rotate(q, k, places, places), theirs, strict=True):
            assert_close(mine, published, 1e-3)


def test_gemmas_class_drops_a_flat_rope_parameters_without_a_word(
    warned: pytest.LogCaptureFixture,
) -> None:
    flat = {"rope_type": "linear", "factor": 8.0, "rope_theta": 1e6}
    config = Gemma3TextConfig(rope_parameters=flat)
    assert not warned.records
    assert config.rope_parameters["full_attention"] == {"rope_type": "default", "rope_theta": 1e6}
    unscaled = 1e6 ** -(torch.arange(0, 256, 2) / 256)
    assert_close(Gemma3RotaryEmbedding(config).full_attention_inv_freq, unscaled)


def test_only_the_1b_file_of_gemma_3_has_no_factor() -> None:
    files = published_files()
    texts = {
        each["name"]: each["config"].get("text_config", each["config"])
        for each in files
        if each["name"].startswith("Gemma 3 ")
    }
    scaled = {name: text["rope_scaling"] for name, text in texts.items() if text["rope_scaling"]}
    assert set(texts) - set(scaled) == {"Gemma 3 1B"}
    assert list(scaled) == ["Gemma 3 4B", "Gemma 3 12B", "Gemma 3 27B"]
    assert all(each == {"factor": 8.0, "rope_type": "linear"} for each in scaled.values())


# --- a finished model -----------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("length", "size", "first"), [(30, 12, 4), (30, 12, 0), (9, 12, 4), (3, 12, 4)]
)
def test_a_rolled_cache_attends_as_llamas_attention_does_to_the_kept_tokens(
    length: int, size: int, first: int
) -> None:
    page = answer_names("Extend a")
    config = LlamaConfig(hidden_size=32, num_attention_heads=4, head_dim=8)
    config._attn_implementation = "eager"
    layer, tables = LlamaAttention(config, layer_idx=0).double(), LlamaRotaryEmbedding(config)
    hidden = torch.randn(2, length, 32, dtype=torch.float64)
    kept = [n for n in range(length) if n < first or n >= length - size + first or length <= size]
    assert len(kept) == min(length, size)
    chosen = hidden[:, kept]
    cos, sin = tables(chosen, torch.arange(len(kept))[None])
    mask = torch.full((len(kept), len(kept)), -torch.inf, dtype=torch.float64).triu(1)
    published = layer(chosen, (cos, sin), mask[None, None])[0][:, -1]  # (B, D)
    q, k, v = (
        made(hidden).unflatten(-1, (4, 8)).transpose(1, 2)  # (B, H, L, d)
        for made in (layer.q_proj, layer.k_proj, layer.v_proj)
    )
    keys, values = (page["roll"](each, size, first) for each in (k, v))
    ours = page["attend_newest"](q[:, :, -1:], keys, values, RoPE(8, layout="half"))
    assert_close(layer.o_proj(ours.transpose(1, 2).flatten(1)), published, 1e-6)


@pytest.mark.parametrize("head_dim", [64, 128])
@pytest.mark.parametrize("length", [100, 4096, 4097, 8192, 16384])
def test_dynamic_ntk_stretches_each_pair_as_the_class_does(length: int, head_dim: int) -> None:
    config = LlamaConfig(
        head_dim=head_dim,
        max_position_embeddings=4096,
        rope_parameters={"rope_type": "dynamic", "factor": 2.0, "rope_theta": 1e4},
    )
    tables = LlamaRotaryEmbedding(config)
    before = tables.inv_freq.clone()
    tables(torch.zeros(1), torch.arange(length)[None])
    stretch = answer_names("Extend a", 1)["stretch"](length, head_dim=head_dim)
    assert_close(stretch.float(), before / tables.inv_freq, 1e-5)


@torch.no_grad()
def test_keys_of_dynamic_ntk_that_are_rotated_anew_mend_the_first_layer_only() -> None:
    rope = DynamicNTK(8, 2.0, 4)
    layers = [MultiHeadAttention(16, 2, rope, causal=True).double() for _ in range(2)]
    caches, x = [KVCache() for _ in layers], torch.randn(1, 9, 16).double()
    for token in x.split(1, dim=1):
        first = layers[0](token, cache=caches[0])
        second = layers[1](first, cache=caches[1])
    whole = layers[0](x)
    assert_close(first[:, 0], whole[:, -1], 1e-12)
    assert (second[:, 0] - layers[1](whole)[:, -1]).abs().max() > 1e-6


@pytest.mark.parametrize(("length", "dropped"), [(8, False), (9, True), (10, False)])
def test_phi_3_drops_its_cache_where_the_lists_of_longrope_change(
    length: int, dropped: bool
) -> None:
    lists = {"short_factor": [1.0] * 4, "long_factor": [4.0] * 4}
    config = Phi3Config(
        hidden_size=16, num_attention_heads=2, num_key_value_heads=2, num_hidden_layers=1,
        intermediate_size=8, vocab_size=9, pad_token_id=0, max_position_embeddings=32,
        original_max_position_embeddings=8, rope_parameters={"rope_type": "longrope", **lists},
    )  # fmt: skip
    model, cache = Phi3ForCausalLM(config), DynamicCache()
    cache.update(*torch.randn(2, 1, 2, length - 1, 8), layer_idx=0)
    ids = torch.ones(1, length).long()
    inputs = model.prepare_inputs_for_generation(ids, past_key_values=cache, attention_mask=ids)
    assert (inputs.get("past_key_values") is None) == dropped


def test_what_the_page_says_of_a_finished_model_was_measured() -> None:
    words = answer_text("Extend a")
    text = sentences.found("text") | sentences.ruled("text")  # variant -> length -> seeds
    marker = {rule: sentences.at("marker", rule, 4) for rule in ("rope+cache", "rope+yarn")}
    home, far = text["rope"][64], 256
    tuned = curves(sentences.shipped("further-4"), "text", "nats-tuned-200", "further-4")
    assert "at four times the training length back to within 0.1 nats" in words
    for rule in ("rope+yarn", "rope+base"):
        assert max(tuned[rule][far]) < max(home) + 0.1
    assert max(text["rope+cache"][far]) < max(home) + 0.005
    assert min(text["rope+yarn"][far]) > max(text["rope+cache"][far])
    assert f"recalled at most {max(marker['rope+cache']):.2f} of the marked tokens" in words
    assert f"YaRN recalled at least {min(marker['rope+yarn']):.2f} at a higher loss" in words
    assert f"from at most {max(home):.2f} to at least {min(text['rope'][far]):.2f} nats" in words
    assert f"dynamic NTK it was at least {min(text['rope+dynamic-ntk'][far]):.2f}" in words


# --- a configuration ------------------------------------------------------------------------------


def test_the_explained_file_is_what_qwens_class_makes_of_it(
    warned: pytest.LogCaptureFixture,
) -> None:
    page = answer_names("How do I check")
    mended = page["config"]
    broken = mended | {"rope_scaling": {"type": "yarn", "factor": 4.0}}
    plain = mended | {"rope_scaling": None}
    kept, said = [], answer_output("How do I check").splitlines()
    for config in (plain, broken, mended):
        fields = {key: value for key, value in config.items() if key != "model_type"}
        tables = Qwen2RotaryEmbedding(Qwen2Config(**fields))
        rope = from_config(config)[0].rope
        assert rope is not None and rope.attention_factor == pytest.approx(tables.attention_scaling)
        assert_close(rope.inv_freq.float(), tables.inv_freq)
        before = 1e6 ** -(torch.arange(0, 128, 2) / 128)
        kept.append(int((before / tables.inv_freq < 1.0001).sum()))
    assert kept == [64, 31, 24] and not warned.records
    assert "keeps 31 pairs instead of 24" in answer_text("How do I check")
    assert said[1].startswith("yarn: pairs 0 to 30 left") and "131072 is taken" in said[2]
    assert said[4].startswith("yarn: pairs 0 to 23 left") and len(said) == 5


def test_the_command_prints_the_lines_of_the_page(tmp_path: Any, capsys: Any) -> None:
    from posdoctor.__main__ import main

    page = answer_names("How do I check")
    path = tmp_path / "config.json"
    path.write_text(json.dumps(page["config"]), encoding="utf-8")
    assert main([str(path), "--explain"]) == 0
    printed = [line.strip() for line in capsys.readouterr().out.splitlines()]
    lines = page["rotation_of"](page["config"])
    assert len(lines) == 2 and set(lines) <= set(printed)


def test_a_base_under_an_unread_name_is_ignored_by_qwens_class_and_refused_here() -> None:
    config = answer_names("How do I check")["config"]
    assert "such as `rotary_base`, is ignored" in answer_text("How do I check")
    config["rotary_base"] = config.pop("rope_theta")
    fields = {key: value for key, value in config.items() if key != "model_type"}
    assert Qwen2Config(**fields).rope_parameters["rope_theta"] == 10_000
    with pytest.raises(ValueError, match="rotary_base"):
        from_config(config)
