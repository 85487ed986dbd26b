"""Declared types: protobuf records become `ValueType`, dimensions become symbols."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from sardonyx.base import dtypes
from sardonyx.base.errors import InvalidGraph, message
from sardonyx.base.sizes import symbol
from sardonyx.ir.types import ValueType
from sardonyx.loader.wire import WireRecord

if TYPE_CHECKING:
    from sardonyx.base.sizes import Dim


class DeclaredTypes:
    """Reads types; dimensions without a name get one that no dimension of the model has."""

    def __init__(self, model: WireRecord) -> None:
        self._taken: set[str] = set()
        for info in (*model.graph.input, *model.graph.output, *model.graph.value_info):
            self._taken.update(_parameters(info.type))

    def read(self, proto: WireRecord | None, name: str) -> ValueType | None:
        """The type that a `TypeProto` declares for the value `name`, None where it declares none.

        Raises:
            InvalidGraph: There is no such element type.
        """
        if proto is None:
            return None
        note = proto.denotation
        for field, kind in (("tensor_type", "tensor"), ("sparse_tensor_type", "sparse")):
            inner = getattr(proto, field)
            if inner is not None:
                dtype = _dtype(inner.elem_type, name)
                shape, denoted = self._shape(inner.shape, name), _denoted(inner.shape)
                return ValueType(kind, dtype, shape, None, note, denoted)
        for field, kind in (("sequence_type", "sequence"), ("optional_type", "optional")):
            inner = getattr(proto, field)
            if inner is not None:
                return ValueType(kind, None, None, self.read(inner.elem_type, name), note)
        if proto.map_type is not None:
            value = self.read(proto.map_type.value_type, name)
            return ValueType("map", _dtype(proto.map_type.key_type, name), None, value, note)
        return ValueType("opaque", denotation=note) if proto.opaque_type is not None else None

    def _shape(self, shape: WireRecord | None, name: str) -> tuple[Dim, ...] | None:
        if shape is None:
            return None
        return tuple(self._dim(dim, f"{name}.{axis}") for axis, dim in enumerate(shape.dim))

    def _dim(self, dim: WireRecord, name: str) -> Dim:
        if dim.dim_param:
            return symbol(dim.dim_param)
        if dim.has("dim_value") and dim.dim_value >= 0:
            return int(dim.dim_value)
        fresh, count = name, 0
        while fresh in self._taken:
            count += 1
            fresh = f"{name}_{count}"
        return symbol(fresh)


def _denoted(shape: WireRecord | None) -> tuple[str, ...]:
    found = tuple(dim.denotation for dim in shape.dim) if shape is not None else ()
    return found if any(found) else ()


def _dtype(number: int, name: str) -> dtypes.DType | None:
    if number == 0:
        return None
    if number not in dtypes.BY_ONNX_ID:
        raise InvalidGraph(message(f"value {name}", f"There is no element type {number}"))
    return dtypes.BY_ONNX_ID[number]


def _parameters(proto: WireRecord | None) -> Iterator[str]:
    if proto is None:
        return
    for inner in (proto.tensor_type, proto.sparse_tensor_type):
        if inner is not None and inner.shape is not None:
            yield from (dim.dim_param for dim in inner.shape.dim if dim.dim_param)
    for inner in (proto.sequence_type, proto.optional_type):
        if inner is not None:
            yield from _parameters(inner.elem_type)
