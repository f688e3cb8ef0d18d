"""How far positions are exact, and what rounds them where they are not."""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import partial
from itertools import product
from typing import Any

import torch
from torch import Tensor

from posdoctor.probes import Fit, Pairs, Probe, fit_of, refined, track
from posdoctor.profile import Case
from posdoctor.rules import USUAL, Rule, identify, relative_error, series
from posdoctor.tolerances import CLOSE, EXACT, LOST, turning

ROUNDING = turning(0)  # of an angle per position, where float32 has the product
FAR = tuple(2**k + step for k in (13, 14, 15, 16, 17, 20) for step in (0, 1))
ROUNDED = ("positions-rounded", "angles-rounded", "frequencies-rounded", "tf32")
Rounding = Callable[[Tensor], Tensor]


def tf32(values: Tensor) -> Tensor:
    """Round to TF32's 11 significant bits, whatever the range."""
    mantissa, exponent = torch.frexp(values.double())
    return torch.ldexp((mantissa * 2**11).round() / 2**11, exponent)


ROUNDINGS: dict[str, Rounding] = {
    "bfloat16": lambda x: x.bfloat16().double(),
    "float16": lambda x: x.half().double(),
    "TF32": tf32,
}


def wrapped(angles: Tensor) -> Tensor:
    """Bring angles to -pi ... pi."""
    return torch.remainder(angles + math.pi, 2 * math.pi) - math.pi


def off_line(z: Tensor, fit: Fit, places: Tensor) -> Tensor:
    """Return how far angles of z (L, n) are from the fitted lines, the worst pair, (L,)."""
    error = wrapped(z.angle() - places[:, None] * fit.inv_freq - fit.phases).abs()
    return torch.where(z.isfinite().all(1), error.amax(1), torch.inf)


def examine_precision(
    probe: Probe,
    both: tuple[Pairs, Pairs],
    fits: tuple[Fit, ...],
    some: Tensor,
    longest: int,
    counted: bool,
    case: Case,
    dtypes: tuple[torch.dtype, ...],
) -> tuple[Fit, ...]:
    """Find the position from which angles are lost, and why; return the fits, mended.

    Args:
        probe: of the function.
        both: the pairs of queries and of keys.
        fits: their lines.
        some: positions (L,) that are asked together.
        longest: the last position of calls whose frequencies are those of the lines.
        counted: the function counts by itself.
        case: gets what is found.
        dtypes: short types of queries and keys.
    """
    places = torch.cat([torch.tensor([1, 2, 3, 5, 11, 23, 47, 63]), some])
    z = track(probe, both, places, counted)[0]
    fit = fits[0]
    error = off_line(z, fit, places.double())
    case.curves["precision"] = {"float32": (places, error)}
    inv_freq = fit.inv_freq
    base, name = loose_base(inv_freq.abs()), None
    exact = None if base is None else series(len(inv_freq), base) * inv_freq.sign()
    lost = float(error.max()) > LOST
    if lost or (exact is not None and relative_error(inv_freq, exact) > CLOSE / 2):
        far = partial(finite_far, probe, both, counted)
        name = cause(z, places, inv_freq if exact is None else exact, far)
        if name is None and lost:
            name = past_the_end(z, places, fit) or "precision-lost"
        if name is not None:
            meant = fit if exact is None else fit._replace(inv_freq=exact)
            report(name, places, off_line(z, meant, places.double()), "float32", case)
            if exact is not None and base is not None and name.startswith(ROUNDED):
                case.curves["rule"] = Rule("default", base)
                fits = tuple(one._replace(inv_freq=exact) for one in fits)
    if name is not None or counted or "gain" in case.facts:
        case.unexamined.append(f"positions past {int(places[-1])}")
    else:
        examine_far(probe, both, fit, longest, case)
    for dtype in dtypes:
        examine_short(probe, both, fits[0], places, counted, name is None, case, dtype)
    return fits


def fits_a_rule(inv_freq: Tensor) -> bool:
    """Return whether frequencies follow a rule closely, or are as they are on purpose."""
    return len(inv_freq) < 4 or identify(inv_freq.abs(), 5 * CLOSE).name != "unknown"


