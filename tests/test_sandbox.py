"""Student code is walled in, and pays for what it spends: no more, no less."""

from __future__ import annotations

import contextlib
import errno
import json
import os
import resource
import subprocess
import sys
import time
from collections.abc import Iterator
from itertools import chain, pairwise
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pyseccomp
import pytest
import torch

from exercises.bubblewrap import (
    SYSTEM,
    binds,
    lent_names,
    require_bubblewrap,
    require_hidden,
)
from exercises.grade_course import main
from exercises.grade_submission import TOOK_TOO_LONG, compact, grade
from exercises.jobs import Job, Limits
from exercises.processors import Processor
from exercises.sandbox import Ended, Session, zygote
from exercises.sets import source_path
from exercises.syscalls import DENIED, SandboxMissing, program
from pe_course.judge.wire import HEADER, MAX_PARTS, Malformed, Opaque, decode, encode
from tools import ROOT

pytestmark = pytest.mark.usefixtures("sandbox")
SET = "02_sinusoidal"
LIMITS = Limits(memory=1200 << 20, processes=32)
PROBE = """
import json, os, resource, socket

def status(pid):
    lines = open(f"/proc/{pid}/status").read().splitlines()
    return dict(line.split(":\\t", 1) for line in lines if ":\\t" in line)

def readable(path):
    try:
        return open(path).read()
    except OSError:
        return ""

def writable(folder):
    try:
        with open(folder + "/probe", "w") as file:
            file.write("x")
        os.remove(folder + "/probe")
        return True
    except OSError:
        return False

def is_open(number):
    try:
        os.fstat(number)
        return True
    except OSError:
        return False

def facts():
    pids = [name for name in os.listdir("/proc") if name.isdigit()]
    names = ("AS", "CPU", "FSIZE", "NPROC", "NOFILE", "CORE", "NICE", "RTPRIO")
    return {
        "rights": {f"{pid} {name}": status(pid)[name] for pid in pids
                   for name in ("CapEff", "CapPrm", "CapBnd", "Seccomp", "NoNewPrivs")},
        "uids": status("self")["Uid"].split() + status("self")["Gid"].split(),
        "groups": status("self")["Groups"].split(),
        "leads its session": os.getsid(0) == os.getpid(),
        "open": [number for number in range(1000) if is_open(number)],
        "told": "".join(readable(f"/proc/{pid}/{file}") for pid in pids
                        for file in ("environ", "cmdline", "mountinfo", "cgroup")),
        "writable": [f for f, _, _ in os.walk("/", followlinks=False)
                     if not f.startswith("/proc") and f.count("/") < 9 and writable(f)],
        "limits": [list(resource.getrlimit(getattr(resource, "RLIMIT_" + n))) for n in names],
        "network": [line.split(":")[0].strip() for line in open("/proc/net/dev") if ":" in line],
        "host": os.uname().nodename,
        "oom": readable("/proc/self/oom_score_adj") if os.access("/proc/self/oom_score_adj", 4)
               else "1000",
    }

def there(paths):
    return [path for path in paths if os.path.exists(path)]

def inside(folders):
    return [sorted(os.listdir(folder)) for folder in folders]
"""


def run(session: Session, cell: str) -> None:
    """Run a cell that should not fail."""
    assert session.ask({"cell": cell}, 60) == {}


def result(session: Session, name: str, *args: Any) -> Any:
    """Call a function of the student's."""
    return session.ask({"call": name, "args": args}, 60)["result"]


