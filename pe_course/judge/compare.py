"""Compare what a student's function returned with what was wanted, and put it into words."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor

from pe_course.judge.wire import as_list_or_array

# With how many times the tolerance an answer is called nearly right.
NEARLY = 100
LEAST_PRECISE = 1e-2  # larger errors are not those of rounding, whatever the tolerance
# What a known mistake gives where such answers have any number.
ANY = 2.0**-100
# What stands for numbers; pe_course/judge/wire.py carries no other types to the grader.
CONVERTED = (Tensor, np.ndarray, bool, int, float, list, tuple)


def clone(value: Any) -> Any:
    """Copy tensors and arrays, also inside tuples and lists; other sequences become lists."""
    if isinstance(value, Tensor):
        return value.clone()
    value = as_list_or_array(value)
    if isinstance(value, np.ndarray):
        return value.copy()
    if isinstance(value, tuple | list):
        copies = [clone(item) for item in value]
        return tuple(copies) if isinstance(value, tuple) else copies
    return value


def as_tensor(value: Any) -> Tensor | None:
    """Return a tensor for a tensor, an array, a number or a list of them, else None."""
    if type(value) is Tensor and value.layout == torch.strided:  # most often
        return dense(value.detach())
    value = as_list_or_array(value)
    if value is None or not isinstance(value, CONVERTED):
        return None
    if isinstance(value, tuple | list) and not all(isinstance(v, int | float) for v in value):
        return stacked(value)
    try:
        return dense(torch.as_tensor(value).detach())
    except (TypeError, ValueError, RuntimeError):
        return None


def dense(tensor: Tensor) -> Tensor | None:
    """Return an ordinary tensor; None for one without numbers, or with ragged rows."""
    if tensor.is_nested or tensor.is_meta:
        return None
    return tensor if tensor.layout == torch.strided else tensor.to_dense()


def rows_of(value: Any, count: int) -> list[Tensor]:
    """Return the `count` values that a tensor or an array unpacks into; else nothing."""
    tensor = as_tensor(value)
    if tensor is None or tensor.ndim == 0 or len(tensor) != count:
        return []  # an answer of millions of rows is not taken apart
    return list(tensor)


def stacked(values: tuple[Any, ...] | list[Any]) -> Tensor | None:
    """Return one tensor for rows of the same shape, else None."""
    rows = [row for value in values if (row := as_tensor(value)) is not None]
    if len(rows) < len(values) or any(row.shape != rows[0].shape for row in rows):
        return None
    return torch.stack(rows)


def type_name(value: Any) -> str:
    """Return the name of a value's type; one that came through a pipe carries it along."""
    return str(getattr(value, "type_name", type(value).__name__))


def shape_problem(
    got: Any, want: Any, integers: bool = False, axes: tuple[str, ...] = (), hidden: bool = False
) -> str:
    """Say how the kind or the shape of `got` differs from `want`, or return nothing.

    Args:
        got: what was returned.
        want: what should have been.
        integers: whether only integers will do.
        axes: names of the axes.
        hidden: whether sizes stay unsaid: they would tell those of the inputs, and an answer of
            a chosen size whatever its author wants to know of them.
    """
    if got is None:
        return "it returns None; is a `return` missing?"
    if isinstance(want, tuple):
        other = f"it must return {len(want)} values, it returns {kind(got)}"
        if hidden:
            other = f"it must return {len(want)} values"
        several = as_list_or_array(got)
        several = several if isinstance(several, tuple | list) else rows_of(got, len(want))
        if len(several) != len(want):
            return other
        pairs = zip(several, want, strict=True)
        problems = [shape_problem(*pair, integers, axes, hidden) for pair in pairs]
        found = [f"value {i}: {text}" for i, text in enumerate(problems, 1) if text]
        return (found[0] if several is got else other) if found else ""
    goal, given = as_tensor(want), as_tensor(got)
    assert goal is not None
    if hidden and given is not None and given.shape != goal.shape:
        return wrong_axes(given, goal, axes)
    if given is None or given.shape != goal.shape:
        if hidden:
            return f"it returns {kind(got, hidden=True)}, which is no array of numbers"
        return f"it must return {kind(want)}, it returns {kind(got)}"
    if (goal.dtype == torch.bool) != (given.dtype == torch.bool):
        return f"it must return {'' if goal.dtype == torch.bool else 'numbers, not '}True and False"
    if integers and (given.is_floating_point() or given.is_complex()):
        kind_of = str(given.dtype).removeprefix("torch.")
        return f"whole numbers are asked for: return integers, yours are {kind_of}"
    return ""


