"""Argument checks that name the argument, what was given and what is allowed."""

from __future__ import annotations

from numbers import Integral, Real

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
    if value not in allowed:
        raise ValueError(f"{name} must be one of {', '.join(allowed)}; got {value!r}")
    return value


def require_greater(name: str, value: object, than: float) -> float:
    """Return `value` as a float if it is a finite number greater than `than`."""
    if isinstance(value, bool) or not isinstance(value, Real):
        raise TypeError(f"{name} must be a number, got {type(value).__name__}")
    number = float(value)
    if not than < number < float("inf"):
        raise ValueError(f"{name} must be a finite number greater than {than:g}, got {value!r}")
    return number


def require_floating(name: str, tensor: object) -> Tensor:
    """Return `tensor` if it is a floating-point tensor."""
    if not isinstance(tensor, Tensor):
        raise TypeError(f"{name} must be a torch.Tensor, got {type(tensor).__name__}")
    if not tensor.is_floating_point():
        raise TypeError(f"{name} must have a floating-point dtype, got {tensor.dtype}")
    return tensor


def require_real(name: str, values: object) -> Tensor:
    """Return `values` as a tensor of real numbers.

    All integers become int64: in the smaller and the unsigned types a difference of two
    positions wraps around. Python's floats become float64.
    """
    try:
        # A tensor is left where it is, whatever torch.device(...) says.
        tensor = values if isinstance(values, Tensor) else torch.as_tensor(values)
    except (TypeError, ValueError, RuntimeError) as error:
        raise TypeError(f"{name} must be numbers or a tensor of numbers, got {values!r}") from error
    if tensor.is_complex() or tensor.dtype == torch.bool:
        raise TypeError(f"{name} must be real numbers, got {tensor.dtype}")
    if tensor.is_floating_point():
        return (
            tensor if isinstance(values, Tensor) else torch.as_tensor(values, dtype=torch.float64)
        )
    return tensor.long()


def require_integers(name: str, values: object) -> Tensor:
    """Return `values` as an int64 tensor if they are integers."""
    tensor = require_real(name, values)
    if tensor.is_floating_point():
        raise TypeError(f"{name} must be integers, got {tensor.dtype}")
    return tensor


def require_heads(q: Tensor, n_heads: int) -> None:
    """Raise a ValueError unless q (B, H, L, d) has `n_heads` heads."""
    if q.ndim != 4 or q.shape[1] != n_heads:
        got = f"{q.shape[1]}" if q.ndim == 4 else f"shape {tuple(q.shape)}"
        raise ValueError(f"q must have {n_heads} heads for this encoding, got {got}")


def may_read(tensor: Tensor) -> bool:
    """Return whether values may decide what is done: not inside a compiled graph, nor on meta."""
    return not (torch.compiler.is_compiling() or tensor.is_meta)
