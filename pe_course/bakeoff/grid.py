"""What is run: the sizes of the models, the methods, and the cells of the grid."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass, replace
from itertools import product
from typing import TYPE_CHECKING

from pe_course import checks

if TYPE_CHECKING:
    from pe_course.registry import Sizes


@dataclass(frozen=True)
class Cell:
    """One model to train: a task, a method, a seed, and everything else that decides a number."""

    scale: str
    task: str
    method: str
    seed: int
    train_length: int
    d_model: int = 32
    n_heads: int = 4
    n_layers: int = 2
    batch: int = 32
    steps: int = 1000
    lr: float = 3e-3
    warmup: int = 50
    multiples: tuple[float, ...] = (1, 1.5, 2, 4, 8, 16)
    checks: tuple[int, ...] = ()  # steps after which the training length is measured on the way

    @property
    def key(self) -> str:
        """Return the name of the cell; no two cells of a grid share it."""
        return f"{self.scale}/{self.task}/{self.method}/{self.seed}"

    @property
    def causal(self) -> bool:
        """Return whether the model is a decoder."""
        return self.task in CAUSAL_TASKS

    @property
    def lengths(self) -> list[int]:
        """Return the lengths at which the model is measured."""
        return [round(self.train_length * multiple) for multiple in self.multiples]

    @property
    def sizes(self) -> Sizes:
        """Return what a method must know of the model."""
        from pe_course.registry import Sizes  # loads PyTorch, which facts of cells do not need

        tokens_of_a_sum = 3 * self.train_length + 2
        length = tokens_of_a_sum if self.task in ADDITION_TASKS else self.train_length
        return Sizes(self.d_model, self.n_heads, length, self.causal)

    def settings(self) -> dict[str, object]:
        """Return the fields for the CSV, without what has rows of its own: lengths, checks."""
        own_rows = ("multiples", "checks")
        return {name: value for name, value in asdict(self).items() if name not in own_rows}


# The methods of the shipped tables; any other of the registry can be named.
COMPARED = (
    "none", "sinusoidal", "learned", "shaw", "transformer_xl", "t5", "deberta", "alibi", "rope",
    "kerple", "fire",
)  # fmt: skip
# Methods of 2023 to 2025, each measured on the decoder's tasks.
NEWER = ("pope", "p_rope", "hybrid", "temperature", "forgetting", "cope", "randomised")

PRETRAINED = "pretrained"  # a published model: measured, not trained
ADDITION_TASKS = ("addition", "coupled")  # the second with positions that digits share
CAUSAL_TASKS = ("text", "marker", "n-back", PRETRAINED, *ADDITION_TASKS)
ORDER_TASKS = ("first", "shift", "reverse")
TASKS = (*CAUSAL_TASKS, *ORDER_TASKS)
SCALES = ("small", "short", "long")

# The sizes of every task; method and seed are filled in by `grid`.
SIZES = [
    Cell("small", "text", "", 0, 64, d_model=64, batch=16, lr=6e-3, warmup=100),
    Cell("small", "marker", "", 0, 32),
    Cell("small", "n-back", "", 0, 32, steps=400),
    Cell("small", "first", "", 0, 16, batch=64, steps=400, multiples=(1,)),
    Cell("small", "shift", "", 0, 16, batch=64, steps=400, multiples=(1,)),
    Cell("small", "reverse", "", 0, 16, batch=64, steps=400, multiples=(1,)),
    # The length is the number of digits, of which batches have 1 to 6.
    Cell("small", "addition", "", 0, 6, steps=1500, multiples=(1, 1.5, 2, 4, 8)),
    Cell("small", "coupled", "", 0, 6, steps=1500, multiples=(1, 1.5, 2, 4, 8)),
    Cell("small", PRETRAINED, "", 0, 128, d_model=128, n_layers=4, steps=0),
    # So short that a page can train them all again.
    Cell("short", "n-back", "", 0, 32, steps=30, multiples=(1, 2)),
    # As long for all, by the rules of `pe_course.bakeoff.protocol`.
    Cell("long", "n-back", "", 0, 32, steps=2000, checks=(200, 400, 1000, 1500)),
    Cell("long", "marker", "", 0, 32, steps=2000, checks=(200, 400, 1000, 1500)),
    Cell("long", "text", "", 0, 64, d_model=64, batch=16, steps=3000, warmup=100,
         checks=(300, 1000, 2250)),
]  # fmt: skip


def grid(
    scale: str = "small",
    tasks: Sequence[str] | None = None,
    methods: Sequence[str] | None = None,
    seeds: Iterable[int] = range(3),
) -> list[Cell]:
    """Return the cells, seed by seed, so that an unfinished grid is still a fair one.

    The pretrained model has RoPE and no seed of ours, so it is one cell whatever the seeds are.

    Raises:
        ValueError: if a scale, task or method is unknown, or the scale lacks a task.
    """
    from pe_course.bakeoff.recipes import TRAINABLE  # loads PyTorch

    checks.one_of("scale", scale, SCALES)
    sizes = {cell.task: cell for cell in SIZES if cell.scale == scale}
    usual = tuple(task for task in sizes if task not in ADDITION_TASKS)
    chosen = usual if tasks is None else tuple(tasks)
    names = COMPARED if methods is None else tuple(methods)
    for task in chosen:
        checks.one_of("task", task, sizes)
    for name in names:
        checks.one_of("method", name, TRAINABLE)
    trained = [
        replace(sizes[task], method=method, seed=seed)
        for seed, task, method in product(seeds, chosen, names)
        if task != PRETRAINED
    ]
    published = PRETRAINED in chosen and "rope" in names
    return [*trained, *([replace(sizes[PRETRAINED], method="rope")] if published else [])]


def shorter(cell: Cell, steps: int) -> Cell:
    """Return the same cell with fewer steps, for a page or a test; its numbers are its own."""
    return replace(cell, scale=f"{cell.scale}-{steps}", steps=steps)
