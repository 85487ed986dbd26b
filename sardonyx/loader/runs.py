"""Runs of one repeated field, each element with its own tag: read many at once.

Attributes of operators are written so. A large ensemble of trees has tens of millions of them.
Only whole elements are taken; whatever is unusual ends a run, and is left to the plain reader.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, Protocol

import numpy as np

from sardonyx.ir.constant import Array
from sardonyx.ir.long_list import LONG, LongList, narrow

#: Bytes that are looked at in one go, and the fewest that may hold a run of `LONG` elements.
_STRETCH, _SHORTEST = 1 << 17, 2 * LONG

#: The number of elements after which a run is looked for first.
_FIRST = 64

#: More different texts than this among those of one stretch are no run.
_MOST_TEXTS = 16


class Reader(Protocol):
    """What reads runs faster than array operations do. It looks at whole elements alone.

    What it gives is there until it is asked again.
    """

    def integers(self, tag: int, data: Array) -> tuple[Array, int]:
        """Numbers that `data` begins with, as int32, and how many bytes they take.

        It ends at another tag, at a number that is too long for it, and just before the end.
        """

    def texts(self, tag: int, data: Array) -> tuple[Array, tuple[bytes, ...], int]:
        """Texts that `data` begins with: positions among the different ones, those, and the bytes.

        It ends at another tag, at a long text, and at one that is too many.
        """


class _Here(threading.local):
    find: Callable[[], Reader | None] | None = None


_here = _Here()


@contextmanager
def reading_with(find: Callable[[], Reader | None]) -> Iterator[None]:
    """Let runs of this thread be read by what `find` gives; it is asked for each of them."""
    before, _here.find = _here.find, find
    try:
        yield
    finally:
        _here.find = before


def may_begin(found: list[Any]) -> bool:
    """Whether a run is worth looking for behind these elements.

    That is after another run, else ever more seldom, so that failing costs little in all.
    """
    count = len(found)
    return count > 1 and (
        type(found[-2]) is LongList or (count >= _FIRST and not count & (count - 1))
    )


def read_run(
    kind: str, tag: int, buffer: bytes, position: int, end: int
) -> tuple[LongList[Any] | None, int]:
    """Elements that follow each other with the same tag of one byte.

    Args:
        kind: What the elements are: `float`, `int64` or `bytes`.
        tag: The byte before each.
        buffer: The message.
        position: Where the first tag is expected.
        end: Where the message ends, or what is known of it.

    Returns:
        Elements, at least `LONG`, or None; and the position after them.
    """
    stop = min(end, position + _STRETCH)
    if stop - position < _SHORTEST or buffer[position] != tag:
        return None, position
    found, after = _READERS[kind](tag, np.frombuffer(buffer, np.uint8, stop - position, position))
    if found is None or len(found) < LONG:
        return None, position
    return found, position + after


def _floats(tag: int, data: Array) -> tuple[LongList[Any], int]:
    item = np.dtype([("tag", "u1"), ("value", "<f4")])
    records = data[: len(data) // item.itemsize * item.itemsize].view(item)
    count = _leading(records["tag"] == tag)
    return LongList(records["value"][:count].copy()), count * item.itemsize


def _leading(good: Array) -> int:
    """How many are true before the first that is not."""
    first = int(good.argmin()) if len(good) else 0
    return len(good) if not len(good) or good[first] else first


def _integers(tag: int, data: Array) -> tuple[LongList[Any] | None, int]:
    reader = _here.find() if _here.find is not None else None
    if reader is None:
        return _varints(tag, data)
    found, used = reader.integers(tag, data)
    if len(found) < LONG:
        return _varints(tag, data)
    rest: list[int] = []
    # Few are left, and at the end of a window no run may begin that soon.
    while len(rest) < 16 and used + 1 < len(data) and data[used] == tag:
        length = int((data[used + 1 : used + 5] < 128).argmax()) + 1
        number = data[used + 1 : used + 1 + length]
        if len(number) != length or number[-1] >= 128:
            break
        rest.append(sum(int(byte & 127) << 7 * k for k, byte in enumerate(number)))
        used += 1 + length
    values = narrow(found)
    if rest or values.dtype == found.dtype:
        values = narrow(np.concatenate([values, np.array(rest, np.int32)]))
    return LongList(values), used


def _varints(tag: int, data: Array) -> tuple[LongList[Any] | None, int]:
    size = int((data[1:12] < 128).argmax())
    length = size + 2
    count = len(data) // length
    # Numbers of one length are columns.
    table = data[: count * length].reshape(count, length)
    ends = table < 128
    if size < 9 and (table[:, 0] == tag).all() and ends[:, -1].all() and not ends[:, 1:-1].any():
        return LongList(narrow(_joined([table[:, k + 1] for k in range(size + 1)]))), table.size
    # Bytes below 128 are a tag and the last byte of a number, by turns.
    places = np.flatnonzero(data < 128)
    count = len(places) // 2
    tags, lasts = places[: 2 * count : 2], places[1 : 2 * count : 2]
    lengths = lasts - tags
    good = data[tags] == tag
    good[1:] &= tags[1:] == lasts[:-1] + 1
    good &= lengths <= 9  # ten bytes are negative, or too many
    count = _leading(good) if not tags[:1].any() else 0
    if not count:
        return None, 0
    tags, lengths = tags[:count], lengths[:count]
    bytes_each = [data[tags + 1]]
    for k in range(1, int(lengths.max())):
        part = data.take(tags + (k + 1), mode="clip")
        bytes_each.append(np.where(lengths > k, part, 0))
    return LongList(narrow(_joined(bytes_each))), int(lasts[count - 1]) + 1


def _joined(bytes_each: list[Array]) -> Array:
    """Numbers of which each byte has seven bits, the lowest first."""
    count = len(bytes_each)
    kind: type[np.integer[Any]] = np.int8 if count == 1 else np.int16 if count == 2 else np.int32
    if count > 4:
        kind = np.int64
    total: Array = (bytes_each[0] & 127).astype(kind)
    for place, part in enumerate(bytes_each[1:], 1):
        total |= np.left_shift((part & 127).astype(kind), kind(7 * place))
    return total


def _texts(tag: int, data: Array) -> tuple[LongList[Any] | None, int]:
    reader = _here.find() if _here.find is not None else None
    if reader is not None:
        codes, table, used = reader.texts(tag, data)
        return LongList(codes.copy(), table), used
    return _compared(tag, data)


def _compared(tag: int, data: Array) -> tuple[LongList[Any] | None, int]:
    starts = np.flatnonzero(data == tag)
    starts = starts[: np.searchsorted(starts, len(data) - 1)]
    sizes = data[starts + 1]
    after = starts + 2 + sizes
    # A text may hold the tag, too: then what follows is left to the plain reader.
    good = sizes < 128
    good[:-1] &= after[:-1] == starts[1:]
    good &= after <= len(data)
    count = _leading(good) if not starts[:1].any() else 0
    if count < LONG:
        return None, 0
    first, lengths = starts[:count] + 2, sizes[:count]
    codes, table = np.zeros(count, np.int8), list[bytes]()
    for size in np.flatnonzero(np.bincount(lengths)).tolist():
        members = np.flatnonzero(lengths == size)
        if not size:
            codes[members] = len(table)
            table.append(b"")
            continue
        texts = np.ndarray((len(data) - size + 1,), f"V{size}", data, 0, (1,))[first[members]]
        while len(texts) and len(table) < _MOST_TEXTS:
            same = texts == texts[0]
            codes[members[same]] = len(table)
            table.append(texts[0].tobytes())
            texts, members = texts[~same], members[~same]
        if len(texts):
            return None, 0
    return LongList(codes, tuple(table)), int(after[count - 1])


_READERS = {"float": _floats, "int64": _integers, "bytes": _texts}
