"""The protocol of the long comparison, committed before its first row.

Three questions are kept apart. *Can* a method do a task at all is answered by a construction or a
proof, never by a training. *Does it learn* the task is answered here: every method takes the same
number of steps, none stops early, and each has the best of three learning rates. *Does it keep*
what it has learned, past the training length, is asked only of methods that have learned it.

Rules:

- A method's rate is chosen on seed 11, which counts for nothing else, at the training length
  alone: the best final accuracy (or loss), then the lowest training loss, then the lowest rate.
- Five further seeds. Published is a method that has all of them.
- Added once the rows had been read: a method that some seed had not taught 3-back takes a fourth
  rate, above the other three, by the same rule. (The seeds of the rate that it then left stand in
  the rows as "long-also".)
- A seed has *learned* with an accuracy of at least 0.99 after the last step. A method whose seeds
  have not all learned is *still rising* if the median seed gained at least 0.005 in the last
  quarter of the steps, else *flat within* so many steps. Of ability nothing is said.
- The range of five seeds contains the method's median with a probability of 15/16: it is the
  interval that is printed.
- An ordering holds if the worst of five seeds of one method is better than the best of five of the
  other. Chance alone gives that, in a direction named beforehand, once in 252. At most twelve
  orderings are asked of a task, so that a false one among them is less likely than 1 in 20.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from itertools import product
from typing import NamedTuple

from pe_course.bakeoff.grid import Cell, grid
from pe_course.bakeoff.rows import Curve, Row, curves, median

RATES, HIGHER = (1e-3, 3e-3, 1e-2), 3e-2
RATE_SEED, SEEDS = 11, range(5)
LEARNED, RISING, KEPT = 0.99, 0.005, 0.9
BY_CHANCE = 1 / 252  # ten values, split in two fives, one above the other

# In the order of their worth: a group gets all of its rows before the next one begins.
GROUPS = (
    ("kerple", "alibi"),
    ("t5", "rope"),
    ("forgetting", "hybrid"),
    ("none", "fire"),
    ("p_rope_75", "pope", "cope"),
    ("shaw", "sinusoidal", "deberta"),
    ("transformer_xl", "learned", "temperature", "randomised"),
    ("rope_turns",),  # added when the others were known
)
LOWER_IS_BETTER = ("text",)


class Ordering(NamedTuple):
    """Two methods and where the first is expected to be better than the second.

    Attributes:
        better: a variant, as in the rows.
        worse: another.
        multiple: of the training length.
        after: steps, at the training length alone; 0 for the end of the training.
    """

    better: str
    worse: str
    multiple: float
    after: int = 0


ORDERINGS: dict[str, dict[str, Ordering]] = {
    "n-back": {
        "bends": Ordering("kerple", "alibi", 1, 1000),
        "gate": Ordering("forgetting", "alibi", 1, 1000),
        "rotary-sooner": Ordering("rope", "kerple", 1, 400),
        "mask-alone": Ordering("alibi", "none", 1),
        "penalty-far": Ordering("kerple", "t5", 16),
        "linear-far": Ordering("alibi", "rope", 16),
        "gate-far": Ordering("forgetting", "rope", 4),
        "windows-far": Ordering("hybrid", "rope", 16),
        "buckets-far": Ordering("t5", "fire", 2),
        "stopped-pairs": Ordering("p_rope_75", "rope", 2),
        "angles-apart": Ordering("pope", "rope", 2),
        "counted": Ordering("cope", "rope", 4),
    },
    "marker": {
        "windows-far": Ordering("hybrid", "rope", 16),
        "linear-far": Ordering("alibi", "rope", 16),
        "buckets-far": Ordering("alibi", "t5", 4),
        "gate-far": Ordering("forgetting", "rope", 16),
        "mask-alone": Ordering("none", "rope", 2),
        "stopped-pairs": Ordering("p_rope_75", "rope", 2),
        "angles-apart": Ordering("pope", "rope", 2),
        "scaled": Ordering("temperature", "none", 4),
        "drawn": Ordering("randomised", "rope", 4),
    },
    "text": {
        "windows-far": Ordering("hybrid", "rope", 16),
        "linear-far": Ordering("alibi", "t5", 16),
        "bends": Ordering("kerple", "alibi", 1),
        "gate-far": Ordering("forgetting", "rope", 4),
        "stopped-pairs": Ordering("p_rope_75", "rope", 4),
        "angles-apart": Ordering("pope", "rope", 1),
        "angles-far": Ordering("pope", "rope", 4),
        "scaled": Ordering("temperature", "none", 1),
        "counted": Ordering("cope", "shaw", 1),
    },
}
assert all(len(asked) * BY_CHANCE < 0.05 for asked in ORDERINGS.values())


# What is run --------------------------------------------------------------------------------------


def rate_cells(task: str, methods: Sequence[str]) -> list[Cell]:
    """Return a cell for each method and rate, measured at the training length alone."""
    return [
        replace(cell, scale=f"long-{rate:g}", lr=rate, multiples=(1,))
        for cell, rate in product(grid("long", [task], methods, [RATE_SEED]), RATES)
    ]


def higher_cells(rows: Sequence[Row], task: str, methods: Sequence[str]) -> list[Cell]:
    """Return a cell at the fourth rate for each method that some seed had not taught the task."""
    ends = {} if task in LOWER_IS_BETTER else measured(rows, task)
    cells = grid("long", [task], [m for m in methods if m in ends], [RATE_SEED])
    return [
        replace(cell, scale=f"long-{HIGHER:g}", lr=HIGHER, multiples=(1,))
        for cell in cells
        if min(ends[cell.method][cell.train_length]) < LEARNED
    ]


def chosen_rate(rows: Sequence[Row], task: str, method: str) -> float | None:
    """Return the rate that the rule chooses, or None while a row for it is missing."""
    metric, sign = ("nats", 1) if task in LOWER_IS_BETTER else ("accuracy", -1)
    wanted = {(f"long-{rate:g}", task, method, method, metric) for rate in (*RATES, HIGHER)}
    found = {
        float(str(line["lr"])): (sign * float(str(line["value"])), float(str(line["final_loss"])))
        for line in rows
        if (line["scale"], line["task"], line["method"], line["variant"], line["metric"]) in wanted
    }
    return min(found, key=lambda rate: (found[rate], rate)) if found.keys() >= set(RATES) else None


def seed_cells(rows: Sequence[Row], task: str, methods: Sequence[str]) -> list[Cell]:
    """Return the cells of the five seeds, seed by seed, of methods whose rate is chosen."""
    chosen = {method: chosen_rate(rows, task, method) for method in methods}
    rates = {method: rate for method, rate in chosen.items() if rate}
    return [replace(cell, lr=rates[cell.method]) for cell in grid("long", [task], [*rates], SEEDS)]


# What is said -------------------------------------------------------------------------------------


def measured(
    rows: Sequence[Row], task: str, after: int = 0, scale: str = "long"
) -> dict[str, Curve]:
    """Return the values of the seeds by variant and length, of those that have all five seeds."""
    metric = "nats" if task in LOWER_IS_BETTER else "accuracy"
    return complete(rows, task, f"{metric}-after-{after}" if after else metric, scale)


def complete(rows: Sequence[Row], task: str, metric: str, scale: str) -> dict[str, Curve]:
    """Return the values of a metric by variant and length, of those that have all five seeds."""
    whole = {
        variant: {n: values for n, values in curve.items() if len(values) == len(SEEDS)}
        for variant, curve in curves(rows, task, metric, scale).items()
    }
    return {variant: curve for variant, curve in whole.items() if curve}


def class_of(rows: Sequence[Row], task: str, method: str) -> str:
    """Return "learned", "learned by some seeds", "still rising" or "flat", by the rules above.

    Raises:
        KeyError: if the method has not all seeds.
    """
    (cell,) = grid("long", [task], [method], [0])
    three_quarters = 3 * cell.steps // 4
    (before, end) = (
        measured(rows, task, after)[method][cell.train_length] for after in (three_quarters, 0)
    )
    if min(end) >= LEARNED:
        return "learned"
    if max(end) >= LEARNED:
        return "learned by some seeds"
    gained = [late - early for early, late in zip(before, end, strict=True)]
    return "still rising" if median(gained) >= RISING else "flat"


def kept_to(rows: Sequence[Row], task: str, method: str) -> float | None:
    """Return the largest multiple up to which every seed keeps 0.9; None if not all learned."""
    if class_of(rows, task, method) != "learned":
        return None
    curve = measured(rows, task)[method]
    (cell,) = grid("long", [task], [method], [0])
    kept = 1.0
    for multiple, length in zip(cell.multiples, cell.lengths, strict=True):
        if length not in curve or min(curve[length]) <= KEPT:
            break
        kept = multiple
    return kept


def values_of(
    rows: Sequence[Row], task: str, asked: Ordering
) -> tuple[list[float], list[float]] | None:
    """Return the five values of both sides of an ordering; None while one is missing."""
    found = measured(rows, task, asked.after)
    (cell,) = grid("long", [task], ["rope"], [0])
    length = round(asked.multiple * cell.train_length)
    sides = [found.get(variant, {}).get(length) for variant in asked[:2]]
    return (sides[0], sides[1]) if sides[0] and sides[1] else None


def verdict(rows: Sequence[Row], task: str, asked: Ordering) -> str | None:
    """Return "holds", "the other way round" or "open"; None while rows are missing."""
    values = values_of(rows, task, asked)
    return judge(*values, task) if values else None


def judge(better: Sequence[float], worse: Sequence[float], task: str) -> str:
    """Return what five values, expected to be better than five others, say of an ordering."""
    if task in LOWER_IS_BETTER:
        better, worse = worse, better
    if min(better) > max(worse):
        return "holds"
    return "the other way round" if max(better) < min(worse) else "open"
