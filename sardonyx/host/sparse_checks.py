"""What must be true of the parts of a sparse tensor."""

from __future__ import annotations

import math
import operator
from typing import Any

import numpy as np

from sardonyx.base import dtypes
from sardonyx.base.errors import InvalidSparseTensor, message

Array = np.ndarray[Any, np.dtype[Any]]

#: Places in a tensor of more elements are no indices.
_MOST = 1 << 62


def flat_places(indices: Array, shape: tuple[int, ...]) -> Array:
    """The places in the flat tensor that indices (count,) or coordinates (count, rank) mean.

    Raises:
        InvalidSparseTensor: One is outside, or two are equal.
    """
    limits = np.array(shape if indices.ndim == 2 else math.prod(shape), np.int64)
    if not ((indices >= 0) & (indices < limits)).all():
        raise invalid(f"An index is outside the shape {list(shape)}")
    places: Array = indices
    if indices.ndim == 2:
        places = np.zeros(len(indices), np.int64)
        for axis, size in enumerate(shape):
            places = places * size + indices[:, axis]
    refuse_equal(places)
    return places


def check_rows(outer: Array, inner: Array, width: int) -> None:
    """Refuse indices of compressed rows that are outside.

    Raises:
        InvalidSparseTensor: `outer` does not rise from 0 to the number of values, or one of
            `inner` is no column.
    """
    if outer.size and (outer[0] != 0 or outer[-1] != inner.size or (outer[1:] < outer[:-1]).any()):
        raise invalid(f"Outer indices must rise from 0 to {inner.size}, the number of values")
    if inner.size and not (inner.min() >= 0 and inner.max() < width):
        raise invalid(f"An inner index is outside the {width} columns")


def rows_of(outer: Array) -> Array:
    """The row of each value of compressed rows."""
    counts = np.diff(outer)
    return np.repeat(np.arange(len(counts)), counts)


def refuse_equal(places: Array) -> None:
    """Refuse places of which two are equal.

    Raises:
        InvalidSparseTensor: They cannot be such.
    """
    if places.size > 1 and not (places[1:] > places[:-1]).all():
        ordered = np.sort(places)
        if (ordered[1:] == ordered[:-1]).any():
            raise invalid("Two values have the same place")


def coo_indices_of(indices: Array, count: int, shape: tuple[int, ...]) -> Array:
    """Indices in the shape that onnxruntime gives them.

    Raises:
        InvalidSparseTensor: They cannot be such.
    """
    rank = len(shape)
    if rank == 2 and indices.shape == (2 * count,):
        return indices.reshape(count, 2)
    if rank != 1 and indices.shape == (count, 1):
        return indices.reshape(count)
    if indices.shape not in ((count,), (count, rank)):
        expected = f"[{count}] or [{count}, {rank}]"
        raise invalid("coo_indices have the wrong shape", expected, list(indices.shape))
    return indices


def checked_shape(given: Any) -> tuple[int, ...]:
    """Sizes, as whole numbers.

    Raises:
        InvalidSparseTensor: They cannot be such.
    """
    try:
        shape = tuple(operator.index(size) for size in given)
    except TypeError as error:
        raise invalid(f"The dense shape is no list of whole numbers: {error}") from None
    if not all(0 <= size <= _MOST for size in (*shape, math.prod(shape))):
        raise invalid(f"There is no tensor of shape {list(shape)}")
    return shape


def checked_values(given: Any) -> tuple[Array, dtypes.DType]:
    """Values as the tensor keeps them, and their type.

    Raises:
        InvalidSparseTensor: They cannot be such.
    """
    if not isinstance(given, np.ndarray) or given.ndim != 1:
        got = type(given).__name__ if not isinstance(given, np.ndarray) else list(given.shape)
        raise invalid("The values are no list", "an array with one axis", got)
    if given.dtype.kind == "S":
        try:
            given = np.char.decode(given, "utf-8")
        except UnicodeDecodeError as error:
            raise invalid(f"A value is no text: {error}") from None
    if given.dtype.kind in "UTO":
        texts = np.array([*given.tolist(), None], object)[:-1]
        wrong = next((t for t in texts if not isinstance(t, str)), None)
        if wrong is not None:
            raise invalid("A value is no string", "str", type(wrong).__name__)
        return texts, dtypes.STRING
    dtype = dtypes.from_numpy(given.dtype)
    if dtype is None or not given.dtype.isnative:
        raise invalid(f"ONNX has no element type {given.dtype}")
    if not given.flags.c_contiguous:
        raise invalid("The values do not lie side by side", do="Use numpy.ascontiguousarray")
    return given, dtype


def checked_indices(given: Any, name: str) -> Array:
    """Indices as the tensor keeps them.

    Raises:
        InvalidSparseTensor: They cannot be such.
    """
    indices = np.asarray(given)
    if indices.dtype.kind not in "iu" and indices.size:
        raise invalid(f"{name} are no whole numbers", "int64", indices.dtype)
    if not indices.flags.c_contiguous:
        what = f"{name} do not lie side by side"
        raise invalid(what, do="Use numpy.ascontiguousarray")
    return indices.astype(np.int64, copy=False)


def invalid(
    what: str, expected: object = "", got: object = "", do: str = ""
) -> InvalidSparseTensor:
    """The error for a sparse tensor."""
    text = message("SparseTensor", what, expected=str(expected), got=str(got), do=do)
    return InvalidSparseTensor(text)
