"""The examination of a bias on logits, and of codes that are added to the input."""

from __future__ import annotations

import math

import torch
from torch import Tensor

from pe_lib.alibi import alibi_slopes
from posdoctor.probes import fit_of, reachable
from posdoctor.profile import Case, Profile
from posdoctor.rules import identify
from posdoctor.subjects import Absolute, Bias, InputError
from posdoctor.tolerances import CLOSE, EXACT, LOST, rounding

LENGTH = 96
REACH = 8192  # one query is compared at every distance up to here
HIDDEN, FAR_HIDDEN = -9e3, -1e6  # below this a bias is a mask: near, and at far distances
FEW = (1, 2, 3, 4, 6, 8)
LEVEL = rounding(torch.bfloat16, 2)  # slopes and sizes that are kept in a short float


@torch.no_grad()
def table_of(subject: Bias, q_pos: Tensor, k_pos: Tensor, hidden: float = HIDDEN) -> Tensor:
    """Return the bias, (H, Lq, Lk) float64; what a mask hides is minus infinity."""
    found = subject.function(q_pos, k_pos)
    if not isinstance(found, Tensor):
        raise InputError(f"a bias function must return a tensor, got {type(found).__name__}")
    found = found[0] if found.ndim == 4 else found
    found = found[None] if found.ndim == 2 else found
    if found.ndim != 3 or found.shape[1] not in (1, len(q_pos)) or found.shape[2] != len(k_pos):
        raise InputError(
            f"a bias function must return (heads, {len(q_pos)}, {len(k_pos)}) or (heads, 1, "
            f"{len(k_pos)}), got {tuple(found.shape)}"
        )
    found = found.double().expand(-1, len(q_pos), -1)
    return found.masked_fill(found < hidden, -torch.inf)


def near(a: Tensor, b: Tensor) -> bool:
    """Return whether two biases hide the same and are equal up to rounding elsewhere."""
    if not torch.equal(a.isinf(), b.isinf()):
        return False
    a, b = a[a.isfinite()], b[b.isfinite()]
    return not len(a) or bool((a - b).abs().max() <= CLOSE * max(1.0, float(b.abs().max())))


def examine_bias(subject: Bias, case: Case) -> Profile:
    """Examine a bias: does it see distances, with the right sign, and which?"""
    raw, length = first_table(subject)
    masks = raw[raw < HIDDEN]
    bias = raw.masked_fill(raw < HIDDEN, -torch.inf)
    places = torch.arange(length)
    bias = at_the_diagonal(bias, case)
    by_distance = torch.stack(
        [bias.diagonal(step, 1, 2).mean(1) for step in range(1 - length, length)], 1
    )
    rows = places[None] - places[:, None] + length - 1
    relative = near(by_distance[:, rows], bias)
    try:
        moved = near(levelled(table_of(subject, places + 37, places + 37)), levelled(bias))
    except Exception as error:  # whatever the function under examination raises
        case.unexamined.append(f"positions past {length}: {type(error).__name__}: {error}")
        moved = True
    if not relative or not moved:
        case.unsure("bias-not-relative")
    alone = few_queries(subject, bias, case)
    case.facts["heads"] = str(len(bias))
    if not bool(bias.any()):
        case.fault("bias-lost")
    elif relative:
        shape_of(by_distance, case)
    finite = masks[masks.isfinite()]
    row = far_row(subject, float(finite.max()) if len(finite) else FAR_HIDDEN, alone, case)
    if row is None:
        return Profile("bias", bias=by_distance, distances=torch.arange(1 - length, length))
    past = row[:, : REACH + 1]
    seen = past.isfinite().sum(1)
    if bool((seen < REACH + 1).any()):
        case.facts["window"] = f"{int(seen.max())} keys, the query's own included"
    return Profile("bias", bias=row, distances=torch.arange(row.shape[1]) - REACH)


def first_table(subject: Bias) -> tuple[Tensor, int]:
    """Return the bias of the first positions, and how many: fewer where a table has no more."""
    lengths = (LENGTH, 64, 32, 16)
    for length in lengths:
        places = torch.arange(length)
        try:
            return table_of(subject, places, places, -torch.inf), length
        except InputError:
            raise
        except Exception as error:
            if length == lengths[-1] or not isinstance(error, IndexError | RuntimeError):
                raise InputError(
                    f"the bias function raised {type(error).__name__}: {error}; it must take int64 "
                    f"positions q_pos ({length},) and k_pos ({length},)"
                ) from error
    raise AssertionError("the last length returns or raises")


