"""Sentences that compare methods, each said once, here, and quoted wherever it is needed.

Every sentence is computed from shipped rows and raises where they no longer say it: those of the
long comparison and of what was measured beside it (five seeds, each method's best of three rates)
or, where a sentence says so, of the short one. What a number of steps shows stands as such: a
budget is not an ability.

    from pe_course.page.sentences import quote
    say(quote("all-three", "offset-400"))

Prose that no cell prints (claims, Markdown pages) quotes with {said}`all-three`.

Keys with a task are sentences of the long comparison (`pe_course.bakeoff.protocol`): of a method
whether it learned the task and how far it keeps it; of an ordering whether it holds; of all its
methods ("n-back/all") which learned it. There are none for rows that are not complete.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable
from functools import cache, partial

from pe_course.bakeoff import gates, protocol, rules
from pe_course.bakeoff.grid import SIZES, grid
from pe_course.bakeoff.rows import (
    SHIPPED,
    Curve,
    Row,
    curves,
    median,
    method_names,
    name,
    read_rows,
)

TASKS = {"n-back": "3-back", "marker": "recall"}
CELLS = {(cell.scale, cell.task): cell for cell in SIZES}
METRICS = {"text": "nats", "marker": "accuracy", "n-back": "accuracy"}
METRICS |= {"addition": "accuracy", "coupled": "accuracy"}
WORDS = (
    "none", "one", "two", "three", "four", "five", "six", "seven", "eight", "nine", "ten", "eleven",
    "twelve", "thirteen", "fourteen", "fifteen", "sixteen", "seventeen", "eighteen", "nineteen",
)  # fmt: skip


def quote(*keys: str) -> str:
    """Return the sentences of these keys, one after the other.

    Raises:
        KeyError: if there is no such key.
        ValueError: if rows for it are missing.
        AssertionError: if the rows no longer say it.
    """
    known = SAID | long_sentences()
    return " ".join(known[key]() for key in keys)


def filled(text: str) -> str:
    """Return a text with the sentences that it quotes, such as {said}`all-three`."""
    return re.sub(r"\{said\}`([^`]+)`", lambda found: quote(found[1]), text)


# Reading the rows ---------------------------------------------------------------------------------


@cache
def shipped(scale: str) -> list[Row]:
    """Return the rows of a scale."""
    return read_rows(SHIPPED / f"{scale}.csv")


@cache
def found(task: str, scale: str = "long") -> dict[str, Curve]:
    """Return the values of every seed by variant and length, of the long or the short training."""
    if scale == "long":
        by_rule = {variant: curve for variant, curve in ruled(task).items() if "+" in variant}
        return protocol.measured(shipped(scale), task) | by_rule
    return curves(shipped(scale), task, METRICS[task])


def ruled(task: str) -> dict[str, Curve]:
    """Return the values of the models of `rules`: as they are, by each rule, over a cache."""
    return protocol.measured(shipped("rules"), task, scale="rules")


def of_rules(task: str, question: str) -> str | None:
    """Return the verdict on an ordering of `pe_course.bakeoff.rules`, from the shipped rows."""
    asked = rules.ORDERINGS[task][question]
    return rules.verdict([*shipped("long"), *shipped("rules")], task, asked)


def of_gates(task: str, *questions: str) -> set[str | None]:
    """Return the verdicts on questions of `pe_course.bakeoff.gates`, from the shipped rows."""
    asked = gates.ORDERINGS[task]
    return {gates.verdict(shipped("gates"), task, asked[question]) for question in questions}


def at(task: str, variant: str, multiple: float, scale: str = "long") -> list[float]:
    """Return the values of all seeds at a multiple of the training length."""
    return found(task, scale)[variant][round(multiple * CELLS[scale, task].train_length)]


def rise(variant: str, multiple: float) -> list[float]:
    """Return by how many nats the loss on text is above that at the training length, by seed."""
    pairs = zip(at("text", variant, multiple), at("text", variant, 1), strict=True)
    return [far - near for far, near in pairs]


def seeds(values: list[float]) -> str:
    """Return all values, as in a sentence."""
    return ", ".join(f"{value:.2f}" for value in sorted(values))


def span(values: list[float]) -> str:
    """Return the range of the seeds; that of five holds the median with a chance of 15/16."""
    low, high = f"{min(values):.2f}", f"{max(values):.2f}"
    return low if low == high else f"{low} to {high}"


def named(variant: str) -> str:
    """Return a name as it stands in a sentence."""
    return f"the {name(variant)}" if variant == "hybrid" else name(variant)


def names(variants: tuple[str, ...]) -> str:
    """Return the names of variants, as in a sentence."""
    *first, last = map(named, variants)
    return f"{', '.join(first)} and {last}" if first else last


def counted(number: int) -> str:
    """Return a number of methods in words, if it is below twenty."""
    return WORDS[number] if number < len(WORDS) else str(number)


def share(some: int, of: int) -> str:
    """Return "thirteen of eighteen", or "all eighteen"."""
    return f"{counted(some)} of {counted(of)}" if some < of else f"all {counted(of)}"


def require(rows_say_it: bool) -> None:
    """Raise if the rows do not say what a sentence is about to say."""
    if not rows_say_it:
        raise AssertionError("the shipped rows no longer say this sentence; mend it")


# Both trainings -----------------------------------------------------------------------------------

# How the loss on text rises to 16 times the training length, in nats: by less than the number, or
# by more.
MOST = 0.2  # the bar for a loss that is kept
FLAT = ("forgetting", "transformer_xl", "kerple", "alibi", "hybrid", "deberta", "shaw", "t5"), MOST
ROSE = ("cope",), 0.35
CLIMBED = ("fire", "none", "randomised", "temperature", "rope_turns"), 0.7
BROKEN = ("pope", "sinusoidal", "learned+clamp", "p_rope_75", "rope"), 1.4
GATED = ("rope", "rope_sink", "rope_gate")
UNDONE = ("alibi", "kerple", "fire", "forgetting")  # of 3-back, after the steps of the small scale


def all_three() -> str:
    """Who keeps all three tasks at 16 times the length."""
    methods = [v for v in method_names() if v in found("text")]
    kept = [
        v
        for v in methods
        if all(CELLS["long", t].lengths[-1] in found(t).get(v, {}) for t in protocol.ORDERINGS)
        and min(*at("n-back", v, 16), *at("marker", v, 16)) > protocol.KEPT
        and max(rise(v, 16)) < MOST
    ]
    require(0 < len(kept) < 4)
    return (
        f"{counted(len(kept)).capitalize()} of {counted(len(methods))}"
        f" methods kept text, recall and 3-back at 16 times the training length:"
        f" {names(tuple(kept))}. (A method keeps recall or 3-back if each of five seeds has an"
        f" accuracy of {protocol.KEPT} at that length. It keeps text if no seed's loss on text has"
        f" risen by {MOST} nats.)"
    )


def text_flat() -> str:
    """Losses on text that stay, rise a little, climb or break."""
    for variants, most in (FLAT, ROSE):
        require(max(max(rise(v, 16)) for v in variants) < most)
    for broken, least in (CLIMBED, BROKEN):
        require(min(min(rise(v, 16)) for v in broken) > least)
    return (
        "Small models were trained on texts of 64 characters and tested on texts of up to 1,024"
        " characters, with five seeds for each method. The loss on text stayed flat with"
        f" {names(FLAT[0])}: at 1,024 characters the loss had risen by less than {FLAT[1]} nats."
        f" The loss rose a little, by less than {ROSE[1]} nats, with {names(ROSE[0])}. The loss"
        f" rose by more than {CLIMBED[1]} nats with {names(CLIMBED[0])}. The loss rose most, by"
        f" more than {BROKEN[1]} nats, with {names(BROKEN[0])}."
    )


def relative_split() -> str:
    """Relative encodings do not behave alike on longer texts."""
    kept = ("transformer_xl", "kerple", "alibi", "deberta", "shaw", "t5")
    require(max(max(rise(v, 16)) for v in kept) < MOST)
    require(min(rise("fire", 16)) > 0.7 and min(rise("rope", 2)) > 1)
    return (
        f"Of the relative encodings, {names(kept)} kept their loss on text at 16 times the training"
        f" length (the loss rose by less than {MOST} nats). With RoPE, the loss on text rose by"
        f" {span(rise('rope', 2))} nats already at twice the training length. FIRE also depends on"
        f" the query's position. With FIRE, the loss on text rose by {span(rise('fire', 16))} nats"
        " at 16 times the training length."
    )


def budget_on_text() -> str:
    """What a longer training did to T5's bias on longer text."""
    short = [f - n for f, n in zip(*(at("text", "t5", m, "small") for m in (16, 1)), strict=True)]
    long = rise("t5", 16)
    require(min(short) > 0.5 and max(long) < 0.2)
    return (
        f"After the short training, the loss on text with T5 bias rose by {span(short)} nats at 16"
        " times the training length. After the long training, at a different learning rate, the"
        f" loss on text with T5 bias rose by {span(long)} nats at that length."
    )


