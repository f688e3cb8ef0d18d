"""What a thing does with positions, in numbers: what the doctor measures and compares."""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor

from clinic.findings import FAULT, NOTE, UNSURE, Finding
from clinic.probes import Layout
from clinic.rules import CLOSE, Rule


@dataclass
class Profile:
    """What was measured, or what a configuration asks for. None means not known.

    Attributes:
        kind: "rotary", "bias" or "absolute".
        dim: width d of a head.
        layout: of the pairs.
        rates: (n, axes) radians per position, in the pairs' order.
        gain: factor on queries, and on keys.
        rule: that the rates follow.
        bias: (heads, 2L - 1) values by relative position, of a bias.
        backwards: whether queries and keys both rotate against the usual direction.
    """

    kind: str
    dim: int | None = None
    layout: Layout | None = None
    rates: Tensor | None = None
    gain: float | None = None
    rule: Rule | None = None
    bias: Tensor | None = None
    backwards: bool = False


@dataclass
class Case:
    """What an examination collects.

    Attributes:
        facts: in words, by topic.
        findings: in the order in which they were found.
        unexamined: what was not looked at, and why.
        curves: what `Report.draw` draws.
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

    def has(self, *names: str) -> bool:
        """Return whether one of these was found."""
        return any(finding.name in names for finding in self.findings)


def compare_profiles(mine: Profile, other: Profile, case: Case) -> None:
    """Add what differs between what was measured and what was expected."""
    if mine.kind != other.kind:
        case.fault("kind", f"{mine.kind}, expected {other.kind}")
        return
    if mine.bias is not None and other.bias is not None:
        compare_biases(mine.bias, other.bias, case)
    if mine.layout is not None and other.layout is not None:
        compare_layouts(mine, other, case)
    if mine.rates is not None and other.rates is not None:
        compare_rates(mine, other, case)
    if mine.backwards != other.backwards:
        case.findings = [each for each in case.findings if each.name != "direction"]
        case.fault("direction")
    if mine.gain is not None and other.gain is not None and abs(mine.gain / other.gain - 1) > 1e-3:
        times = (mine.gain / other.gain) ** 2
        case.fault("gain", f"{mine.gain:.4f}, expected {other.gain:.4f}: scores times {times:.3f}")


def compare_biases(mine: Tensor, other: Tensor, case: Case) -> None:
    """Compare biases by distance."""
    if mine.shape != other.shape or float((mine - other).abs().max()) > 1e-4:
        size = float((mine - other).abs().max()) if mine.shape == other.shape else float("nan")
        case.fault("bias-values", f"largest difference {size:.3g}")


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


def compare_rates(mine: Profile, other: Profile, case: Case) -> None:
    """Compare frequencies, and say in which way they differ."""
    assert mine.rates is not None and other.rates is not None
    a, b = mine.rates.abs(), other.rates.abs()
    if a.shape != b.shape:
        if not case.has("rotary-width"):
            case.fault("frequencies", f"{tuple(a.shape)} of them, expected {tuple(b.shape)}")
        return
    scale = b.sum(1, keepdim=True).clamp(min=1e-12)
    if float(((a - b).abs() / scale).max()) < 5 * CLOSE:
        return
    if a.shape[1] > 1 and compare_axes(a, b, case):
        return
    a, b = a.sum(1), b.sum(1)
    ours, theirs = mine.rule or Rule("unknown"), other.rule or Rule("unknown")
    detail = f"{ours}, expected {theirs}"
    if ours.name == theirs.name == "default":
        wider = math.log(theirs.base) / math.log(ours.base)
        if abs(wider - 2) < 1e-3:
            case.fault("exponent-halved", detail)
        elif wider > 2 and abs(wider - round(wider)) < 1e-3:
            width = f"{round(wider)} times the width of what rotates"
            case.fault("exponent-over-whole-width", f"{detail}: as over {width}")
        else:
            case.fault("base", detail)
        return
    ratio = a / b.clamp(min=1e-12)
    if float(ratio.max() / ratio.min() - 1) < 5 * CLOSE:
        case.fault("factor", f"{detail}: all are {float(ratio.mean()):.4g} times as fast")
    elif torch.allclose(a.sort().values, b.sort().values, rtol=5 * CLOSE):
        case.fault("frequencies", "the expected ones, in another order")
    elif "unknown" not in (ours.name, theirs.name) and ours.name != theirs.name:
        case.fault("rule", detail)
    elif ours.base != theirs.base and ours.name == theirs.name != "unknown":
        case.fault("base", detail)
    else:
        case.fault("frequencies", detail)


def compare_axes(a: Tensor, b: Tensor, case: Case) -> bool:
    """Say how the axes' frequencies (n, axes) differ; return whether that explains it."""
    axes = range(a.shape[1])
    for one in axes:
        for two in range(one):
            swapped = b.clone()
            swapped[:, [one, two]] = b[:, [two, one]]
            if torch.allclose(a, swapped, rtol=1e-3, atol=1e-9):
                case.fault("axes-exchanged", f"axes {two} and {one}")
                return True
    if not torch.equal(a > 1e-12, b > 1e-12):
        owners = [[int((x[:, axis] > 1e-12).sum()) for axis in axes] for x in (a, b)]
        case.fault("axes-split", f"pairs by axis {owners[0]}, expected {owners[1]}")
        return True
    return False
