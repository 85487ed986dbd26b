"""Matrix products as cuBLASLt describes them: layouts, epilogues, batches, algorithms, calls.

cuBLASLt's matrices have their columns one behind the other, so `out = left * right` is asked for as
`out^T = right^T * left^T`. https://docs.nvidia.com/cuda/cublas/#using-the-cublaslt-api
"""

from __future__ import annotations

import itertools
import math
import threading
from collections.abc import Mapping
from typing import Any
from weakref import finalize

import numpy as np

from sardonyx.cuda.libraries.libraries import SIZES, LibraryWork
from sardonyx.plan.vendor_offers import BATCHES, MATMUL

#: What cuBLASLt may use; NVIDIA's advice for Hopper.
WORKSPACE_BYTES = 32 << 20
#: Matrix products that one command may be made of, besides a batch that lies regularly.
_MOST_CALLS = 64
#: cudaDataType, cublasComputeType and the type of alpha and beta.
TYPES = {"float": 0, "double": 1, "float16": 2, "bfloat16": 14}
_COMPUTE_32F, _COMPUTE_32F_TF32, _COMPUTE_64F = 68, 77, 70
_MOST_ALIGNMENT = 256
_COLUMNS = 1 << 31


class Product:
    """One matrix product, or a batch of them.

    Attributes:
        lock: The descriptor holds the bias's address: one call at a time.
        left, right, out: Where its matrices begin, in bytes behind the command's.
        bias: Which address the descriptor holds.
        algorithm_address: Where the record of its algorithm is.
    """

    def __init__(self, lt: Any, descriptor: int, layouts: tuple[int, ...], bias: int) -> None:
        self.descriptor, self.layouts, self.bias = descriptor, layouts, bias
        self.lock = threading.Lock()
        self.left = self.right = self.out = 0
        finalize(self, _destroy, lt, descriptor, layouts).atexit = False

    def use(self, algorithm: Any) -> None:
        """Set the record of the algorithm, whose address calls get."""
        self._algorithm, self.algorithm_address = algorithm, int(algorithm.ctypes.data)


def _destroy(lt: Any, descriptor: int, layouts: tuple[int, ...]) -> None:
    for layout in layouts:
        lt.matrix_layout_destroy(layout)
    lt.matmul_desc_destroy(descriptor)


