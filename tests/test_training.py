"""The training loop: what it promises about seeds, rates, targets to ignore, and silence."""

from __future__ import annotations

import math

import pytest
import torch
import torch.nn.functional as F
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor, nn

from pe_course.training import (
    IGNORE,
    Batch,
    accuracy,
    generator,
    learning_rate,
    loss_of,
    one_thread,
    train,
)

quick = settings(max_examples=30, deadline=None)


def small_batches(random: torch.Generator) -> Batch:
    """Which of four numbers is the largest: learnable at once."""
    inputs = torch.randn(8, 4, generator=random)
    return inputs, inputs.argmax(dim=1)


def small_model(seed: int = 0) -> nn.Linear:
    torch.manual_seed(seed)
    return nn.Linear(4, 4)


# Loss and accuracy --------------------------------------------------------------------------------


@quick
@given(st.integers(1, 4), st.integers(1, 5), st.integers(2, 6), st.integers(0, 999))
def test_the_loss_equals_its_loop(batch: int, length: int, classes: int, seed: int) -> None:
    random = generator(seed)
    logits = torch.randn(batch, length, classes, dtype=torch.float64, generator=random)
    targets = torch.randint(classes, (batch, length), generator=random)
    targets[torch.rand(batch, length, generator=random) < 0.3] = IGNORE
    targets[0, 0] = 0
    terms = []
    for row, wanted in zip(logits.flatten(0, 1).tolist(), targets.flatten().tolist(), strict=True):
        if wanted != IGNORE:
            terms.append(math.log(sum(math.exp(value) for value in row)) - row[wanted])
    assert float(loss_of(logits, targets)) == pytest.approx(sum(terms) / len(terms), rel=1e-9)
    pooled = loss_of(logits[:, 0], targets[:, 0])
    expected = F.cross_entropy(logits[:, 0], targets[:, 0], ignore_index=IGNORE)
    assert float(pooled) == pytest.approx(float(expected))


class Answers(nn.Module):
    """Says what it was told, whatever is asked."""

    def __init__(self, answers: Tensor) -> None:
        super().__init__()
        self.answers = answers

    def forward(self, inputs: Tensor) -> Tensor:
        return F.one_hot(self.answers, 9).double()


def test_accuracy_counts_only_what_counts() -> None:
    model = Answers(torch.tensor([[1, 2, 3], [4, 5, 6]]))
    targets = torch.tensor([[1, 0, IGNORE], [IGNORE, 5, 6]])
    assert accuracy(model, torch.zeros(2, 3), targets) == 0.75
    pooled = Answers(torch.tensor([1, 2, 3]))
    assert accuracy(pooled, torch.zeros(3), torch.tensor([1, 2, 8])) == pytest.approx(2 / 3)


def test_accuracy_measures_without_dropout_and_without_gradients() -> None:
    model = nn.Sequential(nn.Dropout(0.9), nn.Identity()).train()
    inputs = 1 + F.one_hot(torch.arange(50) % 5, 5).float()
    assert accuracy(model, inputs, torch.arange(50) % 5) == 1
    layer = small_model()
    accuracy(layer, torch.randn(3, 4), torch.zeros(3, dtype=torch.long))
    assert layer.weight.grad is None


# Training -----------------------------------------------------------------------------------------


def test_training_learns() -> None:
    model = small_model()
    losses = train(model, small_batches, steps=200, lr=0.05)
    assert len(losses) == 200
    assert losses[0] > 1 and sum(losses[-20:]) / 20 < 0.3
    assert accuracy(model, *small_batches(generator(99))) == 1
    assert not model.training


def test_a_seed_gives_the_same_losses_again() -> None:
    runs = [train(small_model(), small_batches, steps=20, seed=seed) for seed in (1, 1, 2)]
    assert runs[0] == runs[1] != runs[2]


def test_the_first_steps_are_adamw_with_clipping_and_the_rate_of_the_schedule() -> None:
    ours, twin = small_model(), small_model().double()
    losses = train(ours, small_batches, steps=6, lr=0.1, warmup=3, clip=0.01, weight_decay=0.5)
    optimizer = torch.optim.AdamW(twin.parameters(), lr=0.1, betas=(0.9, 0.98), weight_decay=0.5)
    random = generator(0)
    for step in range(6):
        optimizer.param_groups[0]["lr"] = 0.1 * learning_rate(step, 6, 3)
        inputs, targets = small_batches(random)
        loss = F.cross_entropy(twin(inputs.double()), targets)
        optimizer.zero_grad()
        loss.backward()
        nn.utils.clip_grad_norm_(twin.parameters(), 0.01)
        optimizer.step()
        assert losses[step] == pytest.approx(loss.item(), rel=1e-6)
    assert torch.allclose(ours.weight, twin.weight)


def test_a_constant_rate_stays_where_the_warm_up_ends(monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[float] = []
    step = torch.optim.AdamW.step

    def spy(self: torch.optim.AdamW, *args: object) -> object:
        seen.append(self.param_groups[0]["lr"])
        return step(self)

    monkeypatch.setattr(torch.optim.AdamW, "step", spy)
    train(small_model(), small_batches, steps=6, lr=0.4, warmup=4, constant=True)
    assert seen == pytest.approx([0.1, 0.2, 0.3, 0.4, 0.4, 0.4])


def test_one_thread_gives_back_what_it_found() -> None:
    def fail_inside() -> None:
        with one_thread():
            assert torch.get_num_threads() == 1
            raise RuntimeError("inside")

    before = torch.get_num_threads()
    try:
        torch.set_num_threads(2)
        with pytest.raises(RuntimeError, match="inside"):
            fail_inside()
        assert torch.get_num_threads() == 2
    finally:
        torch.set_num_threads(before)


# The progress bar ---------------------------------------------------------------------------------


def test_a_model_is_trained_in_float64_whatever_it_came_in() -> None:
    model = small_model()
    assert model.weight.dtype == torch.float32
    losses = train(model, small_batches, steps=2)
    assert model.weight.dtype == torch.float64
    assert losses[0] != torch.tensor(losses[0], dtype=torch.float32).item()
