"""A small tensor in plain Python, which stands in for torch where the page runs an answer.

Numbers lie in one array, as in torch, and views share it; each operation rounds its result to the
precision of its type. Torch's functions of a tensor are the tensor's methods. What is not here says
so by its name. tests/test_practice_page.py holds all this to torch: on every right answer and every
stored mistake of the exercises that open in their page.
"""

from __future__ import annotations

import functools
import itertools
import math
import operator
import struct
import sys
from array import array
from bisect import bisect_left, bisect_right
from collections import namedtuple
from contextlib import nullcontext as no_grad  # noqa: F401

KNOWN = {"torch": [], "Tensor": []}  # the names that torch has; runner.py fills it
pi, inf, nan, e = math.pi, math.inf, math.nan, math.e
strided = "strided"
Pair = namedtuple("Pair", "values indices")


class NotHere(AttributeError):
    """The notebook has it, and the page has not."""

    def __init__(self, what):
        super().__init__(f"`{what}` is not here; in the notebook it is")


def missing(owner, name):
    """Return the error for a name that is not here."""
    if name in KNOWN[owner]:
        return NotHere(f"{owner}.{name}")
    what = "module 'torch'" if owner == "torch" else "'Tensor' object"
    return AttributeError(f"{what} has no attribute '{name}'")


def __getattr__(name):
    if name in BY_NAME:
        return BY_NAME[name]
    method = None if name.startswith("_") else Tensor.__dict__.get(name)
    if not callable(method):
        raise missing("torch", name)

    def call(*given, **named):
        x, *rest = given or (named.pop("input", None),)
        if not isinstance(x, Tensor):
            raise TypeError(f"{name}(): the first argument must be Tensor, not {type(x).__name__}")
        return method(x, *rest, **named)

    return call


# --- types ----------------------------------------------------------------------------------------


class dtype:
    """A type of numbers: of truth, whole or real (`kind` 0, 1, 2), and how an array holds them."""

    is_complex = False

    def __init__(self, name, kind, code, itemsize, rounded=None):
        self.name, self.kind, self.code, self.itemsize = name, kind, code, itemsize
        self.is_floating_point, self.rounded = kind == 2, rounded

    def __repr__(self):
        return f"torch.{self.name}"

    def packed(self, values):
        """Return an array of numbers, which are of this kind already."""
        try:
            return array(self.code, map(self.rounded, values) if self.rounded else values)
        except OverflowError:
            raise RuntimeError(f"a number is too large for {self!r}") from None

    def of(self, values):
        """Return numbers of any kind as numbers of this one."""
        if self.kind == 0:
            return [value != 0 for value in values]
        if self.kind == 2:
            return [float(value) for value in values]
        return [int(value) if math.isfinite(value) else -(2**63) for value in values]


def to_half(value):
    try:
        return struct.unpack("e", struct.pack("e", value))[0]
    except OverflowError:
        return math.copysign(inf, value)


def to_bfloat(value):
    (bits,) = struct.unpack("I", struct.pack("f", value))
    if math.isfinite(value):
        bits = bits + 0x7FFF + (bits >> 16 & 1) & 0xFFFF0000  # to even
    return struct.unpack("f", struct.pack("I", bits))[0]


TYPES = (  # a wider one stands behind
    dtype("bool", 0, "b", 1),
    dtype("int8", 1, "b", 1, lambda value: (value + 2**7) % 2**8 - 2**7),
    dtype("int16", 1, "h", 2, lambda value: (value + 2**15) % 2**16 - 2**15),
    dtype("int32", 1, "i", 4, lambda value: (value + 2**31) % 2**32 - 2**31),
    dtype("int64", 1, "q", 8),
    dtype("float16", 2, "f", 2, to_half),
    dtype("bfloat16", 2, "f", 2, to_bfloat),
    dtype("float32", 2, "f", 4),
    dtype("float64", 2, "d", 8),
)
truth, int8, int16, int32, int64, float16, bfloat16, float32, float64 = TYPES
complex128 = dtype("complex128", 3, "d", 16)  # only to be compared with
BY_NAME = {
    "bool": truth, "short": int16, "int": int32, "long": int64, "half": float16,
    "bfloat16": bfloat16, "float": float32, "double": float64,
}  # fmt: skip
LARGEST = {float16: 65504.0, float64: sys.float_info.max}  # of the others that of float32


def promote_types(a, b):
    return float32 if {a, b} == {float16, bfloat16} else max(a, b, key=TYPES.index)


def type_of(value):
    """Return the type of a tensor, or the one that torch has for a number."""
    if isinstance(value, Tensor):
        return value.dtype
    return truth if isinstance(value, bool) else int64 if isinstance(value, int) else float32


def result_type(*values):
    """Return the type of a result: tensors with axes count first, then others, then numbers."""
    ranks = [None, None, None]
    for value in values:
        rank = (0 if value.shape else 1) if isinstance(value, Tensor) else 2
        found = type_of(value)
        ranks[rank] = found if ranks[rank] is None else promote_types(ranks[rank], found)
    result = None
    for found in ranks:
        if found is not None and (result is None or found.kind > result.kind):
            result = found
    return result


class Size(tuple):
    def numel(self):
        return math.prod(self)

    def __repr__(self):
        return f"torch.Size({list(self)})"

    def __getitem__(self, key):
        found = tuple.__getitem__(self, key)
        return Size(found) if isinstance(key, slice) else found


class device:
    type = "cpu"

    def __repr__(self):
        return "device(type='cpu')"


# --- shapes, and where numbers lie ----------------------------------------------------------------


def strides_of(shape):
    """Return the strides of numbers that lie one after the other."""
    sizes = [max(1, size) for size in reversed(shape[1:])]
    found = list(itertools.accumulate(sizes, operator.mul, initial=1))
    return tuple(found[::-1]) if shape else ()


def spread(start, axes):
    """Return the places that the offsets along several axes lead to, the last axis fastest."""
    places = [start]
    for offsets in axes:
        places = [place + offset for place in places for offset in offsets]
    return places


