"""The doctor names every planted bug, and accuses nothing that is right."""

from __future__ import annotations

import json
import re
from dataclasses import replace

import numpy as np
import pytest
import torch
import unseen
from test_configs import table
from torch import nn

from pe_course import census
from pe_course.model import LabModel, Transformer
from pe_course.registry import METHODS, Sizes, encodings
from pe_lib.recent.temperature import QueryTemperature
from pe_lib.rope import RoPE
from pe_lib.rope_scaling import DynamicNTK, llama3, proportional, yarn, yarn_attention_factor
from pe_lib.sinusoidal import frequencies
from posdoctor import __main__ as command
from posdoctor import ways
from posdoctor.bugs import (
    BUGS,
    COMBINED,
    DOUBTFUL,
    YARN,
    by_axes,
    chunked,
    codes,
    mixed_layouts,
    place_bug,
    right,
    rotate_pairs,
    verdicts,
)
from posdoctor.configs import from_config
from posdoctor.configs.checks import Contradiction
from posdoctor.configs.explain import explain
from posdoctor.configuration import by_kind
from posdoctor.doctor import (
    Absolute,
    InputError,
    Report,
    Rotary,
    Tables,
    compare,
    diagnose,
)
from posdoctor.findings import FAULT, UNSURE
from posdoctor.models import examine_model
from posdoctor.profile import Case, Profile, compare_profiles
from posdoctor.rules import Rule, identify, series
from posdoctor.testing import assert_sound
from tools import ROOT, doctor_page
from tools.configs_page import published_files

SIZES = Sizes(64, 4, 128)
PLANTED = doctor_page.planted()
PUBLISHED = {each["name"]: each["config"] for each in published_files()}


@pytest.mark.parametrize("bug", BUGS, ids=lambda bug: bug.name)
def test_a_planted_bug_is_named(bug):
    assert bug.verdict in verdicts(bug)
    assert PLANTED[bug.name] == list(verdicts(bug))


def test_the_page_has_every_planted_bug():
    assert list(PLANTED) == [bug.name for bug in BUGS]


@pytest.mark.parametrize("name", COMBINED)
def test_two_bugs_at_once_are_both_named(name):
    thing, expect, wanted = COMBINED[name]
    assert wanted <= set(diagnose(thing, expect=expect).names())


@pytest.mark.parametrize("name", DOUBTFUL)
def test_what_cannot_be_told_is_said_so_with_an_experiment(name):
    thing, wanted = DOUBTFUL[name]
    report = diagnose(thing)
    assert report.healthy, str(report)
    (finding,) = (each for each in report.findings if each.name == wanted)
    assert finding.level == UNSURE
    assert finding.known.instead and finding.known.experiment


def test_a_base_that_two_formulas_give_is_read_in_both_ways():
    report = diagnose(DOUBTFUL["exponent i / d, or base 100"][0])
    assert "base 10000 with the exponent i / d" in str(report)
    report = diagnose(DOUBTFUL["NTK-aware, or a larger base"][0])
    assert "base 10000 with NTK-aware factor 4" in str(report)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16])
@pytest.mark.parametrize("name", METHODS)
def test_no_method_of_the_library_is_accused(name, dtype):
    encoding = METHODS[name].make(SIZES)
    dtypes = () if dtype is torch.float32 else (dtype,)
    report = diagnose(encoding, head_dim=SIZES.head_dim, dtypes=dtypes)
    assert report.healthy, str(report)


def made(thing):
    return thing() if isinstance(thing, type) else thing


def told(name, function, expect, kind):
    return diagnose(made(function), kind=kind, expect=expect).names(FAULT)


@pytest.mark.parametrize("name", unseen.ROTARY)
def test_a_rotary_bug_that_the_doctor_had_not_seen_is_named_on_every_path(name):
    verdict, function, expect = unseen.ROTARY[name]
    assert verdict in told(name, function, expect, None)


