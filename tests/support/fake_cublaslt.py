"""A module `cublasLt` whose products NumPy computes, in memory that is the host's.

It has what `sardonyx.cuda.libraries.cublaslt` calls of nvmath-python's bindings. Matrices have
their columns one behind the other, as cuBLASLt's.
"""

from __future__ import annotations

import ctypes
import enum
import itertools
import types
from typing import Any

import ml_dtypes
import numpy as np

from tests.support.fake_driver import FakeDriver
from tests.support.fake_library import ACTIVATIONS, array_at

_TYPES = {0: np.float32, 1: np.float64, 2: np.float16, 14: ml_dtypes.bfloat16}


class _Attribute(enum.IntEnum):
    TRANSA = 0
    TRANSB = 1
    EPILOGUE = 2
    BIAS_DATA_TYPE = 3
    BIAS_POINTER = 4


class _Layout(enum.IntEnum):
    BATCH_COUNT = 0
    STRIDED_BATCH_OFFSET = 1


class _Preference(enum.IntEnum):
    MAX_WORKSPACE_BYTES = 0
    MIN_ALIGNMENT_A_BYTES = 1
    MIN_ALIGNMENT_B_BYTES = 2
    MIN_ALIGNMENT_C_BYTES = 3
    MIN_ALIGNMENT_D_BYTES = 4


class _Epilogue(enum.IntFlag):
    DEFAULT = 1
    RELU = 2
    BIAS = 4
    RELU_BIAS = 6
    GELU = 32
    GELU_BIAS = 36


class CublasLtError(Exception):
    """What the bindings raise."""


class CublasLt(types.ModuleType):
    """The module.

    Attributes:
        driver: Whose device it works on.
        held: Descriptors, layouts and preferences that are not destroyed, by number.
        products: How many products were computed.
        knows_any: Whether there are algorithms.
        most: How many there are at most, numbered from 0.
        used: Numbers of those that products were computed with.
        idle, wrong: Numbers of those that write nothing, and of those that write something else.
    """

    MatmulDescAttribute, MatrixLayoutAttribute = _Attribute, _Layout
    MatmulPreferenceAttribute, Epilogue = _Preference, _Epilogue
    cuBLASLtError = CublasLtError  # noqa: N815 - the module's name
    matmul_heuristic_result_dtype = np.dtype([("algorithm", "u8", 8)])

    def __init__(self, driver: FakeDriver) -> None:
        super().__init__("cublasLt")
        self.driver, self.knows_any, self.products = driver, True, 0
        self.most, self.used = 1, list[int]()
        self.idle, self.wrong = set[int](), set[int]()
        self.held: dict[int, dict[Any, Any]] = {}
        self._numbers = itertools.count(1)

    def create(self) -> int:
        return 1

    def _made(self, **facts: Any) -> int:
        number = next(self._numbers)
        self.held[number] = dict(facts)
        return number

    def _destroy(self, number: int) -> None:
        del self.held[number]

    matmul_desc_destroy = matrix_layout_destroy = matmul_preference_destroy = _destroy

    def _set(self, number: int, name: int, address: int, size: int) -> None:
        kind = {4: ctypes.c_int32, 8: ctypes.c_int64}[size]
        self.held[number][name] = kind.from_address(address).value

    matmul_desc_set_attribute = matrix_layout_set_attribute = _set
    matmul_preference_set_attribute = _set

    def matmul_desc_create(self, compute: int, scale: int) -> int:
        return self._made(compute=compute, scale=scale)

    def matrix_layout_create(self, kind: int, rows: int, columns: int, leading: int) -> int:
        assert leading >= rows
        return self._made(kind=_TYPES[kind], rows=rows, columns=columns, leading=leading)

    def matmul_preference_create(self) -> int:
        return self._made()

    def matmul_algo_get_heuristic(
        self, handle: int, descriptor: int, a: int, b: int, c: int, d: int, preference: int,
        wanted: int, results: int, count: int,
    ) -> None:  # fmt: skip
        found = min(wanted, self.most) if self.knows_any else 0
        ctypes.c_int32.from_address(count).value = found
        size = self.matmul_heuristic_result_dtype.itemsize
        for number in range(found):
            ctypes.c_int64.from_address(results + number * size).value = number

    def get_version(self) -> int:
        return id(self)  # nothing that another test has kept

    def _matrix(self, layout: int, address: int, transposed: int) -> Any:
        f = self.held[layout]
        steps = [f.get(_Layout.STRIDED_BATCH_OFFSET, 0), 1, f["leading"]]
        shape = [f.get(_Layout.BATCH_COUNT, 1), f["rows"], f["columns"]]
        found = array_at(address, f["kind"], shape, steps)
        return np.swapaxes(found, 1, 2) if transposed else found

    def matmul(
        self, handle: int, descriptor: int, alpha: int, left: int, a: int, right: int, b: int,
        beta: int, added: int, c: int, out: int, d: int, algorithm: int, workspace: int,
        size: int, stream: int,
    ) -> None:  # fmt: skip
        facts = dict(self.held[descriptor])
        number = ctypes.c_double if facts["scale"] else ctypes.c_float
        factors = [number.from_address(x).value for x in (alpha, beta)]
        x = self._matrix(a, left, facts[_Attribute.TRANSA])
        y = self._matrix(b, right, facts[_Attribute.TRANSB])
        z, result = self._matrix(c, added, 0), self._matrix(d, out, 0)
        assert workspace
        which = ctypes.c_int64.from_address(algorithm).value
        self.used.append(which)

        def work() -> None:
            self.products += 1
            total = factors[0] * (x.astype(np.float64) @ y.astype(np.float64))
            total += factors[1] * z.astype(np.float64) if factors[1] else 0
            if facts[_Attribute.EPILOGUE] & _Epilogue.BIAS:
                kind = _TYPES[facts[_Attribute.BIAS_DATA_TYPE]]
                bias = array_at(facts[_Attribute.BIAS_POINTER], kind, [result.shape[1]], [1])
                total += bias.astype(np.float64)[:, None]
            if facts[_Attribute.EPILOGUE] & _Epilogue.RELU:
                total = np.maximum(total, 0)
            if facts[_Attribute.EPILOGUE] & _Epilogue.GELU:
                total = ACTIVATIONS["gelu"](total)
            if which not in self.idle:
                result[...] = total + (which in self.wrong)

        self.driver.do("call", work, stream)
