"""Tensors wherever they lie: what the interface and the engine need of memory that is not NumPy's.

NumPy arrays are tensors in memory of the processor. A provider with memory of its own has a class
of `DeviceArray`s, and `MemoryKind`s that make them.
"""

from __future__ import annotations

import ctypes
import math
from abc import abstractmethod
from collections.abc import Sequence
from dataclasses import field
from typing import Any, Protocol, TypeAlias

import numpy as np

from sardonyx.base import errors
from sardonyx.base.errors import InvalidArgument, message
from sardonyx.base.handlers import pass_on
from sardonyx.base.records import dataclass

Array: TypeAlias = np.ndarray[Any, np.dtype[Any]]
#: A tensor in memory of the processor, or of a device.
Tensor: TypeAlias = "Array | DeviceArray"


class DeviceArray:
    """A dense array in memory that the processor does not work in.

    Providers derive from it. It has no metaclass: runs ask often whether something is one.

    Attributes:
        shape, dtype, nbytes: As NumPy's.
        address: Of the first element.
        is_read_only: Whether nobody may write to it.
        is_copy: Whether it is a dense copy of another library's array, made when that was given.
    """

    __slots__ = ("address", "dtype", "is_copy", "is_read_only", "nbytes", "shape")

    def __init__(
        self,
        shape: tuple[int, ...],
        dtype: np.dtype[Any],
        address: int,
        is_read_only: bool = False,
        nbytes: int | None = None,
    ) -> None:
        self.shape, self.dtype, self.address = shape, dtype, address
        self.nbytes = size_of(shape, dtype) if nbytes is None else nbytes
        self.is_read_only, self.is_copy = is_read_only, False

    @property
    def ndim(self) -> int:
        """The number of axes."""
        return len(self.shape)

    @property
    def size(self) -> int:
        """The number of elements."""
        return math.prod(self.shape)

    @property
    def extent(self) -> tuple[int, int]:
        """The addresses that it lies between now. Asking for `address` may move what grows."""
        return self.address, self.address + self.nbytes

    def __deepcopy__(self, memo: object) -> Any:
        return self.kind.copy_of(self)

    def __reduce__(self) -> Any:
        what = "An array in memory of a device cannot be pickled"
        raise errors.WrongType(message("pickle", what, do="Pickle its numpy()"))

    @property
    @abstractmethod
    def kind(self) -> MemoryKind:
        """Where it lies."""

    @abstractmethod
    def numpy(self) -> Array:
        """A copy in memory of the processor, when all work on it so far has happened."""

    @abstractmethod
    def write(self, source: Tensor, stream: Any = None) -> None:
        """Copy a tensor of the same size in bytes to this memory, in a stream if there is one."""

    @abstractmethod
    def read_to(self, target: Array, stream: Any = None) -> None:
        """Copy this memory to an array of the processor with as many elements.

        With a stream nobody waits for the copy if the device reaches the array by itself, which is
        complete when the stream has come so far.
        """

    @abstractmethod
    def as_shape(self, shape: tuple[int, ...], dtype: np.dtype[Any] | None = None) -> DeviceArray:
        """The same memory, or the first part of it, as an array of another shape or type."""

    @abstractmethod
    def __dlpack__(self, **options: Any) -> Any:
        """See https://data-apis.org/array-api/latest/API_specification."""

    @abstractmethod
    def __dlpack_device__(self) -> tuple[int, int]:
        """DLPack's type of the device, and its number."""


