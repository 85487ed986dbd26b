"""Memory of a device shared with other libraries: DLPack 1.x and `__cuda_array_interface__`.

https://dmlc.github.io/dlpack/latest/c_api.html
https://nvidia.github.io/numba-cuda/user/cuda_array_interface.html
"""

from __future__ import annotations

import ctypes
import struct
import sys
from contextlib import AbstractContextManager, nullcontext
from functools import cache
from typing import TYPE_CHECKING, Any

import numpy as np

from sardonyx.base import dtypes
from sardonyx.base.errors import InvalidArgument, WrongType, message
from sardonyx.cuda.driver.addresses import check_memory, device_number
from sardonyx.cuda.driver.device import device, open_device
from sardonyx.cuda.driver.stream import Stream
from sardonyx.cuda.interop.lending import LENT, letting_go
from sardonyx.runtime.storage import size_of

if TYPE_CHECKING:
    from sardonyx.cuda.memory.values import CudaArray

#: DLDeviceType.
HOST, CUDA, PINNED, MANAGED = 1, 2, 3, 13
_LEGACY = 1
_READ_ONLY = 1
_VERSION = (1, 0)

#: Libraries whose `__dlpack__` orders streams, not arrays.
_BY_STREAM = frozenset(("torch", "cupy"))
#: DLDataTypeCode of NumPy's kinds, and of floating-point types beyond IEEE's.
_KINDS = {"i": 0, "u": 1, "f": 2, "c": 5, "b": 6}
_FLOATS = {
    "bfloat16": 4, "float8e4m3fn": 10, "float8e4m3fnuz": 11, "float8e5m2": 12,
    "float8e5m2fnuz": 13, "float8e8m0": 14,
}  # fmt: skip
_NAMES = {code: name for name, code in _FLOATS.items()}
_CHARACTERS = {code: kind for kind, code in _KINDS.items()}


class _Tensor(ctypes.Structure):
    _fields_ = (
        ("data", ctypes.c_void_p),
        ("device_type", ctypes.c_int32),
        ("device_id", ctypes.c_int32),
        ("ndim", ctypes.c_int32),
        ("code", ctypes.c_uint8),
        ("bits", ctypes.c_uint8),
        ("lanes", ctypes.c_uint16),
        ("shape", ctypes.POINTER(ctypes.c_int64)),
        ("strides", ctypes.POINTER(ctypes.c_int64)),
        ("byte_offset", ctypes.c_uint64),
    )


#: The fields of a tensor, and, in the second form of DLPack, what comes before it: the flags last.
_FIELDS = struct.Struct("QiiiBBHQQQ")
_FLAGS = struct.Struct("24xQ")
#: All that comes before it: version, context, deleter and flags; and what is behind the first form.
_HEAD, _BEHIND = struct.Struct("IIQQQ"), struct.Struct("QQ")

_Deleter = ctypes.CFUNCTYPE(None, ctypes.c_void_p)


class _Managed(ctypes.Structure):
    _fields_ = (("tensor", _Tensor), ("context", ctypes.c_void_p), ("deleter", ctypes.c_void_p))


class _Versioned(ctypes.Structure):
    _fields_ = (
        ("major", ctypes.c_uint32),
        ("minor", ctypes.c_uint32),
        ("context", ctypes.c_void_p),
        ("deleter", ctypes.c_void_p),
        ("flags", ctypes.c_uint64),
        ("tensor", _Tensor),
    )


_FORMS: dict[bytes, type[Any]] = {b"dltensor": _Managed, b"dltensor_versioned": _Versioned}
_VERSIONED = b"dltensor_versioned"
_USED = {b"dltensor": b"used_dltensor", b"dltensor_versioned": b"used_dltensor_versioned"}

