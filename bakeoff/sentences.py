"""Sentences that compare methods, each said once, here, and quoted wherever it is needed.

Every sentence is computed from shipped rows and raises where they no longer say it. What three
seeds at one rate and one number of steps show stands as such: a budget is not an ability.

    from bakeoff.sentences import quote
    say(quote("windows-keep", "offset-400"))

Keys with a task are sentences of the long comparison (`bakeoff.protocol`): of a method whether it
learned the task and how far it keeps it; of an ordering whether it holds. There are none for rows
that are not complete.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache, partial

from bakeoff import protocol
from bakeoff.cells import Row
from bakeoff.grid import SIZES, grid
from bakeoff.plots import Curve, curves, median, name
from bakeoff.recipes import NAMES
from bakeoff.run import SHIPPED, read_rows
from pe_lib.errors import require_choice

METRICS = {"text": "nats", "marker": "accuracy", "n-back": "accuracy"}


def quote(*keys: str) -> str:
    """Return the sentences of these keys, one after the other.

    Raises:
        ValueError: if there is no such key, or rows for it are missing.
        AssertionError: if the rows no longer say it.
    """
    known = SAID | long_sentences()
    return " ".join(known[require_choice("key", key, tuple(known))]() for key in keys)


# Reading the rows ---------------------------------------------------------------------------------


@cache
def found(task: str) -> dict[str, Curve]:
    """Return the values of every seed by variant and length, of the small models."""
    return curves(read_rows(SHIPPED / "small.csv"), task, METRICS[task])


def at(task: str, variant: str, multiple: float) -> list[float]:
    """Return the values of all seeds at a multiple of the training length."""
    (length,) = {c.train_length for c in SIZES if (c.scale, c.task) == ("small", task)}
    return found(task)[variant][round(multiple * length)]


def rise(variant: str, multiple: float) -> list[float]:
    """Return by how many nats the loss on text is above that at the training length, by seed."""
    pairs = zip(at("text", variant, multiple), at("text", variant, 1), strict=True)
    return [far - near for far, near in pairs]


def seeds(values: list[float]) -> str:
    """Return all values, as in a sentence."""
    return ", ".join(f"{value:.2f}" for value in sorted(values))


def names(variants: tuple[str, ...]) -> str:
    """Return the names of variants, as in a sentence: a name with a comma goes without it."""
    *first, last = (name(variant).replace(",", "") for variant in variants)
    return f"{', '.join(first)} and {last}" if first else last


def require(rows_say_it: bool) -> None:
    """Raise if the rows do not say what a sentence is about to say."""
    if not rows_say_it:
        raise AssertionError("the shipped rows no longer say this sentence; mend it")


# Three seeds, one rate ----------------------------------------------------------------------------

FLAT = ("transformer_xl", "deberta", "shaw", "alibi", "kerple", "forgetting", "hybrid")
BROKEN = ("sinusoidal", "learned+clamp", "rope")
CLIMBED = ("t5", "fire", "none")
UNDONE = ("alibi", "kerple", "fire", "forgetting")  # of 3-back, after the steps of the small scale


def windows_keep() -> str:
    """RoPE in windows beside a layer without positions."""
    recall, offset = at("marker", "hybrid", 16), at("n-back", "hybrid", 16)
    least = 0.99
    require(min(*recall, *offset) > least and max(rise("hybrid", 16)) < 0.1)
    return (
        "RoPE in windows then none kept recall and 3-back at 16 times the training length in"
        f" each of three seeds (never below {least}), and its loss on text rose"
        f" by at most {max(rise('hybrid', 16)):.2f} nats."
    )


def text_flat() -> str:
    """Losses on text that stay, climb or break."""
    require(max(max(rise(v, 16)) for v in FLAT) < 0.15)
    require(all(min(rise(v, 16)) > 0.3 and max(rise(v, 16)) < 1 for v in CLIMBED))
    require(min(min(rise(v, 16)) for v in BROKEN) > 1.2)
    most, least = max(max(rise(v, 16)) for v in FLAT), min(min(rise(v, 16)) for v in BROKEN)
    return (
        "From 64 to 1,024 characters, in three seeds of a small model, the loss of"
        f" {names(FLAT)} rose by less than {most + 0.005:.2f} nats; that of {names(CLIMBED)}"
        f" climbed by less than one; and that of {names(BROKEN)} by more than {least - 0.05:.1f}."
    )


def relative_split() -> str:
    """Relative encodings do not behave alike on longer texts."""
    require(max(max(rise(v, 16)) for v in FLAT[:5]) < 0.15)
    require(min(rise("t5", 16)) > 0.5 and min(rise("rope", 2)) > 0.5)
    return (
        f"Of the relative encodings {names(FLAT[:5])} kept their loss on text at 16 times the"
        f" training length; T5's had risen by {median(rise('t5', 16)):.2f} nats there, and RoPE's"
        f" by {median(rise('rope', 2)):.2f} at twice the length."
    )


def offset_400() -> str:
    """A budget, not an ability: 3-back after 400 steps at one rate."""
    require(max(max(at("n-back", v, 1)) for v in UNDONE) < 0.7)
    listed = "; ".join(f"{name(v)} {seeds(at('n-back', v, 1))}" for v in UNDONE)
    return (
        "Within 400 steps, all at one learning rate, these had not learned 3-back, not even at the"
        f" training length (three seeds each): {listed}. That is how far the training got, not"
        " what the methods can do."
    )


def offset_kept() -> str:
    """Who still has the exact offset at sixteen times the length."""
    kept = ("deberta", "transformer_xl", "hybrid")
    require(min(min(at("n-back", v, 16)) for v in kept) > 0.95)
    require(min(at("n-back", "shaw", 16)) < 0.5 < 0.9 < median(at("n-back", "shaw", 16)))
    require(max(at("n-back", "rope", 4)) < 0.1 and min(at("n-back", "cope", 8)) > 0.95)
    return (
        f"Of those that had learned 3-back, {names(kept)} kept it at 16 times the length in every"
        f" seed, Shaw in two of three ({seeds(at('n-back', 'shaw', 16))}), CoPE to eight times;"
        " RoPE was at chance at four."
    )


def recall_kept() -> str:
    """Who still recalls at sixteen times the length."""
    kept = ("alibi", "deberta", "hybrid")
    require(min(min(at("marker", v, 16)) for v in kept) > 0.95)
    require(min(at("marker", "kerple", 16)) < 0.9 < median(at("marker", "kerple", 16)))
    require(max(at("marker", "rope", 4)) < 0.2 and max(at("marker", "shaw", 16)) < 0.6)
    return (
        f"Recall at 16 times the length survived with {names(kept)} in every seed, with KERPLE in"
        f" two of three ({seeds(at('marker', 'kerple', 16))}), with Transformer-XL and forgetting"
        f" in part ({seeds(at('marker', 'transformer_xl', 16))};"
        f" {seeds(at('marker', 'forgetting', 16))}); RoPE had lost it at four times."
    )


SAID: dict[str, Callable[[], str]] = {
    "windows-keep": windows_keep,
    "text-flat": text_flat,
    "relative-split": relative_split,
    "offset-400": offset_400,
    "offset-kept": offset_kept,
    "recall-kept": recall_kept,
}


# Five seeds, a rate for each, the same steps ------------------------------------------------------

TASKS = {"n-back": "3-back", "marker": "recall"}


@cache
def long_sentences() -> dict[str, Callable[[], str]]:
    """Return the sentences of the long comparison that have all their rows."""
    path = SHIPPED / "long.csv"
    return long_sentences_of(read_rows(path)) if path.exists() else {}


def long_sentences_of(rows: list[Row]) -> dict[str, Callable[[], str]]:
    """Return the sentences that these rows are complete for."""
    found: dict[str, Callable[[], str]] = {}
    for task, orderings in protocol.ORDERINGS.items():
        for method in protocol.measured(rows, task) if task in TASKS else ():
            if method in NAMES:  # not RoPE stretched
                found[f"{task}/{method}"] = partial(of_method, rows, task, method)
        for key, asked in orderings.items():
            if protocol.verdict(rows, task, asked):
                found[f"{task}/{key}"] = partial(of_ordering, rows, task, asked)
    return found


def span(values: list[float]) -> str:
    """Return the range of five seeds, which holds the median with a probability of 15/16."""
    low, high = f"{min(values):.2f}", f"{max(values):.2f}"
    return low if low == high else f"{low} to {high}"


def of_method(rows: list[Row], task: str, method: str) -> str:
    """Return whether a method learned a task within the steps, and how far it keeps it."""
    (cell,) = grid("long", [task], [method], [0])
    end = protocol.measured(rows, task)[method][cell.train_length]
    steps, title, what = f"{cell.steps:,} steps", name(method), TASKS[task]
    kind = protocol.class_of(rows, task, method)
    if kind == "learned":
        kept = protocol.kept_to(rows, task, method)
        where = f"keeps it to {kept:g} times the length" if kept != 1 else "keeps it no further"
        return f"{title} learned {what} within {steps} in each of five seeds and {where}."
    if kind == "learned by some seeds":
        count = sum(value >= protocol.LEARNED for value in end)
        return f"{title} learned {what} within {steps} in {count} of five seeds ({span(end)})."
    still = "and was still rising" if kind == "still rising" else "and had stopped rising"
    return f"{title} had not learned {what} within {steps} ({span(end)}) {still}."


def of_ordering(rows: list[Row], task: str, asked: protocol.Ordering) -> str:
    """Return whether an ordering that was named beforehand holds."""
    values = protocol.values_of(rows, task, asked)
    assert values is not None
    where = f"at {asked.multiple:g} times the training length" if asked.multiple > 1 else ""
    where = f"after {asked.after:,} steps" if asked.after else where or "at the training length"
    both = f"{name(asked.better)} {span(values[0])}, {name(asked.worse)} {span(values[1])}"
    said = {
        "holds": f"{name(asked.better)} is ahead of {name(asked.worse)}",
        "the other way round": f"{name(asked.worse)} is ahead of {name(asked.better)}",
        "open": f"the seeds of {name(asked.better)} and {name(asked.worse)} overlap",
    }[protocol.verdict(rows, task, asked) or "open"]
    return f"On {TASKS.get(task, task)} {where} {said} ({both})."
