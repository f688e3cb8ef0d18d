"""The examination of a rotary function."""

from __future__ import annotations

import math
from collections.abc import Callable
from copy import deepcopy
from dataclasses import replace
from functools import cache
from itertools import pairwise
from typing import Any

import torch
from torch import Tensor

from posdoctor.paths import examine_paths
from posdoctor.precision import examine_precision, fits_a_rule
from posdoctor.probes import (
    SIDES,
    Fit,
    Layout,
    Map,
    Pairs,
    Probe,
    doublings,
    fit_of,
    grid_width,
    layout_of,
    line,
    pairs_of,
    reachable,
    refined,
    spread,
    track,
)
from posdoctor.profile import Case, Profile
from posdoctor.rules import (
    USUAL,
    Rule,
    geometric,
    identify,
    is_yarn_attention_factor,
    readings_of,
    series,
    snapped,
    usual,
)
from posdoctor.subjects import Rotary
from posdoctor.tolerances import CLOSE, EXACT, LOST, RECOGNISED, rounding, turning

NEAR = 64  # consecutive positions to which lines are fitted
COARSE = rounding(torch.bfloat16, 4)  # radians: cosines and sines that are kept in a short float
PHASE = COARSE / 6  # radians at position 0 that a cosine in a short float leaves
STILL = torch.finfo(torch.float32).eps  # radians per position: a pair that does not rotate
MANY = 257  # times 16 tokens, more than a rule's trained length is as a rule
# Last positions of the calls that are compared.
LONGEST: tuple[int, ...] = tuple(2**k for k in range(5, 21))
ORDER = (4, 0, 9, 1, 7, 2, 10, 3, 8, 5, 6)


def alike(a: Tensor, b: Tensor, close: float = turning(4 * NEAR)) -> bool:
    """Return whether two results are equal up to rounding."""
    return bool((a - b).abs().max() <= close * max(1.0, float(b.abs().max())))


def examine_rotary(
    subject: Rotary,
    case: Case,
    dtypes: tuple[torch.dtype, ...] = (),
    *,
    fresh: Any = None,
    thorough: bool = False,
) -> Profile | None:
    """Examine a rotary function; return what it does, as far as that can be said.

    Args:
        subject: the function and how to call it.
        case: gets what is found.
        dtypes: short types in which it is called too.
        fresh: a copy of the function that has not been called, if it can have a memory.
        thorough: many more lengths and batches.
    """
    probe = Probe(subject)
    if probe.flat:
        case.unexamined.append(f"rows with positions of their own: (B, L) raised {probe.refused}")
    if not is_linear_map(probe, case):
        return None
    found, counted = use_of_positions(probe, case)
    options: dict[str, Any] = {"dtypes": dtypes, "thorough": thorough}
    if found is None:
        if case.has("positions-misread"):
            examine_paths(probe, case, reach=1024, **options)
            if case.has("odd-length", "few-tokens", "jumps"):
                case.drop("positions-misread")
        return None
    probe = found
    reach = reach_of(probe, counted)
    if reach == 0:
        case.unexamined.append(f"everything past the first 11 positions: {NEAR} were refused")
        return None
    both = structure(probe, case, reach, counted)
    if both is None:
        return None
    profile = Profile("rotary", subject.head_dim, layout_of(both[0].inputs))
    maps = probe.pairs(torch.arange(NEAR)[None], both)
    rotations = []
    for name, each, pairs in zip(SIDES, maps, both, strict=True):
        rotations.append(form(Map(each.z[0, 0], each.y[0, 0]), name, pairs, case))
    fits = tuple(fit_of(z, torch.arange(NEAR).double()) for z in rotations)
    for fit, name in zip(fits, SIDES, strict=True):
        explain_phases(fit, case, name)
    if case.has("mixed-layouts"):
        assert profile.layout is not None
        fits = tuple(by_component(fit, profile.layout) for fit in fits)
    sides(fits, case)
    profile.backwards = case.has("direction")
    clean = not case.has("mixed-layouts", "not-a-rotation", "overwritten", "sine-sign-lost")
    free = not counted and not probe.by_first and "gain" not in case.facts
    # Long calls may leave a memory.
    far_probe = probe.of(deepcopy(fresh) if fresh else subject.function)
    longest = longest_alike(far_probe, both, reach, case) if free else LONGEST[-1]
    reach = min(reach, longest + 1)
    if "gain" in case.facts:
        case.unexamined.append("other lengths and batches: the gain may be centred in each call")
    elif reach < NEAR:
        case.unexamined.append(f"other lengths and batches: calls past {longest} differ already")
    else:
        options |= {"layout": profile.layout, "counted": counted, "fresh": fresh}
        examine_paths(probe, case, reach=reach, **options)
    still = bool((fits[0].inv_freq.abs() < turning(NEAR) / NEAR).any())  # a grid's slow axis
    odd = still or not fits_a_rule(fits[0].inv_freq) or fits[0].error > LOST / 2
    if clean and odd and subject.axes == 1 and not counted:
        some = track(probe, both, torch.arange(min(reach, 1024)), counted)[0]
        if width := grid_width(some):
            case.unsure("grid", f"a grid {width} wide")
            case.unexamined.append("frequencies: one number stands for two")
            return profile
    if clean and case.has("heads-differ"):
        case.unexamined.append("far positions: heads differ")
    elif clean:
        far = doublings(reach)
        z = track(probe, both, far, counted)
        fits = tuple(sharpened(fit, one, far) for fit, one in zip(fits, z, strict=True))
        fits = examine_precision(probe, both, fits, far, longest, counted, case, dtypes)
    gains(fits, profile, case, clean)
    frequencies(subject, probe, both, fits, profile, case, reach, clean)
    if longest < LONGEST[-1]:
        profile.long_from = longest + 1
        profile.at_length = in_calls_of(far_probe, both)
    if clean:
        relativity(probe, reach, counted, case, dtypes)
    return profile


