"""Imports PyTorch and IPython once, and forks for each submission into a fresh sandbox.

It runs no student's code and holds no secret: what it forks may look at all of its memory. It
runs outside of the sandboxes, with the rights of the grader, which each child gives up for good
before it reads the first cell.
"""

import contextlib
import ctypes
import fcntl
import gc
import importlib
import importlib.abc
import json
import os
import resource
import socket
import sys
import traceback
from importlib.machinery import PathFinder

CLONE_FLAGS = {  # name in /proc/PID/ns, flag
    "mnt": 0x00020000, "cgroup": 0x02000000, "uts": 0x04000000, "ipc": 0x08000000,
    "pid": 0x20000000, "net": 0x40000000,
}  # fmt: skip
CLONE_NEWUSER = 0x10000000
NS_GET_PARENT = 0xB702
PR_SET_DUMPABLE, PR_SET_SECCOMP, PR_CAPBSET_DROP, PR_SET_CHILD_SUBREAPER = 4, 22, 24, 36
PR_SET_NO_NEW_PRIVS, PR_CAP_AMBIENT = 38, 47
SECCOMP_MODE_FILTER, PR_CAP_AMBIENT_CLEAR_ALL, CAPABILITY_VERSION_3 = 2, 4, 0x20080522
REQUESTS, ANSWERS = 3, 4  # the two ends of the grader's pipes in each child

libc = ctypes.CDLL(None, use_errno=True)


def call(name: str, *args: object) -> None:
    """Call a function of the C library; raise OSError if it fails."""
    if getattr(libc, name)(*args) < 0:
        number = ctypes.get_errno()
        raise OSError(number, f"{name}: {os.strerror(number)}")


class OnlyLent(importlib.abc.MetaPathFinder):
    """Finds what is lent and no other package, as inside: torch imports more if it can."""

    def __init__(self, lent: list[str]) -> None:
        """Take the names of the lent modules."""
        self.names = {*sys.stdlib_module_names, *lent, "runner", "wire"}

    def find_spec(self, name: str, path: object = None, target: object = None) -> object:
        """Find a module on the path if it may be found."""
        top = name.partition(".")[0]
        found = top in self.names or top.startswith("_sysconfigdata")  # which no list has
        return PathFinder.find_spec(name, path, target) if found else None


def preload(lent: list[str]) -> None:
    """Import what students use and what serves them, as it is found inside."""
    finders = list(sys.meta_path)
    only = OnlyLent(lent)
    sys.meta_path[:] = [only if finder is PathFinder else finder for finder in finders]
    gc.disable()  # a tenth faster
    importlib.import_module("runner")
    sys.modules["torch"].set_num_threads(1)
    sys.meta_path[:] = finders
    gc.enable()
    gc.collect()
    gc.freeze()  # so that collecting does not touch, and thereby copy, what children share


def user_namespaces(pid: int) -> list[int]:
    """Return the user namespaces of a process that are not ours, the outermost first."""
    own = os.stat("/proc/self/ns/user").st_ino
    found = [os.open(f"/proc/{pid}/ns/user", os.O_RDONLY)]
    while os.fstat(found[0]).st_ino != own:
        found.insert(0, fcntl.ioctl(found[0], NS_GET_PARENT))
    return found[1:]


def enter(pid: int) -> None:
    """Join the namespaces of the process `pid`; processes started from now on are in its own."""
    users = user_namespaces(pid)
    others = {}
    for name, flag in CLONE_FLAGS.items():
        namespace = os.open(f"/proc/{pid}/ns/{name}", os.O_RDONLY)
        if os.fstat(namespace).st_ino != os.stat(f"/proc/self/ns/{name}").st_ino:
            others[flag] = namespace
    # bubblewrap makes two user namespaces, and the others belong to the outer one.
    for namespace in users[:1]:
        call("setns", namespace, CLONE_NEWUSER)
    for flag, namespace in others.items():
        call("setns", namespace, flag)
    for namespace in users[1:]:
        call("setns", namespace, CLONE_NEWUSER)


