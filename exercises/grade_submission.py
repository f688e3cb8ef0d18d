"""Grade one submission: run its cells in a sandbox, and judge its answers out here."""

from __future__ import annotations

import builtins
import hashlib
import time
from collections.abc import Iterator
from typing import Any

import torch

from exercises import checks
from exercises.bubblewrap import lent_names
from exercises.jobs import CellRun, Graded, Job, Verdict
from exercises.notebook import Cell, Unreadable, checkpoints, open_answers, parse, restore
from exercises.sandbox import Ended, Session
from exercises.sets import ExerciseSet, Question, load
from pe_course.judge.compare import as_tensor, both_wide
from pe_course.judge.wire import HELD, Malformed, Opaque

LONGEST = 400  # characters of a message
UNSENT = "what it returns is too large (more than 64 MiB), or cannot be read"
TOOK_TOO_LONG = "the notebook as a whole took too long"
# Of what an answer returns and the pipe does not carry, types whose names no student chooses.
KNOWN_TYPES = {
    *dir(builtins), "Tensor", "ndarray", "function", "generator", "module", "method",
    *(f"array of {held}, not of numbers" for held in (*HELD.values(), "other things")),
}  # fmt: skip


class Missing(Exception):
    """The student's notebook defines no function of that name."""


class StudentError(Exception):
    """The student's function raised an exception."""

    def __init__(self, text: str, stub: str) -> None:
        """Keep the text of the exception, and the function that was not written yet, if any."""
        super().__init__(text)
        self.text, self.stub = text, stub


def seed_for(secret: str, question: str) -> int:
    """Return the seed of a question's hidden inputs."""
    return int.from_bytes(hashlib.sha256(f"{secret}/{question}".encode()).digest()[:6], "big")


def error_in_cell(error: object) -> tuple[str, str]:
    """Return (text, stub) of an exception that stopped a cell; trust none of its parts.

    `stub` names the function that still says `raise NotImplementedError`, if it was that one;
    what torch raises under that name has a text.
    """
    if not isinstance(error, dict):
        raise Malformed("an error without a description")
    kind, text, line, function = (error.get(k) for k in ("type", "text", "line", "function"))
    kind = kind if isinstance(kind, str) and kind.isidentifier() else "Exception"
    where = f" (line {line} of the cell)" if isinstance(line, int) and 0 < line < 10**6 else ""
    stub = str(function)[:80] if kind == "NotImplementedError" and not text else ""
    return f"{kind[:80]}: {str(text)[:LONGEST]}{where}", stub


def error_in_call(error: object, names: list[str]) -> tuple[str, str]:
    """Return (text, stub) of what a judged call raised, without words or lines of the student's.

    Whoever writes the text of an exception, the name of its type or many lines that raise can put
    a hidden input in.

    Args:
        error: the exception as the runner told it.
        names: the functions of the set.
    """
    _, stub = error_in_cell(error)
    assert isinstance(error, dict)
    kind = error.get("type")
    known = getattr(builtins, str(kind), None)
    name = kind if isinstance(known, type) and issubclass(known, BaseException) else "an exception"
    text = f"{name} (its text and line are not shown, as they could tell the grader's inputs)"
    if name == "ModuleNotFoundError":
        lent = ", ".join(lent_names())
        text = f"{name}; {lent} can be imported here, the course's library cannot"
    return text, (stub if stub in names else names[0]) if stub else ""


def error_in_full(error: object, cells: list[Cell]) -> str:
    """Return an exception as an instructor sees it: its text, and the line that raised it."""
    text, _ = error_in_cell(error)
    assert isinstance(error, dict)
    line = error.get("line")
    for cell in reversed(cells):
        lines = cell.source.split("\n")
        if f"def {error.get('function')}(" in cell.source and isinstance(line, int):
            return "\n    ".join([text, *(each.strip() for each in lines[line - 1 : line])])
    return text


