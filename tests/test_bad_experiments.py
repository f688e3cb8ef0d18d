"""What the experiments are given wrongly is refused by name.

`bad_experiments.txt` has a call and a pattern of its error in each line.
"""

from __future__ import annotations

import math
from pathlib import Path

import pytest
import torch
from torch import nn

from pe_course import four_terms, measure, tasks
from pe_course.hierarchical import Beyond, Hierarchical, HierarchicalLearned, split_rows
from pe_course.model import Transformer
from pe_course.segments import SegmentMemory
from pe_course.training import IGNORE, Batch, accuracy, generator, train
from pe_lib import KVCache, Learned, NoPosition, Sinusoidal

TABLE = Path(__file__).with_name("bad_experiments.txt").read_text(encoding="utf-8").splitlines()
CASES = dict(line.split(" ; ", 1) for line in TABLE)


def nothing_counts(_: object = None) -> Batch:
    """Return two inputs with nothing to be told of them."""
    return torch.zeros(2, 4), torch.full((2,), IGNORE)


def counts(_: torch.Generator) -> Batch:
    return torch.zeros(2, 4), torch.zeros(2, dtype=torch.long)


def trained(batches: object = counts, **options: object) -> list[float]:
    settings = {"steps": 3, **options}
    return train(nn.Linear(4, 4), batches, **settings)  # type: ignore[arg-type]


MODULES = (four_terms, measure, tasks, math, torch, nn)
CLASSES = (Transformer, KVCache, NoPosition, Sinusoidal, Learned)
CLASSES += (Beyond, Hierarchical, HierarchicalLearned, SegmentMemory)
FUNCTIONS = (split_rows, accuracy, generator, nothing_counts, trained)
SCOPE = {each.__name__.split(".")[-1]: each for each in (*MODULES, *CLASSES, *FUNCTIONS)}
SCOPE["IDS"] = torch.zeros(2, 3, dtype=torch.long)


@pytest.mark.parametrize("call", CASES)
def test_errors_name_the_argument_and_what_is_allowed(call: str) -> None:
    with pytest.raises((TypeError, ValueError), match=CASES[call]):
        eval(call, dict(SCOPE))
