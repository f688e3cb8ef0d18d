"""Ways in: forms in which people have their positions, made into what the doctor calls.

from posdoctor.ways import of_module, of_numpy
diagnose(of_module(modeling_llama.apply_rotary_pos_emb, rotary_emb))   # (q, k, cos, sin)
diagnose(of_numpy(my_function))                                        # arrays in, arrays out
diagnose(my_function, blhd=True)                                       # (B, L, H, d)
diagnose(of_one(my_function))                                          # (x, positions) -> x
diagnose(of_flat(my_function, heads=8, head_dim=64))                   # (T, H d), positions (T,)
diagnose(of_flat(positions_first(get_rope(...)), 8, 64))               # vLLM: (positions, q, k)
diagnose(axes_first(my_function), axes=3)                              # positions (3, B, L)
diagnose(of_lengths(my_bias))                                          # (n_q, n_k) -> (H, n_q, n_k)
diagnose(freqs_cis), diagnose((cos, sin)), diagnose("bias.npy", kind="bias")
diagnose_dump(before, after, positions)                                # q or k, (H, L, d)
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import torch
from torch import Tensor

from posdoctor.layers import measured
from posdoctor.probes import Layout
from posdoctor.profile import Case, Profile
from posdoctor.report import Report
from posdoctor.subjects import Bias, InputError, Rotary, RotaryFunction, Tables


def of_module(apply: Callable[..., Any], tables: Callable[..., Any]) -> RotaryFunction:
    """Return the function of `apply(q, k, cos, sin)` and `tables(x, positions) -> (cos, sin)`."""

    def rotate(q: Tensor, k: Tensor, positions: Tensor) -> tuple[Tensor, Tensor]:
        rotated = apply(q, k, *tables(q, positions))
        return rotated[0], rotated[1]

    return rotate


def of_numpy(function: Callable[..., Any]) -> RotaryFunction:
    """Return a function of tensors that calls one of NumPy's arrays."""

    def rotate(q: Tensor, k: Tensor, positions: Tensor) -> tuple[Tensor, Tensor]:
        answer = function(*(np.asarray(x.contiguous()) for x in (q, k, positions)))
        new_q, new_k = (torch.from_numpy(np.ascontiguousarray(x)) for x in answer)
        return new_q, new_k

    return rotate


def of_blhd(function: RotaryFunction) -> RotaryFunction:
    """Return the function of one whose queries and keys are (B, L, H, d)."""

    def rotate(q: Tensor, k: Tensor, positions: Tensor) -> tuple[Tensor, Tensor]:
        new_q, new_k = function(q.transpose(1, 2), k.transpose(1, 2), positions)
        return new_q.transpose(1, 2), new_k.transpose(1, 2)

    return rotate


def of_one(function: Callable[[Tensor, Tensor], Tensor]) -> RotaryFunction:
    """Return the function of one that takes one tensor: (x, positions) -> x."""
    return lambda q, k, positions: (function(q, positions), function(k, positions))


def positions_first(function: Callable[..., Any]) -> RotaryFunction:
    """Return the function of one in vLLM's order: (positions, q, k) -> (q, k)."""

    def rotate(q: Tensor, k: Tensor, positions: Tensor) -> tuple[Tensor, Tensor]:
        new_q, new_k = function(positions, q, k)
        return new_q, new_k

    return rotate


def axes_first(function: RotaryFunction) -> RotaryFunction:
    """Return the function of one whose positions are (axes, B, L) or (axes, L), as M-RoPE's are."""
    return lambda q, k, positions: function(q, k, positions.movedim(-1, 0))


def of_flat(function: RotaryFunction, heads: int, head_dim: int, axes: int = 1) -> Rotary:
    """Return what calls a function of flat queries and keys, (T, heads * d), positions (T,)."""

    def rotate(q: Tensor, k: Tensor, positions: Tensor) -> tuple[Tensor, Tensor]:
        if positions.shape[:2] != q.shape[::2] or q.shape[-1] != head_dim:
            raise ValueError(f"positions must be (B, L), and q and k {head_dim} wide")
        x, y = (each.transpose(1, 2).flatten(2).flatten(0, 1) for each in (q, k))
        new = function(x, y, positions.flatten(0, 1))
        new_q, new_k = (
            one.reshape(len(old), old.shape[2], *old.shape[1::2]).transpose(1, 2)
            for one, old in zip(new, (q, k), strict=True)
        )
        return new_q, new_k

    return Rotary(rotate, head_dim, heads, axes)


def of_lengths(function: Callable[[int, int], Tensor]) -> Bias:
    """Return the bias of (n_q, n_k) -> (H, n_q, n_k), whose queries are the last of the keys."""

    def bias(q_pos: Tensor, k_pos: Tensor) -> Tensor:
        count, first = 1 + int(max(q_pos.max(), k_pos.max())), int(q_pos.min())
        whole = function(count - first, count)
        whole = whole[0] if whole.ndim == 4 else whole
        return whole[:, q_pos - first][:, :, k_pos]

    return Bias(bias)


def of_tensor(table: Tensor, kind: str | None) -> Tables | Bias:
    """Return a table: complex (L, d / 2) of rotations, or with kind="bias" (H, Lq, Lk) of a bias.

    Raises:
        InputError: if it is neither.
    """
    if table.is_complex() and table.ndim == 2:
        return Tables(table.real.float(), table.imag.float())
    if kind == "bias" and table.ndim in (2, 3, 4):
        whole = table.reshape(-1, *table.shape[-2:])

        def bias(q_pos: Tensor, k_pos: Tensor) -> Tensor:
            rows = q_pos if whole.shape[1] > 1 else torch.zeros(1, dtype=torch.long)
            return whole[:, rows][:, :, k_pos]

        return Bias(bias)
    raise InputError(
        'a tensor must be complex, (positions, d / 2), or with kind="bias" (heads, queries, keys); '
        f"got {table.dtype}, {tuple(table.shape)}"
    )


def diagnose_dump(before: Tensor, after: Tensor, positions: Tensor) -> Report:
    """Examine queries or keys that were dumped before and after the rotation.

    Args:
        before: (H, L, d), L at least 16.
        after: of the same shape.
        positions: (L,) consecutive ones.

    Raises:
        InputError: if shapes do not fit, or positions are not consecutive.
    """
    if before.shape != after.shape or before.ndim != 3 or len(positions) != before.shape[1]:
        raise InputError(
            "before and after must be (H, L, d) and positions (L,); got "
            f"{tuple(before.shape)}, {tuple(after.shape)} and {tuple(positions.shape)}"
        )
    if len(positions) < 16 or bool((positions.diff() != 1).any()):
        raise InputError("positions must be at least 16 consecutive ones")
    case = Case()
    wanted = Profile("rotary", before.shape[-1], Layout("half", 0, before.shape[-1]))
    found = measured(after, wanted, before)
    if found is None or found.layout is None:
        case.unsure("not-proportional", "no pairs turn by angles that grow with the position")
    else:
        case.facts |= {"layout": found.layout.name, "frequencies": str(found.rule)}
        if found.backwards:
            case.unsure("direction")
    case.unexamined.append("everything but these tokens")
    return Report("dumped queries or keys", case, found)
