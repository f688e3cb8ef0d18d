"""Fixtures that cost something and are therefore made once: the site, a browser, a second run."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from browsing import ROOT, SITE, left_out, serve

CHROMES = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable", "chrome")
CHROME_ARGS = [
    "--no-sandbox",
    "--disable-gpu",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
]


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Put the tests that wait for the second run of the notebooks last."""
    items.sort(key=lambda item: "second_run" in getattr(item, "fixturenames", ()))


class SecondRun:
    """A second run of the notebooks, in a process beside the tests."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        command = [sys.executable, "-m", "tools.refresh", "--check", "--out", str(folder)]
        with open(folder / "log", "w") as log:
            self.process = subprocess.Popen(command, cwd=ROOT, stdout=log, stderr=log)

    def report(self, name: str) -> dict:
        """Return the report on a notebook, when it is there."""
        path = self.folder / f"{name}.json"
        while not path.exists():
            if self.process.poll() is not None and not path.exists():
                pytest.fail(f"the second run stopped: {(self.folder / 'log').read_text()}")
            time.sleep(0.2)
        return json.loads(path.read_text())


def pytest_collection_finish(session: pytest.Session) -> None:
    """Start the second run early, so that its reports are there when the last tests ask."""
    wanted = any("second_run" in getattr(item, "fixturenames", ()) for item in session.items)
    if wanted and not session.config.option.collectonly:
        folder = ROOT / "_build" / "second-run"
        shutil.rmtree(folder, ignore_errors=True)
        folder.mkdir(parents=True)
        session.second_run = SecondRun(folder)


def pytest_sessionfinish(session: pytest.Session) -> None:
    run = getattr(session, "second_run", None)
    if run and run.process.poll() is None:
        run.process.terminate()


@pytest.fixture(scope="session")
def second_run(request) -> SecondRun:
    return request.session.second_run


@pytest.fixture(scope="session")
def site() -> Path:
    """Build the site as a reader does; its folder."""
    done = subprocess.run(
        [sys.executable, "-m", "tools.build"], cwd=ROOT, capture_output=True, text=True
    )
    if done.returncode:
        pytest.fail(f"the book does not build:\n{(done.stdout + done.stderr)[-6000:]}")
    return SITE


@pytest.fixture(scope="session")
def address(site: Path) -> Iterator[str]:
    """Serve the site from this computer; its address."""
    server, url = serve(site)
    yield url
    server.shutdown()


@pytest.fixture(scope="session")
def browser():
    """Start the system's Chromium, or the one that Playwright installed."""
    sync_api = pytest.importorskip("playwright.sync_api")
    found = next(filter(None, map(shutil.which, CHROMES)), None)
    with sync_api.sync_playwright() as playwright:
        path = found or playwright.chromium.executable_path
        if not Path(path).exists():
            left_out("browser tests need Chromium: install it, or `playwright install chromium`")
        instance = playwright.chromium.launch(executable_path=path, args=CHROME_ARGS)
        yield instance
        instance.close()


@pytest.fixture(scope="session")
def axe() -> str:
    """Bring the accessibility checker; its source."""
    from tools import vendor

    try:
        vendor.vendor(vendor.TEST, vendor.TEST_ASSETS)
    except vendor.VendorError as error:
        left_out(f"the accessibility checker could not be had: {error}")
    return (vendor.TEST_ASSETS / "axe-core" / "axe.min.js").read_text()
