"""Reads runs of repeated fields with native code, for `loader.runs`."""

from __future__ import annotations

import numpy as np

from sardonyx.ir.constant import Array
from sardonyx.native.functions import Begun, NativeFunctions
from sardonyx.native.repeated_fields import MOST_TEXTS
from sardonyx.runtime.arena import address_of


class RunReaders:
    """Finds the reader of a load as soon as its functions are compiled.

    Args:
        begun: The functions.
    """

    def __init__(self, begun: Begun) -> None:
        self._begun = begun
        self._reader: RunReader | None = None

    def find(self) -> RunReader | None:
        """The reader, if nobody must wait for it."""
        if self._reader is None:
            library = self._begun.if_ready()
            self._reader = None if library is None else RunReader(library)
        return self._reader


class RunReader:
    """A `loader.runs.Reader` for one thread.

    Args:
        library: Its functions.
    """

    def __init__(self, library: NativeFunctions) -> None:
        self._library = library
        self._used = np.zeros(1, np.int64)
        self._table = np.zeros(2 * MOST_TEXTS + 1, np.int64)
        self._found = np.zeros(0, np.int32)

    def _new_values(self, data: Array) -> Array:
        """Room for as many elements as data can have: the same again, memory is dear when new."""
        if 2 * len(self._found) <= len(data):
            self._found = np.empty(len(data) // 2 + 1, np.int32)
        return self._found

    def integers(self, tag: int, data: Array) -> tuple[Array, int]:
        """Numbers as int32, until the next call, and the bytes that they take."""
        values = self._new_values(data)
        count = self._library.read_integers(
            address_of(data), len(data), tag, address_of(values), address_of(self._used)
        )
        return values[:count], int(self._used[0])

    def texts(self, tag: int, data: Array) -> tuple[Array, tuple[bytes, ...], int]:
        """Positions as int8, until the next call, texts, and the bytes that all take."""
        codes = self._new_values(data).view(np.int8)
        count = self._library.read_texts(
            address_of(data), len(data), tag, address_of(codes), address_of(self._table),
            address_of(self._used),
        )  # fmt: skip
        known = self._table[: 2 * self._table[-1]].reshape(-1, 2).tolist()
        table = tuple(data[start : start + length].tobytes() for start, length in known)
        return codes[:count], table, int(self._used[0])
