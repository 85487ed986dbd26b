"""Sequences: construct, look inside, insert, erase, split, join (ONNX operator spec, Sequence*)."""

from __future__ import annotations

from typing import Any

import numpy as np

from sardonyx.base.errors import IndexOutOfRange, RuntimeException, message
from sardonyx.base.interrupt import claim
from sardonyx.host.functions import host_function
from sardonyx.host.items import Items

#: About what an array takes beside its elements, and as a view while it is made.
_ARRAY_BYTES = 256


def kept(value: Any) -> Any:
    """A value that may be kept: arrays lie in memory that the run uses again."""
    return value.copy() if isinstance(value, np.ndarray) else value


@host_function
def construct(*items: Any) -> Items:
    """A sequence of these."""
    return Items([kept(item) for item in items])


@host_function
def length(sequence: Items) -> int:
    """How many items there are."""
    return len(sequence)


@host_function
def at(sequence: Items, position: Any) -> Any:
    """One item; from the end where `position` is negative."""
    return sequence[_place("SequenceAt", position, len(sequence), 0)]


@host_function
def insert(sequence: Items, item: Any, position: Any = None) -> Items:
    """The sequence with one more item; at the end unless there is a position."""
    count = len(sequence)
    place = count if position is None else _place("SequenceInsert", position, count, 1)
    return sequence.with_item(place, kept(item))


@host_function
def erase(sequence: Items, position: Any = None) -> Items:
    """The sequence without an item; without the last one unless there is a position."""
    count = len(sequence)
    if position is None:
        position = -1
    return sequence.without_item(_place("SequenceErase", position, count, 0))


def _place(where: str, position: Any, count: int, more: int) -> int:
    given = np.asarray(position)
    if given.size != 1:
        what = "A position is one number"
        raise RuntimeException(message(where, what, got=f"a shape of {list(given.shape)}"))
    wanted = int(given.reshape(()))
    place = wanted + count if wanted < 0 else wanted
    if not 0 <= place < count + more:
        expected = f"{-count} to {count - 1 + more}"
        what = f"The sequence has {count} items"
        raise IndexOutOfRange(message(where, what, expected=expected, got=str(wanted)))
    return place


@host_function
def split(x: Any, split: Any = None, *, axis: int, keepdims: bool) -> Items:
    """Slices of a tensor along an axis.

    `split` is how long each is, or as a scalar how long all but the last are; without it each is
    one long, and loses the axis unless `keepdims`.
    """
    size = x.shape[axis]
    if split is None:
        claim(_ARRAY_BYTES * size + x.nbytes)
        parts = np.split(x, range(1, size), axis) if size else []
        return Items([kept(p if keepdims else p.squeeze(axis)) for p in parts])
    lengths = np.asarray(split)
    if lengths.ndim == 0:
        step = int(lengths)
        if step <= 0:
            what = "The length of a part must be positive"
            raise RuntimeException(message("SplitToSequence", what, got=str(step)))
        claim(_ARRAY_BYTES * (size // step + 1) + x.nbytes)
        ends = list(range(step, size, step))
    else:
        if int(lengths.sum()) != size or (lengths < 0).any():
            what = "The lengths do not make up the axis"
            raise RuntimeException(
                message("SplitToSequence", what, expected=str(size), got=str(lengths.tolist()))
            )
        ends = np.cumsum(lengths)[:-1].tolist()
    # np.split gives one part of an axis of length 0: there is none to count.
    parts = [] if lengths.size == 0 or (lengths.ndim == 0 and not size) else np.split(x, ends, axis)
    return Items([kept(p) for p in parts])


@host_function
def concat(sequence: Items, *, axis: int, new_axis: bool) -> Any:
    """The items joined along an axis that they have, or along a new one."""
    items = list(sequence)
    if not items:
        raise RuntimeException(message("ConcatFromSequence", "The sequence is empty"))
    claim(sum(x.nbytes for x in items))
    try:
        return np.stack(items, axis) if new_axis else np.concatenate(items, axis)
    except ValueError as error:
        shapes = ", ".join(str(list(x.shape)) for x in items[:8])
        what = f"Items of shapes {shapes} cannot be joined along axis {axis}: {error}"
        raise RuntimeException(message("ConcatFromSequence", what)) from None
