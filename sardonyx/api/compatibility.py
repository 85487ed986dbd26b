"""Whether a provider works on a device, and what a model says about who compiled it."""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import Any

from sardonyx.api.cuda_options import CUDA
from sardonyx.api.devices import OrtEpDevice, OrtHardwareDevice, get_ep_devices
from sardonyx.api.enums import (
    OrtCompiledModelCompatibility,
    OrtDeviceEpIncompatibilityReason,
    OrtHardwareDeviceType,
)
from sardonyx.api.plugins import plugin_names
from sardonyx.api.providers import CPU
from sardonyx.base.errors import Fail, InvalidArgument, SardonyxError, message

#: The key of a model's metadata, before the provider's name.
_PREFIX = "ep_compatibility_info."


def get_hardware_devices() -> list[OrtHardwareDevice]:
    """The processor, and GPUs that work."""
    return [device.device for device in get_ep_devices()]


def get_hardware_device_ep_incompatibility_details(
    ep_name: str, hw: OrtHardwareDevice
) -> dict[str, Any]:
    """Why a provider does not work on a device: `reasons_bitmask`, `notes`, `error_code`.

    Raises:
        InvalidArgument: There is no such provider, or this is no device.
    """
    where = "get_hardware_device_ep_incompatibility_details"
    known = (CPU, CUDA, *plugin_names())
    if ep_name not in known:
        what = f"There is no provider {ep_name!r}"
        raise InvalidArgument(message(where, what, expected=f"one of {known}"))
    if not isinstance(hw, OrtHardwareDevice):
        raise InvalidArgument(message(where, "This is no device", got=type(hw).__name__))
    reason, notes = OrtDeviceEpIncompatibilityReason.NONE, None
    if (ep_name == CUDA) is not (hw.type == OrtHardwareDeviceType.GPU):
        reason = OrtDeviceEpIncompatibilityReason.DEVICE_INCOMPATIBLE
        notes = f"{ep_name} does not run on a {hw.type.name}"
    return {"reasons_bitmask": int(reason), "notes": notes, "error_code": 0}


def get_model_compatibility_for_ep_devices(
    ep_devices: Sequence[OrtEpDevice], compatibility_info: str
) -> OrtCompiledModelCompatibility:
    """Always EP_NOT_APPLICABLE: no provider of this package writes such text into models.

    Raises:
        InvalidArgument: There are no devices.
        TypeError: The text is none.
    """
    where = "get_model_compatibility_for_ep_devices"
    if not isinstance(compatibility_info, str):
        got = type(compatibility_info).__name__
        raise TypeError(message(where, "This is no text", expected="str", got=got))
    if not ep_devices or not all(isinstance(d, OrtEpDevice) for d in ep_devices):
        raise InvalidArgument(message(where, "These are no devices", got=repr(ep_devices)))
    return OrtCompiledModelCompatibility.EP_NOT_APPLICABLE


def get_compatibility_info_from_model(
    model_path: str | os.PathLike[str], ep_type: str
) -> str | None:
    """What a model's metadata say for a provider; None where they say nothing.

    Raises:
        InvalidArgument: A name is empty.
        Fail: There is no such model, or it cannot be read.
    """
    if not os.fspath(model_path):
        raise InvalidArgument(message("get_compatibility_info_from_model", "The path is empty"))
    return _info(model_path, ep_type)


def get_compatibility_info_from_model_bytes(model_bytes: bytes, ep_type: str) -> str | None:
    """The same, for a model's bytes. Raises as `get_compatibility_info_from_model` does."""
    if not model_bytes:
        what = "There are no bytes"
        raise InvalidArgument(message("get_compatibility_info_from_model_bytes", what))
    return _info(model_bytes, ep_type)


def _info(source: Any, ep_type: str) -> str | None:
    from sardonyx.loader.load import metadata_of

    where = "get_compatibility_info_from_model"
    if not isinstance(ep_type, str) or not ep_type:
        raise InvalidArgument(message(where, "There is no name of a provider", got=repr(ep_type)))
    try:
        return metadata_of(source).get(_PREFIX + ep_type)
    except (ValueError, OSError, SardonyxError) as error:
        raise Fail(message(where, f"The model cannot be read: {error}")) from error