def offset_400() -> str:
    """A budget, not an ability: 3-back after 400 steps at one rate."""
    ends = {v: at("n-back", v, 1, "small") for v in UNDONE}
    require(max(map(max, ends.values())) < 0.7)
    listed = "; ".join(f"{name(v)} {seeds(values)}" for v, values in ends.items())
    return (
        "After 400 steps at one learning rate, four methods had not learned 3-back even at the"
        f" training length. The accuracies of their three seeds were: {listed}. These accuracies"
        " say how far the training got, not what the methods can do."
    )


def penalties() -> str:
    """Three penalties by the distance: on text, and a content at 16 times the length."""
    lower = [(at("text", "kerple", m), at("text", "alibi", m)) for m in (1, 16)]
    lower += [(at("text", "fire", 1), at("text", "alibi", 1))]
    lower += [(at("text", "alibi", 16), at("text", "fire", 16))]
    require(all(max(low) < min(high) for low, high in lower))
    alibi, recalled = at("marker", "alibi", 16), at("marker", "kerple", 16)
    require(min(alibi) > protocol.KEPT and min(recalled) < 0.5 < 0.9 < max(recalled))
    return (
        "In each of five seeds, KERPLE had a lower loss on text than ALiBi, both at the training"
        " length and at 16 times that length. FIRE had a lower loss on text than ALiBi at the"
        " training length, and a higher loss than ALiBi at 16 times that length. At 16 times the"
        f" training length, ALiBi kept recall in every seed (accuracy {span(alibi)}). KERPLE kept"
        f" recall in only some seeds (accuracy {span(recalled)})."
    )


