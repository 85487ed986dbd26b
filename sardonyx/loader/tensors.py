"""Tensors of the file as constants: sizes checked first, elements decoded when asked for."""

from __future__ import annotations

import math
import sys
from typing import Any

import numpy as np

from sardonyx.base import dtypes
from sardonyx.base.dtypes import DType
from sardonyx.base.errors import InvalidGraph, InvalidSparseTensor, NoSuchFile, message
from sardonyx.host.sparse_checks import flat_places
from sardonyx.ir.constant import Array, ArrayData, Constant, Data, Decoded, SparseParts
from sardonyx.loader.external import ExternalFiles, UnknownFolder
from sardonyx.loader.onnx_format import EXTERNAL
from sardonyx.loader.source import Source
from sardonyx.loader.wire import Span, WireRecord

_ELEMENTS_LIMIT = 1 << 62
#: A sparse tensor says in a few bytes how much memory to fill with zeros.
_DENSE_LIMIT_BYTES = 1 << 34
#: Element type -> the field that holds its elements where there are no raw bytes.
_TYPED_FIELDS = {
    "float": "float_data",
    "complex64": "float_data",
    "double": "double_data",
    "complex128": "double_data",
    "int64": "int64_data",
    "uint32": "uint64_data",
    "uint64": "uint64_data",
}


class RawData:
    """Raw little-endian elements in a source."""

    is_present = True

    def __init__(self, source: Source, offset: int, size: int) -> None:
        self._source = source
        self._offset = offset
        self._size = size

    @property
    def is_borrowed(self) -> bool:
        """Whether the bytes may change or go while they are used."""
        return not self._source.is_owned

    def array(self, dtype: DType, shape: tuple[int, ...]) -> Array:
        """A view of the source, or a decoded array where elements share bytes."""
        return _from_raw(self._source.view(self._offset, self._size), dtype, shape)

    def read(self, dtype: DType, start: int, target: memoryview) -> bool:
        """Copy bytes as they are, unless elements share bytes or may be no such elements."""
        if dtype.bits < 8 or dtype.kind == "b" or sys.byteorder != "little":
            return False
        self._source.read_into(self._offset + start, target)
        return True

    def owned(self) -> Data:
        """The same bytes, copied."""
        return RawData(Source(bytes(self._source.copy(self._offset, self._size))), 0, self._size)


class TypedData(Decoded):
    """Elements in the fields that hold one number each."""

    is_present = True
    is_borrowed = False

    def __init__(self, field: str, chunks: list[bytes]) -> None:
        self._field = field
        self._chunks = chunks

    def array(self, dtype: DType, shape: tuple[int, ...]) -> Array:
        """The elements, decoded."""
        payload = b"".join(self._chunks)
        values: Array
        if self._field in ("float_data", "double_data"):
            return np.frombuffer(payload, dtype.numpy).reshape(shape)
        values = _varints(payload)
        if self._field == "int32_data" and dtype is not dtypes.INT32:
            if 8 % dtype.bits == 0 and dtype.bits < 8:
                return _from_raw(values.astype(np.uint8).data, dtype, shape)
            if dtype.kind == "f":
                # The bits of a narrow float, as a number.
                kept = values & ((1 << dtype.bits) - 1)
                bits: Array = kept.astype(np.uint16 if dtype.bits == 16 else np.uint8)
                return bits.view(dtype.numpy).reshape(shape)
            if dtype.kind == "b":
                values = values != 0
        return values.astype(dtype.numpy).reshape(shape)

    def owned(self) -> Data:
        """Itself."""
        return self


class MissingData(Decoded):
    """The elements of a tensor that was stripped of them."""

    is_present = False
    is_borrowed = False

    def __init__(self, name: str) -> None:
        self._name = name

    def array(self, dtype: DType, shape: tuple[int, ...]) -> Array:
        """Refused."""
        raise InvalidGraph(message(f"tensor {self._name}", "The file holds no data for it"))

    def owned(self) -> Data:
        """Itself."""
        return self


