"""Every rotary text model of transformers: `from_config` gives what the model itself does.

The table is book/data/configs.csv, which `python tests/equality.py` writes. Each of its rows is
found anew here, by building a small model and running it. So are published files as people have
them, in posdoctor/configs/published.json.
"""

from __future__ import annotations

import re
import warnings
from collections.abc import Iterator
from functools import cache
from typing import Any

import defaults
import equality
import pytest
import recorded_models
import torch

from posdoctor.configs import Layer, from_config, model_types
from posdoctor.configs.checks import Contradiction
from posdoctor.configs.layers import label_of, text_of
from posdoctor.factory import published_files
from tools import configs_page

FILES = {each["name"]: each["config"] for each in published_files()}
INSTEAD = {
    "Falcon-RW 1B": "alibi=true .* use pe_lib.ALiBi",
    "BLOOM": "'bloom' adds biases .* use pe_lib.ALiBi",
    "MPT 7B": "'mpt' adds biases .* use pe_lib.ALiBi",
    "GPT-2": "'gpt2' adds a learned table .* use pe_lib.Learned",
    "StarCoder": "'gpt_bigcode' adds a learned table .* use pe_lib.Learned",
    "BERT base": "'bert' adds a learned table .* use pe_lib.Learned",
    "OPT 1.3B": "'opt' adds a learned table .* use pe_lib.Learned",
    "DeBERTa v3 base": "'deberta-v2' scores contents and distances .* use pe_lib.DeBERTa",
    "T5 small": "'t5' adds learned biases by buckets .* use pe_lib.T5Bias",
    "Whisper large v2": "'whisper' adds sinusoids in its encoder and a learned table",
}
LINES = {line["model type"]: line for line in configs_page.read()}
EQUAL = [name for name, line in LINES.items() if line["result"] == "equal"]
EXCEPTED = [name for name in LINES if name not in EQUAL]


@pytest.fixture(autouse=True, scope="module")
def unwritten_memory_is_not_a_number() -> Iterator[None]:
    """What a model computes from weights that nobody has set differs from run to run."""
    torch.use_deterministic_algorithms(True)
    yield
    torch.use_deterministic_algorithms(False)


@cache
def models() -> dict[str, type]:
    return recorded_models.rotary_text_models()


def test_the_table_has_every_rotary_text_model() -> None:
    assert sorted(LINES) == sorted(models())
    assert {name: LINES[name]["result"] for name in EXCEPTED} == equality.EXCEPTED


@pytest.mark.parametrize("name", EQUAL)
def test_queries_and_keys_equal_the_models_own(name: str) -> None:
    assert equality.row(name, models()[name]) == LINES[name]


@pytest.mark.parametrize("name", EQUAL)
def test_a_file_that_lists_no_kinds_is_read_as_its_class_reads_it_or_refused(name: str) -> None:
    from transformers.models.auto.configuration_auto import CONFIG_MAPPING

    given = CONFIG_MAPPING[name]().to_dict()
    lists = ("layer_types", "layers_block_type", "no_rope_layers")
    without = {key: value for key, value in given.items() if key not in lists}
    base = {"base": 1e4} if name == "cohere_compass_text" else {}  # it has none by default
    if name in ("qwen3_omni_moe_text", "glm4_moe", "glm4v_moe_text"):  # odd, or no part of a width
        without["head_dim"] = given["head_dim"] = 64
    whole = [(layer.kind, layer.window, layer.parameters) for layer in from_config(given, **base)]
    try:
        layers = from_config(without, **base)
    except (TypeError, ValueError) as error:
        assert re.match("layers_block_type|num_hidden_layers", str(error))  # noqa: PT017
    else:
        assert [(layer.kind, layer.window, layer.parameters) for layer in layers] == whole


# Types whose classes take no YaRN, or no base and scaling for all layers, whose default heads do
# not divide their width, or that run their layers several times.
UNFIT = model_types.names(
    """
    cohere2_moe cosmos3_edge_text glm4_moe glm4v_moe_text hrm_text lfm3 neomme phi3 phimoe
    qwen3_omni_moe_text recurrent_gemma ultrabert
    """
)
OTHER_BASES = {
    **dict.fromkeys(("gpt_neox", "gpt_neox_japanese"), "rotary_emb_base"),
    **dict.fromkeys(("modernbert", "modernbert-decoder"), "global_rope_theta"),
}
NEEDS = "layers_block_type|num_hidden_layers|sliding_window"


@pytest.mark.parametrize("name", [name for name in EQUAL if name not in UNFIT])
def test_an_old_flat_file_reaches_the_layers_that_its_class_gives_it(name: str) -> None:
    from transformers.models.auto.configuration_auto import CONFIG_MAPPING

    scaling = {"rope_type": "yarn", "factor": 8.0, "original_max_position_embeddings": 512}
    flat = {OTHER_BASES.get(name, "rope_theta"): 54321.0, "max_position_embeddings": 4096}
    with warnings.catch_warnings(action="ignore", category=FutureWarning):  # the old spelling
        theirs = CONFIG_MAPPING[name](**flat, rope_scaling=dict(scaling))
    try:
        layers = from_config({"model_type": name, **flat, "rope_scaling": scaling})
    except Contradiction:  # nothing of it reaches any layer
        assert "54321" not in repr(theirs.rope_parameters)
    except (TypeError, ValueError) as error:
        assert re.match(NEEDS, str(error))  # noqa: PT017
    else:
        assert [(layer.kind, layer.window, meant(layer)) for layer in layers] == [
            (layer.kind, layer.window, meant(layer)) for layer in from_config(theirs)
        ]


