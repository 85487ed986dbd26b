"""What an execution provider outside the package needs: see docs/providers.md."""

from sardonyx.runtime.plugin import (
    Compute,
    DeviceMemory,
    ModelNode,
    ModelPart,
    ModelValue,
    PluginProvider,
    ProviderDevice,
    Refused,
)

__all__ = [
    "Compute",
    "DeviceMemory",
    "ModelNode",
    "ModelPart",
    "ModelValue",
    "PluginProvider",
    "ProviderDevice",
    "Refused",
]
