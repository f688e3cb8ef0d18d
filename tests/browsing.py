"""The site on a server of this computer, and what a visit to one of its pages finds."""

from __future__ import annotations

import functools
import http.server
import json
import os
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
import yaml
from filelock import FileLock

from tools import ROOT, chromium

IN_CI = os.environ.get("CI") == "true"
ENGINE = os.environ.get("BROWSER", "chromium")  # or firefox, or webkit
LONG = 300  # seconds until a wait is given up: other programs may hold the processor
CHROME_ARGS = [
    "--no-sandbox",
    "--disable-gpu",
    "--disable-sync",
    # Optimised early, scripts that run once cost more than they save; the bench's still are, later.
    "--js-flags=--invocation-count-for-maglev=20000,--invocation-count-for-osr=20000",
]

# For axe, which takes long over many elements: formulas are MathJax's own, and of coloured code
# one token of each kind stands for the others.
SLIM = """() => {
  document.querySelectorAll('mjx-container').forEach(e => e.replaceWith('x'));
  const seen = new Set();
  for (const e of document.querySelectorAll('.highlight span[class], .sig span[class]')) {
    const kind = e.className + '|' + e.parentElement.className;
    if (seen.has(kind)) e.replaceWith(...e.childNodes); else seen.add(kind);
  }
}"""
WHOLE_AXE = """options => axe.run(document, {resultTypes: ['violations'], ...options})
  .then(r => r.violations)"""
# Of a part of a page: what axe itself calls minor or moderate is mostly what a whole page has.
AXE = """options => {
  const light = axe._audit.rules.filter(r => r.impact === 'minor' || r.impact === 'moderate');
  const idle = Object.fromEntries(light.map(r => [r.id, {enabled: false}]));
  const rules = {...idle, ...options.rules};
  return axe.run(document, {resultTypes: ['violations'], ...options, rules})
    .then(r => r.violations);
}"""
# What axe takes longest over is colour: the contrast of text, and whether links stand out of it. It
# is what changes with the look. It is measured in both looks on what is left when a part goes all
# of whose elements are of kinds that stand before it, here or on a page that was visited before:
# the same style sheets, the same names and styles up to the root, with text or without, in rows of
# the same parity. Of the links of each kind, the one with the most words around it keeps its whole
# paragraph.
COLOURS = ["color-contrast", "link-in-text-block"]
WITHOUT_COLOURS = {"rules": {rule: {"enabled": False} for rule in COLOURS}}
ONLY_COLOURS = {"runOnly": {"type": "rule", "values": COLOURS}}
# What must be asked while formulas are there.
WITH_FORMULAS = ["scrollable-region-focusable", "empty-table-header"]
ONLY_WITH_FORMULAS = {"runOnly": {"type": "rule", "values": WITH_FORMULAS}}
ONE_OF_EACH_KIND = """stored => {
  const before = JSON.parse(stored);
  const sheets = [...document.styleSheets];
  const choosing = rules => [...rules]
    .map(rule => (rule.selectorText ?? '') + ' ' + choosing(rule.cssRules ?? [])).join(' ');
  const named = sheets.map(sheet => choosing(sheet.cssRules)).join(' ').match(/#[\\w-]+/g);
  const ids = new Set(named);  // the others change no colour
  const numbers = {...before.numbers}, old = Object.keys(numbers).length;
  let next = old;
  const root = sheets.map(sheet => sheet.href ?? sheet.ownerNode.textContent).join('|');
  const kinds = new Map([[document.documentElement, root]]);
  const blocks = new Map([[document.documentElement, document.body]]);
  const words = new Map();  // of a block: those beside its links, less those in them
  const most = new Map(), kept = new Set(), seen = new Set();
  const all = [...document.body.querySelectorAll('*')];
  for (const e of [document.body, ...all]) {
    const text = [...e.childNodes].filter(n => n.nodeType === 3).map(n => n.data.trim()).join('');
    const row = e.tagName === 'TR' && [...e.parentElement.children].indexOf(e) % 2;
    const kind = [kinds.get(e.parentElement), e.tagName, [...e.classList].sort().join('.'),
      ids.has('#' + e.id) && e.id, e.getAttribute('style'), text !== '', row].join('|');
    kinds.set(e, numbers[kind] ??= next++);
    const inline = getComputedStyle(e).display.startsWith('inline');
    const block = inline ? blocks.get(e.parentElement) : e;
    blocks.set(e, block);
    const more = text && e.closest('a[href]') ? -text.length : text.length;
    words.set(block, (words.get(block) ?? 0) + more);
  }
  for (const link of document.body.querySelectorAll('a[href]')) {
    const kind = kinds.get(link), block = blocks.get(link);
    const other = words.get(most.get(kind)) ?? before.words[kind];
    if (!(other >= words.get(block))) most.set(kind, block);
  }
  // The theme measures it whenever the window has changed.
  kept.add(document.getElementById('pst-header'));
  for (const block of most.values())
    for (const e of [block, ...block.querySelectorAll('*')]) kept.add(e);
  const known = kind => kind < old || seen.has(kind);
  const idle = part => known(kinds.get(part)) && !kept.has(part);
  for (const e of all) {
    if (!e.isConnected) continue;
    if (idle(e) && [...e.querySelectorAll('*')].every(idle)) e.remove();
    else seen.add(kinds.get(e));
  }
  const around = [...most].map(([kind, block]) => [kind, words.get(block)]);
  return JSON.stringify({numbers, words: {...before.words, ...Object.fromEntries(around)}});
}"""
# Everything is visible, so that what is folded is checked too.
UNFOLD = """() => document.querySelectorAll('details').forEach(d => d.open = true)"""
VISIBLE_PICTURE = """handle => {
  const cell = handle.closest('.cell_output') || document;
  const shown = [...cell.querySelectorAll('img, svg')]
    .filter(e => e.checkVisibility() && (e.tagName !== 'IMG' || e.naturalWidth));
  return shown.map(e => e.getAttribute('src') || e.outerHTML).join('|');
}"""
NO_ALT = """() => [...document.images]
  .filter(i => !i.closest('.navbar-brand'))
  .filter(i => !i.alt || i.alt.includes('_images/') || i.alt.length < 3)
  .map(i => i.src.slice(0, 100))"""
