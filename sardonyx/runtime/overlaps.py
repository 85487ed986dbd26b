"""Memory that outputs are written to: none may be another one's, or its own twice.

Memory of a feed is another matter: what a run writes there, it writes when the feed was read.
"""

from __future__ import annotations

from collections.abc import Iterable
from itertools import combinations, starmap
from typing import Any

import numpy as np

from sardonyx.base.errors import InvalidArgument, message
from sardonyx.runtime.storage import Array, DeviceArray, Tensor

#: To find out whether elements of two views meet is hard in general: so much is tried. Windows of
#: an array and steps through it are decided long before.
_MOST_WORK = 10_000
#: Of so few arrays NumPy looks at each pair in less time than their addresses take to be read.
_FEW = 4


def check_apart(targets: Iterable[tuple[str, Any]]) -> None:
    """Refuse memory of which a part is to hold two results.

    Args:
        targets: Names of outputs, and where each is written to; what is no memory (a kind of it,
            None) is passed over, as is an output that is to be written to the same place twice.

    Raises:
        InvalidArgument: Some elements belong to two outputs, or twice to one; both are named.
    """
    placed = [(name, x) for name, x in targets if isinstance(x, (np.ndarray, DeviceArray))]
    for name, x in placed:
        if isinstance(x, np.ndarray) and not x.flags.c_contiguous and _meets_itself(x):
            what = "Elements of the memory for this result may lie in one place"
            do = "Give an array whose elements lie apart"
            raise InvalidArgument(message(f"output {name}", what, got=_text(x), do=do))
    if len(placed) < 2:
        return
    if len(placed) <= _FEW and all(isinstance(x, np.ndarray) for _, x in placed):
        arrays = [x for _, x in placed]
        if any(starmap(np.may_share_memory, combinations(arrays, 2))):
            _refuse_pairs(placed)
        return
    spans = sorted([(*_span(x), k) for k, (_, x) in enumerate(placed) if x.nbytes])
    end = 0
    for first, last, _ in spans:
        if first < end:
            _refuse_pairs([placed[k] for *_, k in spans])
            return
        end = last  # spans before it ended where this one begins, or earlier


def _refuse_pairs(placed: list[tuple[str, Tensor]]) -> None:
    """The same, each with each: only where spans overlap."""
    for number, (name, x) in enumerate(placed):
        for other_name, other in placed[:number]:
            (first, last), (start, end) = _span(x), _span(other)
            if first >= end or start >= last or not _meet(x, other):
                continue
            if name == other_name and _is_same(x, other):
                continue
            what = f"Memory for this result is that of output {other_name!r}, too"
            got = f"{_text(other)} and {_text(x)}, which overlap"
            do = "Give each output memory of its own"
            raise InvalidArgument(message(f"output {name}", what, got=got, do=do))


def reads_written(feeds: Iterable[Any], written: Iterable[Any]) -> bool:
    """Whether a feed has elements of memory that something else writes to."""
    memories = [x for x in written if isinstance(x, (np.ndarray, DeviceArray))]
    if not memories:
        return False
    given = [(*_span(x), x) for x in feeds if isinstance(x, (np.ndarray, DeviceArray))]
    places = [(*_span(x), x) for x in memories]
    return any(
        first < end and start < last and _meet(feed, x)
        for first, last, feed in given
        for start, end, x in places
    )


def _span(x: Tensor) -> tuple[int, int]:
    """The addresses that a tensor has elements between."""
    if isinstance(x, DeviceArray):
        return x.extent
    first = last = x.__array_interface__["data"][0]
    if x.flags.c_contiguous:
        return first, first + x.nbytes
    for size, step in zip(x.shape, x.strides, strict=True):
        if step < 0:
            first += (size - 1) * step
        else:
            last += (size - 1) * step
    return first, last + x.itemsize


def _meet(x: Tensor, y: Tensor) -> bool:
    """Whether tensors whose spans overlap have an element in common; True where that is hard."""
    if isinstance(x, DeviceArray) or isinstance(y, DeviceArray):
        return True
    try:
        return np.shares_memory(x, y, max_work=_MOST_WORK)  # type: ignore[arg-type]  # any is taken
    except np.exceptions.TooHardError:
        return True


def _is_same(x: Tensor, y: Tensor) -> bool:
    """Whether equal values in both are equal values everywhere."""
    if isinstance(x, DeviceArray) or isinstance(y, DeviceArray):
        return _span(x) == _span(y)
    return (*_span(x), x.shape, x.strides) == (*_span(y), y.shape, y.strides)


def _meets_itself(x: Array) -> bool:
    """Whether two elements of an array may lie in one place."""
    reach = x.itemsize
    axes = zip(x.strides, x.shape, strict=True)
    for step, size in sorted((abs(step), size) for step, size in axes if size > 1):
        if step < reach:
            return True
        reach += step * (size - 1)
    return False


def _text(x: Tensor) -> str:
    return f"{x.dtype}{list(x.shape)} at {_span(x)[0]:#x}"
