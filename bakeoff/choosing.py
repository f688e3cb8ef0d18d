"""Which method for which model (chapter 17): what is known of each, and what needs leave over.

Known is what the shipped comparison measured (`small.csv`) and what the library's own code does
when it is asked: whether it tells sides apart, whether scores survive a shift, what it adds to
the scores and how many parameters it takes. `choose` decides from that alone. The figure that
computes in the browser has the same facts (`python -m tools.live` writes them) and decides the
same way.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from functools import cache
from typing import Any, NamedTuple

import numpy as np
import torch

from bakeoff import grid, plots
from bakeoff.run import SHIPPED, read_rows
from bakeoff.variants import EXTENSIONS
from lab import measure
from lab.registry import METHODS, TAUGHT, Sizes
from lab.training import generator
from pe_lib.attention import PositionEncoding, attention_logits
from pe_lib.deberta import DeBERTa
from pe_lib.errors import require_at_least, require_choice

# What the tasks of the comparison stand for, and the bar that every seed must clear: the loss may
# rise by so many nats, or so large a share of the answers must be right.
KEEP = {"language": "text", "content": "marker", "offset": "n-back"}
BARS = {"language": 0.1, "content": 0.9, "offset": 0.9, "memory": 0.5}
MULTIPLES = grid.Cell.multiples
WHAT = ("text", "both", "image")  # a decoder, an encoder, an encoder of two axes
CACHES = ("none", "all", "sliding")
KERNELS = ("any", "scores", "plain")
D_MODEL, LAYERS, LENGTH, HEAD_DIM = 768, 12, 512, 64  # a well-known base model

# Why a method falls out, and what stays open; on the right the page that shows it. {0} and {1}
# are the numbers of a reason.
REASONS = {
    "refused": ("has no row for {1} × its length", "03_learned"),
    "language": (f"loss up by {{0}} nats at {{1}} ×; allowed: {BARS['language']}", "15_bakeoff"),
    "content": (f"recalls {{0}} at {{1}} ×; wanted: {BARS['content']}", "15_bakeoff"),
    "offset": (f"3-back {{0}} at {{1}} × (400 steps); wanted: {BARS['offset']}", "15_bakeoff"),
    "behind": ("last at home, in every seed", "15_bakeoff"),
    "axes": ("blind to the second axis", "13_axes"),
    "sides": ("a query cannot tell left from right", "09_alibi"),
    "moved": ("changes when all positions move", "06_transformer_xl"),
    "stale": ("must rotate old keys anew", "12_context_extension"),
    "parameters": ("{0} parameters", "17_choosing#what-positions-cost"),
    "scores": ("adds to the scores", "09_alibi"),
    "products": ("needs products of its own", "05_shaw"),
    "memory": ("makes a tensor {0} × the scores", "17_choosing#what-positions-cost"),
    "unmeasured": ("not in the comparison", "10_rope"),
    "beyond": ("measured to {1} × only", "15_bakeoff"),
    "decoder": ("measured in decoders of text", "15_bakeoff"),
}
OPEN = ("unmeasured", "beyond", "decoder")
FITS, UNSURE, OUT = range(3)


@dataclass(frozen=True)
class Needs:
    """What a model needs of its positions.

    Attributes:
        what: "text" (a decoder), "both" (an encoder, read both ways) or "image" (two axes).
        keep: what must survive at the length of use, a key of `KEEP`.
        trained: length of the texts in training.
        used: length at use.
        cache: "none", "all" (keys are kept as they are) or "sliding" (old ones go, and positions
            are counted anew).
        parameters: the most that positions may have, in a model of 12 layers of width 768.
        head_dim: width d of a head; divides 768.
        kernel: "any" code, "scores" (a kernel that adds a number to each score, such as
            FlexAttention) or "plain" (one that knows queries, keys and values alone).
        small: whether every tensor beside attention must stay below half of the scores.
    """

    what: str = "text"
    keep: str = "language"
    trained: int = 64
    used: int = 64
    cache: str = "none"
    parameters: float = float("inf")
    head_dim: int = HEAD_DIM
    kernel: str = "any"
    small: bool = False

    def __post_init__(self) -> None:
        """Check the words and the lengths."""
        require_choice("what", self.what, WHAT)
        require_choice("keep", self.keep, tuple(KEEP))
        require_choice("cache", self.cache, CACHES)
        require_choice("kernel", self.kernel, KERNELS)
        require_at_least("trained", self.trained, 1)
        require_at_least("used", self.used, 1)
        if D_MODEL % self.head_dim:
            raise ValueError(f"head_dim must divide {D_MODEL}, got {self.head_dim}")


@dataclass(frozen=True)
class Facts:
    """What is known of one method.

    Attributes:
        name: as it is written.
        page: the chapter that derives it.
        measured: for each key of `KEEP`, by multiple of the trained length, a value per seed.
        behind: whether each seed lost on text, at the trained length, to each seed of the others.
        axes: whether it has a form for two axes.
        sides: whether an encoder tells left from right.
        relative: whether scores stay when all positions move.
        stale: whether cached keys are wrong once the text has grown.
        kernel: 0 if queries and keys are all that it changes, 1 if it adds numbers that know
            positions alone, 2 if it needs more.
        memory: its largest tensor as a share of the scores, at 512 tokens.
        parameters: coefficients of `basis`.
    """

    name: str
    page: str
    measured: dict[str, dict[str, list[float]]]
    behind: bool
    axes: bool
    sides: bool
    relative: bool
    stale: bool
    kernel: int
    memory: float
    parameters: list[int]


class Verdict(NamedTuple):
    """What becomes of one method.

    Attributes:
        status: FITS, UNSURE or OUT.
        worst: the worst seed at the length of use: a loss, or a share of right answers; None if
            it was not measured.
        reasons: why it falls out, or what is open: a key of `REASONS` and two numbers each.
    """

    status: int
    worst: float | None
    reasons: list[tuple[str, float, float]]


# What is known ------------------------------------------------------------------------------------


def sizes(head_dim: int = HEAD_DIM, length: int = LENGTH, *, causal: bool = True) -> Sizes:
    """Return the base model with heads of width `head_dim`, trained on `length` tokens."""
    return Sizes(D_MODEL, D_MODEL // head_dim, length, causal)


@cache
def parameters(method: str, head_dim: int, length: int) -> int:
    """Return how many parameters of the base model belong to positions.

    DeBERTa's layers share one table.
    """
    with torch.device("meta"):
        layer = METHODS[method].make(sizes(head_dim, length))
    count = measure.parameter_count(layer)
    shared = layer.table.numel() if isinstance(layer, DeBERTa) else 0
    return (count - shared) * (LAYERS if METHODS[method].per_layer else 1) + shared


def basis(head_dim: int, length: int) -> list[int]:
    """Return what the parameters of every method are a sum of.

    One, heads, rows of a table that spans the length, half of it, a quarter of it in vectors of a
    head's width, and that width.
    """
    half, quarter = max(16, length // 2), max(16, length // 4) * head_dim
    return [1, D_MODEL // head_dim, length, half, quarter, head_dim]


def coefficients(method: str) -> list[int]:
    """Return the coefficients of `basis` that give a method's parameters."""
    settings = [(d, length) for d in (16, 32, 64, 256) for length in (32, 41, 101, 512)]
    rows = np.array([basis(*each) for each in settings], dtype=float)
    counts = np.array([parameters(method, *each) for each in settings], dtype=float)
    return [round(each) for each in np.linalg.lstsq(rows, counts)[0]]