UNSIZED = """() => [...document.querySelectorAll('.cell_output img')]
  .filter(i => !i.getAttribute('width') && !/width/.test(i.getAttribute('style') || ''))
  .map(i => i.src.slice(0, 100))"""
TOO_WIDE = """() => document.documentElement.scrollWidth <= innerWidth ? [] :
  [...document.querySelectorAll('.bd-main *')]
  .filter(e => e.getBoundingClientRect().right > innerWidth + 1)
  .map(e => e.tagName + '.' + e.className).slice(0, 8)"""
# Width and height of the file that a picture shows here: its own, or the one for a phone.
DRAWN = """i => {
  const phone = i.parentElement.querySelector(':scope > source');
  const file = phone && matchMedia(phone.media).matches ? phone : i;
  return [file.getAttribute('width'), file.getAttribute('height')];
}"""
# The picture itself, without its frame, against the size that it was drawn in.
DISTORTED = f"""() => [...document.querySelectorAll(
  '.cell_output img[width][height]'
)].filter(i => {{
  const style = getComputedStyle(i), frame = 2 * parseFloat(style.paddingLeft);
  const wide = i.clientWidth - frame, high = i.clientHeight - frame;
  const drawn = ({DRAWN})(i);
  return wide > 0 && Math.abs(wide / high / (drawn[0] / drawn[1]) - 1) > 0.03;
}}).map(i => i.alt.slice(0, 60))"""
# What a phone shows is drawn for it, in letters of nine points and more: as large as it was drawn.
SMALL = f"""() => [...document.querySelectorAll('.cell_output img[width]')].filter(i => {{
  if (i.closest('.live')) return false;
  const wide = i.clientWidth - 2 * parseFloat(getComputedStyle(i).paddingLeft);
  return wide > 0 && wide < ({DRAWN})(i)[0] - 1;
}}).map(i => i.alt.slice(0, 60))"""
CUT_OFF = """() => [...document.querySelectorAll('.cell_output img[width]')].filter(i => {
  const box = i.closest('.panned, a');
  return box && box.scrollWidth > box.clientWidth + 1;
}).map(i => i.alt.slice(0, 60))"""
# Of the labels in a drawing those that are smaller than 12 pixels as drawn, those that are cut off,
# and pairs that lie on each other: as letters are high, along their own lines.
BAD_LABELS = """() => {
  const stage = document.querySelector('.live-stage').getBoundingClientRect();
  const found = {small: [], cut: [], over: []};
  const labels = [...document.querySelectorAll('.live-stage svg text')].map(e => {
    const {x, y, width, height} = e.getBBox(), turn = e.getScreenCTM();
    const size = Math.hypot(turn.a, turn.b) * parseFloat(getComputedStyle(e).fontSize);
    const corners = [[0, 0.22], [1, 0.22], [1, 0.82], [0, 0.82]].map(([across, down]) => {
      const at = new DOMPoint(x + across * width, y + down * height).matrixTransform(turn);
      return [at.x, at.y];
    });
    return {words: e.textContent, size, corners};
  });
  const apart = (one, other) => [one, other].some(corners => [0, 1].some(side => {
    const [[ax, ay], [bx, by]] = corners.slice(side);
    const long = Math.hypot(bx - ax, by - ay) || 1;
    const [least, most] = [Math.min, Math.max].map(end =>
      [one, other].map(all => end(...all.map(([x, y]) => (x * (bx - ax) + y * (by - ay)) / long))));
    return most[0] < least[1] + 1 || most[1] < least[0] + 1;
  }));
  labels.forEach(({words, size, corners}, i) => {
    if (size < 11.99) found.small.push(words);
    if (corners.some(([x, y]) => x < stage.left - 0.5 || x > stage.right + 0.5
      || y < stage.top - 0.5 || y > stage.bottom + 0.5)) found.cut.push(words);
    for (const each of labels.slice(0, i))
      if (!apart(corners, each.corners)) found.over.push([words, each.words]);
  });
  return found;
}"""
# Whether all pictures are those for this screen; a browser changes them some time after its size.
CHOSEN = """() => [...document.querySelectorAll('picture > img')].every(i => {
  i.loading = 'eager';
  const phone = i.parentElement.querySelector(':scope > source');
  const file = phone && matchMedia(phone.media).matches ? phone.srcset : i.getAttribute('src');
  return i.complete && i.currentSrc.endsWith(file.replace('../', '/'));
})"""
# Where prose, code and pictures as wide as the text end.
EDGES = """() => [...new Set([...document.querySelectorAll(
  '.bd-article section > p, section > .cell > .cell_input, .cell_output a img[width="699"]'
)].filter(e => e.checkVisibility() && !e.closest('.admonition'))
  .map(e => Math.round(e.getBoundingClientRect().right)))]"""
