"""Protobuf records become the values and nodes of a graph."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import NamedTuple

from sardonyx.base.errors import InvalidGraph, message
from sardonyx.base.interrupt import checkpoint
from sardonyx.ir.constant import Constant
from sardonyx.ir.graph import Graph
from sardonyx.ir.node import Attribute, Node
from sardonyx.ir.types import ValueType
from sardonyx.ir.value import Value
from sardonyx.loader.attributes import (
    AttributeReaders,
    attribute_kind,
    constant_of_node,
    plain_attribute,
)
from sardonyx.loader.functions import (
    INLINED_NODES_LIMIT,
    Context,
    FunctionScope,
    Key,
    function_key,
)
from sardonyx.loader.naming import NAMING, renamed
from sardonyx.loader.onnx_format import NEWEST_OPSET
from sardonyx.loader.tensors import TensorReader
from sardonyx.loader.types import DeclaredTypes
from sardonyx.loader.wire import WireRecord


class NodeSite(NamedTuple):
    """Where nodes are added: the graph, what names mean there, and what holds for all of them."""

    graph: Graph
    scope: FunctionScope
    context: Context


class GraphBuilder:
    """Builds the graph of one model."""

    def __init__(
        self,
        graph: Graph,
        tensors: TensorReader,
        types: DeclaredTypes,
        functions: dict[Key, WireRecord],
    ) -> None:
        self._graph = graph
        self._tensors = tensors
        self._types = types
        self._functions = functions
        self._constants: dict[WireRecord, Constant] = {}
        self._inlined_nodes = 0
        self._assumed = False

    def build_model(self, proto: WireRecord) -> None:
        """Fill the outermost graph.

        Raises:
            InvalidGraph: The model is not valid.
            NoSuchFile: A file with its data is missing.
        """
        place = NodeSite(self._graph, FunctionScope(), Context(self._graph.opset))
        self._build(place, proto)

    def _build(self, place: NodeSite, proto: WireRecord) -> None:
        graph, scope, _ = place
        declared = {}
        for info in (*proto.value_info, *proto.output):
            if info.name:
                declared[info.name] = info
        weights: dict[str, Constant] = {}
        for number, tensor in enumerate(proto.initializer):
            if not tensor.name:
                raise InvalidGraph(message(f"graph {graph.name}", "An initializer has no name"))
            if tensor.name in weights:
                what = f"Initializer {tensor.name!r} comes twice: the last one counts."
                self._graph.remark(what)
            counted = number if graph is self._graph else None
            weights[tensor.name] = self._tensors.constant(tensor, number=counted)
        for sparse in proto.sparse_initializer:
            name, constant = self._tensors.dense(sparse, f"in graph {graph.name}")
            weights[name] = constant
        definers: dict[str, str] = {}
        for info in proto.input:
            self._define(definers, info.name, "the inputs of the graph", graph)
            constant_or_none = weights.pop(info.name, None)
            value = self._value(place, info.name)
            self._declare(value, info)
            if constant_or_none is not None:
                self._set_constant(graph, value, constant_or_none)
                # Before version 4 every initializer was listed as an input and meant as a constant.
                if self._graph.header.ir_version >= 4:
                    graph.overridable.append(value)
                continue
            graph.inputs.append(value)
            self._take_declared(value, required=graph is self._graph)
        for name, constant in weights.items():
            self._define(definers, name, "the initializers", graph)
            value = self._value(place, name)
            if name in declared:
                self._declare(value, declared[name])
            self._set_constant(graph, value, constant)
        self._add_nodes(place, proto.node, definers, declared)
        for info in proto.output:
            found = scope.find(info.name)
            if found is None:
                raise InvalidGraph(
                    message(f"graph {graph.name}", f"Nothing computes its output {info.name!r}")
                )
            found.doc_string = found.doc_string or info.doc_string
            if found.declared is None:
                self._declare(found, info)
            graph.outputs.append(found)

    # Values

    def _define(self, definers: dict[str, str], name: str, by: str, graph: Graph) -> None:
        if not name:
            raise InvalidGraph(message(f"graph {graph.name}", f"A value in {by} has no name"))
        if name in definers:
            raise InvalidGraph(
                message(
                    f"graph {graph.name}",
                    f"The value {name!r} is defined twice, by {definers[name]} and by {by}",
                )
            )
        definers[name] = by

    def _value(self, place: NodeSite, name: str) -> Value:
        """A new value that `name` means in the scope; another name where that one is taken."""
        graph, scope, context = place
        bound = scope.bound.get(name)
        if bound is not None:
            scope.values[name] = bound
            return bound
        value = Value(graph.fresh_name(context.prefix + name))
        graph.register(value)
        scope.values[name] = value
        return value

    def _declare(self, value: Value, info: WireRecord) -> None:
        value.declared = self._types.read(info.type, value.name)
        value.doc_string = info.doc_string
        if value.declared is not None and value.declared.kind != "tensor":
            value.kind, value.type = value.declared.kind, value.declared

    def _take_declared(self, value: Value, *, required: bool) -> None:
        declared = value.declared
        if required and (declared is None or (declared.kind == "tensor" and not declared.dtype)):
            raise InvalidGraph(message(f"graph input {value.name}", "Its type is not declared"))
        if declared is not None:
            value.dtype, value.shape = declared.dtype, declared.shape

    def _set_constant(self, graph: Graph, value: Value, constant: Constant) -> None:
        value.constant, value.kind, value.type = constant, "tensor", None
        value.dtype, value.shape = constant.dtype, constant.shape
        graph.initializers[value.name] = value

    # Nodes

    def _add_nodes(
        self,
        place: NodeSite,
        protos: Sequence[WireRecord],
        definers: dict[str, str],
        declared: dict[str, WireRecord],
    ) -> None:
        graph, scope, context = place
        # Values of all nodes first: nodes may come in any order.
        for index, proto in enumerate(protos):
            by = f"node {proto.name or f'number {index}'} ({proto.op_type})"
            for name in proto.output:
                if name:
                    self._define(definers, name, by, graph)
                    value = self._value(place, name)
                    if name in declared:
                        self._declare(value, declared[name])
        for index, proto in enumerate(protos):
            checkpoint()
            if context.calls:
                self._count_inlined(context)
            if not proto.op_type:
                raise InvalidGraph(message(f"node {proto.name or index}", "It has no op_type"))
            domain = "" if proto.domain == "ai.onnx" else proto.domain
            key = function_key(proto.domain, proto.op_type, proto.overload)
            where = f"node {context.prefix}{proto.name or f'number {index}'} ({proto.op_type})"
            inputs = [self._input(name, scope, where) for name in proto.input]
            if key in self._functions:
                self._inline(place, proto, key, inputs, where)
                continue
            if domain == "" and proto.op_type == "Constant":
                self._add_constant(place, proto, where)
                continue
            version = context.opset.get(domain, 0)
            if not domain and version < 1:
                version = self._assumed_version(where)
            name = graph.fresh_node_name(
                context.prefix + (proto.name or f"{proto.op_type}_{index}")
            )
            outputs = [scope.values[n] if n else Value("") for n in proto.output]
            attributes = self._attributes(place, proto, where)
            if (domain, proto.op_type) in NAMING:
                attributes = renamed(attributes, NAMING[domain, proto.op_type], scope, where)
            origin = context.origin or (name,)
            graph.add_node(
                Node(proto.op_type, domain, inputs, outputs, attributes, name, version, origin)
            )

    def _assumed_version(self, where: str) -> int:
        """The version of ONNX's operators where only those of other domains are imported."""
        opset = self._graph.opset
        if self._assumed:
            return NEWEST_OPSET
        if not opset or "" in opset:
            what = "The model imports no version of ONNX's operator set"
            raise InvalidGraph(message(where, what))
        self._graph.remark(
            f"The model imports no version of ONNX's operator set: {NEWEST_OPSET} is assumed."
        )
        opset[""], self._assumed = NEWEST_OPSET, True
        return NEWEST_OPSET

    def _input(self, name: str, scope: FunctionScope, where: str) -> Value | None:
        if not name:
            return None
        found = scope.find(name)
        if found is None:
            if name in _omitted(scope):
                return None
            raise InvalidGraph(message(where, f"Nothing computes its input {name!r}"))
        return found

    def _add_constant(self, place: NodeSite, proto: WireRecord, where: str) -> None:
        graph, scope, _ = place
        attributes = self._attributes(place, proto, where)
        if len(proto.output) != 1 or not proto.output[0]:
            raise InvalidGraph(message(where, "A constant has one output"))
        value = scope.values[proto.output[0]]
        constant = constant_of_node(attributes, where)
        if scope.bound.get(proto.output[0]) is value and value.name in graph.initializers:
            raise InvalidGraph(message(where, f"The value {value.name!r} is defined twice"))
        self._set_constant(graph, value, constant)

    def _attributes(self, place: NodeSite, proto: WireRecord, where: str) -> dict[str, Attribute]:
        graph, scope, context = place
        attributes: dict[str, Attribute] = {}
        for attribute in proto.attribute:
            if attribute.name in attributes:
                raise InvalidGraph(message(where, f"Its attribute {attribute.name!r} comes twice"))
            if attribute.ref_attr_name:
                if attribute.ref_attr_name not in context.arguments:
                    continue
                given, given_scope, given_context = context.arguments[attribute.ref_attr_name]
            else:
                given, given_scope, given_context = attribute, scope, context
            attributes[attribute.name] = self._attribute(
                NodeSite(graph, given_scope, given_context),
                given,
                f"{where}, attribute {attribute.name}",
            )
        return attributes

    def _attribute(self, place: NodeSite, proto: WireRecord, where: str) -> Attribute:
        graph, scope, context = place
        kind = attribute_kind(proto, where)

        def subgraph(record: WireRecord) -> Graph:
            inner = Graph(record.name, parent=graph)
            inner.doc_string = record.doc_string
            self._build(NodeSite(inner, FunctionScope(scope), context), record)
            return inner

        def declared(record: WireRecord) -> ValueType:
            return self._types.read(record, where) or ValueType("opaque")

        def constant(record: WireRecord) -> Constant:
            # Equal messages may be one record: shape arithmetic has the same numbers everywhere.
            found = self._constants.get(record)
            if found is None:
                found = self._constants[record] = self._tensors.constant(record, where)
            return found

        readers = AttributeReaders(constant, self._tensors.dense, subgraph, declared)
        return plain_attribute(proto, kind, readers, where)

    # Functions

    def _inline(
        self,
        place: NodeSite,
        call: WireRecord,
        key: Key,
        inputs: Sequence[Value | None],
        where: str,
    ) -> None:
        """Add the nodes of a function's body in place of a call.

        What the body computes as the function's outputs are the caller's values themselves.
        """
        graph, scope, context = place
        function = self._functions[key]
        if len(inputs) > len(function.input) or len(call.output) > len(function.output):
            raise InvalidGraph(message(where, "The call has more operands than the function"))
        call_name = graph.fresh_node_name(context.prefix + (call.name or call.op_type))
        arguments = {
            attribute.name: (attribute, scope, context) for attribute in function.attribute_proto
        }
        arguments.update(self._call_arguments(call, scope, context))
        opset = {
            **context.opset,
            **{
                ("" if o.domain == "ai.onnx" else o.domain): o.version
                for o in function.opset_import
            },
        }
        inner = context.enter(key, opset, f"{call_name}/", arguments)
        if not inner.origin:
            inner = Context(opset, inner.prefix, inner.calls, arguments, (call_name,))
        body = FunctionScope()
        definers: dict[str, str] = {}
        for index, name in enumerate(function.input):
            self._define(definers, name, "the inputs of the function", graph)
            given = inputs[index] if index < len(inputs) else None
            if given is None:
                _omitted(body).add(name)
            else:
                body.values[name] = given
        copies: list[tuple[str, Value]] = []
        for name, given_name in zip(function.output, call.output, strict=False):
            if not given_name:
                continue
            if name in definers or name in body.bound:
                copies.append((name, scope.values[given_name]))
            else:
                body.bound[name] = scope.values[given_name]
        declared = {info.name: info for info in function.value_info if info.name not in body.bound}
        self._add_nodes(NodeSite(graph, body, inner), function.node, definers, declared)
        for name in body.bound:
            if name not in body.values:
                raise InvalidGraph(
                    message(f"function {function.name}", f"Nothing computes its output {name!r}")
                )
        for name, value in copies:
            self._add_copy(graph, body.find(name), value, inner, where)

    def _count_inlined(self, context: Context) -> None:
        # Calls and constants count too: functions without nodes can call each other without end.
        self._inlined_nodes += 1
        if self._inlined_nodes > INLINED_NODES_LIMIT:
            raise InvalidGraph(
                message(
                    f"function {context.calls[0][1]}",
                    f"The model's functions stand for more than {INLINED_NODES_LIMIT} nodes",
                )
            )

    def _add_copy(
        self, graph: Graph, source: Value | None, target: Value, context: Context, where: str
    ) -> None:
        if source is None:
            raise InvalidGraph(message(where, "An output of the function is an omitted input"))
        name = graph.fresh_node_name(f"{context.prefix}Identity")
        version = context.opset.get("", 0) or self._graph.opset.get("", 0) or 1
        graph.add_node(
            Node("Identity", "", (source,), (target,), None, name, version, context.origin)
        )

    def _call_arguments(
        self, call: WireRecord, scope: FunctionScope, context: Context
    ) -> Iterable[tuple[str, tuple[WireRecord, FunctionScope, Context]]]:
        for attribute in call.attribute:
            if not attribute.ref_attr_name:
                yield attribute.name, (attribute, scope, context)
            elif attribute.ref_attr_name in context.arguments:
                yield attribute.name, context.arguments[attribute.ref_attr_name]


def _omitted(scope: FunctionScope) -> set[str]:
    """Inputs of the function around a scope that its call omits."""
    while scope.parent is not None:
        scope = scope.parent
    return scope.omitted
