"""The checks of the exercises are proven by mutants: wrong answers that people really write."""

from __future__ import annotations

import array
import dataclasses
import fractions
import functools
import inspect
import itertools
import json
import linecache
import math
import pickle
import re
import time
from collections import Counter, UserList, deque
from typing import Any

import numpy as np
import pytest
import torch
from matplotlib import pyplot
from torch import Tensor

from exercises import checks
from exercises.grade_submission import copy_changed_arguments
from exercises.proofs import Alternative, Mutant, mutated, read
from exercises.sets import HERE, load, nbgrader_metadata, set_names, source_path, source_text
from pe_course.judge.compare import as_tensor, clone, close, difference, recognized, shape_problem
from pe_course.judge.exercise import (
    FOUND,
    Answer,
    Case,
    Check,
    Draw,
    Exercise,
    Mistake,
)
from pe_course.judge.recorded import Recorded, record, stored, value
from pe_course.judge.wire import HEADER, decode, encode

SEEDS = (0, 1, 2)
EVERY = [(name, question.name) for name in set_names() for question in load(name).questions]
SAID_OF_A_CRASH = (RuntimeError, IndexError, ValueError, TypeError, AttributeError)


def namespace(name: str) -> dict[str, Any]:
    """Execute the instructor's notebook without its checks and without the open experiment."""
    found: dict[str, Any] = {"__name__": "__main__"}  # as a notebook's functions have it
    for cell in json.loads(source_path(name).read_text(encoding="utf-8"))["cells"]:
        metadata = nbgrader_metadata(cell)
        name = metadata.get("grade_id", "")
        aside = metadata.get("grade") or name in ("open_work", "progress") or name[:4] == "see_"
        if cell["cell_type"] == "code" and not aside:
            exec(source_text(cell), found)
    return found


def answer_from(name: str, exercise: str, source: str) -> Any:
    """Return the function that a source defines, with the set's other answers around it."""
    found, file = namespace(name), f"<answer to {exercise}>"
    # As IPython does for a cell: torch.jit.script reads the source of what it compiles.
    linecache.cache[file] = (len(source), None, source.splitlines(keepends=True), file)
    exec(compile(source, file, "exec"), found)
    return found[exercise]


def proofs_of(name: str, exercise: str) -> tuple[list[Mutant], list[Alternative]]:
    """Return what tests/mutants has for one exercise of a set."""
    mutants, alternatives = read(name)
    return (
        [mutant for mutant in mutants if mutant.exercise == exercise],
        [right for right in alternatives if right.exercise == exercise],
    )


def remembered(function: Answer) -> Answer:
    """Return a function that computes once what it is asked with equal arguments."""
    known: dict[bytes, Any] = {}

    def answer(*args: Any) -> Any:
        asked = pickle.dumps([plain(item) for item in args])
        if asked not in known:
            known[asked] = function(*args)
        return known[asked]

    return answer


def plain(value: Any) -> Any:
    """Return a value that pickles fast, and to the same bytes if it is equal."""
    if isinstance(value, Tensor):
        return str(value.dtype), tuple(value.shape), value.numpy().tobytes()
    return [plain(item) for item in value] if isinstance(value, tuple | list) else value


@functools.cache
def quick(exercise: str) -> Exercise:
    """Return a check that computes each case, right answer and known mistake once for a seed."""
    check = checks.EXERCISES[exercise]
    drawn = {seed: tuple(check.cases(Draw(seed))) for seed in range(20)}
    return dataclasses.replace(
        check,
        cases=lambda draw: drawn[draw.generator.initial_seed()],
        reference=remembered(check.reference),
        mistakes=tuple(
            each._replace(function=remembered(each.function)) for each in check.mistakes
        ),
    )


def verdict(check: Check, answer: Answer, seed: int) -> str:
    """Return what a student is told: nothing if the answer is right."""
    try:
        check.judge(answer, seed)
    except checks.CheckFailed as failed:
        return str(failed)
    except SAID_OF_A_CRASH as error:
        return f"crash: {error}"
    return ""


@pytest.mark.parametrize(("name", "exercise"), EVERY)
def test_each_known_mistake_is_rejected_with_its_own_words(name: str, exercise: str) -> None:
    """For the self-check's inputs and for others; no mistake hides behind an earlier one."""
    check = quick(exercise)
    told = [
        (mistake.message, seed, verdict(check, mistake.function, seed))
        for mistake in check.mistakes
        for seed in SEEDS
    ]
    assert [each for each in told if each[0] != each[2]] == []


@functools.cache
def told_to_mutants(name: str, exercise: str) -> list[tuple[Mutant, list[str]]]:
    """Return, with each mutant of an exercise, what it is told with each seed."""
    check, found = quick(exercise), []
    for mutant in proofs_of(name, exercise)[0]:
        answer = answer_from(name, exercise, mutated(name, mutant))
        found.append((mutant, [verdict(check, answer, seed) for seed in SEEDS]))
    return found


