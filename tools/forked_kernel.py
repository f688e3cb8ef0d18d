"""Kernels as forks of one process that has loaded what every notebook loads.

To load it takes longer than many a notebook computes. A fork has modules that are loaded already
and nothing else of another notebook: no names, no figures. Elsewhere than on Linux kernels start
as they always do.
"""

from __future__ import annotations

import multiprocessing
import os
import signal
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from multiprocessing import forkserver
from pathlib import Path
from typing import Any
from unittest import mock

from jupyter_client.provisioning import local_provisioner

from tools import ROOT

LOADED = ["ipykernel.kernelapp", "ipywidgets", "matplotlib.pyplot", "scipy.optimize"]
LOADED += ["torch._dynamo"]  # an optimizer would load it at its first step
SERVER = forkserver.ForkServer()  # beside the one that graders fork from
# A kernel chooses it when it starts; matplotlib reads it when it is loaded.
BACKEND = {"MPLBACKEND": "module://matplotlib_inline.backend_inline"}


def is_installed(path: str) -> bool:
    """Return whether a place for modules belongs to Python or to its environment."""
    return any(Path(path).is_relative_to(prefix) for prefix in (sys.prefix, sys.base_prefix))


# Now: what pytest has added does not belong to Python, and some modules add folders later. Last,
# what the editable installation adds.
INSTALLED = [*filter(is_installed, sys.path), str(ROOT)]


class Fork:
    """A forked kernel, with that part of `subprocess.Popen` which Jupyter's client uses."""

    stdin = stdout = stderr = None

    def __init__(self, arguments: list[str], folder: str, env: dict[str, str]) -> None:
        context = multiprocessing.get_context("forkserver")
        self.process = context.Process(target=run, args=(arguments, folder, env, INSTALLED))
        SERVER.set_forkserver_preload(LOADED)
        connect = mock.patch.object(
            forkserver, "connect_to_new_process", SERVER.connect_to_new_process
        )
        with connect, mock.patch.dict(os.environ, BACKEND):  # of the process that is forked
            self.process.start()
        self.pid = self.process.pid or 0
        while self.process.is_alive() and os.getpgid(self.pid) != self.pid:
            time.sleep(0.01)  # or a signal to its group would be one to the group of the tests

    def poll(self) -> int | None:
        return self.process.exitcode

    def wait(self) -> int | None:
        self.process.join()
        return self.process.exitcode

    def send_signal(self, signum: int) -> None:
        os.kill(self.pid, signum)

    def terminate(self) -> None:
        self.send_signal(signal.SIGTERM)

    def kill(self) -> None:
        self.send_signal(signal.SIGKILL)


def run(arguments: list[str], folder: str, env: dict[str, str], installed: list[str]) -> None:
    """Be a kernel, as `python -m ipykernel_launcher` with these arguments is one."""
    import numpy as np
    import torch
    from ipykernel import kernelapp

    os.setsid()
    torch.seed()  # each kernel's own, as long as no cell sets them
    np.random.seed()  # noqa: NPY002
    os.chdir(folder)
    os.environ.clear()
    os.environ.update(env | BACKEND)
    named = filter(None, env.get("PYTHONPATH", "").split(os.pathsep))
    sys.path[:] = [*named, *installed]
    # It ends with the process that it was forked from.
    ends = f"--IPKernelApp.parent_handle={os.getppid()}"
    sys.argv = ["ipykernel_launcher", *arguments]
    kernelapp.launch_new_instance(argv=[*arguments, ends])


def launch(command: list[str], env: dict[str, str], cwd: str = ".", **_: Any) -> Fork:
    """Start the kernel that a command of Jupyter names."""
    return Fork(command[command.index("-f") :], cwd, env)


@contextmanager
def forked() -> Iterator[None]:
    """Fork the kernels that start meanwhile."""
    if sys.platform != "linux":
        yield
        return
    with mock.patch.object(local_provisioner, "launch_kernel", launch):
        yield
