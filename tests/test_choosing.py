"""The chooser of chapter 19 says what the shipped rows say, in every setting, and no more."""

from __future__ import annotations

import csv
from collections import defaultdict
from dataclasses import replace
from itertools import chain, pairwise, product

import pytest

from pe_course.bakeoff.rows import SHIPPED
from pe_course.page import choosing
from pe_course.page.choosing import FITS, OUT, UNSURE, Measured, Needs
from tools import ROOT

TRAINED = 512
MULTIPLES = (0.5, 1, 1.25, 1.5, 2, 4, 6, 8, 16, 20)
TASKS = {"text": ("language", 64), "marker": ("content", 32), "n-back": ("offset", 32)}
# What is impossible, by the reason that says so, and in which settings.
IMPOSSIBLE = {
    "axes": lambda needs: needs.what == "image",
    "sides": lambda needs: needs.what == "both",
    "causal": lambda needs: needs.what in ("both", "image"),
    "whole": lambda needs: needs.what == "times",
    "untold": lambda needs: needs.what == "times",
    "moved": lambda needs: needs.cache == "rolling",
    "stale": lambda needs: needs.cache == "all",
    "parameters": lambda needs: needs.parameters == 0,
    "scores": lambda needs: needs.kernel == "plain",
    "products": lambda needs: needs.kernel != "any",
    "memory": lambda needs: needs.small,
    "training": lambda needs: not needs.tuned,
}
# Rows that take a rule apart, or a rolling cache of another size: asked elsewhere.
APART = ("rope+yarn-no-factor", "rope+llama3-factor", "rope+factor")


def lines(*names):
    """Return the rows of shipped comparisons, as far as they are there."""
    paths = [SHIPPED / f"{name}.csv" for name in names]
    return chain.from_iterable(csv.DictReader(path.open()) for path in paths if path.is_file())


def values_of(*names, scale, after=""):
    """Return the seeds of every row: (keep, variant) -> multiple -> values."""
    found = defaultdict(lambda: defaultdict(list))
    for row in lines(*names):
        if row["scale"] != scale or row["task"] not in TASKS or row["value"] == "":
            continue
        keep, length = TASKS[row["task"]]
        kind, _, rest = row["metric"].partition("-")
        if kind in ("nats", "accuracy") and rest in after.split(" "):
            found[keep, row["variant"]][int(row["length"]) / length].append(float(row["value"]))
    return found


def relative(found, home):
    """Return losses above the worst of a RoPE at its training length, and shares as they are."""
    worst = max(home["language", "rope"][1])
    return {
        (keep, variant): {
            multiple: [round(v - worst, 5) if keep == "language" else v for v in values]
            for multiple, values in seeds.items()
        }
        for (keep, variant), seeds in found.items()
    }


def with_all_seeds(found):
    whole = {
        key: {m: values for m, values in seeds.items() if len(values) == 5}
        for key, seeds in found.items()
    }
    return {key: seeds for key, seeds in whole.items() if seeds}


def measured():
    """Return the seeds of every method: what was measured -> method -> multiple -> values."""
    short = values_of("small", "parts", scale="small")
    tuned = values_of("small", "parts", scale="small", after="tuned-200 recalibrated-200")
    long = with_all_seeds(values_of("long", scale="long"))
    rules = with_all_seeds(values_of("rules", scale="rules"))
    plain = relative(short, short) | relative(long, long)
    further = relative(tuned, short)
    if rules:
        extensions = {key: seeds for key, seeds in rules.items() if "+" in key[1]}
        plain |= relative(extensions, rules)
        for scale in ("further-4", "further-8", "dropped"):
            after = "tuned-200 recalibrated-400 recalibrated-600"  # the most steps of each task
            more = with_all_seeds(values_of(scale, scale=scale, after=after))
            for key, seeds in relative(more, rules).items():
                further[key] = further.get(key, {}) | seeds
    found = defaultdict(dict)
    for after, each in ((False, plain), (True, further)):
        for (keep, variant), seeds in each.items():
            method, _, cache = variant.partition("+cache")
            rolling = variant.endswith("+cache")
            if variant not in APART and (rolling or not cache):
                of = Measured(keep, "text", "rolling" if rolling else "all", after)
                found[of][method] = seeds
                if variant == choosing.ROLLING:
                    found[of][variant] = seeds
    for keep in choosing.KEEP:  # layers that are all windows see no more without a rolling cache
        of = Measured(keep, "text", "all", False)
        found[of._replace(cache="rolling")]["all_windows"] = found[of]["all_windows"]
    return found


