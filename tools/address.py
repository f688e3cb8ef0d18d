"""Where the course stands and what it is called: `_config.yml` says it, and nothing else does.

Notebooks and pages hold `@REPOSITORY@`, `@SITE@`, `@TITLE@` and `@AUTHOR@` instead, and links whose
text is Colab or Binder lead to a notebook of the repository; the build puts the addresses in. In
GitHub Actions a fork stands where GitHub says, until its own `_config.yml` does.
"""

from __future__ import annotations

import os
import posixpath
import re
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path

import yaml

from tools import ROOT

CONFIG = ROOT / "_config.yml"
BRANCH = "notebooks"  # to which the build brings the notebooks that Colab opens, addresses put in
LINK = re.compile(r"\[(Colab|Binder)\]\(([\w./-]+\.ipynb)\)")


@dataclass(frozen=True)
class Address:
    """What `_config.yml` says of the course; `site` ends in a slash."""

    title: str
    author: str
    repository: str
    branch: str
    site: str
    colab: str
    binder: str

    @property
    def name(self) -> str:
        """Return owner/name of the repository."""
        return "/".join(self.repository.split("/")[-2:])

    def opens(self, service: str, path: str) -> str:
        """Return where a service, Colab or Binder, opens a notebook of the repository."""
        if service == "Colab":
            return f"{self.colab}/github/{self.name}/blob/{BRANCH}/{path}"
        return f"{self.binder}/v2/gh/{self.name}/{self.branch}?urlpath=lab/tree/{path}"

    def filled(self, text: str) -> str:
        """Put the addresses into the text of a page, or of a notebook of book/ or exercises/."""

        def opened(link: re.Match[str]) -> str:
            path = posixpath.normpath(posixpath.join("book", link[2]))
            return f"[{link[1]}]({self.opens(link[1], path)})"

        for name in ("repository", "site", "title", "author"):
            text = text.replace(f"@{name.upper()}@", getattr(self, name))
        return LINK.sub(opened, text)


def of_pages(owner: str, name: str) -> str:
    """Return where GitHub Pages publishes a repository that names no domain of its own."""
    host = f"{owner.lower()}.github.io"
    return f"https://{host}/" if name.lower() == host else f"https://{host}/{name}/"


def stored(config: Path = CONFIG) -> Address:
    """Return what `_config.yml` says."""
    said = yaml.safe_load(config.read_text(encoding="utf-8"))
    at, buttons = said["repository"], said["launch_buttons"]
    return Address(
        title=said["title"],
        author=said["author"],
        repository=at["url"].rstrip("/"),
        branch=at["branch"],
        site=said["html"]["baseurl"].rstrip("/") + "/",
        colab=buttons["colab_url"],
        binder=buttons["binderhub_url"],
    )


def current(config: Path = CONFIG, environment: Mapping[str, str] = os.environ) -> Address:
    """Return what `_config.yml` says, or where GitHub Actions runs: a fork publishes itself."""
    found = stored(config)
    name = environment.get("GITHUB_REPOSITORY", "")
    if environment.get("GITHUB_ACTIONS") != "true" or name.lower() in ("", found.name.lower()):
        return found
    server = environment.get("GITHUB_SERVER_URL", "https://github.com")
    return replace(found, repository=f"{server}/{name}", site=of_pages(*name.split("/")))
