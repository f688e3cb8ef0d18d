"""Questions put to a rotary function: call it with designed vectors and read the tensors back.

A rotary function maps each vector linearly, and each token by itself. An impulse (a vector with
one 1) therefore shows a column of its matrix; which columns have which rows says how components
are paired. Once pairs are known, two calls show every pair's 2 x 2 matrix at every position.
"""

from __future__ import annotations

from collections.abc import Callable
from copy import copy
from dataclasses import dataclass, replace
from typing import NamedTuple

import torch
from torch import Tensor

from pe_lib.rope import split_pairs
from posdoctor.subjects import InputError, Rotary, RotaryFunction

SIDES = ("queries", "keys")
TINY = 1e-7  # a component that should not be there


class Map(NamedTuple):
    """The pairs of 2 x 2 matrices, split into rotation and the rest.

    A real 2 x 2 matrix is z x + y conj(x) for one pair of complex numbers; y = 0 makes it a
    rotation times a gain.
    """

    z: Tensor  # complex128, (..., n)
    y: Tensor  # complex128, (..., n)


@dataclass(frozen=True)
class Pairs:
    """How components mix.

    Attributes:
        inputs: (n, 2) components that mix with one another.
        outputs: (n, 2) where they come back.
        fixed: components that are left alone.
        lost: components of the input that reach no output.
        larger: whether more than two mix.
    """

    inputs: Tensor
    outputs: Tensor
    fixed: tuple[int, ...]
    lost: tuple[int, ...]
    larger: bool


@torch.no_grad()
def call(
    function: RotaryFunction, q: Tensor, k: Tensor, positions: Tensor, *, flat: bool = False
) -> tuple[Tensor, Tensor]:
    """Call a function, and return both results.

    Args:
        function: what is examined.
        q: (B, H, L, d).
        k: (B, H, L, d), or fewer heads.
        positions: (B, L), or (B, L, axes).
        flat: give the function (L,) instead.
    """
    given = positions[0] if flat else positions
    answer = function(q.clone(), k.clone(), given.clone())
    if not isinstance(answer, tuple | list) or len(answer) != 2:
        raise InputError(f"function must return (q, k), got {type(answer).__name__}")
    for name, one, back in zip("qk", (q, k), answer, strict=True):
        if not isinstance(back, Tensor) or back.shape != one.shape:
            got = tuple(back.shape) if isinstance(back, Tensor) else type(back).__name__
            raise InputError(
                f"function must return {name} in its shape {tuple(one.shape)}, got {got}"
            )
    return answer[0], answer[1]


def spread(vector: Tensor, batch: int, heads: int, length: int) -> Tensor:
    """Put one vector (d,) at every token of every head: (B, H, L, d)."""
    return vector.expand(batch, heads, length, len(vector)).contiguous()


