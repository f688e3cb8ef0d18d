"""What a thing was expected to be, and how it differs: values, a configuration, another thing."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from difflib import get_close_matches
from pathlib import Path
from pickle import UnpicklingError
from typing import Any

import numpy as np
import torch

from pe_lib.sinusoidal import LAYOUTS
from posdoctor.configs.checks import Contradiction, positive
from posdoctor.configs.explain import Reading
from posdoctor.configs.layer_kinds import row_of
from posdoctor.configs.layers import text_of
from posdoctor.configuration import for_text, is_configuration, profile_of, reading_of
from posdoctor.findings import FAULT, NOTE, UNSURE
from posdoctor.probes import Layout, Probe
from posdoctor.profile import Case, Profile, compare_profiles
from posdoctor.report import Report
from posdoctor.rules import Rule, series
from posdoctor.subjects import InputError, Rotary, Subject
from posdoctor.tolerances import rounding

READERS: dict[str, Callable[[Any], object]] = {  # of files of tensors
    ".npy": lambda path: torch.from_numpy(np.load(path)),
    ".pt": lambda path: torch.load(path, weights_only=True),
}
MINE = ("base", "layout", "gain", "rotary_dim", "head_dim")
OTHER_WORDS = {"rope_theta": "base", "theta": "base", "rotate_half": "half", "neox": "half",
               "gptj": "interleaved", "attention_factor": "gain"}  # fmt: skip
GLOBAL = "global_head_dim"  # width of the heads of layers that see all
TRIED = 64  # positions whose scores are compared

# Doubts about a part that nothing is left of where the part is the expected one, and the findings
# that say that it is not.
ANSWERED = {
    "inv_freq": (
        ("unknown-frequencies", "unusual-base", "index-from-one"),
        ("frequencies", "base", "factor", "rule", "rotary-width", "exponent-halved",
         "exponent-over-whole-width", "axes-exchanged", "axes-split"),
    ),
    "attention_factor": (("gain-missing",), ("gain",)),
    "backwards": (("direction",), ("direction",)),
}  # fmt: skip


def loaded(thing: object) -> object:
    """Return what a path of a JSON, NumPy or PyTorch file holds, and anything else as it is."""
    if not isinstance(thing, str | Path):
        return thing
    if reader := READERS.get(Path(thing).suffix):
        try:
            return reader(thing)
        except (OSError, EOFError, RuntimeError, TypeError, ValueError, UnpicklingError) as error:
            raise InputError(f"{thing} holds no tensor that can be read: {error}") from error
    try:
        found = json.loads(Path(thing).read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise InputError(f"{thing} is no JSON file that can be read: {error}") from error
    if not isinstance(found, dict):
        raise InputError(f"{thing} must hold a JSON object, got {type(found).__name__}")
    return found


def judge(
    report: Report,
    expect: object,
    examine: Callable[[object], Report],
    layer: str | int | None = None,
) -> None:
    """Add to a report how the thing differs from what was expected.

    Args:
        report: on the thing; where its examination broke off, nothing is compared.
        expect: values, a configuration, {"config": a configuration, "layer": as below}, or
            another thing of the same kind.
        examine: the examination of another thing.
        layer: of a configuration: the kind of the layer that is meant, or its number.

    Raises:
        InputError: if the expectation cannot be read, or has no such layer.
    """
    expect, case, mine = loaded(expect), report.case, report.profile
    if mine is None:
        case.unexamined.append("the comparison with what was expected: the examination broke off")
        return
    if isinstance(expect, Mapping) and "config" in expect:
        layer, expect = expect.get("layer", layer), loaded(expect["config"])
    configured = isinstance(expect, Mapping) and is_configuration(expect)
    if layer is not None and not configured:
        raise InputError(f"layer must be one of a configuration in expect, got {layer!r}")
    if isinstance(expect, Mapping) and configured:
        wanted = of_configuration(expect, mine, layer, case)
    elif isinstance(expect, Mapping):
        wanted = expected_profile(expect, mine)
    else:
        other = examine(expect)
        if other.profile is None:
            raise InputError(f"what was expected cannot be examined itself:\n{other}")
        wanted = other.profile
        own = sorted(set(other.names(FAULT)) - set(report.names(FAULT)))
        if own:
            case.fault("faults-differ", f"what was expected has {', '.join(own)}")
    compare_with(mine, wanted, case)


def compare_with(mine: Profile, wanted: Profile, case: Case) -> None:
    """Add what differs from what was expected; take back the doubts that the comparison answers."""
    if several_axes(wanted) and not several_axes(mine) and mine.inv_freq is not None:
        case.unexamined.append("axes of the pairs: a position is one number here")
    found = differences(mine, wanted)
    case.unexamined += found.unexamined
    for part, (doubts, faults) in ANSWERED.items():
        known = all(getattr(each, part) is not None for each in (mine, wanted))
        if known and not found.has(*faults):
            case.findings = [
                each for each in case.findings if (each.name, each.level) not in
                {(name, UNSURE) for name in doubts}
            ]  # fmt: skip
    if mine.ids and not found.findings:  # what both builders do is no fault of one
        case.findings = [replace(each, level=NOTE) for each in case.findings]
    for finding in found.findings:
        case.drop(finding.name)  # a doubt that is none any more
        case.find(finding.name, finding.level, finding.detail, finding.where)


def differences(mine: Profile, wanted: Profile) -> Case:
    """Return how two profiles differ; of one with several axes, what it is for text."""
    found = Case()
    if several_axes(wanted) and not several_axes(mine):
        wanted = for_text(wanted)
    compare_profiles(mine, wanted, found)
    return found


def several_axes(profile: Profile) -> bool:
    """Return whether a position has several numbers, each with pairs of its own."""
    return profile.inv_freq is not None and profile.inv_freq.shape[1] > 1


def of_configuration(
    config: Mapping[str, Any], mine: Profile, layer: str | int | None, case: Case
) -> Profile:
    """Return what a configuration asks of a layer; say for every kind whether the thing agrees.

    Where no layer is named, that is a kind with which it agrees, or else the nearest.
    """
    read, called = Case(), as_called(config, mine)
    try:
        reading = reading_of(called, read)
    except Contradiction as error:
        raise InputError(f"expect must not contradict itself: {error}") from error
    case.unexamined += read.unexamined
    if layer is not None:
        wanted = named_layer(reading, layer)
        kind = reading.layers[int(layer)].kind if str(layer).isdecimal() else str(layer)
        doubt_width(kind, called is not config, mine, case)
        return wanted
    kinds = wanted_kinds(reading)
    found = {name: differences(mine, wanted) for name, wanted in kinds.items()}
    nearest = min(found, key=lambda name: len(found[name].findings), default="")
    if len(found) > 1:
        told = [
            f"{name} layers: {', '.join(each.name for each in trial.findings) or 'agrees'}"
            for name, trial in found.items()
        ]
        case.facts["compared with"] = "; ".join(told)
        agreeing = [name for name, trial in found.items() if not trial.findings]
        if agreeing and len(agreeing) < len(found):
            others = ", ".join(name for name in found if name not in agreeing)
            case.unsure("which-layer", f"as in {', '.join(agreeing)} layers, not as in {others}")
        elif not agreeing:
            case.facts["compared with"] += f"; what follows is against {nearest} layers"
    doubt_width(nearest, called is not config, mine, case)
    return kinds.get(nearest, Profile("none"))


def as_called(config: Mapping[str, Any], mine: Profile) -> Mapping[str, Any]:
    """Return a file with the width of heads that it has and that a thing was called with.

    Where a file has no `global_head_dim`, the class of Gemma 4 takes a width of its own for layers
    that see all, whatever `head_dim` says.
    """
    given = text_of(config)
    taken = row_of(given).get("fields", {}).get(GLOBAL)
    if None in (taken, mine.dim) or given.get(GLOBAL) or given.get("head_dim") != mine.dim:
        return config
    return {**given, GLOBAL: mine.dim}


def doubt_width(kind: str, assumed: bool, mine: Profile, case: Case) -> None:
    """Say that the width of heads was assumed, if it was, of a kind of layers."""
    if assumed and kind.startswith("full_attention"):
        taken = f"where a file has no {GLOBAL}, its class makes heads of a width of its own"
        case.unsure("rotary-width", f"heads of {mine.dim}, as head_dim says; {taken}")


def wanted_kinds(reading: Reading) -> dict[str, Profile]:
    """Return what each kind of layer that rotates asks for."""
    first = {name: reading.layers[indices[0]] for name, indices in reading.groups.items()}
    made = {name: profile_of(layer, reading.layout_known) for name, layer in first.items()}
    return {name: profile for name, profile in made.items() if profile is not None}


def named_layer(reading: Reading, layer: str | int) -> Profile:
    """Return what a layer asks for that is named by its kind or by its number.

    Raises:
        InputError: if there is none, or layers of this kind rotate differently.
    """
    count, kinds = len(reading.layers), {each.kind for each in reading.layers}
    if str(layer).isdecimal():
        if int(layer) >= count:
            raise InputError(f"layer must be 0 to {count - 1}, got {layer}")
        wanted = profile_of(reading.layers[int(layer)], reading.layout_known)
        return wanted or Profile("none")
    if layer not in kinds:
        raise InputError(f"layer must be a number or one of {', '.join(kinds)}; got {layer!r}")
    named = [
        profile_of(reading.layers[indices[0]], reading.layout_known) or Profile("none")
        for indices in reading.groups.values()
        if reading.layers[indices[0]].kind == layer
    ]
    if len(named) > 1:
        raise InputError(f"layer must be a number: layers of the kind {layer!r} differ")
    return named[0]


def compare_scores(pair: Sequence[Subject], case: Case) -> None:
    """Compare the scores that two rotary functions give, where no frequencies tell them apart."""
    both = [Probe(each) for each in pair if isinstance(each, Rotary)]
    if len(both) < 2:
        return
    if case.has("layout"):
        case.unexamined.append("scores beside those expected: the layouts differ")
        return
    q, k = (both[0].random().expand(1, 1, TRIED, -1) for _ in range(2))
    q, k = (x.repeat(1, both[0].subject.heads, 1, 1) for x in (q, k))
    mine, wanted = (
        y[0].double() @ y[1].double().mT
        for y in (probe.call(q, k, torch.arange(TRIED)[None]) for probe in both)
    )
    off = float((mine - wanted).abs().max() / wanted.abs().max())
    if off > TRIED * rounding(q.dtype):
        case.fault("scores-differ", f"by {off:.2g} of the largest, positions 0 to {TRIED - 1}")


def require_word(name: str, given: object, allowed: Sequence[str]) -> None:
    """Raise unless a word is one of those allowed; say which one may be meant."""
    if given not in allowed:
        near = OTHER_WORDS.get(str(given)) or next(iter(get_close_matches(str(given), allowed)), "")
        meant = f"; did you mean {near!r}?" if near else ""
        raise InputError(f"{name} may have {', '.join(allowed)}; got {given!r}{meant}")


def expected_profile(expect: Mapping[str, Any], mine: Profile) -> Profile:
    """Return a profile of the values that a caller expects."""
    for key, value in expect.items():
        require_word("expect", key, MINE)
        if key == "layout":
            require_word("layout", value, LAYOUTS)
            continue
        try:
            positive(key, value)
        except TypeError as error:
            raise InputError(str(error)) from error
    found = Profile(mine.kind, mine.dim, attention_factor=expect.get("gain"))
    width = int(expect.get("rotary_dim", mine.layout.width if mine.layout else mine.dim or 0))
    if "base" in expect:
        found.inv_freq = series(width // 2, float(expect["base"]))[:, None]
        found.rule = Rule("default", float(expect["base"]))
    if "layout" in expect or "rotary_dim" in expect:
        own = mine.layout or Layout("half", 0, width)
        found.layout = Layout(expect.get("layout", own.name), own.start, width)
    return found
