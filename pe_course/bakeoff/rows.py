"""Rows of the comparison: the shipped tables, the curves in them, and how a variant is written.

Importing this, or what judges rows, loads neither PyTorch nor Matplotlib.
"""

from __future__ import annotations

import csv
import io
import math
import statistics
from collections import defaultdict
from collections.abc import Sequence
from functools import cache
from importlib.resources import files
from importlib.resources.abc import Traversable

Row = dict[str, object]
Curve = dict[int, list[float]]  # length -> one value per seed

SHIPPED = files(__package__) / "data"  # a CSV for each scale and each finished study
PRINTED = ("length", "trained", "perplexity")
# Methods of finished studies, which stand in rows and are trained no more: name and colour.
FINISHED = {
    # DeBERTa with one of its terms, and Shaw without the values' vectors.
    "deberta_c2p": ("DeBERTa without p2c", "#9575cd"),
    "deberta_p2c": ("DeBERTa without c2p", "#4527a0"),
    "shaw_keys": ("Shaw on keys alone", "#f48fb1"),
    # A sink or a gate for heads that find nothing, and as many weights elsewhere as the gates have.
    "rope_sink": ("RoPE with a sink", "#ef6c00"),
    "rope_gate": ("RoPE with a gate", "#00695c"),
    "rope_wider": ("RoPE (wider)", "#78909c"),
}


def read_rows(path: Traversable) -> list[Row]:
    """Return the rows of a CSV, or none if there is no such file."""
    if not path.is_file():
        return []
    return list(csv.DictReader(io.StringIO(path.read_text(encoding="utf-8"))))


def curves(rows: Sequence[Row], task: str, metric: str, scale: str = "small") -> dict[str, Curve]:
    """Return the values of every seed, by variant and length; refused lengths are left out."""
    found: dict[str, Curve] = defaultdict(lambda: defaultdict(list))
    for line in rows:
        kind = (line["scale"], line["task"], line["metric"])
        if kind == (scale, task, metric) and line["value"] != "":
            found[str(line["variant"])][int(str(line["length"]))].append(float(str(line["value"])))
    return {variant: dict(sorted(curve.items())) for variant, curve in found.items()}


def printed_rises(rows: Sequence[Row], source: str) -> dict[str, dict[float, float]]:
    """Return by method how a paper's loss rises, in nats, over multiples of the trained length."""
    nats: dict[str, dict[float, float]] = defaultdict(dict)
    for line in rows:
        if line["source"] == source:
            length, trained, perplexity = (float(str(line[k])) for k in PRINTED)
            nats[str(line["method"])][length / trained] = math.log(perplexity)
    return {v: {x: y - curve[1] for x, y in curve.items()} for v, curve in nats.items()}


def median(values: Sequence[float]) -> float:
    """Return the middle value, which one seed that went another way does not move."""
    return statistics.median(values)


def robust(
    found: dict[str, Curve], better: str, worse: str, length: int, lower_is_better: bool
) -> bool:
    """Return whether the worst seed of one variant is better than the best of another."""
    ours, theirs = found[better][length], found[worse][length]
    return max(ours) < min(theirs) if lower_is_better else min(ours) > max(theirs)


@cache
def method_names() -> dict[str, str]:
    """Return how each method is written, with those of finished studies last."""
    from pe_course.bakeoff.recipes import TRAINABLE  # loads PyTorch

    trained = {key: method.name for key, method in TRAINABLE.items()}
    return trained | {key: name for key, (name, _) in FINISHED.items()}


def name(variant: str) -> str:
    """Return how a variant is written in a legend."""
    method, _, extension = variant.partition("+")
    written = {"pi": "PI", "ntk": "NTK", "dynamic-ntk": "dynamic NTK", "yarn": "YaRN"}
    written |= {"yarn-no-factor": "YaRN without its factor", "factor": "YaRN's factor alone"}
    written |= {"llama3-factor": "Llama 3.1 and YaRN's factor", "cache": "rolling cache"}
    written |= {"llama3": "Llama 3.1", "base": "larger base", "drop": "dropped (DroPE)"}
    if not extension:
        return method_names()[method]
    if extension.startswith("cache-"):
        return f"{method_names()[method]} + rolling cache ({extension.removeprefix('cache-')} ×)"
    return f"{method_names()[method]} + {written.get(extension, extension)}"
