"""Number the chapters by their order in _toc.yml, wherever a chapter's number stands.

Usage: python -m tools.order

A chapter is its name; its number is only its place. Move the chapter's line in _toc.yml and run
this: files, titles, figures, links, sets, claims, and words such as "chapters 5 to 9" follow, in
prose, in code and in stored outputs. What a person must judge is listed at the end.
"""

from __future__ import annotations

import json
import re
import subprocess
import sys
from collections.abc import Iterator, Mapping
from itertools import groupby, pairwise
from pathlib import Path
from typing import Any

from tools import ROOT

TOC = "_toc.yml"
FORMER = "book/data/former.json"  # the names under which chapters had their pages before
LINE = re.compile(r"^ *- file: book/(\d\d_\w+)$", re.MULTILINE)
LEFT_ALONE = re.compile(rf"{FORMER}|exercises/release/|.*\.(bib|csv|svg|zip)$")

GAP = r"[\s#/\"]+"  # a comment or a string may go on in the next line
BETWEEN = r"(?:,\s+|,?\s+(?:and|or|to|without)\s+|–)"
NUMBER = r"\d{1,2}(?!\w|\s?%|\.\d)"
COUNTED = re.compile(
    rf"(?i)\b(?:(?:chapter|set){GAP}{NUMBER}|(?:chapters|sets){GAP}{NUMBER}(?:{BETWEEN}{NUMBER})*)"
)
FIGURES = re.compile(rf"(?i)\bfigures?{GAP}\d+\.\d+(?:{BETWEEN}\d+\.\d+)*")
FIGURE = re.compile(r"\d+(?=\.\d)")
FIGURE_NAME = re.compile(r"(?<=figure-)\d+(?=-\d)|(?<=\bnumber=\")\d+(?=\.\d+\")")
HEADING = re.compile(r"(##?) (\d+)(?=\. )")
ORDER_WORDS = re.compile(
    r"(?i)\b(?:next|previous|last|first|earlier|later|following|preceding|coming)(?:\s+\w+)?"
    r"\s+chapters?\b|\bchapters?\s+(?:before|after|ahead|so\s+far)\b"
)


class OrderError(ValueError):
    """The lines of the table of contents give no order; the message says why."""


def checkout(root: Path = ROOT) -> list[Path]:
    """Return the files that git keeps, or would keep; raise an error where there is no git."""
    listed = ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"]
    done = subprocess.run(listed, cwd=root, capture_output=True, text=True, check=True)
    paths = (root / name for name in sorted(filter(None, done.stdout.split("\0"))))
    return [path for path in paths if path.is_file()]


def chapters(root: Path = ROOT) -> list[str]:
    """Return the chapters, such as 05_shaw, in the order of their lines."""
    return LINE.findall((root / TOC).read_text(encoding="utf-8"))


def new_names(root: Path) -> dict[str, str]:
    """Return for each chapter its name and the one that its place asks for.

    Raises:
        OrderError: if chapters and lines do not match one to one.
    """
    listed = chapters(root)
    here = {path.stem for path in (root / "book").glob("[0-9][0-9]_*.ipynb")} - {"00_intro"}
    for name in listed:
        if name not in here:
            raise OrderError(f"{TOC} lists book/{name}, but there is no book/{name}.ipynb")
        if sum(other[3:] == name[3:] for other in listed) > 1:
            raise OrderError(f"{TOC} lists {name[3:]!r} more than once")
        if same := [other for other in listed if other[:2] == name[:2] and other != name]:
            raise OrderError(f"{name} and {same[0]} have one number; give one of them another")
    if missing := sorted(here - set(listed)):
        raise OrderError(f"{TOC} has no line for book/{missing[0]}")
    return {name: f"{place:02d}_{name[3:]}" for place, name in enumerate(listed, 1)}


