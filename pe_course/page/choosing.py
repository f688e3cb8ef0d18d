"""Which method for which model (chapter 19): what is known of each, and what needs leave over.

Known is what the shipped comparisons measured (`long.csv` where a method stands there, else
`small.csv`; RoPE's rules and rolling caches in `rules.csv`; losses as nats above RoPE's at the
training length of the same training) and what the library's own code does when it is asked: whether
it tells sides apart, whether kept keys can be counted anew, whether it reads positions that are no
whole numbers, what it adds to the scores and how many parameters it takes.

`choose` decides from that alone, by one rule: a measurement counts for what it was made of (task,
kind of model, cache, further training or none), and for nothing else. What these settings make
impossible, or what failed in these settings, is out; what was measured in others is not measured
here. The figure that computes in the browser has the same facts (`python -m tools.live` writes
them) and decides the same way.
"""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass
from functools import cache
from importlib.resources import files
from typing import Any, NamedTuple

import numpy as np
import torch

from pe_course import census, checks, measure
from pe_course.bakeoff import grid, protocol, recipes
from pe_course.bakeoff.rows import Curve, curves, name
from pe_course.bakeoff.variants import BEYOND, EXTENSIONS, TUNED
from pe_course.page import sentences
from pe_course.registry import METHODS, TAUGHT, Sizes
from pe_course.training import generator
from pe_lib.attention import attention_logits
from pe_lib.deberta import DeBERTa
from pe_lib.encoding import PositionEncoding
from pe_lib.recent.window import SlidingWindow

# What the tasks of the comparison stand for, and the bar that every seed must clear at the context
# length: a loss less than MARGIN nats above that of RoPE at the training length, or a share of the
# answers. Further training was measured after STEPS on texts four times as long (RoPE dropped: on
# the old ones).
KEEP = {"language": "text", "content": "marker", "offset": "n-back"}
MARGIN, SHARE, MEMORY, STEPS = 0.1, 0.9, 0.5, 200
MULTIPLES = grid.Cell.multiples
# A decoder of text, an encoder of text, an encoder of two axes, a decoder of events in time.
WHAT = ("text", "both", "image", "times")
CACHES = ("none", "all", "rolling")
KERNELS = ("any", "scores", "plain")
D_MODEL, LAYERS, LENGTH, HEAD_DIM = 768, 12, 512, 64  # a well-known base model
LEARNED = tuple(f"learned+{way}" for way in BEYOND)
WINDOWED = ("windows_rope", "all_windows", "windows_none", "rope_none", "turns_none")
# All that can be chosen. RoPE with a rolling cache is the plainest of its extensions.
ROLLING = "rope+cache"
ROWS = (
    *TAUGHT, *LEARNED, *grid.NEWER, "p_rope_75", "rope_turns", *WINDOWED, ROLLING, *EXTENSIONS,
    *TUNED,
)  # fmt: skip
PAGES = {
    **dict.fromkeys(EXTENSIONS, "13_context_extension"),
    **dict.fromkeys(LEARNED, "03_learned"),
    **dict.fromkeys((ROLLING, "rope+base"), "13_context_extension"),
    "rope+drop": "lab_book#dropping-rope",
    "pope": "lab_book#lengths-and-angles",
    "randomised": "lab_book#the-other-methods",
    "rope_turns": "lab_book#is-that-the-fault-of-the-base",
    **dict.fromkeys(("p_rope", "p_rope_75"), "16_today#today-prope"),
    "hybrid": "16_today#today-hybrid",
    **dict.fromkeys(WINDOWED, "lab_book#the-window-hybrid-which-of-its-parts-does-what"),
    "temperature": "16_today#today-temperature",
    "forgetting": "designs#today-forgetting",
    "cope": "hierarchical#counted-gates",
}
# Where a method was used or compared at scale, and in which encoders ("method@both") and image
# models ("method@image"); {0} models of the census have it.
AT_SCALE: dict[str, tuple[str, str]] = json.loads(
    (files(__package__) / "at_scale.json").read_text(encoding="utf-8")
)