@pytest.mark.parametrize("name", unseen.CODES)
def test_a_code_is_compared_by_value(name):
    verdict, wrong, sound = unseen.CODES[name]
    assert verdict in told(name, wrong, sound, "absolute")
    assert not told(name, sound, sound, "absolute")


@pytest.mark.parametrize("name", unseen.BIASES)
def test_a_bias_is_compared_at_any_distance(name):
    verdict, wrong, sound = unseen.BIASES[name]
    assert verdict in told(name, wrong, sound, "bias")
    assert not told(name, sound, sound, "bias")


@pytest.mark.parametrize("name", unseen.CORRECT)
def test_correct_code_that_looks_odd_is_not_accused(name):
    kind, thing, other = unseen.CORRECT[name]
    assert not told(name, thing, other, kind)


def test_a_port_without_frequencies_is_compared_by_its_scores():
    def columns_first(q, k, p):
        return unseen.flat_grid(q, k, p % 64 * 64 + p // 64)

    assert told("grid", columns_first, unseen.flat_grid, "rotary") == ["scores-differ"]
    assert not told("grid", unseen.flat_grid, unseen.flat_grid, "rotary")


def small_llama(**others: float) -> nn.Module:
    transformers = pytest.importorskip("transformers")
    sizes = {"vocab_size": 64, "hidden_size": 64, "intermediate_size": 32, "num_hidden_layers": 2,
             "num_attention_heads": 4, "max_position_embeddings": 128, **others}  # fmt: skip
    torch.manual_seed(0)
    return transformers.LlamaForCausalLM(transformers.LlamaConfig(**sizes))


@pytest.mark.parametrize("name", unseen.MODELS)
def test_a_bug_in_a_model_is_named_with_its_layer(name):
    verdict, where, patch = unseen.MODELS[name]
    sizes = {"num_hidden_layers": 3, "num_key_value_heads": 2, "intermediate_size": 64}
    model = small_llama(max_position_embeddings=256, rope_theta=500000.0, **sizes)
    report = diagnose(patch(model))
    assert (verdict, where) in {(each.name, each.where) for each in report.faults}


def test_a_models_own_short_window_is_no_fault():
    transformers = pytest.importorskip("transformers")
    config = transformers.MistralConfig(
        vocab_size=64, hidden_size=64, intermediate_size=64, num_hidden_layers=2,
        num_attention_heads=4, num_key_value_heads=2, sliding_window=8,
    )  # fmt: skip
    torch.manual_seed(0)
    report = diagnose(transformers.MistralForCausalLM(config))
    assert report.healthy, str(report)
    assert any("window of 8" in words for words in report.case.unexamined)


ROTATES_INSIDE = {
    "GPTJForCausalLM": {"n_embd": 64, "n_layer": 2, "n_head": 4, "rotary_dim": 8, "n_inner": 64},
    "CodeGenForCausalLM": {"n_embd": 64, "n_layer": 2, "n_head": 4, "rotary_dim": 8},
    "Llama4ForCausalLM": {
        "hidden_size": 64, "num_hidden_layers": 4, "num_attention_heads": 4, "head_dim": 16,
        "num_key_value_heads": 2, "intermediate_size": 64, "intermediate_size_mlp": 64,
        "num_local_experts": 2, "attention_chunk_size": 64, "rope_theta": 500000.0,
    },
}  # fmt: skip


@pytest.mark.parametrize("name", ROTATES_INSIDE)
def test_a_layer_is_seen_where_its_rotation_is_written_inside_attention(name):
    transformers = pytest.importorskip("transformers")
    model_class = getattr(transformers, name)
    config_class = model_class.config_class
    torch.manual_seed(0)
    model = model_class(config_class(vocab_size=64, bos_token_id=1, eos_token_id=2, pad_token_id=0,
                                     **ROTATES_INSIDE[name]))  # fmt: skip
    report = diagnose(model)
    assert report.healthy, str(report)
    assert "layers that do as configured" in report.case.facts


def test_every_way_in_reaches_the_same_diagnosis(tmp_path):
    def blhd(q, k, p):
        return tuple(x.transpose(1, 2) for x in right(q.transpose(1, 2), k.transpose(1, 2), p))

    def tables(x, p):
        angles = p[..., None] * frequencies(x.shape[-1])
        return angles.cos()[:, None].float(), angles.sin()[:, None].float()

    def apply(q, k, cos, sin):
        def turned(x):
            a, b = x[..., ::2], x[..., 1::2]
            return torch.stack([a * cos - b * sin, a * sin + b * cos], -1).flatten(-2)

        return turned(q), turned(k)

    arrays = ways.of_numpy(lambda q, k, p: [
        x.numpy() for x in right(*(torch.from_numpy(y) for y in (q, k, p)))])  # fmt: skip
    for thing, options in (
        (blhd, {"blhd": True}),
        (ways.of_module(apply, tables), {}),
        (arrays, {}),
    ):
        report = diagnose(thing, expect={"base": 10000}, dtypes=(), **options)
        assert report.healthy and report.profile.rule.base == 10000, str(report)
    assert diagnose(blhd, blhd=True, expect=blhd).healthy
    angles = torch.arange(256)[:, None] * frequencies(64)
    assert diagnose(torch.polar(torch.ones_like(angles), angles)).profile.rule.base == 10000
    np.save(tmp_path / "bias.npy", unseen.alibi(*[torch.arange(64)] * 2).numpy())
    matrix = ["--kind", "bias", "--expect"]
    torch.save(unseen.alibi(*[torch.arange(64)] * 2), tmp_path / "bias.pt")
    for name in ("bias.npy", "bias.pt"):
        assert command.main([str(tmp_path / name), *matrix, "tests.unseen:alibi"]) == 0
    q, p = torch.randn(4, 32, 64), torch.arange(100, 132)
    dumped = ways.diagnose_dump(q, right(q[None], q[None], p[None])[0][0], p)
    assert dumped.profile.layout.name == "half" and dumped.profile.rule.base == 10000


def test_one_tensor_flat_queries_and_positions_first_are_ways_in():
    def one(x, p):
        return right(x, x, p)[0]

    def flat(p, q, k):
        heads = (x.reshape(1, len(p), -1, 64).transpose(1, 2) for x in (q, k))
        return tuple(x.transpose(1, 2).reshape(len(p), -1) for x in right(*heads, p[None]))

    vllm = ways.of_flat(ways.positions_first(flat), heads=3, head_dim=64)
    for thing in (ways.of_one(one), vllm):
        report = diagnose(thing, expect={"base": 10000, "layout": "half"}, dtypes=())
        assert report.healthy and not report.case.unexamined, str(report)
    by_time = by_axes(chunked)
    mrope = ways.axes_first(lambda q, k, p: by_time(q, k, p.movedim(0, -1)))
    assert diagnose(mrope, axes=3, expect=by_time).healthy


def test_a_bias_of_two_lengths_is_compared_as_far_as_one_of_positions():
    def of(function):
        return ways.of_lengths(lambda n_q, n_k: function(
            torch.arange(n_k - n_q, n_k), torch.arange(n_k)))  # fmt: skip

    assert diagnose(of(unseen.buckets(128)), expect=unseen.buckets(128), kind="bias").healthy
    wide = diagnose(of(unseen.window(4097)), expect=unseen.window(4096), kind="bias")
    assert "sees 4097 keys, expected 4096" in str(wide)
    first = ways.of_lengths(lambda n_q, n_k: unseen.alibi(torch.arange(n_q), torch.arange(n_k)))
    assert "bias-offset-ignored" in diagnose(first).names(FAULT)


def test_axes_are_compared_before_their_number():
    told = diagnose(by_axes(chunked), axes=3)
    summed = replace(told.profile, inv_freq=told.profile.inv_freq.sum(1, keepdim=True))
    case = Case()
    compare_profiles(told.profile, summed, case)
    assert not case.findings and case.unexamined == ["axes: 3 were measured, 1 are expected"]


def test_a_function_by_length_is_held_to_both_sets_of_frequencies():
    short, long = (x[:, None] for x in (frequencies(64), unseen.LONG))
    wanted = {
        "longrope": Profile("rotary", 64, inv_freq=short, inv_freq_long=long, long_from=4096),
        "dynamic": Profile(
            "rotary", 64, inv_freq=short, rule=Rule("dynamic", 1e4, 4.0), long_from=4096),
    }  # fmt: skip
    ntk = DynamicNTK(64, 4.0, 4096, layout="half")
    functions = {"longrope": unseen.by_length(unseen.longest),
                 "dynamic": lambda q, k, p: ntk.rotate(q, k, p, p), "neither": right}  # fmt: skip
    for name, function in functions.items():
        report = diagnose(function)
        assert report.healthy, str(report)
        for kind, profile in wanted.items():
            case = Case()
            compare_profiles(report.profile, profile, case)
            assert case.has("frequencies") == (name != kind), (name, kind)
            assert name == kind or "positions" in case.findings[0].where


def test_what_a_score_grows_by_is_measured_and_stated():
    report = diagnose(lambda q, k, p: right(q, k, p, attention_factor=1.2), expect={"gain": 1.2**2})
    assert "scores times 1.44" in report.case.facts["gain"]
    assert report.names(FAULT) == ["gain"]


def test_a_line_of_pytest_fails_in_two_lines():
    assert_sound(right, expect={"base": 10000})
    with pytest.raises(AssertionError) as failed:
        assert_sound(right, expect={"base": 500000})
    assert str(failed.value).count("\n") == 1 and "base" in str(failed.value)


RULES = {
    "llama3": ("llama3", lambda w: llama3(w), 8.0),
    "yarn": ("yarn", lambda w: yarn(w, 4.0, 4096), 4.0),
    "linear": ("linear", lambda w: w / 4, 4.0),
    "proportional": ("proportional", lambda w: proportional(w, 0.25), 1.0),
}


@pytest.mark.parametrize("name", RULES)
def test_the_rule_behind_the_frequencies_is_named_with_its_numbers(name):
    rule, change, factor = RULES[name]
    encoding = RoPE(128, 500000.0, inv_freq=change(frequencies(128, 500000.0)), layout="half")
    report = diagnose(encoding, head_dim=128)
    found = report.profile.rule
    assert (found.name, found.base, found.factor) == (rule, 500000.0, factor)
    assert report.healthy


@pytest.mark.parametrize("base", [10000.0, 500000.0, 1e6, 160000.0])
@pytest.mark.parametrize("dim", [16, 64, 256])
def test_the_base_is_fitted(base, dim):
    assert identify(series(dim // 2, base)).base == base


def test_layout_end_width_and_gain_are_measured():
    def trailing(q, k, p):
        angles = p[:, None, :, None].double() * frequencies(24)
        return tuple(
            torch.cat([x[..., :40], rotate_pairs(x[..., 40:], angles, "half", 1.25)], -1)
            for x in (q, k)
        )

    report = diagnose(trailing)
    assert report.profile.layout == ("half", 40, 24)
    assert report.profile.attention_factor == pytest.approx(1.25, abs=1e-5)
    assert "the last 24 of 64" in report.case.facts["rotates"]
    assert "which-end" in compare(trailing, Rotary(leading)).names(FAULT)


def leading(q, k, p):
    angles = p[:, None, :, None].double() * frequencies(24)
    return tuple(
        torch.cat([rotate_pairs(x[..., :24], angles, "half", 1.25), x[..., 24:]], -1)
        for x in (q, k)
    )


def test_frequencies_that_follow_the_length_are_noted_and_no_fault():
    report = diagnose(DynamicNTK(32, 4.0, 64), head_dim=32)
    assert report.healthy and "length-dependent" in report.names()


def test_equal_things_compare_without_a_word_and_a_port_with_its_difference():
    encoding = RoPE(64, layout="half")
    assert compare(right, Rotary(lambda q, k, p: encoding.rotate(q, k, p, p))).healthy
    other = RoPE(64)
    report = compare(right, Rotary(lambda q, k, p: other.rotate(q, k, p, p)))
    assert report.names(FAULT) == ["layout"]


def test_positions_counted_from_one_are_a_note():
    report = diagnose(place_bug(lambda p: p + 1))
    assert report.healthy and "counted-from" in report.names()
    assert "position 0 gets the rotation of 1" in str(report)


@pytest.mark.parametrize("half", [True, False])
def test_tables_are_examined(half):
    angles = torch.arange(512)[:, None] * frequencies(32, 500000.0)
    wide = torch.cat([angles, angles], 1) if half else angles.repeat_interleave(2, 1)
    report = diagnose((wide.cos(), wide.sin()), expect={"base": 500000})
    assert report.healthy and report.profile.rule.base == 500000
    assert ("half" if half else "interleaved") in report.case.facts["layout"]
    narrow = diagnose(Tables(angles.cos(), angles.sin()), expect={"base": 10000})
    assert narrow.names(FAULT) == ["base"] and "no layout" in str(narrow)


def test_a_table_kept_in_bfloat16_has_lost_its_positions():
    angles = (torch.arange(2048).bfloat16()[:, None] * frequencies(32).bfloat16()).float()
    report = diagnose((angles.cos(), angles.sin()))
    assert {"angles-rounded", "positions-rounded"} & set(report.names(FAULT))


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
        assert torch.equal(profiles[kind].inv_freq[:, 0], rope.inv_freq[rope.inv_freq > 0])


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


def test_a_layer_is_compared_with_the_nearest_kind_of_a_published_file():
    def report(base, factor):
        rope = RoPE(128, layout="half", inv_freq=frequencies(128, base) / factor)
        return diagnose(
            lambda q, k, p: rope.rotate(q, k, p, p), head_dim=128, expect=PUBLISHED["Gemma 3 27B"]
        )

    far, local = report(1e6, 8.0), report(1e4, 1.0)
    assert far.healthy and far.case.facts["compared with"].startswith("full_attention layers")
    assert local.healthy and "sliding_attention layers" in local.case.facts["compared with"]
    assert report(1e4, 8.0).names(FAULT) == ["factor"]


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


def model_of(name: str, **options: object) -> Transformer:
    per_layer = encodings(METHODS[name], SIZES, 2)
    return Transformer(
        50, d_model=64, n_heads=4, encoding=per_layer, causal=True, **options
    ).double()


@pytest.mark.parametrize("name", METHODS)
def test_a_model_with_any_method_keeps_what_a_model_must_keep(name):
    report = diagnose(LabModel(model_of(name)))
    assert report.healthy, str(report)
    assert ("shift" in report.names()) == (name in ("sinusoidal", "learned", "fire", "temperature"))


def test_a_cache_without_its_offset_is_found(monkeypatch):
    """A run that begins again is refused by the library; a tensor of positions is taken."""
    from pe_lib.attention import KVCache

    monkeypatch.setattr(KVCache, "next_positions", lambda self, length: torch.arange(length))
    report = examine_model(LabModel(model_of("rope")))
    assert {"cache", "chunked-prefill"} <= set(report.names(FAULT))


class Careless(LabModel):
    """A model that ignores the positions it is given, and masks."""

    def logits(self, ids, positions, mask):
        return self.model(ids)


def test_a_model_that_ignores_mask_and_positions_is_found():
    report = examine_model(Careless(model_of("learned")))
    assert {"left-padding", "packing"} <= set(report.names(FAULT))


def test_a_published_model_is_examined():
    report = diagnose(small_llama(hidden_size=32, rope_theta=500000.0))
    assert report.healthy, str(report)
    assert "500000" in report.case.facts["layers 0, 1 (full_attention)"]
    assert "shift" not in report.names()
    assert report.case.facts["layers that do as configured"] == "0, 1"
    assert report.profile.rule.base == 500000 and report.profile.layout == ("half", 0, 8)


def test_a_published_model_whose_tables_were_cast_with_it_is_found():
    assert diagnose(small_llama()).healthy
    assert "frequencies-rounded" in diagnose(small_llama().bfloat16()).names(FAULT)


def test_a_published_model_that_rotates_by_another_base_than_its_configuration_is_found():
    model = small_llama()
    model.model.rotary_emb.inv_freq = frequencies(16, 500000.0).float()
    assert diagnose(model).names(FAULT) == ["base"]


def test_a_published_model_that_pairs_its_components_otherwise_is_found(monkeypatch):
    from transformers.models.llama import modeling_llama

    def neighbours(q, k, cos, sin):
        cos, sin = (x[:, None].chunk(2, -1)[0].repeat_interleave(2, -1) for x in (cos, sin))
        swap = (torch.stack([-x[..., 1::2], x[..., ::2]], -1).flatten(-2) for x in (q, k))
        return tuple(x * cos + y * sin for x, y in zip((q, k), swap, strict=True))

    neighbours.__name__ = "apply_rotary_pos_emb"
    monkeypatch.setattr(modeling_llama, "apply_rotary_pos_emb", neighbours)
    assert diagnose(small_llama()).names(FAULT) == ["layout"]


def test_layers_of_two_kinds_are_held_to_frequencies_of_their_own():
    transformers = pytest.importorskip("transformers")
    config = transformers.Gemma3TextConfig(
        vocab_size=64, hidden_size=32, intermediate_size=32, num_hidden_layers=6, head_dim=16,
        num_attention_heads=2, num_key_value_heads=1, max_position_embeddings=128,
    )  # fmt: skip
    torch.manual_seed(0)
    model = transformers.Gemma3ForCausalLM(config)
    report = diagnose(model)
    assert report.healthy, str(report)
    assert report.case.facts["layers that do as configured"] == "0 to 5"
    model.model.rotary_emb.sliding_attention_inv_freq = frequencies(16, 1e6).float()
    (wrong,) = diagnose(model).faults
    assert (wrong.name, wrong.where) == ("base", "layers 0 to 4")


def test_what_a_published_model_does_not_show_is_said():
    transformers = pytest.importorskip("transformers")
    config = transformers.GPT2Config(vocab_size=64, n_embd=32, n_layer=1, n_head=2, n_positions=99)
    report = diagnose(transformers.GPT2LMHeadModel(config))
    assert report.healthy and "shift" in report.names()
    assert "add" in report.case.unexamined[-1]


@pytest.fixture(scope="module")
def published_rows():
    return pytest.importorskip("published").rows()


def test_no_published_function_is_accused(published_rows):
    assert [line for line in published_rows if line[4] not in ("no fault", "not called")] == []
    assert sum(int(line[2]) for line in published_rows if line[4] == "no fault") >= 150


def test_no_published_class_is_accused_where_it_is_held_to_its_own_file():
    reports = list(pytest.importorskip("published").held_to_files())
    called = [(name, report) for name, report in reports if isinstance(report, Report)]
    assert [(name, str(report)) for name, report in called if not report.healthy] == []
    assert len(called) >= 50
    long = [report for name, report in called if name == "Phi-3 mini 128k"]
    assert [report.names() for report in long] == [["length-dependent"]]


def test_the_page_tells_what_the_doctor_says_of_published_functions(published_rows):
    import published

    assert published_rows == published.stored()
    libraries = {line[0].split()[0] for line in published_rows if line[4] == "no fault"}
    assert libraries >= {"transformers", "diffusers", "x-transformers", "timm", "torchtune"}


def test_axes_and_their_split_are_named_as_the_libraries_have_them(published_rows):
    words = {f"{line[0]} {line[1]}": line[5] for line in published_rows}
    assert "axis 1: 12 pairs (8 to 19); axis 2: 12 pairs (20 to 31)" in words["diffusers FLUX"]
    assert "axis 0: 4 pairs (0 to 3); axis 1: 2 pairs (4 to 5)" in words["diffusers Wan"]
    for line in published_rows:
        if line[1].startswith("Qwen3_5Text") and line[3] == "3":
            assert "axis 1: 11 pairs (1 to 31 in steps of 3)" in line[5]
        if line[1].startswith("Qwen2_5OmniRotary"):
            assert "axis 1: 24 pairs (16 to 39)" in line[5]


def test_a_published_model_that_pairs_the_components_of_two_angles_is_found():
    """As its authors' code does, and its weights were trained so."""
    vjepa = pytest.importorskip("transformers.models.vjepa2.modeling_vjepa2")

    def rotate(q, k, p):
        return tuple(vjepa.rotate_queries_or_keys(x, p[:, None].float()) for x in (q, k))

    assert set(diagnose(rotate).names(FAULT)) == {"mixed-layouts"}


def test_scaled_queries_are_examined():
    scale = diagnose(METHODS["temperature"].make(SIZES), head_dim=SIZES.head_dim).parts["rotate"]
    assert scale.healthy and "scalable softmax" in scale.case.facts["rule"]
    late = diagnose(QueryTemperature(0.1, 8192), head_dim=16).parts["rotate"]
    assert late.healthy and "then it grows" in late.case.facts["rule"]


def shares(q, k, p):
    return q * (p[:1] + 2.0).log()[:, None, :, None], k


SCALED = {
    "rows-share-positions": shares,
    "first-position-only": lambda q, k, p: shares(q, k, p[:, :1] + 1009 * torch.arange(q.shape[2])),
    "factor-falls": lambda q, k, p: (q / (p + 2.0).log()[:, None, :, None], k),
}


@pytest.mark.parametrize("name", SCALED)
def test_queries_that_are_scaled_by_a_wrong_position_are_found(name):
    assert name in diagnose(SCALED[name], dtypes=()).names()


def test_a_report_has_words_and_values():
    report = diagnose(mixed_layouts)
    assert "FAULT: mixed-layouts" in str(report) and "A known case: https://" in str(report)
    assert json.loads(json.dumps(report.as_dict()))["healthy"] is False
    assert isinstance(report, Report)


def test_what_was_not_examined_is_listed():
    def once(q, k, p):
        if p.ndim == 2:
            raise ValueError("one row only")
        return right(q, k, p[None])

    report = diagnose(once)
    assert report.healthy and "one row only" in report.case.unexamined[0]
    short = diagnose(place_bug(lambda p: torch.arange(2048)[p]))
    assert any("positions from" in words for words in short.case.unexamined)


BAD = {
    "no function": (lambda: diagnose(3), "thing must be a function"),
    "unknown kind": (lambda: diagnose(right, kind="spiral"), "kind must be one of rotary"),
    "wrong answer": (lambda: diagnose(lambda q, k, p: q), "must return"),
    "arrays": (
        lambda: diagnose(lambda q, k, p: (q.numpy(), k.numpy())),
        "arrays .* posdoctor.ways",
    ),
    "wrong width": (lambda: diagnose(lambda q, k, p: (q[..., :8], k)), "in its shape"),
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
    "no table": (lambda: diagnose((torch.ones(3, 4), torch.ones(3, 4))), "positions >= 16"),
    "no file": (lambda: diagnose("nowhere.json"), "no JSON file"),
    "bias that raises": (
        lambda: diagnose(lambda p: p, kind="bias"),
        "bias function raised TypeError",
    ),
    "code that raises": (lambda: diagnose(lambda: 0, kind="absolute"), "code function raised"),
    "options": (lambda: diagnose(right, kind="bias", head_dim=3), "options do not fit"),
    "head width": (lambda: diagnose(right, head_dim=0), "head_dim must be at least 1"),
    "no sizes": (lambda: diagnose({"rope_theta": 1e4}), "head_dim must be given, or hidden_size"),
    "layer types": (
        lambda: diagnose({"head_dim": 8, "rope_parameters": {"full": {"rope_theta": 1}}}),
        "there are, full_attention; got 'full'",
    ),
}


@pytest.mark.parametrize("name", BAD)
def test_bad_input_is_refused_with_what_is_allowed(name):
    run, message = BAD[name]
    with pytest.raises((InputError, ValueError), match=message):
        run()


def test_the_command_answers_with_words_and_an_exit_status(tmp_path, capsys, monkeypatch):
    assert command.main(["posdoctor.bugs:right"]) == 0
    assert "sound as far as tried" in capsys.readouterr().out
    assert command.main(["posdoctor.bugs:mixed_layouts", "--json"]) == 1
    assert json.loads(capsys.readouterr().out)["healthy"] is False
    assert command.main(["posdoctor.bugs:right", "--expect", "base=500000,layout=half"]) == 1
    compared = ["--compare", "posdoctor.bugs:right", "posdoctor.bugs:mixed_layouts"]
    assert command.main(compared) == 1
    path = tmp_path / "config.json"
    path.write_text(json.dumps(YARN))
    assert command.main([str(path)]) == 0
    assert command.main(["nowhere:thing"]) == 2
    assert command.main(["right"]) == 2
    assert "module:name" in capsys.readouterr().err
    with pytest.raises(SystemExit) as stopped:
        command.main([])
    assert stopped.value.code == 2


def test_a_crash_is_no_verdict(monkeypatch, capsys):
    def broken(chosen):
        raise StopIteration("no parameters")

    monkeypatch.setattr(command, "examine", broken)
    assert command.main(["posdoctor.bugs:right"]) == 2
    assert "broke off, StopIteration: no parameters" in capsys.readouterr().err


def test_a_function_of_whole_sequences_is_not_accused_of_counting_along_them():
    def whole(q, k, p):
        return right(q, k, torch.arange(q.shape[2])[None])

    assert "offset-ignored" in diagnose(whole, dtypes=()).names(FAULT)
    assert "offset-ignored" in diagnose(whole, dtypes=(), runs=True).names(UNSURE)


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


def test_a_code_that_is_added_is_examined():
    assert diagnose(Absolute(lambda p: codes(p, 32))).healthy
    same = diagnose(Absolute(lambda p: codes(torch.arange(p.shape[-1]), 32)))
    assert "offset-ignored" in same.names(FAULT)
    table = nn.Embedding(512, 32)
    assert "a table" in diagnose(Absolute(table)).case.facts["form"]


VERDICTS = ("agree", "permuted on loading", "disagree", "not there")


def test_a_second_witness_is_heard_on_twenty_types_and_says_where():
    lines = doctor_page.read(doctor_page.WITNESSES)
    layouts = {row["model"]: row["layout"].split(" | ") for row in census.read()}
    heard = {line["model"] for line in lines if line["verdict"] != "not there"}
    assert len(heard & {each["config"]["model_type"] for each in published_files()}) >= 20
    for line in lines:
        assert line["verdict"] in VERDICTS
        assert bool(re.fullmatch(r"[\w/]+\.py:\d+", line["where"])) == bool(line["layout"])
        assert (line["verdict"] == "not there") == (line["layout"] == "")
        assert line["layout"] in layouts[line["model"]] or line["verdict"] != "agree"
        assert line["note"] or line["verdict"] in ("agree", "not there")
    page = doctor_page.page()
    assert all(f"| {model} |" in page for model in heard)
