"""Changes of a file's bytes: flips, cuts, and protobuf fields with other tags, sizes and order."""

from __future__ import annotations

import random

_HEAD_BYTES = 4000


def mutate(rnd: random.Random, data: bytes) -> tuple[bytes, str]:
    """Change a serialized message; gives it and what was done."""
    if not data:
        return rnd.randbytes(20), "noise"
    name, change = rnd.choice(_CHANGES)
    return change(rnd, data), name


def varint(value: int) -> bytes:
    """A protobuf number."""
    value &= (1 << 64) - 1
    encoded = b""
    while value >= 128:
        encoded += bytes([value & 127 | 128])
        value >>= 7
    return encoded + bytes([value])


def _place(rnd: random.Random, data: bytes) -> int:
    # Structure is at the front of fields, weights are long: half of the changes go to the head.
    return rnd.randrange(min(len(data), _HEAD_BYTES) if rnd.random() < 0.5 else len(data))


def _flip(rnd: random.Random, data: bytes) -> bytes:
    changed = bytearray(data)
    for _ in range(rnd.choice((1, 1, 1, 2, 8))):
        changed[_place(rnd, data)] ^= 1 << rnd.randrange(8)
    return bytes(changed)


def _overwrite(rnd: random.Random, data: bytes) -> bytes:
    at = _place(rnd, data)
    patch = rnd.choice((varint(rnd.getrandbits(64)), b"\xff" * 11, b"\0" * 8, rnd.randbytes(4)))
    return data[:at] + patch + data[at + len(patch) :]


def _cut(rnd: random.Random, data: bytes) -> bytes:
    return data[: _place(rnd, data)]


def _remove(rnd: random.Random, data: bytes) -> bytes:
    at = _place(rnd, data)
    return data[:at] + data[at + rnd.choice((1, 2, 5, 40)) :]


def _insert(rnd: random.Random, data: bytes) -> bytes:
    at = _place(rnd, data)
    return data[:at] + rnd.randbytes(rnd.choice((1, 2, 5, 40))) + data[at:]


def _repeat(rnd: random.Random, data: bytes) -> bytes:
    at = _place(rnd, data)
    piece = data[at : at + rnd.choice((1, 8, 64, 512))]
    return data[:at] + piece * rnd.choice((2, 3, 20)) + data[at:]


def _twice(rnd: random.Random, data: bytes) -> bytes:
    return data + data  # protobuf merges messages that follow each other


def _fields(data: bytes) -> list[tuple[int, int, int]]:
    """Start, start of content, and end of the outermost fields."""
    found, at = [], 0
    while at < len(data):
        start = at
        tag, at = _read(data, at)
        wire = tag & 7
        content = at
        if wire == 0:
            _, at = _read(data, at)
        elif wire == 2:
            size, content = _read(data, at)
            at = content + size
        else:
            at += 8 if wire == 1 else 4
        if at > len(data):
            break
        found.append((start, content, at))
    return found


def _read(data: bytes, at: int) -> tuple[int, int]:
    value = shift = 0
    while at < len(data) and shift < 70:
        byte = data[at]
        at += 1
        value |= (byte & 127) << shift
        if byte < 128:
            break
        shift += 7
    return value, at


def _inside(rnd: random.Random, data: bytes, depth: int) -> bytes:
    """Change a field of the message, or of one inside it, with all lengths around it right."""
    fields = _fields(data)
    if not fields:
        return _flip(rnd, data) if data else data
    start, content, end = rnd.choice(fields)
    tag, _ = _read(data, start)
    if tag & 7 == 2 and depth and end - content > 4 and rnd.random() < 0.75:
        inner = _inside(rnd, data[content:end], depth - 1)
        return data[:start] + varint(tag) + varint(len(inner)) + inner + data[end:]
    whole = data[start:end]
    kind = rnd.randrange(6)
    if kind == 0:  # another number
        return (
            data[:start]
            + varint(rnd.randint(1, 40) << 3 | tag & 7)
            + data[content - (tag & 7 == 2) : end]
            + data[end:]
        )
    if kind == 1:  # another wire type
        return data[:start] + varint(tag & ~7 | rnd.randrange(8)) + data[content:]
    if kind == 2:  # twice
        return data[:end] + whole + data[end:]
    if kind == 3:  # to the front or the back
        rest = data[:start] + data[end:]
        return whole + rest if rnd.random() < 0.5 else rest + whole
    if kind == 4:  # a group around it, maybe without an end
        group = rnd.randint(30, 60)
        close = varint(group << 3 | 4) if rnd.random() < 0.7 else b""
        return data[:start] + varint(group << 3 | 3) + whole + close + data[end:]
    size = rnd.choice((0, 1, 1 << 31, 1 << 62, (1 << 64) - 1, end - content + 1))
    return data[:start] + varint(tag) + varint(size) + data[content:]


def _structure(rnd: random.Random, data: bytes) -> bytes:
    return _inside(rnd, data, rnd.randint(0, 6))


_CHANGES = (
    ("flip bits", _flip), ("flip bits", _flip), ("overwrite", _overwrite), ("cut", _cut),
    ("remove", _remove), ("insert", _insert), ("repeat", _repeat), ("twice", _twice),
    ("retag", _structure), ("retag", _structure), ("retag", _structure), ("retag", _structure),
)  # fmt: skip
