"""The proofs of the doctor, as a page: planted bugs and what it said, and where it cannot tell."""

from __future__ import annotations

import csv

from posdoctor.bugs import BUGS, COMBINED, DOUBTFUL, Bug, verdicts
from posdoctor.findings import KNOWN
from tools import ROOT

VJEPA = "https://github.com/facebookresearch/vjepa2/pull/15"
PUBLISHED = ROOT / "book/data/doctor_published.csv"


def row(bug: Bug) -> str:
    """Put a planted bug before the doctor, and return its line of the table."""
    found = verdicts(bug)
    named = "named" if bug.verdict in found else "**missed**"
    hint = "" if bug.expect is None else "told what to expect"
    thread = f"[a public case]({bug.thread})" if bug.thread else ""
    later = "yes" if bug.held_out else ""
    words = KNOWN[bug.verdict].says.replace("|", r"\|")
    cells = (bug.name, bug.symptom, named, words, hint, later, thread)
    return f"| {' | '.join(cells)} |"


def doubt(name: str) -> str:
    """Return a line on what cannot be told, with the experiment that would."""
    known = KNOWN[DOUBTFUL[name][1]]
    return f"| {name} | {known.says} | {known.experiment} |"


def published() -> list[dict[str, str]]:
    """Return what the doctor said of published functions; `tests/published.py` writes it."""
    with PUBLISHED.open(encoding="utf-8", newline="") as file:
        return list(csv.DictReader(file))


def false_alarms() -> list[str]:
    """Return the lines on published functions: which were examined, and which could not be."""
    lines = published()
    called = [line for line in lines if line["verdict"] != "not called"]
    accused = [line for line in called if line["verdict"] != "no fault"]
    carriers = {line["library"] + line["function"]: int(line["models"]) for line in called}
    count = sum(carriers.values())  # some are called in two forms
    table = [
        f"| {line['library']} | {line['function']} | {line['models']} | {line['axes']} | "
        f"{line['verdict']} | {line['named as']} |"
        for line in called
    ]
    rest = [f"| {line['function']} | {line['models']} | {line['named as'].replace('|', '/')} |"
            for line in lines if line not in called]  # fmt: skip
    return [
        "## Published code",
        "",
        f"{len(called)} different rotary functions and biases of six libraries were put before the "
        f"doctor; {count} models carry them, as most models of transformers share a text. It "
        f"accused {len(accused)}. Its words on axes count pairs in their order, of those that "
        "rotate. The tests run all of them and hold this table to what the doctor says.",
        "",
        "One function is left out of the table because it is at fault, and its authors know: "
        "`rotate_queries_or_keys` of V-JEPA 2 lays its angles out for halves and swaps neighbours, "
        f"as in [their own code]({VJEPA}). The weights were trained with it, so it has to stay.",
        "",
        ":::{dropdown} Every function, and what the doctor said it is",
        "| library | function | models | axes | verdict | named as |",
        "|---|---|---|---|---|---|",
        *table,
        ":::",
        "",
        ":::{dropdown} Functions that cannot be called so, and why",
        "| function | models | why |",
        "|---|---|---|",
        *rest,
        ":::",
        "",
    ]


def page() -> str:
    """Return the page of the book."""
    combined = [
        f"| {name} | {', '.join(sorted(wanted))} |" for name, (_, _, wanted) in COMBINED.items()
    ]
    later = sum(bug.held_out for bug in BUGS)
    return "\n".join(
        [
            "# What the doctor names, and where it cannot tell",
            "",
            f"The doctor of the clinic is tried on {len(BUGS)} planted bugs, each a few lines that "
            f"people have really written; {later} of them were planted after it had been written. "
            "The tests hand it every one, and every correct rotary function of published "
            "libraries that they can call, in which it must find no fault.",
            "",
            "| planted | its owner sees | verdict | the doctor's words | hint | later | thread |",
            "|---|---|---|---|---|---|---|",
            *map(row, BUGS),
            "",
            *false_alarms(),
            "## Two at once",
            "",
            "| planted together | what was named |",
            "|---|---|",
            *combined,
            "",
            "## Where it cannot tell",
            "",
            "Two causes may give the same tensors. Then it says so, and names an experiment.",
            "",
            "| one, or the other | what it says | what would tell |",
            "|---|---|---|",
            *map(doubt, DOUBTFUL),
            "",
        ]
    )
