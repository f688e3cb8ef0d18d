"""Every rotary text model of transformers: `from_config` gives what the model itself does.

The table is book/data/configs.csv, which `python -m tools.equality` writes. Each of its lines is
found anew here, by building a small model and running it.
"""

from __future__ import annotations

from functools import cache

import pytest

from tools import equality, published

LINES = {line["model type"]: line for line in equality.read()}
EQUAL = [name for name, line in LINES.items() if line["result"] == "equal"]
EXCEPTED = [name for name in LINES if name not in EQUAL]


@cache
def models() -> dict[str, type]:
    return published.rotary_text_models()


def test_the_table_has_every_rotary_text_model() -> None:
    assert sorted(LINES) == sorted(models())
    assert {name: LINES[name]["result"] for name in EXCEPTED} == equality.EXCEPTED


@pytest.mark.parametrize("name", EQUAL)
def test_queries_and_keys_equal_the_models_own(name: str) -> None:
    assert equality.row(name, models()[name]) == LINES[name]


@pytest.mark.parametrize("name", EXCEPTED)
def test_an_exception_is_one(name: str) -> None:
    with pytest.raises(Exception):  # noqa: B017, PT011 - whatever the model raises
        equality.row(name, models()[name])


def test_the_page_counts_what_the_table_has() -> None:
    assert f"**{len(LINES)} model types tried, {len(EQUAL)} equal" in equality.page()
    assert all(f"`{name}`" in equality.page() for name in LINES)
