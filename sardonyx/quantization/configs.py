"""Arguments of a quantisation, kept together, under onnxruntime's names."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any

from sardonyx.quantization.calibration_data import CalibrationDataReader
from sardonyx.quantization.enums import NEWER_TYPES, CalibrationMethod, QuantFormat, QuantType
from sardonyx.quantization.model import open_model

Names = Iterable[str]


class QuantConfig:
    """What static and dynamic quantisation have in common; see `quantize_static`."""

    def __init__(
        self,
        activation_type: QuantType = QuantType.QUInt8,
        weight_type: QuantType = QuantType.QInt8,
        op_types_to_quantize: Names | None = None,
        nodes_to_quantize: Names | None = None,
        nodes_to_exclude: Names | None = None,
        per_channel: bool = False,
        reduce_range: bool = False,
        use_external_data_format: bool = False,
    ) -> None:
        self.activation_type = activation_type
        self.weight_type = weight_type
        self.op_types_to_quantize = list(op_types_to_quantize or [])
        self.nodes_to_quantize = list(nodes_to_quantize or [])
        self.nodes_to_exclude = list(nodes_to_exclude or [])
        self.per_channel = per_channel
        self.reduce_range = reduce_range
        self.use_external_data_format = use_external_data_format


class StaticQuantConfig(QuantConfig):
    """Arguments of `quantize_static`."""

    def __init__(
        self,
        calibration_data_reader: CalibrationDataReader | None,
        calibrate_method: CalibrationMethod = CalibrationMethod.MinMax,
        quant_format: QuantFormat = QuantFormat.QDQ,
        activation_type: QuantType = QuantType.QInt8,
        weight_type: QuantType = QuantType.QInt8,
        op_types_to_quantize: Names | None = None,
        nodes_to_quantize: Names | None = None,
        nodes_to_exclude: Names | None = None,
        per_channel: bool = False,
        reduce_range: bool = False,
        use_external_data_format: bool = False,
        calibration_providers: list[str] | None = None,
        extra_options: Mapping[str, Any] | None = None,
    ) -> None:
        super().__init__(
            activation_type, weight_type, op_types_to_quantize, nodes_to_quantize,
            nodes_to_exclude, per_channel, reduce_range, use_external_data_format,
        )  # fmt: skip
        self.calibration_data_reader = calibration_data_reader
        self.calibrate_method = calibrate_method
        self.quant_format = quant_format
        self.calibration_providers = calibration_providers
        self.extra_options = dict(extra_options or {})


class DynamicQuantConfig(QuantConfig):
    """Arguments of `quantize_dynamic`."""

    def __init__(
        self,
        weight_type: QuantType = QuantType.QInt8,
        op_types_to_quantize: Names | None = None,
        nodes_to_quantize: Names | None = None,
        nodes_to_exclude: Names | None = None,
        per_channel: bool = False,
        reduce_range: bool = False,
        use_external_data_format: bool = False,
        extra_options: Mapping[str, Any] | None = None,
    ) -> None:
        super().__init__(
            QuantType.QUInt8, weight_type, op_types_to_quantize, nodes_to_quantize,
            nodes_to_exclude, per_channel, reduce_range, use_external_data_format,
        )  # fmt: skip
        self.extra_options = dict(extra_options or {})


#: Operators that `get_qdq_config` never asks for.
_NOT_IN_WHOLE = frozenset(("Cast", "DequantizeLinear", "QuantizeLinear"))
#: Arguments of a calibration, and the extra options that say the same.
_CALIBRATION = {
    "symmetric": "CalibTensorRangeSymmetric",
    "moving_average": "CalibMovingAverage",
    "averaging_constant": "CalibMovingAverageConstant",
    "max_intermediate_outputs": "CalibMaxIntermediateOutputs",
    "percentile": "CalibPercentile",
}


def get_qdq_config(
    model_input: Any,
    calibration_data_reader: CalibrationDataReader,
    calibrate_method: CalibrationMethod = CalibrationMethod.MinMax,
    calibrate_args: Mapping[str, Any] | None = None,
    activation_type: QuantType = QuantType.QUInt8,
    weight_type: QuantType = QuantType.QInt8,
    activation_symmetric: bool = False,
    weight_symmetric: bool | None = None,
    per_channel: bool = False,
    reduce_range: bool = False,
    keep_removable_activations: bool = False,
    min_real_range: float | None = None,
    tensor_quant_overrides: Mapping[str, list[dict[str, Any]]] | None = None,
    calibration_providers: list[str] | None = None,
    op_types_to_quantize: list[str] | None = None,
    nodes_to_exclude: list[str] | Callable[[Any, Any], bool] | None = None,
    extra_options: Mapping[str, Any] | None = None,
) -> StaticQuantConfig:
    """A configuration that quantises the whole model, floats standing between codes.

    Args:
        model_input: A path, or a `ModelProto`.
        calibration_data_reader: Sample inputs.
        calibrate_method: How ranges are made of what was seen.
        calibrate_args: Arguments of that, by name.
        activation_type: Codes of what is computed.
        weight_type: Codes of weights.
        activation_symmetric: Whether zero is the middle code of activations.
        weight_symmetric: The same for weights; None where the type decides.
        per_channel: A scale for each channel of a weight.
        reduce_range: One bit less for weights.
        keep_removable_activations: Keep Relu and Clip where the range of codes says the same.
        min_real_range: Smallest width of a range.
        tensor_quant_overrides: Parameters of single tensors.
        calibration_providers: What runs the model.
        op_types_to_quantize: Operators; None for all of the model.
        nodes_to_exclude: Names, or a function of the model and a node that says which. It gets the
            `ModelProto` and `NodeProto` where the package onnx is there to make them.
        extra_options: Further ones; they go before the arguments.
    """
    excluded = _excluded(model_input, nodes_to_exclude)
    graph = open_model(model_input, prepare=False)
    op_types = op_types_to_quantize or sorted(
        {n.op_type for n in graph.nodes if n.name not in excluded} - _NOT_IN_WHOLE
    )
    given = calibrate_args or {}
    options: dict[str, Any] = {
        "MinimumRealRange": min_real_range,
        "QDQKeepRemovableActivations": keep_removable_activations,
        "ActivationSymmetric": activation_symmetric,
        "WeightSymmetric": weight_symmetric,
        "ForceQuantizeNoInputCheck": True,
        "TensorQuantOverrides": dict(tensor_quant_overrides or {}),
        **{name: given[key] for key, name in _CALIBRATION.items() if key in given},
    }
    four_bits = {QuantType.QInt4, QuantType.QUInt4}
    types = {activation_type, weight_type}
    if graph.opset.get("", 0) < 21 and types & four_bits and not types & (NEWER_TYPES - four_bits):
        options["UseQDQContribOps"] = True
    size = sum(v.constant.size_bytes for v in graph.initializers.values() if v.constant)
    return StaticQuantConfig(
        calibration_data_reader,
        calibrate_method,
        QuantFormat.QDQ,
        activation_type,
        weight_type,
        op_types,
        None,
        sorted(excluded),
        per_channel,
        reduce_range,
        bool(graph.files) or size >= 1 << 31,
        calibration_providers,
        {**options, **(extra_options or {})},
    )


def _excluded(model: Any, given: list[str] | Callable[[Any, Any], bool] | None) -> set[str]:
    if not callable(given):
        return set(given or ())
    import onnx

    proto = model if isinstance(model, onnx.ModelProto) else onnx.load(model)
    return {node.name for node in proto.graph.node if given(proto, node)}
