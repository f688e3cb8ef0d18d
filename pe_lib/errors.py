"""Argument checks that name the argument, what was given and what is allowed."""

from __future__ import annotations

from collections.abc import Sequence
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
    """Return `value` as a float if it is a number; what is too large for one is infinite."""
    if isinstance(value, bool) or not isinstance(value, Real):
        raise TypeError(f"{name} must be a number, got {type(value).__name__}")
    try:
        return float(value)
    except OverflowError:
        return float("inf")


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


def require_several(name: str, values: object) -> list[Any]:
    """Return `values` as a list if they are several things in order, at least one."""
    if isinstance(values, str) or not isinstance(values, Sequence | np.ndarray):
        raise TypeError(f"{name} must be a list or a tuple, got {values!r}")
    if len(values) == 0:
        raise ValueError(f"{name} must hold at least one, got none")
    return list(values)


def require_bool(name: str, value: object) -> bool:
    """Return `value` if it is True or False; in a graph it may be known when that runs."""
    if not isinstance(value, bool | np.bool_ | torch.SymBool):
        raise TypeError(f"{name} must be True or False, got {value!r}")
    found: Any = bool(value) if isinstance(value, np.bool_) else value
    return found  # type: ignore[no-any-return]


def require_floating(name: str, tensor: object) -> Tensor:
    """Return `tensor` if it is a floating-point tensor."""
    if not isinstance(tensor, Tensor):
        raise TypeError(f"{name} must be a torch.Tensor, got {type(tensor).__name__}")
    if not tensor.is_floating_point():
        raise TypeError(f"{name} must have a floating-point dtype, got {tensor.dtype}")
    return tensor


def require_real(name: str, values: object) -> Tensor:
    """Return `values` as a tensor of finite real numbers.

    All integers become int64: in the smaller and the unsigned types a difference of two
    positions wraps around. Half precision becomes float32, in which a difference is exact, and
    Python's floats float64.
    """
    if isinstance(values, np.ndarray):  # a copy: PyTorch wants this machine's own order of bytes
        values = np.array(values, dtype=values.dtype.newbyteorder("="), order="C")
    try:
        # A tensor is left where it is, whatever torch.device(...) says.
        tensor = values if isinstance(values, Tensor) else torch.as_tensor(values)
    except (TypeError, ValueError, RuntimeError) as error:
        raise TypeError(f"{name} must be numbers or a tensor of numbers, got {values!r}") from error
    if tensor.is_complex() or tensor.dtype == torch.bool:
        raise TypeError(f"{name} must be real numbers, got {tensor.dtype}")
    if tensor.is_floating_point():
        if not isinstance(values, Tensor):
            tensor = torch.as_tensor(values, dtype=torch.float64)
        tensor = tensor.to(torch.promote_types(tensor.dtype, torch.float32))
        return require_finite(name, tensor)
    return tensor.long()


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


def require_heads(q: Tensor, n_heads: int, width: int | None = None) -> None:
    """Raise a ValueError unless q (B, H, L, d) has `n_heads` heads, of `width` if it is given."""
    if q.ndim != 4 or q.shape[1] != n_heads:
        got = f"{q.shape[1]}" if q.ndim == 4 else f"shape {tuple(q.shape)}"
        raise ValueError(f"q must have {n_heads} heads for this encoding, got {got}")
    if width is not None and q.shape[3] != width:
        raise ValueError(f"q must have heads of width {width} for this encoding, got {q.shape[3]}")


def require_qkv(q: object, k: object, v: object = None) -> None:
    """Raise unless queries (B, H, Lq, d), keys and values (B, H, Lk >= 1, d) fit each other."""
    given = {"q": q, "k": k} | ({} if v is None else {"v": v})
    q, *others = (require_floating(name, x) for name, x in given.items())
    if q.ndim != 4:
        raise ValueError(f"q must have shape (B, H, Lq, d), got {tuple(q.shape)}")
    for name, x in zip("kv", others, strict=False):
        wanted = (*q.shape[:2], others[0].shape[-2] if others[0].ndim == 4 else 0)
        if x.ndim != 4 or x.shape[:3] != wanted or x.shape[2] == 0:
            raise ValueError(
                f"{name} must have shape (B, H, Lk >= 1, d) with the B and H of q, and v the Lk "
                f"of k; got {tuple(x.shape)} for q of shape {tuple(q.shape)}"
            )
        if name == "k" and x.shape[3] != q.shape[3]:
            raise ValueError(f"k must have the width of q, {q.shape[3]}, got {x.shape[3]}")
        if x.dtype != q.dtype:
            raise TypeError(f"{name} must have the dtype of q, {q.dtype}, got {x.dtype}")
        if x.device != q.device:
            raise ValueError(f"{name} must be on the device of q, {q.device}, got {x.device}")


def require_hidden(name: str, x: Tensor, weight: Tensor) -> tuple[int, int]:
    """Return batch and length of hidden states (B, L >= 1, D) for a layer with this weight (D, D).

    Raises:
        TypeError: if x is not a floating-point tensor, or has not the dtype of the weight.
        ValueError: if its shape or its device does not fit.
    """
    require_floating(name, x)
    if x.ndim != 3 or x.shape[1] == 0 or x.shape[2] != weight.shape[1]:
        raise ValueError(
            f"{name} must have shape (batch, length >= 1, {weight.shape[1]}), got {tuple(x.shape)}"
        )
    cast = not x.is_meta and torch.is_autocast_enabled(x.device.type)
    if x.dtype != weight.dtype and not cast:
        raise TypeError(f"{name} must have the dtype of the weights, {weight.dtype}, got {x.dtype}")
    if x.device != weight.device and not weight.is_meta:  # which may be loaded when it is used
        raise ValueError(
            f"{name} must be on the device of the weights, {weight.device}, got {x.device}"
        )
    return x.shape[0], x.shape[1]


def broadcasts(given: Sequence[int], wanted: Sequence[int]) -> bool:
    """Return whether a tensor of the shape `given` expands to the shape `wanted`."""
    axes = zip(reversed(given), reversed(wanted), strict=False)
    return len(given) <= len(wanted) and all(one in (1, other) for one, other in axes)


def require_mask(mask: object, shape: tuple[int, ...]) -> None:
    """Raise unless mask is None, or a bool tensor that broadcasts to (B, H, Lq, Lk)."""
    if mask is None:
        return
    if not isinstance(mask, Tensor) or mask.dtype != torch.bool:
        got = mask.dtype if isinstance(mask, Tensor) else type(mask).__name__
        raise TypeError(f"mask must have dtype torch.bool (True: may look), got {got}")
    if not broadcasts(mask.shape, shape):
        raise ValueError(
            f"mask must broadcast to (B, H, Lq, Lk) = {tuple(shape)}, got {tuple(mask.shape)}"
        )


def may_read(tensor: Tensor) -> bool:
    """Return whether values may decide what is done: not in a graph, on meta, or under vmap."""
    if torch.compiler.is_compiling() or tensor.is_meta:
        return False
    return not torch._C._functorch.is_functorch_wrapped_tensor(tensor)
