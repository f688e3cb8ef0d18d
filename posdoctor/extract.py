"""The rotary functions of a model of transformers, as its forward pass really calls them.

Every attention module of transformers takes cosines and sines from a module of tables, and hands
them to a function of its file whose name begins with `apply` and holds `rotary`. One forward pass
with both watched shows which tables, which function, and how often.
"""

from __future__ import annotations

import inspect
import sys
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from typing import Any
from unittest import mock

import torch
from torch import Tensor, nn

from posdoctor.subjects import Rotary

TABLES = "RotaryEmbedding"


@dataclass
class Use:
    """One way in which a model rotates.

    Attributes:
        tables: the module that gives cosines and sines.
        options: what it is given beside vectors and positions, such as the layer's kind.
        axes: how many numbers a position has.
        apply: the function that rotates.
        extra: what that is given beside q, k and the tables.
        head_dim: width of the queries that it gets.
        heads: how many heads queries and keys have.
        calls: how often it was called in one pass.
    """

    tables: nn.Module
    options: dict[str, Any]
    axes: int
    apply: Callable[..., Any] | None = None
    extra: tuple[tuple[Any, ...], dict[str, Any]] = ((), {})
    head_dim: int = 0
    heads: int = 1
    calls: int = 0
    given: list[Tensor] = field(default_factory=list)

    @property
    def kind(self) -> str:
        """The kind of layer that it is for, or nothing."""
        return str(self.options.get("layer_type", ""))

    def subject(self) -> Rotary:
        """Return it as a function (q, k, positions) -> (q, k)."""
        apply, (arguments, options) = self.apply, self.extra
        assert apply is not None

        def function(q: Tensor, k: Tensor, positions: Tensor) -> tuple[Tensor, Tensor]:
            places = positions.movedim(-1, 0) if self.axes > 1 else positions
            cos, sin = self.tables(q, places, **self.options)
            rotated = apply(q, k, cos, sin, *arguments, **options)
            return rotated[0], rotated[1]

        return Rotary(function, head_dim=self.head_dim, heads=self.heads, axes=self.axes)


def uses_of(model: nn.Module, ids: Tensor) -> list[Use]:
    """Return how a model rotates queries and keys of tokens (B, L); each way once."""
    uses: list[Use] = []
    with ExitStack() as stack, torch.no_grad():
        for module in model.modules():
            if TABLES in type(module).__name__:
                handle = module.register_forward_hook(
                    lambda *seen: note_tables(uses, *seen), with_kwargs=True
                )
                stack.callback(handle.remove)
        stack.enter_context(watched(model, uses))
        model(ids, use_cache=False)
    return [use for use in uses if use.calls]


def note_tables(
    uses: list[Use], module: nn.Module, args: tuple[Any, ...], options: dict[str, Any], out: Any
) -> None:
    """Remember a call of tables, and what it gave."""
    if not isinstance(out, tuple) or len(out) != 2:
        return
    named = dict(inspect.signature(module.forward).bind(*args, **options).arguments)
    _, positions, *rest = named
    axes = named[positions].shape[0] if named[positions].ndim == 3 else 1
    given = {name: named[name] for name in rest}
    for use in uses:
        if use.tables is module and use.options == given:
            break
    else:
        use = Use(module, given, axes)
        uses.append(use)
    use.given.append(out[0])


@contextmanager
def watched(model: nn.Module, uses: list[Use]) -> Iterator[None]:
    """Watch the functions that rotate, in the files of a model's modules."""
    files = {type(module).__module__ for module in model.modules()}
    with ExitStack() as stack:
        for file in files:
            module = sys.modules[file]
            for name, function in list(vars(module).items()):
                if name.startswith("apply") and "rotary" in name and inspect.isfunction(function):
                    stub = noting(function, uses)
                    stack.enter_context(mock.patch.object(module, name, stub))
        yield


def noting(function: Callable[..., Any], uses: list[Use]) -> Callable[..., Any]:
    """Return the function, which notes for which use it is called."""

    def noted(*args: Any, **options: Any) -> Any:
        cos = args[2] if len(args) > 3 else None  # (q, k, cos, sin, ...)
        own = next((use for use in uses if any(cos is each for each in use.given)), None)
        if own is not None:
            own.calls += 1
            own.apply, own.extra = function, (args[4:], options)
            own.head_dim, own.heads = args[0].shape[-1], args[0].shape[1]
        return function(*args, **options)

    return noted
