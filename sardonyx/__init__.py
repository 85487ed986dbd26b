"""ONNX models, compiled through LLVM when a session is made, at the speed of the hardware.

The names are onnxruntime's: `import sardonyx as ort` is the one line that changes.
"""

from sardonyx.base import starting as _starting  # noqa: F401 - before all else

# isort: split

from typing import TYPE_CHECKING as _TYPE_CHECKING

from sardonyx import capi
from sardonyx.api.adapters import AdapterFormat, LoraAdapter
from sardonyx.api.assignment import OrtEpAssignedNode, OrtEpAssignedSubgraph
from sardonyx.api.compiling import (
    ModelCompiler,
    OrtEpContextData,
    OrtEpContextDataBuffer,
    OrtExternalInitializerInfo,
)
from sardonyx.api.copies import copy_tensors
from sardonyx.api.devices import (
    OrtArenaCfg,
    OrtEpDevice,
    OrtHardwareDevice,
    OrtSyncStream,
    create_and_register_allocator,
    create_and_register_allocator_v2,
    get_ep_devices,
)
from sardonyx.api.enums import (
    ExecutionMode,
    ExecutionOrder,
    GraphOptimizationLevel,
    OrtAllocatorType,
    OrtCompileApiFlags,
    OrtDeviceMemoryType,
    OrtDeviceVendorId,
    OrtExecutionProviderDevicePolicy,
    OrtHardwareDeviceType,
    OrtMemoryInfoDeviceType,
    OrtMemType,
    OrtSparseFormat,
)
from sardonyx.api.iobinding import IOBinding, SessionIOBinding
from sardonyx.api.load import load
from sardonyx.api.memory import OrtDevice, OrtMemoryInfo
from sardonyx.api.module import (
    disable_telemetry_events,
    enable_telemetry_events,
    get_all_providers,
    get_available_providers,
    get_build_info,
    get_device,
    get_version_string,
    has_collective_ops,
    preload_dlls,
    print_debug_info,
    register_execution_provider_library,
    set_default_logger_severity,
    set_default_logger_verbosity,
    set_seed,
    unregister_execution_provider_library,
)
from sardonyx.api.module import names_of_package as __dir__  # noqa: F401 - Python calls it
from sardonyx.api.module import of_package as __getattr__  # noqa: F401 - Python calls it
from sardonyx.api.node_arg import NodeArg
from sardonyx.api.options import SessionOptions
from sardonyx.api.ortvalue import OrtValue
from sardonyx.api.run_options import RunOptions
from sardonyx.api.session import InferenceSession
from sardonyx.api.stand_in import install_as_onnxruntime
from sardonyx.api.thread_pool import (
    set_global_thread_affinities,
    set_global_thread_functions,
    set_global_thread_pool_sizes,
)
from sardonyx.api.version import __version__
from sardonyx.base.log import set_up_from_environment as _set_up_log
from sardonyx.capi import onnxruntime_validation
from sardonyx.capi.onnxruntime_validation import package_name, version
from sardonyx.host.sparse_tensor import SparseTensor
from sardonyx.runtime.declared import ModelMetadata

if _TYPE_CHECKING:
    from sardonyx.api.generation.generate import Generation, generate

__all__ = [
    "AdapterFormat",
    "ExecutionMode",
    "ExecutionOrder",
    "Generation",
    "GraphOptimizationLevel",
    "IOBinding",
    "InferenceSession",
    "LoraAdapter",
    "ModelCompiler",
    "ModelMetadata",
    "NodeArg",
    "OrtAllocatorType",
    "OrtArenaCfg",
    "OrtCompileApiFlags",
    "OrtDevice",
    "OrtDeviceMemoryType",
    "OrtDeviceVendorId",
    "OrtEpAssignedNode",
    "OrtEpAssignedSubgraph",
    "OrtEpContextData",
    "OrtEpContextDataBuffer",
    "OrtEpDevice",
    "OrtExecutionProviderDevicePolicy",
    "OrtExternalInitializerInfo",
    "OrtHardwareDevice",
    "OrtHardwareDeviceType",
    "OrtMemType",
    "OrtMemoryInfo",
    "OrtMemoryInfoDeviceType",
    "OrtSparseFormat",
    "OrtSyncStream",
    "OrtValue",
    "RunOptions",
    "SessionIOBinding",
    "SessionOptions",
    "SparseTensor",
    "__version__",
    "capi",
    "copy_tensors",
    "create_and_register_allocator",
    "create_and_register_allocator_v2",
    "disable_telemetry_events",
    "enable_telemetry_events",
    "generate",
    "get_all_providers",
    "get_available_providers",
    "get_build_info",
    "get_device",
    "get_ep_devices",
    "get_version_string",
    "has_collective_ops",
    "install_as_onnxruntime",
    "load",
    "onnxruntime_validation",
    "package_name",
    "preload_dlls",
    "print_debug_info",
    "register_execution_provider_library",
    "set_default_logger_severity",
    "set_default_logger_verbosity",
    "set_global_thread_affinities",
    "set_global_thread_functions",
    "set_global_thread_pool_sizes",
    "set_seed",
    "unregister_execution_provider_library",
    "version",
]

#: What went wrong when the compiled module was imported: there is none here.
import_capi_exception: Exception | None = None

#: The version of CUDA that the driver has; "" without one. Who asks for it loads the driver.
cuda_version: str

_set_up_log()
