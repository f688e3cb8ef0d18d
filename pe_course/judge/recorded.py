"""A self-check as students have it: its calls, what is right for them, what known mistakes give.

It holds values and no function. JSON carries it, to notebooks and to pages.
"""

from __future__ import annotations

import math
from base64 import b64decode, b64encode
from itertools import count
from typing import Any

import torch
from torch import Tensor

from pe_course.judge.compare import Sample
from pe_course.judge.exercise import Case, Check, Drawn, Exercise

RULES = ("name", "tolerance", "integers", "axes", "parts", "seconds")  # which a Check judges by
MOST = 64  # about how many numbers of a tensor are kept to recognize a mistake by


class Recorded(Check):
    """A check whose values were computed before."""

    def __init__(self, stored: dict[str, Any]) -> None:
        """Keep what `record` returned; its tensors are read when an answer is judged."""
        self.stored = stored
        for rule in RULES:
            setattr(self, rule, stored[rule])

    def drawn(self, seed: int) -> Drawn:
        """Return what the self-check judges by.

        Raises:
            ValueError: for another seed than 0: only the draw of the self-check is recorded.
        """
        if seed != 0:
            raise ValueError(f"only the self-check is recorded, with seed 0; got seed {seed}")
        cases = [Case(label, tuple(map(value, args)), room)
                 for label, args, room in self.stored["cases"]]  # fmt: skip
        known = ((message, map(value, results)) for message, results in self.stored["known"])
        return Drawn(cases, list(map(value, self.stored["wanted"])), known)


def record(exercise: Exercise) -> dict[str, Any]:
    """Return the self-check of an exercise as JSON has it."""
    cases, wanted, known = exercise.drawn(0)
    return {
        **{rule: getattr(exercise, rule) for rule in RULES},
        "cases": [[case.label, [stored(each) for each in case.args], case.tolerance]
                  for case in cases],
        "wanted": [stored(each) for each in wanted],
        "known": [[message, [stored(each, MOST) for each in results]]
                  for message, results in known],
    }  # fmt: skip


def stored(value: Any, most: float = math.inf) -> Any:
    """Return a value as JSON has it.

    Args:
        value: numbers, tensors, and lists and tuples of them.
        most: about how many numbers of a tensor are kept, at steps that have no factor in common
            with an axis and so do not keep to some of its places.
    """
    if isinstance(value, tuple):
        return {"tuple": [stored(each, most) for each in value]}
    if isinstance(value, list):
        return [stored(each, most) for each in value]
    if not isinstance(value, Tensor):
        return value
    numbers, size = value.detach().flatten(), value.numel()
    step = 1
    if size > most:
        step = next(n for n in count(size // int(most) + 1) if math.gcd(n, size) == 1)
    kept = numbers[::step].contiguous().numpy().tobytes()
    dtype = str(value.dtype).removeprefix("torch.")
    found = {"dtype": dtype, "shape": list(value.shape), "data": b64encode(kept).decode()}
    return found | ({"step": step} if step > 1 else {})


def value(stored: Any) -> Any:
    """Undo `stored`; of a large tensor that was not kept whole, return a `Sample`."""
    if isinstance(stored, list):
        return [value(each) for each in stored]
    if not isinstance(stored, dict):
        return stored
    if "tuple" in stored:
        return tuple(map(value, stored["tuple"]))
    dtype, shape, data = getattr(torch, stored["dtype"]), stored["shape"], stored["data"]
    if not data:
        return torch.zeros(shape, dtype=dtype)
    numbers = torch.frombuffer(bytearray(b64decode(data)), dtype=dtype)
    if "step" in stored:
        return Sample(tuple(shape), stored["step"], numbers)
    return numbers.reshape(shape)