class TensorReader:
    """Makes constants of the tensors of one model."""

    def __init__(
        self, source: Source, external: ExternalFiles, *, allow_missing_data: bool
    ) -> None:
        self._source = source
        self._external = external
        self._allow_missing_data = allow_missing_data
        #: Whether contents of others than numbered initializers are in other files.
        self.has_hidden_data = False

    def constant(self, tensor: WireRecord, where: str = "", number: int | None = None) -> Constant:
        """The constant of a `TensorProto`.

        Args:
            tensor: The message.
            where: What errors call it if it has no name.
            number: Which of the initializers of the outermost graph it is, if it is one.

        Raises:
            InvalidGraph: Sizes, type and data do not agree.
            NoSuchFile: The file with its data is missing.
        """
        if number is None and tensor.data_location == EXTERNAL:
            self.has_hidden_data = True
        found = self._constant(tensor, where)
        found.number = number
        return found

    def _constant(self, tensor: WireRecord, where: str) -> Constant:
        where = f"tensor {tensor.name or where}"
        dtype = dtypes.BY_ONNX_ID.get(tensor.data_type)
        if dtype is None:
            raise InvalidGraph(message(where, f"There is no element type {tensor.data_type}"))
        shape = checked_shape(tensor.dims, where)
        count = math.prod(shape)
        if tensor.has("segment"):
            raise InvalidGraph(message(where, "Tensors in segments are not supported"))
        if tensor.data_location == EXTERNAL:
            if dtype is dtypes.STRING:
                raise InvalidGraph(message(where, "Strings cannot be in another file"))
            try:
                file, offset, size = self._external.locate(tensor, where)
            except (NoSuchFile, UnknownFolder):
                if not self._allow_missing_data:
                    raise
                return Constant(dtype, shape, MissingData(tensor.name))
            expected = packed_size(dtype, count)
            if size is not None and size != expected:
                raise InvalidGraph(_size_text(where, dtype, shape, expected, size))
            ExternalFiles.check_inside(file, offset, expected, where)
            return Constant(dtype, shape, RawData(file, offset, expected))
        if dtype is dtypes.STRING:
            return Constant(dtype, shape, _string_data(tensor, shape, where))
        if tensor.has("raw_data"):
            raw: Span | bytes = tensor.raw_data
            size = raw.size if isinstance(raw, Span) else len(raw)
            if size != packed_size(dtype, count):
                expected = packed_size(dtype, count)
                raise InvalidGraph(_size_text(where, dtype, shape, expected, size))
            if isinstance(raw, Span):
                return Constant(dtype, shape, RawData(self._source, raw.offset, raw.size))
            return Constant(dtype, shape, RawData(Source(raw), 0, size))
        field = _TYPED_FIELDS.get(dtype.name, "int32_data")
        chunks = list(getattr(tensor, field))
        if not chunks and count and self._allow_missing_data:
            return Constant(dtype, shape, MissingData(tensor.name))
        found, expected = _typed_count(field, chunks), count
        if dtype.kind == "c":
            expected *= 2
        elif dtype.bits in (2, 4):  # codes of 6 bits lie one in each number
            expected = packed_size(dtype, count)
        if found != expected:
            raise InvalidGraph(
                message(
                    where,
                    f"The shape {list(shape)} of {dtype.name} does not fit the data in {field}",
                    expected=f"{expected} numbers",
                    got=str(found),
                )
            )
        return Constant(dtype, shape, TypedData(field, chunks))

    def dense(self, sparse: WireRecord, where: str) -> tuple[str, Constant]:
        """The name and the constant of a `SparseTensorProto`, dense where it is asked for elements.

        Raises:
            InvalidGraph: Sizes do not agree, an index is outside, or two are equal.
        """
        if sparse.values is None or sparse.indices is None:
            raise InvalidGraph(message(where, "A sparse tensor needs values and indices"))
        name = sparse.values.name
        where = f"sparse tensor {name or where}"
        values = self.constant(sparse.values, where)
        indices = self.constant(sparse.indices, where)
        shape = checked_shape(sparse.dims, where)
        count = values.element_count
        if len(values.shape) != 1 or indices.dtype is not dtypes.INT64:
            raise InvalidGraph(message(where, "It needs a list of values and indices of int64"))
        if indices.shape not in ((count,), (count, len(shape))):
            raise InvalidGraph(
                message(
                    where,
                    "The shape of the indices does not fit",
                    expected=f"[{count}] or [{count},{len(shape)}]",
                    got=str(list(indices.shape)),
                )
            )
        try:
            places = flat_places(indices.array(), shape)
        except InvalidSparseTensor as error:
            raise InvalidGraph(f"[{where}] {error}") from None
        data = SparseData(values, places, where)
        found = Constant(values.dtype, shape, data)
        found.parts = data.parts
        return name, found