def is_linear_map(probe: Probe, case: Case) -> bool:
    """Check what everything else rests on: the same each time, linear, token by token."""
    u, v = probe.random(), probe.random()
    places = torch.arange(11)[None]
    y = probe.same(u, places)
    if not alike(probe.same(u, places), y, EXACT):
        case.fault("random")
        return False
    if not alike(probe.same(2 * u - 3 * v, places), 2 * y - 3 * probe.same(v, places)):
        case.unsure("not-linear")
        case.unexamined.append("everything else: the function is not linear")
        return False
    x = spread(u, 1, probe.subject.heads, 11)
    changed = x.clone()
    changed[:, :, 3] = v
    placed = probe.places(places)
    other = probe.call(changed, changed, places)
    kept = [i for i in range(11) if i != 3]
    if not alike(other[..., kept, :], y[..., kept, :]):
        case.fault("mixes-tokens")
        return False
    given = x.clone()
    probe.subject.function(given, x.clone(), placed[0] if probe.flat else placed)
    if not torch.equal(given, x):
        case.note("changes-input")
    return True


def use_of_positions(probe: Probe, case: Case, step: int = 1) -> tuple[Probe | None, bool]:
    """Find out which position each token gets.

    Args:
        probe: the function.
        case: gets what is found.
        step: between neighbours, for what changes slowly.

    Returns:
        the probe to go on with, None if tokens do not get positions; and whether the function
        counts by itself, whatever positions it is given.
    """
    v, places, moved = probe.random(), step * torch.arange(11), 17 * step
    here = probe.same(v, places[None])[:, 0]  # (2, H, L, d)
    shifted = probe.same(v, places[None] + moved)[:, 0]
    rows = None if probe.flat else probe.same(v, places.expand(3, 11))  # (2, B, H, L, d)
    moves = [not alike(one, one[:, :1].expand_as(one), turning(27)) for one in here]
    used = [not alike(a, b, turning(27)) for a, b in zip(here, shifted, strict=True)]
    heads = [not alike(one, one[:1].expand_as(one), turning(27)) for one in here]
    batch = rows is not None and not alike(rows, rows[:, :1].expand_as(rows), turning(27))
    if not any(moves) and not any(used):
        other = "batch-as-position" if batch else "no-position"
        case.fault("head-as-position" if any(heads) else other)
        return None, False
    for name, move, use in zip(SIDES, moves, used, strict=True):
        if not move and not use:
            case.fault("one-side-only", f"{name} do not depend on any position", name)
        elif not use:
            two = None if probe.flat else probe.same(v, (places + moved).expand(2, 11))
            side = SIDES.index(name)
            if two is not None and not alike(two[side, 0], here[side]):
                case.fault("batch", "one row is counted from 0, of two each has its positions")
            else:
                add = case.unsure if probe.subject.runs else case.fault
                add("offset-ignored", "positions 0..10 and 17..27 give the same", name)
    if any(heads):
        case.unsure("heads-differ", "what follows is about the first head")
    if batch:
        case.fault("rows-interfere", "equal rows with equal positions give different results")
    counted = not any(use for use, move in zip(used, moves, strict=True) if move)
    if counted or case.has("offset-ignored", "batch"):
        return probe, True
    if probe.subject.runs:
        case.unexamined.append("gaps, packing, padding: the function takes consecutive runs only")
        return probe, False
    order = torch.tensor(ORDER)
    mixed = probe.same(v, step * order[None])[:, 0]
    if not alike(mixed, here[:, :, order]):
        same = alike(mixed, probe.same(v, places[None] + step * ORDER[0])[:, 0])
        case.fault("first-position-only" if same else "positions-misread")
        if not same:
            return None, False
        probe.by_first = True
    if not probe.flat and not batch:
        two = step * torch.stack([torch.arange(11) + 3, order + 3])
        both, first, second = (probe.same(v, p) for p in (two, two[:1], two[1:]))
        if not (alike(both[:, :1], first) and alike(both[:, 1:], second)):
            shares = alike(both[:, 1:], first)
            case.fault("rows-share-positions" if shares else "rows-interfere")
    return probe, False


