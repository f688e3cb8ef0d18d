"""A small tensor in plain Python, which stands in for torch where the page runs an answer.

Numbers lie in one array, as in torch, and views share it; each operation rounds its result to the
precision of its type. What is not here says so by its name. tests/test_practice_page.py holds it to
torch: on every right answer and every stored mistake of the exercises that open in their page.
"""

from __future__ import annotations

import functools
import itertools
import math
import operator
import struct
import sys
from array import array
from collections import namedtuple

KNOWN = {"torch": set(), "Tensor": set()}  # the names that torch has; the page's data fills it
pi, inf, nan, e = math.pi, math.inf, math.nan, math.e
strided = "strided"


class NotHere(AttributeError):
    """The notebook has it, and the page has not."""


def missing(owner, name):
    """Return the error for a name that is not here."""
    if name in KNOWN[owner]:
        return NotHere(f"`{owner}.{name}` is not here; in the notebook it is")
    what = "module 'torch'" if owner == "torch" else "'Tensor' object"
    return AttributeError(f"{what} has no attribute '{name}'")


names = {}  # what torch calls by a name that Python needs here


def __getattr__(name):
    if name in names:
        return names[name]
    raise missing("torch", name)


# --- types ----------------------------------------------------------------------------------------


class dtype:
    def __init__(self, name, kind, code, itemsize, rounded=None):
        self.name, self.kind, self.code, self.itemsize = name, kind, code, itemsize
        self.rounded = rounded

    is_floating_point = property(lambda self: self.kind == 2)
    is_complex = property(lambda self: False)

    def __repr__(self):
        return f"torch.{self.name}"

    def packed(self, values):
        """Return an array of numbers, which are of the kind of this type already."""
        if self.rounded:
            values = map(self.rounded, values)
        try:
            return array(self.code, values)
        except OverflowError:  # as many bits as there are
            raise RuntimeError(f"a number is too large for {self!r}") from None

    def cast(self, values, kind):
        """Return numbers of another kind as numbers of this one."""
        if self.kind == kind:
            return values if self.kind < 2 else self.packed(values)
        if self.kind == 0:
            return [value != 0 for value in values]
        if self.kind == 2:
            return self.packed(map(float, values))
        return [int(v) if math.isfinite(v) else -(2**63) for v in values]


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


bool_ = names["bool"] = dtype("bool", 0, "b", 1)
int16 = short = dtype("int16", 1, "h", 2, lambda v: (v + 2**15) % 2**16 - 2**15)
int32 = dtype("int32", 1, "i", 4, lambda v: (v + 2**31) % 2**32 - 2**31)
int64 = long = dtype("int64", 1, "q", 8)
float16 = half = dtype("float16", 2, "f", 2, to_half)
bfloat16 = dtype("bfloat16", 2, "f", 2, to_bfloat)
float32 = dtype("float32", 2, "f", 4)
float64 = double = dtype("float64", 2, "d", 8)
complex128 = dtype("complex128", 3, "d", 16)  # only to be compared with
TYPES = [bool_, int16, int32, int64, float16, bfloat16, float32, float64]
finfo = namedtuple("finfo", "max min eps tiny bits")
_FINFO = {
    float64: finfo(sys.float_info.max, -sys.float_info.max, 2.0**-52, 2.0**-1022, 64),
    float32: finfo((2 - 2.0**-23) * 2.0**127, -(2 - 2.0**-23) * 2.0**127, 2.0**-23, 2.0**-126, 32),
    bfloat16: finfo((2 - 2.0**-7) * 2.0**127, -(2 - 2.0**-7) * 2.0**127, 2.0**-7, 2.0**-126, 16),
    float16: finfo(65504.0, -65504.0, 2.0**-10, 2.0**-14, 16),
}


def finfo(type=float32):
    return _FINFO[type]


def wider(a, b):
    """Return the type that holds the numbers of both."""
    if {a, b} == {float16, bfloat16}:
        return float32
    return max(a, b, key=TYPES.index)


promote_types = wider


def scalar_type(value):
    if isinstance(value, bool):
        return bool_
    return int64 if isinstance(value, int) else float32


def result_type(*values):
    """Return the type of a result: tensors with axes count first, then others, then numbers."""
    ranks = [None, None, None]
    for value in values:
        tensor_ = isinstance(value, Tensor)
        rank = (0 if value.shape else 1) if tensor_ else 2
        found = value.dtype if tensor_ else scalar_type(value)
        ranks[rank] = found if ranks[rank] is None else wider(ranks[rank], found)
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


# --- a tensor -------------------------------------------------------------------------------------


def contiguous_strides(shape):
    strides, step = [], 1
    for size in reversed(shape):
        strides.append(step)
        step *= max(1, size)
    return tuple(reversed(strides))


def spread(start, axes):
    """Return the places that offsets along several axes lead to, the last axis fastest."""
    places = [start]
    for offsets in axes:
        places = [place + offset for place in places for offset in offsets]
    return places


def steps(size, stride):
    return [stride * number for number in range(size)]


class device:
    type = "cpu"

    def __init__(self, *_):
        pass

    def __repr__(self):
        return "device(type='cpu')"


class Generator:  # the draws are stored, so it draws nothing
    def manual_seed(self, _):
        return self