class MemoryKind(Protocol):
    """Memory that arrays can be made in.

    Attributes:
        name: What onnxruntime calls the device: `cpu` or `cuda`.
        memory_name: What it calls the memory: `Cpu`, `Cuda` or `CudaPinned`.
        number: Of the device.
        is_host: Whether arrays in it are NumPy's.
    """

    name: str
    memory_name: str
    number: int
    is_host: bool

    def empty(self, shape: tuple[int, ...], dtype: np.dtype[Any]) -> Tensor:
        """A new array, contents undefined.

        Raises:
            InvalidArgument: There is no such shape, or strings cannot lie there.
            OutOfMemory: There is not so much.
        """

    def copy_of(self, tensor: Tensor) -> Tensor:
        """A copy of a tensor that lies anywhere."""

    def at(
        self, address: int, shape: tuple[int, ...], dtype: np.dtype[Any], owner: Any = None
    ) -> Tensor:
        """An array on memory that `owner`, or else the caller, keeps alive.

        Raises:
            InvalidArgument: It is no memory of this kind, or too small, as far as that is known;
                or the type is that of strings.
        """

    def synchronize(self) -> None:
        """Wait for all work on memory of this kind."""


@dataclass(slots=True)
class OutputPlacement:
    """Where a run puts its results, and in which stream it works.

    Attributes:
        targets: For each output: a tensor to write to, a kind of memory for a new one, or None for
            a NumPy array.
        stream: A stream of the device, of any library; None for one of our own.
        waits: Whether the run has happened when the call returns. If not, what targets hold is
            known to those who wait for the stream.
        written: Feeds that the run writes to.
        is_captured: Whether the stream's work goes to a graph of the caller's.
    """

    targets: Sequence[Tensor | MemoryKind | None] = field(default_factory=list)
    stream: Any = None
    waits: bool = True
    written: Sequence[Tensor] = ()
    is_captured: bool = False


def is_of_host(target: Tensor | MemoryKind | None) -> bool:
    """Whether what is wanted there is an array of NumPy's."""
    return target is None or isinstance(target, np.ndarray) or getattr(target, "is_host", False)


def size_of(shape: tuple[int, ...], dtype: np.dtype[Any]) -> int:
    """How many bytes an array takes.

    Raises:
        InvalidArgument: An axis has a negative size.
    """
    count = 1
    for size in shape:
        if size < 0:
            raise InvalidArgument(message("OrtValue", f"The shape {list(shape)} is none"))
        count *= size
    return count * int(dtype.itemsize)


def refuse_strings(dtype: np.dtype[Any]) -> None:
    """Refuse memory for elements that are objects of Python: none but NumPy makes and frees them.

    Raises:
        InvalidArgument: The type is that of strings.
    """
    if dtype.kind == "O":
        what = "Strings lie in memory of the host alone"
        raise InvalidArgument(message("OrtValue", what, do="Use an array of NumPy"))


def to_host(tensor: Tensor) -> Array:
    """A tensor as a NumPy array: itself, or a copy of what lies on a device."""
    return tensor.numpy() if isinstance(tensor, DeviceArray) else tensor


def fitted(name: str, target: Tensor, shape: tuple[int, ...], dtype: np.dtype[Any]) -> Tensor:
    """Memory that is bound to an output, as an array of the output's shape.

    It may be larger than the output, see `_holds`: then the first part of it is used.

    Raises:
        InvalidArgument: It is too small, of another shape or type, read-only or not contiguous.
    """
    read_only = (
        target.is_read_only if isinstance(target, DeviceArray) else not target.flags.writeable
    )
    if target.dtype == dtype and not read_only:
        if target.shape == shape:
            return target
        if _holds(target.shape, shape):
            if isinstance(target, DeviceArray):
                return target.as_shape(shape)
            if target.flags.c_contiguous:
                return target.reshape(-1)[: math.prod(shape)].reshape(shape)
    raise InvalidArgument(
        message(
            f"output {name}", "The bound memory does not fit",
            expected=f"{dtype}{list(shape)}, writable; only the first axis may be larger",
            got=f"{target.dtype}{list(target.shape)}" + (", read-only" if read_only else ""),
        )
    )  # fmt: skip


def _holds(whole: tuple[int, ...], shape: tuple[int, ...]) -> bool:
    """Whether elements of a shape lie in the first part of a larger array as in its first rows.

    They do if nothing but the first axis (after such of size 1) is larger. An array of one axis is
    taken as memory without a shape.
    """
    if 0 in shape or len(whole) == 1:
        return math.prod(shape) <= math.prod(whole)
    if len(whole) != len(shape):
        return False
    axis = next((k for k, size in enumerate(whole) if size != 1), 0)
    before = whole[:axis] == shape[:axis]
    return before and whole[axis] >= shape[axis] and whole[axis + 1 :] == shape[axis + 1 :]


