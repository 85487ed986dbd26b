"""Weight-only quantisation: constant right factors become codes of few bits in blocks."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import numpy as np

from sardonyx.base import dtypes, errors
from sardonyx.base.errors import InvalidArgument, message
from sardonyx.base.log import get_logger
from sardonyx.ir.constant import Constant
from sardonyx.ir.graph import Graph
from sardonyx.ir.node import Attribute, Node
from sardonyx.ir.patch import remove_dead
from sardonyx.ir.value import Value
from sardonyx.quantization.arithmetic import Array
from sardonyx.quantization.block_configs import (
    DefaultWeightOnlyQuantConfig,
    RTNWeightOnlyQuantConfig,
    WeightOnlyQuantConfig,
)
from sardonyx.quantization.blocks import blocks_of, pack
from sardonyx.quantization.enums import QuantFormat
from sardonyx.quantization.model import FLOATS, is_fixed, open_model, raise_opset
from sardonyx.quantization.written import WritableModel

#: onnxruntime has all of them in the module of this name.
__all__ = [
    "DefaultWeightOnlyQuantConfig",
    "MatMul4BitsQuantizer",
    "MatMulNBitsQuantizer",
    "RTNWeightOnlyQuantConfig",
    "WeightOnlyQuantConfig",
]

_logger = get_logger("quantization")
_MICROSOFT = "com.microsoft"
_SIGNED = {2: dtypes.INT2, 4: dtypes.INT4, 8: dtypes.INT8}
_UNSIGNED = {2: dtypes.UINT2, 4: dtypes.UINT4, 8: dtypes.UINT8}
#: Types of weights that become codes.
_TYPES = (*FLOATS, dtypes.BFLOAT16)


class MatMulNBitsQuantizer:
    """Turns constant right factors into codes of few bits.

    Attributes:
        model: The model; `model.save_model_to_file(path, use_external_data_format)` writes it, and
            `model.model` is its `ModelProto` (where the package onnx is installed).

    Args:
        model: A path, bytes or a `ModelProto`.
        bits: 2, 4 or 8.
        block_size: Elements in a block.
        is_symmetric: Whether zero is the middle code.
        accuracy_level: The attribute of MatMulNBits; 4 lets activations be rounded to 8 bits.
        nodes_to_exclude: Names of nodes to leave alone.
        nodes_to_include: Names of nodes to quantise besides the operators' own.
        quant_format: An operator on codes, or DequantizeLinear before MatMul.
        op_types_to_quantize: MatMul, Gather or both.
        quant_axes: Axis along which blocks lie, by operator.
        channel_wised_quantize: One block for each column; only with QDQ.
        algo_config: All of that at once.

    Raises:
        InvalidArgument: An argument is out of range.
        NotImplemented: The algorithm is another than DEFAULT and RTN.
    """

    def __init__(
        self,
        model: Any,
        bits: int = 4,
        block_size: int = 128,
        is_symmetric: bool = False,
        accuracy_level: int | None = None,
        nodes_to_exclude: Iterable[str] | None = None,
        nodes_to_include: Iterable[str] | None = None,
        quant_format: QuantFormat = QuantFormat.QOperator,
        op_types_to_quantize: Iterable[str] | None = None,
        quant_axes: Iterable[tuple[str, int]] | None = None,
        channel_wised_quantize: bool = False,
        algo_config: WeightOnlyQuantConfig | None = None,
    ) -> None:
        if isinstance(algo_config, DefaultWeightOnlyQuantConfig):
            config = algo_config
        elif algo_config is None or isinstance(algo_config, RTNWeightOnlyQuantConfig):
            given = algo_config
            config = DefaultWeightOnlyQuantConfig(
                block_size,
                is_symmetric,
                accuracy_level,
                given.quant_format if given else quant_format,
                given.op_types_to_quantize if given else op_types_to_quantize,
                quant_axes,
                bits,
                channel_wised_quantize,
            )
        else:
            what = f"The algorithm {algo_config.algorithm} is not supported"
            raise errors.NotImplemented(
                message("MatMulNBitsQuantizer", what, do="Take DefaultWeightOnlyQuantConfig")
            )
        self.algo_config = config
        self.bits = config.bits
        self.block_size = config.block_size
        self.is_symmetric = config.is_symmetric
        self.accuracy_level = config.accuracy_level
        self.nodes_to_exclude = set(nodes_to_exclude or ())
        self.nodes_to_include = set(nodes_to_include or ())
        self.model = WritableModel(open_model(model, prepare=False))

    def process(self) -> None:
        """Quantise what can be; what cannot stays, and the log says why."""
        graph, config = self.model.graph, self.algo_config
        if config.quant_format is QuantFormat.QDQ:
            graph = raise_opset(graph, 25 if config.bits == 2 else 21, "A block of weights")
            self.model.graph = graph
        elif "Gather" in config.op_types_to_quantize:
            header = graph.header
            header.ir_version = max(header.ir_version, 10)
        writer = _Writer(graph, config)
        for inner in list(graph.graphs()):
            for node in list(inner.nodes):
                if self._wants(node):
                    writer.quantise(inner, node)
        remove_dead(graph)
        if any(node.domain == _MICROSOFT for node in graph.walk()):
            graph.opset.setdefault(_MICROSOFT, 1)

    def _wants(self, node: Node) -> bool:
        if node.name in self.nodes_to_exclude or node.domain:
            return False
        is_kind = node.op_type in self.algo_config.op_types_to_quantize
        is_named = node.name in self.nodes_to_include and node.op_type in ("MatMul", "Gather")
        return is_kind or is_named


#: The name that it had when there were 4 bits only.
MatMul4BitsQuantizer = MatMulNBitsQuantizer


class _Writer:
    def __init__(self, graph: Graph, config: DefaultWeightOnlyQuantConfig) -> None:
        self._graph = graph
        self._config = config
        self._held: dict[tuple[Value, str], list[Value]] = {}

    def quantise(self, graph: Graph, node: Node) -> None:
        """Quantise one node, if its weights are constants of a fitting shape."""
        weight = node.inputs[1 if node.op_type == "MatMul" else 0]
        if weight is None or not is_fixed(weight) or weight.dtype not in _TYPES:
            _logger.info("%s: its weights are no constant floats", node.name)
            return
        if node.op_type == "Gather":
            self._gather(graph, node, weight)
        elif self._is_matrix(node, weight):
            if self._config.quant_format is QuantFormat.QDQ:
                self._dequantised(graph, node, weight)
            else:
                self._matmul(graph, node, weight)

    @staticmethod
    def _is_matrix(node: Node, weight: Value) -> bool:
        """Whether the weights are a matrix, or have axes of 1 that the left factor has, too."""
        shape = weight.constant.shape if weight.constant is not None else ()
        left = node.inputs[0]
        axes = len(left.shape) if left is not None and left.shape is not None else 0
        if len(shape) == 2 and axes >= 1:
            return True
        if len(shape) > 2 and all(d == 1 for d in shape[:-2]) and axes >= len(shape):
            return True
        _logger.info("%s: weights of the shape %s have no blocks", node.name, list(shape))
        return False

    def _matmul(self, graph: Graph, node: Node, weight: Value) -> None:
        config, name = self._config, weight.name
        matrix = _matrix(weight)
        rows, columns = matrix.shape
        key = weight, "MatMul"
        if key not in self._held:
            codes, scales, zeros = blocks_of(
                matrix, config.bits, config.block_size, symmetric=config.is_symmetric
            )
            held = [
                self._constant(f"{name}_Q{config.bits}", pack(codes, config.bits)),
                self._constant(f"{name}_scales", scales, weight.dtype),
            ]
            if zeros is not None:
                held.append(self._constant(f"{name}_zero_points", pack(zeros, config.bits)))
            self._held[key] = held
        attributes: dict[str, Attribute] = {
            "K": rows, "N": columns, "bits": config.bits, "block_size": config.block_size,
        }  # fmt: skip
        if config.accuracy_level:
            attributes["accuracy_level"] = config.accuracy_level
        inputs = (node.inputs[0], *self._held[key])
        self._put(graph, node, "MatMulNBits", inputs, attributes)

    def _dequantised(self, graph: Graph, node: Node, weight: Value) -> None:
        """DequantizeLinear before the MatMul: blocks along axis 0."""
        config, name = self._config, weight.name
        key = weight, "QDQ"
        if key not in self._held:
            matrix = _matrix(weight)
            size = matrix.shape[0] if config.channel_wised_quantize else config.block_size
            codes, scales, zeros = blocks_of(
                matrix, config.bits, size, symmetric=config.is_symmetric
            )
            middle = 1 << (config.bits - 1) if config.is_symmetric else 0
            flat = codes.reshape(codes.shape[0], -1)[:, : matrix.shape[0]].T.astype(np.int16)
            table = _SIGNED if config.is_symmetric else _UNSIGNED
            dtype = table[config.bits]
            held = [
                self._constant(f"{name}_DQ_Q{config.bits}", flat - middle, dtype),
                self._constant(f"{name}_DQ_scales", np.ascontiguousarray(scales.T), weight.dtype),
            ]
            if zeros is not None:
                points = np.ascontiguousarray(zeros.reshape(scales.shape).T)
                held.append(self._constant(f"{name}_DQ_zero_points", points, dtype))
            made = self._graph.new_value(f"{name}_DQ_output", weight.dtype, matrix.shape)
            attributes: dict[str, Attribute] = {"axis": 0, "block_size": size}
            self._graph.add_node(
                Node("DequantizeLinear", "", held, (made,), attributes, f"{name}_DQ"),
                before=next(iter(self._graph.nodes), None),
            )
            self._held[key] = [made]
        graph.set_inputs(node, (node.inputs[0], self._held[key][0]))

    def _gather(self, graph: Graph, node: Node, weight: Value) -> None:
        config, name = self._config, weight.name
        if config.quant_format is QuantFormat.QDQ or config.bits == 2:
            _logger.warning("%s: Gather has blocks of 4 or 8 bits, and no QDQ format", node.name)
            return
        rank = len(weight.constant.shape) if weight.constant is not None else 0
        axis = config.quant_axes.get("Gather", 1)
        if not -rank <= axis < rank:
            what = f"{name!r} has no axis {axis} for blocks to lie along"
            raise InvalidArgument(message(f"node {node.name} (Gather)", what))
        axis %= rank
        key = weight, "Gather"
        if key not in self._held:
            self._held[key] = self._blocks_along(weight, axis)
        gathered: Any = node.attributes.get("axis", 0)
        attributes: dict[str, Attribute] = {
            "gather_axis": gathered, "quantize_axis": axis, "block_size": config.block_size,
        }  # fmt: skip
        if config.bits == 8:
            attributes["bits"] = 8
        codes, *others = self._held[key]
        self._put(graph, node, "GatherBlockQuantized", (codes, node.inputs[1], *others), attributes)

    def _blocks_along(self, weight: Value, axis: int) -> list[Value]:
        """Codes, scales and zero points of a tensor whose blocks lie along any axis."""
        config, name = self._config, weight.name
        if weight.constant is None:
            raise TypeError("weights that are computed")  # quantise has looked
        array = np.moveaxis(weight.constant.array(), axis, 0)
        matrix = array.reshape(array.shape[0], -1)
        codes, scales, zeros = blocks_of(
            matrix, config.bits, config.block_size, symmetric=config.is_symmetric
        )
        length, others = array.shape[0], array.shape[1:]
        # For 8 bits the operator takes uint8 alone, and 128 for a zero point that is left out.
        is_signed = config.is_symmetric and config.bits == 4
        dtype = (_SIGNED if is_signed else _UNSIGNED)[config.bits]
        middle = 1 << (config.bits - 1) if is_signed else 0

        def placed(columns: Array, rows: int) -> Array:
            whole = columns.reshape(columns.shape[0], -1)[:, :rows].T.reshape(rows, *others)
            return np.ascontiguousarray(np.moveaxis(whole, 0, axis))

        moved = placed(codes.astype(np.int16), length) - middle
        held = [
            self._constant(f"{name}_Q{config.bits}", moved, dtype),
            self._constant(f"{name}_scales", placed(scales, scales.shape[1]), weight.dtype),
        ]
        if zeros is not None:
            points = placed(zeros, scales.shape[1])
            held.append(self._constant(f"{name}_zero_points", points, dtype))
        return held

    def _put(
        self,
        graph: Graph,
        node: Node,
        op_type: str,
        inputs: Iterable[Value | None],
        attributes: dict[str, Attribute],
    ) -> None:
        old = node.outputs[0]
        made = graph.new_value(old.name, old.dtype, old.shape)
        name = f"{node.name}_Q{self._config.bits}"
        graph.add_node(
            Node(op_type, _MICROSOFT, inputs, (made,), attributes, name, origin=node.origin),
            before=node,
        )
        graph.replace_uses(old, made)
        graph.remove_node(node)

    def _constant(self, name: str, array: Array, dtype: dtypes.DType | None = None) -> Value:
        return self._graph.add_constant(name, Constant.from_array(array, dtype))


def _matrix(weight: Value) -> Array:
    if weight.constant is None:
        raise TypeError("weights that are computed")  # callers have looked
    array = weight.constant.array()
    found: Array = array.reshape(array.shape[-2:])
    return found
