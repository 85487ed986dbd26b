"""A graph becomes an ONNX file."""

from __future__ import annotations

import os
from collections.abc import Iterable

from sardonyx.base import errors
from sardonyx.base.errors import InvalidArgument, message
from sardonyx.base.object_types import ObjectType
from sardonyx.base.sizes import as_atom
from sardonyx.ir.constant import Constant
from sardonyx.ir.graph import Graph
from sardonyx.ir.long_list import LongList
from sardonyx.ir.node import Attribute, EmptyList, Node
from sardonyx.ir.types import ValueType
from sardonyx.ir.value import Value
from sardonyx.loader import onnx_format as onnx
from sardonyx.loader.encode import Encoder
from sardonyx.loader.external_writer import ExternalWriter, replacing
from sardonyx.loader.tensors import encoded_elements

#: Constants of so many bytes go to the file beside the model, when it is asked for.
EXTERNAL_THRESHOLD_BYTES = 1024
#: What protobuf itself can read.
_PROTOBUF_LIMIT_BYTES = (1 << 31) - 1
#: What is not constants takes less than this.
_MARGIN_BYTES = 1 << 26
#: Domain of the functions that stand for nodes of another version than the model imports.
VERSIONED_DOMAIN = "sardonyx.versioned"
#: Element types that older versions of the format do not know.
_FIRST_IR_VERSION = {
    "float8e4m3fn": 9,
    "float8e4m3fnuz": 9,
    "float8e5m2": 9,
    "float8e5m2fnuz": 9,
    "uint4": 10,
    "int4": 10,
    "float4e2m1": 11,
    "float8e8m0": 12,
    "uint2": 13,
    "int2": 13,
}
_NUMBER_OF_KIND = {kind: (number, field) for number, (kind, field) in onnx.ATTRIBUTE_TYPES.items()}


def write(
    graph: Graph,
    path: str | os.PathLike[str] | None = None,
    external_data: bool | int | None = False,
    location: str | None = None,
) -> bytes:
    """Write a graph as an ONNX model.

    Files appear under their names only when they are complete, so a model may be written over the
    file that it was loaded from.

    Args:
        graph: The outermost graph.
        path: The file; None to get the bytes only.
        external_data: Whether large initializers go to a file beside the model; a number is the
            size in bytes from which they do; None for models that are too large without.
        location: The name of that file, in the model's folder; by default `path` + ".data".

    Returns:
        The bytes of the model, without external data.

    Raises:
        InvalidArgument: External data is asked for without a path, or needed for the size.
        InvalidGraph: A constant has no data in a graph that needs it.
        NotImplemented: A node with subgraphs has another version than the model imports.
    """
    if external_data is None:
        external_data = (
            path is not None and _size_bytes(graph) > _PROTOBUF_LIMIT_BYTES - _MARGIN_BYTES
        )
    if external_data is False:
        encoder = _Writer(None).model(graph)
        if encoder.size > _PROTOBUF_LIMIT_BYTES:
            raise InvalidArgument(
                message(
                    "write",
                    f"The model has {encoder.size} bytes, and other readers take 2 GiB at most",
                    do="Write it to a path with external_data=True",
                )
            )
        data = b"".join(encoder.parts())
        if path is not None:
            with replacing(os.fspath(path)) as file:
                file.write(data)
        return data
    if path is None:
        raise InvalidArgument(message("write", "External data needs a path to be written beside"))
    target = os.fspath(path)
    threshold = EXTERNAL_THRESHOLD_BYTES if external_data is True else external_data
    name = location or f"{os.path.basename(target)}.data"
    if os.path.basename(name) != name or name == os.path.basename(target):
        what = "The file with its data must have a name of its own in the model's folder"
        raise InvalidArgument(message("write", what, got=repr(name)))
    # The data take their name first, as the model is nothing without them.
    beside = os.path.join(os.path.dirname(target), name)
    with replacing(target) as file, replacing(beside) as side:
        external = ExternalWriter(side, name, threshold)
        data = b"".join(_Writer(external).model(graph).parts())
        file.write(data)
    return data


