"""Give a fork its own links and title: in `_config.yml`, and in files that hosts read as they are.

Usage: python -m tools.fork OWNER/NAME [--title TITLE] [--site URL]
"""

from __future__ import annotations

import argparse
import json
import re
import sys
from dataclasses import replace
from pathlib import Path

from tools import ROOT, address
from tools.address import Address

# Where the title stands, and how it is written there.
TITLES = {
    "_config.yml": (r"^title: .*$", "title: {quoted}"),
    "CITATION.cff": (r"^title: .*$", "title: {quoted}"),
    "README.md": (r"\A# .*$", "# {title}"),
    "book/00_intro.ipynb": (r'^    "# .*\\n",$', '    "# {inside}\\n",'),
}
COPIES = (*TITLES, "pyproject.toml")


class ForkError(ValueError):
    """The fork cannot be given this address or title; the message says why."""


def require(name: str, value: str, form: str, words: str) -> str:
    """Return a value if it has a form."""
    if not re.fullmatch(form, value):
        raise ForkError(f"{name} must be {words}; got {value!r}")
    return value


def moved(old: Address, repository: str, title: str, site: str) -> Address:
    """Return the address of a fork.

    Raises:
        ForkError: if the repository, the title or the site cannot be one.
    """
    require(
        "REPO", repository, r"(?!-)[A-Za-z0-9-]{1,39}/(?!\.\.?$)[\w.-]{1,100}(?<!\.git)",
        "owner/name as on GitHub, such as ada/notes",
    )  # fmt: skip
    site = site or address.of_pages(*repository.split("/"))
    require("SITE", site, r"https?://[\w.-]+(:\d+)?(/[\w./~%-]*)?", "an address with https://")
    title = require("TITLE", title.strip() or old.title, r"[^\n@]+", "one line without an @")
    server = old.repository.removesuffix(old.name)
    return replace(old, repository=server + repository, site=site.rstrip("/") + "/", title=title)


def rewritten(name: str, text: str, old: Address, new: Address) -> str:
    """Return a file of the repository with another address and title."""
    text = text.replace(old.site, new.site).replace(old.site.rstrip("/"), new.site.rstrip("/"))
    text = re.sub(rf"(?<=/){re.escape(old.name)}(?![\w-])", lambda _: new.name, text)
    if name in TITLES:
        pattern, form = TITLES[name]
        quoted = json.dumps(new.title, ensure_ascii=False)
        line = form.format(title=new.title, quoted=quoted, inside=quoted[1:-1])
        text = re.sub(pattern, lambda _: line, text, count=1, flags=re.MULTILINE)
    return text


def fork(repository: str, title: str = "", site: str = "", root: Path = ROOT) -> list[Path]:
    """Write the address and the title; return the files that changed.

    Args:
        repository: owner/name.
        title: of the course; without one it stays as it is.
        site: where the pages are published, if not at GitHub's own address for the repository.
        root: of the checkout.

    Raises:
        ForkError: if something given cannot be; nothing is written then.
    """
    old = address.stored(root / "_config.yml")
    new = moved(old, repository, title, site)
    changed = []
    for path in (root / name for name in COPIES):
        text = path.read_text(encoding="utf-8")
        other = rewritten(path.relative_to(root).as_posix(), text, old, new)
        if other != text:
            path.write_text(other, encoding="utf-8")
            changed.append(path)
    return changed


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("repository", help="owner/name")
    parser.add_argument("--title", default="", help="of the course")
    parser.add_argument("--site", default="", help="where it is published, if at an own domain")
    options = parser.parse_args()
    try:
        changed = fork(options.repository, options.title, options.site)
    except ForkError as error:
        print(error, file=sys.stderr)
        return 2
    for path in changed:
        print(f"changed: {path.relative_to(ROOT)}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
