"""Checks that name the argument, what was given and what is allowed."""

from collections.abc import Mapping
from numbers import Integral, Real
from typing import Any

import numpy as np
import torch
from torch import Tensor


def require_positive(name: str, value: object, *, least: int = 1) -> int:
    """Return `value` as an int if it is an integer of at least 1, or of another `least`."""
    if isinstance(value, bool) or not isinstance(value, Integral):
        raise TypeError(f"{name} must be an int, got {type(value).__name__}")
    if value < least:
        raise ValueError(f"{name} must be at least {least}, got {value}")
    return int(value)


def require_multiple(name: str, value: object, of: int, why: str) -> int:
    """Return `value` as an int if it is a positive multiple of `of`."""
    number = require_positive(name, value)
    if number % of:
        raise ValueError(f"{name} must be a multiple of {of} ({why}), got {number}")
    return number


def require_choice(name: str, value: str, allowed: tuple[str, ...]) -> str:
    """Return `value` if it is one of `allowed`."""
    if not isinstance(value, str) or value not in allowed:
        raise ValueError(f"{name} must be one of {', '.join(allowed)}; got {value!r}")
    return value


def as_number(name: str, value: object) -> float:
    """Return `value` as a float if it is a number."""
    if isinstance(value, bool) or not isinstance(value, Real):
        raise TypeError(f"{name} must be a number, got {type(value).__name__}")
    return float(value)


def require_greater(name: str, value: object, than: float) -> float:
    """Return `value` as a float if it is a finite number greater than `than`."""
    number = as_number(name, value)
    if not than < number < float("inf"):
        raise ValueError(f"{name} must be a finite number greater than {than:g}, got {value!r}")
    return number


def require_at_least(name: str, value: object, least: float) -> float:
    """Return `value` as a float if it is a finite number of at least `least`."""
    number = as_number(name, value)
    if not least <= number < float("inf"):
        raise ValueError(f"{name} must be a finite number of at least {least:g}, got {value!r}")
    return number


def require_instance(name: str, value: object, *, of: type) -> Any:
    """Return `value` if it is of a class."""
    if not isinstance(value, of):
        raise TypeError(f"{name} must be a {of.__name__}, got {value!r}")
    return value


def require_bool(name: str, value: object) -> Any:
    """Return `value` if it is True or False; in a graph it may be known when that runs."""
    if not isinstance(value, bool | np.bool_ | torch.SymBool):
        raise TypeError(f"{name} must be True or False, got {value!r}")
    return bool(value) if isinstance(value, np.bool_) else value


def require_floating(name: str, tensor: object) -> Tensor:
    """Return `tensor` if it is a floating-point tensor."""
    if not isinstance(tensor, Tensor):
        raise TypeError(f"{name} must be a torch.Tensor, got {type(tensor).__name__}")
    if not tensor.is_floating_point():
        raise TypeError(f"{name} must have a floating-point dtype, got {tensor.dtype}")
    return tensor


def require_floating_type(name: str, dtype: object) -> torch.dtype:
    """Return `dtype` if its numbers have fractions."""
    if not isinstance(dtype, torch.dtype) or not dtype.is_floating_point:
        raise TypeError(f"{name} must be a floating-point type, got {dtype!r}")
    return dtype


def require_booleans(name: str, tensor: object) -> Tensor:
    """Return `tensor` if it is a tensor of True and False."""
    if not isinstance(tensor, Tensor) or tensor.dtype != torch.bool:
        got = tensor.dtype if isinstance(tensor, Tensor) else type(tensor).__name__
        raise TypeError(f"{name} must have dtype torch.bool, got {got}")
    return tensor


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


def require_real(name: str, values: object) -> Tensor:
    """Return `values` as a tensor of finite real numbers.

    All integers become int64: in the smaller and the unsigned types a difference of two
    positions wraps around. Half precision becomes float32, in which a difference is exact, and
    Python's floats float64.
    """
    try:
        # A tensor is left where it is, whatever torch.device(...) says.
        tensor = values if isinstance(values, Tensor) else torch.as_tensor(values)
    except (TypeError, ValueError, RuntimeError) as error:
        raise TypeError(f"{name} must be numbers or a tensor of numbers, got {values!r}") from error
    if tensor.is_complex() or tensor.dtype == torch.bool:
        raise TypeError(f"{name} must be real numbers, got {tensor.dtype}")
    if not tensor.is_floating_point():
        return tensor.long()
    if not isinstance(values, Tensor):
        tensor = torch.as_tensor(values, dtype=torch.float64)
    return require_finite(name, tensor.to(torch.promote_types(tensor.dtype, torch.float32)))


def require_finite(name: str, tensor: Tensor) -> Tensor:
    """Return `tensor` if it holds no NaN and no infinity, as far as it may be read."""
    if may_read(tensor) and not tensor.isfinite().all():
        raise ValueError(f"{name} must be finite, got {tensor[~tensor.isfinite()][0].item()}")
    return tensor


def require_integers(name: str, values: object) -> Tensor:
    """Return `values` as an int64 tensor if they are integers."""
    tensor = require_real(name, values)
    if tensor.is_floating_point():
        raise TypeError(f"{name} must be integers, got {tensor.dtype}")
    return tensor


def may_read(tensor: Tensor) -> bool:
    """Return whether numbers may decide what is done: not in a graph, nor if a device waits."""
    return tensor.is_cpu and not torch.compiler.is_compiling()