class Probe:
    """A rotary function together with the form in which it takes positions.

    Args:
        subject: what is examined.
        dtype: of q and k.
    """

    def __init__(self, subject: Rotary, dtype: torch.dtype = torch.float32) -> None:
        """Find out whether positions may be (B, L)."""
        self.subject, self.dtype = subject, dtype
        self.dim, self.flat, self.refused = subject.head_dim, False, ""
        self.by_first = False  # only the first position of a call is used
        self.generator = torch.Generator().manual_seed(16)
        q = self.random()
        try:
            self.same(q, torch.arange(13).expand(2, 13))
        except Exception as error:
            first = error
            self.flat, self.refused = True, f"{type(error).__name__}: {error}"
            try:
                self.same(q, torch.arange(13).expand(1, 13))
            except Exception as other:
                raise InputError(
                    f"the function raised for q and k of shape (2, {subject.heads}, 13, "
                    f"{self.dim}) with positions of shape (2, 13), {type(first).__name__}: "
                    f"{first}; and with positions (13,), {type(other).__name__}: {other}. "
                    "Set head_dim, heads, axes or kind to what it takes; for (x, positions), "
                    "(q, k, cos, sin), flat queries, arrays or (B, L, H, d) see posdoctor.ways, "
                    "for a model from tokens to logits posdoctor.models.CausalModel"
                ) from other

    def of(self, function: RotaryFunction) -> Probe:
        """Return the same probe for a copy of the function."""
        other = copy(self)
        other.subject = replace(self.subject, function=function)
        return other

    def in_dtype(self, dtype: torch.dtype) -> Probe:
        """Return the same probe for another type of q and k."""
        other = copy(self)
        other.dtype = dtype
        return other

    def random(self) -> Tensor:
        """Return a vector (d,) without special directions."""
        return torch.randn(self.dim, generator=self.generator).to(self.dtype)

    def places(self, positions: Tensor) -> Tensor:
        """Give positions (B, L) their axes: all axes get the same number."""
        axes = self.subject.axes
        if axes == 1 or positions.ndim == 3:
            return positions
        return positions[..., None].expand(*positions.shape, axes).contiguous()

    def same(self, vector: Tensor, positions: Tensor, heads: int | None = None) -> Tensor:
        """Call with one vector everywhere: positions (B, L[, axes]) -> (2, B, H, L, d)."""
        places = self.places(positions)
        heads = self.subject.heads if heads is None else heads
        x = spread(vector, places.shape[0], heads, places.shape[1])
        if self.flat and len(places) > 1:
            rows = [self.same(vector, row[None], heads) for row in places]
            return torch.cat(rows, dim=1)
        return self.call(x, x, places)

    def call(self, q: Tensor, k: Tensor, places: Tensor) -> Tensor:
        """Return both results for q and k (B, H, L, d), as one tensor (2, B, H, L, d)."""
        return torch.stack(call(self.subject.function, q, k, self.places(places), flat=self.flat))

    def matrix(self, positions: Tensor) -> Tensor:
        """Return the whole matrix of every token: (B, L) -> (2, B, H, L, d, d), output first."""
        impulses = torch.eye(self.dim, dtype=self.dtype)
        columns = [self.same(impulse, positions).double() for impulse in impulses]
        return torch.stack(columns, dim=-1)

    def pairs(self, positions: Tensor, pairs: tuple[Pairs, Pairs]) -> tuple[Map, Map]:
        """Return the pairs' matrices for queries and keys, (B, H, L, n) each."""
        found = []
        for side, each in enumerate(pairs):
            columns = []
            for member in (0, 1):
                vector = torch.zeros(self.dim, dtype=self.dtype)
                vector[each.inputs[:, member]] = 1
                out = self.same(vector, positions)[side].double()
                columns.append(out[..., each.outputs])  # (B, H, L, n, 2)
            (a, c), (b, e) = (column.unbind(-1) for column in columns)
            found.append(Map(torch.complex(a + e, c - b) / 2, torch.complex(a - e, b + c) / 2))
        return found[0], found[1]


def groups_of(support: Tensor) -> list[tuple[list[int], list[int]]]:
    """Return the groups of inputs and outputs that a bool matrix (outputs, inputs) connects."""
    left, found = set(range(support.shape[1])), []
    while left:
        inputs: set[int] = set()
        outputs: set[int] = set()
        new = {min(left)}
        while new:
            inputs |= new
            reached = set(support[:, sorted(new)].any(1).nonzero().flatten().tolist()) - outputs
            outputs |= reached
            back = support[sorted(reached)].any(0).nonzero().flatten().tolist() if reached else []
            new = set(back) - inputs
        left -= inputs
        found.append((sorted(inputs), sorted(outputs)))
    return found


