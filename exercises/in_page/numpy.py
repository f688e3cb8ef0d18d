"""Stands in for numpy, of which the page has only the names that the checks ask for."""

import torch

__path__ = []  # so that an import of what is within it says the same


class ndarray:
    pass


class generic:
    pass


def __getattr__(name):
    if name.startswith("__"):
        raise AttributeError(name)
    raise torch.NotHere(f"numpy.{name}", "numpy has it")