def far_row(subject: Bias, hidden: float, single: bool, case: Case) -> Tensor | None:
    """Return what a query sees of every key behind it and of some ahead, (H, n).

    None if that is refused, or if the function reads lengths and not positions. A `single` query
    is compared with the same among others.
    """
    some, keys = torch.arange(12), torch.arange(REACH + LENGTH)
    try:
        row = table_of(subject, REACH + some, keys, hidden)[:, 0]
        if near(row, table_of(subject, some, keys, hidden)[:, 0]) and bool(row.any()):
            case.unexamined.append(f"distances past {LENGTH}: it reads lengths, not positions")
            return None
        alone = table_of(subject, torch.tensor([REACH]), keys, hidden)[:, 0]
        if single and not near(levelled(alone), levelled(row)):
            case.fault("one-token", f"a query at position {REACH} alone gets another row")
        return row
    except Exception as error:
        case.unexamined.append(f"distances past {LENGTH}: {type(error).__name__}: {error}")
        return None


def levelled(bias: Tensor) -> Tensor:
    """Take from each query's row its largest number, which the softmax ignores."""
    top = bias.amax(-1, keepdim=True)
    return bias - top.masked_fill(top.isinf(), 0)


def at_the_diagonal(bias: Tensor, case: Case) -> Tensor:
    """Take away a number per query, if that makes the bias one of the distance."""
    steps = bias.diagonal(dim1=1, dim2=2)  # (H, L)
    if bool(steps.isinf().any()) or near(bias[:, 1:, 1:], bias[:, :-1, :-1]):
        return bias
    without = bias - steps[:, :, None]
    if near(without[:, 1:, 1:], without[:, :-1, :-1]):
        case.note("bias-row-constant")
        return without
    return bias


def few_queries(subject: Bias, bias: Tensor, case: Case) -> bool:
    """Ask as a cache does: one query, or a few, among all keys; return whether one is right."""
    length = bias.shape[-1]
    for count in FEW:
        name, start = "one-token" if count == 1 else "few-tokens", length - count
        queries = torch.arange(start, start + count)
        try:
            some = table_of(subject, queries, torch.arange(length))
        except Exception as error:
            case.unexamined.append(f"{count} queries: {type(error).__name__}: {error}")
            return count > 1
        if not near(levelled(some), levelled(bias[:, queries])):
            what = f"{count} queries from position {start} get other rows than at once"
            if count == 1 and not bool(levelled(some).any()):
                what = "a single query gets no bias"
            elif count == 1 and near(levelled(some), levelled(bias[:, :1])):
                name, what = "bias-offset-ignored", ""
            case.fault(name, what)
            return count > 1
    return True


def shape_of(bias: Tensor, case: Case) -> None:
    """Name the bias by distance, (H, 2L - 1): linear, in steps, or free; and what it hides."""
    middle = bias.shape[1] // 2
    past, future = bias[:, : middle + 1].flip(1), bias[:, middle:]  # distance 0, 1, ...
    seen = [int(side.isfinite().all(0).sum()) for side in (past, future)]
    hidden = [int(side[0].isinf().sum()) for side in (past, future)]
    ahead = "hidden" if hidden[1] == middle else ""
    if hidden[0]:
        case.facts["window"] = f"{seen[0]} keys, the query's own included"
    past, future = past[:, : seen[0]], future[:, : seen[1]]
    flat = [bool((side - side[:, :1]).abs().max() < EXACT) for side in (past, future)]
    if flat[0] and not flat[1]:
        case.fault("bias-mirrored")
    case.facts["future"] = ahead or ("one value" if flat[1] else "resolved")
    steps = past.diff(dim=1)
    if len(steps[0]) and near(steps, steps[:, :1].expand_as(steps)) and not flat[0]:
        linear(-steps[:, 0], case)
        return
    values = [len(head.round(decimals=5).unique()) for head in past]
    case.facts["past"] = f"{max(values)} different values over {seen[0]} distances"
    heads = bias.round(decimals=6)
    if len(bias) > 1 and not all(flat) and bool((heads == heads[:1]).all()):
        case.unsure("heads-share-slope")


def linear(slopes: Tensor, case: Case) -> None:
    """Judge the slopes of a linear bias, (H,): a penalty is positive."""
    case.facts["slopes"] = ", ".join(f"{slope:.4g}" for slope in slopes[:8].tolist())
    if bool((slopes < 0).all()):
        case.fault("bias-sign")
        slopes = -slopes
    if len(slopes) > 1 and near(slopes, slopes[:1].expand_as(slopes)):
        case.fault("heads-share-slope")
        return
    heads = len(slopes)
    wanted = alibi_slopes(heads).double()
    if bool((slopes / wanted - 1).abs().max() < 1e-2):
        case.facts["rule"] = "ALiBi"
        return
    wider = alibi_slopes(2 ** math.ceil(math.log2(heads))).double()[:heads]
    head = int((slopes / wanted - 1).abs().gt(1e-2).nonzero()[0])
    detail = f"head {head} has {float(slopes[head]):.4g}, ALiBi's {float(wanted[head]):.4g}"
    if bool((slopes / wider - 1).abs().max() < 1e-2):
        case.fault("slopes", f"{detail}: those of the next power of two")
    elif near(slopes.sort().values, wanted.sort().values):
        case.unsure("slopes", "ALiBi's, in another order of heads")
    else:
        case.unsure("slopes", detail)


