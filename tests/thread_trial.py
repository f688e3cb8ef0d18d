"""The doctor's trial on the faults of thread_faults.py: each, and its corrected twin, is examined.

Alone, and held to what a user has beside it: the configuration, or, where no configuration tells
it, the twin. `python tests/thread_trial.py` writes what came out into thread_trial.csv, which
test_thread_faults.py holds the doctor to. thread_trial_first.csv is how the first run came out,
before anything was mended.
"""

from __future__ import annotations

import csv
import time
from collections.abc import Callable
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
    kind, config = case["kind"], case["config"]
    if kind == "config":
        return thing, {}
    inputs = case["make_inputs"]()
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
        return of_flat(of_one(thing), inputs[0].shape[-1] // width, width), {}
    if kind == "bias":
        return (of_lengths(thing) if "n_q" in case["signature"] else thing), {"kind": "bias"}
    return thing, {"code": {"kind": "absolute"}, "ids": {"kind": "position_ids"}}.get(kind, {})


def alone(case: dict[str, Any], thing: Any) -> Report:
    """Return the report on a thing by itself."""
    subject, options = subject_of(case, thing)
    return diagnose(subject, **options)


def held(case: dict[str, Any], thing: Any) -> Report:
    """Return the report on a thing beside what it should be."""
    subject, options = subject_of(case, thing)
    if case["kind"] == "model":
        return compare(subject, case["make_twin"]())
    if case["kind"] in BESIDE_TWIN:
        expect = subject_of(case, case["make_twin"]())[0]
        return diagnose(subject, expect=expect, **options)
    return diagnose(subject, expect=case["config"], **options)


Examination = Callable[[dict[str, Any], Any], Report]


def examined(
    examine: Examination, case: dict[str, Any], make: Callable[[], Any]
) -> tuple[str, str]:
    """Return the names of the faults and of the doubts; or why the thing was refused."""
    torch.manual_seed(0)
    try:
        report = examine(case, make())
    except InputError as error:
        return f"refused: {str(error).splitlines()[0][:100]}", ""
    faults, doubts = ("; ".join(dict.fromkeys(report.names(level))) for level in (FAULT, UNSURE))
    return faults, doubts


def row(case: dict[str, Any]) -> dict[str, str]:
    """Return what the doctor says of a fault and of its twin; beside a file stands nothing."""
    found = {name: case[name] for name in ("id", "kind", "part", "thread", "what")}
    for name in ("faulty", "twin"):
        make = case[f"make_{name}"]
        said = {"alone": examined(alone, case, make)}
        said["held"] = said["alone"] if case["kind"] == "config" else examined(held, case, make)
        for how, words in said.items():
            found[f"{name} {how}"], found[f"{name} {how}, doubts"] = words
    return found


if __name__ == "__main__":
    begun, found = time.perf_counter(), [row(case) for case in CASES]
    with TABLE.open("w", encoding="utf-8", newline="") as file:
        writer = csv.DictWriter(file, list(found[0]), lineterminator="\n")
        writer.writeheader()
        writer.writerows(found)
    print(f"{len(found)} rows, {time.perf_counter() - begun:.0f} seconds")