def wrong_axes(given: Tensor, goal: Tensor, axes: tuple[str, ...]) -> str:
    """Say what is wrong with a shape without any of its numbers."""
    if given.ndim != goal.ndim:
        return f"the shape is wrong: it has too {'many' if given.ndim > goal.ndim else 'few'} axes"
    names = axis_names(goal, axes)
    wrong = [name for name, a, b in zip(names, given.shape, goal.shape, strict=True) if a != b]
    have = "has" if len(wrong) == 1 else "have"
    return f"the shape is wrong: {' and '.join(wrong)} {have} the wrong size"


def axis_names(goal: Tensor, axes: tuple[str, ...]) -> list[str]:
    """Return a name for each axis; `axes` are the last ones where there are more."""
    plain = [f"axis {axis}" for axis in range(goal.ndim - len(axes))]
    return (plain + [f"the {name} axis" for name in axes])[-goal.ndim :]


def kind(value: Any, hidden: bool = False) -> str:
    """Return words for what a value is: its shape, the count of values, or its type."""
    tensor = as_tensor(value)
    if isinstance(value, tuple) or (isinstance(value, list) and tensor is None):
        if hidden:
            return "several values"
        return f"{len(value)} value{'s' if len(value) != 1 else ''}"
    if tensor is None:
        name = type_name(value)
        return f"{'an' if name[:1].lower() in 'aeiou' else 'a'} {name}"
    return f"shape {tuple(tensor.shape)}" if tensor.ndim else "a number"


def close(got: Any, want: Any, tolerance: float) -> bool:
    """Return whether all numbers agree; shapes must be the same already."""
    if isinstance(want, tuple | list):
        return all(close(*pair, tolerance) for pair in zip(got, want, strict=True))
    if type(want) is int and type(got) is int and got == want:
        return True
    goal, given = as_tensor(want), as_tensor(got)
    if goal is None or given is None:
        return bool(got == want)
    if given.shape != goal.shape:
        return False
    a, b = both_wide(given, goal)
    if torch.equal(a, b):  # most often; and fast
        return True
    worst = float((a - b).abs().max())
    if math.isfinite(worst):  # and so is all of both; the same as below, in a quarter of the time
        return worst <= tolerance * max(1.0, float(b.abs().max()))
    return torch.allclose(a, b, rtol=0.0, atol=room_for(b, tolerance), equal_nan=True)


@dataclass(frozen=True)
class Sample:
    """Every `step`-th number of a large tensor, by which one like it is recognized."""

    shape: tuple[int, ...]
    step: int
    numbers: Tensor

    def of(self, value: Any) -> Tensor | None:
        """Return the same numbers of another tensor; None if it has another shape."""
        tensor = as_tensor(value)
        if tensor is None or tuple(tensor.shape) != self.shape:
            return None
        return tensor.flatten()[:: self.step]


def recognized(got: Any, known: Any, tolerance: float, integers: bool) -> bool:
    """Return whether `got` is what a known mistake gives.

    For `known`, None stands for an exception, and ANY for any number; alone, for any numbers.
    """
    if known is None:
        return False
    if isinstance(known, float) and known == ANY:
        return as_tensor(got) is not None
    if isinstance(known, Sample):
        got, known = known.of(got), known.numbers
    if isinstance(known, tuple):
        several = as_list_or_array(got)
        several = several if isinstance(several, tuple | list) else rows_of(got, len(known))
        return len(several) == len(known) and all(
            recognized(*pair, tolerance, integers) for pair in zip(several, known, strict=True)
        )
    if shape_problem(got, known, integers):
        return False
    given, goal = as_tensor(got), as_tensor(known)
    assert given is not None and goal is not None
    free = goal == ANY
    return close(given.masked_fill(free, 0), goal.masked_fill(free, 0), tolerance)


