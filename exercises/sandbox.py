"""A process for a student's code inside a sandbox, and the pipe to talk to it."""

from __future__ import annotations

import contextlib
import json
import math
import os
import resource
import select
import selectors
import shutil
import signal
import socket
import subprocess
import sys
import sysconfig
import threading
import time
from pathlib import Path
from typing import Any

from exercises.bubblewrap import (
    ADVICE,
    ENVIRONMENT,
    INSIDE,
    command,
    lent_paths,
    require_bubblewrap,
    unprivileged_user,
)
from exercises.jobs import Limits, MiB, NotStarted
from exercises.processors import Processor
from exercises.syscalls import SandboxMissing, filter_pipe, program
from exercises.usage import (
    cpu_waits,
    descendants,
    files_in,
    has_ended,
    memory_of,
    own_memory_of,
    own_wait,
    processes_in,
)
from pe_course.judge import wire
from pe_course.judge.wire import HEADER, Malformed, decode, encode, frame_length

LOOK = 0.2  # seconds between two looks at what a session uses
HANGS = 600.0  # seconds after which what should start within a few is given up


class Ended(Exception):
    """The student's process is gone, or had to be ended."""

    def __init__(self, word: str, message: str) -> None:
        """Keep one of the words of a verdict, and what to tell the student."""
        super().__init__(message)
        self.word, self.message = word, message


class Zygote:
    """The process that has PyTorch loaded and forks for each submission. It ends with this one."""

    def __init__(self) -> None:
        """Start it, and wait until it is ready."""
        self.lock = threading.Lock()
        self.socket, end = socket.socketpair()
        self.socket.settimeout(HANGS)
        python = str(Path(sys.executable).resolve())
        self.process = subprocess.Popen(
            [python, "-S", "-B", str(INSIDE / "zygote.py"), str(end.fileno())], env=ENVIRONMENT,
            stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE,
            pass_fds=[end.fileno()], start_new_session=True,
        )  # fmt: skip
        end.close()
        standard = sysconfig.get_path("stdlib")
        packages = {path.parent for path in lent_paths()}
        setup = {
            "own": [str(INSIDE), str(Path(wire.__file__).parent)],
            "standard": [standard, f"{standard}/lib-dynload"],
            "packages": [place for place in sys.path if Path(place) in packages],
            "lent": [path.name.partition(".")[0] for path in lent_paths()],
            "filter": program().hex(),
        }  # fmt: skip
        self.send(json.dumps(setup).encode() + b"\n", [])

    def send(self, message: bytes, ends: list[int]) -> None:
        """Send a message and wait until it is carried out; raise NotStarted if that fails."""
        answer = b""
        with contextlib.suppress(OSError):
            socket.send_fds(self.socket, [message], ends)
            answer = self.socket.recv(1)
        if not answer:
            self.process.kill()
            _, said = self.process.communicate()
            reason = said[-2000:].decode(errors="replace")
            raise NotStarted(f"the process that starts sandboxes has ended: {reason}")

    def fork(self, request: dict[str, Any], ends: list[int]) -> None:
        """Start a process in a sandbox; it is given `ends`: requests, answers, output."""
        with self.lock:
            self.send(json.dumps(request).encode(), ends)


_zygotes: list[Zygote] = []  # one at most
_lock = threading.Lock()


def zygote() -> Zygote:
    """Return the zygote of this process; a new one if it has ended."""
    with _lock:
        if not _zygotes or _zygotes[0].process.poll() is not None:
            _zygotes[:] = [Zygote()]
        return _zygotes[0]


class CpuWait:
    """How long an exchange has waited for a processor: the student's side, or ours."""

    def __init__(self, session: Session) -> None:
        """Begin now."""
        self.session, self.seconds = session, 0.0
        self.own, self.before = own_wait(), cpu_waits(session.processes())

    def look(self) -> None:
        """Bring `seconds` up to date; what a thread that has ended waited is kept."""
        now = cpu_waits(self.session.processes())
        theirs = [wait - self.before.get(thread, 0.0) for thread, wait in now.items()]
        self.seconds = max(self.seconds, max(theirs, default=0.0) + own_wait() - self.own)