def write_stripped(graph: Graph, path: str | os.PathLike[str], threshold: int) -> list[str]:
    """Write a graph without its large initializers, as if they were in a file beside the model.

    Args:
        graph: The outermost graph.
        path: The file.
        threshold: Initializers of fewer bytes stay.

    Returns:
        The names of those that were left out.
    """
    target = os.fspath(path)
    external = ExternalWriter(None, f"{os.path.basename(target)}.data", threshold)
    with replacing(target) as file:
        for part in _Writer(external).model(graph).parts():
            file.write(part)
    return external.names


def _size_bytes(graph: Graph) -> int:
    """Bytes of all constants of a graph and those inside it."""
    held = [v.constant for g in graph.graphs() for v in g.initializers.values() if v.constant]
    held += [constant for node in graph.walk() for constant in node.constants()]
    return sum(constant.element_count * constant.dtype.bits // 8 for constant in held)


class _Writer:
    def __init__(self, external: ExternalWriter | None) -> None:
        self._external = external
        self._opset: dict[str, int] = {}
        self._functions: list[Encoder] = []
        self._ir_version = 4

    def model(self, graph: Graph) -> Encoder:
        self._opset = dict(graph.opset)
        for node in graph.walk():
            self._opset.setdefault(node.domain, node.version or 1)
        body = self.graph(graph)
        model = Encoder(onnx.MODEL)
        header = graph.header
        model.put("ir_version", max(header.ir_version or 8, self._ir_version))
        for name in ("producer_name", "producer_version", "domain", "model_version"):
            model.put_if(name, getattr(header, name))
        model.put_if("doc_string", header.doc_string)
        model.embed("graph", body)
        for domain, version in self._opset.items():
            model.embed("opset_import", _operator_set(domain, version))
        for key, value in graph.metadata.items():
            entry = Encoder(onnx.ENTRY).put("key", key).put("value", value)
            model.embed("metadata_props", entry)
        for function in self._functions:
            model.embed("functions", function)
        return model

    def graph(self, graph: Graph) -> Encoder:
        encoder = Encoder(onnx.GRAPH)
        outputs, copies = self._outputs(graph)
        for node in (*graph.nodes, *copies):
            encoder.embed("node", self._node(node))
        encoder.put("name", graph.name or "graph")
        for value in graph.initializers.values():
            if value.constant is not None and value.constant.parts is not None:
                encoder.embed("sparse_initializer", self._sparse(value.constant, value.name))
            elif value.constant is not None:
                tensor = self._tensor(value.constant, value.name, external=graph.parent is None)
                encoder.embed("initializer", tensor)
        encoder.put_if("doc_string", graph.doc_string)
        for value in (*graph.inputs, *graph.overridable):
            encoder.embed("input", self._value_info(value))
        for value in outputs:
            encoder.embed("output", self._value_info(value))
        for node in graph.nodes:
            for value in node.outputs:
                if not value.is_omitted and not value.is_graph_output and _type_of(value):
                    encoder.embed("value_info", self._value_info(value))
        return encoder

    def _outputs(self, graph: Graph) -> tuple[list[Value], list[Node]]:
        """Outputs under names of their own: ONNX forbids outer values and repetition."""
        outputs: list[Value] = []
        copies: list[Node] = []
        for value in graph.outputs:
            if value.graph is graph and value not in outputs:
                outputs.append(value)
                continue
            copy = Value(graph.fresh_name(value.name), value.dtype, value.shape, kind=value.kind)
            copy.declared, copy.type = value.declared, value.type
            name = graph.fresh_node_name("Identity")
            copies.append(
                Node("Identity", "", (value,), (copy,), None, name, self._opset.get("", 0))
            )
            outputs.append(copy)
        return outputs, copies

    def _sparse(self, constant: Constant, name: str) -> Encoder:
        """A constant of which the file gave only some elements."""
        assert constant.parts is not None  # noqa: S101 - the caller looked
        values, places = constant.parts()
        encoder = Encoder(onnx.SPARSE_TENSOR).put_all("dims", constant.shape)
        encoder.embed("values", self._tensor(Constant.from_array(values, constant.dtype), name))
        return encoder.embed("indices", self._tensor(Constant.from_array(places), ""))

    # Nodes

    def _node(self, node: Node) -> Encoder:
        encoder = Encoder(onnx.NODE)
        encoder.put_all("input", ["" if v is None else v.name for v in node.inputs])
        encoder.put_all("output", [v.name for v in node.outputs])
        encoder.put_if("name", node.name)
        if node.version and node.version != self._opset[node.domain]:
            encoder.put("op_type", self._versioned_function(node))
            return encoder.put("domain", VERSIONED_DOMAIN)
        encoder.put("op_type", node.op_type)
        for name, value in node.attributes.items():
            encoder.embed("attribute", self._attribute(name, value))
        return encoder.put_if("domain", node.domain)

    def _versioned_function(self, node: Node) -> str:
        """A function around the node, as each function imports versions of its own."""
        if any(True for _ in node.subgraphs()):
            raise errors.NotImplemented(
                message(
                    f"node {node.name} ({node.op_type})",
                    f"It has version {node.version} and subgraphs, while the model imports "
                    f"version {self._opset[node.domain]}, which ONNX cannot express",
                )
            )
        self._opset[VERSIONED_DOMAIN] = 1
        self._ir_version = max(self._ir_version, 8)
        name = f"{node.op_type}_{node.version}_{len(self._functions)}"
        inputs = [None if v is None else f"x{i}" for i, v in enumerate(node.inputs)]
        outputs = [v.name and f"y{i}" for i, v in enumerate(node.outputs)]
        inner = Encoder(onnx.NODE)
        inner.put_all("input", [x or "" for x in inputs])
        inner.put_all("output", outputs)
        inner.put("op_type", node.op_type)
        for attribute, value in node.attributes.items():
            inner.embed("attribute", self._attribute(attribute, value))
        inner.put_if("domain", node.domain)
        function = Encoder(onnx.FUNCTION)
        function.put("name", name).put("domain", VERSIONED_DOMAIN)
        function.put_all("input", [x or f"omitted{i}" for i, x in enumerate(inputs)])
        function.put_all("output", [y or f"omitted_{i}" for i, y in enumerate(outputs)])
        function.embed("node", inner)
        function.embed("opset_import", _operator_set(node.domain, node.version))
        self._functions.append(function)
        return name

    def _attribute(self, name: str, value: Attribute) -> Encoder:
        kind = _kind_of(name, value)
        number, field = _NUMBER_OF_KIND[kind]
        encoder = Encoder(onnx.ATTRIBUTE).put("name", name).put("type", number)
        items = value if isinstance(value, list | LongList) else [value]
        for item in items:
            if isinstance(item, Constant):
                encoder.embed(field, self._tensor(item, ""))
            elif isinstance(item, Graph):
                encoder.embed(field, self.graph(item))
            elif isinstance(item, ValueType):
                encoder.embed(field, self._type(item))
            else:
                encoder.put(field, item)
        return encoder

    # Tensors and types

    def _tensor(self, constant: Constant, name: str, *, external: bool = False) -> Encoder:
        tensor = Encoder(onnx.TENSOR)
        tensor.put_all("dims", constant.shape)
        tensor.put("data_type", constant.dtype.onnx_id)
        tensor.put_if("name", name)
        self._need(constant.dtype.name)
        if not constant.has_data:
            if external and self._external:
                self._external.leave_out(tensor, constant)
            return tensor
        if constant.dtype.kind == "s":
            return tensor.put_all("string_data", constant.array().reshape(-1))
        data = encoded_elements(constant)
        if external and self._external and len(data) >= self._external.threshold:
            self._external.put(tensor, data, name)
        else:
            tensor.payload("raw_data", data)
        return tensor

    def _need(self, dtype_name: str) -> None:
        self._ir_version = max(self._ir_version, _FIRST_IR_VERSION.get(dtype_name, 4))

    def _value_info(self, value: Value) -> Encoder:
        encoder = Encoder(onnx.VALUE_INFO).put("name", value.name)
        found = _type_of(value)
        if found is not None:
            encoder.embed("type", self._type(found))
        return encoder.put_if("doc_string", value.doc_string)

    def _type(self, declared: ValueType) -> Encoder:
        encoder = Encoder(onnx.TYPE)
        if declared.dtype is not None:
            self._need(declared.dtype.name)
        number = declared.dtype.onnx_id if declared.dtype else 0
        if declared.kind in ("tensor", "sparse"):
            inner = Encoder(onnx.TENSOR_TYPE).put("elem_type", number)
            if declared.shape is not None:
                inner.embed("shape", _shape(declared))
            field = "tensor_type" if declared.kind == "tensor" else "sparse_tensor_type"
            encoder.embed(field, inner)
        elif declared.kind in ("sequence", "optional"):
            inner = Encoder(
                onnx.SEQUENCE_TYPE if declared.kind == "sequence" else onnx.OPTIONAL_TYPE
            )
            if declared.element is not None:
                inner.embed("elem_type", self._type(declared.element))
            encoder.embed(f"{declared.kind}_type", inner)
        elif declared.kind == "map":
            inner = Encoder(onnx.MAP_TYPE).put("key_type", number)
            if declared.element is not None:
                inner.embed("value_type", self._type(declared.element))
            encoder.embed("map_type", inner)
        else:
            encoder.embed("opaque_type", Encoder(onnx.OPAQUE_TYPE))
        return encoder.put_if("denotation", declared.denotation)


def _type_of(value: Value) -> ValueType | None:
    """What is known of a value's type, else what the file declared."""
    if value.kind != "tensor":
        return value.type or value.declared
    if value.dtype is None or isinstance(value.dtype, ObjectType):
        return value.declared
    shape = value.shape if value.shape is not None else value.declared_shape
    declared = value.declared or ValueType()
    return ValueType("tensor", value.dtype, shape, None, declared.denotation, declared.denoted)


def _shape(declared: ValueType) -> Encoder:
    shape = Encoder(onnx.SHAPE)
    sizes = declared.shape or ()
    denoted = declared.denoted if len(declared.denoted) == len(sizes) else ("",) * len(sizes)
    for dim, denotation in zip(sizes, denoted, strict=True):
        encoder = Encoder(onnx.DIMENSION)
        if isinstance(dim, int):
            encoder.put("dim_value", dim)
        else:
            atom = as_atom(dim)
            named = atom is not None and atom.kind == "symbol"
            encoder.put("dim_param", atom.name if atom is not None and named else str(dim))
        shape.embed("dim", encoder.put_if("denotation", denotation))
    return shape


def _operator_set(domain: str, version: int) -> Encoder:
    return Encoder(onnx.OPERATOR_SET).put("domain", domain).put("version", version)


def _kind_of(name: str, value: Attribute) -> str:
    if isinstance(value, EmptyList):
        return value.kind
    if isinstance(value, list | LongList):
        if not len(value):
            return "INTS"
        kinds = set(_item_kinds(value))
        if kinds == {"INT", "FLOAT"}:
            kinds = {"FLOAT"}
        if len(kinds) == 1:
            return f"{kinds.pop()}S"
        raise InvalidArgument(message(f"attribute {name}", "Its list holds items of many types"))
    return next(iter(_item_kinds([value])))


def _item_kinds(items: Iterable[object]) -> Iterable[str]:
    for item in items:
        for kind, types in _PYTHON_TYPES.items():
            if isinstance(item, types):
                yield kind
                break
        else:
            raise InvalidArgument(
                message("attribute", f"ONNX has no attribute for a {type(item).__name__}")
            )


_PYTHON_TYPES: dict[str, tuple[type, ...]] = {
    "INT": (int,),
    "FLOAT": (float,),
    "STRING": (str, bytes),
    "TENSOR": (Constant,),
    "GRAPH": (Graph,),
    "TYPE_PROTO": (ValueType,),
}
