"""Reader of the protobuf wire format, driven by tables of fields.

A message becomes a plain record. Structure is copied out of the source while it is read; long byte
fields are only noted as a `Span` of it. All lengths are checked, so that damaged input ends in
`InvalidProtobuf` with the byte offset and the path of the message.

Large messages are read through a window, so that a file's weights are not touched at all.
"""

from __future__ import annotations

import struct
from typing import TYPE_CHECKING, Any, ClassVar, NamedTuple

from sardonyx.base.errors import InvalidProtobuf, message
from sardonyx.base.remembering import remembering
from sardonyx.ir.long_list import joined
from sardonyx.loader.runs import may_begin, read_run
from sardonyx.loader.source import Source

#: Messages may be nested so deep, which is also protobuf's own limit.
DEPTH_LIMIT = 100
#: Byte fields longer than this stay in the source.
SPAN_BYTES = 1024
#: Messages of a kind whose equals are one record are not longer than this.
SHORT_BYTES = 64
#: How deep they may be, as nobody counts how deep messages are nested inside: each takes 2 bytes.
_SHORT_DEPTH = DEPTH_LIMIT - SHORT_BYTES // 2
#: Messages longer than this are read piece by piece.
WINDOW_BYTES = 1 << 17

_VARINT, _FIXED64, _LENGTH, _GROUP, _GROUP_END, _FIXED32 = range(6)
_WIRE_OF_KIND = {
    "int64": _VARINT,
    "int32": _VARINT,
    "uint64": _VARINT,
    "float": _FIXED32,
    "double": _FIXED64,
    "string": _LENGTH,
    "bytes": _LENGTH,
    "span": _LENGTH,
    "message": _LENGTH,
}
_FLOAT = struct.Struct("<f")
_DOUBLE = struct.Struct("<d")


class Span(NamedTuple):
    """A place in a source."""

    offset: int
    size: int


class WireRecord:
    """A message. Its fields are attributes; one that was not set has the default of its kind.

    Each kind of message has a class of its own, whose attributes are the defaults.
    """

    kind: ClassVar[Message]

    if TYPE_CHECKING:

        def __getattr__(self, name: str) -> Any: ...

    def has(self, name: str) -> bool:
        """Whether the field was in the message."""
        return name in self.__dict__


class Field(NamedTuple):
    """A field as the decoder needs it.

    Attributes:
        name: The field's name.
        kind: Its kind, one of the keys of `_WIRE_OF_KIND`.
        repeated: Whether it is a list.
        lazy: Whether the list stays a list of byte strings in packed form, decoded later.
        long: Whether items of the list may be `LongList`s of elements.
        message: The kind of message, where it is one.
        packed: Whether this wire form holds many elements at once.
        shared: Whether equal short messages are one record, which nobody changes.
    """

    name: str
    kind: str
    repeated: bool
    lazy: bool
    long: bool
    message: Message | None
    packed: bool
    shared: bool


class Message:
    """A kind of message: its name and its table of fields by tag.

    Attributes:
        name: What ONNX calls it.
        record: Makes an empty one.
        table: Its fields by tag.
        numbers: Names of the fields by number.
        long: Those whose elements may be held as a `LongList`.
    """

    def __init__(self, name: str) -> None:
        self.name = name
        self.record: type[WireRecord] = type(name, (WireRecord,), {"kind": self})
        self.table: dict[int, Field] = {}
        self.numbers: dict[int, str] = {}
        self.long: set[str] = set()

    def fields(self, **fields: tuple[int, str] | tuple[int, str, Message]) -> None:
        """Declare fields: name = (number, kind), with signs after the kind.

        `*` is a list, `**` one that is lazy, `*+` one that may be long, `*=` one of messages of
        which equal short ones are one record.
        """
        for name, (number, kind, *sub) in fields.items():
            base, shared = kind.rstrip("*+="), kind.endswith("=")
            repeated, lazy, long = "*" in kind, kind.endswith("**"), kind.endswith("+")
            wire = _WIRE_OF_KIND[base]
            submessage = sub[0] if sub else None
            self.numbers[number] = name
            self.long |= {name} if long else set()
            self.table[number << 3 | wire] = Field(
                name, base, repeated, lazy, long, submessage, False, shared
            )
            if repeated and wire != _LENGTH:
                self.table[number << 3 | _LENGTH] = Field(
                    name, base, True, lazy, long, None, True, False
                )
            default: Any = 0
            if repeated:
                default = ()
            elif wire == _LENGTH:
                default = {"string": "", "message": None}.get(base, b"")
            elif wire != _VARINT:
                default = 0.0
            setattr(self.record, name, default)


class _BrokenError(Exception):
    """The input is damaged: where, how, and in which message (innermost first)."""

    def __init__(self, offset: int, what: str) -> None:
        super().__init__(what)
        self.offset = offset
        self.what = what
        self.path: list[str] = []


