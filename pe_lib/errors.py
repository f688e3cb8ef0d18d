"""Checks that name the argument, what was given and what is allowed."""

import math
import reprlib
from collections.abc import Mapping
from numbers import Integral, Real
from typing import Any

import torch
from torch import Tensor

# --- numbers and settings -------------------------------------------------------------------------


def require_kind(name: str, value: object, kind: Any, words: str) -> Any:
    """Return `value` if it is of a class; True is no number."""
    if not isinstance(value, kind) or (isinstance(value, bool) and kind in (Integral, Real)):
        raise TypeError(f"{name} must be {words}, got {reprlib.repr(value)}")
    return value


def require_positive(name: str, value: object, *, least: float = 1) -> int:
    """Return `value` as an int if it is an integer of at least 1, or of another `least`."""
    number = require_kind(name, value, Integral, "an int")
    if number < least:
        raise ValueError(f"{name} must be at least {least}, got {value}")
    return int(number)


def require_multiple(name: str, value: object, of: int, why: str) -> int:
    """Return `value` as an int if it is a positive multiple of `of`."""
    number = require_positive(name, value)
    if number % of:
        raise ValueError(f"{name} must be a multiple of {of} ({why}), got {number}")
    return number


def require_greater(name: str, value: object, than: float, *, equal: bool = False) -> float:
    """Return `value` as a float if it is a finite number greater than `than`, or `equal` to it."""
    number = float(require_kind(name, value, Real, "a number"))
    if not than < number < math.inf and not (equal and number == than):
        which = "of at least" if equal else "greater than"
        raise ValueError(f"{name} must be a finite number {which} {than:g}, got {value!r}")
    return number


def require_at_least(name: str, value: object, least: float) -> float:
    """Return `value` as a float if it is a finite number of at least `least`."""
    return require_greater(name, value, least, equal=True)


def require_choice(name: str, value: str, allowed: tuple[str, ...]) -> str:
    """Return `value` if it is one of `allowed`."""
    if not isinstance(value, str) or value not in allowed:
        raise ValueError(f"{name} must be one of {', '.join(allowed)}; got {value!r}")
    return value


def require_bool(name: str, value: object) -> Any:
    """Return `value` if it is True or False; in a graph it may be known when that runs."""
    return require_kind(name, value, bool | torch.SymBool, "True or False")


# --- tensors --------------------------------------------------------------------------------------


def require_floating(name: str, tensor: object) -> Tensor:
    """Return `tensor` if it is a floating-point tensor."""
    given: Tensor = require_kind(name, tensor, Tensor, "a torch.Tensor")
    if not given.is_floating_point():
        raise TypeError(f"{name} must have a floating-point dtype, got {given.dtype}")
    return given


def require_booleans(name: str, tensor: object) -> Tensor:
    """Return `tensor` if it is a tensor of True and False."""
    given: Tensor = require_kind(name, tensor, Tensor, "a torch.Tensor")
    if given.dtype != torch.bool:
        raise TypeError(f"{name} must have dtype torch.bool, got {given.dtype}")
    return given


def require_finite(name: str, tensor: object) -> Tensor:
    """Return a floating-point tensor if it has no NaN and no infinity, as far as it may be read."""
    given = require_floating(name, tensor)
    if may_read(given) and not given.isfinite().all():
        raise ValueError(f"{name} must be finite, got {given[~given.isfinite()][0].item()}")
    return given