_api = ctypes.pythonapi
_new_capsule = ctypes.PYFUNCTYPE(
    ctypes.py_object, ctypes.c_void_p, ctypes.c_char_p, ctypes.c_void_p
)(("PyCapsule_New", _api))
_rename = ctypes.PYFUNCTYPE(ctypes.c_int, ctypes.py_object, ctypes.c_char_p)(
    ("PyCapsule_SetName", _api)
)
_is_valid = ctypes.PYFUNCTYPE(ctypes.c_int, ctypes.py_object, ctypes.c_char_p)(
    ("PyCapsule_IsValid", _api)
)
_pointer_of = ctypes.PYFUNCTYPE(ctypes.c_void_p, ctypes.py_object, ctypes.c_char_p)(
    ("PyCapsule_GetPointer", _api)
)
_set_context = ctypes.PYFUNCTYPE(ctypes.c_int, ctypes.py_object, ctypes.c_void_p)(
    ("PyCapsule_SetContext", _api)
)

# -- to others ------------------------------------------------------------------------------------


def to_capsule(
    array: CudaArray,
    *,
    stream: int | None = None,
    max_version: tuple[int, int] | None = None,
    dl_device: tuple[int, int] | None = None,
    copy: bool | None = None,
) -> Any:
    """An array as a DLPack capsule; arguments are those of `__dlpack__`.

    Raises:
        BufferError: The memory cannot be shared in this way.
        InvalidArgument: The stream is none of CUDA's, or 0, which the standard leaves out.
    """
    if dl_device is not None and tuple(dl_device) != array.__dlpack_device__():
        if dl_device[0] != HOST or copy is False:
            raise BufferError(f"the array cannot be brought to the device {dl_device} of DLPack")
        return array.numpy().__dlpack__(max_version=max_version)
    if stream is not None:
        _check_stream(stream)
    is_versioned = max_version is not None and max_version[0] >= 1
    if array.is_read_only and not is_versioned:
        raise BufferError("read-only memory can be shared through DLPack 1.0 or later alone")
    if copy:
        array = array.kind.copy_of(array)  # type: ignore[assignment]  # of the same kind
    code, bits = _code_of(array.dtype)
    going = letting_go()
    if stream != -1:
        _let_wait(array, _LEGACY if stream is None else stream)
    shape, rank = array.shape, len(array.shape)
    before, behind = (_FLAGS.size, 0) if is_versioned else (0, _BEHIND.size)
    size_bytes = before + _FIELDS.size + behind
    record = ctypes.create_string_buffer(size_bytes + 16 * rank)
    address = ctypes.addressof(record)
    if is_versioned:
        flags = _READ_ONLY if array.is_read_only else 0
        _HEAD.pack_into(record, 0, *_VERSION, going.manager, going.deleters[1], flags)
    else:
        _BEHIND.pack_into(record, _FIELDS.size, going.manager, going.deleters[0])
    sizes = address + size_bytes
    _FIELDS.pack_into(
        record, before, array.address, CUDA, array.device.number, rank, code, bits, 1,
        sizes, sizes + 8 * rank, 0,
    )  # fmt: skip
    struct.pack_into(f"{2 * rank}q", record, size_bytes, *shape, *_dense_strides(shape))
    LENT[address] = (record, array)
    if array.block is not None:
        array.block.lent |= {_LEGACY if stream is None else max(stream, -1)}
    name = _VERSIONED if is_versioned else b"dltensor"
    capsule = _new_capsule(address, name, going.destructor)
    _set_context(capsule, going.context)
    return capsule


def to_interface(array: CudaArray) -> dict[str, Any]:
    """An array's `__cuda_array_interface__`.

    Raises:
        AttributeError: NumPy has no such type, so there is no text for it.
    """
    if array.dtype.kind not in _KINDS:
        raise AttributeError(f"{array.dtype} has no type string: use DLPack")
    found = {
        "shape": array.shape, "typestr": array.dtype.str, "version": 3, "strides": None,
        "data": (array.address, array.is_read_only),
    }  # fmt: skip
    if array.block is not None:
        array.block.lent |= {-1}
    written = array.order.unfinished()
    if written is not None:
        found["stream"] = written[0].handle or _LEGACY
    return found


