"""Measure how pages of the built site load on a slow line: paints, layout shift, bytes.

Usage: python -m tools.loading [--site FOLDER] [PAGE ...]

The line carries 1.6 Mbit/s and answers after 150 ms; nothing is kept from page to page, and text is
packed as hosts pack it. "To the end" counts what comes while a page is read to its end, too. Times
grow with whatever else the machine does; bytes and shifts do not. Needs Playwright and Chromium.
"""

from __future__ import annotations

import argparse
import functools
import gzip
import http.server
import sys
import threading
from pathlib import Path
from typing import Any

from tools import chromium
from tools.build import SITE

PAGES = "00_intro 01_attention 02_sinusoidal 03_learned 10_rope 13_context_extension 14_bakeoff "
PAGES += "17_choosing exercises methods"
PACKED = {".html", ".css", ".js", ".svg"}
LINE = {"offline": False, "latency": 150, "downloadThroughput": 2e5, "uploadThroughput": 1e5}
QUICK = {"offline": False, "latency": 0, "downloadThroughput": -1, "uploadThroughput": -1}
WATCH = """window.seen = {shift: 0, largest: 0};
const watch = (type, note) => new PerformanceObserver(list => list.getEntries().forEach(note))
  .observe({type, buffered: true});
watch('layout-shift', entry => seen.shift += entry.hadRecentInput ? 0 : entry.value);
watch('largest-contentful-paint', entry => seen.largest = entry.startTime);"""
SEEN = """({...seen, first: performance.getEntriesByName('first-contentful-paint')[0].startTime})"""
READ = """async () => {
  for (let y = 0; y < document.documentElement.scrollHeight; y += 500) {
    scrollTo(0, y);
    await new Promise(done => setTimeout(done, 60));
  }
}"""


@functools.cache
def on_its_way(path: Path) -> bytes:
    """Return a file as a host sends it."""
    data = path.read_bytes()
    return gzip.compress(data) if path.suffix in PACKED else data


class Host(http.server.SimpleHTTPRequestHandler):
    """Serves a folder as a host does, and notes how many bytes it sent."""

    protocol_version = "HTTP/1.1"
    sent: list[int] = []  # noqa: RUF012 (all connections share it)

    def log_message(self, *_: object) -> None:
        pass

    def do_GET(self) -> None:
        path = Path(self.translate_path(self.path))
        if not path.is_file():
            self.send_error(404)
            return
        data = on_its_way(path)
        self.sent.append(len(data))
        self.send_response(200)
        self.send_header("Content-Type", self.guess_type(str(path)))
        self.send_header("Content-Length", str(len(data)))
        if path.suffix in PACKED:
            self.send_header("Content-Encoding", "gzip")
        self.end_headers()
        self.wfile.write(data)


def load(browser: Any, url: str, width: int, height: int) -> dict[str, float]:
    """Open a page with nothing kept, read it to its end, and return what was measured.

    Returns:
        first and largest paint in seconds, layout shift, kilobytes at load and to the end.
    """
    context = browser.new_context(viewport={"width": width, "height": height})
    page = context.new_page()
    page.add_init_script(WATCH)
    line = context.new_cdp_session(page)
    line.send("Network.enable")
    line.send("Network.emulateNetworkConditions", LINE)
    Host.sent.clear()
    page.goto(url, wait_until="load", timeout=120_000)
    page.wait_for_timeout(1000)  # for what scripts ask for
    at_load, seen = sum(Host.sent), page.evaluate(SEEN)
    line.send("Network.emulateNetworkConditions", QUICK)
    page.evaluate(READ)
    page.wait_for_timeout(500)
    shift = page.evaluate("seen.shift")
    context.close()
    times = {"first paint, s": seen["first"] / 1000, "largest, s": seen["largest"] / 1000}
    return times | {"shift": shift, "kB": at_load / 1000, "to the end": sum(Host.sent) / 1000}


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("pages", nargs="*", default=PAGES.split(), metavar="PAGE")
    parser.add_argument("--site", type=Path, default=SITE)
    options = parser.parse_args()
    from playwright.sync_api import sync_playwright

    host = functools.partial(Host, directory=str(options.site))
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), host)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    with sync_playwright() as playwright:
        path = chromium.installed()
        browser = playwright.chromium.launch(executable_path=path, args=["--no-sandbox"])
        for name in options.pages:
            url = f"http://127.0.0.1:{server.server_port}/book/{name}.html"
            for width, height in ((1440, 900), (390, 844)):
                found = load(browser, url, width, height)
                words = " | ".join(f"{key} {value:.3g}" for key, value in found.items())
                print(f"{name} | {width} | {words}", flush=True)
        browser.close()
    server.shutdown()
    return 0


if __name__ == "__main__":
    sys.exit(main())
