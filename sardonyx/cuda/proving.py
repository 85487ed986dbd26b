"""Whether a library does its work: tried on memory of its own before a run relies on it.

A plan that reports success and writes nothing is the fastest of all, and what is made wrong in the
description of a call may show in nothing else: cuDNN 9.19 has such plans where an axis of size 1
has the stride 0.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

import numpy as np

from sardonyx.base import dtypes
from sardonyx.cuda.device import Device
from sardonyx.cuda.driver import call
from sardonyx.cuda.measuring import Loan
from sardonyx.cuda.rectangles import copy_rectangles
from sardonyx.cuda.staging import new_pinned
from sardonyx.runtime.arena import address_of
from sardonyx.runtime.storage import Array

#: Every byte of a result before the call: all elements are NaN, which no call makes of numbers.
_UNWRITTEN = 0xFF
#: So many lines of a result are looked at, each along the longest axis, and elements of a line.
_LINES, _ELEMENTS = 16, 256
#: Results that are further apart, as a share of the largest, are not the same.
_FAR = 2.0**-5


class Trial:
    """Memory for one kind of call: operands full of random numbers, and a result.

    Args:
        device: Where.
        loan: Where the memory comes from.
        stream: Handle of the stream of all work here.
        operands: For each operand how many elements it has from the first to the last, and their
            type by name.
        out: Which of them is the result.
        shape, strides: Of the result; strides in elements.

    Attributes:
        places: Address of each operand.
    """

    def __init__(
        self,
        device: Device,
        loan: Loan,
        stream: Any,
        operands: Mapping[Any, tuple[int, str]],
        out: Any,
        shape: Sequence[int],
        strides: Sequence[int],
    ) -> None:
        self._device, self._stream = device, stream
        self.places: dict[Any, int] = {}
        for name, (count, kind) in operands.items():
            dtype = dtypes.BY_NAME[kind].numpy
            self.places[name] = loan.take(count * dtype.itemsize, stream)
            if name != out:
                loan.fill(self.places[name], count, dtype, stream)
        count, kind = operands[out]
        self._dtype = dtypes.BY_NAME[kind].numpy
        self._bytes = count * self._dtype.itemsize
        self._out, self._lines = self.places[out], _lines(shape, strides)
        counts = (sum(count for *_, count in self._lines),)
        with device.capturing:
            self._seen = new_pinned(device, counts, self._dtype, "parts of results", or_any=False)

    def result_of(self, work: Callable[[], None]) -> Array | None:
        """Elements from all over what a call writes; None if some are as they were before.

        Args:
            work: Puts the call in the stream.
        """
        with self._device.capturing:  # the first call may load something
            call("cuMemsetD8Async", self._out, _UNWRITTEN, self._bytes, self._stream)
            work()
        size, to = self._dtype.itemsize, address_of(self._seen)
        for start, step, count in self._lines:
            source = self._out + start * size
            copy_rectangles(to, [size], source, [step * size], [count], size, self._stream)
            to += count * size
        call("cuStreamSynchronize", self._stream)
        found = self._seen.astype(np.float64)
        return None if np.isnan(found).any() else found


def _lines(shape: Sequence[int], strides: Sequence[int]) -> list[tuple[int, int, int]]:
    """Places in an array: for each line its first element, its step, and how many there are."""
    axis = max(range(len(shape)), key=shape.__getitem__)
    every = -(-shape[axis] // _ELEMENTS)
    dice, found = np.random.default_rng(0), set()
    for number in range(_LINES):
        at = dice.integers(shape).tolist()
        if number == 0:
            at = [0] * len(shape)
        elif number == 1:
            at = [size - 1 for size in shape]
        at[axis] %= every
        count = -(-(shape[axis] - at[axis]) // every)
        start = sum(place * step for place, step in zip(at, strides, strict=True))
        found.add((start, every * strides[axis], count))
    return sorted(found)


def proven(found: Mapping[int, Array | None]) -> Iterable[int]:
    """Of calls that were to do the same those that did it.

    Args:
        found: What `Trial.result_of` gave for each, by number.

    Returns:
        The numbers of those whose results most have; where most have none, that of the first that
        has any.
    """
    there = {number: result for number, result in found.items() if result is not None}
    alike = {
        number: sum(_is_close(result, other) for other in there.values())
        for number, result in there.items()
    }
    most = [number for number, count in alike.items() if 2 * count > len(there)]
    return most or list(there)[:1]


def _is_close(one: Array, other: Array) -> bool:
    largest = max(float(np.abs(one).max()), float(np.abs(other).max()))
    return math.isfinite(largest) and float(np.abs(one - other).max()) <= _FAR * largest
