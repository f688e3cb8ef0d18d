"""A small tensor in plain Python, which stands in for torch where the page runs an answer.

Numbers lie in one array, as in torch, and views share it; each operation rounds its result to the
precision of its type. Torch's functions of a tensor are the tensor's methods. What is not here says
so by its name. tests/test_practice_page.py holds all this to torch: on every right answer and every
stored mistake of the exercises that open in their page, and on the lines of tests/page_torch.txt.
"""

from __future__ import annotations

import cmath
import functools
import inspect
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
pi, inf, nan, e, newaxis = math.pi, math.inf, math.nan, math.e, None
strided = "strided"
Pair = namedtuple("Pair", "values indices")


LIMIT = "a limit of the page, not a mistake of yours: in the notebook it works."
RENAMED = {"axis": "dim", "keepdims": "keepdim"}  # words of numpy that torch takes, too
NEAR = {  # what is not here -> what does nearly the same
    "array": "torch.tensor", "from_numpy": "torch.tensor", "numpy": "Tensor.tolist",
    "scalar_tensor": "torch.tensor", "histc": "torch.bincount", "msort": "torch.sort",
    "mode": "torch.unique(return_counts=True)", "kthvalue": "torch.sort", "dstack": "torch.stack",
    "row_stack": "torch.vstack", "fliplr": "torch.flip", "flipud": "torch.flip",
    "rot90": "torch.flip", "std_mean": "torch.std", "var_mean": "torch.var",
    "logspace": "torch.linspace", "addmm": "torch.matmul", "baddbmm": "torch.matmul",
    "multi_dot": "torch.matmul", "matrix_power": "torch.matmul", "kron": "torch.outer",
    "matrix_norm": "torch.linalg.norm", "pinverse": "torch.linalg.pinv",
    "qr": "torch.linalg.svd", "eigh": "torch.linalg.svd", "cholesky": "torch.linalg.svd",
    "expit": "torch.sigmoid", "cross_entropy": "torch.log_softmax", "interpolate": "torch.lerp",
    "Linear": "torch.nn.functional.linear", "Embedding": "torch.nn.functional.embedding",
    "vmap": "torch.stack", "trapezoid": "torch.cumsum", "frac": "torch.trunc",
    "take": "torch.flatten", "aminmax": "torch.amax", "logcumsumexp": "torch.logsumexp",
    "fmin": "torch.minimum", "fmax": "torch.maximum", "float_power": "torch.pow",
    "vdot": "torch.dot", "scaled_dot_product_attention": "torch.softmax",
}  # fmt: skip
ASKED = {  # what people look for; the page lists what of it is not here
    "whole parts of torch": "autograd func fft special distributions optim",
    "gradients": "Tensor.backward Tensor.grad_fn Tensor.register_hook enable_grad",
    "random numbers": "rand randn randint randperm normal bernoulli multinomial manual_seed",
    "modules": "nn.Module nn.Parameter nn.Linear nn.Embedding nn.LayerNorm nn.Softmax",
    "functions of torch.nn": "nn.functional.cross_entropy nn.functional.gelu "
    "nn.functional.layer_norm nn.functional.interpolate nn.functional.mse_loss "
    "nn.functional.scaled_dot_product_attention nn.functional.dropout conv1d",
    "matrices": "linalg.qr linalg.eigh linalg.cholesky linalg.matrix_power linalg.slogdet addmm "
    "baddbmm kron cross cov corrcoef block_diag",
    "other functions": "vmap from_numpy Tensor.numpy mode kthvalue histc dstack rot90 fliplr "
    "flipud logspace trapezoid std_mean var_mean aminmax logcumsumexp fmin fmax frac take addcmul "
    "addcdiv gcd sinc heaviside",
}  # fmt: skip


def is_here(name):
    """Return whether something of torch, such as `linalg.norm` or `Tensor.sum`, is here."""
    try:
        operator.attrgetter(name)(sys.modules[__name__])
    except (AttributeError, NotHere):
        return False
    return True


def lacking():
    """Return what is not here, as the page lists it: pairs of a title and names."""
    return [[title, [name for name in names.split() if not is_here(name)]]
            for title, names in ASKED.items()]  # fmt: skip


class NotHere(Exception):
    """The notebook has it, and the page has not (an import would reword an AttributeError)."""

    def __init__(self, what, unless=""):
        owner, _, name = what.rpartition(".")
        near = NEAR.get(name) or (owner != "torch" and is_here(name) and f"torch.{name}")
        super().__init__(
            f"`{what}` is not here. {f'If {unless}, this' if unless else 'This'} is {LIMIT}"
            + (f" Near to it, and here: `{near}`." if near else "")
        )


class Elsewhere:
    """Says of modules within torch and numpy that they are not here."""

    @staticmethod
    def find_spec(name, path, target=None):
        owner = name.partition(".")[0]
        if owner in ("torch", "numpy"):
            raise NotHere(name, f"{owner} has it")


__path__ = []
sys.meta_path.append(Elsewhere)


def missing(owner, name):
    """Return the error for a name that is not here."""
    if name in KNOWN[owner]:
        return NotHere(f"{owner}.{name}")
    what = "module 'torch'" if owner == "torch" else "'Tensor' object"
    return AttributeError(f"{what} has no attribute '{name}'")


def guarded(what, function):
    """Return a function that does not call an argument wrong which only the page does not know."""
    known = inspect.signature(function)
    star = next(
        (one.name for one in known.parameters.values() if one.kind is one.VAR_POSITIONAL), ""
    )

    @functools.wraps(function)
    def call(*given, **named):
        for name in RENAMED.keys() & named.keys():
            named[RENAMED[name]] = named.pop(name)
        if star in named:
            given = (*given, named.pop(star))
        if type(named.get("dtype")) is type:
            named["dtype"] = OF_PYTHON[named["dtype"]]
        try:
            return function(*given, **named)
        except (TypeError, AttributeError, ValueError) as error:
            try:
                known.bind(*given, **named)
            except TypeError:
                extra = [f"({name}=...)" for name in named if name not in known.parameters]
                words = extra[0] if extra else " with these arguments"
                raise NotHere(what + words, "PyTorch takes it") from None
            if not hasattr(error, "__notes__"):
                error.add_note(f"If PyTorch takes these arguments of {what}, this is {LIMIT}")
            raise

    return call


