"""Start a model of each method, train one in both precisions, print what came; tests run this."""

from __future__ import annotations

import hashlib
import json
import sys

import torch

from pe_course import tasks
from pe_course.model import Transformer
from pe_course.registry import METHODS, Sizes
from pe_course.training import generator, loss_of, train
from pe_lib.rope import RoPE

STEPS = 40


def batches(random: torch.Generator):
    return tasks.shift(16, 12, random)


def model() -> Transformer:
    torch.manual_seed(0)
    return Transformer(12, d_model=32, n_heads=4, encoding=RoPE(8))


def start(name: str) -> str:
    """Return a digest of the initial weights, every bit of them, of a model with a method."""
    torch.manual_seed(0)
    encoding = METHODS[name].make(Sizes(d_model=32, n_heads=4, length=64))
    weights = Transformer(12, d_model=32, n_heads=4, n_layers=1, encoding=encoding).state_dict()
    return hashlib.sha256(b"".join(each.numpy().tobytes() for each in weights.values())).hexdigest()


def losses_in_float32() -> list[float]:
    """Return the losses of such a training as the course does not do it."""
    single, random, losses = model(), generator(0), []
    optimizer = torch.optim.AdamW(single.parameters(), lr=3e-3)
    for _ in range(STEPS):
        inputs, targets = batches(random)
        loss = loss_of(single(inputs), targets)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    return losses


def results() -> dict[str, object]:
    return {
        "kernels": torch.backends.cpu.get_cpu_capability(),
        "starts": {name: start(name) for name in METHODS},
        "float64": train(model(), batches, steps=STEPS, warmup=10),
        "float32": losses_in_float32(),
    }


if __name__ == "__main__":
    json.dump(results(), sys.stdout)
