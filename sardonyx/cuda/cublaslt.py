"""Matrix products by cuBLASLt, through nvmath-python's bindings.

cuBLASLt's matrices have their columns one behind the other, so `out = left * right` is asked for as
`out^T = right^T * left^T`. An algorithm is chosen once for each shape: the one that cuBLASLt thinks
is the fastest, until those that it thinks are nearly as fast have been measured, in the background.
It is tried before it is used, except where a caller captures a shape that was never run. Runs wait
for some trials; the others are made in the background, and kernels do the work meanwhile.
"""

from __future__ import annotations

import itertools
import math
import threading
import time
from collections.abc import Mapping
from typing import Any

import numpy as np

from sardonyx.base.log import get_logger
from sardonyx.cuda.background import Background
from sardonyx.cuda.capturing import is_captured
from sardonyx.cuda.device import Device
from sardonyx.cuda.libraries import SIZES, LibrarySettings, Place, Work
from sardonyx.cuda.measuring import CALLS, Loan, milliseconds
from sardonyx.cuda.product_trials import trial_of
from sardonyx.plan.library import BATCHES, MATMUL, Offer
from sardonyx.runtime.cache import default_cache, digest
from sardonyx.runtime.storage import Array

_logger = get_logger("cuda")
_KIND = "cublaslt"
#: Algorithms in the cache have been tried.
_TRIED = "tried against numbers"

#: What cuBLASLt may use; NVIDIA's advice for Hopper.
WORKSPACE_BYTES = 32 << 20
#: Matrix products that one command may be made of, besides a batch that lies regularly.
_MOST_CALLS = 64
_MOST_SHAPES = 4096
#: cudaDataType, cublasComputeType and the type of alpha and beta.
_TYPES = {"float": 0, "double": 1, "float16": 2, "bfloat16": 14}
_COMPUTE_32F, _COMPUTE_32F_TF32, _COMPUTE_64F = 68, 77, 70
_MOST_ALIGNMENT = 256
_COLUMNS = 1 << 31
#: Algorithms that are measured for a shape, how long each may take, and what another must gain.
_MOST_MEASURED = 10
_MEASURED_MS = 0.5
_WORTH = 0.97
#: Trials in a row that runs wait for take so long together, and are in a row with less between.
_TRIED_SECONDS, _ROW_SECONDS = 0.02, 0.1


class _Product:
    """One matrix product, or a batch of them.

    Attributes:
        lock: The descriptor holds the bias's address: one call at a time.
        left, right, out: Where its matrices begin, in bytes behind the command's.
        bias: Which address the descriptor holds.
        algorithm_address: Where the record of its algorithm is.
    """

    def __init__(self, lt: Any, descriptor: int, layouts: tuple[int, ...], bias: int) -> None:
        self._lt, self.descriptor, self.layouts, self.bias = lt, descriptor, layouts, bias
        self.lock = threading.Lock()
        self.left = self.right = self.out = 0

    def use(self, algorithm: Any) -> None:
        """Set the record of the algorithm, whose address calls get."""
        self._algorithm, self.algorithm_address = algorithm, int(algorithm.ctypes.data)

    def __del__(self) -> None:
        try:
            for layout in self.layouts:
                self._lt.matrix_layout_destroy(layout)
            self._lt.matmul_desc_destroy(self.descriptor)
        except Exception:  # noqa: BLE001, S110, SIM105 - the library, or the interpreter, goes away
            pass


