"""What a thing does with positions, in numbers: what the doctor measures and compares."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor

from pe_lib.rope_scaling import dynamic_ntk
from posdoctor.findings import FAULT, NOTE, UNSURE, Finding
from posdoctor.probes import Layout
from posdoctor.rules import Rule
from posdoctor.tolerances import CLOSE, LOST, RECOGNISED

NEAR = 96  # distances whose middle difference is the number that the softmax ignores
TINY = torch.finfo(torch.float32).tiny
SAME = 4 * CLOSE  # of a measured frequency and an expected one, as a share


@dataclass
class Profile:
    """What was measured, or what a configuration asks for. None means not known.

    Attributes:
        kind: "rotary", "bias", "absolute", "scaling" or "position_ids".
        dim: width d of a head.
        layout: of the pairs.
        inv_freq: (n, axes) radians per position, in the pairs' order; up to `long_from` positions.
        attention_factor: on queries, and on keys.
        rule: that the rates follow.
        bias: (heads, n) values of a bias for one query.
        distances: (n,) of the keys that have them, key - query.
        table: (positions, D) codes.
        ids: of a builder, by the trap: (B, L) or (3, L) position ids.
        backwards: whether queries and keys both rotate against the usual direction.
        inv_freq_long: (n, axes), in calls that are longer than `long_from`; None if they are the
            same, or (dynamic NTK) follow the length.
        long_from: longest call that has `inv_freq`; None if all have.
        at_length: measures (n, axes) in a call of some length; None where that is refused.
    """

    kind: str
    dim: int | None = None
    layout: Layout | None = None
    inv_freq: Tensor | None = None
    attention_factor: float | None = None
    rule: Rule | None = None
    bias: Tensor | None = None
    distances: Tensor | None = None
    table: Tensor | None = None
    ids: dict[str, Tensor] = field(default_factory=dict)
    backwards: bool = False
    inv_freq_long: Tensor | None = None
    long_from: int | None = None
    at_length: Callable[[int], Tensor | None] | None = None

    def inv_freq_at(self, length: int) -> Tensor | None:
        """Return the frequencies (n, axes) in a call of some length; None if nobody knows them."""
        if self.long_from is None or length <= self.long_from:
            return self.inv_freq
        if self.at_length is not None:
            return self.at_length(length)
        if self.rule is not None and self.rule.name == "dynamic" and self.inv_freq is not None:
            factor, slow = self.rule.factor, self.inv_freq.sum(1)
            return dynamic_ntk(slow, factor, self.long_from, length)[:, None]
        return self.inv_freq_long


@dataclass
class Case:
    """What an examination collects.

    Attributes:
        facts: in words, by topic.
        findings: in the order in which they were found.
        unexamined: what was not looked at, and why.
        curves: error of the angle by position ("precision"), and the rule that it gave away.
    """

    facts: dict[str, str] = field(default_factory=dict)
    findings: list[Finding] = field(default_factory=list)
    unexamined: list[str] = field(default_factory=list)
    curves: dict[str, Any] = field(default_factory=dict)

    def find(self, name: str, level: str, detail: str = "", where: str = "") -> None:
        """Add a finding, once."""
        finding = Finding(name, level, detail, where)
        if finding.name not in {each.name for each in self.findings if each.where == where}:
            self.findings.append(finding)

    def fault(self, name: str, detail: str = "", where: str = "") -> None:
        """Add a fault."""
        self.find(name, FAULT, detail, where)

    def unsure(self, name: str, detail: str = "", where: str = "") -> None:
        """Add what may be meant."""
        self.find(name, UNSURE, detail, where)

    def note(self, name: str, detail: str = "", where: str = "") -> None:
        """Add what is legal, but matters in a port."""
        self.find(name, NOTE, detail, where)

    def drop(self, name: str) -> None:
        """Take back a finding that another one explains."""
        self.findings = [each for each in self.findings if each.name != name]

    def has(self, *names: str) -> bool:
        """Return whether one of these was found."""
        return any(finding.name in names for finding in self.findings)


def compare_profiles(mine: Profile, other: Profile, case: Case) -> None:
    """Add what differs between what was measured and what was expected."""
    if mine.kind != other.kind:
        case.fault("kind", f"{mine.kind}, expected {other.kind}")
        return
    compare_ids(mine, other, case)
    if mine.table is not None and other.table is not None:
        compare_codes(mine, other, case)
        return
    if mine.bias is not None and other.bias is not None:
        compare_biases(mine, other, case)
    if mine.layout is not None and other.layout is not None:
        compare_layouts(mine, other, case)
    if mine.inv_freq is not None and other.inv_freq is not None:
        compare_rates(mine, other, case)
        if mine.long_from is not None or other.long_from is not None:
            compare_lengths(mine, other, case)
    if mine.backwards != other.backwards:
        case.drop("direction")
        case.fault("direction")
    if (
        mine.attention_factor is not None
        and other.attention_factor is not None
        and abs(mine.attention_factor / other.attention_factor - 1) > RECOGNISED
    ):
        times = (mine.attention_factor / other.attention_factor) ** 2
        found = f"{mine.attention_factor:.4f}, expected {other.attention_factor:.4f}"
        case.fault("gain", f"{found}: scores times {times:.3f}")


def compare_biases(mine: Profile, other: Profile, case: Case) -> None:
    """Compare biases by distance, up to a number that the softmax cannot see."""
    assert mine.bias is not None and other.bias is not None
    assert mine.distances is not None and other.distances is not None
    if len(mine.bias) != len(other.bias):
        case.fault("bias-values", f"{len(mine.bias)} heads, expected {len(other.bias)}")
        return
    ours, theirs = (torch.isin(x, y) for x, y in (
        (mine.distances, other.distances), (other.distances, mine.distances)))  # fmt: skip
    a, b, away = mine.bias[:, ours], other.bias[:, theirs], mine.distances[ours]
    past, hides = away <= 0, a.isinf() != b.isinf()
    hidden = a.isinf() | b.isinf()
    a, b = (x.masked_fill(hidden, 0) for x in (a, b))
    apart = (a - b).masked_fill(hidden | ~past | (away < -NEAR), torch.nan)
    level = apart.nanmedian(1).values.nan_to_num()
    off = (a - b - level[:, None]).masked_fill(hidden, 0)
    wrong = (off.abs() > CLOSE * b.abs().clamp(min=1)) | hides
    if not bool(wrong[:, past].any()):
        if bool(wrong.any()):
            case.unsure("bias-future", f"{int(wrong.any(0).sum())} distances")
        return
    where = away[past & wrong.any(0)].abs()
    words = f"{len(where)} of {int(past.sum())} distances, the nearest is {int(where.min())}"
    if bool(hides[:, past].any()):
        seen = [int(x.bias[0, some][past].isfinite().sum()) for x, some in
                ((mine, ours), (other, theirs)) if x.bias is not None]  # fmt: skip
        words += f"; the query sees {seen[0]} keys, expected {seen[1]}"
    else:
        words += f"; largest difference {float(off[:, past].abs().max()):.3g}"
    case.fault("bias-values", words)


def compare_ids(mine: Profile, other: Profile, case: Case) -> None:
    """Compare position ids by trap."""
    for trap in (trap for trap in mine.ids if trap in other.ids):
        a, b = mine.ids[trap], other.ids[trap]
        if not torch.equal(a, b):
            row, token = (a != b).nonzero()[0].tolist()
            words = f"token {token} of row {row} gets {int(a[row, token])}"
            case.fault("ids-differ", f"{words}, expected {int(b[row, token])}", trap)


def compare_codes(mine: Profile, other: Profile, case: Case) -> None:
    """Compare codes by value, and say in which way they differ."""
    assert mine.table is not None and other.table is not None
    count = min(len(mine.table), len(other.table))
    a, b = mine.table[:count], other.table[:count]
    if a.shape[1] != b.shape[1]:
        case.fault("code-values", f"{a.shape[1]} components, expected {b.shape[1]}")
        return
    close = LOST / 50 * float(b.abs().max())
    wrong = (a - b).abs().amax(1) > close
    if not bool(wrong.any()):
        return
    for shift in (step for size in range(1, 5) for step in (size, -size)):
        ours = a[max(0, -shift) : count - max(0, shift)]
        if float((ours - b[max(0, shift) :][: len(ours)]).abs().max()) < close:
            case.drop("code-shifted")
            case.fault("code-shifted", f"position p gets the expected code of p{shift:+d}")
            return
    weights = torch.randn(count, generator=torch.Generator().manual_seed(0)).double()
    keys = [(weights @ x).sort() for x in (a, b)]
    if float((a[:, keys[0].indices] - b[:, keys[1].indices]).abs().max()) < close:
        case.fault("code-order", "the same components, in another order")
        return
    times = float((a * b).sum() / (b * b).sum())
    if float((a - times * b).abs().max()) < close * max(1.0, abs(times)):
        case.fault("code-scale", f"{times:.4g} times the expected")
        return
    before = len(case.findings)
    if mine.inv_freq is not None and other.inv_freq is not None:
        compare_rates(mine, other, case)
    if len(case.findings) == before:
        first = f"{int(wrong.sum())} of {count} positions, the first is {int(wrong.nonzero()[0])}"
        case.fault("code-values", f"{first}; largest difference {float((a - b).abs().max()):.3g}")


def compare_layouts(mine: Profile, other: Profile, case: Case) -> None:
    """Compare which components pair, how many, and at which end.

    A function that is given nothing but what rotates has no other end.
    """
    ours, theirs = mine.layout, other.layout
    assert ours is not None and theirs is not None
    if ours.width != theirs.width:
        case.fault("rotary-width", f"{ours.width} components, expected {theirs.width}")
    elif ours.start != theirs.start and ours.width not in (mine.dim, other.dim):
        case.fault("which-end", f"from component {ours.start}, expected {theirs.start}")
    if ours.name != theirs.name:
        case.fault("layout", f"{ours.name}, expected {theirs.name}")


def compare_rates(mine: Profile, other: Profile, case: Case, where: str = "") -> None:
    """Compare frequencies, and say in which way they differ."""
    assert mine.inv_freq is not None and other.inv_freq is not None
    a, b = mine.inv_freq.abs(), other.inv_freq.abs()
    if len(a) != len(b):
        if not case.has("rotary-width"):
            case.fault("frequencies", f"{len(a)} pairs rotate, expected {len(b)}", where)
        return
    untold = a.shape != b.shape and other.layout is None  # which pairs are an axis's
    if a.shape != b.shape:
        case.unexamined.append(f"axes: {a.shape[1]} were measured, {b.shape[1]} are expected")
    elif a.shape[1] > 1 and not equal_rates(a, b) and compare_axes(a, b, case):
        return
    a, b = a.sum(1), b.sum(1)
    if equal_rates(a[:, None], b[:, None]):
        return
    ours, theirs = mine.rule or Rule("unknown"), other.rule or Rule("unknown")
    detail = f"{ours}, expected {theirs}"
    if ours.name == theirs.name == "default":
        wider = math.log(theirs.base) / math.log(ours.base)
        if abs(wider - 2) < RECOGNISED:
            case.fault("exponent-halved", detail, where)
        elif wider > 2 and abs(wider - round(wider)) < RECOGNISED:
            width = f"{round(wider)} times the width of what rotates"
            case.fault("exponent-over-whole-width", f"{detail}: as over {width}", where)
        else:
            case.fault("base", detail, where)
        return
    ratio = a / b.clamp(min=TINY)
    if float(ratio.max() / ratio.min() - 1) < SAME:
        case.fault("factor", f"{detail}: all are {float(ratio.mean()):.4g} times as fast", where)
    elif untold and torch.allclose(a.sort().values, b.sort().values, rtol=SAME):
        case.unexamined.append("the order of the pairs: nothing says which are an axis's")
    elif torch.allclose(a.sort().values, b.sort().values, rtol=SAME):
        case.fault("frequencies", "the expected ones, in another order", where)
    elif "unknown" not in (ours.name, theirs.name) and ours.name != theirs.name:
        case.fault("rule", detail, where)
    elif ours.base != theirs.base and ours.name == theirs.name != "unknown":
        case.fault("base", detail, where)
    else:
        worst = int((ratio.log().abs()).argmax())
        off = f"pair {worst} is {float(ratio[worst]):.4g} times as fast"
        case.fault("frequencies", f"{detail}: {off}", where)


def equal_rates(a: Tensor, b: Tensor) -> bool:
    """Return whether frequencies (n, axes) are equal, as shares of what each pair does."""
    return float(((a - b).abs() / b.sum(1, keepdim=True).clamp(min=TINY)).max()) < SAME


def compare_lengths(mine: Profile, other: Profile, case: Case) -> None:
    """Compare frequencies in longer calls, where either has others than in short ones."""
    known = [one.long_from for one in (mine, other) if one.long_from is not None]
    lengths = sorted({*known, *(each + 1 for each in known), *(2**k + 1 for k in range(6, 21))})
    wrong, refused = [], []
    for length in (each for each in lengths if each > min(known)):
        a, b = (one.inv_freq_at(length) for one in (mine, other))
        if a is None or b is None:
            refused.append(length)
        elif len(a) == len(b) and not equal_rates(a.sum(1)[:, None], b.sum(1)[:, None]):
            wrong.append((length, a, b))
    if refused:
        case.unexamined.append(f"frequencies in calls of {runs_of(refused)} positions")
    if not wrong:
        return
    length, a, b = wrong[0]
    short = mine.inv_freq is not None and equal_rates(a, mine.inv_freq)
    words = "those of short calls" if short else "others than in short calls"
    pair = int((a / b.clamp(min=TINY)).log().abs().amax(1).argmax())
    times = float(a[pair].sum() / b[pair].sum())
    case.fault(
        "frequencies",
        f"{words}; in a call of {length} positions pair {pair} is {times:.4g} times as fast as "
        "expected",
        f"calls of {runs_of([each[0] for each in wrong])} positions",
    )


def runs_of(lengths: list[int]) -> str:
    """Return lengths in words: the first and the last."""
    return f"{lengths[0]} to {lengths[-1]}" if len(lengths) > 1 else str(lengths[0])


def compare_axes(a: Tensor, b: Tensor, case: Case) -> bool:
    """Say how the axes' frequencies (n, axes) differ; return whether that explains it."""
    axes = range(a.shape[1])
    for one in axes:
        for two in range(one):
            swapped = b.clone()
            swapped[:, [one, two]] = b[:, [two, one]]
            if equal_rates(a, swapped):
                case.fault("axes-exchanged", f"axes {two} and {one}")
                return True
    turned = [x > 0 for x in (a, b)]
    if not torch.equal(*turned):
        each = [["".join(str(n) for n in axes if pair[n]) or "none" for pair in x] for x in turned]
        case.fault("axes-split", "axes of each pair: {}, expected {}".format(*map(" ".join, each)))
        return True
    return False