@pytest.fixture(params=["as this user", "in a user namespace"])
def probed(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Iterator[Session]:
    """A session with the probe; as root, also in the way of an ordinary user."""
    monkeypatch.setenv("GRADER_TOKEN", "planted")
    if request.param == "in a user namespace":
        if os.geteuid() != 0:
            pytest.skip("an ordinary user has this way alone, and it was just tested")
        monkeypatch.setattr("exercises.sandbox.unprivileged_user", lambda: 0)
    with Session(LIMITS) as session:
        run(session, PROBE)
        yield session


def shown_by_design() -> dict[str, set[str]]:
    """Return what the folders on the way to what is lent hold: the next step, and no more."""
    shown = {"/": {"proc", "dev", "tmp"}, "/tmp": {".ipython"}, "/dev/shm": set()}
    places = [Path(place) for _, place in binds()]
    for place in places:
        for step, folder in pairwise([place, *place.parents]):
            if not any(map(folder.is_relative_to, SYSTEM)):
                shown.setdefault(str(folder), set()).add(step.name)
    return {folder: names for folder, names in shown.items() if Path(folder) not in places}


def test_every_wall_stands(probed: Session) -> None:
    """No rights, no other files, processes or networks, nothing of the grader's."""
    facts = result(probed, "facts")
    rights = facts["rights"]
    assert {value for name, value in rights.items() if name[-3:] in ("Eff", "Prm")} == {"0" * 16}
    assert rights["3 CapBnd"] == "0" * 16
    assert {value for name, value in rights.items() if "Sec" in name} == {"2"}
    assert {value for name, value in rights.items() if "New" in name} == {"1"}
    assert len(rights) == 3 * 5  # bubblewrap's, the one that waits, the student's
    assert facts["groups"] == [] or os.geteuid() != 0
    assert facts["leads its session"] and facts["open"] == [0, 1, 2, 3, 4]
    shown = shown_by_design()
    assert result(probed, "inside", [*shown]) == [sorted(names) for names in shown.values()]
    assert "planted" not in facts["told"] and str(Path.cwd() / "tests") not in facts["told"]
    assert set(facts["writable"]) == {"/tmp", "/dev/shm", "/tmp/.ipython"} | {
        folder for folder in facts["writable"] if folder.startswith("/tmp/.ipython/")
    }
    (soft, hard), *others = facts["limits"]
    loaded = int(Path(f"/proc/{zygote().process.pid}/statm").read_text().split()[0])
    assert 0 < soft - LIMITS.memory <= loaded * resource.getpagesize() and soft == hard
    assert others == [
        [120] * 2, [LIMITS.file_size] * 2, [32] * 2, [256] * 2, [0] * 2,
        [0] * 2, [0] * 2,
    ]  # fmt: skip
    assert facts["network"] == ["lo"] and facts["host"] == "sandbox"
    assert facts["oom"].strip() == "1000"
    files = [ROOT / "README.md", ROOT / "exercises/sandbox.py", ROOT / "exercises/source",
             Path("~/.bashrc").expanduser(), Path("/etc/passwd")]  # fmt: skip
    assert result(probed, "there", [str(path) for path in files]) == []


def test_a_student_has_a_number_of_its_own(monkeypatch: pytest.MonkeyPatch) -> None:
    """Where the grader may hand one out."""
    if os.geteuid() != 0:
        pytest.skip("only root hands out user numbers")
    numbers = []
    for _ in range(2):
        with Session(LIMITS) as session:
            run(session, PROBE)
            numbers.append(set(result(session, "facts")["uids"]))
    assert len(numbers[0]) == len(numbers[1]) == 1 and numbers[0] != numbers[1]
    assert int(numbers[0].pop()) >= 0x1000000


def test_sessions_share_neither_files_nor_draws() -> None:
    """What an earlier student left or drew changes nothing for the next."""
    draw = "import random, numpy, torch\ndef draw():\n    return (random.random(), "
    draw += "numpy.random.rand(), torch.rand(()).item())"
    draws = []
    for _ in range(2):
        with Session(LIMITS) as session:
            run(session, PROBE + draw)
            names = shown_by_design()["/tmp"] | shown_by_design()["/dev/shm"]
            assert {*chain(*result(session, "inside", ["/tmp", "/dev/shm"]))} == names
            draws.append(result(session, "draw"))
            result(session, "draw")
            run(session, "open('/tmp/left', 'w').close(); open('/dev/shm/left', 'w').close()")
    assert draws[0] == draws[1]


def test_both_lines_that_bring_the_checks_work() -> None:
    """Today's and that of notebooks handed out earlier; what they call checks nothing."""
    with Session(LIMITS) as session:
        for line in ("from exercises import checks", "from pe_lib import checks"):
            run(session, f"{line}\nchecks.sinusoidal(None)")
        for line in ("import pe_lib.rope", "import exercises.sandbox"):
            error = session.ask({"cell": line}, 60)["error"]
            assert error["type"] == "ModuleNotFoundError"
            assert "not lent while grading: write your own" in error["text"]


REFUSED = [
    "memfd_create", "memfd_secret", "shmget", "msgget", "semget", "mq_open", "socket",
    "socketpair", "io_uring_setup", "unshare", "setns", "mount", "umount2", "pivot_root", "fsopen",
    "open_tree", "move_mount", "ptrace", "process_vm_readv", "process_vm_writev", "pidfd_getfd",
    "kcmp", "add_key", "request_key", "keyctl", "bpf", "perf_event_open", "userfaultfd",
    "sched_setaffinity", "inotify_init", "inotify_init1", "fanotify_init", "open_by_handle_at",
    "name_to_handle_at", "personality",
]  # fmt: skip
TRIES = """
import ctypes

def answer_of(*call):
    if ctypes.CDLL(None, use_errno=True).syscall(*map(ctypes.c_long, call)) != -1:
        return 0
    return ctypes.get_errno()
"""
MARK = 999  # an error that no kernel gives: it can come from the filter alone
CLONE_THREAD, CLONE_NEWUSER = 0x10000, 0x10000000  # the first by itself is invalid


@pytest.fixture
def marked(monkeypatch: pytest.MonkeyPatch) -> Iterator[Session]:
    """A session whose filter says which answers are its own."""
    errors = SimpleNamespace(EPERM=MARK, ENOSYS=errno.ENOSYS)
    monkeypatch.setattr("exercises.syscalls.errno", errors)
    monkeypatch.setattr("exercises.sandbox.program", program.__wrapped__)  # made now, and not kept
    monkeypatch.setattr("exercises.sandbox._zygotes", [])
    with Session(LIMITS) as session:
        run(session, TRIES)
        yield session
    own = zygote().process
    own.kill()
    own.wait()


def number_of(name: str) -> int:
    """Return the number of a system call; one below 0 if this architecture lacks it."""
    return int(pyseccomp.resolve_syscall(pyseccomp.Arch.NATIVE, name))


def test_the_filter_refuses_each_call(marked: Session) -> None:
    """It does, and no other wall: all arguments are invalid."""
    numbers = {name: number_of(name) for name in REFUSED if number_of(name) >= 0}
    assert len(numbers) >= 34  # ARM has no inotify_init
    got = {name: result(marked, "answer_of", n, *[-1] * 6) for name, n in numbers.items()}
    assert got == dict.fromkeys(numbers, MARK)
    clone, invalid = number_of("clone"), [CLONE_THREAD, 0, 0, 0, 0]
    assert result(marked, "answer_of", clone, *invalid) == errno.EINVAL
    invalid[0] |= CLONE_NEWUSER
    assert result(marked, "answer_of", clone, *invalid) == MARK
    assert result(marked, "answer_of", number_of("clone3"), 0, 0) == errno.ENOSYS


def test_every_refused_call_is_tried() -> None:
    assert sorted(DENIED) == sorted(REFUSED)


STAYS = """
import os

def processors():
    return sorted(os.sched_getaffinity(0))

def moves():
    os.sched_setaffinity(0, range(os.cpu_count()))
"""


@pytest.fixture
def only_grader(monkeypatch: pytest.MonkeyPatch) -> None:
    """Whatever else grades on this machine."""
    monkeypatch.setattr("exercises.processors.PLACE", f"tests-{os.getpid()}")


@pytest.mark.usefixtures("only_grader")
def test_each_submission_has_a_processor_of_its_own() -> None:
    """So that loops beyond counting slow no neighbour's work; it cannot be left."""
    here = os.sched_getaffinity(0)
    with contextlib.ExitStack() as stack:
        sessions = [stack.enter_context(Session(LIMITS)) for _ in range(min(2, len(here)))]
        found = []
        for session in sessions:
            run(session, STAYS)
            found += result(session, "processors")
            error = session.ask({"call": "moves", "args": ()}, 60)["error"]
            assert error["type"] == "PermissionError"
    assert len(found) == len(set(found)) == len(sessions) and set(found) <= here


@pytest.mark.usefixtures("only_grader")
def test_a_processor_is_free_again_after_a_submission() -> None:
    """However it ended; with more submissions than processors, they share."""
    count = len(os.sched_getaffinity(0))
    for _ in range(2):
        held = [Processor() for _ in range(count + 1)]
        assert len({processor.number for processor in held[:count]}) == count
        for processor in held:
            processor.release()


def test_what_is_lent_can_be_imported() -> None:
    """Here, SciPy and the others too if the course's environment has them."""
    with Session(LIMITS) as session:
        for name in lent_names():
            run(session, f"import {'IPython' if name == 'ipython' else name}")


def test_shared_memory_is_not_charged_to_each_process() -> None:
    """PyTorch's pages, which all processes share, count once; a student's own count."""
    fork = "import os, time\nfor _ in range(12):\n    if os.fork() == 0:\n        "
    with Session(LIMITS) as session:
        run(session, fork + "time.sleep(60)\ntime.sleep(1)")
        take = "held = bytes(os.urandom(1)) * (200 << 20)\n        time.sleep(60)\ntime.sleep(20)"
        with pytest.raises(Ended, match="MiB of memory"):
            run(session, fork + take)


def hand_in(*sources: str) -> bytes:
    """Return a submission with the instructor's answers and these cells before them."""
    notebook = json.loads(source_path(SET).read_text(encoding="utf-8"))
    for source in sources:
        notebook["cells"].insert(0, {"cell_type": "code", "metadata": {}, "source": source})
    return json.dumps(notebook).encode()


def words(data: bytes, limits: Limits) -> list[str]:
    """Return the verdicts on a submission."""
    return [verdict.word for verdict in grade(Job("ann", SET, data, limits=limits)).verdicts]


def test_starting_a_sandbox_is_not_charged() -> None:
    """Not the first one, and not those after a process has ended."""
    with Session(LIMITS) as session:
        assert session.used == 0.0
    ends = ["import os; os._exit(0)"] * 6
    assert words(hand_in(*ends), Limits(cell=2.0, cells=2.0)) == ["ok"] * 4


@contextlib.contextmanager
def busy_loops(count: int) -> Iterator[None]:
    """Keep processors busy."""
    loops = [subprocess.Popen([sys.executable, "-S", "-c", "while True: pass"])
             for _ in range(count)]  # fmt: skip
    try:
        yield
    finally:
        for loop in loops:
            loop.kill()
            loop.wait()


def test_honest_work_is_not_timed_out_beside_busy_loops() -> None:
    """Waiting for a processor is not charged: a second of work fits into 1.2 s on the clock."""
    work = "import time\nbegin = time.process_time()\nwhile time.process_time() < begin + 1: pass"
    with busy_loops(2 * len(os.sched_getaffinity(0))):
        assert words(hand_in(work), Limits(cell=1.2, cells=3.0)) == ["ok"] * 4


def test_judging_is_on_the_clock(monkeypatch: pytest.MonkeyPatch) -> None:
    """An answer that takes long to compare costs its own points; many end the submission."""

    def slow(value: Any) -> Any:
        time.sleep(0.7)
        return value

    monkeypatch.setattr("exercises.grade_submission.compact", slow)
    limits = Limits(cells=2.0, patience=0.1)
    graded = grade(Job("ann", SET, hand_in(), limits=limits))
    assert {verdict.word for verdict in graded.verdicts} == {"time-out"}
    assert graded.verdicts[0].message == "its calls took more than 1 s on the clock"
    assert graded.verdicts[-1].message == TOOK_TOO_LONG


def test_lists_are_converted_once_and_too_many_are_refused() -> None:
    """So that a judge who compares with every known mistake does not convert them each time."""
    assert torch.equal(compact([[1, 2]] * 50), torch.tensor([[1, 2]] * 50))
    assert compact([[1, 2]] * 50 + [[3]]).type_name == "list that is no array of numbers"
    assert torch.equal(compact(((1, 2),) * 50), torch.tensor([[1, 2]] * 50))
    assert torch.equal(compact((((1, 2),) * 50, 3))[0], torch.tensor([[1, 2]] * 50))
    two = compact(([[1], [2]], [1.0]))
    assert isinstance(two, tuple) and len(two) == 2
    assert compact(Opaque("told_8")).type_name == "object"
    for value in ([[0]] * MAX_PARTS, [(0,)] * MAX_PARTS, [torch.zeros(())] * MAX_PARTS):
        frame = encode(value)
        with pytest.raises(Malformed, match="more than 10,000 lists"):
            decode(frame[: HEADER.size], frame[HEADER.size :])


def test_a_course_that_students_could_read_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """One below a folder that the sandbox shows; the message names both."""
    course = tmp_path / "shown/course"
    (course / "submitted").mkdir(parents=True)
    require_hidden(course)
    monkeypatch.setattr("exercises.bubblewrap.binds", lambda: ((tmp_path / "shown", "/shown"),))
    monkeypatch.setattr("exercises.grade_course.require_bubblewrap", lambda: None)
    assert main([str(course)]) == 2
    assert f"{course} lies in {tmp_path}/shown, which student code" in capsys.readouterr().err
    # The same through a link.
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    (elsewhere / "submitted").symlink_to(course / "submitted")
    assert main([str(elsewhere)]) == 2
    assert capsys.readouterr().err.count(f"lies in {tmp_path}/shown") == 1


def test_what_root_keeps_to_itself_is_named_with_the_remedy(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An environment made under a strict umask, which a user of another number may not read."""
    kept = tmp_path / "torch"
    kept.mkdir(mode=0o700)
    monkeypatch.setattr("exercises.bubblewrap.binds", lambda: ((kept, "/torch"),))
    monkeypatch.setattr("exercises.bubblewrap.unprivileged_user", lambda: 0x1000000)
    with pytest.raises(SandboxMissing, match=f"may not read {kept}.* chmod -R a.rX {tmp_path}"):
        require_bubblewrap()


def test_a_sandbox_that_does_not_start_is_said_once(tmp_path: Path) -> None:
    """Before the first submission, with the reason; nothing is graded."""
    for student in ("ann", "bob"):
        folder = tmp_path / "course/submitted" / student / SET
        folder.mkdir(parents=True)
        (folder / f"{SET}.ipynb").write_bytes(hand_in())
    fake = tmp_path / "bwrap"
    works = 'case "$*" in *"-- /bin/true") exit;; esac'
    fake.write_text(f"#!/bin/sh\n{works}\necho no room >&2\nexit 1\n")
    fake.chmod(0o755)
    done = subprocess.run(
        [sys.executable, "-m", "exercises.grade_course", str(tmp_path / "course")], cwd=ROOT,
        env=os.environ | {"PATH": f"{tmp_path}:{os.environ['PATH']}"}, capture_output=True,
        text=True,
    )  # fmt: skip
    assert done.returncode == 2 and done.stdout == ""
    assert done.stderr.count("no room") == 1 and "did not start" in done.stderr
    assert done.stderr.count("\n") < 5 and not (tmp_path / "course/gradebook.db").exists()