class CublasLt:
    """See `libraries.Library`.

    Args:
        device: Where.
        settings: Whether products of float may be rounded to TF32.

    Raises:
        ImportError: The package is missing.
    """

    key = ""

    def __init__(self, device: Device, settings: LibrarySettings) -> None:
        from nvmath.bindings import cublasLt

        device.enter()
        self._lt = cublasLt
        self._handle = cublasLt.create()
        self._tf32, self._searches, self._device = settings.tf32, settings.product_search, device
        self.version = self.searching = self.pending = 0
        #: How long runs waited for trials in a row, and when the last one ended.
        self._waited, self._tried = 0.0, 0.0
        #: Whether anything was found since the version changed.
        self._improved = False
        self._lock = threading.Lock()
        self._stream: Any = None
        self._searcher = Background("sardonyx-cublaslt", lambda: None)
        self._products: dict[object, list[_Product] | None] = {}
        self._attributes = cublasLt.MatmulDescAttribute
        kinds = {"float": np.float32, "double": np.float64}
        self._numbers = [np.array([1, 0], kind) for kind in kinds.values()]
        #: Addresses of 1 and 0.
        self._factors = {
            name: (held.ctypes.data, held.ctypes.data + held.itemsize)
            for name, held in zip(kinds, self._numbers, strict=True)
        }

    def refusal(self, offer: Offer) -> str:
        """See `Library.refusal`."""
        facts = dict(offer.facts)
        if facts["dtype"] not in _TYPES:
            return f"cuBLASLt has no products of {facts['dtype']}"
        if facts["activation"] == "gelu" and facts["dtype"] not in ("float16", "bfloat16"):
            return "cuBLASLt has Gelu behind products of half floats alone"
        return ""

    def run(self, work: Work, place: Place) -> bool:
        """See `Library.run`."""
        alignments = tuple(map(_alignment, (work.left, work.right, work.out, work.residual)))
        key = (work.call, work.numbers, alignments)
        try:
            products = self._products[key]
        except KeyError:
            products = self._planned(key, work, alignments, int(place.stream))
        if products is None:
            return False
        workspace = place.workspace(WORKSPACE_BYTES)
        for product in products:
            self._call(product, work, workspace, int(place.stream))
        return True

    def _call(self, product: _Product, work: Work, workspace: int, stream: int) -> None:
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

    # -- shapes -------------------------------------------------------------------------------

    def _planned(
        self, key: object, work: Work, alignments: tuple[int, ...], stream: int
    ) -> list[_Product] | None:
        """The calls of a command at sizes that are new; None if there are none, or none yet."""
        while len(self._products) >= _MOST_SHAPES:
            self._products.pop(next(iter(self._products)), None)
        products = self._plan(work, alignments)
        if products is not None and len(products) == 1:
            product = products[0]
            name = self._name_of(work, alignments)
            if self._is_known(product, name):
                pass
            elif is_captured(self._device.stream_of(stream)):
                self._improve_later(product, work, alignments, name)
            elif self._may_wait():
                began = time.monotonic()
                if not self._prepare(product, work, alignments, name):
                    products = None
                self._tried = time.monotonic()
                self._waited += self._tried - began
            else:
                self._prepare_later(key, product, work, alignments, name)
                return None
        self._products[key] = products
        return products

    def _may_wait(self) -> bool:
        """Whether a run may wait for one more trial."""
        if time.monotonic() - self._tried > _ROW_SECONDS:
            self._waited = 0.0
        return self._waited < _TRIED_SECONDS

    def _plan(self, work: Work, alignments: tuple[int, ...]) -> list[_Product] | None:
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
            product = self._product(work, n, batch, tuple(min(a, _alignment(p)) for a, p in moved))
            if product is None:
                return None
            product.left, product.right, product.out = left, right, out
            found.append(product)
        return found

    def _product(
        self, work: Work, n: Mapping[str, int], batch: tuple[int, ...], alignments: tuple[int, ...]
    ) -> _Product | None:
        lt, kind, result = self._lt, _TYPES[work.dtype], _TYPES[work.result]
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
        product = _Product(lt, descriptor, tuple(layouts), work.bias)
        algorithms = self._algorithms(descriptor, product.layouts, alignments, 1)
        if not algorithms:
            return None
        product.use(algorithms[0])
        return product

    def _epilogue(self, work: Work) -> Any:
        names = self._lt.Epilogue
        if work.activation == "gelu":
            return names.GELU_BIAS if work.bias else names.GELU
        if work.activation:
            return names.RELU_BIAS if work.bias else names.RELU
        return names.BIAS if work.bias else names.DEFAULT

    def _algorithms(
        self, descriptor: int, layouts: tuple[int, ...], alignments: tuple[int, ...], count: int
    ) -> list[Any]:
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
        a, b, d = layouts
        try:
            lt.matmul_algo_get_heuristic(
                self._handle, descriptor, a, b, d, d, preference, count, results.ctypes.data,
                found.ctypes.data,
            )  # fmt: skip
        except lt.cuBLASLtError:
            return []
        finally:
            lt.matmul_preference_destroy(preference)
        return [results[k : k + 1].copy() for k in range(int(found[0]))]

    # -- measuring ----------------------------------------------------------------------------

    def _name_of(self, work: Work, alignments: tuple[int, ...]) -> str:
        return digest(
            _KIND, _TRIED, self._lt.get_version(), self._device.name, self._tf32, self._searches,
            work.call.facts, work.numbers, alignments,
        )  # fmt: skip

    def _is_known(self, product: _Product, name: str) -> bool:
        """Let a product have the algorithm that was found for it before, if one was."""
        held = default_cache().read(name, _KIND)
        if held is None or len(held) != self._lt.matmul_heuristic_result_dtype.itemsize:
            return False
        product.use(np.frombuffer(held, self._lt.matmul_heuristic_result_dtype).copy())
        return True

    def _prepare(
        self, product: _Product, work: Work, alignments: tuple[int, ...], name: str
    ) -> bool:
        """Let a product have an algorithm that was tried; False if none is right.

        A faster one may be found in the background.
        """
        try:
            algorithm = self._first_right(product, work, alignments)
        except Exception as error:  # noqa: BLE001 - without memory for that, say
            _logger.info("an algorithm of cuBLASLt's is not tried: %s", error)
        else:
            if algorithm is None:
                return False
            product.use(algorithm)
            if not self._searches:
                default_cache().put(name, _KIND, algorithm.tobytes())
        self._improve_later(product, work, alignments, name)
        return True

    def _prepare_later(
        self, key: object, product: _Product, work: Work, alignments: tuple[int, ...], name: str
    ) -> None:
        """Have a product prepared in the background; None stands for it meanwhile."""
        with self._lock:
            if key in self._products:
                return
            self._products[key] = None
            self.pending += 1

        def prepare() -> None:
            is_right = False
            try:
                self._device.enter()
                is_right = self._prepare(product, work, alignments, name)
            except Exception as error:  # noqa: BLE001 - the library raises what it likes
                _logger.info("a product of cuBLASLt's is not prepared: %s", error)
            with self._lock:
                self.pending -= 1
                if is_right and key in self._products:
                    self._products[key] = [product]
                    self.version += 1

        self._searcher.do(prepare)

    def _improve_later(
        self, product: _Product, work: Work, alignments: tuple[int, ...], name: str
    ) -> None:
        if not self._searches:
            return
        with self._lock:
            self.searching += 1
        self._searcher.do(lambda: self._improve(product, work, alignments, name), can_wait=True)

    def _first_right(
        self, product: _Product, work: Work, alignments: tuple[int, ...]
    ) -> Any | None:
        """The first algorithm that does the work, on memory of its own; None if none does."""
        lent = self._device.lend_stream()
        stream = lent.handle
        try:
            with Loan(self._device.capturing) as loan:
                workspace = loan.take(WORKSPACE_BYTES, stream)
                trial, each = trial_of(work, self._device, loan, stream, is_measured=False)
                for count in (1, _MOST_MEASURED):
                    found = self._algorithms(product.descriptor, product.layouts, alignments, count)
                    for algorithm in found[count > 1 :]:
                        product.use(algorithm)
                        result = trial.result_of(
                            lambda: self._call(product, next(each), workspace, stream)
                        )
                        if trial.right({0: result}):
                            return algorithm
                        _logger.info("an algorithm of cuBLASLt's has another result, or none")
        finally:
            self._device.take_back(lent)
        return None

    def _improve(
        self, product: _Product, work: Work, alignments: tuple[int, ...], name: str
    ) -> None:
        is_better = False
        try:
            self._device.enter()
            if self._stream is None:
                self._stream = self._device.lend_stream()
            found = self._algorithms(
                product.descriptor, product.layouts, alignments, _MOST_MEASURED
            )
            best = self._fastest(found, work, alignments) if len(found) > 1 else 0
            if found:
                default_cache().put(name, _KIND, found[best].tobytes())
            is_better = best > 0
            if is_better:
                with product.lock:
                    product.use(found[best])
        except Exception as error:  # noqa: BLE001 - the library raises what it likes
            _logger.info("algorithms of cuBLASLt are not measured: %s", error)
        with self._lock:
            self.searching -= 1
            self._improved = is_better or self._improved
            if self._improved and not self.searching:
                self._improved = False
                self.version += 1

    def _fastest(self, found: list[Any], work: Work, alignments: tuple[int, ...]) -> int:
        """Which algorithm is the fastest that is right, measured on memory of its own."""
        stream = self._stream.handle
        planned = self._plan(work, alignments)
        if not planned:
            return 0
        (product,) = planned
        with Loan(self._device.capturing) as loan:
            workspace = loan.take(WORKSPACE_BYTES, stream)
            trial, each = trial_of(work, self._device, loan, stream, is_measured=True)

            def once() -> None:
                self._call(product, next(each), workspace, stream)

            times: dict[int, float] = {}
            results: dict[int, Array | None] = {}
            calls = CALLS
            for number, algorithm in enumerate(found):
                product.use(algorithm)
                try:
                    result = trial.result_of(once)
                    times[number] = milliseconds(once, stream, self._device, calls)
                except Exception as error:  # noqa: BLE001 - an algorithm that fails is none
                    _logger.debug("algorithm %d of cuBLASLt's fails: %s", number, error)
                    continue
                results[number] = result
                calls = max(2, min(CALLS, round(_MEASURED_MS / max(times[number], 1e-3))))
        right = trial.right(results)
        if wrong := sorted(set(results).difference(right)):
            _logger.info("algorithms %s of cuBLASLt's have other results, or none", wrong)
        best = min(right, key=times.__getitem__, default=0)
        first = times[0] if 0 in right else float("inf")
        return best if times.get(best, 0) < _WORTH * first else 0

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


def _alignment(address: int) -> int:
    """The largest power of two that divides an address, as far as it matters."""
    return min(address & -address, _MOST_ALIGNMENT) if address else _MOST_ALIGNMENT