def worst_of(seeds, multiple, keep):
    """Return the worst seed at the first length that is long enough, or None."""
    at = [each for each in sorted(seeds) if each >= multiple]
    return None if not at else (max if keep == "language" else min)(seeds[at[0]])


def better(a, b, keep):
    return a < b if keep == "language" else a > b


def clears(value, keep):
    return value is not None and better(value, 0.1 if keep == "language" else 0.9, keep)


def in_these_settings(needs, key, task):
    """Return what a measurement must have been made of, to count for a method: the best first."""
    cache = "rolling" if needs.cache == "rolling" or key == choosing.ROLLING else "all"
    further = (True, False) if needs.tuned and needs.multiple > 1 else (False,)
    return [Measured(task, needs.what, cache, tuned) for tuned in further]


def settings(what, keep):
    """Return all settings of the chooser for one kind of model and one demand."""
    switches = product((0, float("inf")), *3 * [(False, True)])
    for each in product(MULTIPLES, choosing.CACHES, choosing.KERNELS, switches):
        multiple, cache, kernel, (parameters, small, finished, tuned) = each
        yield Needs(
            what, keep, TRAINED, int(TRAINED * multiple), cache, parameters,
            kernel=kernel, small=small, finished=finished, tuned=tuned,
        )  # fmt: skip


def check_reason(reason, needs, key, rows):
    """Assert that a method is called out by these very settings, and by nothing else."""
    if reason.of is None:
        assert IMPOSSIBLE[reason.kind](needs), (key, needs)
        assert reason.kind in ("parameters", *choosing.facts()[key].cannot)
        return
    assert reason.of in in_these_settings(needs, key, reason.kind), (key, needs)
    assert not needs.tuned or needs.multiple == 1  # what more training does is open
    values = rows[reason.of][key][reason.multiple]
    assert reason.multiple <= needs.multiple
    assert reason.value == (max if reason.kind == "language" else min)(values)
    assert not clears(reason.value, reason.kind)


@pytest.mark.parametrize("what", choosing.WHAT)
@pytest.mark.parametrize("keep", ["all", *choosing.KEEP])
def test_nothing_is_out_by_a_measurement_of_something_else(keep, what):
    rows = measured()
    asked = list(choosing.KEEP) if keep == "all" else [keep]
    for needs in settings(what, keep):
        found = choosing.choose(needs)
        for key, (status, worst, reasons) in found.items():
            held = []
            for task in asked:
                ofs = in_these_settings(needs, key, task)
                values = [worst_of(rows[of].get(key, {}), needs.multiple, task) for of in ofs]
                held.append(next((each for each in values if clears(each, task)), None))
            known_good = None not in held
            assert (status == FITS) <= known_good, (key, needs)
            if status == OUT:
                assert reasons, (key, needs)
                for reason in reasons:
                    check_reason(reason, needs, key, rows)
                assert not known_good or all(each.of is None for each in reasons), (key, needs)
            else:
                assert (status == UNSURE) == bool(reasons) != known_good, (key, needs)
            if known_good:
                assert worst == held[0], (key, needs)
        fit = [key for key, each in found.items() if each.status == FITS]
        assert all(not better(found[b][1], found[a][1], asked[0]) for a, b in pairwise(fit))


def test_decoders_of_text_say_nothing_of_other_models():
    for what in choosing.WHAT[1:]:
        for needs in settings(what, "all"):
            for verdict in choosing.choose(needs).values():
                assert verdict.worst is None and verdict.status != FITS
                assert all(each.of is None for each in verdict.reasons)


def test_a_finished_model_keeps_rope():
    for what, keep in product(choosing.WHAT, choosing.KEEP):
        for needs in settings(what, keep):
            if needs.finished:
                assert {key.partition("+")[0] for key in choosing.choose(needs)} == {"rope"}
    far = Needs(keep="language", trained=8192, context=65536, finished=True, tuned=True)
    assert {"rope", "rope+cache", "rope+yarn", "rope+llama3", "rope+base", "rope+drop"} <= set(
        choosing.choose(far)
    )


