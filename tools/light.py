"""Make the pages of a built site light: one style sheet of what pages use, and scripts after it.

The themes bring a dozen of each, half of whose rules no page can match, and a page would wait for
all of them before it shows a word. The sheet stands last in the head: a script below it waits.
"""

from __future__ import annotations

import hashlib
import json
import os
import re
from base64 import b64encode
from pathlib import Path

STYLE, SCRIPT = "site.css", "site.js"
FORMULAS = "formulas.css"  # made of what pages use
STYLES = (
    *("basic.css", "styles/pydata-sphinx-theme.css", "pygments.css"),
    *("styles/sphinx-book-theme.css", "togglebutton.css", "copybutton.css", "mystnb.*.css"),
    *("sphinx-thebe.css", "sphinx-design.min.css"),
    *("live.css", "fonts/fonts.css", "course.css", FORMULAS),
)
SCRIPTS = (
    *("doctools.js", "sphinx_highlight.js", "clipboard.min.js", "copybutton.js"),
    *("scripts/sphinx-book-theme.js", "course.js"),
    *("scripts/bootstrap.js", "scripts/pydata-sphinx-theme.js"),
)
OPTIONS = "documentation_options.js"
# What every first screen shows comes in the sheet: it then never moves, and costs no request.
FIRST = {"sans", "sans-bold", "fa-solid-900", "fa-brands-400", "MathJax_Zero"}
REMARK = re.compile(r"/\*.*?\*/|@(?:charset|import)[^;]*;", re.DOTALL)
ADDRESS = re.compile(r"""url\(["']?(?!data:)([^"')?#]+)[^)]*\)""")
FACE = re.compile(r"@font-face\s*\{[^}]*data:font[^}]*\}")
RULE = re.compile(r"([^{}]+)(\{[^{}]*\})")
EMPTY = re.compile(r"@(?:media|supports)[^{}]*\{\s*\}")
CLASS = re.compile(r"\.(-?[A-Za-z_][\w-]*)")
LINK = re.compile(r'<link\b[^>]*href="([^"]*_static/)([^"?]+\.css)[^"]*"[^>]*>\s*')
SOURCE = re.compile(r'<script\b[^>]*src="([^"]*_static/([^"?]+)[^"]*)"[^>]*></script>\s*')
# Half a page has other columns than the whole: nothing is drawn before its end. A script there
# waits for the sheet, and has its faces read before words are drawn in others; then it asks for the
# other scripts in their order. Named in the head, they would hold up the first words by a third.
EXPECT = '<link rel="expect" href="#read-in" blocking="render">\n'
END = """<script>
for (const face of ["1em Course Sans", "600 1em Course Sans", "1em MJXZERO",
  "900 1em 'Font Awesome 6 Free'"]) document.fonts.load(face);
for (const src of %s)
  document.head.append(Object.assign(document.createElement("script"), { src, async: false }));
</script>
<div id="read-in"></div>
</body>"""
# These look like the code around them; they are a third of a chapter's elements.
PLAIN = re.compile(r'<span class="(?:n|nn|p|w)">([^<]*)</span>')
PLAIN_RULE = ".highlight .n {"
LOGO = re.compile(r'<img (alt="\w+ logo")')  # in a menu, which is closed


def words(site: Path) -> set[str]:
    """Return the classes of all pages and every word of their scripts, which may name one.

    The beginning of a name that a script puts together ends with a hyphen.
    """
    found: set[str] = set()
    for path in site.rglob("*.html"):
        found.update(re.findall(r'class="([^"]*)"', path.read_text(encoding="utf-8")))
    found = {word for each in found for word in each.split()}
    for path in site.glob("_static/**/[!f]*.js"):  # no page loads fontawesome.js
        script = path.read_text(encoding="utf-8")
        found.update(re.findall(r"[\w-]*\w", script), re.findall(r"[\w-]+-(?=\$\{)", script))
    return found


def used(selector: str, known: set[str], begun: tuple[str, ...]) -> bool:
    """Return False if a selector asks for a class that no page has and no script names or begins.

    What stands in brackets may be one of several, or what must not be: it decides nothing.
    """
    while selector != (shorter := re.sub(r"\([^()]*\)|\[[^][]*\]", "", selector)):
        selector = shorter
    asked = CLASS.findall(selector)
    return "\\" in selector or all(each in known or each.startswith(begun) for each in asked)


