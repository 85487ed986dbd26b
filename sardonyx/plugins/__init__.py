"""What an execution provider outside the package needs: see docs/plugins.md.

A provider says which nodes it takes, is given parts of the model, and computes them.

Entry point: `provider.PluginProvider`. Read first: `provider.py`, `claims.py` and `regions.py`.
"""

from sardonyx.plugins.provider import (
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
