"""Every path through a function: the same token at the same position must come back the same.

Code branches on the length of a call (decoding, a speculative window, a long prompt), on the
batch, on types, strides and the number of key heads. Each branch is called, and each token
compared with what it gets in the plainest call: a run of 32 positions, one sequence, float32.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from copy import deepcopy
from dataclasses import replace
from typing import Any, NamedTuple

import torch
from torch import Tensor

from pe_lib.sinusoidal import LAYOUTS
from posdoctor.probes import SIDES, Layout, Pairs, Probe, call, layout_of, pairs_of, turned
from posdoctor.profile import Case
from posdoctor.rules import geometric, relative_error, series
from posdoctor.subjects import InputError, Rotary

RUN, BANK = 32, 97
BLOCKS = (64, 128, 256)
LIMITS = (512, 2048)
WIDTHS = (80, 128)
SHORT = (torch.bfloat16, torch.float16)
Both = tuple[Tensor, Tensor]


class Path(NamedTuple):
    """One call: positions (B, L), and what is unlike the plainest call."""

    name: str
    label: str
    places: Tensor
    dtype: torch.dtype = torch.float32
    integer: torch.dtype = torch.int64
    strided: bool = False
    key_heads: int = 0


class Reference:
    """What each position's own vector becomes in runs of 32 positions, kept run by run.

    Args:
        probe: of what is examined.
        counted: the function counts by itself, so that there is only the run from 0.
    """

    def __init__(self, probe: Probe, counted: bool) -> None:
        """Draw the vectors: (heads, 97, d), of which position p has number p % 97."""
        self.probe, self.subject, self.counted = probe, probe.subject, counted
        self.only_runs = probe.subject.runs or probe.by_first
        subject = probe.subject
        generator = torch.Generator().manual_seed(17)
        self.bank = torch.randn(subject.heads, BANK, subject.head_dim, generator=generator)
        self.runs: dict[int, Both] = {}

    def vectors(self, places: Tensor) -> Tensor:
        """Return the vectors of positions (B, L): (B, H, L, d)."""
        return self.bank[:, places % BANK].transpose(0, 1).contiguous()

    @torch.no_grad()
    def call(self, q: Tensor, k: Tensor, places: Tensor, fresh: Any = None) -> Both:
        """Call the function, or a fresh copy of it, with positions (B, L)."""
        function = self.subject.function if fresh is None else fresh
        both = call(function, q, k, self.probe.places(places), flat=self.probe.flat)
        return both[0].double(), both[1].double()

    def at(self, places: Tensor) -> Both:
        """Return queries and keys (B, H, L, w) at positions (B, L)."""
        size = 1 << 62 if self.counted else RUN
        for number in (places // size).unique().tolist():
            if number not in self.runs:
                length = 2 * RUN if self.counted else RUN
                run = number * RUN + torch.arange(length)[None]
                x = self.vectors(run)
                self.runs[number] = self.call(x, x, run)
        numbers, which = (places // size).unique(return_inverse=True)
        width = self.runs[0 if self.counted else int(numbers[0])][0].shape[2]
        index = which * width + places % size
        q, k = (
            torch.cat([self.runs[number][side][0] for number in numbers.tolist()], dim=1)
            for side in (0, 1)
        )
        return q[:, index].transpose(0, 1), k[:, index].transpose(0, 1)


def consecutive(start: int, length: int, batch: int = 1, apart: int = 0) -> Tensor:
    """Return rows of consecutive positions, (batch, length), each row `apart` further on."""
    return start + torch.arange(length) + apart * torch.arange(batch)[:, None]


def paths_of(
    reach: int,
    counted: bool,
    flat: bool,
    runs: bool,
    dtypes: tuple[torch.dtype, ...],
    thorough: bool,
) -> Iterator[Path]:
    """Yield the calls that are compared, as far as positions may go."""
    start, apart = (0, 0) if counted else (17, 0 if flat else 3)
    places = (0,) if counted else (0, 1, 17, 40, 63, 100, 700, reach - RUN - 1)
    for place in (p for p in places if 0 <= p < reach - RUN):
        yield Path("one-token", f"one token at position {place}", torch.tensor([[place]]))
    yield Path("one-token", "one token in two rows", consecutive(start, 1, 2, apart))
    for length in range(11, 67, 2) if thorough else (11, 13, 33):
        yield Path("odd-length", f"{length} tokens", consecutive(start, length))
    for length in (*range(2, 11), 16) if thorough else (2, 3, 4, 7, 8, 10, 16):
        yield Path("few-tokens", f"{length} tokens", consecutive(start, length))
    limits = (*range(64, 600, 64), 1000, 1024, 2048, 4096, 8192) if thorough else LIMITS
    for length in (*BLOCKS, *(limit + step for limit in limits for step in (-1, 0, 1))):
        if not counted and start + length < reach - RUN:
            yield Path("long-input", f"{length} tokens", consecutive(start, length))
    for batch in range(2, 18) if thorough else (2, 8):
        yield Path("batch", f"{batch} rows", consecutive(start, 12, batch, apart))
    usual = consecutive(start, 12, 1 if flat else 2, apart)
    for short in dtypes:
        words = str(short).removeprefix("torch.")
        near = consecutive(0, 12, len(usual))  # here rounded angles are still right
        yield Path("short-floats", words, near, dtype=short)
        yield Path("short-floats", f"one token in {words}", near[:, :1], dtype=short)
    yield Path("int32-positions", "int32 positions", usual, integer=torch.int32)
    yield Path("strides", "transposed memory", usual, strided=True)
    yield Path("grouped-heads", "one head of keys", usual, key_heads=1)
    if not counted and not runs:
        jumps = [0, 1, 2, 40, 41, 100, 101, 700, 701, 5, 6, 7, 0, 1, 2, 1500, 1501, 3]
        some = torch.tensor([[p for p in jumps if p < reach - RUN]])
        yield Path("jumps", "jumps and restarts", some)


@torch.no_grad()
def examine_paths(
    probe: Probe,
    case: Case,
    *,
    reach: int,
    layout: Layout | None = None,
    counted: bool = False,
    fresh: object = None,
    dtypes: tuple[torch.dtype, ...] = (),
    thorough: bool = False,
) -> None:
    """Call every path, and name those on which a token comes back otherwise.

    Args:
        probe: of the function.
        case: gets what is found.
        reach: positions below it are taken.
        layout: of its pairs, if that is known.
        counted: the function counts by itself.
        fresh: a copy of the function that has not been called.
        dtypes: short types of queries and keys.
        thorough: many more lengths and batches.
    """
    subject, known = probe.subject, Reference(probe, counted)
    refused: dict[str, str] = {}
    tried = 0
    heads_apart(known, case)
    alone = probe.flat or known.only_runs or case.has("rows-share-positions", "rows-interfere")
    for path in paths_of(reach, counted, alone, known.only_runs, dtypes, thorough):
        if case.has(path.name) or explained_already(path, case):
            continue
        try:
            wanted, got = known.at(path.places), answer(known, path)
        except Exception as error:  # whatever the function under examination raises
            refused.setdefault(path.label, type(error).__name__)
            continue
        tried += 1
        off = differs(got, wanted, path)
        if off:
            detail = f"{path.label}: {off}{explained(known, path, got, layout)}"
            case.fault(path.name, detail)
    after_a_start(known, fresh, reach, case)
    if dtypes and not case.has("state", "short-floats"):
        after_short_floats(known, dtypes, case)
    other_widths(subject, case)
    case.facts["paths"] = f"{tried} calls by length, batch, type, memory and heads"
    if refused:
        words = ", ".join(f"{label} ({error})" for label, error in refused.items())
        case.unexamined.append(f"calls that the function refused: {words}")


def explained_already(path: Path, case: Case) -> bool:
    """Return whether a path takes a branch that was found to be wrong."""
    length = path.places.shape[1]
    return (
        (length == 1 and case.has("one-token"))
        or (1 < length <= 16 and case.has("few-tokens"))
        or (length > 1 and length % 2 == 1 and case.has("odd-length"))
        or (path.name == "grouped-heads" and case.has("heads-mixed"))
        or (path.name == "batch" and case.has("rows-share-positions", "rows-interfere"))
    )


def answer(known: Reference, path: Path) -> Both:
    """Call the function as a path says."""
    x = known.vectors(path.places).to(path.dtype)
    if path.strided:
        x = x.transpose(1, 2).contiguous().transpose(1, 2)
    k = x[:, : path.key_heads] if path.key_heads else x
    return known.call(x, k, path.places.to(path.integer))


def bound_of(path: Path) -> float:
    """Return what rounding may do to a result of the size 1."""
    return 0.06 if path.dtype in SHORT else 2e-3


def differs(got: Both, wanted: Both, path: Path) -> str:
    """Return in words on which side a path differs; nothing if it agrees."""
    bound, sides = bound_of(path), []
    for name, one, other in zip(SIDES, got, wanted, strict=True):
        other = other[:, : one.shape[1]]
        if one.shape != other.shape:
            return f"the result has the shape {tuple(one.shape)}"
        if not float((one - other).abs().max()) <= bound * max(1.0, float(other.abs().max())):
            sides.append(name)
    return " and ".join(sides) + (" come back otherwise" if sides else "")


def explained(known: Reference, path: Path, got: Both, layout: Layout | None) -> str:
    """Return which other positions would explain what came back, if some do."""
    places, counts = path.places, known.counted or known.only_runs
    readings: dict[str, Tensor] = {
        "as position 0": torch.zeros_like(places),
        "as one position later": places + 1,
        "as one position earlier": places - 1,
        "as if counted from 0": torch.arange(places.shape[1]).expand(places.shape),
        "all as the first position of the call": places[:, :1].expand(places.shape),
        "with the positions of the first row": places[:1].expand(places.shape),
    }
    if counts or layout is None or layout.name not in LAYOUTS or places.shape[1] > RUN:
        return ""

    def turns(both: Both, at: Tensor) -> Tensor:
        before = known.vectors(at)
        return torch.stack([
            turned(x, x0[: len(x)], layout)[0]
            for side in both for x, x0 in zip(side, before, strict=True)
        ])  # fmt: skip

    mine = turns(got, places)
    for words, others in readings.items():
        if int(others.min()) < 0 or torch.equal(others, places):
            continue
        if float((mine - turns(known.at(others), others)).abs().max()) < bound_of(path):
            return f", {words}"
    return ""


def heads_apart(known: Reference, case: Case) -> None:
    """Compare heads of different contents with the same contents in all heads."""
    places = consecutive(0, RUN)
    x = known.vectors(places)
    together = known.at(places)
    for head in range(known.subject.heads):
        same = x[:, head : head + 1].expand(x.shape).contiguous()
        alone = known.call(same, same, places)
        for name, one, other in zip(SIDES, together, alone, strict=True):
            if float((one[:, head] - other[:, head]).abs().max()) > 2e-3:
                case.fault("heads-mixed", f"head {head}", name)


def after_a_start(known: Reference, fresh: object, reach: int, case: Case) -> None:
    """Ask a function that has not been called yet for few positions, then for more."""
    if fresh is None or known.counted:
        return
    far = consecutive(min(40, reach - 2 * RUN), RUN)
    try:
        for places in (consecutive(0, 4), far, consecutive(0, 4), far):
            x = known.vectors(places)
            got = known.call(x, x, places, fresh)
            if differs(got, known.at(places), Path("state", "", places)):
                case.fault("state", f"positions {int(places[0, 0])} to {int(places[0, -1])}, "
                                    "after a call with positions 0 to 3")  # fmt: skip
                return
    except Exception as error:
        case.unexamined.append(f"a longer call after a short one: {type(error).__name__}: {error}")


def after_short_floats(known: Reference, dtypes: tuple[torch.dtype, ...], case: Case) -> None:
    """Ask in float32 what was asked before the calls in short floats."""
    again, places = Reference(known.probe, known.counted), consecutive(0, RUN)
    pairs = zip(again.at(places), known.at(places), strict=True)
    if any(float((new - old).abs().max()) > 1e-5 * float(old.abs().max()) for new, old in pairs):
        words = " and ".join(str(short).removeprefix("torch.") for short in dtypes)
        case.fault("state", f"float32 after calls in {words}")


def uncalled(function: Callable[..., object]) -> object:
    """Return a copy of a function that can have a memory; None where there is none."""
    if not hasattr(function, "__dict__") or isinstance(function, type(uncalled)):
        return None
    try:
        return deepcopy(function)
    except Exception:  # what cannot be copied is examined as it is
        return None


def other_widths(subject: Rotary, case: Case) -> None:
    """Compare the layout, the share that rotates and the series at other widths of a head."""
    places = torch.tensor([[1, 2, 3, 5, 8, 13, 31, 63]])
    seen: dict[int, tuple[str, int, float]] = {}
    for width in (subject.head_dim, *WIDTHS):
        try:
            probe = Probe(replace(subject, head_dim=width))
            matrix = probe.matrix(places)[1, 0, 0]
            pairs = pairs_of(matrix)
        except (InputError, RuntimeError, ValueError, TypeError, IndexError, AssertionError):
            continue
        base = base_of(matrix[0], pairs)
        seen[width] = layout_of(pairs.inputs).name, len(pairs.inputs), base
    if subject.head_dim not in seen:
        return
    layout, moving, known = seen[subject.head_dim]
    fixed = all(count == moving for _, count, _ in seen.values())
    for width, (other, count, base) in seen.items():
        share = fixed or count * subject.head_dim == moving * width
        if (other != layout and "irregular" not in (other, layout)) or not share:
            part = f"{other}, {2 * count} components rotate; at {subject.head_dim} {layout}, "
            case.fault("width", f"at width {width} {part}{2 * moving}")
            return
        if known and not base:  # which base may depend on the width, as in NTK-aware scaling
            words = f"at {subject.head_dim} the frequencies are of base {known:.6g}, of none at"
            case.fault("width", f"{words} {width}")
            return


def base_of(matrix: Tensor, pairs: Pairs) -> float:
    """Return the base of the frequencies by what position 1 does, (d, d); 0 if they have none."""
    block = matrix[pairs.outputs[:, :, None], pairs.inputs[:, None]]  # (n, 2, 2)
    (a, b), (c, e) = (row.unbind(-1) for row in block.unbind(-2))
    inv_freq = torch.atan2(c - b, a + e).abs()
    if len(inv_freq) < 2 or float(inv_freq.min()) <= 0:
        return 0.0
    base, first = geometric(inv_freq)
    fits = base > 1 and relative_error(inv_freq, first * series(len(inv_freq), base)) < 1e-3
    return base if fits else 0.0


__all__ = ["Reference", "examine_paths", "uncalled"]