BAD_MATH = """() => [...document.querySelectorAll('mjx-merror, [data-mjx-error], :is(span, div)' +
  '.math:not(:has(mjx-container))')].map(e => e.textContent.slice(0, 80))"""
# Each page's parts, as far as it has asked for them.
PARTS = "() => performance.getEntriesByType('resource').map(e => e.name)"
SHIFTS = """window.shifts = 0;
new PerformanceObserver(list => list.getEntries().forEach(each => window.shifts += each.value))
.observe({type: 'layout-shift', buffered: true});"""
AT_A_DESK = {"parts": PARTS, "shift": "() => window.shifts || 0", "bad_math": BAD_MATH}
AT_A_DESK |= {"no_alt": NO_ALT, "unsized": UNSIZED, "edges": EDGES}
ON_A_PHONE = {"too_wide": TOO_WIDE, "distorted": DISTORTED, "small": SMALL, "cut_off": CUT_OFF}
BACKGROUND = "getComputedStyle(document.body).backgroundColor"
LOOK = "look => document.documentElement.dataset.theme === look"
PATIENCE = 20  # seconds until a slider that moved nothing is called dead
PHONE = {"width": 390, "height": 844}
DESK = {"width": 1440, "height": 900}


def left_out(reason: str) -> None:
    """Skip a test, which in CI is a failure: there, everything that it needs is installed."""
    if IN_CI:
        pytest.fail(f"left out, which CI does not allow: {reason}", pytrace=False)
    pytest.skip(reason)


def build_site() -> subprocess.CompletedProcess[str]:
    """Build the site as a reader does, one worker after the other."""
    (ROOT / "_build").mkdir(exist_ok=True)
    with FileLock(ROOT / "_build" / "site.lock"):
        return subprocess.run(
            [sys.executable, "-m", "tools.build"], cwd=ROOT, capture_output=True, text=True
        )


