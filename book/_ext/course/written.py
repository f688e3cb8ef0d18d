"""What programs write into pages: lists, proofs, the API."""

from __future__ import annotations

import re
from typing import Any

from docutils import nodes
from docutils.statemachine import StringList
from sphinx.application import Sphinx
from sphinx.util.docutils import SphinxDirective

from exercises import proofs, warm_up
from pe_course import sets
from tools import ROOT, census_page, configs_page, doctor_page

MODULES = re.compile(r"<!-- modules: ([\w., ]+) -->")
INTERNALS = re.compile(r"<!-- internals: ([\w, ]+) -->")  # what no page lists of its modules
LEFT_OUT = re.compile(r"<!-- left out: ([\w., ]+) -->")  # modules that no page lists


def write_page(_: Sphinx, page: str, source: list[str]) -> None:
    """Give the pages of which the book has only the title their text."""
    pages = {
        "book/census": census_page.page,
        "book/check_proofs": proofs.page,
        "book/configs": configs_page.page,
        "book/doctor_proofs": doctor_page.page,
    }
    if page in pages:
        source[0] = pages[page]()


def quote_sentences(_: Sphinx, page: str, source: list[str]) -> None:
    """Put the comparison's sentences where a Markdown page quotes them."""
    if "{said}" in source[0]:
        from pe_course.page.sentences import filled

        source[0] = filled(source[0])


def section(module: str, internals: str) -> str:
    """Return the Markdown that documents a module: what it defines, not what it passes on."""
    options = "   :members:\n   :ignore-module-all:\n"
    options += f"   :exclude-members: {internals}\n" if internals else ""
    return f"## {module}\n\n```{{eval-rst}}\n.. automodule:: {module}\n{options}```\n"


def list_modules(app: Sphinx, page: str, source: list[str]) -> None:
    """Put a section for each module where a page says so: `<!-- modules: posdoctor -->`.

    A package's name stands for what it defines itself, and for all its modules that no other line
    of the API pages names.
    """
    if not MODULES.search(source[0]):
        return
    named = {
        name
        for path in sorted((ROOT / "book").glob("api*.md"))
        for pattern in (MODULES, LEFT_OUT)
        for line in pattern.findall(path.read_text(encoding="utf-8"))
        for name in line.replace(" ", "").split(",")
    }

    inside = INTERNALS.findall(source[0])

    def sections(match: re.Match[str]) -> str:
        found: list[str] = []
        for name in match[1].replace(" ", "").split(","):
            files = sorted(ROOT.joinpath(*name.split(".")).glob("*.py"))
            modules = [f"{name}.{file.stem}" for file in files if not file.stem.startswith("__")]
            if not files or "\ndef " in files[0].with_name("__init__.py").read_text("utf-8"):
                found.append(name)
            found += [module for module in modules if module not in named]
        return "\n".join(section(module, ", ".join(inside)) for module in found)

    source[0] = MODULES.sub(sections, source[0])


def plain_docstring(
    app: Sphinx, what: str, name: str, obj: Any, options: Any, lines: list[str]
) -> None:
    """Read docstrings as plain text: |x| and a*b are maths, not markup, and `x` is code."""
    for number, line in enumerate(lines):
        words = re.split(r"(`+[^`]+`+)", line)
        words[::2] = [re.sub(r"([|*])", r"\\\1", word) for word in words[::2]]
        words[1::2] = [f"``{word.strip('`')}``" for word in words[1::2]]
        lines[number] = "".join(words)


def skip_fields(app: Sphinx, what: str, name: str, obj: Any, skip: bool, options: Any) -> bool:
    """Leave out the fields of a named tuple, of which Python only knows their number."""
    return skip or type(obj).__name__ == "_tuplegetter"


def written(directive: SphinxDirective, text: str, source: str) -> list[nodes.Node]:
    """Return what Markdown, written by a program when the page is built, stands for."""
    holder = nodes.container()
    directive.state.nested_parse(
        StringList(text.splitlines(), source=source), directive.content_offset, holder
    )
    return list(holder.children)


class GradedSets(SphinxDirective):
    """Write the list of all graded sets, or of all projects, with what opens each."""

    required_arguments = 1

    def run(self) -> list[nodes.Node]:
        text = {"sets": sets.overview, "projects": sets.projects}[self.arguments[0]]()
        return written(self, text, "pe_course/sets.py")


class CheckedAnswer(SphinxDirective):
    """Show an answer to the warm-up exercise, and below it what the check says when it runs."""

    has_content = True

    def run(self) -> list[nodes.Node]:
        code = "\n".join(self.content)
        said = warm_up.feedback(code)
        return [
            nodes.literal_block(code, code, language="python"),
            nodes.literal_block(said, said, language="text", classes=["said"]),
        ]
