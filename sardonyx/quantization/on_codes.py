"""Operators between DequantizeLinear and QuantizeLinear become operators on codes.

QuantizeLinear(Conv(DequantizeLinear(x), DequantizeLinear(w))) -> QLinearConv(x, w); what only moves
elements moves codes. What has no such operator stays as it is.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from sardonyx.ir.constant import Constant
from sardonyx.ir.graph import Graph
from sardonyx.ir.node import Attribute, Node
from sardonyx.ir.value import Value
from sardonyx.quantization.arithmetic import Parameters, quantise
from sardonyx.quantization.calibration_data import TensorData
from sardonyx.quantization.enums import QuantType
from sardonyx.quantization.marks import Ranges
from sardonyx.quantization.rules import attribute, pads_with_codes
from sardonyx.quantization.settings import QuantizationSettings

_MICROSOFT = "com.microsoft"


@dataclass(frozen=True)
class Coded:
    """A tensor as codes."""

    codes: Value
    scale: Value
    zero: Value

    @property
    def three(self) -> tuple[Value, Value, Value]:
        """As operators take them."""
        return self.codes, self.scale, self.zero


@dataclass(frozen=True)
class Replacement:
    """An operator on codes.

    Attributes:
        op_type: Its name.
        inputs: What it reads.
        domain: Its domain.
        attributes: Its attributes.
    """

    op_type: str
    inputs: Sequence[Value | None]
    domain: str
    attributes: dict[str, Attribute]


#: Given a node, its inputs and its output as codes (or None), the operator on codes, or None.
Conversion = Callable[[Node, Sequence[Coded | None], Coded], Replacement | None]


def _conv(node: Node, inputs: Sequence[Coded | None], output: Coded) -> Replacement | None:
    x, weight = inputs[0], inputs[1]
    if x is None or weight is None:
        return None
    read: list[Value | None] = [*x.three, *weight.three, output.scale, output.zero]
    if node.input(2) is not None:
        bias = inputs[2]
        if bias is None:
            return None
        read.append(bias.codes)
    return Replacement("QLinearConv", read, "", node.attributes)


def _matmul(node: Node, inputs: Sequence[Coded | None], output: Coded) -> Replacement | None:
    a, b = inputs
    if a is None or b is None:
        return None
    read = [*a.three, *b.three, output.scale, output.zero]
    return Replacement("QLinearMatMul", read, "", {})


def _gemm(node: Node, inputs: Sequence[Coded | None], output: Coded) -> Replacement | None:
    a, b = inputs[0], inputs[1]
    if a is None or b is None:
        return None
    bias = inputs[2] if len(inputs) > 2 else None
    if node.input(2) is not None and bias is None:
        return None
    attributes = {k: v for k, v in node.attributes.items() if k != "beta"}
    read = [*a.three, *b.three, bias.codes if bias else None, output.scale, output.zero]
    return Replacement("QGemm", read, _MICROSOFT, attributes)


def _one(op_type: str, **further: Attribute) -> Conversion:
    """x, scale, zero point, then those of the output."""

    def convert(node: Node, inputs: Sequence[Coded | None], output: Coded) -> Replacement | None:
        x = inputs[0]
        if x is None:
            return None
        attributes = {**node.attributes, **further}
        return Replacement(op_type, [*x.three, output.scale, output.zero], _MICROSOFT, attributes)

    return convert


def _softmax(node: Node, inputs: Sequence[Coded | None], output: Coded) -> Replacement | None:
    return _one("QLinearSoftmax", opset=node.version)(node, inputs, output)


def _two(op_type: str) -> Conversion:
    """Two inputs with their scales and zero points, then those of the output."""

    def convert(node: Node, inputs: Sequence[Coded | None], output: Coded) -> Replacement | None:
        a, b = inputs
        if a is None or b is None:
            return None
        read = [*a.three, *b.three, output.scale, output.zero]
        return Replacement(op_type, read, _MICROSOFT, node.attributes)

    return convert


def _concat(node: Node, inputs: Sequence[Coded | None], output: Coded) -> Replacement | None:
    read: list[Value | None] = [output.scale, output.zero]
    for x in inputs:
        if x is None:
            return None
        read.extend(x.three)
    return Replacement("QLinearConcat", read, _MICROSOFT, node.attributes)


def _where(node: Node, inputs: Sequence[Coded | None], output: Coded) -> Replacement | None:
    _, x, y = inputs
    if x is None or y is None:
        return None
    read = [node.inputs[0], *x.three, *y.three, output.scale, output.zero]
    return Replacement("QLinearWhere", read, _MICROSOFT, node.attributes)


_CONVERSIONS: dict[str, Conversion] = {
    "Conv": _conv,
    "MatMul": _matmul,
    "Gemm": _gemm,
    "Add": _two("QLinearAdd"),
    "Mul": _two("QLinearMul"),
    "LeakyRelu": _one("QLinearLeakyRelu"),
    "Sigmoid": _one("QLinearSigmoid"),
    "AveragePool": _one("QLinearAveragePool"),
    "GlobalAveragePool": _one("QLinearGlobalAveragePool", channels_last=0),
    "Softmax": _softmax,
    "Concat": _concat,
    "Where": _where,
}
#: Operators that move elements of their first input, and so may move its codes.
_MOVERS = frozenset(
    """Reshape Transpose Squeeze Unsqueeze Flatten MaxPool Split Gather Slice Pad Resize""".split()
)
#: All that are worth quantising where operators work on codes.
OPERATORS_ON_CODES = frozenset(_CONVERSIONS) | _MOVERS | {"ArgMax", "Relu", "Clip"}


def fix_ranges(graph: Graph, settings: QuantizationSettings, ranges: Ranges) -> None:
    """Ranges that operators on codes insist on: that of Softmax has a scale of 1/256."""
    for node in graph.nodes:
        if node.op_type == "Softmax" and settings.wants(node) and node.outputs[0] in ranges:
            ranges[node.outputs[0]] = TensorData(
                lowest=np.float32(0), highest=np.float32(255 / 256)
            )


def move_to_codes(graph: Graph) -> None:
    """Replace what has an operator on codes, in place."""
    for node in list(graph.nodes):
        if node.domain or node.graph is not graph:
            continue
        if node.op_type == "ArgMax":
            _read_codes(graph, node)
        elif node.op_type in _MOVERS:
            _move(graph, node)
        elif node.op_type in _CONVERSIONS:
            _convert(graph, node)


def _convert(graph: Graph, node: Node) -> None:
    quantizer = _quantizer(node.outputs[0])
    if quantizer is None:
        return
    output = Coded(quantizer.outputs[0], *_pair(quantizer))
    inputs = [_coded(value) for value in node.inputs]
    found = _CONVERSIONS[node.op_type](node, inputs, output)
    if found is not None:
        _put(graph, node, [quantizer], found)


def _move(graph: Graph, node: Node) -> None:
    """Let a node move codes, if its outputs become codes of the same meaning."""
    x = _coded(node.input(0))
    quantizers = [_quantizer(value) for value in node.outputs]
    if x is None or not _moves_exactly(node):
        return
    if any(q is None or _pair(q) != (x.scale, x.zero) for q in quantizers):
        return
    inputs = [x.codes, *node.inputs[1:]]
    if node.op_type == "Pad":
        inputs = [*inputs, None, None][:2] + [_filler(graph, node, x), *inputs[3:]]
    found = Replacement(node.op_type, inputs, "", node.attributes)
    _put(graph, node, [q for q in quantizers if q is not None], found)


def _moves_exactly(node: Node) -> bool:
    if node.op_type == "Pad":
        return node.version >= 11 and pads_with_codes(node)
    if node.op_type == "Resize":
        return attribute(node, "mode", "nearest") == "nearest"
    return len(node.outputs) == 1 or node.op_type == "Split"


def _filler(graph: Graph, node: Node, x: Coded) -> Value | None:
    """What stands for zero among codes."""
    if attribute(node, "mode", "constant") != "constant":
        return None
    if x.scale.constant is None or x.zero.constant is None:
        return x.zero
    parameters = Parameters(x.scale.constant.array(), x.zero.constant.array(), _type_of(x.zero))
    zero = quantise(np.zeros((), np.float32), parameters)
    return graph.add_constant(f"{node.name}_filler", Constant.from_array(zero))


def _type_of(value: Value) -> QuantType:
    return next(t for t in QuantType if t.dtype is value.dtype)


def _read_codes(graph: Graph, node: Node) -> None:
    """The largest number has the largest code."""
    x = _coded(node.input(0))
    if x is not None and x.zero.shape == ():
        graph.set_inputs(node, (x.codes, *node.inputs[1:]))


def _put(graph: Graph, node: Node, quantizers: list[Node], found: Replacement) -> None:
    made = [graph.new_value(q.outputs[0].name, q.outputs[0].dtype, q.outputs[0].shape)
            for q in quantizers]  # fmt: skip
    version = node.version if not found.domain and found.op_type == node.op_type else 0
    graph.add_node(
        Node(
            found.op_type, found.domain, found.inputs, made, found.attributes,
            f"{node.name}_quant", version, node.origin,
        ),
        before=node,
    )  # fmt: skip
    for quantizer, value in zip(quantizers, made, strict=True):
        graph.replace_uses(quantizer.outputs[0], value)
        graph.remove_node(quantizer)
    graph.remove_node(node)


def _quantizer(value: Value) -> Node | None:
    """The one reader of a value, if it is a QuantizeLinear with one scale."""
    if value.use_count != 1 or value.is_graph_output:
        return None
    ((node, index),) = value.uses
    is_quantizer = node.op_type == "QuantizeLinear" and index == 0 and len(node.inputs) == 3
    return node if is_quantizer and "axis" not in node.attributes else None


def _coded(value: Value | None) -> Coded | None:
    """The codes that a value was made of."""
    node = value.producer if value is not None else None
    if node is None or node.op_type != "DequantizeLinear" or node.inputs[0] is None:
        return None
    return Coded(node.inputs[0], *_pair(node))


def _pair(node: Node) -> tuple[Value, Value]:
    scale, zero = node.inputs[1], node.inputs[2]
    if scale is None or zero is None:
        raise TypeError("a node without scale")  # the inserter gives both
    return scale, zero
