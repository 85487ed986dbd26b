"""Sparse tensors as lowerings see them: objects, or constants of which a file has few elements."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

import numpy as np

from sardonyx.base.dtypes import INT64
from sardonyx.base.errors import InvalidGraph, message
from sardonyx.base.object_types import ObjectType, object_type
from sardonyx.host.sparse import compressed_rows
from sardonyx.ir.constant import Constant, SparseParts
from sardonyx.ir.value import Value
from sardonyx.ops.core.contents import contents
from sardonyx.ops.core.object_values import call_for_tensor, calls_for_tensors
from sardonyx.ops.generation.generate import constant_tensor
from sardonyx.tensor.assumptions import assume_shape
from sardonyx.tensor.host import Result, host_call
from sardonyx.tensor.tensor import Buffer, Shape, Tensor


class CompressedRows(NamedTuple):
    """A sparse matrix, row by row.

    Attributes:
        outer: How many values come before each row, and all together, (rows + 1,).
        inner: The column of each value, (count,).
        values: (count,).
        shape: Rows and columns.
    """

    outer: Tensor
    inner: Tensor
    values: Tensor
    shape: Shape


def sparse_type(x: Tensor) -> ObjectType | None:
    """The type of a sparse tensor that a run is given; None for other tensors."""
    is_sparse = isinstance(x.dtype, ObjectType) and x.dtype.form == "sparse"
    return x.dtype if is_sparse else None  # type: ignore[return-value]  # looked at before


def parts_of(x: Tensor) -> SparseParts | None:
    """The elements of a constant of which the file has only those that are not zero."""
    constant = x.constant if isinstance(x, Buffer) else None
    return constant.parts() if isinstance(constant, Constant) and constant.parts else None


def rows_of(x: Tensor, transposed: bool, where: str) -> CompressedRows | None:
    """A sparse matrix or its transpose; None if it is dense.

    Raises:
        InvalidGraph: It is no matrix.
    """
    known = sparse_type(x)
    if known is None:
        return _constant_rows(x, transposed)
    if known.shape is not None and len(known.shape) != 2:
        raise InvalidGraph(message(where, "A sparse tensor has the wrong rank", expected="2",
                                   got=str(len(known.shape))))  # fmt: skip
    listed = [(INT64, (None,)), (INT64, (None,)), (known.element, (None,))]
    facts = {"shape": known.shape or (None, None), "transposed": transposed}
    outer, inner, values = calls_for_tensors("sparse.rows", [x], listed, **facts)
    extents = call_for_tensor("sparse.sizes", [x], INT64, (2,), transposed=transposed)
    rows, columns = contents(extents, "A sparse tensor's shape", 0)
    assume_shape(inner.shape, values.shape, where, "The list of inner indices")
    assume_shape(outer.shape, (rows + 1,), where, "The list of outer indices")
    return CompressedRows(outer, inner, values, (rows, columns))


def _constant_rows(x: Tensor, transposed: bool) -> CompressedRows | None:
    parts = parts_of(x)
    if parts is None or x.rank != 2:
        return None
    shape: tuple[int, int] = x.shape  # type: ignore[assignment]  # a constant's
    row, column = np.divmod(parts.places, max(1, shape[1]))
    if transposed:
        row, column, shape = column, row, shape[::-1]
    found = compressed_rows(row, column, parts.values, shape[0])
    outer, inner, values = (constant_tensor(Constant.from_array(a)) for a in found)
    return CompressedRows(outer, inner, values, shape)


def as_declared(value: Value, x: Tensor) -> Tensor:
    """An output of the model: as a sparse tensor, where the file declares one.

    Raises:
        InvalidGraph: It is dense, and no constant of which the file has few elements.
    """
    declared = value.declared
    if declared is None or declared.kind != "sparse" or sparse_type(x) is not None:
        return x
    parts = parts_of(x)
    if parts is None:
        what = f"The model declares it as {declared}, but it is computed as {x.dtype.type_text}"
        raise InvalidGraph(message(f"output {value.name}", what, do="Declare it as a tensor"))
    values, places = (
        constant_tensor(Constant.from_array(a, dtype))
        for a, dtype in zip(parts, (x.dtype, INT64), strict=True)
    )
    shape: tuple[int, ...] = x.shape  # type: ignore[assignment]  # a constant's
    facts: Mapping[str, object] = {"shape": shape, "dtype": x.dtype.name}
    whole = object_type("sparse", x.dtype, shape)
    return host_call("sparse.tensor", [values, places], [Result(whole)], **facts)[0]