def none_crosses() -> str:
    """No positions: last at the training length, ahead of some past it."""
    telling = [v for v in found("text") if "+" not in v and v not in ("none", "temperature")]
    none, broken = at("text", "none", 1), ("sinusoidal", "p_rope_75", "rope")
    require(min(none) > max(max(at("text", v, 1)) for v in telling))
    for longer in (2, 4, 8, 16):
        ahead = max(at("text", "none", longer))
        require(all(ahead < min(at("text", v, longer)) for v in broken))
    return (
        "At the training length, a small decoder without positions had a higher loss on text than"
        f" all {len(telling)} methods that tell positions apart, in each of five seeds. From twice"
        " the training length on, the decoder without positions had a lower loss on text than"
        f" {names(broken)}, in each of five seeds."
    )


def table_interpolated() -> str:
    """A learned table stretched over longer text, nothing trained."""
    stretched, clamped = (at("text", f"learned+{way}", 4) for way in ("interpolate", "clamp"))
    require(min(stretched) > max(at("text", "learned", 1)) + 1)
    require(max(stretched) < min(clamped))
    return (
        "Five small models with a learned table were trained on windows of 64 characters. Their"
        f" loss on text was {span(at('text', 'learned', 1))} nats at that length. At four times"
        f" the training length, the loss was {span(stretched)} nats with the table interpolated,"
        f" and {span(clamped)} nats with the last row repeated. Models without positions had a loss"
        f" of {span(at('text', 'none', 4))} nats at four times the training length."
    )


