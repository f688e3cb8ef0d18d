"""The sandbox that bubblewrap makes for one submission: what it can read and cannot reach."""

from __future__ import annotations

import functools
import importlib.metadata
import os
import re
import shutil
import subprocess
import sys
import sysconfig
from collections.abc import Iterator
from pathlib import Path

from exercises.syscalls import SandboxMissing, program

HERE = Path(__file__).parent
INSIDE = HERE / "inside"
LENT = ("torch", "numpy", "matplotlib", "ipython")  # distributions, with what they need
# Where they are installed: what people who know the field write tensors with.
LENT_IF_HERE = ("scipy", "einops", "pandas", "tqdm")
STAND_INS = {
    "not_lent.py": ("exercises/__init__.py", "pe_lib/__init__.py"),
    "checks.py": ("exercises/checks.py", "pe_lib/checks.py"),
}
# Not all of /usr: courses, exchanges and sources stand below /usr/local, /usr/share and /usr/src.
SYSTEM = (
    "/usr/bin", "/usr/lib", "/usr/lib64", "/usr/lib32", "/lib", "/lib64", "/lib32", "/bin",
    "/etc/ld.so.cache",
)  # fmt: skip
SCRATCH = ("/tmp", "/dev/shm")


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
def lent_names() -> tuple[str, ...]:
    """Return the distributions that students can import here."""
    return (*LENT, *(name for name in LENT_IF_HERE if required((name,))))


def top_names(distribution: importlib.metadata.Distribution) -> set[str]:
    """Return the names that a distribution has put into site-packages."""
    record = distribution.read_text("RECORD")
    if record is None:
        return {file.parts[0] for file in distribution.files or ()}
    return {line.split(",")[0].split("/")[0].strip('"') for line in record.splitlines()}


@functools.cache
def lent_paths() -> tuple[Path, ...]:
    """Return the files and folders of the lent distributions, in site-packages."""
    paths: set[Path] = set()
    for name in required((*LENT, *LENT_IF_HERE)):
        distribution = importlib.metadata.distribution(name)
        for top in top_names(distribution) - {"", "..", "__pycache__"}:
            paths.add(Path(str(distribution.locate_file(top))))
    return tuple(sorted(path for path in paths if path.exists()))


def interpreter_paths() -> Iterator[Path]:
    """Yield the standard library, the program and its shared library, where they stand."""
    yield Path(sysconfig.get_path("stdlib"))
    yield Path(sys.executable).resolve()
    for folder in (sysconfig.get_config_var("LIBDIR"), f"{sys.base_prefix}/lib"):
        for key in ("LDLIBRARY", "INSTSONAME"):
            yield Path(str(folder)) / str(sysconfig.get_config_var(key))


@functools.cache
def binds() -> tuple[tuple[Path, str], ...]:
    """Return (path outside, path inside) of all that the sandbox can read, in order."""
    read = [Path(path) for path in SYSTEM]
    for path in dict.fromkeys(interpreter_paths()):
        if not any(path.is_relative_to(folder) for folder in read):
            read.append(path)
    # Lazily imported parts of torch are looked for where the zygote has found the others.
    pairs = [(path, str(path)) for path in (*read, *lent_paths()) if os.path.exists(path)]
    for name, places in STAND_INS.items():
        pairs += [(INSIDE / name, f"/inside/{place}") for place in places]
    return tuple(pairs)


def packages_of_the_interpreter() -> list[Path]:
    """Return folders of installed packages that lie inside a bound standard library."""
    stdlib = Path(sysconfig.get_path("stdlib"))
    folders = (stdlib / "site-packages", stdlib / "dist-packages")
    return [folder for folder in folders if folder.is_dir()]


def require_hidden(*folders: Path) -> None:
    """Raise ValueError for a folder that student code could read."""
    readable = [path.resolve() for path, _ in binds() if path.is_dir()]
    for folder in folders:
        for place in readable:
            if folder.resolve().is_relative_to(place):
                raise ValueError(
                    f"{folder.resolve()} lies in {place}, which student code can read; "
                    "move it elsewhere, for instance to /home or /srv"
                )