def both_wide(a: Tensor, b: Tensor) -> tuple[Tensor, Tensor]:
    """Convert to one type of double precision on the CPU."""
    dtype = torch.complex128 if a.is_complex() or b.is_complex() else torch.float64
    return a.cpu().to(dtype), b.cpu().to(dtype)


def difference(got: Any, want: Any, tolerance: float, axes: tuple[str, ...] = ()) -> str:
    """Say in what way numbers of the right shape are wrong, without giving the right ones."""
    if isinstance(want, tuple):
        for place, pair in enumerate(zip(got, want, strict=True), 1):
            if not close(*pair, tolerance):
                return f"value {place}: {difference(*pair, tolerance, axes)}"
    given, goal = as_tensor(got), as_tensor(want)
    assert given is not None and goal is not None
    a, b = both_wide(given, goal)
    if given.is_complex() and not goal.is_complex() and close(a.real, b, tolerance):
        return "the numbers are complex; return their real part"
    one_integer = goal.numel() == 1 and not goal.is_floating_point()  # a number of something
    for test, words in (
        (not torch.isfinite(a).all() and bool(torch.isfinite(b).all()), "it has NaN or infinity"),
        (close(-a, b, tolerance) and not one_integer, "the sign of everything is flipped"),
        (proportional(a, b, tolerance), "everything is off by one constant factor"),
        (shifted(a, b, tolerance), "everything is off by one constant that is added"),
        (b.ndim > 1 and b.shape[-1] == b.shape[-2] and close(a.mT, b, tolerance),
         "it is the transpose of what is wanted"),
    ):  # fmt: skip
        if test:
            return words
    return wrong_part(a, b, tolerance, axes) + rounding(given, a, b, tolerance)


def rounding(given: Tensor, a: Tensor, b: Tensor, tolerance: float) -> str:
    """Say that precision may be what is missing, and name a type that has little of it."""
    name = str(given.dtype).removeprefix("torch.")
    if given.is_floating_point() and given.dtype.itemsize < 4:
        return f"; your numbers are {name}, which is too coarse: stay with float32"
    if not close(a, b, min(NEARLY * tolerance, LEAST_PRECISE)):
        return ""
    less = f", or of less precision than {name}" if given.is_floating_point() else ""
    return f"; they are nearly right: is anything on the way, perhaps a constant, rounded{less}?"


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


def wrong_part(a: Tensor, b: Tensor, tolerance: float, axes: tuple[str, ...]) -> str:
    """Say where numbers are wrong: everywhere, or only past the first index of an axis."""
    if b.ndim == 0:
        return "the number is wrong"
    bad = ~torch.isclose(a, b, rtol=0.0, atol=room_for(b, tolerance))
    names = axis_names(b, axes)
    for axis in range(b.ndim):
        first, rest = bad.select(axis, 0), bad.narrow(axis, 1, b.shape[axis] - 1)
        if b.shape[axis] > 1 and not first.any() and rest.any():
            each = rest.transpose(0, axis).reshape(rest.shape[axis], -1).any(1)
            some = "" if each.all() else "some "
            return f"the shape and index 0 of {names[axis]} are right, {some}later ones are wrong"
    share = max(1, round(100 * float(bad.double().mean())))
    return f"the shape is right, the values are not ({share} % of them)"


def wrong_numbers(got: Any, want: Any) -> str:
    """Say which of a few whole numbers were given where others belong, nothing if they are many."""
    given, goal = as_tensor(got), as_tensor(want)
    if given is None or goal is None:  # several values, which have words of their own
        return ""
    pairs = zip(given.flatten().tolist(), goal.flatten().tolist(), strict=True)
    wrong = sorted({int(mine) for mine, wanted in pairs if mine != wanted})
    said = " or ".join(map(str, wrong))
    return f"; where you give {said}, another is wanted" if len(wrong) < 4 else ""


def room_for(goal: Tensor, tolerance: float) -> float:
    """Return by how much a number may differ: the tolerance, times the largest finite number."""
    finite = goal[torch.isfinite(goal)]
    return tolerance * max(1.0, float(finite.abs().max()) if finite.numel() else 1.0)