def rules_far() -> str:
    """RoPE's rules, nothing trained: who keeps the exact offset and a low loss."""
    kept, others = ("rope+yarn", "rope+llama3"), ("rope", "rope+pi", "rope+ntk", "rope+dynamic-ntk")
    require(min(min(at("n-back", v, 8)) for v in kept) > 0.95)
    require(all(min(at("n-back", v, 16)) > max(at("n-back", w, 16)) for v in kept for w in others))
    require(all(max(at("text", v, 16)) < min(at("text", w, 16)) for v in kept for w in others))
    return (
        f"Without further training, two of RoPE's rules kept 3-back at eight times the training"
        f" length in each of five seeds: {names(kept)}. At 16 times the training length, these two"
        " rules were better on 3-back and on text than unchanged RoPE and the other rules, in every"
        f" seed. The accuracy on 3-back was then {span(at('n-back', kept[0], 16))} with"
        f" {name(kept[0])}, and {span(at('n-back', kept[1], 16))} with {name(kept[1])}. On text,"
        " these two rules had failed at that length, too: the loss was"
        f" {span(at('text', kept[0], 16))} nats with {name(kept[0])}, and"
        f" {span(at('text', kept[1], 16))} nats with {name(kept[1])}."
    )


def interpolated() -> str:
    """Interpolation takes the exact offset at once."""
    plain, squeezed = at("n-back", "rope", 1.5), at("n-back", "rope+pi", 1.5)
    require(min(plain) > 0.6 and max(squeezed) < 0.2)
    return (
        "Interpolation without further training loses exact offsets at once. At 1.5 times the"
        f" training length, the accuracy of five seeds on 3-back was {span(squeezed)} with"
        f" interpolated positions and {span(plain)} with unchanged RoPE."
    )


def angles_end() -> str:
    """PoPE and p-RoPE go on longer than RoPE, and end."""
    ends = {v: {m: at("n-back", v, m, "small") for m in (2, 8)} for v in ("pope", "p_rope", "rope")}
    both = ("pope", "p_rope")
    require(min(min(ends[v][2]) for v in both) > 0.85 > 0.6 > max(ends["rope"][2]))
    require(max(max(ends[v][8]) for v in both) < 0.3)
    middle = ", ".join(f"{median(values[2]):.2f}" for values in ends.values())
    return (
        "After 400 steps, PoPE and p-RoPE with a quarter of the pairs were better than RoPE on"
        " 3-back at twice the training length, in each of three seeds. (The median accuracies of"
        f" {names((*both, 'rope'))} were {middle}.) At eight times the training length, both"
        " PoPE and p-RoPE had lost 3-back."
    )


def coupled_sums() -> str:
    """Adding with coupled positions."""
    curves_of = {(task, v): found(task, "small")[v] for task in ("addition", "coupled") for v in
                 ("rope", "kerple")}  # fmt: skip
    require(min(min(curves_of["coupled", v][6]) for v in ("rope", "kerple")) > 0.9)
    require(max(max(curves_of["addition", v][6]) for v in ("rope", "kerple")) < 0.4)
    far, near = curves_of["coupled", "kerple"], curves_of["coupled", "rope"]
    require(min(far[48]) > 0.8 and max(near[12]) < 0.8)
    return (
        "With coupled positions, the models with KERPLE and with RoPE both wrote more than nine in"
        " ten digits of sums of 6 digits correctly. On sums of 48 digits, the share of correct"
        f" digits in three seeds was {seeds(far[48])} with KERPLE, and {seeds(near[48])} with RoPE."
        " With plain positions, neither model had learned to add within the same number of steps."
    )


def percents(values: list[float]) -> str:
    """Return the range of the seeds' shares."""
    return f"{min(values):.1%} to {max(values):.1%}"


def most_first(task: str) -> int:
    """Return at most how many hundredths of its weight a head gives the first token: no sink."""
    rows = shipped("gates")
    require(not any(sum(gates.with_sinks(rows, task, v)) for v in GATED))
    return math.ceil(100 * max(max(map(max, gates.of_heads(rows, task, v))) for v in GATED))


