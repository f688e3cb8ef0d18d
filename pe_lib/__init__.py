"""Position encodings on one interface.

Each method is a file; each file begins with pure functions and ends with a thin module.
"""

from pe_lib.attention import KVCache, MultiHeadAttention, NoPosition, PositionEncoding
from pe_lib.learned import Learned
from pe_lib.sinusoidal import Sinusoidal

__all__ = [
    "KVCache",
    "Learned",
    "MultiHeadAttention",
    "NoPosition",
    "PositionEncoding",
    "Sinusoidal",
]
