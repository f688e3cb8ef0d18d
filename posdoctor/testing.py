"""For tests: one line that fails where the doctor finds a fault."""

from __future__ import annotations

from typing import Any

from posdoctor.doctor import diagnose


def assert_sound(thing: object, **options: Any) -> None:
    """Fail, in two lines, where the doctor finds a fault: for tests.

    Raises:
        AssertionError: if there is a fault.
    """
    report = diagnose(thing, **options)
    if report.faults:
        first = report.faults[0]
        names = ", ".join(dict.fromkeys(each.name for each in report.faults))
        raise AssertionError(
            f"{report.subject}: {names}\n{first.where + ': ' if first.where else ''}"
            f"{first.known.says} {first.detail}"
        )
