"""A model whose weights are codes, and whose activations become codes in each run.

y = MatMul(x, w)  ->  q, s, z = DynamicQuantizeLinear(x)
                      y = Cast(MatMulInteger(q, codes of w, z, ...)) * (s * scale of w)
"""

from __future__ import annotations

from collections.abc import Callable, Iterable

import numpy as np

from sardonyx.base import dtypes
from sardonyx.base.log import get_logger
from sardonyx.ir.constant import Constant
from sardonyx.ir.graph import Graph
from sardonyx.ir.node import Attribute, Node
from sardonyx.ir.patch import remove_dead
from sardonyx.ir.value import Value
from sardonyx.quantization.arithmetic import Array, parameters_of_weights, quantise
from sardonyx.quantization.enums import QuantType
from sardonyx.quantization.model import FLOATS, is_fixed
from sardonyx.quantization.overrides import check_overrides
from sardonyx.quantization.settings import QuantizationSettings

_logger = get_logger("quantization")
_MICROSOFT = "com.microsoft"

#: Codes, scale and zero point.
Three = tuple[Value, Value, Value]


def quantise_dynamic(graph: Graph, settings: QuantizationSettings) -> None:
    """Quantise a graph, in place.

    Raises:
        InvalidArgument: An override cannot be followed.
    """
    check_overrides(graph, settings.options.overrides)
    graphs = list(graph.graphs()) if settings.options.subgraphs else [graph]
    weights: dict[tuple[Value, QuantType, int | None], Three] = {}
    for inner in graphs:
        writer = _Writer(graph, inner, settings, weights)
        for node in list(inner.nodes):
            if node.graph is inner and node.op_type in _RULES and _is_wanted(settings, node):
                _RULES[node.op_type](writer, node)
    remove_dead(graph)
    if any(node.domain == _MICROSOFT for node in graph.walk()):
        graph.opset.setdefault(_MICROSOFT, 1)


def _is_wanted(settings: QuantizationSettings, node: Node) -> bool:
    """A Gemm is a MatMul, too."""
    as_product = settings.op_types & {"MatMul", "Gemm"} if node.op_type == "Gemm" else frozenset()
    return settings.wants(node, always=bool(as_product))


