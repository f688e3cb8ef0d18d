"""The four terms of a logit (chapter 4), and which of them a method keeps (chapter 11).

Query and key each bring content and position: content-content, content-position,
position-content and position-position. Nothing here knows how a method works inside. Its terms
are found from outside, by switching the contents of queries or keys off and moving positions.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Collection
from typing import NamedTuple

import torch
from torch import Tensor, nn

from pe_course import checks
from pe_course.registry import METHODS, Sizes
from pe_lib.attention import MultiHeadAttention, attention_logits
from pe_lib.encoding import PositionEncoding
from pe_lib.initial import linear, normal

WIDTH, HEADS, LENGTH, START, SHIFT = 16, 2, 6, 5, 3  # of the probe
TINY = 1e-6  # a change below this share of the largest logit is rounding

# Small, with nothing saturated at the probe's length (FIRE's threshold lies inside the sequence,
# so that both of its regimes are seen).
PROBE = Sizes(WIDTH, HEADS, length=16, causal=False)
Piece = Callable[[Tensor, Tensor], Tensor]  # a part of attention, from q_pos and k_pos
HEADER = (
    "method",
    "content–content",
    "content–position",
    "position–content",
    "position–position",
    "values",
    "scale",
)


class Terms(NamedTuple):
    """Four tensors of one shape whose sum is the logits; the query's part is named first."""

    content_content: Tensor
    content_position: Tensor
    position_content: Tensor
    position_position: Tensor

    def total(self) -> Tensor:
        """Return the sum of the four."""
        return self[0] + self[1] + self[2] + self[3]


NAMES = (*(name.replace("_", "–") for name in Terms._fields), "values")  # what has a switch


def expand(x: Tensor, p: Tensor, w_q: Tensor, w_k: Tensor) -> Terms:
    """Expand `(x_i + p_i) W_Q W_K^T (x_j + p_j)^T`, not scaled.

    Args:
        x: contents, (..., L, D).
        p: position codes, (..., L, D).
        w_q: (D, d).
        w_k: (D, d).

    Returns:
        Four tensors of shape (..., L, L), rows for queries.

    Source: Dai et al. 2019, section 3.3, the terms (a) to (d) of the absolute encoding.
    """
    queries, keys = (x @ w_q, p @ w_q), (x @ w_k, p @ w_k)  # (..., L, d) each
    return Terms(*(q @ k.mT for q in queries for k in keys))


class Switched(nn.Module):
    """One attention head on added codes, with a switch for each term and for the values.

    Args:
        tokens: size of the vocabulary, of inputs and outputs.
        length: number of positions.
        width: of the vectors of tokens and positions, of queries and keys.
        never: names (of NAMES) of what is off at every call, also in training.

    Raises:
        ValueError: if a name is unknown.
    """

    def __init__(
        self, tokens: int, length: int, width: int = 32, never: Collection[str] = ()
    ) -> None:
        """Draw the initial weights."""
        super().__init__()
        self.content = nn.Parameter(normal(tokens, width, std=0.5))
        self.position = nn.Parameter(normal(length, width, std=0.5))
        self.w_q, self.w_k = (
            nn.Parameter(normal(width, width, std=0.5 * width**-0.5)) for _ in range(2)
        )
        self.read = nn.Sequential(linear(width, 2 * width), nn.GELU(), linear(2 * width, tokens))
        self.never = [checks.one_of("never", name, NAMES) for name in never]

    def weights(self, x: Tensor, p: Tensor, off: Collection[str]) -> Tensor:
        """Return the attention weights (B, L, L) of contents (B, L, D) and positions (L, D)."""
        terms = zip(NAMES[:4], expand(x, p, self.w_q, self.w_k), strict=True)
        scores = sum(((name not in off) * term for name, term in terms), x.new_zeros(()))
        return (scores / math.sqrt(self.w_q.shape[1])).softmax(dim=-1)

    def forward(self, tokens: Tensor, off: Collection[str] = ()) -> Tensor:
        """Return outputs (B, L, tokens) for tokens (B, L), without what `off` names."""
        for name in off:
            checks.one_of("off", name, NAMES)
        x, p, off = self.content[tokens], self.position[: tokens.shape[1]], {*off, *self.never}
        values = x if "values" in off else x + p
        out: Tensor = self.read(self.weights(x, p, off) @ values)
        return out


@torch.no_grad()
def split(
    layer: MultiHeadAttention,
    x: Tensor,
    q_pos: Tensor,
    k_pos: Tensor,
    *,
    at_input: bool = True,
) -> Terms:
    """Split a layer's logits, whatever its encoding, by switching contents off.

    With f(a, b) for the logits when the queries' contents are multiplied by a and the keys' by
    b: f(0, 0) needs no content, f(1, 0) - f(0, 0) the query's, f(0, 1) - f(0, 0) the key's, and
    the rest needs both.

    Args:
        layer: its projections and its encoding are used.
        x: contents, (B, L, D), before the encoding adds anything to them.
        q_pos: (L,) or (B, L).
        k_pos: (L,) or (B, L).
        at_input: False leaves out what the encoding adds to the input.

    Returns:
        Four tensors of shape (B, H, L, L).
    """

    def projected(projection: torch.nn.Module, on: int, positions: Tensor) -> Tensor:
        tokens = layer.encoding.embed(x * on, positions) if at_input else x * on
        return layer.split_heads(projection(tokens))  # (B, H, L, d)

    def logits(query_on: int, key_on: int) -> Tensor:
        q = projected(layer.q_proj, query_on, q_pos)
        k = projected(layer.k_proj, key_on, k_pos)
        return attention_logits(q, k, layer.encoding, q_pos, k_pos)

    neither, query, key = logits(0, 0), logits(1, 0), logits(0, 1)
    return Terms(logits(1, 1) - query - key + neither, query - neither, key - neither, neither)


