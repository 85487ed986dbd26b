"""Runs of one repeated field, each element with its own tag: read many at once.

Attributes of operators are written so. A large ensemble of trees has tens of millions of them.
Only whole elements are taken; whatever is unusual ends a run, and is left to the plain reader.
"""

from __future__ import annotations

from typing import Any

import numpy as np

#: Bytes that are looked at in one go.
_STRETCH = 1 << 15

#: Runs are looked for after so many elements each time, so that failing costs little for each.
EVERY = 64


def read_run(kind: str, tag: int, buffer: bytes, position: int, end: int) -> tuple[list[Any], int]:
    """Elements that follow each other with the same tag of one byte.

    Args:
        kind: What the elements are.
        tag: The byte before each.
        buffer: The message.
        position: Where the first tag is expected.
        end: Where the message ends, or what is known of it.

    Returns:
        The elements, perhaps none, and the position after them.
    """
    found: list[Any] = []
    while position < end and buffer[position] == tag:
        stop = min(end, position + _STRETCH)
        if kind in ("float", "double"):
            values, after = _numbers(kind, tag, buffer, position, stop)
        elif kind == "int64":
            values, after = _varints(tag, buffer, position, stop)
        elif kind == "bytes":
            values, after = _bytes(tag, buffer, position, stop)
        else:
            break
        if not values:
            break
        found += values
        position = after
    return found, position


def _numbers(kind: str, tag: int, buffer: bytes, position: int, stop: int) -> tuple[list[Any], int]:
    item = np.dtype([("tag", "u1"), ("value", "<f4" if kind == "float" else "<f8")])
    count = (stop - position) // item.itemsize
    records = np.frombuffer(buffer, item, count, position)
    others = np.flatnonzero(records["tag"] != tag)
    if others.size:
        count = int(others[0])
    return records["value"][:count].tolist(), position + count * item.itemsize


def _varints(tag: int, buffer: bytes, position: int, stop: int) -> tuple[list[Any], int]:
    data = np.frombuffer(buffer, np.uint8, stop - position, position)
    # Bytes below 128 are a tag and the last byte of a number, by turns.
    ends = np.flatnonzero(data < 128)
    count = len(ends) // 2
    tags, lasts = ends[: 2 * count : 2], ends[1 : 2 * count : 2]
    good = data[tags] == tag
    good[1:] &= tags[1:] == lasts[:-1] + 1
    good &= lasts - tags <= 9  # ten bytes are negative, or too many
    bad = np.flatnonzero(~good)
    if bad.size:
        count = int(bad[0])
        tags, lasts = tags[:count], lasts[:count]
    if not count:
        return [], position
    lengths = lasts - tags
    values = np.zeros(count, np.int64)
    for k in range(int(lengths.max())):
        longer = lengths > k
        values[longer] |= (data[tags[longer] + 1 + k].astype(np.int64) & 127) << (7 * k)
    return values.tolist(), position + int(lasts[-1]) + 1


def _bytes(tag: int, buffer: bytes, position: int, stop: int) -> tuple[list[Any], int]:
    found: list[Any] = []
    while position + 1 < stop and buffer[position] == tag:
        size = buffer[position + 1]
        after = position + 2 + size
        if size >= 128 or after > stop:
            break
        found.append(buffer[position + 2 : after])
        position = after
    return found, position
