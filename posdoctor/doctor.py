"""The doctor: `diagnose` a thing, or `compare` two, and get a report."""

from __future__ import annotations

import copy
import json
from collections.abc import Callable, Mapping, Sequence
from difflib import get_close_matches
from pathlib import Path
from pickle import UnpicklingError
from typing import Any

import numpy as np
import torch
from torch import Tensor

from pe_lib.encoding import PositionEncoding
from pe_lib.rope import split_pairs
from pe_lib.sinusoidal import LAYOUTS, arrange
from posdoctor.biases import examine_absolute, examine_bias
from posdoctor.configs.checks import positive
from posdoctor.configuration import by_kind, examine_configuration, is_configuration
from posdoctor.models import examine_model, is_model
from posdoctor.paths import uncalled
from posdoctor.position_ids import examine_position_ids
from posdoctor.probes import Layout, Probe
from posdoctor.profile import Case, Profile, compare_profiles
from posdoctor.report import Report
from posdoctor.rotary import examine_rotary
from posdoctor.rules import Rule, series
from posdoctor.scaling import examine_scaling, is_scaling
from posdoctor.subjects import (
    Absolute,
    Bias,
    InputError,
    PositionIds,
    Rotary,
    RotaryFunction,
    Subject,
    Tables,
    subjects_of,
)
from posdoctor.ways import of_blhd, of_tensor

READERS: dict[str, Callable[[Any], object]] = {  # of files of tensors
    ".npy": lambda path: torch.from_numpy(np.load(path)),
    ".pt": lambda path: torch.load(path, weights_only=True),
}
KINDS = {"rotary": Rotary, "bias": Bias, "absolute": Absolute, "position_ids": PositionIds}
MINE = ("base", "layout", "gain", "rotary_dim", "head_dim")
OTHER_WORDS = {"rope_theta": "base", "theta": "base", "rotate_half": "half", "neox": "half",
               "gptj": "interleaved"}  # fmt: skip
SHORT = (torch.bfloat16, torch.float16)


def diagnose(
    thing: object,
    *,
    kind: str | None = None,
    expect: object = None,
    dtypes: tuple[torch.dtype, ...] = SHORT,
    thorough: bool = False,
    **options: Any,
) -> Report:
    """Examine one thing.

    Args:
        thing: a function (q, k, positions) -> (q, k); a pair (cos, sin) of tables, or a complex
            table; with kind="bias" a function (q_pos, k_pos) -> (heads, Lq, Lk) or its tensor;
            with kind="absolute" a function positions -> codes; with kind="position_ids" a builder
            of them, see `posdoctor.subjects.PositionIds`; an encoding of this library; a
            configuration (a mapping, or the path of a JSON file); a language model of
            transformers; or one of the classes of `posdoctor.subjects`.
        kind: of a function: "rotary" if None, "bias", "absolute" or "position_ids".
        expect: what it should be: {"base": 500000, "layout": "half"}, a configuration, or
            another thing of the same kind. Without it a wrong base is only another base.
        dtypes: short types in which a rotary function is called too.
        thorough: call it with many more lengths and batches (minutes instead of a second).
        options: of `Rotary`: head_dim, heads, axes, runs, reach; blhd=True where q and k are
            (B, L, H, d). Other forms: `posdoctor.ways`.

    Returns:
        the report. No finding is not a proof: see what it lists as not examined.

    Raises:
        InputError: if the thing cannot be examined.
    """
    thing = loaded(thing)
    blhd = options.pop("blhd", False)
    if isinstance(thing, PositionEncoding) and kind is None:
        report = of_encoding(thing, dtypes, options)
    elif kind is None and is_model(thing):
        report = examine_model(thing)
    elif isinstance(thing, Mapping):
        case = Case()
        report = Report("configuration", case, examine_configuration(thing, case))
    else:
        if blhd and callable(thing):
            thing = of_blhd(thing)
            if callable(expect) and not isinstance(expect, PositionEncoding):
                expect = of_blhd(expect)
        report = of_subject(as_subject(thing, kind, options), dtypes, thorough)
        report.told = expect is not None
    if expect is not None:
        judge(report, expect, kind, options)
        if callable(expect) and report.case.has("grid", "not-proportional"):
            compare_scores(thing, expect, options, report.case)
    return report