def _check_stream(stream: Any) -> None:
    """See https://data-apis.org/array-api/latest/API_specification, `array.__dlpack__`."""
    expected = "the handle of a stream; 1 or None for the default one, -1 for no order"
    if not isinstance(stream, int) or isinstance(stream, bool):
        what = "The stream is no number"
        raise WrongType(message("__dlpack__", what, expected=expected, got=repr(stream)))
    if stream == 0 or stream < -1:
        what = "There is no such stream"
        raise InvalidArgument(message("__dlpack__", what, expected=expected, got=repr(stream)))


def _let_wait(array: CudaArray, handle: int) -> None:
    """Let a stream of another library wait for what writes to an array."""
    written = array.order.unfinished()
    if written is not None:
        with array.device.entered():
            Stream(array.device, handle).wait_for(written[1])  # theirs: it may be any device's


def _code_of(dtype: np.dtype[Any]) -> tuple[int, int]:
    found = dtypes.from_numpy(dtype)
    code = _FLOATS.get(found.name if found is not None else "", _KINDS.get(dtype.kind))
    if code is None:
        raise BufferError(f"DLPack has no type for {dtype}")
    return code, 8 * dtype.itemsize


def _dense_strides(shape: tuple[int, ...]) -> list[int]:
    strides, step = [], 1
    for size in reversed(shape):
        strides.append(step)
        step *= size
    return strides[::-1]


# -- from others ----------------------------------------------------------------------------------


class _Taken:
    """What a capsule held; given back to its library when nothing refers to it."""

    def __init__(self, capsule: Any) -> None:
        self._name, self._address = _found(capsule)
        self._deleter = _FORMS[self._name].from_address(self._address).deleter
        _rename(capsule, _USED[self._name])

    def __del__(self) -> None:
        if getattr(self, "_deleter", None) and sys is not None:
            _Deleter(self._deleter)(self._address)


def _found(capsule: Any) -> tuple[bytes, int]:
    """The name of what a capsule holds, and its address."""
    for name in _FORMS:
        if _is_valid(capsule, name):
            return name, int(_pointer_of(capsule, name) or 0)
    raise BufferError("the capsule is none of DLPack, or was used before")


def from_producer(value: Any) -> CudaArray:
    """An array on the memory of anything with `__dlpack__` or `__cuda_array_interface__`.

    What is not dense is copied.

    Raises:
        BufferError, InvalidArgument: The memory cannot be shared.
    """
    from sardonyx.cuda.interop.torch_tensors import note_type

    if type(value).__name__ == "PyCapsule":
        return _from_capsule(value, None)
    if hasattr(value, "__dlpack__"):
        with _entered_for(value):
            capsule = _capsule_of(value, -1)
        # A capsule that nobody takes gives its memory back by itself.
        found = _from_capsule(capsule, value)
        note_type(value, found.dtype)
        return found
    return _from_interface(value)


def _entered_for(value: Any) -> AbstractContextManager[None]:
    """Enters the device of an array of another library: torch gives a capsule on no other one."""
    ask = getattr(value, "__dlpack_device__", None)
    kind, number = ask() if ask is not None else (HOST, 0)
    return device(int(number)).entered() if kind in (CUDA, MANAGED) else nullcontext()


def _capsule_of(value: Any, stream: int) -> Any:
    try:
        return value.__dlpack__(stream=stream, max_version=_VERSION)
    except TypeError:  # from before DLPack 1.0
        return value.__dlpack__(stream=stream)


def wait_for_producer(value: Any, stream: Stream, waited: set[str] | None = None) -> None:
    """Let a stream wait for what the library of `value` has under way on it.

    Args:
        value: An array of that library.
        stream: Where.
        waited: Names of libraries that need not be asked again: they let a stream wait for all
            that their own current stream has under way, whatever array they are asked for.
    """
    library = type(value).__module__.partition(".")[0]
    if waited is not None and library in _BY_STREAM:
        if library in waited:
            return
        waited.add(library)
    if library == "torch":
        from sardonyx.cuda.interop.torch_tensors import let_wait

        let_wait(stream)
    elif hasattr(value, "__dlpack__"):
        _capsule_of(value, stream.handle or _LEGACY)
    else:
        _wait_for_interface(value.__cuda_array_interface__, stream)