class Renumbering:
    """What each chapter was called and is called now, and texts put from one to the other."""

    def __init__(self, names: Mapping[str, str]) -> None:
        """Take the new name of every chapter, by its old one."""
        self.names = dict(names)
        self.numbers = {int(old[:2]): int(new[:2]) for old, new in names.items()}
        known = f"({'|'.join(names)})"
        self.name = re.compile(rf"(?<![A-Za-z0-9_])(ch)?{known}(?![A-Za-z0-9_])")
        # A number beside its link: [5](05_shaw.ipynb), {doc}`5 <05_shaw>`, or in a table's row.
        self.beside = re.compile(
            rf"(?<=\[)\d+(?=(?:\. [^\]\n]*)?\]\({known}\b)|(?<=`)\d+(?= <{known}>)"
            rf"|(?<=\| )\d+(?= \| \[(?!\d+\])[^\]\n]*\]\({known}\b)"
        )
        self.row = re.compile(
            rf"\s*\"{known}\": |\| \[\d+\. [^\]\n]*\]\({known}\b"
            rf"|\| \d+ \| \[(?!\d+\])[^\]\n]*\]\({known}\b"
        )
        self.link = re.compile(rf"\]\({known}\b")
        before, after = near(sorted(names)), near(sorted(names, key=self.names.__getitem__))
        self.elsewhere = {name for name in names if before[name] != after[name]}

    def path(self, text: str) -> str:
        """Return a path, or another text, with the new names of chapters in it."""
        return self.name.sub(lambda found: (found[1] or "") + self.names[found[2]], text)

    def number(self, found: re.Match[str]) -> str:
        """Return the number that takes the place of an old one."""
        return str(self.numbers.get(int(found[0]), found[0]))

    def text(self, text: str) -> str:
        """Return a text with the new numbers and names."""
        new = COUNTED.sub(lambda found: self.count(found[0]), text)
        new = FIGURES.sub(lambda found: FIGURE.sub(self.number, found[0]), new)
        new = FIGURE_NAME.sub(self.number, new)
        new = self.beside.sub(self.number_beside, new)
        return self.rows(text, self.path(new))

    def number_beside(self, found: re.Match[str]) -> str:
        """Return the number beside a link to a chapter, if it is the chapter's."""
        name = next(filter(None, found.groups()))
        return self.number(found) if int(found[0]) == int(name[:2]) else found[0]

    def spread(self, first: int, last: int) -> list[int]:
        """Return the new numbers of the chapters from one to another."""
        return sorted(self.numbers.get(number, number) for number in range(first, last + 1))

    def count(self, words: str) -> str:
        """Return "chapters 5, 8 and 9", or "chapters 5 to 9", with the new numbers in order.

        A range whose chapters no longer stand together stays as it is: `doubts` names it.
        """
        head, old, between = parsed(words)
        new = [self.numbers.get(number, number) for number in old]
        ranges = [place for place, word in enumerate(between) if is_range(word)]
        for place in ranges:
            spread = self.spread(*old[place : place + 2])
            new[place : place + 2] = ends(spread) or old[place : place + 2]
        if not ranges and old == sorted(old):
            new.sort()
        return (
            head
            + str(new[0])
            + "".join(f"{word}{number}" for word, number in zip(between, new[1:], strict=True))
        )

    def rows(self, before: str, after: str) -> str:
        """Put rows that begin with a chapter, and stood in order, in the new order."""
        found = [self.row.match(line) for line in before.split("\n")]
        keys = [next(filter(None, each.groups())) if each else "" for each in found]
        lines = after.split("\n")
        for begins, group in groupby(range(len(keys)), lambda place: bool(keys[place])):
            places = list(group)
            if begins and all(keys[i] <= keys[j] for i, j in pairwise(places)):
                order = sorted(places, key=lambda place: self.names[keys[place]])
                lines[places[0] : places[-1] + 1] = [lines[place] for place in order]
        return "\n".join(lines)

    def notebook(self, text: str, name: str) -> str:
        """Return a notebook's file with the new numbers in its cells and their outputs.

        Args:
            text: of the file.
            name: of the notebook; headings and sections that begin with a number are a chapter's
                title, or the sections of a page of claims.
        """
        old = json.loads(text)
        notebook = self.within(old)
        level = "##" if name.startswith("claims") else "#" if name in self.names else ""
        for cell in notebook["cells"]:
            first = cell["source"][:1]
            if first and (found := HEADING.match(first[0])) and found[1] == level:
                new = self.numbers.get(int(found[2]), found[2])
                cell["source"] = [f"{level} {new}{first[0][found.end() :]}", *cell["source"][1:]]
        if level == "##":
            notebook["cells"] = in_order(notebook["cells"])
        same = notebook == old
        return text if same else json.dumps(notebook, ensure_ascii=False, indent=1) + "\n"

    def within(self, node: Any) -> Any:
        """Return what JSON holds with the new numbers in its texts; a list of lines is one."""
        if isinstance(node, str):
            return self.text(node)
        if isinstance(node, dict):
            return {
                key: value if key == "image/png" and isinstance(value, str) else self.within(value)
                for key, value in node.items()
            }
        if not isinstance(node, list):
            return node
        if not all(isinstance(line, str) and line.endswith("\n") for line in node[:-1]):
            return [self.within(each) for each in node]
        if not node or not isinstance(node[-1], str):
            return [self.within(each) for each in node]
        old = "".join(node)
        new = self.text(old)
        return node if new == old else new.splitlines(keepends=True)

    def doubts(self, text: str, own: str) -> Iterator[str]:
        """Yield what a person must read: its meaning may hang on the order.

        Args:
            text: as it was.
            own: the chapter that it belongs to, or nothing.
        """
        found = [each for each in COUNTED.finditer(text) if self.unsure(each[0], own)]
        links = list(self.link.finditer(text))
        found += [each for each in links if self.passed(own, int(each[1][:2]))]
        for one, other in pairwise(links):
            together = other.start() - one.end() < 24
            if together and one[1] < other[1] and self.names[one[1]] > self.names[other[1]]:
                found.append(other)
        if own in self.elsewhere:
            found += ORDER_WORDS.finditer(text)
        lines = {text.count("\n", 0, each.start()): each for each in reversed(found)}
        for _, each in sorted(lines.items()):
            yield " ".join(text[max(0, each.start() - 60) : each.end() + 60].split())

    def unsure(self, words: str, own: str) -> bool:
        """Return whether "chapters 5 to 9" may say something else than before."""
        _, numbers, between = parsed(words)
        ranges = [place for place, word in enumerate(between) if is_range(word)]
        torn = any(not ends(self.spread(*numbers[place : place + 2])) for place in ranges)
        return torn or any(self.passed(own, number) for number in numbers)

    def passed(self, own: str, number: int) -> bool:
        """Return whether a chapter stood before another one and stands behind it now, or back."""
        if not own or number not in self.numbers or number == int(own[:2]):
            return False
        return (number < int(own[:2])) != (self.numbers[number] < int(self.names[own][:2]))


