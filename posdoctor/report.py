"""The report: words and plain values."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Any

from posdoctor.findings import FAULT, Finding
from posdoctor.profile import Case, Profile

UNTOLD = "sound as far as tried; whether it is your model's, say with expect"


@dataclass
class Report:
    """What the doctor found.

    Attributes:
        subject: what was examined, in words.
        case: facts, findings, what was not examined, curves.
        profile: what was measured, for comparisons; None where the examination broke off.
        parts: reports on the parts of something that has several.
        told: whether the doctor was told what it should be, or nobody could tell more.
    """

    subject: str
    case: Case
    profile: Profile | None = None
    parts: dict[str, Report] = field(default_factory=dict)
    told: bool = True

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
        """Return the report in words."""
        verdict = "no fault found" if self.told else UNTOLD
        verdict = verdict if self.healthy else f"{len(self.faults)} fault(s)"
        lines = [f"{self.subject}: {verdict}"]
        lines += [f"  {topic}: {words}" for topic, words in self.case.facts.items()]
        lines += [f"  {line}" for each in told_once(self.case.findings)
                  for line in str(each).split("\n")]  # fmt: skip
        lines += ["  Not examined:"] * bool(self.case.unexamined)
        lines += [f"  - {what}" for what in self.case.unexamined]
        for part in self.parts.values():
            lines += [f"  {line}" for line in str(part).split("\n")]
        return "\n".join(lines)

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
