"""The doctor: `diagnose` a thing, or `compare` two, and get a report."""

from __future__ import annotations

import copy
from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor

from pe_lib.encoding import PositionEncoding
from pe_lib.rope import split_pairs
from pe_lib.sinusoidal import arrange
from posdoctor.biases import examine_absolute, examine_bias
from posdoctor.configuration import examine_configuration
from posdoctor.expected import compare_scores, judge, loaded
from posdoctor.models import examine_model, is_model
from posdoctor.paths import uncalled
from posdoctor.position_ids import examine_position_ids
from posdoctor.profile import Case
from posdoctor.report import Report
from posdoctor.rotary import examine_rotary
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

HOOKS = {"rotary": "rotate", "bias": "bias", "absolute": "embed"}  # of encodings of this library
KINDS = {"rotary": Rotary, "bias": Bias, "absolute": Absolute, "position_ids": PositionIds}
SHORT = (torch.bfloat16, torch.float16)


def diagnose(
    thing: object,
    *,
    kind: str | None = None,
    expect: object = None,
    layer: str | int | None = None,
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
        layer: of a configuration that is expected: the kind of the layer that is meant, as
            "full_attention", or its number; expect={"config": ..., "layer": ...} says the same.
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
        beside = expect if is_model(expect) else None
        report = examine_model(thing, beside)
        expect = expect if beside is None else None
    elif isinstance(thing, Mapping):
        case = Case()
        report = Report("configuration", case, examine_configuration(thing, case))
    else:
        if blhd and callable(thing):
            thing = of_blhd(thing)
            if callable(expect) and not isinstance(expect, PositionEncoding):
                expect = of_blhd(expect)
        report = of_subject(as_subject(thing, kind, options), dtypes, thorough)
        report.untold = expect is None
    if expect is not None:
        judge(report, expect, lambda other: diagnose(other, kind=kind, **options), layer)
        if callable(expect) and report.case.has("grid", "not-proportional"):
            pair = [as_subject(each, None, options) for each in (thing, expect)]
            compare_scores(pair, report.case)
    return report


def compare(one: object, other: object, **options: Any) -> Report:
    """Examine one thing, and say how it differs from another: a port from its original.

    Raises:
        InputError: if either cannot be examined.
    """
    return diagnose(one, expect=other, **options)


def as_subject(thing: object, kind: str | None, options: dict[str, Any]) -> Subject:
    """Return the thing as what can be examined."""
    if isinstance(thing, Subject):
        return thing
    if isinstance(thing, PositionEncoding):
        hook = HOOKS.get(kind or "rotary", "")
        hooks = subjects_of(thing, options.get("head_dim", 32), options.get("heads", 4))
        if hook not in hooks:
            raise InputError(f"{type(thing).__name__} has nothing of the kind {kind!r}")
        return hooks[hook]
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


__all__ = ["Absolute", "Bias", "InputError", "PositionIds", "Report", "Rotary", "RotaryFunction",
           "Tables", "compare", "diagnose"]  # fmt: skip
