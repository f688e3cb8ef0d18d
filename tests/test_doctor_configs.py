"""Configurations and the command: what a file asks for, and how code differs from it."""

from __future__ import annotations

import json
import re

import defaults
import pytest
import torch
from test_configs import table

from pe_lib.rope import RoPE, apply_rope
from pe_lib.rope_scaling import LongRoPE, yarn, yarn_attention_factor
from pe_lib.sinusoidal import frequencies
from posdoctor import __main__ as command
from posdoctor.configs import from_config, model_types
from posdoctor.configs.checks import Contradiction
from posdoctor.configs.explain import explain
from posdoctor.configuration import by_kind, profile_of
from posdoctor.doctor import InputError, diagnose
from posdoctor.factory import check_factory, published_files
from posdoctor.findings import FAULT, UNSURE
from posdoctor.profile import Case
from tools import ROOT

PUBLISHED = {each["name"]: each["config"] for each in published_files()}
YARN = {"hidden_size": 512, "num_attention_heads": 8, "max_position_embeddings": 16384,
        "rope_theta": 10000.0, "rope_scaling": {
            "rope_type": "yarn", "factor": 4.0, "original_max_position_embeddings": 4096,
        }}  # fmt: skip


def function_of(rope):
    return lambda q, k, p: rope.rotate(q, k, p, p)


def right(q, k, p):
    return RoPE(64, layout="half").rotate(q, k, p, p)


CONFIGS = {
    "plain": ({"rope_theta": 500000.0}, "default", 1.0),
    "missing": ({}, "default", 1.0),
    "new place": ({"rope_parameters": {"rope_theta": 1e6, "rope_type": "default"}}, "default", 1),
    "yarn": (YARN, "yarn", yarn_attention_factor(4.0)),
    "deepseek": (
        YARN | {"rope_scaling": YARN["rope_scaling"] | {"mscale": 1.0, "mscale_all_dim": 1.0}},
        "yarn",
        1.0,
    ),
}


@pytest.mark.parametrize("name", CONFIGS)
def test_a_configuration_is_read(name):
    config, rule, gain = CONFIGS[name]
    report = diagnose({"hidden_size": 512, "num_attention_heads": 8} | config)
    assert report.profile.rule.name == rule
    assert report.profile.attention_factor == pytest.approx(gain)
    assert report.healthy and ("base-missing" in report.names()) == (name == "missing")
    assert "gain-missing" not in report.names()


def test_two_bases_in_a_configuration_are_a_fault():
    config = {"head_dim": 64, "rope_theta": 10000.0, "rope_parameters": {"rope_theta": 5e5}}
    assert diagnose(config).names(FAULT) == ["contradiction"]


ODD = table("odd_configurations.txt")


@pytest.mark.parametrize("name", ODD)
def test_what_is_odd_about_a_configuration_is_named(name):
    fields, wanted = ODD[name]
    config = {"model_type": "llama", "head_dim": 64, "rope_theta": 1e4}
    config |= {"max_position_embeddings": 16384} | fields
    assert wanted in diagnose(config).names()
    sound = diagnose({**config, "rope_scaling": None, "max_position_embeddings": 4096})
    assert not sound.findings


def test_the_doctor_warns_of_a_configuration_as_the_command_does():
    config = {"model_type": "llama", "num_hidden_layers": 1, "head_dim": 64, "rope_theta": 1e4,
              "max_position_embeddings": 131072}  # fmt: skip
    assert f"warning: {diagnose(config).findings[0].detail}" in explain(config)


SIZED = {"head_dim": 64, "num_hidden_layers": 2, "rope_theta": 1e4}
CONTRADICTIONS = {
    "two bases": SIZED | {"model_type": "llama", "rotary_emb_base": 5e5},
    "two rules": SIZED | {"rope_scaling": {"type": "linear", "rope_type": "yarn"}},
    "a denial": SIZED | {"model_type": "llama", "use_rope": False},
    "another method": SIZED | {"model_type": "falcon", "alibi": True},
    "a base that the class does not read": SIZED | {"model_type": "muse_spark_text"},
    "heads": {"model_type": "llama", "hidden_size": 64, "num_attention_heads": 3},
    "nothing odd": SIZED | {"model_type": "llama"},
}


