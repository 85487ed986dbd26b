"""Marked tensors become codes: QuantizeLinear and DequantizeLinear are put around them."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np

from sardonyx.base.errors import InvalidArgument, message
from sardonyx.ir.constant import Constant
from sardonyx.ir.graph import Graph
from sardonyx.ir.node import Attribute, Node
from sardonyx.ir.value import Value
from sardonyx.quantization.arithmetic import (
    Array,
    Parameters,
    parameters_of_range,
    parameters_of_weights,
    quantise,
    quantise_bias,
    restricted_parameters,
    widened_for_bias,
)
from sardonyx.quantization.enums import QuantType
from sardonyx.quantization.marks import Bias, Mark, Marks
from sardonyx.quantization.model import is_fixed
from sardonyx.quantization.overrides import given_parameters

_WIDENED = (QuantType.QInt8, QuantType.QInt16)


class Inserter:
    """Puts the nodes in. Tensors that share parameters share the constants of them, too."""

    def __init__(self, marks: Marks, domain: str = "") -> None:
        self._marks = marks
        self._graph: Graph = marks.graph
        self._domain = domain
        self._settings = marks.settings
        self._options = marks.options
        self._parameters: dict[Value, Parameters] = {}
        self._pairs: dict[Value, tuple[Value, Value]] = {}

    def run(self) -> None:
        """Insert everything that was marked."""
        for value in self._marks.tensors:
            self._of(value)
        self._widen()
        for bias in self._marks.biases:
            self._insert_bias(bias)
        for value, mark in self._marks.tensors.items():
            if value in self._parameters:
                self._insert(value, mark)

    # Scales and zero points

    def _of(self, value: Value) -> Parameters | None:
        """The parameters of a marked tensor; None where it cannot have any."""
        found = self._parameters.get(value)
        mark = self._marks.tensors.get(value)
        if found is not None or mark is None:
            return found
        if mark.like is not None and value.name not in self._options.overrides:
            found = self._shared(value, mark.like)
        elif is_fixed(value):
            found = self._of_constant(value, mark)
        else:
            found = self._of_range(value, mark)
        if found is not None:
            self._parameters[value] = found
        return found

    def _shared(self, value: Value, like: Value) -> Parameters | None:
        found = self._of(like)
        if found is None or found.axis is not None:
            return self._of_range(value, Mark()) if value in self._marks.ranges else None
        self._pairs.setdefault(like, self._constants(like, found))
        self._pairs[value] = self._pairs[like]
        return found

    def _of_constant(self, value: Value, mark: Mark) -> Parameters:
        items = self._options.overrides.get(value.name, [{}])
        first = items[0]
        settings = self._settings
        type = settings.weight_type if mark.is_weight else settings.activation_type
        given = given_parameters(items, type, value)
        if given is not None:
            return given
        type = first.get("quant_type", type)
        if mark.is_weight:
            symmetric = mark.axis is not None or settings.is_symmetric_weight(type)
        else:
            symmetric = self._options.activation_symmetric
        options: dict[str, Any] = {
            "symmetric": first.get("symmetric", symmetric),
            "reduce": first.get("reduce_range", settings.reduce_range),
            "least": self._options.least_range,
        }
        array = _array(value)
        block = self._options.block if mark.is_weight else 0
        if block:
            if array.ndim != 2:
                what = f"{value.name!r} has {array.ndim} axes, and only matrices have blocks"
                raise InvalidArgument(message("BlockSize", what, do="Exclude its node"))
            return parameters_of_weights(array, type, axis=mark.axis or 0, block=block, **options)
        low, high = (_each(items, key) for key in ("rmin", "rmax"))
        return parameters_of_weights(array, type, axis=mark.axis, low=low, high=high, **options)

    def _of_range(self, value: Value, mark: Mark) -> Parameters:
        settings, options = self._settings, self._options
        items = options.overrides.get(value.name, [{}])
        type = settings.weight_type if mark.is_weight else settings.activation_type
        if mark.is_weight and not is_fixed(value):
            type = settings.activation_type
        given = given_parameters(items, type, value)
        if given is not None:
            return given
        first = items[0]
        type = first.get("quant_type", type)
        found = self._marks.ranges.get(value)
        if found is None and not {"rmin", "rmax"} <= first.keys():
            raise InvalidArgument(
                message(
                    f"tensor {value.name}",
                    "Calibration has seen no range of it",
                    do="Calibrate the operator that computes it, or exclude the node",
                )
            )
        low, high = found.range_value if found is not None else (0.0, 0.0)
        low, high = first.get("rmin", low), first.get("rmax", high)
        symmetric = first.get("symmetric", options.activation_symmetric)
        float_type = value.dtype.numpy if value.dtype is not None else np.float32
        reduce = first.get("reduce_range", False)
        if options.restricted_asymmetric and type is QuantType.QUInt8 and not symmetric:
            return restricted_parameters(
                float(np.min(low)), float(np.max(high)), float_type, least=options.least_range
            )
        return parameters_of_range(
            np.min(low), np.max(high), type, float_type,
            symmetric=symmetric, reduce=reduce, least=options.least_range,
        )  # fmt: skip

    def _widen(self) -> None:
        """Make scales of weights larger where a bias would not fit in 32 bits."""
        if self._options.no_widening:
            return
        for bias in self._marks.biases:
            weight, scale = self._parameters.get(bias.weight), self._input_scale(bias.x)
            if weight is None or scale is None or weight.type not in _WIDENED or weight.block:
                continue
            if not is_fixed(bias.weight) or weight.zero_point.any():
                continue
            wide = widened_for_bias(weight.scale, scale * bias.alpha, self._bias_array(bias))
            self._parameters[bias.weight] = replace(weight, scale=wide)

    def _input_scale(self, x: Value) -> Array | None:
        """The one scale of a tensor that is marked, or came as codes."""
        found = self._parameters.get(x)
        if found is not None:
            return found.scale if found.axis is None else None
        producer = x.producer
        if producer is not None and producer.op_type == "DequantizeLinear":
            scale = producer.input(1)
            if scale is not None and is_fixed(scale) and _array(scale).size == 1:
                return _array(scale).reshape(())
        return None

    def _bias_array(self, bias: Bias) -> Array:
        value = bias.node.inputs[bias.index]
        if value is None:
            raise TypeError("a bias that is not there")  # Marks.bias has looked
        array = _array(value)
        return array if bias.beta == 1 else (array * bias.beta).astype(array.dtype)

    # Nodes

    def _insert_bias(self, bias: Bias) -> None:
        weight, x_scale = self._parameters.get(bias.weight), self._input_scale(bias.x)
        value = bias.node.inputs[bias.index]
        if weight is None or x_scale is None or value is None or weight.block:
            return
        array = self._bias_array(bias)
        scale = (weight.scale.astype(np.float64) * float(x_scale) * bias.alpha).astype(array.dtype)
        if scale.ndim and (array.ndim != 1 or array.shape != scale.shape):
            return  # a bias that broadcasts has no scale for each channel
        codes = quantise_bias(array, scale)
        name = f"{value.name}_quantized"
        held = self._constant(name, codes)
        parts = self._constants_named(name, scale, np.zeros(scale.shape, np.int32))
        attributes: dict[str, Attribute] = {"axis": 0} if scale.ndim else {}
        made = self._graph.new_value(f"{value.name}_dequantized", value.dtype, array.shape)
        self._graph.add_node(
            Node(
                "DequantizeLinear", self._domain, (held, *parts), (made,), attributes,
                f"{value.name}_DequantizeLinear",
            ),
            before=bias.node,
        )  # fmt: skip
        inputs = list(bias.node.inputs)
        inputs[bias.index] = made
        self._graph.set_inputs(bias.node, inputs)
        if bias.node.op_type == "Gemm":
            bias.node.attributes.pop("beta", None)

    def _insert(self, value: Value, mark: Mark) -> None:
        parameters = self._parameters[value]
        pair = self._pairs.get(value) or self._constants(value, parameters)
        self._pairs[value] = pair
        attributes: dict[str, Attribute] = {}
        if parameters.axis is not None:
            attributes["axis"] = parameters.axis
        if parameters.block:
            attributes["block_size"] = parameters.block
        if is_fixed(value) and not self._options.pair_at_weight:
            codes = self._constant(f"{value.name}_quantized", quantise(_array(value), parameters))
            self._replace_weight(value, codes, pair, attributes)
            return
        readers = value.uses
        if self._options.dedicated_pairs and len(readers) > 1 and not is_fixed(value):
            wanted = [use for use in readers if self._settings.wants(use[0])]
            for number, (node, index) in enumerate(wanted, 1):
                made, _ = self._pair(value, pair, attributes, f"_{number}")
                inputs = list(node.inputs)
                inputs[index] = made
                self._graph.set_inputs(node, inputs)
            return
        self._let_read(value, *self._pair(value, pair, attributes))

    def _replace_weight(
        self,
        value: Value,
        codes: Value,
        pair: tuple[Value, Value],
        attributes: dict[str, Attribute],
    ) -> None:
        graph = self._graph
        made = graph.new_value(f"{value.name}_DequantizeLinear_Output", value.dtype, value.shape)
        name = f"{value.name}_DequantizeLinear"
        node = Node("DequantizeLinear", self._domain, (codes, *pair), (made,), attributes, name)
        graph.add_node(node, before=self._first_node())
        graph.replace_uses(value, made)
        if value in graph.overridable:
            graph.overridable.remove(value)
        graph.remove_initializer(value)

    def _pair(
        self,
        value: Value,
        pair: tuple[Value, Value],
        attributes: dict[str, Attribute],
        suffix: str = "",
    ) -> tuple[Value, Node]:
        """QuantizeLinear and DequantizeLinear behind a value."""
        graph = self._graph
        codes = graph.new_value(
            f"{value.name}_QuantizeLinear_Output{suffix}", pair[1].dtype, value.shape
        )
        made = graph.new_value(
            f"{value.name}_DequantizeLinear_Output{suffix}", value.dtype, value.shape
        )
        first = Node(
            "QuantizeLinear", self._domain, (value, *pair), (codes,), attributes,
            f"{value.name}_QuantizeLinear{suffix}",
        )  # fmt: skip
        second = Node(
            "DequantizeLinear", self._domain, (codes, *pair), (made,), attributes,
            f"{value.name}_DequantizeLinear{suffix}",
        )  # fmt: skip
        producer = value.producer
        if producer is not None and producer.graph is graph:
            graph.insert_after(producer, first)
        else:
            graph.add_node(first, before=self._first_node())
        graph.insert_after(first, second)
        return made, first

    def _let_read(self, value: Value, made: Value, quantizer: Node) -> None:
        """Let all readers of a value, but the node behind it, read another."""
        if value not in self._graph.inputs:
            self._graph.replace_uses(value, made)
            self._graph.set_inputs(quantizer, (value, *quantizer.inputs[1:]))
            return
        for node, index in value.uses:
            if node is not quantizer:
                inputs = list(node.inputs)
                inputs[index] = made
                self._graph.set_inputs(node, inputs)

    def _first_node(self) -> Node | None:
        return next(iter(self._graph.nodes), None)

    # Constants

    def _constants(self, value: Value, parameters: Parameters) -> tuple[Value, Value]:
        return self._constants_named(value.name, parameters.scale, parameters.zero_point)

    def _constants_named(self, name: str, scale: Array, zero: Array) -> tuple[Value, Value]:
        return self._constant(f"{name}_scale", scale), self._constant(f"{name}_zero_point", zero)

    def _constant(self, name: str, array: Array) -> Value:
        return self._graph.add_constant(name, Constant.from_array(array))


def _array(value: Value) -> Array:
    if value.constant is None:
        raise TypeError(f"{value.name} is no constant")  # callers have looked
    return value.constant.array()


def _each(items: list[dict[str, Any]], key: str) -> Any:
    """One number, or one for each channel, where overrides give them."""
    found = [item.get(key) for item in items]
    if any(number is None for number in found):
        return None
    return found[0] if len(found) == 1 else np.array(found)
