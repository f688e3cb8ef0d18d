"""The methods that the course compares: name, colour, and an instance for a given model."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import NamedTuple

from pe_course.model import EMBED_STD
from pe_lib.alibi import ALiBi
from pe_lib.deberta import DeBERTa
from pe_lib.encoding import NoPosition, PositionEncoding
from pe_lib.fire import FIRE
from pe_lib.kerple import KERPLE
from pe_lib.learned import Learned
from pe_lib.recent.cope import CoPE
from pe_lib.recent.forgetting import Forgetting
from pe_lib.recent.pope import PoPE
from pe_lib.recent.temperature import ScalableSoftmax
from pe_lib.recent.xpos import XPos
from pe_lib.rope import RoPE
from pe_lib.rope_scaling import proportional
from pe_lib.shaw import Shaw
from pe_lib.sinusoidal import Sinusoidal, frequencies
from pe_lib.t5 import T5Bias
from pe_lib.transformer_xl import TransformerXL


@dataclass(frozen=True)
class Sizes:
    """What a method must know of the model that it is made for.

    Attributes:
        d_model: width D.
        n_heads: number of heads H.
        length: positions seen in training. Spans of distances follow it: a table that is far
            smaller than the training length would be an unfair rival.
        causal: a decoder (True) or an encoder (False).
    """

    d_model: int
    n_heads: int
    length: int
    causal: bool = True

    @property
    def head_dim(self) -> int:
        """Return the width d of a head."""
        return self.d_model // self.n_heads


class Method(NamedTuple):
    """A method of the comparison.

    Attributes:
        name: as it stands in figures and tables.
        colour: told apart from the others by lightness as well as hue, so that it survives grey
            print and colour blindness.
        make: returns a fresh instance for a model.
        chapter: the page that derives it; empty for a method without a chapter, which the tables
            and figures of the book then leave out.
        per_layer: whether each layer has an instance with weights of its own.
    """

    name: str
    colour: str
    make: Callable[[Sizes], PositionEncoding]
    chapter: str = ""
    per_layer: bool = False


METHODS: dict[str, Method] = {
    "none": Method("no positions", "#7f7f7f", lambda sizes: NoPosition(), "01_attention"),
    # The gain brings the code to the root mean square of the tokens (its own is 0.71).
    "sinusoidal": Method(
        "sinusoidal",
        "#0072b2",
        lambda sizes: Sinusoidal(sizes.d_model, gain=EMBED_STD * 2**0.5),
        "02_sinusoidal",
    ),
    "learned": Method(
        "learned table",
        "#b07d00",
        lambda sizes: Learned(sizes.length, sizes.d_model, std=EMBED_STD),
        "03_learned",
    ),
    "shaw": Method(
        "Shaw",
        "#009e73",
        lambda sizes: Shaw(sizes.head_dim, max(16, sizes.length // 4)),
        "05_shaw",
        per_layer=True,
    ),
    "transformer_xl": Method(
        "Transformer-XL",
        "#004d40",
        lambda sizes: TransformerXL(sizes.d_model, sizes.n_heads),
        "06_transformer_xl",
        per_layer=True,
    ),
    "t5": Method(
        "T5 bias",
        "#cc79a7",
        lambda sizes: T5Bias(sizes.n_heads, 16, sizes.length // 2, bidirectional=not sizes.causal),
        "07_t5",
    ),
    "deberta": Method(
        "DeBERTa",
        "#882255",
        lambda sizes: DeBERTa(
            sizes.d_model, sizes.n_heads, max(16, sizes.length // 2), std=EMBED_STD
        ),
        "08_deberta",
        per_layer=True,
    ),
    "alibi": Method(
        "ALiBi",
        "#d55e00",
        lambda sizes: ALiBi(sizes.n_heads, symmetric=not sizes.causal),
        "09_alibi",
    ),
    "rope": Method("RoPE", "#332288", lambda sizes: RoPE(sizes.head_dim), "10_rope"),
    "kerple": Method(
        "KERPLE", "#a0522d", lambda sizes: KERPLE(sizes.n_heads), "09_alibi", per_layer=True
    ),
    "fire": Method(
        "FIRE",
        "#b2182b",
        lambda sizes: FIRE(sizes.n_heads, threshold=sizes.length / 4),
        "09_alibi",
        per_layer=True,
    ),
    "xpos": Method("xPos", "#6a51a3", lambda sizes: XPos(sizes.head_dim), "10_rope"),
    # A quarter of the pairs rotates, as in Gemma 4.
    "p_rope": Method(
        "p-RoPE",
        "#00838f",
        lambda sizes: RoPE(
            sizes.head_dim, inv_freq=proportional(frequencies(sizes.head_dim), 0.25)
        ),
    ),
    "pope": Method(
        "PoPE",
        "#ad1457",
        lambda sizes: PoPE(sizes.n_heads, sizes.head_dim),
        per_layer=True,
    ),
    "temperature": Method(
        "scalable softmax",
        "#455a64",
        lambda sizes: ScalableSoftmax(sizes.n_heads, sizes.length),
        per_layer=True,
    ),
    "forgetting": Method(
        "forgetting",
        "#5a7d2a",
        lambda sizes: Forgetting(sizes.d_model, sizes.n_heads),
        per_layer=True,
    ),
    "cope": Method(
        "CoPE",
        "#6d4c41",
        lambda sizes: CoPE(sizes.head_dim, max(16, sizes.length // 2)),
        per_layer=True,
    ),
}
TAUGHT = {key: method for key, method in METHODS.items() if method.chapter}


def encodings(method: Method, sizes: Sizes, n_layers: int) -> list[PositionEncoding]:
    """Return an instance for each layer: its own, or the same one in all."""
    if method.per_layer:
        return [method.make(sizes) for _ in range(n_layers)]
    return [method.make(sizes)] * n_layers
