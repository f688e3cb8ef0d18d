"""Run an answer in the page, and say what the notebook's check says of it.

The check is the notebook's own, with its draws, over the small tensor that stands in for torch.
"""

from __future__ import annotations

import dataclasses
import functools
import importlib
import io
import json
import time
from array import array
from base64 import b64decode
from contextlib import redirect_stdout
from pathlib import Path

import torch

ANSWER = "<your answer>"
MOST = 20_000  # characters that an answer may print
HERE = Path(__file__).parent
torch.KNOWN = json.loads((HERE / "known.json").read_text(encoding="utf-8"))


def value(stored):
    """Return an argument: a tensor, a tuple, or what JSON has."""
    if not isinstance(stored, dict):
        return stored
    if "tuple" in stored:
        return tuple(map(value, stored["tuple"]))
    kind = next(each for each in torch.TYPES if each.name == stored["dtype"])
    return torch.Tensor(array(kind.code, b64decode(stored["data"])), stored["shape"], kind)


def mark(given):
    """Return what tells an argument from another."""
    if isinstance(given, torch.Tensor):
        return given.shape, given._flat().tobytes()
    return tuple(map(mark, given)) if isinstance(given, list | tuple) else given


def remembered(function):
    """Return a function that answers at once what it has been asked before."""
    answers = {}

    def call(*args):
        key = mark(args)
        if key not in answers:
            answers[key] = function(*args)
        return answers[key]

    return call


@functools.cache
def find(name):
    """Return the exercise of a name, with its draws."""
    known = json.loads((HERE / f"{name}.json").read_text(encoding="utf-8"))
    module = importlib.import_module(f"exercises.checks.{known['module']}")
    case = importlib.import_module("pe_course.judge.exercise").Case
    cases = [case(label, tuple(map(value, args)), room) for label, args, room in known["cases"]]
    exercise = next(each for each in module.EXERCISES if each.name == name)
    changes = {
        "cases": lambda draw: cases,
        "reference": remembered(exercise.reference),
        "mistakes": tuple(
            each._replace(function=remembered(each.function)) for each in exercise.mistakes
        ),
    }
    return dataclasses.replace(exercise, **changes), known["given"]


def seconds(name):
    """Return how long the right answer takes."""
    exercise, _ = find(name)
    start = time.perf_counter()
    for case in exercise.cases(None):
        exercise.reference(*case.args)
    return time.perf_counter() - start


class Printed(io.StringIO):
    """What an answer prints, up to a length."""

    def write(self, text):
        room = MOST - self.tell()
        if 0 < room < len(text):
            text = text[:room] + "\n... and more\n"
        return super().write(text) if room > 0 else len(text)


def line_of(error):
    """Return the last line of the answer that an error went through, or nothing."""
    found = error.lineno if isinstance(error, SyntaxError) and error.filename == ANSWER else None
    trace = error.__traceback__
    while trace is not None:
        if trace.tb_frame.f_code.co_filename == ANSWER:
            found = trace.tb_lineno
        trace = trace.tb_next
    return found


def words_of(error):
    """Return what a notebook shows last of an error, and in which line of the answer it arose."""
    text = error.msg if isinstance(error, SyntaxError) else str(error)
    line, notes = line_of(error), getattr(error, "__notes__", [])
    shown = (getattr(error, "text", None) or "").strip()  # of what is no Python
    where = f" (line {line}{f': {shown}' if shown else ''})" if line else ""
    return "\n".join([f"{type(error).__name__}: {text}{where}", *notes])


def check(name, source, busy=lambda now: None):
    """Return whether an answer is right, what the check says, and what the answer printed.

    Args:
        name: of the exercise, and of the function that the answer defines.
        source: the answer.
        busy: told when the answer begins to run, and when it ends.
    """
    exercise, given = find(name)
    space = {"__name__": "__main__", "torch": torch, "math": importlib.import_module("math")}
    printed = Printed()

    def run(function, *args):
        busy(True)
        try:
            with redirect_stdout(printed):
                return function(*args)
        finally:
            busy(False)

    said = io.StringIO()
    try:
        exec(given, space)
        run(exec, compile(source, ANSWER, "exec"), space)
        if name not in space:
            raise NameError(f"name '{name}' is not defined")
        answer = space[name]
        with redirect_stdout(said):
            exercise((lambda *args: run(answer, *args)) if callable(answer) else answer)
        right = True
    except BaseException as error:  # an answer may also ask to exit
        right = False
        show = getattr(error, "_render_traceback_", None)
        said.write("\n".join(show()) if show else words_of(error))
    return {"right": right, "said": said.getvalue().strip(), "printed": printed.getvalue()}