def reach_of(probe: Probe, counted: bool) -> int:
    """Return how far positions may go; all up to there are in the call if they are counted."""
    v = probe.random()

    def tried(reach: int) -> None:
        places = torch.arange(reach) if counted else torch.tensor([0, reach - 1])
        if probe.subject.runs:
            places = torch.arange(reach - 4, reach)
        probe.same(v, places[None], heads=None)

    return reachable(tried, 1024 if counted else probe.subject.reach, NEAR)


def structure(probe: Probe, case: Case, reach: int, counted: bool) -> tuple[Pairs, Pairs] | None:
    """Find out which components mix; None if no pairs do."""
    some = [1, 2, 3, 5, 8, 13, 31, 63] + [p for p in (499, 997, 3989) if p < reach]
    if counted or probe.subject.runs:
        some = list(range(1, 64 if counted else 33))
    matrices = probe.matrix(torch.tensor(some)[None])[:, 0, 0]  # (2, L, d, d)
    q, k = (straightened(pairs_of(one), one) for one in matrices)
    for name, one, matrix in zip(SIDES, (q, k), matrices, strict=True):
        if one.larger:
            case.fault("mixes-components", where=name)
            return None
        if one.lost:
            case.fault("loses-components", f"components {list(one.lost)[:8]}", name)
        if len(one.inputs) == 0:
            diagonal = matrix.diagonal(dim1=-2, dim2=-1)
            if not alike(diagonal, diagonal[:1].expand_as(diagonal)):
                case.fault("sines-missing", where=name)
            elif not case.has("one-side-only"):
                case.fault("no-position", where=name)
    if len(q.inputs) == 0 or len(k.inputs) == 0:
        if case.has("one-side-only") and len(q.inputs) + len(k.inputs):
            rest = q if len(q.inputs) else k
            return rest, rest
        return None
    if not torch.equal(q.inputs, k.inputs) or not torch.equal(q.outputs, k.outputs):
        names = [layout_of(one.inputs).name for one in (q, k)]
        case.fault("layouts-differ", f"queries {names[0]}, keys {names[1]}")
    elif not torch.equal(q.inputs, q.outputs):
        exchanged = torch.equal(q.inputs, q.outputs.flip(1))
        to = "the same, a pair's two exchanged" if exchanged else layout_of(q.outputs).name
        case.note("writes-other-layout", f"from {layout_of(q.inputs).name} to {to}")
    layout = layout_of(q.inputs)
    case.facts["layout"] = f"{layout.name}: {pairs_in_words(q.inputs)}"
    case.facts["rotates"] = layout.where(probe.dim)
    return q, k


def straightened(pairs: Pairs, matrix: Tensor) -> Pairs:
    """Exchange the outputs of each pair where that makes rotations of reflections (L, d, d)."""
    blocks = matrix[:, pairs.outputs[:, :, None], pairs.inputs[:, None]]  # (L, n, 2, 2)
    (a, b), (c, e) = (row.unbind(-1) for row in blocks.unbind(-2))
    mirrored = len(pairs.inputs) > 0 and alike(a, -e) and alike(b, c) and not alike(a, e)
    return replace(pairs, outputs=pairs.outputs.flip(1)) if mirrored else pairs


