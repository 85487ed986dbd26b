"""DLPack for the element types that NumPy's own DLPack does not know: bfloat16 and float8.

NumPy exchanges integers of the same size; the type in the capsule is rewritten on the way.
https://dmlc.github.io/dlpack/latest/c_api.html
"""

from __future__ import annotations

import ctypes
from typing import Any

import numpy as np

from sardonyx.base import dtypes
from sardonyx.base.errors import InvalidArgument, message
from sardonyx.runtime.storage import Array, DeviceArray, Tensor

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
#: Memory of a GPU: its own, and managed memory.
_ON_DEVICE = (2, 13)

# Offsets of `dtype.code`: in DLTensor after data, device and ndim; DLManagedTensor begins with it,
# DLManagedTensorVersioned has version, context, deleter and flags before.
_PLACES = {b"dltensor": 20, b"dltensor_versioned": 52}
#: From there back to the type and the number of the device.
_DEVICE_BACK = 12

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


def from_producer(value: Any) -> Tensor:
    """An array on the memory of anything with `__dlpack__`, or of a capsule from there.

    Memory of a GPU may come with `__cuda_array_interface__` alone.

    Raises:
        BufferError, RuntimeError, AttributeError: The memory cannot be shared.
    """
    given = value
    if type(value).__name__ == "PyCapsule":
        value = _Holder(value, _device_of(value))
    elif not hasattr(value, "__dlpack__") and hasattr(value, "__cuda_array_interface__"):
        return _on_device(value)
    if type(value).__module__ == "torch" and getattr(value, "is_cuda", False):
        from sardonyx.cuda.interop.torch_tensors import array_of

        found = array_of(value)
        if found is not None:
            return found
    kind, number = value.__dlpack_device__()
    if int(kind) in _ON_DEVICE:
        return _on_device(given)
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


def is_uint8_capsule(capsule: Any) -> bool:
    """Whether a capsule holds bytes, which are bools where a program says so.

    Raises:
        InvalidArgument: It is no capsule of DLPack.
    """
    place = _code_of(capsule)
    if place is None:
        what = "This is no capsule of DLPack"
        raise InvalidArgument(message("is_dlpack_uint8_tensor", what, got=type(capsule).__name__))
    kind = (ctypes.c_uint8 * 2).from_address(ctypes.addressof(place))
    return (kind[0], kind[1]) == (_UNSIGNED, 8)


def _on_device(value: Any) -> DeviceArray:
    from sardonyx.cuda.interop.exchange import from_producer

    return from_producer(value)


def _device_of(capsule: Any) -> tuple[int, int]:
    """The device of what a capsule holds; the processor if it is no capsule of DLPack."""
    place = _code_of(capsule)
    if place is None:
        return (1, 0)
    words = (ctypes.c_int32 * 2).from_address(ctypes.addressof(place) - _DEVICE_BACK)
    return words[0], words[1]


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