def parsed(words: str) -> tuple[str, list[int], list[str]]:
    """Return the first words of "chapters 5, 8 and 9", the numbers, and what is between them."""
    head, rest = re.fullmatch(rf"(\w+{GAP})(.*)", words, re.DOTALL).groups()  # type: ignore[union-attr]
    parts = re.split(f"({BETWEEN})", rest)
    return head, list(map(int, parts[::2])), parts[1::2]


def is_range(between: str) -> bool:
    """Return whether what stands between two numbers means all from one to the other."""
    return between.strip() in ("to", "–")


def ends(spread: list[int]) -> list[int]:
    """Return the first and the last number, or nothing if some between them are missing."""
    whole = spread and spread[-1] - spread[0] == len(spread) - 1
    return [spread[0], spread[-1]] if whole else []


def near(order: list[str]) -> dict[str, list[str]]:
    """Return for each chapter itself and its neighbours."""
    return {name: order[max(place - 1, 0) : place + 2] for place, name in enumerate(order)}


def in_order(cells: list[Any]) -> list[Any]:
    """Return the cells of a page whose sections have chapters' numbers, in the numbers' order.

    Sections without a number stay where they are.
    """
    parts: list[list[Any]] = [[]]
    for cell in cells:
        if "".join(cell["source"]).startswith("## "):
            parts.append([])
        parts[-1].append(cell)
    heads = [HEADING.match("".join(part[0]["source"])) if part else None for part in parts]
    numbered = [place for place, head in enumerate(heads) if head]
    order = sorted(numbered, key=lambda place: int(heads[place][2]))  # type: ignore[index]
    new = dict(zip(numbered, (parts[place] for place in order), strict=True))
    found = [cell for place, part in enumerate(parts) for cell in new.get(place, part)]
    counts = sorted(cell["execution_count"] for cell in cells if cell.get("execution_count"))
    for cell in found:
        if cell.get("execution_count"):
            cell["execution_count"] = counts.pop(0)
            for output in cell["outputs"]:
                if "execution_count" in output:
                    output["execution_count"] = cell["execution_count"]
    return found


