"""The bake-off: every cell is run once, nothing is lost, and shipped numbers can be had again."""

from __future__ import annotations

import ast
import json
import math
import os
import re
import signal
import sys
import threading
import time
from dataclasses import replace

import pytest
import torch

from browsing import left_out
from pe_course import tasks
from pe_course.bakeoff import cells, gates, protocol, rules, run
from pe_course.bakeoff.__main__ import main
from pe_course.bakeoff.cells import build, run_cell, split_text, windows
from pe_course.bakeoff.grid import Cell, grid, shorter
from pe_course.bakeoff.recipes import AtCoupledPositions, AtRandomPositions, encodings
from pe_course.bakeoff.rows import SHIPPED, Curve, curves, read_rows
from pe_course.bakeoff.variants import EXTENSIONS, dress, rescaled, variants
from pe_course.page import sentences
from pe_course.processes import loaded_once
from pe_course.registry import TAUGHT
from pe_lib import rope_scaling
from pe_lib.attention import attend
from pe_lib.compose import Compose
from pe_lib.encoding import NoPosition, PositionEncoding
from pe_lib.recent.sinks import Sink
from pe_lib.rope import RoPE
from tools import ROOT


def tiny_grid(methods=("none", "alibi"), seeds=(0, 1), steps=2):
    """A grid whose cells take a fraction of a second."""
    return [shorter(cell, steps) for cell in grid("small", ["first"], methods, seeds)]


def encodings_of(cell):
    """A cell's encodings, one for each layer."""
    return encodings(cell.method, cell.sizes, cell.n_layers)


def short_table():
    """A learned table on 3-back, measured up to twice its length."""
    cell = shorter(grid("small", ["n-back"], ["learned"], [0])[0], 2)
    return replace(cell, multiples=(1, 1.5, 2))


@pytest.fixture
def counted(monkeypatch):
    """Replace the training by a stub that counts how often each cell is run."""
    calls: list[str] = []

    def fake(cell: Cell):
        calls.append(cell.key)
        line = {"variant": cell.method, "length": 16, "metric": "m", "value": cell.seed}
        return [{**cell.settings(), **line, "error": ""}]

    monkeypatch.setattr(run, "run_cell", fake)
    return calls


def test_a_finished_cell_is_never_run_twice(tmp_path, counted):
    cells = tiny_grid()
    first = run.run(cells[:3], tmp_path / "a.csv")
    second = run.run(cells, tmp_path / "a.csv")
    assert sorted(counted) == sorted(cell.key for cell in cells)
    assert len(first) == 3 and len(second) == 4


def test_an_interrupted_run_loses_only_the_cell_under_way(tmp_path, counted, monkeypatch):
    cells, path = tiny_grid(), tmp_path / "a.csv"
    whole = run.run_cell

    def interrupted(cell):
        if cell.key == cells[2].key:
            raise KeyboardInterrupt
        return whole(cell)

    monkeypatch.setattr(run, "run_cell", interrupted)
    with pytest.raises(KeyboardInterrupt):
        run.run(cells, path)
    assert len(read_rows(path)) == 2
    monkeypatch.setattr(run, "run_cell", whole)
    run.run(cells, path)
    assert sorted(counted) == sorted(cell.key for cell in cells)


def test_a_crash_while_writing_leaves_the_old_file(tmp_path, counted, monkeypatch):
    path = tmp_path / "a.csv"
    run.run(tiny_grid()[:1], path)
    before = path.read_bytes()
    monkeypatch.setattr(os, "replace", lambda *_: (_ for _ in ()).throw(OSError("disk full")))
    with pytest.raises(OSError, match="disk full"):
        run.run(tiny_grid(), path)
    assert path.read_bytes() == before


def test_a_cell_with_other_settings_replaces_the_old_rows(tmp_path, counted):
    old = tiny_grid(("none",), (0,), steps=2)[0]
    new = Cell(**{**old.__dict__, "lr": 0.5})
    run.run([old], tmp_path / "a.csv")
    rows = run.run([new], tmp_path / "a.csv")
    assert counted == [old.key, new.key]
    assert [row["lr"] for row in rows] == ["0.5"]


