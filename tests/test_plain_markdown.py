"""Notebooks are plain Markdown, which GitHub, Colab, VS Code and JupyterLab read as the site does.

Looked at are Markdown cells, the Markdown that cells have put out, and the strings of their code.
"""

from __future__ import annotations

import ast
import functools
import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import nbformat
import pytest
from mdit_py_plugins.anchors.index import slugify
from nbformat.v4 import new_code_cell, new_markdown_cell, new_notebook, new_output

from pe_course.page.figures import figure_anchor
from tools import ROOT, outline

BOOK = ROOT / "book"
NOTEBOOKS = [
    *sorted(BOOK.glob("*.ipynb")),
    *sorted((ROOT / "exercises").glob("*/*/*.ipynb")),
    *sorted((ROOT / "exercises/projects").glob("*.ipynb")),
]
PAGES = [*BOOK.glob("*.ipynb"), *BOOK.glob("*.md")]
READ = [BOOK / f"{name}.md" for name in ("beliefs", "instructors", "teaching", "run")]

# What only one program reads, each with a line that has it.
ONLY_HERE = {
    "a directive": (r"(?m)^ *(`{3,}|:{3,}|~{3,})\{", "```{note}"),
    "a fence of colons": (r"(?m)^ *:{3,}", ":::{tip} Words"),
    "a role": (r"(?<![`{])\{[a-z][\w:]*\}`[^`]", "{cite:t}`Su-et-al-2024`"),
    "a target": (r"(?m)^\([\w-]+\)=\s*$", "(the-wish)="),
    "a formula with a label": (r"\$\$ *\([\w-]+\) *$", "$$ (eq-wish)"),
    "attributes": (r"(?m)\{[#.][\w-]+[^}\n]*\} *$", "{.wide}"),
    "a comment of MyST": (r"(?m)^% ", "% right: A"),
    "a substitution": (r"\{\{[^{}]*\}\}", "{{ site }}"),
    "an alert of GitHub": (r"(?m)^> \[!\w+\]", "> [!NOTE]"),
}
FORMS = {
    "a formula that shares a line": r"(?m)^.*\$\$.*[^$\s].*$|^.*[^$\s].*\$\$.*$",
    "a fold without blank lines": (
        r"(?m)^(?!<details>$).*<details>.*$|^<details>\n(?!<summary>[^$`*\n]+</summary>\n\n)"
        r"|[^\n]\n</details>$|^</details>\n[^\n]"
    ),
    "a letter behind a formula": r"(?m)^[^$\n]*(?:\$[^$\n]+\$[^$\w\n][^$\n]*)*\$[^$\n]+\$\w",
    "an anchor beside words": r'(?m)^.+<a id=|<a id="[^"]*">(?!</a>(\n\n|\n*\Z))',
}
LINK = re.compile(r"\]\((?P<page>[\w./-]*)#(?P<place>[^)\s?]+)[^)\s]*\)")
NUMBERED = re.compile(r"(?<![\w$\\])\(([\dH]+\.\d+)\)")
TAG = re.compile(r"\\tag\{([\dH]+\.\d+)\}")


def without_code(text: str) -> str:
    """Return Markdown without what is shown as code."""
    text = re.sub(
        r"(?ms)^( *)(```+)([^\n]*)\n.*?^\1\2$",
        lambda fence: fence[0] if fence[3].startswith("{") else "",
        text,
    )
    return re.sub(r"``[^`]+``|(?<!\})`[^`\n]+`", "`code`", text)


def strings(source: str) -> Iterator[str]:
    """Yield the texts that a cell's code writes down, with `{}` where it computes."""
    for node in ast.walk(outline.parsed(source)):
        if isinstance(node, ast.JoinedStr):
            parts = (part.value if isinstance(part, ast.Constant) else "0" for part in node.values)
            yield "".join(map(str, parts))
        elif isinstance(node, ast.Constant) and isinstance(node.value, str):
            yield node.value


@functools.cache
def cells(path: Path) -> list[dict[str, Any]]:
    if path.suffix == ".md":
        return [{"cell_type": "markdown", "source": path.read_text(encoding="utf-8")}]
    return json.loads(path.read_text(encoding="utf-8"))["cells"]  # type: ignore[no-any-return]


def prose(path: Path) -> Iterator[str]:
    """Yield the Markdown of a page: of its cells, and what they have put out."""
    for cell in cells(path):
        if cell["cell_type"] == "markdown":
            yield without_code("".join(cell["source"]))
        for output in cell.get("outputs", []):
            yield "".join(output.get("data", {}).get("text/markdown", ""))


def texts(path: Path) -> Iterator[str]:
    """Yield all that may become a page's Markdown."""
    yield from prose(path)
    for cell in cells(path):
        if cell["cell_type"] == "code":
            yield from strings("".join(cell["source"]))


def found(patterns: dict[str, str], text: str) -> list[str]:
    """Return the name of each pattern that a text has, with where."""
    return [
        f"{name}: {match[0][:60]!r}"
        for name, pattern in patterns.items()
        if (match := re.search(pattern, text))
    ]


@functools.cache
def places(path: Path) -> set[str]:
    """Return what a link may lead to in a page: headings, anchors, figures, formulas."""
    whole = "\n\n".join(prose(path))
    headings = re.findall(r"(?m)^#{1,4} (.*)$", whole)
    titles = (re.sub(r"\$[^$]*\$|\]\([^)]*\)|[`*\[]", "", title) for title in headings)
    known = set(map(slugify, titles)) | set(re.findall(r'<a id="([\w-]+)"></a>', whole))
    known |= {f"equation-{number.replace('.', '-').lower()}" for number in TAG.findall(whole)}
    if path.suffix == ".ipynb":
        known |= {figure_anchor(number) for number in outline.outline(path).numbers if number}
    return known


