"""One cell: train the model, then measure every variant at every length."""

from __future__ import annotations

import platform
import time
from collections.abc import Callable, Iterator
from copy import deepcopy
from dataclasses import replace
from functools import cache, partial

import torch
import torch.nn.functional as F
from torch import Tensor

from pe_course import tasks
from pe_course.bakeoff.grid import ADDITION_TASKS, PRETRAINED, Cell
from pe_course.bakeoff.recipes import (
    REACH,
    RECIPES,
    AtCoupledPositions,
    AtRandomPositions,
    encodings,
)
from pe_course.bakeoff.rows import Row
from pe_course.bakeoff.variants import EXTENSIONS, dress, variants
from pe_course.model import Transformer
from pe_course.pretrained import GlassLM, encode, load_glass
from pe_course.training import IGNORE, Batch, accuracy, generator, one_thread, train

Trained = Transformer | AtRandomPositions | AtCoupledPositions
Model = Trained | GlassLM

WINDOWS, TARGETS = 128, 32  # of the text; the same characters at every length
TOKEN_WINDOWS, TOKEN_TARGETS = 32, 64  # of the text as the pretrained model reads it
LAST = 4  # characters scored when asking how much context is used
CONTEXTS = (4, 8, 16, 32, 64, 128, 256)
TUNE_FACTOR = 4
TUNE_STEPS: tuple[int, ...] = (0, 10, 50, 200)
# What is trained on, in which ways.
TRAINED_ON = {"rope": ("rope", *EXTENSIONS, "rope+base"), "windows_rope": ("windows_rope",)}
TOKEN_TASKS: dict[str, Callable[..., Batch]] = {
    "marker": tasks.marker_recall,
    "n-back": tasks.n_back,
}
CHUNK = 16384  # tokens per forward pass when measuring
TEST_SEED = 10_000


def device() -> torch.device:
    """Return the GPU where there is one."""
    return torch.device("cuda" if torch.cuda.is_available() else "cpu")


def batch_maker(cell: Cell) -> Callable[[torch.Generator], Batch]:
    """Return what makes a training batch of the cell's task, on the cell's device."""
    makers: dict[str, Callable[..., Batch]] = {
        "text": partial(tasks.text_windows, split_text()[0]),
        **TOKEN_TASKS,
        "first": tasks.which_came_first,
        "shift": tasks.shift,
        "reverse": tasks.reverse,
        "addition": sums_of_any_length,
        "coupled": sums_of_any_length,
    }
    make, place = makers[cell.task], device()

    def batch(random: torch.Generator) -> Batch:
        inputs, targets = make(cell.batch, cell.train_length, random)
        return inputs.to(place), targets.to(place)

    return batch


def sums_of_any_length(count: int, longest: int, random: torch.Generator) -> Batch:
    """Return sums of numbers with as many digits, from 1 to `longest`."""
    return tasks.addition(count, int(torch.randint(1, longest + 1, (), generator=random)), random)


@cache
def split_text() -> tuple[Tensor, Tensor, int]:
    """Return the ids for training (the first 90 %) and for testing, and the alphabet's size."""
    ids, alphabet = tasks.encode_characters(tasks.load_text())
    cut = int(0.9 * len(ids))
    return ids[:cut], ids[cut:], len(alphabet)


def build(cell: Cell) -> Trained:
    """Return the cell's model with its initial weights, drawn from the cell's seed."""
    torch.manual_seed(cell.seed)
    sizes = {"text": split_text()[2], "marker": 17, "addition": 12, "coupled": 12}
    n_in = sizes.get(cell.task, 16)
    pooled = cell.task == "first"
    model = Transformer(
        n_in,
        2 if pooled else n_in,
        d_model=cell.d_model,
        n_heads=cell.n_heads,
        n_layers=cell.n_layers,
        encoding=encodings(cell.method, cell.sizes, cell.n_layers),
        causal=cell.causal,
        pool="mean" if pooled else None,
    ).to(device())
    if cell.method in RECIPES and RECIPES[cell.method].drawn:
        return AtRandomPositions(model, REACH * cell.train_length, cell.seed)
    return AtCoupledPositions(model) if cell.task == "coupled" else model


def windows(ids: Tensor, count: int, length: int) -> Batch:
    """Return windows that end at the same places whatever their length: (count, length)."""
    ends = torch.linspace(2048, len(ids) - 1, count).long().unsqueeze(1)  # (count, 1)
    window = ids[ends - length + torch.arange(length + 1)]  # (count, length + 1)
    return window[:, :-1], window[:, 1:]


