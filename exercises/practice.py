"""What the projects share: a check of a learner's method, and its comparison with others."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

import torch
from torch import Tensor

from pe_course.judge.exercise import CheckFailed, told
from pe_course.model import Transformer
from pe_course.training import Batch, accuracy, generator, train
from pe_lib.encoding import HOOKS, NoPosition, PositionEncoding
from pe_lib.testing import PROMISES, broken_promises

VOCAB, D_MODEL, N_HEADS, N_LAYERS = 16, 32, 4, 2
HEAD_DIM = D_MODEL // N_HEADS
SLOW = ("it_compiles_into_one_graph", "it_exports_for_any_length")
ASKED = [name for name in PROMISES if name not in SLOW]
Make = Callable[[], PositionEncoding]
Task = Callable[[int, int, torch.Generator], Batch]


def model(make: Make, seed: int = 0) -> Transformer:
    """Return the small decoder of all projects, with fresh weights."""
    torch.manual_seed(seed)
    encoding = make()
    sizes = {"d_model": D_MODEL, "n_heads": N_HEADS, "n_layers": N_LAYERS}
    return Transformer(VOCAB + 1, encoding=encoding, causal=True, **sizes)  # 1 is a marker


def check(make: Make) -> None:
    """Say whether a method can take part, or what keeps it from that.

    Args:
        make: returns the method, for models of `D_MODEL` and `N_HEADS`; its class will do.
    """
    with told():
        judge(make)


def judge(make: Make) -> None:
    """Say that a method can take part: it runs, at all lengths, and position has an effect.

    Raises:
        CheckFailed: with what is wrong, in words.
    """
    made = make()
    if not isinstance(made, PositionEncoding):
        raise CheckFailed(f"it must be a PositionEncoding, got {made!r}")
    hooks = [name for name in HOOKS if made.uses(name)]
    if not hooks:
        raise CheckFailed(f"it overrides none of {', '.join(HOOKS)}: nothing happens")
    own, without = model(make).double(), model(NoPosition).double()  # rounding is no effect
    without.load_state_dict(own.state_dict(), strict=False)
    tokens = torch.randint(VOCAB, (2, 8 * 32), generator=generator(0))
    for length in (1, 32, 8 * 32):
        found = outputs(own, tokens[:, :length], length)
    if torch.allclose(found, outputs(without, tokens, tokens.shape[1]), atol=1e-6):
        words = "with it the model gives what it gives without: position has no effect"
        if "embed" in hooks:
            words += " (a LayerNorm takes away what is added to all components alike)"
        if hooks == ["rotate_axes"]:
            words += " (here a token has one number, and `rotate_axes` is not called)"
        raise CheckFailed(words)
    found.sum().backward()
    lost = [name for name, one in made.named_parameters() if one.requires_grad]
    if lost and all(one.grad is None for one in own.encoding.parameters() if one.requires_grad):
        raise CheckFailed(f"no gradient reaches its parameters ({', '.join(lost)})")
    begin = outputs(own, tokens[:, :32], 32)
    reads = not torch.allclose(begin, found[:, :32], atol=1e-4)
    print(f"{type(made).__name__}: right. It acts through {' and '.join(hooks)}.")
    if reads:
        print("It reads the length of the text: early tokens change when others follow them.")
    sizes = {"d_model": D_MODEL, "n_heads": N_HEADS}
    for name, what in broken_promises(made, ASKED, **sizes).items():
        print(f"It does not promise `{name}`: {what}")


def outputs(own: Transformer, tokens: Tensor, length: int) -> Tensor:
    """Return a model's outputs (B, L, C), or say at which length there are none.

    Raises:
        CheckFailed: if the method raises, or gives NaN or infinity.
    """
    try:
        found: Tensor = own(tokens)
    except Exception as error:
        text = f"with {length} tokens it raises {type(error).__name__}: {error}"
        raise CheckFailed(text) from error
    if not torch.isfinite(found).all():
        raise CheckFailed(f"with {length} tokens the model's outputs are NaN or infinite")
    return found


def compare(
    methods: Mapping[str, Make], task: Task, *, length: int, steps: int,
    seeds: Sequence[int], times: Sequence[int],
) -> dict[str, list[float]]:  # fmt: skip
    """Train a small model with each method and print its accuracy beyond the trained length.

    Args:
        methods: name -> what makes the method.
        task: makes a batch from (count, length, generator).
        length: of the training texts.
        steps: of training.
        seeds: one training for each; the mean is printed.
        times: how many times the trained length a test is long.

    Returns:
        name -> mean accuracy for each of `times`, between 0 and 1.
    """
    found = {}
    width = max(map(len, methods))
    print(" " * width, *(f"{f'{many} x':>6}" for many in times))
    for name, make in methods.items():
        scores = []
        for seed in seeds:
            own = model(make, seed)
            train(own, lambda random: task(32, length, random), steps=steps, seed=seed, label=name)
            tests = (task(16, many * length, generator(99)) for many in times)
            scores.append([accuracy(own, *test) for test in tests])
        found[name] = [sum(column) / len(seeds) for column in zip(*scores, strict=True)]
        print(f"{name:{width}}", *(f"{score:6.2f}" for score in found[name]), flush=True)
    return found
