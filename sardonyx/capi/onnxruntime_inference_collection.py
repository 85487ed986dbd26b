"""Sessions, bindings and values, where onnxruntime's Python part has them."""

from sardonyx.api.adapters import AdapterFormat
from sardonyx.api.compiling import ModelCompiler
from sardonyx.api.copies import copy_tensors
from sardonyx.api.enums import OrtDeviceVendorId
from sardonyx.api.iobinding import IOBinding
from sardonyx.api.memory import OrtDevice
from sardonyx.api.ortvalue import OrtValue
from sardonyx.api.provider_arguments import check_and_normalize_provider_args
from sardonyx.api.session import InferenceSession
from sardonyx.host.sparse_tensor import SparseTensor

#: The base class, in onnxruntime.
Session = InferenceSession

__all__ = [
    "AdapterFormat",
    "IOBinding",
    "InferenceSession",
    "ModelCompiler",
    "OrtDevice",
    "OrtDeviceVendorId",
    "OrtValue",
    "Session",
    "SparseTensor",
    "check_and_normalize_provider_args",
    "copy_tensors",
]