class Tensor:
    is_nested = is_meta = requires_grad = is_cuda = False
    layout, device, grad = strided, device(), None

    def __init__(self, data, shape, dtype, strides=None, offset=0):
        self._data, self.shape, self.dtype = data, Size(shape), dtype
        self._strides = contiguous_strides(shape) if strides is None else tuple(strides)
        self._offset = offset

    def _view(self, shape, strides, offset=None):
        return Tensor(self._data, shape, self.dtype, strides,
                      self._offset if offset is None else offset)  # fmt: skip

    def _places(self):
        return spread(self._offset, itertools.starmap(steps, zip(self.shape, self._strides)))

    def _flat(self):
        """Return the numbers in order; perhaps the array itself, which is only to be read."""
        if self.is_contiguous():
            end = self._offset + self.numel()
            whole = self._offset == 0 and end == len(self._data)
            return self._data if whole else self._data[self._offset : end]
        return array(self._data.typecode, map(self._data.__getitem__, self._places()))

    def is_contiguous(self):
        wanted = contiguous_strides(self.shape)
        return not self.numel() or all(
            size == 1 or have == want
            for size, have, want in zip(self.shape, self._strides, wanted)
        )  # fmt: skip

    def __getattr__(self, name):
        plain = name[:-1]
        if name.endswith("_") and not name.startswith("_") and hasattr(Tensor, plain):
            return functools.partial(changed, self, getattr(Tensor, plain))
        raise missing("Tensor", name)

    ndim = property(lambda self: len(self.shape))
    T = property(lambda self: self.permute(*reversed(range(self.ndim))))
    mT = property(lambda self: self.transpose(-2, -1))
    real = data = property(lambda self: self)

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

    def same(self, *_, **__):
        return self

    detach = cpu = contiguous_or_self = resolve_conj = to_dense = conj = same

    def contiguous(self):
        return self if self.is_contiguous() else self.clone()

    def clone(self):
        return Tensor(self._flat()[:], self.shape, self.dtype)

    def to(self, *args, dtype=None, **_):
        for value in args:
            if isinstance(value, Tensor):
                value = value.dtype
            dtype = value if hasattr(value, "kind") else dtype
        if dtype is None or dtype is self.dtype:
            return self
        return made(dtype.cast(self._flat(), self.dtype.kind), self.shape, dtype)

    type_as = type = to

    def item(self):
        if self.numel() != 1:
            raise RuntimeError(
                f"a Tensor with {self.numel()} elements cannot be converted to Scalar"
            )
        value = self._flat()[0]
        return value != 0 if self.dtype is bool_ else value

    def tolist(self):
        flat = self._flat()
        flat = [value != 0 for value in flat] if self.dtype is bool_ else list(flat)
        if not self.shape:
            return flat[0]
        for size in reversed(self.shape[1:]):
            flat = [flat[at : at + size] for at in range(0, len(flat), size)] if size else []
        return flat

    def numpy(self):
        raise NotHere("`numpy` is not here; in the notebook it is")

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

    def __round__(self, digits=0):
        return self.round(decimals=digits)

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

    __hash__ = object.__hash__

    def __repr__(self):
        def words(value):
            if isinstance(value, list):
                return f"[{', '.join(map(words, value))}]"
            return f"{value:.4f}" if isinstance(value, float) else str(value)

        usual = self.dtype in (bool_, int64, float32)
        return f"tensor({words(self.tolist())}{'' if usual else f', dtype={self.dtype!r}'})"

    def __format__(self, spec):
        return format(self.item() if not self.shape else repr(self), spec)

    def __getitem__(self, key):
        axes, offset = indexed(self, key)
        if all(offsets is None for _, _, offsets in axes):
            return self._view([a[0] for a in axes], [a[1] for a in axes], offset)
        places = spread(offset, [steps(n, by) if o is None else o for n, by, o in axes])
        shape = [size for sizes, _, _ in axes for size in (sizes if isinstance(sizes, tuple) else (sizes,))]  # fmt: skip
        return Tensor(array(self._data.typecode, map(self._data.__getitem__, places)),
                      shape, self.dtype)  # fmt: skip

    def __setitem__(self, key, value):
        axes, offset = indexed(self, key)
        places = spread(offset, [steps(n, by) if o is None else o for n, by, o in axes])
        shape = [size for sizes, _, _ in axes for size in (sizes if isinstance(sizes, tuple) else (sizes,))]  # fmt: skip
        value = value if isinstance(value, Tensor) else tensor(value)
        while value.ndim > len(shape) and value.shape[0] == 1:
            value = value[0]
        for place, number in zip(places, value.to(self.dtype).expand(*shape)._flat()):
            self._data[place] = number


def made(values, shape, dtype):
    """Return a tensor of numbers that are of the kind of its type already."""
    return Tensor(dtype.packed(values), shape, dtype)


def changed(self, method, *args, **options):
    """Put what a method returns into the tensor itself, as `add_` does."""
    self[...] = method(self, *args, **options)
    return self


Pair = namedtuple("Pair", "values indices")


