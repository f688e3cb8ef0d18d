"""Planted bugs: each a few lines, each one that people have really written, each with its name.

test_doctor.py puts every one before the doctor. `python tests/planted.py` writes what it says into
pe_course/data/doctor_bugs.csv, for the pages.
"""

from __future__ import annotations

import csv
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import cache
from typing import Any

import torch
from torch import Tensor

from pe_lib.alibi import alibi, alibi_slopes
from pe_lib.fire import FIRE
from pe_lib.rope import split_pairs
from pe_lib.rope_scaling import ntk_aware, yarn
from pe_lib.sinusoidal import arrange, frequencies
from pe_lib.t5 import t5_bucket
from posdoctor.doctor import diagnose
from posdoctor.findings import UNSURE
from posdoctor.precision import tf32
from posdoctor.subjects import Bias

Pair = tuple[Tensor, Tensor]


@dataclass(frozen=True, eq=False)
class Bug:
    """A planted bug.

    Attributes:
        name: as it stands in tables.
        symptom: what whoever has it sees.
        thing: what the doctor gets.
        verdict: the finding that must be made.
        expect: what the doctor is told that it should be; None where it needs no hint.
        options: of `diagnose`.
        held_out: planted after the doctor was written.
    """

    name: str
    symptom: str
    thing: object
    verdict: str
    expect: object = None
    options: dict[str, Any] = field(default_factory=dict)
    held_out: bool = False


def table(positions: Tensor, dim: int, base: float = 10000.0) -> Tensor:
    """Return the angles of pairs: (B, L) -> (B, 1, L, d / 2)."""
    return positions[:, None, :, None].double() * frequencies(dim, base)


def rotate_pairs(
    x: Tensor, angles: Tensor, layout: str = "half", attention_factor: float = 1.0
) -> Tensor:
    """Rotate pairs of x (B, H, L, d) by angles (B or 1, 1, L, d / 2)."""
    cos, sin = (
        (attention_factor * angles.cos()).to(x.dtype),
        (attention_factor * angles.sin()).to(x.dtype),
    )
    a, b = split_pairs(x, layout)
    return arrange(a * cos - b * sin, a * sin + b * cos, layout)


def right(q: Tensor, k: Tensor, positions: Tensor, **options: Any) -> Pair:
    """Do it right."""
    angles = table(positions, q.shape[-1], options.pop("base", 10000.0))
    return rotate_pairs(q, angles, **options), rotate_pairs(k, angles, **options)


def rates_bug(change: Callable[[int], Tensor]) -> Callable[[Tensor, Tensor, Tensor], Pair]:
    """Return a rotation whose frequencies come from the width by `change`."""

    def rotate(q: Tensor, k: Tensor, positions: Tensor) -> Pair:
        angles = positions[:, None, :, None].double() * change(q.shape[-1])
        return rotate_pairs(q, angles), rotate_pairs(k, angles)

    return rotate


def place_bug(change: Callable[[Tensor], Tensor]) -> Callable[[Tensor, Tensor, Tensor], Pair]:
    """Return a rotation that changes positions (B, L) first."""
    return lambda q, k, positions: right(q, k, change(positions))


def angle_bug(
    change: Callable[[Tensor, Tensor], Tensor],
) -> Callable[[Tensor, Tensor, Tensor], Pair]:
    """Return a rotation whose angles are `change` of positions (B, 1, L, 1) and frequencies."""

    def rotate(q: Tensor, k: Tensor, positions: Tensor) -> Pair:
        angles = change(positions[:, None, :, None], frequencies(q.shape[-1])).double()
        return rotate_pairs(q, angles), rotate_pairs(k, angles)

    return rotate


def form_bug(
    change: Callable[[Tensor, Tensor, Tensor, Tensor], Pair], layout: str = "half"
) -> Callable[[Tensor, Tensor, Tensor], Pair]:
    """Return a map of pairs (a, b), with cosines and sines, that is wrong."""

    def rotate(q: Tensor, k: Tensor, positions: Tensor) -> Pair:
        angles = table(positions, q.shape[-1]).float()
        out = []
        for x in (q, k):
            a, b = split_pairs(x, layout)
            out.append(arrange(*change(a, b, angles.cos(), angles.sin()), layout).to(x.dtype))
        return out[0], out[1]

    return rotate