def compare(one: object, other: object, **options: Any) -> Report:
    """Examine one thing, and say how it differs from another: a port from its original.

    Raises:
        InputError: if either cannot be examined.
    """
    return diagnose(one, expect=other, **options)


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


def as_subject(thing: object, kind: str | None, options: dict[str, Any]) -> Subject:
    """Return the thing as what can be examined."""
    if isinstance(thing, Subject):
        return thing
    if isinstance(thing, Tensor):
        return of_tensor(thing, kind)
    if isinstance(thing, tuple | list) and len(thing) == 2:
        return Tables(*(x[0] if isinstance(x, Tensor) and x.ndim == 3 else x for x in thing))
    if kind is not None and kind not in KINDS:
        raise InputError(f"kind must be one of {', '.join(KINDS)}; got {kind!r}")
    if not callable(thing):
        raise InputError(
            "thing must be a function, a pair of tables, an encoding, a configuration or a "
            f"model, got {type(thing).__name__}"
        )
    try:
        found: Subject = KINDS[kind or "rotary"](thing, **options)
    except TypeError as error:
        raise InputError(f"options do not fit kind {kind or 'rotary'!r}: {error}") from error
    return found


def of_subject(subject: Subject, dtypes: tuple[torch.dtype, ...], thorough: bool = False) -> Report:
    """Examine one subject."""
    case = Case()
    if isinstance(subject, Tables):
        rotary = rotary_of(subject, case)
        return Report("tables of cosines and sines", case, examine_rotary(rotary, case))
    name = getattr(subject.function, "__name__", type(subject.function).__name__)
    fresh = uncalled(subject.function)
    if isinstance(subject, Bias):
        return Report(f"bias {name}", case, examine_bias(subject, case))
    if isinstance(subject, Absolute):
        return Report(f"code {name}", case, examine_absolute(subject, case))
    if isinstance(subject, PositionIds):
        return Report(f"position ids {name}", case, examine_position_ids(subject, case))
    if is_scaling(subject):
        case.unexamined.append("short types of queries and keys")
        found = examine_scaling(subject, case)
        return Report(f"function {name} of queries and keys", case, found)
    rotated = examine_rotary(subject, case, dtypes, fresh=fresh, thorough=thorough)
    return Report(f"rotary function {name}", case, rotated)


UNEXAMINED = {
    "values": "what is added to the output",
    "hidden_bias": "what is read from hidden states",
    "sink": "the extra logit",
    "rotate_values": "values that are rotated and rotated back",
}


def of_encoding(
    encoding: PositionEncoding, dtypes: tuple[torch.dtype, ...], options: dict[str, Any]
) -> Report:
    """Examine each hook of an encoding."""
    sizes = {"head_dim": 32, "heads": 4} | options
    subjects = subjects_of(encoding, sizes["head_dim"], sizes["heads"])
    name, case = type(encoding).__name__, Case()
    if not subjects:
        case.facts["kind"] = "no positions"
    parts = {}
    for hook, subject in subjects.items():
        try:
            parts[hook] = of_subject(subject, dtypes)
        except InputError as error:  # polar coordinates come back twice as wide
            case.unexamined.append(f"{hook}: {error}")
    if "bias" in parts and parts["bias"].case.has("bias-lost"):
        filled = with_numbers(encoding)
        if filled is not None:
            parts["bias"] = of_subject(
                subjects_of(filled, sizes["head_dim"], sizes["heads"])["bias"], dtypes
            )
            case.unexamined.append("the trained numbers: zeros, for which random ones stand here")
    for hook, part in parts.items():
        part.subject = f"{name}.{hook}"
    for hook, what in UNEXAMINED.items():
        if encoding.uses(hook):
            case.unexamined.append(f"{hook}: {what}")
    profile = next(iter(parts.values())).profile if len(parts) == 1 else None
    return Report(name, case, profile, parts)


def with_numbers(encoding: PositionEncoding) -> PositionEncoding | None:
    """Return a copy whose parameters of zeros are random numbers; None if it has none."""
    filled, generator = copy.deepcopy(encoding), torch.Generator().manual_seed(0)
    empty = [one for one in filled.parameters() if not bool(one.any())]
    with torch.no_grad():
        for parameter in empty:
            parameter.normal_(generator=generator)
    return filled if empty else None


