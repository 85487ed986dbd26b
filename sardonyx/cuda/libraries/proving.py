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
from sardonyx.cuda.driver.device import Device
from sardonyx.cuda.driver.driver import call
from sardonyx.cuda.libraries.expected import Reference, numbers_of
from sardonyx.cuda.libraries.measuring import Loan
from sardonyx.cuda.memory.rectangles import copy_rectangles
from sardonyx.cuda.memory.staging import new_pinned
from sardonyx.runtime.arena import address_of
from sardonyx.runtime.storage import Array

#: Every byte of a result before the call: all elements are NaN, which no call makes of numbers.
_UNWRITTEN = 0xFF
#: So many lines of a result are looked at, each along the longest axis, and elements of a line.
_LINES, _ELEMENTS = 16, 256
#: Products on the host that are spent on knowing what is right; so many elements at least.
_MOST_PRODUCTS, _LEAST_KNOWN = 1 << 16, 64
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
        reference: What the result is, where that is known.

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
        reference: Reference | None = None,
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
        self._known: tuple[Array, Array] | None = None
        if reference is not None:
            indices = _indices(self._lines, shape)
            least = max(_LEAST_KNOWN, _MOST_PRODUCTS // max(1, reference.depth))
            some = np.arange(0, len(indices), max(1, len(indices) // least))
            self._known = some, reference.values(numbers_of(operands), indices[some])
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

    def right(self, found: Mapping[int, Array | None]) -> list[int]:
        """Of calls that were to do the same those that did it, in their order.

        Where it is not known what is right, those whose results most have; where most have none,
        the first that has any.

        Args:
            found: What `result_of` gave for each, by number.
        """
        if self._known is None:
            return list(proven(found))
        return [k for k, result in found.items() if result is not None and self._is_right(result)]

    def first_right(self, found: Mapping[int, Array | None]) -> int | None:
        """The first of some calls that is sure to have done it; None if none is.

        Where it is not known what is right, another one must have the same result.
        """
        if self._known is not None:
            return next(iter(self.right(found)), None)
        there = [(k, result) for k, result in found.items() if result is not None]
        for place, (number, result) in enumerate(there):
            if any(_is_close(result, other) for _, other in there[place + 1 :]):
                return number
        return None

    def _is_right(self, result: Array) -> bool:
        assert self._known is not None  # noqa: S101 - asked before
        some, expected = self._known
        return _is_close(result[some], expected)


_Lines = dict[tuple[int, int, int], list[int]]


def _lines(shape: Sequence[int], strides: Sequence[int]) -> _Lines:
    """Places in an array: for each line its first element, its step, and how many there are.

    For each of them the index of its first element.
    """
    axis = _longest(shape)
    every = -(-shape[axis] // _ELEMENTS)
    dice, found = np.random.default_rng(0), _Lines()
    for number in range(_LINES):
        at = dice.integers(shape).tolist()
        if number == 0:
            at = [0] * len(shape)
        elif number == 1:
            at = [size - 1 for size in shape]
        at[axis] %= every
        count = -(-(shape[axis] - at[axis]) // every)
        start = sum(place * step for place, step in zip(at, strides, strict=True))
        found[start, every * strides[axis], count] = at
    return dict(sorted(found.items()))


def _longest(shape: Sequence[int]) -> int:
    return max(range(len(shape)), key=shape.__getitem__)


def _indices(lines: _Lines, shape: Sequence[int]) -> Array:
    """The index of each element of some lines, one in each row."""
    axis = _longest(shape)
    every = -(-shape[axis] // _ELEMENTS)
    found = []
    for (_, _, count), first in lines.items():
        each = np.tile(np.array(first, np.int64), (count, 1))
        each[:, axis] += every * np.arange(count)
        found.append(each)
    return np.concatenate(found)


def proven(found: Mapping[int, Array | None]) -> Iterable[int]:
    """Of calls that were to do the same those that did it.

    Args:
        found: What `Trial.result_of` gave for each, by number.

    Returns:
        The numbers of those whose results most have; where most have none, that of the first that
        has any.
    """
    there = {number: result for number, result in found.items() if result is not None}
    agreeing = {
        number: sum(_is_close(result, other) for other in there.values())
        for number, result in there.items()
    }
    most = [number for number, count in agreeing.items() if 2 * count > len(there)]
    return most or list(there)[:1]


def _is_close(one: Array, other: Array) -> bool:
    largest = max(float(np.abs(one).max()), float(np.abs(other).max()))
    return math.isfinite(largest) and float(np.abs(one - other).max()) <= _FAR * largest
