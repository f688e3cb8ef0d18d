"""The doctor names every planted bug, and accuses nothing that is right."""

from __future__ import annotations

import json
import re
from dataclasses import replace

import numpy as np
import planted
import pytest
import torch
import unseen
from planted import (
    BUGS,
    COMBINED,
    DOUBTFUL,
    by_axes,
    chunked,
    codes,
    mixed_layouts,
    place_bug,
    right,
    rotate_pairs,
    verdicts,
)
from torch import nn

from pe_course import census
from pe_course.registry import METHODS, Sizes
from pe_lib.recent.temperature import QueryTemperature
from pe_lib.rope import RoPE
from pe_lib.rope_scaling import DynamicNTK, llama3, proportional, yarn
from pe_lib.sinusoidal import frequencies
from posdoctor import __main__ as command
from posdoctor import ways
from posdoctor.doctor import (
    Absolute,
    InputError,
    Report,
    Rotary,
    Tables,
    compare,
    diagnose,
)
from posdoctor.factory import published_files
from posdoctor.findings import FAULT, UNSURE
from posdoctor.profile import Case, Profile, compare_profiles
from posdoctor.rules import Rule, identify, series
from posdoctor.testing import assert_sound
from tools import doctor_page

SIZES = Sizes(64, 4, 128)


@pytest.mark.parametrize("bug", BUGS, ids=lambda bug: bug.name)
def test_a_planted_bug_is_named(bug):
    assert bug.verdict in verdicts(bug)


def test_the_page_tells_what_the_doctor_says_of_every_planted_bug():
    assert doctor_page.read(doctor_page.BUGS) == planted.recorded()


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
    "no table": (lambda: diagnose((torch.ones(3, 4), torch.ones(3, 4))), "positions >= 16"),
    "bias that raises": (
        lambda: diagnose(lambda p: p, kind="bias"),
        "bias function raised TypeError",
    ),
    "code that raises": (lambda: diagnose(lambda: 0, kind="absolute"), "code function raised"),
    "options": (lambda: diagnose(right, kind="bias", head_dim=3), "options do not fit"),
    "head width": (lambda: diagnose(right, head_dim=0), "head_dim must be at least 1"),
}


@pytest.mark.parametrize("name", BAD)
def test_bad_input_is_refused_with_what_is_allowed(name):
    run, message = BAD[name]
    with pytest.raises((InputError, ValueError), match=message):
        run()


def test_a_function_of_whole_sequences_is_not_accused_of_counting_along_them():
    def whole(q, k, p):
        return right(q, k, torch.arange(q.shape[2])[None])

    assert "offset-ignored" in diagnose(whole, dtypes=()).names(FAULT)
    assert "offset-ignored" in diagnose(whole, dtypes=(), runs=True).names(UNSURE)


def test_a_code_that_is_added_is_examined():
    assert diagnose(Absolute(lambda p: codes(p, 32))).healthy
    same = diagnose(Absolute(lambda p: codes(torch.arange(p.shape[-1]), 32)))
    assert "offset-ignored" in same.names(FAULT)
    table = nn.Embedding(512, 32)
    assert "a table" in diagnose(Absolute(table)).case.facts["form"]


def flattened(rows, columns):
    """A code of places in a grid of rows and columns, by their number: a table."""
    place = torch.arange(rows * columns)
    both = codes(place // columns, 16), codes(place % columns, 16)
    return torch.cat(both, 1)


def test_a_table_with_few_rows_is_examined():
    right, turned = flattened(3, 4), flattened(4, 3)
    assert diagnose(lambda p: right[p], kind="absolute").healthy
    wrong = diagnose(lambda p: turned[p], kind="absolute", expect=lambda p: right[p])
    assert wrong.names(FAULT) == ["code-values"]


def test_a_sinusoid_that_looks_the_same_ahead_and_behind_is_a_doubt():
    assert diagnose(lambda p: codes(p, 32), kind="absolute").names() == []
    same = diagnose(lambda p: codes(p.abs(), 32), kind="absolute")
    assert same.names() == same.names(UNSURE) == ["code-mirrored"]


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
