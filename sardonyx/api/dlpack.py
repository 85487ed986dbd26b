"""DLPack for the element types that NumPy's own DLPack does not know: bfloat16 and float8.

NumPy exchanges integers of the same size; the type in the capsule is rewritten on the way.
https://dmlc.github.io/dlpack/latest/c_api.html
"""

from __future__ import annotations

import ctypes
from typing import Any

import numpy as np

from sardonyx.base import dtypes

Array = np.ndarray[Any, np.dtype[Any]]

#: DLDataTypeCode of floating-point types beyond IEEE's.
_CODES = {
    "bfloat16": 4,
    "float8e4m3fn": 10,
    "float8e4m3fnuz": 11,
    "float8e5m2": 12,
    "float8e5m2fnuz": 13,
    "float8e8m0": 14,
}
_NAMES = {code: name for name, code in _CODES.items()}
_UNSIGNED = 1
#: DLDeviceType of memory that the processor can read: its own, and CUDA's pinned memory.
_REACHABLE = (1, 3)

# Offsets of `dtype.code`: in DLTensor after data, device and ndim; DLManagedTensor begins with it,
# DLManagedTensorVersioned has version, context, deleter and flags before.
_PLACES = {b"dltensor": 20, b"dltensor_versioned": 52}

_api = ctypes.pythonapi
_is_valid = ctypes.PYFUNCTYPE(ctypes.c_int, ctypes.py_object, ctypes.c_char_p)(
    ("PyCapsule_IsValid", _api)
)
_pointer_of = ctypes.PYFUNCTYPE(ctypes.c_void_p, ctypes.py_object, ctypes.c_char_p)(
    ("PyCapsule_GetPointer", _api)
)


def to_capsule(array: Array, **options: Any) -> Any:
    """The array as a capsule; `options` are those of `__dlpack__`.

    Raises:
        BufferError: The memory cannot be shared in this way.
    """
    found = dtypes.from_numpy(array.dtype)
    code = _CODES.get(found.name) if found is not None else None
    if code is None:
        return array.__dlpack__(**options)
    capsule = array.view(f"u{array.itemsize}").__dlpack__(**options)
    place = _code_of(capsule)
    if place is not None:
        place.value = code
    return capsule


def from_producer(value: Any) -> Array:
    """An array on the memory of anything with `__dlpack__`, or of a capsule of the processor's.

    Raises:
        BufferError, RuntimeError: The memory cannot be shared.
    """
    if type(value).__name__ == "PyCapsule":
        value = _Holder(value, (1, 0))
    kind, number = value.__dlpack_device__()
    if kind not in _REACHABLE:
        raise BufferError(f"it belongs to the device {kind}, {number} of DLPack")
    try:
        return np.from_dlpack(value)
    except (BufferError, RuntimeError):
        capsule = value.__dlpack__()
        place = _code_of(capsule)
        name = _NAMES.get(place.value) if place is not None else None
        if place is None or name is None:
            raise
        place.value = _UNSIGNED
        held = np.from_dlpack(_Holder(capsule, value.__dlpack_device__()))
        return held.view(dtypes.BY_NAME[name].numpy)


def _code_of(capsule: Any) -> ctypes.c_uint8 | None:
    """The byte of a capsule that says what kind its elements are."""
    for name, offset in _PLACES.items():
        if _is_valid(capsule, name):
            return ctypes.c_uint8.from_address(_pointer_of(capsule, name) + offset)
    return None


class _Holder:
    """What NumPy takes, around a capsule."""

    def __init__(self, capsule: Any, device: tuple[int, int]) -> None:
        self._capsule, self._device = capsule, device

    def __dlpack__(self, **_: Any) -> Any:
        return self._capsule

    def __dlpack_device__(self) -> tuple[int, int]:
        return self._device
