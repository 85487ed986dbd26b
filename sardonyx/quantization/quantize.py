"""`quantize_static`, `quantize_dynamic` and `quantize`, as onnxruntime names them."""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from sardonyx.base import dtypes, errors
from sardonyx.base.errors import InvalidArgument, message
from sardonyx.base.log import get_logger
from sardonyx.ir.graph import Graph
from sardonyx.quantization.calibrate import create_calibrator
from sardonyx.quantization.calibration_data import (
    CalibrationDataReader,
    TensorsData,
    load_tensors_data,
    save_tensors_data,
)
from sardonyx.quantization.configs import DynamicQuantConfig, QuantConfig, StaticQuantConfig
from sardonyx.quantization.dynamic import DYNAMIC_OPERATORS, quantise_dynamic
from sardonyx.quantization.enums import (
    NEWER_TYPES,
    CalibrationMethod,
    QuantFormat,
    QuantType,
)
from sardonyx.quantization.matmul_nbits_quantizer import MatMulNBitsQuantizer, WeightOnlyQuantConfig
from sardonyx.quantization.model import open_model, raise_opset, write_model
from sardonyx.quantization.options import Options, options_of
from sardonyx.quantization.rules import STATIC_OPERATORS
from sardonyx.quantization.settings import QuantizationSettings
from sardonyx.quantization.static import MICROSOFT, quantise_static

_logger = get_logger("quantization")

FilePath = str | os.PathLike[str]
Names = Iterable[str]


def quantize_static(
    model_input: Any,
    model_output: FilePath,
    calibration_data_reader: CalibrationDataReader | None = None,
    quant_format: QuantFormat = QuantFormat.QDQ,
    op_types_to_quantize: Names | None = None,
    per_channel: bool = False,
    reduce_range: bool = False,
    activation_type: QuantType = QuantType.QInt8,
    weight_type: QuantType = QuantType.QInt8,
    nodes_to_quantize: Names | None = None,
    nodes_to_exclude: Names | None = None,
    use_external_data_format: bool = False,
    calibrate_method: CalibrationMethod = CalibrationMethod.MinMax,
    calibration_providers: list[str] | None = None,
    extra_options: Mapping[str, Any] | None = None,
    calibration_cache_path: FilePath | None = None,
) -> None:
    """Write a model whose weights and activations are codes, with scales found beforehand.

    Args:
        model_input: A path, bytes or a `ModelProto`.
        model_output: The file to write.
        calibration_data_reader: Sample inputs; None where there is a calibration cache.
        quant_format: Floats between QuantizeLinear and DequantizeLinear, or operators on codes.
        op_types_to_quantize: Operators; None for all that can be.
        per_channel: A scale for each channel of a weight.
        reduce_range: One bit less for weights, for processors without VNNI.
        activation_type: Codes of what is computed.
        weight_type: Codes of weights.
        nodes_to_quantize: Names of the only nodes to quantise.
        nodes_to_exclude: Names of nodes to leave alone.
        use_external_data_format: Write large constants to a file beside the model.
        calibrate_method: How ranges are made of what was seen.
        calibration_providers: What runs the model.
        extra_options: See docs/quantization.md.
        calibration_cache_path: A file of ranges: read if it is there, else written.

    Raises:
        InvalidArgument: An argument does not fit.
        NotImplemented: A combination, or an operator, is not supported.
        NoSuchFile: The model is not there.
        InvalidProtobuf: It is not readable.
        InvalidGraph: It is not valid.
    """
    options = options_of(extra_options)
    settings = QuantizationSettings(
        activation_type,
        weight_type,
        per_channel,
        reduce_range,
        frozenset(op_types_to_quantize or STATIC_OPERATORS),
        frozenset(nodes_to_quantize or ()),
        frozenset(nodes_to_exclude or ()),
        options,
    )
    _check_static(settings, quant_format, calibrate_method)
    graph = open_model(model_input, prepare=options.prepare)
    graph, domain = _with_opset(graph, settings)
    tensors = _calibrated(
        graph, settings, calibration_data_reader, calibrate_method, calibration_providers,
        calibration_cache_path,
    )  # fmt: skip
    quantise_static(graph, settings, tensors, quant_format, domain)
    _finish(graph, model_output, use_external_data_format)


