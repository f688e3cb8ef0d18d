"""Fixtures that cost something and are therefore made once: the site, a browser."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import settings

from browsing import Seen, left_out, serve
from tools import ROOT, chromium
from tools.build import SITE
from tools.red import NotThere

ENGINE = os.environ.get("BROWSER", "chromium")  # or firefox, or webkit
LONG = 300  # seconds until a wait is given up: other programs may hold the processor
CHROME_ARGS = [
    "--no-sandbox",
    "--disable-gpu",
    "--disable-sync",
    # Optimised early, scripts that run once cost more than they save; the bench's still are, later.
    "--js-flags=--invocation-count-for-maglev=20000,--invocation-count-for-osr=20000",
]

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
    except SandboxMissing as error:
        raise NotThere(f"the sandbox does not work\n{error}") from error


@pytest.fixture(scope="session")
def site() -> Path:
    """Build the site as a reader does; its folder."""
    done = subprocess.run(
        [sys.executable, "-m", "tools.build"], cwd=ROOT, capture_output=True, text=True
    )
    if done.returncode:
        raise NotThere(f"the book does not build: `make book`\n{done.stdout}{done.stderr}")
    return SITE


@pytest.fixture(scope="session")
def address(site: Path) -> Iterator[str]:
    """Serve the site from this computer under a path, as a project's site lies; its address."""
    server, url = serve(site, "/course/")
    yield url
    server.shutdown()


@pytest.fixture(scope="session")
def browser():
    """Start the system's Chromium, or the browser that Playwright installed."""
    try:
        from playwright import sync_api
    except ImportError:
        left_out("browser tests need Playwright: pip install -r requirements-test.txt")
    with sync_api.sync_playwright() as playwright:
        engine, own = getattr(playwright, ENGINE), ENGINE == "chromium"
        path = (own and chromium.installed()) or engine.executable_path
        if not Path(path).exists():
            left_out(f"browser tests need {ENGINE}: `playwright install {ENGINE}`")
        try:
            instance = engine.launch(
                executable_path=path, args=CHROME_ARGS if own else [], timeout=1000 * LONG
            )
        except sync_api.Error as error:
            raise NotThere(f"the browser does not start: {path}\n{error}") from error
        context = instance.new_context()  # one for all visits: what pages share is read once
        context.set_default_timeout(1000 * LONG)
        yield context
        instance.close()


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