def loose_base(inv_freq: Tensor) -> float | None:
    """Return the usual base whose series is within 2 % of the rates."""
    if bool((inv_freq <= 0).any()):
        return None
    for base in USUAL:
        if relative_error(inv_freq, series(len(inv_freq), base)) < LOST / 5:
            return base
    return None


def cause(
    z: Tensor, places: Tensor, inv_freq: Tensor, far: Callable[[], bool | None]
) -> str | None:
    """Return which rounding of positions, frequencies and products gives these angles.

    Args:
        z: (L, n).
        places: (L,).
        inv_freq: (n,) exact ones.
        far: says whether a position above float16's range gives numbers; None if it is refused.

    Returns:
        the name of a finding, then the type; None if no rounding explains the angles.
    """
    p, known = places.double()[:, None], z.isfinite().all(1)
    if not bool(known.any()):
        return None
    sizes: dict[tuple[str, tuple[bool, ...]], float] = {}
    for short, which in product(ROUNDINGS, product((False, True), repeat=3)):
        on_p, on_w, on_a = (ROUNDINGS[short] if each else unrounded for each in which)
        off = wrapped(z.angle() - on_a(on_p(p) * on_w(inv_freq)))[known]
        sizes[short, which] = float(off.abs().max())
    best = min(sizes.values())
    if best > LOST:
        return None
    # The fewest roundings that explain as much: Python keeps the order of what ties.
    able = [key for key, size in sizes.items() if size <= 1.2 * best + EXACT]
    short, which = min(able, key=lambda key: sum(key[1]))
    if not any(which):
        return None
    if short == "float16" and ("TF32", which) in able and far() is not False:
        short = "TF32"
    if short == "TF32" and which == (True, True, False):
        return "tf32"
    kind = "angles" if which[2] else "positions" if which[0] else "frequencies"
    return f"{kind}-rounded {short}"


def unrounded(values: Tensor) -> Tensor:
    """Return values as they are."""
    return values


def finite_far(probe: Probe, both: tuple[Pairs, Pairs], counted: bool) -> bool | None:
    """Return whether position 2 ** 17 gives numbers; None if it is refused."""
    if counted:
        return None
    try:
        z = track(probe, both, torch.tensor([2**17]), False)[0]
    except Exception:  # whatever the function under examination raises
        return None
    return bool(z.isfinite().all())


def jumped(z: Tensor, places: Tensor, fit: Fit, powers: bool = False) -> bool:
    """Return whether angles follow the lines again, some whole number of positions further on.

    Slow pairs tell the number; past their full turn, powers of two are tried.
    """
    off = wrapped(z.angle() - places[:, None] * fit.inv_freq - fit.phases)  # (L, n)
    slow = fit.inv_freq.abs() < LOST / 10
    w = fit.inv_freq[slow]
    if len(w) == 0:
        return False
    shift = round(float((off[:, slow] * w).sum() / (w * w).sum() / len(z)))
    shifts = [sign * 2**k for k in range(6, 18) for sign in (-1, 1)] if powers else [shift]
    return any(s and float(wrapped(off - s * fit.inv_freq).abs().max()) < LOST for s in shifts)


def past_the_end(z: Tensor, places: Tensor, fit: Fit) -> str | None:
    """Return whether far positions all look alike, start again, or are counted otherwise."""
    if not bool(z.isfinite().all()):
        return "not-finite"
    rotated = float(z[-1].angle().abs().max()) > LOST  # past a wrap, far places look like 0
    if rotated and float((z[-2] - z[-1]).abs().max()) < turning(256):
        return "clamped"
    if jumped(z[-2:], places[-2:].double(), fit):
        return "two-countings"
    inv_freq = fit.inv_freq
    for size, low in ((2**k, low) for k in range(6, 18) for low in (0, 2 ** (k - 1))):
        angles = (torch.remainder(places + low, size) - low).double()[:, None] * inv_freq
        if float(wrapped(z.angle() - angles).abs().max()) < LOST:
            return "wraps"
    return "two-countings" if jumped(z[-2:], places[-2:].double(), fit, powers=True) else None


