"""A pytest plugin: what nbval leaves out, compared in the run that nbval makes anyway.

nbval compares the text that each cell gives. After the last cell of a notebook one more test
compares what else is stored of the same run: pictures, the frames of widgets, alt texts.
"""

from __future__ import annotations

import base64
import copy
import io
import re
from collections.abc import Iterator
from typing import Any

import nbformat
import numpy as np
import pytest
from nbclient import NotebookClient
from nbval.plugin import IPyNbCell, IPyNbFile
from PIL import Image

from tools import refresh

OUTPUT_TIMEOUT = 60  # seconds for a message of the kernel; nbval's five are few on a busy machine
PNG = re.compile(r"iVBORw0KGgo[A-Za-z0-9+/=\n]*")  # base64, by itself or in the HTML of a widget
# A pixel differs when a channel is off by more than LEVELS; a picture when SHARE of them are.
LEVELS = 32
SHARE = 0.002
RUN = pytest.StashKey["Run"]()


def picture_difference(stored: str, fresh: str) -> str | None:
    """Compare two base64 pictures by their pixels; None if they are alike."""
    left, right = (
        np.asarray(Image.open(io.BytesIO(base64.b64decode(data))).convert("RGBA"), dtype=np.int16)
        for data in (stored, fresh)
    )
    if left.shape != right.shape:
        return f"size {left.shape[1]}x{left.shape[0]} became {right.shape[1]}x{right.shape[0]}"
    share = float((np.abs(left - right).max(axis=-1) > LEVELS).mean())
    return f"{share:.2%} of the pixels differ" if share > SHARE else None


def differences(stored: Any, fresh: Any, place: str = "") -> Iterator[str]:
    """Yield where two parts of a notebook differ, pictures by their pixels."""
    if isinstance(stored, dict) and isinstance(fresh, dict) and stored.keys() == fresh.keys():
        for key in stored:
            if key != "execution_count":
                yield from differences(stored[key], fresh[key], f"{place} {key}")
    elif isinstance(stored, list) and isinstance(fresh, list) and len(stored) == len(fresh):
        for number, (old, new) in enumerate(zip(stored, fresh, strict=True)):
            yield from differences(old, new, f"{place} {number}")
    elif isinstance(stored, str) and isinstance(fresh, str) and PNG.search(stored):
        yield from differences(PNG.split(stored), PNG.split(fresh), place)
        for old, new in zip(PNG.findall(stored), PNG.findall(fresh), strict=False):
            if difference := picture_difference(old, new):
                yield f"{place}: {difference}"
    elif stored != fresh:
        yield f"{place}: {str(stored)[:200]!r} became {str(fresh)[:200]!r}"


class Run:
    """What a kernel gives while nbval runs a notebook, cell by cell."""

    def __init__(self, file: IPyNbFile) -> None:
        self.stored = nbformat.read(file.path, as_version=4)
        self.fresh = copy.deepcopy(self.stored)
        self.client = NotebookClient(self.fresh, store_widget_state=True)
        self.missing = {cell.id: cell for cell in self.fresh.cells if cell.cell_type == "code"}
        self.get_message = file.kernel.get_message
        file.kernel.get_message = self.listen

    def listen(self, stream: str, timeout: float | None = None) -> dict[str, Any]:
        """Pass a message on to nbval, and keep what it says about widgets, which nbval drops."""
        message = self.get_message(stream, timeout=timeout)
        if message["msg_type"].startswith("comm_"):
            self.client.handle_comm_msg([], message, 0)
        return message

    def differences(self) -> Iterator[str]:
        """Yield what differs from the file, and what should not be stored."""
        self.client.set_widgets_metadata()
        fresh = refresh.normalise(self.fresh)
        yield from refresh.complaints(fresh)
        for old, new in zip(self.stored.cells, fresh.cells, strict=True):
            yield from differences(old.get("outputs"), new.get("outputs"), f"cell {old.id}")
        yield from differences(self.stored.metadata, fresh.metadata, "metadata")


class PicturesAsStored(pytest.Item):
    """Pictures, frames and widgets are those of the file."""

    def runtest(self) -> None:
        run = self.parent.stash.get(RUN, None)
        if run is None or run.missing:
            pytest.fail("not every cell of the notebook ran", pytrace=False)
        if found := list(run.differences()):
            pytest.fail("\n".join(found), pytrace=False)

    def reportinfo(self):
        return self.path, 0, f"{self.path.name}::{self.name}"


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Put the test of the pictures behind the last cell of each notebook."""
    last = {item.parent: index for index, item in enumerate(items) if isinstance(item, IPyNbCell)}
    for file, index in sorted(last.items(), key=lambda entry: -entry[1]):
        items.insert(index + 1, PicturesAsStored.from_parent(file, name="pictures and widgets"))


@pytest.hookimpl(wrapper=True)
def pytest_runtest_call(item: pytest.Item):
    """Listen to the kernel from the first cell on."""
    if not isinstance(item, IPyNbCell):
        return (yield)
    if RUN not in item.parent.stash:
        item.parent.stash[RUN] = Run(item.parent)
    run, item.output_timeout = item.parent.stash[RUN], OUTPUT_TIMEOUT
    try:
        return (yield)
    finally:
        run.missing.pop(item.cell.id).outputs = nbformat.from_dict(item.test_outputs or [])