class SparseData(Decoded):
    """Elements given by their places; all others are zero."""

    is_present = True

    def __init__(self, values: Constant, places: Array, where: str) -> None:
        self._values, self._where = values, where
        self._places = places.copy()

    @property
    def is_borrowed(self) -> bool:
        """Whether the values are still in a file."""
        return self._values.is_borrowed

    def array(self, dtype: DType, shape: tuple[int, ...]) -> Array:
        """The dense array.

        Raises:
            InvalidGraph: It is too large.
        """
        if math.prod(shape) * dtype.size_bytes > _DENSE_LIMIT_BYTES:
            what = f"The shape {list(shape)} is too large when dense"
            raise InvalidGraph(message(self._where, what))
        dense = (
            np.full(shape, "", object) if dtype is dtypes.STRING else np.zeros(shape, dtype.numpy)
        )
        dense.reshape(-1)[self._places] = self._values.array()
        return dense

    def parts(self) -> SparseParts:
        """The elements that are not zero, in the order of their places."""
        values = self._values.array()
        order = np.argsort(self._places, kind="stable")
        order = order[values[order] != ("" if self._values.dtype is dtypes.STRING else 0)]
        return SparseParts(values[order], self._places[order])

    def owned(self) -> Data:
        """The same, its values copied."""
        self._values.detach()
        return self


def checked_shape(dims: Any, where: str) -> tuple[int, ...]:
    """The sizes of a tensor.

    Raises:
        InvalidGraph: One is negative, or there are more elements than can be counted.
    """
    if any(size < 0 for size in dims):
        raise InvalidGraph(message(where, f"The shape {list(dims)} has a negative size"))
    if math.prod(size for size in dims if size) > _ELEMENTS_LIMIT:
        raise InvalidGraph(message(where, f"The shape {list(dims)} has too many elements"))
    if len(dims) > 64:
        raise InvalidGraph(message(where, f"The rank {len(dims)} is above 64"))
    return tuple(dims)


def packed_size(dtype: DType, count: int) -> int:
    """Bytes of so many elements in a file, where narrow ones share bytes."""
    return (count * dtype.bits + 7) // 8


def _size_text(where: str, dtype: DType, shape: tuple[int, ...], expected: int, got: int) -> str:
    what = f"The shape {list(shape)} of {dtype.name} does not fit the length of the data"
    return message(where, what, expected=f"{expected} bytes", got=str(got))


def _from_raw(data: memoryview, dtype: DType, shape: tuple[int, ...]) -> Array:
    if dtype.bits < 8:
        return _unpack(np.frombuffer(data, np.uint8), dtype, shape)
    values: Array = np.frombuffer(data, dtype.numpy)
    if dtype.kind == "b" and bool((values.view(np.uint8) > 1).any()):
        # NumPy counts on the bytes 0 and 1.
        values = values.view(np.uint8) != 0
    return values.reshape(shape)


