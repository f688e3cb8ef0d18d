"""A plain format for values on a pipe: one JSON header, then the raw bytes of the arrays.

Both ends of the pipe between the grader and a student's process use it. Nothing in it is
executed on reading (no pickle), nothing is unpacked (no archive), and every size is checked
against what was announced before memory is taken.
"""

from __future__ import annotations

import json
import math
import struct
from typing import Any

import numpy as np
import torch

HEADER = struct.Struct("<II")  # bytes of JSON, bytes of arrays
MAX_JSON = 1 << 20
MAX_ARRAYS = 64 << 20
MAX_PARTS = 10_000  # lists, tuples, dicts and arrays of one frame: each costs time to compare
DTYPES = {
    str(dtype).removeprefix("torch."): dtype
    for dtype in (
        torch.float64, torch.float32, torch.float16, torch.bfloat16,
        torch.int64, torch.int32, torch.int16, torch.int8, torch.bool,
        torch.uint64, torch.uint32, torch.uint16, torch.uint8,
        torch.complex64, torch.complex128,
    )
}  # fmt: skip

HELD = {"O": "objects", "U": "texts", "S": "bytes", "V": "records", "M": "dates", "m": "durations"}


class Malformed(ValueError):
    """What was read is no frame of this format."""


class Opaque:
    """Stands for a value of a type that the format does not carry."""

    def __init__(self, type_name: str) -> None:
        """Keep the name of the type, for the message."""
        self.type_name = type_name


def pack(value: Any, arrays: list[bytes]) -> Any:
    """Return `value` as JSON, its arrays moved to `arrays`."""
    if value is None or isinstance(value, bool | str):
        return value
    if isinstance(value, int | float):
        return int(value) if isinstance(value, int) else float(value)
    if isinstance(value, list):
        return [pack(item, arrays) for item in value]
    if isinstance(value, tuple):
        return {"tuple": [pack(item, arrays) for item in value]}
    if isinstance(value, dict) and all(isinstance(key, str) for key in value):
        return {"dict": {key: pack(item, arrays) for key, item in value.items()}}
    if isinstance(value, torch.Tensor) and str(value.dtype).removeprefix("torch.") in DTYPES:
        if value.layout != torch.strided:
            value = value.to_dense()
        plain = value.detach().cpu().contiguous().resolve_conj().resolve_neg()
        arrays.append(plain.flatten().view(torch.uint8).numpy().tobytes())
        return {"tensor": str(value.dtype).removeprefix("torch."), "shape": list(value.shape)}
    array = as_tensor(value)
    return {"other": words_for(value)} if array is None else pack(array, arrays)


def as_tensor(value: Any) -> torch.Tensor | None:
    """Return a tensor for all that the self-check in a notebook takes for one, and a bit more."""
    if isinstance(value, torch.Tensor):
        return None  # of a type that the format does not carry
    try:
        if isinstance(value, np.ndarray | np.generic):
            return torch.as_tensor(native(np.array(value, order="C")))  # no negative strides
        if isinstance(value, dict | set | frozenset):
            return None
        made = torch.as_tensor(value)  # deque, array.array, memoryview, a row of pandas's ...
    except Exception:  # the student's own class may raise anything
        return None
    return made if str(made.dtype).removeprefix("torch.") in DTYPES else None


def native(array: np.ndarray) -> np.ndarray:
    """Return numbers in this machine's order of bytes, of no more bits than torch has."""
    kind = {"g": np.float64, "G": np.complex128}.get(array.dtype.char)
    return array.astype(kind or array.dtype.newbyteorder("="))


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


def unpack(node: Any, body: _Body) -> Any:
    """Undo `pack`."""
    if isinstance(node, str):  # a lone surrogate could be written into no file
        return node.encode(errors="replace").decode()
    if not isinstance(node, list | dict):
        return node
    body.count_part()
    if isinstance(node, list):
        return [unpack(item, body) for item in node]
    if "tensor" in node:
        return body.take(node["tensor"], node.get("shape"))
    if isinstance(node.get("tuple"), list):
        return tuple(unpack(item, body) for item in node["tuple"])
    if isinstance(node.get("dict"), dict):
        return {unpack(key, body): unpack(item, body) for key, item in node["dict"].items()}
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