# Why a method falls out, and what stays open; on the right the page that shows it. {0} and {1}
# are the numbers of a reason.
REASONS = {
    "language": ("loss on text {0} nats", "17_bakeoff"),
    "content": ("recall task: {0} right", "17_bakeoff"),
    "offset": ("3-back task: {0} right", "17_bakeoff"),
    "axes": ("has no form for rows and columns", "14_axes"),
    "sides": ("cannot tell left from right", "09_alibi"),
    "causal": ("counts earlier tokens, as only a decoder can", "16_today"),
    "whole": ("its code accepts whole numbers only", "03_learned"),
    "untold": ("its scores do not depend on the times", "01_attention"),
    "moved": ("cached keys keep their old positions", "06_transformer_xl"),
    "stale": ("cached keys must be rotated again", "13_context_extension"),
    "parameters": ("has {0} position parameters", "lab_book#what-positions-cost"),
    "scores": ("needs a kernel that adds a bias", "09_alibi"),
    "products": ("needs a kernel with more products", "05_shaw"),
    "memory": ("needs a tensor larger than half of the scores", "lab_book#what-positions-cost"),
    "training": ("works only with further training", "17_bakeoff"),
    # What is open.
    "query": ("one query alone cannot tell left from right", "09_alibi"),
    "beyond": ("measured only at {1} × the training length", "17_bakeoff"),
    "rolling": ("not measured with a rolling cache", "17_bakeoff"),
    "times": ("its code accepts any number; not measured here", "14_axes"),
    "unmeasured": ("not measured here", "17_bakeoff"),
}
# Of what a method cannot do: which setting asks it, with which words ("query" leaves it open).
ASKED: dict[str, tuple[str, tuple[str | bool, ...]]] = {
    "axes": ("what", ("image",)),
    "sides": ("what", ("both",)),
    "query": ("what", ("both",)),
    "causal": ("what", ("both", "image")),
    "whole": ("what", ("times",)),
    "untold": ("what", ("times",)),
    "moved": ("cache", ("rolling",)),
    "stale": ("cache", ("all",)),
    "scores": ("kernel", ("plain",)),
    "products": ("kernel", ("plain", "scores")),
    "memory": ("small", (True,)),
    "training": ("tuned", (False,)),
}
FITS, UNSURE, OUT = range(3)


@dataclass(frozen=True)
class Needs:
    """What a model needs of its positions.

    Attributes:
        what: "text" (a decoder), "both" (an encoder, read both ways), "image" (an encoder of two
            axes) or "times" (a decoder of events whose positions are times, any real numbers).
        keep: what must survive at the context length, a key of `KEEP`, or "all" of them.
        trained: training length.
        context: context length, at which the model is used.
        cache: "none", "all" (keys are kept as they are) or "rolling" (those of the last `trained`
            tokens are kept, and positions are counted anew).
        parameters: the most that positions may have, in a model of 12 layers of width 768.
        head_dim: width d of a head; divides 768.
        kernel: "any" code, "scores" (a kernel that adds a number to each score, such as
            FlexAttention) or "plain" (one that knows queries, keys, values and a window alone).
        small: whether every tensor of a layer must stay below half of the scores.
        finished: whether the model is finished and has RoPE: what must be built in before training
            is no candidate.
        tuned: whether the model may be trained further for some steps at the context length.
    """

    what: str = "text"
    keep: str = "all"
    trained: int = 64
    context: int = 64
    cache: str = "none"
    parameters: float = float("inf")
    head_dim: int = HEAD_DIM
    kernel: str = "any"
    small: bool = False
    finished: bool = False
    tuned: bool = False

    def __post_init__(self) -> None:
        """Check the words and the lengths."""
        checks.one_of("what", self.what, WHAT)
        checks.one_of("keep", self.keep, ("all", *KEEP))
        checks.one_of("cache", self.cache, CACHES)
        checks.one_of("kernel", self.kernel, KERNELS)
        checks.at_least("trained", self.trained, 1)
        checks.at_least("context", self.context, 1)
        if D_MODEL % self.head_dim:
            raise ValueError(f"head_dim must divide {D_MODEL}, got {self.head_dim}")

    @property
    def multiple(self) -> float:
        """Return the context length over the training length, at least 1."""
        return max(1.0, self.context / self.trained)


class Measured(NamedTuple):
    """What a measurement was made of.

    Attributes:
        task: a key of `KEEP`.
        model: the kind of model, one of `WHAT`.
        cache: "all" keys, or "rolling".
        tuned: whether the model was trained further, for a few steps at the context length (RoPE
            dropped: at the training length).
    """

    task: str
    model: str
    cache: str
    tuned: bool


