"""Position encodings on one interface.

Each method is a file: its equation, the functions that compute it, and a class that calls them.
"""

from pe_lib.alibi import ALiBi
from pe_lib.attention import KVCache, MultiHeadAttention
from pe_lib.axes import AxesRoPE, AxialRoPE
from pe_lib.compose import Compose
from pe_lib.context_extension import DynamicNTK, LongRoPE
from pe_lib.cope import CoPE
from pe_lib.deberta import DeBERTa
from pe_lib.encoding import NoPosition, PositionEncoding
from pe_lib.fire import Fire
from pe_lib.forgetting import Forgetting
from pe_lib.hierarchical import Hierarchical, HierarchicalLearned
from pe_lib.kerple import Kerple
from pe_lib.learned import Learned
from pe_lib.pope import PoPE
from pe_lib.positions import Axes, Run
from pe_lib.relative import RelativeBias, WindowBias
from pe_lib.rope import RoPE
from pe_lib.rotary_values import RotaryValues
from pe_lib.shaw import Shaw
from pe_lib.sinks import Sink
from pe_lib.sinusoidal import Sinusoidal
from pe_lib.t5 import T5Bias
from pe_lib.temperature import QueryTemperature, ScalableSoftmax
from pe_lib.trailing import Trailing
from pe_lib.transformer_xl import TransformerXL
from pe_lib.window import SlidingWindow
from pe_lib.xpos import XPos

__all__ = [
    "ALiBi",
    "Axes",
    "AxesRoPE",
    "AxialRoPE",
    "CoPE",
    "Compose",
    "DeBERTa",
    "DynamicNTK",
    "Fire",
    "Forgetting",
    "Hierarchical",
    "HierarchicalLearned",
    "KVCache",
    "Kerple",
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
    "Run",
    "ScalableSoftmax",
    "Shaw",
    "Sink",
    "Sinusoidal",
    "SlidingWindow",
    "T5Bias",
    "Trailing",
    "TransformerXL",
    "WindowBias",
    "XPos",
]