def test_a_cell_that_fails_is_named_and_the_others_are_kept(tmp_path, capsys, monkeypatch):
    """By two processes as by one."""
    sound = tiny_grid(("none", "rope"), (0,))
    diverging = replace(sound[0], method="alibi", lr=1e300)
    monkeypatch.setattr("pe_course.bakeoff.__main__.grid", lambda *_: [diverging, *sound])
    found = []
    for workers in ("1", "2"):
        out = tmp_path / f"{workers}.csv"
        assert main(["--workers", workers, "--out", str(out)]) == 1
        found.append([(row["method"], row["metric"], row["value"]) for row in read_rows(out)])
        said = capsys.readouterr()
        assert "3 cells, 4 rows" in said.out
        assert f"1 cells failed; all others are in {out}" in said.err
        assert f"{diverging.key}: ValueError: the loss is nan" in said.err
    assert found[0] == found[1] and {method for method, *_ in found[0]} == {"none", "rope"}


def test_two_runs_that_write_at_the_same_moment_lose_nothing(tmp_path):
    path = tmp_path / "a.csv"

    def add(cells):
        for cell in cells:
            line = {"variant": cell.method, "length": 16, "metric": "m", "value": 0}
            run.add_rows(path, cell, [{**cell.settings(), **line, "error": ""}])

    cells = [tiny_grid(("none",), range(start, start + 40)) for start in (0, 40)]
    runs = [threading.Thread(target=add, args=[each]) for each in cells]
    for each in runs:
        each.start()
    for each in runs:
        each.join()
    assert {int(row["seed"]) for row in read_rows(path)} == set(range(80))
    assert not list(tmp_path.glob(".*.part"))


def test_without_positions_a_bidirectional_model_is_right_exactly_half_of_the_time():
    (row, *_) = [r for r in run_cell(tiny_grid(("none",))[0]) if r["metric"] == "accuracy-swap"]
    assert row["value"] == 0.5


def test_symmetric_alibi_is_exactly_blind_to_the_mirror():
    rows = run_cell(tiny_grid(("alibi",))[0])
    assert [r["value"] for r in rows if r["metric"] == "accuracy-mirror"] == [0.5]


def test_a_refused_length_keeps_the_words_and_loses_no_other_row():
    rows = run_cell(short_table())
    refused = [row for row in rows if row["value"] == ""]
    assert [row["length"] for row in refused] == [48, 64]
    assert all("max_len=32" in str(row["error"]) for row in refused)
    assert {row["variant"] for row in rows} == {
        "learned", "learned+clamp", "learned+wrap", "learned+interpolate",
    }  # fmt: skip


def test_every_extension_is_plain_rope_at_the_trained_length():
    cell = grid("small", ["marker"], ["rope"], [0])[0]
    model = build(cell)
    tokens = torch.arange(32).remainder(17).unsqueeze(0)
    plain = model(tokens)
    for variant in EXTENSIONS:
        dress(model, cell, variant, cell.train_length)
        assert torch.allclose(model(tokens), plain, atol=1e-5), variant
        assert isinstance(model.encoding, RoPE)


def code_of(chapter):
    """The code of a chapter's notebook, without the commands that are no Python."""
    cells = json.loads((ROOT / f"book/{chapter}.ipynb").read_text(encoding="utf-8"))["cells"]
    code = ["".join(cell["source"]) for cell in cells if cell["cell_type"] == "code"]
    return "\n".join(re.sub(r"^ *[!%].*", "", cell, flags=re.M) for cell in code)


def functions_of(chapter, names):
    """The functions of these names that a chapter writes down."""
    found = {"math": math, "torch": torch}
    for node in ast.parse(code_of(chapter)).body:
        if isinstance(node, ast.FunctionDef) and node.name in names:
            exec(ast.unparse(node), found)
    return found


