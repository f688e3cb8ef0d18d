"""The system calls that a student's code may not make, as a filter for bubblewrap.

Namespaces hide other processes, files and networks, and resource limits bound what is counted.
What remains are calls for memory that no limit counts, sockets that leave a namespace (a
virtual machine's vsock does), and parts of the kernel that answers never need and holes were
found in.
"""

from __future__ import annotations

import errno
import functools
import os
import tempfile

DENIED = (
    *("memfd_create", "memfd_secret", "shmget", "msgget", "semget", "mq_open"),
    *("socket", "socketpair", "io_uring_setup"),
    *("unshare", "setns", "mount", "umount2", "pivot_root", "fsopen", "open_tree", "move_mount"),
    *("ptrace", "process_vm_readv", "process_vm_writev", "pidfd_getfd", "kcmp"),
    *("add_key", "request_key", "keyctl", "bpf", "perf_event_open", "userfaultfd"),
    *("sched_setaffinity",),  # each submission stays on its processor
    *("inotify_init", "inotify_init1", "fanotify_init"),  # they tell what others open
    *("open_by_handle_at", "name_to_handle_at", "personality"),
)
CLONE_NEWUSER = 0x10000000


class SandboxMissing(RuntimeError):
    """Untrusted code cannot be run safely on this machine."""


@functools.cache
def program() -> bytes:
    """Return the filter as the kernel reads it.

    Raises:
        SandboxMissing: if libseccomp is not installed.
    """
    try:
        import pyseccomp
    except RuntimeError as error:
        raise SandboxMissing("the library libseccomp is not installed.") from error
    rules = pyseccomp.SyscallFilter(pyseccomp.ALLOW)
    for name in DENIED:
        rules.add_rule(pyseccomp.ERRNO(errno.EPERM), name)
    # clone hands out namespaces too; clone3 hides its flags from a filter, so that C libraries
    # are sent back to clone.
    new_user = pyseccomp.Arg(0, pyseccomp.MASKED_EQ, CLONE_NEWUSER, CLONE_NEWUSER)
    rules.add_rule(pyseccomp.ERRNO(errno.EPERM), "clone", new_user)
    rules.add_rule(pyseccomp.ERRNO(errno.ENOSYS), "clone3")
    with tempfile.TemporaryFile() as file:
        rules.export_bpf(file)
        file.seek(0)
        return file.read()


def filter_pipe() -> int:
    """Return the end of a pipe from which bubblewrap reads the filter."""
    read_end, write_end = os.pipe()
    with os.fdopen(write_end, "wb") as pipe:
        pipe.write(program())
    return read_end