def pairs_in_words(pairs: Tensor) -> str:
    """Return the first pairs of components."""
    return ", ".join(f"({a}, {b})" for a, b in pairs[:3].tolist()) + (
        ", ..." if len(pairs) > 3 else ""
    )


def form(each: Map, name: str, pairs: Pairs, case: Case) -> Tensor:
    """Say whether 2 x 2 matrices (L, n) rotate, and return what stands for the rotation."""
    z, y = each
    size = z.abs() + y.abs()
    if float(y.abs().max()) < turning(4 * NEAR) * float(size.max()):
        level = z.abs().clamp(min=1e-30).log()
        places = torch.arange(len(z), dtype=torch.float64)
        slope, start = line(level, places)
        if float((level - start - places[:, None] * slope).abs().max()) > COARSE:
            case.fault("not-a-rotation", "a pair's length changes with its angle", name)
        return z
    a, e = z.real + y.real, z.real - y.real
    c, b = z.imag + y.imag, y.imag - z.imag
    rows = (torch.complex(a, -b), torch.complex(e, c))  # the angle that each row has

    def holds(*zeros: Tensor) -> bool:
        return all(float(zero.abs().max()) < turning(4 * NEAR) for zero in zeros)

    if holds(a - e, b - c):
        case.fault("sine-sign-lost", where=name)
        return torch.complex(a, c)
    if holds(c + a * b, e - a + b**2) or holds(b + e * c, a - e + c**2):
        case.fault("overwritten", where=name)
        return rows[0] if holds(rows[0].abs() - 1) else rows[1]
    lengths = [row.abs() for row in rows]
    if all(holds(one - lengths[0].mean()) for one in lengths):
        case.fault("mixed-layouts", where=name)
        return torch.cat(rows, dim=1)
    case.fault("not-a-rotation", where=name)
    return z


def by_component(fit: Fit, layout: Layout) -> Fit:
    """Give each pair the rate of the table's row that a mixed layout reads for it."""
    n = len(fit.inv_freq) // 2
    first, second = fit.inv_freq[:n], fit.inv_freq[n:]
    if layout.name == "interleaved":  # components 2r, 2r + 1 read a table of two halves
        inv_freq = torch.stack([first, second], 1).flatten()[:n]
    else:  # components r, n + r read a table of neighbours
        inv_freq = torch.cat([first, second])[::2]
    some = slice(0, n)
    return Fit(inv_freq, fit.phases[some], fit.error, fit.attention_factor[some], fit.growth[some])


def explain_phases(fit: Fit, case: Case, name: str) -> None:
    """Explain the angles at position 0."""
    if len(fit.phases) == 0 or float(fit.phases.abs().max()) < PHASE or fit.error > LOST / 2:
        return
    if bool(((fit.phases.abs() - math.pi / 2).abs() < PHASE).all()):
        case.fault("cosine-sine-exchanged", where=name)
        return
    slow = fit.inv_freq.abs() < 0.02  # pairs that make no full turn in a shift of a hundred
    slow = slow if bool(slow.any()) else fit.inv_freq.abs() < 0.3
    w, phase = fit.inv_freq[slow], fit.phases[slow]
    shift = float((w * phase).sum() / (w * w).sum()) if len(w) else 0.0
    expected = torch.remainder(fit.inv_freq * round(shift) - fit.phases + math.pi, 2 * math.pi)
    if round(shift) and float((expected - math.pi).abs().max()) < COARSE:
        case.note("counted-from", f"position 0 gets the rotation of {round(shift)}", name)
    else:
        case.unsure("not-proportional", "angles at position 0 that no shift explains", name)


def sides(fits: tuple[Fit, ...], case: Case) -> None:
    """Compare queries with keys: direction, shift, frequencies, gain."""
    q, k = fits
    if case.has("one-side-only", "layouts-differ") or len(q.inv_freq) != len(k.inv_freq):
        return
    back = [
        bool((fit.inv_freq <= STILL).all()) and bool((fit.inv_freq < -STILL).any()) for fit in fits
    ]
    if case.has("cosine-sine-exchanged"):
        back = [not one for one in back]
    if all(back):
        case.unsure("direction")
    elif any(back):
        case.fault("opposite-directions", f"{SIDES[back.index(True)]} rotate backwards")
    if not alike(q.inv_freq.abs(), k.inv_freq.abs(), RECOGNISED):
        case.fault("sides-differ")
    elif not any(back) and not alike(q.phases, k.phases, PHASE):
        case.fault("query-key-shift")
    if float(q.growth.abs().max()) > max(turning(NEAR), 4 * q.unsteady / NEAR):
        if alike(q.growth, -k.growth, EXACT):
            case.facts["gain"] = "grows with the position on one side, falls on the other (xPos)"
        else:
            case.fault("both-grow")


