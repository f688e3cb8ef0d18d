"""The browser that pictures and tests are made with."""

from __future__ import annotations

import shutil

NAMES = (
    "chromium-headless-shell",  # the same engine; windows would cost a tenth more
    "chromium",
    "chromium-browser",
    "google-chrome",
    "google-chrome-stable",
    "chrome",
)


def installed() -> str | None:
    """Return the path of the system's Chromium, or None if it has none."""
    return next(filter(None, map(shutil.which, NAMES)), None)
