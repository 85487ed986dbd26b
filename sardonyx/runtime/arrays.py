"""NumPy arrays as native code sees them, and feeds made fit for it."""

from __future__ import annotations

import ctypes
import sys
from collections.abc import Sequence
from typing import Any

import numpy as np

from sardonyx.base import dtypes
from sardonyx.base.conversion import as_rounded
from sardonyx.base.errors import ContradictingSizes, InvalidArgument, OutOfMemory, message
from sardonyx.base.handlers import pass_on
from sardonyx.base.interrupt import claim
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
from sardonyx.plan.plan import InputSpec
from sardonyx.runtime.arena import Words, address_of
from sardonyx.runtime.storage import Array, DeviceArray
from sardonyx.runtime.try_run import KeptItems

#: Where a tuple keeps its items: behind its fixed part, which counts one item less than none.
ITEMS_OFFSET = tuple.__basicsize__


def _at(address: int, kind: Any) -> int:
    return int(kind.from_address(address).value or 0)


def _layout_holds() -> bool:
    """Whether arrays and tuples of this interpreter lie in memory as native_layout.py says."""
    if sys.implementation.name != "cpython" or np.ndarray.__basicsize__ < FLAGS_OFFSET + 4:
        return False
    samples: tuple[Array, ...] = (
        np.zeros((2, 3), np.float32),
        np.zeros((), np.int64),
        np.zeros((4, 0, 5), np.uint8),
        np.zeros((3, 4, 5), np.float64)[:, ::2],
    )
    start, kept = id(samples) + ITEMS_OFFSET, KeptItems(samples)
    for k, array in enumerate(samples):
        if _at(kept.address + WORD * k, ctypes.c_void_p) != id(array):
            return False
        if _at(start + WORD * k, ctypes.c_void_p) != id(array):
            return False
        here = id(array)
        words = {
            TYPE_OFFSET: id(np.ndarray),
            DATA_OFFSET: address_of(array),
            DESCR_OFFSET: id(array.dtype),
        }
        if any(_at(here + o, ctypes.c_void_p) != v for o, v in words.items()):
            return False
        if _at(here + RANK_OFFSET, ctypes.c_int) != array.ndim:
            return False
        if _at(here + FLAGS_OFFSET, ctypes.c_int) != array.flags.num:
            return False
        dims = _at(here + DIMS_OFFSET, ctypes.c_void_p)
        if [_at(dims + WORD * d, ctypes.c_int64) for d in range(array.ndim)] != list(array.shape):
            return False
    return True


#: Native code may read the arrays themselves; else it reads what `Mirror` copied.
NATIVE = _layout_holds()


class Mirror:
    """Fields of arrays laid out as in CPython, for interpreters that lay them out otherwise."""

    def __init__(self, arrays: Sequence[object]) -> None:
        self._records: list[Words] = []
        self._items = np.zeros(max(1, len(arrays)), np.int64)
        for k, array in enumerate(arrays):
            record = np.zeros(FLAGS_OFFSET // WORD + 1, np.int64)
            record[TYPE_OFFSET // WORD] = id(type(array))
            if isinstance(array, np.ndarray):
                dims = np.array([*array.shape, 0], np.int64)
                record[DATA_OFFSET // WORD] = address_of(array)
                record[RANK_OFFSET // WORD] = array.ndim
                record[DIMS_OFFSET // WORD] = address_of(dims)
                record[DESCR_OFFSET // WORD] = id(array.dtype)
                record[FLAGS_OFFSET // WORD] = array.flags.num
                self._records.append(dims)
            self._records.append(record)
            self._items[k] = address_of(record)
        self.address = address_of(self._items)


def plain(feed: object, spec: InputSpec) -> Array:
    """A feed as an array that native code takes: copied only where that is needed.

    Numbers and lists are converted to the input's element type; arrays must have it.

    Raises:
        InvalidArgument: The element type or the rank does not fit.
    """
    where, wanted = f"input {spec.name}", spec.dtype.stored
    if isinstance(feed, DeviceArray):
        feed = feed.numpy()
    if isinstance(feed, (np.ndarray, np.generic)):
        array: Array = np.asarray(feed)
    else:
        try:
            array = as_rounded(feed, wanted)
        except (ValueError, TypeError, OverflowError) as error:
            what = f"The feed, a {type(feed).__name__}, is no array: {error}"
            raise InvalidArgument(message(where, what)) from None
    if array.dtype != wanted:
        if array.dtype.newbyteorder("=") != wanted:
            found = dtypes.from_numpy(array.dtype)
            raise InvalidArgument(
                message(
                    where,
                    "The feed has the wrong element type",
                    expected=f"{spec.dtype.name} ({wanted})",
                    got=f"{found.name if found else 'unknown'} ({array.dtype})",
                )
            )
        array = _copied(array, wanted, where)
    if array.ndim != len(spec.dims):
        kind = InvalidArgument if spec.dims else ContradictingSizes
        raise kind(
            message(
                where,
                "The feed has the wrong rank",
                expected=f"{len(spec.dims)} axes, {_shape_text(spec)}",
                got=f"{array.ndim}, {array.shape}",
            )
        )
    if array.flags.num & NEEDED_FLAGS != NEEDED_FLAGS:
        array = _copied(array, wanted, where)
    # Equal dtypes may be different objects; native code compares addresses.
    return array if array.dtype is wanted else array.view(wanted)


def _copied(array: Array, dtype: np.dtype[Any], where: str) -> Array:
    """The elements one after the other: an array of few bytes can repeat them without end."""
    claim(array.size * dtype.itemsize)
    try:
        return np.array(array, dtype, order="C", copy=True)
    except (MemoryError, ValueError) as error:
        pass_on(error)
        what = f"There is no memory for a copy of a feed of shape {array.shape}"
        raise OutOfMemory(message(where, what)) from None


def _shape_text(spec: InputSpec) -> str:
    return f"({', '.join(map(repr, spec.dims))})"