@torch.no_grad()
def tells_sides(encoding: PositionEncoding) -> bool:
    """Return whether a key to the left is told from one as far to the right, without a mask."""
    drawn = torch.randn(2, 1, D_MODEL, generator=generator(0), dtype=torch.float64)
    x, y = (encoding.double().embed(one.expand(1, 64, -1), torch.arange(64)) for one in drawn)
    q, k = (each.unflatten(-1, (-1, HEAD_DIM)).transpose(1, 2) for each in (x, y))  # (1, H, L, d)
    found = attention_logits(q, k, encoding, torch.arange(64), torch.arange(64))
    return bool((found[..., 30, 27] - found[..., 30, 33]).abs().max() > 1e-6 * found.abs().max())


@torch.no_grad()
def level_of_kernel(encoding: PositionEncoding) -> int:
    """Return 0, 1 or 2 as in `Facts.kernel`."""
    if encoding.uses("values"):
        return 2
    if not encoding.uses("bias"):
        return 0
    q, k = torch.randn(2, 2, D_MODEL // HEAD_DIM, 9, HEAD_DIM, generator=generator(0)).double()
    places = torch.arange(9)
    one, two = (encoding.bias(x[:1], k[:1], places, places, 1.0) for x in (q, 2 * q))
    assert one is not None and two is not None
    return 1 if torch.equal(one, two) else 2


@torch.no_grad()
def goes_stale(encoding: PositionEncoding) -> bool:
    """Return whether a key is rotated in another way once the text is sixteen times as long."""
    k = torch.randn(1, 2, 16 * 64, HEAD_DIM, generator=generator(0), dtype=torch.float64)
    early, late = (
        encoding.rotate(x, x, *2 * [torch.arange(x.shape[2])])[1] for x in (k[:, :, :64], k)
    )
    return not torch.allclose(early, late[:, :, :64])


@torch.no_grad()
def is_relative(encoding: PositionEncoding) -> bool:
    """Return whether the scores stay when all positions move."""
    if encoding.uses("embed"):
        return False
    shape = (1, D_MODEL // HEAD_DIM, 40, HEAD_DIM)  # past the threshold of FIRE once moved
    q, k = (torch.randn(shape, generator=generator(n), dtype=torch.float64) for n in range(2))
    return measure.translation_error(encoding, q, k, 100) < 1e-9


@cache
def comparison() -> dict[str, dict[str, plots.Curve]]:
    """Return what the shipped comparison measured, for each key of `KEEP`."""
    rows = read_rows(SHIPPED / "small.csv")
    return {
        keep: plots.curves(rows, task, "nats" if keep == "language" else "accuracy")
        for keep, task in KEEP.items()
    }


def measured(key: str) -> dict[str, dict[str, list[float]]]:
    """Return a method's values by task and multiple of the trained length."""
    length = {each.task: each.train_length for each in grid.SIZES if each.scale == "small"}
    return {
        keep: {
            f"{multiple:g}": values
            for multiple in MULTIPLES
            if (values := curves.get(key, {}).get(round(length[KEEP[keep]] * multiple)))
        }
        for keep, curves in comparison().items()
    }


def is_behind(key: str) -> bool:
    """Return whether all others of the comparison were robustly better at the trained length."""
    found = {name: measured(name)["language"].get("1", []) for name in grid.COMPARED}
    others = [values for name, values in found.items() if name != key]
    return key in found and max(map(max, others)) < min(found[key])


def facts_of(key: str) -> Facts:
    """Return what is known of a method of the registry."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        decoder = METHODS[key].make(sizes())
        encoder = METHODS[key].make(sizes(causal=False))
        memory = measure.extra_tensor(decoder, sizes())
        decoder.double()
    return Facts(
        name=METHODS[key].name,
        page=METHODS[key].chapter,
        measured=measured(key),
        behind=is_behind(key),
        axes=any(map(decoder.uses, ("embed", "rotate", "bias"))),
        sides=tells_sides(encoder),
        relative=is_relative(decoder),
        stale=False,
        kernel=level_of_kernel(decoder),
        memory=round(memory / (4 * sizes().n_heads * LENGTH**2), 4),
        parameters=coefficients(key),
    )


@cache
def facts() -> dict[str, Facts]:
    """Return what is known of the methods with a chapter, and of RoPE's extensions."""
    found = {key: facts_of(key) for key in TAUGHT}
    cell = grid.Cell("", "text", "rope", 0, 64, d_model=D_MODEL, n_heads=D_MODEL // HEAD_DIM)
    for key, make in EXTENSIONS.items():
        stale = key == "rope+dynamic-ntk"
        assert stale == goes_stale(make(cell, 16 * 64))
        found[key] = replace(
            found["rope"],
            name=plots.name(key),
            page="12_context_extension",
            measured=measured(key),
            stale=stale,
        )
    return found


def data() -> dict[str, Any]:
    """Return all that the figure in the browser decides from."""
    known = {key: asdict(each) for key, each in facts().items()}
    return {
        "multiples": list(MULTIPLES),
        "bars": BARS,
        "tasks": KEEP,
        "reasons": REASONS,
        "open": list(OPEN),
        "order": list(known),  # a notebook sorts the keys of what it stores
        "facts": known,
    }


# The decision -------------------------------------------------------------------------------------


def multiple_of(needs: Needs) -> float:
    """Return the measured multiple of the trained length that stands for the length of use."""
    wanted = needs.used / needs.trained
    return next((each for each in MULTIPLES if each >= wanted), MULTIPLES[-1])


def at_length(known: Facts, needs: Needs) -> list[tuple[str, float, float]]:
    """Return what the measurements hold against a method, or leave open."""
    multiple, found = multiple_of(needs), known.measured[needs.keep]
    near, far = found.get("1"), found.get(f"{multiple:g}")
    if not near:
        return [("unmeasured", 0, 0)]
    if not far:
        return [("refused", 0, multiple)]
    reasons = []
    if needs.keep == "language":
        if known.behind:
            reasons.append(("behind", 0.0, 0.0))
        rise = max(b - a for a, b in zip(near, far, strict=True))
        if not rise < BARS["language"]:
            reasons.append(("language", rise, multiple))
    elif not min(far) > BARS[needs.keep]:
        reasons.append((needs.keep, min(far), multiple))
    if needs.used > multiple * needs.trained:
        reasons.append(("beyond", 0, multiple))
    if needs.what != "text":
        reasons.append(("decoder", 0, 0))
    return reasons


def verdict(known: Facts, needs: Needs) -> Verdict:
    """Return what becomes of one method."""
    count = float(np.dot(known.parameters, basis(needs.head_dim, needs.trained)))
    level = KERNELS[::-1].index(needs.kernel)
    against = {
        "axes": needs.what == "image" and not known.axes,
        "sides": needs.what == "both" and not known.sides,
        "moved": needs.cache == "sliding" and not known.relative,
        "stale": needs.cache != "none" and known.stale,
        "parameters": count > needs.parameters,
        "scores": known.kernel == 1 and level < 1,
        "products": known.kernel == 2 and level < 2,
        "memory": needs.small and not known.memory < BARS["memory"],
    }
    numbers = {"parameters": count, "memory": known.memory}
    reasons = at_length(known, needs)
    reasons += [(key, numbers.get(key, 0), 0) for key, holds in against.items() if holds]
    reasons.sort(key=lambda each: each[0] in OPEN)
    status = FITS if not reasons else UNSURE if reasons[0][0] in OPEN else OUT
    values = known.measured[needs.keep].get(f"{multiple_of(needs):g}")
    worst = (max if needs.keep == "language" else min)(values) if values else None
    return Verdict(
        status, worst, [each for each in reasons if status != OUT or each[0] not in OPEN]
    )


def choose(needs: Needs) -> dict[str, Verdict]:
    """Return what becomes of every method: those that fit first, the best of them on top.

    Methods are sorted by their worst seed at the length of use; one without a value comes last.
    """
    found = {key: verdict(known, needs) for key, known in facts().items()}
    sign = 1 if needs.keep == "language" else -1

    def rank(key: str) -> tuple[int, float]:
        worst = found[key].worst
        return found[key].status, float("inf") if worst is None else sign * worst

    return {key: found[key] for key in sorted(found, key=rank)}


def fitting(needs: Needs, among: Sequence[str] = grid.COMPARED) -> list[str]:
    """Return those of the methods that fit, in the order in which they are given."""
    found = choose(needs)
    return [key for key in among if found[key].status == FITS]