def compact(value: Any, top: bool = True) -> Any:
    """Return a result with its lists as arrays, so that no known mistake converts them again.

    A short list or tuple stays one, as it may stand for several values, and so do lists in it.
    """
    if isinstance(value, Opaque):
        return value if value.type_name in KNOWN_TYPES else Opaque("object")
    if isinstance(value, tuple | list):
        several = top and isinstance(value, tuple)
        items = [compact(item, several and isinstance(item, list)) for item in value]
        if top and len(items) < 10:
            return type(value)(items)
        array = as_tensor(items)
        return Opaque("list that is no array of numbers") if array is None else array
    return value


def copy_changed_arguments(args: tuple[Any, ...], returned: object) -> None:
    """Write what the function did to its arguments into ours, so that the judge sees it."""
    if isinstance(returned, tuple) and len(returned) == len(args):
        for ours, theirs in zip(args, returned, strict=True):
            same = isinstance(ours, torch.Tensor) and isinstance(theirs, torch.Tensor)
            if same and ours.shape == theirs.shape and ours.dtype == theirs.dtype:
                ours.copy_(theirs)


class Grader:
    """The state of grading one submission, over as many processes as it ends."""

    def __init__(self, job: Job, exercise_set: ExerciseSet, cells: list[Cell]) -> None:
        """Prepare; nothing runs yet."""
        self.job, self.set, self.cells = job, exercise_set, cells
        self.verdicts = {
            question.name: Verdict(question.name, question.test_id, question.points)
            for question in exercise_set.questions
        }
        self.judged: set[str] = set()
        self.ran: dict[int, CellRun] = {}
        # What was given, returned and expected where an answer failed, and what it raised there.
        self.failed: dict[str, tuple[Any, Any, Any]] = {}
        self.raised: dict[str, str] = {}
        self.cells_took = 0.0  # in the process that runs
        # A submission can make its own processes wait for one another: the clock ends that.
        budgets = sum(map(self.budget, exercise_set.questions))
        self.end = time.monotonic() + job.limits.patience * (job.limits.cells + budgets)

    def steps(self) -> Iterator[tuple[int, Question | None]]:
        """Yield what to do in order: (index, None) runs a cell, (index, question) judges."""
        after: dict[int, list[Question]] = {}
        place = checkpoints(self.cells, self.set)
        for question in self.set.questions:
            after.setdefault(place[question.name], []).append(question)
        for index, cell in enumerate(self.cells):
            if cell.kind == "code" and not cell.is_test and cell.source.strip():
                yield index, None
            for question in after.get(index, ()):
                yield index, question

    def run(self) -> None:
        """Run and judge everything; after a process has ended, go on in a new one."""
        while not self.all_judged():
            with Session(self.job.limits) as session:
                self.cells_took = 0.0
                self.run_through(session)
            if time.monotonic() > self.end:
                self.give_up()

    def all_judged(self) -> bool:
        """Return whether every question has its verdict."""
        return len(self.judged) == len(self.verdicts)

    def give_up(self) -> None:
        """Give what is left the verdict of a submission that took too long."""
        for name, verdict in self.verdicts.items():
            if name not in self.judged:
                verdict.word = "time-out"
                verdict.message = TOOK_TOO_LONG
                self.judged.add(name)

    def budget(self, question: Question) -> float:
        """Return the seconds that all calls of an exercise may take together."""
        return self.job.limits.budget(checks.EXERCISES[question.name].seconds)

    def run_through(self, session: Session) -> None:
        """Run the cells that have not ended a process yet, and judge what is not judged."""
        for index, question in self.steps():
            if self.all_judged() or time.monotonic() > self.end:
                return
            if question is None:
                if self.ran.get(index, CellRun()).word not in ("time-out", "malformed", "ended"):
                    self.run_cell(session, index)
            elif question.name not in self.judged:
                self.judge(session, question)
            if session.process.returncode is not None:
                return

    def run_cell(self, session: Session, index: int) -> None:
        """Run one cell and keep what it did."""
        ran, limits, before = CellRun(), self.job.limits, session.used
        if self.cells_took > limits.cells:
            message = f"the cells before it took more than {limits.cells:g} s together"
            self.ran[index] = CellRun(word="time-out", message=message)
            return
        try:
            answer = session.ask({"cell": self.cells[index].source}, limits.cell)
            if not isinstance(answer, dict):
                raise Ended("malformed", "the answer could not be read")
            if "error" in answer:
                ran.message, stub = error_in_cell(answer["error"])
                ran.word = "not answered" if stub else "crash"
        except Ended as ended:
            ran.word = "ended" if ended.word == "crash" else ended.word
            ran.message = ended.message
            session.close()
        except Malformed as error:
            ran.word, ran.message = "malformed", str(error)
            session.close()
        self.cells_took += session.used - before
        ran.printed = session.take_printed()
        self.ran[index] = ran

    def judge(self, session: Session, question: Question) -> None:
        """Judge one answer."""
        verdict, exercise = self.verdicts[question.name], checks.EXERCISES[question.name]
        verdict.seed = seed_for(self.job.secret, question.name)
        drawn = exercise.drawn(verdict.seed)
        names = [question.name, *self.verdicts]
        budget, used, begin = self.budget(question), session.used, time.monotonic()
        clock = min(begin + budget * self.job.limits.patience, self.end)  # judging takes time, too
        calls, got = 0, None

        def answer(*args: Any) -> Any:
            nonlocal calls
            calls += 1
            left, longest = budget + used - session.used, clock - time.monotonic()
            if min(left, longest) <= 0:
                raise Ended("time-out", "")
            reply = session.ask({"call": question.name, "args": args}, left, longest)
            if not isinstance(reply, dict):
                raise Malformed("an answer of another kind")
            if "missing" in reply:
                raise Missing
            if "unsent" in reply:
                raise StudentError(UNSENT, "")
            if "error" in reply:
                self.raised[question.name] = error_in_full(reply["error"], self.cells)
                raise StudentError(*error_in_call(reply["error"], names))
            copy_changed_arguments(args, reply.get("args"))
            return compact(reply.get("result"))

        try:
            exercise.judge_by(drawn, answer, hidden=True)
            verdict.word, verdict.points = "ok", question.points
        except checks.CheckFailed as failed:
            verdict.word, verdict.points = "wrong answer", question.points * failed.share
            verdict.message, calls, got = str(failed), failed.at + 1, failed.got
        except StudentError as error:
            verdict.word = "not answered" if error.stub else "crash"
            verdict.message = ": ".join([*error.__notes__, error.text])
            if error.stub:
                verdict.message = exercise.missing(error.stub)
        except Missing:
            self.explain_missing(question, verdict)
            calls = 0
        except Ended as ended:
            verdict.word, verdict.message = ended.word, ended.message
            if ended.word == "time-out":
                verdict.message = (
                    f"its calls took more than {budget:g} s together; that is its budget"
                )
                if time.monotonic() >= clock:
                    longest = budget * self.job.limits.patience
                    verdict.message = f"its calls took more than {longest:g} s on the clock"
                if time.monotonic() >= self.end:
                    verdict.message = TOOK_TOO_LONG
        except (ValueError, TypeError, RuntimeError, OverflowError, IndexError) as error:
            # Malformed, or values that cannot even be compared. The process may be out of step.
            verdict.word, verdict.message = "malformed", f"the answer could not be read: {error}"
            session.close()
        session.take_printed()
        verdict.message = verdict.message[:LONGEST]
        if calls and verdict.word != "ok":
            case = drawn.cases[calls - 1]
            verdict.case = f"{calls} of {len(drawn.cases)}, {case.in_full().label}"
            self.failed[question.name] = case.args, got, drawn.wanted[calls - 1]
        self.judged.add(question.name)

    def explain_missing(self, question: Question, verdict: Verdict) -> None:
        """Say why there is no function: its cell stopped, or nothing defines it."""
        verdict.message = f"the notebook defines no function {question.name}"
        for index, ran in self.ran.items():
            own = self.cells[index].grade_id == question.solution_id
            if ran.word and (own or verdict.word == "not answered"):
                verdict.word = "crash" if ran.word == "ended" else ran.word
                place = "its cell" if own else f"cell {index + 1}"
                verdict.message = f"{place} stopped: {ran.message}"
                if own:
                    return


