"""`OrtValue`: a handle on a tensor in memory."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from sardonyx.base import dtypes, errors
from sardonyx.base.dtypes import DType
from sardonyx.base.errors import InvalidArgument, message

Array = NDArray[Any]


def dtype_of(array: Array) -> DType:
    """The element type of an array.

    Raises:
        InvalidArgument: ONNX has no such type.
    """
    found = dtypes.from_numpy(array.dtype)
    if found is None:
        raise InvalidArgument(message("OrtValue", f"ONNX has no element type {array.dtype}"))
    return found


def need_cpu(device: str, device_id: int = 0) -> None:
    """Refuse memory that is not the processor's.

    Raises:
        NotImplemented: It is another device's.
    """
    if device.lower() != "cpu" or device_id != 0:
        raise errors.NotImplemented(
            message("device", f"There is no memory of the device {device!r}", expected="'cpu'")
        )


class OrtDevice:
    """A device: this build has the processor alone."""

    def __init__(self, name: str = "cpu", device_id: int = 0) -> None:
        need_cpu(name, device_id)

    @staticmethod
    def make(name: str, device_id: int, vendor_id: int = -1) -> OrtDevice:
        """The device `name`."""
        return OrtDevice(name, device_id)

    def device_id(self) -> int:
        """Its number among devices of its type."""
        return 0

    def device_type(self) -> int:
        """0, the processor."""
        return 0


class OrtValue:
    """A tensor in memory. Made by the static methods, never copied by a session."""

    def __init__(self, array: Array) -> None:
        self._array = array

    @staticmethod
    def ortvalue_from_numpy(
        array: Array, /, device_type: str = "cpu", device_id: int = 0, vendor_id: int = -1
    ) -> OrtValue:
        """A handle on the array's own memory: no copy is made."""
        need_cpu(device_type, device_id)
        dtype_of(array)
        return OrtValue(array)

    @staticmethod
    def ortvalue_from_shape_and_type(
        shape: Sequence[int],
        element_type: Any,
        device_type: str = "cpu",
        device_id: int = 0,
        vendor_id: int = -1,
    ) -> OrtValue:
        """New memory, contents undefined; `element_type` is a NumPy type or ONNX's number."""
        need_cpu(device_type, device_id)
        if isinstance(element_type, (int, np.integer)):
            if int(element_type) not in dtypes.BY_ONNX_ID:
                raise InvalidArgument(
                    message("OrtValue", f"There is no element type number {element_type}")
                )
            kind = dtypes.BY_ONNX_ID[int(element_type)].numpy
        else:
            kind = np.dtype(element_type)
        return OrtValue(np.empty(tuple(shape), kind))

    @staticmethod
    def from_dlpack(value: Any, /) -> OrtValue:
        """A handle on the memory of anything with `__dlpack__`."""
        return OrtValue(np.from_dlpack(value))

    def numpy(self) -> Array:
        """The tensor as an array on the same memory."""
        return self._array

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> Array:
        return np.array(self._array, dtype=dtype, copy=copy)

    def __dlpack__(self, **options: Any) -> Any:
        return self._array.__dlpack__(**options)

    def __dlpack_device__(self) -> tuple[int, int]:
        return (1, 0)

    def update_inplace(self, value: Array | OrtValue) -> None:
        """Write new contents to the same address.

        Raises:
            InvalidArgument: Shape or element type differ.
        """
        array = value.numpy() if isinstance(value, OrtValue) else np.asarray(value)
        if array.shape != self._array.shape or array.dtype != self._array.dtype:
            raise InvalidArgument(
                message(
                    "OrtValue.update_inplace", "The contents do not fit",
                    expected=f"{self._array.dtype}{list(self._array.shape)}",
                    got=f"{array.dtype}{list(array.shape)}",
                )
            )  # fmt: skip
        self._array[...] = array

    def shape(self) -> list[int]:
        """The sizes of its axes."""
        return list(self._array.shape)

    def data_type(self) -> str:
        """Its type in ONNX's words, such as `tensor(float)`."""
        return f"tensor({dtype_of(self._array)})"

    def element_type(self) -> int:
        """ONNX's number of its element type."""
        return dtype_of(self._array).onnx_id

    def data_ptr(self) -> int:
        """The address of its first element."""
        return int(self._array.__array_interface__["data"][0])

    def tensor_size_in_bytes(self) -> int:
        """How much memory it takes."""
        return int(self._array.nbytes)

    def device_name(self) -> str:
        """`cpu`."""
        return "cpu"

    def has_value(self) -> bool:
        """Always: a tensor is never absent."""
        return True

    def is_tensor(self) -> bool:
        """Always."""
        return True

    def is_sparse_tensor(self) -> bool:
        """Never."""
        return False

    def is_tensor_sequence(self) -> bool:
        """Never."""
        return False
