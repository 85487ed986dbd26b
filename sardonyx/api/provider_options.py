"""The part of `SessionOptions` about execution providers."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from sardonyx.api.devices import OrtEpDevice
from sardonyx.api.enums import OrtExecutionProviderDevicePolicy
from sardonyx.api.providers import check_options
from sardonyx.api.selection import Delegate, chosen, provider_of
from sardonyx.base.arguments import names_misfits
from sardonyx.base.errors import InvalidArgument, message
from sardonyx.runtime.thread_setup import checked_function


class ProviderOptions:
    """Which providers a session has, and how they are chosen."""

    _providers: list[tuple[str, dict[str, str]]]
    _selection: list[OrtExecutionProviderDevicePolicy | Delegate]

    @names_misfits
    def add_provider(self, name: str, options: dict[str, str]) -> None:
        """Name an execution provider, in order of preference."""
        check_options(name, options)
        self._providers.append((name, dict(options)))

    @names_misfits
    def add_provider_for_devices(
        self, ep_devices: Sequence[OrtEpDevice], provider_options: dict[str, str]
    ) -> None:
        """Name the provider of a device, with options over those that the device recommends.

        Raises:
            InvalidArgument: These are no devices, or more than one.
        """
        where = "add_provider_for_devices"
        self.add_provider(*provider_of(ep_devices, provider_options, where))

    def has_providers(self) -> bool:
        """Whether a provider was named, or how to choose one."""
        return bool(self._providers or self._selection)

    def providers_for(self, source: Any) -> list[tuple[str, dict[str, str]]]:
        """Providers of a session of a model, with options: those named, or as the policy chooses.

        Raises:
            Fail, InvalidArgument: The function that chooses failed.
        """
        if self._providers or not self._selection:
            return list(self._providers)
        return chosen(self._selection[-1], source)

    @names_misfits
    def set_provider_selection_policy(self, policy: OrtExecutionProviderDevicePolicy) -> None:
        """Choose the provider by its kind of device, where none is named.

        PREFER_GPU and MAX_PERFORMANCE look for a GPU, PREFER_NPU, MAX_EFFICIENCY and
        MIN_OVERALL_POWER for an NPU, the others for a provider outside the package that works on
        the processor. The first device of that kind is taken; without one, ours on the processor.
        """
        self._selection[:] = [OrtExecutionProviderDevicePolicy(policy)]

    def set_provider_selection_policy_delegate(self, delegate: Delegate) -> None:
        """Let `delegate(devices, model_metadata, runtime_metadata, most)` choose devices.

        It gives some of the devices, in order of preference, when a session is made.

        Raises:
            InvalidArgument: This is no function.
        """
        where = "set_provider_selection_policy_delegate"
        if delegate is None:
            raise InvalidArgument(message(where, "This is no function", got="None"))
        self._selection[:] = [checked_function(where, delegate)]
