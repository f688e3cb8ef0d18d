"""The interface: the places where position can enter attention.

Attention by itself cannot see order (chapter 1). A position encoding repairs that by acting on
the input, on queries and keys, on the logits, or on the values; there is one hook for each. What
models of 2025 and 2026 do besides has hooks of its own, below, which do nothing by default.

Arguments are checked here, and not in a method: the constructor and the hooks of a subclass are
wrapped when the class is made. Behind that door settings are what their annotations say, q has the
heads and the width that it should have, and positions are tensors.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any, TypeAlias

from torch import Tensor, nn

from pe_lib import arguments
from pe_lib.positions import Axes, order_of

Reads: TypeAlias = tuple[Tensor, Tensor]  # of the queries' and of the keys' tokens
Places: TypeAlias = Any  # positions in any form; behind the door they are a tensor


class PositionEncoding(nn.Module):
    """Position information for attention. A method overrides only the hooks that it uses.

    In every hook B is the batch, H the number of heads, L a length, D the model width and d
    the width of a head. Whatever form positions are given in, a hook gets a tensor of shape (L,),
    or (B, L) where they differ between the sequences of a batch (left padding, packed sequences).
    A method that sets `n_heads`, `head_dim` or `d_model` is given nothing else.

    Attributes:
        scale: factor on the query-key product; None means 1/sqrt(d). A class whose `rotate` changes
            the width states it.
        integers: positions are int64, and fractions are refused.
        linear: False if `rotate` is no linear map; in a `Compose` it must then come first.
        fades: True if `rotate` also scales pairs by their position; in a `Compose` it must then
            come last, where no other rotation mixes pairs of different sizes.
        past_only: it tells nothing sensible about keys that come after the query; a layer that
            shows it such keys is refused.
        rotates_once: True if a cache may keep keys as `rotate` leaves them: a key's rotation
            depends on its own position alone, and `bias` and `sink` read neither queries nor keys.
            It is False for a class that writes one of these hooks, `angles` or `rotated`, unless
            that class says so itself.
    """

    scale: float | None = None
    integers: bool = False
    linear: bool = True
    fades: bool = False
    past_only: bool = False
    rotates_once: bool = True
    hooks: tuple[str, ...] = (
        *("embed", "rotate", "bias", "values"),
        *("rotate_axes", "read", "read_bias", "sink", "rotate_values", "rotate_back"),
    )

    def embed(self, x: Tensor, positions: Places) -> Tensor:
        """Add position to the input of the first layer: (B, L, D) -> (B, L, D)."""
        return x

    def rotate(self, q: Tensor, k: Tensor, q_pos: Places, k_pos: Places) -> tuple[Tensor, Tensor]:
        """Rotate queries and keys by their positions: (B, H, L, d) each -> (B, H, L, any width)."""
        return q, k

    def bias(
        self, q: Tensor, k: Tensor, q_pos: Places, k_pos: Places, scale: float
    ) -> Tensor | None:
        """Return what is added to the scaled logits, broadcastable to (B, H, Lq, Lk), or None.

        `q` and `k` come as projected, before `rotate`; a product with one of them must be
        multiplied by `scale`, the factor on the query-key product. Any dtype will do.
        """
        return None

    def values(self, weights: Tensor, q_pos: Places, k_pos: Places) -> Tensor | None:
        """Return what is added to each head's output, (B, H, Lq, Lk) -> (B, H, Lq, d), or None.

        It is added after `rotate_back`.
        """
        return None

    # --- since 2024: several numbers per token, the hidden state, the denominator, and back

    def rotate_axes(
        self, q: Tensor, k: Tensor, q_axes: Places, k_axes: Places
    ) -> tuple[Tensor, Tensor]:
        """Rotate q and k by positions of several numbers, (L, A) or (B, L, A): the same shapes.

        It takes the place of `rotate` where positions are `Axes`.
        """
        return q, k

    def read(self, x: Tensor) -> Tensor | None:
        """Read from the hidden states that attention gets, (B, L, D) -> (B, H, L, n), or None.

        What is read of a token is kept in a cache beside its key.
        """
        return None

    def read_bias(
        self, q_read: Tensor, k_read: Tensor, q_pos: Places, k_pos: Places
    ) -> Tensor | None:
        """Return what is added to the logits, (B, H, Lq, Lk), from what was read, or None."""
        return None

    def sink(self, q: Tensor, q_pos: Places) -> Tensor | None:
        """Return one more logit for each query, broadcastable to (B, H, Lq, 1), or None.

        It takes its share of the softmax and has no value: weights then sum to less than one.
        """
        return None

    def rotate_values(self, v: Tensor, k_pos: Places) -> Tensor:
        """Rotate values by their positions: (B, H, Lk, d) -> the same shape."""
        return v

    def rotate_back(self, output: Tensor, q_pos: Places) -> Tensor:
        """Rotate each head's output by the query's position: (B, H, Lq, d) -> the same shape."""
        return output

    def uses(self, hook: str) -> bool:
        """Return whether this encoding acts through the hook of that name: it overrides it."""
        return getattr(type(self), hook) is not getattr(PositionEncoding, hook)

    def parts(self) -> list[PositionEncoding]:
        """Return the encodings that this one is made of: itself."""
        return [self]

    # --- the door

    def __init_subclass__(cls, **options: Any) -> None:
        """Wrap the constructor and the hooks that the class brings, so that each gets its due."""
        super().__init_subclass__(**options)
        parents = [each for each in cls.__bases__ if issubclass(each, PositionEncoding)]

        def own(name: str) -> bool:  # of the class itself, or mixed in from one that is no encoding
            found = getattr(cls, name, None)
            return all(found is not getattr(each, name, None) for each in parents)

        for name in filter(own, cls.hooks):
            hook = getattr(cls, name)
            first = next((getattr(each, name) for each in parents if hasattr(each, name)), hook)
            setattr(cls, name, checked_hook(name, first, hook))
        if "__init__" in vars(cls):
            setattr(cls, "__init__", arguments.checked()(vars(cls)["__init__"]))  # noqa: B010
        if any(map(own, ROTATE_OR_SCORE)) and "rotates_once" not in vars(cls):
            cls.rotates_once = False  # what a parent says is of the parent's own hooks

    def admit(self, given: dict[str, Any]) -> dict[str, Any]:
        """Return a hook's arguments, positions as tensors; raise unless all fit."""
        who = f"{type(self).__name__}: "
        tensors = [name for name in TENSORS if name in given]
        devices = [arguments.require_floating(who + name, given[name]).device for name in tensors]
        for name in NUMBERS:
            if given.get(name) is not None:
                given[name] = arguments.numbers(
                    who + name, given[name], *devices[:1], integers=self.integers
                )
        arguments.require_shapes(given, SHAPES, who, **arguments.lengths_of(self))
        return given

    def fitted(self, hook: str, bias: Tensor, given: dict[str, Any]) -> Tensor:
        """Return what a hook adds to the scores, in the dtype of queries; raise unless it fits."""
        q, k = (given[each] for each in ADDED[hook])
        wanted = (*q.shape[:3], k.shape[2])
        # With three axes one of the batch would be taken for that of the heads.
        batched = any(given[each].shape[:-1] > (1,) for each in ("q_pos", "k_pos"))
        if not arguments.broadcasts(bias, wanted) or (bias.ndim == 3 and batched):
            raise ValueError(
                f"{type(self).__name__}: {hook} must broadcast to (B, H, Lq, Lk) = {wanted}, and "
                f"have four axes where positions have a batch, got {tuple(bias.shape)}"
            )
        return bias.to(q.dtype)


