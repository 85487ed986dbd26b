"""ONNX's backend interface, as `onnxruntime.backend` has it: prepare a model, run it."""

from sardonyx.backend.backend import (
    OnnxRuntimeBackend,
    is_compatible,
    prepare,
    run,
    supports_device,
)
from sardonyx.backend.backend_rep import OnnxRuntimeBackendRep

__all__ = [
    "OnnxRuntimeBackend",
    "OnnxRuntimeBackendRep",
    "is_compatible",
    "prepare",
    "run",
    "supports_device",
]
