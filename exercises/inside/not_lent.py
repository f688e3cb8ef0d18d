"""Stands in for the course's own packages while grading: only `checks` is here, and checks nothing.

It is `exercises` and, for notebooks that were handed out earlier, `pe_lib`.
"""

import sys


class _NotLent:
    """Says why a part of them cannot be imported, where Python would say it is missing."""

    def find_spec(self, name: str, path: object = None, target: object = None) -> None:
        """Refuse what the finders before this one did not have."""
        if name.startswith(f"{__name__}."):
            raise ModuleNotFoundError(
                f"{name} is not lent while grading: write your own", name=name
            )


sys.meta_path.append(_NotLent())
