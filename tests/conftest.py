"""Fixtures that cost something and are therefore made once: the site, a browser.

Where one of them is not to be had, tests/test_machine.py fails with the reason and what to install,
and the tests that need it are left out.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import settings

import browsing
from browsing import Seen, left_out, serve
from tools.build import SITE

MISSING = "{} is missing here: tests/test_machine.py says why"

# A check gives the same answer every time: hypothesis draws the same examples, and each test's
# random numbers do not depend on which tests ran before it. To look further, run
# `pytest --hypothesis-profile=default tests`.
settings.register_profile("same", derandomize=True, deadline=None)
settings.load_profile("same")


@pytest.fixture(autouse=True)
def same_random_numbers() -> None:
    import torch  # here, since the process that hands out the tests has no use for it

    torch.default_generator.manual_seed(0)  # the processor's alone: the others' take long to ask


@pytest.fixture
def one_process(monkeypatch: pytest.MonkeyPatch) -> None:
    """Grade in the process of the test: what is tested is what becomes of the results."""
    from exercises.grade_course import work

    monkeypatch.setattr(
        "exercises.grade_course.in_pool", lambda jobs, _: enumerate(work(job) for job in jobs)
    )


@pytest.fixture(scope="session")
def sandbox() -> None:
    """Start a sandbox, as all of grading needs one."""
    from exercises.sandbox import require_sandbox
    from exercises.syscalls import SandboxMissing

    try:
        require_sandbox()
    except SandboxMissing:
        pytest.skip(MISSING.format("the sandbox"))


@pytest.fixture(scope="session")
def site() -> Path:
    """Build the site as a reader does; its folder."""
    if browsing.build_site().returncode:
        pytest.skip(MISSING.format("the site"))
    return SITE


@pytest.fixture(scope="session")
def address(site: Path) -> Iterator[str]:
    """Serve the site from this computer under a path, as a project's site lies; its address."""
    server, url = serve(site, "/course/")
    yield url
    server.shutdown()


@pytest.fixture(scope="session")
def launched():
    """Start the system's Chromium, or the browser that Playwright installed; or say why not."""
    from playwright import sync_api

    with sync_api.sync_playwright() as playwright:
        try:
            instance = browsing.launch(playwright)
        except (FileNotFoundError, sync_api.Error) as error:
            yield error
        else:
            yield instance
            instance.close()


@pytest.fixture(scope="session")
def browser(launched):
    """Have a browser open pages."""
    if isinstance(launched, Exception):
        pytest.skip(MISSING.format("a browser"))
    context = launched.new_context()  # one for all visits: what pages share is read once
    context.set_default_timeout(1000 * browsing.LONG)
    return context


@pytest.fixture(scope="session")
def seen() -> Seen:
    """Remember whose colours were looked at: what is alike on all pages, on the first of them."""
    return Seen()


@pytest.fixture(scope="session")
def axe() -> str:
    """Bring the accessibility checker; its source."""
    from tools import vendor

    try:
        vendor.vendor(vendor.TEST, vendor.TEST_ASSETS)
    except vendor.VendorError as error:
        left_out(f"the accessibility checker could not be had: {error}")
    return (vendor.TEST_ASSETS / "axe-core" / "axe.min.js").read_text()