def longest_alike(probe: Probe, both: tuple[Pairs, Pairs], reach: int, case: Case) -> int:
    """Return the last position that a call may have for near tokens to rotate as in short calls.

    A rule that looks at the length of a text has another frequency from some length on. What it
    looks at must be the longest position, and no other property of the call.
    """
    near, runs, close = torch.arange(16), probe.subject.runs, turning(16)

    def ask(last: int, start: int = 0, times: int = 1) -> tuple[Tensor, Tensor]:
        """Return near scores by distance, and what the last position does."""
        some = torch.cat([near[start:].repeat(times), torch.tensor([last])])
        some = torch.arange(last + 1) if runs else some
        q, k = (each.z[0, 0] for each in probe.pairs(some[None], both))
        return torch.view_as_real(q[5:16] * k[:11].conj()), torch.view_as_real(q[-1])

    (plain, end), least, first = ask(16), 16, 0
    lone = not runs and alike(ask(16, start=16)[1], end)
    if not runs and not alike(ask(16, times=MANY)[0], plain, close):
        case.fault("length-misread", f"positions 0 to 15 rotate otherwise among {16 * MANY} tokens")
    limits = [*(last for last in LONGEST if last < reach), reach - 1] if runs else LONGEST
    for last in limits:
        try:
            scores, end = ask(last)
            alone = ask(last, start=16)[1] if lone else end
        except Exception:  # a table ends: the examination of far positions says so
            break
        if not alike(alone, end, turning(last)):
            what = f"position {last} rotates otherwise alone than behind positions 0 to 15"
            case.fault("length-misread", what)
            return min(least, last - 1)
        if not alike(scores, plain, close):
            first = last
            break
        least = last
    if not first:
        return LONGEST[-1]
    while first - least > 1:
        middle = (first + least) // 2
        if alike(ask(middle)[0], plain, close):
            least = middle
        else:
            first = middle
    if not alike(ask(16)[0], plain, close):
        case.fault("state", f"positions 0 to 15, after a call with position {limits[-1]}")
    by = "row"
    if not probe.flat and not runs:
        rows = torch.stack([torch.cat([near, torch.tensor([last])]) for last in (16, 2 * first)])
        q, k = (each.z[0, 0] for each in probe.pairs(rows, both))
        by = "row" if alike(torch.view_as_real(q[5:16] * k[:11].conj()), plain, close) else "batch"
    case.note("length-dependent", f"from position {first} on, by the longest of the {by}")
    return least


def in_calls_of(probe: Probe, both: tuple[Pairs, Pairs]) -> Callable[[int], Tensor | None]:
    """Return a function of a length: the frequencies (n, 1) in calls of it, None if refused."""

    @cache
    def measured(length: int) -> Tensor | None:
        far = doublings(length - 1)
        some = torch.cat([torch.arange(NEAR), far, torch.tensor([length - 1])])
        if probe.subject.runs:
            some = torch.arange(length)
        try:
            z = probe.pairs(some[None], both)[0].z[0, 0]
        except Exception:  # whatever the function under examination raises
            return None
        fit = fit_of(z[:NEAR], torch.arange(NEAR).double())
        return sharpened(fit, z[NEAR:][: len(far)], some[NEAR:][: len(far)]).inv_freq.abs()[:, None]

    return measured


def sharpened(fit: Fit, z: Tensor, far: Tensor) -> Fit:
    """Return a fit with rates that far positions agree with."""
    noise = 4 * fit.error if fit.error < COARSE else 0.0
    return refined(fit, z, far.double(), max(turning(NEAR), noise))


