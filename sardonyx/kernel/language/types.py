"""Types of the kernel language: a machine scalar, or a vector of them."""

from __future__ import annotations

from functools import cache

from sardonyx.base import dtypes
from sardonyx.base.records import dataclass

_BITS = (
    {"i1": 1, "ptr": 64}
    | {
        f"{kind}{bits}": bits
        for kind, sizes in (("i", (8, 16, 32, 64)), ("u", (8, 16, 32, 64)), ("f", (16, 32, 64)))
        for bits in sizes
    }
    | {"bf16": 16, "u128": 128}
)


@dataclass(frozen=True, slots=True)
class Type:
    """A scalar kind (`f32`, `i64`, `u8`, `i1`, `ptr` ...) and a number of lanes.

    `i1` is a truth value; stored booleans are `u8` holding 0 or 1. Signedness belongs to the
    type, so division, comparison and conversion need no signed and unsigned spellings.
    """

    scalar: str
    lanes: int = 1

    @property
    def bits(self) -> int:
        """Bits of one lane."""
        return _BITS[self.scalar]

    @property
    def size_bytes(self) -> int:
        """Bytes of one lane in memory."""
        return max(1, self.bits // 8)

    @property
    def alignment_bytes(self) -> int:
        """What the address of a lane is a multiple of; complex numbers lie as their parts do."""
        return min(8, self.size_bytes)

    @property
    def is_float(self) -> bool:
        """Whether lanes are floating point."""
        return self.scalar in ("f16", "bf16", "f32", "f64")

    @property
    def is_integer(self) -> bool:
        """Whether lanes are signed or unsigned integers (`i1` and `ptr` are not)."""
        return self.scalar[0] in "iu" and self.scalar != "i1"

    @property
    def is_unsigned(self) -> bool:
        """Whether lanes are unsigned integers."""
        return self.scalar[0] == "u"

    def with_lanes(self, lanes: int) -> Type:
        """The same scalar with another number of lanes."""
        return self if lanes == self.lanes else _with_lanes(self.scalar, lanes)

    @property
    def element(self) -> Type:
        """The type of one lane."""
        return self if self.lanes == 1 else _with_lanes(self.scalar, 1)

    def __repr__(self) -> str:
        return self.scalar if self.lanes == 1 else f"{self.scalar}x{self.lanes}"


@cache
def _with_lanes(scalar: str, lanes: int) -> Type:
    return Type(scalar, lanes)


I1, I8, I16, I32, I64 = (Type(s) for s in ("i1", "i8", "i16", "i32", "i64"))
U8, U16, U32, U64, U128 = (Type(s) for s in ("u8", "u16", "u32", "u64", "u128"))
F16, BF16, F32, F64, PTR = (Type(s) for s in ("f16", "bf16", "f32", "f64", "ptr"))

_MEMORY = {
    dtypes.FLOAT: F32, dtypes.DOUBLE: F64, dtypes.FLOAT16: F16, dtypes.BFLOAT16: BF16,
    dtypes.INT8: I8, dtypes.INT16: I16, dtypes.INT32: I32, dtypes.INT64: I64,
    dtypes.UINT8: U8, dtypes.UINT16: U16, dtypes.UINT32: U32, dtypes.UINT64: U64,
    dtypes.BOOL: U8, dtypes.INT4: I8, dtypes.UINT4: U8, dtypes.INT2: I8, dtypes.UINT2: U8,
    dtypes.FLOAT8E4M3FN: U8, dtypes.FLOAT8E4M3FNUZ: U8, dtypes.FLOAT8E5M2: U8,
    dtypes.FLOAT8E5M2FNUZ: U8, dtypes.FLOAT8E8M0: U8, dtypes.FLOAT4E2M1: U8,
    dtypes.FLOAT6E2M3: U8, dtypes.FLOAT6E3M2: U8,
    dtypes.COMPLEX64: U64, dtypes.COMPLEX128: U128,
}  # fmt: skip


def memory_type(dtype: dtypes.DType) -> Type:
    """How one element of `dtype` lies in memory."""
    return I64 if dtype.is_code else _MEMORY[dtype]