def decode(kind: Message, source: Source, place: Span | None = None) -> WireRecord:
    """Read a source, or a part of it, as one message.

    Raises:
        InvalidProtobuf: It is not such a message.
        Fail: The source was changed while it was read.
    """
    record = kind.record()
    start, size = place or (0, source.size)
    try:
        if isinstance(source.whole, bytes):
            _fields(record, source.whole, start, start + size, 0, 0, partial=False)
        else:
            _large(record, source, start, start + size, 0)
    except _BrokenError as error:
        path = ".".join([kind.name, *reversed(error.path)])
        raise InvalidProtobuf(
            message(f"{source.name}, byte {error.offset}, {path}", error.what)
        ) from None
    return record


def _large(record: WireRecord, source: Source, start: int, end: int, depth: int) -> None:
    """Read a message piece by piece, a window of the source at a time."""
    position = start
    while position < end:
        window = source.read(position, min(WINDOW_BYTES, end - position))
        whole = position + len(window) == end
        used = _fields(record, window, 0, len(window), position, depth, partial=not whole)
        position += used
        if used:
            continue
        tag, at = _varint(window, 0, position)
        if tag & 7 != _LENGTH:
            raise _BrokenError(position, "A field is longer than any can be")
        size, at = _varint(window, at, position)
        at += position
        if size > end - at:
            raise _BrokenError(at, f"The length {size} exceeds the {end - at} bytes that are left")
        field = record.kind.table.get(tag)
        if field is not None and field.message is not None:
            _enter(record, field, None, source, at, at + size, 0, depth)
        elif field is not None and field.kind == "span" and size > SPAN_BYTES:
            record.__dict__[field.name] = Span(at, size)
        elif field is not None:
            data = source.read(position, at + size - position)
            _fields(record, data, 0, len(data), position, depth, partial=False)
        elif tag >> 3 in record.kind.numbers or not tag >> 3:
            _unknown(record, window, 0, 0, len(window), position)
        position = at + size


def _enter(
    record: WireRecord,
    field: Field,
    buffer: bytes | None,
    source: Source | None,
    start: int,
    stop: int,
    base: int,
    depth: int,
) -> None:
    """Read a message inside a message, from `buffer` or, when that is None, from `source`."""
    values = record.__dict__
    assert field.message is not None  # noqa: S101 - narrows the type for the checker
    if depth >= DEPTH_LIMIT:
        raise _BrokenError(start + base, f"Messages are nested more than {DEPTH_LIMIT} deep")
    if field.repeated:
        found = values.get(field.name)
        if found is None:
            found = values[field.name] = []
        inner = field.message.record()
        found.append(inner)
    else:
        # A message that comes twice is merged. Those with long lists are all parts of lists.
        inner = values.get(field.name) or field.message.record()
        values[field.name] = inner
    try:
        if buffer is not None:
            _fields(inner, buffer, start, stop, base, depth + 1, partial=False)
        elif source is not None:
            _large(inner, source, start, stop, depth + 1)
    except _BrokenError as error:
        index = f"[{len(values[field.name]) - 1}]" if field.repeated else ""
        error.path.append(field.name + index)
        raise
    if inner.kind.long:
        for name in inner.kind.long & inner.__dict__.keys():
            inner.__dict__[name] = joined(inner.__dict__[name])


def _fields(
    record: WireRecord,
    buffer: bytes,
    position: int,
    end: int,
    base: int,
    depth: int,
    *,
    partial: bool,
) -> int:
    """Read the fields in buffer[position:end], which is at `base` in the source.

    With `partial`, a field that does not end inside is left. Gives the position reached.
    """
    values = record.__dict__
    table = record.kind.table
    while position < end:
        start = position
        try:
            tag = buffer[position]
            position += 1
            if tag >= 128:
                tag, position = _varint(buffer, start, base)
            field = table.get(tag)
            if field is None:
                position = _unknown(record, buffer, start, position, end, base)
                continue
            name, kind, repeated, lazy, long, submessage, packed, shared = field
            if tag & 7 == _LENGTH:
                size = buffer[position]
                position += 1
                if size >= 128:
                    size, position = _varint(buffer, position - 1, base)
                first = position
                position += size
                if position > end:
                    if partial:
                        return start
                    left = max(0, end - first)
                    raise _BrokenError(
                        base + first, f"The length {size} exceeds the {left} bytes that are left"
                    )
                if submessage is not None:
                    if shared and size <= SHORT_BYTES and depth <= _SHORT_DEPTH:
                        inner = _short(submessage, buffer[first:position])
                        if inner is not None:
                            found = values.get(name)
                            if found is None:
                                values[name] = [inner]
                            else:
                                found.append(inner)
                            continue
                    _enter(record, field, buffer, None, first, position, base, depth)
                    continue
                value: Any
                if kind == "string":
                    value = buffer[first:position].decode()
                elif kind == "span" and size > SPAN_BYTES:
                    value = Span(base + first, size)
                elif packed and not lazy:
                    found = values.get(name)
                    if found is None:
                        found = values[name] = []
                    found.extend(_packed(kind, buffer[first:position], base + first))
                    continue
                else:
                    value = buffer[first:position]
                    if lazy:
                        _check_packed(kind, value, base + first)
            elif tag & 7 == _VARINT:
                value = buffer[position]
                first = position
                position += 1
                if value >= 128:
                    value, position = _varint(buffer, first, base)
                if kind == "int64":
                    if value >= 1 << 63:
                        value -= 1 << 64
                elif kind == "int32":
                    value = (value & 0xFFFFFFFF ^ 0x80000000) - 0x80000000
                if lazy:
                    value = buffer[first:position]
            else:
                first = position
                position += 4 if tag & 7 == _FIXED32 else 8
                if position <= end:
                    value = buffer[first:position]
                    if not lazy:
                        value = (_FLOAT if kind == "float" else _DOUBLE).unpack(value)[0]
        except IndexError:
            position = end + 1
        except UnicodeDecodeError:
            raise _BrokenError(base + first, f"The text in {name} is not UTF-8") from None
        if position > end:
            if partial:
                return start
            raise _BrokenError(base + start, "The message ends inside a field")
        if repeated:
            found = values.get(name)
            if found is None:
                values[name] = [value]
            else:
                found.append(value)
                if long and may_begin(found):
                    more, position = read_run(kind, tag, buffer, position, end)
                    while more is not None:
                        found.append(more)
                        more, position = read_run(kind, tag, buffer, position, end)
        else:
            values[name] = value
    return position