@functools.cache
def as_function(name):
    """Return torch's function that is a tensor's method."""
    method = Tensor.__dict__[name].__wrapped__

    def call(*given, **named):
        x, *rest = given or (named.pop("input", None),)
        if name in ("pow", "remainder"):
            x = as_tensor(x)
        if not isinstance(x, Tensor):
            raise TypeError(f"{name}(): the first argument must be Tensor, not {type(x).__name__}")
        return method(x, *rest, **named)

    call.__signature__ = inspect.signature(method)
    return guarded(f"torch.{name}", call)


def __getattr__(name):
    if name in BY_NAME:
        return BY_NAME[name]
    if name.startswith("_") or not callable(Tensor.__dict__.get(name)):
        raise missing("torch", name)
    return as_function(name)


# --- types ----------------------------------------------------------------------------------------


class dtype:
    """A type of numbers, truth, whole, real or complex (`kind` 0 to 3), and how they are held."""

    def __init__(self, name, kind, code, itemsize, rounded=None):
        self.name, self.kind, self.code, self.itemsize = name, kind, code, itemsize
        self.is_floating_point, self.is_complex, self.rounded = kind == 2, kind == 3, rounded

    def __repr__(self):
        return f"torch.{self.name}"

    def held(self, values):
        """Return an array of numbers that are of this type already; a list of complex ones."""
        return array(self.code, values) if self.code else list(values)

    def packed(self, values):
        """Return an array of numbers, which are of this kind already."""
        try:
            return self.held(map(self.rounded, values) if self.rounded else values)
        except OverflowError:
            raise RuntimeError(f"a number is too large for {self!r}") from None

    def of(self, values):
        """Return numbers of any kind as numbers of this one."""
        if self.kind == 0:
            return [value != 0 for value in values]
        if self.kind == 3:
            return [complex(value) for value in values]
        if self.kind == 2:
            return [float(value.real) for value in values]
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
    dtype("complex64", 3, "", 8, lambda value: complex(*array("f", (value.real, value.imag)))),
    dtype("complex128", 3, "", 16),
)
(truth, int8, int16, int32, int64, float16, bfloat16, float32, float64, complex64, complex128
 ) = TYPES  # fmt: skip
BY_NAME = {
    "bool": truth, "short": int16, "int": int32, "long": int64, "half": float16,
    "bfloat16": bfloat16, "float": float32, "double": float64, "cfloat": complex64,
    "cdouble": complex128,
}  # fmt: skip
OF_PYTHON = {bool: truth, int: int64, float: float64, complex: complex128}
Limits = namedtuple("Limits", "min max eps tiny smallest_normal bits")
DIGITS = {float16: (10, 16), bfloat16: (7, 128), float32: (23, 128), float64: (52, 1024)}


def finfo(dtype=float32):
    digits, end = DIGITS[dtype]
    most, least = math.ldexp(2 - 2.0**-digits, end - 1), 2.0 ** (2 - end)
    return Limits(-most, most, 2.0**-digits, least, least, 8 * dtype.itemsize)


def iinfo(dtype):
    most = 2 ** (8 * dtype.itemsize - 1)
    return Limits(-most, most - 1, None, None, None, 8 * dtype.itemsize)


def promote_types(a, b):
    if {a, b} == {float64, complex64}:
        return complex128
    return float32 if {a, b} == {float16, bfloat16} else max(a, b, key=TYPES.index)


