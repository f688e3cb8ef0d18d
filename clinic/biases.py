"""The examination of a bias on logits, and of codes that are added to the input."""

from __future__ import annotations

import torch
from torch import Tensor

from clinic.probes import fit_of
from clinic.profile import Case, Profile
from clinic.rules import identify
from clinic.subjects import Absolute, Bias, InputError
from pe_lib.alibi import alibi_slopes

LENGTH = 96


@torch.no_grad()
def table_of(subject: Bias, q_pos: Tensor, k_pos: Tensor) -> Tensor:
    """Return the bias, (H, Lq, Lk) float64."""
    found = subject.function(q_pos, k_pos)
    if not isinstance(found, Tensor):
        raise InputError(f"a bias function must return a tensor, got {type(found).__name__}")
    found = found[0] if found.ndim == 4 else found
    found = found[None] if found.ndim == 2 else found
    if found.ndim != 3 or found.shape[1] not in (1, len(q_pos)) or found.shape[2] != len(k_pos):
        raise InputError(
            f"a bias function must return (heads, {len(q_pos)}, {len(k_pos)}), "
            f"got {tuple(found.shape)}"
        )
    return found.double()


def near(a: Tensor, b: Tensor) -> bool:
    """Return whether two biases are equal up to rounding."""
    return bool((a - b).abs().max() <= 1e-4 * max(1.0, float(b.abs().max())))


def examine_bias(subject: Bias, case: Case) -> Profile:
    """Examine a bias: does it see distances, with the right sign, and which?"""
    places = torch.arange(LENGTH)
    try:
        bias = table_of(subject, places, places)
    except InputError:
        raise
    except Exception as error:
        raise InputError(
            f"the bias function raised {type(error).__name__}: {error}; it must take int64 "
            f"positions q_pos ({LENGTH},) and k_pos ({LENGTH},)"
        ) from error
    bias = at_the_diagonal(bias, case)
    by_distance = torch.stack(
        [bias.diagonal(step, 1, 2).mean(1) for step in range(1 - LENGTH, LENGTH)], 1
    )
    rows = places[None] - places[:, None] + LENGTH - 1
    relative = near(by_distance[:, rows], bias)
    shifted = table_of(subject, places + 37, places + 37)
    if not relative or not near(levelled(shifted), levelled(bias)):
        case.unsure("bias-not-relative")
    one_query(subject, bias, case)
    case.facts["heads"] = str(len(bias))
    if float(bias.abs().max()) < 1e-7:
        case.fault("bias-lost")
    elif relative:
        shape_of(by_distance, case)
    case.curves["bias"] = by_distance
    return Profile("bias", bias=by_distance)


def levelled(bias: Tensor) -> Tensor:
    """Take from each query's row its first number, which the softmax ignores."""
    return bias - bias[:, :, :1]


def at_the_diagonal(bias: Tensor, case: Case) -> Tensor:
    """Take away a number per query, if that makes the bias one of the distance."""
    steps = bias.diagonal(dim1=1, dim2=2)  # (H, L)
    toeplitz = near(bias[:, 1:, 1:], bias[:, :-1, :-1])
    without = bias - steps[:, :, None]
    if not toeplitz and near(without[:, 1:, 1:], without[:, :-1, :-1]):
        case.note("bias-row-constant")
        return without
    return bias


def one_query(subject: Bias, bias: Tensor, case: Case) -> None:
    """Ask as a cache does: one query, at the end."""
    places = torch.arange(LENGTH)
    try:
        one = table_of(subject, places[-1:], places)
    except Exception as error:
        case.unexamined.append(f"one query at the end: {type(error).__name__}: {error}")
        return
    if one.shape[1] != 1:
        case.unexamined.append(f"one query at the end: {one.shape[1]} rows came back")
        return
    if not near(levelled(one), levelled(bias[:, -1:])):
        ignored = near(levelled(one), levelled(bias[:, :1]))
        if ignored:
            case.fault("bias-offset-ignored")
        else:
            case.unsure("bias-not-relative", "one query alone gets another row")


def shape_of(bias: Tensor, case: Case) -> None:
    """Name the bias by distance, (H, 2L - 1): linear, in steps, or free."""
    middle = LENGTH - 1
    past, future = bias[:, : middle + 1].flip(1), bias[:, middle:]  # distance 0, 1, ...
    flat = [bool((side - side[:, :1]).abs().max() < 1e-6) for side in (past, future)]
    if flat[0] and not flat[1]:
        case.fault("bias-mirrored")
    steps = past.diff(dim=1)
    if near(steps, steps[:, :1].expand_as(steps)) and not flat[0]:
        linear(-steps[:, 0], case)
        return
    values = [len(head.round(decimals=5).unique()) for head in past]
    case.facts["past"] = f"{max(values)} different values over {LENGTH} distances"
    case.facts["future"] = "one value" if flat[1] else "resolved"
    heads = bias.round(decimals=6)
    if len(bias) > 1 and bool((heads == heads[:1]).all()):
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
    wanted = alibi_slopes(len(slopes)).double()
    if bool((slopes / wanted - 1).abs().max() < 1e-2):
        case.facts["rule"] = "ALiBi"
        return
    if near(slopes.sort().values, wanted.sort().values):
        case.unsure("slopes", "ALiBi's, in another order of heads")
        return
    case.fault("slopes", f"the first is {float(slopes[0]):.4g}, ALiBi's {float(wanted[0]):.4g}")


@torch.no_grad()
def examine_absolute(subject: Absolute, case: Case) -> Profile:
    """Examine a code that is added to the input."""
    places = torch.arange(min(48, subject.reach - 20))
    try:
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
    profile = Profile("absolute", codes.shape[1])
    if near(codes, codes[:1].expand_as(codes)):
        case.fault("code-lost")
        return profile
    if near(subject.function(places + 17).double(), codes):
        case.fault("offset-ignored", "positions 0.. and 17.. give the same codes")
    order = places.flip(0)
    if not case.has("offset-ignored") and not near(subject.function(order).double(), codes[order]):
        first = near(subject.function(order).double(), subject.function(places + order[0]).double()
                     if int(order[0] + places[-1]) < subject.reach else codes)  # fmt: skip
        case.fault("first-position-only" if first else "positions-misread")
    rows_of(subject, codes, places, case)
    sinusoid(codes, places, profile, case)
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


def sinusoid(codes: Tensor, places: Tensor, profile: Profile, case: Case) -> None:
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
        if float(size.min()) < 1e-6 or float((size / size.mean() - 1).abs().max()) > 1e-2:
            continue
        fit = fit_of(torch.complex(second, first), places.double())
        if fit.error > 0.05:
            continue
        profile.rates = fit.rates.abs()[:, None]
        profile.gain = float(size.mean())
        profile.rule = identify(fit.rates.abs(), 0.02)
        case.facts |= {"form": f"sines and cosines, {layout}", "frequencies": str(profile.rule)}
        start = float(fit.phases[0])
        if bool((fit.rates < 0).all()):
            start = float(wrap_quarter(fit.phases[0]))
        if abs(start) > 0.02:
            shift = start / float(fit.rates[0])
            case.fault("code-shifted", f"position 0 gets the code of {shift:.3g}")
        return
    case.facts["form"] = "a table without sinusoids of one angle (learned, or another code)"


def wrap_quarter(phase: Tensor) -> Tensor:
    """Return an angle less the quarter turn of a code that has its cosines first."""
    return phase - torch.pi / 2
