"""Processes that compute side by side: how they start."""

from __future__ import annotations

import multiprocessing
import sys
from collections.abc import Sequence
from multiprocessing.context import BaseContext


def loaded_once(modules: Sequence[str]) -> BaseContext:
    """Return a way to start processes for which, on Linux, modules are loaded once for all.

    They are forked from a process that has loaded them, and holds nothing else.
    """
    if sys.platform != "linux":
        return multiprocessing.get_context("spawn")
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(list(modules))
    return context