def type_of(value):
    """Return the type of a tensor, or the one that torch has for a number."""
    if isinstance(value, Tensor):
        return value.dtype
    if isinstance(value, complex):
        return complex64
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
            result = promote_types(result, found) if result and found.kind == 3 else found
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

    def __init__(self, data, shape=None, dtype=None, strides=None, offset=0):
        if dtype is None:  # as answers call it
            if shape is not None or not isinstance(data, list | tuple | Tensor):
                raise NotHere("torch.Tensor(sizes)")
            made_of = tensor(data, float32)
            data, shape, dtype = made_of._data, made_of.shape, float32
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
        return self.dtype.held(map(self._data.__getitem__, places))

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
    mH = property(lambda self: self.mT.conj())
    H = property(lambda self: self.T.conj())
    data = property(lambda self: self)
    real = property(lambda self: self._part("real") if self.is_complex() else self)
    imag = property(lambda self: self._part("imag"))

    def _part(self, name):
        if not self.is_complex():
            raise RuntimeError(f"{name} is not implemented for tensors with non-complex dtypes.")
        part = operator.attrgetter(name)
        return made(map(part, self._flat()), self.shape, REAL_OF[self.dtype])

    def is_contiguous(self):
        axes = zip(self.shape, self._strides, strides_of(self.shape), strict=True)
        return not self.numel() or all(size == 1 or a == b for size, a, b in axes)

    def size(self, dim=None):
        return self.shape if dim is None else self.shape[dim]

    def stride(self, dim=None):
        return self._strides if dim is None else self._strides[dim]

    def dim(self):
        return self.ndim

    def numel(self):
        return math.prod(self.shape)

    def is_floating_point(self):
        return self.dtype.kind == 2

    def is_complex(self):
        return self.dtype.kind == 3

    def detach(self, *_):
        return self

    cpu = to_dense = resolve_conj = __pos__ = detach

    def conj(self):
        if not self.is_complex():
            return self
        return made([value.conjugate() for value in self._flat()], self.shape, self.dtype)

    def angle(self):
        x = self.to(float32) if self.dtype.kind < 2 else self
        return made(map(cmath.phase, x._flat()), x.shape, REAL_OF.get(x.dtype, x.dtype))

    def contiguous(self):
        return self if self.is_contiguous() else self.clone()

    def clone(self):
        return Tensor(self._flat()[:], self.shape, self.dtype)

    def to(self, *given, dtype=None, device=None, copy=False, non_blocking=False):
        for value in given:
            value = value.dtype if isinstance(value, Tensor) else OF_PYTHON.get(value, value)
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

    def __bool__(self):
        if self.numel() != 1:
            raise RuntimeError("Boolean value of Tensor with more than one value is ambiguous")
        return self.item() != 0

    def __complex__(self):
        return complex(self.item())

    def __float__(self):
        return float(self.item())

    def __int__(self):
        return int(self.item())

    def __index__(self):
        if self.dtype.kind >= 2 or self.numel() != 1:
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
            return f"{value:.4f}" if isinstance(value, float | complex) else str(value)

        usual = self.dtype in (truth, int64, float32)
        return f"tensor({words(self.tolist())}{'' if usual else f', dtype={self.dtype!r}'})"

    def __format__(self, spec):
        return format(repr(self) if self.shape else self.item(), spec)

    def __getitem__(self, key):
        axes, offset = indexed(self, key)
        if all(offsets is None for *_, offsets in axes):
            return self._view([size for (size,), *_ in axes], [by for _, by, _ in axes], offset)
        shape, places = selected(self, key)
        return Tensor(self.dtype.held(map(self._data.__getitem__, places)), shape, self.dtype)

    def __setitem__(self, key, value):
        shape, places = selected(self, key)
        value = as_tensor(value)
        while value.ndim > len(shape) and value.shape[0] == 1:
            value = value[0]
        for place, number in zip(places, value.to(self.dtype).expand(shape)._flat(), strict=True):
            self._data[place] = number

    def copy_(self, src):
        self[...] = src
        return self

    fill_ = copy_

    def zero_(self):
        return self.copy_(0)

    def fill_diagonal_(self, fill_value):
        self.diagonal().copy_(fill_value)
        return self

    def _combined(self, key, value, function):
        """Return a copy in which a function of the old number and a new one stands at places."""
        shape, places = selected(self.contiguous(), key)
        data = list(self._flat())
        begin = self._offset if self.is_contiguous() else 0
        for place, new in zip(places, as_tensor(value).to(self.dtype).expand(shape)._flat(),
                              strict=True):  # fmt: skip
            data[place - begin] = function(data[place - begin], new)
        return made(data, self.shape, self.dtype)

    def index_put(self, indices, values, accumulate=False):
        return self._combined(tuple(indices), values, COMBINE["sum" if accumulate else None])

    def index_add(self, dim, index, source, *, alpha=1):
        key = (slice(None),) * self._axis(dim) + (index,)
        return self._combined(key, source * alpha, COMBINE["sum"])

    def index_copy(self, dim, index, source):
        return self._combined((slice(None),) * self._axis(dim) + (index,), source, COMBINE[None])

    index_fill = index_copy

    def scatter(self, dim, index, src=None, *, value=None, reduce=None):
        src = value if src is None else src
        if isinstance(src, Tensor):
            src = src[tuple(map(slice, index.shape))] if src.ndim else src
        return self._combined(self._places(dim, index), src, COMBINE[reduce])

    def scatter_add(self, dim, index, src):
        return self.scatter(dim, index, src, reduce="sum")

    def scatter_reduce(self, dim, index, src, reduce):
        return self.scatter(dim, index, src, reduce=reduce)

    # --- other shapes

    def expand(self, *size):
        shape = list(given_sizes(size))
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

    def reshape_as(self, other):
        return self.reshape(other.shape)

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

    swapaxes = swapdims = transpose

    def t(self):
        return self.T

    def unfold(self, dimension, size, step):
        dim = self._axis(dimension)
        shape, strides = [*self.shape, size], [*self._strides, self._strides[dim]]
        shape[dim], strides[dim] = (shape[dim] - size) // step + 1, strides[dim] * step
        return self._view(shape, strides)

    def movedim(self, source, destination):
        given = [(each,) if isinstance(each, int) else each for each in (destination, source)]
        pairs = sorted(tuple(map(self._axis, pair)) for pair in zip(*given, strict=True))
        order = [dim for dim in range(self.ndim) if dim not in [old for _, old in pairs]]
        for new, old in pairs:
            order.insert(new, old)
        return self.permute(order)

    def _along(self, dim, key, more=0):
        return self[(slice(None),) * self._axis(dim, more) + (key,)]

    def unsqueeze(self, dim):
        return self._along(dim, None, 1)

    def squeeze(self, dim=None):
        given = (dim,) if isinstance(dim, int) else dim
        dims = range(self.ndim) if dim is None else [self._axis(each) for each in given]
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

    def diag_embed(self, offset=0):
        size = self.shape[-1] + abs(offset)
        found = self.new_zeros(*self.shape[:-1], size, size)
        found.diagonal(offset, -2, -1).copy_(self)
        return found

    def diag(self, diagonal=0):
        return self.diag_embed(diagonal) if self.ndim == 1 else self.diagonal(diagonal).clone()

    def trace(self):
        return self.diagonal().sum()

    def tile(self, *dims):
        counts = given_sizes(dims)
        return self.repeat((1,) * (self.ndim - len(counts)) + counts)

    def repeat(self, *repeats):
        counts = given_sizes(repeats)
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

    def clamp_min(self, min):
        return self.clamp(min)

    def clamp_max(self, max):
        return self.clamp(max=max)

    def lerp(self, end, weight):
        return self + (end - self) * weight

    def nan_to_num(self, nan=0.0, posinf=None, neginf=None):
        most = finfo(self.dtype).max
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
            return cmath.isfinite(x) and cmath.isfinite(y) and abs(x - y) <= atol + rtol * abs(y)

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
        def place(size, odd):  # NaN stands last
            return where(odd > 0, size - 1, (size - 1) // 2)

        return self._middle(dim, keepdim, place)

    def nanmedian(self, dim=None, keepdim=False):
        return self._middle(dim, keepdim, lambda size, odd: ((size - 1 - odd) // 2).clamp(0))

    def _middle(self, dim, keepdim, place):
        """Return the number in a place of each sorted row, which its size and its NaNs decide."""
        x, along = (self.flatten(), 0) if dim is None else (self, dim)
        middle = place(x.shape[along], x.isnan().sum(along, True))
        at = x.argsort(along, stable=True).gather(along, middle)
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
        if isinstance(dim, bool):
            dim, unbiased = None, dim
        count = self.numel() // max(1, self.sum(dim).numel())
        less = correction if unbiased is None else int(unbiased)
        centred = self - self.mean(dim, keepdim=True)
        return centred.square().sum(dim, keepdim) / max(0, count - less)

    def std(self, *given, **named):
        return self.var(*given, **named).sqrt()

    def norm(self, p=2, dim=None, keepdim=False):
        if p == inf:
            return self.abs().amax(dim, keepdim)
        if isinstance(p, str) and p != "fro":
            raise NotHere(f"Tensor.norm(p={p!r})")
        p = 2 if p == "fro" else p
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

    def cumprod(self, dim, dtype=None):
        x = self.to(dtype or (int64 if self.dtype.kind < 2 else self.dtype))
        return x._each_row(dim, lambda row: itertools.accumulate(row, operator.mul))

    def cummax(self, dim, best=operator.ge):
        def last(row):
            at = range(len(row))
            return itertools.accumulate(at, lambda a, b: b if best(row[b], row[a]) else a)

        at = self._each_row(dim, last, int64)
        return Pair(self.gather(dim, at) if self.ndim else self, at)

    def cummin(self, dim):
        return self.cummax(dim, operator.le)

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

    def _places(self, dim, index):
        """Return the tensors of indices of which one, along an axis, is given."""
        places = list(meshgrid(*map(arange, index.shape)))
        places[self._axis(dim)] = index
        return tuple(places)

    def gather(self, dim, index):
        return self[self._places(dim, index)]

    def take_along_dim(self, indices, dim):
        dim = self._axis(dim)
        shape = broadcast_shapes(self.select(dim, 0).shape, indices.select(dim, 0).shape)
        along = [x.shape[dim] for x in (self, indices)]
        mine, theirs = ([*shape[:dim], size, *shape[dim:]] for size in along)
        return self.expand(mine).gather(dim, indices.expand(theirs))

    def masked_select(self, mask):
        shape = broadcast_shapes(self.shape, mask.shape)
        return self.expand(shape)[mask.expand(shape)]

    def unique(self, sorted=True, return_inverse=False, return_counts=False, dim=None):
        return self._distinct(dim, return_inverse, return_counts, True)

    def unique_consecutive(self, return_inverse=False, return_counts=False, dim=None):
        return self._distinct(dim, return_inverse, return_counts, False)

    def _distinct(self, dim, inverse, counts, everywhere):
        """Return the different rows along an axis, or those that differ from the row before."""
        x, along = (self.flatten(), 0) if dim is None else (self, dim)
        rows = [tuple(row._flat()) for row in x.unbind(along)]
        if everywhere:
            number = {row: at for at, row in enumerate(sorted(set(rows)))}
            places = [number[row] for row in rows]
        else:
            changes = map(operator.ne, rows[1:], rows)
            places = list(itertools.accumulate(changes, initial=0)) if rows else []
        first = {place: at for at, place in reversed(list(enumerate(places)))}
        found = [x.index_select(along, [first[place] for place in sorted(first)])]
        at = tensor(places, int64)
        found += [at.view(self.shape) if dim is None else at] * inverse
        found += [at.bincount()] * counts
        return tuple(found) if len(found) > 1 else found[0]

    def bincount(self, weights=None, minlength=0):
        size = max([minlength, *(value + 1 for value in self._flat())])
        kind = int64 if weights is None else weights.dtype if weights.dtype.kind == 2 else float64
        ones_or = self.new_ones(self.shape) if weights is None else weights
        return zeros(size, dtype=kind).scatter_add(0, self, ones_or)

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

    def argwhere(self):
        return self.nonzero()

    def outer(self, vec2):
        return self[:, None] * vec2

    ger = outer

    def inner(self, other):
        return tensordot(self, other, ([-1], [-1])) if self.ndim and other.ndim else self * other

    def inverse(self):
        return linalg.inv(self)

    def det(self):
        return linalg.det(self)

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


NUMBERS = Tensor | int | float | complex
REAL_OF = {complex64: float32, complex128: float64}


def binary(function, a, b, result=None, least=truth):
    """Apply a function of two numbers.

    Args:
        function: of two of Python's numbers.
        a, b: tensors or numbers.
        result: type of what it returns, if not that of the numbers.
        least: type in which it is computed, if theirs is narrower.
    """
    if not isinstance(a, NUMBERS) or not isinstance(b, NUMBERS):
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
        if type(a) is complex:
            return complex(nan, nan)
        return nan if a != a or a == 0 else math.copysign(inf, a) * math.copysign(1.0, b)


def power(a, b):
    try:
        if type(a) is complex:
            return a**b
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


def towards_zero(a, b):
    return rest(operator.floordiv)(abs(a), abs(b)) * (1 if (a < 0) == (b < 0) else -1)


def log_add(a, b):
    return log_sum((a, b))


COMBINE = {  # what scatter makes of an old number and a new one
    None: lambda old, new: new, "sum": operator.add, "add": operator.add, "prod": operator.mul,
    "multiply": operator.mul, "amax": larger, "amin": smaller,
}  # fmt: skip
OF_TWO = (  # the function, the operator, the names of the methods
    (operator.add, "add", "add"), (operator.sub, "sub", "sub subtract"),
    (operator.mul, "mul", "mul multiply"), (quotient, "truediv", "div divide true_divide"),
    (power, "pow", "pow"), (rest(operator.mod), "mod", "remainder"),
    (rest(operator.floordiv), "floordiv", "floor_divide"), (operator.and_, "and", "bitwise_and"),
    (operator.or_, "or", "bitwise_or"), (operator.xor, "xor", "bitwise_xor"),
    (operator.lshift, "lshift", "bitwise_left_shift"),
    (operator.rshift, "rshift", "bitwise_right_shift"), (operator.eq, "eq", "eq"),
    (operator.ne, "ne", "ne not_equal"), (operator.lt, "lt", "lt less"),
    (operator.le, "le", "le less_equal"), (operator.gt, "gt", "gt greater"),
    (operator.ge, "ge", "ge greater_equal"), (larger, "", "maximum"), (smaller, "", "minimum"),
    (math.copysign, "", "copysign"), (math.atan2, "", "atan2 arctan2"),
    (math.hypot, "", "hypot"), (log_add, "", "logaddexp"),
    (rest(lambda a, b: type(a)(math.fmod(a, b))), "", "fmod"),
    (lambda a, b: bool(a) and bool(b), "", "logical_and"),
    (lambda a, b: bool(a) or bool(b), "", "logical_or"),
    (lambda a, b: bool(a) is not bool(b), "", "logical_xor"),
)  # fmt: skip


def of_two(function, sign, names):
    """Give tensors an operator, its form from the right and in place, and methods."""
    truths = sign in ("eq", "ne", "lt", "le", "gt", "ge") or names.startswith("logical")
    result = truth if truths else None
    least = float32 if sign == "truediv" else truth

    def forward(self, other):
        return binary(function, self, other, result, least)

    for name in names.split():
        setattr(Tensor, name, forward)
    if sign:
        setattr(Tensor, f"__{sign}__", forward)
        setattr(Tensor, f"__r{sign}__", lambda a, b: binary(function, b, a, result, least))
        setattr(Tensor, f"__i{sign}__", lambda a, b: a._become(forward, b))


for _each in OF_TWO:
    of_two(*_each)


def scaled(forward):
    return lambda self, other, *, alpha=1: forward(self, other if alpha == 1 else other * alpha)


for _name in ("add", "sub", "subtract"):
    setattr(Tensor, _name, scaled(getattr(Tensor, _name)))


def div(self, other, *, rounding_mode=None):
    if rounding_mode == "trunc":
        return binary(towards_zero, self, other)
    return self // other if rounding_mode else self / other


Tensor.div = Tensor.divide = div
del div
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
        "sin", "cos", "tan", "asin", "acos", "atan", "sinh", "cosh", "tanh", "asinh", "acosh",
        "atanh", "exp", "expm1", "sqrt", "erf", "erfc")},
    **{name: logarithm(getattr(math, name)) for name in ("log", "log2", "log10")},
    "exp2": lambda x: power(2.0, x), "deg2rad": math.radians, "rad2deg": math.degrees,
    "log1p": logarithm(math.log1p, -1), "rsqrt": lambda x: quotient(1.0, safely(math.sqrt)(x)),
    "reciprocal": lambda x: quotient(1.0, x), "sigmoid": sigmoid_of,
    "logit": lambda x: logarithm(math.log)(quotient(x, 1 - x)),
}  # fmt: skip
SAME = {  # whose value is of the same type
    "neg": operator.neg, "abs": abs, "square": lambda x: x * x, "relu": lambda x: max(x, x * 0),
    **dict.fromkeys(("sign", "sgn"), lambda x: type(x)((x > 0) - (x < 0))),
    **{name: whole(getattr(math, name)) for name in ("floor", "ceil", "trunc")},
}  # fmt: skip
TRUE = {"isnan": cmath.isnan, "isinf": cmath.isinf, "isfinite": cmath.isfinite,
        "isposinf": lambda x: x == math.inf, "isneginf": lambda x: x == -math.inf,
        "logical_not": operator.not_}  # fmt: skip