@torch.no_grad()
def examine_absolute(subject: Absolute, case: Case) -> Profile:
    """Examine a code that is added to the input."""
    reach = reachable(lambda reach: subject.function(torch.arange(reach)), subject.reach, 8)
    reach = reach or 8
    step = min(17, reach // 4)
    places = torch.arange(min(48, reach - step))
    try:
        table = subject.function(torch.arange(reach)).double()
        codes = subject.function(places).double()
    except Exception as error:
        raise InputError(
            f"the code function raised {type(error).__name__}: {error}; it must take int64 "
            f"positions ({len(places)},) and return ({len(places)}, width)"
        ) from error
    if codes.ndim != 2 or len(codes) != len(places):
        raise InputError(
            f"a code function must return ({len(places)}, width), got {tuple(codes.shape)}"
        )
    profile = Profile("absolute", codes.shape[1], table=table)
    if near(codes, codes[:1].expand_as(codes)):
        case.fault("code-lost")
        return profile
    if near(subject.function(places + step).double(), codes):
        if near(table[-len(codes) :], codes):  # Transformer-XL's: from the last key back
            case.unsure("code-shifted", "counted back from the last position")
        else:
            case.fault("offset-ignored", f"positions 0.. and {step}.. give the same codes")
    order = places.flip(0)
    if not case.has("offset-ignored") and not near(subject.function(order).double(), codes[order]):
        first = near(subject.function(order).double(), subject.function(places + order[0]).double()
                     if int(order[0] + places[-1]) < reach else codes)  # fmt: skip
        case.fault("first-position-only" if first else "positions-misread")
    rows_of(subject, codes, places, case)
    sinusoid(subject, codes, places, profile, case)
    return profile


def rows_of(subject: Absolute, codes: Tensor, places: Tensor, case: Case) -> None:
    """Ask for two sequences with positions of their own."""
    try:
        both = subject.function(torch.stack([places, places.flip(0)])).double()
    except Exception as error:
        case.unexamined.append(f"rows with positions of their own: {type(error).__name__}: {error}")
        return
    if both.shape != (2, *codes.shape):
        case.unexamined.append(f"rows with positions of their own: shape {tuple(both.shape)}")
    elif near(both[1], codes) and not case.has("offset-ignored"):
        case.fault("rows-share-positions")
    elif not near(both[1], codes.flip(0)) and not case.has("offset-ignored"):
        case.fault("rows-interfere")


def mirrored(subject: Absolute, codes: Tensor, places: Tensor, case: Case) -> None:
    """Ask sines and cosines for negative positions, as distances are, if they take them."""
    try:
        before = subject.function(-places).double()
    except Exception:  # a table, or a check: it is not for distances
        return
    if near(before, codes):
        case.unsure(
            "code-mirrored", f"positions 0 to {-len(places) + 1} and 0 to {len(places) - 1}"
        )


def sinusoid(
    subject: Absolute, codes: Tensor, places: Tensor, profile: Profile, case: Case
) -> None:
    """Look for pairs of columns that are sine and cosine of one angle."""
    width = codes.shape[1]
    if width % 2:
        case.facts["form"] = "a table"
        return
    for layout, (first, second) in {
        "interleaved": (codes[:, ::2], codes[:, 1::2]),
        "half": (codes[:, : width // 2], codes[:, width // 2 :]),
    }.items():
        size = (first**2 + second**2).sqrt()
        if float(size.min()) < EXACT or float((size / size.mean() - 1).abs().max()) > LEVEL:
            continue
        fit = fit_of(torch.complex(second, first), places.double())
        if fit.error > LOST / 2:
            continue
        profile.inv_freq = fit.inv_freq.abs()[:, None]
        profile.attention_factor = float(size.mean())
        profile.rule = identify(fit.inv_freq.abs(), LOST / 5)
        mirrored(subject, codes, places, case)
        case.facts |= {"form": f"sines and cosines, {layout}", "frequencies": str(profile.rule)}
        start = float(fit.phases[0])
        if bool((fit.inv_freq < 0).all()):
            start = float(wrap_quarter(fit.phases[0]))
        if abs(start) > LOST / 5:
            shift = start / float(fit.inv_freq[0])
            case.unsure("code-shifted", f"position 0 gets the code of {shift:.3g}")
        return
    case.facts["form"] = "a table without sinusoids of one angle (learned, or another code)"


def wrap_quarter(phase: Tensor) -> Tensor:
    """Return an angle less the quarter turn of a code that has its cosines first."""
    return phase - torch.pi / 2