class _Writer:
    """Puts nodes before the one that is quantised, and removes that."""

    def __init__(
        self,
        outermost: Graph,
        graph: Graph,
        settings: QuantizationSettings,
        weights: dict[tuple[Value, QuantType, int | None], Three],
    ) -> None:
        self.graph = graph
        self.settings = settings
        self._outermost = outermost
        self._weights = weights
        self._activations: dict[Value, Three] = {}

    def activation(self, value: Value) -> Three:
        """A computed tensor as codes of uint8; found once for all that read it."""
        found = self._activations.get(value)
        if found is None:
            graph, name = self.graph, value.name
            made = (
                graph.new_value(f"{name}_quantized", dtypes.UINT8, value.shape),
                graph.new_value(f"{name}_scale", dtypes.FLOAT, ()),
                graph.new_value(f"{name}_zero_point", dtypes.UINT8, ()),
            )
            node = Node("DynamicQuantizeLinear", "", (value,), made, None, f"{name}_QuantizeLinear")
            producer = value.producer
            if producer is not None and producer.graph is graph:
                graph.insert_after(producer, node)
            else:
                graph.add_node(node, before=next(iter(graph.nodes), None))
            found = self._activations[value] = made
        return found

    def weight(
        self,
        value: Value,
        type: QuantType,
        axis: int | None = None,
        *,
        arrange: Callable[[Array], Array] | None = None,
        reduce: bool | None = None,
        symmetric: bool | None = None,
    ) -> Three:
        """A constant as codes, found once for all that read it so.

        Args:
            value: The constant.
            type: Type of codes.
            axis: The axis of channels that have scales of their own.
            arrange: How codes are to lie.
            reduce: Whether to use one bit less; None where the settings say so.
            symmetric: Whether zero is the middle code; None where the settings say so.
        """
        key = value, type, axis
        found = self._weights.get(key) if arrange is None else None
        if found is not None:
            return found
        if value.constant is None:
            raise TypeError("weights that are computed")  # rules have looked
        settings, array = self.settings, value.constant.array()
        items = settings.options.overrides.get(value.name, [{}])[0]
        if symmetric is None:
            symmetric = axis is not None or settings.is_symmetric_weight(type)
        parameters = parameters_of_weights(
            array,
            type,
            symmetric=items.get("symmetric", symmetric),
            axis=axis,
            reduce=settings.reduce_range if reduce is None else reduce,
            least=settings.options.least_range,
            low=items.get("rmin"),
            high=items.get("rmax"),
        )
        codes = quantise(array, parameters)
        found = (
            self.constant(f"{value.name}_quantized", arrange(codes) if arrange else codes),
            self.constant(f"{value.name}_scale", parameters.scale),
            self.constant(f"{value.name}_zero_point", parameters.zero_point),
        )
        if arrange is None:
            self._weights[key] = found
        return found

    def constant(self, name: str, array: Array) -> Value:
        """A constant of the outermost graph."""
        return self._outermost.add_constant(name, Constant.from_array(array))

    def put(
        self,
        before: Node,
        op_type: str,
        inputs: Iterable[Value | None],
        hint: str,
        attributes: dict[str, Attribute] | None = None,
        dtype: dtypes.DType | None = None,
    ) -> Value:
        """A new node, and what it computes."""
        made = self.graph.new_value(hint, dtype)
        node = Node(op_type, "", inputs, (made,), attributes, hint, origin=before.origin)
        self.graph.add_node(node, before=before)
        return made

    def replace(self, node: Node, made: Value) -> None:
        """Let another value take the place of a node's output."""
        made.dtype, made.shape = node.outputs[0].dtype, node.outputs[0].shape
        self.graph.replace_uses(node.outputs[0], made)
        self.graph.remove_node(node)

    def replace_node(
        self, node: Node, op_type: str, inputs: Iterable[Value | None], attributes: object = None
    ) -> None:
        """Let a node of onnxruntime's own domain take the place of another."""
        given = attributes if isinstance(attributes, dict) else node.attributes
        made = []
        for value in node.outputs:
            new = self.graph.new_value(value.name, value.dtype, value.shape)
            made.append(Value("") if value.is_omitted else new)
        new_node = Node(
            op_type, _MICROSOFT, inputs, made, given, f"{node.name}_quant", origin=node.origin
        )
        self.graph.add_node(new_node, before=node)
        for old, new in zip(node.outputs, made, strict=True):
            if not old.is_omitted:
                self.graph.replace_uses(old, new)
        self.graph.remove_node(node)

    def scaled(self, node: Node, sums: Value, scales: Iterable[Value]) -> Value:
        """Sums of products of codes as floats."""
        name = node.name
        floats = self.put(
            node, "Cast", (sums,), f"{name}_cast", {"to": dtypes.FLOAT.onnx_id}, dtypes.FLOAT
        )
        scale = self.put(node, "Mul", scales, f"{name}_scales_mul", dtype=dtypes.FLOAT)
        hint = f"{name}_output_scale_mul"
        return self.put(node, "Mul", (floats, scale), hint, dtype=dtypes.FLOAT)


def _is_float(value: Value | None) -> bool:
    """Whether DynamicQuantizeLinear takes it."""
    return value is not None and value.dtype is dtypes.FLOAT


def _matmul(writer: _Writer, node: Node) -> None:
    made = _product(writer, node, node.inputs[0], node.inputs[1])
    if made is not None:
        writer.replace(node, made)


