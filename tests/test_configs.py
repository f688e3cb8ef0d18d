"""Published configurations: every rule and field of a file, in words and against the models."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import equality
import pytest
import recorded_models
import torch
from closeness import assert_close
from torch import Tensor

from pe_course import census
from pe_lib import KVCache, MultiHeadAttention, RoPE
from pe_lib.compose import Compose
from pe_lib.recent.mla import DecoupledRotation
from pe_lib.recent.rotary_values import RotaryValues
from pe_lib.recent.temperature import QueryTemperature, query_factor
from pe_lib.rope import apply_rope, layout_permutation
from pe_lib.rope_scaling import DynamicNTK, LongRoPE
from posdoctor.__main__ import main
from posdoctor.configs import Layer, from_config, model_types
from posdoctor.configs.explain import explain
from tools.configs_page import rope_of


def model_of(name: str) -> type:
    from transformers.models.auto.configuration_auto import CONFIG_MAPPING

    model = recorded_models.text_model(CONFIG_MAPPING[name])
    assert model is not None
    return model


# Rope types, held against the models -------------------------------------------------------------

TRAINED = 512
STRETCHED = json.loads(Path(__file__).with_name("stretched.json").read_text(encoding="utf-8"))


@pytest.mark.parametrize("positions", [[0, 1, 6, 40, 300, 500], [0, 1, 6, 40, 300, 20001]])
@pytest.mark.parametrize("rule", STRETCHED)
def test_every_rope_type_equals_the_models_own(rule: str, positions: list[int]) -> None:
    parameters = {"rope_theta": 5e5, **STRETCHED[rule]}
    context = TRAINED if rule == "dynamic" else 4 * TRAINED
    configuration = recorded_models.small_configuration(
        "llama", num_hidden_layers=1, max_position_embeddings=context, rope_parameters=parameters
    )
    seen = recorded_models.record(model_of("llama"), configuration, positions)
    if "longrope" in rule:  # with all positions 0 a model takes the short factors' gain
        assert isinstance(from_config(configuration)[0].encoding, LongRoPE)
    equality.compare(from_config(configuration), seen, positions)


def test_latent_attention_multiplies_its_scores_by_the_square_of_a_gain() -> None:
    yarn = {**STRETCHED["yarn with weights"], "rope_theta": 1e4, "mscale_all_dim": 1.0}
    configuration = recorded_models.small_configuration(
        "deepseek_v3", num_hidden_layers=1, max_position_embeddings=2048, rope_parameters=yarn
    )
    encoding = from_config(configuration)[0].encoding
    assert isinstance(encoding, DecoupledRotation) and encoding.scale is not None
    seen = recorded_models.record(model_of("deepseek_v3"), configuration, recorded_models.POSITIONS)
    equality.compare(from_config(configuration), seen, recorded_models.POSITIONS)


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
    tuned = recorded_models.small_configuration("llama4_text", **changes)
    plain = recorded_models.small_configuration("llama4_text")
    places = list(range(6))
    with_it, without = (
        recorded_models.record(model_of("llama4_text"), each, places) for each in (tuned, plain)
    )
    layer = from_config(tuned)[3]
    assert isinstance(layer.encoding, QueryTemperature) and not plain.no_rope_layers[3]
    q, k = without[3].at_positions
    ours, _ = layer.encoding.rotate(q, k, torch.tensor(places), torch.tensor(places))
    assert_close(ours, with_it[3].at_positions[0])


# Files --------------------------------------------------------------------------------------------


def config(**changes: Any) -> dict[str, Any]:
    return {
        "model_type": "llama", "num_hidden_layers": 6, "hidden_size": 64, "num_attention_heads": 4,
        "max_position_embeddings": 4096, "rope_theta": 10000.0, **changes,
    }  # fmt: skip


def inv_freq(layer: Layer) -> Tensor:
    found = rope_of(layer.encoding)
    assert found is not None
    return found[0].inv_freq


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
            {
                "model_type": "qwen2_vl",
                "rope_scaling": {"type": "mrope", "mrope_section": [2, 3, 3]},
            },
            {"rope_type": "default", "rope_theta": 10000.0, "mrope_section": [2, 3, 3]},
        ),
        (
            {"model_type": "phi", "partial_rotary_factor": 0.5},
            {"rope_theta": 10000.0, "partial_rotary_factor": 0.5},
        ),
        (
            {"model_type": "gpt_neox", "rotary_pct": 0.25},
            {"rope_theta": 10000.0, "partial_rotary_factor": 0.25},
        ),
    ],
)
def test_both_spellings_of_rope_parameters_mean_the_same(
    old: dict[str, Any], new: dict[str, Any]
) -> None:
    without = {key: value for key, value in config().items() if key != "rope_theta"}
    first = from_config(config(**old))[0]
    kind = {"model_type": old.get("model_type", "llama")}
    second = from_config({**without, **kind, "rope_parameters": new})[0]
    assert torch.equal(inv_freq(first), inv_freq(second))
    assert first.sections == second.sections == tuple(new.get("mrope_section", ()))


def test_phi3_has_its_trained_length_beside_the_rope_parameters() -> None:
    scaling = {"type": "su", "short_factor": [1.0] * 8, "long_factor": [2.0] * 8}
    phi3 = config(model_type="phi3", rope_scaling=scaling, original_max_position_embeddings=1024)
    encoding = from_config(phi3)[0].encoding
    assert isinstance(encoding, LongRoPE) and encoding.trained_length == 1024
    assert encoding.attention_factor == pytest.approx((1 + 0.2) ** 0.5)  # ln 4 / ln 1024 = 1 / 5


def test_phimoe_states_its_gain_twice() -> None:
    scaling = {
        "type": "longrope", "short_factor": [1.0] * 8, "long_factor": [2.0] * 8,
        "original_max_position_embeddings": 1024, "short_mscale": 1.2, "long_mscale": 1.2,
    }  # fmt: skip
    encoding = from_config(config(model_type="phimoe", rope_scaling=scaling))[0].encoding
    assert isinstance(encoding, LongRoPE) and encoding.attention_factor == 1.2
    with pytest.raises(ValueError, match="short_mscale and long_mscale must be equal"):
        from_config(config(model_type="phimoe", rope_scaling=scaling | {"short_mscale": 1.1}))


def test_hunyuan_calls_a_larger_base_dynamic() -> None:
    scaling = {"type": "dynamic", "alpha": 1000.0, "factor": 1.0, "mscale": 1.0}
    layer = from_config(config(model_type="hunyuan_v1_dense", rope_scaling=scaling))[0]
    assert not isinstance(layer.encoding, DynamicNTK)
    slowest = (1e4 * 1000 ** (16 / 14)) ** (-14 / 16)
    assert_close(inv_freq(layer)[-1:], torch.tensor([slowest]).double())


def table(name: str) -> dict[str, tuple[dict[str, Any], str]]:
    """Read lines of a name, what a file has beside that of `config`, and what comes of it."""
    lines = Path(__file__).with_name(name).read_text(encoding="utf-8").splitlines()
    parts = (line.split(" ; ", 2) for line in lines)
    return {title: (json.loads(changes), wanted) for title, changes, wanted in parts}


# Of each layer a letter: `G` sees all, `r` has a window, `-` has no positions, `.` no attention.
OLD_LAYERS = table("configured_layers.txt")


@pytest.mark.parametrize("name", OLD_LAYERS)
def test_layers_of_files_that_list_no_kinds(name: str) -> None:
    changes, wanted = OLD_LAYERS[name]

    def letter(layer: Layer) -> str:
        if layer.encoding is None:
            return "."
        if rope_of(layer.encoding) is None:
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
    assert len(inv_freq(far[0])) == 128


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
    assert_close(inv_freq(local)[1:2], torch.tensor([1e4 ** (-1 / 8)]).double())
    assert_close(inv_freq(far)[1:2], torch.tensor([1e6 ** (-1 / 8) / 8]).double())


@pytest.mark.parametrize("key", ["03", "3", 3])
def test_fields_of_a_single_layer_are_found_however_its_number_is_written(key: object) -> None:
    changes = {key: {"head_dim": 32, "sliding_window": 128}}
    layers = from_config(config(model_type="mistral", sliding_window=64, per_layer_config=changes))
    widths = [8, 8, 8, 16, 8, 8]
    assert [len(inv_freq(layer)) for layer in layers] == widths
    assert [layer.window for layer in layers] == [8 * width for width in widths]


def test_the_text_of_a_model_for_images_is_read() -> None:
    nested = {"model_type": "llava", "text_config": config(), "vision_config": {}}
    assert len(from_config(nested)) == 6


def test_a_caller_may_say_layout_and_base() -> None:
    unknown = {**config(model_type="new"), "rope_theta": None}
    layer = from_config(unknown, layout="interleaved", base=500.0)[0]
    assert isinstance(layer.encoding, RoPE) and layer.encoding.layout == "interleaved"
    assert_close(inv_freq(layer)[1:2], torch.tensor([500.0 ** (-1 / 8)]).double())


LATENT = {"qk_nope_head_dim": 8, "qk_rope_head_dim": 4}
WRONG = table("wrong_configurations.txt")


@pytest.mark.parametrize("name", WRONG)
def test_a_wrong_configuration_is_refused_in_words(name: str) -> None:
    changes, words = WRONG[name]
    with pytest.raises((TypeError, ValueError), match=words):
        from_config(config(**changes))


def test_what_is_no_configuration_is_refused_in_words() -> None:
    with pytest.raises(TypeError, match="config must be a dictionary"):
        from_config([])  # type: ignore[arg-type]


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
    assert isinstance(encoding, DecoupledRotation) and isinstance(encoding.encoding, RotaryValues)
    v, places = torch.randn(1, 2, 3, 16).double(), torch.arange(3)
    assert encoding.uses("rotate_values") and not encoding.uses("bias")
    rotated = encoding.rotate_values(v, places)
    assert torch.equal(rotated[..., :8], v[..., :8]) and not torch.equal(rotated, v)
    assert_close(encoding.rotate_back(rotated, places), v)


def test_query_temperature_leaves_keys_and_grows_in_steps_or_smoothly() -> None:
    def encoding_of(beta: float, name: str = "ministral3") -> object:
        scaling = {"type": "yarn", "factor": 2.0, "original_max_position_embeddings": 4,
                   "llama_4_scaling_beta": beta}  # fmt: skip
        return from_config(config(model_type=name, rope_scaling=scaling))[0].encoding

    encoding = encoding_of(0.5)
    assert isinstance(encoding, Compose) and encoding.cacheable_rotation
    assert isinstance(encoding_of(0.0), RoPE) and isinstance(encoding_of(0.5, "llama"), RoPE)
    steps = query_factor(torch.arange(9), 0.5, 4)
    assert_close(steps, 1 + 0.5 * torch.log(torch.tensor([1, 1, 1, 1, 2, 2, 2, 2, 3]).double()))
    smooth = query_factor(torch.tensor([0, 3]), 0.5, 4, offset=1, growth="power")
    assert_close(smooth, torch.tensor([1.25, 2.0]).double() ** 0.5)


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
    assert "attention factor 1.139: scores are multiplied by 1.296" in told
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
    assert (rope.layout, len(rope.inv_freq), rope.inv_freq[1]) == ("half", 32, 1e4 ** (-1 / 32))
    with pytest.raises(ValueError, match="position_embedding_type is 'absolute'"):
        from_config(esm)  # as its class takes it

    glm = {"model_type": "chatglm", "kv_channels": 128, "num_layers": 28, "original_rope": True}
    rope = from_config(glm)[0].rope
    assert (rope.layout, rope.head_dim, len(rope.inv_freq)) == ("interleaved", 128, 32)
    assert rope.inv_freq[1] == 1e4 ** (-1 / 32)
    with pytest.raises(ValueError, match="rotates one half by a place and the other by another"):
        from_config({**glm, "position_encoding_2d": True})