@remembering(4096)
def _short(kind: Message, data: bytes) -> WireRecord | None:
    """A whole message; None if it is damaged, as where it is matters then."""
    record = kind.record()
    try:
        _fields(record, data, 0, len(data), 0, 0, partial=False)
    except _BrokenError:
        return None
    return record


def _varint(buffer: bytes, position: int, base: int) -> tuple[int, int]:
    """The number at `position`, and the position after it; IndexError where the buffer ends."""
    start = position
    value = shift = 0
    while True:
        byte = buffer[position]
        position += 1
        value |= (byte & 127) << shift
        if byte < 128:
            break
        shift += 7
        if shift > 63:
            raise _BrokenError(base + start, "A number takes more than 10 bytes")
    return value & 0xFFFFFFFFFFFFFFFF, position


def _unknown(
    record: WireRecord, buffer: bytes, start: int, position: int, end: int, base: int
) -> int:
    """Skip a field that is in no table; gives the position after it, beyond `end` if incomplete.

    Groups, which protobuf has given up, are skipped with all that is in them.
    """
    open_groups: list[int] = []
    position = start
    while True:
        at = position
        tag, position = _varint(buffer, position, base)
        number, wire = tag >> 3, tag & 7
        if not number or number >= 1 << 29:
            raise _BrokenError(base + at, f"There is no field with number {number}")
        if not open_groups and number in record.kind.numbers:
            name = record.kind.numbers[number]
            raise _BrokenError(base + at, f"The field {name} has the wrong wire type {wire}")
        if wire == _VARINT:
            _, position = _varint(buffer, position, base)
        elif wire == _LENGTH:
            size, position = _varint(buffer, position, base)
            if position + size > len(buffer):
                raise IndexError
            position += size
        elif wire in (_FIXED32, _FIXED64):
            position += 4 if wire == _FIXED32 else 8
        elif wire == _GROUP:
            open_groups.append(number)
            if len(open_groups) > DEPTH_LIMIT:
                raise _BrokenError(base + at, f"Groups are nested more than {DEPTH_LIMIT} deep")
        elif wire == _GROUP_END:
            if not open_groups or open_groups.pop() != number:
                raise _BrokenError(base + at, "A group ends that did not begin")
        else:
            raise _BrokenError(base + at, f"There is no wire type {wire}")
        if position > end:
            raise IndexError
        if not open_groups:
            return position


def _check_packed(kind: str, data: bytes, offset: int) -> None:
    if kind in ("float", "double"):
        if len(data) % (4 if kind == "float" else 8):
            raise _BrokenError(offset, f"{len(data)} bytes are no whole number of elements")
    elif data and data[-1] >= 128:
        raise _BrokenError(offset + len(data) - 1, "The message ends inside a number")


def _packed(kind: str, data: bytes, offset: int) -> list[Any]:
    _check_packed(kind, data, offset)
    if kind == "float":
        return list(struct.unpack(f"<{len(data) // 4}f", data))
    if kind == "double":
        return list(struct.unpack(f"<{len(data) // 8}d", data))
    values = []
    position = 0
    while position < len(data):
        value, position = _varint(data, position, offset)
        if kind == "int64" and value >= 1 << 63:
            value -= 1 << 64
        elif kind == "int32":
            value = (value & 0xFFFFFFFF ^ 0x80000000) - 0x80000000
        values.append(value)
    return values