def _gemm(writer: _Writer, node: Node) -> None:
    """A product and a sum, where that is all it is."""
    given = node.attributes
    factors = [given.get("alpha", 1.0), given.get("beta", 1.0)]
    b, bias = node.inputs[1], node.input(2)
    if factors != [1.0, 1.0] or given.get("transA") or not is_fixed(b):
        return
    made = _product(writer, node, node.inputs[0], b, is_transposed=bool(given.get("transB")))
    if made is not None and bias is not None:
        made = writer.put(node, "Add", (made, bias), f"{node.name}_add", dtype=dtypes.FLOAT)
    if made is not None:
        writer.replace(node, made)


def _product(
    writer: _Writer, node: Node, a: Value | None, b: Value | None, *, is_transposed: bool = False
) -> Value | None:
    """The product of two factors as codes; None where they stay floats.

    Args:
        writer: What writes nodes.
        node: The node that they stand for.
        a: The left factor.
        b: The right one.
        is_transposed: Whether the right one is a constant that lies transposed.
    """
    if a is None or b is None or not _is_float(a) or not _is_float(b):
        return None
    if writer.settings.options.constant_factor_only and not is_fixed(b):
        return None
    left = writer.activation(a)
    if is_fixed(b):
        is_wide = writer.settings.per_channel and len(b.shape or ()) == 2
        axis = (0 if is_transposed else 1) if is_wide else None
        arrange = _transposed if is_transposed else None
        right = writer.weight(b, writer.settings.weight_type, axis, arrange=arrange)
    else:
        right = writer.activation(b)
    inputs = (left[0], right[0], left[2], right[2])
    sums = writer.put(node, "MatMulInteger", inputs, f"{node.name}_quant", dtype=dtypes.INT32)
    return writer.scaled(node, sums, (left[1], right[1]))


def _transposed(codes: Array) -> Array:
    return np.ascontiguousarray(codes.T)


def _conv(writer: _Writer, node: Node) -> None:
    x, weight, bias = node.inputs[0], node.inputs[1], node.input(2)
    if x is None or weight is None or not _is_float(x) or not is_fixed(weight):
        return
    if weight.dtype is not dtypes.FLOAT or weight.shape is None:
        return
    left = writer.activation(x)
    codes, scale, zero = _conv_weight(writer, weight, len(weight.shape))
    inputs = (left[0], codes, left[2], zero)
    sums = writer.put(
        node, "ConvInteger", inputs, f"{node.name}_quant", dict(node.attributes), dtypes.INT32
    )
    made = writer.scaled(node, sums, (left[1], scale))
    if bias is not None:
        column = [1] * len(weight.shape)
        column[1] = -1
        shape = writer.constant(f"{node.name}_bias_shape", np.array(column, np.int64))
        spread = writer.put(node, "Reshape", (bias, shape), f"{node.name}_bias_reshape")
        spread.dtype = dtypes.FLOAT
        made = writer.put(node, "Add", (made, spread), f"{node.name}_bias_add")
    writer.replace(node, made)


def _conv_weight(writer: _Writer, weight: Value, rank: int) -> Three:
    """Filters as uint8, since onnxruntime's ConvInteger takes nothing else.

    Channels may have scales of their own, (channels, 1, 1), but no zero points.
    """
    settings = writer.settings
    if not settings.per_channel:
        symmetric = settings.is_symmetric_weight(settings.weight_type)
        return writer.weight(weight, QuantType.QUInt8, symmetric=symmetric)
    codes, scale, zero = writer.weight(weight, QuantType.QUInt8, 0)
    if scale.constant is None or zero.constant is None:
        raise TypeError("scales that are computed")  # weight gives constants
    spread = scale.constant.array().reshape(-1, *[1] * (rank - 2))
    middle = zero.constant.array()[:1].reshape(())
    return (
        codes,
        writer.constant(f"{weight.name}_scales", spread),
        writer.constant(f"{weight.name}_middle", middle),
    )