def of_one(name, function, table):
    """Give tensors a function of each number."""

    def call(x):
        if table is REAL and x.dtype.kind < 2:
            x = x.to(float32)
        if name in ("floor", "ceil", "trunc") and x.dtype.kind < 2:
            return x.clone()
        compute, result = function, truth if table is TRUE else x.dtype
        if x.is_complex() and table is not TRUE and name not in ("neg", "square", "reciprocal"):
            if not hasattr(cmath, name) and name != "abs":
                raise NotHere(f"torch.{name}, of complex numbers")
            compute = abs if name == "abs" else safely(getattr(cmath, name))
            result = REAL_OF[result] if name == "abs" else result
        return made(map(compute, x._flat()), x.shape, result)

    setattr(Tensor, name, call)


for _table in (REAL, SAME, TRUE):
    for _name, _function in _table.items():
        of_one(_name, _function, _table)
for _name, _old in (("arctan", "atan"), ("arcsin", "asin"), ("arccos", "acos"), ("absolute", "abs"),
                    ("negative", "neg"), ("nelement", "numel"), ("ndimension", "dim"),
                    ("moveaxis", "movedim"), ("bitwise_not", "__invert__")):  # fmt: skip
    setattr(Tensor, _name, getattr(Tensor, _old))
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
    if isinstance(row, list) and row and type(row[0]) is complex:
        return sum(row) / len(row)
    return quotient(math.fsum(row) if all(map(math.isfinite, row)) else sum(row), len(row))