def check_rule(variant, maker):
    """Assert that a row has the frequencies and the attention factor that chapter 13 teaches."""
    names = (
        "interpolated",
        "ntk_aware",
        "dynamic_ntk",
        "by_turns",
        "yarn",
        "yarn_attention_factor",
    )
    taught = functions_of("13_context_extension", names)
    gain = taught["yarn_attention_factor"]
    for cell in grid("small", ["text", "marker", "pretrained"], ["rope"], [0]):
        plain, trained = RoPE(cell.d_model // cell.n_heads).inv_freq, cell.train_length
        fastest = float(plain[0]) * trained / (2 * math.pi)  # its turns; the chapter's upper bound
        for length in (trained, 2 * trained, 16 * trained):
            s = length / trained
            wanted = {
                "rope+pi": taught["interpolated"](plain, s),
                "rope+ntk": taught["ntk_aware"](plain, s),
                "rope+dynamic-ntk": taught["dynamic_ntk"](plain, 2, trained, length),
                "rope+yarn": taught["yarn"](plain, s, trained, 1, fastest),
                "rope+llama3": taught["by_turns"](plain, s, trained),
            }[variant]
            found = maker(cell, length)
            rates = (
                found.inv_freq_at(torch.tensor(length)) if hasattr(found, "inv_freq_at") else None
            )
            rates = found.inv_freq if rates is None else rates
            assert torch.allclose(rates, wanted, rtol=1e-6), (variant, cell.task, length)
            assert found.attention_factor == pytest.approx(gain(s) if variant == "rope+yarn" else 1)


@pytest.mark.parametrize("variant", sorted(EXTENSIONS))
def test_a_rule_is_what_chapter_13_teaches(variant):
    check_rule(variant, EXTENSIONS[variant])


def test_a_rule_with_another_ramp_is_seen():
    lowered = rescaled(lambda rates, s, length: rope_scaling.by_parts(rates, s, length, 1, 5))
    with pytest.raises(AssertionError, match=r"rope\+yarn"):
        check_rule("rope+yarn", lowered)


@pytest.mark.parametrize("method", sorted(TAUGHT))
def test_a_method_is_the_class_that_its_chapter_names(method):
    (cell,) = grid("small", ["text"], [method], [0])
    taught = type(encodings_of(cell)[0]).__name__
    page = (ROOT / f"book/{TAUGHT[method].chapter}.ipynb").read_text(encoding="utf-8")
    assert re.search(rf"\b{taught}\b", page, re.I)  # xPos is XPos in code


def test_a_sink_is_what_chapter_16_writes():
    found = {"PositionEncoding": PositionEncoding, "nn": torch.nn, "torch": torch}
    for node in ast.parse(code_of("16_today")).body:
        if isinstance(node, ast.ClassDef) and node.name == "Sink":
            exec(ast.unparse(node), found)
    taught, ours = found["Sink"](4), Sink(4)
    taught.logits.data = ours.logits.data = torch.arange(4.0)
    q, k, v = torch.randn(3, 1, 4, 9, 16, generator=torch.Generator().manual_seed(0))
    one, two = (
        attend(q, k, v, Compose(RoPE(16), each), range(9), range(9), causal=True)
        for each in (ours, taught)
    )
    assert torch.equal(one[0], two[0]) and float(one[1].detach().sum(-1).max()) < 1


def test_questions_of_gates_are_judged():
    near, far = [1.6, 1.7, 1.65, 1.62, 1.61], [1.9, 2.0, 1.95, 1.92, 1.91]

    def rows(method, scores, ends, share):
        lines = [(method, 64, "nats", scores), (f"{method}+cache", 1024, "nats", ends)]
        lines += [
            (method, 64, f"first-{layer}.{head}", [share * head] * 5)
            for layer in (1, 2)
            for head in range(1, 5)
        ]
        return [
            {"scale": "gates", "task": "text", "method": method, "variant": variant,
             "length": str(length), "metric": metric, "value": value}
            for variant, length, metric, values in lines
            for value in values
        ]  # fmt: skip

    rope, gate = rows("rope", near, far, 0.08), rows("rope_gate", far, far, 0.02)
    asked, both = gates.ORDERINGS["text"], [*rope, *gate]
    assert gates.verdict(both, "text", asked["gate-near"]) == "the other way round"
    assert gates.verdict(both, "text", asked["gate-cache-16"]) == "holds"  # its loss rose by 0
    assert gates.verdict(both, "text", asked["gate-first"]) == "holds"
    assert gates.verdict(rope, "text", asked["gate-near"]) is None
    assert gates.verdict([*rope, *gate[1:]], "text", asked["gate-near"]) is None
    assert gates.with_sinks(both, "text", "rope") == [2] * 5  # a head of each layer has 0.32
    assert gates.with_sinks(both, "text", "rope_gate") == [0] * 5


@pytest.mark.parametrize("task", ["n-back", "marker"])
def test_models_that_were_trained_again_are_the_same_ones(task):
    """On a processor to the last digit; text was trained on a GPU before."""
    old, new = (
        protocol.measured(read_rows(SHIPPED / f"{scale}.csv"), task, scale=scale)
        for scale in ("long", "rules")
    )
    for variant in ("rope", "hybrid"):
        assert new[variant] == old[variant] and len(new[variant]) == 6
    assert {*EXTENSIONS, "rope+cache"} <= set(new)


@pytest.mark.parametrize("task", gates.ORDERINGS)
def test_rope_beside_gates_is_the_same(task):
    """As it is and over a rolling cache, to the last digit."""
    old, new = (
        protocol.measured(read_rows(SHIPPED / f"{scale}.csv"), task, scale=scale)
        for scale in ("rules", "gates")
    )
    for variant in ("rope", "rope+cache"):
        assert new[variant] == old[variant] and len(new[variant]) == 6


def test_an_ordering_of_rules_is_judged_like_those_of_the_long_comparison():
    def rows(scale, variant, values):
        return [
            {"scale": scale, "task": "text", "variant": variant, "length": "128",
             "metric": "nats", "value": value}
            for value in values
        ]  # fmt: skip

    asked = rules.ORDERINGS["text"]["cache-yarn-2"]
    low, high = [1.6, 1.7, 1.65, 1.62, 1.61], [1.8, 1.9, 1.75, 1.77, 1.76]
    lower, higher = rows("rules", "rope+cache", low), rows("rules", "rope+yarn", high)
    assert rules.verdict([*lower, *higher], "text", asked) == "holds"
    assert rules.verdict([*lower, *rows("long", "rope+yarn", high)], "text", asked) is None
    assert rules.verdict([*lower, *higher[1:]], "text", asked) is None
    other = rows("rules", "rope+cache", high), rows("rules", "rope+yarn", low)
    assert rules.verdict([*other[0], *other[1]], "text", asked) == "the other way round"


def test_yarn_keeps_the_fastest_pair_at_every_size():
    for cell in grid("small", ["text", "marker", "pretrained"], ["rope"], [0]):
        encoding = EXTENSIONS["rope+yarn"](cell, 4 * cell.train_length)
        plain = RoPE(cell.d_model // cell.n_heads).inv_freq
        assert float(encoding.inv_freq[0]) == pytest.approx(float(plain[0]), rel=1e-6)
        assert float(encoding.inv_freq[-1]) == pytest.approx(float(plain[-1]) / 4, rel=1e-6)


def test_dropping_rope_leaves_a_model_without_positions_and_then_gives_it_back(monkeypatch):
    monkeypatch.setattr(cells, "TUNE_STEPS", (0, 1))
    cell = replace(shorter(grid("small", ["marker"], ["rope"], [0])[0], 2), multiples=(1, 2))
    model = build(cell)
    seen = []
    monkeypatch.setattr(cells, "token_accuracy", lambda m, *_: seen.append(m.encoding) or 0.5)
    rows = list(cells.measure_dropping(model, cell))
    assert [row["metric"] for row in rows] == [
        f"accuracy-recalibrated-{steps}" for steps in (0, 0, 1, 1)
    ]
    assert all(isinstance(encoding, NoPosition) for encoding in seen)
    assert isinstance(model.encoding, RoPE)


def test_a_hybrid_has_windows_of_a_quarter_and_one_layer_without_positions():
    cell = replace(grid("small", ["marker"], ["hybrid"], [0])[0], n_layers=4)
    *local, last = encodings_of(cell)
    assert isinstance(last, NoPosition) and len(local) == 3
    assert run_cell(shorter(replace(cell, multiples=(1,)), 1))
    q = torch.randn(1, 4, 32, 8)
    places = torch.arange(32)
    bias = local[0].bias(q, q, places, places, 1.0)
    assert (bias[0, 20] == 0).nonzero().flatten().tolist() == list(range(13, 28))


def test_random_positions_rise_differ_and_are_the_same_when_drawn_again():
    model = build(grid("small", ["n-back"], ["randomised"], [0])[0])
    assert isinstance(model, AtRandomPositions) and model.reach == 512
    drawn = [model.positions(40) for _ in range(2)]
    assert (drawn[0].diff() > 0).all() and int(drawn[0][-1]) < 512
    assert not torch.equal(*drawn)
    model.restart(0)
    assert torch.equal(model.positions(40), drawn[0])
    assert torch.equal(model.positions(512), torch.arange(512))
    with pytest.raises(ValueError, match="length must be at most the reach, 512, got 513"):
        model.positions(513)


def test_a_model_that_adds_does_not_see_the_digit_it_is_to_tell():
    (cell,) = grid("small", ["coupled"], ["kerple"], [0])
    model = build(cell)
    assert isinstance(model, AtCoupledPositions)
    inputs, _ = tasks.addition(3, 5, torch.Generator().manual_seed(0))
    changed = inputs.clone()
    changed[:, -3:] = (changed[:, -3:] + 1) % 10  # digits 2, 3 and 4 of the sum
    one, other = model(inputs), model(changed)
    told = slice(-6, -3)  # where digits 0, 1 and 2 are told
    assert torch.equal(one[:, told], other[:, told])
    assert not torch.allclose(one[:, -3:], other[:, -3:])


def test_sums_are_measured_by_digit_and_as_a_whole():
    cell = replace(shorter(grid("small", ["addition"], ["rope"], [0])[0], 2), multiples=(1, 2))
    rows = run_cell(cell)
    assert [(row["length"], row["metric"]) for row in rows] == [
        (6, "accuracy"), (6, "accuracy-whole"), (12, "accuracy"), (12, "accuracy-whole"),
    ]  # fmt: skip
    inputs, targets = tasks.addition(50, 4, torch.Generator().manual_seed(0))
    answers = torch.nn.functional.one_hot(targets.clamp(min=0), 12).double()
    assert cells.whole_sums(lambda _: answers, inputs, targets) == 1
    answers[:25, -1] = answers[:25, -1].roll(1, dims=-1)
    assert cells.whole_sums(lambda _: answers, inputs, targets) == 0.5


def test_positions_start_as_large_as_tokens():
    for name in ("sinusoidal", "learned", "deberta"):
        cell = grid("small", ["text"], [name], [0])[0]
        encoding = encodings_of(cell)
        nothing = torch.zeros(1, 32, cell.d_model)
        table = encoding[0].embed(nothing, range(32)) if name == "sinusoidal" else encoding[0].table
        rms = float(table.detach().square().mean().sqrt())
        assert 0.27 < rms < 0.33, name


def test_on_the_way_a_model_is_measured_and_trains_as_if_it_were_not(monkeypatch):
    (cell, *_) = protocol.rate_cells("n-back", ["randomised"])  # whose model draws positions
    cell = replace(cell, steps=4, checks=(2,))
    rows = run_cell(cell)
    assert [(row["metric"], row["length"]) for row in rows] == [
        ("accuracy-after-2", 32), ("accuracy", 32),
    ]  # fmt: skip
    unwatched = run_cell(replace(cell, checks=()))
    assert [rows[-1][name] for name in ("value", "final_loss")] == [
        unwatched[-1][name] for name in ("value", "final_loss")
    ]


def long_rows(values, rates=(0.5, 0.7, 0.6)):
    """Rows of the long comparison: by method the values of the seeds, and scores by rate."""
    rows = [
        {"scale": f"long-{rate:g}", "task": "n-back", "method": method, "variant": method,
         "length": "32", "metric": "accuracy", "value": score, "lr": rate, "final_loss": 1}
        for method in values for rate, score in zip(protocol.RATES, rates, strict=False)
    ]  # fmt: skip
    for method, (before, end) in values.items():
        for metric, found in (("accuracy-after-1500", before), ("accuracy", end)):
            rows += [
                {"scale": "long", "task": "n-back", "method": method, "variant": method,
                 "length": "32", "metric": metric, "value": value, "seed": seed}
                for seed, value in enumerate(found)
            ]  # fmt: skip
    return rows


@pytest.mark.parametrize(
    ("before", "end", "said"),
    [
        ([0.5] * 5, [0.99] * 5, "learned"),
        ([0.5] * 5, [0.99, *[0.98] * 4], "learned by some seeds"),
        ([0.97] * 5, [0.976] * 5, "still rising"),
        ([0.976] * 5, [0.977] * 5, "flat"),
    ],
)
def test_a_capped_training_is_given_the_class_of_the_protocol(before, end, said):
    assert protocol.class_of(long_rows({"t5": (before, end)}), "n-back", "t5") == said


def test_no_sentence_is_said_of_a_method_without_all_five_seeds():
    rows = long_rows({"t5": ([0.5] * 4, [1.0] * 4), "fire": ([0.5] * 5, [0.6] * 5)})
    assert set(protocol.measured(rows, "n-back")) == {"fire"}
    assert protocol.verdict(rows, "n-back", protocol.Ordering("t5", "fire", 1)) is None


def test_a_method_keeps_what_every_seed_keeps():
    def kept(learned=1.0, **longer):
        rows = long_rows({"t5": ([0.5] * 5, [learned] * 5)})
        rows += [
            {"scale": "long", "task": "n-back", "variant": "t5", "length": length[1:],
             "metric": "accuracy", "value": value}
            for length, values in longer.items() for value in values
        ]  # fmt: skip
        return protocol.kept_to(rows, "n-back", "t5")

    high, one_low = [0.95] * 5, [*[0.95] * 4, 0.9]  # 0.9 itself is lost
    assert kept() == 1
    assert kept(_48=high) == 1.5
    assert kept(_48=high, _64=high) == 2
    assert kept(_48=high, _64=one_low) == 1.5
    assert kept(_48=one_low, _64=high) == 1  # what comes after a loss is chance
    assert kept(_48=high[1:]) == 1  # a seed is missing
    assert kept(0.98, _48=high) is None


def test_an_ordering_holds_if_all_five_seeds_are_above_all_five():
    def judged(better, worse):
        rows = long_rows({"t5": ([0] * 5, better), "fire": ([0] * 5, worse)})
        return protocol.verdict(rows, "n-back", protocol.Ordering("t5", "fire", 1))

    high, low = [0.8, 0.7, 0.75, 0.9, 0.8], [0.6, 0.5, 0.69, 0.4, 0.3]
    assert judged(high, low) == "holds"
    assert judged(low, high) == "the other way round"
    assert judged(high, [*low[:4], 0.7]) == "open"


def test_a_rate_is_chosen_once_all_rates_are_measured_and_the_seeds_take_it():
    whole = long_rows({"t5": ([], [])})
    assert protocol.chosen_rate(whole, "n-back", "t5") == 3e-3
    assert protocol.chosen_rate(whole[:-1], "n-back", "t5") is None
    assert protocol.seed_cells(whole[:-1], "n-back", ["t5"]) == []
    cells_of = protocol.seed_cells(whole, "n-back", ["t5", "fire"])
    assert [(cell.method, cell.seed, cell.lr) for cell in cells_of] == [
        ("t5", seed, 3e-3) for seed in protocol.SEEDS
    ]
    assert protocol.RATE_SEED not in protocol.SEEDS


def test_the_command_chooses_rates_before_it_runs_the_seeds(tmp_path, monkeypatch):
    """The best rate teaches it to no seed, so a higher one is tried; that is better."""
    ran = []

    def fake(cell):
        ran.append((cell.seed, cell.lr))
        line = {"variant": cell.method, "length": 32, "metric": "accuracy", "value": cell.lr}
        return [{**cell.settings(), **line, "error": "", "final_loss": 1}]

    monkeypatch.setattr(run, "run_cell", fake)
    chosen = ["--scale", "long", "--tasks", "n-back", "--methods", "t5", "--workers", "1"]
    for _ in range(2):  # the second time nothing is left
        assert main([*chosen, "--out", str(tmp_path / "a.csv")]) == 0
    seeds = [[(seed, rate) for seed in protocol.SEEDS] for rate in (1e-2, protocol.HIGHER)]
    rates = [(11, rate) for rate in (*protocol.RATES, protocol.HIGHER)]
    assert ran == [*rates[:3], *seeds[0], rates[3], *seeds[1]]


def test_the_pretrained_model_is_one_cell_and_needs_no_training():
    cells = grid("small", ["pretrained"], seeds=range(5))
    assert [(cell.method, cell.steps) for cell in cells] == [("rope", 0)]
    rows = run_cell(replace(cells[0], multiples=(1,)))
    assert len({row["value"] for row in rows}) == 1 and 5 < float(str(rows[0]["value"])) < 6


@pytest.fixture
def few_windows(monkeypatch):
    """Measure the text in a few places only."""
    monkeypatch.setattr(cells, "WINDOWS", 8)


def test_a_text_cell_measures_every_variant_at_every_length_and_by_context(few_windows):
    cell = replace(grid("small", ["text"], ["learned"], [0])[0], steps=2, multiples=(1, 2))
    rows = run_cell(cell)
    losses = {(row["variant"], row["length"]): row for row in rows if row["metric"] == "nats"}
    assert losses.keys() == {(v, length) for v in variants(cell) for length in (64, 128)}
    assert "max_len=64" in str(losses["learned", 128]["error"])
    untrained = math.log(split_text()[2])
    for (variant, length), row in losses.items():
        if (variant, length) != ("learned", 128):
            assert 0.5 * untrained < float(str(row["value"])) < 1.5 * untrained
    contexts = [row["length"] for row in rows if row["metric"].startswith("nats-last")]
    assert contexts == [4, 8, 16, 32, 64, 128, 256]


def test_fine_tuning_starts_each_extension_from_the_trained_weights(few_windows, monkeypatch):
    monkeypatch.setattr(cells, "TUNE_STEPS", (0, 1))
    names = ("rope", *EXTENSIONS, "rope+base")
    for task, metric in (("text", "nats"), ("n-back", "accuracy")):
        cell = replace(grid("small", [task], ["rope"], [0])[0], steps=2, multiples=(1,))
        rows = {(row["variant"], row["metric"]): row["value"] for row in run_cell(cell)}
        assert {v for v, found in rows if found == f"{metric}-tuned-1"} == set(names)
        for variant in names if task == "text" else ():
            assert rows[variant, "nats-tuned-0"] != rows[variant, "nats-tuned-1"]


def test_text_windows_of_all_lengths_share_their_targets():
    short, long = (windows(split_text()[1], 128, length)[1] for length in (64, 1024))
    assert torch.equal(short[:, -32:], long[:, -32:])


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("huge",), "scale must be one of small, short, long; got"),
        (("small", ["chess"]), "task must be one of"),
        (("small", ["text"], ["magic"]), "method must be one of"),
    ],
)
def test_an_unknown_name_is_refused(arguments, message):
    with pytest.raises(ValueError, match=message):
        grid(*arguments)


