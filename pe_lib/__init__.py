"""Position encodings on one interface.

Each method is a file: its equation, the functions that compute it, and a class that calls them.

To read it in an evening: `encoding` (where position can enter), `attention` (the definition, then
the module), `cache`, then any method, each by itself. `recent` has methods of the last years,
`testing` the promises that every method keeps.
"""

from pe_lib.alibi import ALiBi, alibi
from pe_lib.attention import MultiHeadAttention
from pe_lib.cache import KVCache
from pe_lib.compose import Compose
from pe_lib.deberta import DeBERTa
from pe_lib.encoding import NoPosition, PositionEncoding
from pe_lib.fire import FIRE
from pe_lib.kerple import KERPLE
from pe_lib.learned import Learned
from pe_lib.recent.axes import AxesRoPE, AxialRoPE
from pe_lib.recent.cope import CoPE
from pe_lib.recent.forgetting import Forgetting
from pe_lib.recent.mla import DecoupledRotation
from pe_lib.recent.pope import PoPE
from pe_lib.recent.rotary_values import RotaryValues
from pe_lib.recent.sinks import Sink
from pe_lib.recent.temperature import QueryTemperature, ScalableSoftmax
from pe_lib.recent.window import SlidingWindow
from pe_lib.recent.xpos import XPos
from pe_lib.relative import RelativeBias
from pe_lib.rope import RoPE
from pe_lib.rope_scaling import DynamicNTK, LongRoPE
from pe_lib.shaw import Shaw
from pe_lib.sinusoidal import Sinusoidal, sinusoidal
from pe_lib.t5 import T5Bias
from pe_lib.transformer_xl import TransformerXL

__all__ = [
    "FIRE",
    "KERPLE",
    "ALiBi",
    "AxesRoPE",
    "AxialRoPE",
    "CoPE",
    "Compose",
    "DeBERTa",
    "DecoupledRotation",
    "DynamicNTK",
    "Forgetting",
    "KVCache",
    "Learned",
    "LongRoPE",
    "MultiHeadAttention",
    "NoPosition",
    "PoPE",
    "PositionEncoding",
    "QueryTemperature",
    "RelativeBias",
    "RoPE",
    "RotaryValues",
    "ScalableSoftmax",
    "Shaw",
    "Sink",
    "Sinusoidal",
    "SlidingWindow",
    "T5Bias",
    "TransformerXL",
    "XPos",
    "alibi",
    "sinusoidal",
]
