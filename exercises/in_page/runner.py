"""Run an answer in the page, and say what the notebook's check says of it.

The check is the notebook's own, with its values, over the small tensor that stands in for torch.
"""

from __future__ import annotations

import functools
import importlib
import io
import json
import linecache
from contextlib import redirect_stdout
from pathlib import Path

import torch

ANSWER = "<your answer>"
MOST = 20_000  # characters that an answer may print
HERE = Path(__file__).parent
torch.KNOWN = json.loads((HERE / "known.json").read_text(encoding="utf-8"))
judged = importlib.import_module("pe_course.judge.exercise")
recorded = importlib.import_module("pe_course.judge.recorded")


@functools.cache
def find(name):
    """Return the check of a name."""
    return recorded.Recorded(json.loads((HERE / f"{name}.json").read_text(encoding="utf-8")))


class Printed(io.StringIO):
    """What an answer prints, up to a length."""

    def write(self, text):
        room = MOST - self.tell()
        if 0 < room < len(text):
            text = text[:room] + "\n... and more\n"
        return super().write(text) if room > 0 else len(text)


def check(name, source, busy=lambda now: None):
    """Return whether an answer is right, what the check says, and what the answer printed.

    Args:
        name: of the exercise, and of the function that the answer defines.
        source: the answer.
        busy: told when the answer begins to run, and when it ends.
    """
    exercise = find(name)
    space = {"__name__": "__main__", "torch": torch, "math": importlib.import_module("math")}
    printed = Printed()
    linecache.cache[ANSWER] = (len(source), None, source.splitlines(keepends=True), ANSWER)
    judged.FOUND.clear()

    def run(function, *args):
        busy(True)
        try:
            with redirect_stdout(printed):
                return function(*args)
        finally:
            busy(False)

    with redirect_stdout(io.StringIO()) as said, judged.told():
        exec(exercise.stored["given"], space)
        run(exec, compile(source, ANSWER, "exec"), space)
        if name not in space:
            raise NameError(f"name '{name}' is not defined")
        answer = space[name]
        exercise((lambda *args: run(answer, *args)) if callable(answer) else answer)
    right = judged.FOUND.get(name, (False,))[0]
    words = said.getvalue().strip()
    if "torch.NotHere: " in words:  # which says nothing against the answer
        words = words.replace("Not yet: ", "Not checked: ", 1)
    return {"right": right, "said": words, "printed": printed.getvalue()}