def steps_of(size, stride):
    return [stride * number for number in range(size)]


def given_sizes(shape):
    """Return sizes that are given one by one, or as one list."""
    one = len(shape) == 1 and isinstance(shape[0], list | tuple)
    return tuple(map(operator.index, shape[0] if one else shape))


def filled(shape, count):
    """Return a shape with its -1 worked out."""
    shape = list(shape)
    if -1 in shape:
        known = math.prod(size for size in shape if size != -1)
        shape[shape.index(-1)] = count // known if known else 0
    if math.prod(shape) != count:
        raise RuntimeError(f"shape '{shape}' is invalid for input of size {count}")
    return shape


def broadcast_shapes(*shapes):
    count = max(map(len, shapes), default=0)
    result = [1] * count
    for shape in shapes:
        for dim, size in enumerate(shape, count - len(shape)):
            if size != 1 and result[dim] not in (1, size):
                raise RuntimeError(
                    f"The size of tensor a ({result[dim]}) must match the size of tensor b "
                    f"({size}) at non-singleton dimension {dim}"
                )
            result[dim] = size if size != 1 else result[dim]
    return Size(result)


INDICES = (int, slice, type(None), type(...))


def indexed(x, key):
    """Return the axes (shape, stride, offsets or None) that an index selects, and their begin."""
    keys = list(key) if isinstance(key, tuple) else [key]
    for at, each in enumerate(keys):
        if isinstance(each, list | range):
            keys[at] = each = tensor(list(each), dtype=None if each else int64)
        if isinstance(each, Tensor) and not each.shape and each.dtype.kind == 1:
            keys[at] = int(each)
        elif isinstance(each, Tensor) and each.dtype.kind == 2:
            raise IndexError("tensors used as indices must be long, int, byte or bool tensors")
        elif isinstance(each, bool) or not isinstance(each, (Tensor, *INDICES)):
            raise TypeError("an index is a number, a slice, None, ... or a tensor of them")
    used = sum(each is not None and each is not ... for each in keys)
    used += sum(each.ndim - 1 for each in keys if isinstance(each, Tensor) and each.dtype is truth)
    if used > x.ndim:
        raise IndexError(f"too many indices for tensor of dimension {x.ndim}")
    dots = next((at for at, each in enumerate(keys) if each is ...), len(keys))
    keys[dots : dots + 1] = [slice(None)] * (x.ndim - used)
    axes, offset, dim, chosen = [], x._offset, 0, []
    for each in keys:
        size, stride = (x.shape[dim], x._strides[dim]) if dim < x.ndim else (1, 0)
        if each is None:
            axes.append(((1,), 0, None))
            continue
        if isinstance(each, slice):
            start, stop, step = each.indices(size)
            if step < 1:
                raise ValueError("step must be greater than zero")
            axes.append(((len(range(start, stop, step)),), stride * step, None))
            offset += start * stride
        elif isinstance(each, Tensor) and each.dtype is truth:
            if each.shape != x.shape[dim : dim + each.ndim]:
                raise IndexError(
                    f"The shape of the mask {list(each.shape)} does not match the shape of the "
                    f"indexed tensor {list(x.shape)}"
                )
            for at, numbers in enumerate(each.nonzero().unbind(1), dim):
                chosen.append((numbers, x.shape[at], x._strides[at], len(axes)))
            dim += each.ndim - 1
        elif isinstance(each, Tensor):
            chosen.append((each, size, stride, len(axes)))
        else:
            within(each, size, dim)
            offset += each % size * stride
        dim += 1
    if chosen:
        places = {at for *_, at in chosen}
        axes.insert(places.pop() if len(places) == 1 else 0, joined(chosen))
    return axes, offset


def within(number, size, dim):
    if not -size <= number < size:
        raise IndexError(f"index {number} is out of bounds for dimension {dim} with size {size}")


def joined(chosen):
    """Return the axis that several tensors of indices make together."""
    shape = broadcast_shapes(*(index.shape for index, *_ in chosen))
    offsets = [0] * math.prod(shape)
    for index, size, stride, at in chosen:
        numbers = index.expand(shape)._flat()
        for number in numbers:
            within(number, size, at)
        offsets = [a + number % size * stride for a, number in zip(offsets, numbers, strict=True)]
    return tuple(shape), 0, offsets


def selected(x, key):
    """Return the shape and the places that an index selects."""
    axes, offset = indexed(x, key)
    places = spread(offset, [steps_of(*n, by) if some is None else some for n, by, some in axes])
    return [size for sizes, *_ in axes for size in sizes], places


# --- a tensor -------------------------------------------------------------------------------------


