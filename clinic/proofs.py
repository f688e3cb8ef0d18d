"""The proofs of the doctor, as a page: planted bugs and what it said, and where it cannot tell."""

from __future__ import annotations

from clinic.bugs import BUGS, COMBINED, DOUBTFUL, Bug, verdicts
from clinic.findings import KNOWN


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
            "The tests hand it every one, and every correct rotary function of the published "
            "libraries that they can call, in which it must find no fault.",
            "",
            "| planted | its owner sees | verdict | the doctor's words | hint | later | thread |",
            "|---|---|---|---|---|---|---|",
            *map(row, BUGS),
            "",
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
