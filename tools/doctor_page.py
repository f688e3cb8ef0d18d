"""The proofs of the doctor, as a page: planted bugs and what it said, and where it cannot tell.

Nothing is examined here. Tables keep what the doctor said, and tests hold them to what it says: of
planted bugs (`python tests/planted.py` writes them), of faults from public threads
(`python tests/thread_trial.py`) and of published functions (`python tests/published.py`).
"""

from __future__ import annotations

import csv
import re
from collections import Counter
from pathlib import Path

from pe_course import census
from posdoctor.factory import published_files
from posdoctor.findings import KNOWN
from tools import ROOT, folded

VJEPA = "https://github.com/facebookresearch/vjepa2/pull/15"
BUGS = ROOT / "pe_course/data/doctor_bugs.csv"
PUBLISHED = ROOT / "pe_course/data/doctor_published.csv"
TRIAL, FIRST = (ROOT / f"tests/thread_trial{part}.csv" for part in ("", "_first"))
WITNESSES = ROOT / "book/data/second_witness.csv"
TOLD = ("model", "engine", "layout", "base", "part", "rule", "note")


def bug(line: dict[str, str]) -> str:
    """Return the row of a planted bug."""
    verdict = line["verdict"]
    named = "named" if verdict in line["findings"].split("; ") else "**missed**"
    known = KNOWN[verdict]
    thread = f"[a public case]({known.thread})" if known.thread else ""
    hint = "told what to expect" if line["told"] else ""
    words = known.says.replace("|", r"\|")
    cells = (line["planted"], line["symptom"], named, words, hint, line["later"], thread)
    return f"| {' | '.join(cells)} |"


def doubt(line: dict[str, str]) -> str:
    """Return a line on what cannot be told, with the experiment that would."""
    known = KNOWN[line["findings"]]
    return f"| {line['planted']} | {known.says} | {known.experiment} |"


def read(path: Path) -> list[dict[str, str]]:
    """Return the lines of a table."""
    with path.open(encoding="utf-8", newline="") as file:
        return list(csv.DictReader(file))


def witnesses() -> list[str]:
    """Return the lines on what two engines do with the types that transformers has."""
    lines, seen = read(WITNESSES), {row["model"]: row for row in census.read()}
    engines = list(dict.fromkeys(line["engine"] for line in lines))
    by_model: dict[str, dict[str, dict[str, str]]] = {}
    for line in lines:
        by_model.setdefault(line["model"], {})[line["engine"]] = line
    files = {each["config"]["model_type"] for each in published_files()}
    well_known = len(files & set(by_model))
    table = []
    for model, both in by_model.items():
        row = [seen[model][key].replace(" | ", ", ") or "all" for key in ("layout", "base", "part")]
        told = (f"{both[name]['verdict']} `{both[name]['where']}`" for name in engines)
        table.append(f"| {model} | {' | '.join(row)} | {' | '.join(told).replace(' ``', '')} |")
    odd = [line for line in lines if line["verdict"] in ("disagree", "permuted on loading")]
    taken = [
        "| type | engine | layout | base | part | rule | note |",
        "|---|---|---|---|---|---|---|",
        *(f"| {' | '.join(line[key] for key in TOLD)} |" for line in lines if line["where"]),
    ]
    return [
        "## A second witness",
        "",
        "Equal to the code of transformers is not yet right: that code may disagree with the "
        f"weights that it is for. Two inference engines have code of their own, {engines[0]} and "
        f"{engines[1]}. Both were read by hand, with what a class inherits and what loading "
        f"changes, for {well_known} types that the [well-known files](configs.md) name, and for "
        f"{len(by_model) - well_known} more in which a first reading saw differences. Compared "
        "are layout, base, part and rule for text, as published files have them; the first three "
        "columns are the [census](census.md)'s.",
        "",
        f"| type | layout | base | part | {' | '.join(engines)} |",
        "|---|---|---|---|---|---|",
        *table,
        "",
        "What follows has been read and, but for one line that says so, not run. Whoever is "
        "right where two disagree is an open question here.",
        "",
        *(f"- **{x['model']}**, {x['engine']}, {x['verdict']}: {x['note']}." for x in odd),
        "",
        folded("What each engine takes from where", "\n".join(taken)),
        "",
    ]


