"""Constants: weights and folded values, decoded when somebody asks for them."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

import numpy as np

from sardonyx.base import dtypes
from sardonyx.base.errors import InvalidArgument, message
from sardonyx.base.hashing import blake2b

if TYPE_CHECKING:
    from sardonyx.base.dtypes import DType

Array = np.ndarray[Any, np.dtype[Any]]


#: Elements that are compared at once.
_AT_ONCE = 1 << 16


class Data(Protocol):
    """Where the elements of a constant are."""

    @property
    def is_borrowed(self) -> bool:
        """Whether the bytes are still in a file, or in memory that somebody else may change."""

    @property
    def is_present(self) -> bool:
        """Whether there are elements at all; files may be stripped of their weights."""

    def array(self, dtype: DType, shape: tuple[int, ...]) -> Array:
        """The elements, one per array item; need not be writable or aligned."""

    def read(self, dtype: DType, start: int, target: memoryview) -> bool:
        """Copy bytes of the elements, from byte `start` on; False where `array` must be asked."""

    def owned(self) -> Data:
        """The same elements in memory of our own."""


class Decoded:
    """Elements that are made all at once."""

    __slots__ = ()

    def read(self, dtype: DType, start: int, target: memoryview) -> bool:
        """No: parts cannot be had."""
        return False


class SparseParts(NamedTuple):
    """The elements of a constant that a file gives, all others being zero.

    Attributes:
        values: Those elements, (count,).
        places: Where each stands in the flat tensor, different and ascending.
    """

    values: Array
    places: Array


class ArrayData:
    """Elements held by a NumPy array."""

    __slots__ = ("_array",)
    is_borrowed = False
    is_present = True

    def __init__(self, array: Array) -> None:
        self._array = array

    def array(self, dtype: DType, shape: tuple[int, ...]) -> Array:
        """The array."""
        return self._array

    def read(self, dtype: DType, start: int, target: memoryview) -> bool:
        """Copy bytes of the array, unless they do not lie in a row or mean something else."""
        array = self._array
        if array.dtype != dtype.stored or array.dtype.hasobject or not array.flags.c_contiguous:
            return False
        target[:] = array.reshape(-1).view(np.uint8).data[start : start + len(target)]
        return True

    def owned(self) -> Data:
        """Itself."""
        return self


class Constant:
    """A tensor whose elements are known when the model is loaded. Its content never changes.

    Attributes:
        dtype: Element type.
        shape: Sizes; always plain integers.
        parts: Gives the elements that are not zero, where a file has only those.
        number: Which of the initializers of its file's outermost graph it is, if it is one.
        was_read: Whether somebody asked for elements, on which something may depend since then.
    """

    __slots__ = ("_data", "_digest", "dtype", "number", "parts", "shape", "was_read")

    def __init__(self, dtype: DType, shape: tuple[int, ...], data: Data) -> None:
        self.dtype = dtype
        self.shape = shape
        self._data = data
        self._digest: bytes | None = None
        self.parts: Callable[[], SparseParts] | None = None
        self.number: int | None = None
        self.was_read = False

    @classmethod
    def from_array(cls, array: object, dtype: DType | None = None) -> Constant:
        """A constant of the array's elements, which must not be changed afterwards.

        Args:
            array: A NumPy array, or what `np.asarray` takes.
            dtype: Element type; by default the array's. The array is converted to it.

        Raises:
            InvalidArgument: No element type corresponds to the array's dtype.
        """
        values = np.asarray(array)
        found = dtype or dtypes.from_numpy(values.dtype)
        if found is None:
            raise InvalidArgument(
                message("Constant", f"ONNX has no element type for NumPy's {values.dtype}")
            )
        values = np.asarray(values, dtype=found.numpy).view()
        values.flags.writeable = False
        return cls(found, values.shape, ArrayData(values))

    @property
    def element_count(self) -> int:
        """Number of elements."""
        return math.prod(self.shape)

    @property
    def size_bytes(self) -> int:
        """Bytes of the decoded elements; elements of less than a byte count as one byte."""
        return self.element_count * self.dtype.size_bytes

    @property
    def is_borrowed(self) -> bool:
        """Whether the elements are still read from a file, or from memory of somebody else."""
        return self._data.is_borrowed

    @property
    def has_data(self) -> bool:
        """Whether there are elements; False only in models loaded with `allow_missing_data`."""
        return self._data.is_present

    def array(self) -> Array:
        """The elements, as a read-only array of this shape.

        Big weights of a file are read anew each time. String elements are `str` objects, or `bytes`
        where they are not UTF-8.

        Raises:
            Fail: The file was changed since it was opened.
        """
        self.was_read = True
        values = self._data.array(self.dtype, self.shape)
        if not self._data.is_borrowed and not isinstance(self._data, ArrayData):
            self._data = ArrayData(values)
        values = values.view()
        values.flags.writeable = False
        return values

    def read(self, start: int, target: memoryview) -> bool:
        """Copy bytes of the elements, as `array` has them, from byte `start` on.

        Gives False, and copies nothing, where the elements have to be decoded: ask `array` then.

        Raises:
            Fail: The file was changed since it was opened.
        """
        self.was_read = True
        return self._data.read(self.dtype, start, target)

    def equal_element(self) -> Array | None:
        """One element as an array (1,), if all are equal to the last bit; None if they are not.

        Two elements are looked at first, and the constant counts as read if they are all equal:
        what a plan does not make use of may be something else in the next model.

        Raises:
            Fail: The file was changed since it was opened.
        """
        if self.dtype is dtypes.STRING or not (self.element_count and self.has_data):
            return None
        if self.parts is not None:
            return None  # an array of them may be far larger than the file
        was_read, width = self.was_read, self.dtype.size_bytes
        two = bytearray(min(2, self.element_count) * width)
        if self._data.read(self.dtype, 0, memoryview(two)) and two[:width] != two[-width:]:
            return None
        flat = np.ascontiguousarray(self.array()).reshape(-1)
        every = flat.view(np.uint8).reshape(self.element_count, -1)
        parts = range(0, self.element_count, _AT_ONCE)
        if all((every[k : k + _AT_ONCE] == every[0]).all() for k in parts):
            return flat[:1]
        self.was_read = was_read
        return None

    def digest(self) -> bytes:
        """16 bytes that identify element type, shape and content."""
        if self._digest is None:
            hasher = blake2b(f"{self.dtype.name}{self.shape}".encode(), digest_size=16)
            values = self.array()
            if self.dtype is dtypes.STRING:
                for item in values.reshape(-1):
                    data = item if isinstance(item, bytes) else str(item).encode("utf-8", "replace")
                    hasher.update(len(data).to_bytes(8, "little") + data)
            else:
                hasher.update(np.ascontiguousarray(values).reshape(-1).view(np.uint8).data)
            self._digest = hasher.digest()
        return self._digest

    def detach(self) -> None:
        """Copy the elements out of their file, or out of memory of somebody else.

        Raises:
            Fail: The file was changed since it was opened.
        """
        if self._data.is_borrowed:
            self._data = self._data.owned()

    def __repr__(self) -> str:
        sizes = ",".join(map(str, self.shape))
        if self.element_count > 8 or not self.has_data:
            return f"{self.dtype.name}[{sizes}]{{...}}"
        items = ", ".join(
            repr(x) if isinstance(x, str | bytes) else str(x) for x in self.array().reshape(-1)
        )
        return f"{self.dtype.name}[{sizes}]{{{items}}}"