def command(scratch: int, user: int) -> list[str]:
    """Return the bubblewrap command, up to the program.

    Args:
        scratch: bytes that the files of a scratch folder may have.
        user: the unprivileged user number that student code will get, or 0 if this process has
            no right to hand one out.
    """
    words = ["bwrap", "--die-with-parent", "--new-session", "--clearenv", "--hostname", "sandbox"]
    words += ["--unshare-pid", "--unshare-net", "--unshare-ipc", "--unshare-uts"]
    words += ["--unshare-cgroup-try", "--cap-drop", "ALL"]
    # As root, a real unprivileged user is safer than a namespace that maps root, for which
    # the kernel does not count processes.
    words += [] if user else ["--unshare-user"]
    words += ["--proc", "/proc", "--dev", "/dev"]
    for place in SCRATCH:
        words += ["--perms", "1777", "--size", str(scratch), "--tmpfs", place]
    made = {Path("/dev"), *map(Path, SCRATCH)}
    hidden = packages_of_the_interpreter()
    read_only = [*map(str, hidden), "/dev", "/"]
    # After the scratch folders, since the environment may lie below one of them.
    for outside, inside in binds():
        # bubblewrap makes missing parents with rights for their owner alone.
        for parent in reversed(Path(inside).parents[:-1]):
            if parent not in made and not any(map(parent.is_relative_to, SYSTEM)):
                kind = "--dir"
                if str(parent.parent) in SCRATCH:  # of its own, to be read and no more
                    kind = "--tmpfs"
                    read_only.append(str(parent))
                words += ["--perms", "0755", kind, str(parent)]
                made.add(parent)
        words += ["--ro-bind", str(outside), inside]
        for folder in hidden:
            if folder.parent == outside:
                words += ["--perms", "0755", "--tmpfs", str(folder)]
    for place in read_only:
        words += ["--remount-ro", place]
    return words


# Nothing of the grader's own environment: the first process of a sandbox shows what it was given.
ENVIRONMENT = {
    "PATH": "/usr/bin:/bin", "HOME": "/tmp", "LANG": "C.UTF-8", "OMP_NUM_THREADS": "1",
    "MPLBACKEND": "Agg", "IPYTHONDIR": "/tmp/.ipython", "PYTHONHASHSEED": "0",
}  # fmt: skip


def unprivileged_user() -> int:
    """Return a user number that nothing else has, if this process is root; 0 otherwise."""
    return 0x1000000 + int.from_bytes(os.urandom(3), "big") if os.geteuid() == 0 else 0


ADVICE = (
    "Student code is not run without it. On Debian or Ubuntu: apt-get install bubblewrap "
    "libseccomp2. On macOS or a host that forbids namespaces, grade on a Linux machine or in "
    "a virtual one."
)


def kept_to_the_owner() -> Iterator[Path]:
    """Yield what the sandbox shows and another user may not read."""
    for path, _ in binds():
        needed = 0o005 if path.is_dir() else 0o004
        if path.stat().st_mode & needed != needed:
            yield path


def require_bubblewrap() -> None:
    """Raise SandboxMissing, with what to do, if bubblewrap is not here or may not work."""
    if shutil.which("bwrap") is None:
        raise SandboxMissing(f"bubblewrap (the program bwrap) is not installed. {ADVICE}")
    try:
        program()
    except SandboxMissing as error:
        raise SandboxMissing(f"{error} {ADVICE}") from error
    user = unprivileged_user()
    if user and (shut := next(kept_to_the_owner(), None)):
        raise SandboxMissing(
            f"student code, which root gives a user number of its own, may not read {shut}. "
            f"Let everybody read it and what is beside it: chmod -R a+rX {shut.parent}"
        )
    test = [*command(1 << 20, user), "--", "/bin/true"]
    done = subprocess.run(test, capture_output=True, text=True, timeout=60, check=False)
    if done.returncode:
        raise SandboxMissing(f"bubblewrap does not work here: {done.stderr.strip()}. {ADVICE}")
