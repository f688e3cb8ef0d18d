"""Stands in for numpy, of which the page has only the names that the checks ask for."""


class ndarray:
    pass


class generic:
    pass


def __getattr__(name):
    if name.startswith("__"):
        raise AttributeError(name)
    raise AttributeError(f"`numpy.{name}` is not here; in the notebook it is")
