"""Time several functions side by side, and count the memory that each asks for."""

from __future__ import annotations

import gc
import os
import statistics
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass

import torch
from torch.profiler import ProfilerActivity, profile

Work = Callable[[], object]
SHORTEST = 2e-3  # seconds per sample: below, the clock and the caches are what is measured


@dataclass
class Measured:
    """What one function took."""

    seconds: float  # median
    ratio: float  # median over the rounds of (this / the reference), both of the same round
    low: float  # quartiles of that ratio
    high: float
    peak_bytes: int  # most memory held at a time beyond what was there before, result included
    kept_bytes: int  # what of it the result keeps
    rounds: int


def sample(work: Work, number: int) -> float:
    """Return seconds per call over `number` calls.

    On one thread the processor's time: it does not count while another program has the core.
    """
    clock = time.thread_time if torch.get_num_threads() == 1 else time.perf_counter
    work()  # what ran before must not count: it left other data in the caches
    start = clock()
    for _ in range(number):
        work()
    return (clock() - start) / number


@contextmanager
def quiet() -> Iterator[None]:
    """Send the profiler's messages, which bypass Python, nowhere."""
    stderr, nowhere = os.dup(2), os.open(os.devnull, os.O_WRONLY)
    os.dup2(nowhere, 2)
    try:
        yield
    finally:
        os.dup2(stderr, 2)
        os.close(stderr)
        os.close(nowhere)


def memory(work: Work) -> tuple[int, int]:
    """Return the highest sum of PyTorch's allocations minus releases during a call, and its end."""
    with quiet(), profile(activities=[ProfilerActivity.CPU], profile_memory=True) as profiler:
        result = work()
    held = peak = 0
    events = profiler.profiler.kineto_results.events()
    for event in sorted(events, key=lambda event: event.start_ns()):
        if event.name() == "[memory]":
            held += event.nbytes()
            peak = max(peak, held)
    del result
    return peak, held


def side_by_side(
    works: Mapping[str, Work], reference: str, *, budget: float = 4.0, least: int = 5
) -> dict[str, Measured]:
    """Time all `works` in turn, round after round, so that a busy moment hits all alike.

    Args:
        works: functions by name.
        reference: the name that the ratios refer to.
        budget: seconds to spend, about.
        least: rounds at least, however long they take; 41 at most.
    """
    single = {name: min(sample(work, 1) for _ in range(3)) for name, work in works.items()}
    numbers = {name: max(1, round(SHORTEST / seconds)) for name, seconds in single.items()}
    once = sum(single[name] * (numbers[name] + 1) for name in works)
    rounds = min(41, max(least, int(budget / once)))
    taken: dict[str, list[float]] = {name: [] for name in works}
    gc.collect()
    gc.disable()
    try:
        for _ in range(rounds):
            for name, work in works.items():
                taken[name].append(sample(work, numbers[name]))
    finally:
        gc.enable()
    result = {}
    for name, seconds in taken.items():
        ratios = [mine / other for mine, other in zip(seconds, taken[reference], strict=True)]
        low, middle, high = statistics.quantiles(ratios, n=4, method="inclusive")
        median = statistics.median(seconds)
        result[name] = Measured(median, middle, low, high, *memory(works[name]), rounds)
    return result