def quantize_dynamic(
    model_input: Any,
    model_output: FilePath,
    op_types_to_quantize: Names | None = None,
    per_channel: bool = False,
    reduce_range: bool = False,
    weight_type: QuantType = QuantType.QInt8,
    nodes_to_quantize: Names | None = None,
    nodes_to_exclude: Names | None = None,
    use_external_data_format: bool = False,
    extra_options: Mapping[str, Any] | None = None,
) -> None:
    """Write a model whose weights are codes, and whose activations become codes in each run.

    Args, and what is raised: as for `quantize_static`.
    """
    options = options_of(extra_options)
    if options.constant_factor_only is None:
        options = replace(options, constant_factor_only=True)
    if weight_type not in (QuantType.QInt8, QuantType.QUInt8):
        what = "Weights of dynamic quantisation have 8 bits"
        raise InvalidArgument(
            message("quantize_dynamic", what, expected="QInt8 or QUInt8", got=str(weight_type))
        )
    settings = QuantizationSettings(
        QuantType.QUInt8,
        weight_type,
        per_channel,
        reduce_range,
        frozenset(op_types_to_quantize or DYNAMIC_OPERATORS),
        frozenset(nodes_to_quantize or ()),
        frozenset(nodes_to_exclude or ()),
        options,
    )
    graph = open_model(model_input, prepare=options.prepare)
    graph = raise_opset(graph, 11, "Dynamic quantisation")
    quantise_dynamic(graph, settings)
    _finish(graph, model_output, use_external_data_format)


def quantize(
    model_input: Any, model_output: FilePath, quant_config: QuantConfig | WeightOnlyQuantConfig
) -> None:
    """Write a quantised model, as a configuration says.

    Raises:
        InvalidArgument: The configuration is none.
    """
    config: Any = quant_config
    if isinstance(config, StaticQuantConfig | DynamicQuantConfig):
        named = dict(vars(config))
        if isinstance(config, StaticQuantConfig):
            quantize_static(model_input, model_output, **named)
        else:
            del named["activation_type"]
            quantize_dynamic(model_input, model_output, **named)
    elif isinstance(config, WeightOnlyQuantConfig):
        quantizer = MatMulNBitsQuantizer(model_input, algo_config=config)
        quantizer.process()
        quantizer.model.save_model_to_file(model_output, True)
    else:
        expected = "StaticQuantConfig, DynamicQuantConfig or WeightOnlyQuantConfig"
        raise InvalidArgument(
            message(
                "quantize",
                "It is no configuration",
                expected=expected,
                got=type(config).__name__,
            )
        )


def _check_static(
    settings: QuantizationSettings, format: QuantFormat, method: CalibrationMethod
) -> None:
    activation, weight = settings.activation_type, settings.weight_type
    where = f"activation_type={activation}, weight_type={weight}"
    for name, value, kind in (
        ("activation_type", activation, QuantType),
        ("weight_type", weight, QuantType),
        ("quant_format", format, QuantFormat),
        ("calibrate_method", method, CalibrationMethod),
    ):
        if not isinstance(value, kind):
            what = f"{name} is no {kind.__name__}"
            raise InvalidArgument(message("quantize_static", what, got=repr(value)))
    if QuantType.QFLOAT8E4M3FN in (activation, weight):
        raise errors.NotImplemented(
            message(where, "Codes of 8-bit floats are not supported", do="Take QInt8 or QUInt8")
        )
    if activation is QuantType.QInt8 and weight is QuantType.QUInt8:
        what = "onnxruntime has no kernels for int8 activations and uint8 weights"
        raise InvalidArgument(message(where, what, do="Take QInt8 weights"))
    if format is QuantFormat.QOperator and {activation, weight} & NEWER_TYPES:
        what = "Operators on codes take 8 bits"
        raise InvalidArgument(message(where, what, do="Take QuantFormat.QDQ"))
    if format is QuantFormat.QOperator and settings.options.block:
        what = "Operators on codes take no blocks of weights"
        raise InvalidArgument(message("BlockSize", what, do="Take QuantFormat.QDQ"))
    if settings.options.subgraphs:
        what = "Static quantisation does not reach into branches and loops"
        raise errors.NotImplemented(message("EnableSubgraph", what, do="Take quantize_dynamic"))


