"""What plans read of sparse tensors, and those that they give."""

from __future__ import annotations

from typing import Any

import numpy as np

from sardonyx.base import dtypes
from sardonyx.base.errors import RuntimeException, message
from sardonyx.base.interrupt import claim
from sardonyx.host.functions import host_function
from sardonyx.host.sparse_checks import check_rows, flat_places, rows_of
from sardonyx.host.sparse_tensor import OrtSparseFormat, SparseTensor


@host_function
def sizes(given: SparseTensor, *, transposed: bool) -> Any:
    """Rows and columns of a matrix or of its transpose."""
    shape = given.dense_shape()
    return np.array(shape[::-1] if transposed else shape, np.int64)


@host_function
def rows(
    given: SparseTensor, *, shape: tuple[int | None, ...], transposed: bool
) -> tuple[Any, ...]:
    """Compressed rows of a matrix or of its transpose: outer and inner indices, values.

    The caller may have changed his arrays since he made the tensor: indices are copied first, and
    checked again.
    """
    size = given.dense_shape()
    fits = len(size) == len(shape) and all(d in (None, e) for d, e in zip(shape, size, strict=True))
    if len(size) != 2 or not fits:
        what = "The sparse tensor has another shape than the model says"
        expected = ", ".join("any" if d is None else str(d) for d in shape)
        raise RuntimeException(message("sparse tensor", what, expected=expected, got=str(size)))
    values = given.values()
    height = size[1] if transposed else size[0]
    claim(dtypes.INT64.size_bytes * (4 * len(values) + 2 * height))
    if given.format() is OrtSparseFormat.ORT_SPARSE_CSRC:
        view = given.as_csrc_view()
        column, outer = view.inner().copy(), view.outer().copy()
        check_rows(outer, column, size[1])
        if not transposed and outer.size:
            return outer, column, values
        row = rows_of(outer)
    else:
        indices = given.as_coo_view().indices().copy()
        places = flat_places(indices, (size[0], size[1]))
        if indices.ndim == 2:
            row, column = np.ascontiguousarray(indices.T)
        else:
            row = places // max(1, size[1])
            column = places - row * size[1]
    if transposed:
        row, column = column, row
    return compressed_rows(row, column, values, height)


def compressed_rows(row: Any, column: Any, values: Any, height: int) -> tuple[Any, Any, Any]:
    """Outer and inner indices, and values, of a matrix with these values in any order."""
    if not (row[1:] >= row[:-1]).all():
        order = np.argsort(row, kind="stable")
        row, column, values = row[order], column[order], values[order]
    outer = np.searchsorted(row, np.arange(height + 1)).astype(np.int64, copy=False)
    return outer, column, values


@host_function
def tensor(values: Any, places: Any, *, shape: tuple[int, ...], dtype: str) -> SparseTensor:
    """A sparse tensor of values and their places in the flat tensor."""
    kept, coordinates = values.copy(), places.copy()
    return SparseTensor.made(
        OrtSparseFormat.ORT_SPARSE_COO, shape, kept, (coordinates,), dtypes.BY_NAME[dtype]
    )
