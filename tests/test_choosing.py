"""The chooser of chapter 19 says what the shipped rows say, in every setting."""

from __future__ import annotations

import csv
from collections import defaultdict
from dataclasses import replace
from itertools import chain, pairwise, product

import pytest

from bakeoff import choosing
from bakeoff.choosing import FITS, OUT, UNSURE, Needs
from bakeoff.run import SHIPPED
from tools import ROOT

TRAINED = 512
WANTED = (0.5, 1, 1.25, 1.5, 2, 4, 6, 16, 20)
TASKS = {"text": ("language", 64), "marker": ("content", 32), "n-back": ("offset", 32)}
# What a reason against a row may rest on beside the measurements.
MAY = {
    "axes": lambda needs: needs.what == "image",
    "sides": lambda needs: needs.what == "both",
    "causal": lambda needs: needs.what != "text",
    "moved": lambda needs: needs.cache == "sliding",
    "stale": lambda needs: needs.cache != "none",
    "parameters": lambda needs: needs.parameters < float("inf"),
    "scores": lambda needs: needs.kernel == "plain",
    "products": lambda needs: needs.kernel != "any",
    "memory": lambda needs: needs.small,
}


def measured():
    """Return the seeds of every row: (keep, after training on) -> variant -> multiple -> values.

    Losses stand above the worst of RoPE at the trained length, after the same training.
    """
    found = defaultdict(lambda: defaultdict(lambda: defaultdict(list)))
    short = ((SHIPPED / f"{name}.csv").open() for name in ("small", "parts"))
    for row in chain.from_iterable(map(csv.DictReader, short)):
        if row["scale"] != "small" or row["task"] not in TASKS or row["value"] == "":
            continue
        keep, length = TASKS[row["task"]]
        kind, _, after = row["metric"].partition("-")
        if kind in ("nats", "accuracy") and after in ("", "tuned-200", "recalibrated-200"):
            at = int(row["length"]) / length
            found[keep, bool(after)][row["variant"]][at].append(float(row["value"]))
    longer = defaultdict(lambda: defaultdict(list))
    for row in csv.DictReader((SHIPPED / "long.csv").open()):
        if row["scale"] == "long" and row["metric"] in ("accuracy", "nats") and row["value"] != "":
            at = int(row["length"]) / TASKS[row["task"]][1]
            longer[row["task"], row["variant"]][at].append(float(row["value"]))
    home, long = max(found["language", False]["rope"][1]), max(longer["text", "rope"][1])
    for after, seeds in product((False, True), choosing.ROWS):
        for values in found["language", after].get(seeds, {}).values():
            values[:] = [round(value - home, 5) for value in values]
    for (task, variant), seeds in longer.items():
        if all(len(values) == 5 for values in seeds.values()):
            for values in seeds.values() if task == "text" else ():
                values[:] = [round(value - long, 5) for value in values]
            found[TASKS[task][0], False][variant] = seeds
    return found


def worst_of(seeds, wanted, keep):
    """Return the worst seed at the first length that is long enough, or None."""
    at = [multiple for multiple in sorted(seeds) if multiple >= wanted]
    return None if not at else (max if keep == "language" else min)(seeds[at[0]])


def better(a, b, keep):
    return a < b if keep == "language" else a > b


@pytest.mark.parametrize("what", choosing.WHAT)
@pytest.mark.parametrize("keep", ["all", *choosing.KEEP])
def test_no_setting_hides_a_row_that_clears_the_bar_or_shows_one_that_does_not(keep, what):
    rows = measured()
    asked = list(choosing.KEEP) if keep == "all" else [keep]
    settings = product(
        WANTED, choosing.CACHES, choosing.KERNELS, (0, 1000, float("inf")), (False, True), (0, 1)
    )
    for wanted, cache, kernel, most, small, tuned in settings:
        needs = Needs(
            what, keep, TRAINED, int(TRAINED * wanted), cache, most,
            kernel=kernel, small=small, tuned=bool(tuned),
        )  # fmt: skip
        found = choosing.choose(needs)
        clears = {task: {} for task in asked}
        for task, after in product(asked, range(1 + (tuned and wanted > 1))):
            for key, seeds in rows[task, bool(after)].items():
                worst = worst_of(seeds, wanted, task)
                if worst is not None and better(worst, 0.1 if task == "language" else 0.9, task):
                    clears[task][key] = worst  # what was measured after training on, if there
        for key in set.intersection(*map(set, clears.values())):
            if wanted <= 1 and "+" in key:
                continue  # the same model as without the rule
            status, shown, reasons = found[key]
            assert shown == clears[asked[0]][key], (key, needs)
            if status == OUT:
                assert reasons and all(MAY[kind](needs) for kind, *_ in reasons), (key, needs)
                counts = [count for kind, count, _ in reasons if kind == "parameters"]
                assert all(count > most for count in counts)
            else:
                assert status == (FITS if what == "text" else UNSURE), (key, needs)
        fit = [key for key, each in found.items() if each.status == FITS]
        assert all(set(fit) <= set(each) for each in clears.values()), needs
        assert all(not better(found[b][1], found[a][1], asked[0]) for a, b in pairwise(fit))


def test_every_way_in_which_a_model_was_measured_can_be_chosen():
    named = {key for found in measured().values() for key in found}
    assert named <= set(choosing.ROWS)


def test_training_on_lets_rope_fit_as_far_as_it_was_measured():
    for keep in ("all", *choosing.KEEP):
        plain = Needs(keep=keep, trained=4096, used=16384)
        assert "rope" not in choosing.fitting(plain)
        assert "rope" in choosing.fitting(replace(plain, tuned=True))
        farther = choosing.choose(replace(plain, tuned=True, used=32768))["rope"]
        assert farther.status == UNSURE and farther.reasons[0][0] == "beyond"


def test_what_the_code_says_of_each_method_is_so():
    known = choosing.facts()
    assert {k for k in known if not known[k].sides} == {
        "none", "alibi", "kerple", "fire", "windows_none", "rope+drop",
    }  # fmt: skip
    absolute = {"sinusoidal", "learned", *choosing.LEARNED, "fire", "temperature"}
    assert {key for key in known if not known[key].relative} == absolute
    levels = {key: each.kernel for key, each in known.items() if each.kernel}
    assert levels == {
        "t5": 1, "alibi": 1, "kerple": 1, "fire": 1, "forgetting": 1,
        "shaw": 2, "transformer_xl": 2, "deberta": 2, "cope": 2,
    }  # fmt: skip
    assert [key for key in known if known[key].stale] == ["rope+dynamic-ntk"]
    for key, d, length in product(("fire", "cope", "deberta", "pope"), (16, 128), (64, 777)):
        counted = choosing.parameters(key, d, length)
        assert counted == sum(
            a * b for a, b in zip(known[key].parameters, choosing.basis(d, length), strict=True)
        )


def test_needs_that_make_no_sense_are_refused():
    for wrong in ({"what": "poem"}, {"keep": "some"}, {"used": 0}, {"head_dim": 100}):
        with pytest.raises(ValueError, match=next(iter(wrong))):
            Needs(**wrong)


def test_every_method_that_is_ranked_has_a_sentence_on_the_page():
    page = (ROOT / "book/19_choosing.ipynb").read_text(encoding="utf-8")
    told = page.partition('<a id=\\"every-name\\"></a>')[2].partition("Figure 19.1 begins")[0]
    missing = [fact.name for fact in choosing.facts().values()
               if not all(part in told for part in fact.name.split(" + "))]  # fmt: skip
    assert missing == []