class Products:
    """Makes and calls matrix products.

    Args:
        lt: The bindings.
        tf32: Whether products of float may be rounded to TF32.
    """

    def __init__(self, lt: Any, *, tf32: bool) -> None:
        self._lt, self._tf32 = lt, tf32
        self._handle = lt.create()
        self._attributes = lt.MatmulDescAttribute
        kinds = {"float": np.float32, "double": np.float64}
        self._numbers = [np.array([1, 0], kind) for kind in kinds.values()]
        #: Addresses of 1 and 0.
        self._factors = {
            name: (held.ctypes.data, held.ctypes.data + held.itemsize)
            for name, held in zip(kinds, self._numbers, strict=True)
        }

    def call(self, product: Product, work: LibraryWork, workspace: int, stream: int) -> None:
        """Have a product computed: `WORKSPACE_BYTES` at `workspace` are its stream's alone."""
        one, zero = self._factors["double" if work.dtype == "double" else "float"]
        a, b, d = product.layouts
        right, left = work.right + product.right, work.left + product.left
        out = work.out + product.out
        residual = work.residual + product.out if work.residual else 0
        with product.lock:
            if work.bias != product.bias:
                self._set(product.descriptor, self._attributes.BIAS_POINTER, work.bias, np.uint64)
                product.bias = work.bias
            self._lt.matmul(
                self._handle, product.descriptor, one, right, a, left, b,
                one if residual else zero, residual or out, d, out, d, product.algorithm_address,
                workspace, WORKSPACE_BYTES, stream,
            )  # fmt: skip

    def plan(self, work: LibraryWork, alignments: tuple[int, ...]) -> list[Product] | None:
        """The calls that a command is at these sizes; None if there are none."""
        n = dict(zip(MATMUL, work.numbers, strict=True))
        if min(n["m"], n["n"], n["k"]) < 1 or max(n["m"], n["n"], n["k"]) >= _COLUMNS:
            return None
        names = ("batch", "left", "right", "out")
        axes = [tuple(n[f"{x}_{k}"] for x in names) for k in range(BATCHES)]
        batch, *others = sorted((a for a in axes if a[0] != 1), reverse=True) or [(1, 0, 0, 0)]
        if math.prod(a[0] for a in others) > _MOST_CALLS or min(a[0] for a in axes) < 1:
            return None
        found, sizes = [], (SIZES[work.dtype], SIZES[work.dtype], SIZES[work.result])
        for at in itertools.product(*(range(a[0]) for a in others)):
            places = [sum(i * a[k] for i, a in zip(at, others, strict=True)) for k in (1, 2, 3)]
            left, right, out = (size * p for size, p in zip(sizes, places, strict=True))
            moved = zip(alignments, (left, right, out, out), strict=True)
            product = self._product(
                work, n, batch, tuple(min(a, alignment_of(p)) for a, p in moved)
            )
            if product is None:
                return None
            product.left, product.right, product.out = left, right, out
            found.append(product)
        return found

    def _product(
        self,
        work: LibraryWork,
        n: Mapping[str, int],
        batch: tuple[int, ...],
        alignments: tuple[int, ...],
    ) -> Product | None:
        lt, kind, result = self._lt, TYPES[work.dtype], TYPES[work.result]
        right = _columns(n["n"], n["k"], n["right_n"], n["right_k"])
        left = _columns(n["k"], n["m"], n["left_k"], n["left_m"])
        out = _columns(n["n"], n["m"], n["out_n"], n["out_m"])
        if right is None or left is None or out is None or out[0]:
            return None
        compute = _COMPUTE_32F_TF32 if self._tf32 and work.dtype == "float" else _COMPUTE_32F
        scale = 0
        if work.dtype == "double":
            compute, scale = _COMPUTE_64F, 1
        descriptor = lt.matmul_desc_create(compute, scale)
        names = self._attributes
        self._set(descriptor, names.TRANSA, int(right[0]), np.int32)
        self._set(descriptor, names.TRANSB, int(left[0]), np.int32)
        self._set(descriptor, names.EPILOGUE, int(self._epilogue(work)), np.int32)
        if work.bias:
            self._set(descriptor, names.BIAS_DATA_TYPE, result, np.int32)
            self._set(descriptor, names.BIAS_POINTER, work.bias, np.uint64)
        strides = (batch[2], batch[1], batch[3])
        layouts = []
        parts = zip((right, left, out), strides, (kind, kind, result), strict=True)
        for (_, rows, columns, leading), stride, held in parts:
            layout = lt.matrix_layout_create(held, rows, columns, leading)
            if batch[0] != 1:
                named = lt.MatrixLayoutAttribute
                self._set_layout(layout, named.BATCH_COUNT, batch[0], np.int32)
                self._set_layout(layout, named.STRIDED_BATCH_OFFSET, stride, np.int64)
            layouts.append(layout)
        product = Product(lt, descriptor, tuple(layouts), work.bias)
        algorithms = self.algorithms(product, alignments, 1)
        if not algorithms:
            return None
        product.use(algorithms[0])
        return product

    def _epilogue(self, work: LibraryWork) -> Any:
        names = self._lt.Epilogue
        if work.activation == "gelu":
            return names.GELU_BIAS if work.bias else names.GELU
        if work.activation:
            return names.RELU_BIAS if work.bias else names.RELU
        return names.BIAS if work.bias else names.DEFAULT

    def algorithms(self, product: Product, alignments: tuple[int, ...], count: int) -> list[Any]:
        """Up to so many algorithms, the one that cuBLASLt thinks is the fastest first."""
        lt = self._lt
        preference = lt.matmul_preference_create()
        names = lt.MatmulPreferenceAttribute
        left, right, out, residual = alignments
        wanted = {
            names.MAX_WORKSPACE_BYTES: (WORKSPACE_BYTES, np.uint64),
            names.MIN_ALIGNMENT_A_BYTES: (right, np.uint32),
            names.MIN_ALIGNMENT_B_BYTES: (left, np.uint32),
            names.MIN_ALIGNMENT_C_BYTES: (min(out, residual), np.uint32),
            names.MIN_ALIGNMENT_D_BYTES: (out, np.uint32),
        }
        for name, (value, kind) in wanted.items():
            held = np.array([value], kind)
            lt.matmul_preference_set_attribute(preference, int(name), held.ctypes.data, held.nbytes)
        results = np.zeros(count, lt.matmul_heuristic_result_dtype)
        found = np.zeros(1, np.int32)
        a, b, d = product.layouts
        try:
            lt.matmul_algo_get_heuristic(
                self._handle, product.descriptor, a, b, d, d, preference, count,
                results.ctypes.data, found.ctypes.data,
            )  # fmt: skip
        except lt.cuBLASLtError:
            return []
        finally:
            lt.matmul_preference_destroy(preference)
        return [results[k : k + 1].copy() for k in range(int(found[0]))]

    def _set(self, descriptor: int, name: Any, value: int, kind: Any) -> None:
        held = np.array([value], kind)
        self._lt.matmul_desc_set_attribute(descriptor, int(name), held.ctypes.data, held.nbytes)

    def _set_layout(self, layout: int, name: Any, value: int, kind: Any) -> None:
        held = np.array([value], kind)
        self._lt.matrix_layout_set_attribute(layout, int(name), held.ctypes.data, held.nbytes)


def _columns(
    rows: int, columns: int, row_step: int, column_step: int
) -> tuple[bool, int, int, int] | None:
    """A matrix as cuBLASLt holds it: whether it is transposed, rows, columns, leading dimension."""
    if row_step == 1 or rows == 1:
        leading = max(rows, column_step if columns > 1 else rows)
        if columns == 1 or column_step >= rows:
            return False, rows, columns, leading
    if column_step == 1 or columns == 1:
        leading = max(columns, row_step if rows > 1 else columns)
        if rows == 1 or row_step >= columns:
            return True, columns, rows, leading
    return None


def alignment_of(address: int) -> int:
    """The largest power of two that divides an address, as far as it matters."""
    return min(address & -address, _MOST_ALIGNMENT) if address else _MOST_ALIGNMENT