def _unpack(data: Array, dtype: DType, shape: tuple[int, ...]) -> Array:
    """One array item for each element, the first of a byte in its lowest bits."""
    bits = dtype.bits
    bytes_each, codes_each = _group(bits)
    groups = -(-data.size // bytes_each)
    padded = np.zeros(groups * bytes_each, np.uint8)
    padded[: data.size] = data
    word = np.dtype(np.uint8 if bytes_each == 1 else np.uint32)
    words: Any = np.zeros(groups, word)
    for place in range(bytes_each):
        words |= padded[place::bytes_each].astype(word) << (8 * place)
    spread = np.empty((groups, codes_each), np.uint8)
    for place in range(codes_each):
        spread[:, place] = words >> (place * bits) & ((1 << bits) - 1)
    flat = spread.reshape(-1)[: math.prod(shape)]
    if dtype.kind == "i":
        sign = 1 << (dtype.bits - 1)
        return ((flat ^ sign).astype(np.int8) - sign).astype(dtype.numpy).reshape(shape)
    if dtype.kind == "u":
        return flat.astype(dtype.numpy).reshape(shape)
    return flat.view(dtype.numpy).reshape(shape)


def _group(bits: int) -> tuple[int, int]:
    """The fewest whole bytes that hold whole codes of so many bits, and how many codes."""
    total = math.lcm(bits, 8)
    return total // 8, total // bits


def _string_data(tensor: WireRecord, shape: tuple[int, ...], where: str) -> Data:
    items = tensor.string_data
    if len(items) != math.prod(shape):
        raise InvalidGraph(
            message(
                where,
                f"The shape {list(shape)} does not fit the strings",
                expected=str(math.prod(shape)),
                got=str(len(items)),
            )
        )
    array = np.empty(len(items), object)
    for index, item in enumerate(items):
        array[index] = text_or_bytes(item)
    return ArrayData(array.reshape(shape))


def text_or_bytes(data: bytes) -> str | bytes:
    """Text where the bytes are UTF-8, else the bytes."""
    try:
        return data.decode()
    except UnicodeDecodeError:
        return data


def _typed_count(field: str, chunks: list[bytes]) -> int:
    if field == "float_data":
        return sum(map(len, chunks)) // 4
    if field == "double_data":
        return sum(map(len, chunks)) // 8
    # A number ends at each byte without the highest bit.
    return sum(int(np.count_nonzero(np.frombuffer(c, np.uint8) < 128)) for c in chunks)


def _varints(payload: bytes) -> Array:
    """All the numbers of packed varints, as int64."""
    data = np.frombuffer(payload, np.uint8)
    ends = np.flatnonzero(data < 128)
    starts = np.concatenate(([0], ends[:-1] + 1)) if ends.size else ends
    lengths = ends - starts + 1
    values = np.zeros(ends.size, np.uint64)
    for place in range(int(lengths.max(initial=0))):
        # Numbers of more than 10 bytes are cut, as shifts of 64 and more have no meaning.
        if place > 9:
            break
        longer = lengths > place
        part = (data[starts[longer] + place] & 127).astype(np.uint64)
        values[longer] |= part << np.uint64(7 * place)
    return values.view(np.int64)


def encoded_elements(constant: Constant) -> bytes | memoryview:
    """The elements as a file stores them: raw, little-endian, narrow ones sharing bytes."""
    values = np.ascontiguousarray(constant.array()).reshape(-1)
    bits = constant.dtype.bits
    if bits >= 8:
        return values.view(np.uint8).data
    mask = (1 << bits) - 1
    if constant.dtype.is_integer:
        codes = values.astype(np.int8).view(np.uint8) & mask
    else:
        codes = values.view(np.uint8) & mask
    bytes_each, codes_each = _group(bits)
    groups = -(-codes.size // codes_each)
    padded = np.zeros(groups * codes_each, np.uint32)
    padded[: codes.size] = codes
    words = np.zeros(groups, np.uint32)
    for place in range(codes_each):
        words |= padded[place::codes_each] << (place * bits)
    packed = np.empty((groups, bytes_each), np.uint8)
    for place in range(bytes_each):
        packed[:, place] = words >> (8 * place)
    return packed.reshape(-1)[: packed_size(constant.dtype, codes.size)].tobytes()