@pytest.mark.parametrize("name", PUBLISHED)
def test_the_doctor_reads_a_published_file_as_the_command_does(name):
    config = PUBLISHED[name]
    try:
        layers = from_config(config)
    except ValueError as refused:
        with pytest.raises(InputError, match=re.escape(str(refused))):
            by_kind(config, Case())
        return
    profiles, rotating = by_kind(config, Case()), {}
    for layer in layers:
        if layer.rope is not None:
            rotating.setdefault(layer.kind, layer.rope)
    assert list(profiles) == list(rotating)
    for kind, rope in rotating.items():
        profile = profiles[kind]
        assert profile.attention_factor == rope.attention_factor
        assert profile.layout.name == rope.layout
        assert torch.equal(profile.inv_freq.sum(1), rope.inv_freq[rope.inv_freq > 0])


@pytest.mark.parametrize("name", CONTRADICTIONS)
def test_what_the_command_calls_a_contradiction_is_a_fault_here_and_nothing_else_is(name):
    config, called = CONTRADICTIONS[name], "sound"
    try:
        from_config(config)
    except Contradiction:
        called = "contradiction"
    except (TypeError, ValueError):
        called = "refused"
    case = Case()
    try:
        by_kind(config, case)
    except InputError:
        assert called == "refused"
    else:
        assert called == ("contradiction" if case.has("contradiction") else "sound")


def gemma(base, factor, **options):
    rope = RoPE(128, layout="half", inv_freq=frequencies(128, base) / factor)
    options = {"expect": PUBLISHED["Gemma 3 27B"], **options}
    return diagnose(function_of(rope), head_dim=128, dtypes=(), **options)


def test_a_function_is_compared_with_every_kind_of_layer_that_a_file_has():
    local = gemma(1e4, 1.0)
    assert local.healthy and "which-layer" in local.names(UNSURE)
    told = local.case.facts["compared with"]
    assert told == "sliding_attention layers: agrees; full_attention layers: rule"
    assert gemma(1e4, 8.0).names(FAULT) == ["factor"]
    assert "which-layer" not in diagnose(right, dtypes=(), expect=SAME_IN_BOTH).names()


SAME_IN_BOTH = {"model_type": "gemma2", "head_dim": 64, "rope_theta": 1e4, "num_hidden_layers": 2}


@pytest.mark.parametrize("layer", ["full_attention", 5, "5"])
def test_the_layer_that_is_meant_can_be_said(layer):
    for options in (
        {"layer": layer},
        {"expect": {"config": PUBLISHED["Gemma 3 27B"], "layer": layer}},
    ):
        assert gemma(1e4, 1.0, **options).names(FAULT) == ["rule"]
        assert not gemma(1e6, 8.0, **options).findings


def test_a_layer_that_does_not_rotate_is_another_kind():
    report = diagnose(right, dtypes=(), expect=EXAONE, layer="full_attention")
    assert report.names(FAULT) == ["kind"]


EXAONE = {"model_type": "exaone4_5", "text_config": {
    "model_type": "exaone4_5_text", "head_dim": 64, "num_hidden_layers": 4, "rope_theta": 1e4,
    "sliding_window": 8, "sliding_window_pattern": "LLLG"}}  # fmt: skip


def test_a_doubt_that_the_expectation_answers_is_gone():
    factors = yarn(frequencies(64, 10000.0), 4.0, 4096)
    rope = function_of(RoPE(64, layout="half", inv_freq=factors))
    assert "gain-missing" in diagnose(rope, dtypes=()).names(UNSURE)
    scaling = {**YARN["rope_scaling"], "mscale": 1.0, "mscale_all_dim": 1.0}
    assert not diagnose(rope, dtypes=(), expect={**YARN, "rope_scaling": scaling}).findings
    assert "gain" in diagnose(rope, dtypes=(), expect=YARN).names(FAULT)
    odd = function_of(RoPE(64, 12345.0, layout="half"))
    assert "unusual-base" in diagnose(odd, dtypes=()).names(UNSURE)
    assert not diagnose(odd, dtypes=(), expect={"base": 12345.0}).findings


