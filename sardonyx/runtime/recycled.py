"""Large results lie in memory of results before them that nobody holds any more.

New memory of that size comes from the system page by page, each cleared when it is first written
to, and goes back as soon as the result is dropped: a decoder whose keys and values are 24 results
of 400 KB spent a seventh of its time on that. So a result is an array on a block that is lent to it
and to whatever is made of it (views, tensors of other libraries); with the last of them the block
comes back. (To keep a result, keep it, a view or its buffer: its `.base` alone may be collected
before the memory that it has is out of use.)
"""

from __future__ import annotations

import ctypes
import math
from collections import Counter, deque
from collections.abc import Sequence
from typing import Any, TypeAlias

import numpy as np

from sardonyx.native.layout import ALIGNMENT
from sardonyx.runtime.arena import address_of
from sardonyx.runtime.storage import Array

#: Results of fewer bytes come out of what `malloc` keeps anyway.
LARGE_BYTES = 64 << 10


class _Block:
    """Memory for one result at a time.

    Args:
        size_bytes: How much.
    """

    __slots__ = ("_address", "_memory", "_type")

    def __init__(self, size_bytes: int) -> None:
        self._memory = np.empty(size_bytes + ALIGNMENT, np.uint8)
        self._address = -(-address_of(self._memory) // ALIGNMENT) * ALIGNMENT
        self._type: Any = ctypes.c_char * size_bytes

    def lent(self, shape: tuple[int, ...], dtype: np.dtype[Any], returned: _Blocks) -> Array:
        """An array on it; when that and all made of it are gone, the block is in `returned`."""
        memory = self._type.from_address(self._address)
        memory.lease = _Lease(self, returned)
        return np.ndarray(shape, dtype, memory)


class _Lease:
    """Lives as long as an array on a block, or anything made of it, does."""

    __slots__ = ("_block", "_returned")

    def __init__(self, block: _Block, returned: _Blocks) -> None:
        self._block, self._returned = block, returned

    def __del__(self) -> None:
        self._returned.append(self._block)  # one step, on whatever thread


_Blocks: TypeAlias = "deque[_Block]"
#: Shape, type of elements, the size of the block that it lies on, and where that comes back to.
_Row: TypeAlias = tuple[tuple[int, ...], "np.dtype[Any]", int, _Blocks]


class Recycled:
    """The memory of the results of one frame, which one run at a time has.

    No more blocks are kept than a run has results: who collects results of many runs, and drops
    them all, leaves those of one. Results whose sizes the data decides are always new memory.

    Attributes:
        is_needed: Whether any expected result is large.
    """

    __slots__ = ("_returned", "_rows", "is_needed")

    def __init__(self) -> None:
        self._returned: dict[int, _Blocks] = {}
        self._rows: list[_Row | None] = []
        self.is_needed = False

    def expect(self, results: Sequence[tuple[tuple[int, ...], np.dtype[Any]] | None]) -> None:
        """From now on runs have results of these shapes and types; None for what is not known.

        Blocks that fit them stay, and mostly do if a size grows by a little from run to run.
        """
        sizes = [0 if r is None else _capacity(math.prod(r[0]) * r[1].itemsize) for r in results]
        counts = Counter(filter(None, sizes))
        old, self._returned = self._returned, {0: deque((), 0)}
        for capacity, count in counts.items():
            blocks = old.get(capacity)
            if blocks is None or blocks.maxlen != count:
                blocks = deque(blocks or (), count)
            self._returned[capacity] = blocks
        self._rows = [
            None if result is None else (*result, capacity, self._returned[capacity])
            for result, capacity in zip(results, sizes, strict=True)
        ]
        self.is_needed = bool(counts)

    def arrays(self) -> list[Array | None]:
        """An array for each expected result, contents undefined.

        Raises:
            MemoryError, ValueError: The system refuses.
        """
        return [None if row is None else _array(*row) for row in self._rows]


def _array(shape: tuple[int, ...], dtype: np.dtype[Any], capacity: int, returned: _Blocks) -> Array:
    if not capacity:
        return np.empty(shape, dtype)
    try:
        block = returned.pop()
    except IndexError:
        block = _Block(capacity)
    return block.lent(shape, dtype, returned)


def _capacity(size_bytes: int) -> int:
    """The bytes of a block for a result: an eighth of a power of two more at most; 0 for none."""
    if size_bytes < LARGE_BYTES:
        return 0
    step = 1 << (size_bytes.bit_length() - 4)
    return -(-size_bytes // step) * step
