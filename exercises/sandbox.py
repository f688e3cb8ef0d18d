"""A process for a student's code, closed in by bubblewrap, and the pipe to talk to it."""

from __future__ import annotations

import contextlib
import functools
import importlib.metadata
import os
import re
import selectors
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from exercises.syscalls import SandboxMissing, program
from exercises.wire import HEADER, Malformed, decode, encode, frame_length

HERE = Path(__file__).parent
LIBRARY = HERE.parent / "pe_lib"
LENT = ("torch", "numpy", "matplotlib", "ipython")  # distributions, with what they need
MiB = 1 << 20


class NotStarted(RuntimeError):
    """The sandbox failed before any student's code ran: not the student's fault."""


class Ended(Exception):
    """The student's process is gone, or had to be ended."""

    def __init__(self, word: str, message: str) -> None:
        """Keep one of the words of a verdict, and what to tell the student."""
        super().__init__(message)
        self.word, self.message = word, message


@dataclass(frozen=True)
class Limits:
    """What one submission may use. Sizes in bytes, times in seconds."""

    memory: int = 3072 * MiB  # address space of a process, and memory of all together
    file_size: int = 16 * MiB
    scratch: int = 64 * MiB  # all files under /tmp
    files: int = 10_000  # how many they may be
    processes: int = 64
    output: int = 32 * 1024  # printed text that is kept, for each cell
    call: float = 10.0  # time of one cell, or of one call
    total: float = 60.0  # time of the whole submission
    start: float = 60.0  # time until torch is imported
    patience: float = 6.0  # waiting for a busy processor is not counted, up to this factor

    @property
    def longest(self) -> float:
        """Return the time on the clock after which a submission ends, whatever it waited for."""
        return self.total * self.patience


def required(names: tuple[str, ...]) -> set[str]:
    """Return the distributions that `names` need, themselves included."""
    found: set[str] = set()
    waiting = list(names)
    while waiting:
        name = re.sub(r"[-_.]+", "-", waiting.pop()).lower()
        try:
            needs = importlib.metadata.requires(name) or []
        except importlib.metadata.PackageNotFoundError:
            continue
        if name not in found:
            found.add(name)
            plain = [need for need in needs if "extra ==" not in need]
            waiting += [re.split(r"[^\w.-]", need, maxsplit=1)[0] for need in plain]
    return found


@functools.cache
def lent_paths() -> tuple[Path, ...]:
    """Return the files and folders of the lent distributions, in site-packages."""
    paths: set[Path] = set()
    for name in required(LENT):
        distribution = importlib.metadata.distribution(name)
        for file in distribution.files or ():
            if file.parts[0] not in ("..", "__pycache__"):
                paths.add(Path(str(distribution.locate_file(file.parts[0]))))
    return tuple(sorted(path for path in paths if path.exists()))


def binds(lends: tuple[str, ...]) -> Iterator[tuple[Path, str]]:
    """Yield (path outside, path inside) of all that the sandbox can read."""
    for folder in ("/usr", "/lib", "/lib64", "/lib32", "/bin", "/etc/ld.so.cache"):
        if Path(folder).exists():
            yield Path(folder), folder
    prefix = Path(sys.base_prefix).resolve()
    if not prefix.is_relative_to("/usr"):
        yield prefix, str(prefix)
    for path in lent_paths():
        yield path, f"/site/{path.name}"
    yield HERE / "wire.py", "/inside/wire.py"
    yield HERE / "inside/runner.py", "/inside/runner.py"
    yield HERE / "inside/library.py", "/inside/pe_lib/__init__.py"
    yield HERE / "inside/checks.py", "/inside/exercises/checks.py"
    for name in lends:
        yield LIBRARY / f"{name}.py", f"/inside/pe_lib/{name}.py"