def mixed_layouts(q: Tensor, k: Tensor, positions: Tensor) -> Pair:
    """The angles of two halves, the swap of neighbours."""
    angles = table(positions, q.shape[-1]).float()
    both = torch.cat([angles, angles], -1)
    out = []
    for x in (q, k):
        partner = torch.stack([-x[..., 1::2], x[..., ::2]], -1).flatten(-2)
        out.append((x * both.cos() + partner * both.sin()).to(x.dtype))
    return out[0], out[1]


def keys_from_zero(q: Tensor, k: Tensor, positions: Tensor) -> Pair:
    """Keys are counted from 0, queries have their positions."""
    return right(q, q, positions)[0], right(k, k, torch.arange(k.shape[2])[None])[1]


def opposite(q: Tensor, k: Tensor, positions: Tensor) -> Pair:
    """The key rotates the other way."""
    return right(q, q, positions)[0], right(k, k, -positions)[1]


def axes_rates(dim: int, owners: list[int], base: float = 10000.0) -> Tensor:
    """Return frequencies (d / 2, axes), each pair's in the column of its axis."""
    inv_freq, found = frequencies(dim, base), torch.zeros(dim // 2, max(owners) + 1).double()
    found[torch.arange(dim // 2), torch.tensor(owners)] = inv_freq
    return found


def by_axes(owners: Callable[[int], list[int]]) -> Callable[[Tensor, Tensor, Tensor], Pair]:
    """Return a rotation by positions (B, L, axes) whose pair r belongs to axis owners[r]."""

    def rotate(q: Tensor, k: Tensor, positions: Tensor) -> Pair:
        angles = (positions.double() @ axes_rates(q.shape[-1], owners(q.shape[-1] // 2)).T)[:, None]
        return rotate_pairs(q, angles), rotate_pairs(k, angles)

    return rotate


def chunked(n: int) -> list[int]:
    """Three axes in three runs of pairs."""
    return [0] * (n - 2 * (n // 3)) + [1] * (n // 3) + [2] * (n // 3)


def shuffled(n: int) -> list[int]:
    """Three axes in turn."""
    return [r % 3 for r in range(n)]


def yarn_inv_freq(q: Tensor, k: Tensor, positions: Tensor, attention_factor: float = 1.0) -> Pair:
    """YaRN's frequencies for 4 times 4096 positions."""
    inv_freq = yarn(frequencies(q.shape[-1]), 4.0, 4096)
    angles = positions[:, None, :, None].double() * inv_freq
    return rotate_pairs(q, angles, attention_factor=attention_factor), rotate_pairs(
        k, angles, attention_factor=attention_factor
    )


def linear_bias(slopes: Tensor, q_pos: Tensor, k_pos: Tensor, sign: float = 1.0) -> Tensor:
    """Return slopes times relative positions, (H, Lq, Lk)."""
    return sign * alibi(k_pos[None] - q_pos[:, None], slopes)


VALUES = torch.randn(8, 32, generator=torch.Generator().manual_seed(0))
HALF, TRIPLE = {"layout": "half"}, {"axes": 3}
YARN = {"head_dim": 64, "rope_theta": 10000.0, "max_position_embeddings": 16384,
        "rope_scaling": {"rope_type": "yarn", "factor": 4.0,
                         "original_max_position_embeddings": 4096}}  # fmt: skip

BUGS: tuple[Bug, ...] = (
    Bug("layout", "fluent nonsense after a conversion",
        lambda q, k, p: right(q, k, p, layout="interleaved"), "layout", HALF),
    Bug("angles of one layout, swap of the other", "trains, but is worse and not relative",
        mixed_layouts, "mixed-layouts"),
    Bug("base from a default", "the loss grows with the length", right, "base", {"base": 500000}),
    Bug("exponent i / d", "a little worse at all lengths",
        rates_bug(lambda d: 10000.0 ** -(torch.arange(d // 2).double() / d)),
        "exponent-halved", {"base": 10000}),
    Bug("exponent without its minus", "noise from the second pair on",
        rates_bug(lambda d: 1 / frequencies(d)), "frequencies-grow"),
    Bug("YaRN without its factor", "scores 27 % too small, long texts drift",
        yarn_inv_freq, "gain", YARN),
    Bug("interpolation forgotten", "fails past the trained length", right, "factor",
        {"head_dim": 64, "rope_theta": 10000.0,
         "rope_scaling": {"rope_type": "linear", "factor": 4.0}}),
    Bug("both sines plus", "trains, worse", form_bug(
        lambda a, b, c, s: (a * c + b * s, a * s + b * c)), "sine-sign-lost"),
    Bug("sines missing", "no direction: before and after look alike", form_bug(
        lambda a, b, c, s: (a * c, b * c)), "sines-missing"),
    Bug("cosine and sine exchanged", "position 0 is rotated", form_bug(
        lambda a, b, c, s: (a * s - b * c, a * c + b * s)), "cosine-sine-exchanged"),
    Bug("first component overwritten", "scores drift with the position", form_bug(
        lambda a, b, c, s: (a * c - b * s, (a * c - b * s) * s + b * c)), "overwritten"),
    Bug("rotated backwards", "before is read for after", place_bug(lambda p: -p), "direction",
        {"base": 10000}),
    Bug("keys rotated the other way", "scores depend on the sum of positions", opposite,
        "opposite-directions"),
    Bug("only queries rotated", "no relative position at all",
        lambda q, k, p: (right(q, q, p)[0], k), "one-side-only"),
    Bug("offset ignored", "right at once, wrong with a cache",
        place_bug(lambda p: torch.arange(p.shape[1])[None]), "offset-ignored"),
    Bug("offset of keys ignored", "wrong as soon as the cache holds something", keys_from_zero,
        "offset-ignored"),
    Bug("one position for the batch", "short rows of a padded batch are garbage",
        place_bug(lambda p: p[:1]), "rows-share-positions"),
    Bug("counted from the first", "packed texts run into one another",
        place_bug(lambda p: p[:, :1] + torch.arange(p.shape[1])), "first-position-only"),
    Bug("head for position", "every token has the same position",
        lambda q, k, p: tuple(rotate_pairs(x, table(torch.arange(x.shape[1])[None], x.shape[-1])
                                   .transpose(1, 2)) for x in (q, k)), "head-as-position"),
    Bug("positions in bfloat16", "neighbours collide past 256",
        place_bug(lambda p: p.bfloat16()), "positions-rounded"),
    Bug("angles in bfloat16", "worse with the length", angle_bug(
        lambda p, w: p.bfloat16() * w.bfloat16()), "angles-rounded"),
    Bug("product in TF32", "positions collide past 2048", angle_bug(
        lambda p, w: tf32(p) * tf32(w)), "tf32"),
    Bug("axes exchanged", "pictures are read as if mirrored at the diagonal",
        lambda q, k, p: by_axes(chunked)(q, k, p[..., [0, 2, 1]]), "axes-exchanged",
        by_axes(chunked), TRIPLE),
    Bug("chunks for an interleaved split", "wrong captions", by_axes(chunked), "axes-split",
        by_axes(shuffled), TRIPLE),
    Bug("width for height", "half of the picture's place is lost",
        lambda q, k, p: by_axes(chunked)(q, k, p[..., [0, 1, 1]]), "axis-unused", None, TRIPLE),
    Bug("penalty as a reward", "attention runs to the first token",
        lambda qp, kp: linear_bias(alibi_slopes(8), qp, kp, -1.0), "bias-sign", None,
        {"kind": "bias"}),
    Bug("slopes of the next power of two", "other heads than the checkpoint's",
        lambda qp, kp: linear_bias(alibi_slopes(16)[:12], qp, kp), "slopes", None,
        {"kind": "bias"}),
    Bug("bias of the first row", "wrong with a cache only",
        lambda qp, kp: VALUES[:, t5_bucket(kp[None] - torch.arange(len(qp))[:, None], 32, 128)],
        "bias-offset-ignored", None, {"kind": "bias"}),
    Bug("buckets of the future for the past", "a decoder sees one bucket",
        lambda qp, kp: VALUES[:, t5_bucket(qp[:, None] - kp[None], 32, 128, bidirectional=False)],
        "bias-mirrored", None, {"kind": "bias"}),
    Bug("positions from 2", "a little worse everywhere",
        lambda p: codes(p + 2, 64), "code-shifted", None, {"kind": "absolute"}),
    Bug("scale of the softmax from the place in the tensor", "new tokens attend flatly",
        lambda q, k, p: (q * (2 + torch.arange(q.shape[2])).log()[:, None], k), "offset-ignored"),
    # Planted after the doctor was written.
    Bug("rotated twice", "distances count double", lambda q, k, p: right(*right(q, k, p), p),
        "factor", {"base": 10000}, held_out=True),
    Bug("frequencies in pairs", "half of the clock's hands are missing",
        rates_bug(lambda d: 10000.0 ** -(2 * (torch.arange(d // 2) // 2 * 2).double() / d)),
        "frequencies", {"base": 10000}, held_out=True),
    Bug("only the first head", "other heads cannot see order",
        lambda q, k, p: tuple(torch.cat([rotated[:, :1], x[:, 1:]], 1)
                              for rotated, x in zip(right(q, k, p), (q, k), strict=True)),
        "heads-differ", held_out=True),
    Bug("factor on cosines only", "scores drift with the position", form_bug(
        lambda a, b, c, s: (1.2 * a * c - b * s, a * s + 1.2 * b * c)), "not-a-rotation",
        held_out=True),
    Bug("queries neighbours, keys halves", "position is noise",
        lambda q, k, p: (right(q, q, p, layout="interleaved")[0], right(k, k, p)[1]),
        "layouts-differ", held_out=True),
    Bug("frequencies in reverse", "other components than the checkpoint's",
        rates_bug(lambda d: frequencies(d).flip(0)), "frequencies", {"base": 10000},
        held_out=True),
    Bug("width of the model for the head's", "positions too far look near",
        rates_bug(lambda d: frequencies(8 * d)[: d // 2]), "exponent-over-whole-width",
        {"base": 10000}, held_out=True),
    Bug("dropout on the angles", "other answers each time", angle_bug(
        lambda p, w: p * w * (torch.rand_like(w) > 0.1)), "random", held_out=True),
    Bug("positions from the end", "the first token depends on the length",
        place_bug(lambda p: p.max() - p), "direction", held_out=True),
    Bug("keys one step late", "every distance is off by one",
        lambda q, k, p: (right(q, q, p)[0], right(k, k, p - 1)[1]), "query-key-shift",
        held_out=True),
    Bug("table that ends", "fine up to 2,048 tokens", place_bug(lambda p: p.clamp(max=2047)),
        "clamped", held_out=True),
    Bug("table that starts again", "fine up to 1,024 tokens", place_bug(lambda p: p % 1024),
        "wraps", held_out=True),
    Bug("values of the next token", "a layer sees the future",
        lambda q, k, p: right(q, k.roll(-1, 2), p), "mixes-tokens", held_out=True),
    Bug("frequencies in bfloat16", "an error that grows with the length",
        rates_bug(lambda d: frequencies(d).bfloat16().double()), "frequencies-rounded",
        held_out=True),
    Bug("frequencies in float16", "an error that grows with the length",
        rates_bug(lambda d: frequencies(d).half().double()), "frequencies-rounded",
        held_out=True),
    Bug("padding counted in the prompt only", "nonsense after the first generated token",
        place_bug(lambda p: torch.where(p < 64, p + 40, p)), "two-countings", held_out=True),
    Bug("positions in the type of q", "right in float32, wrong in the deployed model",
        lambda q, k, p: right(q, k, p.to(q.dtype)), "positions-rounded", held_out=True),
)  # fmt: skip


def codes(positions: Tensor, dim: int) -> Tensor:
    """Return sinusoidal codes, (..., dim)."""
    angles = positions[..., None].double() * frequencies(dim)
    return arrange(angles.sin(), angles.cos(), "interleaved").float()


# Two bugs at once: the thing, what is expected, the findings that must be made.
COMBINED: dict[str, tuple[object, dict[str, Any] | None, set[str]]] = {
    "base and offset": (
        place_bug(lambda p: torch.arange(p.shape[1])[None]),
        {"base": 500000},
        {"base", "offset-ignored"},
    ),
    "layout and backwards": (
        lambda q, k, p: right(q, k, -p, layout="interleaved"),
        {"layout": "half", "base": 10000},
        {"layout", "direction"},
    ),
    "mixed layouts and rows": (
        lambda q, k, p: mixed_layouts(q, k, p[:1]),
        None,
        {"mixed-layouts", "rows-share-positions"},
    ),
    "bfloat16 positions and base": (
        lambda q, k, p: right(q, k, p.bfloat16(), base=500000.0),
        {"base": 10000},
        {"positions-rounded", "base"},
    ),
    "one side and gain": (
        lambda q, k, p: (right(q, q, p, attention_factor=1.2)[0], k),
        None,
        {"one-side-only", "gain-on-one-side"},
    ),
    "base and gain": (
        lambda q, k, p: right(q, k, p, attention_factor=1.1),
        {"base": 1e6, "gain": 1.0},
        {"base", "gain"},
    ),
    "wraps and layout": (
        lambda q, k, p: right(q, k, p % 1024, layout="interleaved"),
        {"layout": "half"},
        {"wraps", "layout"},
    ),
    "slopes and sign": (
        Bias(lambda qp, kp: linear_bias(alibi_slopes(16)[:12], qp, kp, -1.0)),
        None,
        {"bias-sign", "slopes"},
    ),
}

# What cannot be told from the tensors alone: no fault, but a word of doubt with an experiment.
DOUBTFUL: dict[str, tuple[object, str]] = {
    "exponent i / d, or base 100": (
        rates_bug(lambda d: 10000.0 ** -(torch.arange(d // 2).double() / d)),
        "unusual-base",
    ),
    "NTK-aware, or a larger base": (
        rates_bug(lambda d: ntk_aware(frequencies(d), 4.0)),
        "unusual-base",
    ),
    "index from one, or interpolation": (
        rates_bug(lambda d: frequencies(d) * 10000.0 ** (-2 / d)),
        "index-from-one",
    ),
    "YaRN without a gain, or DeepSeek's": (yarn_inv_freq, "gain-missing"),
    "backwards, or nanochat": (place_bug(lambda p: -p), "direction"),
    "learned frequencies, or a wrong formula": (
        rates_bug(lambda d: 1 / (1 + torch.arange(d // 2).double())),
        "unknown-frequencies",
    ),
    "FIRE, or a bias that is not relative": (
        FIRE(4, threshold=8),
        "bias-not-relative",
    ),
}


@cache
def verdicts(bug: Bug) -> tuple[str, ...]:
    """Return the names of all that the doctor finds in a planted bug, each once, and keep them."""
    report = diagnose(bug.thing, expect=bug.expect, **bug.options)
    return tuple(dict.fromkeys(report.names()))


Row = dict[str, str]


def recorded() -> list[Row]:
    """Return the rows of the table: what was planted, and what the doctor finds."""
    rows = [
        {
            "kind": "one",
            "planted": bug.name,
            "symptom": bug.symptom,
            "verdict": bug.verdict,
            "findings": "; ".join(verdicts(bug)),
            "told": "yes" if bug.expect is not None else "",
            "later": "yes" if bug.held_out else "",
        }
        for bug in BUGS
    ]
    for name, (thing, expect, wanted) in COMBINED.items():
        found = wanted & set(diagnose(thing, expect=expect).names())
        rows.append({"kind": "two", "planted": name, "findings": "; ".join(sorted(found))})
    for name, (thing, verdict) in DOUBTFUL.items():
        found = {verdict} & set(diagnose(thing).names(UNSURE))
        rows.append({"kind": "doubt", "planted": name, "findings": "; ".join(found)})
    return [dict.fromkeys(rows[0], "") | row for row in rows]


if __name__ == "__main__":
    from tools.doctor_page import BUGS as TABLE

    rows = recorded()
    with TABLE.open("w", encoding="utf-8", newline="") as file:
        writer = csv.DictWriter(file, list(rows[0]), lineterminator="\n")
        writer.writeheader()
        writer.writerows(rows)
    print(f"{len(rows)} rows in {TABLE.name}")