def gate_level() -> str:
    """RoPE, with a sink and with a gate, on text: as it is, and over a rolling cache."""
    rows, asked = shipped("gates"), gates.ORDERINGS["text"]
    require(of_gates("text", "gate-near", "sink-near", "gate-sink") == {"open"})
    require(of_gates("text", "gate-alone", "sink-alone") == {"open"})
    cached = [f"{kind}-cache-{multiple}" for kind in ("gate", "sink") for multiple in (4, 16)]
    require(of_gates("text", *cached) == {"open"})
    most = max(max(gates.values(rows, "text", v, asked[key])) for key in cached for v in GATED)
    require(most < 0.1)
    ends = [gates.values(rows, "text", v, asked["gate-near"]) for v in GATED]
    listed = ", ".join(f"{name(v)} {span(end)}" for v, end in zip(GATED, ends, strict=True))
    return (
        "On text at the training length, the losses of the three models overlap"
        f" ({listed} nats). With a rolling cache there was nothing to repair: at 4 and 16 times the"
        " training length, no loss on text rose by more than"
        f" {math.ceil(1000 * most) / 1000:.3f} nats. Without a rolling cache, at twice the training"
        " length, neither the sink nor the gate was better than RoPE alone in all seeds, or worse"
        " in all seeds."
    )


def gate_first() -> str:
    """What heads give the first token of a text, alone and beside a sink or a gate."""
    rows, most = shipped("gates"), most_first("text")
    require(of_gates("text", "gate-first", "sink-first") == {"open"})
    taken, open_ = (gates.shares(rows, "text", f"rope_{kind}", kind) for kind in ("sink", "gate"))
    return (
        "On text of 64 characters, RoPE alone had no sink on the first token in any of five seeds."
        f" No head of any of these models gave the first token more than {most}% of its weight. We"
        f" speak of a sink on the first token from {gates.SINK:.0%} of the weight on. So there was"
        " no sink on the first token that a gate could remove. The trained sinks took"
        f" {min(taken):.0%} to {max(taken):.0%} of all weight (mean of a model's heads). The gates"
        f" were {min(open_):.0%} to {max(open_):.0%} open (mean of a model's heads)."
    )


def gate_recall() -> str:
    """The same on recall, where a sink takes weight off the first token and a gate does not."""
    rows, asked, most = shipped("gates"), gates.ORDERINGS["marker"], most_first("marker")
    require(of_gates("marker", "sink-first") == {"holds"})
    require(of_gates("marker", *(key for key in asked if key != "sink-first")) == {"open"})
    learned = gates.Asked("rope_gate", "rope")
    require(min(min(gates.values(rows, "marker", v, learned)) for v in GATED) >= protocol.LEARNED)
    plain, sink, gate = (percents(gates.shares(rows, "marker", v)) for v in GATED)
    return (
        "On recall there was no sink on the first token either: no head gave the first token more"
        f" than {most}% of its weight. A trained sink takes weight from all keys alike. The mean"
        f" weight of the first token was {sink} with a trained sink and {plain} with RoPE alone; it"
        f" was lower with the sink in all five seeds. With a gate, this weight was {gate}, and the"
        " seeds overlap with those of RoPE alone. All three kinds of models learned recall. We"
        " tested recall with a rolling cache at 4 and 16 times the training length, and without a"
        " rolling cache at twice the training length. In none of these tests was the sink or the"
        " gate better than RoPE alone in all seeds, or worse in all seeds."
    )


SAID: dict[str, Callable[[], str]] = {
    "gate-level": gate_level,
    "gate-first": gate_first,
    "gate-recall": gate_recall,
    "all-three": all_three,
    "text-flat": text_flat,
    "relative-split": relative_split,
    "budget-on-text": budget_on_text,
    "offset-400": offset_400,
    "penalties": penalties,
    "none-crosses": none_crosses,
    "table-interpolated": table_interpolated,
    "rules-far": rules_far,
    "interpolated": interpolated,
    "angles-end": angles_end,
    "coupled-sums": coupled_sums,
}


# Five seeds, a rate for each, the same steps ------------------------------------------------------


@cache
def long_sentences() -> dict[str, Callable[[], str]]:
    """Return the sentences of the long comparison that have all their rows."""
    rows, found = shipped("long"), dict[str, Callable[[], str]]()
    for task, orderings in protocol.ORDERINGS.items():
        for method in protocol.measured(rows, task) if task in TASKS else ():
            if method in method_names():  # not RoPE stretched
                found[f"{task}/{method}"] = partial(of_method, rows, task, method)
                found[f"{task}/all"] = partial(of_all, rows, task)
        for key, asked in orderings.items():
            if protocol.verdict(rows, task, asked):
                found[f"{task}/{key}"] = partial(of_ordering, rows, task, asked)
    return found