def command(limits: Limits, lends: tuple[str, ...], user: int, rules: int) -> list[str]:
    """Return the bubblewrap command, up to the program; `rules` is where it reads its filter."""
    words = ["bwrap", "--die-with-parent", "--new-session", "--clearenv", "--hostname", "sandbox"]
    words += ["--unshare-pid", "--unshare-net", "--unshare-ipc", "--unshare-uts"]
    words += ["--unshare-cgroup-try"]
    # As root, a real unprivileged user is safer than a namespace that maps root, for which
    # the kernel does not count processes.
    rights = ["--cap-drop", "ALL", "--cap-add", "CAP_SETUID", "--cap-add", "CAP_SETGID"]
    words += rights if user else ["--unshare-user"]
    made: set[Path] = set()
    for outside, inside in binds(lends):
        # bubblewrap makes missing parents with rights for their owner alone.
        for parent in reversed(Path(inside).parents[:-1]):
            if parent not in made and not parent.is_relative_to("/usr"):
                words += ["--perms", "0755", "--dir", str(parent)]
                made.add(parent)
        words += ["--ro-bind", str(outside), inside]
    words += ["--proc", "/proc", "--dev", "/dev"]
    for folder in ("/dev/shm", "/tmp"):
        words += ["--perms", "1777", "--size", str(limits.scratch), "--tmpfs", folder]
    words += ["--remount-ro", "/dev", "--remount-ro", "/", "--chdir", "/tmp"]
    environment = {
        "PATH": "/usr/bin:/bin", "HOME": "/tmp", "LANG": "C.UTF-8", "PYTHONPATH": "/inside:/site",
        "OMP_NUM_THREADS": "1", "MPLBACKEND": "Agg", "IPYTHONDIR": "/tmp/.ipython",
        "PYTHONHASHSEED": "0",
    }  # fmt: skip
    for name, value in environment.items():
        words += ["--setenv", name, value]
    return [*words, "--seccomp", str(rules), "--"]


def open_filter() -> int:
    """Return the end of a pipe from which bubblewrap reads the filter of system calls."""
    read_end, write_end = os.pipe()
    with os.fdopen(write_end, "wb") as pipe:
        pipe.write(program())
    return read_end


def unprivileged_user() -> int:
    """Return a user number that nothing else has, if this process is root; 0 otherwise."""
    return 0x1000000 + int.from_bytes(os.urandom(3), "big") if os.geteuid() == 0 else 0


def require_bubblewrap() -> None:
    """Raise SandboxMissing, with what to do, if bubblewrap is not here or may not work."""
    advice = (
        "Student code is not run without it. On Debian or Ubuntu: apt-get install bubblewrap "
        "libseccomp2. On macOS or a host that forbids namespaces, grade on a Linux machine or in "
        "a virtual one; or, for submissions that you trust as your own code, add --trusted."
    )
    if shutil.which("bwrap") is None:
        raise SandboxMissing(f"bubblewrap (the program bwrap) is not installed. {advice}")
    try:
        rules = open_filter()
    except SandboxMissing as error:
        raise SandboxMissing(f"{error} {advice}") from error
    test = [*command(Limits(), (), unprivileged_user(), rules), "/bin/true"]
    done = subprocess.run(
        test, capture_output=True, text=True, timeout=60, check=False, pass_fds=(rules,)
    )
    os.close(rules)
    if done.returncode:
        raise SandboxMissing(f"bubblewrap does not work here: {done.stderr.strip()}. {advice}")


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


def memory_of(pids: list[int]) -> int:
    """Return the bytes of memory that processes hold, files not counted."""
    total = 0
    for pid in pids:
        try:
            status = Path(f"/proc/{pid}/status").read_text()
        except OSError:
            continue
        total += sum(int(kb) for kb in re.findall(r"Rss(?:Anon|Shmem):\s+(\d+)", status))
    return total * 1024