def meant(layer: Layer) -> dict[str, Any]:
    """Return rope parameters by one name for the rule."""
    given = dict(layer.parameters or {"rope_type": None})
    rule = given.pop("type", "default")
    return {"rope_type": rule, **given}


def test_the_recorded_table_is_of_the_installed_transformers() -> None:
    import transformers

    recorded = model_types.defaults()["transformers"]
    assert recorded == transformers.__version__, "write it anew: python tests/defaults.py"


def test_the_recorded_table_is_what_the_classes_say() -> None:
    asked, recorded = defaults.table(), model_types.defaults()
    changed = {name for name, row in asked["types"].items() if recorded["types"].get(name) != row}
    assert not changed and asked == recorded


RULES: dict[str, dict[str, Any]] = {
    "linear": {"factor": 4.0},
    "dynamic": {"factor": 2.0},
    "yarn": {"factor": 8.0, "original_max_position_embeddings": 512},
    "yarn with a factor": {"rope_type": "yarn", "factor": 8.0, "attention_factor": 1.25,
                           "original_max_position_embeddings": 512},
    "llama3": {"factor": 8.0, "original_max_position_embeddings": 512, "low_freq_factor": 1.0,
               "high_freq_factor": 4.0},
    "default": {"partial_rotary_factor": 0.25},
    "proportional": {"partial_rotary_factor": 0.25},
}  # fmt: skip

# Models whose tables get another width than what rotates, and that cannot run so.
CANNOT = {("glm4_moe_lite", "default"), ("mistral4", "default"), ("mistral4", "proportional"),
          ("deepseek_v4", "proportional")}  # fmt: skip


@pytest.mark.parametrize("rule", RULES)
def test_frequencies_by_every_rule_are_those_of_every_class_that_takes_it(rule: str) -> None:
    from transformers.models.auto.configuration_auto import CONFIG_MAPPING

    one, equal = {"rope_type": rule, "rope_theta": 54321.0, **RULES[rule]}, 0
    for name in sorted(model_types.ROTATING & set(CONFIG_MAPPING)):
        kinds = model_types.defaults_of(name).get("rope", {})
        given = {"max_position_embeddings": 4096,
                 "rope_parameters": {kind: dict(one) for kind in kinds} or one}  # fmt: skip
        theirs = defaults.inv_freq(CONFIG_MAPPING[name], **given)
        try:
            layers = from_config({"model_type": name, **given})
        except (TypeError, ValueError):
            continue
        for layer in layers if theirs and (name, rule) not in CANNOT else ():
            if layer.rope is None:
                continue
            inv_freq, gain = theirs.get("") or theirs[label_of(layer.kind, theirs)]
            inv_freq = inv_freq.sort(descending=True).values  # Ernie's has another order
            torch.testing.assert_close(
                layer.rope.inv_freq.abs().float(), inv_freq, rtol=2e-5, atol=0, msg=name
            )
            assert gain == pytest.approx(layer.rope.attention_factor), name
            equal += 1
    assert equal > 100


@pytest.mark.parametrize("name", EXCEPTED)
def test_an_exception_is_one(name: str) -> None:
    with pytest.raises(Exception):  # noqa: B017, PT011 - whatever the model raises
        equality.row(name, models()[name])


def test_the_page_counts_what_the_table_has() -> None:
    page = configs_page.page()
    assert f"**{len(LINES)} model types tried, {len(EQUAL)} equal" in page
    assert all(f"`{name}`" in page for name in LINES)
    assert f"**{len(FILES)} files: {len(FILES) - len(INSTEAD)} equal" in page


@pytest.mark.parametrize("name", [name for name in FILES if name not in INSTEAD])
def test_a_published_file_is_read_as_its_class_reads_it_in_every_layer(name: str) -> None:
    text = text_of(FILES[name])
    counted = text["model_type"] == "llama4_text"  # its queries grow by tokens, not by positions
    positions = recorded_models.POSITIONS[: -1 if counted else None]
    seen = recorded_models.record(
        recorded_models.text_model(type(recorded_models.small_configuration(text["model_type"]))),
        recorded_models.small_configuration(text["model_type"], text),
        positions,
    )
    layers = from_config(FILES[name])
    equality.compare(layers, seen, positions)
    assert len(seen) == sum(
        layer.encoding is not None and layer.kind != "cross_attention" for layer in layers
    )


@pytest.mark.parametrize("name", INSTEAD)
def test_a_published_file_that_does_not_rotate_is_refused_with_what_it_does_instead(
    name: str,
) -> None:
    with pytest.raises(ValueError, match=INSTEAD[name]):
        from_config(FILES[name])