def rotary_of(tables: Tables, case: Case) -> Rotary:
    """Return the function that multiplies with tables in the layout that they have."""
    rows, width = tables.cos.shape
    case.unexamined.append("the code that multiplies with the tables: its layout and its positions")
    cos, sin, even = tables.cos, tables.sin, width % 2 == 0
    halves = even and all(torch.equal(*table.chunk(2, -1)) for table in (cos, sin))
    twins = even and all(torch.equal(table[:, ::2], table[:, 1::2]) for table in (cos, sin))
    layout = "interleaved" if twins and not halves else "half"
    if twins or halves:
        order = "all frequencies twice in a row" if halves else "each frequency twice side by side"
        case.facts["table"] = f"{width} columns, {order} ({layout})"
        cos, sin = (split_pairs(table, layout)[0] for table in (cos, sin))
    else:
        case.facts["table"] = f"{width} columns, one for each pair; no layout"

    def function(q: Tensor, k: Tensor, positions: Tensor) -> tuple[Tensor, Tensor]:
        c, s = (table[positions].unsqueeze(1).to(q.dtype) for table in (cos, sin))
        pairs = [split_pairs(x, layout) for x in (q, k)]
        new_q, new_k = (arrange(a * c - b * s, a * s + b * c, layout) for a, b in pairs)
        return new_q, new_k

    return Rotary(function, 2 * cos.shape[1], reach=max(64, min(rows, 4096)))


def judge(report: Report, expect: object, kind: str | None, options: dict[str, Any]) -> None:
    """Add to a report how the thing differs from what was expected."""
    expect, case = loaded(expect), report.case
    if report.profile is None:
        case.unexamined.append("the comparison with what was expected: the examination broke off")
        return
    mine = report.profile
    if isinstance(expect, Mapping) and not is_configuration(expect):
        wanted = expected_profile(expect, mine)
    elif isinstance(expect, Mapping):
        read = Case()
        kinds = by_kind(expect, read)
        if read.has("contradiction"):
            raise InputError(f"expect must not contradict itself: {read.findings[0].detail}")
        kind = min(kinds, key=lambda name: strangeness(mine, kinds[name]), default="")
        wanted = kinds.get(kind, Profile("none"))
        if len(kinds) > 1:
            case.facts["compared with"] = f"{kind} layers, the nearest of {', '.join(kinds)}"
        if wanted.layout is None:
            case.unexamined.append("layout: the configuration does not tell it")
    else:
        other = diagnose(expect, kind=kind, **options)
        if other.profile is None:
            raise InputError(f"what was expected cannot be examined itself:\n{other}")
        wanted = other.profile
    compare_profiles(mine, wanted, case)


def compare_scores(thing: object, other: object, options: dict[str, Any], case: Case) -> None:
    """Compare the scores that two rotary functions give, where no frequencies tell them apart."""
    pair = [as_subject(each, None, options) for each in (thing, other)]
    both = [Probe(each) for each in pair if isinstance(each, Rotary)]
    if len(both) < 2 or case.has("layout"):
        return
    q, k = (both[0].random().expand(1, 1, 64, -1) for _ in range(2))
    q, k = (x.repeat(1, both[0].subject.heads, 1, 1) for x in (q, k))
    mine, wanted = (
        y[0].double() @ y[1].double().mT
        for y in (probe.call(q, k, torch.arange(64)[None]) for probe in both)
    )
    off = float((mine - wanted).abs().max() / wanted.abs().max())
    if off > 1e-3:
        case.fault("scores-differ", f"by {off:.2g} of the largest, positions 0 to 63")


def strangeness(mine: Profile, wanted: Profile) -> int:
    """Return how many differences there are to what a kind of layer should be."""
    trial = Case()
    compare_profiles(mine, wanted, trial)
    return len(trial.findings)


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


__all__ = ["Absolute", "Bias", "InputError", "PositionIds", "Report", "Rotary", "RotaryFunction",
           "Tables", "compare", "diagnose"]  # fmt: skip