def test_curves_leave_out_refused_lengths():
    cell = short_table()
    found = curves(run_cell(cell), "n-back", "accuracy", cell.scale)
    assert list(found["learned"]) == [32] and list(found["learned+wrap"]) == [32, 48, 64]


def test_on_a_cluster_a_killed_worker_loses_nothing_and_nothing_counts_twice(tmp_path):
    try:
        import distributed
        from dask import config
    except ImportError:
        left_out(f"a cluster needs Dask: {run.INSTALL_DASK}")
    cells = [shorter(c, 30) for c in grid("small", ["first"], ["none", "rope"], (0, 1))]
    # Three processes are started in all: what they import is loaded once.
    method = loaded_once(["pe_course.bakeoff.cells"]).get_start_method()
    with (
        config.set({"distributed.worker.multiprocessing-method": method}),
        distributed.LocalCluster(
            n_workers=2, threads_per_worker=1, host="127.0.0.1", dashboard_address=None
        ) as cluster,
    ):
        victim = next(iter(cluster.workers.values())).pid

        def kill_when_work_is_under_way():
            with distributed.Client(cluster.scheduler_address) as client:
                while not any(client.processing().values()):
                    time.sleep(0.05)
            os.kill(victim, signal.SIGKILL)

        killer = threading.Thread(target=kill_when_work_is_under_way)
        killer.start()
        rows = run.run(cells, tmp_path / "a.csv", scheduler=cluster.scheduler_address)
        killer.join()
        diverging = replace(cells[0], method="alibi", lr=1e300)
        with pytest.raises(run.CellsFailed, match=r"first/alibi/0: ValueError: the loss is nan"):
            run.run([diverging, cells[0]], tmp_path / "b.csv", scheduler=cluster.scheduler_address)
        assert len(read_rows(tmp_path / "b.csv")) == 2
    names = [(row["method"], str(row["seed"]), row["metric"]) for row in rows]
    assert len(names) == len(set(names)) == 2 * len(cells)
    again = {row["metric"]: row["value"] for row in run_cell(cells[1])}
    on_cluster = [row for row in rows if row["method"] == "rope" and row["seed"] == "0"]
    assert {row["metric"]: float(row["value"]) for row in on_cluster} == again


