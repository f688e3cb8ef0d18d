"""Start a chapter: its notebook, module, tests and exercise set, and its lines in other files.

Usage: python -m tools.new_chapter NAME

The files of tools/template are copied to the same places in the project, with the chapter's number
for NN and its name for `template`. They hold a small method that passes every check; TODO marks
what an author must write. Either everything is made, or nothing. The chapter comes last;
tools/order.py takes it to another place.
"""

from __future__ import annotations

import colorsys
import keyword
import re
import subprocess
import sys
from pathlib import Path

import nbformat

from tools import ROOT, order

TEMPLATE = Path("tools/template")
EXERCISE = re.compile(r'^        name="(\w+)",$', re.MULTILINE)

# Lines for files that are there: the file, the pattern after whose last match they go, the lines.
LINES = (
    (
        "book/00_intro.ipynb",
        r'^    "    \\"\d\d_\w+\\": .*\n',
        '    "    \\"NN_template\\": \\"What if a weight fell as a power of distance?\\",\\n",\n',
    ),
    ("_toc.yml", r"^      - file: book/\d\d_\w+\n", "      - file: book/NN_template\n"),
    (
        "book/methods.md",
        r"^\| .* \|\n",
        "| TITLE | `bias` | {doc}`NN <NN_template>` | {py:mod}`template <pe_lib.template>` "
        "| {cite:t}`chi2022kerple` |\n",
    ),
    (
        "pages/claims.yml",
        r"^  (source|question|url): .*\n",
        "\n- id: template-power\n  chapter: NN_template\n"
        "  claim: With equal contents, TITLE's attention weights fall as a power of the distance.\n"
        '  verdict: "true"\n'
        "  correct: the weight at distance d is proportional to (1 + d)^(-r); each doubling of "
        "1 + d costs the same factor.\n  source: [OWN-NN-1]\n"
        "  question: How does a weight fall with the distance?\n",
    ),
    (
        "pe_lib/__init__.py",
        r"^from pe_lib.*\n",
        "from pe_lib.template import Template as Template\n",
    ),
    ("lab/registry.py", r"^from pe_lib.*\n", "from pe_lib.template import Template\n"),
    (
        "lab/registry.py",
        r"^METHODS: .*\n(    .*\n)*",
        '    "template": Method("TITLE", "#colour", lambda sizes: Template(sizes.n_heads)),\n',
    ),
)


class ChapterError(ValueError):
    """The chapter cannot be made; the message says why."""


def numbered(name: str) -> str:
    """Return a name for a chapter with the number after the last chapter's."""
    if not re.fullmatch(r"[a-z][a-z0-9_]{0,23}", name) or keyword.iskeyword(name):
        form = "a name for Python in lower case, at most 24 characters, such as spiral"
        raise ChapterError(f"NAME must be {form}; got {name!r}")
    chapters = order.chapters(ROOT)
    if same := [each for each in chapters if each[3:] == name]:
        raise ChapterError(f"NAME {name!r} is taken: {same[0]} is a chapter")
    return f"{len(chapters) + 1:02d}_{name}"


def words(name: str) -> dict[str, str]:
    """Return what stands for what in a template, in the order of replacement."""
    number, slug = name.split("_", 1)
    return {
        "#colour": free_colour((ROOT / "lab/registry.py").read_text(encoding="utf-8")),
        "TITLE": slug.replace("_", " ").capitalize(),
        "NN": number,
        "template-": slug.replace("_", "-") + "-",  # ids and labels have hyphens
        "template": slug,
        "Template": "".join(part.capitalize() for part in slug.split("_")),
    }


def fill(text: str, name: str) -> str:
    """Put a chapter's words in place of those of a template."""
    for old, new in words(name).items():
        text = text.replace(old, new)
    return text


def free_colour(registry: str) -> str:
    """Return the dark colour that is farthest from those that methods have."""
    taken = [
        [int(colour[i : i + 2], 16) / 255 for i in (0, 2, 4)]
        for colour in re.findall(r'"#(\w{6})"', registry)
    ]
    choices = [colorsys.hls_to_rgb(step / 72, 0.3, 0.6) for step in range(72)]
    best = max(
        choices,
        key=lambda c: min(
            sum((a - b) ** 2 for a, b in zip(c, other, strict=True)) for other in taken
        ),
    )
    return "#" + "".join(f"{round(255 * channel):02x}" for channel in best)


