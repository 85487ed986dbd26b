"""Models are quantised: onnxruntime.quantization's names.

Floats become codes of few bits with a scale and a zero point. See docs/quantization.md.
"""

from sardonyx.quantization.calibrate import (
    CalibraterBase,
    DistributionCalibrater,
    EntropyCalibrater,
    HistogramCalibrater,
    MinMaxCalibrater,
    PercentileCalibrater,
    create_calibrator,
)
from sardonyx.quantization.calibration_data import (
    CalibrationDataReader,
    TensorData,
    TensorsData,
    load_tensors_data,
    save_tensors_data,
)
from sardonyx.quantization.configs import (
    DynamicQuantConfig,
    QuantConfig,
    StaticQuantConfig,
    get_qdq_config,
)
from sardonyx.quantization.enums import CalibrationMethod, QuantFormat, QuantizationMode, QuantType
from sardonyx.quantization.matmul_nbits_quantizer import (
    DefaultWeightOnlyQuantConfig,
    MatMul4BitsQuantizer,
    MatMulNBitsQuantizer,
    RTNWeightOnlyQuantConfig,
    WeightOnlyQuantConfig,
)
from sardonyx.quantization.quantize import quantize, quantize_dynamic, quantize_static
from sardonyx.quantization.shape_inference import quant_pre_process

__all__ = [
    "CalibraterBase",
    "CalibrationDataReader",
    "CalibrationMethod",
    "DefaultWeightOnlyQuantConfig",
    "DistributionCalibrater",
    "DynamicQuantConfig",
    "EntropyCalibrater",
    "HistogramCalibrater",
    "MatMul4BitsQuantizer",
    "MatMulNBitsQuantizer",
    "MinMaxCalibrater",
    "PercentileCalibrater",
    "QuantConfig",
    "QuantFormat",
    "QuantType",
    "QuantizationMode",
    "RTNWeightOnlyQuantConfig",
    "StaticQuantConfig",
    "TensorData",
    "TensorsData",
    "WeightOnlyQuantConfig",
    "create_calibrator",
    "get_qdq_config",
    "load_tensors_data",
    "quant_pre_process",
    "quantize",
    "quantize_dynamic",
    "quantize_static",
    "save_tensors_data",
]
