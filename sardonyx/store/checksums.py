"""Checksums of entries and sections: they tell damage, not malice.

Small payloads have a CRC-32. Of larger ones, chunks are summed by a native function at the speed of
memory, by several threads, and a digest is made of the chunks' states. A checksum begins with the
payload's name, so that a file that takes the place of another is damage, too.
"""

from __future__ import annotations

import contextlib
import threading
import zlib
from collections.abc import Iterable

import numpy as np

from sardonyx.base.forks import compiling
from sardonyx.base.hashing import blake2b
from sardonyx.base.interrupt import checkpoint
from sardonyx.native.checksum import CHUNK_BYTES, LANES
from sardonyx.runtime.storage import Array

#: Largest payload with a CRC-32. The native functions themselves are smaller, and checked so.
SMALL_BYTES = 4 * 2**20
SIZE_BYTES = 16
#: More threads than these wait for memory.
_MOST_THREADS = 8
_BYTES_PER_THREAD = 4 * 2**20
#: The caller looks after so many chunks whether it shall go on.
_CHUNKS_BETWEEN = 256
_ALL = 2**62


def small(data: bytes | memoryview, name: str) -> bytes:
    """The checksum of up to `SMALL_BYTES`."""
    return zlib.crc32(data, zlib.crc32(name.encode())).to_bytes(SIZE_BYTES, "little")


def of_pieces(pieces: Iterable[bytes], name: str) -> bytes:
    """What `Checksum` gives for all pieces as one.

    Args:
        pieces: Whole numbers of chunks (`CHUNK_BYTES`), but for the last.
        name: See `Checksum`.
    """
    states, rest = list[Array](), np.empty(0, np.uint8)
    for piece in pieces:
        data = np.frombuffer(piece, np.uint8)
        states.append(Checksum(data, name).states())
        rest = data[data.size // CHUNK_BYTES * CHUNK_BYTES :]
    return _digest(name, states, rest)


def _digest(name: str, states: Iterable[Array], rest: Array) -> bytes:
    state = blake2b(name.encode(), digest_size=SIZE_BYTES)
    for each in states:
        state.update(each.data)
    state.update(rest.data)
    state.update(rest.size.to_bytes(8, "little"))
    return state.digest()


class Checksum:
    """A checksum of many bytes, which is begun before it is needed.

    Args:
        data: The bytes, one after the other.
        name: What they are the content of.
        threads: How many may work on it, the caller of `finish` included.
    """

    def __init__(self, data: Array, name: str, threads: int = 1) -> None:
        with compiling:
            from sardonyx.native.functions import library  # which is in the cache itself

        self._data, self._name = data, name
        self._count = data.size // CHUNK_BYTES
        self._states = np.empty(self._count * LANES, np.uint64)
        self._next = np.zeros(1, np.int64)
        self._checksum = library().checksum
        helpers = min(threads, _MOST_THREADS, data.size // _BYTES_PER_THREAD) - 1
        self._helpers = list[threading.Thread]()
        with contextlib.suppress(RuntimeError):  # no more threads may be: the caller does it all
            for _ in range(helpers):
                helper = threading.Thread(target=self._work, args=(_ALL,), daemon=True)
                helper.start()
                self._helpers.append(helper)

    def _work(self, most: int) -> int:
        data, states, place = (x.ctypes.data for x in (self._data, self._states, self._next))
        return self._checksum(data, self._count, states, place, most)

    def states(self) -> Array:
        """The states of all chunks; the caller's thread helps. Raises what ends its work."""
        try:
            while self._work(_CHUNKS_BETWEEN) == _CHUNKS_BETWEEN:
                checkpoint()
        finally:
            self.stop()
        return self._states

    def finish(self) -> bytes:
        """The checksum. Raises as `states` does."""
        return _digest(self._name, [self.states()], self._data[self._count * CHUNK_BYTES :])

    def stop(self) -> None:
        """Let no thread go on: the memory may be given back then."""
        self._next[0] = _ALL
        for helper in self._helpers:
            helper.join()
        self._helpers.clear()