def report(name: str, places: Tensor, error: Tensor, dtype: str, case: Case) -> None:
    """Add the finding, with the first position at which an angle is off."""
    kind, _, short = name.partition(" ")
    bad = (error > LOST).nonzero().flatten()
    first = f"largest error up to position {int(places[-1])}: {float(error.max()):.2g} radians"
    if len(bad):
        first = f"angles are off by {LOST} radians or more at position {int(places[bad[0]])}"
    rounded = f"; rounded as in {short}" if short else ""
    case.fault(kind, f"called in {dtype}: {first}{rounded}")
    case.facts["precision"] = f"{first} (called in {dtype})"


def examine_far(
    probe: Probe, both: tuple[Pairs, Pairs], fit: Fit, longest: int, case: Case
) -> None:
    """Go on to a million positions, as far as the function allows, in calls of 32 tokens."""
    reached: dict[int, float] = {}
    for place in (place for place in FAR if place <= longest):
        some = torch.cat([torch.arange(30), torch.tensor([place - 1, place])])
        try:
            z = track(probe, both, some, False)[0][-2:]
        except Exception as raised:
            case.unexamined.append(
                f"positions from {place} on: the function raised {type(raised).__name__}"
            )
            break
        exact = some[-2:].double()
        reached[place] = float(off_line(z, fit, exact).max())
        if reached[place] > LOST + ROUNDING * place:
            found = past_the_end(z, exact, fit) or other_rates(probe, both, fit, place)
            words = f"angles are off by {reached[place]:.2g} radians at position {place}"
            case.fault(found, words)
            break
        fit = refined(fit, z, exact, max(turning(place), 4 * fit.error))
    if reached:
        words = ", ".join(f"{error:.1g} at {p}" for p, error in reached.items() if p % 2)
        case.facts["precision"] = f"error of the angle in radians, called in float32: {words}"
        curve: dict[str, Any] = case.curves["precision"]
        places, error = curve["float32"]
        more = torch.tensor(list(reached)), torch.tensor(list(reached.values()))
        curve["float32"] = torch.cat([places, more[0]]), torch.cat([error, more[1].double()])
    if longest < FAR[0]:
        case.unexamined.append(f"angles past position {longest}, from where frequencies differ")


def other_rates(probe: Probe, both: tuple[Pairs, Pairs], fit: Fit, place: int) -> str:
    """Return whether a run of far positions rotates steadily, by other frequencies."""
    far = place + torch.arange(32)
    try:
        local = fit_of(track(probe, both, far, False)[0], torch.arange(32).double())
    except Exception:  # whatever the function under examination raises
        return "precision-lost"
    steady = local.error < turning(place)
    alike = torch.allclose(local.inv_freq, fit.inv_freq, atol=turning(place))
    return "frequencies-change" if steady and not alike else "precision-lost"


def examine_short(
    probe: Probe,
    both: tuple[Pairs, Pairs],
    fit: Fit,
    places: Tensor,
    counted: bool,
    sound: bool,
    case: Case,
    dtype: torch.dtype,
) -> None:
    """Call the function with q and k in a short type, and see whether angles stay.

    Where float32 is not `sound` already, the curve is all that is new.
    """
    name = str(dtype).removeprefix("torch.")
    try:
        z = track(probe.in_dtype(dtype), both, places, counted)[0]
    except Exception as raised:
        case.unexamined.append(f"q and k in {name}: the function raised {type(raised).__name__}")
        return
    error = off_line(z, fit, places.double())
    case.curves["precision"][name] = (places, error)
    if case.has("short-floats"):
        case.unexamined.append(f"angles in {name}: another path is taken")
    elif float(error.max()) > LOST and sound:
        found = cause(z, places, fit.inv_freq, partial(finite_far, probe, both, counted))
        if found is None and not bool(z.isfinite().all()):
            found = "not-finite"
        report(found or "precision-lost", places, error, name, case)
