"""`OrtValue`: a handle on a tensor, or on a sequence, a map, a sparse tensor or nothing."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from sardonyx.api import dlpack
from sardonyx.api.memory import OrtDevice, OrtMemoryInfo, memory_for, memory_of
from sardonyx.base import dtypes, errors
from sardonyx.base.arguments import names_misfits
from sardonyx.base.dtypes import DType
from sardonyx.base.errors import InvalidArgument, SardonyxError, message
from sardonyx.host.sparse_tensor import SparseTensor
from sardonyx.runtime.growable_values import new_growable
from sardonyx.runtime.host_arrays import texts_of_bytes
from sardonyx.runtime.storage import (
    HOST,
    Array,
    DeviceArray,
    Tensor,
    refuse_strings,
    to_host,
    write,
)


def dtype_of(array: Tensor) -> DType:
    """The element type of an array.

    Raises:
        InvalidArgument: ONNX has no such type.
    """
    found = dtypes.from_numpy(array.dtype)
    if found is None:
        raise InvalidArgument(message("OrtValue", f"ONNX has no element type {array.dtype}"))
    return found


def numpy_type(element_type: Any) -> np.dtype[Any]:
    """NumPy's type for one, or for ONNX's number of an element type.

    Raises:
        InvalidArgument: It is none.
    """
    if isinstance(element_type, (int, np.integer)) and not isinstance(element_type, bool):
        found = dtypes.BY_ONNX_ID.get(int(element_type))
    else:
        try:
            found = dtypes.from_numpy(element_type)
        except TypeError:
            found = None
    if found is None:
        raise InvalidArgument(message("OrtValue", f"There is no element type {element_type!r}"))
    return found.numpy


class OrtValue:
    """A tensor in memory. Make it with one of the static methods.

    It may also hold a `SparseTensor`, and what runs give: a sequence (a list), a map (a dict) or
    nothing (None).
    """

    __slots__ = ("_array",)

    def __init__(self, array: Any) -> None:
        self._array = array

    @staticmethod
    @names_misfits
    def ortvalue_from_numpy(
        array: Array,
        /,
        device_type: str | OrtDevice | OrtMemoryInfo = "cpu",
        device_id: int = 0,
        vendor_id: int = -1,
    ) -> OrtValue:
        """A handle on the array's own memory, or on a copy in the memory of another device.

        An array in foreign byte order is copied, too.

        Raises:
            InvalidArgument: It is no array, or of a type that ONNX does not have.
            NotImplemented: There are no devices of this name or maker here.
            EPFail: The device's driver is missing.
        """
        memory = memory_of(device_type, device_id, vendor_id)
        if not isinstance(array, np.ndarray):
            raise InvalidArgument(
                message(
                    "OrtValue", "This is no array", expected="ndarray", got=type(array).__name__
                )
            )
        if not array.dtype.isnative:
            array = array.astype(array.dtype.newbyteorder("="))
        kind = numpy_type(array.dtype)
        if array.dtype.kind == "S":
            array = texts_of_bytes(array)
        elif array.dtype.kind == "U":
            array = array.astype(kind)
        if memory is HOST:
            return OrtValue(array)
        refuse_strings(kind)
        return OrtValue(memory.copy_of(array))

    @staticmethod
    @names_misfits
    def ortvalue_from_numpy_with_onnx_type(array: Array, /, onnx_element_type: int) -> OrtValue:
        """A handle on the array's memory, read as elements of another type of the same size."""
        wanted = numpy_type(onnx_element_type)
        if array.dtype.itemsize != wanted.itemsize:
            raise InvalidArgument(
                message(
                    "OrtValue", "The elements have another size",
                    expected=f"{wanted.itemsize} bytes ({wanted})",
                    got=f"{array.dtype.itemsize} ({array.dtype})",
                )
            )  # fmt: skip
        return OrtValue(array.view(wanted))

    @staticmethod
    @names_misfits
    def ortvalue_from_shape_and_type(
        shape: Sequence[int],
        element_type: Any,
        device_type: str | OrtDevice | OrtMemoryInfo = "cpu",
        device_id: int = 0,
        vendor_id: int = -1,
        memory_info: OrtMemoryInfo | None = None,
    ) -> OrtValue:
        """New memory, contents undefined.

        Args:
            shape: Sizes of axes.
            element_type: A NumPy type, or ONNX's number of one.
            device_type: `"cpu"`, `"cuda"` (or `"gpu"`), `"cudapinned"` (memory of the host that a
                GPU reaches), in small or capital letters, or an object that says where.
            device_id: The device's number; a name may have it instead: `"cuda:1"`.
            vendor_id: Its maker, NVIDIA; -1 or 0 for any.
            memory_info: Where, in place of the device.

        Raises:
            InvalidArgument: The shape or the type is none.
            NotImplemented: There are no devices of this name or maker here.
            EPFail: The device's driver is missing.
            OutOfMemory: There is not so much.
        """
        memory = memory_for(memory_info, device_type, device_id, vendor_id)
        return OrtValue(memory.empty(tuple(map(int, shape)), numpy_type(element_type)))

    @staticmethod
    @names_misfits
    def ortvalue_from_address(
        address: int,
        shape: Sequence[int],
        element_type: Any,
        device_type: str | OrtDevice | OrtMemoryInfo = "cpu",
        device_id: int = 0,
        vendor_id: int = -1,
        memory_info: OrtMemoryInfo | None = None,
        owner: Any = None,
    ) -> OrtValue:
        """A handle on memory that is there, of any device, with no copy.

        Of memory of the processor nothing is checked but that the address is not null.

        Args:
            address: Of the first element; the others follow in the order of C.
            shape: Sizes of axes.
            element_type: A NumPy type, or ONNX's number of one.
            device_type: Where the memory lies, this and the next three as for
                `ortvalue_from_shape_and_type`.
            device_id: The device's number.
            vendor_id: Its maker, NVIDIA; -1 or 0 for any.
            memory_info: Where, in place of the device.
            owner: What keeps the memory: the value refers to it, as does what is made of the value.
                Without one the caller keeps it for as long as the value is used, and each run asks
                the driver whether there is any at the address.

        Raises:
            InvalidArgument: There is no memory of that kind, or it is smaller, as far as is known;
                the shape or the type is none, or the type is that of strings.
            NotImplemented: There are no devices of this name or maker here.
            EPFail: The device's driver is missing.
        """
        memory = memory_for(memory_info, device_type, device_id, vendor_id)
        sizes, kind = tuple(map(int, shape)), numpy_type(element_type)
        return OrtValue(memory.at(int(address), sizes, kind, owner))

    @staticmethod
    @names_misfits
    def ortvalue_with_room(
        shape: Sequence[int],
        element_type: Any,
        axis: int,
        room: int,
        device_type: str | OrtDevice | OrtMemoryInfo = "cuda",
        device_id: int = 0,
    ) -> OrtValue:
        """New memory, contents undefined, with room to grow to a size of `room` along an axis.

        A run whose output continues this value, such as `Concat(past, new)`, writes what is new
        behind it, copying nothing. Bound to both the input and the output, a value on a GPU becomes
        longer itself; one on the processor cannot be written to.

        Raises:
            InvalidArgument: The axis is none, or `room` is too small.
            NotImplemented: Values in such memory do not grow.
        """
        memory = memory_of(device_type, device_id)
        sizes, kind = tuple(map(int, shape)), numpy_type(element_type)
        if not 0 <= axis < len(sizes) or room < sizes[axis]:
            raise InvalidArgument(
                message("OrtValue", f"There is no axis {axis} of size {room} for {list(sizes)}")
            )
        refuse_strings(kind)
        make = getattr(memory, "growable", new_growable if memory is HOST else None)
        if make is None:
            raise errors.NotImplemented(
                message(
                    "OrtValue", f"Values in {memory.memory_name} memory do not grow",
                    expected="'cpu' or 'cuda'", do="Use ortvalue_from_shape_and_type",
                )
            )  # fmt: skip
        return OrtValue(make(sizes, kind, axis, room))

    @staticmethod
    @names_misfits
    def from_dlpack(value: Any, is_bool_tensor: bool = False, /) -> OrtValue:
        """A handle on the memory of anything with `__dlpack__`, or of a capsule from there.

        Memory of a GPU may come with `__cuda_array_interface__`, too. Bytes are taken for bools
        where `is_bool_tensor` says so: before 1.0, DLPack had none.

        Raises:
            InvalidArgument: The memory cannot be shared.
        """
        try:
            found = dlpack.from_producer(value)
            if is_bool_tensor and found.dtype == np.uint8:
                kind = np.dtype(np.bool_)
                if isinstance(found, np.ndarray):
                    found = found.view(kind)
                else:
                    found = found.as_shape(found.shape, kind)
            return OrtValue(found)
        except (BufferError, RuntimeError, AttributeError, TypeError, SardonyxError) as error:
            raise InvalidArgument(
                message("OrtValue.from_dlpack", f"The memory cannot be shared: {error}")
            ) from error

    @staticmethod
    def ort_value_from_sparse_tensor(sparse_tensor: SparseTensor) -> OrtValue:
        """A handle on a sparse tensor; both share its memory.

        Raises:
            InvalidArgument: It is none.
        """
        if not isinstance(sparse_tensor, SparseTensor):
            what, got = "This is no sparse tensor", type(sparse_tensor).__name__
            raise InvalidArgument(message("OrtValue", what, expected="SparseTensor", got=got))
        return OrtValue(sparse_tensor)

    def as_sparse_tensor(self) -> SparseTensor:
        """The sparse tensor that it holds.

        Raises:
            InvalidSparseTensor: It holds something else.
        """
        if not isinstance(self._array, SparseTensor):
            what = "The value is no sparse tensor"
            raise errors.InvalidSparseTensor(message("OrtValue", what, got=self.data_type()))
        return self._array

    def numpy(self) -> Array:
        """The tensor as an array: on the same memory, or a copy of what lies on a device.

        Raises:
            InvalidArgument: It is no tensor.
        """
        return to_host(self._tensor())

    def to_python(self) -> Any:
        """What it holds: an array, a list for a sequence, a dict for a map, or None."""
        return to_host(self._array)

    def _tensor(self) -> Tensor:
        if not isinstance(self._array, (np.ndarray, DeviceArray)):
            what = "The value is no tensor"
            do = f"Use {'as_sparse_tensor' if self.is_sparse_tensor() else 'to_python'}()"
            raise InvalidArgument(message("OrtValue", what, got=self.data_type(), do=do))
        return self._array

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> Array:
        if copy is False and isinstance(self._array, DeviceArray):
            what = "Memory of a device is no array of NumPy's without a copy"
            raise InvalidArgument(message("OrtValue", what, do="Leave copy out"))
        return np.array(self.numpy(), dtype=dtype, copy=copy)

    def __dlpack__(self, **options: Any) -> Any:
        held = self._tensor()
        if isinstance(held, DeviceArray):
            return held.__dlpack__(**options)
        return dlpack.to_capsule(held, **options)

    def to_dlpack(self) -> Any:
        """A capsule of DLPack's first form."""
        return self.__dlpack__()

    def _get_c_value(self) -> OrtValue:
        """Itself: onnxruntime's Python part has a compiled value inside, which clients take."""
        return self

    @property
    def _ortvalue(self) -> OrtValue:
        return self

    def __dlpack_device__(self) -> tuple[int, int]:
        held = self._tensor()
        return held.__dlpack_device__() if isinstance(held, DeviceArray) else (1, 0)

    def __getattr__(self, name: str) -> Any:
        if name == "__cuda_array_interface__" and isinstance(self._array, DeviceArray):
            return getattr(self._array, name)
        raise AttributeError(f"{type(self).__name__!r} object has no attribute {name!r}")

    @names_misfits
    def update_inplace(self, value: Any) -> None:
        """Write new contents to the same address; they may lie on any device.

        Raises:
            InvalidArgument: Size or element type differ, or the memory is read-only.
        """
        write(self._tensor(), self._contents("OrtValue.update_inplace", value))

    def _contents(self, where: str, value: Any) -> Tensor:
        """What may be written to this value's memory, as a tensor of its type.

        Raises:
            InvalidArgument: It does not fit, or the memory is read-only.
        """
        given: Tensor = value._tensor() if isinstance(value, OrtValue) else value
        if not isinstance(given, (np.ndarray, DeviceArray)):
            shared = hasattr(value, "__dlpack__") or hasattr(value, "__cuda_array_interface__")
            given = OrtValue.from_dlpack(value)._tensor() if shared else np.asarray(value)
        own = self._tensor()
        if given.size != own.size or given.dtype.newbyteorder("=") != own.dtype:
            raise InvalidArgument(
                message(
                    where, "The contents do not fit",
                    expected=f"{own.dtype}{list(own.shape)}",
                    got=f"{given.dtype}{list(given.shape)}",
                )
            )  # fmt: skip
        if own.is_read_only if isinstance(own, DeviceArray) else not own.flags.writeable:
            raise InvalidArgument(message(where, "The memory is read-only"))
        if isinstance(given, np.ndarray) and not given.dtype.isnative:
            given = given.astype(own.dtype)
        return given

    def __repr__(self) -> str:
        held = self._array
        if isinstance(held, DeviceArray):
            return (
                f"<OrtValue {held.dtype}{list(held.shape)} on {held.kind.name}:{held.kind.number}>"
            )
        if isinstance(held, np.ndarray):
            return f"<OrtValue {held.dtype}{list(held.shape)} on cpu>"
        shape = list(held.dense_shape()) if isinstance(held, SparseTensor) else ""
        return f"<OrtValue {_type_text(held)}{shape} on cpu>"

    def _repr_html_(self) -> str:
        from sardonyx.api.notebook import value_html

        return value_html(self)

    def shape(self) -> list[int]:
        """The sizes of its axes."""
        held = self._array
        return held.dense_shape() if isinstance(held, SparseTensor) else list(self._tensor().shape)

    def data_type(self) -> str:
        """Its type in ONNX's words, such as `tensor(float)`."""
        return _type_text(self._array)

    def element_type(self) -> int:
        """ONNX's number of its element type."""
        held = self._array
        if isinstance(held, SparseTensor):
            return held.element_type()
        return dtype_of(self._tensor()).onnx_id

    def data_ptr(self) -> int:
        """The address of its first element."""
        held = self._tensor()
        if isinstance(held, DeviceArray):
            return held.address
        return int(held.__array_interface__["data"][0])

    def tensor_size_in_bytes(self) -> int:
        """How much memory it takes."""
        return int(self._tensor().nbytes)

    def device_name(self) -> str:
        """`cpu`, also for pinned memory, or `cuda`."""
        held = self._array
        if isinstance(held, SparseTensor):
            return held.device_name()
        return held.kind.name if isinstance(held, DeviceArray) else "cpu"

    def has_value(self) -> bool:
        """Whether there is anything: only an optional can be absent."""
        return self._array is not None

    def is_tensor(self) -> bool:
        """Whether it is a tensor."""
        return isinstance(self._array, (np.ndarray, DeviceArray))

    def is_sparse_tensor(self) -> bool:
        """Whether it is a sparse tensor."""
        return isinstance(self._array, SparseTensor)

    def is_tensor_sequence(self) -> bool:
        """Whether it is a sequence of tensors."""
        held = self._array
        return isinstance(held, list) and all(isinstance(x, np.ndarray) for x in held)


def _type_text(value: Any) -> str:
    """The type of a value in ONNX's words; of an empty sequence only what can be seen of it."""
    if isinstance(value, (np.ndarray, DeviceArray)):
        return dtype_of(value).type_text
    if isinstance(value, SparseTensor):
        return value.data_type()
    if isinstance(value, list):
        return f"seq({_type_text(value[0])})" if value else "seq()"
    if isinstance(value, dict):
        for key, item in value.items():
            inside = dtype_of(np.asarray(item)).type_text
            return f"map({dtype_of(np.asarray(key)).name},{inside})"
        return "map()"
    return "optional()"
