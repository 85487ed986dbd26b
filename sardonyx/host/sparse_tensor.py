"""Sparse tensors as callers make and get them: values, and where they stand."""

from __future__ import annotations

from collections.abc import Sequence
from enum import IntEnum
from typing import Any, Protocol

import numpy as np

from sardonyx.base import dtypes
from sardonyx.base.arguments import names_misfits
from sardonyx.host.sparse_checks import (
    Array,
    check_rows,
    checked_indices,
    checked_shape,
    checked_values,
    coo_indices_of,
    flat_places,
    invalid,
    refuse_equal,
    rows_of,
)


class OrtSparseFormat(IntEnum):
    """Layouts of sparse tensors."""

    ORT_SPARSE_UNDEFINED = 0
    ORT_SPARSE_COO = 1
    ORT_SPARSE_CSRC = 2
    ORT_SPARSE_BLOCK_SPARSE = 4


_COO, _CSR = OrtSparseFormat.ORT_SPARSE_COO, OrtSparseFormat.ORT_SPARSE_CSRC


class SparseMemory(Protocol):
    """Memory of a device."""

    name: str
    is_host: bool

    def copy_of(self, tensor: Any) -> Any:
        """A copy of an array there."""


class SparseDevice(Protocol):
    """What has memory."""

    def memory(self) -> SparseMemory:
        """Its memory."""


class SparseCooView:
    """Where the values of a sparse tensor in coordinate format stand."""

    def __init__(self, indices: Array) -> None:
        self._indices = indices

    def indices(self) -> Array:
        """Places in the flat tensor (count,), or coordinates (count, rank), as they were given."""
        return self._indices


class SparseCsrView:
    """Where the values of a matrix in compressed rows stand."""

    def __init__(self, inner: Array, outer: Array) -> None:
        self._inner, self._outer = inner, outer

    def inner(self) -> Array:
        """The column of each value, (count,)."""
        return self._inner

    def outer(self) -> Array:
        """How many values come before each row, and all together, (rows + 1,)."""
        return self._outer