def _gather(writer: _Writer, node: Node) -> None:
    data = node.inputs[0]
    if data is None or not is_fixed(data) or data.dtype not in FLOATS:
        return
    codes, scale, zero = writer.weight(data, QuantType.QUInt8, reduce=False, symmetric=False)
    name = node.outputs[0].name
    taken = writer.put(
        node, "Gather", (codes, node.inputs[1]), f"{name}_quantized", dict(node.attributes),
        dtypes.UINT8,
    )  # fmt: skip
    made = writer.put(node, "DequantizeLinear", (taken, scale, zero), f"{name}_DequantizeLinear")
    writer.replace(node, made)


def _lstm(writer: _Writer, node: Node) -> None:
    weight, recurrent = node.input(1), node.input(2)
    if weight is None or recurrent is None or not is_fixed(weight) or not is_fixed(recurrent):
        return
    if weight.dtype is not dtypes.FLOAT or node.attributes.get("layout", 0):
        return
    parts = [_lstm_weight(writer, value) for value in (weight, recurrent)]
    inputs = [
        node.inputs[0],
        *(part[0] for part in parts),
        *(node.input(k) for k in range(3, 8)),
        *(value for part in parts for value in part[1:]),
    ]
    attributes = {k: v for k, v in node.attributes.items() if k != "layout"}
    writer.replace_node(node, "DynamicQuantizeLSTM", inputs, attributes)


def _lstm_weight(writer: _Writer, value: Value) -> Three:
    """Weights of an LSTM: (directions, gates, features), codes with the last two exchanged."""
    if value.constant is None:
        raise TypeError("weights that are computed")  # _lstm has looked
    settings, array = writer.settings, value.constant.array()
    directions, gates, features = array.shape
    flat = array.reshape(directions * gates, features) if settings.per_channel else array
    # Scales are for directions, or for each row of each of them.
    parameters = parameters_of_weights(
        flat, QuantType.QInt8, symmetric=True, axis=0, reduce=settings.reduce_range,
        least=settings.options.least_range,
    )  # fmt: skip
    codes = quantise(flat, parameters).reshape(array.shape).transpose(0, 2, 1)
    shape = (directions, gates) if settings.per_channel else (directions,)
    return (
        writer.constant(f"{value.name}_quantized", np.ascontiguousarray(codes)),
        writer.constant(f"{value.name}_scale", parameters.scale.reshape(shape)),
        writer.constant(f"{value.name}_zero_point", parameters.zero_point.reshape(shape)),
    )


def _attention(writer: _Writer, node: Node) -> None:
    x, weight = node.input(0), node.input(1)
    if x is None or weight is None or not _is_float(x) or not is_fixed(weight):
        return
    if node.domain != _MICROSOFT or "qkv_hidden_sizes" in node.attributes:
        return
    left = writer.activation(x)
    axis = 1 if writer.settings.per_channel else None
    right = writer.weight(weight, writer.settings.weight_type, axis)
    inputs = [
        left[0], right[0], node.input(2), left[1], right[1], node.input(3), left[2], right[2],
        node.input(4),
    ]  # fmt: skip
    writer.replace_node(node, "QAttention", inputs)


def _embed(writer: _Writer, node: Node) -> None:
    tables = [node.input(k) for k in range(2, 7)]
    is_plain = len(node.outputs) <= 2 and node.domain == _MICROSOFT
    if not is_plain or any(t is not None and not is_fixed(t) for t in tables):
        return
    parts = [
        None if t is None else writer.weight(t, QuantType.QUInt8, reduce=False, symmetric=False)
        for t in tables
    ]
    columns = [[None if p is None else p[k] for p in parts] for k in range(3)]
    inputs = [*node.inputs[:2], *columns[0], node.input(7), *columns[1], *columns[2]]
    writer.replace_node(node, "QEmbedLayerNormalization", inputs)


_RULES: dict[str, Callable[[_Writer, Node], None]] = {
    "MatMul": _matmul,
    "Gemm": _gemm,
    "Conv": _conv,
    "Gather": _gather,
    "LSTM": _lstm,
    "Attention": _attention,
    "EmbedLayerNormalization": _embed,
}
#: Operators that are quantised unless others are asked for.
DYNAMIC_OPERATORS = frozenset(_RULES)