def test_layers_of_two_kinds_are_read_and_those_that_see_all_stand_for_a_configuration():
    kinds = {"full_attention": {"rope_theta": 1e6}, "sliding_attention": {"rope_theta": 1e4}}
    config = {"model_type": "gemma3_text", "head_dim": 64, "rope_parameters": kinds,
              "layer_types": ["sliding_attention", "full_attention"]}  # fmt: skip
    report = diagnose(config)
    assert report.profile.rule.base == 1e6 and report.profile.layout.name == "half"
    assert "base 10000" in report.case.facts["layers 0 (sliding_attention)"]
    assert diagnose(right, expect=config).healthy


def test_a_configuration_tells_the_layout_where_its_model_is_known():
    config = {"model_type": "helium", "head_dim": 64, "rope_theta": 1e4}
    assert diagnose(right, expect=config).names(FAULT) == ["layout"]
    nameless = diagnose(right, expect={"head_dim": 64, "rope_theta": 1e4})
    assert nameless.healthy and any("layout" in words for words in nameless.case.unexamined)


GEMMA_4 = {
    "model_type": "gemma4_text",
    "head_dim": 64,
    "layer_types": ["full_attention"],
    "rope_parameters": {
        "full_attention": {
            "rope_type": "proportional",
            "rope_theta": 1e6,
            "partial_rotary_factor": 0.25,
        }
    },
}
WIDE = {**GEMMA_4, "global_head_dim": 64}  # fmt: skip


@pytest.mark.parametrize("layer", [None, 0, "full_attention"])
def test_a_width_of_heads_that_only_the_class_has_is_a_doubt_and_what_differs_is_a_fault(layer):
    (each,) = from_config(WIDE)
    options = {"dtypes": (), "expect": GEMMA_4, "layer": layer}
    same = diagnose(function_of(each.rope), **options)
    assert same.names() == same.names(UNSURE) == ["rotary-width"]
    assert not diagnose(function_of(each.rope), **(options | {"expect": WIDE})).findings
    eight = RoPE(64, layout="half", rotary_dim=16, inv_freq=each.rope.inv_freq[:8])
    assert diagnose(function_of(eight), **options).names(FAULT) == ["rotary-width"]


