"""Which devices, and so which providers, a session is made for where the program names a policy."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypeAlias

from sardonyx.api.devices import OrtEpDevice, get_ep_devices
from sardonyx.api.enums import OrtExecutionProviderDevicePolicy as Policy
from sardonyx.api.enums import OrtHardwareDeviceType as Kind
from sardonyx.api.providers import CPU
from sardonyx.base.errors import Fail, InvalidArgument, message

_DELEGATE = "set_provider_selection_policy_delegate"
_MOST_DEVICES = 8
#: The kind of device that each policy looks for first; as in onnxruntime.
_WANTED = {
    Policy.DEFAULT: Kind.CPU, Policy.PREFER_CPU: Kind.CPU,
    Policy.PREFER_NPU: Kind.NPU, Policy.MAX_EFFICIENCY: Kind.NPU,
    Policy.MIN_OVERALL_POWER: Kind.NPU,
    Policy.PREFER_GPU: Kind.GPU, Policy.MAX_PERFORMANCE: Kind.GPU,
}  # fmt: skip

#: Given devices, what a model says of itself, an empty mapping and the most devices that may be
#: chosen, gives the devices in order of preference.
Delegate: TypeAlias = Callable[
    [Sequence[OrtEpDevice], Mapping[str, str], Mapping[str, str], int], Sequence[OrtEpDevice]
]


def provider_of(
    devices: Sequence[OrtEpDevice], options: Mapping[str, str], where: str
) -> tuple[str, dict[str, str]]:
    """The provider of a device, with what the device and the program say of its options.

    Raises:
        InvalidArgument: These are no devices, or more than one.
    """
    listed = devices if isinstance(devices, Sequence) else [devices]
    if not listed or not all(isinstance(d, OrtEpDevice) for d in listed):
        raise InvalidArgument(
            message(where, "These are no devices", expected="[OrtEpDevice]", got=repr(devices))
        )
    if len(listed) > 1:
        names = ", ".join(d.ep_name for d in listed)
        what = "A provider has one device in a session"
        raise InvalidArgument(message(where, what, got=names, do="Call it once for each provider"))
    return listed[0].ep_name, {**listed[0].ep_options, **options}


def chosen(policy: Policy | Delegate, source: Any) -> list[tuple[str, dict[str, str]]]:
    """Providers of a session of the model `source`, with their options, in order of preference.

    Args:
        policy: What to prefer, or a function that chooses devices.

    Raises:
        Fail: The function raised, or chose nothing, or what are no devices.
        InvalidArgument: It chose a provider twice.
    """
    if not isinstance(policy, Policy):
        devices = _by_delegate(policy, source)
    else:
        others = (d for d in get_ep_devices() if d.ep_name != CPU)
        devices = [d for d in others if d.device.type == _WANTED[policy]][:1]
    found = [provider_of([d], {}, _DELEGATE) for d in devices]
    if len({name for name, _ in found}) < len(found):
        names = ", ".join(name for name, _ in found)
        what = "A provider has one device in a session"
        raise InvalidArgument(message(_DELEGATE, what, got=names))
    return found


def _by_delegate(delegate: Delegate, source: Any) -> list[OrtEpDevice]:
    devices = get_ep_devices()
    facts = _facts(source)
    try:
        found = list(delegate(devices, facts, {}, _MOST_DEVICES))
    except Exception as error:
        what = f"The function failed: {type(error).__name__}: {error}"
        raise Fail(message(_DELEGATE, what)) from error
    if not found or not all(isinstance(d, OrtEpDevice) for d in found):
        what = "The function chose what are no devices" if found else "The function chose nothing"
        raise Fail(message(_DELEGATE, what, expected="some of the devices", got=repr(found)))
    if len(found) > _MOST_DEVICES:
        what = "The function chose too many devices"
        raise Fail(message(_DELEGATE, what, expected=str(_MOST_DEVICES), got=str(len(found))))
    return found


def _facts(source: Any) -> dict[str, str]:
    """What a model says of itself, under onnxruntime's names."""
    from sardonyx.loader.load import facts_of
    from sardonyx.store.bundle import is_bundle

    return {} if is_bundle(source) else facts_of(source)
