"""A plain format for values on a pipe: one JSON header, then the raw bytes of the arrays.

Both ends of the pipe between the grader and a student's process use it. Nothing in it is
executed on reading (no pickle), nothing is unpacked (no archive), and every size is checked
against what was announced before memory is taken.
"""

from __future__ import annotations

import array
import json
import math
import struct
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
import torch

if TYPE_CHECKING:
    from numpy.typing import NDArray

HEADER = struct.Struct("<II")  # bytes of JSON, bytes of arrays
MAX_JSON = 1 << 20
MAX_ARRAYS = 64 << 20
MAX_PARTS = 10_000  # lists, tuples, dicts and arrays of one frame: each costs time to compare
MAX_DEPTH = 100  # lists within lists; how many Python itself follows depends on its version
DTYPES = {
    name: getattr(torch, name)
    for name in (
        "float64", "float32", "float16", "bfloat16", "int64", "int32", "int16", "int8", "bool",
        "uint64", "uint32", "uint16", "uint8", "complex64", "complex128",
    )
    if hasattr(torch, name)  # what stands in for torch in a page lacks some
}  # fmt: skip
UNCONVERTED = (list, tuple, str, bytes, bytearray)  # sequences that stay what they are

HELD = {"O": "objects", "U": "texts", "S": "bytes", "V": "records", "M": "dates", "m": "durations"}


class Malformed(ValueError):
    """What was read is no frame of this format."""


class Opaque:
    """Stands for a value of a type that the format does not carry."""

    def __init__(self, type_name: str) -> None:
        """Keep the name of the type, for the message."""
        self.type_name = type_name


def as_list_or_array(value: Any) -> Any:
    """Return a list for a sequence of another type, and an array that torch takes for a buffer.

    The self-check and the grader both convert an answer by this function, so what one of them
    accepts, the other does. A value that needs no conversion, or has none, comes back as it is.
    """
    if value is None or isinstance(value, (int, float, torch.Tensor, *UNCONVERTED)):
        return value
    if isinstance(value, array.array | memoryview):
        try:
            value = np.asarray(value)
        except (ValueError, TypeError, BufferError):
            return value
    if isinstance(value, np.ndarray | np.generic):
        return native(np.asarray(value))
    return list(value) if isinstance(value, Sequence) else value


def native(values: NDArray[Any]) -> NDArray[Any]:
    """Return numbers in this machine's order of bytes, in double precision where torch has none.

    Always a copy, as torch takes no negative strides.
    """
    if values.dtype.kind == "O":
        try:
            found = np.array(values.tolist())
        except ValueError:  # rows of different lengths
            return values
        return values if found.dtype.kind == "O" else found
    if values.dtype.char in "gG":  # long double
        return values.astype(float if values.dtype.char == "g" else complex)
    return np.array(values, dtype=values.dtype.newbyteorder("="), order="C")


def pack(value: Any, arrays: list[bytes], depth: int = 0) -> Any:
    """Return `value` as JSON, its arrays moved to `arrays`; raise ValueError if nested too deep."""
    if depth > MAX_DEPTH:
        raise ValueError(f"lists are nested more than {MAX_DEPTH} deep")
    if value is None or isinstance(value, bool | str):
        return value
    if isinstance(value, int | float):
        return int(value) if isinstance(value, int) else float(value)
    if isinstance(value, list):
        return [pack(item, arrays, depth + 1) for item in value]
    if isinstance(value, tuple):
        return {"tuple": [pack(item, arrays, depth + 1) for item in value]}
    if isinstance(value, dict) and all(isinstance(key, str) for key in value):
        return {"dict": {key: pack(item, arrays, depth + 1) for key, item in value.items()}}
    if isinstance(value, torch.Tensor):
        if str(value.dtype).removeprefix("torch.") not in DTYPES:  # of eight bits, for instance
            value = value.to(torch.complex64 if value.is_complex() else torch.float64)
        if value.layout != torch.strided:
            value = value.to_dense()
        dense = value.detach().cpu().resolve_conj().resolve_neg().flatten()
        dense = torch.empty(len(dense), dtype=dense.dtype).copy_(dense)  # one number has any stride
        arrays.append(dense.view(torch.uint8).numpy().tobytes())
        return {"tensor": str(value.dtype).removeprefix("torch."), "shape": list(value.shape)}
    made = as_list_or_tensor(value)
    return {"other": words_for(value)} if made is None else pack(made, arrays, depth + 1)