def _with_opset(graph: Graph, settings: QuantizationSettings) -> tuple[Graph, str]:
    """The graph in a version that has what is needed, and the domain of QuantizeLinear."""
    options: Options = settings.options
    overrides = {
        item.get("quant_type") for items in options.overrides.values() for item in items
        if isinstance(item, dict)
    }  # fmt: skip
    newer = {settings.activation_type, settings.weight_type, *overrides} & NEWER_TYPES
    if options.block:
        return raise_opset(graph, 21, "A block of weights"), ""
    if options.contrib:
        return raise_opset(graph, 11, "Quantisation"), MICROSOFT
    if newer:
        return raise_opset(graph, 21, "A type of codes that is not of 8 bits"), ""
    if any(v.dtype is dtypes.FLOAT16 for node in graph.nodes for v in node.outputs):
        return raise_opset(graph, 19, "A scale of float16"), ""
    if settings.per_channel:
        return raise_opset(graph, 13, "A scale for each channel"), ""
    return raise_opset(graph, 11, "Quantisation"), ""


def _calibrated(
    graph: Graph,
    settings: QuantizationSettings,
    reader: CalibrationDataReader | None,
    method: CalibrationMethod,
    providers: list[str] | None,
    cache: FilePath | None,
) -> TensorsData:
    if cache is not None and Path(cache).exists():
        found = load_tensors_data(cache)
        if found.calibration_method is not method:
            what = f"It was made by {found.calibration_method}, and {method} is asked for"
            raise InvalidArgument(message(str(cache), what, do="Delete it, or take that method"))
        return found
    if reader is None:
        what = "There is neither calibration data nor a calibration cache"
        raise InvalidArgument(message("quantize_static", what))
    if not hasattr(reader, "get_next"):
        what = f"A {type(reader).__name__} is no calibration data reader"
        raise InvalidArgument(message("quantize_static", what, expected="get_next()"))
    options = settings.options
    calibrator = create_calibrator(
        graph,
        settings.op_types,
        calibrate_method=method,
        providers=providers,
        extra_options=_arguments(options, method),
    )
    if options.stride:
        count = len(reader)
        if count % options.stride:
            what = f"{count} items of calibration data are no whole number of strides"
            raise InvalidArgument(message("CalibStridedMinMax", what, got=str(options.stride)))
        for start in range(0, count, options.stride):
            reader.set_range(start, start + options.stride)
            calibrator.collect_data(reader)
    else:
        calibrator.collect_data(reader)
    found = calibrator.compute_data()
    if cache is not None:
        save_tensors_data(found, cache)
    return found


def _arguments(options: Options, method: CalibrationMethod) -> dict[str, Any]:
    """Arguments of what calibrates."""
    found: dict[str, Any] = {}
    if options.range_symmetric is not None and method is not CalibrationMethod.Distribution:
        found["symmetric"] = options.range_symmetric
    if method is CalibrationMethod.MinMax:
        found["moving_average"] = options.moving_average
        found["averaging_constant"] = options.averaging_constant
    elif options.bins is not None:
        found["num_bins"] = options.bins
    if method is CalibrationMethod.Percentile:
        found["percentile"] = options.percentile
    if method is CalibrationMethod.Entropy:
        found["num_quantized_bins"] = options.levels
    return found


def _finish(graph: Graph, path: FilePath, external: bool) -> None:
    graph.header.producer_name = "sardonyx.quantization"
    write_model(graph, path, external=external)
