"""Which method for which model (chapter 19): what is known of each, and what needs leave over.

Known is what the shipped comparisons measured (`long.csv` where a method stands there, else
`small.csv`; losses as nats above RoPE's at the trained length of the same training) and what the
library's own code does when it is asked: whether it tells sides apart, whether scores survive a
shift, what it adds to the scores and how many parameters it takes.
`choose` decides from that alone. The figure that computes in the browser has the same facts
(`python -m tools.live` writes them) and decides the same way.
"""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch

from bakeoff import grid, plots, recipes, sentences
from bakeoff.cells import TRAINED_ON
from bakeoff.variants import BEYOND, EXTENSIONS, TUNED
from lab import census, measure
from lab.registry import METHODS, TAUGHT, Sizes
from lab.training import generator
from pe_lib.arguments import require_at_least, require_choice
from pe_lib.attention import PositionEncoding, attention_logits
from pe_lib.deberta import DeBERTa
from pe_lib.window import SlidingWindow

# What the tasks of the comparison stand for, and the bar that every seed must clear at the length
# of use: a loss less than MARGIN nats above that of RoPE at the trained length, or a share of the
# answers. Further training was measured after STEPS on texts four times as long (RoPE dropped: on
# the old ones).
KEEP = {"language": "text", "content": "marker", "offset": "n-back"}
MARGIN, SHARE, MEMORY, STEPS = 0.1, 0.9, 0.5, 200
MULTIPLES = grid.Cell.multiples
WHAT = ("text", "both", "image")  # a decoder, an encoder, an encoder of two axes
CACHES = ("none", "all", "sliding")
KERNELS = ("any", "scores", "plain")
D_MODEL, LAYERS, LENGTH, HEAD_DIM = 768, 12, 512, 64  # a well-known base model
LEARNED = tuple(f"learned+{way}" for way in BEYOND)
WINDOWED = ("windows_rope", "all_windows", "windows_none", "rope_none", "turns_none")
# All that can be chosen.
ROWS = (*TAUGHT, *LEARNED, *grid.NEWER, "p_rope_75", "rope_turns", *WINDOWED, *EXTENSIONS, *TUNED)
PAGES = {
    **dict.fromkeys(EXTENSIONS, "13_context_extension"),
    **dict.fromkeys(LEARNED, "03_learned"),
    "rope+base": "13_context_extension",
    "rope+drop": "lab_book#dropping-rope",
    "pope": "lab_book#lengths-and-angles",
    "randomised": "17_bakeoff#every-method",
    "rope_turns": "17_bakeoff#the-base",
    **dict.fromkeys(("p_rope", "p_rope_75"), "16_today#today-prope"),
    "hybrid": "16_today#today-hybrid",
    **dict.fromkeys(WINDOWED, "17_bakeoff#three-in-windows"),
    "temperature": "16_today#today-temperature",
    "forgetting": "designs#today-forgetting",
    "cope": "hierarchical#counted-gates",
}
# Where a method was used or compared at scale; {0} models of the census have it.
AT_SCALE: dict[str, tuple[str, str]] = json.loads(
    Path(__file__).with_name("at_scale.json").read_text(encoding="utf-8")
)

# Why a method falls out, and what stays open; on the right the page that shows it. {0} and {1}
# are the numbers of a reason.
REASONS = {
    "language": ("text {0} nats", "17_bakeoff"),
    "content": ("recall {0}", "17_bakeoff"),
    "offset": ("3-back {0}", "17_bakeoff"),
    "axes": ("blind to the second axis", "14_axes"),
    "sides": ("a query cannot tell left from right", "09_alibi"),
    "causal": ("counts what came before: for decoders", "16_today"),
    "moved": ("changes when all positions move", "06_transformer_xl"),
    "stale": ("must rotate old keys anew", "13_context_extension"),
    "parameters": ("{0} parameters", "lab_book#what-positions-cost"),
    "scores": ("adds to the scores", "09_alibi"),
    "products": ("needs products of its own", "05_shaw"),
    "memory": ("makes a tensor {0} × the scores", "lab_book#what-positions-cost"),
    "training": ("needs further training", "17_bakeoff"),
    "unmeasured": ("not measured", "17_bakeoff"),
    "beyond": ("measured to {1} × only", "17_bakeoff"),
    "decoder": ("measured in decoders of text", "17_bakeoff"),
}
OPEN = ("unmeasured", "beyond", "decoder")
FITS, UNSURE, OUT = range(3)