def files_in(pid: int) -> int:
    """Return how many files stand in the scratch folders that a sandboxed process sees."""
    found = 0
    for folder in ("tmp", "dev/shm"):
        with contextlib.suppress(OSError):
            status = os.statvfs(f"/proc/{pid}/root/{folder}")
            found += status.f_files - status.f_ffree
    return found


def waited(pids: list[int]) -> float:
    """Return the longest time that a thread of these processes stood in line for a processor."""
    longest = 0
    for pid in pids:
        for stat in Path(f"/proc/{pid}/task").glob("*/schedstat"):
            try:
                longest = max(longest, int(stat.read_text().split()[1]))
            except (OSError, IndexError, ValueError):
                continue
    return longest / 1e9


class Session:
    """One process inside the sandbox, and what it printed."""

    def __init__(self, limits: Limits, lends: tuple[str, ...] = (), trusted: bool = False) -> None:
        """Start the process and wait until it has imported torch."""
        self.limits, self.printed, self.dropped = limits, bytearray(), 0
        self.closed_in = False
        self.used = 0.0  # seconds of all requests, without waiting for a processor
        request_end, self.requests = os.pipe()
        self.answers, answer_end = os.pipe()
        user = -1 if trusted else unprivileged_user()
        numbers = (request_end, answer_end, user, limits.memory, int(limits.total * 2),
                   limits.file_size, limits.processes)  # fmt: skip
        lent = [request_end, answer_end]
        if trusted:
            words = [sys.executable, str(HERE / "inside/runner.py")]
            environment = {**os.environ, "PYTHONPATH": str(HERE)}
        else:
            lent.append(open_filter())
            environment = None
            python = str(Path(sys.base_prefix).resolve() / "bin/python3")
            words = command(limits, lends, user, lent[-1])
            words += [python, "-S", "-B", "/inside/runner.py"]
        self.process = subprocess.Popen(
            [*words, *map(str, numbers)], stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT, pass_fds=lent, start_new_session=True, env=environment,
        )  # fmt: skip
        for end in lent:
            os.close(end)
        assert self.process.stdout is not None
        self.output = self.process.stdout.fileno()
        for end in (self.output, self.answers, self.requests):
            os.set_blocking(end, False)
        try:
            self.receive(b"", limits.start)
        except Ended as ended:
            said = bytes(self.printed[-2000:]).decode(errors="replace")
            self.close()
            raise NotStarted(f"the sandbox did not start ({ended.message}): {said}") from ended
        self.take_printed()
        self.closed_in = not trusted  # before, its first process still sees this machine's files

    def ask(self, request: dict[str, Any], seconds: float) -> Any:
        """Send a request and return the answer; raise Ended if there will be none."""
        if self.process.returncode is not None:
            raise Ended("crash", "the process has ended")
        return self.receive(encode(request), seconds)

    def receive(self, unsent: bytes, seconds: float) -> Any:
        """Write `unsent` and read one frame, draining what is printed meanwhile."""
        begin, in_line, received = time.monotonic(), self.in_line(), bytearray()
        try:
            return self.exchange(unsent, received, begin + seconds, seconds)
        finally:
            self.used += max(0.0, time.monotonic() - begin - (self.in_line() - in_line))

    def in_line(self) -> float:
        """Return how long the session's processes have waited for a processor so far."""
        return waited(descendants(self.process.pid))

    def exchange(self, unsent: bytes, received: bytearray, deadline: float, seconds: float) -> Any:
        """Do what `receive` does, until `deadline`, which moves while processors are busy."""
        last, in_line = deadline + seconds * (self.limits.patience - 1), self.in_line()
        next_watch = time.monotonic() + 0.2
        with selectors.DefaultSelector() as selector:
            selector.register(self.answers, selectors.EVENT_READ)
            selector.register(self.output, selectors.EVENT_READ)
            if unsent:
                selector.register(self.requests, selectors.EVENT_WRITE)
            while True:
                if time.monotonic() > deadline:
                    waited_since = self.in_line() - in_line
                    in_line, deadline = in_line + waited_since, min(last, deadline + waited_since)
                    if time.monotonic() > deadline:
                        self.close()
                        raise Ended("time-out", f"no answer within {seconds:.0f} s")
                ready = [key.fd for key, _ in selector.select(0.2)]
                if time.monotonic() > next_watch:
                    self.watch()
                    next_watch = time.monotonic() + 0.2
                if self.output in ready and not self.drain():
                    selector.unregister(self.output)
                if self.requests in ready:
                    unsent = self.send_some(unsent)
                    if not unsent:
                        selector.unregister(self.requests)
                if self.answers in ready and self.read_some(received):
                    return self.frame(received)

    def send_some(self, unsent: bytes) -> bytes:
        """Write what fits into the pipe, and return the rest."""
        try:
            return unsent[os.write(self.requests, unsent[:65536]) :]
        except BrokenPipeError:
            return b""  # reading the answers will say how it ended

    def read_some(self, received: bytearray) -> bool:
        """Read towards a whole frame; return whether it is there."""
        try:
            size = HEADER.size
            if len(received) >= HEADER.size:
                size += frame_length(bytes(received[: HEADER.size]))
            chunk = os.read(self.answers, min(size - len(received), MiB))
            if not chunk:
                self.say_how_it_ended()
            received += chunk
            if len(received) < HEADER.size:
                return False
            return len(received) == HEADER.size + frame_length(bytes(received[: HEADER.size]))
        except Malformed as error:
            self.close()
            raise Ended("malformed", f"the answer could not be read: {error}") from error

    def frame(self, received: bytearray) -> Any:
        """Return the value of a whole frame, with what was printed before it drained."""
        self.drain()
        try:
            return decode(bytes(received[: HEADER.size]), bytes(received[HEADER.size :]))
        except Malformed as error:
            self.close()
            raise Ended("malformed", f"the answer could not be read: {error}") from error

    def drain(self) -> bool:
        """Read what was printed and keep its beginning; return False at the end."""
        for _ in range(64):  # a bound, so that endless printing cannot hold up the deadline
            try:
                chunk = os.read(self.output, MiB)
            except BlockingIOError:
                return True
            if not chunk:
                return False
            room = max(0, self.limits.output - len(self.printed))
            self.printed += chunk[:room]
            self.dropped += len(chunk) - len(chunk[:room])
        return True

    def watch(self) -> None:
        """End the session if all its processes together use more than they may."""
        pids = descendants(self.process.pid)
        if len(pids) > self.limits.processes + 2:
            self.close()
            raise Ended("crash", f"more than {self.limits.processes} processes")
        if memory_of(pids) > self.limits.memory:
            self.close()
            raise Ended("crash", f"more than {self.limits.memory // MiB} MiB of memory")
        if self.closed_in and pids and files_in(pids[0]) > self.limits.files:
            self.close()
            raise Ended("crash", f"more than {self.limits.files} files")

    def say_how_it_ended(self) -> None:
        """Raise Ended for a process that closed its end of the pipe."""
        self.close()
        raise Ended("crash", "the process ended before it answered")

    def take_printed(self) -> str:
        """Return what was printed since the last call."""
        text = bytes(self.printed).decode(errors="replace")
        if self.dropped:
            text += f"\n[{self.dropped} more bytes were printed and not kept]"
        self.printed.clear()
        self.dropped = 0
        return text

    def close(self) -> None:
        """End the process and everything that it started."""
        if self.process.returncode is not None:
            return
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self.process.pid, signal.SIGKILL)
        self.process.wait()
        assert self.process.stdout is not None
        self.process.stdout.close()
        for end in (self.requests, self.answers):
            os.close(end)

    def __enter__(self) -> Session:
        """Return itself."""
        return self

    def __exit__(self, *_: object) -> None:
        """End the process."""
        self.close()