# What was measured: decoders of text with all keys, and some with a rolling cache or once trained
# further; by name, with all but the task.
RECORDS = {
    "tuned": ("text", "all", True),
    "plain": ("text", "all", False),
    "rolling": ("text", "rolling", False),
}
Values = dict[str, dict[str, list[float]]]  # task -> multiple of the training length -> seeds


@dataclass(frozen=True)
class Facts:
    """What is known of one method.

    Attributes:
        name: as it is written.
        page: where it is derived.
        scale: where it was used or compared at scale, by kind of model, or with a "rolling" cache.
        measured: by name of the record: nats above RoPE's loss at the training length, or a share
            of right answers.
        rolling: whether it is a rolling cache by itself, whatever the cache.
        cannot: what it cannot do, keys of `ASKED`: it has no form for two axes ("axes"); as an
            encoder it does not tell a text from its mirror image ("sides"), or a query alone does
            not ("query"); it counts what came before, as only a decoder can ("causal"); it reads
            positions that are whole numbers alone ("whole") or none ("untold"); kept keys serve no
            more once positions are counted anew ("moved") or the text has grown ("stale"); it is
            further training by itself ("training"); and by `kernel` and `memory`.
        kernel: 0 if queries, keys and a window are all that it changes, 1 if it adds numbers that
            the products of queries and keys do not enter, 2 if it needs more.
        memory: the largest tensor of a layer with it as a share of the scores, at 512 tokens.
        parameters: coefficients of `basis`.
    """

    name: str
    page: str
    scale: dict[str, str]
    measured: dict[str, Values]
    rolling: bool
    cannot: list[str]
    kernel: int
    memory: float
    parameters: list[int]


class Reason(NamedTuple):
    """Why a method falls out, or what is open.

    Attributes:
        kind: a key of `REASONS`, or "fits".
        value: the number that its words print: the worst seed's, or a count.
        multiple: of the training length, at which it was measured.
        of: what was measured, if it is a measurement; all else is said by a method's code.
    """

    kind: str
    value: float = 0
    multiple: float = 0
    of: Measured | None = None


class Verdict(NamedTuple):
    """What becomes of one method.

    Attributes:
        status: FITS, UNSURE or OUT.
        worst: the worst seed, of the loss if all is asked, in these settings; None if it was not
            measured in them.
        reasons: why it falls out, or what is open.
    """

    status: int
    worst: float | None
    reasons: list[Reason]


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
def scores(
    encoding: PositionEncoding, x: torch.Tensor, y: torch.Tensor, q_at: torch.Tensor,
    k_at: torch.Tensor,
) -> torch.Tensor:  # fmt: skip
    """Return the scores (1, H, L, L) of queries and keys that are tokens (1, L, D) at positions."""
    q, k = (
        encoding.embed(each, at).unflatten(-1, (-1, HEAD_DIM)).transpose(1, 2)
        for each, at in ((x, q_at), (y, k_at))
    )
    return attention_logits(q, k, encoding, q_at, k_at)


def blind_to_sides(encoding: PositionEncoding) -> str:
    """Return "sides" or "query" as in `Facts.cannot`, or nothing: without a mask."""
    places = torch.arange(100, 164)  # past the threshold of FIRE
    x, y = (one.expand(1, 64, -1) for one in drawn(2, 1, D_MODEL))
    alike = scores(encoding, x, y, places, places)
    if (alike[..., 30, 27] - alike[..., 30, 33]).abs().max() > 1e-6 * alike.abs().max():
        return ""
    text = drawn(1, 64, D_MODEL)
    here, mirrored = (scores(encoding, x, x, places, places) for x in (text, text.flip(1)))
    return "sides" if torch.allclose(here, mirrored.flip(-1, -2)) else "query"


