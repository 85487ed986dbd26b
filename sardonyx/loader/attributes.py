"""Attributes of nodes: protobuf records become plain Python."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

import numpy as np

from sardonyx.base import dtypes
from sardonyx.base.errors import InvalidGraph, message
from sardonyx.ir.constant import Constant
from sardonyx.ir.graph import Graph
from sardonyx.ir.long_list import LongList
from sardonyx.ir.node import Attribute, EmptyList
from sardonyx.ir.types import ValueType
from sardonyx.loader.onnx_format import ATTRIBUTE_TYPES
from sardonyx.loader.tensors import text_or_bytes
from sardonyx.loader.wire import WireRecord

#: Which field of the message has the value, by ONNX's name of the type.
_FIELDS = dict(ATTRIBUTE_TYPES.values())
#: Types whose fields are the values.
_PLAIN = frozenset(("INT", "FLOAT"))
_LISTS = frozenset(("INTS", "FLOATS"))


def attribute_kind(proto: WireRecord, where: str) -> str:
    """ONNX's name of the attribute's type, which old files leave to be seen from the fields.

    Raises:
        InvalidGraph: There is no such type, or nothing tells it.
    """
    if proto.type:
        if proto.type not in ATTRIBUTE_TYPES:
            raise InvalidGraph(message(where, f"There is no attribute type {proto.type}"))
        return ATTRIBUTE_TYPES[proto.type][0]
    for kind, field in ATTRIBUTE_TYPES.values():
        if proto.has(field):
            return kind
    raise InvalidGraph(message(where, "It has neither a type nor a value"))


class AttributeReaders(NamedTuple):
    """What reads the messages that an attribute may have.

    Attributes:
        constant: Makes a constant of a `TensorProto`.
        dense: Makes a name and a constant of a `SparseTensorProto`.
        subgraph: Makes a graph of a `GraphProto`.
        declared: Makes a type of a `TypeProto`.
    """

    constant: Callable[[WireRecord], Constant]
    dense: Callable[[WireRecord, str], tuple[str, Constant]]
    subgraph: Callable[[WireRecord], Graph]
    declared: Callable[[WireRecord], ValueType]


def plain_attribute(
    proto: WireRecord,
    kind: str,
    readers: AttributeReaders,
    where: str,
) -> Attribute:
    """The value of an attribute.

    Args:
        proto: The `AttributeProto`.
        kind: What `attribute_kind` gives.
        readers: For what is a message itself.
        where: For errors.

    Raises:
        InvalidGraph: The value is missing, or not valid.
    """
    value = getattr(proto, _FIELDS[kind])
    if kind in _PLAIN:
        number: Attribute = value
        return number
    if kind in _LISTS and value and not isinstance(value, LongList):
        return list(value)
    by_kind: dict[str, Callable[[Any], Any]] = {
        "STRING": text_or_bytes,
        "TENSOR": readers.constant,
        "GRAPH": readers.subgraph,
        "SPARSE_TENSOR": lambda t: readers.dense(t, where)[1],
        "TYPE_PROTO": readers.declared,
    }
    read = by_kind.get(kind.removesuffix("S"))
    if kind.endswith("S"):
        if not value:
            return EmptyList(kind)
        if isinstance(value, LongList):
            return LongList(value.array, tuple(map(read, value.table or ()))) if read else value
        return [read(item) for item in value] if read else list(value)
    if value is None:
        raise InvalidGraph(message(where, f"Its value is missing: it should be a {kind}"))
    result: Attribute = read(value) if read else value
    return result


def constant_of_node(attributes: Mapping[str, Attribute], where: str) -> Constant:
    """The constant that a node `Constant` stands for.

    Raises:
        InvalidGraph: It has not exactly one value.
    """
    if len(attributes) != 1:
        raise InvalidGraph(
            message(where, "A constant has one attribute", got=", ".join(attributes) or "none")
        )
    ((name, value),) = attributes.items()
    if isinstance(value, Constant):
        return value
    dtype = {
        "value_int": dtypes.INT64,
        "value_ints": dtypes.INT64,
        "value_float": dtypes.FLOAT,
        "value_floats": dtypes.FLOAT,
        "value_string": dtypes.STRING,
        "value_strings": dtypes.STRING,
    }.get(name)
    kinds: dict[str, type | tuple[type, ...]] = {"i": int, "f": float, "s": (str, bytes)}
    is_list = isinstance(value, list | LongList)
    items = list(value) if isinstance(value, list | LongList) else [value]
    if (
        dtype is None
        or is_list is not name.endswith("s")
        or not all(isinstance(item, kinds[dtype.kind]) for item in items)
    ):
        raise InvalidGraph(message(where, f"A constant cannot be given by {name!r} of this type"))
    array = np.empty(len(items), dtype.numpy)
    array[:] = items
    return Constant.from_array(array if is_list else array.reshape(()), dtype)