def launch(playwright):
    """Start the system's Chromium, or the browser that Playwright installed.

    Raises:
        FileNotFoundError: if there is none.
    """
    engine, own = getattr(playwright, ENGINE), ENGINE == "chromium"
    path = (own and chromium.installed()) or engine.executable_path
    if not Path(path).exists():
        raise FileNotFoundError(
            f"no {ENGINE} here. On Debian, Ubuntu: sudo apt install chromium; elsewhere: "
            f"{sys.executable} -m playwright install {ENGINE}"
        )
    return engine.launch(executable_path=path, args=CHROME_ARGS if own else [], timeout=1000 * LONG)


class QuietHandler(http.server.SimpleHTTPRequestHandler):
    under = "/"  # the path below which the folder lies, as a project's site has one

    def translate_path(self, path: str) -> str:
        if not path.startswith(self.under):
            return str(Path(self.directory) / "nothing lies outside of the site's own path")
        return super().translate_path("/" + path.removeprefix(self.under))

    def log_message(self, *_: object) -> None:
        pass

    def end_headers(self) -> None:
        self.send_header("Cache-Control", "max-age=3600")  # scripts and styles, once for all pages
        super().end_headers()


def toc_pages() -> list[str]:
    """Return the pages of the book in their order, without suffix."""
    toc = yaml.safe_load((ROOT / "_toc.yml").read_text(encoding="utf-8"))
    chapters = [entry for part in toc["parts"] for entry in part["chapters"]]
    nested = [[entry, *entry.get("sections", [])] for entry in chapters]
    return [toc["root"], *(page["file"] for pages in nested for page in pages)]


def serve(folder: Path, under: str = "/") -> tuple[http.server.ThreadingHTTPServer, str]:
    """Serve a folder on a free port of this computer; return the server and its address.

    Args:
        folder: what to serve.
        under: the path below which it lies; it begins and ends with a slash.
    """
    below = type("Below", (QuietHandler,), {"under": under})
    handler = functools.partial(below, directory=str(folder))
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    return server, f"http://127.0.0.1:{server.server_port}{under}"


@dataclass
class Visit:
    """What was seen on one page."""

    console: list[str] = field(default_factory=list)
    foreign: list[str] = field(default_factory=list)
    failed: list[str] = field(default_factory=list)
    violations: dict[str, list[str]] = field(default_factory=dict)
    no_alt: list[str] = field(default_factory=list)
    unsized: list[str] = field(default_factory=list)
    too_wide: list[str] = field(default_factory=list)
    distorted: list[str] = field(default_factory=list)
    small: list[str] = field(default_factory=list)
    cut_off: list[str] = field(default_factory=list)
    edges: list[int] = field(default_factory=list)
    bad_math: list[str] = field(default_factory=list)
    sliders: int = 0
    dead: list[str] = field(default_factory=list)
    background: dict[str, str] = field(default_factory=dict)
    parts: list[str] = field(default_factory=list)
    shift: float = 0.0
    mark: dict[str, float] = field(default_factory=dict)


@dataclass
class Seen:
    """The kinds of elements whose colours were looked at, on all pages that were visited so far."""

    kinds: str = json.dumps({"numbers": {}, "words": {}})


def told(violations: list[dict[str, Any]]) -> list[str]:
    """Return the violations, one line each, with up to twenty places."""
    return [
        f"{found['id']}: {found['help']} ({len(found['nodes'])}x) e.g. "
        + " and ".join(node["html"][:160] for node in found["nodes"][:20])
        for found in violations
    ]


def serious(violations: list[dict[str, Any]]) -> list[str]:
    """Return the violations that keep somebody out, as `told`."""
    return told([found for found in violations if found["impact"] in {"serious", "critical"}])


def dead_sliders(page) -> tuple[int, list[str]]:
    """Press a key on each slider of a page; return their number, and those that moved nothing."""
    handles = page.query_selector_all(".moving input[type=range]")
    dead = []
    for handle in handles:
        name, at, last = handle.evaluate("e => [e.labels[0]?.textContent, e.value, e.max]")
        before, told = handle.evaluate(VISIBLE_PICTURE), handle.get_attribute("aria-valuetext")
        handle.focus()
        page.keyboard.press("ArrowLeft" if float(at) >= float(last) else "ArrowRight")
        until = time.monotonic() + PATIENCE
        while (
            not name
            or told == handle.get_attribute("aria-valuetext")
            or (handle.evaluate(VISIBLE_PICTURE) in ("", before))
        ):
            if time.monotonic() > until:
                dead.append(name or "without a name")
                break
            page.wait_for_timeout(25)
    return len(handles), dead