def test_a_rolling_cache_is_judged_by_a_rolling_cache():
    rows = measured()
    rolling = Needs(keep="language", trained=4096, context=65536, cache="rolling")
    has_rows = rows[Measured("language", "text", "rolling", False)]
    for key, verdict in choosing.choose(rolling).items():
        if key in has_rows:
            assert verdict.worst is not None
        elif verdict.status == UNSURE:
            assert [each.kind for each in verdict.reasons] == ["rolling"]
    assert choosing.choose(rolling)["all_windows"].status == FITS
    assert ("rope" in choosing.fitting(rolling)) == ("rope" in has_rows)
    every_key = choosing.choose(replace(rolling, cache="all"))
    assert every_key["rope"].status == OUT and every_key[choosing.ROLLING].status != OUT


def test_rotations_take_any_times():
    found = choosing.choose(Needs("times"))
    open_to_times = {key for key, each in found.items() if each.status == UNSURE}
    assert {"rope", "sinusoidal", "alibi", "transformer_xl", "hybrid"} <= open_to_times
    assert {key: each.reasons[0].kind for key, each in found.items() if each.status == OUT} == {
        **dict.fromkeys(("learned", "shaw", "t5", "deberta"), "whole"),
        **dict.fromkeys(("none", "windows_none", "temperature"), "untold"),
        **dict.fromkeys(("forgetting", "cope", "randomised"), "untold"),
    }


def test_every_way_in_which_a_model_was_measured_can_be_chosen():
    named = {key for found in measured().values() for key in found}
    assert named <= set(choosing.ROWS)


def test_further_training_leaves_rope_open():
    for keep in ("all", *choosing.KEEP):
        plain = Needs(keep=keep, trained=4096, context=16384)
        assert "rope" not in choosing.fitting(plain)
        tuned = replace(plain, tuned=True)
        assert (
            "rope+base" in choosing.fitting(tuned) and choosing.choose(tuned)["rope"].status != OUT
        )
        farther = choosing.choose(replace(plain, tuned=True, context=2**17))["rope"]
        assert farther.status == UNSURE and farther.reasons[0].kind == "beyond"


def test_what_the_code_says_of_each_method_is_so():
    known = choosing.facts()
    cannot = {
        kind: {key for key, each in known.items() if kind in each.cannot} for kind in choosing.ASKED
    }
    counting = {"temperature", "forgetting", "cope"}
    tables = {"learned", *choosing.LEARNED}
    vectors = {"shaw", "transformer_xl", "deberta"}
    numbers = {"t5", "alibi", "kerple", "fire", "forgetting"}
    assert cannot == {
        "axes": {"none", "rope+drop"},
        "sides": {"none", "alibi", "kerple", "windows_none", "rope+drop"},
        "query": {"fire"},
        "causal": counting,
        "whole": {*tables, *vectors, "t5"} - {"transformer_xl"},  # its sines take any distance
        "untold": {*counting, "none", "windows_none", "rope+drop", "randomised"},
        "moved": {*tables, "sinusoidal"},
        "stale": {"rope+dynamic-ntk"},
        "scores": numbers,
        "products": {*vectors, "cope"},
        "memory": {key for key, each in known.items() if each.memory >= 0.5},
        "training": {"rope+base", "rope+drop"},
    }
    assert {key for key, each in known.items() if each.kernel == 1} == numbers
    for key, d, length in product(("fire", "cope", "deberta", "pope"), (16, 128), (64, 777)):
        counted = choosing.parameters(key, d, length)
        assert counted == sum(
            a * b for a, b in zip(known[key].parameters, choosing.basis(d, length), strict=True)
        )


def test_needs_that_make_no_sense_are_refused():
    for wrong in ({"what": "poem"}, {"keep": "some"}, {"context": 0}, {"head_dim": 100}):
        with pytest.raises(ValueError, match=next(iter(wrong))):
            Needs(**wrong)


def test_every_method_that_is_ranked_has_a_sentence_on_the_page():
    page = (ROOT / "book/19_choosing.ipynb").read_text(encoding="utf-8")
    told = page.partition('<a id=\\"every-name\\"></a>')[2].partition("Figure 19.1 begins")[0]
    missing = [fact.name for fact in choosing.facts().values()
               if not all(part in told for part in fact.name.split(" + "))]  # fmt: skip
    assert missing == []