def test_without_dask_a_scheduler_says_what_to_install(tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "distributed", None)
    with pytest.raises(ImportError, match=r"pip install -r requirements-bakeoff\.txt"):
        run.run(tiny_grid(), tmp_path / "a.csv", scheduler="tcp://127.0.0.1:8786")


@pytest.mark.parametrize("key", sorted(sentences.SAID))
def test_a_sentence_is_computed_from_the_rows_and_refuses_others(key, monkeypatch):
    assert any(letter.isdigit() for letter in sentences.quote(key))
    rows = sentences.found

    def alike(task: str, scale: str = "long") -> dict[str, Curve]:
        known = rows(task, scale)
        return dict.fromkeys(known, known["rope"])

    gated = [line | {"value": int(line["length"]) / 100} for line in sentences.shipped("gates")]
    monkeypatch.setattr(sentences, "found", alike)
    monkeypatch.setattr(sentences, "shipped", lambda _: gated)
    with pytest.raises((AssertionError, KeyError)):
        sentences.quote(key)


def test_a_shipped_cell_can_be_run_again_and_shows_the_same():
    """Of the first steps only: chapter 17 trains this method's whole cell again when executed."""
    (cell,) = grid("short", ["n-back"], ["hybrid"], [0])
    shipped = {
        row["length"]: row
        for row in read_rows(SHIPPED / "short.csv")
        if (row["task"], row["method"], row["seed"]) == ("n-back", "hybrid", "0")
    }
    fresh = run_cell(cell)
    assert {str(row["length"]) for row in fresh} == shipped.keys()
    for row in fresh:
        for measured in ("value", "final_loss"):
            wanted = float(shipped[str(row["length"])][measured])
            assert float(row[measured]) == pytest.approx(wanted, abs=0.002), measured
