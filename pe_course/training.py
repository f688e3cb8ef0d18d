"""One training loop for every experiment of the course."""

from __future__ import annotations

import math
import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from tqdm.auto import tqdm

from pe_course import checks
from pe_course.model import like_weights

IGNORE = -100  # a target that counts neither in the loss nor in the accuracy

Batch = tuple[Tensor, Tensor]


def quiet() -> bool:
    """Return True where a progress bar would only be in the way of a comparison of outputs."""
    return bool(os.environ.get("PE_QUIET")) or "PYTEST_CURRENT_TEST" in os.environ


@contextmanager
def one_thread() -> Iterator[None]:
    """Run PyTorch on one thread: as fast for models this small, and the same sums every time."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(before)


def generator(seed: int) -> torch.Generator:
    """Return a random generator of its own, so that nothing else shifts its numbers."""
    return torch.Generator().manual_seed(seed)


def learning_rate(step: int, steps: int, warmup: int, floor: float = 0.1) -> float:
    """Return the factor on the learning rate: linear warm-up, then a cosine down to `floor`."""
    if step < warmup:
        return (step + 1) / warmup
    progress = (step - warmup) / max(1, steps - warmup)
    return floor + (1 - floor) * (1 + math.cos(math.pi * progress)) / 2


def loss_of(logits: Tensor, targets: Tensor) -> Tensor:
    """Return the mean cross-entropy in nats, for (B, L, C) and (B, L), or (B, C) and (B,)."""
    return F.cross_entropy(logits.flatten(0, -2), targets.flatten(), ignore_index=IGNORE)


def train(
    model: nn.Module,
    batches: Callable[[torch.Generator], Batch],
    *,
    steps: int,
    lr: float = 3e-3,
    warmup: int = 50,
    weight_decay: float = 0.01,
    clip: float = 1.0,
    seed: int = 0,
    constant: bool = False,
    label: str = "training",
    after: Callable[[int], object] | None = None,
) -> list[float]:
    """Train a model in place, in float64.

    In float32 the same training drifts apart between processors, since each takes its sums in an
    order of its own: after some hundred steps the printed digits differ. In float64 they agree.

    Args:
        model: maps a batch's inputs to logits; its weights become float64.
        batches: makes one batch (inputs, targets) from a random generator.
        steps: number of AdamW steps.
        lr: largest learning rate.
        warmup: steps of linear warm-up.
        weight_decay: of AdamW.
        clip: largest norm of the gradient.
        seed: of the batches. The initial weights are the caller's.
        constant: keep the learning rate after the warm-up instead of a cosine (fine-tuning).
        label: shown beside the progress bar.
        after: called with the number of steps taken, after each of them; must leave the model be.

    Returns:
        The loss at each step, in nats.

    Raises:
        ValueError: if steps or warmup is not positive, lr not above 0, or the loss no number.
    """
    checks.integer("steps", steps)
    checks.integer("warmup", warmup)
    checks.above("lr", lr, 0)
    model.double()
    weights = list(model.parameters())
    optimizer = torch.optim.AdamW(
        weights, lr=lr, betas=(0.9, 0.98), weight_decay=weight_decay, fused=True
    )
    random, losses = generator(seed), []
    model.train()
    with one_thread():
        for step in tqdm(range(steps), desc=label, disable=quiet(), leave=False):
            factor = min(1.0, (step + 1) / warmup) if constant else None
            for group in optimizer.param_groups:
                group["lr"] = lr * (factor or learning_rate(step, steps, warmup))
            inputs, targets = batches(random)
            loss = loss_of(model(like_weights(inputs, model)), targets)
            optimizer.zero_grad(set_to_none=True)
            loss.backward()
            nn.utils.clip_grad_norm_(weights, clip, foreach=True)
            optimizer.step()
            losses.append(loss.item())
            if not math.isfinite(losses[-1]):
                raise ValueError(
                    f"the loss is {losses[-1]} at step {step}: lr={lr} is too large, "
                    "or no target of the batch counts"
                )
            if after:
                after(step + 1)
    model.eval()
    return losses


@torch.no_grad()
def accuracy(model: nn.Module, inputs: Tensor, targets: Tensor) -> float:
    """Return the share of targets that the model names, leaving out those to be ignored.

    Raises:
        ValueError: if all targets are to be ignored.
    """
    counted = targets != IGNORE
    if not counted.any():
        raise ValueError(f"targets must hold one that counts, all {targets.numel()} are ignored")
    training = model.training
    model.eval()
    with one_thread():
        guesses = model(like_weights(inputs, model)).argmax(dim=-1)
    model.train(training)
    return float((guesses == targets)[counted].double().mean())