def numbers(
    name: str, values: Any, device: torch.device | None = None, *, integers: bool = False
) -> Tensor:
    """Return finite real numbers in any form, a `Run` too, as a tensor.

    All integers become int64: in the smaller and the unsigned types a difference of two
    positions wraps around. Half precision becomes float32, in which a difference is exact, and
    Python's floats float64.
    """
    try:  # a tensor is left where it is, whatever torch.device(...) says
        values = values.tensor(device) if hasattr(values, "tensor") else values
        tensor = values if isinstance(values, Tensor) else torch.tensor(values)
    except (TypeError, ValueError, RuntimeError) as error:
        words = "numbers or a tensor of numbers"
        raise TypeError(f"{name} must be {words}, got {reprlib.repr(values)}") from error
    if tensor.is_complex() or tensor.dtype == torch.bool:
        raise TypeError(f"{name} must be real numbers, got {tensor.dtype}")
    if not tensor.is_floating_point():
        return tensor.to(device=device, dtype=torch.int64)
    if integers:
        raise TypeError(f"{name} must be integers, got {tensor.dtype}")
    if not isinstance(values, Tensor):
        tensor = torch.tensor(values, dtype=torch.float64)
    precise = torch.promote_types(tensor.dtype, torch.float32)
    return require_finite(name, tensor.to(precise)).to(device)


def require_precision(name: str, dtype: object) -> torch.dtype:
    """Return `dtype` if its numbers have fractions."""
    if not isinstance(dtype, torch.dtype) or not dtype.is_floating_point:
        raise TypeError(f"{name} must be a floating-point type, got {dtype!r}")
    return dtype


def may_read(tensor: Tensor) -> bool:
    """Return whether numbers may decide what is done: not in a graph, nor if a device waits."""
    return tensor.is_cpu and not torch.compiler.is_compiling()


# --- shapes ---------------------------------------------------------------------------------------


def require_shapes(
    given: Mapping[str, Any],
    shapes: Mapping[str, str],
    lengths: Mapping[str, int] | None = None,
    who: str = "",
) -> None:
    """Raise unless arguments have the axes that are wanted; a word is the same length everywhere.

    Args:
        given: arguments by name, tensors and positions; what has no shape is left out.
        shapes: the axes of some, such as "B H Lq d", "L | B L" or "... n".
        lengths: what some words stand for.
        who: what stands before an argument's name in the message.
    """
    known = dict(lengths or {})
    for name in shapes:
        if hasattr(given.get(name), "shape"):
            shape, wanted = tuple(given[name].shape), shapes[name].split(" | ")
            fits = (matched(shape, axes.split(), known) for axes in wanted)
            found = next((each for each in fits if each is not None), None)
            if found is None:
                raise ValueError(f"{who}{name} must have shape {named(wanted, known)}, got {shape}")
            known = found


def require_broadcast(name: str, tensor: Tensor, wanted: tuple[int, ...]) -> None:
    """Raise unless a tensor broadcasts to (B, H, Lq, Lk)."""
    axes = zip(reversed(tensor.shape), reversed(wanted), strict=False)
    if tensor.ndim > len(wanted) or any(given not in (1, full) for given, full in axes):
        raise ValueError(
            f"{name} must broadcast to (B, H, Lq, Lk) = {wanted}, got {tuple(tensor.shape)}"
        )


def matched(
    shape: tuple[int, ...], axes: list[str], known: Mapping[str, int]
) -> dict[str, int] | None:
    """Return the known lengths and those that a shape adds, or None if it does not fit."""
    if axes[:1] == ["..."]:
        axes = axes[1:]
        shape = shape[max(0, len(shape) - len(axes)) :]
    if len(shape) != len(axes):
        return None
    lengths = dict(known)
    for size, axis in zip(shape, axes, strict=True):
        if size != (int(axis) if axis.isdigit() else lengths.setdefault(axis, size)):
            return None
    return lengths


def named(wanted: list[str], known: Mapping[str, int]) -> str:
    """Return shapes as a message has them, with the lengths that are known."""
    words = [
        [f"{axis}={known[axis]}" if axis in known else axis for axis in axes.split()]
        for axes in wanted
        if "1" not in axes.split()  # it goes without saying that a batch may be of one
    ]
    return " or ".join(f"({', '.join(axes)}{',' * (len(axes) == 1)})" for axes in words)