def dead_links(text: str, path: Path) -> list[str]:
    """Return the links to places that are not there."""
    dead = []
    for link in LINK.finditer(text):
        page = path.parent / link["page"] if link["page"] else path
        if not page.exists() or (page in PAGES and link["place"] not in places(page)):
            dead.append(link[0])
    return dead


def lost_numbers(text: str, path: Path) -> list[str]:
    """Return the numbers of formulas of a page's own chapter that no formula has."""
    tags = set(TAG.findall("\n\n".join(prose(path))))
    chapter = {number.partition(".")[0] for number in tags}
    named = NUMBERED.findall(re.sub(r"\$[^$]*\$", "", text))
    return [each for each in named if each.partition(".")[0] in chapter and each not in tags]


every_notebook = pytest.mark.parametrize(
    "path", [*NOTEBOOKS, *READ], ids=lambda path: "/".join(path.parts[-2:])
)
every_page = pytest.mark.parametrize("path", PAGES, ids=lambda path: path.name)


@every_notebook
def test_nothing_is_written_that_only_our_build_reads(path: Path) -> None:
    only_here = {name: pattern for name, (pattern, _) in ONLY_HERE.items()}
    assert [each for text in texts(path) for each in found(only_here, text)] == []


@every_notebook
def test_formulas_folds_and_anchors_have_the_forms_that_all_read(path: Path) -> None:
    for text in prose(path):
        assert found(FORMS, text) == []
        assert text.count("<details>") == text.count("</details>")


@every_page
def test_links_lead_to_places_that_are_there(path: Path) -> None:
    assert [link for text in texts(path) for link in dead_links(text, path)] == []


@every_page
def test_the_number_of_a_formula_is_one_that_a_formula_has(path: Path) -> None:
    tags = [number for text in prose(path) for number in TAG.findall(text)]
    chapter = "H" if path.stem == "hierarchical" else path.stem[:2].lstrip("0")
    assert tags == [f"{chapter}.{place}" for place in range(1, len(tags) + 1)]
    assert [each for text in texts(path) for each in lost_numbers(text, path)] == []


@pytest.mark.parametrize(("pattern", "line"), ONLY_HERE.values(), ids=list(ONLY_HERE))
def test_what_only_our_build_reads_is_seen(pattern: str, line: str) -> None:
    assert re.search(pattern, f"Words.\n\n{line}\n")


@pytest.mark.parametrize(
    "cell",
    [
        new_markdown_cell("By {cite:t}`Su-et-al-2024`."),
        new_code_cell('say("By {cite:t}`Su-et-al-2024`.")'),
        new_code_cell('say(f"{{cite:t}}`{key}`")'),
        new_code_cell("", outputs=[new_output("display_data", {"text/markdown": "{eq}`wish`"})]),
    ],
    ids=["a cell", "a string", "a string that computes", "an output"],
)
def test_it_is_seen_wherever_it_stands(cell: Any, tmp_path: Path) -> None:
    nbformat.write(new_notebook(cells=[cell]), tmp_path / "page.ipynb")
    role = {"a role": ONLY_HERE["a role"][0]}
    assert [each for text in texts(tmp_path / "page.ipynb") for each in found(role, text)]


@pytest.mark.parametrize(
    "text",
    [
        "Words $$x$$ here.",
        "$$x\n$$",
        "Some `code`.\n\nIt has $a$, and `more` and two $b$s.",
        "<details>\n<summary>Hint</summary>\nwords\n\n</details>",
        "<details>\n<summary>Hint</summary>\n\nwords\n</details>",
        "<details>\n<summary>Hint</summary>\n\nwords\n\n</details>\nwords",
        "<details>\n<summary>What is $p$?</summary>\n\nwords\n\n</details>",
        "- <details>\n",
        '<a id="x"></a>"Words',
        '<a id="x"></a>\nWords',
    ],
)
def test_another_form_is_seen(text: str) -> None:
    assert found(FORMS, text)


@pytest.mark.parametrize(
    "link",
    [
        "[gone](20_gone.ipynb#summary)",
        "[gone](10_rope.ipynb#gone)",
        "[of another page](#which-maps-grant-the-wish)",
        "[no exercise](10_rope.ipynb#exercise-109-gone)",
        "[no figure](#figure-9-99?n=1)",
        "[no formula](10_rope.ipynb#equation-10-99)",
        "[no claim](claims_relative.ipynb#claim-gone)",
    ],
)
def test_a_dead_link_is_seen(link: str) -> None:
    assert dead_links(link, BOOK / "09_alibi.ipynb") == [link[link.index("](") :]]


def test_the_number_of_no_formula_is_seen() -> None:
    assert lost_numbers("by (10.1) and (10.99), 0.5 (9.5)", BOOK / "10_rope.ipynb") == ["10.99"]


def test_the_site_numbers_formulas_and_links_to_them(site: Path) -> None:
    page = (site / "book/10_rope.html").read_text(encoding="utf-8")
    assert '<span class="eqno">(10.1)<a' in page and "\\tag" not in page
    assert page.count('href="#equation-10-1">(10.1)</a>') > 1


def test_the_site_folds_every_solution_with_its_code(site: Path) -> None:
    page = (site / "book/10_rope.html").read_text(encoding="utf-8")
    folds = re.findall(r'<details class="solution">(.*?)</details></section>', page, re.DOTALL)
    titles = [re.match(r"<summary><h3>Solution (10\.\d):", fold) for fold in folds]
    assert [title and title[1] for title in titles] == [f"10.{n}" for n in range(6)]
    assert '<div class="highlight-python' in folds[4]  # of the way back
