"""Make what live.show shows: the scripts of all figures, and their pictures in the first state.

Usage: python -m tools.live [--script]

Needs npm, for the bundler and the parts of d3 that pe_course/page/web/package-lock.json pins with
their digests, and for the pictures Playwright with a Chromium. With --script no pictures are taken.
"""

from __future__ import annotations

import argparse
import hashlib
import io
import json
import re
import shutil
import subprocess
import sys
from base64 import b64encode
from functools import cache
from pathlib import Path
from typing import Any

from PIL import Image

from pe_course.page import choosing, figures
from pe_course.page.live import SCRIPT, SCRIPTS, STARTS, STILL, STILLS, STYLE, WEB, data, script_of
from tools import ROOT, chromium

FONTS = ROOT / "book" / "assets" / "fonts"
WORKSHOP = ROOT / "_build" / "web"  # where npm puts what it brings
LICENCE = "d3-axis, d3-drag, d3-scale, d3-selection and what they need: ISC, LICENSE-d3.txt"
# Properties that no state, page or attribute knows: the bundler may shorten them.
INSIDE = (
    *("drawing", "narrow", "handle", "handles", "upright", "level", "move", "settle", "glides"),
    *("enabled", "question", "pictures", "marks", "why", "asking", "again", "mine", "knob", "play"),
    *("kin", "also", "sheet", "inside", "shape", "words", "kind", "least", "controls"),
    *("label", "title", "lines", "draw", "xLabel", "yLabel", "xFormat", "yFormat", "xValues"),
    *("yValues", "logY", "veil", "hides", "led", "check", "when", "leave", "onlyAsks", "point"),
    *("tickFormat", "tickValues", "tickSizeInner", "tickSizeOuter", "tickPadding"),
    *("pressable", "press", "held", "names", "summed", "bundles", "gaps", "called", "size", "used"),
)
WIDE, NARROW = 720, 340  # pixels: the column on a desk, and on a phone
# What each picture shows, for those who do not see it; the figure's first words follow.
SAID = json.loads((WEB / "said.json").read_text(encoding="utf-8"))


def digest() -> str:
    """Return the digest of all that the script is made of."""
    whole = hashlib.sha256()
    for path in sorted([*WEB.glob("src/*.js"), WEB / "package.json"]):
        whole.update(path.name.encode() + b"\n" + path.read_bytes())
    return whole.hexdigest()


def run(*command: str | Path) -> None:
    done = subprocess.run([str(part) for part in command], cwd=WORKSHOP, capture_output=True)
    if done.returncode:
        raise SystemExit(f"{command[0]} failed: {done.stderr.decode()[-2000:]}")


def bring_bundler() -> None:
    """Have npm bring the bundler and the parts of d3, where they are not yet."""
    npm = shutil.which("npm")
    if npm is None:
        raise SystemExit("npm is not installed; it brings the bundler")
    WORKSHOP.mkdir(parents=True, exist_ok=True)
    lock = WEB / "package-lock.json"
    stamp = WORKSHOP / "package-lock.json"
    if not stamp.exists() or stamp.read_bytes() != lock.read_bytes():
        shutil.copy(WEB / "package.json", WORKSHOP)
        shutil.copy(lock, WORKSHOP)
        run(npm, "ci", "--silent", f"--cache={WORKSHOP / 'cache'}")


def script(made: Path = SCRIPT) -> str:
    """Bundle the modules of some figures and what they take from d3 into one text.

    Args:
        made: one of `live.SCRIPTS`; it is made from main.js, or from a module of its name.
    """
    bring_bundler()
    shutil.rmtree(WORKSHOP / "src", ignore_errors=True)
    shutil.copytree(WEB / "src", WORKSHOP / "src")
    options = ["--bundle", "--minify", "--format=iife", "--global-name=Live", "--target=es2022"]
    options += ["--charset=utf8", "--outfile=live.js", "--legal-comments=none"]
    options += ["--metafile=live.json", f"--mangle-props=^({'|'.join(INSIDE)})$"]
    first = "main.js" if made == SCRIPT else made.name
    run(WORKSHOP / "node_modules" / ".bin" / "esbuild", f"src/{first}", *options)
    text = (WORKSHOP / "live.js").read_text(encoding="utf-8")
    shares = json.loads((WORKSHOP / "live.json").read_text())["outputs"]["live.js"]["inputs"]
    own = sum(each["bytesInOutput"] for name, each in shares.items() if name.startswith("src/"))
    return (
        f"/* Made by tools/live.py from {digest()}, {own} bytes of our own\n   {LICENCE} */\n{text}"
    )


DARK = """:root { --pst-color-text-base: #ced6dd; --pst-color-text-muted: #9ca4af;
  --pst-color-background: #14181f; --course-card-edge: #2c3442; --pst-color-primary: #8ab8f0; }
body, figure { background: #14181f !important; }"""  # as the site's style has them


@cache
def faces() -> str:
    """Return the site's own type faces as a style: a figure is as high on every machine."""
    style = (FONTS / "fonts.css").read_text(encoding="utf-8")
    kinds = re.findall(r"@font-face \{[^}]*woff2[^}]*\}", style)

    def whole(found: re.Match[str]) -> str:
        data = b64encode((FONTS / found[1]).read_bytes()).decode()
        return f'"data:font/woff2;base64,{data}"'

    text = re.sub(r'"([\w-]+\.woff2)"', whole, "\n".join(kinds))
    return text.replace("font-display: swap", "font-display: block")


