"""The project's own rules: style, spelling, types."""

from __future__ import annotations

import pytest

from tools import lint


@pytest.mark.parametrize("name", lint.CHECKS)
def test_the_sources_keep_the_rules_of(name):
    done = lint.run(name)
    assert done.returncode == 0, done.stdout[-6000:] + done.stderr[-2000:]