@pytest.mark.parametrize(("name", "exercise"), EVERY)
def test_each_mutant_is_rejected_with_the_right_words(name: str, exercise: str) -> None:
    """Too; `crash` stands for an exception of the answer's own."""
    wrong = []
    for mutant, told in told_to_mutants(name, exercise):
        assert mutant.says  # else an answer that is accepted would do
        for text in told:
            crashed = text.startswith("crash: ")
            if mutant.says not in text or crashed != (mutant.says == "crash"):
                wrong.append((mutant, text))
    assert wrong == []


def with_an_echo(answer: Answer) -> tuple[Answer, Answer]:
    """Return an answer, and what gives again what it gave: anew, float32 may round otherwise."""
    given: list[Any] = []

    def heard(*args: Any) -> Any:
        result = answer(*args)
        given.append(clone((result, args)))
        return result

    def again(*args: Any) -> Any:
        if not given:  # where the answer raised
            return answer(*args)
        result, changed = given.pop(0)
        copy_changed_arguments(args, changed)
        return result

    return heard, again


@pytest.mark.parametrize(("name", "exercise"), EVERY)
def test_what_students_have_says_what_the_functions_say(name: str, exercise: str) -> None:
    """Of right answers and wrong ones, though it knows values alone."""
    check = quick(exercise)
    recorded = Recorded(json.loads(json.dumps(record(checks.EXERCISES[exercise]))))
    answers = [check.reference, *(mistake.function for mistake in check.mistakes)]
    answers += [lambda *args: scrambled(check.reference(*args)), lambda *_: None]
    for mutant in proofs_of(name, exercise)[0]:
        answers.append(answer_from(name, exercise, mutated(name, mutant)))
    told = [
        (verdict(recorded, answer, 0), verdict(check, again, 0))
        for answer, again in map(with_an_echo, answers)
    ]
    assert [pair for pair in told if pair[0] != pair[1]] == []


def test_only_the_draw_of_the_self_check_is_recorded() -> None:
    with pytest.raises(ValueError, match="got seed 1"):
        Recorded(record(checks.EXERCISES["looks"])).judge(lambda *_: None, 1)