def look_at_once(page, looks: dict[str, str]) -> dict[str, Any]:
    """Return what each function finds on a page; every question of its own would take a while."""
    calls = (f"{name}: ({function})()" for name, function in looks.items())
    return page.evaluate(f"() => ({{{', '.join(calls)}}})")


@contextmanager
def watched(page, home: str, visit: Visit) -> Iterator[None]:
    """Note the errors of a page and its requests that leave `home`."""

    def on_console(message) -> None:
        if message.type == "error":
            visit.console.append(message.text)

    def on_request(request) -> None:
        if not request.url.startswith((home, "data:", "blob:", "about:")):
            visit.foreign.append(request.url)

    handlers = {
        "console": on_console,
        "pageerror": lambda error: visit.console.append(str(error)),
        "requestfailed": lambda request: visit.failed.append(request.url),
        "request": on_request,
    }
    for event, handler in handlers.items():
        page.on(event, handler)
    try:
        yield
    finally:
        for event, handler in handlers.items():
            page.remove_listener(event, handler)


def open_at(page, url: str) -> None:
    """Open an address in the light, and wait until formulas are set."""
    page.set_viewport_size(DESK)
    page.emulate_media(color_scheme="light", reduced_motion="reduce")
    page.goto(url, wait_until="load")
    if page.query_selector("script[src*=mathjax]"):
        page.wait_for_function("() => window.MathJax?.startup?.promise !== undefined")
        page.evaluate("() => MathJax.startup.promise.then(() => true)")


@contextmanager
def open_page(browser, url: str, home: str, visit: Visit) -> Iterator[Any]:
    """Open an address in a page of its own."""
    page = browser.new_page()
    with watched(page, home, visit):
        open_at(page, url)
        yield page
    page.close()


def go_dark(page) -> None:
    """Ask for the dark page and wait for it; a busy browser may drop the news."""
    from playwright.sync_api import TimeoutError as PlaywrightTimeout

    for tries_left in reversed(range(6)):
        page.emulate_media(color_scheme="dark", reduced_motion="reduce")
        try:
            page.wait_for_function(LOOK, arg="dark", timeout=30_000, polling=100)
        except PlaywrightTimeout:
            if not tries_left:
                raise
            page.bring_to_front()
            page.emulate_media(color_scheme="light")
        else:
            return


def visit_page(page, url: str, home: str, axe: str | None, seen: Seen) -> Visit:
    """Open an address, use it as readers do, and return what was found.

    Args:
        page: the tab.
        url: what to open.
        home: what all requests are to begin with.
        axe: the accessibility checker's source, where it is asked too.
        seen: what the visits before looked at; this one adds what it looks at.
    """
    visit = Visit()
    with watched(page, home, visit):
        open_at(page, url)
        vars(visit).update(look_at_once(page, AT_A_DESK))
        visit.mark = page.locator(".bd-sidebar-primary .current.active").last.bounding_box()
        visit.sliders, visit.dead = dead_sliders(page)
        page.set_viewport_size(PHONE)  # before it unfolds, or it would be laid out so twice
        page.evaluate(UNFOLD)
        page.wait_for_function(CHOSEN)
        vars(visit).update(look_at_once(page, ON_A_PHONE))
        if axe:
            page.evaluate(axe)
            visit.violations["phone"] = told(page.evaluate(WHOLE_AXE, ONLY_WITH_FORMULAS))
        page.evaluate(SLIM)
        page.set_viewport_size(DESK)
        if axe:
            visit.violations["structure"] = told(page.evaluate(WHOLE_AXE, WITHOUT_COLOURS))
            kinds = page.evaluate(ONE_OF_EACH_KIND, seen.kinds)
        for scheme in ("light", "dark"):
            if scheme == "dark":  # it was opened in the light
                go_dark(page)
            visit.background[scheme] = page.evaluate(BACKGROUND)
            if axe:
                visit.violations[scheme] = told(page.evaluate(WHOLE_AXE, ONLY_COLOURS))
        if axe:
            seen.kinds = kinds
        page.goto("about:blank")
    return visit
