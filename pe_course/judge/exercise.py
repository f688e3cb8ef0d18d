"""What an exercise asks, and how an answer to it is judged.

A `Check` judges by values: calls, what is right for them, and what known mistakes give. An
`Exercise` computes these with functions, for the grader (which passes a function that lives in
another process) and for the tests that prove the check. What students check their answers by has
the values alone (`Recorded`, in pe_course/judge/recorded.py).
"""

from __future__ import annotations

import os
import re
import threading
import time
import traceback
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from typing import Any, NamedTuple

import torch
from torch import Tensor

from pe_course.judge.compare import (
    clone,
    close,
    difference,
    kind,
    recognized,
    shape_problem,
    wrong_numbers,
)

Answer = Callable[..., Any]
FOUND: dict[str, tuple[bool, float]] = {}  # exercise -> whether it passed here, and when
PLACES = ("first", "second", "third", "fourth", "fifth", "sixth", "seventh", "eighth")


class CheckFailed(AssertionError):
    """An answer is not right; the message says why, in words.

    Attributes:
        share: of the points that it gets all the same, for the parts of it that are right.
        at: index of the first case that is wrong.
        got: what the answer returned there.
    """

    def __init__(self, message: str, share: float = 0.0, at: int = 0, got: Any = None) -> None:
        """Say what is wrong."""
        super().__init__(message)
        self.share, self.at, self.got = share, at, got


class Case(NamedTuple):
    """Arguments for one call, and words for them ("a long text").

    `label` is the same for every draw. What else tells this draw (", 37 tokens") is `drawn`, which
    the grader keeps to itself. `tolerance` stands in for that of the exercise where rounding is
    larger than elsewhere.
    """

    label: str
    args: tuple[Any, ...]
    tolerance: float | None = None
    drawn: str = ""

    def in_full(self) -> Case:
        """Return the case with all that is known of it in its label."""
        return self._replace(label=self.label + self.drawn)


class Mistake(NamedTuple):
    """A wrong answer that people write, and what to say to it.

    Where `function` gives `compare.ANY`, such an answer may have any number.
    """

    message: str
    function: Answer


class Drawn(NamedTuple):
    """What an answer is judged by: calls, and what they return.

    `known` has the message of each known mistake and what it returns for each case, None where it
    raises. It is read once, and only if an answer is wrong.
    """

    cases: list[Case]
    wanted: list[Any]
    known: Iterable[tuple[str, Iterable[Any]]]


class Draw:
    """Random inputs from a seed."""

    def __init__(self, seed: int) -> None:
        """Start a generator of its own."""
        self.generator = torch.Generator().manual_seed(seed)

    def normal(self, *shape: int) -> Tensor:
        """Return standard normal numbers in float32."""
        return torch.randn(shape, generator=self.generator)

    def integer(self, low: int, high: int) -> int:
        """Return an integer from low to high, both included."""
        return int(torch.randint(low, high + 1, (), generator=self.generator))

    def sizes(self, count: int, low: int = 3, high: int = 9) -> list[int]:
        """Return sizes that all differ."""
        order = torch.randperm(high - low + 1, generator=self.generator)
        return [low + int(step) for step in order[:count]]

    def order(self, size: int) -> Tensor:
        """Return a permutation of 0 ... size - 1 that moves the first and is no involution."""
        if size < 3:
            raise ValueError(f"size must be at least 3 for such an order, got {size}")
        while True:
            order = torch.randperm(size, generator=self.generator)
            if order[0] != 0 and not torch.equal(order, order.argsort()):
                return order

    def telling(
        self, drawn: Callable[[Draw], list[Case]], right: Answer, *wrong: Answer
    ) -> list[Case]:
        """Draw cases anew until they refuse each wrong answer that some draws would accept."""
        while True:
            cases = drawn(self)
            wanted = [(case, right(*case.args)) for case in cases]
            if not any(
                all(
                    close(answer(*case.args), want, case.tolerance or 1e-6) for case, want in wanted
                )
                for answer in wrong
            ):
                return cases

    def places(self, *shape: int, high: int = 60) -> Tensor:
        """Return integer positions from 5 to high, not in order if there are three or more."""
        while True:
            places = torch.randint(5, high + 1, shape, generator=self.generator)
            if shape[-1] < 3 or bool((places.diff() < 0).any(-1).all()):
                return places