def pairs_of(matrix: Tensor) -> Pairs:
    """Return how components mix in matrices (..., d, d)."""
    support = matrix.abs().flatten(0, -3).amax(0) > TINY
    groups = groups_of(support)
    two = [group for group in groups if (len(group[0]), len(group[1])) == (2, 2)]
    rest = [group for group in groups if group not in two]
    return Pairs(
        torch.tensor([group[0] for group in two], dtype=torch.long).reshape(-1, 2),
        torch.tensor([group[1] for group in two], dtype=torch.long).reshape(-1, 2),
        tuple(inputs[0] for inputs, outputs in rest if len(inputs) == len(outputs) == 1),
        tuple(inputs[0] for inputs, outputs in rest if not outputs),
        any(len(inputs) > 1 or len(outputs) > 1 for inputs, outputs in rest),
    )


class Layout(NamedTuple):
    """The layout of pairs: its name, the first component, and how many rotate."""

    name: str
    start: int
    width: int

    def where(self, dim: int) -> str:
        """Return which components rotate, in words."""
        if self.width == dim:
            return f"all {dim} components"
        ends = {0: f"the first {self.width} of {dim} components"}
        ends[dim - self.width] = f"the last {self.width} of {dim} components"
        stop = self.start + self.width
        return ends.get(self.start, f"components {self.start} to {stop - 1} of {dim}")