def new_files(name: str) -> dict[Path, str]:
    """Return the files that a chapter brings, from the template's."""
    folder = ROOT / TEMPLATE
    sources = [
        path for path in sorted(folder.rglob("*")) if path.suffix in (".py", ".ipynb", ".txt")
    ]
    return {
        ROOT / fill(str(path.relative_to(folder)), name): fill(path.read_text("utf-8"), name)
        for path in sources
    }


def changed_files(name: str) -> dict[Path, str]:
    """Return the files that get lines for a chapter, with these lines."""
    found: dict[Path, str] = {}
    for file, pattern, lines in LINES:
        path = ROOT / file
        text = found.get(path) or path.read_text(encoding="utf-8")
        places = [match.end() for match in re.finditer(pattern, text, flags=re.MULTILINE)]
        if not places:
            raise ChapterError(f"{file} has no place for the chapter: nothing matches {pattern!r}")
        found[path] = text[: places[-1]] + fill(lines, name) + text[places[-1] :]
    return found | claims_page(name)


def claims_page(name: str) -> dict[Path, str]:
    """Return the page of claims with a heading and a table for a chapter."""
    path = ROOT / "book/claims.ipynb"
    page = nbformat.read(path, as_version=4)
    title = nbformat.v4.new_markdown_cell(
        fill(f"## {int(name[:2])}. TITLE", name), id=f"{name}-title"
    )
    table = nbformat.v4.new_code_cell(f'claims.table("{name}")', id=f"{name}-claims")
    table["metadata"]["tags"] = ["remove-input"]
    page["cells"] += [title, table]
    return {path: nbformat.writes(page) + "\n"}


def require_free(name: str, made: dict[Path, str]) -> None:
    """Raise if something of another chapter has a name that this one needs."""
    for path in made:
        if path.exists():
            raise ChapterError(f"NAME {name[3:]!r} is taken: {path.relative_to(ROOT)} is there")
    class_name = words(name)["Template"]
    used = [path.read_text("utf-8") for path in (ROOT / TEMPLATE).rglob("*.py")]
    used.append((ROOT / "pe_lib/__init__.py").read_text(encoding="utf-8"))
    if any(re.search(rf"\b{class_name}\b", text) for text in used):
        raise ChapterError(f"NAME {name[3:]!r} is taken: {class_name} means something else already")
    checks = [path.read_text("utf-8") for path in (ROOT / "exercises/checks").glob("ch*.py")]
    exercises = {each for text in checks for each in EXERCISE.findall(text)}
    for exercise in (each for text in made.values() for each in EXERCISE.findall(text)):
        if exercise in exercises:
            raise ChapterError(f"NAME {name[3:]!r} is taken: there is an exercise {exercise}")


def tidy(paths: list[Path]) -> None:
    """Sort imports and break lines anew: a chapter's name is not as long as the template's."""
    for command in (["check", "--quiet", "--fix", "--select=I,RUF022"], ["format", "--quiet"]):
        subprocess.run([sys.executable, "-m", "ruff", *command, *paths], cwd=ROOT, check=True)


def write(files: dict[Path, str]) -> None:
    """Write all files, or leave everything as it was."""
    before = {path: path.read_bytes() if path.exists() else None for path in files}
    folders = {folder for path in files for folder in path.parents if not folder.exists()}
    try:
        for path, text in files.items():
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text, encoding="utf-8")
        tidy([path for path in files if path.suffix in (".py", ".ipynb")])
    except BaseException:
        for path, data in before.items():
            if data is None:
                path.unlink(missing_ok=True)
            else:
                path.write_bytes(data)
        for folder in sorted(filter(Path.exists, folders), reverse=True):  # inner ones first
            folder.rmdir()
        raise


def create(name: str) -> list[Path]:
    """Make a chapter; return its files, the new ones first.

    Raises:
        ChapterError: if the name is none for a chapter, or taken; nothing is written then.
    """
    name = numbered(name)
    made = new_files(name)
    require_free(name, made)
    files = made | changed_files(name)
    write(files)
    return list(files)


def main(arguments: list[str] | None = None) -> int:
    given = sys.argv[1:] if arguments is None else arguments
    try:
        files = create(" ".join(given))
    except ChapterError as error:
        print(f"make new-chapter: {error}", file=sys.stderr)
        return 1
    for path in files:
        print(path.relative_to(ROOT))
    print("\nCONTRIBUTING.md has the next steps; `grep -rn TODO` finds what to write.")
    return 0


if __name__ == "__main__":
    sys.exit(main())