def give_up_rights(user: int) -> None:
    """Become an unprivileged user if there is a number for one, and lose all capabilities."""
    for capability in range(64):
        if libc.prctl(PR_CAPBSET_DROP, capability, 0, 0, 0) < 0:
            break
    if user:
        os.setgroups([])
        os.setresgid(user, user, user)
        os.setresuid(user, user, user)
    call("prctl", PR_CAP_AMBIENT, PR_CAP_AMBIENT_CLEAR_ALL, 0, 0, 0)
    header = (ctypes.c_uint32 * 2)(CAPABILITY_VERSION_3, 0)
    call("capset", header, (ctypes.c_uint32 * 6)())
    # An ordinary user's own files in /proc belong to root after setns.
    call("prctl", PR_SET_DUMPABLE, 0 if user else 1, 0, 0, 0)
    call("prctl", PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0)


class Filter(ctypes.Structure):
    """How the kernel takes a filter of system calls: struct sock_fprog."""

    _fields_ = (("length", ctypes.c_ushort), ("instructions", ctypes.c_char_p))


def filter_calls(program: bytes) -> None:
    """Load a filter of system calls, for good."""
    loaded = Filter(len(program) // 8, program)
    call("prctl", PR_SET_SECCOMP, SECCOMP_MODE_FILTER, ctypes.byref(loaded), 0, 0)


def move_ends(ends: list[int]) -> None:
    """Put (requests, answers, output) where the runner expects them, and close all else."""
    nothing = os.open("/dev/null", os.O_RDONLY)
    high = [fcntl.fcntl(end, fcntl.F_DUPFD, 100) for end in (nothing, *ends)]
    for end, place in zip(high, (0, REQUESTS, ANSWERS, 1), strict=True):
        os.dup2(end, place)
    os.dup2(1, 2)
    for name in os.listdir("/proc/self/fd"):
        if int(name) > ANSWERS:
            with contextlib.suppress(OSError):  # the listing's own
                os.close(int(name))


def mapped() -> int:
    """Return the bytes of address space that this process has."""
    with open("/proc/self/statm") as file:
        return int(file.read().split()[0]) * resource.getpagesize()


def become(request: dict, ends: list[int], program: bytes) -> None:
    """Be the process of one submission, in the sandbox of process `request["first"]`."""
    # A PyTorch built for graphics cards by itself maps more than a submission may.
    request["limits"]["RLIMIT_AS"] += mapped()
    move_ends(ends)
    with open("/proc/self/oom_score_adj", "w") as file:
        file.write("1000")  # the first to go when the computer's memory is short
    enter(request["first"])
    if os.fork():
        return  # only a child is in the sandbox's namespace of processes
    os.closerange(ANSWERS + 1, 64)  # the namespaces
    os.setsid()  # or a signal to its own group would reach the zygote
    os.chdir("/tmp")
    os.sched_setaffinity(0, {request["processor"]})
    give_up_rights(request["user"])
    for name, limit in request["limits"].items():
        resource.setrlimit(getattr(resource, name), (limit, limit))
    filter_calls(program)
    sys.modules["runner"].serve(REQUESTS, ANSWERS)


def fork(request: dict, ends: list[int], program: bytes) -> None:
    """Start the process of one submission; what goes wrong is said at the end for its output."""
    if len(os.listdir("/proc/self/task")) != 1:
        raise RuntimeError("only a process with a single thread may fork")
    child = os.fork()
    if child == 0:
        try:
            become(request, ends, program)
        except BaseException:
            os.write(2, traceback.format_exc().encode())
        finally:
            os._exit(0)
    os.waitpid(child, 0)


def reap() -> None:
    """Take note of the processes that have ended."""
    try:
        while os.waitpid(-1, os.WNOHANG)[0]:
            pass
    except ChildProcessError:
        pass


def main() -> None:
    """Serve the grader on the socket it has left open, until the grader is gone."""
    control = socket.socket(fileno=int(sys.argv[1]))
    setup = json.loads(control.makefile("rb").readline())
    sys.path[:] = [*setup["own"], *setup["standard"], *setup["packages"]]
    preload(setup["lent"])
    sys.path[:] = ["/inside", *setup["standard"], *setup["packages"]]
    sys.path_importer_cache.clear()
    sys.argv[:] = [""]
    call("prctl", PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)  # the processes of sandboxes end up here
    while True:
        control.sendall(b"\n")
        message, ends, _, _ = socket.recv_fds(control, 1 << 16, 3)
        if not message:
            return
        fork(json.loads(message), ends, bytes.fromhex(setup["filter"]))
        for end in ends:
            os.close(end)
        reap()


main()
