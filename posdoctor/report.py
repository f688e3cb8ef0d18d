"""The report: words and plain values."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Any

from posdoctor.findings import FAULT, UNSURE, Finding
from posdoctor.profile import Case, Profile


@dataclass
class Report:
    """What the doctor found.

    Attributes:
        subject: what was examined, in words.
        case: facts, findings, what was not examined, curves.
        profile: what was measured, for comparisons; None where the examination broke off.
        parts: reports on the parts of something that has several.
        untold: the doctor was not told what it should be, and that would tell more.
    """

    subject: str
    case: Case
    profile: Profile | None = None
    parts: dict[str, Report] = field(default_factory=dict)
    untold: bool = False

    @property
    def findings(self) -> list[Finding]:
        """All findings, those of the parts too."""
        parts = [finding for part in self.parts.values() for finding in part.findings]
        return self.case.findings + parts

    @property
    def faults(self) -> list[Finding]:
        """The findings that are faults, whatever was meant."""
        return [finding for finding in self.findings if finding.level == FAULT]

    @property
    def healthy(self) -> bool:
        """Whether there is no fault."""
        return not self.faults

    def names(self, level: str | None = None) -> list[str]:
        """Return the names of the findings, of one level or of all."""
        return [each.name for each in self.findings if level in (None, each.level)]

    def __str__(self) -> str:
        """Return the report in words: what was measured, what differs, what was not examined."""
        lines = [f"{self.subject}: {self.verdict}"]
        for title, entries in (
            ("Measured", [f"{topic}: {words}" for topic, words in self.case.facts.items()]),
            ("Differs", list(map(str, told_once(self.case.findings)))),
            ("Not examined", self.case.unexamined),
        ):
            lines += [f"  {title}:"] if entries else []
            lines += [f"    {line}" for entry in entries for line in entry.split("\n")]
        for part in self.parts.values():
            lines += [f"  {line}" for line in str(part).split("\n")]
        return "\n".join(lines)

    @property
    def verdict(self) -> str:
        """How many faults and doubts there are, in words; none is no proof."""
        found = told_once(self.findings)
        counts = {
            word: sum(each.level == level for each in found)
            for level, word in ((FAULT, "fault"), (UNSURE, "doubt"))
        }
        words = [f"{count} {word}{'s' * (count > 1)}" for word, count in counts.items() if count]
        if self.healthy:
            words = words or ["no fault in what was measured"]
            words += ["with expect it is held to your model"] * self.untold
        return "; ".join(words)

    def as_dict(self) -> dict[str, Any]:
        """Return the report as plain values."""
        found = {
            "subject": self.subject,
            "healthy": self.healthy,
            "facts": dict(self.case.facts),
            "findings": [finding.as_dict() for finding in self.case.findings],
            "not_examined": list(self.case.unexamined),
        }
        if self.parts:
            found["parts"] = {name: part.as_dict() for name, part in self.parts.items()}
        return found


def told_once(findings: list[Finding]) -> list[Finding]:
    """Join findings that queries and keys share, word by word."""
    joined: dict[tuple[str, str, str], Finding] = {}
    for each in findings:
        key = each.name, each.level, each.detail
        where = f"{joined[key].where} and {each.where}" if key in joined else each.where
        joined[key] = replace(each, where=where)
    return list(joined.values())