def log_sum(row):
    top = max(row)
    return top if not math.isfinite(top) else top + math.log(sum(math.exp(v - top) for v in row))


OF_ROWS = {  # a function of a row, and the type of its value: None for the type of the numbers
    "sum": (sum, None), "prod": (math.prod, None), "mean": (mean_of, None),
    "nansum": (lambda row: sum(v for v in row if v == v), None),
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
    if not isinstance(value, NUMBERS):
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
    value = fill_value.item() if isinstance(fill_value, Tensor) else fill_value
    shape, dtype = given_sizes((size,)), dtype or type_of(value)
    return made(dtype.of([value]) * math.prod(shape), shape, dtype)


def zeros(*size, dtype=float32, device=None):
    return full(given_sizes(size), 0, dtype)


def ones(*size, dtype=float32, device=None):
    return full(given_sizes(size), 1, dtype)


def eye(n, m=None, dtype=float32, device=None):
    rows, columns = arange(n), arange(n if m is None else m)
    return (rows[:, None] == columns).to(dtype)


def arange(start=0, end=None, step=1, dtype=None, device=None):
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

    globals()[f"{_make.__name__}_like"] = guarded(f"torch.{_make.__name__}_like", _like)
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
    data = dtype.held(())
    for x in moved:
        data.extend(x._flat())
    shape = (sum(map(len, moved)), *moved[0].shape[1:])
    return Tensor(data, shape, dtype).movedim(0, dim)


def stack(tensors, dim=0):
    tensors = list(tensors)
    if any(x.shape != tensors[0].shape for x in tensors):
        raise RuntimeError("stack expects each tensor to be equal size")
    return cat([x.unsqueeze(dim) for x in tensors], tensors[0]._axis(dim, 1))


def atleast_1d(x):
    return x if x.ndim else x.reshape(1)


def atleast_2d(x):
    return x if x.ndim > 1 else x.reshape(1, -1)


def hstack(tensors):
    tensors = [atleast_1d(x) for x in tensors]
    return cat(tensors, min(1, tensors[0].ndim - 1))


def vstack(tensors):
    return cat([atleast_2d(x) for x in tensors])


def column_stack(tensors):
    return cat([x.reshape(-1, 1) if x.ndim < 2 else x for x in tensors], 1)


def meshgrid(*tensors, indexing="ij"):
    if len(tensors) == 1 and isinstance(tensors[0], list | tuple):
        tensors = tensors[0]
    if indexing == "xy":
        second, first, *rest = meshgrid(*tensors[1::-1], *tensors[2:])
        return (first, second, *rest)
    shape = [x.numel() for x in tensors]
    views = (x.view([-1 if at == dim else 1 for at in range(len(shape))])
             for dim, x in enumerate(tensors))  # fmt: skip
    return tuple(x.expand(shape) for x in views)


def cartesian_prod(*tensors):
    return stack([x.flatten() for x in meshgrid(*tensors)], -1) if tensors[1:] else tensors[0]


def combinations(input, r=2, with_replacement=False):
    chosen = itertools.combinations_with_replacement if with_replacement else itertools.combinations
    rows = list(chosen(input.tolist(), r))
    return tensor(rows, input.dtype).view(len(rows), r)


def tril_indices(row, col, offset=0, *, dtype=int64, device=None):
    return ones(row, col).tril(offset).nonzero().T.to(dtype)


def triu_indices(row, col, offset=0, *, dtype=int64, device=None):
    return ones(row, col).triu(offset).nonzero().T.to(dtype)


def broadcast_tensors(*tensors):
    shape = broadcast_shapes(*(x.shape for x in tensors))
    return tuple(x.expand(shape) for x in tensors)


def is_tensor(obj):
    return isinstance(obj, Tensor)


def complex_of(real, imag):
    return view_as_complex(stack(broadcast_tensors(real, imag), -1))


def polar(abs, angle):
    return complex_of(abs * angle.cos(), abs * angle.sin())


def real(input):
    return input.real


def imag(input):
    return input.imag


def view_as_complex(input):
    if input.dtype not in REAL_OF.values():
        raise RuntimeError(f"view_as_complex: it takes float or double, not {input.dtype.name}")
    if input.shape[-1:] != (2,):
        raise RuntimeError("Tensor must have a last dimension of size 2")
    flat, dtype = input._flat(), complex64 if input.dtype is float32 else complex128
    return made(map(complex, flat[::2], flat[1::2]), input.shape[:-1], dtype)


def view_as_real(input):
    return stack([input.real, input.imag], -1)


def isin(elements, test_elements):
    x, values = as_tensor(elements), set(as_tensor(test_elements).flatten().tolist())
    return made([value in values for value in x._flat()], x.shape, truth)


def cdist(x1, x2, p=2.0):
    return (x1.unsqueeze(-2) - x2.unsqueeze(-3)).norm(p, -1)


def searchsorted(sorted_sequence, input, *, right=False, side=None, out_int32=False):
    edges = sorted_sequence.tolist()
    find = bisect_right if right or side == "right" else bisect_left
    if sorted_sequence.ndim != 1:
        raise NotHere("torch.searchsorted, in several rows")
    x = as_tensor(input)
    return made([find(edges, value) for value in x._flat()], x.shape, int64)


def bucketize(input, boundaries, *, right=False, out_int32=False):
    return searchsorted(boundaries, input, right=right)


def einsum(equation, *operands):
    operands = operands[0] if isinstance(operands[0], list | tuple) else operands
    given, arrow, wanted = equation.replace(" ", "").partition("->")
    inputs = given.split(",")
    # Each axis of "..." gets a letter that nobody types, the last one the same everywhere.
    counts = [x.ndim - len(one.replace("...", "")) for x, one in zip(operands, inputs, strict=True)]
    dots = "".join(map(chr, range(0x2500, 0x2500 + max(counts))))
    inputs = [one.replace("...", dots[len(dots) - count :])
              for one, count in zip(inputs, counts, strict=True)]  # fmt: skip
    every = "".join(dict.fromkeys("".join(inputs)))
    alone = (one for one in every if one not in dots and "".join(inputs).count(one) == 1)
    wanted = wanted.replace("...", dots) if arrow else dots + "".join(sorted(alone))
    order = wanted + "".join(one for one in every if one not in wanted)
    product = None
    for labels, x in zip(inputs, operands, strict=True):
        if len(labels) != x.ndim:
            raise RuntimeError(f"einsum(): {labels} names {len(labels)} of {x.ndim} dimensions")
        for one in set(labels):
            while labels.count(one) > 1:  # the diagonal goes last
                a, b = labels.index(one), labels.rindex(one)
                x, labels = x.diagonal(0, a, b), labels[:a] + labels[a + 1 : b] + labels[b + 1 :]
                labels += one
        x = x.permute([labels.index(one) for one in order if one in labels])
        x = x[tuple(slice(None) if one in labels else None for one in order)]
        product = x if product is None else product * x
    summed = range(len(wanted), len(order))
    return product.sum(tuple(summed)) if summed else product


def tensordot(a, b, dims=2):
    if isinstance(dims, int):
        dims = range(a.ndim - dims, a.ndim), range(dims)
    left, right = [[x._axis(dim) for dim in given] for x, given in zip((a, b), dims, strict=True)]
    letters = [chr(0x100 + at) for at in range(a.ndim + b.ndim)]
    first, second = letters[: a.ndim], letters[a.ndim :]
    for one, other in zip(left, right, strict=True):
        second[other] = first[one]
    kept = [one for one in first + second if (one in first) != (one in second)]
    return einsum(f"{''.join(first)},{''.join(second)}->{''.join(kept)}", a, b)


BY_NAME |= {"complex": complex_of, **{
    f"{_name}Tensor": functools.partial(tensor, dtype=_dtype) for _name, _dtype in (
        ("Long", int64), ("Int", int32), ("Float", float32), ("Double", float64), ("Bool", truth))
}}  # fmt: skip


# --- matrices -------------------------------------------------------------------------------------


def by_matrix(function, *tensors):
    """Apply a function of matrices, as lists of rows, to batches; return a tensor per result."""
    batch = broadcast_shapes(*(x.shape[:-2] for x in tensors))
    found = zip(*map(function, *(
        x.expand(*batch, -1, -1).reshape(math.prod(batch), *x.shape[-2:]).tolist()
        for x in tensors)), strict=True)  # fmt: skip
    parts = (tensor(list(each), tensors[0].dtype) for each in found)
    return [each.reshape(*batch, *each.shape[1:]) for each in parts]


def eliminated(a, b):
    """Return the solution of a x = b by Gauss and Jordan, and the determinant of a."""
    rows, det = [[*left, *right] for left, right in zip(a, b, strict=True)], 1.0
    for at in range(len(rows)):
        best = max(range(at, len(rows)), key=lambda row: abs(rows[row][at]))
        rows[at], rows[best] = rows[best], rows[at]
        pivot = rows[at][at]
        det *= pivot if best == at else -pivot
        if pivot:
            rows[at] = [value / pivot for value in rows[at]]
        for other, row in enumerate(rows):
            if pivot and other != at:
                rows[other] = [v - row[at] * own for v, own in zip(row, rows[at], strict=True)]
    return [row[len(rows) :] for row in rows], det


def linalg_solve(A, B):
    vector = B.ndim == 1 or B.shape == A.shape[:-1]
    found, det = by_matrix(eliminated, A, B[..., None] if vector else B)
    if not det.bool().all():
        raise RuntimeError("linalg.solve: the matrix is singular.")
    return found[..., 0] if vector else found


def singular(a, full):
    """Return the columns, the singular values and the rows of a matrix that is at least as high as
    wide: its columns are rotated against each other until they are at right angles (Jacobi)."""
    columns = [list(column) for column in zip(*a, strict=True)]
    turned = eye(len(columns), dtype=float64).tolist()
    dot, again = lambda u, v: sum(map(operator.mul, u, v)), True
    noise = 1e-30 * sum(dot(u, u) for u in columns)
    while again:
        again = False
        for p, q in itertools.combinations(range(len(columns)), 2):
            u, v = columns[p], columns[q]
            along, own, other = dot(u, v), dot(u, u), dot(v, v)
            if min(own, other) <= noise or abs(along) <= 1e-14 * math.sqrt(own * other):
                continue
            again, slope = True, (other - own) / (2 * along)
            tan = math.copysign(1 / (abs(slope) + math.hypot(1, slope)), slope)
            cos = 1 / math.hypot(1, tan)
            for rows in (columns, turned):
                pairs = list(zip(rows[p], rows[q], strict=True))
                rows[p] = [cos * (x - tan * y) for x, y in pairs]
                rows[q] = [cos * (tan * x + y) for x, y in pairs]
    sizes = [math.sqrt(dot(u, u)) for u in columns]
    order = sorted(range(len(sizes)), key=lambda at: -sizes[at])
    left = [[x / sizes[at] for x in columns[at]] for at in order if sizes[at]]
    while len(left) < (len(a) if full else len(columns)):  # the axis that is farthest from all
        far = min(range(len(a)), key=lambda at: sum(u[at] ** 2 for u in left))
        axis = [float(at == far) for at in range(len(a))]
        for u in left * 2:
            by = dot(axis, u)
            axis = [x - by * y for x, y in zip(axis, u, strict=True)]
        left.append([x / math.sqrt(dot(axis, axis)) for x in axis])
    return [list(row) for row in zip(*left, strict=True)], [sizes[at] for at in order], (
        [turned[at] for at in order])  # fmt: skip


def linalg_svd(A, full_matrices=True):
    if A.is_complex():
        raise NotHere("torch.linalg.svd, of complex numbers")
    if A.shape[-2] < A.shape[-1]:
        u, s, v = linalg_svd(A.mT, full_matrices)
        return Svd(v.mT, s, u.mT)
    u, s, v = by_matrix(functools.partial(singular, full=full_matrices), A)
    return Svd(u, s, v)


def above(s, A):
    """Return which singular values are not 0 but for rounding."""
    least = finfo(A.dtype).eps * max(A.shape[-2:])
    return s > least * s.amax(-1, keepdim=True)


def linalg_pinv(A):
    u, s, v = linalg_svd(A, False)
    return v.mT * where(above(s, A), 1 / s, 0.0).unsqueeze(-2) @ u.mT


def linalg_lstsq(A, B):
    vector = A.ndim - 1 == B.ndim
    b, (u, s, v) = B[..., None] if vector else B, linalg_svd(A, False)
    found = v.mT @ (where(above(s, A), 1 / s, 0.0).unsqueeze(-1) * (u.mT @ b))
    left = (A @ found - b).square().sum(-2)
    rank = above(s, A).sum(-1)
    full_rank = A.shape[-2] > A.shape[-1] and bool((rank == A.shape[-1]).all())
    return Fit(found[..., 0] if vector else found, left if full_rank else left[:0], rank, s)


def linalg_norm(A, ord=None, dim=None, keepdim=False):
    if ord is None or ord == "fro" or isinstance(dim, int) or A.ndim == 1:
        return A.norm(2 if ord is None else ord, dim, keepdim)
    if ord != 2 or dim is not None:
        raise NotHere("torch.linalg.norm, of this kind for matrices")
    return linalg_svd(A, False).S.amax(-1)


Svd = namedtuple("Svd", "U S Vh")
Fit = namedtuple("Fit", "solution residuals rank singular_values")
LINALG = {
    "solve": linalg_solve, "svd": linalg_svd, "pinv": linalg_pinv, "lstsq": linalg_lstsq,
    "norm": linalg_norm, "svdvals": lambda A: linalg_svd(A, False).S,
    "inv": lambda A: linalg_solve(A, eye(A.shape[-1], dtype=A.dtype)),
    "det": lambda A: by_matrix(eliminated, A, A)[1],
    "matrix_rank": lambda A: above(linalg_svd(A, False).S, A).sum(-1),
    "vector_norm": lambda x, ord=2, dim=None, keepdim=False: x.norm(ord, dim, keepdim),
}  # fmt: skip


# --- rooms of torch -------------------------------------------------------------------------------


class Room(type(sys)):
    """A part of torch of which little is here."""

    def __getattr__(self, name):
        if name.startswith("__"):
            raise AttributeError(name)
        raise NotHere(f"{self.__name__}.{name}", "PyTorch has it")


def pad(input, pad, mode="constant", value=0.0):
    if mode != "constant":
        raise NotHere(f"torch.nn.functional.pad(mode={mode!r})")
    x = input
    for dim, sides in enumerate(zip(pad[::2], pad[1::2], strict=True), 1):
        at = x.ndim - dim
        less = [max(0, -size) for size in sides]  # a negative size cuts off
        x = x.narrow(at, less[0], x.shape[at] - sum(less))
        shapes = ([*x.shape[:at], max(0, size), *x.shape[at + 1 :]] for size in sides)
        ends = [full(shape, value or 0, x.dtype) for shape in shapes]
        x = cat([ends[0], x, ends[1]], at)
    return x


def one_hot(tensor, num_classes=-1):
    classes = arange(int(tensor.max()) + 1 if num_classes < 0 else num_classes)
    return (tensor.unsqueeze(-1) == classes).long()


def linear(input, weight, bias=None):
    found = input @ weight.T
    return found if bias is None else found + bias


def normalize(input, p=2.0, dim=1, eps=1e-12):
    return input / input.norm(p, dim, True).clamp(min=eps)


def cosine_similarity(x1, x2, dim=1, eps=1e-8):
    return (x1 * x2).sum(dim) / (x1.norm(2, dim).clamp(min=eps) * x2.norm(2, dim).clamp(min=eps))


FUNCTIONAL = {
    "pad": pad, "one_hot": one_hot, "linear": linear, "normalize": normalize,
    "cosine_similarity": cosine_similarity, "logsigmoid": lambda input: -(-input).exp().log1p(),
    "embedding": lambda input, weight: weight[input],
    "softplus": lambda input: input.logaddexp(zeros((), dtype=input.dtype)),
}  # fmt: skip
nn, linalg = Room("torch.nn"), Room("torch.linalg")
nn.functional = Room("torch.nn.functional")
sys.modules |= {room.__name__: room for room in (nn, nn.functional, linalg)}
for _name, _function in LINALG.items():
    setattr(linalg, _name, guarded(f"torch.linalg.{_name}", _function))
for _name, _function in FUNCTIONAL.items():
    setattr(nn.functional, _name, guarded(f"torch.nn.functional.{_name}", _function))
for _name, _function in list(vars(Tensor).items()):
    if inspect.isfunction(_function) and not _name.startswith("_"):
        setattr(Tensor, _name, guarded(f"Tensor.{_name}", _function))
for _name in ("softmax", "log_softmax", "sigmoid", "relu", "tanh"):
    setattr(nn.functional, _name, as_function(_name))
for _function in (
    tensor, as_tensor, full, zeros, ones, eye, arange, linspace, empty, where, cat, stack, hstack,
    vstack, column_stack, atleast_1d, atleast_2d, meshgrid, cartesian_prod, combinations,
    tril_indices, triu_indices, broadcast_tensors, polar, real, imag, view_as_complex,
    view_as_real, isin, cdist, searchsorted, bucketize, einsum, tensordot, cosine_similarity,
):  # fmt: skip
    globals()[_function.__name__] = guarded(f"torch.{_function.__name__}", _function)
concat, concatenate, asarray = cat, cat, as_tensor