# What a hook is given, by name. Keys may be shared by several heads of queries until `bias`.
SHAPES = {
    "x": "B L d_model",
    "q": "B n_heads Lq head_dim",
    "k": "B k_heads Lk head_dim",
    "v": "B v_heads Lk v_dim",
    "weights": "B n_heads Lq Lk",
    "output": "B n_heads Lq v_dim",
    "q_read": "B n_heads Lq n",
    "k_read": "B n_heads Lk n",
    "positions": "L | B L | 1 L",
    "q_pos": "Lq | B Lq | 1 Lq",
    "k_pos": "Lk | B Lk | 1 Lk",
    "q_axes": "Lq A | B Lq A | 1 Lq A",
    "k_axes": "Lk A | B Lk A | 1 Lk A",
}
NUMBERS = ("positions", "q_pos", "k_pos", "q_axes", "k_axes", "relative")
TENSORS = [name for name in SHAPES if name not in NUMBERS]
ROTATE_OR_SCORE = ("rotate", "rotate_axes", "rotate_values", "bias", "sink", "angles", "rotated")
# Hooks that return what is added to the scores, and whose heads and lengths it has.
ADDED = {"bias": ("q", "k"), "read_bias": ("q_read", "k_read")}


def checked_hook(name: str, first: Callable[..., Any], hook: Callable[..., Any]) -> Any:
    """Check a hook's arguments, which `first`, the interface's, names; and what a bias returns."""
    names = arguments.parameters_of(first)[1:]

    @functools.wraps(hook)
    def call(self: PositionEncoding, *args: Any, **kwargs: Any) -> Any:
        given = self.admit(arguments.by_name(functools.partial(hook, self), names, args, kwargs))
        found = hook(self, **given)
        return found if name not in ADDED or found is None else self.fitted(name, found, given)

    return call


class NoPosition(PositionEncoding):
    """No position information at all (NoPE)."""


def default_scale(encoding: PositionEncoding, head_dim: int) -> float:
    """Return the factor on the query-key product: the encoding's own, or 1/sqrt(head_dim)."""
    return head_dim**-0.5 if encoding.scale is None else encoding.scale


def rotate_by(
    encoding: PositionEncoding, q: Tensor, k: Tensor, q_pos: Any, k_pos: Any
) -> tuple[Tensor, Tensor]:
    """Return q and k as `rotate` leaves them, or `rotate_axes` where positions are `Axes`.

    Parts that read one number then read the order.
    """
    on_axes = [isinstance(each, Axes) for each in (q_pos, k_pos)]
    if not any(on_axes):
        return encoding.rotate(q, k, q_pos, k_pos)
    if not all(on_axes) or not encoding.uses("rotate_axes"):
        raise ValueError(
            f"{type(encoding).__name__}: q_pos and k_pos must both be Axes, where a part reads "
            "them, or both be one number per token"
        )
    for part in encoding.parts():
        if part.uses("rotate_axes"):
            q, k = part.rotate_axes(q, k, q_pos.numbers, k_pos.numbers)
        else:
            q, k = part.rotate(q, k, order_of(q_pos), order_of(k_pos))
    return q, k


def bias_read(
    encoding: PositionEncoding, q: Tensor, reads: Reads | None, q_pos: Any, k_pos: Any
) -> Tensor | None:
    """Return what `read_bias` makes of what `read` has returned, dtype of q, or None."""
    if not encoding.uses("read_bias"):
        return None
    if reads is None or reads[0].shape[1] != q.shape[1]:
        raise ValueError(
            f"reads must be given, with the heads of q: {type(encoding).__name__} needs what its "
            "`read` returns for the hidden states, as MultiHeadAttention passes it on"
        )
    found = encoding.read_bias(*reads, q_pos, k_pos)
    return None if found is None else found.to(q.dtype)
