"""What every test shares: the environment, the order of the notebooks, and quiet when green."""

from __future__ import annotations

import json

import pytest

from tools import environment

environment.apply()  # before torch and numpy are imported

from tools import refresh  # noqa: E402

pytest_plugins = ["tools.nbval_pictures"]


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Run the notebooks after the tests, the longest first: the last processor then ends soon."""
    seconds = json.loads(refresh.RUNTIMES.read_text(encoding="utf-8"))

    def place(item: pytest.Item) -> tuple[bool, float]:
        is_notebook = item.path.suffix == ".ipynb"
        return is_notebook, -seconds.get(item.path.stem, 60) if is_notebook else 0

    items.sort(key=place)


def pytest_report_teststatus(
    report: pytest.TestReport, config: pytest.Config
) -> tuple[str, str, str] | None:
    """Print nothing for a test that passes, unless asked with -v."""
    if report.passed and report.when == "call" and config.option.verbose <= 0:
        return "passed", "", ""
    return None