def in_short(value: Any) -> str:
    """Return a value in one line: a tensor's shape, and its first numbers."""
    if isinstance(value, tuple | list):
        return f"({', '.join(map(in_short, value))})"
    if not isinstance(value, torch.Tensor):
        return repr(value)[:LONGEST]
    kind = str(value.dtype).removeprefix("torch.")
    numbers = [f"{number:.6g}" for number in value.flatten()[:8].tolist()]
    more = f", ... {value.numel()} in all" if value.numel() > len(numbers) else ""
    return f"tensor(shape {tuple(value.shape)}, {kind}: {', '.join(numbers)}{more})"


def farthest(got: Any, wanted: Any) -> str:
    """Return a line on the place where two values of one shape differ most; else nothing."""
    if isinstance(wanted, tuple):
        pairs = zip(got, wanted, strict=False) if isinstance(got, tuple | list) else ()
        lines = [farthest(*pair) for pair in pairs]
        return "\n".join(f"value {n}: {line}" for n, line in enumerate(lines, 1) if line)
    given, goal = as_tensor(got), as_tensor(wanted)
    if given is None or goal is None or given.shape != goal.shape or not goal.numel():
        return ""
    a, b = both_wide(given, goal)
    index = int((a - b).abs().argmax())
    place = [int(one) for one in torch.unravel_index(torch.tensor(index), goal.shape)]
    one, other = a.flatten()[index].item(), b.flatten()[index].item()
    return f"largest difference at {place}: {one:.6g}, expected {other:.6g}" if one != other else ""


