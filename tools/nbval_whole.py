"""A pytest plugin: what nbval leaves out, compared in the run that nbval makes anyway.

nbval compares the text that each cell prints. After the last cell of a notebook two more tests look
at the same run: one compares the pictures, the frames of widgets and all else that is stored, one
holds the processor seconds of the kernel against the budget (option `notebook_seconds`).
"""

from __future__ import annotations

import copy
from typing import Any

import nbformat
import nbval.kernel
import nbval.plugin
import psutil
import pytest
from nbclient import NotebookClient
from nbval.plugin import IPyNbCell, IPyNbFile

from tools import forked_kernel, refresh
from tools.red import NotThere

RUN = pytest.StashKey["Run"]()
NO_KERNEL: list[str] = []  # why none starts here
# Seconds until a message on its way is given up. nbval allows five, less than a kernel may wait
# for a processor beside other programs.
OUTPUT_TIMEOUT = 60
start_new_kernel = nbval.kernel.start_new_kernel


class Run:
    """What a kernel gives while nbval runs a notebook, cell by cell."""

    def __init__(self, file: IPyNbFile) -> None:
        self.stored = nbformat.read(file.path, as_version=4)
        self.fresh = copy.deepcopy(self.stored)
        self.client = NotebookClient(self.fresh, store_widget_state=True)
        self.missing = {cell.id: cell for cell in self.fresh.cells if cell.cell_type == "code"}
        self.process = psutil.Process(file.kernel.km.provisioner.process.pid)
        self.get_message = file.kernel.get_message
        file.kernel.get_message = self.listen

    def listen(self, stream: str, timeout: float | None = None) -> dict[str, Any]:
        """Pass a message on to nbval, and keep what it says about widgets, which nbval drops."""
        message = self.get_message(stream, timeout=timeout)
        if message["msg_type"].startswith("comm_"):
            self.client.handle_comm_msg([], message, 0)
        return message

    def add(self, item: IPyNbCell) -> None:
        """Keep what a cell gave."""
        self.missing.pop(item.cell.id).outputs = nbformat.from_dict(item.test_outputs or [])

    def differences(self) -> list[str]:
        """Return what differs from the file, and what should not be stored."""
        self.client.set_widgets_metadata()
        fresh = refresh.normalise(self.fresh)
        return [*refresh.complaints(fresh), *refresh.differences(self.stored, fresh)]

    def seconds(self) -> float:
        """Return the processor seconds of the kernel and of the processes that it ended."""
        times = self.process.cpu_times()
        return times.user + times.system + times.children_user + times.children_system


class WholeRun(pytest.Item):
    """A test on the run of a whole notebook."""

    def run_of_all_cells(self) -> Run:
        run = self.parent.stash.get(RUN, None)
        if run is None or run.missing:
            pytest.fail("not every cell of the notebook ran")
        return run

    def reportinfo(self):
        return self.path, 0, f"{self.path.name}::{self.name}"


class SameAsStored(WholeRun):
    """Pictures, frames and widgets are those of the file."""

    def runtest(self) -> None:
        found = self.run_of_all_cells().differences()
        if found:
            pytest.fail("\n".join(found), pytrace=False)


class WithinBudget(WholeRun):
    """The kernel used no more processor seconds than a notebook may."""

    def runtest(self) -> None:
        seconds, budget = self.run_of_all_cells().seconds(), self.config.getini("notebook_seconds")
        if seconds > float(budget):
            pytest.fail(f"{seconds:.1f} processor seconds, {budget} are allowed", pytrace=False)


def start_kernel(*arguments: Any, **options: Any) -> Any:
    """Start a kernel as a fork; what did not start once is not tried again."""
    if not NO_KERNEL:
        try:
            return forked_kernel.forked()(start_new_kernel)(*arguments, **options)
        except Exception as error:
            NO_KERNEL.append(f"{type(error).__name__}: {error}")
    raise NotThere(f"no notebook can run: no kernel starts\n{NO_KERNEL[0]}")


def pytest_configure() -> None:
    """Fork nbval's kernels, and keep coverage out of them: a tracer slows them."""
    nbval.plugin.setup_coverage = nbval.plugin.teardown_coverage = lambda *arguments: None
    nbval.kernel.start_new_kernel = start_kernel


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addini("notebook_seconds", "processor seconds that a notebook may take", default="60")


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Put the two tests behind the last cell of each notebook."""
    last = {item.parent: index for index, item in enumerate(items) if isinstance(item, IPyNbCell)}
    for file, index in sorted(last.items(), key=lambda entry: -entry[1]):
        items[index + 1 : index + 1] = [
            SameAsStored.from_parent(file, name="the pictures and widgets"),
            WithinBudget.from_parent(file, name="the processor seconds"),
        ]


@pytest.hookimpl(wrapper=True)
def pytest_runtest_call(item: pytest.Item):
    """Listen to the kernel from the first cell on."""
    if not isinstance(item, IPyNbCell):
        return (yield)
    if RUN not in item.parent.stash:
        item.parent.stash[RUN] = Run(item.parent)
    item.output_timeout = OUTPUT_TIMEOUT
    try:
        return (yield)
    finally:
        item.parent.stash[RUN].add(item)
