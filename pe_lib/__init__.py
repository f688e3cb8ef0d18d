"""Position encodings on one interface.

Each method is a file: its equation, the functions that compute it, and a class that calls them.

To read it in an evening: `encoding` (where position can enter), `definition` (attention in full),
then any method, each by itself. `attention` has the module and its cache, `positions` what a
position may be, `arguments` what is checked. `fast` and `testing` are for later.
"""

from pe_lib.alibi import ALiBi as ALiBi
from pe_lib.attention import KVCache as KVCache
from pe_lib.attention import MultiHeadAttention as MultiHeadAttention
from pe_lib.axes import AxesRoPE as AxesRoPE
from pe_lib.axes import AxialRoPE as AxialRoPE
from pe_lib.compose import Compose as Compose
from pe_lib.context_extension import DynamicNTK as DynamicNTK
from pe_lib.context_extension import LongRoPE as LongRoPE
from pe_lib.cope import CoPE as CoPE
from pe_lib.deberta import DeBERTa as DeBERTa
from pe_lib.encoding import NoPosition as NoPosition
from pe_lib.encoding import PositionEncoding as PositionEncoding
from pe_lib.fire import Fire as Fire
from pe_lib.forgetting import Forgetting as Forgetting
from pe_lib.kerple import Kerple as Kerple
from pe_lib.learned import Learned as Learned
from pe_lib.pope import PoPE as PoPE
from pe_lib.positions import Axes as Axes
from pe_lib.positions import Run as Run
from pe_lib.relative import RelativeBias as RelativeBias
from pe_lib.rope import RoPE as RoPE
from pe_lib.rotary_values import RotaryValues as RotaryValues
from pe_lib.shaw import Shaw as Shaw
from pe_lib.sinks import Sink as Sink
from pe_lib.sinusoidal import Sinusoidal as Sinusoidal
from pe_lib.t5 import T5Bias as T5Bias
from pe_lib.temperature import QueryTemperature as QueryTemperature
from pe_lib.temperature import ScalableSoftmax as ScalableSoftmax
from pe_lib.trailing import Trailing as Trailing
from pe_lib.transformer_xl import TransformerXL as TransformerXL
from pe_lib.window import SlidingWindow as SlidingWindow
from pe_lib.xpos import XPos as XPos
