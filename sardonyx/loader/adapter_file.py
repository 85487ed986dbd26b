"""onnxruntime's adapter files (`.onnx_adapter`): named tensors in a FlatBuffer.

The schema is public: https://onnxruntime.ai/docs/genai/reference/adapter.html. The root table has
format_version, adapter_version, model_version (int32) and parameters (tables); a parameter has
name (string), dims (int64), data_type (int32, ONNX's numbers) and raw_data (uint8, at multiples
of 8). FlatBuffers: https://flatbuffers.dev/internals.
"""

from __future__ import annotations

import math
import os
import struct
from collections.abc import Mapping
from dataclasses import field
from typing import Any

import numpy as np

from sardonyx.base import dtypes, errors
from sardonyx.base.errors import Fail, InvalidArgument, NoSuchFile, message
from sardonyx.base.files import open_file
from sardonyx.base.records import dataclass
from sardonyx.loader.external_writer import replacing

#: The version of the format that is known.
FORMAT_VERSION = 1
_IDENTIFIER = b"TORT"
#: Both tables have four fields of four bytes behind the offset of their layout.
_LAYOUT = struct.pack("<6H", 12, 20, 4, 8, 12, 16)
#: The largest number of an element type in the schema.
_LAST_TYPE = 20
_ALIGNMENT_BYTES = 8


@dataclass(slots=True)
class Adapter:
    """What a file has. Arrays that were read are views of its bytes, and read-only."""

    parameters: dict[str, np.ndarray[Any, Any]] = field(default_factory=dict)
    adapter_version: int = 0
    model_version: int = 0
    format_version: int = FORMAT_VERSION


def read_adapter(path: str | os.PathLike[str]) -> Adapter:
    """Read a file.

    Raises:
        NoSuchFile: It is not there.
        InvalidArgument: It is no adapter, or is damaged.
        NotImplemented: It has elements of a type that is not supported.
    """
    where = os.fsdecode(path)
    try:
        with open_file(path) as file:
            data = np.fromfile(file, np.uint8)
    except NoSuchFile:
        raise NoSuchFile(message(where, "There is no such adapter")) from None
    except (OSError, Fail) as error:
        raise InvalidArgument(message(where, f"The adapter cannot be read: {error}")) from None
    data.flags.writeable = False
    try:
        return _Reader(where, data).adapter()
    except (struct.error, UnicodeDecodeError, IndexError):
        raise InvalidArgument(message(where, "The adapter is damaged: it is cut short")) from None


