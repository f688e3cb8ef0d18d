"""What the processes of a sandbox use, read from outside: memory, files, and time in a queue."""

from __future__ import annotations

import contextlib
import os
import re
from pathlib import Path


def descendants(pid: int) -> list[int]:
    """Return the processes below `pid`."""
    found: list[int] = []
    waiting = [pid]
    while waiting:
        try:
            folder = Path(f"/proc/{waiting.pop()}/task")
            for task in folder.iterdir():
                waiting += [int(word) for word in (task / "children").read_text().split()]
        except OSError:
            continue  # it has ended meanwhile
        found = list(dict.fromkeys(found + waiting))
    return found


def processes_in(proc: Path) -> list[Path]:
    """Return the folders of all processes in a sandbox, whose /proc this is."""
    try:
        return [proc / name for name in os.listdir(proc) if name.isdigit()]
    except OSError:
        return []  # it has ended


def has_ended(process: Path) -> bool:
    """Return whether a process is gone, or waits for its parent to notice."""
    try:
        return "\nState:\tZ" in (process / "status").read_text()
    except OSError:
        return True


def memory_of(processes: list[Path], file: str = "status") -> int:
    """Return the bytes that processes hold, files not counted, and a shared page several times."""
    total = 0
    for folder in processes:
        with contextlib.suppress(OSError):
            found = re.findall(r"(?:Rss|Pss_)(?:Anon|Shmem):\s+(\d+)", (folder / file).read_text())
            total += sum(map(int, found))
    return total * 1024


def own_memory_of(processes: list[Path]) -> int:
    """Return the same with each shared page divided among those who share it; this takes longer.

    Most pages that a sandbox holds are shared with the process that it was forked from.
    """
    return memory_of(processes, "smaps_rollup")


def files_in(first: int) -> int:
    """Return how many files stand in the scratch folders of a sandbox."""
    found = 0
    for folder in ("tmp", "dev/shm"):
        with contextlib.suppress(OSError):
            status = os.statvfs(f"/proc/{first}/root/{folder}")
            found += status.f_files - status.f_ffree
    return found


def wait_in(schedstat: Path) -> float:
    """Return the seconds that a thread has waited for a processor, 0 where no one counts."""
    try:
        return int(schedstat.read_text().split()[1]) / 1e9
    except (OSError, IndexError, ValueError):
        return 0.0  # it has ended, or the kernel keeps no count


def cpu_waits(processes: list[Path]) -> dict[Path, float]:
    """Return for each thread the seconds that it has waited for a processor so far."""
    waits: dict[Path, float] = {}
    for folder in processes:
        with contextlib.suppress(OSError):
            for name in os.listdir(folder / "task"):
                waits[folder / name] = wait_in(folder / "task" / name / "schedstat")
    return waits


def own_wait() -> float:
    """Return the seconds that this thread has waited for a processor so far."""
    return wait_in(Path("/proc/thread-self/schedstat"))
