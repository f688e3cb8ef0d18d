"""Bad input gets an error that names the argument, what was given and what is allowed.

`REFUSED` has a call, the error and its words; `ACCEPTED` has calls that look like faults and are
none, each with the reason.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from lab.model import Transformer
from pe_lib import (
    ALiBi,
    AxialRoPE,
    Compose,
    CoPE,
    DeBERTa,
    DynamicNTK,
    Fire,
    Forgetting,
    Hierarchical,
    HierarchicalLearned,
    KVCache,
    Learned,
    LongRoPE,
    MultiHeadAttention,
    NoPosition,
    PoPE,
    PositionEncoding,
    RoPE,
    RotaryValues,
    Run,
    Shaw,
    Sink,
    Sinusoidal,
    T5Bias,
    Trailing,
    TransformerXL,
    WindowBias,
    XPos,
)
from pe_lib.alibi import alibi, alibi_slopes
from pe_lib.attention import attend, attend_fused, attention_logits
from pe_lib.axes import (
    axis_of_pair,
    golden_directions,
    text_image_positions,
    width_directions,
)
from pe_lib.context_extension import (
    by_parts,
    dynamic_ntk,
    longrope,
    ntk_aware,
    position_interpolation,
    yarn,
    yarn_gain,
)
from pe_lib.cope import gated_counts
from pe_lib.deberta import disentangled_row, log_bucket
from pe_lib.fire import fire_ratio
from pe_lib.forgetting import forgetting_bias
from pe_lib.hierarchical import ParagraphVectors, split_rows
from pe_lib.kerple import kerple_log, kerple_power
from pe_lib.learned import interpolate_grid, interpolate_table
from pe_lib.pope import apply_pope
from pe_lib.rope import apply_rope, axial_angles, rope_angles
from pe_lib.shaw import shaw_logits, shaw_values
from pe_lib.sinusoidal import frequencies, sinusoidal, sinusoidal_2d, timestep_embedding
from pe_lib.t5 import t5_bucket
from pe_lib.temperature import query_factor
from pe_lib.transformer_xl import SegmentMemory, distance_codes, run_segments, transformer_xl_bias

NAN, INF = float("nan"), float("inf")
D, HEADS = 16, 2
P = torch.arange


def layer(encoding: PositionEncoding | None = None, **settings: bool) -> MultiHeadAttention:
    """Return attention of width 16 with 2 heads."""
    return MultiHeadAttention(D, HEADS, encoding, **settings)


def x(*shape: int) -> Tensor:
    """Return hidden states."""
    return torch.randn(*(shape or (1, 4, D)))


def q(h: int = HEADS, length: int = 4, d: int = 8, b: int = 1) -> Tensor:
    """Return queries, keys or values."""
    return torch.randn(b, h, length, d)


def begun() -> tuple[MultiHeadAttention, KVCache]:
    """Return a layer and its cache after four tokens."""
    cache, attention = KVCache(), layer(causal=True)
    attention(x(), cache=cache)
    return attention, cache


def follow(given: Tensor, **others: Tensor) -> Tensor:
    """Go on after four tokens, in the dtype of `given`."""
    attention, cache = begun()
    output: Tensor = attention.to(given.dtype)(given, cache=cache, **others)
    return output


class Refused(NamedTuple):
    """A call that is refused, with the error and some of its words."""

    call: Callable[[], object]
    error: type[Exception]
    words: str


class Accepted(NamedTuple):
    """A call that looks like a fault, and why it is none."""

    call: Callable[[], object]
    reason: str


REFUSED: dict[str, Refused] = {
    "frequencies(8, dtype=int64)": Refused(
        lambda: frequencies(8, dtype=torch.int64),
        TypeError,
        "dtype must be a floating-point type, got torch.int64",
    ),
    "frequencies dtype str": Refused(
        lambda: frequencies(8, dtype="float32"),
        TypeError,
        "dtype must be a floating-point type, got 'float32'",
    ),
    "frequencies base nan": Refused(
        lambda: frequencies(8, NAN),
        ValueError,
        "base must be a finite number greater than 1, got nan",
    ),
    "frequencies base str": Refused(
        lambda: frequencies(8, "x"), TypeError, "base must be a number, got str"
    ),
    "sinusoidal nan": Refused(
        lambda: sinusoidal(torch.tensor([NAN, 1]), 4),
        ValueError,
        "positions must be finite, got nan",
    ),
    "sinusoidal inf": Refused(
        lambda: sinusoidal(torch.tensor([INF]), 4), ValueError, "positions must be finite, got inf"
    ),
    "sinusoidal list inf": Refused(
        lambda: sinusoidal([INF], 4), ValueError, "positions must be finite, got inf"
    ),
    "sinusoidal int32": Refused(
        lambda: sinusoidal([1, 2], 4, dtype=torch.int32),
        TypeError,
        "dtype must be a floating-point type, got torch.int32",
    ),
    "sinusoidal_2d nan": Refused(
        lambda: sinusoidal_2d([NAN], [1], 8), ValueError, "rows must be finite, got nan"
    ),
    "timestep nan": Refused(
        lambda: timestep_embedding([NAN], 8), ValueError, "positions must be finite, got nan"
    ),
    "Sinusoidal 10**15": Refused(
        lambda: Sinusoidal(16, max_len=10**15),
        ValueError,
        "max_len must fit into memory, got 1000000000000000",
    ),
    "Sinusoidal embed nan": Refused(
        lambda: Sinusoidal(16).embed(x(), torch.tensor([0, 1, NAN, 2])),
        ValueError,
        "positions must be finite, got nan",
    ),
    "Sinusoidal dim mismatch": Refused(
        lambda: Sinusoidal(16).embed(x(1, 4, 8), P(4)),
        ValueError,
        "x must have shape (batch, length, 16), got (1, 4, 8)",
    ),
    "Sinusoidal layout": Refused(
        lambda: Sinusoidal(16, layout="foo"),
        ValueError,
        "layout must be one of interleaved, half; got 'foo'",
    ),
    "Sinusoidal layout None": Refused(
        lambda: Sinusoidal(16, layout=None),
        ValueError,
        "layout must be one of interleaved, half; got None",
    ),
    "Sinusoidal layout list": Refused(
        lambda: Sinusoidal(16, layout=["half"]),
        ValueError,
        "layout must be one of interleaved, half; got ['half']",
    ),
    "Sinusoidal gain nan": Refused(
        lambda: Sinusoidal(16, gain=NAN),
        ValueError,
        "gain must be a finite number greater than 0, got nan",
    ),
    "Learned std nan": Refused(
        lambda: Learned(8, 16, std=NAN),
        ValueError,
        "std must be a finite number greater than 0, got nan",
    ),
    "Learned float pos": Refused(
        lambda: Learned(8, 16).embed(x(), torch.tensor([0.0, 1, 2, 3])),
        TypeError,
        "positions must be integers, got torch.float32",
    ),
    "grid=4": Refused(
        lambda: interpolate_grid(torch.randn(4, 8), 4, (2, 3)),
        TypeError,
        "grid must be two ints, (rows, columns), got 4",
    ),
    "grid 3-tuple": Refused(
        lambda: interpolate_grid(torch.randn(8, 8), (2, 2, 2), (2, 3)),
        TypeError,
        "grid must be two ints, (rows, columns), got (2, 2, 2)",
    ),
    "new_grid 4": Refused(
        lambda: interpolate_grid(torch.randn(4, 8), (2, 2), 4),
        TypeError,
        "new_grid must be two ints, (rows, columns), got 4",
    ),
    "new_grid str": Refused(
        lambda: interpolate_grid(torch.randn(4, 8), (2, 2), "ab"),
        TypeError,
        "new_grid must be two ints, (rows, columns), got 'ab'",
    ),
    "t5 float": Refused(
        lambda: t5_bucket(torch.tensor([1.5])),
        TypeError,
        "relative must be integers, got torch.float32",
    ),
    "alibi nan": Refused(
        lambda: alibi(torch.tensor([NAN]), alibi_slopes(2)),
        ValueError,
        "relative must be finite, got nan",
    ),
    "alibi slopes list": Refused(
        lambda: alibi(P(3), [0.5, 0.25]), TypeError, "slopes must be a torch.Tensor, got list"
    ),
    "alibi slopes 2d": Refused(
        lambda: alibi(P(3), torch.ones(2, 2)), ValueError, "slopes must have shape (H,), got (2, 2)"
    ),
    "ALiBi(bool)": Refused(lambda: ALiBi(True), TypeError, "n_heads must be an int, got bool"),
    "kerple_power numpy": Refused(
        lambda: kerple_power(np.arange(3), np.ones(2), np.ones(2)),
        TypeError,
        "r1 must be a torch.Tensor, got ndarray",
    ),
    "kerple r1 int": Refused(
        lambda: kerple_log(P(3), torch.ones(2).long(), torch.ones(2)),
        TypeError,
        "r1 must have a floating-point dtype, got torch.int64",
    ),
    "kerple shapes": Refused(
        lambda: kerple_log(P(3), torch.ones(2), torch.ones(3)),
        ValueError,
        "r2 must have shape (H,), and r2 that of r1, got (3,)",
    ),
    "kerple nan": Refused(
        lambda: kerple_log(torch.tensor([NAN]), torch.ones(2), torch.ones(2)),
        ValueError,
        "relative must be finite, got nan",
    ),
    "Fire c nan": Refused(
        lambda: Fire(2, c=NAN), ValueError, "c must be a finite number greater than 0, got nan"
    ),
    "Fire threshold str": Refused(
        lambda: Fire(2, threshold="a"), TypeError, "threshold must be a number, got str"
    ),
    "RoPE rates list": Refused(
        lambda: RoPE(8, rates=[1, 2, 3, 4]), TypeError, "rates must be a torch.Tensor, got list"
    ),
    "RoPE rates nan": Refused(
        lambda: RoPE(8, rates=torch.tensor([1.0, NAN, 1, 1])),
        ValueError,
        "rates must be finite, got",
    ),
    "RoPE rates int": Refused(
        lambda: RoPE(8, rates=torch.tensor([1, 2, 3, 4])),
        TypeError,
        "rates must have a floating-point dtype, got torch.int64",
    ),
    "RoPE rotate nan": Refused(
        lambda: RoPE(8).rotate(q(), q(), torch.tensor([0, NAN, 1, 2]), P(4)),
        ValueError,
        "q_pos must be finite, got nan",
    ),
    "RoPE rotate int q": Refused(
        lambda: RoPE(8).rotate(torch.ones(1, 2, 4, 8).long(), q(), P(4), P(4)),
        TypeError,
        "q must have a floating-point dtype, got torch.int64",
    ),
    "RoPE rotate other batch": Refused(
        lambda: RoPE(8).rotate(q(b=3), q(b=3), torch.zeros(2, 4).long(), P(4)),
        ValueError,
        "q_pos must have shape (4,) or (3, 4), got (2, 4)",
    ),
    "rope_angles nan": Refused(
        lambda: rope_angles(torch.tensor([NAN]), frequencies(8)),
        ValueError,
        "positions must be finite, got nan",
    ),
    "axial nan": Refused(
        lambda: axial_angles([NAN], [1], frequencies(8)), ValueError, "rows must be finite, got nan"
    ),
    "apply_rope angles list": Refused(
        lambda: apply_rope(x(4, 8), [1.0]), TypeError, "angles must be a torch.Tensor, got list"
    ),
    "AxialRoPE columns float": Refused(
        lambda: AxialRoPE(8, 2.5), TypeError, "columns must be an int, got float"
    ),
    "ntk factor nan": Refused(
        lambda: ntk_aware(frequencies(8), NAN),
        ValueError,
        "factor must be a finite number greater than 0, got nan",
    ),
    "DynamicNTK factor str": Refused(
        lambda: DynamicNTK(8, "a", 10), TypeError, "factor must be a number, got str"
    ),
    "yarn_gain weight nan": Refused(
        lambda: yarn_gain(4, NAN),
        ValueError,
        "weight must be a finite number of at least 0, got nan",
    ),
    "yarn_gain weight str": Refused(
        lambda: yarn_gain(4, "a"), TypeError, "weight must be a number, got str"
    ),
    "yarn_gain weight negative": Refused(
        lambda: yarn_gain(4, -0.1),
        ValueError,
        "weight must be a finite number of at least 0, got -0.1",
    ),
    "yarn rates short": Refused(
        lambda: yarn(torch.tensor([1.0]), 4, 100),
        ValueError,
        "rates must be at least two descending positive frequencies, got",
    ),
    "yarn slow>fast": Refused(
        lambda: yarn(frequencies(8), 4, 100, slow=5, fast=1),
        ValueError,
        "fast must be a finite number of at least 5, got 1",
    ),
    "by_parts 2d rates": Refused(
        lambda: by_parts(torch.ones(2, 2), 4, 100, 1, 4),
        ValueError,
        "rates must have shape (n >= 1,), got (2, 2)",
    ),
    "pi nan rates": Refused(
        lambda: position_interpolation(torch.tensor([NAN]), 4),
        ValueError,
        "rates must be finite, got nan",
    ),
    "longrope factors nan": Refused(
        lambda: longrope(frequencies(8), torch.tensor([1, NAN, 1, 1.0])),
        ValueError,
        "factors must be a finite number greater than 0, got nan",
    ),
    "longrope factors list": Refused(
        lambda: longrope(frequencies(8), [1.0, 1, 1, 1]),
        TypeError,
        "factors must be a torch.Tensor, got list",
    ),
    "longrope factors empty": Refused(
        lambda: longrope(torch.empty(0), torch.empty(0)),
        ValueError,
        "rates must have shape (n >= 1,), got (0,)",
    ),
    "LongRoPE factors int": Refused(
        lambda: LongRoPE(8, [1, 1, 1, 1], torch.ones(4), 6, 4.0),
        TypeError,
        "factors must be a torch.Tensor, got list",
    ),
    "LongRoPE trained_length float": Refused(
        lambda: LongRoPE(8, torch.ones(4), torch.ones(4), 6.5, 4.0),
        TypeError,
        "trained_length must be an int, got float",
    ),
    "LongRoPE rates Parameter": Refused(
        lambda: LongRoPE(
            8, torch.ones(4), torch.ones(4), 6, 4.0, rates=nn.Parameter(torch.ones(4))
        ),
        TypeError,
        "rates must be a tensor, got a Parameter: two sets are made of them",
    ),
    "Shaw std nan": Refused(
        lambda: Shaw(8, 2, std=NAN),
        ValueError,
        "std must be a finite number greater than 0, got nan",
    ),
    "Shaw std a": Refused(lambda: Shaw(8, 2, std="a"), TypeError, "std must be a number, got str"),
    "shaw_logits table width": Refused(
        lambda: shaw_logits(q(), torch.randn(5, 4), P(4), P(4)),
        ValueError,
        "table must have shape (2 * clip + 1, 8), an odd number of rows as wide as a "
        "head, got (5, 4)",
    ),
    "shaw_logits q 3d": Refused(
        lambda: shaw_logits(x(4, 8), torch.randn(5, 8), P(4), P(4)),
        ValueError,
        "q must have shape (B, H, Lq, d), got (4, 8)",
    ),
    "shaw_values 3d": Refused(
        lambda: shaw_values(torch.rand(2, 4, 4), torch.randn(5, 8), P(4), P(4)),
        ValueError,
        "weights must have shape (B, H, Lq, Lk), got (2, 4, 4)",
    ),
    "Shaw width in layer": Refused(
        lambda: layer(Shaw(4, 2))(x()),
        ValueError,
        "table must have shape (2 * clip + 1, 8), an odd number of rows as wide as a "
        "head, got (5, 4)",
    ),
    "Shaw float pos": Refused(
        lambda: layer(Shaw(8, 2))(x(), q_pos=torch.tensor([0.0, 1, 2, 3])),
        TypeError,
        "q_pos must be integers, got torch.float32",
    ),
    "XL base x": Refused(
        lambda: TransformerXL(16, 2, base="x"), TypeError, "base must be a number, got str"
    ),
    "XL std nan": Refused(
        lambda: TransformerXL(16, 2, std=NAN),
        ValueError,
        "std must be a finite number of at least 0, got nan",
    ),
    "XL 4 heads": Refused(
        lambda: layer(TransformerXL(16, 4))(x()),
        ValueError,
        "q must have 4 heads for this encoding, got 2",
    ),
    "XL d_model 32": Refused(
        lambda: layer(TransformerXL(32, 2))(x()),
        ValueError,
        "q must have heads of width 16 for this encoding, got 8",
    ),
    "XL clamp float": Refused(
        lambda: TransformerXL(16, 2, clamp=1.5), TypeError, "clamp must be an int, got float"
    ),
    "DeBERTa std a": Refused(
        lambda: DeBERTa(16, 2, 4, std="a"), TypeError, "std must be a number, got str"
    ),
    "DeBERTa projections single": Refused(
        lambda: DeBERTa(16, 2, 4, projections=nn.Linear(16, 16)),
        TypeError,
        "projections must be two modules (query, key), got Linear(in_features=16, "
        "out_features=16, bias=True)",
    ),
    "DeBERTa projections tensors": Refused(
        lambda: DeBERTa(16, 2, 4, projections=(torch.ones(2), torch.ones(2))),
        TypeError,
        "projections must be two modules (query, key), got (",
    ),
    "DeBERTa projections width": Refused(
        lambda: layer(DeBERTa(16, 2, 4, projections=(nn.Linear(8, 16), nn.Linear(8, 16))))(x()),
        ValueError,
        "projections must map 16 to 16 features, got Linear(in_features=8, "
        "out_features=16, bias=True)",
    ),
    "DeBERTa 4 heads": Refused(
        lambda: layer(DeBERTa(16, 4, 4))(x()),
        ValueError,
        "q must have 4 heads for this encoding, got 2",
    ),
    "DeBERTa width": Refused(
        lambda: layer(DeBERTa(32, 2, 4))(x()),
        ValueError,
        "q must have heads of width 16 for this encoding, got 8",
    ),
    "DeBERTa buckets str": Refused(
        lambda: DeBERTa(16, 2, 4, n_buckets="a"), TypeError, "n_buckets must be an int, got str"
    ),
    "log_bucket float": Refused(
        lambda: log_bucket(torch.tensor([1.5, 2]), 4, 8),
        TypeError,
        "distance must be integers, got torch.float32",
    ),
    "disentangled span 0": Refused(
        lambda: disentangled_row(P(3), 0), ValueError, "span must be at least 1, got 0"
    ),
    "disentangled float": Refused(
        lambda: disentangled_row(torch.tensor([1.5]), 4),
        TypeError,
        "relative must be integers, got torch.float32",
    ),
    "MHA 'rope'": Refused(
        lambda: MultiHeadAttention(16, 2, "rope"),
        TypeError,
        "encoding must be a PositionEncoding, got 'rope'",
    ),
    "MHA RoPE class": Refused(
        lambda: MultiHeadAttention(16, 2, RoPE),
        TypeError,
        "encoding must be a PositionEncoding, got",
    ),
    "MHA causal str": Refused(
        lambda: MultiHeadAttention(16, 2, causal="no"),
        TypeError,
        "causal must be True or False, got 'no'",
    ),
    "MHA q_pos nan": Refused(
        lambda: layer(causal=True)(x(), q_pos=torch.tensor([0, 1, NAN, 3])),
        ValueError,
        "q_pos must be finite, got nan",
    ),
    "MHA mask shape": Refused(
        lambda: layer()(x(), mask=torch.ones(4, 3).bool()),
        ValueError,
        "mask must broadcast to (B, H, Lq, Lk) = (1, 2, 4, 4), got (4, 3)",
    ),
    "MHA mask 5d": Refused(
        lambda: layer()(x(), mask=torch.ones(1, 1, 1, 4, 4).bool()),
        ValueError,
        "mask must broadcast to (B, H, Lq, Lk) = (1, 2, 4, 4), got (1, 1, 1, 4, 4)",
    ),
    "MHA mask list": Refused(
        lambda: layer()(x(), mask=[[True] * 4] * 4),
        TypeError,
        "mask must have dtype torch.bool (True: may look), got list",
    ),
    "MHA mask float": Refused(
        lambda: layer()(x(), mask=torch.ones(4, 4)),
        TypeError,
        "mask must have dtype torch.bool (True: may look), got torch.float32",
    ),
    "MHA mask heads": Refused(
        lambda: layer()(x(), mask=torch.ones(1, 3, 4, 4).bool()),
        ValueError,
        "mask must broadcast to (B, H, Lq, Lk) = (1, 2, 4, 4), got (1, 3, 4, 4)",
    ),
    "MHA context float64": Refused(
        lambda: layer()(x(), context=x().double(), q_pos=P(4), k_pos=P(4)),
        TypeError,
        "context must have the dtype of the weights, torch.float32, got torch.float64",
    ),
    "MHA x float64": Refused(
        lambda: layer()(x().double()),
        TypeError,
        "x must have the dtype of the weights, torch.float32, got torch.float64",
    ),
    "MHA x int": Refused(
        lambda: layer()(x().long()),
        TypeError,
        "x must have a floating-point dtype, got torch.int64",
    ),
    "MHA x list": Refused(
        lambda: layer()([[1.0]]), TypeError, "x must be a torch.Tensor, got list"
    ),
    "MHA x 2d": Refused(
        lambda: layer()(x(4, D)),
        ValueError,
        "x must have shape (batch, length >= 1, 16), got (4, 16)",
    ),
    "MHA cache dict": Refused(
        lambda: layer()(x(), cache={}), TypeError, "cache must be a KVCache, got dict"
    ),
    "MHA cache other batch": Refused(
        lambda: follow(x(2, 1, D)),
        ValueError,
        "keys must have shape (1, 2, 1, 8) to follow the cached ones, got (2, 2, 1, 8)",
    ),
    "MHA cache other batch pos": Refused(
        lambda: follow(x(2, 1, D), q_pos=torch.zeros(2, 1).long()),
        ValueError,
        "keys must have shape (1, 2, 1, 8) to follow the cached ones, got (2, 2, 1, 8)",
    ),
    "MHA cache other dtype": Refused(
        lambda: follow(x(1, 1, D).double()),
        TypeError,
        "keys must have the dtype of the cached ones, torch.float32, got torch.float64",
    ),
    "MHA q_pos bool": Refused(
        lambda: layer()(x(), q_pos=torch.ones(4).bool()),
        TypeError,
        "q_pos must be real numbers, got torch.bool",
    ),
    "MHA q_pos complex": Refused(
        lambda: layer()(x(), q_pos=torch.ones(4) * 1j),
        TypeError,
        "q_pos must be real numbers, got torch.complex64",
    ),
    "MHA q_pos str": Refused(
        lambda: layer()(x(), q_pos="abcd"),
        TypeError,
        "q_pos must be numbers or a tensor of numbers, got 'abcd'",
    ),
    "MHA q_pos None list": Refused(
        lambda: layer()(x(), q_pos=[None] * 4),
        TypeError,
        "q_pos must be numbers or a tensor of numbers, got [None, None, None, None]",
    ),
    "MHA q_pos len": Refused(
        lambda: layer()(x(), q_pos=P(5)),
        ValueError,
        "q_pos must have shape (4,) or (1, 4), got (5,)",
    ),
    "MHA q_pos 3d": Refused(
        lambda: layer()(x(), q_pos=torch.zeros(1, 1, 4)),
        ValueError,
        "q_pos must have shape (4,) or (1, 4), got (1, 1, 4)",
    ),
    "MHA k_pos w/o context wrong len": Refused(
        lambda: layer()(x(), k_pos=P(5)),
        ValueError,
        "k_pos must have shape (4,) or (1, 4), got (5,)",
    ),
    "attend heads": Refused(
        lambda: attend(q(2), q(3), q(3), NoPosition(), P(4), P(4)),
        ValueError,
        "k must have shape (B, H, Lk >= 1, d) with the B and H of q, and v the Lk of k; "
        "got (1, 3, 4, 8) for q of shape (1, 2, 4, 8)",
    ),
    "attend widths": Refused(
        lambda: attend(q(d=8), q(d=4), q(), NoPosition(), P(4), P(4)),
        ValueError,
        "k must have the width of q, 8, got 4",
    ),
    "attend batch": Refused(
        lambda: attend(q(b=2), q(b=3), q(b=3), NoPosition(), P(4), P(4)),
        ValueError,
        "k must have shape (B, H, Lk >= 1, d) with the B and H of q, and v the Lk of k; "
        "got (3, 2, 4, 8) for q of shape (2, 2, 4, 8)",
    ),
    "attend positions len": Refused(
        lambda: attend(q(), q(), q(), NoPosition(), P(3), P(4), causal=True),
        ValueError,
        "q_pos must have shape (4,) or (1, 4), got (3,)",
    ),
    "attend v len": Refused(
        lambda: attend(q(), q(), q(length=5), NoPosition(), P(4), P(4)),
        ValueError,
        "v must have shape (B, H, Lk >= 1, d) with the B and H of q, and v the Lk of k; "
        "got (1, 2, 5, 8) for q of shape (1, 2, 4, 8)",
    ),
    "attend_fused v len": Refused(
        lambda: attend_fused(q(), q(), q(length=5), NoPosition(), P(4), P(4)),
        ValueError,
        "v must have shape (B, H, Lk >= 1, d) with the B and H of q, and v the Lk of k; "
        "got (1, 2, 5, 8) for q of shape (1, 2, 4, 8)",
    ),
    "attend_fused heads": Refused(
        lambda: attend_fused(q(2), q(3), q(3), NoPosition(), P(4), P(4)),
        ValueError,
        "k must have shape (B, H, Lk >= 1, d) with the B and H of q, and v the Lk of k; "
        "got (1, 3, 4, 8) for q of shape (1, 2, 4, 8)",
    ),
    "attend 3d": Refused(
        lambda: attend(x(2, 4, 8), x(2, 4, 8), x(2, 4, 8), NoPosition(), P(4), P(4)),
        ValueError,
        "q must have shape (B, H, Lq, d), got (2, 4, 8)",
    ),
    "attend int q": Refused(
        lambda: attend(q().long(), q().long(), q().long(), NoPosition(), P(4), P(4)),
        TypeError,
        "q must have a floating-point dtype, got torch.int64",
    ),
    "attend dtypes": Refused(
        lambda: attend(q(), q().double(), q(), NoPosition(), P(4), P(4)),
        TypeError,
        "k must have the dtype of q, torch.float32, got torch.float64",
    ),
    "attend class": Refused(
        lambda: attend(q(), q(), q(), NoPosition, P(4), P(4)),
        TypeError,
        "encoding must be a PositionEncoding, got",
    ),
    "attend mask": Refused(
        lambda: attend(q(), q(), q(), NoPosition(), P(4), P(4), mask=torch.ones(4, 3).bool()),
        ValueError,
        "mask must broadcast to (B, H, Lq, Lk) = (1, 2, 4, 4), got (4, 3)",
    ),
    "attend no keys": Refused(
        lambda: attend(q(), q(length=0), q(length=0), NoPosition(), P(4), P(0)),
        ValueError,
        "k must have shape (B, H, Lk >= 1, d) with the B and H of q, and v the Lk of k; "
        "got (1, 2, 0, 8) for q of shape (1, 2, 4, 8)",
    ),
    "attend_fused values": Refused(
        lambda: attend_fused(q(), q(), q(), Shaw(8, 2), P(4), P(4)),
        ValueError,
        "encoding must not act on the values, for which Shaw needs the weights: use `attend`",
    ),
    "attention_logits heads": Refused(
        lambda: attention_logits(q(2), q(3), NoPosition(), P(4), P(4)),
        ValueError,
        "k must have shape (B, H, Lk >= 1, d) with the B and H of q, and v the Lk of k; "
        "got (1, 3, 4, 8) for q of shape (1, 2, 4, 8)",
    ),
    "Transformer token range": Refused(
        lambda: Transformer(10)(torch.tensor([[10]])),
        ValueError,
        "inputs must be tokens from 0 to 9, got 10",
    ),
    "Transformer token neg": Refused(
        lambda: Transformer(10)(torch.tensor([[-1]])),
        ValueError,
        "inputs must be tokens from 0 to 9, got -1",
    ),
    "Transformer float tokens": Refused(
        lambda: Transformer(10)(torch.tensor([[1.0]])),
        TypeError,
        "inputs must be integers, got torch.float32",
    ),
    "Transformer bool tokens": Refused(
        lambda: Transformer(10)(torch.tensor([[True]])),
        TypeError,
        "inputs must be real numbers, got torch.bool",
    ),
    "Transformer list": Refused(
        lambda: Transformer(10)([[1, 2]]), TypeError, "inputs must be a torch.Tensor, got list"
    ),
    "Transformer embed_std -1": Refused(
        lambda: Transformer(10, embed_std=-1),
        ValueError,
        "embed_std must be a finite number greater than 0, got -1",
    ),
    "Transformer embed_std nan": Refused(
        lambda: Transformer(10, embed_std=NAN),
        ValueError,
        "embed_std must be a finite number greater than 0, got nan",
    ),
    "Transformer encoding str": Refused(
        lambda: Transformer(10, encoding="rope"),
        TypeError,
        "encoding must be a PositionEncoding, or several, got 'rope'",
    ),
    "Transformer encoding class": Refused(
        lambda: Transformer(10, encoding=RoPE),
        TypeError,
        "encoding must be a PositionEncoding, or several, got",
    ),
    "Transformer encodings classes": Refused(
        lambda: Transformer(10, encoding=[RoPE, RoPE]),
        TypeError,
        "encoding must be a PositionEncoding, got",
    ),
    "Transformer features int": Refused(
        lambda: Transformer(10, features=True)(torch.ones(1, 2, 10).long()),
        TypeError,
        "inputs must have a floating-point dtype, got torch.int64",
    ),
    "Transformer features width": Refused(
        lambda: Transformer(10, features=True)(torch.ones(1, 2, 9)),
        ValueError,
        "inputs must have shape (batch, length >= 1, 10), got (1, 2, 9)",
    ),
    "Transformer caches one": Refused(
        lambda: Transformer(10)(torch.tensor([[1]]), caches=KVCache()),
        ValueError,
        "caches must be one per layer (2), got 1",
    ),
    "Transformer caches dicts": Refused(
        lambda: Transformer(10)(torch.tensor([[1]]), caches=[{}, {}]),
        TypeError,
        "caches must be KVCaches, one per layer, got [{}, {}]",
    ),
    "Transformer pool": Refused(
        lambda: Transformer(10, pool="max"),
        ValueError,
        "pool must be one of mean, first; got 'max'",
    ),
    "Transformer pool int": Refused(
        lambda: Transformer(10, pool=3), ValueError, "pool must be one of mean, first; got 3"
    ),
    "use_encoding class": Refused(
        lambda: Transformer(10).use_encoding(RoPE),
        TypeError,
        "encoding must be a PositionEncoding, got",
    ),
    "Hierarchical unsorted": Refused(
        lambda: Hierarchical(16, 2, torch.tensor([4, 0, 2])).embed(x(), P(4)),
        ValueError,
        "starts must ascend, got [4, 0, 2]",
    ),
    "Hierarchical nan starts": Refused(
        lambda: Hierarchical(16, 2, torch.tensor([0.0, NAN])).embed(x(), P(4)),
        ValueError,
        "starts must be finite, got nan",
    ),
    "Hierarchical starts from 1": Refused(
        lambda: Hierarchical(16, 2, torch.tensor([1, 3])).embed(x(), P(4)),
        ValueError,
        "positions must be at least 0 for a table, got -1",
    ),
    "Hierarchical starts empty": Refused(
        lambda: Hierarchical(16, 2, torch.tensor([]).long()).embed(x(), P(4)),
        ValueError,
        "starts must have shape (P >= 1,) or (B, P), got (0,)",
    ),
    "Hierarchical starts 3d": Refused(
        lambda: Hierarchical(16, 2, torch.zeros(1, 1, 1).long()).embed(x(), P(4)),
        ValueError,
        "starts must have shape (P >= 1,) or (B, P), got (1, 1, 1)",
    ),
    "Hierarchical starts batch": Refused(
        lambda: Hierarchical(16, 2, torch.zeros(3, 1).long()).embed(x(2, 4, D), P(4)),
        ValueError,
        "starts must have a row per text, 2, got 3",
    ),
    "HierarchicalLearned alpha str": Refused(
        lambda: HierarchicalLearned(4, 16, alpha="a"), TypeError, "alpha must be a number, got str"
    ),
    "HierarchicalLearned fraction": Refused(
        lambda: HierarchicalLearned(4, 16).embed(x(), torch.tensor([0, 0.5, 1, 2])),
        TypeError,
        "positions must be integers, got torch.float32",
    ),
    "split_rows 1d": Refused(
        lambda: split_rows(torch.ones(4), P(3)),
        ValueError,
        "table must have shape (n, D), got (4,)",
    ),
    "distance_codes clamp": Refused(
        lambda: distance_codes(P(3), 8, clamp="a"), TypeError, "clamp must be an int, got str"
    ),
    "run_segments x 2d": Refused(
        lambda: run_segments([layer()], x(4, D), 2, 2),
        ValueError,
        "x must have shape (B, L, D), got (4, 16)",
    ),
    "run_segments layers": Refused(
        lambda: run_segments(layer(), x(), 2, 2),
        TypeError,
        "layers must be a sequence of layers, got MultiHeadAttention",
    ),
    "XPos scale_base nan": Refused(
        lambda: XPos(8, scale_base=NAN),
        ValueError,
        "scale_base must be a finite number greater than 0, got nan",
    ),
    "XPos gamma str": Refused(
        lambda: XPos(8, gamma="a"), TypeError, "gamma must be a number, got str"
    ),
    "Compose class": Refused(
        lambda: Compose(RoPE), TypeError, "encodings must be PositionEncoding, got type"
    ),
    "Compose list": Refused(
        lambda: Compose([RoPE(8)]), TypeError, "encodings must be PositionEncoding, got list"
    ),
    "WindowBias float": Refused(
        lambda: WindowBias(2, 1.5), TypeError, "window must be an int, got float"
    ),
    "WindowBias frac pos": Refused(
        lambda: layer(WindowBias(2, 2))(x(), q_pos=torch.tensor([0, 0.5, 1, 2])),
        TypeError,
        "relative must be integers, got torch.float32",
    ),
    "T5Bias heads": Refused(
        lambda: layer(T5Bias(3))(x()), ValueError, "q must have 3 heads for this encoding, got 2"
    ),
    "Fire heads": Refused(
        lambda: layer(Fire(3))(x()), ValueError, "q must have 3 heads for this encoding, got 2"
    ),
    "Run float": Refused(
        lambda: layer()(x(), q_pos=Run(0.5, 4)), TypeError, "start must be an int, got float"
    ),
    "Run negative length": Refused(
        lambda: Run(0, -1), ValueError, "length must be at least 0, got -1"
    ),
    "Run str": Refused(lambda: Run("a", 4), TypeError, "start must be an int, got str"),
    "bool d_model": Refused(
        lambda: MultiHeadAttention(True, 1), TypeError, "d_model must be an int, got bool"
    ),
    "fire_ratio": Refused(
        lambda: fire_ratio(torch.tensor([NAN]), P(2), torch.tensor(0.1), torch.tensor(8.0)),
        ValueError,
        "positions must be finite, got nan",
    ),
    "xl bias heads": Refused(
        lambda: transformer_xl_bias(
            q(2), q(2), torch.ones(3, 8), torch.ones(3, 8), torch.ones(3, 7, 8), P(16).view(4, 4)
        ),
        ValueError,
        "u must have shape (H, d) = (2, 8), got (3, 8)",
    ),
    "interpolate_table int": Refused(
        lambda: interpolate_table(torch.ones(3, 3).long(), 4),
        TypeError,
        "table must have a floating-point dtype, got torch.int64",
    ),
    # Settings of the wrong type or range.
    "Sink std -1": Refused(
        lambda: Sink(2, -1.0), ValueError, "std must be a finite number of at least 0, got -1.0"
    ),
    "Sink std nan": Refused(
        lambda: Sink(2, NAN), ValueError, "std must be a finite number of at least 0, got nan"
    ),
    "Sink std str": Refused(lambda: Sink(2, "a"), TypeError, "std must be a number, got str"),
    "Forgetting bias nan": Refused(
        lambda: Forgetting(16, 2, NAN), ValueError, "bias must be a finite number"
    ),
    "Forgetting bias str": Refused(
        lambda: Forgetting(16, 2, "a"), TypeError, "bias must be a number, got str"
    ),
    "Shaw with_values str": Refused(
        lambda: Shaw(8, 2, with_values="no"),
        TypeError,
        "with_values must be True or False, got 'no'",
    ),
    "DeBERTa c2p 2": Refused(
        lambda: DeBERTa(16, 2, 8, c2p=2), TypeError, "c2p must be True or False, got 2"
    ),
    "DeBERTa p2c str": Refused(
        lambda: DeBERTa(16, 2, 8, p2c="no"), TypeError, "p2c must be True or False, got 'no'"
    ),
    "t5_bucket bidirectional str": Refused(
        lambda: t5_bucket(P(4), bidirectional="no"),
        TypeError,
        "bidirectional must be True or False, got 'no'",
    ),
    "alibi symmetric str": Refused(
        lambda: alibi(P(4), torch.ones(2), symmetric="no"),
        TypeError,
        "symmetric must be True or False, got 'no'",
    ),
    "attend causal str": Refused(
        lambda: attend(q(), q(), q(), NoPosition(), P(4), P(4), causal="no"),
        TypeError,
        "causal must be True or False, got 'no'",
    ),
    "attend_fused rotated str": Refused(
        lambda: attend_fused(q(), q(), q(), NoPosition(), P(4), P(4), rotated="no"),
        TypeError,
        "rotated must be True or False, got 'no'",
    ),
    "CoPE std False": Refused(
        lambda: CoPE(8, 4, std=False), TypeError, "std must be a number, got bool"
    ),
    "CoPE std array": Refused(
        lambda: CoPE(8, 4, std=np.zeros(2)), TypeError, "std must be a number, got ndarray"
    ),
    "RoPE layout array": Refused(
        lambda: RoPE(8, layout=np.array(["half", "half"])),
        ValueError,
        "layout must be one of interleaved, half; got array",
    ),
    "RoPE base 10**400": Refused(
        lambda: RoPE(8, 10**400),
        ValueError,
        "base must be a finite number greater than 1, got 1000",
    ),
    "query_factor strength nan": Refused(
        lambda: query_factor(P(4), NAN, 8),
        ValueError,
        "strength must be a finite number of at least 0, got nan",
    ),
    "query_factor ahead str": Refused(
        lambda: query_factor(P(4), 0.1, 8, "a"), TypeError, "ahead must be a number, got str"
    ),
    "Hierarchical max_paragraphs 0": Refused(
        lambda: ParagraphVectors(0, 16, P(2)),
        ValueError,
        "max_paragraphs must be at least 1, got 0",
    ),
    "Hierarchical starts ()": Refused(
        lambda: Hierarchical(16, 2, torch.tensor(3)),
        ValueError,
        "starts must have shape (P >= 1,) or (B, P), got ()",
    ),
    "LongRoPE short_factors": Refused(
        lambda: LongRoPE(8, torch.zeros(4), torch.ones(4), 6, 4.0),
        ValueError,
        "short_factors must be a finite number greater than 0, got 0.0",
    ),
    "Sinusoidal odd": Refused(lambda: Sinusoidal(7), ValueError, "d_model must be a multiple of 2"),
    # An encoding that was made for another layer.
    "CoPE width": Refused(lambda: layer(CoPE(4, 8))(x()), ValueError, "q must have width 4, got 8"),
    "Forgetting width": Refused(
        lambda: layer(Forgetting(32, 2))(x()),
        ValueError,
        "x must have shape (batch, length >= 1, 32), got (1, 4, 16)",
    ),
    "Forgetting heads": Refused(
        lambda: layer(Forgetting(16, 4))(x()),
        ValueError,
        "q must have 4 heads, as Forgetting reads, got 2",
    ),
    "Forgetting one head": Refused(
        lambda: layer(Forgetting(16, 1))(x()),
        ValueError,
        "q must have 1 heads, as Forgetting reads, got 2",
    ),
    "Forgetting dtype": Refused(
        lambda: layer(Forgetting(16, 2).double())(x()),
        TypeError,
        "x must have the dtype of the weights, torch.float64, got torch.float32",
    ),
    "Trailing width": Refused(
        lambda: layer(Trailing(RoPE(12), 12))(x()),
        ValueError,
        "q must have heads of width >= 12, got 8",
    ),
    "Trailing scale": Refused(
        lambda: Trailing(PoPE(2, 4), 4),
        ValueError,
        "encoding must have no scale of its own, got 0.5",
    ),
    "RotaryValues axial": Refused(
        lambda: RotaryValues(AxialRoPE(8, 4)), TypeError, "rope must be a plain RoPE, got AxialRoPE"
    ),
    "RotaryValues dynamic": Refused(
        lambda: RotaryValues(DynamicNTK(8, 2.0, 8)),
        TypeError,
        "rope must be a plain RoPE, got DynamicNTK",
    ),
    "RotaryValues xpos": Refused(
        lambda: RotaryValues(XPos(8)), TypeError, "rope must be a plain RoPE, got XPos"
    ),
    "Compose a part inside another": Refused(
        lambda: (lambda a: Compose(a, Compose(a, RoPE(8))))(ALiBi(2)),
        ValueError,
        "encodings must be at least one, each once",
    ),
    # Tensors that do not fit each other.
    "keys on another device": Refused(
        lambda: attend(q(), q().to("meta"), q(), NoPosition(), P(4), P(4)),
        ValueError,
        "k must be on the device of q, cpu, got meta",
    ),
    "x on another device": Refused(
        lambda: layer()(x().to("meta")),
        ValueError,
        "x must be on the device of the weights, cpu, got meta",
    ),
    "transformer_xl_bias rows": Refused(
        lambda: transformer_xl_bias(
            q(), q(), torch.zeros(2, 8), torch.zeros(2, 8), torch.zeros(2, 9, 4), P(16).view(4, 4)
        ),
        ValueError,
        "rows must have shape (2, N, 8), got (2, 9, 4)",
    ),
    "SegmentMemory batch": Refused(
        lambda: (lambda m: [m.extend(x(b, 4, D)) for b in (2, 1)])(SegmentMemory(4)),
        ValueError,
        "x must have shape (B, L, D), with the B and D of the memory, (2, 16); got (1, 4, 16)",
    ),
    "SegmentMemory 2-D": Refused(
        lambda: SegmentMemory(4).extend(x(4, D)),
        ValueError,
        "x must have shape (B, L, D), with the B and D of the memory, any; got (4, 16)",
    ),
    "golden_directions 2-D": Refused(
        lambda: golden_directions(torch.ones(2, 2)),
        ValueError,
        "rates must have shape (n,), got (2, 2)",
    ),
    "golden_directions nan": Refused(
        lambda: golden_directions(torch.tensor([NAN])), ValueError, "rates must be finite, got nan"
    ),
    "text_image_positions int": Refused(
        lambda: text_image_positions(3), TypeError, "parts must be a list or a tuple, got 3"
    ),
    "axis_of_pair int": Refused(
        lambda: axis_of_pair(5), TypeError, "sections must be a list or a tuple, got 5"
    ),
    "width_directions int": Refused(
        lambda: width_directions(16), TypeError, "widths must be a list or a tuple, got 16"
    ),
    "fire_ratio floats": Refused(
        lambda: fire_ratio(P(3), P(3), 0.1, 8.0), TypeError, "c must be a torch.Tensor, got float"
    ),
    "forgetting_bias -1": Refused(
        lambda: forgetting_bias(torch.zeros(1, 1, 3), -1),
        ValueError,
        "n_queries must be at least 1 and at most the number of keys, 3, got -1",
    ),
    "forgetting_bias 1.5": Refused(
        lambda: forgetting_bias(torch.zeros(1, 1, 3), 1.5),
        TypeError,
        "n_queries must be an int, got float",
    ),
    "forgetting_bias ()": Refused(
        lambda: forgetting_bias(torch.zeros(()), 1),
        ValueError,
        "log_gates must have shape (..., Lk), got ()",
    ),
    "gated_counts past": Refused(
        lambda: gated_counts(torch.zeros(3, 3), torch.ones(3, 3)),
        TypeError,
        "past must be a bool tensor, got torch.float32",
    ),
    "apply_pope length": Refused(
        lambda: apply_pope(x(4, 8), x(3, 8)),
        ValueError,
        "angles must have the last two axes of x and broadcast to it, got (3, 8)",
    ),
    "apply_pope more axes": Refused(
        lambda: apply_pope(x(4, 8), x(5, 4, 8)),
        ValueError,
        "angles must have the last two axes of x and broadcast to it, got (5, 4, 8)",
    ),
    "dynamic_ntk lengths": Refused(
        lambda: dynamic_ntk(frequencies(8), 2.0, 8, torch.tensor([12, 13])),
        ValueError,
        "length must be a number, or a tensor (), got (2,)",
    ),
    "cache lists": Refused(
        lambda: KVCache().append([1], [1], P(1)), TypeError, "k must be a torch.Tensor, got list"
    ),
    "cache positions": Refused(
        lambda: KVCache().append(q(), q(), P(3)),
        ValueError,
        "positions must have shape (4,) or (1, 4), got (3,)",
    ),
}

ACCEPTED: dict[str, Accepted] = {
    "Learned uint8": Accepted(
        lambda: Learned(8, 16).embed(x(), P(4).to(torch.uint8)), "small integers are integers"
    ),
    "Learned int16": Accepted(
        lambda: Learned(8, 16).embed(x(), P(4).to(torch.int16)), "small integers are integers"
    ),
    "t5 int64 min": Accepted(
        lambda: t5_bucket(torch.tensor([-(2**63)])),
        "its absolute value does not fit into int64; it is farther than every bucket",
    ),
    "t5 n_buckets np.int64": Accepted(
        lambda: t5_bucket(P(3), np.int64(32)), "an integer of numpy is one"
    ),
    "alibi slopes nan": Accepted(
        lambda: alibi(P(3), torch.tensor([NAN, 1])),
        "numbers that may be trained are not read: a device would be waited for",
    ),
    "kerple r1 neg": Accepted(
        lambda: kerple_log(P(3), -torch.ones(2), torch.ones(2)),
        "numbers that may be trained are not read",
    ),
    "kerple r2 neg": Accepted(
        lambda: kerple_log(P(3), torch.ones(2), -torch.ones(2)),
        "numbers that may be trained are not read",
    ),
    "kerple_power r2 3": Accepted(
        lambda: kerple_power(P(3), torch.ones(2), 3 * torch.ones(2)),
        "numbers that may be trained are not read",
    ),
    "Fire negative q_pos": Accepted(
        lambda: layer(Fire(2))(x(), q_pos=P(4) - 2),
        "before the start lies padding, which is masked; measured as at the threshold",
    ),
    "RoPE rotate list": Accepted(
        lambda: RoPE(8).rotate(q(), q(), [0, 1, 2, 3], [0, 1, 2, 3]), "positions may be a list"
    ),
    "rope_angles rates nan": Accepted(
        lambda: rope_angles(P(3), torch.tensor([NAN])),
        "rates may be trained, and are not read in every call; `RoPE` refuses them",
    ),
    "ntk not geometric": Accepted(
        lambda: ntk_aware(torch.tensor([1.0, 0.5, 0.4, 0.01]), 4),
        "the formula takes any descending frequencies, such as those of `by_parts`",
    ),
    "dynamic_ntk factor .1": Accepted(
        lambda: dynamic_ntk(frequencies(8), 0.1, 10, 5),
        "up to the trained length every factor changes nothing",
    ),
    "dynamic_ntk factor .1 long": Accepted(
        lambda: dynamic_ntk(frequencies(8), 0.1, 10, 11),
        "a small factor stretches slowly, by 1.01 here",
    ),
    "DynamicNTK factor .1": Accepted(
        lambda: DynamicNTK(8, 0.1, 10), "a small factor stretches slowly"
    ),
    "shaw_values width": Accepted(
        lambda: shaw_values(torch.rand(1, 2, 4, 4), torch.randn(5, 8), P(4), P(4)),
        "weights do not know the width of a head; `Shaw` compares it with the queries'",
    ),
    "log_bucket list": Accepted(lambda: log_bucket([1, 2], 4, 8), "distances may be a list"),
    "MHA uint8": Accepted(
        lambda: layer(causal=True)(x(), q_pos=P(4).to(torch.uint8)[None]),
        "small integers are integers, and do not wrap around",
    ),
    "MHA mask (B, L), B=4=L": Accepted(
        lambda: layer()(x(4, 4, D), mask=torch.ones(4, 4).bool()),
        "with B = L it is a legal (Lq, Lk)",
    ),
    "MHA cache q_pos repeated": Accepted(
        lambda: follow(x(1, 4, D), q_pos=P(4)),
        "positions need not rise: a second text may start at 0",
    ),
    "Hierarchical float starts": Accepted(
        lambda: Hierarchical(16, 2, torch.tensor([0.0, 2.5])).embed(x(), P(4)),
        "positions may be fractions, and so may the starts",
    ),
    "Hierarchical fractional": Accepted(
        lambda: Hierarchical(16, 2, torch.tensor([0, 2])).embed(x(), torch.tensor([0, 0.5, 1, 2])),
        "the input may be at fractions; the bias for neighbours refuses them in attention",
    ),
    "base np.float32": Accepted(lambda: RoPE(8, np.float32(1e4)), "numbers of numpy are numbers"),
    "head_dim np.int64": Accepted(lambda: RoPE(np.int64(8)), "numbers of numpy are numbers"),
    "Shaw np": Accepted(
        lambda: Shaw(np.int64(8), np.int32(2), std=np.float32(0.1)), "numbers of numpy are numbers"
    ),
    "MHA np": Accepted(
        lambda: MultiHeadAttention(np.int64(16), np.int32(2))(x()), "numbers of numpy are numbers"
    ),
    "T5 np": Accepted(
        lambda: T5Bias(np.int64(2), np.int64(8), np.int64(9)), "numbers of numpy are numbers"
    ),
    "Transformer np": Accepted(
        lambda: Transformer(np.int64(10), d_model=np.int64(16))(torch.tensor([[1]])),
        "numbers of numpy are numbers",
    ),
    "numpy positions": Accepted(
        lambda: layer(RoPE(8))(x(), q_pos=np.arange(4)), "numbers of numpy are numbers"
    ),
    "list positions": Accepted(
        lambda: layer(RoPE(8))(x(), q_pos=[0, 1, 2, 3]), "numbers of numpy are numbers"
    ),
    "numpy reversed": Accepted(
        lambda: layer(RoPE(8))(x(), q_pos=np.arange(4)[::-1]), "numbers of numpy are numbers"
    ),
    "numpy big-endian": Accepted(
        lambda: layer(RoPE(8))(x(), q_pos=np.arange(4, dtype=">i8")), "numbers of numpy are numbers"
    ),
    "numpy read-only": Accepted(
        lambda: layer(RoPE(8))(x(), q_pos=np.broadcast_to(np.arange(4), (1, 4))),
        "numbers of numpy are numbers",
    ),
    "numpy parts": Accepted(
        lambda: text_image_positions([np.int64(3), (np.int64(1), 2, 2)]),
        "numbers of numpy are numbers",
    ),
    "fraction factor": Accepted(
        lambda: position_interpolation(frequencies(8), np.float64(2)),
        "numbers of numpy are numbers",
    ),
}


@pytest.mark.parametrize("name", REFUSED)
def test_bad_input_is_refused_by_name(name: str) -> None:
    call, error, words = REFUSED[name]
    assert " must " in words
    with pytest.raises(error) as raised:
        call()
    assert words in str(raised.value)


@pytest.mark.parametrize("name", ACCEPTED)
def test_what_only_looks_bad_is_accepted(name: str) -> None:
    call, reason = ACCEPTED[name]
    assert reason
    assert call() is not None