@torch.no_grad()
def in_values(
    layer: MultiHeadAttention,
    weights: Tensor,
    q_pos: Tensor,
    k_pos: Tensor,
    *,
    at_input: bool = True,
) -> Tensor:
    """Return what position adds to the heads' outputs, the weights held fixed.

    Args:
        layer: its projections and its encoding are used.
        weights: (B, H, L, L).
        q_pos: (L,) or (B, L).
        k_pos: (L,) or (B, L).
        at_input: False leaves out what the encoding adds to the input.

    Returns:
        (B, H, L, d).
    """
    nothing = weights.new_zeros(weights.shape[0], weights.shape[-1], layer.d_model)
    tokens = layer.encoding.embed(nothing, k_pos) if at_input else nothing
    output = weights @ layer.split_heads(layer.v_proj(tokens))
    extra = layer.encoding.values(weights, q_pos, k_pos)
    return output if extra is None else output + extra


def reads(piece: Piece, size: float) -> str | None:
    """Say which positions a piece of the attention depends on.

    Args:
        piece: a function of q_pos and k_pos, (L,) each.
        size: what counts as large; differences below TINY times it are rounding.

    Returns:
        None if the piece is zero; else "no position", or what it reads, as a formula between
        dollar signs: `i` (the query's position), `j` (the key's), `i, j` (both) or `j - i`
        (nothing but their difference).
    """
    here = torch.arange(START, START + LENGTH)
    there, base = here + SHIFT, piece(here, here)

    def far(other: Tensor) -> bool:
        return bool((other - base).abs().max() > TINY * size)

    if not far(torch.zeros_like(base)):
        return None
    query, key = far(piece(there, here)), far(piece(here, there))
    if query and key:
        return "$i, j$" if far(piece(there, there)) else "$j - i$"
    return "$i$" if query else "$j$" if key else "no position"


def difference(piece: Piece, other: Piece) -> Piece:
    """Return the piece that is one minus another."""
    return lambda q_pos, k_pos: piece(q_pos, k_pos) - other(q_pos, k_pos)


def scale_name(factor: float, head_dim: int) -> str:
    """Write a factor as 1 or as one over a square root, if it is one."""
    if abs(factor - 1) < TINY:
        return "$1$"
    for number, root in ((1, "d"), (2, "2d"), (3, "3d")):
        if abs(factor * math.sqrt(number * head_dim) - 1) < TINY:
            return rf"$1/\sqrt{{{root}}}$"
    return f"{factor:.3g}"


@torch.no_grad()
def row(method: str, encoding: PositionEncoding | None = None) -> list[str]:
    """Return the row of a method in the table of the four terms, measured.

    "deletes": the piece is zero. "keeps": it comes from codes added to the input. "replaces":
    it comes from elsewhere; what follows is what it reads. "combines": the product of the two
    contents itself reads positions.

    Args:
        method: a key of `pe_course.registry.METHODS`; or any name, if `encoding` is given.
        encoding: a method of one's own for width 16, 2 heads and positions 5 to 13.

    Returns:
        One cell for each name in HEADER.

    Raises:
        ValueError: if there is no such method and no encoding.
    """
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        if encoding is None:
            known = METHODS[checks.one_of("method", method, METHODS)]
            method, encoding = known.name, known.make(PROBE)
        layer = MultiHeadAttention(WIDTH, HEADS, encoding).double()
        x = torch.randn(1, LENGTH, WIDTH, dtype=torch.float64)
        weights = torch.rand(1, HEADS, LENGTH, LENGTH, dtype=torch.float64)
    here = torch.arange(START, START + LENGTH)
    size = float(split(layer, x, here, here).total().abs().max())

    def piece(n: int, at_input: bool) -> Piece:
        if n == 4:
            return lambda q_pos, k_pos: in_values(layer, weights, q_pos, k_pos, at_input=at_input)
        return lambda q_pos, k_pos: split(layer, x, q_pos, k_pos, at_input=at_input)[n]

    product = reads(piece(0, True), size)
    cells = ["keeps" if product == "no position" else f"combines: {product}"]
    for n in (1, 2, 3, 4):
        with_codes, without = piece(n, True), piece(n, False)
        changes = reads(difference(with_codes, without), size)
        cells.append(cell(reads(with_codes, size), reads(without, size), changes))
    q, k = (layer.split_heads(projection(x)) for projection in (layer.q_proj, layer.k_proj))
    plain = (q * k).sum(-1)  # (1, H, L): the product at distance 0, where nothing rotates
    measured = piece(0, True)(here, here).diagonal(dim1=-2, dim2=-1)
    factor = float((plain * measured).sum() / (plain * plain).sum())
    return [method, *cells, scale_name(factor, WIDTH // HEADS)]


def cell(whole: str | None, without_codes: str | None, from_codes: str | None) -> str:
    """Return the words for a piece: what it reads, and whether codes at the input bring it."""
    if whole is None:
        return "deletes"
    if without_codes is None:
        return f"keeps: {whole}"
    if from_codes is None:
        return f"replaces: {whole}"
    return f"keeps: {from_codes}, adds: {without_codes}"