@dataclass(frozen=True)
class Needs:
    """What a model needs of its positions.

    Attributes:
        what: "text" (a decoder), "both" (an encoder, read both ways) or "image" (two axes).
        keep: what must survive at the length of use, a key of `KEEP`, or "all" of them.
        trained: length of the texts in training.
        used: length at use.
        cache: "none", "all" (keys are kept as they are) or "sliding" (old ones go, and positions
            are counted anew).
        parameters: the most that positions may have, in a model of 12 layers of width 768.
        head_dim: width d of a head; divides 768.
        kernel: "any" code, "scores" (a kernel that adds a number to each score, such as
            FlexAttention) or "plain" (one that knows queries, keys, values and a window alone).
        small: whether every tensor beside attention must stay below half of the scores.
        tuned: whether the model may be trained on for some steps at the length of use.
    """

    what: str = "text"
    keep: str = "all"
    trained: int = 64
    used: int = 64
    cache: str = "none"
    parameters: float = float("inf")
    head_dim: int = HEAD_DIM
    kernel: str = "any"
    small: bool = False
    tuned: bool = False

    def __post_init__(self) -> None:
        """Check the words and the lengths."""
        require_choice("what", self.what, WHAT)
        require_choice("keep", self.keep, ("all", *KEEP))
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
        page: where it is derived.
        scale: where it was used or compared at scale.
        measured: for each key of `KEEP`, by multiple of the trained length, a value per seed:
            nats above RoPE's loss at the trained length, or a share of right answers.
        trained: the same after further training; None if none was measured.
        axes: whether it has a form for two axes.
        sides: whether an encoder tells left from right.
        causal: whether it counts what came before, so that only a decoder can have it.
        relative: whether scores stay when all positions move.
        stale: whether cached keys are wrong once the text has grown.
        kernel: 0 if queries, keys and a window are all that it changes, 1 if it adds numbers that
            the products of queries and keys do not enter, 2 if it needs more.
        memory: its largest tensor as a share of the scores, at 512 tokens.
        parameters: coefficients of `basis`.
    """

    name: str
    page: str
    scale: str
    measured: dict[str, dict[str, list[float]]]
    trained: dict[str, dict[str, list[float]]] | None
    axes: bool
    sides: bool
    causal: bool
    relative: bool
    stale: bool
    kernel: int
    memory: float
    parameters: list[int]


class Verdict(NamedTuple):
    """What becomes of one method.

    Attributes:
        status: FITS, UNSURE or OUT.
        worst: the worst seed at the length of use, of the loss if all is asked; None if it was
            not measured.
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
def parameters(method: str, head_dim: int = HEAD_DIM, length: int = LENGTH) -> int:
    """Return how many parameters of the base model belong to positions.

    DeBERTa's layers share one table.
    """
    with torch.device("meta"):
        layer, *_ = recipes.encodings(method, sizes(head_dim, length), 2)
    count = measure.parameter_count(layer)
    shared = layer.table.numel() if isinstance(layer, DeBERTa) else 0
    per_layer = method in METHODS and METHODS[method].per_layer
    return (count - shared) * (LAYERS if per_layer else 1) + shared


