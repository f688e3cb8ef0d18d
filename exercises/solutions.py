"""Write the model solutions of each set as one page, which an instructor gives out after the date.

    python -m exercises.solutions            writes _build/solutions/NAME.html

A page needs no network: its formulas are MathML. The site, the zips and the releases have none of
this.
"""

from __future__ import annotations

import functools
import json
import re
from html import escape

import yaml
from nbconvert.filters import markdown2html

from exercises.checks import EXERCISES
from exercises.feedback import coloured, typeset
from exercises.sets import (
    HERE,
    SOURCE,
    load,
    nbgrader_metadata,
    set_names,
    source_path,
    source_text,
)
from exercises.summary import STYLE

FOLDER = HERE.parent / "_build" / "solutions"
MARK = re.compile(r" *### (?:BEGIN|END) SOLUTION\n?")
UNTOUCHED = re.compile(r"unchanged$|nothing is (mended|brought)")  # the listing, as it was given
COLOURS = (
    "pre{overflow-x:auto;border:1px solid #888;padding:.5rem}"
    ".anchor-link{display:none}.k{font-weight:bold}.c1{font-style:italic;opacity:.8}"
)


@functools.cache
def whys() -> dict[str, str]:
    """Return, for each exercise, why its model answer works, as Markdown."""
    found: dict[str, str] = yaml.safe_load((SOURCE / "why.yml").read_text(encoding="utf-8"))
    return found


def commonest_mistakes(name: str) -> list[str]:
    """Return what the check of an exercise says to the two likeliest mistakes."""
    said = dict.fromkeys(mistake.message for mistake in EXERCISES[name].mistakes)
    return [message for message in said if not UNTOUCHED.search(message)][:2]


def page(name: str) -> str:
    """Return the model solutions of a set as HTML."""
    cells = json.loads(source_path(name).read_text(encoding="utf-8"))["cells"]
    text = {nbgrader_metadata(cell)["grade_id"]: source_text(cell) for cell in cells}

    def prose(*paragraphs: str) -> str:
        return str(markdown2html(typeset("\n\n".join(paragraphs))))

    def heading(exercise: str) -> str:
        return text[f"ask_{exercise}"].splitlines()[0]

    def answer(cell: str) -> str:
        return coloured(MARK.sub("", text[cell]).rstrip())

    title = f"{load(name).title}: model solutions"
    parts = [prose(f"# {title}")]
    for question in load(name).questions:
        mistakes = "\n".join(f"- {message}" for message in commonest_mistakes(question.name))
        parts += [
            prose(heading(question.name)),
            answer(question.solution_id),
            prose(
                f"**Why.** {whys()[question.name]}",
                "**The two commonest mistakes**, in the words of the check:",
                mistakes,
            ),
        ]
    parts += [prose(heading("open")), answer("open_work"), prose(text["open_answer"])]
    return (
        '<!DOCTYPE html><html lang="en"><head><meta charset="utf-8">'
        f'<meta name="viewport" content="width=device-width"><title>{escape(title)}</title>'
        f"<style>{STYLE}{COLOURS}</style></head><body>{''.join(parts)}</body></html>\n"
    )


def main() -> None:
    """Write the pages of all sets."""
    FOLDER.mkdir(parents=True, exist_ok=True)
    for name in set_names():
        (FOLDER / f"{name}.html").write_text(page(name), encoding="utf-8")
    print(f"The model solutions of {len(set_names())} sets are in {FOLDER}")


if __name__ == "__main__":
    main()
