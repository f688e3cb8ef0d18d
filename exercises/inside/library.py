"""Stands in for `pe_lib` while grading: only the parts that a set lends are here."""

import sys


class _NotLent:
    """Says why a part of pe_lib cannot be imported, where Python would say it is missing."""

    def find_spec(self, name: str, path: object = None, target: object = None) -> None:
        """Refuse what the finders before this one did not have."""
        if name.startswith("pe_lib."):
            raise ModuleNotFoundError(
                f"{name} is not lent while grading: write your own", name=name
            )


sys.meta_path.append(_NotLent())
