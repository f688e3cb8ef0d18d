"""Stands in for `exercises.checks` while grading: self-checks in a notebook do nothing here."""

from collections.abc import Callable


def __getattr__(name: str) -> Callable[..., None]:
    """Return a check that does nothing."""
    if name.startswith("__"):
        raise AttributeError(name)
    return lambda *args, **kwargs: None