def indexed(x, key):
    """Return the axes (size, stride, offsets or None) that an index selects, and where it begins.

    Where an axis comes from index tensors, its size is their shape.
    """
    keys = list(key) if isinstance(key, tuple) else [key]
    for at, each in enumerate(keys):
        if isinstance(each, list | range):
            keys[at] = tensor(list(each)).to(int64 if not each else None)
        elif isinstance(each, Tensor) and not each.shape and each.dtype.kind == 1:
            keys[at] = int(each)
    if not all(each is None or each is Ellipsis or isinstance(each, Tensor | slice | int)
               and not isinstance(each, bool) for each in keys):  # fmt: skip
        raise IndexError("an index must be an int, a slice, None, ... or a tensor of integers or "
                         "of True and False")  # fmt: skip
    masks = [each for each in keys if isinstance(each, Tensor) and each.dtype is bool_]
    used = sum(each is not None and each is not Ellipsis for each in keys)
    used += sum(mask.ndim - 1 for mask in masks)
    if used > x.ndim:
        raise IndexError(f"too many indices for tensor of dimension {x.ndim}")
    rest = [slice(None)] * (x.ndim - used)
    where_ = next((at for at, each in enumerate(keys) if each is Ellipsis), len(keys))
    keys[where_ : where_ + 1] = rest
    axes, offset, dim, chosen = [], x._offset, 0, []
    for each in keys:
        if each is None:
            axes.append((1, 0, None))
            continue
        size, stride = (x.shape[dim], x._strides[dim]) if dim < x.ndim else (1, 0)
        if isinstance(each, slice):
            if each.step is not None and each.step <= 0:
                raise ValueError("step must be greater than zero")
            start, stop, step = each.indices(size)
            axes.append((max(0, -(-(stop - start) // step)), stride * step, None))
            offset += start * stride
        elif isinstance(each, Tensor) and each.dtype is bool_:
            if each.shape != x.shape[dim : dim + each.ndim]:
                raise IndexError(f"The shape of the mask {list(each.shape)} does not match the "
                                 f"shape of the indexed tensor {list(x.shape)}")  # fmt: skip
            for at, one in enumerate(each.nonzero().unbind(1)):
                chosen.append((one, x.shape[dim + at], x._strides[dim + at], len(axes)))
            dim += each.ndim - 1
        elif isinstance(each, Tensor):
            if each.dtype.kind == 2:
                raise IndexError("tensors used as indices must be long, int, byte or bool_ tensors")
            chosen.append((each, size, stride, len(axes)))
        else:
            if not -size <= each < size:
                raise IndexError(
                    f"index {each} is out of bounds for dimension {dim} with size {size}"
                )
            offset += each % size * stride
        dim += 1
    if chosen:
        places = [at for *_, at in chosen]
        axes.insert(places[0] if len(set(places)) == 1 else 0, gathered(chosen))
    return axes, offset


def gathered(chosen):
    """Return the axis that several index tensors make together."""
    shape = broadcast_shapes(*(index.shape for index, *_ in chosen))
    offsets = [0] * math.prod(shape)
    for index, size, stride, _ in chosen:
        numbers = index.expand(*shape)._flat()
        for number in numbers:
            if not -size <= number < size:
                raise IndexError(f"index {number} is out of bounds for dimension with size {size}")
        offsets = [have + number % size * stride for have, number in zip(offsets, numbers)]
    return tuple(shape), 0, offsets


# --- making tensors -------------------------------------------------------------------------------


def leaves(value, shape, found):
    """Collect the numbers of nested lists, and their shape."""
    if isinstance(value, list | tuple | range):
        shapes = []
        for each in value:
            shapes.append(leaves(each, shape, found))
        if any(one != shapes[0] for one in shapes):
            raise ValueError("expected sequences of equal lengths")
        return (len(value), *(shapes[0] if shapes else ()))
    if isinstance(value, Tensor):
        if value.numel() != 1:
            raise ValueError("only one element tensors can be converted to Python scalars")
        value = (value.item(), value.dtype)
    elif isinstance(value, int | float):
        value = (value, scalar_type(value))
    else:
        raise TypeError(f"'{type(value).__name__}' object is no number")
    found.append(value)
    return ()


def tensor(data, dtype=None, device=None, requires_grad=False):
    if isinstance(data, Tensor):
        return data.clone().to(dtype)
    found = []
    shape = leaves(data, (), found)
    if dtype is None:
        dtype = functools.reduce(wider, [kind for _, kind in found]) if found else float32
    return made(converted([value for value, _ in found], dtype), shape, dtype)


def converted(values, dtype):
    """Return Python's numbers as numbers of a type."""
    if dtype.kind == 0:
        return [value != 0 for value in values]
    if dtype.kind == 1:
        return [int(value) for value in values]
    return [float(value) for value in values]


def as_tensor(data, dtype=None, device=None):
    return data.to(dtype) if isinstance(data, Tensor) else tensor(data, dtype)


def sizes(shape):
    given = shape[0] if len(shape) == 1 and isinstance(shape[0], list | tuple) else shape
    return tuple(map(operator.index, given))


def full(size, fill_value, dtype=None, device=None):
    shape = sizes((size,))
    value = fill_value.item() if isinstance(fill_value, Tensor) else fill_value
    dtype = dtype or scalar_type(value)
    return made(converted([value], dtype) * math.prod(shape), shape, dtype)


def zeros(*size, dtype=float32, device=None, **_):
    return full(sizes(size), 0, dtype)


def ones(*size, dtype=float32, device=None, **_):
    return full(sizes(size), 1, dtype)


empty = zeros


def eye(n, m=None, dtype=float32, device=None):
    m = n if m is None else m
    return made(converted([i == j for i in range(n) for j in range(m)], dtype), (n, m), dtype)


def arange(start, end=None, step=1, dtype=None, device=None):
    start, end = (0, start) if end is None else (start, end)
    start, end, step = (v.item() if isinstance(v, Tensor) else v for v in (start, end, step))
    count = max(0, math.ceil((end - start) / step))
    values = [start + number * step for number in range(count)]
    dtype = dtype or result_type(start, end, step)
    return made(converted(values, dtype), (count,), dtype)


def linspace(start, end, steps, dtype=float32, device=None):
    start, end = float(start), float(end)
    by = (end - start) / max(1, steps - 1)
    values = [start + n * by if n < steps / 2 else end - (steps - 1 - n) * by for n in range(steps)]
    return made(converted(values, dtype), (steps,), dtype)


def like(make):
    return lambda x, *given, dtype=None, **_: make(x.shape, *given, dtype=dtype or x.dtype)


zeros_like, ones_like, empty_like, full_like = map(like, (zeros, ones, empty, full))
Tensor.new_zeros = lambda self, *size, dtype=None: zeros(*size, dtype=dtype or self.dtype)
Tensor.new_ones = lambda self, *size, dtype=None: ones(*size, dtype=dtype or self.dtype)
Tensor.new_tensor = lambda self, data, dtype=None: tensor(data, dtype or self.dtype)
Tensor.new_full = lambda self, size, value, dtype=None: full(size, value, dtype or self.dtype)


def both(function):
    """Let a function be torch's and a method of tensors, by its name without a last `_`."""
    name = function.__name__.rstrip("_")
    names[name] = function
    setattr(Tensor, name, function)
    return function


# --- shapes ---------------------------------------------------------------------------------------


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


def axis(x, dim, more=0):
    count = max(1, x.ndim + more)
    if not -count <= dim < count:
        raise IndexError(f"Dimension out of range (expected to be in range of [{-count}, "
                         f"{count - 1}], but got {dim})")  # fmt: skip
    return dim % count


@both
def expand(x, *shape):
    shape = list(sizes(shape))
    old = [1] * (len(shape) - x.ndim) + list(x.shape)
    strides = [0] * (len(shape) - x.ndim) + list(x._strides)
    if len(old) != len(shape):
        raise RuntimeError(
            f"expand: the number of sizes provided ({len(shape)}) must be greater "
            f"or equal to the number of dimensions in the tensor ({x.ndim})"
        )
    for dim, (have, want) in enumerate(zip(old, shape)):
        if want == -1:
            shape[dim] = have
        elif have == 1 and want != 1:
            strides[dim] = 0
        elif have != want:
            raise RuntimeError(
                f"The expanded size of the tensor ({want}) must match the existing size ({have}) "
                f"at non-singleton dimension {dim}"
            )
    return x._view(shape, strides)


broadcast_to = Tensor.broadcast_to = expand
Tensor.expand_as = lambda self, other: self.expand(*other.shape)


def filled(shape, count):
    """Return a shape with its -1 worked out."""
    shape = list(shape)
    if -1 in shape:
        known = math.prod(size for size in shape if size != -1)
        shape[shape.index(-1)] = count // known if known else 0
    if math.prod(shape) != count:
        raise RuntimeError(f"shape '{shape}' is invalid for input of size {count}")
    return shape


def view_strides(x, shape):
    """Return strides that show the same numbers in another shape; None if there are none."""
    strides, at = [0] * len(shape), len(shape) - 1
    base, have, shown = (x._strides or (1,))[-1], 1, 1
    for dim in range(x.ndim - 1, -1, -1):
        have *= x.shape[dim]
        if dim == 0 or (x.shape[dim - 1] != 1 and x._strides[dim - 1] != have * base):
            while at >= 0 and (shown < have or shape[at] == 1):
                strides[at] = shown * base
                shown *= shape[at]
                at -= 1
            if shown != have:
                return None
            base, have, shown = x._strides[dim - 1], 1, 1
    return strides if at < 0 else None


@both
def view(x, *shape):
    if shape and hasattr(shape[0], "kind"):
        raise NotHere("`Tensor.view` with a type is not here; in the notebook it is")
    shape = filled(sizes(shape), x.numel())
    strides = contiguous_strides(shape) if x.is_contiguous() else view_strides(x, shape)
    if strides is None:
        raise RuntimeError("view size is not compatible with input tensor's size and stride (at "
                           "least one dimension spans across two contiguous subspaces). Use "
                           ".reshape(...) instead.")  # fmt: skip
    return x._view(shape, strides)


Tensor.view_as = lambda self, other: self.view(other.shape)


@both
def reshape(x, *shape):
    shape = filled(sizes(shape), x.numel())
    if not x.is_contiguous() and view_strides(x, shape) is None:
        x = x.clone()
    return x.view(shape)


@both
def flatten(x, start_dim=0, end_dim=-1):
    a, b = axis(x, start_dim), axis(x, end_dim)
    return x.reshape(*x.shape[:a], math.prod(x.shape[a : b + 1]), *x.shape[b + 1 :])


ravel = Tensor.ravel = flatten


@both
def unflatten(x, dim, sizes):
    dim = axis(x, dim)
    return x.view(*x.shape[:dim], *filled(sizes, x.shape[dim]), *x.shape[dim + 1 :])


@both
def permute(x, *dims):
    dims = [axis(x, dim) for dim in sizes(dims)]
    if sorted(dims) != list(range(x.ndim)):
        raise RuntimeError("permute: the number of dimensions must match, each of them once")
    return x._view([x.shape[dim] for dim in dims], [x._strides[dim] for dim in dims])


@both
def transpose(x, dim0, dim1):
    order = list(range(x.ndim))
    a, b = axis(x, dim0), axis(x, dim1)
    if order:
        order[a], order[b] = order[b], order[a]
    return x.permute(*order)


swapaxes = Tensor.swapaxes = transpose


@both
def t(x):
    return x.T


@both
def movedim(x, source, destination):
    order = list(range(x.ndim))
    order.insert(axis(x, destination), order.pop(axis(x, source)))
    return x.permute(*order)


@both
def unsqueeze(x, dim):
    return x[(slice(None),) * axis(x, dim, 1) + (None,)]


@both
def squeeze(x, dim=None):
    gone = range(x.ndim) if dim is None else [axis(x, dim)]
    kept = [at for at in range(x.ndim) if at not in gone or x.shape[at] != 1]
    return x._view([x.shape[at] for at in kept], [x._strides[at] for at in kept])


@both
def narrow(x, dim, start, length):
    return x[(slice(None),) * axis(x, dim) + (slice(start, start + length),)]


@both
def select(x, dim, index):
    return x[(slice(None),) * axis(x, dim) + (index,)]


@both
def unbind(x, dim=0):
    return tuple(x.select(dim, number) for number in range(x.shape[dim]))


@both
def split(x, split_size, dim=0):
    size = x.shape[dim]
    parts = split_size if isinstance(split_size, list | tuple) else [
        min(split_size, size - at) for at in range(0, size, split_size)]  # fmt: skip
    begins = itertools.accumulate(parts, initial=0)
    return tuple(x.narrow(dim, begin, part) for begin, part in zip(begins, parts))


@both
def chunk(x, chunks, dim=0):
    return x.split(-(-x.shape[dim] // chunks), dim)


@both
def index_select(x, dim, index):
    return x[(slice(None),) * axis(x, dim) + (index,)]


@both
def flip(x, *dims):
    for dim in sizes(dims):
        x = x.index_select(dim, list(reversed(range(x.shape[dim]))))
    return x.clone()


@both
def roll(x, shifts, dims=None):
    if dims is None:
        return x.flatten().roll(shifts, 0).view(x.shape)
    for shift, dim in zip(*((v,) if isinstance(v, int) else v for v in (shifts, dims))):
        size = x.shape[dim]
        x = x.index_select(dim, [(number - shift) % size for number in range(size)])
    return x


@both
def diagonal(x, offset=0, dim1=0, dim2=1):
    a, b = axis(x, dim1), axis(x, dim2)
    size = max(0, min(x.shape[a] + min(0, offset), x.shape[b] - max(0, offset)))
    rest = [dim for dim in range(x.ndim) if dim not in (a, b)]
    start = x._offset + max(0, offset) * x._strides[b] - min(0, offset) * x._strides[a]
    return x._view(
        [*(x.shape[dim] for dim in rest), size],
        [*(x._strides[dim] for dim in rest), x._strides[a] + x._strides[b]],
        start,
    )


@both
def repeat(x, *counts):
    counts = sizes(counts)
    x = x[(None,) * (len(counts) - x.ndim)]
    for dim, count in enumerate(counts):
        x = cat([x] * count, dim)
    return x


@both
def repeat_interleave(x, repeats, dim=None):
    x, dim = (x.flatten(), 0) if dim is None else (x, dim)
    counts = repeats.tolist() if isinstance(repeats, Tensor) else [repeats] * x.shape[dim]
    return x.index_select(dim, [n for n, count in enumerate(counts) for _ in range(count)])


def cat(tensors, dim=0):
    tensors = list(tensors)
    dtype = functools.reduce(wider, [x.dtype for x in tensors])
    parts = [x.to(dtype) for x in tensors if x.shape != (0,)] or tensors[:1]
    dim = axis(parts[0], dim)
    for x in parts:
        if x.ndim != parts[0].ndim or any(a != b for at, (a, b) in enumerate(
                zip(x.shape, parts[0].shape)) if at != dim):  # fmt: skip
            raise RuntimeError(f"Sizes of tensors must match except in dimension {dim}: "
                               f"{list(parts[0].shape)} and {list(x.shape)}")  # fmt: skip
    moved = [x.movedim(dim, 0) for x in parts]
    data = array(dtype.code)
    for x in moved:
        data.extend(x._flat())
    shape = (sum(len(x) for x in moved), *moved[0].shape[1:])
    return Tensor(data, shape, dtype).movedim(0, dim)


concat = concatenate = cat


def stack(tensors, dim=0):
    tensors = list(tensors)
    if any(x.shape != tensors[0].shape for x in tensors):
        raise RuntimeError("stack expects each tensor to be equal size")
    return cat([x.unsqueeze(dim) for x in tensors], axis(tensors[0], dim, 1))


def meshgrid(*tensors, indexing="ij"):
    shape = [len(x) for x in tensors]
    return tuple(x.view([-1 if at == dim else 1 for at in range(len(shape))]).expand(shape)
                 for dim, x in enumerate(tensors))  # fmt: skip


def triangle(x, keep):
    rows, columns = x.shape[-2:]
    mask = tensor([[keep(i, j) for j in range(columns)] for i in range(rows)])
    return where(mask, x, zeros((), dtype=x.dtype))


@both
def tril(x, diagonal=0):
    return triangle(x, lambda i, j: j - i <= diagonal)


@both
def triu(x, diagonal=0):
    return triangle(x, lambda i, j: j - i >= diagonal)


# --- number by number -----------------------------------------------------------------------------


def values_of(x, shape, dtype):
    """Return the numbers of a tensor, or one number again and again, as a type and a shape."""
    if not isinstance(x, Tensor):
        return itertools.repeat(dtype.packed(converted([x], dtype))[0])
    return x.to(dtype).expand(*shape)._flat()


def binary(function, a, b, result=None, within=None):
    """Apply a function of two numbers.

    Args:
        function: of two of Python's numbers.
        a, b: tensors or numbers.
        result: type of what it returns, if not that of the numbers.
        within: type in which it is computed, if not the usual one.
    """
    for x in (a, b):
        if not isinstance(x, Tensor | int | float):
            return NotImplemented
    dtype = within or result_type(a, b)
    shape = broadcast_shapes(*(x.shape for x in (a, b) if isinstance(x, Tensor)))
    values = map(function, values_of(a, shape, dtype), values_of(b, shape, dtype))
    if not any(isinstance(x, Tensor) for x in (a, b)):
        raise TypeError("one of the two must be a Tensor")
    return made(values, shape, result or dtype)


def quotient(a, b):
    try:
        return a / b
    except ZeroDivisionError:
        if a != a or a == 0:
            return nan
        return math.copysign(inf, a) * math.copysign(1.0, b)


def power(a, b):
    try:
        return a**b if type(a) is int and b >= 0 else math.pow(a, b)
    except OverflowError:
        return -inf if a < 0 and b % 2 == 1 else inf
    except ValueError:
        return inf if a == 0 else nan


def modulo(a, b):
    return a % b if b else nan


def divide(a, b):
    kind = result_type(a, b) if isinstance(a, Tensor | int | float) and isinstance(
        b, Tensor | int | float) else float32  # fmt: skip
    return binary(quotient, a, b, within=kind if kind.kind == 2 else float32)


def smaller(a, b):
    return a if a != a or a <= b else b


def larger(a, b):
    return a if a != a or a >= b else b


ARITHMETIC = {
    "add": operator.add, "sub": operator.sub, "mul": operator.mul, "pow": power,
    "floordiv": lambda a, b: a // b if b else nan, "mod": modulo,
}  # fmt: skip
LOGIC = {"and": operator.and_, "or": operator.or_, "xor": operator.xor}
COMPARE = {"eq": "==", "ne": "!=", "lt": "<", "le": "<=", "gt": ">", "ge": ">="}
OTHER_NAMES = {
    "add": ("add",), "sub": ("sub", "subtract"), "mul": ("mul", "multiply"), "pow": ("pow",),
    "mod": ("remainder",), "floordiv": ("floor_divide",), "truediv": ("div", "divide", "true_divide"),
    "and": ("bitwise_and",), "or": ("bitwise_or",), "xor": ("bitwise_xor",),
    "eq": ("eq",), "ne": ("ne",), "lt": ("lt", "less"), "le": ("le", "less_equal"),
    "gt": ("gt", "greater"), "ge": ("ge", "greater_equal"),
}  # fmt: skip


def operation(name, forward):
    """Give tensors an operator, its reverse, its form in place, and its names."""
    setattr(Tensor, f"__{name}__", forward)
    if name not in COMPARE:
        setattr(Tensor, f"__r{name}__", lambda self, other: forward(other, self))
        setattr(Tensor, f"__i{name}__", lambda self, other: in_place(self, forward, other))
    for other in OTHER_NAMES.get(name, ()):
        setattr(Tensor, other, forward)
        names[other] = forward


def in_place(self, forward, other):
    found = forward(self, other)
    if found.dtype.kind > self.dtype.kind:
        raise RuntimeError(
            f"result type {found.dtype.name} can't be cast to the desired output type "
            f"{self.dtype.name}"
        )
    self[...] = found
    return self


for _name, _function in {**ARITHMETIC, **LOGIC}.items():
    operation(_name, lambda a, b, function=_function: binary(function, a, b))
for _name in COMPARE:
    operation(_name, lambda a, b, function=getattr(operator, _name): binary(function, a, b, bool_))
operation("truediv", divide)
maximum = Tensor.maximum = lambda a, b: binary(larger, a, b)
minimum = Tensor.minimum = lambda a, b: binary(smaller, a, b)
Tensor.__invert__ = lambda self: self.logical_not() if self.dtype is bool_ else -1 - self
Tensor.__neg__ = lambda self: self.neg()
Tensor.__abs__ = lambda self: self.abs()
Tensor.__pos__ = Tensor.same
rsub = Tensor.rsub = lambda a, b: b - a


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


def logarithm(function):
    return lambda x: function(x) if x > 0 else -inf if x == 0 else nan


def sigmoid_of(x):
    return 1 / (1 + math.exp(-x)) if x > 0 else safely(math.exp)(x) / (1 + math.exp(x))


FLOATS = {  # of a number, whose value is a fraction
    **{name: safely(getattr(math, name)) for name in (
        "sin", "cos", "tan", "exp", "expm1", "asin", "acos", "atan", "sinh", "cosh", "tanh",
        "sqrt", "exp2", "erf")
       if hasattr(math, name)},
    **{name: logarithm(getattr(math, name)) for name in ("log", "log2", "log10")},
    "log1p": lambda x: math.log1p(x) if x > -1 else -inf if x == -1 else nan,
    "rsqrt": lambda x: 1 / math.sqrt(x) if x > 0 else inf if x == 0 else nan,
    "reciprocal": lambda x: quotient(1.0, x), "sigmoid": sigmoid_of,
    "deg2rad": math.radians, "rad2deg": math.degrees,
    "logit": lambda x: logarithm(math.log)(quotient(x, 1 - x)),
    "logsigmoid": lambda x: min(x, 0.0) - math.log1p(math.exp(-abs(x))),
}  # fmt: skip
SAME = {  # whose value is of the same type
    "neg": operator.neg, "abs": abs, "square": lambda x: x * x,
    "sign": lambda x: (x > 0) - (x < 0) if type(x) is int else float((x > 0) - (x < 0)),
    "floor": lambda x: float(math.floor(x)) if math.isfinite(x) else x,
    "ceil": lambda x: float(math.ceil(x)) if math.isfinite(x) else x,
    "trunc": lambda x: float(math.trunc(x)) if math.isfinite(x) else x,
    "frac": lambda x: x - math.trunc(x), "relu": lambda x: max(x, type(x)(0)),
}  # fmt: skip
TRUTHS = {
    "isnan": math.isnan, "isinf": math.isinf, "isfinite": math.isfinite,
    "logical_not": operator.not_,
}  # fmt: skip


def unary(name, function, rule):
    def apply(x):
        if not isinstance(x, Tensor):
            raise TypeError(f"{name}(): argument 'input' must be Tensor, not {type(x).__name__}")
        if rule == "float" and x.dtype.kind < 2:
            x = x.to(float32)
        exact = x.dtype.kind < 2 and name in ("floor", "ceil", "trunc", "round")
        dtype = bool_ if rule == "truth" else x.dtype
        return x.clone() if exact else made(map(function, x._flat()), x.shape, dtype)

    apply.__name__ = name
    return both(apply)


for _rule, _table in (("float", FLOATS), ("same", SAME), ("truth", TRUTHS)):
    for _name, _function in _table.items():
        unary(_name, _function, _rule)
for _name, _dtype in (
    ("double", float64),
    ("float", float32),
    ("half", float16),
    ("long", int64),
    ("int", int32),
    ("bool", bool_),
    ("bfloat16", bfloat16),
    ("short", int16),
):
    setattr(Tensor, _name, lambda self, dtype=_dtype: self.to(dtype))
atan2 = arctan2 = Tensor.atan2 = lambda a, b: binary(math.atan2, a, b)
hypot = Tensor.hypot = lambda a, b: binary(math.hypot, a, b)
fmod = Tensor.fmod = lambda a, b: binary(math.fmod, a, b)
for _name in LOGIC:
    names[f"logical_{_name}"] = lambda a, b, function=LOGIC[_name]: binary(
        function, a.bool(), b.bool())  # fmt: skip
    setattr(Tensor, f"logical_{_name}", names[f"logical_{_name}"])


@both
def round_(x, decimals=0):
    if x.dtype.kind < 2:
        return x.clone()
    by = 10.0**decimals
    whole = [float(round(v * by)) / by if math.isfinite(v) else v for v in x._flat()]
    return made(whole, x.shape, x.dtype)


@both
def clamp(x, min=None, max=None):
    x = x if min is None else binary(larger, x, min)
    return x if max is None else binary(smaller, x, max)


clip = Tensor.clip = clamp


@both
def nan_to_num(x, nan=0.0, posinf=None, neginf=None):
    most = finfo(x.dtype).max
    instead = {inf: most if posinf is None else posinf, -inf: -most if neginf is None else neginf}
    return made([nan if v != v else instead.get(v, v) for v in x._flat()], x.shape, x.dtype)


def where(condition, a=None, b=None):
    if a is None:
        return condition.nonzero().unbind(1)
    dtype = result_type(a, b)
    shape = broadcast_shapes(*(x.shape for x in (condition, a, b) if isinstance(x, Tensor)))
    chosen = zip(condition.expand(*shape)._flat(), values_of(a, shape, dtype),
                 values_of(b, shape, dtype))  # fmt: skip
    return made([x if yes else y for yes, x, y in chosen], shape, dtype)


Tensor.where = lambda self, condition, other: where(condition, self, other)


@both
def masked_fill(x, mask, value):
    if mask.dtype is not bool_:
        raise RuntimeError("masked_fill_ only supports boolean masks, but got mask with dtype "
                           f"{mask.dtype.name}")  # fmt: skip
    return where(mask, full((), value, x.dtype), x).to(x.dtype)


@both
def lerp(x, end, weight):
    return x + weight * (end - x)


def isclose(a, b, rtol=1e-5, atol=1e-8, equal_nan=False):
    def near(x, y):
        if x == y or (equal_nan and x != x and y != y):
            return True
        return math.isfinite(x) and math.isfinite(y) and abs(x - y) <= atol + rtol * abs(y)

    if a.dtype is not b.dtype:
        raise RuntimeError(f"{a.dtype.name} did not match {b.dtype.name}")
    return binary(near, a, b, bool_)


def allclose(a, b, rtol=1e-5, atol=1e-8, equal_nan=False):
    return bool(isclose(a, b, rtol, atol, equal_nan).all())


def equal(a, b):
    return a.shape == b.shape and all(map(operator.eq, a._flat(), b._flat()))


Tensor.isclose, Tensor.allclose, Tensor.equal = isclose, allclose, equal


# --- along axes -----------------------------------------------------------------------------------


def rows(x, dim, keepdim):
    """Return the rows of numbers along axes, and the shape of what has one number for each."""
    if dim is None:
        dims = list(range(x.ndim))
    else:
        dims = [axis(x, each) for each in ((dim,) if isinstance(dim, int) else dim)]
    rest = [at for at in range(x.ndim) if at not in dims]
    flat = x.permute(*rest, *dims)._flat() if x.ndim else x._flat()
    length = math.prod(x.shape[at] for at in dims) if x.ndim else 1
    shape = [1 if at in dims else x.shape[at] for at in range(x.ndim) if at in rest or keepdim]
    count = math.prod(x.shape[at] for at in rest)
    return [flat[at * length : (at + 1) * length] for at in range(count)], shape


def reduction(name, function, kind):
    """Make a function of rows; `kind` says of which type its values are."""

    def reduce(x, dim=None, keepdim=False, dtype=None):
        if dtype is not None:
            x = x.to(dtype)
        if kind == "float" and x.dtype.kind < 2:
            raise RuntimeError(f"{name}(): the input must be floating point, got {x.dtype.name}")
        result = {"truth": bool_, "index": int64}.get(kind, x.dtype)
        if kind == "sum" and x.dtype.kind < 2:
            result = int64
        found, shape = rows(x, dim, keepdim)
        if kind in ("index", "one") and any(not len(row) for row in found):
            raise IndexError(f"{name}(): an axis without numbers has none to reduce to")
        return made(map(function, found), shape, result)

    reduce.__name__ = name
    return both(reduce)


def extreme(best):
    def found(row):
        return best(row) if row == row and not any(v != v for v in row) else nan

    return found


def place_of(best):
    def found(row):
        odd = next((at for at, v in enumerate(row) if v != v), None)
        return row.index(best(row)) if odd is None else odd

    return found


def deviation(row, correction):
    mean_ = math.fsum(row) / len(row)
    return safely(math.sqrt)(
        quotient(math.fsum((v - mean_) ** 2 for v in row), float(len(row) - correction))
    )


def log_sum(row):
    top = max(row)
    return top if not math.isfinite(top) else top + math.log(sum(math.exp(v - top) for v in row))


for _name, _function, _kind in (
    ("mean", lambda row: quotient(math.fsum(row) if all(map(math.isfinite, row)) else sum(row),
                                  len(row)), "float"),
    ("prod", math.prod, "sum"), ("logsumexp", log_sum, "float"),
    ("amax", extreme(max), "one"), ("amin", extreme(min), "one"),
    ("argmax", place_of(max), "index"), ("argmin", place_of(min), "index"),
    ("count_nonzero", lambda row: sum(v != 0 for v in row), "sum"),
    ("sum", sum, "sum"), ("any", any, "truth"), ("all", all, "truth"),
):  # fmt: skip
    reduction(_name, _function, _kind)


def extremes(name):
    """Make max and min, which have three forms."""

    def apply(x, dim=None, keepdim=False):
        if isinstance(dim, Tensor):
            return (maximum if name == "max" else minimum)(x, dim)
        if dim is None:
            return getattr(x, f"a{name}")()
        return Pair(*(getattr(x, f"{kind}{name}")(dim, keepdim) for kind in ("a", "arg")))

    apply.__name__ = name
    return both(apply)


extremes("max"), extremes("min")


@both
def std(x, dim=None, correction=1, keepdim=False, unbiased=None):
    return x.var(dim, correction, keepdim, unbiased).sqrt()


@both
def var(x, dim=None, correction=1, keepdim=False, unbiased=None):
    count = x.numel() if dim is None else math.prod(x.shape[d] for d in sizes((dim,)))
    less = int(unbiased) if unbiased is not None else correction
    centred = x - x.mean(dim, keepdim=True) if x.ndim else x - x
    return centred.square().sum(dim, keepdim) / max(0, count - less)


@both
def norm(x, p=2, dim=None, keepdim=False):
    if p in (inf, "inf"):
        return x.abs().amax(dim, keepdim)
    return (x.abs() ** (2 if p == "fro" else p)).sum(dim, keepdim) ** (1 / (2 if p == "fro" else p))


def along(x, dim, function, dtype=None):
    """Apply a function to each row of numbers along an axis; it returns a row."""
    dim = axis(x, dim)
    found, shape = rows(x, dim, False)
    new = [function(row) for row in found]
    length = len(new[0]) if new else x.shape[dim] if x.ndim else 1
    whole = made(itertools.chain.from_iterable(new), [*shape, length], dtype or x.dtype)
    return whole.movedim(-1, dim) if x.ndim else whole.view(())


def weights_of(row):
    top = max(row)
    if top != top or math.isinf(top):  # nothing but minus infinity, or an infinite one
        return [nan] * len(row)
    powers = [math.exp(value - top) for value in row]
    total = math.fsum(powers)
    return [each / total for each in powers]


@both
def softmax(x, dim, dtype=None):
    x = x.to(dtype)
    if x.dtype.kind < 2:
        raise NotImplementedError(f'"softmax" not implemented for {x.dtype.name}')
    return along(x, dim, weights_of)


@both
def log_softmax(x, dim, dtype=None):
    x = x.to(dtype)
    return x - x.logsumexp(dim, keepdim=True)


@both
def cumsum(x, dim, dtype=None):
    x = x.to(dtype or (int64 if x.dtype.kind < 2 else x.dtype))
    return along(x, dim, lambda row: list(itertools.accumulate(row)))


@both
def cumprod(x, dim):
    return along(x, dim, lambda row: list(itertools.accumulate(row, operator.mul)))


def so_far(best):
    def apply(x, dim):
        values = along(x, dim, lambda row: list(itertools.accumulate(row, best)))

        def last(row):
            places = [0]
            for at in range(1, len(row)):
                places.append(at if best(row[places[-1]], row[at]) == row[at] else places[-1])
            return places

        return Pair(values, along(x, dim, last, int64))

    return apply


cummax = Tensor.cummax = so_far(max)
cummin = Tensor.cummin = so_far(min)


def order_of(row, descending):
    key = (lambda at: (row[at] == row[at], -row[at])) if descending else (
        lambda at: (row[at] != row[at], row[at]))  # fmt: skip
    return sorted(range(len(row)), key=key)


@both
def argsort(x, dim=-1, descending=False, stable=False):
    return along(x, dim, lambda row: order_of(row, descending), int64)


@both
def sort(x, dim=-1, descending=False, stable=False):
    order = x.argsort(dim, descending)
    return Pair(x.gather(dim, order) if x.ndim else x, order)


@both
def topk(x, k, dim=-1, largest=True, sorted=True):
    return Pair(*(each.narrow(dim, 0, k) for each in x.sort(dim, descending=largest)))


@both
def gather(x, dim, index):
    dim = axis(x, dim)
    places = [arange(size).view([-1 if at == other else 1 for other in range(x.ndim)])
              for at, size in enumerate(index.shape)]  # fmt: skip
    places[dim] = index
    return x[tuple(places)]


take_along_dim = Tensor.take_along_dim = lambda x, index, dim: gather(x, dim, index)


@both
def diff(x, n=1, dim=-1, prepend=None, append=None):
    x = cat([each for each in (prepend, x, append) if each is not None], dim)
    for _ in range(n):
        size = x.shape[dim]
        later, earlier = x.narrow(dim, 1, size - 1), x.narrow(dim, 0, size - 1)
        x = later != earlier if x.dtype is bool_ else later - earlier
    return x


@both
def nonzero(x, as_tuple=False):
    flat = x._flat()
    places = itertools.product(*map(range, x.shape))
    found = tensor([list(place) for place, value in zip(places, flat) if value], dtype=int64)
    found = found.view(-1, x.ndim) if x.ndim else found.view(-1, 0)
    return found.unbind(1) if as_tuple else found


@both
def outer(a, b):
    return a[:, None] * b


@both
def trace(x):
    return x.diagonal().sum()


@both
def matmul(a, b):
    if not isinstance(b, Tensor):
        return NotImplemented
    if a.dtype is not b.dtype:
        raise RuntimeError("expected m1 and m2 to have the same dtype, but got: "
                           f"{a.dtype.name} != {b.dtype.name}")  # fmt: skip
    if not a.ndim or not b.ndim:
        raise RuntimeError("both arguments to matmul need to be at least 1D")
    left, right = a[None] if a.ndim == 1 else a, b[:, None] if b.ndim == 1 else b
    (n, k), (inner, m) = left.shape[-2:], right.shape[-2:]
    if k != inner:
        raise RuntimeError(f"mat1 and mat2 shapes cannot be multiplied ({n}x{k} and {inner}x{m})")
    batch = broadcast_shapes(left.shape[:-2], right.shape[:-2])
    one = left.expand(*batch, n, k)._flat()
    other = right.mT.expand(*batch, m, k)._flat()
    lines = [one[at * k : at * k + k] for at in range(math.prod(batch) * n)]
    columns = [other[at * k : at * k + k] for at in range(math.prod(batch) * m)]
    values = [sum(map(operator.mul, lines[each * n + i], columns[each * m + j]))
              for each in range(math.prod(batch)) for i in range(n) for j in range(m)]  # fmt: skip
    found = made(map(float, values) if a.dtype.kind == 2 else values, [*batch, n, m], a.dtype)
    found = found[..., 0] if b.ndim == 1 else found
    return found.select(b.ndim > 1 and -2 or -1, 0) if a.ndim == 1 else found


mm = Tensor.mm = bmm = Tensor.bmm = dot = Tensor.dot = mv = Tensor.mv = matmul
Tensor.__matmul__ = matmul


def einsum(equation, *operands):
    equation = equation.replace(" ", "")
    given, _, wanted = equation.partition("->")
    inputs = given.split(",")
    if "." in equation or any(len(set(labels)) < len(labels) for labels in inputs):
        raise NotHere(
            "`torch.einsum` with ... or a letter twice is not here; in the notebook it is"
        )
    every = "".join(dict.fromkeys(given.replace(",", "")))
    if "->" not in equation:
        wanted = "".join(sorted(one for one in every if given.count(one) == 1))
    order = wanted + "".join(one for one in every if one not in wanted)
    product = None
    for labels, x in zip(inputs, operands):
        if len(labels) != x.ndim:
            raise RuntimeError(f"einsum(): {labels} names {len(labels)} axes of {x.ndim}")
        x = x.permute(*(labels.index(one) for one in order if one in labels))
        x = x[tuple(slice(None) if one in labels else None for one in order)]
        product = x if product is None else product * x
    summed = list(range(len(wanted), len(order)))
    return product.sum(summed) if summed else product


def cdist(a, b, p=2.0):
    gap = (a.unsqueeze(-2) - b.unsqueeze(-3)).double()
    return gap.norm(p, dim=-1).to(a.dtype)


# --- rooms of torch -------------------------------------------------------------------------------


class Room(type(sys)):
    """A part of torch of which little is here."""

    def __getattr__(self, name):
        if name.startswith("__"):
            raise AttributeError(name)
        raise NotHere(f"`{self.__name__}.{name}` is not here; in the notebook it is")


def pad(x, pad, mode="constant", value=0.0):
    if mode != "constant":
        raise NotHere("`F.pad` with a mode is not here; in the notebook it is")
    for dim, (before, after) in enumerate(zip(pad[::2], pad[1::2]), 1):
        sides = [full([*x.shape[: x.ndim - dim], n, *x.shape[x.ndim - dim + 1 :]], value, x.dtype)
                 for n in (before, after)]  # fmt: skip
        x = cat([sides[0], x, sides[1]], -dim)
    return x


def one_hot(x, num_classes=-1):
    count = int(x.max()) + 1 if num_classes < 0 else num_classes
    return (x[..., None] == arange(count)).long()


def no_grad():
    import contextlib

    return contextlib.nullcontext()


nn, linalg = Room("torch.nn"), Room("torch.linalg")
nn.functional = Room("torch.nn.functional")
for _name in ("softmax", "log_softmax", "logsigmoid", "sigmoid", "relu", "tanh"):
    setattr(nn.functional, _name, names[_name])
nn.functional.pad, nn.functional.one_hot = pad, one_hot
linalg.norm = lambda x, ord=2, dim=None, keepdim=False: norm(x, ord, dim, keepdim)
sys.modules |= {room.__name__: room for room in (nn, nn.functional, linalg)}
