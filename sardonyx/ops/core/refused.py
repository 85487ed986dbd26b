"""Operators of onnxruntime that have no lowering here, and why."""

from __future__ import annotations

from collections.abc import Mapping

_PLUGIN = "It is a plugin of TensorRT, which onnxruntime only hands on"
_LAYOUT = (
    "onnxruntime writes it for one machine's layout of images into a model that it optimises; "
    "use the model as it was before"
)
_BLOCKS = (
    "Its schema does not say which block floating point a bfp_type is, and onnxruntime has no "
    "kernel of it"
)
_TILES = (
    "Its schema leaves to cuBLASLt how matrices lie in tiles, and does not say where between its "
    "products it rounds to codes; onnxruntime has a kernel for NVIDIA's GPUs alone"
)

#: Domains of operators that onnxruntime alone writes.
LAYOUT_DOMAINS = ("com.microsoft.nchwc", "com.ms.internal.nhwc")

#: Domain, operator -> reason.
REASONS: Mapping[tuple[str, str], str] = {
    ("", "DisentangledAttention_TRT"): _PLUGIN,
    ("", "EfficientNMS_TRT"): _PLUGIN,
    ("", "MultilevelCropAndResize_TRT"): _PLUGIN,
    ("", "PyramidROIAlign_TRT"): _PLUGIN,
    ("com.microsoft", "DequantizeBFP"): _BLOCKS,
    ("com.microsoft", "QuantizeBFP"): _BLOCKS,
    ("com.microsoft", "QOrderedAttention"): _TILES,
    ("com.microsoft", "QOrderedLongformerAttention"): _TILES,
    ("com.microsoft", "Snpe"): "It holds a model that was compiled for Qualcomm's processors",
}


def reason_of(domain: str, op_type: str) -> str:
    """Why an operator is refused; "" if nothing is known about it."""
    if domain in LAYOUT_DOMAINS:
        return _LAYOUT
    return REASONS.get((domain, op_type), "")