class Tensor:
    """Numbers in an array, of which shape, strides and an offset choose some."""

    is_nested = is_meta = requires_grad = is_cuda = False
    layout, device, grad = strided, device(), None

    def __init__(self, data, shape, dtype, strides=None, offset=0):
        self._data, self.shape, self.dtype = data, Size(shape), dtype
        self._strides = strides_of(self.shape) if strides is None else tuple(strides)
        self._offset = offset

    def __getattr__(self, name):
        plain = name[:-1]
        if name.endswith("_") and not name.startswith("_") and hasattr(Tensor, plain):
            return functools.partial(self._become, getattr(Tensor, plain))  # such as add_
        raise missing("Tensor", name)

    def _become(self, method, *given, **named):
        found = method(self, *given, **named)
        if found.dtype.kind > self.dtype.kind:
            raise RuntimeError(
                f"result type {found.dtype.name} can't be cast to the desired output type "
                f"{self.dtype.name}"
            )
        self[...] = found
        return self

    def _view(self, shape, strides, offset=None):
        start = self._offset if offset is None else offset
        return Tensor(self._data, shape, self.dtype, strides, start)

    def _flat(self):
        """Return the numbers in order; perhaps the array itself, which is only to be read."""
        if self.is_contiguous():
            end = self._offset + self.numel()
            return self._data[self._offset : end] if self._offset or end < len(self._data) else (
                self._data)  # fmt: skip
        places = spread(self._offset, map(steps_of, self.shape, self._strides))
        return array(self._data.typecode, map(self._data.__getitem__, places))

    def _axis(self, dim, more=0):
        count = max(1, self.ndim + more)
        if not -count <= dim < count:
            raise IndexError(
                f"Dimension out of range (expected to be in range of [{-count}, {count - 1}], but "
                f"got {dim})"
            )
        return dim % count

    ndim = property(lambda self: len(self.shape))
    T = property(lambda self: self.permute(*reversed(range(self.ndim))))
    mT = property(lambda self: self.transpose(-2, -1))
    real = data = property(lambda self: self)

    def is_contiguous(self):
        axes = zip(self.shape, self._strides, strides_of(self.shape), strict=True)
        return not self.numel() or all(size == 1 or a == b for size, a, b in axes)

    def size(self, dim=None):
        return self.shape if dim is None else self.shape[dim]

    def dim(self):
        return self.ndim

    def numel(self):
        return math.prod(self.shape)

    def is_floating_point(self):
        return self.dtype.kind == 2

    def is_complex(self):
        return False

    def detach(self, *_):
        return self

    cpu = to_dense = conj = __pos__ = detach

    def contiguous(self):
        return self if self.is_contiguous() else self.clone()

    def clone(self):
        return Tensor(self._flat()[:], self.shape, self.dtype)

    def to(self, *given, dtype=None, **_):
        for value in given:
            value = value.dtype if isinstance(value, Tensor) else value
            dtype = value if hasattr(value, "kind") else dtype
        if dtype in (None, self.dtype):
            return self
        flat = self._flat()
        return made(flat if dtype.kind == self.dtype.kind else dtype.of(flat), self.shape, dtype)

    type_as = type = to

    def item(self):
        if self.numel() != 1:
            raise RuntimeError(
                f"a Tensor with {self.numel()} elements cannot be converted to Scalar"
            )
        return self.reshape(1).tolist()[0]

    def tolist(self):
        flat = list(map(bool, self._flat()) if self.dtype is truth else self._flat())
        for size in reversed(self.shape[1:]):
            flat = [flat[at : at + size] for at in range(0, len(flat), size)] if size else []
        return flat if self.shape else flat[0]

    def numpy(self):
        raise NotHere("numpy")

    def __bool__(self):
        if self.numel() != 1:
            raise RuntimeError("Boolean value of Tensor with more than one value is ambiguous")
        return self.item() != 0

    def __float__(self):
        return float(self.item())

    def __int__(self):
        return int(self.item())

    def __index__(self):
        if self.dtype.kind == 2 or self.numel() != 1:
            raise TypeError("only integer tensors of a single element can be converted to an index")
        return int(self.item())

    def __len__(self):
        if not self.shape:
            raise TypeError("len() of a 0-d tensor")
        return self.shape[0]

    def __iter__(self):
        if not self.shape:
            raise TypeError("iteration over a 0-d tensor")
        return iter(self.unbind(0))

    def __contains__(self, value):
        return bool((self == value).any())

    def __repr__(self):
        def words(value):
            if isinstance(value, list):
                return f"[{', '.join(map(words, value))}]"
            return f"{value:.4f}" if isinstance(value, float) else str(value)

        usual = self.dtype in (truth, int64, float32)
        return f"tensor({words(self.tolist())}{'' if usual else f', dtype={self.dtype!r}'})"

    def __format__(self, spec):
        return format(repr(self) if self.shape else self.item(), spec)

    def __getitem__(self, key):
        axes, offset = indexed(self, key)
        if all(offsets is None for *_, offsets in axes):
            return self._view([size for (size,), *_ in axes], [by for _, by, _ in axes], offset)
        shape, places = selected(self, key)
        data = array(self._data.typecode, map(self._data.__getitem__, places))
        return Tensor(data, shape, self.dtype)

    def __setitem__(self, key, value):
        shape, places = selected(self, key)
        value = as_tensor(value)
        while value.ndim > len(shape) and value.shape[0] == 1:
            value = value[0]
        for place, number in zip(places, value.to(self.dtype).expand(shape)._flat(), strict=True):
            self._data[place] = number

    # --- other shapes

    def expand(self, *shape):
        shape = list(given_sizes(shape))
        more = len(shape) - self.ndim
        old, strides = [1] * more + list(self.shape), [0] * more + list(self._strides)
        if more < 0:
            raise RuntimeError(f"expand: {len(shape)} sizes are fewer than {self.ndim} dimensions")
        for dim, (have, want) in enumerate(zip(old, shape, strict=True)):
            if want == -1:
                shape[dim] = have
            elif have == 1 and want != 1:
                strides[dim] = 0
            elif have != want:
                raise RuntimeError(
                    f"The expanded size of the tensor ({want}) must match the existing size "
                    f"({have}) at non-singleton dimension {dim}"
                )
        return self._view(shape, strides)

    broadcast_to = expand

    def expand_as(self, other):
        return self.expand(other.shape)

    def _strides_as(self, shape):
        """Return strides that show the same numbers in another shape; None if none do."""
        if self.is_contiguous():
            return strides_of(shape)
        strides, at = [0] * len(shape), len(shape) - 1
        base, have, shown = self._strides[-1], 1, 1
        for dim in range(self.ndim - 1, -1, -1):
            have *= self.shape[dim]
            before = self.shape[dim - 1], self._strides[dim - 1]
            if dim == 0 or (before[0] != 1 and before[1] != have * base):
                while at >= 0 and (shown < have or shape[at] == 1):
                    strides[at] = shown * base
                    shown *= shape[at]
                    at -= 1
                if shown != have:
                    return None
                base, have, shown = before[1], 1, 1
        return strides if at < 0 else None

    def view(self, *shape):
        if shape and hasattr(shape[0], "kind"):
            raise NotHere("Tensor.view(dtype)")
        shape = filled(given_sizes(shape), self.numel())
        if (strides := self._strides_as(shape)) is None:
            raise RuntimeError(
                "view size is not compatible with input tensor's size and stride (at least one "
                "dimension spans across two contiguous subspaces). Use .reshape(...) instead."
            )
        return self._view(shape, strides)

    def view_as(self, other):
        return self.view(other.shape)

    def reshape(self, *shape):
        shape = filled(given_sizes(shape), self.numel())
        return (self.clone() if self._strides_as(shape) is None else self).view(shape)

    def flatten(self, start_dim=0, end_dim=-1):
        a, b = self._axis(start_dim), self._axis(end_dim) + 1
        return self.reshape(*self.shape[:a], math.prod(self.shape[a:b]), *self.shape[b:])

    ravel = flatten

    def unflatten(self, dim, sizes):
        dim = self._axis(dim)
        sizes = filled(sizes, self.shape[dim])
        return self.view(*self.shape[:dim], *sizes, *self.shape[dim + 1 :])

    def permute(self, *dims):
        dims = [self._axis(dim) for dim in given_sizes(dims)]
        if sorted(dims) != list(range(self.ndim)):
            raise RuntimeError(f"permute: of {self.ndim} dimensions each must be named once")
        return self._view([self.shape[dim] for dim in dims], [self._strides[dim] for dim in dims])

    def transpose(self, dim0, dim1):
        order, a, b = list(range(self.ndim)), self._axis(dim0), self._axis(dim1)
        if order:
            order[a], order[b] = order[b], order[a]
        return self.permute(order)

    def t(self):
        return self.T

    def movedim(self, source, destination):
        order = list(range(self.ndim))
        order.insert(self._axis(destination), order.pop(self._axis(source)))
        return self.permute(order)

    def _along(self, dim, key, more=0):
        return self[(slice(None),) * self._axis(dim, more) + (key,)]

    def unsqueeze(self, dim):
        return self._along(dim, None, 1)

    def squeeze(self, dim=None):
        dims = range(self.ndim) if dim is None else [self._axis(dim)]
        kept = [at for at in range(self.ndim) if at not in dims or self.shape[at] != 1]
        return self._view([self.shape[at] for at in kept], [self._strides[at] for at in kept])

    def narrow(self, dim, start, length):
        return self._along(dim, slice(start, start + length))

    def select(self, dim, index):
        return self._along(dim, index)

    index_select = select

    def unbind(self, dim=0):
        return tuple(self.select(dim, number) for number in range(self.shape[dim]))

    def split(self, split_size, dim=0):
        size, parts = self.shape[dim], split_size
        if isinstance(parts, int):
            parts = [min(parts, size - at) for at in range(0, size, parts)]
        begins = itertools.accumulate(parts, initial=0)
        return tuple(self.narrow(dim, at, part) for at, part in zip(begins, parts, strict=False))

    def chunk(self, chunks, dim=0):
        return self.split(-(-self.shape[dim] // chunks), dim)

    def flip(self, *dims):
        for dim in given_sizes(dims):
            self = self.index_select(dim, range(self.shape[dim])[::-1])
        return self.clone()

    def roll(self, shifts, dims=None):
        if dims is None:
            return self.flatten().roll(shifts, 0).view(self.shape)
        pairs = [(shifts, dims)] if isinstance(dims, int) else zip(shifts, dims, strict=True)
        for shift, dim in pairs:
            size = self.shape[dim]
            self = self.index_select(dim, [(number - shift) % size for number in range(size)])
        return self

    def diagonal(self, offset=0, dim1=0, dim2=1):
        dims = self._axis(dim1), self._axis(dim2)
        (rows, down), (columns, right) = ((self.shape[dim], self._strides[dim]) for dim in dims)
        size = max(0, min(rows + min(0, offset), columns - max(0, offset)))
        rest = [dim for dim in range(self.ndim) if dim not in dims]
        start = self._offset + max(0, offset) * right - min(0, offset) * down
        shape, strides = [self.shape[dim] for dim in rest], [self._strides[dim] for dim in rest]
        return self._view([*shape, size], [*strides, down + right], start)

    def repeat(self, *counts):
        counts = given_sizes(counts)
        self = self[(None,) * (len(counts) - self.ndim)]
        for dim, count in enumerate(counts):
            self = cat([self] * count, dim)
        return self

    def repeat_interleave(self, repeats, dim=None):
        x, dim = (self.flatten(), 0) if dim is None else (self, dim)
        counts = as_tensor(repeats).expand(x.shape[dim]).tolist()
        return x.index_select(dim, [at for at, count in enumerate(counts) for _ in range(count)])

    def tril(self, diagonal=0):
        rows, columns = (arange(size) for size in self.shape[-2:])
        return where(columns - rows[:, None] <= diagonal, self, zeros((), dtype=self.dtype))

    def triu(self, diagonal=0):
        rows, columns = (arange(size) for size in self.shape[-2:])
        return where(columns - rows[:, None] >= diagonal, self, zeros((), dtype=self.dtype))

    # --- number by number

    def round(self, decimals=0):
        if self.dtype.kind < 2:
            return self.clone()
        by = 10.0**decimals
        values = [float(round(v * by)) / by if math.isfinite(v) else v for v in self._flat()]
        return made(values, self.shape, self.dtype)

    def clamp(self, min=None, max=None):
        x = self if min is None else binary(larger, self, min)
        return x if max is None else binary(smaller, x, max)

    clip = clamp

    def nan_to_num(self, nan=0.0, posinf=None, neginf=None):
        most = LARGEST.get(self.dtype, (2 - 2.0**-23) * 2.0**127)
        ends = {inf: most if posinf is None else posinf, -inf: -most if neginf is None else neginf}
        values = [float(nan) if v != v else float(ends.get(v, v)) for v in self._flat()]
        return made(values, self.shape, self.dtype)

    def masked_fill(self, mask, value):
        if mask.dtype is not truth:
            raise RuntimeError(
                f"masked_fill only supports boolean masks, but got {mask.dtype.name}"
            )
        return where(mask, as_tensor(value).to(self.dtype), self)

    def where(self, condition, other):
        return where(condition, self, other)

    def isclose(self, other, rtol=1e-5, atol=1e-8, equal_nan=False):
        def near(x, y):
            if x == y or (equal_nan and x != x and y != y):
                return True
            return math.isfinite(x) and math.isfinite(y) and abs(x - y) <= atol + rtol * abs(y)

        if self.dtype is not other.dtype:
            raise RuntimeError(f"{self.dtype.name} did not match {other.dtype.name}")
        return binary(near, self, other, truth)

    def allclose(self, other, rtol=1e-5, atol=1e-8, equal_nan=False):
        return bool(self.isclose(other, rtol, atol, equal_nan).all())

    def equal(self, other):
        return self.shape == other.shape and all(map(operator.eq, self._flat(), other._flat()))

    # --- along axes

    def _rows(self, dim, keepdim=False):
        """Return the rows of numbers along axes, and the shape of one number for each."""
        given = range(self.ndim) if dim is None else (dim,) if isinstance(dim, int) else dim
        dims = [self._axis(each) for each in given] if self.ndim else []
        rest = [at for at in range(self.ndim) if at not in dims]
        flat = self.permute(*rest, *dims)._flat()
        length = math.prod(self.shape[at] for at in dims)
        shape = [self.shape[at] if at in rest else 1 for at in range(self.ndim)
                 if at in rest or keepdim]  # fmt: skip
        count = math.prod(self.shape[at] for at in rest)
        return [flat[at * length : (at + 1) * length] for at in range(count)], shape

    def _each_row(self, dim, function, dtype=None):
        """Apply a function to each row of numbers along an axis; it returns a row."""
        found, shape = self._rows(dim)
        new = [list(function(row)) for row in found]
        length = len(new[0]) if new else self.shape[dim]
        whole = made(itertools.chain(*new), [*shape, length], dtype or self.dtype)
        return whole.movedim(-1, dim) if self.ndim else whole.view(())

    def max(self, dim=None, keepdim=False):
        if isinstance(dim, Tensor):
            return self.maximum(dim)
        if dim is None:
            return self.amax()
        return Pair(self.amax(dim, keepdim), self.argmax(dim, keepdim))

    def min(self, dim=None, keepdim=False):
        if isinstance(dim, Tensor):
            return self.minimum(dim)
        if dim is None:
            return self.amin()
        return Pair(self.amin(dim, keepdim), self.argmin(dim, keepdim))

    def median(self, dim=None, keepdim=False):
        x, along = (self.flatten(), 0) if dim is None else (self, dim)
        at = x.argsort(along, stable=True).narrow(along, (x.shape[along] - 1) // 2, 1)
        values = x.gather(along, at)
        if dim is None:
            return values.squeeze(0)
        return Pair(*(each if keepdim else each.squeeze(dim) for each in (values, at)))

    def quantile(self, q, dim=None, keepdim=False):
        if isinstance(q, Tensor) and q.ndim:
            raise NotHere("Tensor.quantile, of several q")

        def between(row):
            at = float(q) * (len(row) - 1)
            low, row = math.floor(at), sorted(row)
            return row[low] + (at - low) * (row[math.ceil(at)] - row[low])

        found, shape = self._rows(dim, keepdim)
        return made(map(between, found), shape, self.dtype)

    def var(self, dim=None, correction=1, keepdim=False, unbiased=None):
        count = self.numel() // max(1, self.sum(dim).numel())
        less = correction if unbiased is None else int(unbiased)
        centred = self - self.mean(dim, keepdim=True)
        return centred.square().sum(dim, keepdim) / max(0, count - less)

    def std(self, *given, **named):
        return self.var(*given, **named).sqrt()

    def norm(self, p=2, dim=None, keepdim=False):
        if p == inf:
            return self.abs().amax(dim, keepdim)
        return (self.abs() ** p).sum(dim, keepdim) ** (1 / p)

    def softmax(self, dim, dtype=None):
        x = self.to(dtype)
        if x.dtype.kind < 2:
            raise NotImplementedError(f'"softmax" not implemented for {x.dtype.name}')
        return x._each_row(dim, weights_of)

    def log_softmax(self, dim, dtype=None):
        x = self.to(dtype)
        return x - x.logsumexp(dim, keepdim=True)

    def cumsum(self, dim, dtype=None):
        x = self.to(dtype or (int64 if self.dtype.kind < 2 else self.dtype))
        return x._each_row(dim, itertools.accumulate)

    def cummax(self, dim):
        def last(row):
            at = range(len(row))
            return itertools.accumulate(at, lambda a, b: b if row[b] >= row[a] else a)

        values = self._each_row(dim, lambda row: itertools.accumulate(row, max))
        return Pair(values, self._each_row(dim, last, int64))

    def argsort(self, dim=-1, descending=False, stable=False):
        def order(row):
            sign = -1 if descending else 1  # NaN is larger than all
            return sorted(range(len(row)), key=lambda at: (
                (row[at] != row[at]) * sign, row[at] * sign))  # fmt: skip

        return self._each_row(dim, order, int64)

    def sort(self, dim=-1, descending=False, stable=False):
        order = self.argsort(dim, descending)
        return Pair(self.gather(dim, order) if self.ndim else self, order)

    def topk(self, k, dim=-1, largest=True, sorted=True):
        return Pair(*(each.narrow(dim, 0, k) for each in self.sort(dim, largest)))

    def gather(self, dim, index):
        dim = self._axis(dim)
        places = list(meshgrid(*map(arange, index.shape)))
        places[dim] = index
        return self[tuple(places)]

    def diff(self, n=1, dim=-1, prepend=None, append=None):
        x = cat([each for each in (prepend, self, append) if each is not None], dim)
        for _ in range(n):
            size = x.shape[dim] - 1
            later, earlier = x.narrow(dim, 1, size), x.narrow(dim, 0, size)
            x = later != earlier if x.dtype is truth else later - earlier
        return x

    def nonzero(self, as_tuple=False):
        places = itertools.product(*map(range, self.shape))
        found = [place for place, value in zip(places, self._flat(), strict=True) if value]
        found = tensor(found, int64).view(len(found), self.ndim)
        return found.unbind(1) if as_tuple else found

    def matmul(self, other):
        if not isinstance(other, Tensor):
            return NotImplemented
        if self.dtype is not other.dtype:
            raise RuntimeError(
                "expected m1 and m2 to have the same dtype, but got: "
                f"{self.dtype.name} != {other.dtype.name}"
            )
        if not self.ndim or not other.ndim:
            raise RuntimeError("both arguments to matmul need to be at least 1D")
        a, b = self[None] if self.ndim == 1 else self, other[:, None] if other.ndim == 1 else other
        (n, k), (inner, m) = a.shape[-2:], b.shape[-2:]
        if k != inner:
            raise RuntimeError(
                f"mat1 and mat2 shapes cannot be multiplied ({n}x{k} and {inner}x{m})"
            )
        batch = broadcast_shapes(a.shape[:-2], b.shape[:-2])
        left, _ = a.expand(*batch, n, k)._rows(-1)
        right, _ = b.mT.expand(*batch, m, k)._rows(-1)
        values = [
            sum(map(operator.mul, row, column))
            for at in range(math.prod(batch))
            for row in left[at * n : (at + 1) * n]
            for column in right[at * m : (at + 1) * m]
        ]
        found = made(values, [*batch, n, m], self.dtype)
        found = found[..., 0] if other.ndim == 1 else found
        return found.select(-1 if other.ndim == 1 else -2, 0) if self.ndim == 1 else found

    mm = bmm = mv = dot = __matmul__ = matmul


def made(values, shape, dtype):
    """Return a tensor of numbers that are of the kind of its type already."""
    return Tensor(dtype.packed(values), shape, dtype)


def weights_of(row):
    """Return the softmax of a row."""
    top = max(row)
    if not math.isfinite(top):  # nothing but minus infinity, or something infinite
        return [nan] * len(row)
    powers = [math.exp(value - top) for value in row]
    total = math.fsum(powers)
    return [each / total for each in powers]


# --- the many functions of one number, of two, and of a row ---------------------------------------


def binary(function, a, b, result=None, least=truth):
    """Apply a function of two numbers.

    Args:
        function: of two of Python's numbers.
        a, b: tensors or numbers.
        result: type of what it returns, if not that of the numbers.
        least: type in which it is computed, if theirs is narrower.
    """
    if not isinstance(a, Tensor | int | float) or not isinstance(b, Tensor | int | float):
        return NotImplemented
    dtype = result_type(a, b)
    dtype = least if dtype.kind < least.kind else dtype
    shape = broadcast_shapes(*(x.shape for x in (a, b) if isinstance(x, Tensor)))
    values = map(function, numbers_of(a, shape, dtype), numbers_of(b, shape, dtype))
    return made(values, shape, result or dtype)


def numbers_of(x, shape, dtype):
    """Return the numbers of a tensor, or one number again and again, in a type and a shape."""
    if isinstance(x, Tensor):
        return x.to(dtype).expand(shape)._flat()
    return itertools.repeat(dtype.packed(dtype.of([x]))[0])


def quotient(a, b):
    try:
        return a / b
    except ZeroDivisionError:
        return nan if a != a or a == 0 else math.copysign(inf, a) * math.copysign(1.0, b)


def power(a, b):
    try:
        return a**b if type(a) is int and b >= 0 else math.pow(a, b)
    except OverflowError:
        return -inf if a < 0 and b % 2 == 1 else inf
    except ValueError:
        return inf if a == 0 else nan


def smaller(a, b):
    return a if a != a or a <= b else b


def larger(a, b):
    return a if a != a or a >= b else b


def rest(function):
    return lambda a, b: function(a, b) if b else nan


OF_TWO = {  # the operator, the function, the names of the methods
    "add": (operator.add, "add"), "sub": (operator.sub, "sub subtract"),
    "mul": (operator.mul, "mul multiply"), "truediv": (quotient, "div divide true_divide"),
    "pow": (power, "pow"), "mod": (rest(operator.mod), "remainder"),
    "floordiv": (rest(operator.floordiv), "floor_divide"),
    "and": (operator.and_, "bitwise_and logical_and"),
    "or": (operator.or_, "bitwise_or logical_or"),
    "xor": (operator.xor, "bitwise_xor logical_xor"), "eq": (operator.eq, "eq"),
    "ne": (operator.ne, "ne"), "lt": (operator.lt, "lt less"), "le": (operator.le, "le less_equal"),
    "gt": (operator.gt, "gt greater"), "ge": (operator.ge, "ge greater_equal"),
    "": (larger, "maximum"), " ": (smaller, "minimum"), "  ": (math.atan2, "atan2 arctan2"),
    "   ": (math.hypot, "hypot"),
}  # fmt: skip


def of_two(sign, function, names):
    """Give tensors an operator, its form from the right and in place, and methods."""
    result = truth if sign in ("eq", "ne", "lt", "le", "gt", "ge") else None
    least = float32 if sign == "truediv" else truth

    def forward(a, b):
        return binary(function, a, b, result, least)

    for name in names.split():
        setattr(Tensor, name, forward)
    if sign.strip():
        setattr(Tensor, f"__{sign}__", forward)
        setattr(Tensor, f"__r{sign}__", lambda a, b: binary(function, b, a, result, least))
        setattr(Tensor, f"__i{sign}__", lambda a, b: a._become(forward, b))


for _sign, (_function, _names) in OF_TWO.items():
    of_two(_sign, _function, _names)
Tensor.__hash__ = object.__hash__
Tensor.__invert__ = lambda self: self.logical_not() if self.dtype is truth else -1 - self
Tensor.__neg__ = lambda self: self.neg()
Tensor.__abs__ = lambda self: self.abs()


def safely(function):
    """Return NaN where a function of a number has no value, and infinity where it is too large."""

    def call(value):
        try:
            return function(value)
        except ValueError:
            return nan
        except OverflowError:
            return inf

    return call


def logarithm(function, end=0):
    return lambda x: function(x) if x > end else -inf if x == end else nan


def whole(function):
    return lambda x: float(function(x)) if math.isfinite(x) else x


def sigmoid_of(x):
    return 1 / (1 + safely(math.exp)(-x))


REAL = {  # functions of a number whose value is a fraction
    **{name: safely(getattr(math, name)) for name in (
        "sin", "cos", "tan", "asin", "acos", "atan", "sinh", "cosh", "tanh", "exp", "expm1",
        "sqrt")},
    **{name: logarithm(getattr(math, name)) for name in ("log", "log2", "log10")},
    "log1p": logarithm(math.log1p, -1), "rsqrt": lambda x: quotient(1.0, safely(math.sqrt)(x)),
    "reciprocal": lambda x: quotient(1.0, x), "sigmoid": sigmoid_of,
    "logit": lambda x: logarithm(math.log)(quotient(x, 1 - x)),
}  # fmt: skip
SAME = {  # whose value is of the same type
    "neg": operator.neg, "abs": abs, "square": lambda x: x * x, "relu": lambda x: max(x, x * 0),
    "sign": lambda x: type(x)((x > 0) - (x < 0)),
    **{name: whole(getattr(math, name)) for name in ("floor", "ceil", "trunc")},
}  # fmt: skip
TRUE = {"isnan": math.isnan, "isinf": math.isinf, "isfinite": math.isfinite,
        "logical_not": operator.not_}  # fmt: skip


def of_one(name, function, table):
    """Give tensors a function of each number."""

    def call(x):
        if table is REAL and x.dtype.kind < 2:
            x = x.to(float32)
        if name in ("floor", "ceil", "trunc") and x.dtype.kind < 2:
            return x.clone()
        return made(map(function, x._flat()), x.shape, truth if table is TRUE else x.dtype)

    setattr(Tensor, name, call)


for _table in (REAL, SAME, TRUE):
    for _name, _function in _table.items():
        of_one(_name, _function, _table)
for _name, _dtype in BY_NAME.items():
    setattr(Tensor, _name, lambda self, dtype=_dtype: self.to(dtype))


def extreme(best):
    return lambda row: nan if any(v != v for v in row) else best(row)


def place_of(best):
    def found(row):
        odd = next((at for at, v in enumerate(row) if v != v), None)
        return row.index(best(row)) if odd is None else odd

    return found


def mean_of(row):
    return quotient(math.fsum(row) if all(map(math.isfinite, row)) else sum(row), len(row))


def log_sum(row):
    top = max(row)
    return top if not math.isfinite(top) else top + math.log(sum(math.exp(v - top) for v in row))


OF_ROWS = {  # a function of a row, and the type of its value: None for the type of the numbers
    "sum": (sum, None), "prod": (math.prod, None), "mean": (mean_of, None),
    "nanmean": (lambda row: mean_of([v for v in row if v == v]), None),
    "logsumexp": (log_sum, None), "amax": (extreme(max), None), "amin": (extreme(min), None),
    "argmax": (place_of(max), int64), "argmin": (place_of(min), int64),
    "any": (any, truth), "all": (all, truth),
    "count_nonzero": (lambda row: sum(v != 0 for v in row), int64),
}  # fmt: skip


def of_rows(name, function, result):
    """Give tensors a function of the numbers along axes."""

    def call(x, dim=None, keepdim=False, dtype=None):
        x = x.to(dtype)
        if name in ("mean", "logsumexp") and x.dtype.kind < 2:
            raise RuntimeError(f"{name}(): the input must be floating point, got {x.dtype.name}")
        found, shape = x._rows(dim, keepdim)
        if name[:3] in ("ama", "ami", "arg") and not all(map(len, found)):
            raise IndexError(f"{name}(): an axis without numbers has none to reduce to")
        counted = int64 if name in ("sum", "prod") and x.dtype.kind < 2 else x.dtype
        return made(map(function, found), shape, result or counted)

    setattr(Tensor, name, call)


for _name, (_function, _result) in OF_ROWS.items():
    of_rows(_name, _function, _result)


# --- making tensors -------------------------------------------------------------------------------


def leaves(value, found):
    """Collect the numbers of nested lists and their types; return the shape."""
    if isinstance(value, list | tuple | range):
        shapes = [leaves(each, found) for each in value]
        if any(shape != shapes[0] for shape in shapes):
            raise ValueError("expected sequences of equal lengths")
        return (len(value), *(shapes[0] if shapes else ()))
    if not isinstance(value, int | float | Tensor):
        raise TypeError(f"a tensor is made of numbers, not of '{type(value).__name__}' objects")
    if isinstance(value, Tensor) and value.numel() != 1:
        raise ValueError("only one element tensors can be converted to Python scalars")
    found.append((value.item() if isinstance(value, Tensor) else value, type_of(value)))
    return ()


def tensor(data, dtype=None, device=None, requires_grad=False):
    if isinstance(data, Tensor):
        return data.clone().to(dtype)
    shape = leaves(data, found := [])
    dtype = dtype or functools.reduce(promote_types, [kind for _, kind in found] or [float32])
    return made(dtype.of(value for value, _ in found), shape, dtype)


def as_tensor(data, dtype=None, device=None):
    return data.to(dtype) if isinstance(data, Tensor) else tensor(data, dtype)


def frombuffer(buffer, *, dtype):
    values = array(dtype.code, bytes(buffer))
    return Tensor(values, (len(values),), dtype)


def full(size, fill_value, dtype=None, device=None):
    shape, dtype = given_sizes((size,)), dtype or type_of(fill_value)
    return made(dtype.of([float(fill_value)]) * math.prod(shape), shape, dtype)


def zeros(*size, dtype=float32, device=None):
    return full(given_sizes(size), 0, dtype)


def ones(*size, dtype=float32, device=None):
    return full(given_sizes(size), 1, dtype)


def eye(n, m=None, dtype=float32, device=None):
    rows, columns = arange(n), arange(n if m is None else m)
    return (rows[:, None] == columns).to(dtype)


def arange(start, end=None, step=1, dtype=None, device=None):
    start, end = (0, start) if end is None else (start, end)
    start, end, step = (v.item() if isinstance(v, Tensor) else v for v in (start, end, step))
    values = [start + number * step for number in range(max(0, math.ceil((end - start) / step)))]
    dtype = dtype or result_type(start, end, step)
    return made(dtype.of(values), (len(values),), dtype)


def linspace(start, end, steps, dtype=float32, device=None):
    start, end = float(start), float(end)
    by = (end - start) / max(1, steps - 1)
    values = [start + n * by if n < steps / 2 else end - (steps - 1 - n) * by for n in range(steps)]
    return made(dtype.of(values), (steps,), dtype)


def empty(*size, dtype=float32, device=None):
    return full(given_sizes(size), 0, dtype)


Tensor.new_tensor = lambda self, data, dtype=None: tensor(data, dtype or self.dtype)
for _make in (zeros, ones, empty, full):

    def _like(x, *given, dtype=None, device=None, make=_make):
        return make(x.shape, *given, dtype=dtype or x.dtype)

    def _new(x, *given, dtype=None, device=None, make=_make):
        return make(*given, dtype=dtype or x.dtype)

    globals()[f"{_make.__name__}_like"] = _like
    setattr(Tensor, f"new_{_make.__name__}", _new)


def where(condition, input=None, other=None):
    if input is None:
        return condition.nonzero(as_tuple=True)
    dtype = result_type(input, other)
    shape = broadcast_shapes(*(
        x.shape for x in (condition, input, other) if isinstance(x, Tensor)))  # fmt: skip
    values = (numbers_of(x, shape, dtype) for x in (input, other))
    chosen = zip(condition.expand(shape)._flat(), *values, strict=False)
    return made([a if yes else b for yes, a, b in chosen], shape, dtype)


def cat(tensors, dim=0):
    tensors = list(tensors)
    dtype = functools.reduce(promote_types, [x.dtype for x in tensors])
    parts = [x.to(dtype) for x in tensors if x.shape != (0,)] or tensors[:1]
    dim = parts[0]._axis(dim)
    moved = [x.movedim(dim, 0) for x in parts]
    if any(x.shape[1:] != moved[0].shape[1:] for x in moved):
        raise RuntimeError(
            f"Sizes of tensors must match except in dimension {dim}, but they are "
            f"{' and '.join(str(list(x.shape)) for x in parts)}"
        )
    data = array(dtype.code)
    for x in moved:
        data.extend(x._flat())
    shape = (sum(map(len, moved)), *moved[0].shape[1:])
    return Tensor(data, shape, dtype).movedim(0, dim)


concat = concatenate = cat


def stack(tensors, dim=0):
    tensors = list(tensors)
    if any(x.shape != tensors[0].shape for x in tensors):
        raise RuntimeError("stack expects each tensor to be equal size")
    return cat([x.unsqueeze(dim) for x in tensors], tensors[0]._axis(dim, 1))


def meshgrid(*tensors, indexing="ij"):
    if indexing != "ij":
        raise NotHere(f"torch.meshgrid(indexing={indexing!r})")
    shape = [len(x) for x in tensors]
    views = (x.view([-1 if at == dim else 1 for at in range(len(shape))])
             for dim, x in enumerate(tensors))  # fmt: skip
    return tuple(x.expand(shape) for x in views)


def outer(a, b):
    return a[:, None] * b


def searchsorted(sorted_sequence, input, *, right=False, **_):
    edges, find = sorted_sequence.tolist(), bisect_right if right else bisect_left
    if sorted_sequence.ndim != 1:
        raise NotHere("torch.searchsorted, in several rows")
    x = as_tensor(input)
    return made([find(edges, value) for value in x._flat()], x.shape, int64)


def bucketize(input, boundaries, *, right=False, **_):
    return searchsorted(boundaries, input, right=right)


def einsum(equation, *operands):
    given, arrow, wanted = equation.replace(" ", "").partition("->")
    inputs = given.split(",")
    if "." in equation or any(len(set(labels)) < len(labels) for labels in inputs):
        raise NotHere("torch.einsum with ... or with a letter twice")
    every = "".join(dict.fromkeys(given.replace(",", "")))
    wanted = wanted if arrow else "".join(sorted(one for one in every if given.count(one) == 1))
    order = wanted + "".join(one for one in every if one not in wanted)
    product = None
    for labels, x in zip(inputs, operands, strict=True):
        if len(labels) != x.ndim:
            raise RuntimeError(f"einsum(): {labels} names {len(labels)} of {x.ndim} dimensions")
        x = x.permute([labels.index(one) for one in order if one in labels])
        x = x[tuple(slice(None) if one in labels else None for one in order)]
        product = x if product is None else product * x
    summed = range(len(wanted), len(order))
    return product.sum(tuple(summed)) if summed else product


# --- rooms of torch -------------------------------------------------------------------------------


class Room(type(sys)):
    """A part of torch of which little is here."""

    def __getattr__(self, name):
        if name.startswith("__"):
            raise AttributeError(name)
        raise NotHere(f"{self.__name__}.{name}")


def pad(input, pad, mode="constant", value=0.0):
    if mode != "constant":
        raise NotHere(f"F.pad(mode={mode!r})")
    x = input
    for dim, sides in enumerate(zip(pad[::2], pad[1::2], strict=True), 1):
        ends = [full([*x.shape[: x.ndim - dim], n, *x.shape[x.ndim - dim + 1 :]], value, x.dtype)
                for n in sides]  # fmt: skip
        x = cat([ends[0], x, ends[1]], x.ndim - dim)
    return x


nn, linalg = Room("torch.nn"), Room("torch.linalg")
nn.functional = Room("torch.nn.functional")
for _name in ("softmax", "log_softmax", "sigmoid", "relu", "tanh"):
    setattr(nn.functional, _name, getattr(Tensor, _name))
nn.functional.pad = pad
nn.functional.logsigmoid = lambda x: -(-x).exp().log1p()
linalg.norm = lambda x, ord=2, dim=None, keepdim=False: x.norm(ord, dim, keepdim)
sys.modules |= {room.__name__: room for room in (nn, nn.functional, linalg)}