@torch.no_grad()
def level_of_kernel(encoding: PositionEncoding) -> int:
    """Return 0, 1 or 2 as in `Facts.kernel`, of one part of an encoding."""
    if encoding.uses("values"):
        return 2
    if not encoding.uses("bias") or isinstance(encoding, SlidingWindow):
        return int(encoding.uses("hidden_bias"))
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
def keys_move(encoding: PositionEncoding) -> bool:
    """Return whether keys that were kept serve once positions are counted anew."""
    if encoding.uses("embed"):
        return False
    if encoding.uses("hidden_bias"):  # its numbers come from the tokens
        return True
    q, k = drawn(2, 1, D_MODEL // HEAD_DIM, 40, HEAD_DIM)
    old, new = (encoding.rotate(k, k, *2 * [torch.arange(40) + at])[1] for at in (100, 0))
    return torch.equal(old, new) or measure.translation_error(encoding, q, k, 100) < 1e-9


def blind_to_times(encoding: PositionEncoding) -> str:
    """Return "whole" or "untold" as in `Facts.cannot`, or nothing: keys move to other times."""
    if encoding.uses("hidden_bias"):
        return "untold"  # its numbers come from the tokens
    x, times = drawn(1, 6, D_MODEL), torch.tensor([0.0, 0.3, 1.9, 4.25, 7.5, 7.75]).double()
    try:
        now, earlier = (
            scores(encoding, x[:, -1:], x, times[-1:], at) for at in (times, 0.9 * times)
        )
    except (TypeError, IndexError, RuntimeError):  # a fraction is no row of a table
        return "whole"
    return "untold" if torch.allclose(now, earlier) else ""


def above(losses: dict[str, Curve], home: float) -> dict[str, Curve]:
    """Return curves of losses as nats above `home`."""
    return {
        key: {length: [round(each - home, 5) for each in seeds] for length, seeds in curve.items()}
        for key, curve in losses.items()
    }


def longest_recalibration(task: str) -> str:
    """Return the metric of RoPE dropped and recalibrated for the most steps, if there are rows."""
    metrics = {str(row["metric"]) for row in sentences.shipped("dropped") if row["task"] == task}
    return max(metrics, key=lambda each: int(each.rpartition("-")[2]), default="")


@cache
def comparison(keep: str, after: str = "") -> dict[str, Curve]:
    """Return the values of a task by method: as it is, or after further training.

    Where comparisons have the same, the longer training counts, and of RoPE's extensions the
    library's rules.
    """
    task = KEEP[keep]
    metric = sentences.METRICS[task] + after
    short = curves([*sentences.shipped("small"), *sentences.shipped("parts")], task, metric)
    longer = {} if after else sentences.found(task)
    rules = {} if after else {k: v for k, v in sentences.ruled(task).items() if "+" in k}
    longest = {"dropped": longest_recalibration(task)} if "recalibrated" in after else {}
    for scale in (*longest, "further-4", "further-8") if after else ():
        rows = sentences.shipped(scale)
        found = protocol.complete(rows, task, longest.get(scale, metric), scale)
        for key, curve in found.items():
            rules[key] = rules.get(key, {}) | curve
    if keep == "language":
        short = above(short, max(sentences.at(task, "rope", 1, "small")))
        longer = above(longer, max(sentences.at(task, "rope", 1)))
        if rules:
            home = sentences.ruled(task)["rope"]
            rules = above(rules, max(home[min(home)]))
    if not after:
        return short | longer | rules
    return {key: short.get(key, {}) | rules.get(key, {}) for key in short | rules}


def measured(key: str, after: str = "") -> Values:
    """Return a method's values by task and multiple of the training length."""
    length = {each.task: each.train_length for each in grid.SIZES if each.scale == "small"}
    return {
        keep: {
            f"{multiple:g}": values
            for multiple in MULTIPLES
            if (values := comparison(keep, after).get(key, {}).get(round(length[task] * multiple)))
        }
        for keep, task in KEEP.items()
    }


def at_scale(key: str) -> dict[str, str]:
    """Return where a method was used at scale, by kind of model or "rolling", if we know any."""
    keys = {"text": key, "rolling": f"{key}+cache"} | {what: f"{key}@{what}" for what in WHAT[1:]}
    return {what: counted_in(*AT_SCALE[key]) for what, key in keys.items() if key in AT_SCALE}


def counted_in(column: str, words: str) -> str:
    """Return words with the number of models of the census that have something in a column."""
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


@cache
def in_order(what: str) -> list[str]:
    """Return all rows, and first of them what models of a kind have, as at_scale.json lists it."""
    used = [key.partition("@")[0] for key in AT_SCALE if key.endswith(f"@{what}")]
    return list(dict.fromkeys((*used, *ROWS)))


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
        decoder, encoder = (probed(method, causal=causal) for causal in (True, False))
        memory = measure.largest_in_layer(plain, sizes()) / (4 * sizes().n_heads * LENGTH**2)
    cell = grid.Cell("", "text", "rope", 0, 64, d_model=D_MODEL, n_heads=D_MODEL // HEAD_DIM)
    causal = method in ("temperature", "forgetting", "cope")
    drawn_positions = method in recipes.RECIPES and recipes.RECIPES[method].drawn
    after = f"-recalibrated-{STEPS}" if key == "rope+drop" else f"-tuned-{STEPS}"
    # Layers that are all windows, shorter than the cache, see the same with it.
    windows = all(
        any(isinstance(part, SlidingWindow) for part in layer.parts())
        for layer in recipes.encodings(method, sizes(), 2)
    )
    kernel = max(map(level_of_kernel, decoder.parts()))
    blind = ["untold" if drawn_positions else blind_to_times(decoder)]
    blind += [] if causal else [blind_to_sides(encoder)]
    cannot = {
        "axes": not causal and not any(map(decoder.uses, ("embed", "rotate", "bias"))),
        "causal": causal,
        "moved": not keys_move(decoder),
        "stale": key in EXTENSIONS and goes_stale(EXTENSIONS[key](cell, 16 * 64)),
        "scores": kernel == 1,
        "products": kernel == 2,
        "memory": not memory < MEMORY,
        "training": key in TUNED,
    }
    rolling = key == ROLLING
    records = {
        "plain": {} if rolling else measured(key),
        "tuned": measured(key, after),
        "rolling": measured(key if rolling or windows else f"{key}+cache"),
    }
    return Facts(
        name=name(key),
        page=PAGES.get(key) or METHODS[key].chapter,
        scale=at_scale(key),
        measured={
            record: held
            for record, values in records.items()
            if (held := {keep: curve for keep, curve in values.items() if curve})
        },
        rolling=rolling,
        cannot=[kind for kind in ASKED if cannot.get(kind) or kind in blind],
        kernel=kernel,
        memory=round(memory, 4),
        parameters=coefficients(method),
    )


@cache
def facts() -> dict[str, Facts]:
    """Return what is known of every row."""
    return {key: facts_of(key) for key in ROWS}


BARS = {"all": MARGIN, "language": MARGIN, "content": SHARE, "offset": SHARE}


def shown(known: Facts) -> dict[str, Any]:
    """Return what the figure reads of a method: of measurements the worst seeds alone."""
    found = [
        [Measured(task, *of), [[seed, at] for at, seed in worst_seeds(values, task).items()]]
        for record, of in RECORDS.items()
        for task, values in known.measured.get(record, {}).items()
    ]
    scale = {"text": "none known to us"} | known.scale
    words = {
        what: f"{'at scale' if what in ('text', 'rolling') else 'in use'}: {each}"
        for what, each in scale.items()
    }
    cannot = [[kind] for kind in known.cannot]
    return asdict(known) | {"measured": found, "scale": words, "cannot": cannot}


def data() -> dict[str, Any]:
    """Return all that the figure in the browser decides from."""
    known = {key: shown(each) for key, each in facts().items()}
    reads = {
        "text": "Measured in decoders of 2 layers, trained on 32 or 64 tokens, up to 16 ×.",
        "both": "No encoder was measured; methods in use come first.",
        "image": "No image model was measured; methods in use come first.",
        "times": "Nothing was measured on times. Rotations, sinusoids and penalties accept any "
        "number; tables of whole distances do not.",
    }
    return {
        "bars": BARS,
        "keep": list(KEEP),
        "reads": reads,
        "reasons": REASONS,
        "asked": ASKED,
        "after": [" without further training", " after a few further steps"],
        "groups": [
            "✓ These fit",
            "? Not certain",
            "✕ These fit at the training length only",
            "✕ These do not fit",
        ],
        "order": {what: in_order(what) for what in WHAT},
        "facts": known,
    }


# The decision -------------------------------------------------------------------------------------


def candidates(needs: Needs) -> list[str]:
    """Return the rows that differ at the context length, and can still be had.

    A text no longer than in training leaves nothing to stretch; in a longer one a learned table
    needs one of the ways beyond its last row. With a rolling cache RoPE is RoPE with that cache.
    Into a finished RoPE model go RoPE's extensions alone.
    """
    longer = needs.context > needs.trained
    return [
        key
        for key in in_order(needs.what)
        if (key != "learned" if longer else "+" not in key)
        and (key != ROLLING or needs.cache != "rolling")
        and (key.partition("+")[0] == "rope" or not needs.finished)
    ]


def worst_seeds(values: dict[str, list[float]], task: str) -> dict[float, float]:
    """Return the worst seed by multiple of the training length."""
    worst = max if task == "language" else min
    return {at: worst(values[f"{at:g}"]) for at in MULTIPLES if f"{at:g}" in values}


def at_length(values: dict[str, list[float]], of: Measured, multiple: float) -> Reason:
    """Return what a measurement says of a multiple of the training length.

    What holds in a longer text holds here; what failed in a shorter one fails here, if the model
    was not trained further for that length. All else was measured at other lengths only.
    """
    worst = worst_seeds(values, of.task)
    shorter, longer = ([m for m in worst if m <= multiple], [m for m in worst if m >= multiple])

    def clears(each: float) -> bool:
        bar = BARS[of.task]
        return worst[each] < bar if of.task == "language" else worst[each] > bar

    if longer and clears(longer[0]):
        return Reason("fits", worst[longer[0]], longer[0], of)
    nearest = shorter[-1] if shorter else longer[0]
    failed = nearest <= multiple and not clears(nearest) and (nearest == multiple or not of.tuned)
    return Reason(of.task if failed else "beyond", worst[nearest], nearest, of)


def evidence(known: Facts, needs: Needs, task: str) -> Reason:
    """Return what was measured of a task in these very settings, or that it was not."""
    cache = "rolling" if known.rolling or needs.cache == "rolling" else "all"
    further = needs.tuned and needs.multiple > 1
    found: dict[bool, Reason] = {}
    for record, (model, keys, tuned) in RECORDS.items():
        values = known.measured.get(record, {}).get(task)
        if values and (model, keys) == (needs.what, cache) and (further or not tuned):
            of = Measured(task, model, keys, tuned)
            found[tuned] = at_length(values, of, needs.multiple)
    for each in found.values():
        if each.kind == "fits":
            return each
    unmeasured = {"text": "rolling" if cache == "rolling" else "unmeasured", "times": "times"}
    return next(iter(found.values()), Reason(unmeasured.get(needs.what, "unmeasured")))


def verdict(known: Facts, needs: Needs) -> Verdict:
    """Return what becomes of one method."""
    asked = list(KEEP) if needs.keep == "all" else [needs.keep]
    seen = [evidence(known, needs, task) for task in asked]
    sizes_of = basis(needs.head_dim, needs.trained)
    count = sum(a * b for a, b in zip(known.parameters, sizes_of, strict=True))
    said = [
        Reason(kind) for kind in known.cannot if getattr(needs, ASKED[kind][0]) in ASKED[kind][1]
    ]
    if count > needs.parameters:
        said.append(Reason("parameters", count))
    query = [each for each in said if each.kind == "query"]
    # Further training leaves open what failed without it, or after a few steps of it.
    further = needs.tuned and needs.multiple > 1
    against = [each for each in seen if each.kind in KEEP and not further]
    against += [each for each in said if each not in query]
    unsure = list({each.kind: each for each in reversed(seen) if each.kind != "fits"}.values())
    unsure += query
    status = OUT if against else UNSURE if unsure else FITS
    return Verdict(status, seen[0].value if seen[0].of else None, against or unsure)


def choose(needs: Needs) -> dict[str, Verdict]:
    """Return what becomes of every candidate: those that fit first, the best of them on top.

    Methods are sorted by the tasks that failed and by their worst seed at the context length; those
    without a value come last, first of them those that models of this kind have.
    """
    found = {key: verdict(facts()[key], needs) for key in candidates(needs)}
    sign = -1 if needs.keep in ("content", "offset") else 1

    def rank(key: str) -> tuple[int, int, float]:
        status, worst, reasons = found[key]
        failed = sum(each.kind in KEEP for each in reasons) if status == UNSURE else 0
        return status, failed, float("inf") if worst is None else sign * worst

    return {key: found[key] for key in sorted(found, key=rank)}


def fitting(needs: Needs) -> list[str]:
    """Return the methods that fit, the best on top."""
    return [key for key, each in choose(needs).items() if each.status == FITS]
