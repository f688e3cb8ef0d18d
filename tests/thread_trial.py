"""The doctor's trial on the faults of thread_faults.py: each, and its corrected twin, is examined.

Alone, and held to what a user has beside it: the configuration, or, where no configuration tells
it, the twin. `python tests/thread_trial.py` writes what came out into thread_trial.csv, which
test_thread_faults.py holds the doctor to. thread_trial_first.csv is how the first run came out,
before anything was mended.
"""

from __future__ import annotations

import csv
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import torch
from thread_faults import CASES

from posdoctor import compare, diagnose
from posdoctor.findings import FAULT, UNSURE
from posdoctor.report import Report
from posdoctor.subjects import InputError
from posdoctor.ways import axes_first, of_flat, of_lengths, of_one

TABLE = Path(__file__).with_name("thread_trial.csv")
BESIDE_TWIN = ("bias", "code", "ids", "model")  # no configuration says what these should be


def subject_of(case: dict[str, Any], thing: Any) -> tuple[Any, dict[str, Any]]:
    """Return a thing in a form that the doctor takes, and the options that go with it."""
    inputs, kind, config = case["make_inputs"](), case["kind"], case["config"]
    if kind == "function":
        shape = {"head_dim": inputs[0].shape[-1], "heads": inputs[0].shape[1]}
        axes = inputs[2].shape[0] if "(3, B, L)" in case["signature"] else 1
        return (axes_first(thing) if axes > 1 else thing), shape | {"axes": axes}
    if kind == "one":
        x, positions = inputs
        shape = {"head_dim": x.shape[-1], "heads": x.shape[1]}
        return of_one(thing), shape | {"axes": positions.shape[2] if positions.ndim == 3 else 1}
    if kind == "flat":
        width = config.get("head_dim", config.get("n_embd", 256) // config.get("n_head", 4))
        return of_flat(pair_of(thing), inputs[0].shape[-1] // width, width), {}
    if kind == "bias":
        return (of_lengths(thing) if "n_q" in case["signature"] else thing), {"kind": "bias"}
    return thing, {"code": {"kind": "absolute"}, "ids": {"kind": "position_ids"}}.get(kind, {})


def pair_of(function: Callable[..., Any]) -> Callable[..., Any]:
    """Return the function of queries and keys of one that takes one of them."""
    return lambda q, k, positions: (function(q, positions), function(k, positions))


def examined(run: Callable[[], Report]) -> tuple[str, str]:
    """Return the names of the faults and of the doubts; or why the thing was refused."""
    torch.manual_seed(0)
    try:
        report = run()
    except InputError as error:
        return f"refused: {str(error).splitlines()[0][:100]}", ""
    except Exception as error:  # whatever it is, it is no verdict
        return f"broke off: {type(error).__name__}: {str(error).splitlines()[0][:100]}", ""
    return tuple("; ".join(dict.fromkeys(report.names(level))) for level in (FAULT, UNSURE))


def held(case: dict[str, Any], thing: Any) -> Report | None:
    """Return the report on a thing beside what it should be; None where nothing is beside it."""
    if case["kind"] == "config":
        return None
    subject, options = subject_of(case, thing)
    if case["kind"] == "model":
        return compare(subject, case["make_twin"]())
    if case["kind"] in BESIDE_TWIN:
        expect = subject_of(case, case["make_twin"]())[0]
        return diagnose(subject, expect=expect, **options)
    return diagnose(subject, expect=case["config"], **options)


def row(case: dict[str, Any]) -> dict[str, str]:
    """Return what the doctor says of a fault and of its twin."""
    found = {name: case[name] for name in ("id", "kind", "part", "thread", "what")}
    for name in ("faulty", "twin"):
        thing = case[f"make_{name}"]
        for how in ("alone", "held"):

            def run(how: str = how, thing: Any = thing) -> Report:
                made = thing()
                if how == "held":
                    return held(case, made) or diagnose(made)
                subject, options = (
                    subject_of(case, made) if case["kind"] != "config" else (made, {})
                )
                return diagnose(subject, **options)

            found[f"{name} {how}"], found[f"{name} {how}, doubts"] = examined(run)
    return found


def rows() -> Iterator[dict[str, str]]:
    """Yield a row for each case."""
    for case in CASES:
        yield row(case)


if __name__ == "__main__":
    begun, found = time.perf_counter(), list(rows())
    with TABLE.open("w", encoding="utf-8", newline="") as file:
        writer = csv.DictWriter(file, list(found[0]), lineterminator="\n")
        writer.writeheader()
        writer.writerows(found)
    print(f"{len(found)} rows, {time.perf_counter() - begun:.0f} seconds")