def shown(job: Job, name: str) -> str:
    """Return what an instructor sees of one answer in a dispute, run once more.

    Args:
        job: the submission.
        name: of the exercise.

    Raises:
        Unreadable: if the submission is no notebook of the set.
        NotStarted: if the sandbox does not start.
    """
    if job.data is None:
        raise Unreadable(job.unreadable)
    exercise_set = load(job.set_name)
    grader = Grader(job, exercise_set, restore(parse(job.data), exercise_set))
    grader.judged = grader.verdicts.keys() - {name}
    grader.run()
    verdict = grader.verdicts[name]
    lines = [f"{verdict.word}: {verdict.points:g} of {verdict.max_points:g} points",
             verdict.message, f"seed {verdict.seed}"]  # fmt: skip
    if name in grader.failed:
        args, got, wanted = grader.failed[name]
        wrong = verdict.word == "wrong answer"
        lines += [f"case {verdict.case}", *(f"given: {in_short(arg)}" for arg in args)]
        lines += [f"returned: {in_short(got)}" if wrong else "nothing was returned"]
        lines += [f"expected: {in_short(wanted)}", farthest(got, wanted) if wrong else ""]
    if verdict.word == "crash" and name in grader.raised:
        lines.append(f"raised: {grader.raised[name]}")
    # A student's text may hold signs that a terminal obeys.
    text = "\n".join(filter(None, lines))
    return "".join(
        sign if sign.isprintable() or sign == "\n" else repr(sign)[1:-1] for sign in text
    )


def grade(job: Job) -> Graded:
    """Grade one submission.

    Raises:
        NotStarted: if the sandbox does not start, which is not the student's fault.
    """
    begin, exercise_set = time.monotonic(), load(job.set_name)
    try:
        if job.data is None:
            raise Unreadable(job.unreadable)
        cells = restore(parse(job.data), exercise_set)
        grader = Grader(job, exercise_set, cells)
        grader.run()
        verdicts, ran = list(grader.verdicts.values()), grader.ran
        answers = open_answers(cells, exercise_set)
    except Unreadable as error:
        cells, ran = restore([], exercise_set), {}
        message = (
            f"{str(error)[:LONGEST]}. Hand in the file {job.set_name}.ipynb that JupyterLab "
            "downloads (File, then Download)"
        )
        verdicts = [
            Verdict(q.name, q.test_id, q.points, word="malformed", message=message)
            for q in exercise_set.questions
        ]
        # What nobody could read may have an answer; with another file it is another one.
        answers = {question.name: message for question in exercise_set.open}
    seconds = time.monotonic() - begin
    return Graded(job.student, job.set_name, verdicts, cells, ran, seconds, answers)
