"""What a search engine and a shared link show of a page, and what it is by schema.org."""

from __future__ import annotations

import functools
import json
from html import escape
from pathlib import Path
from typing import Any

import yaml
from sphinx.application import Sphinx
from sphinx.config import Config

from pe_course.page.chapters import CHAPTERS

SAID = Path(__file__).parents[1] / "descriptions.yml"
ANYWHERE = {
    "inLanguage": "en",
    "isAccessibleForFree": True,
    "license": "https://creativecommons.org/licenses/by/4.0/",
    "educationalLevel": "Intermediate",
}


@functools.cache
def said() -> dict[str, dict[str, str]]:
    """Return the description of each page, and its title where that is not the page's heading."""
    pages: dict[str, dict[str, str]] = yaml.safe_load(SAID.read_text(encoding="utf-8"))
    return pages


def chapter(name: str, base: str) -> dict[str, Any]:
    """Return what a chapter is: a LearningResource, or a Syllabus in the course's list."""
    return {
        "@type": "LearningResource",
        "name": said()[name]["title"],
        "description": said()[name]["description"],
        "url": f"{base}book/{name}.html",
        "timeRequired": f"PT{CHAPTERS[name].with_exercises}M",
    }


def course(config: Config) -> dict[str, Any]:
    """Return what the course is, with all that Google's list and its panel of courses ask for."""
    base = config.html_baseurl
    hours = round(sum(each.with_exercises for each in CHAPTERS.values()) / 60)
    return {
        "@type": "Course",
        "@id": base,
        "name": config.html_title,
        "description": said()["00_intro"]["description"],
        "url": f"{base}book/00_intro.html",
        "image": f"{base}{config.ogp_image}",
        "provider": {"@type": "Organization", "name": config.author, "url": base},
        "offers": [{"@type": "Offer", "category": "Free"}],
        "hasCourseInstance": [
            {"@type": "CourseInstance", "courseMode": "Online", "courseWorkload": f"PT{hours}H"}
        ],
        "syllabusSections": [chapter(name, base) | {"@type": "Syllabus"} for name in CHAPTERS],
    }


def describe(app: Sphinx, page: str, template: str, context: dict[str, Any], doctree: Any) -> None:
    """Give a page its own title and description, and tell programs what it is."""
    name = page.removeprefix("book/")
    if doctree is None or name not in said():
        return
    title, description = said()[name].get("title"), said()[name]["description"]
    context["title"] = escape(title, quote=False) if title else context["title"]
    context["docstitle"] = ""  # these titles stand alone
    context["meta"] = {**(context["meta"] or {}), "og:description": description}
    context["metatags"] += f'<meta name="description" content="{escape(description)}" />\n'
    thing = None
    if page == app.config.root_doc:
        thing = course(app.config)
    elif name in CHAPTERS:
        base = app.config.html_baseurl
        thing = chapter(name, base) | {"isPartOf": {"@type": "Course", "@id": base}}
    if thing:
        text = json.dumps({"@context": "https://schema.org"} | thing | ANYWHERE)
        context["metatags"] += f'<script type="application/ld+json">{text}</script>\n'
