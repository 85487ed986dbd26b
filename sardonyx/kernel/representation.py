"""How values of a tensor's type are held: one way in memory, perhaps another while computing."""

from __future__ import annotations

from sardonyx.base import dtypes, errors
from sardonyx.base.dtypes import DType
from sardonyx.base.errors import message
from sardonyx.kernel.builder import Builder
from sardonyx.kernel.program import Constant, Operand
from sardonyx.kernel.types import F32, I1, Type, memory_type

#: Integers of less than a byte: how far the value lies from the top of its byte in memory.
_SUB_BYTE = {dtypes.INT4: 4, dtypes.UINT4: 4, dtypes.INT2: 6, dtypes.UINT2: 6}


def value_type(dtype: DType) -> Type:
    """The type in which values of `dtype` are computed: half floats in f32, truth in i1.

    Raises:
        NotImplemented: There is no arithmetic on `dtype` yet.
    """
    if dtype is dtypes.BOOL:
        return I1
    if dtype.is_float and dtype.bits < 16:
        raise errors.NotImplemented(
            message("kernel", f"There is no arithmetic on {dtype} yet", do="Cast it beforehand")
        )
    if dtype.kind == "c":
        raise errors.NotImplemented(message("kernel", f"There are no kernels for {dtype} yet"))
    if dtype in (dtypes.FLOAT16, dtypes.BFLOAT16):
        return F32
    return memory_type(dtype)


def cast(b: Builder, value: Operand, source: DType, target: DType) -> Operand:
    """`value` of type `source` as `target`, rounded to half precision where that is due."""
    if target is dtypes.BOOL:
        return b.compare("ne", value, 0) if source is not dtypes.BOOL else value
    if target in (dtypes.FLOAT16, dtypes.BFLOAT16):
        if isinstance(value, Constant):
            value = b.variable(value).get()
        narrow = memory_type(target)
        if source.is_float and value.type.scalar in ("f32", "f64"):
            return b.convert(b.convert(value, narrow), F32)
        return b.convert(b.convert(b.convert(value, F32), narrow), F32)
    return b.convert(value, value_type(target))


def from_memory(b: Builder, value: Operand, dtype: DType) -> Operand:
    """A stored element as the value that expressions compute with."""
    if dtype is dtypes.BOOL:
        return b.compare("ne", value, 0)
    if dtype in _SUB_BYTE:
        unused = _SUB_BYTE[dtype]
        value = b.binary("shr", b.binary("shl", value, unused), unused)
    return b.convert(value, value_type(dtype))


def to_memory(b: Builder, value: Operand, dtype: DType) -> Operand:
    """The reverse of `from_memory`."""
    stored = memory_type(dtype).with_lanes(value.type.lanes)
    if isinstance(value, Constant):
        return Constant(stored, int(value.value) if dtype is dtypes.BOOL else value.value)
    return b.convert(value, stored)
