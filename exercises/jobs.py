"""What grading a submission takes and gives.

No PyTorch here: who hands out work and collects grades starts without the seconds it takes to load.
"""

from __future__ import annotations

import hashlib
from dataclasses import asdict, dataclass, field
from typing import Any

from exercises.notebook import Cell

MiB = 1 << 20
WORDS = ("ok", "wrong answer", "not answered", "crash", "time-out", "malformed")


class NotStarted(RuntimeError):
    """The sandbox failed before any student's code ran: not the student's fault."""


@dataclass(frozen=True)
class Limits:
    """What one submission may use. Sizes in bytes, times in seconds."""

    memory: int = 3072 * MiB  # what a process may map besides PyTorch, and all together use
    file_size: int = 16 * MiB
    scratch: int = 64 * MiB  # all files under /tmp
    files: int = 10_000  # how many they may be
    processes: int = 64
    output: int = 32 * 1024  # printed text that is kept, for each cell
    cell: float = 10.0  # time of one cell
    cells: float = 60.0  # time of all cells that a process runs
    start: float = 60.0  # time until the process is ready
    patience: float = 6.0  # waiting for a busy processor is not counted, up to this factor

    def budget(self, seconds: float) -> float:
        """Return what all calls of an exercise may take, if its check says `seconds`.

        A machine on which a cell may take twice as long gives twice as much to an exercise.
        """
        return seconds * self.cell / Limits.cell

    def of_a_process(self) -> dict[str, int]:
        """Return the limits that the kernel keeps for each process."""
        return {
            "RLIMIT_AS": self.memory, "RLIMIT_CPU": int(self.cells * 2),
            "RLIMIT_FSIZE": self.file_size, "RLIMIT_NPROC": self.processes,
            "RLIMIT_NOFILE": 256, "RLIMIT_CORE": 0, "RLIMIT_NICE": 0, "RLIMIT_RTPRIO": 0,
        }  # fmt: skip


@dataclass(frozen=True)
class Job:
    """One submission to grade. `data` is the file, or None with the reason in `unreadable`."""

    student: str
    set_name: str
    data: bytes | None
    unreadable: str = ""
    secret: str = ""
    limits: Limits = field(default_factory=Limits)


@dataclass
class Verdict:
    """What became of one question."""

    question: str
    test_id: str
    max_points: float
    points: float = 0.0
    word: str = "not answered"
    message: str = ""
    case: str = ""  # on which it failed, in full: not for the student
    seed: int = 0  # of its hidden inputs


@dataclass
class CellRun:
    """What a cell did when it ran: what it printed, and how it stopped if it did."""

    printed: str = ""
    word: str = ""
    message: str = ""


@dataclass
class Graded:
    """A graded submission."""

    student: str
    set_name: str
    verdicts: list[Verdict]
    cells: list[Cell]
    ran: dict[int, CellRun]
    seconds: float
    open: dict[str, str] = field(default_factory=dict)  # what waits to be scored by hand

    @property
    def points(self) -> float:
        """Return the sum of the points."""
        return sum(verdict.points for verdict in self.verdicts)

    def record(self) -> dict[str, Any]:
        """Return what is kept in a file."""
        return {
            "student": self.student, "set": self.set_name, "points": self.points,
            "max_points": sum(verdict.max_points for verdict in self.verdicts),
            "seconds": round(self.seconds, 3),
            "verdicts": [asdict(verdict) for verdict in self.verdicts],
            # Of an open answer no more than whether it is there, and is the one that was scored.
            "open": {
                name: hashlib.sha256(text.encode()).hexdigest() if text else ""
                for name, text in self.open.items()
            },
        }  # fmt: skip