class _Reader:
    def __init__(self, where: str, data: np.ndarray[Any, Any]) -> None:
        self._where, self._data, self._memory = where, data, data.data

    def _damaged(self, what: str) -> InvalidArgument:
        return InvalidArgument(message(self._where, f"This is no adapter: {what}"))

    def _number(self, kind: str, place: int) -> int:
        if place < 0:
            raise self._damaged("an offset leads nowhere")
        return int(struct.unpack_from("<" + kind, self._memory, place)[0])

    def _target(self, place: int) -> int:
        return place + self._number("I", place)

    def _fields(self, table: int) -> list[int]:
        """Where the four fields of a table are; 0 for one that is left out."""
        layout = table - self._number("i", table)
        count = max(0, self._number("H", layout) - 4) // 2
        offsets = [self._number("H", layout + 4 + 2 * k) for k in range(min(count, 4))]
        return [table + offset if offset else 0 for offset in (*offsets, 0, 0, 0, 0)[:4]]

    def _vector(self, place: int, element_bytes: int) -> memoryview:
        start = self._target(place)
        size = self._number("I", start) * element_bytes
        found = self._memory[start + 4 : start + 4 + size]
        if len(found) != size:
            raise self._damaged("a list is cut short")
        return found

    def adapter(self) -> Adapter:
        """What the file has."""
        if bytes(self._memory[4:8]) != _IDENTIFIER:
            raise self._damaged("it does not begin like one")
        places = self._fields(self._target(0))
        versions = [self._number("i", p) if p else 0 for p in places[:3]]
        if versions[0] != FORMAT_VERSION:
            raise errors.NotImplemented(
                message(
                    self._where, "The adapter's format is of another version",
                    expected=str(FORMAT_VERSION), got=str(versions[0]),
                )
            )  # fmt: skip
        found = Adapter({}, versions[1], versions[2], versions[0])
        if places[3]:
            start = self._target(places[3]) + 4
            for k in range(len(self._vector(places[3], 4)) // 4):
                name, array = self._parameter(self._target(start + 4 * k))
                if name in found.parameters:
                    raise self._damaged(f"the parameter {name!r} is there twice")
                found.parameters[name] = array
        return found

    def _parameter(self, table: int) -> tuple[str, np.ndarray[Any, Any]]:
        name_at, dims_at, type_at, raw_at = self._fields(table)
        if not name_at or not type_at:
            raise self._damaged("a parameter has no name or no type")
        name = str(self._vector(name_at, 1), "utf-8")
        number = self._number("i", type_at)
        dtype = dtypes.BY_ONNX_ID.get(number) if number <= _LAST_TYPE else None
        if dtype is None or dtype is dtypes.STRING:
            what = f"The parameter {name!r} has elements of type {number}"
            raise errors.NotImplemented(message(self._where, what))
        dims = np.frombuffer(self._vector(dims_at, 8), "<i8").tolist() if dims_at else []
        raw = self._vector(raw_at, 1) if raw_at else self._memory[:0]
        if min(dims, default=0) < 0 or math.prod(dims) * dtype.numpy.itemsize != len(raw):
            what = f"the parameter {name!r} of shape {dims} has {len(raw)} bytes"
            raise self._damaged(what)
        if dtype is dtypes.BOOL and np.frombuffer(raw, np.uint8).max(initial=0) > 1:
            raise self._damaged(f"the parameter {name!r} has truths that are neither 0 nor 1")
        return name, np.frombuffer(raw, dtype.numpy).reshape(dims)


def write_adapter(path: str | os.PathLike[str], adapter: Adapter) -> None:
    """Write a file, which appears when it is complete.

    Raises:
        InvalidArgument: A parameter has elements that the format does not have.
    """
    data = _written(adapter)
    with replacing(os.fsdecode(path)) as file:
        file.write(data)


def _written(adapter: Adapter) -> bytes:
    layout_at = 8
    buffer = bytearray(struct.pack("<I", layout_at + len(_LAYOUT)) + _IDENTIFIER + _LAYOUT)
    versions = adapter.format_version, adapter.adapter_version, adapter.model_version
    buffer += struct.pack("<5i", len(_LAYOUT), *versions, 4)
    count = len(adapter.parameters)
    rows = len(buffer) + 4
    buffer += struct.pack("<I", count) + bytes(4 * count)
    for number, (name, array) in enumerate(adapter.parameters.items()):
        place = rows + 4 * number
        struct.pack_into("<I", buffer, place, len(buffer) - place)
        _add_parameter(buffer, layout_at, name, array)
    return bytes(buffer)


def _add_parameter(
    buffer: bytearray, layout_at: int, name: str, array: np.ndarray[Any, Any]
) -> None:
    table = len(buffer)
    dtype = dtypes.from_numpy(array.dtype)
    if dtype is None or dtype is dtypes.STRING or dtype.onnx_id > _LAST_TYPE:
        what = f"The format has no elements of type {array.dtype}"
        raise InvalidArgument(message(f"adapter parameter {name}", what))
    buffer += struct.pack("<i4I", table - layout_at, 0, 0, dtype.onnx_id, 0)
    text = name.encode()
    parts: Mapping[int, tuple[int, Any]] = {
        4: (len(text), text + b"\0"),
        8: (array.ndim, struct.pack(f"<{array.ndim}q", *array.shape)),
        16: (array.nbytes, np.ascontiguousarray(array).reshape(-1).view(np.uint8).data),
    }
    for offset, (count, content) in parts.items():
        # Elements begin at a multiple of 8, their number is before them.
        buffer += bytes((-len(buffer) - 4) % _ALIGNMENT_BYTES)
        struct.pack_into("<I", buffer, table + offset, len(buffer) - (table + offset))
        buffer += struct.pack("<I", count)
        buffer += content
    buffer += bytes(-len(buffer) % 4)


def as_mapping(values: object) -> Mapping[str, Any]:
    """Parameters by name.

    Raises:
        InvalidArgument: They are none.
    """
    if not isinstance(values, Mapping) or not all(isinstance(name, str) for name in values):
        got = type(values).__name__
        raise InvalidArgument(message("adapter", "The parameters are no dict by name", got=got))
    return values
