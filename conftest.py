"""What every test shares: the environment, the order of the files."""

from __future__ import annotations

import gc
import json

import pytest

from tools import environment

environment.apply()  # before torch and numpy are imported

from tools import refresh  # noqa: E402

pytest_plugins = ["tools.red", "tools.nbval_whole"]

# What takes longest begins first, so that no processor waits for the last of it: these files, then
# the notebooks by their recorded seconds, then the others.
FIRST = ["site", "bench_page", "promises", "published", "doctor", "live", "practice_page", "checks"]
FIRST += ["grading_runs", "grading", "exercises", "style", "guards", "fork", "bakeoff", "places"]
FIRST += ["colab", "tools", "sandbox"]
# A tracer slows these for nothing: where coverage is measured, the others run the same lines.
UNTRACED = [f"test_{name}.py" for name in FIRST if name not in ("promises", "doctor")]
UNTRACED += ["it_compiles_into_one_graph", "it_exports_for_any_length"]

# What is imported and collected stays to the end: to look there again and again for what could be
# freed takes long, in vain.
gc.disable()


@pytest.hookimpl(tryfirst=True)
def pytest_runtestloop():
    """From here on look for what can be freed, among what the tests make."""
    gc.freeze()
    gc.enable()


def pytest_collection_modifyitems(items):
    """Put the files in their order; what is alike stays as it was. Mark what is not traced."""
    seconds = json.loads(refresh.RUNTIMES.read_text(encoding="utf-8"))

    def place(item):
        name = item.path.stem.removeprefix("test_")
        if name in FIRST:
            return 0, FIRST.index(name)
        return (1, -seconds.get(name, 60)) if item.path.suffix == ".ipynb" else (2, 0)

    items.sort(key=place)
    for item in items:
        if any(each in item.nodeid for each in UNTRACED):
            item.add_marker("no_cover")
