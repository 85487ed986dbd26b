"""Element types: one record each, found by name, ONNX number or NumPy dtype."""

from __future__ import annotations

import ml_dtypes
import numpy as np

from sardonyx.base.records import dataclass


@dataclass(frozen=True, slots=True, eq=False, weakref_slot=True)
class DType:
    """An element type; there is one object of each.

    Attributes:
        name: ONNX's word in lower case (`float`, `int64`); also what `tensor(...)` prints.
        onnx_id: The number in `TensorProto.DataType`.
        numpy: The NumPy (or ml_dtypes) dtype of one unpacked element; object for strings.
        bits: Size of one stored element; below 8, elements share bytes in files.
        kind: `f` float, `i` signed, `u` unsigned, `b` bool, `c` complex, `s` string, `o` another
            object (see object_types.py).
    """

    name: str
    onnx_id: int
    numpy: np.dtype
    bits: int
    kind: str

    @property
    def size_bytes(self) -> int:
        """Bytes of one element in memory, where sub-byte types take a byte each."""
        return max(1, self.bits // 8)

    @property
    def is_float(self) -> bool:
        """Whether arithmetic on it rounds."""
        return self.kind == "f"

    @property
    def is_narrow_float(self) -> bool:
        """Whether it is a float of fewer than 16 bits, which is held as its code everywhere."""
        return self.kind == "f" and self.bits < 16

    @property
    def is_complex(self) -> bool:
        """Whether an element has a real and an imaginary part, side by side in memory."""
        return self.kind == "c"

    @property
    def is_integer(self) -> bool:
        """Whether it is a signed or unsigned integer (bool is neither)."""
        return self.kind in "iu"

    @property
    def is_code(self) -> bool:
        """Whether an element is a code in memory: its place in a table of objects of the run."""
        return self.kind in "so"

    @property
    def stored(self) -> np.dtype:
        """The NumPy dtype of elements in the memory of a plan."""
        return _CODES if self.is_code else self.numpy

    @property
    def type_text(self) -> str:
        """The type of tensors of it, in ONNX's words, such as `tensor(float)`."""
        return f"tensor({self.name})"

    def __repr__(self) -> str:
        return self.name


_CODES = np.dtype(np.int64)


def _make(name: str, onnx_id: int, numpy: object, bits: int, kind: str) -> DType:
    return DType(name, onnx_id, np.dtype(numpy), bits, kind)  # type: ignore[call-overload]  # np.dtype takes any class


FLOAT = _make("float", 1, np.float32, 32, "f")
UINT8 = _make("uint8", 2, np.uint8, 8, "u")
INT8 = _make("int8", 3, np.int8, 8, "i")
UINT16 = _make("uint16", 4, np.uint16, 16, "u")
INT16 = _make("int16", 5, np.int16, 16, "i")
INT32 = _make("int32", 6, np.int32, 32, "i")
INT64 = _make("int64", 7, np.int64, 64, "i")
STRING = _make("string", 8, object, 64, "s")
BOOL = _make("bool", 9, np.bool_, 8, "b")
FLOAT16 = _make("float16", 10, np.float16, 16, "f")
DOUBLE = _make("double", 11, np.float64, 64, "f")
UINT32 = _make("uint32", 12, np.uint32, 32, "u")
UINT64 = _make("uint64", 13, np.uint64, 64, "u")
COMPLEX64 = _make("complex64", 14, np.complex64, 64, "c")
COMPLEX128 = _make("complex128", 15, np.complex128, 128, "c")
BFLOAT16 = _make("bfloat16", 16, ml_dtypes.bfloat16, 16, "f")
FLOAT8E4M3FN = _make("float8e4m3fn", 17, ml_dtypes.float8_e4m3fn, 8, "f")
FLOAT8E4M3FNUZ = _make("float8e4m3fnuz", 18, ml_dtypes.float8_e4m3fnuz, 8, "f")
FLOAT8E5M2 = _make("float8e5m2", 19, ml_dtypes.float8_e5m2, 8, "f")
FLOAT8E5M2FNUZ = _make("float8e5m2fnuz", 20, ml_dtypes.float8_e5m2fnuz, 8, "f")
UINT4 = _make("uint4", 21, ml_dtypes.uint4, 4, "u")
INT4 = _make("int4", 22, ml_dtypes.int4, 4, "i")
FLOAT4E2M1 = _make("float4e2m1", 23, ml_dtypes.float4_e2m1fn, 4, "f")
FLOAT8E8M0 = _make("float8e8m0", 24, ml_dtypes.float8_e8m0fnu, 8, "f")
UINT2 = _make("uint2", 25, ml_dtypes.uint2, 2, "u")
INT2 = _make("int2", 26, ml_dtypes.int2, 2, "i")
FLOAT6E2M3 = _make("float6e2m3", 27, ml_dtypes.float6_e2m3fn, 6, "f")
FLOAT6E3M2 = _make("float6e3m2", 28, ml_dtypes.float6_e3m2fn, 6, "f")

ALL: tuple[DType, ...] = tuple(v for v in list(globals().values()) if isinstance(v, DType))
BY_NAME: dict[str, DType] = {d.name: d for d in ALL}
BY_ONNX_ID: dict[int, DType] = {d.onnx_id: d for d in ALL}
_BY_NUMPY: dict[np.dtype, DType] = {d.numpy: d for d in ALL}


def from_numpy(dtype: object) -> DType | None:
    """The record for a NumPy dtype, or None; any string dtype gives STRING."""
    found = np.dtype(dtype)  # type: ignore[call-overload]  # np.dtype takes anything, or raises
    if found.kind in "US":
        return STRING
    return _BY_NUMPY.get(found)