class Check:
    """The judge of an answer.

    Attributes:
        name: of the function that the student writes, and of the check.
        tolerance: largest difference accepted, relative to the largest number expected.
        integers: whether the answer must be whole numbers in type, too (to index with).
        axes: names of the result's last axes, for messages.
        parts: of the answer, for which the text gives points apart: words in the labels of cases,
            or the places of values.
        seconds: what all calls of a self-check or of the grader may take together.
    """

    name: str
    tolerance: float
    integers: bool
    axes: tuple[str, ...]
    parts: tuple[str | int, ...]
    seconds: float

    def drawn(self, seed: int) -> Drawn:
        """Return what an answer is judged by; with seed 0 that of the self-check."""
        raise NotImplementedError

    def __call__(self, answer: Answer) -> None:
        """Check `answer`; say in words what is wrong, or that nothing is."""
        FOUND[self.name] = (False, time.time())
        took = 0.0

        def timed(*args: Any) -> Any:
            nonlocal took
            begin = time.perf_counter()
            try:
                return answer(*args)
            finally:
                took += time.perf_counter() - begin

        with told():
            if not callable(answer):
                raise CheckFailed(f"{self.name} must be a function, not {kind(answer)}")
            try:
                with told_when_slow(self.name, self.seconds):
                    self.judge(timed, seed=0)
            except NotImplementedError as error:
                if str(error):  # torch's, for a type that an operation does not take
                    raise
                raise CheckFailed(self.missing(innermost(error))) from None
            if took > self.seconds:  # the grader would not have waited
                spent = f"it took {took:.0f} s; {self.seconds:g} s is its budget"
                print(f"{self.name}: right, but {spent}.")
                return
            FOUND[self.name] = (True, time.time())
            print(f"{self.name}: right.")

    def judge(self, answer: Answer, seed: int, hidden: bool = False) -> None:
        """Call `answer` with inputs drawn from `seed` and compare what it returns.

        Args:
            answer: the student's function.
            seed: of the inputs.
            hidden: whether messages keep what was drawn to themselves.

        Raises:
            CheckFailed: if the answer is wrong. What `answer` itself raises passes through.
        """
        self.judge_by(self.drawn(seed), answer, hidden)

    def judge_by(self, drawn: Drawn, answer: Answer, hidden: bool = False) -> None:
        """Do what `judge` does, by what was drawn before."""
        cases, wanted, known = drawn
        cases = [case if hidden else case.in_full() for case in cases]
        got: list[Any] = []
        problem, at = "", 0
        for number, (case, want) in enumerate(zip(cases, wanted, strict=True)):
            args = clone(case.args)
            try:
                got.append(clone(answer(*args)))  # some reuse a buffer
            except Exception as error:
                if problem:  # what is wrong with an earlier case comes first
                    break
                error.add_note(f"with {case.label}")
                raise
            if text := shape_problem(got[-1], want, self.integers, self.axes, hidden):
                if not problem:
                    problem, at = f"with {case.label}: {text}", number
            elif changed := changed_argument(case.args, args):
                text = f"your function changes {changed}; return a new one"
                raise CheckFailed(text, at=number, got=got[number])
        if problem:
            text = self.explanation(cases, got, known) or problem
            values = len(got) == len(cases) and all(
                isinstance(each, tuple | list) and len(each) == len(self.parts) for each in got
            )
            share = self.share(cases, got, wanted) if values else 0.0
            raise CheckFailed(text, share, at, got[at])
        right = [
            close(value, want, self.room(case))
            for case, value, want in zip(cases, got, wanted, strict=True)
        ]
        if not all(right):
            text = self.explanation(cases, got, known)
            text = text or self.generic(cases, got, wanted, right, hidden)
            at = right.index(False)
            raise CheckFailed(text, self.share(cases, got, wanted), at, got[at])

    def share(self, cases: list[Case], got: list[Any], wanted: list[Any]) -> float:
        """Return the share of the parts that are right in all of their cases."""

        def fits(part: str | int) -> bool:
            for case, value, want in zip(cases, got, wanted, strict=True):
                if isinstance(part, int):
                    value, want = value[part], want[part]
                elif part not in case.label:
                    continue
                if not close(value, want, self.room(case)):
                    return False
            return True

        return sum(map(fits, self.parts)) / max(1, len(self.parts))

    def room(self, case: Case) -> float:
        """Return the tolerance for a case."""
        return self.tolerance if case.tolerance is None else case.tolerance

    def explanation(
        self, cases: list[Case], got: list[Any], known: Iterable[tuple[str, Iterable[Any]]]
    ) -> str:
        """Return the message of the known mistake that gives the same, or nothing.

        `got` may be shorter than `cases`, if the answer raised.
        """
        for message, results in known:
            if all(
                recognized(value, other, self.room(case), self.integers)
                for value, case, other in zip(got, cases, results, strict=False)
            ):
                return message
        return ""

    def generic(
        self, cases: list[Case], got: list[Any], wanted: list[Any], right: list[bool],
        hidden: bool = False,
    ) -> str:  # fmt: skip
        """Describe a mistake that no entry of `mistakes` explains."""
        wrong = right.index(False)
        fine = [case.label for case, fits in zip(cases, right, strict=True) if fits]
        good = [label for label in dict.fromkeys(fine) if label != cases[wrong].label]
        more = ""
        if len(good) > 2:
            more = f"; and in {len(good) - 2} more case{'s' if len(good) > 3 else ''}"
        text = difference(got[wrong], wanted[wrong], self.room(cases[wrong]), self.axes)
        if hidden:  # a share can be made to tell a number
            text = re.sub(r" \(\d+ % of them\)", "", text)
        elif self.integers:
            text += wrong_numbers(got[wrong], wanted[wrong])
        text = f"with {cases[wrong].label}: {text}"
        return text + (f" (it is right with {'; '.join(good[:2])}{more})" if good else "")

    def missing(self, stub: str) -> str:
        """Say that there is no answer yet, or none to what this one calls."""
        calls = f"{self.name} calls {stub}, which" if stub != self.name else self.name
        return f"{calls} is not answered yet"