def place(name: str, target: Tensor | MemoryKind | None, result: Any) -> Any:
    """A result of the processor, where it is wanted; what is no tensor stays there.

    Raises:
        InvalidArgument: Bound memory does not fit.
    """
    if target is None or target is HOST:
        return result
    if not isinstance(result, np.ndarray):
        what = "A value that is no tensor has no memory to be put in"
        raise InvalidArgument(message(f"output {name}", what, got=type(result).__name__))
    if isinstance(target, (np.ndarray, DeviceArray)):
        held = fitted(name, target, result.shape, result.dtype)
        write(held, result)
        return held
    return target.copy_of(result)


def again(name: str, target: Tensor | MemoryKind | None, result: Any) -> Any:
    """A result that stands somewhere already, where it is wanted once more.

    Raises:
        InvalidArgument: Bound memory does not fit.
    """
    if not isinstance(result, (np.ndarray, DeviceArray)):
        return result
    if target is None:
        return to_host(result).copy()
    if isinstance(target, (np.ndarray, DeviceArray)):
        held = fitted(name, target, result.shape, result.dtype)
        write(held, result)
        return held
    return target.copy_of(result)


def write(target: Tensor, source: Tensor, stream: Any = None) -> None:
    """Copy a tensor to memory with as many elements of its type, each wherever it lies.

    Args:
        target, source: Elements are in the order of their indices, however they lie.
        stream: See `DeviceArray.write` and `read_to`; arrays of the processor need none.
    """
    if isinstance(target, DeviceArray):
        target.write(source, stream)
    elif isinstance(source, DeviceArray):
        source.read_to(target, stream)
    else:
        target[...] = source.reshape(target.shape)


class _Host:
    """Memory of the processor."""

    name, memory_name, number, is_host = "cpu", "Cpu", 0, True

    def empty(self, shape: tuple[int, ...], dtype: np.dtype[Any]) -> Tensor:
        return new_array(shape, dtype)

    def copy_of(self, tensor: Tensor) -> Tensor:
        return to_host(tensor) if isinstance(tensor, DeviceArray) else tensor.copy()

    def at(
        self, address: int, shape: tuple[int, ...], dtype: np.dtype[Any], owner: Any = None
    ) -> Tensor:
        return array_at(address, shape, dtype, owner)

    def synchronize(self) -> None:
        """The processor's work has happened when a call returns."""


HOST: MemoryKind = _Host()


def new_array(shape: tuple[int, ...], dtype: np.dtype[Any]) -> Array:
    """A new array of NumPy's, contents undefined.

    Raises:
        InvalidArgument: The shape is none.
        OutOfMemory: There is not so much memory.
    """
    size_bytes = size_of(shape, dtype)
    try:
        if size_bytes >> 62:
            raise MemoryError
        return np.empty(shape, dtype)
    except MemoryError as error:
        pass_on(error)
        what = f"There are no {size_bytes} bytes for {dtype}{list(shape)}"
        raise errors.OutOfMemory(message("OrtValue", what)) from None


def array_at(address: int, shape: tuple[int, ...], dtype: np.dtype[Any], kept: Any = None) -> Array:
    """An array on memory of the processor at an address; `kept` lives as long as it does.

    Raises:
        InvalidArgument: The address is zero, or the type is that of strings.
    """
    refuse_strings(dtype)
    size_bytes = size_of(shape, dtype)
    if not size_bytes:
        return np.empty(shape, dtype)
    if not address:
        raise InvalidArgument(
            message("OrtValue", "The address is null", expected=f"that of {size_bytes} bytes")
        )
    memory: Any = (ctypes.c_char * size_bytes).from_address(address)
    memory.kept = kept
    return np.ndarray(shape, dtype, memory)