def as_list_or_tensor(value: Any) -> Any:
    """Return a list, or a tensor of a type that the format carries; None for any other value."""
    try:
        plain = as_list_or_array(value)
        if isinstance(plain, list):
            return plain
        if isinstance(plain, dict | set | frozenset | complex):
            return None  # as the self-check does
        made = torch.as_tensor(plain)  # a row of pandas's, a tensor of another library ...
    except Exception:  # the student's own class may raise anything
        return None
    return made if str(made.dtype).removeprefix("torch.") in DTYPES else None


def words_for(value: object) -> str:
    """Return the name of a value's type; of an array also what it holds, as that is the fault."""
    if isinstance(value, np.ndarray | np.generic):
        return f"array of {HELD.get(value.dtype.kind, 'other things')}, not of numbers"
    return type(value).__name__[:80]


def encode(value: Any) -> bytes:
    """Return one frame; raise ValueError if the value is too large for one."""
    arrays: list[bytes] = []
    text = json.dumps(pack(value, arrays)).encode()
    body = b"".join(arrays)
    if len(text) > MAX_JSON or len(body) > MAX_ARRAYS:
        raise ValueError(f"{(len(text) + len(body)) >> 20} MiB are too large for an answer")
    return HEADER.pack(len(text), len(body)) + text + body


def frame_length(head: bytes) -> int:
    """Return how many bytes follow the header; raise Malformed if that is too many."""
    text, body = HEADER.unpack(head)
    if text > MAX_JSON or body > MAX_ARRAYS:
        raise Malformed("a frame that is too large")
    return int(text + body)


class _Body:
    """The raw bytes of a frame, read from the left."""

    def __init__(self, data: bytes) -> None:
        self.data, self.place, self.parts = data, 0, 0

    def count_part(self) -> None:
        self.parts += 1
        if self.parts > MAX_PARTS:
            raise Malformed(f"more than {MAX_PARTS:,} lists in one answer; return a tensor")

    def take(self, dtype: object, shape: object) -> torch.Tensor:
        if not isinstance(dtype, str) or dtype not in DTYPES:
            raise Malformed("an array of unknown type")
        if not isinstance(shape, list) or len(shape) > 16:
            raise Malformed("an array without a shape")
        if not all(type(size) is int and 0 <= size <= MAX_ARRAYS for size in shape):
            raise Malformed("an array with an impossible shape")
        size = math.prod(shape) * DTYPES[dtype].itemsize
        if size > len(self.data) - self.place:
            raise Malformed("an array longer than its bytes")
        chunk = bytearray(self.data[self.place : self.place + size])
        self.place += size
        if not chunk:
            return torch.empty(shape, dtype=DTYPES[dtype])
        if DTYPES[dtype] is torch.bool:  # a byte other than 0 and 1 is no bool
            return torch.frombuffer(chunk, dtype=torch.uint8).ne(0).reshape(shape)
        return torch.frombuffer(chunk, dtype=DTYPES[dtype]).reshape(shape)


def unpack(node: Any, body: _Body, depth: int = 0) -> Any:
    """Undo `pack`."""
    if isinstance(node, str):  # a lone surrogate could be written into no file
        return node.encode(errors="replace").decode()
    if not isinstance(node, list | dict):
        return node
    body.count_part()
    if depth > MAX_DEPTH:
        raise Malformed(f"lists nested more than {MAX_DEPTH} deep")
    if isinstance(node, list):
        return [unpack(item, body, depth + 1) for item in node]
    if "tensor" in node:
        return body.take(node["tensor"], node.get("shape"))
    if isinstance(node.get("tuple"), list):
        return tuple(unpack(item, body, depth + 1) for item in node["tuple"])
    if isinstance(node.get("dict"), dict):
        return {
            unpack(key, body): unpack(item, body, depth + 1) for key, item in node["dict"].items()
        }
    if isinstance(node.get("other"), str):
        return Opaque(unpack(node["other"][:80], body))
    raise Malformed("an unknown kind of value")


def decode(head: bytes, rest: bytes) -> Any:
    """Return the value of one frame; raise Malformed if it is none."""
    text, _ = HEADER.unpack(head)
    body = _Body(rest[text:])
    try:
        value = unpack(json.loads(rest[:text]), body)
    except Malformed:
        raise
    except (ValueError, RecursionError, RuntimeError, OverflowError) as error:
        raise Malformed("bytes that are no frame") from error
    if body.place != len(body.data):
        raise Malformed("bytes that belong to no array")
    return value