class SparseTensor:
    """A tensor of which only some elements are given; all others are zero, or "".

    Make it with `sparse_coo_from_numpy` or `sparse_csr_from_numpy`. Arrays of numbers are not
    copied: what is changed in them afterwards, the tensor sees, and runs check indices again.

    Args:
        sparse_tensor: Another one, whose memory the new one shares.

    Raises:
        InvalidSparseTensor: It is none.
    """

    __slots__ = ("_dtype", "_format", "_indices", "_memory", "_shape", "_values")

    _format: OrtSparseFormat
    _shape: tuple[int, ...]
    _values: Any
    _indices: tuple[Any, ...]
    _dtype: dtypes.DType
    _memory: SparseMemory | None

    def __init__(self, sparse_tensor: SparseTensor) -> None:
        if not isinstance(sparse_tensor, SparseTensor):
            do = "Use sparse_coo_from_numpy or sparse_csr_from_numpy"
            got = type(sparse_tensor).__name__
            raise invalid("This is no sparse tensor", "SparseTensor", got, do)
        for name in SparseTensor.__slots__:
            setattr(self, name, getattr(sparse_tensor, name))

    @classmethod
    @names_misfits
    def sparse_coo_from_numpy(
        cls,
        dense_shape: Sequence[int] | Array,
        values: Array,
        coo_indices: Any,
        ort_device: SparseDevice,
    ) -> SparseTensor:
        """A sparse tensor of values and their places, in any order.

        Args:
            dense_shape: Sizes of the whole tensor.
            values: (count,), contiguous; numbers are not copied, strings are.
            coo_indices: Whole numbers: places in the flat tensor (count,), coordinates
                (count, rank), or for a matrix the latter in a row (2 * count,).
            ort_device: Where the arrays lie: the processor.

        Raises:
            InvalidSparseTensor: Sizes do not fit each other, an index is outside, or two are equal.
        """
        shape = checked_shape(dense_shape)
        held, dtype = checked_values(values)
        indices = coo_indices_of(checked_indices(coo_indices, "coo_indices"), len(held), shape)
        flat_places(indices, shape)
        _require_host(ort_device)
        return cls.made(_COO, shape, held, (indices,), dtype)

    @classmethod
    @names_misfits
    def sparse_csr_from_numpy(
        cls,
        dense_shape: Sequence[int] | Array,
        values: Array,
        inner_indices: Any,
        outer_indices: Any,
        ort_device: SparseDevice,
    ) -> SparseTensor:
        """A sparse matrix of values row by row.

        Args:
            dense_shape: Rows and columns.
            values: (count,), contiguous; numbers are not copied, strings are.
            inner_indices: The column of each value, (count,).
            outer_indices: How many values come before each row, and all together, (rows + 1,).
                Without values it may be empty.
            ort_device: Where the arrays lie: the processor.

        Raises:
            InvalidSparseTensor: Sizes do not fit each other, an index is outside, two in a row are
                equal, or the outer ones do not rise from 0 to the number of values.
        """
        shape = checked_shape(dense_shape)
        held, dtype = checked_values(values)
        inner = checked_indices(inner_indices, "inner_indices")
        outer = checked_indices(outer_indices, "outer_indices")
        if len(shape) != 2:
            raise invalid("Compressed rows are of a matrix", "2 sizes", str(list(shape)))
        if inner.shape != held.shape:
            what = "inner_indices have the wrong shape"
            raise invalid(what, list(held.shape), list(inner.shape))
        if outer.shape != (shape[0] + 1,) and (outer.size or held.size):
            what = "outer_indices have the wrong shape"
            raise invalid(what, [shape[0] + 1], list(outer.shape))
        check_rows(outer, inner, shape[1])
        refuse_equal(rows_of(outer) * shape[1] + inner)
        _require_host(ort_device)
        return cls.made(_CSR, shape, held, (inner, outer), dtype)

    @classmethod
    def made(
        cls,
        layout: OrtSparseFormat,
        shape: tuple[int, ...],
        values: Any,
        indices: tuple[Any, ...],
        dtype: dtypes.DType,
        memory: SparseMemory | None = None,
    ) -> SparseTensor:
        """A tensor of parts that are known to fit; `memory` is that of a GPU, or None."""
        found = cls.__new__(cls)
        found._format, found._shape, found._values = layout, shape, values
        found._indices, found._dtype, found._memory = indices, dtype, memory
        return found

    def _get_c_tensor(self) -> SparseTensor:
        """Itself: onnxruntime's Python part has a compiled tensor inside, which clients take."""
        return self

    def values(self) -> Array:
        """The values, (count,), not writable; strings, and those of a GPU, are copied."""
        if self._dtype is dtypes.STRING:
            return np.array([*self._values, None], object)[:-1]
        return _read_only(self._values)

    def as_coo_view(self) -> SparseCooView:
        """Where the values stand.

        Raises:
            InvalidSparseTensor: The tensor has another format.
        """
        self._require(_COO)
        return SparseCooView(_read_only(self._indices[0]))

    def as_csrc_view(self) -> SparseCsrView:
        """Where the values stand.

        Raises:
            InvalidSparseTensor: The tensor has another format.
        """
        self._require(_CSR)
        return SparseCsrView(*map(_read_only, self._indices))

    def as_blocksparse_view(self) -> Any:
        """Nothing makes such tensors.

        Raises:
            InvalidSparseTensor: Always.
        """
        self._require(OrtSparseFormat.ORT_SPARSE_BLOCK_SPARSE)

    def get_coo_data(self) -> SparseCooView:
        """`as_coo_view`, as results of onnxruntime's `run` call it."""
        return self.as_coo_view()

    def get_csrc_data(self) -> SparseCsrView:
        """`as_csrc_view`, as results of onnxruntime's `run` call it."""
        return self.as_csrc_view()

    def _require(self, layout: OrtSparseFormat) -> None:
        if self._format is not layout:
            raise invalid("The sparse tensor has another format", layout.name, self._format.name)

    @names_misfits
    def to_cuda(self, ort_device: SparseDevice) -> SparseTensor:
        """A copy in memory of a GPU; sessions read it from there.

        Raises:
            InvalidSparseTensor: It holds strings, or lies on a GPU already, or the device is none.
            EPFail: There is no driver.
        """
        if self._memory is not None:
            raise invalid("It lies on a GPU already")
        if self._dtype is dtypes.STRING:
            raise invalid("Strings lie in memory of the processor alone")
        memory = ort_device.memory()
        if memory.is_host:
            raise invalid("This is no GPU", "OrtDevice.make('cuda', 0)", memory.name)
        values, *indices = map(memory.copy_of, (self._values, *self._indices))
        return self.made(self._format, self._shape, values, tuple(indices), self._dtype, memory)

    def format(self) -> OrtSparseFormat:
        """How places are told."""
        return self._format

    def dense_shape(self) -> list[int]:
        """Sizes of the whole tensor."""
        return list(self._shape)

    def data_type(self) -> str:
        """Its type in ONNX's words, such as `sparse_tensor(float)`."""
        return f"sparse_tensor({self._dtype.name})"

    def element_type(self) -> int:
        """ONNX's number of its element type."""
        return self._dtype.onnx_id

    def device_name(self) -> str:
        """Where the arrays lie: `cpu` or `cuda`."""
        return "cpu" if self._memory is None else self._memory.name

    def __reduce__(self) -> tuple[Any, ...]:
        indices = tuple(map(_read_only, self._indices))
        facts = (self._format, self._shape, self.values(), indices, self._dtype.name)
        return _unpickled, facts

    def __repr__(self) -> str:
        layout = self._format.name.removeprefix("ORT_SPARSE_")
        (count,) = self._values.shape
        return f"SparseTensor({self._dtype.name}{list(self._shape)}, {layout}, {count} values)"


def _require_host(device: SparseDevice) -> None:
    if not device.memory().is_host:
        do = "Name the processor, and use to_cuda"
        raise invalid("NumPy's arrays lie in memory of the processor", do=do)


def _unpickled(
    layout: OrtSparseFormat,
    shape: tuple[int, ...],
    values: Array,
    indices: tuple[Array, ...],
    dtype: str,
) -> SparseTensor:
    return SparseTensor.made(layout, shape, values, indices, dtypes.BY_NAME[dtype])


def _read_only(part: Any) -> Array:
    view: Array = part.view() if isinstance(part, np.ndarray) else part.numpy()
    view.flags.writeable = False
    return view
