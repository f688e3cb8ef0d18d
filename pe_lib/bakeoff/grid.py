"""What is run: the sizes of the models, the methods, and the cells of the grid."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import asdict, dataclass, replace
from itertools import product

import torch

from pe_lib.alibi import ALiBi
from pe_lib.attention import NoPosition, PositionEncoding
from pe_lib.deberta import DeBERTa
from pe_lib.errors import require_choice
from pe_lib.fire import Fire
from pe_lib.kerple import Kerple
from pe_lib.learned import Learned
from pe_lib.rope import RoPE
from pe_lib.shaw import Shaw
from pe_lib.sinusoidal import Sinusoidal
from pe_lib.t5 import T5Bias
from pe_lib.transformer_xl import TransformerXL

STD = 0.3  # of token embeddings, and of every position vector that is added to something


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

    def settings(self) -> dict[str, object]:
        """Return the fields for the CSV, without the lengths (they have rows of their own)."""
        return {name: value for name, value in asdict(self).items() if name != "multiples"}


def sinusoidal(cell: Cell) -> PositionEncoding:
    """Return the sinusoidal code with the root mean square of the tokens (its own is 0.71)."""
    longest = max(cell.lengths)
    return Sinusoidal(cell.d_model, gain=STD * 2**0.5, max_len=longest)


def rope(cell: Cell) -> PositionEncoding:
    """Return RoPE in the fast layout."""
    return RoPE(cell.d_model // cell.n_heads, max_len=max(cell.lengths))


# A table of distances that is far smaller than the training length would be an unfair rival,
# so the spans follow it.
METHODS: dict[str, Callable[[Cell], PositionEncoding]] = {
    "none": lambda cell: NoPosition(),
    "sinusoidal": sinusoidal,
    "learned": lambda cell: Learned(cell.train_length, cell.d_model, std=STD),
    "shaw": lambda cell: Shaw(cell.d_model // cell.n_heads, max(16, cell.train_length // 4)),
    "transformer_xl": lambda cell: TransformerXL(cell.d_model, cell.n_heads),
    "t5": lambda cell: T5Bias(
        cell.n_heads, 16, cell.train_length // 2, bidirectional=not cell.causal
    ),
    "deberta": lambda cell: DeBERTa(
        cell.d_model, cell.n_heads, max(16, cell.train_length // 2), std=STD
    ),
    "alibi": lambda cell: ALiBi(cell.n_heads, symmetric=not cell.causal),
    "rope": rope,
    "kerple": lambda cell: Kerple(cell.n_heads),
    "fire": lambda cell: Fire(cell.n_heads, threshold=cell.train_length / 4),
}
PER_LAYER = ("shaw", "transformer_xl", "deberta", "kerple", "fire")  # weights of their own

PRETRAINED = "pretrained"  # a published model: measured, not trained
CAUSAL_TASKS = ("text", "marker", "n-back", PRETRAINED)
ORDER_TASKS = ("first", "shift", "reverse")
TASKS = (*CAUSAL_TASKS, *ORDER_TASKS)
SCALES = ("small", "large")

# The sizes of every task; method and seed are filled in by `grid`.
SIZES = [
    Cell("small", "text", "", 0, 64, d_model=64, batch=16, lr=6e-3, warmup=100),
    Cell("small", "marker", "", 0, 32),
    Cell("small", "n-back", "", 0, 32, steps=400),
    Cell("small", "first", "", 0, 16, batch=64, steps=400, multiples=(1,)),
    Cell("small", "shift", "", 0, 16, batch=64, steps=400, multiples=(1,)),
    Cell("small", "reverse", "", 0, 16, batch=64, steps=400, multiples=(1,)),
    Cell("small", PRETRAINED, "", 0, 128, d_model=128, n_layers=4, steps=0),
    Cell(
        "large", "text", "", 0, 128, d_model=96, n_heads=6, n_layers=3, batch=8, steps=3000,
        lr=2e-3, warmup=100, multiples=(1, 1.5, 2, 4, 8),
    ),
]  # fmt: skip


def encodings(cell: Cell) -> PositionEncoding | list[PositionEncoding]:
    """Return a cell's encoding: one for all layers, or one per layer where it is usual."""
    make = METHODS[require_choice("method", cell.method, tuple(METHODS))]
    if cell.method in PER_LAYER:
        return [make(cell) for _ in range(cell.n_layers)]
    return make(cell)


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
    require_choice("scale", scale, SCALES)
    sizes = {cell.task: cell for cell in SIZES if cell.scale == scale}
    chosen = tuple(sizes) if tasks is None else tuple(tasks)
    names = tuple(METHODS) if methods is None else tuple(methods)
    for task in chosen:
        require_choice("task", task, tuple(sizes))
    for name in names:
        require_choice("method", name, tuple(METHODS))
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


def device() -> torch.device:
    """Return the GPU where there is one."""
    return torch.device("cuda" if torch.cuda.is_available() else "cpu")