class Session:
    """One process for a student's code, and what it printed."""

    def __init__(self, limits: Limits) -> None:
        """Start the process and wait until it is ready.

        Raises:
            NotStarted: if it does not start.
        """
        self.limits, self.printed, self.dropped = limits, bytearray(), 0
        self.first = 0  # the first process in it, as numbered outside
        self.runner: Path | None = None  # the folder in /proc of the process that answers
        self.used = 0.0  # seconds of all requests, without waiting for a processor
        self.processor = Processor()
        requests, self.requests = os.pipe()
        self.answers, answers = os.pipe()
        self.output, output = os.pipe()
        for end in (self.output, self.answers, self.requests):
            os.set_blocking(end, False)
        user = unprivileged_user()
        self.process = self.make_sandbox(user, output)
        ends = [requests, answers, output]
        request = {"first": self.first, "user": user, "limits": limits.of_a_process(),
                   "processor": self.processor.number}  # fmt: skip
        try:
            try:
                if not self.first:
                    raise NotStarted("bubblewrap made none")
                zygote().fork(request, ends)
            finally:
                for end in ends:
                    os.close(end)
            number = self.exchange(b"", limits.start)["pid"]
        except (NotStarted, Ended) as error:
            with contextlib.suppress(OSError):  # closed already, if the process has ended
                self.drain()
            said = bytes(self.printed[-2000:]).decode(errors="replace")
            self.close()
            raise NotStarted(f"the sandbox did not start ({error}): {said.strip()}") from error
        self.runner = self.processes_folder() / str(number)
        self.take_printed()
        self.used = 0.0  # starting is not the student's

    def make_sandbox(self, user: int, output: int) -> subprocess.Popen[bytes]:
        """Let bubblewrap make a sandbox; a process that only waits keeps it open."""
        info, info_end = os.pipe()
        rules = filter_pipe()
        words = [*command(self.limits.scratch, user), "--seccomp", str(rules),
                 "--info-fd", str(info_end), "--", "/bin/cat"]  # fmt: skip
        process = subprocess.Popen(
            words, executable=shutil.which("bwrap"), stdin=subprocess.PIPE, stdout=subprocess.PIPE,
            stderr=output, pass_fds=[info_end, rules], start_new_session=True, env={},
        )  # fmt: skip
        os.close(info_end)
        os.close(rules)
        assert process.stdin is not None and process.stdout is not None
        with os.fdopen(info, "rb") as file, contextlib.suppress(OSError, ValueError):
            process.stdin.write(b".")
            process.stdin.flush()
            if process.stdout.read(1):  # all is bound and closed when `cat` runs
                self.first = int(json.load(file)["child-pid"])
        # An ordinary user's students may write into these processes: no way around the limits.
        for pid in (self.first, *descendants(self.first)) if self.first else ():
            for name, limit in self.limits.of_a_process().items():
                with contextlib.suppress(ProcessLookupError):
                    resource.prlimit(pid, getattr(resource, name), (limit, limit))
        return process

    def processes_folder(self) -> Path:
        """Return the folder in which its processes are numbered as they are for themselves."""
        return Path(f"/proc/{self.first}/root/proc" if self.first else "/proc")

    def processes(self) -> list[Path]:
        """Return the folders in /proc of its processes."""
        if self.first:
            return processes_in(self.processes_folder())
        return [Path(f"/proc/{pid}") for pid in (self.process.pid, *descendants(self.process.pid))]

    def ask(self, request: dict[str, Any], seconds: float, longest: float = math.inf) -> Any:
        """Send a request and return the answer; raise Ended if there will be none.

        Args:
            request: for the process.
            seconds: that it may take, without waiting for a processor.
            longest: the same on the clock.
        """
        if self.process.returncode is not None:
            raise Ended("crash", "the process has ended")
        return self.exchange(encode(request), seconds, longest)

    def exchange(self, unsent: bytes, seconds: float, longest: float = math.inf) -> Any:
        """Write `unsent` and read one frame, draining what is printed meanwhile."""
        received, begin, watch = bytearray(), time.monotonic(), CpuWait(self)
        next_look, longest = begin + LOOK, min(longest, seconds * self.limits.patience)
        with selectors.DefaultSelector() as selector:
            selector.register(self.answers, selectors.EVENT_READ)
            selector.register(self.output, selectors.EVENT_READ)
            if unsent:
                selector.register(self.requests, selectors.EVENT_WRITE)
            try:
                while True:
                    ready = [key.fd for key, _ in selector.select(LOOK)]
                    if self.output in ready and not self.drain():
                        selector.unregister(self.output)
                    if self.requests in ready:
                        unsent = self.send_some(unsent)
                        if not unsent:
                            selector.unregister(self.requests)
                    if self.answers in ready and self.read_some(received):
                        return self.frame(received)
                    if time.monotonic() > next_look:
                        watch.look()
                        self.watch()
                        next_look = time.monotonic() + LOOK
                        spent = time.monotonic() - begin
                        if spent > min(longest, seconds + watch.seconds):
                            self.close()
                            raise Ended("time-out", f"it took more than {seconds:g} s")
            finally:
                watch.look()
                self.used += max(0.0, time.monotonic() - begin - watch.seconds)

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
            kept = chunk[: max(0, self.limits.output - len(self.printed))]
            self.printed += kept
            self.dropped += len(chunk) - len(kept)
        return True

    def watch(self) -> None:
        """End the session if its processes use more than they may, or serve no more."""
        # The pipe stays open as long as a process that the student's code has started holds it.
        ended = self.runner is not None and has_ended(self.runner)
        if ended and not select.select([self.answers], [], [], 0)[0]:
            self.say_how_it_ended()
        processes = self.processes()
        if len(processes) > self.limits.processes + 3:
            self.close()
            raise Ended("crash", f"more than {self.limits.processes} processes")
        most = self.limits.memory
        if memory_of(processes) > most and own_memory_of(processes) > most:
            self.close()
            raise Ended("crash", f"more than {self.limits.memory // MiB} MiB of memory")
        if self.first and files_in(self.first) > self.limits.files:
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
        for file in (self.process.stdin, self.process.stdout):
            if file is not None:
                with contextlib.suppress(BrokenPipeError):
                    file.close()
        for end in (self.requests, self.answers, self.output):
            os.close(end)
        self.processor.release()

    def __enter__(self) -> Session:
        """Return itself."""
        return self

    def __exit__(self, *_: object) -> None:
        """End the process."""
        self.close()


def require_sandbox() -> None:
    """Start a sandbox for nobody's code; raise SandboxMissing, with the reason, if none starts."""
    require_bubblewrap()
    try:
        with Session(Limits()):
            pass
    except NotStarted as error:
        raise SandboxMissing(f"{error}. {ADVICE}") from error
