"""What can be examined: each kind of input has a class, so that nothing is guessed from a shape."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TypeAlias

import torch
from torch import Tensor

from pe_lib.encoding import PositionEncoding
from posdoctor.configs.checks import integer

RotaryFunction: TypeAlias = Callable[[Tensor, Tensor, Tensor], tuple[Tensor, Tensor]]
BiasFunction: TypeAlias = Callable[[Tensor, Tensor], Tensor]
CodeFunction: TypeAlias = Callable[[Tensor], Tensor]


class InputError(ValueError):
    """What was given cannot be examined; the message says why and what can."""


@dataclass(frozen=True)
class Rotary:
    """A function that rotates queries and keys: (q, k, positions) -> (q, k).

    Attributes:
        function: takes q and k, (B, H, L, d), and int64 positions, (B, L) or else (L,); with
            several axes (B, L, axes).
        head_dim: the d that it is called with.
        heads: the H that it is called with.
        axes: how many numbers a position has.
        runs: it can take consecutive positions only, so other ones are not tried.
        reach: the largest position that is tried for all that is fitted.
    """

    function: RotaryFunction
    head_dim: int = 64
    heads: int = 3
    axes: int = 1
    runs: bool = False
    reach: int = 4096

    def __post_init__(self) -> None:
        """Raise unless the function is one and the sizes are positive."""
        require_function(self.function, "(q, k, positions) -> (q, k)")
        for name in ("head_dim", "heads", "axes"):
            integer(name, getattr(self, name))
        integer("reach", self.reach, least=64)


@dataclass(frozen=True)
class Tables:
    """Tables of cosines and sines, a row for each position from 0: (L, d) or (L, d / 2) each."""

    cos: Tensor
    sin: Tensor

    def __post_init__(self) -> None:
        """Raise unless both are matrices of one shape, with at least 16 rows."""
        for name, table in (("cos", self.cos), ("sin", self.sin)):
            if not isinstance(table, Tensor) or not table.is_floating_point():
                raise TypeError(f"{name} must be a floating-point tensor, got {table!r:.80}")
            if table.ndim != 2 or table.shape != self.cos.shape or len(table) < 16:
                raise InputError(
                    f"{name} must have shape (positions >= 16, d) or (positions >= 16, d / 2), the "
                    f"same as cos; got {tuple(table.shape)}"
                )


@dataclass(frozen=True)
class Bias:
    """A function that gives what is added to logits: (q_pos (Lq,), k_pos (Lk,)) -> (H, Lq, Lk)."""

    function: BiasFunction

    def __post_init__(self) -> None:
        """Raise unless the function is one."""
        require_function(self.function, "(q_pos, k_pos) -> (heads, Lq, Lk)")


@dataclass(frozen=True)
class Absolute:
    """A function that gives what is added to the input: positions (L,) or (B, L) -> (..., D)."""

    function: CodeFunction
    reach: int = 2048

    def __post_init__(self) -> None:
        """Raise unless the function is one."""
        require_function(self.function, "positions -> (..., width)")


BUILDERS = {
    "mask": "attention_mask (B, L) -> (B, L)",
    "segments": "numbers of texts (B, L), 0 for padding -> (B, L)",
    "step": "attention_mask (B, L), past -> (B, L - past), the tokens behind the cached ones",
    "grids": "kinds of tokens (L,), 0 for text, and grids (n, 3) in tokens -> (3, L) or (4, L)",
}


@dataclass(frozen=True)
class PositionIds:
    """A function that builds position ids, int64.

    Attributes:
        function: of the form that `takes` names.
        takes: "mask": attention_mask (B, L) of 0 and 1 -> (B, L); "segments": the number of each
            token's text, (B, L), 0 for padding -> (B, L); "step": attention_mask and how many of
            its tokens are cached -> (B, L - past); "grids" (M-RoPE): the kind of each token, (L,)
            of 0 for text and 1 for what is seen, and for each image or video its frames, rows and
            columns of tokens, (n, 3) -> (3, L), or (4, L) whose first row is not looked at.
    """

    function: Callable[..., Tensor]
    takes: str = "mask"

    def __post_init__(self) -> None:
        """Raise unless the function is one, of a known form."""
        if self.takes not in BUILDERS:
            raise InputError(f"takes must be one of {', '.join(BUILDERS)}; got {self.takes!r}")
        require_function(self.function, self.form)

    @property
    def form(self) -> str:
        """What the function takes and returns, in words."""
        return BUILDERS[self.takes]


Subject: TypeAlias = Rotary | Tables | Bias | Absolute | PositionIds


def require_function(function: object, form: str) -> None:
    """Raise unless something can be called."""
    if not callable(function):
        raise InputError(f"function must be {form}, got {function!r}")


def input_width(encoding: PositionEncoding) -> int:
    """Return the width of what an encoding adds to the input."""
    known = getattr(encoding, "d_model", None)
    if isinstance(known, int):
        return known
    tables = [parameter for parameter in encoding.parameters() if parameter.ndim == 2]
    if not tables:
        raise InputError(f"{type(encoding).__name__} does not say how wide its codes are")
    return tables[0].shape[1]


def subjects_of(encoding: PositionEncoding, head_dim: int, heads: int) -> dict[str, Subject]:
    """Return what an encoding of this library does, by the name of the hook."""
    width = getattr(encoding, "head_dim", head_dim)
    many = getattr(encoding, "n_heads", heads)
    found: dict[str, Subject] = {}
    if encoding.uses("embed"):
        d_model = input_width(encoding)

        def code(positions: Tensor) -> Tensor:
            batch = len(positions) if positions.ndim == 2 else 1
            codes = encoding.embed(torch.zeros(batch, positions.shape[-1], d_model), positions)
            return codes if positions.ndim == 2 else codes[0]

        found["embed"] = Absolute(code, getattr(encoding, "max_len", 512))
    if encoding.uses("rotate"):
        found["rotate"] = Rotary(lambda q, k, p: encoding.rotate(q, k, p, p), width, many)
    if encoding.uses("bias"):
        content = torch.randn(width, generator=torch.Generator().manual_seed(0))

        def bias(q_pos: Tensor, k_pos: Tensor) -> Tensor:
            q, k = (content.expand(1, many, len(p), width) for p in (q_pos, k_pos))
            added = encoding.bias(q, k, q_pos, k_pos, width**-0.5)
            if added is None:
                raise InputError(f"{type(encoding).__name__}.bias returned None")
            return added.expand(1, many, len(q_pos), len(k_pos))[0]

        found["bias"] = Bias(bias)
    return found
