"""Memory shared through DLPack, with types that NumPy's own DLPack does not know."""

from __future__ import annotations

from typing import Any

import ml_dtypes
import numpy as np
import pytest
from onnx import TensorProto

import sardonyx as ort
from sardonyx.api import dlpack
from sardonyx.base import errors
from tests.api import models

TYPES = [
    np.float32, np.int64, np.bool_, np.float16, ml_dtypes.bfloat16, ml_dtypes.float8_e4m3fn,
    ml_dtypes.float8_e4m3fnuz, ml_dtypes.float8_e5m2, ml_dtypes.float8_e5m2fnuz,
    ml_dtypes.float8_e8m0fnu,
]  # fmt: skip


@pytest.mark.parametrize("dtype", TYPES)
@pytest.mark.parametrize("options", [{}, {"max_version": (1, 0)}])
def test_both_ways(dtype: Any, options: Any) -> None:
    array = np.array([[0.5, 1, 2], [1, 2, 4]]).astype(dtype)
    value = ort.OrtValue.ortvalue_from_numpy(array)
    again = ort.OrtValue.from_dlpack(value)
    assert again.data_ptr() == array.ctypes.data
    assert again.numpy().dtype == array.dtype
    assert again.shape() == [2, 3]
    held = ort.OrtValue.from_dlpack(value.__dlpack__(**options))
    assert held.numpy().tobytes() == array.tobytes()


def test_the_code_in_the_capsule() -> None:
    array = np.zeros(3, ml_dtypes.bfloat16)
    for options in ({}, {"max_version": (1, 0)}):
        place = dlpack._code_of(dlpack.to_capsule(array, **options))
        assert place is not None
        assert place.value == 4


class Foreign:
    """A tensor of another library."""

    def __init__(self, array: Any) -> None:
        self._array = array

    def __dlpack__(self, **options: Any) -> Any:
        return dlpack.to_capsule(self._array, **options)

    def __dlpack_device__(self) -> tuple[int, int]:
        return (1, 0)


def test_feeds_of_another_library() -> None:
    session = ort.InferenceSession(models.add(TensorProto.BFLOAT16))
    a = np.ones((2, 3), ml_dtypes.bfloat16)
    assert np.array_equal(session.run(["y"], {"a": Foreign(a), "b": a})[0], a + a)
    plain = ort.InferenceSession(models.add())
    b = np.ones((2, 3), np.float32)
    assert np.array_equal(plain.run(["y"], {"a": Foreign(b), "b": Foreign(b)})[0], b + b)


def test_memory_elsewhere_is_refused() -> None:
    class Metal(Foreign):
        def __dlpack_device__(self) -> tuple[int, int]:
            return (8, 0)

    with pytest.raises(errors.InvalidArgument, match="cannot be shared"):
        ort.OrtValue.from_dlpack(Metal(np.ones(2)))


def test_memory_lives_as_long_as_what_shares_it() -> None:
    value = ort.OrtValue.from_dlpack(ort.OrtValue.ortvalue_from_numpy(np.arange(5.0)))
    held = np.asarray(value)
    del value
    assert held.tolist() == [0, 1, 2, 3, 4]


class Tensor(Foreign):
    """One whose library is found as the array standard says."""

    @staticmethod
    def from_dlpack(value: Any) -> Any:
        return Tensor(np.from_dlpack(value))

    def __array_namespace__(self) -> Any:
        return Tensor


def test_calls_give_arrays_of_the_library_that_is_fed() -> None:
    session = ort.InferenceSession(models.add(TensorProto.FLOAT))
    a = np.ones((2, 3), np.float32)
    found, _ = session(Tensor(a), a)
    assert isinstance(found, Tensor)
    assert np.array_equal(found._array, a * 2)
    value = ort.OrtValue.ortvalue_from_numpy(a)
    assert isinstance(session(value, a)[0], ort.OrtValue)
    assert isinstance(session(a, a.tolist())[0], np.ndarray)