def frequencies(
    subject: Rotary,
    probe: Probe,
    both: tuple[Pairs, Pairs],
    fits: tuple[Fit, ...],
    profile: Profile,
    case: Case,
    reach: int,
    clean: bool,
) -> None:
    """Name the rule of the frequencies."""
    fit = fits[0] if bool((fits[0].inv_freq.abs() > 0).any()) else fits[1]
    profile.inv_freq = fit.inv_freq.abs()[:, None]
    if subject.axes > 1 and clean:
        profile.inv_freq = rates_by_axis(probe, both, reach, case)
    if fit.error > LOST / 2 and not case.has("positions-rounded", "angles-rounded", "tf32"):
        case.unsure("not-proportional", f"up to {fit.error:.2g} radians off a line")
        profile.inv_freq = None
        return
    full = whole_head(profile.inv_freq.sum(1), profile.layout, subject.head_dim)
    slowest = float(full[full > 0].min()) if bool((full > 0).any()) else 1.0
    coarse = turning(reach) < fit.error < COARSE
    noise = (2 * fit.error if coarse else EXACT / 2) / (reach * slowest)
    noise = noise if clean else turning(NEAR) / NEAR / slowest
    close = min(max(CLOSE, noise), COARSE)
    rule = case.curves.pop("rule", None) or identify(full, close)
    if rule.name == "unknown" and subject.axes > 1:
        rule = by_axis(profile.inv_freq, close, case)
    profile.rule = rule
    if coarse and rule.name == "default":
        profile.inv_freq = series(len(full), rule.base)[:, None]
        case.note("tables-rounded", f"angles are off by up to {fit.error:.2g} radians")
    case.facts["frequencies"] = str(rule)
    judge_rule(rule, full, fit, subject.axes, case)
    gain = profile.attention_factor
    if rule.name == "yarn" and gain is not None:
        if abs(gain - 1) < RECOGNISED:
            case.unsure("gain-missing", f"gain 1, factor {rule.factor:g}")
        elif is_yarn_attention_factor(gain, rule.factor):
            case.facts["gain"] += ", YaRN's for this factor"


def gains(fits: tuple[Fit, ...], profile: Profile, case: Case, clean: bool) -> None:
    """Measure by what queries and keys are multiplied, and so a score at distance 0."""
    if case.has("both-grow") or "gain" in case.facts:
        return
    q, k = (float(one.attention_factor.mean()) for one in fits)
    profile.attention_factor = math.sqrt(q * k)
    uneven = [float((one.attention_factor / one.attention_factor.mean() - 1).abs().max())
              for one in fits]  # fmt: skip
    if clean and max(uneven) > RECOGNISED:
        case.unsure("gain-differs", f"by up to {max(uneven):.2g} of their mean {q:.4g}")
    elif abs(q / k - 1) > RECOGNISED:
        case.unsure("gain-on-one-side", f"queries {q:.4g}, keys {k:.4g}")
    else:
        each = f"{snapped(q, EXACT * 8):.6g} on queries and on keys"
        grown = "" if abs(q * k - 1) < RECOGNISED else f": scores times {q * k:.4g}"
        case.facts["gain"] = each + grown