@dataclass(frozen=True)
class Exercise(Check):
    """One exercise, with its answers; the other attributes are those of `Check`.

    Attributes:
        cases: returns the calls to make, drawn at random.
        reference: the right answer.
        mistakes: wrong answers with a message of their own, the likeliest first.
    """

    name: str
    cases: Callable[[Draw], Iterable[Case]]
    reference: Answer
    mistakes: tuple[Mistake, ...] = ()
    tolerance: float = 1e-4
    integers: bool = False
    axes: tuple[str, ...] = ()
    parts: tuple[str | int, ...] = ()
    seconds: float = 10.0

    def drawn(self, seed: int) -> Drawn:
        """Return what an answer is judged by, computed now; of mistakes once it is asked for."""
        cases = list(self.cases(Draw(seed)))
        wanted = [self.reference(*clone(case.args)) for case in cases]
        known = (
            (message, (given(mistake, case) for case in cases))
            for message, mistake in self.mistakes
        )
        return Drawn(cases, wanted, known)


def given(mistake: Answer, case: Case) -> Any:
    """Return what a mistake gives for a case; None if it raises."""
    try:
        return mistake(*clone(case.args))
    except (ValueError, RuntimeError, IndexError, TypeError):
        return None


@contextmanager
def told_when_slow(name: str, seconds: float) -> Iterator[None]:
    """Say so as soon as an answer has run longer than its budget; an endless one is not stopped."""
    words = f"{name} has run for {seconds:g} s, its budget. To stop it, interrupt the kernel."
    timer = threading.Timer(seconds, print, [words])
    timer.daemon = True
    with suppress(RuntimeError):  # a page has no threads; it stops the answer itself
        timer.start()
    try:
        yield
    finally:
        timer.cancel()


@contextmanager
def told() -> Iterator[None]:
    """Print what a check finds wrong instead of raising it: the cells below run all the same."""
    try:
        yield
    except (Exception, SystemExit) as error:
        if "NBGRADER_EXECUTION" in os.environ:  # it takes a cell that does not raise for right
            raise
        print(f"Not yet: {error if isinstance(error, CheckFailed) else words_of(error)}")


def words_of(error: BaseException) -> str:
    """Return the last line of the student's code that an error went through, and its words."""
    steps = traceback.walk_tb(error.__traceback__)
    own = [step for step in steps if step[0].f_globals.get("__name__") == "__main__"]
    where = "it raises an error"
    if own:
        (at,) = traceback.StackSummary.extract(iter(own[-1:]))
        where = f"line {at.lineno}, in {at.name}, raises an error\n    {at.line}".rstrip()
    return f"{where}\n{''.join(traceback.format_exception_only(error)).rstrip()}"


def changed_argument(before: tuple[Any, ...], after: tuple[Any, ...]) -> str:
    """Say which argument is not what it was; nothing if all are."""
    for place, pair in zip(PLACES, zip(after, before, strict=True), strict=False):
        if not close(*pair, 0.0):
            which = f", the {place} one" if len(before) > 1 else ""
            return f"its argument in place{which}"
    return ""


def innermost(error: BaseException) -> str:
    """Return the name of the function that raised an exception."""
    frames = traceback.extract_tb(error.__traceback__)
    return frames[-1].name if frames else ""
