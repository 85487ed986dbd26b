"""A graph in half floats, but for what must stay in floats.

Every value has one type. Where a node wants the other one, one node Cast, shared by all that want
it, stands between. Graphs inside nodes (branches, loops) stay in floats.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass, field

import numpy as np

from sardonyx.api.spelling import nearest
from sardonyx.base.dtypes import FLOAT, FLOAT16, DType
from sardonyx.base.errors import InvalidArgument, message
from sardonyx.ir.constant import Array, Constant
from sardonyx.ir.graph import Graph
from sardonyx.ir.node import Node
from sardonyx.ir.value import Value
from sardonyx.ops.core.signatures import signature_of

#: Operators that stay in floats: those of onnxruntime's list, and those that quantise.
DEFAULT_OP_BLOCK_LIST = tuple(
    "ArrayFeatureExtractor Binarizer CastMap CategoryMapper DictVectorizer FeatureVectorizer"
    " Imputer LabelEncoder LinearClassifier LinearRegressor Normalizer OneHotEncoder"
    " RandomUniformLike SVMClassifier SVMRegressor Scaler TreeEnsembleClassifier"
    " TreeEnsembleRegressor TreeEnsemble ZipMap NonMaxSuppression TopK RoiAlign Range CumSum Min"
    " Max Upsample".split()
)
#: Operators whose types leave no choice.
_ALWAYS_FLOAT = frozenset("QuantizeLinear DequantizeLinear DynamicQuantizeLinear".split())
#: Inputs that onnxruntime's kernels want as floats.
_FLOAT_INPUTS = {"GroupNorm": (1, 2), "SkipGroupNorm": (1, 2)}
#: Operators whose type is an attribute.
_MAKERS = {
    "Cast": "to",
    "ConstantOfShape": "value",
    "EyeLike": "dtype",
    "RandomNormal": "dtype",
    "RandomNormalLike": "dtype",
    "RandomUniform": "dtype",
    "HannWindow": "output_datatype",
    "HammingWindow": "output_datatype",
    "BlackmanWindow": "output_datatype",
}
#: The smallest and the largest number in half precision.
_SMALLEST, _LARGEST = 5.96e-08, 65504.0


@dataclass(frozen=True)
class HalfOptions:
    """What stays in floats.

    Attributes:
        keep_io_types: True for all inputs and outputs of the graph, or names of some.
        op_block_list: Operators that stay; None for `DEFAULT_OP_BLOCK_LIST`.
        node_block_list: Names of nodes that stay.
        min_positive_val: Smaller weights become this number.
        max_finite_val: Larger weights become this number.
    """

    keep_io_types: bool | Collection[str] = False
    op_block_list: Collection[str] | None = None
    node_block_list: Collection[str] = field(default=())
    min_positive_val: float = _SMALLEST
    max_finite_val: float = _LARGEST


def convert_to_half(graph: Graph, options: HalfOptions | None = None) -> int:
    """Convert a graph in place; types must have been inferred.

    Returns:
        The number of nodes that compute in half floats now.

    Raises:
        InvalidArgument: A name to be kept, or a limit, does not exist.
    """
    return _Conversion(graph, options or HalfOptions()).run()


class _Conversion:
    def __init__(self, graph: Graph, options: HalfOptions) -> None:
        self._graph, self._options = graph, options
        listed = options.op_block_list
        self._blocked = frozenset(DEFAULT_OP_BLOCK_LIST if listed is None else listed)
        self._casts: dict[tuple[Value, DType], Value] = {}
        self._halves: dict[Value, Value] = {}
        if options.min_positive_val < _SMALLEST or options.max_finite_val > _LARGEST:
            what = "The limits of weights are beyond those of half floats"
            raise InvalidArgument(message("float16", what, expected=f"{_SMALLEST} to {_LARGEST}"))
        self._check_names()

    def _check_names(self) -> None:
        keep = self._options.keep_io_types
        if not isinstance(keep, bool):
            faces = [v.name for v in (*self._graph.inputs, *self._graph.outputs)]
            for name in keep:
                if name not in faces:
                    what = f"There is no input or output {name!r} to be kept"
                    raise InvalidArgument(message("float16", what, do=nearest(name, faces)))
        nodes = {node.name for node in self._graph.walk()}
        for name in self._options.node_block_list:
            if name not in nodes:
                what = f"There is no node {name!r} to be kept"
                raise InvalidArgument(message("float16", what, do=nearest(name, nodes)))

    def run(self) -> int:
        graph = self._graph
        was_float = {v for node in graph.nodes for v in node.outputs if v.dtype is FLOAT}
        was_float.update(v for v in graph.inputs if v.dtype is FLOAT)
        was_float.update(v for v in graph.initializers.values() if v.dtype is FLOAT)
        kept_outputs = [self._keeps(value.name) for value in graph.outputs]
        for value in (*graph.inputs, *graph.overridable):
            if value.dtype is FLOAT and not self._keeps(value.name):
                self._retype(value)
        count = 0
        for node in list(graph.nodes):
            inputs, outputs = ((), ()) if self._stays(node) else _halves(node, was_float)
            self._give(node, was_float, frozenset(inputs))
            for place in outputs:
                node.outputs[place].dtype, node.outputs[place].declared = FLOAT16, None
            count += bool(inputs or outputs)
        self._finish_outputs(was_float, kept_outputs)
        for value in list(graph.initializers.values()):
            if not value.is_used and value not in graph.overridable:
                graph.remove_initializer(value)
        graph.topological_sort()
        return count

    def _keeps(self, name: str) -> bool:
        keep = self._options.keep_io_types
        return keep if isinstance(keep, bool) else name in keep

    def _stays(self, node: Node) -> bool:
        return (
            node.op_type in self._blocked
            or node.op_type in _ALWAYS_FLOAT
            or node.name in self._options.node_block_list
            or node.domain.startswith("ai.onnx.")
            or any(True for _ in node.subgraphs())
        )

    def _retype(self, value: Value) -> None:
        value.dtype, value.declared = FLOAT16, None
        if value.constant is not None:
            value.constant = Constant.from_array(self._rounded(value.constant.array()), FLOAT16)

    def _rounded(self, array: Array) -> Array:
        """Numbers as half floats; finite ones stay finite, those that are not zero stay so."""
        low, high = self._options.min_positive_val, self._options.max_finite_val
        size = np.abs(array)
        size = np.where((size > 0) & (size < low), np.float32(low), size)
        size = np.where((size > high) & (size < np.inf), np.float32(high), size)
        return np.copysign(size, array).astype(np.float16)

    def _give(self, node: Node, was_float: set[Value], halves: frozenset[int]) -> None:
        """Let a node, and the graphs in it, read its inputs in the types that it wants."""
        inputs: list[Value | None] = []
        for place, value in enumerate(node.inputs):
            if value is None or value not in was_float:
                inputs.append(value)
            else:
                inputs.append(self._as(value, FLOAT16 if place in halves else FLOAT))
        if tuple(inputs) != node.inputs:
            self._graph.set_inputs(node, inputs)
        for value in node.captures():
            if value in was_float and value.dtype is not FLOAT:
                cast = self._as(value, FLOAT)
                inside = {
                    inner for sub in node.subgraphs() for g in sub.graphs() for inner in g.nodes
                }
                for reader, place in value.uses:
                    if reader in inside:
                        read = list(reader.inputs)
                        read[place] = cast
                        self._graph.set_inputs(reader, read)

    def _as(self, value: Value, wanted: DType) -> Value:
        if value.dtype is wanted:
            return value
        if value.constant is not None and value not in self._graph.overridable:
            if value not in self._halves:
                made = Constant.from_array(self._rounded(value.constant.array()), FLOAT16)
                self._halves[value] = self._graph.add_constant(value.name, made)
            return self._halves[value]
        key = (value, wanted)
        if key not in self._casts:
            made_value = self._graph.new_value(f"{value.name}_{wanted.name}", wanted, value.shape)
            first = next(iter(self._graph.nodes), None)
            after = value.producer
            cast = Node("Cast", "", (value,), (made_value,), {"to": wanted.onnx_id})
            if after is not None and after.graph is self._graph:
                self._graph.insert_after(after, cast)
            else:
                self._graph.add_node(cast, before=first)
            self._casts[key] = made_value
        return self._casts[key]

    def _finish_outputs(self, was_float: set[Value], kept: list[bool]) -> None:
        graph = self._graph
        for place, value in enumerate(list(graph.outputs)):
            wanted = FLOAT if kept[place] else FLOAT16
            if value not in was_float or value.dtype is wanted:
                continue
            name = value.name
            plain = value.constant is None and value not in graph.inputs
            if plain and list(graph.outputs).count(value) == 1:
                graph.rename(value, graph.fresh_name(f"{name}_inner"))
            else:
                name = graph.fresh_name(name)
            made = Value(name, wanted, value.shape)
            graph.add_node(Node("Cast", "", (value,), (made,), {"to": wanted.onnx_id}))
            graph.outputs[place] = made


def _halves(node: Node, was_float: set[Value]) -> tuple[list[int], list[int]]:
    """Which inputs and outputs of a node can be half floats, by the operator's signature."""
    signature = signature_of(node.domain, node.op_type, node.version)
    if signature is None:
        return [], []
    kept = _FLOAT_INPUTS.get(node.op_type, ())
    inputs: list[int] = []
    types: set[str] = set()
    for place, value in enumerate(node.inputs):
        parameter = signature.parameter(place)
        if value is None or value not in was_float or parameter is None or place in kept:
            continue
        if FLOAT16.name in signature.types.get(parameter.type, ()):
            inputs.append(place)
            types.add(parameter.type)
    made = _makes_half(node)
    outputs = [
        place
        for place, value in enumerate(node.outputs)
        if value.dtype is FLOAT
        and (made or signature.outputs[min(place, len(signature.outputs) - 1)].type in types)
    ]
    return inputs, outputs


def _makes_half(node: Node) -> bool:
    """Let an attribute that says which type a node makes say half floats; whether there is one."""
    name = _MAKERS.get(node.op_type)
    if node.domain or name is None or node.output.dtype is not FLOAT:
        return False
    if name != "value":
        node.attributes[name] = FLOAT16.onnx_id
        return True
    held = node.attributes.get(name)
    array = held.array() if isinstance(held, Constant) else np.zeros(1)
    node.attributes[name] = Constant.from_array(array.astype(np.float16), FLOAT16)
    return True
