"""Argument checks that name the argument, what was given and what is allowed."""

from __future__ import annotations

import torch
from torch import Tensor


def require_positive(name: str, value: object) -> int:
    """Return `value` if it is an int of at least 1."""
    if isinstance(value, bool) or not isinstance(value, int):
        raise TypeError(f"{name} must be an int, got {type(value).__name__}")
    if value < 1:
        raise ValueError(f"{name} must be at least 1, got {value}")
    return value


def require_multiple(name: str, value: object, of: int, why: str) -> int:
    """Return `value` if it is a positive multiple of `of`."""
    number = require_positive(name, value)
    if number % of:
        raise ValueError(f"{name} must be a multiple of {of} ({why}), got {number}")
    return number


def require_choice(name: str, value: str, allowed: tuple[str, ...]) -> str:
    """Return `value` if it is one of `allowed`."""
    if value not in allowed:
        raise ValueError(f"{name} must be one of {', '.join(allowed)}; got {value!r}")
    return value


def require_greater(name: str, value: float, than: float) -> float:
    """Return `value` if it is a finite number greater than `than`."""
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise TypeError(f"{name} must be a number, got {type(value).__name__}")
    if not than < value < float("inf"):
        raise ValueError(f"{name} must be a finite number greater than {than:g}, got {value!r}")
    return value


def require_floating(name: str, tensor: object) -> Tensor:
    """Return `tensor` if it is a floating-point tensor."""
    if not isinstance(tensor, Tensor):
        raise TypeError(f"{name} must be a torch.Tensor, got {type(tensor).__name__}")
    if not tensor.is_floating_point():
        raise TypeError(f"{name} must have a floating-point dtype, got {tensor.dtype}")
    return tensor


def require_real(name: str, values: object, dtype: torch.dtype | None = None) -> Tensor:
    """Return `values` as a tensor of real numbers, of type `dtype`, or its own if None.

    Python's floats become float32 where `dtype` does not say otherwise.
    """
    try:
        tensor = torch.as_tensor(values)
    except (TypeError, ValueError, RuntimeError) as error:
        raise TypeError(f"{name} must be numbers or a tensor of numbers, got {values!r}") from error
    if tensor.is_complex() or tensor.dtype == torch.bool:
        raise TypeError(f"{name} must be real numbers, got {tensor.dtype}")
    return tensor if dtype is None else torch.as_tensor(values, dtype=dtype)


def require_positions(
    name: str, positions: object, length: int, batch: int | None = None
) -> Tensor:
    """Return `positions` if its shape is (length,) or (batch, length); None allows any batch."""
    tensor = require_real(name, positions)
    wrong_batch = tensor.ndim == 2 and batch is not None and len(tensor) not in (1, batch)
    if tensor.ndim not in (1, 2) or tensor.shape[-1] != length or wrong_batch:
        raise ValueError(
            f"{name} must have shape ({length},) or ({'batch' if batch is None else batch}, "
            f"{length}), got {tuple(tensor.shape)}"
        )
    return tensor
