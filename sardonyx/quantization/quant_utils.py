"""Names that programs import from onnxruntime's module of this name."""

from sardonyx.quantization.enums import QuantFormat, QuantizationMode, QuantType

__all__ = ["QuantFormat", "QuantType", "QuantizationMode"]
