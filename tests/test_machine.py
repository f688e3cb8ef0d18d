"""What the other tests need: each is one failure here, with the reason and what to install."""

from __future__ import annotations

import browsing
from exercises.sandbox import require_sandbox


def test_a_sandbox_starts() -> None:
    require_sandbox()


def test_a_browser_starts(launched) -> None:
    if isinstance(launched, Exception):
        raise launched


def test_the_site_builds() -> None:
    done = browsing.build_site()
    assert done.returncode == 0, done.stdout[-3000:] + done.stderr[-3000:]
