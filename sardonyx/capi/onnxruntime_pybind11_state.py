"""Classes, functions and exceptions under the name of onnxruntime's compiled module."""

from sardonyx.api.adapters import AdapterFormat, LoraAdapter
from sardonyx.api.assignment import OrtEpAssignedNode, OrtEpAssignedSubgraph
from sardonyx.api.compatibility import (
    get_compatibility_info_from_model,
    get_compatibility_info_from_model_bytes,
    get_hardware_device_ep_incompatibility_details,
    get_hardware_devices,
    get_model_compatibility_for_ep_devices,
)
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
from sardonyx.api.dlpack import is_uint8_capsule as is_dlpack_uint8_tensor
from sardonyx.api.enums import (
    ArenaExtendStrategy,
    ExecutionMode,
    ExecutionOrder,
    GraphOptimizationLevel,
    OrtAllocatorType,
    OrtCompileApiFlags,
    OrtCompiledModelCompatibility,
    OrtDeviceEpIncompatibilityReason,
    OrtDeviceMemoryType,
    OrtExecutionProviderDevicePolicy,
    OrtHardwareDeviceType,
    OrtMemoryInfoDeviceType,
    OrtMemType,
    OrtSparseFormat,
)
from sardonyx.api.iobinding import SessionIOBinding
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
    register_execution_provider_library,
    set_default_logger_severity,
    set_default_logger_verbosity,
    set_seed,
    unregister_execution_provider_library,
)
from sardonyx.api.node_arg import NodeArg
from sardonyx.api.options import SessionOptions, get_default_session_options
from sardonyx.api.ortvalue import OrtValue
from sardonyx.api.ortvalue_vector import OrtValueVector
from sardonyx.api.run_options import RunOptions
from sardonyx.api.session import InferenceSession
from sardonyx.api.thread_pool import set_global_thread_pool_sizes
from sardonyx.base.errors import (
    DeviceReset,
    EngineError,
    EPFail,
    Fail,
    InvalidArgument,
    InvalidGraph,
    InvalidProtobuf,
    ModelLoadCanceled,
    ModelLoaded,
    ModelRequiresCompilation,
    NoModel,
    NoSuchFile,
    NotFound,
    NotImplemented,
    RuntimeException,
)
from sardonyx.host.sparse_tensor import SparseCooView, SparseCsrView, SparseTensor
from sardonyx.runtime.declared import ModelMetadata

kNextPowerOfTwo = ArenaExtendStrategy.kNextPowerOfTwo  # noqa: N816 - as in onnxruntime
kSameAsRequested = ArenaExtendStrategy.kSameAsRequested  # noqa: N816 - as in onnxruntime

__all__ = [
    "AdapterFormat",
    "ArenaExtendStrategy",
    "DeviceReset",
    "EPFail",
    "EngineError",
    "ExecutionMode",
    "ExecutionOrder",
    "Fail",
    "GraphOptimizationLevel",
    "InferenceSession",
    "InvalidArgument",
    "InvalidGraph",
    "InvalidProtobuf",
    "LoraAdapter",
    "ModelCompiler",
    "ModelLoadCanceled",
    "ModelLoaded",
    "ModelMetadata",
    "ModelRequiresCompilation",
    "NoModel",
    "NoSuchFile",
    "NodeArg",
    "NotFound",
    "NotImplemented",
    "OrtAllocatorType",
    "OrtArenaCfg",
    "OrtCompileApiFlags",
    "OrtCompiledModelCompatibility",
    "OrtDevice",
    "OrtDeviceEpIncompatibilityReason",
    "OrtDeviceMemoryType",
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
    "OrtValueVector",
    "RunOptions",
    "RuntimeException",
    "SessionIOBinding",
    "SessionOptions",
    "SparseCooView",
    "SparseCsrView",
    "SparseTensor",
    "copy_tensors",
    "create_and_register_allocator",
    "create_and_register_allocator_v2",
    "disable_telemetry_events",
    "enable_telemetry_events",
    "get_all_providers",
    "get_available_providers",
    "get_build_info",
    "get_compatibility_info_from_model",
    "get_compatibility_info_from_model_bytes",
    "get_default_session_options",
    "get_device",
    "get_ep_devices",
    "get_hardware_device_ep_incompatibility_details",
    "get_hardware_devices",
    "get_model_compatibility_for_ep_devices",
    "get_version_string",
    "has_collective_ops",
    "is_dlpack_uint8_tensor",
    "kNextPowerOfTwo",
    "kSameAsRequested",
    "register_execution_provider_library",
    "set_default_logger_severity",
    "set_default_logger_verbosity",
    "set_global_thread_pool_sizes",
    "set_seed",
    "unregister_execution_provider_library",
]