def test_of_a_large_result_of_a_mistake_some_numbers_are_kept() -> None:
    """From places all over each axis; one like it is recognized, another is not."""
    large = torch.arange(3 * 64 * 30.0).reshape(3, 64, 30)
    (sample,) = value(stored((large,), 64))
    assert len(sample.numbers) <= 66
    for axis, size in enumerate(large.shape):
        places = torch.arange(large.numel())[:: sample.step]
        assert len((places // math.prod(large.shape[axis + 1 :]) % size).unique()) > size / 2
    assert recognized(large.numpy(), sample, 1e-6, False)
    assert recognized([large], (sample,), 1e-6, False)
    for other in (large.mT, large + 1, large[:2], large.flatten(), large > 5, None):
        assert not recognized(other, sample, 1e-6, False)
    assert not recognized(large.long(), None, 1e-6, False)


def refuses(check: Exercise, answer: Answer, seed: int) -> bool:
    """Return whether a drawn case by itself is enough to refuse an answer, known or not."""
    return any(
        verdict(dataclasses.replace(check, mistakes=(), cases=lambda _, case=case: [case]),
                answer, seed)
        for case in check.cases(Draw(seed))
    )  # fmt: skip


@pytest.mark.parametrize(("name", "exercise"), EVERY)
def test_drawn_cases_refuse_by_themselves(name: str, exercise: str) -> None:
    """With each draw, every wrong answer: no list of known mistakes is needed for that."""
    check = quick(exercise)
    wrong = [mistake.function for mistake in check.mistakes]
    for mutant in proofs_of(name, exercise)[0]:
        wrong.append(answer_from(name, exercise, mutated(name, mutant)))
    accepted = [
        (number, seed) for number, answer in enumerate(wrong) for seed in range(20)
        if not refuses(check, answer, seed)
    ]  # fmt: skip
    assert accepted == []


@pytest.mark.parametrize(("name", "exercise"), EVERY)
def test_stored_answers_are_refused(name: str, exercise: str) -> None:
    """Those to the self-check's inputs, with any other draw; no part of them has points."""
    check = dataclasses.replace(quick(exercise), mistakes=())
    stored = [check.reference(*case.args) for case in check.cases(Draw(0))]

    def judge(seed: int) -> None:
        answers = itertools.chain(stored, itertools.repeat(stored[-1]))
        check.judge(lambda *_: next(answers), seed)

    judge(0)
    for seed in range(1, 8):
        with pytest.raises(checks.CheckFailed) as failed:
            judge(seed)
        assert failed.value.share == 0


# What each exercise is tried on: who takes a case away changes a line of it.
DRAWN = dict(
    line.split(": ", 1)
    for line in (HERE.parent / "tests/drawn.txt").read_text(encoding="utf-8").splitlines()
)


def drawn(exercise: str) -> str:
    """Return the words for the cases of the self-check, without what is drawn."""
    cases = quick(exercise).cases(Draw(0))
    counts = Counter(case.label for case in cases)
    return "; ".join(f"{label} ×{n}" if n > 1 else label for label, n in counts.items())


@pytest.mark.parametrize(("name", "exercise"), EVERY)
def test_what_is_drawn_is_recorded(name: str, exercise: str) -> None:
    """The line for tests/drawn.txt is the right one of a failure."""
    assert DRAWN.get(exercise) == drawn(exercise)


@pytest.mark.parametrize(("name", "exercise"), EVERY)
def test_no_mutant_repeats_a_known_mistake(name: str, exercise: str) -> None:
    """What gives the answers of a mistake gets its words, and is proven with it already."""
    words = {mistake.message for mistake in checks.EXERCISES[exercise].mistakes}
    told = told_to_mutants(name, exercise)
    assert [mutant for mutant, texts in told if words.intersection(texts)] == []


@pytest.mark.parametrize(("name", "exercise"), EVERY)
def test_right_answers_written_differently_are_accepted(name: str, exercise: str) -> None:
    """Loops, einsum, complex numbers, arrays of numpy."""
    check = quick(exercise)
    refused = []
    for right in proofs_of(name, exercise)[1]:
        answer = answer_from(name, exercise, right.source)
        told = [(seed, verdict(check, answer, seed)) for seed in (*SEEDS, 3, 4)]
        refused += [(right.title, seed, text) for seed, text in told if text]
    assert refused == []


@pytest.mark.parametrize(("name", "exercise"), EVERY)
def test_each_exercise_is_proven_by_wrong_and_right_answers_enough(
    name: str, exercise: str
) -> None:
    """At least eight wrong answers and two right ones; and at least three exercises in a set."""
    mutants, alternatives = proofs_of(name, exercise)
    assert len({mutant.changes for mutant in mutants}) == len(mutants)
    assert len(mutants) + len(checks.EXERCISES[exercise].mistakes) >= 8
    assert len(alternatives) >= 2
    assert len(load(name).questions) >= 3


@pytest.mark.parametrize("name", set_names())
def test_the_instructors_answers_are_right(name: str) -> None:
    """For many inputs; and each listing to be repaired is wrong."""
    found = namespace(name)
    for question in load(name).questions:
        for seed in range(8):
            quick(question.name).judge(found[question.name], seed)


def test_slopes_of_heads_are_each_at_least_twice_the_next() -> None:
    """As the text of the exercise promises; and a search for zeros finds them."""
    exercise = checks.EXERCISES["heads_of"]
    _, (by_zeros, _) = proofs_of("09_alibi", "heads_of")
    answer = answer_from("09_alibi", "heads_of", by_zeros.source)
    for seed in range(200):
        for case in exercise.cases(Draw(seed)):
            slopes, _ = exercise.reference(*case.args)
            assert bool((slopes[:-1] >= 2 * slopes[1:]).all())
        exercise.judge(answer, seed)


PLACED = [
    e for e in checks.EXERCISES.values() if "q_pos" in inspect.signature(e.reference).parameters
]


@pytest.mark.parametrize("exercise", PLACED, ids=lambda exercise: exercise.name)
def test_positions_of_every_kind_are_drawn(exercise: Exercise) -> None:
    """Below 0 and far apart, in order and not; as many queries as keys, and not."""
    names = list(inspect.signature(exercise.reference).parameters)
    q_place, k_place = names.index("q_pos"), names.index("k_pos")
    for seed in range(20):
        pairs = [(c.args[q_place], c.args[k_place]) for c in exercise.cases(Draw(seed))]
        assert any(bool((q < 0).any()) for q, _ in pairs)
        assert any(float((k[None] - q[:, None]).abs().max()) > 30_000 for q, k in pairs)
        assert {len(q) == len(k) for q, k in pairs} == {True, False}
        steps = [places.diff() for pair in pairs for places in pair]
        assert any(bool((one == 1).all()) for one in steps if len(one))
        assert any(bool((one < 0).any()) for one in steps)


def listings() -> list[tuple[str, str, str]]:
    """Return (set, listing, exercise) for each listing that an exercise asks to repair."""
    found = []
    for name in set_names():
        waiting = ""
        for cell in json.loads(source_path(name).read_text(encoding="utf-8"))["cells"]:
            match = re.search(r"^def (published_\w+)", source_text(cell), flags=re.MULTILINE)
            if cell["cell_type"] == "code" and match:
                waiting = match[1]
            elif waiting and nbgrader_metadata(cell).get("solution"):
                found.append((name, waiting, nbgrader_metadata(cell)["grade_id"]))
                waiting = ""
    return found


@pytest.mark.parametrize(("name", "listing", "exercise"), listings())
def test_the_listing_to_repair_is_wrong(name: str, listing: str, exercise: str) -> None:
    """Handing it in unchanged earns nothing."""
    answer = namespace(name)[listing]
    takes = len(inspect.signature(answer).parameters)  # the exercise may give more
    for seed in SEEDS:
        with pytest.raises((checks.CheckFailed, RuntimeError)):
            quick(exercise).judge(lambda *args: answer(*args[:takes]), seed)


def test_a_check_prints_that_an_answer_is_right(capsys: pytest.CaptureFixture[str]) -> None:
    """And nothing else."""
    checks.looks(checks.EXERCISES["looks"].reference)
    assert capsys.readouterr().out == "looks: right.\n"


def said(check: Check, answer: Any, capsys: pytest.CaptureFixture[str]) -> str:
    """Return what a check prints below an answer in a notebook."""
    check(answer)
    return capsys.readouterr().out


def test_a_stub_is_not_answered_rather_than_wrong(capsys: pytest.CaptureFixture[str]) -> None:
    """NotImplementedError is what the handed-out stub raises."""

    def looks(*_: object) -> None:
        raise NotImplementedError

    assert said(checks.looks, looks, capsys) == "Not yet: looks is not answered yet\n"


def hidden_stub(*_: object) -> None:
    raise NotImplementedError


def test_an_unanswered_helper_is_named(capsys: pytest.CaptureFixture[str]) -> None:
    """The exercise that calls it is answered."""
    words = said(checks.looks, lambda *args: hidden_stub(*args), capsys)
    assert words == "Not yet: looks calls hidden_stub, which is not answered yet\n"


def test_what_torch_calls_not_implemented_is_an_error_like_others(
    capsys: pytest.CaptureFixture[str],
) -> None:
    """A softmax of integers is no stub; the error says with which arguments it was raised."""
    lines = said(checks.looks, lambda *_: torch.arange(3).softmax(0), capsys).splitlines()
    assert lines[0] == "Not yet: it raises an error"
    assert lines[1].startswith("NotImplementedError: ") and "softmax" in lines[1]
    assert lines[2].startswith("with ")


def test_an_answer_that_raises_is_shown_its_own_line(capsys: pytest.CaptureFixture[str]) -> None:
    """The last one that the error went through, also if torch or a comprehension raised it."""
    source = "def looks(output, table):\n    wide = [each @ output for each in table[None]]\n"
    words = said(checks.looks, answer_from("05_shaw", "looks", source), capsys)
    first, line, error, case = words.splitlines()
    assert first.startswith("Not yet: line 2, in ") and first.endswith(" raises an error")
    assert line == "    wide = [each @ output for each in table[None]]"
    assert error.startswith("RuntimeError: ") and case.startswith("with ")


def test_where_nbgrader_runs_a_cell_a_wrong_answer_raises(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """It takes a cell that does not raise for right."""
    monkeypatch.setenv("NBGRADER_EXECUTION", "validate")
    with pytest.raises(checks.CheckFailed):
        checks.looks(lambda *_: None)


def test_an_answer_that_takes_too_long_is_right_and_does_not_count(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """The grader would not have waited for it."""
    clock = itertools.count(step=30)
    monkeypatch.setattr("pe_course.judge.exercise.time.perf_counter", lambda: next(clock))
    slow = Exercise("same", lambda draw: [Case("a", (1,)), Case("b", (2,))], lambda x: x)
    assert said(slow, lambda x: x, capsys) == "same: right, but it took 60 s; 10 s is its budget.\n"
    assert not FOUND["same"][0]


def test_an_answer_that_runs_longer_than_its_budget_is_told_of_while_it_runs(
    capsys: pytest.CaptureFixture[str],
) -> None:
    """An endless one would otherwise say nothing."""

    def slow(x: int) -> int:
        time.sleep(0.3)
        return x

    for seconds in (0.05, 10.0):
        check = Exercise("same", lambda draw: [Case("a", (1,))], lambda x: x, seconds=seconds)
        words = said(check, slow, capsys)
        assert ("same has run for 0.05 s, its budget" in words) == (seconds < 0.3)


@pytest.mark.parametrize(("name", "exercise"), EVERY)
def test_a_time_that_is_not_the_usual_one_is_said(name: str, exercise: str) -> None:
    """In the text of the exercise."""
    seconds = checks.EXERCISES[exercise].seconds
    assert seconds == 10 or f"{seconds:g} seconds" in asked(name)[exercise]


def two_cases(answer: Any, **more: Any) -> None:
    """Check an answer that should return its argument."""
    cases = (Case("one row", (torch.ones(1, 3),)), Case("two rows", (torch.ones(2, 3),)))
    mistake = Mistake("the rows are flipped", lambda x: x.flip(0)[:1] * 2)
    asked = Exercise("same", lambda draw: cases, lambda x: x, (mistake,), **more)
    asked.judge(answer, 0)


def test_a_known_mistake_explains_all_cases_or_none() -> None:
    """A wrong shape in one case does not keep the others from being called."""
    with pytest.raises(checks.CheckFailed, match="the rows are flipped"):
        two_cases(lambda x: x.flip(0)[:1] * 2)
    with pytest.raises(checks.CheckFailed, match="with one row: it must return shape"):
        two_cases(lambda x: x[:, :2] if len(x) == 1 else x.flip(0)[:1] * 2)
    with pytest.raises(checks.CheckFailed, match="with one row: it must return shape"):
        two_cases(lambda x: x[:, :2] if len(x) == 1 else x[9])


def test_a_forgotten_mask_is_named_whatever_stands_there() -> None:
    """Zeros, numbers that grow, infinity; a wrong score of a key that is seen is no such thing."""
    check = checks.EXERCISES["xpos_scores"]

    def forgotten(number: float, factor: float = 1.0) -> Answer:
        return lambda q, k, m, n: (
            factor * check.reference(q, k, m, n).masked_fill(n > m[:, None], number)
        )

    for number in (0.0, -1e4, 7.5, torch.inf, torch.nan):
        with pytest.raises(checks.CheckFailed, match="a key that comes after a query is not seen"):
            check.judge(forgotten(number), 0)
        with pytest.raises(checks.CheckFailed, match="with a cache from 0"):
            check.judge(forgotten(number, 1.5), 0)


def test_indices_must_be_integers_where_it_matters() -> None:
    """And an axis is called by its name where it has one."""
    two_cases(lambda x: x)
    with pytest.raises(checks.CheckFailed, match="return integers, yours are float32"):
        two_cases(lambda x: x, integers=True)
    with pytest.raises(checks.CheckFailed, match="index 0 of the key axis are right"):
        two_cases(lambda x: x + torch.tensor([0.0, 1, 3]), axes=("query", "key"))


def test_a_reused_buffer_is_no_mistake() -> None:
    """What an answer returned is kept as it was then."""
    buffer = torch.zeros(2, 3)

    def answer(x: Tensor) -> Tensor:
        buffer[: len(x)] = x
        return buffer[: len(x)]

    two_cases(answer)


def test_an_unknown_check_names_the_nearest(capsys: pytest.CaptureFixture[str]) -> None:
    """A typing error is answered."""
    with pytest.raises(AttributeError, match="did you mean 'converted'"):
        _ = checks.convertd
    assert "must be a function" in said(checks.converted, torch.ones(3), capsys)


ONES, TRUTHS = torch.ones(2, 3), torch.ones(2, dtype=torch.bool)


@pytest.mark.parametrize(
    ("got", "want", "words"),
    [
        (None, ONES, "it returns None; is a `return` missing?"),
        ("ones", ONES, "it must return shape (2, 3), it returns a str"),
        (object(), ONES, "it must return shape (2, 3), it returns an object"),
        (ONES.T, ONES, "it must return shape (2, 3), it returns shape (3, 2)"),
        (1.0, ONES, "it must return shape (2, 3), it returns a number"),
        ([ONES, "x"], ONES, "it must return shape (2, 3), it returns 2 values"),
        ((ONES,), (ONES, ONES), "it must return 2 values, it returns 1 value"),
        (ONES, (ONES, ONES), "it must return 2 values, it returns shape (2, 3)"),
        ((ONES, None), (ONES, ONES), "value 2: it returns None; is a `return` missing?"),
        (ONES[0, :2], TRUTHS, "it must return True and False"),
        (TRUTHS, ONES[0, :2], "it must return numbers, not True and False"),
        ((ONES, ONES), (ONES, ONES), ""),
        (torch.stack([ONES, ONES]), (ONES, ONES), ""),
        (torch.stack([ONES, ONES]).numpy(), (ONES, ONES), ""),
        (torch.tensor(1.0), (ONES, ONES), "it must return 2 values, it returns a number"),
        (ONES, (ONES[0, 0], ONES[0, 0]), "it must return 2 values, it returns shape (2, 3)"),
        (
            ONES[0, 0].expand(10**9),
            (ONES, ONES),
            "it must return 2 values, it returns shape (1000000000,)",
        ),
        ([ONES[0], ONES[1]], ONES, ""),
        ([ONES[0], ONES[0, :2]], ONES, "it must return shape (2, 3), it returns 2 values"),
        (ONES.to_sparse(), ONES, ""),
        (ONES.to("meta"), ONES, "it must return shape (2, 3), it returns a Tensor"),
        (ONES.numpy()[::-1], ONES, ""),
    ],
)
def test_a_value_of_the_wrong_kind_is_named(got: Any, want: Any, words: str) -> None:
    """Before any number is compared."""
    assert shape_problem(got, want) == words


RISING = torch.arange(1.0, 10).reshape(3, 3)


@pytest.mark.parametrize(
    ("got", "words"),
    [
        (-RISING, "the sign of everything is flipped"),
        (RISING / 0, "it has NaN or infinity"),
        (3 * RISING, "off by one constant factor"),
        (RISING + 2, "off by one constant that is added"),
        (RISING.T, "it is the transpose of what is wanted"),
        (RISING + torch.tensor([[0.0], [1], [5]]), "index 0 of axis 0 are right, later ones"),
        (RISING + torch.tensor([0.0, 1, 5]), "index 0 of axis 1 are right, later ones"),
        (RISING + torch.tensor([0.0, 0, 5]), "index 0 of axis 1 are right, some later ones"),
        (RISING.flip(0), "the shape is right, the values are not (67 % of them)"),
    ],
)
def test_wrong_numbers_are_described_without_giving_the_right_ones(got: Any, words: str) -> None:
    """Signs, factors, shifts, transposes, and where it goes wrong."""
    assert words in difference(got, RISING, 1e-4)
    assert difference((RISING, got), (RISING, RISING), 1e-4).startswith("value 2: ")


def test_a_class_that_is_wrong_is_named_and_the_right_one_is_not() -> None:
    """Six numbers stand for six answers; where the grader judges, none of them is said."""
    exercise = checks.EXERCISES["what_it_reads"]

    def two_as_three(pieces: Tensor) -> Tensor:
        found = exercise.reference(pieces)
        return found + (found == 2).long() - 2 * (found == 5).long()

    with pytest.raises(checks.CheckFailed, match="where you give 3, another is wanted"):
        exercise.judge(two_as_three, 0)
    with pytest.raises(checks.CheckFailed, match=r"^with (?!.*where you give)"):
        exercise.judge(two_as_three, 1, hidden=True)


def test_values_are_compared_as_students_return_them() -> None:
    """Arrays, lists and numbers count as tensors; strings and other shapes never do."""
    assert close([1.0, 2.0], torch.tensor([1.0, 2]), 1e-6)
    assert close(RISING.numpy(), RISING, 1e-6) and close((1, "a"), (1, "a"), 1e-6)
    assert not close("a", "b", 1e-6) and not close(RISING[0], RISING, 1e-6)
    assert difference(torch.tensor(2.0), torch.tensor(5.0), 1e-6) == "the number is wrong"
    assert difference(torch.tensor(-1), torch.tensor(1), 0.0) == "the number is wrong"  # its number
    told = shape_problem(RISING, RISING.long(), integers=True)
    assert told == "whole numbers are asked for: return integers, yours are float32"
    assert not close(torch.tensor(complex(0, 1)), torch.tensor(1.0), 1e-6)


def test_no_message_shows_numbers_of_the_answer() -> None:
    """Messages say what is wrong, not what is right: no decimal of an expected value."""
    for exercise in checks.EXERCISES.values():
        with pytest.raises(checks.CheckFailed) as failed:
            exercise.judge(lambda *args, exercise=exercise: scrambled(exercise.reference(*args)), 0)
        assert re.search(r"\d\.\d{3}", str(failed.value)) is None


@pytest.mark.parametrize("exercise", checks.EXERCISES)
def test_the_graders_words_for_its_cases_are_the_same_for_every_draw(exercise: str) -> None:
    """So that no drawn number is in them; and no number is told of what an answer returned."""
    check = quick(exercise)
    (words,) = {
        tuple(case.label for case in checks.EXERCISES[exercise].cases(Draw(seed)))
        for seed in range(20)
    }
    for seed in range(8):
        with pytest.raises(checks.CheckFailed) as failed:
            check.judge(lambda *args: scrambled(check.reference(*args)), seed, hidden=True)
        told = str(failed.value)
        for label in words:
            told = told.replace(f"with {label}: ", "").replace(label, "")
        assert (
            re.search(r"\d", re.sub(r"value \d|index 0|axis \d|and in \d+ more", "", told)) is None
        )


def test_only_the_self_check_tells_what_is_drawn() -> None:
    """And what is the same for all stays in the grader's words, numbers too."""
    told = []
    for hidden in (False, True):
        with pytest.raises(checks.CheckFailed) as failed:
            # It is wrong where the gain is 1.
            checks.EXERCISES["yarn_of"].judge(
                lambda *tables: scrambled(checks.EXERCISES["yarn_of"].reference(*tables))
                if float(tables[0].square()[0, 0] + tables[1].square()[0, 0]) == pytest.approx(1)
                else checks.EXERCISES["yarn_of"].reference(*tables), 1, hidden,
            )  # fmt: skip
        told.append(str(failed.value))
    assert re.match(r"with a gain of 1, \d+ pairs: ", told[0])
    assert told[1].startswith("with a gain of 1: ")


def scrambled(value: Any) -> Any:
    """Return something of the same shape, and wrong."""
    if isinstance(value, tuple):
        return tuple(scrambled(item) for item in value)
    if value.dtype == torch.bool:
        return ~value
    if not value.is_floating_point():
        return 5 * value + torch.arange(value.numel()).reshape(value.shape) + 1
    return value * 3.7 + torch.arange(value.numel()).reshape(value.shape) + 1.23


def through_the_pipe(value: Any) -> Any:
    """Return a value as the grader gets it."""
    frame = encode(value)
    return decode(frame[: HEADER.size], frame[HEADER.size :])


ROWS = [[1.0, 2.0], [3.0, 4.0]]


@pytest.mark.parametrize(
    "value",
    [
        deque(ROWS),
        deque(deque(row) for row in ROWS),
        [array.array("d", row) for row in ROWS],
        memoryview(np.array(ROWS)),
        UserList(ROWS),
        [range(1, 3), range(3, 5)],
        np.array(ROWS, dtype=">f8"),
        np.array(ROWS, dtype=np.longdouble),
        np.array(ROWS, dtype=object),
        np.array(ROWS)[::-1][::-1],
        [[np.float32(number) for number in row] for row in ROWS],
        [[np.longdouble(number) for number in row] for row in ROWS],
        torch.tensor(ROWS).to(torch.float8_e5m2),
        [torch.tensor(row) for row in ROWS],
    ],
)
def test_the_self_check_and_the_grader_accept_the_same_containers(value: Any) -> None:
    """A notebook's value and the one that came through the pipe are the same numbers."""
    assert close(as_tensor(value), torch.tensor(ROWS), 0.0)
    assert close(as_tensor(through_the_pipe(value)), torch.tensor(ROWS), 0.0)


@pytest.mark.parametrize("count", [0, 1, 2, 5])
def test_every_other_number_of_a_row_comes_through_the_pipe(count: int) -> None:
    """Of one number, too, whose stride says nothing."""
    row = torch.arange(10.0)[: 2 * count : 2]
    assert torch.equal(through_the_pipe(row), row)


@pytest.mark.parametrize(
    "value",
    [
        {1.0, 2.0},
        {1: 2.0}.values(),
        (number for number in ROWS),
        b"12",
        "12",
        memoryview(b"12").cast("c"),
        [fractions.Fraction(1), fractions.Fraction(2)],
        [1j, 2j],
        np.array([fractions.Fraction(1), None]),
        np.array(["1", "2"]),
    ],
)
def test_the_self_check_and_the_grader_refuse_the_same_values(value: Any) -> None:
    """What one of them takes for no numbers, the other does not either."""
    assert as_tensor(value) is None
    assert as_tensor(through_the_pipe(value)) is None


@pytest.mark.parametrize(
    ("got", "words"),
    [
        (RISING.half() * 1.01, "your numbers are float16, which is too coarse"),
        (RISING.bfloat16().flip(0), "your numbers are bfloat16"),
        (RISING + torch.eye(3) / 500, "rounded, or of less precision than float32?"),
        (
            RISING.double() + torch.eye(3) / 500,
            "nearly right: is anything on the way, perhaps a constant",
        ),
        (torch.complex(RISING, RISING), "the numbers are complex; return their real part"),
    ],
)
def test_a_message_names_the_precision(got: Any, words: str) -> None:
    """Where it may be what is wrong."""
    assert words in difference(got, RISING + 0.1 * torch.eye(3) * (words[:3] == "you"), 1e-4)
    assert "nearly" not in difference(RISING.flip(0), RISING, 1e-4)
    assert "nearly" not in difference(RISING + torch.eye(3), RISING, 1e-2)


def test_numbers_beside_infinite_ones_are_compared_like_others() -> None:
    """Whatever is infinite, a wrong number is wrong; and a share is never rounded to nothing."""
    goal = torch.full((30, 30), -torch.inf).triu(1) + torch.zeros(30, 30).tril()
    wrong = goal.clone()
    wrong[0, 0] = wrong[5, 2] = 3.0
    assert "not (1 % of them)" in difference(wrong, goal, 1e-4)
    assert not close(wrong, goal, 1e-4)


def test_a_message_names_the_last_axes() -> None:
    """Whatever stands before them."""
    shifted = torch.ones(2, 3, 3) + torch.tensor([0.0, 1, 3])
    words = difference(shifted, torch.ones(2, 3, 3), 1e-4, ("position", "column"))
    assert "index 0 of the column axis" in words
    narrow = shape_problem(torch.ones(1, 3, 3), shifted, axes=("position", "column"), hidden=True)
    assert narrow.endswith("axis 0 has the wrong size")


def asked(name: str) -> dict[str, str]:
    """Return the words of a set that stand before each answer, from the one before it on."""
    found, words = {}, ""
    for cell in json.loads(source_path(name).read_text(encoding="utf-8"))["cells"]:
        if nbgrader_metadata(cell).get("solution"):
            found[nbgrader_metadata(cell)["grade_id"]], words = words, ""
        words += source_text(cell) if cell["cell_type"] == "markdown" else ""
    return found


@pytest.mark.parametrize(("name", "exercise"), EVERY)
def test_parts_that_have_points_are_said_to(name: str, exercise: str) -> None:
    check, text = checks.EXERCISES[exercise], asked(name)[exercise]
    assert bool(check.parts) == ("half of the points" in text)
    assert len(check.parts) in (0, 2)


@pytest.mark.parametrize("exercise", [e for e in checks.EXERCISES.values() if e.parts])
def test_an_answer_with_one_part_right_has_half_of_the_points(exercise: Exercise) -> None:
    """Only if that part is right in all of its cases."""

    def share(spoiled: tuple[str | int, ...]) -> float:
        labels = iter([case.label for case in exercise.cases(Draw(1))])

        def answer(*args: Any) -> Any:
            right, label = exercise.reference(*args), next(labels)
            if isinstance(right, tuple):
                return tuple(x + 1.5 * (i in spoiled) for i, x in enumerate(right))
            return right + any(str(part) in label for part in spoiled)

        with pytest.raises(checks.CheckFailed) as failed:
            exercise.judge(answer, 1, hidden=True)
        return failed.value.share

    first, second = exercise.parts
    assert share((first,)) == share((second,)) == 0.5
    assert share((first, second)) == 0


def test_a_part_of_the_wrong_shape_takes_no_points_from_the_other() -> None:
    """The number of edges is part of the answer."""
    right = checks.EXERCISES["edges_of"].reference
    with pytest.raises(checks.CheckFailed) as failed:
        checks.EXERCISES["edges_of"].judge(lambda *a: (right(*a)[0][:-1], right(*a)[1]), 0)
    assert failed.value.share == 0.5


def test_a_message_names_the_changed_argument() -> None:
    """By its place, where there are several."""

    def answer(x: Tensor, start: int) -> Tensor:
        x += 1
        return x

    with pytest.raises(checks.CheckFailed, match="argument in place, the first one; return"):
        checks.add_positions.judge(answer, 0)
    with pytest.raises(checks.CheckFailed, match="argument in place, the second one; return"):
        checks.looks.judge(lambda o, t: torch.zeros(*o.shape[:2], len(t.neg_())), 0)
    with pytest.raises(checks.CheckFailed, match="changes its argument in place; return"):
        checks.gates_of.judge(lambda b: b.zero_()[:, :, 0, 1:], 0)


def test_a_case_may_have_a_tolerance_of_its_own() -> None:
    """For far positions, which float32 rounds; and for known mistakes, too."""
    cases = (Case("near", (torch.ones(2),)), Case("far", (torch.ones(3),), 0.1))
    mistake = Mistake("it is twice as large", lambda x: 2 * x)
    asked = Exercise("same", lambda draw: cases, lambda x: x, (mistake,))
    asked.judge(lambda x: x if len(x) == 2 else x + 0.05, 0)
    with pytest.raises(checks.CheckFailed, match="with near: "):
        asked.judge(lambda x: x + 0.05, 0)
    with pytest.raises(checks.CheckFailed, match="it is twice as large"):
        asked.judge(lambda x: 2 * x if len(x) == 2 else 2 * x + 0.05, 0)


@pytest.mark.parametrize(
    ("got", "want", "words"),
    [
        (ONES.T, ONES, "the shape is wrong: the row axis and the column axis have the wrong size"),
        (ONES[:1], ONES, "the shape is wrong: the row axis has the wrong size"),
        (ONES[None], ONES, "the shape is wrong: it has too many axes"),
        (torch.ones(()), ONES, "the shape is wrong: it has too few axes"),
        ((ONES, ONES, ONES), (ONES, ONES), "it must return 2 values"),
        ([ONES] * 77, ONES, "the shape is wrong: it has too many axes"),
        (["x"] * 77, ONES, "it returns several values, which is no array of numbers"),
        ("x", ONES, "it returns a str, which is no array of numbers"),
    ],
)
def test_the_grader_names_no_size(got: Any, want: Any, words: str) -> None:
    """A size of an answer can carry whatever its author wants to know of the inputs."""
    told = shape_problem(got, want, axes=("row", "column"), hidden=True)
    assert told.startswith(words)
    assert re.search(r"\d", told.replace("2 values", "")) is None


def test_the_grader_names_no_share() -> None:
    """How many numbers are wrong can be chosen, too."""
    for hidden, share in ((False, True), (True, False)):
        with pytest.raises(checks.CheckFailed) as failed:
            checks.EXERCISES["looks"].judge(lambda o, t: torch.rand(*o.shape[:2], len(t)),
                                            1, hidden=hidden)  # fmt: skip
        assert ("% of them" in str(failed.value)) is share


@pytest.mark.parametrize(
    ("exercise", "old", "new"),
    [
        ("trained_for", "math.ceil(2 * math.pi / rate) - 1", "math.floor(2 * math.pi / rate)"),
    ],
)
def test_what_the_guide_says_is_accepted_is_accepted(exercise: str, old: str, new: str) -> None:
    """It is a choice, with its reason; no draw refuses a student by chance."""
    name = next(name for name, each in EVERY if each == exercise)
    answer = answer_from(name, exercise, mutated(name, Mutant(exercise, "", ((old, new),))))
    for seed in range(8):
        quick(exercise).judge(answer, seed)
    guide = (HERE.parent / "book/instructors.md").read_text(encoding="utf-8")
    assert f"| `{exercise}` |" in guide


SOURCES = "".join(source_path(name).read_text(encoding="utf-8") for name in set_names())
SEEN = re.findall(r'"checks\.see\(\\"(\w+)', SOURCES)


@pytest.mark.parametrize("name", SEEN)
def test_what_an_answer_gives_can_be_seen(
    name: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Where a set has a cell for it; a stub and a wrong answer do not stop the cells below."""
    shown: list[int] = []
    monkeypatch.setattr(pyplot, "show", lambda: shown.append(len(pyplot.gca().lines)))

    def answer(*args: Any) -> Any:
        return checks.EXERCISES[name].reference(*args)

    def stub(*_: object) -> None:
        raise NotImplementedError

    checks.see(name)  # nothing of that name is there
    for given in (answer, stub, lambda *_: None):
        monkeypatch.setitem(globals(), name, given)
        checks.see(name)
    pyplot.close("all")
    assert len(shown) == 1 and shown[0] >= 2
    said = capsys.readouterr().out
    assert said.count(f"{name} is not answered yet") == 2
    assert said.count("Nothing to see yet: it raises an error\n") == 1


@pytest.mark.parametrize("name", set_names())
def test_a_check_is_fast(name: str) -> None:
    """The right answers of a whole set are judged in less than a second."""
    begin = time.process_time()
    for question in load(name).questions:
        checks.EXERCISES[question.name].judge(checks.EXERCISES[question.name].reference, 0)
    assert time.process_time() - begin < 1.0