def cut(sheet: str, known: set[str]) -> str:
    """Return a style sheet without the rules that match nothing.

    Args:
        sheet: without remarks; no string in it holds a brace.
        known: what may be a class, as `words` returns it.
    """
    begun = tuple(word for word in known if word.endswith("-"))

    def keep(rule: re.Match[str]) -> str:
        selectors = rule[1].split(",")
        if "@" in rule[1] or ";" in rule[1]:
            return rule[0]
        if any(each.count("(") != each.count(")") for each in selectors):  # a comma in brackets
            selectors = [rule[1]]
        kept = ",".join(each for each in selectors if used(each, known, begun))
        return kept and kept + rule[2]

    sheet = RULE.sub(keep, sheet)
    while sheet != (shorter := EMPTY.sub("", sheet)):
        sheet = shorter
    return sheet


def read_sheet(path: Path, static: Path) -> str:
    """Return a style sheet whose addresses hold from `static`; first type faces are in it."""

    def place(found: re.Match[str]) -> str:
        file = path.parent / found[1]
        if file.stem in FIRST and file.suffix.startswith(".woff"):
            kind, data = file.suffix[1:], b64encode(file.read_bytes()).decode()
            return f'url("data:font/{kind};base64,{data}")'
        return f'url("{Path(os.path.relpath(file, static)).as_posix()}")'

    text = REMARK.sub("", path.read_text(encoding="utf-8"))
    text = re.sub(r"\s*\n\s*", "\n", ADDRESS.sub(place, text))
    # What has come already need not be stood in for, not even for a moment.
    return FACE.sub(lambda face: face[0].replace("font-display: swap", "font-display: block"), text)


def light_page(text: str, version: str, options: str) -> str:
    """Return a page that loads the one sheet, and its scripts after it.

    The page of the search keeps its scripts, which need each other early.
    """
    up, own, scripts = "", [], []

    def drop_sheet(link: re.Match[str]) -> str:
        nonlocal up
        up = link[1]
        if not any(Path(link[2]).match(each) for each in (*STYLES, "theme.css")):
            own.append(link[0])
        return ""

    def drop_script(source: re.Match[str]) -> str:
        if source[2] == OPTIONS:
            return f"<script>{options}</script>\n"
        if source[2] not in SCRIPTS:
            scripts.append(source[1])
        return ""

    text = LINK.sub(drop_sheet, text)
    if "_static/searchtools.js" not in text:
        text = SOURCE.sub(drop_script, text)
        names = json.dumps([*scripts, f"{up}{SCRIPT}?v={version}"])
        text = text.replace("</body>", END % names, 1)
        own.append(EXPECT)
    text = LOGO.sub(r'<img loading="lazy" \1', PLAIN.sub(r"\1", text))
    sheets = [f'<link rel="stylesheet" href="{up}{STYLE}?v={version}">\n', *own]
    return text.replace("</head>", "".join(sheets) + "</head>", 1)


def lighten(site: Path) -> None:
    """Write the sheet and the script of all pages, and have new pages load them."""
    static, known = site / "_static", words(site)
    paths = [path for name in STYLES for path in static.glob(name)]
    sheets = {path.name: read_sheet(path, static) for path in paths}
    formulas = sheets.pop(FORMULAS, "")  # one of its strings is a brace
    plain = ":is(.highlight .n, :not(.output) > .highlight > pre) {"
    style = cut("\n".join(sheets.values()).replace(PLAIN_RULE, plain), known) + formulas
    # With no strict script first, all are as loose as they were alone.
    script = "".join(f";{(static / name).read_text(encoding='utf-8')}\n" for name in SCRIPTS)
    options = (static / OPTIONS).read_text(encoding="utf-8")
    (static / STYLE).write_text(style, encoding="utf-8")
    (static / SCRIPT).write_text(script, encoding="utf-8")
    version = hashlib.sha256((style + script).encode()).hexdigest()[:8]
    for path in site.rglob("*.html"):
        text = path.read_text(encoding="utf-8")
        if LINK.search(text) and f"_static/{STYLE}" not in text:
            path.write_text(light_page(text, version, options), encoding="utf-8")