def texts(root: Path) -> dict[Path, str]:
    """Return the files in which numbers can stand; what is generated from them is made anew."""
    found = {}
    try:
        paths = checkout(root)
    except (OSError, subprocess.CalledProcessError) as error:
        raise OrderError("git must know which files belong to the project") from error
    for path in paths:
        if not LEFT_ALONE.match(path.relative_to(root).as_posix()):
            try:
                found[path] = path.read_bytes().decode()
            except UnicodeDecodeError:
                continue
    return found


def places_to_read(plan: Renumbering, root: Path, files: Mapping[Path, str]) -> list[str]:
    """Return the places that a person must read, each with its file."""
    found: dict[str, None] = {}
    for path, text in files.items():
        name = path.relative_to(root).as_posix()
        own = plan.name.search(name)
        parts = [text]
        if path.suffix == ".ipynb":
            parts = ["".join(cell["source"]) for cell in json.loads(text)["cells"]]
        for part in parts:
            for said in plan.doubts(part, own[2] if own else ""):
                found[f"{plan.path(name)}: ... {plan.text(said)} ..."] = None
    return list(found)


def rename(plan: Renumbering, root: Path) -> None:
    """Give files and folders their new names; what git ignores goes with its folder."""
    files = [path.relative_to(root) for path in checkout(root)]
    paths = {
        each for path in files for each in (path, *path.parents) if plan.name.search(each.name)
    }
    moves = [(path, path.with_name(plan.path(path.name))) for path in paths]
    for path, new in sorted(moves, key=lambda move: len(move[0].parts), reverse=True):
        if path != new:
            (root / path).rename(root / new)


def require_free(plan: Renumbering, root: Path) -> None:
    """Raise OrderError if a chapter's new name is taken by what was left there."""
    for old, new in plan.names.items():
        for pattern in ("book/{}.ipynb", "exercises/source/{}", "exercises/release/{}"):
            if old != new and (root / pattern.format(new)).exists():
                raise OrderError(f"{pattern.format(new)} is in the way of {old}; remove it")


def remember(plan: Renumbering, root: Path) -> None:
    """Add the names that chapters had to the record, from which old addresses lead on."""
    path = root / FORMER
    known = set(json.loads(path.read_text(encoding="utf-8"))) | set(plan.names)
    kept = sorted(known - set(plan.names.values()))
    path.write_text(json.dumps(kept, indent=1) + "\n", encoding="utf-8")


def renumber(root: Path) -> tuple[dict[str, str], list[str]]:
    """Number the chapters by their order.

    Returns:
        The new name of each chapter that has moved, and the places that a person must read.

    Raises:
        OrderError: if the lines give no order; nothing is written then.
    """
    plan = Renumbering(new_names(root))
    changed = {old: new for old, new in plan.names.items() if old != new}
    if not changed:
        return {}, []
    files = texts(root)
    require_free(plan, root)
    found = places_to_read(plan, root, files)
    new = {
        path: plan.notebook(text, path.stem) if path.suffix == ".ipynb" else plan.text(text)
        for path, text in files.items()
    }
    for path, text in new.items():
        if text != files[path]:
            path.write_bytes(text.encode())
    rename(plan, root)
    remember(plan, root)
    return changed, found


def main() -> int:
    try:
        changed, found = renumber(ROOT)
    except OrderError as error:
        print(f"make order: {error}", file=sys.stderr)
        return 1
    if not changed:
        print("Every chapter has the number of its place in _toc.yml.")
        return 0
    build = [sys.executable, "-m", "exercises.build"]
    subprocess.run(build, cwd=ROOT, check=True, stdout=subprocess.DEVNULL)
    print(*(f"{old} is now {new}" for old, new in changed.items()), sep="\n")
    if found:
        print("\nRead these: what they say may hang on the order.\n", *found, sep="\n")
    print('\nNow `make refresh NB="00_intro claims"`, which list the chapters, and `make test`.')
    return 0


if __name__ == "__main__":
    sys.exit(main())