NEW = {"model_type": "new", "head_dim": 64, "rope_theta": 1e4}
UNCOUNTED = {
    "one kind": (NEW, ["layers"]),
    "a pattern": (
        {**NEW, "sliding_window": 8, "sliding_window_pattern": "LLG"},
        ["layers 0, 1 (sliding_attention)", "layers 2 (full_attention)"],
    ),
    "a list by layer": (
        {**NEW, "no_rope_layers": [1, 1, 0]}, ["layers 0, 1 (full_attention)",
                                               "layers 2 (full_attention)"],
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", UNCOUNTED)
def test_a_file_without_a_number_of_layers_is_read_and_this_is_said(name):
    config, labels = UNCOUNTED[name]
    report = diagnose(config)
    assert not report.findings and list(report.case.facts) == labels
    for each in (report, diagnose(right, dtypes=(), expect=config)):
        assert any("number of layers" in words for words in each.case.unexamined)
    with pytest.raises(TypeError, match="num_hidden_layers"):
        from_config(config, layout="half")


def test_pairs_of_several_axes_are_held_to_a_file_of_one_in_any_order():
    rates = frequencies(64, 1e4)

    def report(rows, columns):
        def rotate(q, k, p):
            axes = p.double()[:, None, :, :, None] * torch.stack([rows, columns])
            angles = axes.flatten(-2)
            return tuple(apply_rope(x.double(), angles, "half").to(x.dtype) for x in (q, k))

        return diagnose(rotate, axes=2, dtypes=(), expect=NEW)

    dealt = report(rates[::2], rates[1::2])
    assert dealt.healthy and any("order of the pairs" in each for each in dealt.case.unexamined)
    assert not report(rates[::2], rates[::2]).healthy


def test_a_base_that_neither_models_nor_the_class_have_is_a_doubt_in_a_file():
    for base, names in ((1000.0, ["unusual-base"]), (5e5, [])):
        assert diagnose({**SIZED, "model_type": "llama", "rope_theta": base}).names() == names
    row = model_types.defaults()["types"]
    own = [name for name in model_types.ROTATING & set(row)
           if row[name]["fields"].get("rope_theta") == 12e6]  # fmt: skip
    assert not any(diagnose({"model_type": name}).case.has("unusual-base") for name in own)


SLIDING = {"model_type": "qwen3", "head_dim": 64, "num_hidden_layers": 5, "rope_theta": 1e6,
           "sliding_window": 2048}  # fmt: skip
SWITCHES = {
    "no switch": ({}, ["window-idle"]),
    "from a layer that is not": (
        {"use_sliding_window": True, "max_window_layers": 28}, ["window-idle"],
    ),
    "on": ({"use_sliding_window": True, "max_window_layers": 0}, []),
    "off": ({"use_sliding_window": False}, []),
    "kinds listed": ({"layer_types": ["full_attention"] * 5}, []),
    "none": ({"sliding_window": None}, []),
}  # fmt: skip


@pytest.mark.parametrize("name", SWITCHES)
def test_a_window_that_no_layer_has_is_a_doubt_unless_the_file_switches_it_off(name):
    fields, names = SWITCHES[name]
    report = diagnose({**SLIDING, **fields})
    assert report.names() == report.names(UNSURE) == names
    assert ("warning: sliding_window 2048" in explain({**SLIDING, **fields})) == bool(names)


@pytest.mark.parametrize("name", PUBLISHED)
def test_no_published_file_is_doubted_for_its_base_or_its_window(name):
    case = Case()
    try:
        by_kind(PUBLISHED[name], case)
    except InputError:
        return
    assert not case.has("unusual-base", "window-idle")


# What a file says and what its class reads --------------------------------------------------------

TOLD = {
    "flat parameters of a class that has them by kind": (
        {"model_type": "gemma3_text", "rope_parameters": {
            "rope_type": "linear", "factor": 8.0, "rope_theta": 1e6}},
        ["not-by-kind"],
        "layers 5, 11, 17, 23 (full_attention)", "base 1e+06",
    ),
    "sections in a type of one axis": (
        {"model_type": "llama", "head_dim": 128, "num_hidden_layers": 1, "rope_theta": 1e4,
         "rope_scaling": {"type": "mrope", "mrope_section": [24, 20, 20]}},
        ["field-unread"], "layers", "rotates 128 of 128 components, pairs half, base 10000",
    ),
    "a share that the class does not read": (
        {"model_type": "llama", "head_dim": 128, "num_hidden_layers": 1, "rope_theta": 1e4,
         "partial_rotary_factor": 0.5},
        ["field-unread"], "layers", "rotates 128 of 128",
    ),
    "a width that the class does not read": (
        {"model_type": "llama", "head_dim": 128, "num_hidden_layers": 1, "rope_theta": 1e4,
         "rotary_dim": 64},
        ["field-unread"], "layers", "rotates 128 of 128",
    ),
    "a base that stands in the code": (
        {"model_type": "gptj", "rope_theta": 5e5, "num_hidden_layers": 1}, ["field-unread"],
        "layers", "base 10000",
    ),
    "layers without positions under a former name": (
        EXAONE, [], "layers 3 (full_attention)", "no positions",
    ),
    "the text of Kimi-K2.5": (
        {"model_type": "kimi_k25", "text_config": {"model_type": "kimi_k2", "rope_theta": 5e4}},
        [], "layers 0 to 60 (full_attention)", "the last 64 components, pairs interleaved",
    ),
    "layers counted from 1": (
        {"model_type": "kimi_linear", "num_hidden_layers": 5, "linear_attn_config": {
            "full_attn_layers": [4, 5], "kda_layers": [1, 2, 3]}},
        [], "layers 3, 4 (full_attention)", "no positions",
    ),
    "an attention factor of its logarithm alone": (
        {**YARN, "rope_scaling": {**YARN["rope_scaling"], "attention_factor": 0.14}},
        ["attention-factor-small"], "layers", "scores are multiplied by 0.0196",
    ),
    "an inverse attention factor": (
        {**YARN, "rope_scaling": {**YARN["rope_scaling"], "attention_factor": 0.8782}},
        ["attention-factor-small"], "layers", "attention factor 0.8782",
    ),
    "two shares": (
        {"model_type": "phi", "partial_rotary_factor": 1.0,
         "rope_parameters": {"rope_theta": 1e4, "partial_rotary_factor": 0.5}},
        ["contradiction"], None, "",
    ),
    "a width beside a share": (
        {"model_type": "phi", "head_dim": 128, "rotary_dim": 64, "partial_rotary_factor": 1.0},
        ["contradiction"], None, "",
    ),
    "sections of too many pairs": (
        {"model_type": "qwen2_vl", "head_dim": 128, "num_hidden_layers": 1,
         "rope_scaling": {"type": "mrope", "mrope_section": [24, 24, 24]}},
        ["contradiction"], None, "",
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", TOLD)
def test_what_the_class_makes_of_a_file_is_told(name):
    config, names, label, words = TOLD[name]
    report = diagnose(config)
    assert report.names() == names
    assert label is None or words in report.case.facts[label]
    sure = names in (["not-by-kind"], ["contradiction"]) or "0.14" in str(config)
    assert report.healthy == (not sure)
    for finding in report.findings if label else ():
        assert f"warning: {finding.detail}" in explain({"num_hidden_layers": 1} | config)


def test_of_an_unknown_type_nothing_is_said_but_what_its_fields_ask_for():
    config = {"model_type": "new", "head_dim": 64, "num_hidden_layers": 2, "rope_theta": 1e6}
    report = diagnose(config)
    told = f"{report}\n{explain(config)}"
    assert report.profile.layout is None and "class is not known" in told
    assert "rotates" not in told and "half" not in told and "interleaved" not in told
    assert "the fields ask for the rotation of 64 of 64 components, pairs not known" in told


FOREIGN = {
    "Mistral's params.json": (
        {"dim": 4096, "n_heads": 32, "n_layers": 32, "head_dim": 128, "rope_theta": 1e6},
        "params.json of Mistral's own code, where dim for hidden_size",
    ),
    "GGUF": (
        {"general.architecture": "llama", "llama.rope.freq_base": 5e5},
        "metadata of a GGUF file, where llama.rope.freq_base for rope_theta stands",
    ),
}


@pytest.mark.parametrize("name", FOREIGN)
def test_a_file_of_another_format_is_called_by_its_name(name):
    config, words = FOREIGN[name]
    for options in ({"thing": config}, {"thing": right, "expect": config}):
        with pytest.raises(InputError, match=words):
            diagnose(**options)


AXES = [
    name for name, row in model_types.defaults()["types"].items()
    if row.get("sections", {}).get("order", "components") != "components"
]  # fmt: skip


@pytest.mark.parametrize("name", AXES)
def test_the_axes_of_pairs_are_those_of_the_class(name):
    """Where one number of a position is 1, the angle is the frequency of the pairs that it has."""
    configuration = pytest.importorskip("transformers").CONFIG_MAPPING[name]
    scaling = {"rope_type": "default", "rope_theta": 1e4, "mrope_section": [6, 6, 4],
               "partial_rotary_factor": 1.0}  # fmt: skip
    sizes = {"head_dim": 32, "hidden_size": 64, "num_attention_heads": 2, "num_key_value_heads": 2}
    kinds = ["full_attention"] if name == "cohere_compass_text" else []
    parameters = dict.fromkeys(kinds, scaling) or scaling
    layers = {"layer_types": kinds, "num_hidden_layers": 1} if kinds else {}
    config = configuration(**sizes, **layers, rope_parameters=parameters)
    built = defaults.table_class(configuration)(config)
    layer = next(each for each in from_config(config) if each.rope is not None)
    profile = profile_of(layer, True)
    for axis in range(3):
        place = torch.zeros(3, 1, 1, dtype=torch.long)
        place[axis] = 1
        cos, sin = (x.flatten() for x in built(torch.ones(1), place, *kinds))
        angles = torch.atan2(sin, cos)
        twice = torch.equal(angles[::2], angles[1::2])  # each frequency side by side
        ours = profile.inv_freq[:, axis].float()
        assert torch.allclose(angles[::2] if twice else angles[:16], ours, atol=1e-6)


def test_a_pair_that_has_two_axes_is_not_described_by_one():
    sections = {"type": "dynamic", "mrope_section": [8, 8, 8, 8], "alpha": 1000.0}
    config = {"model_type": "hunyuan_vl", "head_dim": 64, "rope_scaling": sections}
    report = diagnose(config)
    assert report.profile.inv_freq.shape == (32, 1)
    assert "sections do not give each pair one axis" in report.case.unexamined[0]


def test_a_text_function_is_held_to_a_file_with_axes_and_one_of_three_numbers_too():
    config = PUBLISHED["Qwen2.5-VL 7B"]
    (layer, *_), (profile,) = from_config(config), by_kind(config, Case()).values()
    text = diagnose(function_of(layer.rope), head_dim=128, dtypes=(), expect=config)
    assert text.healthy and any("axes" in words for words in text.case.unexamined)
    assert profile.inv_freq.shape == (64, 3)
    assert (profile.inv_freq > 0).sum(0).tolist() == [16, 24, 24]

    def rotated_by(rates):
        def rotate(q, k, p):
            angles = (p.double() @ rates.T)[:, None]
            return tuple(apply_rope(x.double(), angles, "half").to(x.dtype) for x in (q, k))

        return diagnose(rotate, head_dim=128, axes=3, dtypes=(), expect=config)

    assert rotated_by(profile.inv_freq).healthy
    turns = torch.eye(3).double().repeat(22, 1)[:64]  # where the class has blocks
    one = profile.inv_freq.sum(1, keepdim=True)
    assert rotated_by(one * turns).names(FAULT) == ["axes-split"]


def test_a_profile_has_both_sets_of_frequencies_of_longrope_and_where_they_change():
    (profile,) = by_kind(PUBLISHED["Phi-3 mini 128k"], Case()).values()
    rope = from_config(PUBLISHED["Phi-3 mini 128k"])[0].rope
    assert isinstance(rope, LongRoPE) and profile.long_from == rope.trained_length == 4096
    assert torch.equal(profile.inv_freq[:, 0], rope.inv_freq)
    assert torch.equal(profile.inv_freq_long[:, 0], rope.long_inv_freq)
    dynamic = {"model_type": "llama", "head_dim": 64, "max_position_embeddings": 2048,
               "rope_scaling": {"type": "dynamic", "factor": 2.0}}  # fmt: skip
    (profile,) = by_kind({"num_hidden_layers": 1, **dynamic}, Case()).values()
    assert (profile.long_from, profile.inv_freq_long) == (2048, None)


# A factory ----------------------------------------------------------------------------------------


def good_factory(config, layer):
    rope = from_config(config)[layer].rope
    return None if rope is None else function_of(rope)


def frequencies_alone(config, layer):
    rope = from_config(config)[layer].rope
    return torch.zeros(8) if rope is None else (rope.inv_freq.float(), rope.attention_factor)


@pytest.mark.parametrize("make", [good_factory, frequencies_alone])
def test_a_factory_that_reads_every_published_file_agrees_with_all(make):
    outcome = check_factory(make)
    rotating = {line.file.split(", ")[0] for line in outcome.lines if line.verdict == "agrees"}
    assert (outcome.status, outcome.count("differs"), len(rotating)) == (0, 0, len(PUBLISHED) - 10)
    unread = [line.words for line in outcome.lines if line.verdict == "not read"]
    assert len(unread) == 10 and all("config must be of attention" in words for words in unread)


def test_a_factory_is_told_what_it_misreads_and_differences_come_first():
    def forgets(config):
        if config["model_type"] == "gpt_neox":
            raise KeyError("rope_theta")
        rope = from_config(config)[-1].rope
        return function_of(RoPE(rope.head_dim, layout="half"))

    names = ("GPT-NeoX 20B", "Llama 2 7B", "Llama 3.1 8B", "Gemma 3 1B", "Command R")
    outcome = check_factory(forgets, {name: PUBLISHED[name] for name in names})
    assert [line.verdict for line in outcome.lines] == ["differs"] * 3 + ["not read"] + [
        "agrees"
    ] * 2
    told = {line.file: line.words for line in outcome.lines}
    assert told["Llama 3.1 8B"].startswith("rule, default (base 10000), expected llama3")
    assert told["Gemma 3 1B, full_attention"] == (
        "base, default (base 10000), expected default (base 1e+06)")  # fmt: skip
    assert told["Command R"].startswith("layout, half, expected interleaved")
    assert told["GPT-NeoX 20B"] == "the factory raised KeyError: 'rope_theta'"
    assert (outcome.status, str(outcome).splitlines()[-1]) == (
        1, "6 lines: 3 differs, 1 not read, 2 agrees")  # fmt: skip


WRONG = {
    "short factors at every length": ("Phi-3 mini 128k", lambda rope: RoPE(
        96, layout="half", inv_freq=rope.inv_freq, attention_factor=rope.attention_factor)),
    "no attention factor": ("Yarn-Llama-2 7B 128k", lambda rope: RoPE(
        128, layout="half", inv_freq=rope.inv_freq)),
    "two parts exchanged": ("DeepSeek-V3", lambda rope: RoPE(
        64, layout="half", inv_freq=rope.inv_freq)),
    "the whole head": ("Phi-2", lambda rope: RoPE(80, layout="half")),
}  # fmt: skip


@pytest.mark.parametrize("name", WRONG)
def test_a_factory_of_wrong_functions_does_not_pass(name):
    file, wrong = WRONG[name]
    rope = from_config(PUBLISHED[file])[0].rope
    outcome = check_factory(lambda _: function_of(wrong(rope)), {file: PUBLISHED[file]})
    assert [line.verdict for line in outcome.lines] == ["differs"] and outcome.lines[0].words


def test_a_factory_may_give_functions_of_the_other_order():
    def make(config):
        rotate = function_of(from_config(config)[0].rope)
        return lambda q, k, p: [
            x.transpose(1, 2) for x in rotate(q.transpose(1, 2), k.transpose(1, 2), p)
        ]

    files = {name: PUBLISHED[name] for name in ("Llama 3.1 8B", "Phi-2", "DeepSeek-V3")}
    assert check_factory(make, files, blhd=True).count("agrees") == 3


def test_a_layer_that_does_not_rotate_is_asked_of_a_factory_that_is_told_the_layer():
    files = {"exaone": EXAONE}
    always = check_factory(lambda config, layer: right, files)
    assert [str(line).split(":")[0] for line in always.lines] == [
        "differs   exaone, full_attention, layers 3", "agrees    exaone, sliding_attention"
    ]  # fmt: skip
    still = check_factory(
        lambda config, layer: right if layer < 3 else lambda q, k, p: (q, k), files
    )
    assert still.status == 0 and still.count("agrees") == 2


def test_the_command_holds_a_factory_to_the_files_of_a_folder(tmp_path, monkeypatch, capsys):
    (tmp_path / "maker.py").write_text(
        "import torch\ndef make(config):\n"
        "    return float(config['rope_theta']) ** (-torch.arange(32) / 32)\n"
    )
    folder = tmp_path / "files" / "one"
    folder.mkdir(parents=True)
    monkeypatch.chdir(tmp_path)
    asked = ["--factory", "maker:make", "--configs", "files"]
    assert command.main(asked) == 2 and "folder with JSON files" in capsys.readouterr().err
    config = {"model_type": "llama", "head_dim": 64, "num_hidden_layers": 2, "rope_theta": 1e6}
    (folder / "config.json").write_text(json.dumps(config))
    (tmp_path / "files/broken.json").write_text("{")
    assert command.main(asked) == 0
    told = capsys.readouterr().out
    assert "agrees    one/config.json" in told and "not read  broken.json" in told
    config |= {"rope_scaling": {"type": "linear", "factor": 2.0}}
    (folder / "config.json").write_text(json.dumps(config))
    assert command.main([*asked, "--json"]) == 1
    assert json.loads(capsys.readouterr().out)["lines"][0]["verdict"] == "differs"


# The command --------------------------------------------------------------------------------------


@pytest.fixture
def mine(tmp_path, monkeypatch):
    """Work in a folder with a module of two functions, and a configuration."""
    (tmp_path / "mine.py").write_text(
        "from pe_lib import RoPE\n"
        "def right(q, k, p): return RoPE(64, layout='half').rotate(q, k, p, p)\n"
        "def wrong(q, k, p): return RoPE(64, layout='half').rotate(q, k, p, p * 0)\n"
    )
    (tmp_path / "config.json").write_text(json.dumps(YARN))
    monkeypatch.chdir(tmp_path)


def test_the_command_answers_with_words_and_an_exit_status(mine, capsys):
    assert command.main(["mine:right"]) == 0
    assert "no fault in what was measured" in capsys.readouterr().out
    assert command.main(["mine:wrong", "--json"]) == 1
    assert json.loads(capsys.readouterr().out)["healthy"] is False
    assert command.main(["mine:right", "--expect", "base=5e5,layout=half"]) == 1
    assert command.main(["mine:right", "--expect", "base=1e4,layout=half"]) == 0
    assert command.main(["mine:right", "--expect", "config.json,layer=full_attention"]) == 1
    assert command.main(["--compare", "mine:right", "mine:wrong"]) == 1
    assert command.main(["config.json"]) == 0
    for wrong, words in (
        (["nowhere:thing"], "cannot be imported"),
        (["right"], "thing must be module:name"),
        (["mine:right", "--expect", "config.json,base=1"], "expect may have layer=... beside"),
        (["mine:right", "--expect", "config.json,layer=9"], "layer must be 0 to 0, got 9"),
    ):
        assert command.main(wrong) == 2 and words in capsys.readouterr().err
    for wrong in ([], ["mine:right", "--configs", "."], ["--factory", "mine:right", "mine:right"]):
        with pytest.raises(SystemExit) as stopped:
            command.main(wrong)
        assert stopped.value.code == 2


def test_a_crash_is_no_verdict(monkeypatch, capsys):
    def broken(chosen):
        raise StopIteration("no parameters")

    monkeypatch.setattr(command, "examine", broken)
    assert command.main(["mine:right"]) == 2
    assert "broke off, StopIteration: no parameters" in capsys.readouterr().err


def test_the_three_lines_at_the_top_of_the_chapter_reach_a_diagnosis(tmp_path, monkeypatch, capsys):
    chapter = ROOT / "book/18_clinic.ipynb"
    title = "".join(json.loads(chapter.read_text(encoding="utf-8"))["cells"][0]["source"])
    lines = re.search(r"```python\n(.*?)```", title, flags=re.DOTALL)[1]
    assert len(lines.splitlines()) == 3
    config = {"model_type": "llama", "head_dim": 64, "rope_theta": 5e5}
    (tmp_path / "config.json").write_text(json.dumps(config))
    monkeypatch.chdir(tmp_path)
    exec(lines, {"my_rotate": right})
    assert "FAULT: base." in capsys.readouterr().out


BAD = {
    "unknown expectation": (lambda: diagnose(right, expect={"theta": 1}), "expect may have base"),
    "a misspelt expectation": (
        lambda: diagnose(right, expect={"layuot": "half"}),
        "did you mean 'layout'?",
    ),
    "an expectation in a file's word": (
        lambda: diagnose(right, expect={"rope_theta": 1e4}),
        "did you mean 'base'?",
    ),
    "a misspelt layout": (
        lambda: diagnose(right, expect={"layout": "neox"}),
        "layout may have interleaved, half; got 'neox'; did you mean 'half'?",
    ),
    "a base in a word": (lambda: diagnose(right, expect={"base": "1e4"}), "base must be a number"),
    "an expectation that contradicts itself": (
        lambda: diagnose(
            right, expect={"model_type": "llama", "rope_theta": 1e4, "rotary_emb_base": 5e5}
        ),
        "expect must not contradict itself: rotary_emb_base must be rope_theta",
    ),
    "a model that does not rotate": (
        lambda: diagnose({"model_type": "bloom"}),
        "cannot be read: .* use pe_lib.ALiBi",
    ),
    "no file": (lambda: diagnose("nowhere.json"), "no JSON file"),
    "no sizes": (lambda: diagnose({"rope_theta": 1e4}), "head_dim must be given, or hidden_size"),
    "layer types": (
        lambda: diagnose({"head_dim": 8, "rope_parameters": {"full": {"rope_theta": 1}}}),
        "there are, full_attention; got 'full'",
    ),
    "a layer without a configuration": (
        lambda: diagnose(right, expect={"base": 1e4}, layer=0),
        "layer must be one of a configuration",
    ),
    "an unknown kind of layer": (
        lambda: diagnose(right, expect=EXAONE, layer="local"),
        "layer must be a number or one of .*; got 'local'",
    ),
}


@pytest.mark.parametrize("name", BAD)
def test_what_cannot_be_read_is_refused_with_what_is_allowed(name):
    run, message = BAD[name]
    with pytest.raises((InputError, ValueError), match=message):
        run()