def false_alarms() -> list[str]:
    """Return the lines on published functions: which were examined, and which could not be."""
    lines = read(PUBLISHED)
    called = [line for line in lines if line["verdict"] != "not called"]
    accused = [line for line in called if line["verdict"] != "no fault"]
    carriers = {line["library"] + line["function"]: int(line["models"]) for line in called}
    count = sum(carriers.values())  # some are called in two forms
    table = [
        "| library | function | models | axes | verdict | named as |",
        "|---|---|---|---|---|---|",
        *(
            f"| {line['library']} | {line['function']} | {line['models']} | {line['axes']} | "
            f"{line['verdict']} | {line['named as']} |"
            for line in called
        ),
    ]
    rest = [
        "| function | models | why |",
        "|---|---|---|",
        *(
            f"| {line['function']} | {line['models']} | {line['named as'].replace('|', '/')} |"
            for line in lines
            if line not in called
        ),
    ]
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
        folded("Every function, and what the doctor said it is", "\n".join(table)),
        "",
        folded("Functions that cannot be called so, and why", "\n".join(rest)),
        "",
    ]


def outcome(line: dict[str, str], of: str = "faulty") -> tuple[str, str]:
    """Return in a word what came out for a fault or its twin, and what the doctor said.

    A doubt about a fault counts only where the twin does not have it too.
    """
    ways = ("held", "alone")
    faults = [words for way in ways if (words := line[f"{of} {way}"])]
    named = [words for words in faults if not words.startswith("refused")]
    doubts = [words for way in ways if (words := line[f"{of} {way}, doubts"])
              and (of == "twin" or words != line[f"twin {way}, doubts"])]  # fmt: skip
    if named:
        return "named", named[0]
    if doubts:
        return "doubt", f"doubt: {doubts[0]}"
    return ("refused", "refused") if faults else ("nothing", "nothing")


def escaped(words: str) -> str:
    """Return words for a cell of a table, in which nothing is markup."""
    return re.sub(r"([*|$<\[\]])", r"\\\1", words)


def trial() -> list[str]:
    """Return the lines on faults that were written from threads before the doctor saw them."""
    first, now = read(FIRST), read(TRIAL)
    counts = [Counter(outcome(line)[0] for line in lines) for lines in (first, now)]
    accused = [sum(outcome(line, "twin")[0] == "named" for line in lines) for lines in (first, now)]
    table = [
        "| part | what was wrong | first run | now | its twin |",
        "|---|---|---|---|---|",
        *(
            f"| {line['part']} | {escaped(line['what'])} ([thread]({line['thread']})) | "
            f"{outcome(old)[1]} | {outcome(line)[1]} | {outcome(line, 'twin')[1]} |"
            for old, line in zip(first, now, strict=True)
        ),
    ]
    return [
        "## Sixty faults that it had not seen",
        "",
        f"{len(now)} faults, each with a corrected twin, were written from public threads without "
        "a look at the doctor's code, and they were stored before its first run. Each was examined "
        "alone, and held to its configuration or, where no configuration tells it, to its twin. In "
        f"the first run the doctor named {counts[0]['named']} faults, refused to examine "
        f"{counts[0]['refused']} and said nothing of {counts[0]['nothing']}; it accused "
        f"{accused[0]} twins. Then general faults of the doctor were mended. Now it names "
        f"{counts[1]['named']}, doubts {counts[1]['doubt']}, refuses {counts[1]['refused']} and "
        f"says nothing of {counts[1]['nothing']}; it accuses {accused[1]} twins. A refusal may be "
        "right: some files are refused because of the very field that is wrong. Most of those of "
        "which it says nothing are files that would be right for another model.",
        "",
        folded("Every fault, and what the doctor said", "\n".join(table)),
        "",
    ]


def page() -> str:
    """Return the page of the book."""
    lines = read(BUGS)
    one, two, doubtful = (
        [x for x in lines if x["kind"] == kind] for kind in ("one", "two", "doubt")
    )
    later = sum(line["later"] == "yes" for line in one)
    return "\n".join(
        [
            "# What the doctor names, and where it cannot tell",
            "",
            f"The doctor of the clinic is tried on {len(one)} planted bugs, each a few lines that "
            f"people have really written; {later} of them were planted after it had been written. "
            "The tests hand it every one, and every correct rotary function of published "
            "libraries that they can call, in which it must find no fault.",
            "",
            "| planted | its owner sees | verdict | the doctor's words | hint | later | thread |",
            "|---|---|---|---|---|---|---|",
            *map(bug, one),
            "",
            *trial(),
            *false_alarms(),
            *witnesses(),
            "## Two at once",
            "",
            "| planted together | what was named |",
            "|---|---|",
            *(f"| {line['planted']} | {line['findings'].replace(';', ',')} |" for line in two),
            "",
            "## Where it cannot tell",
            "",
            "Two causes may give the same tensors. Then it says so, and names an experiment.",
            "",
            "| one, or the other | what it says | what would tell |",
            "|---|---|---|",
            *map(doubt, doubtful),
            "",
        ]
    )