def _from_capsule(capsule: Any, producer: Any) -> CudaArray:
    from sardonyx.cuda.memory.values import CudaArray

    name, address = _found(capsule)
    read_only = False
    if name == _VERSIONED:
        flags, start = _FLAGS.unpack(ctypes.string_at(address, _FLAGS.size))[0], _FLAGS.size
        read_only = bool(flags & _READ_ONLY)
    else:
        start = 0
    fields = _FIELDS.unpack(ctypes.string_at(address + start, _FIELDS.size))
    data, kind, number, rank, code, bits, lanes, sizes, steps, offset = fields
    if kind not in (CUDA, MANAGED):
        raise BufferError(f"it belongs to the device {kind} of DLPack")
    shape = _longs(sizes, rank)
    if not data and 0 not in shape:
        raise BufferError("its address is null, though it has elements")
    array = CudaArray(
        device(number), shape, _dtype_of(code, bits, lanes), data + offset,
        owner=_Taken(capsule) if producer is None else capsule, producer=producer,
        is_read_only=read_only,
    )  # fmt: skip
    return _dense(array, _longs(steps, rank) if steps else None)


def _longs(address: int, count: int) -> tuple[int, ...]:
    return struct.unpack(f"{count}q", ctypes.string_at(address, 8 * count)) if count else ()


@cache
def _dtype_of(code: int, bits: int, lanes: int) -> np.dtype[Any]:
    if lanes == 1 and code in _NAMES:
        return dtypes.BY_NAME[_NAMES[code]].numpy
    kind = _CHARACTERS.get(code)
    if lanes != 1 or kind is None or bits % 8:
        raise BufferError(f"there is no type for DLPack's ({code}, {bits}, {lanes})")
    return np.dtype(np.bool_ if kind == "b" else f"{kind}{bits // 8}")


def _from_interface(value: Any) -> CudaArray:
    from sardonyx.cuda.memory.values import CudaArray

    given = value.__cuda_array_interface__
    if given.get("mask") is not None:
        raise BufferError("masked arrays are not supported")
    address, is_read_only = given["data"]
    dtype, shape = np.dtype(given["typestr"]), tuple(given["shape"])
    strides, size_bytes = given.get("strides"), size_of(shape, dtype)
    first, last = 0, size_bytes
    if size_bytes and strides is not None:
        reaches = [step * (size - 1) for step, size in zip(strides, shape, strict=True)]
        first = sum(x for x in reaches if x < 0)
        last = sum(x for x in reaches if x > 0) + dtype.itemsize
    where = open_device()
    if address or size_bytes:
        with where.entered():
            where = device(device_number(address))
        check_memory(address + first, last - first, where, is_repeated=True)
    array = CudaArray(
        where, shape, dtype, address, owner=value, producer=value, is_read_only=bool(is_read_only)
    )
    if strides is None:
        return array
    if any(step % dtype.itemsize for step in strides):
        raise BufferError("strides that are no multiples of the element's size")
    return _dense(array, tuple(step // dtype.itemsize for step in strides))


def _wait_for_interface(given: dict[str, Any], stream: Stream) -> None:
    handle = given.get("stream")
    if handle is not None:
        stream.wait_for(stream.device.callers_stream(handle).record())


def _dense(array: CudaArray, strides: tuple[int, ...] | None) -> CudaArray:
    """The array itself, or a dense copy of what lies in steps."""
    pairs = zip(array.shape, strides or (), _dense_strides(array.shape), strict=False)
    if 0 in array.shape or all(size == 1 or step == wanted for size, step, wanted in pairs):
        return array
    from sardonyx.cuda.memory.gather import dense_copy

    assert strides is not None  # noqa: S101 - else it is dense
    return dense_copy(array, strides)