def of_method(rows: list[Row], task: str, method: str) -> str:
    """Return whether a method learned a task within the steps, and how far it keeps it."""
    (cell,) = grid("long", [task], [method], [0])
    end = protocol.measured(rows, task)[method][cell.train_length]
    steps, title, what = f"{cell.steps:,} steps", named(method), TASKS[task]
    title = title if title.startswith("p-") else title[0].upper() + title[1:]
    kind = protocol.class_of(rows, task, method)
    if kind == "learned":
        kept = protocol.kept_to(rows, task, method)
        far = f"keeps {what} to {kept:g} times the training length"
        where = far if kept != 1 else f"does not keep {what} on longer texts"
        return f"{title} learned {what} within {steps} in each of five seeds, and {where}."
    if kind == "learned by some seeds":
        count = sum(value >= protocol.LEARNED for value in end)
        some = f"in {counted(count)} of five seeds ({span(end)})"
        return f"{title} learned {what} within {steps} {some}."
    still = "still rising" if kind == "still rising" else "no longer rising"
    accuracy = f"The accuracy was {span(end)} and {still} when the training ended."
    return f"{title} had not learned {what} within {steps}. {accuracy}"


def kept_far(rows: list[Row], task: str) -> tuple[str, ...]:
    """Return the methods that learned a task and keep it to the longest texts."""
    (cell,) = grid("long", [task], ["rope"], [0])
    methods = [method for method in protocol.measured(rows, task) if method in method_names()]
    return tuple(v for v in methods if protocol.kept_to(rows, task, v) == cell.multiples[-1])


def by_class(rows: list[Row], task: str) -> dict[str, list[str]]:
    """Return the methods by what the protocol says of them."""
    found: dict[str, list[str]] = {}
    for method in protocol.measured(rows, task):
        if method in method_names():
            found.setdefault(protocol.class_of(rows, task, method), []).append(method)
    return found


def of_all(rows: list[Row], task: str) -> str:
    """Return how many methods learned a task within the steps, and which keep it longest."""
    (cell,) = grid("long", [task], ["rope"], [0])
    classes, kept = by_class(rows, task), kept_far(rows, task)
    learned, count = len(classes.get("learned", [])), sum(map(len, classes.values()))
    said = f"{share(learned, count).capitalize()} methods learned {TASKS[task]}"
    said += f" within {cell.steps:,} steps"
    if kept:
        said += f". {counted(len(kept)).capitalize()} methods kept {TASKS[task]} to"
        said += f" {cell.multiples[-1]:g} times the training length: {names(kept)}"
    kinds = {
        "learned by some seeds": f"Some seeds learned {TASKS[task]} with",
        "still rising": "When the training ended, the accuracy was still rising with",
        "flat": "When the training ended, the accuracy was no longer rising with",
    }
    for kind, begins in kinds.items():
        if others := classes.get(kind):
            ends = {v: protocol.measured(rows, task)[v][cell.train_length] for v in others}
            said += f". {begins} {', '.join(f'{named(v)} ({span(ends[v])})' for v in others)}"
    return f"{said}."


def of_ordering(rows: list[Row], task: str, asked: protocol.Ordering) -> str:
    """Return whether an ordering that was named beforehand holds."""
    values = protocol.values_of(rows, task, asked)
    assert values is not None
    where = f"at {asked.multiple:g} times the training length" if asked.multiple > 1 else ""
    where = f"after {asked.after:,} steps" if asked.after else where or "at the training length"
    better, worse = named(asked.better), named(asked.worse)
    both = f"{better} {span(values[0])}, {worse} {span(values[1])}"
    said = {
        "holds": f"all seeds of {better} are better than all seeds of {worse}",
        "the other way round": f"all seeds of {worse} are better than all seeds of {better}",
        "open": f"the seeds of {better} and {worse} overlap",
    }[protocol.verdict(rows, task, asked) or "open"]
    return f"On {TASKS.get(task, task)} {where}, {said} ({both})."