def basis(head_dim: int, length: int) -> list[int]:
    """Return what the parameters of every method are a sum of.

    One, heads, rows of a table that spans the length, half of it, a quarter and half of it in
    vectors of a head's width, and that width.
    """
    half, quarter = max(16, length // 2), max(16, length // 4)
    heads = D_MODEL // head_dim
    return [1, heads, length, half, quarter * head_dim, half * head_dim, head_dim]


@cache
def coefficients(method: str) -> list[int]:
    """Return the coefficients of `basis` that give a method's parameters."""
    settings = [(d, length) for d in (16, 32, 64, 256) for length in (32, 41, 101, 512)]
    rows = np.array([basis(*each) for each in settings], dtype=float)
    counts = np.array([parameters(method, *each) for each in settings], dtype=float)
    return [round(each) for each in np.linalg.lstsq(rows, counts)[0]]


def drawn(*shape: int) -> torch.Tensor:
    """Return normal numbers in float64, the same at every call."""
    return torch.randn(*shape, generator=generator(0), dtype=torch.float64)


@torch.no_grad()
def tells_sides(encoding: PositionEncoding) -> bool:
    """Return whether a key to the left is told from one as far to the right, without a mask."""
    x, y = (encoding.embed(one.expand(1, 64, -1), torch.arange(64)) for one in drawn(2, 1, D_MODEL))
    q, k = (each.unflatten(-1, (-1, HEAD_DIM)).transpose(1, 2) for each in (x, y))  # (1, H, L, d)
    found = attention_logits(q, k, encoding, torch.arange(64), torch.arange(64))
    return bool((found[..., 30, 27] - found[..., 30, 33]).abs().max() > 1e-6 * found.abs().max())


@torch.no_grad()
def level_of_kernel(encoding: PositionEncoding) -> int:
    """Return 0, 1 or 2 as in `Facts.kernel`, of one part of an encoding."""
    if encoding.uses("values"):
        return 2
    if not encoding.uses("bias") or isinstance(encoding, SlidingWindow):
        return int(encoding.uses("read_bias"))
    q, k = drawn(2, 2, D_MODEL // HEAD_DIM, 9, HEAD_DIM)
    places = torch.arange(9)
    one, two = (encoding.bias(x[:1], k[:1], places, places, 1.0) for x in (q, 2 * q))
    assert one is not None and two is not None
    return 1 if torch.equal(one, two) else 2


@torch.no_grad()
def goes_stale(encoding: PositionEncoding) -> bool:
    """Return whether a key is rotated in another way once the text is sixteen times as long."""
    k = drawn(1, D_MODEL // HEAD_DIM, 16 * 64, HEAD_DIM)
    early, late = (
        encoding.rotate(x, x, *2 * [torch.arange(x.shape[2])])[1] for x in (k[:, :, :64], k)
    )
    return not torch.allclose(early, late[:, :, :64])


@torch.no_grad()
def is_relative(encoding: PositionEncoding) -> bool:
    """Return whether the scores stay when all positions move."""
    if encoding.uses("embed") or encoding.uses("read_bias"):
        return encoding.uses("read_bias")  # its numbers come from the tokens
    q, k = drawn(2, 1, D_MODEL // HEAD_DIM, 40, HEAD_DIM)  # past the threshold of FIRE once moved
    return measure.translation_error(encoding, q, k, 100) < 1e-9


def above(curves: dict[str, plots.Curve], home: float) -> dict[str, plots.Curve]:
    """Return curves of losses as nats above `home`."""
    return {
        key: {length: [round(each - home, 5) for each in seeds] for length, seeds in curve.items()}
        for key, curve in curves.items()
    }


@cache
def comparison(metric: str) -> dict[str, dict[str, plots.Curve]]:
    """Return what was measured, for each key of `KEEP`: as it is, or after further training.

    Of a method that both comparisons have, as it is, the longer training counts.
    """
    rows = [*sentences.shipped("small"), *sentences.shipped("parts")]
    found: dict[str, dict[str, plots.Curve]] = {}
    for keep, task in KEEP.items():
        short = plots.curves(rows, task, f"{sentences.METRICS[task]}{metric}")
        longer = {} if metric else sentences.found(task)
        if keep == "language":
            short = above(short, max(sentences.at(task, "rope", 1, "small")))
            longer = above(longer, max(sentences.at(task, "rope", 1)))
        found[keep] = short | longer
    return found


def measured(key: str, metric: str = "") -> dict[str, dict[str, list[float]]]:
    """Return a method's values by task and multiple of the trained length."""
    length = {each.task: each.train_length for each in grid.SIZES if each.scale == "small"}
    return {
        keep: {
            f"{multiple:g}": values
            for multiple in MULTIPLES
            if (values := curves.get(key, {}).get(round(length[KEEP[keep]] * multiple)))
        }
        for keep, curves in comparison(metric).items()
    }


def at_scale(key: str) -> str:
    """Return where a method was used or compared at scale."""
    column, words = AT_SCALE.get(key, ("", "none known to us"))
    column, _, value = column.partition(":")

    def counted(row: dict[str, str]) -> bool:
        if column == "base":
            return bool(row["layout"]) and max(census.numbers(row, column), default=0) >= 5e5
        if column == "window":
            in_all = bool(row["layout"]) and not row["no_position_layers"]
            return in_all and row["window"] not in ("", "given") and value in row["layer_kinds"]
        cells = [row[each] for each in column.split("+")]
        return all(cell not in ("", "given") and value in cell for cell in cells)

    return words.format(sum(map(counted, census.read())) if column else "")


def probed(method: str, *, causal: bool) -> PositionEncoding:
    """Return the first layer's encoding with weights that no start holds at zero."""
    first, *_ = recipes.encodings(method, sizes(causal=causal), 2)
    for weight in first.double().parameters():
        weight.data += 0.1 * torch.randn(weight.shape, generator=generator(1)).double()
    return first


def facts_of(key: str) -> Facts:
    """Return what is known of a way in which models of the comparison were measured."""
    method = "none" if key == "rope+drop" else key.partition("+")[0]
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        plain = recipes.encodings(method, sizes(), 2)[0]
        memory = measure.extra_tensor(plain, sizes()) / (4 * sizes().n_heads * LENGTH**2)
        decoder, encoder = (probed(method, causal=causal) for causal in (True, False))
    cell = grid.Cell("", "text", "rope", 0, 64, d_model=D_MODEL, n_heads=D_MODEL // HEAD_DIM)
    causal = method in ("temperature", "forgetting", "cope")
    after = f"-recalibrated-{STEPS}" if key == "rope+drop" else f"-tuned-{STEPS}"
    return Facts(
        name=plots.name(key),
        page=PAGES.get(key) or METHODS[key].chapter,
        scale=at_scale(key),
        measured=measured(key),
        trained=measured(key, after) if method in TRAINED_ON or key == "rope+drop" else None,
        axes=causal or any(map(decoder.uses, ("embed", "rotate", "bias"))),
        sides=causal or tells_sides(encoder),
        causal=causal,
        relative=is_relative(decoder),
        stale=key in EXTENSIONS and goes_stale(EXTENSIONS[key](cell, 16 * 64)),
        kernel=max(map(level_of_kernel, decoder.parts())),
        memory=round(memory, 4),
        parameters=coefficients(method),
    )


@cache
def facts() -> dict[str, Facts]:
    """Return what is known of every row."""
    return {key: facts_of(key) for key in ROWS}


BARS = {"language": MARGIN, "content": SHARE, "offset": SHARE, "memory": MEMORY}


def data() -> dict[str, Any]:
    """Return all that the figure in the browser decides from."""
    known = {key: asdict(each) for key, each in facts().items()}
    return {
        "multiples": list(MULTIPLES),
        "bars": BARS,
        "keep": list(KEEP),
        "reasons": REASONS,
        "open": list(OPEN),
        "order": list(known),  # a notebook sorts the keys of what it stores
        "facts": known,
    }


# The decision -------------------------------------------------------------------------------------


def candidates(needs: Needs) -> list[str]:
    """Return the rows that differ at the length of use.

    A text no longer than in training leaves nothing to stretch; in a longer one a learned table
    needs one of the ways beyond its last row.
    """
    longer = needs.used > needs.trained
    return [key for key in ROWS if (key != "learned" if longer else "+" not in key)]


def at_length(
    values: dict[str, list[float]], wanted: float, keep: str
) -> tuple[float, float, bool]:
    """Return the first multiple that is long enough, or the last; its worst seed; if it fails."""
    found = [each for each in MULTIPLES if f"{each:g}" in values]
    if not found:
        return 0, 0.0, False
    multiple = next((each for each in found if each >= wanted), found[-1])
    sign = 1 if keep == "language" else -1
    worst = sign * max(sign * each for each in values[f"{multiple:g}"])
    return multiple, worst, not sign * worst < sign * BARS[keep]


def at_use(known: Facts, needs: Needs, keep: str) -> tuple[float, float, bool]:
    """Return the same for the length of use, after training on where that is allowed."""
    wanted = needs.used / needs.trained
    plain = at_length(known.measured[keep], wanted, keep)
    if not (known.trained and needs.tuned and wanted > 1):
        return plain
    after = at_length(known.trained[keep], wanted, keep)
    # What training on was measured for, unless a model needs none at a greater length.
    return after if after[0] >= wanted or plain[2] or not plain[0] else plain


def verdict(known: Facts, needs: Needs) -> Verdict:
    """Return what becomes of one method."""
    wanted = needs.used / needs.trained
    asked = list(KEEP) if needs.keep == "all" else [needs.keep]
    seen = {keep: at_use(known, needs, keep) for keep in asked}
    multiple = min(far for far, *_ in seen.values())
    found = multiple > 0
    count = float(np.dot(known.parameters, basis(needs.head_dim, needs.trained)))
    level = KERNELS[::-1].index(needs.kernel)
    causal = needs.what != "text" and known.causal
    reasons = {
        **{keep: (fails, worst, far) for keep, (far, worst, fails) in seen.items()},
        "axes": (needs.what == "image" and not known.axes, 0, 0),
        "sides": (needs.what == "both" and not known.sides, 0, 0),
        "causal": (causal, 0, 0),
        "moved": (needs.cache == "sliding" and not known.relative, 0, 0),
        "stale": (needs.cache != "none" and known.stale, 0, 0),
        "parameters": (count > needs.parameters, count, 0),
        "scores": (known.kernel == 1 and level < 1, 0, 0),
        "products": (known.kernel == 2 and level < 2, 0, 0),
        "memory": (needs.small and not known.memory < MEMORY, known.memory, 0),
        "training": (not found and bool(known.trained) and not needs.tuned, 0, 0),
        "unmeasured": (not found, 0, 0),
        "beyond": (found and wanted > multiple, 0, multiple),
        "decoder": (found and needs.what != "text", 0, 0),
    }
    held = [(kind, a, b) for kind, (holds, a, b) in reasons.items() if holds]
    against = [each for each in held if each[0] not in OPEN]
    status = OUT if against else UNSURE if held else FITS
    return Verdict(status, seen[asked[0]][1] if found else None, against or held)


def choose(needs: Needs) -> dict[str, Verdict]:
    """Return what becomes of every candidate: those that fit first, the best of them on top.

    Methods are sorted by their worst seed at the length of use; one without a value comes last.
    """
    found = {key: verdict(facts()[key], needs) for key in candidates(needs)}
    sign = -1 if needs.keep in ("content", "offset") else 1

    def rank(key: str) -> tuple[int, float]:
        worst = found[key].worst
        return found[key].status, float("inf") if worst is None else sign * worst

    return {key: found[key] for key in sorted(found, key=rank)}


def fitting(needs: Needs) -> list[str]:
    """Return the methods that fit, the best on top."""
    return [key for key, each in choose(needs).items() if each.status == FITS]
