"""A pytest plugin: a red run that can be read.

What many tests need is a fixture that raises `NotThere`: the first test that needs it fails with
the reason, and the others are left out. Failures are printed once for each cause, and cut; the
last lines say what failed and what to do. All of it, uncut, is in `_build/failures.txt`. With -v
or --tb pytest prints as it always does.
"""

from __future__ import annotations

import re
import shlex
import sys
import zlib
from dataclasses import dataclass, field
from pathlib import Path

import pytest

Report = pytest.TestReport | pytest.CollectReport
LINES, ALL_LINES = 60, 200  # printed of one failure, and of all together
CAUSES = 20  # named in the last lines
WIDTH = 500
NUMBER = re.compile(r"0x[0-9a-f]+|\d+(?:\.\d+)?(?:e[-+]?\d+)?")
WORKER = re.compile(r"^\[gw\d+\] .*\n", re.MULTILINE)
COLOUR = re.compile(r"\x1b\[[0-9;]*m")


class NotThere(Exception):
    """What many tests need does not work here: a line that says so, then why and what to do."""


try:
    pytest.fail("something is not there", pytrace=False)
except pytest.fail.Exception as failed:
    PLAIN = pytest.ExceptionInfo.from_exception(failed)


def is_first(config: pytest.Config, words: str) -> bool:
    """Return whether no process of this run has asked about these words before."""
    folder = config._tmp_path_factory.getbasetemp()
    if hasattr(config, "workerinput"):  # the folders of all workers lie in one
        folder = folder.parent
    try:
        (folder / f"said.{zlib.crc32(words.encode())}").touch(exist_ok=False)
    except FileExistsError:
        return False
    return True


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item: pytest.Item, call: pytest.CallInfo[None]):
    """Let the first test that lacks something fail, and leave out the others."""
    error = call.excinfo.value if call.excinfo is not None else None
    if not isinstance(error, NotThere):
        return (yield)
    call.excinfo = PLAIN  # whose traceback takes no time to print
    report = yield
    headline = str(error).partition("\n")[0]
    if is_first(item.config, headline):
        report.when, report.longrepr = "call", str(error)
    else:
        report.outcome = "skipped"
        report.longrepr = (__file__, 0, f"{headline}, as one failure says")
    return report


def words_of(report: Report) -> str:
    """Return what a report says, without colours and workers."""
    return WORKER.sub("", COLOUR.sub("", report.longreprtext))


def last_line(report: Report) -> str:
    """Return the line that says why something failed."""
    crash = getattr(report.longrepr, "reprcrash", None)
    text = crash.message if crash else words_of(report)
    lines = [line.strip() for line in text.splitlines() if line.strip()] or ["no words"]
    if crash:
        return lines[0][:WIDTH]
    if report.when == "call" and "Traceback:" not in lines:  # a headline, and what it means
        return " ".join(lines[:2])[:WIDTH]
    return lines[-1].removeprefix("E ").strip()[:WIDTH]


def cut(text: str, most: int) -> list[str]:
    """Return at most that many lines of a text: how it begins and, above all, how it ends."""
    lines = [line[:WIDTH] for line in text.splitlines()]
    if len(lines) <= most:
        return lines
    head, tail = most // 3, most - most // 3 - 1
    left_out = f"… {len(lines) - head - tail} lines …"
    return [*lines[:head], left_out, *lines[len(lines) - tail :]]


@dataclass
class Cause:
    """Why tests failed: the line that says it, what the first of them says, and their names."""

    why: str
    words: str
    tests: list[str] = field(default_factory=list)


class Failures:
    """What failed in this run, by cause."""

    def __init__(self, full: Path) -> None:
        self.full = full
        self.full.unlink(missing_ok=True)
        self.causes: dict[str, Cause] = {}

    def add(self, report: Report) -> None:
        """Take a report, if it is one of a failure."""
        if not report.failed:
            return
        captured = (f"{name}:\n{text}" for name, text in report.sections)
        words = "\n".join([words_of(report), *captured])
        why = last_line(report)
        # Two comparisons that give the same are alike within one function or notebook only.
        alike = why.startswith(("assert", "Notebook cell"))
        place = re.split(r"\[|::Cell", report.nodeid)[0] if alike else ""
        cause = self.causes.setdefault(place + NUMBER.sub("#", why), Cause(why, words))
        cause.tests.append(report.nodeid)
        self.full.parent.mkdir(exist_ok=True)
        with self.full.open("a", encoding="utf-8", errors="replace") as file:
            file.write(f"{report.nodeid}\n{words}\n\n")

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        self.add(report)

    def pytest_collectreport(self, report: pytest.CollectReport) -> None:
        self.add(report)

    @pytest.hookimpl(wrapper=True, tryfirst=True)
    def pytest_terminal_summary(self, terminalreporter, config: pytest.Config):
        """Print the failures behind all else, and not where pytest does."""
        config.option.tbstyle = "no"
        terminalreporter.reportchars = re.sub("[fE]", "", terminalreporter.reportchars)
        yield
        if self.causes:
            self.print(terminalreporter)

    def print(self, terminal) -> None:
        """Print what the first of each cause says, then what failed and what to do."""
        causes, left = [*self.causes.values()], ALL_LINES
        for cause in causes:
            lines = cut(cause.words, min(LINES, left))
            terminal.write_sep("_", cause.tests[0][:WIDTH], red=True)
            terminal.write_line("\n".join(lines))
            left -= len(lines) + 1
            if left < LINES // 3:
                break
        terminal.section("what failed, and what to do", red=True)
        for cause in causes[:CAUSES]:
            more = f", and {len(cause.tests) - 1} more" if len(cause.tests) > 1 else ""
            terminal.write_line(f"{cause.tests[0][:WIDTH]}{more}:\n    {cause.why}")
        if len(causes) > CAUSES:
            terminal.write_line(f"and for {len(causes) - CAUSES} other reasons.")
        first = causes[0].tests[0]
        nbval = "--nbval --nbval-current-env " if ".ipynb::" in first else ""
        terminal.write_line(f"What all of them say, in full: {self.full}")
        again = f"{shlex.quote(sys.executable)} -m pytest -v {nbval}{shlex.quote(first)}"
        terminal.write_line(f"Mend the first, and run it alone: {again}")


def pytest_configure(config: pytest.Config) -> None:
    """Print so where nothing else is asked, in the process that prints."""
    plain = config.option.verbose <= 0 and config.option.tbstyle == "auto"
    if plain and not hasattr(config, "workerinput"):
        config.pluginmanager.register(Failures(config.rootpath / "_build" / "failures.txt"))