def page(name: str = "", state: dict[str, Any] | None = None, scheme: str = "light") -> str:
    """Return a page that holds nothing but the script, and one figure if it is named."""
    held, read = (json.dumps(each).replace("'", "&#39;") for each in (state, data(name) or None))
    place = f"<div class=live data-figure='{name}' data-state='{held}' data-data='{read}'></div>"
    place = place if name else ""
    place = f"<figure id=figure-0><div class=live-place>{place}</div></figure>"
    return (
        f"<!doctype html><html data-theme={scheme} lang=en><meta charset=utf-8>"
        "<title>figure</title>"
        f"<style>{faces()} :root {{ --course-sans: Course Sans, sans-serif }}"
        "body, figure { margin: 0; background: #fff; font-family: var(--course-sans) }"
        f"{DARK if scheme == 'dark' else ''}\n{STYLE.read_text()}</style>"
        f"<main>{place}</main><script>{script_of(name).read_text()}</script>"
    )


# Where no script runs nothing can be moved: of a figure its drawing and its words are left, as in
# print, without handles and without the curve of a prediction, which "Skip" takes away.
AS_STILL = """async words => {
  [...document.querySelectorAll('.live-predict button')].at(-1).click();
  document.activeElement.blur();
  await new Promise(done => setTimeout(done, 200));
  const invites = e => e.matches('.live-handle, .grip') || e.textContent.startsWith('drag ');
  const parts = document.querySelectorAll('.live-handle, .grip, svg text');
  [...parts].filter(invites).forEach(e => e.remove());
  const line = document.createElement('p');
  line.className = 'live-still';
  line.textContent = words;
  document.querySelector('.live-figure').append(line);
}"""


def make_still(tab: Any) -> None:
    """Take from the figure of a page whatever invites to move it, and say that it is a still."""
    tab.emulate_media(media="print")
    tab.evaluate(AS_STILL, STILL)


def photograph() -> None:
    """Take each figure's picture in its first state, and note its words and its heights."""
    from playwright.sync_api import sync_playwright

    STILLS.mkdir(exist_ok=True)
    found: dict[str, Any] = {}
    with sync_playwright() as playwright:
        path = chromium.installed()
        browser = playwright.chromium.launch(executable_path=path, args=["--no-sandbox"])
        tab = browser.new_page(device_scale_factor=2)
        first = {}
        for each in SCRIPTS:
            tab.set_content(f"<script>{each.read_text()}</script>")
            first |= tab.evaluate(
                "Object.fromEntries(Object.entries(Live.FIGURES).map(([k, f]) => [k, f.start]))"
            )
        for name, state in first.items():
            heights = {}
            tab.emulate_media(media="screen")
            for key, width in (("narrow", NARROW), ("wide", WIDE)):
                tab.set_viewport_size({"width": width, "height": 900})
                tab.set_content(page(name, state))
                tab.wait_for_selector(".live-words:not(:empty)")
                tab.evaluate("document.fonts.ready")
                box = tab.locator(".live-figure").bounding_box()
                heights[key] = round(box["height"])
            make_still(tab)
            drawn = Image.open(io.BytesIO(tab.locator(".live-figure").screenshot())).convert("RGB")
            heights["still"] = drawn.height // 2
            figures.few_colours(drawn, others=40).save(STILLS / f"{name}.png", optimize=True)
            alt = f"{SAID[name]} {tab.locator('.live-words').text_content()}"
            found[name] = {"state": state, "alt": alt, "width": WIDE, **heights}
        browser.close()
    for path in STILLS.glob("*.png"):
        if path.stem not in found:
            path.unlink()
    text = json.dumps(found, indent=1, ensure_ascii=False)
    STARTS.write_text(text + "\n", encoding="utf-8")


def colours() -> str:
    """Return the style of what a colour stands for, as pe_course/page/figures.py has it."""
    looks = (
        ".live",
        'html[data-theme="dark"] .live, [data-jp-theme-light="false"] .live, .theme-dark .live',
    )
    lines = [f".live .{role} {{ --c: var(--live-{role}); }}" for role in figures.ROLES]
    for selector, pair in zip(looks, zip(*figures.ROLES.values(), strict=True), strict=True):
        held = " ".join(f"--live-{r}: {c};" for r, c in zip(figures.ROLES, pair, strict=True))
        lines.append(f"{selector} {{ {held} }}")
    light = lines[len(figures.ROLES)]
    return "\n".join([*lines, f"@media print {{ html[data-theme] {light} }}"])


def write_data() -> None:
    """Write what the figures read beside their state, and their colours."""
    style = STYLE.read_text(encoding="utf-8")
    before, _, rest = style.partition("/* colours */\n")
    _, end, after = rest.partition("/* end of colours */")
    STYLE.write_text(f"{before}/* colours */\n{colours()}\n{end}{after}", encoding="utf-8")
    text = json.dumps(choosing.data(), ensure_ascii=False, separators=(",", ":"))
    (WEB / "chooser.json").write_text(text + "\n", encoding="utf-8")


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--script", action="store_true", help="leave the pictures as they are")
    parser.add_argument("--data", action="store_true", help="write what figures read, and no more")
    options = parser.parse_args()
    if options.data:
        write_data()
        return 0
    for each in SCRIPTS:
        each.write_text(script(each), encoding="utf-8")
    write_data()
    if not options.script:
        photograph()
    for each in SCRIPTS:
        print(f"{each.relative_to(ROOT)}: {each.stat().st_size} bytes")
    return 0


if __name__ == "__main__":
    sys.exit(main())
