"""A model whose activations have scales that were calibrated beforehand."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from sardonyx.ir.graph import Graph
from sardonyx.ir.patch import remove_dead
from sardonyx.quantization.calibration_data import TensorData, TensorsData
from sardonyx.quantization.enums import QuantFormat
from sardonyx.quantization.insert import Inserter
from sardonyx.quantization.marks import Marks, Ranges
from sardonyx.quantization.on_codes import OPERATORS_ON_CODES, fix_ranges, move_to_codes
from sardonyx.quantization.overrides import check_overrides
from sardonyx.quantization.rules import OPERATOR_RULES, QDQ_RULES, every_tensor
from sardonyx.quantization.settings import QuantizationSettings

#: Domain of operators that are onnxruntime's own.
MICROSOFT = "com.microsoft"


def quantise_static(
    graph: Graph,
    settings: QuantizationSettings,
    tensors: TensorsData,
    format: QuantFormat,
    domain: str = "",
) -> None:
    """Quantise a graph, in place.

    Args:
        graph: A graph with types.
        settings: What to quantise.
        tensors: Ranges by name.
        format: Floats between codes, or operators on codes.
        domain: That of QuantizeLinear and DequantizeLinear.

    Raises:
        InvalidArgument: A tensor has no range, or an override cannot be followed.
    """
    check_overrides(graph, settings.options.overrides)
    ranges = _ranges(graph, settings, tensors)
    if format is QuantFormat.QOperator:
        fix_ranges(graph, settings, ranges)
    marks = Marks(graph, settings, ranges)
    if format is QuantFormat.QOperator:
        marks.settings = _only(settings, OPERATORS_ON_CODES)
        marks.collect(OPERATOR_RULES, every_tensor)
    else:
        marks.collect(QDQ_RULES, every_tensor)
    Inserter(marks, domain).run()
    if format is QuantFormat.QOperator:
        move_to_codes(graph)
    remove_dead(graph)
    if domain or any(node.domain == MICROSOFT for node in graph.nodes):
        graph.opset.setdefault(MICROSOFT, 1)


def _only(settings: QuantizationSettings, op_types: frozenset[str]) -> QuantizationSettings:
    return replace(settings, op_types=settings.op_types & op_types)


def _ranges(graph: Graph, settings: QuantizationSettings, tensors: TensorsData) -> Ranges:
    """Ranges by value, with what operators say of them."""
    ranges: Ranges = {}
    for name, data in tensors.items():
        value = graph.value(name)
        if value is not None:
            ranges[value] = data
    for node in graph.nodes:
        if not settings.wants(node):
            continue
        x, y = node.input(0), node.outputs[0]
        if node.op_type in ("Relu", "Clip") and x is not None and x.use_count == 1:
            if x in ranges and y in ranges:
                ranges[x] = ranges[y]
        elif node.op_type == "Softmax" and y in ranges:
            ranges[y] = TensorData(lowest=np.float32(0), highest=np.float32(1))
    return ranges