def whole_head(inv_freq: Tensor, layout: Layout | None, dim: int) -> Tensor:
    """Add the pairs of a half layout that stand still, which impulses do not show."""
    if layout is None or layout.name != "half" or layout.width // 2 == len(inv_freq):
        return inv_freq
    return torch.cat(
        [inv_freq, torch.zeros(layout.width // 2 - len(inv_freq), dtype=inv_freq.dtype)]
    )


def rates_by_axis(probe: Probe, both: tuple[Pairs, Pairs], reach: int, case: Case) -> Tensor:
    """Return the rate of each pair for each axis, (n, axes)."""
    columns = []
    for axis in range(probe.subject.axes):
        far = doublings(reach)
        places = torch.zeros(1, NEAR + len(far), probe.subject.axes, dtype=torch.long)
        places[0, :, axis] = torch.cat([torch.arange(NEAR), far])
        z = probe.pairs(places, both)[0].z[0, 0]
        fit = sharpened(fit_of(z[:NEAR], torch.arange(NEAR).double()), z[NEAR:], far)
        moves = (z - z[:1]).abs().amax(0) > turning(0)
        columns.append(torch.where(moves, fit.inv_freq.abs(), 0))
        if not bool(moves.any()):
            case.fault("axis-unused", f"axis {axis}")
    inv_freq = torch.stack(columns, 1)
    own = [(column > 0).nonzero().flatten().tolist() for column in columns]
    words = [f"axis {axis}: {len(each)} pairs{ranges(each)}" for axis, each in enumerate(own)]
    case.facts["axes"] = "; ".join(words)
    return inv_freq


def ranges(numbers: list[int]) -> str:
    """Return numbers as a range, or as a series with a step."""
    steps = {b - a for a, b in pairwise(numbers)}
    if not numbers:
        return ""
    step = f" in steps of {steps.pop()}" if len(steps) == 1 and steps != {1} else ""
    return f" ({numbers[0]} to {numbers[-1]}{step or (', with gaps' if len(steps) > 1 else '')})"


def by_axis(inv_freq: Tensor, close: float, case: Case) -> Rule:
    """Identify each axis for itself; a rule if all agree in the base."""
    rules = []
    for axis in range(inv_freq.shape[1]):
        own = inv_freq[:, axis][inv_freq[:, axis] > 0]
        rules.append(identify(own, close) if len(own) > 1 else Rule("unknown"))
    if all(rule.name == "default" for rule in rules) and len({rule.base for rule in rules}) == 1:
        case.facts["axes"] += "; each axis has a series of its own"
        return rules[0]
    return Rule("unknown")


def judge_rule(rule: Rule, inv_freq: Tensor, fit: Fit, axes: int, case: Case) -> None:
    """Say whether a rule is one that anybody means."""
    n, first = len(inv_freq), float(inv_freq[0])
    if rule.name == "unknown":
        if n > 1 and alike(inv_freq, inv_freq[:1].expand_as(inv_freq), CLOSE):
            case.fault("frequencies-all-one", f"{first:.4g} radians per position")
        elif grows(fit.inv_freq):
            case.fault("frequencies-grow")
        elif axes == 1:
            case.unsure(
                "unknown-frequencies",
                f"the first is {first:.4g}, the last {float(inv_freq[-1]):.3g}",
            )
        return
    if rule.name == "linear":
        circle = {2 * math.pi: "a full turn", math.pi: "half a turn", math.pi / 180: "a degree"}
        for size, words in circle.items():
            if abs(first / size - 1) < RECOGNISED:
                case.fault("not-radians", f"the first pair rotates by {words} for each position")
                return
        base, start = geometric(inv_freq)
        if abs(math.log(start) * n / math.log(base) + 1) < COARSE:
            case.unsure("index-from-one", f"the first frequency is {start:.4g}, base {base:.6g}")
    if rule.base and not usual(rule.base, axes) and n > 2:
        known = readings_of(rule.base, n)
        also = f"; the same series: {'; '.join(known)}" if known else ""
        case.unsure("unusual-base", f"base {rule.base:.6g}{also}")


def grows(inv_freq: Tensor) -> bool:
    """Return whether rates, known up to full turns, are those of a growing series."""
    some = min(len(inv_freq), 8)
    for base in USUAL:
        wanted = 1 / series(len(inv_freq), base)[:some]
        off = torch.remainder(inv_freq[:some] - wanted + math.pi, 2 * math.pi) - math.pi
        if float(off.abs().max()) < RECOGNISED:
            return True
    return False


def relativity(
    probe: Probe, reach: int, counted: bool, case: Case, dtypes: tuple[torch.dtype, ...]
) -> None:
    """Measure how much a score of two contents at a fixed distance depends on the position."""
    if counted or probe.subject.runs or case.has("first-position-only"):
        case.unexamined.append("relativity: positions cannot be chosen freely here")
        return
    distances = torch.tensor([0, 1, 8, min(63, reach // 2 - 1)])
    starts = torch.tensor([0, *(2**k for k in range(5, 13) if 2**k + distances[-1] < reach)])
    places = (starts[:, None] + distances).flatten()
    both = torch.stack([probe.random(), probe.random()])
    worst = []
    for dtype in (torch.float32, *dtypes):
        q, k = (spread(x.to(dtype), 1, probe.subject.heads, len(places)) for x in both)
        try:
            rotated = probe.call(q, k, places[None])[:, 0, 0].double()
        except Exception as error:
            case.unexamined.append(f"relativity in {dtype}: {type(error).__name__}: {error}")
            continue
        new_q, new_k = rotated.unflatten(1, (len(starts), len(distances)))
        scores = torch.einsum("snd,sd->sn", new_q, new_k[:, 0])  # the key at the start
        moved = float((scores - scores[:1]).abs().max() / both.double().norm(dim=1).prod())
        worst.append(f"{moved:.1e} of |q||k| in {str(dtype).removeprefix('torch.')}")
    case.facts["relativity"] = f"scores move by {', '.join(worst)}"
