"""What the doctor says: a finding, how sure it is, and what else it could be."""

from __future__ import annotations

import tomllib
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

FAULT, UNSURE, NOTE = "fault", "cannot tell", "note"


@dataclass(frozen=True)
class Known:
    """What is known of a kind of finding.

    Attributes:
        says: the finding in a sentence.
        thread: address of a public report of the nearest known bug; empty if we know none.
        instead: what else would give the same tensors.
        experiment: what would tell them apart.
    """

    says: str
    thread: str = ""
    instead: Sequence[str] = ()
    experiment: str = ""


@dataclass(frozen=True)
class Finding:
    """One thing that was found.

    Attributes:
        name: a key of `KNOWN`.
        level: "fault", "cannot tell" (it may be meant) or "note" (legal, but matters in a port).
        detail: the numbers of this case.
        where: "queries", "keys" or "" for both.
    """

    name: str
    level: str
    detail: str = ""
    where: str = ""

    @property
    def known(self) -> Known:
        """Return what is known of this kind."""
        return KNOWN[self.name]

    def __str__(self) -> str:
        """Return the finding in words."""
        side = f" ({self.where})" if self.where else ""
        lines = [f"{self.level.upper()}: {self.name}{side}. {self.known.says}"]
        lines += [f"  Measured: {self.detail}."] if self.detail else []
        lines += [f"  It could also be: {other}." for other in self.known.instead]
        lines += [f"  To tell: {self.known.experiment}."] if self.known.experiment else []
        lines += [f"  A known case: {self.known.thread}"] if self.known.thread else []
        return "\n".join(lines)

    def as_dict(self) -> dict[str, Any]:
        """Return the finding as plain values."""
        return asdict(self) | asdict(self.known)


def read_known() -> dict[str, Known]:
    """Return what is known of each kind of finding, by its name."""
    text = Path(__file__).with_name("known.toml").read_text(encoding="utf-8")
    return {name: Known(**entry) for name, entry in tomllib.loads(text).items()}


KNOWN = read_known()
