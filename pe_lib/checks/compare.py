"""Compare what a student's function returned with what was wanted, and put it into words."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor


def clone(value: Any) -> Any:
    """Copy tensors, also inside tuples and lists."""
    if isinstance(value, Tensor):
        return value.clone()
    if isinstance(value, tuple | list):
        return type(value)(clone(item) for item in value)
    return value


def as_tensor(value: Any) -> Tensor | None:
    """Return a tensor for a tensor, an array or a number, and None for anything else."""
    if value is None or isinstance(value, str):
        return None
    try:
        return torch.as_tensor(value).detach()
    except (TypeError, ValueError, RuntimeError):
        return None


def type_name(value: Any) -> str:
    """Return the name of a value's type; one that came through a pipe carries it along."""
    return str(getattr(value, "type_name", type(value).__name__))


def shape_problem(got: Any, want: Any) -> str:
    """Say how the kind or the shape of `got` differs from `want`, or return nothing."""
    if isinstance(want, tuple):
        if not isinstance(got, tuple | list) or len(got) != len(want):
            return f"it must return {len(want)} values, it returns {kind(got)}"
        problems = [shape_problem(*pair) for pair in zip(got, want, strict=True)]
        found = [f"value {i}: {text}" for i, text in enumerate(problems, 1) if text]
        return found[0] if found else ""
    if got is None:
        return "it returns None; is a `return` missing?"
    goal, given = as_tensor(want), as_tensor(got)
    assert goal is not None
    if given is None:
        return f"it must return {kind(want)}, it returns {kind(got)}"
    if given.shape != goal.shape:
        return f"it must return {kind(want)}, it returns {kind(got)}"
    if (goal.dtype == torch.bool) != (given.dtype == torch.bool):
        return f"it must return {'' if goal.dtype == torch.bool else 'numbers, not '}True and False"
    return ""


def kind(value: Any) -> str:
    """Return words for what a value is: its shape, the count of values, or its type."""
    if isinstance(value, tuple | list) and as_tensor(value) is None:
        return f"{len(value)} values"
    tensor = as_tensor(value)
    if tensor is None:
        return f"a {type_name(value)}"
    return f"shape {tuple(tensor.shape)}" if tensor.ndim else "a number"


def close(got: Any, want: Any, tolerance: float) -> bool:
    """Return whether all numbers agree; shapes must be the same already."""
    if isinstance(want, tuple | list):
        return all(close(*pair, tolerance) for pair in zip(got, want, strict=True))
    goal, given = as_tensor(want), as_tensor(got)
    if goal is None or given is None:
        return bool(got == want)
    if given.shape != goal.shape:
        return False
    a, b = both_wide(given, goal)
    finite = b[torch.isfinite(b)]
    room = tolerance * max(1.0, float(finite.abs().max()) if finite.numel() else 1.0)
    return torch.allclose(a, b, rtol=0.0, atol=room, equal_nan=True)


def both_wide(a: Tensor, b: Tensor) -> tuple[Tensor, Tensor]:
    """Convert to one type of double precision on the CPU."""
    dtype = torch.complex128 if a.is_complex() or b.is_complex() else torch.float64
    return a.cpu().to(dtype), b.cpu().to(dtype)


def difference(got: Any, want: Any, tolerance: float) -> str:
    """Say in what way numbers of the right shape are wrong, without giving the right ones."""
    if isinstance(want, tuple):
        for place, pair in enumerate(zip(got, want, strict=True), 1):
            if not close(*pair, tolerance):
                return f"value {place}: {difference(*pair, tolerance)}"
    a, b = both_wide(torch.as_tensor(got).detach(), torch.as_tensor(want))
    for test, words in (
        (not torch.isfinite(a).all() and bool(torch.isfinite(b).all()), "it has NaN or infinity"),
        (close(-a, b, tolerance), "the sign of everything is flipped"),
        (proportional(a, b, tolerance), "everything is off by one constant factor"),
        (shifted(a, b, tolerance), "everything is off by one constant that is added"),
        (b.ndim > 1 and b.shape[-1] == b.shape[-2] and close(a.mT, b, tolerance),
         "it is the transpose of what is wanted"),
    ):  # fmt: skip
        if test:
            return words
    return wrong_part(a, b, tolerance)


def proportional(a: Tensor, b: Tensor, tolerance: float) -> bool:
    """Return whether a is a multiple of b, not zero."""
    if a.numel() < 2 or not torch.isfinite(a).all() or not torch.isfinite(b).all():
        return False
    size = (b * b.conj()).sum()
    factor = (a * b.conj()).sum() / size if size != 0 else size
    return bool(factor.abs() > tolerance) and close(a, factor * b, tolerance)


def shifted(a: Tensor, b: Tensor, tolerance: float) -> bool:
    """Return whether a is b plus one constant."""
    return a.numel() > 1 and close(a - (a - b).mean(), b, tolerance)


def wrong_part(a: Tensor, b: Tensor, tolerance: float) -> str:
    """Say where numbers are wrong: everywhere, or only past the first index of an axis."""
    if b.ndim == 0:
        return "the number is wrong"
    bad = ~torch.isclose(a, b, rtol=0.0, atol=tolerance * max(1.0, float(b.abs().max())))
    names = ("batch", "head", "position", "channel") if b.ndim == 4 else ()
    for axis in range(b.ndim):
        first, rest = bad.select(axis, 0), bad.narrow(axis, 1, b.shape[axis] - 1)
        if b.shape[axis] > 1 and not first.any() and rest.any():
            name = names[axis] if names else f"axis {axis}"
            return f"the shape and index 0 of the {name} are right, later ones are wrong"
    share = round(100 * float(bad.double().mean()))
    return f"the shape is right, the values are not ({share} % of them)"
