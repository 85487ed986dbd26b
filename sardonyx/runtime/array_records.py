"""Arrays in memory that the processor does not reach, as native code binds feeds and results."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import numpy as np

from sardonyx.native.layout import (
    DATA_OFFSET,
    DESCR_OFFSET,
    DIMS_OFFSET,
    FLAGS_OFFSET,
    NEEDED_FLAGS,
    RANK_OFFSET,
    TYPE_OFFSET,
    WORD,
)
from sardonyx.runtime.arena import address_of

_RECORD_WORDS = FLAGS_OFFSET // WORD + 1
_DATA = DATA_OFFSET // WORD


class ArrayRecords:
    """Arrays as native code sees NumPy's, wherever their elements lie.

    Args:
        kinds: Element type and number of axes of each.

    Attributes:
        address: Of a table of the addresses of all.
    """

    def __init__(self, kinds: Iterable[tuple[Any, int]]) -> None:
        listed = list(kinds)
        self._starts: list[int] = []
        self._shapes: list[tuple[int, ...] | None] = [None] * len(listed)
        size = len(listed)
        for _, rank in listed:
            self._starts.append(size)
            size += _RECORD_WORDS + rank
        self._table = np.zeros(max(1, size), np.int64)
        self._words = self._table.data
        self.address = address_of(self._table)
        for k, (dtype, rank) in enumerate(listed):
            start = self._starts[k]
            self._table[k] = self.address + WORD * start
            for offset, value in (
                (TYPE_OFFSET, id(np.ndarray)),
                (RANK_OFFSET, rank),
                (DIMS_OFFSET, self.address + WORD * (start + _RECORD_WORDS)),
                (DESCR_OFFSET, id(dtype)),
                (FLAGS_OFFSET, NEEDED_FLAGS),
            ):
                self._table[start + offset // WORD] = value

    def put(self, number: int, address: int, shape: tuple[int, ...] | None = None) -> None:
        """Say where an array lies now, and of which shape it is, if that is asked for."""
        start = self._starts[number]
        self._words[start + _DATA] = address
        if shape is not None and shape != self._shapes[number]:
            for axis, size in enumerate(shape, start + _RECORD_WORDS):
                self._words[axis] = size
            self._shapes[number] = shape
