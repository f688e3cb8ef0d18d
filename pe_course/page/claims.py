"""The claims that the course tests, each with a verdict and a cell that measures it."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache
from importlib.resources import files
from importlib.resources.abc import Traversable

import yaml

from pe_course.page.sentences import filled

LEDGER = files(__package__) / "claims.yml"
# What a cell must find for each verdict: the statement as worded holds, fails, or is no
# statement that a measurement can decide.
VERDICTS = {
    "true": True,
    "true with conditions": True,
    "imprecise": False,
    "false": False,
    "opinion": None,
    "unsupported": None,
}


@dataclass(frozen=True)
class Claim:
    """One statement about position encodings, in the course's words, put to the test."""

    id: str
    chapter: str
    claim: str
    verdict: str
    correct: str  # may quote sentences of the comparison, as pe_course.page.sentences says
    source: tuple[str, ...]
    page: str = ""  # where its cell stands, if that is not the chapter
    question: str = ""  # what a chapter asks where it shows the claim
    after: str = ""  # who says so in public, and where
    url: str = ""


def read(path: Traversable) -> dict[str, Claim]:
    """Read the claims of a file, by id.

    Raises:
        ValueError: if an id stands twice or a verdict is unknown.
    """
    claims: dict[str, Claim] = {}
    for entry in yaml.safe_load(path.read_text(encoding="utf-8")):
        claim = Claim(**{**entry, "source": tuple(entry["source"])})
        if claim.id in claims:
            raise ValueError(f"{path.name}: the id {claim.id!r} stands twice")
        if claim.verdict not in VERDICTS:
            raise ValueError(
                f"{path.name}: verdict of {claim.id!r} must be one of "
                f"{', '.join(VERDICTS)}; got {claim.verdict!r}"
            )
        claims[claim.id] = claim
    return claims


@cache
def load() -> dict[str, Claim]:
    """Return the course's claims, by id."""
    return read(LEDGER)


def find(claim_id: str) -> Claim:
    """Return the claim with this id, or raise a KeyError that says where ids stand."""
    if claim_id not in load():
        raise KeyError(f"no claim {claim_id!r} in {LEDGER.name}; add it there, or mend the id")
    return load()[claim_id]


def show(claim_id: str, *, holds: bool | None, measured: str) -> None:
    """Print a claim, its verdict and what was measured, once the cell agrees with the verdict.

    Args:
        claim_id: an id of pe_course/page/claims.yml.
        holds: what this cell found: True or False, or None for what no measurement decides.
        measured: the finding, in words and numbers from the run.

    Raises:
        KeyError: if there is no such claim.
        AssertionError: if the finding contradicts the verdict.
    """
    from IPython.display import Markdown, display

    claim = find(claim_id)
    found = None if holds is None else bool(holds)  # a NumPy bool is not True itself
    if found is not VERDICTS[claim.verdict]:
        raise AssertionError(
            f"claim {claim_id!r} has the verdict {claim.verdict!r}, but the cell found "
            f"holds={holds}: {measured}"
        )
    words = f"> {heading(claim)}\n>\n> **Measured:** {measured}\n>\n> **So:** {said(claim)}"
    display(Markdown(words))  # type: ignore[no-untyped-call]


def said(claim: Claim) -> str:
    """Return what holds, with the sentences that it quotes."""
    return filled(claim.correct) if "{said}" in claim.correct else claim.correct


def heading(claim: Claim) -> str:
    """Return a box's first line: the question and the source where there are any, the claim."""
    asked = f"**{claim.question}** " if claim.question else ""
    after = f" (After [{claim.after}]({claim.url}).)" if claim.url else ""
    return f"{asked}**Claim, {claim.verdict}:** {claim.claim}{after}"


def link(claim: Claim) -> str:
    """Return the address of the cell that tests a claim."""
    return f"{claim.page or claim.chapter}.ipynb#claim-{claim.id}"


def table(chapter: str) -> None:
    """Show the claims of a chapter with their verdicts, each linked to the cell that tests it."""
    from pe_course.page import table as show_table

    rows = [
        [f"[{claim.claim}]({link(claim)})", f"**{claim.verdict}**", said(claim)]
        for claim in load().values()
        if claim.chapter == chapter
    ]
    show_table(["claim", "verdict", "what holds"], rows)