@cache
def pretrained_ids() -> Tensor:
    """Return the last tenth of the text as tokens of the pretrained model."""
    text = tasks.load_text()
    return encode(text[int(0.9 * len(text)) :])


@torch.no_grad()
def text_loss(model: Model, batch: Batch, targets: int) -> float:
    """Return the mean loss in nats on the last `targets` tokens of every window."""
    inputs, answers = batch
    total, chunk = 0.0, max(1, CHUNK // inputs.shape[1])
    for start in range(0, len(inputs), chunk):
        part = slice(start, start + chunk)
        logits = model(inputs[part].to(device()))[:, -targets:]
        wanted = answers[part, -targets:].to(device())
        total += float(F.cross_entropy(logits.flatten(0, 1), wanted.flatten(), reduction="sum"))
    return total / (len(inputs) * targets)


def token_accuracy(model: Trained, cell: Cell, length: int) -> float:
    """Return the accuracy on the last positions of random sequences, as many as in training."""
    inputs, targets = TOKEN_TASKS[cell.task](128, length, generator(TEST_SEED + length))
    targets[:, : -cell.train_length] = IGNORE
    return accuracy(model, inputs.to(device()), targets.to(device()))


def score(model: Model, cell: Cell, length: int) -> tuple[str, Callable[[], float]]:
    """Return the name of the measure of the cell's task, and what measures one length."""
    if cell.task == "text":
        batch = windows(split_text()[1], WINDOWS, length)
        return "nats", partial(text_loss, model, batch, TARGETS)
    assert not isinstance(model, GlassLM)
    return "accuracy", partial(token_accuracy, model, cell, length)


def measure(model: Model, cell: Cell) -> Iterator[Row]:
    """Yield one row per variant, length and measure."""
    if isinstance(model, GlassLM):
        yield from measure_pretrained(model, cell)
        return
    if cell.task == "text":
        yield from measure_text(model, cell)
        return
    if not cell.causal:
        yield from measure_order(model, cell)
        return
    if cell.task in ADDITION_TASKS:
        yield from measure_addition(model, cell)
        return
    for variant in variants(cell):
        for length in cell.lengths:
            dress(model, cell, variant, length)
            yield row(variant, length, *score(model, cell, length))
    yield from measure_further(model, cell)


def measure_pretrained(model: GlassLM, cell: Cell) -> Iterator[Row]:
    """Yield the loss at every length for every extension, without any training."""
    for variant in variants(cell):
        for length in cell.lengths:
            dress(model, cell, variant, length)
            batch = windows(pretrained_ids(), TOKEN_WINDOWS, length)
            yield row(variant, length, "nats", partial(text_loss, model, batch, TOKEN_TARGETS))


def measure_text(model: Trained, cell: Cell) -> Iterator[Row]:
    """Yield the loss at every length, the loss by length of context, and after fine-tuning."""
    ids = split_text()[1]
    for variant in variants(cell):
        for length in cell.lengths:
            dress(model, cell, variant, length)
            yield row(variant, length, *score(model, cell, length))
    for context in CONTEXTS:
        dress(model, cell, cell.method, context)
        batch = windows(ids, WINDOWS, context)
        yield row(cell.method, context, f"nats-last-{LAST}", partial(text_loss, model, batch, LAST))
    if cell.scale == "small":
        yield from measure_further(model, cell)


def measure_further(model: Trained, cell: Cell) -> Iterator[Row]:
    """Yield what becomes of a method that is trained on, or of RoPE once it is taken away."""
    if not isinstance(model, Transformer) or cell.checks:
        return
    if cell.scale == "small" and cell.method in TRAINED_ON:
        yield from measure_tuning(model, cell)
    if cell.method == "rope":
        yield from measure_dropping(model, cell)


def measure_tuning(model: Transformer, cell: Cell) -> Iterator[Row]:
    """Yield the score after some steps of training on longer sequences, in each way."""
    length = TUNE_FACTOR * cell.train_length
    longer = replace(cell, train_length=length, batch=cell.batch // TUNE_FACTOR)
    start = {name: weight.clone() for name, weight in model.state_dict().items()}
    for variant in TRAINED_ON[cell.method]:
        for steps in TUNE_STEPS:
            model.load_state_dict(start)
            dress(model, cell, variant, length)
            if steps:
                train(
                    model, batch_maker(longer), steps=steps, lr=1e-3, warmup=5, seed=cell.seed,
                    constant=True,
                )  # fmt: skip
            kind, value = score(model, cell, length)
            yield row(variant, length, f"{kind}-tuned-{steps}", value)
    model.load_state_dict(start)


def measure_dropping(model: Transformer, cell: Cell) -> Iterator[Row]:
    """Yield scores at every length without RoPE, after some steps at the trained length (DroPE)."""
    start = {name: weight.clone() for name, weight in model.state_dict().items()}
    variant = "rope+drop"
    for steps in TUNE_STEPS:
        model.load_state_dict(start)
        dress(model, cell, variant, cell.train_length)
        if steps:
            unseen = cell.seed + TEST_SEED  # batches that the training has not shown
            train(
                model, batch_maker(cell), steps=steps, lr=1e-3, warmup=5, seed=unseen,
                constant=True,
            )  # fmt: skip
        for length in cell.lengths:
            kind, value = score(model, cell, length)
            yield row(variant, length, f"{kind}-recalibrated-{steps}", value)
    model.load_state_dict(start)
    dress(model, cell, cell.method, cell.train_length)


def measure_order(model: Trained, cell: Cell) -> Iterator[Row]:
    """Yield accuracies on test sets that are closed under swapping or mirroring, or plain."""
    random, length = generator(TEST_SEED), cell.train_length
    if cell.task == "first":
        plain = tasks.which_came_first(500, length, random)
        tests = {"swap": tasks.swap_closed(*plain), "mirror": tasks.mirror_closed(*plain)}
    else:
        tests = {"plain": getattr(tasks, cell.task)(500, length, random)}
    for name, (inputs, targets) in tests.items():
        score = partial(accuracy, model, inputs.to(device()), targets.to(device()))
        yield row(cell.method, length, f"accuracy-{name}", score)


def measure_addition(model: Trained, cell: Cell) -> Iterator[Row]:
    """Yield the share of digits that are right, and of sums that are right in every digit."""
    for digits in cell.lengths:
        inputs, targets = tasks.addition(256, digits, generator(TEST_SEED + digits))
        here = inputs.to(device()), targets.to(device())
        yield row(cell.method, digits, "accuracy", partial(accuracy, model, *here))
        yield row(cell.method, digits, "accuracy-whole", partial(whole_sums, model, *here))


@torch.no_grad()
def whole_sums(model: Trained, inputs: Tensor, targets: Tensor) -> float:
    """Return the share of sums in which no digit is wrong."""
    right = (model(inputs).argmax(dim=-1) == targets) | (targets == IGNORE)  # (B, L)
    return float(right.all(dim=1).double().mean())


def row(variant: str, length: int, metric: str, value: Callable[[], float]) -> Row:
    """Return one row; where the method refuses a length, its words stand in place of a value."""
    head: Row = {"variant": variant, "length": length, "metric": metric}
    try:
        return {**head, "value": round(value(), 5), "error": ""}
    except ValueError as error:
        return {**head, "value": "", "error": str(error)}


def trained_model(cell: Cell) -> tuple[Model, float | str, list[Row]]:
    """Return a cell's model, its mean loss over the last 50 steps, and its rows on the way.

    A published model has neither.
    """
    if cell.task == PRETRAINED:
        return load_glass().to(device()), "", []
    model, reached = build(cell), list[Row]()

    def check(steps: int) -> None:
        if steps in cell.checks:
            now = deepcopy(model)  # whose draws of positions are not the training's
            dress(now, cell, cell.method, cell.train_length)
            kind, value = score(now.eval(), cell, cell.train_length)
            reached.append(row(cell.method, cell.train_length, f"{kind}-after-{steps}", value))

    losses = train(
        model,
        batch_maker(cell),
        steps=cell.steps,
        lr=cell.lr,
        warmup=cell.warmup,
        seed=cell.seed,
        label=cell.key,
        after=check,
    )
    return model, round(sum(losses[-50:]) / len(losses[-50:]), 4), reached


def run_cell(cell: Cell) -> list[Row]:
    """Train and measure one cell.

    Returns:
        one row per variant, length and measure, each with the cell's settings, its seconds of
        processor time and the versions that made it.
    """
    with one_thread():
        started = time.process_time()
        model, final_loss, reached = trained_model(cell)
        trained = time.process_time()
        rows = [*reached, *measure(model, cell)]
    common: Row = {
        "final_loss": final_loss,
        "seconds_training": round(trained - started, 1),
        "seconds_measuring": round(time.process_time() - trained, 1),
        "device": device().type,
        "machine": platform.machine(),
        "python": platform.python_version(),
        "torch": torch.__version__,
    }
    return [{**cell.settings(), **line, **common} for line in rows]
