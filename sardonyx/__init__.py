"""ONNX models, compiled through LLVM when a session is made, at the speed of the hardware.

The names are onnxruntime's: `import sardonyx as ort` is the one line that changes.
"""

from sardonyx.api.enums import (
    ExecutionMode,
    ExecutionOrder,
    GraphOptimizationLevel,
    OrtAllocatorType,
    OrtDeviceMemoryType,
    OrtMemType,
    OrtSparseFormat,
)
from sardonyx.api.iobinding import IOBinding, SessionIOBinding
from sardonyx.api.module import (
    get_all_providers,
    get_available_providers,
    get_build_info,
    get_device,
    get_version_string,
    install_as_onnxruntime,
    set_default_logger_severity,
    set_default_logger_verbosity,
)
from sardonyx.api.options import RunOptions, SessionOptions
from sardonyx.api.ortvalue import OrtDevice, OrtValue
from sardonyx.api.session import InferenceSession, ModelMetadata, NodeArg
from sardonyx.api.version import __version__

__all__ = [
    "ExecutionMode",
    "ExecutionOrder",
    "GraphOptimizationLevel",
    "IOBinding",
    "InferenceSession",
    "ModelMetadata",
    "NodeArg",
    "OrtAllocatorType",
    "OrtDevice",
    "OrtDeviceMemoryType",
    "OrtMemType",
    "OrtSparseFormat",
    "OrtValue",
    "RunOptions",
    "SessionIOBinding",
    "SessionOptions",
    "__version__",
    "get_all_providers",
    "get_available_providers",
    "get_build_info",
    "get_device",
    "get_version_string",
    "install_as_onnxruntime",
    "set_default_logger_severity",
    "set_default_logger_verbosity",
]
