"""Published configurations: every rule and field of a file, in words and against the models."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import torch
from closeness import assert_close
from torch import Tensor

from lab import census
from pe_lib import KVCache, MultiHeadAttention, NoPosition, RoPE
from pe_lib.compose import Compose
from pe_lib.context_extension import DynamicNTK, LongRoPE
from pe_lib.rope import apply_rope, layout_permutation
from pe_lib.rotary_values import RotaryValues
from pe_lib.temperature import QueryTemperature, query_factor
from pe_lib.trailing import Trailing
from posdoctor.__main__ import main
from posdoctor.configs import Layer, from_config, model_types
from posdoctor.configs.explain import explain
from tools import equality, published


def model_of(name: str) -> type:
    from transformers.models.auto.configuration_auto import CONFIG_MAPPING

    model = published.text_model(CONFIG_MAPPING[name])
    assert model is not None
    return model


# Rope types, held against the models -------------------------------------------------------------

TRAINED = 512
STRETCHED: dict[str, dict[str, Any]] = {
    "linear": {"rope_type": "linear", "factor": 4.0},
    "dynamic": {"rope_type": "dynamic", "factor": 2.0},
    "yarn": {"rope_type": "yarn", "factor": 4.0, "original_max_position_embeddings": TRAINED},
    "yarn between": {
        "rope_type": "yarn", "factor": 8.0, "original_max_position_embeddings": TRAINED,
        "beta_fast": 16, "beta_slow": 2, "truncate": False,
    },
    "yarn with a gain": {
        "rope_type": "yarn", "factor": 4.0, "original_max_position_embeddings": TRAINED,
        "attention_factor": 1.3,
    },
    "yarn with weights": {
        "rope_type": "yarn", "factor": 4.0, "original_max_position_embeddings": TRAINED,
        "mscale": 1.0, "mscale_all_dim": 0.7,
    },
    "longrope": {
        "rope_type": "longrope", "factor": 4.0, "original_max_position_embeddings": TRAINED,
        "short_factor": [1.0 + j / 64 for j in range(64)],
        "long_factor": [1.0 + j for j in range(64)],
    },
    "longrope with a gain": {
        "rope_type": "longrope", "original_max_position_embeddings": TRAINED,
        "short_factor": [1.5] * 64, "long_factor": [3.0] * 64, "attention_factor": 1.2,
    },
    "llama3": {
        "rope_type": "llama3", "factor": 8.0, "original_max_position_embeddings": TRAINED,
        "low_freq_factor": 1.0, "high_freq_factor": 4.0,
    },
    "proportional": {"rope_type": "proportional", "partial_rotary_factor": 0.25},
}  # fmt: skip


@pytest.mark.parametrize("positions", [[0, 1, 6, 40, 300, 500], [0, 1, 6, 40, 300, 20001]])
@pytest.mark.parametrize("rule", STRETCHED)
def test_every_rope_type_equals_the_models_own(rule: str, positions: list[int]) -> None:
    parameters = {"rope_theta": 5e5, **STRETCHED[rule]}
    context = TRAINED if rule == "dynamic" else 4 * TRAINED
    configuration = published.small_configuration(
        "llama", num_hidden_layers=1, max_position_embeddings=context, rope_parameters=parameters
    )
    seen = published.record(model_of("llama"), configuration, positions)
    if "longrope" in rule:  # with all positions 0 a model takes the short factors' gain
        assert isinstance(from_config(configuration)[0].encoding, LongRoPE)
    equality.compare(from_config(configuration), seen, positions)


def test_latent_attention_multiplies_its_scores_by_the_square_of_a_gain() -> None:
    yarn = {**STRETCHED["yarn with weights"], "rope_theta": 1e4, "mscale_all_dim": 1.0}
    configuration = published.small_configuration(
        "deepseek_v3", num_hidden_layers=1, max_position_embeddings=2048, rope_parameters=yarn
    )
    encoding = from_config(configuration)[0].encoding
    assert isinstance(encoding, Trailing) and encoding.scale is not None
    seen = published.record(model_of("deepseek_v3"), configuration, published.POSITIONS)
    equality.compare(from_config(configuration), seen, published.POSITIONS)


def test_interleaved_pairs_of_latent_attention_are_left_in_the_half_order() -> None:
    from transformers.models.deepseek_v3.modeling_deepseek_v3 import (
        apply_rotary_pos_emb_interleave,
    )

    q, angles = torch.randn(1, 2, 5, 16).double(), torch.randn(5, 8).double()
    twice = torch.cat([angles, angles], dim=-1)[None]
    theirs, _ = apply_rotary_pos_emb_interleave(q, q, twice.cos(), twice.sin())
    assert_close(apply_rope(q, angles)[..., layout_permutation(16)], theirs)


def test_llama4_scales_the_queries_of_layers_that_do_not_rotate() -> None:
    changes = {"attn_temperature_tuning": True, "floor_scale": 2, "attn_scale": 0.1}
    tuned = published.small_configuration("llama4_text", **changes)
    plain = published.small_configuration("llama4_text")
    places = list(range(6))
    with_it, without = (
        published.record(model_of("llama4_text"), each, places) for each in (tuned, plain)
    )
    layer = from_config(tuned)[3]
    assert isinstance(layer.encoding, QueryTemperature) and not plain.no_rope_layers[3]
    q, k = without[3].moved
    ours, _ = layer.encoding.rotate(q, k, torch.tensor(places), torch.tensor(places))
    assert_close(ours, with_it[3].moved[0])


# Files --------------------------------------------------------------------------------------------


def config(**changes: Any) -> dict[str, Any]:
    return {
        "model_type": "llama", "num_hidden_layers": 6, "hidden_size": 64, "num_attention_heads": 4,
        "max_position_embeddings": 4096, "rope_theta": 10000.0, **changes,
    }  # fmt: skip


def rates(layer: Layer) -> Tensor:
    found = equality.rope_of(layer.encoding)
    assert found is not None
    return found[0].rates


def test_layers_that_mean_the_same_share_one_encoding() -> None:
    layers = from_config(config())
    assert len(layers) == 6 and len({id(layer.encoding) for layer in layers}) == 1


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ({}, {"rope_type": "default", "rope_theta": 10000.0}),
        (
            {"rope_scaling": {"type": "linear", "factor": 4.0}},
            {"rope_type": "linear", "factor": 4.0, "rope_theta": 10000.0},
        ),
        (
            {"rope_scaling": {"type": "mrope", "mrope_section": [2, 3, 3]}},
            {"rope_type": "default", "rope_theta": 10000.0, "mrope_section": [2, 3, 3]},
        ),
        (
            {"partial_rotary_factor": 0.5},
            {"rope_theta": 10000.0, "partial_rotary_factor": 0.5},
        ),
        ({"rotary_pct": 0.25}, {"rope_theta": 10000.0, "partial_rotary_factor": 0.25}),
    ],
)
def test_both_spellings_of_rope_parameters_mean_the_same(
    old: dict[str, Any], new: dict[str, Any]
) -> None:
    without = {key: value for key, value in config().items() if key != "rope_theta"}
    first = from_config(config(**old))[0]
    second = from_config({**without, "rope_parameters": new})[0]
    assert torch.equal(rates(first), rates(second))
    assert first.sections == second.sections == tuple(new.get("mrope_section", ()))


def test_phi3_has_its_trained_length_beside_the_rope_parameters() -> None:
    scaling = {"type": "su", "short_factor": [1.0] * 8, "long_factor": [2.0] * 8}
    phi3 = config(model_type="phi3", rope_scaling=scaling, original_max_position_embeddings=1024)
    encoding = from_config(phi3)[0].encoding
    assert isinstance(encoding, LongRoPE) and encoding.trained_length == 1024
    assert encoding.gain == pytest.approx((1 + 0.2) ** 0.5)  # ln 4 / ln 1024 = 1 / 5


def test_phimoe_has_a_gain_for_short_and_one_for_long_sequences() -> None:
    scaling = {
        "type": "longrope", "short_factor": [1.0] * 8, "long_factor": [2.0] * 8,
        "original_max_position_embeddings": 1024, "short_mscale": 1.1, "long_mscale": 1.2,
    }  # fmt: skip
    encoding = from_config(config(model_type="phimoe", rope_scaling=scaling))[0].encoding
    assert isinstance(encoding, LongRoPE) and encoding.gain == 1.1
    assert encoding.gain_at(torch.tensor(2000)) == 1.2


def test_hunyuan_calls_a_larger_base_dynamic() -> None:
    scaling = {"type": "dynamic", "alpha": 1000.0, "factor": 1.0, "mscale": 1.0}
    layer = from_config(config(model_type="hunyuan_v1_dense", rope_scaling=scaling))[0]
    assert not isinstance(layer.encoding, DynamicNTK)
    slowest = (1e4 * 1000 ** (16 / 14)) ** (-14 / 16)
    assert_close(rates(layer)[-1:], torch.tensor([slowest]).double())


GEMMA = {"model_type": "gemma3_text", "head_dim": 16, "sliding_window": 512, "rope_theta": 1e6}
OLD_LAYERS: dict[str, tuple[dict[str, Any], str]] = {
    "gemma 3": (
        {**GEMMA, "rope_local_base_freq": 1e4, "sliding_window_pattern": 3,
         "rope_scaling": {"rope_type": "linear", "factor": 8.0}},
        "rrGrrG",
    ),
    "modernbert": (
        {"model_type": "modernbert", "rope_theta": None, "global_rope_theta": 1.6e5,
         "local_rope_theta": 1e4, "local_attention": 128, "global_attn_every_n_layers": 3},
        "GrrGrr",
    ),
    "command a": (
        {"model_type": "cohere2", "sliding_window": 64, "sliding_window_pattern": 3}, "rr-rr-",
    ),
    "exaone 4": (
        {"model_type": "exaone4", "sliding_window": 64, "sliding_window_pattern": "LLG"}, "rr-rr-",
    ),
    "exaone 4, without windows": ({"model_type": "exaone4", "sliding_window": None}, "GGGGGG"),
    "smollm 3": ({"model_type": "smollm3", "no_rope_layer_interval": 3}, "GG-GG-"),
    "llama 4": (
        {"model_type": "llama4_text", "no_rope_layers": [1, 0, 1, 0, 1, 0],
         "attention_chunk_size": 8}, "G-G-G-",
    ),
    "muse": (
        {"model_type": "muse_spark_text", "layer_rope_theta": [1e4, 0] * 3,
         "layer_types": ["full_attention"] * 6}, "G-G-G-",
    ),
    "gemma 2": ({"model_type": "gemma2", "sliding_window": 64}, "rGrGrG"),
    "gpt-oss": ({"model_type": "gpt_oss", "sliding_window": 64}, "rGrGrG"),
    "qwen 3 next": ({"model_type": "qwen3_next", "full_attention_interval": 3}, "..G..G"),
    "nemotron-h": (
        {"model_type": "nemotron_h", "hybrid_override_pattern": "M-M*ME",
         "num_hidden_layers": None}, "...-..",
    ),
    "llama 4, without a list": (
        {"model_type": "llama4_text", "attention_chunk_size": 8, "no_rope_layers": []}, "GGG-GG",
    ),
    "qwen 2": (
        {"model_type": "qwen2", "use_sliding_window": True, "sliding_window": 64,
         "max_window_layers": 4}, "GGGGrr",
    ),
    "qwen 2, switched off": (
        {"model_type": "qwen2", "use_sliding_window": False, "sliding_window": 64}, "GGGGGG",
    ),
    "mistral": ({"model_type": "mistral", "sliding_window": 64}, "rrrrrr"),
    "jamba": ({"model_type": "jamba", "attn_layer_period": 3, "attn_layer_offset": 1}, ".-..-."),
    "bamba": ({"model_type": "bamba", "attn_layer_indices": [2]}, "..G..."),
    "recurrent gemma": (
        {"model_type": "recurrent_gemma", "block_types": ["recurrent", "attention"],
         "attention_window_size": 64}, ".r.r.r",
    ),
    "llama 3.2 with images": (
        {"model_type": "mllama_text_model", "cross_attention_layers": [2]}, "GG-GGG",
    ),
    "granite hybrid": (
        {"model_type": "granitemoehybrid", "position_embedding_type": "nope",
         "layer_types": ["mamba", "attention"] * 3}, ".-.-.-",
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", OLD_LAYERS)
def test_layers_of_files_that_list_no_kinds(name: str) -> None:
    changes, wanted = OLD_LAYERS[name]

    def letter(layer: Layer) -> str:
        if layer.encoding is None:
            return "."
        if equality.rope_of(layer.encoding) is None:
            return "-"
        return "G" if layer.window is None else "r"

    layers = from_config(config(**changes))
    assert "".join(letter(layer) for layer in layers) == wanted


def test_what_a_file_leaves_out_is_what_its_class_has() -> None:
    gemma = {"model_type": "gemma3", "text_config": {
        "num_hidden_layers": 62, "sliding_window": 1024,
        "rope_scaling": {"rope_type": "linear", "factor": 8.0}}}  # fmt: skip
    layers = from_config(gemma)
    far = [layer for layer in layers if layer.window is None]
    assert len(far) == 10 and len(layers) == 62
    assert all(layer.parameters == {"rope_theta": 1e4} for layer in layers if layer.window)
    assert far[0].parameters == {"rope_theta": 1e6, "rope_type": "linear", "factor": 8.0}
    assert len(rates(far[0])) == 128


def test_what_models_do_that_do_not_rotate_is_what_the_census_found() -> None:
    found = {row["model"].replace("_", "-"): row for row in census.read("transformers")}
    columns = {model_types.TABLE: "learned", model_types.SINUSOIDS: "sinusoidal",
               model_types.ALIBI: "alibi", model_types.BUCKETS: "t5"}  # fmt: skip
    for name, reason in model_types.REFUSED.items():
        if reason in columns:
            assert found[name.replace("_", "-")][columns[reason]], name


def test_windows_that_a_class_does_not_read_are_said_to_be_unread() -> None:
    told = explain(config(sliding_window=64))
    assert "warning: sliding_window is given, and classes of type llama do not read it" in told
    assert "layers 0 to 5: full_attention" in told


def test_the_factor_on_scores_is_told() -> None:
    scaling = {"type": "yarn", "factor": 40.0, "original_max_position_embeddings": 100,
               "mscale": 1.0, "mscale_all_dim": 1.0}  # fmt: skip
    told = explain(config(model_type="deepseek_v3", **LATENT, rope_scaling=scaling))
    assert "scores are multiplied by 1.874 besides, as mscale_all_dim says" in told


def test_global_and_local_layers_have_bases_of_their_own() -> None:
    changes, _ = OLD_LAYERS["gemma 3"]
    local, far = (from_config(config(**changes))[index] for index in (0, 2))
    assert_close(rates(local)[1:2], torch.tensor([1e4 ** (-1 / 8)]).double())
    assert_close(rates(far)[1:2], torch.tensor([1e6 ** (-1 / 8) / 8]).double())


@pytest.mark.parametrize("key", ["03", "3", 3])
def test_fields_of_a_single_layer_are_found_however_its_number_is_written(key: object) -> None:
    changes = {key: {"head_dim": 32, "sliding_window": 128}}
    layers = from_config(config(model_type="mistral", sliding_window=64, per_layer_config=changes))
    widths = [8, 8, 8, 16, 8, 8]
    assert [len(rates(layer)) for layer in layers] == widths
    assert [layer.window for layer in layers] == [8 * width for width in widths]


def test_the_text_of_a_model_for_images_is_read() -> None:
    nested = {"model_type": "llava", "text_config": config(), "vision_config": {}}
    assert len(from_config(nested)) == 6


def test_a_caller_may_say_layout_and_base() -> None:
    unknown = {**config(model_type="new"), "rope_theta": None}
    layer = from_config(unknown, layout="interleaved", base=500.0)[0]
    assert isinstance(layer.encoding, RoPE) and layer.encoding.layout == "interleaved"
    assert_close(rates(layer)[1:2], torch.tensor([500.0 ** (-1 / 8)]).double())


LATENT = {"qk_nope_head_dim": 8, "qk_rope_head_dim": 4}
FULL = "full_attention"


def scaled(rule: str, **changes: Any) -> dict[str, Any]:
    trained = {"original_max_position_embeddings": 1024}
    return config(rope_scaling={"type": rule, "factor": 4.0, **trained, **changes})


def by_kind(parameters: dict[str, Any], kinds: list[str]) -> dict[str, Any]:
    changes = {"layer_types": kinds, "rope_parameters": parameters, "num_hidden_layers": len(kinds)}
    return config(**changes, rope_theta=None)


WRONG: dict[str, tuple[Any, str]] = {
    "no configuration": ([], "config must be a dictionary"),
    "unknown field": (
        config(rope_scaling={"type": "linear", "factor": 2.0, "factr": 3, "x": 1}), "factr, x",
    ),
    "field of another rule": (config(rope_scaling={"type": "linear", "beta_fast": 2}), "beta_fast"),
    "unknown field beside the rope parameters": (config(rope_ratio=2.0), "reads, got rope_ratio"),
    "unknown fields, all named": (
        config(rotary_share=0.5, rope_flip=True), "reads, got rope_flip, rotary_share",
    ),
    "unknown field of one kind of layer": (
        by_kind({FULL: {"rope_theta": 1e4, "wobble": 1}}, [FULL]), "got wobble",
    ),
    "rotated values": (config(model_type="roformer", rotary_value=True), "got rotary_value"),
    "unknown rule": (config(rope_scaling={"type": "spiral"}), "rope_type must be one of.*spiral"),
    "no factor": (config(rope_scaling={"type": "linear"}), "factor must be a number"),
    "no factors": (config(rope_scaling={"type": "longrope"}), "short_factor, long_factor"),
    "no base": (config(rope_theta=None), "rope_theta must be given"),
    "no layout": (config(model_type="new"), "layout must be given.*'new'"),
    "no layers": (config(num_hidden_layers=None), "num_hidden_layers must be an int"),
    "no width": (config(hidden_size=None), "head_dim must be given, or hidden_size and"),
    "no window": (
        config(model_type="recurrent_gemma", block_types=["attention"],
               attention_window_size=None), "attention_window_size",
    ),
    "a kind without parameters": (
        by_kind({"sliding_attention": {}}, [FULL, "sliding_attention"]),
        "rope_parameters must have 'full_attention'",
    ),
    "no rotary part": (config(**LATENT | {"qk_rope_head_dim": None}), "head_dim|qk_rope_head_dim"),
    "content-read distances": (config(model_type="inkling2_text"), "hidden state"),
    "ALiBi": (config(model_type="falcon", alibi=True), "use pe_lib.ALiBi"),
    "unknown kind of layer": (
        config(layer_types=[FULL] * 5 + ["full_atention"]),
        r"layer_types\[5\] must be one of full_attention, .*; got 'full_atention'",
    ),
    "unknown kind of an older list": (
        config(model_type="bamba", layers_block_type=["mambo"] * 6),
        r"layers_block_type\[0\].*mambo",
    ),
    "unknown kind in a pattern": (
        config(model_type="recurrent_gemma", block_types=["recurring"]),
        r"block_types\[0\].*recurring",
    ),
    "unknown letter": (
        config(model_type="nemotron_h", hybrid_override_pattern="M-X*M-"),
        "hybrid_override_pattern must be one of M, E, .*; got 'X'",
    ),
    "unknown letter of a window": (
        config(model_type="exaone4", sliding_window=64, sliding_window_pattern="LLX"),
        "sliding_window_pattern must be a number or of the letters L and G, got 'LLX'",
    ),
    "kinds in a word": (config(layer_types=FULL), "layer_types must be a list, got 'full"),
    "too few kinds": (
        config(layer_types=[FULL] * 5), "layer_types must have 6 entries, as num_hidden_l.*; got 5",
    ),
    "too many letters": (
        config(model_type="nemotron_h", hybrid_override_pattern="M*" * 4),
        "hybrid_override_pattern must have 6 entries.*got 8",
    ),
    "two bases under two names": (
        config(rotary_emb_base=5e5), "rotary_emb_base must be rope_theta, which is 10000.0; got 5",
    ),
    "two bases": (
        config(rope_parameters={"rope_theta": 5e5}),
        "rope_theta must be that of the rope parameters, which is 500000.0; got 10000.0",
    ),
    "trained on more than it sees": (
        config(rope_scaling={"type": "yarn", "factor": 2.0,
                             "original_max_position_embeddings": 8192}),
        "original_max_position_embeddings must be at most .* 4096; got 8192",
    ),
    "heads that do not divide the width": (
        config(num_attention_heads=3), "hidden_size must be a multiple of 3, the heads; got 64",
    ),
    "more heads of keys than of queries": (
        config(num_key_value_heads=8), "multiple of num_key_value_heads, which is 8; got 4",
    ),
    "a stretch that shortens": (scaled("yarn", factor=0.5), "factor must be .* 1, got 0.5"),
    "ALiBi of a type that rotates": (config(alibi=True), "alibi=true .* use pe_lib.ALiBi"),
    "a table in a type that rotates": (
        config(model_type="granite", position_embedding_type="absolute"),
        "must rotate, as all .* 'granite' do; position_embedding_type is 'absolute'",
    ),
    "a rotation that is switched off": (
        config(use_rope=False), "config must rotate, as all models of type 'llama' do; use_rope",
    ),
    "a stretch that no class reads": (
        config(model_type="gemma4_text", rope_theta=None,
               rope_scaling={"type": "linear", "factor": 8.0}),
        "rope_scaling must not be given: .*'gemma4_text' reads rope_parameters by kind",
    ),
    "a base that no class reads": (
        config(model_type="mimo_v2_flash", rope_theta=2e4),
        r"rope_theta must be one of \[5000000.0, 10000.0\], .*got 20000.0",
    ),
    "a number that is no kind": (
        config(model_type="mimo_v2_flash", rope_theta=5e6, hybrid_layer_pattern=[0, 1, 2] * 2),
        "hybrid_layer_pattern must be one of 0, 1; got '2'",
    ),
    "too few bases": (
        config(model_type="muse_spark_text", layer_types=[FULL] * 6, layer_rope_theta=[1e4]),
        "layer_rope_theta must have 6 entries.*got 1",
    ),
    "too few flags": (
        config(model_type="smollm3", no_rope_layers=[1, 0]), "no_rope_layers must have 6 .*got 2",
    ),
    "no flag": (
        config(model_type="smollm3", no_rope_layers=[1, 0, 2, 1, 1, 1]),
        r"no_rope_layers\[2\] must be 0 or 1, got 2",
    ),
    "a layer that there is not": (
        config(model_type="bamba", attn_layer_indices=[2, 6]),
        r"attn_layer_indices must be of layers 0 to 5, got \[6\]",
    ),
    "fields of a layer that there is not": (
        config(per_layer_config={"06": {"head_dim": 8}}), "per_layer_config .* 0 to 5, got '06'",
    ),
    "unknown field of a single layer": (
        config(per_layer_config={"2": {"rope_wobble": 1}}), "reads, got rope_wobble",
    ),
    "an interval of none": (
        config(model_type="smollm3", no_rope_layer_interval=0), "no_rope_layer_interval .* got 0",
    ),
    "an offset beyond its period": (
        config(model_type="jamba", attn_layer_period=3, attn_layer_offset=3),
        "attn_layer_offset must be less than attn_layer_period, which is 3; got 3",
    ),
    "parameters for a kind that no layer is": (
        by_kind({FULL: {"rope_theta": 1e4}, "sliding_attention": {"rope_theta": 1e4}}, [FULL]),
        "kinds of layers that there are, full_attention; got 'sliding_attention'",
    ),
    "parameters by kind and beside": (
        by_kind({FULL: {"rope_theta": 1e4}, "rope_type": "yarn"}, [FULL]), "got 'rope_type'",
    ),
    "parameters of a kind in a word": (
        by_kind({"sliding_attention": {"rope_theta": 1e4}, FULL: "yarn"},
                ["sliding_attention", FULL]),
        r"rope_parameters\['full_attention'\] must be a dictionary, got 'yarn'",
    ),
    "parameters in a word": (config(rope_parameters="yarn"), "rope_parameters must be a dict"),
    "old parameters in a word": (config(rope_scaling="yarn"), "rope_scaling must be a dictionary"),
    "parameters twice": (
        config(rope_parameters={"rope_theta": 1e4},
               rope_scaling={"type": "dynamic", "factor": 2.0}),
        "rope_parameters and rope_scaling must not both be given",
    ),
    "two rules": (scaled("linear", rope_type="yarn"), "rope_type and type must name the same rule"),
    "a rule in a list": (scaled("linear", rope_type=["yarn"]), r"rope_type must .*\['yarn'\]"),
    "sections of too few pairs": (
        config(rope_scaling={"type": "mrope", "mrope_section": [2, 3, 2]}),
        r"mrope_section must add up to 8, the pairs of the 16 .*; got \[2, 3, 2\], which is 7",
    ),
    "sections of the whole head where half of it rotates": (
        config(partial_rotary_factor=0.5,
               rope_scaling={"type": "mrope", "mrope_section": [2, 3, 3]}),
        "mrope_section must add up to 4, .*which is 8",
    ),
    "sections below 0": (
        config(rope_scaling={"type": "mrope", "mrope_section": [9, -1]}), r"mrope_section\[1\].*-1",
    ),
    "sections in a number": (
        config(rope_scaling={"type": "mrope", "mrope_section": 8}), "mrope_section must be a list",
    ),
    "sections in words": (
        config(rope_scaling={"type": "mrope", "mrope_section": [2, 3, 3],
                             "mrope_interleaved": "yes"}), "mrope_interleaved must be True or F",
    ),
    "no part": (config(partial_rotary_factor=0), "partial_rotary_factor must .* 0, got 0"),
    "more than all": (
        config(partial_rotary_factor=1.5), "partial_rotary_factor must .* at most 1, got 1.5",
    ),
    "a part in a word": (config(rotary_pct="half"), "rotary_pct must be a number, got 'half'"),
    "an odd head": (config(head_dim=15), "head_dim must be a multiple of 2 .*got 15"),
    "an odd width": (
        config(model_type="gptj", rotary_dim=5), "rotary_dim must be a multiple of 2 .*got 5",
    ),
    "an odd width of latent attention": (
        config(model_type="deepseek_v3", qk_nope_head_dim=8, qk_rope_head_dim=5),
        "qk_rope_head_dim must be a multiple of 2 .*got 5",
    ),
    "a base below 0": (config(rope_theta=-1e4), "rope_theta must be .* than 0, got -10000.0"),
    "a base of a layer below 0": (
        config(model_type="muse_spark_text", layer_types=[FULL] * 6, layer_rope_theta=[-1.0] * 6),
        r"layer_rope_theta\[0\] must be .* at least 0, got -1.0",
    ),
    "half a window": (
        config(model_type="mistral", sliding_window=64.5), "sliding_window must be an int",
    ),
    "a window below 0": (
        config(model_type="mistral", sliding_window=-64), "sliding_window .* 0, got -64",
    ),
    "windows of no width": (
        config(layer_types=["sliding_attention"] * 6), "sliding_window must be given: .*'sliding_",
    ),
    "pieces of no length": (
        config(layer_types=["chunked_attention"] * 6), "attention_chunk_size must be an int",
    ),
    "a context in a word": (config(max_position_embeddings="4k"), "max_position_embeddings must"),
    "half a trained length": (
        scaled("yarn", original_max_position_embeddings=10.5), "original_max_pos.* must be an int",
    ),
    "bounds of YaRN the wrong way round": (
        scaled("yarn", beta_fast=1, beta_slow=32), "beta_fast must be at least beta_s.*32; got 1",
    ),
    "bounds of Llama 3 the wrong way round": (
        scaled("llama3", low_freq_factor=4.0, high_freq_factor=2.0),
        "high_freq_factor must be at least low_freq_factor, which is 4.0; got 2.0",
    ),
    "factors of too few pairs": (
        scaled("longrope", short_factor=[1.0] * 8, long_factor=[1.0] * 7),
        "long_factor must have 8 entries, .* pairs that rotate says; got 7",
    ),
    "a temperature that knows no length": (
        config(rope_scaling={"rope_type": "default", "llama_4_scaling_beta": 0.1}),
        "original_max_position_embeddings must be given beside llama_4_scaling_beta",
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", WRONG)
def test_a_wrong_configuration_is_refused_in_words(name: str) -> None:
    given, words = WRONG[name]
    with pytest.raises((TypeError, ValueError), match=words):
        from_config(given)


# What comes back keeps the promises ---------------------------------------------------------------

KEEPERS = {
    "llama": config(),
    "yarn": config(rope_scaling={"type": "yarn", "factor": 4.0,
                                 "original_max_position_embeddings": 64}),
    "latent": config(model_type="deepseek_v3", **LATENT),
    "values rotated too": config(
        model_type="deepseek_v4", head_dim=16, partial_rotary_factor=0.5, sliding_window=128,
        layer_types=["heavily_compressed_attention"] * 6,
    ),
    "proportional": config(rope_scaling={"type": "proportional", "partial_rotary_factor": 0.5}),
    "backwards": config(model_type="nanochat"),
}  # fmt: skip


@pytest.mark.parametrize("name", KEEPERS)
def test_encodings_keep_their_promises_with_a_cache_a_shift_and_padding(name: str) -> None:
    layer = from_config(KEEPERS[name])[0]
    assert layer.encoding is not None
    width = 12 if name == "latent" else 16
    torch.manual_seed(0)
    attention = MultiHeadAttention(2 * width, 2, layer.encoding, causal=True).double()
    x = torch.randn(2, 7, 2 * width).double()
    whole, cache_ = attention(x), KVCache()
    steps = [attention(x[:, i : i + 1], cache=cache_) for i in range(7)]
    assert_close(torch.cat(steps, dim=1), whole)
    assert_close(attention(x, q_pos=torch.arange(7) + 1000), whole)
    padded = torch.cat([torch.randn(2, 3, 2 * width).double(), x], dim=1)
    places = torch.arange(10).expand(2, 10) - 3
    seen = (places >= 0)[:, None, None, :]
    assert_close(attention(padded, q_pos=places, mask=seen)[:, 3:], whole)


def test_values_are_rotated_and_rotated_back_where_the_model_does_it() -> None:
    encoding = from_config(KEEPERS["values rotated too"])[0].encoding
    assert isinstance(encoding, Trailing) and isinstance(encoding.encoding, RotaryValues)
    v, places = torch.randn(1, 2, 3, 16).double(), torch.arange(3)
    assert encoding.uses("rotate_values") and not encoding.uses("bias")
    rotated = encoding.rotate_values(v, places)
    assert torch.equal(rotated[..., :8], v[..., :8]) and not torch.equal(rotated, v)
    assert_close(encoding.rotate_back(rotated, places), v)


def test_query_temperature_leaves_keys_and_grows_in_steps_or_smoothly() -> None:
    encoding = from_config(config(rope_scaling={
        "type": "yarn", "factor": 2.0, "original_max_position_embeddings": 4,
        "llama_4_scaling_beta": 0.5}))[0].encoding  # fmt: skip
    assert isinstance(encoding, Compose) and encoding.rotates_once
    steps = query_factor(torch.arange(9), 0.5, 4)
    assert_close(steps, 1 + 0.5 * torch.log(torch.tensor([1, 1, 1, 1, 2, 2, 2, 2, 3]).double()))
    smooth = query_factor(torch.tensor([0, 3]), 0.5, 4, ahead=1, growth="power")
    assert_close(smooth, torch.tensor([1.25, 2.0]).double() ** 0.5)


def test_trailing_takes_only_what_rotates() -> None:
    from pe_lib import T5Bias

    with pytest.raises(TypeError, match="encoding must be a PositionEncoding"):
        Trailing(None, 4)  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="encoding must only rotate, got one that uses bias"):
        Trailing(T5Bias(2), 4)
    assert not Trailing(NoPosition(), 4).uses("rotate")


# The command --------------------------------------------------------------------------------------


def written(tmp_path: Path, content: str) -> str:
    path = tmp_path / "config.json"
    path.write_text(content, encoding="utf-8")
    return str(path)


def test_the_command_tells_frequencies_stretch_and_gain(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    scaling = {"type": "yarn", "factor": 4.0, "original_max_position_embeddings": 1024}
    path = written(tmp_path, json.dumps(config(rope_scaling=scaling)))
    assert main([path, "--explain"]) == 0
    told = capsys.readouterr().out
    assert "layers 0 to 5: full_attention" in told
    assert "16 of 16 components" in told and "half" in told
    assert "gain 1.139, scores grow by 1.296" in told
    assert "divided by 4" in told


def test_the_command_tells_layers_without_positions_and_windows() -> None:
    told = explain({**config(**OLD_LAYERS["command a"][0])})
    assert "layers 0, 1, 3, 4: sliding_attention" in told and "64 distances" in told
    assert "layers 2, 5: full_attention" in told and "no positions" in told


def test_the_command_warns_of_a_small_base_and_names_pairs_that_never_finish_a_turn() -> None:
    told = explain(config(max_position_embeddings=131072))
    assert "warning" in told and "base 10000" in told
    yarn = {"type": "yarn", "factor": 2.0, "original_max_position_embeddings": 1024}
    assert "warning: factor 2 times the trained length 1024" in explain(config(rope_scaling=yarn))
    far = explain(config(rope_theta=1e8))
    assert "never finish a turn" in far and "warning" not in far


@pytest.mark.parametrize("content", ["{", "[]", json.dumps(config(rope_theta=None))])
def test_the_command_ends_with_2_and_one_line_on_bad_input(
    content: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main([written(tmp_path, content), "--explain"]) == 2
    told = capsys.readouterr()
    assert told.out == "" and len(told.err.splitlines()) == 1


def test_the_command_ends_with_2_without_a_file(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["nowhere.json", "--explain"]) == 2
    assert "nowhere.json" in capsys.readouterr().err


def test_the_command_is_told_what_a_file_does_not_tell(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    unknown = {key: value for key, value in config(model_type="new").items() if key != "rope_theta"}
    path = written(tmp_path, json.dumps(unknown))
    assert main([path, "--explain", "--layout", "interleaved", "--base", "500"]) == 0
    assert "pairs interleaved, base 500" in capsys.readouterr().out
    assert main([path, "--explain"]) == 2
    assert "rope_theta must be given" in capsys.readouterr().err


def test_types_whose_file_names_no_base_have_that_of_their_code():
    esm = {"model_type": "esm", "hidden_size": 1280, "num_attention_heads": 20}
    rope = from_config({**esm, "position_embedding_type": "rotary"})[0].rope
    assert (rope.layout, len(rope.rates), rope.rates[1]) == ("half", 32, 1e4 ** (-1 / 32))
    with pytest.raises(ValueError, match="position_embedding_type is 'absolute'"):
        from_config(esm)  # as its class takes it

    glm = {"model_type": "chatglm", "kv_channels": 128, "num_layers": 28, "original_rope": True}
    rope = from_config(glm)[0].rope
    assert (rope.layout, rope.head_dim, len(rope.rates)) == ("interleaved", 128, 32)
    assert rope.rates[1] == 1e4 ** (-1 / 32)
    with pytest.raises(ValueError, match="rotates one half by a place and the other by another"):
        from_config({**glm, "position_encoding_2d": True})
