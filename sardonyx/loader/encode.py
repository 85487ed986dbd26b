"""Writer of the protobuf wire format. Big payloads stay as they are until all bytes are joined."""

from __future__ import annotations

import struct
from collections.abc import Iterable
from typing import TypeAlias

import numpy as np

from sardonyx.loader.wire import Message

Buffer: TypeAlias = bytes | memoryview

_VARINT, _FIXED64, _LENGTH, _FIXED32 = 0, 1, 2, 5
#: Pieces shorter than this are joined, longer ones are referred to.
_JOIN_BYTES = 1 << 14


class Encoder:
    """A message being written, field by field, by the names of its table.

    Attributes:
        size: Bytes so far.
    """

    def __init__(self, kind: Message) -> None:
        self._tags = {
            field.name: tag for tag, field in reversed(kind.table.items()) if not field.packed
        }
        self._kind = kind
        self._parts: list[Buffer] = []
        self._tail = bytearray()
        self.size = 0

    def put(self, name: str, value: int | float | str | bytes) -> Encoder:
        """Add a scalar field."""
        tag = self._tags[name]
        if isinstance(value, str):
            value = value.encode()
        if isinstance(value, bytes):
            return self.payload(name, value)
        head = _varint(tag)
        if tag & 7 == _FIXED32:
            with np.errstate(over="ignore"):
                head += np.float32(value).tobytes()
        elif tag & 7 == _FIXED64:
            head += struct.pack("<d", value)
        else:
            head += _varint(int(value))
        return self._add(head)

    def put_all(self, name: str, values: Iterable[int | float | str | bytes]) -> Encoder:
        """Add the elements of a repeated scalar field."""
        for value in values:
            self.put(name, value)
        return self

    def put_if(self, name: str, value: int | float | str | bytes) -> Encoder:
        """Add a scalar field unless it is empty or zero."""
        return self.put(name, value) if value else self

    def payload(self, name: str, data: Buffer) -> Encoder:
        """Add a byte field, without copying a long one."""
        self._add(_varint(self._tags[name]) + _varint(len(data)))
        return self._add(data)

    def embed(self, name: str, inner: Encoder) -> Encoder:
        """Add a message that is complete."""
        self._add(_varint(self._tags[name]) + _varint(inner.size))
        for part in inner.parts():
            self._add(part)
        return self

    def parts(self) -> list[Buffer]:
        """The message as pieces in order."""
        self._flush()
        return self._parts

    def _add(self, data: Buffer) -> Encoder:
        self.size += len(data)
        if len(data) < _JOIN_BYTES:
            self._tail += data
        else:
            self._flush()
            self._parts.append(data)
        return self

    def _flush(self) -> None:
        if self._tail:
            self._parts.append(bytes(self._tail))
            self._tail.clear()


def _varint(value: int) -> bytes:
    value &= 0xFFFFFFFFFFFFFFFF
    encoded = bytearray()
    while value >= 128:
        encoded.append(value & 127 | 128)
        value >>= 7
    encoded.append(value)
    return bytes(encoded)