def layout_of(pairs: Tensor) -> Layout:
    """Return the layout of pairs (n, 2) of components."""
    if len(pairs) == 0:
        return Layout("none", 0, 0)
    apart = (pairs[:, 1] - pairs[:, 0]).unique()
    start = int(pairs.min())
    if len(apart) > 1:
        return Layout("irregular", start, pairs.numel())
    distance = int(apart)
    if distance == 1:
        return Layout("interleaved", start, int(pairs.max()) + 1 - start)
    blocks = -(-(int(pairs.max()) + 1 - start) // (2 * distance))
    name = "half" if blocks == 1 else f"half, in {blocks} blocks of {2 * distance}"
    return Layout(name, start, 2 * distance * blocks)


def turned(x: Tensor, since: Tensor, layout: Layout) -> tuple[Tensor, float]:
    """Return by what each pair was multiplied, (L, n), in all heads together.

    Args:
        x: (H, L, d) after it.
        since: (H, L, d) before it, or (H, 1, d).
        layout: of the pairs.

    Returns:
        the factors; and how far pairs are from being rotated alike in all heads, as a share of
        their size.
    """
    after, before = (pairs_in(each, layout) for each in (x, since))
    turn = (after * before.conj()).sum(0) / (before.abs() ** 2).sum(0).clamp(min=1e-30)
    apart = float((after - turn * before).abs().max()) / max(float(after.abs().max()), 1e-30)
    return turn, apart + float((turn.abs() - 1).abs().max())


def pairs_in(x: Tensor, layout: Layout) -> Tensor:
    """Return the pairs of x (H, L, d) as complex numbers (H, L, n)."""
    part = x[..., layout.start : layout.start + layout.width].double()
    return torch.complex(*split_pairs(part, layout.name))


def unwrapped(angles: Tensor) -> Tensor:
    """Add full turns along the first axis so that no step exceeds half a turn."""
    steps = angles.diff(dim=0)
    turns = (steps / (2 * torch.pi)).round()
    start = torch.zeros_like(angles[:1])
    return angles - 2 * torch.pi * torch.cat([start, turns]).cumsum(0)


class Fit(NamedTuple):
    """Straight lines through the angles of pairs.

    Attributes:
        rates: (n,) radians per position.
        phases: (n,) angle at position 0.
        error: largest distance of an angle from its line.
        gain: (n,) factor at position 0.
        growth: (n,) change of the gain's logarithm per position.
        unsteady: largest distance of that logarithm from its line.
    """

    inv_freq: Tensor
    phases: Tensor
    error: float
    attention_factor: Tensor
    growth: Tensor
    unsteady: float = 0.0


def line(values: Tensor, places: Tensor) -> tuple[Tensor, Tensor]:
    """Fit lines to values (L, n) at places (L,): slopes and values at 0."""
    middle = places.mean()
    centred = (places - middle)[:, None]
    slope = (centred * values).sum(0) / (centred**2).sum()
    return slope, values.mean(0) - slope * middle


def fit_of(z: Tensor, places: Tensor) -> Fit:
    """Fit rates, phases and gains to z (L, n) at consecutive places (L,)."""
    angles = unwrapped(z.angle())
    inv_freq, phases = line(angles, places)
    error = (angles - places[:, None] * inv_freq - phases).abs().max() if len(inv_freq) else 0
    sizes = z.abs().clamp(min=1e-30).log()
    growth, level = line(sizes, places)
    rest = (sizes - level - places[:, None] * growth).abs().max() if len(inv_freq) else 0
    phases = torch.remainder(phases + torch.pi, 2 * torch.pi) - torch.pi
    return Fit(inv_freq, phases, float(error), level.exp(), growth, float(rest))


def refined(fit: Fit, z: Tensor, places: Tensor, noise: float = 2e-5) -> Fit:
    """Sharpen rates by positions that lie farther and farther out, as long as they agree."""
    inv_freq = fit.inv_freq.clone()
    for row, place in zip(z, places.tolist(), strict=True):
        off = torch.remainder(row.angle() - inv_freq * place - fit.phases + torch.pi, 2 * torch.pi)
        off = off - torch.pi
        agrees = off.abs() < noise + 2e-7 * place * inv_freq.abs()  # float32 may have the product
        if not bool(agrees.all()):  # from here on, positions are not what they seem
            break
        inv_freq = inv_freq + off / place
    return fit._replace(inv_freq=inv_freq)


def track(probe: Probe, both: tuple[Pairs, Pairs], places: Tensor, counted: bool) -> list[Tensor]:
    """Return z of queries and keys at some places, (L, n) each."""
    if not len(places):
        return [torch.zeros(0, len(each.inputs), dtype=torch.complex128) for each in both]
    if counted:
        maps = probe.pairs(torch.arange(int(places.max()) + 1)[None], both)
        return [each.z[0, 0, places] for each in maps]
    if probe.subject.runs:
        each_place = [probe.pairs(torch.arange(p, p + 4)[None], both) for p in places.tolist()]
        return [torch.stack([one[side].z[0, 0, 0] for one in each_place]) for side in (0, 1)]
    if probe.by_first:
        ones = [probe.pairs(place.reshape(1, 1), both) for place in places]
        return [torch.stack([one[side].z[0, 0, 0] for one in ones]) for side in (0, 1)]
    return [each.z[0, 0] for each in probe.pairs(places[None], both)]


def grid_width(z: Tensor) -> int:
    """Return the width of the grid whose rows and columns one number p gives; 0 if none does.

    Args:
        z: (L, n) at positions 0, ..., L - 1. Some pairs see p % width, the others p // width.
    """
    near = (z - z[:1]).abs() < 1e-3  # most widths are ruled out by where position 0 is seen again
    likely = (near[1:] | near.cumprod(0).bool()[:-1]).all(1).nonzero().flatten() + 1
    for width in map(int, likely[(likely > 1) & (likely <= len(z) // 2)]):
        column = (z[width:] - z[:-width]).abs().amax(0) < 1e-3
        start = z[: len(z) // width * width].unflatten(0, (-1, width))
        row = (start - start[:, :1]).abs().amax((0, 1)) < 1e-3
        if bool((row | column).all()) and bool((row & ~column).any() & (column & ~row).any()):
            return width
    return 0


def doublings(reach: int) -> Tensor:
    """Return positions that double up to `reach`, each with its neighbour."""
    powers = [2**k for k in range(6, 40) if 2**k + 1 <= reach]
    some = [place for power in powers for place in (power, power + 1)]
    return torch.tensor(some, dtype=torch.long)


def reachable(tried: Callable[[int], object], reach: int, least: int = 64) -> int:
    """Return the largest of reach, reach / 2, ... that is not refused; 0 if all are."""
    while reach >= least:
        try:
            tried(reach)
        except Exception:  # whatever the function under examination raises
            reach //= 2
        else:
            return reach
    return 0
